//! What a connection of version 5 has beside the rest: the limits that its client named, topic aliases both ways, and
//! how many of the client's publishes are under way. MQTT 5 sections 3.1.2.11, 3.3.2.3.4 and 4.9.

use std::collections::BTreeMap;

use super::codec::{Connect, Fault, Properties, PropertyId, ProtocolError};
use crate::ids::QueueId;
use crate::limits;

/// See the module's head. Connections of earlier versions have none.
#[derive(Debug)]
pub(super) struct Version5 {
    /// The session, once it is open.
    pub session: QueueId,
    /// Seconds for which the client wants its session kept, by its CONNECT.
    pub session_expiry_s: u32,
    /// Deliveries of QoS 1 and 2 that the client takes at once.
    pub receive_maximum: u16,
    /// Bytes of a packet that the client takes.
    pub packet_bytes_max: usize,
    /// Reason strings are wanted everywhere, not only where they cannot be declined.
    pub problem_information: bool,
    pub response_information: bool,
    /// The gateway chose the client identifier.
    pub identifier_assigned: bool,
    /// The gateway chose the keep-alive.
    pub keep_alive_chosen: bool,
    /// Topics by the aliases that the client gave them.
    topics: BTreeMap<u16, Box<str>>,
    topic_bytes: usize,
    /// Aliases that the client was told.
    aliases: BTreeMap<Box<str>, u16>,
    alias_bytes: usize,
    aliases_max: u16,
    /// Publishes of QoS 1 and 2 from the client whose exchange is not over.
    pub under_way: u16,
}

/// A topic alias as a property: a topic of no more bytes gains nothing by it.
const ALIAS_BYTES: usize = 3;

const NOT_AN_ALIAS: ProtocolError = ProtocolError {
    fault: Fault::TopicAliasInvalid,
    detail: "topic alias is above the maximum, or stands for nothing",
    rule: "MQTT-3.3.2-9",
};

const ALIASES_TOO_LONG: ProtocolError = ProtocolError {
    fault: Fault::QuotaExceeded,
    detail: "topics that aliases stand for take too much memory",
    rule: "section 3.3.2.3.4",
};

const TOO_MANY_UNDER_WAY: ProtocolError = ProtocolError {
    fault: Fault::ReceiveMaximumExceeded,
    detail: "more publishes of QoS 1 and 2 than the receive maximum are under way",
    rule: "MQTT-3.3.4-7",
};

impl Version5 {
    /// What a CONNECT says.
    pub fn of(connect: &Connect<'_>) -> Self {
        let properties = connect.properties;
        let aliases_max = properties.number16(PropertyId::TopicAliasMaximum).unwrap_or(0);
        Self {
            session: QueueId(0),
            session_expiry_s: properties.number(PropertyId::SessionExpiryInterval).unwrap_or(0),
            receive_maximum: properties.number16(PropertyId::ReceiveMaximum).unwrap_or(u16::MAX),
            packet_bytes_max: properties
                .number(PropertyId::MaximumPacketSize)
                .and_then(|bytes| usize::try_from(bytes).ok())
                .unwrap_or(usize::MAX),
            problem_information: properties.number(PropertyId::RequestProblemInformation) != Some(0),
            response_information: properties.flag(PropertyId::RequestResponseInformation),
            identifier_assigned: false,
            keep_alive_chosen: false,
            topics: BTreeMap::new(),
            topic_bytes: 0,
            aliases: BTreeMap::new(),
            alias_bytes: 0,
            aliases_max: aliases_max.min(limits::TOPIC_ALIASES_MAX),
            under_way: 0,
        }
    }

    /// The client begins an exchange of QoS 1 or 2.
    pub const fn begin(&mut self) -> Result<(), ProtocolError> {
        if self.under_way >= limits::RECEIVE_MAXIMUM {
            return Err(TOO_MANY_UNDER_WAY);
        }
        self.under_way += 1;
        Ok(())
    }

    /// An exchange that the client began is over.
    pub const fn finish(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// The topic of a PUBLISH that carries an alias: `topic` itself, which the alias then stands for, or what the
    /// alias stands for when `topic` is empty. [MQTT-3.3.2-12]
    pub fn topic<'a>(&'a mut self, alias: u16, topic: &'a str) -> Result<&'a str, ProtocolError> {
        if alias > limits::TOPIC_ALIASES_MAX {
            return Err(NOT_AN_ALIAS);
        }
        if topic.is_empty() {
            return self.topics.get(&alias).map(|topic| &**topic).ok_or(NOT_AN_ALIAS);
        }
        let old = self.topics.insert(alias, topic.into());
        self.topic_bytes = self.topic_bytes + topic.len() - old.map_or(0, |old| old.len());
        if self.topic_bytes > limits::TOPIC_ALIAS_BYTES_MAX {
            return Err(ALIASES_TOO_LONG);
        }
        Ok(topic)
    }

    /// How a topic is named to the client: `None` by its name alone, else by an alias, together with the name when
    /// the client does not know it yet.
    pub fn alias(&mut self, topic: &str) -> Option<(u16, bool)> {
        if self.aliases_max == 0 || topic.len() <= ALIAS_BYTES {
            return None;
        }
        if let Some(alias) = self.aliases.get(topic) {
            return Some((*alias, true));
        }
        let alias = u16::try_from(self.aliases.len() + 1).ok().filter(|alias| *alias <= self.aliases_max)?;
        if self.alias_bytes + topic.len() > limits::TOPIC_ALIAS_BYTES_MAX {
            return None;
        }
        Some((alias, false))
    }

    /// The client was told the next alias.
    pub fn alias_told(&mut self, topic: &str, alias: u16) {
        self.alias_bytes += topic.len();
        self.aliases.insert(topic.into(), alias);
    }
}

/// The properties of a PUBLISH that its receivers see, as they came. What else it carries is between the publisher and
/// the gateway, or told anew to each receiver.
pub(super) fn relayed(properties: Properties<'_>, out: &mut Vec<u8>) {
    let mut list = super::codec::PropertyList::reusing(std::mem::take(out));
    for (id, value) in properties.iter() {
        let relayed = matches!(
            id,
            PropertyId::PayloadFormatIndicator
                | PropertyId::ContentType
                | PropertyId::ResponseTopic
                | PropertyId::CorrelationData
                | PropertyId::UserProperty
        );
        if relayed {
            list.push(id, value);
        }
    }
    *out = list.into_bytes();
}
