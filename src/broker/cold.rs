//! The part of a queue that is on flash only: chunks of its messages, and what stands between and behind them.
//!
//! Plain data with its invariants, like `queue`; what moves there is `cooling`'s, what comes back `warming`'s. A queue
//! has a *region* for each of its priorities of which something is cold:
//!
//! ```text
//! ready (in memory, next to be handed over) | region: chunks and kept entries, merged by key | tail (in memory)
//! ```
//!
//! What is in `ready` comes before all of the region, and its chunks and kept entries before all of the tail. So entries
//! leave the region at its front only, and newcomers join the tail.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::rc::Rc;

use super::backlog::Chunk;
use super::held::TAKER_SHARED;
use super::queue::{Entry, NEVER, Queue, QueueKind};
use super::rows::{ColdPart, Settled};
use crate::ids::{ChunkNumber, RowKey};
use crate::message::Assurance;
use crate::time::{Mono, Wall};

/// What a queue has in one chunk and not in memory.
#[derive(Clone, Debug)]
pub(super) struct ChunkRef {
    pub chunk: Rc<Chunk>,
    /// Everything below is in memory or settled, but the survivors.
    pub from: RowKey,
    /// Ascending.
    pub survivors: Vec<RowKey>,
    pub messages: u32,
    pub bytes: u64,
    /// They may have been sent before.
    pub redelivered: bool,
    /// The low bits of the taker's flags.
    pub flags: u8,
    /// When the first of them may expire.
    pub expires_at: Mono,
}

impl ChunkRef {
    /// The first key that may still come.
    pub fn next(&self) -> RowKey {
        self.survivors.first().map_or(self.from, |first| self.from.min(*first))
    }

    /// True when the row is one of those that are still to come.
    pub fn wants(&self, key: RowKey) -> bool {
        key >= self.from || self.survivors.binary_search(&key).is_ok()
    }

    /// Of a part of which all rows were read these stay, in ascending order; `gone` is the last key that does not.
    pub fn leave_only(&mut self, mut staying: Vec<RowKey>, bytes: u64, gone: Option<RowKey>) {
        self.messages = u32::try_from(staying.len()).unwrap_or(u32::MAX);
        self.bytes = bytes;
        self.from = self.from.max(gone.map_or(RowKey(0), |gone| RowKey(gone.0.saturating_add(1))));
        staying.truncate(staying.partition_point(|key| *key < self.from));
        self.survivors = staying;
    }

    /// True when the queue has had some of the chunk.
    pub fn is_begun(&self) -> bool {
        self.from > self.chunk.first || !self.survivors.is_empty()
    }

    /// What a receipt says when all of it is lost.
    pub fn run(&self) -> Run {
        Run {
            messages: u64::from(self.messages),
            bytes: self.bytes,
            first: (self.next(), self.chunk.first_received_at),
            last: (self.chunk.last, self.chunk.last_received_at),
        }
    }
}

/// Where an entry stands in a region: at its key, or right behind a key when it has no row.
pub(super) type Stand = (RowKey, Behind);

/// Whether an entry stands at its key or behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Behind {
    No,
    Yes,
}

/// Where the entries of a run stand, the last one first: each one at its own key, those without a row behind the key before
/// the next one's.
#[derive(Debug)]
pub(super) struct Standing(RowKey);

impl Standing {
    pub const fn new() -> Self {
        Self(RowKey(u64::MAX))
    }

    /// The next entry towards the front.
    pub fn of(&mut self, entry: &Entry) -> Stand {
        let key = entry.held.place.get().key;
        if key == RowKey(0) {
            return (RowKey(self.0.0.saturating_sub(1)), Behind::Yes);
        }
        self.0 = self.0.min(key);
        (self.0, Behind::No)
    }
}

/// A run of messages that left their queue unread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub messages: u64,
    pub bytes: u64,
    pub first: (RowKey, Wall),
    pub last: (RowKey, Wall),
}

