//! PUBLISH. MQTT 3.1.1 and 5 section 3.3.
//!
//! ```text
//! flags    DUP, QoS (2 bits), RETAIN
//! string   topic name           in 5 empty when a topic alias stands for it
//! u16      packet identifier    if QoS > 0
//!          properties           5 only
//! ...      payload, to the end of the packet
//! ```

use std::fmt;

use super::error::{EncodeError, ProtocolError};
use super::fixed_header::FixedHeader;
use super::properties::{Place, Properties, PropertyId};
use super::value::{PacketIdentifier, PacketType, ProtocolVersion, QualityOfService};
use super::wire::{Reader, field_bytes, properties_bytes, put_fixed_header, put_properties, variable_bytes};
use crate::mqtt::topic::TopicName;

/// An application message on its way, in either direction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// In version 5 it may be [`TopicName::ALIASED`]: the properties then have a topic alias.
    pub topic: TopicName<'a>,
    pub qos: QualityOfService,
    pub retain: bool,
    /// May have been sent before. Never set with QoS 0. [MQTT-3.3.1-2]
    pub duplicate: bool,
    /// Present exactly when the QoS is not 0.
    pub packet_identifier: Option<PacketIdentifier>,
    /// There exactly when the packet has the form of version 5.
    pub properties: Option<Properties<'a>>,
    pub payload: &'a [u8],
}

const DUP: u8 = 0b1000;
const QOS_SHIFT: u32 = 1;
const RETAIN: u8 = 0b0001;

impl<'a> Publish<'a> {
    pub(super) fn decode(
        header: FixedHeader,
        body: &'a [u8],
        version: ProtocolVersion,
    ) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let topic = reader.topic_string()?;
        let topic = if version == ProtocolVersion::V5 && topic.is_empty() {
            TopicName::ALIASED
        } else {
            TopicName::parse(topic).map_err(ProtocolError::topic_name)?
        };
        let qos = qos(header.flags)?;
        let packet_identifier = match qos {
            QualityOfService::AtMostOnce => None,
            QualityOfService::AtLeastOnce | QualityOfService::ExactlyOnce => {
                Some(reader.packet_identifier()?)
            }
        };
        let properties = if version == ProtocolVersion::V5 {
            let properties = Properties::decode(&mut reader, Place::Packet(PacketType::Publish))?;
            if topic == TopicName::ALIASED && properties.number(PropertyId::TopicAlias).is_none() {
                return Err(ProtocolError::violation(
                    "neither topic name nor topic alias",
                    "section 3.3.2.1",
                ));
            }
            Some(properties)
        } else {
            None
        };
        Ok(Self {
            topic,
            qos,
            retain: header.flags & RETAIN != 0,
            // MQTT 3.1 says nothing about DUP with QoS 0; it has no meaning there.
            duplicate: header.flags & DUP != 0 && qos != QualityOfService::AtMostOnce,
            packet_identifier,
            properties,
            payload: reader.remainder(),
        })
    }
}

/// Payloads stay out of logs.
impl fmt::Debug for Publish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish")
            .field("topic", &self.topic)
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("duplicate", &self.duplicate)
            .field("packet_identifier", &self.packet_identifier)
            .field("properties", &self.properties)
            .field("payload_bytes", &self.payload.len())
            .finish()
    }
}

/// Flags of the fixed header of a PUBLISH, checked before its body arrives.
pub(super) fn check_flags(flags: u8, version: Option<ProtocolVersion>) -> Result<(), ProtocolError> {
    let qos = qos(flags)?;
    if flags & DUP != 0 && qos == QualityOfService::AtMostOnce && version != Some(ProtocolVersion::V31) {
        return Err(ProtocolError::malformed("DUP is set with QoS 0", "MQTT-3.3.1-2"));
    }
    Ok(())
}

fn qos(flags: u8) -> Result<QualityOfService, ProtocolError> {
    QualityOfService::try_from(flags >> QOS_SHIFT & 0b11)
        .map_err(|_| ProtocolError::malformed("PUBLISH has QoS 3", "MQTT-3.3.1-4"))
}

