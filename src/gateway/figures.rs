//! The gateway's figures as values: what `status`, metrics and `$SYS` are made of.

use std::collections::BTreeMap;

use super::readings::Readings;
use super::{Gateway, GatewayCounters, Tally};
use crate::broker::{BrokerStatus, QueueKind, QueueStatus, RecoverySummary};
use crate::store::batch::Persisted;
use crate::time::{Now, Wall};

const DAY_MS: u64 = 86_400_000;

/// How the store does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum StoreCondition {
    #[default]
    Working,
    /// Acknowledgements wait; the text says why.
    Failing(String),
}

/// Figures of the store, gathered from its answers.
#[derive(Clone, Debug, Default)]
pub struct StoreFigures {
    pub condition: StoreCondition,
    pub batches: u64,
    pub syncs: u64,
    pub bytes_written: u64,
    /// Bytes written since midnight UTC, or since the start when that was later.
    pub bytes_today: u64,
    /// Number of that day.
    day: u64,
}

impl StoreFigures {
    pub(super) fn persisted(&mut self, now: Now, persisted: Persisted) {
        self.batches += 1;
        self.syncs += u64::from(persisted.syncs);
        self.bytes_written += persisted.bytes_written;
        let day = now.wall.0 / DAY_MS;
        if day != self.day {
            self.day = day;
            self.bytes_today = 0;
        }
        self.bytes_today += persisted.bytes_written;
    }

    /// Bytes written today so far.
    #[must_use]
    pub const fn bytes_today(&self, now: Now) -> u64 {
        if now.wall.0 / DAY_MS == self.day { self.bytes_today } else { 0 }
    }
}

/// A listener that is open.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListenerFacts {
    pub name: String,
    pub kind: &'static str,
    pub address: String,
    pub tls: bool,
    /// What it shows of itself.
    pub certificate: Option<CertificateFacts>,
}

/// A certificate of the gateway's own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CertificateFacts {
    /// Of its `[tls.*]` table.
    pub name: String,
    pub not_before: Wall,
    pub not_after: Wall,
}

impl CertificateFacts {
    /// Whole days until it ends; below zero when it has ended.
    #[must_use]
    pub fn days_left(&self, now: Wall) -> i64 {
        let left_ms = i128::from(self.not_after.0) - i128::from(now.0);
        i64::try_from(left_ms.div_euclid(i128::from(DAY_MS))).unwrap_or(i64::MAX)
    }
}

/// What only the driver knows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// How long opening the store and making the broker of it took.
    pub recovery_ms: u64,
    /// How the gateway stopped before: clean, not clean, or never.
    pub last_stop: &'static str,
    pub listeners: Vec<ListenerFacts>,
    /// `storage.bytes_per_day_budget`.
    pub flash_bytes_per_day: Option<u64>,
}

/// All figures at one moment.
#[derive(Debug)]
pub struct Figures<'a> {
    pub id: &'a str,
    pub now: Now,
    pub uptime_s: u64,
    pub broker: BrokerStatus,
    pub counters: GatewayCounters,
    pub tally: &'a Tally,
    pub store: &'a StoreFigures,
    pub recovery: RecoverySummary,
    pub facts: &'a Facts,
    /// Why the collections' store does not store, if it does not.
    pub series_failing: Option<&'a str>,
    /// Open connections of MQTT and AMQP clients that have joined, and of those that have not.
    pub connections: [usize; 3],
    pub connections_max: usize,
    /// Connections that are not read because the flash must catch up or their output is full.
    pub held_back: usize,
    pub input_bytes: usize,
}

/// Queues of one kind together.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ClassFigures {
    pub queues: u64,
    pub ready: u64,
    pub in_flight: u64,
    pub bytes: u64,
    /// Of the oldest message in any of them, milliseconds.
    pub oldest_ms: u64,
    /// How full the fullest is: 0 to 1 of its bound in messages or bytes.
    pub fill_max: f64,
}

impl Gateway {
    /// Tells what only the driver knows.
    pub fn set_facts(&mut self, facts: Facts) {
        self.facts = facts;
    }

