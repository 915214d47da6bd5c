//! Queues and sessions that reject what does not fit: what they took they keep.

use gatewayd::broker::{LossReceipt, ReadyOverflow, Replay, SessionTerms, SubscribeOptions};

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
