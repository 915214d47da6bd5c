//! Readings on their way from the broker's collections to the series store: handed over as they come, flushed when it
//! is time or when they press, settled when the flush is synced. Owns when; leaves how to `series`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Gateway;
use crate::broker::{CollectionPlan, Overflow, QueueBounds, QueueIndex};
use crate::config::Config;
use crate::ingest::Taken;
use crate::ingest::route::Durability;
use crate::series::FlushTo;
use crate::time::{Mono, Now};

/// Readings are flushed when one has waited so long.
const FLUSH_INTERVAL: Duration = Duration::from_secs(60);
/// They are flushed earlier when so many wait ...
const WAITING_MAX: u32 = 16_384;
/// ... or so many bytes.
const WAITING_BYTES_MAX: u64 = 2 << 20;
/// A reading is charged at least so much of the window.
const READING_BYTES_MIN: u64 = 128;

/// What the owner of the series store is asked to do, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SeriesRequest {
    Take(Taken),
    /// Readings of the collection before this sequence are settled or lost.
    Forget {
        collection: Arc<str>,
        before: u64,
    },
    /// Store, sync, and answer with [`Gateway::series_flushed`]. Not asked again before.
    Flush {
        parts: Vec<FlushTo>,
        /// The wall clock, if it is trusted.
        now_ms: Option<i64>,
    },
    /// The clock is trusted and shows so much more than this boot's estimates.
    Correct {
        shift_ms: i64,
    },
}

/// The collections' part of the configuration. `flash_quota_bytes` is what the store grants; readings have a quarter.
#[must_use]
pub fn collection_plans(config: &Config, flash_quota_bytes: u64) -> Vec<CollectionPlan> {
    let mut filters: BTreeMap<&str, Vec<(Box<str>, bool)>> = BTreeMap::new();
    for route in &config.routes {
        let durable = route.durability == Durability::Ack;
        let of_collection = filters.entry(&route.collection).or_default();
        for filter in &route.filters {
            match of_collection.iter_mut().find(|(known, _)| **known == *filter.plain) {
                Some((_, known)) => *known |= durable,
                None => of_collection.push((filter.plain.as_str().into(), durable)),
            }
        }
    }
    let bytes_max = flash_quota_bytes / 4 / (filters.len().max(1) as u64);
    let messages_max = u32::try_from(bytes_max / READING_BYTES_MIN).unwrap_or(u32::MAX);
    let bounds = QueueBounds { messages_max, bytes_max, overflow: Overflow::DropOldest };
    filters.into_iter().map(|(name, filters)| CollectionPlan { name: name.into(), filters, bounds }).collect()
}

/// The shortest interval of each collection's routes that have one.
pub(super) fn flush_intervals(config: &Config) -> BTreeMap<Box<str>, Duration> {
    let mut intervals: BTreeMap<Box<str>, Duration> = BTreeMap::new();
    for route in &config.routes {
        if let Durability::Every(interval) = route.durability {
            let known = intervals.entry(route.collection.as_str().into()).or_insert(interval);
            *known = interval.min(*known);
        }
    }
    intervals
}

#[derive(Debug, Default)]
pub(super) struct Readings {
    names: BTreeMap<QueueIndex, Arc<str>>,
    /// When each collection is to be flushed.
    due: BTreeMap<QueueIndex, Mono>,
    /// Told to forget those before this sequence.
    forgotten: BTreeMap<QueueIndex, u64>,
    flushing: Option<Vec<(QueueIndex, u64)>>,
    /// Somebody waits for all that is there to be stored.
    wanted: bool,
    /// Wall clock less monotonic clock, milliseconds, while the former is not trusted.
    estimate: Option<i64>,
    /// Why the series store does not store, if it does not.
    pub failing: Option<String>,
}

impl Gateway {
    /// What the series store is to do now: after every round.
    pub fn series_requests(&mut self, now: Now) -> Vec<SeriesRequest> {
        let mut requests = Vec::new();
        self.watch_clock(now, &mut requests);
        self.hand_over(now, &mut requests);
        self.flush_if_due(now, &mut requests);
        requests
    }

    /// The flush that was asked for is synced: its readings need no row any more.
    pub fn series_flushed(&mut self, now: Now) {
        self.readings.failing = None;
        for (index, through) in self.readings.flushing.take().unwrap_or_default() {
            self.broker.settle_readings(now, index, through);
            self.readings.forgotten.insert(index, through.saturating_add(1));
            if self.broker.unsettled_readings(index).0 == 0 {
                self.readings.due.remove(&index);
            } else {
                self.readings.due.insert(index, now.mono + self.flush_interval(index));
            }
        }
        self.drain(now);
    }

    /// The series store does not store; the text says why. Readings wait in the window meanwhile.
    pub fn series_failing(&mut self, why: String) {
        self.readings.failing = Some(why);
    }

