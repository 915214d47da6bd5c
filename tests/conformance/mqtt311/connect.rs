//! Sections 3.1 and 3.2: CONNECT and CONNACK.

use crate::support::driver::World;
use crate::support::packet;
use crate::support::transcript::check;

const ACCEPTED: &str = "< a CONNACK present=0 code=0";
const FAULT: &str = "< a closed protocol_error";

/// The body of a CONNECT with these flags, and these fields as payload.
fn connect(flags: u8, fields: &[&str]) -> Vec<u8> {
    let mut body = b"\x00\x04MQTT\x04".to_vec();
    body.extend_from_slice(&[flags, 0, 0]);
    for field in fields {
        body.extend_from_slice(&u16::try_from(field.len()).expect("a short text").to_be_bytes());
        body.extend_from_slice(field.as_bytes());
    }
    packet::packet(0x10, &body)
}

/// What a fresh gateway answers.
fn answers(bytes: &[u8]) -> Vec<String> {
    let mut world = World::default();
    world.send_bytes("a", bytes);
    world.lines()
}

#[test]
fn m3_1_0_1_the_first_packet_is_connect() {
    for text in [
        "PUBLISH topic=t",
        "PUBLISH topic=t qos=1 id=1",
        "PUBACK id=1",
        "PUBREC id=1",
        "PUBREL id=1",
        "PUBCOMP id=1",
        "SUBSCRIBE id=1 filter=t qos=0",
        "UNSUBSCRIBE id=1 filter=t",
        "PINGREQ",
        "DISCONNECT",
    ] {
        assert_eq!(answers(&packet::encode(text)), [FAULT], "{text}");
    }
}

#[test]
fn m3_1_0_2_a_second_connect_disconnects() {
    check(
        r#"
        > watch CONNECT client=watch
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=w qos=0
        < watch SUBACK id=1 codes=0
        > a CONNECT client=a will_topic=w will_payload="a broke the rules"
        < a CONNACK present=0 code=0
        > a CONNECT client=a
        < a closed protocol_error
        < watch PUBLISH topic=w qos=0 payload="a broke the rules"
        "#,
    );
}

#[test]
fn m3_1_2_1_another_protocol_name_is_not_processed() {
    for name in ["mqtt", "MQTTT", "MQT", "HTTP", "\"\"", "MQISDP"] {
        assert_eq!(answers(&packet::encode(&format!("CONNECT name={name} client=a"))), [FAULT], "{name}");
    }
}

#[test]
fn m3_1_2_2_an_unknown_protocol_level_gets_0x01() {
    for level in [0, 1, 2, 3, 0x80, 0x83] {
        let answer = answers(&packet::encode(&format!("CONNECT level={level} client=a")));
        assert_eq!(answer, ["< a CONNACK present=0 code=1", "< a closed refused"], "level {level}");
    }
    // Whoever speaks a later version reads version 5's answer at best.
    for level in [6, 127, 0x86, 255] {
        let answer = answers(&packet::encode(&format!("CONNECT level={level} client=a")));
        assert_eq!(answer, ["< a CONNACK present=0 code=0x84", "< a closed refused"], "level {level}");
    }
}

#[test]
fn m3_1_2_3_the_reserved_connect_flag_is_zero() {
    assert_eq!(answers(&packet::encode("CONNECT client=a flags=1")), [FAULT]);
}

#[test]
fn m3_1_2_4_clean_session_0_resumes_the_session() {
    check(
        r#"
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=1
        < a SUBACK id=1 codes=1
        ! a reset
        < a closed peer_closed
        > a CONNECT client=a clean=0
        < a CONNACK present=1 code=0
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b PUBLISH topic=t payload="still subscribed"
        < a PUBLISH topic=t qos=0 payload="still subscribed"
        "#,
    );
}

#[test]
fn m3_1_2_5_messages_are_kept_while_the_client_is_away() {
    check(
        r#"
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=2
        < a SUBACK id=1 codes=2
        > a DISCONNECT
        < a closed disconnect
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b PUBLISH topic=t qos=1 id=1 payload="one"
        < b PUBACK id=1
        > b PUBLISH topic=t qos=2 id=2 payload="two"
        < b PUBREC id=2
        > a CONNECT client=a clean=0
        < a CONNACK present=1 code=0
        < a PUBLISH topic=t qos=1 id=1 payload="one"
        < a PUBLISH topic=t qos=2 id=2 payload="two"
        "#,
    );
}

