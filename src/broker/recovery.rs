//! Recovery: from the rows that the store found at start to a broker that goes on where the last one stopped.
//!
//! Rows come in key order. The newest record under a key holds; settlements speak about rows before them. Nothing
//! here fails: a row that cannot be read is counted and left out.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::backlog::Adopted;
use super::cold_recovery::{ColdRows, remaining};
use super::collection::UNBOUNDED;
use super::held::{
    Held, RETAINED, Stage, TAKER_AS_PUBLISHED, TAKER_CONNECTED, TAKER_RETAIN, TAKER_SHARED, Taker, TakerSet,
};
#[cfg(feature = "mutations")]
use super::mutation::{Mutation, is_made};
use super::named::Named;
use super::queue::{
    Entry, Flight, InFlight, NEVER, Queue, QueueIndex, QueueKind, Releasing, SEVERAL_IDENTIFIERS,
};
use super::rows::{self, RecordKey, RowKind, SessionRecord, Settled, StoredChange};
use super::topology_rows::{BindingRecord, ExchangeRecord, QueueRecord};
use super::will::Will;
use super::{Broker, LossReason, Policy, ledger};
use crate::ids::{BatchNumber, QueueId, RowKey};
use crate::message::{Assurance, Message};
use crate::store::batch::Place;
use crate::store::stored_bytes;
use crate::time::{Now, Stamp};

/// What was found, for the log line and `status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoverySummary {
    pub sessions: usize,
    pub named_queues: usize,
    /// Messages in all queues.
    pub queued: usize,
    pub retained: usize,
    /// Wills of clients that were connected when the gateway stopped; due at start.
    pub wills: usize,
    /// Rows whose content could not be read.
    pub unreadable: usize,
}

pub(super) struct MessageRow {
    place: Place,
    set: RowKey,
    message: Message,
}

/// What earlier rows say about one queue's settlements.
#[derive(Default)]
struct Settlements {
    below: Option<(RowKey, Vec<rows::Survivor>)>,
    keys: BTreeSet<RowKey>,
    /// Rows that the queue joined since, with its flags.
    joined: BTreeMap<RowKey, u8>,
    /// Those of them that it had settled before.
    joined_again: BTreeSet<RowKey>,
}

impl Settlements {
    fn join(&mut self, key: RowKey, flags: u8) {
        if self.keys.remove(&key) {
            self.joined_again.insert(key);
            if let Some((_, survivors)) = &mut self.below {
                survivors.retain(|survivor| survivor.key != key);
            }
            self.joined.remove(&key);
        }
        // Of twins that joined one after the other the older one stands: it may be in flight under a tag.
        self.joined.entry(key).or_insert(flags);
    }

    /// True when the claim that the row's own taker set makes is settled.
    fn is_settled(&self, key: RowKey) -> bool {
        // Survivors are looked up apart: they bring their own flags.
        self.keys.contains(&key)
            || self.joined_again.contains(&key)
            || self.below.as_ref().is_some_and(|(mark, _)| key < *mark)
    }
}

/// Collects the rows; [`Recovered::finish`] makes a broker of them.
#[derive(Default)]
pub struct Recovered {
    pub(super) messages: BTreeMap<RowKey, MessageRow>,
    sets: BTreeMap<RowKey, (Place, usize, Vec<Taker>)>,
    settled: BTreeMap<QueueId, Settlements>,
    pub(super) window: Vec<(RowKey, QueueId, StoredChange)>,
    pub(super) records: BTreeMap<RecordKey, (Place, Vec<u8>)>,
    deltas: Vec<(Place, usize)>,
    dead: Vec<(Place, usize)>,
    unreadable: usize,
    stopped_cleanly: bool,
    pub(super) cold: ColdRows,
}

impl std::fmt::Debug for Recovered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recovered").field("messages", &self.messages.len()).finish_non_exhaustive()
    }
}

impl Recovered {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The last stop was a clean one. Else any client may have come back after the last batch, and what waited for it
    /// may have been sent.
    pub const fn stopped_cleanly(&mut self) {
        self.stopped_cleanly = true;
    }

