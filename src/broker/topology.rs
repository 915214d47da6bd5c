//! Declaring and deleting: named queues, exchanges and the bindings between them, and what their replies wait for.
//!
//! What is durable has a record; what is not lives in memory. The caller has looked up what exists and compared it
//! with what is asked: here it is created or ended.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use super::allowance::{binding_bytes, exchange_bytes, queue_bytes};
use super::exchange::{
    Binding, BindingArguments, ExchangeIndex, ExchangeKind, ExchangeOptions, Exchanges, MessageReader,
    Target, name_hash,
};
use super::ledger::Urgency;
use super::named::{Named, QueueOptions, ReadyOverflow};
use super::queue::{Overflow, Queue, QueueBounds, QueueIndex, QueueKind};
use super::rows::RecordKey;
use super::topology_rows::{BindingRecord, RecordedTarget};
use super::trace::TraceStep;
use super::{Broker, Event, Gate};
use crate::ids::{BatchNumber, ConnectionId};
use crate::limits;
use crate::time::Now;

const EXCHANGES_MAX: usize = 10_000;

/// Why something is not created or ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopologyRefused {
    /// There are as many as the operator allows.
    TooMany,
    /// Its arguments are larger than [`limits::ARGUMENTS_BYTES_MAX`].
    TooLarge,
    /// What clients have declared, with their subscriptions and wills, takes as much as it may.
    Crowded,
    /// Somebody uses it.
    InUse,
    /// It holds messages.
    NotEmpty,
    /// It does not exist.
    Missing,
}

impl fmt::Display for TopologyRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "the limit is reached",
            Self::TooLarge => {
                return write!(f, "its arguments are larger than {} bytes", limits::ARGUMENTS_BYTES_MAX);
            }
            Self::Crowded => "there is no room for more names, keys and arguments",
            Self::InUse => "in use",
            Self::NotEmpty => "not empty",
            Self::Missing => "not found",
        })
    }
}

/// A named queue as others see it.
#[derive(Clone, Debug)]
pub struct QueueFacts<'a> {
    pub name: &'a str,
    pub options: &'a QueueOptions,
    pub owner: Option<ConnectionId>,
    pub ready: usize,
    pub consumers: usize,
}

impl Broker {
    /// How headers of messages are read. Set once, before anything is routed.
    pub fn read_messages_with(&mut self, reader: MessageReader) {
        self.exchanges.reader = reader;
    }

    /// The exchange of this name.
    #[must_use]
    pub fn exchange(&self, name: &str) -> Option<ExchangeIndex> {
        self.exchanges.find(name)
    }

    /// What an exchange was declared with.
    #[must_use]
    pub fn exchange_options(&self, index: ExchangeIndex) -> Option<&ExchangeOptions> {
        self.exchanges.get(index).map(|exchange| &exchange.options)
    }

    /// An exchange's name.
    #[must_use]
    pub fn exchange_name(&self, index: ExchangeIndex) -> Option<&Rc<str>> {
        self.exchanges.get(index).map(|exchange| &exchange.name)
    }

    /// True for an exchange that no client may delete.
    #[must_use]
    pub const fn is_predeclared(index: ExchangeIndex) -> bool {
        Exchanges::is_predeclared(index)
    }

    /// The named queue of this name.
    #[must_use]
    pub fn named_queue(&self, name: &str) -> Option<QueueIndex> {
        self.named.get(name).copied()
    }

