//! Bounds of queues, of the file and of memory: the oldest goes, a receipt says so, on flash as in memory.

use std::time::Duration;

use gatewayd::config::{Overflow, QueueBounds};

use crate::support::driver::{Setup, World};
use crate::support::transcript::{check, check_in};

/// A session `name` that is away and wants `filter` at QoS 1.
fn away(world: &mut World, name: &str, filter: &str) {
    world.send(name, &format!("CONNECT client={name} clean=0"));
    world.send(name, &format!("SUBSCRIBE id=1 filter={filter} qos=1"));
    world.send(name, "DISCONNECT");
    world.pass(Duration::from_secs(2));
    world.lines();
}

/// The payloads that a session is given when it comes back, acknowledged until nothing comes any more.
fn payloads(world: &mut World, name: &str) -> Vec<String> {
    world.lines();
    world.send(name, &format!("CONNECT client={name} clean=0"));
    let mut payloads = Vec::new();
    loop {
        let lines = world.lines_of(name);
        let ids: Vec<_> = lines.iter().filter_map(|l| l.split(" id=").nth(1)?.split(' ').next()).collect();
        payloads.extend(
            lines.iter().filter_map(|l| l.split("payload=").nth(1)).map(|p| p.trim_matches('"').to_owned()),
        );
        if ids.is_empty() {
            return payloads;
        }
        for id in ids {
            world.queue(name, &format!("PUBACK id={id}"));
        }
        world.settle();
    }
}

fn range(from: u32, to: u32) -> Vec<String> {
    (from..=to).map(|n| n.to_string()).collect()
}

fn receipt(world: &World, reason: &str) -> serde_json::Value {
    let losses = world.gateway.losses();
    let receipts: Vec<_> =
        losses.as_array().expect("a list").iter().filter(|r| r["reason"] == reason).collect();
    assert_eq!(receipts.len(), 1, "{losses}");
    receipts[0].clone()
}

#[test]
fn the_oldest_message_goes_and_its_receipt_survives() {
    let mut world = World::new(Setup::with(|setup| setup.config.queues.session.messages_max = 5));
    away(&mut world, "sub", "t");
    world.send("pub", "CONNECT client=pub");
    for n in 1..=12 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={n} payload={n}"));
    }
    assert_eq!(world.lines_of("pub").len(), 13, "every message was acknowledged");
    let told = receipt(&world, "queue_bound");
    assert_eq!((&told["queue"], &told["messages"]), (&"sub".into(), &7.into()));
    assert_eq!(told["bytes"], 7 + 7, "the topic and the payload of each");
    assert!(told["first_sequence"].as_u64() < told["last_sequence"].as_u64());
    world.cut_power();
    assert_eq!(receipt(&world, "queue_bound"), told);
    assert_eq!(payloads(&mut world, "sub"), range(8, 12));
}

#[test]
fn bytes_are_bounded_as_messages_are() {
    let mut world = World::new(Setup::with(|setup| setup.config.queues.session.bytes_max = 1000));
    away(&mut world, "sub", "t");
    world.send("pub", "CONNECT client=pub");
    for n in 0..10 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={} payload={n}*199", n + 1));
    }
    assert_eq!(world.figure("lost.messages"), 5);
    world.cut_power();
    let expected: Vec<_> = (5..10).map(|n| format!("{n}*199")).collect();
    assert_eq!(payloads(&mut world, "sub"), expected);
}

/// One message that is larger than the bound by itself.
#[test]
fn a_message_larger_than_the_bound_is_lost_with_a_receipt() {
    let mut world = World::new(Setup::with(|setup| setup.config.queues.session.bytes_max = 1000));
    away(&mut world, "sub", "t");
    world.send("pub", "CONNECT client=pub");
    world.send("pub", "PUBLISH topic=t qos=1 id=1 payload=x*2000");
    assert_eq!(world.lines_of("pub"), ["CONNACK present=0 code=0", "PUBACK id=1"]);
    assert_eq!(receipt(&world, "queue_bound")["bytes"], 2001);
    world.cut_power();
    assert_eq!(payloads(&mut world, "sub"), [""; 0]);
    assert_eq!(receipt(&world, "queue_bound")["bytes"], 2001);
}

