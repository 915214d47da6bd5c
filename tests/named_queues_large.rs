//! Commands that say more than one batch can hold: a batch has 65 536 keys, a queue may have 100 000 messages and
//! 200 000 bindings.

#![allow(clippy::unwrap_used, reason = "test code")]

#[path = "support/disk.rs"]
mod disk;

use std::time::Duration;

use disk::SimDisk;
use gatewayd::broker::{
    BindingArguments, Broker, DeadLetter, ExchangeIndex, ExchangeKind, ExchangeOptions, Overflow, Policy,
    QueueBounds, QueueIndex, QueueOptions, QueueSettings, Recovered, RecoverySummary, Target,
};
use gatewayd::ids::ConnectionId;
use gatewayd::message::{Assurance, Message};
use gatewayd::store::{Store, StoreOptions};
use gatewayd::time::{Mono, Now, Wall};

const ME: ConnectionId = ConnectionId(7);
/// More than the keys of one batch.
const MANY: usize = 70_000;

fn now(ms: u64) -> Now {
    Now { mono: Mono(ms * 1000), wall: Wall(1_700_000_000_000 + ms), wall_trusted: true }
}

fn policy() -> Policy {
    let bounds = QueueBounds { messages_max: 100_000, bytes_max: 64 << 20, overflow: Overflow::DropOldest };
    Policy {
        session_bounds: bounds,
        named_bounds: Vec::new(),
        queue_bounds: bounds,
        sessions_max: 10,
        queues_max: 100,
        session_expiry_max: None,
        retained_max: 10,
        retained_bytes_max: 1 << 20,
        elision_window: Duration::from_millis(10),
        flash_quota_bytes: 1 << 30,
        backlog_quota_bytes: 0,
        flash_bytes_per_day: None,
        memory_max: 1 << 30,
    }
}

fn start(disk: &SimDisk, at: u64) -> (Store, Broker, RecoverySummary) {
    let options = StoreOptions { gateway_bytes_max: 140 << 20, reserve_free: 0, ..StoreOptions::default() };
    let (mut store, found) = Store::open(disk.disk(), options).unwrap();
    let mut recovered = Recovered::new();
    store.replay(&mut |place, kind, body| recovered.row(place, kind, body)).unwrap();
    let (broker, summary) = recovered.finish(policy(), 1, now(at), found.last_batch, found.boot);
    (store, broker, summary)
}

/// Writes the open batch.
fn keep_one(store: &mut Store, broker: &mut Broker, at: u64) -> bool {
    let Some(batch) = broker.close_batch_now() else { return false };
    let persisted = store.append(batch).unwrap();
    broker.persisted(now(at), persisted);
    true
}

fn keep(store: &mut Store, broker: &mut Broker, at: u64) {
    while keep_one(store, broker, at) {}
}

fn declare(broker: &mut Broker, name: &str, settings: QueueSettings) -> QueueIndex {
    let options = QueueOptions { durable: true, settings, ..QueueOptions::default() };
    broker.create_queue(now(0), name, options, ME).unwrap().0
}

fn publish(broker: &mut Broker, at: u64, queue: &str, body: usize) {
    let message = Message {
        address: queue.into(),
        body: bytes::Bytes::from(body.to_string().into_bytes()),
        assurance: Assurance::AtLeastOnce,
        received_at: now(at).wall,
        received_trusted: true,
        ..Message::default()
    };
    broker.publish_to(now(at), ExchangeIndex::DEFAULT, message, &[], Some(ME));
}

/// A store with a queue that has many bindings on the exchange `logs`.
fn bound_often(disk: &SimDisk) -> (Store, Broker, QueueIndex) {
    let (mut store, mut broker, _) = start(disk, 0);
    let queue = declare(&mut broker, "q", QueueSettings::default());
    broker.create_exchange(now(0), "logs", ExchangeOptions::new(ExchangeKind::Direct)).unwrap();
    let logs = broker.exchange("logs").unwrap();
    for number in 0..MANY {
        let key = format!("key-{number}");
        broker.bind(now(0), logs, Target::Queue(queue), &key, BindingArguments::default()).unwrap();
        if number % 30_000 == 0 {
            keep(&mut store, &mut broker, 1);
        }
    }
    keep(&mut store, &mut broker, 1);
    (store, broker, queue)
}