/// A chunk of which the queue has messages in memory that are not settled.
#[derive(Debug)]
pub(super) struct OpenChunk {
    pub chunk: Rc<Chunk>,
    pub messages: u32,
    pub bytes: u64,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Region {
    /// By the next key.
    chunks: VecDeque<ChunkRef>,
    /// Entries that stay in memory, or were read back, by where they stand.
    pub kept: VecDeque<(Stand, Entry)>,
    pub tail: VecDeque<Entry>,
    /// Order of the last entry that left at the front. What is read back is numbered on from it, and never reaches the
    /// order of what was behind it when it moved.
    pub order: u64,
}

impl Region {
    pub fn front(&self) -> Option<&ChunkRef> {
        self.chunks.front()
    }

    pub fn chunks(&self) -> impl Iterator<Item = &ChunkRef> {
        self.chunks.iter()
    }

    /// Moves what comes next to `ready`. True when the region is empty afterwards.
    pub fn advance(&mut self, ready: &mut VecDeque<Entry>) -> bool {
        let order = &mut self.order;
        let mut pass = |mut entry: Entry| {
            *order = entry.order.max(*order + 1);
            entry.order = *order;
            ready.push_back(entry);
        };
        while let Some((stand, _)) = self.kept.front()
            && self.chunks.front().is_none_or(|chunk| stand.0 < chunk.next())
            && let Some((_, entry)) = self.kept.pop_front()
        {
            pass(entry);
        }
        if !self.chunks.is_empty() {
            return false;
        }
        self.tail.drain(..).for_each(pass);
        true
    }

    /// Adds an entry in its place between the chunks.
    pub fn insert_kept(&mut self, stand: Stand, entry: Entry) {
        let at = self.kept.partition_point(|(other, _)| *other <= stand);
        self.kept.insert(at, (stand, entry));
    }

    /// True when a key stands among what is here, before the tail.
    pub fn holds(&self, key: RowKey) -> bool {
        let chunks = self.chunks.iter().map(|part| part.chunk.last);
        let last = chunks.chain(self.kept.back().map(|(stand, _)| stand.0)).max();
        self.begins_before(key) && last.is_some_and(|last| key <= last)
    }

    /// True when something here comes before a key.
    pub fn begins_before(&self, key: RowKey) -> bool {
        let first = self.chunks.front().map(ChunkRef::next);
        first.into_iter().chain(self.kept.front().map(|(stand, _)| stand.0)).any(|first| first <= key)
    }

    /// Messages in memory, by their place.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.kept.iter().map(|(_, entry)| entry).chain(&self.tail)
    }
}

/// What a queue has beside its other parts once something of it is cold.
#[derive(Debug, Default)]
pub(super) struct Cold {
    /// By priority, as the queue tells them apart.
    pub regions: BTreeMap<u8, Region>,
    /// Chunks with unsettled messages of this queue in memory.
    pub open: BTreeMap<ChunkNumber, OpenChunk>,
    /// Messages that are not in memory, and their bytes.
    messages: u32,
    bytes: u64,
    /// It waits for its turn to have rows read back.
    pub queued: bool,
    /// Rows are to come back though no consumer is there: somebody asks, something expires or must make room.
    pub needed: bool,
    /// Something of a session may have expired, wherever it stands.
    pub expiring: bool,
    /// What shared subscriptions brought is wanted for other members, wherever it stands.
    pub lending: bool,
    /// No member that is there takes anything from chunks that begin before.
    pub lends_from: RowKey,
}

impl Cold {
    /// Messages that are not in memory.
    pub const fn messages(&self) -> u32 {
        self.messages
    }

    /// Their bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Messages in all regions, those in memory too.
    pub fn waiting(&self) -> usize {
        let in_memory: usize =
            self.regions.values().map(|region| region.kept.len() + region.tail.len()).sum();
        self.messages as usize + in_memory
    }

    /// Adds a chunk in its place.
    pub fn insert_chunk(&mut self, level: u8, chunk: ChunkRef) {
        self.messages += chunk.messages;
        self.bytes += chunk.bytes;
        let chunks = &mut self.regions.entry(level).or_default().chunks;
        let at = chunks.partition_point(|other| other.next() < chunk.next());
        chunks.insert(at, chunk);
    }

