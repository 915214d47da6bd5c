//! What a peer did wrong on the wire, and what cannot be put on it.
//!
//! MQTT 3.x has no answer to a bad packet but closing the connection (CONNECT apart); [`Fault`] keeps the classes
//! that a version 5 DISCONNECT tells apart.

use std::fmt;

use super::reason::ReasonCode;
use crate::mqtt::topic::TopicError;

/// A packet that a peer may not send. The connection it came on is closed. [MQTT-4.8.0-1]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolError {
    /// Class of the fault: decides what is answered.
    pub fault: Fault,
    /// Lowercase fragment for the log.
    pub detail: &'static str,
    /// Normative statement (`MQTT-2.3.1-1`), or the section where the text has no number.
    pub rule: &'static str,
}

/// Class of a protocol error. In brackets the reason code of version 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The bytes are no packet. (0x81)
    MalformedPacket,
    /// A well-formed packet, or the start of one, that is not allowed here. (0x82)
    ProtocolViolation,
    /// CONNECT asks for a protocol version that is not spoken; answered with CONNACK 0x01. (0x84)
    UnacceptableProtocolVersion,
    /// A topic filter breaks the wildcard rules or a limit. (0x8F)
    TopicFilterInvalid,
    /// A topic name holds a wildcard, is empty or breaks a limit. (0x90)
    TopicNameInvalid,
    /// The sender has more publishes under way than the receiver said it takes. (0x93)
    ReceiveMaximumExceeded,
    /// A topic alias is zero, too high, or stands for nothing. (0x94)
    TopicAliasInvalid,
    /// The fixed header announces more than the receiver takes. (0x95)
    PacketTooLarge,
    /// The sender asks for more than the receiver keeps for one peer. (0x97)
    QuotaExceeded,
    /// A message is to be kept as last value, and none are kept. (0x9A)
    RetainNotSupported,
}

impl Fault {
    /// The reason code that tells a peer of version 5.
    #[must_use]
    pub const fn reason_code(self) -> ReasonCode {
        match self {
            Self::MalformedPacket => ReasonCode::MalformedPacket,
            Self::ProtocolViolation => ReasonCode::ProtocolError,
            Self::UnacceptableProtocolVersion => ReasonCode::UnsupportedProtocolVersion,
            Self::TopicFilterInvalid => ReasonCode::TopicFilterInvalid,
            Self::TopicNameInvalid => ReasonCode::TopicNameInvalid,
            Self::ReceiveMaximumExceeded => ReasonCode::ReceiveMaximumExceeded,
            Self::TopicAliasInvalid => ReasonCode::TopicAliasInvalid,
            Self::PacketTooLarge => ReasonCode::PacketTooLarge,
            Self::QuotaExceeded => ReasonCode::QuotaExceeded,
            Self::RetainNotSupported => ReasonCode::RetainNotSupported,
        }
    }
}

impl ProtocolError {
    pub(super) const fn malformed(detail: &'static str, rule: &'static str) -> Self {
        Self { fault: Fault::MalformedPacket, detail, rule }
    }

    pub(super) const fn violation(detail: &'static str, rule: &'static str) -> Self {
        Self { fault: Fault::ProtocolViolation, detail, rule }
    }

    pub(super) const fn topic_name(error: TopicError) -> Self {
        Self::topic(error, Fault::TopicNameInvalid)
    }

    pub(super) const fn topic_filter(error: TopicError) -> Self {
        Self::topic(error, Fault::TopicFilterInvalid)
    }

    const fn topic(error: TopicError, fault: Fault) -> Self {
        let fault = match error {
            // No string of any kind may hold it.
            TopicError::NullCharacter => Fault::MalformedPacket,
            TopicError::Empty
            | TopicError::TooLong
            | TopicError::WildcardInName
            | TopicError::MultiLevelMisplaced
            | TopicError::SingleLevelMisplaced
            | TopicError::TooManyLevels
            | TopicError::ShareMalformed => fault,
        };
        Self { fault, detail: error.detail(), rule: error.rule() }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.detail, self.rule)
    }
}

impl std::error::Error for ProtocolError {}

/// A packet that has no wire form. Nothing was appended to the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncodeError {
    /// Remaining length above 268 435 455 bytes.
    PacketTooLarge,
    /// A string or binary field above 65 535 bytes.
    FieldTooLong,
    /// Quality of service 1 or 2 without a packet identifier.
    PacketIdentifierMissing,
    /// SUBSCRIBE, UNSUBSCRIBE or SUBACK without an entry.
    NoEntries,
    /// CONNECT with a password and no user name.
    PasswordWithoutUserName,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PacketTooLarge => "packet is larger than 256 MiB",
            Self::FieldTooLong => "field is longer than 65535 bytes",
            Self::PacketIdentifierMissing => "packet identifier is missing",
            Self::NoEntries => "packet has no entries",
            Self::PasswordWithoutUserName => "password without user name",
        })
    }
}

impl std::error::Error for EncodeError {}
