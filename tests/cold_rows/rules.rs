//! One rule at a time.

use std::time::Duration;

use gatewayd::broker::{
    BindingArguments, DeadLetter, ExchangeIndex, QueueSettings, SessionTerms, Settlement, Target,
};
use gatewayd::ids::ConnectionId;
use gatewayd::message::Assurance;

use crate::world::{ME, World, body, text};

/// Bodies that were sent, as they are read.
fn numbers(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Tells the first difference only: the lists are long.
#[track_caller]
fn assert_same(found: &[String], expected: &[String]) {
    let first = found.iter().zip(expected).position(|(a, b)| a != b);
    assert!(
        first.is_none() && found.len() == expected.len(),
        "{} found, {} expected, first difference: {:?}",
        found.len(),
        expected.len(),
        first.map(|at| (at, &found[at], &expected[at]))
    );
}

fn filled(world: &mut World, queue: &str, count: u64) {
    for number in 0..count {
        world.send(queue, body(number, 200));
        if number % 50 == 49 {
            world.settle();
            world.pass(Duration::from_millis(20));
        }
    }
    world.cool();
}

#[test]
fn a_queue_longer_than_the_window_keeps_order_over_restarts() {
    let mut world = World::new(1);
    let queue = world.declare("q", QueueSettings::default());
    filled(&mut world, "q", 8_000);
    assert!(world.moved > 10, "{} chunks", world.moved);
    assert_eq!(world.ready(queue), 8_000);
    let status = world.broker.status();
    assert!(status.memory_bytes < 200_000, "{} bytes in memory", status.memory_bytes);
    assert_eq!(status.counters.lost, 0);
    world.restart();
    assert_eq!(world.queued, 8_000);
    let queue = world.declare("q", QueueSettings::default());
    assert_eq!(world.ready(queue), 8_000);
    let first: Vec<_> = (0..3_000).map(|_| world.get(queue, true).unwrap()).collect();
    assert!(first.iter().all(|(_, _, redelivered)| *redelivered));
    assert_same(&first.into_iter().map(|got| got.1).collect::<Vec<_>>(), &numbers(0..3_000));
    filled(&mut world, "q", 0);
    world.restart();
    let queue = world.declare("q", QueueSettings::default());
    assert_eq!(world.ready(queue), 5_000);
    for number in 8_000..8_100 {
        world.send("q", body(number, 200));
    }
    assert_same(&world.drain(queue), &numbers(3_000..8_100));
    world.cool();
    world.restart();
    let queue = world.declare("q", QueueSettings::default());
    assert_eq!((world.ready(queue), world.queued), (0, 0));
    assert!(world.store.take_chunks().is_empty());
}

#[test]
fn consumers_get_cold_messages_within_their_credit() {
    let mut world = World::new(2);
    let queue = world.declare("q", QueueSettings::default());
    filled(&mut world, "q", 3_000);
    world.consume(queue, 20);
    let mut seen = Vec::new();
    let mut held = Vec::new();
    while seen.len() < 3_000 {
        world.settle();
        let deliveries = world.deliveries();
        assert!(!deliveries.is_empty(), "after {} messages", seen.len());
        for delivery in deliveries {
            seen.push(text(&delivery.held.message.body));
            held.push(delivery.tag);
        }
        assert!(held.len() <= 20);
        let settled = held.drain(..).map(|tag| (queue, tag)).collect::<Vec<_>>();
        world.broker.settle_deliveries(world.now, settled.into_iter(), Settlement::Accept);
    }
    assert_same(&seen, &numbers(0..3_000));
    assert_eq!(world.ready(queue), 0);
}

#[test]
fn requeued_messages_go_back_to_their_place_before_what_is_cold() {
    let mut world = World::new(3);
    let queue = world.declare("q", QueueSettings::default());
    filled(&mut world, "q", 2_000);
    let got: Vec<_> = (0..300).map(|_| world.get(queue, false).unwrap()).collect();
    for chosen in [7, 100, 299, 3] {
        let back = std::iter::once((queue, got[chosen].0));
        world.broker.settle_deliveries(world.now, back, Settlement::Requeue);
    }
    let next: Vec<_> = (0..5).map(|_| world.get(queue, false).unwrap().1).collect();
    assert_eq!(next, ["3", "7", "100", "299", "300"]);
}

/// The last known value of a topic stays in the window, here in the midst of what is cold.
#[test]
fn requeued_messages_go_back_to_their_place_after_a_start_too() {
    let mut world = World::new(12);
    let queue = world.declare("q", QueueSettings::default());
    let target = Target::Queue(queue);
    world.broker.bind(world.now, ExchangeIndex::SHARED, target, "f", BindingArguments::default()).unwrap();
    let publish = |world: &mut World, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let mut message = world.message("f", body(number, 200), Assurance::AtLeastOnce);
            message.retain = number == 1_000;
            world.broker.publish_to(world.now, ExchangeIndex::SHARED, message, &[], Some(ME));
        }
    };
    publish(&mut world, 0..2_000);
    world.cool();
    assert!(world.moved > 1, "{} chunks", world.moved);
    world.restart();
    let queue = world.declare("q", QueueSettings::default());
    let mut got: Vec<_> = (0..2_000).map(|_| world.get(queue, false).unwrap()).collect();
    publish(&mut world, 2_000..2_010);
    got.extend((0..10).map(|_| world.get(queue, false).unwrap()));
    assert_same(&got.iter().map(|got| got.1.clone()).collect::<Vec<_>>(), &numbers(0..2_010));
    for chosen in [2_003, 1_999, 1_000, 999, 1_001, 2_009] {
        let back = std::iter::once((queue, got[chosen].0));
        world.broker.settle_deliveries(world.now, back, Settlement::Requeue);
    }
    assert_eq!(world.drain(queue), ["999", "1000", "1001", "1999", "2003", "2009"]);
}

