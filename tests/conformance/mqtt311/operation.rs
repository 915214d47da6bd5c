//! Chapters 4 and 7: state, quality of service, order, topics, errors.

use crate::support::driver::{Setup, World};
use crate::support::packet;
use crate::support::transcript::check;

#[test]
fn m4_1_0_1_a_session_is_kept_for_its_whole_life() {
    // Everything that is part of a session, over a power cut: subscriptions, what waits, what is in flight with its
    // identifier, what is in release, and what a publisher has not released.
    check(
        r#"
        % inflight_max=3
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=2
        < a SUBACK id=1 codes=2
        > a PUBLISH topic=other qos=2 id=9 payload="not released"
        < a PUBREC id=9
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b PUBLISH topic=t qos=2 id=1 payload="in release"
        < a PUBLISH topic=t qos=2 id=1 payload="in release"
        < b PUBREC id=1
        > a PUBREC id=1
        < a PUBREL id=1
        > b PUBLISH topic=t qos=2 id=2 payload="in flight"
        < a PUBLISH topic=t qos=2 id=2 payload="in flight"
        < b PUBREC id=2
        > b PUBLISH topic=t qos=1 id=3 payload="in flight too"
        < a PUBLISH topic=t qos=1 id=3 payload="in flight too"
        @ +10ms
        < b PUBACK id=3
        > b PUBLISH topic=t qos=1 id=4 payload="waits"
        < b PUBACK id=4
        ! power-cut
        = recovered sessions=1 queued=3 retained=0 wills=0
        > a CONNECT client=a clean=0
        < a CONNACK present=1 code=0
        < a PUBLISH topic=t qos=2 dup=1 id=2 payload="in flight"
        < a PUBREL id=1
        < a PUBLISH topic=t qos=1 dup=1 id=3 payload="in flight too"
        > a PUBCOMP id=1
        < a PUBLISH topic=t qos=1 dup=1 id=4 payload="waits"
        > a PUBLISH topic=other qos=2 dup=1 id=9 payload="not released"
        < a PUBREC id=9
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b PUBLISH topic=t payload="still subscribed"
        < a PUBLISH topic=t qos=0 payload="still subscribed"
        "#,
    );
}

#[test]
fn m4_1_0_2_a_session_lasts_as_long_as_its_connection() {
    // However short sessions are kept without one.
    check(
        r#"
        % session_expiry_max=1s
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=0
        < a SUBACK id=1 codes=0
        @ +30d
        > a PUBLISH topic=t payload="x"
        < a PUBLISH topic=t qos=0 payload="x"
        > a DISCONNECT
        < a closed disconnect
        @ +5s
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        "#,
    );
}

#[test]
fn m4_3_1_1_qos_0_is_sent_with_qos_0_and_no_dup() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=0
        < a SUBACK id=1 codes=0
        > a PUBLISH topic=t qos=1 dup=1 id=1 payload="x"
        < a PUBACK id=1
        < a PUBLISH topic=t qos=0 payload="x"
        "#,
    );
}

#[test]
fn m4_3_2_1_qos_1_has_a_new_identifier_and_waits_for_puback() {
    check(
        r#"
        % inflight_max=2
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=1
        < sub SUBACK id=1 codes=1
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=1 id=1 payload="1"
        < pub PUBACK id=1
        < sub PUBLISH topic=t qos=1 id=1 payload="1"
        > pub PUBLISH topic=t qos=1 id=1 payload="2"
        < pub PUBACK id=1
        < sub PUBLISH topic=t qos=1 id=2 payload="2"
        > pub PUBLISH topic=t qos=1 id=1 payload="3"
        < pub PUBACK id=1
        > sub PUBACK id=1
        < sub PUBLISH topic=t qos=1 id=3 payload="3"
        "#,
    );
}

#[test]
fn m4_3_2_2_after_puback_the_identifier_is_free_for_a_new_message() {
    check(
        r#"
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=0
        < sub SUBACK id=1 codes=0
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=1 id=1 payload="x"
        < pub PUBACK id=1
        < sub PUBLISH topic=t qos=0 payload="x"
        > pub PUBLISH topic=t qos=1 dup=1 id=1 payload="x"
        < pub PUBACK id=1
        < sub PUBLISH topic=t qos=0 payload="x"
        "#,
    );
}

