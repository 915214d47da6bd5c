//! Exchanges and bindings: what they are, and which queues a message reaches through them.
//!
//! Owns the table, matching and the loop guard. Leaves flash and gates to `topology`, queues to `queue` and `named`.
//! The default exchange is a direct one to which each named queue is bound under its own name.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;

use super::queue::{QueueIndex, SubscribeOptions};
use super::topic_index::{TopicIndex, pattern_levels};
use crate::collections::{self, Map};
use crate::ids::BatchNumber;
use crate::message::{Assurance, Message, Value, is_reserved};

/// Position of an exchange in the broker's table. Reused after the exchange is gone; its bindings go with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExchangeIndex(pub u32);

impl ExchangeIndex {
    /// `amq.topic`, which joins all protocols.
    pub const SHARED: Self = Self(0);
    /// The one without a name: the address is the name of a queue.
    pub const DEFAULT: Self = Self(1);
}

/// Exchanges that are always there, by their index: they are durable and no client deletes them.
const PREDECLARED: [(&str, ExchangeKind); 6] = [
    ("amq.topic", ExchangeKind::Topic),
    ("", ExchangeKind::Direct),
    ("amq.direct", ExchangeKind::Direct),
    ("amq.fanout", ExchangeKind::Fanout),
    ("amq.headers", ExchangeKind::Headers),
    ("amq.match", ExchangeKind::Headers),
];

/// How an exchange routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExchangeKind {
    /// To bindings under exactly the message's address.
    Direct,
    /// To every binding.
    Fanout,
    /// To bindings whose pattern matches the address.
    Topic,
    /// By what the message's headers say.
    Headers,
    /// To one binding, chosen by a hash; a binding's key is its weight.
    ConsistentHash,
}

impl ExchangeKind {
    pub const ALL: [Self; 5] = [Self::Direct, Self::Fanout, Self::Topic, Self::Headers, Self::ConsistentHash];

    /// Its number on flash.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Direct => 0,
            Self::Fanout => 1,
            Self::Topic => 2,
            Self::Headers => 3,
            Self::ConsistentHash => 4,
        }
    }
}

/// What a consistent hash is made of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum HashOn {
    #[default]
    Address,
    Header(Box<str>),
    Property(Box<str>),
}

/// What an exchange was declared with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExchangeOptions {
    pub kind: ExchangeKind,
    /// Holds messages back for as long as each asks.
    pub delayed: bool,
    pub durable: bool,
    /// Goes with its last binding.
    pub auto_delete: bool,
    /// Takes messages from exchanges only.
    pub internal: bool,
    /// Gets what this one cannot route.
    pub alternate: Option<Box<str>>,
    pub hash_on: HashOn,
    /// Everything else that the declaration said, as its protocol encoded it: kept to be compared.
    pub arguments: Bytes,
}

impl ExchangeOptions {
    /// A durable exchange without further wishes.
    #[must_use]
    pub const fn new(kind: ExchangeKind) -> Self {
        Self {
            kind,
            delayed: false,
            durable: true,
            auto_delete: false,
            internal: false,
            alternate: None,
            hash_on: HashOn::Address,
            arguments: Bytes::new(),
        }
    }
}

/// Where a binding leads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    Queue(QueueIndex),
    Exchange(ExchangeIndex),
}

/// Marks a target that is an exchange.
const EXCHANGE_BIT: u32 = 1 << 31;
/// Marks a shared subscription, which is in the topic index beside the targets.
const SHARE_BIT: u32 = 1 << 30;
/// Shared subscriptions have numbers up to this.
pub(super) const SHARE_MAX: u32 = SHARE_BIT - 1;

/// How the shared subscription with this number stands in the topic index.
pub(super) const fn share_code(number: u32) -> u32 {
    number | SHARE_BIT
}

/// The number of the shared subscription that `code` stands for, if it does.
pub(super) const fn share_number(code: u32) -> Option<u32> {
    if code & (EXCHANGE_BIT | SHARE_BIT) == SHARE_BIT { Some(code & !SHARE_BIT) } else { None }
}

impl Target {
    pub(super) const fn code(self) -> u32 {
        match self {
            Self::Queue(index) => index.0,
            Self::Exchange(index) => index.0 | EXCHANGE_BIT,
        }
    }
}

