//! SUBACK. MQTT 3.1.1 section 3.9.
//!
//! ```text
//! u16    packet identifier of the SUBSCRIBE
//! byte   return code, one for each filter in its order
//! ```

use super::error::{EncodeError, ProtocolError};
use super::value::{PacketIdentifier, PacketType, QualityOfService};
use super::wire::{Reader, put_fixed_header};

/// The server's answer to SUBSCRIBE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubAck<'a> {
    pub packet_identifier: PacketIdentifier,
    pub return_codes: SubscribeReturnCodes<'a>,
}

/// What became of one filter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SubscribeReturnCode {
    /// Messages come with this QoS at most.
    Granted(QualityOfService),
    /// 0x80: no subscription. MQTT 3.1 does not know it; its clients read a very high QoS.
    Failure,
}

/// The codes in the order of the filters. Knows its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscribeReturnCodes<'a> {
    codes: &'a [u8],
}

const FAILURE: u8 = 0x80;

impl<'a> SubAck<'a> {
    pub(super) fn decode(body: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let packet_identifier = reader.packet_identifier()?;
        let codes = reader.remainder();
        if codes.is_empty() {
            return Err(ProtocolError::malformed("SUBACK has no return code", "MQTT-3.8.4-5"));
        }
        for &code in codes {
            SubscribeReturnCode::try_from(code)?;
        }
        Ok(Self { packet_identifier, return_codes: SubscribeReturnCodes { codes } })
    }
}

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

/// Appends a SUBACK: one code for each filter of the SUBSCRIBE, in its order. [MQTT-3.8.4-5]
pub fn encode_suback(
    out: &mut Vec<u8>,
    packet_identifier: PacketIdentifier,
    return_codes: &[SubscribeReturnCode],
) -> Result<(), EncodeError> {
    if return_codes.is_empty() {
        return Err(EncodeError::NoEntries);
    }
    let remaining_length = return_codes.len().saturating_add(2);
    put_fixed_header(out, PacketType::SubAck.first_byte(), remaining_length, remaining_length)?;
    out.extend_from_slice(&packet_identifier.number().to_be_bytes());
    out.extend(return_codes.iter().map(|&code| u8::from(code)));
    Ok(())
}

impl From<SubscribeReturnCode> for u8 {
    fn from(code: SubscribeReturnCode) -> Self {
        match code {
            SubscribeReturnCode::Granted(qos) => qos.into(),
            SubscribeReturnCode::Failure => FAILURE,
        }
    }
}

impl TryFrom<u8> for SubscribeReturnCode {
    type Error = ProtocolError;

    fn try_from(code: u8) -> Result<Self, ProtocolError> {
        if code == FAILURE {
            return Ok(Self::Failure);
        }
        QualityOfService::try_from(code)
            .map(Self::Granted)
            .map_err(|_| ProtocolError::malformed("SUBACK return code is reserved", "MQTT-3.9.3-2"))
    }
}
