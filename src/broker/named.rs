//! What a named queue has beside the common parts of a queue: what it was declared with, its consumers and their
//! turns, messages that overtake, deliveries in flight.
//!
//! Plain data with its invariants. Declaring and deleting is in `topology`, handing over and settling in `sharing`.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use bytes::Bytes;

use super::exchange::ExchangeIndex;
#[cfg(feature = "mutations")]
use super::mutation::{Mutation, is_made};
use super::queue::{Entry, NEVER};
use crate::ids::{ConnectionId, RowKey};
use crate::time::Mono;

/// Deliveries that a consumer without a limit of its own may have unsettled.
pub const CREDIT_UNLIMITED: u32 = 2000;

/// What a queue was declared with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueOptions {
    /// It survives a restart. One that belongs to a connection does not, whatever this says.
    pub durable: bool,
    /// It belongs to the connection that declared it, and ends with it.
    pub exclusive: bool,
    /// It ends with its last consumer.
    pub auto_delete: bool,
    pub settings: QueueSettings,
    /// The arguments as their protocol encoded them: kept to be compared and shown.
    pub arguments: Bytes,
}

/// What the arguments mean.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueSettings {
    /// Each message's time to live, milliseconds.
    pub time_to_live_ms: Option<u64>,
    /// The queue's own, while nobody uses it.
    pub expires_ms: Option<u64>,
    /// Bounds of what is ready.
    pub ready_max: Option<u64>,
    pub ready_bytes_max: Option<u64>,
    pub overflow: Option<ReadyOverflow>,
    pub dead_letter: Option<DeadLetter>,
    /// A message that came back more often than this is dead.
    pub returns_max: Option<u32>,
    /// Priorities from 0 to this are told apart.
    pub priority_max: u8,
    /// One consumer at a time gets all messages.
    pub single_active: bool,
}

/// What a full queue does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadyOverflow {
    DropOldest,
    Reject,
    /// Refuses, and hands the newcomer to the dead-letter exchange.
    RejectDeadLetter,
}

/// Where dead messages go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    pub exchange: Box<str>,
    /// Instead of the message's own address.
    pub address: Option<Box<str>>,
}

/// How much a connection may be sent before its output is too full.
#[derive(Debug, Default)]
pub struct Outlet {
    /// Bytes that still fit; below zero when a large message took more.
    pub room: Cell<i64>,
    /// A delivery was held back for want of room.
    pub starved: Cell<bool>,
}

/// Credit that several consumers share.
#[derive(Debug)]
pub struct CreditPool {
    /// Deliveries that may be unsettled; 0 is no bound.
    pub limit: Cell<u32>,
    pub used: Cell<u32>,
    pub outlet: Rc<Outlet>,
}

impl CreditPool {
    #[must_use]
    pub const fn new(outlet: Rc<Outlet>) -> Self {
        Self { limit: Cell::new(0), used: Cell::new(0), outlet }
    }

    fn has_credit(&self) -> bool {
        self.limit.get() == 0 || self.used.get() < self.limit.get()
    }
}

/// A consumer as it joins.
#[derive(Clone, Debug)]
pub struct Subscriber {
    pub connection: ConnectionId,
    /// Names it among the consumers of its connection.
    pub handle: u64,
    /// What it is sent counts as settled.
    pub settled: bool,
    /// Nobody else may consume.
    pub exclusive: bool,
    pub priority: i32,
    /// Deliveries that may be unsettled; 0 is no bound of its own.
    pub credit_max: u32,
    pub pool: Rc<CreditPool>,
}

#[derive(Debug)]
pub(super) struct Consumer {
    pub subscriber: Subscriber,
    pub unsettled: u32,
}

impl Consumer {
    pub fn is(&self, connection: ConnectionId, handle: u64) -> bool {
        self.subscriber.connection == connection && self.subscriber.handle == handle
    }

    fn has_credit(&self) -> bool {
        #[cfg(feature = "mutations")]
        if is_made(Mutation::IgnoreCredit) {
            return true;
        }
        let own = match self.subscriber.credit_max {
            0 => CREDIT_UNLIMITED,
            credit_max => credit_max,
        };
        self.subscriber.settled || (self.unsettled < own && self.subscriber.pool.has_credit())
    }
}

/// A delivery that is not settled.
#[derive(Debug)]
pub(super) struct Unsettled {
    /// Ascends over all named queues of the broker, so one that is settled is never met again.
    pub number: u64,
    pub entry: Entry,
    /// Connection and handle of the consumer; none for a message that was asked for.
    pub consumer: Option<(ConnectionId, u64)>,
    pub sent: Mono,
}

