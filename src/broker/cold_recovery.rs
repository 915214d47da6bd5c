//! The backlog after a start: which chunks count, what each queue still has of them, and where that stands among the rows
//! of the window.
//!
//! Summaries are enough. Only chunks with a message whose exactly-once exchange is under way are read, and all of them
//! when the window was damaged, for then its rows may be older than the chunks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::backlog::{self, Adopted, Chunk};
use super::cold::{Behind, ChunkRef, OpenChunk};
use super::held::{Held, Taker};
use super::loss::LossReason;
#[cfg(feature = "mutations")]
use super::mutation::{Mutation, is_made};
use super::queue::{Entry, NEVER, Queue, QueueIndex};
use super::recovery::Recovered;
use super::rows::{self, ColdPart, RecordKey, RowKind, SessionRecord, StoredChange};
use super::{Broker, warming};
use crate::ids::{BatchNumber, ChunkNumber, QueueId, RowKey};
use crate::store::batch::Place;
use crate::time::{Mono, Now, Wall};

/// What was found of the backlog.
#[derive(Default)]
pub(super) struct ColdRows {
    chunks: BTreeMap<ChunkNumber, (u64, Vec<u8>)>,
    parts: BTreeMap<(QueueId, ChunkNumber), ColdPart>,
    pub adopted: Adopted,
    /// What the window says that queues should find.
    expected: BTreeMap<QueueId, super::cold::Run>,
    /// Rows of chunks with messages whose exchange is under way: their bodies only where they are needed.
    read: BTreeMap<ChunkNumber, BTreeMap<RowKey, (Place, Vec<u8>)>>,
    /// Messages whose exchange is under way, by queue.
    tagged: BTreeSet<(RowKey, QueueId)>,
    pub window_damaged: bool,
    pub backlog_damaged: bool,
}

impl ColdRows {
    pub fn chunk(&mut self, number: ChunkNumber, charge: u64, summary: Vec<u8>) {
        self.chunks.insert(number, (charge, summary));
    }

    /// A settlement row says what a queue has of a chunk.
    pub fn part(&mut self, queue: QueueId, part: ColdPart) {
        self.parts.insert((queue, part.number), part);
    }

    /// A record says what a queue should find.
    pub fn expect_held(&mut self, queue: QueueId, content: &[u8]) -> Option<()> {
        self.expected.insert(queue, backlog::read_held(content)?);
        Some(())
    }

    fn counts(&self, number: ChunkNumber) -> bool {
        let Adopted { adopted, lowest, void } = &self.adopted;
        self.window_damaged || number <= *adopted && number >= *lowest && !void.contains(&number)
    }

    /// Chunks of which rows are needed, `tagged` being the messages that are not in the window and under way.
    pub fn choose(&mut self, now: Now, tagged: BTreeSet<(RowKey, QueueId)>) -> Vec<ChunkNumber> {
        self.tagged = tagged;
        let (mut needed, mut read) = (Vec::new(), BTreeMap::new());
        for (number, (charge, summary)) in self.chunks.iter().filter(|(number, _)| self.counts(**number)) {
            let Some(chunk) = Chunk::read(now, *number, *charge, summary) else { continue };
            let range = (chunk.first, QueueId(0))..=(chunk.last, QueueId(u64::MAX));
            let takers = chunk.takers.borrow();
            let is_taker = |queue: &QueueId| takers.iter().any(|taker| taker.queue == *queue);
            let under_way = self.tagged.range(range).any(|(_, queue)| is_taker(queue));
            if under_way {
                read.insert(*number, BTreeMap::new());
            }
            if under_way || self.window_damaged {
                needed.push(*number);
            }
        }
        self.read = read;
        needed
    }

    /// A row of a chunk that was chosen. Where nothing of the chunk is under way nothing of the row is kept: a backlog
    /// may hold more rows than memory. True when it is a message, which the window may hold too if it was damaged.
    pub fn row(&mut self, number: ChunkNumber, place: Place, kind: u8, body: Vec<u8>) -> bool {
        if RowKind::from_code(kind) != Some(RowKind::Message) {
            return false;
        }
        if let Some(rows) = self.read.get_mut(&number) {
            let range = (place.key, QueueId(0))..=(place.key, QueueId(u64::MAX));
            let needed = self.tagged.range(range).next().is_some();
            rows.insert(place.key, (place, if needed { body } else { Vec::new() }));
        }
        true
    }

    /// Rows of chunks that are kept in memory.
    #[cfg(test)]
    pub fn rows_kept(&self) -> usize {
        self.read.values().map(BTreeMap::len).sum()
    }

