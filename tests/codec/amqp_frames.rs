//! Random AMQP 0-9-1 frames as bytes. The layout of each method is written here a second time, from the specification,
//! as one letter an argument.

use gatewayd::amqp091::codec::{
    BasicProperties, FieldArrayBuilder, FieldTable, FieldTableBuilder, FieldValue, ShortString,
    encode_body_frame, encode_content_header, encode_heartbeat, encode_properties,
};

use crate::random::Random;

/// Class, method, arguments: octet, sHort, Word (long), Quad (long long), short String, long teXt, Table, Bit; upper case:
/// reserved, sent as nothing.
pub const METHODS: [(u16, u16, &str); 62] = [
    (10, 10, "ootxx"),
    (10, 11, "tsxs"),
    (10, 20, "x"),
    (10, 21, "x"),
    (10, 30, "hwh"),
    (10, 31, "hwh"),
    (10, 40, "sSB"),
    (10, 41, "S"),
    (10, 50, "hshh"),
    (10, 51, ""),
    (10, 60, "s"),
    (10, 61, ""),
    (10, 70, "xs"),
    (10, 71, ""),
    (20, 10, "S"),
    (20, 11, "X"),
    (20, 20, "b"),
    (20, 21, "b"),
    (20, 40, "hshh"),
    (20, 41, ""),
    (30, 10, "sbbbbb"),
    (30, 11, "h"),
    (40, 10, "Hssbbbbbt"),
    (40, 11, ""),
    (40, 20, "Hsbb"),
    (40, 21, ""),
    (40, 30, "Hsssbt"),
    (40, 31, ""),
    (40, 40, "Hsssbt"),
    (40, 51, ""),
    (50, 10, "Hsbbbbbt"),
    (50, 11, "sww"),
    (50, 20, "Hsssbt"),
    (50, 21, ""),
    (50, 30, "Hsb"),
    (50, 31, "w"),
    (50, 40, "Hsbbb"),
    (50, 41, "w"),
    (50, 50, "Hssst"),
    (50, 51, ""),
    (60, 10, "whb"),
    (60, 11, ""),
    (60, 20, "Hssbbbbt"),
    (60, 21, "s"),
    (60, 30, "sb"),
    (60, 31, "s"),
    (60, 40, "Hssbb"),
    (60, 50, "hsss"),
    (60, 60, "sqbss"),
    (60, 70, "Hsb"),
    (60, 71, "qbssw"),
    (60, 72, "S"),
    (60, 80, "qb"),
    (60, 90, "qb"),
    (60, 100, "b"),
    (60, 110, "b"),
    (60, 111, ""),
    (60, 120, "qbb"),
    (85, 10, "b"),
    (85, 11, ""),
    (90, 10, ""),
    (90, 11, ""),
];

/// The rest of class tx has no arguments either.
pub const TX_METHODS: [u16; 4] = [20, 21, 30, 31];

/// A whole frame of any kind.
pub fn frame(random: &mut Random) -> Vec<u8> {
    let channel = u16::from_be_bytes([random.byte(), random.byte()]).max(1);
    let mut out = Vec::new();
    match random.below(8) {
        0 => encode_heartbeat(&mut out),
        1 => {
            let length = random.length();
            encode_body_frame(&mut out, channel, &random.bytes(length)).unwrap();
        }
        2 | 3 => {
            let properties = properties(random);
            encode_content_header(&mut out, channel, random.number(), &properties, usize::MAX).unwrap();
        }
        _ => method_frame(random, channel, &mut out),
    }
    out
}

fn method_frame(random: &mut Random, channel: u16, out: &mut Vec<u8>) {
    let (class_id, method_id, layout) =
        if random.one_in(20) { (90, *random.pick(&TX_METHODS), "") } else { *random.pick(&METHODS) };
    let mut payload = [class_id.to_be_bytes(), method_id.to_be_bytes()].concat();
    arguments(random, layout, &mut payload);
    out.push(1);
    out.extend_from_slice(&channel.to_be_bytes());
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&payload);
    out.push(0xce);
}

pub fn arguments(random: &mut Random, layout: &str, out: &mut Vec<u8>) {
    let mut bits = Vec::new();
    for letter in layout.chars().chain(['.']) {
        if !letter.eq_ignore_ascii_case(&'b') && !bits.is_empty() {
            out.push(bits.drain(..).enumerate().map(|(at, bit): (usize, bool)| u8::from(bit) << at).sum());
        }
        match letter {
            'o' => out.push(random.byte()),
            'h' => out.extend_from_slice(&random.bytes(2)),
            'w' => out.extend_from_slice(&random.bytes(4)),
            'q' => out.extend_from_slice(&random.bytes(8)),
            's' => {
                let text = short_text(random);
                out.push(u8::try_from(text.len()).unwrap());
                out.extend_from_slice(text.as_bytes());
            }
            'x' => {
                let length = random.length();
                put_long(out, &random.bytes(length));
            }
            't' => {
                let table = table(random, 3);
                put_long(out, table.table().as_bytes());
            }
            'b' => bits.push(random.coin()),
            'B' => bits.push(false),
            'H' => out.extend_from_slice(&[0; 2]),
            'S' => out.push(0),
            'X' => out.extend_from_slice(&[0; 4]),
            '.' => {}
            other => panic!("no argument type {other}"),
        }
    }
}

fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
    out.extend_from_slice(bytes);
}

fn short_text(random: &mut Random) -> String {
    let length = if random.one_in(20) { 120 } else { random.below(12) };
    (0..length).map(|_| *random.pick(&['a', 'q', '.', '#', '*', '-', 'é'])).collect()
}

/// A table with ascending names, each once: the form in which a map keeps it.
pub fn table(random: &mut Random, depth: usize) -> FieldTableBuilder {
    let mut names: Vec<String> = (0..random.below(5)).map(|_| short_text(random)).collect();
    names.sort();
    names.dedup();
    let mut builder = FieldTableBuilder::new();
    for name in &names {
        with_value(random, depth, &mut |value| builder.push(name, value).unwrap());
    }
    builder
}

fn with_value(random: &mut Random, depth: usize, then: &mut dyn FnMut(FieldValue<'_>)) {
    let number = random.number();
    let [a, b, c, d, ..] = number.to_be_bytes();
    let kinds = if depth == 0 { 15 } else { 17 };
    match random.below(kinds) {
        0 => then(FieldValue::Boolean(random.coin())),
        1 => then(FieldValue::ShortShortInt(i8::from_be_bytes([a]))),
        2 => then(FieldValue::ShortShortUint(a)),
        3 => then(FieldValue::ShortInt(i16::from_be_bytes([a, b]))),
        4 => then(FieldValue::ShortUint(u16::from_be_bytes([a, b]))),
        5 => then(FieldValue::LongInt(i32::from_be_bytes([a, b, c, d]))),
        6 => then(FieldValue::LongUint(u32::from_be_bytes([a, b, c, d]))),
        7 => then(FieldValue::LongLongInt(i64::from_be_bytes(number.to_be_bytes()))),
        8 => then(FieldValue::Float(f32::from(i16::from_be_bytes([a, b])) / 8.0)),
        9 => then(FieldValue::Double(f64::from(i32::from_be_bytes([a, b, c, d])) / 64.0)),
        10 => then(FieldValue::Decimal { scale: a, value: u32::from_be_bytes([a, b, c, d]) }),
        11 => then(FieldValue::Timestamp(number)),
        12 => then(FieldValue::Void),
        13 => {
            let length = random.length();
            then(FieldValue::LongString(&random.bytes(length)));
        }
        14 => {
            let length = random.length();
            then(FieldValue::ByteArray(&random.bytes(length)));
        }
        15 => then(FieldValue::Table(table(random, depth - 1).table())),
        _ => {
            let mut array = FieldArrayBuilder::new();
            for _ in 0..random.below(4) {
                with_value(random, depth - 1, &mut |value| array.push(value).unwrap());
            }
            then(FieldValue::Array(array.array()));
        }
    }
}

/// Encoded properties, each present half of the time.
pub fn properties(random: &mut Random) -> Vec<u8> {
    let texts: Vec<String> = (0..10).map(|_| short_text(random)).collect();
    let mut texts = texts.iter();
    let headers = table(random, 3);
    let mut text = |random: &mut Random| {
        let text = texts.next().unwrap();
        random.coin().then(|| ShortString::try_from(text.as_str()).unwrap())
    };
    let properties = BasicProperties {
        content_type: text(random),
        content_encoding: text(random),
        headers: random.coin().then(|| headers.table()),
        delivery_mode: random.coin().then(|| random.byte()),
        priority: random.coin().then(|| random.byte()),
        correlation_id: text(random),
        reply_to: text(random),
        expiration: text(random),
        message_id: text(random),
        timestamp: random.coin().then(|| random.number()),
        kind: text(random),
        user_id: text(random),
        app_id: text(random),
        cluster_id: text(random),
    };
    let mut out = Vec::new();
    encode_properties(&mut out, &properties).unwrap();
    out
}

/// Whether all names in a table are UTF-8, at any depth.
pub fn names_are_text(table: FieldTable<'_>) -> bool {
    fn is_text(value: FieldValue<'_>) -> bool {
        match value {
            FieldValue::Table(table) => names_are_text(table),
            FieldValue::Array(array) => array.iter().all(is_text),
            _ => true,
        }
    }
    table.iter().all(|(name, value)| name.as_str().is_some() && is_text(value))
}
