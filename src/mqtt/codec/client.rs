//! The client's side of the wire: what a server sends, decoded. A client's own packets are encoded beside their
//! decoders (`encode_connect`, `encode_publish`, `encode_subscribe` ...) and are named here again.

use super::error::ProtocolError;
use super::fixed_header::{Cut, Sender, cut};
use super::value::{PacketIdentifier, PacketType, ProtocolVersion};
use super::{Decoded, ack};

pub use super::ack::{
    encode_disconnect, encode_pingreq, encode_puback, encode_pubcomp, encode_pubrec, encode_pubrel,
};
pub use super::connack::{ConnAck, ConnectReturnCode};
pub use super::connect::{Connect, Will, encode_connect};
pub use super::publish::{Publish, encode_publish, encode_publish_head};
pub use super::suback::{SubAck, SubscribeReturnCode, SubscribeReturnCodes};
pub use super::subscribe::{SubscriptionRequest, encode_subscribe};
pub use super::unsubscribe::encode_unsubscribe;

/// What a client receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerPacket<'a> {
    ConnAck(ConnAck),
    Publish(Publish<'a>),
    PubAck(PacketIdentifier),
    PubRec(PacketIdentifier),
    PubRel(PacketIdentifier),
    PubComp(PacketIdentifier),
    SubAck(SubAck<'a>),
    UnsubAck(PacketIdentifier),
    PingResp,
}

/// Decodes the first packet in `input`, which a server of `version` sent; otherwise as [`super::decode`].
pub fn decode_server_packet(
    input: &[u8],
    version: ProtocolVersion,
    packet_bytes_max: usize,
) -> Result<Decoded<ServerPacket<'_>>, ProtocolError> {
    let (header, body, consumed) = match cut(input, Some(version), Sender::Server, packet_bytes_max)? {
        Cut::Whole { header, body, consumed } => (header, body, consumed),
        Cut::Incomplete { needed } => return Ok(Decoded::Incomplete { needed }),
    };
    let packet = match header.packet_type {
        PacketType::ConnAck => ServerPacket::ConnAck(ConnAck::decode(body, version)?),
        PacketType::Publish => ServerPacket::Publish(Publish::decode(header, body)?),
        PacketType::PubAck => ServerPacket::PubAck(ack::decode(body)?),
        PacketType::PubRec => ServerPacket::PubRec(ack::decode(body)?),
        PacketType::PubRel => ServerPacket::PubRel(ack::decode(body)?),
        PacketType::PubComp => ServerPacket::PubComp(ack::decode(body)?),
        PacketType::SubAck => ServerPacket::SubAck(SubAck::decode(body)?),
        PacketType::UnsubAck => ServerPacket::UnsubAck(ack::decode(body)?),
        PacketType::PingResp => {
            ack::decode_empty(body)?;
            ServerPacket::PingResp
        }
        PacketType::Connect
        | PacketType::Subscribe
        | PacketType::Unsubscribe
        | PacketType::PingReq
        | PacketType::Disconnect => {
            return Err(ProtocolError::violation("packet type is sent by clients only", "section 2.2.1"));
        }
    };
    Ok(Decoded::Packet { packet, consumed })
}
