//! The row log: one redb table `log: u64 -> bytes` in `gateway.redb`, and the marker in it.
//!
//! Owns every call into redb. A row's pieces lie under their keys; key 0, which no batch uses, holds the marker, so
//! that a commit touches one table only. What redb panics about is caught and becomes `Corrupted`.
//!
//! The marker, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `GWLM` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 1 | 1 when the last apply belongs to a start that met damage, else 0 |
//! | 6 | 2 | zero |
//! | 8 | 8 | last batch applied |
//! | 16 | 8 | lowest key that is still needed, 0 when unknown |
//! | 24 | 8 | bytes that the rows in the table are charged |
//! | 32 | 4 | boot count at the last apply |
//! | 36 | 4 | CRC-32 of bytes 0 to 35 |

use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::{Builder, Database, ReadableDatabase, Table, TableDefinition};

use super::capped::Backend;
use super::counted::Counted;
use super::disk::PAGE;
use super::error::{StoreError, is_full};
use super::fields::{u32_at, u64_at};
use super::overlay::{Overlay, keys_of};
use super::redb_page::tree_pages;
use super::row::{Assembled, Assembler, Piece, charge};
use super::space::{Space, Steps};
use crate::ids::{BatchNumber, RowKey};

/// Name of the file.
pub(super) const LOG: &str = "gateway.redb";

/// Newest format that is read, and the one that is written. A format N + 1 would be read beside N from here.
pub(super) const LOG_VERSION: u8 = 1;

const TABLE: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
const MARKER_KEY: u64 = 0;
const MARKER_MAGIC: [u8; 4] = *b"GWLM";

/// Memory that redb may use for its cache, bytes.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

/// The open row log.
#[derive(Debug)]
pub(super) struct Log {
    /// `None` only when a reopen failed.
    database: Option<Database>,
    backend: Backend,
    marker: Marker,
    /// Pages of the tree after the last apply.
    pages: u64,
}

/// What the log says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Marker {
    pub(super) applied: BatchNumber,
    pub(super) min_live_key: Option<RowKey>,
    pub(super) charged: u64,
    pub(super) boot: u32,
    pub(super) rebuilt: bool,
}

/// Why the file did not open.
#[derive(Debug)]
pub(super) enum LogError {
    Damaged(String),
    TooNew(u8),
    Failed(StoreError),
    /// The medium could not be read.
    Unreadable(String),
}

/// How an apply is cut into transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    /// All of it in one.
    Whole,
    /// As the free pages allow.
    Fitting,
}

/// What a walk over the rows found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Walk {
    pub(super) rows: u64,
    /// Keys of pieces or rows that did not verify or lacked a piece.
    pub(super) lost: Vec<RowKey>,
}

impl Log {
    /// Opens and verifies the file. Nothing reaches it before [`Log::release`].
    pub(super) fn open(file: Counted, cap: u64) -> Result<Self, LogError> {
        let backend = Backend::held(file, cap).map_err(|error| LogError::Failed(error.into()))?;
        let opened = guarded(|| {
            let database = builder().create_with_backend(backend.clone()).map_err(redb_error)?;
            let marker = read_marker(&database)?;
            Ok((database, marker))
        });
        match opened {
            Ok((database, Some(Ok(marker)))) => {
                Ok(Self { database: Some(database), backend, marker, pages: 0 })
            }
            Ok((database, Some(Err(version)))) => {
                drop_database(database);
                Err(LogError::TooNew(version))
            }
            Ok((database, None)) => {
                drop_database(database);
                Err(LogError::Damaged("it holds no valid marker".into()))
            }
            Err(StoreError::Corrupted(what)) => Err(LogError::Damaged(what)),
            Err(error) if backend.read_failed() => Err(LogError::Unreadable(error.to_string())),
            Err(error) => Err(LogError::Failed(error)),
        }
    }

    /// Lets the repair that opening made reach the file, and reserves the file's blocks.
    pub(super) fn release(&mut self) -> Result<(), StoreError> {
        self.backend.release()?;
        self.count_pages();
        Ok(())
    }

    /// Makes an empty log in an empty file.
    pub(super) fn create(file: Counted, cap: u64, marker: Marker) -> Result<(), StoreError> {
        let backend = Backend::through(file.clone(), cap)?;
        guarded(|| {
            let database = builder().create_with_backend(backend).map_err(redb_error)?;
            let transaction = database.begin_write().map_err(redb_error)?;
            {
                let mut table = transaction.open_table(TABLE).map_err(redb_error)?;
                table.insert(MARKER_KEY, marker.to_bytes().as_slice()).map_err(redb_error)?;
            }
            transaction.commit().map_err(redb_error)?;
            database.close().map_err(redb_error)
        })?;
        Ok(file.sync_data()?)
    }

