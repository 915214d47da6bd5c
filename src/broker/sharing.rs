//! Sharing a named queue: consumers come and go, each message is handed to one of them, and what they answer.

use std::rc::Rc;

use super::held::Held;
use super::loss::LossReason;
#[cfg(feature = "mutations")]
use super::mutation::{Mutation, is_made};
use super::named::{CreditPool, Named, Subscriber, Unsettled};
use super::publish::Offered;
use super::queue::{Entry, NEVER, QueueIndex};
use super::rows::RecordKey;
use super::trace::TraceStep;
use super::{Broker, Delivery, Event};
use crate::ids::ConnectionId;
use crate::limits;
use crate::message::{Assurance, DeathReason};
use crate::time::{Mono, Now};

/// What a consumer does with a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settlement {
    /// It is done with it.
    Accept,
    /// It goes back to its place and will be marked as redelivered.
    Requeue,
    /// It never reached the consumer: it goes back unmarked.
    Release,
    /// Nobody should get it: it is dead.
    Discard,
    /// A rule keeps it from its consumer: it is gone, and does not go where the dead of its queue go.
    Withhold,
}

/// Why a consumer may not join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConsumeRefused {
    /// Another one has the queue for itself, or this one wants what others use.
    Exclusive,
    Missing,
}

/// A message that was asked for.
#[derive(Clone, Debug)]
pub struct Got {
    /// Names it in its settlement; 0 when none is expected.
    pub number: u64,
    pub held: Rc<Held>,
    pub redelivered: bool,
    pub returns: u16,
    /// Messages left.
    pub ready: usize,
}

impl Broker {
    /// A consumer joins; its messages follow as events.
    ///
    /// # Errors
    /// When the queue is another's alone.
    pub fn consume(
        &mut self,
        now: Now,
        index: QueueIndex,
        subscriber: Subscriber,
    ) -> Result<(), ConsumeRefused> {
        let named = self.named_mut(index).ok_or(ConsumeRefused::Missing)?;
        let taken = named.consumers.iter().any(|consumer| consumer.subscriber.exclusive);
        if taken || subscriber.exclusive && !named.consumers.is_empty() {
            return Err(ConsumeRefused::Exclusive);
        }
        named.add_consumer(subscriber);
        named.used_at = now.mono;
        self.hand_over(now, index);
        Ok(())
    }

    /// A consumer leaves; what it has not settled stays with its connection. An auto-delete queue goes with its last.
    pub fn cancel(&mut self, now: Now, index: QueueIndex, connection: ConnectionId, handle: u64) {
        let Some(named) = self.named_mut(index) else { return };
        if named.remove_consumer(connection, handle).is_none() {
            return;
        }
        named.used_at = now.mono;
        if named.options.auto_delete && named.consumers.is_empty() {
            self.end_queue(now, index);
            return;
        }
        self.arm(now.mono, index);
        if self.queue(index).is_some_and(|queue| queue.cold.is_some()) {
            self.give_back(index);
        }
        if self.named(index).is_some_and(|named| named.settings().single_active) {
            self.hand_over(now, index);
        }
    }

    /// Changes how much a consumer may have unsettled.
    pub fn set_credit(
        &mut self,
        now: Now,
        index: QueueIndex,
        connection: ConnectionId,
        handle: u64,
        credit_max: u32,
    ) {
        let Some(named) = self.named_mut(index) else { return };
        if let Some(consumer) = named.consumers.iter_mut().find(|consumer| consumer.is(connection, handle)) {
            consumer.subscriber.credit_max = credit_max;
        }
        self.hand_over(now, index);
    }

    /// Hands over what credit allows: a consumer's output or shared credit has room again.
    pub fn hand_over(&mut self, now: Now, index: QueueIndex) {
        self.dispatch(now, index);
        self.bury_dead(now);
    }

    /// Somebody asked for the queue by its name: it counts as used.
    pub fn renew_queue(&mut self, now: Now, index: QueueIndex) {
        if let Some(named) = self.named_mut(index) {
            named.used_at = now.mono;
        }
    }