#[derive(Debug)]
pub(super) struct Named {
    pub options: QueueOptions,
    /// The connection whose own it is.
    pub owner: Option<ConnectionId>,
    /// Holds back what this exchange delays; not to be seen.
    pub delays: Option<ExchangeIndex>,
    pub consumers: Vec<Consumer>,
    /// Whose turn it is.
    turn: usize,
    pub had_consumer: bool,
    /// In the order of sending, which is that of their numbers.
    pub unsettled: VecDeque<Unsettled>,
    /// Ready messages of priority 1 and up; those of priority 0 are the queue's own.
    overtaking: Vec<VecDeque<Entry>>,
    pub ready_bytes: u64,
    next_order: u64,
    /// When the queue is looked at next.
    pub timer: Option<Mono>,
    pub used_at: Mono,
    /// What it refused.
    pub rejected: u64,
    /// Returns of messages that are being recovered.
    pub returned: BTreeMap<RowKey, u16>,
}

impl Named {
    pub fn new(options: QueueOptions, now: Mono) -> Self {
        let levels = usize::from(options.settings.priority_max);
        Self {
            options,
            owner: None,
            delays: None,
            consumers: Vec::new(),
            turn: 0,
            had_consumer: false,
            unsettled: VecDeque::new(),
            overtaking: std::iter::repeat_with(VecDeque::new).take(levels).collect(),
            ready_bytes: 0,
            next_order: 1,
            timer: None,
            used_at: now,
            rejected: 0,
            returned: BTreeMap::new(),
        }
    }

    pub fn settings(&self) -> &QueueSettings {
        &self.options.settings
    }

    /// Messages that overtake the queue's own.
    pub fn overtaking_len(&self) -> usize {
        self.overtaking.iter().map(VecDeque::len).sum()
    }

    /// Ready messages of a priority above 0.
    pub fn overtaking(&self, level: u8) -> Option<&VecDeque<Entry>> {
        self.overtaking.get(usize::from(level).checked_sub(1)?)
    }

    pub fn overtaking_mut(&mut self, level: u8) -> Option<&mut VecDeque<Entry>> {
        self.overtaking.get_mut(usize::from(level).checked_sub(1)?)
    }

