//! Whole rows out of a damaged row log.
//!
//! Owns reading redb's leaf pages without redb. Leaves what becomes of the rows to `recovery`.
//!
//! redb's file format 3, as far as it is read here: pages of 4 KiB; a leaf has type 1 in byte 0, the number of entries
//! (u16) in bytes 2 and 3, then, the keys having a fixed width, one u32 end offset of each value, then the keys of 8
//! bytes, then the values. All little-endian. A row is taken when its page has that form, the piece verifies and its
//! key is the one that the page gives it: bytes inside a body are never looked at as a row.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;

use super::disk::{File, PAGE, PAGE_BYTES};
use super::fields::{u16_at, u32_at, u64_at};
use super::log::Marker;
use super::row::Piece;
use crate::ids::RowKey;

/// What was found in a damaged file.
#[derive(Debug, Default)]
pub(super) struct Salvage {
    /// The newest marker.
    pub(super) marker: Option<Marker>,
    /// Where pieces lie, ascending by key, each key once.
    pieces: Vec<Found>,
    /// Pages that the medium could not read.
    pub(super) unreadable: u64,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    key: RowKey,
    page: u32,
    at: u16,
    len: u16,
}

impl Salvage {
    /// Goes through the whole file.
    pub(super) fn scan(file: &dyn File) -> io::Result<Self> {
        let mut salvage = Self::default();
        let pages = file.len()?.checked_div(PAGE).unwrap_or(0);
        let mut page = vec![0; PAGE_BYTES];
        for index in 1..u32::try_from(pages).unwrap_or(u32::MAX) {
            if file.read(u64::from(index).saturating_mul(PAGE), &mut page).is_ok() {
                salvage.take_page(index, &page);
            } else {
                salvage.unreadable = salvage.unreadable.saturating_add(1);
            }
        }
        salvage.pieces.sort_by_key(|found| found.key);
        salvage.pieces.dedup_by_key(|found| found.key);
        Ok(salvage)
    }

    /// Hands over the pieces from `lowest` on, ascending. One that cannot be read again is left out.
    pub(super) fn for_each<E>(
        &self,
        file: &dyn File,
        lowest: RowKey,
        mut piece: impl FnMut(RowKey, Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        for found in self.pieces.iter().filter(|found| found.key >= lowest) {
            let mut bytes = vec![0; usize::from(found.len)];
            let offset = u64::from(found.page).saturating_mul(PAGE).saturating_add(u64::from(found.at));
            if file.read(offset, &mut bytes).is_ok() {
                piece(found.key, bytes)?;
            }
        }
        Ok(())
    }

    /// Highest key seen.
    pub(super) fn highest(&self) -> Option<RowKey> {
        self.pieces.last().map(|found| found.key)
    }

    fn take_page(&mut self, index: u32, page: &[u8]) {
        for (key, start, end) in leaf_entries(page) {
            let Some(value) = page.get(start..end) else {
                continue;
            };
            if key.0 == 0 {
                if let Some(Ok(marker)) = Marker::read(value)
                    && self.marker.is_none_or(|newest| newest.applied <= marker.applied)
                {
                    self.marker = Some(marker);
                }
            } else if Piece::read(value).is_some_and(|piece| piece.key == key && piece.len == value.len())
                && let (Ok(at), Ok(len)) = (u16::try_from(start), u16::try_from(value.len()))
            {
                self.pieces.push(Found { key, page: index, at, len });
            }
        }
    }
}

/// Keys and value ranges of a page that has the form of a leaf; nothing when it has not.
fn leaf_entries(page: &[u8]) -> Vec<(RowKey, usize, usize)> {
    const LEAF: u8 = 1;
    let parse = || {
        if *page.first()? != LEAF {
            return None;
        }
        let count = usize::from(u16_at(page, 2)?);
        let keys_at = count.checked_mul(4)?.checked_add(4)?;
        let mut start = count.checked_mul(8)?.checked_add(keys_at)?;
        let mut entries = Vec::new();
        for index in 0..count {
            let end = usize::try_from(u32_at(page, index.checked_mul(4)?.checked_add(4)?)?).ok()?;
            let key = RowKey(u64_at(page, index.checked_mul(8)?.checked_add(keys_at)?)?);
            // One damaged offset costs the values on both sides of it, not the page.
            if start <= end && end <= page.len() {
                entries.push((key, start, end));
            }
            start = end;
        }
        Some(entries)
    };
    parse().unwrap_or_default()
}
