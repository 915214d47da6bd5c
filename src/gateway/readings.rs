//! Readings on their way from the broker's collections to the series store: handed over as they come, flushed when it
//! is time or when they press, settled when the flush is synced, flushed again after a pause when one failed. Owns
//! when; leaves how to `series`.
//!
//! A flush costs some ten pages however little it holds. So a route with an interval has its readings written to the
//! row log when the interval is over, which costs one, and they are flushed with all others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Gateway;
use crate::broker::{Broker, QueueIndex};
use crate::ingest::Taken;
use crate::series::{EstimatedBy, FlushTo};
use crate::time::{Mono, Now};

/// Readings are flushed when one has waited so long.
const FLUSH_INTERVAL: Duration = Duration::from_secs(60);
/// They are flushed earlier when so many wait ...
const WAITING_MAX: u32 = 16_384;
/// ... or so many bytes.
const WAITING_BYTES_MAX: u64 = 2 << 20;
/// What is too old is looked for this often, in collections that are not flushed.
const TRIM_INTERVAL: Duration = Duration::from_secs(3600);
/// Publishers are held back while a flush is under way and so many times as much waits.
const CONGESTED: u32 = 2;
/// Pause before a flush that failed is asked for again; it doubles up to [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(200);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(10);
/// A flush that is asked for again waits so long at most until the row log knows what was dropped.
const RETRY_HOLD_MAX: Duration = Duration::from_secs(1);
/// A batch that is full takes the rest of the readings to be kept after this.
const KEEP_PAUSE: Duration = Duration::from_millis(20);

/// What the owner of the series store is asked to do, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SeriesRequest {
    Take(Taken),
    /// Readings of the collection before this sequence are settled or lost.
    Forget {
        collection: Arc<str>,
        before: u64,
    },
    /// Store, sync, and answer with [`Gateway::series_flushed`] or [`Gateway::series_failing`]. Not asked again before.
    Flush {
        parts: Vec<FlushTo>,
        /// The wall clock, if it is trusted.
        now_ms: Option<i64>,
    },
    /// Remove what is too old.
    Trim {
        now_ms: i64,
    },
    /// The wall clock is trusted and so far ahead of the monotonic one: estimates are corrected.
    Correct {
        ahead_ms: i64,
    },
}

#[derive(Debug, Default)]
pub(super) struct Readings {
    names: BTreeMap<QueueIndex, Arc<str>>,
    /// When each collection is to be flushed.
    due: BTreeMap<QueueIndex, Mono>,
    /// When the readings that nothing waited for are to be written to the row log.
    keep_due: BTreeMap<QueueIndex, Mono>,
    /// Told to forget those before this sequence.
    forgotten: BTreeMap<QueueIndex, u64>,
    /// Some of their readings were dropped, and are to be forgotten.
    dropped: BTreeSet<QueueIndex>,
    flushing: Option<Vec<(QueueIndex, u64)>>,
    /// A flush failed: the next is asked for then, whatever comes.
    retry_due: Option<Mono>,
    retry_pause: Duration,
    /// Publishers are held back until then, so that nothing is dropped that the next flush stores.
    retry_hold: Option<Mono>,
    /// Collections that get nothing any more are looked at then.
    trim_due: Mono,
    /// Somebody waits for all that is there to be stored.
    wanted: bool,
    /// Rows of readings that may be stored already got other keys: these are to be noted before the rows may go.
    rekeyed: bool,
    /// The wall clock was not trusted, or is not yet: times are estimates.
    estimates: bool,
    /// For each collection the sequences below which readings were in the row log at the start.
    recovered: BTreeMap<QueueIndex, u64>,
    /// Why the series store does not store, if it does not.
    pub failing: Option<String>,
}

impl Readings {
    /// Forgets the collections that are gone: the next may get the place of one.
    pub fn retain(&mut self, broker: &Broker) {
        let lives: BTreeSet<QueueIndex> = broker.collections().map(|(index, _)| index).collect();
        self.names.retain(|index, _| lives.contains(index));
        self.due.retain(|index, _| lives.contains(index));
        self.keep_due.retain(|index, _| lives.contains(index));
        self.forgotten.retain(|index, _| lives.contains(index));
        self.dropped.retain(|index| lives.contains(index));
        self.recovered.retain(|index, _| lives.contains(index));
    }

    /// At the start: what the broker's collections hold now was in the row log.
    pub fn recovered(broker: &Broker) -> Self {
        let end = |index| broker.oldest_reading(index) + u64::from(broker.unsettled_readings(index).0);
        let recovered = broker.collections().map(|(index, _)| (index, end(index))).collect();
        Self { recovered, ..Self::default() }
    }

    /// The row log was written anew. A flush under way notes keys that its rows do not have any more, so it settles
    /// nothing: after a cut the readings would be taken for new ones. The next one notes their keys of today.
    pub fn rows_were_rekeyed(&mut self) {
        if let Some(flushing) = &mut self.flushing {
            flushing.clear();
            self.rekeyed = true;
        }
    }
}

