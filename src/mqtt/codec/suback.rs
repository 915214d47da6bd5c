//! SUBACK, and UNSUBACK, which has the same form in version 5. MQTT 3.1.1 and 5 sections 3.9 and 3.11.
//!
//! ```text
//! u16          packet identifier of the SUBSCRIBE
//! properties   5 only
//! byte         return code, one for each filter in its order
//! ```

use super::error::{EncodeError, ProtocolError};
use super::properties::{Place, Properties};
use super::reason::ReasonCode;
use super::value::{PacketIdentifier, PacketType, ProtocolVersion, QualityOfService};
use super::wire::{Reader, properties_bytes, put_fixed_header, put_properties};

/// The server's answer to SUBSCRIBE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubAck<'a> {
    pub packet_identifier: PacketIdentifier,
    /// There exactly when the packet has the form of version 5.
    pub properties: Option<Properties<'a>>,
    pub return_codes: SubscribeReturnCodes<'a>,
}

/// The server's answer to UNSUBSCRIBE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnsubAck<'a> {
    pub packet_identifier: PacketIdentifier,
    /// There exactly when the packet has the form of version 5.
    pub properties: Option<Properties<'a>>,
    /// One for each filter in its order; none before version 5.
    pub reason_codes: &'a [u8],
}

/// What became of one filter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SubscribeReturnCode {
    /// Messages come with this QoS at most.
    Granted(QualityOfService),
    /// 0x80: no subscription. MQTT 3.1 does not know it; its clients read a very high QoS.
    Failure,
    /// No subscription, and in version 5 the reason why; before it is 0x80. Never [`ReasonCode::UnspecifiedError`].
    Refused(ReasonCode),
}

/// The codes in the order of the filters. Knows its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscribeReturnCodes<'a> {
    codes: &'a [u8],
}

const FAILURE: u8 = 0x80;

impl<'a> SubAck<'a> {
    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let packet_identifier = reader.packet_identifier()?;
        let properties = properties(&mut reader, PacketType::SubAck, version)?;
        let codes = reader.remainder();
        if codes.is_empty() {
            return Err(ProtocolError::malformed("SUBACK has no return code", "MQTT-3.8.4-5"));
        }
        for &code in codes {
            let code = SubscribeReturnCode::try_from(code)?;
            if version != ProtocolVersion::V5 && matches!(code, SubscribeReturnCode::Refused(_)) {
                return Err(RESERVED);
            }
        }
        Ok(Self { packet_identifier, properties, return_codes: SubscribeReturnCodes { codes } })
    }
}

impl<'a> UnsubAck<'a> {
    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let packet_identifier = reader.packet_identifier()?;
        let properties = properties(&mut reader, PacketType::UnsubAck, version)?;
        if properties.is_none() {
            reader.finish()?;
            return Ok(Self { packet_identifier, properties, reason_codes: &[] });
        }
        let reason_codes = reader.remainder();
        if reason_codes.is_empty() {
            return Err(ProtocolError::malformed("UNSUBACK has no reason code", "MQTT-3.11.3-1"));
        }
        for &code in reason_codes {
            ReasonCode::decode(code, PacketType::UnsubAck)?;
        }
        Ok(Self { packet_identifier, properties, reason_codes })
    }
}

fn properties<'a>(
    reader: &mut Reader<'a>,
    packet_type: PacketType,
    version: ProtocolVersion,
) -> Result<Option<Properties<'a>>, ProtocolError> {
    match version {
        ProtocolVersion::V5 => Properties::decode(reader, Place::Packet(packet_type)).map(Some),
        ProtocolVersion::V31 | ProtocolVersion::V311 => Ok(None),
    }
}

const RESERVED: ProtocolError = ProtocolError::malformed("SUBACK return code is reserved", "MQTT-3.9.3-2");

impl Iterator for SubscribeReturnCodes<'_> {
    type Item = SubscribeReturnCode;

    fn next(&mut self) -> Option<Self::Item> {
        let (&code, rest) = self.codes.split_first()?;
        self.codes = rest;
        // Cannot fail: decoding the packet went through the same bytes.
        SubscribeReturnCode::try_from(code).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.codes.len(), Some(self.codes.len()))
    }
}

impl ExactSizeIterator for SubscribeReturnCodes<'_> {}

/// Appends a SUBACK: one code for each filter of the SUBSCRIBE, in its order; in the form of version 5 when there are
/// properties. [MQTT-3.8.4-5]
pub fn encode_suback(
    out: &mut Vec<u8>,
    packet_identifier: PacketIdentifier,
    properties: Option<Properties<'_>>,
    return_codes: &[SubscribeReturnCode],
) -> Result<(), EncodeError> {
    put_head(out, PacketType::SubAck, packet_identifier, properties, return_codes.len())?;
    let with_reasons = properties.is_some();
    out.extend(return_codes.iter().map(|&code| match code {
        SubscribeReturnCode::Refused(reason) if with_reasons => reason.number(),
        SubscribeReturnCode::Granted(qos) => qos.into(),
        SubscribeReturnCode::Failure | SubscribeReturnCode::Refused(_) => FAILURE,
    }));
    Ok(())
}

/// Appends an UNSUBACK of a version before 5.
pub fn encode_unsuback(out: &mut Vec<u8>, identifier: PacketIdentifier) {
    super::ack::encode(out, PacketType::UnsubAck, identifier);
}

/// Appends an UNSUBACK of version 5: one code for each filter of the UNSUBSCRIBE, in its order. [MQTT-3.11.3-1]
pub fn encode_unsuback5(
    out: &mut Vec<u8>,
    packet_identifier: PacketIdentifier,
    properties: Properties<'_>,
    reason_codes: &[ReasonCode],
) -> Result<(), EncodeError> {
    put_head(out, PacketType::UnsubAck, packet_identifier, Some(properties), reason_codes.len())?;
    out.extend(reason_codes.iter().map(|code| code.number()));
    Ok(())
}

fn put_head(
    out: &mut Vec<u8>,
    packet_type: PacketType,
    packet_identifier: PacketIdentifier,
    properties: Option<Properties<'_>>,
    codes: usize,
) -> Result<(), EncodeError> {
    if codes == 0 {
        return Err(EncodeError::NoEntries);
    }
    let remaining_length = codes.saturating_add(2).saturating_add(properties_bytes(properties));
    put_fixed_header(out, packet_type.first_byte(), remaining_length, remaining_length)?;
    out.extend_from_slice(&packet_identifier.number().to_be_bytes());
    properties.map_or(Ok(()), |properties| put_properties(out, properties))
}

impl TryFrom<u8> for SubscribeReturnCode {
    type Error = ProtocolError;

    fn try_from(code: u8) -> Result<Self, ProtocolError> {
        if code == FAILURE {
            return Ok(Self::Failure);
        }
        if let Ok(qos) = QualityOfService::try_from(code) {
            return Ok(Self::Granted(qos));
        }
        ReasonCode::decode(code, PacketType::SubAck).map(Self::Refused).map_err(|_| RESERVED)
    }
}
