//! The series store: readings in, chunks on flash, and the open tail of each series in memory between.
//!
//! A reading is in the tail until a flush: then it is merged into the last chunk of its series, in one transaction
//! with the highest row key of the log that is stored here, so that a second application after a power cut is known.
//! Owns flushes, retention, deletion, correction of estimated times, and what becomes of a damaged file. One owner;
//! `query` reads beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::backend::Counters;
use super::change::{Change, Outcome};
use super::chunk::Row;
use super::clock::{EstimatedBy, Start, Starts};
use super::copy::Copying;
use super::database::{self, FILE, Marker, Rows, SeriesFile};
use super::keys;
use super::registry::{Extent, Origin, Registry, Series, SeriesId, read_series};
use super::room;
use crate::ids::RowKey;
use crate::store::{Disk, StoreError};

/// Least cap of the file. Less would not hold what comes between two flushes beside what they replace.
pub(super) const FILE_BYTES_MIN: u64 = 16 << 20;

/// Damaged files that are kept beside the one in use.
const SET_ASIDE_MAX: usize = 3;

/// What holds for one collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Milliseconds that a reading is kept; `None` = for ever.
    pub retention_ms: Option<i64>,
    /// Bytes of chunks.
    pub bytes_max: u64,
    pub series_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self { retention_ms: None, bytes_max: u64::MAX, series_max: 2000 }
    }
}

/// How the store is opened.
#[derive(Clone, Debug)]
pub struct SeriesOptions {
    /// Cap of the file, bytes.
    pub bytes_max: u64,
    pub reserve_free: u64,
    /// Set a damaged file aside and begin anew, rather than refuse to open.
    pub quarantine: bool,
    pub collections: BTreeMap<Box<str>, Rules>,
    pub start: Start,
    pub seed: u64,
}

/// What opening found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// For each collection the highest row key of the log that is stored here.
    pub watermarks: BTreeMap<Box<str>, RowKey>,
    /// What was damaged and set aside.
    pub damage: Vec<String>,
}

/// A reading that comes in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    pub collection: Arc<str>,
    /// Counts the collection's readings since the start.
    pub sequence: u64,
    /// Milliseconds since 1970.
    pub time: i64,
    /// The clock was not trusted.
    pub estimated: Option<EstimatedBy>,
    pub origin: Origin,
    pub payload: Bytes,
}

/// How far a collection is to be flushed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlushTo {
    pub collection: Arc<str>,
    /// The last sequence.
    pub through: u64,
    /// The highest row key up to there; 0 leaves the kept one.
    pub row_key: RowKey,
}

/// Figures since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SeriesCounters {
    pub flushes: u64,
    pub readings: u64,
    /// Readings that went to a shared series: the collection has too many, or the topic is long.
    pub shared: u64,
    pub chunks_damaged: u64,
    /// Readings that age or the bytes of a collection ended.
    pub expired: u64,
    pub bytes_written: u64,
    pub syncs: u64,
}

/// A reading in the tail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pending {
    pub sequence: u64,
    /// The start whose estimate its time is.
    pub estimated: Option<u32>,
    pub row: Row,
}

/// The open store.
#[derive(Debug)]
pub struct SeriesStore {
    disk: Arc<dyn Disk>,
    options: SeriesOptions,
    /// The next doubling of the file is beyond its cap: it is to have all that the cap allows.
    whole: bool,
    /// `None` after a failure, until [`SeriesStore::reopen`] succeeds.
    file: Option<Arc<SeriesFile>>,
    registry: Registry,
    /// Series whose record is not on flash.
    unwritten: BTreeSet<SeriesId>,
    tails: BTreeMap<SeriesId, Vec<Pending>>,
    flush: u64,
    /// A flush that failed, by its number: it may have taken effect all the same.
    unsure: Option<(u64, Vec<FlushTo>)>,
    /// The number of a transaction that failed: it may have taken effect, too.
    failed: Option<u64>,
    starts: Starts,
    /// Starts whose records are of no use any more.
    useless_starts: Vec<u32>,
    disk_counters: Arc<Counters>,
    counters: SeriesCounters,
    /// By collection, readings that came since the start and went to its shared series.
    shared: BTreeMap<Box<str>, u64>,
    damage: Vec<String>,
    /// A copy that is under way.
    pub(super) copying: Option<Copying>,
}

