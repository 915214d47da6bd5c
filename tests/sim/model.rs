//! What must hold, told from outside: which messages were published and acknowledged, who subscribed to what, and so
//! what is due to whom.
//!
//! The model sees what clients send and receive, never the gateway's inside. Where the wire leaves something open (a
//! packet that may or may not have been handled before a connection broke), it keeps all possibilities and demands
//! only what holds in each.

use std::collections::{BTreeMap, BTreeSet};

use gatewayd::mqtt::topic::{TopicFilter, TopicName, matches};

use crate::queues::{Exchange, QueueState};
use crate::retained::{Deletion, RetainedHistory};

/// The result of every check: what is wrong, or nothing.
pub type Check = Result<(), String>;

/// Names a message; its payload carries the number. Twins share one.
pub type MessageNumber = u32;

/// One publish of a message: the message and which of its twins.
pub type Instance = (MessageNumber, usize);

#[derive(Debug)]
pub struct Message {
    pub exchange: Exchange,
    pub topic: &'static str,
    pub qos: u8,
    pub retain: bool,
    pub bytes: usize,
    /// It expires after so long.
    pub lasts_ms: Option<u64>,
    /// The client that published it; its order counts against the same publisher's.
    pub publisher: usize,
    pub instances: Vec<Sending>,
}

/// When one publish may have been handled.
#[derive(Clone, Debug, Default)]
pub struct Sending {
    pub start: u64,
    pub acknowledged_at: Option<u64>,
    /// The connection that carried it is gone, so it is not handled after this.
    pub ended_at: Option<u64>,
    pub sends: u32,
    /// The publisher's session may have been replaced under way, so each time that it was sent may count.
    pub doubtful: bool,
    /// Its transaction was not committed.
    pub withdrawn: bool,
    /// When it began, and when nothing of it happened any more, by the world's time.
    pub begun_us: u64,
    end_us: u64,
    /// It was sent without its expiry, too.
    pub for_ever: bool,
    /// Connections that may still carry it.
    carriers: u32,
}

impl Sending {
    /// It begins, and has not left yet.
    pub fn begun(step: u64) -> Self {
        Self { start: step, ..Self::default() }
    }

    /// It leaves on a connection.
    pub const fn leaves(&mut self) {
        self.sends += 1;
        self.carriers += 1;
        self.ended_at = None;
    }

    /// A connection that carried it is gone.
    pub fn dropped(&mut self, step: u64) {
        self.carriers = self.carriers.saturating_sub(1);
        if self.carriers == 0 {
            self.ended_at.get_or_insert(step);
        }
    }

    /// How often it may have been routed.
    pub const fn routed_max(&self, qos: u8) -> u32 {
        match qos {
            _ if self.withdrawn => 0,
            2 if !self.doubtful && self.sends > 1 => 1,
            _ => self.sends,
        }
    }

    /// Nothing of it happens after this, and each time that it was sent it was to expire.
    pub fn timed_end_us(&self) -> Option<u64> {
        self.end().filter(|_| !self.for_ever).map(|_| self.end_us)
    }

    /// Nothing of it happens after this; `None` while it may.
    pub fn end(&self) -> Option<u64> {
        self.acknowledged_at.or(self.ended_at)
    }
}

/// Whether the gateway keeps a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existence {
    #[default]
    No,
    Maybe,
    Yes,
}

/// A subscription as far as the wire tells.
#[derive(Clone, Debug, Default)]
struct Filter {
    /// Bit n: it may stand with QoS n. [`ABSENT`]: it may not stand.
    possible: u8,
    /// It may have stood from the first step to the second.
    stood: Vec<(u64, Option<u64>)>,
    qos_ever: u8,
    first_sent: u64,
}

const ABSENT: u8 = 0x08;

/// What a session is owed of one publish.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The publisher has the acknowledgement, so it is owed for good.
    pub firm: bool,
    start: u64,
}

/// What arrived of a message.
#[derive(Clone, Copy, Debug, Default)]
struct Got {
    deliveries: u32,
    /// Exactly-once deliveries that reached the application.
    once: u32,
    /// At-least-once deliveries that were no last known values.
    routed: u32,
}

