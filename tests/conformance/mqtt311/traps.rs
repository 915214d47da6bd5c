//! Traps: what broke real brokers, each by its name. What needs MQTT 5, TLS or several processes is not here; memory and
//! floods are in tests/hostile, the flash in tests/durability_gates.

use crate::support::driver::{Setup, World};
use crate::support::packet;
use crate::support::transcript::{check, check_in};

// CONNECT.

/// Mosquitto's bridges set bit 7 of the level.
#[test]
fn protocol_levels_3_4_5_6_and_those_with_the_bridge_bit() {
    for (name, level, accepted) in [
        ("MQIsdp", 3, true),
        ("MQTT", 4, true),
        ("MQTT", 6, false),
        ("MQTT", 3, false),
        ("MQIsdp", 4, false),
        ("MQIsdp", 5, false),
        ("MQIsdp", 0x83, true),
        ("MQTT", 0x84, true),
        ("MQTT", 0x86, false),
    ] {
        let mut world = World::default();
        world.send("a", &format!("CONNECT name={name} level={level} client=a"));
        let lines = world.lines_of("a");
        if level & 0x7f == 6 {
            assert_eq!(lines, ["CONNACK present=0 code=0x84", "closed refused"], "{name} {level:#x}");
        } else if accepted {
            assert_eq!(lines, ["CONNACK present=0 code=0"], "{name} {level:#x}");
        } else {
            assert_eq!(lines, ["CONNACK present=0 code=1", "closed refused"], "{name} {level:#x}");
        }
    }
}

/// A bridge hands on what it gets, and what it publishes itself would come back to it.
#[test]
fn a_bridge_does_not_get_its_own_messages_and_sees_what_is_retained() {
    check(
        r#"
        > bridge CONNECT level=132 client=bridge
        < bridge CONNACK present=0 code=0
        > bridge SUBSCRIBE id=1 filter=# qos=1
        < bridge SUBACK id=1 codes=1
        > bridge PUBLISH topic=a payload="its own"
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b PUBLISH topic=a retain=1 payload="another's"
        < bridge PUBLISH topic=a qos=0 retain=1 payload="another's"
        "#,
    );
}

#[test]
fn a_will_topic_is_checked_against_the_rules() {
    check(
        r#"
        % acl=topic write mine/#
        % acl=topic read #
        > a CONNECT client=a will_topic=mine/will
        < a CONNACK present=0 code=0
        > b CONNECT client=b will_topic=others/will
        < b CONNACK present=0 code=5
        < b closed refused
        "#,
    );
}

/// Mosquitto's bridges have a will there by default: it gets what their PUBLISH there gets.
#[test]
fn a_will_under_sys_is_taken_and_dropped_like_a_publish() {
    for setting in ["% inflight_max=20", "% acl=topic readwrite #"] {
        check(&format!(
            r#"
            {setting}
            > watch CONNECT client=watch
            < watch CONNACK present=0 code=0
            > watch SUBSCRIBE id=1 filter=$SYS/will qos=0 filter=# qos=0
            < watch SUBACK id=1 codes={granted},0
            > bridge CONNECT level=132 client=bridge will_topic=$SYS/will will_payload=0 will_qos=1 will_retain=1
            < bridge CONNACK present=0 code=0
            > bridge PUBLISH topic=$SYS/will qos=1 id=1 retain=1 payload=1
            < bridge PUBACK id=1
            ! bridge reset
            < bridge closed peer_closed
            > watch PUBLISH topic=end payload=x
            < watch PUBLISH topic=end qos=0 payload="x"
            > watch SUBSCRIBE id=2 filter=$SYS/will qos=0
            < watch SUBACK id=2 codes={granted}
            "#,
            granted = if setting.contains("acl") { "0x80" } else { "0" },
        ));
    }
}

/// Without a password file a user name is ignored.
#[test]
fn a_user_name_without_a_password_file_is_ignored() {
    check(
        r#"
        > a CONNECT client=a user=anybody password=anything
        < a CONNACK present=0 code=0
        > b CONNECT client=b user=anybody
        < b CONNACK present=0 code=0
        "#,
    );
}