    /// Gives every queue what it has in the backlog.
    pub fn recover(&self, broker: &mut Broker, now: Now) -> usize {
        broker.backlog.adopted = self.adopted.adopted;
        broker.backlog.last = broker.backlog.last.max(self.adopted.adopted);
        let mut unreadable = 0;
        for (number, (charge, summary)) in &self.chunks {
            broker.backlog.last = broker.backlog.last.max(*number);
            let chunk = Chunk::read(now, *number, *charge, summary).filter(|_| self.counts(*number));
            let Some(chunk) = chunk else {
                // The window does not know it, so it holds the rows itself.
                unreadable += usize::from(self.counts(*number));
                broker.backlog.void.insert(*number);
                broker.backlog.discard(*number, BatchNumber(0));
                continue;
            };
            broker.backlog.adopted = broker.backlog.adopted.max(*number);
            #[cfg(feature = "mutations")]
            if is_made(Mutation::ForgetChunk) && Some(number) == self.chunks.keys().next_back() {
                continue;
            }
            self.recover_chunk(broker, now, chunk);
        }
        self.count_missing(broker, now);
        unreadable
    }

    fn recover_chunk(&self, broker: &mut Broker, now: Now, chunk: Chunk) {
        let number = chunk.number;
        let named = chunk.takers.borrow().clone();
        chunk.takers.borrow_mut().retain(|taker| broker.durable.contains_key(&taker.queue));
        let known = chunk.takers.borrow().clone();
        if known.is_empty() {
            broker.backlog.discard(number, BatchNumber(0));
            return;
        }
        let chunk = Rc::new(chunk);
        broker.backlog.insert(Rc::clone(&chunk));
        for taker in &known {
            let part = self.parts.get(&(taker.queue, number));
            if part.is_some_and(|part| part.messages == 0) {
                broker.backlog.settle(&chunk, taker.queue, BatchNumber(0));
            } else if let Some(index) = broker.durable.get(&taker.queue).copied() {
                self.recover_part(broker, now, index, &chunk, *taker, part);
            }
        }
        if known.len() < named.len() {
            // Queues that ended.
            let ended = named.iter().find(|taker| !known.contains(taker));
            if let Some(ended) = ended {
                broker.backlog.settle(&chunk, ended.queue, BatchNumber(0));
            }
        }
    }

    fn recover_part(
        &self,
        broker: &mut Broker,
        now: Now,
        index: QueueIndex,
        chunk: &Rc<Chunk>,
        taker: Taker,
        part: Option<&ColdPart>,
    ) {
        let memory = Rc::clone(&broker.memory);
        let Some(queue) = broker.queue_mut(index) else { return };
        let mut part = ChunkRef {
            chunk: Rc::clone(chunk),
            from: part.map_or(chunk.first, |part| part.from),
            survivors: part.map_or_else(Vec::new, |part| part.survivors.clone()),
            messages: part.map_or(chunk.messages, |p| u32::try_from(p.messages).unwrap_or(u32::MAX)),
            bytes: part.map_or(chunk.bytes, |part| part.bytes),
            redelivered: queue.named.is_some() || queue.was_connected || warming::is_redelivered(taker.flags),
            flags: taker.flags,
            expires_at: first_expiry(now, queue, chunk),
        };
        queue.messages = queue.messages.saturating_add(part.messages);
        queue.bytes += part.bytes;
        if let Some(named) = &mut queue.named {
            named.ready_bytes += part.bytes;
        }
        let level = queue.level_of(chunk.priority);
        let under_way = self.take_under_way(&mut part, queue, &memory);
        let count = u32::try_from(under_way.len()).unwrap_or(u32::MAX);
        let bytes = under_way.iter().map(Entry::charge).sum();
        let cold = queue.cold.get_or_insert_default();
        if count > 0 {
            let open = OpenChunk { chunk: Rc::clone(chunk), messages: count, bytes };
            cold.open.insert(chunk.number, open);
        }
        if part.messages > 0 {
            cold.insert_chunk(level, part);
        }
        queue.ready.extend(under_way);
        if let Some(region) = queue.cold.as_mut().and_then(|cold| cold.regions.get_mut(&level)) {
            region.order = 0;
        }
        broker.look_at_cold(now.mono, index);
    }