    /// Takes the first chunk of a region out.
    pub fn pop_chunk(&mut self, level: u8) -> Option<ChunkRef> {
        let chunk = self.regions.get_mut(&level)?.chunks.pop_front()?;
        self.messages -= chunk.messages;
        self.bytes -= chunk.bytes;
        Some(chunk)
    }

    /// Takes the chunk of this number out, wherever it is.
    pub fn take_chunk(&mut self, level: u8, number: ChunkNumber) -> Option<ChunkRef> {
        let chunks = &mut self.regions.get_mut(&level)?.chunks;
        let at = chunks.iter().position(|chunk| chunk.chunk.number == number)?;
        let chunk = chunks.remove(at)?;
        self.messages -= chunk.messages;
        self.bytes -= chunk.bytes;
        Some(chunk)
    }

    pub fn chunks(&self) -> impl Iterator<Item = &ChunkRef> {
        self.regions.values().flat_map(Region::chunks)
    }

    /// When the first of the messages that are not in memory may expire.
    pub fn first_expiry(&self) -> Option<Mono> {
        self.chunks().map(|part| part.expires_at).filter(|at| *at != NEVER).min()
    }

    /// Messages in memory that are not ready.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.regions.values().flat_map(Region::entries)
    }

    /// Messages in memory that are not ready and whose key may be below `mark`: those between the chunks, and what of
    /// the tail stands below it.
    pub fn entries_below(&self, mark: RowKey) -> impl Iterator<Item = &Entry> {
        let below = move |entry: &&Entry| entry.held.place.get().key < mark;
        self.regions.values().flat_map(move |region| {
            let kept = region.kept.iter().map(|(_, entry)| entry);
            kept.chain(region.tail.iter().take_while(below))
        })
    }

    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.regions
            .values_mut()
            .flat_map(|region| region.kept.iter_mut().map(|(_, entry)| entry).chain(&mut region.tail))
    }

    /// At-least-once messages up to this key may have been sent.
    pub fn may_be_sent(&mut self, up_to: RowKey) {
        for part in self.regions.values_mut().flat_map(|region| &mut region.chunks) {
            let at_least_once = part.flags & 0x03 == Assurance::AtLeastOnce.code();
            part.redelivered |= at_least_once && part.next() <= up_to;
        }
    }

    /// True when nothing is left of it.
    pub fn is_over(&self) -> bool {
        self.regions.is_empty() && self.open.is_empty()
    }

    /// The first message of a region that is in memory.
    pub fn pop_entry(&mut self) -> Option<Entry> {
        for region in self.regions.values_mut().rev() {
            let popped = region.kept.pop_front().map(|(_, entry)| entry).or_else(|| region.tail.pop_front());
            if popped.is_some() {
                return popped;
            }
        }
        None
    }

    /// The newest message, if it is in memory.
    pub fn pop_newest(&mut self) -> Option<Entry> {
        self.regions.values_mut().find_map(|region| region.tail.pop_back())
    }

    /// Chunks of which a start must be told what the queue still has: those that were begun.
    pub fn begun(&self) -> Vec<ChunkNumber> {
        let begun = self.chunks().filter(|chunk| chunk.is_begun()).map(|chunk| chunk.chunk.number);
        let mut numbers: Vec<_> = begun.chain(self.open.keys().copied()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The queue's part of a chunk: nothing in memory, nothing to come.
    pub fn is_done_with(&self, number: ChunkNumber) -> bool {
        !self.open.contains_key(&number) && self.chunks().all(|chunk| chunk.chunk.number != number)
    }
}

impl Queue {
    /// True when rows of it may leave the window.
    pub fn may_cool(&self) -> bool {
        self.durable
            && self.messages > 0
            && self.kind != QueueKind::Collection
            && self.named().is_none_or(|named| named.delays.is_none())
    }

    /// The priorities that it tells apart.
    pub fn levels(&self) -> RangeInclusive<u8> {
        0..=self.named().map_or(0, |named| named.settings().priority_max)
    }

    /// The level of a message of this priority.
    pub fn level_of(&self, priority: u8) -> u8 {
        priority.min(*self.levels().end())
    }

    /// What is ready in a level.
    pub fn level(&self, level: u8) -> &VecDeque<Entry> {
        self.named().and_then(|named| named.overtaking(level)).unwrap_or(&self.ready)
    }

    pub fn level_mut(&mut self, level: u8) -> Option<&mut VecDeque<Entry>> {
        match &mut self.named {
            Some(named) if level > 0 => named.overtaking_mut(level),
            _ => Some(&mut self.ready),
        }
    }

    /// What waits in a session's queue and is in memory, wherever it stands, in order.
    pub fn waiting(&self) -> impl Iterator<Item = &Entry> {
        self.ready.iter().chain(self.cold.iter().flat_map(|cold| cold.entries()))
    }

    /// Takes those out of what [`Queue::waiting`] shows that are wanted.
    pub fn take_waiting(&mut self, mut wanted: impl FnMut(&Entry) -> bool) -> Vec<Entry> {
        let mut taken = Vec::from(take_out(&mut self.ready, &mut wanted));
        for region in self.cold.iter_mut().flat_map(|cold| cold.regions.values_mut()) {
            let kept = take_out(&mut region.kept, |(_, entry)| wanted(entry));
            taken.extend(kept.into_iter().map(|(_, entry)| entry));
            taken.extend(take_out(&mut region.tail, &mut wanted));
        }
        for entry in &taken {
            self.discharge(entry);
        }
        taken
    }

    fn region(&self, level: u8) -> Option<&Region> {
        self.cold.as_ref()?.regions.get(&level)
    }

    /// Somebody takes from it.
    pub fn has_taker(&self) -> bool {
        match self.named() {
            Some(named) => !named.consumers.is_empty(),
            None => self.consumer.is_some(),
        }
    }

    /// Messages of a level whose rows may leave the window, in order: all but what comes next for a consumer.
    pub fn coolable(&self, level: u8) -> impl Iterator<Item = &Entry> {
        let region = self.region(level);
        let ready = region.is_none().then(|| self.level(level));
        let head = self.has_taker();
        let mut bytes = 0;
        let beyond = move |(at, entry): &(usize, &Entry)| {
            bytes += entry.charge();
            head && *at < HEAD_MESSAGES && bytes < HEAD_BYTES
        };
        let ready = ready.into_iter().flatten().enumerate().skip_while(beyond).map(|(_, entry)| entry);
        ready.chain(region.into_iter().flat_map(Region::entries))
    }

    /// Puts a newcomer behind all that came before it. Sessions and collections.
    pub fn push(&mut self, entry: Entry) {
        match self.cold.as_mut().and_then(|cold| cold.regions.get_mut(&0)) {
            Some(region) => region.tail.push_back(entry),
            None => self.ready.push_back(entry),
        }
    }

    /// Moves a newcomer that [`Named::push`](super::named::Named::push) made ready behind what is cold.
    pub fn settle_newcomer(&mut self, priority: u8) {
        let level = self.level_of(priority);
        if self.region(level).is_some()
            && let Some(entry) = self.level_mut(level).and_then(VecDeque::pop_back)
            && let Some(region) = self.cold.as_mut().and_then(|cold| cold.regions.get_mut(&level))
        {
            region.tail.push_back(entry);
        }
    }

    /// The highest order among what is handed out and not settled. It may come back, and must find what stood before it still
    /// before it: what has a lower order stays in memory.
    pub fn handed_out_order(&self) -> u64 {
        let unsettled = self.named().into_iter().flat_map(|named| &named.unsettled);
        unsettled.map(|unsettled| unsettled.entry.order).max().unwrap_or(0)
    }

    /// True when what comes next is not in memory, though there is something.
    pub fn awaits_rows(&self) -> bool {
        let Some(cold) = &self.cold else { return false };
        let Some((coldest, _)) = cold.regions.last_key_value() else { return false };
        (*coldest..=*self.levels().end()).all(|level| self.level(level).is_empty())
    }

    /// The level of which rows should be read back now, the highest first: what is ready in it is nearly used up.
    pub fn level_running_low(&self) -> Option<u8> {
        let low = |list: &VecDeque<Entry>| {
            list.len() < LOW_MESSAGES && list.iter().map(Entry::charge).sum::<u64>() < LOW_BYTES
        };
        let cold = self.cold.as_ref()?;
        let regions = cold.regions.iter().rev();
        regions
            .filter(|(_, region)| region.front().is_some())
            .map(|(level, _)| *level)
            .find(|level| low(self.level(*level)))
    }

    /// When the first message that is next in its level and not in memory may expire.
    pub fn cold_expiry(&self) -> Option<Mono> {
        let next = self.cold.as_ref()?.regions.iter().filter(|(level, _)| self.level(**level).is_empty());
        next.filter_map(|(_, region)| region.front())
            .map(|part| part.expires_at)
            .filter(|at| *at != NEVER)
            .min()
    }

    /// A chunk of a session of which something may have expired, and where its rows begin. The heads of a named queue alone
    /// expire, and those are read back.
    pub fn expired_part(&self, now: Mono) -> Option<(ChunkNumber, RowKey)> {
        if self.kind != QueueKind::Session {
            return None;
        }
        let mut parts = self.cold.as_ref()?.chunks();
        parts.find(|part| part.expires_at <= now).map(|part| (part.chunk.number, part.next()))
    }

    /// The first chunk of which shared subscriptions' other members may take something while the queue's own client is away,
    /// and where its rows begin.
    pub fn lendable_part(&self) -> Option<(ChunkNumber, RowKey)> {
        let cold = self.cold.as_ref().filter(|_| !self.has_taker())?;
        let lends = |part: &&ChunkRef| part.flags & TAKER_SHARED != 0 && part.next() >= cold.lends_from;
        cold.chunks().find(lends).map(|part| (part.chunk.number, part.next()))
    }

    /// What the queue still has of a chunk, as a settlement row says it.
    pub fn part_of(&self, number: ChunkNumber) -> Settled {
        let mut part =
            ColdPart { number, from: RowKey(u64::MAX), messages: 0, bytes: 0, survivors: Vec::new() };
        let Some(cold) = &self.cold else { return Settled::Cold(part) };
        if let Some(to_come) = cold.chunks().find(|chunk| chunk.chunk.number == number) {
            part.from = to_come.from;
            part.messages = u64::from(to_come.messages);
            part.bytes = to_come.bytes;
            part.survivors.extend(&to_come.survivors);
        }
        if let Some(open) = cold.open.get(&number) {
            part.messages += u64::from(open.messages);
            part.bytes += open.bytes;
            let of_chunk = |entry: &&Entry| entry.held.chunk_number() == Some(number);
            // Tails are long, and hold one only where rows from before it moved after it was read back.
            let in_memory = self.taken().chain(cold.entries()).filter(of_chunk).take(open.messages as usize);
            let known = part.survivors.len();
            part.survivors.extend(in_memory.map(|entry| entry.held.place.get().key));
            debug_assert_eq!(
                part.survivors.len() - known,
                open.messages as usize,
                "{}: {number:?}",
                self.name
            );
        }
        part.survivors.sort_unstable();
        part.survivors.dedup();
        Settled::Cold(part)
    }
}

fn take_out<T>(list: &mut VecDeque<T>, wanted: impl FnMut(&T) -> bool) -> VecDeque<T> {
    let (taken, rest) = std::mem::take(list).into_iter().partition(wanted);
    *list = rest;
    taken
}

/// Of a queue that has a consumer so much stays in memory: it will be asked for next.
const HEAD_MESSAGES: usize = 512;
const HEAD_BYTES: u64 = 128 * 1024;

/// More is read back when less than this is ready.
const LOW_MESSAGES: usize = 64;
const LOW_BYTES: u64 = 64 * 1024;
