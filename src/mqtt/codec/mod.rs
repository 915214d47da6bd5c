//! MQTT packets between bytes and types. MQTT 3.1.1 and 5 sections 1.5, 2 and 3; 3.1 where it differs.
//!
//! Owns the form of each packet, one file per packet: field layout, flags, UTF-8, topic rules, and which side may
//! send what. Leaves the course of a session (keep-alive, packet identifiers in use, who may connect) to the
//! endpoint. Pure: bytes in, a borrowed view out; nothing allocates but the output of the encoders.
//!
//! Version 5 adds [`Properties`] beside the fields and a [`ReasonCode`] to every answer; a packet type that has the
//! same fields in all versions is one type, with properties where the version has them.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::wildcard_enum_match_arm)]

mod ack;
pub mod client;
mod connack;
mod connect;
mod disconnect;
mod error;
mod fixed_header;
mod properties;
mod property_list;
mod publish;
mod reason;
mod suback;
mod subscribe;
mod unsubscribe;
mod value;
mod wire;

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;

pub use ack::{
    Acknowledgement, encode_acknowledgement, encode_pingresp, encode_puback, encode_pubcomp, encode_pubrec,
    encode_pubrel,
};
pub use connack::{ConnAck5, ConnectReturnCode, encode_connack, encode_connack5};
pub use connect::{Connect, Will, version_of_answer};
pub use disconnect::{Auth, Disconnect, encode_disconnect_reason};
pub use error::{EncodeError, Fault, ProtocolError};
pub use fixed_header::FixedHeader;
pub use properties::{Place, Properties, PropertyId, PropertyType, PropertyValue};
pub use property_list::PropertyList;
pub use publish::{
    Publish, encode_publish, encode_publish_head, patch_duplicate, patch_packet_identifier, publish_bytes,
};
pub use reason::ReasonCode;
pub use suback::{SubscribeReturnCode, encode_suback, encode_unsuback, encode_unsuback5};
pub use subscribe::{RetainHandling, Subscribe, SubscriptionRequest, Subscriptions};
pub use unsubscribe::{TopicFilters, Unsubscribe};
pub use value::{PacketIdentifier, PacketType, ProtocolVersion, QualityOfService};
pub use wire::REMAINING_LENGTH_MAX;

use fixed_header::{Cut, Sender, cut};

/// What a server receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlPacket<'a> {
    /// By reference: it is twice as large as what comes after it, and comes once.
    Connect(Box<Connect<'a>>),
    Publish(Publish<'a>),
    PubAck(Acknowledgement<'a>),
    PubRec(Acknowledgement<'a>),
    PubRel(Acknowledgement<'a>),
    PubComp(Acknowledgement<'a>),
    Subscribe(Subscribe<'a>),
    Unsubscribe(Unsubscribe<'a>),
    PingReq,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}

/// What the front of the input holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded<P> {
    /// A packet and the bytes of input that it took.
    Packet { packet: P, consumed: usize },
    /// A packet that is not whole yet. `needed` is its total size when the fixed header is there, else 0.
    Incomplete { needed: usize },
}

/// Decodes the first packet in `input`, which a client sent.
///
/// `version` is what the connection's CONNECT settled, `None` before it: then only CONNECT is legal, and after it
/// no second one is. A packet of more than `packet_bytes_max` bytes, fixed header included, is refused as soon as
/// its fixed header is there, and so is one of a wrong type. An error ends the connection; the input behind it
/// has no meaning.
pub fn decode(
    input: &[u8],
    version: Option<ProtocolVersion>,
    packet_bytes_max: usize,
) -> Result<Decoded<ControlPacket<'_>>, ProtocolError> {
    let (header, body, consumed) = match cut(input, version, Sender::Client, packet_bytes_max)? {
        Cut::Whole { header, body, consumed } => (header, body, consumed),
        Cut::Incomplete { needed } => return Ok(Decoded::Incomplete { needed }),
    };
    let packet = match version {
        None => ControlPacket::Connect(Box::new(Connect::decode(body)?)),
        Some(version) => decode_after_connect(header, body, version)?,
    };
    Ok(Decoded::Packet { packet, consumed })
}

fn decode_after_connect(
    header: FixedHeader,
    body: &[u8],
    version: ProtocolVersion,
) -> Result<ControlPacket<'_>, ProtocolError> {
    let acknowledgement = |body| Acknowledgement::decode(body, header.packet_type, version);
    Ok(match header.packet_type {
        PacketType::Publish => {
            let publish = Publish::decode(header, body, version)?;
            let named =
                |properties: Properties<'_>| properties.number(PropertyId::SubscriptionIdentifier).is_some();
            if publish.properties.is_some_and(named) {
                return Err(ProtocolError::violation(
                    "a client sends a subscription identifier",
                    "MQTT-3.3.4-6",
                ));
            }
            ControlPacket::Publish(publish)
        }
        PacketType::PubAck => ControlPacket::PubAck(acknowledgement(body)?),
        PacketType::PubRec => ControlPacket::PubRec(acknowledgement(body)?),
        PacketType::PubRel => ControlPacket::PubRel(acknowledgement(body)?),
        PacketType::PubComp => ControlPacket::PubComp(acknowledgement(body)?),
        PacketType::Subscribe => ControlPacket::Subscribe(Subscribe::decode(body, version)?),
        PacketType::Unsubscribe => ControlPacket::Unsubscribe(Unsubscribe::decode(body, version)?),
        PacketType::PingReq => {
            ack::decode_empty(body)?;
            ControlPacket::PingReq
        }
        PacketType::Disconnect => ControlPacket::Disconnect(Disconnect::decode(body, version)?),
        PacketType::Auth => ControlPacket::Auth(Auth::decode(body)?),
        PacketType::Connect
        | PacketType::ConnAck
        | PacketType::SubAck
        | PacketType::UnsubAck
        | PacketType::PingResp => {
            return Err(ProtocolError::violation("packet type is not allowed here", "section 2.2.1"));
        }
    })
}
