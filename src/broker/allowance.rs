//! What clients may keep here without sending messages: subscriptions, wills, identifiers of exactly-once publishes that
//! they do not release, and what they declare. It is state: in memory, and on flash as far as it is durable, where a
//! quarter of the quota is for it. And how much the queues that reject may hold.
//!
//! Owns the account and the decision; what a refused client is answered is the protocol's.

use std::collections::VecDeque;

use super::exchange::{BindingArguments, ExchangeIndex, ExchangeOptions, HashOn};
use super::named::QueueOptions;
use super::queue::{Entry, Queue, QueueIndex};
use super::{Broker, Overflow, TopologyRefused};
use crate::limits;
use crate::message::{Message, Value};
use crate::store::stored_bytes;

/// Memory of one node of the topic index, roughly.
const NODE_BYTES: u64 = 256;
/// What the identifier of an exactly-once publish takes in memory, roughly; on flash it is less.
const IDENTIFIER_BYTES: usize = 16;
/// Memory of one binding: 45 000 of a direct exchange with keys of 16 bytes took 371 each.
const BINDING_BYTES: u64 = 384;
/// Bytes of a record beside its names, keys and arguments, roughly.
const RECORD_BYTES: usize = 64;
/// The part of the quota and of memory that all this may take.
const SHARE: u64 = 4;
/// Bindings of all exchanges: a peer must not fill memory with them.
const BINDINGS_MAX: usize = 200_000;

/// What the subscriptions of a session take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Kept {
    /// Bytes of the filters.
    bytes: usize,
    /// Levels of the filters: each may be a node of the topic index.
    levels: usize,
}

impl Kept {
    fn of(filter: &str) -> Self {
        Self { bytes: filter.len(), levels: filter.split('/').count() }
    }
}

/// What an exchange is charged: its row, and that of the queue that holds back what it delays.
pub(super) fn exchange_bytes(name: &str, options: &ExchangeOptions) -> usize {
    let hash_on = match &options.hash_on {
        HashOn::Address => 0,
        HashOn::Header(name) | HashOn::Property(name) => name.len(),
    };
    let alternate = options.alternate.as_ref().map_or(0, |alternate| alternate.len());
    let delayed = if options.delayed { row_bytes(name.len()) } else { 0 };
    row_bytes(name.len() + options.arguments.len() + alternate + hash_on) + delayed
}

/// What a named queue is charged: its row, and its lists of messages of each priority.
pub(super) fn queue_bytes(name: &str, options: &QueueOptions) -> usize {
    let to = options.settings.dead_letter.as_ref();
    let to = to.map_or(0, |to| to.exchange.len() + to.address.as_ref().map_or(0, |address| address.len()));
    let lists = usize::from(options.settings.priority_max) * size_of::<VecDeque<Entry>>();
    row_bytes(name.len() + options.arguments.len() + to) + lists
}

/// What a binding is charged: its row, and what it asks of headers as it is in memory.
pub(super) fn binding_bytes(key: &str, arguments: &BindingArguments) -> usize {
    let headers = &arguments.headers.entries;
    let encoded = arguments.encoded.len() * if headers.is_empty() { 1 } else { 2 };
    row_bytes(key.len() + encoded) + headers.len() * size_of::<(Box<str>, Value)>()
}

/// What a row with so many bytes that a client chose takes.
fn row_bytes(chosen: usize) -> usize {
    usize::try_from(stored_bytes(RECORD_BYTES + chosen)).unwrap_or(usize::MAX)
}

impl Broker {
    /// True when the session may have a subscription with this filter: it has it, or there is room for one more.
    #[must_use]
    pub fn may_subscribe(&self, index: QueueIndex, filter: &str) -> bool {
        let Some(queue) = self.queue(index) else { return false };
        if queue.subscriptions.contains_key(filter) {
            return true;
        }
        let more = Kept::of(filter);
        let nodes = (self.index.nodes() + more.levels) as u64;
        queue.subscriptions.len() < limits::SUBSCRIPTIONS_PER_SESSION_MAX
            && queue.kept.bytes + more.bytes <= limits::FILTER_BYTES_PER_SESSION_MAX
            && queue.kept.levels + more.levels <= limits::FILTER_LEVELS_PER_SESSION_MAX
            && nodes.saturating_mul(NODE_BYTES) <= self.policy.memory_max / SHARE
            && self.has_room_for(more.bytes)
    }

    /// True when there is room for one more will.
    #[must_use]
    pub fn may_register_will(&self, will: &Message) -> bool {
        self.has_room_for(will.charge())
    }

    /// Whether there is room for something that is charged `bytes` and was declared with these arguments.
    pub(super) fn room_to_declare(&self, arguments: &[u8], bytes: usize) -> Result<(), TopologyRefused> {
        if arguments.len() > limits::ARGUMENTS_BYTES_MAX {
            return Err(TopologyRefused::TooLarge);
        }
        if self.has_room_for(bytes) { Ok(()) } else { Err(TopologyRefused::Crowded) }
    }

