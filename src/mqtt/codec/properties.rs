//! Properties: what version 5 adds to packets. MQTT 5 section 2.2.2.
//!
//! ```text
//! varint   length of all that follows
//! byte     identifier   }
//! ...      value        } any number of times
//! ```
//!
//! One table says of each property its type, the packets that carry it, and whether it may be repeated or zero.

use super::error::{Fault, ProtocolError};
use super::value::PacketType;
use super::wire::Reader;
use crate::mqtt::topic::TopicName;

/// Names a property. Table 2-4.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum PropertyId {
    PayloadFormatIndicator = 0x01,
    MessageExpiryInterval = 0x02,
    ContentType = 0x03,
    ResponseTopic = 0x08,
    CorrelationData = 0x09,
    SubscriptionIdentifier = 0x0b,
    SessionExpiryInterval = 0x11,
    AssignedClientIdentifier = 0x12,
    ServerKeepAlive = 0x13,
    AuthenticationMethod = 0x15,
    AuthenticationData = 0x16,
    RequestProblemInformation = 0x17,
    WillDelayInterval = 0x18,
    RequestResponseInformation = 0x19,
    ResponseInformation = 0x1a,
    ServerReference = 0x1c,
    ReasonString = 0x1f,
    ReceiveMaximum = 0x21,
    TopicAliasMaximum = 0x22,
    TopicAlias = 0x23,
    MaximumQos = 0x24,
    RetainAvailable = 0x25,
    UserProperty = 0x26,
    MaximumPacketSize = 0x27,
    WildcardSubscriptionAvailable = 0x28,
    SubscriptionIdentifierAvailable = 0x29,
    SharedSubscriptionAvailable = 0x2a,
}

/// How a property's value is encoded. Section 1.5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PropertyType {
    /// One byte, 0 or 1.
    Flag,
    TwoByteInteger,
    FourByteInteger,
    VariableByteInteger,
    Utf8String,
    BinaryData,
    Utf8StringPair,
}

/// Where properties stand: in a packet, or before a will in CONNECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Packet(PacketType),
    Will,
}

struct Rule {
    id: PropertyId,
    kind: PropertyType,
    places: &'static [Place],
    /// Zero is a value like others.
    zero: bool,
}

const CONNECT: Place = Place::Packet(PacketType::Connect);
const CONNACK: Place = Place::Packet(PacketType::ConnAck);
const PUBLISH: Place = Place::Packet(PacketType::Publish);
const PUBACK: Place = Place::Packet(PacketType::PubAck);
const PUBREC: Place = Place::Packet(PacketType::PubRec);
const PUBREL: Place = Place::Packet(PacketType::PubRel);
const PUBCOMP: Place = Place::Packet(PacketType::PubComp);
const SUBSCRIBE: Place = Place::Packet(PacketType::Subscribe);
const SUBACK: Place = Place::Packet(PacketType::SubAck);
const UNSUBSCRIBE: Place = Place::Packet(PacketType::Unsubscribe);
const UNSUBACK: Place = Place::Packet(PacketType::UnsubAck);
const DISCONNECT: Place = Place::Packet(PacketType::Disconnect);
const AUTH: Place = Place::Packet(PacketType::Auth);
const WILL: Place = Place::Will;

const fn rule(id: PropertyId, kind: PropertyType, places: &'static [Place]) -> Rule {
    Rule { id, kind, places, zero: true }
}

const fn above_zero(id: PropertyId, kind: PropertyType, places: &'static [Place]) -> Rule {
    Rule { id, kind, places, zero: false }
}

