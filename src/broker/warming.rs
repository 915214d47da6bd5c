//! Rows come back from the backlog when their queue needs them, leave it unread where nobody wants them any more, and are
//! given back when a consumer leaves.
//!
//! Nothing waits here: a queue that runs low is put in line, one read at a time is asked for, and its consumers go on when
//! the rows are there.

use std::rc::Rc;
use std::time::Duration;

use super::Broker;
use super::backlog::{BacklogRequest, Chunk, Reading};
use super::cold::{Behind, ChunkRef, OpenChunk, Run, Standing};
use super::held::{Held, TAKER_AS_PUBLISHED, TAKER_CONNECTED, TAKER_SHARED};
use super::loss::LossReason;
use super::queue::{Entry, NEVER, Queue, QueueIndex, QueueKind, SEVERAL_IDENTIFIERS};
use super::rows::{self, RecordKey, RowKind};
use crate::ids::{ChunkNumber, RowKey};
use crate::message::Assurance;
use crate::store::chunk::{ChunkRead, ChunkRows};
use crate::time::{Mono, Now};

/// Bytes of rows that one read brings, and when memory is short.
const READ_BYTES: usize = 64 * 1024;
const READ_BYTES_SHORT: usize = 8 * 1024;
/// Pause after a read that failed.
const READ_RETRY: Duration = Duration::from_secs(1);

impl Broker {
    /// Puts the queue in line for rows, if it runs low and somebody wants them.
    pub(super) fn want_rows(&mut self, index: QueueIndex) {
        let short = self.is_memory_short();
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        if queue.cold.as_ref().is_none_or(|cold| cold.queued) {
            return;
        }
        let takes = queue.named().map_or_else(
            || queue.consumer.is_some_and(|consumer| !consumer.blocked) && (!short || queue.credit() > 0),
            |named| !named.consumers.is_empty(),
        );
        let wanted =
            queue.cold.as_ref().is_some_and(|cold| cold.needed) || takes && (!short || queue.awaits_rows());
        let sifts = queue.cold.as_ref().is_some_and(|cold| cold.expiring || cold.lending);
        if !sifts && (!wanted || queue.level_running_low().is_none()) {
            return;
        }
        if let Some(cold) = &mut queue.cold {
            cold.queued = true;
        }
        self.backlog.wanted.push_back((index, queue.id));
    }

    /// Rows are needed though no consumer is there.
    pub(super) fn need_rows(&mut self, index: QueueIndex) {
        if let Some(cold) = self.queue_mut(index).and_then(|queue| queue.cold.as_mut()) {
            cold.needed = true;
            self.want_rows(index);
        }
    }

    /// True when who asks for a message has to ask again once rows were read.
    pub fn awaits_rows(&mut self, index: QueueIndex) -> bool {
        if !self.queue(index).is_some_and(Queue::awaits_rows) {
            return false;
        }
        self.need_rows(index);
        true
    }

    fn is_memory_short(&self) -> bool {
        self.memory.get() > self.policy.memory_max / 2
    }

    /// Asks for the rows of the queue whose turn it is.
    pub(super) fn request_rows(&mut self, now: Now) {
        if self.backlog.reading.is_some() || self.backlog.read_not_before > now.mono {
            return;
        }
        while let Some((index, id)) = self.backlog.wanted.pop_front() {
            let Some(queue) = self.queue_mut(index).filter(|queue| queue.id == id) else { continue };
            let low = queue.level_running_low();
            let expired = queue.expired_part(now.mono);
            let lent = queue.lendable_part();
            let Some(cold) = &mut queue.cold else { continue };
            cold.queued = false;
            let was_to_sift = cold.expiring || cold.lending;
            let sifted = expired.or_else(|| lent.filter(|_| cold.lending));
            cold.expiring = expired.is_some();
            cold.lending &= lent.is_some();
            let sifts = sifted.is_some();
            if was_to_sift && !sifts {
                // It has gone meanwhile. Whether rows are wanted for another reason is another question.
                self.want_rows(index);
                continue;
            }
            let level = if sifts { Some(0) } else { low };
            let Some(level) = level else { continue };
            let front = cold.regions.get(&level).and_then(|region| region.front());
            let front = front.map(|front| (front.chunk.number, front.next()));
            let Some((number, from)) = sifted.or(front) else { continue };
            let bytes_max = match (sifts, self.is_memory_short()) {
                // A chunk that is sifted is read as a whole, and leaves nothing in memory.
                (true, _) => usize::MAX,
                (false, true) => READ_BYTES_SHORT,
                (false, false) => READ_BYTES,
            };
            self.backlog.reading = Some(Reading { index, id, level, number, from, sifts });
            self.backlog.requests.push_back(BacklogRequest::Read(ChunkRead { number, from, bytes_max }));
            return;
        }
    }

