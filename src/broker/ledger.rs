//! The ledger: what must reach flash, in which batch, and what has become unneeded there.
//!
//! Collects the changes of a round, decides when a batch closes (gates, elision, the flash budget), encodes it, and
//! trims. Knows rows and takers; leaves routing to `broker` and the disk to `store`. Row bodies: `rows`.

mod cold;
mod elided;
mod encoding;
mod recovered;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use super::budget::FlashBudget;
use super::held::{Held, Stage, Taker};
use super::queue::{Queue, QueueIndex};
use super::rows::{self, RecordKey, WindowChange};
use crate::collections::{self, Map};
use crate::ids::{BatchNumber, ChunkNumber, QueueId, RowKey};
use crate::limits;
use crate::store::batch::{Batch, BatchBuilder, Persisted, Place};
use crate::store::stored_bytes;
use crate::time::{Mono, Now};

/// A checkpoint after so many commits ...
const CHECKPOINT_COMMITS: u32 = 64;
/// ... or when so many bytes of rows are dead.
const CHECKPOINT_DEAD_BYTES: u64 = 256 * 1024;
/// Acknowledgements of consumers that no commit carried are written after this.
pub(super) const LAZY_SETTLEMENT: Duration = Duration::from_millis(250);
/// Everything else that nothing waits for is written after this.
const LAZY_OTHER: Duration = Duration::from_secs(1);
/// Rows that may wait in one batch: keys have 16 bits, and a large body takes several.
const PENDING_ROWS_MAX: usize = 40_000;

/// When the open batch must close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Urgency {
    /// A reply waits and nothing but flash can satisfy it.
    Now,
    /// A reply waits that the consumers' acknowledgements may satisfy first.
    By(Mono),
    /// No reply waits.
    Lazy(Duration),
}

/// What `close` writes about queues and records: a view of the broker's state.
pub(super) trait Ground {
    fn queue(&self, index: QueueIndex) -> Option<&Queue>;
    fn durable_queues(&self) -> Vec<QueueIndex>;
    /// The record's content now; `None` when it is gone.
    fn record(&self, key: RecordKey) -> Option<Vec<u8>>;
    /// Queues that are done with a chunk of the backlog which still names them.
    fn done_with_chunks(&self) -> Vec<(QueueId, ChunkNumber)>;
}

#[derive(Debug)]
pub(super) struct Ledger {
    /// Number of the batch that is open.
    open: BatchNumber,
    persisted: BatchNumber,
    in_flight: Option<BatchNumber>,
    last_id: u64,

    pending: Vec<Rc<Held>>,
    /// Some of them are settled: they need no flash, and do not count to the next two.
    settled_pending: usize,
    pending_bytes: usize,
    pending_rows: usize,
    /// Rows handed to the store and not yet on flash.
    in_flight_bytes: usize,
    settled: BTreeMap<QueueIndex, Vec<Rc<Held>>>,
    unretained: Vec<Rc<Held>>,
    /// Parts of chunks of the backlog of which something was settled.
    parts: BTreeSet<(QueueIndex, ChunkNumber)>,
    joined: Vec<(QueueId, Rc<Held>, u8)>,
    window: Vec<WindowChange>,
    dirty: BTreeSet<RecordKey>,

    urgent: bool,
    elide_until: Option<Mono>,
    lazy_until: Option<Mono>,
    not_before: Mono,
    budget: FlashBudget,
    commits_since_checkpoint: u32,
    /// Rows moved to the backlog: the batch that says so deletes them.
    moved: bool,

    /// Live message rows in key order; dead ones are dropped from the front.
    live: VecDeque<Rc<Held>>,
    live_messages: usize,
    live_bytes: u64,
    dead: Vec<Place>,
    dead_bytes: u64,
    /// What the store takes beyond what rows are charged, as it last said.
    overhead_bytes: u64,
    /// Settlement, join and window rows written since the last checkpoint.
    deltas: Vec<(Place, u64)>,
    records: Map<RecordKey, (Place, u64)>,
    /// Keys of live rows that ceased to be last known values.
    unretained_keys: BTreeSet<RowKey>,
    /// What belongs together takes several batches, because it is written again after a file was lost or because
    /// it needs more keys than one batch has. Nothing counts as persisted before the last of them.
    spread: bool,
    /// Where the first of the pending messages lay before that.
    replaced: VecDeque<Place>,
    pub(super) commits: u64,
    pub(super) elided: u64,
}