    /// Makes a file that verified as small as its rows let it.
    pub(super) fn shrink(file: Counted) -> Result<(), StoreError> {
        let backend = Backend::following(file.clone())?;
        guarded(|| {
            let mut database = builder().create_with_backend(backend).map_err(redb_error)?;
            while database.compact().map_err(redb_error)? {}
            database.close().map_err(redb_error)
        })?;
        Ok(file.sync_data()?)
    }

    pub(super) const fn marker(&self) -> Marker {
        self.marker
    }

    /// What the rows take: their charge or, when leaves are filled less than that assumes, the pages themselves.
    pub(super) fn live_bytes(&self) -> u64 {
        self.marker.charged.max(self.pages * PAGE)
    }

    /// What the rows take beyond their charge.
    pub(super) fn overhead_bytes(&self) -> u64 {
        self.live_bytes() - self.marker.charged
    }

    /// Bytes that redb may fill.
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.backend.cap().saturating_sub(PAGE)
    }

    /// True when redb wanted to grow past the cap, which closed it. A reopen gives it back what it gave up earlier.
    pub(super) fn wants_reopen(&self) -> bool {
        self.backend.cap_hit()
    }

    /// Opens the file anew, which gives redb the whole of it again.
    pub(super) fn reopen(&mut self) -> Result<(), StoreError> {
        let (file, cap) = (self.backend.file().clone(), self.backend.cap());
        if let Some(database) = self.database.take() {
            drop_database(database);
        }
        let fresh = Self::open(file, cap).map_err(|error| match error {
            LogError::Damaged(what) | LogError::Unreadable(what) => StoreError::Corrupted(what),
            LogError::TooNew(_) => StoreError::Corrupted("its version changed".into()),
            LogError::Failed(error) => error,
        })?;
        if fresh.marker.applied < self.marker.applied {
            return Err(StoreError::Corrupted("it fell back to an older state".into()));
        }
        *self = fresh;
        self.release()
    }

    /// The pages that are there and taken.
    pub(super) fn space(&self) -> Space {
        Space { capacity: self.capacity_bytes() / PAGE, used: self.pages }
    }

    /// Brings the log up to `marker`: removes and adds what the overlay says.
    ///
    /// Deletes go ahead in transactions of their own where they do not fit one (see `space`), which leave the marker
    /// where it is; the journal still holds them and doing them twice is harmless. Rows are added with the marker only,
    /// so that the table never holds rows of a batch that the marker does not cover.
    pub(super) fn apply(
        &mut self,
        overlay: &Overlay,
        marker: Marker,
        manner: Manner,
    ) -> Result<(), StoreError> {
        let puts: Vec<(RowKey, &[u8])> = overlay.rows().collect();
        let Steps { runs: runs_max, apart } = match manner {
            Manner::Whole => Steps { runs: usize::MAX, apart: false },
            Manner::Fitting => self.space().steps(overlay.charged()),
        };
        let (mut deletes, mut runs, mut end) = (Vec::new(), 0, None);
        for place in overlay.deletes() {
            // Rows side by side share leaves, and a leaf that empties needs no copy.
            let in_run = end.is_some_and(|end| end == place.key.0);
            if !in_run && runs >= runs_max {
                self.commit(&deletes, &[], self.marker)?;
                (deletes, runs) = (Vec::new(), 0);
            }
            runs += usize::from(!in_run);
            end = place.key.0.checked_add(u64::from(place.pieces));
            deletes.extend(keys_of(place));
        }
        if apart && !deletes.is_empty() {
            self.commit(&deletes, &[], self.marker)?;
            deletes.clear();
            // Only now the pages of the last deletes are free.
            self.commit(&[], &[], self.marker)?;
        }
        self.commit(&deletes, &puts, Marker { charged: self.marker.charged, ..marker })?;
        self.count_pages();
        Ok(())
    }

    /// The body of the row at `key`.
    pub(super) fn fetch(&self, key: RowKey) -> Result<Option<Vec<u8>>, StoreError> {
        guarded(|| {
            let transaction = self.database()?.begin_read().map_err(redb_error)?;
            let table = transaction.open_table(TABLE).map_err(redb_error)?;
            let mut assembler = Assembler::default();
            for entry in table.range(key.0.max(1)..).map_err(redb_error)? {
                let (found, value) = entry.map_err(redb_error)?;
                let piece = Piece::read(value.value()).filter(|piece| piece.key.0 == found.value());
                let Some(piece) = piece else {
                    return Err(StoreError::Corrupted(format!("row {} does not verify", found.value())));
                };
                match assembler.push(&piece) {
                    (Assembled::Single(place, _, body), _) => {
                        return Ok((place.key == key).then(|| body.to_vec()));
                    }
                    (Assembled::Whole(place, _, body), _) => return Ok((place.key == key).then_some(body)),
                    (Assembled::Nothing, None) if piece.key >= key => {}
                    _ => return Ok(None),
                }
            }
            Ok(None)
        })
    }

    /// The encoded pieces at `keys`; `None` for one that is not there or does not verify.
    pub(super) fn pieces(&self, keys: &[RowKey]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        guarded(|| {
            let transaction = self.database()?.begin_read().map_err(redb_error)?;
            let table = transaction.open_table(TABLE).map_err(redb_error)?;
            let mut pieces = Vec::with_capacity(keys.len());
            for key in keys {
                let value = table.get(key.0).map_err(redb_error)?;
                let whole = value.filter(|v| Piece::read(v.value()).is_some_and(|piece| piece.key == *key));
                pieces.push(whole.map(|value| value.value().to_vec()));
            }
            Ok(pieces)
        })
    }

    /// Encoded pieces from `from` on until they have `bytes_max` bytes, without those that `overlay` deletes, and where to
    /// go on; `None` at the end. Whether they verify is the caller's to find out.
    pub(super) fn rows_from(
        &self,
        from: RowKey,
        bytes_max: usize,
        overlay: &Overlay,
    ) -> Result<PiecesFrom, StoreError> {
        guarded(|| {
            let transaction = self.database()?.begin_read().map_err(redb_error)?;
            let table = transaction.open_table(TABLE).map_err(redb_error)?;
            let (mut rows, mut bytes) = (Vec::new(), 0);
            for entry in table.range(from.0.max(MARKER_KEY + 1)..).map_err(redb_error)? {
                let (key, value) = entry.map_err(redb_error)?;
                let key = RowKey(key.value());
                if bytes >= bytes_max {
                    return Ok((rows, Some(key)));
                }
                if !overlay.deletes_piece(key) {
                    bytes += value.value().len();
                    rows.push((key, value.value().to_vec()));
                }
            }
            Ok((rows, None))
        })
    }

    /// Hands over every row in key order; those in `overlay`'s deletes are left out.
    pub(super) fn for_each(&self, overlay: &Overlay, row: &mut RowSink<'_>) -> Result<Walk, StoreError> {
        guarded(|| {
            let transaction = self.database()?.begin_read().map_err(redb_error)?;
            let table = transaction.open_table(TABLE).map_err(redb_error)?;
            let mut walk = Walk::default();
            let mut assembler = Assembler::default();
            for entry in table.range(MARKER_KEY + 1..).map_err(redb_error)? {
                let (key, value) = entry.map_err(redb_error)?;
                let key = RowKey(key.value());
                let piece = Piece::read(value.value()).filter(|piece| piece.key == key);
                walk.take(key, piece.as_ref(), &mut assembler, overlay, row);
            }
            walk.lost.extend(assembler.give_up().map(|place| place.key));
            Ok(walk)
        })
    }

    /// Closes the file so that the next open finds it clean.
    pub(super) fn close(self) -> Result<(), StoreError> {
        let database = self.database.ok_or(StoreError::NotOpen)?;
        guarded(|| database.close().map_err(redb_error))
    }

    /// Drops the handle after an error, and the file's cached pages.
    pub(super) fn abandon(self) {
        if let Some(database) = self.database {
            drop_database(database);
        }
        // Only a hint: where it fails the reopen still verifies what it reads.
        drop(self.backend.file().file().drop_cache());
    }

    fn database(&self) -> Result<&Database, StoreError> {
        self.database.as_ref().ok_or(StoreError::NotOpen)
    }

    pub(super) fn file(&self) -> &Counted {
        self.backend.file()
    }

    fn count_pages(&mut self) {
        self.pages = tree_pages(self.backend.file().file()).unwrap_or(0);
    }

    fn commit(
        &mut self,
        deletes: &[RowKey],
        puts: &[(RowKey, &[u8])],
        mut marker: Marker,
    ) -> Result<(), StoreError> {
        guarded(|| {
            let transaction = self.database()?.begin_write().map_err(redb_error)?;
            {
                let mut table = transaction.open_table(TABLE).map_err(redb_error)?;
                marker.charged = change(&mut table, deletes, puts, marker.charged)?;
                table.insert(MARKER_KEY, marker.to_bytes().as_slice()).map_err(redb_error)?;
            }
            transaction.commit().map_err(redb_error)
        })?;
        self.marker = marker;
        Ok(())
    }
}

