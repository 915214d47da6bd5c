//! SUBSCRIBE. MQTT 3.1.1 and 5 section 3.8.
//!
//! ```text
//! u16      packet identifier
//!          properties        5 only
//! string   topic filter      }
//! byte     options           } one or more times
//! ```
//!
//! Options: bits 0 and 1 requested QoS; in 5 also bit 2 no local, bit 3 retain as published, bits 4 and 5 retain
//! handling.

use super::error::{EncodeError, ProtocolError};
use super::properties::{Place, Properties};
use super::value::{PacketIdentifier, PacketType, ProtocolVersion, QualityOfService};
use super::wire::{Reader, field_bytes, properties_bytes, put_binary, put_fixed_header, put_properties};
use crate::mqtt::topic::TopicFilter;

/// A request for subscriptions, all of its filters checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscribe<'a> {
    pub packet_identifier: PacketIdentifier,
    /// There exactly when the packet has the form of version 5.
    pub properties: Option<Properties<'a>>,
    pub subscriptions: Subscriptions<'a>,
}

/// One filter of a SUBSCRIBE and how its messages are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriptionRequest<'a> {
    pub filter: TopicFilter<'a>,
    /// The highest QoS at which messages come.
    pub qos: QualityOfService,
    /// The client's own messages are not wanted. Before version 5 they always come.
    pub no_local: bool,
    /// Messages keep the RETAIN flag with which they were published.
    pub retain_as_published: bool,
    pub retain_handling: RetainHandling,
}

/// Which retained messages a subscription brings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RetainHandling {
    /// Those that match, each time.
    #[default]
    Always = 0,
    /// Those that match, if the subscription is new.
    IfNew = 1,
    Never = 2,
}

impl<'a> SubscriptionRequest<'a> {
    /// As versions before 5 ask for it.
    #[must_use]
    pub const fn new(filter: TopicFilter<'a>, qos: QualityOfService) -> Self {
        Self {
            filter,
            qos,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Always,
        }
    }

    fn options(&self) -> u8 {
        let mut byte = u8::from(self.qos) | (self.retain_handling as u8).wrapping_shl(RETAIN_HANDLING_SHIFT);
        if self.no_local {
            byte |= NO_LOCAL;
        }
        if self.retain_as_published {
            byte |= RETAIN_AS_PUBLISHED;
        }
        byte
    }
}

const NO_LOCAL: u8 = 0b0000_0100;
const RETAIN_AS_PUBLISHED: u8 = 0b0000_1000;
const RETAIN_HANDLING_SHIFT: u32 = 4;
const RESERVED: u8 = 0b1100_0000;

/// The filters in the order of the packet, read from its bytes as they are asked for. Knows its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscriptions<'a> {
    reader: Reader<'a>,
    left: usize,
    version: ProtocolVersion,
}

impl<'a> Subscribe<'a> {
    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let packet_identifier = reader.packet_identifier()?;
        let properties = match version {
            ProtocolVersion::V5 => {
                Some(Properties::decode(&mut reader, Place::Packet(PacketType::Subscribe))?)
            }
            ProtocolVersion::V31 | ProtocolVersion::V311 => None,
        };
        let mut subscriptions = Subscriptions { reader, left: 0, version };
        while !reader.is_empty() {
            entry(&mut reader, version)?;
            subscriptions.left = subscriptions.left.saturating_add(1);
        }
        if subscriptions.left == 0 {
            return Err(ProtocolError::violation("SUBSCRIBE has no topic filter", "MQTT-3.8.3-3"));
        }
        Ok(Self { packet_identifier, properties, subscriptions })
    }
}

impl<'a> Iterator for Subscriptions<'a> {
    type Item = SubscriptionRequest<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // Cannot fail: decoding the packet went through the same bytes.
        entry(&mut self.reader, self.version).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Subscriptions<'_> {}

fn entry<'a>(
    reader: &mut Reader<'a>,
    version: ProtocolVersion,
) -> Result<SubscriptionRequest<'a>, ProtocolError> {
    let filter = TopicFilter::parse(reader.topic_string()?).map_err(ProtocolError::topic_filter)?;
    let byte = reader.byte()?;
    let requested = match version {
        ProtocolVersion::V5 => return entry5(filter, byte),
        // The upper six bits are not used in 3.1.
        ProtocolVersion::V31 => byte & 0b11,
        ProtocolVersion::V311 => byte,
    };
    let qos = QualityOfService::try_from(requested).map_err(|_| {
        ProtocolError::malformed("requested QoS is 3 or has reserved bits set", "MQTT-3.8.3-4")
    })?;
    Ok(SubscriptionRequest::new(filter, qos))
}

/// MQTT 5 section 3.8.3.1.
fn entry5(filter: TopicFilter<'_>, byte: u8) -> Result<SubscriptionRequest<'_>, ProtocolError> {
    if byte & RESERVED != 0 {
        return Err(ProtocolError::malformed("reserved subscription options are set", "MQTT-3.8.3-5"));
    }
    let qos = QualityOfService::try_from(byte & 0b11)
        .map_err(|_| ProtocolError::violation("requested QoS is 3", "section 3.8.3.1"))?;
    let retain_handling = match byte.wrapping_shr(RETAIN_HANDLING_SHIFT) {
        0 => RetainHandling::Always,
        1 => RetainHandling::IfNew,
        2 => RetainHandling::Never,
        _ => return Err(ProtocolError::violation("retain handling is 3", "section 3.8.3.1")),
    };
    let no_local = byte & NO_LOCAL != 0;
    let shared = filter.shared().map_err(ProtocolError::topic_filter)?;
    if no_local && shared.is_some() {
        return Err(ProtocolError::violation("no local on a shared subscription", "MQTT-3.8.3-4"));
    }
    let retain_as_published = byte & RETAIN_AS_PUBLISHED != 0;
    Ok(SubscriptionRequest { filter, qos, no_local, retain_as_published, retain_handling })
}

/// Appends a SUBSCRIBE; in the form of version 5 when there are properties.
pub fn encode_subscribe(
    out: &mut Vec<u8>,
    packet_identifier: PacketIdentifier,
    properties: Option<Properties<'_>>,
    subscriptions: &[SubscriptionRequest<'_>],
) -> Result<(), EncodeError> {
    if subscriptions.is_empty() {
        return Err(EncodeError::NoEntries);
    }
    let mut remaining_length = properties_bytes(properties).saturating_add(2);
    for subscription in subscriptions {
        let filter_bytes = field_bytes(subscription.filter.as_str().as_bytes());
        remaining_length = remaining_length.saturating_add(filter_bytes).saturating_add(1);
    }
    put_fixed_header(out, PacketType::Subscribe.first_byte(), remaining_length, remaining_length)?;
    out.extend_from_slice(&packet_identifier.number().to_be_bytes());
    properties.map_or(Ok(()), |properties| put_properties(out, properties))?;
    for subscription in subscriptions {
        put_binary(out, subscription.filter.as_str().as_bytes())?;
        out.push(if properties.is_some() { subscription.options() } else { u8::from(subscription.qos) });
    }
    Ok(())
}
