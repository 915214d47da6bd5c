//! A real folder as the store's disk: the only file of the store that makes system calls.
//!
//! Owns the folder, its modes (folder 0700, files 0600), its lock and the calls that std lacks: reserving blocks,
//! dropping cached pages, free space.

use std::fs::{self, DirBuilder, File as StdFile, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, process};

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, statvfs};

use super::disk::{Disk, File};

/// Name of the file whose lock keeps a second process out of the folder.
const LOCK: &str = "gateway.lock";

/// Bytes read at once when a file is read ahead.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// A folder that belongs to this process as long as the value lives.
#[derive(Debug)]
pub struct FileDisk {
    path: PathBuf,
    folder: StdFile,
    lock: StdFile,
}

/// Why the folder cannot be used.
#[derive(Debug)]
pub enum FolderError {
    /// Another process has it; its number, if it left one.
    InUse {
        path: PathBuf,
        process: Option<u32>,
    },
    Io {
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path, process: Some(process) } => {
                write!(f, "state folder {} is in use by process {process}", path.display())
            }
            Self::InUse { path, process: None } => {
                write!(f, "state folder {} is in use by another process", path.display())
            }
            Self::Io { path, error } => write!(f, "state folder {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for FolderError {}

impl FileDisk {
    /// Takes the folder at `path`, creating it where needed.
    ///
    /// # Errors
    /// Another process has it, or the file system refuses.
    pub fn new(path: &Path) -> Result<Self, FolderError> {
        let failed = |error| FolderError::Io { path: path.to_owned(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let folder = StdFile::open(path).map_err(failed)?;
        let mut lock = options().create(true).open(path.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let read = lock.read_to_string(&mut text);
                let process = read.ok().and_then(|_| text.trim().parse().ok());
                return Err(FolderError::InUse { path: path.to_owned(), process });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        lock.set_len(0).map_err(failed)?;
        lock.write_all(format!("{}\n", process::id()).as_bytes()).map_err(failed)?;
        Ok(Self { path: path.to_owned(), folder, lock })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        // Closing the file releases the lock in any case.
        drop(self.lock.unlock());
    }
}

impl Disk for FileDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Option<Arc<dyn File>>> {
        match options().create(create).open(self.path.join(name)) {
            Ok(file) => Ok(Some(Arc::new(FolderFile(file)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !create => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = statvfs(&self.path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// An open file of the folder.
#[derive(Debug)]
struct FolderFile(StdFile);

impl File for FolderFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        Ok(fallocate(&self.0, FallocateFlags::KEEP_SIZE, 0, len)?)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.blocks().saturating_mul(512))
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(fadvise(&self.0, 0, None, Advice::DontNeed)?)
    }

    fn read_ahead(&self) {
        let mut chunk = vec![0; READ_AHEAD_BYTES];
        let mut at = 0;
        while let Ok(read @ 1..) = self.0.read_at(&mut chunk, at) {
            at += read as u64;
        }
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.0.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn unlock(&self) -> io::Result<()> {
        self.0.unlock()
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}
