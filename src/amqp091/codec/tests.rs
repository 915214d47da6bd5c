//! Malformed forms, bounds and fixed bytes. Laws over random frames, hostile input and the foreign oracle stand in
//! `tests/codec`.

use super::method::{basic, channel, connection, queue, tx};
use super::*;
use crate::limits::FIELD_TABLE_DEPTH_MAX;

fn frame(frame_type: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![frame_type];
    out.extend_from_slice(&channel.to_be_bytes());
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
    out.extend_from_slice(payload);
    out.push(FRAME_END);
    out
}

fn method(class_id: u16, method_id: u16, arguments: &[u8]) -> Vec<u8> {
    [&class_id.to_be_bytes(), &method_id.to_be_bytes(), arguments].concat()
}

#[track_caller]
fn refused(payload: &[u8], reply_code: u16, detail: &str) {
    let error = Method::decode(payload).unwrap_err();
    assert_eq!((error.reply_code.number(), error.detail), (reply_code, detail));
    if payload.len() >= 4 {
        let id = [error.method.class_id.to_be_bytes(), error.method.method_id.to_be_bytes()].concat();
        assert_eq!(id, payload[..4], "the close says which method it was");
    }
}

#[test]
fn an_unknown_frame_type_is_refused_by_its_first_octet() {
    for first in [0, 4, 5, 7, 9, b'A', 0xce, 0xff] {
        let error = decode(&[first], 4096).unwrap_err();
        assert_eq!((error.reply_code, error.detail), (ReplyCode::FrameError, "unknown frame type"));
    }
}

#[test]
fn a_frame_ends_with_its_octet() {
    let mut input = frame(3, 1, b"body");
    *input.last_mut().unwrap() = 0xcd;
    let error = decode(&input, 4096).unwrap_err();
    assert_eq!(error.to_string(), "FRAME_ERROR - frame does not end with 0xce");
}

#[test]
fn frame_max_counts_the_whole_frame_and_is_known_from_its_header() {
    let input = frame(3, 1, &[0; 4088]);
    assert!(matches!(decode(&input, 4096), Ok(Decoded::Frame { consumed: 4096, .. })));
    assert!(decode(&input[..7], 4095).is_err());
    for size in [4089, 0x7fff_ffff, u32::MAX] {
        let header = [&[1, 0, 1], &size.to_be_bytes()[..]].concat();
        assert_eq!(decode(&header, 4096).unwrap_err().detail, "frame is larger than frame-max");
    }
}

#[test]
fn heartbeats_are_empty_and_on_channel_0() {
    let mut out = Vec::new();
    encode_heartbeat(&mut out);
    assert_eq!(out, [8, 0, 0, 0, 0, 0, 0, 0xce]);
    assert_eq!(decode(&frame(8, 1, b""), 4096).unwrap_err().reply_code, ReplyCode::UnexpectedFrame);
    assert_eq!(decode(&frame(8, 0, b"x"), 4096).unwrap_err().reply_code, ReplyCode::FrameError);
}

#[test]
fn content_is_never_on_channel_0() {
    for frame_type in [2, 3] {
        let error = decode(&frame(frame_type, 0, b"x"), 4096).unwrap_err();
        assert_eq!(error.reply_code, ReplyCode::UnexpectedFrame);
    }
}

#[test]
fn unknown_methods_are_503_with_their_number() {
    for (class_id, method_id) in
        [(10, 12), (40, 41), (60, 121), (85, 12), (90, 40), (0, 0), (70, 10), (0xffff, 1)]
    {
        refused(&method(class_id, method_id, b""), 503, "unknown method");
    }
}

#[test]
fn arguments_that_cannot_be_read_are_501_with_the_method() {
    refused(&method(20, 10, b""), 501, "frame ends inside a field");
    refused(&method(60, 80, &[0; 8]), 501, "frame ends inside a field");
    refused(&method(50, 10, b"\0\0\x05abc"), 501, "frame ends inside a field");
    refused(&method(10, 20, b"\xff\xff\xff\xffabc"), 501, "frame ends inside a field");
    refused(&method(90, 10, b"\0"), 501, "bytes after the last field");
    refused(&method(60, 80, &[0; 10]), 501, "bytes after the last field");
    refused(&[0, 10, 0], 501, "frame ends inside a field");
}

#[test]
fn names_are_text_and_what_goes_with_a_message_is_bytes() {
    refused(&method(50, 30, b"\0\0\x01\xff\0"), 501, "malformed UTF-8 in a short string");
    let payload = method(60, 40, b"\0\0\x01\xfe\x01\xff\x01");
    let Ok(Method::Basic(basic::Method::Publish(publish))) = Method::decode(&payload) else {
        panic!("no basic.publish")
    };
    assert_eq!((publish.exchange.as_bytes(), publish.routing_key.as_bytes()), (&b"\xfe"[..], &b"\xff"[..]));
    assert_eq!(publish.routing_key.as_str(), None);
    assert!(publish.mandatory && !publish.immediate);
}