/// The check of a password takes its time: nothing that follows is handled before, and the peer may be gone.
#[test]
fn a_slow_password_check() {
    let mut world = World::new(crate::support::transcript::setup("% user=ada:secret"));
    world.hold_passwords = true;
    world.send("a", "CONNECT client=a user=ada password=secret");
    world.send("a", "PINGREQ");
    world.send("b", "CONNECT client=b user=ada password=wrong");
    world.send("c", "CONNECT client=c user=ada password=secret");
    world.reset("c");
    assert_eq!(world.lines(), ["< c closed peer_closed"]);
    world.answer_passwords();
    let lines = world.lines();
    assert_eq!(
        lines,
        [
            "< a CONNACK present=0 code=0",
            "< a PINGRESP",
            "< b CONNACK present=0 code=5",
            "< b closed refused"
        ]
    );
    assert_eq!(world.figure("sessions.total"), 1);
}

// PUBLISH.

/// A2, OxiDB 5: payloads are bytes.
#[test]
fn binary_payloads_are_kept_byte_for_byte() {
    let payload: Vec<u8> = (0..=255).cycle().take(20_000).collect();
    let mut body = b"\x00\x01t\x00\x07".to_vec();
    body.extend_from_slice(&payload);
    let mut world = World::default();
    world.send("sub", "CONNECT client=sub clean=0");
    world.send("sub", "SUBSCRIBE id=1 filter=t qos=1");
    world.send("sub", "DISCONNECT");
    world.send("pub", "CONNECT client=pub");
    world.send_bytes("pub", &packet::packet(0x33, &body));
    world.cut_power();
    world.lines();
    world.send("sub", "CONNECT client=sub clean=0");
    world.send("sub", "SUBSCRIBE id=1 filter=t qos=0");
    let expected: String = {
        let mut body = b"\x00\x01t\x00\x01".to_vec();
        body.extend_from_slice(&payload);
        packet::decode(&mut packet::packet(0x3a, &body)).remove(0)
    };
    let lines = world.lines_of("sub");
    assert_eq!(lines[1], expected);
    assert!(lines.iter().any(|line| line.starts_with("PUBLISH topic=t qos=0 retain=1")));
}

/// Every size around the borders of rows and of bodies that are shared.
#[test]
fn bodies_of_every_size_come_back_whole() {
    let mut world = World::default();
    world.send("sub", "CONNECT client=sub clean=0");
    world.send("sub", "SUBSCRIBE id=1 filter=t qos=1");
    world.send("sub", "DISCONNECT");
    world.send("pub", "CONNECT client=pub");
    let sizes = [
        0, 1, 63, 3800, 3880, 3890, 3899, 3900, 3901, 4096, 7799, 7800, 7801, 16_383, 16_384, 16_385,
        100_000, 2_000_000,
    ];
    for (id, size) in (1..).zip(sizes) {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={id} payload=x*{size}"));
    }
    world.cut_power();
    world.lines();
    world.send("sub", "CONNECT client=sub clean=0");
    let lines = world.lines_of("sub");
    for (id, size) in (1..).zip(sizes) {
        let payload = match size {
            0 => "\"\"".into(),
            1..=64 => format!("\"{}\"", "x".repeat(size)),
            _ => format!("x*{size}"),
        };
        assert_eq!(lines[id], format!("PUBLISH topic=t qos=1 dup=1 id={id} payload={payload}"));
    }
}

/// `$SYS` is the gateway's; `$` and other names below it are topics like others, hidden from wildcards.
#[test]
fn topics_that_begin_with_a_dollar() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=$SYS/x qos=0 filter=$other/# qos=0 filter=$ qos=0 filter=$SYSTEM qos=0 filter=$CONTROL/# qos=0
        < a SUBACK id=1 codes=0,0,0,0,0
        > a PUBLISH topic=$SYS qos=0 retain=1 payload="forged"
        > a PUBLISH topic=$SYS/broker/version qos=1 retain=1 id=1 payload="forged"
        < a PUBACK id=1
        > a PUBLISH topic=$SYS/x qos=2 id=2 payload="forged"
        < a PUBREC id=2
        > a PUBLISH topic=$other payload="1"
        < a PUBLISH topic=$other qos=0 payload="1"
        > a PUBLISH topic=$ payload="2"
        < a PUBLISH topic=$ qos=0 payload="2"
        > a PUBLISH topic=$SYSTEM payload="3"
        < a PUBLISH topic=$SYSTEM qos=0 payload="3"
        > a PUBLISH topic=$CONTROL/x payload="4"
        < a PUBLISH topic=$CONTROL/x qos=0 payload="4"
        > b CONNECT client=b
        < b CONNACK present=0 code=0
        > b SUBSCRIBE id=1 filter=$SYS qos=0 filter=$SYS/x qos=0
        < b SUBACK id=1 codes=0,0
        "#,
    );
}

