//! A queue: messages that wait, messages in flight, one consumer's credit, and the bounds of it all.
//!
//! Plain data with its invariants; routing, flash and events are `broker`'s business. An MQTT session is a queue of
//! kind session; what a queue has beside that when several consumers share it under a name is in `named`. Receive
//! Maximum, prefetch-count and link-credit are one thing here: `credit_max`.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::allowance::Kept;
use super::cold::Cold;
use super::held::{
    ENTRY_BYTES, HELD_BYTES, Held, Hold, Stage, TAKER_AS_PUBLISHED, TAKER_CONNECTED, TAKER_RETAIN,
    TAKER_SHARED,
};
use super::named::Named;
use crate::ids::{BatchNumber, ConnectionId, QueueId, RowKey};
use crate::message::Assurance;
use crate::time::{Mono, Stamp};

/// Position of a queue in the broker's table. Reused after the queue is gone; every binding goes with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueIndex(pub u32);

/// What to do with a message that does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overflow {
    /// The oldest ready message makes room.
    #[default]
    DropOldest,
    /// The newcomer is refused.
    Reject,
}

/// Bounds of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueBounds {
    pub messages_max: u32,
    pub bytes_max: u64,
    pub overflow: Overflow,
}

/// What a subscription asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SubscribeOptions {
    /// The most that deliveries of this subscription promise.
    pub assurance_max: Assurance,
    /// What the subscriber itself publishes is not delivered.
    pub no_local: bool,
    /// Messages keep the retain mark that their publisher gave them.
    pub retain_as_published: bool,
    /// Comes with each message that the subscription brings; 0 is none.
    pub identifier: u32,
}

impl SubscribeOptions {
    /// Without further wishes.
    #[must_use]
    pub const fn new(assurance_max: Assurance) -> Self {
        Self { assurance_max, no_local: false, retain_as_published: false, identifier: 0 }
    }

    /// What holds for a message that two subscriptions of one queue bring, which is delivered once.
    pub(super) fn merge(&mut self, other: Self) {
        self.assurance_max = self.assurance_max.max(other.assurance_max);
        self.retain_as_published |= other.retain_as_published;
        self.identifier = match (self.identifier, other.identifier) {
            (one, 0) => one,
            (0, one) => one,
            (one, another) if one == another => one,
            _ => SEVERAL_IDENTIFIERS,
        };
    }

    /// After a merge: which subscriptions did not bring the message though their filters match.
    pub(super) const fn leave_out(&mut self, own: bool, shared: bool) {
        if self.identifier >= SEVERAL_IDENTIFIERS {
            self.identifier = SEVERAL_IDENTIFIERS
                | if own { WITHOUT_NO_LOCAL } else { 0 }
                | if shared { 0 } else { WITHOUT_SHARED };
        }
    }

    /// Whether a subscription with these options is one of several that `identifier` stands for.
    pub(super) const fn is_meant(&self, shared: bool, identifier: u32) -> bool {
        let without = identifier & !SEVERAL_IDENTIFIERS;
        !(self.no_local && without & WITHOUT_NO_LOCAL != 0 || shared && without & WITHOUT_SHARED != 0)
    }
}

/// From here on an identifier stands for those of all subscriptions that match a message: they are looked up when it is
/// delivered. Its lowest bits leave some out: [`WITHOUT_NO_LOCAL`], [`WITHOUT_SHARED`].
pub const SEVERAL_IDENTIFIERS: u32 = 0xffff_fff0;

/// The message is the subscriber's own.
const WITHOUT_NO_LOCAL: u32 = 1;

/// No shared subscription of the subscriber had the message.
const WITHOUT_SHARED: u32 = 2;

/// What a queue is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum QueueKind {
    /// An MQTT session: one consumer, its connection.
    #[default]
    Session,
    /// Shared under its name by several consumers, each message going to one of them.
    Named,
    /// A collection of readings: taken out by `gateway`, in order, and settled once they are in `series.redb`.
    Collection,
}

impl QueueKind {
    pub const ALL: [Self; 3] = [Self::Session, Self::Named, Self::Collection];

