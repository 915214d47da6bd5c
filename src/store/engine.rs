//! The store: batches in, `Persisted` out, rows back.
//!
//! Owns the order of writes: a batch is one record in the journal and one sync; when the journal is full, or the
//! caller is idle, its surviving rows move to the row log in one transaction. The files' forms are `page`'s, `record`'s
//! and `log`'s; what a start makes of them is `recovery`'s.

use std::sync::Arc;

use super::backlog::{Backlog, StoredChunk};
use super::batch::{Batch, Persisted, Place};
use super::cold;
use super::copy::Copying;
use super::counted::Counters;
use super::disk::{Disk, PAGE};
use super::error::{OpenError, StoreError};
use super::essentials;
use super::journal::Journal;
use super::log::{Log, Manner, Marker, PiecesFrom};
use super::overlay::{DELETES_MAX, Overlay};
use super::page::{Slot, pages_of};
use super::record;
use super::recovery::{self, Recovery, Running};
use super::room::Sizes;
use super::row::{Assembler, Piece};
use crate::ids::{BatchNumber, RowKey};

/// How a store is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Cap of `gateway.redb` and `gateway.journal` together, bytes.
    pub gateway_bytes_max: u64,
    /// Size of the journal, bytes; at most an eighth of the cap is used.
    pub journal_bytes: u64,
    /// Cap of `backlog.redb`, bytes; 0: nothing moves there.
    pub backlog_bytes_max: u64,
    /// Bytes of the file system that stay free.
    pub reserve_free: u64,
    pub on_corrupt: OnCorrupt,
}

/// What to do with a damaged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCorrupt {
    /// Set it aside, salvage its rows, go on.
    Quarantine,
    /// Refuse to open, change nothing.
    Stop,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            gateway_bytes_max: 72 << 20,
            journal_bytes: 4 << 20,
            backlog_bytes_max: 512 << 20,
            reserve_free: 64 << 20,
            on_corrupt: OnCorrupt::Quarantine,
        }
    }
}

/// How much is stored and was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// Length of both files.
    pub file_bytes: u64,
    /// What live rows take of the quota: what [`stored_bytes`](super::stored_bytes) charges them, or the pages that they
    /// take when that is more. Deleted rows count until they are applied.
    pub live_bytes: u64,
    /// What live rows may be charged: 75 % of what the row log can hold, less where the cap is next to nothing.
    pub quota_bytes: u64,
    /// Bytes of the journal that wait to be applied, and all of them.
    pub journal_used: u64,
    pub journal_bytes: u64,
    /// What the chunks of the backlog may take, and blocks that its file holds.
    pub backlog_quota_bytes: u64,
    pub backlog_file_bytes: u64,
    /// Since the store was opened; reopening keeps counting.
    pub bytes_written_total: u64,
    pub syncs_total: u64,
}

/// What a replay went through.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReplayReport {
    /// Rows handed over.
    pub rows: u64,
    /// Keys of rows that were left out because they do not verify.
    pub lost: Vec<RowKey>,
}

/// What a damaged file left, when it was damaged while the store was in use.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Salvaged {
    /// Numbers go on after this batch.
    pub last: BatchNumber,
    /// Every row that is there.
    pub rows: Vec<Place>,
    /// What was found, one text each.
    pub damage: Vec<String>,
}

/// The open store. One owner; every call is blocking.
#[derive(Debug)]
pub struct Store {
    disk: Arc<dyn Disk>,
    options: StoreOptions,
    counters: Arc<Counters>,
    boot: u32,
    last: BatchNumber,
    pub(super) open: Option<Files>,
    damage: Vec<String>,
    pub(super) backlog: Backlog,
    pub(super) chunks: Vec<StoredChunk>,
    /// A copy that is under way.
    pub(super) copying: Option<Copying>,
}

/// The open files and what lies between them.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) journal: Journal,
    pub(super) log: Log,
    pub(super) overlay: Overlay,
    pub(super) last: BatchNumber,
}

