//! Peers that are slow or deaf: a CONNECT that dribbles in, a subscriber that never reads, a publisher that never reads
//! its acknowledgements.

use std::time::Duration;

use crate::bystanders::{exchange, world};
use crate::support::driver::Setup;
use crate::support::packet;

/// Ten seconds from the start of the connection, not from its last byte.
#[test]
fn a_connect_that_dribbles_in_is_cut_off() {
    let mut world = world(Setup::default());
    world.accept("mallory");
    for byte in packet::encode("CONNECT client=mallory_with_a_long_name") {
        if !world.is_connected("mallory") {
            break;
        }
        world.send_bytes("mallory", &[byte]);
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.lines_of("mallory"), ["closed connect_timeout"]);
    exchange(&mut world);
}

#[test]
fn connections_that_send_nothing_are_cut_off() {
    let mut world = world(Setup::with(|setup| setup.config.limits.connections_max = 100));
    let mut accepted = 0;
    while world.accept(&format!("mute{accepted}")) {
        accepted += 1;
    }
    assert_eq!(accepted, 98);
    exchange(&mut world);
    world.pass(Duration::from_secs(11));
    assert_eq!(world.lines().iter().filter(|line| line.ends_with("closed connect_timeout")).count(), 98);
    assert!(world.accept("late"));
    world.send("late", "CONNECT client=late");
    assert_eq!(world.lines_of("late"), ["CONNACK present=0 code=0"]);
}

/// A packet that comes slowly after CONNECT is a matter of the keep-alive: whole packets count, pieces do not.
#[test]
fn a_packet_that_dribbles_in_does_not_keep_alive() {
    let mut world = world(Setup::default());
    world.send("mallory", "CONNECT client=mallory keep_alive=10");
    for byte in packet::encode("PUBLISH topic=some/topic payload=long_enough_to_take_a_while") {
        if !world.is_connected("mallory") {
            break;
        }
        world.send_bytes("mallory", &[byte]);
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.lines_of("mallory"), ["CONNACK present=0 code=0", "closed keep_alive_timeout"]);
    exchange(&mut world);
}

/// QoS 0 and 1 to a subscriber that never reads: what waits for it is bounded, and the publisher is not slowed.
#[test]
fn a_subscriber_that_never_reads() {
    for qos in 0..=2 {
        let mut world = world(Setup::default());
        world.send("deaf", "CONNECT client=deaf");
        world.send("deaf", &format!("SUBSCRIBE id=1 filter=flood qos={qos}"));
        world.stall("deaf");
        world.lines();
        for id in 1..=3000 {
            world.queue("bob", &format!("PUBLISH topic=flood qos={qos} id={id} payload=x*1000"));
            if qos == 2 {
                world.queue("bob", &format!("PUBREL id={id}"));
            }
            if id % 100 == 0 {
                world.settle();
            }
        }
        world.settle();
        let acknowledged = world.lines_of("bob").len();
        assert_eq!(acknowledged, 3000 * qos);
        let id = world.connection("deaf");
        let waiting = world.gateway.client(id).expect("it is connected").output_bytes;
        assert!(waiting < 400 * 1024, "QoS {qos}: {waiting} bytes wait");
        exchange(&mut world);
        // It can be rid of it, and catches up.
        world.reads("deaf");
        exchange(&mut world);
    }
}

/// A client that asks and never reads the answers is not read any more.
#[test]
fn a_client_that_never_reads_its_answers() {
    for text in [
        "PINGREQ",
        "SUBSCRIBE id=1 filter=t qos=0",
        "PUBLISH topic=t qos=1 id=1",
        "PUBREL id=1",
        "UNSUBSCRIBE id=1 filter=t",
    ] {
        let mut world = world(Setup::default());
        world.send("deaf", "CONNECT client=deaf");
        world.stall("deaf");
        let flood = packet::encode(text).repeat(200_000);
        world.send_bytes("deaf", &flood);
        let id = world.connection("deaf");
        let waiting = world.gateway.client(id).expect("it is connected").output_bytes;
        assert!(waiting <= 300 * 1024, "{text}: {waiting} bytes wait");
        assert!(world.unread("deaf") > 0, "{text}: the rest waits in its socket");
        assert!(world.gateway.input_bytes() <= 64 * 1024, "{text}");
        exchange(&mut world);
        world.reset("deaf");
        exchange(&mut world);
    }
}

/// Retained values for a subscriber that never reads: they are handed over as it reads, not all at once.
#[test]
fn retained_values_wait_for_a_subscriber_that_does_not_read() {
    let mut world = world(Setup::default());
    for n in 0..2000 {
        world.send("bob", &format!("PUBLISH topic=kept/{n} retain=1 payload=x*3000"));
    }
    for qos in 0..=1 {
        world.send("deaf", &format!("CONNECT client=deaf{qos}"));
        world.stall("deaf");
        world.send("deaf", &format!("SUBSCRIBE id=1 filter=kept/# qos={qos}"));
        let id = world.connection("deaf");
        let waiting = world.gateway.client(id).expect("it is connected").output_bytes;
        assert!(waiting < 400 * 1024, "{waiting} bytes wait");
        exchange(&mut world);
        world.reads("deaf");
        let lines = world.lines_of("deaf");
        assert_eq!(lines.iter().filter(|line| line.contains(" retain=1 ")).count(), 2000);
        exchange(&mut world);
        world.send("deaf", "DISCONNECT");
    }
}

/// A slow reader is alive: it is not disconnected while it takes what it is sent, though nothing it sends is read.
#[test]
fn a_slow_reader_is_not_disconnected() {
    let mut world = world(Setup::default());
    world.send("slow", "CONNECT client=slow keep_alive=10");
    world.send("slow", "SUBSCRIBE id=1 filter=flood qos=0");
    world.stall("slow");
    for _ in 0..400 {
        world.send("bob", "PUBLISH topic=flood payload=x*1000");
    }
    for _ in 0..30 {
        world.send("slow", "PINGREQ");
        world.reads_bytes("slow", 5000);
        world.pass(Duration::from_secs(5));
    }
    assert!(world.is_connected("slow"));
    world.pass(Duration::from_secs(16));
    assert!(!world.is_connected("slow"), "one that takes nothing any more is silent");
}
