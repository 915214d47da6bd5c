//! Sections 3.8 to 3.14: SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT and their answers.

use crate::support::driver::World;
use crate::support::packet;
use crate::support::transcript::check;

/// What a client that has connected is answered.
fn answers(bytes: &[u8]) -> Vec<String> {
    let mut world = World::default();
    world.send("a", "CONNECT client=a");
    world.lines();
    world.send_bytes("a", bytes);
    world.lines_of("a")
}

const FAULT: &str = "closed protocol_error";

#[test]
fn m3_8_1_1_subscribe_has_flags_0010() {
    let right = packet::encode("SUBSCRIBE id=1 filter=t qos=0");
    for flags in 0..16 {
        let mut bytes = right.clone();
        bytes[0] = 0x80 | flags;
        let expected = if flags == 2 { "SUBACK id=1 codes=0" } else { FAULT };
        assert_eq!(answers(&bytes), [expected], "flags {flags}");
    }
}

#[test]
fn m3_8_3_1_filters_are_utf8() {
    assert_eq!(answers(&packet::encode(r#"SUBSCRIBE id=1 filter="é" qos=0"#)), ["SUBACK id=1 codes=0"]);
    assert_eq!(answers(&packet::encode(r#"SUBSCRIBE id=1 filter="\xe9" qos=0"#)), [FAULT]);
    assert_eq!(
        answers(&packet::encode(r#"SUBSCRIBE id=1 filter=t qos=0 filter="\xed\xa0\x80" qos=0"#)),
        [FAULT]
    );
}

#[test]
fn m3_8_3_3_subscribe_has_a_filter() {
    assert_eq!(answers(&packet::encode("SUBSCRIBE id=1")), [FAULT]);
}

#[test]
fn m3_8_3_4_a_requested_qos_is_0_to_2() {
    for byte in 0..=255 {
        let expected = if byte <= 2 { format!("SUBACK id=1 codes={byte}") } else { FAULT.into() };
        assert_eq!(answers(&packet::encode(&format!("SUBSCRIBE id=1 filter=t qos={byte}"))), [expected]);
    }
    // A filter without its QoS.
    assert_eq!(answers(&packet::encode("SUBSCRIBE id=1 filter=t")), [FAULT]);
}

#[test]
fn m3_8_4_1_subscribe_is_answered() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=0
        < a SUBACK id=1 codes=0
        > a SUBSCRIBE id=1 filter=t qos=0
        < a SUBACK id=1 codes=0
        "#,
    );
}

#[test]
fn m3_8_4_2_suback_has_the_identifier_of_subscribe() {
    for id in [1, 255, 256, 65_535] {
        let answer = answers(&packet::encode(&format!("SUBSCRIBE id={id} filter=t qos=0")));
        assert_eq!(answer, [format!("SUBACK id={id} codes=0")]);
    }
}

#[test]
fn m3_8_4_3_an_identical_filter_replaces_the_subscription() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=t retain=1 payload="kept"
        > a SUBSCRIBE id=1 filter=t qos=0
        < a SUBACK id=1 codes=0
        < a PUBLISH topic=t qos=0 retain=1 payload="kept"
        > a SUBSCRIBE id=2 filter=t qos=1
        < a SUBACK id=2 codes=1
        < a PUBLISH topic=t qos=0 retain=1 payload="kept"
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b PUBLISH topic=t qos=1 id=1 payload="once"
        < a PUBLISH topic=t qos=1 id=1 payload="once"
        < b PUBACK id=1
        > a SUBSCRIBE id=3 filter=t qos=0
        < a SUBACK id=3 codes=0
        < a PUBLISH topic=t qos=0 retain=1 payload="kept"
        > b PUBLISH topic=t qos=1 id=2 payload="at QoS 0"
        < a PUBLISH topic=t qos=0 payload="at QoS 0"
        < b PUBACK id=2
        > a UNSUBSCRIBE id=4 filter=t
        < a UNSUBACK id=4
        > b PUBLISH topic=t payload="nobody's"
        "#,
    );
}

#[test]
fn m3_8_4_4_several_filters_get_one_suback() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=t/1 retain=1 payload="kept"
        > a SUBSCRIBE id=1 filter=t/1 qos=0 filter=u qos=2 filter=t/# qos=1
        < a SUBACK id=1 codes=0,2,1
        < a PUBLISH topic=t/1 qos=0 retain=1 payload="kept"
        < a PUBLISH topic=t/1 qos=0 retain=1 payload="kept"
        > a PUBLISH topic=u payload="u"
        < a PUBLISH topic=u qos=0 payload="u"
        > a PUBLISH topic=t/2 payload="t"
        < a PUBLISH topic=t/2 qos=0 payload="t"
        "#,
    );
}

#[test]
fn m3_8_4_5_suback_has_a_code_for_each_filter() {
    check(
        r#"
        % acl=topic read allowed/#
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=allowed/a qos=2 filter=denied qos=1 filter=allowed/b qos=0 filter=allowed/a qos=1
        < a SUBACK id=1 codes=2,0x80,0,1
        "#,
    );
}

#[test]
fn m3_8_4_6_a_delivery_has_the_lower_qos() {
    for granted in 0..3 {
        for published in 0..3 {
            let mut world = World::default();
            world.send("sub", "CONNECT client=sub");
            world.send("sub", &format!("SUBSCRIBE id=1 filter=t qos={granted}"));
            world.send("pub", "CONNECT client=pub");
            world.lines();
            world.send("pub", &format!("PUBLISH topic=t qos={published} id=1 payload=x"));
            let lower = granted.min(published);
            let id = if lower > 0 { " id=1" } else { "" };
            assert_eq!(world.lines_of("sub"), [format!("PUBLISH topic=t qos={lower}{id} payload=\"x\"")]);
        }
    }
}

#[test]
fn m3_9_3_1_codes_stand_in_the_order_of_the_filters() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=z qos=2 filter=a qos=0 filter=m qos=1 filter=b qos=2
        < a SUBACK id=1 codes=2,0,1,2
        "#,
    );
}

