//! Handing over and settling: from a queue to its consumer, and what the consumer answers.

use std::rc::Rc;

use super::ledger::Urgency;
use super::loss::LossReason;
#[cfg(feature = "mutations")]
use super::mutation::{Mutation, is_made};
use super::queue::{Consumer, Entry, Flight, InFlight, QueueIndex, QueueKind, Releasing};
use super::rows::WindowChange;
use super::session::is_system;
use super::trace::TraceStep;
use super::{Broker, Delivery, Event, Gate};
use crate::ids::BatchNumber;
use crate::message::Assurance;
use crate::time::{Mono, Now};

/// Last known values handed over at once, bytes.
const REPLAY_BYTES: u64 = 64 * 1024;

impl Broker {
    /// The consumer has taken an at-least-once delivery over (MQTT: PUBACK). An unknown tag is ignored.
    pub fn accept(&mut self, now: Now, index: QueueIndex, tag: u32) {
        let at_least_once = |f: &InFlight| f.entry.assurance != Assurance::ExactlyOnce;
        if self.settle(now, index, tag, (TraceStep::Acknowledged, ""), at_least_once) {
            self.dispatch(now, index);
            self.share_goes_on(now, index);
        }
    }

    /// The consumer has an exactly-once delivery (MQTT: PUBREC). The message is settled; its tag stays in use until
    /// the release is confirmed. The release leaves with the gate, also for a repeated or unknown tag, which may have
    /// been settled before a restart. [MQTT-4.3.3-1] False when the tag is unknown.
    pub fn receive(&mut self, now: Now, index: QueueIndex, tag: u32) -> (Gate, bool) {
        let exactly_once = |f: &InFlight| f.entry.assurance == Assurance::ExactlyOnce;
        let known = self.settle(now, index, tag, (TraceStep::Acknowledged, ""), exactly_once);
        let Some(queue) = self.queue_mut(index) else { return (Gate::Open, false) };
        if !known {
            let repeated = queue.releasing.iter().any(|r| r.tag == tag);
            let gate = if queue.durable { Gate::Batch(queue.window_batch) } else { Gate::Open };
            return (gate, repeated);
        }
        if !queue.durable {
            queue.releasing.push_back(Releasing { tag, kept_by: BatchNumber(0) });
            return (Gate::Open, true);
        }
        queue.window_dirty.set(true);
        let change = WindowChange::Received(queue.id, tag);
        let batch = self.ledger.window(now.mono, change, Urgency::Now);
        if let Some(queue) = self.queue_mut(index) {
            queue.releasing.push_back(Releasing { tag, kept_by: batch });
            queue.window_batch = batch;
        }
        (Gate::Batch(batch), true)
    }

    /// The consumer confirmed the release (MQTT: PUBCOMP): the tag is free.
    pub fn complete(&mut self, now: Now, index: QueueIndex, tag: u32) {
        let Some(queue) = self.queue_mut(index) else { return };
        let Some(position) = queue.releasing.iter().position(|r| r.tag == tag) else { return };
        queue.releasing.remove(position);
        if queue.durable {
            queue.window_dirty.set(true);
            let change = WindowChange::Completed(queue.id, tag);
            self.ledger.window(now.mono, change, Urgency::Lazy(super::ledger::LAZY_SETTLEMENT));
        }
        self.dispatch(now, index);
        self.share_goes_on(now, index);
    }

    /// The delivery may not reach its consumer (a right is missing): it counts as settled.
    pub fn withdraw(&mut self, now: Now, index: QueueIndex, tag: u64) {
        if let Ok(tag) = u32::try_from(tag)
            && tag != 0
            && self.settle(now, index, tag, (TraceStep::Withheld, "not allowed, or not taken"), |_| true)
        {
            self.dispatch(now, index);
            self.share_goes_on(now, index);
        }
    }

