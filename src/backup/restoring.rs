//! What is made of a backup: it is checked as a whole, and the files of a state folder are made of it.

use std::fmt;
use std::io::Read;
use std::sync::Arc;

use super::archive::{self, ArchiveError, Ending, Run};
use crate::ids::RowKey;
use crate::series::copy as series;
use crate::store::copy::Table;
use crate::store::restore;
use crate::store::{Disk, StoreError, StoreOptions};

/// Bounds of the files that are made.
#[derive(Clone, Debug)]
pub struct Bounds {
    pub store: StoreOptions,
    /// Cap of `series.redb`, bytes.
    pub series_bytes_max: u64,
}

/// What a backup holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    pub ending: Ending,
    /// Pieces of rows, parts of the backlog, entries of the collections that were told; some were removed again.
    pub rows: u64,
    pub parts: u64,
    pub series: u64,
}

/// Why a backup was not restored.
#[derive(Debug)]
pub enum RestoreError {
    Archive(ArchiveError),
    /// Entries that do not verify: the checksums fit, so they were written so.
    Invalid(String),
    Store(StoreError),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Archive(error) => error.fmt(f),
            Self::Invalid(what) => write!(f, "it is no whole backup: {what}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<ArchiveError> for RestoreError {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Reads all of a backup and checks it, down to the checksum of each row and chunk. Makes nothing.
///
/// # Errors
/// Why it cannot be restored.
pub fn check(source: impl Read) -> Result<Contents, RestoreError> {
    read(source, &mut |_| Ok(()))
}

/// Makes the files of a backup in an empty folder. They are whole, and on flash but for the folder's own entries, when this
/// has ended well; else they are to be removed.
///
/// # Errors
/// Why it cannot be restored.
pub fn restore(source: impl Read, disk: &Arc<dyn Disk>, bounds: &Bounds) -> Result<Contents, RestoreError> {
    let mut store = restore::Restoring::new(Arc::clone(disk), &bounds.store)?;
    let mut collections = series::Restoring::new(disk, bounds.series_bytes_max, bounds.store.reserve_free)?;
    let contents = read(source, &mut |run| {
        match run {
            Run::Store(entries) => store.take(entries)?,
            Run::Series(entries) => collections.take(entries)?,
        }
        Ok(())
    })?;
    collections.finish()?;
    store.finish(contents.ending.state, contents.ending.clean)?;
    disk.sync_folder().map_err(StoreError::from)?;
    Ok(contents)
}

fn read(
    source: impl Read,
    take: &mut dyn FnMut(&Run) -> Result<(), RestoreError>,
) -> Result<Contents, RestoreError> {
    let mut contents = Contents::default();
    let mut highest = RowKey(0);
    contents.ending = archive::read(source, &mut |run| {
        match &run {
            Run::Store(entries) => {
                let rows = entries.iter().filter(|entry| entry.table == Table::Rows);
                highest = rows.map(|entry| RowKey(entry.key)).fold(highest, RowKey::max);
                if let Some(entry) = entries.iter().find(|entry| !restore::verifies(entry)) {
                    let what = format!("{:?} {} does not verify", entry.table, entry.key);
                    return Err(RestoreError::Invalid(what));
                }
                let count = |table| entries.iter().filter(|entry| entry.table == table).count() as u64;
                contents.rows += count(Table::Rows);
                contents.parts += count(Table::Parts);
            }
            Run::Series(entries) => {
                if let Some((key, _)) = entries.iter().find(|entry| !series::verifies(entry)) {
                    return Err(RestoreError::Invalid(format!(
                        "entry {key:?} of a collection does not verify"
                    )));
                }
                contents.series += entries.len() as u64;
            }
        }
        take(&run)
    })?;
    let last = contents.ending.state.last_batch;
    if highest.batch() > last {
        // The gateway would give the key out once more.
        return Err(RestoreError::Invalid(format!("row {highest} is of a batch after its last one, {last}")));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::BatchNumber;
    use crate::store::BatchBuilder;
    use crate::store::copy::{CopiedEntry, CopiedState};

    fn checked(entries: &[CopiedEntry], last: u64) -> Result<Contents, RestoreError> {
        let state = CopiedState { last_batch: BatchNumber(last), boot: 1, ..CopiedState::default() };
        let mut writer = archive::Writer::new(Vec::new(), 0).unwrap();
        writer.store(entries).unwrap();
        let bytes = writer.finish(&Ending { state, ..Ending::default() }).unwrap();
        check(bytes.as_slice())
    }

    #[test]
    fn entries_that_would_hurt_the_gateway_are_refused_though_their_sums_fit() {
        let mut builder = BatchBuilder::new(BatchNumber(5));
        builder.push(1, b"body");
        let (key, piece) = builder.finish().pieces.remove(0);
        let row = CopiedEntry { table: Table::Rows, key: key.0, value: Some(piece.to_vec()) };
        assert_eq!(checked(std::slice::from_ref(&row), 5).unwrap().rows, 1);
        let refused = |entry: CopiedEntry, last| {
            let result = checked(&[entry], last);
            assert!(matches!(result, Err(RestoreError::Invalid(_))), "{result:?}");
        };
        // Of a batch that the store does not know; under a key that is not its own; not a row at all.
        refused(row.clone(), 4);
        refused(CopiedEntry { key: row.key + 1, ..row.clone() }, 5);
        refused(CopiedEntry { value: Some(b"body".to_vec()), ..row }, 5);
        refused(CopiedEntry { table: Table::Parts, ..row.clone() }, 5);
        refused(CopiedEntry { table: Table::Summaries, ..row }, 5);
        refused(CopiedEntry { table: Table::Rows, key: u64::MAX, value: None }, 5);
    }
}
