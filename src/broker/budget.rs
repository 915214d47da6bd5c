//! The flash budget: a token bucket that spreads commits when a day's bytes are spent too fast.
//!
//! A card that is written 8 GiB a day lasts years; one that is written at full speed dies in months. Overspending
//! never refuses or loses anything: commits wait longer, at most a second, and so carry more.

use std::time::Duration;

use crate::time::Mono;

const DAY_US: u128 = 24 * 3600 * 1_000_000;
const HOUR_US: u128 = 3600 * 1_000_000;
/// Commits never wait longer than this for the budget.
const SPREAD_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct FlashBudget {
    /// Bytes a day; `None` = unlimited.
    bytes_per_day: Option<u64>,
    /// Bytes that may be written now without spreading; negative when overspent.
    tokens: i128,
    filled_at: Mono,
    /// Bytes written since the start.
    pub written: u64,
}

impl FlashBudget {
    /// A full bucket: an hour's share may be written in one burst.
    #[must_use]
    pub fn new(bytes_per_day: Option<u64>, now: Mono) -> Self {
        let mut budget = Self { bytes_per_day, tokens: 0, filled_at: now, written: 0 };
        budget.tokens = budget.burst();
        budget
    }

    /// Accounts for `bytes` written; answers the earliest moment of the next commit.
    pub fn spend(&mut self, now: Mono, bytes: u64) -> Mono {
        self.written += bytes;
        let Some(per_day) = self.bytes_per_day else { return Mono(0) };
        let elapsed = u128::from(now.0.saturating_sub(self.filled_at.0));
        let earned = i128::try_from(u128::from(per_day) * elapsed / DAY_US).unwrap_or(i128::MAX);
        if earned > 0 {
            self.filled_at = now;
        }
        self.tokens = (self.tokens.saturating_add(earned)).min(self.burst()) - i128::from(bytes);
        if self.tokens >= 0 {
            return Mono(0);
        }
        let to_earn = self.tokens.unsigned_abs() * DAY_US / u128::from(per_day.max(1));
        let wait = Duration::from_micros(u64::try_from(to_earn).unwrap_or(u64::MAX)).min(SPREAD_MAX);
        now + wait
    }

    /// True when the bucket is overdrawn and commits are being spread.
    #[must_use]
    pub const fn is_overspent(&self) -> bool {
        self.tokens < 0
    }

    fn burst(&self) -> i128 {
        self.bytes_per_day.map_or(0, |per_day| (u128::from(per_day) * HOUR_US / DAY_US) as i128)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hours_share_is_free_then_commits_spread_to_the_daily_rate() {
        let per_day = 24 * 3_600_000;
        let mut budget = FlashBudget::new(Some(per_day), Mono(0));
        assert_eq!(budget.spend(Mono(0), 3_600_000), Mono(0));
        // 1000 bytes a second are earned, so 500 bytes cost half a second.
        assert_eq!(budget.spend(Mono(0), 500), Mono(500_000));
        assert_eq!(budget.spend(Mono(500_000), 0), Mono(0));
    }

    #[test]
    fn a_commit_never_waits_longer_than_a_second() {
        let mut budget = FlashBudget::new(Some(1), Mono(0));
        assert_eq!(budget.spend(Mono(5), u64::MAX), Mono(1_000_005));
    }

    #[test]
    fn without_a_budget_nothing_waits() {
        let mut budget = FlashBudget::new(None, Mono(0));
        assert_eq!(budget.spend(Mono(9), 1 << 40), Mono(0));
        assert_eq!(budget.written, 1 << 40);
    }
}