/// A row that moves from between rows that were read back leaves those behind it in the tail. They count as what the queue
/// still has of their chunk.
#[test]
fn rows_that_were_read_back_are_known_behind_one_that_moves_after_them() {
    let mut world = World::new(15);
    let queue = world.declare("q", QueueSettings::default());
    let target = Target::Queue(queue);
    world.broker.bind(world.now, ExchangeIndex::SHARED, target, "f", BindingArguments::default()).unwrap();
    let publish = |world: &mut World, number: u64| {
        let mut message = world.message("f", body(number, 200), Assurance::AtLeastOnce);
        message.retain = number.is_multiple_of(5);
        world.broker.publish_to(world.now, ExchangeIndex::SHARED, message, &[], Some(ME));
    };
    (1..10).for_each(|number| publish(&mut world, number));
    world.cool();
    assert_eq!(world.moved, 1, "the last known value stays");
    assert_eq!(world.get(queue, false).unwrap().1, "1");
    // The last known value is another one now.
    publish(&mut world, 10);
    world.cool();
    assert_eq!(world.moved, 2);
    world.restart();
    let queue = world.declare("q", QueueSettings::default());
    assert_same(&world.drain(queue), &numbers(1..11));
    assert_eq!(world.broker.loss_receipts().count(), 0);
}

#[test]
fn bounds_drop_the_oldest_cold_ones_and_say_so() {
    let options = crate::world::options();
    let mut world = World::with(4, options, |bounds| bounds.messages_max = 4_000);
    let queue = world.declare("q", QueueSettings::default());
    filled(&mut world, "q", 6_500);
    assert!(world.moved > 0);
    assert_eq!(world.ready(queue), 4_000);
    let receipt = world.broker.loss_receipts().next().unwrap().clone();
    assert_eq!((&*receipt.queue, receipt.messages), ("q", 2_500));
    assert!(receipt.first_key < receipt.last_key && receipt.bytes == 2_500 * 201);
    assert_eq!(world.broker.status().counters.lost, 2_500);
    world.restart();
    let queue = world.declare("q", QueueSettings::default());
    assert_same(&world.drain(queue), &numbers(2_500..6_500));
}

/// A bound may take a chunk while its rows are being read: what stood behind it is handed over all the same.
#[test]
fn what_stands_behind_a_dropped_chunk_is_handed_over() {
    let mut world = World::with(14, crate::world::options(), |bounds| bounds.messages_max = 300);
    world.subscribe("one", "t/#");
    let publish = |world: &mut World, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let message = world.message("t/x", body(number, 200), Assurance::AtLeastOnce);
            world.broker.publish_to(world.now, ExchangeIndex::SHARED, message, &[], Some(ME));
        }
    };
    publish(&mut world, 0..300);
    world.settle();
    world.pass(Duration::from_secs(700));
    world.cool();
    assert!(world.moved > 0);
    world.restart();
    let connection = ConnectionId(71);
    let terms = SessionTerms::clean(false);
    let one = world.broker.open_session(world.now, "one", terms, connection).unwrap().queue;
    world.broker.attach(world.now, one, connection, 10);
    assert!(world.deliveries().is_empty(), "all of it is in the backlog");
    publish(&mut world, 300..600);
    let got: Vec<_> = world.deliveries().iter().map(|delivery| text(&delivery.held.message.body)).collect();
    assert_same(&got, &numbers(300..310));
    assert_eq!(world.broker.status().counters.lost, 300);
}

