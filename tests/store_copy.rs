//! A copy of the store that is taken while rows come, go and move to the backlog: what is made of it is the store as it
//! was at the copy's end, whatever happened in between.

#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

#[path = "support/disk.rs"]
mod disk;
#[path = "support/model.rs"]
mod model;

use std::collections::BTreeMap;

use disk::{Random, SimDisk};
use gatewayd::ids::{ChunkNumber, RowKey};
use gatewayd::store::chunk::{BacklogChange, ChunkPlan, ChunkRead};
use gatewayd::store::copy::CopiedEntry;
use gatewayd::store::restore::Restoring;
use gatewayd::store::{BatchBuilder, Place, Store, StoreError, StoreOptions};

fn options() -> StoreOptions {
    StoreOptions { gateway_bytes_max: 4 << 20, backlog_bytes_max: 8 << 20, ..model::small() }
}

type Row = (Place, u8, Vec<u8>);

/// What the store should hold.
#[derive(Clone, Default)]
struct World {
    rows: BTreeMap<RowKey, Row>,
    chunks: BTreeMap<ChunkNumber, (Vec<u8>, Vec<Row>)>,
    next: u64,
}

impl World {
    fn step(&mut self, store: &mut Store, random: &mut Random) {
        match random.below(10) {
            0 if !self.rows.is_empty() => self.move_rows(store, random),
            1 if self.chunks.len() > 2 => {
                let number =
                    *self.chunks.keys().nth(random.below(self.chunks.len() as u64) as usize).unwrap();
                self.chunks.remove(&number);
                let change = BacklogChange { remove: vec![number], ..BacklogChange::default() };
                store.change_backlog(&change).unwrap();
            }
            2 if !self.chunks.is_empty() => {
                let (number, (summary, _)) = self.chunks.iter_mut().next().unwrap();
                *summary = model::body(random.next(), 30);
                let change =
                    BacklogChange { restate: vec![(*number, summary.clone())], ..BacklogChange::default() };
                store.change_backlog(&change).unwrap();
            }
            _ => self.batch(store, random),
        }
    }

    fn batch(&mut self, store: &mut Store, random: &mut Random) {
        let mut builder = BatchBuilder::new(store.last_batch().next());
        for _ in 0..random.below(12) {
            let len = if random.one_in(12) { random.below(30_000) } else { random.below(1_500) } as usize;
            let body = model::body(random.next(), len);
            let place = builder.push(3, &body).unwrap();
            self.rows.insert(place.key, (place, 3, body));
        }
        while self.rows.len() > 250 || (!self.rows.is_empty() && random.one_in(3)) {
            let at = random.below(self.rows.len() as u64) as usize;
            let key = *self.rows.keys().nth(at).unwrap();
            builder.delete(self.rows.remove(&key).unwrap().0);
        }
        if random.one_in(8)
            && let Some(lowest) = self.rows.keys().next()
        {
            builder.set_min_live_key(*lowest);
        }
        store.append(builder.finish()).unwrap();
    }

    fn move_rows(&mut self, store: &mut Store, random: &mut Random) {
        self.next += 1;
        let number = ChunkNumber(self.next);
        let count = random.below(self.rows.len().min(60) as u64 + 1) as usize;
        let keys: Vec<RowKey> = self.rows.keys().take(count).copied().collect();
        let rows: Vec<Row> = keys.iter().map(|key| self.rows.remove(key).unwrap()).collect();
        let summary = model::body(number.0, 40);
        let places: Vec<Place> = rows.iter().map(|row| row.0).collect();
        let plan = ChunkPlan { number, summary: summary.clone(), rows: places.clone() };
        store.change_backlog(&BacklogChange { add: vec![plan], ..BacklogChange::default() }).unwrap();
        self.chunks.insert(number, (summary, rows));
        let mut builder = BatchBuilder::new(store.last_batch().next());
        places.into_iter().for_each(|place| builder.delete(place));
        store.append(builder.finish()).unwrap();
    }

    fn assert_is_in(&self, store: &mut Store) {
        assert_eq!(model::replay(store), self.rows.clone().into_iter().collect());
        let found = store.take_chunks();
        assert!(found.iter().map(|chunk| chunk.number).eq(self.chunks.keys().copied()));
        for chunk in found {
            let (summary, rows) = &self.chunks[&chunk.number];
            assert_eq!(&chunk.summary, summary);
            let read = ChunkRead { number: chunk.number, from: RowKey(0), bytes_max: usize::MAX };
            let found = store.fetch_chunk(read).unwrap();
            assert!(!found.damaged && found.rows == *rows, "{}", chunk.number);
        }
    }
}