impl Store {
    /// Opens the store in `disk`'s folder, or makes a new one. Whatever state the files are in, with
    /// [`OnCorrupt::Quarantine`] it opens; what could not be kept is told in [`Recovery::damage`].
    ///
    /// # Errors
    /// A file from a newer version, a damaged one with [`OnCorrupt::Stop`], no room at all, or a failing disk.
    pub fn open(disk: Arc<dyn Disk>, options: StoreOptions) -> Result<(Self, Recovery), OpenError> {
        let counters = Arc::new(Counters::default());
        let (mut files, mut recovery) = recovery::open(&*disk, &options, &counters, None)?;
        let (backlog, found) = Backlog::open(&disk, &options, &counters)?;
        cold::number_on(&mut files, &mut recovery, &backlog)?;
        recovery.backlog_damage = found.damage;
        let store = Self {
            disk,
            options,
            counters,
            boot: recovery.boot,
            last: files.last,
            open: Some(files),
            damage: Vec::new(),
            backlog,
            chunks: found.chunks,
            copying: None,
        };
        Ok((store, recovery))
    }

    /// Hands over every live row in key order: its place, its kind, its body. A row that does not verify is left out
    /// and reported.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn replay(&mut self, row: &mut dyn FnMut(Place, u8, &[u8])) -> Result<ReplayReport, StoreError> {
        self.with_files(|files, _| {
            let mut walk = files.log.for_each(&files.overlay, row)?;
            let mut assembler = Assembler::default();
            let none_deleted = Overlay::default();
            for (key, piece) in files.overlay.rows() {
                walk.take(key, Piece::read(piece).as_ref(), &mut assembler, &none_deleted, row);
            }
            walk.lost.extend(assembler.give_up().map(|place| place.key));
            Ok(ReplayReport { rows: walk.rows, lost: walk.lost })
        })
    }

    /// Makes a batch durable. Its number is the one after [`Store::last_batch`]; a number up to that is answered
    /// without writing, so that a batch may be submitted again after an error.
    ///
    /// # Errors
    /// See [`StoreError`]. After [`StoreError::NoRoom`] the store is as before; after another error the batch may or may
    /// not be there, and [`Store::reopen`] tells.
    pub fn append(&mut self, batch: Batch) -> Result<Persisted, StoreError> {
        let number = batch.number;
        let (bytes, syncs) = (self.counters.bytes(), self.counters.syncs());
        if self.open.is_none() {
            return Err(StoreError::NotOpen);
        }
        if number > self.last.next() {
            return Err(StoreError::OutOfOrder { expected: self.last.next(), found: number });
        }
        if number > self.last {
            let deletes = self.copying.is_some().then(|| batch.deletes.clone());
            if !self.with_files(|files, boot| files.append(batch, boot))? {
                return Err(StoreError::NoRoom);
            }
            self.last = number;
            if let Some(deletes) = deletes {
                self.copying.take_if(|copying| !copying.take_removed(&deletes));
            }
        }
        Ok(Persisted {
            number,
            bytes_written: self.counters.bytes() - bytes,
            syncs: u32::try_from(self.counters.syncs() - syncs).unwrap_or(u32::MAX),
            live_bytes: self.open.as_ref().map_or(0, Files::live_bytes),
            overhead_bytes: self.open.as_ref().map_or(0, |files| files.log.overhead_bytes()),
        })
    }

    /// True when [`Store::append`] of this batch would be one write of one page and one sync.
    #[must_use]
    pub fn append_is_one_write(&self, batch: &Batch) -> bool {
        let pages = pages_of(record::payload_bytes_max(batch));
        pages == 1 && self.open.as_ref().is_some_and(|files| !files.should_apply(pages, batch.charged()))
    }

    /// The body of the row at `key`, put together; `None` when there is none. Holds nothing open afterwards.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn fetch(&mut self, key: RowKey) -> Result<Option<Vec<u8>>, StoreError> {
        self.with_files(|files, _| {
            if let Some(body) = files.overlay.fetch(key) {
                return Ok(Some(body));
            }
            if files.overlay.is_deleted(key) { Ok(None) } else { files.log.fetch(key) }
        })
    }

    /// Call when there is nothing else to do: applies the journal when more than half of it is used. Returns whether
    /// it did.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn apply_if_idle(&mut self) -> Result<bool, StoreError> {
        self.with_files(|files, boot| {
            let worth_it = files.journal.used_bytes() > files.journal.file_bytes() / 2;
            if worth_it {
                files.apply(boot)?;
            }
            Ok(worth_it)
        })
    }

    /// Applies what is left, closes the files and marks the stop as clean. `essentials` replaces the essentials file.
    ///
    /// # Errors
    /// See [`StoreError`]. Nothing that was persisted is lost by an error here.
    pub fn close(mut self, essentials: Option<&[u8]>) -> Result<(), StoreError> {
        if let Some(bytes) = essentials {
            self.write_essentials(bytes)?;
        }
        let boot = self.boot;
        let Some(mut files) = self.open.take() else {
            return Err(StoreError::NotOpen);
        };
        files.apply(boot)?;
        let Files { mut journal, log, last, .. } = files;
        let charged = log.marker().charged;
        log.close()?;
        self.backlog.close()?;
        Ok(journal.write_slot(Slot { clean: true, boot, applied: last, charged, ..Slot::default() })?)
    }

    /// Replaces the essentials file: what is needed to go on after the files of the store are lost. Its content is the
    /// caller's.
    ///
    /// # Errors
    /// See [`StoreError`]. The store stays open: the rows are not touched.
    pub fn write_essentials(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        Ok(essentials::write(&*self.disk, bytes, self.boot, self.last)?)
    }

    /// The content of the essentials file; `None` when there is none that verifies.
    #[must_use]
    pub fn read_essentials(&self) -> Option<Vec<u8>> {
        essentials::read(&*self.disk).map(|essentials| essentials.bytes)
    }

    /// How much is stored and was written.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let counted = Usage {
            bytes_written_total: self.counters.bytes(),
            syncs_total: self.counters.syncs(),
            backlog_quota_bytes: self.backlog.quota_bytes(),
            backlog_file_bytes: self.backlog.allocated_bytes(),
            ..Usage::default()
        };
        let Some(files) = &self.open else {
            return counted;
        };
        Usage {
            file_bytes: files.log.file().file().len().unwrap_or(0) + files.journal.file_bytes(),
            live_bytes: files.live_bytes(),
            quota_bytes: Sizes::of(&self.options).quota_bytes().min(files.log.space().quota_bytes()),
            journal_used: files.journal.used_bytes(),
            journal_bytes: files.journal.file_bytes(),
            ..counted
        }
    }

    /// The last batch known to be persisted.
    #[must_use]
    pub const fn last_batch(&self) -> BatchNumber {
        self.last
    }

    /// True until a call fails.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Recovers in place after an error: drops the handles and the files' cached pages and opens again.
    ///
    /// Returns the last batch that is persisted, so that the caller submits again what is above it. `None` when a file
    /// was found damaged and set aside: rows may be missing or have come back, [`Store::salvaged`] tells, and the caller
    /// should write anew what it knows and delete the rest. Numbers go on after [`Store::last_batch`] in either case.
    ///
    /// # Errors
    /// See [`StoreError`]. Try again later.
    pub fn reopen(&mut self) -> Result<Option<BatchNumber>, StoreError> {
        self.abandon();
        let running = Running { boot: self.boot, persisted: self.last };
        let (files, recovery) = recovery::open(&*self.disk, &self.options, &self.counters, Some(running))?;
        self.last = files.last;
        self.open = Some(files);
        self.damage.extend(recovery.damage);
        Ok(self.damage.is_empty().then_some(self.last))
    }

    /// What is there after [`Store::reopen`] found damage.
    ///
    /// # Errors
    /// See [`StoreError`]; the damage is found again then.
    pub fn salvaged(&mut self) -> Result<Salvaged, StoreError> {
        let mut rows = Vec::new();
        let report = self.replay(&mut |place, _, _| rows.push(place))?;
        rows.extend(report.lost.into_iter().map(|key| Place { key, pieces: 1 }));
        Ok(Salvaged { last: self.last, rows, damage: std::mem::take(&mut self.damage) })
    }

    /// Runs a call on the open files; an error closes them until [`Store::reopen`].
    pub(super) fn with_files<T>(
        &mut self,
        call: impl FnOnce(&mut Files, u32) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let files = self.open.as_mut().ok_or(StoreError::NotOpen)?;
        let result = call(files, self.boot);
        if result.is_err() {
            self.abandon();
        }
        result
    }

    fn abandon(&mut self) {
        self.copying = None;
        if let Some(files) = self.open.take() {
            files.abandon();
        }
    }
}