#[test]
fn a_full_backlog_loses_the_oldest_of_the_longest_queue() {
    let options = gatewayd::store::StoreOptions { backlog_bytes_max: 1 << 20, ..crate::world::options() };
    let mut world = World::with(5, options, |_| {});
    let queue = world.declare("q", QueueSettings::default());
    let small = world.declare("small", QueueSettings::default());
    filled(&mut world, "small", 200);
    filled(&mut world, "q", 9_000);
    assert_eq!(world.ready(small), 200);
    let left = world.ready(queue) as u64;
    let lost = world.broker.status().counters.lost;
    assert!(lost > 1_000 && left + lost == 9_000, "{left} left, {lost} lost");
    assert_same(&world.drain(queue), &numbers(lost..9_000));
    assert_same(&world.drain(small), &numbers(0..200));
}

#[test]
fn purging_and_deleting_take_cold_messages_along() {
    let mut world = World::new(6);
    let queue = world.declare("q", QueueSettings::default());
    filled(&mut world, "q", 2_000);
    assert_eq!(world.broker.purge_queue(world.now, queue).0, 2_000);
    assert_eq!(world.ready(queue), 0);
    filled(&mut world, "q", 1_500);
    world.restart();
    let queue = world.declare("q", QueueSettings::default());
    assert_eq!(world.ready(queue), 1_500);
    assert_eq!(world.broker.delete_queue(world.now, queue, false, false).unwrap().0, 1_500);
    world.cool();
    world.restart();
    assert!(world.store.take_chunks().is_empty(), "chunks of queues that ended are removed");
    assert_eq!(world.broker.status().counters.lost, 0);
}

#[test]
fn expired_and_overflowing_cold_messages_die_with_their_content() {
    let mut world = World::new(7);
    let dead = world.declare("dead", QueueSettings::default());
    let dead_letter = Some(DeadLetter { exchange: "".into(), address: Some("dead".into()) });
    let settings =
        QueueSettings { time_to_live_ms: Some(7_200_000), dead_letter, ..QueueSettings::default() };
    let queue = world.declare("q", settings.clone());
    for number in 0..2_000 {
        world.send("q", body(number, 200));
    }
    world.cool();
    assert!(world.moved > 0 && world.ready(queue) == 2_000 && world.ready(dead) == 0);
    world.restart();
    let (queue, dead) = (world.declare("q", settings), world.declare("dead", QueueSettings::default()));
    for _ in 0..200 {
        world.pass(Duration::from_secs(60));
        world.settle();
    }
    assert_eq!((world.ready(queue), world.ready(dead)), (0, 2_000));
    assert_same(&world.drain(dead), &numbers(0..2_000));
    // And by the queue's own bound.
    let dead_letter = Some(DeadLetter { exchange: "".into(), address: Some("dead".into()) });
    let settings = QueueSettings { ready_max: Some(1_500), dead_letter, ..QueueSettings::default() };
    let queue = world.declare("short", settings);
    filled(&mut world, "short", 2_500);
    assert_eq!((world.ready(queue), world.ready(dead)), (1_500, 1_000));
    assert_same(&world.drain(queue), &numbers(1_000..2_500));
    assert_same(&world.drain(dead), &numbers(0..1_000));
}

#[test]
fn priorities_overtake_cold_messages_too() {
    let mut world = World::new(8);
    let settings = QueueSettings { priority_max: 3, ..QueueSettings::default() };
    let queue = world.declare("p", settings.clone());
    for number in 0..4_000 {
        let mut message = world.message("p", body(number, 200), Assurance::AtLeastOnce);
        message.priority = (number % 5) as u8;
        world.broker.publish_to(world.now, ExchangeIndex::DEFAULT, message, &[], Some(ME));
        if number % 50 == 0 {
            world.settle();
        }
    }
    world.cool();
    assert!(world.moved > 0);
    let mut expected: Vec<u64> = (0..4_000).collect();
    expected.sort_by_key(|number| (3 - (number % 5).min(3), *number));
    let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
    let (first, rest) = expected.split_at(700);
    let got: Vec<_> = (0..700).map(|_| world.get(queue, true).unwrap().1).collect();
    assert_same(&got, first);
    world.cool();
    world.restart();
    let queue = world.declare("p", settings);
    assert_same(&world.drain(queue), rest);
}

