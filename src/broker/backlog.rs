//! What the broker knows of the backlog: its chunks, who is owed what of each, what is under way with the store.
//!
//! Owns the account of chunks. Which rows become one is decided in `cooling`, reading them back in `warming`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::cold::{Cold, Run};
use super::held::{Held, Taker};
use super::queue::QueueIndex;
use super::rows::{put_taker_set, read_taker_set};
use crate::ids::{BatchNumber, ChunkNumber, QueueId, RowKey};
use crate::message::record::{Reader, put_integer, put_optional, read_optional};
use crate::store::chunk::{BacklogChange, ChunkRead};
use crate::time::{Mono, Now, Wall};

/// What is asked of the store beside batches. One change and one read at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BacklogRequest {
    /// Answer with [`Broker::backlog_changed`](super::Broker::backlog_changed).
    Change(BacklogChange),
    /// Answer with [`Broker::backlog_read`](super::Broker::backlog_read).
    Read(ChunkRead),
}

/// A chunk as the broker knows it: all its rows have the same takers and the same priority.
#[derive(Debug)]
pub(super) struct Chunk {
    pub number: ChunkNumber,
    /// What it takes of the backlog's quota.
    pub charge: u64,
    pub first: RowKey,
    pub last: RowKey,
    pub messages: u32,
    /// What its messages are charged in a queue.
    pub bytes: u64,
    pub priority: u8,
    pub first_received_at: Wall,
    pub last_received_at: Wall,
    /// The first was received by a clock that was trusted.
    pub trusted: bool,
    /// The shortest time to live among its messages.
    pub time_to_live_ms: Option<u64>,
    /// When it moved, or the start that found it.
    pub known_since: Now,
    /// Who is still owed something of it.
    pub takers: RefCell<Vec<Taker>>,
}

// Summary: version (byte), priority (byte), trusted (byte); messages, bytes, first and last key, first and last time (integers);
// shortest time to live (optional integer); then the takers as a taker set.

const SUMMARY_VERSION: u8 = 1;

impl Chunk {
    pub fn summary(&self) -> Vec<u8> {
        let mut out = vec![SUMMARY_VERSION, self.priority, u8::from(self.trusted)];
        let (first, last) = (self.first_received_at.0, self.last_received_at.0);
        for value in [u64::from(self.messages), self.bytes, self.first.0, self.last.0, first, last] {
            put_integer(&mut out, value);
        }
        put_optional(&mut out, self.time_to_live_ms);
        put_taker_set(&mut out, &self.takers.borrow());
        out
    }

    pub fn read(now: Now, number: ChunkNumber, charge: u64, summary: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(summary);
        if reader.byte()? != SUMMARY_VERSION {
            return None;
        }
        Some(Self {
            number,
            charge,
            priority: reader.byte()?,
            trusted: reader.byte()? == 1,
            messages: reader.integer32()?,
            bytes: reader.integer()?,
            first: RowKey(reader.integer()?),
            last: RowKey(reader.integer()?),
            first_received_at: Wall(reader.integer()?),
            last_received_at: Wall(reader.integer()?),
            time_to_live_ms: read_optional(&mut reader)?,
            known_since: now,
            takers: RefCell::new(read_taker_set(reader.remaining())?),
        })
    }
}

/// Rows on their way into a chunk. They stay what they are until the chunk is on flash.
#[derive(Debug)]
pub(super) struct Moving {
    pub chunk: Chunk,
    pub rows: Vec<Rc<Held>>,
    /// The queues, in the order of the chunk's takers.
    pub queues: Vec<QueueIndex>,
}

/// Rows that were asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub index: QueueIndex,
    pub id: QueueId,
    pub level: u8,
    pub number: ChunkNumber,
    /// Where the rows begin.
    pub from: RowKey,
    /// Not to be put in memory: only what leaves the chunk is looked for.
    pub sifts: bool,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// What chunks may take; 0: nothing moves.
    pub quota: u64,
    /// The highest number that was given out.
    pub last: ChunkNumber,
    /// Chunks up to this one count ...
    pub adopted: ChunkNumber,
    /// ... but these, which hold nothing and were not removed yet.
    pub void: BTreeSet<ChunkNumber>,
    /// Chunks that somebody is owed something of.
    pub chunks: BTreeMap<ChunkNumber, Rc<Chunk>>,
    /// What they take of the quota.
    pub bytes: u64,
    /// Requests that nobody has taken yet.
    pub requests: VecDeque<BacklogRequest>,
    pub moving: Vec<Moving>,
    /// The change that is under way.
    pub changing: Option<Sent>,
    pub reading: Option<Reading>,
    /// Queues that wait for rows.
    pub wanted: VecDeque<(QueueIndex, QueueId)>,
    /// Chunks to remove once the batch is on flash, by which nobody is owed anything of them.
    dead: BTreeMap<ChunkNumber, BatchNumber>,
    /// Chunks whose summary names a queue that is done with it, with the batch that says so.
    stale: BTreeMap<ChunkNumber, BatchNumber>,
    /// Queues that are done with a chunk whose summary still names them.
    pub done: BTreeMap<ChunkNumber, BTreeSet<QueueId>>,
    /// No change before.
    pub not_before: Mono,
    /// The next look at what has grown old.
    pub tick_at: Mono,
    /// No read before: the last one failed.
    pub read_not_before: Mono,
    /// The store had no room, or failed.
    pub refused: bool,
    /// Live bytes of the window when a look last found nothing to move.
    pub fruitless_at: Option<u64>,
    /// When batches were the newest ones: what is older than ten minutes.
    pub ages: VecDeque<(Mono, BatchNumber)>,
}

/// What a change says beside its new chunks.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    removed: Vec<ChunkNumber>,
    restated: Vec<(ChunkNumber, BatchNumber, BTreeSet<QueueId>)>,
}

