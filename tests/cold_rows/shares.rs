//! Shared subscriptions: who owes a message while it goes from member to member, and what waits behind cold rows.

use std::collections::BTreeSet;
use std::time::Duration;

use gatewayd::broker::{ExchangeIndex, Overflow, QueueIndex, Replay, Routed, SessionTerms, SubscribeOptions};
use gatewayd::ids::ConnectionId;
use gatewayd::message::Assurance;

use crate::world::{ME, World, body, options, text};

const A: ConnectionId = ConnectionId(71);
const B: ConnectionId = ConnectionId(72);
const C: ConnectionId = ConnectionId(73);

fn open(world: &mut World, name: &str, clean: bool, connection: ConnectionId, credit: u32) -> QueueIndex {
    let terms = SessionTerms::clean(clean);
    let queue = world.broker.open_session(world.now, name, terms, connection).unwrap().queue;
    world.broker.attach(world.now, queue, connection, credit);
    queue
}

fn subscribe(world: &mut World, queue: QueueIndex, filter: &str) {
    let options = SubscribeOptions::new(Assurance::AtLeastOnce);
    world.broker.subscribe(world.now, queue, filter, options, Replay::Always);
}

/// A durable member of the share that is away.
fn away(world: &mut World, name: &str) -> QueueIndex {
    let queue = open(world, name, false, A, 10);
    subscribe(world, queue, "$share/g/t");
    world.broker.detach(world.now, queue, A);
    queue
}

fn publish(world: &mut World, address: &str, name: &str) -> Routed {
    let message = world.message(address, name.to_owned(), Assurance::AtLeastOnce);
    world.broker.publish_to(world.now, ExchangeIndex::SHARED, message, &[], Some(ME))
}

fn bodies(world: &mut World) -> Vec<String> {
    world.deliveries().iter().map(|delivery| text(&delivery.held.message.body)).collect()
}

/// Accepts whatever comes to a queue until nothing does.
fn take_all(world: &mut World, queue: QueueIndex) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        world.settle();
        let deliveries = world.deliveries();
        if deliveries.is_empty() {
            return all;
        }
        for delivery in deliveries {
            all.push(text(&delivery.held.message.body));
            world.broker.accept(world.now, queue, delivery.tag as u32);
        }
    }
}

#[test]
fn a_message_that_comes_back_to_a_member_before_it_was_written_is_kept() {
    let mut world = World::new(5);
    let a = open(&mut world, "a", false, A, 1);
    subscribe(&mut world, a, "own");
    subscribe(&mut world, a, "$share/g/t");
    let b = open(&mut world, "b", false, B, 1);
    subscribe(&mut world, b, "$share/g/t");
    subscribe(&mut world, b, "ownb");
    world.keep().unwrap();
    // Both are busy: what else comes for them waits.
    publish(&mut world, "own", "first");
    publish(&mut world, "ownb", "firstb");
    world.keep().unwrap();
    let routed = publish(&mut world, "t", "shared");
    // Whoever has it goes, so that the other one has it, and so on.
    for _ in 0..2 {
        world.broker.detach(world.now, a, A);
        open(&mut world, "a", false, A, 1);
        world.broker.detach(world.now, b, B);
        open(&mut world, "b", false, B, 1);
    }
    world.keep().unwrap();
    assert!(routed.gate.is_due(world.broker.persisted_batch()), "acknowledged");
    world.restart();
    open(&mut world, "a", false, A, 10);
    open(&mut world, "b", false, B, 10);
    let got = bodies(&mut world);
    assert!(got.contains(&"shared".to_owned()), "{got:?}");
}

#[test]
fn a_last_value_that_was_asked_for_again_before_it_was_written_is_kept() {
    let mut world = World::new(6);
    let a = open(&mut world, "a", false, A, 10);
    subscribe(&mut world, a, "t/#");
    world.keep().unwrap();
    publish(&mut world, "t/own", "first");
    world.keep().unwrap();
    world.deliveries();
    let mut message = world.message("t/v", "value".into(), Assurance::AtLeastOnce);
    message.retain = true;
    world.broker.publish_to(world.now, ExchangeIndex::SHARED, message, &[], Some(ME));
    let tag = world.deliveries()[0].tag;
    world.broker.accept(world.now, a, tag as u32);
    subscribe(&mut world, a, "t/#");
    assert_eq!(bodies(&mut world).len(), 1);
    world.keep().unwrap();
    world.restart();
    open(&mut world, "a", false, A, 10);
    let got = bodies(&mut world);
    assert!(got.contains(&"value".to_owned()), "{got:?}");
}