    /// The next message, for one who asks for it.
    pub fn get(&mut self, now: Now, index: QueueIndex, settled: bool) -> Option<Got> {
        self.expire_heads(now, index, false);
        self.bury_dead(now);
        if self.awaits_rows(index) {
            return None;
        }
        let queue = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut)?;
        let named = queue.named.as_mut()?;
        named.used_at = now.mono;
        let entry = named.pop(&mut queue.ready)?;
        let (held, redelivered) = (Rc::clone(&entry.held), entry.redelivered);
        let returns = if named.options.settings.returns_max.is_some() { entry.returns } else { 0 };
        let mut number = 0;
        if !settled {
            self.next_delivery += 1;
            number = self.next_delivery;
            queue.in_flight_bytes += entry.charge();
            named.unsettled.push_back(Unsettled { number, entry, consumer: None, sent: now.mono });
        } else {
            self.settled_at_once(now, index, &entry);
        }
        self.counters.delivered += 1;
        self.counters.fetched += 1;
        self.trace(now, TraceStep::Delivered, index, &held, "asked for");
        if self.queue(index).is_some_and(|queue| queue.cold.is_some()) {
            self.need_rows(index);
        }
        let ready = self.queue(index).map_or(0, super::Queue::ready_len);
        Some(Got { number, held, redelivered, returns, ready })
    }

    /// Settles deliveries, then hands over what that makes room for. False for each number that is not in flight.
    pub fn settle_deliveries(
        &mut self,
        now: Now,
        deliveries: impl Iterator<Item = (QueueIndex, u64)>,
        settlement: Settlement,
    ) {
        let mut touched: Vec<QueueIndex> = Vec::new();
        for (index, number) in deliveries {
            self.settle_delivery(now, index, number, settlement);
            if touched.last() != Some(&index) && !touched.contains(&index) {
                touched.push(index);
            }
        }
        let returned = matches!(settlement, Settlement::Requeue | Settlement::Release);
        for index in touched {
            self.dispatch(now, index);
            if returned {
                // Consumers may have had more than the queue may hold, and the bounds drop only what is ready.
                self.keep_ready_bounds(now, index);
                self.keep_queue_bounds(now, index);
            }
        }
        self.bury_dead(now);
    }

    fn settle_delivery(&mut self, now: Now, index: QueueIndex, number: u64, settlement: Settlement) {
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        let Some(named) = &mut queue.named else { return };
        let Some(unsettled) = named.take_unsettled(number) else { return };
        let mut entry = unsettled.entry;
        queue.in_flight_bytes -= entry.charge();
        match settlement {
            Settlement::Accept => {
                queue.discharge(&entry);
                queue.settled_after(unsettled.sent, now.mono);
                self.counters.settled += 1;
                self.traces.step(now, TraceStep::Acknowledged, &entry.held, (&queue.name, ""));
                if entry.is_durable(queue.durable) {
                    self.settle_durable(now.mono, index, &entry.held);
                }
            }
            Settlement::Requeue | Settlement::Release => {
                if settlement == Settlement::Requeue {
                    self.traces.step(now, TraceStep::Returned, &entry.held, (&queue.name, "given back"));
                    entry.redelivered = true;
                    entry.returns = entry.returns.saturating_add(1);
                    #[cfg(feature = "mutations")]
                    if is_made(Mutation::ForgetReturned) {
                        entry.redelivered = false;
                    }
                }
                let returns_max = named.settings().returns_max;
                if returns_max.is_some_and(|max| u32::from(entry.returns) > max) {
                    queue.discharge(&entry);
                    self.die(now, index, entry, DeathReason::DeliveryLimit);
                    return;
                }
                let counts = returns_max.is_some() && entry.returns > 0 && entry.is_durable(queue.durable);
                let record = RecordKey::Queue(queue.id);
                named.put_back(&mut queue.ready, entry);
                if counts {
                    self.ledger.touch_soon(now.mono, record);
                }
                self.arm(now.mono, index);
            }
            Settlement::Discard => {
                self.traces.step(now, TraceStep::Returned, &entry.held, (&queue.name, "refused"));
                queue.discharge(&entry);
                self.die(now, index, entry, DeathReason::Rejected);
            }
            Settlement::Withhold => {
                self.traces.step(now, TraceStep::Withheld, &entry.held, (&queue.name, "not allowed"));
                queue.discharge(&entry);
                self.forget_dead(now, index, &entry, DeathReason::Rejected);
            }
        }
    }

    /// Hands over what credit, output and bounds allow.
    pub(super) fn dispatch_named(&mut self, now: Now, index: QueueIndex) {
        self.expire_heads(now, index, false);
        self.hand_over_ready(now, index);
        if self.queue(index).is_some_and(|queue| queue.cold.is_some()) {
            self.want_rows(index);
        }
    }

    fn hand_over_ready(&mut self, now: Now, index: QueueIndex) {
        let mut handed_over = false;
        loop {
            let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
            if queue.cold.is_some() && queue.awaits_rows() {
                return;
            }
            let Some(named) = &mut queue.named else { return };
            if named.consumers.is_empty() || queue.in_flight_bytes >= queue.bounds.bytes_max {
                return;
            }
            let Some(front) = named.front(&queue.ready) else { return };
            if front.expires_at < now.mono {
                // It stood behind one that lasts longer.
                self.expire_heads(now, index, false);
                continue;
            }
            let Some(at) = named.next_consumer() else {
                self.counters.credit_stalls += u64::from(handed_over);
                return;
            };
            handed_over = true;
            let Some(entry) = named.pop(&mut queue.ready) else { return };
            let Some(consumer) = named.consumers.get_mut(at) else { return };
            let subscriber = &consumer.subscriber;
            let (connection, handle, settled) =
                (subscriber.connection, subscriber.handle, subscriber.settled);
            let outlet = &subscriber.pool.outlet;
            outlet.room.set(outlet.room.get() - entry.charge().cast_signed() - DELIVERY_OVERHEAD);
            let mut delivery = Delivery {
                connection,
                queue: index,
                tag: 0,
                consumer: handle,
                held: Rc::clone(&entry.held),
                assurance: entry.assurance,
                retained: false,
                identifier: 0,
                expires_at: entry.expires_at,
                redelivered: entry.redelivered,
                returns: if named.options.settings.returns_max.is_some() { entry.returns } else { 0 },
            };
            if settled {
                self.settled_at_once(now, index, &entry);
            } else {
                consumer.unsettled += 1;
                let pool: &CreditPool = &consumer.subscriber.pool;
                pool.used.set(pool.used.get() + 1);
                self.next_delivery += 1;
                delivery.tag = self.next_delivery;
                queue.in_flight_bytes += entry.charge();
                let consumer = Some((connection, handle));
                named.unsettled.push_back(Unsettled {
                    number: delivery.tag,
                    entry,
                    consumer,
                    sent: now.mono,
                });
            }
            self.counters.delivered += 1;
            #[cfg(feature = "mutations")]
            if is_made(Mutation::DeliverTwice) {
                let others = self.named(index).into_iter().flat_map(|named| &named.consumers);
                let other = others.map(|c| (c.subscriber.connection, c.subscriber.handle));
                if let Some((connection, consumer)) =
                    other.clone().find(|other| *other != (connection, handle))
                {
                    self.events.push_back(Event::Deliver(Delivery {
                        connection,
                        consumer,
                        ..delivery.clone()
                    }));
                }
            }
            self.events.push_back(Event::Deliver(delivery));
        }
    }

    fn settled_at_once(&mut self, now: Now, index: QueueIndex, entry: &Entry) {
        self.counters.settled += 1;
        self.trace(now, TraceStep::Acknowledged, index, &entry.held, "it asked not to be waited for");
        let Some(queue) = self.queue_mut(index) else { return };
        queue.discharge(entry);
        if entry.is_durable(queue.durable) {
            self.settle_durable(now.mono, index, &entry.held);
        }
    }

    /// Puts one copy into a named queue, or straight to one of its consumers.
    pub(super) fn offer_named(&mut self, now: Now, index: QueueIndex, held: &Rc<Held>) -> Option<Offered> {
        let crowded = self.rejecting_are_crowded(index, held.message.charge() as u64);
        let queue = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut)?;
        let ready = queue.ready_len() as u64;
        let Some(named) = &mut queue.named else { return None };
        if held.message.address.len() > limits::SHARED_ADDRESS_BYTES_MAX {
            self.counters.address_too_long += 1;
            self.trace(now, TraceStep::Dropped, index, held, "address_too_long");
            return None;
        }
        // A copy is as sure as the publisher asked, but once per consumer is what queues promise at most.
        let assurance = held.message.assurance.min(Assurance::AtLeastOnce);
        let mut entry = Entry::new(Rc::clone(held), assurance);
        if queue.bounds.overflow == super::Overflow::Reject {
            let charge = entry.charge();
            let over = crowded
                || named.would_overflow(ready, charge)
                || queue.messages >= queue.bounds.messages_max
                || queue.bytes + charge > queue.bounds.bytes_max;
            if over {
                named.rejected += 1;
                self.counters.refused += 1;
                let dead = named.settings().overflow == Some(super::ReadyOverflow::RejectDeadLetter);
                self.trace(now, TraceStep::Refused, index, held, "");
                if !(dead && self.die_unheld(now, index, &entry, DeathReason::QueueFull)) {
                    self.lose_refused(now, index, held);
                }
                return Some(Offered::Refused);
            }
        }
        entry.expires_at = expiry(now.mono, named, held);
        let durable = entry.is_durable(queue.durable);
        if durable {
            let connected = if named.consumers.is_empty() { 0 } else { super::held::TAKER_CONNECTED };
            self.ledger.add_taker(held, queue.id, assurance.code() | connected);
        }
        queue.messages += 1;
        queue.bytes += entry.charge();
        if named.delays.is_some() {
            named.push_by_time(&mut queue.ready, entry);
        } else {
            named.push(&mut queue.ready, entry);
        }
        self.counters.queued += 1;
        let has_consumers = !named.consumers.is_empty();
        if queue.cold.is_some() {
            queue.settle_newcomer(held.message.priority);
        }
        let fast = queue.settle_us < self.elision_window_us();
        self.trace(now, TraceStep::Queued, index, held, "");
        self.dispatch(now, index);
        self.expire_heads(now, index, true);
        self.keep_ready_bounds(now, index);
        self.keep_queue_bounds(now, index);
        self.arm(now.mono, index);
        #[cfg(feature = "mutations")]
        let durable = durable && !is_made(Mutation::ForgetQueuesInGate);
        if !durable {
            return Some(Offered::Taken);
        }
        let handed_over = self.queue(index).is_some_and(|queue| queue.ready_len() == 0);
        Some(Offered::TakenDurably { likely: handed_over && has_consumers && fast })
    }

    /// Drops the oldest ready messages while there are more than the queue's own settings allow. A queue that refuses
    /// newcomers keeps what it took, also when what comes back makes it longer than that.
    pub(super) fn keep_ready_bounds(&mut self, now: Now, index: QueueIndex) {
        while let Some(queue) = self.queue_mut(index)
            && queue.bounds.overflow == super::Overflow::DropOldest
            && queue.named().is_some_and(|named| named.is_overflowing(queue.ready_len() as u64))
        {
            let Some(entry) = queue.pop_oldest() else {
                self.need_rows(index);
                return;
            };
            self.die(now, index, entry, DeathReason::QueueFull);
        }
    }

    pub(super) fn named(&self, index: QueueIndex) -> Option<&Named> {
        self.queue(index)?.named()
    }

    pub(super) fn named_mut(&mut self, index: QueueIndex) -> Option<&mut Named> {
        self.queue_mut(index)?.named.as_deref_mut()
    }

    /// Counts a dead message that nobody wants as lost, or as discarded when that was its consumer's wish.
    pub(super) fn forget_dead(&mut self, now: Now, index: QueueIndex, entry: &Entry, reason: DeathReason) {
        let reason = match reason {
            DeathReason::Rejected => {
                self.counters.discarded += 1;
                let durable = self.queue(index).is_some_and(|queue| entry.is_durable(queue.durable));
                if durable {
                    self.settle_durable(now.mono, index, &entry.held);
                }
                return;
            }
            DeathReason::Expired => LossReason::Expired,
            DeathReason::QueueFull => LossReason::QueueBound,
            DeathReason::DeliveryLimit => LossReason::DeliveryLimit,
        };
        self.lose(now, index, entry, reason);
    }
}

/// What a delivery takes beside its message, roughly.
const DELIVERY_OVERHEAD: i64 = 64;

/// When a message that enters a queue now expires, or is due where it is held back.
pub(super) fn expiry(now: Mono, named: &Named, held: &Held) -> Mono {
    let message = &held.message;
    let lasts_ms = if named.delays.is_some() {
        message.annotations.as_ref().and_then(|annotations| annotations.delay_ms)
    } else {
        match (named.settings().time_to_live_ms, message.time_to_live_ms) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    };
    lasts_ms.map_or(NEVER, |ms| Mono(now.0.saturating_add(ms.saturating_mul(1000)).min(NEVER.0 - 1)))
}
