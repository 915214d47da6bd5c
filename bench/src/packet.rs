//! MQTT control packets as a client needs them: encoders that append to a buffer, one decoder that borrows.
//!
//! Owns the byte layouts of OASIS MQTT 3.1.1 sections 2 and 3 in the client's direction, and those of MQTT 5 without
//! properties of our own, or with those that [`PROPERTIES`] has; sockets are `link`'s. One process speaks one version at
//! a time.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// How packets are written and read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    V311 = 0,
    /// Version 5 without properties.
    V5 = 1,
    /// Version 5, each PUBLISH with a topic alias in place of its topic, once that was told, and two user properties.
    V5WithProperties = 2,
}

static SPOKEN: AtomicU8 = AtomicU8::new(Version::V311 as u8);

/// From now on every packet has this form. Connections that are open must not go on.
pub fn speak(version: Version) {
    SPOKEN.store(version as u8, Ordering::Relaxed);
}

fn speaks_version_5() -> bool {
    SPOKEN.load(Ordering::Relaxed) != Version::V311 as u8
}

/// Whether a publisher that has told its topic may leave it empty from then on.
pub fn aliases_topics() -> bool {
    SPOKEN.load(Ordering::Relaxed) == Version::V5WithProperties as u8
}

/// Of a PUBLISH with properties: topic alias 1, `site` is `north`, `unit` is `celsius`.
const PROPERTIES: &[u8] = b"\x23\x00\x01\x26\x00\x04site\x00\x05north\x26\x00\x04unit\x00\x07celsius";

/// No properties, where the version has some.
fn put_no_properties(out: &mut Vec<u8>) {
    if speaks_version_5() {
        out.push(0);
    }
}

/// What follows the properties at the front of `bytes`, where the version has some.
fn skip_properties(bytes: &[u8]) -> Result<&[u8], Malformed> {
    if !speaks_version_5() {
        return Ok(bytes);
    }
    let Some((length, taken)) = decode_remaining_length(bytes)? else { return Err(Malformed("properties")) };
    bytes.get(taken + length..).ok_or(Malformed("properties"))
}

/// Largest Remaining Length that the decoder accepts, bytes. The format allows 268 435 455; no load here needs it.
const REMAINING_LENGTH_MAX: usize = 16 * 1024 * 1024;

/// What a broker sends. Slices point into the read buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    Connack { session_present: bool, return_code: u8 },
    Publish(Publish<'a>),
    Puback(u16),
    Pubrec(u16),
    Pubrel(u16),
    Pubcomp(u16),
    Suback { id: u16, return_codes: &'a [u8] },
    Unsuback(u16),
    Pingresp,
}

/// A PUBLISH in either direction. `id` is 0 at QoS 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publish<'a> {
    pub dup: bool,
    pub qos: u8,
    pub retain: bool,
    pub topic: &'a [u8],
    pub id: u16,
    pub payload: &'a [u8],
}

/// The peer sent what no broker may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed packet from the broker: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// What a CONNECT says.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    pub client_identifier: String,
    pub clean_session: bool,
    pub keep_alive_s: u16,
    pub user: Option<(String, String)>,
}

impl ConnectOptions {
    /// A clean session without keep-alive.
    #[must_use]
    pub fn clean(client_identifier: impl Into<String>) -> Self {
        Self { client_identifier: client_identifier.into(), clean_session: true, keep_alive_s: 0, user: None }
    }

    /// A persistent session without keep-alive.
    #[must_use]
    pub fn persistent(client_identifier: impl Into<String>) -> Self {
        Self { clean_session: false, ..Self::clean(client_identifier) }
    }

    /// The same, with a user name and a password when `user` says so.
    #[must_use]
    pub fn with_user(mut self, user: Option<(String, String)>) -> Self {
        self.user = user;
        self
    }
}

