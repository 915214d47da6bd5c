//! What must hold of a queue that AMQP clients share, told from outside: who was delivered what, and what became of it.
//!
//! * A message whose publisher has its acknowledgement reaches a consumer, or a receipt counts it.
//! * One consumer at a time holds it.
//! * What may have been delivered before says so.
//! * First deliveries keep the order of their publisher.
//! * What comes back goes to its place. That can be told where one client alone consumes: at moments at which the
//!   gateway surely has something ready, nothing that stands behind it may be delivered.

mod burying;
mod polling;

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Check, Due, Instance, Message, MessageNumber, Missing};

/// Through what a message reaches queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exchange {
    /// `amq.topic`, which MQTT clients publish to and subscribe from.
    Topic,
    /// A durable direct exchange that the clients declare.
    Direct,
    /// The one that takes names of queues.
    Default,
}

impl Exchange {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Topic => "amq.topic",
            Self::Direct => "sim.direct",
            Self::Default => "",
        }
    }
}

/// A consumer's channel: the link, and which channel on it.
pub type Holder = (u64, u64);

#[derive(Clone, Debug)]
struct Binding {
    exchange: Exchange,
    pattern: &'static str,
    /// It was asked for at this step.
    sent: u64,
    /// It surely stands.
    stands: bool,
}

/// A delivery as its consumer saw it.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub number: MessageNumber,
    pub redelivered: bool,
    /// A message that surely came back before this was handed over.
    pub back: Option<MessageNumber>,
    /// The gateway had ended the connection before this was read: the consumer holds nothing.
    pub late: bool,
}

/// How often a message came, and how often it did not say that it may have come before.
#[derive(Clone, Copy, Debug, Default)]
struct Got {
    deliveries: u32,
    fresh: u32,
}

#[derive(Debug)]
pub struct QueueState {
    pub name: &'static str,
    /// One client at most consumes from it.
    pub single: bool,
    declared: bool,
    bindings: Vec<Binding>,
    pub due: BTreeMap<Instance, Due>,
    got: BTreeMap<MessageNumber, Got>,
    /// Who has it and has not said what becomes of it.
    held: BTreeMap<MessageNumber, Vec<Holder>>,
    /// Some consumer was done with it.
    done: BTreeSet<MessageNumber>,
    /// In which order they were first seen.
    order: BTreeMap<MessageNumber, u64>,
    /// Places of messages that the gateway surely has ready for the one consumer.
    pub ready: BTreeMap<u64, MessageNumber>,
    /// Newest first delivery for each consumer, publisher, topic and QoS.
    newest: BTreeMap<(Holder, usize, &'static str, u8), MessageNumber>,
    /// Messages were dropped, or delivered unseen: places are not judged any more.
    pub unordered: bool,
    polling: polling::Polling,
    burying: burying::Burying,
}

impl QueueState {
    pub fn new(name: &'static str, single: bool) -> Self {
        Self {
            name,
            single,
            declared: false,
            bindings: Vec::new(),
            due: BTreeMap::new(),
            got: BTreeMap::new(),
            held: BTreeMap::new(),
            done: BTreeSet::new(),
            order: BTreeMap::new(),
            ready: BTreeMap::new(),
            newest: BTreeMap::new(),
            unordered: false,
            polling: polling::Polling::default(),
            burying: burying::Burying::default(),
        }
    }

    // Topology.

    /// queue.declare leaves: the queue may be there from now on, under its name.
    pub fn declaring(&mut self, step: u64) {
        self.binding(step, Exchange::Default, self.name);
    }

    pub fn declared(&mut self) {
        self.declared = true;
        self.bound(Exchange::Default, self.name);
    }

    /// queue.bind leaves.
    pub fn binding(&mut self, step: u64, exchange: Exchange, pattern: &'static str) {
        if !self.bindings.iter().any(|b| b.exchange == exchange && b.pattern == pattern) {
            self.bindings.push(Binding { exchange, pattern, sent: step, stands: false });
        }
    }

    pub fn bound(&mut self, exchange: Exchange, pattern: &'static str) {
        for binding in &mut self.bindings {
            binding.stands |= binding.exchange == exchange && binding.pattern == pattern;
        }
    }

    /// True when the queue surely gets what is published so.
    pub fn wants(&self, message: &Message) -> bool {
        self.declared && !self.polling.is_purging() && self.matching(message).any(|binding| binding.stands)
    }

    fn matching(&self, message: &Message) -> impl Iterator<Item = &Binding> {
        let (exchange, topic) = (message.exchange, message.topic);
        self.bindings
            .iter()
            .filter(move |binding| binding.exchange == exchange && is_match(exchange, binding.pattern, topic))
    }

    // Deliveries.

    /// basic.consume leaves, of the only consumer. Everything that was seen, is kept, and nobody was done with is ready.
    pub fn consuming(&mut self, messages: &[Message]) {
        self.ready.clear();
        if !self.single || self.unordered {
            return;
        }
        for (number, order) in &self.order {
            let kept = self.due.get(&(*number, 0)).is_some_and(|due| due.firm)
                && messages.get(*number as usize).is_some_and(Message::is_sent_once);
            if kept && !self.done.contains(number) && self.held.get(number).is_none_or(Vec::is_empty) {
                self.ready.insert(*order, *number);
            }
        }
    }