/// A client's session, durable or not.
#[derive(Debug, Default)]
pub struct Session {
    pub existence: Existence,
    pub durable: bool,
    filters: BTreeMap<&'static str, Filter>,
    /// When a connection of its client was last seen to end.
    left_at_us: u64,
    pub due: BTreeMap<Instance, Due>,
    got: BTreeMap<MessageNumber, Got>,
    /// Newest first delivery for each publisher, topic and QoS.
    newest: BTreeMap<(usize, &'static str, u8), MessageNumber>,
    /// Its queue dropped messages. A cut may undo a drop after newer messages were delivered, so order is not judged.
    pub has_dropped: bool,
}

/// A publish on its way to the queues.
#[derive(Clone, Copy, Debug)]
struct Copy {
    step: u64,
    topic: &'static str,
    bytes: usize,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Message(Instance),
    Empty(Option<Deletion>),
    Will,
}

/// A delivery as its client saw it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub number: MessageNumber,
    pub qos: u8,
    pub retain: bool,
    pub duplicate: bool,
    /// When its connection was opened, by the world's time: it was handed over later.
    pub since_us: u64,
    /// What is left until it expires, where that is told at all.
    pub left_s: Option<Option<u32>>,
}

/// A session's part of the last judgement.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    pub copies: u64,
    /// For each missing copy: the message, and how many newer copies and bytes may have pushed it out.
    pub pushed_by: Vec<(MessageNumber, usize, usize)>,
}

#[derive(Debug, Default)]
pub struct Model {
    pub messages: Vec<Message>,
    pub sessions: Vec<Session>,
    /// Queues of AMQP clients.
    pub queues: Vec<QueueState>,
    pub retained: RetainedHistory,
    /// Copies that may have entered queues.
    copies: Vec<Copy>,
    /// Topics to which an empty payload was sent.
    pub emptied: BTreeSet<&'static str>,
    /// The world's time, now and when the gateway started.
    pub now_us: u64,
    pub started_us: u64,
}

impl Model {
    pub fn new(clients: usize) -> Self {
        let sessions = (0..clients).map(|_| Session::default()).collect();
        Self { sessions, ..Self::default() }
    }

    // Publishing.

    /// A new message; it is not sent yet.
    pub fn message(&mut self, message: Message) -> MessageNumber {
        self.messages.push(message);
        MessageNumber::try_from(self.messages.len() - 1).expect("a run has few messages")
    }

    /// One more publish of the message.
    pub fn instance(&mut self, step: u64, number: MessageNumber) -> Instance {
        let begun_us = self.now_us;
        let message = self.at_mut(number);
        message.instances.push(Sending { begun_us, ..Sending::begun(step) });
        let instance = (number, message.instances.len() - 1);
        self.owe(step, instance, false);
        if self.at(number).retain {
            self.retained.set(self.at(number).topic, instance);
        }
        instance
    }

    /// The publish leaves, for the first time or again.
    pub fn sent(&mut self, step: u64, instance: Instance) {
        let message = self.at_mut(instance.0);
        let (topic, qos, bytes) = (message.topic, message.qos, message.bytes + message.topic.len());
        let reaches_sessions = message.exchange == Exchange::Topic;
        if let Some(sending) = message.instances.get_mut(instance.1) {
            sending.leaves();
        }
        if !reaches_sessions {
            return;
        }
        self.copy(step, topic, qos, bytes, Source::Message(instance));
    }

    /// An empty payload leaves: a copy for the queues, and no message that could be told from another.
    pub fn sent_empty(&mut self, step: u64, topic: &'static str, qos: u8, deletion: Option<Deletion>) {
        self.emptied.insert(topic);
        self.copy(step, topic, qos, topic.len(), Source::Empty(deletion));
    }

    fn copy(&mut self, step: u64, topic: &'static str, qos: u8, bytes: usize, source: Source) {
        if qos > 0 {
            self.copies.push(Copy { step, topic, bytes, source });
        }
    }

    /// True when the copy may have entered queues after `start`.
    fn may_be_newer(&self, copy: &Copy, start: u64) -> bool {
        let unfinished =
            |sending: Option<&Sending>| sending.and_then(Sending::end).is_none_or(|end| end > start);
        copy.step > start
            || match copy.source {
                Source::Message((number, at)) => unfinished(self.at(number).instances.get(at)),
                Source::Empty(deletion) => unfinished(deletion.and_then(|d| self.retained.times_of(d))),
                Source::Will => true,
            }
    }

    /// The gateway acknowledged the publish (PUBACK, PUBREC).
    pub fn acknowledged(&mut self, step: u64, instance: Instance) {
        let now_us = self.now_us;
        if let Some(sending) = self.at_mut(instance.0).instances.get_mut(instance.1) {
            if sending.acknowledged_at.is_none() {
                sending.end_us = now_us;
            }
            sending.acknowledged_at.get_or_insert(step);
        }
        self.firm(instance);
    }

