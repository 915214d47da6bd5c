//! Rows leave the window: which ones, in which chunks, and what has to hold before they count as moved.
//!
//! A plan changes nothing. When its chunks are on flash each is looked at again, and it is adopted only if every row is
//! still owed to exactly the planned queues and none was handed out meanwhile. The order of it all is in
//! docs/decisions/0012-cold-rows.md.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use super::Broker;
use super::backlog::{BacklogRequest, Chunk, Moving};
use super::cold::{ChunkRef, Stand, Standing};
use super::held::{Held, Stage, Taker};
use super::ledger::Urgency;
use super::loss::LossReason;
#[cfg(feature = "mutations")]
use super::mutation::{Mutation, is_made};
use super::queue::{Entry, NEVER, Overflow, Queue, QueueIndex};
use super::rows::{self, RecordKey};
use crate::ids::{BatchNumber, ChunkNumber, RowKey};
use crate::store::chunk::{BacklogChanged, CHUNK_BYTES, ChunkPlan};
use crate::time::{Mono, Now};

/// Rows that wait in memory are pressure from here on, whatever the window could hold: bytes of the window.
const HOT_BYTES_MAX: u64 = 1 << 20;
/// A row that is older moves without pressure.
const AGE: Duration = Duration::from_secs(600);
/// Changes for age alone, and looks at what has grown old.
const TICK: Duration = Duration::from_secs(60);
/// Changes under pressure.
const PACE: Duration = Duration::from_secs(1);
/// After the backlog failed or had no room.
const RETRY: Duration = Duration::from_secs(10);
/// Bytes of rows that one change moves. While it moves each of them is in memory about four times.
const ROUND_BYTES: u64 = 1 << 20;
/// What expires sooner stays: a chunk of which a row is gone when it is on flash was written in vain.
const SOON: Duration = Duration::from_secs(5);
/// Chunks of one change.
const CHUNKS_PER_CHANGE_MAX: usize = 512;
/// With so many chunks only large ones are added: each takes memory.
const CHUNKS_MANY: usize = 8_192;
const LARGE_BYTES: u64 = 16 * 1024;
/// So many chunks that wait to be removed are worth a change of their own.
const UNTIDY_MAX: usize = 32;

/// A row that may move.
struct Candidate {
    held: Rc<Held>,
    takers: Vec<(Taker, QueueIndex)>,
}

/// Who is owed a row, at which priority, and about how long it lasts.
type Group = (Vec<Taker>, u8, u32);

impl Broker {
    /// The next thing that the store is asked for beside batches.
    pub fn next_backlog_request(&mut self, now: Now) -> Option<BacklogRequest> {
        if self.backlog.quota == 0 {
            return None;
        }
        self.request_rows(now);
        self.backlog.requests.pop_front()
    }

    /// When the backlog has something to do.
    pub(super) fn backlog_deadline(&self) -> Option<Mono> {
        let backlog = &self.backlog;
        if backlog.quota == 0 {
            return None;
        }
        let reads =
            (backlog.reading.is_none() && !backlog.wanted.is_empty()).then_some(backlog.read_not_before);
        let changes = if backlog.changing.is_some() {
            None
        } else if self.is_pressed() {
            Some(if self.is_urgent() { Mono(0) } else { backlog.not_before })
        } else if backlog.untidy() > UNTIDY_MAX {
            Some(backlog.not_before)
        } else if self.ledger.has_live_messages() || backlog.untidy() > 0 {
            Some(backlog.tick_at.max(backlog.not_before))
        } else {
            None
        };
        [reads, changes].into_iter().flatten().min()
    }

    /// Publishers of durable messages are to wait until rows have moved.
    pub(super) fn is_window_filling(&self) -> bool {
        let backlog = &self.backlog;
        // Only as long as rows do move, or will: what is dead in the window, and what lives in memory only, do not.
        let moves = backlog.changing.is_some() || backlog.takes() && self.is_pressed();
        if !moves || backlog.refused {
            return false;
        }
        let (kept, quota) = (self.ledger.bytes_to_keep(), self.policy.flash_quota_bytes);
        backlog.quota > 0
            && (kept > quota / 8 * 7 || self.memory.get() > self.policy.memory_max / 8 * 7)
            && self.ledger.has_live_messages()
    }

    fn is_pressed(&self) -> bool {
        let live = self.ledger.live_bytes();
        let grown = self.backlog.fruitless_at.is_none_or(|then| live > then + then / 8);
        grown && live > HOT_BYTES_MAX.min(self.policy.flash_quota_bytes / 2)
    }