    /// Deliveries in flight and what overtakes.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.unsettled.iter().map(|unsettled| &unsettled.entry).chain(self.overtaking.iter().flatten())
    }

    /// Ready messages of each priority, each in the order in which they came; `ready` is the queue's own.
    pub fn levels<'a>(&'a self, ready: &'a VecDeque<Entry>) -> impl Iterator<Item = &'a VecDeque<Entry>> {
        self.overtaking.iter().rev().chain(std::iter::once(ready))
    }

    /// Puts a message behind all that came before it.
    pub fn push(&mut self, ready: &mut VecDeque<Entry>, mut entry: Entry) {
        entry.order = self.next_order;
        self.next_order += 1;
        self.ready_bytes += entry.charge();
        let level = self.level(ready, &entry);
        level.push_back(entry);
    }

    /// Leaves so many numbers out: for messages that are not in memory.
    pub const fn skip_orders(&mut self, count: u64) {
        self.next_order += count;
    }

    /// Puts a message by the time at which it is due.
    pub fn push_by_time(&mut self, ready: &mut VecDeque<Entry>, mut entry: Entry) {
        entry.order = self.next_order;
        self.next_order += 1;
        self.ready_bytes += entry.charge();
        let at = ready.partition_point(|other| other.expires_at <= entry.expires_at);
        ready.insert(at, entry);
    }

    /// Puts a message back to its place.
    pub fn put_back(&mut self, ready: &mut VecDeque<Entry>, entry: Entry) {
        self.ready_bytes += entry.charge();
        let level = self.level(ready, &entry);
        let at = level.partition_point(|other| other.order < entry.order);
        #[cfg(feature = "mutations")]
        let at = if is_made(Mutation::RequeueBehind) { level.len() } else { at };
        level.insert(at, entry);
    }

    /// The message whose turn it is.
    pub fn pop(&mut self, ready: &mut VecDeque<Entry>) -> Option<Entry> {
        let entry = match self.overtaking.iter_mut().rev().find(|level| !level.is_empty()) {
            Some(level) => level.pop_front()?,
            None => ready.pop_front()?,
        };
        self.ready_bytes -= entry.charge();
        Some(entry)
    }

    /// The message that came last, of the lowest priority.
    pub fn pop_newest(&mut self, ready: &mut VecDeque<Entry>) -> Option<Entry> {
        let mut levels = std::iter::once(ready).chain(&mut self.overtaking);
        let entry = levels.find_map(VecDeque::pop_back)?;
        self.ready_bytes -= entry.charge();
        Some(entry)
    }

    /// The message whose turn it is, to look at.
    pub fn front<'a>(&'a self, ready: &'a VecDeque<Entry>) -> Option<&'a Entry> {
        self.levels(ready).find_map(VecDeque::front)
    }

    /// A message at the front of its priority that has expired by `now`.
    pub fn pop_expired(&mut self, ready: &mut VecDeque<Entry>, now: Mono) -> Option<Entry> {
        let expired =
            |level: &&mut VecDeque<Entry>| level.front().is_some_and(|entry| entry.expires_at <= now);
        let entry = self.overtaking.iter_mut().chain(std::iter::once(ready)).find(expired)?.pop_front()?;
        self.ready_bytes -= entry.charge();
        Some(entry)
    }

    /// When the next message at a front expires.
    pub fn next_expiry(&self, ready: &VecDeque<Entry>) -> Option<Mono> {
        let fronts = self.levels(ready).filter_map(VecDeque::front);
        fronts.map(|entry| entry.expires_at).filter(|at| *at != NEVER).min()
    }

    /// True when one more message of `bytes` beside `count` ready ones makes it too full by its own settings.
    pub fn would_overflow(&self, count: u64, bytes: u64) -> bool {
        self.settings().ready_max.is_some_and(|max| count + 1 > max)
            || self.settings().ready_bytes_max.is_some_and(|max| self.ready_bytes + bytes > max)
    }

    /// True when it is too full by its own settings.
    pub fn is_overflowing(&self, count: u64) -> bool {
        self.settings().ready_max.is_some_and(|max| count > max)
            || self.settings().ready_bytes_max.is_some_and(|max| self.ready_bytes > max)
    }

    /// Position of the consumer that gets the next message: of those that can take one the highest priority, and
    /// among equals whoever has waited longest.
    pub fn next_consumer(&mut self) -> Option<usize> {
        if self.settings().single_active {
            let first = self.consumers.first()?;
            return Self::takes(first).then_some(0);
        }
        let count = self.consumers.len();
        let mut best: Option<(i32, usize)> = None;
        for step in 0..count {
            let at = (self.turn + step) % count;
            let Some(consumer) = self.consumers.get(at) else { continue };
            let priority = consumer.subscriber.priority;
            if best.is_none_or(|(highest, _)| priority > highest) && Self::takes(consumer) {
                best = Some((priority, at));
            }
        }
        let (_, at) = best?;
        self.turn = (at + 1) % count;
        Some(at)
    }

    fn takes(consumer: &Consumer) -> bool {
        if !consumer.has_credit() {
            return false;
        }
        let outlet = &consumer.subscriber.pool.outlet;
        if outlet.room.get() <= 0 {
            outlet.starved.set(true);
            return false;
        }
        true
    }

    /// Adds a consumer; the one that is active stays so.
    pub fn add_consumer(&mut self, subscriber: Subscriber) {
        self.had_consumer = true;
        self.consumers.push(Consumer { subscriber, unsettled: 0 });
    }

    /// Takes a consumer out.
    pub fn remove_consumer(&mut self, connection: ConnectionId, handle: u64) -> Option<Consumer> {
        let at = self.consumers.iter().position(|consumer| consumer.is(connection, handle))?;
        if at < self.turn {
            self.turn -= 1;
        }
        Some(self.consumers.remove(at))
    }

    /// Takes a delivery out of flight; its consumer has credit for another.
    pub fn take_unsettled(&mut self, number: u64) -> Option<Unsettled> {
        let at = self.unsettled.binary_search_by_key(&number, |unsettled| unsettled.number).ok()?;
        let unsettled = self.unsettled.remove(at)?;
        if let Some((connection, handle)) = unsettled.consumer
            && let Some(consumer) = self.consumers.iter_mut().find(|consumer| consumer.is(connection, handle))
        {
            consumer.unsettled = consumer.unsettled.saturating_sub(1);
        }
        Some(unsettled)
    }

    fn level<'a>(&'a mut self, ready: &'a mut VecDeque<Entry>, entry: &Entry) -> &'a mut VecDeque<Entry> {
        let priority = usize::from(entry.held.message.priority).min(self.overtaking.len());
        match priority.checked_sub(1).and_then(|at| self.overtaking.get_mut(at)) {
            Some(level) => level,
            None => ready,
        }
    }
}