    /// What is owed of the publish is owed for good.
    pub fn firm(&mut self, instance: Instance) {
        let dues = self.sessions.iter_mut().map(|session| &mut session.due);
        for due in dues.chain(self.queues.iter_mut().map(|queue| &mut queue.due)) {
            if let Some(due) = due.get_mut(&instance) {
                due.firm = true;
            }
        }
    }

    /// The connection that carried the publish is gone.
    pub fn ended(&mut self, step: u64, instance: Instance) {
        let now_us = self.now_us;
        if let Some(sending) = self.at_mut(instance.0).instances.get_mut(instance.1) {
            sending.dropped(step);
            if sending.acknowledged_at.is_none() {
                sending.end_us = now_us;
            }
        }
    }

    /// Another session may have taken the place of the one that knew of the publish.
    pub fn replaced(&mut self, instance: Instance) {
        if let Some(sending) = self.at_mut(instance.0).instances.get_mut(instance.1) {
            sending.doubtful = true;
        }
    }

    /// The publish never took place, as far as anybody can know: nothing is owed.
    pub fn forgotten(&mut self, instance: Instance) {
        let dues = self.sessions.iter_mut().map(|session| &mut session.due);
        for due in dues.chain(self.queues.iter_mut().map(|queue| &mut queue.due)) {
            due.retain(|owed, due| *owed != instance || due.firm);
        }
    }

    /// The publish was part of a transaction that is not committed: it never takes place.
    pub fn withdrawn(&mut self, instance: Instance) {
        self.forgotten(instance);
        if let Some(sending) = self.at_mut(instance.0).instances.get_mut(instance.1) {
            sending.withdrawn = true;
        }
    }

    /// Every session that surely wants the message is owed it.
    fn owe(&mut self, step: u64, instance: Instance, firm: bool) {
        let Some(message) = self.messages.get(instance.0 as usize) else { return };
        let (topic, qos) = (message.topic, message.qos);
        for queue in self.queues.iter_mut().filter(|queue| qos > 0 && queue.wants(message)) {
            queue.due.insert(instance, Due { firm, start: step });
        }
        if message.exchange != Exchange::Topic {
            return;
        }
        for session in self.sessions.iter_mut().filter(|session| session.lasts()) {
            if session.surely(topic).is_some_and(|granted| granted.min(qos) > 0) {
                session.due.insert(instance, Due { firm, start: step });
            }
        }
    }

    /// A will is registered: from now on it may be published.
    pub fn will_may_come(&mut self, step: u64, number: MessageNumber) {
        let message = self.at_mut(number);
        message.instances.push(Sending { sends: 1, ..Sending::begun(step) });
        let (topic, retain) = (message.topic, message.retain);
        if retain {
            self.retained.set(topic, (number, 0));
        }
    }

    /// The connection of a will ended. `certain`: the will is published; `kept`: it is owed for good.
    pub fn will_died(&mut self, step: u64, number: MessageNumber, certain: bool, kept: bool) {
        let message = self.at(number);
        let (topic, qos, bytes) = (message.topic, message.qos, message.bytes + message.topic.len());
        if certain && qos > 0 {
            self.owe(step, (number, 0), kept);
        }
        self.copy(step, topic, qos, bytes, Source::Will);
    }

    // Sessions.