#[test]
fn m4_3_3_1_qos_2_as_sender() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=2 id=1 payload="x"
        < pub PUBREC id=1
        < sub PUBLISH topic=t qos=2 id=1 payload="x"
        # PUBLISH again until PUBREC ...
        ! sub reset
        < sub closed peer_closed
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBLISH topic=t qos=2 dup=1 id=1 payload="x"
        > sub PUBREC id=1
        < sub PUBREL id=1
        # ... PUBREL again until PUBCOMP, never PUBLISH.
        ! sub reset
        < sub closed peer_closed
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBREL id=1
        > sub PUBREC id=1
        < sub PUBREL id=1
        > sub PUBCOMP id=1
        ! sub reset
        < sub closed peer_closed
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        "#,
    );
}

#[test]
fn m4_3_3_2_qos_2_as_receiver() {
    for clean in [0, 1] {
        check(&format!(
            r#"
            > sub CONNECT client=sub
            < sub CONNACK present=0 code=0
            > sub SUBSCRIBE id=1 filter=t qos=0
            < sub SUBACK id=1 codes=0
            > pub CONNECT client=pub clean={clean}
            < pub CONNACK present=0 code=0
            > pub PUBLISH topic=t qos=2 id=1 payload="x"
            < sub PUBLISH topic=t qos=0 payload="x"
            < pub PUBREC id=1
            > pub PUBLISH topic=t qos=2 dup=1 id=1 payload="x"
            < pub PUBREC id=1
            > pub PUBREL id=1
            < pub PUBCOMP id=1
            > pub PUBREL id=1
            < pub PUBCOMP id=1
            > pub PUBLISH topic=t qos=2 id=1 payload="y"
            < sub PUBLISH topic=t qos=0 payload="y"
            < pub PUBREC id=1
            "#
        ));
    }
}

#[test]
fn m4_4_0_1_unacknowledged_packets_are_sent_again() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=2 id=1 payload="released"
        < pub PUBREC id=1
        < sub PUBLISH topic=t qos=2 id=1 payload="released"
        > pub PUBLISH topic=t qos=1 id=2 payload="one"
        < sub PUBLISH topic=t qos=1 id=2 payload="one"
        @ +10ms
        < pub PUBACK id=2
        > sub PUBREC id=1
        < sub PUBREL id=1
        > sub DISCONNECT
        < sub closed disconnect
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBLISH topic=t qos=1 dup=1 id=2 payload="one"
        < sub PUBREL id=1
        "#,
    );
    // While the connection stands nothing is sent again.
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=1
        < sub SUBACK id=1 codes=1
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=1 id=1
        < sub PUBLISH topic=t qos=1 id=1 payload=""
        @ +1h
        < pub PUBACK id=1
        "#,
    );
}

#[test]
fn m4_5_0_1_a_message_reaches_every_matching_session() {
    check(
        r#"
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t/# qos=1
        < a SUBACK id=1 codes=1
        > a DISCONNECT
        < a closed disconnect
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b SUBSCRIBE id=1 filter=t/+ qos=0
        < b SUBACK id=1 codes=0
        > c CONNECT client=c
        < c CONNACK present=0 code=0
        > c SUBSCRIBE id=1 filter=u qos=0
        < c SUBACK id=1 codes=0
        > d CONNECT client=d
        < d CONNACK present=0 code=0
        > d PUBLISH topic=t/x qos=1 id=1 payload="x"
        < b PUBLISH topic=t/x qos=0 payload="x"
        < d PUBACK id=1
        > a CONNECT client=a clean=0
        < a CONNACK present=1 code=0
        < a PUBLISH topic=t/x qos=1 id=1 payload="x"
        "#,
    );
}

#[test]
fn m4_6_0_1_repeats_come_in_the_order_of_the_originals() {
    let mut world = World::default();
    world.send("sub", "CONNECT client=sub clean=0");
    world.send("sub", "SUBSCRIBE id=1 filter=t qos=2");
    world.send("pub", "CONNECT client=pub");
    for n in 1..=12 {
        let qos = 1 + n % 2;
        world.send("pub", &format!("PUBLISH topic=t qos={qos} id={n} payload={n}"));
    }
    let publishes = |lines: &[String]| -> Vec<(u32, String)> {
        let published = lines.iter().filter(|line| line.starts_with("PUBLISH"));
        published
            .map(|line| {
                let field = |name: &str| line.split(name).nth(1).expect("it is there").split(' ').next();
                let id = field("id=").and_then(|id| id.parse().ok()).expect("an identifier");
                (id, field("payload=").expect("a payload").to_owned())
            })
            .collect()
    };
    let first = publishes(&world.lines_of("sub"));
    assert_eq!(first.len(), 12);
    // PUBACK settles what was sent at QoS 1 (even numbers) and means nothing for QoS 2.
    let mut expected = first.clone();
    for (id, payload) in &first[2..8] {
        world.send("sub", &format!("PUBACK id={id}"));
        let number: u32 = payload.trim_matches('"').parse().expect("a number");
        expected.retain(|(kept, _)| kept != id || number % 2 == 1);
    }
    assert_eq!(expected.len(), 9);
    for _ in 0..3 {
        world.reset("sub");
        world.lines();
        world.send("sub", "CONNECT client=sub clean=0");
        assert_eq!(publishes(&world.lines_of("sub")), expected);
    }
}