    fn is_urgent(&self) -> bool {
        let live = self.ledger.live_bytes();
        !self.backlog.refused && live > (HOT_BYTES_MAX / 2 * 3).min(self.policy.flash_quota_bytes / 4 * 3)
    }

    /// Time passed: plans the next change if one is due.
    pub(super) fn tend_backlog(&mut self, now: Now) {
        if self.backlog_deadline().is_none_or(|at| at > now.mono) {
            return;
        }
        self.request_rows(now);
        if self.backlog.changing.is_some() {
            return;
        }
        let aged = self.backlog.tick_at <= now.mono;
        let old = if aged { self.old_batch(now.mono) } else { None };
        let pressed = self.is_pressed();
        if self.memory.get() > self.policy.memory_max / 4 {
            self.give_back_all();
        }
        if !pressed && !aged && self.backlog.untidy() <= UNTIDY_MAX {
            return;
        }
        self.backlog.not_before = now.mono + PACE;
        let until = if pressed { Some(self.ledger.persisted()) } else { old };
        let budget = ROUND_BYTES.min(self.backlog.quota / 8);
        let moving = until.map_or_else(Vec::new, |until| self.plan(now, until, budget));
        self.backlog.fruitless_at = (pressed && moving.is_empty()).then(|| self.ledger.live_bytes());
        let moving = self.within_quota(now, moving);
        let (mut change, sent) = self.backlog.due(self.ledger.persisted());
        change.add = moving.iter().map(plan_of).collect();
        if change.add.is_empty() && change.remove.is_empty() && change.restate.is_empty() {
            return;
        }
        self.backlog.moving = moving;
        self.backlog.changing = Some(sent);
        self.backlog.requests.push_back(BacklogRequest::Change(change));
    }

    /// The newest batch that is older than rows may get, by the looks of the clock.
    fn old_batch(&mut self, now: Mono) -> Option<BatchNumber> {
        self.backlog.tick_at = now + TICK;
        self.backlog.ages.push_back((now, self.ledger.persisted()));
        let mut old = None;
        while let Some((at, batch)) = self.backlog.ages.front().copied()
            && at + AGE <= now
        {
            old = Some(batch);
            self.backlog.ages.pop_front();
        }
        // Still the oldest known when the next look comes.
        if let Some(batch) = old {
            self.backlog.ages.push_front((Mono(0), batch));
        }
        old.filter(|_| self.ledger.has_live_messages())
    }

    /// The change was made, or failed as a whole.
    pub fn backlog_changed(&mut self, now: Now, changed: Option<BacklogChanged>) {
        let Some(sent) = self.backlog.changing.take() else { return };
        let moving = std::mem::take(&mut self.backlog.moving);
        let Some(changed) = changed else {
            self.backlog.refused = true;
            self.backlog.not_before = now.mono + RETRY;
            for moving in moving {
                // It may be there all the same.
                self.backlog.void.insert(moving.chunk.number);
                self.backlog.discard(moving.chunk.number, BatchNumber(0));
            }
            return;
        };
        self.backlog.refused = false;
        self.ledger.spend(now.mono, changed.bytes_written);
        if self.backlog.confirm(sent) {
            self.ledger.touch_soon(now.mono, RecordKey::Backlog);
        }
        if moving.is_empty() {
            return;
        }
        let charges: BTreeMap<ChunkNumber, u64> = changed.added.into_iter().collect();
        self.adopt(now, moving, &charges);
    }

    // Planning.

