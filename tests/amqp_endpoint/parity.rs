//! Small things that clients find at RabbitMQ and look for here.

use gatewayd::amqp091::codec::method::{basic, channel, confirm, exchange, queue};
use gatewayd::amqp091::codec::{
    BasicProperties, Decoded, FieldTableBuilder, FieldValue, FrameType, decode, encode_method,
};

use super::{Bench, declare, put_publish};

#[test]
fn declaring_a_queue_again_renews_its_lease() {
    let mut bench = Bench::new();
    let id = bench.open();
    let lease = [("x-expires", FieldValue::LongInt(1000))];
    bench.declare_with(id, "q", &lease);
    bench.pass(600);
    bench.declare_with(id, "q", &lease);
    bench.pass(600);
    assert_eq!(bench.ready(id, "q"), Some(0), "a passive declaration renews it, too");
    bench.pass(600);
    assert_eq!(bench.ready(id, "q"), Some(0));
    bench.pass(1600);
    assert_eq!(bench.ready(id, "q"), None);
}

/// Ten years.
const LONGEST_MS: i64 = 315_360_000_000;

#[test]
fn times_to_live_last_up_to_ten_years_and_no_longer() {
    let mut bench = Bench::new();
    for name in ["x-message-ttl", "x-expires"] {
        let id = bench.open();
        let answered = bench.declare_with(id, name, &[(name, FieldValue::LongLongInt(LONGEST_MS))]);
        assert!(answered[0].contains("DeclareOk"), "{answered:?}");
        let answered = bench.declare_with(id, "too long", &[(name, FieldValue::LongLongInt(LONGEST_MS + 1))]);
        assert!(answered[0].contains("reply_code: 406"), "{answered:?}");
    }
    for (ms, code) in [(LONGEST_MS, None), (LONGEST_MS + 1, Some("reply_code: 406"))] {
        let id = bench.open();
        let text = ms.to_string();
        let expiration = text.as_str().try_into().ok();
        let properties = BasicProperties { expiration, ..BasicProperties::default() };
        bench.publish_to(id, ("", "x-message-ttl"), &properties, b"x");
        let answered = bench.take(id);
        assert_eq!(
            answered.first().map(|frame| code.is_some_and(|code| frame.contains(code))),
            code.map(|_| true)
        );
        let other = bench.open();
        assert_eq!(bench.ready(other, "x-message-ttl"), Some(1));
    }
}

#[test]
fn a_binding_is_found_by_its_arguments_in_any_order() {
    let mut bench = Bench::new();
    let id = bench.open();
    declare(&mut bench, id, "q", false);
    let entries = [
        ("x-match", FieldValue::LongString(b"any")),
        ("a", FieldValue::LongInt(1)),
        ("b", FieldValue::Boolean(true)),
    ];
    let table = |order: [usize; 3]| {
        let mut table = FieldTableBuilder::new();
        for at in order {
            table.push(entries[at].0, entries[at].1).unwrap();
        }
        table
    };
    let (bound, again, unbound) = (table([0, 1, 2]), table([1, 0, 2]), table([2, 1, 0]));
    for arguments in [&bound, &again] {
        let arguments = arguments.table();
        let bind =
            queue::Bind { queue: "q", exchange: "amq.headers", routing_key: "", no_wait: false, arguments };
        bench.send(id, 1, &bind);
    }
    let headers = Some(bound.table());
    let properties = BasicProperties { headers, ..BasicProperties::default() };
    bench.publish_to(id, ("amq.headers", ""), &properties, b"x");
    let arguments = unbound.table();
    bench.send(id, 1, &queue::Unbind { queue: "q", exchange: "amq.headers", routing_key: "", arguments });
    bench.publish_to(id, ("amq.headers", ""), &properties, b"x");
    assert_eq!(bench.ready(id, "q"), Some(1));
}

#[test]
fn a_header_that_just_fits_a_frame_comes_back_whole() {
    let mut bench = Bench::new();
    let id = bench.open();
    declare(&mut bench, id, "q", false);
    // A header frame of 4096 octets: its overhead (8), class, weight and size (12), flags (2), and the table's length
    // (4) with one entry: its name (2), type (1), length (4) and text.
    let text = vec![b'x'; 4096 - 8 - 12 - 2 - 4 - 7];
    let mut headers = FieldTableBuilder::new();
    headers.push("h", FieldValue::LongString(&text)).unwrap();
    let properties = BasicProperties { headers: Some(headers.table()), ..BasicProperties::default() };
    bench.publish_to(id, ("", "q"), &properties, b"x");
    bench.take(id);
    bench.send(id, 1, &basic::Get { queue: "q", no_ack: true });
    let bytes = bench.take_bytes(id);
    let mut rest = &bytes[..];
    let mut found = None;
    while let Ok(Decoded::Frame { frame, consumed }) = decode(rest, 4096) {
        if frame.frame_type == FrameType::Header {
            assert_eq!(consumed, 4096);
            let header = frame.content_header().unwrap();
            let properties = BasicProperties::decode(header.encoded_properties).unwrap();
            found = properties
                .headers
                .and_then(|table| table.find("h"))
                .and_then(FieldValue::as_text)
                .map(str::len);
        }
        rest = &rest[consumed..];
    }
    assert_eq!(found, Some(text.len()));
}

#[test]
fn what_was_published_before_an_end_is_confirmed_before_it() {
    let mut broken = Vec::new();
    encode_method(&mut broken, 1, &basic::Qos { prefetch_size: 0, prefetch_count: 1, global: false })
        .unwrap();
    *broken.last_mut().unwrap() = 0;
    let mut closed = Vec::new();
    let close = channel::Close { reply_code: 200, reply_text: "", class_id: 0, method_id: 0 };
    encode_method(&mut closed, 1, &close).unwrap();
    let mut refused = Vec::new();
    let delete = exchange::Delete { exchange: "amq.direct", if_unused: false, no_wait: false };
    encode_method(&mut refused, 1, &delete).unwrap();
    for (end, answer) in [(broken, "Connection(Close("), (closed, "CloseOk"), (refused, "Channel(Close(")] {
        let mut bench = Bench::new();
        let id = bench.open();
        bench.send(id, 1, &confirm::Select { no_wait: true });
        let mut bytes = Vec::new();
        put_publish(&mut bytes, "nowhere");
        let (mut properties, body) = (Vec::new(), b"x");
        gatewayd::amqp091::codec::encode_properties(&mut properties, &BasicProperties::default()).unwrap();
        gatewayd::amqp091::codec::encode_content(&mut bytes, 1, &properties, body, 4096).unwrap();
        bytes.extend_from_slice(&end);
        bench.gateway.receive(bench.now, id, &bytes);
        let answered = bench.take(id);
        assert!(answered[0].contains("Basic(Ack(") && answered[1].contains(answer), "{answered:?}");
    }
}
