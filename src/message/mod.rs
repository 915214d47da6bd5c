//! The protocol-neutral message: where it goes, what it carries, how surely it must arrive.
//!
//! Owns addresses as lists of levels and the delivery guarantee. Leaves the publisher's own properties as the bytes
//! in which they came; the protocol that wrote them is the only one to read them, `gateway` converts for others.

mod annotations;
pub mod record;
mod value;

use std::rc::Rc;

pub use annotations::{Annotations, Death, DeathReason};
use bytes::Bytes;
pub use value::Value;

use crate::time::Wall;

/// How surely a message reaches a taker. The words are those of MQTT 3.1.1 section 4.3; AMQP's delivery mode 2 is
/// `AtLeastOnce`, mode 1 `AtMostOnce`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Assurance {
    #[default]
    AtMostOnce,
    AtLeastOnce,
    ExactlyOnce,
}

/// Swaps `/` and `.`, which turns an address into the form in which other protocols show it, and back without loss.
#[must_use]
pub fn swap_separators(text: &str) -> String {
    let swapped = text.chars().map(|character| match character {
        '/' => '.',
        '.' => '/',
        other => other,
    });
    let mut out = String::with_capacity(text.len());
    out.extend(swapped);
    out
}

/// True for an address that is the gateway's own, `$SYS` or below: only its figures are published there.
#[must_use]
pub fn is_reserved(address: &str) -> bool {
    address.strip_prefix("$SYS").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Assurance {
    /// The number that stands for it on the wire and on flash: 0, 1 or 2.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::AtMostOnce => 0,
            Self::AtLeastOnce => 1,
            Self::ExactlyOnce => 2,
        }
    }

    /// The inverse of [`Assurance::code`].
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

/// A message as its publisher meant it. Immutable once routed; every taker shares one copy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// Levels joined by `/`. A level may hold any character but `/`, a dot included, so the list of levels can be
    /// read back; AMQP shows the same list with `/` and `.` swapped.
    pub address: Box<str>,
    pub body: Bytes,
    pub assurance: Assurance,
    /// The publisher asked for the message to be kept as the address's last known value.
    pub retain: bool,
    /// Wall clock when the gateway took the message, milliseconds since 1970.
    pub received_at: Wall,
    /// The wall clock was trusted then; else `received_at` is an estimate.
    pub received_trusted: bool,
    /// The publisher's properties as encoded by its protocol behind one byte that names it; empty for MQTT 3.
    pub properties: Bytes,
    /// Name of the exchange that it was published to. `None`: the topic exchange that all protocols share.
    pub exchange: Option<Rc<str>>,
    /// Higher ones overtake in queues that were asked to look at it.
    pub priority: u8,
    /// How long it is worth delivering after it entered a queue, milliseconds.
    pub time_to_live_ms: Option<u64>,
    /// What the gateway noted on its way.
    pub annotations: Option<Box<Annotations>>,
}

/// First byte of [`Message::properties`]: MQTT 5, the properties of PUBLISH that receivers see, but for its expiry, which
/// is the message's time to live.
pub const PROPERTIES_MQTT5: u8 = 1;

/// First byte of [`Message::properties`]: AMQP 0-9-1, property flags and properties of class basic.
pub const PROPERTIES_AMQP091: u8 = 2;

/// Name of the exchange that all protocols share, in a [`Death`].
pub const SHARED_EXCHANGE: &str = "amq.topic";

impl Message {
    /// The addresses under which it passed the exchange that all protocols share: the rules about topics are asked for
    /// each, also after it has died in a queue and come to another by way of another exchange.
    pub fn shared_addresses(&self) -> impl Iterator<Item = &str> {
        let own = self.exchange.is_none().then_some(&*self.address);
        let deaths = self.annotations.iter().flat_map(|annotations| &annotations.deaths);
        let over_shared = deaths.filter(|death| &*death.exchange == SHARED_EXCHANGE);
        own.into_iter()
            .chain(over_shared.filter_map(|death| death.addresses.first().map(|address| &**address)))
    }

    /// Bytes that the message is charged against a queue's bound: everything the publisher sent.
    #[must_use]
    pub fn charge(&self) -> usize {
        let annotations = self.annotations.as_ref().map_or(0, |annotations| annotations.charge());
        self.address.len() + self.body.len() + self.properties.len() + annotations
    }
}