#[test]
fn transient_messages_keep_their_place_between_cold_ones() {
    let mut world = World::new(9);
    let queue = world.declare("q", QueueSettings::default());
    for number in 0..3_000 {
        let assurance = if number % 7 == 3 { Assurance::AtMostOnce } else { Assurance::AtLeastOnce };
        let message = world.message("q", body(number, 200), assurance);
        world.broker.publish_to(world.now, ExchangeIndex::DEFAULT, message, &[], Some(ME));
        if number % 50 == 0 {
            world.settle();
        }
    }
    world.cool();
    assert!(world.moved > 0);
    assert_same(&world.drain(queue), &numbers(0..3_000));
}

#[test]
fn offline_sessions_share_chunks_and_settle_on_their_own() {
    let mut world = World::new(10);
    for name in ["one", "two"] {
        world.subscribe(name, "t/#");
    }
    for number in 0..3_000 {
        let message = world.message("t/x", body(number, 200), Assurance::ExactlyOnce);
        world.broker.publish_to(world.now, ExchangeIndex::SHARED, message, &[], Some(ME));
        if number % 50 == 0 {
            world.settle();
        }
    }
    world.cool();
    assert!(world.moved > 5);
    world.restart();
    assert_eq!(world.queued, 6_000);
    let connection = ConnectionId(71);
    let one =
        world.broker.open_session(world.now, "one", SessionTerms::clean(false), connection).unwrap().queue;
    world.broker.attach(world.now, one, connection, 10);
    let mut seen = Vec::new();
    let mut cut = false;
    while seen.len() < 3_000 {
        world.settle();
        let deliveries = world.deliveries();
        assert!(!deliveries.is_empty(), "after {}", seen.len());
        for delivery in deliveries {
            let tag = delivery.tag as u32;
            if seen.len() == 1_234 && !cut {
                // The power goes while exchanges of cold messages are under way.
                cut = true;
                world.keep().unwrap();
                world.restart();
                let one = world
                    .broker
                    .open_session(world.now, "one", SessionTerms::clean(false), connection)
                    .unwrap()
                    .queue;
                world.broker.attach(world.now, one, connection, 10);
                break;
            }
            seen.push(text(&delivery.held.message.body));
            world.broker.receive(world.now, delivery.queue, tag);
            world.broker.complete(world.now, delivery.queue, tag);
        }
    }
    assert_same(&seen, &numbers(0..3_000));
    world.cool();
    world.restart();
    assert_eq!(world.queued, 3_000);
    let two =
        world.broker.open_session(world.now, "two", SessionTerms::clean(false), connection).unwrap().queue;
    world.broker.attach(world.now, two, connection, 10);
    let mut seen = Vec::new();
    while seen.len() < 3_000 {
        world.settle();
        for delivery in world.deliveries() {
            seen.push(text(&delivery.held.message.body));
            world.broker.receive(world.now, two, delivery.tag as u32);
            world.broker.complete(world.now, two, delivery.tag as u32);
        }
    }
    assert_same(&seen, &numbers(0..3_000));
    world.cool();
    world.restart();
    assert!(world.store.take_chunks().is_empty() && world.queued == 0);
}