#[test]
fn m3_1_2_6_clean_session_1_discards_the_session() {
    check(
        r#"
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=1
        < a SUBACK id=1 codes=1
        > a DISCONNECT
        < a closed disconnect
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b PUBLISH topic=t qos=1 id=1 payload="for the first session"
        < b PUBACK id=1
        > a CONNECT client=a clean=1
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=2 filter=u qos=1
        < a SUBACK id=2 codes=1
        > a DISCONNECT
        < a closed disconnect
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > b PUBLISH topic=t qos=1 id=2
        < b PUBACK id=2
        > b PUBLISH topic=u qos=1 id=3
        < b PUBACK id=3
        "#,
    );
}

#[test]
fn m3_1_2_7_retained_messages_outlive_the_session() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=t qos=1 retain=1 id=1 payload="v"
        < a PUBACK id=1
        > a DISCONNECT
        < a closed disconnect
        > a CONNECT client=a clean=1
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=1
        < a SUBACK id=1 codes=1
        < a PUBLISH topic=t qos=1 retain=1 id=1 payload="v"
        "#,
    );
}

#[test]
fn m3_1_2_8_the_will_is_published_unless_the_client_takes_leave() {
    check(
        r#"
        > watch CONNECT client=watch
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=w qos=0
        < watch SUBACK id=1 codes=0
        > a CONNECT client=a will_topic=w will_payload="reset"
        < a CONNACK present=0 code=0
        ! a reset
        < a closed peer_closed
        < watch PUBLISH topic=w qos=0 payload="reset"
        > a CONNECT client=a will_topic=w will_payload="silent" keep_alive=2
        < a CONNACK present=0 code=0
        @ +3s
        < a closed keep_alive_timeout
        < watch PUBLISH topic=w qos=0 payload="silent"
        > a CONNECT client=a will_topic=w will_payload="wrong"
        < a CONNACK present=0 code=0
        > a HEX f0 00
        < a closed protocol_error
        < watch PUBLISH topic=w qos=0 payload="wrong"
        "#,
    );
}

#[test]
fn m3_1_2_9_the_will_has_its_qos_and_retain_flag() {
    check(
        r#"
        > watch CONNECT client=watch
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=w qos=2
        < watch SUBACK id=1 codes=2
        > a CONNECT client=a will_topic=w will_qos=2 will_payload="gone"
        < a CONNACK present=0 code=0
        ! a reset
        < a closed peer_closed
        < watch PUBLISH topic=w qos=2 id=1 payload="gone"
        "#,
    );
    // The flag without topic or message.
    assert_eq!(answers(&connect(0b0000_0110, &["a"])), [FAULT]);
    assert_eq!(answers(&connect(0b0000_0110, &["a", "w"])), [FAULT]);
}

#[test]
fn m3_1_2_10_a_will_is_published_once_and_forgotten() {
    check(
        r#"
        > watch CONNECT client=watch clean=0
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=w qos=1
        < watch SUBACK id=1 codes=1
        > a CONNECT client=a clean=0 will_topic=w will_qos=1 will_payload="gone"
        < a CONNACK present=0 code=0
        ! a reset
        < a closed peer_closed
        < watch PUBLISH topic=w qos=1 id=1 payload="gone"
        > watch PUBACK id=1
        > a CONNECT client=a clean=0
        < a CONNACK present=1 code=0
        ! a reset
        < a closed peer_closed
        > a CONNECT client=a clean=0 will_topic=w will_qos=1 will_payload="taken back"
        < a CONNACK present=1 code=0
        > a DISCONNECT
        < a closed disconnect
        @ +1s
        ! power-cut
        = recovered sessions=2 queued=0 retained=0 wills=0
        > watch CONNECT client=watch clean=0
        < watch CONNACK present=1 code=0
        "#,
    );
}

#[test]
fn m3_1_2_11_without_a_will_its_fields_are_absent() {
    // Two more strings than the flags announce.
    assert_eq!(answers(&connect(0b0000_0010, &["a", "w", "gone"])), [FAULT]);
}

#[test]
fn m3_1_2_12_without_a_will_nothing_is_published() {
    check(
        r#"
        > watch CONNECT client=watch
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=# qos=0
        < watch SUBACK id=1 codes=0
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        ! a reset
        < a closed peer_closed
        "#,
    );
}

#[test]
fn m3_1_2_13_without_a_will_its_qos_is_0() {
    for qos in 1..=3 {
        assert_eq!(answers(&connect(2 | qos << 3, &["a"])), [FAULT], "will QoS {qos}");
    }
}