    /// The delivery is larger than its consumer takes: it is over, as if it had been sent, and counts as lost.
    /// [MQTT-3.1.2-25]
    pub fn lose_too_large(&mut self, now: Now, delivery: &Delivery) {
        let index = delivery.queue;
        if is_system(&delivery.held.message.address) {
            // The gateway's own figures are no traffic; a receipt among them would be lost in turn, for ever.
            self.withdraw(now, index, delivery.tag);
            return;
        }
        if delivery.tag == 0 {
            let entry = Entry::new(Rc::clone(&delivery.held), Assurance::AtMostOnce);
            self.lose(now, index, &entry, LossReason::PacketTooLarge);
            return;
        }
        let Some(queue) = self.queue_mut(index) else { return };
        let Some(position) = queue.in_flight.iter().position(|f| u64::from(f.tag) == delivery.tag) else {
            return;
        };
        let Some(InFlight { entry, .. }) = queue.in_flight.remove(position) else { return };
        queue.discharge(&entry);
        queue.in_flight_bytes -= entry.charge();
        self.lose(now, index, &entry, LossReason::PacketTooLarge);
        self.dispatch(now, index);
    }

    /// The consumer's output is full, or has room again.
    pub fn set_blocked(&mut self, now: Now, index: QueueIndex, blocked: bool) {
        if let Some(consumer) = self.queue_mut(index).and_then(|queue| queue.consumer.as_mut()) {
            consumer.blocked = blocked;
        }
        if !blocked {
            self.dispatch(now, index);
        }
    }

    /// Hands over what credit, output and bounds allow.
    pub(super) fn dispatch(&mut self, now: Now, index: QueueIndex) {
        let mut replayed = 0;
        loop {
            let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
            if queue.kind == QueueKind::Named {
                self.dispatch_named(now, index);
                return;
            }
            let Some(consumer) = queue.consumer else { return };
            if consumer.blocked {
                return;
            }
            if replayed >= REPLAY_BYTES {
                // Nothing else limits them: a consumer that does not read must not get all of them.
                queue.consumer = Some(Consumer { blocked: true, ..consumer });
                self.events.push_back(Event::Paused { connection: consumer.connection, queue: index });
                return;
            }
            if let Some(entry) = queue.replay.pop_front_if(|e| e.assurance == Assurance::AtMostOnce) {
                replayed += entry.charge();
                if entry.expires_at < now.mono {
                    continue;
                }
                self.counters.delivered += 1;
                self.events.push_back(Event::Deliver(Delivery {
                    connection: consumer.connection,
                    queue: index,
                    tag: 0,
                    consumer: 0,
                    returns: 0,
                    held: Rc::clone(&entry.held),
                    assurance: entry.assurance,
                    retained: entry.retained,
                    identifier: entry.identifier,
                    expires_at: entry.expires_at,
                    redelivered: false,
                }));
                continue;
            }
            if queue.resending {
                self.resend(now, index);
                let Some(queue) = self.queue(index) else { return };
                if queue.resending {
                    return;
                }
                continue;
            }
            if queue.credit() == 0 || queue.in_flight_bytes >= queue.bounds.bytes_max {
                break;
            }
            let entry = if let Some(entry) = queue.pop_replay() {
                queue.charge(&entry);
                entry
            } else if let Some(entry) = queue.ready.pop_front() {
                entry
            } else {
                break;
            };
            let is_over = entry.expires_at < now.mono;
            #[cfg(feature = "mutations")]
            let is_over = is_over && !is_made(Mutation::KeepExpired);
            if is_over {
                // [MQTT-3.3.2-5]
                queue.discharge(&entry);
                self.lose(now, index, &entry, LossReason::Expired);
                continue;
            }
            let tag = queue.take_tag();
            queue.in_flight_bytes += entry.charge();
            let awaits = queue.durable && entry.assurance == Assurance::ExactlyOnce;
            #[cfg(feature = "mutations")]
            let awaits = awaits && !is_made(Mutation::DeliverBeforeKept);
            let flight = if awaits {
                // The identifier must survive a restart before the consumer sees it. [MQTT-4.3.3-1]
                queue.window_dirty.set(true);
                let change = WindowChange::Tagged(queue.id, tag, Rc::clone(&entry.held));
                let batch = self.ledger.window(now.mono, change, Urgency::Now);
                self.awaiting.push_back((batch, index, tag));
                Flight::AwaitBatch(batch)
            } else {
                Flight::Sent(now.mono)
            };
            if !awaits {
                queue.note_sent(&entry.held, self.ledger.open_batch());
                self.counters.delivered += 1;
                self.events.push_back(Event::Deliver(delivery_of(tag, &entry, consumer.connection, index)));
            }
            queue.in_flight.push_back(InFlight { tag, entry, flight });
            let stalls = queue.credit() == 0 && !queue.ready.is_empty();
            self.counters.credit_stalls += u64::from(stalls);
        }
        if self.queue(index).is_some_and(|queue| queue.cold.is_some()) {
            self.want_rows(index);
        }
    }

