//! MQTT 5 packets as readable text, and back. Beside the fields of [`super::packet`], properties are fields:
//! `PUBLISH topic=a qos=1 id=7 message_expiry=5 property=site:west payload="x"`; those of a will are written
//! `will.delay=5`. A field `raw_properties=HEX` puts bytes in their place.
//!
//! What a gateway says to every client (CONNACK's receive maximum, maximum packet size and topic alias maximum) and
//! reason strings are left out unless they are asked for.

use std::fmt::Write as _;

use super::packet::{Fields, code, number, packet, put, quote};

/// How a property is named, its identifier, and its type: byte, two-byte, four-byte, variable integer, string, pair.
const PROPERTIES: [(&str, u8, char); 27] = [
    ("payload_format", 0x01, 'b'),
    ("message_expiry", 0x02, '4'),
    ("content_type", 0x03, 's'),
    ("response_topic", 0x08, 's'),
    ("correlation", 0x09, 's'),
    ("subscription_id", 0x0b, 'v'),
    ("session_expiry", 0x11, '4'),
    ("assigned_client", 0x12, 's'),
    ("server_keep_alive", 0x13, '2'),
    ("auth_method", 0x15, 's'),
    ("auth_data", 0x16, 's'),
    ("request_problem", 0x17, 'b'),
    ("delay", 0x18, '4'),
    ("request_response", 0x19, 'b'),
    ("response_information", 0x1a, 's'),
    ("server_reference", 0x1c, 's'),
    ("reason", 0x1f, 's'),
    ("receive_maximum", 0x21, '2'),
    ("alias_maximum", 0x22, '2'),
    ("alias", 0x23, '2'),
    ("maximum_qos", 0x24, 'b'),
    ("retain_available", 0x25, 'b'),
    ("property", 0x26, 'p'),
    ("maximum_packet", 0x27, '4'),
    ("wildcard_available", 0x28, 'b'),
    ("identifier_available", 0x29, 'b'),
    ("shared_available", 0x2a, 'b'),
];

/// What is said to every client.
const ALWAYS: [&str; 3] = ["receive_maximum", "maximum_packet", "alias_maximum"];

/// The bytes of the packet, as a client sends it.
pub fn encode(name: &str, fields: &Fields<'_>) -> Vec<u8> {
    let id = fields.number("id", 0) as u16;
    match name {
        "CONNECT" => connect(fields),
        "PUBLISH" => publish(fields),
        "PUBACK" => acknowledgement(0x40, id, fields),
        "PUBREC" => acknowledgement(0x50, id, fields),
        "PUBREL" => acknowledgement(0x62, id, fields),
        "PUBCOMP" => acknowledgement(0x70, id, fields),
        "SUBSCRIBE" => subscribe(id, fields),
        "UNSUBSCRIBE" => {
            let mut body = id.to_be_bytes().to_vec();
            put_properties(&mut body, fields, "");
            for filter in fields.all("filter") {
                put(&mut body, filter);
            }
            packet(0xa2, &body)
        }
        "PINGREQ" => packet(0xc0, b""),
        "DISCONNECT" => outcome(0xe0, Vec::new(), fields),
        "AUTH" => outcome(0xf0, Vec::new(), fields),
        _ => panic!("no client packet: {name}"),
    }
}