    /// Rows of batches up to `until` that may move, oldest first, in chunks.
    fn plan(&mut self, now: Now, until: BatchNumber, budget: u64) -> Vec<Moving> {
        let mut found: BTreeMap<RowKey, Candidate> = BTreeMap::new();
        for (at, queue) in (0u32..).zip(&self.queues) {
            if let Some(queue) = queue.as_ref().filter(|queue| queue.may_cool()) {
                let until = until.min(self.ledger.persisted());
                gather(queue, QueueIndex(at), until, now.mono + SOON, budget, &mut found);
            }
        }
        let mut groups: BTreeMap<Group, Vec<(Candidate, u64)>> = BTreeMap::new();
        let mut taken = 0;
        for mut candidate in found.into_values() {
            if candidate.held.owed.get() as usize != candidate.takers.len() {
                // Somebody has it in flight, or keeps it as a last value.
                continue;
            }
            let bytes = row_bytes(&candidate.held);
            if taken > 0 && taken + bytes > budget {
                break;
            }
            taken += bytes;
            candidate.takers.sort_unstable();
            let takers = candidate.takers.iter().map(|(taker, _)| *taker).collect();
            let message = &candidate.held.message;
            let lasting = lasting(message.time_to_live_ms.filter(|_| self.is_looked_over(&candidate)));
            let group = (takers, message.priority, lasting);
            groups.entry(group).or_default().push((candidate, bytes));
        }
        let many = self.backlog.chunks.len() > CHUNKS_MANY;
        let mut moving = Vec::new();
        for ((takers, priority, _), candidates) in groups {
            let mut rest = candidates.into_iter().peekable();
            while rest.peek().is_some() && moving.len() < CHUNKS_PER_CHANGE_MAX {
                let (mut rows, mut filled) = (Vec::new(), 0);
                while let Some((candidate, bytes)) =
                    rest.next_if(|(_, bytes)| filled == 0 || filled + bytes <= CHUNK_BYTES as u64)
                {
                    filled += bytes;
                    rows.push(candidate);
                }
                if !many || filled >= LARGE_BYTES {
                    self.backlog.last = ChunkNumber(self.backlog.last.0 + 1);
                    moving.extend(moving_of(now, self.backlog.last, &takers, priority, rows));
                }
            }
        }
        moving
    }

    /// A session is owed it: what has expired leaves those at once, wherever it stands.
    fn is_looked_over(&self, candidate: &Candidate) -> bool {
        candidate
            .takers
            .iter()
            .any(|(_, index)| self.queue(*index).is_some_and(|queue| queue.named.is_none()))
    }

    /// Makes room in the backlog: the queue with most in it loses its oldest. What does not fit all the same stays where it
    /// is.
    fn within_quota(&mut self, now: Now, mut moving: Vec<Moving>) -> Vec<Moving> {
        let planned = |moving: &[Moving]| moving.len() as u64 * (CHUNK_BYTES as u64 + 512);
        while self.backlog.bytes + planned(&moving) > self.backlog.quota {
            let Some(index) = self.coldest_queue() else { break };
            if !self.lose_front(now, index, LossReason::FlashQuota) {
                break;
            }
            self.dispatch(now, index);
        }
        while self.backlog.bytes + planned(&moving) > self.backlog.quota && !moving.is_empty() {
            moving.pop();
            self.backlog.refused |= moving.is_empty();
        }
        moving
    }

    /// The queue with most in the backlog that may lose something.
    fn coldest_queue(&self) -> Option<QueueIndex> {
        let may_lose = |queue: &Queue| queue.bounds.overflow == Overflow::DropOldest;
        let queues = (0u32..).zip(&self.queues).filter_map(|(at, queue)| Some((at, queue.as_ref()?)));
        let charged = queues.filter(|(_, queue)| may_lose(queue)).filter_map(|(at, queue)| {
            let bytes = queue.cold.as_ref()?.bytes();
            (bytes > 0).then_some((bytes, at))
        });
        charged.max().map(|(_, at)| QueueIndex(at))
    }

    // Adopting.

