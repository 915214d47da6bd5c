//! Room in `series.redb` on a simulated disk: its cap ends the oldest readings whatever comes, and a disk that is full
//! leaves what is stored to be read.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::cast_possible_truncation, reason = "a wrong test may panic")]

use std::collections::BTreeMap;

use gatewayd::ids::RowKey;
use gatewayd::series::{
    Bucket, FlushTo, Item, Origin, Query, Reading, Rules, SeriesOptions, SeriesStore, Sink, Start, run,
};
use gatewayd::store::StoreError;

#[path = "support/disk.rs"]
mod disk;
use disk::{Random, SimDisk};

const NOW: i64 = 1_764_000_000_000;

fn open(disk: &SimDisk, bytes_max: u64) -> (SeriesStore, Option<RowKey>) {
    let options = SeriesOptions {
        bytes_max,
        reserve_free: 0,
        quarantine: true,
        collections: BTreeMap::from([("readings".into(), Rules::default())]),
        start: Start { number: 1, system_boot: 1, began_ms: 0, estimate_ms: None },
        seed: 1,
    };
    let (store, found) = SeriesStore::open(disk.disk(), options).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    (store, found.watermarks.get("readings").copied())
}

/// A reading that nothing packs, a millisecond after the one before it.
fn push(store: &mut SeriesStore, random: &mut Random, sequence: u64, (bytes, series): (u64, u64)) {
    let noise: Vec<u8> = (0..bytes).map(|_| random.next() as u8 | 0x80).collect();
    store.push(Reading {
        collection: "readings".into(),
        sequence,
        time: NOW + sequence.cast_signed(),
        estimated: None,
        origin: Origin { topic: format!("s/{}", random.below(series)).into(), tags: Vec::new() },
        payload: noise.into(),
    });
}

fn flush(store: &mut SeriesStore, through: u64) -> Result<(), StoreError> {
    store
        .flush(Some(NOW), &[FlushTo { collection: "readings".into(), through, row_key: RowKey(through + 1) }])
}

/// The sequences of the readings that are found, in order of time.
fn found(store: &SeriesStore) -> Vec<u64> {
    struct Sequences(Vec<u64>);
    impl Sink for Sequences {
        fn item(&mut self, item: &Item<'_>) -> bool {
            self.0.push((item.time - NOW).cast_unsigned());
            true
        }
        fn bucket(&mut self, _: &Bucket<'_>) -> bool {
            true
        }
    }
    let mut sequences = Sequences(Vec::new());
    let query = Query { collection: "readings".into(), ..Query::default() };
    assert_eq!(run(&query, &mut &*store, &mut sequences).unwrap().damaged, 0);
    sequences.0
}

/// Readings that nothing packs come faster than the cap lets them stay: the oldest end, the newest are there, and no flush
/// fails.
#[test]
fn a_flood_keeps_within_any_cap_and_ends_the_oldest() {
    for (mib, bytes, series) in [(16, 5000, 40), (34, 1900, 9)] {
        let disk = SimDisk::new(mib);
        let cap = mib << 20;
        let (mut store, _) = open(&disk, cap);
        let mut random = Random::new(mib);
        let mut next = 0;
        while next * bytes < cap * 3 / 2 {
            for _ in 0..(2 << 20) / bytes {
                push(&mut store, &mut random, next, (bytes, series));
                next += 1;
            }
            flush(&mut store, next - 1).unwrap();
            assert!(disk.len("series.redb") <= cap, "{mib} MiB: {}", disk.len("series.redb"));
        }
        let kept = found(&store);
        assert!(kept.len() as u64 * bytes > cap / 4, "{mib} MiB, {bytes} bytes: {} are kept", kept.len());
        assert_eq!(kept.last(), Some(&(next - 1)));
        assert_eq!(store.counters().expired + kept.len() as u64, next);
        store.close().unwrap();
        assert_eq!(found(&open(&disk, cap).0), kept);
    }
}

/// More waited in the row log than the file holds: the newest of it is stored.
#[test]
fn more_than_the_file_holds_at_once_ends_the_oldest_of_it() {
    let disk = SimDisk::new(22);
    let (mut store, _) = open(&disk, 16 << 20);
    let mut random = Random::new(22);
    let readings = 10_000;
    for sequence in 0..readings {
        push(&mut store, &mut random, sequence, (1900, 1));
    }
    flush(&mut store, readings - 1).unwrap();
    assert_eq!(store.pending(), 0);
    let kept = found(&store);
    assert!(kept.len() > 1000, "{}", kept.len());
    assert_eq!(kept.last(), Some(&(readings - 1)));
    assert_eq!(store.counters().expired + kept.len() as u64, readings);
    store.close().unwrap();
    assert_eq!(open(&disk, 16 << 20).1, Some(RowKey(readings)));
}

/// The disk takes nothing more: what is stored can be read and copied at once, and nothing of it ends for that.
#[test]
fn what_is_stored_can_be_read_while_the_file_may_not_grow() {
    let disk = SimDisk::new(23);
    let (mut store, _) = open(&disk, 64 << 20);
    let mut random = Random::new(23);
    for sequence in 0..1000 {
        push(&mut store, &mut random, sequence, (2000, 1));
    }
    flush(&mut store, 999).unwrap();
    store.begin_copy();
    disk.set_capacity(disk.len("series.redb"));
    for sequence in 1000..4000 {
        push(&mut store, &mut random, sequence, (2000, 1));
    }
    for _ in 0..3 {
        let refused = flush(&mut store, 3999).unwrap_err();
        assert!(matches!(refused, StoreError::Full(_)), "{refused}");
        assert_eq!(found(&store), (0..4000).collect::<Vec<u64>>());
    }
    let mut copied = 0;
    loop {
        let bite = store.copy_next(1 << 16).unwrap();
        copied += bite.entries.len();
        if bite.caught_up {
            break;
        }
    }
    assert!(copied > 100, "{copied}");
    assert_eq!(store.counters().expired, 0);
    disk.set_capacity(u64::MAX);
    flush(&mut store, 3999).unwrap();
    assert_eq!((store.pending(), found(&store).len()), (0, 4000));
}
