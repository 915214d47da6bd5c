//! A chunk: rows that moved out of the window together, and the bytes that they are in `backlog.redb`.
//!
//! Owns the form of a chunk's parts and of its summary's envelope, and what is asked and answered about them. The
//! file is `backlog`'s; what a summary says is the broker's.
//!
//! A part, little-endian. The first part's payload begins with the summary, as its length (u32) and its bytes; then, and in
//! all other parts, follow whole row pieces (layout: `row`), keys ascending over all parts.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `GWBC` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 1 | zero |
//! | 6 | 2 | index of this part |
//! | 8 | 2 | parts of the chunk |
//! | 10 | 2 | zero |
//! | 12 | 8 | number of the chunk |
//! | 20 | 4 | payload bytes |
//! | 24 | 4 | CRC-32 of bytes 0 to 23 and the payload |
//! | 28 | | payload |

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use bytes::Bytes;

use super::batch::Place;
use super::fields::{u16_at, u32_at, u64_at};
use super::row::{Assembled, Assembler, Piece};
use crate::ids::{ChunkNumber, RowKey};

/// Bytes of a part at most: with redb's overhead for a leaf of one entry it fills a run of sixteen pages.
pub(super) const PART_BYTES_MAX: usize = 65_536 - 64;

/// Bytes of encoded rows that make a chunk of one part, its summary being short.
pub const CHUNK_BYTES: usize = PART_BYTES_MAX - 512;

/// Bytes before a part's payload.
pub(super) const PART_HEADER_BYTES: usize = 28;

/// Newest format of a part that is read, and the one that is written.
pub(super) const PART_VERSION: u8 = 1;

const MAGIC: [u8; 4] = *b"GWBC";

/// Rows that are to become a chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkPlan {
    pub number: ChunkNumber,
    /// What a start needs to know about it; not read here.
    pub summary: Vec<u8>,
    /// Rows of the window, keys ascending.
    pub rows: Vec<Place>,
}

/// What is to change in the backlog, in one synced step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BacklogChange {
    pub add: Vec<ChunkPlan>,
    /// New summaries of chunks that are there.
    pub restate: Vec<(ChunkNumber, Vec<u8>)>,
    pub remove: Vec<ChunkNumber>,
}

/// What was changed; it is on flash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BacklogChanged {
    /// Chunks that were added, with what each takes of the quota. A plan with a row that the window does not hold
    /// any more, or that does not verify, is left out.
    pub added: Vec<(ChunkNumber, u64)>,
    /// Bytes handed to the disk.
    pub bytes_written: u64,
}

/// Which rows of a chunk are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkRead {
    pub number: ChunkNumber,
    /// From this key on.
    pub from: RowKey,
    /// Rows are read until they have so many bytes; at least one is.
    pub bytes_max: usize,
}

/// Rows of a chunk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChunkRows {
    /// Place, kind, body; keys ascending.
    pub rows: Vec<(Place, u8, Vec<u8>)>,
    /// Where to go on; `None` at the end of the chunk.
    pub next: Option<RowKey>,
    /// Some of it did not verify, or is not there: rows may be missing.
    pub damaged: bool,
}

/// A part, read in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartView<'a> {
    pub(super) number: ChunkNumber,
    pub(super) index: u16,
    pub(super) parts: u16,
    payload: &'a [u8],
}

impl<'a> PartView<'a> {
    /// Reads a part. `None` when it does not verify.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.first_chunk::<4>() != Some(&MAGIC) || *bytes.get(4)? != PART_VERSION {
            return None;
        }
        let payload = bytes.get(PART_HEADER_BYTES..)?;
        if payload.len() != usize::try_from(u32_at(bytes, 20)?).ok()? {
            return None;
        }
        if crc(bytes.get(..24)?, payload) != u32_at(bytes, 24)? {
            return None;
        }
        Some(Self {
            number: ChunkNumber(u64_at(bytes, 12)?),
            index: u16_at(bytes, 6)?,
            parts: u16_at(bytes, 8)?,
            payload,
        })
    }

    /// The summary that the chunk was made with. `None` when this is not the first part.
    pub(super) fn summary(&self) -> Option<&'a [u8]> {
        if self.index != 0 {
            return None;
        }
        let len = usize::try_from(u32_at(self.payload, 0)?).ok()?;
        self.payload.get(4..)?.get(..len)
    }

    /// The row pieces.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Piece<'a>> + use<'a> {
        let skipped = self.summary().map_or(0, |summary| summary.len().saturating_add(4));
        let mut rest = self.payload.get(skipped..).unwrap_or_default();
        std::iter::from_fn(move || {
            let piece = Piece::read(rest)?;
            rest = rest.get(piece.len..)?;
            Some(piece)
        })
    }
}

