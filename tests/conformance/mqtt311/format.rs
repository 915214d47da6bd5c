//! Chapters 1 and 2: strings, flags, packet identifiers.

use crate::support::driver::World;
use crate::support::packet;
use crate::support::transcript::check;

/// A CONNECT whose client identifier is these bytes.
fn connect_as(identifier: &[u8]) -> Vec<u8> {
    let mut body = b"\x00\x04MQTT\x04\x02\x00\x00".to_vec();
    body.extend_from_slice(&u16::try_from(identifier.len()).expect("a short text").to_be_bytes());
    body.extend_from_slice(identifier);
    packet::packet(0x10, &body)
}

#[test]
fn m1_5_3_1_ill_formed_utf8_closes_the_connection() {
    let ill_formed: [&[u8]; 6] = [
        b"\xff",
        b"a\xc3",
        b"\xc0\xaf",
        b"\xed\xa0\x80",     // U+D800, a surrogate
        b"\xed\xbf\xbf",     // U+DFFF
        b"\xf4\x90\x80\x80", // above U+10FFFF
    ];
    for bytes in ill_formed {
        let mut world = World::default();
        world.send_bytes("a", &connect_as(bytes));
        assert_eq!(world.lines(), ["< a closed protocol_error"], "client identifier {bytes:02x?}");
        world.send("b", "CONNECT client=b");
        let mut publish = u16::try_from(bytes.len()).expect("a short text").to_be_bytes().to_vec();
        publish.extend_from_slice(bytes);
        world.send_bytes("b", &packet::packet(0x30, &publish));
        assert_eq!(
            world.lines_of("b"),
            ["CONNACK present=0 code=0", "closed protocol_error"],
            "{bytes:02x?}"
        );
    }
}

#[test]
fn m1_5_3_2_u0000_closes_the_connection() {
    check(
        r#"
        > a CONNECT client="a\x00b"
        < a closed protocol_error
        > a CONNECT client=a user="u\x00"
        < a closed protocol_error
        > a CONNECT client=a will_topic="t\x00"
        < a closed protocol_error
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic="t\x00"
        < a closed protocol_error
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter="\x00" qos=0
        < a closed protocol_error
        "#,
    );
}

#[test]
fn m1_5_3_3_a_byte_order_mark_is_a_character() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=0
        < a SUBACK id=1 codes=0
        > a SUBSCRIBE id=2 filter="﻿u" qos=0
        < a SUBACK id=2 codes=0
        > a PUBLISH topic="﻿t" payload="not t"
        > a PUBLISH topic="﻿u" payload="kept as it is"
        < a PUBLISH topic="﻿u" qos=0 payload="kept as it is"
        "#,
    );
}

/// Every first byte whose reserved bits are wrong.
#[test]
fn m2_2_2_1_reserved_flag_bits_have_their_value() {
    for (name, right, body) in [
        ("PUBACK", 0x40, &b"\x00\x01"[..]),
        ("PUBREC", 0x50, b"\x00\x01"),
        ("PUBREL", 0x62, b"\x00\x01"),
        ("PUBCOMP", 0x70, b"\x00\x01"),
        ("SUBSCRIBE", 0x82, b"\x00\x01\x00\x01t\x00"),
        ("UNSUBSCRIBE", 0xa2, b"\x00\x01\x00\x01t"),
        ("PINGREQ", 0xc0, b""),
        ("DISCONNECT", 0xe0, b""),
    ] {
        for flags in 0..16 {
            let header = right & 0xf0 | flags;
            let mut world = World::default();
            world.send("a", "CONNECT client=a");
            world.send_bytes("a", &packet::packet(header, body));
            let closed = world.lines_of("a").contains(&"closed protocol_error".to_owned());
            assert_eq!(closed, header != right, "{name} with first byte {header:#04x}");
        }
    }
}

#[test]
fn m2_2_2_2_invalid_flags_close_the_connection() {
    for flags in 1..16 {
        let mut world = World::default();
        let mut connect = packet::encode("CONNECT client=a");
        connect[0] |= flags;
        world.send_bytes("a", &connect);
        assert_eq!(world.lines(), ["< a closed protocol_error"], "CONNECT with flags {flags}");
    }
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a HEX c1 00
        < a closed protocol_error
        "#,
    );
}

#[test]
fn m2_3_1_1_packet_identifier_zero_closes_the_connection() {
    for text in [
        "PUBLISH topic=t qos=1 id=0",
        "PUBLISH topic=t qos=2 id=0",
        "SUBSCRIBE id=0 filter=t qos=0",
        "UNSUBSCRIBE id=0 filter=t",
    ] {
        let mut world = World::default();
        world.send("a", "CONNECT client=a");
        world.send("a", text);
        assert_eq!(world.lines_of("a"), ["CONNACK present=0 code=0", "closed protocol_error"], "{text}");
    }
}

#[test]
fn m2_3_1_4_deliveries_take_identifiers_that_are_not_in_use() {
    let mut world = World::default();
    world.send("sub", "CONNECT client=sub");
    world.send("sub", "SUBSCRIBE id=1 filter=t qos=2");
    world.send("pub", "CONNECT client=pub");
    world.lines();
    // Identifier 1 stays in flight, identifier 2 in release, while all others go round.
    for (id, qos) in [(1, 1), (2, 2)] {
        world.send("pub", &format!("PUBLISH topic=t qos={qos} id={id}"));
    }
    world.send("sub", "PUBREC id=2");
    assert!(world.lines_of("sub").contains(&"PUBREL id=2".to_owned()));
    let mut expected = 3;
    for _ in 0..3_700 {
        let mut lines = Vec::new();
        for _ in 0..18 {
            world.queue("pub", "PUBLISH topic=t qos=1 id=9");
            lines.push(format!("PUBLISH topic=t qos=1 id={expected} payload=\"\""));
            world.queue("sub", &format!("PUBACK id={expected}"));
            expected = if expected == 65_535 { 3 } else { expected + 1 };
        }
        world.settle();
        assert_eq!(world.lines_of("sub"), lines);
    }
}

#[test]
fn m2_3_1_5_qos0_has_no_packet_identifier() {
    // Were there an identifier, the payload would lack its first two bytes.
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=2
        < a SUBACK id=1 codes=2
        > a HEX 30 06 00 01 74 00 07 78
        < a PUBLISH topic=t qos=0 payload="\x00\x07x"
        "#,
    );
}

#[test]
fn m2_3_1_6_acknowledgements_carry_the_identifier_of_their_publish() {
    check(
        r#"
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=2 id=4711
        < pub PUBREC id=4711
        < sub PUBLISH topic=t qos=2 id=1 payload=""
        > pub PUBREL id=4711
        < pub PUBCOMP id=4711
        > sub PUBREC id=1
        < sub PUBREL id=1
        > pub PUBLISH topic=u qos=1 id=65535
        < pub PUBACK id=65535
        "#,
    );
}

#[test]
fn m2_3_1_7_suback_and_unsuback_carry_the_identifier_they_answer() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=65535 filter=t qos=1
        < a SUBACK id=65535 codes=1
        > a UNSUBSCRIBE id=256 filter=t
        < a UNSUBACK id=256
        "#,
    );
}