/// Bytes that a PUBLISH takes on the wire.
#[must_use]
pub fn publish_bytes(publish: &Publish<'_>) -> usize {
    let identifier_bytes = if publish.qos == QualityOfService::AtMostOnce { 0 } else { 2 };
    let remaining_length = field_bytes(publish.topic.as_str().as_bytes())
        .saturating_add(identifier_bytes)
        .saturating_add(properties_bytes(publish.properties))
        .saturating_add(publish.payload.len());
    variable_bytes(remaining_length).saturating_add(1).saturating_add(remaining_length)
}

/// Appends a whole PUBLISH and returns where its packet identifier lies, if it has one, counted from the start
/// of the packet: a packet encoded once for many receivers is patched there ([`patch_packet_identifier`]).
pub fn encode_publish(out: &mut Vec<u8>, publish: &Publish<'_>) -> Result<Option<usize>, EncodeError> {
    let identifier_at = encode_head(out, publish, publish.payload.len())?;
    out.extend_from_slice(publish.payload);
    Ok(identifier_at)
}

/// Appends a PUBLISH up to its payload, which the caller sends right behind; otherwise as [`encode_publish`].
pub fn encode_publish_head(out: &mut Vec<u8>, publish: &Publish<'_>) -> Result<Option<usize>, EncodeError> {
    encode_head(out, publish, 0)
}

/// Overwrites the packet identifier of an encoded PUBLISH at the place that its encoding returned. Without effect
/// when `identifier_at` lies outside `packet`.
pub fn patch_packet_identifier(packet: &mut [u8], identifier_at: usize, identifier: PacketIdentifier) {
    if let Some(place) = packet.get_mut(identifier_at..).and_then(<[u8]>::first_chunk_mut) {
        *place = identifier.number().to_be_bytes();
    }
}

/// Sets DUP in an encoded PUBLISH of QoS 1 or 2.
pub fn patch_duplicate(packet: &mut [u8]) {
    if let Some(first) = packet.first_mut() {
        *first |= DUP;
    }
}

fn encode_head(
    out: &mut Vec<u8>,
    publish: &Publish<'_>,
    payload_bytes_here: usize,
) -> Result<Option<usize>, EncodeError> {
    let topic = publish.topic.as_str().as_bytes();
    let packet_identifier = match (publish.qos, publish.packet_identifier) {
        (QualityOfService::AtMostOnce, _) => None,
        (QualityOfService::AtLeastOnce | QualityOfService::ExactlyOnce, Some(identifier)) => Some(identifier),
        (QualityOfService::AtLeastOnce | QualityOfService::ExactlyOnce, None) => {
            return Err(EncodeError::PacketIdentifierMissing);
        }
    };
    let topic_length = super::wire::field_length(topic)?;
    let identifier_bytes = if packet_identifier.is_some() { 2 } else { 0 };
    let head_bytes = topic
        .len()
        .saturating_add(2)
        .saturating_add(identifier_bytes)
        .saturating_add(properties_bytes(publish.properties));
    let remaining_length = head_bytes.saturating_add(publish.payload.len());
    let start = out.len();
    put_fixed_header(
        out,
        first_byte(publish),
        remaining_length,
        head_bytes.saturating_add(payload_bytes_here),
    )?;
    out.extend_from_slice(&topic_length.to_be_bytes());
    out.extend_from_slice(topic);
    let mut identifier_at = None;
    if let Some(packet_identifier) = packet_identifier {
        identifier_at = Some(out.len().saturating_sub(start));
        out.extend_from_slice(&packet_identifier.number().to_be_bytes());
    }
    publish.properties.map_or(Ok(()), |properties| put_properties(out, properties))?;
    Ok(identifier_at)
}

fn first_byte(publish: &Publish<'_>) -> u8 {
    let mut byte = PacketType::Publish.first_byte() | u8::from(publish.qos) << QOS_SHIFT;
    if publish.retain {
        byte |= RETAIN;
    }
    if publish.duplicate && publish.qos != QualityOfService::AtMostOnce {
        byte |= DUP;
    }
    byte
}
