//! Values that several packets carry: protocol version, quality of service, packet identifier, packet type.

use std::fmt;
use std::num::NonZeroU16;

use super::error::ProtocolError;

/// Protocol version that a CONNECT settled for its connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProtocolVersion {
    /// MQTT 3.1: name `MQIsdp`, level 3.
    V31,
    /// MQTT 3.1.1: name `MQTT`, level 4.
    V311,
    /// MQTT 5.0: name `MQTT`, level 5.
    V5,
}

impl ProtocolVersion {
    /// Protocol name in CONNECT.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V31 => "MQIsdp",
            Self::V311 | Self::V5 => "MQTT",
        }
    }

    /// Protocol level in CONNECT.
    #[must_use]
    pub const fn level(self) -> u8 {
        match self {
            Self::V31 => 3,
            Self::V311 => 4,
            Self::V5 => 5,
        }
    }
}

/// Guarantee of a delivery. Section 4.3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum QualityOfService {
    #[default]
    AtMostOnce = 0,
    AtLeastOnce = 1,
    ExactlyOnce = 2,
}

impl TryFrom<u8> for QualityOfService {
    type Error = ProtocolError;

    fn try_from(value: u8) -> Result<Self, ProtocolError> {
        match value {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(ProtocolError::malformed("quality of service is above 2", "section 4.3")),
        }
    }
}

impl From<QualityOfService> for u8 {
    fn from(qos: QualityOfService) -> Self {
        qos as Self
    }
}

/// Names a PUBLISH of QoS 1 or 2, a SUBSCRIBE or an UNSUBSCRIBE until it is answered; unique per direction of a
/// session while in use, never zero. Section 2.3.1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PacketIdentifier(pub NonZeroU16);

impl PacketIdentifier {
    /// The identifier with this number; zero is none.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number, 1 to 65535.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for PacketIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Control packet type: the high four bits of the first byte. 0 is forbidden, and 15 before version 5. Section 2.2.1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    /// Version 5 only.
    Auth = 15,
}

impl PacketType {
    /// The type with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Connect,
            2 => Self::ConnAck,
            3 => Self::Publish,
            4 => Self::PubAck,
            5 => Self::PubRec,
            6 => Self::PubRel,
            7 => Self::PubComp,
            8 => Self::Subscribe,
            9 => Self::SubAck,
            10 => Self::Unsubscribe,
            11 => Self::UnsubAck,
            12 => Self::PingReq,
            13 => Self::PingResp,
            14 => Self::Disconnect,
            15 => Self::Auth,
            _ => return None,
        })
    }

    /// First byte of a packet of this type, with the flags that section 2.2.2 fixes for it; PUBLISH has QoS 0, no
    /// DUP, no RETAIN.
    #[must_use]
    pub const fn first_byte(self) -> u8 {
        let flags = match self {
            Self::PubRel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            Self::Connect
            | Self::ConnAck
            | Self::Publish
            | Self::PubAck
            | Self::PubRec
            | Self::PubComp
            | Self::SubAck
            | Self::UnsubAck
            | Self::PingReq
            | Self::PingResp
            | Self::Disconnect
            | Self::Auth => 0,
        };
        (self as u8) << 4 | flags
    }

    /// Whether a client sends it to a server.
    #[must_use]
    pub const fn from_client(self) -> bool {
        match self {
            Self::Connect
            | Self::Publish
            | Self::PubAck
            | Self::PubRec
            | Self::PubRel
            | Self::PubComp
            | Self::Subscribe
            | Self::Unsubscribe
            | Self::PingReq
            | Self::Disconnect
            | Self::Auth => true,
            Self::ConnAck | Self::SubAck | Self::UnsubAck | Self::PingResp => false,
        }
    }

    /// Whether a server sends it to a client.
    #[must_use]
    pub const fn from_server(self, version: ProtocolVersion) -> bool {
        match self {
            Self::ConnAck
            | Self::Publish
            | Self::PubAck
            | Self::PubRec
            | Self::PubRel
            | Self::PubComp
            | Self::SubAck
            | Self::UnsubAck
            | Self::PingResp => true,
            Self::Disconnect | Self::Auth => matches!(version, ProtocolVersion::V5),
            Self::Connect | Self::Subscribe | Self::Unsubscribe | Self::PingReq => false,
        }
    }
}