    /// The rows that were asked for; none, when they cannot be read now.
    pub fn backlog_read(&mut self, now: Now, read: Option<ChunkRows>) {
        let Some(reading) = self.backlog.reading.take() else { return };
        let Reading { index, id, level, number, from, sifts } = reading;
        let wanted = self.queue(index).filter(|queue| queue.id == id).and_then(|queue| {
            let mut parts = queue.cold.as_ref()?.regions.get(&level)?.chunks();
            // What was given back meanwhile may stand before what was read.
            Some(parts.any(|part| part.chunk.number == number && part.next() >= from))
        });
        match (wanted, read) {
            (Some(true), Some(rows)) if sifts => self.sift(now, index, number, rows),
            (Some(true), Some(rows)) => self.take_rows(now, index, level, number, rows),
            (Some(_), read) => {
                if read.is_none() {
                    self.backlog.read_not_before = now.mono + READ_RETRY;
                }
                self.want_rows(index);
            }
            // The queue has ended, or has nothing there any more.
            (None, _) => {}
        }
    }

    /// Puts rows where they belong and goes on with what waited for them.
    fn take_rows(&mut self, now: Now, index: QueueIndex, level: u8, number: ChunkNumber, rows: ChunkRows) {
        let memory = Rc::clone(&self.memory);
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        let (identifier, shares) = (identifier_of(queue), self.shares.of(queue));
        let part = queue.cold.as_mut().and_then(|cold| cold.take_chunk(level, number));
        let Some(mut part) = part else { return };
        let mut entries = Vec::with_capacity(rows.rows.len());
        for (place, kind, body) in rows.rows {
            if RowKind::from_code(kind) != Some(RowKind::Message) || !part.wants(place.key) {
                continue;
            }
            if let Some((_, message)) = rows::read_message_row(&body) {
                let held = Held::cold(message, &memory, place, &part.chunk);
                let mut entry = Entry { identifier, ..entry_of(queue, &part, held) };
                if part.flags & TAKER_SHARED != 0 {
                    entry.share = self.shares.bringing(&shares, &entry.held.message.address);
                }
                if let Some(named) = &mut queue.named {
                    entry.returns = named.returned.remove(&place.key).unwrap_or(0);
                }
                entries.push((place.key, entry));
            }
        }
        let up_to = rows.next.unwrap_or(RowKey(u64::MAX));
        part.from = part.from.max(up_to);
        part.survivors.retain(|key| *key >= up_to);
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let bytes: u64 = entries.iter().map(|(_, entry)| entry.charge()).sum();
        part.messages = part.messages.saturating_sub(count);
        part.bytes = part.bytes.saturating_sub(bytes);
        let Some(cold) = &mut queue.cold else { return };
        cold.needed = false;
        if count > 0 {
            let open = OpenChunk { chunk: Rc::clone(&part.chunk), messages: 0, bytes: 0 };
            let open = cold.open.entry(part.chunk.number).or_insert(open);
            open.messages += count;
            open.bytes += bytes;
        }
        if let Some(region) = cold.regions.get_mut(&level) {
            entries.into_iter().for_each(|(key, entry)| region.insert_kept((key, Behind::No), entry));
        }
        let lost = rows.next.is_none() && part.messages > 0;
        if part.messages > 0 && !lost {
            cold.insert_chunk(level, part);
        } else if lost {
            self.lose_part(now, index, &part, LossReason::Damage);
        }
        self.advance(index, level);
        self.go_on_with(now, index);
    }

