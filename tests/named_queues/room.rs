//! Room for what clients declare: bounded in bytes, charged exactly, and given back.

use gatewayd::broker::{HeaderMatch, TopologyRefused};
use gatewayd::limits::ARGUMENTS_BYTES_MAX;
use gatewayd::message::Value;

use super::*;

const QUOTA: u64 = 512 << 10;

fn small() -> Policy {
    Policy { flash_quota_bytes: QUOTA, ..policy() }
}

fn large_exchange() -> ExchangeOptions {
    ExchangeOptions { arguments: vec![b'x'; 3000].into(), ..ExchangeOptions::new(ExchangeKind::Fanout) }
}

/// Exchanges that there is room for; they stay.
fn fill(broker: &mut Broker) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let name = format!("large {}", names.len());
        match broker.create_exchange(now(1), &name, large_exchange()) {
            Ok(_) => names.push(name),
            Err(refused) => {
                assert_eq!(refused, TopologyRefused::Crowded);
                return names;
            }
        }
    }
}

fn delete(broker: &mut Broker, name: &str) {
    let index = broker.exchange(name).unwrap();
    broker.delete_exchange(now(2), index, false).unwrap();
}

/// Something of each kind that is charged in a way of its own.
fn declare_all_kinds(broker: &mut Broker) {
    let later = ExchangeOptions {
        delayed: true,
        alternate: Some("alternate".into()),
        ..ExchangeOptions::new(ExchangeKind::Topic)
    };
    broker.create_exchange(now(0), "later", later).unwrap();
    broker.create_exchange(now(0), "headers", ExchangeOptions::new(ExchangeKind::Headers)).unwrap();
    let dead_letter = Some(DeadLetter { exchange: "later".into(), address: Some("a/b".into()) });
    let settings = QueueSettings { dead_letter, priority_max: 9, ..QueueSettings::default() };
    let queue = Target::Queue(declare(broker, "q", settings, true));
    let (later, headers) = (broker.exchange("later").unwrap(), broker.exchange("headers").unwrap());
    let entries = vec![("name".into(), Value::Integer(1)), ("other".into(), Value::Void)];
    let arguments =
        BindingArguments { encoded: vec![0; 100].into(), headers: HeaderMatch { any: true, entries } };
    broker.bind(now(0), headers, queue, "", arguments).unwrap();
    broker.bind(now(0), headers, queue, "", BindingArguments::default()).unwrap();
    for (source, target, key) in [
        (later, queue, "a/#"),
        (later, Target::Exchange(headers), "b"),
        (headers, Target::Exchange(later), "c"),
        (ExchangeIndex::SHARED, queue, "d/*"),
        (ExchangeIndex::SHARED, Target::Exchange(later), "e"),
    ] {
        broker.bind(now(0), source, target, key, BindingArguments::default()).unwrap();
    }
    broker.unbind(now(0), later, queue, "a/#", &[]);
}

fn delete_all_kinds(broker: &mut Broker) {
    delete(broker, "later");
    let queue = broker.named_queue("q").unwrap();
    broker.delete_queue(now(2), queue, false, false).unwrap();
    delete(broker, "headers");
}

#[test]
fn what_is_declared_has_a_bound_in_bytes_and_gives_all_of_it_back() {
    let disk = SimDisk::new(11);
    let (mut store, mut broker, _) = start_with(&disk, 0, small());
    let most = fill(&mut broker);
    assert!((20..=32).contains(&most.len()), "{} times 4 KiB of {}", most.len(), QUOTA / 4);
    most.iter().for_each(|name| delete(&mut broker, name));
    declare_all_kinds(&mut broker);
    let large = fill(&mut broker);
    assert!(large.len() < most.len());
    keep(&mut store, &mut broker, 2);
    let live = broker.status().flash_bytes_live;
    assert!(live <= QUOTA / 4, "{live} bytes are live");
    drop(store);
    // A start counts what it found as it was counted before.
    let disk = disk.reboot();
    let (mut store, mut broker, summary) = start_with(&disk, 3, small());
    assert_eq!(summary.unreadable, 0);
    assert_eq!(fill(&mut broker), [""; 0]);
    delete(&mut broker, &large[0]);
    broker.create_exchange(now(4), &large[0], large_exchange()).unwrap();
    let refused = broker.create_exchange(now(4), "one more", large_exchange()).unwrap_err();
    assert_eq!(refused, TopologyRefused::Crowded, "the room of one is room for one");
    delete_all_kinds(&mut broker);
    large.iter().for_each(|name| delete(&mut broker, name));
    assert_eq!(fill(&mut broker), most);
    keep(&mut store, &mut broker, 5);
}

