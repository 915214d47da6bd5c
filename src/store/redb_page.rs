//! redb's pages, read without redb: for salvage, and to count how many the rows take.
//!
//! redb's file format 3, all little-endian, pages of 4 KiB, page number n at byte 4096 × (n + 1):
//!
//! * First page: magic (9 bytes), a byte of flags of which bit 0 names the newer of two commit slots; the slots lie at
//!   bytes 64 and 192. In a slot: byte 1 not zero when there is a root, bytes 8 to 15 the root's page reference.
//! * A page reference is a u64: bits 0 to 19 − order the number, 20 to 39 the region, 59 to 63 the order: 2^order pages,
//!   the first of which is number × 2^order. Only region 0 is read; the row log has no other. A leaf may take two
//!   pages, where rows of different sizes meet.
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

/// Entries that fit two pages at most.
const ENTRIES_MAX: usize = 680;

/// Pages that a node takes at most, as a power of two: rows are shorter than a page, so two.
const ORDER_MAX: u64 = 3;

/// A node's place: its first page and how many it takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PageRef {
    pub(super) first: u32,
    pages: u32,
}

/// The table lists of both commit slots, the newer first. Damaged ones are left out.
pub(super) fn table_lists(page: &[u8]) -> Vec<PageRef> {
    let slot = |offset: usize| {
        let slot = page.get(offset..)?;
        if *slot.get(1)? == 0 {
            return None;
        }
        page_ref(u64_at(slot, 8)?)
    };
    if page.first_chunk::<9>() != Some(&MAGIC) {
        return [slot(64), slot(192)].into_iter().flatten().collect();
    }
    let second_is_newer = page.get(9).is_some_and(|flags| flags & 1 != 0);
    let offsets = if second_is_newer { [192, 64] } else { [64, 192] };
    offsets.into_iter().filter_map(slot).collect()
}

/// The root of the table `log`.
pub(super) fn log_root(page: &[u8]) -> Option<PageRef> {
    if *page.first()? != LEAF || u16_at(page, 2)? != 1 || page.get(12..15)? != b"log" {
        return None;
    }
    let table = page.get(15..)?;
    if *table.get(9)? == 0 {
        return None;
    }
    page_ref(u64_at(table, 10)?)
}

/// A node of the table's tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// Children, and the keys between them.
    Branch { children: Vec<Option<PageRef>>, keys: Vec<u64> },
    /// Keys with the offsets where their values begin and end.
    Leaf(Vec<(RowKey, usize, usize)>),
}

impl Node {
    /// Reads a node's pages, or what is there of them. `None` when they have neither form.
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
            children.push(page_ref(u64_at(page, index.checked_mul(8)?.checked_add(children_at)?)?));
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
    let list = *table_lists(&read_first_page(file)?).first()?;
    let root = log_root(&read_node(file, list)?)?;
    pages_below(file, root, DEPTH_MAX)
}

fn pages_below(file: &dyn File, node: PageRef, depth: usize) -> Option<u64> {
    let own = u64::from(node.pages);
    let Node::Branch { children, .. } = Node::read(&read_node(file, node)?)? else {
        return Some(own);
    };
    let depth = depth.checked_sub(1)?;
    let children = children.into_iter().collect::<Option<Vec<_>>>()?;
    let first = *children.first()?;
    if matches!(Node::read(&read_node(file, first)?)?, Node::Leaf(_)) {
        return children.iter().map(|child| u64::from(child.pages)).sum::<u64>().checked_add(own);
    }
    let mut pages = own;
    for child in children {
        pages = pages.checked_add(pages_below(file, child, depth)?)?;
    }
    Some(pages)
}

/// The file's first page, which is no node.
pub(super) fn read_first_page(file: &dyn File) -> Option<Vec<u8>> {
    let mut page = vec![0; PAGE_BYTES];
    file.read(0, &mut page).ok()?;
    Some(page)
}

/// All pages of a node.
pub(super) fn read_node(file: &dyn File, node: PageRef) -> Option<Vec<u8>> {
    let mut bytes = vec![0; PAGE_BYTES.checked_mul(usize::try_from(node.pages).ok()?)?];
    file.read(offset_of(node.first), &mut bytes).ok()?;
    Some(bytes)
}

/// Where a page begins in the file.
pub(super) fn offset_of(number: u32) -> u64 {
    u64::from(number).saturating_add(1).saturating_mul(PAGE)
}

fn page_ref(reference: u64) -> Option<PageRef> {
    let region = (reference >> 20) & 0xf_ffff;
    let order = reference >> 59;
    let pages = 1u32.checked_shl(u32::try_from(order).ok()?)?;
    if region != 0 || order > ORDER_MAX {
        return None;
    }
    let number = u32::try_from(reference & (0xf_ffff >> order)).ok()?;
    Some(PageRef { first: number.checked_mul(pages)?, pages })
}