#[test]
fn what_is_in_flight_is_never_dropped() {
    check(
        r#"
        % inflight_max=2
        % session_messages_max=3
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=1
        < sub SUBACK id=1 codes=1
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=1 id=1 payload="1" ~
        > pub PUBLISH topic=t qos=1 id=2 payload="2" ~
        > pub PUBLISH topic=t qos=1 id=3 payload="3" ~
        > pub PUBLISH topic=t qos=1 id=4 payload="4" ~
        > pub PUBLISH topic=t qos=1 id=5 payload="5"
        < pub PUBACK id=1
        < pub PUBACK id=2
        < pub PUBACK id=3
        < pub PUBACK id=4
        < pub PUBACK id=5
        < sub PUBLISH topic=t qos=1 id=1 payload="1"
        < sub PUBLISH topic=t qos=1 id=2 payload="2"
        > sub PUBACK id=1
        < sub PUBLISH topic=t qos=1 id=3 payload="5"
        > sub PUBACK id=2
        ? lost.messages
        = lost.messages 2
        "#,
    );
}

/// Messages in flight count to the bytes; when they alone reach the bound, delivery stops until some settle.
#[test]
fn delivery_stops_when_bytes_in_flight_reach_the_bound() {
    let mut world = World::new(Setup::with(|setup| setup.config.queues.session.bytes_max = 1000));
    away(&mut world, "sub", "t");
    world.send("pub", "CONNECT client=pub");
    for n in 1..=2 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={n} payload={n}*499"));
    }
    world.send("sub", "CONNECT client=sub clean=0");
    assert_eq!(world.lines_of("sub").len(), 3, "CONNACK and both");
    // Both are in flight and fill the bound: the next one is over it.
    world.send("pub", "PUBLISH topic=t qos=1 id=3 payload=3*9");
    assert_eq!(world.lines_of("sub"), [""; 0]);
    assert_eq!(world.figure("lost.messages"), 1);
    world.send("sub", "PUBACK id=1");
    world.send("pub", "PUBLISH topic=t qos=1 id=4 payload=4");
    assert_eq!(world.lines_of("sub"), ["PUBLISH topic=t qos=1 id=3 payload=\"4\""]);
}

/// A bound that became smaller is applied at the start, to what is on flash.
#[test]
fn recovery_applies_the_bound_on_flash() {
    let mut world = World::default();
    away(&mut world, "sub", "t");
    world.send("pub", "CONNECT client=pub");
    for n in 1..=10 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={n} payload={n}"));
    }
    world.setup.config.queues.session.messages_max = 4;
    world.cut_power();
    assert_eq!(world.recovery.queued, 4);
    assert_eq!(receipt(&world, "queue_bound")["messages"], 6);
    world.pass(Duration::from_secs(1));
    // Gone for good, not only for this start.
    world.setup.config.queues.session.messages_max = 100;
    world.cut_power();
    assert_eq!(receipt(&world, "queue_bound")["messages"], 6);
    assert_eq!(payloads(&mut world, "sub"), range(7, 10));
}

/// Ten times the bound through one queue, with cuts on the way: the file holds what the queue holds.
#[test]
fn the_bound_holds_on_flash_over_many_restarts() {
    let mut world = World::new(Setup::with(|setup| {
        setup.config.queues.session.messages_max = 20;
        setup.store.gateway_bytes_max = 1 << 20;
        setup.store.journal_bytes = 64 << 10;
    }));
    away(&mut world, "sub", "t");
    for round in 0..5 {
        world.send("pub", "CONNECT client=pub");
        for n in 1..=40 {
            let number = round * 40 + n;
            world.send("pub", &format!("PUBLISH topic=t qos=1 id={n} payload={number}"));
        }
        world.cut_power();
        assert_eq!(world.recovery.queued, 20);
    }
    assert_eq!(receipt(&world, "queue_bound")["messages"], 180);
    assert!(world.figure("flash.bytes_live") < 100_000);
    assert_eq!(payloads(&mut world, "sub"), range(181, 200));
}

