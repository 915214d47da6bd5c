//! Makes the files of a store of the entries of a copy.
//!
//! The caller gives it a folder of its own, which counts for nothing before [`Restoring::finish`] and the caller's own
//! rename: a cut in between leaves files that nobody opens.

use std::sync::Arc;

use super::backlog::{Backlog, part_key};
use super::batch::Place;
use super::chunk::PartView;
use super::copy::{CopiedEntry, CopiedState, Table};
use super::counted::{Counted, Counters};
use super::disk::{self, Disk};
use super::engine::StoreOptions;
use super::error::StoreError;
use super::journal::Journal;
use super::log::{LOG, Log, LogError, Manner, Marker};
use super::overlay::Overlay;
use super::page::Slot;
use super::room::Sizes;
use super::row::Piece;
use crate::ids::RowKey;

/// Files that are being made.
#[derive(Debug)]
pub struct Restoring {
    disk: Arc<dyn Disk>,
    counters: Arc<Counters>,
    sizes: Sizes,
    log: Log,
    backlog: Backlog,
}

/// True when an entry is what its table holds: it is what [`Restoring::take`] asks for.
#[must_use]
pub fn verifies(entry: &CopiedEntry) -> bool {
    let Some(value) = &entry.value else { return true };
    match entry.table {
        Table::Rows => Piece::read(value)
            .is_some_and(|piece| piece.key.0 == entry.key && piece.len == value.len() && entry.key != 0),
        Table::Parts => {
            PartView::read(value).is_some_and(|part| part_key(part.number, part.index) == entry.key)
        }
        Table::Summaries => Backlog::is_summary(entry.key, value),
    }
}

impl Restoring {
    /// Begins in an empty folder, with the bounds of `options`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn new(disk: Arc<dyn Disk>, options: &StoreOptions) -> Result<Self, StoreError> {
        let counters = Arc::new(Counters::default());
        let sizes = Sizes::of(options);
        let file = Counted::new(disk::create(&*disk, LOG)?, &counters);
        Log::create(file.clone(), sizes.log, Marker::default())?;
        let mut log = Log::open(file, sizes.log).map_err(|error| match error {
            LogError::Failed(error) => error,
            LogError::Damaged(what) | LogError::Unreadable(what) => StoreError::Corrupted(what),
            LogError::TooNew(_) => StoreError::Corrupted("it is of another version as it is made".into()),
        })?;
        log.release()?;
        let (backlog, _) = Backlog::open(&disk, options, &counters).map_err(StoreError::from)?;
        Ok(Self { disk, counters, sizes, log, backlog })
    }

    /// Takes entries, in the order in which they were copied.
    ///
    /// # Errors
    /// [`StoreError::Full`] when they do not fit the bounds or the disk, [`StoreError::Corrupted`] when one does not
    /// verify.
    pub fn take(&mut self, entries: &[CopiedEntry]) -> Result<(), StoreError> {
        let mut rows = Overlay::default();
        let (mut parts, mut summaries) = (Vec::new(), Vec::new());
        for entry in entries {
            if !verifies(entry) {
                return Err(StoreError::Corrupted(format!("entry {} does not verify", entry.key)));
            }
            match (entry.table, &entry.value) {
                (Table::Rows, Some(piece)) => rows.insert(RowKey(entry.key), piece.clone().into()),
                (Table::Rows, None) => rows.delete(Place { key: RowKey(entry.key), pieces: 1 }),
                (Table::Parts, value) => parts.push((entry.key, value.as_deref())),
                (Table::Summaries, value) => summaries.push((entry.key, value.as_deref())),
            }
        }
        if !rows.is_empty() {
            let marker = self.log.marker();
            if let Err(error) = self.log.apply(&rows, marker, Manner::Fitting) {
                if !self.log.wants_reopen() {
                    return Err(error);
                }
                // redb had shrunk, and does not grow by as little as there is.
                self.log.reopen()?;
                self.log.apply(&rows, marker, Manner::Fitting)?;
            }
        }
        if !parts.is_empty() || !summaries.is_empty() {
            self.backlog.put_raw(&parts, &summaries)?;
        }
        Ok(())
    }

    /// Ends it: the files are those of a store that holds what `state` says. `clean` when what was copied had been
    /// stopped cleanly.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn finish(mut self, state: CopiedState, clean: bool) -> Result<(), StoreError> {
        self.backlog.drop_parts_without_summary()?;
        self.backlog.close()?;
        let marker = Marker {
            applied: state.last_batch,
            min_live_key: Some(state.min_live_key).filter(|key| key.0 != 0),
            charged: 0,
            boot: state.boot,
            rebuilt: false,
        };
        self.log.apply(&Overlay::default(), marker, Manner::Whole)?;
        let charged = self.log.marker().charged;
        self.log.close()?;
        let slot =
            Slot { clean, boot: state.boot.max(1), applied: state.last_batch, charged, ..Slot::default() };
        Journal::create(&*self.disk, self.sizes.journal, slot, &self.counters)?;
        Ok(())
    }
}