/// The first packet of `bytes` and how many bytes it takes; `None` while it is not whole.
pub fn decode(bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, Malformed> {
    let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
    let Some((remaining, length_bytes)) = decode_remaining_length(rest)? else { return Ok(None) };
    let start = 1 + length_bytes;
    let end = start + remaining;
    let Some(body) = bytes.get(start..end) else { return Ok(None) };
    let packet = match first >> 4 {
        2 => match body {
            [flags, return_code, properties @ ..]
                if skip_properties(properties).is_ok_and(<[u8]>::is_empty) =>
            {
                Packet::Connack { session_present: flags & 1 == 1, return_code: *return_code }
            }
            _ => return Err(Malformed("CONNACK length")),
        },
        3 => Packet::Publish(decode_publish(first, body)?),
        4 => Packet::Puback(decode_id(body)?),
        5 => Packet::Pubrec(decode_id(body)?),
        6 => Packet::Pubrel(decode_id(body)?),
        7 => Packet::Pubcomp(decode_id(body)?),
        9 => match body {
            [high, low, rest @ ..] => {
                Packet::Suback { id: u16::from_be_bytes([*high, *low]), return_codes: skip_properties(rest)? }
            }
            _ => return Err(Malformed("SUBACK length")),
        },
        11 => Packet::Unsuback(decode_id(body)?),
        13 => Packet::Pingresp,
        _ => return Err(Malformed("packet type")),
    };
    Ok(Some((packet, end)))
}

/// CONNECT, section 3.1.
pub fn encode_connect(out: &mut Vec<u8>, options: &ConnectOptions) {
    let mut body = Vec::with_capacity(64);
    put_text(&mut body, b"MQTT");
    body.push(if speaks_version_5() { 5 } else { 4 });
    let mut flags = u8::from(options.clean_session) << 1;
    if options.user.is_some() {
        flags |= 0xC0;
    }
    body.push(flags);
    body.extend_from_slice(&options.keep_alive_s.to_be_bytes());
    if speaks_version_5() && !options.clean_session {
        // Session Expiry Interval: as long as the broker allows.
        body.extend_from_slice(&[5, 0x11, 0xff, 0xff, 0xff, 0xff]);
    } else {
        put_no_properties(&mut body);
    }
    put_text(&mut body, options.client_identifier.as_bytes());
    if let Some((user, password)) = &options.user {
        put_text(&mut body, user.as_bytes());
        put_text(&mut body, password.as_bytes());
    }
    put_packet(out, 0x10, &body);
}

/// PUBLISH, section 3.3.
pub fn encode_publish(out: &mut Vec<u8>, publish: &Publish<'_>) {
    let id_bytes = if publish.qos > 0 { 2 } else { 0 };
    let properties = if aliases_topics() { PROPERTIES } else { &[] };
    let properties_bytes = properties.len() + usize::from(speaks_version_5());
    let remaining = 2 + publish.topic.len() + id_bytes + properties_bytes + publish.payload.len();
    out.push(0x30 | (u8::from(publish.dup) << 3) | (publish.qos << 1) | u8::from(publish.retain));
    put_remaining_length(out, remaining);
    put_text(out, publish.topic);
    if publish.qos > 0 {
        out.extend_from_slice(&publish.id.to_be_bytes());
    }
    if speaks_version_5() {
        put_remaining_length(out, properties.len());
        out.extend_from_slice(properties);
    }
    out.extend_from_slice(publish.payload);
}

/// SUBSCRIBE with one filter, section 3.8.
pub fn encode_subscribe(out: &mut Vec<u8>, id: u16, filter: &str, qos: u8) {
    let mut body = id.to_be_bytes().to_vec();
    put_no_properties(&mut body);
    put_text(&mut body, filter.as_bytes());
    body.push(qos);
    put_packet(out, 0x82, &body);
}

pub fn encode_puback(out: &mut Vec<u8>, id: u16) {
    put_id_packet(out, 0x40, id);
}

pub fn encode_pubrec(out: &mut Vec<u8>, id: u16) {
    put_id_packet(out, 0x50, id);
}

pub fn encode_pubrel(out: &mut Vec<u8>, id: u16) {
    put_id_packet(out, 0x62, id);
}

pub fn encode_pubcomp(out: &mut Vec<u8>, id: u16) {
    put_id_packet(out, 0x70, id);
}

pub fn encode_pingreq(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xC0, 0]);
}

pub fn encode_disconnect(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xE0, 0]);
}

fn put_id_packet(out: &mut Vec<u8>, first: u8, id: u16) {
    let [high, low] = id.to_be_bytes();
    out.extend_from_slice(&[first, 2, high, low]);
}