    /// Takes a row, in key order.
    pub fn row(&mut self, place: Place, kind: u8, body: &[u8]) {
        if self.read(place, kind, body).is_none() {
            self.unreadable += 1;
            self.dead.push((place, body.len()));
        }
    }

    /// A record that is known from elsewhere, used where the rows have none under its key. For a damaged file.
    pub fn essential(&mut self, body: &[u8]) {
        if let Some((key, Some(content))) = rows::read_record(body) {
            self.records.entry(key).or_insert_with(|| (Place::default(), content.to_vec()));
        }
    }

    /// The broker that goes on from these rows.
    #[must_use]
    pub fn finish(
        mut self,
        policy: Policy,
        seed: u64,
        now: Now,
        last: BatchNumber,
        boot: u32,
    ) -> (Broker, RecoverySummary) {
        let mut broker = Broker::new(policy, seed, now, last, boot);
        let mut summary = RecoverySummary { unreadable: self.unreadable, ..RecoverySummary::default() };
        for (place, bytes) in &self.dead {
            broker.ledger.recovered_dead(*place, *bytes);
        }
        for (place, bytes) in &self.deltas {
            broker.ledger.recovered_delta(*place, *bytes);
        }
        let wills = self.recover_records(&mut broker, now);
        self.recover_messages(&mut broker, now);
        summary.unreadable += self.cold.recover(&mut broker, now);
        self.recover_windows(&mut broker, now, last);
        broker.settle_recovered();
        for index in broker.durable.values().copied().collect::<Vec<_>>() {
            #[cfg(feature = "mutations")]
            if is_made(Mutation::RecoverBeyondBounds) {
                continue;
            }
            broker.keep_queue_bounds(now, index);
            broker.arm(now.mono, index);
        }
        broker.bury_dead(now);
        summary.sessions = broker.sessions.len();
        summary.named_queues = broker.named.len();
        summary.queued = broker.queues.iter().flatten().map(Queue::held_copies).sum();
        summary.retained = broker.retained.len();
        summary.wills = wills.len();
        for (number, will) in wills {
            broker.recover_will(now, number, will);
        }
        broker.end_unkept_sessions(now);
        (broker, summary)
    }

    fn read(&mut self, place: Place, kind: u8, body: &[u8]) -> Option<()> {
        match RowKind::from_code(kind)? {
            RowKind::Message => {
                let (set, message) = rows::read_message_row(body)?;
                self.messages.insert(place.key, MessageRow { place, set, message });
            }
            RowKind::TakerSet => {
                let takers = rows::read_taker_set(body)?;
                self.sets.insert(place.key, (place, body.len(), takers));
            }
            RowKind::Settlement => {
                for (queue, settled) in rows::read_settlement(body)? {
                    let known = self.settled.entry(queue).or_default();
                    match settled {
                        Settled::Keys(keys) => known.keys.extend(keys),
                        Settled::Below(mark, survivors) => {
                            *known = Settlements { below: Some((mark, survivors)), ..Settlements::default() };
                        }
                        Settled::Cold(part) => self.cold.part(queue, part),
                    }
                }
                self.deltas.push((place, body.len()));
            }
            RowKind::Joined => {
                for (queue, key, flags) in rows::read_joined(body)? {
                    let known = self.settled.entry(queue).or_default();
                    known.join(key, flags);
                }
                self.deltas.push((place, body.len()));
            }
            RowKind::Window => {
                let changes = rows::read_window(body)?;
                self.window.extend(changes.into_iter().map(|(queue, change)| (place.key, queue, change)));
                self.deltas.push((place, body.len()));
            }
            RowKind::Record => self.read_record(place, body)?,
        }
        Some(())
    }

    /// A message of the window lies in a chunk, too: its row there is the one that counts.
    pub(super) fn forget_message(&mut self, key: RowKey) {
        if let Some(row) = self.messages.remove(&key) {
            self.dead.push((row.place, rows::message_bytes(&row.message)));
        }
    }

