//! What a start makes of the files it finds.
//!
//! Owns the decisions: what is new, what is whole, what is damaged, what is set aside, which batch is the last. It
//! always ends with two good files, or with an error that leaves the found ones as they are.
//!
//! The order of creation is journal, then row log; the journal's boot count is above zero once both exist. So a
//! missing row log beside a journal that never booted is an unfinished first start, and anything else is damage.

use std::sync::Arc;

use bytes::Bytes;

use super::counted::{Counted, Counters};
use super::disk::{self, Disk, File, PAGE};
use super::engine::{Files, OnCorrupt, StoreOptions};
use super::error::{OpenError, StoreError};
use super::essentials;
use super::journal::{Found, JOURNAL, Journal, Scan, Slots};
use super::log::{LOG, LOG_VERSION, Log, LogError, Manner, Marker};
use super::overlay::Overlay;
use super::page::{JOURNAL_VERSION, Slot};
use super::record::Content;
use super::room::{Sizes, reserve, usable_bytes};
use super::row::Piece;
use super::salvage::Salvage;
use crate::ids::{BatchNumber, RowKey};

/// What a start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The last batch that is persisted; the next one has the number after it.
    pub last_batch: BatchNumber,
    /// Counts the starts; durable before it is told.
    pub boot: u32,
    /// The last stop was clean, or there was none.
    pub clean: bool,
    /// The files were made now.
    pub created: bool,
    /// The write of this batch was cut off, as a power cut does; it was not acknowledged. (That its only page was
    /// damaged later looks the same.)
    pub unfinished: Option<BatchNumber>,
    /// What was damaged, set aside, salvaged, lost: one text each. Empty after any number of power cuts.
    pub damage: Vec<String>,
    /// The same for the backlog.
    pub backlog_damage: Vec<String>,
    /// What an operator should know and what is no damage.
    pub notes: Vec<String>,
    /// The essentials file's content, when something was damaged.
    pub essentials: Option<Vec<u8>>,
    /// What the live rows are charged.
    pub live_bytes: u64,
}

/// Numbers skipped after damage, so that the keys of rows that were lost are never given out again.
pub(super) const NUMBERS_SKIPPED: u64 = 1 << 16;

/// Boots skipped when the boot count was lost: more than can have passed since the last copy of it.
const BOOTS_SKIPPED: u32 = 1 << 16;

/// A file is read ahead when live rows fill more than this part of it.
const READ_AHEAD_SHARE: u64 = 8;

/// Files set aside that are kept, for each name.
const SET_ASIDE_MAX: usize = 3;

/// What a running process knows when it opens its files again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) boot: u32,
    /// The last batch that was persisted, so it must be there.
    pub(super) persisted: BatchNumber,
}

/// Opens the files; `running` when this is a reopen.
pub(super) fn open(
    disk: &dyn Disk,
    options: &StoreOptions,
    counters: &Arc<Counters>,
    running: Option<Running>,
) -> Result<(Files, Recovery), OpenError> {
    let mut opening = Opening {
        disk,
        options,
        counters,
        sizes: Sizes::of(options),
        recovery: Recovery::default(),
        lost_numbers: false,
        journal_damaged: false,
        highest: BatchNumber(0),
    };
    opening.finish_swap()?;
    let journal = opening.journal()?;
    let known = Known::of(disk, &journal);
    let (log, salvaged) = opening.log(&journal, &known)?;
    let mut files = opening.join(journal, log, salvaged)?;
    opening.settle(&mut files, &known, running)?;
    Ok((files, opening.recovery))
}

/// What is known of earlier boots before anything is opened.
#[derive(Debug)]
struct Known {
    slot: Slot,
    slots: Slots,
    essentials_boot: u32,
    essentials_last: BatchNumber,
}

impl Known {
    fn of(disk: &dyn Disk, journal: &Found) -> Self {
        let essentials = essentials::read(disk);
        Self {
            slot: journal.journal.slot(),
            slots: journal.slots,
            essentials_boot: essentials.as_ref().map_or(0, |found| found.boot),
            essentials_last: essentials.map_or(BatchNumber(0), |found| found.last),
        }
    }
}

struct Opening<'a> {
    disk: &'a dyn Disk,
    options: &'a StoreOptions,
    counters: &'a Arc<Counters>,
    sizes: Sizes,
    recovery: Recovery,
    /// Numbers may have been given out that nothing here knows of.
    lost_numbers: bool,
    /// The journal is to be replaced once its rows are applied.
    journal_damaged: bool,
    /// The highest batch of which a row was salvaged.
    highest: BatchNumber,
}

