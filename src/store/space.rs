//! Whether rows fit the row log, and in which steps an apply gets by with the pages that are free. Numbers only.
//!
//! redb never writes over a page that the last commit needs: a changed page goes to a free one, and the old one is free
//! again a commit later. So deletes need free pages, too, and an apply is cut to what is there:
//!
//! * Deletes go ahead in as many transactions as it takes, each of so few runs of rows that it fits.
//! * Rows go in with the last transaction, alone when they would not fit beside deletes.
//! * Rows are let into the journal only while they fit the row log beside all that waits there, with some pages to
//!   spare, whatever the deletes that wait will give back. So everything in the journal can always be applied.
//! * Fewer pages are left only by a batch that deletes, too, in one transaction past the journal, and never fewer than
//!   [`RESERVE_PAGES`]. So deletes always go through.

use super::disk::PAGE;

/// Pages that a commit writes whatever it changes: the way to the marker and to the last rows, redb's own trees, the
/// list of what it gave up.
const COMMIT_PAGES: u64 = 12;

/// Pages that one run of deleted rows changes at most, usually: the leaves at its ends, their neighbours, a branch.
const RUN_PAGES: u64 = 4;

/// Pages of redb that are not the table's.
const OWN_PAGES: u64 = 8;

/// Pages that rows leave free, so that a single run can always be deleted, and another beside it before the pages of
/// the first are free again.
pub(super) const RESERVE_PAGES: u64 = 2 * (COMMIT_PAGES + RUN_PAGES);

/// Pages that rows in the journal leave free beyond that: these, and one for so many of the file.
const EASY_PAGES: u64 = 12;
const EASY_SHARE: u64 = 64;

/// Pages for what comes in at the quota before anything is deleted, in the smallest log.
const SLACK_PAGES: u64 = 16;

/// One page of branches serves so many leaves at least, when rows are added in ascending order.
const BRANCH_SHARE: u64 = 100;

/// One transaction removes at most one run of rows for this many pages of the file.
const SHARE: u64 = 12;

/// The pages of the row log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Space {
    /// Pages that redb may fill.
    pub(super) capacity: u64,
    /// Pages of the table.
    pub(super) used: u64,
}

/// How an apply is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Steps {
    /// Runs of deleted rows in one transaction, at least one.
    pub(super) runs: usize,
    /// Rows are added when the pages of all deleted ones are free.
    pub(super) apart: bool,
}

impl Space {
    const fn free(self) -> u64 {
        self.capacity.saturating_sub(self.used + OWN_PAGES)
    }

    /// True when rows that are charged so many bytes fit, and deletes still go through afterwards.
    pub(super) const fn holds(self, charged: u64) -> bool {
        pages_for(charged) + RESERVE_PAGES <= self.free()
    }

    /// The same with room left for batches that delete as much as they add.
    pub(super) const fn holds_easily(self, charged: u64) -> bool {
        pages_for(charged) + self.spare() <= self.free()
    }

    const fn spare(self) -> u64 {
        RESERVE_PAGES + EASY_PAGES + self.capacity / EASY_SHARE
    }

    /// What more rows may be charged at most, bytes, when nothing is deleted.
    pub(super) const fn room_bytes(self) -> u64 {
        let pages = self.free().saturating_sub(RESERVE_PAGES);
        (pages - pages / BRANCH_SHARE) * PAGE
    }

    /// What live rows may be charged, bytes: 75 % of what the log can hold, less when that is next to nothing.
    pub(super) fn quota_bytes(self) -> u64 {
        let beside = self.capacity.saturating_sub(OWN_PAGES + self.spare() + SLACK_PAGES);
        (self.capacity / 4 * 3).min(beside) * PAGE
    }

    /// The capacity at whose quota the table would be.
    pub(super) const fn capacity_for_used(self) -> u64 {
        let beside = OWN_PAGES + RESERVE_PAGES + EASY_PAGES + SLACK_PAGES;
        let (by_share, by_pages) = (self.used / 3 * 4 + 8, self.used + self.used / 32 + beside + 2);
        if by_share > by_pages { by_share } else { by_pages }
    }

    /// The steps of an apply that adds rows which are charged so many bytes.
    pub(super) fn steps(self, charged: u64) -> Steps {
        // Half of what is free, as the last transaction's pages may not be back yet.
        let half = self.free() / 2;
        let most = (self.capacity / SHARE).max(1);
        let runs = (half.saturating_sub(COMMIT_PAGES) / RUN_PAGES).clamp(1, most);
        let together = pages_for(charged) + runs * RUN_PAGES + COMMIT_PAGES <= half;
        Steps { runs: usize::try_from(runs).unwrap_or(usize::MAX), apart: !together }
    }
}

/// Pages that new rows take: ascending keys fill leaf after leaf; branches, and the last leaf that is written again.
const fn pages_for(charged: u64) -> u64 {
    if charged == 0 { 0 } else { charged.div_ceil(PAGE) + charged / PAGE / BRANCH_SHARE + 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuller_the_log_the_smaller_the_steps() {
        let space = |used| Space { capacity: 2_400, used };
        assert_eq!(space(100).steps(1 << 20), Steps { runs: 200, apart: false });
        assert_eq!(space(1_900).steps(400 << 10), Steps { runs: 58, apart: true });
        assert_eq!(space(2_360).steps(0), Steps { runs: 1, apart: false });
        assert_eq!(space(2_500).steps(0), Steps { runs: 1, apart: true });
    }

    #[test]
    fn rows_leave_room_for_deletes() {
        let space = Space { capacity: 100, used: 50 };
        assert!(space.holds(8 * PAGE) && !space.holds(9 * PAGE));
        assert!(!space.holds_easily(0));
        assert!(!Space { capacity: 100, used: 70 }.holds(0));
        for used in [0, 3, 100, 152, 1_000, 12_345] {
            let capacity = Space { capacity: 0, used }.capacity_for_used();
            let quota = Space { capacity, used }.quota_bytes() / PAGE;
            assert!(quota >= used && quota < used + used / 32 + 8, "{used} of {capacity}: {quota}");
        }
        assert_eq!(Space { capacity: 223, used: 0 }.quota_bytes(), 152 * PAGE);
        assert_eq!(Space { capacity: 17_407, used: 0 }.quota_bytes(), 17_407 / 4 * 3 * PAGE);
    }
}
