//! Collections as takers: readings wait here until `series.redb` holds them.
//!
//! A collection is a queue without a connection. Its bindings come from the configuration; `gateway` takes the
//! readings out in order, has them stored, and settles them once the chunk that holds them is synced. So a reading is
//! its message's row in the log until then, and gates, bounds, fan-out and recovery are those of any queue.
//!
//! A reading's *sequence* counts the messages of its queue since the start; what holds across starts is its row key.

use std::rc::Rc;
use std::time::Duration;

use super::held::{Held, Stage};
use super::ledger::Urgency;
use super::loss::LossReason;
use super::publish::Elision;
use super::queue::{Entry, Overflow, Queue, QueueBounds, QueueIndex, QueueKind, SubscribeOptions};
use super::rows::RecordKey;
use super::trace::TraceStep;
use super::{Broker, mqtt_levels};
use crate::ids::RowKey;
use crate::message::Assurance;
use crate::time::Now;

/// Until the configuration is known nothing of a recovered collection is dropped.
pub(super) const UNBOUNDED: QueueBounds =
    QueueBounds { messages_max: u32::MAX, bytes_max: u64::MAX, overflow: Overflow::DropOldest };

/// A collection as the configuration wants it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectionPlan {
    pub name: Box<str>,
    /// Topic filters, and whether a reading that one brings must be on flash before it is acknowledged.
    pub filters: Vec<(Box<str>, bool)>,
    pub bounds: QueueBounds,
}

/// How far a collection may be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flushable {
    /// The last reading whose row is on flash, or that needs none.
    pub through: u64,
    /// The highest row key up to there; 0 when no reading up to there has a row.
    pub row_key: RowKey,
}

impl Broker {
    /// Makes the collections those of the configuration. One that is no longer wanted takes no more, and goes when
    /// the readings that it holds are settled.
    pub fn reconcile_collections(&mut self, now: Now, plans: &[CollectionPlan]) {
        for plan in plans {
            let index = match self.collections.get(&plan.name) {
                Some(index) => *index,
                None => self.create_collection(now, plan),
            };
            self.end_filters(index, |filter| plan.filters.iter().any(|(planned, _)| **planned == *filter));
            let Some(queue) = self.queue_mut(index) else { continue };
            queue.bounds = plan.bounds;
            for (filter, durable) in &plan.filters {
                let assurance_max = if *durable { Assurance::ExactlyOnce } else { Assurance::AtMostOnce };
                let options = SubscribeOptions::new(assurance_max);
                queue.subscriptions.insert(filter.clone(), options);
            }
            let bindings: Vec<_> = queue.subscriptions.iter().map(|(f, o)| (f.clone(), *o)).collect();
            for (filter, options) in bindings {
                self.index.insert(mqtt_levels(&filter), index.0, options);
            }
            self.keep_queue_bounds(now, index);
        }
        let known: Vec<_> = self.collections.iter().map(|(name, index)| (name.clone(), *index)).collect();
        for (name, index) in known {
            if !plans.iter().any(|plan| *plan.name == *name) {
                self.end_filters(index, |_| false);
            }
            self.end_if_unwanted(now, index);
        }
    }

    /// Ends the subscriptions of a collection that no route asks for any more; messages that they brought stay.
    fn end_filters(&mut self, index: QueueIndex, is_planned: impl Fn(&str) -> bool) {
        let Some(queue) = self.queue_mut(index) else { return };
        let gone: Vec<Box<str>> = queue.subscriptions.keys().filter(|f| !is_planned(f)).cloned().collect();
        for filter in gone {
            if let Some(queue) = self.queue_mut(index) {
                queue.subscriptions.remove(&filter);
            }
            self.index.remove(mqtt_levels(&filter), index.0);
        }
    }

    /// The collections' queues with their names, those that are no longer configured too.
    pub fn collections(&self) -> impl Iterator<Item = (QueueIndex, &str)> {
        self.collections.iter().map(|(name, index)| (*index, &**name))
    }

