//! Whole parts of chunks out of a damaged backlog.
//!
//! Every page of the file is looked at as the first of a leaf of the table `chunks`, and a value in it is taken when it
//! verifies as a part. What lies within such a part is not looked at again, so that bytes which a client sent are not
//! taken for a part. Among the leaves are older ones: chunks that were removed may come back.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::io;

use super::chunk::{PART_BYTES_MAX, PartView};
use super::disk::{File, PAGE, PAGE_BYTES};
use super::redb_page::Node;
use crate::ids::ChunkNumber;

/// Where parts lie: their offset in the file and their length.
#[derive(Debug, Default)]
pub(super) struct Salvage {
    parts: BTreeMap<(ChunkNumber, u16), (u64, usize)>,
}

impl Salvage {
    /// Goes through the file once.
    pub(super) fn scan(file: &dyn File) -> io::Result<Self> {
        let mut salvage = Self::default();
        let len = file.len()?;
        let mut at = PAGE;
        while at < len {
            let end = salvage.search(file, at, len);
            at = end.div_ceil(PAGE).saturating_mul(PAGE).max(at.saturating_add(PAGE));
        }
        Ok(salvage)
    }

    /// Chunks of which a part was found, ascending.
    pub(super) fn chunks(&self) -> Vec<ChunkNumber> {
        let mut numbers: Vec<_> = self.parts.keys().map(|(number, _)| *number).collect();
        numbers.dedup();
        numbers
    }

    pub(super) fn highest(&self) -> ChunkNumber {
        self.parts.last_key_value().map_or(ChunkNumber(0), |((number, _), _)| *number)
    }

    /// The parts of a chunk that can still be read, with their indices.
    pub(super) fn parts(&self, file: &dyn File, number: ChunkNumber) -> Vec<(u16, Vec<u8>)> {
        let mut parts = Vec::new();
        for ((_, index), (at, len)) in self.parts.range((number, 0)..=(number, u16::MAX)) {
            let mut bytes = vec![0; *len];
            if file.read(*at, &mut bytes).is_ok() {
                parts.push((*index, bytes));
            }
        }
        parts
    }

    /// Looks for parts in a leaf at `at`; answers where the last one ends.
    fn search(&mut self, file: &dyn File, at: u64, len: u64) -> u64 {
        let mut page = vec![0; PAGE_BYTES];
        if file.read(at, &mut page).is_err() {
            return at;
        }
        let Some(Node::Leaf(entries)) = Node::read(&page) else { return at };
        let mut last = at;
        for (key, start, end) in entries {
            let Some(size) = end.checked_sub(start).filter(|size| *size <= PART_BYTES_MAX) else { continue };
            let offset = at.saturating_add(start as u64);
            if offset.saturating_add(size as u64) > len {
                continue;
            }
            let mut bytes = vec![0; size];
            if file.read(offset, &mut bytes).is_err() {
                continue;
            }
            let Some(part) = PartView::read(&bytes) else { continue };
            let expected = part.number.0.checked_shl(16).map(|key| key | u64::from(part.index));
            if expected == Some(key.0) {
                self.parts.insert((part.number, part.index), (offset, size));
                last = last.max(offset.saturating_add(size as u64));
            }
        }
        last
    }
}
