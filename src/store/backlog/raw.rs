//! The tables of `backlog.redb` as they are, key by key: for copies, for what is made of a copy, and to verify.

use std::sync::Arc;

use redb::{ReadableDatabase, ReadableTable};

use super::{BACKLOG, Backlog, CHUNKS, MARKER_KEY, Marker, SUMMARIES, builder, read_envelope};
use crate::ids::ChunkNumber;
use crate::store::capped::Backend;
use crate::store::counted::{Counted, Counters};
use crate::store::disk::Disk;
use crate::store::error::StoreError;
use crate::store::log::{guarded, redb_error};

/// Numbers of chunks and batches that were really given out are far below; others would leave no room to go on.
pub(in crate::store) const NUMBERS_MAX: u64 = 1 << 47;

/// A key of one of the tables, and the value.
pub(in crate::store) type Value = (u64, Vec<u8>);

/// The same; without a value it is to be removed.
pub(in crate::store) type Raw<'a> = (u64, Option<&'a [u8]>);

/// Gives back what `backlog.redb` takes and does not need, while the gateway is stopped.
///
/// # Errors
/// See [`StoreError`]. Whatever fails, the file holds what it held.
pub fn compact(disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
    let Some(file) = disk.open(BACKLOG, false)? else { return Ok(()) };
    let file = Counted::new(file, &Arc::new(Counters::default()));
    let backend = Backend::following(file.clone())?;
    guarded(|| {
        let mut database = builder().create_with_backend(backend).map_err(redb_error)?;
        while database.compact().map_err(redb_error)? {}
        database.close().map_err(redb_error)
    })?;
    Ok(file.sync_data()?)
}

impl Backlog {
    /// Values of the table of parts from this key on until they have `bytes_max` bytes, and where to go on; `None` at the
    /// end.
    ///
    /// # Errors
    /// When the file cannot be read, or its tree is damaged.
    pub(in crate::store) fn parts_from(
        &mut self,
        from: u64,
        bytes_max: usize,
    ) -> Result<(Vec<Value>, Option<u64>), StoreError> {
        self.read(|transaction| {
            let table = transaction.open_table(CHUNKS).map_err(redb_error)?;
            let (mut parts, mut bytes) = (Vec::new(), 0);
            for entry in table.range(from..).map_err(redb_error)? {
                let (key, value) = entry.map_err(redb_error)?;
                if bytes >= bytes_max {
                    return Ok((parts, Some(key.value())));
                }
                bytes += value.value().len();
                parts.push((key.value(), value.value().to_vec()));
            }
            Ok((parts, None))
        })
    }

    /// All values of the table of summaries, the marker first.
    ///
    /// # Errors
    /// When the file cannot be read, or its tree is damaged.
    pub(in crate::store) fn summaries(&mut self) -> Result<Vec<Value>, StoreError> {
        self.read(|transaction| {
            let table = transaction.open_table(SUMMARIES).map_err(redb_error)?;
            let mut summaries = Vec::new();
            for entry in table.range(MARKER_KEY..).map_err(redb_error)? {
                let (key, value) = entry.map_err(redb_error)?;
                summaries.push((key.value(), value.value().to_vec()));
            }
            Ok(summaries)
        })
    }

    /// True when a value is one of the table of summaries.
    pub(in crate::store) fn is_summary(key: u64, value: &[u8]) -> bool {
        if key == MARKER_KEY {
            let Some(Ok(marker)) = Marker::read(value) else { return false };
            return marker.highest.0 < NUMBERS_MAX && marker.highest_key.batch().0 < NUMBERS_MAX;
        }
        key < NUMBERS_MAX && read_envelope(ChunkNumber(key), value).is_some()
    }

    /// Puts values in or takes them out as they are, in one synced step; the marker is one of them. A summary that is
    /// removed takes the chunk's parts along.
    ///
    /// # Errors
    /// `Full` when they do not fit.
    pub(in crate::store) fn put_raw(
        &mut self,
        parts: &[Raw<'_>],
        summaries: &[Raw<'_>],
    ) -> Result<(), StoreError> {
        match self.try_put_raw(parts, summaries) {
            // redb may have shrunk: opened anew it has the whole file.
            Err(StoreError::Full(_)) => self.try_put_raw(parts, summaries),
            result => result,
        }
    }

    fn try_put_raw(&mut self, parts: &[Raw<'_>], summaries: &[Raw<'_>]) -> Result<(), StoreError> {
        self.make_open()?;
        let result = guarded(|| {
            let mut transaction = self.database()?.begin_write().map_err(redb_error)?;
            transaction.set_quick_repair(true);
            for (definition, entries) in [(CHUNKS, parts), (SUMMARIES, summaries)] {
                let mut table = transaction.open_table(definition).map_err(redb_error)?;
                for (key, value) in entries {
                    match value {
                        Some(value) => drop(table.insert(key, *value).map_err(redb_error)?),
                        None => drop(table.remove(key).map_err(redb_error)?),
                    }
                }
            }
            let mut table = transaction.open_table(CHUNKS).map_err(redb_error)?;
            for (number, _) in summaries.iter().filter(|(_, value)| value.is_none()) {
                table.retain_in(number << 16..=number << 16 | 0xffff, |_, _| false).map_err(redb_error)?;
            }
            drop(table);
            transaction.commit().map_err(redb_error)
        });
        self.noting(result)
    }

    /// Removes parts of chunks that have no summary: they were removed while they were copied.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::store) fn drop_parts_without_summary(&mut self) -> Result<(), StoreError> {
        let gone = self.read(|transaction| {
            let summaries = transaction.open_table(SUMMARIES).map_err(redb_error)?;
            let parts = transaction.open_table(CHUNKS).map_err(redb_error)?;
            let mut gone = Vec::new();
            for entry in parts.iter().map_err(redb_error)? {
                let key = entry.map_err(redb_error)?.0.value();
                if summaries.get(key >> 16).map_err(redb_error)?.is_none() {
                    gone.push((key, None));
                }
            }
            Ok(gone)
        })?;
        if gone.is_empty() { Ok(()) } else { self.put_raw(&gone, &[]) }
    }

    /// Reads within one transaction; nothing when there is no file.
    fn read<T: Default>(
        &mut self,
        call: impl FnOnce(&redb::ReadTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.database.is_none() && self.disk.open(BACKLOG, false)?.is_none() {
            return Ok(T::default());
        }
        self.make_open()?;
        let result = guarded(|| self.database().and_then(|it| call(&it.begin_read().map_err(redb_error)?)));
        self.noting(result)
    }
}
