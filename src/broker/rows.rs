//! Bodies of the broker's rows: what `store` keeps without knowing it. `docs/disk-format.md` describes the bytes.
//!
//! Every reader answers `None` for bytes that are not such a row; recovery counts and skips them.

use super::held::{RETAINED, Taker};
use super::queue::{EXPIRY_NEVER, Entry, Queue, QueueKind, SubscribeOptions};
use super::will::Will;
use crate::ids::{ChunkNumber, QueueId, RowKey};
use crate::message::record::{Reader, put_bytes, put_integer, put_message, read_message};
use crate::message::{Assurance, Message};
use crate::time::{Mono, Stamp, Wall};

/// The kind byte in a row's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowKind {
    Message,
    TakerSet,
    Settlement,
    Joined,
    Window,
    Record,
}

impl RowKind {
    pub const fn code(self) -> u8 {
        match self {
            Self::Message => 1,
            Self::TakerSet => 2,
            Self::Settlement => 3,
            Self::Joined => 4,
            Self::Window => 5,
            Self::Record => 6,
        }
    }

    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Message,
            2 => Self::TakerSet,
            3 => Self::Settlement,
            4 => Self::Joined,
            5 => Self::Window,
            6 => Self::Record,
            _ => return None,
        })
    }
}

/// Names a record: the newest row under a key holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum RecordKey {
    Session(QueueId),
    /// The will of a connected client, by the number of its registration.
    Will(u64),
    Loss(u32),
    /// A named queue.
    Queue(QueueId),
    Exchange(u64),
    Binding(u64),
    /// Which chunks of the backlog count.
    Backlog,
    /// What a queue had in the backlog when chunks last came.
    Cold(QueueId),
}

impl RecordKey {
    const fn code(self) -> (u8, u64) {
        match self {
            Self::Session(id) => (1, id.0),
            Self::Will(number) => (2, number),
            Self::Loss(number) => (3, number as u64),
            Self::Queue(id) => (4, id.0),
            Self::Exchange(number) => (5, number),
            Self::Binding(number) => (6, number),
            Self::Backlog => (7, 0),
            Self::Cold(id) => (8, id.0),
        }
    }

    fn from_code(kind: u8, id: u64) -> Option<Self> {
        Some(match kind {
            1 => Self::Session(QueueId(id)),
            2 => Self::Will(id),
            3 => Self::Loss(u32::try_from(id).ok()?),
            4 => Self::Queue(QueueId(id)),
            5 => Self::Exchange(id),
            6 => Self::Binding(id),
            7 => Self::Backlog,
            8 => Self::Cold(QueueId(id)),
            _ => return None,
        })
    }
}

// Message: key of the taker set (integer), then the message (message::record).

pub(super) fn put_message_row(out: &mut Vec<u8>, set: RowKey, message: &Message) {
    put_integer(out, set.0);
    put_message(out, message);
}

pub(super) fn read_message_row(body: &[u8]) -> Option<(RowKey, Message)> {
    let mut reader = Reader::new(body);
    let set = RowKey(reader.integer()?);
    Some((set, read_message(&mut reader)?))
}

/// Upper bound of a message row's bytes: what the message is charged on flash.
pub(super) fn message_bytes(message: &Message) -> usize {
    // Two keys, flags, lengths; priority and time to live.
    message.charge() + message.exchange.as_ref().map_or(0, |name| name.len()) + 48
}

// Taker set: count, then for each queue, ascending: difference of ids (integer), flags (byte).

pub(super) fn put_taker_set(out: &mut Vec<u8>, takers: &[Taker]) {
    put_integer(out, takers.len() as u64);
    let mut last = 0;
    for taker in takers {
        put_integer(out, taker.queue.0.wrapping_sub(last));
        out.push(taker.flags);
        last = taker.queue.0;
    }
}

pub(super) fn read_taker_set(body: &[u8]) -> Option<Vec<Taker>> {
    let mut reader = Reader::new(body);
    let count = reader.integer()?;
    let mut takers = Vec::new();
    let mut last = 0u64;
    for _ in 0..count {
        last = last.wrapping_add(reader.integer()?);
        takers.push(Taker { queue: QueueId(last), flags: reader.byte()? });
    }
    reader.is_empty().then_some(takers)
}

/// Which of a queue's messages are settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Settled {
    /// These, beside what earlier rows say. Ascending.
    Keys(Vec<RowKey>),
    /// All below the key but the survivors; this replaces what earlier rows say. The survivors'
    /// order is that of the values to be replayed.
    Below(RowKey, Vec<Survivor>),
    /// Of a chunk of the backlog; this replaces what earlier rows say about it. Rows in chunks are not meant by the
    /// other forms.
    Cold(ColdPart),
}

