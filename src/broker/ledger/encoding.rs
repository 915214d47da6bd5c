//! The bodies of a batch: messages with their takers, settlements, snapshots, records, in this order.
//!
//! What a batch has no keys for waits for the next. The form of each row is `rows`'.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Ground, Ledger, PENDING_ROWS_MAX, rows_of};
use crate::broker::held::{Held, RETAINED, Stage, Taker, TakerSet};
use crate::broker::rows::{self, RecordKey, RowKind, Settled};
use crate::ids::RowKey;
use crate::limits;
use crate::store::batch::{BatchBuilder, Place};
use crate::store::stored_bytes;

/// Takers that one piece of a taker set's row has room for, at least.
const TAKERS_IN_A_ROW: usize = limits::ROW_BYTES_MAX / 16;

impl Ledger {
    pub(super) fn write_messages(&mut self, builder: &mut BatchBuilder) {
        let mut sets: BTreeMap<Vec<Taker>, Rc<TakerSet>> = BTreeMap::new();
        let mut row = Vec::new();
        let later = self.pending.split_off(self.fitting());
        for held in std::mem::replace(&mut self.pending, later) {
            if let Some(place) = self.replaced.pop_front().filter(|place| place.pieces > 0) {
                builder.delete(place);
            }
            let mut takers = held.takers.take();
            if held.is_settled() {
                held.stage.set(Stage::Memory);
                self.elided += 1;
                continue;
            }
            takers.sort_unstable();
            let set = match sets.get(&takers) {
                Some(set) => Rc::clone(set),
                None => {
                    row.clear();
                    rows::put_taker_set(&mut row, &takers);
                    let place = push(builder, RowKind::TakerSet, &row);
                    let bytes = stored_bytes(row.len());
                    self.live_bytes += bytes;
                    let set = Rc::new(TakerSet { place, bytes, messages: Cell::new(0) });
                    sets.insert(takers, Rc::clone(&set));
                    set
                }
            };
            row.clear();
            rows::put_message_row(&mut row, set.place.key, &held.message);
            let place = push(builder, RowKind::Message, &row);
            // The same figure that is taken off when the row is buried, whatever the row's exact length.
            self.live_bytes += stored_bytes(rows::message_bytes(&held.message));
            set.messages.set(set.messages.get() + 1);
            held.set.replace(Some(set));
            held.place.set(place);
            held.stage.set(Stage::Written);
            self.live_messages += 1;
            self.live.push_back(held);
        }
    }

    pub(super) fn write_joined(&mut self, builder: &mut BatchBuilder) {
        let joined = std::mem::take(&mut self.joined);
        let written: Vec<_> = joined
            .iter()
            .filter(|(_, held, _)| held.stage.get() == Stage::Written)
            .map(|(queue, held, flags)| (*queue, held.place.get().key, *flags))
            .collect();
        if !written.is_empty() {
            let mut row = Vec::new();
            rows::put_joined(&mut row, &written);
            self.push_delta(builder, RowKind::Joined, &row);
        }
    }

    pub(super) fn write_window(&mut self, builder: &mut BatchBuilder) {
        let changes = std::mem::take(&mut self.window);
        if !changes.is_empty() {
            let mut row = Vec::new();
            rows::put_window(&mut row, &changes);
            self.push_delta(builder, RowKind::Window, &row);
        }
    }

    /// What was settled since the last batch, each queue in the shorter of two forms.
    pub(super) fn write_settlements(&mut self, ground: &impl Ground, builder: &mut BatchBuilder) {
        let mut row = Vec::new();
        for (index, helds) in std::mem::take(&mut self.settled) {
            let keys = written_keys(&helds);
            let Some(queue) = ground.queue(index) else { continue };
            let Some(last) = keys.last() else { continue };
            queue.has_settled(*last);
            // A row that was settled and joined again must not be named by its key alone.
            let survivors_max = if queue.names_keys_twice(&keys) { usize::MAX } else { keys.len() };
            match Settled::below(queue, survivors_max) {
                Some(form) => rows::put_settled(&mut row, queue.id, &form),
                None => rows::put_settled(&mut row, queue.id, &Settled::Keys(keys)),
            }
        }
        let unretained = written_keys(&std::mem::take(&mut self.unretained));
        if !unretained.is_empty() {
            self.unretained_keys.extend(&unretained);
            rows::put_settled(&mut row, RETAINED, &Settled::Keys(unretained));
        }
        for (index, number) in std::mem::take(&mut self.parts) {
            if let Some(queue) = ground.queue(index) {
                rows::put_settled(&mut row, queue.id, &queue.part_of(number));
            }
        }
        if !row.is_empty() {
            self.push_delta(builder, RowKind::Settlement, &row);
        }
    }