impl Ledger {
    pub fn new(last: BatchNumber, seed: u64, budget: FlashBudget) -> Self {
        Self {
            open: last.next(),
            persisted: last,
            in_flight: None,
            last_id: 0,
            pending: Vec::new(),
            settled_pending: 0,
            pending_bytes: 0,
            pending_rows: 0,
            in_flight_bytes: 0,
            settled: BTreeMap::new(),
            unretained: Vec::new(),
            parts: BTreeSet::new(),
            joined: Vec::new(),
            window: Vec::new(),
            dirty: BTreeSet::new(),
            urgent: false,
            elide_until: None,
            lazy_until: None,
            not_before: Mono(0),
            budget,
            commits_since_checkpoint: 0,
            moved: false,
            live: VecDeque::new(),
            live_messages: 0,
            live_bytes: 0,
            dead: Vec::new(),
            dead_bytes: 0,
            overhead_bytes: 0,
            deltas: Vec::new(),
            records: collections::map(seed),
            unretained_keys: BTreeSet::new(),
            spread: false,
            replaced: VecDeque::new(),
            commits: 0,
            elided: 0,
        }
    }

    // What the broker reports.

    /// A fresh queue id, also used for exchanges and bindings.
    pub fn queue_id(&mut self) -> QueueId {
        // More than 65 535 within one batch run ahead into the numbers of the next.
        self.last_id = (self.last_id + 1).max(self.open.0 << 16 | 1);
        QueueId(self.last_id)
    }

    /// This id is in use.
    pub fn recovered_id(&mut self, id: u64) {
        self.last_id = self.last_id.max(id);
    }

    /// `queue` takes the message durably. Must be called in the command that routes the message.
    pub fn add_taker(&mut self, held: &Rc<Held>, queue: QueueId, flags: u8) {
        if held.stage.get() == Stage::Memory {
            held.stage.set(Stage::Pending);
            let charge = held.message.charge();
            self.pending_bytes += charge;
            self.pending_rows += rows_of(charge);
            self.pending.push(Rc::clone(held));
        } else if held.stage.get() == Stage::Pending && held.is_settled() {
            self.needs_flash_again(held);
        }
        held.owed.set(held.owed.get() + 1);
        held.takers.borrow_mut().push(Taker { queue, flags });
    }

    /// `queue` becomes a taker of a message that may have been written already (a last known value). True when the
    /// message's own taker set does not name it, or names it for a claim that it settled before as well: its key alone
    /// then does not tell which of them is settled.
    pub fn join_taker(&mut self, now: Mono, held: &Rc<Held>, queue: QueueId, flags: u8) -> bool {
        if held.stage.get() != Stage::Written {
            // Of twins the older one stands: it may be in flight under a tag.
            let first =
                held.takers.borrow().iter().find(|taker| taker.queue == queue).map(|taker| taker.flags);
            self.add_taker(held, queue, first.unwrap_or(flags));
            self.want(now, Urgency::Lazy(LAZY_OTHER));
            return first.is_some();
        }
        held.owed.set(held.owed.get() + 1);
        self.joined.push((queue, Rc::clone(held), flags));
        self.want(now, Urgency::Lazy(LAZY_OTHER));
        true
    }

    /// `queue` needs the message no more. True when that was the last durable taker of a message not yet written.
    pub fn settle(&mut self, now: Mono, index: QueueIndex, held: &Rc<Held>) -> bool {
        let elided = self.release(held);
        if !matches!(held.stage.get(), Stage::Memory | Stage::Cold) {
            self.settled.entry(index).or_default().push(Rc::clone(held));
            self.want(now, Urgency::Lazy(LAZY_SETTLEMENT));
        }
        elided
    }

    /// A taker leaves without having acknowledged: the publisher's reply waits for the batch that says so.
    pub fn dropped(&mut self, held: &Rc<Held>) {
        held.dropped.set(true);
        if held.waiter.get().is_some() {
            self.urgent = true;
        }
    }

    /// A queue is gone with its record; its messages need no settlement of their own.
    pub fn forget(&mut self, held: &Rc<Held>) {
        self.dropped(held);
        self.release(held);
    }

    /// The record changed, and no reply waits for it.
    pub fn touch_soon(&mut self, now: Mono, key: RecordKey) {
        self.touch(now, key, Urgency::Lazy(LAZY_OTHER));
    }

    /// The open batch closes within a second.
    pub fn want_soon(&mut self, now: Mono) {
        self.want(now, Urgency::Lazy(LAZY_OTHER));
    }

    /// The queue at `index` is gone: nothing about it is written any more.
    pub fn forget_queue(&mut self, index: QueueIndex, id: QueueId) {
        self.settled.remove(&index);
        self.parts.retain(|(at, _)| *at != index);
        self.joined.retain(|(queue, ..)| *queue != id);
        self.window.retain(|change| change.queue() != id);
    }

