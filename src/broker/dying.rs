//! Dying and coming due: messages that expire, are refused or overflow go to the dead-letter exchange; messages that
//! were held back are routed when it is time. Both add takers in the batch in which they leave their queue.

use std::cmp::Reverse;
use std::rc::Rc;
use std::time::Duration;

use super::Broker;
use super::held::Held;
use super::loss::LossReason;
#[cfg(feature = "mutations")]
use super::mutation::{Mutation, is_made};
use super::queue::{Entry, NEVER, Queue, QueueIndex, QueueKind};
use super::trace::TraceStep;
use crate::ids::RowKey;
use crate::message::{Death, DeathReason, Message};
use crate::time::{Mono, Now};

/// Queues are looked at this long after something in them has come due, so that many cost one wake-up.
const PRECISION: Duration = Duration::from_millis(5);

/// Sessions are looked over for expired messages this long after one has, so that many cost one look.
const SESSION_PRECISION: Duration = Duration::from_secs(1);

/// Expired messages that one look takes out; the next look follows at once.
const EXPIRED_MAX: usize = 1000;

/// Messages that die once more on their way, in one burst: dead-letter exchanges that are fanouts to queues without room
/// would multiply them without end.
const DYING_AGAIN_MAX: u32 = 1000;

/// Timers that mean nothing any more, beside as many as there are queues.
const TIMERS_STALE_MAX: usize = 64;

/// A message on its way from the queue in which it died.
#[derive(Debug)]
pub(super) struct Dead {
    message: Message,
    exchange: Box<str>,
    from: Origin,
    /// Queues that it must not reach again: it would go in circles for ever.
    avoid: Vec<Box<str>>,
}

/// Where a message was before it is routed once more, for the receipt if nobody takes it.
#[derive(Debug)]
struct Origin {
    queue: Box<str>,
    /// Its row there; 0 when it had none.
    key: RowKey,
}

impl Broker {
    /// `entry` has left the queue at `index` and is dead there: it goes to the dead-letter exchange, or is gone.
    pub(super) fn die(&mut self, now: Now, index: QueueIndex, entry: Entry, reason: DeathReason) {
        if !self.dead_letter(now, index, &entry, reason) {
            self.forget_dead(now, index, &entry, reason);
            return;
        }
        self.counters.dead_lettered += 1;
        self.trace(now, TraceStep::Dropped, index, &entry.held, "dead_lettered");
        let durable = self.queue(index).is_some_and(|queue| entry.is_durable(queue.durable));
        if durable {
            self.ledger.dropped(&entry.held);
            self.settle_durable(now.mono, index, &entry.held);
        }
    }

    /// A newcomer that the queue refuses goes to the dead-letter exchange without having been in the queue. False when
    /// it does not.
    pub(super) fn die_unheld(
        &mut self,
        now: Now,
        index: QueueIndex,
        entry: &Entry,
        reason: DeathReason,
    ) -> bool {
        let goes = self.dead_letter(now, index, entry, reason);
        self.counters.dead_lettered += u64::from(goes);
        goes
    }