    /// A file of the series store was damaged: the receipt names it.
    pub fn report_damage(&mut self, now: Now, damage: &[String]) {
        for what in damage {
            self.broker.report_damage(now, what);
        }
    }

    /// Has everything that may be stored flushed in the next round: for a clean stop, or a deletion.
    pub const fn want_series_flush(&mut self) {
        self.readings.wanted = true;
    }

    /// True while a flush is under way or asked for.
    #[must_use]
    pub const fn is_series_flushing(&self) -> bool {
        self.readings.flushing.is_some() || self.readings.wanted
    }

    /// When readings are to be flushed.
    pub(super) fn readings_deadline(&self) -> Option<Mono> {
        if self.readings.flushing.is_some() {
            return None;
        }
        self.readings.due.values().min().copied()
    }

    /// Estimates of this boot are corrected once the clock is trusted. Until then the driver's wall clock goes with
    /// the monotonic one, so that one difference holds for all of them.
    fn watch_clock(&mut self, now: Now, requests: &mut Vec<SeriesRequest>) {
        let difference = i64::try_from(now.wall.0).unwrap_or(i64::MAX)
            - i64::try_from(now.mono.0 / 1000).unwrap_or(i64::MAX);
        if !now.wall_trusted {
            self.readings.estimate.get_or_insert(difference);
        } else if let Some(estimate) = self.readings.estimate.take() {
            requests.push(SeriesRequest::Correct { shift_ms: difference.saturating_sub(estimate) });
        }
    }

    fn hand_over(&mut self, now: Now, requests: &mut Vec<SeriesRequest>) {
        if !self.broker.has_readings() {
            return;
        }
        for (index, name) in self.broker.collections() {
            self.readings.names.entry(index).or_insert_with(|| name.into());
        }
        let names = &self.readings.names;
        let mut fresh = Vec::new();
        self.broker.take_readings(|index, sequence, held| {
            let Some(collection) = names.get(&index) else { return };
            if fresh.last() != Some(&index) {
                fresh.push(index);
            }
            let message = &held.message;
            requests.push(SeriesRequest::Take(Taken {
                collection: Arc::clone(collection),
                sequence,
                topic: message.address.clone(),
                received_at: i64::try_from(message.received_at.0).unwrap_or(i64::MAX),
                estimated: !message.received_trusted,
                payload: message.body.clone(),
            }));
        });
        for index in fresh {
            let oldest = self.broker.oldest_reading(index);
            let forgotten = self.readings.forgotten.entry(index).or_insert(0);
            if oldest > *forgotten {
                *forgotten = oldest;
                if let Some(collection) = self.readings.names.get(&index).cloned() {
                    requests.push(SeriesRequest::Forget { collection, before: oldest });
                }
            }
            let at = now.mono + self.flush_interval(index);
            self.readings.due.entry(index).or_insert(at);
        }
    }

    fn flush_if_due(&mut self, now: Now, requests: &mut Vec<SeriesRequest>) {
        if self.readings.flushing.is_some() {
            return;
        }
        let indexes: Vec<QueueIndex> = self.broker.collections().map(|(index, _)| index).collect();
        let presses = |index: &QueueIndex| {
            let (messages, bytes, pressed) = self.broker.unsettled_readings(*index);
            pressed || messages >= WAITING_MAX || bytes >= WAITING_BYTES_MAX
        };
        let broker = &self.broker;
        self.readings.due.retain(|index, _| broker.unsettled_readings(*index).0 > 0);
        let is_due = self.readings.due.values().any(|at| *at <= now.mono);
        if !is_due && !self.readings.wanted && !indexes.iter().any(presses) {
            return;
        }
        self.readings.wanted = false;
        let mut parts = Vec::new();
        let mut flushing = Vec::new();
        for index in indexes {
            let Some(flushable) = self.broker.flushable(index) else {
                // It waits for its row; the next look is after that.
                if let Some(at) = self.readings.due.get_mut(&index) {
                    *at = (*at).max(now.mono + Duration::from_secs(1));
                }
                continue;
            };
            let Some(collection) = self.readings.names.get(&index).cloned() else { continue };
            flushing.push((index, flushable.through));
            parts.push(FlushTo { collection, through: flushable.through, row_key: flushable.row_key });
        }
        if parts.is_empty() {
            // Nothing to wait for.
            return;
        }
        self.readings.flushing = Some(flushing);
        let now_ms = now.wall_trusted.then(|| i64::try_from(now.wall.0).unwrap_or(i64::MAX));
        requests.push(SeriesRequest::Flush { parts, now_ms });
    }

    fn flush_interval(&self, index: QueueIndex) -> Duration {
        let name = self.readings.names.get(&index);
        let own = name.and_then(|name| self.policy.flush_intervals.get(&**name));
        own.copied().unwrap_or(FLUSH_INTERVAL).min(FLUSH_INTERVAL)
    }
}
