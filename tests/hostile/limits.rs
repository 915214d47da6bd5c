//! What one peer may claim: packet sizes, subscriptions, levels, wills.

use crate::bystanders::{assert_answer, exchange, world};
use crate::support::driver::Setup;
use crate::support::packet;

/// CVE-2017-7651, CVE-2023-0809: nothing is set aside for what a peer announces, before CONNECT least of all.
#[test]
fn a_huge_remaining_length_before_connect() {
    assert_answer(None, &[0x10, 0xff, 0xff, 0xff, 0x7f], &["closed protocol_error"]);
    assert_answer(None, &[0x30, 0xff, 0xff, 0xff, 0x7f], &["closed protocol_error"]);
    // As much as a CONNECT may have: kept as far as it comes.
    let mut world = world(Setup::with(|setup| setup.config.limits.connections_max = 2000));
    for n in 0..1000 {
        world.send_bytes(&format!("m{n}"), &[0x10, 0xf0, 0xff, 0x0f, 0, 4, b'M']);
    }
    assert_eq!(world.gateway.input_bytes(), 7000);
    exchange(&mut world);
}

/// What connections keep of unfinished packets is bounded together.
#[test]
fn unfinished_packets_are_bounded_together() {
    let mut world = world(Setup::with(|setup| setup.config.limits.memory_max = 4 << 20));
    let piece = packet::encode("PUBLISH topic=t payload=x*1000000");
    for n in 0..20 {
        let name = format!("m{n}");
        world.send(&name, &format!("CONNECT client={name}"));
        world.send_bytes(&name, &piece[..900_000]);
        assert!(world.gateway.input_bytes() <= 4 << 20, "{}", world.gateway.input_bytes());
    }
    let closed = world.lines().iter().filter(|line| line.ends_with("closed out_of_memory")).count();
    assert!(closed > 0);
    exchange(&mut world);
}

#[test]
fn a_packet_over_the_limit() {
    let mut world = world(Setup::with(|setup| setup.config.limits.message_bytes_max = 1000));
    world.send("mallory", "CONNECT client=mallory");
    world.send("mallory", "PUBLISH topic=bystanders/big payload=x*1000");
    assert!(world.is_connected("mallory"));
    assert_eq!(world.lines_of("ann").len(), 1);
    // Its fixed header is enough.
    world.send_bytes("mallory", &[0x30, 0xff, 0xff, 0xff, 0x7f]);
    assert_eq!(world.lines_of("mallory"), ["closed protocol_error"]);
    exchange(&mut world);
}

#[test]
fn ten_thousand_subscriptions() {
    let mut world = world(Setup::default());
    world.send("mallory", "CONNECT client=mallory clean=0");
    world.lines();
    let mut n = 0;
    for _ in 0..100 {
        let filters: Vec<_> = (n..n + 100).map(|n| format!("filter=many/{n}/+ qos=1")).collect();
        world.send("mallory", &format!("SUBSCRIBE id=1 {}", filters.join(" ")));
        n += 100;
    }
    let granted = world.lines_of("mallory").iter().map(|line| line.matches(",1").count() + 1).sum::<usize>();
    assert_eq!(granted, 10_000);
    world.send("mallory", "SUBSCRIBE id=2 filter=one/more qos=0 filter=many/7/+ qos=2");
    assert_eq!(world.lines_of("mallory"), ["SUBACK id=2 codes=0x80,2"], "one that is there may be changed");
    world.send("bob", "PUBLISH topic=many/9999/x payload=y");
    assert_eq!(world.lines_of("mallory").len(), 1);
    world.cut_power();
    assert_eq!(world.figure("sessions.subscriptions"), 10_000);
    world.send("mallory", "CONNECT client=mallory clean=0");
    world.send("bob", "CONNECT client=bob");
    world.send("ann", "CONNECT client=ann");
    world.send("ann", "SUBSCRIBE id=1 filter=bystanders/# qos=2");
    world.lines();
    world.send("bob", "PUBLISH topic=many/0/x payload=y");
    assert_eq!(world.lines_of("mallory").len(), 1);
    world.send("mallory", "UNSUBSCRIBE id=3 filter=many/1/+");
    world.send("mallory", "SUBSCRIBE id=4 filter=one/more qos=0");
    assert_eq!(world.lines_of("mallory"), ["UNSUBACK id=3", "SUBACK id=4 codes=0"]);
    exchange(&mut world);
}