/// Memory does not take over what is on flash: a session that ends with its connection gets newcomers only.
#[test]
fn what_is_kept_for_a_member_is_not_given_up_for_one_in_memory() {
    let mut world = World::new(7);
    away(&mut world, "a");
    let routed = publish(&mut world, "t", "kept");
    let b = open(&mut world, "b", true, B, 10);
    subscribe(&mut world, b, "$share/g/t");
    assert!(!routed.gate.is_due(world.broker.persisted_batch()), "nothing of it is on flash");
    world.keep().unwrap();
    assert!(routed.gate.is_due(world.broker.persisted_batch()), "acknowledged");
    publish(&mut world, "t", "new");
    assert_eq!(bodies(&mut world), ["new"]);
    world.broker.detach(world.now, b, B);
    world.keep().unwrap();
    world.restart();
    open(&mut world, "a", false, A, 10);
    // What the member in memory had not acknowledged when it left went to the one that keeps it.
    assert_eq!(bodies(&mut world), ["kept", "new"]);
}

#[test]
fn a_member_that_comes_takes_over_what_it_has_room_for_and_the_rest_as_it_settles() {
    for overflow in [Overflow::DropOldest, Overflow::Reject] {
        let mut world = World::with(8, options(), |bounds| {
            bounds.messages_max = 40;
            bounds.overflow = overflow;
        });
        away(&mut world, "a");
        away(&mut world, "b");
        (0..80).for_each(|number| drop(publish(&mut world, "t", &number.to_string())));
        world.keep().unwrap();
        assert_eq!(world.broker.status().counters.lost, 0);
        let c = open(&mut world, "c", false, C, 10);
        subscribe(&mut world, c, "$share/g/t");
        let got = take_all(&mut world, c);
        let receipts: Vec<_> = world.broker.loss_receipts().cloned().collect();
        assert!(receipts.is_empty(), "{receipts:?}");
        assert_eq!(got.iter().collect::<BTreeSet<_>>().len(), 80, "all of them came");
        assert_eq!(got.len(), 80, "each once");
        assert_eq!(world.broker.status().counters.lost, 0);
    }
}

/// What does not fit stays where it is, also over a cut.
#[test]
fn what_a_member_has_no_room_for_stays_with_the_one_that_is_away() {
    let mut world = World::with(9, options(), |bounds| bounds.messages_max = 12);
    away(&mut world, "a");
    away(&mut world, "b");
    (0..24).for_each(|number| drop(publish(&mut world, "t", &number.to_string())));
    world.keep().unwrap();
    let c = open(&mut world, "c", false, C, 3);
    subscribe(&mut world, c, "$share/g/t");
    world.keep().unwrap();
    world.restart();
    let mut got = BTreeSet::new();
    for (name, connection) in [("a", A), ("b", B), ("c", C)] {
        let queue = open(&mut world, name, false, connection, 50);
        got.extend(take_all(&mut world, queue));
    }
    assert_eq!(got.len(), 24, "{got:?}");
    assert_eq!(world.broker.loss_receipts().count(), 0);
}

/// A member whose other messages moved to the backlog; one of the share waits behind them.
fn with_cold_rows(world: &mut World) -> QueueIndex {
    let a = open(world, "a", false, A, 10);
    subscribe(world, a, "own");
    subscribe(world, a, "$share/g/t");
    world.broker.detach(world.now, a, A);
    (0..300).for_each(|number| drop(publish(world, "own", &body(number, 200))));
    world.cool();
    assert!(world.moved > 0);
    publish(world, "t", "shared");
    world.keep().unwrap();
    world.deliveries();
    a
}

#[test]
fn what_waits_behind_cold_rows_goes_to_a_member_that_comes() {
    let mut world = World::new(3);
    with_cold_rows(&mut world);
    let b = open(&mut world, "b", false, B, 10);
    subscribe(&mut world, b, "$share/g/t");
    assert_eq!(bodies(&mut world), ["shared"]);
    // And back, when that one goes: to its place behind what is cold.
    let a = open(&mut world, "a", false, A, 10);
    world.broker.detach(world.now, b, B);
    let got = take_all(&mut world, a);
    assert_eq!(got.len(), 300, "b has it in flight");
    world.restart();
    let b = open(&mut world, "b", false, B, 10);
    assert_eq!(take_all(&mut world, b), ["shared"]);
}

#[test]
fn what_waits_behind_cold_rows_outlives_its_session() {
    let mut world = World::new(3);
    with_cold_rows(&mut world);
    let b = open(&mut world, "b", false, B, 10);
    world.broker.detach(world.now, b, B);
    let b = open(&mut world, "b", false, B, 10);
    subscribe(&mut world, b, "other");
    world.broker.detach(world.now, b, B);
    let c = open(&mut world, "c", true, C, 10);
    subscribe(&mut world, c, "$share/g/t");
    assert!(bodies(&mut world).is_empty(), "what is kept is not c's yet");
    // The first member ends its session, and nobody else keeps anything.
    open(&mut world, "a", true, A, 10);
    assert_eq!(bodies(&mut world), ["shared"]);
}