/// `[queue.NAME]` tables bound sessions by the closest pattern.
#[test]
fn a_session_has_the_bounds_of_the_closest_pattern() {
    let mut world = World::new(Setup::with(|setup| {
        let bounds =
            |messages_max| QueueBounds { messages_max, bytes_max: 1 << 20, overflow: Overflow::DropOldest };
        for (pattern, messages_max) in [("*", 7), ("big*", 5), ("big-red*", 3), ("big-red-one", 2)] {
            setup.config.queues.named.insert(pattern.into(), bounds(messages_max));
        }
    }));
    for name in ["small", "big-blue", "big-red-two", "big-red-one"] {
        away(&mut world, name, "t");
    }
    world.send("pub", "CONNECT client=pub");
    for n in 1..=10 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={n} payload={n}"));
    }
    let left =
        ["small", "big-blue", "big-red-two", "big-red-one"].map(|name| payloads(&mut world, name).len());
    assert_eq!(left, [7, 5, 3, 2]);
}

/// `overflow = "reject"`: the newcomer is refused, what waits stays.
#[test]
fn a_queue_that_rejects_keeps_the_oldest() {
    let mut world = World::new(Setup::with(|setup| {
        setup.config.queues.session.messages_max = 3;
        setup.config.queues.session.overflow = Overflow::Reject;
    }));
    away(&mut world, "sub", "t");
    world.send("pub", "CONNECT client=pub");
    for n in 1..=5 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={n} payload={n}"));
    }
    assert_eq!(receipt(&world, "queue_bound")["messages"], 2);
    world.cut_power();
    assert_eq!(payloads(&mut world, "sub"), range(1, 3));
}

/// A publisher of MQTT 5 is told that a session refused its message, one of MQTT 3.1.1 cannot be; either way there is a
/// receipt, and it is on flash with the answer.
#[test]
fn a_session_that_rejects_is_told_to_the_publisher() {
    let mut world = World::new(Setup::with(|setup| {
        setup.config.queues.session.messages_max = 2;
        setup.config.queues.session.overflow = Overflow::Reject;
    }));
    away(&mut world, "sub", "t");
    world.send("five", "CONNECT version=5 client=five");
    world.send("old", "CONNECT client=old");
    for n in 1..=3 {
        world.send("five", &format!("PUBLISH topic=t qos=1 id={n} payload={n}"));
    }
    let answers: Vec<String> =
        world.lines_of("five").into_iter().filter(|line| line.contains("PUBACK")).collect();
    assert_eq!(answers, ["PUBACK id=1", "PUBACK id=2", "PUBACK id=3 code=0x97"]);
    world.send("five", "PUBLISH topic=t qos=2 id=4 payload=4");
    assert!(world.lines_of("five").iter().any(|line| line == "PUBREC id=4 code=0x97"));
    world.send("old", "PUBLISH topic=t qos=1 id=1 payload=5");
    assert!(world.lines_of("old").iter().any(|line| line == "PUBACK id=1"));
    world.cut_power();
    assert_eq!(receipt(&world, "queue_bound")["messages"], 3);
    assert_eq!(payloads(&mut world, "sub"), range(1, 2));
}

/// Sessions that reject lose nothing to make room, so together they hold no more than half of the quota.
#[test]
fn sessions_that_reject_hold_half_at_most() {
    let mut world = World::new(Setup::with(|setup| {
        setup.store.gateway_bytes_max = 1 << 20;
        setup.store.journal_bytes = 64 << 10;
        setup.config.queues.session.overflow = Overflow::Reject;
    }));
    away(&mut world, "one", "t");
    away(&mut world, "two", "u");
    world.send("five", "CONNECT version=5 client=five");
    for n in 1..=1500 {
        let topic = if n % 2 == 0 { "t" } else { "u" };
        world.send("five", &format!("PUBLISH topic={topic} qos=1 id={n} payload=x*1000"));
    }
    let quota = world.figure("flash.quota_bytes");
    let held = world.figure("fullest.0.bytes") + world.figure("fullest.1.bytes");
    assert!(held <= quota / 2 && held > quota / 2 - 4096, "{held} of {quota}");
    let refused = world.lines_of("five").iter().filter(|line| line.ends_with("code=0x97")).count() as u64;
    assert_eq!(world.figure("lost.messages"), refused);
    world.cut_power();
    let kept = payloads(&mut world, "one").len() + payloads(&mut world, "two").len();
    assert_eq!(kept as u64 + refused, 1500);
    assert!(kept > 100 && refused > 100, "{kept} {refused}");
}

