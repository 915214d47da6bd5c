//! Copies everything in `series.redb`, in bites, while readings go on; and makes a file of a copy.
//!
//! Nothing is pinned. Keys that were copied and are touched afterwards are told again: the entries, applied in order, are
//! the file as it was at the copy's end. What is in the tails only is not in it: the row log has it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::backend::Counters;
use super::chunk;
use super::database::{FILE, Marker, SeriesFile};
use super::keys;
use super::registry::{Extent, SeriesId, read_series};
use super::store::SeriesStore;
use crate::store::{Disk, StoreError};

/// A key with its value; without one it was removed since it was copied.
pub type SeriesEntry = (Vec<u8>, Option<Vec<u8>>);

/// A bite of a copy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SeriesBite {
    pub entries: Vec<SeriesEntry>,
    /// Nothing is left now; what changes later does.
    pub caught_up: bool,
    /// Keys of entries that do not verify and are left out.
    pub damaged: Vec<Vec<u8>>,
}

/// How far a copy is.
#[derive(Debug, Default)]
pub(super) struct Copying {
    /// The next key.
    from: Vec<u8>,
    at_end: bool,
    /// Keys below that were touched since.
    touched: BTreeSet<Vec<u8>>,
}

/// Touched keys that wait to be told; more of them end the copy.
const TOUCHED_MAX: usize = 1 << 18;

impl Copying {
    /// True when the copy can go on after these keys were put or removed.
    pub(super) fn take_touched(&mut self, keys: Vec<Vec<u8>>) -> bool {
        self.touched.extend(keys.into_iter().filter(|key| self.at_end || *key < self.from));
        self.touched.len() <= TOUCHED_MAX
    }

    fn next(&mut self, file: &SeriesFile, bytes_max: usize) -> Result<SeriesBite, StoreError> {
        let mut bite = SeriesBite::default();
        let mut bytes = 0;
        file.read(|page| {
            if !self.at_end {
                self.at_end = true;
                let from = std::mem::take(&mut self.from);
                page.range(&from, &[u8::MAX], |key, value| {
                    if bytes >= bytes_max {
                        (self.from, self.at_end) = (key.to_vec(), false);
                        return Ok(false);
                    }
                    bytes += key.len() + value.len();
                    bite.entries.push((key.to_vec(), Some(value.to_vec())));
                    Ok(true)
                })?;
            }
            while bytes < bytes_max
                && let Some(key) = self.touched.pop_first()
            {
                let value = page.get(&key)?;
                bytes += key.len() + value.as_ref().map_or(0, Vec::len);
                bite.entries.push((key, value));
            }
            Ok(())
        })?;
        bite.damaged.extend(bite.entries.extract_if(.., |entry| !verifies(entry)).map(|(key, _)| key));
        bite.caught_up = self.at_end && self.touched.is_empty();
        Ok(bite)
    }
}

impl SeriesStore {
    /// Begins a copy, in place of one that was under way.
    pub fn begin_copy(&mut self) {
        self.copying = Some(Copying::default());
    }

    /// Ends a copy.
    pub fn end_copy(&mut self) {
        self.copying = None;
    }

    /// The next bite of the copy, at least one entry beyond `bytes_max` unless there is nothing left.
    ///
    /// # Errors
    /// [`StoreError::NotOpen`] when no copy is under way, or not any more; else see [`StoreError`].
    pub fn copy_next(&mut self, bytes_max: usize) -> Result<SeriesBite, StoreError> {
        let mut copying = self.copying.take().ok_or(StoreError::NotOpen)?;
        let file = self.file().ok_or(StoreError::NotOpen)?;
        let bite = copying.next(&file, bytes_max)?;
        self.copying = Some(copying);
        Ok(bite)
    }
}

/// True when an entry is what its key says: a chunk that reads as one, a name, an extent.
#[must_use]
pub fn verifies((key, value): &SeriesEntry) -> bool {
    let Some(value) = value else { return true };
    match key.first() {
        Some(&keys::CHUNK) => keys::read_chunk(key).is_some() && chunk::summary(value).is_some(),
        Some(&keys::SERIES) => key.len() == 5 && read_series(value).is_some(),
        Some(&keys::EXTENT) => key.len() == 5 && Extent::read(value).is_some(),
        Some(&keys::WATERMARK) => value.len() == 8,
        Some(kind) => *kind <= keys::START,
        None => false,
    }
}

/// Hands over everything in the `series.redb` of a gateway that is stopped, in bites of about `bytes_max` bytes; nothing
/// when there is no such file. Answers the keys of entries that do not verify and were left out.
///
/// # Errors
/// See [`StoreError`], or what `take` answers.
pub fn for_each<E: From<StoreError>>(
    disk: &Arc<dyn Disk>,
    bytes_max: usize,
    take: &mut dyn FnMut(Vec<SeriesEntry>) -> Result<(), E>,
) -> Result<Vec<Vec<u8>>, E> {
    let mut damaged = Vec::new();
    if disk.open(FILE, false).map_err(StoreError::from)?.is_none() {
        return Ok(damaged);
    }
    let file = SeriesFile::open(disk, (u64::MAX, false), 0, &Arc::new(Counters::default()))?;
    if let Marker::TooNew(version) = file.marker()? {
        return Err(StoreError::Io(format!("{FILE} has format {version}, which is too new")).into());
    }
    let mut copying = Copying::default();
    while !copying.at_end {
        let bite = copying.next(&file, bytes_max)?;
        damaged.extend(bite.damaged);
        take(bite.entries)?;
    }
    Ok(damaged)
}

