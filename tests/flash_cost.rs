//! What a QoS 1 message costs the flash over its whole life, through the whole gateway: written once whatever the
//! fan-out, settled by every subscriber, trimmed. Counted on the simulated disk, so the figures are exact.

#![expect(clippy::print_stderr, reason = "the figures are what the test is for")]

mod support;

use std::time::Duration;

use gatewayd::store::StoreOptions;

use support::driver::{Setup, World};

/// Batches before counting, and batches counted: several checkpoints, and applications of the journal.
const WARM_UP: usize = 150;
const COUNTED: usize = 300;

/// Bytes a message and syncs a batch with `batch` messages of 100 bytes a commit and `fan_out` durable subscribers that
/// acknowledge each message.
fn cost(batch: usize, fan_out: usize) -> (u64, f64) {
    let mut world = World::new(Setup::with(|setup| {
        // Connected subscribers answer at once here: without the window every message is written.
        setup.config.storage.elision_window = Duration::ZERO;
        setup.config.limits.inflight_max = 200;
        setup.store = StoreOptions { reserve_free: 0, ..StoreOptions::default() };
    }));
    world.counts_only = true;
    for n in 0..fan_out {
        let name = format!("s{n}");
        world.accept(&name);
        world.send(&name, &format!("CONNECT client={name} clean=0"));
        world.send(&name, "SUBSCRIBE id=1 filter=a/b qos=1");
    }
    world.accept("p");
    world.send("p", "CONNECT client=p clean=1");
    let mut before = (0, 0, 0);
    for round in 0..WARM_UP + COUNTED {
        if round == WARM_UP {
            before = (world.disk.bytes_written(), world.disk.syncs(), world.batches);
        }
        let publish = |id: usize| {
            let mut packet = vec![
                0x32,
                107,
                0,
                3,
                b'a',
                b'/',
                b'b',
                0,
                u8::try_from(id + 1).expect("the counts are small"),
            ];
            packet.extend_from_slice(&[b'x'; 100]);
            packet
        };
        let packets: Vec<u8> = (0..batch).flat_map(publish).collect();
        world.send_bytes("p", &packets);
        for n in 0..fan_out {
            let acknowledge = |id: usize| {
                let tag = u16::try_from((round * batch + id) % 65_535 + 1).expect("the counts are small");
                let [high, low] = tag.to_be_bytes();
                [0x40, 2, high, low]
            };
            let acknowledgements: Vec<u8> = (0..batch).flat_map(acknowledge).collect();
            world.send_bytes(&format!("s{n}"), &acknowledgements);
        }
    }
    assert_eq!(world.figure("sessions.queued"), 0, "every message was acknowledged by every subscriber");
    assert_eq!(world.figure("flash.elided"), 0, "every message was written");
    let messages = u64::try_from(COUNTED * batch).expect("the counts are small");
    let bytes = (world.disk.bytes_written() - before.0) / messages;
    let batches = world.batches - before.2;
    assert!(batches >= u64::try_from(COUNTED).expect("the counts are small"), "a batch for each burst");
    (
        bytes,
        f64::from(u32::try_from(world.disk.syncs() - before.1).expect("the counts are small"))
            / f64::from(u32::try_from(batches).expect("the counts are small")),
    )
}

#[test]
fn a_message_is_written_once_whatever_the_fan_out() {
    for (batch, bytes_max) in [(1, 29_000), (8, 3_600), (64, 560)] {
        let (alone, syncs) = cost(batch, 1);
        let (wide, wide_syncs) = cost(batch, 100);
        eprintln!(
            "{batch} a batch: {alone} bytes a message to 1, {wide} to 100; {syncs:.3} and {wide_syncs:.3} syncs"
        );
        assert!(alone <= bytes_max && wide <= bytes_max, "{batch} a batch: {alone} to 1, {wide} to 100");
        assert!(syncs <= 1.05 && wide_syncs <= 1.05, "one sync a batch: {syncs}, {wide_syncs}");
    }
}
