//! Mistakes of whoever drives the gateway, made on purpose: the checks must find them. The broker's own are in
//! `gatewayd::broker::mutation`.

use std::io;
use std::sync::Arc;

use gatewayd::store::{Disk, File};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// A batch is reported as persisted before it is written.
    ReportEarly,
    /// The disk reports success where a write failed.
    IgnoreWriteErrors,
    /// Readings are reported as stored before they are.
    FlushEarly,
}

/// The disk behind one whose failed writes and syncs look like any others.
pub fn silent(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    Arc::new(Silent(disk))
}

#[derive(Debug)]
struct Silent(Arc<dyn Disk>);

#[derive(Debug)]
struct SilentFile(Arc<dyn File>);

impl Disk for Silent {
    fn open(&self, name: &str, create: bool) -> io::Result<Option<Arc<dyn File>>> {
        let file = self.0.open(name, create)?;
        Ok(file.map(|file| Arc::new(SilentFile(file)) as Arc<dyn File>))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.0.sync_folder()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

impl File for SilentFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        drop(self.0.write(offset, data));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        drop(self.0.sync_data());
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.0.allocated_bytes()
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.0.drop_cache()
    }

    fn read_ahead(&self) {
        self.0.read_ahead();
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.0.try_lock()
    }

    fn unlock(&self) -> io::Result<()> {
        self.0.unlock()
    }
}
