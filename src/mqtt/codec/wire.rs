//! Reading and writing of the field types that packets are made of: byte, two-byte integer (big-endian), string
//! and binary data behind a two-byte length, remaining length; in version 5 also four-byte and variable byte integers.
//! MQTT 3.1.1 sections 1.5 and 2.2.3, MQTT 5 section 1.5.

use super::error::{EncodeError, ProtocolError};
use super::properties::Properties;
use super::value::PacketIdentifier;

/// Largest value of a remaining length: four bytes of seven bits.
pub const REMAINING_LENGTH_MAX: usize = 268_435_455;

const SHORT: ProtocolError = ProtocolError::malformed("packet ends inside a field", "section 2.2.3");
const TRAILING: ProtocolError = ProtocolError::malformed("bytes after the last field", "section 2.2.3");

/// A length that takes more bytes than it needs to.
pub(super) const LONG: ProtocolError =
    ProtocolError::malformed("variable byte integer has a needless byte", "MQTT-1.5.5-1");

/// Takes fields from the front of a packet's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, ProtocolError> {
        let (byte, rest) = self.rest.split_first().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*byte)
    }

    pub(super) fn two_bytes(&mut self) -> Result<u16, ProtocolError> {
        let (bytes, rest) = self.rest.split_first_chunk::<2>().ok_or(SHORT)?;
        self.rest = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    pub(super) fn four_bytes(&mut self) -> Result<u32, ProtocolError> {
        let (bytes, rest) = self.rest.split_first_chunk::<4>().ok_or(SHORT)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// Seven bits a byte, low bits first, in as few bytes as it takes. [MQTT-1.5.5-1]
    pub(super) fn variable_byte_integer(&mut self) -> Result<u32, ProtocolError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 { Err(LONG) } else { Ok(value) };
            }
        }
        Err(ProtocolError::malformed("variable byte integer is over four bytes", "section 1.5.5"))
    }

    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], ProtocolError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(SHORT)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Bytes behind a two-byte length.
    pub(super) fn binary(&mut self) -> Result<&'a [u8], ProtocolError> {
        let length = self.two_bytes()?;
        self.take(usize::from(length))
    }

    /// UTF-8 encoded string. Control characters and non-characters pass: a receiver may refuse them, and real
    /// devices send them. A byte order mark is a character like others. [MQTT-1.5.3-3]
    pub(super) fn string(&mut self) -> Result<&'a str, ProtocolError> {
        let bytes = self.binary()?;
        let text = utf8(bytes)?;
        if bytes.contains(&0) {
            return Err(ProtocolError::malformed("string holds U+0000", "MQTT-1.5.3-2"));
        }
        Ok(text)
    }

    /// UTF-8 encoded string that the caller checks for U+0000 together with its other characters.
    pub(super) fn topic_string(&mut self) -> Result<&'a str, ProtocolError> {
        utf8(self.binary()?)
    }

    pub(super) fn packet_identifier(&mut self) -> Result<PacketIdentifier, ProtocolError> {
        PacketIdentifier::new(self.two_bytes()?)
            .ok_or(ProtocolError::malformed("packet identifier is zero", "MQTT-2.3.1-1"))
    }

    /// All that is left.
    pub(super) const fn remainder(self) -> &'a [u8] {
        self.rest
    }

    /// Ends the packet: nothing may be left.
    pub(super) const fn finish(self) -> Result<(), ProtocolError> {
        if self.rest.is_empty() { Ok(()) } else { Err(TRAILING) }
    }
}

/// Surrogates and overlong forms are no UTF-8 to Rust either.
fn utf8(bytes: &[u8]) -> Result<&str, ProtocolError> {
    std::str::from_utf8(bytes)
        .map_err(|_| ProtocolError::malformed("string is not well-formed UTF-8", "MQTT-1.5.3-1"))
}

/// Appends the first byte and the remaining length of a packet and reserves room for its body.
pub(super) fn put_fixed_header(
    out: &mut Vec<u8>,
    first_byte: u8,
    remaining_length: usize,
    body_bytes_here: usize,
) -> Result<(), EncodeError> {
    if remaining_length > REMAINING_LENGTH_MAX {
        return Err(EncodeError::PacketTooLarge);
    }
    out.reserve(body_bytes_here.saturating_add(5));
    out.push(first_byte);
    put_variable_byte_integer(out, remaining_length)
}

/// Appends an integer of at most 268 435 455 in seven bits a byte, low bits first. A larger one leaves no bytes.
pub(super) fn put_variable_byte_integer(out: &mut Vec<u8>, value: usize) -> Result<(), EncodeError> {
    if value > REMAINING_LENGTH_MAX {
        return Err(EncodeError::PacketTooLarge);
    }
    let mut rest = value;
    loop {
        let [low, ..] = rest.to_le_bytes();
        rest >>= 7;
        if rest == 0 {
            out.push(low & 0x7f);
            return Ok(());
        }
        out.push(low | 0x80);
    }
}

/// Bytes that [`put_variable_byte_integer`] appends.
pub(super) const fn variable_bytes(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Appends properties behind their length.
pub(super) fn put_properties(out: &mut Vec<u8>, properties: Properties<'_>) -> Result<(), EncodeError> {
    put_variable_byte_integer(out, properties.as_bytes().len())?;
    out.extend_from_slice(properties.as_bytes());
    Ok(())
}

/// Bytes that [`put_properties`] appends; none when there are no properties, as before version 5.
pub(super) fn properties_bytes(properties: Option<Properties<'_>>) -> usize {
    properties.map_or(0, |properties| {
        let length = properties.as_bytes().len();
        variable_bytes(length).saturating_add(length)
    })
}

/// Length of `bytes` as the two-byte prefix on the wire.
pub(super) fn field_length(bytes: &[u8]) -> Result<u16, EncodeError> {
    u16::try_from(bytes.len()).map_err(|_| EncodeError::FieldTooLong)
}

/// Bytes that `put_binary` appends for `bytes`.
pub(super) const fn field_bytes(bytes: &[u8]) -> usize {
    bytes.len().saturating_add(2)
}

/// Appends bytes behind their two-byte length.
pub(super) fn put_binary(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), EncodeError> {
    out.extend_from_slice(&field_length(bytes)?.to_be_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}
