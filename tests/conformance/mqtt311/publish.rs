//! Sections 3.3 and 3.6: PUBLISH and what answers it.

use crate::support::driver::World;
use crate::support::packet;
use crate::support::transcript::check;

#[test]
fn m3_3_1_1_dup_is_set_on_a_repeat() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=1 id=1 payload="one"
        < sub PUBLISH topic=t qos=1 id=1 payload="one"
        @ +10ms
        < pub PUBACK id=1
        > pub PUBLISH topic=t qos=2 id=2 payload="two"
        < pub PUBREC id=2
        < sub PUBLISH topic=t qos=2 id=2 payload="two"
        ! sub reset
        < sub closed peer_closed
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBLISH topic=t qos=1 dup=1 id=1 payload="one"
        < sub PUBLISH topic=t qos=2 dup=1 id=2 payload="two"
        "#,
    );
}

#[test]
fn m3_3_1_2_dup_is_not_set_at_qos_0() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=t qos=0 dup=1
        < a closed protocol_error
        "#,
    );
}

#[test]
fn m3_3_1_3_the_publishers_dup_is_not_passed_on() {
    check(
        r#"
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=1 dup=1 id=1 payload="one"
        < pub PUBACK id=1
        < sub PUBLISH topic=t qos=1 id=1 payload="one"
        > pub PUBLISH topic=t qos=2 dup=1 id=2 payload="two"
        < pub PUBREC id=2
        < sub PUBLISH topic=t qos=2 id=2 payload="two"
        "#,
    );
}

#[test]
fn m3_3_1_4_qos_3_closes_the_connection() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=t qos=3 id=1
        < a closed protocol_error
        "#,
    );
    // Its first byte is enough.
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a HEX 36
        < a closed protocol_error
        "#,
    );
}

#[test]
fn m3_3_1_5_a_retained_message_is_stored_with_its_qos() {
    check(
        r#"
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t/0 qos=0 retain=1 payload="zero"
        > pub PUBLISH topic=t/1 qos=1 retain=1 id=1 payload="one"
        < pub PUBACK id=1
        > pub PUBLISH topic=t/2 qos=2 retain=1 id=2 payload="two"
        < pub PUBREC id=2
        @ +1s
        ! power-cut
        = recovered sessions=0 queued=0 retained=3 wills=0
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t/+ qos=2
        < sub SUBACK id=1 codes=2
        < sub PUBLISH topic=t/0 qos=0 retain=1 payload="zero"
        < sub PUBLISH topic=t/1 qos=1 retain=1 id=1 payload="one"
        < sub PUBLISH topic=t/2 qos=2 retain=1 id=2 payload="two"
        "#,
    );
}

#[test]
fn m3_3_1_6_a_new_subscription_gets_the_last_retained_message_of_each_topic() {
    check(
        r#"
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=a retain=1 payload="old"
        > pub PUBLISH topic=a retain=1 payload="new"
        > pub PUBLISH topic=a/b retain=1 payload="below"
        > pub PUBLISH topic=b retain=1 payload="beside"
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=a/# qos=0
        < sub SUBACK id=1 codes=0
        < sub PUBLISH topic=a qos=0 retain=1 payload="new"
        < sub PUBLISH topic=a/b qos=0 retain=1 payload="below"
        "#,
    );
}

#[test]
fn m3_3_1_7_a_retained_qos_0_message_replaces_the_older_one() {
    check(
        r#"
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=1 retain=1 id=1 payload="old"
        < pub PUBACK id=1
        > pub PUBLISH topic=t qos=0 retain=1 payload="new"
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=1
        < sub SUBACK id=1 codes=1
        < sub PUBLISH topic=t qos=0 retain=1 payload="new"
        @ +1s
        ! power-cut
        = recovered sessions=0 queued=0 retained=1 wills=0
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=1
        < sub SUBACK id=1 codes=1
        < sub PUBLISH topic=t qos=0 retain=1 payload="new"
        "#,
    );
}

#[test]
fn m3_3_1_8_retain_is_set_because_of_a_new_subscription() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=t retain=1 payload="v"
        > a SUBSCRIBE id=1 filter=t qos=0
        < a SUBACK id=1 codes=0
        < a PUBLISH topic=t qos=0 retain=1 payload="v"
        "#,
    );
}

#[test]
fn m3_3_1_9_retain_is_not_set_for_an_established_subscription() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=1
        < a SUBACK id=1 codes=1
        > a PUBLISH topic=t retain=1 payload="v"
        < a PUBLISH topic=t qos=0 payload="v"
        "#,
    );
    // Nor when the session was away at the time.
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
        > b PUBLISH topic=t qos=1 retain=1 id=1 payload="v"
        < b PUBACK id=1
        ! power-cut
        = recovered sessions=1 queued=1 retained=1 wills=0
        > a CONNECT client=a clean=0
        < a CONNACK present=1 code=0
        < a PUBLISH topic=t qos=1 dup=1 id=1 payload="v"
        "#,
    );
}

