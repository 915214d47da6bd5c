//! What a store should hold, kept beside it, and batches for it. Shared by the store's tests.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;

use gatewayd::ids::{BatchNumber, RowKey};
use gatewayd::store::{Batch, BatchBuilder, Place, Store, StoreOptions};

use crate::disk::Random;

pub type Rows = BTreeMap<RowKey, (Place, u8, Vec<u8>)>;

/// A store small enough that a few dozen batches fill its journal.
pub fn small() -> StoreOptions {
    StoreOptions {
        gateway_bytes_max: 1 << 20,
        journal_bytes: 64 << 10,
        reserve_free: 0,
        ..StoreOptions::default()
    }
}

/// Rows as they should be after a batch.
#[derive(Clone, Default)]
pub struct Model {
    pub rows: Rows,
    pub last: u64,
}

impl Model {
    /// A random batch, and the model after it. Keeps the number of rows near `rows_max`.
    pub fn batch(&self, random: &mut Random, rows_max: usize) -> (Batch, Self) {
        let mut after = self.clone();
        after.last += 1;
        let mut builder = BatchBuilder::new(BatchNumber(after.last));
        let puts = random.below(6);
        for _ in 0..puts {
            let len = match random.below(20) {
                0 => random.below(30_000),
                1..=3 => random.below(5_000),
                _ => random.below(200),
            } as usize;
            let body = body(random.next(), len);
            let kind = random.below(4) as u8;
            let place = builder.push(kind, &body).unwrap();
            after.rows.insert(place.key, (place, kind, body));
        }
        let surplus = after.rows.len().saturating_sub(rows_max) as u64;
        for _ in 0..random.below(4).max(surplus) {
            // Mostly the oldest go, some go from the middle.
            let index = if random.one_in(4) { random.below(after.rows.len().max(1) as u64) } else { 0 };
            if let Some(key) = after.rows.keys().nth(index as usize).copied() {
                builder.delete(after.rows.remove(&key).unwrap().0);
            }
        }
        (builder.finish(), after)
    }
}

/// Bytes that follow from `seed`.
pub fn body(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut body = Vec::with_capacity(len + 8);
    while body.len() < len {
        body.extend_from_slice(&random.next().to_le_bytes());
    }
    body.truncate(len);
    body
}

/// Everything the store holds. Asserts that nothing comes twice and nothing is lost.
pub fn replay(store: &mut Store) -> Rows {
    let mut rows = Rows::new();
    let report = store
        .replay(&mut |place, kind, body| {
            assert!(rows.last_key_value().is_none_or(|(last, _)| *last < place.key), "key order");
            rows.insert(place.key, (place, kind, body.to_vec()));
        })
        .unwrap();
    assert_eq!((report.rows, report.lost), (rows.len() as u64, vec![]));
    rows
}
