//! Writing everything anew: the file was damaged while the gateway ran, and memory knows what it held.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Broker;
use super::held::{Held, RETAINED, TAKER_CONNECTED};
use super::ledger::Urgency;
use super::queue::Flight;
use super::rows::RecordKey;
use crate::ids::{BatchNumber, QueueId, RowKey};
use crate::time::Now;

/// A message's claim to be written again.
struct Claim {
    held: Rc<Held>,
    queue: QueueId,
    flags: u8,
}

impl Broker {
    /// The store lost its file and goes on after batch `last`: every message and record is written again, and every
    /// reply that waits for a batch waits for these. `what` names the damage in the receipts.
    pub fn write_anew(&mut self, now: Now, last: BatchNumber, what: &[String]) {
        let claims = self.claims();
        self.ledger.begin_anew(last);
        for claim in claims.values().flatten() {
            claim.held.forget_place();
        }
        for claim in claims.into_values().flatten() {
            self.ledger.add_taker(&claim.held, claim.queue, claim.flags);
        }
        let batch = self.ledger.open_batch();
        let mut records: Vec<_> = self.durable.keys().map(|id| RecordKey::Session(*id)).collect();
        records.extend(self.wills.keys().map(|number| RecordKey::Will(*number)));
        records.extend(self.losses.numbers().map(RecordKey::Loss));
        for record in records {
            self.ledger.touch(now.mono, record, Urgency::Now);
        }
        for queue in self.queues.iter_mut().flatten().filter(|queue| queue.durable) {
            queue.settled_below.set(RowKey(0));
            queue.record_batch = batch;
            queue.window_batch = batch;
            for entry in queue.replay.iter_mut().chain(&mut queue.ready) {
                entry.joined = false;
            }
            for in_flight in &mut queue.in_flight {
                in_flight.entry.joined = false;
                if let Flight::AwaitBatch(awaited) = &mut in_flight.flight {
                    *awaited = batch;
                }
            }
        }
        self.awaiting.iter_mut().for_each(|(awaited, ..)| *awaited = batch);
        self.waiting.iter_mut().for_each(|(awaited, _)| *awaited = batch);
        for damage in what {
            self.report_damage(now, damage);
        }
        self.ledger.want(now.mono, Urgency::Now);
    }

    /// Every durable claim, by the order in which the messages were written; what was not written comes last.
    fn claims(&self) -> BTreeMap<RowKey, Vec<Claim>> {
        let mut claims: BTreeMap<RowKey, Vec<Claim>> = BTreeMap::new();
        let mut add = |held: &Rc<Held>, queue, flags| {
            let key = held.place.get().key;
            let order = if key == RowKey(0) { RowKey(u64::MAX) } else { key };
            claims.entry(order).or_default().push(Claim { held: Rc::clone(held), queue, flags });
        };
        for queue in self.queues.iter().flatten() {
            for entry in queue.entries().filter(|entry| entry.is_durable(queue.durable)) {
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
