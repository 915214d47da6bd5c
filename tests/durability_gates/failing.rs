//! A flash that fails or is full: what must be kept is held, everything else goes on, publishers are held back before
//! memory is, and all is released after recovery in place.

use std::time::Duration;

use crate::support::disk::Fault;
use crate::support::driver::{Setup, World};
use crate::support::transcript::check_in;

/// Sessions: `away` wants `kept` at QoS 1 and is away; `live` is clean and wants everything.
fn world() -> World {
    let mut world = World::new(Setup::with(|setup| {
        setup.config.queues.session.messages_max = 100_000;
        setup.config.queues.session.bytes_max = 64 << 20;
        setup.store.gateway_bytes_max = 64 << 20;
        setup.store.journal_bytes = 4 << 20;
    }));
    world.send("away", "CONNECT client=away clean=0");
    world.send("away", "SUBSCRIBE id=1 filter=kept qos=1");
    world.send("away", "DISCONNECT");
    world.send("live", "CONNECT client=live");
    world.send("live", "SUBSCRIBE id=1 filter=live/# qos=1");
    world.send("pub", "CONNECT client=pub");
    world.pass(Duration::from_secs(2));
    world.lines();
    world
}

#[test]
fn acknowledgements_are_held_and_the_rest_goes_on() {
    for fault in [Fault::Io, Fault::Full] {
        let mut world = world();
        world.fail(fault);
        check_in(
            &mut world,
            r#"
            > pub PUBLISH topic=kept qos=1 id=1 payload="1"
            > pub PUBLISH topic=live/a qos=0 payload="live"
            < live PUBLISH topic=live/a qos=0 payload="live"
            @ +1h
            > pub PINGREQ
            < pub PINGRESP
            > other CONNECT client=other
            < other CONNACK present=0 code=0
            > other PUBLISH topic=live/b qos=1 id=1 payload="needs no flash"
            < live PUBLISH topic=live/b qos=1 id=1 payload="needs no flash"
            < other PUBACK id=1
            > other PUBLISH topic=kept qos=2 id=2 payload="2"
            "#,
        );
        assert!(!world.gateway.is_healthy(), "{fault:?}");
        world.heal();
        assert!(world.gateway.is_healthy());
        let mut lines = world.lines();
        lines.sort();
        assert_eq!(lines, ["< other PUBREC id=2", "< pub PUBACK id=1"]);
        world.cut_power();
        assert_eq!(world.recovery.queued, 2);
    }
}

#[test]
fn a_failure_in_the_middle_of_traffic_loses_nothing() {
    for seed in 1..=8 {
        let mut world = World::new(Setup::with(|setup| setup.seed = seed));
        world.send("away", "CONNECT client=away clean=0");
        world.send("away", "SUBSCRIBE id=1 filter=# qos=2");
        world.send("away", "DISCONNECT");
        world.send("pub", "CONNECT client=pub");
        let mut acknowledged = 0;
        for id in 1..=100 {
            match id % 10 {
                3 => world.fail(if seed % 2 == 0 { Fault::Io } else { Fault::Full }),
                6 => world.heal(),
                _ => {}
            }
            let before = acknowledged;
            world.send("pub", &format!("PUBLISH topic=t qos=1 id={id} payload={id}"));
            acknowledged += world.lines_of("pub").iter().filter(|line| line.starts_with("PUBACK")).count();
            assert!(acknowledged > before || !world.gateway.is_healthy() || id % 10 == 3, "{id}");
        }
        world.heal();
        acknowledged += world.lines_of("pub").len();
        assert_eq!(acknowledged, 100);
        world.cut_power();
        assert_eq!(world.recovery.queued, 100, "seed {seed}");
    }
}

