//! Routing: from one publish to every queue that wants it, and what its acknowledgement then waits for.

use std::rc::Rc;

use bytes::Bytes;

use super::exchange::{ExchangeIndex, exchange_of, share_number};
use super::held::{Held, RETAINED, Stage, TAKER_CONNECTED};
use super::ledger::Urgency;
use super::loss::LossReason;
#[cfg(feature = "mutations")]
use super::mutation::{Mutation, is_made};
use super::queue::{Entry, NEVER, Overflow, QueueIndex, QueueKind, SubscribeOptions};
use super::rows::WindowChange;
use super::shares::Match;
use super::trace::TraceStep;
use super::{Broker, Delivery, Event, Gate};
use crate::ids::ConnectionId;
use crate::message::{Assurance, DeathReason, Message, is_reserved};
use crate::time::{Mono, Now};

/// Dropping for a common bound looks at so many messages for one publish: the rest waits for the next.
const DROPS_PER_PUBLISH_MAX: usize = 256;

/// A message as an endpoint hands it over. The address is a valid topic name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Publish<'a> {
    pub address: &'a str,
    pub body: &'a [u8],
    pub assurance: Assurance,
    pub retain: bool,
    /// As [`Message::properties`].
    pub properties: &'a [u8],
    /// How long it is worth delivering, milliseconds.
    pub time_to_live_ms: Option<u64>,
    /// Who waits for the acknowledgement.
    pub connection: Option<ConnectionId>,
    /// The publisher's session: its subscriptions may not want what it publishes itself.
    pub session: Option<QueueIndex>,
}

/// What became of a publish.
#[derive(Clone, Debug)]
pub struct Routed {
    /// What its acknowledgement waits for.
    pub gate: Gate,
    /// Queues that wanted it.
    pub queues: usize,
    /// One of them was full and refused it.
    pub refused: bool,
    /// What became of the wish to keep it as the last known value, where it had one.
    pub kept: Option<bool>,
}

impl Routed {
    /// Nothing was to be done.
    #[must_use]
    pub const fn nowhere() -> Self {
        Self { gate: Gate::Open, queues: 0, refused: false, kept: None }
    }
}

/// What a queue does with what it is offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Offered {
    Refused,
    Taken,
    /// `likely`: its consumer may well answer before the batch closes.
    TakenDurably {
        likely: bool,
    },
}

/// How the takers of one message bear on its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Elision {
    NoDurableTaker,
    /// Every durable taker is a consumer that was handed the message and answers fast.
    Likely,
    Unlikely,
}

impl Elision {
    pub(super) const fn with(self, likely: bool) -> Self {
        match self {
            Self::Unlikely => Self::Unlikely,
            _ if likely => Self::Likely,
            _ => Self::Unlikely,
        }
    }
}

impl Broker {
    /// Routes a message to every queue with a matching binding.
    pub fn publish(&mut self, now: Now, publish: Publish<'_>) -> Routed {
        self.publish_message(now, message_of(now, publish), publish.connection, publish.session)
    }

    /// Routes an exactly-once publish of a session, unless its identifier says that it was routed before.
    ///
    /// The identifier is kept with the message, so that a repeat is known after a restart. [MQTT-4.3.3-2]
    pub fn publish_once(
        &mut self,
        now: Now,
        session: QueueIndex,
        identifier: u16,
        publish: Publish<'_>,
    ) -> Routed {
        let Some(queue) = self.queue_mut(session) else { return Routed::nowhere() };
        let known = !queue.publisher_window.insert(identifier);
        if known {
            let gate = if queue.durable { Gate::Batch(queue.window_batch) } else { Gate::Open };
            // Who wanted it was told the first time.
            return Routed { gate, queues: 1, ..Routed::nowhere() };
        }
        let (id, durable, held) = (queue.id, queue.durable, queue.publisher_window.len());
        queue.window_dirty.set(durable);
        self.keeps_identifier(held);
        let mut routed = self.publish(now, publish);
        if durable {
            let change = WindowChange::Published(id, identifier);
            let batch = self.ledger.window(now.mono, change, Urgency::Now);
            if let Some(queue) = self.queue_mut(session) {
                queue.window_batch = batch;
            }
            routed.gate = Gate::Batch(batch);
        }
        routed
    }

