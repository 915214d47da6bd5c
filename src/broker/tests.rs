//! Named queues and exchanges as their callers see them, without any protocol.

use std::rc::Rc;

use super::*;
use crate::message::{Assurance, Message};
use crate::time::Wall;

const ME: ConnectionId = ConnectionId(7);
const OTHER: ConnectionId = ConnectionId(8);

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

fn broker() -> Broker {
    Broker::new(policy(), 1, now(0), BatchNumber(0), 1)
}

fn message(address: &str, body: &str, assurance: Assurance) -> Message {
    Message {
        address: address.into(),
        body: bytes::Bytes::copy_from_slice(body.as_bytes()),
        assurance,
        ..Message::default()
    }
}

fn declare(broker: &mut Broker, name: &str, settings: QueueSettings, durable: bool) -> QueueIndex {
    let options = QueueOptions { durable, settings, ..QueueOptions::default() };
    broker.create_queue(now(0), name, options, ME).expect("room for a queue").0
}

fn send(broker: &mut Broker, at: u64, queue: &str, body: &str) -> Routed {
    let message = message(queue, body, Assurance::AtLeastOnce);
    broker.publish_to(now(at), ExchangeIndex::DEFAULT, message, &[], Some(ME))
}

fn pool() -> Rc<CreditPool> {
    let outlet = Outlet::default();
    outlet.room.set(1 << 20);
    Rc::new(CreditPool::new(Rc::new(outlet)))
}

fn subscriber(connection: ConnectionId, handle: u64, credit_max: u32) -> Subscriber {
    Subscriber { connection, handle, settled: false, exclusive: false, priority: 0, credit_max, pool: pool() }
}

/// Consumer's handle, number and body of each delivery since the last call.
fn deliveries(broker: &mut Broker) -> Vec<(u64, u64, String, bool)> {
    let mut found = Vec::new();
    while let Some(event) = broker.next_event() {
        if let Event::Deliver(delivery) = event {
            let body = String::from_utf8_lossy(&delivery.held.message.body).into_owned();
            found.push((delivery.consumer, delivery.tag, body, delivery.redelivered));
        }
    }
    found
}

fn drain(broker: &mut Broker, at: u64, queue: QueueIndex) -> Vec<String> {
    let got = std::iter::from_fn(|| broker.get(now(at), queue, true));
    got.map(|got| String::from_utf8_lossy(&got.held.message.body).into_owned()).collect()
}

fn settle(broker: &mut Broker, at: u64, queue: QueueIndex, number: u64, settlement: Settlement) {
    broker.settle_deliveries(now(at), std::iter::once((queue, number)), settlement);
}

#[test]
fn competing_consumers_take_turns_and_a_full_one_is_passed_over() {
    let mut broker = broker();
    let queue = declare(&mut broker, "q", QueueSettings::default(), false);
    broker.consume(now(0), queue, subscriber(ME, 1, 1)).expect("free");
    broker.consume(now(0), queue, subscriber(OTHER, 2, 2)).expect("free");
    for n in 0..5 {
        send(&mut broker, 1, "q", &n.to_string());
    }
    let first = deliveries(&mut broker);
    let shares: Vec<_> = first.iter().map(|(consumer, _, body, _)| (*consumer, body.as_str())).collect();
    assert_eq!(shares, [(1, "0"), (2, "1"), (2, "2")]);
    settle(&mut broker, 2, queue, first[0].1, Settlement::Accept);
    let next = deliveries(&mut broker);
    assert_eq!((next[0].0, next[0].2.as_str()), (1, "3"));
    // Settled again, it is not met again.
    settle(&mut broker, 2, queue, first[0].1, Settlement::Accept);
    assert!(deliveries(&mut broker).is_empty());
}

