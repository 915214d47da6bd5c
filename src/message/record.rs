//! Bytes of stored records: unsigned LEB128 integers, length-prefixed strings, and the stored form of a message.
//!
//! Disk records are not wire types: nothing here follows a protocol, and nothing on a wire uses it.

use bytes::Bytes;

use super::{Annotations, Assurance, Message};
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

/// Appends a number that may be missing: 0, or one more than it.
pub fn put_optional(out: &mut Vec<u8>, value: Option<u64>) {
    put_integer(out, value.map_or(0, |value| value.saturating_add(1)));
}

/// Reads what [`put_optional`] wrote.
pub fn read_optional(reader: &mut Reader<'_>) -> Option<Option<u64>> {
    Some(reader.integer()?.checked_sub(1))
}

const FLAG_RETAIN: u8 = 0x04;
const FLAG_PROPERTIES: u8 = 0x08;
const FLAG_ESTIMATED: u8 = 0x10;
const FLAG_MORE: u8 = 0x20;
const MORE_EXCHANGE: u8 = 0x01;
const MORE_PRIORITY: u8 = 0x02;
const MORE_TIME_TO_LIVE: u8 = 0x04;
const MORE_ANNOTATIONS: u8 = 0x08;

/// Appends the stored form of a message: flags (bits 0-1 assurance, bit 2 retain, bit 3 properties follow, bit 4
/// received_at is an estimate, bit 5 more flags follow), more flags (only with bit 5), received_at (integer, ms), address
/// (bytes), properties (bytes, bit 3), and as more flags say: exchange (bytes, bit 0), priority (byte, bit 1), time to
/// live (integer, ms, bit 2), annotations (bytes, bit 3); then the body (all that is left).
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
    let there = |there: bool, flag: u8| if there { flag } else { 0 };
    let more = there(message.exchange.is_some(), MORE_EXCHANGE)
        | there(message.priority != 0, MORE_PRIORITY)
        | there(message.time_to_live_ms.is_some(), MORE_TIME_TO_LIVE)
        | there(message.annotations.is_some(), MORE_ANNOTATIONS);
    if more != 0 {
        out.push(flags | FLAG_MORE);
        flags = more;
    }
    out.push(flags);
    put_integer(out, message.received_at.0);
    put_bytes(out, message.address.as_bytes());
    if !message.properties.is_empty() {
        put_bytes(out, &message.properties);
    }
    if let Some(exchange) = &message.exchange {
        put_bytes(out, exchange.as_bytes());
    }
    if message.priority != 0 {
        out.push(message.priority);
    }
    if let Some(time_to_live_ms) = message.time_to_live_ms {
        put_integer(out, time_to_live_ms);
    }
    if let Some(annotations) = &message.annotations {
        let mut bytes = Vec::new();
        annotations.put(&mut bytes);
        put_bytes(out, &bytes);
    }
    out.extend_from_slice(&message.body);
}

/// Reads what [`put_message`] wrote, to the end of the record. `None` when the bytes are not such a form.
pub fn read_message(reader: &mut Reader<'_>) -> Option<Message> {
    let flags = reader.byte()?;
    if flags & !(0x03 | FLAG_RETAIN | FLAG_PROPERTIES | FLAG_ESTIMATED | FLAG_MORE) != 0 {
        return None;
    }
    let more = if flags & FLAG_MORE != 0 { reader.byte()? } else { 0 };
    let assurance = Assurance::from_code(flags & 0x03)?;
    let received_at = Wall(reader.integer()?);
    let address = reader.string()?.into();
    let properties =
        if flags & FLAG_PROPERTIES != 0 { Bytes::copy_from_slice(reader.bytes()?) } else { Bytes::new() };
    let exchange = if more & MORE_EXCHANGE != 0 { Some(reader.string()?.into()) } else { None };
    let priority = if more & MORE_PRIORITY != 0 { reader.byte()? } else { 0 };
    let time_to_live_ms = if more & MORE_TIME_TO_LIVE != 0 { Some(reader.integer()?) } else { None };
    let annotations = if more & MORE_ANNOTATIONS != 0 {
        Some(Box::new(Annotations::read(&mut Reader::new(reader.bytes()?))?))
    } else {
        None
    };
    let body = Bytes::copy_from_slice(reader.remaining());
    Some(Message {
        address,
        body,
        assurance,
        retain: flags & FLAG_RETAIN != 0,
        received_at,
        received_trusted: flags & FLAG_ESTIMATED == 0,
        properties,
        exchange,
        priority,
        time_to_live_ms,
        annotations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Death, DeathReason};

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
            exchange: Some("logs".into()),
            priority: 3,
            time_to_live_ms: Some(60_000),
            annotations: Some(Box::new(Annotations {
                delay_ms: Some(5),
                also: vec!["a/b".into()],
                hidden: vec!["c".into(), "d/e".into()],
                deaths: vec![Death {
                    queue: "q".into(),
                    reason: DeathReason::Rejected,
                    count: 2,
                    died_at: Wall(7),
                    exchange: "logs".into(),
                    addresses: vec!["a/b.c/".into(), "x".into()],
                    time_to_live_ms: Some(9),
                }],
            })),
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
