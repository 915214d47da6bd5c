//! Named queues, exchanges and bindings across a power cut: what was promised is there, what was settled is not.

#![allow(clippy::unwrap_used, reason = "test code")]

mod bounds;
mod delayed;
#[path = "../support/disk.rs"]
mod disk;
mod hashed;
mod refusing;
mod room;

use std::time::Duration;

use disk::SimDisk;
use gatewayd::broker::{
    BindingArguments, Broker, DeadLetter, ExchangeIndex, ExchangeKind, ExchangeOptions, Overflow, Policy,
    Publish, QueueBounds, QueueIndex, QueueOptions, QueueSettings, Recovered, RecoverySummary, SessionTerms,
    Settlement, Target,
};
use gatewayd::ids::ConnectionId;
use gatewayd::message::{Annotations, Assurance, Message};
use gatewayd::store::{Store, StoreOptions};
use gatewayd::time::{Mono, Now, Wall};

const ME: ConnectionId = ConnectionId(7);

fn now(ms: u64) -> Now {
    Now { mono: Mono(ms * 1000), wall: Wall(1_700_000_000_000 + ms), wall_trusted: true }
}

fn policy() -> Policy {
    let bounds = QueueBounds { messages_max: 1000, bytes_max: 1 << 20, overflow: Overflow::DropOldest };
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
        flash_quota_bytes: 1 << 24,
        backlog_quota_bytes: 0,
        flash_bytes_per_day: None,
        memory_max: 1 << 24,
    }
}

fn options() -> StoreOptions {
    StoreOptions {
        gateway_bytes_max: 1 << 20,
        journal_bytes: 128 << 10,
        reserve_free: 0,
        ..StoreOptions::default()
    }
}

fn start(disk: &SimDisk, at: u64) -> (Store, Broker, RecoverySummary) {
    start_with(disk, at, policy())
}

fn start_with(disk: &SimDisk, at: u64, policy: Policy) -> (Store, Broker, RecoverySummary) {
    let (mut store, found) = Store::open(disk.disk(), options()).unwrap();
    let mut recovered = Recovered::new();
    store.replay(&mut |place, kind, body| recovered.row(place, kind, body)).unwrap();
    let (broker, summary) = recovered.finish(policy, 1, now(at), found.last_batch, found.boot);
    (store, broker, summary)
}

fn keep(store: &mut Store, broker: &mut Broker, at: u64) {
    while let Some(batch) = broker.close_batch_now() {
        let persisted = store.append(batch).unwrap();
        broker.persisted(now(at), persisted);
    }
}

fn message(address: &str, body: &str, assurance: Assurance) -> Message {
    let body = bytes::Bytes::copy_from_slice(body.as_bytes());
    let received_at = now(0).wall;
    Message {
        address: address.into(),
        body,
        assurance,
        received_at,
        received_trusted: true,
        ..Message::default()
    }
}

fn declare(broker: &mut Broker, name: &str, settings: QueueSettings, durable: bool) -> QueueIndex {
    let options = QueueOptions { durable, settings, ..QueueOptions::default() };
    broker.create_queue(now(0), name, options, ME).unwrap().0
}

fn drain(broker: &mut Broker, at: u64, queue: QueueIndex) -> Vec<String> {
    let got = std::iter::from_fn(|| broker.get(now(at), queue, true));
    got.map(|got| String::from_utf8_lossy(&got.held.message.body).into_owned()).collect()
}

fn settle(broker: &mut Broker, queue: QueueIndex, number: u64, settlement: Settlement) {
    broker.settle_deliveries(now(3), std::iter::once((queue, number)), settlement);
}

#[test]
fn queues_bindings_and_messages_survive_and_what_is_settled_does_not_come_back() {
    let disk = SimDisk::new(1);
    let (mut store, mut broker, _) = start(&disk, 0);
    let queue = declare(&mut broker, "q", QueueSettings::default(), true);
    declare(&mut broker, "gone", QueueSettings::default(), false);
    broker.create_exchange(now(0), "logs", ExchangeOptions::new(ExchangeKind::Topic)).unwrap();
    let logs = broker.exchange("logs").unwrap();
    for (source, key) in [(logs, "a/*"), (ExchangeIndex::SHARED, "s/#")] {
        broker.bind(now(0), source, Target::Queue(queue), key, BindingArguments::default()).unwrap();
    }
    for body in ["0", "1", "2", "3"] {
        let message = message("a/b", body, Assurance::AtLeastOnce);
        let routed = broker.publish_to(now(1), logs, message, &[], Some(ME));
        assert!(!routed.gate.is_due(broker.persisted_batch()));
    }
    broker.publish_to(now(1), logs, message("a/b", "transient", Assurance::AtMostOnce), &[], Some(ME));
    keep(&mut store, &mut broker, 2);
    let got: Vec<_> = (0..2).map(|_| broker.get(now(3), queue, false).unwrap().number).collect();
    settle(&mut broker, queue, got[1], Settlement::Accept);
    settle(&mut broker, queue, got[0], Settlement::Requeue);
    keep(&mut store, &mut broker, 4);
    drop(store);

    let (_, mut broker, summary) = start(&disk.reboot(), 5);
    assert_eq!((summary.named_queues, summary.queued, summary.unreadable), (1, 3, 0));
    let queue = broker.named_queue("q").unwrap();
    assert!(broker.named_queue("gone").is_none());
    let first = broker.get(now(6), queue, false).unwrap();
    assert!(first.redelivered);
    settle(&mut broker, queue, first.number, Settlement::Release);
    assert_eq!(drain(&mut broker, 6, queue), ["0", "2", "3"]);
    let logs = broker.exchange("logs").unwrap();
    broker.publish_to(now(7), logs, message("a/x", "new", Assurance::AtMostOnce), &[], None);
    let shared = message("s/t", "shared", Assurance::AtMostOnce);
    broker.publish_to(now(7), ExchangeIndex::SHARED, shared, &[], None);
    assert_eq!(drain(&mut broker, 7, queue), ["new", "shared"]);
}

