//! The ledger after a start: what recovery found is entered into the books.

use std::rc::Rc;

use super::{CHECKPOINT_COMMITS, Ledger};
use crate::broker::held::Held;
use crate::broker::rows::{self, RecordKey};
use crate::ids::RowKey;
use crate::store::batch::Place;
use crate::store::stored_bytes;

impl Ledger {
    /// A message row that was found at start, with its takers counted.
    pub fn recovered_message(&mut self, held: &Rc<Held>) {
        self.live_bytes += stored_bytes(rows::message_bytes(&held.message));
        self.live_messages += 1;
        self.live.push_back(Rc::clone(held));
    }

    /// A taker set that a live message refers to was found at start.
    pub const fn recovered_set(&mut self, bytes: u64) {
        self.live_bytes += bytes;
    }

    /// A row that nobody needs was found at start.
    pub fn recovered_dead(&mut self, place: Place, bytes: usize) {
        self.dead.push(place);
        self.dead_bytes += stored_bytes(bytes);
    }

    pub fn recovered_record(&mut self, key: RecordKey, place: Place, bytes: usize) {
        if let Some((old, old_bytes)) = self.records.insert(key, (place, stored_bytes(bytes))) {
            self.dead.push(old);
            self.dead_bytes += old_bytes;
        } else {
            self.live_bytes += stored_bytes(bytes);
        }
    }

    /// A settlement, join or window row: replaced by the next checkpoint, which comes with the next commit.
    pub fn recovered_delta(&mut self, place: Place, bytes: usize) {
        self.deltas.push((place, stored_bytes(bytes)));
        self.live_bytes += stored_bytes(bytes);
        self.commits_since_checkpoint = CHECKPOINT_COMMITS;
    }

    pub fn recovered_unretained(&mut self, key: RowKey) {
        self.unretained_keys.insert(key);
    }
}
