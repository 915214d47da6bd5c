//! What a session's subscriptions add to messages that moved, and what of them expires.

use std::time::Duration;

use gatewayd::broker::{
    Delivery, ExchangeIndex, QueueIndex, Replay, SEVERAL_IDENTIFIERS, SessionTerms, SubscribeOptions,
};
use gatewayd::ids::ConnectionId;
use gatewayd::message::Assurance;

use crate::world::{ME, World, body, text};

const A: ConnectionId = ConnectionId(71);

fn open(world: &mut World) -> QueueIndex {
    let terms = SessionTerms::clean(false);
    let queue = world.broker.open_session(world.now, "a", terms, A).unwrap().queue;
    world.broker.attach(world.now, queue, A, 50);
    queue
}

/// A session that is away, with a subscription.
fn away(world: &mut World, options: SubscribeOptions) -> QueueIndex {
    let queue = open(world);
    world.broker.subscribe(world.now, queue, "t/#", options, Replay::Never);
    world.broker.detach(world.now, queue, A);
    queue
}

fn at_least_once() -> SubscribeOptions {
    SubscribeOptions::new(Assurance::AtLeastOnce)
}

fn publish(world: &mut World, number: u64, bytes: usize, time_to_live_ms: Option<u64>, retain: bool) {
    let mut message = world.message("t/x", body(number, bytes), Assurance::AtLeastOnce);
    message.time_to_live_ms = time_to_live_ms;
    message.retain = retain;
    world.broker.publish_to(world.now, ExchangeIndex::SHARED, message, &[], Some(ME));
    if number % 50 == 49 {
        world.settle();
        world.pass(Duration::from_millis(20));
    }
}

/// Everything that the session gets when it comes back.
fn take_all(world: &mut World) -> Vec<Delivery> {
    let queue = open(world);
    let mut all = Vec::new();
    loop {
        world.settle();
        let deliveries = world.deliveries();
        if deliveries.is_empty() {
            return all;
        }
        for delivery in deliveries {
            world.broker.accept(world.now, queue, delivery.tag as u32);
            all.push(delivery);
        }
    }
}

fn numbers(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| text(&delivery.held.message.body).parse().unwrap()).collect()
}

const DAY_MS: u64 = 86_400_000;

/// Messages that expire cost no others, though together they are larger than the window.
#[test]
fn messages_that_expire_move_and_come_back_with_what_is_left_of_their_time() {
    let mut world = World::new(20);
    away(&mut world, at_least_once());
    (0..3_000).for_each(|number| publish(&mut world, number, 1_000, Some(DAY_MS), false));
    world.cool();
    let begun = world.now;
    assert!(world.moved > 10, "{} chunks", world.moved);
    let status = world.broker.status();
    assert_eq!(status.counters.lost, 0);
    assert!(status.memory_bytes < 200_000, "{} bytes in memory", status.memory_bytes);
    world.restart();
    world.pass(Duration::from_secs(3_600));
    let got = take_all(&mut world);
    assert_eq!(numbers(&got), (0..3_000).collect::<Vec<_>>());
    let least = begun.mono + Duration::from_secs(86_400 - 3_000);
    let most = begun.mono + Duration::from_secs(86_400);
    assert!(got.iter().all(|delivery| delivery.expires_at >= least && delivery.expires_at <= most));
}

#[test]
fn cold_messages_come_with_identifier_and_retain_mark() {
    let mut world = World::new(21);
    away(&mut world, SubscribeOptions { identifier: 7, retain_as_published: true, ..at_least_once() });
    (0..400).for_each(|number| publish(&mut world, number, 300, None, number % 2 == 0));
    world.cool();
    assert!(world.moved > 1, "{} chunks", world.moved);
    for restarts in [false, true] {
        let mut copy =
            World::start(world.disk.copy(7), world.now, world.bounds, world.options.clone()).unwrap();
        if restarts {
            copy.restart();
        }
        let got = take_all(&mut copy);
        assert_eq!(numbers(&got), (0..400).collect::<Vec<_>>());
        for (number, delivery) in (0..).zip(&got) {
            assert_eq!(delivery.retained, number % 2 == 0, "{number}");
            let (queue, several) = (delivery.queue, delivery.identifier);
            assert!(several >= SEVERAL_IDENTIFIERS);
            let identifiers: Vec<_> = copy.broker.subscription_identifiers(queue, "t/x", several).collect();
            assert_eq!(identifiers, [7]);
        }
    }
}

/// Every third message lasts for five minutes, every third for a day, every third for ever.
fn mixed(world: &mut World) {
    for number in 0..1_500 {
        let time_to_live_ms = [Some(300_000), Some(DAY_MS), None][number as usize % 3];
        publish(world, number, 200, time_to_live_ms, false);
    }
    world.settle();
    for _ in 0..4 {
        world.pass(Duration::from_secs(1));
        world.settle();
    }
    assert!(world.moved > 3, "{} chunks", world.moved);
    let status = world.broker.status();
    assert_eq!(status.counters.lost, 0);
}

fn expired(world: &World) -> u64 {
    world.broker.loss_receipts().map(|receipt| receipt.messages).sum()
}

#[test]
fn what_expires_in_the_backlog_leaves_it_and_is_counted() {
    let mut world = World::new(22);
    away(&mut world, at_least_once());
    mixed(&mut world);
    let memory = world.broker.status().memory_bytes;
    world.pass(Duration::from_secs(200));
    world.settle();
    assert_eq!(expired(&world), 0, "not yet");
    world.pass(Duration::from_secs(100));
    world.pass(Duration::from_secs(2));
    world.settle();
    assert_eq!(expired(&world), 500);
    assert_eq!(world.broker.status().counters.lost, 500);
    let after = world.broker.status().memory_bytes;
    assert!(after <= memory, "what stays is not in memory: {after} bytes after {memory}");
    world.restart();
    assert_eq!(world.queued, 1_000);
    let got = take_all(&mut world);
    assert_eq!(numbers(&got), (0..1_500).filter(|number| number % 3 != 0).collect::<Vec<_>>());
}

#[test]
fn what_expires_after_a_start_leaves_the_backlog_too() {
    let mut world = World::new(23);
    away(&mut world, at_least_once());
    mixed(&mut world);
    world.cool();
    let expired_before = expired(&world);
    assert_eq!(expired_before, 500, "cooling took longer");
    world.restart();
    assert_eq!((world.queued, expired(&world)), (1_000, 500));
    for _ in 0..30 {
        world.pass(Duration::from_secs(3_000));
        world.settle();
    }
    assert_eq!(expired(&world), 1_000);
    let got = take_all(&mut world);
    assert_eq!(numbers(&got), (0..1_500).filter(|number| number % 3 == 2).collect::<Vec<_>>());
}

/// Chunks are looked through as a whole: those in the midst of a queue whose client is there, too.
#[test]
fn what_expires_behind_what_is_handed_over_leaves_at_its_time() {
    let mut world = World::new(24);
    away(&mut world, at_least_once());
    (0..600).for_each(|number| publish(&mut world, number, 400, None, false));
    (600..900).for_each(|number| publish(&mut world, number, 400, Some(60_000), false));
    (900..1_000).for_each(|number| publish(&mut world, number, 400, None, false));
    world.settle();
    world.cool();
    assert_eq!(expired(&world), 300);
    let got = take_all(&mut world);
    assert_eq!(numbers(&got), (0..600).chain(900..1_000).collect::<Vec<_>>());
}
