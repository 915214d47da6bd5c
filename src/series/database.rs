//! Every call into redb for `series.redb`: opening, reading, one transaction at a time, and what its errors mean.
//!
//! What redb panics about, which damaged files can cause, is caught and becomes `Corrupted`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use redb::{Builder, Database, ReadableDatabase, ReadableTable, Table, TableDefinition};

use super::backend::{Backend, Counters};
use super::keys;
use crate::message::record::{Reader, put_integer};
use crate::store::StoreError;
use crate::store::disk::{Disk, PAGE_BYTES};

/// Name of the file.
pub(super) const FILE: &str = "series.redb";

const TABLE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("series");

/// Newest format that is read, and the one that is written.
const VERSION: u8 = 1;

/// Memory that redb may use for its cache, bytes.
const CACHE_BYTES: usize = 4 << 20;

/// The table within a transaction.
pub(super) struct Rows<'t> {
    table: Table<'t, &'static [u8], &'static [u8]>,
    /// Keys that were put or removed, when somebody wants to know.
    touched: Option<Vec<Vec<u8>>>,
}

/// A key and its value.
pub(super) type Entry = (Vec<u8>, Vec<u8>);

/// The open file. Readers share it.
pub(super) struct SeriesFile(Database);

impl fmt::Debug for SeriesFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SeriesFile")
    }
}

/// What the marker says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Marker {
    Missing,
    /// Number of the last flush.
    Flush(u64),
    /// The version of a newer format.
    TooNew(u8),
}

impl SeriesFile {
    /// Opens the file in `disk`'s folder, or makes an empty one.
    ///
    /// redb doubles its file, and takes whatever length it finds as its size. So when the next doubling is beyond the cap,
    /// `whole` gives a file all that the cap allows, if the reserve is not reached.
    pub fn open(
        disk: &Arc<dyn Disk>,
        (bytes_max, whole): (u64, bool),
        reserve_free: u64,
        counters: &Arc<Counters>,
    ) -> Result<Self, StoreError> {
        let file = disk.open(FILE, true)?.ok_or_else(|| StoreError::Io("the disk created no file".into()))?;
        disk.sync_folder()?;
        let len = file.len()?;
        let whole_len = bytes_max - bytes_max % PAGE_BYTES as u64;
        if whole && len > 0 && len < whole_len && disk.free_bytes().unwrap_or(u64::MAX) > reserve_free {
            file.set_len(whole_len)?;
            // It must not be shorter after a power cut than its header says.
            file.sync_data()?;
        }
        let backend =
            Backend { disk: Arc::clone(disk), file, bytes_max, reserve_free, counters: Arc::clone(counters) };
        counters.opening.store(true, Ordering::Relaxed);
        let opened = guarded(|| {
            let mut builder = Builder::new();
            builder.set_cache_size(CACHE_BYTES);
            Ok(Self(builder.create_with_backend(backend).map_err(redb_error)?))
        });
        counters.opening.store(false, Ordering::Relaxed);
        opened
    }

    /// The marker.
    pub fn marker(&self) -> Result<Marker, StoreError> {
        self.read(|rows| rows.marker())
    }

    /// Reads within one transaction, which ends with the call.
    pub fn read<T>(&self, call: impl FnOnce(&Page) -> Result<T, StoreError>) -> Result<T, StoreError> {
        guarded(|| {
            let transaction = self.0.begin_read().map_err(redb_error)?;
            match transaction.open_table(TABLE) {
                Ok(table) => call(&Page(Some(table))),
                Err(redb::TableError::TableDoesNotExist(_)) => call(&Page(None)),
                Err(error) => Err(redb_error(error)),
            }
        })
    }

    /// Changes the table in one synced transaction, which also counts the flush. Nothing is changed on an error. Answers
    /// the keys that were touched, too, when `tells` is set.
    pub fn write<T>(
        &self,
        flush: u64,
        tells: bool,
        change: impl FnOnce(&mut Rows<'_>) -> Result<T, StoreError>,
    ) -> Result<(T, Vec<Vec<u8>>), StoreError> {
        self.transact(tells, |rows| {
            let mut marker = vec![VERSION];
            put_integer(&mut marker, flush);
            put(rows, keys::MARKER, &marker)?;
            change(rows)
        })
    }

    /// Puts values in or, without a value, takes them out as they are, in one synced transaction; the marker is one of them.
    pub fn write_raw<'e>(
        &self,
        entries: impl Iterator<Item = (&'e [u8], Option<&'e [u8]>)>,
    ) -> Result<(), StoreError> {
        let written = self.transact(false, |rows| {
            for (key, value) in entries {
                match value {
                    Some(value) => put(rows, key, value)?,
                    None => remove(rows, key)?,
                }
            }
            Ok(())
        });
        written.map(|((), _)| ())
    }

