//! The journal file: where a batch is made durable with one write and one sync.
//!
//! Owns the file's pages, the write position, the header slots and the scan after a start. What a record means is
//! `record`'s, what becomes of damaged ones is `recovery`'s.
//!
//! Records follow each other from page 2. When all of them are applied to the row log the position returns to page 2;
//! what an earlier lap left behind is told apart by its numbers, which are not above the last applied one. A page is
//! never rewritten before its record is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::counted::{Counted, Counters};
use super::disk::{self, Disk, PAGE, PAGE_BYTES};
use super::page::{RecordPage, RecordWriter, Slot, SlotPage};
use crate::ids::BatchNumber;

/// Name of the file.
pub(super) const JOURNAL: &str = "gateway.journal";

/// Pages before the first record: the two header slots.
const FIRST_PAGE: u64 = 2;

/// Bytes read or written at once when the whole file is gone through.
const CHUNK_BYTES: usize = 64 * PAGE_BYTES;

/// The open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: Counted,
    pages: u64,
    position: u64,
    slot: Slot,
    pub(super) writer: RecordWriter,
}

/// A journal as found at a start.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) journal: Journal,
    pub(super) slots: Slots,
    pub(super) scan: Scan,
}

/// What the two header slots told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slots {
    /// The newest slot is known for sure.
    Sure,
    /// One slot is damaged; the other may be one write behind.
    OneDamaged,
    /// Nothing is known.
    BothDamaged,
    /// A newer version wrote them.
    TooNew(u8),
}

/// Every record page that verifies.
#[derive(Debug, Default)]
pub(super) struct Scan {
    heads: BTreeMap<u64, RecordPage>,
    complete: BTreeMap<BatchNumber, u64>,
    unreadable: BTreeSet<u64>,
}

impl Journal {
    /// Makes a new, zero-filled journal in place of whatever has its name.
    pub(super) fn create(
        disk: &dyn Disk,
        bytes: u64,
        slot: Slot,
        counters: &Arc<Counters>,
    ) -> io::Result<Self> {
        let fresh = format!("{JOURNAL}.new");
        disk.remove(&fresh)?;
        let file = Counted::new(disk::create(disk, &fresh)?, counters);
        let pages = (bytes / PAGE).max(FIRST_PAGE + 1);
        let slot = Slot { pages: u32::try_from(pages).unwrap_or(u32::MAX), ..slot };
        fill_with_zeros(&file, 0, pages * PAGE)?;
        file.write((slot.sequence & 1) * PAGE, &slot.to_page())?;
        file.sync_data()?;
        disk.rename(&fresh, JOURNAL)?;
        disk.sync_folder()?;
        Ok(Self { file, pages, position: FIRST_PAGE, slot, writer: RecordWriter::default() })
    }

    /// Opens the file and reads all of it. `None` when it is missing.
    pub(super) fn open(disk: &dyn Disk, counters: &Arc<Counters>) -> io::Result<Option<Found>> {
        let Some(file) = disk.open(JOURNAL, false)? else {
            return Ok(None);
        };
        // After a failed sync the cache may show what the medium does not hold.
        file.drop_cache()?;
        let file = Counted::new(file, counters);
        let pages = file.file().len()? / PAGE;
        let (slot, slots) = read_slots(&file, pages);
        let scan = Scan::read(&file, pages)?;
        let journal = Self { file, pages, position: FIRST_PAGE, slot, writer: RecordWriter::default() };
        Ok(Some(Found { journal, slots, scan }))
    }

    /// The newest header slot.
    pub(super) const fn slot(&self) -> Slot {
        self.slot
    }

    /// Pages that one record may take at most.
    pub(super) const fn capacity_pages(&self) -> u64 {
        self.pages.saturating_sub(FIRST_PAGE)
    }

    /// Pages free before everything must be applied.
    pub(super) const fn room_pages(&self) -> u64 {
        self.pages.saturating_sub(self.position)
    }

    /// Bytes of records that are not applied.
    pub(super) const fn used_bytes(&self) -> u64 {
        (self.position - FIRST_PAGE) * PAGE
    }

    /// The page that the next record begins at.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of the file.
    pub(super) const fn file_bytes(&self) -> u64 {
        self.pages * PAGE
    }

