//! What takes many clients or messages.

use std::time::Duration;

use gatewayd::store::batch::Persisted;

use crate::support::driver::World;

/// A thousand clients that each take over from the one before.
#[test]
fn a_storm_of_a_thousand_takeovers_leaves_one_client_and_its_session() {
    let mut world = World::default();
    world.send("c0", "CONNECT version=5 client=x session_expiry=100");
    world.send("c0", "SUBSCRIBE id=1 filter=t qos=1");
    world.lines();
    for n in 1..=1000 {
        // Two in one round: the second finds the first not joined yet.
        world.queue(&format!("c{n}"), "CONNECT version=5 client=x clean=0 session_expiry=100");
        if n % 2 == 0 {
            world.settle();
        }
    }
    world.settle();
    let lines = world.lines();
    let told = lines.iter().filter(|line| line.ends_with("DISCONNECT code=0x8e")).count();
    let closed = lines.iter().filter(|line| line.ends_with("closed taken_over")).count();
    assert_eq!(closed, 1000);
    assert!(told >= 500, "those that had joined are told: {told}");
    let left: Vec<_> = (0..=1000).filter(|n| world.is_connected(&format!("c{n}"))).collect();
    assert_eq!(left, [1000]);
    world.send("p", "CONNECT version=5 client=p");
    world.send("p", "PUBLISH topic=t qos=1 id=1 payload=x");
    assert_eq!(world.lines_of("c1000"), [r#"PUBLISH topic=t qos=1 id=1 payload="x""#]);
}

/// Receive Maximum 1 and a backlog of ten thousand: each comes once and in order.
#[test]
fn a_receive_maximum_of_one_gets_through_a_backlog_of_ten_thousand() {
    const BACKLOG: u32 = 10_000;
    let mut world = World::new(crate::support::driver::Setup::with(|setup| {
        setup.config.queues.session.messages_max = u64::from(BACKLOG);
        setup.store.gateway_bytes_max = 64 << 20;
    }));
    world.send("s", "CONNECT version=5 client=s session_expiry=1000 receive_maximum=1");
    world.send("s", "SUBSCRIBE id=1 filter=t qos=1");
    world.reset("s");
    world.send("p", "CONNECT version=5 client=p");
    for n in 1..=BACKLOG {
        world.queue("p", &format!("PUBLISH topic=t qos=1 id={} payload={n}", n % 500 + 1));
        if n % 500 == 0 {
            world.settle();
        }
    }
    world.settle();
    world.lines();
    world.send("s", "CONNECT version=5 client=s clean=0 receive_maximum=1");
    let mut expected = 1;
    loop {
        let lines = world.lines_of("s");
        let publishes: Vec<_> = lines.iter().filter(|line| line.starts_with("PUBLISH")).collect();
        assert!(publishes.len() <= 1, "more than one is under way: {publishes:?}");
        let Some(publish) = publishes.first() else { break };
        assert!(publish.ends_with(&format!("payload=\"{expected}\"")), "{publish} is not {expected}");
        let id = publish.split("id=").nth(1).and_then(|rest| rest.split(' ').next()).expect("an identifier");
        world.send("s", &format!("PUBACK id={id}"));
        expected += 1;
    }
    assert_eq!(expected, BACKLOG + 1);
}

/// A subscriber that never reads costs others nothing, and the gateway a bounded amount.
#[test]
fn a_subscriber_that_never_reads_holds_nobody_up() {
    let mut world = World::default();
    world.send("s", "CONNECT version=5 client=s session_expiry=1000");
    world.send("s", "SUBSCRIBE id=1 filter=t qos=1");
    world.send("other", "CONNECT version=5 client=other");
    world.send("other", "SUBSCRIBE id=1 filter=t qos=0");
    world.send("p", "CONNECT version=5 client=p");
    world.stall("s");
    world.lines();
    for n in 0..200 {
        world.send("p", &format!("PUBLISH topic=t qos=1 id={} payload=x*20000", n + 1));
    }
    let lines = world.lines();
    assert_eq!(lines.iter().filter(|line| line.starts_with("< p PUBACK")).count(), 200);
    assert_eq!(lines.iter().filter(|line| line.starts_with("< other PUBLISH")).count(), 200);
    let waiting = world.gateway.client(world.connection("s")).expect("it is connected").output_bytes;
    assert!(waiting <= 512 * 1024, "{waiting} bytes wait for it");
    world.reads("s");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.lines_of("s").len(), 20, "its window, and no more");
}

/// Nothing follows DISCONNECT, not even what becomes due while it waits to be read.
#[test]
fn nothing_follows_disconnect() {
    let mut world = World::default();
    world.send("s", "CONNECT version=5 client=s session_expiry=100");
    world.send("s", "SUBSCRIBE id=1 filter=t qos=1");
    world.reset("s");
    world.send("p", "CONNECT version=5 client=p");
    let (now, id) = (world.now, world.connection("p"));
    world.gateway.receive(now, id, b"\x32\x07\x00\x01t\x00\x01\x00x");
    let batch = world.gateway.close_batch(now).expect("the message is to be kept");
    // PINGREQ with a reserved flag.
    world.gateway.receive(now, id, b"\xc1\x00");
    let said = |world: &mut World| world.gateway.output(id).map_or(0, |output| output.len());
    let before = said(&mut world);
    assert!(before > 0, "DISCONNECT waits to be read");
    let persisted =
        Persisted { number: batch.number, bytes_written: 0, syncs: 1, live_bytes: 0, overhead_bytes: 0 };
    world.gateway.persisted(now, persisted);
    assert_eq!(said(&mut world), before, "no PUBACK behind it");
}

/// A client that has more under way than the receive maximum is told, and what it sent before counts.
#[test]
fn more_publishes_under_way_than_the_receive_maximum_end_the_connection() {
    let mut world = World::default();
    world.send("p", "CONNECT version=5 client=p session_expiry=100");
    world.lines();
    for id in 1..=1024 {
        world.queue("p", &format!("PUBLISH topic=t qos=2 id={id} payload=x"));
    }
    world.settle();
    assert_eq!(world.lines_of("p").len(), 1024);
    world.send("p", "PUBREL id=1");
    world.send("p", "PUBLISH topic=t qos=1 id=1025 payload=x");
    world.send("p", "PUBLISH topic=t qos=2 id=1025 payload=x");
    world.lines();
    world.send("p", "PUBLISH topic=t qos=2 id=1026 payload=x");
    assert_eq!(world.lines_of("p"), ["DISCONNECT code=0x93", "closed protocol_error"]);
}