#[test]
fn what_comes_back_goes_to_its_original_place() {
    let mut broker = broker();
    let queue = declare(&mut broker, "q", QueueSettings::default(), false);
    for body in ["a", "b", "c", "d"] {
        send(&mut broker, 1, "q", body);
    }
    let numbers: Vec<_> =
        (0..3).map(|_| broker.get(now(1), queue, false).expect("a message").number).collect();
    for number in [numbers[2], numbers[0]] {
        settle(&mut broker, 2, queue, number, Settlement::Requeue);
    }
    settle(&mut broker, 2, queue, numbers[1], Settlement::Release);
    let got: Vec<_> = std::iter::from_fn(|| broker.get(now(3), queue, true))
        .map(|got| (String::from_utf8_lossy(&got.held.message.body).into_owned(), got.redelivered))
        .collect();
    let expected = [("a", true), ("b", false), ("c", true), ("d", false)];
    assert_eq!(got, expected.map(|(body, redelivered)| (body.to_owned(), redelivered)));
}

#[test]
fn exchanges_bound_in_a_circle_deliver_once() {
    let mut broker = broker();
    let queue = declare(&mut broker, "q", QueueSettings::default(), false);
    for name in ["one", "two"] {
        broker.create_exchange(now(0), name, ExchangeOptions::new(ExchangeKind::Fanout)).expect("room");
    }
    let (one, two) = (broker.exchange("one").expect("declared"), broker.exchange("two").expect("declared"));
    for (source, target) in [
        (one, Target::Exchange(two)),
        (two, Target::Exchange(one)),
        (one, Target::Queue(queue)),
        (two, Target::Queue(queue)),
    ] {
        broker.bind(now(0), source, target, "", BindingArguments::default()).expect("room");
    }
    let routed = broker.publish_to(now(1), one, message("k", "x", Assurance::AtMostOnce), &[], None);
    assert_eq!(routed.queues, 1);
    assert_eq!(drain(&mut broker, 1, queue), ["x"]);
}

#[test]
fn what_is_not_routed_takes_the_alternate_exchange() {
    let mut broker = broker();
    let queue = declare(&mut broker, "rest", QueueSettings::default(), false);
    let options =
        ExchangeOptions { alternate: Some("ae".into()), ..ExchangeOptions::new(ExchangeKind::Direct) };
    broker.create_exchange(now(0), "main", options).expect("room");
    broker.create_exchange(now(0), "ae", ExchangeOptions::new(ExchangeKind::Fanout)).expect("room");
    let (main, ae) = (broker.exchange("main").expect("declared"), broker.exchange("ae").expect("declared"));
    broker.bind(now(0), ae, Target::Queue(queue), "", BindingArguments::default()).expect("room");
    let routed = broker.publish_to(now(1), main, message("k", "x", Assurance::AtMostOnce), &[], None);
    assert_eq!((routed.queues, drain(&mut broker, 1, queue).len()), (1, 1));
}

#[test]
fn a_dead_message_tells_where_and_why_it_died() {
    let mut broker = broker();
    let dead_letter = Some(DeadLetter { exchange: "".into(), address: Some("dead".into()) });
    let settings = QueueSettings { dead_letter, time_to_live_ms: Some(50), ..QueueSettings::default() };
    let queue = declare(&mut broker, "q", settings, false);
    let dead = declare(&mut broker, "dead", QueueSettings::default(), false);
    send(&mut broker, 0, "q", "refused");
    send(&mut broker, 0, "q", "late");
    let number = broker.get(now(1), queue, false).expect("a message").number;
    settle(&mut broker, 1, queue, number, Settlement::Discard);
    assert!(broker.poll_timeout().is_some_and(|at| at <= now(60).mono));
    broker.handle_timeout(now(60));
    let deaths: Vec<_> = std::iter::from_fn(|| broker.get(now(61), dead, true))
        .map(|got| {
            let annotations = got.held.message.annotations.as_ref().expect("died");
            (got.held.message.body.clone(), annotations.deaths[0].reason, annotations.deaths[0].queue.clone())
        })
        .collect();
    assert_eq!(
        deaths,
        [
            (bytes::Bytes::from_static(b"refused"), crate::message::DeathReason::Rejected, "q".into()),
            (bytes::Bytes::from_static(b"late"), crate::message::DeathReason::Expired, "q".into()),
        ]
    );
}

