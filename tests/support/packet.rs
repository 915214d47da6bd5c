//! MQTT 3.1 and 3.1.1 packets as readable text, and back: `PUBLISH topic=a/b qos=1 id=7 payload="x"`. Those of version 5,
//! which begin with `CONNECT version=5`, are in [`super::packet5`].
//!
//! Written apart from the gateway's codec, so that each checks the other, and free to write what no client may send:
//! QoS 3, identifier 0, a topic with a wildcard, bytes as they are (`HEX c0 01 00`). Fields are `name=value`; a value
//! with spaces or odd bytes is quoted, with `\xNN`, `\n`, `\"` and `\\`; a long run of one byte is `x*20000`.

use std::fmt::Write as _;

/// The fields of one packet's text.
pub struct Fields<'a> {
    pub packet: &'a str,
    pub fields: Vec<(String, Vec<u8>)>,
}

/// The bytes of the packet that `text` describes, as a client sends it; after a CONNECT of version 5 in its form.
pub fn encode_for(text: &str, five: bool) -> Vec<u8> {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    let fields = || Fields { packet: text, fields: parse_fields(rest) };
    let begins = name == "CONNECT" && fields().value("version") == Some(b"5");
    if name != "HEX" && (begins || five && name != "CONNECT") {
        return super::packet5::encode(name, &fields());
    }
    encode(text)
}

/// True when these bytes begin with a CONNECT of version 5 or later.
pub fn begins_version5(bytes: &[u8]) -> bool {
    let length_ends = bytes.iter().skip(1).take(4).position(|byte| byte & 0x80 == 0);
    let Some(body) = length_ends.and_then(|at| bytes.get(at + 2..)) else { return false };
    let level = body.strip_prefix(b"\0\x04MQTT").and_then(|rest| rest.first());
    bytes.first().is_some_and(|first| first >> 4 == 1) && level.is_some_and(|level| level & 0x7f >= 5)
}

/// The bytes of the packet that `text` describes, as a client sends it before version 5.
pub fn encode(text: &str) -> Vec<u8> {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    if name == "HEX" {
        return rest
            .split_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits"))
            .collect();
    }
    let fields = Fields { packet: text, fields: parse_fields(rest) };
    let id = || fields.number("id", 0) as u16;
    match name {
        "CONNECT" => connect(&fields),
        "PUBLISH" => publish(&fields),
        "PUBACK" => packet(0x40, &id().to_be_bytes()),
        "PUBREC" => packet(0x50, &id().to_be_bytes()),
        "PUBREL" => packet(0x62, &id().to_be_bytes()),
        "PUBCOMP" => packet(0x70, &id().to_be_bytes()),
        "SUBSCRIBE" => {
            let mut body = id().to_be_bytes().to_vec();
            for (field, value) in &fields.fields {
                match field.as_str() {
                    "filter" => put(&mut body, value),
                    "qos" => body.push(number(value) as u8),
                    _ => assert_eq!(field, "id", "{text}"),
                }
            }
            packet(0x82, &body)
        }
        "UNSUBSCRIBE" => {
            let mut body = id().to_be_bytes().to_vec();
            for filter in fields.all("filter") {
                put(&mut body, filter);
            }
            packet(0xa2, &body)
        }
        "PINGREQ" => packet(0xc0, b""),
        "DISCONNECT" => packet(0xe0, b""),
        _ => panic!("no client packet: {text}"),
    }
}

/// The packets at the front of `bytes` as text, taken out; a piece of a packet stays.
pub fn decode(bytes: &mut Vec<u8>) -> Vec<String> {
    decode_for(bytes, None)
}

/// As [`decode`]; in the form of version 5, with or without what every client is told.
pub fn decode_for(bytes: &mut Vec<u8>, five: Option<bool>) -> Vec<String> {
    let mut packets = Vec::new();
    while let Some((header, body, consumed)) = cut(bytes) {
        packets.push(match five {
            Some(whole) => super::packet5::describe(header, &body, whole),
            None => describe(header, &body),
        });
        bytes.drain(..consumed);
    }
    packets
}