    /// The publisher releases the identifier of an exactly-once publish; the answer waits for the gate.
    /// An identifier that is not known is answered all the same, and told by false. [MQTT-4.3.3-2]
    pub fn release_publish(&mut self, now: Now, session: QueueIndex, identifier: u16) -> (Gate, bool) {
        let Some(queue) = self.queue_mut(session) else { return (Gate::Open, false) };
        let held = queue.publisher_window.len();
        let known = queue.publisher_window.remove(&identifier);
        let (id, durable, gate) = (queue.id, queue.durable, Gate::Batch(queue.window_batch));
        queue.window_dirty.set(queue.window_dirty.get() || durable && known);
        if known {
            self.drops_identifier(held);
        }
        if !durable {
            return (Gate::Open, known);
        }
        if known {
            let change = WindowChange::PublishReleased(id, identifier);
            let batch = self.ledger.window(now.mono, change, Urgency::Now);
            if let Some(queue) = self.queue_mut(session) {
                queue.window_batch = batch;
            }
            #[cfg(feature = "mutations")]
            if is_made(Mutation::CompleteBeforeKept) {
                return (Gate::Open, true);
            }
            return (Gate::Batch(batch), true);
        }
        // A repeat: the release itself may still be on its way to flash.
        (gate, false)
    }

    pub(super) fn publish_message(
        &mut self,
        now: Now,
        message: Message,
        connection: Option<ConnectionId>,
        session: Option<QueueIndex>,
    ) -> Routed {
        self.publish_counted(now, ExchangeIndex::SHARED, message, &[], connection, session)
    }

    /// Routes a message from an exchange, under its address and under those in `also`. Its acknowledgement, if
    /// `connection` waits for one, leaves with the gate; it is a refusal if a queue refused.
    pub fn publish_to(
        &mut self,
        now: Now,
        exchange: ExchangeIndex,
        message: Message,
        also: &[Box<str>],
        connection: Option<ConnectionId>,
    ) -> Routed {
        self.publish_counted(now, exchange, message, also, connection, None)
    }

    fn publish_counted(
        &mut self,
        now: Now,
        exchange: ExchangeIndex,
        message: Message,
        also: &[Box<str>],
        connection: Option<ConnectionId>,
        session: Option<QueueIndex>,
    ) -> Routed {
        self.counters.published += 1;
        self.publisher = session;
        let traced = self.trace_received(now, &message);
        if exchange == ExchangeIndex::SHARED {
            self.show(&message);
        }
        let routed = self.route(now, exchange, message, also, connection);
        self.publisher = None;
        if routed.queues == 0 {
            self.counters.unrouted += 1;
            self.trace_unwanted(now, traced.as_deref());
        }
        self.bury_dead(now);
        routed
    }

    pub(super) fn route(
        &mut self,
        now: Now,
        exchange: ExchangeIndex,
        message: Message,
        also: &[Box<str>],
        connection: Option<ConnectionId>,
    ) -> Routed {
        let held = Held::new(message, &self.memory);
        let mut retained = Elision::NoDurableTaker;
        let mut retained_batch = None;
        let mut kept = None;
        if held.message.retain && !is_reserved(&held.message.address) {
            let refused = self.counters.retained_refused;
            retained_batch = self.retain(now, &held, &mut retained);
            kept = Some(self.counters.retained_refused == refused);
        }
        let (queues, refused, elision) = self.route_held(now, exchange, &held, also, &[]);
        let elision = match retained {
            Elision::NoDurableTaker => elision,
            Elision::Likely | Elision::Unlikely => Elision::Unlikely,
        };
        let gate = self.gate(now, &held, elision, retained_batch, connection);
        Routed { gate, queues, refused, kept }
    }

