//! What the journal holds and the row log does not yet: rows added and rows removed since the last apply.
//!
//! Bounded by the journal's size: the rows of a batch share an allocation, which goes when the last of them goes, at the
//! latest with the next apply. A row that is added and removed between two applies never reaches the row log.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::batch::Place;
use super::row::{Assembled, Assembler, Piece, charge, fragments};
use crate::ids::RowKey;

/// Deletes of applied rows that wait at most; more of them call for an apply, so that memory stays bounded.
pub(super) const DELETES_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Overlay {
    rows: BTreeMap<RowKey, Bytes>,
    deletes: BTreeMap<RowKey, u16>,
    charged: u64,
    min_live_key: Option<RowKey>,
}

impl Overlay {
    /// Adds an encoded piece.
    pub(super) fn insert(&mut self, key: RowKey, piece: Bytes) {
        self.charged += charge(&piece);
        if let Some(old) = self.rows.insert(key, piece) {
            self.charged -= charge(&old);
        }
    }

    /// Removes a row here, or notes that it is to be removed from the row log.
    pub(super) fn delete(&mut self, place: Place) {
        let mut found = false;
        for key in keys_of(place) {
            if let Some(piece) = self.rows.remove(&key) {
                self.charged -= charge(&piece);
                found = true;
            }
        }
        if !found {
            let pieces = self.deletes.entry(place.key).or_default();
            *pieces = place.pieces.max(*pieces);
        }
    }

    /// Drops pieces whose row is not whole; returns how many.
    pub(super) fn drop_fragments(&mut self) -> usize {
        let parts = self.rows.iter().filter_map(|(&key, bytes)| Some((key, Piece::read(bytes)?.part)));
        let fragments = fragments(parts);
        for key in &fragments {
            if let Some(piece) = self.rows.remove(key) {
                self.charged -= charge(&piece);
            }
        }
        fragments.len()
    }

    pub(super) fn set_min_live_key(&mut self, key: Option<RowKey>) {
        self.min_live_key = self.min_live_key.max(key);
    }

    pub(super) const fn min_live_key(&self) -> Option<RowKey> {
        self.min_live_key
    }

    /// Pieces to add, ascending.
    pub(super) fn rows(&self) -> impl Iterator<Item = (RowKey, &[u8])> {
        self.rows_from(RowKey(0))
    }

    /// Pieces to add from this key on, ascending.
    pub(super) fn rows_from(&self, from: RowKey) -> impl Iterator<Item = (RowKey, &[u8])> {
        self.rows.range(from..).map(|(key, piece)| (*key, piece.as_ref()))
    }

    /// Rows to remove from the row log, ascending.
    pub(super) fn deletes(&self) -> impl Iterator<Item = Place> {
        self.deletes.iter().map(|(&key, &pieces)| Place { key, pieces })
    }

    /// True when the row whose head has this key is to be removed from the row log.
    pub(super) fn is_deleted(&self, key: RowKey) -> bool {
        self.deletes.contains_key(&key)
    }

    /// True when the row that the piece at this key belongs to is to be removed from the row log.
    pub(super) fn deletes_piece(&self, key: RowKey) -> bool {
        let before = self.deletes.range(..=key).next_back();
        before.is_some_and(|(head, pieces)| key.0 - head.0 < u64::from(*pieces))
    }

    /// The body of the row at `key`; `None` when it is not here.
    pub(super) fn fetch(&self, key: RowKey) -> Option<Vec<u8>> {
        let mut assembler = Assembler::default();
        for (_, bytes) in self.rows.range(key..) {
            match assembler.push(&Piece::read(bytes)?) {
                (Assembled::Single(place, _, body), _) => return (place.key == key).then(|| body.to_vec()),
                (Assembled::Whole(place, _, body), _) => return (place.key == key).then_some(body),
                (Assembled::Nothing, None) => {}
                _ => return None,
            }
        }
        None
    }

    /// The encoded piece at `key`.
    pub(super) fn piece(&self, key: RowKey) -> Option<&Bytes> {
        self.rows.get(&key)
    }

    /// Number of deletes that wait.
    pub(super) fn delete_count(&self) -> usize {
        self.deletes.len()
    }

    /// What the rows here are charged, bytes.
    pub(super) const fn charged(&self) -> u64 {
        self.charged
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.deletes.is_empty()
    }
}

/// The keys of a row's pieces.
pub(super) fn keys_of(place: Place) -> impl Iterator<Item = RowKey> {
    (0..u64::from(place.pieces)).map(move |index| RowKey(place.key.0.saturating_add(index)))
}
