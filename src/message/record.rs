//! Bytes of stored records: unsigned LEB128 integers, length-prefixed strings, and the stored form of a message.
//!
//! Disk records are not wire types: nothing here follows a protocol, and nothing on a wire uses it.

use bytes::Bytes;

use super::{Assurance, Message};
use crate::time::Wall;

/// Appends an unsigned LEB128 integer.
pub fn put_integer(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Appends a length and that many bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_integer(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a record from front to back; every method answers `None` at the first byte that does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// True when everything was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// One byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// An unsigned LEB128 integer of at most 64 bits.
    pub fn integer(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7f);
            if shift == 63 && low > 1 {
                return None;
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// An integer that must fit 32 bits.
    pub fn integer32(&mut self) -> Option<u32> {
        u32::try_from(self.integer()?).ok()
    }

    /// `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    /// A length and that many bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.integer()?).ok()?;
        self.take(len)
    }

    /// A length and that many bytes of UTF-8.
    pub fn string(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// All that is left.
    pub fn remaining(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}

const FLAG_RETAIN: u8 = 0x04;
const FLAG_PROPERTIES: u8 = 0x08;
const FLAG_ESTIMATED: u8 = 0x10;

/// Appends the stored form of a message: flags (bits 0-1 assurance, bit 2 retain, bit 3 properties follow, bit 4 received_at
/// is an estimate), received_at (integer, ms), address (bytes), properties (bytes, only with bit 3), body (all that is left).
pub fn put_message(out: &mut Vec<u8>, message: &Message) {
    let mut flags = message.assurance.code();
    if message.retain {
        flags |= FLAG_RETAIN;
    }
    if !message.properties.is_empty() {
        flags |= FLAG_PROPERTIES;
    }
    if !message.received_trusted {
        flags |= FLAG_ESTIMATED;
    }
    out.push(flags);
    put_integer(out, message.received_at.0);
    put_bytes(out, message.address.as_bytes());
    if !message.properties.is_empty() {
        put_bytes(out, &message.properties);
    }
    out.extend_from_slice(&message.body);
}

/// Reads what [`put_message`] wrote, to the end of the record. `None` when the bytes are not such a form.
pub fn read_message(reader: &mut Reader<'_>) -> Option<Message> {
    let flags = reader.byte()?;
    if flags & !(0x03 | FLAG_RETAIN | FLAG_PROPERTIES | FLAG_ESTIMATED) != 0 {
        return None;
    }
    let assurance = Assurance::from_code(flags & 0x03)?;
    let received_at = Wall(reader.integer()?);
    let address = reader.string()?.into();
    let properties =
        if flags & FLAG_PROPERTIES != 0 { Bytes::copy_from_slice(reader.bytes()?) } else { Bytes::new() };
    let body = Bytes::copy_from_slice(reader.remaining());
    Some(Message {
        address,
        body,
        assurance,
        retain: flags & FLAG_RETAIN != 0,
        received_at,
        received_trusted: flags & FLAG_ESTIMATED == 0,
        properties,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_size_read_back() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_integer(&mut out, value);
                let mut reader = Reader::new(&out);
                assert_eq!(reader.integer(), Some(value));
                assert!(reader.is_empty());
            }
        }
    }

    #[test]
    fn an_integer_beyond_64_bits_is_refused() {
        let too_long = [0xff; 10];
        assert_eq!(Reader::new(&too_long).integer(), None);
        let mut overflow = [0xff; 10];
        overflow[9] = 0x02;
        assert_eq!(Reader::new(&overflow).integer(), None);
    }

    #[test]
    fn a_message_reads_back_and_any_prefix_of_its_head_is_refused() {
        let message = Message {
            address: "a/b.c/".into(),
            body: Bytes::from_static(&[0, 255, 1]),
            assurance: Assurance::ExactlyOnce,
            retain: true,
            received_at: Wall(1_791_754_335_817),
            received_trusted: false,
            properties: Bytes::from_static(b"p"),
        };
        let mut out = Vec::new();
        put_message(&mut out, &message);
        assert_eq!(read_message(&mut Reader::new(&out)), Some(message.clone()));
        let head = out.len() - message.body.len();
        for cut in 0..head {
            assert_eq!(read_message(&mut Reader::new(&out[..cut])), None, "cut at {cut}");
        }
    }
}
