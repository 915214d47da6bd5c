//! Load averages for `$SYS`: what came and went in a minute, averaged over 1, 5 and 15 minutes, as Mosquitto has them.
//!
//! A sample is taken by the first input that comes ten seconds after the last one. So a gateway with nothing to do is not
//! woken up, and nothing has happened in what a longer pause leaves out.

use std::time::Duration;

use super::Gateway;
use crate::time::{Mono, Now};

const INTERVAL: Duration = Duration::from_secs(10);

/// The averages' minutes, with their names in topics.
pub(super) const MINUTES: [(&str, f64); 3] = [("1min", 1.0), ("5min", 5.0), ("15min", 15.0)];

/// What is averaged, by the names below `$SYS/broker/load/`.
pub(super) const LOADS: [&str; 8] = [
    "messages/received",
    "publish/received",
    "publish/sent",
    "publish/dropped",
    "bytes/received",
    "bytes/sent",
    "sockets",
    "connections",
];

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Load {
    sampled: Mono,
    due: Mono,
    counts: [u64; LOADS.len()],
    /// For each load what comes in a minute, by [`MINUTES`].
    pub averages: [[f64; MINUTES.len()]; LOADS.len()],
}

impl Load {
    /// A load that begins now.
    pub fn new(now: Mono) -> Self {
        Self { sampled: now, due: now + INTERVAL, ..Self::default() }
    }

    #[expect(clippy::cast_precision_loss, reason = "averages that are shown with two decimals")]
    fn sample(&mut self, now: Mono, counts: [u64; LOADS.len()]) {
        let minutes = now.since(self.sampled).as_secs_f64() / 60.0;
        if minutes <= 0.0 {
            return;
        }
        let loads = self.averages.iter_mut().zip(counts.iter().zip(&self.counts));
        for (averages, (count, before)) in loads {
            let in_a_minute = count.saturating_sub(*before) as f64 / minutes;
            for (average, (_, over)) in averages.iter_mut().zip(MINUTES) {
                let keeps = (-minutes / over).exp();
                *average = in_a_minute + keeps * (*average - in_a_minute);
            }
        }
        (self.sampled, self.due, self.counts) = (now, now + INTERVAL, counts);
    }
}

impl Gateway {
    /// Takes a sample if it is time. Called before what comes is counted.
    #[inline]
    pub(super) fn sample_load(&mut self, now: Now) {
        if now.mono >= self.load.due {
            self.take_load_sample(now);
        }
    }

    #[cold]
    fn take_load_sample(&mut self, now: Now) {
        let (counters, broker) = (self.counters, self.broker.counters());
        let counts = [
            counters.packets_received,
            broker.published,
            broker.delivered,
            broker.lost + broker.dropped_output_full,
            counters.bytes_received,
            counters.bytes_sent,
            counters.connections,
            counters.joined,
        ];
        self.load.sample(now.mono, counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Averages of a steady 120 a minute after so many seconds, sampled every `every` seconds.
    fn steady(seconds: u64, every: u64) -> [f64; 3] {
        let mut load = Load::new(Mono(0));
        for at in (every..=seconds).step_by(usize::try_from(every).unwrap()) {
            load.sample(Mono(at * 1_000_000), [at * 2; LOADS.len()]);
        }
        load.averages[0]
    }

    #[test]
    fn averages_come_near_the_rate_the_shorter_the_sooner() {
        let [one, five, fifteen] = steady(60, 10);
        assert!((one - 120.0 * (1.0 - (-1.0_f64).exp())).abs() < 0.01, "{one}");
        assert!((five - 120.0 * (1.0 - (-0.2_f64).exp())).abs() < 0.01, "{five}");
        assert!(fifteen < five && five < one);
        assert!(steady(7200, 10).iter().all(|average| (average - 120.0).abs() < 0.1));
    }

    #[test]
    fn a_pause_counts_as_much_as_the_samples_that_were_not_taken() {
        let mut load = Load::new(Mono(0));
        load.sample(Mono(10_000_000), [600; LOADS.len()]);
        let mut patient = Load::new(Mono(0));
        patient.sample(Mono(10_000_000), [600; LOADS.len()]);
        load.sample(Mono(310_000_000), [600; LOADS.len()]);
        for at in 2..=31 {
            patient.sample(Mono(at * 10_000_000), [600; LOADS.len()]);
        }
        for (one, other) in load.averages[0].iter().zip(patient.averages[0]) {
            assert!((one - other).abs() < 1e-9, "{one} {other}");
        }
    }
}