/// The journal is applied before this part of it is used.
const RESERVE_SHARE: u64 = 8;

impl Files {
    /// Applies everything that the overlay holds and starts the journal's next lap.
    pub(super) fn apply(&mut self, boot: u32) -> Result<(), StoreError> {
        self.apply_in(Manner::Fitting, boot, false)
    }

    /// The same at the end of a start that met damage. Until the next apply another start tells of it again, in case
    /// this one is cut off before it could.
    pub(super) fn apply_recovered(&mut self, boot: u32) -> Result<(), StoreError> {
        self.apply_in(Manner::Fitting, boot, true)
    }

    /// Pieces of live rows from `from` on until they have `bytes_max` bytes, and where to go on; `None` at the end. What
    /// the overlay holds has higher keys than what is applied.
    pub(super) fn rows_from(&self, from: RowKey, bytes_max: usize) -> Result<PiecesFrom, StoreError> {
        let (mut rows, next) = self.log.rows_from(from, bytes_max, &self.overlay)?;
        if next.is_some() {
            return Ok((rows, next));
        }
        let mut bytes: usize = rows.iter().map(|(_, piece)| piece.len()).sum();
        for (key, piece) in self.overlay.rows_from(from) {
            if bytes >= bytes_max {
                return Ok((rows, Some(key)));
            }
            bytes += piece.len();
            rows.push((key, piece.to_vec()));
        }
        Ok((rows, None))
    }