#[test]
fn a_queue_that_dead_letters_to_itself_ends_the_circle() {
    let mut broker = broker();
    let dead_letter = Some(DeadLetter { exchange: "".into(), address: None });
    let settings = QueueSettings { dead_letter, time_to_live_ms: Some(0), ..QueueSettings::default() };
    let queue = declare(&mut broker, "q", settings, false);
    send(&mut broker, 0, "q", "x");
    broker.handle_timeout(now(100));
    assert_eq!(broker.queue_facts(queue).map(|facts| facts.ready), Some(0));
}

#[test]
fn a_full_queue_refuses_or_drops_as_it_was_told() {
    let mut broker = broker();
    let limit = QueueSettings { ready_max: Some(2), ..QueueSettings::default() };
    let dropping = declare(&mut broker, "drop", limit.clone(), false);
    let rejecting = QueueSettings { overflow: Some(ReadyOverflow::Reject), ..limit };
    let refusing = declare(&mut broker, "reject", rejecting, false);
    for n in 0..4 {
        assert!(!send(&mut broker, 1, "drop", &n.to_string()).refused);
        assert_eq!(send(&mut broker, 1, "reject", &n.to_string()).refused, n >= 2);
    }
    assert_eq!(drain(&mut broker, 2, dropping), ["2", "3"]);
    assert_eq!(drain(&mut broker, 2, refusing), ["0", "1"]);
}

#[test]
fn queues_that_reject_hold_half_of_the_quota_together() {
    let policy = Policy { flash_quota_bytes: 40_000, ..policy() };
    let mut broker = Broker::new(policy, 1, now(0), BatchNumber(0), 1);
    let rejecting = QueueSettings { overflow: Some(ReadyOverflow::Reject), ..QueueSettings::default() };
    for name in ["a", "b"] {
        declare(&mut broker, name, rejecting.clone(), true);
    }
    let dropping = declare(&mut broker, "drop", QueueSettings::default(), true);
    let body = "x".repeat(1000);
    let taken =
        |broker: &mut Broker, name: &str| (0..30).filter(|_| !send(broker, 1, name, &body).refused).count();
    let (a, b) = (taken(&mut broker, "a"), taken(&mut broker, "b"));
    assert!((10..20).contains(&a) && b <= 1, "{a} {b}");
    // Others have the rest, and lose their oldest as ever.
    assert_eq!(taken(&mut broker, "drop"), 30);
    assert!(broker.queue_facts(dropping).is_some_and(|facts| facts.ready >= 5));
    drain(&mut broker, 2, dropping);
    let emptied = broker.named_queue("a").expect("it is there");
    drain(&mut broker, 2, emptied);
    assert!(taken(&mut broker, "b") > 5);
}

#[test]
fn higher_priorities_overtake_and_keep_their_order() {
    let mut broker = broker();
    let queue =
        declare(&mut broker, "q", QueueSettings { priority_max: 5, ..QueueSettings::default() }, false);
    for (priority, body) in [(0, "a"), (5, "b"), (1, "c"), (9, "d"), (0, "e")] {
        let message = Message { priority, ..message("q", body, Assurance::AtMostOnce) };
        broker.publish_to(now(1), ExchangeIndex::DEFAULT, message, &[], None);
    }
    assert_eq!(drain(&mut broker, 2, queue), ["b", "d", "c", "a", "e"]);
}

