//! CONNACK. MQTT 3.1.1 section 3.2.
//!
//! ```text
//! byte   bit 0: session present (3.1: reserved)
//! byte   return code
//! ```

use std::fmt;

use super::error::ProtocolError;
use super::value::{PacketType, ProtocolVersion};
use super::wire::Reader;

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
        }
    }
}

/// Appends a CONNACK. A refusal never says that a session is present. [MQTT-3.2.2-4]
pub fn encode_connack(
    out: &mut Vec<u8>,
    session_present: bool,
    return_code: ConnectReturnCode,
    version: ProtocolVersion,
) {
    let tells = match version {
        ProtocolVersion::V31 => false,
        ProtocolVersion::V311 => return_code == ConnectReturnCode::Accepted,
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