    /// Offers a message to every queue that it reaches from an exchange but those named in `avoid`. Answers how many
    /// wanted it, whether one refused, and what the takers mean for the batch.
    pub(super) fn route_held(
        &mut self,
        now: Now,
        exchange: ExchangeIndex,
        held: &Rc<Held>,
        also: &[Box<str>],
        avoid: &[Box<str>],
    ) -> (usize, bool, Elision) {
        let mut elision = Elision::NoDurableTaker;
        let mut refused = false;
        let matches = self.match_queues(exchange, &held.message, also);
        let mut queues = matches.len();
        for Match { queue, options, share } in &matches {
            if self.queue(*queue).is_some_and(|queue| queue.kind != QueueKind::Named) {
                refused |= self.offer(now, *queue, held, *options, *share, &mut elision);
                continue;
            }
            if !avoid.is_empty() && self.queue(*queue).is_some_and(|queue| avoid.contains(&queue.name)) {
                queues -= 1;
                continue;
            }
            match self.offer_named(now, *queue, held) {
                Some(Offered::Taken) => {}
                Some(Offered::TakenDurably { likely }) => elision = elision.with(likely),
                Some(Offered::Refused) => refused = true,
                None => queues -= 1,
            }
        }
        self.matches = matches;
        self.keep_common_bounds(now);
        (queues, refused, elision)
    }

    /// The queues that a message reaches from an exchange, each once with the best of its matching options.
    /// [MQTT-3.3.5-1]
    fn match_queues(&mut self, exchange: ExchangeIndex, message: &Message, also: &[Box<str>]) -> Vec<Match> {
        self.publish_number += 1;
        let number = self.publish_number;
        let publisher = self.publisher;
        let mut matches = std::mem::take(&mut self.matches);
        matches.clear();
        let queues = &mut self.queues;
        let (shares, shared) = (&mut self.shares, &mut self.matching_shares);
        let mut visit = |code: u32, options: SubscribeOptions, spared: bool| {
            let index = QueueIndex(code);
            let Some(queue) = queues.get_mut(code as usize).and_then(Option::as_mut) else {
                if let Some(share) = share_number(code)
                    && !spared
                    && shares.is_reached_by(share, number)
                {
                    shared.push(share);
                }
                return;
            };
            if spared && queue.kind != QueueKind::Named || options.no_local && publisher == Some(index) {
                return;
            }
            if queue.visit.0 == number {
                if let Some(best) = matches.get_mut(queue.visit.1 as usize) {
                    best.options.merge(options);
                    best.options.leave_out(publisher == Some(index), false);
                }
                return;
            }
            queue.visit = (number, u32::try_from(matches.len()).unwrap_or(u32::MAX));
            matches.push(Match { queue: index, options, share: 0 });
        };
        let work = &mut self.exchange_work;
        if exchange == ExchangeIndex::SHARED && also.is_empty() && !message.address.starts_with('$') {
            self.index.matches(&message.address, &mut |code, options| match exchange_of(code) {
                None => visit(code, options, false),
                Some(next) => work.push(next),
            });
        } else {
            work.push(exchange);
        }
        if !work.is_empty() {
            self.exchanges.matches(&self.index, work, message, also, &mut visit);
        }
        while let Some(share) = self.matching_shares.pop() {
            self.match_share(share, number, message.assurance, &mut matches);
        }
        matches
    }

    /// The queues that would get a message of this address from the exchange that joins all protocols.
    pub fn takers(&mut self, address: &str) -> Vec<QueueIndex> {
        let message = Message { address: address.into(), ..Message::default() };
        self.exchanges.is_own = is_reserved(address);
        let matches = self.match_queues(ExchangeIndex::SHARED, &message, &[]);
        self.exchanges.is_own = false;
        let takers = matches.iter().map(|one| one.queue).collect();
        self.matches = matches;
        takers
    }

