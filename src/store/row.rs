//! The form of a stored row, wherever it lies: in the journal, in redb, in a damaged file.
//!
//! Owns the bytes of one piece, how a body is cut into pieces and put together again, and what a row is charged.
//! Leaves the meaning of kind and body to `broker`.
//!
//! One piece, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | magic `gR` |
//! | 2 | 1 | format version, 1 |
//! | 3 | 1 | kind |
//! | 4 | 8 | key of this piece |
//! | 12 | 2 | head: number of pieces, 1 to 32 767; continuation: 0x8000 + its index |
//! | 14 | 2 | body bytes in this piece, at most 3 900 |
//! | 16 | 4 | CRC-32 (IEEE) of bytes 0 to 15 and the body |
//! | 20 | | body |

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::batch::Place;
use super::disk::PAGE_BYTES;
use super::fields::{u16_at, u32_at, u64_at};
use crate::ids::RowKey;
use crate::limits::ROW_BYTES_MAX;

/// Bytes before the body of a piece.
pub const PIECE_HEADER_BYTES: usize = 20;

/// Most pieces of one row: the count shares its field with the continuation mark.
pub const PIECES_MAX: usize = 0x7fff;

/// Newest row format that is read, and the one that is written.
pub(super) const ROW_VERSION: u8 = 1;

const MAGIC: [u8; 2] = *b"gR";
const CONTINUATION: u16 = 0x8000;

/// Bytes of a redb leaf page that entries share, and what one entry costs besides its value: an eight-byte key and
/// a four-byte offset.
const LEAF_BYTES: usize = PAGE_BYTES - 4;
const LEAF_ENTRY_BYTES: usize = 12;

/// One piece, read in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece<'a> {
    pub(super) kind: u8,
    pub(super) key: RowKey,
    pub(super) part: Part,
    pub(super) body: &'a [u8],
    /// Bytes of the whole piece.
    pub(super) len: usize,
}

/// Which piece of its row it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// The first; carries the number of pieces.
    Head(u16),
    /// A later one; carries its index from 1.
    Continuation(u16),
}

impl<'a> Piece<'a> {
    /// Reads the piece at the front of `bytes`, which may be longer. `None` when it does not verify.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.first_chunk::<2>() != Some(&MAGIC) || *bytes.get(2)? != ROW_VERSION {
            return None;
        }
        let body_len = usize::from(u16_at(bytes, 14)?);
        if body_len > ROW_BYTES_MAX {
            return None;
        }
        let len = PIECE_HEADER_BYTES.checked_add(body_len)?;
        let body = bytes.get(PIECE_HEADER_BYTES..len)?;
        if crc(bytes.get(..16)?, body) != u32_at(bytes, 16)? {
            return None;
        }
        let part = match u16_at(bytes, 12)? {
            0 | CONTINUATION => return None,
            mark if mark & CONTINUATION != 0 => Part::Continuation(mark & !CONTINUATION),
            count => Part::Head(count),
        };
        Some(Self { kind: *bytes.get(3)?, key: RowKey(u64_at(bytes, 4)?), part, body, len })
    }
}

/// Number of pieces that a body of `body_len` bytes takes.
#[must_use]
pub const fn pieces_of(body_len: usize) -> usize {
    if body_len == 0 { 1 } else { body_len.div_ceil(ROW_BYTES_MAX) }
}

/// Encodes piece `index` of `count` under `key` behind what `out` holds.
pub(super) fn encode_onto(out: &mut Vec<u8>, kind: u8, key: RowKey, index: u16, count: u16, body: &[u8]) {
    debug_assert!(body.len() <= ROW_BYTES_MAX, "the caller cuts bodies into pieces");
    out.reserve(PIECE_HEADER_BYTES.saturating_add(body.len()));
    let begin = out.len();
    out.extend_from_slice(&MAGIC);
    out.push(ROW_VERSION);
    out.push(kind);
    out.extend_from_slice(&key.0.to_le_bytes());
    let mark = if index == 0 { count } else { CONTINUATION | index };
    out.extend_from_slice(&mark.to_le_bytes());
    out.extend_from_slice(&u16::try_from(body.len()).unwrap_or(u16::MAX).to_le_bytes());
    let sum = crc(out.get(begin..).unwrap_or_default(), body);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(body);
}