/// A packet of the gateway as text. With `whole` nothing is left out.
pub fn describe(header: u8, body: &[u8], whole: bool) -> String {
    let id = || u16::from_be_bytes([body[0], body[1]]);
    let acknowledgement = |name: &str, flags: u8| {
        assert_eq!(header & 0x0f, flags, "{name}");
        format!("{name} id={}{}", id(), describe_outcome(&body[2..], whole))
    };
    match header >> 4 {
        2 => {
            assert!(header & 0x0f == 0 && body[0] <= 1, "CONNACK flags");
            let (properties, rest) = take_properties(&body[2..]);
            assert!(rest.is_empty(), "CONNACK has nothing behind its properties");
            let shown =
                describe_properties(properties, |name| whole || name != "reason" && !ALWAYS.contains(&name));
            format!("CONNACK present={} code={}{shown}", body[0], code(body[1]))
        }
        3 => describe_publish(header, body),
        4 => acknowledgement("PUBACK", 0),
        5 => acknowledgement("PUBREC", 0),
        6 => acknowledgement("PUBREL", 2),
        7 => acknowledgement("PUBCOMP", 0),
        9 | 11 => {
            assert_eq!(header & 0x0f, 0, "SUBACK or UNSUBACK");
            let (properties, codes) = take_properties(&body[2..]);
            let codes: Vec<_> = codes.iter().map(|&c| code(c)).collect();
            let shown = describe_properties(properties, |name| whole || name != "reason");
            let name = if header >> 4 == 9 { "SUBACK" } else { "UNSUBACK" };
            format!("{name} id={} codes={}{shown}", id(), codes.join(","))
        }
        13 => {
            assert_eq!((header, body), (0xd0, &b""[..]), "PINGRESP");
            "PINGRESP".into()
        }
        14 => format!("DISCONNECT{}", describe_outcome(body, whole)),
        _ => panic!("the gateway sent {header:#04x} {body:02x?}"),
    }
}

/// Reason code and properties, which may both be missing.
fn describe_outcome(bytes: &[u8], whole: bool) -> String {
    let Some((reason, rest)) = bytes.split_first() else { return String::new() };
    let shown = if rest.is_empty() {
        String::new()
    } else {
        let (properties, rest) = take_properties(rest);
        assert!(rest.is_empty(), "nothing follows the properties");
        describe_properties(properties, |name| whole || name != "reason")
    };
    format!(" code={}{shown}", code(*reason))
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
    let (properties, payload) = take_properties(rest);
    text.push_str(&describe_properties(properties, |_| true));
    write!(text, " payload={}", quote(payload, true)).expect("a string takes all");
    text
}

/// The properties at the front of `bytes`, and what follows them.
fn take_properties(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (length, taken) = take_variable(bytes);
    bytes[taken..].split_at(length)
}

fn take_variable(bytes: &[u8]) -> (usize, usize) {
    let mut value = 0;
    for (at, &byte) in bytes.iter().enumerate().take(4) {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            assert!(at == 0 || byte != 0, "the gateway sent a variable byte integer with a needless byte");
            return (value, at + 1);
        }
    }
    panic!("the gateway sent a variable byte integer of more than four bytes");
}

fn describe_properties(mut bytes: &[u8], shown: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    while let Some((&identifier, rest)) = bytes.split_first() {
        let known = PROPERTIES.iter().find(|(_, id, _)| *id == identifier);
        let (name, _, kind) = known.unwrap_or_else(|| panic!("the gateway sent property {identifier:#04x}"));
        let string = |at: usize| {
            let length = usize::from(u16::from_be_bytes([rest[at], rest[at + 1]]));
            &rest[at + 2..at + 2 + length]
        };
        let (value, taken) = match kind {
            'b' => (rest[0].to_string(), 1),
            '2' => (u16::from_be_bytes([rest[0], rest[1]]).to_string(), 2),
            '4' => (u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]).to_string(), 4),
            'v' => {
                let (value, taken) = take_variable(rest);
                (value.to_string(), taken)
            }
            's' => (quote(string(0), false), 2 + string(0).len()),
            _ => {
                let (name, value) = (string(0), string(2 + string(0).len()));
                let pair = [name, b":", value].concat();
                (quote(&pair, false), 4 + name.len() + value.len())
            }
        };
        if shown(name) {
            write!(text, " {name}={value}").expect("a string takes all");
        }
        bytes = &rest[taken..];
    }
    text
}

fn put_variable(body: &mut Vec<u8>, mut value: usize) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        body.push(if value == 0 { low } else { low | 0x80 });
        if value == 0 {
            return;
        }
    }
}

/// Appends the properties among the fields whose names begin with `prefix`, behind their length.
fn put_properties(body: &mut Vec<u8>, fields: &Fields<'_>, prefix: &str) {
    let properties = properties(fields, prefix);
    put_variable(body, properties.len());
    body.extend_from_slice(&properties);
}