    /// The messages of a part whose exchange may be under way, as they stand in memory.
    fn take_under_way(
        &self,
        part: &mut ChunkRef,
        queue: &Queue,
        memory: &Rc<std::cell::Cell<u64>>,
    ) -> Vec<Entry> {
        let Some(rows) = self.read.get(&part.chunk.number) else { return Vec::new() };
        let is_tagged = |key: RowKey| self.tagged.contains(&(key, queue.id));
        let Some(last) = rows.keys().copied().rfind(|key| is_tagged(*key) && part.wants(*key)) else {
            return Vec::new();
        };
        let mut entries = Vec::new();
        let mut survivors = Vec::new();
        let identifier = warming::identifier_of(queue);
        for (key, (place, body)) in rows.range(..=last) {
            if !part.wants(*key) {
                continue;
            }
            let message = rows::read_message_row(body).filter(|_| is_tagged(*key));
            let Some((_, message)) = message else {
                survivors.push(*key);
                continue;
            };
            let held = Held::cold(message, memory, *place, &part.chunk);
            part.messages = part.messages.saturating_sub(1);
            part.bytes = part.bytes.saturating_sub(held.message.charge() as u64);
            entries.push(Entry { identifier, ..warming::entry_of(queue, part, held) });
        }
        survivors.extend(part.survivors.iter().filter(|key| **key > last));
        part.survivors = survivors;
        part.from = part.from.max(RowKey(last.0.saturating_add(1)));
        entries
    }

    /// What queues should have and have not is lost.
    fn count_missing(&self, broker: &mut Broker, now: Now) {
        for (id, expected) in &self.expected {
            let Some(index) = broker.durable.get(id).copied() else { continue };
            let found = broker.queue(index).and_then(|queue| queue.cold.as_ref()).map_or(0, |cold| {
                u64::from(cold.messages())
                    + cold.open.values().map(|open| u64::from(open.messages)).sum::<u64>()
            });
            if expected.messages > found && (found == 0 || self.backlog_damaged) {
                let messages = expected.messages - found;
                let bytes = expected.bytes / expected.messages.max(1) * messages;
                let run = super::cold::Run { messages, bytes, ..*expected };
                broker.count_lost(now, index, LossReason::Damage, run);
            }
            broker.ledger.touch_soon(now.mono, RecordKey::Cold(*id));
        }
    }
}

/// When the first message of a chunk may expire in a queue.
fn first_expiry(now: Now, queue: &Queue, chunk: &Chunk) -> Mono {
    let of_queue = queue.named().and_then(|named| named.settings().time_to_live_ms);
    let lasts_ms = match (of_queue, chunk.time_to_live_ms) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => match a.or(b) {
            Some(ms) => ms,
            None => return NEVER,
        },
    };
    let expires_at = Mono(now.mono.0.saturating_add(lasts_ms.saturating_mul(1000)));
    remaining_of(now, expires_at, chunk.first_received_at, chunk.trusted)
}

impl Recovered {
    /// A chunk of the backlog.
    pub fn chunk(&mut self, number: ChunkNumber, charge: u64, summary: Vec<u8>) {
        self.cold.chunk(number, charge, summary);
    }

    /// The window was damaged: it may hold rows that lie in chunks, or not know of chunks that count.
    pub const fn window_was_damaged(&mut self) {
        self.cold.window_damaged = true;
    }

    /// The backlog was damaged: what is missing there is lost.
    pub const fn backlog_was_damaged(&mut self) {
        self.cold.backlog_damaged = true;
    }

    /// Chunks whose rows are needed, after all rows and chunks were taken: they go to [`Recovered::chunk_row`].
    pub fn chunks_to_read(&mut self, now: Now) -> Vec<ChunkNumber> {
        // The records are settled only at the end, but which chunks count has to be known now.
        if let Some((_, content)) = self.records.get(&RecordKey::Backlog)
            && let Some(adopted) = Adopted::read(content)
        {
            self.cold.adopted = adopted;
        }
        let of_window = self.window.iter().filter_map(|(_, queue, change)| match change {
            StoredChange::Tagged(_, key) => Some((*key, *queue)),
            _ => None,
        });
        let of_records = self.records.iter().filter_map(|(key, (_, content))| match key {
            RecordKey::Session(id) => Some((*id, SessionRecord::read(content)?.tagged)),
            _ => None,
        });
        let of_records =
            of_records.flat_map(|(id, tagged)| tagged.into_iter().map(move |(_, key)| (key, id)));
        let absent = |(key, _): &(RowKey, QueueId)| !self.messages.contains_key(key);
        let tagged = of_window.chain(of_records).filter(absent).collect();
        self.cold.choose(now, tagged)
    }

    /// A row of a chunk.
    pub fn chunk_row(&mut self, number: ChunkNumber, place: Place, kind: u8, body: Vec<u8>) {
        if self.cold.row(number, place, kind, body) && self.cold.window_damaged {
            self.forget_message(place.key);
        }
    }
}

