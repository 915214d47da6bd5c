//! A file that is damaged while the gateway runs: it is set aside, everything that memory knows is written anew, and
//! what lived only on flash gets a receipt. Nothing is acknowledged before it is there again.

use std::time::Duration;

use crate::support::disk::Fault;
use crate::support::driver::{Setup, World};
use crate::support::transcript::check_in;

const FILES: [&[&str]; 3] = [&["gateway.redb"], &["gateway.journal"], &["gateway.redb", "gateway.journal"]];

/// Overwrites the beginning of these files, as a failing card may.
fn damage(world: &World, files: &[&str]) {
    for file in files {
        for page in 0..4 {
            for offset in 0..64 {
                world.disk.flip(file, page * 4096 + offset, 0x5a);
            }
        }
    }
}

/// A state of every kind: sessions, queued and in-flight messages, both windows of QoS 2, retained values, a will.
fn full_world() -> World {
    let mut world = World::default();
    check_in(
        &mut world,
        r#"
        > away CONNECT client=away clean=0
        < away CONNACK present=0 code=0
        > away SUBSCRIBE id=1 filter=kept/# qos=1
        < away SUBACK id=1 codes=1
        > away DISCONNECT
        < away closed disconnect
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=live qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=kept/1 qos=1 retain=1 id=1 payload="one"
        < pub PUBACK id=1
        > pub PUBLISH topic=kept/2 qos=1 id=2 payload="two"
        < pub PUBACK id=2
        > pub PUBLISH topic=live qos=2 id=3 payload="in release"
        < pub PUBREC id=3
        < sub PUBLISH topic=live qos=2 id=1 payload="in release"
        > sub PUBREC id=1
        < sub PUBREL id=1
        > pub PUBLISH topic=live qos=2 id=4 payload="in flight"
        < pub PUBREC id=4
        < sub PUBLISH topic=live qos=2 id=2 payload="in flight"
        > dying CONNECT client=dying will_topic=kept/will will_qos=1 will_payload="will"
        < dying CONNACK present=0 code=0
        @ +2s
        "#,
    );
    world
}

/// What a power cut later leaves of it.
const AFTERWARDS: &str = r#"
    > pub CONNECT client=pub clean=0
    < pub CONNACK present=1 code=0
    > pub PUBLISH topic=live qos=2 dup=1 id=4 payload="in flight"
    < pub PUBREC id=4
    > sub CONNECT client=sub clean=0
    < sub CONNACK present=1 code=0
    < sub PUBLISH topic=live qos=2 dup=1 id=2 payload="in flight"
    < sub PUBREL id=1
    > away CONNECT client=away clean=0
    < away CONNACK present=1 code=0
    < away PUBLISH topic=kept/1 qos=1 dup=1 id=1 payload="one"
    < away PUBLISH topic=kept/2 qos=1 dup=1 id=2 payload="two"
    < away PUBLISH topic=kept/3 qos=1 dup=1 id=3 payload="under way"
    < away PUBLISH topic=kept/4 qos=1 dup=1 id=4 payload="behind it"
    < away PUBLISH topic=kept/will qos=1 id=5 payload="will"
    > late CONNECT client=late
    < late CONNACK present=0 code=0
    > late SUBSCRIBE id=1 filter=# qos=0
    < late SUBACK id=1 codes=0
    < late PUBLISH topic=kept/1 qos=0 retain=1 payload="one"
"#;