#[test]
fn m3_9_3_2_no_other_codes_are_used() {
    // The answers are decoded apart from the gateway's codec; here every granted and refused code is seen.
    check(
        r#"
        % acl=topic deny x
        % acl=topic read t
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=0 filter=t qos=1 filter=t qos=2 filter=x qos=0
        < a SUBACK id=1 codes=0,1,2,0x80
        "#,
    );
}

#[test]
fn m3_10_1_1_unsubscribe_has_flags_0010() {
    let right = packet::encode("UNSUBSCRIBE id=1 filter=t");
    for flags in 0..16 {
        let mut bytes = right.clone();
        bytes[0] = 0xa0 | flags;
        let expected = if flags == 2 { "UNSUBACK id=1" } else { FAULT };
        assert_eq!(answers(&bytes), [expected], "flags {flags}");
    }
}

#[test]
fn m3_10_3_1_filters_are_utf8() {
    assert_eq!(answers(&packet::encode(r#"UNSUBSCRIBE id=1 filter="é" filter=a/#"#)), ["UNSUBACK id=1"]);
    assert_eq!(answers(&packet::encode(r#"UNSUBSCRIBE id=1 filter="\xe9""#)), [FAULT]);
    assert_eq!(answers(&packet::encode("UNSUBSCRIBE id=1 filter=a/#/b")), [FAULT]);
}

#[test]
fn m3_10_3_2_unsubscribe_has_a_filter() {
    assert_eq!(answers(&packet::encode("UNSUBSCRIBE id=1")), [FAULT]);
}

#[test]
fn m3_10_4_1_unsubscribe_takes_the_same_filter_character_by_character() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t/+ qos=0
        < a SUBACK id=1 codes=0
        > a UNSUBSCRIBE id=2 filter=t/a filter=t/# filter=T/+ filter=t/+/ filter=/t/+
        < a UNSUBACK id=2
        > a PUBLISH topic=t/a payload="still"
        < a PUBLISH topic=t/a qos=0 payload="still"
        > a UNSUBSCRIBE id=3 filter=t/+
        < a UNSUBACK id=3
        > a PUBLISH topic=t/a payload="no more"
        "#,
    );
}

#[test]
fn m3_10_4_2_nothing_new_is_added() {
    check(
        r#"
        % inflight_max=1
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=1 filter=u qos=1
        < a SUBACK id=1 codes=1,1
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b PUBLISH topic=t qos=1 id=1 payload="1"
        < a PUBLISH topic=t qos=1 id=1 payload="1"
        < b PUBACK id=1
        > a UNSUBSCRIBE id=2 filter=t
        < a UNSUBACK id=2
        > b PUBLISH topic=t qos=1 id=2 payload="2"
        < b PUBACK id=2
        > a PUBACK id=1
        > b PUBLISH topic=u qos=1 id=3 payload="3"
        < a PUBLISH topic=u qos=1 id=2 payload="3"
        < b PUBACK id=3
        "#,
    );
}

#[test]
fn m3_10_4_3_deliveries_that_have_begun_are_completed() {
    check(
        r#"
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=2
        < a SUBACK id=1 codes=2
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b PUBLISH topic=t qos=1 id=1 payload="1"
        < a PUBLISH topic=t qos=1 id=1 payload="1"
        @ +10ms
        < b PUBACK id=1
        > b PUBLISH topic=t qos=2 id=2 payload="2"
        < a PUBLISH topic=t qos=2 id=2 payload="2"
        < b PUBREC id=2
        > a UNSUBSCRIBE id=2 filter=t
        < a UNSUBACK id=2
        ! a reset
        < a closed peer_closed
        > a CONNECT client=a clean=0
        < a CONNACK present=1 code=0
        < a PUBLISH topic=t qos=1 dup=1 id=1 payload="1"
        < a PUBLISH topic=t qos=2 dup=1 id=2 payload="2"
        > a PUBACK id=1
        > a PUBREC id=2
        < a PUBREL id=2
        "#,
    );
}

#[test]
fn m3_10_4_4_unsuback_has_the_identifier_of_unsubscribe() {
    for id in [1, 255, 256, 65_535] {
        let answer = answers(&packet::encode(&format!("UNSUBSCRIBE id={id} filter=t")));
        assert_eq!(answer, [format!("UNSUBACK id={id}")]);
    }
}

#[test]
fn m3_10_4_5_unsuback_comes_when_nothing_was_deleted_too() {
    assert_eq!(answers(&packet::encode("UNSUBSCRIBE id=7 filter=never/subscribed")), ["UNSUBACK id=7"]);
}

#[test]
fn m3_10_4_6_several_filters_get_one_unsuback() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=0 filter=u qos=0 filter=v qos=0
        < a SUBACK id=1 codes=0,0,0
        > a UNSUBSCRIBE id=2 filter=t filter=not/there filter=v
        < a UNSUBACK id=2
        > a PUBLISH topic=t
        > a PUBLISH topic=v
        > a PUBLISH topic=u
        < a PUBLISH topic=u qos=0 payload=""
        "#,
    );
}

#[test]
fn m3_12_4_1_pingreq_is_answered() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PINGREQ
        < a PINGRESP
        > a PINGREQ ~
        > a PINGREQ
        < a PINGRESP
        < a PINGRESP
        "#,
    );
}