    fn read_record(&mut self, place: Place, body: &[u8]) -> Option<()> {
        let (key, content) = rows::read_record(body)?;
        let old = match content {
            Some(content) => self.records.insert(key, (place, content.to_vec())),
            None => {
                self.dead.push((place, body.len()));
                self.records.remove(&key)
            }
        };
        if let Some((old, content)) = old {
            self.dead.push((old, content.len()));
        }
        Some(())
    }

    /// Sessions and receipts stand again; wills are handed back to be published.
    fn recover_records(&mut self, broker: &mut Broker, now: Now) -> Vec<(u64, Will)> {
        let mut wills = Vec::new();
        // Queues may name an exchange that they delay for, and bindings name both.
        let pass = |key: &RecordKey| match key {
            RecordKey::Session(_) | RecordKey::Will(_) | RecordKey::Loss(_) | RecordKey::Exchange(_) => 0,
            RecordKey::Backlog | RecordKey::Cold(_) => 0,
            RecordKey::Queue(_) => 1,
            RecordKey::Binding(_) => 2,
        };
        let mut records: Vec<_> = self.records.iter().collect();
        records.sort_by_key(|(key, _)| pass(key));
        for (key, (place, content)) in records {
            let read = match key {
                RecordKey::Exchange(number) => recover_exchange(broker, *number, content),
                RecordKey::Queue(id) => recover_named(broker, now, *id, content),
                RecordKey::Binding(number) => {
                    broker.ledger.recovered_id(*number);
                    BindingRecord::read(content).and_then(|record| broker.recover_binding(*number, record))
                }
                RecordKey::Session(id) => recover_session(broker, now, *id, content),
                RecordKey::Loss(number) => broker.losses.recover(*number, content),
                RecordKey::Backlog => Adopted::read(content).map(|adopted| self.cold.adopted = adopted),
                RecordKey::Cold(id) => self.cold.expect_held(*id, content),
                RecordKey::Will(number) => {
                    broker.next_will = broker.next_will.max(number + 1);
                    rows::read_will(content).map(|will| wills.push((*number, will)))
                }
            };
            if place.pieces == 0 {
                // From the essentials: it has no row yet.
                broker.ledger.touch_soon(now.mono, *key);
            } else if read.is_some() {
                broker.ledger.recovered_record(*key, *place, content.len());
            } else {
                broker.ledger.recovered_dead(*place, content.len());
            }
        }
        wills
    }

    fn recover_messages(&self, broker: &mut Broker, now: Now) {
        // Claims beside the taker sets: survivors below a mark, and what a queue joined later.
        let mut extra: BTreeMap<RowKey, Vec<(QueueId, u8)>> = BTreeMap::new();
        for (queue, settlements) in &self.settled {
            let survivors = settlements.below.iter().flat_map(|(_, survivors)| survivors);
            let survivors = survivors.map(|survivor| (survivor.key, survivor.flags));
            for (key, flags) in survivors.chain(settlements.joined.iter().map(|(k, f)| (*k, *f))) {
                if !settlements.keys.contains(&key) {
                    extra.entry(key).or_default().push((*queue, flags));
                }
            }
        }
        let mut entries: BTreeMap<QueueId, Vec<Entry>> = BTreeMap::new();
        let mut newest: BTreeMap<Box<str>, Rc<Held>> = BTreeMap::new();
        let mut sets: BTreeMap<RowKey, Rc<TakerSet>> = BTreeMap::new();
        for (key, row) in &self.messages {
            let held = Held::new(row.message.clone(), &broker.memory);
            held.stage.set(Stage::Written);
            held.place.set(row.place);
            let mut claims = BTreeMap::new();
            let mut retained = false;
            let takers = self.sets.get(&row.set).map(|(_, _, takers)| takers.as_slice()).unwrap_or_default();
            for taker in takers {
                if rows::is_retained(taker.queue) {
                    retained = !self.is_settled(RETAINED, *key);
                } else if !self.is_settled(taker.queue, *key) {
                    claim(&mut claims, taker.queue, taker.flags, false);
                }
            }
            for (queue, flags) in extra.get(key).into_iter().flatten() {
                let named = takers.iter().any(|taker| taker.queue == *queue);
                claim(&mut claims, *queue, *flags, !named);
            }
            for (queue, (flags, joined)) in claims {
                if broker.durable.contains_key(&queue) {
                    held.owed.set(held.owed.get() + 1);
                    entries.entry(queue).or_default().push(entry(&held, flags, joined));
                }
            }
            if retained {
                held.owed.set(held.owed.get() + 1);
                newest.insert(row.message.address.clone(), Rc::clone(&held));
            }
            self.account(broker, &held, row, &mut sets);
        }
        for (address, held) in newest {
            debug_assert_eq!(*address, *held.message.address);
            broker.retained.set(&held, remaining(now, super::publish::expiry(now.mono, &held), &held));
        }
        self.recover_marks(broker);
        for (queue, entries) in entries {
            self.fill(broker, now, queue, entries);
        }
        for (key, (place, bytes, _)) in &self.sets {
            if !sets.contains_key(key) {
                broker.ledger.recovered_dead(*place, *bytes);
            }
        }
    }