/// Over the file's quota the queue with the highest charge loses its oldest.
#[test]
fn over_the_flash_quota_the_heaviest_queue_loses() {
    let mut world = World::new(Setup::with(|setup| {
        setup.store.gateway_bytes_max = 1 << 20;
        setup.store.journal_bytes = 64 << 10;
    }));
    away(&mut world, "heavy", "heavy");
    away(&mut world, "light", "light");
    world.send("pub", "CONNECT client=pub");
    world.send("pub", "PUBLISH topic=light qos=1 id=1 payload=1");
    for n in 1..=2000 {
        world.send("pub", &format!("PUBLISH topic=heavy qos=1 id={n} payload=x*1000"));
    }
    world.send("pub", "PUBLISH topic=light qos=1 id=1 payload=2");
    let told = receipt(&world, "flash_quota");
    assert_eq!(told["queue"], "heavy");
    let lost = told["messages"].as_u64().expect("a number");
    assert!(lost > 500, "{lost}");
    assert!(world.figure("flash.bytes_live") <= world.figure("flash.quota_bytes"));
    world.cut_power();
    assert_eq!(payloads(&mut world, "light"), range(1, 2));
    assert_eq!(payloads(&mut world, "heavy").len() as u64, 2000 - lost);
}

/// Over `memory_max` the heaviest queue loses its oldest, be it of a client that is connected and does not read.
#[test]
fn over_memory_max_the_heaviest_queue_loses() {
    let mut world = World::new(Setup::with(|setup| setup.config.limits.memory_max = 200_000));
    world.send("deaf", "CONNECT client=deaf");
    world.send("deaf", "SUBSCRIBE id=1 filter=t qos=1");
    world.stall("deaf");
    world.send("pub", "CONNECT client=pub");
    for n in 1..=1000 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={n} payload=x*1000"));
    }
    assert!(world.figure("memory_bytes") <= 200_000, "{}", world.figure("memory_bytes"));
    let told = receipt(&world, "memory_bound");
    assert_eq!(told["queue"], "deaf");
    assert!(world.lines_of("pub").len() > 1000, "nobody else was held up");
}

/// A message of one byte takes little, but what each queue has of it adds up.
#[test]
fn many_copies_of_small_messages_are_bounded_by_what_they_take() {
    let mut world = World::new(Setup::with(|setup| setup.config.limits.memory_max = 400_000));
    let names: Vec<_> = (0..20).map(|n| format!("s{n}")).collect();
    for name in &names {
        world.send(name, &format!("CONNECT client={name}"));
        world.send(name, "SUBSCRIBE id=1 filter=t qos=1");
    }
    world.send("pub", "CONNECT client=pub");
    let before = world.figure("memory_bytes");
    let mut most = 0;
    for n in 1..=2000 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={n} payload=x"));
        most = most.max(world.figure("memory_bytes"));
    }
    // What one publish brings comes before what it pushes out.
    assert!((300_000..=402_000).contains(&most), "{most}");
    let told = world.gateway.losses();
    let told = told.as_array().expect("a list");
    assert_eq!(told.len(), 20, "each loses its part");
    assert!(told.iter().all(|receipt| receipt["reason"] == "memory_bound"), "{told:?}");
    for name in &names {
        world.send(name, "DISCONNECT");
    }
    assert_eq!(world.figure("memory_bytes"), before, "all is given back");
}

