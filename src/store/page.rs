//! The form of the journal's pages. No I/O here.
//!
//! The journal is a run of 4 KiB pages. Pages 0 and 1 are header slots; from page 2 on lie records, each a run of
//! record pages. Every record page starts with a header of its own, so that no byte that a peer sent ever stands
//! where a header is looked for, and has a checksum of its own, so that damage costs one page.
//!
//! A record page, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `GWJP` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 1 | zero |
//! | 6 | 2 | payload bytes in this page, at most 4 056 |
//! | 8 | 8 | batch number |
//! | 16 | 4 | index of this page in its record |
//! | 20 | 4 | pages of the record |
//! | 24 | 4 | payload bytes of the record |
//! | 28 | 4 | CRC-32 of the record's payload |
//! | 32 | 4 | zero |
//! | 36 | 4 | CRC-32 of bytes 0 to 35 and the payload bytes of this page |
//! | 40 | | payload; what is left of the page is zero |
//!
//! A header slot, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `GWJH` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 1 | 1 after a clean stop, else 0 |
//! | 6 | 2 | zero |
//! | 8 | 8 | sequence; the valid slot with the higher one counts |
//! | 16 | 4 | boot count |
//! | 20 | 4 | pages of the file |
//! | 24 | 8 | last batch known to be applied when the slot was written |
//! | 32 | 8 | bytes that live rows were charged then |
//! | 40 | 20 | zero |
//! | 60 | 4 | CRC-32 of bytes 0 to 59 |

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::disk::PAGE_BYTES;
use super::fields::{u16_at, u32_at, u64_at};
use crate::ids::BatchNumber;

/// Newest journal format that is read, and the one that is written.
pub(super) const JOURNAL_VERSION: u8 = 1;

/// Bytes before the payload of a record page.
pub(super) const RECORD_HEADER_BYTES: usize = 40;

/// Payload bytes of a full record page.
pub(super) const PAGE_PAYLOAD_BYTES: usize = PAGE_BYTES - RECORD_HEADER_BYTES;

const RECORD_MAGIC: [u8; 4] = *b"GWJP";
const SLOT_MAGIC: [u8; 4] = *b"GWJH";
const SLOT_BYTES: usize = 64;

/// What the header of a record page says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordPage {
    pub(super) number: BatchNumber,
    pub(super) index: u32,
    pub(super) pages: u32,
    pub(super) payload_len: u32,
    pub(super) payload_crc: u32,
    pub(super) used: u16,
}

impl RecordPage {
    /// Reads a page and its payload. `None` when it is no record page or does not verify.
    pub(super) fn read(page: &[u8]) -> Option<(Self, &[u8])> {
        if page.first_chunk::<4>() != Some(&RECORD_MAGIC) || *page.get(4)? != JOURNAL_VERSION {
            return None;
        }
        let used = u16_at(page, 6)?;
        let end = RECORD_HEADER_BYTES.checked_add(usize::from(used))?;
        let payload = page.get(RECORD_HEADER_BYTES..end)?;
        if page_crc(page.get(..36)?, payload) != u32_at(page, 36)? {
            return None;
        }
        let header = Self {
            number: BatchNumber(u64_at(page, 8)?),
            index: u32_at(page, 16)?,
            pages: u32_at(page, 20)?,
            payload_len: u32_at(page, 24)?,
            payload_crc: u32_at(page, 28)?,
            used,
        };
        (header.index < header.pages).then_some((header, payload))
    }

    /// True when both pages belong to the same write of the same record.
    pub(super) fn same_record(&self, other: &Self) -> bool {
        (self.number, self.pages, self.payload_len, self.payload_crc)
            == (other.number, other.pages, other.payload_len, other.payload_crc)
    }

    /// Writes the header into a page whose payload is in place already.
    fn write(&self, page: &mut [u8]) {
        let used = usize::from(self.used);
        let Some((header, rest)) = page.split_at_mut_checked(RECORD_HEADER_BYTES) else {
            return;
        };
        let mut bytes = Vec::with_capacity(RECORD_HEADER_BYTES);
        bytes.extend_from_slice(&RECORD_MAGIC);
        bytes.extend_from_slice(&[JOURNAL_VERSION, 0]);
        bytes.extend_from_slice(&self.used.to_le_bytes());
        bytes.extend_from_slice(&self.number.0.to_le_bytes());
        for field in [self.index, self.pages, self.payload_len, self.payload_crc, 0] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let crc = page_crc(&bytes, rest.get(..used).unwrap_or_default());
        bytes.extend_from_slice(&crc.to_le_bytes());
        header.copy_from_slice(&bytes);
    }
}

/// Lays a record out in pages. The buffer is kept from record to record.
#[derive(Debug, Default)]
pub(super) struct RecordWriter {
    pages: Vec<u8>,
    payload_len: usize,
    crc: crc32fast::Hasher,
}

/// A writer that grew past this gives its memory back: one large batch should not cost it for good.
const KEEP_BYTES: usize = 256 * 1024;