    /// Puts a message row on the ledger: live, dead, or live until a newer value takes its place.
    fn account(
        &self,
        broker: &mut Broker,
        held: &Rc<Held>,
        row: &MessageRow,
        sets: &mut BTreeMap<RowKey, Rc<TakerSet>>,
    ) {
        if held.is_settled() {
            broker.ledger.recovered_dead(row.place, rows::message_bytes(&row.message));
            return;
        }
        if let Some((place, bytes, _)) = self.sets.get(&row.set) {
            let set = sets.entry(row.set).or_insert_with(|| {
                let bytes = stored_bytes(*bytes);
                broker.ledger.recovered_set(bytes);
                Rc::new(TakerSet { place: *place, bytes, messages: std::cell::Cell::new(0) })
            });
            set.messages.set(set.messages.get() + 1);
            held.set.replace(Some(Rc::clone(set)));
        }
        broker.ledger.recovered_message(held);
        if self.settled.get(&RETAINED).is_some_and(|s| s.keys.contains(&row.place.key)) {
            broker.ledger.recovered_unretained(row.place.key);
        }
    }

    /// Every queue knows again how far it has settled, also one that holds nothing now: other queues may keep rows
    /// alive that it settled, and the next checkpoint must say so once more.
    fn recover_marks(&self, broker: &Broker) {
        #[cfg(feature = "mutations")]
        if is_made(Mutation::ForgetEmptyMarks) {
            return;
        }
        for (id, settlements) in &self.settled {
            let Some(queue) = broker.durable.get(id).and_then(|index| broker.queue(*index)) else { continue };
            if let Some((mark, _)) = &settlements.below {
                queue.settled_below.set(*mark);
            }
            if let Some(last) = settlements.keys.last() {
                queue.has_settled(*last);
            }
        }
    }

    /// Gives a queue its messages: those that were routed to it by key, the values to replay in their own order.
    fn fill(&self, broker: &mut Broker, now: Now, id: QueueId, mut entries: Vec<Entry>) {
        let Some(index) = broker.durable.get(&id).copied() else { return };
        let Some(queue) = broker.queue_mut(index) else { return };
        if queue.kind == QueueKind::Named {
            entries.sort_by_key(|entry| entry.held.place.get().key);
            broker.refill(now, index, entries);
            return;
        }
        if let Some((_, survivors)) = self.settled.get(&id).and_then(|s| s.below.as_ref()) {
            let order: BTreeMap<_, _> = survivors.iter().enumerate().map(|(n, s)| (s.key, n)).collect();
            entries.sort_by_key(|e| {
                let key = e.held.place.get().key;
                // A routed message keeps its place by its key, also when it survives as the twin of a value.
                let place = if e.retained { order.get(&key).copied().unwrap_or(usize::MAX) } else { 0 };
                (place, key)
            });
        }
        let identified = queue.subscriptions.values().any(|options| options.identifier != 0);
        // A reading stays: it was stored when it came, and its place among the others tells which one it is.
        let expires = queue.kind != QueueKind::Collection;
        let mut first_expiry = NEVER;
        for mut entry in entries {
            entry.identifier = if identified { SEVERAL_IDENTIFIERS } else { 0 };
            if expires {
                entry.expires_at = remaining(now, super::publish::expiry(now.mono, &entry.held), &entry.held);
            }
            first_expiry = first_expiry.min(entry.expires_at);
            if entry.joined {
                queue.joins.set(true);
            }
            if entry.retained {
                queue.replay.push_back(entry);
            } else {
                queue.charge(&entry);
                queue.ready.push_back(entry);
            }
        }
        if first_expiry != NEVER {
            broker.look_later(now.mono, index, first_expiry);
        }
        broker.recover_shares(index);
    }