/// First byte, body and size of the packet at the front.
fn cut(bytes: &[u8]) -> Option<(u8, Vec<u8>, usize)> {
    let (&header, rest) = bytes.split_first()?;
    let mut length = 0;
    for (at, &byte) in rest.iter().enumerate().take(4) {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let start = at + 2;
            return Some((header, bytes.get(start..start + length)?.to_vec(), start + length));
        }
    }
    assert!(rest.len() < 4, "the gateway sent a remaining length of more than four bytes");
    None
}

fn describe(header: u8, body: &[u8]) -> String {
    let id = || u16::from_be_bytes([body[0], body[1]]);
    let acknowledgement = |name: &str, flags: u8| {
        assert_eq!((header & 0x0f, body.len()), (flags, 2), "{name}");
        format!("{name} id={}", id())
    };
    match header >> 4 {
        2 => {
            assert_eq!((header & 0x0f, body.len()), (0, 2), "CONNACK");
            assert!(body[0] <= 1, "CONNACK flags");
            format!("CONNACK present={} code={}", body[0], body[1])
        }
        3 => describe_publish(header, body),
        4 => acknowledgement("PUBACK", 0),
        5 => acknowledgement("PUBREC", 0),
        6 => acknowledgement("PUBREL", 2),
        7 => acknowledgement("PUBCOMP", 0),
        9 => {
            assert_eq!(header & 0x0f, 0, "SUBACK");
            let codes: Vec<_> = body[2..].iter().map(|&c| code(c)).collect();
            format!("SUBACK id={} codes={}", id(), codes.join(","))
        }
        11 => acknowledgement("UNSUBACK", 0),
        13 => {
            assert_eq!((header, body), (0xd0, &b""[..]), "PINGRESP");
            "PINGRESP".into()
        }
        _ => panic!("the gateway sent {header:#04x} {body:02x?}"),
    }
}

pub fn code(code: u8) -> String {
    if code < 0x80 { code.to_string() } else { format!("{code:#04x}") }
}

fn describe_publish(header: u8, body: &[u8]) -> String {
    let qos = header >> 1 & 3;
    let topic_length = usize::from(u16::from_be_bytes([body[0], body[1]]));
    let (topic, mut rest) = body[2..].split_at(topic_length);
    let mut text = format!("PUBLISH topic={} qos={qos}", quote(topic, false));
    for (name, bit) in [("dup", 8), ("retain", 1)] {
        if header & bit != 0 {
            write!(text, " {name}=1").expect("a string takes all");
        }
    }
    if qos > 0 {
        write!(text, " id={}", u16::from_be_bytes([rest[0], rest[1]])).expect("a string takes all");
        rest = &rest[2..];
    }
    write!(text, " payload={}", quote(rest, true)).expect("a string takes all");
    text
}

fn connect(fields: &Fields<'_>) -> Vec<u8> {
    let (name, level): (&[u8], u8) = match fields.text("version", "3.1.1").as_str() {
        "3.1" => (b"MQIsdp", 3),
        "3.1.1" => (b"MQTT", 4),
        other => (b"MQTT", number(other.as_bytes()) as u8),
    };
    let will = fields.value("will_topic").is_some();
    let mut flags = fields.number("flags", 0) as u8;
    flags |= (fields.number("clean", 1) as u8) << 1;
    flags |= u8::from(will) << 2;
    flags |= (fields.number("will_qos", 0) as u8) << 3;
    flags |= (fields.number("will_retain", 0) as u8) << 5;
    flags |= u8::from(fields.value("password").is_some()) << 6;
    flags |= u8::from(fields.value("user").is_some()) << 7;
    let mut body = Vec::new();
    put(&mut body, fields.value("name").unwrap_or(name));
    body.push(fields.number("level", u64::from(level)) as u8);
    body.push(flags);
    body.extend_from_slice(&(fields.number("keep_alive", 0) as u16).to_be_bytes());
    put(&mut body, fields.value("client").unwrap_or_default());
    if will {
        put(&mut body, fields.value("will_topic").unwrap_or_default());
        put(&mut body, fields.value("will_payload").unwrap_or_default());
    }
    for field in ["user", "password"] {
        if let Some(value) = fields.value(field) {
            put(&mut body, value);
        }
    }
    packet(0x10, &body)
}

