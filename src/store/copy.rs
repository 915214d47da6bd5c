//! Copies everything that is live, in bites, while the store goes on.
//!
//! Nothing is pinned and nothing waits longer than one bite takes. What was copied and is removed afterwards is told as
//! removed, what is added has a higher key and comes later: the entries, applied in order, are the store as it was when
//! [`Store::copy_last`] answered. A failure of the store in between ends the copy.

use super::backlog::part_key;
use super::batch::Place;
use super::chunk::{BacklogChange, PartView};
use super::engine::Store;
use super::error::StoreError;
use super::overlay::keys_of;
use super::row::Piece;
use crate::ids::{BatchNumber, ChunkNumber, RowKey};

/// Which table an entry is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Table {
    /// Pieces of rows of the window, by their keys.
    Rows,
    /// Parts of chunks of the backlog, by number of the chunk << 16 | index of the part.
    Parts,
    /// Summaries of chunks, by number; key 0 is the backlog's marker. One that is removed takes its parts along, and parts
    /// without a summary count for nothing.
    Summaries,
}

/// A key with its value; without one it was removed since it was copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopiedEntry {
    pub table: Table,
    pub key: u64,
    pub value: Option<Vec<u8>>,
}

/// A bite of a copy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopiedBite {
    pub entries: Vec<CopiedEntry>,
    /// Nothing is left now; what comes later does.
    pub caught_up: bool,
}

/// What a copy was taken of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopiedState {
    pub last_batch: BatchNumber,
    /// Starts of the store so far.
    pub boot: u32,
    /// No row below is needed; 0: unknown.
    pub min_live_key: RowKey,
    /// Entries that did not verify and are not in the copy.
    pub damaged: u64,
}

/// How far a copy is.
#[derive(Debug, Default)]
pub(super) struct Copying {
    /// The key of the next part.
    part: u64,
    row: RowKey,
    /// Rows that were copied and removed since.
    removed: Vec<Place>,
    /// Chunks that were copied, at least in part, and removed since.
    removed_chunks: Vec<ChunkNumber>,
    damaged: u64,
}

/// Removed rows that wait to be told; more of them end the copy.
const REMOVED_MAX: usize = 1 << 18;

impl Copying {
    /// True when the copy can go on after a batch removed these rows.
    pub(super) fn take_removed(&mut self, deletes: &[Place]) -> bool {
        self.removed.extend(deletes.iter().filter(|place| place.key < self.row));
        self.removed.len() <= REMOVED_MAX
    }

    /// True when the copy can go on after the backlog was changed so: chunks that come have higher numbers.
    pub(super) fn take_change(&mut self, change: &BacklogChange) -> bool {
        let copied = |number: ChunkNumber| part_key(number, 0) < self.part;
        self.removed_chunks.extend(change.remove.iter().filter(|number| copied(**number)));
        self.removed_chunks.len() <= REMOVED_MAX && !change.add.iter().any(|plan| copied(plan.number))
    }

    fn push(&mut self, bite: &mut CopiedBite, table: Table, key: u64, value: Vec<u8>) {
        let verifies = match table {
            Table::Rows => Piece::read(&value).is_some_and(|piece| piece.key.0 == key),
            Table::Parts => {
                PartView::read(&value).is_some_and(|part| part_key(part.number, part.index) == key)
            }
            Table::Summaries => true,
        };
        if verifies {
            bite.entries.push(CopiedEntry { table, key, value: Some(value) });
        } else {
            self.damaged += 1;
        }
    }
}

impl Store {
    /// Begins a copy, in place of one that was under way.
    pub fn begin_copy(&mut self) {
        self.copying = Some(Copying::default());
    }

    /// Gives a copy up.
    pub fn end_copy(&mut self) {
        self.copying = None;
    }

    /// The next bite of the copy, at least one entry beyond `bytes_max` unless there is nothing left.
    ///
    /// # Errors
    /// [`StoreError::NotOpen`] when no copy is under way, or not any more; else see [`StoreError`].
    pub fn copy_next(&mut self, bytes_max: usize) -> Result<CopiedBite, StoreError> {
        let mut copying = self.copying.take().ok_or(StoreError::NotOpen)?;
        let mut bite = CopiedBite::default();
        let (parts, next) = self.backlog.parts_from(copying.part, bytes_max)?;
        let mut left = parts.iter().fold(bytes_max, |left, (_, part)| left.saturating_sub(part.len()));
        let parts_end = next.is_none();
        copying.part =
            next.or_else(|| parts.last().map(|(key, _)| key.saturating_add(1))).unwrap_or(copying.part);
        for (key, part) in parts {
            copying.push(&mut bite, Table::Parts, key, part);
        }
        let mut rows_end = false;
        if parts_end && left > 0 {
            let (rows, next) = self.with_files(|files, _| files.rows_from(copying.row, left))?;
            left = rows.iter().fold(left, |left, (_, piece)| left.saturating_sub(piece.len()));
            rows_end = next.is_none();
            let after = rows.last().map(|(key, _)| RowKey(key.0.saturating_add(1)));
            copying.row = next.or(after).unwrap_or(copying.row);
            for (key, piece) in rows {
                copying.push(&mut bite, Table::Rows, key.0, piece);
            }
        }
        for place in copying.removed.drain(..) {
            let gone = keys_of(place).map(|key| CopiedEntry { table: Table::Rows, key: key.0, value: None });
            bite.entries.extend(gone);
        }
        for number in copying.removed_chunks.drain(..) {
            bite.entries.push(CopiedEntry { table: Table::Summaries, key: number.0, value: None });
        }
        bite.caught_up = parts_end && rows_end && left > 0;
        self.copying = Some(copying);
        Ok(bite)
    }

    /// The rest of the copy, however much it is, and what it was taken of: this moment. The copy is over then.
    ///
    /// # Errors
    /// As [`Store::copy_next`].
    pub fn copy_last(&mut self) -> Result<(Vec<CopiedEntry>, CopiedState), StoreError> {
        let mut bite = self.copy_next(usize::MAX)?;
        let mut copying = self.copying.take().ok_or(StoreError::NotOpen)?;
        for (key, summary) in self.backlog.summaries()? {
            copying.push(&mut bite, Table::Summaries, key, summary);
        }
        let (last_batch, damaged) = (self.last_batch(), copying.damaged);
        let state = self.with_files(|files, boot| {
            let min_live_key = files.log.marker().min_live_key.max(files.overlay.min_live_key());
            let min_live_key = min_live_key.unwrap_or_default();
            Ok(CopiedState { last_batch, boot, min_live_key, damaged })
        })?;
        Ok((bite.entries, state))
    }
}