    fn is_settled(&self, queue: QueueId, key: RowKey) -> bool {
        self.settled.get(&queue).is_some_and(|settlements| settlements.is_settled(key))
    }

    /// Exactly-once exchanges go on where they stopped: the record's state, then the steps after it.
    fn recover_windows(&self, broker: &mut Broker, now: Now, last: BatchNumber) {
        for (key, (place, content)) in &self.records {
            let RecordKey::Session(id) = key else { continue };
            let (Some(index), Some(record)) = (broker.durable.get(id).copied(), SessionRecord::read(content))
            else {
                continue;
            };
            let Some(queue) = broker.queue_mut(index) else { continue };
            let mut tagged = record.tagged;
            queue.publisher_window.extend(record.publisher_window);
            let kept_by = BatchNumber(0);
            queue.releasing.extend(record.releasing.into_iter().map(|tag| Releasing { tag, kept_by }));
            let later = self.window.iter().filter(|(at, queue, _)| queue == id && *at > place.key);
            for (_, _, change) in later {
                queue.window_dirty.set(true);
                apply(queue, &mut tagged, *change);
            }
            queue.sent_up_to = record.sent_up_to;
            let unsure = !self.stopped_cleanly && queue.kind == QueueKind::Session;
            #[cfg(feature = "mutations")]
            let unsure = unsure && !is_made(Mutation::ForgetSentMarks);
            if unsure && (!queue.ready.is_empty() || queue.cold.is_some()) {
                queue.sent_up_to = RowKey::last_of(last);
                broker.ledger.touch_soon(now.mono, RecordKey::Session(*id));
            }
            let Some(queue) = broker.queue_mut(index) else { continue };
            if let Some(cold) = &mut queue.cold {
                cold.may_be_sent(queue.sent_up_to);
            }
            tag_entries(queue, &tagged);
            broker.keeps_window(index);
        }
    }
}

fn recover_exchange(broker: &mut Broker, number: u64, content: &[u8]) -> Option<()> {
    broker.ledger.recovered_id(number);
    let record = ExchangeRecord::read(content)?;
    if broker.exchanges.find(&record.name).is_some() {
        return None;
    }
    broker.insert_exchange(&record.name, number, record.options);
    Some(())
}

fn recover_named(broker: &mut Broker, now: Now, id: QueueId, content: &[u8]) -> Option<()> {
    broker.ledger.recovered_id(id.0);
    let record = QueueRecord::read(content)?;
    let delays = match record.delays {
        Some(number) => Some(broker.exchanges.by_number(number)?),
        None => None,
    };
    let mut named = Named::new(record.options, now.mono);
    named.delays = delays;
    named.returned = record.returned.into_iter().collect();
    let index = broker.recover_queue(now, id, &record.name, named)?;
    broker.arm(now.mono, index);
    Some(())
}

