//! Sessions: opening, resuming, taking over, ending, and what they subscribe to.
//!
//! A session belongs to the client identifier, not to the connection; the newest connection wins. [MQTT-3.1.4-2]

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use super::held::TAKER_RETAIN;
use super::ledger::Urgency;
use super::loss::LossReason;
use super::queue::{Consumer, Entry, Flight, Queue, QueueBounds, QueueIndex, QueueKind, SubscribeOptions};
use super::rows::RecordKey;
use super::will::{Will, WillNumber};
use super::{Broker, Event, Gate, mqtt_levels};
use crate::ids::ConnectionId;
use crate::message::{Assurance, Message};
use crate::time::{Mono, Now, Stamp};

/// No session expires sooner after a start, or the expiry itself when that is shorter: that its client was connected
/// when the power went is written lazily.
const EXPIRY_GRACE: Duration = Duration::from_mins(10);

/// Sessions are looked over for expiry at most this often.
const EXPIRY_PRECISION: Duration = Duration::from_secs(1);

/// A session that is open for a connection.
#[derive(Clone, Debug)]
pub struct Opened {
    pub queue: QueueIndex,
    /// There was a session, and it goes on. [MQTT-3.2.2-2]
    pub present: bool,
    /// What the reply waits for: a session that is created or ended must be on flash.
    pub gate: Gate,
}

/// Why a session cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionRefused {
    /// `sessions_max` is reached.
    TooMany,
}

impl fmt::Display for SessionRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => f.write_str("open a session: sessions_max is reached"),
        }
    }
}

impl Broker {
    /// Opens the session `name` for `connection`: resumes the one that is there, or begins a new one when `clean` or
    /// when there is none. A session of a clean connection ends with it. Messages flow from [`Broker::attach`] on.
    ///
    /// # Errors
    /// When there are too many sessions.
    pub fn open_session(
        &mut self,
        now: Now,
        name: &str,
        clean: bool,
        connection: ConnectionId,
    ) -> Result<Opened, SessionRefused> {
        let mut gate = Gate::Open;
        if let Some(index) = self.sessions.get(name).copied() {
            self.displace(now, index);
            // Displacing ends a clean session.
            if let Some(queue) = self.queue_mut(index)
                && *queue.name == *name
                && self.sessions.get(name) == Some(&index)
            {
                if !clean {
                    return Ok(self.resume(now, index, connection));
                }
                self.discard(index);
                self.end(now, index, Urgency::Now);
            }
        }
        if let Some(batch) = self.ended.get(name) {
            // The last session's end is not on flash yet: a cut now would bring it back.
            gate = Gate::Batch(*batch);
            self.ledger.want(now.mono, Urgency::Now);
        }
        if self.sessions.len() >= self.policy.sessions_max {
            return Err(SessionRefused::TooMany);
        }
        let id = self.ledger.queue_id();
        let mut queue = Queue::new(id, name.into(), !clean, self.bounds_of(name));
        queue.owner = Some(connection);
        let index = self.insert(queue);
        if !clean {
            let batch = self.ledger.touch(now.mono, RecordKey::Session(id), Urgency::Now);
            if let Some(queue) = self.queue_mut(index) {
                queue.record_batch = batch;
            }
            gate = Gate::Batch(batch);
        }
        Ok(Opened { queue: index, present: false, gate })
    }

    /// The connection's reply has left: what waited is delivered, first what was in flight before.
    pub fn attach(&mut self, now: Now, index: QueueIndex, connection: ConnectionId, credit_max: u32) {
        let Some(queue) = self.queue_mut(index) else { return };
        if queue.owner != Some(connection) || queue.consumer.is_some() {
            return;
        }
        queue.consumer = Some(Consumer { connection, credit_max, blocked: false });
        self.redeliver(now, index);
        self.dispatch(now, index);
    }

    /// The connection ended. A clean session ends with it, a kept one waits for its client.
    pub fn detach(&mut self, now: Now, index: QueueIndex, connection: ConnectionId) {
        let boot = self.boot;
        let Some(queue) = self.queue_mut(index) else { return };
        if queue.owner != Some(connection) {
            return;
        }
        queue.owner = None;
        queue.consumer = None;
        if !queue.durable {
            self.discard(index);
            self.end(now, index, Urgency::Now);
            return;
        }
        for in_flight in &mut queue.in_flight {
            if matches!(in_flight.flight, Flight::Sent(_)) {
                in_flight.flight = Flight::Unsent;
                in_flight.entry.redelivered = true;
            }
        }
        queue.detached = Some(Stamp::new(now, boot));
        let record = RecordKey::Session(queue.id);
        self.ledger.touch_soon(now.mono, record);
        self.expire_later(now.mono, Duration::ZERO);
    }

