//! Writing everything anew: the file was damaged while the gateway ran, and memory knows what it held.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Broker;
use super::held::{Held, RETAINED, TAKER_CONNECTED};
use super::ledger::Urgency;
use super::queue::Flight;
use super::rows::RecordKey;
use crate::ids::{QueueId, RowKey};
use crate::store::Salvaged;
use crate::time::Now;

/// A message's claim to be written again.
struct Claim {
    held: Rc<Held>,
    queue: QueueId,
    flags: u8,
}

/// The order in which messages are written again: by the keys that they had, then those that had none yet, by their
/// place in the open batch.
type Order = (RowKey, usize);

/// Stands for the key of a message that was never written.
const UNWRITTEN: RowKey = RowKey(u64::MAX);

impl Broker {
    /// The store's files were damaged: every message and record is written again in place of what was salvaged, and
    /// every reply that waits for a batch waits for these. The damage is named in the receipts.
    pub fn write_anew(&mut self, now: Now, salvaged: Salvaged) {
        let claims = self.claims();
        let Salvaged { last, rows, damage } = salvaged;
        self.ledger.begin_anew(last, rows);
        let written = claims.range(..(UNWRITTEN, 0)).filter_map(|(_, claims)| claims.first());
        self.ledger.replace_rows(written.map(|claim| claim.held.place.get()).collect());
        for claim in claims.values().flatten() {
            claim.held.forget_place();
        }
        for moving in &mut self.backlog.moving {
            // Rows that are on their way to a chunk have other keys now: the chunk will be void.
            moving.rows.clear();
        }
        for claims in claims.into_values() {
            // Of twins the older one stands: it may be in flight under a tag.
            let mut older = BTreeMap::new();
            for claim in &claims {
                super::recovery::claim(&mut older, claim.queue, claim.flags, false);
            }
            for claim in claims {
                let flags = older.get(&claim.queue).map_or(claim.flags, |(flags, _)| *flags);
                self.ledger.add_taker(&claim.held, claim.queue, flags);
            }
        }
        let batch = self.ledger.open_batch();
        let mut records = self.topology_records();
        records.extend(self.wills.keys().map(|number| RecordKey::Will(*number)));
        records.extend(self.losses.numbers().map(RecordKey::Loss));
        records.push(RecordKey::Backlog);
        for record in records {
            self.ledger.touch(now.mono, record, Urgency::Now);
        }
        for queue in self.queues.iter_mut().flatten().filter(|queue| queue.durable) {
            queue.settled_below.set(RowKey(0));
            queue.record_batch = batch;
            queue.window_batch = batch;
            let cold = queue.cold.iter_mut().flat_map(|cold| cold.entries_mut());
            for entry in queue.replay.iter_mut().chain(&mut queue.ready).chain(cold) {
                entry.joined = false;
            }
            for releasing in &mut queue.releasing {
                releasing.kept_by = batch;
            }
            for in_flight in &mut queue.in_flight {
                in_flight.entry.joined = false;
                if let Flight::AwaitBatch(awaited) = &mut in_flight.flight {
                    *awaited = batch;
                }
            }
        }
        self.awaiting.iter_mut().for_each(|(awaited, ..)| *awaited = batch);
        self.retained.written_anew_with(batch);
        self.ended.values_mut().for_each(|ended| *ended = batch);
        self.waiting.iter_mut().for_each(|(awaited, _)| *awaited = batch);
        for damage in &damage {
            self.report_damage(now, damage);
        }
        self.ledger.want(now.mono, Urgency::Now);
    }

    /// Every durable claim, in the order in which the messages came.
    fn claims(&self) -> BTreeMap<Order, Vec<Claim>> {
        let unwritten: BTreeMap<_, _> = self.ledger.pending().map(Rc::as_ptr).zip(0..).collect();
        let mut claims: BTreeMap<Order, Vec<Claim>> = BTreeMap::new();
        let mut add = |held: &Rc<Held>, queue, flags| {
            let key = held.place.get().key;
            let order = match unwritten.get(&Rc::as_ptr(held)) {
                Some(position) => (UNWRITTEN, *position),
                None => (key, 0),
            };
            claims.entry(order).or_default().push(Claim { held: Rc::clone(held), queue, flags });
        };
        for queue in self.queues.iter().flatten() {
            // Named queues keep their own order whatever the keys are; sessions too.
            let in_window =
                |entry: &&super::queue::Entry| entry.is_durable(queue.durable) && !entry.is_cold();
            for entry in queue.entries().filter(in_window) {
                let connected = if queue.consumer.is_some() { TAKER_CONNECTED } else { 0 };
                add(&entry.held, queue.id, entry.taker_flags() | connected);
            }
        }
        for held in self.retained.values() {
            add(held, RETAINED, held.message.assurance.code());
        }
        claims
    }
}
