//! The file of the row log as redb sees it: with a cap, a constant length and, until it is verified, without effect.
//!
//! * **Cap.** A growth past the cap is refused with `StorageFull`.
//! * **Constant length.** redb takes the length of the file it opens as its size, so the file is given its full
//!   length before the open and redb never has to double it. When redb shrinks, it is shown the length that it
//!   asked for and the file keeps its own, with its preallocated blocks; the next open has the full size again.
//! * **Held.** While redb opens, verifies and repairs, its writes are kept in memory in their order. They reach the
//!   file only by [`Backend::release`], once the caller is sure that redb opened the state it should have. Else the
//!   damaged file is left as it was found, for salvage.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::{BackendError, StorageBackend};

use super::counted::Counted;
use super::disk::{PAGE, PAGE_BYTES};

#[expect(
    clippy::disallowed_types,
    reason = "redb asks for Sync; one thread uses it, so it is never contended"
)]
type Held = std::sync::Mutex<Option<Writes>>;

/// What redb writes to. Clones share the file.
#[derive(Clone, Debug)]
pub(super) struct Backend(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: Counted,
    cap: u64,
    /// Follow redb when it shrinks.
    follow: bool,
    /// The length as redb knows it. redb takes a growth below the length that it is told for a shrinkage.
    shown: AtomicU64,
    cap_hit: AtomicBool,
    read_failed: AtomicBool,
    held: Held,
}

/// Writes that did not reach the file.
#[derive(Debug)]
struct Writes {
    len: u64,
    steps: Vec<Step>,
    pages: BTreeMap<u64, Vec<u8>>,
}

#[derive(Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Len(u64),
    Sync,
}

impl Backend {
    /// A backend whose effects are held, on a file that shows itself at least `cap` bytes long.
    pub(super) fn held(file: Counted, cap: u64) -> io::Result<Self> {
        let found = file.file().len()?;
        let len = found.max(cap);
        let steps = if len > found { vec![Step::Len(len)] } else { Vec::new() };
        let held = Writes { len, steps, pages: BTreeMap::new() };
        Ok(Self::with(file, len, len, false, Some(held)))
    }

    /// A backend that writes through, on a new file.
    pub(super) fn through(file: Counted, cap: u64) -> io::Result<Self> {
        let len = file.file().len()?;
        Ok(Self::with(file, len, cap, false, None))
    }

    /// A backend that writes through and lets redb shrink the file.
    pub(super) fn following(file: Counted) -> io::Result<Self> {
        let len = file.file().len()?;
        Ok(Self::with(file, len, u64::MAX, true, None))
    }

    fn with(file: Counted, len: u64, cap: u64, follow: bool, held: Option<Writes>) -> Self {
        Self(Arc::new(Shared {
            file,
            cap,
            follow,
            shown: AtomicU64::new(len),
            cap_hit: AtomicBool::new(false),
            read_failed: AtomicBool::new(false),
            held: Held::new(held),
        }))
    }

    /// Lets the held writes reach the file, in their order and with their syncs.
    pub(super) fn release(&self) -> io::Result<()> {
        let Some(writes) = self.lock().take() else {
            return Ok(());
        };
        for step in writes.steps {
            match step {
                Step::Write(offset, bytes) => self.0.file.write(offset, &bytes)?,
                Step::Len(len) => self.0.file.file().set_len(len)?,
                Step::Sync => self.0.file.sync_data()?,
            }
        }
        Ok(())
    }

    pub(super) fn file(&self) -> &Counted {
        &self.0.file
    }

    pub(super) fn cap(&self) -> u64 {
        self.0.cap
    }

    /// redb asked for more than the cap.
    pub(super) fn cap_hit(&self) -> bool {
        self.0.cap_hit.load(Ordering::Relaxed)
    }