/// The same piece by itself.
#[cfg(test)]
pub(super) fn encode(kind: u8, key: RowKey, index: u16, count: u16, body: &[u8]) -> Vec<u8> {
    let mut piece = Vec::new();
    encode_onto(&mut piece, kind, key, index, count, body);
    piece
}

/// What a row with a body of `body_len` bytes is charged against the quota: its share of full leaf pages, in bytes.
///
/// A piece takes 4096 / (pieces that fit one leaf) bytes, so that one of 2.1 KB is charged a whole page; every piece of
/// a row of several is charged a whole page, because its neighbours leave no room beside it.
#[must_use]
pub const fn stored_bytes(body_len: usize) -> u64 {
    if body_len > ROW_BYTES_MAX {
        return pieces_of(body_len).saturating_mul(PAGE_BYTES) as u64;
    }
    piece_charge(body_len.saturating_add(PIECE_HEADER_BYTES))
}

/// What an encoded piece is charged, so that the pieces of a row add up to [`stored_bytes`].
pub(super) fn charge(piece: &[u8]) -> u64 {
    if u16_at(piece, 12) == Some(1) { piece_charge(piece.len()) } else { PAGE_BYTES as u64 }
}

/// The same for a piece of `len` bytes that was read.
pub(super) const fn charge_of(part: Part, len: usize) -> u64 {
    if matches!(part, Part::Head(1)) { piece_charge(len) } else { PAGE_BYTES as u64 }
}

/// What a piece of `len` bytes that is a row of its own is charged.
const fn piece_charge(len: usize) -> u64 {
    let entry = len.saturating_add(LEAF_ENTRY_BYTES);
    let in_leaf = match LEAF_BYTES.checked_div(entry) {
        Some(n) if n > 0 => n,
        _ => 1,
    };
    PAGE_BYTES.div_ceil(in_leaf) as u64
}

/// The pieces among these, ascending by key, that belong to no whole row.
pub(super) fn fragments(pieces: impl Iterator<Item = (RowKey, Part)>) -> Vec<RowKey> {
    let mut fragments = Vec::new();
    let mut open: Vec<RowKey> = Vec::new();
    let mut wanted = 0usize;
    for (key, part) in pieces {
        let continues = match part {
            Part::Head(_) => false,
            Part::Continuation(index) => {
                let head = open.first().map(|head| head.0.saturating_add(u64::from(index)));
                open.len() == usize::from(index) && head == Some(key.0)
            }
        };
        if !continues {
            fragments.append(&mut open);
        }
        match part {
            Part::Head(pieces) => wanted = usize::from(pieces),
            Part::Continuation(_) if !continues => {
                fragments.push(key);
                continue;
            }
            Part::Continuation(_) => {}
        }
        open.push(key);
        if open.len() == wanted {
            open.clear();
        }
    }
    fragments.append(&mut open);
    fragments
}

/// Puts rows together from pieces that arrive in key order.
///
/// Feed every piece; each call may complete a row. A row that lacks a piece is reported once, by its head's key.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    open: Option<OpenRow>,
}

#[derive(Debug)]
struct OpenRow {
    place: Place,
    kind: u8,
    next: u16,
    body: Vec<u8>,
}

/// What a piece did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Assembled<'a> {
    /// More pieces are needed.
    Nothing,
    /// A row of one piece, in place.
    Single(Place, u8, &'a [u8]),
    /// A row of several pieces.
    Whole(Place, u8, Vec<u8>),
    /// A continuation without its row.
    Orphan,
}