#[test]
fn undefined_bits_are_ignored() {
    let payload = method(60, 80, &[0, 0, 0, 0, 0, 0, 0, 7, 0xfe]);
    let Ok(Method::Basic(basic::Method::Ack(ack))) = Method::decode(&payload) else { panic!("no basic.ack") };
    assert_eq!((ack.delivery_tag, ack.multiple), (7, false));
}

#[test]
fn replies_have_these_bytes() {
    let mut out = Vec::new();
    encode_method(&mut out, 1, &basic::Ack { delivery_tag: 258, multiple: true }).unwrap();
    assert_eq!(out, frame(1, 1, &[0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 1, 2, 1]));
    out.clear();
    encode_method(&mut out, 2, &basic::Qos { prefetch_size: 1, prefetch_count: 2, global: true }).unwrap();
    assert_eq!(out, frame(1, 2, &[0, 60, 0, 10, 0, 0, 0, 1, 0, 2, 1]));
    out.clear();
    encode_method(&mut out, 0, &connection::OpenOk {}).unwrap();
    assert_eq!(out, frame(1, 0, &[0, 10, 0, 41, 0]));
    out.clear();
    encode_method(&mut out, 9, &channel::OpenOk {}).unwrap();
    assert_eq!(out, frame(1, 9, &[0, 20, 0, 11, 0, 0, 0, 0]));
    out.clear();
    encode_method(&mut out, 9, &tx::CommitOk {}).unwrap();
    assert_eq!(out, frame(1, 9, &[0, 90, 0, 21]));
}

#[test]
fn an_encoder_that_fails_leaves_the_output_as_it_was() {
    let long = "q".repeat(256);
    let mut out = b"earlier".to_vec();
    let declare_ok = queue::DeclareOk { queue: &long, message_count: 0, consumer_count: 0 };
    assert_eq!(encode_method(&mut out, 1, &declare_ok), Err(EncodeError::ShortStringTooLong));
    let mut headers = FieldTableBuilder::new();
    headers.push("x", FieldValue::LongString(&[0; 5000])).unwrap();
    assert_eq!(headers.push(&long, FieldValue::Void), Err(EncodeError::ShortStringTooLong));
    let properties = BasicProperties { headers: Some(headers.table()), ..BasicProperties::default() };
    let mut encoded = Vec::new();
    encode_properties(&mut encoded, &properties).unwrap();
    assert_eq!(encode_content(&mut out, 1, &encoded, b"body", 4096), Err(EncodeError::FrameTooLarge));
    assert_eq!(out, b"earlier");
}

#[test]
fn a_body_is_cut_into_frames_and_an_empty_one_has_none() {
    let no_properties = [0, 0];
    let mut out = Vec::new();
    encode_content(&mut out, 1, &no_properties, b"", 4096).unwrap();
    let header = [&[0, 60, 0, 0][..], &0_u64.to_be_bytes(), &no_properties].concat();
    assert_eq!(out, frame(2, 1, &header));

    out.clear();
    let body = vec![7; 4088 + 1];
    encode_content(&mut out, 1, &no_properties, &body, 4096).unwrap();
    let header = [&[0, 60, 0, 0][..], &4089_u64.to_be_bytes(), &no_properties].concat();
    assert_eq!(out, [frame(2, 1, &header), frame(3, 1, &body[..4088]), frame(3, 1, &[7])].concat());

    let mut apart = Vec::new();
    encode_body_frame_head(&mut apart, 1, 4088);
    apart.extend_from_slice(&body[..4088]);
    apart.push(FRAME_END);
    assert_eq!(apart, frame(3, 1, &body[..4088]));
}

#[test]
fn content_headers_are_checked() {
    let header = |class_id: u16, weight: u16, properties: &[u8]| {
        let start = [class_id.to_be_bytes(), weight.to_be_bytes()].concat();
        let payload = [&start[..], &5_u64.to_be_bytes(), properties].concat();
        ContentHeader::decode(&payload).map(drop).map_err(|error| error.to_string())
    };
    let error = |text: &str| Err(text.to_owned());
    assert_eq!(header(60, 0, &[0, 0]), Ok(()));
    assert_eq!(
        header(50, 0, &[0, 0]),
        error("UNEXPECTED_FRAME - content header of a class other than basic")
    );
    assert_eq!(header(60, 1, &[0, 0]), error("UNEXPECTED_FRAME - content header with a weight"));
    assert_eq!(header(60, 0, &[0]), error("FRAME_ERROR - frame ends inside a field"));
    assert_eq!(header(60, 0, &[0, 0, 0]), error("FRAME_ERROR - bytes after the last field"));
    assert_eq!(header(60, 0, &[0x80, 0, 2, b'a']), error("FRAME_ERROR - frame ends inside a field"));
    for flags in [1, 2, 3] {
        let expected = error("FRAME_ERROR - property flags beyond those of class basic");
        assert_eq!(header(60, 0, &[0, flags, 0, 0]), expected);
    }
}

