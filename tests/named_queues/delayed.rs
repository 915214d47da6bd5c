//! Exchanges that delay: what they hold back is as safe as what they routed, and hidden from everybody.

use super::*;

pub fn delaying(broker: &mut Broker, target: &str, key: &str) -> ExchangeIndex {
    let options = ExchangeOptions { delayed: true, ..ExchangeOptions::new(ExchangeKind::Direct) };
    broker.create_exchange(now(0), "later", options).unwrap();
    let later = broker.exchange("later").unwrap();
    let target = Target::Queue(broker.named_queue(target).unwrap());
    broker.bind(now(0), later, target, key, BindingArguments::default()).unwrap();
    later
}

pub fn delayed(address: &str, body: &str, delay_ms: u64) -> Message {
    let annotations = Some(Box::new(Annotations { delay_ms: Some(delay_ms), ..Annotations::default() }));
    Message { annotations, ..message(address, body, Assurance::AtLeastOnce) }
}

#[test]
fn a_confirm_waits_for_flash_also_when_the_message_comes_due_meanwhile() {
    let disk = SimDisk::new(4);
    let (mut store, mut broker, _) = start(&disk, 0);
    declare(&mut broker, "q", QueueSettings::default(), true);
    let later = delaying(&mut broker, "q", "k");
    keep(&mut store, &mut broker, 1);
    let routed = broker.publish_to(now(1), later, delayed("k", "1", 20), &[], Some(ME));
    // The store is slow: the batch is closed, and nothing of it is on flash.
    let first = broker.close_batch_now().unwrap();
    broker.handle_timeout(now(50));
    let queue = broker.named_queue("q").unwrap();
    assert_eq!(broker.queue_facts(queue).unwrap().ready, 1);
    assert!(!routed.gate.is_due(broker.persisted_batch()), "only what is in the open batch has the message");
    let persisted = store.append(first).unwrap();
    broker.persisted(now(51), persisted);
    assert!(routed.gate.is_due(broker.persisted_batch()));
    drop(store);
    let (_, mut broker, _) = start(&disk.reboot(), 60);
    broker.handle_timeout(now(200));
    let queue = broker.named_queue("q").unwrap();
    assert_eq!(drain(&mut broker, 200, queue), ["1"]);
}

#[test]
fn what_is_delayed_outlives_a_start_whatever_queues_are_called() {
    let disk = SimDisk::new(5);
    let (mut store, mut broker, _) = start(&disk, 0);
    declare(&mut broker, "later (delayed)", QueueSettings::default(), true);
    declare(&mut broker, "q", QueueSettings::default(), true);
    let later = delaying(&mut broker, "q", "k");
    broker.publish_to(now(1), later, delayed("k", "1", 1000), &[], Some(ME));
    let own = message("later (delayed)", "own", Assurance::AtLeastOnce);
    broker.publish_to(now(1), ExchangeIndex::DEFAULT, own, &[], Some(ME));
    keep(&mut store, &mut broker, 2);
    drop(store);
    let (_, mut broker, summary) = start(&disk.reboot(), 3);
    assert_eq!((summary.named_queues, summary.queued, summary.unreadable), (2, 2, 0));
    broker.handle_timeout(now(2000));
    for (name, expected) in [("q", "1"), ("later (delayed)", "own")] {
        let queue = broker.named_queue(name).unwrap();
        assert_eq!(drain(&mut broker, 2000, queue), [expected]);
    }
}

#[test]
fn deleting_an_exchange_that_delays_leaves_the_queues_of_others_alone() {
    let disk = SimDisk::new(6);
    let (mut store, mut broker, _) = start(&disk, 0);
    let own = declare(&mut broker, "later (delayed)", QueueSettings::default(), true);
    let later = delaying(&mut broker, "later (delayed)", "k");
    broker.delete_exchange(now(1), later, false).unwrap();
    assert_eq!(broker.named_queue("later (delayed)"), Some(own));
    keep(&mut store, &mut broker, 2);
    drop(store);
    let (_, broker, summary) = start(&disk.reboot(), 3);
    assert_eq!(summary.named_queues, 1);
    assert!(broker.named_queue("later (delayed)").is_some());
}

#[test]
fn what_comes_to_it_by_way_of_another_exchange_is_delayed_too() {
    let disk = SimDisk::new(7);
    let (_, mut broker, _) = start(&disk, 0);
    let queue = declare(&mut broker, "q", QueueSettings::default(), true);
    let later = delaying(&mut broker, "q", "k");
    broker.create_exchange(now(0), "before", ExchangeOptions::new(ExchangeKind::Fanout)).unwrap();
    let before = broker.exchange("before").unwrap();
    for source in [before, ExchangeIndex::SHARED] {
        broker.bind(now(0), source, Target::Exchange(later), "k", BindingArguments::default()).unwrap();
    }
    for source in [before, ExchangeIndex::SHARED] {
        broker.publish_to(now(1), source, delayed("k", "1", 1000), &[], Some(ME));
        broker.handle_timeout(now(500));
        assert_eq!(drain(&mut broker, 500, queue), [""; 0]);
        broker.handle_timeout(now(2000));
        assert_eq!(drain(&mut broker, 2000, queue), ["1"]);
    }
}

#[test]
fn what_is_delayed_keeps_all_its_addresses_over_a_start() {
    let disk = SimDisk::new(8);
    let (mut store, mut broker, _) = start(&disk, 0);
    for name in ["q", "open", "hidden"] {
        declare(&mut broker, name, QueueSettings::default(), true);
    }
    let later = delaying(&mut broker, "q", "k");
    for name in ["open", "hidden"] {
        let target = Target::Queue(broker.named_queue(name).unwrap());
        broker.bind(now(0), later, target, name, BindingArguments::default()).unwrap();
    }
    let annotations = Annotations {
        delay_ms: Some(1000),
        also: vec!["open".into()],
        hidden: vec!["hidden".into()],
        ..Annotations::default()
    };
    let message =
        Message { annotations: Some(Box::new(annotations)), ..message("k", "1", Assurance::AtLeastOnce) };
    broker.publish_to(now(1), later, message, &["open".into(), "hidden".into()], Some(ME));
    keep(&mut store, &mut broker, 2);
    drop(store);
    let (_, mut broker, _) = start(&disk.reboot(), 3);
    broker.handle_timeout(now(2000));
    for name in ["q", "open", "hidden"] {
        let queue = broker.named_queue(name).unwrap();
        assert_eq!(drain(&mut broker, 2000, queue), ["1"], "{name}");
    }
}
