//! What estimated times are corrected by.
//!
//! Before the wall clock is trusted a reading's time is an estimate: the monotonic clock plus a difference that holds for
//! a whole start of the gateway. The difference is kept with the number of the start. Once the clock is trusted the
//! true one is known, and all estimates of all starts since the system booted are off by what lies between the two: the
//! monotonic clock went on all the time. Of estimates before an earlier boot nothing more is known; they stay.

use std::collections::BTreeMap;

use crate::message::record::Reader;

/// A start of the gateway, as far as time is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// Counts the starts, from 1.
    pub number: u32,
    /// Tells this boot of the system from others: the monotonic clock goes on within it.
    pub system_boot: u32,
    /// What the system's monotonic clock showed when the gateway's own was 0; milliseconds.
    pub began_ms: i64,
    /// Milliseconds that the wall clock is ahead of the gateway's monotonic clock, as long as it is not trusted.
    /// `None`: it was trusted from the beginning.
    pub estimate_ms: Option<i64>,
}

/// Whose estimate a reading's time is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EstimatedBy {
    ThisStart,
    /// It was in the row log when this start began.
    EarlierStart,
}

/// The starts whose estimates can be corrected.
#[derive(Debug)]
pub(super) struct Starts {
    this: Start,
    /// By number: how far the estimates were ahead of the system's monotonic clock.
    ahead_ms: BTreeMap<u32, i64>,
    /// Of the readings that were in the row log; 0 when that start is not one of them.
    earlier: u32,
    /// How far the trusted clock is ahead of the system's monotonic one.
    true_ms: Option<i64>,
}

impl Starts {
    pub fn new(this: Start) -> Self {
        let mut starts = Self { this, ahead_ms: BTreeMap::new(), earlier: 0, true_ms: None };
        if let Some(estimate) = this.estimate_ms {
            starts.ahead_ms.insert(this.number, estimate.saturating_sub(this.began_ms));
        }
        starts
    }

    /// A record that was found, in the order of the starts. True when it is of no use any more.
    pub fn found(&mut self, number: u32, record: &[u8]) -> bool {
        if number == self.this.number {
            return false;
        }
        let read = read_record(record).filter(|(boot, _)| *boot == self.this.system_boot);
        if let Some((_, ahead)) = read {
            self.ahead_ms.insert(number, ahead);
        }
        self.earlier = if read.is_some() { number } else { 0 };
        read.is_none()
    }

    /// This start's record; `None` when it makes no estimates.
    pub fn record(&self) -> Option<(u32, Vec<u8>)> {
        let ahead = self.ahead_ms.get(&self.this.number)?;
        let boot = self.this.system_boot.to_le_bytes();
        Some((self.this.number, [&boot[..], &ahead.to_le_bytes()].concat()))
    }

    /// The number of the start that made an estimate; 0 when nothing is known of it.
    pub fn number_of(&self, by: EstimatedBy) -> u32 {
        match by {
            EstimatedBy::ThisStart => self.this.number,
            EstimatedBy::EarlierStart => self.earlier,
        }
    }

    /// The wall clock is trusted and so far ahead of the gateway's monotonic clock.
    pub fn trust(&mut self, ahead_ms: i64) {
        let true_ms = ahead_ms.saturating_sub(self.this.began_ms);
        self.true_ms.get_or_insert(true_ms);
    }

    /// What is to be added to the estimates of a start, if that is known.
    pub fn shift(&self, number: u32) -> Option<i64> {
        Some(self.true_ms?.saturating_sub(*self.ahead_ms.get(&number)?))
    }

    /// The starts whose estimates can be corrected now, with what is to be added.
    pub fn shifts(&self) -> Vec<(u32, i64)> {
        self.ahead_ms.keys().filter_map(|number| Some((*number, self.shift(*number)?))).collect()
    }
}

/// Boot of the system (4 bytes LE), how far estimates are ahead of its monotonic clock (8 bytes LE, milliseconds).
fn read_record(record: &[u8]) -> Option<(u32, i64)> {
    let mut reader = Reader::new(record);
    let boot = u32::from_le_bytes(reader.take(4)?.try_into().ok()?);
    let ahead = i64::from_le_bytes(reader.take(8)?.try_into().ok()?);
    reader.is_empty().then_some((boot, ahead))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(number: u32, system_boot: u32, began_ms: i64, estimate_ms: Option<i64>) -> Start {
        Start { number, system_boot, began_ms, estimate_ms }
    }

    #[test]
    fn estimates_of_one_boot_are_corrected_whichever_start_made_them() {
        // The wall clock stood at 0 when the system booted; the first start began after 10 s, the second after 60 s.
        let (_, first) = Starts::new(start(1, 7, 10_000, Some(10_000))).record().unwrap();
        let mut second = Starts::new(start(2, 7, 60_000, Some(61_000)));
        assert!(!second.found(1, &first));
        assert_eq!(second.number_of(EstimatedBy::EarlierStart), 1);
        assert_eq!(second.shifts(), []);
        second.trust(5_060_000);
        assert_eq!(second.shifts(), [(1, 5_000_000), (2, 4_999_000)]);
        second.trust(9);
        assert_eq!(second.shift(1), Some(5_000_000), "the first trusted look counts");
    }

    #[test]
    fn estimates_before_an_earlier_boot_stay() {
        let (_, before) = Starts::new(start(1, 7, 10_000, Some(10_000))).record().unwrap();
        let mut now = Starts::new(start(2, 8, 3_000, Some(3_000)));
        assert!(now.found(1, &before) && now.found(1, &[]));
        assert_eq!(now.number_of(EstimatedBy::EarlierStart), 0);
        now.trust(1_000_000);
        assert_eq!((now.shift(1), now.shift(0), now.shift(2)), (None, None, Some(997_000)));
        assert_eq!(Starts::new(start(3, 8, 0, None)).record(), None);
    }
}