    /// What the driver told.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// True while the flash takes what is given to it.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.store.condition == StoreCondition::Working
    }

    /// The gateway's own certificates that are in use, by the names of their tables.
    #[must_use]
    pub fn certificates(&self) -> BTreeMap<&str, &CertificateFacts> {
        let shown = self.facts.listeners.iter().filter_map(|listener| listener.certificate.as_ref());
        shown.map(|certificate| (certificate.name.as_str(), certificate)).collect()
    }

    /// All figures.
    #[must_use]
    pub fn figures(&self, now: Now) -> Figures<'_> {
        let mut connections = [0; 3];
        let mut held_back = 0;
        for (_, endpoint) in self.connections.iter() {
            let place = match (endpoint.protocol.is_joined(), endpoint.protocol.as_mqtt()) {
                (false, _) => 2,
                (true, Some(_)) => 0,
                (true, None) => 1,
            };
            if let Some(count) = connections.get_mut(place) {
                *count += 1;
            }
            held_back += usize::from(endpoint.is_held_back() || endpoint.blocked);
        }
        let Readings { failing, .. } = &self.readings;
        Figures {
            id: &self.policy.id,
            now,
            uptime_s: now.mono.since(self.started.mono).as_secs(),
            broker: self.broker.status(),
            counters: self.counters,
            tally: &self.tally,
            store: &self.store,
            recovery: self.recovery,
            facts: &self.facts,
            series_failing: failing.as_deref(),
            connections,
            connections_max: self.policy.connections_max,
            held_back,
            input_bytes: self.input_bytes,
        }
    }

    /// Each kind's queues together.
    #[must_use]
    pub fn class_figures(&self, now: Now) -> [(QueueKind, ClassFigures); 3] {
        let mut all = QueueKind::ALL.map(|kind| (kind, ClassFigures::default()));
        for queue in self.broker.queue_status() {
            let Some((_, class)) = all.iter_mut().find(|(kind, _)| *kind == queue.kind) else { continue };
            class.queues += 1;
            class.ready += queue.ready as u64;
            class.in_flight += queue.in_flight as u64;
            class.bytes += queue.bytes;
            class.oldest_ms = class.oldest_ms.max(age_ms(&queue, now).unwrap_or(0));
            class.fill_max = class.fill_max.max(fill(&queue));
        }
        all
    }
}

/// How full a queue is: 0 to 1 of its bound in messages or bytes, whichever is nearer.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a ratio that is shown")]
pub fn fill(queue: &QueueStatus) -> f64 {
    let messages = f64::from(queue.messages) / f64::from(queue.messages_max.max(1));
    messages.max(queue.bytes as f64 / queue.bytes_max.max(1) as f64)
}

/// How long the oldest message of a queue has waited, milliseconds.
#[must_use]
pub fn age_ms(queue: &QueueStatus, now: Now) -> Option<u64> {
    queue.oldest_received_at.map(|at| now.wall.0.saturating_sub(at.0))
}

/// When a queue from which nobody takes is full, seconds from now, if it goes on as since its oldest message came.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate that is shown, never negative"
)]
pub fn full_in_s(queue: &QueueStatus, now: Now) -> Option<u64> {
    let age_ms = age_ms(queue, now).filter(|age| *age >= 1000)?;
    let full = fill(queue);
    // Readings are taken out as they are stored.
    let has_taker = queue.connected || queue.kind == QueueKind::Collection;
    if has_taker || full <= 0.0 || queue.messages < 2 {
        return None;
    }
    let left_ms = (1.0 - full).max(0.0) / full * age_ms as f64;
    Some((left_ms / 1000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::BatchNumber;
    use crate::time::Mono;

    fn at(wall_ms: u64) -> Now {
        Now { mono: Mono(0), wall: Wall(wall_ms), wall_trusted: true }
    }

    #[test]
    fn a_certificate_that_ends_today_has_no_whole_day_left() {
        let certificate = CertificateFacts { not_after: Wall(10 * DAY_MS), ..CertificateFacts::default() };
        for (now, days) in [(0, 10), (9 * DAY_MS, 1), (9 * DAY_MS + 1, 0), (10 * DAY_MS + 1, -1)] {
            assert_eq!(certificate.days_left(Wall(now)), days, "{now}");
        }
    }

    #[test]
    fn bytes_of_today_begin_anew_at_midnight() {
        let mut store = StoreFigures::default();
        let persisted = Persisted {
            number: BatchNumber(1),
            bytes_written: 100,
            syncs: 1,
            live_bytes: 0,
            overhead_bytes: 0,
        };
        store.persisted(at(5 * DAY_MS + 1), persisted);
        store.persisted(at(6 * DAY_MS - 1), persisted);
        assert_eq!(store.bytes_today(at(6 * DAY_MS - 1)), 200);
        assert_eq!(store.bytes_today(at(6 * DAY_MS)), 0);
        store.persisted(at(6 * DAY_MS), persisted);
        assert_eq!((store.bytes_today(at(6 * DAY_MS)), store.bytes_written), (100, 300));
    }
}