    /// The name in `status` and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Named => "queue",
            Self::Collection => "collection",
        }
    }

    /// The byte that stands for it on flash.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Session => 0,
            Self::Collection => 1,
            // Has a record of its own.
            Self::Named => 2,
        }
    }

    pub(super) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Session),
            1 => Some(Self::Collection),
            _ => None,
        }
    }
}

/// A message in a queue.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub held: Hold,
    pub assurance: Assurance,
    /// A last known value: delivered with the retain mark.
    pub retained: bool,
    /// May have been sent before.
    pub redelivered: bool,
    /// The queue became a taker after the message was written, so the message's own taker set does not name it.
    pub joined: bool,
    /// The queue held the same message already when this copy joined. Flash knows one claim of a queue on a row, so
    /// this copy waits until the other is settled: two tags for one row could not be told apart after a restart.
    pub twin: bool,
    /// It is handed over with its publisher's retain mark.
    pub as_published: bool,
    /// Times that it was handed out and came back.
    pub returns: u16,
    /// The subscription that brought it: its identifier, 0 for none, or [`SEVERAL_IDENTIFIERS`] and above.
    pub identifier: u32,
    /// The shared subscription that brought it, which has other members; 0 for none.
    pub share: u32,
    /// Its place among the messages of a queue, which it keeps when it comes back; in a session's the number of the
    /// publish that brought it. Of a value that is replayed: which subscription asked for it.
    pub order: u64,
    /// When it is worth nothing any more, or when it is due in a queue that delays. The end of time: never.
    pub expires_at: Mono,
}

/// Messages whose returns a queue's record tells, so that the record stays small.
const RETURNED_MAX: usize = 1000;

/// An entry that never expires.
pub(super) const NEVER: Mono = Mono(u64::MAX);

impl Entry {
    /// An entry of a session's queue.
    pub fn new(held: Rc<Held>, assurance: Assurance) -> Self {
        Self {
            held: Hold::new(held),
            assurance,
            retained: false,
            redelivered: false,
            joined: false,
            twin: false,
            as_published: false,
            returns: 0,
            identifier: 0,
            share: 0,
            order: 0,
            expires_at: NEVER,
        }
    }

    /// True when the queue is a durable taker of this message, `queue_durable` being the queue's own nature.
    pub fn is_durable(&self, queue_durable: bool) -> bool {
        queue_durable && self.assurance != Assurance::AtMostOnce
    }

    /// The flags under which the queue's claim is stored.
    pub fn taker_flags(&self) -> u8 {
        let mut flags = self.assurance.code();
        if self.retained {
            flags |= TAKER_RETAIN;
        }
        if self.redelivered {
            flags |= TAKER_CONNECTED;
        }
        if self.as_published {
            flags |= TAKER_AS_PUBLISHED;
        }
        if self.share != 0 {
            flags |= TAKER_SHARED;
        }
        flags
    }

    pub fn charge(&self) -> u64 {
        self.held.message.charge() as u64
    }

    /// Its row is not in the window.
    pub fn is_cold(&self) -> bool {
        self.held.stage.get() == Stage::Cold
    }
}

/// How far an in-flight delivery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flight {
    /// Its identifier must be on flash first. [MQTT-4.3.3]
    AwaitBatch(BatchNumber),
    /// Ready to be sent, or to be sent again, once the consumer is attached.
    Unsent,
    Sent(Mono),
}

#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub tag: u32,
    pub entry: Entry,
    pub flight: Flight,
}

/// A tag whose delivery the consumer has received, until it confirms the release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Releasing {
    pub tag: u32,
    /// The batch that keeps the receipt: the release may not leave before it is on flash. [MQTT-4.3.3-1]
    pub kept_by: BatchNumber,
}

/// The consumer that is attached to a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Consumer {
    pub connection: ConnectionId,
    /// Deliveries that may be unsettled at once.
    pub credit_max: u32,
    /// Its output is full: nothing is handed over until it drains.
    pub blocked: bool,
}

/// A session that never expires by its client's wish.
pub const EXPIRY_NEVER: u32 = u32::MAX;

/// Tags are handed out from 1 to this: MQTT's packet identifiers have 16 bits.
pub(super) const TAG_MAX: u32 = 65_535;

