//! Time as an argument. Owns the two clocks' types and the rule for time that passed while power was off;
//! reading a real clock is `net`'s business.

pub mod calendar;

use std::ops::{Add, Sub};
use std::time::Duration;

/// Microseconds of the monotonic clock since an arbitrary point of this boot. Never steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mono(pub u64);

/// Milliseconds since 1970-01-01 UTC by the wall clock. May step in either direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Wall(pub u64);

/// The moment an input is handled at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    pub mono: Mono,
    pub wall: Wall,
    /// The wall clock was set from a source worth trusting (time synchronisation, a kept RTC).
    pub wall_trusted: bool,
}

impl Now {
    /// Milliseconds that the wall clock is ahead of the monotonic one.
    #[must_use]
    pub fn wall_ahead_ms(&self) -> i64 {
        let wall = i64::try_from(self.wall.0).unwrap_or(i64::MAX);
        wall.saturating_sub(i64::try_from(self.mono.0 / 1000).unwrap_or(i64::MAX))
    }
}

impl Mono {
    /// Time since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Mono {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// A moment that is stored and looked at after a restart: both clocks, the boot they belong to, and trust.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    pub mono: Mono,
    pub wall: Wall,
    pub wall_trusted: bool,
    /// Counts the starts of the store; the monotonic clock compares only within one.
    pub boot: u32,
}

/// Longest time powered off that is believed: 30 days.
const POWERED_OFF_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

impl Stamp {
    /// The stamp of `now` in boot number `boot`.
    #[must_use]
    pub const fn new(now: Now, boot: u32) -> Self {
        Self { mono: now.mono, wall: now.wall, wall_trusted: now.wall_trusted, boot }
    }

    /// Time that surely passed from this stamp to `now` in boot `boot`, which began at `boot_began`.
    ///
    /// Within one boot the monotonic clock tells. Across boots the wall clock counts only when it was trusted
    /// at both ends and the difference is 0 to 30 days; otherwise only the running time of this boot counts, so
    /// that nothing expires early.
    #[must_use]
    pub fn elapsed(&self, now: Now, boot: u32, boot_began: Mono) -> Duration {
        if self.boot == boot {
            return now.mono.since(self.mono);
        }
        let this_boot = now.mono.since(boot_began);
        if self.wall_trusted && now.wall_trusted && now.wall >= self.wall {
            let by_wall = Duration::from_millis(now.wall.0 - self.wall.0);
            if by_wall <= POWERED_OFF_MAX + this_boot {
                return by_wall.max(this_boot);
            }
        }
        this_boot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;

    fn at(mono_s: u64, wall_s: u64, trusted: bool) -> Now {
        Now { mono: Mono(mono_s * 1_000_000), wall: Wall(wall_s * 1000), wall_trusted: trusted }
    }

    #[test]
    fn within_one_boot_a_wall_step_changes_nothing() {
        let stamp = Stamp::new(at(10, 1_000_000, true), 1);
        assert_eq!(stamp.elapsed(at(15, 5, true), 1, Mono(0)), Duration::from_secs(5));
    }

    #[test]
    fn time_powered_off_counts_only_when_trusted_at_both_ends_and_plausible() {
        let stamp = Stamp::new(at(10, 1_000_000, true), 1);
        let later = 1_000_000 + HOUR;
        assert_eq!(stamp.elapsed(at(5, later, true), 2, Mono(0)), Duration::from_secs(HOUR));
        assert_eq!(stamp.elapsed(at(5, later, false), 2, Mono(0)), Duration::from_secs(5));
        assert_eq!(stamp.elapsed(at(5, 999, true), 2, Mono(0)), Duration::from_secs(5));
        let year = 1_000_000 + 365 * 24 * HOUR;
        assert_eq!(stamp.elapsed(at(5, year, true), 2, Mono(0)), Duration::from_secs(5));
    }
}
