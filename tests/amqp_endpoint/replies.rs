//! Direct replies: their queue lives as long as their consumer, and its place in the broker is another's afterwards.

use gatewayd::amqp091::codec::method::{basic, channel, queue};
use gatewayd::amqp091::codec::{BasicProperties, FieldTable};
use gatewayd::ids::ConnectionId;

use super::{Bench, declare};

const REPLY_TO: &str = "amq.rabbitmq.reply-to";

#[test]
fn a_channel_that_no_longer_consumes_replies_takes_nobody_else_s_queue_with_it() {
    let mut bench = Bench::new();
    let (asking, other) = (bench.open(), bench.open());
    bench.consume(asking, REPLY_TO, true);
    bench.send(asking, 1, &basic::Cancel { consumer_tag: "c", no_wait: false });
    for name in ["orders0", "orders1", "orders2"] {
        declare(&mut bench, other, name, true);
        bench.keep();
        bench.publish(other, name, b"x", true);
    }
    bench.keep();
    let close = channel::Close { reply_code: 200, reply_text: "", class_id: 0, method_id: 0 };
    bench.send(asking, 1, &close);
    for name in ["orders0", "orders1", "orders2"] {
        assert_eq!(bench.ready(other, name), Some(1), "{name}");
    }
}

#[test]
fn a_cancelled_consumer_of_replies_makes_room_for_the_next_and_until_then_nothing_asks_for_replies() {
    let mut bench = Bench::new();
    let id = bench.open();
    let asks = BasicProperties { reply_to: REPLY_TO.try_into().ok(), ..BasicProperties::default() };
    for _ in 0..2 {
        let answered = bench.consume(id, REPLY_TO, true);
        assert!(answered[0].contains("ConsumeOk"), "{answered:?}");
        bench.publish_to(id, ("", "nowhere"), &asks, b"?");
        bench.send(id, 1, &basic::Cancel { consumer_tag: "c", no_wait: false });
        let answered = bench.take(id);
        assert!(answered[0].contains("CancelOk"), "{answered:?}");
    }
    bench.publish_to(id, ("", "nowhere"), &asks, b"?");
    let answered = bench.take(id);
    assert!(answered[0].contains("fast reply consumer does not exist"), "{answered:?}");
}

#[test]
fn who_answers_declares_the_reply_queue_and_does_nothing_else_with_it() {
    let mut bench = Bench::new();
    let (asking, answering) = (bench.open(), bench.open());
    declare(&mut bench, answering, "requests", false);
    bench.consume(asking, REPLY_TO, true);
    let asks = BasicProperties { reply_to: REPLY_TO.try_into().ok(), ..BasicProperties::default() };
    bench.publish_to(asking, ("", "requests"), &asks, b"?");
    bench.take(answering);
    bench.send(answering, 1, &basic::Get { queue: "requests", no_ack: true });
    let bytes = bench.take_bytes(answering);
    let text = String::from_utf8_lossy(&bytes);
    let (_, rest) = text.split_once(REPLY_TO).unwrap();
    let mark: String = rest.chars().take_while(|c| c.is_ascii_hexdigit() || *c == '.').collect();
    let name = format!("{REPLY_TO}{mark}");
    assert!(name.len() > REPLY_TO.len(), "{name}");
    for passive in [true, false] {
        let answered = declare_replies(&mut bench, answering, &name, passive);
        assert!(answered[0].contains("message_count: 0, consumer_count: 1"), "{answered:?}");
    }
    bench.send(
        answering,
        1,
        &queue::Delete { queue: &name, if_unused: false, if_empty: false, no_wait: false },
    );
    let answered = bench.take(answering);
    assert!(answered[0].contains("DeleteOk"), "as for a queue that is not there: {answered:?}");
    let other = bench.open();
    bench.send(other, 1, &queue::Purge { queue: &name, no_wait: false });
    let answered = bench.take(other);
    assert!(answered[0].contains("reply_code: 404"), "{answered:?}");
    bench.publish_to(answering, ("", &name), &BasicProperties::default(), b"!");
    let answered = bench.take(asking);
    assert!(answered.iter().any(|frame| frame.contains("Deliver")), "{answered:?}");
    bench.send(asking, 1, &basic::Cancel { consumer_tag: "c", no_wait: false });
    let answered = declare_replies(&mut bench, answering, &name, true);
    assert!(answered[0].contains("reply_code: 404"), "{answered:?}");
}

fn declare_replies(bench: &mut Bench, id: ConnectionId, queue: &str, passive: bool) -> Vec<String> {
    let declare = queue::Declare {
        queue,
        passive,
        durable: false,
        exclusive: false,
        auto_delete: false,
        no_wait: false,
        arguments: FieldTable::EMPTY,
    };
    bench.send(id, 1, &declare);
    bench.take(id)
}
