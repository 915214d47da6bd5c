//! Queues and sessions that reject what does not fit: what they took they keep, and what nobody can be told that they
//! refused leaves a receipt, as does what no queue wants any more.

use gatewayd::broker::{LossReason, LossReceipt, ReadyOverflow, Replay, SubscribeOptions};

use super::delayed::{delayed, delaying};
use super::*;

fn rejecting(ready_max: u64) -> QueueSettings {
    let overflow = Some(ReadyOverflow::Reject);
    QueueSettings { ready_max: Some(ready_max), overflow, ..QueueSettings::default() }
}

fn send(broker: &mut Broker, queue: &str, numbers: std::ops::Range<u32>) -> usize {
    let mut refused = 0;
    for number in numbers {
        let message = message(queue, &number.to_string(), Assurance::AtLeastOnce);
        let routed = broker.publish_to(now(1), ExchangeIndex::DEFAULT, message, &[], Some(ME));
        refused += usize::from(routed.refused);
    }
    refused
}

fn receipts(broker: &Broker) -> Vec<LossReceipt> {
    broker.loss_receipts().cloned().collect()
}

fn bounded(policy: &mut Policy, messages_max: u32) {
    for bounds in [&mut policy.session_bounds, &mut policy.queue_bounds] {
        bounds.overflow = Overflow::Reject;
        bounds.messages_max = messages_max;
    }
}

#[test]
fn what_consumers_give_back_is_kept_however_much_came_meanwhile() {
    let disk = SimDisk::new(7);
    let (_, mut broker, _) = start(&disk, 0);
    for overflow in [ReadyOverflow::Reject, ReadyOverflow::RejectDeadLetter] {
        let settings = QueueSettings { overflow: Some(overflow), ..rejecting(10) };
        let name = format!("{overflow:?}");
        let queue = declare(&mut broker, &name, settings, true);
        assert_eq!(send(&mut broker, &name, 0..10), 0);
        let got: Vec<_> =
            (0..10).map(|_| (queue, broker.get(now(2), queue, false).unwrap().number)).collect();
        assert_eq!(send(&mut broker, &name, 10..20), 0);
        broker.settle_deliveries(now(3), got.into_iter(), Settlement::Requeue);
        assert_eq!(send(&mut broker, &name, 20..21), 1);
        let all: Vec<_> = (0..20).map(|number| number.to_string()).collect();
        assert_eq!(drain(&mut broker, 4, queue), all);
    }
    assert_eq!(receipts(&broker), []);
}

#[test]
fn a_lower_bound_costs_nothing_that_was_taken_before_a_start() {
    let disk = SimDisk::new(8);
    let mut before = policy();
    bounded(&mut before, 50);
    let mut after = policy();
    bounded(&mut after, 10);
    let (mut store, mut broker, _) = start_with(&disk, 0, before.clone());
    let queue = declare(&mut broker, "q", QueueSettings::default(), true);
    assert_eq!(send(&mut broker, "q", 0..60), 10);
    let session = broker.open_session(now(1), "s", SessionTerms::clean(false), ME).unwrap().queue;
    let options = SubscribeOptions::new(Assurance::AtLeastOnce);
    broker.subscribe(now(1), session, "t", options, Replay::Never);
    broker.detach(now(1), session, ME);
    let publish = |broker: &mut Broker| {
        let message = message("t", "x", Assurance::AtLeastOnce);
        broker.publish_to(now(1), ExchangeIndex::SHARED, message, &[], Some(ME)).refused
    };
    assert_eq!((0..60).filter(|_| publish(&mut broker)).count(), 10);
    let refused = broker.counters().lost;
    // While running, and given back in between ...
    let first = broker.get(now(2), queue, false).unwrap().number;
    broker.set_policy(now(2), after.clone());
    settle(&mut broker, queue, first, Settlement::Requeue);
    assert_eq!(send(&mut broker, "q", 60..61), 1);
    assert!(publish(&mut broker));
    assert_eq!(broker.counters().lost, refused + 1, "the newcomer alone");
    assert_eq!(broker.status().queued, 100);
    keep(&mut store, &mut broker, 3);
    drop(store);
    // ... and at a start.
    let (_, mut broker, summary) = start_with(&disk.reboot(), 4, after);
    assert_eq!((summary.queued, broker.counters().lost), (100, 0));
    let queue = broker.named_queue("q").unwrap();
    assert_eq!(drain(&mut broker, 5, queue).len(), 50);
}