/// The exchange that `code` stands for, if it does.
pub(super) const fn exchange_of(code: u32) -> Option<ExchangeIndex> {
    if code & EXCHANGE_BIT == 0 { None } else { Some(ExchangeIndex(code & !EXCHANGE_BIT)) }
}

/// What a binding asks of a message's headers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HeaderMatch {
    /// One of the entries suffices.
    pub any: bool,
    /// Names and values; `Void` asks that the header is there.
    pub entries: Vec<(Box<str>, Value)>,
}

impl HeaderMatch {
    fn matches(&self, header: &dyn Fn(&str) -> Option<Value>) -> bool {
        let mut holds = self.entries.iter().map(|(name, wanted)| match (wanted, header(name)) {
            (Value::Void, found) => found.is_some(),
            (wanted, found) => found.as_ref() == Some(wanted),
        });
        if self.any { holds.any(|holds| holds) } else { holds.all(|holds| holds) }
    }
}

/// What a binding was made with beside source, target and key.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BindingArguments {
    /// As its protocol encoded them: bindings with different arguments are different bindings.
    pub encoded: Bytes,
    pub headers: HeaderMatch,
}

#[derive(Clone, Debug)]
pub(super) struct Binding {
    /// Its record's number; 0 when it is not on flash.
    pub number: u64,
    pub record_batch: BatchNumber,
    pub arguments: BindingArguments,
    /// [`name_hash`] of its target.
    pub target_hash: u64,
}

/// A binding that is gone, with its key.
pub(super) type Unbound = (Box<str>, Binding);

/// What bindings of named queues and exchanges ask for: whatever the publisher promised.
const ALL_ASSURANCES: SubscribeOptions = SubscribeOptions::new(Assurance::ExactlyOnce);

#[derive(Debug)]
enum Routes {
    /// Targets by key.
    Keys(Map<Box<str>, Vec<Target>>),
    /// The topic exchange of all protocols has its index outside: subscriptions are in it too.
    Topic(Option<Box<TopicIndex<SubscribeOptions>>>),
    /// Whatever is bound, looked through one by one.
    Bindings,
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub name: Rc<str>,
    /// Its record's number, unique for the life of the store.
    pub number: u64,
    pub record_batch: BatchNumber,
    pub options: ExchangeOptions,
    pub bindings: BTreeMap<(Target, Box<str>), Vec<Binding>>,
    /// The queue that holds back what is delayed.
    pub delay_queue: Option<QueueIndex>,
    routes: Routes,
    visit: u64,
}

/// How headers and properties of a message are read, whatever protocol wrote them.
#[derive(Clone, Copy, Debug)]
pub struct MessageReader {
    pub header: fn(&Message, &str) -> Option<Value>,
    pub property: fn(&Message, &str) -> Option<Value>,
}

impl Default for MessageReader {
    fn default() -> Self {
        Self { header: |_, _| None, property: |_, _| None }
    }
}

/// All exchanges.
#[derive(Debug)]
pub(super) struct Exchanges {
    slots: Vec<Option<Exchange>>,
    free: Vec<u32>,
    names: Map<Box<str>, ExchangeIndex>,
    pub reader: MessageReader,
    /// What is being routed is one of the gateway's own figures: see [`shared_targets`].
    pub is_own: bool,
    visit: u64,
    seed: u64,
}

impl Exchanges {
    pub fn new(seed: u64) -> Self {
        let mut exchanges = Self {
            slots: Vec::new(),
            free: Vec::new(),
            names: collections::map(seed),
            reader: MessageReader::default(),
            is_own: false,
            visit: 0,
            seed,
        };
        for ((name, kind), number) in PREDECLARED.into_iter().zip(0u64..) {
            exchanges.insert(name, number, ExchangeOptions::new(kind));
        }
        exchanges
    }

