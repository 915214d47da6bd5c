//! The fixed header: packet type, flags and remaining length. MQTT 3.1.1 section 2.2.
//!
//! ```text
//! byte 1      type << 4 | flags
//! byte 2..5   remaining length, seven bits a byte, low bits first, 0x80 = another byte follows
//! ```
//!
//! It is complete before the body is, so that the caller can refuse a packet by type or size before it keeps a
//! byte of it.

use super::error::{Fault, ProtocolError};
use super::publish;
use super::value::{PacketType, ProtocolVersion};
use super::wire::LONG;

/// First two to five bytes of a packet, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedHeader {
    pub packet_type: PacketType,
    /// Low four bits of the first byte.
    pub flags: u8,
    /// Bytes that follow the fixed header, at most 268 435 455.
    pub remaining_length: usize,
}

impl FixedHeader {
    /// Reads the fixed header at the start of `input` and the bytes it takes, or `None` when more are needed.
    ///
    /// A first byte that no packet can start with is refused at once. `version` is `None` before CONNECT.
    pub fn decode(
        input: &[u8],
        version: Option<ProtocolVersion>,
    ) -> Result<Option<(Self, usize)>, ProtocolError> {
        let Some((&first, after_first)) = input.split_first() else { return Ok(None) };
        let packet_type = PacketType::from_number(first >> 4)
            .filter(|found| *found != PacketType::Auth || version == Some(ProtocolVersion::V5))
            .ok_or(ProtocolError::malformed("packet type is reserved", "section 2.2.1"))?;
        let flags = first & 0x0f;
        check_flags(packet_type, flags, version)?;

        let mut remaining_length = 0;
        let mut shift = 0_u32;
        let mut header_bytes = 1_usize;
        for &byte in after_first.iter().take(4) {
            remaining_length |= usize::from(byte & 0x7f) << shift;
            shift = shift.saturating_add(7);
            header_bytes = header_bytes.saturating_add(1);
            if byte & 0x80 == 0 {
                if byte == 0 && header_bytes > 2 && version == Some(ProtocolVersion::V5) {
                    return Err(LONG);
                }
                return Ok(Some((Self { packet_type, flags, remaining_length }, header_bytes)));
            }
        }
        if header_bytes > 4 {
            return Err(ProtocolError::malformed("remaining length is over four bytes", "section 2.2.3"));
        }
        Ok(None)
    }
}

/// Flags of each type are fixed but for PUBLISH. [MQTT-2.2.2-1], [MQTT-2.2.2-2]
///
/// MQTT 3.1 calls the bits unused or lets a client set DUP on PUBREL, SUBSCRIBE and UNSUBSCRIBE: ignored there.
fn check_flags(
    packet_type: PacketType,
    flags: u8,
    version: Option<ProtocolVersion>,
) -> Result<(), ProtocolError> {
    if packet_type == PacketType::Publish {
        return publish::check_flags(flags, version);
    }
    if version == Some(ProtocolVersion::V31) || flags == packet_type.first_byte() & 0x0f {
        return Ok(());
    }
    Err(ProtocolError::malformed("reserved flags of the fixed header are set", "MQTT-2.2.2-2"))
}

/// A packet cut out of the input.
pub(super) enum Cut<'a> {
    Whole { header: FixedHeader, body: &'a [u8], consumed: usize },
    Incomplete { needed: usize },
}

/// Which side of the connection sent the input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Client,
    Server,
}

/// Cuts the first packet out of `input`. Type, order and size are refused before the body is there.
pub(super) fn cut(
    input: &[u8],
    version: Option<ProtocolVersion>,
    sender: Sender,
    packet_bytes_max: usize,
) -> Result<Cut<'_>, ProtocolError> {
    let Some((header, header_bytes)) = FixedHeader::decode(input, version)? else {
        return Ok(Cut::Incomplete { needed: 0 });
    };
    check_order(header.packet_type, version, sender)?;
    let total = header_bytes.saturating_add(header.remaining_length);
    if total > packet_bytes_max {
        return Err(ProtocolError {
            fault: Fault::PacketTooLarge,
            detail: "packet is larger than the limit",
            rule: "section 2.2.3",
        });
    }
    match input.get(header_bytes..total) {
        Some(body) => Ok(Cut::Whole { header, body, consumed: total }),
        None => Ok(Cut::Incomplete { needed: total }),
    }
}

/// The first packet of a client is CONNECT and there is one CONNECT only; each side sends its own types.
fn check_order(
    packet_type: PacketType,
    version: Option<ProtocolVersion>,
    sender: Sender,
) -> Result<(), ProtocolError> {
    match sender {
        Sender::Client if !packet_type.from_client() => {
            Err(ProtocolError::violation("packet type is sent by servers only", "section 2.2.1"))
        }
        Sender::Client if packet_type == PacketType::Connect && version.is_some() => {
            Err(ProtocolError::violation("second CONNECT on a connection", "MQTT-3.1.0-2"))
        }
        Sender::Client if packet_type != PacketType::Connect && version.is_none() => {
            Err(ProtocolError::violation("first packet is not CONNECT", "MQTT-3.1.0-1"))
        }
        Sender::Server if !version.is_none_or(|version| packet_type.from_server(version)) => {
            Err(ProtocolError::violation("packet type is sent by clients only", "section 2.2.1"))
        }
        Sender::Client | Sender::Server => Ok(()),
    }
}