#[test]
fn m4_6_0_2_pubacks_come_in_the_order_of_the_publishes() {
    check(
        r#"
        > off CONNECT client=off clean=0
        < off CONNACK present=0 code=0
        > off SUBSCRIBE id=1 filter=kept qos=1
        < off SUBACK id=1 codes=1
        > off DISCONNECT
        < off closed disconnect
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=kept qos=1 id=3
        > pub PUBLISH topic=free qos=1 id=2
        > pub PUBLISH topic=kept qos=1 id=4
        > pub PUBLISH topic=free qos=1 id=1
        ! persist
        < pub PUBACK id=3
        < pub PUBACK id=2
        ! persist
        < pub PUBACK id=4
        < pub PUBACK id=1
        "#,
    );
}

#[test]
fn m4_6_0_3_pubrecs_come_in_the_order_of_the_publishes() {
    check(
        r#"
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=a qos=2 id=3
        > pub PUBLISH topic=b qos=2 id=1
        > pub PUBLISH topic=c qos=2 id=2
        ! release
        < pub PUBREC id=3
        < pub PUBREC id=1
        < pub PUBREC id=2
        "#,
    );
}

#[test]
fn m4_6_0_4_pubrels_come_in_the_order_of_the_pubrecs() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=2 id=1 payload="1" ~
        > pub PUBLISH topic=t qos=2 id=2 payload="2" ~
        > pub PUBLISH topic=t qos=2 id=3 payload="3"
        < pub PUBREC id=1
        < pub PUBREC id=2
        < pub PUBREC id=3
        < sub PUBLISH topic=t qos=2 id=1 payload="1"
        < sub PUBLISH topic=t qos=2 id=2 payload="2"
        < sub PUBLISH topic=t qos=2 id=3 payload="3"
        > sub PUBREC id=2 ~
        > sub PUBREC id=3 ~
        > sub PUBREC id=1
        < sub PUBREL id=2
        < sub PUBREL id=3
        < sub PUBREL id=1
        # And again in that order.
        ! sub reset
        < sub closed peer_closed
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBREL id=2
        < sub PUBREL id=3
        < sub PUBREL id=1
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=0
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBREL id=2
        < sub PUBREL id=3
        < sub PUBREL id=1
        "#,
    );
}

/// Per publisher, topic and QoS, to a subscriber that is connected and one that comes later.
#[test]
fn m4_6_0_5_topics_are_ordered() {
    let mut world = World::new(Setup::with(|setup| setup.config.limits.inflight_max = 5));
    for name in ["live", "late"] {
        world.send(name, &format!("CONNECT client={name} clean=0"));
        world.send(name, "SUBSCRIBE id=1 filter=t/# qos=2");
    }
    world.send("late", "DISCONNECT");
    for publisher in ["p", "q"] {
        world.send(publisher, &format!("CONNECT client={publisher}"));
    }
    for n in 0..60 {
        for publisher in ["p", "q"] {
            let (topic, qos) = (n % 2, n % 3);
            world.queue(
                publisher,
                &format!("PUBLISH topic=t/{topic} qos={qos} id={} payload={publisher}-{n}", n + 1),
            );
        }
        if n % 7 == 0 {
            world.settle();
        }
    }
    world.settle();
    let mut seen = Vec::new();
    drain(&mut world, "live", &mut seen);
    assert_eq!(seen.len(), 120);
    assert_in_order(&seen);
    world.lines();
    world.cut_power();
    seen.clear();
    world.send("late", "CONNECT client=late clean=0");
    drain(&mut world, "late", &mut seen);
    assert_eq!(seen.len(), 80, "all but QoS 0");
    assert_in_order(&seen);
}