    /// Writes the record that [`Journal::writer`] holds and syncs. The caller made sure that it fits.
    pub(super) fn append(&mut self, number: BatchNumber) -> io::Result<()> {
        let too_long = || io::Error::other("a record longer than the journal");
        let record = self.writer.finish(number).ok_or_else(too_long)?;
        let pages = record.len() as u64 / PAGE;
        if pages > self.pages.saturating_sub(self.position) {
            return Err(too_long());
        }
        self.file.write(self.position * PAGE, record)?;
        self.file.sync_data()?;
        self.position += pages;
        Ok(())
    }

    /// Starts the next lap: everything is applied.
    pub(super) const fn restart(&mut self) {
        self.position = FIRST_PAGE;
    }

    /// Continues after the record whose last page is before `position`.
    pub(super) const fn continue_at(&mut self, position: u64) {
        self.position = position;
    }

    /// Writes a header slot over the older one and syncs. Also makes durable what a failed sync left in doubt.
    pub(super) fn write_slot(&mut self, slot: Slot) -> io::Result<()> {
        let pages = u32::try_from(self.pages).unwrap_or(u32::MAX);
        let slot = Slot { sequence: self.slot.sequence + 1, pages, ..slot };
        self.file.write((slot.sequence & 1) * PAGE, &slot.to_page())?;
        self.file.sync_data()?;
        self.slot = slot;
        Ok(())
    }

    /// Brings the journal to `bytes`; only while no record in it is needed. Takes effect with the next header slot;
    /// [`Journal::trim`] cuts off what is too much after that.
    pub(super) fn resize(&mut self, bytes: u64) -> io::Result<()> {
        let pages = (bytes / PAGE).max(FIRST_PAGE + 1);
        if pages > self.pages {
            fill_with_zeros(&self.file, self.pages * PAGE, pages * PAGE)?;
            self.file.sync_data()?;
        }
        self.pages = pages;
        Ok(())
    }

    /// Cuts off what lies past the journal's size.
    pub(super) fn trim(&self) -> io::Result<()> {
        if self.file.file().len()? > self.file_bytes() {
            self.file.file().set_len(self.file_bytes())?;
        }
        Ok(())
    }

    /// The payload of the complete record at page `first`, with the page after it. `None` when it does not verify
    /// after all.
    pub(super) fn read_record(&self, first: u64, head: &RecordPage) -> io::Result<Option<(Vec<u8>, u64)>> {
        let mut payload = Vec::new();
        let mut page = vec![0; PAGE_BYTES];
        for index in 0..u64::from(head.pages) {
            self.file.read((first + index) * PAGE, &mut page)?;
            match RecordPage::read(&page) {
                Some((found, bytes)) if found.same_record(head) => payload.extend_from_slice(bytes),
                _ => return Ok(None),
            }
        }
        let whole = payload.len() as u64 == u64::from(head.payload_len)
            && crc32fast::hash(&payload) == head.payload_crc;
        Ok(whole.then_some((payload, first + u64::from(head.pages))))
    }

    /// The payload in one page of a record, and the record it belongs to. `None` when it does not verify.
    pub(super) fn read_page(&self, page: u64) -> io::Result<Option<(RecordPage, Vec<u8>)>> {
        let mut bytes = vec![0; PAGE_BYTES];
        self.file.read(page * PAGE, &mut bytes)?;
        Ok(RecordPage::read(&bytes).map(|(head, payload)| (head, payload.to_vec())))
    }

    /// Forgets the cached pages, so that the next open reads the medium.
    pub(super) fn drop_cache(&self) -> io::Result<()> {
        self.file.file().drop_cache()
    }
}