/// The same where the queues lose nothing: new ones are refused.
#[test]
fn many_copies_of_small_messages_are_refused_where_queues_reject() {
    let mut world = World::new(Setup::with(|setup| {
        setup.config.limits.memory_max = 400_000;
        setup.config.queues.session.overflow = Overflow::Reject;
    }));
    for n in 0..20 {
        world.send(&format!("s{n}"), &format!("CONNECT client=s{n}"));
        world.send(&format!("s{n}"), "SUBSCRIBE id=1 filter=t qos=1");
    }
    world.send("pub", "CONNECT version=5 client=pub");
    world.lines();
    let mut refused = 0;
    for n in 1..=1000 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={n} payload=x"));
        refused += world.lines_of("pub").iter().filter(|line| line.ends_with("code=0x97")).count();
    }
    assert!(refused > 500, "{refused}");
    let took = world.figure("memory_bytes");
    assert!((40_000..=202_000).contains(&took), "{took}");
}

/// QoS 0 to a client that does not read is dropped with a count, and holds no memory.
#[test]
fn qos_0_behind_a_full_output_is_dropped_and_counted() {
    let mut world = World::default();
    world.send("deaf", "CONNECT client=deaf");
    world.send("deaf", "SUBSCRIBE id=1 filter=t qos=0");
    world.stall("deaf");
    world.send("pub", "CONNECT client=pub");
    for _ in 0..1000 {
        world.send("pub", "PUBLISH topic=t payload=x*1000");
    }
    let dropped = world.figure("traffic.dropped_output_full");
    assert!((600..1000).contains(&dropped), "{dropped}");
    world.lines();
    world.reads("deaf");
    assert_eq!(world.lines_of("deaf").len() as u64, 1000 - dropped);
    world.send("pub", "PUBLISH topic=t payload=again");
    assert_eq!(world.lines_of("deaf").len(), 1);
}

#[test]
fn a_retained_value_over_the_bound_is_delivered_but_not_kept() {
    let world = check(
        r#"
        % retained_max=2
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=# qos=0
        < sub SUBACK id=1 codes=0
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=a qos=1 retain=1 id=1 payload="1"
        < sub PUBLISH topic=a qos=0 payload="1"
        < pub PUBACK id=1
        > pub PUBLISH topic=b qos=1 retain=1 id=2 payload="2"
        < sub PUBLISH topic=b qos=0 payload="2"
        < pub PUBACK id=2
        > pub PUBLISH topic=c qos=1 retain=1 id=3 payload="3"
        < sub PUBLISH topic=c qos=0 payload="3"
        < pub PUBACK id=3
        # One that is there may still be replaced, and deleting makes room.
        > pub PUBLISH topic=a qos=1 retain=1 id=4 payload="4"
        < sub PUBLISH topic=a qos=0 payload="4"
        < pub PUBACK id=4
        > pub PUBLISH topic=b qos=1 retain=1 id=5 payload=""
        < sub PUBLISH topic=b qos=0 payload=""
        < pub PUBACK id=5
        > pub PUBLISH topic=c qos=1 retain=1 id=6 payload="6"
        < sub PUBLISH topic=c qos=0 payload="6"
        < pub PUBACK id=6
        ! power-cut
        = recovered sessions=0 queued=0 retained=2 wills=0
        > late CONNECT client=late
        < late CONNACK present=0 code=0
        > late SUBSCRIBE id=1 filter=# qos=0
        < late SUBACK id=1 codes=0
        < late PUBLISH topic=a qos=0 retain=1 payload="4"
        < late PUBLISH topic=c qos=0 retain=1 payload="6"
        "#,
    );
    assert_eq!(world.figure("traffic.retained_refused"), 0, "counted since the start");
}

#[test]
fn retained_bytes_are_bounded() {
    let mut world = World::new(Setup::with(|setup| setup.config.limits.retained_bytes_max = 1000));
    world.send("pub", "CONNECT client=pub");
    for n in 1..=3 {
        world.send("pub", &format!("PUBLISH topic=t/{n} qos=1 retain=1 id={n} payload=x*400"));
    }
    assert_eq!((world.figure("retained.count"), world.figure("traffic.retained_refused")), (2, 1));
    // A value that grows past the bound is refused; the old one stays.
    world.send("pub", "PUBLISH topic=t/1 qos=1 retain=1 id=4 payload=y*700");
    assert_eq!((world.figure("retained.count"), world.figure("traffic.retained_refused")), (2, 2));
    world.send("sub", "CONNECT client=sub");
    world.lines();
    world.send("sub", "SUBSCRIBE id=1 filter=t/1 qos=0");
    assert_eq!(world.lines_of("sub")[1], "PUBLISH topic=t/1 qos=0 retain=1 payload=x*400");
}