    /// A connection of the client ended.
    pub fn left(&mut self, client: usize, now_us: u64) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.left_at_us = now_us;
        }
    }

    /// So much time has passed that the session may have expired, if it was away all the time.
    pub fn may_have_expired(&mut self, client: usize, now_us: u64, expiry_us: u64) {
        let session = self.session(client);
        if session.durable && now_us - session.left_at_us >= expiry_us && session.existence == Existence::Yes
        {
            session.existence = Existence::Maybe;
        }
    }

    /// CONNECT leaves.
    pub fn connecting(&mut self, client: usize, clean: bool) {
        let session = self.session(client);
        if !session.durable && session.existence == Existence::No {
            // The last one ended with its connection.
            *session = Session::default();
        }
        if clean {
            session.due.clear();
            for filter in session.filters.values_mut() {
                filter.possible |= ABSENT;
            }
            if session.existence == Existence::Yes {
                session.existence = Existence::Maybe;
            }
        } else if session.existence == Existence::No {
            session.existence = Existence::Maybe;
        }
    }

    /// CONNACK arrived. Answers whether a session that is present is surely the one that the client knows: it may have
    /// expired, and a CONNECT whose answer was lost may have begun another.
    pub fn connected(&mut self, client: usize, clean: bool, present: bool) -> Result<bool, String> {
        let session = self.session(client);
        match (clean, session.existence, present) {
            (true, _, true) => return Err(format!("client {client}: a clean session is never present")),
            (false, Existence::No, true) => {
                return Err(format!("client {client}: session present, but there was none"));
            }
            (false, Existence::Yes, false) => {
                return Err(format!("client {client}: its session is gone"));
            }
            _ => {}
        }
        let sure = session.existence == Existence::Yes;
        if !present {
            *session = Session::default();
        } else if !sure {
            session.due.clear();
            session.filters.values_mut().for_each(|filter| filter.possible |= ABSENT);
        }
        session.durable = !clean;
        session.existence = if clean { Existence::No } else { Existence::Yes };
        Ok(sure)
    }

    /// SUBSCRIBE leaves.
    pub fn subscribing(&mut self, step: u64, client: usize, filter: &'static str, qos: u8) {
        let session = self.session(client);
        if qos == 0 {
            session.doubt();
        }
        let known = session.filters.entry(filter).or_insert_with(|| Filter {
            possible: ABSENT,
            first_sent: step,
            ..Filter::default()
        });
        known.possible |= 1 << qos;
        known.qos_ever = known.qos_ever.max(qos);
        if known.stood.last().is_none_or(|(_, to)| to.is_some()) {
            known.stood.push((step, None));
        }
    }

    /// SUBACK arrived.
    pub fn subscribed(&mut self, client: usize, filter: &'static str, qos: u8) {
        if let Some(known) = self.session(client).filters.get_mut(filter) {
            known.possible = 1 << qos;
        }
    }

    /// UNSUBSCRIBE leaves.
    pub fn unsubscribing(&mut self, client: usize, filter: &'static str) {
        let session = self.session(client);
        session.doubt();
        if let Some(known) = session.filters.get_mut(filter) {
            known.possible |= ABSENT;
        }
    }

    /// UNSUBACK arrived.
    pub fn unsubscribed(&mut self, step: u64, client: usize, filter: &'static str) {
        if let Some(known) = self.session(client).filters.get_mut(filter) {
            known.possible = ABSENT;
            if let Some((_, to)) = known.stood.last_mut() {
                to.get_or_insert(step);
            }
        }
    }

    /// A PUBLISH reached the application of `client`.
    pub fn delivered(&mut self, client: usize, seen: Seen) -> Check {
        let Some(message) = self.messages.get(seen.number as usize) else {
            return Err(format!("client {client} got message {}, which nobody published", seen.number));
        };
        if message.exchange != Exchange::Topic || message.routed_max() == 0 {
            return Err(format!("client {client} got message {}, which is not for it", seen.number));
        }
        let timely = if seen.duplicate { Ok(()) } else { self.is_in_time(message, seen.since_us) };
        let left = seen.left_s.map_or(Ok(()), |left_s| self.is_left(message, seen.since_us, left_s));
        timely.and(left).map_err(|wrong| format!("client {client} got message {}: {wrong}", seen.number))?;
        let session = self.sessions.get_mut(client).ok_or("no such session")?;
        let filters: Vec<_> = session.matching(message.topic).collect();
        let granted = session.ever(message.topic);
        let Some(granted) = granted else {
            return Err(format!("client {client} got message {} without a subscription", seen.number));
        };
        if seen.qos > granted.min(message.qos) {
            return Err(format!(
                "client {client} got message {} with QoS {}, published {} and granted {granted}",
                seen.number, seen.qos, message.qos
            ));
        }
        if seen.retain {
            let first = filters.iter().map(|(_, filter)| filter.first_sent).min().unwrap_or(0);
            self.retained.delivered(&self.messages, client, seen.number, first)?;
        } else if !filters.iter().any(|(_, filter)| message.may_meet(filter)) {
            return Err(format!("client {client} got message {}, sent after it unsubscribed", seen.number));
        }
        let got = session.got.entry(seen.number).or_default();
        got.deliveries += 1;
        if seen.retain {
            return Ok(());
        }
        let sent_once = message.instances.iter().all(|sending| sending.sends == 1);
        if seen.qos == 1 {
            got.routed += 1;
            // [MQTT-3.3.1-1]
            // A will may be published once more after a cut.
            let once = sent_once && message.instances.len() == 1 && !message.is_will();
            if got.routed > 1 && !seen.duplicate && once {
                return Err(format!("client {client} got message {} again without DUP", seen.number));
            }
        }
        if seen.qos == 2 {
            got.once += 1;
            if got.once > message.routed_max() {
                return Err(format!("client {client} got message {} twice with QoS 2", seen.number));
            }
        }
        // A cut may undo that a will was published, and a start publishes it after one that was delivered and not kept.
        if got.deliveries > 1 || message.instances.len() > 1 || session.has_dropped || message.is_will() {
            return Ok(());
        }
        let key = (message.publisher, message.topic, seen.qos);
        let newest = session.newest.entry(key).or_insert(seen.number);
        if seen.number < *newest && sent_once {
            return Err(format!(
                "client {client} got message {} after {}, published before it",
                seen.number, *newest
            ));
        }
        *newest = (*newest).max(seen.number);
        Ok(())
    }

    /// What a session did not get though it is owed.
    pub fn missing(&self, client: usize) -> Missing {
        let mut missing = Missing::default();
        let Some(session) = self.sessions.get(client) else { return missing };
        let mut owed: BTreeMap<MessageNumber, (u32, u64)> = BTreeMap::new();
        for ((number, _), due) in session.due.iter().filter(|(_, due)| due.firm) {
            let (count, start) = owed.entry(*number).or_insert((0, due.start));
            *count += 1;
            *start = (*start).min(due.start);
        }
        for (number, (count, start)) in owed {
            let got = session.got.get(&number).map_or(0, |got| got.deliveries);
            if got < count {
                missing.copies += u64::from(count - got);
                let newer = self.copies.iter().filter(|copy| {
                    session.ever(copy.topic).is_some_and(|qos| qos > 0) && self.may_be_newer(copy, start)
                });
                let (copies, bytes) = newer.fold((0, 0), |(n, sum), copy| (n + 1, sum + copy.bytes));
                missing.pushed_by.push((number, copies, bytes));
            }
        }
        missing
    }

    /// True when `client` got some value of `topic`.
    pub fn got_value(&self, client: usize, topic: &str) -> bool {
        let got = self.sessions.get(client).into_iter().flat_map(|session| session.got.keys());
        got.into_iter().any(|number| self.at(*number).topic == topic)
    }

    pub fn at(&self, number: MessageNumber) -> &Message {
        self.messages.get(number as usize).expect("numbers are handed out by the model")
    }

    fn at_mut(&mut self, number: MessageNumber) -> &mut Message {
        self.messages.get_mut(number as usize).expect("numbers are handed out by the model")
    }

    fn session(&mut self, client: usize) -> &mut Session {
        self.sessions.get_mut(client).expect("a session for each client")
    }
}

