//! Messages that were settled before they were written: they need no flash, so they are no burden on it.
//!
//! While the flash answers, the next batch leaves them out. While it does not, they must not pile up: fast consumers
//! and their publishers go on for as long as it takes.

use super::{Ledger, rows_of};
use crate::broker::held::{Held, Stage};

/// Settled messages that wait among the others before they are looked for.
const SWEEP_MIN: usize = 256;

impl Ledger {
    /// A message that waits to be written was settled.
    pub(super) fn needs_no_flash(&mut self, held: &Held) {
        let charge = held.message.charge();
        self.settled_pending += 1;
        self.pending_bytes = self.pending_bytes.saturating_sub(charge);
        self.pending_rows = self.pending_rows.saturating_sub(rows_of(charge));
        if self.settled_pending > SWEEP_MIN && self.settled_pending > self.pending.len() / 2 {
            self.sweep();
        }
    }

    /// It was settled, and has a taker again.
    pub(super) fn needs_flash_again(&mut self, held: &Held) {
        let charge = held.message.charge();
        self.settled_pending = self.settled_pending.saturating_sub(1);
        self.pending_bytes += charge;
        self.pending_rows += rows_of(charge);
    }

    /// Counts what waits anew.
    pub(super) fn count_pending(&mut self) {
        let needed = self.pending.iter().filter(|held| !held.is_settled());
        let charges = needed.map(|held| held.message.charge());
        self.pending_bytes = charges.clone().sum();
        self.pending_rows = charges.map(rows_of).sum();
        self.settled_pending = self.pending.iter().filter(|held| held.is_settled()).count();
    }

    fn sweep(&mut self) {
        if !self.replaced.is_empty() {
            // What is written anew stands in the order of the rows that it replaces.
            return;
        }
        let before = self.pending.len();
        self.pending.retain(|held| {
            if held.is_settled() {
                held.takers.borrow_mut().clear();
                held.stage.set(Stage::Memory);
            }
            held.stage.get() == Stage::Pending
        });
        self.elided += (before - self.pending.len()) as u64;
        self.settled_pending = 0;
        // No settlement is written of what is not there.
        for helds in self.settled.values_mut() {
            helds.retain(|held| held.stage.get() != Stage::Memory);
        }
        self.settled.retain(|_, helds| !helds.is_empty());
        self.unretained.retain(|held| held.stage.get() != Stage::Memory);
        self.joined.retain(|(_, held, _)| held.stage.get() != Stage::Memory);
    }
}