    /// A named queue, to look at.
    #[must_use]
    pub fn queue_facts(&self, index: QueueIndex) -> Option<QueueFacts<'_>> {
        let queue = self.queue(index)?;
        let named = queue.named()?;
        Some(QueueFacts {
            name: &queue.name,
            options: &named.options,
            owner: named.owner,
            ready: queue.ready_len(),
            consumers: named.consumers.len(),
        })
    }

    /// What the reply to a declaration of something that exists waits for: it may be on its way to flash.
    #[must_use]
    pub fn queue_gate(&self, index: QueueIndex) -> Gate {
        match self.queue(index) {
            Some(queue) if queue.durable => Gate::Batch(queue.record_batch),
            _ => Gate::Open,
        }
    }

    /// The same for an exchange.
    #[must_use]
    pub fn exchange_gate(&self, index: ExchangeIndex) -> Gate {
        self.exchanges.get(index).map_or(Gate::Open, |exchange| Gate::Batch(exchange.record_batch))
    }

    /// Creates an exchange under a name that is free.
    ///
    /// # Errors
    /// When there are too many, or there is no room for its name and arguments.
    pub fn create_exchange(
        &mut self,
        now: Now,
        name: &str,
        options: ExchangeOptions,
    ) -> Result<Gate, TopologyRefused> {
        if self.exchanges.len() >= EXCHANGES_MAX {
            return Err(TopologyRefused::TooMany);
        }
        self.room_to_declare(&options.arguments, exchange_bytes(name, &options))?;
        let number = self.ledger.queue_id().0;
        let (durable, delayed) = (options.durable, options.delayed);
        let index = self.insert_exchange(name, number, options);
        if delayed {
            self.create_delay_queue(now, index, durable);
        }
        if !durable {
            return Ok(Gate::Open);
        }
        let batch = self.ledger.touch(now.mono, RecordKey::Exchange(number), Urgency::Now);
        if let Some(exchange) = self.exchanges.get_mut(index) {
            exchange.record_batch = batch;
        }
        Ok(Gate::Batch(batch))
    }

    /// Adds an exchange to those that are there.
    pub(super) fn insert_exchange(
        &mut self,
        name: &str,
        number: u64,
        options: ExchangeOptions,
    ) -> ExchangeIndex {
        self.keeps(exchange_bytes(name, &options));
        self.exchanges.insert(name, number, options)
    }

    /// Deletes an exchange with all bindings from it and to it.
    ///
    /// # Errors
    /// When it is bound and `if_unused`.
    pub fn delete_exchange(
        &mut self,
        now: Now,
        index: ExchangeIndex,
        if_unused: bool,
    ) -> Result<Gate, TopologyRefused> {
        let Some(exchange) = self.exchanges.get(index) else { return Ok(Gate::Open) };
        if if_unused && !exchange.is_unbound() {
            return Err(TopologyRefused::InUse);
        }
        Ok(self.end_exchange(now, index))
    }

    /// Ends an exchange, and those that go with their last binding because of it.
    fn end_exchange(&mut self, now: Now, index: ExchangeIndex) -> Gate {
        let mut gate = Gate::Open;
        let mut ending = vec![index];
        while let Some(index) = ending.pop() {
            let Some(exchange) = self.exchanges.remove(index) else { continue };
            for binding in exchange.bindings.values().flatten().filter(|binding| binding.number != 0) {
                self.recorded_bindings.remove(&binding.number);
                self.ledger.touch(now.mono, RecordKey::Binding(binding.number), Urgency::Now);
            }
            if exchange.options.durable {
                let record = RecordKey::Exchange(exchange.number);
                gate = Gate::Batch(self.ledger.touch(now.mono, record, Urgency::Now));
            }
            self.drops(exchange_bytes(&exchange.name, &exchange.options));
            for ((_, key), alike) in &exchange.bindings {
                alike.iter().for_each(|binding| self.uncount_binding(key, binding));
            }
            if let Some(delay_queue) = exchange.delay_queue {
                self.end_queue(now, delay_queue);
            }
            ending.extend(self.unbind_target(now, Target::Exchange(index)));
        }
        gate
    }

    /// Binds; the same binding again changes nothing. Source and target exist.
    ///
    /// # Errors
    /// When there are too many bindings, or there is no room for its key and arguments.
    pub fn bind(
        &mut self,
        now: Now,
        source: ExchangeIndex,
        target: Target,
        key: &str,
        arguments: BindingArguments,
    ) -> Result<Gate, TopologyRefused> {
        if let Some(same) = self.exchanges.binding(source, target, key, &arguments.encoded) {
            return Ok(Gate::Batch(same.record_batch));
        }
        self.room_to_bind(source, key, &arguments)?;
        let durable = self.exchanges.get(source).is_some_and(|exchange| exchange.options.durable)
            && self.is_durable(target);
        let number = if durable { self.ledger.queue_id().0 } else { 0 };
        let record_batch = if durable { self.ledger.open_batch() } else { BatchNumber(0) };
        let bytes = binding_bytes(key, &arguments);
        let binding = Binding { number, record_batch, arguments, target_hash: self.target_hash(target) };
        if self.exchanges.bind(&mut self.index, source, target, key, binding).is_none() {
            return Ok(Gate::Open);
        }
        self.bindings += 1;
        self.keeps(bytes);
        if !durable {
            return Ok(Gate::Open);
        }
        self.recorded_bindings.insert(number, (source, target, key.into()));
        Ok(Gate::Batch(self.ledger.touch(now.mono, RecordKey::Binding(number), Urgency::Now)))
    }

    /// Ends a binding; one that is not there is no error.
    pub fn unbind(
        &mut self,
        now: Now,
        source: ExchangeIndex,
        target: Target,
        key: &str,
        encoded: &[u8],
    ) -> Gate {
        let Some(binding) = self.exchanges.unbind(&mut self.index, source, target, key, encoded) else {
            return Gate::Open;
        };
        self.uncount_binding(key, &binding);
        let mut gate = Gate::Open;
        if binding.number != 0 {
            self.recorded_bindings.remove(&binding.number);
            gate = Gate::Batch(self.ledger.touch(now.mono, RecordKey::Binding(binding.number), Urgency::Now));
        }
        if self.ends_unbound(source) {
            self.end_exchange(now, source);
        }
        gate
    }

    fn uncount_binding(&mut self, key: &str, binding: &Binding) {
        self.bindings -= 1;
        self.drops(binding_bytes(key, &binding.arguments));
    }

    /// Creates a named queue under a name that is free; an exclusive one belongs to `connection`.
    ///
    /// # Errors
    /// When there are too many, or there is no room for its name and arguments.
    pub fn create_queue(
        &mut self,
        now: Now,
        name: &str,
        options: QueueOptions,
        connection: ConnectionId,
    ) -> Result<(QueueIndex, Gate), TopologyRefused> {
        if self.named.len() >= self.policy.queues_max {
            return Err(TopologyRefused::TooMany);
        }
        self.room_to_declare(&options.arguments, queue_bytes(name, &options))?;
        let durable = options.durable && !options.exclusive;
        let mut named = Named::new(options, now.mono);
        named.owner = named.options.exclusive.then_some(connection);
        let index = self.insert_named(name, named, durable);
        self.arm(now.mono, index);
        if !durable {
            return Ok((index, Gate::Open));
        }
        let Some(queue) = self.queue_mut(index) else { return Ok((index, Gate::Open)) };
        let record = RecordKey::Queue(queue.id);
        let batch = self.ledger.touch(now.mono, record, Urgency::Now);
        if let Some(queue) = self.queue_mut(index) {
            queue.record_batch = batch;
        }
        Ok((index, Gate::Batch(batch)))
    }

    /// The bounds of a named queue: its own choice of overflow comes first.
    pub(super) fn bounds_of_named(&self, name: &str, named: Option<&Named>) -> QueueBounds {
        let mut bounds = self.named_bounds_of(name);
        if let Some(overflow) = named.and_then(|named| named.settings().overflow) {
            bounds.overflow = match overflow {
                ReadyOverflow::DropOldest => Overflow::DropOldest,
                ReadyOverflow::Reject | ReadyOverflow::RejectDeadLetter => Overflow::Reject,
            };
        }
        bounds
    }

    fn insert_named(&mut self, name: &str, named: Named, durable: bool) -> QueueIndex {
        let id = self.ledger.queue_id();
        let hidden = named.delays.is_some();
        if !hidden {
            // The other kind is charged with its exchange.
            self.keeps(queue_bytes(name, &named.options));
        }
        let bounds = self.bounds_of_named(name, Some(&named));
        let mut queue = Queue::new(id, name.into(), durable, bounds);
        queue.kind = QueueKind::Named;
        queue.named = Some(Box::new(named));
        queue.record_batch = self.ledger.open_batch();
        let index = self.insert(queue);
        if !hidden {
            let key = crate::message::swap_separators(name);
            let arguments = BindingArguments::default();
            let binding = Binding { number: 0, record_batch: BatchNumber(0), arguments, target_hash: 0 };
            let target = Target::Queue(index);
            self.exchanges.bind(&mut self.index, ExchangeIndex::DEFAULT, target, &key, binding);
        }
        index
    }

    /// Puts a queue back that was found at start. `None` when another one has its name.
    pub(super) fn recover_queue(
        &mut self,
        now: Now,
        id: crate::ids::QueueId,
        name: &str,
        mut named: Named,
    ) -> Option<QueueIndex> {
        // The queue of an exchange that delays is not to be found by its name, so it needs none of its own.
        if named.delays.is_none() && self.named.contains_key(name) {
            return None;
        }
        named.used_at = now.mono;
        let delays = named.delays;
        let index = self.insert_named(name, named, true);
        let queue = self.queue_mut(index)?;
        let fresh = std::mem::replace(&mut queue.id, id);
        queue.record_batch = BatchNumber(0);
        self.durable.remove(&fresh);
        self.durable.insert(id, index);
        if let Some(exchange) = delays.and_then(|exchange| self.exchanges.get_mut(exchange)) {
            exchange.delay_queue = Some(index);
        }
        Some(index)
    }

    /// A durable exchange that delays keeps what it holds back in a queue of its own.
    fn create_delay_queue(&mut self, now: Now, exchange: ExchangeIndex, durable: bool) {
        let Some(name) = self.exchanges.get(exchange).map(|exchange| format!("{} (delayed)", exchange.name))
        else {
            return;
        };
        let options = QueueOptions { durable, ..QueueOptions::default() };
        let mut named = Named::new(options, now.mono);
        named.delays = Some(exchange);
        let index = self.insert_named(&name, named, durable);
        if let Some(exchange) = self.exchanges.get_mut(exchange) {
            exchange.delay_queue = Some(index);
        }
        if durable && let Some(queue) = self.queue(index) {
            let record = RecordKey::Queue(queue.id);
            self.ledger.touch(now.mono, record, Urgency::Now);
        }
    }

    /// Deletes a named queue; answers how many messages went with it.
    ///
    /// # Errors
    /// When it has consumers and `if_unused`, or messages and `if_empty`.
    pub fn delete_queue(
        &mut self,
        now: Now,
        index: QueueIndex,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<(usize, Gate), TopologyRefused> {
        let facts = self.queue_facts(index).ok_or(TopologyRefused::Missing)?;
        if if_unused && facts.consumers > 0 {
            return Err(TopologyRefused::InUse);
        }
        if if_empty && facts.ready > 0 {
            return Err(TopologyRefused::NotEmpty);
        }
        let ready = facts.ready;
        Ok((ready, self.end_queue(now, index)))
    }

    /// Ends a named queue: its consumers are told, its bindings and messages go with it.
    pub(super) fn end_queue(&mut self, now: Now, index: QueueIndex) -> Gate {
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::take) else {
            return Gate::Open;
        };
        let Some(named) = &queue.named else {
            // Not a named one: it stays.
            if let Some(place) = self.queues.get_mut(index.0 as usize) {
                *place = Some(queue);
            }
            return Gate::Open;
        };
        for consumer in &named.consumers {
            self.events.push_back(Event::ConsumerEnded {
                connection: consumer.subscriber.connection,
                consumer: consumer.subscriber.handle,
            });
        }
        if named.delays.is_none() {
            self.named.remove(&queue.name);
            self.drops(queue_bytes(&queue.name, &named.options));
        }
        for exchange in self.unbind_target(now, Target::Queue(index)) {
            self.end_exchange(now, exchange);
        }
        self.free.push(index.0);
        let cold = queue.cold.as_ref().map_or(0, |cold| cold.messages());
        self.counters.discarded += queue.entries().count() as u64 + u64::from(cold);
        if !queue.durable {
            return Gate::Open;
        }
        self.durable.remove(&queue.id);
        self.ledger.forget_queue(index, queue.id);
        for entry in queue.entries().filter(|entry| entry.is_durable(true)) {
            self.ledger.forget(&entry.held);
        }
        if queue.cold.is_some() {
            self.forget_cold(now.mono, &queue);
        }
        Gate::Batch(self.ledger.touch(now.mono, RecordKey::Queue(queue.id), Urgency::Now))
    }

    /// Drops the messages that are ready; answers how many.
    pub fn purge_queue(&mut self, now: Now, index: QueueIndex) -> (usize, Gate) {
        let mut count = 0;
        let mut gate = Gate::Open;
        while let Some(queue) = self.queue_mut(index)
            && let Some(entry) = queue.pop_oldest_in_memory()
        {
            count += 1;
            self.counters.discarded += 1;
            self.trace(now, TraceStep::Dropped, index, &entry.held, "purged");
            let durable = self.queue(index).is_some_and(|queue| entry.is_durable(queue.durable));
            #[cfg(feature = "mutations")]
            let durable = durable && !super::mutation::is_made(super::mutation::Mutation::ForgetPurge);
            if durable {
                self.ledger.dropped(&entry.held);
                self.settle_durable(now.mono, index, &entry.held);
                gate = Gate::Batch(self.ledger.open_batch());
            }
        }
        let cold = self.purge_cold(now, index);
        if cold > 0 {
            count += usize::try_from(cold).unwrap_or(usize::MAX);
            self.counters.discarded += cold;
            gate = Gate::Batch(self.ledger.open_batch());
        }
        if gate.batch().is_some() {
            self.ledger.want(now.mono, Urgency::Now);
        }
        (count, gate)
    }

    /// The connection is over: its own queues end with it.
    pub fn end_connection(&mut self, now: Now, connection: ConnectionId) {
        let owned = |queue: &Queue| queue.named().is_some_and(|named| named.owner == Some(connection));
        let own: Vec<_> =
            self.named.values().copied().filter(|index| self.queue(*index).is_some_and(owned)).collect();
        for index in own {
            self.end_queue(now, index);
        }
    }

    /// Everything that was changed is in the batch that this gate waits for.
    pub fn commit(&mut self, now: Now) -> Gate {
        if !self.ledger.has_work() {
            // Nothing of it needs flash: what it sends back to a queue is still there, for one.
            return Gate::Open;
        }
        self.ledger.want(now.mono, Urgency::Now);
        Gate::Batch(self.ledger.open_batch())
    }

    /// What is recorded about a binding.
    pub(super) fn binding_record(
        queues: &[Option<Queue>],
        exchanges: &Exchanges,
        place: &(ExchangeIndex, Target, Box<str>),
        number: u64,
    ) -> Option<BindingRecord> {
        let (source, target, key) = place;
        let exchange = exchanges.get(*source)?;
        let alike = exchange.bindings.get(&(*target, key.clone()))?;
        let binding = alike.iter().find(|binding| binding.number == number)?;
        let target = match target {
            Target::Queue(index) => RecordedTarget::Queue(queues.get(index.0 as usize)?.as_ref()?.id.0),
            Target::Exchange(index) => RecordedTarget::Exchange(exchanges.get(*index)?.number),
        };
        Some(BindingRecord {
            source: exchange.number,
            target,
            key: key.clone(),
            arguments: binding.arguments.clone(),
        })
    }

    /// Puts a binding back that was found at start. `None` when one of its ends is gone.
    pub(super) fn recover_binding(&mut self, number: u64, record: BindingRecord) -> Option<()> {
        let source = self.exchanges.by_number(record.source)?;
        let target = match record.target {
            RecordedTarget::Queue(id) => Target::Queue(*self.durable.get(&crate::ids::QueueId(id))?),
            RecordedTarget::Exchange(number) => Target::Exchange(self.exchanges.by_number(number)?),
        };
        let bytes = binding_bytes(&record.key, &record.arguments);
        let (arguments, target_hash) = (record.arguments, self.target_hash(target));
        let binding = Binding { number, record_batch: BatchNumber(0), arguments, target_hash };
        self.exchanges.bind(&mut self.index, source, target, &record.key, binding)?;
        self.bindings += 1;
        self.keeps(bytes);
        self.recorded_bindings.insert(number, (source, target, record.key));
        Some(())
    }

    fn target_hash(&self, target: Target) -> u64 {
        match target {
            Target::Queue(index) => self.queue(index).map_or(0, |queue| name_hash(&queue.name)),
            Target::Exchange(index) => {
                self.exchanges.get(index).map_or(0, |exchange| name_hash(&exchange.name))
            }
        }
    }

    fn is_durable(&self, target: Target) -> bool {
        match target {
            Target::Queue(index) => self.queue(index).is_some_and(|queue| queue.durable),
            Target::Exchange(index) => {
                self.exchanges.get(index).is_some_and(|exchange| exchange.options.durable)
            }
        }
    }

    /// Takes out what leads to `target`; answers the exchanges that go with their last binding now.
    fn unbind_target(&mut self, now: Now, target: Target) -> Vec<ExchangeIndex> {
        let mut ending = Vec::new();
        for (source, bindings) in self.exchanges.unbind_all(&mut self.index, target) {
            // The implicit bindings of the default exchange are not counted.
            for (key, binding) in bindings.iter().filter(|_| source != ExchangeIndex::DEFAULT) {
                self.uncount_binding(key, binding);
                if binding.number != 0 {
                    self.recorded_bindings.remove(&binding.number);
                    let soon = Urgency::Lazy(Duration::from_secs(1));
                    self.ledger.touch(now.mono, RecordKey::Binding(binding.number), soon);
                }
            }
            if self.ends_unbound(source) {
                ending.push(source);
            }
        }
        ending
    }

    /// True for an exchange that was to go with its last binding, and has none.
    fn ends_unbound(&self, index: ExchangeIndex) -> bool {
        let ends =
            |exchange: &super::exchange::Exchange| exchange.options.auto_delete && exchange.is_unbound();
        !Self::is_predeclared(index) && self.exchanges.get(index).is_some_and(ends)
    }

    /// True when the exchange routes by patterns, so that rules about topics apply to its keys.
    #[must_use]
    pub fn is_topic_exchange(&self, index: ExchangeIndex) -> bool {
        self.exchange_options(index).is_some_and(|options| options.kind == ExchangeKind::Topic)
    }
}
