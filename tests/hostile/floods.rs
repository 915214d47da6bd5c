//! Floods: many of the same packet, acknowledgements of nothing, identifiers that are never released.

use crate::bystanders::{exchange, world};
use crate::support::driver::{Setup, World};
use crate::support::packet;

fn memory(world: &World) -> u64 {
    world.figure("memory_bytes") + world.gateway.input_bytes() as u64
}

/// Answers that wait for the flash are bounded: a client that asks for more is not read until some have left.
#[test]
fn requests_whose_answers_wait_for_the_flash() {
    for text in [
        "PUBREL id=1",
        "PUBREC id=1",
        "SUBSCRIBE id=1 filter=t qos=0",
        "UNSUBSCRIBE id=1 filter=t",
        "PUBLISH topic=nobody qos=1 id=1",
        "PUBLISH topic=nobody qos=2 id=2",
    ] {
        let mut world = world(Setup::default());
        world.send("mallory", "CONNECT client=mallory clean=0");
        world.hold();
        world.send("mallory", "SUBSCRIBE id=9 filter=first qos=0");
        world.lines();
        let flood = packet::encode(text).repeat(100_000);
        world.send_bytes("mallory", &flood);
        assert!(world.unread("mallory") > flood.len() / 2, "{text}: {} are unread", world.unread("mallory"));
        assert!(memory(&world) < 200 * 1024, "{text}: {} bytes", memory(&world));
        world.release();
        assert_eq!(world.unread("mallory"), 0, "{text}");
        assert_eq!(world.lines_of("mallory").len(), 100_001, "{text}");
        exchange(&mut world);
    }
}

/// SUBACKs with many codes are counted by their size.
#[test]
fn large_answers_that_wait_for_the_flash() {
    let mut world = world(Setup::default());
    world.send("mallory", "CONNECT client=mallory clean=0");
    world.hold();
    let mut body = vec![0, 1];
    for _ in 0..50_000 {
        body.extend([0, 1, b't', 0]);
    }
    let flood = packet::packet(0x82, &body).repeat(12);
    world.send_bytes("mallory", &flood);
    assert!(world.unread("mallory") > flood.len() / 4, "{}", world.unread("mallory"));
    world.release();
    assert_eq!(world.unread("mallory"), 0);
    exchange(&mut world);
}

#[test]
fn releases_of_nothing_are_answered() {
    let mut world = world(Setup::default());
    world.send("mallory", "CONNECT client=mallory");
    world.lines();
    world.send_bytes("mallory", &packet::encode("PUBREL id=77").repeat(50_000));
    assert_eq!(world.lines_of("mallory").len(), 50_000);
    world.send_bytes("mallory", &packet::encode("PUBREC id=77").repeat(50_000));
    assert_eq!(world.lines_of("mallory").len(), 50_000);
    exchange(&mut world);
}

/// PUBACK, PUBREC and PUBCOMP of what is not in flight do not widen the window.
#[test]
fn stray_acknowledgements_do_not_widen_the_window() {
    let mut world = world(Setup::default());
    world.send("mallory", "CONNECT client=mallory");
    world.send("mallory", "SUBSCRIBE id=1 filter=flood qos=1");
    world.send("mallory", "SUBSCRIBE id=2 filter=flood/2 qos=2");
    for id in 100..=400 {
        for text in ["PUBACK", "PUBCOMP"] {
            world.queue("mallory", &format!("{text} id={id}"));
        }
    }
    world.settle();
    for id in 1..=20 {
        world.queue("bob", &format!("PUBLISH topic=flood qos=1 id={id}"));
        world.queue("bob", &format!("PUBLISH topic=flood/2 qos=2 id={}", 100 + id));
    }
    world.settle();
    let in_flight = |world: &mut World| {
        world.lines_of("mallory").iter().filter(|line| line.starts_with("PUBLISH")).count()
    };
    assert_eq!(in_flight(&mut world), 20);
    // PUBCOMP for what is at PUBLISH, PUBACK for QoS 2, PUBREC for QoS 1, repeats: none of it is an acknowledgement.
    for id in 1..=20 {
        world.queue("mallory", &format!("PUBCOMP id={id}"));
    }
    world.settle();
    assert_eq!(in_flight(&mut world), 0);
    world.send("mallory", "PUBACK id=1");
    assert_eq!(in_flight(&mut world), 1);
    world.send("mallory", "PUBACK id=1");
    world.send("mallory", "PUBACK id=1");
    assert_eq!(in_flight(&mut world), 0);
    // The second message was of QoS 2: received, it stays in the window until it is released.
    world.send("mallory", "PUBREC id=2");
    assert_eq!(in_flight(&mut world), 0);
    world.send("mallory", "PUBCOMP id=2");
    assert_eq!(in_flight(&mut world), 1);
    world.send("mallory", "PUBCOMP id=2");
    world.send("mallory", "PUBREC id=2");
    assert_eq!(in_flight(&mut world), 0);
    exchange(&mut world);
}