#[test]
fn a_full_account_refuses_all_kinds_and_lets_what_is_there_be_declared_again_and_deleted() {
    let disk = SimDisk::new(12);
    let (mut store, mut broker, _) = start_with(&disk, 0, small());
    declare_all_kinds(&mut broker);
    let session = broker.open_session(now(0), "s", SessionTerms::clean(false), ME).unwrap().queue;
    fill(&mut broker);
    let options = |bytes: usize| QueueOptions {
        durable: true,
        arguments: vec![b'x'; bytes].into(),
        ..QueueOptions::default()
    };
    let refused = broker.create_queue(now(1), "more", options(4000), ME).unwrap_err();
    assert_eq!(refused, TopologyRefused::Crowded);
    let large = options(ARGUMENTS_BYTES_MAX + 1);
    assert_eq!(broker.create_queue(now(1), "more", large, ME).unwrap_err(), TopologyRefused::TooLarge);
    let queue = Target::Queue(broker.named_queue("q").unwrap());
    let arguments =
        |bytes: usize| BindingArguments { encoded: vec![b'x'; bytes].into(), ..Default::default() };
    for (bytes, expected) in [(4000, TopologyRefused::Crowded), (5000, TopologyRefused::TooLarge)] {
        let refused = broker.bind(now(1), ExchangeIndex::SHARED, queue, "k", arguments(bytes)).unwrap_err();
        assert_eq!(refused, expected);
    }
    assert!(!broker.may_subscribe(session, &"f".repeat(4000)), "filters have the same account");
    broker.bind(now(1), ExchangeIndex::SHARED, queue, "d/*", BindingArguments::default()).unwrap();
    keep(&mut store, &mut broker, 2);
    broker.delete_queue(now(3), broker.named_queue("q").unwrap(), false, false).unwrap();
    keep(&mut store, &mut broker, 4);
    drop(store);
    let (_, broker, summary) = start_with(&disk.reboot(), 5, small());
    assert_eq!((summary.named_queues, summary.unreadable), (0, 0));
    assert!(broker.exchange("later").is_some());
}

/// Patterns may have a node of the index for each of their words.
#[test]
fn deep_patterns_are_bounded_by_memory() {
    let disk = SimDisk::new(13);
    let (_, mut broker, _) = start(&disk, 0);
    let queue = Target::Queue(declare(&mut broker, "q", QueueSettings::default(), false));
    let transient = ExchangeOptions { durable: false, ..ExchangeOptions::new(ExchangeKind::Topic) };
    broker.create_exchange(now(0), "t", transient).unwrap();
    let topics = broker.exchange("t").unwrap();
    for source in [topics, ExchangeIndex::SHARED] {
        let deep = |n: u32| format!("{n}{}", "/a".repeat(100));
        let mut binds = (0..100_000)
            .map(|n| broker.bind(now(1), source, queue, &deep(n), BindingArguments::default()).map(|_| ()));
        // 16 MiB of memory: a quarter of it at 256 bytes for a node, 101 nodes for a pattern.
        assert_eq!(binds.find(Result::is_err), Some(Err(TopologyRefused::Crowded)));
        drop(binds);
        for n in 0..170 {
            broker.unbind(now(2), source, queue, &deep(n), &[]);
        }
        assert!(broker.bind(now(1), source, queue, "a/b", BindingArguments::default()).is_ok());
    }
}