impl SeriesStore {
    /// Opens the store in `disk`'s folder, or makes an empty one.
    ///
    /// # Errors
    /// A newer format, a damaged file that is not to be set aside, or a failing disk.
    pub fn open(disk: Arc<dyn Disk>, options: SeriesOptions) -> Result<(Self, Found), StoreError> {
        let mut store = Self {
            registry: Registry::new(options.seed),
            starts: Starts::new(options.start),
            useless_starts: Vec::new(),
            disk,
            options,
            whole: false,
            file: None,
            unwritten: BTreeSet::new(),
            tails: BTreeMap::new(),
            flush: 0,
            unsure: None,
            failed: None,
            disk_counters: Arc::new(Counters::default()),
            counters: SeriesCounters::default(),
            shared: BTreeMap::new(),
            damage: Vec::new(),
            copying: None,
        };
        let watermarks = store.open_file()?;
        store.record_start()?;
        let damage = store.take_damage();
        Ok((store, Found { watermarks, damage }))
    }

    /// Takes a reading into its series' tail. Sequences of one collection ascend.
    pub fn push(&mut self, reading: Reading) {
        let rules = self.rules(&reading.collection);
        let (id, new) = self.registry.of(&reading.collection, &reading.origin, rules.series_max);
        if new {
            self.unwritten.insert(id);
        }
        let is_shared = self.registry.get(id).is_some_and(|series| series.origin.is_none());
        let identity = is_shared.then(|| {
            self.counters.shared += 1;
            *self.shared.entry(Box::from(&*reading.collection)).or_default() += 1;
            let mut out = Vec::new();
            reading.origin.put(&mut out);
            Bytes::from(out)
        });
        let estimated = reading.estimated.map(|by| self.starts.number_of(by));
        let (time, estimated) = match estimated.and_then(|number| self.starts.shift(number)) {
            Some(shift) => (reading.time.saturating_add(shift), None),
            None => (reading.time, estimated),
        };
        let row = Row { time, payload: reading.payload, identity };
        self.tails.entry(id).or_default().push(Pending { sequence: reading.sequence, estimated, row });
    }

    /// Readings of a collection before `sequence` are lost to a bound: they are not stored any more.
    pub fn forget(&mut self, collection: &str, sequence: u64) {
        let registry = &self.registry;
        self.tails.retain(|id, tail| {
            if tail.first().is_some_and(|pending| pending.sequence < sequence)
                && registry.get(*id).is_some_and(|series| &*series.collection == collection)
            {
                tail.retain(|pending| pending.sequence >= sequence);
            }
            !tail.is_empty()
        });
    }