/// QoS 2 replay delivers once, even after a power cut at each step of the exchange.
#[test]
fn qos_2_delivers_once_whatever_is_lost() {
    // The step after which power is cut: PUBLISH, PUBREC, PUBREL, PUBCOMP, each way.
    for cut_after in 0..6 {
        let mut world = World::default();
        world.send("sub", "CONNECT client=sub clean=0");
        world.send("sub", "SUBSCRIBE id=1 filter=t qos=2");
        world.send("pub", "CONNECT client=pub clean=0");
        let mut delivered = std::collections::BTreeSet::new();
        let mut publisher = Some("PUBLISH topic=t qos=2 id=5 payload=once".to_owned());
        world.lines();
        for step in 0..40 {
            if step == cut_after {
                world.cut_power();
                world.send("sub", "CONNECT client=sub clean=0");
                world.send("pub", "CONNECT client=pub clean=0");
            }
            if let Some(text) = publisher.clone().filter(|_| step == 0 || step >= cut_after) {
                world.send("pub", &text);
            }
            for line in world.lines() {
                let id = line
                    .split(" id=")
                    .nth(1)
                    .and_then(|rest| rest.split(' ').next())
                    .unwrap_or("0")
                    .to_owned();
                match line.split(' ').take(3).collect::<Vec<_>>()[1..] {
                    ["sub", "PUBLISH"] => {
                        delivered.insert(id.clone());
                        world.send("sub", &format!("PUBREC id={id}"));
                    }
                    ["sub", "PUBREL"] => world.send("sub", &format!("PUBCOMP id={id}")),
                    ["pub", "PUBREC"] => publisher = Some("PUBREL id=5".into()),
                    ["pub", "PUBCOMP"] => publisher = None,
                    _ => {}
                }
            }
        }
        assert_eq!(delivered.len(), 1, "cut after step {cut_after}: {delivered:?}");
        assert_eq!(publisher, None);
        assert_eq!(world.figure("sessions.queued"), 0);
    }
}

// Resume.

/// After a restart a session is routable before its client is back (RMQTT's restored sessions were not).
#[test]
fn a_restored_session_is_routable() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=+/deep/# qos=1
        < sub SUBACK id=1 codes=1
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=0
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=a/deep/topic qos=1 id=1 payload="x"
        < pub PUBACK id=1
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBLISH topic=a/deep/topic qos=1 id=1 payload="x"
        "#,
    );
}

/// Identifiers that were restored are not given out again (EMQX 16296, RMQTT 0.23).
#[test]
fn new_deliveries_do_not_collide_with_restored_identifiers() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=2 id=1 payload="1"
        < pub PUBREC id=1
        < sub PUBLISH topic=t qos=2 id=1 payload="1"
        > pub PUBLISH topic=t qos=2 id=2 payload="2"
        < pub PUBREC id=2
        < sub PUBLISH topic=t qos=2 id=2 payload="2"
        > sub PUBREC id=1
        < sub PUBREL id=1
        ! power-cut
        = recovered sessions=1 queued=1 retained=0 wills=0
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBLISH topic=t qos=2 dup=1 id=2 payload="2"
        < sub PUBREL id=1
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=2 id=3 payload="3"
        < pub PUBREC id=3
        < sub PUBLISH topic=t qos=2 id=3 payload="3"
        "#,
    );
}

/// A PUBREL for an identifier that nobody knows is answered once, and makes nothing of it.
#[test]
fn a_pubrel_for_an_unknown_identifier_is_answered_once() {
    check(
        r#"
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a PUBREL id=99
        < a PUBCOMP id=99
        @ +1h
        > a PUBLISH topic=t qos=2 id=99 payload="new"
        < a PUBREC id=99
        "#,
    );
}

/// Nothing that expires removes an exchange after PUBREC (Mosquitto 3744): the session lives, so the exchange does.
#[test]
fn an_exchange_after_pubrec_outlives_any_wait() {
    check(
        r#"
        % session_expiry_max=1h
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=2 id=1 payload="1"
        < pub PUBREC id=1
        < sub PUBLISH topic=t qos=2 id=1 payload="1"
        > sub PUBREC id=1
        < sub PUBREL id=1
        @ +2h
        > sub PUBCOMP id=1
        ! sub reset
        < sub closed peer_closed
        @ +59m
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        "#,
    );
}