/// Acknowledges until nothing comes any more; collects (topic, QoS, publisher, number).
fn drain(world: &mut World, name: &str, seen: &mut Vec<(String, String, String, u32)>) {
    loop {
        let lines = world.lines_of(name);
        if lines.is_empty() {
            return;
        }
        for line in lines {
            let field = |key: &str| {
                let value = line
                    .split(' ')
                    .find_map(|field| field.strip_prefix(key).and_then(|v| v.strip_prefix('=')));
                value.unwrap_or_default().trim_matches('"').to_owned()
            };
            match line.split(' ').next() {
                Some("PUBLISH") => {
                    let payload = field("payload");
                    let (publisher, number) = payload.split_once('-').expect("publisher and number");
                    let number = number.parse().expect("a number");
                    seen.push((field("topic"), field("qos"), publisher.to_owned(), number));
                    match field("qos").as_str() {
                        "1" => world.queue(name, &format!("PUBACK id={}", field("id"))),
                        "2" => world.queue(name, &format!("PUBREC id={}", field("id"))),
                        _ => {}
                    }
                }
                Some("PUBREL") => world.queue(name, &format!("PUBCOMP id={}", field("id"))),
                _ => {}
            }
        }
        world.settle();
    }
}

fn assert_in_order(seen: &[(String, String, String, u32)]) {
    for (at, (topic, qos, publisher, number)) in seen.iter().enumerate() {
        for (t, q, p, n) in &seen[..at] {
            if (t, q, p) == (topic, qos, publisher) {
                assert!(n < number, "{publisher}-{n} came before {publisher}-{number}");
            }
        }
    }
}

#[test]
fn m4_6_0_6_each_subscriber_gets_messages_in_the_order_they_came() {
    check(
        r#"
        % inflight_max=1
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=1
        < sub SUBACK id=1 codes=1
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=1 id=30 payload="1" ~
        > pub PUBLISH topic=t qos=1 id=20 payload="2" ~
        > pub PUBLISH topic=t qos=1 id=10 payload="3"
        < pub PUBACK id=30
        < pub PUBACK id=20
        < pub PUBACK id=10
        < sub PUBLISH topic=t qos=1 id=1 payload="1"
        > sub PUBACK id=1
        < sub PUBLISH topic=t qos=1 id=2 payload="2"
        > sub PUBACK id=2
        < sub PUBLISH topic=t qos=1 id=3 payload="3"
        "#,
    );
}

/// What subscribing to each filter is answered by.
fn assert_filters(filters: &[&str], allowed: bool) {
    for filter in filters {
        let mut world = World::default();
        world.send("a", "CONNECT client=a");
        world.lines();
        world.send("a", &format!("SUBSCRIBE id=1 filter=\"{filter}\" qos=0"));
        let expected = if allowed { "SUBACK id=1 codes=0" } else { "closed protocol_error" };
        assert_eq!(world.lines_of("a"), [expected], "{filter}");
    }
}

#[test]
fn m4_7_1_1_wildcards_are_for_filters_only() {
    assert_filters(&["#", "+", "a/+/#"], true);
    for topic in ["#", "+", "a/+/b"] {
        let mut world = World::default();
        world.send("a", &format!("CONNECT client=a will_topic={topic}"));
        assert_eq!(world.lines_of("a"), ["closed protocol_error"], "{topic}");
    }
}

#[test]
fn m4_7_1_2_the_multi_level_wildcard_is_the_last_level() {
    assert_filters(&["#", "a/#", "/#", "a/+/#", "+/#"], true);
    assert_filters(&["a#", "a/b#", "#/a", "a/#/b", "##", "a/##", "#/"], false);
}

#[test]
fn m4_7_1_3_the_single_level_wildcard_is_a_whole_level() {
    assert_filters(&["+", "+/a", "a/+", "a/+/b", "+/+", "/+", "+/"], true);
    assert_filters(&["a+", "+a", "a/b+", "++", "a/+b/c", "+#"], false);
}

#[test]
fn m4_7_2_1_a_leading_wildcard_does_not_match_a_dollar_topic() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=# qos=0 filter=+/x qos=0 filter=+/# qos=0
        < a SUBACK id=1 codes=0,0,0
        > a PUBLISH topic=$dev/x retain=1 payload="hidden"
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b SUBSCRIBE id=1 filter=# qos=0
        < b SUBACK id=1 codes=0
        > b SUBSCRIBE id=2 filter=+/x qos=0
        < b SUBACK id=2 codes=0
        > b SUBSCRIBE id=3 filter=$dev/+ qos=0
        < b SUBACK id=3 codes=0
        < b PUBLISH topic=$dev/x qos=0 retain=1 payload="hidden"
        > b SUBSCRIBE id=4 filter=$dev/# qos=0
        < b SUBACK id=4 codes=0
        < b PUBLISH topic=$dev/x qos=0 retain=1 payload="hidden"
        > a PUBLISH topic=a/$x payload="only the first level counts"
        < a PUBLISH topic=a/$x qos=0 payload="only the first level counts"
        < b PUBLISH topic=a/$x qos=0 payload="only the first level counts"
        "#,
    );
}