    pub const fn is_predeclared(index: ExchangeIndex) -> bool {
        (index.0 as usize) < PREDECLARED.len()
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn find(&self, name: &str) -> Option<ExchangeIndex> {
        self.names.get(name).copied()
    }

    pub fn get(&self, index: ExchangeIndex) -> Option<&Exchange> {
        self.slots.get(index.0 as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, index: ExchangeIndex) -> Option<&mut Exchange> {
        self.slots.get_mut(index.0 as usize)?.as_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (ExchangeIndex, &Exchange)> {
        self.slots.iter().zip(0u32..).filter_map(|(slot, at)| Some((ExchangeIndex(at), slot.as_ref()?)))
    }

    /// The queue that holds `message` back, if `index` delays and the message asks for it.
    pub fn delays(&self, index: ExchangeIndex, message: &Message) -> Option<QueueIndex> {
        message.annotations.as_ref()?.delay_ms?;
        self.get(index)?.delay_queue
    }

    pub fn by_number(&self, number: u64) -> Option<ExchangeIndex> {
        self.iter().find(|(_, exchange)| exchange.number == number).map(|(index, _)| index)
    }

    /// A binding, if exactly this one is there.
    pub fn binding(
        &self,
        source: ExchangeIndex,
        target: Target,
        key: &str,
        encoded: &[u8],
    ) -> Option<&Binding> {
        let alike = self.get(source)?.bindings.get(&(target, Box::from(key)))?;
        alike.iter().find(|binding| binding.arguments.encoded == encoded)
    }

    /// Nodes of the topic indexes that are exchanges' own.
    pub fn topic_nodes(&self) -> usize {
        let nodes = |exchange: &Exchange| match &exchange.routes {
            Routes::Topic(Some(index)) => index.nodes(),
            Routes::Topic(None) | Routes::Keys(_) | Routes::Bindings => 0,
        };
        self.slots.iter().flatten().map(nodes).sum()
    }

    /// Adds an exchange under a name that is free.
    pub fn insert(&mut self, name: &str, number: u64, options: ExchangeOptions) -> ExchangeIndex {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("EXCHANGES_MAX bounds the exchanges")
        });
        let index = ExchangeIndex(at);
        let routes = match options.kind {
            ExchangeKind::Direct => Routes::Keys(collections::map(self.seed)),
            ExchangeKind::Topic if index == ExchangeIndex::SHARED => Routes::Topic(None),
            ExchangeKind::Topic => Routes::Topic(Some(Box::new(TopicIndex::new(self.seed)))),
            ExchangeKind::Fanout | ExchangeKind::Headers | ExchangeKind::ConsistentHash => Routes::Bindings,
        };
        let exchange = Exchange {
            name: name.into(),
            number,
            record_batch: BatchNumber(0),
            options,
            bindings: BTreeMap::new(),
            delay_queue: None,
            routes,
            visit: 0,
        };
        if let Some(slot) = self.slots.get_mut(at as usize) {
            *slot = Some(exchange);
        }
        self.names.insert(name.into(), index);
        index
    }

    /// Takes an exchange out. Bindings that lead to it are the caller's business.
    pub fn remove(&mut self, index: ExchangeIndex) -> Option<Exchange> {
        let exchange = self.slots.get_mut(index.0 as usize)?.take()?;
        self.names.remove(&*exchange.name);
        self.free.push(index.0);
        Some(exchange)
    }

    /// Adds a binding. `None` when exactly this one is there.
    pub fn bind(
        &mut self,
        shared: &mut TopicIndex<SubscribeOptions>,
        source: ExchangeIndex,
        target: Target,
        key: &str,
        binding: Binding,
    ) -> Option<()> {
        let exchange = self.get_mut(source)?;
        // As a rule there is one: room for more would be most of what a binding takes.
        let alike = exchange.bindings.entry((target, key.into())).or_insert_with(|| Vec::with_capacity(1));
        if alike.iter().any(|old| old.arguments.encoded == binding.arguments.encoded) {
            return None;
        }
        alike.push(binding);
        if alike.len() == 1 {
            match &mut exchange.routes {
                Routes::Keys(keys) => keys.entry(key.into()).or_default().push(target),
                Routes::Topic(index) => {
                    let index = index.as_deref_mut().unwrap_or(shared);
                    index.insert(pattern_levels(key), target.code(), ALL_ASSURANCES);
                }
                Routes::Bindings => {}
            }
        }
        Some(())
    }

    /// Takes a binding out.
    pub fn unbind(
        &mut self,
        shared: &mut TopicIndex<SubscribeOptions>,
        source: ExchangeIndex,
        target: Target,
        key: &str,
        encoded: &[u8],
    ) -> Option<Binding> {
        let exchange = self.get_mut(source)?;
        let alike = exchange.bindings.get_mut(&(target, Box::from(key)))?;
        let position = alike.iter().position(|old| old.arguments.encoded == encoded)?;
        let binding = alike.remove(position);
        if alike.is_empty() {
            exchange.bindings.remove(&(target, Box::from(key)));
            exchange.remove_route(shared, target, key);
        }
        Some(binding)
    }

    /// Takes every binding that leads to `target` out; answers the exchanges that had one, and what each had, with keys.
    pub fn unbind_all(
        &mut self,
        shared: &mut TopicIndex<SubscribeOptions>,
        target: Target,
    ) -> Vec<(ExchangeIndex, Vec<Unbound>)> {
        let mut gone = Vec::new();
        for (slot, at) in self.slots.iter_mut().zip(0u32..) {
            let Some(exchange) = slot else { continue };
            let from = (target, Box::from(""));
            let keys: Vec<_> = exchange
                .bindings
                .range(from..)
                .take_while(|((t, _), _)| *t == target)
                .map(|(k, _)| k.clone())
                .collect();
            if keys.is_empty() {
                continue;
            }
            let mut removed = Vec::new();
            for key in keys {
                let alike = exchange.bindings.remove(&key).unwrap_or_default();
                exchange.remove_route(shared, target, &key.1);
                removed.extend(alike.into_iter().map(|binding| (key.1.clone(), binding)));
            }
            gone.push((ExchangeIndex(at), removed));
        }
        gone
    }

    /// Visits every queue that `message` reaches from the exchanges in `work`, once for each way. Each exchange is
    /// passed once, so that exchanges bound in a circle end. `visit` takes codes of queues and of shared subscriptions;
    /// its last argument says that a subscription would be spared this address, which is reserved. [MQTT-4.7.2-1]
    pub fn matches(
        &mut self,
        shared: &TopicIndex<SubscribeOptions>,
        work: &mut Vec<ExchangeIndex>,
        message: &Message,
        also: &[Box<str>],
        visit: &mut dyn FnMut(u32, SubscribeOptions, bool),
    ) {
        self.visit += 1;
        let number = self.visit;
        let (reader, is_own) = (self.reader, self.is_own);
        let mut targets = Vec::new();
        while let Some(index) = work.pop() {
            let delay_queue = self.delays(index, message);
            let slot = self.slots.get_mut(index.0 as usize);
            let Some(exchange) = slot.and_then(Option::as_mut) else { continue };
            if std::mem::replace(&mut exchange.visit, number) == number {
                continue;
            }
            if let Some(delay_queue) = delay_queue {
                // Where it goes from here is seen when it is due.
                visit(delay_queue.0, ALL_ASSURANCES, false);
                continue;
            }
            targets.clear();
            if index == ExchangeIndex::SHARED {
                shared_targets(shared, message, also, is_own, &mut targets);
            } else {
                exchange.targets(message, also, reader, &mut targets);
            }
            for (code, options, spared) in &targets {
                if let Some(next) = exchange_of(*code) {
                    work.push(next);
                } else {
                    visit(*code, *options, *spared);
                }
            }
            if targets.is_empty()
                && let Some(alternate) = &exchange.options.alternate
                && let Some(next) = self.names.get(alternate)
            {
                work.push(*next);
            }
        }
    }
}

impl Exchange {
    /// True when nothing is bound.
    pub fn is_unbound(&self) -> bool {
        self.bindings.is_empty()
    }