    /// False when the queue has no dead-letter exchange.
    fn dead_letter(&mut self, now: Now, index: QueueIndex, entry: &Entry, reason: DeathReason) -> bool {
        let Some(queue) = self.queue(index) else { return false };
        let Some(named) = queue.named() else { return false };
        let Some(target) = named.settings().dead_letter.clone() else { return false };
        let mut message = entry.held.message.clone();
        let mut annotations = message.annotations.take().unwrap_or_default();
        if annotations.is_full() && reason != DeathReason::Rejected {
            // A way that long is a circle through more queues than are remembered.
            return false;
        }
        let mut addresses = vec![message.address.clone()];
        addresses.extend_from_slice(&annotations.also);
        annotations.delay_ms = None;
        annotations.add_death(Death {
            queue: queue.name.clone(),
            reason,
            count: 1,
            died_at: now.wall,
            exchange: message.exchange.as_deref().unwrap_or(super::SHARED_NAME).into(),
            addresses,
            time_to_live_ms: message.time_to_live_ms.take(),
        });
        let from = Origin { queue: queue.name.clone(), key: entry.held.place.get().key };
        // As RabbitMQ has it: the way back to a queue is a circle when nobody rejected the message since it died there.
        let since_rejected =
            annotations.deaths.iter().take_while(|death| death.reason != DeathReason::Rejected);
        let avoid = since_rejected.map(|death| death.queue.clone()).collect();
        if let Some(left) = &mut self.dying_again {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => return false,
            }
        }
        message.retain = false;
        if let Some(address) = target.address {
            // It takes the place of all that the publisher gave, as in RabbitMQ.
            message.address = address;
            annotations.also.clear();
            annotations.hidden.clear();
        }
        message.annotations = Some(annotations);
        self.dead.push_back(Dead { message, exchange: target.exchange, from, avoid });
        true
    }

    /// Routes what has died since the last call. A message that dies again on the way is routed in turn: each time in a
    /// queue in which it did not die since somebody rejected it, and [`DYING_AGAIN_MAX`] times in all.
    pub(super) fn bury_dead(&mut self, now: Now) {
        let begins = self.dying_again.is_none() && !self.dead.is_empty();
        if begins {
            self.dying_again = Some(DYING_AGAIN_MAX);
        }
        self.route_dead(now);
        if begins {
            self.dying_again = None;
        }
    }

    fn route_dead(&mut self, now: Now) {
        while let Some(dead) = self.dead.pop_front() {
            let Dead { mut message, from, avoid, .. } = dead;
            let Some(exchange) = self.exchanges.find(&dead.exchange) else {
                self.lose_unrouted(now, &Held::new(message, &self.memory), &from);
                continue;
            };
            message.exchange = self.exchange_of(exchange);
            self.route_past(now, exchange, message, &from, &avoid);
        }
    }

    /// How an exchange is named in a message.
    pub(super) fn exchange_of(&self, index: super::ExchangeIndex) -> Option<Rc<str>> {
        if index == super::ExchangeIndex::SHARED {
            return None;
        }
        self.exchanges.get(index).map(|exchange| Rc::clone(&exchange.name))
    }

    /// Takes the messages out that have expired. With `inclusive` also those that expire at this moment, for which
    /// no consumer was free.
    pub(super) fn expire_heads(&mut self, now: Now, index: QueueIndex, inclusive: bool) {
        let expired_max = if inclusive { EXPIRED_MAX } else { usize::MAX };
        let until = if inclusive { now.mono } else { Mono(now.mono.0.saturating_sub(1)) };
        for _ in 0..expired_max {
            let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
            let Some(named) = &mut queue.named else { return };
            let Some(entry) = named.pop_expired(&mut queue.ready, until) else { return };
            let delays = named.delays;
            queue.discharge(&entry);
            match delays {
                Some(exchange) => self.come_due(now, index, exchange, &entry),
                None => self.die(now, index, entry, DeathReason::Expired),
            }
        }
    }

    /// A message that was held back is routed as if it had come now.
    fn come_due(&mut self, now: Now, index: QueueIndex, exchange: super::ExchangeIndex, entry: &Entry) {
        let mut message = entry.held.message.clone();
        if let Some(annotations) = &mut message.annotations {
            annotations.delay_ms = None;
        }
        let Some(queue) = self.queue(index) else { return };
        let from = Origin { queue: queue.name.clone(), key: entry.held.place.get().key };
        self.route_past(now, exchange, message, &from, &[]);
        let durable = self.queue(index).is_some_and(|queue| entry.is_durable(queue.durable));
        if durable {
            // Nobody has acknowledged it: the copies that were made of it are no further than the open batch.
            self.ledger.dropped(&entry.held);
            self.settle_durable(now.mono, index, &entry.held);
        }
    }

    /// Routes a message that no publisher waits for: whoever refuses it loses it, and so does its origin if nobody
    /// wants it.
    fn route_past(
        &mut self,
        now: Now,
        exchange: super::ExchangeIndex,
        message: Message,
        from: &Origin,
        avoid: &[Box<str>],
    ) {
        let held = Held::new(message, &self.memory);
        let also: Vec<_> = held.message.annotations.iter().flat_map(|a| a.further()).cloned().collect();
        self.passing = Some(from.key);
        let (queues, ..) = self.route_held(now, exchange, &held, &also, avoid);
        self.passing = None;
        if queues == 0 {
            self.lose_unrouted(now, &held, from);
        }
        self.ledger.want_soon(now.mono);
    }

    /// No queue wants a message that was in one before.
    fn lose_unrouted(&mut self, now: Now, held: &Held, from: &Origin) {
        let reason = LossReason::Unrouted;
        self.counters.unrouted += 1;
        self.counters.lost += 1;
        self.traces.step(now, TraceStep::Dropped, held, (&from.queue, reason.name()));
        let from_queue = (&*from.queue, Some(QueueKind::Named));
        for record in self.losses.add(from_queue, reason, &held.message, from.key) {
            self.ledger.touch_soon(now.mono, record);
        }
    }

    /// A full queue has refused a message; if no publisher can be told, it is lost.
    pub(super) fn lose_refused(&mut self, now: Now, index: QueueIndex, held: &Held) {
        let Some(key) = self.passing else { return };
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        queue.dropped += 1;
        self.counters.lost += 1;
        let (queue, reason) = ((&*queue.name, Some(queue.kind)), LossReason::QueueBound);
        for record in self.losses.add(queue, reason, &held.message, key) {
            self.ledger.touch_soon(now.mono, record);
        }
    }

    /// Sees to it that the queue is looked at when something in it comes due.
    pub(super) fn arm(&mut self, now: Mono, index: QueueIndex) {
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        let cold = queue.cold_expiry().unwrap_or(NEVER);
        let Some(named) = &mut queue.named else { return };
        let mut at = named.next_expiry(&queue.ready).unwrap_or(NEVER).min(cold);
        if let Some(expires_ms) = named.settings().expires_ms
            && named.consumers.is_empty()
        {
            at = at.min(Mono(named.used_at.0.saturating_add(expires_ms.saturating_mul(1000))));
        }
        if at == NEVER || named.timer.is_some_and(|timer| timer <= at) {
            return;
        }
        let at = at.max(now) + PRECISION;
        named.timer = Some(at);
        self.wake_for(at, index);
    }

    /// Sets a timer. Those that earlier ones replaced stay behind, until they are most of them.
    fn wake_for(&mut self, at: Mono, index: QueueIndex) {
        self.timers.push(Reverse((at, index)));
        if self.timers.len() <= 2 * self.queues.len() + TIMERS_STALE_MAX {
            return;
        }
        let timers_of = |(queue, at): (&Option<Queue>, u32)| {
            let queue = queue.as_ref();
            let timers = [queue.and_then(|q| q.look_at), queue.and_then(|q| q.named()?.timer)];
            timers.into_iter().flatten().map(move |time| Reverse((time, QueueIndex(at))))
        };
        self.timers = self.queues.iter().zip(0u32..).flat_map(timers_of).collect();
    }

    /// When a queue is to be looked at next.
    pub(super) fn next_timer(&self) -> Option<Mono> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Sees to it that a session is looked over once a message that waits for it has expired.
    pub(super) fn look_later(&mut self, now: Mono, index: QueueIndex, expires_at: Mono) {
        let Some(queue) = self.queue_mut(index) else { return };
        let at = expires_at.max(now) + SESSION_PRECISION;
        if queue.look_at.is_none_or(|look_at| at < look_at) {
            queue.look_at = Some(at);
            self.wake_for(at, index);
        }
    }

    /// Takes the messages out of a session that have expired and were not sent. [MQTT-3.3.2-5]
    fn expire_entries(&mut self, now: Now, index: QueueIndex) {
        #[cfg(feature = "mutations")]
        if is_made(Mutation::KeepExpired) {
            return;
        }
        let Some(queue) = self.queue_mut(index) else { return };
        queue.look_at = None;
        let expired = queue.take_waiting(|entry| entry.expires_at <= now.mono);
        let next = queue.waiting().map(|entry| entry.expires_at).min().filter(|at| *at != NEVER);
        for entry in expired {
            self.lose(now, index, &entry, LossReason::Expired);
        }
        if let Some(next) = next {
            self.look_later(now.mono, index, next);
        }
        self.sift_expired(now.mono, index);
    }

    /// Forgets the last known values that have expired.
    pub(super) fn expire_retained(&mut self, now: Now) {
        while let Some(address) = self.retained.expired(now.mono) {
            let Some(old) = self.retained.remove(&address) else { return };
            self.unretain(now.mono, &old);
        }
    }

    /// Looks at the queues in which something may have come due.
    pub(super) fn look_at_queues(&mut self, now: Now) {
        while self.next_timer().is_some_and(|at| at <= now.mono)
            && let Some(Reverse((at, index))) = self.timers.pop()
        {
            if self.queue(index).is_some_and(|queue| queue.look_at == Some(at)) {
                self.expire_entries(now, index);
                continue;
            }
            let Some(named) = self.named_mut(index) else { continue };
            if named.timer != Some(at) {
                continue;
            }
            named.timer = None;
            let unused_until = named
                .settings()
                .expires_ms
                .map(|ms| Mono(named.used_at.0.saturating_add(ms.saturating_mul(1000))));
            if unused_until.is_some_and(|until| until <= now.mono) && named.consumers.is_empty() {
                self.end_queue(now, index);
                continue;
            }
            self.expire_heads(now, index, true);
            if self.awaits_expiry(now.mono, index) {
                // What may have expired has to be looked at; then the timer is set again.
                continue;
            }
            self.arm(now.mono, index);
        }
        self.bury_dead(now);
    }
}
