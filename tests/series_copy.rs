//! A copy of the collections that is taken while readings are stored, deleted and grow too old: what is made of it holds
//! exactly what the file held at the copy's end, and compaction and damage leave the rest as it was.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a wrong test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use gatewayd::ids::RowKey;
use gatewayd::series::copy::{Restoring, SeriesEntry, compact, for_each, verify};
use gatewayd::series::{FlushTo, Origin, Reading, Rules, SeriesOptions, SeriesStore, Start};
use gatewayd::store::{Disk, StoreError};

#[path = "support/disk.rs"]
mod disk;
use disk::{Random, SimDisk};

const NOW: i64 = 1_764_000_000_000;

fn open(disk: &Arc<dyn Disk>) -> SeriesStore {
    let rules = Rules { retention_ms: Some(3_000_000), ..Rules::default() };
    let options = SeriesOptions {
        bytes_max: 64 << 20,
        reserve_free: 0,
        quarantine: true,
        collections: BTreeMap::from([("readings".into(), rules)]),
        start: Start { number: 1, system_boot: 1, began_ms: 0, estimate_ms: None },
        seed: 1,
    };
    let (store, found) = SeriesStore::open(Arc::clone(disk), options).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    store
}

/// What happens to the store: readings of a few series are flushed, time goes on, some are deleted.
#[derive(Default)]
struct Life {
    sequence: u64,
    time: i64,
}

impl Life {
    fn step(&mut self, store: &mut SeriesStore, random: &mut Random) {
        let collection: Arc<str> = "readings".into();
        if random.one_in(8) {
            let topic = format!("sensors/{}", random.below(8));
            let from = NOW + random.below(self.time.max(1).unsigned_abs()).cast_signed();
            let wanted = |origin: &Origin| *origin.topic == *topic;
            store.delete("readings", &wanted, from..from + 100_000).unwrap();
            return;
        }
        for _ in 0..random.below(40) {
            self.sequence += 1;
            self.time += random.below(20_000).cast_signed();
            let origin = Origin { topic: format!("sensors/{}", random.below(8)).into(), tags: Vec::new() };
            let payload = Bytes::from(format!("{{\"value\": {}}}", random.below(1_000_000)));
            let (collection, sequence) = (Arc::clone(&collection), self.sequence);
            let time = NOW + self.time;
            store.push(Reading { collection, sequence, time, estimated: None, origin, payload });
        }
        let flush = FlushTo { collection, through: self.sequence, row_key: RowKey(self.sequence << 16) };
        store.flush(Some(NOW + self.time), &[flush]).unwrap();
    }
}

fn entries(disk: &SimDisk) -> Vec<SeriesEntry> {
    let mut all = Vec::new();
    let damaged = for_each::<StoreError>(&disk.disk(), 10_000, &mut |entries| {
        all.extend(entries);
        Ok(())
    });
    assert_eq!(damaged.unwrap(), Vec::<Vec<u8>>::new());
    all
}

#[test]
fn what_is_made_of_a_copy_is_the_file_at_its_end() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut store = open(&disk.disk());
        let mut life = Life::default();
        for _ in 0..random.below(40) {
            life.step(&mut store, &mut random);
        }
        let made = SimDisk::new(seed + 100);
        let mut restoring = Restoring::new(&made.disk(), 64 << 20, 0).unwrap();
        store.begin_copy();
        loop {
            let bite = store.copy_next(1 + random.below(6_000) as usize).unwrap();
            assert!(bite.damaged.is_empty());
            restoring.take(&bite.entries).unwrap();
            if bite.caught_up && random.one_in(4) {
                break;
            }
            for _ in 0..random.below(3) {
                life.step(&mut store, &mut random);
            }
        }
        let last = store.copy_next(usize::MAX).unwrap();
        assert!(last.caught_up);
        store.end_copy();
        restoring.take(&last.entries).unwrap();
        restoring.finish().unwrap();
        store.close().unwrap();
        made.cut_power();
        let made = made.reboot();
        assert_eq!(entries(&made), entries(&disk), "seed {seed}");
        let (chunks, damage) = verify(&made.disk(), 10_000).unwrap();
        assert!(chunks > 0 && damage.is_empty(), "{damage:?}");
    }
}

#[test]
fn a_copy_goes_on_when_the_file_is_opened_again() {
    let disk = SimDisk::new(1);
    let mut store = open(&disk.disk());
    assert!(matches!(store.copy_next(1), Err(StoreError::NotOpen)), "none was begun");
    store.begin_copy();
    store.copy_next(1).unwrap();
    store.reopen().unwrap();
    assert!(store.copy_next(usize::MAX).unwrap().caught_up);
    store.end_copy();
    assert!(matches!(store.copy_next(1), Err(StoreError::NotOpen)), "it was ended");
}

#[test]
fn compaction_changes_no_entry_and_survives_a_cut_at_any_operation() {
    let (disk, mut life) = (SimDisk::new(2), Life::default());
    let mut random = Random::new(2);
    let mut store = open(&disk.disk());
    for _ in 0..60 {
        life.step(&mut store, &mut random);
    }
    store.close().unwrap();
    let before = entries(&disk);
    let whole = disk.copy(3);
    compact(&whole.disk()).unwrap();
    let operations = whole.operations();
    assert_eq!(entries(&whole), before);
    assert!(whole.len("series.redb") < disk.len("series.redb"));
    for at in (0..operations).step_by((operations / 25).max(1) as usize) {
        let cut = disk.copy(at + 10);
        cut.power_cut_at(cut.operations() + at);
        assert!(compact(&cut.disk()).is_err() || cut.power_is_off(), "cut at {at} of {operations}");
        let left = cut.reboot();
        assert_eq!(entries(&left), before, "cut at {at} of {operations}");
    }
}

#[test]
fn damage_is_told_with_its_place() {
    let (disk, mut life) = (SimDisk::new(4), Life::default());
    let mut random = Random::new(4);
    let mut store = open(&disk.disk());
    for _ in 0..30 {
        life.step(&mut store, &mut random);
    }
    store.close().unwrap();
    let content = disk.content("series.redb").unwrap();
    let chunk = entries(&disk).into_iter().find(|(key, _)| key[0] == 4).unwrap().1.unwrap();
    let at = content.windows(chunk.len()).rposition(|window| window == chunk).unwrap();
    disk.flip("series.redb", (at + chunk.len() / 2) as u64, 1);
    let (_, damage) = verify(&disk.disk(), 10_000).unwrap();
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(
        damage[0].starts_with("series.redb: a chunk of series ") && damage[0].contains("does not verify")
    );
}
