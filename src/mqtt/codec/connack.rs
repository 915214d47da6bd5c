//! CONNACK. MQTT 3.1.1 and 5 section 3.2.
//!
//! ```text
//! byte         bit 0: session present (3.1: reserved)
//! byte         return code; in 5 a reason code
//! properties   5 only
//! ```

use std::fmt;

use super::error::{EncodeError, ProtocolError};
use super::properties::{Place, Properties};
use super::reason::ReasonCode;
use super::value::{PacketType, ProtocolVersion};
use super::wire::{Reader, properties_bytes, put_fixed_header, put_properties};

/// The server's answer to CONNECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnAck {
    /// The server has a session of this client identifier. Always false in MQTT 3.1, which does not tell.
    pub session_present: bool,
    pub return_code: ConnectReturnCode,
}

/// Connect return code; all but `Accepted` are followed by the end of the connection. [MQTT-3.2.2-5]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConnectReturnCode {
    Accepted = 0,
    UnacceptableProtocolVersion = 1,
    IdentifierRejected = 2,
    ServerUnavailable = 3,
    BadUserNameOrPassword = 4,
    NotAuthorized = 5,
}

impl ConnAck {
    pub(super) fn decode(body: &[u8], version: ProtocolVersion) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let flags = reader.byte()?;
        let return_code = ConnectReturnCode::try_from(reader.byte()?)?;
        reader.finish()?;
        match version {
            ProtocolVersion::V31 => Ok(Self { session_present: false, return_code }),
            ProtocolVersion::V311 if flags & !1 != 0 => {
                Err(ProtocolError::malformed("reserved CONNACK flags are set", "section 3.2.2.1"))
            }
            ProtocolVersion::V311 if flags != 0 && return_code != ConnectReturnCode::Accepted => {
                Err(ProtocolError::malformed("session present in a refusal", "MQTT-3.2.2-4"))
            }
            ProtocolVersion::V311 => Ok(Self { session_present: flags != 0, return_code }),
            ProtocolVersion::V5 => {
                Err(ProtocolError::violation("CONNACK has the form of 3.1.1", "section 3.2"))
            }
        }
    }
}

/// The server's answer to CONNECT in version 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnAck5<'a> {
    pub session_present: bool,
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

impl<'a> ConnAck5<'a> {
    pub(super) fn decode(body: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let flags = reader.byte()?;
        if flags & !1 != 0 {
            return Err(ProtocolError::malformed("reserved CONNACK flags are set", "MQTT-3.2.2-1"));
        }
        let reason = ReasonCode::decode(reader.byte()?, PacketType::ConnAck)?;
        if flags != 0 && reason != ReasonCode::Success {
            return Err(ProtocolError::malformed("session present in a refusal", "MQTT-3.2.2-6"));
        }
        let properties = Properties::decode(&mut reader, Place::Packet(PacketType::ConnAck))?;
        reader.finish()?;
        Ok(Self { session_present: flags != 0, reason, properties })
    }
}

/// Appends a CONNACK of version 5. A refusal never says that a session is present. [MQTT-3.2.2-6]
pub fn encode_connack5(out: &mut Vec<u8>, connack: &ConnAck5<'_>) -> Result<(), EncodeError> {
    let remaining_length = properties_bytes(Some(connack.properties)).saturating_add(2);
    put_fixed_header(out, PacketType::ConnAck.first_byte(), remaining_length, remaining_length)?;
    let session_present = connack.session_present && connack.reason == ReasonCode::Success;
    out.extend_from_slice(&[u8::from(session_present), connack.reason.number()]);
    put_properties(out, connack.properties)
}

/// Appends a CONNACK of a version before 5. A refusal never says that a session is present. [MQTT-3.2.2-4]
pub fn encode_connack(
    out: &mut Vec<u8>,
    session_present: bool,
    return_code: ConnectReturnCode,
    version: ProtocolVersion,
) {
    let tells = match version {
        ProtocolVersion::V31 => false,
        ProtocolVersion::V311 | ProtocolVersion::V5 => return_code == ConnectReturnCode::Accepted,
    };
    out.extend_from_slice(&[
        PacketType::ConnAck.first_byte(),
        2,
        u8::from(session_present && tells),
        return_code as u8,
    ]);
}

impl TryFrom<u8> for ConnectReturnCode {
    type Error = ProtocolError;

    fn try_from(value: u8) -> Result<Self, ProtocolError> {
        Ok(match value {
            0 => Self::Accepted,
            1 => Self::UnacceptableProtocolVersion,
            2 => Self::IdentifierRejected,
            3 => Self::ServerUnavailable,
            4 => Self::BadUserNameOrPassword,
            5 => Self::NotAuthorized,
            _ => return Err(ProtocolError::malformed("connect return code is reserved", "section 3.2.2.3")),
        })
    }
}

impl fmt::Display for ConnectReturnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::UnacceptableProtocolVersion => "unacceptable protocol version",
            Self::IdentifierRejected => "identifier rejected",
            Self::ServerUnavailable => "server unavailable",
            Self::BadUserNameOrPassword => "bad user name or password",
            Self::NotAuthorized => "not authorized",
        })
    }
}
