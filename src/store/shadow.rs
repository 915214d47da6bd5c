//! A folder that is looked at as if it were written to: what is written stays in memory, the files stay as they are.
//!
//! So a stopped gateway's files are opened, recovered and read by the code that a start uses, and nothing of it lasts.
//! Memory is bounded: past the bound a write fails as on a full disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::disk::{Disk, File, PAGE, PAGE_BYTES};

#[expect(
    clippy::disallowed_types,
    reason = "the disk's traits take &self; one thread uses it, so it is never contended"
)]
type Lock<T> = std::sync::Mutex<T>;
type Guard<'a, T> = std::sync::MutexGuard<'a, T>;

/// See the module's head.
#[derive(Debug)]
pub struct Shadow {
    base: Arc<dyn Disk>,
    /// `None`: as in the folder, and not opened yet.
    names: Lock<BTreeMap<String, Option<Arc<ShadowFile>>>>,
    pages_left: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct ShadowFile {
    base: Option<Arc<dyn File>>,
    content: Lock<Content>,
    pages_left: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Content {
    len: u64,
    /// Bytes of the file below that count.
    base_len: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Shadow {
    /// Looks at the files of `base`, with at most `bytes_max` bytes of changes in memory.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn new(base: Arc<dyn Disk>, bytes_max: usize) -> io::Result<Self> {
        let names = base.list()?.into_iter().map(|name| (name, None)).collect();
        let pages_left = Arc::new(AtomicUsize::new(bytes_max / PAGE_BYTES));
        Ok(Self { base, names: Lock::new(names), pages_left })
    }

    fn file(&self, base: Option<Arc<dyn File>>) -> io::Result<Arc<ShadowFile>> {
        let len = base.as_ref().map_or(Ok(0), |base| base.len())?;
        let content = Content { len, base_len: len, pages: BTreeMap::new() };
        Ok(Arc::new(ShadowFile {
            base,
            content: Lock::new(content),
            pages_left: Arc::clone(&self.pages_left),
        }))
    }
}

fn lock<T>(lock: &Lock<T>) -> Guard<'_, T> {
    lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Disk for Shadow {
    fn open(&self, name: &str, create: bool) -> io::Result<Option<Arc<dyn File>>> {
        let mut names = lock(&self.names);
        let file = match names.get(name) {
            Some(Some(file)) => return Ok(Some(Arc::clone(file) as Arc<dyn File>)),
            Some(None) => match self.base.open(name, false)? {
                Some(base) => self.file(Some(base))?,
                None => return Ok(None),
            },
            None if create => self.file(None)?,
            None => return Ok(None),
        };
        names.insert(name.to_owned(), Some(Arc::clone(&file)));
        Ok(Some(file))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.names).keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.open(from, false)?.ok_or(io::ErrorKind::NotFound)?;
        let mut names = lock(&self.names);
        let file = names.remove(from).flatten();
        names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        lock(&self.names).remove(name);
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX / 4)
    }
}

impl ShadowFile {
    /// A page as it is now.
    fn page(&self, content: &Content, page: u64, out: &mut [u8]) -> io::Result<()> {
        if let Some(bytes) = content.pages.get(&page) {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        out.fill(0);
        let there = content.base_len.saturating_sub(page * PAGE).min(PAGE);
        let there = out.get_mut(..usize::try_from(there).unwrap_or(0)).unwrap_or_default();
        match &self.base {
            Some(base) if !there.is_empty() => base.read(page * PAGE, there),
            _ => Ok(()),
        }
    }
}

/// The pages that a run of bytes touches: number, place in the page, place in the run.
fn touched(
    offset: u64,
    len: usize,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let end = offset.saturating_add(len as u64);
    (offset / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let (from, to) = (offset.max(page * PAGE), end.min((page + 1) * PAGE));
        let within = |at: u64, start: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
        (page, within(from, page * PAGE)..within(to, page * PAGE), within(from, offset)..within(to, offset))
    })
}

impl File for ShadowFile {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.content).len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let content = lock(&self.content);
        if offset.saturating_add(out.len() as u64) > content.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; PAGE_BYTES];
        for (page, in_page, in_run) in touched(offset, out.len()) {
            self.page(&content, page, &mut bytes)?;
            if let (Some(to), Some(from)) = (out.get_mut(in_run), bytes.get(in_page)) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut content = lock(&self.content);
        for (page, in_page, in_run) in touched(offset, data.len()) {
            if !content.pages.contains_key(&page) {
                let taken = |left: usize| left.checked_sub(1);
                self.pages_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).map_err(|_| {
                    io::Error::new(io::ErrorKind::StorageFull, "too much to repair in memory")
                })?;
                let mut bytes = vec![0; PAGE_BYTES];
                self.page(&content, page, &mut bytes)?;
                content.pages.insert(page, bytes);
            }
            let bytes = content.pages.get_mut(&page).and_then(|bytes| bytes.get_mut(in_page));
            if let (Some(to), Some(from)) = (bytes, data.get(in_run)) {
                to.copy_from_slice(from);
            }
        }
        content.len = content.len.max(offset.saturating_add(data.len() as u64));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut content = lock(&self.content);
        if len < content.len {
            content.base_len = content.base_len.min(len);
            let dropped = content.pages.split_off(&len.div_ceil(PAGE));
            self.pages_left.fetch_add(dropped.len(), Ordering::Relaxed);
            if let Some(last) = content.pages.get_mut(&(len / PAGE)) {
                let kept = usize::try_from(len % PAGE).unwrap_or(0);
                last.get_mut(kept..).unwrap_or_default().fill(0);
            }
        }
        content.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.base.as_ref().map_or(Ok(0), |base| base.allocated_bytes())
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.base.as_ref().map_or(Ok(()), |base| base.drop_cache())
    }

    fn read_ahead(&self) {
        if let Some(base) = &self.base {
            base.read_ahead();
        }
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn unlock(&self) -> io::Result<()> {
        Ok(())
    }
}