/// The parts of a chunk of these encoded pieces. `None` when there are too many.
pub(super) fn encode(number: ChunkNumber, summary: &[u8], pieces: &[Bytes]) -> Option<Vec<Vec<u8>>> {
    let mut payloads = Vec::new();
    let mut payload = Vec::new();
    payload.extend_from_slice(&u32::try_from(summary.len()).ok()?.to_le_bytes());
    payload.extend_from_slice(summary);
    for piece in pieces {
        let len = payload.len().saturating_add(piece.len());
        if len.saturating_add(PART_HEADER_BYTES) > PART_BYTES_MAX && !payload.is_empty() {
            payloads.push(std::mem::take(&mut payload));
        }
        payload.extend_from_slice(piece);
    }
    payloads.push(payload);
    let parts = u16::try_from(payloads.len()).ok()?;
    let mut encoded = Vec::with_capacity(payloads.len());
    for (index, payload) in (0..parts).zip(payloads) {
        let mut part = Vec::with_capacity(PART_HEADER_BYTES.saturating_add(payload.len()));
        part.extend_from_slice(&MAGIC);
        part.extend_from_slice(&[PART_VERSION, 0]);
        part.extend_from_slice(&index.to_le_bytes());
        part.extend_from_slice(&parts.to_le_bytes());
        part.extend_from_slice(&[0, 0]);
        part.extend_from_slice(&number.0.to_le_bytes());
        part.extend_from_slice(&u32::try_from(payload.len()).ok()?.to_le_bytes());
        part.extend_from_slice(&crc(&part, &payload).to_le_bytes());
        part.extend_from_slice(&payload);
        encoded.push(part);
    }
    Some(encoded)
}

/// Takes rows out of a chunk's parts until there are enough.
#[derive(Debug)]
pub(super) struct RowReader {
    read: ChunkRead,
    bytes: usize,
    assembler: Assembler,
    pub(super) found: ChunkRows,
}

impl RowReader {
    pub(super) fn new(read: ChunkRead) -> Self {
        Self { read, bytes: 0, assembler: Assembler::default(), found: ChunkRows::default() }
    }

    /// Takes the next part. False when there is enough.
    pub(super) fn take(&mut self, part: &PartView<'_>) -> bool {
        for piece in part.pieces() {
            let (assembled, broken) = self.assembler.push(&piece);
            self.found.damaged |= broken.is_some();
            let (place, kind, body) = match assembled {
                Assembled::Single(place, kind, body) => (place, kind, body.to_vec()),
                Assembled::Whole(place, kind, body) => (place, kind, body),
                Assembled::Nothing => continue,
                Assembled::Orphan => {
                    self.found.damaged = true;
                    continue;
                }
            };
            if place.key < self.read.from {
                continue;
            }
            if self.bytes >= self.read.bytes_max && !self.found.rows.is_empty() {
                self.found.next = Some(place.key);
                return false;
            }
            self.bytes = self.bytes.saturating_add(body.len());
            self.found.rows.push((place, kind, body));
        }
        true
    }

    /// A part is missing or does not verify.
    pub(super) fn skip(&mut self) {
        self.found.damaged = true;
        // A row that lies across it is lost.
        self.assembler = Assembler::default();
    }

    /// All parts were taken.
    pub(super) fn finish(mut self) -> ChunkRows {
        self.found.damaged |= self.found.next.is_none() && self.assembler.give_up().is_some();
        self.found
    }
}

/// What a value of `len` bytes takes of the file: single pages are shared and filled by half at worst, longer values have
/// a run of pages whose number is a power of two.
pub(super) fn charge(len: usize) -> u64 {
    const PAGE: u64 = super::disk::PAGE;
    let len = len as u64;
    if len <= PAGE / 4 {
        return len.saturating_mul(2).saturating_add(32);
    }
    let pages = len.saturating_add(32).div_ceil(PAGE);
    pages.checked_next_power_of_two().unwrap_or(pages).saturating_mul(PAGE)
}

fn crc(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a panic is what a wrong test should do"
)]
mod tests {
    use super::super::row;
    use super::*;

    fn pieces(count: u64, len: usize) -> Vec<Bytes> {
        (1..=count).map(|key| row::encode(1, RowKey(key * 3), 0, 1, &vec![7; len]).into()).collect()
    }

    fn read(parts: &[Vec<u8>], from: u64, bytes_max: usize) -> ChunkRows {
        let mut reader = RowReader::new(ChunkRead { number: ChunkNumber(9), from: RowKey(from), bytes_max });
        for part in parts {
            match PartView::read(part) {
                Some(view) if !reader.take(&view) => break,
                Some(_) => {}
                None => reader.skip(),
            }
        }
        reader.finish()
    }

    #[test]
    fn rows_come_back_in_bites_from_any_key() {
        let parts = encode(ChunkNumber(9), b"summary", &pieces(1000, 200)).unwrap();
        assert!(parts.len() > 1 && parts.iter().all(|part| part.len() <= PART_BYTES_MAX));
        assert_eq!(PartView::read(&parts[0]).unwrap().summary(), Some(&b"summary"[..]));
        let (mut from, mut keys) = (0, Vec::new());
        loop {
            let found = read(&parts, from, 10_000);
            assert!(!found.damaged && found.rows.len() == 50);
            keys.extend(found.rows.iter().map(|(place, ..)| place.key.0));
            let Some(next) = found.next else { break };
            from = next.0;
        }
        assert_eq!(keys, (1..=1000).map(|key| key * 3).collect::<Vec<_>>());
    }

    #[test]
    fn a_damaged_part_costs_its_rows_only() {
        let mut parts = encode(ChunkNumber(9), b"", &pieces(1000, 200)).unwrap();
        let whole = read(&parts, 0, usize::MAX).rows.len();
        parts[1][5000] ^= 1;
        let found = read(&parts, 0, usize::MAX);
        assert!(found.damaged && found.rows.len() < whole && found.rows.len() > whole / 2);
    }
}