    fn remove_route(&mut self, shared: &mut TopicIndex<SubscribeOptions>, target: Target, key: &str) {
        match &mut self.routes {
            Routes::Keys(keys) => {
                if let Some(targets) = keys.get_mut(key) {
                    targets.retain(|old| *old != target);
                    if targets.is_empty() {
                        keys.remove(key);
                    }
                }
            }
            Routes::Topic(index) => {
                let index = index.as_deref_mut().unwrap_or(shared);
                index.remove(pattern_levels(key), target.code());
            }
            Routes::Bindings => {}
        }
    }

    /// Where a message leads from here; the exchange that joins all protocols has [`shared_targets`].
    fn targets(
        &self,
        message: &Message,
        also: &[Box<str>],
        reader: MessageReader,
        targets: &mut Vec<(u32, SubscribeOptions, bool)>,
    ) {
        match &self.routes {
            Routes::Keys(keys) => {
                for address in addresses(message, also) {
                    let bound = keys.get(address).into_iter().flatten();
                    targets.extend(bound.map(|target| (target.code(), ALL_ASSURANCES, false)));
                }
            }
            Routes::Topic(index) => {
                let Some(index) = index else { return };
                for address in addresses(message, also) {
                    index.matches(address, &mut |code, options| targets.push((code, options, false)));
                    if address.starts_with('$') {
                        // That a leading wildcard spares reserved addresses is a rule of subscriptions only.
                        index.matches_leading_wildcards(address, &mut |code, options| {
                            targets.push((code, options, false));
                        });
                    }
                }
            }
            Routes::Bindings => self.look_through(message, reader, targets),
        }
    }