impl Broker {
    /// Puts the rows of the window in their places before, between and behind the chunks.
    pub(super) fn settle_recovered(&mut self) {
        for index in self.durable.values().copied().collect::<Vec<_>>() {
            self.give_back(index);
            let Some(queue) = self.queue_mut(index).filter(|queue| queue.cold.is_some()) else { continue };
            let offset = queue.cold.as_ref().map_or(0, |cold| u64::from(cold.messages()));
            if let Some(named) = &mut queue.named {
                named.skip_orders(offset);
            }
            for level in queue.levels() {
                split_level(queue, level, offset);
            }
        }
    }
}

/// Takes the time that surely passed since the message came off its time to live: only a difference of the wall clock
/// that is plausible counts, so that nothing expires early.
pub(super) fn remaining(now: Now, expires_at: Mono, held: &Held) -> Mono {
    remaining_of(now, expires_at, held.message.received_at, held.message.received_trusted)
}

/// The same for a message that was received then.
pub(super) fn remaining_of(now: Now, expires_at: Mono, received_at: Wall, trusted: bool) -> Mono {
    if expires_at == NEVER || !now.wall_trusted || !trusted {
        return expires_at;
    }
    match now.wall.0.checked_sub(received_at.0) {
        Some(passed_ms) if passed_ms <= PLAUSIBLE_MS => {
            Mono(expires_at.0.saturating_sub(passed_ms.saturating_mul(1000)).max(now.mono.0))
        }
        _ => expires_at,
    }
}

/// A gap of the wall clock that is believed: 30 days.
const PLAUSIBLE_MS: u64 = 30 * 24 * 3600 * 1000;

fn split_level(queue: &mut Queue, level: u8, offset: u64) {
    let Some(region) = queue.cold.as_ref().and_then(|cold| cold.regions.get(&level)) else { return };
    let Some(first) = region.front().map(ChunkRef::next) else { return };
    let last = region.chunks().map(|part| part.chunk.last).max().unwrap_or(first);
    let Some(list) = queue.level_mut(level) else { return };
    let key = |entry: &Entry| entry.held.place.get().key;
    let (ready, rest): (VecDeque<_>, VecDeque<_>) =
        std::mem::take(list).into_iter().partition(|entry| key(entry) < first);
    let order = ready.back().map_or(0, |entry| entry.order);
    *list = ready;
    let Some(region) = queue.cold.as_mut().and_then(|cold| cold.regions.get_mut(&level)) else { return };
    region.order = order;
    for mut entry in rest {
        let at = key(&entry);
        if at <= last {
            // What is read back before it pushes its number on; more than that, and the tail would be pushed beyond the
            // numbers of newcomers.
            region.insert_kept((at, Behind::No), entry);
        } else {
            entry.order += offset;
            region.tail.push_back(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::message::Message;

    fn row(key: u64) -> (Place, Vec<u8>) {
        let mut body = Vec::new();
        rows::put_message_row(&mut body, RowKey(1), &Message { address: "t".into(), ..Message::default() });
        (Place { key: RowKey(key), pieces: 1 }, body)
    }

    /// A backlog may hold more messages than memory.
    #[test]
    fn a_start_beside_a_damaged_window_keeps_nothing_of_the_rows_that_it_reads() {
        let now = Now::default();
        let chunk = Chunk {
            number: ChunkNumber(1),
            charge: 4096,
            first: RowKey(1000),
            last: RowKey(1999),
            messages: 1000,
            bytes: 1000,
            priority: 0,
            first_received_at: Wall(0),
            last_received_at: Wall(0),
            trusted: true,
            time_to_live_ms: None,
            known_since: now,
            takers: RefCell::new(vec![Taker { queue: QueueId(7), flags: 1 }]),
        };
        let mut recovered = Recovered::new();
        for key in (1990..2010).map(row) {
            recovered.row(key.0, RowKind::Message.code(), &key.1);
        }
        recovered.chunk(chunk.number, chunk.charge, chunk.summary());
        recovered.window_was_damaged();
        assert_eq!(recovered.chunks_to_read(now), [chunk.number]);
        for (place, body) in (1000..2000).map(row) {
            recovered.chunk_row(chunk.number, place, RowKind::Message.code(), body);
        }
        assert_eq!(recovered.cold.rows_kept(), 0);
        let left: Vec<_> = recovered.messages.keys().map(|key| key.0).collect();
        assert_eq!(left, (2000..2010).collect::<Vec<_>>(), "of two rows that of the chunk counts");
    }
}