fn told(broker: &Broker) -> Vec<(String, LossReason, u64)> {
    receipts(broker).into_iter().map(|r| (r.queue.into(), r.reason, r.messages)).collect()
}

#[test]
fn what_comes_due_and_is_refused_or_unwanted_leaves_a_receipt() {
    let disk = SimDisk::new(9);
    let (mut store, mut broker, _) = start(&disk, 0);
    declare(&mut broker, "q", rejecting(1), true);
    let later = delaying(&mut broker, "q", "k");
    for (key, body) in [("k", "1"), ("k", "2"), ("k", "3"), ("unbound", "4")] {
        let routed = broker.publish_to(now(1), later, delayed(key, body, 1000), &[], Some(ME));
        assert!(!routed.refused);
    }
    keep(&mut store, &mut broker, 2);
    broker.handle_timeout(now(2000));
    let expected = vec![
        ("q".to_owned(), LossReason::QueueBound, 2),
        ("later (delayed)".to_owned(), LossReason::Unrouted, 1),
    ];
    assert_eq!(told(&broker), expected);
    assert!(receipts(&broker).iter().all(|receipt| receipt.first_key.0 != 0), "they were on flash");
    assert_eq!(broker.counters().lost, 3);
    keep(&mut store, &mut broker, 2001);
    drop(store);
    let (_, mut broker, summary) = start(&disk.reboot(), 2002);
    assert_eq!((summary.queued, summary.unreadable), (1, 0));
    assert_eq!(told(&broker), expected);
    assert_eq!(broker.named_queue("q").map(|q| drain(&mut broker, 2003, q)), Some(vec!["1".to_owned()]));
}

#[test]
fn dead_letters_that_nobody_takes_leave_a_receipt() {
    let disk = SimDisk::new(10);
    let (_, mut broker, _) = start(&disk, 0);
    declare(&mut broker, "full", rejecting(1), true);
    let to = |exchange: &str, address: &str| {
        let dead_letter = Some(DeadLetter { exchange: exchange.into(), address: Some(address.into()) });
        QueueSettings { dead_letter, ..QueueSettings::default() }
    };
    let discard = |broker: &mut Broker, name: &str, settings: QueueSettings| {
        let queue = declare(broker, name, settings, true);
        assert_eq!(send(broker, name, 0..2), 0);
        for _ in 0..2 {
            let number = broker.get(now(2), queue, false).unwrap().number;
            settle(broker, queue, number, Settlement::Discard);
        }
    };
    discard(&mut broker, "a", to("", "full"));
    discard(&mut broker, "b", to("missing", "full"));
    discard(&mut broker, "c", to("", "nowhere"));
    // Its own wish, without a place to go to.
    discard(&mut broker, "d", QueueSettings::default());
    let unrouted = |name: &str| (name.to_owned(), LossReason::Unrouted, 2);
    let expected = [("full".to_owned(), LossReason::QueueBound, 1), unrouted("b"), unrouted("c")];
    assert_eq!(told(&broker), expected);
    // A refusal that its publisher is told of is no loss; its dead letter that nobody wants is one.
    let overflow = Some(ReadyOverflow::RejectDeadLetter);
    let settings = QueueSettings { ready_max: Some(1), overflow, ..to("", "nowhere") };
    declare(&mut broker, "e", settings, true);
    assert_eq!(send(&mut broker, "e", 0..2), 1);
    assert_eq!(send(&mut broker, "full", 0..1), 1);
    assert_eq!(told(&broker)[3..], [("e".to_owned(), LossReason::Unrouted, 1)]);
    assert_eq!((broker.counters().lost, broker.counters().unrouted), (6, 5));
}