/// What a queue still has of a chunk of the backlog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ColdPart {
    pub number: ChunkNumber,
    /// All below is settled, but the survivors; from it on nothing is.
    pub from: RowKey,
    /// What is left, so that a start need not count.
    pub messages: u64,
    pub bytes: u64,
    /// Ascending.
    pub survivors: Vec<RowKey>,
}

/// A message that is not settled though its key is below the mark, or that the queue joined later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Survivor {
    pub key: RowKey,
    /// Bits 0-1 assurance, bit 2 retain mark, bit 3 may have been sent.
    pub flags: u8,
}

impl Settled {
    /// The queue has nothing of a chunk any more.
    pub const fn nothing_of(number: ChunkNumber) -> Self {
        let from = RowKey(u64::MAX);
        Self::Cold(ColdPart { number, from, messages: 0, bytes: 0, survivors: Vec::new() })
    }

    /// The `Below` form of `queue`, unless it needs more than `survivors_max` survivors.
    pub fn below(queue: &Queue, survivors_max: usize) -> Option<Self> {
        let mark = queue.settled_below.get();
        let mut survivors = Vec::new();
        if let Some(named) = queue.named() {
            // Nothing is ever joined here, and what waits stands in the order of its keys, unless it waits for its
            // time: the long tail that lies above the mark is not looked at.
            let sorted = named.delays.is_none();
            let below = |entry: &&Entry| {
                let key = entry.held.place.get().key;
                !entry.is_durable(queue.durable) || key < mark && key != RowKey(0)
            };
            let waiting =
                named.levels(&queue.ready).flat_map(|level| level.iter().take_while(|e| !sorted || below(e)));
            let in_flight = named.unsettled.iter().map(|unsettled| &unsettled.entry);
            let cold = queue.cold.iter().flat_map(|cold| cold.entries_below(mark));
            let in_window = |entry: &&Entry| entry.is_durable(queue.durable) && !entry.is_cold();
            for entry in in_flight.chain(waiting).chain(cold).filter(in_window) {
                let key = entry.held.place.get().key;
                if key == RowKey(0) || key >= mark {
                    continue;
                }
                if survivors.len() == survivors_max {
                    return None;
                }
                survivors.push(Survivor { key, flags: entry.taker_flags() });
            }
            return Some(Self::Below(mark, survivors));
        }
        for entry in queue.entries().filter(|e| e.is_durable(queue.durable) && !e.is_cold()) {
            let key = entry.held.place.get().key;
            if key == RowKey(0) {
                // Waits for a later batch, so its key will be above the mark.
                continue;
            }
            if key >= mark && !entry.joined {
                continue;
            }
            if survivors.len() == survivors_max {
                return None;
            }
            survivors.push(Survivor { key, flags: entry.taker_flags() });
        }
        Some(Self::Below(mark, survivors))
    }
}

// Settlement: for each queue: id (integer), form (byte 0 keys, 1 below, 2 a part of a chunk), [mark; number of the chunk, from,
// messages, bytes], count, keys as zigzag differences; survivors of form 1 carry their flags behind each key.

pub(super) fn put_settled(out: &mut Vec<u8>, queue: QueueId, settled: &Settled) {
    put_integer(out, queue.0);
    let mut last = 0;
    match settled {
        Settled::Keys(keys) => {
            out.push(0);
            put_integer(out, keys.len() as u64);
            for key in keys {
                put_difference(out, &mut last, key.0);
            }
        }
        Settled::Below(mark, survivors) => {
            out.push(1);
            put_integer(out, mark.0);
            put_integer(out, survivors.len() as u64);
            last = mark.0;
            for survivor in survivors {
                put_difference(out, &mut last, survivor.key.0);
                out.push(survivor.flags);
            }
        }
        Settled::Cold(part) => {
            out.push(2);
            for value in [part.number.0, part.from.0, part.messages, part.bytes] {
                put_integer(out, value);
            }
            put_integer(out, part.survivors.len() as u64);
            for key in &part.survivors {
                put_difference(out, &mut last, key.0);
            }
        }
    }
}

