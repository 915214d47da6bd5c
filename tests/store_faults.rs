//! A disk that fails or fills up at any one operation: the store says so, opens again in place, and nothing that was
//! persisted is lost.

#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

#[path = "support/disk.rs"]
mod disk;
#[path = "support/model.rs"]
mod model;

use disk::{Fault, Random, SimDisk};
use gatewayd::ids::BatchNumber;
use gatewayd::store::{BatchBuilder, OpenError, Store, StoreError};
use model::{Model, replay, small};

/// Opens; a fault met on the way is met once.
fn open(disk: &SimDisk) -> Store {
    for _ in 0..3 {
        match Store::open(disk.disk(), small()) {
            Ok((store, recovery)) => {
                assert_eq!(recovery.damage, Vec::<String>::new());
                return store;
            }
            Err(OpenError::Io(_) | OpenError::Full(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the store does not open")
}

/// Reopens in place; returns the last batch.
fn reopen(store: &mut Store) -> u64 {
    for _ in 0..3 {
        match store.reopen() {
            Ok(last) => return last.expect("nothing was damaged").0,
            Err(StoreError::Io(_) | StoreError::Full(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the store does not reopen")
}

/// A fixed piece of work, with errors handled as the gateway does. Returns how many errors it saw.
fn work(disk: &SimDisk) -> u64 {
    let mut random = Random::new(7);
    let mut model = Model::default();
    let mut store = open(disk);
    let mut errors = 0;
    for step in 0..90u64 {
        let (batch, after) = model.batch(&mut random, 60);
        loop {
            match store.append(batch.clone()) {
                Ok(persisted) => {
                    assert_eq!(persisted.number, BatchNumber(after.last));
                    break;
                }
                Err(StoreError::Corrupted(what)) => panic!("{what}"),
                Err(_) => {
                    errors += 1;
                    assert!(matches!(store.append(batch.clone()), Err(StoreError::NotOpen)));
                    let last = reopen(&mut store);
                    // What failed may be there or not; nothing else is possible.
                    assert!(last == after.last || last == model.last, "{last} after {}", after.last);
                }
            }
        }
        model = after;
        if step == 60 {
            errors += u64::from(store.close(Some(b"essentials")).is_err());
            store = open(disk);
        }
        if step % 20 == 0 {
            match store.apply_if_idle() {
                Ok(_) => {}
                Err(_) => {
                    errors += 1;
                    assert_eq!(reopen(&mut store), model.last);
                }
            }
        }
    }
    if store.write_essentials(b"later").is_err() {
        errors += 1;
        assert!(store.is_open());
    }
    for _ in 0..2 {
        if !store.is_open() {
            assert_eq!(reopen(&mut store), model.last);
        }
        let mut count = 0;
        match store.replay(&mut |_, _, _| count += 1) {
            Ok(report) => assert_eq!((report.rows, count), (model.rows.len() as u64, count)),
            Err(_) => errors += 1,
        }
    }
    if !store.is_open() {
        assert_eq!(reopen(&mut store), model.last);
    }
    assert!(replay(&mut store) == model.rows);
    disk.cut_power();
    let disk = disk.reboot();
    let mut store = open(&disk);
    assert_eq!(store.last_batch(), BatchNumber(model.last));
    assert!(replay(&mut store) == model.rows);
    errors
}

#[test]
fn one_failing_operation_loses_nothing() {
    let calm = SimDisk::new(5);
    assert_eq!(work(&calm), 0);
    let operations = calm.operations();
    let mut met = 0;
    for (fault, offset) in [(Fault::Io, 0), (Fault::Full, 1)] {
        for operation in (offset..operations).step_by(2) {
            let disk = SimDisk::new(operation);
            disk.fail_at(operation, fault);
            work(&disk);
            met += disk.faults_met();
        }
    }
    println!("{operations} operations, {met} faults met");
    assert_eq!(met, operations);
}

#[test]
fn one_failing_read_loses_nothing() {
    let calm = SimDisk::new(5);
    work(&calm);
    let reads = calm.reads();
    let mut met = 0;
    for read in 0..reads {
        let disk = SimDisk::new(read);
        disk.fail_read_at(read, Fault::Io);
        work(&disk);
        met += disk.faults_met();
    }
    println!("{reads} reads, {met} faults met");
    assert!(met > 20);
}

#[test]
fn a_full_disk_refuses_cleanly_and_goes_on_once_there_is_room() {
    let disk = SimDisk::new(9);
    disk.set_capacity(700 << 10);
    let (mut store, recovery) = Store::open(disk.disk(), small()).unwrap();
    assert!(recovery.notes.iter().any(|note| note.contains("room")), "{recovery:?}");
    assert!(store.usage().file_bytes <= 700 << 10);
    let mut random = Random::new(3);
    let mut model = Model::default();
    for _ in 0..200 {
        let (batch, after) = model.batch(&mut random, 60);
        store.append(batch).unwrap();
        model = after;
    }
    assert!(disk.used_bytes() <= 700 << 10);
    store.close(None).unwrap();
    disk.set_capacity(u64::MAX);
    let (mut store, recovery) = Store::open(disk.disk(), small()).unwrap();
    assert!(recovery.notes.is_empty(), "{recovery:?}");
    assert!(store.usage().file_bytes > 1_000_000);
    assert!(replay(&mut store) == model.rows);
}

/// A start takes a damaged last record for a write that the power cut off. A process that runs knows better: the batch
/// was persisted, so its rows have to be written anew, under numbers that were never given out.
#[test]
fn a_persisted_batch_that_is_gone_at_reopening_is_damage() {
    let disk = SimDisk::new(3);
    let mut store = open(&disk);
    for number in 1..=3 {
        let mut builder = BatchBuilder::new(BatchNumber(number));
        builder.push(1, &[7; 100]);
        store.append(builder.finish()).unwrap();
    }
    let journal = disk.content("gateway.journal").unwrap();
    let last = journal.rchunks(4096).position(|page| page.iter().any(|byte| *byte != 0)).unwrap();
    disk.flip("gateway.journal", (journal.len() - 4096 * (last + 1) + 60) as u64, 1);
    assert_eq!(store.reopen().unwrap(), None);
    let salvaged = store.salvaged().unwrap();
    assert!(salvaged.last > BatchNumber(3), "{salvaged:?}");
    assert_eq!((salvaged.rows.len(), salvaged.damage.len()), (2, 1), "{salvaged:?}");
}
