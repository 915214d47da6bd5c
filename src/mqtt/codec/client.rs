//! The client's side of the wire: what a server sends, decoded. A client's own packets are encoded beside their
//! decoders (`encode_connect`, `encode_publish`, `encode_subscribe` ...) and are named here again.

use super::ack;
use super::error::ProtocolError;
use super::fixed_header::{Cut, Sender, cut};
use super::value::{PacketType, ProtocolVersion};
use super::{Decoded, Properties};

pub use super::ack::{
    Acknowledgement, encode_acknowledgement, encode_pingreq, encode_puback, encode_pubcomp, encode_pubrec,
    encode_pubrel,
};
pub use super::connack::{ConnAck, ConnAck5, ConnectReturnCode};
pub use super::connect::{Connect, Will, encode_connect};
pub use super::disconnect::{Auth, Disconnect, encode_auth, encode_disconnect, encode_disconnect_reason};
pub use super::publish::{Publish, encode_publish, encode_publish_head};
pub use super::suback::{SubAck, SubscribeReturnCode, SubscribeReturnCodes, UnsubAck};
pub use super::subscribe::{RetainHandling, SubscriptionRequest, encode_subscribe};
pub use super::unsubscribe::encode_unsubscribe;

/// What a client receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerPacket<'a> {
    ConnAck(ConnAck),
    ConnAck5(ConnAck5<'a>),
    Publish(Publish<'a>),
    PubAck(Acknowledgement<'a>),
    PubRec(Acknowledgement<'a>),
    PubRel(Acknowledgement<'a>),
    PubComp(Acknowledgement<'a>),
    SubAck(SubAck<'a>),
    UnsubAck(UnsubAck<'a>),
    PingResp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
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
    let acknowledgement = |body| Acknowledgement::decode(body, header.packet_type, version);
    let packet = match header.packet_type {
        PacketType::ConnAck if version == ProtocolVersion::V5 => {
            ServerPacket::ConnAck5(ConnAck5::decode(body)?)
        }
        PacketType::ConnAck => ServerPacket::ConnAck(ConnAck::decode(body, version)?),
        PacketType::Publish => ServerPacket::Publish(Publish::decode(header, body, version)?),
        PacketType::PubAck => ServerPacket::PubAck(acknowledgement(body)?),
        PacketType::PubRec => ServerPacket::PubRec(acknowledgement(body)?),
        PacketType::PubRel => ServerPacket::PubRel(acknowledgement(body)?),
        PacketType::PubComp => ServerPacket::PubComp(acknowledgement(body)?),
        PacketType::SubAck => ServerPacket::SubAck(SubAck::decode(body, version)?),
        PacketType::UnsubAck => ServerPacket::UnsubAck(UnsubAck::decode(body, version)?),
        PacketType::PingResp => {
            ack::decode_empty(body)?;
            ServerPacket::PingResp
        }
        PacketType::Disconnect => ServerPacket::Disconnect(Disconnect::decode(body, version)?),
        PacketType::Auth => ServerPacket::Auth(Auth::decode(body)?),
        PacketType::Connect | PacketType::Subscribe | PacketType::Unsubscribe | PacketType::PingReq => {
            return Err(ProtocolError::violation("packet type is sent by clients only", "section 2.2.1"));
        }
    };
    Ok(Decoded::Packet { packet, consumed })
}

/// The properties of a version 5 packet without any.
pub const NO_PROPERTIES: Option<Properties<'_>> = Some(Properties::NONE);
