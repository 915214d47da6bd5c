//! `backlog.redb`: chunks of rows that left the window, and a summary of each.
//!
//! Owns the file: opening it whatever state it is in, changing it in synced steps, reading rows back. The form of a chunk is
//! `chunk`'s, finding chunks in a damaged file `backlog_salvage`'s; which rows move and what a summary says is the
//! broker's. The file is made with the first chunk. It is opened without verifying it as a whole (quick-repair): every
//! part and every summary has a checksum of its own.
//!
//! Two tables, keys u64. `chunks`: number of the chunk << 16 | index of the part -> part. `summaries`: number of the chunk ->
//! envelope and summary; key 0 -> the marker. Little-endian:
//!
//! | offset | bytes | envelope | | offset | bytes | marker |
//! |---|---|---|---|---|---|---|
//! | 0 | 1 | format version, 1 | | 0 | 4 | magic `GWBM` |
//! | 1 | 1 | zero | | 4 | 1 | format version, 1 |
//! | 2 | 2 | parts of the chunk | | 5 | 3 | zero |
//! | 4 | 8 | what it takes of the quota | | 8 | 8 | chunks |
//! | 12 | 4 | CRC-32 of 0 to 11 and the summary | | 16 | 8 | highest number ever |
//! | 16 | | summary | | 24 | 8 | highest row key ever |
//! | | | | | 32 | 4 | CRC-32 of 0 to 31 |

mod raw;

pub use raw::compact;

use std::sync::Arc;

use bytes::Bytes;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::backlog_salvage::Salvage;
use super::capped::Backend;
use super::chunk::{self, BacklogChange, BacklogChanged, ChunkRead, ChunkRows, PartView, RowReader};
use super::counted::{Counted, Counters};
use super::disk::{self, Disk, PAGE};
use super::engine::{OnCorrupt, StoreOptions};
use super::error::{OpenError, StoreError};
use super::fields::{u16_at, u32_at, u64_at};
use super::log::{drop_database, guarded, redb_error};
use crate::ids::{ChunkNumber, RowKey};

/// Name of the file.
pub(super) const BACKLOG: &str = "backlog.redb";

/// Newest format that is read, and the one that is written.
const VERSION: u8 = 1;

const CHUNKS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("chunks");
const SUMMARIES: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("summaries");
const MARKER_KEY: u64 = 0;
const MARKER_MAGIC: [u8; 4] = *b"GWBM";
const ENVELOPE_BYTES: usize = 16;

/// Memory that redb may use for its cache, bytes. Chunks are read once and in order.
const CACHE_BYTES: usize = 1024 * 1024;

/// Files set aside that are kept.
const SET_ASIDE_MAX: usize = 3;

/// What a summary's envelope says, and the summary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredChunk {
    pub number: ChunkNumber,
    /// What it takes of the quota.
    pub charge: u64,
    pub summary: Vec<u8>,
}

/// A chunk ready to be written.
#[derive(Debug)]
pub(super) struct NewChunk {
    pub(super) number: ChunkNumber,
    pub(super) summary: Vec<u8>,
    /// Encoded row pieces, keys ascending.
    pub(super) pieces: Vec<Bytes>,
    /// The highest key among them.
    pub(super) last: RowKey,
}

/// The file, which may not be there yet.
#[derive(Debug)]
pub(super) struct Backlog {
    disk: Arc<dyn Disk>,
    counters: Arc<Counters>,
    /// Length of the file; 0: no chunk is taken.
    cap: u64,
    reserve_free: u64,
    database: Option<Database>,
    marker: Marker,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Marker {
    chunks: u64,
    highest: ChunkNumber,
    highest_key: RowKey,
}

/// What a start found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) chunks: Vec<StoredChunk>,
    /// One text each.
    pub(super) damage: Vec<String>,
}

enum Opened {
    Good(Database, Marker, Vec<StoredChunk>),
    TooNew(u8),
    Damaged(String),
}

