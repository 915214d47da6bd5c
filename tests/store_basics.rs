//! The store on a kind disk: rows go in, come back, survive closing and reopening.

#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

#[path = "support/disk.rs"]
mod disk;

use std::collections::BTreeMap;

use disk::SimDisk;
use gatewayd::ids::{BatchNumber, RowKey};
use gatewayd::store::{BatchBuilder, Place, Store, StoreError, StoreOptions};

fn options() -> StoreOptions {
    StoreOptions {
        gateway_bytes_max: 1 << 20,
        journal_bytes: 128 << 10,
        reserve_free: 0,
        ..StoreOptions::default()
    }
}

fn replay(store: &mut Store) -> BTreeMap<RowKey, (Place, u8, Vec<u8>)> {
    let mut rows = BTreeMap::new();
    let report = store
        .replay(&mut |place, kind, body| {
            assert!(rows.insert(place.key, (place, kind, body.to_vec())).is_none(), "a row came twice");
        })
        .unwrap();
    assert_eq!((report.rows, report.lost), (rows.len() as u64, vec![]));
    rows
}

#[test]
fn rows_come_back_after_append_after_apply_and_after_reopening() {
    let disk = SimDisk::new(1);
    let (mut store, recovery) = Store::open(disk.disk(), options()).unwrap();
    assert!(recovery.created && recovery.damage.is_empty() && recovery.boot == 1);
    let mut expected = BTreeMap::new();
    for number in 1..=300u64 {
        let mut builder = BatchBuilder::new(BatchNumber(number));
        for (kind, len) in [(1, 100), (2, 0), (3, if number % 50 == 0 { 20_000 } else { 700 })] {
            let body = vec![number as u8; len];
            let place = builder.push(kind, &body).unwrap();
            expected.insert(place.key, (place, kind, body));
        }
        while expected.len() > 200 {
            let (_, (place, ..)) = expected.pop_first().unwrap();
            builder.delete(place);
        }
        let persisted = store.append(builder.finish()).unwrap();
        assert_eq!(persisted.number, BatchNumber(number));
        assert!(persisted.syncs >= 1);
    }
    assert_eq!(replay(&mut store), expected);
    for (key, (_, _, body)) in &expected {
        assert_eq!(store.fetch(*key).unwrap().as_ref(), Some(body));
    }
    assert_eq!(store.fetch(RowKey(1 << 16)).unwrap(), None);
    assert_eq!(store.reopen().unwrap(), Some(BatchNumber(300)));
    assert_eq!(replay(&mut store), expected);
    store.close(Some(b"essentials")).unwrap();

    let (mut store, recovery) = Store::open(disk.disk(), options()).unwrap();
    assert!(recovery.clean && !recovery.created && recovery.damage.is_empty(), "{recovery:?}");
    assert_eq!((recovery.last_batch, recovery.boot), (BatchNumber(300), 2));
    assert_eq!(replay(&mut store), expected);
    assert_eq!(store.read_essentials().as_deref(), Some(&b"essentials"[..]));
}

#[test]
fn a_batch_that_is_there_is_answered_again_and_a_gap_is_refused() {
    let disk = SimDisk::new(2);
    let (mut store, _) = Store::open(disk.disk(), options()).unwrap();
    let batch = |number| {
        let mut builder = BatchBuilder::new(BatchNumber(number));
        builder.push(1, b"once").unwrap();
        builder.finish()
    };
    store.append(batch(1)).unwrap();
    let again = store.append(batch(1)).unwrap();
    assert_eq!((again.bytes_written, again.syncs), (0, 0));
    assert!(matches!(store.append(batch(3)), Err(StoreError::OutOfOrder { .. })));
    store.append(batch(2)).unwrap();
    assert_eq!(replay(&mut store).len(), 2);
}

