//! What the operator's bounds push out of a queue goes where the dead of the queue go.

use super::*;

fn bounded(messages_max: u32) -> Policy {
    let bounds = QueueBounds { messages_max, ..policy().queue_bounds };
    Policy { named_bounds: vec![("q".into(), bounds)], ..policy() }
}

fn queue_with_dead_letters(broker: &mut Broker) -> (QueueIndex, QueueIndex) {
    let dead_letter = Some(DeadLetter { exchange: "".into(), address: Some("dead".into()) });
    let settings = QueueSettings { ready_max: Some(5), dead_letter, ..QueueSettings::default() };
    (declare(broker, "q", settings, true), declare(broker, "dead", QueueSettings::default(), true))
}

fn publish(broker: &mut Broker, bodies: std::ops::Range<u32>) {
    for body in bodies {
        let message = message("q", &body.to_string(), Assurance::AtLeastOnce);
        broker.publish_to(now(1), ExchangeIndex::DEFAULT, message, &[], Some(ME));
    }
}

#[test]
fn a_queue_that_is_full_by_the_operator_s_bounds_hands_its_oldest_on() {
    let disk = SimDisk::new(10);
    let (_, mut broker, _) = start_with(&disk, 0, bounded(3));
    let (queue, dead) = queue_with_dead_letters(&mut broker);
    publish(&mut broker, 0..6);
    assert_eq!(drain(&mut broker, 2, queue), ["3", "4", "5"]);
    assert_eq!(drain(&mut broker, 2, dead), ["0", "1", "2"]);
    assert_eq!((broker.counters().lost, broker.counters().dead_lettered), (0, 3));
}

#[test]
fn narrower_bounds_hand_on_too_at_a_reload_and_at_a_start() {
    let disk = SimDisk::new(11);
    let (mut store, mut broker, _) = start_with(&disk, 0, bounded(5));
    queue_with_dead_letters(&mut broker);
    publish(&mut broker, 0..5);
    keep(&mut store, &mut broker, 2);
    broker.set_policy(now(3), bounded(4));
    keep(&mut store, &mut broker, 4);
    drop(store);
    let (mut store, mut broker, _) = start_with(&disk.reboot(), 5, bounded(2));
    keep(&mut store, &mut broker, 6);
    drop(store);
    let (_, mut broker, _) = start_with(&disk.reboot(), 7, bounded(2));
    let (queue, dead) = (broker.named_queue("q").unwrap(), broker.named_queue("dead").unwrap());
    assert_eq!(drain(&mut broker, 8, queue), ["3", "4"]);
    assert_eq!(drain(&mut broker, 8, dead), ["0", "1", "2"]);
    assert_eq!(broker.counters().lost, 0);
}