/// Deliveries that are under way keep their tags when the power goes, also when their rows are not in the window.
#[test]
fn exchanges_of_messages_that_moved_go_on_after_a_cut() {
    let mut world = World::new(17);
    let session = |world: &mut World| {
        let connection = ConnectionId(71);
        let terms = SessionTerms::clean(false);
        let queue = world.broker.open_session(world.now, "one", terms, connection).unwrap().queue;
        world.broker.attach(world.now, queue, connection, 5);
        queue
    };
    world.subscribe("one", "t/#");
    for number in 0..3_000 {
        let message = world.message("t/x", body(number, 200), Assurance::ExactlyOnce);
        world.broker.publish_to(world.now, ExchangeIndex::SHARED, message, &[], Some(ME));
        if number % 50 == 0 {
            world.settle();
        }
    }
    world.cool();
    assert!(world.moved > 5);
    let tags = |world: &mut World| -> Vec<_> {
        let deliveries = world.deliveries();
        deliveries.iter().map(|delivery| (delivery.tag, text(&delivery.held.message.body))).collect()
    };
    let queue = session(&mut world);
    let mut handed = Vec::new();
    for _ in 0..40 {
        world.settle();
        handed.extend(tags(&mut world));
        // Two are under way at any time, of which the power finds the second one first.
        while handed.len() > 2 {
            let (tag, _) = handed.remove(0);
            world.broker.receive(world.now, queue, tag as u32);
            world.broker.complete(world.now, queue, tag as u32);
        }
        world.keep().unwrap();
        world.restart();
        session(&mut world);
        world.settle();
        let again = tags(&mut world);
        assert!(again.starts_with(&handed), "{handed:?} came again as {again:?}");
        handed = again;
    }
}

/// What fills memory and cannot move keeps no publisher waiting.
#[test]
fn publishers_wait_only_for_rows_that_move() {
    let mut world = World::new(18);
    world.declare("q", QueueSettings::default());
    world.send("q", body(0, 100));
    world.settle();
    while world.broker.status().memory_bytes < (1 << 24) / 16 * 15 {
        let message = world.message("q", body(1, 10_000), Assurance::AtMostOnce);
        world.broker.publish_to(world.now, ExchangeIndex::DEFAULT, message, &[], Some(ME));
        assert!(!world.broker.is_congested(), "at {}", world.broker.status().memory_bytes);
    }
}

#[test]
fn what_a_consumer_was_not_handed_leaves_memory_with_it() {
    let mut world = World::new(11);
    let queue = world.declare("q", QueueSettings::default());
    filled(&mut world, "q", 3_000);
    world.consume(queue, 5);
    world.settle();
    let tags: Vec<_> = world.deliveries().iter().map(|delivery| (queue, delivery.tag)).collect();
    assert_eq!(tags.len(), 5);
    let before = world.broker.status().memory_bytes;
    world.broker.cancel(world.now, queue, ME, 1);
    world.broker.settle_deliveries(world.now, tags.into_iter(), Settlement::Requeue);
    let after = world.broker.status().memory_bytes;
    assert!(after < before && after < 10_000, "{before} then {after} bytes");
    assert_eq!(world.ready(queue), 3_000);
    assert_same(&world.drain(queue), &numbers(0..3_000));
}

#[test]
fn a_lost_backlog_is_told_queue_by_queue_and_the_rest_goes_on() {
    let mut world = World::new(12);
    world.declare("q", QueueSettings::default());
    world.declare("other", QueueSettings::default());
    filled(&mut world, "q", 3_000);
    let cold = world.moved;
    assert!(cold > 0);
    world.send("other", body(1, 200));
    world.settle();
    world.disk.plant("backlog.redb", b"not a backlog");
    world.restart();
    assert!(!world.damage.is_empty());
    let (queue, other) = (world.broker.named_queue("q").unwrap(), world.broker.named_queue("other").unwrap());
    let lost: u64 = world.broker.loss_receipts().filter(|r| &*r.queue == "q").map(|r| r.messages).sum();
    assert_eq!(lost as usize + world.ready(queue), 3_000);
    assert_eq!(world.drain(other), ["1"]);
    world.send("q", body(9_999, 200));
    assert_eq!(world.drain(queue).last().unwrap(), "9999");
    // Once told it is not told again.
    world.cool();
    world.restart();
    let again: u64 = world.broker.loss_receipts().map(|receipt| receipt.messages).sum();
    assert_eq!(again, lost);
}

#[test]
fn a_damaged_window_makes_no_message_come_twice_nor_lost_from_the_backlog() {
    let mut world = World::new(13);
    world.declare("q", QueueSettings::default());
    filled(&mut world, "q", 3_000);
    world.settle();
    // The window's newest state is gone, older pages hold rows that have moved.
    let pages = world.disk.len("gateway.redb") / 4096;
    for page in 0..pages.min(40) {
        world.disk.flip("gateway.redb", page * 4096 + 100, 0x10);
    }
    world.restart();
    assert!(!world.damage.is_empty());
    let queue = world.declare("q", QueueSettings::default());
    let mut all: Vec<u64> = world.drain(queue).iter().map(|number| number.parse().unwrap()).collect();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count, "none twice");
    assert!(all.is_sorted(), "in order");
}