    /// The message is no longer the last known value of its address.
    pub fn unretain(&mut self, now: Mono, held: &Rc<Held>) -> bool {
        let elided = self.release(held);
        #[cfg(feature = "mutations")]
        if super::mutation::is_made(super::mutation::Mutation::ForgetReplacedValues) {
            return elided;
        }
        self.unretained.push(Rc::clone(held));
        self.want(now, Urgency::Lazy(LAZY_OTHER));
        elided
    }

    /// The record changed, came or went.
    pub fn touch(&mut self, now: Mono, key: RecordKey, urgency: Urgency) -> BatchNumber {
        self.dirty.insert(key);
        self.want(now, urgency);
        self.open
    }

    /// A step of an exactly-once exchange.
    pub fn window(&mut self, now: Mono, change: WindowChange, urgency: Urgency) -> BatchNumber {
        self.window.push(change);
        self.want(now, urgency);
        self.open
    }

    /// Something in the open batch has this urgency.
    pub fn want(&mut self, now: Mono, urgency: Urgency) {
        match urgency {
            Urgency::Now => self.urgent = true,
            Urgency::By(at) => self.elide_until = Some(self.elide_until.map_or(at, |old| old.min(at))),
            Urgency::Lazy(after) => {
                let at = now + after;
                self.lazy_until = Some(self.lazy_until.map_or(at, |old| old.min(at)));
            }
        }
    }

    /// Messages that wait to be written, in their order.
    pub fn pending(&self) -> impl Iterator<Item = &Rc<Held>> {
        self.pending.iter()
    }

    // What the driver asks.

    pub const fn open_batch(&self) -> BatchNumber {
        self.open
    }

    pub const fn persisted(&self) -> BatchNumber {
        self.persisted
    }

    pub const fn is_idle(&self) -> bool {
        self.in_flight.is_none()
    }

    /// Too much waits for flash: durable publishers must be held back.
    pub const fn is_congested(&self) -> bool {
        self.pending_bytes + self.in_flight_bytes >= limits::UNPERSISTED_BYTES_MAX
            || self.pending_rows >= PENDING_ROWS_MAX
    }

    /// Enough waits that closing the batch is worth a commit.
    pub const fn is_bulky(&self) -> bool {
        self.pending_bytes >= limits::BATCH_BYTES_SOFT || self.pending_rows >= PENDING_ROWS_MAX / 4
    }