/// Long filters: the bytes of a session's subscriptions are bounded too, for its record must fit the flash.
#[test]
fn subscriptions_of_sixty_four_kilobytes() {
    let mut world = world(Setup::default());
    world.send("mallory", "CONNECT client=mallory clean=0");
    world.lines();
    let mut refused = 0;
    for n in 0..100 {
        let filter = format!("{n:05}{}", "x".repeat(64_990));
        world.send("mallory", &format!("SUBSCRIBE id=1 filter={filter} qos=1"));
        refused += world.lines_of("mallory").iter().filter(|line| line.ends_with("0x80")).count();
    }
    assert!(refused > 50, "{refused}");
    exchange(&mut world);
    world.cut_power();
    assert_eq!(world.recovery.sessions, 1);
}

/// Deep filters: each level costs a node of the index.
#[test]
fn subscriptions_of_128_levels() {
    let mut world = world(Setup::default());
    world.send("mallory", "CONNECT client=mallory");
    world.lines();
    let mut granted = 0;
    for n in 0..2000 {
        let filter = format!("{n}{}", "/".repeat(127));
        world.send("mallory", &format!("SUBSCRIBE id=1 filter={filter} qos=0"));
        granted += world.lines_of("mallory").iter().filter(|line| line.ends_with("codes=0")).count();
    }
    assert!((400..1000).contains(&granted), "{granted}");
    exchange(&mut world);
}

#[test]
fn topics_of_128_levels() {
    let levels = |count: usize| vec!["a"; count].join("/");
    let mut world = world(Setup::default());
    world.send("mallory", "CONNECT client=mallory");
    world.send("mallory", &format!("SUBSCRIBE id=1 filter={} qos=0", levels(128)));
    world.send("mallory", &format!("SUBSCRIBE id=2 filter={}/# qos=0", levels(127)));
    world.send("mallory", &format!("SUBSCRIBE id=3 filter={} qos=0", vec!["+"; 128].join("/")));
    world.lines();
    world.send("mallory", &format!("PUBLISH topic={} payload=deep", levels(128)));
    assert_eq!(world.lines_of("mallory").len(), 1);
    world.send("mallory", &format!("PUBLISH topic={}", levels(129)));
    assert_eq!(world.lines_of("mallory"), ["closed protocol_error"]);
    world.send("mallory", "CONNECT client=mallory");
    world.send("mallory", &format!("SUBSCRIBE id=1 filter={} qos=0", levels(129)));
    assert_eq!(world.lines_of("mallory")[1..], ["closed protocol_error"]);
    exchange(&mut world);
}

/// Filters that overlap as much as they can: one copy, in time.
#[test]
fn filters_that_overlap_as_much_as_they_can() {
    let mut world = world(Setup::default());
    world.send("mallory", "CONNECT client=mallory");
    for n in 0..1 << 12 {
        let filter: Vec<_> = (0..12).map(|bit| if n >> bit & 1 == 0 { "a" } else { "+" }).collect();
        world.queue("mallory", &format!("SUBSCRIBE id=1 filter={} qos=0", filter.join("/")));
    }
    world.settle();
    world.lines();
    for _ in 0..20 {
        world.send("mallory", &format!("PUBLISH topic={} payload=x", ["a"; 12].join("/")));
        assert_eq!(world.lines_of("mallory").len(), 1);
    }
    exchange(&mut world);
}

/// Wills are kept on flash while their clients are connected: together they have a bound.
#[test]
fn wills_are_bounded_together() {
    let mut world = world(Setup::with(|setup| {
        setup.store.gateway_bytes_max = 2 << 20;
        setup.store.journal_bytes = 128 << 10;
    }));
    world.send("away", "CONNECT client=away clean=0");
    world.send("away", "SUBSCRIBE id=1 filter=kept qos=1");
    world.send("away", "DISCONNECT");
    world.send("bob", "PUBLISH topic=kept qos=1 id=1 payload=must_stay");
    world.lines();
    let mut refused = 0;
    for n in 0..100 {
        let name = format!("m{n}");
        world.send(&name, &format!("CONNECT client={name} will_topic=w will_qos=1 will_payload=x*60000"));
        refused += usize::from(world.lines_of(&name).contains(&"CONNACK present=0 code=3".to_owned()));
    }
    assert!((80..100).contains(&refused), "{refused}");
    exchange(&mut world);
    world.cut_power();
    assert_eq!(world.figure("lost.messages"), 0);
    world.send("away", "CONNECT client=away clean=0");
    assert_eq!(world.lines_of("away")[1], r#"PUBLISH topic=kept qos=1 dup=1 id=1 payload="must_stay""#);
}

#[test]
fn sessions_are_bounded() {
    let mut world = world(Setup::with(|setup| setup.config.limits.sessions_max = 10));
    for n in 0..20 {
        world.send("mallory", &format!("CONNECT client=m{n} clean=0"));
        if world.is_connected("mallory") {
            world.send("mallory", "DISCONNECT");
        }
    }
    let refused = world.lines_of("mallory").iter().filter(|line| *line == "CONNACK present=0 code=3").count();
    assert_eq!(refused, 12);
    exchange(&mut world);
}
