//! Every malformed form by its rule: `m2_2_2_2` is [MQTT-2.2.2-2] of MQTT 3.1.1. Laws over random packets, hostile
//! input and the foreign oracle stand in `tests/codec`.

use super::client::{
    ConnAck, ServerPacket, decode_server_packet, encode_connect, encode_subscribe, encode_unsubscribe,
};
use super::*;
use crate::mqtt::topic::TopicName;

const V31: ProtocolVersion = ProtocolVersion::V31;
const V311: ProtocolVersion = ProtocolVersion::V311;

/// A packet with this first byte around `body`.
fn packet(first_byte: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_fixed_header(&mut out, first_byte, body.len(), body.len()).unwrap();
    out.extend_from_slice(body);
    out
}

fn string(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_binary(&mut out, text).unwrap();
    out
}

/// Body of a CONNECT with client identifier `c` and these further fields.
fn connect(name: &[u8], level: u8, flags: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut body = string(name);
    body.extend_from_slice(&[level, flags, 0, 60]);
    body.extend_from_slice(&string(b"c"));
    for field in fields {
        body.extend_from_slice(&string(field));
    }
    packet(0x10, &body)
}

fn refused(input: &[u8], version: Option<ProtocolVersion>) -> ProtocolError {
    match decode(input, version, usize::MAX) {
        Err(error) => error,
        Ok(decoded) => panic!("accepted {input:02x?} as {decoded:?}"),
    }
}

fn accepted(input: &[u8], version: Option<ProtocolVersion>) -> ControlPacket<'_> {
    match decode(input, version, usize::MAX) {
        Ok(Decoded::Packet { packet, consumed }) => {
            assert_eq!(consumed, input.len());
            packet
        }
        other => panic!("{input:02x?} gives {other:?}"),
    }
}

#[track_caller]
fn check(rule: &str, version: ProtocolVersion, input: &[u8]) {
    assert_eq!(refused(input, Some(version)).rule, rule);
}

#[track_caller]
fn check_connect(rule: &str, input: &[u8]) {
    assert_eq!(refused(input, None).rule, rule);
}

#[test]
fn m1_5_3_1_a_string_is_well_formed_utf_8() {
    for bad in
        [&b"\xff"[..], b"\xc0\x80", b"a\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xe2\x82"]
    {
        check("MQTT-1.5.3-1", V311, &packet(0x30, &string(bad)));
        check("MQTT-1.5.3-1", V311, &packet(0x82, &[&[0, 1], &string(bad)[..], &[0]].concat()));
        check("MQTT-1.5.3-1", V311, &packet(0xa2, &[&[0, 1], &string(bad)[..]].concat()));
        check_connect("MQTT-1.5.3-1", &connect(b"MQTT", 4, 0x82, &[bad]));
        check_connect("MQTT-1.5.3-1", &connect(b"MQTT", 4, 0x06, &[bad, b""]));
    }
}

#[test]
fn m1_5_3_2_a_string_holds_no_null_character() {
    check_connect("MQTT-1.5.3-2", &connect(b"MQTT", 4, 0x82, &[b"a\0b"]));
    check("MQTT-4.7.3-2", V311, &packet(0x30, &string(b"a\0b")));
    check("MQTT-4.7.3-2", V311, &packet(0x82, &[&[0, 1], &string(b"\0")[..], &[0]].concat()));
}

#[test]
fn m1_5_3_3_a_byte_order_mark_is_kept() {
    let input = packet(0x30, &string("\u{feff}a".as_bytes()));
    let ControlPacket::Publish(publish) = accepted(&input, Some(V311)) else { panic!("no PUBLISH") };
    assert_eq!(publish.topic.as_str(), "\u{feff}a");
}

#[test]
fn control_characters_and_non_characters_pass() {
    let text = "\u{1}\u{7f}\u{9f}\u{ffff}\u{1fffe}";
    let input = connect(b"MQTT", 4, 0x82, &[text.as_bytes()]);
    let ControlPacket::Connect(connect) = accepted(&input, None) else { panic!("no CONNECT") };
    assert_eq!(connect.user_name, Some(text));
}

#[test]
fn m2_2_2_2_reserved_flags_are_refused() {
    for packet_type in (1..15).filter_map(PacketType::from_number) {
        if packet_type == PacketType::Publish {
            continue;
        }
        let right = packet_type.first_byte() & 0x0f;
        for flags in (0..16).filter(|flags| *flags != right) {
            let version = if packet_type == PacketType::Connect { None } else { Some(V311) };
            // The first byte suffices.
            let error = refused(&[packet_type.first_byte() & 0xf0 | flags], version);
            assert_eq!((error.rule, error.fault), ("MQTT-2.2.2-2", Fault::MalformedPacket));
        }
    }
}