pub(super) fn read_settlement(body: &[u8]) -> Option<Vec<(QueueId, Settled)>> {
    let mut reader = Reader::new(body);
    let mut all = Vec::new();
    while !reader.is_empty() {
        let queue = QueueId(reader.integer()?);
        let settled = match reader.byte()? {
            0 => {
                let mut last = 0;
                let count = reader.integer()?;
                let mut keys = Vec::new();
                for _ in 0..count {
                    keys.push(RowKey(read_difference(&mut reader, &mut last)?));
                }
                Settled::Keys(keys)
            }
            1 => {
                let mark = reader.integer()?;
                let mut last = mark;
                let count = reader.integer()?;
                let mut survivors = Vec::new();
                for _ in 0..count {
                    let key = RowKey(read_difference(&mut reader, &mut last)?);
                    survivors.push(Survivor { key, flags: reader.byte()? });
                }
                Settled::Below(RowKey(mark), survivors)
            }
            2 => {
                let number = ChunkNumber(reader.integer()?);
                let from = RowKey(reader.integer()?);
                let (messages, bytes) = (reader.integer()?, reader.integer()?);
                let (mut last, mut survivors) = (0, Vec::new());
                for _ in 0..reader.integer()? {
                    survivors.push(RowKey(read_difference(&mut reader, &mut last)?));
                }
                Settled::Cold(ColdPart { number, from, messages, bytes, survivors })
            }
            _ => return None,
        };
        all.push((queue, settled));
    }
    Some(all)
}

fn put_difference(out: &mut Vec<u8>, last: &mut u64, value: u64) {
    let difference = value.wrapping_sub(*last).cast_signed();
    put_integer(out, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
    *last = value;
}

fn read_difference(reader: &mut Reader<'_>, last: &mut u64) -> Option<u64> {
    let zigzag = reader.integer()?;
    let difference = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
    *last = last.wrapping_add(difference);
    Some(*last)
}

// Joined: count, then queue id, key, flags (byte) each.

pub(super) fn put_joined(out: &mut Vec<u8>, joined: &[(QueueId, RowKey, u8)]) {
    put_integer(out, joined.len() as u64);
    for (queue, key, flags) in joined {
        put_integer(out, queue.0);
        put_integer(out, key.0);
        out.push(*flags);
    }
}

pub(super) fn read_joined(body: &[u8]) -> Option<Vec<(QueueId, RowKey, u8)>> {
    let mut reader = Reader::new(body);
    let count = reader.integer()?;
    let mut joined = Vec::new();
    for _ in 0..count {
        joined.push((QueueId(reader.integer()?), RowKey(reader.integer()?), reader.byte()?));
    }
    reader.is_empty().then_some(joined)
}

/// A step of an exactly-once exchange.
#[derive(Clone, Debug)]
pub(super) enum WindowChange {
    /// The publisher's identifier was used for a message that is routed.
    Published(QueueId, u16),
    /// The publisher released the identifier.
    PublishReleased(QueueId, u16),
    /// A delivery got this tag.
    Tagged(QueueId, u32, std::rc::Rc<super::held::Held>),
    /// The consumer has the message; the release is owed.
    Received(QueueId, u32),
    /// The consumer confirmed the release, or the delivery ended before it had the message.
    Completed(QueueId, u32),
}

/// [`WindowChange`] as it is read back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StoredChange {
    Published(u16),
    PublishReleased(u16),
    Tagged(u32, RowKey),
    Received(u32),
    Completed(u32),
}

impl WindowChange {
    pub const fn queue(&self) -> QueueId {
        match self {
            Self::Published(queue, _)
            | Self::PublishReleased(queue, _)
            | Self::Tagged(queue, ..)
            | Self::Received(queue, _)
            | Self::Completed(queue, _) => *queue,
        }
    }
}

// Window: for each change: queue id, step (byte 0 to 4), identifier or tag (integer), for a tag its key.

pub(super) fn put_window(out: &mut Vec<u8>, changes: &[WindowChange]) {
    for change in changes {
        put_integer(out, change.queue().0);
        match change {
            WindowChange::Published(_, identifier) => put_step(out, 0, u64::from(*identifier)),
            WindowChange::PublishReleased(_, identifier) => put_step(out, 1, u64::from(*identifier)),
            WindowChange::Tagged(_, tag, held) => {
                put_step(out, 2, u64::from(*tag));
                put_integer(out, held.place.get().key.0);
            }
            WindowChange::Received(_, tag) => put_step(out, 3, u64::from(*tag)),
            WindowChange::Completed(_, tag) => put_step(out, 4, u64::from(*tag)),
        }
    }
}

fn put_step(out: &mut Vec<u8>, step: u8, number: u64) {
    out.push(step);
    put_integer(out, number);
}

