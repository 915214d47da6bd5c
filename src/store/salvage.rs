//! Whole rows out of a damaged row log.
//!
//! Owns finding them. Leaves the form of redb's pages to `redb_page` and what becomes of the rows to `recovery`.
//!
//! First the tree of the newest commit is walked whose marker is what it should be, else of the newest there is. Where the walk finds
//! anything that does not fit, the range of keys concerned is in doubt, and the whole file is searched for leaves with
//! rows in that range: among them are older copies of pages, so that a row may come back that was deleted already, but
//! only in that range. A row is taken when its page has the form of a leaf and the piece verifies; bytes inside a body
//! are never looked at as a row.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeInclusive;

use super::disk::{File, PAGE, PAGE_BYTES};
use super::log::Marker;
use super::redb_page::{
    DEPTH_MAX, Node, PageRef, log_root, offset_of, read_first_page, read_node, table_lists,
};
use super::row::{Part, Piece, charge_of, fragments};
use crate::ids::{BatchNumber, RowKey};

/// What was found in a damaged file.
#[derive(Debug, Default)]
pub(super) struct Salvage {
    /// The newest marker.
    pub(super) marker: Option<Marker>,
    /// Where pieces lie.
    pieces: BTreeMap<RowKey, Found>,
    /// Ranges of keys in which rows may be missing.
    doubt: Vec<RangeInclusive<u64>>,
    visited: BTreeSet<PageRef>,
    searching: bool,
}

/// Byte offset of a piece in the file, and its length.
#[derive(Clone, Copy, Debug)]
struct Found {
    at: u64,
    len: u16,
    part: Part,
    /// Found by the search, so it may be a row that was deleted already.
    doubtful: bool,
}

impl Salvage {
    /// Goes through the file, which should have applied batch `expected`.
    pub(super) fn scan(file: &dyn File, expected: BatchNumber) -> io::Result<Self> {
        let mut salvage = Self::default();
        let pages = u32::try_from(file.len()?.checked_div(PAGE).unwrap_or(0)).unwrap_or(u32::MAX);
        salvage.walk_tree(file, expected);
        if !salvage.doubt.is_empty() {
            salvage.searching = true;
            for page in 0..pages {
                salvage.search(file, page);
            }
        }
        Ok(salvage)
    }

    /// Hands over the pieces from `lowest` on, ascending. One that cannot be read again is left out.
    pub(super) fn for_each<E>(
        &self,
        file: &dyn File,
        lowest: RowKey,
        mut piece: impl FnMut(RowKey, Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (&key, found) in self.pieces.range(lowest..) {
            let mut bytes = vec![0; usize::from(found.len)];
            if file.read(found.at, &mut bytes).is_ok() {
                piece(key, bytes)?;
            }
        }
        Ok(())
    }

    /// Drops what is not wanted.
    pub(super) fn retain(&mut self, wanted: impl Fn(RowKey) -> bool) {
        self.pieces.retain(|key, _| wanted(*key));
    }

    /// Drops pieces whose row is not whole; returns how many.
    pub(super) fn drop_fragments(&mut self) -> usize {
        let fragments = fragments(self.pieces.iter().map(|(&key, found)| (key, found.part)));
        for key in &fragments {
            self.pieces.remove(key);
        }
        fragments.len()
    }

    /// Leaves out the oldest pieces, doubtful ones first, until the rest is charged at most `bytes_max`: what was deleted
    /// and is found again can be more than a file holds. Returns how many.
    pub(super) fn fit(&mut self, bytes_max: u64) -> usize {
        let before = self.pieces.len();
        let cost = |found: &Found| charge_of(found.part, usize::from(found.len));
        let mut bytes = self.pieces.values().map(cost).fold(0, u64::saturating_add);
        for doubtful in [true, false] {
            self.pieces.retain(|_, found| {
                let drop = bytes > bytes_max && found.doubtful == doubtful;
                if drop {
                    bytes = bytes.saturating_sub(cost(found));
                }
                !drop
            });
        }
        before.saturating_sub(self.pieces.len())
    }

    /// The highest key found.
    pub(super) fn highest(&self) -> Option<RowKey> {
        self.pieces.last_key_value().map(|(key, _)| *key)
    }

    /// True when rows may be missing, or may have come back.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.doubt.is_empty()
    }