/// An exactly-once delivery waits for its identifier to be kept, and its message for its client: it may expire before it is
/// sent. What was sent is sent again.
#[test]
fn what_expires_before_it_could_be_sent_is_not_sent() {
    for leaves in [false, true] {
        let mut world = World::default();
        world.send("sub", "CONNECT client=sub clean=0");
        world.send("sub", "SUBSCRIBE id=1 filter=t qos=2");
        world.send("pub", "CONNECT version=5 client=pub");
        world.send("pub", "PUBLISH topic=t qos=2 id=1 message_expiry=5 payload=sent");
        assert_eq!(world.lines_of("sub")[2], "PUBLISH topic=t qos=2 id=1 payload=\"sent\"");
        world.hold();
        world.send("pub", "PUBLISH topic=t qos=2 id=2 message_expiry=5 payload=over");
        world.send("pub", "PUBLISH topic=t qos=2 id=3 message_expiry=60 payload=lasts");
        world.pass(Duration::from_secs(6));
        if leaves {
            world.reset("sub");
        }
        world.release();
        if leaves {
            world.send("sub", "CONNECT client=sub clean=0");
            let lines = world.lines_of("sub");
            assert_eq!(lines[2], "PUBLISH topic=t qos=2 dup=1 id=1 payload=\"sent\"", "{lines:?}");
        }
        world.pass(Duration::from_secs(1));
        let lines = world.lines_of("sub").join(", ");
        assert!(!lines.contains("over"), "{lines}");
        let told = receipt(&world, "expired");
        assert_eq!((&told["queue"], &told["messages"]), (&"sub".into(), &1.into()));
        world.cut_power();
        world.send("sub", "CONNECT client=sub clean=0");
        let lines = world.lines_of("sub").join(", ");
        assert!(lines.contains("sent") && lines.contains("lasts") && !lines.contains("over"), "{lines}");
    }
}

/// A session that is away too long ends, with a receipt for what it held.
#[test]
fn an_expired_session_leaves_a_receipt() {
    let mut world = World::new(Setup::with(|setup| {
        setup.config.limits.session_expiry_max = Duration::from_secs(3600);
    }));
    away(&mut world, "sub", "t");
    world.send("pub", "CONNECT client=pub");
    world.send("pub", "PUBLISH topic=t qos=1 id=1 payload=x");
    world.pass(Duration::from_secs(3590));
    assert_eq!(world.figure("sessions.total"), 2);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.figure("sessions.total"), 1);
    let told = receipt(&world, "session_expired");
    assert_eq!((&told["queue"], &told["messages"]), (&"sub".into(), &1.into()));
    world.pass(Duration::from_secs(2));
    world.cut_power();
    assert_eq!(receipt(&world, "session_expired"), told);
    world.lines();
    world.send("sub", "CONNECT client=sub clean=0");
    assert_eq!(world.lines_of("sub"), ["CONNACK present=0 code=0"]);
}

/// A wall clock that jumps ahead while the gateway runs expires nothing; nor does one that is not trusted.
#[test]
fn a_clock_step_expires_no_session() {
    let mut world = World::new(Setup::with(|setup| {
        setup.config.limits.session_expiry_max = Duration::from_secs(3600);
    }));
    away(&mut world, "sub", "t");
    world.step_wall(10 * 365 * 24 * 3600 * 1000);
    world.pass(Duration::from_secs(600));
    world.now.wall_trusted = false;
    world.cut_power();
    world.pass(Duration::from_secs(600));
    world.step_wall(-20 * 365 * 24 * 3600 * 1000);
    world.pass(Duration::from_secs(600));
    check_in(
        &mut world,
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        "#,
    );
}
