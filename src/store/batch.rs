//! A batch: the unit of durability. All of it is on flash after its `Persisted`, or none of it.

use crate::ids::{BatchNumber, RowKey};

/// Where a stored row lies: its first key and how many consecutive keys its pieces take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    pub key: RowKey,
    pub pieces: u16,
}

/// Rows to add and rows to remove, in one atomic step.
#[derive(Debug)]
pub struct Batch {
    pub number: BatchNumber,
    /// Encoded row pieces in ascending key order (layout: `store::row`).
    pub pieces: Vec<(RowKey, Vec<u8>)>,
    /// Rows that nobody needs any more; each covers all pieces of a row.
    pub deletes: Vec<Place>,
}

/// What the store answers when a batch is synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Persisted {
    pub number: BatchNumber,
    /// Bytes handed to the disk for this batch, page-rounded writes and the store's own upkeep included.
    pub bytes_written: u64,
    /// Syncs asked of the disk for this batch.
    pub syncs: u32,
}
