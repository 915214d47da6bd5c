//! Reading and writing of the elementary types: integers (big-endian), bits, short and long strings.
//! Specification section 4.2.5.

use std::fmt;

use super::error::{EncodeError, ProtocolError};

const SHORT: ProtocolError = ProtocolError::frame("frame ends inside a field");
const TRAILING: ProtocolError = ProtocolError::frame("bytes after the last field");
const NOT_UTF8: ProtocolError = ProtocolError::frame("malformed UTF-8 in a short string");

/// Up to 255 bytes that are UTF-8 by the book and anything in practice: routing keys, property values and field
/// names are handed on as they came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ShortString<'a>(&'a [u8]);

/// Up to 4 GiB of any bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LongString<'a>(pub &'a [u8]);

impl<'a> ShortString<'a> {
    /// The short string of these bytes, unless they are more than 255.
    pub const fn new(bytes: &'a [u8]) -> Result<Self, EncodeError> {
        if bytes.len() > 255 { Err(EncodeError::ShortStringTooLong) } else { Ok(Self(bytes)) }
    }

    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The text, if it is UTF-8.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        std::str::from_utf8(self.0).ok()
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> TryFrom<&'a str> for ShortString<'a> {
    type Error = EncodeError;

    fn try_from(text: &'a str) -> Result<Self, EncodeError> {
        Self::new(text.as_bytes())
    }
}

impl fmt::Display for ShortString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self.0).fmt(f)
    }
}

impl fmt::Debug for ShortString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.0))
    }
}

/// Long strings carry passwords and tokens: only their length is shown.
impl fmt::Debug for LongString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LongString({} bytes)", self.0.len())
    }
}

/// Takes fields from the front of a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// Bits of the octet that is being taken apart, low bit first, and how many are left.
    bits: u8,
    bits_left: u8,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload, bits: 0, bits_left: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(SHORT)?;
        self.rest = rest;
        self.bits_left = 0;
        Ok(*bytes)
    }

    pub(super) fn octet(&mut self) -> Result<u8, ProtocolError> {
        let [octet] = self.array()?;
        Ok(octet)
    }

    /// Bits that follow each other share an octet, the first in its lowest bit. Section 4.2.5.2.
    pub(super) fn bit(&mut self) -> Result<bool, ProtocolError> {
        if self.bits_left == 0 {
            self.bits = self.octet()?;
            self.bits_left = 8;
        }
        let bit = self.bits & 1 != 0;
        self.bits >>= 1;
        self.bits_left = self.bits_left.saturating_sub(1);
        Ok(bit)
    }

    pub(super) fn short_string(&mut self) -> Result<ShortString<'a>, ProtocolError> {
        let length = self.octet()?;
        self.take(usize::from(length)).map(ShortString)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, ProtocolError> {
        std::str::from_utf8(self.short_string()?.0).map_err(|_| NOT_UTF8)
    }

    /// Bytes behind a length of 32 bits.
    pub(super) fn long(&mut self) -> Result<&'a [u8], ProtocolError> {
        let length = u32::from_be_bytes(self.array()?);
        self.take(usize::try_from(length).map_err(|_| SHORT)?)
    }

    /// All that is left.
    pub(super) const fn remainder(self) -> &'a [u8] {
        self.rest
    }

    /// Ends the payload: nothing may be left.
    pub(super) const fn finish(self) -> Result<(), ProtocolError> {
        if self.rest.is_empty() { Ok(()) } else { Err(TRAILING) }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtocolError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(SHORT)?;
        self.rest = rest;
        self.bits_left = 0;
        Ok(bytes)
    }
}

/// Appends fields to an output. [`super::Arguments`] is written with it.
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    /// Bits already written to the last octet; 0 when it holds no bits or is full.
    bits_used: u8,
}

impl<'o> Writer<'o> {
    pub(super) const fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out, bits_used: 0 }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.bits_used = 0;
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn bit(&mut self, bit: bool) {
        if self.bits_used == 0 {
            self.out.push(0);
        }
        if let Some(octet) = self.out.last_mut() {
            *octet |= u8::from(bit) << self.bits_used;
        }
        self.bits_used = self.bits_used.wrapping_add(1) & 7;
    }

    pub(super) fn short_string(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let length = u8::try_from(bytes.len()).map_err(|_| EncodeError::ShortStringTooLong)?;
        self.bytes(&[length]);
        self.bytes(bytes);
        Ok(())
    }

    pub(super) fn long(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let length = u32::try_from(bytes.len()).map_err(|_| EncodeError::TooLong)?;
        self.bytes(&length.to_be_bytes());
        self.bytes(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_share_an_octet_until_another_field_comes() {
        let bits = [true, false, true, true, false, false, true, true, true];
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        bits.iter().for_each(|&bit| writer.bit(bit));
        writer.bytes(&[0xaa]);
        writer.bit(true);
        assert_eq!(out, [0b1100_1101, 1, 0xaa, 1]);

        let mut reader = Reader::new(&out);
        assert!(bits.iter().all(|&bit| reader.bit() == Ok(bit)));
        assert_eq!((reader.octet(), reader.bit()), (Ok(0xaa), Ok(true)));
        assert_eq!(reader.finish(), Ok(()));
    }
}