    /// Bytes of rows that somebody needs.
    pub const fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// When the open batch closes, if nothing else happens.
    pub fn deadline(&self) -> Option<Mono> {
        if self.in_flight.is_some() || !self.has_work() && !self.urgent {
            return None;
        }
        // Publishers that are held back must not wait for what nothing else is in a hurry about.
        let by = if self.urgent || self.is_congested() {
            Some(Mono(0))
        } else {
            match (self.elide_until, self.lazy_until) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }
        };
        by.map(|at| at.max(self.not_before))
    }

    /// Time to close, the store being idle?
    pub fn is_due(&self, now: Mono) -> bool {
        self.deadline().is_some_and(|at| at <= now)
    }

    /// True when the open batch would write something.
    pub fn has_work(&self) -> bool {
        !self.pending.is_empty()
            || !self.settled.is_empty()
            || !self.unretained.is_empty()
            || !self.parts.is_empty()
            || !self.joined.is_empty()
            || !self.window.is_empty()
            || !self.dirty.is_empty()
    }

    /// Encodes the open batch and opens the next. `None` when everything in it was settled in the meantime.
    pub fn close(&mut self, ground: &impl Ground) -> Option<Batch> {
        let awaited = std::mem::take(&mut self.urgent);
        self.elide_until = None;
        self.lazy_until = None;
        let mut builder = BatchBuilder::new(self.open);
        self.write_messages(&mut builder);
        // What speaks about messages comes when all of them are there, and so does the end of what they replace.
        let whole = self.pending.is_empty();
        let checkpoint = whole
            && (self.commits_since_checkpoint >= CHECKPOINT_COMMITS
                || self.moved
                || self.dead_bytes >= CHECKPOINT_DEAD_BYTES);
        if whole {
            self.write_joined(&mut builder);
            self.write_window(&mut builder);
            if checkpoint {
                self.write_snapshot(ground, &mut builder);
            } else {
                self.write_settlements(ground, &mut builder);
            }
            self.write_records(ground, &mut builder);
        }
        // A record that came and went within the batch leaves no row, but a reply may wait for its number.
        if builder.is_empty() && !awaited {
            return None;
        }
        self.spread = !self.pending.is_empty() || !self.dirty.is_empty();
        if checkpoint && !self.spread {
            self.commits_since_checkpoint = 0;
            self.moved = false;
            for place in self.dead.drain(..) {
                builder.delete(place);
            }
            self.dead_bytes = 0;
        }
        self.commits_since_checkpoint += 1;
        self.commits += 1;
        let mut batch = builder.finish();
        batch.min_live_key = checkpoint.then(|| self.oldest_live_key());
        let before = self.pending_bytes;
        self.count_pending();
        self.in_flight_bytes = before.saturating_sub(self.pending_bytes);
        self.urgent = self.spread;
        self.in_flight = Some(self.open);
        self.open = self.open.next();
        Some(batch)
    }

    /// The store has the batch on flash.
    pub fn persisted_batch(&mut self, now: Now, persisted: Persisted) {
        if !self.spread {
            self.persisted = persisted.number;
        }
        self.in_flight = None;
        self.in_flight_bytes = 0;
        self.overhead_bytes = persisted.overhead_bytes;
        self.not_before = self.budget.spend(now.mono, persisted.bytes_written);
    }

    /// The store lost a file and goes on after batch `last`. Nothing counts as persisted beyond what did until all that
    /// is added now is; the batch that completes it deletes the rows that were `salvaged` and not replaced.
    pub fn begin_anew(&mut self, last: BatchNumber, salvaged: Vec<Place>) {
        let anew = Self::new(last, 0, self.budget.clone());
        let old = std::mem::replace(self, anew);
        self.persisted = old.persisted;
        self.not_before = old.not_before;
        self.last_id = old.last_id;
        self.commits = old.commits;
        self.elided = old.elided;
        self.spread = true;
        self.dead = salvaged;
        self.commits_since_checkpoint = CHECKPOINT_COMMITS;
    }

    /// The messages that are added first after [`Ledger::begin_anew`] lay in these places: each is deleted in the batch
    /// that writes its message again, so that a full file has room for both.
    pub fn replace_rows(&mut self, places: Vec<Place>) {
        let replaced: BTreeSet<_> = places.iter().map(|place| place.key).collect();
        let salvaged: BTreeSet<_> = self.dead.iter().map(|place| place.key).collect();
        self.dead.retain(|place| !replaced.contains(&place.key));
        let there = |place: Place| if salvaged.contains(&place.key) { place } else { Place::default() };
        self.replaced = places.into_iter().map(there).collect();
    }

    /// Bytes written since the budget began, for `status`.
    pub fn set_budget(&mut self, now: Mono, bytes_per_day: Option<u64>) {
        let mut budget = FlashBudget::new(bytes_per_day, now);
        budget.written = self.budget.written;
        self.budget = budget;
    }

    /// What was spent of the day's bytes.
    pub const fn budget(&self) -> &FlashBudget {
        &self.budget
    }

    fn bury(&mut self, place: Place, bytes: u64) {
        self.live_bytes -= bytes;
        self.dead_bytes += bytes;
        self.dead.push(place);
    }

    /// One durable taker less. True when the message was waiting in the open batch and needs no flash any more.
    fn release(&mut self, held: &Rc<Held>) -> bool {
        let owed = held.owed.get();
        debug_assert!(owed > 0, "a taker settles once");
        held.owed.set(owed.saturating_sub(1));
        if !held.is_settled() {
            return false;
        }
        if held.stage.get() == Stage::Written {
            self.bury(held.place.get(), stored_bytes(rows::message_bytes(&held.message)));
            if let Some(set) = held.set.take() {
                set.messages.set(set.messages.get() - 1);
                if set.messages.get() == 0 {
                    self.bury(set.place, set.bytes);
                }
            }
            self.live_messages -= 1;
            self.forget_dead_rows();
        } else if held.stage.get() == Stage::Pending {
            self.needs_no_flash(held);
        }
        held.waiter.get().is_some()
    }

    fn forget_dead_rows(&mut self) {
        while self.live.front().is_some_and(|held| held.is_settled()) {
            self.live.pop_front();
        }
        // One old message must not keep the shells of all later ones.
        if self.live.len() > 1024 && self.live.len() > 2 * self.live_messages {
            self.live.retain(|held| !held.is_settled());
        }
    }

    /// No row with a lower key is needed: what a damaged file still shows of them is stale.
    fn oldest_live_key(&self) -> RowKey {
        let set_of = |held: &Rc<Held>| held.set.borrow().as_ref().map(|set| set.place.key);
        let message = self.live.front().and_then(set_of);
        let records = self.records.values().map(|(place, _)| place.key);
        let deltas = self.deltas.first().map(|(place, _)| place.key);
        records.chain(message).chain(deltas).min().unwrap_or_else(|| RowKey::new(self.open, 0))
    }
}

/// Rows that a message may need: its pieces, and a taker set of its own.
const fn rows_of(charge: usize) -> usize {
    3 + charge / limits::ROW_BYTES_MAX
}