#[test]
fn a_batch_larger_than_the_journal_goes_through() {
    let disk = SimDisk::new(3);
    let (mut store, _) = Store::open(disk.disk(), options()).unwrap();
    let mut builder = BatchBuilder::new(BatchNumber(1));
    let body: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
    let place = builder.push(1, &body).unwrap();
    store.append(builder.finish()).unwrap();
    assert_eq!(store.fetch(place.key).unwrap(), Some(body));
    let mut builder = BatchBuilder::new(BatchNumber(2));
    builder.delete(place);
    store.append(builder.finish()).unwrap();
    assert_eq!(store.fetch(place.key).unwrap(), None);
    disk.cut_power();
    let (mut store, recovery) = Store::open(disk.reboot().disk(), options()).unwrap();
    assert_eq!((recovery.last_batch, recovery.clean), (BatchNumber(2), false));
    assert!(replay(&mut store).is_empty());
}

#[test]
fn a_changed_cap_takes_effect_at_the_next_start() {
    let disk = SimDisk::new(4);
    let sized = |mib: u64| StoreOptions { gateway_bytes_max: mib << 20, journal_bytes: 4 << 20, ..options() };
    let (mut store, _) = Store::open(disk.disk(), sized(4)).unwrap();
    let mut places = Vec::new();
    for number in 1..=200 {
        let mut builder = BatchBuilder::new(BatchNumber(number));
        places.push(builder.push(1, &[number as u8; 9_000]).unwrap());
        store.append(builder.finish()).unwrap();
    }
    let mut builder = BatchBuilder::new(BatchNumber(201));
    places.drain(..152).for_each(|place| builder.delete(place));
    store.append(builder.finish()).unwrap();
    for (mib, clean) in [(2, true), (8, false), (1, true), (3, false)] {
        let before = replay(&mut store);
        if clean {
            store.close(None).unwrap();
        } else {
            drop(store);
        }
        let (again, recovery) = Store::open(disk.disk(), sized(mib)).unwrap();
        store = again;
        assert!(recovery.damage.is_empty() && recovery.notes.is_empty(), "{recovery:?}");
        assert_eq!(store.usage().file_bytes, mib << 20);
        assert_eq!(replay(&mut store), before);
        let mut builder = BatchBuilder::new(store.last_batch().next());
        builder.push(1, &[mib as u8; 50]).unwrap();
        store.append(builder.finish()).unwrap();
    }
}

/// Rows that are more than the new cap holds stay, and there is room to drop them.
#[test]
fn a_cap_below_what_is_stored_takes_effect_when_rows_are_dropped() {
    let disk = SimDisk::new(5);
    let sized = |mib: u64| StoreOptions { gateway_bytes_max: mib << 20, ..options() };
    let (mut store, _) = Store::open(disk.disk(), sized(8)).unwrap();
    let mut places = Vec::new();
    for number in 1..=400 {
        let mut builder = BatchBuilder::new(BatchNumber(number));
        places.push(builder.push(1, &[number as u8; 9_000]).unwrap());
        store.append(builder.finish()).unwrap();
    }
    drop(store);
    let (mut store, recovery) = Store::open(disk.disk(), sized(2)).unwrap();
    assert!(recovery.damage.is_empty() && recovery.notes.len() == 1, "{recovery:?}");
    let usage = store.usage();
    assert!(usage.live_bytes > usage.quota_bytes && usage.file_bytes > 2 << 20, "{usage:?}");
    while places.len() > 80 {
        let mut builder = BatchBuilder::new(store.last_batch().next());
        builder.push(2, b"what was dropped").unwrap();
        builder.delete(places.swap_remove(places.len() / 2));
        store.append(builder.finish()).unwrap();
    }
    assert_eq!(replay(&mut store).len(), 80 + 320);
    drop(store);
    let (store, recovery) = Store::open(disk.disk(), sized(2)).unwrap();
    assert!(recovery.damage.is_empty() && recovery.notes.is_empty(), "{recovery:?}");
    assert_eq!(store.usage().file_bytes, 2 << 20);
}

const fn can_move_to_a_thread<T: Send>() {}
const _: () = can_move_to_a_thread::<Store>();