    /// A step of an exactly-once exchange is on flash: a delivery under a new tag, or the release of one that was
    /// received, may be sent, if its consumer is there.
    pub(super) fn step_kept(&mut self, now: Now, index: QueueIndex, tag: u32) {
        let persisted = self.ledger.persisted();
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        let consumer = queue.consumer;
        let waits = |f: &&mut InFlight| {
            f.tag == tag && matches!(f.flight, Flight::AwaitBatch(batch) if batch <= persisted)
        };
        let Some(in_flight) = queue.in_flight.iter_mut().find(waits) else {
            self.receipt_kept(index, tag);
            return;
        };
        in_flight.flight = Flight::Unsent;
        if consumer.is_some() {
            let before = queue.in_flight.len();
            queue.resending = true;
            self.resend(now, index);
            if self.queue(index).is_some_and(|queue| queue.in_flight.len() < before) {
                self.dispatch(now, index);
            }
        }
    }

    /// What has its identifier and was never sent may have expired while it waited for the flash or for the consumer.
    /// [MQTT-3.3.2-5]
    fn drop_expired_unsent(&mut self, now: Now, index: QueueIndex) {
        let over = |f: &InFlight| {
            f.flight == Flight::Unsent && !f.entry.redelivered && f.entry.expires_at < now.mono
        };
        #[cfg(feature = "mutations")]
        let over = |f: &InFlight| over(f) && !is_made(Mutation::KeepExpired);
        while let Some(queue) = self.queue_mut(index)
            && let Some(at) = queue.in_flight.iter().position(over)
            && let Some(in_flight) = queue.in_flight.remove(at)
        {
            queue.discharge(&in_flight.entry);
            queue.in_flight_bytes -= in_flight.entry.charge();
            self.give_up_tag(now, index, &in_flight);
            self.lose(now, index, &in_flight.entry, LossReason::Expired);
        }
    }

    /// An exactly-once delivery ends before its exchange: the tag that flash knows must not come to another claim on the
    /// same row, such as that of a second subscription on a last known value.
    fn give_up_tag(&mut self, now: Now, index: QueueIndex, in_flight: &InFlight) {
        let Some(queue) = self.queue(index).filter(|queue| queue.durable) else { return };
        if in_flight.entry.assurance == Assurance::ExactlyOnce {
            queue.window_dirty.set(true);
            let change = WindowChange::Completed(queue.id, in_flight.tag);
            self.ledger.window(now.mono, change, Urgency::Lazy(super::ledger::LAZY_SETTLEMENT));
        }
    }

    /// Sends what is in flight and was not sent to this consumer, in the order of the first sending, as far as its
    /// credit goes: it may have less than the one before.
    fn resend(&mut self, now: Now, index: QueueIndex) {
        self.drop_expired_unsent(now, index);
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        let Some(consumer) = queue.consumer.filter(|_| queue.resending) else { return };
        let sent = queue.in_flight.iter().filter(|f| f.flight != Flight::Unsent).count();
        let mut credit = (consumer.credit_max as usize).saturating_sub(sent + queue.releasing.len());
        for in_flight in queue.in_flight.iter_mut().filter(|f| f.flight == Flight::Unsent) {
            if credit == 0 {
                return;
            }
            credit -= 1;
            in_flight.flight = Flight::Sent(now.mono);
            self.counters.delivered += 1;
            let delivery = delivery_of(in_flight.tag, &in_flight.entry, consumer.connection, index);
            self.events.push_back(Event::Deliver(delivery));
        }
        queue.resending = false;
    }