    /// What live rows take of the quota.
    pub(super) fn live_bytes(&self) -> u64 {
        self.log.live_bytes() + self.overlay.charged()
    }

    fn apply_in(&mut self, manner: Manner, boot: u32, rebuilt: bool) -> Result<(), StoreError> {
        let before = self.log.marker();
        if before.applied == self.last && self.overlay.is_empty() && before.rebuilt == rebuilt {
            return Ok(());
        }
        let min_live_key = before.min_live_key.max(self.overlay.min_live_key());
        let marker = Marker { applied: self.last, min_live_key, charged: 0, boot, rebuilt };
        if let Err(error) = self.log.apply(&self.overlay, marker, manner) {
            if !self.log.wants_reopen() {
                return Err(error);
            }
            // redb had shrunk, and does not grow by as little as there is.
            self.log.reopen()?;
            self.log.apply(&self.overlay, marker, manner)?;
        }
        self.overlay = Overlay::default();
        self.journal.restart();
        Ok(())
    }

    /// False when the batch was refused: its rows do not fit, and nothing was written.
    fn append(&mut self, batch: Batch, boot: u32) -> Result<bool, StoreError> {
        let pages = pages_of(record::payload_bytes_max(&batch));
        let charged = batch.charged();
        if self.should_apply(pages, charged) {
            self.apply(boot)?;
        }
        let capacity = self.journal.capacity_pages();
        let too_long = pages > capacity - capacity / RESERVE_SHARE;
        if !self.fits_log(charged) && (batch.deletes.is_empty() || !self.log.space().holds(charged)) {
            return Ok(false);
        }
        if too_long || !self.fits_log(charged) {
            return self.append_directly(batch, boot);
        }
        record::write(&batch, &mut self.journal.writer);
        self.journal.append(batch.number)?;
        self.last = batch.number;
        self.take(batch);
        Ok(true)
    }

    /// Takes a batch into the row log in one transaction, past the journal: it is too long for that, or fits only with
    /// what its own deletes give back, which the transaction finds out.
    fn append_directly(&mut self, batch: Batch, boot: u32) -> Result<bool, StoreError> {
        self.apply(boot)?;
        let last = std::mem::replace(&mut self.last, batch.number);
        self.take(batch);
        match self.apply_in(Manner::Whole, boot, false) {
            Err(StoreError::Full(_)) if self.log.wants_reopen() => {
                self.log.reopen()?;
                self.overlay = Overlay::default();
                self.last = last;
                Ok(false)
            }
            result => result.map(|()| true),
        }
    }

    /// True when a record of so many pages, with rows that are charged so much, asks for an apply first.
    fn should_apply(&self, pages: u64, charged: u64) -> bool {
        let reserve = self.journal.capacity_pages() / RESERVE_SHARE;
        self.journal.room_pages() < pages.saturating_add(reserve)
            || self.overlay.delete_count() > DELETES_MAX
            || !self.fits_log(charged)
    }

    /// True when rows that are charged so much fit the row log beside what waits.
    fn fits_log(&self, charged: u64) -> bool {
        charged == 0 || self.log.space().holds_easily(self.overlay.charged() + charged)
    }

    fn take(&mut self, batch: Batch) {
        for (key, piece) in batch.pieces {
            self.overlay.insert(key, piece);
        }
        for place in batch.deletes {
            self.overlay.delete(place);
        }
        self.overlay.set_min_live_key(batch.min_live_key);
    }

    fn abandon(self) {
        // Only a hint: where it fails the reopen still verifies what it reads.
        drop(self.journal.drop_cache());
        self.log.abandon();
    }
}

const _: () = assert!(PAGE == 4096, "redb's page size is fixed");
