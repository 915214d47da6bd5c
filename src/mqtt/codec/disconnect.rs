//! DISCONNECT, and AUTH of version 5. MQTT 3.1.1 section 3.14, MQTT 5 sections 3.14 and 3.15.
//!
//! ```text
//! byte         reason code, 5 only; may be missing when it is 0 and nothing follows
//! properties   5 only; may be missing when nothing follows
//! ```

use super::ack::{encode_empty, outcome};
use super::error::{EncodeError, ProtocolError};
use super::properties::Properties;
use super::reason::ReasonCode;
use super::value::{PacketType, ProtocolVersion};
use super::wire::{Reader, properties_bytes, put_fixed_header, put_properties};

/// The last packet of a connection; in version 5 the server sends it too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disconnect<'a> {
    /// Success is the normal disconnection, and the only one before version 5.
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

/// A step of extended authentication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Auth<'a> {
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

impl<'a> Disconnect<'a> {
    /// Normal, without a word.
    pub const NORMAL: Self = Self { reason: ReasonCode::Success, properties: Properties::NONE };

    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let mut disconnect = Self::NORMAL;
        if version == ProtocolVersion::V5 {
            (disconnect.reason, disconnect.properties) = outcome(&mut reader, PacketType::Disconnect)?;
        }
        reader.finish()?;
        Ok(disconnect)
    }
}

impl<'a> Auth<'a> {
    pub(super) fn decode(body: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let (reason, properties) = outcome(&mut reader, PacketType::Auth)?;
        reader.finish()?;
        Ok(Self { reason, properties })
    }
}

/// Appends a DISCONNECT as versions before 5 know it; in version 5 it is the normal disconnection.
pub fn encode_disconnect(out: &mut Vec<u8>) {
    encode_empty(out, PacketType::Disconnect);
}

/// Appends a DISCONNECT of version 5.
pub fn encode_disconnect_reason(out: &mut Vec<u8>, disconnect: &Disconnect<'_>) -> Result<(), EncodeError> {
    encode(out, PacketType::Disconnect, disconnect.reason, disconnect.properties)
}

/// Appends an AUTH.
pub fn encode_auth(out: &mut Vec<u8>, auth: &Auth<'_>) -> Result<(), EncodeError> {
    encode(out, PacketType::Auth, auth.reason, auth.properties)
}

fn encode(
    out: &mut Vec<u8>,
    packet_type: PacketType,
    reason: ReasonCode,
    properties: Properties<'_>,
) -> Result<(), EncodeError> {
    if reason == ReasonCode::Success && properties.is_empty() {
        encode_empty(out, packet_type);
        return Ok(());
    }
    let with_properties = Some(properties).filter(|properties| !properties.is_empty());
    let remaining_length = properties_bytes(with_properties).saturating_add(1);
    put_fixed_header(out, packet_type.first_byte(), remaining_length, remaining_length)?;
    out.push(reason.number());
    with_properties.map_or(Ok(()), |properties| put_properties(out, properties))
}