impl Backlog {
    pub fn new(quota: u64) -> Self {
        Self { quota, ..Self::default() }
    }

    /// `queue` is owed nothing of the chunk any more, says batch `by`. True when nobody is.
    pub fn settle(&mut self, chunk: &Rc<Chunk>, queue: QueueId, by: BatchNumber) -> bool {
        chunk.takers.borrow_mut().retain(|taker| taker.queue != queue);
        let number = chunk.number;
        self.done.entry(number).or_default().insert(queue);
        let over = chunk.takers.borrow().is_empty();
        if over {
            if self.chunks.remove(&number).is_some() {
                self.bytes -= chunk.charge;
            }
            self.stale.remove(&number);
            self.dead.insert(number, by);
        } else {
            self.stale.insert(number, by);
        }
        over
    }

    /// A chunk that holds nothing for anybody is to be removed.
    pub fn discard(&mut self, number: ChunkNumber, by: BatchNumber) {
        self.dead.insert(number, by);
    }

    /// What may be removed and restated, `persisted` being on flash.
    pub fn due(&self, persisted: BatchNumber) -> (BacklogChange, Sent) {
        let removed: Vec<_> =
            self.dead.iter().filter(|(_, by)| **by <= persisted).map(|(number, _)| *number).collect();
        let mut restate = Vec::new();
        let mut restated = Vec::new();
        for (number, by) in self.stale.iter().filter(|(_, by)| **by <= persisted).take(RESTATED_MAX) {
            let Some(chunk) = self.chunks.get(number) else { continue };
            restate.push((*number, chunk.summary()));
            restated.push((*number, *by, self.done.get(number).cloned().unwrap_or_default()));
        }
        let change = BacklogChange { add: Vec::new(), restate, remove: removed.clone() };
        (change, Sent { removed, restated })
    }

    /// Chunks that wait to be removed or restated.
    pub fn untidy(&self) -> usize {
        self.dead.len() + self.stale.len()
    }

    /// The change is on flash. True when the list of void chunks is shorter.
    pub fn confirm(&mut self, sent: Sent) -> bool {
        let mut shorter = false;
        for number in sent.removed {
            self.dead.remove(&number);
            self.done.remove(&number);
            shorter |= self.void.remove(&number);
        }
        for (number, by, told) in sent.restated {
            if self.stale.get(&number) == Some(&by) {
                self.stale.remove(&number);
            }
            if let Some(done) = self.done.get_mut(&number) {
                done.retain(|queue| !told.contains(queue));
                if done.is_empty() {
                    self.done.remove(&number);
                }
            }
        }
        shorter
    }

    /// A chunk that counts.
    pub fn insert(&mut self, chunk: Rc<Chunk>) {
        self.bytes += chunk.charge;
        self.last = self.last.max(chunk.number);
        self.chunks.insert(chunk.number, chunk);
    }

    /// True while rows can leave the window.
    pub const fn takes(&self) -> bool {
        self.quota > 0 && !self.refused && self.fruitless_at.is_none()
    }

    /// The lowest chunk that may be there.
    pub fn lowest(&self) -> ChunkNumber {
        let kept = self.chunks.keys().next();
        kept.into_iter().chain(self.dead.keys().next()).min().copied().unwrap_or(self.adopted)
    }
}

/// Summaries written anew in one change.
const RESTATED_MAX: usize = 512;

// Record of the backlog: adopted, lowest, then the void chunks (count, integers).

pub(super) fn put_adopted(out: &mut Vec<u8>, backlog: &Backlog) {
    put_integer(out, backlog.adopted.0);
    put_integer(out, backlog.lowest().0);
    put_integer(out, backlog.void.len() as u64);
    for number in &backlog.void {
        put_integer(out, number.0);
    }
}

/// What the window says about the backlog.
#[derive(Debug, Default)]
pub(super) struct Adopted {
    pub adopted: ChunkNumber,
    pub lowest: ChunkNumber,
    pub void: BTreeSet<ChunkNumber>,
}

impl Adopted {
    pub fn read(content: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(content);
        let (adopted, lowest) = (ChunkNumber(reader.integer()?), ChunkNumber(reader.integer()?));
        let mut void = BTreeSet::new();
        for _ in 0..reader.integer()? {
            void.insert(ChunkNumber(reader.integer()?));
        }
        reader.is_empty().then_some(Self { adopted, lowest, void })
    }
}

// Record of what a queue has in the backlog: messages, bytes, time of the first and the last (integers).

/// `None` when there is nothing.
pub(super) fn put_held(cold: &Cold) -> Option<Vec<u8>> {
    let parts = || cold.chunks().map(|part| &part.chunk);
    let open = || cold.open.values().map(|open| &open.chunk);
    let first = parts().chain(open()).map(|chunk| chunk.first_received_at.0).min()?;
    let last = parts().chain(open()).map(|chunk| chunk.last_received_at.0).max()?;
    let in_memory = cold.open.values();
    let (messages, bytes) =
        in_memory.fold((0, 0), |sum, open| (sum.0 + u64::from(open.messages), sum.1 + open.bytes));
    let mut out = Vec::new();
    for value in [messages + u64::from(cold.messages()), bytes + cold.bytes(), first, last] {
        put_integer(&mut out, value);
    }
    Some(out)
}

/// What a queue should find in the backlog, as far as the window knows.
pub(super) fn read_held(content: &[u8]) -> Option<Run> {
    let mut reader = Reader::new(content);
    let (messages, bytes) = (reader.integer()?, reader.integer()?);
    let (first, last) = (Wall(reader.integer()?), Wall(reader.integer()?));
    Some(Run { messages, bytes, first: (RowKey(0), first), last: (RowKey(0), last) })
}