    fn walk_tree(&mut self, file: &dyn File, expected: BatchNumber) {
        let lists = read_first_page(file).map(|page| table_lists(&page)).unwrap_or_default();
        let root_of = |list| read_node(file, list).and_then(|page| log_root(&page));
        let roots = lists.into_iter().filter_map(root_of).filter(|root| is_node(file, *root));
        // Best a tree that holds what it should; then one whose marker is damaged; then the newest of older ones,
        // which is also what a damaged reference may lead to.
        let rank = |root: &PageRef| match marker_below(file, *root) {
            Some(marker) if marker.applied >= expected => (2, marker.applied),
            None => (1, expected),
            Some(marker) => (0, marker.applied),
        };
        let best = roots.rev().max_by_key(rank);
        let Some(root) = best else {
            self.doubt.push(0..=u64::MAX);
            return;
        };
        self.walk(file, root, 0..=u64::MAX, DEPTH_MAX);
        let applied = self.marker.map_or(BatchNumber(0), |marker| marker.applied);
        if applied < expected {
            // What later commits added may be anywhere.
            self.doubt.push(RowKey::new(applied.next(), 0).0..=u64::MAX);
            self.doubt.push(0..=0);
        }
    }

    /// Walks the tree below a page whose keys should lie in `range`. False when some did not.
    fn walk(&mut self, file: &dyn File, place: PageRef, range: RangeInclusive<u64>, depth: usize) -> bool {
        let page = read_node(file, place).filter(|_| self.visited.insert(place));
        let node = page.as_deref().and_then(Node::read);
        let (Some(page), Some(node), Some(depth)) = (page, node, depth.checked_sub(1)) else {
            self.doubt.push(range);
            return true;
        };
        match node {
            Node::Leaf(entries) => self.take_leaf(place.first, &page, &entries, &range),
            Node::Branch { children, keys } => {
                self.walk_branch(file, &children, &keys, &range, depth);
                true
            }
        }
    }

    fn walk_branch(
        &mut self,
        file: &dyn File,
        children: &[Option<PageRef>],
        keys: &[u64],
        range: &RangeInclusive<u64>,
        depth: usize,
    ) {
        // What lies around child i: keys i - 1 and i, and one further on either side.
        let key = |index: Option<usize>| index.and_then(|index| keys.get(index)).copied();
        let (lowest, highest) = (*range.start(), *range.end());
        let low = |index: Option<usize>| key(index).map_or(lowest, |key| key.saturating_add(1));
        let high = |index: usize| key(Some(index)).unwrap_or(highest);
        for (index, child) in children.iter().enumerate() {
            let before = index.checked_sub(1);
            let (from, to) = (low(before), high(index));
            let fits = match child {
                Some(child) if from <= to && range.contains(&from) && range.contains(&to) => {
                    self.walk(file, *child, from..=to, depth)
                }
                _ => false,
            };
            if !fits {
                let bounds = [low(index.checked_sub(2)), from, to, high(index.saturating_add(1))];
                let from = bounds.iter().min().copied().unwrap_or(0).max(lowest);
                let to = bounds.iter().max().copied().unwrap_or(u64::MAX).min(highest);
                self.doubt.push(from..=to);
            }
        }
    }

    fn take_leaf(
        &mut self,
        number: u32,
        page: &[u8],
        entries: &[(RowKey, usize, usize)],
        range: &RangeInclusive<u64>,
    ) -> bool {
        let mut fits = true;
        let mut whole = true;
        for entry in entries {
            match self.take(number, page, entry, |key| range.contains(&key.0)) {
                Taken::Yes => {}
                Taken::OutOfRange => fits = false,
                Taken::Damaged => whole = false,
            }
        }
        if !whole {
            self.doubt.push(range.clone());
        }
        fits
    }