#[test]
fn what_has_expired_behind_cold_rows_leaves_a_session() {
    let mut world = World::new(4);
    with_cold_rows(&mut world);
    for number in 0..100 {
        let mut message = world.message("own", body(number, 2000), Assurance::AtLeastOnce);
        message.time_to_live_ms = Some(1000);
        world.broker.publish_to(world.now, ExchangeIndex::SHARED, message, &[], Some(ME));
    }
    for _ in 0..3 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    let lost = world.broker.loss_receipts().map(|receipt| receipt.messages).sum::<u64>();
    assert_eq!(lost, 100);
    assert_eq!(world.broker.status().counters.lost, 100);
}

/// A member that is away, with so many messages of the share that most of them moved.
fn away_for_long(world: &mut World, count: u64) {
    away(world, "a");
    for number in 0..count {
        publish(world, "t", &body(number, 500));
        if number % 50 == 49 {
            world.settle();
            world.pass(Duration::from_millis(20));
        }
    }
    world.cool();
    assert!(world.moved > 5, "{} chunks", world.moved);
    let status = world.broker.status();
    assert_eq!(status.counters.lost, 0, "together they are larger than the window");
    assert!(status.memory_bytes < 100_000, "{} bytes in memory", status.memory_bytes);
    world.deliveries();
}

fn in_order(count: u64) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[test]
fn messages_of_a_share_move_and_come_back_to_their_member() {
    let mut world = World::new(30);
    away_for_long(&mut world, 3_000);
    world.restart();
    assert_eq!(world.queued, 3_000);
    let a = open(&mut world, "a", false, A, 50);
    assert_eq!(take_all(&mut world, a), in_order(3_000));
}

#[test]
fn cold_messages_of_a_share_go_to_a_member_that_comes_as_it_settles() {
    let mut world = World::with(31, options(), |bounds| bounds.messages_max = 4_000);
    away_for_long(&mut world, 3_000);
    let b = open(&mut world, "b", false, B, 50);
    subscribe(&mut world, b, "$share/g/t");
    world.settle();
    assert!(world.broker.status().memory_bytes < 400_000, "not all at once");
    assert_eq!(take_all(&mut world, b), in_order(3_000));
    assert_eq!(world.broker.loss_receipts().count(), 0);
    world.keep().unwrap();
    world.restart();
    assert_eq!(world.queued, 0, "nothing comes again");
}

#[test]
fn a_cut_while_cold_messages_of_a_share_move_loses_none() {
    let mut world = World::with(32, options(), |bounds| bounds.messages_max = 4_000);
    away_for_long(&mut world, 2_000);
    let b = open(&mut world, "b", false, B, 20);
    subscribe(&mut world, b, "$share/g/t");
    let mut got = BTreeSet::new();
    for _ in 0..12 {
        world.serve().unwrap();
        for delivery in world.deliveries() {
            got.insert(text(&delivery.held.message.body));
            world.broker.accept(world.now, b, delivery.tag as u32);
        }
        world.keep().unwrap();
    }
    assert!(got.len() > 100, "{}", got.len());
    world.restart();
    for (name, connection) in [("b", B), ("a", A)] {
        let queue = open(&mut world, name, false, connection, 50);
        got.extend(take_all(&mut world, queue));
    }
    assert_eq!(got.len(), 2_000);
    assert_eq!(world.broker.loss_receipts().count(), 0);
}

/// Of two shares one has no other member: its chunks are passed by, and stay out of memory.
#[test]
fn chunks_of_a_share_that_nobody_takes_are_passed_by() {
    let mut world = World::new(33);
    let a = away(&mut world, "a");
    let a_again = open(&mut world, "a", false, A, 10);
    assert_eq!(a, a_again);
    subscribe(&mut world, a, "$share/lonely/u");
    world.broker.detach(world.now, a, A);
    (0..400).for_each(|number| drop(publish(&mut world, "u", &body(number, 500))));
    world.cool();
    (0..400).for_each(|number| drop(publish(&mut world, "t", &body(number, 500))));
    world.cool();
    let memory = world.broker.status().memory_bytes;
    let b = open(&mut world, "b", false, B, 50);
    subscribe(&mut world, b, "$share/g/t");
    assert_eq!(take_all(&mut world, b), in_order(400));
    world.settle();
    assert!(world.broker.status().memory_bytes <= memory);
    world.broker.detach(world.now, b, B);
    let a = open(&mut world, "a", false, A, 50);
    assert_eq!(take_all(&mut world, a), in_order(400));
}

/// A clean start says what it costs others.
#[test]
fn cold_messages_of_a_share_leave_a_receipt_when_their_session_ends() {
    let mut world = World::new(34);
    away_for_long(&mut world, 1_000);
    open(&mut world, "a", true, A, 10);
    world.settle();
    let lost: u64 = world.broker.loss_receipts().map(|receipt| receipt.messages).sum();
    let counters = world.broker.status().counters;
    assert!(lost > 500 && counters.lost == lost, "{lost} of {}", counters.lost);
    assert_eq!(lost + counters.discarded, 1_000);
}