#[derive(Debug)]
pub(super) struct Queue {
    pub id: QueueId,
    pub kind: QueueKind,
    /// The session's client identifier, or the name of the queue or collection.
    pub name: Box<str>,
    /// What a queue of kind named has beside the rest.
    pub named: Option<Box<Named>>,
    /// It and its messages are kept on flash.
    pub durable: bool,
    /// The connection that opened the session; it attaches as consumer once its CONNACK may leave.
    pub owner: Option<ConnectionId>,
    pub consumer: Option<Consumer>,
    /// Last known values that a new subscription asked for, delivered before `ready`. They share the retained
    /// values' memory and are bounded by their number, so they are charged only once they are in flight.
    pub replay: VecDeque<Entry>,
    pub ready: VecDeque<Entry>,
    /// What stands behind that and is on flash only, in part.
    pub cold: Option<Box<Cold>>,
    /// In the order of sending.
    pub in_flight: VecDeque<InFlight>,
    /// Tags whose receipt is acknowledged and whose release is owed, in order.
    pub releasing: VecDeque<Releasing>,
    /// Identifiers of exactly-once publishes that were routed and are not released yet.
    pub publisher_window: BTreeSet<u16>,
    /// The batch that keeps the newest change of the publisher window.
    pub window_batch: BatchNumber,
    pub subscriptions: BTreeMap<Box<str>, SubscribeOptions>,
    /// What a session's subscriptions take.
    pub kept: Kept,
    pub bounds: QueueBounds,
    pub messages: u32,
    pub bytes: u64,
    next_tag: u32,
    /// One more than the highest key that this queue has settled.
    pub settled_below: Cell<RowKey>,
    /// Some message joined, and the settlement rows may have to say so; see [`Queue::names_keys_twice`].
    pub joins: Cell<bool>,
    /// The batch that keeps the newest version of the session's record.
    pub record_batch: BatchNumber,
    /// The session's publisher window or in-flight tags changed since its record was written.
    pub window_dirty: Cell<bool>,
    /// When the session lost its connection.
    pub detached: Option<Stamp>,
    /// Seconds for which the session waits for its client; [`EXPIRY_NEVER`] as long as the operator allows.
    pub expiry_s: u32,
    /// What was in flight to the last connection may not all have been sent again.
    pub resending: bool,
    /// When it is looked over for messages that have expired.
    pub look_at: Option<Mono>,
    /// It was connected when the gateway last stopped without saying so.
    pub was_connected: bool,
    /// At-least-once messages up to this key may have been sent to the session's client. Its record says so, as a row
    /// only knows who was connected when it was routed.
    pub sent_up_to: RowKey,
    /// Smoothed time from sending to settlement, microseconds.
    pub settle_us: u64,
    pub dropped: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Number of the publish that last visited this queue, and where its match stands: overlapping filters deliver
    /// once.
    pub visit: (u64, u32),
    /// Messages that left at the front of `ready`: the sequence of the oldest one that is there.
    pub popped: u64,
    /// Sequence of the first reading that was not handed over yet. Collections only.
    pub handed: u64,
    /// Shared subscriptions of which more waits for members that are away. Sessions only.
    pub share_waits: BTreeSet<u32>,
    /// Settlements until it may take some of that over.
    pub share_after: u32,
}

impl Queue {
    pub fn new(id: QueueId, name: Box<str>, durable: bool, bounds: QueueBounds) -> Self {
        Self {
            id,
            kind: QueueKind::Session,
            name,
            named: None,
            durable,
            owner: None,
            consumer: None,
            replay: VecDeque::new(),
            ready: VecDeque::new(),
            cold: None,
            in_flight: VecDeque::new(),
            releasing: VecDeque::new(),
            publisher_window: BTreeSet::new(),
            window_batch: BatchNumber(0),
            subscriptions: BTreeMap::new(),
            kept: Kept::default(),
            bounds,
            messages: 0,
            bytes: 0,
            next_tag: 1,
            settled_below: Cell::new(RowKey(0)),
            joins: Cell::new(false),
            record_batch: BatchNumber(0),
            window_dirty: Cell::new(false),
            detached: None,
            expiry_s: EXPIRY_NEVER,
            resending: false,
            look_at: None,
            was_connected: false,
            sent_up_to: RowKey(0),
            settle_us: 0,
            dropped: 0,
            in_flight_bytes: 0,
            visit: (0, 0),
            popped: 0,
            handed: 0,
            share_waits: BTreeSet::new(),
            share_after: 0,
        }
    }