const TABLE: [Rule; 27] = {
    use PropertyId as P;
    use PropertyType as T;
    [
        rule(P::PayloadFormatIndicator, T::Flag, &[PUBLISH, WILL]),
        rule(P::MessageExpiryInterval, T::FourByteInteger, &[PUBLISH, WILL]),
        rule(P::ContentType, T::Utf8String, &[PUBLISH, WILL]),
        rule(P::ResponseTopic, T::Utf8String, &[PUBLISH, WILL]),
        rule(P::CorrelationData, T::BinaryData, &[PUBLISH, WILL]),
        above_zero(P::SubscriptionIdentifier, T::VariableByteInteger, &[PUBLISH, SUBSCRIBE]),
        rule(P::SessionExpiryInterval, T::FourByteInteger, &[CONNECT, CONNACK, DISCONNECT]),
        rule(P::AssignedClientIdentifier, T::Utf8String, &[CONNACK]),
        rule(P::ServerKeepAlive, T::TwoByteInteger, &[CONNACK]),
        rule(P::AuthenticationMethod, T::Utf8String, &[CONNECT, CONNACK, AUTH]),
        rule(P::AuthenticationData, T::BinaryData, &[CONNECT, CONNACK, AUTH]),
        rule(P::RequestProblemInformation, T::Flag, &[CONNECT]),
        rule(P::WillDelayInterval, T::FourByteInteger, &[WILL]),
        rule(P::RequestResponseInformation, T::Flag, &[CONNECT]),
        rule(P::ResponseInformation, T::Utf8String, &[CONNACK]),
        rule(P::ServerReference, T::Utf8String, &[CONNACK, DISCONNECT]),
        rule(
            P::ReasonString,
            T::Utf8String,
            &[CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH],
        ),
        above_zero(P::ReceiveMaximum, T::TwoByteInteger, &[CONNECT, CONNACK]),
        rule(P::TopicAliasMaximum, T::TwoByteInteger, &[CONNECT, CONNACK]),
        above_zero(P::TopicAlias, T::TwoByteInteger, &[PUBLISH]),
        rule(P::MaximumQos, T::Flag, &[CONNACK]),
        rule(P::RetainAvailable, T::Flag, &[CONNACK]),
        rule(
            P::UserProperty,
            T::Utf8StringPair,
            &[
                CONNECT,
                CONNACK,
                PUBLISH,
                WILL,
                PUBACK,
                PUBREC,
                PUBREL,
                PUBCOMP,
                SUBSCRIBE,
                SUBACK,
                UNSUBSCRIBE,
                UNSUBACK,
                DISCONNECT,
                AUTH,
            ],
        ),
        above_zero(P::MaximumPacketSize, T::FourByteInteger, &[CONNECT, CONNACK]),
        rule(P::WildcardSubscriptionAvailable, T::Flag, &[CONNACK]),
        rule(P::SubscriptionIdentifierAvailable, T::Flag, &[CONNACK]),
        rule(P::SharedSubscriptionAvailable, T::Flag, &[CONNACK]),
    ]
};

impl Rule {
    fn find(identifier: u32) -> Option<&'static Self> {
        TABLE.iter().find(|rule| rule.id as u32 == identifier)
    }

    /// User properties repeat everywhere, and a PUBLISH has a subscription identifier for each subscription.
    fn repeats(&self, place: Place) -> bool {
        self.id == PropertyId::UserProperty
            || self.id == PropertyId::SubscriptionIdentifier && place == PUBLISH
    }
}

impl PropertyId {
    /// Every property, in ascending order.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|rule| rule.id)
    }

    /// How its value is encoded.
    #[must_use]
    pub fn kind(self) -> PropertyType {
        Rule::find(self as u32).map_or(PropertyType::Flag, |rule| rule.kind)
    }

    /// Whether it may stand there.
    #[must_use]
    pub fn fits(self, place: Place) -> bool {
        Rule::find(self as u32).is_some_and(|rule| rule.places.contains(&place))
    }
}

/// The value of a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PropertyValue<'a> {
    /// A flag, or an integer of any width.
    Number(u32),
    Text(&'a str),
    Data(&'a [u8]),
    Pair(&'a str, &'a str),
}

/// The properties of one packet, all of them checked, read from its bytes as they are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Properties<'a> {
    bytes: &'a [u8],
}

impl<'a> Properties<'a> {
    /// None at all.
    pub const NONE: Self = Self { bytes: &[] };

    /// Properties whose bytes were checked before: without the length that stands before them on the wire. Bytes
    /// that are no properties end the list.
    #[must_use]
    pub const fn from_checked(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Reads the length and the properties behind it. Each is one of `place`, and none comes twice that may not.
    pub(super) fn decode(reader: &mut Reader<'a>, place: Place) -> Result<Self, ProtocolError> {
        let length = reader.variable_byte_integer()? as usize;
        let bytes = reader.take(length)?;
        let mut rest = Reader::new(bytes);
        // Bit n: the property with identifier n was there. Identifiers end at 0x2a.
        let mut seen = 0_u64;
        while !rest.is_empty() {
            let (rule, value) = property(&mut rest)?;
            if !rule.places.contains(&place) {
                return Err(ProtocolError::malformed(
                    "property does not belong to this packet",
                    "section 2.2.2.2",
                ));
            }
            let bit = 1_u64.wrapping_shl(rule.id as u32);
            if seen & bit != 0 && !rule.repeats(place) {
                return Err(ProtocolError::violation("property is there twice", "section 2.2.2.2"));
            }
            seen |= bit;
            check(rule, value)?;
        }
        Ok(Self { bytes })
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Their bytes, without the length that stands before them on the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// All of them, in the order of the packet.
    pub fn iter(self) -> impl Iterator<Item = (PropertyId, PropertyValue<'a>)> + Clone {
        let mut rest = Reader::new(self.bytes);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            property(&mut rest).ok().map(|(rule, value)| (rule.id, value))
        })
    }