/// What has expired behind a message that lasts is not handed over with it.
#[test]
fn a_consumer_gets_nothing_that_has_expired() {
    let mut broker = broker();
    let queue = declare(&mut broker, "q", QueueSettings::default(), false);
    for (time_to_live_ms, body) in
        [(None, "a"), (Some(100), "b"), (Some(900), "c"), (Some(100), "d"), (None, "e")]
    {
        let message = Message { time_to_live_ms, ..message("q", body, Assurance::AtMostOnce) };
        broker.publish_to(now(1), ExchangeIndex::DEFAULT, message, &[], None);
    }
    broker.consume(now(500), queue, subscriber(ME, 1, 10)).expect("free");
    let bodies: Vec<_> = deliveries(&mut broker).into_iter().map(|(_, _, body, ..)| body).collect();
    assert_eq!(bodies, ["a", "c", "e"]);
}

#[test]
fn one_consumer_is_active_until_it_leaves() {
    let mut broker = broker();
    let settings = QueueSettings { single_active: true, ..QueueSettings::default() };
    let queue = declare(&mut broker, "q", settings, false);
    broker.consume(now(0), queue, subscriber(ME, 1, 10)).expect("free");
    broker.consume(now(0), queue, subscriber(OTHER, 2, 10)).expect("free");
    send(&mut broker, 1, "q", "a");
    send(&mut broker, 1, "q", "b");
    assert!(deliveries(&mut broker).iter().all(|(consumer, ..)| *consumer == 1));
    broker.cancel(now(2), queue, ME, 1);
    send(&mut broker, 2, "q", "c");
    assert_eq!(deliveries(&mut broker)[0].0, 2);
}

#[test]
fn a_message_that_comes_back_too_often_is_dead() {
    let mut broker = broker();
    let settings = QueueSettings { returns_max: Some(2), ..QueueSettings::default() };
    let queue = declare(&mut broker, "q", settings, false);
    send(&mut broker, 0, "q", "poison");
    let mut handed_out = 0;
    while let Some(got) = broker.get(now(1), queue, false) {
        handed_out += 1;
        settle(&mut broker, 1, queue, got.number, Settlement::Requeue);
    }
    assert_eq!(handed_out, 3);
}

#[test]
fn a_queue_nobody_uses_expires_and_its_consumers_would_be_told() {
    let mut broker = broker();
    let settings = QueueSettings { expires_ms: Some(100), ..QueueSettings::default() };
    let queue = declare(&mut broker, "q", settings, false);
    broker.handle_timeout(now(50));
    broker.consume(now(60), queue, subscriber(ME, 1, 1)).expect("free");
    broker.handle_timeout(now(300));
    assert!(broker.named_queue("q").is_some());
    broker.cancel(now(300), queue, ME, 1);
    broker.handle_timeout(now(350));
    assert!(broker.named_queue("q").is_some());
    broker.handle_timeout(now(420));
    assert!(broker.named_queue("q").is_none());
}

#[test]
fn what_is_delayed_is_routed_when_it_is_due() {
    let mut broker = broker();
    let queue = declare(&mut broker, "q", QueueSettings::default(), false);
    let options = ExchangeOptions { delayed: true, ..ExchangeOptions::new(ExchangeKind::Direct) };
    broker.create_exchange(now(0), "later", options).expect("room");
    let later = broker.exchange("later").expect("declared");
    broker.bind(now(0), later, Target::Queue(queue), "k", BindingArguments::default()).expect("room");
    for (body, delay_ms) in [("second", Some(200)), ("first", Some(100)), ("now", None)] {
        let annotations = delay_ms.map(|delay_ms| {
            Box::new(crate::message::Annotations { delay_ms: Some(delay_ms), ..Default::default() })
        });
        let message = Message { annotations, ..message("k", body, Assurance::AtMostOnce) };
        broker.publish_to(now(0), later, message, &[], None);
    }
    assert_eq!(drain(&mut broker, 1, queue), ["now"]);
    broker.handle_timeout(now(120));
    assert_eq!(drain(&mut broker, 121, queue), ["first"]);
    broker.handle_timeout(now(250));
    assert_eq!(drain(&mut broker, 251, queue), ["second"]);
}

