//! Packets that are none: each type cut short, too long, with wrong values, in the wrong place.

use crate::bystanders::{assert_answer, exchange, world};
use crate::support::driver::Setup;
use crate::support::packet;

const FAULT: &[&str] = &["closed protocol_error"];
const CONNECT: &str = "CONNECT client=mallory";

/// One of each, as a client sends it, and how many bytes at least a body of the type has.
const PACKETS: [(&str, usize); 10] = [
    ("PUBLISH topic=t qos=0 payload=x", 3),
    ("PUBLISH topic=t qos=1 id=1 payload=x", 5),
    ("PUBLISH topic=t qos=2 id=1 payload=x", 5),
    ("PUBACK id=1", 2),
    ("PUBREC id=1", 2),
    ("PUBREL id=1", 2),
    ("PUBCOMP id=1", 2),
    ("SUBSCRIBE id=1 filter=t qos=0", 6),
    ("UNSUBSCRIBE id=1 filter=t", 5),
    ("CONNECT client=mallory will_topic=w will_payload=p user=u password=p", 10),
];

/// The body of every packet is cut at each byte, and announced as whole.
#[test]
fn bodies_that_are_too_short() {
    for (text, least) in PACKETS {
        let whole = packet::encode(text);
        let connect = (!text.starts_with("CONNECT")).then_some(CONNECT);
        let shortest_valid = if connect.is_some() { least } else { whole.len() - 2 };
        for length in 0..shortest_valid {
            assert_answer(connect, &packet::packet(whole[0], &whole[2..2 + length]), FAULT);
        }
    }
}

/// Bytes behind the last field of a packet that has one.
#[test]
fn bodies_that_are_too_long() {
    for text in [
        "PUBACK id=1",
        "PUBREC id=1",
        "PUBREL id=1",
        "PUBCOMP id=1",
        "UNSUBSCRIBE id=1 filter=t",
        "PINGREQ",
        "DISCONNECT",
    ] {
        let whole = packet::encode(text);
        let mut body = whole[2..].to_vec();
        body.push(0);
        assert_answer(Some(CONNECT), &packet::packet(whole[0], &body), FAULT);
    }
    let connect = packet::encode(PACKETS[9].0);
    let mut body = connect[2..].to_vec();
    body.push(0);
    assert_answer(None, &packet::packet(0x10, &body), FAULT);
}

/// A conversation cut at each byte: the piece brings nothing but what its whole packets bring, and stays small.
#[test]
fn conversations_cut_at_each_byte() {
    let mut bytes = packet::encode(CONNECT);
    for (text, _) in &PACKETS[..9] {
        bytes.extend(packet::encode(text));
    }
    let answers = |length: usize| {
        let mut world = world(Setup::default());
        world.send_bytes("mallory", &bytes[..length]);
        assert!(world.gateway.input_bytes() <= length);
        let lines = world.lines_of("mallory");
        world.reset("mallory");
        assert_eq!(world.lines_of("mallory"), ["closed peer_closed"]);
        assert_eq!(world.gateway.input_bytes(), 0);
        exchange(&mut world);
        lines
    };
    let whole = answers(bytes.len());
    let mut seen = 0;
    for length in 1..bytes.len() {
        let lines = answers(length);
        assert!(whole.starts_with(&lines) && lines.len() >= seen, "{length} bytes: {lines:?}");
        seen = lines.len();
    }
}

/// The same conversation byte by byte, and in pieces of each size, is answered the same.
#[test]
fn conversations_in_pieces() {
    let mut bytes = packet::encode(CONNECT);
    for (text, _) in &PACKETS[..9] {
        bytes.extend(packet::encode(text));
    }
    let answers = |size: usize| {
        let mut world = world(Setup::default());
        for piece in bytes.chunks(size) {
            world.send_bytes("mallory", piece);
        }
        world.lines_of("mallory")
    };
    let whole = answers(bytes.len());
    assert!(whole.len() > 6, "{whole:?}");
    for size in 1..bytes.len() {
        let mut lines = answers(size);
        // What comes in pieces is persisted in more than one batch: only the order between kinds may differ.
        let mut whole = whole.clone();
        lines.sort();
        whole.sort();
        assert_eq!(lines, whole, "pieces of {size}");
    }
}

#[test]
fn reserved_packet_types() {
    for header in (0x00..=0x0f).chain(0xf0..=0xff) {
        assert_answer(Some(CONNECT), &[header, 0], FAULT);
        assert_answer(None, &[header, 0], FAULT);
    }
}

/// CVE-2021-28166: what only servers send.
#[test]
fn packets_that_only_servers_send() {
    for bytes in [&[0x20, 2, 0, 0][..], &[0x90, 3, 0, 1, 0], &[0xb0, 2, 0, 1], &[0xd0, 0]] {
        assert_answer(Some(CONNECT), bytes, FAULT);
        assert_answer(None, bytes, FAULT);
    }
}

/// CVE-2026-21888: a remaining length of more than four bytes, and forms that are longer than they need be.
#[test]
fn remaining_lengths() {
    for header in [0x30, 0x32, 0x82, 0xc0, 0xe0] {
        assert_answer(Some(CONNECT), &[header, 0x80, 0x80, 0x80, 0x80, 0x00], FAULT);
        assert_answer(Some(CONNECT), &[header, 0xff, 0xff, 0xff, 0xff, 0x7f], FAULT);
    }
    assert_answer(None, &[0x10, 0xff, 0xff, 0xff, 0xff, 0x01], FAULT);
    // Longer than need be is allowed in 3.1.1.
    assert_answer(Some(CONNECT), &[0xc0, 0x80, 0x00], &["PINGRESP"]);
    assert_answer(Some(CONNECT), &[0xc0, 0x80, 0x80, 0x80, 0x00], &["PINGRESP"]);
}

