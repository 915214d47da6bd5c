//! Counts what the store hands to the disk. Every file of the store is opened through here.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::disk::{File, PAGE};

/// Totals since the store was opened. Shared by all files of one store.
#[derive(Debug, Default)]
pub(super) struct Counters {
    bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Counters {
    /// Bytes written, each write rounded out to whole 4 KiB pages.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Syncs asked for.
    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

/// A file whose writes and syncs are counted.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    file: Arc<dyn File>,
    counters: Arc<Counters>,
}

impl Counted {
    pub(super) fn new(file: Arc<dyn File>, counters: &Arc<Counters>) -> Self {
        Self { file, counters: counters.clone() }
    }

    /// The file itself, for what is not counted.
    pub(super) fn file(&self) -> &dyn File {
        &*self.file
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !data.is_empty() {
            let first = offset / PAGE;
            let last = offset.saturating_add(data.len() as u64 - 1) / PAGE;
            self.counters.bytes.fetch_add((last - first + 1) * PAGE, Ordering::Relaxed);
        }
        self.file.write(offset, data)
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }
}