/// Reads everything in the `series.redb` of a gateway that is stopped. Answers how many chunks are whole, and what is
/// damaged, one text each.
///
/// # Errors
/// See [`StoreError`]; [`StoreError::Corrupted`] when the file as a whole cannot be read.
pub fn verify(disk: &Arc<dyn Disk>, bytes_max: usize) -> Result<(u64, Vec<String>), StoreError> {
    let (mut chunks, mut of_series, mut expected) = (0, BTreeMap::new(), BTreeMap::new());
    let damaged = for_each::<StoreError>(disk, bytes_max, &mut |entries| {
        for (key, value) in &entries {
            if let Some((id, ..)) = keys::read_chunk(key) {
                chunks += 1;
                *of_series.entry(id).or_insert(0u64) += 1;
            }
            if let (Some((&keys::EXTENT, id)), Some(value)) = (key.split_first(), value) {
                let id = id.try_into().map(|id| SeriesId(u32::from_be_bytes(id)));
                expected.extend(id.ok().zip(Extent::read(value)));
            }
        }
        Ok(())
    })?;
    let mut damage: Vec<String> = damaged.iter().map(|key| place(key)).collect();
    for key in damaged {
        if let Some((id, ..)) = keys::read_chunk(&key) {
            *of_series.entry(id).or_insert(0) += 1;
        }
    }
    for (id, extent) in expected {
        let found = of_series.get(&id).copied().unwrap_or(0);
        if found != extent.chunks {
            damage.push(format!(
                "{FILE}: series {} has {found} chunks where {} should be",
                id.0, extent.chunks
            ));
        }
    }
    Ok((chunks, damage))
}

fn place(key: &[u8]) -> String {
    match (keys::read_chunk(key), key) {
        (Some((id, start, _)), _) => {
            let start = crate::time::calendar::show(start);
            format!("{FILE}: a chunk of series {} that begins at {start} does not verify", id.0)
        }
        (None, [kind, rest @ ..]) => format!("{FILE}: entry {rest:02x?} of kind {kind} does not verify"),
        (None, []) => format!("{FILE}: an entry without a key"),
    }
}

/// Gives back what `series.redb` takes and does not need, while the gateway is stopped.
///
/// # Errors
/// See [`StoreError`]. Whatever fails, the file holds what it held.
pub fn compact(disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
    if disk.open(FILE, false)?.is_none() {
        return Ok(());
    }
    SeriesFile::open(disk, (u64::MAX, false), 0, &Arc::new(Counters::default()))?.compact()
}

/// A `series.redb` that is being made of a copy.
#[derive(Debug)]
pub struct Restoring {
    disk: Arc<dyn Disk>,
    bytes_max: u64,
    reserve_free: u64,
    counters: Arc<Counters>,
    /// `None` after a failure.
    file: Option<SeriesFile>,
}

impl Restoring {
    /// Begins in a folder without one, with the bounds of the configuration, bytes.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn new(disk: &Arc<dyn Disk>, bytes_max: u64, reserve_free: u64) -> Result<Self, StoreError> {
        // A start may use the reserve, and a restoration is no start.
        if disk.free_bytes().unwrap_or(u64::MAX) <= reserve_free {
            return Err(StoreError::Full("the file system has no more than its reserve free".into()));
        }
        let (disk, counters) = (Arc::clone(disk), Arc::new(Counters::default()));
        let file = Some(SeriesFile::open(&disk, (bytes_max, false), reserve_free, &counters)?);
        Ok(Self { disk, bytes_max, reserve_free, counters, file })
    }

    /// Takes entries, in the order in which they were copied.
    ///
    /// # Errors
    /// [`StoreError::Full`] when they do not fit the bounds or the disk.
    pub fn take(&mut self, entries: &[SeriesEntry]) -> Result<(), StoreError> {
        let entries = || entries.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
        let file = self.file.take().ok_or(StoreError::NotOpen)?;
        match file.write_raw(entries()) {
            Ok(()) => self.file = Some(file),
            Err(StoreError::Full(_)) if self.counters.capped.swap(false, Ordering::Relaxed) => {
                file.abandon();
                let whole = (self.bytes_max, true);
                let file = SeriesFile::open(&self.disk, whole, self.reserve_free, &self.counters)?;
                file.write_raw(entries())?;
                self.file = Some(file);
            }
            Err(error) => {
                file.abandon();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends it: what was taken is on flash.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn finish(self) -> Result<(), StoreError> {
        self.file.ok_or(StoreError::NotOpen)?.close()
    }
}