impl Opening<'_> {
    /// A cut between the two renames of a swap leaves only the new row log, complete.
    fn finish_swap(&self) -> Result<(), OpenError> {
        let fresh = format!("{LOG}.new");
        let names = self.disk.list()?;
        let has = |name: &str| names.iter().any(|found| found == name);
        if !has(&fresh) {
            return Ok(());
        }
        if !has(LOG) && has(JOURNAL) && self.is_whole(&fresh)? {
            self.disk.rename(&fresh, LOG)?;
        } else {
            self.disk.remove(&fresh)?;
        }
        Ok(self.disk.sync_folder()?)
    }

    fn is_whole(&self, name: &str) -> Result<bool, OpenError> {
        if let Some(file) = self.disk.open(name, false)? {
            file.drop_cache()?;
        }
        Ok(self.try_log(name)?.is_ok())
    }

    /// Opens the journal, or makes the one of a first start.
    fn journal(&mut self) -> Result<Found, OpenError> {
        let found = Journal::open(self.disk, self.counters)?;
        if let Some(found) = found {
            if let Slots::TooNew(version) = found.slots {
                return Err(OpenError::TooNew { file: JOURNAL, found: version, newest: JOURNAL_VERSION });
            }
            self.judge_journal(&found)?;
            return Ok(found);
        }
        let log_exists = self.disk.open(LOG, false)?.is_some();
        if log_exists {
            self.damaged(JOURNAL, "it is missing; batches after the last apply are lost")?;
            self.lost_numbers = true;
        } else {
            self.sizes = Sizes::within(self.options, usable_bytes(self.disk, self.options)?);
            if self.sizes != Sizes::of(self.options) {
                self.recovery.notes.push(format!(
                    "the disk has room for {} of {} bytes",
                    self.sizes.journal + self.sizes.log,
                    self.options.gateway_bytes_max
                ));
            }
        }
        let journal = Journal::create(self.disk, self.sizes.journal, Slot::default(), self.counters)?;
        let slots = if log_exists { Slots::BothDamaged } else { Slots::Sure };
        Ok(Found { journal, slots, scan: Scan::default() })
    }

    fn judge_journal(&mut self, found: &Found) -> Result<(), OpenError> {
        match found.slots {
            Slots::BothDamaged => {
                self.damaged(JOURNAL, "neither header is readable")?;
                self.journal_damaged = true;
                self.lost_numbers = true;
            }
            Slots::OneDamaged if found.journal.slot().boot > 0 => {
                self.recovery
                    .notes
                    .push(format!("one of the two headers of {JOURNAL} was damaged; nothing is lost"));
            }
            _ => {}
        }
        let pages = u64::from(found.journal.slot().pages);
        if found.journal.file_bytes() / PAGE < pages {
            self.damaged(JOURNAL, "it is cut short; batches in the missing part are lost")?;
            self.journal_damaged = true;
            self.lost_numbers = true;
        }
        Ok(())
    }

    /// Opens the row log; makes, or makes anew, what is missing or damaged. The second result tells that it is not
    /// what the last apply left.
    fn log(&mut self, journal: &Found, known: &Known) -> Result<(Log, bool), OpenError> {
        let Some(file) = self.disk.open(LOG, false)? else {
            if known.slot.boot > 0 || known.slots == Slots::BothDamaged {
                self.damaged(LOG, "it is missing; all rows in it are lost")?;
                self.lost_numbers = true;
                let marker = Marker { rebuilt: true, ..Marker::default() };
                return Ok((self.build(None, marker)?, true));
            }
            self.recovery.created = true;
            return Ok((self.build(None, Marker::default())?, false));
        };
        if !known.slot.clean {
            // The same as for the journal. Then one pass from front to back, which spares a slow medium many small
            // reads, unless little of the file is in use.
            file.drop_cache()?;
            if known.slot.charged.saturating_mul(READ_AHEAD_SHARE) > file.len()? {
                file.read_ahead();
            }
        }
        self.make_room(&*file)?;
        let expected = expected_applied(journal, known);
        let what = match self.try_log_twice()? {
            Ok(mut log) if log.marker().applied >= expected => {
                log.release().map_err(open_error)?;
                if log.marker().rebuilt {
                    let told_before =
                        format!("an earlier start met damage in {LOG} or {JOURNAL} and was cut off");
                    self.recovery.damage.push(told_before);
                    self.lost_numbers = true;
                }
                if file.len()? > self.sizes.log {
                    log = self.shrink(log, &*file)?;
                }
                return Ok((log, false));
            }
            Ok(log) => {
                let found = log.marker().applied;
                log.abandon();
                format!("it fell back to batch {found} where batch {expected} was applied")
            }
            Err(LogError::TooNew(found)) => {
                return Err(OpenError::TooNew { file: LOG, found, newest: LOG_VERSION });
            }
            Err(LogError::Damaged(what) | LogError::Unreadable(what)) => what,
            Err(LogError::Failed(error)) => return Err(open_error(error)),
        };
        self.damaged(LOG, &what)?;
        self.lost_numbers = true;
        Ok((self.rebuild(&*file, expected, &journal.scan)?, true))
    }

    /// Brings a row log from a time of a higher cap down to the present one, or as far as its rows let it: they must be
    /// within the quota of the file's size, so that there is room to delete them.
    fn shrink(&mut self, log: Log, file: &dyn File) -> Result<Log, OpenError> {
        let needed = log.space().capacity_for_used().saturating_add(1).saturating_mul(PAGE);
        log.close().map_err(open_error)?;
        let counted = Counted::new(disk::create(self.disk, LOG)?, self.counters);
        Log::shrink(counted).map_err(open_error)?;
        if needed.max(file.len()?) > self.sizes.log {
            self.sizes.log = needed.max(file.len()?);
            self.recovery
                .notes
                .push(format!("{LOG} is above its cap: its rows need {} bytes", self.sizes.log));
        }
        let mut log = self.try_log(LOG)?.map_err(log_error)?;
        log.release().map_err(open_error)?;
        Ok(log)
    }

    /// Opens the row log; a medium that cannot be read gets a second chance.
    fn try_log_twice(&self) -> Result<Result<Log, LogError>, OpenError> {
        match self.try_log(LOG)? {
            Err(LogError::Unreadable(_)) => self.try_log(LOG),
            result => Ok(result),
        }
    }

    fn try_log(&self, name: &str) -> Result<Result<Log, LogError>, OpenError> {
        let file = Counted::new(disk::create(self.disk, name)?, self.counters);
        let len = file.file().len()?;
        if len < PAGE {
            return Ok(Err(LogError::Damaged(
                if len == 0 { "it is empty" } else { "it is cut short" }.into(),
            )));
        }
        Ok(Log::open(file, self.sizes.log))
    }

    /// Makes a row log under a temporary name, with the rows of `salvage`, and puts it in place.
    fn build(&mut self, salvage: Option<(&Salvage, &dyn File)>, marker: Marker) -> Result<Log, OpenError> {
        let fresh = format!("{LOG}.new");
        self.disk.remove(&fresh)?;
        let file = Counted::new(disk::create(self.disk, &fresh)?, self.counters);
        self.make_room(file.file())?;
        Log::create(file, self.sizes.log, marker).map_err(open_error)?;
        let mut log = self.try_log(&fresh)?.map_err(log_error)?;
        log.release().map_err(open_error)?;
        if let Some((salvage, damaged)) = salvage {
            fill(&mut log, salvage, damaged, marker).map_err(open_error)?;
            self.disk.rename(LOG, &self.set_aside_name(LOG)?)?;
        }
        self.disk.rename(&fresh, LOG)?;
        self.disk.sync_folder()?;
        Ok(log)
    }

    fn rebuild(&mut self, damaged: &dyn File, expected: BatchNumber, scan: &Scan) -> Result<Log, OpenError> {
        let mut salvage = Salvage::scan(damaged, expected)?;
        let newest = salvage.marker.unwrap_or_default();
        let applied = newest.applied.max(expected);
        let marker = Marker { applied, charged: 0, rebuilt: true, ..newest };
        // The journal brings these itself, without what was deleted since.
        salvage.retain(|key| key.batch() <= marker.applied || !scan.is_complete(key.batch()));
        let left_out = salvage.fit(self.sizes.room_bytes());
        if left_out > 0 {
            self.recovery.damage.push(format!("{left_out} pieces of rows did not fit a new {LOG}"));
        }
        let fragments = salvage.drop_fragments();
        self.highest = salvage.highest().map_or(BatchNumber(0), RowKey::batch);
        let log = self.build(Some((&salvage, damaged)), marker)?;
        let doubt = if salvage.is_in_doubt() { "; some rows may be missing or have come back" } else { "" };
        self.recovery.damage.push(format!(
            "salvaged rows of {} bytes up to batch {} from {LOG}, dropped {fragments} pieces of incomplete rows{doubt}",
            log.marker().charged,
            marker.applied
        ));
        Ok(log)
    }

    fn make_room(&mut self, file: &dyn File) -> Result<(), OpenError> {
        let usable = usable_bytes(self.disk, self.options)?;
        let (size, note) = reserve(file, self.sizes.log, usable)?;
        self.sizes.log = size;
        self.recovery.notes.extend(note);
        Ok(())
    }

    /// Puts the journal's rows over the row log.
    fn join(&mut self, found: Found, log: Log, salvaged: bool) -> Result<Files, OpenError> {
        let Found { mut journal, scan, .. } = found;
        let applied = log.marker().applied;
        let mut overlay = Overlay::default();
        let mut last = applied;
        let mut gaps = Vec::new();
        for (number, first, head) in scan.above(applied) {
            let Some((payload, end)) = journal.read_record(first, &head)? else {
                continue;
            };
            if number != last.next() {
                gaps.push((last.next(), number));
                self.salvage_pages(&journal, &scan, (last, number), &mut overlay)?;
            }
            if take_record(&payload, &mut overlay) {
                journal.continue_at(end);
            } else {
                gaps.push((number, number.next()));
            }
            last = number;
        }
        if !gaps.is_empty() {
            overlay.drop_fragments();
        }
        for (from, to) in gaps {
            let salvaged_text = if salvaged { " (its files were damaged too)" } else { "" };
            let what = format!("batches {from} to {} are damaged{salvaged_text}", to.0 - 1);
            self.damaged(JOURNAL, &what)?;
            self.journal_damaged = true;
            self.lost_numbers = true;
        }
        self.note_unfinished(&journal, &scan, last);
        Ok(Files { journal, log, overlay, last })
    }

    /// Takes whole rows out of the pages that are left of damaged batches between `after` and `before`.
    fn salvage_pages(
        &mut self,
        journal: &Journal,
        scan: &Scan,
        (after, before): (BatchNumber, BatchNumber),
        overlay: &mut Overlay,
    ) -> Result<(), OpenError> {
        let mut rows = 0u64;
        for number in scan.incomplete_above(after).range(..before) {
            let mut bytes = Vec::new();
            for page in scan.pages_of_incomplete(*number) {
                if let Some((head, payload)) = journal.read_page(page)? {
                    // Rows that lie across two pages need both.
                    let skip = if head.index == 0 { 4 } else { 0 };
                    bytes.extend_from_slice(payload.get(skip..).unwrap_or_default());
                }
            }
            rows += salvage_rows(&bytes, *number, overlay);
        }
        if rows > 0 {
            self.recovery
                .damage
                .push(format!("salvaged {rows} row pieces from damaged batches of {JOURNAL}"));
        }
        Ok(())
    }

    fn note_unfinished(&mut self, journal: &Journal, scan: &Scan, last: BatchNumber) {
        let begun = scan.incomplete_above(last).first().copied();
        let torn = scan.is_unreadable(journal.position()).then(|| last.next());
        self.recovery.unfinished = begun.or(torn);
    }

    /// Ends the recovery: numbers and boots go on above everything known, damage is applied away.
    fn settle(
        &mut self,
        files: &mut Files,
        known: &Known,
        running: Option<Running>,
    ) -> Result<(), OpenError> {
        let boot = running.map_or_else(|| known.next_boot(files.log.marker().boot), |running| running.boot);
        if let Some(Running { persisted, .. }) = running
            && files.last < persisted
        {
            // A start could take it for a write that the power cut off; here it is known to be more.
            let what = format!("batches {} to {persisted} are gone", files.last.next());
            self.damaged(JOURNAL, &what)?;
            self.highest = self.highest.max(persisted);
            self.lost_numbers = true;
        }
        if self.lost_numbers {
            let highest = files.last.max(known.essentials_last).max(self.highest);
            files.last = BatchNumber(highest.0 + NUMBERS_SKIPPED);
        }
        if self.lost_numbers || self.journal_damaged {
            files.apply_recovered(boot).map_err(open_error)?;
        }
        if self.journal_damaged {
            self.disk.rename(JOURNAL, &self.set_aside_name(JOURNAL)?)?;
            self.disk.sync_folder()?;
            let slot = Slot { boot, applied: files.last, ..Slot::default() };
            files.journal = Journal::create(self.disk, self.sizes.journal, slot, self.counters)?;
        } else if files.journal.file_bytes() != self.sizes.journal {
            files.apply(boot).map_err(open_error)?;
            files.journal.resize(self.sizes.journal)?;
        }
        let marker = files.log.marker();
        let slot = Slot { boot, applied: marker.applied, charged: marker.charged, ..Slot::default() };
        files.journal.write_slot(slot)?;
        if known.slots == Slots::OneDamaged {
            // The other slot may be two starts behind. If it were the next to remain, a boot count would come twice.
            files.journal.write_slot(slot)?;
        }
        files.journal.trim()?;
        self.recovery.boot = boot;
        self.recovery.clean =
            known.slot.clean && known.slots == Slots::Sure && self.recovery.damage.is_empty();
        self.recovery.last_batch = files.last;
        self.recovery.live_bytes = files.live_bytes();
        if !self.recovery.damage.is_empty() {
            self.recovery.essentials = essentials::read(self.disk).map(|found| found.bytes);
        }
        Ok(())
    }

    /// Notes damage, or stops at it.
    fn damaged(&mut self, file: &'static str, what: &str) -> Result<(), OpenError> {
        if self.options.on_corrupt == OnCorrupt::Stop {
            return Err(OpenError::Damaged { file, what: what.into() });
        }
        self.recovery.damage.push(format!("{file} is damaged: {what}"));
        Ok(())
    }

    /// A free name to set `name` aside under. Removes what was set aside long ago.
    fn set_aside_name(&self, name: &str) -> Result<String, OpenError> {
        let prefix = format!("{name}.damaged-");
        let names = self.disk.list()?;
        let mut numbers: Vec<u64> =
            names.iter().filter_map(|found| found.strip_prefix(&prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        let next = numbers.last().map_or(1, |last| last + 1);
        let surplus = (numbers.len() + 1).saturating_sub(SET_ASIDE_MAX);
        for number in numbers.iter().take(surplus) {
            self.disk.remove(&format!("{prefix}{number}"))?;
        }
        Ok(format!("{prefix}{next}"))
    }
}

impl Known {
    fn next_boot(&self, marker_boot: u32) -> u32 {
        let known = self.slot.boot.max(marker_boot).max(self.essentials_boot);
        match self.slots {
            Slots::Sure => known.saturating_add(1),
            Slots::OneDamaged => known.saturating_add(2),
            Slots::BothDamaged | Slots::TooNew(_) => known.saturating_add(BOOTS_SKIPPED),
        }
    }
}

/// The batch that the row log must have applied at least: what the slot says, and all before the journal's lap.
fn expected_applied(journal: &Found, known: &Known) -> BatchNumber {
    let before_lap = journal.scan.first_of_lap().map_or(0, |number| number.0.saturating_sub(1));
    known.slot.applied.max(BatchNumber(before_lap))
}

/// Adds a record's batch to the overlay. False when it does not read as a batch.
fn take_record(payload: &[u8], overlay: &mut Overlay) -> bool {
    let Some(content) = Content::read(payload) else {
        return false;
    };
    for (piece, bytes) in content.pieces() {
        overlay.insert(piece.key, Bytes::copy_from_slice(bytes));
    }
    for place in &content.deletes {
        overlay.delete(*place);
    }
    overlay.set_min_live_key(content.min_live_key);
    true
}

/// Finds rows of batch `number` in what is left of its payload.
fn salvage_rows(mut bytes: &[u8], number: BatchNumber, overlay: &mut Overlay) -> u64 {
    let mut rows = 0;
    while !bytes.is_empty() {
        match Piece::read(bytes).filter(|piece| piece.key.batch() == number) {
            Some(piece) => {
                let (row, rest) = bytes.split_at_checked(piece.len).unwrap_or((bytes, &[]));
                overlay.insert(piece.key, Bytes::copy_from_slice(row));
                rows += 1;
                bytes = rest;
            }
            None => bytes = bytes.get(1..).unwrap_or_default(),
        }
    }
    rows
}

/// Inserts what was salvaged, in bites of bounded memory.
fn fill(log: &mut Log, salvage: &Salvage, damaged: &dyn File, marker: Marker) -> Result<(), StoreError> {
    const BITE: u64 = 1 << 20;
    let lowest = marker.min_live_key.unwrap_or(RowKey(1));
    let mut bite = Overlay::default();
    salvage.for_each(damaged, lowest, |key, piece| {
        bite.insert(key, piece.into());
        if bite.charged() < BITE {
            return Ok(());
        }
        log.apply(&std::mem::take(&mut bite), marker, Manner::Fitting)
    })?;
    log.apply(&bite, marker, Manner::Fitting)
}

fn open_error(error: StoreError) -> OpenError {
    match error {
        StoreError::Full(what) => OpenError::Full(what),
        StoreError::Io(what) => OpenError::Io(what),
        other => OpenError::Io(other.to_string()),
    }
}

fn log_error(error: LogError) -> OpenError {
    match error {
        LogError::Failed(error) => open_error(error),
        LogError::Damaged(what) | LogError::Unreadable(what) => OpenError::Io(what),
        LogError::TooNew(found) => OpenError::TooNew { file: LOG, found, newest: LOG_VERSION },
    }
}