#[test]
fn mqtt_3_1_clients_may_set_dup_where_3_1_1_reserves_it() {
    assert_eq!(
        accepted(&[0x6a, 2, 0, 7], Some(V31)),
        ControlPacket::PubRel(Acknowledgement::success(PacketIdentifier::new(7).unwrap()))
    );
    accepted(&packet(0x8a, &[0, 1, 0, 1, b'a', 1]), Some(V31));
    accepted(&packet(0xaa, &[0, 1, 0, 1, b'a']), Some(V31));
}

#[test]
fn packet_types_0_and_15_are_refused_by_the_first_byte() {
    for first in [0x00, 0x0f, 0xf0, 0xff] {
        assert_eq!(refused(&[first], Some(V311)).rule, "section 2.2.1");
        assert_eq!(refused(&[first], None).rule, "section 2.2.1");
    }
}

#[test]
fn a_remaining_length_has_four_bytes_at_most() {
    assert_eq!(refused(&[0x30, 0xff, 0xff, 0xff, 0xff], Some(V311)).rule, "section 2.2.3");
    assert_eq!(refused(&[0x10, 0x80, 0x80, 0x80, 0x80, 0x00], None).rule, "section 2.2.3");
    let largest = FixedHeader::decode(&[0x30, 0xff, 0xff, 0xff, 0x7f], Some(V311)).unwrap().unwrap();
    assert_eq!((largest.0.remaining_length, largest.1), (REMAINING_LENGTH_MAX, 5));
    for cut in 0..5 {
        assert_eq!(FixedHeader::decode(&[0x30, 0xff, 0xff, 0xff, 0x7f][..cut], Some(V311)), Ok(None));
    }
}

#[test]
fn a_remaining_length_need_not_be_the_shortest_form() {
    assert_eq!(accepted(&[0xc0, 0x80, 0x00], Some(V311)), ControlPacket::PingReq);
}

#[test]
fn remaining_lengths_at_each_width_are_read_as_written() {
    for length in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, REMAINING_LENGTH_MAX] {
        let mut out = Vec::new();
        wire::put_fixed_header(&mut out, 0x30, length, 0).unwrap();
        let (header, header_bytes) = FixedHeader::decode(&out, Some(V311)).unwrap().unwrap();
        assert_eq!((header.remaining_length, header_bytes), (length, out.len()));
    }
    let mut out = Vec::new();
    let refused = wire::put_fixed_header(&mut out, 0x30, REMAINING_LENGTH_MAX + 1, 0);
    assert_eq!((refused, out), (Err(EncodeError::PacketTooLarge), vec![]));
}

#[test]
fn an_oversize_packet_is_refused_before_its_body() {
    let error = decode(&[0x30, 0x80, 0x80, 0x80, 0x01], Some(V311), 2 * 1024 * 1024).unwrap_err();
    assert_eq!(error.fault, Fault::PacketTooLarge);
    let error = decode(&[0x10, 0xff, 0xff, 0xff, 0x7f], None, 256 * 1024).unwrap_err();
    assert_eq!(error.fault, Fault::PacketTooLarge);
    assert_eq!(
        decode(&[0x30, 0x80, 0x01], Some(V311), 131),
        Ok(Decoded::Incomplete { needed: 131 }),
        "the limit counts the fixed header"
    );
}

#[test]
fn m2_3_1_1_packet_identifier_zero_is_refused() {
    for first in [0x40, 0x50, 0x62, 0x70] {
        check("MQTT-2.3.1-1", V311, &[first, 2, 0, 0]);
    }
    check("MQTT-2.3.1-1", V311, &packet(0x32, &[0, 1, b'a', 0, 0]));
    check("MQTT-2.3.1-1", V31, &packet(0x34, &[0, 1, b'a', 0, 0, b'x']));
    check("MQTT-2.3.1-1", V311, &packet(0x82, &[0, 0, 0, 1, b'a', 0]));
    check("MQTT-2.3.1-1", V311, &packet(0xa2, &[0, 0, 0, 1, b'a']));
}