    /// Whether there is room for one more binding.
    pub(super) fn room_to_bind(
        &self,
        source: ExchangeIndex,
        key: &str,
        arguments: &BindingArguments,
    ) -> Result<(), TopologyRefused> {
        let memory_max = self.policy.memory_max / SHARE;
        if self.bindings >= BINDINGS_MAX || (self.bindings as u64 + 1) * BINDING_BYTES > memory_max {
            return Err(TopologyRefused::TooMany);
        }
        if self.is_topic_exchange(source) {
            let nodes = self.index.nodes() + self.exchanges.topic_nodes() + key.split('/').count();
            if (nodes as u64).saturating_mul(NODE_BYTES) > memory_max {
                return Err(TopologyRefused::Crowded);
            }
        }
        self.room_to_declare(&arguments.encoded, binding_bytes(key, arguments))
    }

    /// True when the queue rejects and has no room for `charge` more: queues that reject lose nothing to make room for
    /// others, so together they may hold half.
    pub(super) fn rejecting_are_crowded(&self, index: QueueIndex, charge: u64) -> bool {
        let rejects = |queue: &&Queue| queue.bounds.overflow == Overflow::Reject;
        let Some(queue) = self.queue(index).filter(rejects) else { return false };
        let flash_half = if queue.durable { self.policy.flash_quota_bytes / 2 } else { u64::MAX };
        let memory_half = self.policy.memory_max / 2;
        // Counted only when so much is there at all.
        if self.memory.get() + charge <= flash_half.min(memory_half) {
            return false;
        }
        let (mut bytes, mut memory) = (charge, charge);
        for queue in self.queues.iter().flatten().filter(rejects) {
            bytes += queue.in_memory().1;
            memory += queue.memory_bytes();
        }
        bytes > flash_half || memory > memory_half
    }

    /// A session has one more subscription.
    pub(super) fn keeps_filter(&mut self, index: QueueIndex, filter: &str) {
        let more = Kept::of(filter);
        if let Some(queue) = self.queue_mut(index) {
            queue.kept.bytes += more.bytes;
            queue.kept.levels += more.levels;
        }
        self.kept_bytes += more.bytes;
    }

    /// A session has one subscription less.
    pub(super) fn drops_filter(&mut self, index: QueueIndex, filter: &str) {
        let less = Kept::of(filter);
        if let Some(queue) = self.queue_mut(index) {
            queue.kept.bytes = queue.kept.bytes.saturating_sub(less.bytes);
            queue.kept.levels = queue.kept.levels.saturating_sub(less.levels);
        }
        self.kept_bytes = self.kept_bytes.saturating_sub(less.bytes);
    }

    /// A session is gone with its subscriptions.
    pub(super) fn drops_filters(&mut self, queue: &Queue) {
        let window = window_bytes(queue.publisher_window.len());
        self.kept_bytes = self.kept_bytes.saturating_sub(queue.kept.bytes + window);
    }

    /// False when the session holds so many exactly-once publishes that there is no room for `identifier` as one more.
    #[must_use]
    pub fn may_publish_once(&self, session: QueueIndex, identifier: u16) -> bool {
        self.queue(session).is_none_or(|queue| {
            queue.publisher_window.len() < limits::PUBLISHER_WINDOW_SURE
                || queue.publisher_window.contains(&identifier)
                || self.has_room_for(IDENTIFIER_BYTES)
        })
    }

    /// A session has one more identifier in its publisher window, `held` with it.
    pub(super) fn keeps_identifier(&mut self, held: usize) {
        self.kept_bytes += window_bytes(held) - window_bytes(held.saturating_sub(1));
    }

    /// A session has one identifier less in its publisher window than the `held` before.
    pub(super) fn drops_identifier(&mut self, held: usize) {
        let less = window_bytes(held) - window_bytes(held.saturating_sub(1));
        self.kept_bytes = self.kept_bytes.saturating_sub(less);
    }

    /// A session was found with its publisher window.
    pub(super) fn keeps_window(&mut self, index: QueueIndex) {
        let held = self.queue(index).map_or(0, |queue| queue.publisher_window.len());
        self.kept_bytes += window_bytes(held);
    }

    pub(super) fn keeps_will(&mut self, will: &Message) {
        self.kept_bytes += will.charge();
    }

    pub(super) fn drops_will(&mut self, will: &Message) {
        self.kept_bytes = self.kept_bytes.saturating_sub(will.charge());
    }

    /// Something that was declared is there now.
    pub(super) const fn keeps(&mut self, bytes: usize) {
        self.kept_bytes += bytes;
    }

    /// Something that was declared is gone.
    pub(super) const fn drops(&mut self, bytes: usize) {
        self.kept_bytes = self.kept_bytes.saturating_sub(bytes);
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        let kept_max = self.policy.flash_quota_bytes.min(self.policy.memory_max) / SHARE;
        (self.kept_bytes + bytes) as u64 <= kept_max
    }
}

/// What the identifiers in a publisher window are charged: the first of them nothing.
const fn window_bytes(held: usize) -> usize {
    held.saturating_sub(limits::PUBLISHER_WINDOW_SURE) * IDENTIFIER_BYTES
}