impl Scan {
    fn read(file: &Counted, pages: u64) -> io::Result<Self> {
        let mut scan = Self::default();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut first = FIRST_PAGE;
        while first < pages {
            let count = (pages - first).min((CHUNK_BYTES / PAGE_BYTES) as u64);
            let bytes = chunk.get_mut(..usize::try_from(count * PAGE).unwrap_or(0)).unwrap_or_default();
            let readable = file.read(first * PAGE, bytes);
            for (index, page) in (first..).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
                // A page that the medium cannot read costs that page, not the start.
                let read = if readable.is_ok() { Ok(()) } else { file.read(index * PAGE, page) };
                scan.take(index, if read.is_ok() { Some(page) } else { None });
            }
            first += count;
        }
        scan.find_complete();
        Ok(scan)
    }

    /// Complete records above `applied`, in order, with their first pages.
    pub(super) fn above(&self, applied: BatchNumber) -> impl Iterator<Item = (BatchNumber, u64, RecordPage)> {
        self.complete
            .range(applied.next()..)
            .filter_map(|(&number, &first)| Some((number, first, *self.heads.get(&first)?)))
    }

    /// The lowest number that any complete record of the current lap has: of those from the first page on.
    pub(super) fn first_of_lap(&self) -> Option<BatchNumber> {
        self.heads.get(&FIRST_PAGE).filter(|head| head.index == 0).map(|head| head.number)
    }

    /// Pages that belong to an incomplete record `number`, by their index in it.
    pub(super) fn pages_of_incomplete(&self, number: BatchNumber) -> Vec<u64> {
        self.heads.iter().filter(|(_, head)| head.number == number).map(|(&page, _)| page).collect()
    }

    /// Numbers above `applied` of which there are pages but no complete record.
    pub(super) fn incomplete_above(&self, applied: BatchNumber) -> BTreeSet<BatchNumber> {
        let numbers = self.heads.values().map(|head| head.number);
        numbers.filter(|number| *number > applied && !self.complete.contains_key(number)).collect()
    }

    /// True when there is a whole record of this batch.
    pub(super) fn is_complete(&self, number: BatchNumber) -> bool {
        self.complete.contains_key(&number)
    }

    /// True when the page holds something that is neither a record page nor blank.
    pub(super) fn is_unreadable(&self, page: u64) -> bool {
        self.unreadable.contains(&page)
    }

    fn take(&mut self, index: u64, page: Option<&mut [u8]>) {
        match page.as_deref().map(|page| (RecordPage::read(page), page)) {
            Some((Some((head, _)), _)) => {
                self.heads.insert(index, head);
            }
            Some((None, page)) if page.iter().all(|&byte| byte == 0) => {}
            _ => {
                self.unreadable.insert(index);
            }
        }
    }

    fn find_complete(&mut self) {
        for (&first, head) in self.heads.iter().filter(|(_, head)| head.index == 0) {
            let whole = (1..head.pages).all(|index| {
                let page = self.heads.get(&(first + u64::from(index)));
                page.is_some_and(|page| page.index == index && page.same_record(head))
            });
            if whole {
                // The lap begins at the first page, so of two the one in front is the newer.
                self.complete.entry(head.number).or_insert(first);
            }
        }
    }
}

fn read_slots(file: &Counted, pages: u64) -> (Slot, Slots) {
    let read = |index: u64| {
        let mut page = vec![0; PAGE_BYTES];
        if index >= pages || file.read(index * PAGE, &mut page).is_err() {
            return SlotPage::Damaged;
        }
        Slot::read(&page)
    };
    match (read(0), read(1)) {
        (SlotPage::TooNew(version), _) | (_, SlotPage::TooNew(version)) => {
            (Slot::default(), Slots::TooNew(version))
        }
        (SlotPage::Valid(a), SlotPage::Valid(b)) => {
            (if a.sequence > b.sequence { a } else { b }, Slots::Sure)
        }
        (SlotPage::Valid(slot), SlotPage::Blank) | (SlotPage::Blank, SlotPage::Valid(slot)) => {
            (slot, Slots::Sure)
        }
        (SlotPage::Valid(slot), SlotPage::Damaged) | (SlotPage::Damaged, SlotPage::Valid(slot)) => {
            (slot, Slots::OneDamaged)
        }
        _ => (Slot::default(), Slots::BothDamaged),
    }
}

fn fill_with_zeros(file: &Counted, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; CHUNK_BYTES];
    let mut at = from;
    while at < to {
        let len = (to - at).min(CHUNK_BYTES as u64);
        file.write(at, zeros.get(..usize::try_from(len).unwrap_or(0)).unwrap_or_default())?;
        at += len;
    }
    Ok(())
}