#[test]
fn m3_1_0_1_the_first_packet_is_connect() {
    for packet_type in (2..15).filter_map(PacketType::from_number).filter(|t| t.from_client()) {
        // The fixed header suffices, whatever length it claims.
        let error = refused(&[packet_type.first_byte(), 0xff, 0x7f], None);
        assert_eq!((error.rule, error.fault), ("MQTT-3.1.0-1", Fault::ProtocolViolation));
    }
}

#[test]
fn m3_1_0_2_a_second_connect_is_refused() {
    check("MQTT-3.1.0-2", V311, &[0x10, 12]);
    check("MQTT-3.1.0-2", V31, &connect(b"MQTT", 4, 2, &[]));
}

#[test]
fn packets_of_the_wrong_side_are_refused() {
    for packet_type in (1..15).filter_map(PacketType::from_number) {
        let input = [packet_type.first_byte(), 0xff, 0x7f];
        let from_client = decode(&input, Some(V311), usize::MAX);
        if !packet_type.from_client() {
            assert_eq!(from_client.unwrap_err().fault, Fault::ProtocolViolation, "{packet_type:?}");
        }
        let from_server = decode_server_packet(&input, V311, usize::MAX);
        if packet_type.from_server(V311) {
            assert!(from_server.is_ok(), "{packet_type:?}");
        } else {
            assert_eq!(from_server.unwrap_err().fault, Fault::ProtocolViolation, "{packet_type:?}");
        }
    }
}

#[test]
fn m3_1_2_1_a_foreign_protocol_name_is_refused() {
    for name in [&b"mqtt"[..], b"", b"MQTTX", b"HTTP", b"MQIsdpx"] {
        let error = refused(&connect(name, 4, 2, &[]), None);
        assert_eq!((error.rule, error.fault), ("MQTT-3.1.2-1", Fault::ProtocolViolation));
    }
}

#[test]
fn m3_1_2_2_an_unknown_level_is_told_apart_whatever_follows() {
    for (name, level) in [
        ("MQTT", 3),
        ("MQTT", 6),
        ("MQTT", 0),
        ("MQTT", 0x86),
        ("MQIsdp", 4),
        ("MQIsdp", 5),
        ("MQIsdp", 0x84),
    ] {
        let mut body = string(name.as_bytes());
        body.push(level);
        body.extend_from_slice(b"\xff\xff\xff");
        let error = refused(&packet(0x10, &body), None);
        assert_eq!((error.rule, error.fault), ("MQTT-3.1.2-2", Fault::UnacceptableProtocolVersion));
    }
}

#[test]
fn levels_with_the_bridge_bit_are_3_and_4() {
    for (name, level, version, bridge) in [
        ("MQIsdp", 3, V31, false),
        ("MQTT", 4, V311, false),
        ("MQIsdp", 0x83, V31, true),
        ("MQTT", 0x84, V311, true),
    ] {
        let input = connect(name.as_bytes(), level, 2, &[]);
        let ControlPacket::Connect(connect) = accepted(&input, None) else { panic!("no CONNECT") };
        assert_eq!((connect.version, connect.bridge), (version, bridge));
    }
}

#[test]
fn m3_1_2_3_the_reserved_connect_flag_is_zero() {
    check_connect("MQTT-3.1.2-3", &connect(b"MQTT", 4, 0x03, &[]));
    accepted(&connect(b"MQIsdp", 3, 0x03, &[]), None);
}

#[test]
fn m3_1_2_13_no_will_means_will_qos_zero() {
    for qos in 1..4 {
        check_connect("MQTT-3.1.2-13", &connect(b"MQTT", 4, 0x02 | qos << 3, &[]));
        accepted(&connect(b"MQIsdp", 3, 0x02 | qos << 3, &[]), None);
    }
}

#[test]
fn m3_1_2_14_will_qos_is_not_3() {
    check_connect("MQTT-3.1.2-14", &connect(b"MQTT", 4, 0x1e, &[b"w", b""]));
    check_connect("MQTT-3.1.2-14", &connect(b"MQIsdp", 3, 0x1e, &[b"w", b""]));
}

#[test]
fn m3_1_2_15_no_will_means_no_will_retain() {
    check_connect("MQTT-3.1.2-15", &connect(b"MQTT", 4, 0x22, &[]));
    accepted(&connect(b"MQIsdp", 3, 0x22, &[]), None);
}