/// Ending a queue ends its bindings: too many for one batch, and the reply waits for the last of them.
#[test]
fn a_queue_with_more_bindings_than_a_batch_has_keys_is_deleted() {
    let disk = SimDisk::new(1);
    let (mut store, mut broker, queue) = bound_often(&disk);
    let (_, gate) = broker.delete_queue(now(2), queue, false, false).unwrap();
    assert!(keep_one(&mut store, &mut broker, 3));
    assert!(!gate.is_due(broker.persisted_batch()), "one batch cannot hold it");
    keep(&mut store, &mut broker, 4);
    assert!(gate.is_due(broker.persisted_batch()));
    drop(store);
    let (_, broker, summary) = start(&disk.reboot(), 5);
    assert_eq!((summary.named_queues, summary.unreadable), (0, 0));
    assert!(broker.exchange("logs").is_some());
}

/// The power goes between the batches of one deletion. Nobody was told that the queue is gone, and the bindings that are
/// left lead nowhere.
#[test]
fn a_deletion_that_the_power_cut_off_leaves_nothing_that_works_by_half() {
    let disk = SimDisk::new(2);
    let (mut store, mut broker, queue) = bound_often(&disk);
    let (_, gate) = broker.delete_queue(now(2), queue, false, false).unwrap();
    assert!(keep_one(&mut store, &mut broker, 3));
    assert!(!gate.is_due(broker.persisted_batch()));
    drop(store);
    let disk = disk.reboot();
    let (mut store, mut broker, summary) = start(&disk, 5);
    assert_eq!(summary.named_queues, 0);
    // The same name again has none of the old bindings.
    let queue = declare(&mut broker, "q", QueueSettings::default());
    let logs = broker.exchange("logs").unwrap();
    let message = Message {
        address: format!("key-{}", MANY - 1).as_str().into(),
        assurance: Assurance::AtLeastOnce,
        ..Message::default()
    };
    broker.publish_to(now(6), logs, message, &[], Some(ME));
    assert_eq!(broker.queue_facts(queue).unwrap().ready, 0);
    keep(&mut store, &mut broker, 7);
    drop(store);
    let (_, _, summary) = start(&disk.reboot(), 8);
    assert_eq!((summary.named_queues, summary.unreadable), (1, 0));
}

/// Everything in a queue expires while the power is off: the start moves more messages than one batch has keys for.
#[test]
fn a_queue_that_expires_as_a_whole_moves_to_its_dead_letter_queue() {
    let disk = SimDisk::new(3);
    let (mut store, mut broker, _) = start(&disk, 0);
    let dead_letter = DeadLetter { exchange: "".into(), address: Some("dead".into()) };
    let settings = QueueSettings {
        time_to_live_ms: Some(1000),
        dead_letter: Some(dead_letter),
        ..QueueSettings::default()
    };
    declare(&mut broker, "short", settings);
    declare(&mut broker, "dead", QueueSettings::default());
    for number in 0..MANY {
        publish(&mut broker, 1, "short", number);
        if number % 10_000 == 0 {
            keep(&mut store, &mut broker, 1);
        }
    }
    keep(&mut store, &mut broker, 2);
    drop(store);
    let disk = disk.reboot();
    let (mut store, mut broker, summary) = start(&disk, 10_000);
    assert_eq!(summary.queued, MANY);
    // The flash is busy meanwhile.
    for ms in 10_000..10_500 {
        broker.handle_timeout(now(ms));
    }
    let ready = |broker: &Broker, name| broker.queue_facts(broker.named_queue(name).unwrap()).unwrap().ready;
    assert_eq!(ready(&broker, "short"), 0);
    assert_eq!(ready(&broker, "dead"), MANY);
    // The power goes before all of them are written: each message is in one of the two queues, or in both.
    assert!(keep_one(&mut store, &mut broker, 10_501));
    drop(store);
    let disk = disk.reboot();
    let (mut store, mut broker, _) = start(&disk, 10_502);
    assert!(ready(&broker, "short") + ready(&broker, "dead") >= MANY);
    for ms in 10_503..11_000 {
        broker.handle_timeout(now(ms));
    }
    keep(&mut store, &mut broker, 11_001);
    drop(store);
    let (_, mut broker, _) = start(&disk.reboot(), 11_002);
    let dead = broker.named_queue("dead").unwrap();
    let mut bodies: Vec<usize> = std::iter::from_fn(|| broker.get(now(11_002), dead, true))
        .map(|got| std::str::from_utf8(&got.held.message.body).unwrap().parse().unwrap())
        .collect();
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), MANY);
}