    /// Looks for rows in doubt in any page.
    fn search(&mut self, file: &dyn File, page: u32) {
        let Some(number) = page.checked_sub(1) else {
            return;
        };
        // A leaf may go on in the next page; what is no part of it does not verify as a row of it.
        let mut bytes = vec![0; 2 * PAGE_BYTES];
        let (first, _) = bytes.split_at_mut(PAGE_BYTES);
        if file.read(offset_of(number), first).is_err() {
            return;
        }
        if Node::read(&bytes).is_some() && file.read(offset_of(number), &mut bytes).is_err() {
            bytes.truncate(PAGE_BYTES);
        }
        let Some(Node::Leaf(entries)) = Node::read(&bytes) else {
            return;
        };
        let doubt = std::mem::take(&mut self.doubt);
        for entry in &entries {
            self.take(number, &bytes, entry, |key| doubt.iter().any(|range| range.contains(&key.0)));
        }
        self.doubt = doubt;
    }

    fn take(
        &mut self,
        number: u32,
        page: &[u8],
        &(key, start, end): &(RowKey, usize, usize),
        wanted: impl Fn(RowKey) -> bool,
    ) -> Taken {
        let Some(value) = page.get(start..end) else {
            return Taken::Damaged;
        };
        if let Some(Ok(marker)) = Marker::read(value) {
            if !wanted(RowKey(0)) {
                return Taken::OutOfRange;
            }
            if self.marker.is_none_or(|newest| newest.applied < marker.applied) {
                self.marker = Some(marker);
            }
            return if key.0 == 0 { Taken::Yes } else { Taken::Damaged };
        }
        let piece = Piece::read(value).filter(|piece| piece.len == value.len());
        let (Some(piece), Ok(len)) = (piece, u16::try_from(value.len())) else {
            return Taken::Damaged;
        };
        if !wanted(piece.key) {
            return Taken::OutOfRange;
        }
        let at = offset_of(number).saturating_add(start as u64);
        self.pieces.entry(piece.key).or_insert(Found { at, len, part: piece.part, doubtful: self.searching });
        if piece.key == key { Taken::Yes } else { Taken::Damaged }
    }
}

enum Taken {
    Yes,
    OutOfRange,
    Damaged,
}

/// The marker of the tree below a page.
fn marker_below(file: &dyn File, root: PageRef) -> Option<Marker> {
    let mut place = root;
    for _ in 0..DEPTH_MAX {
        let page = read_node(file, place)?;
        match Node::read(&page)? {
            Node::Branch { children, .. } => place = (*children.first()?)?,
            Node::Leaf(entries) => {
                let &(_, start, end) = entries.first()?;
                return Marker::read(page.get(start..end)?)?.ok();
            }
        }
    }
    None
}

fn is_node(file: &dyn File, place: PageRef) -> bool {
    read_node(file, place).is_some_and(|page| Node::read(&page).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_goes_oldest_first_and_doubtful_before_sure() {
        let found = |doubtful| Found { at: 0, len: 3_000, part: Part::Head(1), doubtful };
        let pieces = (1..=6).map(|key| (RowKey(key), found(key % 2 == 1))).collect();
        let mut salvage = Salvage { pieces, ..Salvage::default() };
        assert_eq!(salvage.fit(6 * PAGE), 0);
        assert_eq!(salvage.fit(4 * PAGE), 2);
        assert!(salvage.pieces.keys().copied().eq([2, 4, 5, 6].map(RowKey)));
        assert_eq!(salvage.fit(2 * PAGE), 2);
        assert!(salvage.pieces.keys().copied().eq([4, 6].map(RowKey)));
    }
}