fn recover_session(broker: &mut Broker, now: Now, id: QueueId, content: &[u8]) -> Option<()> {
    broker.ledger.recovered_id(id.0);
    let record = SessionRecord::read(content)?;
    if record.kind == QueueKind::Collection {
        return recover_collection(broker, id, record.name);
    }
    if broker.sessions.contains_key(&record.name) {
        return None;
    }
    let bounds = broker.bounds_of(&record.name);
    let mut queue = Queue::new(id, record.name, true, bounds);
    queue.record_batch = broker.ledger.persisted();
    queue.window_batch = broker.ledger.persisted();
    // A session that was connected at the end has been away since this start.
    queue.detached = Some(record.detached.unwrap_or_else(|| Stamp::new(now, broker.boot)));
    let was_connected = record.detached.is_none();
    queue.was_connected = was_connected;
    queue.expiry_s = record.expiry_s;
    queue.subscriptions.extend(record.subscriptions.iter().cloned());
    let index = broker.insert(queue);
    for (filter, options) in &record.subscriptions {
        broker.index_filter(index, filter, *options);
        broker.keeps_filter(index, filter);
        broker.system_subscriptions += usize::from(super::session::is_system(filter));
    }
    if was_connected {
        broker.ledger.touch_soon(now.mono, RecordKey::Session(id));
    }
    broker.expire_in(now.mono, std::time::Duration::ZERO);
    Some(())
}

/// A collection has no bounds and no bindings until the configuration gives them.
fn recover_collection(broker: &mut Broker, id: QueueId, name: Box<str>) -> Option<()> {
    if broker.collections.contains_key(&name) {
        return None;
    }
    let mut queue = Queue::new(id, name, true, UNBOUNDED);
    queue.kind = QueueKind::Collection;
    queue.record_batch = broker.ledger.persisted();
    broker.insert(queue);
    broker.has_readings = true;
    Some(())
}

/// Notes that `queue` holds a message, with its flags and whether the message's own taker set leaves it out.
///
/// Two claims of one queue are twins. The older one stands, as it may be in flight under a tag: that is the routed
/// message where there is one, else what comes first.
pub(super) fn claim(claims: &mut BTreeMap<QueueId, (u8, bool)>, queue: QueueId, flags: u8, joined: bool) {
    let stands = claims.entry(queue).or_insert((flags, joined));
    if stands.0 & TAKER_RETAIN != 0 && flags & TAKER_RETAIN == 0 {
        *stands = (flags, joined);
    }
}

fn entry(held: &Rc<Held>, flags: u8, joined: bool) -> Entry {
    Entry {
        retained: flags & TAKER_RETAIN != 0,
        redelivered: flags & TAKER_CONNECTED != 0,
        as_published: flags & TAKER_AS_PUBLISHED != 0,
        // Which one is found out when the sessions are there.
        share: u32::from(flags & TAKER_SHARED != 0),
        joined,
        ..Entry::new(Rc::clone(held), Assurance::from_code(flags & 0x03).unwrap_or(Assurance::AtLeastOnce))
    }
}

fn apply(queue: &mut Queue, tagged: &mut Vec<(u32, RowKey)>, change: StoredChange) {
    match change {
        StoredChange::Published(identifier) => {
            queue.publisher_window.insert(identifier);
        }
        StoredChange::PublishReleased(identifier) => {
            queue.publisher_window.remove(&identifier);
        }
        StoredChange::Tagged(tag, key) => {
            queue.tags_continue_after(tag);
            tagged.push((tag, key));
        }
        StoredChange::Received(tag) => {
            tagged.retain(|(t, _)| *t != tag);
            queue.releasing.push_back(Releasing { tag, kept_by: BatchNumber(0) });
        }
        StoredChange::Completed(tag) => {
            tagged.retain(|(t, _)| *t != tag);
            queue.releasing.retain(|r| r.tag != tag);
        }
    }
}