    /// Sends what was in flight when the last connection ended, in the same order and under the same tags, then the
    /// releases that are owed. [MQTT-4.4.0-1], [MQTT-4.6.0-1]
    pub(super) fn redeliver(&mut self, now: Now, index: QueueIndex) {
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        let Some(consumer) = queue.consumer else { return };
        let persisted = self.ledger.persisted();
        queue.resending = true;
        self.resend(now, index);
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        #[cfg(feature = "mutations")]
        if is_made(Mutation::ForgetOwedRelease) {
            return;
        }
        #[cfg(feature = "mutations")]
        let persisted = if is_made(Mutation::ReleaseBeforeKept) { BatchNumber(u64::MAX) } else { persisted };
        for Releasing { tag, kept_by } in queue.releasing.iter().copied() {
            if kept_by <= persisted {
                self.events.push_back(Event::Release { connection: consumer.connection, tag });
            } else {
                self.awaiting.push_back((kept_by, index, tag));
            }
        }
    }

    /// A receipt is on flash: its release may be sent, if a consumer has come since that waits for it.
    fn receipt_kept(&mut self, index: QueueIndex, tag: u32) {
        let persisted = self.ledger.persisted();
        let Some(queue) = self.queue(index) else { return };
        let Some(consumer) = queue.consumer else { return };
        if queue.releasing.iter().any(|r| r.tag == tag && r.kept_by <= persisted) {
            self.events.push_back(Event::Release { connection: consumer.connection, tag });
        }
    }

    /// Takes the delivery out of flight if `wanted`; `step` is what that means. False when there is none such.
    fn settle(
        &mut self,
        now: Now,
        index: QueueIndex,
        tag: u32,
        (step, why): (TraceStep, &str),
        wanted: impl Fn(&InFlight) -> bool,
    ) -> bool {
        let Some(queue) = self.queue_mut(index) else { return false };
        let sent = |f: &InFlight| f.tag == tag && !matches!(f.flight, Flight::AwaitBatch(_)) && wanted(f);
        let Some(position) = queue.in_flight.iter().position(sent) else { return false };
        let Some(in_flight) = queue.in_flight.remove(position) else { return false };
        queue.discharge(&in_flight.entry);
        queue.in_flight_bytes -= in_flight.entry.charge();
        if let Flight::Sent(at) = in_flight.flight {
            queue.settled_after(at, now.mono);
        }
        let durable = in_flight.entry.is_durable(queue.durable);
        self.give_up_tag(now, index, &in_flight);
        let entry = in_flight.entry;
        #[cfg(feature = "mutations")]
        if is_made(Mutation::SettleByContent) {
            self.settle_equals(now, index, &entry);
        }
        self.counters.settled += 1;
        self.trace(now, step, index, &entry.held, why);
        if durable {
            self.settle_durable(now.mono, index, &entry.held);
        }
        true
    }

    /// The mistake of taking messages with the same content for the same message.
    #[cfg(feature = "mutations")]
    fn settle_equals(&mut self, now: Now, index: QueueIndex, settled: &Entry) {
        let Some(queue) = self.queue_mut(index) else { return };
        let equal = |e: &Entry| e.held.message.body == settled.held.message.body;
        let Some(position) = queue.ready.iter().position(equal) else { return };
        let Some(entry) = queue.ready.remove(position) else { return };
        queue.discharge(&entry);
        let durable = entry.is_durable(queue.durable);
        self.counters.settled += 1;
        if durable {
            self.settle_durable(now.mono, index, &entry.held);
        }
    }

    /// How long the slowest delivery in flight has been waiting for its settlement, for `status`.
    #[must_use]
    pub fn oldest_in_flight(&self, index: QueueIndex) -> Option<Mono> {
        let sent = |f: &InFlight| match f.flight {
            Flight::Sent(at) => Some(at),
            Flight::AwaitBatch(_) | Flight::Unsent => None,
        };
        self.queue(index)?.in_flight.iter().filter_map(sent).min()
    }
}

fn delivery_of(tag: u32, entry: &Entry, connection: crate::ids::ConnectionId, queue: QueueIndex) -> Delivery {
    Delivery {
        connection,
        queue,
        tag: u64::from(tag),
        consumer: 0,
        held: Rc::clone(&entry.held),
        assurance: entry.assurance,
        retained: entry.retained || entry.as_published && entry.held.message.retain,
        identifier: entry.identifier,
        expires_at: entry.expires_at,
        redelivered: entry.redelivered,
        returns: 0,
    }
}