/// CVE-2023-28366: identifiers of QoS 2 that are never released are bounded.
#[test]
fn publishes_that_are_never_released() {
    for clean in [0, 1] {
        // A quarter is for what clients keep: 10 240 identifiers, beside the 2048 that each session has.
        let mut world = world(Setup::with(|setup| setup.config.limits.memory_max = 640 << 10));
        world.send("mallory", &format!("CONNECT client=mallory clean={clean}"));
        world.lines();
        let mut sent = 0;
        while world.is_connected("mallory") && sent < 65_535 {
            sent += 1;
            world.queue("mallory", &format!("PUBLISH topic=t qos=2 id={sent}"));
            if sent % 64 == 0 {
                world.settle();
            }
        }
        assert_eq!(world.lines_of("mallory").last().map(String::as_str), Some("closed protocol_error"));
        assert!((12_000..12_500).contains(&sent), "{sent}");
        exchange(&mut world);
        // What it had sent can still be released.
        world.send("mallory", &format!("CONNECT client=mallory clean={clean}"));
        world.send("mallory", "PUBREL id=1");
        world.send("mallory", "PUBLISH topic=t qos=2 id=1");
        let lines = world.lines_of("mallory");
        assert_eq!(lines[1..], ["PUBCOMP id=1", "PUBREC id=1"]);
    }
}

/// CONNECT and DISCONNECT without end, with the same identifier and with others.
#[test]
fn connections_without_end() {
    let mut world = world(Setup::default());
    for n in 0..2000 {
        world.send("mallory", &format!("CONNECT client=m{} clean={} will_topic=w will_qos=1", n % 7, n % 2));
        match n % 3 {
            0 => world.send("mallory", "DISCONNECT"),
            1 => world.reset("mallory"),
            _ => world.send("mallory", "PUBREL id=0"),
        }
    }
    assert!(world.figure("sessions.total") <= 2 + 7);
    assert_eq!(world.figure("connections.open"), 2);
    exchange(&mut world);
}

/// The same with a store that does not answer: what each leaves behind is bounded.
#[test]
fn connections_without_end_while_the_flash_fails() {
    let mut world = world(Setup::default());
    world.hold();
    world.counts_only = true;
    for n in 0..3000 {
        let will = if n % 3 == 0 { " will_topic=w will_qos=1" } else { "" };
        world.send("mallory", &format!("CONNECT client=m{} clean={}{will}", n % 5, n / 5 % 2));
        world.reset("mallory");
        world.lines();
    }
    world.counts_only = false;
    assert!(world.figure("sessions.total") <= 2 + 5);
    assert!(memory(&world) < 100_000, "{}", memory(&world));
    world.release();
    exchange(&mut world);
}

/// Two clients that fight for one identifier (CVE-2025-59946): the newest wins each time.
#[test]
fn a_fight_for_one_identifier() {
    let mut world = world(Setup::default());
    for n in 0..500 {
        let (name, other) = if n % 2 == 0 { ("m", "n") } else { ("n", "m") };
        world.send(name, "CONNECT client=same clean=0");
        world.queue(name, &format!("SUBSCRIBE id=1 filter=t/{} qos=1", n % 5));
        world.queue("bob", &format!("PUBLISH topic=t/{} qos=1 id=1 payload={n}", n % 5));
        assert!(!world.is_connected(other));
    }
    world.settle();
    assert_eq!(world.figure("sessions.total"), 3);
    exchange(&mut world);
}
