//! What can go wrong with the store, told apart by what the caller does next.

use std::{fmt, io};

use crate::ids::BatchNumber;

/// Why a call failed. After any of these but [`StoreError::OutOfOrder`] and [`StoreError::NoRoom`] the store refuses
/// every call until [`Store::reopen`](super::Store::reopen).
#[derive(Debug)]
pub enum StoreError {
    /// No room: the disk is full, or the file is at its cap. Retrying helps once rows are dropped or space freed.
    Full(String),
    /// The disk failed a read, a write or a sync.
    Io(String),
    /// What was read does not verify.
    Corrupted(String),
    /// An earlier call failed and the store was not reopened since.
    NotOpen,
    /// The batch adds rows that do not fit the row log: a caller that keeps to the quota never meets it. Nothing was
    /// written. Deletes are always taken, so dropping rows helps.
    NoRoom,
    /// A batch whose number is not the one after the last. A mistake of the caller; nothing was written.
    OutOfOrder { expected: BatchNumber, found: BatchNumber },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(what) => write!(f, "no room on the flash: {what}"),
            Self::Io(what) => write!(f, "the disk failed: {what}"),
            Self::Corrupted(what) => write!(f, "stored data is damaged: {what}"),
            Self::NotOpen => f.write_str("an earlier failure closed the store"),
            Self::NoRoom => f.write_str("the row log is full"),
            Self::OutOfOrder { expected, found } => {
                write!(f, "batch {found} was appended where {expected} is next")
            }
        }
    }
}

impl std::error::Error for StoreError {}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        if is_full(&error) { Self::Full(error.to_string()) } else { Self::Io(error.to_string()) }
    }
}

/// Why the store did not open.
#[derive(Debug)]
pub enum OpenError {
    /// A file was written by a newer version. The program exits with 78 and touches nothing.
    TooNew { file: &'static str, found: u8, newest: u8 },
    /// A file is damaged and `on_corrupt` is `Stop`. Nothing was changed.
    Damaged { file: &'static str, what: String },
    /// Not even the smallest files fit on the disk.
    Full(String),
    /// The disk failed.
    Io(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooNew { file, found, newest } => {
                write!(f, "{file} has format {found}, this version reads up to {newest}")
            }
            Self::Damaged { file, what } => {
                write!(f, "{file} is damaged ({what}) and on_corrupt is \"stop\"")
            }
            Self::Full(what) => write!(f, "no room on the flash: {what}"),
            Self::Io(what) => write!(f, "the disk failed: {what}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        if is_full(&error) { Self::Full(error.to_string()) } else { Self::Io(error.to_string()) }
    }
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Full(what) => Self::Full(what),
            OpenError::Io(what) => Self::Io(what),
            other => Self::Corrupted(other.to_string()),
        }
    }
}

/// The disk said that it has no room (also a quota or a file size limit).
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