    /// The chunks are on flash: those whose rows are as they were planned take their place.
    fn adopt(&mut self, now: Now, moving: Vec<Moving>, charges: &BTreeMap<ChunkNumber, u64>) {
        let places: BTreeMap<RowKey, usize> = moving
            .iter()
            .enumerate()
            .flat_map(|(at, moving)| moving.rows.iter().map(move |held| (held.place.get().key, at)))
            .collect();
        let involved: BTreeSet<QueueIndex> = moving.iter().flat_map(|moving| moving.queues.clone()).collect();
        let mut waiting: BTreeMap<(usize, QueueIndex), usize> = BTreeMap::new();
        for index in &involved {
            let Some(queue) = self.queue(*index) else { continue };
            let beyond = queue.handed_out_order();
            for entry in queue.levels().flat_map(|level| queue.coolable(level)) {
                if let Some(at) =
                    places.get(&entry.held.place.get().key).filter(|_| may_move(queue, entry, beyond))
                {
                    *waiting.entry((*at, *index)).or_default() += 1;
                }
            }
        }
        let is_whole = |at: usize, moving: &Moving| {
            #[cfg(feature = "mutations")]
            if is_made(Mutation::AdoptUnseen) {
                return charges.contains_key(&moving.chunk.number);
            }
            let owed = moving.queues.len();
            charges.contains_key(&moving.chunk.number)
                && moving
                    .rows
                    .iter()
                    .all(|held| held.owed.get() as usize == owed && held.stage.get() == Stage::Written)
                && moving.queues.iter().zip(moving.chunk.takers.borrow().iter()).all(|(index, taker)| {
                    self.queue(*index).is_some_and(|queue| queue.id == taker.queue)
                        && waiting.get(&(at, *index)) == Some(&moving.rows.len())
                })
        };
        let whole: Vec<bool> = moving.iter().enumerate().map(|(at, moving)| is_whole(at, moving)).collect();
        for index in &involved {
            let Some(queue) = self.queue_mut(*index) else { continue };
            take_out(queue, |key| places.get(&key).is_some_and(|at| whole.get(*at) == Some(&true)));
        }
        let mut records = BTreeSet::new();
        for (moving, whole) in moving.into_iter().zip(whole) {
            let number = moving.chunk.number;
            self.backlog.adopted = self.backlog.adopted.max(number);
            if !whole {
                self.backlog.void.insert(number);
                self.backlog.discard(number, self.ledger.open_batch());
                continue;
            }
            let charge = charges.get(&number).copied().unwrap_or(0);
            self.place(Moving { chunk: Chunk { charge, ..moving.chunk }, ..moving }, &mut records);
        }
        let urgency = if self.is_pressed() { Urgency::Now } else { Urgency::Lazy(Duration::from_secs(1)) };
        for record in records {
            self.ledger.touch(now.mono, record, urgency);
        }
        self.ledger.moved_out(now.mono, urgency);
        for index in involved {
            self.settle_regions(now, index);
        }
    }

    /// Puts an adopted chunk in the place of its rows.
    fn place(&mut self, moving: Moving, records: &mut BTreeSet<RecordKey>) {
        for held in &moving.rows {
            self.ledger.move_out(held);
        }
        let expires: Vec<Mono> =
            moving.queues.iter().map(|index| self.first_expiry(*index, &moving)).collect();
        let chunk = Rc::new(moving.chunk);
        let takers = chunk.takers.borrow().clone();
        for ((index, taker), expires_at) in moving.queues.iter().zip(takers).zip(expires) {
            let Some(queue) = self.queue_mut(*index) else { continue };
            let level = queue.level_of(chunk.priority);
            let part = ChunkRef {
                chunk: Rc::clone(&chunk),
                from: chunk.first,
                survivors: Vec::new(),
                messages: chunk.messages,
                bytes: chunk.bytes,
                redelivered: super::warming::is_redelivered(taker.flags),
                flags: taker.flags,
                expires_at,
            };
            records.insert(RecordKey::Cold(queue.id));
            queue.cold.get_or_insert_default().insert_chunk(level, part);
        }
        self.backlog.insert(chunk);
    }

    /// When the first of the rows expires in a queue.
    fn first_expiry(&self, index: QueueIndex, moving: &Moving) -> Mono {
        let Some(queue) = self.queue(index) else { return NEVER };
        let known = moving.chunk.known_since;
        let expiries = moving.rows.iter().map(|held| super::warming::expiry_at(known, queue, held));
        expiries.min().unwrap_or(NEVER)
    }
}

/// The plan as the store takes it.
fn plan_of(moving: &Moving) -> ChunkPlan {
    ChunkPlan {
        number: moving.chunk.number,
        summary: moving.chunk.summary(),
        rows: moving.rows.iter().map(|held| held.place.get()).collect(),
    }
}

fn moving_of(
    now: Now,
    number: ChunkNumber,
    takers: &[Taker],
    priority: u8,
    rows: Vec<Candidate>,
) -> Option<Moving> {
    let (first, last) = (rows.first()?, rows.last()?);
    let queues = first.takers.iter().map(|(_, index)| *index).collect();
    let chunk = Chunk {
        number,
        charge: 0,
        first: first.held.place.get().key,
        last: last.held.place.get().key,
        messages: u32::try_from(rows.len()).unwrap_or(u32::MAX),
        bytes: rows.iter().map(|row| row.held.message.charge() as u64).sum(),
        priority,
        first_received_at: first.held.message.received_at,
        last_received_at: last.held.message.received_at,
        trusted: first.held.message.received_trusted,
        time_to_live_ms: rows.iter().filter_map(|row| row.held.message.time_to_live_ms).min(),
        known_since: now,
        takers: RefCell::new(takers.to_vec()),
    };
    Some(Moving { chunk, rows: rows.into_iter().map(|row| row.held).collect(), queues })
}

