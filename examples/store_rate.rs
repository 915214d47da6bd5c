//! How fast the store makes batches durable, beside what the disk can do: a bare 64-byte write and sync into a
//! preallocated file, and redb alone with one commit a batch.
//!
//! `cargo run --release --example store_rate -- FOLDER [ROUNDS]`. The three take turns, so that noise hits all.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used, reason = "a measurement")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gatewayd::store::{BatchBuilder, FileDisk, Place, Store, StoreOptions};
use redb::{Database, TableDefinition};

/// Appends in one turn.
const TURN: u64 = 200;
const TABLE: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| "store-rate".into());
    let folder = Path::new(&folder);
    let rounds: u32 = arguments.next().map_or(20, |rounds| rounds.parse().unwrap());
    fs::create_dir_all(folder).unwrap();
    let mut bare = bare(folder);
    println!("messages   bare/s  store/s  of bare   redb/s  of bare   store B/message");
    for messages in [1, 8, 64] {
        let mut store = StoreRun::new(folder, messages);
        let mut redb = redb_run(folder, messages);
        let mut times = [Duration::ZERO; 3];
        for _ in 0..rounds {
            times[0] += timed(&mut bare);
            times[1] += timed(|| store.append());
            times[2] += timed(&mut redb);
        }
        let appends = f64::from(rounds) * TURN as f64;
        let [bare, stored, redb] = times.map(|time| appends / time.as_secs_f64());
        println!(
            "{messages:8} {bare:8.0} {stored:8.0} {:8.2} {redb:8.0} {:8.2} {:17.0}",
            stored / bare,
            redb / bare,
            store.bytes() / (appends * messages as f64),
        );
    }
    fs::remove_dir_all(folder).unwrap();
}

fn timed(mut append: impl FnMut()) -> Duration {
    let begun = Instant::now();
    (0..TURN).for_each(|_| append());
    begun.elapsed()
}

/// A write of 64 bytes and a sync, forward through a file of 4 MiB of zeros.
fn bare(folder: &Path) -> impl FnMut() {
    let file = OpenOptions::new().create_new(true).write(true).open(folder.join("bare")).unwrap();
    file.write_all_at(&vec![0; 4 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let mut at = 0;
    move || {
        file.write_all_at(&[7; 64], at).unwrap();
        file.sync_data().unwrap();
        at = (at + 64) % (4 << 20);
    }
}

/// Batches of 100-byte messages, settled 1024 messages later, deleted every 64 batches.
struct StoreRun {
    store: Store,
    messages: usize,
    live: Vec<Place>,
    begun: u64,
}

impl StoreRun {
    fn new(folder: &Path, messages: usize) -> Self {
        let disk = FileDisk::new(&folder.join(format!("store-{messages}"))).unwrap();
        let options = StoreOptions { reserve_free: 0, ..StoreOptions::default() };
        let (store, _) = Store::open(Arc::new(disk), options).unwrap();
        let begun = store.usage().bytes_written_total;
        Self { store, messages, live: Vec::new(), begun }
    }

    fn append(&mut self) {
        let number = self.store.last_batch().next();
        let mut builder = BatchBuilder::new(number);
        for _ in 0..self.messages {
            self.live.push(builder.push(1, &[9; 100]).unwrap());
        }
        if number.0.is_multiple_of(64) && self.live.len() > 1024 {
            let settled = self.live.len() - 1024;
            self.live.drain(..settled).for_each(|place| builder.delete(place));
        }
        self.store.append(builder.finish()).unwrap();
    }

    fn bytes(&self) -> f64 {
        (self.store.usage().bytes_written_total - self.begun) as f64
    }
}

/// The same work as one redb commit a batch.
fn redb_run(folder: &Path, messages: usize) -> impl FnMut() {
    let mut builder = Database::builder();
    builder.set_cache_size(4 << 20);
    let database = builder.create(folder.join(format!("alone-{messages}.redb"))).unwrap();
    let (mut key, mut oldest, mut batch) = (1u64, 1u64, 0u64);
    move || {
        let transaction = database.begin_write().unwrap();
        {
            let mut table = transaction.open_table(TABLE).unwrap();
            for _ in 0..messages {
                table.insert(key, &[9; 120][..]).unwrap();
                key += 1;
            }
            batch += 1;
            while batch.is_multiple_of(64) && key - oldest > 1024 {
                table.remove(oldest).unwrap();
                oldest += 1;
            }
        }
        transaction.commit().unwrap();
    }
}
