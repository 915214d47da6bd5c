//! `series.redb` as redb sees it: a file of the store's folder that may grow up to its cap, and leaves the file
//! system its reserve; only opening it may go beyond both.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::{BackendError, StorageBackend};

use crate::store::disk::{Disk, File, PAGE_BYTES};

/// What is shared with the owner of the database.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Bytes written, each write rounded out to whole pages.
    pub written: AtomicU64,
    pub syncs: AtomicU64,
    /// The cap of the file refused its growth, while the file system had room.
    pub capped: AtomicBool,
    /// The file is being opened, which may need some pages of the reserve: a start must not fail for want of them.
    pub opening: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Backend {
    pub disk: Arc<dyn Disk>,
    pub file: Arc<dyn File>,
    pub bytes_max: u64,
    pub reserve_free: u64,
    pub counters: Arc<Counters>,
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let now = self.file.len()?;
        if len > now && !self.counters.opening.load(Ordering::Relaxed) {
            // redb doubles its file; what it does not write takes no room on the disk.
            let reserved = self.disk.free_bytes().unwrap_or(u64::MAX) <= self.reserve_free;
            if len > self.bytes_max || reserved {
                self.counters.capped.store(!reserved, Ordering::Relaxed);
                return Err(io::Error::new(io::ErrorKind::StorageFull, "series.redb may not grow"));
            }
        }
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let page = PAGE_BYTES as u64;
        let end = offset.saturating_add(data.len() as u64);
        let pages = end.div_ceil(page).saturating_sub(offset / page);
        self.counters.written.fetch_add(pages * page, Ordering::Relaxed);
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.unlock()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        if is_whole(start, end) {
            self.file.try_lock().map_err(BackendError::Io)
        } else {
            Err(BackendError::Unsupported)
        }
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        if is_whole(start, end) {
            self.file.unlock().map_err(BackendError::Io)
        } else {
            Err(BackendError::Unsupported)
        }
    }
}

fn is_whole(start: Bound<u64>, end: Bound<u64>) -> bool {
    matches!(start, Bound::Unbounded | Bound::Included(0)) && end == Bound::Unbounded
}