#[test]
fn m3_1_2_11_fields_without_their_flag_are_trailing_bytes() {
    check_connect("section 2.2.3", &connect(b"MQTT", 4, 0x02, &[b"will/topic", b"message"]));
    check_connect("section 2.2.3", &connect(b"MQTT", 4, 0x82, &[b"user", b"password"]));
}

#[test]
fn m3_1_2_9_flags_without_their_fields_are_refused() {
    check_connect("section 2.2.3", &connect(b"MQTT", 4, 0x06, &[]));
    check_connect("section 2.2.3", &connect(b"MQTT", 4, 0x06, &[b"will/topic"]));
    check_connect("section 2.2.3", &connect(b"MQTT", 4, 0x82, &[]));
    check_connect("section 2.2.3", &connect(b"MQTT", 4, 0xc2, &[b"user"]));
}

#[test]
fn in_mqtt_3_1_the_remaining_length_overrules_user_name_and_password_flags() {
    for fields in [&[][..], &[&b"user"[..]], &[b"user", b"pass"]] {
        let input = connect(b"MQIsdp", 3, 0xc2, fields);
        let ControlPacket::Connect(connect) = accepted(&input, None) else { panic!("no CONNECT") };
        assert_eq!(connect.user_name, fields.first().map(|_| "user"));
        assert_eq!(connect.password, fields.get(1).copied());
    }
    let mut cut_inside = connect(b"MQIsdp", 3, 0xc2, &[b"user"]);
    cut_inside.pop();
    cut_inside[1] -= 1;
    check_connect("section 2.2.3", &cut_inside);
}

#[test]
fn m3_1_2_22_a_password_needs_a_user_name() {
    check_connect("MQTT-3.1.2-22", &connect(b"MQTT", 4, 0x42, &[b"secret"]));
    check_connect("MQTT-3.1.2-22", &connect(b"MQIsdp", 3, 0x42, &[b"secret"]));
}

#[test]
fn a_will_topic_is_a_topic_name() {
    for (topic, rule) in [
        (&b""[..], "MQTT-4.7.3-1"),
        (b"a/#", "MQTT-3.3.2-2"),
        (b"+", "MQTT-3.3.2-2"),
        (b"\0", "MQTT-4.7.3-2"),
    ] {
        check_connect(rule, &connect(b"MQTT", 4, 0x06, &[topic, b"gone"]));
    }
}

#[test]
fn a_connect_with_everything_is_read_field_by_field() {
    let input = connect(b"MQTT", 4, 0xf6, &[b"will/topic", b"\x00\xff", b"user", b"\x00secret"]);
    let ControlPacket::Connect(connect) = accepted(&input, None) else { panic!("no CONNECT") };
    let expected = Connect {
        version: V311,
        bridge: false,
        clean_session: true,
        keep_alive_s: 60,
        client_identifier: "c",
        will: Some(Will {
            topic: TopicName::parse("will/topic").unwrap(),
            payload: b"\x00\xff",
            qos: QualityOfService::ExactlyOnce,
            retain: true,
            properties: Properties::NONE,
        }),
        user_name: Some("user"),
        password: Some(b"\x00secret"),
        properties: Properties::NONE,
    };
    assert_eq!(*connect, expected);
    assert!(!format!("{connect:?}").contains("secret"), "a password stays out of logs");
    let mut out = Vec::new();
    encode_connect(&mut out, &connect).unwrap();
    assert_eq!(out, input);
}

#[test]
fn m3_1_3_6_an_empty_client_identifier_is_for_the_endpoint_to_judge() {
    for flags in [0, 2] {
        let mut body = string(b"MQTT");
        body.extend_from_slice(&[4, flags, 0, 0, 0, 0]);
        let input = packet(0x10, &body);
        let ControlPacket::Connect(connect) = accepted(&input, None) else { panic!("no CONNECT") };
        assert_eq!((connect.client_identifier, connect.clean_session), ("", flags == 2));
    }
}

#[test]
fn m3_2_2_4_a_refusal_says_that_no_session_is_present() {
    let mut out = Vec::new();
    encode_connack(&mut out, true, ConnectReturnCode::NotAuthorized, V311);
    assert_eq!(out, [0x20, 2, 0, 5]);
    let error = decode_server_packet(&[0x20, 2, 1, 5], V311, usize::MAX).unwrap_err();
    assert_eq!(error.rule, "MQTT-3.2.2-4");
}

