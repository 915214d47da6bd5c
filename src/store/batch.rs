//! A batch: the unit of durability. All of it is on flash after its `Persisted`, or none of it.
//!
//! Owns the batch and its builder. The form of the rows in it is `row`'s, writing it is `engine`'s.

use bytes::Bytes;

use super::row::{self, PIECES_MAX, pieces_of};
use crate::ids::{BatchNumber, RowKey};
use crate::limits::{BATCH_ROWS_MAX, ROW_BYTES_MAX};

/// Where a stored row lies: its first key and how many consecutive keys its pieces take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    pub key: RowKey,
    pub pieces: u16,
}

/// Rows to add and rows to remove, in one atomic step.
#[derive(Clone, Debug)]
pub struct Batch {
    pub number: BatchNumber,
    /// Encoded row pieces in ascending key order (layout: `store::row`). They share one allocation, so that a copy of the
    /// batch costs no copy of its rows.
    pub pieces: Vec<(RowKey, Bytes)>,
    /// Rows that nobody needs any more; each covers all pieces of a row.
    pub deletes: Vec<Place>,
    /// No row below this key is needed after this batch. Only a hint: what is salvaged from a damaged file below it
    /// is dropped. It never has to be exact, and older hints are kept when it is `None`.
    pub min_live_key: Option<RowKey>,
}

impl Batch {
    /// What its rows are charged against the quota.
    pub(super) fn charged(&self) -> u64 {
        self.pieces.iter().map(|(_, piece)| row::charge(piece)).sum()
    }
}

/// What the store answers when a batch is synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Persisted {
    pub number: BatchNumber,
    /// Bytes handed to the disk for this batch, page-rounded writes and the store's own upkeep included.
    pub bytes_written: u64,
    /// Syncs asked of the disk for this batch.
    pub syncs: u32,
    /// What live rows take of the quota now, as [`Usage::live_bytes`](super::Usage::live_bytes).
    pub live_bytes: u64,
    /// The part of it that no row is charged: what the row log takes beyond that, because its pages are not full.
    pub overhead_bytes: u64,
}

/// Collects the rows of the batch that is open.
#[derive(Debug)]
pub struct BatchBuilder {
    /// Without its pieces.
    batch: Batch,
    /// The encoded pieces, one after the other.
    rows: Vec<u8>,
    /// The key of each piece and where it ends in `rows`.
    ends: Vec<(RowKey, usize)>,
}

impl BatchBuilder {
    /// An empty batch. Numbers start at 1 and have no gaps.
    #[must_use]
    pub const fn new(number: BatchNumber) -> Self {
        let batch = Batch { number, pieces: Vec::new(), deletes: Vec::new(), min_live_key: None };
        Self { batch, rows: Vec::new(), ends: Vec::new() }
    }

    /// The number of the batch.
    #[must_use]
    pub const fn number(&self) -> BatchNumber {
        self.batch.number
    }

    /// Adds a row and says where it will lie. `None` when the keys of this batch (65 536 pieces) do not suffice, or
    /// the body is longer than 32 767 pieces of [`ROW_BYTES_MAX`]; nothing is added then.
    pub fn push(&mut self, kind: u8, body: &[u8]) -> Option<Place> {
        let first = self.ends.len();
        let count = pieces_of(body.len());
        if count > PIECES_MAX || first + count > BATCH_ROWS_MAX {
            return None;
        }
        let pieces = u16::try_from(count).ok()?;
        let first = u16::try_from(first).ok()?;
        let place = Place { key: RowKey::new(self.batch.number, first), pieces };
        for index in 0..pieces {
            let start = usize::from(index) * ROW_BYTES_MAX;
            let part = body.get(start..body.len().min(start + ROW_BYTES_MAX)).unwrap_or_default();
            let key = RowKey(place.key.0 + u64::from(index));
            row::encode_onto(&mut self.rows, kind, key, index, pieces, part);
            self.ends.push((key, self.rows.len()));
        }
        Some(place)
    }

    /// Removes a row of an earlier batch, or of this one.
    pub fn delete(&mut self, place: Place) {
        self.batch.deletes.push(place);
    }

    /// States that no row below `key` is needed after this batch.
    pub const fn set_min_live_key(&mut self, key: RowKey) {
        self.batch.min_live_key = Some(key);
    }

    /// Bytes that the batch takes in the journal, roughly.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.rows.len() + 4 * self.batch.deletes.len()
    }

    /// True when the batch would change nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.batch.deletes.is_empty()
    }

    /// The batch, ready to be appended.
    #[must_use]
    pub fn finish(mut self) -> Batch {
        // The rows wait in memory until they are in the row log; room that was only reserved would wait with them.
        self.rows.shrink_to_fit();
        let mut rest = Bytes::from(self.rows);
        let mut begun = 0;
        let cut = |(key, end): (RowKey, usize)| {
            let piece = rest.split_to(end - begun);
            begun = end;
            (key, piece)
        };
        Batch { pieces: self.ends.into_iter().map(cut).collect(), ..self.batch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_take_consecutive_keys_until_they_are_used_up() {
        let mut builder = BatchBuilder::new(BatchNumber(3));
        assert!(builder.is_empty());
        assert_eq!(builder.push(1, b"a"), Some(Place { key: RowKey::new(BatchNumber(3), 0), pieces: 1 }));
        let long = vec![0; 2 * ROW_BYTES_MAX + 1];
        assert_eq!(builder.push(1, &long), Some(Place { key: RowKey::new(BatchNumber(3), 1), pieces: 3 }));
        while builder.push(2, b"").is_some() {}
        assert_eq!(builder.ends.len(), BATCH_ROWS_MAX);
        assert_eq!(builder.push(2, b""), None);
        assert!(builder.bytes() > long.len());
        let keys: Vec<_> = builder.finish().pieces.iter().map(|p| p.0).collect();
        assert!(keys.is_sorted() && keys.iter().all(|k| k.batch() == BatchNumber(3)));
    }
}