#[test]
fn whoever_looks_on_sees_what_is_published_up_to_a_bound() {
    let mut broker = broker();
    let publish = |broker: &mut Broker, address: &str, len: usize| {
        let message = message(address, &"x".repeat(len), Assurance::AtMostOnce);
        broker.publish_to(now(0), ExchangeIndex::SHARED, message, &[], None);
    };
    publish(&mut broker, "a/b", 1);
    assert!(broker.poll_seen().is_none(), "nobody looked");
    let (all, some) = (broker.look_on("#"), broker.look_on("a/+"));
    for address in ["a/b", "c", "$x/y"] {
        publish(&mut broker, address, 1);
    }
    let seen: Vec<_> = std::iter::from_fn(|| broker.poll_seen()).map(|s| (s.by, s.message.address)).collect();
    assert_eq!(seen, [(vec![all, some], "a/b".into()), (vec![all], "c".into())]);
    // What nobody fetches takes no more than so much, and goes on once it is fetched.
    (0..2_000).for_each(|_| publish(&mut broker, "c", 5_000));
    let bytes: usize = std::iter::from_fn(|| broker.poll_seen()).map(|seen| seen.message.charge()).sum();
    assert!((3 << 20..=4 << 20).contains(&bytes), "{bytes}");
    publish(&mut broker, "a/b", 1);
    broker.look_away(all);
    assert_eq!(broker.poll_seen().map(|seen| seen.by), Some(vec![all, some]));
    publish(&mut broker, "c", 1);
    assert!(broker.poll_seen().is_none());
    publish(&mut broker, "a/b", 1);
    broker.look_away(some);
    assert!(broker.poll_seen().is_none(), "what was seen is forgotten with the last who looked");
}

/// Settings of a queue whose dead letters go to `exchange` under `address`.
fn mortal(ready_max: Option<u64>, exchange: &str, address: Option<&str>) -> QueueSettings {
    let dead_letter = DeadLetter { exchange: exchange.into(), address: address.map(Into::into) };
    QueueSettings { ready_max, dead_letter: Some(dead_letter), ..QueueSettings::default() }
}

#[test]
fn a_circle_of_dead_letters_ends_also_after_a_rejection() {
    let mut broker = broker();
    let work = declare(&mut broker, "work", mortal(None, "", Some("a")), true);
    let a = declare(&mut broker, "a", mortal(Some(0), "", Some("b")), true);
    let b = declare(&mut broker, "b", mortal(Some(0), "", Some("a")), true);
    send(&mut broker, 1, "work", "x");
    let number = broker.get(now(1), work, false).expect("a message").number;
    settle(&mut broker, 1, work, number, Settlement::Discard);
    assert_eq!([work, a, b].map(|queue| drain(&mut broker, 2, queue).len()), [0, 0, 0]);
    // But what is rejected each time goes round for as long as it is.
    let retry = declare(&mut broker, "retry", mortal(None, "", Some("again")), true);
    let again = declare(&mut broker, "again", mortal(None, "", Some("retry")), true);
    send(&mut broker, 3, "retry", "y");
    for _ in 0..10 {
        for queue in [retry, again] {
            let number = broker.get(now(3), queue, false).expect("it comes round").number;
            settle(&mut broker, 3, queue, number, Settlement::Discard);
        }
    }
    assert_eq!(drain(&mut broker, 4, retry), ["y"]);
}

/// Each of the queues hands what dies in it to all of them: that multiplies with each step.
#[test]
fn dead_letters_do_not_multiply_without_end() {
    let mut broker = broker();
    broker.create_exchange(now(0), "all", ExchangeOptions::new(ExchangeKind::Fanout)).expect("room");
    let fanout = broker.exchange("all").expect("it was made");
    for n in 0..12 {
        let queue = declare(&mut broker, &n.to_string(), mortal(Some(0), "all", None), false);
        let target = Target::Queue(queue);
        broker.bind(now(0), fanout, target, "", BindingArguments::default()).expect("both are there");
    }
    send(&mut broker, 1, "3", "x");
    let counters = broker.status().counters;
    assert!(counters.dead_lettered <= 2_000, "{counters:?}");
    assert!(broker.loss_receipts().any(|receipt| receipt.messages > 0));
}