// Flow.

/// A client that is smaller than its backlog gets all of it, in order, at its own pace.
#[test]
fn a_backlog_larger_than_the_client() {
    let mut world = World::new(Setup::with(|setup| setup.config.limits.inflight_max = 3));
    world.send("sub", "CONNECT client=sub clean=0");
    world.send("sub", "SUBSCRIBE id=1 filter=t qos=1");
    world.send("sub", "DISCONNECT");
    world.send("pub", "CONNECT client=pub");
    for n in 1..=200 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={n} payload={n}"));
    }
    world.cut_power();
    world.lines();
    let mut next = 1;
    while next <= 200 {
        // The connection breaks after each dozen.
        world.send("sub", "CONNECT client=sub clean=0");
        let mut taken = 0;
        let mut lines = world.lines_of("sub");
        while taken < 12 && next <= 200 {
            let line = lines
                .iter()
                .find(|l| l.ends_with(&format!("payload=\"{next}\"")))
                .expect("it comes in order")
                .clone();
            let id =
                line.split(" id=").nth(1).and_then(|rest| rest.split(' ').next()).expect("an identifier");
            world.send("sub", &format!("PUBACK id={id}"));
            lines.extend(world.lines_of("sub"));
            next += 1;
            taken += 1;
        }
        assert!(
            lines.iter().filter(|l| l.starts_with("PUBLISH")).count() <= taken + 3,
            "never more than the window"
        );
        world.reset("sub");
        world.lines();
    }
}

/// A client that never acknowledges gets its window, and no more; others are not held up.
#[test]
fn a_client_that_never_acknowledges() {
    let mut world = World::default();
    for name in ["deaf", "good"] {
        world.send(name, &format!("CONNECT client={name}"));
        world.send(name, "SUBSCRIBE id=1 filter=t qos=1");
    }
    world.send("pub", "CONNECT client=pub");
    world.lines();
    for n in 1..=100 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={n} payload={n}"));
        let lines = world.lines();
        assert!(lines.contains(&format!("< good PUBLISH topic=t qos=1 id={n} payload=\"{n}\"")));
        assert_eq!(lines.iter().any(|line| line.starts_with("< deaf")), n <= 20);
        world.send("good", &format!("PUBACK id={n}"));
    }
}

// Subscribe.

/// A `+` takes an empty level too (OxiDB 10).
#[test]
fn a_plus_matches_an_empty_level() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=a/+/b qos=0 filter=+ qos=0 filter=/+ qos=0
        < a SUBACK id=1 codes=0,0,0
        > a PUBLISH topic=a//b
        < a PUBLISH topic=a//b qos=0 payload=""
        > a PUBLISH topic=/
        < a PUBLISH topic=/ qos=0 payload=""
        > a PUBLISH topic=//
        "#,
    );
}

/// SUBACK comes only when the subscription works (BifroMQ 281): whoever publishes after it reaches the subscriber.
#[test]
fn suback_comes_when_the_subscription_works() {
    check(
        r#"
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=0 ~
        > sub PUBLISH topic=t payload="right behind it"
        < sub SUBACK id=1 codes=0
        < sub PUBLISH topic=t qos=0 payload="right behind it"
        > pub PUBLISH topic=t payload="after it"
        < sub PUBLISH topic=t qos=0 payload="after it"
        "#,
    );
}

/// A walk over very many retained values does not stall the others.
#[test]
fn a_subscription_to_very_many_retained_values() {
    let mut world = World::new(Setup::with(|setup| {
        setup.config.limits.retained_max = 50_000;
        setup.config.limits.retained_bytes_max = 64 << 20;
        setup.store.gateway_bytes_max = 64 << 20;
    }));
    world.send("pub", "CONNECT client=pub");
    for n in 0..20_000 {
        world.queue("pub", &format!("PUBLISH topic=r/{} retain=1 payload={n}", n));
        if n % 1000 == 0 {
            world.settle();
        }
    }
    world.settle();
    world.send("sub", "CONNECT client=sub");
    world.stall("sub");
    world.send("sub", "SUBSCRIBE id=1 filter=# qos=0");
    world.lines();
    check_in(&mut world, "> pub PINGREQ\n< pub PINGRESP");
    world.reads("sub");
    assert_eq!(world.lines_of("sub").iter().filter(|line| line.contains("retain=1")).count(), 20_000);
}