    /// The last known value of an address.
    #[must_use]
    pub fn retained_value(&self, address: &str) -> Option<&Held> {
        self.retained.get(address).map(|held| &**held)
    }

    /// Puts one copy into a queue, or straight to its consumer. True when the queue is full and refused it.
    fn offer(
        &mut self,
        now: Now,
        index: QueueIndex,
        held: &Rc<Held>,
        options: SubscribeOptions,
        share: u32,
        elision: &mut Elision,
    ) -> bool {
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else {
            return false;
        };
        if queue.kind == QueueKind::Collection {
            self.collect(now, index, held, options.assurance_max, elision);
            return false;
        }
        let assurance = held.message.assurance.min(options.assurance_max);
        let expires_at = expiry(now.mono, held);
        if assurance == Assurance::AtMostOnce {
            // Neither kept for an offline session nor queued behind a full output.
            if let Some(consumer) = queue.consumer {
                if consumer.blocked {
                    self.counters.dropped_output_full += 1;
                    queue.dropped += 1;
                    self.trace(now, TraceStep::Dropped, index, held, "output_full");
                } else {
                    self.counters.delivered += 1;
                    self.events.push_back(Event::Deliver(Delivery {
                        connection: consumer.connection,
                        queue: index,
                        tag: 0,
                        consumer: 0,
                        held: Rc::clone(held),
                        assurance,
                        retained: options.retain_as_published && held.message.retain,
                        identifier: options.identifier,
                        expires_at,
                        redelivered: false,
                        returns: 0,
                    }));
                }
            }
            return false;
        }
        let connected = queue.consumer.is_some();
        let entry = Entry {
            as_published: options.retain_as_published && held.message.retain,
            identifier: options.identifier,
            share,
            order: self.publish_number,
            expires_at,
            ..Entry::new(Rc::clone(held), assurance)
        };
        if queue.durable {
            let flags = entry.taker_flags() | if connected { TAKER_CONNECTED } else { 0 };
            self.ledger.add_taker(held, queue.id, flags);
        }
        queue.charge(&entry);
        queue.push(entry);
        if expires_at != NEVER {
            self.look_later(now.mono, index, expires_at);
        }
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else {
            return false;
        };
        self.counters.queued += 1;
        let (rejects, dropped) = (queue.bounds.overflow == Overflow::Reject, queue.dropped);
        let (durable, fast) = (queue.durable, queue.settle_us < self.elision_window_us());
        self.trace(now, TraceStep::Queued, index, held, "");
        self.dispatch(now, index);
        if durable {
            let handed_over = self.queue(index).is_some_and(|q| q.ready_len() == 0 && q.replay.is_empty());
            let likely = handed_over && connected && fast && assurance == Assurance::AtLeastOnce;
            *elision = elision.with(likely);
        }
        if rejects {
            self.refuse_newest(now, index);
        } else {
            self.keep_queue_bounds(now, index);
        }
        rejects && self.queue(index).is_some_and(|queue| queue.dropped > dropped)
    }

    /// A session that rejects has taken one more: its newest goes if that is too much for it, or for all that reject.
    /// They lose nothing to make room for others, so together they may hold half.
    fn refuse_newest(&mut self, now: Now, index: QueueIndex) {
        let crowded = self.rejecting_are_crowded(index, 0);
        let Some(queue) = self.queue_mut(index) else { return };
        let reason = match (queue.is_over(), queue.durable) {
            (true, _) => LossReason::QueueBound,
            (false, _) if !crowded => return,
            (false, true) => LossReason::FlashQuota,
            (false, false) => LossReason::MemoryBound,
        };
        if let Some(entry) = queue.pop_newest() {
            self.lose(now, index, &entry, reason);
        }
    }

    pub(super) fn elision_window_us(&self) -> u64 {
        u64::try_from(self.policy.elision_window.as_micros()).unwrap_or(u64::MAX)
    }

