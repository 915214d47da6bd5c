//! Sessions: opening, resuming, taking over, ending, and what they subscribe to.
//!
//! A session belongs to the client identifier, not to the connection; the newest connection wins. [MQTT-3.1.4-2]

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use super::cold::ChunkRef;
use super::held::{Held, TAKER_RETAIN, TAKER_SHARED};
use super::ledger::Urgency;
use super::loss::LossReason;
use super::queue::{
    Consumer, EXPIRY_NEVER, Entry, Flight, Queue, QueueBounds, QueueIndex, QueueKind, SubscribeOptions,
};
use super::rows::RecordKey;
use super::trace::TraceStep;
use super::{Broker, Event, Gate};
use crate::ids::{ConnectionId, QueueId};
use crate::message::Assurance;
use crate::time::{Mono, Now, Stamp};

/// No session expires sooner after a start, or the expiry itself when that is shorter: that its client was connected
/// when the power went is written lazily.
const EXPIRY_GRACE: Duration = Duration::from_mins(10);

/// Sessions are looked over for expiry at most this often.
const EXPIRY_PRECISION: Duration = Duration::from_secs(1);

/// How a client opens its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionTerms {
    /// What there is of the session ends first.
    pub clean_start: bool,
    /// Seconds for which the session outlives its connection: 0 ends it at once, [`EXPIRY_NEVER`] is as long as the
    /// operator allows.
    pub expiry_s: u32,
}

impl SessionTerms {
    /// As MQTT before version 5 has it: a clean session ends with its connection, and another one never.
    #[must_use]
    pub const fn clean(clean: bool) -> Self {
        Self { clean_start: clean, expiry_s: if clean { 0 } else { EXPIRY_NEVER } }
    }
}

/// Which last known values a subscription brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replay {
    Always,
    /// Only when the subscription was not there before.
    IfNew,
    Never,
}

/// A session that is open for a connection.
#[derive(Clone, Debug)]
pub struct Opened {
    pub queue: QueueIndex,
    pub id: QueueId,
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
    /// Opens the session `name` for `connection`: resumes the one that is there, or begins a new one when the terms say
    /// so or when there is none. Messages flow from [`Broker::attach`] on.
    ///
    /// # Errors
    /// When there are too many sessions.
    pub fn open_session(
        &mut self,
        now: Now,
        name: &str,
        terms: SessionTerms,
        connection: ConnectionId,
    ) -> Result<Opened, SessionRefused> {
        let mut gate = Gate::Open;
        if let Some(index) = self.sessions.get(name).copied() {
            self.displace(now, index);
            // Displacing ends a session that does not outlive its connection.
            if let Some(queue) = self.queue_mut(index)
                && *queue.name == *name
                && self.sessions.get(name) == Some(&index)
            {
                if !terms.clean_start {
                    return Ok(self.resume(now, index, connection, terms.expiry_s));
                }
                self.discard(now, index);
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
        let durable = terms.expiry_s > 0;
        let mut queue = Queue::new(id, name.into(), durable, self.bounds_of(name));
        queue.owner = Some(connection);
        queue.expiry_s = terms.expiry_s;
        let index = self.insert(queue);
        if durable {
            let batch = self.ledger.touch(now.mono, RecordKey::Session(id), Urgency::Now);
            if let Some(queue) = self.queue_mut(index) {
                queue.record_batch = batch;
            }
            gate = Gate::Batch(batch);
        }
        Ok(Opened { queue: index, id, present: false, gate })
    }

    /// How long the operator lets a session wait for its client, at most; `None` is for ever.
    #[must_use]
    pub const fn session_expiry_max(&self) -> Option<Duration> {
        self.policy.session_expiry_max
    }

    /// False when no last known values are kept.
    #[must_use]
    pub const fn retains(&self) -> bool {
        self.policy.retained_max > 0
    }

    /// The client changes how long its session waits for it. A session that ends with its connection stays so.
    pub fn set_session_expiry(&mut self, index: QueueIndex, expiry_s: u32) {
        if let Some(queue) = self.queue_mut(index).filter(|queue| queue.durable) {
            queue.expiry_s = expiry_s;
        }
    }

    /// The subscription identifiers that several, from [`SEVERAL_IDENTIFIERS`](super::SEVERAL_IDENTIFIERS) on, stands
    /// for: of all subscriptions of a session that match `address` and brought the message.
    pub fn subscription_identifiers<'a>(
        &'a self,
        index: QueueIndex,
        address: &'a str,
        several: u32,
    ) -> impl Iterator<Item = u32> + 'a {
        let subscriptions = self.queue(index).into_iter().flat_map(|queue| &queue.subscriptions);
        let with = subscriptions.filter(|(_, options)| options.identifier != 0);
        let matching = with.filter(move |(filter, options)| {
            let shared = super::shares::shared_filter(filter);
            options.is_meant(shared.is_some(), several)
                && super::retained::matches(shared.unwrap_or(filter), address)
        });
        matching.map(|(_, options)| options.identifier)
    }

