//! Rows on their way between the window and the backlog: copied there as they are, read back, and what a start found there.

use bytes::Bytes;

use super::backlog::{Backlog, NewChunk, StoredChunk};
use super::chunk::{BacklogChange, BacklogChanged, ChunkPlan, ChunkRead, ChunkRows};
use super::engine::{Files, Store};
use super::error::{OpenError, StoreError};
use super::overlay::keys_of;
use super::recovery::{NUMBERS_SKIPPED, Recovery};
use super::row::Piece;
use crate::ids::{BatchNumber, ChunkNumber, RowKey};

impl Store {
    /// The chunks that the start found, once.
    pub fn take_chunks(&mut self) -> Vec<StoredChunk> {
        std::mem::take(&mut self.chunks)
    }

    /// The highest number of a chunk that was ever there.
    #[must_use]
    pub const fn highest_chunk(&self) -> ChunkNumber {
        self.backlog.highest().0
    }

    /// Changes the backlog in one synced step: copies rows of the window into new chunks, writes summaries anew, removes
    /// chunks. The window stays as it is: the caller removes rows there once they are here.
    ///
    /// # Errors
    /// See [`StoreError`]. The window is not touched by a failure of the backlog; a failure to read the window is
    /// one of the window, and [`Store::is_open`] is false then.
    pub fn change_backlog(&mut self, change: &BacklogChange) -> Result<BacklogChanged, StoreError> {
        let mut add = Vec::with_capacity(change.add.len());
        for plan in &change.add {
            add.extend(self.with_files(|files, _| files.copy(plan))?);
        }
        let changed = self.backlog.change(&add, change)?;
        self.copying.take_if(|copying| !copying.take_change(change));
        Ok(changed)
    }

    /// Rows of a chunk. Holds nothing open afterwards.
    ///
    /// # Errors
    /// When the file cannot be read now; try again later. What is damaged is no error.
    pub fn fetch_chunk(&mut self, read: ChunkRead) -> Result<ChunkRows, StoreError> {
        self.backlog.fetch(read)
    }
}

impl Files {
    /// The rows of a plan. `None` when one is not there or does not verify.
    fn copy(&self, plan: &ChunkPlan) -> Result<Option<NewChunk>, StoreError> {
        let keys: Vec<RowKey> = plan.rows.iter().flat_map(|place| keys_of(*place)).collect();
        let mut pieces: Vec<Option<Bytes>> =
            keys.iter().map(|key| self.overlay.piece(*key).cloned()).collect();
        let applied: Vec<RowKey> =
            keys.iter().zip(&pieces).filter(|(_, piece)| piece.is_none()).map(|(key, _)| *key).collect();
        if plan.rows.iter().any(|place| self.overlay.is_deleted(place.key)) {
            return Ok(None);
        }
        if !applied.is_empty() {
            let mut found = self.log.pieces(&applied)?.into_iter();
            for piece in pieces.iter_mut().filter(|piece| piece.is_none()) {
                *piece = found.next().flatten().map(Bytes::from);
            }
        }
        let Some(pieces) = pieces.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let whole =
            keys.iter().zip(&pieces).all(|(key, piece)| Piece::read(piece).is_some_and(|p| p.key == *key));
        let last = keys.last().copied().unwrap_or_default();
        let new = NewChunk { number: plan.number, summary: plan.summary.clone(), pieces, last };
        Ok(whole.then_some(new))
    }
}

/// When the window was lost or made anew beside a backlog that has seen higher numbers, numbers go on above those: no key
/// is given out twice.
pub(super) fn number_on(
    files: &mut Files,
    recovery: &mut Recovery,
    backlog: &Backlog,
) -> Result<(), OpenError> {
    let highest = backlog.highest().1.batch();
    if highest <= files.last {
        return Ok(());
    }
    files.last = BatchNumber(highest.0 + NUMBERS_SKIPPED);
    recovery.last_batch = files.last;
    recovery.damage.push(format!("batches up to {highest} are in the backlog and not in the window"));
    files.apply_recovered(recovery.boot).map_err(|error| match error {
        StoreError::Full(what) => OpenError::Full(what),
        other => OpenError::Io(other.to_string()),
    })
}