    /// Subscribes, or changes a subscription, and delivers the last known values that match. [MQTT-3.8.4-3]
    /// The reply waits for the gate. `filter` is valid.
    pub fn subscribe(
        &mut self,
        now: Now,
        index: QueueIndex,
        filter: &str,
        options: SubscribeOptions,
    ) -> Gate {
        let Some(queue) = self.queue_mut(index) else { return Gate::Open };
        let old = queue.subscriptions.insert(filter.into(), options);
        let changed = old != Some(options);
        if old.is_none() {
            self.keeps_filter(index, filter);
            self.system_subscriptions += usize::from(is_system(filter));
        }
        let Some(queue) = self.queue(index) else { return Gate::Open };
        let (id, durable) = (queue.id, queue.durable);
        self.index.insert(mqtt_levels(filter), index.0, options);
        let mut gate = Gate::Open;
        if durable {
            if changed {
                let batch = self.ledger.touch(now.mono, RecordKey::Session(id), Urgency::Now);
                if let Some(queue) = self.queue_mut(index) {
                    queue.record_batch = batch;
                }
            }
            gate = self.queue(index).map_or(Gate::Open, |queue| Gate::Batch(queue.record_batch));
        }
        #[cfg(feature = "mutations")]
        if super::mutation::is_made(super::mutation::Mutation::SubscribeBeforeKept) {
            gate = Gate::Open;
        }
        self.replay_retained(now, index, filter, options);
        gate
    }

    /// Ends a subscription; messages that it brought stay. The reply waits for the gate.
    pub fn unsubscribe(&mut self, now: Now, index: QueueIndex, filter: &str) -> Gate {
        let Some(queue) = self.queue_mut(index) else { return Gate::Open };
        let (id, durable) = (queue.id, queue.durable);
        if queue.subscriptions.remove(filter).is_some() {
            self.index.remove(mqtt_levels(filter), index.0);
            self.drops_filter(index, filter);
            self.system_subscriptions -= usize::from(is_system(filter));
            if durable {
                let batch = self.ledger.touch(now.mono, RecordKey::Session(id), Urgency::Now);
                if let Some(queue) = self.queue_mut(index) {
                    queue.record_batch = batch;
                }
            }
        }
        match self.queue(index) {
            Some(queue) if durable => Gate::Batch(queue.record_batch),
            _ => Gate::Open,
        }
    }

    /// Registers a connected client's will. One that matters after a power cut is on flash within a batch.
    pub fn set_will(&mut self, now: Now, client: &str, message: Message) -> WillNumber {
        let number = self.next_will;
        self.next_will += 1;
        let durable = message.retain || message.assurance != Assurance::AtMostOnce;
        self.keeps_will(&message);
        self.wills.insert(number, Will { client: client.into(), message });
        if durable {
            self.ledger.touch(now.mono, RecordKey::Will(number), Urgency::Now);
        }
        WillNumber(number)
    }

    /// The client took leave: its will is forgotten. [MQTT-3.1.2-10]
    pub fn forget_will(&mut self, now: Now, number: WillNumber) {
        if let Some(will) = self.wills.remove(&number.0) {
            self.drops_will(&will.message);
            self.ledger.touch(now.mono, RecordKey::Will(number.0), Urgency::Now);
        }
    }

    /// The connection ended without leave: its will is published, in the batch that forgets it. [MQTT-3.1.2-8]
    pub fn publish_will(&mut self, now: Now, number: WillNumber) {
        let Some(will) = self.wills.remove(&number.0) else { return };
        self.drops_will(&will.message);
        self.ledger.touch(now.mono, RecordKey::Will(number.0), Urgency::Now);
        let message = Message { received_at: now.wall, received_trusted: now.wall_trusted, ..will.message };
        self.publish_message(now, message, None);
    }

    /// True when somebody wants the gateway's own figures.
    #[must_use]
    pub const fn has_system_subscriptions(&self) -> bool {
        self.system_subscriptions > 0
    }