/// Moves the messages whose tags are known back in flight.
fn tag_entries(queue: &mut Queue, tagged: &[(u32, RowKey)]) {
    for (tag, key) in tagged {
        queue.tags_continue_after(*tag);
        let named = |e: &Entry| e.held.place.get().key == *key;
        let found = if let Some(position) = queue.ready.iter().position(named) {
            queue.ready.remove(position)
        } else if let Some(position) = queue.replay.iter().position(named) {
            let entry = queue.replay.remove(position);
            if let Some(entry) = &entry {
                queue.charge(entry);
            }
            entry
        } else {
            None
        };
        let Some(mut entry) = found else { continue };
        queue.in_flight_bytes += entry.charge();
        // Its identifier was on flash before it could be sent, so it may have been. [MQTT-3.3.1-1]
        entry.redelivered = true;
        queue.in_flight.push_back(InFlight { tag: *tag, entry, flight: Flight::Unsent });
    }
    if let Some(tag) = queue.releasing.iter().map(|r| r.tag).max() {
        queue.tags_continue_after(tag.max(tagged.iter().map(|(t, _)| *t).max().unwrap_or(0)));
    }
    for entry in &mut queue.ready {
        // An exactly-once message without a tag was not sent.
        let may_be_sent =
            entry.assurance == Assurance::AtLeastOnce && entry.held.place.get().key <= queue.sent_up_to;
        entry.redelivered |= queue.was_connected || may_be_sent;
    }
}

impl Broker {
    /// Records a session needs to be known by after its file is lost: subscriptions and names.
    #[must_use]
    pub fn essentials(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for index in self.durable.values() {
            let Some(queue) = self.queue(*index).filter(|queue| queue.kind != QueueKind::Named) else {
                continue;
            };
            let mut content = Vec::new();
            let mut record = SessionRecord::of(queue);
            // What rows say about is lost with them.
            record.tagged.clear();
            record.put(&mut content);
            let mut row = Vec::new();
            rows::put_record(&mut row, RecordKey::Session(queue.id), Some(&content));
            all.push(row);
        }
        for key in self.topology_records() {
            if let Some(content) = ledger::Ground::record(&self.view(), key)
                && !matches!(key, RecordKey::Session(_))
            {
                let mut row = Vec::new();
                rows::put_record(&mut row, key, Some(&content));
                all.push(row);
            }
        }
        all
    }

    /// Records of sessions, named queues, exchanges and bindings.
    pub(super) fn topology_records(&self) -> Vec<RecordKey> {
        let queues = self.durable.iter().filter_map(|(id, index)| {
            let named = self.queue(*index)?.kind == QueueKind::Named;
            Some(if named { RecordKey::Queue(*id) } else { RecordKey::Session(*id) })
        });
        let exchanges = self
            .exchanges
            .iter()
            .filter(|(index, exchange)| exchange.options.durable && !Self::is_predeclared(*index));
        let exchanges = exchanges.map(|(_, exchange)| RecordKey::Exchange(exchange.number));
        let bindings = self.recorded_bindings.keys().map(|number| RecordKey::Binding(*number));
        queues.chain(exchanges).chain(bindings).collect()
    }

    /// Gives a named queue its messages, in their order. What was there when the gateway stopped may have been
    /// delivered.
    fn refill(&mut self, now: Now, index: QueueIndex, entries: Vec<Entry>) {
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        for mut entry in entries {
            let Some(named) = &mut queue.named else { return };
            entry.redelivered = true;
            entry.returns = named.returned.remove(&entry.held.place.get().key).unwrap_or(0);
            entry.expires_at =
                remaining(now, super::sharing::expiry(now.mono, named, &entry.held), &entry.held);
            queue.messages += 1;
            queue.bytes += entry.charge();
            if named.delays.is_some() {
                named.push_by_time(&mut queue.ready, entry);
            } else {
                named.push(&mut queue.ready, entry);
            }
        }
        self.arm(now.mono, index);
    }

    /// The start found damage: what is gone is unknown, so the receipt names the file.
    pub fn report_damage(&mut self, now: Now, what: &str) {
        let message = Message {
            address: what.into(),
            body: bytes::Bytes::new(),
            assurance: Assurance::AtMostOnce,
            retain: false,
            received_at: now.wall,
            received_trusted: now.wall_trusted,
            ..Message::default()
        };
        for record in self.losses.add((what, None), LossReason::Damage, &message, RowKey(0)) {
            self.ledger.touch_soon(now.mono, record);
        }
    }
}