impl Gateway {
    /// What the series store is to do now: after every round.
    pub fn series_requests(&mut self, now: Now) -> Vec<SeriesRequest> {
        let mut requests = Vec::new();
        self.watch_clock(now, &mut requests);
        self.hand_over(now, &mut requests);
        for index in std::mem::take(&mut self.readings.dropped) {
            self.forget_dropped(index, &mut requests);
        }
        self.flush_if_due(now, &mut requests);
        self.keep_if_due(now);
        if now.wall_trusted && now.mono >= self.readings.trim_due {
            self.readings.trim_due = now.mono + TRIM_INTERVAL;
            requests.push(SeriesRequest::Trim { now_ms: i64::try_from(now.wall.0).unwrap_or(i64::MAX) });
        }
        requests
    }

    /// The flush that was asked for is synced: its readings need no row any more.
    pub fn series_flushed(&mut self, now: Now) {
        self.readings.failing = None;
        self.readings.retry_pause = Duration::ZERO;
        for (index, through) in self.readings.flushing.take().unwrap_or_default() {
            self.broker.settle_readings(now, index, through);
            self.readings.forgotten.insert(index, through.saturating_add(1));
            if self.broker.unsettled_readings(index).0 == 0 {
                self.readings.due.remove(&index);
            } else {
                self.readings.due.insert(index, now.mono + FLUSH_INTERVAL);
            }
        }
        self.broker.set_readings_congested(false);
        self.drain(now);
        self.resume_congested(now);
    }

    /// The flush that was asked for failed, and stored nothing; the text says why. Readings wait in the row log
    /// meanwhile, all of them, and what a bound drops of them is lost.
    pub fn series_failing(&mut self, now: Now, why: String) {
        self.readings.failing = Some(why);
        for (index, _) in self.readings.flushing.take().into_iter().flatten() {
            self.readings.keep_due.insert(index, now.mono);
        }
        let pause = (self.readings.retry_pause * 2).clamp(RETRY_PAUSE_MIN, RETRY_PAUSE_MAX);
        self.readings.retry_pause = pause;
        self.readings.retry_due = Some(now.mono + pause);
        // Nobody knows for how long: the bounds decide, and receipts tell.
        self.broker.set_readings_congested(false);
        self.resume_congested(now);
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
        self.readings.retry_due = None;
    }

    /// Why the last flush failed, if it did.
    #[must_use]
    pub fn series_failure(&self) -> Option<&str> {
        self.readings.failing.as_deref()
    }

    /// True while a flush is under way or asked for.
    #[must_use]
    pub const fn is_series_flushing(&self) -> bool {
        self.readings.flushing.is_some() || self.readings.wanted || self.readings.rekeyed
    }

    /// When readings are to be flushed, or kept.
    pub(super) fn readings_deadline(&self) -> Option<Mono> {
        let keep = self.readings.keep_due.values().min().copied();
        if self.readings.flushing.is_some() {
            return keep;
        }
        if let Some(retry) = self.readings.retry_hold.or(self.readings.retry_due) {
            return keep.into_iter().chain([retry]).min();
        }
        self.readings.due.values().min().copied().into_iter().chain(keep).min()
    }

    /// Estimates are corrected once the clock is trusted. Until then the driver's wall clock goes with the monotonic
    /// one, so that one difference holds for all of them.
    fn watch_clock(&mut self, now: Now, requests: &mut Vec<SeriesRequest>) {
        if !now.wall_trusted {
            self.readings.estimates = true;
        } else if std::mem::take(&mut self.readings.estimates) {
            requests.push(SeriesRequest::Correct { ahead_ms: now.wall_ahead_ms() });
            // The rows say what was estimated.
            self.readings.wanted = true;
        }
    }

    fn hand_over(&mut self, now: Now, requests: &mut Vec<SeriesRequest>) {
        if !self.broker.has_readings() {
            return;
        }
        for (index, name) in self.broker.collections() {
            self.readings.names.entry(index).or_insert_with(|| name.into());
        }
        let (names, recovered) = (&self.readings.names, &self.readings.recovered);
        let mut earlier_estimates = false;
        let mut fresh = Vec::new();
        let traced = self.broker.watched();
        let mut parsed = Vec::new();
        self.broker.take_readings(|index, sequence, held| {
            let Some(collection) = names.get(&index) else { return };
            if fresh.last() != Some(&index) {
                fresh.push(index);
            }
            let message = &held.message;
            if traced.contains(&message.address) {
                parsed.push((Arc::clone(collection), message.clone()));
            }
            let is_earlier = recovered.get(&index).is_some_and(|first| sequence < *first);
            let by = if is_earlier { EstimatedBy::EarlierStart } else { EstimatedBy::ThisStart };
            let estimated = (!message.received_trusted).then_some(by);
            earlier_estimates |= estimated == Some(EstimatedBy::EarlierStart);
            requests.push(SeriesRequest::Take(Taken {
                collection: Arc::clone(collection),
                sequence,
                topic: message.address.clone(),
                received_at: i64::try_from(message.received_at.0).unwrap_or(i64::MAX),
                estimated,
                payload: message.body.clone(),
            }));
        });
        self.trace_parsed(now, &parsed);
        // Which start's they are is known now, and would not be after another.
        self.readings.wanted |= earlier_estimates;
        // Also of one whose new reading was dropped at once, with all before it.
        for index in self.broker.collections().map(|(index, _)| index).collect::<Vec<_>>() {
            self.forget_dropped(index, requests);
        }
        for index in fresh {
            self.readings.due.entry(index).or_insert(now.mono + FLUSH_INTERVAL);
            if let Some(interval) = self.keep_interval(index) {
                self.readings.keep_due.entry(index).or_insert(now.mono + interval);
            }
        }
    }