    /// A delivery reached a consumer.
    pub fn delivered(&mut self, messages: &[Message], holder: Holder, taken: Taken) -> Check {
        let (name, number) = (self.name, taken.number);
        let wrong = |what: String| Err(format!("queue {name}, message {number}: {what}"));
        let Some(message) = messages.get(number as usize) else {
            return wrong("nobody published it".into());
        };
        let may_have = |binding: &Binding| {
            message.instances.iter().any(|sending| sending.end().is_none_or(|end| binding.sent <= end))
        };
        if !self.matching(message).any(may_have) {
            return wrong(format!("it came without a binding that takes {}", message.topic));
        }
        // A will may be published once more after a cut.
        let most = if message.is_will() { u32::MAX } else { message.routed_max() };
        if most == 0 {
            return wrong("its transaction was rolled back".into());
        }
        if self.polling.is_gone(number, message) {
            return wrong("it was purged".into());
        }
        self.burying.delivered(number);
        self.polling.delivered(number);
        let got = self.got.entry(number).or_default();
        got.deliveries += 1;
        got.fresh += u32::from(!taken.redelivered);
        // A delivery does not wait for flash, so each time that it was sent may count.
        if got.fresh > message.sends() && !message.is_will() {
            return wrong("it came again and does not say so".into());
        }
        let first = got.deliveries == 1;
        if !taken.late {
            let held = self.held.entry(number).or_default();
            if held.len() >= most as usize {
                return wrong(format!("{holder:?} gets it while {held:?} has it"));
            }
            held.push(holder);
        }
        if !message.is_sent_once() || message.is_will() {
            if let Some(order) = self.order.get(&number) {
                self.ready.remove(order);
            }
            return Ok(());
        }
        if first && !taken.redelivered {
            let key = (holder, message.publisher, message.topic, message.qos);
            let newest = self.newest.entry(key).or_insert(number);
            if number < *newest {
                return wrong(format!("it came after {newest}, published before it"));
            }
            *newest = number;
        }
        if self.single && !self.unordered {
            return self.in_its_place(taken);
        }
        Ok(())
    }

    fn in_its_place(&mut self, taken: Taken) -> Check {
        if let Some(back) = taken.back
            && let Some(order) = self.order.get(&back)
        {
            self.ready.insert(*order, back);
        }
        let next = self.order.len() as u64;
        let order = *self.order.entry(taken.number).or_insert(next);
        if let Some((before, number)) = self.ready.first_key_value().filter(|(before, _)| **before < order) {
            return Err(format!(
                "queue {}: message {} (place {order}) came while {number} (place {before}) was ready",
                self.name, taken.number
            ));
        }
        self.ready.remove(&order);
        Ok(())
    }

    /// A consumer said what becomes of a delivery: it is done with it, or gives it back.
    pub fn settled(&mut self, holder: Holder, number: MessageNumber, done: bool) {
        if let Some(held) = self.held.get_mut(&number)
            && let Some(at) = held.iter().position(|other| *other == holder)
        {
            held.remove(at);
        }
        self.polling.let_go(number, holder.0);
        if done {
            self.done.insert(number);
        }
    }

    /// A link, or one channel of it, has ended: nobody there holds anything.
    pub fn released(&mut self, link: u64, channel: Option<u64>) {
        for (number, held) in &mut self.held {
            let before = held.len();
            held.retain(|holder| holder.0 != link || channel.is_some_and(|channel| channel != holder.1));
            if held.len() < before {
                self.polling.let_go(*number, link);
            }
        }
        self.polling.released(link);
    }

    /// The gateway has ended.
    pub fn machine_ended(&mut self) {
        self.held.clear();
        self.newest.clear();
        self.ready.clear();
        self.polling.machine_ended();
    }

    /// What never came though it is owed, here or in `grave`, where its dead letters go.
    pub fn missing(&self, grave: Option<&Self>, messages: &[Message]) -> Missing {
        let mut owed: BTreeMap<MessageNumber, u32> = BTreeMap::new();
        for ((number, _), _) in self.due.iter().filter(|(_, due)| due.firm) {
            *owed.entry(*number).or_default() += 1;
        }
        let mut missing = Missing::default();
        for (number, count) in owed {
            let in_grave = grave.and_then(|grave| grave.got.get(&number)).map_or(0, |got| got.deliveries);
            let got = self.got.get(&number).map_or(0, |got| got.deliveries) + in_grave;
            if got < count {
                missing.copies += u64::from(count - got);
                missing.pushed_by.push((number, 0, 0));
            }
        }
        for number in grave.into_iter().flat_map(|grave| self.unburied(grave, messages)) {
            missing.copies += 1;
            missing.pushed_by.push((number, 0, 0));
        }
        missing
    }
}

/// AMQP's rules, told once more. Patterns are written with dots, topics with slashes.
fn is_match(exchange: Exchange, pattern: &str, topic: &str) -> bool {
    let words: Vec<_> = topic.split('/').collect();
    let wanted: Vec<_> = pattern.split('.').collect();
    match exchange {
        Exchange::Topic => matches(&wanted, &words),
        Exchange::Direct | Exchange::Default => wanted == words,
    }
}

fn matches(pattern: &[&str], words: &[&str]) -> bool {
    match pattern.split_first() {
        None => words.is_empty(),
        Some((&"#", rest)) => {
            (0..=words.len()).any(|from| matches(rest, words.get(from..).unwrap_or_default()))
        }
        Some((first, rest)) => words
            .split_first()
            .is_some_and(|(word, words)| (*first == "*" || first == word) && matches(rest, words)),
    }
}

#[test]
fn patterns_match_as_amqp_has_it() {
    for (pattern, topic, expected) in [
        ("#", "a", true),
        ("a.#", "a", true),
        ("a.#", "a/b/c", true),
        ("#.z", "b/y/z", true),
        ("#.z", "b/y", false),
        ("*.x", "a/x", true),
        ("*.x", "x", false),
        ("c", "c", true),
    ] {
        assert_eq!(is_match(Exchange::Topic, pattern, topic), expected, "{pattern} {topic}");
    }
}