    fn find(self, id: PropertyId) -> Option<PropertyValue<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        self.iter().find(|(found, _)| *found == id).map(|(_, value)| value)
    }

    /// The value of a flag or an integer.
    #[must_use]
    pub fn number(self, id: PropertyId) -> Option<u32> {
        let Some(PropertyValue::Number(number)) = self.find(id) else { return None };
        Some(number)
    }

    /// The value of a two-byte integer.
    #[must_use]
    pub fn number16(self, id: PropertyId) -> Option<u16> {
        u16::try_from(self.number(id)?).ok()
    }

    /// True when the flag is there and set.
    #[must_use]
    pub fn flag(self, id: PropertyId) -> bool {
        self.number(id) == Some(1)
    }

    /// The value of a string.
    #[must_use]
    pub fn text(self, id: PropertyId) -> Option<&'a str> {
        let Some(PropertyValue::Text(text)) = self.find(id) else { return None };
        Some(text)
    }

    /// The value of binary data.
    #[must_use]
    pub fn data(self, id: PropertyId) -> Option<&'a [u8]> {
        let Some(PropertyValue::Data(data)) = self.find(id) else { return None };
        Some(data)
    }

    /// Names and values of the user properties, in their order. [MQTT-3.3.2-18]
    pub fn user_properties(self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone {
        self.iter().filter_map(|(_, value)| match value {
            PropertyValue::Pair(name, value) => Some((name, value)),
            PropertyValue::Number(_) | PropertyValue::Text(_) | PropertyValue::Data(_) => None,
        })
    }
}

/// Reads one property, whatever packet it stands in.
fn property<'a>(reader: &mut Reader<'a>) -> Result<(&'static Rule, PropertyValue<'a>), ProtocolError> {
    let identifier = reader.variable_byte_integer()?;
    let rule = Rule::find(identifier)
        .ok_or(ProtocolError::malformed("property identifier is unknown", "section 2.2.2.2"))?;
    let value = match rule.kind {
        PropertyType::Flag => PropertyValue::Number(u32::from(reader.byte()?)),
        PropertyType::TwoByteInteger => PropertyValue::Number(u32::from(reader.two_bytes()?)),
        PropertyType::FourByteInteger => PropertyValue::Number(reader.four_bytes()?),
        PropertyType::VariableByteInteger => PropertyValue::Number(reader.variable_byte_integer()?),
        PropertyType::Utf8String => PropertyValue::Text(reader.string()?),
        PropertyType::BinaryData => PropertyValue::Data(reader.binary()?),
        PropertyType::Utf8StringPair => PropertyValue::Pair(reader.string()?, reader.string()?),
    };
    Ok((rule, value))
}

/// What the standard says about single values.
fn check(rule: &Rule, value: PropertyValue<'_>) -> Result<(), ProtocolError> {
    match value {
        PropertyValue::Number(number) if rule.kind == PropertyType::Flag && number > 1 => {
            Err(ProtocolError::violation("property is neither 0 nor 1", "section 2.2.2.2"))
        }
        PropertyValue::Number(0) if rule.id == PropertyId::TopicAlias => Err(ProtocolError {
            fault: Fault::TopicAliasInvalid,
            detail: "topic alias is zero",
            rule: "MQTT-3.3.2-8",
        }),
        PropertyValue::Number(0) if !rule.zero => {
            Err(ProtocolError::violation("property may not be zero", "section 2.2.2.2"))
        }
        PropertyValue::Text(text) if rule.id == PropertyId::ResponseTopic => {
            let topic = TopicName::parse(text);
            topic.map(drop).map_err(|error| ProtocolError::violation(error.detail(), "MQTT-3.3.2-14"))
        }
        PropertyValue::Number(_)
        | PropertyValue::Text(_)
        | PropertyValue::Data(_)
        | PropertyValue::Pair(..) => Ok(()),
    }
}