/// Collects the rows of a queue that may move, and that the queue is owed them.
fn gather(
    queue: &Queue,
    index: QueueIndex,
    until: BatchNumber,
    expiring_by: Mono,
    budget: u64,
    found: &mut BTreeMap<RowKey, Candidate>,
) {
    let beyond = queue.handed_out_order();
    for level in queue.levels() {
        let (mut last, mut bytes) = (RowKey(0), 0);
        for entry in queue.coolable(level) {
            let key = entry.held.place.get().key;
            if entry.held.stage.get() == Stage::Written && key.batch() > until || bytes > budget {
                break;
            }
            // Where the order of keys is not that of the queue, the order would not be kept.
            if !may_move(queue, entry, beyond) || key <= last || entry.expires_at <= expiring_by {
                continue;
            }
            last = key;
            bytes += row_bytes(&entry.held);
            let taker = Taker { queue: queue.id, flags: entry.taker_flags() };
            let candidate = found
                .entry(key)
                .or_insert_with(|| Candidate { held: Rc::clone(&entry.held), takers: Vec::new() });
            candidate.takers.push((taker, index));
        }
    }
}

/// True for a message whose row may leave the window as far as this queue is concerned; `beyond` is
/// [`Queue::handed_out_order`].
fn may_move(queue: &Queue, entry: &Entry, beyond: u64) -> bool {
    entry.held.stage.get() == Stage::Written
        && entry.is_durable(queue.durable)
        // A chunk names its takers itself, whatever the row's own set says.
        && (!entry.joined || entry.share != 0)
        && !entry.twin
        && !entry.retained
        && entry.returns == 0
        && (queue.named.is_none() || entry.order > beyond)
}

/// Messages that last about as long expire about in the order of their keys: a chunk of them loses its first rows, and one
/// of messages that never expire is never read for it.
fn lasting(time_to_live_ms: Option<u64>) -> u32 {
    time_to_live_ms.map_or(0, |ms| 1 + ms.max(1).ilog2())
}

/// What a row takes of a chunk, roughly.
fn row_bytes(held: &Held) -> u64 {
    let bytes = rows::message_bytes(&held.message);
    (bytes + 20 * (1 + bytes / crate::limits::ROW_BYTES_MAX)).saturating_sub(SLACK_BYTES) as u64
}

/// What the upper bound of a row's length is above its length, mostly.
const SLACK_BYTES: usize = 16;

/// Takes the entries out whose row moved. Those between them stay between the chunks, those behind become the tail.
fn take_out(queue: &mut Queue, moved: impl Fn(RowKey) -> bool) {
    for level in queue.levels() {
        let is_moved =
            |entry: &Entry| moved(entry.held.place.get().key) && entry.held.stage.get() == Stage::Written;
        if let Some(region) = queue.cold.as_mut().and_then(|cold| cold.regions.get_mut(&level)) {
            region.kept.retain(|(_, entry)| !is_moved(entry));
            let Some(last) = region.tail.iter().rposition(is_moved) else { continue };
            let rest = region.tail.split_off(last + 1);
            let front = std::mem::replace(&mut region.tail, rest);
            keep_rest(&mut region.kept, front, is_moved);
            continue;
        }
        let Some(list) = queue.level_mut(level) else { continue };
        let (Some(first), Some(last)) = (list.iter().position(is_moved), list.iter().rposition(is_moved))
        else {
            continue;
        };
        let order = list.get(first).map_or(0, |entry| entry.order.saturating_sub(1));
        let tail = list.split_off(last + 1);
        let front = list.split_off(first);
        list.shrink_to_fit();
        let region = queue.cold.get_or_insert_default().regions.entry(level).or_default();
        region.order = order;
        region.tail = tail;
        keep_rest(&mut region.kept, front, is_moved);
    }
}

/// Keeps those entries of a run that did not move.
fn keep_rest(kept: &mut VecDeque<(Stand, Entry)>, run: VecDeque<Entry>, is_moved: impl Fn(&Entry) -> bool) {
    let mut standing = Standing::new();
    let mut rest = Vec::new();
    for entry in run.into_iter().rev() {
        let stand = standing.of(&entry);
        if !is_moved(&entry) {
            rest.push((stand, entry));
        }
    }
    kept.extend(rest.into_iter().rev());
}