    /// True when some collection has readings that were not handed over.
    #[must_use]
    pub const fn has_readings(&self) -> bool {
        self.has_readings
    }

    /// Hands over, once each and in order, the readings that came since the last call, with their sequences.
    pub fn take_readings(&mut self, mut each: impl FnMut(QueueIndex, u64, &Held)) {
        if !std::mem::replace(&mut self.has_readings, false) {
            return;
        }
        for index in self.collections.values().copied().collect::<Vec<_>>() {
            let Some(queue) = self.queue_mut(index) else { continue };
            queue.handed = queue.handed.max(queue.popped);
            let skipped = usize::try_from(queue.handed - queue.popped).unwrap_or(usize::MAX);
            for (sequence, entry) in (queue.handed..).zip(queue.ready.iter().skip(skipped)) {
                each(index, sequence, &entry.held);
            }
            queue.handed = queue.popped + queue.ready.len() as u64;
        }
    }

    /// Sequence of the oldest reading that the collection still holds: those before it are settled or lost.
    #[must_use]
    pub fn oldest_reading(&self, index: QueueIndex) -> u64 {
        self.queue(index).map_or(u64::MAX, |queue| queue.popped)
    }

    /// True when flash knows of every reading that a bound dropped from the collection, and of its receipt. A cut before
    /// that brings them back.
    #[must_use]
    pub fn drops_are_kept(&self, index: QueueIndex) -> bool {
        self.queue(index).is_none_or(|queue| queue.record_batch <= self.ledger.persisted())
    }

    /// Readings that the collection holds, their bytes, and whether that is half of what it may hold.
    #[must_use]
    pub fn unsettled_readings(&self, index: QueueIndex) -> (u32, u64, bool) {
        let Some(queue) = self.queue(index) else { return (0, 0, false) };
        let pressed =
            queue.messages > queue.bounds.messages_max / 2 || queue.bytes > queue.bounds.bytes_max / 2;
        (queue.messages, queue.bytes, pressed)
    }

    /// How far the collection's readings may be stored and settled; `None` when that is nowhere.
    #[must_use]
    pub fn flushable(&self, index: QueueIndex) -> Option<Flushable> {
        let queue = self.queue(index)?;
        let persisted = self.ledger.persisted();
        let handed = usize::try_from(queue.handed - queue.popped.min(queue.handed)).unwrap_or(usize::MAX);
        let mut row_key = RowKey(0);
        let mut count = 0;
        for entry in queue.ready.iter().take(handed) {
            if entry.is_durable(queue.durable) {
                let key = entry.held.place.get().key;
                if entry.held.stage.get() != Stage::Written || key.batch() > persisted {
                    break;
                }
                row_key = row_key.max(key);
            }
            count += 1;
        }
        // Rows of readings that were kept late lie above those of later readings. A key stands for all below it, so
        // none of what is not stored may be among them.
        let is_below =
            |entry: &Entry| entry.held.stage.get() == Stage::Written && entry.held.place.get().key <= row_key;
        if queue.ready.iter().skip(count).any(is_below) {
            return None;
        }
        Some(Flushable { through: queue.popped + (count as u64).checked_sub(1)?, row_key })
    }