fn publish(fields: &Fields<'_>) -> Vec<u8> {
    let qos = fields.number("qos", 0) as u8;
    let header = 0x30 | (fields.number("dup", 0) as u8) << 3 | qos << 1 | fields.number("retain", 0) as u8;
    let mut body = Vec::new();
    put(&mut body, fields.value("topic").expect("PUBLISH has a topic"));
    if qos > 0 {
        body.extend_from_slice(&(fields.number("id", 0) as u16).to_be_bytes());
    }
    body.extend_from_slice(fields.value("payload").unwrap_or_default());
    packet(header, &body)
}

/// A packet with this first byte and body.
pub fn packet(header: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![header];
    let mut left = body.len();
    loop {
        let low = (left & 0x7f) as u8;
        left >>= 7;
        bytes.push(if left == 0 { low } else { low | 0x80 });
        if left == 0 {
            break;
        }
    }
    bytes.extend_from_slice(body);
    bytes
}

pub fn put(body: &mut Vec<u8>, value: &[u8]) {
    body.extend_from_slice(
        &u16::try_from(value.len()).expect("a field has at most 65535 bytes").to_be_bytes(),
    );
    body.extend_from_slice(value);
}

impl Fields<'_> {
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_slice())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_slice())
    }

    pub fn number(&self, name: &str, default: u64) -> u64 {
        self.value(name).map_or(default, number)
    }

    pub fn text(&self, name: &str, default: &str) -> String {
        let value = self.value(name).map(|v| String::from_utf8(v.to_vec()).expect(self.packet));
        value.unwrap_or_else(|| default.into())
    }
}

pub fn number(value: &[u8]) -> u64 {
    let text = str::from_utf8(value).expect("a number is text");
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// `name=value` pairs.
fn parse_fields(text: &str) -> Vec<(String, Vec<u8>)> {
    let mut fields = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').unwrap_or_else(|| panic!("no value in {rest:?}"));
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = after.find(' ').unwrap_or(after.len());
                (plain(&after[..end]), &after[end..])
            }
        };
        fields.push((name.into(), value));
        rest = after.trim_start();
    }
    fields
}

/// A bare value; `x*20000` repeats.
fn plain(text: &str) -> Vec<u8> {
    match text.split_once('*') {
        Some((what, count)) if count.parse::<usize>().is_ok() => {
            what.repeat(count.parse().expect("it was a number")).into_bytes()
        }
        _ => text.as_bytes().to_vec(),
    }
}

/// What stands before the closing quote, and what follows it.
fn unquote(text: &str) -> (Vec<u8>, &str) {
    let mut value = Vec::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => match characters.next().expect("something follows a backslash").1 {
                'n' => value.push(b'\n'),
                'x' => {
                    let digits: String = characters.by_ref().take(2).map(|(_, digit)| digit).collect();
                    value.push(u8::from_str_radix(&digits, 16).expect("two hex digits follow \\x"));
                }
                other => value.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            },
            other => value.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    panic!("no closing quote in {text:?}")
}

/// The value as text that [`parse_fields`] reads back.
pub fn quote(value: &[u8], always: bool) -> String {
    if value.len() > 64
        && let Some(first) = value.first().filter(|byte| byte.is_ascii_alphanumeric())
        && value.iter().all(|byte| byte == first)
    {
        return format!("{}*{}", char::from(*first), value.len());
    }
    let text = String::from_utf8_lossy(value);
    let bare = |c: char| c.is_alphanumeric() || "/$-_.+#".contains(c);
    if !always && !text.is_empty() && text.chars().all(bare) && !text.contains('\u{fffd}') {
        return text.into_owned();
    }
    let mut quoted = String::from("\"");
    for chunk in value.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => quoted.extend(['\\', character]),
                '\n' => quoted.push_str("\\n"),
                c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", c as u32)),
                c => quoted.push(c),
            }
        }
        for byte in chunk.invalid() {
            quoted.push_str(&format!("\\x{byte:02x}"));
        }
    }
    quoted.push('"');
    quoted
}

#[test]
fn notation_reads_back() {
    let text = r#"PUBLISH topic=a/b qos=2 dup=1 retain=1 id=7 payload="x\x00 \"\\\n\xff""#;
    let mut bytes = encode(text);
    bytes.push(0xd0);
    assert_eq!(decode(&mut bytes), [text]);
    assert_eq!(bytes, [0xd0]);
    let mut long = encode("PUBLISH topic=\"a b\" payload=x*200");
    assert_eq!(decode(&mut long), [r#"PUBLISH topic="a b" qos=0 payload=x*200"#]);
}