    fn look_through(
        &self,
        message: &Message,
        reader: MessageReader,
        targets: &mut Vec<(u32, SubscribeOptions, bool)>,
    ) {
        match self.options.kind {
            ExchangeKind::Headers => {
                let header = |name: &str| (reader.header)(message, name);
                for ((target, _), bindings) in &self.bindings {
                    if bindings.iter().any(|binding| binding.arguments.headers.matches(&header)) {
                        targets.push((target.code(), ALL_ASSURANCES, false));
                    }
                }
            }
            ExchangeKind::ConsistentHash => {
                if let Some(target) = self.hashed(message, reader) {
                    targets.push((target.code(), ALL_ASSURANCES, false));
                }
            }
            ExchangeKind::Direct | ExchangeKind::Fanout | ExchangeKind::Topic => {
                targets
                    .extend(self.bindings.keys().map(|(target, _)| (target.code(), ALL_ASSURANCES, false)));
            }
        }
    }

    /// The binding with the highest hash of its own and of what the message is hashed on (rendezvous hashing): when
    /// one goes, only what it had moves.
    fn hashed(&self, message: &Message, reader: MessageReader) -> Option<Target> {
        let hashed = match &self.options.hash_on {
            HashOn::Address => hash(message.address.as_bytes(), 0),
            HashOn::Header(name) => hash_value((reader.header)(message, name)),
            HashOn::Property(name) => hash_value((reader.property)(message, name)),
        };
        let mut best = None;
        for ((target, key), bindings) in &self.bindings {
            let target_hash = bindings.first().map_or(0, |binding| binding.target_hash);
            let weight = key.parse().unwrap_or(0u64).min(HASH_WEIGHT_MAX);
            for share in 0..weight {
                let score = mix(hashed ^ mix(target_hash ^ share));
                if best.is_none_or(|(highest, _)| score > highest) {
                    best = Some((score, *target));
                }
            }
        }
        best.map(|(_, target)| target)
    }
}

/// The message's address and the further ones.
fn addresses<'a>(message: &'a Message, also: &'a [Box<str>]) -> impl Iterator<Item = &'a str> {
    std::iter::once(&*message.address).chain(also.iter().map(|address| &**address))
}

/// Where a message leads from the exchange that joins all protocols. `is_own`: it is one of the gateway's figures.
///
/// A client's message never comes to the gateway's addresses, whatever way it took here: bindings, alternate and
/// dead-letter exchanges, delays. The gateway's figures come to nobody by a leading wildcard: a queue that is bound to
/// everything wants everybody's messages.
fn shared_targets(
    shared: &TopicIndex<SubscribeOptions>,
    message: &Message,
    also: &[Box<str>],
    is_own: bool,
    targets: &mut Vec<(u32, SubscribeOptions, bool)>,
) {
    if !is_own && is_reserved(&message.address) {
        // Under its further addresses it would still show this one.
        return;
    }
    for address in addresses(message, also).filter(|address| is_own || !is_reserved(address)) {
        shared.matches(address, &mut |code, options| targets.push((code, options, false)));
        if address.starts_with('$') && !is_own {
            // That a leading wildcard spares reserved addresses is a rule of subscriptions only.
            shared.matches_leading_wildcards(address, &mut |code, options| {
                targets.push((code, options, true));
            });
        }
    }
}

/// What stands for a queue or exchange in a consistent hash: its name, which it has again after a restart and when it is
/// declared anew.
pub(super) fn name_hash(name: &str) -> u64 {
    hash(name.as_bytes(), 2)
}

/// A binding's weight counts no further: each unit costs a step for each message.
pub const HASH_WEIGHT_MAX: u64 = 100;

fn hash_value(value: Option<Value>) -> u64 {
    let mut bytes = Vec::new();
    if let Some(value) = value {
        value.put(&mut bytes);
    }
    hash(&bytes, 1)
}

fn hash(bytes: &[u8], seed: u64) -> u64 {
    bytes.iter().fold(mix(seed), |hash, byte| mix(hash ^ u64::from(*byte)))
}

/// The finalizer of splitmix64.
const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