    /// An at-least-once message is sent while this batch is open.
    pub fn note_sent(&mut self, held: &Held, open: BatchNumber) {
        let key = held.place.get().key;
        let key = if key == RowKey(0) { RowKey::last_of(open) } else { key };
        self.sent_up_to = self.sent_up_to.max(key);
    }

    pub fn charge(&mut self, entry: &Entry) {
        self.messages += 1;
        self.bytes += entry.charge();
    }

    pub fn discharge(&mut self, entry: &Entry) {
        self.messages -= 1;
        self.bytes -= entry.charge();
    }

    /// What came back of a queue with a delivery limit, as far as it has a place on flash; of many, some.
    pub fn returned(&self) -> Vec<(RowKey, u16)> {
        let Some(named) = self.named().filter(|named| named.settings().returns_max.is_some()) else {
            return Vec::new();
        };
        let all = named.entries().chain(&self.ready).chain(self.cold_entries());
        let returned = all.filter(|entry| entry.returns > 0 && entry.is_durable(self.durable));
        let keyed = returned.map(|entry| (entry.held.place.get().key, entry.returns));
        // Rows that were not read back since the start.
        let unread = named.returned.iter().filter(|_| self.cold.is_some()).map(|(key, count)| (*key, *count));
        keyed.chain(unread).filter(|(key, _)| key.0 != 0).take(RETURNED_MAX).collect()
    }

    /// True when what waits and what is in flight exceeds the bounds.
    pub const fn is_over(&self) -> bool {
        self.messages > self.bounds.messages_max || self.bytes > self.bounds.bytes_max
    }

    /// The message that is dropped first: the oldest that is not in flight.
    pub fn pop_oldest(&mut self) -> Option<Entry> {
        let entry = match &mut self.named {
            None => self.ready.pop_front()?,
            Some(named) => named.pop(&mut self.ready)?,
        };
        self.popped += 1;
        self.discharge(&entry);
        Some(entry)
    }

    /// The oldest message in memory that is not in flight.
    pub fn pop_oldest_in_memory(&mut self) -> Option<Entry> {
        if let Some(entry) = self.pop_oldest() {
            return Some(entry);
        }
        let entry = self.cold.as_mut()?.pop_entry()?;
        if let Some(named) = &mut self.named {
            named.ready_bytes -= entry.charge();
        }
        self.discharge(&entry);
        Some(entry)
    }

    /// The next last known value, when the bounds have room for it: it must not push out what was acknowledged. With
    /// nothing in flight there is no better moment to wait for.
    pub fn pop_replay(&mut self) -> Option<Entry> {
        let front = self.replay.front()?;
        if front.twin
            && self.taken().chain(self.cold_entries()).any(|entry| Rc::ptr_eq(&entry.held, &front.held))
        {
            return None;
        }
        let charge = front.charge();
        let fits = self.messages < self.bounds.messages_max && self.bytes + charge <= self.bounds.bytes_max;
        if fits || self.in_flight.is_empty() && self.ready.is_empty() {
            self.replay.pop_front()
        } else {
            None
        }
    }

    /// The newest message, for a queue that refuses what does not fit.
    pub fn pop_newest(&mut self) -> Option<Entry> {
        let newest = self.cold.as_mut().and_then(|cold| cold.pop_newest());
        let entry = match (newest, &mut self.named) {
            (Some(entry), named) => {
                if let Some(named) = named {
                    named.ready_bytes -= entry.charge();
                }
                entry
            }
            (None, None) => self.ready.pop_back()?,
            (None, Some(named)) => named.pop_newest(&mut self.ready)?,
        };
        self.handed = self.handed.min(self.popped + self.ready.len() as u64);
        self.discharge(&entry);
        Some(entry)
    }

    /// Messages that wait.
    pub fn ready_len(&self) -> usize {
        self.ready.len()
            + self.named().map_or(0, Named::overtaking_len)
            + self.cold.as_ref().map_or(0, |cold| cold.waiting())
    }

    /// Messages that wait and are in memory, and the bytes of all that is in memory.
    pub fn in_memory(&self) -> (usize, u64) {
        let (messages, bytes) = self.cold.as_ref().map_or((0, 0), |cold| (cold.messages(), cold.bytes()));
        (self.ready_len() - messages as usize, self.bytes - bytes)
    }