    pub(super) fn bounds_of(&self, name: &str) -> QueueBounds {
        let named = self.policy.named_bounds.iter().find(|(pattern, _)| name_matches(pattern, name));
        named.map_or(self.policy.session_bounds, |(_, bounds)| *bounds)
    }

    pub(super) fn named_bounds_of(&self, name: &str) -> QueueBounds {
        let named = self.policy.named_bounds.iter().find(|(pattern, _)| name_matches(pattern, name));
        named.map_or(self.policy.queue_bounds, |(_, bounds)| *bounds)
    }

    pub(super) fn insert(&mut self, queue: Queue) -> QueueIndex {
        let (name, durable, id, kind) = (queue.name.clone(), queue.durable, queue.id, queue.kind);
        let hidden = queue.named().is_some_and(|named| named.delays.is_some());
        let at = match self.free.pop() {
            Some(at) => {
                if let Some(place) = self.queues.get_mut(at as usize) {
                    *place = Some(queue);
                }
                at
            }
            None => {
                self.queues.push(Some(queue));
                u32::try_from(self.queues.len() - 1).expect("sessions_max and queues_max bound the queues")
            }
        };
        match kind {
            QueueKind::Session => drop(self.sessions.insert(name, QueueIndex(at))),
            QueueKind::Collection => drop(self.collections.insert(name, QueueIndex(at))),
            QueueKind::Named if hidden => {}
            QueueKind::Named => drop(self.named.insert(name, QueueIndex(at))),
        }
        if durable {
            self.durable.insert(id, QueueIndex(at));
        }
        QueueIndex(at)
    }

    /// Notes that sessions may expire `after` less than the full time from now.
    pub(super) fn expire_later(&mut self, now: Mono, after: Duration) {
        let Some(expiry) = self.policy.session_expiry_max else { return };
        let at = now + expiry.saturating_sub(after) + EXPIRY_PRECISION;
        self.expiry_at = Some(self.expiry_at.map_or(at, |old| old.min(at)));
    }

    /// Ends the sessions that were away too long, and finds when to look again.
    pub(super) fn expire_sessions(&mut self, now: Now) {
        self.expiry_at = None;
        let Some(expiry) = self.policy.session_expiry_max else { return };
        let grace = expiry.min(EXPIRY_GRACE);
        let since_start = now.mono.since(self.boot_began);
        let mut expired = Vec::new();
        for index in self.durable.values().copied().collect::<Vec<_>>() {
            let Some(queue) = self.queue(index).filter(|queue| queue.owner.is_none()) else { continue };
            let Some(detached) = queue.detached else { continue };
            let away = detached.elapsed(now, self.boot, self.boot_began);
            // The power cut may have come before the note that the client had come back.
            let waits = detached.boot != self.boot && since_start < grace;
            if away < expiry {
                self.expire_later(now.mono, away);
            } else if waits {
                self.expire_later(now.mono, expiry.saturating_sub(grace.saturating_sub(since_start)));
            } else {
                expired.push(index);
            }
        }
        for index in expired {
            self.count_expired(now, index);
            self.end(now, index, Urgency::Lazy(Duration::from_secs(1)));
        }
    }

    fn count_expired(&mut self, now: Now, index: QueueIndex) {
        let Some(queue) = self.queue(index) else { return };
        let name = queue.name.clone();
        let owed = queue.entries().filter(|entry| entry.assurance != Assurance::AtMostOnce);
        let lost: Vec<_> = owed.map(|entry| Rc::clone(&entry.held)).collect();
        for held in lost {
            self.counters.lost += 1;
            let key = held.place.get().key;
            let place = (&*name, Some(QueueKind::Session));
            for record in self.losses.add(place, LossReason::SessionExpired, &held.message, key) {
                self.ledger.touch_soon(now.mono, record);
            }
        }
    }

    /// Counts what ends with the session by its client's wish.
    fn discard(&mut self, index: QueueIndex) {
        self.counters.discarded += self.queue(index).map_or(0, Queue::owed_copies);
    }

    /// The session's present connection must go; a clean session ends here.
    fn displace(&mut self, now: Now, index: QueueIndex) {
        if let Some(connection) = self.queue(index).and_then(|queue| queue.owner) {
            self.events.push_back(Event::Displaced { connection });
            self.detach(now, index, connection);
        }
    }