    fn transact<T>(
        &self,
        tells: bool,
        change: impl FnOnce(&mut Rows<'_>) -> Result<T, StoreError>,
    ) -> Result<(T, Vec<Vec<u8>>), StoreError> {
        guarded(|| {
            let mut transaction = self.0.begin_write().map_err(redb_error)?;
            // The next open after a power cut must not walk through the whole file.
            transaction.set_quick_repair(true);
            let told = {
                let table = transaction.open_table(TABLE).map_err(redb_error)?;
                let mut rows = Rows { table, touched: tells.then(Vec::new) };
                let result = change(&mut rows)?;
                (result, rows.touched.unwrap_or_default())
            };
            transaction.commit().map_err(redb_error)?;
            Ok(told)
        })
    }

    /// Makes the file as small as its entries let it, and closes it.
    pub fn compact(mut self) -> Result<(), StoreError> {
        guarded(|| {
            while self.0.compact().map_err(redb_error)? {}
            self.0.close().map_err(redb_error)
        })
    }

    /// Closes the file so that the next open finds it clean.
    pub fn close(self) -> Result<(), StoreError> {
        guarded(|| self.0.close().map_err(redb_error))
    }

    /// Closes after an error: dropping may meet the same failure again, and there is nothing left to do about it.
    pub fn abandon(self) {
        drop(guarded(|| {
            drop(self);
            Ok(())
        }));
    }
}

/// The table as one read transaction sees it; `None` before the first flush.
pub(super) struct Page(Option<redb::ReadOnlyTable<&'static [u8], &'static [u8]>>);

impl Page {
    pub fn marker(&self) -> Result<Marker, StoreError> {
        let Some(table) = &self.0 else { return Ok(Marker::Missing) };
        let Some(value) = table.get(keys::MARKER).map_err(redb_error)? else { return Ok(Marker::Missing) };
        let mut reader = Reader::new(value.value());
        let marker = match reader.byte() {
            Some(VERSION) => reader.integer().map(Marker::Flush),
            Some(newer) if newer > VERSION => Some(Marker::TooNew(newer)),
            _ => None,
        };
        marker.ok_or_else(|| StoreError::Corrupted("its marker does not verify".into()))
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(table) = &self.0 else { return Ok(None) };
        Ok(table.get(key).map_err(redb_error)?.map(|value| value.value().to_vec()))
    }

    /// Tells keys and values from `from` up to, not including, `to`, as long as `each` answers true.
    pub fn range(
        &self,
        from: &[u8],
        to: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let Some(table) = &self.0 else { return Ok(()) };
        for entry in table.range(from..to).map_err(redb_error)? {
            let (key, value) = entry.map_err(redb_error)?;
            if !each(key.value(), value.value())? {
                break;
            }
        }
        Ok(())
    }
}

pub(super) fn put(rows: &mut Rows<'_>, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    rows.table.insert(key, value).map_err(redb_error)?;
    if let Some(touched) = &mut rows.touched {
        touched.push(key.to_vec());
    }
    Ok(())
}

pub(super) fn remove(rows: &mut Rows<'_>, key: &[u8]) -> Result<(), StoreError> {
    rows.table.remove(key).map_err(redb_error)?;
    if let Some(touched) = &mut rows.touched {
        touched.push(key.to_vec());
    }
    Ok(())
}

pub(super) fn has(rows: &Rows<'_>, key: &[u8]) -> Result<bool, StoreError> {
    Ok(rows.table.get(key).map_err(redb_error)?.is_some())
}

/// The first or the last entry from `from` up to, not including, `to`.
pub(super) fn edge(
    rows: &Rows<'_>,
    (from, to): (&[u8], &[u8]),
    last: bool,
) -> Result<Option<Entry>, StoreError> {
    let mut range = rows.table.range(from..to).map_err(redb_error)?;
    let entry = if last { range.next_back() } else { range.next() };
    let Some(entry) = entry else { return Ok(None) };
    let (key, value) = entry.map_err(redb_error)?;
    Ok(Some((key.value().to_vec(), value.value().to_vec())))
}

/// Runs a call into redb.
fn guarded<T>(call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(StoreError::Corrupted("redb gave up on the file".into())))
}

fn redb_error(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            StoreError::Corrupted(error.to_string())
        }
        redb::Error::Io(error) => error.into(),
        redb::Error::PreviousIo => StoreError::Io("an earlier write failed".into()),
        error @ (redb::Error::DatabaseAlreadyOpen | redb::Error::LockPoisoned(_)) => {
            StoreError::Io(error.to_string())
        }
        error => StoreError::Corrupted(error.to_string()),
    }
}
