//! Direct replies: their queue lives as long as their consumer, and its place in the broker is another's afterwards.

use gatewayd::amqp091::codec::BasicProperties;
use gatewayd::amqp091::codec::method::{basic, channel};

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