#[test]
fn m3_1_2_14_the_will_qos_is_not_3() {
    assert_eq!(answers(&packet::encode("CONNECT client=a will_topic=w will_qos=3")), [FAULT]);
    assert_eq!(answers(&packet::encode("CONNECT client=a will_topic=w will_qos=2")), [ACCEPTED]);
}

#[test]
fn m3_1_2_15_without_a_will_will_retain_is_0() {
    assert_eq!(answers(&connect(0b0010_0010, &["a"])), [FAULT]);
}

#[test]
fn m3_1_2_16_will_retain_0_leaves_nothing_behind() {
    check(
        r#"
        > a CONNECT client=a will_topic=w will_payload="gone"
        < a CONNACK present=0 code=0
        ! a reset
        < a closed peer_closed
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b SUBSCRIBE id=1 filter=w qos=0
        < b SUBACK id=1 codes=0
        "#,
    );
}

#[test]
fn m3_1_2_17_will_retain_1_is_the_last_value() {
    check(
        r#"
        > a CONNECT client=a will_topic=w will_retain=1 will_payload="gone"
        < a CONNACK present=0 code=0
        ! a reset
        < a closed peer_closed
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b SUBSCRIBE id=1 filter=w qos=0
        < b SUBACK id=1 codes=0
        < b PUBLISH topic=w qos=0 retain=1 payload="gone"
        "#,
    );
}

#[test]
fn m3_1_2_18_without_its_flag_there_is_no_user_name() {
    assert_eq!(answers(&connect(0b0000_0010, &["a", "user"])), [FAULT]);
}

#[test]
fn m3_1_2_19_with_its_flag_there_is_a_user_name() {
    assert_eq!(answers(&connect(0b1000_0010, &["a"])), [FAULT]);
    assert_eq!(answers(&connect(0b1000_0010, &["a", "user"])), [ACCEPTED]);
}

#[test]
fn m3_1_2_20_without_its_flag_there_is_no_password() {
    assert_eq!(answers(&connect(0b1000_0010, &["a", "user", "password"])), [FAULT]);
}

#[test]
fn m3_1_2_21_with_its_flag_there_is_a_password() {
    assert_eq!(answers(&connect(0b1100_0010, &["a", "user"])), [FAULT]);
    assert_eq!(answers(&connect(0b1100_0010, &["a", "user", "password"])), [ACCEPTED]);
}

#[test]
fn m3_1_2_22_without_a_user_name_there_is_no_password() {
    assert_eq!(answers(&connect(0b0100_0010, &["a", "password"])), [FAULT]);
}

#[test]
fn m3_1_2_24_closes_after_one_and_a_half_keep_alive() {
    check(
        r#"
        > a CONNECT client=a keep_alive=10
        < a CONNACK present=0 code=0
        @ +14s
        > a PINGREQ
        < a PINGRESP
        @ +14s
        > a PUBLISH topic=t
        @ +14s
        @ +1s
        < a closed keep_alive_timeout
        > b CONNECT client=b keep_alive=65535
        < b CONNACK present=0 code=0
        @ +98302s
        @ +1s
        < b closed keep_alive_timeout
        > c CONNECT client=c keep_alive=0
        < c CONNACK present=0 code=0
        @ +365d
        > c PINGREQ
        < c PINGRESP
        "#,
    );
}