fn put_packet(out: &mut Vec<u8>, first: u8, body: &[u8]) {
    out.push(first);
    put_remaining_length(out, body.len());
    out.extend_from_slice(body);
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let length = u16::try_from(text.len()).expect("topics and identifiers here are shorter than 64 KiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text);
}

fn put_remaining_length(out: &mut Vec<u8>, length: usize) {
    let mut rest = length;
    loop {
        let digit = u8::try_from(rest % 128).expect("a remainder of 128 fits a byte");
        rest /= 128;
        if rest == 0 {
            out.push(digit);
            return;
        }
        out.push(digit | 0x80);
    }
}

fn decode_remaining_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut value = 0_usize;
    for (index, byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            if value > REMAINING_LENGTH_MAX {
                return Err(Malformed("packet larger than this client reads"));
            }
            return Ok(Some((value, index + 1)));
        }
    }
    if bytes.len() >= 4 { Err(Malformed("Remaining Length of five bytes")) } else { Ok(None) }
}

fn decode_publish(first: u8, body: &[u8]) -> Result<Publish<'_>, Malformed> {
    let qos = (first >> 1) & 3;
    let [high, low, rest @ ..] = body else { return Err(Malformed("PUBLISH length")) };
    let topic_bytes = usize::from(u16::from_be_bytes([*high, *low]));
    let Some((topic, rest)) = rest.split_at_checked(topic_bytes) else {
        return Err(Malformed("PUBLISH topic"));
    };
    let (id, payload) = match (qos, rest) {
        (0, _) => (0, rest),
        (1 | 2, [high, low, payload @ ..]) => (u16::from_be_bytes([*high, *low]), payload),
        _ => return Err(Malformed("PUBLISH packet identifier or QoS")),
    };
    let payload = skip_properties(payload)?;
    Ok(Publish { dup: first & 8 != 0, qos, retain: first & 1 == 1, topic, id, payload })
}

fn decode_id(body: &[u8]) -> Result<u16, Malformed> {
    match body {
        [high, low] => Ok(u16::from_be_bytes([*high, *low])),
        [high, low, reason, ..] if speaks_version_5() && *reason < 0x80 => {
            Ok(u16::from_be_bytes([*high, *low]))
        }
        _ => Err(Malformed("length of an acknowledgement")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publish_reads_back_and_every_prefix_asks_for_more() {
        for payload_bytes in [0_usize, 1, 100, 127, 128, 16_384, 20_000] {
            let payload = vec![7_u8; payload_bytes];
            for qos in 0..=2_u8 {
                let id = if qos == 0 { 0 } else { 513 };
                let sent =
                    Publish { dup: qos == 1, qos, retain: qos == 2, topic: b"a/b", id, payload: &payload };
                let mut bytes = Vec::new();
                encode_publish(&mut bytes, &sent);
                assert_eq!(decode(&bytes), Ok(Some((Packet::Publish(sent), bytes.len()))));
                for cut in (0..bytes.len()).step_by(1 + bytes.len() / 50) {
                    assert_eq!(decode(bytes.get(..cut).unwrap()), Ok(None), "cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn acknowledgements_read_back() {
        let mut bytes = Vec::new();
        encode_puback(&mut bytes, 1);
        encode_pubrec(&mut bytes, 2);
        encode_pubrel(&mut bytes, 65_535);
        encode_pubcomp(&mut bytes, 4);
        let mut rest = bytes.as_slice();
        for expected in [Packet::Puback(1), Packet::Pubrec(2), Packet::Pubrel(65_535), Packet::Pubcomp(4)] {
            let (packet, taken) = decode(rest).unwrap().unwrap();
            assert_eq!(packet, expected);
            rest = rest.get(taken..).unwrap();
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_connect_has_the_bytes_of_the_specification() {
        let mut bytes = Vec::new();
        let user = Some(("u".to_owned(), "p".to_owned()));
        encode_connect(&mut bytes, &ConnectOptions::persistent("id").with_user(user));
        assert_eq!(bytes, b"\x10\x14\x00\x04MQTT\x04\xC0\x00\x00\x00\x02id\x00\x01u\x00\x01p");
    }

    #[test]
    fn nonsense_is_an_error() {
        for bytes in
            [&[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1][..], &[0x36, 5, 0, 1, b'a', 0, 1], &[0xF0, 0], &[0x40, 1, 0]]
        {
            assert!(decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