    fn resume(&mut self, now: Now, index: QueueIndex, connection: ConnectionId) -> Opened {
        let Some(queue) = self.queue_mut(index) else {
            return Opened { queue: index, present: false, gate: Gate::Open };
        };
        queue.owner = Some(connection);
        queue.detached = None;
        let (record, gate) = (RecordKey::Session(queue.id), Gate::Batch(queue.record_batch));
        // That the session is connected decides about the duplicate mark after a restart; nothing waits for it.
        self.ledger.touch_soon(now.mono, record);
        Opened { queue: index, present: true, gate }
    }

    /// Ends a session with all it holds.
    pub(super) fn end(&mut self, now: Now, index: QueueIndex, urgency: Urgency) {
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::take) else { return };
        match queue.kind {
            QueueKind::Session => drop(self.sessions.remove(&*queue.name)),
            QueueKind::Collection => drop(self.collections.remove(&*queue.name)),
            QueueKind::Named => drop(self.named.remove(&*queue.name)),
        }
        self.drops_filters(&queue);
        for filter in queue.subscriptions.keys() {
            self.index.remove(mqtt_levels(filter), index.0);
            self.system_subscriptions -= usize::from(is_system(filter));
        }
        self.free.push(index.0);
        self.awaiting.retain(|(_, at, _)| *at != index);
        if !queue.durable {
            return;
        }
        self.durable.remove(&queue.id);
        self.ledger.forget_queue(index, queue.id);
        for entry in queue.entries().filter(|entry| entry.is_durable(true)) {
            self.ledger.forget(&entry.held);
        }
        let batch = self.ledger.touch(now.mono, RecordKey::Session(queue.id), urgency);
        if queue.kind == QueueKind::Session {
            self.ended.insert(queue.name, batch);
        }
    }

    fn replay_retained(&mut self, now: Now, index: QueueIndex, filter: &str, options: SubscribeOptions) {
        let found: Vec<_> = self.retained.matching(filter).map(Rc::clone).collect();
        let replayed: BTreeSet<_> = found.iter().map(Rc::as_ptr).collect();
        self.drop_replays(now, index, |entry| replayed.contains(&Rc::as_ptr(&entry.held)));
        let Some(queue) = self.queue(index) else { return };
        let (id, durable) = (queue.id, queue.durable);
        let twins = queue.held_among(&replayed);
        for held in found {
            let assurance = held.message.assurance.min(options.assurance_max);
            self.counters.queued += u64::from(assurance != Assurance::AtMostOnce);
            let mut entry = Entry { retained: true, ..Entry::new(held, assurance) };
            if durable && assurance != Assurance::AtMostOnce {
                let flags = assurance.code() | TAKER_RETAIN;
                let joined = self.ledger.join_taker(now.mono, &entry.held, id, flags);
                entry.twin = twins.contains(&Rc::as_ptr(&entry.held));
                entry.joined = joined || entry.twin;
            }
            let Some(queue) = self.queue_mut(index) else { return };
            if entry.joined {
                queue.joins.set(true);
            }
            queue.replay.push_back(entry);
        }
        // Values that were replaced while they waited count too: a client that subscribes again and again gets the
        // newest only.
        let waiting = self.queue(index).map_or(0, |queue| queue.replay.len());
        let excess = waiting.saturating_sub(self.policy.retained_max);
        let mut oldest = 0..excess;
        self.drop_replays(now, index, |_| oldest.next().is_some());
        self.dispatch(now, index);
    }

    /// Takes back values that wait to be replayed; the subscription that asked for them was made anew.
    fn drop_replays(&mut self, now: Now, index: QueueIndex, mut unwanted: impl FnMut(&Entry) -> bool) {
        let Some(queue) = self.queue_mut(index) else { return };
        let durable = queue.durable;
        let (dropped, kept): (VecDeque<_>, _) =
            std::mem::take(&mut queue.replay).into_iter().partition(|entry| unwanted(entry));
        queue.replay = kept;
        for entry in dropped {
            self.counters.discarded += u64::from(entry.assurance != Assurance::AtMostOnce);
            if entry.is_durable(durable) {
                self.ledger.dropped(&entry.held);
                self.settle_durable(now.mono, index, &entry.held);
            }
        }
    }
}

/// A filter that can only match the gateway's own figures.
pub(super) fn is_system(filter: &str) -> bool {
    filter.starts_with("$SYS")
}

/// `*` in a pattern stands for any characters.
fn name_matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::name_matches;

    #[test]
    fn star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("big*", "big-1", true),
            ("big*", "abig", false),
            ("*big", "abig", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("*", "", true),
        ] {
            assert_eq!(name_matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
