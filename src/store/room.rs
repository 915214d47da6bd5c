//! How large the files may be: the cap shared out, and what the file system has room for.

use super::disk::{Disk, File, PAGE};
use super::engine::StoreOptions;
use super::error::{OpenError, is_full};
use super::log::LOG;
use super::space::Space;

/// Smallest cap; a lower one is raised to it.
const TOTAL_BYTES_MIN: u64 = 1 << 20;

/// Smallest row log that is made when the disk is nearly full.
const LOG_BYTES_MIN: u64 = 512 << 10;

const JOURNAL_BYTES_MIN: u64 = 64 << 10;

/// The journal is at most this part of the cap, so that what it holds always fits the row log's headroom.
const JOURNAL_SHARE: u64 = 8;

/// Sizes of the two files. Whole pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) journal: u64,
    pub(super) log: u64,
}

impl Sizes {
    /// The cap, shared out.
    pub(super) fn of(options: &StoreOptions) -> Self {
        Self::within(options, options.gateway_bytes_max)
    }

    /// What live rows may be charged in a row log of this size.
    pub(super) fn quota_bytes(self) -> u64 {
        self.empty_log().quota_bytes()
    }

    /// What all rows in it may be charged.
    pub(super) fn room_bytes(self) -> u64 {
        self.empty_log().room_bytes()
    }

    const fn empty_log(self) -> Space {
        Space { capacity: (self.log / PAGE).saturating_sub(1), used: 0 }
    }

    /// The same for a first start on a disk with so many usable bytes.
    pub(super) fn within(options: &StoreOptions, usable: u64) -> Self {
        let total = options.gateway_bytes_max.min(usable).max(TOTAL_BYTES_MIN);
        let journal = options.journal_bytes.clamp(JOURNAL_BYTES_MIN, total / JOURNAL_SHARE) / PAGE * PAGE;
        Self { journal, log: (total - journal) / PAGE * PAGE }
    }
}

/// Bytes that may be used without filling the file system past `reserve_free`.
pub(super) fn usable_bytes(disk: &dyn Disk, options: &StoreOptions) -> Result<u64, OpenError> {
    Ok(disk.free_bytes()?.saturating_sub(options.reserve_free))
}

/// Reserves blocks for the row log. Returns the size that it can have, and what an operator should know.
pub(super) fn reserve(file: &dyn File, wanted: u64, usable: u64) -> Result<(u64, Option<String>), OpenError> {
    let fits = file.allocated_bytes()?.saturating_add(usable) / PAGE * PAGE;
    let size = fits.max(LOG_BYTES_MIN).min(wanted);
    let lower = format!(
        "the disk has room for {size} of {wanted} bytes of {LOG}; its cap is lower until space is freed"
    );
    match file.allocate(size) {
        Ok(()) if size < wanted => Ok((size, Some(lower))),
        Ok(()) => Ok((size, None)),
        // Not reserved is not refused: the file may get its blocks one by one.
        Err(error) if is_full(&error) => Ok((LOG_BYTES_MIN.min(size), Some(lower))),
        Err(_) => Ok((size, Some(format!("the file system cannot reserve space for {LOG}")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_cap_is_a_journal_of_4_mib_and_a_row_log_of_68() {
        let options = StoreOptions::default();
        assert_eq!(Sizes::of(&options), Sizes { journal: 4 << 20, log: 68 << 20 });
        let small = StoreOptions { gateway_bytes_max: 0, ..options };
        assert_eq!(Sizes::of(&small), Sizes { journal: 128 << 10, log: 896 << 10 });
        let tight = Sizes::within(&options, 9 << 20);
        assert_eq!(tight.journal + tight.log, 9 << 20);
    }
}