    /// Memory of the messages that wait there, if it is alone to have them.
    pub fn memory_bytes(&self) -> u64 {
        let (messages, bytes) = self.in_memory();
        bytes + messages as u64 * (HELD_BYTES + ENTRY_BYTES)
    }

    /// What makes it a named queue.
    pub fn named(&self) -> Option<&Named> {
        self.named.as_deref()
    }

    /// Deliveries that still fit the consumer's credit.
    pub fn credit(&self) -> usize {
        let used = self.in_flight.len() + self.releasing.len();
        self.consumer.map_or(0, |c| (c.credit_max as usize).saturating_sub(used))
    }

    /// A tag that no delivery in flight or in release uses. Ascends and wraps, so a late acknowledgement of an old
    /// delivery does not meet a new one.
    pub fn take_tag(&mut self) -> u32 {
        loop {
            let tag = self.next_tag;
            self.next_tag = if tag >= TAG_MAX { 1 } else { tag + 1 };
            if !self.uses_tag(tag) {
                return tag;
            }
        }
    }

    /// Makes the next tag follow `tag`, after a restart.
    pub const fn tags_continue_after(&mut self, tag: u32) {
        self.next_tag = if tag >= TAG_MAX { 1 } else { tag + 1 };
    }

    fn uses_tag(&self, tag: u32) -> bool {
        self.in_flight.iter().any(|f| f.tag == tag) || self.releasing.iter().any(|r| r.tag == tag)
    }

    /// A settled key is on flash.
    pub fn has_settled(&self, key: RowKey) {
        self.settled_below.set(self.settled_below.get().max(RowKey(key.0 + 1)));
    }

    /// True when a key alone does not tell which of the queue's claims on a row is settled: some message joined after
    /// it was written, or one of `settled`, in ascending order, is held as its own twin.
    pub fn names_keys_twice(&self, settled: &[RowKey]) -> bool {
        let twice = self.joins.get()
            && self.entries().any(|e| e.joined || settled.binary_search(&e.held.place.get().key).is_ok());
        self.joins.set(twice);
        twice
    }

    /// Every message that is in memory, those in flight first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let named = self.named().into_iter().flat_map(Named::entries);
        self.in_flight
            .iter()
            .map(|f| &f.entry)
            .chain(&self.replay)
            .chain(named)
            .chain(&self.ready)
            .chain(self.cold_entries())
    }

    /// Messages in memory that stand between or behind those that are not.
    fn cold_entries(&self) -> impl Iterator<Item = &Entry> {
        self.cold.iter().flat_map(|cold| cold.entries())
    }

    /// How many messages it holds, wherever they are.
    pub fn held_copies(&self) -> usize {
        self.entries().count() + self.cold.as_ref().map_or(0, |cold| cold.messages() as usize)
    }

    /// Which of these messages the queue holds, beside those that wait to be replayed.
    pub fn held_among(&self, wanted: &BTreeSet<*const Held>) -> BTreeSet<*const Held> {
        if wanted.is_empty() {
            return BTreeSet::new();
        }
        let taken = self.taken().chain(self.cold_entries());
        taken.map(|entry| Rc::as_ptr(&entry.held)).filter(|held| wanted.contains(held)).collect()
    }

    /// Messages in flight and ready.
    pub fn taken(&self) -> impl Iterator<Item = &Entry> {
        let named = self.named().into_iter().flat_map(Named::entries);
        self.in_flight.iter().map(|f| &f.entry).chain(named).chain(&self.ready)
    }

    /// Copies that somebody has to settle: all but the at-most-once values that wait to be replayed.
    pub fn owed_copies(&self) -> u64 {
        let owed = |entry: &&Entry| entry.assurance != Assurance::AtMostOnce;
        u64::from(self.messages) + self.replay.iter().filter(owed).count() as u64
    }

    /// Learns how fast this consumer settles: an exponential mean over about eight settlements.
    pub fn settled_after(&mut self, sent: Mono, now: Mono) {
        let took = u64::try_from(now.since(sent).as_micros()).unwrap_or(u64::MAX).min(10_000_000);
        self.settle_us = (self.settle_us * 7 + took) / 8;
    }
}