#[test]
fn what_is_delayed_or_expires_keeps_its_time_across_a_start() {
    let disk = SimDisk::new(2);
    let (mut store, mut broker, _) = start(&disk, 0);
    let queue = declare(&mut broker, "q", QueueSettings::default(), true);
    let ttl = QueueSettings { time_to_live_ms: Some(1000), ..QueueSettings::default() };
    declare(&mut broker, "short", ttl, true);
    let delaying = ExchangeOptions { delayed: true, ..ExchangeOptions::new(ExchangeKind::Direct) };
    broker.create_exchange(now(0), "later", delaying).unwrap();
    let later = broker.exchange("later").unwrap();
    broker.bind(now(0), later, Target::Queue(queue), "k", BindingArguments::default()).unwrap();
    let annotations = Some(Box::new(Annotations { delay_ms: Some(1000), ..Annotations::default() }));
    let delayed = Message { annotations, ..message("k", "delayed", Assurance::AtLeastOnce) };
    broker.publish_to(now(0), later, delayed, &[], Some(ME));
    let short = message("short", "x", Assurance::AtLeastOnce);
    broker.publish_to(now(0), ExchangeIndex::DEFAULT, short, &[], Some(ME));
    keep(&mut store, &mut broker, 1);
    drop(store);

    let disk = disk.reboot();
    let (mut store, mut broker, summary) = start(&disk, 600);
    assert_eq!(summary.queued, 2);
    let (queue, short) = (broker.named_queue("q").unwrap(), broker.named_queue("short").unwrap());
    broker.handle_timeout(now(900));
    assert_eq!(broker.queue_facts(short).unwrap().ready, 1);
    assert_eq!(drain(&mut broker, 900, queue), [""; 0]);
    broker.handle_timeout(now(1100));
    assert_eq!(broker.queue_facts(short).unwrap().ready, 0);
    assert_eq!(broker.queue_facts(queue).unwrap().ready, 1);
    keep(&mut store, &mut broker, 1101);
    drop(store);
    let (_, mut broker, _) = start(&disk.reboot(), 1200);
    let queue = broker.named_queue("q").unwrap();
    assert_eq!(drain(&mut broker, 1201, queue), ["delayed"]);
}

#[test]
fn a_delivery_limit_counts_on_over_a_restart() {
    let disk = SimDisk::new(3);
    let (mut store, mut broker, _) = start(&disk, 0);
    let dead_letter = Some(DeadLetter { exchange: "".into(), address: Some("dead".into()) });
    let settings = QueueSettings { returns_max: Some(2), dead_letter, ..QueueSettings::default() };
    let queue = declare(&mut broker, "q", settings, true);
    declare(&mut broker, "dead", QueueSettings::default(), true);
    for body in ["poison", "good"] {
        let message = message("q", body, Assurance::AtLeastOnce);
        broker.publish_to(now(1), ExchangeIndex::DEFAULT, message, &[], Some(ME));
    }
    keep(&mut store, &mut broker, 2);
    let come_back = |broker: &mut Broker, queue, times| {
        for _ in 0..times {
            let number = broker.get(now(3), queue, false).unwrap().number;
            settle(broker, queue, number, Settlement::Requeue);
        }
    };
    come_back(&mut broker, queue, 2);
    keep(&mut store, &mut broker, 4);
    drop(store);
    let (_, mut broker, _) = start(&disk.reboot(), 5);
    let (queue, dead) = (broker.named_queue("q").unwrap(), broker.named_queue("dead").unwrap());
    assert_eq!(broker.queue_facts(queue).unwrap().ready, 2);
    come_back(&mut broker, queue, 1);
    assert_eq!(drain(&mut broker, 6, dead), ["poison"]);
    come_back(&mut broker, queue, 2);
    assert_eq!(drain(&mut broker, 6, queue), ["good"]);
}