fn properties(fields: &Fields<'_>, prefix: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (field, value) in &fields.fields {
        let Some(name) = field.strip_prefix(prefix) else { continue };
        if name == "raw_properties" {
            let text = str::from_utf8(value).expect("hex is text");
            let bytes = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
            out.extend(bytes.map(|byte| byte.expect("two hex digits")));
        }
        let Some((_, identifier, kind)) = PROPERTIES.iter().find(|(known, ..)| *known == name) else {
            continue;
        };
        out.push(*identifier);
        match kind {
            'b' => out.push(number(value) as u8),
            '2' => out.extend_from_slice(&(number(value) as u16).to_be_bytes()),
            '4' => out.extend_from_slice(&(number(value) as u32).to_be_bytes()),
            'v' => put_variable(&mut out, number(value) as usize),
            's' => put(&mut out, value),
            _ => {
                let colon = value.iter().position(|byte| *byte == b':').expect("name:value");
                put(&mut out, &value[..colon]);
                put(&mut out, &value[colon + 1..]);
            }
        }
    }
    out
}

fn connect(fields: &Fields<'_>) -> Vec<u8> {
    let will = fields.value("will_topic").is_some();
    let mut flags = fields.number("flags", 0) as u8;
    flags |= (fields.number("clean", 1) as u8) << 1;
    flags |= u8::from(will) << 2;
    flags |= (fields.number("will_qos", 0) as u8) << 3;
    flags |= (fields.number("will_retain", 0) as u8) << 5;
    flags |= u8::from(fields.value("password").is_some()) << 6;
    flags |= u8::from(fields.value("user").is_some()) << 7;
    let mut body = Vec::new();
    put(&mut body, fields.value("name").unwrap_or(b"MQTT"));
    body.push(fields.number("level", 5) as u8);
    body.push(flags);
    body.extend_from_slice(&(fields.number("keep_alive", 0) as u16).to_be_bytes());
    put_properties(&mut body, fields, "");
    put(&mut body, fields.value("client").unwrap_or_default());
    if will {
        put_properties(&mut body, fields, "will.");
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
    put_properties(&mut body, fields, "");
    body.extend_from_slice(fields.value("payload").unwrap_or_default());
    packet(header, &body)
}

fn acknowledgement(header: u8, id: u16, fields: &Fields<'_>) -> Vec<u8> {
    outcome(header, id.to_be_bytes().to_vec(), fields)
}

/// `head`, then the reason code and properties, as short as they go.
fn outcome(header: u8, head: Vec<u8>, fields: &Fields<'_>) -> Vec<u8> {
    let mut body = head;
    let properties = properties(fields, "");
    if let Some(reason) = fields.value("code") {
        body.push(code_number(reason));
    } else if !properties.is_empty() {
        body.push(0);
    }
    if !properties.is_empty() {
        put_variable(&mut body, properties.len());
        body.extend_from_slice(&properties);
    }
    packet(header, &body)
}

/// `0x97` or `16`.
fn code_number(value: &[u8]) -> u8 {
    let text = str::from_utf8(value).expect("a code is text");
    match text.strip_prefix("0x") {
        Some(hex) => u8::from_str_radix(hex, 16).expect("two hex digits"),
        None => text.parse().expect("a code is a number"),
    }
}

fn subscribe(id: u16, fields: &Fields<'_>) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    put_properties(&mut body, fields, "");
    for (field, value) in &fields.fields {
        match field.as_str() {
            "filter" => put(&mut body, value),
            "qos" | "options" => body.push(number(value) as u8),
            "no_local" => *body.last_mut().expect("a filter came before") |= (number(value) as u8) << 2,
            "as_published" => *body.last_mut().expect("a filter came before") |= (number(value) as u8) << 3,
            "handling" => *body.last_mut().expect("a filter came before") |= (number(value) as u8) << 4,
            _ => {}
        }
    }
    packet(0x82, &body)
}
