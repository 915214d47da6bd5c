//! The clocks: the one place that reads them.

#![expect(clippy::disallowed_methods, reason = "reading the clocks is what this file is for")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::time::{Mono, Now, Wall};

/// 2025-01-01: an earlier wall clock was never set.
const PLAUSIBLE_SINCE_MS: u64 = 1_735_689_600_000;

/// Reads both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    /// The system's monotonic clock then, milliseconds: it goes on from one start of the gateway to the next.
    began_system_ms: i64,
    /// What the wall clock showed then: it goes on from there as long as it is not trusted, so that one correction
    /// holds for all its estimates.
    began_wall: Wall,
    wall_trusted: bool,
}

impl Clock {
    /// Monotonic time counts from here.
    #[must_use]
    pub fn start() -> Self {
        let began_system_ms = monotonic_ms();
        let mut clock =
            Self { began: Instant::now(), began_system_ms, began_wall: wall(), wall_trusted: false };
        clock.look_for_trust();
        clock
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Now {
        let mono = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let wall =
            if self.wall_trusted { wall() } else { Wall(self.began_wall.0.saturating_add(mono / 1000)) };
        Now { mono: Mono(mono), wall, wall_trusted: self.wall_trusted }
    }

    /// What the system's monotonic clock showed at the start, milliseconds.
    #[must_use]
    pub const fn began_system_ms(&self) -> i64 {
        self.began_system_ms
    }

    /// The instant of a monotonic moment.
    #[must_use]
    pub fn instant(&self, at: Mono) -> Instant {
        self.began + at.since(Mono(0))
    }

    /// Asks the system whether the wall clock may be believed: where systemd synchronises time, its mark must be
    /// there; elsewhere the time must be plausible. A clock that was right once goes on well enough by itself.
    pub fn look_for_trust(&mut self) {
        self.wall_trusted |= is_trusted(wall(), Path::new("/run/systemd/timesync"));
    }
}

fn is_trusted(wall: Wall, by_systemd: &Path) -> bool {
    wall.0 >= PLAUSIBLE_SINCE_MS && (!by_systemd.exists() || by_systemd.join("synchronized").exists())
}

/// Tells this boot of the system from others.
#[must_use]
pub fn system_boot() -> u32 {
    let identifier = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    crc32fast::hash(&identifier)
}

fn monotonic_ms() -> i64 {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn wall() -> Wall {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_trusted_when_it_is_plausible_and_synchronised() {
        let folder = std::env::temp_dir().join(format!("gatewayd-clock-{}", std::process::id()));
        let now = Wall(PLAUSIBLE_SINCE_MS);
        assert!(is_trusted(now, &folder), "nobody synchronises here");
        assert!(!is_trusted(Wall(PLAUSIBLE_SINCE_MS - 1), &folder));
        fs::create_dir_all(&folder).unwrap();
        assert!(!is_trusted(now, &folder));
        fs::write(folder.join("synchronized"), "").unwrap();
        assert!(is_trusted(now, &folder));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn starts_of_one_boot_share_the_monotonic_clock() {
        let (first, second) = (Clock::start(), Clock::start());
        assert!(first.began_system_ms() > 0 && second.began_system_ms() >= first.began_system_ms());
        assert_eq!(system_boot(), system_boot());
    }
}
