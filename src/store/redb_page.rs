//! redb's pages, read without redb: for salvage, and to count how many the rows take.
//!
//! redb's file format 3, all little-endian, pages of 4 KiB, page number n at byte 4096 × (n + 1):
//!
//! * First page: magic (9 bytes), a byte of flags of which bit 0 names the newer of two commit slots; the slots lie at
//!   bytes 64 and 192. In a slot: byte 1 not zero when there is a root, bytes 8 to 15 the root's page reference.
//! * A page reference is a u64: bits 0 to 19 the page number, 20 to 39 the region, 59 to 63 the order. Only region 0
//!   and order 0 (single pages) are read; the row log has no others.
//! * The root is a leaf that lists tables: with the one table `log`, its entry's key begins at byte 12, its value at
//!   byte 15; in the value byte 9 is not zero when the table has rows, bytes 10 to 17 reference its root.
//! * A branch: type 2 in byte 0, number of keys n (u16) in bytes 2 and 3; from byte 8 on n + 1 checksums of 16 bytes,
//!   n + 1 page references of 8, n keys of 8. Keys of child i are above key i - 1 and not above key i.
//! * A leaf: type 1 in byte 0, number of entries n (u16) in bytes 2 and 3; from byte 4 on n end offsets of values
//!   (u32), n keys of 8 bytes, the values.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::disk::{File, PAGE, PAGE_BYTES};
use super::fields::{u16_at, u32_at, u64_at};
use crate::ids::RowKey;

const MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1a, 0x0a, 0xa9, 0x0d, 0x0a];
const LEAF: u8 = 1;
const BRANCH: u8 = 2;

/// Deeper than any tree in a file of this size.
pub(super) const DEPTH_MAX: usize = 12;

/// Entries that fit a page at most.
const ENTRIES_MAX: usize = 340;

/// Pages of the table lists of both commit slots, the newer first. Damaged ones are left out.
pub(super) fn table_lists(page: &[u8]) -> Vec<u32> {
    let slot = |offset: usize| {
        let slot = page.get(offset..)?;
        if *slot.get(1)? == 0 {
            return None;
        }
        page_number(u64_at(slot, 8)?)
    };
    if page.first_chunk::<9>() != Some(&MAGIC) {
        return [slot(64), slot(192)].into_iter().flatten().collect();
    }
    let second_is_newer = page.get(9).is_some_and(|flags| flags & 1 != 0);
    let offsets = if second_is_newer { [192, 64] } else { [64, 192] };
    offsets.into_iter().filter_map(slot).collect()
}

/// The root page of the table `log`.
pub(super) fn log_root(page: &[u8]) -> Option<u32> {
    if *page.first()? != LEAF || u16_at(page, 2)? != 1 || page.get(12..15)? != b"log" {
        return None;
    }
    let table = page.get(15..)?;
    if *table.get(9)? == 0 {
        return None;
    }
    page_number(u64_at(table, 10)?)
}

/// A page of the table's tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// Children, and the keys between them.
    Branch { children: Vec<Option<u32>>, keys: Vec<u64> },
    /// Keys with the offsets where their values begin and end.
    Leaf(Vec<(RowKey, usize, usize)>),
}

impl Node {
    /// Reads a page. `None` when it has neither form.
    pub(super) fn read(page: &[u8]) -> Option<Self> {
        let count = usize::from(u16_at(page, 2)?);
        if count == 0 || count > ENTRIES_MAX {
            return None;
        }
        match *page.first()? {
            BRANCH => Self::branch(page, count),
            LEAF => Self::leaf(page, count),
            _ => None,
        }
    }

    fn branch(page: &[u8], count: usize) -> Option<Self> {
        let child_count = count.checked_add(1)?;
        let children_at = child_count.checked_mul(16)?.checked_add(8)?;
        let keys_at = child_count.checked_mul(8)?.checked_add(children_at)?;
        let mut children = Vec::with_capacity(child_count);
        let mut keys = Vec::with_capacity(count);
        for index in 0..child_count {
            children.push(page_number(u64_at(page, index.checked_mul(8)?.checked_add(children_at)?)?));
        }
        for index in 0..count {
            keys.push(u64_at(page, index.checked_mul(8)?.checked_add(keys_at)?)?);
        }
        Some(Self::Branch { children, keys })
    }

    fn leaf(page: &[u8], count: usize) -> Option<Self> {
        let keys_at = count.checked_mul(4)?.checked_add(4)?;
        let mut start = count.checked_mul(8)?.checked_add(keys_at)?;
        let mut entries = Vec::with_capacity(count);
        for index in 0..count {
            let end = usize::try_from(u32_at(page, index.checked_mul(4)?.checked_add(4)?)?).ok()?;
            let key = RowKey(u64_at(page, index.checked_mul(8)?.checked_add(keys_at)?)?);
            // One damaged offset costs the values on both sides of it, not the page.
            entries.push((key, start, end));
            start = end;
        }
        Some(Self::Leaf(entries))
    }
}

/// Pages of the table's tree in a file that redb wrote and synced. Reads its branches and one leaf for each of the
/// lowest ones. `None` when something does not read as it should.
pub(super) fn tree_pages(file: &dyn File) -> Option<u64> {
    let list = *table_lists(&read_page(file, None)?).first()?;
    let root = log_root(&read_page(file, Some(list))?)?;
    pages_below(file, root, DEPTH_MAX)
}

fn pages_below(file: &dyn File, number: u32, depth: usize) -> Option<u64> {
    let Node::Branch { children, .. } = Node::read(&read_page(file, Some(number))?)? else {
        return Some(1);
    };
    let depth = depth.checked_sub(1)?;
    let first = pages_below(file, (*children.first()?)?, depth)?;
    if first == 1 {
        return (children.len() as u64).checked_add(1);
    }
    let mut pages = first.checked_add(1)?;
    for child in children.iter().skip(1) {
        pages = pages.checked_add(pages_below(file, (*child)?, depth)?)?;
    }
    Some(pages)
}

/// The page with this number; `None` names the first page, which has none.
pub(super) fn read_page(file: &dyn File, number: Option<u32>) -> Option<Vec<u8>> {
    let mut page = vec![0; PAGE_BYTES];
    file.read(offset_of(number), &mut page).ok()?;
    Some(page)
}

/// Where a page begins in the file.
pub(super) fn offset_of(number: Option<u32>) -> u64 {
    number.map_or(0, |number| u64::from(number).saturating_add(1).saturating_mul(PAGE))
}

fn page_number(reference: u64) -> Option<u32> {
    let region = (reference >> 20) & 0xf_ffff;
    let order = reference >> 59;
    u32::try_from(reference & 0xf_ffff).ok().filter(|_| region == 0 && order == 0)
}
