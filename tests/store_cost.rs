//! What a message costs the flash, and that the files keep to their cap.

#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

#[path = "support/disk.rs"]
mod disk;
#[path = "support/model.rs"]
mod model;

use std::collections::VecDeque;

use disk::{Random, SimDisk};
use gatewayd::store::{BatchBuilder, Place, Store, StoreOptions, stored_bytes};

const MIB: u64 = 1 << 20;

/// Default sizes on a disk that does not mind.
fn defaults() -> StoreOptions {
    StoreOptions { reserve_free: 0, ..StoreOptions::default() }
}

/// Bytes and syncs per message for batches of `messages` bodies, each settled `depth` messages later; what is settled
/// is one row of the batch, and every 64 batches the settled rows are deleted.
fn cost(messages: usize, body_bytes: usize, depth: usize, batches: u64) -> (u64, f64) {
    let disk = SimDisk::new(1);
    let (mut store, _) = Store::open(disk.disk(), defaults()).unwrap();
    let mut waiting: VecDeque<Place> = VecDeque::new();
    let mut settled: Vec<Place> = Vec::new();
    let mut begun = (0, 0, 0);
    let warm_up = batches / 2;
    for index in 0..batches {
        let mut builder = BatchBuilder::new(store.last_batch().next());
        for message in 0..messages {
            waiting
                .push_back(builder.push(1, &model::body(index << 16 | message as u64, body_bytes)).unwrap());
        }
        let mut settlement = Vec::new();
        while waiting.len() > depth {
            let place = waiting.pop_front().unwrap();
            settlement.extend_from_slice(&[1, 2, 3]);
            settled.push(place);
        }
        if !settlement.is_empty() {
            settled.push(builder.push(2, &settlement).unwrap());
        }
        if index % 64 == 63 {
            settled.drain(..).for_each(|place| builder.delete(place));
        }
        store.append(builder.finish()).unwrap();
        if index == warm_up {
            begun = (disk.bytes_written(), disk.syncs(), index);
        }
    }
    let counted = batches - 1 - begun.2;
    let usage = store.usage();
    assert_eq!((usage.bytes_written_total, usage.syncs_total), (disk.bytes_written(), disk.syncs()));
    let bytes = (disk.bytes_written() - begun.0) / (counted * messages as u64);
    (bytes, (disk.syncs() - begun.1) as f64 / counted as f64)
}

#[test]
fn a_message_costs_few_bytes_and_a_batch_one_sync() {
    let rounds = [(1, 29_000, 4_700, 6_000), (8, 3_600, 640, 5_000), (64, 560, 260, 2_000)];
    for (messages, bytes_max, journal_max, batches) in rounds {
        for (depth, body) in [(1_024, 100), (64, 100), (1_024, 140)] {
            let (bytes, syncs) = cost(messages, body, depth, batches);
            println!(
                "{messages} a batch, {body} bytes, {depth} deep: {bytes} bytes a message, {syncs:.4} syncs a batch"
            );
            assert!(bytes <= bytes_max, "{messages} a batch: {bytes} bytes a message");
            // Far below the bound, which redb alone would keep too, so that a regression of the journal shows.
            assert!(bytes <= journal_max, "{messages} a batch: {bytes} bytes a message");
            assert!(syncs < 1.02, "{messages} a batch: {syncs} syncs");
        }
    }
}

/// How a churn chooses what goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goes {
    Oldest,
    /// One in ten stays until it is the oldest by far; the others go in order.
    Slow,
    Any,
}

/// Fills a store to its quota with bodies of sizes that `size` gives, and goes on for three times the cap.
fn churn(total: u64, goes: Goes, mut size: impl FnMut(&mut Random) -> usize) {
    let options = StoreOptions { gateway_bytes_max: total, ..defaults() };
    let disk = SimDisk::new(7);
    let mut random = Random::new(8);
    let (mut store, _) = Store::open(disk.disk(), options).unwrap();
    let quota = store.usage().quota_bytes;
    let mut live: VecDeque<(Place, u64)> = VecDeque::new();
    let (mut charged, mut measured, mut through) = (0, 0, 0);
    while through < 3 * total {
        let mut builder = BatchBuilder::new(store.last_batch().next());
        while builder.bytes() < 16 << 10 {
            let len = size(&mut random);
            let charge = stored_bytes(len);
            // The caller keeps to the quota by its own sum, and by what the store measured when that is more.
            while charged.max(measured) + charge > quota && !live.is_empty() {
                let index = match goes {
                    Goes::Oldest => 0,
                    Goes::Slow => random.below(live.len().min(10) as u64) as usize,
                    Goes::Any => random.below(live.len() as u64) as usize,
                };
                let (place, charge) = live.swap_remove_front(index).unwrap();
                builder.delete(place);
                charged -= charge;
                measured = measured.saturating_sub(charge);
            }
            let place = builder.push(1, &model::body(random.next(), len)).unwrap();
            live.push_back((place, charge));
            charged += charge;
            through += len as u64 + 20;
        }
        let persisted = store.append(builder.finish());
        measured = persisted.unwrap_or_else(|error| panic!("{goes:?} at {through}: {error}")).live_bytes;
        let used = disk.len("gateway.redb") + disk.len("gateway.journal");
        assert!(used <= total, "{used} bytes of {total}");
        assert!(measured >= charged, "what is charged here is charged there");
    }
    assert_eq!(store.usage().file_bytes, disk.len("gateway.redb") + disk.len("gateway.journal"));
}

#[test]
fn tiny_bodies_churn_at_the_quota() {
    for size in [1, 9, 50, 120] {
        churn(MIB, Goes::Oldest, |_| size);
    }
}

#[test]
fn bodies_around_the_bounds_of_a_leaf_churn_at_the_quota() {
    for size in [300, 700, 1_000, 1_330, 1_340, 2_010, 2_020, 3_000, 3_899, 3_900, 3_901, 5_000, 7_801] {
        churn(2 * MIB, Goes::Oldest, |_| size);
    }
}

#[test]
fn large_bodies_churn_at_the_quota() {
    for size in [20_000, 70_000, 300_000, 1 << 20, 2 << 20] {
        churn(16 * MIB, Goes::Oldest, |_| size);
    }
}

#[test]
fn bodies_of_any_size_churn_at_the_quota_of_the_default_cap() {
    churn(72 * MIB, Goes::Oldest, |random| {
        let bits = random.below(22);
        (random.below(1 << bits) + 1) as usize
    });
}

#[test]
fn rows_that_leave_in_any_order_and_mixed_sizes_churn_at_the_quota() {
    for size in [40, 150, 900, 1_500, 2_500] {
        churn(2 * MIB, Goes::Any, |_| size);
    }
    let mut turn = 0;
    for pair in [[3_900, 100], [3_000, 1_200], [5_000, 60], [2_060, 2_000]] {
        for goes in [Goes::Oldest, Goes::Any] {
            churn(2 * MIB, goes, |_| {
                turn += 1;
                pair[turn % 2]
            });
        }
    }
}

#[test]
fn slow_takers_keep_rows_here_and_there() {
    for size in [40, 150, 900, 1_500, 2_500, 6_000] {
        churn(2 * MIB, Goes::Slow, |_| size);
    }
}