    /// Takes what has expired out of a chunk of a session, which was read as a whole, and what other members of shares take
    /// over. What stays is not put in memory.
    fn sift(&mut self, now: Now, index: QueueIndex, number: ChunkNumber, rows: ChunkRows) {
        let memory = Rc::clone(&self.memory);
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        let lends = queue.lendable_part().is_some_and(|(part, _)| part == number);
        let Some(cold) = &mut queue.cold else { return };
        let lending = lends && std::mem::take(&mut cold.lending);
        let Some(part) = cold.take_chunk(0, number) else { return };
        let begun_at = part.next();
        let shares = if lending { self.shares.of(queue) } else { Vec::new() };
        let mut expired = Vec::new();
        let mut staying = Vec::new();
        for (place, kind, body) in rows.rows {
            if RowKind::from_code(kind) != Some(RowKind::Message) || !part.wants(place.key) {
                continue;
            }
            let Some((_, message)) = rows::read_message_row(&body) else { continue };
            let entry = entry_of(queue, &part, Held::cold(message, &memory, place, &part.chunk));
            if entry.expires_at <= now.mono {
                expired.push(entry);
            } else {
                let share = self.shares.bringing(&shares, &entry.held.message.address);
                staying.push(Entry { share, ..entry });
            }
        }
        let (lent, staying) = if lending { self.lend(now, index, staying) } else { (Vec::new(), staying) };
        if lending && lent.is_empty() && !staying.iter().any(|entry| self.is_taken_over(entry.share)) {
            // Nobody who is there takes anything of it: on with the next.
            if let Some(cold) = self.queue_mut(index).and_then(|queue| queue.cold.as_mut()) {
                cold.lends_from = RowKey(begun_at.0.saturating_add(1));
                cold.lending = true;
            }
        }
        self.sifted(now, index, part, (expired, lent, staying));
        self.advance(index, 0);
        self.go_on_with(now, index);
    }