impl Message {
    /// A will: its publisher is nobody who could publish twice.
    pub const fn is_will(&self) -> bool {
        self.publisher > usize::MAX / 2
    }

    /// How often it left.
    pub fn sends(&self) -> u32 {
        self.instances.iter().map(|sending| sending.sends).sum()
    }

    /// It was sent once, so that its deliveries can be told from each other.
    pub fn is_sent_once(&self) -> bool {
        matches!(self.instances.as_slice(), [Sending { sends: 1, .. }])
    }

    /// How often it may have been routed.
    pub fn routed_max(&self) -> u32 {
        self.instances.iter().map(|sending| sending.routed_max(self.qos)).sum()
    }

    /// True when the filter may have stood while one of the publishes may have been handled.
    fn may_meet(&self, filter: &Filter) -> bool {
        self.instances.iter().any(|sending| {
            filter.stood.iter().any(|(from, to)| {
                sending.end().is_none_or(|end| *from <= end) && to.is_none_or(|to| sending.start <= to)
            })
        })
    }
}

impl Session {
    /// True when the gateway surely keeps it.
    fn lasts(&self) -> bool {
        self.durable && self.existence == Existence::Yes
    }

    /// What is not acknowledged may meet a changed subscription.
    fn doubt(&mut self) {
        self.due.retain(|_, due| due.firm);
    }

    fn matching<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = (&'static str, &'a Filter)> {
        self.filters.iter().filter(move |(filter, _)| is_match(filter, topic)).map(|(name, f)| (*name, f))
    }

    /// The QoS with which the topic is subscribed at least.
    fn surely(&self, topic: &str) -> Option<u8> {
        let stands = self.matching(topic).filter(|(_, filter)| filter.possible & ABSENT == 0);
        stands.map(|(_, filter)| u8::try_from(filter.possible.trailing_zeros()).unwrap_or(0)).max()
    }

    /// The QoS with which the topic was subscribed at most.
    fn ever(&self, topic: &str) -> Option<u8> {
        self.matching(topic).map(|(_, filter)| filter.qos_ever).max()
    }
}

/// MQTT's rules, by the codec's own judgement.
pub fn is_match(filter: &str, topic: &str) -> bool {
    match (TopicFilter::parse(filter), TopicName::parse(topic)) {
        (Ok(filter), Ok(topic)) => matches(filter, topic),
        _ => false,
    }
}