#[test]
fn m4_7_3_1_topics_have_a_character() {
    assert_filters(&[""], false);
    assert_filters(&["/", "a", " "], true);
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=""
        < a closed protocol_error
        > a CONNECT client=a will_topic=""
        < a closed protocol_error
        "#,
    );
}

#[test]
fn m4_7_3_2_topics_hold_no_null_character() {
    assert_filters(&["a\\x00", "\\x00", "a/\\x00/#"], false);
}

#[test]
fn m4_7_3_3_topics_have_at_most_65535_bytes() {
    // A longer one has no form on the wire; the longest is taken.
    let mut world = World::default();
    world.send("a", "CONNECT client=a");
    world.send("a", "SUBSCRIBE id=1 filter=x*65535 qos=0");
    world.send("a", "PUBLISH topic=x*65535 payload=y");
    assert_eq!(
        world.lines_of("a"),
        ["CONNACK present=0 code=0", "SUBACK id=1 codes=0", "PUBLISH topic=x*65535 qos=0 payload=\"y\""]
    );
}

#[test]
fn m4_7_3_4_topics_are_matched_as_they_are() {
    // Composed and decomposed letters, case, spaces, empty levels and dots all count.
    let mut world = World::default();
    world.send("a", "CONNECT client=a");
    let topics = [
        "caf\u{e9}",
        "cafe\u{301}",
        "CAF\u{c9}",
        "caf\u{e9} ",
        "/caf\u{e9}",
        "caf\u{e9}/",
        "a//b",
        "a/b",
        "a/./b",
        "a.b",
    ];
    for (id, topic) in (1..).zip(topics) {
        world.send("a", &format!("SUBSCRIBE id={id} filter=\"{topic}\" qos=0"));
    }
    world.lines();
    for topic in topics {
        world.send("a", &format!("PUBLISH topic=\"{topic}\" payload=x"));
        assert_eq!(world.lines_of("a").len(), 1, "{topic}");
    }
}

#[test]
fn m4_8_0_1_a_violation_closes_the_connection_it_came_on() {
    let violations = [
        "CONNECT client=a",
        "HEX 20 02 00 00",
        "HEX 90 03 00 01 00",
        "HEX b0 02 00 01",
        "HEX d0 00",
        "HEX f0 00",
        "HEX 00 00",
        "HEX 30 ff ff ff ff 01",
        "HEX 40 03 00 01 00",
        "HEX 40 01 00",
        "HEX c0 01 00",
    ];
    for violation in violations {
        let mut world = World::default();
        world.send("other", "CONNECT client=other");
        world.send("a", "CONNECT client=a");
        world.lines();
        world.send("a", violation);
        assert_eq!(world.lines(), ["< a closed protocol_error"], "{violation}");
        world.send("other", "PINGREQ");
        assert_eq!(world.lines_of("other"), ["PINGRESP"], "{violation}");
    }
}

/// A packet that is larger than the gateway takes is the transient error that a client can cause.
#[test]
fn m4_8_0_2_a_transient_error_closes_the_connection_it_came_on() {
    let mut world = World::new(Setup::with(|setup| setup.config.limits.message_bytes_max = 1000));
    world.send("other", "CONNECT client=other");
    world.send("other", "SUBSCRIBE id=1 filter=# qos=0");
    world.send("a", "CONNECT client=a");
    world.lines();
    world.send_bytes("a", &packet::encode("PUBLISH topic=t payload=x*200000"));
    assert_eq!(world.lines(), ["< a closed protocol_error"]);
    world.send("other", "PINGREQ");
    assert_eq!(world.lines_of("other"), ["PINGRESP"]);
}

#[test]
fn m7_0_0_2_no_extension_is_needed() {
    // Nothing but what the standard names, from CONNECT to DISCONNECT, at each QoS.
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=2
        < a SUBACK id=1 codes=2
        > a PUBLISH topic=t qos=0 payload="0"
        < a PUBLISH topic=t qos=0 payload="0"
        > a PUBLISH topic=t qos=1 id=1 payload="1"
        < a PUBACK id=1
        < a PUBLISH topic=t qos=1 id=1 payload="1"
        > a PUBACK id=1
        > a PUBLISH topic=t qos=2 id=2 payload="2"
        < a PUBREC id=2
        < a PUBLISH topic=t qos=2 id=2 payload="2"
        > a PUBREL id=2
        < a PUBCOMP id=2
        > a PUBREC id=2
        < a PUBREL id=2
        > a PUBCOMP id=2
        > a UNSUBSCRIBE id=3 filter=t
        < a UNSUBACK id=3
        > a PINGREQ
        < a PINGRESP
        > a DISCONNECT
        < a closed disconnect
        "#,
    );
}