/// Entries of a table with one entry of this encoded value.
fn entry(value: &[u8]) -> Vec<u8> {
    [b"\x01k", value].concat()
}

#[test]
fn every_tag_is_read_as_rabbitmq_reads_it() {
    for (value, expected) in [
        (&b"t\x00"[..], FieldValue::Boolean(false)),
        (b"t\x02", FieldValue::Boolean(true)),
        (b"b\xff", FieldValue::ShortShortInt(-1)),
        (b"B\xff", FieldValue::ShortShortUint(255)),
        (b"s\xff\xfe", FieldValue::ShortInt(-2)),
        (b"U\xff\xfe", FieldValue::ShortInt(-2)),
        (b"u\xff\xfe", FieldValue::ShortUint(65_534)),
        (b"I\xff\xff\xff\xfd", FieldValue::LongInt(-3)),
        (b"i\xff\xff\xff\xfd", FieldValue::LongUint(4_294_967_293)),
        (b"l\xff\xff\xff\xff\xff\xff\xff\xfc", FieldValue::LongLongInt(-4)),
        (b"L\xff\xff\xff\xff\xff\xff\xff\xfc", FieldValue::LongLongInt(-4)),
        (b"f\x3f\xc0\x00\x00", FieldValue::Float(1.5)),
        (b"d\x3f\xf8\x00\x00\x00\x00\x00\x00", FieldValue::Double(1.5)),
        (b"D\x02\x00\x00\x01\x3a", FieldValue::Decimal { scale: 2, value: 314 }),
        (b"S\x00\x00\x00\x02hi", FieldValue::LongString(b"hi")),
        (b"x\x00\x00\x00\x02\xff\x00", FieldValue::ByteArray(b"\xff\x00")),
        (b"T\x00\x00\x00\x00\x00\x00\x00\x09", FieldValue::Timestamp(9)),
        (b"V", FieldValue::Void),
    ] {
        let entries = entry(value);
        let table = FieldTable::decode(&entries).unwrap();
        assert_eq!(table.iter().collect::<Vec<_>>(), [(ShortString::new(b"k").unwrap(), expected)]);
    }
}

#[test]
fn tables_that_lie_are_refused() {
    for value in [
        &b"z"[..],
        b"",
        b"t",
        b"S\x00\x00\x00\x03hi",
        b"S\xff\xff\xff\xffhi",
        b"F\x00\x00\x00\x01\x05",
        b"A\x00\x00\x00\x01t",
        b"A\x00\x00\x00\x02Fx",
        b"I\x00\x00\x00",
    ] {
        assert!(FieldTable::decode(&entry(value)).is_err(), "{value:02x?}");
    }
    assert!(FieldTable::decode(b"\x05k").is_err());
    refused(&method(50, 50, b"\0\0\0\0\0\0\0\0\x03\x01kz"), 501, "unknown type of a field value");
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize, tag: u8| {
        let mut value = b"V".to_vec();
        for _ in 0..depth {
            let inner = if tag == b'F' { entry(&value) } else { value.clone() };
            let length = u32::try_from(inner.len()).unwrap().to_be_bytes();
            value = [&[tag], &length[..], &inner].concat();
        }
        entry(&value)
    };
    for tag in [b'F', b'A'] {
        assert!(FieldTable::decode(&nested(FIELD_TABLE_DEPTH_MAX, tag)).is_ok());
        let error = FieldTable::decode(&nested(FIELD_TABLE_DEPTH_MAX + 1, tag)).unwrap_err();
        assert_eq!(error.detail, "field table is nested too deeply");
        assert!(FieldTable::decode(&nested(10_000, tag)).is_err(), "and the stack holds");
    }
}

#[test]
fn values_are_found_whatever_width_the_client_chose() {
    let mut table = FieldTableBuilder::new();
    table.push("x-max-length", FieldValue::ShortUint(500)).unwrap();
    table.push("x-overflow", FieldValue::LongString(b"reject-publish")).unwrap();
    table.push("x-max-length", FieldValue::LongInt(7)).unwrap();
    let table = table.table();
    let length = table.find("x-max-length").unwrap();
    assert_eq!(length.as_integer(), Some(500), "the first of two");
    assert_eq!((length.as_text(), length.as_bool()), (None, None));
    assert_eq!(table.find("x-overflow").and_then(FieldValue::as_text), Some("reject-publish"));
    assert_eq!(table.find("x-expires"), None);
}

#[test]
fn secrets_stay_out_of_logs() {
    let start_ok = connection::StartOk {
        client_properties: FieldTable::EMPTY,
        mechanism: "PLAIN",
        response: LongString(b"\0guest\0secret"),
        locale: "en_US",
    };
    assert!(!format!("{start_ok:?}").contains("secret"));
}