/// What is under `$SYS` is the gateway's, whatever way a client's message takes to the exchange that all share.
#[test]
fn no_way_leads_a_client_s_message_to_the_gateway_s_topics() {
    let disk = SimDisk::new(1);
    let (_, mut broker, _) = start(&disk, 0);
    let watch = declare(&mut broker, "watch", QueueSettings::default(), false);
    let all = declare(&mut broker, "all", QueueSettings::default(), false);
    for (queue, key) in [(watch, "$SYS/#"), (watch, "cc"), (all, "#")] {
        let target = Target::Queue(queue);
        broker.bind(now(0), ExchangeIndex::SHARED, target, key, BindingArguments::default()).unwrap();
    }
    let shared = Target::Exchange(ExchangeIndex::SHARED);
    let fan = ExchangeOptions { delayed: true, ..ExchangeOptions::new(ExchangeKind::Fanout) };
    let alternate =
        ExchangeOptions { alternate: Some("amq.topic".into()), ..ExchangeOptions::new(ExchangeKind::Direct) };
    for (name, options) in [("fan", fan), ("nowhere", alternate)] {
        broker.create_exchange(now(0), name, options).unwrap();
    }
    let (fan, nowhere) = (broker.exchange("fan").unwrap(), broker.exchange("nowhere").unwrap());
    broker.bind(now(0), fan, shared, "", BindingArguments::default()).unwrap();
    let expiring = |address: Option<&str>| QueueSettings {
        time_to_live_ms: Some(1),
        dead_letter: Some(DeadLetter { exchange: "amq.topic".into(), address: address.map(Into::into) }),
        ..QueueSettings::default()
    };
    declare(&mut broker, "$SYS.own", expiring(None), false);
    declare(&mut broker, "renamed", expiring(Some("$SYS/x")), false);
    let send = |broker: &mut Broker, exchange, address: &str, also: &[Box<str>], delay_ms| {
        let annotations = Annotations { delay_ms, ..Annotations::default() };
        let message = Message {
            annotations: Some(Box::new(annotations)),
            ..message(address, address, Assurance::AtLeastOnce)
        };
        broker.publish_to(now(1), exchange, message, also, None).queues
    };
    for address in ["$SYS", "$SYS/gateway/loss"] {
        assert_eq!(send(&mut broker, ExchangeIndex::SHARED, address, &[], None), 0);
        assert_eq!(send(&mut broker, fan, address, &[], None), 0);
        assert_eq!(send(&mut broker, fan, address, &["cc".into()], None), 0, "it would show its own address");
        assert_eq!(send(&mut broker, nowhere, address, &[], None), 0);
        send(&mut broker, fan, address, &[], Some(5));
    }
    for queue in ["$SYS/own", "renamed"] {
        assert_eq!(send(&mut broker, ExchangeIndex::DEFAULT, queue, &[], None), 1);
    }
    broker.handle_timeout(now(1000));
    assert_eq!(drain(&mut broker, 1000, watch), [""; 0]);
    assert_eq!(drain(&mut broker, 1000, all), [""; 0]);
    // What only looks like it is a topic like others, hidden from nobody who bound to everything.
    assert_eq!(send(&mut broker, fan, "$SYSTEM", &["$SYS/x".into()], Some(5)), 1);
    broker.handle_timeout(now(2000));
    assert_eq!(drain(&mut broker, 2000, all), ["$SYSTEM"]);
    assert_eq!(drain(&mut broker, 2000, watch), [""; 0]);
}

#[test]
fn the_gateway_s_own_figures_reach_who_names_them_and_not_who_takes_everything() {
    let disk = SimDisk::new(1);
    let (_, mut broker, _) = start(&disk, 0);
    let keys = ["$SYS/#", "$SYS/+/x", "#", "+/#", "+/gateway/x"];
    // A binding's own wildcard for one level is `*`.
    let keys = keys.map(|key| key.replace('+', "*"));
    let queues = keys.map(|key| {
        let queue = declare(&mut broker, &key, QueueSettings::default(), false);
        let target = Target::Queue(queue);
        broker.bind(now(0), ExchangeIndex::SHARED, target, &key, BindingArguments::default()).unwrap();
        queue
    });
    // A figure does not take the way round either.
    broker.create_exchange(now(0), "fan", ExchangeOptions::new(ExchangeKind::Fanout)).unwrap();
    let fan = broker.exchange("fan").unwrap();
    let behind = declare(&mut broker, "behind", QueueSettings::default(), false);
    broker.bind(now(0), fan, Target::Queue(behind), "", BindingArguments::default()).unwrap();
    let target = Target::Exchange(fan);
    broker.bind(now(0), ExchangeIndex::SHARED, target, "#", BindingArguments::default()).unwrap();
    let figure = Publish { address: "$SYS/gateway/x", body: b"1", ..Publish::default() };
    broker.publish_uncounted(now(1), figure);
    assert_eq!(queues.map(|queue| drain(&mut broker, 1, queue).len()), [1, 1, 0, 0, 0]);
    assert_eq!(drain(&mut broker, 1, behind), [""; 0]);
    // A client's message under another `$` is as it was.
    let message = message("$other/gateway/x", "2", Assurance::AtMostOnce);
    broker.publish_to(now(2), ExchangeIndex::SHARED, message, &[], None);
    assert_eq!(queues.map(|queue| drain(&mut broker, 2, queue).len()), [0, 0, 1, 1, 1]);
    assert_eq!(drain(&mut broker, 2, behind), ["2"]);
}
