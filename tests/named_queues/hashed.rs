//! A consistent hash: keys stay with their queue, over a start too.

use super::*;

/// Which queue gets each of many keys.
fn places(broker: &mut Broker, at: u64) -> Vec<String> {
    let hash = broker.exchange("hash").unwrap();
    let names = ["h1", "h2", "h3", "h4"].map(|name| (name, broker.named_queue(name)));
    let mut places = Vec::new();
    for key in 0..60 {
        let message = message(&format!("key-{key}"), "x", Assurance::AtMostOnce);
        broker.publish_to(now(at), hash, message, &[], None);
        let took = |(_, queue): &&(&str, Option<QueueIndex>)| {
            queue.is_some_and(|queue| drain(broker, at, queue).len() == 1)
        };
        places.push(names.iter().find(took).unwrap().0.to_owned());
    }
    places
}

#[test]
fn keys_stay_with_their_queue_when_another_goes_and_the_gateway_starts() {
    let disk = SimDisk::new(9);
    let (mut store, mut broker, _) = start(&disk, 0);
    let hash = ExchangeOptions::new(ExchangeKind::ConsistentHash);
    broker.create_exchange(now(0), "hash", hash).unwrap();
    let hash = broker.exchange("hash").unwrap();
    for name in ["h1", "h2", "h3", "h4"] {
        let queue = declare(&mut broker, name, QueueSettings::default(), true);
        broker.bind(now(0), hash, Target::Queue(queue), "5", BindingArguments::default()).unwrap();
    }
    let all = places(&mut broker, 1);
    let gone = broker.named_queue("h1").unwrap();
    broker.delete_queue(now(2), gone, false, false).unwrap();
    let without = places(&mut broker, 3);
    for (before, after) in all.iter().zip(&without) {
        assert!(before == after || before == "h1", "{before} {after}");
    }
    for name in ["h1", "h2", "h3", "h4"] {
        assert!(all.iter().any(|place| place == name), "{name}");
    }
    keep(&mut store, &mut broker, 4);
    drop(store);
    let (_, mut broker, _) = start(&disk.reboot(), 5);
    assert_eq!(places(&mut broker, 6), without);
}