    /// Has the series store forget what a bound dropped, once flash knows of that: until then a flush stores it, and a
    /// flush that is under way must not pass over it.
    fn forget_dropped(&mut self, index: QueueIndex, requests: &mut Vec<SeriesRequest>) {
        let oldest = self.broker.oldest_reading(index);
        let forgotten = self.readings.forgotten.entry(index).or_insert(0);
        if oldest <= *forgotten {
            return;
        }
        if self.readings.flushing.is_some() || !self.broker.drops_are_kept(index) {
            self.readings.dropped.insert(index);
            return;
        }
        *forgotten = oldest;
        if let Some(collection) = self.readings.names.get(&index).cloned() {
            requests.push(SeriesRequest::Forget { collection, before: oldest });
        }
    }

    fn flush_if_due(&mut self, now: Now, requests: &mut Vec<SeriesRequest>) {
        if let Some(flushing) = &self.readings.flushing {
            let presses = |(index, _): &(QueueIndex, u64)| {
                let (messages, bytes, pressed) = self.broker.unsettled_readings(*index);
                pressed
                    || messages >= CONGESTED * WAITING_MAX
                    || bytes >= u64::from(CONGESTED) * WAITING_BYTES_MAX
            };
            // While one is tried again nothing is to be dropped that it stores.
            let congested = self.readings.failing.is_some() || flushing.iter().any(presses);
            self.broker.set_readings_congested(congested);
            return;
        }
        if self.waits_to_retry(now) {
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
        let is_retried = self.readings.retry_due.take().is_some();
        let is_wanted = self.readings.wanted || self.readings.rekeyed || is_retried;
        if !is_due && !is_wanted && !indexes.iter().any(presses) {
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
            // Nothing to flush; what was dropped meanwhile is not noted any more.
            self.readings.rekeyed &= !self.readings.due.is_empty();
            if self.readings.due.is_empty() {
                self.readings.failing = None;
            } else if is_retried {
                self.readings.retry_due = Some(now.mono + RETRY_PAUSE_MAX);
            }
            return;
        }
        self.readings.flushing = Some(flushing);
        self.readings.rekeyed = false;
        let now_ms = now.wall_trusted.then(|| i64::try_from(now.wall.0).unwrap_or(i64::MAX));
        requests.push(SeriesRequest::Flush { parts, now_ms });
    }

    /// True while the pause after a failed flush lasts, and then until the row log knows what was dropped: what was told
    /// to be lost is not stored after that.
    fn waits_to_retry(&mut self, now: Now) -> bool {
        let Some(at) = self.readings.retry_due else {
            self.readings.retry_hold = None;
            return false;
        };
        if at > now.mono {
            return true;
        }
        let end = *self.readings.retry_hold.get_or_insert(now.mono + RETRY_HOLD_MAX);
        if !self.readings.dropped.is_empty() && now.mono < end {
            self.broker.set_readings_congested(true);
            return true;
        }
        self.readings.retry_hold = None;
        false
    }

    /// Has the readings of routes with an interval written to the row log. What a flush has under way needs no row:
    /// it would be there twice, was the power to go between the two.
    fn keep_if_due(&mut self, now: Now) {
        let due: Vec<QueueIndex> = self
            .readings
            .keep_due
            .iter()
            .filter(|(_, at)| **at <= now.mono)
            .map(|(index, _)| *index)
            .collect();
        for index in due {
            let under_way = self.readings.flushing.iter().flatten().find(|(of, _)| *of == index);
            let from = under_way.map_or(0, |(_, through)| through.saturating_add(1));
            if self.broker.keep_readings(now, index, from) {
                self.readings.keep_due.insert(index, now.mono + KEEP_PAUSE);
            } else {
                self.readings.keep_due.remove(&index);
            }
        }
    }

    /// The interval after which a collection's readings are kept, unless a flush comes as soon.
    fn keep_interval(&self, index: QueueIndex) -> Option<Duration> {
        let name = self.readings.names.get(&index)?;
        self.policy.keep_intervals.get(&**name).copied().filter(|interval| *interval < FLUSH_INTERVAL)
    }
}