#[test]
fn m3_1_3_1_payload_fields_stand_in_order() {
    let mut world = World::default();
    world.send("watch", "CONNECT client=watch");
    world.send("watch", "SUBSCRIBE id=1 filter=# qos=0");
    world.send_bytes("a", &connect(0b1100_0110, &["id", "topic", "message", "user", "password"]));
    let client = world.gateway.client(world.connection("a")).expect("it is connected");
    assert_eq!(&*client.client_identifier, "id");
    world.reset("a");
    let last = world.lines_of("watch").pop();
    assert_eq!(last.as_deref(), Some(r#"PUBLISH topic=topic qos=0 payload="message""#));
}

#[test]
fn m3_1_3_2_the_identifier_names_the_session() {
    check(
        r#"
        > one CONNECT client=a clean=0
        < one CONNACK present=0 code=0
        > one SUBSCRIBE id=1 filter=t qos=1
        < one SUBACK id=1 codes=1
        > one DISCONNECT
        < one closed disconnect
        > other CONNECT client=A clean=0
        < other CONNACK present=0 code=0
        > two CONNECT client=a clean=0
        < two CONNACK present=1 code=0
        "#,
    );
}

#[test]
fn m3_1_3_3_the_identifier_is_there() {
    assert_eq!(answers(&connect(0b0000_0010, &[])), [FAULT]);
}

#[test]
fn m3_1_3_4_the_identifier_is_utf8() {
    assert_eq!(answers(&packet::encode(r#"CONNECT client="Temperaturfühler-θ-温度""#)), [ACCEPTED]);
    let mut bytes = packet::encode("CONNECT client=abc");
    let at = bytes.len() - 1;
    bytes[at] = 0xfc;
    assert_eq!(answers(&bytes), [FAULT]);
}

#[test]
fn m3_1_3_5_identifiers_of_1_to_23_digits_and_letters_are_allowed() {
    let all = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for length in 1..=23 {
        for start in [0, 20, all.len() - length] {
            let identifier = all.get(start..start + length).expect("within the alphabet");
            assert_eq!(answers(&packet::encode(&format!("CONNECT client={identifier}"))), [ACCEPTED]);
        }
    }
}

#[test]
fn m3_1_3_6_an_empty_identifier_gets_one_of_its_own() {
    let mut world = World::default();
    for name in ["a", "b"] {
        world.send(name, r#"CONNECT client="" clean=1"#);
    }
    assert_eq!(world.lines(), ["< a CONNACK present=0 code=0", "< b CONNACK present=0 code=0"]);
    let identifier =
        |name| world.gateway.client(world.connection(name)).expect("it is connected").client_identifier;
    assert_ne!(identifier("a"), identifier("b"));
    assert!(!identifier("a").is_empty());
}

#[test]
fn m3_1_3_8_an_empty_identifier_with_clean_session_0_gets_0x02() {
    let answer = answers(&packet::encode(r#"CONNECT client="" clean=0"#));
    assert_eq!(answer, ["< a CONNACK present=0 code=2", "< a closed refused"]);
}

#[test]
fn m3_1_3_9_a_rejected_identifier_gets_0x02() {
    assert_eq!(answers(&packet::encode("CONNECT client=x*1024")), [ACCEPTED]);
    let answer = answers(&packet::encode("CONNECT client=x*1025"));
    assert_eq!(answer, ["< a CONNACK present=0 code=2", "< a closed refused"]);
}

#[test]
fn m3_1_3_10_the_will_topic_is_utf8() {
    assert_eq!(answers(&packet::encode(r#"CONNECT client=a will_topic="wé""#)), [ACCEPTED]);
    assert_eq!(answers(&packet::encode(r#"CONNECT client=a will_topic="w\xe9""#)), [FAULT]);
}

#[test]
fn m3_1_3_11_the_user_name_is_utf8() {
    assert_eq!(answers(&packet::encode(r#"CONNECT client=a user="é""#)), [ACCEPTED]);
    assert_eq!(answers(&packet::encode(r#"CONNECT client=a user="\xe9""#)), [FAULT]);
    // A password is any bytes.
    assert_eq!(answers(&packet::encode(r#"CONNECT client=a user=u password="\xe9\x00""#)), [ACCEPTED]);
}

#[test]
fn m3_1_4_1_a_connect_that_does_not_conform_gets_no_connack() {
    let whole = packet::encode("CONNECT client=a will_topic=w will_payload=x user=u password=p");
    // Every shorter body, announced as whole.
    for length in 0..whole.len() - 2 {
        let answer = answers(&packet::packet(0x10, &whole[2..2 + length]));
        assert_eq!(answer, [FAULT], "{length} bytes");
    }
    let mut longer = whole[2..].to_vec();
    longer.push(0);
    assert_eq!(answers(&packet::packet(0x10, &longer)), [FAULT]);
}

#[test]
fn m3_1_4_2_the_newest_connection_wins() {
    check(
        r#"
        > one CONNECT client=a
        < one CONNACK present=0 code=0
        > two CONNECT client=a
        < one closed taken_over
        < two CONNACK present=0 code=0
        > three CONNECT client=a clean=0
        < two closed taken_over
        < three CONNACK present=0 code=0
        > four CONNECT client=a clean=0
        < three closed taken_over
        < four CONNACK present=1 code=0
        > five CONNECT client=a clean=1
        < four closed taken_over
        < five CONNACK present=0 code=0
        > five PINGREQ
        < five PINGRESP
        "#,
    );
}

#[test]
fn m3_1_4_3_clean_session_is_processed_on_takeover_too() {
    check(
        r#"
        > one CONNECT client=a clean=0
        < one CONNACK present=0 code=0
        > one SUBSCRIBE id=1 filter=t qos=1
        < one SUBACK id=1 codes=1
        > two CONNECT client=a clean=0
        < one closed taken_over
        < two CONNACK present=1 code=0
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b PUBLISH topic=t payload="x"
        < two PUBLISH topic=t qos=0 payload="x"
        > three CONNECT client=a clean=1
        < two closed taken_over
        < three CONNACK present=0 code=0
        > b PUBLISH topic=t payload="y"
        "#,
    );
}

#[test]
fn m3_1_4_4_an_accepted_connect_gets_code_0() {
    assert_eq!(answers(&packet::encode("CONNECT client=a")), [ACCEPTED]);
}

#[test]
fn m3_1_4_5_after_a_rejected_connect_nothing_is_processed() {
    check(
        r#"
        > watch CONNECT client=watch
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=# qos=0
        < watch SUBACK id=1 codes=0
        > a CONNECT client="" clean=0 ~
        > a PUBLISH topic=t payload="must not be seen" ~
        > a PUBLISH topic=t qos=1 id=1 payload="must not be seen"
        < a CONNACK present=0 code=2
        < a closed refused
        "#,
    );
    // The same where the answer takes its time.
    check(
        r#"
        % user=ada:secret
        > watch CONNECT client=watch user=ada password=secret
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=# qos=0
        < watch SUBACK id=1 codes=0
        > a CONNECT client=a user=ada password=wrong ~
        > a PUBLISH topic=t payload="must not be seen"
        < a CONNACK present=0 code=5
        < a closed refused
        "#,
    );
}

#[test]
fn m3_2_0_1_connack_comes_first() {
    // Everything at once; the session must be on flash before CONNACK may leave.
    check(
        r#"
        ! hold
        > a CONNECT client=a clean=0 ~
        > a PINGREQ ~
        > a SUBSCRIBE id=1 filter=t qos=1 ~
        > a PUBLISH topic=t qos=0 payload="x" ~
        > a PUBLISH topic=t qos=1 id=2 payload="y" ~
        > a PUBREL id=3 ~
        > a PINGREQ
        ! persist
        < a CONNACK present=0 code=0
        < a PINGRESP
        < a SUBACK id=1 codes=1
        < a PUBACK id=2
        < a PUBCOMP id=3
        < a PINGRESP
        < a PUBLISH topic=t qos=1 id=1 payload="y"
        "#,
    );
}

#[test]
fn m3_2_2_1_clean_session_1_has_session_present_0() {
    check(
        r#"
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a DISCONNECT
        < a closed disconnect
        > a CONNECT client=a clean=1
        < a CONNACK present=0 code=0
        "#,
    );
}

#[test]
fn m3_2_2_2_a_stored_session_has_session_present_1() {
    check(
        r#"
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a DISCONNECT
        < a closed disconnect
        > a CONNECT client=a clean=0
        < a CONNACK present=1 code=0
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=0
        > a CONNECT client=a clean=0
        < a CONNACK present=1 code=0
        "#,
    );
}

#[test]
fn m3_2_2_3_no_stored_session_has_session_present_0() {
    check(
        r#"
        > a CONNECT client=a clean=1
        < a CONNACK present=0 code=0
        > a DISCONNECT
        < a closed disconnect
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        "#,
    );
}

#[test]
fn m3_2_2_4_a_refusal_has_session_present_0() {
    check(
        r#"
        % user=ada:secret
        > a CONNECT client=a clean=0 user=ada password=secret
        < a CONNACK present=0 code=0
        > a DISCONNECT
        < a closed disconnect
        > a CONNECT client=a clean=0 user=ada password=wrong
        < a CONNACK present=0 code=5
        < a closed refused
        > a CONNECT client=a clean=0 level=2
        < a CONNACK present=0 code=1
        < a closed refused
        "#,
    );
}

#[test]
fn m3_2_2_5_a_refusal_closes_the_connection() {
    check(
        r#"
        % sessions_max=1
        % allow_anonymous=true
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > b CONNECT client=b
        < b CONNACK present=0 code=3
        < b closed refused
        > a PINGREQ
        < a PINGRESP
        "#,
    );
}

#[test]
fn m3_2_2_6_where_no_code_fits_there_is_no_connack() {
    for bytes in [
        connect(0b0000_0011, &["a"]),
        packet::encode("CONNECT name=AMQP client=a"),
        packet::packet(0x10, b""),
        packet::packet(0x10, b"\x00\x04MQTT"),
    ] {
        assert_eq!(answers(&bytes), [FAULT], "{bytes:02x?}");
    }
}