    /// The connection's reply has left: what waited is delivered, first what was in flight before.
    pub fn attach(&mut self, now: Now, index: QueueIndex, connection: ConnectionId, credit_max: u32) {
        let Some(queue) = self.queue_mut(index) else { return };
        if queue.owner != Some(connection) || queue.consumer.is_some() {
            return;
        }
        queue.consumer = Some(Consumer { connection, credit_max, blocked: false });
        self.redeliver(now, index);
        self.share_arrives(now, index);
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
        if !queue.durable || queue.expiry_s == 0 {
            self.discard(now, index);
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
        let (record, is_cold) = (RecordKey::Session(queue.id), queue.cold.is_some());
        self.ledger.touch_soon(now.mono, record);
        if is_cold {
            self.give_back(index);
        }
        if let Some(expiry) = self.expiry_of(index) {
            self.expire_in(now.mono, expiry);
        }
        self.share_moves_on(now, index);
    }

    /// Subscribes, or changes a subscription, and delivers the last known values that match. [MQTT-3.8.4-3]
    /// The reply waits for the gate. `filter` is valid.
    pub fn subscribe(
        &mut self,
        now: Now,
        index: QueueIndex,
        filter: &str,
        options: SubscribeOptions,
        replay: Replay,
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
        self.index_filter(index, filter, options);
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
        if super::shares::shared_filter(filter).is_some() {
            if old.is_none() && self.queue(index).is_some_and(|queue| queue.consumer.is_some()) {
                self.share_is_joined(now, index, filter);
            }
        } else if replay == Replay::Always || replay == Replay::IfNew && old.is_none() {
            self.replay_retained(now, index, filter, options);
            if is_system(filter) {
                self.want_figures(index, filter);
            }
        }
        gate
    }

    /// Ends a subscription; messages that it brought stay. The reply waits for the gate. False when there was none.
    pub fn unsubscribe(&mut self, now: Now, index: QueueIndex, filter: &str) -> (Gate, bool) {
        let Some(queue) = self.queue_mut(index) else { return (Gate::Open, false) };
        let (id, durable) = (queue.id, queue.durable);
        let existed = queue.subscriptions.remove(filter).is_some();
        if existed {
            self.unindex_filter(index, filter);
            self.drops_filter(index, filter);
            self.system_subscriptions -= usize::from(is_system(filter));
            if durable {
                let batch = self.ledger.touch(now.mono, RecordKey::Session(id), Urgency::Now);
                if let Some(queue) = self.queue_mut(index) {
                    queue.record_batch = batch;
                }
            }
        }
        let gate = match self.queue(index) {
            Some(queue) if durable => Gate::Batch(queue.record_batch),
            _ => Gate::Open,
        };
        (gate, existed)
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

    /// How long a session waits for its client: what it asked for, or less where the operator says so.
    fn expiry_of(&self, index: QueueIndex) -> Option<Duration> {
        let asked = match self.queue(index)?.expiry_s {
            EXPIRY_NEVER => None,
            seconds => Some(Duration::from_secs(u64::from(seconds))),
        };
        match (asked, self.policy.session_expiry_max) {
            (Some(asked), Some(most)) => Some(asked.min(most)),
            (asked, most) => asked.or(most),
        }
    }

    /// Notes that a session may expire after this time.
    pub(super) fn expire_in(&mut self, now: Mono, left: Duration) {
        let at = now + left + EXPIRY_PRECISION;
        self.expiry_at = Some(self.expiry_at.map_or(at, |old| old.min(at)));
    }

    /// Ends the sessions that were away too long, and finds when to look again.
    pub(super) fn expire_sessions(&mut self, now: Now) {
        self.expiry_at = None;
        let since_start = now.mono.since(self.boot_began);
        let mut expired = Vec::new();
        for index in self.durable.values().copied().collect::<Vec<_>>() {
            let Some(queue) = self.queue(index).filter(|queue| queue.owner.is_none()) else { continue };
            let Some(detached) = queue.detached else { continue };
            let Some(expiry) = self.expiry_of(index) else { continue };
            let away = detached.elapsed(now, self.boot, self.boot_began);
            // The power cut may have come before the note that the client had come back.
            let grace = expiry.min(EXPIRY_GRACE);
            let waits = detached.boot != self.boot && since_start < grace;
            if away < expiry {
                self.expire_in(now.mono, expiry - away);
            } else if waits {
                self.expire_in(now.mono, grace.saturating_sub(since_start));
            } else {
                expired.push(index);
            }
        }
        for index in expired {
            self.count_expired(now, index);
            self.end(now, index, Urgency::Lazy(Duration::from_secs(1)));
        }
    }

    /// Ends the sessions that the start found and that do not outlive a connection.
    pub(super) fn end_unkept_sessions(&mut self, now: Now) {
        let unkept = |index: &QueueIndex| self.queue(*index).is_some_and(|queue| queue.expiry_s == 0);
        for index in self.durable.values().copied().filter(unkept).collect::<Vec<_>>() {
            self.discard(now, index);
            self.end(now, index, Urgency::Lazy(Duration::from_secs(1)));
        }
    }

    fn count_expired(&mut self, now: Now, index: QueueIndex) {
        let Some(queue) = self.queue(index) else { return };
        let name = queue.name.clone();
        let runs: Vec<_> = queue.cold.iter().flat_map(|cold| cold.chunks()).map(ChunkRef::run).collect();
        let owed = queue.entries().filter(|entry| entry.assurance != Assurance::AtMostOnce);
        let lost: Vec<_> = owed.map(|entry| Rc::clone(&entry.held)).collect();
        for held in lost {
            self.counters.lost += 1;
            self.trace(now, TraceStep::Dropped, index, &held, LossReason::SessionExpired.name());
            let key = held.place.get().key;
            let place = (&*name, Some(QueueKind::Session));
            for record in self.losses.add(place, LossReason::SessionExpired, &held.message, key) {
                self.ledger.touch_soon(now.mono, record);
            }
        }
        for run in runs {
            self.count_lost(now, index, LossReason::SessionExpired, run);
        }
    }

    /// Counts what ends with the session by its client's wish.
    fn discard(&mut self, now: Now, index: QueueIndex) {
        let Some(queue) = self.queue(index) else { return };
        let owed = queue.owed_copies();
        // What other members of a share might have taken is no wish of this client.
        let parts = queue.cold.iter().flat_map(|cold| cold.chunks());
        let shared = parts.filter(|part| part.flags & TAKER_SHARED != 0);
        let runs: Vec<_> = shared.map(ChunkRef::run).collect();
        self.counters.discarded += owed - runs.iter().map(|run| run.messages).sum::<u64>().min(owed);
        for run in runs {
            self.count_lost(now, index, LossReason::SessionExpired, run);
        }
    }

    /// The session's present connection must go; a clean session ends here.
    fn displace(&mut self, now: Now, index: QueueIndex) {
        if let Some(connection) = self.queue(index).and_then(|queue| queue.owner) {
            self.events.push_back(Event::Displaced { connection });
            self.detach(now, index, connection);
        }
    }

    fn resume(&mut self, now: Now, index: QueueIndex, connection: ConnectionId, expiry_s: u32) -> Opened {
        let Some(queue) = self.queue_mut(index) else {
            return Opened { queue: index, id: QueueId(0), present: false, gate: Gate::Open };
        };
        queue.owner = Some(connection);
        queue.detached = None;
        queue.expiry_s = expiry_s;
        let (id, name, gate) = (queue.id, queue.name.clone(), Gate::Batch(queue.record_batch));
        // That the session is connected decides about the duplicate mark after a restart; nothing waits for it.
        self.ledger.touch_soon(now.mono, RecordKey::Session(id));
        self.will_is_off(now, &name);
        Opened { queue: index, id, present: true, gate }
    }

    /// Ends a session with all it holds.
    pub(super) fn end(&mut self, now: Now, index: QueueIndex, urgency: Urgency) {
        let Some(mut queue) = self.queues.get_mut(index.0 as usize).and_then(Option::take) else { return };
        match queue.kind {
            QueueKind::Session => drop(self.sessions.remove(&*queue.name)),
            QueueKind::Collection => drop(self.collections.remove(&*queue.name)),
            QueueKind::Named => drop(self.named.remove(&*queue.name)),
        }
        self.drops_filters(&queue);
        for filter in queue.subscriptions.keys() {
            self.unindex_filter(index, filter);
            self.system_subscriptions -= usize::from(is_system(filter));
        }
        self.share_outlives(now, index, &mut queue);
        self.free.push(index.0);
        self.awaiting.retain(|(_, at, _)| *at != index);
        if !queue.durable {
            if queue.kind == QueueKind::Session {
                self.will_is_due(&queue.name);
            }
            return;
        }
        self.durable.remove(&queue.id);
        self.ledger.forget_queue(index, queue.id);
        for entry in queue.entries().filter(|entry| entry.is_durable(true)) {
            self.ledger.forget(&entry.held);
        }
        if queue.cold.is_some() {
            self.forget_cold(now.mono, &queue);
        }
        let batch = self.ledger.touch(now.mono, RecordKey::Session(queue.id), urgency);
        if queue.kind == QueueKind::Session {
            self.ended.insert(queue.name.clone(), batch);
            self.will_is_due(&queue.name);
        }
    }

    fn replay_retained(&mut self, now: Now, index: QueueIndex, filter: &str, options: SubscribeOptions) {
        let lasts = |held: &&Rc<Held>| self.retained.expires_at(&held.message.address) > now.mono;
        let found: Vec<_> = self.retained.matching(filter).filter(lasts).map(Rc::clone).collect();
        let replayed: BTreeSet<_> = found.iter().map(Rc::as_ptr).collect();
        // What another subscription asked for stays. [MQTT-3.8.4-8] What a start found says no more who asked for it.
        let order = replay_order(filter);
        self.drop_replays(now, index, |entry| {
            (entry.order == order || entry.order == 0) && replayed.contains(&Rc::as_ptr(&entry.held))
        });
        let Some(queue) = self.queue(index) else { return };
        let (id, durable) = (queue.id, queue.durable);
        let mut twins = queue.held_among(&replayed);
        let owed = queue.replay.iter().filter(|entry| entry.is_durable(durable));
        twins.extend(owed.map(|entry| Rc::as_ptr(&entry.held)).filter(|held| replayed.contains(held)));
        for held in found {
            let assurance = held.message.assurance.min(options.assurance_max);
            self.counters.queued += u64::from(assurance != Assurance::AtMostOnce);
            let expires_at = self.retained.expires_at(&held.message.address);
            let identifier = options.identifier;
            let retained = true;
            let mut entry = Entry { retained, identifier, order, expires_at, ..Entry::new(held, assurance) };
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

/// What tells the replayed values of one subscription from those of another: FNV-1a of the filter, never 0.
fn replay_order(filter: &str) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    filter.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, hash).max(1)
}

/// A filter that can only match the gateway's own figures.
pub(super) fn is_system(filter: &str) -> bool {
    super::shares::shared_filter(filter).unwrap_or(filter).starts_with("$SYS")
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