/// Encoded pieces with their keys, and where to go on; `None` at the end.
pub(super) type PiecesFrom = (Vec<(RowKey, Vec<u8>)>, Option<RowKey>);

/// Takes a row: its place, its kind, its body.
pub(super) type RowSink<'a> = dyn FnMut(super::batch::Place, u8, &[u8]) + 'a;

impl Walk {
    /// Takes one piece, or what should have been one.
    pub(super) fn take(
        &mut self,
        key: RowKey,
        piece: Option<&Piece<'_>>,
        assembler: &mut Assembler,
        overlay: &Overlay,
        row: &mut RowSink<'_>,
    ) {
        let Some(piece) = piece else {
            self.lost.extend(assembler.give_up().map(|place| place.key));
            self.lost.push(key);
            return;
        };
        let (assembled, broken) = assembler.push(piece);
        self.lost.extend(broken.map(|place| place.key));
        let (place, kind, body) = match &assembled {
            Assembled::Single(place, kind, body) => (*place, *kind, *body),
            Assembled::Whole(place, kind, body) => (*place, *kind, body.as_slice()),
            Assembled::Nothing => return,
            Assembled::Orphan => {
                if broken.is_none() && self.lost.last() != Some(&key) {
                    self.lost.push(key);
                }
                return;
            }
        };
        if !overlay.is_deleted(place.key) {
            self.rows += 1;
            row(place, kind, body);
        }
    }
}