    /// The acknowledgement's gate, and what it means for the batch.
    fn gate(
        &mut self,
        now: Now,
        held: &Rc<Held>,
        elision: Elision,
        retained_batch: Option<crate::ids::BatchNumber>,
        connection: Option<ConnectionId>,
    ) -> Gate {
        if held.message.assurance == Assurance::AtMostOnce {
            return Gate::Open;
        }
        if let Some(batch) = retained_batch {
            self.ledger.want(now.mono, Urgency::Now);
            return Gate::Batch(batch);
        }
        if elision != Elision::NoDurableTaker && held.is_acknowledged() {
            // Consumers that settle with the delivery took it all.
            return Gate::Open;
        }
        match elision {
            Elision::NoDurableTaker => return Gate::Open,
            Elision::Likely => {
                let by = now.mono + self.policy.elision_window;
                self.ledger.want(now.mono, Urgency::By(by));
            }
            Elision::Unlikely => self.ledger.want(now.mono, Urgency::Now),
        }
        if held.is_settled() {
            // Dropped by a bound in the same breath: the loss is in this batch, and so is its receipt.
            return Gate::Batch(self.ledger.open_batch());
        }
        held.waiter.set(connection);
        Gate::Message(self.ledger.open_batch(), Rc::clone(held))
    }

    /// Keeps or deletes the last known value. Answers the batch that holds the change.
    fn retain(
        &mut self,
        now: Now,
        held: &Rc<Held>,
        elision: &mut Elision,
    ) -> Option<crate::ids::BatchNumber> {
        let address = &held.message.address;
        if held.message.body.is_empty() {
            // [MQTT-3.3.1-10] and [MQTT-3.3.1-11]: deletes, and is never kept itself.
            let Some(old) = self.retained.remove(address) else {
                return self.retained.deletion_under_way(address);
            };
            self.unretain(now.mono, &old);
            let batch = self.ledger.open_batch();
            self.retained.deleted_with(address, batch);
            return Some(batch);
        }
        let old_bytes = self.retained.get(address).map(|old| old.message.charge() as u64);
        let count = self.retained.len() + usize::from(old_bytes.is_none());
        let bytes = self.retained.bytes() - old_bytes.unwrap_or(0) + held.message.charge() as u64;
        if count > self.policy.retained_max || bytes > self.policy.retained_bytes_max {
            self.counters.retained_refused += 1;
            return None;
        }
        self.ledger.add_taker(held, RETAINED, held.message.assurance.code());
        *elision = elision.with(false);
        if let Some(old) = self.retained.set(held, expiry(now.mono, held)) {
            self.unretain(now.mono, &old);
        }
        if held.message.assurance == Assurance::AtMostOnce {
            self.ledger.want_soon(now.mono);
        }
        Some(self.ledger.open_batch())
    }

    pub(super) fn unretain(&mut self, now: Mono, old: &Rc<Held>) {
        if self.ledger.unretain(now, old)
            && let Some(connection) = old.waiter.get()
        {
            self.events.push_back(Event::GatesMayBeDue { connection });
        }
    }

    /// Drops the oldest ready messages while the queue is over its bounds. One that rejects keeps what it took: it is over
    /// only when they were lowered since.
    pub(super) fn keep_queue_bounds(&mut self, now: Now, index: QueueIndex) {
        let mut shed = false;
        while let Some(queue) = self.queue_mut(index)
            && queue.bounds.overflow == Overflow::DropOldest
            && queue.is_over()
        {
            #[cfg(not(feature = "mutations"))]
            let newest = false;
            #[cfg(feature = "mutations")]
            let newest = is_made(Mutation::DropNewest);
            let entry = if newest { queue.pop_newest() } else { queue.pop_oldest() };
            let Some(entry) = entry else {
                if !newest && self.shed(now, index) {
                    shed = true;
                    continue;
                }
                break;
            };
            // To where the dead of a named queue go; else it is lost, and told.
            self.die(now, index, entry, DeathReason::QueueFull);
        }
        if shed {
            // What stood behind the chunk may be ready now, and nothing else may come that hands it over.
            self.dispatch(now, index);
        }
    }