#[test]
fn session_present_exists_in_3_1_1_only() {
    for (version, flags) in [(V311, 1), (V31, 0)] {
        let mut out = Vec::new();
        encode_connack(&mut out, true, ConnectReturnCode::Accepted, version);
        assert_eq!(out, [0x20, 2, flags, 0]);
        let connack = ConnAck { session_present: flags == 1, return_code: ConnectReturnCode::Accepted };
        let packet = ServerPacket::ConnAck(connack);
        assert_eq!(
            decode_server_packet(&out, version, usize::MAX),
            Ok(Decoded::Packet { packet, consumed: 4 })
        );
    }
}

#[test]
fn m3_3_1_2_dup_is_zero_with_qos_0() {
    check("MQTT-3.3.1-2", V311, &[0x38]);
    let input = packet(0x38, &string(b"a"));
    let ControlPacket::Publish(publish) = accepted(&input, Some(V31)) else { panic!("no PUBLISH") };
    assert!(!publish.duplicate, "it has no meaning there");
}

#[test]
fn m3_3_1_4_qos_3_is_refused_by_the_first_byte() {
    for first in [0x36, 0x37, 0x3e, 0x3f] {
        check("MQTT-3.3.1-4", V311, &[first]);
        check("MQTT-3.3.1-4", V31, &[first]);
    }
}

#[test]
fn m3_3_2_2_a_topic_name_holds_no_wildcard() {
    for topic in [&b"#"[..], b"+", b"a/+/b", b"a#", b"a+b"] {
        let error = refused(&packet(0x30, &string(topic)), Some(V311));
        assert_eq!((error.rule, error.fault), ("MQTT-3.3.2-2", Fault::TopicNameInvalid));
    }
}

#[test]
fn m4_7_3_1_a_topic_has_a_character() {
    check("MQTT-4.7.3-1", V311, &packet(0x30, &[0, 0]));
    check("MQTT-4.7.3-1", V311, &packet(0x82, &[0, 1, 0, 0, 0]));
    check("MQTT-4.7.3-1", V311, &packet(0xa2, &[0, 1, 0, 0]));
}

#[test]
fn m4_7_1_2_and_3_filters_have_their_wildcards_in_place() {
    for (filter, rule) in
        [(&b"a/#/b"[..], "MQTT-4.7.1-2"), (b"a#", "MQTT-4.7.1-2"), (b"a/b+", "MQTT-4.7.1-3")]
    {
        let subscribe = packet(0x82, &[&[0, 1], &string(filter)[..], &[0]].concat());
        let error = refused(&subscribe, Some(V311));
        assert_eq!((error.rule, error.fault), (rule, Fault::TopicFilterInvalid));
        check(rule, V311, &packet(0xa2, &[&[0, 1], &string(filter)[..]].concat()));
    }
}

#[test]
fn the_longest_topic_passes_and_the_payload_is_bytes() {
    let topic = vec![b'a'; 65_535];
    let input = packet(0x33, &[&string(&topic)[..], &[0xff, 0xff], b"\x00\xff\xfe"].concat());
    let ControlPacket::Publish(publish) = accepted(&input, Some(V311)) else { panic!("no PUBLISH") };
    assert_eq!(publish.topic.as_str().len(), 65_535);
    assert_eq!(publish.payload, b"\x00\xff\xfe");
    assert_eq!(publish.packet_identifier.map(PacketIdentifier::number), Some(65_535));
    assert!(publish.retain && !publish.duplicate);
}

#[test]
fn a_publish_cut_inside_its_head_is_refused() {
    for body in [&b""[..], b"\0", b"\0\x05ab", b"\0\x01a", b"\0\x01a\0"] {
        check("section 2.2.3", V311, &packet(0x32, body));
    }
}

#[test]
fn acknowledgements_are_an_identifier_and_nothing_else() {
    for first in [0x40, 0x50, 0x62, 0x70] {
        for body in [&[][..], &[1], &[0, 1, 0]] {
            check("section 2.2.3", V311, &packet(first, body));
        }
    }
}

#[test]
fn pingreq_and_disconnect_are_empty() {
    for first in [0xc0, 0xe0] {
        check("section 2.2.3", V311, &[first, 1, 0]);
    }
}

#[test]
fn m3_8_3_3_subscribe_has_a_filter() {
    check("MQTT-3.8.3-3", V311, &[0x82, 2, 0, 1]);
    check("MQTT-3.8.3-3", V31, &[0x82, 2, 0, 1]);
}