    /// The medium could not be read.
    pub(super) fn read_failed(&self) -> bool {
        self.0.read_failed.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Writes>> {
        self.0.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn read_file(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let result = self.0.file.read(offset, out);
        if result.is_err() {
            self.0.read_failed.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Reads past the end as zeros.
    fn read_file_padded(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = self.0.file.file().len()?.saturating_sub(offset);
        let there = usize::try_from(there).unwrap_or(usize::MAX).min(out.len());
        let (now, beyond) = out.split_at_mut(there);
        beyond.fill(0);
        if now.is_empty() { Ok(()) } else { self.read_file(offset, now) }
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.shown.load(Ordering::Relaxed))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let held = self.lock();
        let Some(writes) = &*held else {
            return self.read_file(offset, out);
        };
        if offset.saturating_add(out.len() as u64) > writes.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_file_padded(offset, out)?;
        let last = offset.saturating_add(out.len() as u64);
        for (&page, bytes) in writes.pages.range(offset / PAGE..last.div_ceil(PAGE)) {
            copy_overlap(page * PAGE, bytes, offset, out);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut held = self.lock();
        if len > self.0.cap && len > self.0.shown.load(Ordering::Relaxed) {
            self.0.cap_hit.store(true, Ordering::Relaxed);
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the file is at its cap"));
        }
        match &mut *held {
            Some(writes) if len > writes.len => {
                writes.len = len;
                writes.steps.push(Step::Len(len));
            }
            Some(_) => {}
            None if self.0.follow || len > self.0.file.file().len()? => self.0.file.file().set_len(len)?,
            None => {}
        }
        self.0.shown.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if let Some(writes) = &mut *self.lock() {
            writes.steps.push(Step::Sync);
            return Ok(());
        }
        self.0.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut held = self.lock();
        let Some(writes) = &mut *held else {
            return self.0.file.write(offset, data);
        };
        let end = offset.saturating_add(data.len() as u64);
        for page in offset / PAGE..end.div_ceil(PAGE) {
            let bytes = match writes.pages.entry(page) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let mut bytes = vec![0; PAGE_BYTES];
                    self.read_file_padded(page * PAGE, &mut bytes)?;
                    entry.insert(bytes)
                }
            };
            copy_overlap(offset, data, page * PAGE, bytes);
        }
        writes.steps.push(Step::Write(offset, data.to_vec()));
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.0.file.file().unlock()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        if is_whole(start, end) {
            self.0.file.file().try_lock().map_err(BackendError::Io)
        } else {
            unsupported()
        }
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        if is_whole(start, end) {
            self.0.file.file().unlock().map_err(BackendError::Io)
        } else {
            unsupported()
        }
    }
}

fn is_whole(start: Bound<u64>, end: Bound<u64>) -> bool {
    matches!(start, Bound::Unbounded | Bound::Included(0)) && end == Bound::Unbounded
}

const fn unsupported<T>() -> Result<T, BackendError> {
    Err(BackendError::Unsupported)
}

/// Copies the part of `from`, which lies at `from_at`, that overlaps `to`, which lies at `to_at`.
fn copy_overlap(from_at: u64, from: &[u8], to_at: u64, to: &mut [u8]) {
    let start = from_at.max(to_at);
    let end = (from_at + from.len() as u64).min(to_at + to.len() as u64);
    if start >= end {
        return;
    }
    let range = |at: u64| {
        let from = usize::try_from(start - at).unwrap_or(usize::MAX);
        let to = usize::try_from(end - at).unwrap_or(usize::MAX);
        from..to
    };
    if let (Some(from), Some(to)) = (from.get(range(from_at)), to.get_mut(range(to_at))) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_copied_from_either_side() {
        for (at, expected) in [(0, *b"abcd...."), (2, *b"..abcd.."), (6, *b"......ab")] {
            let mut to = *b"........";
            copy_overlap(100 + at, b"abcd", 100, &mut to);
            assert_eq!(to, expected);
        }
        let mut to = *b"....";
        copy_overlap(98, b"abcd", 100, &mut to);
        assert_eq!(to, *b"cd..");
        copy_overlap(200, b"zz", 100, &mut to);
        assert_eq!(to, *b"cd..");
    }
}