    /// The file's quota and the memory bound: the queue with the highest charge loses its oldest.
    fn keep_common_bounds(&mut self, now: Now) {
        for _ in 0..DROPS_PER_PUBLISH_MAX {
            let reason = if self.ledger.bytes_to_keep() > self.with_patience(self.policy.flash_quota_bytes) {
                LossReason::FlashQuota
            } else if self.memory.get() > self.with_patience(self.policy.memory_max) {
                LossReason::MemoryBound
            } else {
                return;
            };
            let Some(index) = self.heaviest_queue(reason) else { return };
            let Some(entry) = self.queue_mut(index).and_then(super::Queue::pop_oldest_in_memory) else {
                return;
            };
            self.lose(now, index, &entry, reason);
        }
    }

    fn heaviest_queue(&self, reason: LossReason) -> Option<QueueIndex> {
        let may_lose = |queue: &&super::Queue| {
            queue.in_memory().0 > 0
                // Readings have a part of the window that is theirs; their own bound keeps them in it.
                && queue.kind != QueueKind::Collection
                && (reason != LossReason::FlashQuota || queue.durable)
                && queue.bounds.overflow == Overflow::DropOldest
        };
        let weight = |queue: &super::Queue| match reason {
            LossReason::MemoryBound => queue.memory_bytes(),
            _ => queue.in_memory().1,
        };
        let queues = self.queues.iter().enumerate();
        let charged = queues.filter_map(|(at, queue)| Some((weight(queue.as_ref().filter(may_lose)?), at)));
        let (_, at) = charged.max()?;
        u32::try_from(at).ok().map(QueueIndex)
    }

    /// Counts a message that left its queue undelivered, and keeps the receipt.
    pub(super) fn lose(&mut self, now: Now, index: QueueIndex, entry: &Entry, reason: LossReason) {
        self.counters.lost += 1;
        self.trace(now, TraceStep::Dropped, index, &entry.held, reason.name());
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        queue.dropped += 1;
        if queue.kind == QueueKind::Collection {
            queue.record_batch = self.ledger.open_batch();
        }
        let key = entry.held.place.get().key;
        for record in self.losses.add((&queue.name, Some(queue.kind)), reason, &entry.held.message, key) {
            self.ledger.touch_soon(now.mono, record);
        }
        if entry.is_durable(queue.durable) {
            self.ledger.dropped(&entry.held);
            self.settle_durable(now.mono, index, &entry.held);
        }
    }

    /// A durable taker settled; a publisher that waited for the last one is told.
    pub(super) fn settle_durable(&mut self, now: Mono, index: QueueIndex, held: &Rc<Held>) {
        if held.stage.get() == Stage::Cold {
            self.settle_cold(now, index, held);
        }
        if self.ledger.settle(now, index, held)
            && let Some(connection) = held.waiter.get()
        {
            self.events.push_back(Event::GatesMayBeDue { connection });
        }
    }
}

/// When a message that is taken now is worth nothing any more.
pub(super) fn expiry(now: Mono, held: &Held) -> Mono {
    let lasts_ms = held.message.time_to_live_ms;
    lasts_ms.map_or(NEVER, |ms| Mono(now.0.saturating_add(ms.saturating_mul(1000)).min(NEVER.0 - 1)))
}

pub(super) fn message_of(now: Now, publish: Publish<'_>) -> Message {
    Message {
        address: publish.address.into(),
        body: Bytes::copy_from_slice(publish.body),
        assurance: publish.assurance,
        retain: publish.retain,
        received_at: now.wall,
        received_trusted: now.wall_trusted,
        properties: if publish.properties.is_empty() {
            Bytes::new()
        } else {
            Bytes::copy_from_slice(publish.properties)
        },
        time_to_live_ms: publish.time_to_live_ms,
        ..Message::default()
    }
}
