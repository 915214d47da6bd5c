//! PUBACK, PUBREC, PUBREL, PUBCOMP and UNSUBACK: packets that carry a packet identifier and nothing else.
//! MQTT 3.1.1 sections 3.4 to 3.7 and 3.11. Also PINGREQ, PINGRESP and DISCONNECT, which carry nothing.

use super::error::ProtocolError;
use super::value::{PacketIdentifier, PacketType};
use super::wire::Reader;

/// Reads a body that is a packet identifier.
pub(super) fn decode(body: &[u8]) -> Result<PacketIdentifier, ProtocolError> {
    let mut reader = Reader::new(body);
    let identifier = reader.packet_identifier()?;
    reader.finish()?;
    Ok(identifier)
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

/// Appends an UNSUBACK.
pub fn encode_unsuback(out: &mut Vec<u8>, identifier: PacketIdentifier) {
    encode(out, PacketType::UnsubAck, identifier);
}

/// Appends a PINGRESP.
pub fn encode_pingresp(out: &mut Vec<u8>) {
    encode_empty(out, PacketType::PingResp);
}

/// Appends a PINGREQ.
pub fn encode_pingreq(out: &mut Vec<u8>) {
    encode_empty(out, PacketType::PingReq);
}

/// Appends a DISCONNECT.
pub fn encode_disconnect(out: &mut Vec<u8>) {
    encode_empty(out, PacketType::Disconnect);
}

fn encode(out: &mut Vec<u8>, packet_type: PacketType, identifier: PacketIdentifier) {
    let [high, low] = identifier.number().to_be_bytes();
    out.extend_from_slice(&[packet_type.first_byte(), 2, high, low]);
}

fn encode_empty(out: &mut Vec<u8>, packet_type: PacketType) {
    out.extend_from_slice(&[packet_type.first_byte(), 0]);
}