pub(super) fn read_window(body: &[u8]) -> Option<Vec<(QueueId, StoredChange)>> {
    let mut reader = Reader::new(body);
    let mut changes = Vec::new();
    while !reader.is_empty() {
        let queue = QueueId(reader.integer()?);
        let step = reader.byte()?;
        let number = reader.integer32()?;
        let change = match step {
            0 => StoredChange::Published(u16::try_from(number).ok()?),
            1 => StoredChange::PublishReleased(u16::try_from(number).ok()?),
            2 => StoredChange::Tagged(number, RowKey(reader.integer()?)),
            3 => StoredChange::Received(number),
            4 => StoredChange::Completed(number),
            _ => return None,
        };
        changes.push((queue, change));
    }
    Some(changes)
}

// Record: kind (byte), id (integer), then nothing (it is gone) or 1 (byte) and the content.

pub(super) fn put_record(out: &mut Vec<u8>, key: RecordKey, content: Option<&[u8]>) {
    let (kind, id) = key.code();
    out.push(kind);
    put_integer(out, id);
    if let Some(content) = content {
        out.push(1);
        out.extend_from_slice(content);
    }
}

pub(super) fn read_record(body: &[u8]) -> Option<(RecordKey, Option<&[u8]>)> {
    let mut reader = Reader::new(body);
    let kind = reader.byte()?;
    let key = RecordKey::from_code(kind, reader.integer()?)?;
    if reader.is_empty() {
        return Some((key, None));
    }
    (reader.byte()? == 1).then(|| (key, Some(reader.remaining())))
}

/// A session, or another queue, as its record holds it: kind (byte), name, and what follows in [`SessionRecord::put`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SessionRecord {
    pub kind: QueueKind,
    pub name: Box<str>,
    pub detached: Option<Stamp>,
    pub subscriptions: Vec<(Box<str>, SubscribeOptions)>,
    pub publisher_window: Vec<u16>,
    pub releasing: Vec<u32>,
    /// Tags of exactly-once deliveries and the rows they name.
    pub tagged: Vec<(u32, RowKey)>,
    /// See [`Queue::sent_up_to`]; 0 in records that end before it.
    pub sent_up_to: RowKey,
    /// Seconds for which it waits for its client.
    pub expiry_s: u32,
}

impl SessionRecord {
    pub fn of(queue: &Queue) -> Self {
        let tagged = queue
            .in_flight
            .iter()
            .filter(|f| f.entry.assurance == Assurance::ExactlyOnce)
            .map(|f| (f.tag, f.entry.held.place.get().key))
            .filter(|(_, key)| *key != RowKey(0))
            .collect();
        // A collection's bindings come from the configuration.
        let kept = queue.subscriptions.iter().filter(|_| queue.kind == QueueKind::Session);
        Self {
            kind: queue.kind,
            name: queue.name.clone(),
            detached: queue.detached,
            subscriptions: kept.map(|(f, o)| (f.clone(), *o)).collect(),
            publisher_window: queue.publisher_window.iter().copied().collect(),
            releasing: queue.releasing.iter().map(|r| r.tag).collect(),
            tagged,
            sent_up_to: queue.sent_up_to,
            expiry_s: queue.expiry_s,
        }
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(self.kind.code());
        put_bytes(out, self.name.as_bytes());
        put_stamp(out, self.detached);
        put_integer(out, self.subscriptions.len() as u64);
        for (filter, options) in &self.subscriptions {
            put_bytes(out, filter.as_bytes());
            put_options(out, *options);
        }
        put_integer(out, self.publisher_window.len() as u64);
        for identifier in &self.publisher_window {
            put_integer(out, u64::from(*identifier));
        }
        put_integer(out, self.releasing.len() as u64);
        for tag in &self.releasing {
            put_integer(out, u64::from(*tag));
        }
        put_integer(out, self.tagged.len() as u64);
        for (tag, key) in &self.tagged {
            put_integer(out, u64::from(*tag));
            put_integer(out, key.0);
        }
        put_integer(out, self.sent_up_to.0);
        if self.expiry_s != EXPIRY_NEVER {
            put_integer(out, u64::from(self.expiry_s));
        }
    }

    pub fn read(content: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(content);
        let kind = QueueKind::from_code(reader.byte()?)?;
        let mut record = Self {
            kind,
            name: reader.string()?.into(),
            detached: read_stamp(&mut reader)?,
            subscriptions: Vec::new(),
            publisher_window: Vec::new(),
            releasing: Vec::new(),
            tagged: Vec::new(),
            sent_up_to: RowKey(0),
            expiry_s: EXPIRY_NEVER,
        };
        for _ in 0..reader.integer()? {
            let filter = reader.string()?.into();
            record.subscriptions.push((filter, read_options(&mut reader)?));
        }
        for _ in 0..reader.integer()? {
            record.publisher_window.push(u16::try_from(reader.integer()?).ok()?);
        }
        for _ in 0..reader.integer()? {
            record.releasing.push(reader.integer32()?);
        }
        for _ in 0..reader.integer()? {
            record.tagged.push((reader.integer32()?, RowKey(reader.integer()?)));
        }
        if !reader.is_empty() {
            record.sent_up_to = RowKey(reader.integer()?);
        }
        if !reader.is_empty() {
            record.expiry_s = reader.integer32()?;
        }
        reader.is_empty().then_some(record)
    }
}