#[test]
fn what_is_made_of_a_copy_is_the_store_at_its_end() {
    for seed in 0..3 {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let (mut store, _) = Store::open(disk.disk(), options()).unwrap();
        let mut world = World::default();
        for _ in 0..random.below(120) {
            world.step(&mut store, &mut random);
        }
        store.begin_copy();
        let mut bites: Vec<Vec<CopiedEntry>> = Vec::new();
        loop {
            let bite = store.copy_next(1 + random.below(60_000) as usize).unwrap();
            bites.push(bite.entries);
            if bite.caught_up && random.one_in(3) {
                break;
            }
            for _ in 0..random.below(12) {
                world.step(&mut store, &mut random);
            }
        }
        let (entries, state) = store.copy_last().unwrap();
        bites.push(entries);
        assert_eq!((state.last_batch, state.boot, state.damaged), (store.last_batch(), 1, 0));

        let made = SimDisk::new(seed + 100);
        let clean = random.one_in(2);
        let mut restoring = Restoring::new(made.disk(), &options()).unwrap();
        bites.iter().for_each(|bite| restoring.take(bite).unwrap());
        restoring.finish(state, clean).unwrap();
        // Everything was synced: a cut right here takes nothing.
        made.cut_power();
        let made = made.reboot();
        let (mut restored, found) = Store::open(made.disk(), options()).unwrap();
        assert_eq!((&found.damage, &found.backlog_damage), (&vec![], &vec![]), "seed {seed}");
        assert_eq!((found.clean, found.created, found.last_batch), (clean, false, store.last_batch()));
        assert_eq!(restored.highest_chunk(), store.highest_chunk());
        world.assert_is_in(&mut restored);
        // And it goes on from there.
        for _ in 0..30 {
            world.batch(&mut restored, &mut random);
        }
        drop(restored);
        let (mut again, _) = Store::open(made.disk(), options()).unwrap();
        world.assert_is_in(&mut again);
    }
}

#[test]
fn a_store_that_failed_ends_the_copy() {
    let disk = SimDisk::new(3);
    let (mut store, _) = Store::open(disk.disk(), options()).unwrap();
    let mut world = World::default();
    world.batch(&mut store, &mut Random::new(3));
    assert!(matches!(store.copy_next(1), Err(StoreError::NotOpen)), "none was begun");
    store.begin_copy();
    store.copy_next(1).unwrap();
    store.reopen().unwrap();
    assert!(matches!(store.copy_next(1), Err(StoreError::NotOpen)));
}

#[test]
fn what_does_not_verify_or_fit_is_refused() {
    let disk = SimDisk::new(4);
    let (mut store, _) = Store::open(disk.disk(), options()).unwrap();
    let mut random = Random::new(4);
    let mut world = World::default();
    for _ in 0..150 {
        world.step(&mut store, &mut random);
    }
    store.begin_copy();
    let (entries, _) = store.copy_last().unwrap();
    for at in (0..entries.len()).step_by(37) {
        let mut flipped = entries.clone();
        let value = flipped[at].value.as_mut().unwrap();
        let byte = random.below(value.len() as u64) as usize;
        value[byte] ^= 1;
        let mut restoring = Restoring::new(SimDisk::new(5).disk(), &options()).unwrap();
        assert!(matches!(restoring.take(&flipped), Err(StoreError::Corrupted(_))), "{at}: byte {byte}");
    }
    let mut full = Vec::new();
    for bite in 0..200u64 {
        let mut builder = BatchBuilder::new(gatewayd::ids::BatchNumber(bite + 1));
        (0..40).for_each(|_| assert!(builder.push(1, &[7; 3_000]).is_some()));
        let pieces = builder.finish().pieces;
        full.extend(pieces.into_iter().map(|(key, piece)| CopiedEntry {
            table: gatewayd::store::copy::Table::Rows,
            key: key.0,
            value: Some(piece.to_vec()),
        }));
    }
    let mut restoring = Restoring::new(SimDisk::new(6).disk(), &options()).unwrap();
    let refused = full.chunks(100).find_map(|bite| restoring.take(bite).err());
    assert!(matches!(refused, Some(StoreError::Full(_))), "{refused:?}");
}

#[test]
fn a_compaction_of_the_backlog_survives_a_cut_at_any_operation() {
    let disk = SimDisk::new(8);
    let (mut store, _) = Store::open(disk.disk(), options()).unwrap();
    let (mut world, mut random) = (World::default(), Random::new(8));
    for _ in 0..150 {
        world.step(&mut store, &mut random);
    }
    assert!(!world.chunks.is_empty());
    store.close(None).unwrap();
    let whole = disk.copy(9);
    gatewayd::store::compact(&whole.disk()).unwrap();
    let operations = whole.operations();
    assert!(whole.len("backlog.redb") < disk.len("backlog.redb"));
    let (mut compacted, _) = Store::open(whole.disk(), options()).unwrap();
    world.assert_is_in(&mut compacted);
    for at in (0..operations).step_by((operations / 8).max(1) as usize) {
        let cut = disk.copy(at + 20);
        cut.power_cut_at(at);
        assert!(gatewayd::store::compact(&cut.disk()).is_err() || cut.power_is_off(), "cut at {at}");
        let (mut left, found) = Store::open(cut.reboot().disk(), options()).unwrap();
        assert_eq!((&found.damage, &found.backlog_damage), (&vec![], &vec![]), "cut at {at} of {operations}");
        world.assert_is_in(&mut left);
    }
}
