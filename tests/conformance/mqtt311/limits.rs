//! What the gateway takes of one client, and what it keeps for it. The statements with a number stand in other files.

use crate::support::driver::{Setup, World};
use crate::support::packet;
use crate::support::transcript::check;

#[test]
fn a_body_or_a_will_larger_than_message_bytes_max_is_not_taken() {
    check(
        r#"
        % message_bytes_max=1024
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=t qos=1 id=1 payload=x*1024
        < a PUBACK id=1
        > a PUBLISH topic=t qos=1 id=2 payload=x*1025
        < a closed protocol_error
        > b CONNECT client=b will_topic=w will_payload=x*1024
        < b CONNACK present=0 code=0
        > c CONNECT client=c will_topic=w will_payload=x*1025
        < c CONNACK present=0 code=3
        < c closed refused
        "#,
    );
}

/// Each subscription brings its own copies, with its own QoS; one that is made anew brings the newest in their place.
#[test]
fn an_overlapping_subscription_leaves_the_retained_values_of_the_other() {
    for clean in [0, 1] {
        let mut world = World::default();
        world.send("p", "CONNECT client=p");
        for n in 1..=60 {
            world.queue("p", &format!("PUBLISH topic=r/{n} retain=1 qos=1 id={n} payload=x"));
        }
        world.settle();
        world.send("s", &format!("CONNECT client=s clean={clean}"));
        world.lines();
        world.send("s", "SUBSCRIBE id=1 filter=r/# qos=1");
        world.send("s", "SUBSCRIBE id=2 filter=r/+ qos=0");
        world.send("s", "SUBSCRIBE id=3 filter=+/+ qos=1");
        world.send("s", "SUBSCRIBE id=4 filter=r/# qos=1");
        let mut got = [0, 0];
        loop {
            let lines = world.lines_of("s");
            let publishes: Vec<_> = lines.iter().filter(|line| line.starts_with("PUBLISH")).collect();
            if publishes.is_empty() {
                break;
            }
            for publish in publishes {
                let id = publish.split(" id=").nth(1).and_then(|rest| rest.split(' ').next());
                got[usize::from(id.is_some())] += 1;
                if let Some(id) = id {
                    world.queue("s", &format!("PUBACK id={id}"));
                }
            }
            world.settle();
        }
        // In flight when the first was made anew were as many as may be at once.
        assert_eq!(got, [60, 60 + 60 + 20], "clean={clean}");
    }
}

/// A client may send all that it has before it reads: MQTT 3 knows no bound but the identifiers.
#[test]
fn publishes_of_qos_2_in_flight_are_taken_up_to_all_identifiers() {
    for clean in [0, 1] {
        let mut world = World::default();
        world.send("s", "CONNECT client=s");
        world.send("s", "SUBSCRIBE id=1 filter=q qos=0");
        world.send("a", &format!("CONNECT client=a clean={clean}"));
        world.lines();
        for first in (1..=65_535).step_by(5_000) {
            let burst = first..=65_535.min(first + 4_999);
            let bytes: Vec<_> = burst
                .flat_map(|id| packet::encode(&format!("PUBLISH topic=q qos=2 id={id} payload=x")))
                .collect();
            world.send_bytes("a", &bytes);
        }
        let (to_a, to_s): (Vec<_>, Vec<_>) =
            world.lines().into_iter().partition(|line| line.starts_with("< a PUBREC "));
        assert_eq!((to_a.len(), to_s.len()), (65_535, 65_535));
        if clean == 0 {
            world.cut_power();
            world.send("a", "CONNECT client=a clean=0");
            world.send("s", "CONNECT client=s");
            world.send("s", "SUBSCRIBE id=1 filter=q qos=0");
            world.lines();
            world.send("a", "PUBLISH topic=q qos=2 id=65535 dup=1 payload=x");
            assert_eq!(world.lines_of("a"), ["PUBREC id=65535"]);
        }
        for first in (1..=65_535).step_by(5_000) {
            let burst = first..=65_535.min(first + 4_999);
            let bytes: Vec<_> = burst.flat_map(|id| packet::encode(&format!("PUBREL id={id}"))).collect();
            world.send_bytes("a", &bytes);
        }
        let lines = world.lines();
        assert_eq!(lines.len(), 65_535);
        assert!(lines.iter().all(|line| line.starts_with("< a PUBCOMP ")), "{:?}", lines.first());
    }
}

/// What all sessions keep is bounded: a client that has more than its sure part is sent away, others go on.
#[test]
fn publishes_of_qos_2_without_release_are_bounded_for_all_together() {
    // A quarter of 10 MiB, of which an identifier takes 16 bytes: 163 840 beside the 2048 that each session has.
    let mut world = World::new(Setup::with(|setup| {
        setup.config.limits.memory_max = 10 << 20;
        setup.store.gateway_bytes_max = 64 << 20;
    }));
    for (name, fits) in [("a", true), ("b", true), ("c", false)] {
        world.send(name, &format!("CONNECT client={name} clean=0"));
        for first in (1..=65_535).step_by(5_000) {
            let burst = first..=65_535.min(first + 4_999);
            let bytes: Vec<_> =
                burst.flat_map(|id| packet::encode(&format!("PUBLISH topic=q qos=2 id={id}"))).collect();
            if world.is_connected(name) {
                world.send_bytes(name, &bytes);
            }
        }
        assert_eq!(world.is_connected(name), fits, "{name}");
    }
    world.send("d", "CONNECT client=d");
    world.lines();
    let bytes: Vec<_> =
        (1..=2048).flat_map(|id| packet::encode(&format!("PUBLISH topic=q qos=2 id={id}"))).collect();
    world.send_bytes("d", &bytes);
    assert_eq!(world.lines_of("d").len(), 2048);
    world.send("d", "PUBLISH topic=q qos=2 id=2049");
    assert_eq!(world.lines_of("d"), ["closed protocol_error"]);
    // Room comes back when a session ends.
    world.send("a", "DISCONNECT");
    world.send("a", "CONNECT client=a");
    world.send("d", "CONNECT client=d");
    world.lines();
    let bytes: Vec<_> =
        (1..=4096).flat_map(|id| packet::encode(&format!("PUBLISH topic=q qos=2 id={id}"))).collect();
    world.send_bytes("d", &bytes);
    assert_eq!(world.lines_of("d").len(), 4096);
}