    /// The readings from the sequence `from` on that no acknowledgement waited for get a row each in the open batch,
    /// as any other has: their interval is over. True when some are left, for the next batch.
    pub fn keep_readings(&mut self, now: Now, index: QueueIndex, from: u64) -> bool {
        let queue = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut);
        let Some(queue) = queue.filter(|queue| queue.durable) else { return false };
        let skipped = usize::try_from(from.saturating_sub(queue.popped)).unwrap_or(usize::MAX);
        let (mut kept, mut left) = (false, false);
        let unkept = |entry: &&mut Entry| entry.assurance == Assurance::AtMostOnce;
        for entry in queue.ready.iter_mut().skip(skipped).filter(unkept) {
            if self.ledger.is_bulky() || self.ledger.is_congested() {
                left = true;
                break;
            }
            entry.assurance = Assurance::AtLeastOnce;
            entry.joined = self.ledger.join_taker(now.mono, &entry.held, queue.id, entry.assurance.code());
            if entry.joined {
                queue.joins.set(true);
            }
            kept = true;
        }
        if kept {
            self.ledger.want(now.mono, Urgency::Lazy(Duration::ZERO));
        }
        left
    }

    /// The readings up to the sequence `through` are in `series.redb`, synced.
    pub fn settle_readings(&mut self, now: Now, index: QueueIndex, through: u64) {
        while let Some(queue) = self.queue_mut(index)
            && queue.kind == QueueKind::Collection
            && queue.popped <= through
        {
            let Some(entry) = queue.pop_oldest() else { break };
            let durable = entry.is_durable(queue.durable);
            self.counters.settled += 1;
            self.trace(now, TraceStep::Stored, index, &entry.held, "");
            if durable {
                self.settle_durable(now.mono, index, &entry.held);
            }
        }
        self.end_if_unwanted(now, index);
    }

    /// After a start: what `series.redb` holds of a collection, all rows up to `key`, is not stored again.
    pub fn settle_stored(&mut self, now: Now, name: &str, key: RowKey) {
        let Some(index) = self.collections.get(name).copied() else { return };
        let Some(queue) = self.queue(index) else { return };
        let stored = queue.ready.iter().take_while(|entry| entry.held.place.get().key <= key).count();
        if let Some(last) = (stored as u64).checked_sub(1) {
            let through = queue.popped + last;
            self.settle_readings(now, index, through);
        }
    }

    /// A message for a collection. `binding` is the assurance of the route: at most once is no taker of the
    /// acknowledgement, anything more keeps the reading on flash, whatever the publisher asked for.
    pub(super) fn collect(
        &mut self,
        now: Now,
        index: QueueIndex,
        held: &Rc<Held>,
        binding: Assurance,
        elision: &mut Elision,
    ) {
        let assurance = binding.min(Assurance::AtLeastOnce);
        let unasked = held.message.assurance == Assurance::AtMostOnce;
        let mut entry = Entry::new(Rc::clone(held), assurance);
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        let durable = entry.is_durable(queue.durable);
        if durable && unasked && self.ledger.is_congested() {
            // Nobody can be held back who does not wait for an acknowledgement.
            entry.assurance = Assurance::AtMostOnce;
            self.lose(now, index, &entry, LossReason::MemoryBound);
            return;
        }
        if durable {
            self.ledger.add_taker(held, queue.id, assurance.code());
            *elision = elision.with(false);
            if unasked {
                let soon = Urgency::Lazy(Duration::from_secs(1));
                self.ledger.want(now.mono, if self.ledger.is_bulky() { Urgency::Now } else { soon });
            }
        }
        queue.charge(&entry);
        queue.ready.push_back(entry);
        self.counters.queued += 1;
        self.has_readings = true;
        self.keep_queue_bounds(now, index);
    }

    fn create_collection(&mut self, now: Now, plan: &CollectionPlan) -> QueueIndex {
        let id = self.ledger.queue_id();
        let mut queue = Queue::new(id, plan.name.clone(), true, plan.bounds);
        queue.kind = QueueKind::Collection;
        queue.record_batch = self.ledger.touch(now.mono, RecordKey::Session(id), Urgency::Now);
        self.insert(queue)
    }

    /// A collection without a route ends once it is empty.
    fn end_if_unwanted(&mut self, now: Now, index: QueueIndex) {
        let unwanted = self.queue(index).is_some_and(|queue| {
            queue.kind == QueueKind::Collection && queue.subscriptions.is_empty() && queue.ready.is_empty()
        });
        if unwanted {
            self.end(now, index, Urgency::Lazy(Duration::from_secs(1)));
        }
    }
}
