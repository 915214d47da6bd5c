//! A row log that fills up: batches that do not fit are refused and leave no trace, and deletes always go through.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

#[path = "support/disk.rs"]
mod disk;
#[path = "support/model.rs"]
mod model;

use disk::{Random, SimDisk};
use gatewayd::ids::{BatchNumber, RowKey};
use gatewayd::store::{Batch, BatchBuilder, Place, Store, StoreError, StoreOptions};
use model::{body, replay};

const MIB: u64 = 1 << 20;

/// What a caller does that pays no heed to what its rows are charged.
struct Heedless {
    disk: SimDisk,
    options: StoreOptions,
    store: Store,
    random: Random,
    live: Vec<Place>,
    refused: u64,
    taken: u64,
}

impl Heedless {
    fn new(cap: u64, seed: u64) -> Self {
        let options = StoreOptions {
            gateway_bytes_max: cap,
            journal_bytes: 64 << 10,
            reserve_free: 0,
            ..StoreOptions::default()
        };
        let disk = SimDisk::new(seed);
        let (store, _) = Store::open(disk.disk(), options.clone()).unwrap();
        Self { disk, options, store, random: Random::new(seed), live: Vec::new(), refused: 0, taken: 0 }
    }

    fn next(&self) -> BatchNumber {
        self.store.last_batch().next()
    }

    /// True when the batch was taken; else nothing of it may be there.
    fn append(&mut self, batch: Batch) -> bool {
        let before = self.store.last_batch();
        match self.store.append(batch) {
            Ok(_) => self.taken += 1,
            Err(StoreError::NoRoom) => {
                assert!(self.store.is_open() && self.store.last_batch() == before);
                self.refused += 1;
                return false;
            }
            Err(error) => panic!("after {} batches: {error}", self.taken),
        }
        true
    }

    /// Adds rows of these lengths, and removes these rows in the same batch.
    fn put(&mut self, lengths: &[usize], removed: &[usize]) -> bool {
        let mut builder = BatchBuilder::new(self.next());
        let mut removed: Vec<usize> = removed.to_vec();
        removed.sort_unstable();
        removed.dedup();
        removed.iter().for_each(|index| builder.delete(self.live[*index]));
        let places: Vec<_> =
            lengths.iter().map(|len| builder.push(1, &body(self.taken, *len)).unwrap()).collect();
        let taken = self.append(builder.finish());
        if taken {
            removed.iter().rev().for_each(|index| _ = self.live.remove(*index));
            self.live.extend(places);
        }
        taken
    }

    /// Removes these rows, which must succeed.
    fn delete(&mut self, indexes: &[usize]) {
        assert!(self.put(&[], indexes), "deletes always go through");
    }

    fn fill(&mut self, length: impl Fn(&mut Random) -> usize) {
        let mut refusals = 0;
        while refusals < 5 {
            let lengths: Vec<_> = (0..1 + self.random.below(12)).map(|_| length(&mut self.random)).collect();
            refusals = if self.put(&lengths, &[]) { 0 } else { refusals + 1 };
        }
    }

    /// What is there is what should be there, also after a stop that nothing was prepared for.
    fn check(&mut self) {
        let mut expected: Vec<RowKey> = self.live.iter().map(|place| place.key).collect();
        expected.sort_unstable();
        assert!(replay(&mut self.store).into_keys().eq(expected.iter().copied()));
        let copy = self.disk.copy(self.taken);
        let (mut left, recovery) = Store::open(copy.disk(), self.options.clone()).unwrap();
        assert!(recovery.damage.is_empty(), "{recovery:?}");
        assert!(replay(&mut left).into_keys().eq(expected));
        left.close(None).unwrap();
    }

    /// A damaged first page of the row log costs no row, however full it is.
    fn check_salvage(&mut self) {
        let copy = self.disk.copy(self.taken);
        copy.flip("gateway.redb", 20, 1);
        copy.flip("gateway.redb", 0, 1);
        let (mut left, recovery) = Store::open(copy.disk(), self.options.clone()).unwrap();
        assert!(!recovery.damage.is_empty());
        let found: Vec<_> = replay(&mut left).into_keys().collect();
        let missing = self.live.iter().filter(|place| !found.contains(&place.key)).count();
        assert_eq!((missing, found.len()), (0, self.live.len()), "{recovery:?}");
        left.close(None).unwrap();
    }
}

const CAPS: [u64; 3] = [MIB, 2 * MIB, 5 * MIB];

fn mixed(random: &mut Random) -> usize {
    let bits = random.below(14);
    random.below(1 << bits) as usize
}

#[test]
fn a_full_log_refuses_rows_and_takes_deletes_one_by_one() {
    for (cap, lengths) in [(MIB, [60, 1_900, 3_900]), (2 * MIB, [700, 2_500, 9_000])] {
        for length in lengths {
            let mut caller = Heedless::new(cap, cap ^ length);
            caller.fill(|_| length as usize);
            let usage = caller.store.usage();
            assert!(
                usage.live_bytes >= usage.quota_bytes,
                "{length}: refused only beyond the quota: {usage:?}"
            );
            caller.check();
            caller.check_salvage();
            // Here and there, so that no page becomes free for long.
            let mut at = 0;
            for _ in 0..200.min(caller.live.len() / 2) {
                at = (at + 37) % caller.live.len();
                caller.delete(&[at]);
            }
            caller.check();
            while caller.live.len() > 3 {
                let count = caller.live.len();
                let some: Vec<_> = (0..count.min(150)).map(|index| index * count / 150 % count).collect();
                caller.delete(&some);
            }
            caller.check();
            caller.fill(|_| length as usize);
        }
    }
}

#[test]
fn rows_of_any_size_come_and_go_at_the_brim() {
    for seed in 0..6 {
        let mut caller = Heedless::new(CAPS[seed as usize % 3], seed);
        caller.fill(mixed);
        for round in 0..200 {
            let count = caller.live.len() as u64;
            let some: Vec<_> = (0..caller.random.below(30))
                .map(|_| {
                    let below = if caller.random.one_in(2) { count } else { 1 + count / 20 };
                    caller.random.below(below) as usize
                })
                .collect();
            match caller.random.below(4) {
                0 => caller.delete(&some),
                1 => drop(caller.put(&[mixed(&mut Random::new(round)); 3], &some)),
                _ => drop(caller.put(&[mixed(&mut Random::new(round)); 2], &[])),
            }
            if round % 8 == 0 {
                caller.fill(mixed);
            }
        }
        assert!(caller.refused > 10);
        caller.check();
        caller.check_salvage();
        let all: Vec<_> = (0..caller.live.len()).collect();
        caller.delete(&all);
        caller.check();
    }
}