    /// Writes, for every queue, all that is settled of what is still on flash; older settlement, join and window
    /// rows are dead from here on.
    pub(super) fn write_snapshot(&mut self, ground: &impl Ground, builder: &mut BatchBuilder) {
        for (place, bytes) in std::mem::take(&mut self.deltas) {
            self.bury(place, bytes);
        }
        for (index, helds) in std::mem::take(&mut self.settled) {
            if let (Some(queue), Some(last)) = (ground.queue(index), written_keys(&helds).last()) {
                queue.has_settled(*last);
            }
        }
        self.unretained_keys.extend(written_keys(&std::mem::take(&mut self.unretained)));
        self.parts.clear();
        self.forget_dead_rows();
        let oldest = self.live.front().map(|held| held.place.get().key);
        let mut row = Vec::new();
        for index in ground.durable_queues() {
            let Some(queue) = ground.queue(index) else { continue };
            if queue.window_dirty.get() {
                self.dirty.insert(RecordKey::Session(queue.id));
            }
            let speaks = oldest.is_some_and(|oldest| queue.settled_below.get() > oldest)
                || queue.names_keys_twice(&[]);
            if speaks && let Some(form) = Settled::below(queue, usize::MAX) {
                rows::put_settled(&mut row, queue.id, &form);
            }
            if queue.cold.is_some() {
                self.dirty.insert(RecordKey::Cold(queue.id));
            }
            for number in queue.cold.iter().flat_map(|cold| cold.begun()) {
                rows::put_settled(&mut row, queue.id, &queue.part_of(number));
            }
        }
        for (queue, number) in ground.done_with_chunks() {
            rows::put_settled(&mut row, queue, &Settled::nothing_of(number));
        }
        if let Some(oldest) = oldest {
            self.unretained_keys = self.unretained_keys.split_off(&oldest);
        } else {
            self.unretained_keys.clear();
        }
        if !self.unretained_keys.is_empty() {
            let keys = self.unretained_keys.iter().copied().collect();
            rows::put_settled(&mut row, RETAINED, &Settled::Keys(keys));
        }
        if !row.is_empty() {
            self.push_delta(builder, RowKind::Settlement, &row);
        }
    }

    /// Writes the records that changed, queues before the bindings that name them. What the batch has no keys for stays
    /// for the next: one command may end 200 000 bindings.
    pub(super) fn write_records(&mut self, ground: &impl Ground, builder: &mut BatchBuilder) {
        while let Some(key) = self.dirty.pop_first() {
            let content = ground.record(key);
            if !self.records.contains_key(&key) && content.is_none() {
                continue;
            }
            let mut row = Vec::new();
            rows::put_record(&mut row, key, content.as_deref());
            let Some(place) = builder.push(RowKind::Record.code(), &row) else {
                self.dirty.insert(key);
                return;
            };
            if let Some((place, bytes)) = self.records.remove(&key) {
                self.bury(place, bytes);
            }
            let bytes = stored_bytes(row.len());
            self.live_bytes += bytes;
            if content.is_some() {
                self.records.insert(key, (place, bytes));
            } else {
                // The tombstone goes in the same checkpoint as the record it ends.
                self.bury(place, bytes);
            }
        }
    }

    /// How many of the pending messages this batch takes: so many that what speaks about them has keys, too. A publisher
    /// is held back before, but a queue that expires hands all of its messages to its dead-letter queue. Of what is
    /// spread anyway a batch takes no more than publishers may make it.
    fn fitting(&self) -> usize {
        let bytes_max = if self.spread { limits::BATCH_BYTES_SOFT } else { usize::MAX };
        let (mut rows, mut bytes) = (0usize, 0usize);
        let fits = |held: &&Rc<Held>| {
            if held.is_settled() {
                return true;
            }
            let first = bytes == 0;
            let charge = held.message.charge();
            rows += rows_of(charge) + held.takers.borrow().len() / TAKERS_IN_A_ROW;
            bytes += charge;
            first || rows <= PENDING_ROWS_MAX && bytes <= bytes_max
        };
        self.pending.iter().take_while(fits).count()
    }

    fn push_delta(&mut self, builder: &mut BatchBuilder, kind: RowKind, row: &[u8]) {
        let place = push(builder, kind, row);
        let bytes = stored_bytes(row.len());
        self.live_bytes += bytes;
        self.deltas.push((place, bytes));
    }
}

fn push(builder: &mut BatchBuilder, kind: RowKind, row: &[u8]) -> Place {
    builder
        .push(kind.code(), row)
        .expect("messages take at most 40 000 keys of a batch, which leaves 99 MB for what speaks about them")
}

/// The keys of those that were written, ascending.
fn written_keys(helds: &[Rc<Held>]) -> Vec<RowKey> {
    let mut keys: Vec<_> =
        helds.iter().filter(|h| h.stage.get() == Stage::Written).map(|h| h.place.get().key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}