    /// Readings in memory.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.tails.values().map(Vec::len).sum()
    }

    /// Readings of one collection in memory.
    #[must_use]
    pub fn pending_of(&self, collection: &str) -> usize {
        let of =
            |id: &SeriesId| self.registry.get(*id).is_some_and(|series| &*series.collection == collection);
        self.tails.iter().filter(|(id, _)| of(id)).map(|(_, tail)| tail.len()).sum()
    }

    /// Readings of one collection that went to its shared series since the start, because it has too many.
    #[must_use]
    pub fn shared_of(&self, collection: &str) -> u64 {
        self.shared.get(collection).copied().unwrap_or(0)
    }

    /// Stores the readings up to each collection's `through`, synced; then keeps the bounds. `now_ms` is the wall
    /// clock, `None` when it is not trusted: nothing is too old then.
    ///
    /// # Errors
    /// See [`StoreError`]; nothing of it is stored then. What was stored before can be read all the same, unless the
    /// file cannot even be opened again.
    pub fn flush(&mut self, now_ms: Option<i64>, parts: &[FlushTo]) -> Result<(), StoreError> {
        if self.file.is_none() {
            self.reopen()?;
        }
        room::flush(self, now_ms, parts)
    }

    /// One try of a flush that stores a 2^-`halvings`th part of the readings.
    pub(super) fn try_flush(
        &mut self,
        now_ms: Option<i64>,
        parts: &[FlushTo],
        halvings: u32,
    ) -> Result<(), StoreError> {
        let number = self.flush + 1;
        self.unsure = Some((number, parts.to_vec()));
        let stored = self.transact(|change, rows| {
            change.store_tails(rows, parts, halvings)?;
            change.keep_bounds(rows, now_ms)
        });
        if let Err(error) = stored {
            // What failed may have come after the commit.
            return if self.reopen().is_ok() && number <= self.flush { Ok(()) } else { Err(error) };
        }
        self.unsure = None;
        self.forget_stored(parts);
        Ok(())
    }

    fn forget_stored(&mut self, parts: &[FlushTo]) {
        for part in parts {
            self.forget(&part.collection, part.through.saturating_add(1));
        }
        self.drop_empty();
    }

    /// Removes what is too old at `now_ms` of the wall clock, which is trusted. For collections that get nothing any
    /// more: a flush does the same.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn trim(&mut self, now_ms: i64) -> Result<(), StoreError> {
        let mut expired = None;
        while self.has_old(now_ms) && expired != Some(self.counters.expired) {
            expired = Some(self.counters.expired);
            self.transact(|change, rows| change.keep_bounds(rows, Some(now_ms)))?;
        }
        self.drop_empty();
        Ok(())
    }

    fn has_old(&self, now_ms: i64) -> bool {
        self.registry.iter().any(|(_, series)| {
            let kept = self.rules(&series.collection).retention_ms;
            series.extent.chunks > 0
                && kept.is_some_and(|kept| series.extent.first < now_ms.saturating_sub(kept))
        })
    }

    /// Removes readings of a collection whose origin `wanted` accepts, with times in `span`. Answers how many.
    /// What is in the tail and not flushed yet is removed from it only.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn delete(
        &mut self,
        collection: &str,
        wanted: &dyn Fn(&Origin) -> bool,
        span: Range<i64>,
    ) -> Result<u64, StoreError> {
        let mut deleted = self.transact(|change, rows| change.delete(rows, collection, wanted, &span))?;
        let registry = &self.registry;
        for (id, tail) in &mut self.tails {
            let Some(series) = registry.get(*id).filter(|series| &*series.collection == collection) else {
                continue;
            };
            let before = tail.len();
            tail.retain(|pending| {
                !span.contains(&pending.row.time) || !accepts(series, pending.row.identity.as_deref(), wanted)
            });
            deleted += (before - tail.len()) as u64;
        }
        self.drop_empty();
        Ok(deleted)
    }

    /// The wall clock is trusted from now on, and `ahead_ms` ahead of the gateway's monotonic clock: the estimates that
    /// were made since the system booted are corrected.
    ///
    /// # Errors
    /// See [`StoreError`]; the rest is corrected by another call.
    pub fn correct_times(&mut self, ahead_ms: i64) -> Result<(), StoreError> {
        self.starts.trust(ahead_ms);
        for pending in self.tails.values_mut().flatten() {
            if let Some(shift) = pending.estimated.and_then(|number| self.starts.shift(number)) {
                pending.row.time = pending.row.time.saturating_add(shift);
                pending.estimated = None;
            }
        }
        for (number, shift) in self.starts.shifts() {
            while self.has_estimates(number)? {
                self.transact(|change, rows| change.correct(rows, number, shift))?;
            }
        }
        self.forget_starts()
    }

    fn has_estimates(&self, start: u32) -> Result<bool, StoreError> {
        let file = self.file.as_ref().ok_or(StoreError::NotOpen)?;
        let mut has = false;
        file.read(|page| {
            page.range(&keys::estimated(start, &[]), &keys::estimated(start, &[u8::MAX]), |_, _| {
                has = true;
                Ok(false)
            })
        })?;
        Ok(has)
    }

    /// Removes the records of starts that are of no use any more.
    fn forget_starts(&mut self) -> Result<(), StoreError> {
        if self.useless_starts.is_empty() {
            return Ok(());
        }
        let useless = std::mem::take(&mut self.useless_starts);
        self.transact(|_, rows| {
            useless.iter().try_for_each(|number| database::remove(rows, &keys::start(*number)))
        })
    }

    /// Keeps how this start's estimates are made, so that a later one can correct them.
    fn record_start(&mut self) -> Result<(), StoreError> {
        self.forget_starts()?;
        let Some((number, record)) = self.starts.record() else { return Ok(()) };
        self.transact(|_, rows| database::put(rows, &keys::start(number), &record))
    }

    /// Opens the file again after an error. What is in memory stays.
    ///
    /// # Errors
    /// See [`StoreError`]. Try again later.
    pub fn reopen(&mut self) -> Result<(), StoreError> {
        self.abandon();
        let known = self.damage.len();
        self.open_file()?;
        let took_effect = self.failed.take().is_some_and(|number| number <= self.flush);
        if took_effect || self.damage.len() > known {
            // It does not know what was changed.
            self.copying = None;
        }
        if self.damage.len() > known {
            // The file is a new one and knows no series.
            self.unwritten = self.tails.keys().copied().collect();
            self.record_start()?;
            self.unsure = None;
        }
        if let Some((number, parts)) = self.unsure.take()
            && number <= self.flush
        {
            // What failed came after the commit: its readings are stored, and must not be once more.
            self.forget_stored(&parts);
        }
        Ok(())
    }

    /// False after a failure, until [`SeriesStore::reopen`] succeeds.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// What was found damaged since this was last asked.
    pub fn take_damage(&mut self) -> Vec<String> {
        std::mem::take(&mut self.damage)
    }

    /// A later flush of the log has other row keys: what is kept of the old ones means nothing any more.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn forget_watermarks(&mut self) -> Result<(), StoreError> {
        let names: Vec<Box<str>> = self.registry.collections().map(Into::into).collect();
        self.transact(|_, rows| {
            names.iter().try_for_each(|name| database::remove(rows, &keys::watermark(name)))
        })
    }

    /// Closes the file. What was not flushed is not in it.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn close(mut self) -> Result<(), StoreError> {
        match self.file.take().map(Arc::try_unwrap) {
            Some(Ok(file)) => file.close(),
            // A query still reads: the file closes with it.
            Some(Err(_)) | None => Ok(()),
        }
    }

    /// Figures since the start.
    #[must_use]
    pub fn counters(&self) -> SeriesCounters {
        SeriesCounters {
            bytes_written: self.disk_counters.written.load(Ordering::Relaxed),
            syncs: self.disk_counters.syncs.load(Ordering::Relaxed),
            ..self.counters
        }
    }

    /// All series.
    pub fn series(&self) -> impl Iterator<Item = (SeriesId, &Series)> {
        self.registry.iter()
    }

    /// Names of the collections: those that are configured, and those that hold something.
    #[must_use]
    pub fn collections(&self) -> BTreeSet<Box<str>> {
        let known = self.registry.collections().map(Into::into);
        known.chain(self.options.collections.keys().cloned()).collect()
    }

    pub(super) fn tail(&self, id: SeriesId) -> &[Pending] {
        self.tails.get(&id).map(Vec::as_slice).unwrap_or_default()
    }

    /// Bytes of payloads that a flush of `parts` would store.
    pub(super) fn due_bytes(&self, parts: &[FlushTo]) -> u64 {
        let of = |id: &SeriesId| self.registry.get(*id).map(|series| &*series.collection);
        let due = parts.iter().flat_map(|part| {
            let tails = self.tails.iter().filter(move |(id, _)| of(id) == Some(&*part.collection));
            tails.flat_map(|(_, tail)| tail.iter().take_while(|pending| pending.sequence <= part.through))
        });
        due.map(|pending| pending.row.payload.len() as u64).sum()
    }

    /// True when the last change failed because the file has reached its cap.
    pub(super) fn is_capped(&self) -> bool {
        self.disk_counters.capped.load(Ordering::Relaxed)
    }

    pub(super) const fn file_bytes_max(&self) -> u64 {
        self.options.bytes_max
    }

    pub(super) const fn flush_number(&self) -> u64 {
        self.flush
    }

    pub(super) fn file(&self) -> Option<Arc<SeriesFile>> {
        self.file.clone()
    }

    /// How long and how much of each collection is kept, from now on.
    pub fn set_rules(&mut self, collections: BTreeMap<Box<str>, Rules>) {
        self.options.collections = collections;
    }

    fn rules(&self, collection: &str) -> Rules {
        self.options.collections.get(collection).copied().unwrap_or_default()
    }

    /// Changes the file in one transaction; memory follows when it is synced.
    pub(super) fn transact<T>(
        &mut self,
        act: impl FnOnce(&mut Change<'_>, &mut Rows<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let file = self.file.clone().ok_or(StoreError::NotOpen)?;
        let number = self.flush + 1;
        self.disk_counters.capped.store(false, Ordering::Relaxed);
        let mut change = Change {
            registry: &self.registry,
            tails: &self.tails,
            unwritten: &self.unwritten,
            options: &self.options,
            outcome: Outcome { counters: self.counters, ..Outcome::default() },
        };
        let written = file.write(number, self.copying.is_some(), |rows| {
            let result = act(&mut change, rows)?;
            change.finish(rows)?;
            Ok(result)
        });
        let Outcome { extents, removed, counters } = change.outcome;
        drop(file);
        let (written, touched) = match written {
            Ok(written) => written,
            Err(error) => {
                self.failed = Some(number);
                self.whole |= self.disk_counters.capped.load(Ordering::Relaxed);
                self.abandon();
                return Err(error);
            }
        };
        self.copying.take_if(|copying| !copying.take_touched(touched));
        self.flush = number;
        self.counters = SeriesCounters { flushes: counters.flushes + 1, ..counters };
        for (id, extent) in extents {
            self.unwritten.remove(&id);
            if let Some(known) = self.registry.extent_mut(id) {
                *known = extent;
            }
        }
        self.unwritten.extend(removed.into_iter().filter(|id| self.tails.contains_key(id)));
        Ok(written)
    }

    /// Forgets series that hold nothing at all.
    fn drop_empty(&mut self) {
        self.tails.retain(|_, tail| !tail.is_empty());
        let is_empty =
            |(id, series): &(SeriesId, &Series)| series.extent.chunks == 0 && !self.tails.contains_key(id);
        let empty: Vec<SeriesId> = self.registry.iter().filter(is_empty).map(|(id, _)| id).collect();
        for id in empty {
            self.registry.remove(id);
            self.unwritten.remove(&id);
        }
    }

    fn abandon(&mut self) {
        if let Some(file) = self.file.take().and_then(Arc::into_inner) {
            file.abandon();
        }
    }

    /// Opens the file and reads what is known of it; a damaged one is set aside, and an empty one made.
    fn open_file(&mut self) -> Result<BTreeMap<Box<str>, RowKey>, StoreError> {
        match self.read_file() {
            Err(StoreError::Corrupted(what)) if self.options.quarantine => {
                self.abandon();
                let aside = self.set_aside_name()?;
                self.disk.rename(FILE, &aside)?;
                self.disk.sync_folder()?;
                self.damage.push(format!("{FILE} is damaged ({what}); it was set aside as {aside}"));
                self.flush = 0;
                self.read_file()
            }
            result => result,
        }
    }

    fn read_file(&mut self) -> Result<BTreeMap<Box<str>, RowKey>, StoreError> {
        let cap = self.options.bytes_max.max(FILE_BYTES_MIN);
        let file =
            SeriesFile::open(&self.disk, (cap, self.whole), self.options.reserve_free, &self.disk_counters)?;
        let mut found = Vec::new();
        let mut extents = BTreeMap::new();
        let mut watermarks = BTreeMap::new();
        let mut starts = Vec::new();
        match file.marker()? {
            Marker::Missing => self.flush = 0,
            Marker::Flush(number) => self.flush = number,
            Marker::TooNew(version) => {
                return Err(StoreError::Io(format!("{FILE} has format {version}, which is too new")));
            }
        }
        file.read(|page| {
            page.range(&[keys::START], &keys::after(keys::START), |key, value| {
                let number = key.get(1..).and_then(|number| number.try_into().ok()).map(u32::from_be_bytes);
                starts.extend(number.map(|number| (number, value.to_vec())));
                Ok(true)
            })?;
            page.range(&[keys::WATERMARK], &keys::after(keys::EXTENT), |key, value| {
                let Some((kind, rest)) = key.split_first() else { return Ok(true) };
                let id = rest.try_into().map(|id| SeriesId(u32::from_be_bytes(id)));
                match (*kind, id) {
                    (keys::WATERMARK, _) => {
                        let key = value.try_into().map_or(0, u64::from_le_bytes);
                        watermarks.insert(String::from_utf8_lossy(rest).into(), RowKey(key));
                    }
                    (keys::SERIES, Ok(id)) => found.extend(read_series(value).map(|(c, o)| (id, c, o))),
                    (keys::EXTENT, Ok(id)) => extents.extend(Extent::read(value).map(|extent| (id, extent))),
                    _ => {}
                }
                Ok(true)
            })
        })?;
        if self.tails.is_empty() {
            // At the start; later what memory knows is newer.
            for (id, collection, origin) in found {
                self.registry.add(id, collection, origin);
            }
        }
        for (id, _) in self.registry.iter().map(|(id, series)| (id, series.extent)).collect::<Vec<_>>() {
            let kept = extents.get(&id).copied();
            if let Some(extent) = self.registry.extent_mut(id) {
                *extent = kept.unwrap_or_default();
            }
        }
        for (number, record) in starts {
            if self.starts.found(number, &record) {
                self.useless_starts.push(number);
            }
        }
        self.file = Some(Arc::new(file));
        Ok(watermarks)
    }

    /// A free name to set the file aside under. Removes what was set aside long ago.
    fn set_aside_name(&self) -> Result<String, StoreError> {
        let names = self.disk.list()?;
        let prefix = format!("{FILE}.damaged-");
        let mut numbers: Vec<u64> =
            names.iter().filter_map(|found| found.strip_prefix(&prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        let next = numbers.last().map_or(1, |last| last.saturating_add(1));
        let surplus = (numbers.len() + 1).saturating_sub(SET_ASIDE_MAX);
        for number in numbers.iter().take(surplus) {
            self.disk.remove(&format!("{prefix}{number}"))?;
        }
        Ok(format!("{prefix}{next}"))
    }
}

/// Whether `wanted` accepts where a reading came from: its series, or its own identity in a shared one.
pub(super) fn accepts(series: &Series, identity: Option<&[u8]>, wanted: &dyn Fn(&Origin) -> bool) -> bool {
    match (&series.origin, identity) {
        (Some(origin), _) => wanted(origin),
        (None, Some(identity)) => Origin::read(identity).is_some_and(|origin| wanted(&origin)),
        (None, None) => false,
    }
}