#[test]
fn m3_8_3_4_requested_qos_is_0_to_2_without_reserved_bits() {
    for qos in [3, 4, 0x80, 0x81, 0xff] {
        check("MQTT-3.8.3-4", V311, &packet(0x82, &[0, 1, 0, 1, b'a', qos]));
    }
    check("MQTT-3.8.3-4", V31, &packet(0x82, &[0, 1, 0, 1, b'a', 3]));
    let input = packet(0x82, &[0, 1, 0, 1, b'a', 0xfd]);
    let ControlPacket::Subscribe(subscribe) = accepted(&input, Some(V31)) else { panic!("no SUBSCRIBE") };
    let qos: Vec<_> = subscribe.subscriptions.map(|subscription| subscription.qos).collect();
    assert_eq!(qos, [QualityOfService::AtLeastOnce], "MQTT 3.1 does not use the upper bits");
}

#[test]
fn subscribe_with_a_bad_later_filter_is_refused_whole() {
    check("MQTT-4.7.1-2", V311, &packet(0x82, &[0, 1, 0, 1, b'a', 0, 0, 2, b'#', b'a', 0]));
    check("section 2.2.3", V311, &packet(0x82, &[0, 1, 0, 1, b'a', 0, 0, 1, b'b']));
}

#[test]
fn m3_10_3_2_unsubscribe_has_a_filter() {
    check("MQTT-3.10.3-2", V311, &[0xa2, 2, 0, 1]);
}

#[test]
fn m3_9_3_2_reserved_suback_codes_are_refused() {
    for code in [3, 0x7f, 0x81, 0xff] {
        let error = decode_server_packet(&[0x90, 3, 0, 1, code], V311, usize::MAX).unwrap_err();
        assert_eq!(error.rule, "MQTT-3.9.3-2");
    }
    let error = decode_server_packet(&[0x90, 2, 0, 1], V311, usize::MAX).unwrap_err();
    assert_eq!(error.rule, "MQTT-3.8.4-5");
}

#[test]
fn replies_have_these_bytes() {
    let identifier = PacketIdentifier::new(0x1234).unwrap();
    let mut out = Vec::new();
    encode_puback(&mut out, identifier);
    encode_pubrec(&mut out, identifier);
    encode_pubrel(&mut out, identifier);
    encode_pubcomp(&mut out, identifier);
    encode_unsuback(&mut out, identifier);
    encode_pingresp(&mut out);
    let codes = [
        SubscribeReturnCode::Granted(QualityOfService::ExactlyOnce),
        SubscribeReturnCode::Failure,
        SubscribeReturnCode::Granted(QualityOfService::AtMostOnce),
    ];
    encode_suback(&mut out, identifier, None, &codes).unwrap();
    let expected = "40021234 50021234 62021234 70021234 b0021234 d000 90051234028000".replace(' ', "");
    let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected);
}

#[test]
fn what_has_no_wire_form_leaves_no_bytes() {
    let long = "x".repeat(65_536);
    let base = Connect {
        version: V311,
        bridge: false,
        clean_session: true,
        keep_alive_s: 0,
        client_identifier: "c",
        will: None,
        user_name: None,
        password: None,
        properties: Properties::NONE,
    };
    let publish = Publish {
        topic: TopicName::parse("a").unwrap(),
        qos: QualityOfService::AtLeastOnce,
        retain: false,
        duplicate: false,
        packet_identifier: None,
        properties: None,
        payload: b"",
    };
    let identifier = PacketIdentifier::new(1).unwrap();
    let mut out = Vec::new();
    assert_eq!(
        encode_connect(&mut out, &Connect { client_identifier: &long, ..base }),
        Err(EncodeError::FieldTooLong)
    );
    assert_eq!(
        encode_connect(&mut out, &Connect { password: Some(b"secret"), ..base }),
        Err(EncodeError::PasswordWithoutUserName)
    );
    assert_eq!(encode_publish(&mut out, &publish), Err(EncodeError::PacketIdentifierMissing));
    assert_eq!(encode_suback(&mut out, identifier, None, &[]), Err(EncodeError::NoEntries));
    assert_eq!(encode_subscribe(&mut out, identifier, None, &[]), Err(EncodeError::NoEntries));
    assert_eq!(encode_unsubscribe(&mut out, identifier, None, &[]), Err(EncodeError::NoEntries));
    assert!(out.is_empty());
}

#[test]
fn errors_name_their_rule() {
    assert_eq!(refused(&[0x40, 2, 0, 0], Some(V311)).to_string(), "packet identifier is zero [MQTT-2.3.1-1]");
}