#[test]
fn timers_that_earlier_ones_replaced_do_not_pile_up() {
    let mut broker = broker();
    let queue = declare(&mut broker, "q", QueueSettings::default(), false);
    let publish = |broker: &mut Broker, exchange, address: &str, n: u64| {
        let time_to_live_ms = Some(1_000_000_000 - n);
        let message = Message { time_to_live_ms, ..message(address, "x", Assurance::AtLeastOnce) };
        broker.publish_to(now(1), exchange, message, &[], None);
    };
    for n in 0..10_000 {
        publish(&mut broker, ExchangeIndex::DEFAULT, "q", n);
        drain(&mut broker, 1, queue);
    }
    assert!(broker.timers.len() < 100, "{} timers of a queue that is empty", broker.timers.len());
    let opened = broker.open_session(now(2), "s", SessionTerms::clean(false), ME).expect("room");
    let options = SubscribeOptions::new(Assurance::AtLeastOnce);
    broker.subscribe(now(2), opened.queue, "t", options, Replay::Never);
    for n in 0..10_000 {
        publish(&mut broker, ExchangeIndex::SHARED, "t", n);
    }
    assert!(broker.timers.len() < 100, "{} timers with those of a session", broker.timers.len());
    // The one that counts is still there.
    broker.handle_timeout(now(1_000_005_000));
    broker.handle_timeout(now(1_000_010_000));
    assert_eq!(broker.status().queued, 0);
}

#[test]
fn a_shorter_session_expiry_holds_for_those_that_are_away_when_it_is_set() {
    let mut broker = broker();
    for (name, from) in [("long", 0), ("short", 1_000)] {
        let opened = broker.open_session(now(from), name, SessionTerms::clean(false), ME).expect("room");
        broker.detach(now(from), opened.queue, ME);
    }
    assert_eq!(broker.poll_timeout().filter(|at| *at > now(60_000).mono), None, "they may be away for ever");
    let policy = Policy { session_expiry_max: Some(Duration::from_secs(3600)), ..policy() };
    broker.set_policy(now(3_600_500), policy);
    broker.handle_timeout(now(3_602_000));
    assert_eq!(broker.status().sessions, 0, "one was away for as long already");
}

/// As many as are allowed, with names as people give them, leave room for subscriptions and wills.
#[test]
fn the_account_has_room_for_the_numbers_that_are_allowed() {
    let policy =
        Policy { queues_max: 10_000, flash_quota_bytes: 50 << 20, memory_max: 128 << 20, ..policy() };
    let mut broker = Broker::new(policy, 1, now(0), BatchNumber(0), 1);
    let predeclared = broker.status().exchanges;
    for n in 0..10_000 {
        declare(&mut broker, &format!("a queue with number {n}"), QueueSettings::default(), true);
    }
    for n in predeclared..10_000 {
        let options = ExchangeOptions::new(ExchangeKind::Direct);
        broker.create_exchange(now(0), &format!("an exchange with number {n}"), options).expect("room");
    }
    let target = Target::Queue(broker.named_queue("a queue with number 1").expect("it was made"));
    let source = broker.exchange("an exchange with number 99").expect("it was made");
    for n in 0..60_000 {
        let key = format!("a key with number {n}");
        broker.bind(now(0), source, target, &key, BindingArguments::default()).expect("room");
    }
    let kept_max = broker.policy.flash_quota_bytes / 4;
    assert!(broker.kept_bytes as u64 <= kept_max / 10 * 9, "{} of {kept_max}", broker.kept_bytes);
}
