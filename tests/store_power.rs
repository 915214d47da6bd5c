//! Power cuts at any disk operation: what was persisted is there exactly, what was not is wholly there or wholly
//! absent, numbers and boots go on, and nothing is ever reported as damage.

#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

#[path = "support/disk.rs"]
mod disk;
#[path = "support/model.rs"]
mod model;

use disk::{Random, SimDisk};
use gatewayd::ids::BatchNumber;
use gatewayd::store::{Recovery, Store};
use model::{Model, replay, small};

/// Opens after a cut; now and then the power goes again while it recovers.
fn open(mut disk: SimDisk, random: &mut Random) -> (SimDisk, Store, Recovery) {
    loop {
        if random.one_in(3) {
            disk.power_cut_at(random.below(20));
        }
        match Store::open(disk.disk(), small()) {
            Ok((store, recovery)) if !disk.power_is_off() => return (disk, store, recovery),
            _ => {
                assert!(disk.power_is_off(), "the store opens whenever the power stays on");
                disk = disk.reboot();
            }
        }
    }
}

/// One life of a store: cycles of work and power cuts. Returns batches persisted and cuts made.
fn life(seed: u64, cycles: u64) -> (u64, u64) {
    let mut random = Random::new(seed);
    let mut disk = SimDisk::new(random.next());
    let mut model = Model::default();
    let mut boot = 0;
    let mut pending: Option<Model> = None;
    let mut cuts = 0;
    for cycle in 0..cycles {
        let (now, mut store, recovery) = open(disk, &mut random);
        disk = now;
        assert!(recovery.damage.is_empty(), "seed {seed} cycle {cycle}: {recovery:?}");
        assert!(recovery.boot > boot, "seed {seed} cycle {cycle}: boot {} after {boot}", recovery.boot);
        boot = recovery.boot;
        if let Some(after) = pending.take().filter(|after| recovery.last_batch == BatchNumber(after.last)) {
            model = after;
        }
        assert_eq!(recovery.last_batch, BatchNumber(model.last), "seed {seed} cycle {cycle}");
        assert!(replay(&mut store) == model.rows, "seed {seed} cycle {cycle}: rows differ");
        disk.power_cut_at(disk.operations() + random.below(160));
        loop {
            let (batch, after) = model.batch(&mut random, 120);
            if store.append(batch).is_err() {
                assert!(disk.power_is_off(), "seed {seed} cycle {cycle}: an append failed without a reason");
                pending = Some(after);
                break;
            }
            model = after;
            if random.one_in(8) && store.apply_if_idle().is_err() {
                break;
            }
            if random.one_in(60) {
                let closed = store.close(Some(b"essentials"));
                assert_eq!(closed.is_err(), disk.power_is_off(), "seed {seed} cycle {cycle}: {closed:?}");
                break;
            }
        }
        cuts += u64::from(disk.power_is_off());
        disk = disk.reboot();
    }
    (model.last, cuts)
}

#[test]
fn what_is_persisted_survives_power_cuts_at_any_operation() {
    let (mut batches, mut cuts) = (0, 0);
    for seed in 0..120 {
        let (more, cut) = life(seed, 12);
        batches += more;
        cuts += cut;
    }
    println!("{batches} batches persisted, {cuts} power cuts");
    assert!(batches > 5_000 && cuts > 500);
}