#[test]
fn m3_14_1_1_disconnect_has_flags_0000() {
    for flags in 0..16 {
        let expected = if flags == 0 { "closed disconnect" } else { FAULT };
        assert_eq!(answers(&[0xe0 | flags, 0]), [expected], "flags {flags}");
    }
    assert_eq!(answers(&[0xe0, 1, 0]), [FAULT]);
}

#[test]
fn m3_14_4_2_nothing_after_disconnect_is_processed() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b SUBSCRIBE id=1 filter=# qos=0
        < b SUBACK id=1 codes=0
        > a PUBLISH topic=t payload="before" ~
        > a DISCONNECT ~
        > a PUBLISH topic=t payload="after"
        < b PUBLISH topic=t qos=0 payload="before"
        < a closed disconnect
        "#,
    );
}

#[test]
fn m3_14_4_3_disconnect_discards_the_will() {
    check(
        r#"
        > watch CONNECT client=watch clean=0
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=w qos=1
        < watch SUBACK id=1 codes=1
        > a CONNECT client=a will_topic=w will_qos=1 will_payload="gone"
        < a CONNACK present=0 code=0
        > a DISCONNECT
        < a closed disconnect
        @ +1s
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=0
        > watch CONNECT client=watch clean=0
        < watch CONNACK present=1 code=0
        "#,
    );
}