/// At 8 MiB of unpersisted rows publishers of what must be kept are read no more. Nothing else stops, nobody is
/// disconnected for silence that the gateway caused, and all of it is acknowledged after recovery.
#[test]
fn publishers_are_held_back_at_eight_mebibytes() {
    let mut world = world();
    world.send("alive", "CONNECT client=alive keep_alive=60");
    world.send("alive", "PUBLISH topic=kept qos=1 id=1 payload=first");
    world.lines();
    world.fail(Fault::Full);
    for id in 1..=300 {
        world.send("pub", &format!("PUBLISH topic=kept qos=1 id={id} payload=x*100000"));
    }
    assert_eq!(world.lines(), [""; 0]);
    assert!(world.unread("pub") > 20 << 20, "the rest waits in the publisher's socket");
    let memory = world.figure("memory_bytes") + world.gateway.input_bytes() as u64;
    assert!(memory < 9 << 20, "{memory} bytes");
    // Another publisher of the kind meets the same; it sent its PINGREQs, but the gateway does not read them.
    world.send("alive", "PUBLISH topic=kept qos=1 id=2 payload=second");
    for _ in 0..10 {
        world.pass(Duration::from_secs(30));
        world.send("alive", "PINGREQ");
    }
    assert_eq!(world.lines(), [""; 0]);
    // QoS 0 publishers and subscribers go on, and may come and go.
    check_in(
        &mut world,
        r#"
        > quick CONNECT client=quick
        < quick CONNACK present=0 code=0
        > quick SUBSCRIBE id=1 filter=live/quick qos=1
        < quick SUBACK id=1 codes=1
        > quick PUBLISH topic=live/quick qos=0 payload="x"
        < live PUBLISH topic=live/quick qos=0 payload="x"
        < quick PUBLISH topic=live/quick qos=0 payload="x"
        > quick UNSUBSCRIBE id=2 filter=live/quick
        < quick UNSUBACK id=2
        > quick PINGREQ
        < quick PINGRESP
        > quick DISCONNECT
        < quick closed disconnect
        "#,
    );
    world.heal();
    let lines = world.lines();
    assert_eq!(lines.iter().filter(|line| line.starts_with("< pub PUBACK")).count(), 300);
    assert_eq!(lines.iter().filter(|line| line.starts_with("< alive PUBACK")).count(), 1);
    assert_eq!(lines.iter().filter(|line| line.starts_with("< alive PINGRESP")).count(), 10);
    world.cut_power();
    assert_eq!(world.recovery.queued, 302);
}

/// A consumer's acknowledgements are taken while the flash fails: its deliveries go on.
#[test]
fn deliveries_to_kept_sessions_go_on() {
    let mut world = world();
    for id in 1..=50 {
        world.send("pub", &format!("PUBLISH topic=kept qos=1 id={id} payload={id}"));
    }
    world.fail(Fault::Io);
    world.lines();
    world.send("away", "CONNECT client=away clean=0");
    let mut seen = 0;
    loop {
        let lines = world.lines_of("away");
        let ids: Vec<_> = lines.iter().filter_map(|l| l.split(" id=").nth(1)?.split(' ').next()).collect();
        if ids.is_empty() {
            break;
        }
        seen += ids.len();
        for id in ids {
            world.queue("away", &format!("PUBACK id={id}"));
        }
        world.settle();
    }
    assert_eq!(seen, 50);
    world.heal();
    world.pass(Duration::from_secs(1));
    world.cut_power();
    assert_eq!(world.recovery.queued, 0);
}

/// The gateway stops while the flash fails: what was acknowledged is there at the next start.
#[test]
fn a_power_cut_while_the_flash_fails_loses_nothing_acknowledged() {
    let mut world = world();
    for id in 1..=10 {
        world.send("pub", &format!("PUBLISH topic=kept qos=1 id={id}"));
    }
    assert_eq!(world.lines_of("pub").len(), 10);
    world.fail(Fault::Io);
    world.send("pub", "PUBLISH topic=kept qos=1 id=11");
    assert_eq!(world.lines_of("pub").len(), 0);
    world.cut_power();
    assert!((10..=11).contains(&world.recovery.queued), "{}", world.recovery.queued);
}

/// Consumers that acknowledge at once free their publishers without the flash, for as long as it fails: what they have
/// settled fills no memory and holds nobody back.
#[test]
fn elided_messages_go_on_while_the_flash_fails() {
    let mut world = world();
    world.send("fast", "CONNECT client=fast clean=0");
    world.send("fast", "SUBSCRIBE id=1 filter=fast qos=1");
    world.pass(Duration::from_secs(2));
    world.fail(Fault::Io);
    world.send("pub", "PUBLISH topic=fast qos=1 id=1 payload=x");
    world.send("fast", "PUBACK id=1");
    world.lines();
    for n in 2..=1500_u32 {
        world.send("pub", &format!("PUBLISH topic=fast qos=1 id={n} payload=x*20000"));
        world.send("fast", &format!("PUBACK id={n}"));
        let lines = world.lines();
        assert!(lines.contains(&format!("< pub PUBACK id={n}")), "message {n}");
        let memory = world.figure("memory_bytes");
        assert!(memory < 12 << 20, "{memory} bytes");
    }
    world.heal();
    world.pass(Duration::from_secs(1));
    world.cut_power();
    assert_eq!(world.recovery.queued, 0);
}
