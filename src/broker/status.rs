//! What the broker shows of itself: figures for `status`, metrics and `$SYS`.

use super::held::Held;
use super::loss::{LossReason, LossReceipt};
use super::named::Named;
use super::queue::{Overflow, Queue, QueueIndex, QueueKind};
use super::{Broker, Counters};
use crate::ids::BatchNumber;
use crate::time::Wall;

/// Figures of the whole broker.
#[derive(Clone, Debug)]
pub struct BrokerStatus {
    pub counters: Counters,
    pub sessions: usize,
    pub named_queues: usize,
    pub exchanges: usize,
    pub sessions_connected: usize,
    pub subscriptions: usize,
    pub retained: usize,
    pub retained_bytes: u64,
    /// Copies waiting or in flight in all queues, at-most-once ones excluded: nobody settles those.
    pub queued: u64,
    pub memory_bytes: u64,
    pub persisted: BatchNumber,
    pub commits: u64,
    /// Messages that every durable taker acknowledged before they reached flash.
    pub elided: u64,
    pub flash_bytes_written: u64,
    pub flash_bytes_live: u64,
    pub flash_quota_bytes: u64,
    pub flash_overspent: bool,
    /// By reason and kind of queue; a file's damage is no queue's.
    pub lost: Vec<(LossReason, Option<QueueKind>, u64)>,
}

/// Figures of one queue.
#[derive(Clone, Debug)]
pub struct QueueStatus {
    pub name: Box<str>,
    pub kind: QueueKind,
    pub durable: bool,
    /// Somebody takes from it.
    pub connected: bool,
    pub consumers: usize,
    pub subscriptions: usize,
    pub ready: usize,
    pub in_flight: usize,
    pub messages: u32,
    pub bytes: u64,
    pub messages_max: u32,
    pub bytes_max: u64,
    pub overflow: Overflow,
    /// When the gateway received the oldest message that waits.
    pub oldest_received_at: Option<Wall>,
    pub dropped: u64,
}

impl Broker {
    /// Figures of the whole broker.
    #[must_use]
    pub fn status(&self) -> BrokerStatus {
        let queues = || self.queues.iter().flatten();
        BrokerStatus {
            counters: self.counters,
            sessions: self.sessions.len(),
            named_queues: self.named.len(),
            exchanges: self.exchanges.len(),
            sessions_connected: queues().filter(|queue| queue.owner.is_some()).count(),
            subscriptions: queues()
                // A collection's stand for the filters of its routes.
                .filter(|queue| queue.kind == QueueKind::Session)
                .map(|queue| queue.subscriptions.len())
                .sum(),
            retained: self.retained.len(),
            retained_bytes: self.retained.bytes(),
            queued: queues().map(Queue::owed_copies).sum(),
            memory_bytes: self.memory.get(),
            persisted: self.ledger.persisted(),
            commits: self.ledger.commits,
            elided: self.ledger.elided,
            flash_bytes_written: self.ledger.budget().written,
            flash_bytes_live: self.ledger.live_bytes(),
            flash_quota_bytes: self.policy.flash_quota_bytes,
            flash_overspent: self.ledger.budget().is_overspent(),
            lost: self.losses.totals.iter().map(|((reason, kind), count)| (*reason, *kind, *count)).collect(),
        }
    }

    /// Figures of each queue.
    pub fn queue_status(&self) -> impl Iterator<Item = QueueStatus> {
        self.queues.iter().flatten().map(status_of)
    }

    /// Figures of one queue.
    #[must_use]
    pub fn status_of_queue(&self, index: QueueIndex) -> Option<QueueStatus> {
        self.queue(index).map(status_of)
    }

    /// The queue or session of this name; of both, the queue unless `kind` says otherwise.
    #[must_use]
    pub fn find_queue(&self, name: &str, kind: Option<QueueKind>) -> Option<QueueIndex> {
        let named = self.named.get(name).filter(|_| kind.is_none_or(|kind| kind == QueueKind::Named));
        let session = self.sessions.get(name).filter(|_| kind.is_none_or(|kind| kind == QueueKind::Session));
        named.or(session).copied()
    }

    /// The messages of a queue, those in flight first, then in the order in which they leave; with what says whether
    /// each is in flight and may have been sent before.
    pub fn peek(&self, index: QueueIndex) -> impl Iterator<Item = (&Held, bool, bool)> {
        let queue = self.queue(index);
        let in_flight = queue.map_or(0, |queue| queue.in_flight.len());
        let entries = queue.into_iter().flat_map(Queue::entries).enumerate();
        entries.map(move |(at, entry)| (&**entry.held, at < in_flight, entry.redelivered))
    }

    /// What was lost, queue by queue.
    pub fn loss_receipts(&self) -> impl Iterator<Item = &LossReceipt> {
        self.losses.receipts()
    }

    /// True once after receipts changed.
    pub const fn take_untold_losses(&mut self) -> bool {
        std::mem::replace(&mut self.losses.untold, false)
    }
}

/// A queue with priorities is asked for the front of its highest one.
fn oldest(queue: &Queue) -> Option<Wall> {
    let front = match queue.named() {
        Some(named) => Named::front(named, &queue.ready),
        None => queue.ready.front(),
    };
    let oldest = queue.in_flight.front().map(|flight| &flight.entry).or(front);
    oldest.map(|entry| entry.held.message.received_at)
}

fn status_of(queue: &Queue) -> QueueStatus {
    QueueStatus {
        name: queue.name.clone(),
        kind: queue.kind,
        durable: queue.durable,
        connected: queue.owner.is_some() || queue.named().is_some_and(|named| !named.consumers.is_empty()),
        consumers: queue
            .named()
            .map_or_else(|| usize::from(queue.consumer.is_some()), |named| named.consumers.len()),
        subscriptions: queue.subscriptions.len(),
        ready: queue.ready_len() + queue.replay.len(),
        in_flight: queue.in_flight.len() + queue.named().map_or(0, |named| named.unsettled.len()),
        messages: queue.messages,
        bytes: queue.bytes,
        messages_max: queue.bounds.messages_max,
        bytes_max: queue.bounds.bytes_max,
        overflow: queue.bounds.overflow,
        oldest_received_at: oldest(queue),
        dropped: queue.dropped,
    }
}
