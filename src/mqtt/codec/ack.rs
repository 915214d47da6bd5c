//! PUBACK, PUBREC, PUBREL and PUBCOMP: a packet identifier and, in version 5, how it went. MQTT 3.1.1 sections 3.4 to
//! 3.7, MQTT 5 likewise. Also PINGREQ and PINGRESP, which carry nothing.
//!
//! ```text
//! u16          packet identifier
//! byte         reason code, 5 only; may be missing when it is 0 and nothing follows
//! properties   5 only; may be missing when nothing follows
//! ```

use super::error::{EncodeError, ProtocolError};
use super::properties::{Place, Properties};
use super::reason::ReasonCode;
use super::value::{PacketIdentifier, PacketType, ProtocolVersion};
use super::wire::{Reader, properties_bytes, put_fixed_header, put_properties};

/// What one of the four packets says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acknowledgement<'a> {
    pub packet_identifier: PacketIdentifier,
    /// Success before version 5.
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

impl<'a> Acknowledgement<'a> {
    /// One that says nothing but that all is well.
    #[must_use]
    pub const fn success(packet_identifier: PacketIdentifier) -> Self {
        Self { packet_identifier, reason: ReasonCode::Success, properties: Properties::NONE }
    }

    pub(super) fn decode(
        body: &'a [u8],
        packet_type: PacketType,
        version: ProtocolVersion,
    ) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let mut acknowledgement = Self::success(reader.packet_identifier()?);
        if version == ProtocolVersion::V5 {
            (acknowledgement.reason, acknowledgement.properties) = outcome(&mut reader, packet_type)?;
        }
        reader.finish()?;
        Ok(acknowledgement)
    }
}

/// A reason code and properties that may both be missing.
pub(super) fn outcome<'a>(
    reader: &mut Reader<'a>,
    packet_type: PacketType,
) -> Result<(ReasonCode, Properties<'a>), ProtocolError> {
    if reader.is_empty() {
        return Ok((ReasonCode::Success, Properties::NONE));
    }
    let reason = ReasonCode::decode(reader.byte()?, packet_type)?;
    if reader.is_empty() {
        return Ok((reason, Properties::NONE));
    }
    Ok((reason, Properties::decode(reader, Place::Packet(packet_type))?))
}

/// Reads a body that is empty.
pub(super) const fn decode_empty(body: &[u8]) -> Result<(), ProtocolError> {
    Reader::new(body).finish()
}

/// Appends a PUBACK: the receiver owns the QoS 1 message.
pub fn encode_puback(out: &mut Vec<u8>, identifier: PacketIdentifier) {
    encode(out, PacketType::PubAck, identifier);
}

/// Appends a PUBREC: the receiver owns the QoS 2 message and remembers its identifier.
pub fn encode_pubrec(out: &mut Vec<u8>, identifier: PacketIdentifier) {
    encode(out, PacketType::PubRec, identifier);
}

/// Appends a PUBREL: the sender has discarded the QoS 2 message.
pub fn encode_pubrel(out: &mut Vec<u8>, identifier: PacketIdentifier) {
    encode(out, PacketType::PubRel, identifier);
}

/// Appends a PUBCOMP: the identifier of the QoS 2 message is free.
pub fn encode_pubcomp(out: &mut Vec<u8>, identifier: PacketIdentifier) {
    encode(out, PacketType::PubComp, identifier);
}

/// Appends one of the four packets in the form of version 5, as short as it goes.
pub fn encode_acknowledgement(
    out: &mut Vec<u8>,
    packet_type: PacketType,
    acknowledgement: &Acknowledgement<'_>,
) -> Result<(), EncodeError> {
    let Acknowledgement { packet_identifier, reason, properties } = *acknowledgement;
    if reason == ReasonCode::Success && properties.is_empty() {
        encode(out, packet_type, packet_identifier);
        return Ok(());
    }
    let with_properties = Some(properties).filter(|properties| !properties.is_empty());
    let remaining_length = properties_bytes(with_properties).saturating_add(3);
    put_fixed_header(out, packet_type.first_byte(), remaining_length, remaining_length)?;
    out.extend_from_slice(&packet_identifier.number().to_be_bytes());
    out.push(reason.number());
    with_properties.map_or(Ok(()), |properties| put_properties(out, properties))
}

/// Appends a PINGRESP.
pub fn encode_pingresp(out: &mut Vec<u8>) {
    encode_empty(out, PacketType::PingResp);
}

/// Appends a PINGREQ.
pub fn encode_pingreq(out: &mut Vec<u8>) {
    encode_empty(out, PacketType::PingReq);
}

/// Appends a packet that is nothing but an identifier.
pub(super) fn encode(out: &mut Vec<u8>, packet_type: PacketType, identifier: PacketIdentifier) {
    let [high, low] = identifier.number().to_be_bytes();
    out.extend_from_slice(&[packet_type.first_byte(), 2, high, low]);
}

/// Appends a packet without a body.
pub(super) fn encode_empty(out: &mut Vec<u8>, packet_type: PacketType) {
    out.extend_from_slice(&[packet_type.first_byte(), 0]);
}