/// A new subscriber gets every retained value, also when there are more than a queue may hold (Mosquitto 2196).
#[test]
fn more_retained_values_than_a_queue_holds_reach_a_new_subscriber() {
    for qos in 0..=1 {
        let mut world = World::new(Setup::with(|setup| setup.config.queues.session.messages_max = 50));
        world.send("pub", "CONNECT client=pub");
        for n in 0..300 {
            world.send("pub", &format!("PUBLISH topic=r/{n} qos={qos} retain=1 id=1 payload={n}"));
        }
        world.send("sub", "CONNECT client=sub");
        world.lines();
        world.send("sub", &format!("SUBSCRIBE id=1 filter=r/+ qos={qos}"));
        let mut seen = 0;
        loop {
            let lines = world.lines_of("sub");
            let published: Vec<_> = lines.iter().filter(|line| line.starts_with("PUBLISH")).collect();
            if published.is_empty() {
                break;
            }
            seen += published.len();
            for line in published {
                if let Some(id) = line.split(" id=").nth(1).and_then(|rest| rest.split(' ').next()) {
                    world.queue("sub", &format!("PUBACK id={id}"));
                }
            }
            world.settle();
        }
        assert_eq!(seen, 300, "QoS {qos}");
    }
}

// Wills.

#[test]
fn a_will_goes_out_on_takeover() {
    check(
        r#"
        > watch CONNECT client=watch
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=w qos=0
        < watch SUBACK id=1 codes=0
        > a CONNECT client=c will_topic=w will_payload="a"
        < a CONNACK present=0 code=0
        > b CONNECT client=c will_topic=w will_payload="b"
        < b CONNACK present=0 code=0
        < a closed taken_over
        < watch PUBLISH topic=w qos=0 payload="a"
        > b DISCONNECT
        < b closed disconnect
        "#,
    );
}

/// OxiDB 4: wills take the durable path, with their QoS.
#[test]
fn a_will_reaches_a_durable_session_with_its_qos() {
    check(
        r#"
        > watch CONNECT client=watch clean=0
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=w qos=2
        < watch SUBACK id=1 codes=2
        > watch DISCONNECT
        < watch closed disconnect
        > a CONNECT client=a will_topic=w will_qos=2 will_payload="gone"
        < a CONNACK present=0 code=0
        ! a reset
        < a closed peer_closed
        @ +1s
        ! power-cut
        = recovered sessions=1 queued=1 retained=0 wills=0
        > watch CONNECT client=watch clean=0
        < watch CONNACK present=1 code=0
        < watch PUBLISH topic=w qos=2 id=1 payload="gone"
        "#,
    );
}

/// A clean stop of the gateway is no leave of its clients: wills that are kept go out at the next start.
#[test]
fn a_will_survives_a_stop_of_the_gateway() {
    check(
        r#"
        > watch CONNECT client=watch clean=0
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=w qos=1
        < watch SUBACK id=1 codes=1
        > a CONNECT client=a will_topic=w will_qos=1 will_payload="gone"
        < a CONNACK present=0 code=0
        ! stop
        < a closed shutdown
        < watch closed shutdown
        = recovered sessions=1 queued=0 retained=0 wills=1
        > watch CONNECT client=watch clean=0
        < watch CONNACK present=1 code=0
        < watch PUBLISH topic=w qos=1 id=1 payload="gone"
        "#,
    );
}

// Retained.

/// OxiDB 3: a retained value is replaced in one step; a cut at any operation leaves the old one or the new one.
#[test]
fn a_retained_value_is_there_at_every_moment() {
    for cut in 0..400 {
        let mut world = World::default();
        world.send("pub", "CONNECT client=pub");
        world.send("pub", "PUBLISH topic=t qos=1 retain=1 id=1 payload=0");
        let before = world.disk.operations();
        world.disk.power_cut_at(before + cut / 4);
        for n in 1..=40 {
            world.send("pub", &format!("PUBLISH topic=t qos=1 retain=1 id={n} payload={n}"));
        }
        let acknowledged = world.lines_of("pub").len() as i64 - 2;
        world.cut_power();
        world.send("sub", "CONNECT client=sub");
        world.send("sub", "SUBSCRIBE id=1 filter=t qos=0");
        let lines = world.lines_of("sub");
        let value: i64 =
            lines[2].split('"').nth(1).and_then(|value| value.parse().ok()).expect("a value is there");
        assert!(
            value == acknowledged || value == acknowledged + 1,
            "cut {cut}: {value}, acknowledged {acknowledged}"
        );
    }
}