/// The two-byte length of each string points past the packet.
#[test]
fn lengths_that_point_past_the_packet() {
    let publish = packet::encode("PUBLISH topic=abc qos=1 id=1 payload=x");
    let subscribe = packet::encode("SUBSCRIBE id=1 filter=abc qos=0 filter=def qos=0");
    let unsubscribe = packet::encode("UNSUBSCRIBE id=1 filter=abc filter=def");
    for (bytes, at) in
        [(&publish, 2), (&subscribe, 4), (&subscribe, 10), (&unsubscribe, 4), (&unsubscribe, 9)]
    {
        for length in [0x00ff, 0x0100, 0xffff_u16] {
            let mut bytes = bytes.clone();
            bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
            assert_answer(Some(CONNECT), &bytes, FAULT);
        }
    }
    let connect = packet::encode(PACKETS[9].0);
    for at in 2..connect.len() - 1 {
        let mut bytes = connect.clone();
        bytes[at..at + 2].copy_from_slice(&[0xff, 0xff]);
        let mut world = world(Setup::default());
        world.send_bytes("mallory", &bytes);
        let lines = world.lines_of("mallory");
        // Level and flags share these places: level 255 is a version that is not spoken, and is answered in that of 5.
        assert!(
            lines == FAULT
                || lines == ["CONNACK present=0 code=1", "closed refused"]
                || lines == ["CONNACK present=0 code=0x84", "closed refused"]
                || lines == ["CONNACK present=0 code=0"] && (10..12).contains(&at),
            "{at}: {lines:?}"
        );
        exchange(&mut world);
    }
}

#[test]
fn strings_that_are_no_utf8() {
    for bad in [r"\xff", r"\xc3", r"\xc0\x80", r"\xed\xa0\x80", r"a\x00b", r"\xf8\x88\x80\x80\x80"] {
        for text in [
            format!("PUBLISH topic=\"{bad}\""),
            format!("PUBLISH topic=\"{bad}\" qos=1 id=1"),
            format!("SUBSCRIBE id=1 filter=\"{bad}\" qos=0"),
            format!("SUBSCRIBE id=1 filter=good qos=0 filter=\"{bad}\" qos=0"),
            format!("UNSUBSCRIBE id=1 filter=\"{bad}\""),
        ] {
            assert_answer(Some(CONNECT), &packet::encode(&text), FAULT);
        }
        for text in [
            format!("CONNECT client=\"{bad}\""),
            format!("CONNECT client=c will_topic=\"{bad}\""),
            format!("CONNECT client=c user=\"{bad}\""),
        ] {
            assert_answer(None, &packet::encode(&text), FAULT);
        }
    }
}

#[test]
fn packet_identifier_zero() {
    for text in [
        "PUBLISH topic=t qos=1 id=0",
        "PUBLISH topic=t qos=2 id=0",
        "PUBACK id=0",
        "PUBREC id=0",
        "PUBREL id=0",
        "PUBCOMP id=0",
        "SUBSCRIBE id=0 filter=t qos=0",
        "UNSUBSCRIBE id=0 filter=t",
    ] {
        assert_answer(Some(CONNECT), &packet::encode(text), FAULT);
    }
}

#[test]
fn qos_3_everywhere() {
    assert_answer(Some(CONNECT), &packet::encode("PUBLISH topic=t qos=3 id=1"), FAULT);
    assert_answer(Some(CONNECT), &packet::encode("PUBLISH topic=t qos=3 dup=1 retain=1 id=1"), FAULT);
    assert_answer(Some(CONNECT), &packet::encode("SUBSCRIBE id=1 filter=t qos=3"), FAULT);
    assert_answer(None, &packet::encode("CONNECT client=c will_topic=w will_qos=3"), FAULT);
}

#[test]
fn a_second_connect() {
    assert_answer(Some(CONNECT), &packet::encode(CONNECT), FAULT);
    assert_answer(Some(CONNECT), &packet::encode("CONNECT client=ann"), FAULT);
    let both = [packet::encode(CONNECT), packet::encode(CONNECT)].concat();
    assert_answer(None, &both, &["CONNACK present=0 code=0", "closed protocol_error"]);
}

#[test]
fn anything_before_connect() {
    for (text, _) in &PACKETS[..9] {
        assert_answer(None, &packet::encode(text), FAULT);
    }
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01",
        b"AMQP\x00\x00\x09\x01",
        b"\x00",
        b"\xff\xff\xff\xff",
    ] {
        assert_answer(None, bytes, FAULT);
    }
}

/// The rest of a batch of packets behind a bad one is not looked at.
#[test]
fn nothing_behind_a_fault_is_handled() {
    let mut bytes = packet::encode("PUBLISH topic=bystanders/x payload=before");
    bytes.extend([0xf0, 0x00]);
    bytes.extend(packet::encode("PUBLISH topic=bystanders/x payload=after"));
    let mut world = world(Setup::default());
    world.send("mallory", CONNECT);
    world.lines();
    world.send_bytes("mallory", &bytes);
    let lines = world.lines();
    assert!(lines.contains(&r#"< ann PUBLISH topic=bystanders/x qos=0 payload="before""#.to_owned()));
    assert!(!lines.iter().any(|line| line.contains("after")), "{lines:?}");
    exchange(&mut world);
}
