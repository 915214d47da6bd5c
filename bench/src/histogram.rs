//! Latencies in buckets of at most 1.6 % width, from 1 ns to hours, in fixed memory.

use std::time::Duration;

/// Buckets per power of two: 6 bits after the leading one.
const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;

#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; SUB * 64], count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    pub fn record(&mut self, ns: u64) {
        if let Some(bucket) = self.buckets.get_mut(index(ns)) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    #[must_use]
    pub const fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    #[must_use]
    pub fn mean(&self) -> Duration {
        let mean = self.sum_ns.checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The lower edge of the bucket in which the share `per_mille` of the values lies at the latest.
    #[must_use]
    pub fn percentile(&self, per_mille: u64) -> Duration {
        let rank = (self.count * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (position, bucket) in self.buckets.iter().enumerate() {
            seen += bucket;
            if seen >= rank {
                return Duration::from_nanos(lower_edge(position).min(self.max_ns));
            }
        }
        self.max()
    }
}

fn index(ns: u64) -> usize {
    let top = 63 - ns.max(1).leading_zeros();
    if top < SUB_BITS {
        return usize::try_from(ns).unwrap_or(0);
    }
    let shift = top - SUB_BITS;
    let sub = usize::try_from((ns >> shift) & (SUB as u64 - 1)).unwrap_or(0);
    SUB * (shift as usize + 1) + sub
}

fn lower_edge(position: usize) -> u64 {
    let (shift, sub) = ((position / SUB), (position % SUB) as u64);
    if shift == 0 { sub } else { (SUB as u64 + sub) << (shift - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_monotonic_and_tight() {
        for ns in (0..10_000_u64).chain([1 << 20, (1 << 33) + 12_345, u64::MAX / 3]) {
            let edge = lower_edge(index(ns));
            assert!(edge <= ns && ns - edge <= ns / 64, "{ns} in bucket from {edge}");
        }
    }

    #[test]
    fn percentiles_of_a_known_series() {
        let mut histogram = Histogram::default();
        (1..=1000_u64).for_each(|us| histogram.record(us * 1000));
        let at = |per_mille| u64::try_from(histogram.percentile(per_mille).as_micros()).unwrap();
        assert!((490..=500).contains(&at(500)) && (975..=990).contains(&at(990)), "{} {}", at(500), at(990));
        assert_eq!(histogram.max(), Duration::from_micros(1000));
        assert_eq!(Histogram::default().percentile(990), Duration::ZERO);
    }
}