/// OxiDB 6: CleanSession 1 wipes what was on flash.
#[test]
fn a_clean_session_wipes_the_old_one_on_flash() {
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
        > b PUBLISH topic=t qos=1 id=1 payload="old"
        < b PUBACK id=1
        > a CONNECT client=a clean=1
        < a CONNACK present=0 code=0
        > a DISCONNECT
        < a closed disconnect
        ! power-cut
        = recovered sessions=0 queued=0 retained=0 wills=0
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        "#,
    );
}

/// OxiDB 1: an error of the flash is no PUBACK. OxiDB 2: one copy on flash, whatever the fan-out.
#[test]
fn one_message_is_stored_once_for_all_its_takers() {
    let written = |takers: usize| {
        let mut world = World::new(Setup::with(|setup| {
            // So that nothing is applied while the test counts.
            setup.store.gateway_bytes_max = 64 << 20;
            setup.store.journal_bytes = 8 << 20;
        }));
        for n in 0..takers {
            world.send(&format!("s{n}"), &format!("CONNECT client=s{n} clean=0"));
            world.send(&format!("s{n}"), "SUBSCRIBE id=1 filter=t qos=1");
            world.send(&format!("s{n}"), "DISCONNECT");
        }
        world.send("pub", "CONNECT client=pub");
        world.pass(std::time::Duration::from_secs(2));
        let before = world.disk.bytes_written();
        for id in 1..=10 {
            world.send("pub", &format!("PUBLISH topic=t qos=1 id={id} payload=x*3000"));
        }
        world.disk.bytes_written() - before
    };
    let (one, fifty) = (written(1), written(50));
    assert!(fifty <= one + one / 10, "{one} bytes for one taker, {fifty} for fifty");
}

// Clock.

/// Keep-alive runs on the monotonic clock; a step of the wall clock by ten years disconnects nobody and expires nothing.
#[test]
fn time_steps_both_ways() {
    check(
        r#"
        > a CONNECT client=a clean=0 keep_alive=60
        < a CONNACK present=0 code=0
        > b CONNECT client=b clean=0
        < b CONNACK present=0 code=0
        > b DISCONNECT
        < b closed disconnect
        @ wall +87600h
        @ +80s
        > a PINGREQ
        < a PINGRESP
        @ wall -175200h
        @ +80s
        > a PINGREQ
        < a PINGRESP
        > b CONNECT client=b clean=0
        < b CONNACK present=1 code=0
        "#,
    );
}

/// Suspend: the monotonic clock may jump as well. Who was silent too long is disconnected, once, and nothing spins.
#[test]
fn a_suspended_machine_wakes_up() {
    let mut world = World::default();
    world.send("a", "CONNECT client=a keep_alive=60");
    world.send("b", "CONNECT client=b keep_alive=0");
    world.lines();
    world.now.mono.0 += 8 * 3600 * 1_000_000;
    world.settle();
    assert_eq!(world.lines(), ["< a closed keep_alive_timeout"]);
    world.send("b", "PINGREQ");
    assert_eq!(world.lines(), ["< b PINGRESP"]);
}

// Process.

/// Very many sessions at the start, and all of their clients at once.
#[test]
fn very_many_sessions_come_back_at_once() {
    let mut world = World::default();
    for n in 0..2000 {
        world.queue(&format!("c{n}"), &format!("CONNECT client=c{n} clean=0"));
        world.queue(&format!("c{n}"), &format!("SUBSCRIBE id=1 filter=t/{} qos=1", n % 10));
    }
    world.settle();
    world.cut_power();
    assert_eq!(world.recovery.sessions, 2000);
    world.lines();
    for n in 0..2000 {
        world.queue(&format!("c{n}"), &format!("CONNECT client=c{n} clean=0"));
    }
    world.settle();
    let lines = world.lines();
    assert_eq!(lines.iter().filter(|line| line.ends_with("CONNACK present=1 code=0")).count(), 2000);
    world.send("pub", "CONNECT client=pub");
    world.lines();
    world.send("pub", "PUBLISH topic=t/3 payload=x");
    assert_eq!(world.lines().len(), 200);
}