const OPTION_NO_LOCAL: u8 = 0x04;
const OPTION_AS_PUBLISHED: u8 = 0x08;
const OPTION_IDENTIFIER: u8 = 0x10;

// Options of a subscription: bits 0-1 assurance, bit 2 no local, bit 3 retain as published, bit 4 an identifier follows
// (integer).

fn put_options(out: &mut Vec<u8>, options: SubscribeOptions) {
    let there = |there: bool, flag: u8| if there { flag } else { 0 };
    out.push(
        options.assurance_max.code()
            | there(options.no_local, OPTION_NO_LOCAL)
            | there(options.retain_as_published, OPTION_AS_PUBLISHED)
            | there(options.identifier != 0, OPTION_IDENTIFIER),
    );
    if options.identifier != 0 {
        put_integer(out, u64::from(options.identifier));
    }
}

fn read_options(reader: &mut Reader<'_>) -> Option<SubscribeOptions> {
    let flags = reader.byte()?;
    if flags & !(0x03 | OPTION_NO_LOCAL | OPTION_AS_PUBLISHED | OPTION_IDENTIFIER) != 0 {
        return None;
    }
    Some(SubscribeOptions {
        assurance_max: Assurance::from_code(flags & 0x03)?,
        no_local: flags & OPTION_NO_LOCAL != 0,
        retain_as_published: flags & OPTION_AS_PUBLISHED != 0,
        identifier: if flags & OPTION_IDENTIFIER != 0 { reader.integer32()? } else { 0 },
    })
}

fn put_stamp(out: &mut Vec<u8>, stamp: Option<Stamp>) {
    let Some(stamp) = stamp else {
        out.push(0);
        return;
    };
    out.push(if stamp.wall_trusted { 3 } else { 1 });
    put_integer(out, stamp.mono.0);
    put_integer(out, stamp.wall.0);
    put_integer(out, u64::from(stamp.boot));
}

#[expect(clippy::option_option, reason = "outer: the bytes are a stamp; inner: the stamp is there")]
fn read_stamp(reader: &mut Reader<'_>) -> Option<Option<Stamp>> {
    let flags = reader.byte()?;
    if flags == 0 {
        return Some(None);
    }
    if flags & !3 != 0 || flags & 1 == 0 {
        return None;
    }
    Some(Some(Stamp {
        mono: Mono(reader.integer()?),
        wall: Wall(reader.integer()?),
        wall_trusted: flags & 2 != 0,
        boot: reader.integer32()?,
    }))
}

// Will: client identifier, then the message. One with a delay has, before that, an empty client identifier, 0xff, the
// delay (integer, seconds) and the stamp since when it waits.

const DELAYED_WILL: u8 = 0xff;
const WILL_OF_USER: u8 = 0xfe;

pub(super) fn put_will(out: &mut Vec<u8>, will: &Will) {
    if let Some(user) = &will.user {
        put_bytes(out, b"");
        out.push(WILL_OF_USER);
        put_bytes(out, user.as_bytes());
    }
    if will.delay_s != 0 {
        put_bytes(out, b"");
        out.push(DELAYED_WILL);
        put_integer(out, u64::from(will.delay_s));
        put_stamp(out, will.waits_since);
    }
    put_bytes(out, will.client.as_bytes());
    put_message(out, &will.message);
}

pub(super) fn read_will(content: &[u8]) -> Option<Will> {
    let mut reader = Reader::new(content);
    let mut client = reader.string()?;
    let (mut user, mut delay_s, mut waits_since) = (None, 0, None);
    while client.is_empty() {
        match reader.byte()? {
            WILL_OF_USER => user = Some(reader.string()?.into()),
            DELAYED_WILL => {
                delay_s = reader.integer32()?;
                waits_since = read_stamp(&mut reader)?;
            }
            _ => return None,
        }
        client = reader.string()?;
    }
    Some(Will { client: client.into(), user, message: read_message(&mut reader)?, delay_s, waits_since })
}

/// The pseudo queue of last known values is never a queue's own id.
pub(super) const fn is_retained(queue: QueueId) -> bool {
    queue.0 == RETAINED.0
}
