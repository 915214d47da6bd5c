//! The clocks: the one place that reads them.

#![expect(clippy::disallowed_methods, reason = "reading the clocks is what this file is for")]

use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::time::{Mono, Now, Wall};

/// 2025-01-01: an earlier wall clock was never set.
const PLAUSIBLE_SINCE_MS: u64 = 1_735_689_600_000;

/// Reads both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    /// What the wall clock showed then: it goes on from there as long as it is not trusted, so that one correction
    /// holds for all its estimates.
    began_wall: Wall,
    wall_trusted: bool,
}

impl Clock {
    /// Monotonic time counts from here.
    #[must_use]
    pub fn start() -> Self {
        let mut clock = Self { began: Instant::now(), began_wall: wall(), wall_trusted: false };
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

    /// The instant of a monotonic moment.
    #[must_use]
    pub fn instant(&self, at: Mono) -> Instant {
        self.began + at.since(Mono(0))
    }

    /// Asks the system whether the wall clock may be believed: where systemd synchronises time, its mark must be
    /// there; elsewhere the time must be plausible.
    pub fn look_for_trust(&mut self) {
        let plausible = wall().0 >= PLAUSIBLE_SINCE_MS;
        let by_systemd = Path::new("/run/systemd/timesync");
        self.wall_trusted = plausible && (!by_systemd.exists() || by_systemd.join("synchronized").exists());
    }
}

fn wall() -> Wall {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
