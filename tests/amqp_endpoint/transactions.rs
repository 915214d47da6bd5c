//! A commit is answered when what it needs is on flash, and at once when it needs nothing there.

use gatewayd::amqp091::codec::method::{basic, channel, tx};

use super::{Bench, declare};

/// Opens channel 2 for transactions and takes the message of `q` there.
fn take_in_transaction(bench: &mut Bench, persistent: bool) -> gatewayd::ids::ConnectionId {
    let id = bench.open();
    declare(bench, id, "q", true);
    bench.keep();
    bench.publish(id, "q", b"x", persistent);
    bench.keep();
    bench.send(id, 2, &channel::Open {});
    bench.send(id, 2, &tx::Select {});
    bench.send(id, 2, &basic::Get { queue: "q", no_ack: false });
    let answered = bench.take(id);
    assert!(answered.iter().any(|frame| frame.contains("GetOk")), "{answered:?}");
    id
}

#[test]
fn a_commit_that_only_gives_back_is_answered_at_once() {
    let mut bench = Bench::new();
    let id = take_in_transaction(&mut bench, true);
    bench.send(id, 2, &basic::Nack { delivery_tag: 1, multiple: false, requeue: true });
    bench.send(id, 2, &tx::Commit {});
    let answered = bench.take(id);
    assert!(answered.iter().any(|frame| frame.contains("CommitOk")), "{answered:?}");
    assert_eq!(bench.ready(id, "q"), Some(1));
}

#[test]
fn a_commit_that_only_settles_what_was_never_on_flash_is_answered_at_once() {
    let mut bench = Bench::new();
    let id = take_in_transaction(&mut bench, false);
    bench.send(id, 2, &basic::Ack { delivery_tag: 1, multiple: false });
    bench.send(id, 2, &tx::Commit {});
    let answered = bench.take(id);
    assert!(answered.iter().any(|frame| frame.contains("CommitOk")), "{answered:?}");
}

#[test]
fn a_commit_that_settles_what_is_on_flash_waits_for_the_batch_that_says_so() {
    let mut bench = Bench::new();
    let id = take_in_transaction(&mut bench, true);
    bench.send(id, 2, &basic::Ack { delivery_tag: 1, multiple: false });
    bench.send(id, 2, &tx::Commit {});
    assert_eq!(bench.take(id), [""; 0]);
    let batch = bench.gateway.close_batch(bench.now);
    assert!(batch.is_some(), "the batch is due at once");
}