impl RecordWriter {
    /// Starts a new record.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.pages.shrink_to(KEEP_BYTES);
        self.payload_len = 0;
        self.crc = crc32fast::Hasher::new();
    }

    /// Appends payload.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        self.crc.update(bytes);
        self.payload_len = self.payload_len.saturating_add(bytes.len());
        while !bytes.is_empty() {
            let in_page = self.pages.len().checked_rem(PAGE_BYTES).unwrap_or(0);
            if in_page == 0 {
                self.pages.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
                continue;
            }
            let room = PAGE_BYTES.saturating_sub(in_page).min(bytes.len());
            let (now, later) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            self.pages.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Writes the page headers and hands out the record, whole pages. `None` when it is empty or too long to
    /// describe.
    pub(super) fn finish(&mut self, number: BatchNumber) -> Option<&[u8]> {
        let payload_len = u32::try_from(self.payload_len).ok()?;
        let payload_crc = self.crc.clone().finalize();
        self.pages.resize(self.pages.len().next_multiple_of(PAGE_BYTES), 0);
        let pages = u32::try_from(self.pages.len().checked_div(PAGE_BYTES)?).ok()?;
        let mut left = self.payload_len;
        for (index, page) in (0..pages).zip(self.pages.chunks_exact_mut(PAGE_BYTES)) {
            let used = left.min(PAGE_PAYLOAD_BYTES);
            left = left.saturating_sub(used);
            let used = u16::try_from(used).ok()?;
            RecordPage { number, index, pages, payload_len, payload_crc, used }.write(page);
        }
        (pages > 0).then_some(&self.pages)
    }
}

/// Pages that a record with this much payload takes.
pub(super) const fn pages_of(payload_len: usize) -> u64 {
    payload_len.div_ceil(PAGE_PAYLOAD_BYTES) as u64
}

/// What a header slot says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Slot {
    pub(super) sequence: u64,
    pub(super) clean: bool,
    pub(super) boot: u32,
    pub(super) pages: u32,
    pub(super) applied: BatchNumber,
    pub(super) charged: u64,
}

/// A slot's page, as read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotPage {
    Valid(Slot),
    /// Never written.
    Blank,
    Damaged,
    /// Whole, but of a newer format.
    TooNew(u8),
}

impl Slot {
    /// Reads a slot's page. Whatever the version, the magic, the version byte and the checksum stay in place.
    pub(super) fn read(page: &[u8]) -> SlotPage {
        Self::parse(page).unwrap_or(SlotPage::Damaged)
    }

    fn parse(page: &[u8]) -> Option<SlotPage> {
        let bytes = page.get(..SLOT_BYTES)?;
        if bytes.iter().all(|&b| b == 0) {
            return Some(SlotPage::Blank);
        }
        let crc = crc32fast::hash(bytes.get(..60)?);
        if bytes.first_chunk::<4>() != Some(&SLOT_MAGIC) || u32_at(bytes, 60)? != crc {
            return None;
        }
        let version = *bytes.get(4)?;
        if version > JOURNAL_VERSION {
            return Some(SlotPage::TooNew(version));
        }
        Some(SlotPage::Valid(Self {
            sequence: u64_at(bytes, 8)?,
            clean: *bytes.get(5)? == 1,
            boot: u32_at(bytes, 16)?,
            pages: u32_at(bytes, 20)?,
            applied: BatchNumber(u64_at(bytes, 24)?),
            charged: u64_at(bytes, 32)?,
        }))
    }

    /// The slot as a whole page.
    pub(super) fn to_page(self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        page.extend_from_slice(&SLOT_MAGIC);
        page.extend_from_slice(&[JOURNAL_VERSION, u8::from(self.clean), 0, 0]);
        page.extend_from_slice(&self.sequence.to_le_bytes());
        page.extend_from_slice(&self.boot.to_le_bytes());
        page.extend_from_slice(&self.pages.to_le_bytes());
        page.extend_from_slice(&self.applied.0.to_le_bytes());
        page.extend_from_slice(&self.charged.to_le_bytes());
        page.resize(60, 0);
        let crc = crc32fast::hash(&page);
        page.extend_from_slice(&crc.to_le_bytes());
        page.resize(PAGE_BYTES, 0);
        page
    }
}

fn page_crc(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_page_by_page() {
        let mut writer = RecordWriter::default();
        for len in [1, 15, PAGE_PAYLOAD_BYTES, PAGE_PAYLOAD_BYTES + 1, 20_000] {
            let payload: Vec<u8> = (0..=250u8).cycle().take(len).collect();
            writer.clear();
            for chunk in payload.chunks(777) {
                writer.push(chunk);
            }
            let record = writer.finish(BatchNumber(9)).unwrap();
            assert_eq!(record.len() as u64, pages_of(len) * PAGE_BYTES as u64);
            let mut back = Vec::new();
            let mut first = None;
            for page in record.chunks(PAGE_BYTES) {
                let (header, bytes) = RecordPage::read(page).unwrap();
                assert!(first.get_or_insert(header).same_record(&header));
                back.extend_from_slice(bytes);
            }
            assert_eq!(back, payload);
            assert_eq!(first.map(|h| h.payload_crc), Some(crc32fast::hash(&payload)));
        }
    }

    #[test]
    fn a_flipped_byte_of_a_slot_or_a_page_is_noticed() {
        let slot =
            Slot { sequence: 5, clean: true, boot: 3, pages: 1024, applied: BatchNumber(77), charged: 4096 };
        let page = slot.to_page();
        assert_eq!(Slot::read(&page), SlotPage::Valid(slot));
        assert_eq!(Slot::read(&[0; PAGE_BYTES]), SlotPage::Blank);
        for at in 0..SLOT_BYTES {
            let mut damaged = page.clone();
            if let Some(byte) = damaged.get_mut(at) {
                *byte ^= 1;
            }
            assert_eq!(Slot::read(&damaged), SlotPage::Damaged, "byte {at}");
        }
        let mut writer = RecordWriter::default();
        writer.push(&[7; 100]);
        let record = writer.finish(BatchNumber(1)).unwrap().to_vec();
        for at in 0..140 {
            let mut damaged = record.clone();
            if let Some(byte) = damaged.get_mut(at) {
                *byte ^= 1;
            }
            assert_eq!(RecordPage::read(&damaged), None, "byte {at}");
        }
    }
}
