//! The seam below the store: one folder of files, as much of it as the store needs.
//!
//! Owns the two traits and the whole-file helpers on top of them. `backend` implements them on a real folder, the
//! tests on a simulated disk that tears, fails and fills up.

use std::sync::Arc;
use std::{fmt, io};

/// The unit that writes are counted in: what flash and file systems write at least. Bytes.
pub const PAGE_BYTES: usize = 4096;

/// [`PAGE_BYTES`] for file offsets.
pub(super) const PAGE: u64 = PAGE_BYTES as u64;

/// One folder, owned by one store.
///
/// A name is a plain file name. Creating, renaming and removing are durable only after [`Disk::sync_folder`].
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file for reading and writing; `None` when it does not exist and `create` is false.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn open(&self, name: &str, create: bool) -> io::Result<Option<Arc<dyn File>>>;

    /// Names of the files in the folder, in any order.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Renames a file, replacing what `to` names.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Not finding it is no error.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations, renames and removals durable.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn sync_folder(&self) -> io::Result<()>;

    /// Bytes of the file system that this process may still use.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One open file. Writes are durable only after [`File::sync_data`].
#[expect(clippy::len_without_is_empty, reason = "a file's length, not a collection's")]
pub trait File: Send + Sync + fmt::Debug {
    /// Length in bytes.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn len(&self) -> io::Result<u64>;

    /// Fills `out` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end, else whatever the file system says.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`, extending the file where needed.
    ///
    /// # Errors
    /// Whatever the file system says. Some of the data may have been written.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Cuts or extends with zeros.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes what was written, and the length, durable.
    ///
    /// # Errors
    /// Whatever the file system says. What was written since the last success may be lost, in the cache too.
    fn sync_data(&self) -> io::Result<()>;

    /// Reserves blocks for the first `len` bytes without changing the length.
    ///
    /// # Errors
    /// `Unsupported` where the file system cannot, `StorageFull` when they do not fit.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Bytes of blocks that the file holds.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn allocated_bytes(&self) -> io::Result<u64>;

    /// Forgets clean cached pages, so that the next read shows what the medium holds.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn drop_cache(&self) -> io::Result<()>;

    /// Reads the file once from front to back into the cache. A hint, nothing depends on it.
    fn read_ahead(&self);

    /// Takes an exclusive lock on the file, for tools that know nothing of the folder's lock. False: somebody has it.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn try_lock(&self) -> io::Result<bool>;

    /// Releases the lock.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn unlock(&self) -> io::Result<()>;
}

/// The whole content of a small file; `None` when it is missing or longer than `bytes_max`.
pub(super) fn read_whole(disk: &dyn Disk, name: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = disk.open(name, false)? else {
        return Ok(None);
    };
    let len = file.len()?;
    if len > bytes_max {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// Replaces a small file as a whole: a temporary file, a sync, a rename, a sync of the folder.
pub(super) fn write_whole(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    let fresh = format!("{name}.new");
    disk.remove(&fresh)?;
    let file = create(disk, &fresh)?;
    file.write(0, bytes)?;
    file.sync_data()?;
    disk.rename(&fresh, name)?;
    disk.sync_folder()
}

/// Opens a file, creating it when it is missing.
pub(super) fn create(disk: &dyn Disk, name: &str) -> io::Result<Arc<dyn File>> {
    disk.open(name, true)?.ok_or_else(|| io::Error::other("the disk created no file"))
}