    /// A part of which all was read goes back, without what has expired or was lent.
    fn sifted(
        &mut self,
        now: Now,
        index: QueueIndex,
        mut part: ChunkRef,
        (expired, lent, staying): (Vec<Entry>, Vec<Entry>, Vec<Entry>),
    ) {
        let bytes = staying.iter().map(Entry::charge).sum();
        part.expires_at = staying.iter().map(|entry| entry.expires_at).min().unwrap_or(NEVER);
        let key_of = |entry: &Entry| entry.held.place.get().key;
        let staying: Vec<_> = staying.iter().map(key_of).collect();
        let gone = (expired.len() + lent.len()) as u64;
        let gone_bytes = expired.iter().chain(&lent).map(Entry::charge).sum::<u64>();
        let last_gone = expired.iter().chain(&lent).map(key_of).max();
        let unread = ChunkRef {
            messages: part.messages.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX)),
            bytes: part.bytes.saturating_sub(gone_bytes),
            ..part.clone()
        };
        part.leave_only(staying, bytes, last_gone);
        let lost = ChunkRef {
            messages: unread.messages.saturating_sub(part.messages),
            bytes: unread.bytes.saturating_sub(part.bytes),
            ..unread
        };
        let Some(cold) = self.queue_mut(index).and_then(|queue| queue.cold.as_mut()) else { return };
        if gone > 0 {
            let open = OpenChunk { chunk: Rc::clone(&part.chunk), messages: 0, bytes: 0 };
            let open = cold.open.entry(part.chunk.number).or_insert(open);
            open.messages += u32::try_from(gone).unwrap_or(u32::MAX);
            open.bytes += gone_bytes;
        }
        if part.messages > 0 {
            cold.insert_chunk(0, part);
        }
        if let Some(queue) = self.queue_mut(index) {
            expired.iter().chain(&lent).for_each(|entry| queue.discharge(entry));
        }
        for entry in expired {
            self.lose(now, index, &entry, LossReason::Expired);
        }
        for entry in lent {
            self.settle_durable(now.mono, index, &entry.held);
        }
        if lost.messages > 0 {
            self.lose_part(now, index, &lost, LossReason::Damage);
        }
    }

    /// Sees to it that a session is looked over once something cold in it may have expired.
    pub(super) fn look_at_cold(&mut self, now: Mono, index: QueueIndex) {
        let Some(queue) = self.queue(index).filter(|queue| queue.kind == QueueKind::Session) else { return };
        let Some(at) = queue.cold.as_ref().and_then(|cold| cold.first_expiry()) else { return };
        self.look_later(now, index, at);
    }

    /// A session was looked over: the chunks of which something may have expired are sifted.
    pub(super) fn sift_expired(&mut self, now: Mono, index: QueueIndex) {
        let Some(queue) = self.queue_mut(index) else { return };
        let expiring = queue.expired_part(now).is_some();
        if let Some(cold) = &mut queue.cold {
            cold.expiring = expiring;
        }
        if expiring {
            self.want_rows(index);
        } else {
            self.look_at_cold(now, index);
        }
    }

    /// Moves what comes next in a level to what is ready.
    fn advance(&mut self, index: QueueIndex, level: u8) {
        let Some(queue) = self.queue_mut(index) else { return };
        let Some(mut region) = queue.cold.as_mut().and_then(|cold| cold.regions.remove(&level)) else {
            return;
        };
        let Some(list) = queue.level_mut(level) else { return };
        let over = region.advance(list);
        let Some(cold) = &mut queue.cold else { return };
        if !over {
            cold.regions.insert(level, region);
        }
        if cold.is_over() {
            queue.cold = None;
        }
    }

    /// What is ready has changed: what has expired, what is too much, whom it is for.
    fn go_on_with(&mut self, now: Now, index: QueueIndex) {
        self.expire_heads(now, index, false);
        self.keep_ready_bounds(now, index);
        self.keep_queue_bounds(now, index);
        self.dispatch(now, index);
        self.expire_heads(now, index, true);
        self.arm(now.mono, index);
        self.sift_expired(now.mono, index);
        self.want_rows(index);
        self.bury_dead(now);
    }

    /// After rows moved: regions that hold no chunk are over, and a queue whose next message is cold now wants it.
    pub(super) fn settle_regions(&mut self, now: Now, index: QueueIndex) {
        let Some(cold) = self.queue(index).and_then(|queue| queue.cold.as_ref()) else { return };
        let bare: Vec<u8> = cold
            .regions
            .iter()
            .filter(|(_, region)| region.front().is_none())
            .map(|(level, _)| *level)
            .collect();
        for level in bare {
            self.advance(index, level);
        }
        self.arm(now.mono, index);
        self.look_at_cold(now.mono, index);
        self.want_rows(index);
    }

    // Leaving.

    /// A message that was read back is settled.
    pub(super) fn settle_cold(&mut self, now: Mono, index: QueueIndex, held: &Held) {
        let Some(chunk) = held.chunk() else { return };
        let Some(queue) = self.queue_mut(index) else { return };
        if let Some(cold) = &mut queue.cold
            && let Some(open) = cold.open.get_mut(&chunk.number)
        {
            open.messages = open.messages.saturating_sub(1);
            open.bytes = open.bytes.saturating_sub(held.message.charge() as u64);
            if open.messages == 0 {
                cold.open.remove(&chunk.number);
            }
        }
        self.part_changed(now, index, &chunk);
    }

    /// The queue has less of a chunk than before, maybe nothing.
    fn part_changed(&mut self, now: Mono, index: QueueIndex, chunk: &Rc<Chunk>) {
        self.ledger.touch_part(now, index, chunk.number);
        let by = self.ledger.open_batch();
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        if queue.cold.as_ref().is_none_or(|cold| cold.is_done_with(chunk.number)) {
            self.backlog.settle(chunk, queue.id, by);
        }
        let Some(cold) = &queue.cold else { return };
        if cold.open.is_empty() && cold.messages() == 0 {
            self.ledger.touch_soon(now, RecordKey::Cold(queue.id));
        }
        if cold.is_over() {
            queue.cold = None;
        }
    }

    /// The messages of a part leave the queue's account unread.
    fn discharge_part(&mut self, index: QueueIndex, part: &ChunkRef) {
        let Some(queue) = self.queue_mut(index) else { return };
        queue.messages = queue.messages.saturating_sub(part.messages);
        queue.bytes = queue.bytes.saturating_sub(part.bytes);
        if let Some(named) = &mut queue.named {
            named.ready_bytes = named.ready_bytes.saturating_sub(part.bytes);
        }
    }

    /// A part that was taken out is lost.
    fn lose_part(&mut self, now: Now, index: QueueIndex, part: &ChunkRef, reason: LossReason) {
        self.discharge_part(index, part);
        self.count_lost(now, index, reason, part.run());
        self.part_changed(now.mono, index, &part.chunk);
    }

    /// Counts a run of lost messages and keeps the receipt.
    pub(super) fn count_lost(&mut self, now: Now, index: QueueIndex, reason: LossReason, run: Run) {
        self.counters.lost += run.messages;
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        queue.dropped += run.messages;
        for record in self.losses.add_run((&queue.name, Some(queue.kind)), reason, run) {
            self.ledger.touch_soon(now.mono, record);
        }
    }

    /// The level whose first chunk is the oldest.
    fn oldest_level(&self, index: QueueIndex) -> Option<u8> {
        let cold = self.queue(index)?.cold.as_ref()?;
        let fronts = cold.regions.iter().filter_map(|(level, region)| Some((region.front()?.next(), *level)));
        fronts.min().map(|(_, level)| level)
    }

    /// Loses the oldest chunk of the queue, unread. False when there is none.
    pub(super) fn lose_front(&mut self, now: Now, index: QueueIndex, reason: LossReason) -> bool {
        let Some(level) = self.oldest_level(index) else { return false };
        let part = self.queue_mut(index).and_then(|queue| queue.cold.as_mut()?.pop_chunk(level));
        let Some(part) = part else { return false };
        self.lose_part(now, index, &part, reason);
        self.advance(index, level);
        true
    }

    /// The queue is over its bounds and what is oldest is cold: loses a chunk if that much is too much, else has rows read
    /// back so that as many go as have to. True when something was lost.
    pub(super) fn shed(&mut self, now: Now, index: QueueIndex) -> bool {
        let Some(level) = self.oldest_level(index) else { return false };
        let Some(queue) = self.queue(index) else { return false };
        let front = queue.cold.as_ref().and_then(|cold| cold.regions.get(&level)?.front());
        let Some(front) = front else { return false };
        let over = queue.messages.saturating_sub(queue.bounds.messages_max);
        let over_bytes = queue.bytes.saturating_sub(queue.bounds.bytes_max);
        if over >= front.messages || over_bytes >= front.bytes {
            return self.lose_front(now, index, LossReason::QueueBound);
        }
        self.need_rows(index);
        false
    }

    /// All that is cold leaves the queue, by wish. Answers how many messages that were not in memory.
    pub(super) fn purge_cold(&mut self, now: Now, index: QueueIndex) -> u64 {
        let mut purged = 0;
        while let Some(level) = self.oldest_level(index)
            && let Some(part) = self.queue_mut(index).and_then(|queue| queue.cold.as_mut()?.pop_chunk(level))
        {
            purged += u64::from(part.messages);
            self.discharge_part(index, &part);
            self.part_changed(now.mono, index, &part.chunk);
        }
        self.settle_regions(now, index);
        purged
    }

    /// The queue has ended: nobody is owed its part of any chunk.
    pub(super) fn forget_cold(&mut self, now: Mono, queue: &Queue) {
        let Some(cold) = &queue.cold else { return };
        self.ledger.touch_soon(now, RecordKey::Cold(queue.id));
        let by = self.ledger.open_batch();
        let open = cold.open.values().map(|open| &open.chunk);
        let chunks: Vec<_> = cold.chunks().map(|part| &part.chunk).chain(open).map(Rc::clone).collect();
        for chunk in chunks {
            self.backlog.settle(&chunk, queue.id, by);
        }
    }

    /// Nobody takes from the queue any more: what was read back for its consumers is not kept in memory.
    pub(super) fn give_back(&mut self, index: QueueIndex) {
        let Some(queue) = self.queue_mut(index).filter(|queue| !queue.has_taker() && queue.may_cool()) else {
            return;
        };
        let beyond = queue.handed_out_order();
        let is_named = queue.named.is_some();
        for level in queue.levels() {
            let returns = |entry: &Entry| entry.is_cold() && entry.returns == 0;
            let Some(list) = queue.level_mut(level) else { continue };
            let first = if is_named { list.partition_point(|entry| entry.order <= beyond) } else { 0 };
            if !list.range(first..).any(returns) {
                continue;
            }
            let list = list.split_off(first);
            give_back_level(queue, level, list.into_iter().collect(), returns);
        }
    }

    /// Memory is short: what was read back for nobody in particular goes first.
    pub(super) fn give_back_all(&mut self) {
        let cold = (0u32..).zip(&self.queues).filter(|(_, queue)| {
            queue.as_ref().is_some_and(|queue| queue.cold.as_ref().is_some_and(|cold| !cold.open.is_empty()))
        });
        for index in cold.map(|(at, _)| QueueIndex(at)).collect::<Vec<_>>() {
            self.give_back(index);
        }
    }

    /// True when something cold may have expired: it is to be read back.
    pub(super) fn awaits_expiry(&mut self, now: Mono, index: QueueIndex) -> bool {
        let Some(queue) = self.queue(index) else { return false };
        let due = queue.cold_expiry().is_some_and(|at| at <= now);
        if !due || queue.level_running_low().is_none() {
            return false;
        }
        self.need_rows(index);
        true
    }

    /// A bound, or a little more while rows leave memory and window: publishers are held back meanwhile.
    pub(super) const fn with_patience(&self, bound: u64) -> u64 {
        if self.backlog.takes() && self.backlog.changing.is_some() { bound + bound / 8 } else { bound }
    }
}

