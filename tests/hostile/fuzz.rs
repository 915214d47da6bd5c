//! Seeded damage to valid conversations, and valid packets in any order. `HOSTILE_SEED=n` repeats one seed.

#![expect(clippy::cast_possible_truncation, reason = "random numbers below small bounds")]

use std::time::Duration;

use crate::bystanders::{exchange, world};
use crate::support::disk::{Fault, Random};
use crate::support::driver::{Setup, World};
use crate::support::packet;

fn seeds(count: u64) -> std::ops::Range<u64> {
    let wanted = std::env::vars().find(|(name, _)| name == "HOSTILE_SEED");
    match wanted {
        Some((_, seed)) => {
            let seed = seed.parse().expect("a seed is a number");
            seed..seed + 1
        }
        None => 0..count,
    }
}

/// Any packet that a client may send, mostly sensible.
fn packet_text(random: &mut Random) -> String {
    let id = random.below(6) + 1;
    let topics = ["a", "a/b", "a/b/c", "b", "$SYS/x", "a//b", "bystanders/y"];
    let filters = ["a", "a/#", "#", "+/b", "+", "$SYS/#", "a/+/c", "bystanders/#"];
    let topic = topics[random.below(topics.len() as u64) as usize];
    let filter = filters[random.below(filters.len() as u64) as usize];
    let qos = random.below(3);
    match random.below(14) {
        0..=4 => format!(
            "PUBLISH topic={topic} qos={qos} retain={} dup={} id={id} payload={}",
            u64::from(random.one_in(4)),
            u64::from(qos > 0 && random.one_in(4)),
            if random.one_in(6) { "\"\"".to_owned() } else { format!("x*{}", random.below(300) + 1) }
        ),
        5 => format!("PUBACK id={id}"),
        6 => format!("PUBREC id={id}"),
        7 => format!("PUBREL id={id}"),
        8 => format!("PUBCOMP id={id}"),
        9 | 10 => format!("SUBSCRIBE id={id} filter={filter} qos={qos}"),
        11 => format!("UNSUBSCRIBE id={id} filter={filter}"),
        12 => "PINGREQ".into(),
        _ if random.one_in(3) => "DISCONNECT".into(),
        _ => "PINGREQ".into(),
    }
}

fn connect_text(random: &mut Random, clients: u64) -> String {
    let will = if random.one_in(3) {
        format!(" will_topic=bystanders/will will_qos={} will_retain={}", random.below(3), random.below(2))
    } else {
        String::new()
    };
    let version = if random.one_in(5) { " version=3.1" } else { "" };
    format!(
        "CONNECT client=m{} clean={} keep_alive={}{will}{version}",
        random.below(clients),
        random.below(2),
        random.below(3) * 10
    )
}

/// Changes, inserts or removes a few bytes, mostly near the front.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let reach = if random.one_in(2) { bytes.len().min(16) } else { bytes.len() };
        let at = random.below(reach as u64) as usize;
        match random.below(6) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'#', b'+', b'/'][random.below(8) as usize],
            3 => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            _ => bytes.insert(at, random.next() as u8),
        }
    }
}

/// Sends bytes in pieces of random size.
fn send_in_pieces(world: &mut World, random: &mut Random, name: &str, mut bytes: &[u8]) {
    while !bytes.is_empty() && (world.is_connected(name) || world.accept(name)) {
        let count = (random.below(bytes.len() as u64) + 1) as usize;
        world.send_bytes(name, &bytes[..count]);
        bytes = &bytes[count..];
    }
}

#[test]
fn damaged_conversations() {
    for seed in seeds(150) {
        let mut random = Random::new(seed);
        let mut world = world(Setup::with(|setup| setup.seed = seed));
        for _ in 0..12 {
            let mut bytes = packet::encode(&connect_text(&mut random, 2));
            for _ in 0..random.below(12) {
                bytes.extend(packet::encode(&packet_text(&mut random)));
            }
            damage(&mut random, &mut bytes);
            send_in_pieces(&mut world, &mut random, "mallory", &bytes);
            if world.is_connected("mallory") && random.one_in(2) {
                world.reset("mallory");
            }
            assert!(world.gateway.input_bytes() < 30_000, "seed {seed}");
            world.lines();
            tidy(&mut world);
            exchange(&mut world);
        }
        world.cut_power();
        assert_eq!(world.recovery.unreadable, 0, "seed {seed}");
    }
}

/// What mallory's messages to the bystanders left is acknowledged, so that the exchange sees its own.
fn tidy(world: &mut World) {
    if world.is_connected("ann") {
        world.reset("ann");
    }
    world.send("ann", "CONNECT client=ann keep_alive=0");
    world.send("ann", "SUBSCRIBE id=1 filter=bystanders/x qos=2");
    world.lines();
}

/// Valid packets in any order from several clients that share identifiers, while the store is held, fails and loses
/// power: nothing panics, nothing spins, and the bystanders go on whenever the store works.
#[test]
fn valid_packets_in_any_order() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let mut world = world(Setup::with(|setup| {
            setup.seed = seed;
            setup.config.limits.inflight_max = 1 + random.below(4) as u16;
            setup.config.queues.session.messages_max = 1 + random.below(20);
            setup.config.limits.retained_max = 1 + random.below(5) as u32;
        }));
        for _ in 0..400 {
            let name = ["m", "n", "o"][random.below(3) as usize];
            match random.below(40) {
                0 => world.hold(),
                1 => drop(world.persist()),
                2 => world.fail(if random.one_in(2) { Fault::Io } else { Fault::Full }),
                3..=5 => world.heal(),
                6 if random.one_in(6) => {
                    world.cut_power();
                    world.send("bob", "CONNECT client=bob keep_alive=0");
                }
                7 => world.pass(Duration::from_millis(random.below(3000))),
                8 => world.step_wall(random.below(2_000_000) as i64 - 1_000_000),
                9 if world.is_connected(name) => world.reset(name),
                10 if world.is_connected(name) => world.stall(name),
                11 if world.is_connected(name) => world.reads(name),
                _ if world.is_connected(name) => world.send(name, &packet_text(&mut random)),
                _ => world.send(name, &connect_text(&mut random, 3)),
            }
            if !world.is_connected("bob") {
                world.send("bob", "CONNECT client=bob keep_alive=0");
            }
        }
        world.heal();
        tidy(&mut world);
        exchange(&mut world);
        world.cut_power();
        assert_eq!(world.recovery.unreadable, 0, "seed {seed}");
    }
}