#[test]
fn m3_3_1_10_an_empty_retained_message_deletes() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=t retain=1 payload="v"
        > a SUBSCRIBE id=1 filter=t qos=0
        < a SUBACK id=1 codes=0
        < a PUBLISH topic=t qos=0 retain=1 payload="v"
        > a PUBLISH topic=t retain=1 payload=""
        < a PUBLISH topic=t qos=0 payload=""
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b SUBSCRIBE id=1 filter=t qos=0
        < b SUBACK id=1 codes=0
        "#,
    );
}

#[test]
fn m3_3_1_11_an_empty_retained_message_is_not_stored() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=t qos=1 retain=1 id=1 payload=""
        < a PUBACK id=1
        > a SUBSCRIBE id=1 filter=t qos=0
        < a SUBACK id=1 codes=0
        @ +1s
        ! power-cut
        = recovered sessions=0 queued=0 retained=0 wills=0
        "#,
    );
}

#[test]
fn m3_3_1_12_a_message_that_is_not_retained_changes_no_stored_one() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=t retain=1 payload="v"
        > a PUBLISH topic=t retain=0 payload="w"
        > a PUBLISH topic=t retain=0 payload=""
        > a PUBLISH topic=u retain=0 payload="x"
        > a SUBSCRIBE id=1 filter=# qos=0
        < a SUBACK id=1 codes=0
        < a PUBLISH topic=t qos=0 retain=1 payload="v"
        "#,
    );
}

#[test]
fn m3_3_2_1_the_topic_is_there_and_utf8() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a HEX 30 00
        < a closed protocol_error
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a HEX 30 03 00 02 74
        < a closed protocol_error
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic="t\xff"
        < a closed protocol_error
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=# qos=0
        < a SUBACK id=1 codes=0
        > a PUBLISH topic="température/é"
        < a PUBLISH topic=température/é qos=0 payload=""
        "#,
    );
}

#[test]
fn m3_3_2_2_a_wildcard_in_a_topic_closes_the_connection() {
    for topic in ["#", "+", "a/#", "a/+/b", "a+", "a#b", "+a", "/+"] {
        let mut world = World::default();
        world.send("a", "CONNECT client=a");
        world.send("a", &format!("PUBLISH topic={topic}"));
        assert_eq!(world.lines_of("a"), ["CONNACK present=0 code=0", "closed protocol_error"], "{topic}");
    }
}

#[test]
fn m3_3_2_3_a_delivery_has_a_topic_that_matches() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=a/+/c qos=0
        < a SUBACK id=1 codes=0
        > a PUBLISH topic=a/b/c payload="1"
        < a PUBLISH topic=a/b/c qos=0 payload="1"
        > a PUBLISH topic=a//c payload="2"
        < a PUBLISH topic=a//c qos=0 payload="2"
        > a PUBLISH topic=a/b/d payload="3"
        > a PUBLISH topic=a/b/c/d payload="4"
        > a PUBLISH topic=a/c payload="5"
        "#,
    );
}

#[test]
fn m3_3_4_1_publish_is_answered_as_its_qos_demands() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=t qos=0
        > a PUBLISH topic=t qos=1 id=1
        < a PUBACK id=1
        > a PUBLISH topic=t qos=2 id=2
        < a PUBREC id=2
        "#,
    );
}

#[test]
fn m3_3_5_1_overlapping_subscriptions_give_the_highest_qos() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=# qos=0 filter=t/# qos=2 filter=t/+ qos=1
        < a SUBACK id=1 codes=0,2,1
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b PUBLISH topic=t/x qos=2 id=1
        < a PUBLISH topic=t/x qos=2 id=1 payload=""
        < b PUBREC id=1
        > b PUBLISH topic=t/x qos=1 id=2
        < a PUBLISH topic=t/x qos=1 id=2 payload=""
        < b PUBACK id=2
        > b PUBLISH topic=u qos=1 id=3
        < a PUBLISH topic=u qos=0 payload=""
        < b PUBACK id=3
        "#,
    );
}

#[test]
fn m3_3_5_2_an_unauthorized_publish_is_acknowledged() {
    check(
        r#"
        % acl=topic read #
        % acl=topic write mine
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=# qos=0
        < a SUBACK id=1 codes=0
        > a PUBLISH topic=other qos=0
        > a PUBLISH topic=other qos=1 id=1
        < a PUBACK id=1
        > a PUBLISH topic=other qos=2 id=2
        < a PUBREC id=2
        > a PUBREL id=2
        < a PUBCOMP id=2
        > a PUBLISH topic=mine
        < a PUBLISH topic=mine qos=0 payload=""
        "#,
    );
}

#[test]
fn m3_6_1_1_pubrel_has_flags_0010() {
    for flags in 0..16 {
        let mut world = World::default();
        world.send("a", "CONNECT client=a");
        world.send_bytes("a", &packet::packet(0x60 | flags, b"\x00\x01"));
        let expected = if flags == 2 { "PUBCOMP id=1" } else { "closed protocol_error" };
        assert_eq!(world.lines_of("a"), ["CONNACK present=0 code=0", expected], "flags {flags}");
    }
}