/// Puts what was ready in a level back into its region, and those messages whose rows are in the backlog out of memory.
fn give_back_level(queue: &mut Queue, level: u8, list: Vec<Entry>, returns: impl Fn(&Entry) -> bool) {
    let order = list.first().map_or(0, |entry| entry.order.saturating_sub(1));
    let mut kept = Vec::new();
    let mut standing = Standing::new();
    let Some(cold) = &mut queue.cold else { return };
    for entry in list.into_iter().rev() {
        let stand = standing.of(&entry);
        let key = entry.held.place.get().key;
        let Some(chunk) = entry.held.chunk().filter(|_| returns(&entry)) else {
            kept.push((stand, entry));
            continue;
        };
        let mut part = cold.take_chunk(level, chunk.number).unwrap_or_else(|| ChunkRef {
            chunk: Rc::clone(&chunk),
            from: RowKey(u64::MAX),
            survivors: Vec::new(),
            messages: 0,
            bytes: 0,
            redelivered: entry.redelivered,
            flags: entry.taker_flags() & !TAKER_CONNECTED,
            expires_at: entry.expires_at,
        });
        let at = part.survivors.partition_point(|other| *other < key);
        part.survivors.insert(at, key);
        part.messages += 1;
        part.bytes += entry.charge();
        part.expires_at = part.expires_at.min(entry.expires_at);
        cold.insert_chunk(level, part);
        if let Some(open) = cold.open.get_mut(&chunk.number) {
            open.messages = open.messages.saturating_sub(1);
            open.bytes = open.bytes.saturating_sub(entry.charge());
            if open.messages == 0 {
                cold.open.remove(&chunk.number);
            }
        }
    }
    if let Some(region) = cold.regions.get_mut(&level) {
        region.order = order;
        for (stand, entry) in kept.into_iter().rev() {
            region.insert_kept(stand, entry);
        }
    }
}