impl Assembler {
    /// Takes a piece. The second result is the row that was given up because its next piece is missing.
    pub(super) fn push<'a>(&mut self, piece: &Piece<'a>) -> (Assembled<'a>, Option<Place>) {
        match piece.part {
            Part::Head(1) => {
                let place = Place { key: piece.key, pieces: 1 };
                (Assembled::Single(place, piece.kind, piece.body), self.give_up())
            }
            Part::Head(pieces) => {
                let broken = self.give_up();
                let place = Place { key: piece.key, pieces };
                self.open = Some(OpenRow { place, kind: piece.kind, next: 1, body: piece.body.to_vec() });
                (Assembled::Nothing, broken)
            }
            Part::Continuation(index) => self.continue_row(piece, index),
        }
    }

    /// Gives up the row that is not complete.
    pub(super) fn give_up(&mut self) -> Option<Place> {
        self.open.take().map(|row| row.place)
    }

    fn continue_row<'a>(&mut self, piece: &Piece<'a>, index: u16) -> (Assembled<'a>, Option<Place>) {
        let Some(mut row) = self.open.take() else {
            return (Assembled::Orphan, None);
        };
        let expected_key = row.place.key.0.checked_add(u64::from(index));
        if index != row.next || expected_key != Some(piece.key.0) || piece.kind != row.kind {
            return (Assembled::Orphan, Some(row.place));
        }
        row.body.extend_from_slice(piece.body);
        row.next = row.next.saturating_add(1);
        if row.next == row.place.pieces {
            return (Assembled::Whole(row.place, row.kind, row.body), None);
        }
        self.open = Some(row);
        (Assembled::Nothing, None)
    }
}

fn crc(header: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_byte_of_a_piece_is_noticed() {
        let piece = encode(7, RowKey(0x1_0002), 0, 1, b"body of the row");
        assert_eq!(
            Piece::read(&piece).map(|p| (p.kind, p.key, p.body)),
            Some((7, RowKey(0x1_0002), &b"body of the row"[..]))
        );
        for at in 0..piece.len() {
            let mut damaged = piece.clone();
            if let Some(byte) = damaged.get_mut(at) {
                *byte ^= 0x10;
            }
            assert_eq!(Piece::read(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn a_row_without_one_of_its_pieces_is_given_up() {
        let pieces: Vec<_> = (0..3u16).map(|i| encode(1, RowKey(10 + u64::from(i)), i, 3, &[0; 9])).collect();
        let place = Place { key: RowKey(10), pieces: 3 };
        let mut assembler = Assembler::default();
        let read = |i: usize| Piece::read(pieces.get(i).map_or(&[][..], Vec::as_slice)).unwrap();
        assert_eq!(assembler.push(&read(0)), (Assembled::Nothing, None));
        assert_eq!(assembler.push(&read(2)), (Assembled::Orphan, Some(place)));
        assert_eq!(assembler.push(&read(0)).1, None);
        assert_eq!(assembler.push(&read(1)), (Assembled::Nothing, None));
        assert_eq!(assembler.push(&read(2)), (Assembled::Whole(place, 1, vec![0; 27]), None));
    }

    #[test]
    fn fragments_are_what_is_left_of_rows_that_lack_a_piece() {
        use Part::{Continuation, Head};
        let parts = [
            (1, Head(1)),
            (2, Head(3)),
            (3, Continuation(1)),
            (5, Head(2)),
            (6, Continuation(1)),
            (7, Continuation(2)),
            (8, Head(2)),
            (10, Continuation(2)),
            (11, Head(1)),
            (12, Head(4)),
        ];
        let found = fragments(parts.into_iter().map(|(key, part)| (RowKey(key), part)));
        assert_eq!(found, [2, 3, 7, 8, 10, 12].map(RowKey));
    }

    #[test]
    fn the_charge_is_the_share_of_full_leaves() {
        assert_eq!(stored_bytes(ROW_BYTES_MAX), 4096);
        assert_eq!(stored_bytes(ROW_BYTES_MAX + 1), 2 * 4096);
        assert_eq!(stored_bytes(2_100), 4096);
        assert_eq!(stored_bytes(1_900), 2048);
        assert!(stored_bytes(100) >= 132 && stored_bytes(100) < 140);
        for body_len in [0, 77, 3_900, 3_901, 9_000] {
            let pieces = u16::try_from(pieces_of(body_len)).unwrap();
            let part = |i: u16| body_len.saturating_sub(usize::from(i) * ROW_BYTES_MAX).min(ROW_BYTES_MAX);
            let charges = (0..pieces).map(|i| charge(&encode(1, RowKey(1), i, pieces, &vec![0; part(i)])));
            assert_eq!(charges.sum::<u64>(), stored_bytes(body_len));
        }
        for body_len in 1..20_000 {
            assert!(stored_bytes(body_len) >= stored_bytes(body_len - 1));
        }
    }
}
