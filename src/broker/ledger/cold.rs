//! The ledger and the backlog: rows that leave the window for a chunk, and parts of chunks that changed.

use std::rc::Rc;

use super::{LAZY_SETTLEMENT, Ledger, Urgency};
use crate::broker::held::Held;
use crate::broker::queue::QueueIndex;
use crate::broker::rows::RecordKey;
use crate::ids::ChunkNumber;
use crate::time::Mono;

impl Ledger {
    /// Bytes of rows that are on flash or will be, and what they take beyond that.
    pub const fn bytes_to_keep(&self) -> u64 {
        self.live_bytes + self.dead_bytes + self.pending_bytes as u64 + self.overhead_bytes
    }

    /// The queue has less of a chunk of the backlog than before.
    pub fn touch_part(&mut self, now: Mono, index: QueueIndex, number: ChunkNumber) {
        self.parts.insert((index, number));
        self.want(now, Urgency::Lazy(LAZY_SETTLEMENT));
    }

    /// The message's row is in a chunk of the backlog now: it goes out of the window with the batch that says so, which
    /// [`Ledger::moved_out`] sees to.
    pub fn move_out(&mut self, held: &Rc<Held>) {
        while held.owed.get() > 0 {
            self.release(held);
        }
    }

    /// Rows were moved out: the open batch says which chunks count and deletes the rows.
    pub fn moved_out(&mut self, now: Mono, urgency: Urgency) {
        self.moved = true;
        self.touch(now, RecordKey::Backlog, urgency);
    }

    /// Bytes were written beside the batches.
    pub fn spend(&mut self, now: Mono, bytes: u64) {
        self.not_before = self.not_before.max(self.budget.spend(now, bytes));
    }

    /// The window holds messages.
    pub const fn has_live_messages(&self) -> bool {
        self.live_messages > 0
    }
}