/// The entry of a row that was read back, but for the identifier of its subscription.
pub(super) fn entry_of(queue: &Queue, part: &ChunkRef, held: Rc<Held>) -> Entry {
    let assurance = Assurance::from_code(part.flags & 0x03).unwrap_or(Assurance::AtLeastOnce);
    let expires_at = expiry_at(part.chunk.known_since, queue, &held);
    let as_published = part.flags & TAKER_AS_PUBLISHED != 0;
    Entry { redelivered: part.redelivered, expires_at, as_published, ..Entry::new(held, assurance) }
}

/// Which subscription brought a message is not kept: those that match it now are looked up when it is handed over.
pub(super) fn identifier_of(queue: &Queue) -> u32 {
    let identified = queue.subscriptions.values().any(|options| options.identifier != 0);
    if identified { SEVERAL_IDENTIFIERS } else { 0 }
}

/// When a message expires, by what is known of its age since `known`: when it moved, or the start that found it.
pub(super) fn expiry_at(known: Now, queue: &Queue, held: &Held) -> Mono {
    let expires_at = match queue.named() {
        Some(named) => super::sharing::expiry(known.mono, named, held),
        None => super::publish::expiry(known.mono, held),
    };
    super::cold_recovery::remaining(known, expires_at, held)
}

/// The flag that a part's messages may have been sent.
pub(super) const fn is_redelivered(flags: u8) -> bool {
    flags & TAKER_CONNECTED != 0
}