impl Marker {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(40);
        bytes.extend_from_slice(&MARKER_MAGIC);
        bytes.extend_from_slice(&[LOG_VERSION, u8::from(self.rebuilt), 0, 0]);
        bytes.extend_from_slice(&self.applied.0.to_le_bytes());
        bytes.extend_from_slice(&self.min_live_key.map_or(0, |key| key.0).to_le_bytes());
        bytes.extend_from_slice(&self.charged.to_le_bytes());
        bytes.extend_from_slice(&self.boot.to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a marker; the inner error is a version that is too new.
    pub(super) fn read(bytes: &[u8]) -> Option<Result<Self, u8>> {
        let covered = bytes.get(..36)?;
        if bytes.first_chunk::<4>() != Some(&MARKER_MAGIC) || u32_at(bytes, 36)? != crc32fast::hash(covered) {
            return None;
        }
        let version = *bytes.get(4)?;
        if version > LOG_VERSION {
            return Some(Err(version));
        }
        let min_live_key = Some(RowKey(u64_at(bytes, 16)?)).filter(|key| key.0 != 0);
        Some(Ok(Self {
            applied: BatchNumber(u64_at(bytes, 8)?),
            min_live_key,
            charged: u64_at(bytes, 24)?,
            boot: u32_at(bytes, 32)?,
            rebuilt: *bytes.get(5)? == 1,
        }))
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

fn read_marker(database: &Database) -> Result<Option<Result<Marker, u8>>, StoreError> {
    let transaction = database.begin_read().map_err(redb_error)?;
    let table = match transaction.open_table(TABLE) {
        Ok(table) => table,
        Err(redb::TableError::Storage(error)) => return Err(redb_error(error)),
        Err(_) => return Ok(None),
    };
    let value = table.get(MARKER_KEY).map_err(redb_error)?;
    Ok(value.and_then(|value| Marker::read(value.value())))
}

/// Removes and inserts, and returns what the table's rows are charged afterwards.
fn change(
    table: &mut Table<'_, u64, &'static [u8]>,
    deletes: &[RowKey],
    puts: &[(RowKey, &[u8])],
    mut charged: u64,
) -> Result<u64, StoreError> {
    for key in deletes {
        if let Some(old) = table.remove(key.0).map_err(redb_error)? {
            charged = charged.saturating_sub(charge(old.value()));
        }
    }
    for (key, piece) in puts {
        charged += charge(piece);
        if let Some(old) = table.insert(key.0, *piece).map_err(redb_error)? {
            charged = charged.saturating_sub(charge(old.value()));
        }
    }
    Ok(charged)
}

/// Runs a call into redb. A panic inside it, which damaged files can cause, is an error like any other.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(StoreError::Corrupted("redb gave up on the file".into())))
}

pub(super) fn drop_database(database: Database) {
    // Dropping closes, and closing may meet the same failure again; there is nothing left to do about it.
    drop(guarded(|| {
        drop(database);
        Ok(())
    }));
}

pub(super) fn redb_error(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Io(error) if is_full(&error) => StoreError::Full(error.to_string()),
        redb::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            StoreError::Corrupted(error.to_string())
        }
        redb::Error::Io(error) => StoreError::Io(error.to_string()),
        redb::Error::PreviousIo => StoreError::Io("an earlier write failed".into()),
        error @ (redb::Error::DatabaseAlreadyOpen | redb::Error::LockPoisoned(_)) => {
            StoreError::Io(error.to_string())
        }
        error => StoreError::Corrupted(error.to_string()),
    }
}