impl Backlog {
    /// Opens the file if there is one. With [`OnCorrupt::Quarantine`] a damaged one is set aside, and what is whole in it
    /// is kept.
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        options: &StoreOptions,
        counters: &Arc<Counters>,
    ) -> Result<(Self, Found), OpenError> {
        let mut backlog = Self {
            disk: Arc::clone(disk),
            counters: Arc::clone(counters),
            cap: options.backlog_bytes_max / PAGE * PAGE,
            reserve_free: options.reserve_free,
            database: None,
            marker: Marker::default(),
        };
        backlog.finish_swap()?;
        let mut found = Found::default();
        if disk.open(BACKLOG, false)?.is_none() {
            return Ok((backlog, found));
        }
        let what = match backlog.try_open(BACKLOG)? {
            Opened::Good(database, marker, chunks) => {
                (backlog.database, backlog.marker, found.chunks) = (Some(database), marker, chunks);
                return Ok((backlog, found));
            }
            Opened::TooNew(version) => {
                return Err(OpenError::TooNew { file: BACKLOG, found: version, newest: VERSION });
            }
            Opened::Damaged(what) => what,
        };
        if options.on_corrupt == OnCorrupt::Stop {
            return Err(OpenError::Damaged { file: BACKLOG, what });
        }
        found.damage.push(format!("{BACKLOG} is damaged: {what}"));
        let (kept, incomplete) = backlog.rebuild()?;
        found.damage.push(format!("salvaged {kept} chunks from {BACKLOG}, {incomplete} of them not whole"));
        if let Opened::Good(database, marker, chunks) = backlog.try_open(BACKLOG)? {
            (backlog.database, backlog.marker, found.chunks) = (Some(database), marker, chunks);
        }
        Ok((backlog, found))
    }

    /// The highest number of a chunk and the highest row key that the file ever held.
    pub(super) const fn highest(&self) -> (ChunkNumber, RowKey) {
        (self.marker.highest, self.marker.highest_key)
    }

    /// What chunks may take of the file.
    pub(super) const fn quota_bytes(&self) -> u64 {
        self.cap / 4 * 3
    }

    /// Changes the file in one synced step.
    ///
    /// # Errors
    /// `Full` also when the file system would be filled past its reserve. Nothing is changed then.
    pub(super) fn change(
        &mut self,
        add: &[NewChunk],
        change: &BacklogChange,
    ) -> Result<BacklogChanged, StoreError> {
        let written = self.counters.bytes();
        let mut parts = Vec::with_capacity(add.len());
        for new in add {
            // What does not encode has more parts than there are numbers for: it stays in the window.
            parts.extend(chunk::encode(new.number, &new.summary, &new.pieces).map(|parts| (new, parts)));
        }
        let bytes: usize = parts.iter().flat_map(|(_, parts)| parts).map(Vec::len).sum();
        if !parts.is_empty() {
            let usable = self.disk.free_bytes()?.saturating_sub(self.reserve_free);
            if self.cap == 0 || usable < bytes as u64 * 2 + MARGIN_BYTES {
                return Err(StoreError::Full(format!("{BACKLOG} would fill the disk past its reserve")));
            }
        } else if self.database.is_none() && self.disk.open(BACKLOG, false)?.is_none() {
            return Ok(BacklogChanged::default());
        }
        self.make_open()?;
        let mut marker = self.marker;
        let result = guarded(|| {
            let mut transaction = self.database()?.begin_write().map_err(redb_error)?;
            // The next open after a power cut must not walk through the whole file.
            transaction.set_quick_repair(true);
            let mut added = Vec::with_capacity(parts.len());
            {
                let mut chunks = transaction.open_table(CHUNKS).map_err(redb_error)?;
                let mut summaries = transaction.open_table(SUMMARIES).map_err(redb_error)?;
                for number in &change.remove {
                    let old = summaries.remove(number.0).map_err(redb_error)?;
                    let count = old.as_ref().and_then(|old| u16_at(old.value(), 2));
                    marker.chunks -= u64::from(old.is_some()).min(marker.chunks);
                    for index in 0..count.unwrap_or(0) {
                        chunks.remove(part_key(*number, index)).map_err(redb_error)?;
                    }
                }
                for (number, summary) in &change.restate {
                    let old = summaries.get(number.0).map_err(redb_error)?.map(|old| {
                        let old = old.value();
                        (u16_at(old, 2).unwrap_or(0), u64_at(old, 4).unwrap_or(0))
                    });
                    if let Some((count, charge)) = old {
                        let value = envelope(count, charge, summary);
                        summaries.insert(number.0, value.as_slice()).map_err(redb_error)?;
                    }
                }
                for (new, parts) in &parts {
                    let mut charge = chunk::charge(ENVELOPE_BYTES + new.summary.len());
                    let mut count = 0;
                    for part in parts {
                        charge += chunk::charge(part.len());
                        chunks.insert(part_key(new.number, count), part.as_slice()).map_err(redb_error)?;
                        count += 1;
                    }
                    let value = envelope(count, charge, &new.summary);
                    let old = summaries.insert(new.number.0, value.as_slice()).map_err(redb_error)?;
                    marker.chunks += u64::from(old.is_none());
                    marker.highest = marker.highest.max(new.number);
                    marker.highest_key = marker.highest_key.max(new.last);
                    added.push((new.number, charge));
                }
                summaries.insert(MARKER_KEY, marker.to_bytes().as_slice()).map_err(redb_error)?;
            }
            transaction.commit().map_err(redb_error)?;
            Ok(added)
        });
        let added = self.noting(result)?;
        self.marker = marker;
        Ok(BacklogChanged { added, bytes_written: self.counters.bytes() - written })
    }

    /// Rows of a chunk. A chunk that is not there is damaged.
    ///
    /// # Errors
    /// When the file cannot be read now.
    pub(super) fn fetch(&mut self, read: ChunkRead) -> Result<ChunkRows, StoreError> {
        if self.database.is_none() && self.disk.open(BACKLOG, false)?.is_none() {
            return Ok(ChunkRows { damaged: true, ..ChunkRows::default() });
        }
        self.make_open()?;
        let result = guarded(|| {
            let transaction = self.database()?.begin_read().map_err(redb_error)?;
            let table = transaction.open_table(CHUNKS).map_err(redb_error)?;
            let mut reader = RowReader::new(read);
            let (mut index, mut parts) = (0, 1);
            while index < parts {
                let value = table.get(part_key(read.number, index)).map_err(redb_error)?;
                let part = value.as_ref().and_then(|value| PartView::read(value.value()));
                match part.filter(|part| part.number == read.number && part.index == index) {
                    Some(part) => {
                        parts = part.parts;
                        if !reader.take(&part) {
                            break;
                        }
                    }
                    None => {
                        reader.skip();
                        // How many there are is known from the others.
                        if index == 0 {
                            parts = parts_of(&transaction, read.number)?;
                        }
                    }
                }
                index += 1;
            }
            Ok(reader.finish())
        });
        match self.noting(result) {
            // The tree leads nowhere: what is asked for will not come back.
            Err(StoreError::Corrupted(_)) => Ok(ChunkRows { damaged: true, ..ChunkRows::default() }),
            result => result,
        }
    }

    /// Blocks that the file holds.
    pub(super) fn allocated_bytes(&self) -> u64 {
        let file = self.disk.open(BACKLOG, false).ok().flatten();
        file.and_then(|file| file.allocated_bytes().ok()).unwrap_or(0)
    }

    /// Closes the file.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        match self.database.take() {
            Some(database) => guarded(|| database.close().map_err(redb_error)),
            None => Ok(()),
        }
    }

    /// Drops the handle; the next call opens the file again.
    pub(super) fn abandon(&mut self) {
        if let Some(database) = self.database.take() {
            drop_database(database);
        }
    }

    fn noting<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.is_err() {
            self.abandon();
        }
        result
    }

    fn database(&self) -> Result<&Database, StoreError> {
        self.database.as_ref().ok_or(StoreError::NotOpen)
    }

    /// Opens the file again after an error, or makes it.
    fn make_open(&mut self) -> Result<(), StoreError> {
        if self.database.is_some() {
            return Ok(());
        }
        if let Some(file) = self.disk.open(BACKLOG, false)? {
            // Only a hint: after a failed sync the cache may show what the medium does not hold.
            drop(file.drop_cache());
            return match self.try_open(BACKLOG)? {
                Opened::Good(database, marker, _) => {
                    (self.database, self.marker) = (Some(database), marker);
                    Ok(())
                }
                Opened::TooNew(_) => Err(StoreError::Corrupted(format!("{BACKLOG} changed its version"))),
                Opened::Damaged(what) => Err(StoreError::Corrupted(what)),
            };
        }
        self.database = Some(self.create(self.marker)?);
        Ok(())
    }

    /// Makes an empty file, complete before it has its name.
    fn create(&self, marker: Marker) -> Result<Database, StoreError> {
        let fresh = format!("{BACKLOG}.new");
        self.disk.remove(&fresh)?;
        let marker = Marker { chunks: 0, ..marker };
        self.create_as(&fresh, marker)?;
        self.disk.rename(&fresh, BACKLOG)?;
        self.disk.sync_folder()?;
        match self.try_open(BACKLOG)? {
            Opened::Good(database, ..) => Ok(database),
            Opened::TooNew(_) | Opened::Damaged(_) => {
                Err(StoreError::Corrupted(format!("{BACKLOG} is damaged as it is made")))
            }
        }
    }

    fn create_as(&self, name: &str, marker: Marker) -> Result<(), StoreError> {
        let file = Counted::new(disk::create(&*self.disk, name)?, &self.counters);
        let backend = Backend::through(file.clone(), self.cap.max(PAGE * 64))?;
        guarded(|| {
            let database = builder().create_with_backend(backend).map_err(redb_error)?;
            let mut transaction = database.begin_write().map_err(redb_error)?;
            transaction.set_quick_repair(true);
            {
                drop(transaction.open_table(CHUNKS).map_err(redb_error)?);
                let mut summaries = transaction.open_table(SUMMARIES).map_err(redb_error)?;
                summaries.insert(MARKER_KEY, marker.to_bytes().as_slice()).map_err(redb_error)?;
            }
            transaction.commit().map_err(redb_error)?;
            database.close().map_err(redb_error)
        })?;
        Ok(file.sync_data()?)
    }

    /// A file under its temporary name is either complete, and then the old one was set aside, or to be made again.
    fn finish_swap(&self) -> Result<(), OpenError> {
        let fresh = format!("{BACKLOG}.new");
        let names = self.disk.list()?;
        let has = |name: &str| names.iter().any(|found| found == name);
        if !has(&fresh) {
            return Ok(());
        }
        if !has(BACKLOG) && matches!(self.try_open(&fresh)?, Opened::Good(..)) {
            self.disk.rename(&fresh, BACKLOG)?;
        } else {
            self.disk.remove(&fresh)?;
        }
        Ok(self.disk.sync_folder()?)
    }

    /// Opens a file and reads all summaries.
    fn try_open(&self, name: &str) -> Result<Opened, OpenError> {
        let file = Counted::new(disk::create(&*self.disk, name)?, &self.counters);
        if file.file().len()? < PAGE {
            return Ok(Opened::Damaged("it is cut short".into()));
        }
        // The file has its full length, of which only what was written takes room: redb never has to double it.
        let backend = Backend::held(file, self.cap)?;
        let opened = guarded(|| {
            let database = builder().create_with_backend(backend.clone()).map_err(redb_error)?;
            let read = read_summaries(&database);
            Ok((database, read))
        });
        let (database, read) = match opened {
            Ok(opened) => opened,
            Err(StoreError::Corrupted(what)) => return Ok(Opened::Damaged(what)),
            Err(error) if backend.read_failed() => return Ok(Opened::Damaged(error.to_string())),
            Err(error) => return Err(open_error(error)),
        };
        let refused = match read {
            Ok(Ok((marker, chunks))) => {
                backend.release()?;
                return Ok(Opened::Good(database, marker, chunks));
            }
            Ok(Err(version)) => Opened::TooNew(version),
            Err(StoreError::Corrupted(what)) => Opened::Damaged(what),
            Err(error) if backend.read_failed() => Opened::Damaged(error.to_string()),
            Err(error) => return Err(open_error(error)),
        };
        drop_database(database);
        Ok(refused)
    }

    /// Sets the damaged file aside and keeps the chunks that are found in it: how many, and how many of them lack a part.
    fn rebuild(&mut self) -> Result<(usize, usize), OpenError> {
        let fresh = format!("{BACKLOG}.new");
        let damaged = disk::create(&*self.disk, BACKLOG)?;
        let salvage = Salvage::scan(&*damaged)?;
        self.disk.remove(&fresh)?;
        let marker = Marker { chunks: 0, highest: salvage.highest(), highest_key: RowKey(0) };
        self.create_as(&fresh, marker).map_err(open_error)?;
        let Opened::Good(database, mut marker, _) = self.try_open(&fresh)? else {
            return Err(OpenError::Io(format!("{BACKLOG} is damaged as it is made")));
        };
        let (mut kept, mut incomplete) = (0, 0);
        for number in salvage.chunks() {
            let parts = salvage.parts(&*damaged, number);
            let first = parts.first().and_then(|(_, part)| PartView::read(part));
            let Some((summary, count)) = first.and_then(|p| Some((p.summary()?.to_vec(), p.parts))) else {
                continue;
            };
            kept += 1;
            incomplete += usize::from(parts.len() < usize::from(count));
            marker.chunks += 1;
            let keys = parts.iter().filter_map(|(_, part)| PartView::read(part)?.pieces().last());
            marker.highest_key = keys.map(|piece| piece.key).fold(marker.highest_key, RowKey::max);
            let charge = parts.iter().map(|(_, part)| chunk::charge(part.len())).sum();
            let value = envelope(count, charge, &summary);
            guarded(|| {
                let mut transaction = database.begin_write().map_err(redb_error)?;
                transaction.set_quick_repair(true);
                {
                    let mut chunks = transaction.open_table(CHUNKS).map_err(redb_error)?;
                    let mut summaries = transaction.open_table(SUMMARIES).map_err(redb_error)?;
                    for (index, part) in &parts {
                        chunks.insert(part_key(number, *index), part.as_slice()).map_err(redb_error)?;
                    }
                    summaries.insert(number.0, value.as_slice()).map_err(redb_error)?;
                    summaries.insert(MARKER_KEY, marker.to_bytes().as_slice()).map_err(redb_error)?;
                }
                transaction.commit().map_err(redb_error)
            })
            .map_err(open_error)?;
        }
        guarded(|| database.close().map_err(redb_error)).map_err(open_error)?;
        self.disk.rename(BACKLOG, &self.set_aside_name()?)?;
        self.disk.rename(&fresh, BACKLOG)?;
        self.disk.sync_folder()?;
        Ok((kept, incomplete))
    }

    /// A free name to set the file aside under. Removes what was set aside long ago.
    fn set_aside_name(&self) -> Result<String, OpenError> {
        let prefix = format!("{BACKLOG}.damaged-");
        let names = self.disk.list()?;
        let mut numbers: Vec<u64> =
            names.iter().filter_map(|found| found.strip_prefix(&prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        let surplus = (numbers.len() + 1).saturating_sub(SET_ASIDE_MAX);
        for number in numbers.iter().take(surplus) {
            self.disk.remove(&format!("{prefix}{number}"))?;
        }
        Ok(format!("{prefix}{}", numbers.last().map_or(1, |last| last + 1)))
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Room that a commit takes beside its chunks.
const MARGIN_BYTES: u64 = 256 * 1024;

type Summaries = Result<(Marker, Vec<StoredChunk>), u8>;

/// The marker and every summary. The inner error is a version that is too new.
fn read_summaries(database: &Database) -> Result<Summaries, StoreError> {
    let transaction = database.begin_read().map_err(redb_error)?;
    let missing = |what: &str| StoreError::Corrupted(format!("it has no {what}"));
    let table = transaction.open_table(SUMMARIES).map_err(|error| match error {
        redb::TableError::Storage(error) => redb_error(error),
        _ => missing("summaries"),
    })?;
    let marker = table.get(MARKER_KEY).map_err(redb_error)?.and_then(|value| Marker::read(value.value()));
    let marker = match marker.ok_or_else(|| missing("valid marker"))? {
        Ok(marker) => marker,
        Err(version) => return Ok(Err(version)),
    };
    let parts = transaction.open_table(CHUNKS).map_err(|_| missing("chunks"))?;
    let mut chunks = Vec::new();
    for entry in table.range(MARKER_KEY + 1..).map_err(redb_error)? {
        let (key, value) = entry.map_err(redb_error)?;
        let number = ChunkNumber(key.value());
        let mut summary = read_envelope(number, value.value());
        if summary.is_none() {
            // The chunk has the one that it was made with.
            let part = parts.get(part_key(number, 0)).map_err(redb_error)?;
            let part = part.as_ref().and_then(|part| PartView::read(part.value()));
            summary = part.and_then(|part| {
                let charge = chunk::CHUNK_BYTES as u64 * u64::from(part.parts);
                Some(StoredChunk { number, charge, summary: part.summary()?.to_vec() })
            });
        }
        chunks.push(summary.ok_or_else(|| missing("valid summary of a chunk"))?);
    }
    if chunks.len() as u64 != marker.chunks {
        let what = format!("it has {} summaries where {} should be", chunks.len(), marker.chunks);
        return Err(StoreError::Corrupted(what));
    }
    Ok(Ok((marker, chunks)))
}

fn parts_of(transaction: &redb::ReadTransaction, number: ChunkNumber) -> Result<u16, StoreError> {
    let table = transaction.open_table(SUMMARIES).map_err(redb_error)?;
    let value = table.get(number.0).map_err(redb_error)?;
    Ok(value.and_then(|value| u16_at(value.value(), 2)).unwrap_or(1))
}

pub(super) const fn part_key(number: ChunkNumber, index: u16) -> u64 {
    number.0 << 16 | index as u64
}

fn envelope(parts: u16, charge: u64, summary: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(ENVELOPE_BYTES + summary.len());
    value.extend_from_slice(&[VERSION, 0]);
    value.extend_from_slice(&parts.to_le_bytes());
    value.extend_from_slice(&charge.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&value);
    hasher.update(summary);
    value.extend_from_slice(&hasher.finalize().to_le_bytes());
    value.extend_from_slice(summary);
    value
}

fn read_envelope(number: ChunkNumber, value: &[u8]) -> Option<StoredChunk> {
    let summary = value.get(ENVELOPE_BYTES..)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(value.get(..12)?);
    hasher.update(summary);
    if *value.first()? != VERSION || u32_at(value, 12)? != hasher.finalize() {
        return None;
    }
    Some(StoredChunk { number, charge: u64_at(value, 4)?, summary: summary.to_vec() })
}

impl Marker {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(36);
        bytes.extend_from_slice(&MARKER_MAGIC);
        bytes.extend_from_slice(&[VERSION, 0, 0, 0]);
        for value in [self.chunks, self.highest.0, self.highest_key.0] {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a marker; the inner error is a version that is too new.
    fn read(bytes: &[u8]) -> Option<Result<Self, u8>> {
        if bytes.first_chunk::<4>() != Some(&MARKER_MAGIC)
            || u32_at(bytes, 32)? != crc32fast::hash(bytes.get(..32)?)
        {
            return None;
        }
        let version = *bytes.get(4)?;
        if version > VERSION {
            return Some(Err(version));
        }
        Some(Ok(Self {
            chunks: u64_at(bytes, 8)?,
            highest: ChunkNumber(u64_at(bytes, 16)?),
            highest_key: RowKey(u64_at(bytes, 24)?),
        }))
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn open_error(error: StoreError) -> OpenError {
    match error {
        StoreError::Full(what) => OpenError::Full(what),
        StoreError::Io(what) => OpenError::Io(what),
        other => OpenError::Io(other.to_string()),
    }
}