#[test]
fn everything_that_memory_knows_is_written_anew() {
    for files in FILES {
        let mut world = full_world();
        world.fail(Fault::Io);
        check_in(
            &mut world,
            r#"
            > pub PUBLISH topic=kept/3 qos=1 id=5 payload="under way"
            > pub PUBLISH topic=kept/4 qos=1 id=6 payload="behind it"
            "#,
        );
        damage(&world, files);
        world.heal();
        assert!(!world.damage.is_empty(), "{files:?} was found damaged");
        assert_eq!(world.lines_of("pub"), ["PUBACK id=5", "PUBACK id=6"], "{files:?}");
        let losses = world.gateway.losses().to_string();
        assert!(losses.contains(r#""reason":"damage""#), "{losses}");
        world.cut_power();
        check_in(&mut world, AFTERWARDS);
    }
}

/// The gateway goes on after it: nothing that waits is forgotten, numbers and keys do not collide.
#[test]
fn the_gateway_goes_on_afterwards() {
    for files in FILES {
        let mut world = full_world();
        for round in 0..3 {
            world.fail(Fault::Io);
            world.send("pub", "PUBLISH topic=kept/x qos=1 id=10 payload=x");
            damage(&world, files);
            world.heal();
            assert_eq!(world.lines_of("pub"), ["PUBACK id=10"], "{files:?}, round {round}");
            for id in 11..=30 {
                world.send("pub", &format!("PUBLISH topic=kept/y qos=1 id={id} payload=y"));
                assert_eq!(world.lines_of("pub"), [format!("PUBACK id={id}")], "{files:?}, round {round}");
            }
        }
        world.cut_power();
        // One in flight, two, three rounds of 21, and the will.
        assert_eq!(world.recovery.queued, 1 + 2 + 63, "{files:?}");
    }
}

/// A power cut while it is being written anew: what was acknowledged before is there or has a receipt.
#[test]
fn nothing_is_acknowledged_before_it_is_there_again() {
    let mut world = full_world();
    world.fail(Fault::Io);
    world.send("pub", "PUBLISH topic=kept/3 qos=1 id=5 payload=x");
    damage(&world, &["gateway.redb"]);
    world.heal_held();
    world.send("pub", "PUBLISH topic=kept/4 qos=1 id=6 payload=x");
    world.send("sub", "PUBREC id=2");
    world.send("new", "CONNECT client=new clean=0");
    world.pass(Duration::from_secs(60));
    assert_eq!(world.lines(), [""; 0]);
    world.release();
    let mut lines = world.lines();
    lines.sort();
    let expected =
        ["< new CONNACK present=0 code=0", "< pub PUBACK id=5", "< pub PUBACK id=6", "< sub PUBREL id=2"];
    assert_eq!(lines, expected);
}

/// More than one batch has keys for: it is written in several, and acknowledgements wait for the last.
#[test]
fn more_than_a_batch_is_written_in_several() {
    let mut world = World::new(Setup::with(|setup| {
        setup.config.queues.session.messages_max = 100_000;
        setup.config.queues.session.bytes_max = 64 << 20;
        setup.store.gateway_bytes_max = 64 << 20;
        setup.store.journal_bytes = 4 << 20;
    }));
    world.send("away", "CONNECT client=away clean=0");
    world.send("away", "SUBSCRIBE id=1 filter=t qos=2");
    world.send("away", "DISCONNECT");
    world.send("pub", "CONNECT client=pub");
    world.counts_only = true;
    for _ in 0..50 {
        for id in 1..=600 {
            world.queue("pub", &format!("PUBLISH topic=t qos=1 id={id} payload=x"));
        }
        world.settle();
    }
    world.counts_only = false;
    world.lines();
    world.fail(Fault::Io);
    world.send("pub", "PUBLISH topic=t qos=1 id=1 payload=last");
    damage(&world, &["gateway.redb"]);
    world.heal();
    assert_eq!(world.lines_of("pub"), ["PUBACK id=1"]);
    world.send("pub", "PUBLISH topic=t qos=1 id=2 payload=after");
    assert_eq!(world.lines_of("pub"), ["PUBACK id=2"]);
    world.cut_power();
    assert_eq!(world.recovery.queued, 30_002);
}

/// Deliveries of QoS 2 that wait for their identifier while it is written anew are sent afterwards.
#[test]
fn a_qos_2_delivery_under_way_is_sent_afterwards() {
    let mut world = full_world();
    world.fail(Fault::Io);
    world.send("pub", "PUBLISH topic=live qos=2 id=7 payload=x");
    assert_eq!(world.lines(), [""; 0]);
    damage(&world, &["gateway.redb"]);
    world.heal();
    assert_eq!(world.lines_of("sub"), ["PUBLISH topic=live qos=2 id=3 payload=\"x\""]);
    world.cut_power();
    world.send("sub", "CONNECT client=sub clean=0");
    assert_eq!(
        world.lines_of("sub"),
        [
            "CONNACK present=1 code=0",
            "PUBLISH topic=live qos=2 dup=1 id=2 payload=\"in flight\"",
            "PUBLISH topic=live qos=2 dup=1 id=3 payload=\"x\"",
            "PUBREL id=1"
        ]
    );
}

/// A session holds a message twice, as it was routed and as a last known value: on flash stands what it may be sent under
/// its identifier first.
#[test]
fn of_twins_the_routed_one_stands() {
    let mut world = World::new(Setup::with(|setup| setup.config.limits.inflight_max = 1));
    check_in(
        &mut world,
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t/# qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t/1 qos=1 id=1 payload="before it"
        < sub PUBLISH topic=t/1 qos=1 id=1 payload="before it"
        > pub PUBLISH topic=t/2 qos=2 retain=1 id=2 payload="twin"
        < pub PUBACK id=1
        < pub PUBREC id=2
        > sub SUBSCRIBE id=2 filter=t/2 qos=1
        < sub SUBACK id=2 codes=1
        "#,
    );
    world.fail(Fault::Io);
    world.send("pub", "PUBREL id=2");
    world.send("pub", "PUBLISH topic=u qos=1 retain=1 id=3 payload=x");
    damage(&world, &["gateway.redb"]);
    world.heal();
    assert!(!world.damage.is_empty());
    world.lines();
    world.send("sub", "PUBACK id=1");
    assert_eq!(world.lines_of("sub"), ["PUBLISH topic=t/2 qos=2 id=2 payload=\"twin\""]);
    world.cut_power();
    world.send("sub", "CONNECT client=sub clean=0");
    let lines = world.lines_of("sub");
    let again = "PUBLISH topic=t/2 qos=2 dup=1 id=2 payload=\"twin\"".to_owned();
    assert!(lines.contains(&again), "{lines:?}");
}

/// The file is as full as the quota lets it be: old rows make room for new ones.
#[test]
fn a_full_window_is_written_anew() {
    let mut world = World::new(Setup::with(|setup| {
        setup.config.queues.session.messages_max = 100_000;
        setup.config.queues.session.bytes_max = 64 << 20;
        setup.store.gateway_bytes_max = 2 << 20;
        setup.store.journal_bytes = 128 << 10;
    }));
    world.send("away", "CONNECT client=away clean=0");
    world.send("away", "SUBSCRIBE id=1 filter=t qos=1");
    world.send("away", "DISCONNECT");
    world.send("pub", "CONNECT client=pub");
    for id in 1..=3000 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={id} payload=x*1000"));
    }
    assert!(world.figure("lost.messages") > 0, "the quota was reached");
    world.pass(Duration::from_secs(2));
    world.lines();
    for files in FILES {
        world.fail(Fault::Io);
        world.send("pub", "PUBLISH topic=t qos=1 id=1 payload=x*1000");
        damage(&world, files);
        world.heal();
        assert_eq!(world.lines_of("pub"), ["PUBACK id=1"], "{files:?}");
        let queued = world.figure("sessions.queued");
        assert!(queued > 500, "{files:?}: {queued}");
        for id in 2..=200 {
            world.send("pub", &format!("PUBLISH topic=t qos=1 id={id} payload=x*1000"));
            assert_eq!(world.lines_of("pub"), [format!("PUBACK id={id}")], "{files:?}");
        }
        let queued = world.figure("sessions.queued");
        world.cut_power();
        assert_eq!(world.recovery.queued as u64, queued, "{files:?}");
        world.send("pub", "CONNECT client=pub");
        world.lines();
    }
}

/// What waited in the open batch keeps its order in every queue, whatever other queues wanted.
#[test]
fn messages_under_way_keep_their_order() {
    let mut world = World::default();
    for (name, filters) in
        [("a", "filter=odd qos=1 filter=all qos=1"), ("b", "filter=even qos=1 filter=all qos=1")]
    {
        world.send(name, &format!("CONNECT client={name} clean=0"));
        world.send(name, &format!("SUBSCRIBE id=1 {filters}"));
        world.send(name, "DISCONNECT");
    }
    world.send("pub", "CONNECT client=pub");
    world.fail(Fault::Io);
    world.send("pub", "PUBLISH topic=all qos=1 id=1 payload=0");
    for (id, topic) in (2..).zip(["odd", "all", "even", "all", "odd", "even", "all"]) {
        world.send("pub", &format!("PUBLISH topic={topic} qos=1 id={id} payload={}", id - 1));
    }
    damage(&world, &["gateway.redb"]);
    world.heal();
    world.cut_power();
    world.lines();
    for (name, expected) in [("a", [0, 1, 2, 4, 5, 7]), ("b", [0, 2, 3, 4, 6, 7])] {
        world.send(name, &format!("CONNECT client={name} clean=0"));
        let lines = world.lines_of(name);
        let payloads =
            lines.iter().filter_map(|line| line.split("payload=\"").nth(1)?.trim_matches('"').parse().ok());
        assert_eq!(payloads.collect::<Vec<u32>>(), expected, "{name}");
    }
}
