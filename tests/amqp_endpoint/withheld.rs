//! Messages that the rules about topics keep from a client: they stay under those rules after they have died in a queue,
//! they are not handed on as dead when they are withheld, and they take no credit.

use gatewayd::amqp091::codec::method::{basic, queue};
use gatewayd::amqp091::codec::{BasicProperties, FieldTable, FieldValue};
use gatewayd::config::Config;
use gatewayd::gateway::{Accept, Protocol};
use gatewayd::ids::ConnectionId;

use super::Bench;

/// Who has no name may do everything; guest reads little.
const RULES: &str = "topic #\nqueue *\nexchange *\nuser guest\nqueue *\nexchange *\ntopic ok/#\n";

/// The chief, guest, and guest's queue that gets what passes amq.topic.
fn queue_of_everything(arguments: &[(&str, FieldValue<'_>)]) -> (Bench, ConnectionId, ConnectionId) {
    let mut bench = Bench::with(&Config::default(), Some(RULES));
    let (chief, guest) = (bench.open_nameless(), bench.open());
    for (name, arguments) in [("leak", &[][..]), ("peek", arguments)] {
        let answered = bench.declare_with(guest, name, arguments);
        assert!(answered[0].contains("DeclareOk"), "{answered:?}");
    }
    bind(&mut bench, guest, "peek", "#");
    (bench, chief, guest)
}

fn bind(bench: &mut Bench, id: ConnectionId, queue: &str, routing_key: &str) {
    let arguments = FieldTable::EMPTY;
    bench.send(id, 1, &queue::Bind { queue, exchange: "amq.topic", routing_key, no_wait: false, arguments });
    let answered = bench.take(id);
    assert!(answered[0].contains("BindOk"), "{answered:?}");
}

fn publish(bench: &mut Bench, id: ConnectionId, routing_key: &str, body: &[u8]) {
    bench.publish_to(id, ("amq.topic", routing_key), &BasicProperties::default(), body);
}

fn get(bench: &mut Bench, id: ConnectionId, queue: &str) -> Vec<String> {
    bench.send(id, 1, &basic::Get { queue, no_ack: true });
    bench.take(id)
}

fn text(value: &str) -> FieldValue<'_> {
    FieldValue::LongString(value.as_bytes())
}

#[test]
fn what_died_on_its_way_from_amq_topic_is_read_only_by_who_may_read_its_topic() {
    let arguments = [
        ("x-message-ttl", FieldValue::LongInt(0)),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text("leak")),
    ];
    let (mut bench, chief, guest) = queue_of_everything(&arguments);
    publish(&mut bench, chief, "secret.1", b"secret");
    publish(&mut bench, chief, "ok.1", b"ok");
    assert_eq!(bench.ready(chief, "leak"), Some(2));
    let answered = get(&mut bench, guest, "leak");
    assert!(answered[0].contains("GetOk") && answered[2] == "1 body of 2", "{answered:?}");
    assert!(get(&mut bench, guest, "leak")[0].contains("GetEmpty"));
    publish(&mut bench, chief, "secret.2", b"secret");
    assert!(get(&mut bench, chief, "leak")[0].contains("GetOk"), "who may read it gets it");
}

#[test]
fn a_secret_that_dies_into_a_topic_of_its_reader_stays_one_for_every_protocol() {
    let arguments = [
        ("x-message-ttl", FieldValue::LongInt(0)),
        ("x-dead-letter-exchange", text("amq.topic")),
        ("x-dead-letter-routing-key", text("ok.dead")),
    ];
    let rules = "topic ok/#\nuser guest\ntopic #\nqueue *\nexchange *\n";
    let mut bench = Bench::with(&Config::default(), Some(rules));
    let chief = bench.open();
    bench.declare_with(chief, "peek", &arguments);
    bind(&mut bench, chief, "peek", "in.#");
    bind(&mut bench, chief, "peek", "ok.in");
    let accept = Accept { allow_anonymous: true, peer: "bench".into(), ..Accept::default() };
    let reader = bench.gateway.accept_protocol(bench.now, Protocol::Mqtt, accept).unwrap();
    let connect = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00";
    let subscribe = b"\x82\x09\x00\x01\x00\x04ok/#\x00";
    bench.gateway.receive(bench.now, reader, &[&connect[..], subscribe].concat());
    bench.take_bytes(reader);
    publish(&mut bench, chief, "in.1", b"hush");
    assert_eq!(bench.take_bytes(reader), b"");
    publish(&mut bench, chief, "ok.in", b"told");
    let told = bench.take_bytes(reader);
    assert_eq!(told.windows(4).filter(|bytes| bytes == b"told").count(), 2, "as it is and as dead: {told:?}");
}

#[test]
fn what_is_withheld_does_not_go_where_the_dead_of_its_queue_go() {
    let arguments = [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("leak"))];
    let (mut bench, chief, guest) = queue_of_everything(&arguments);
    publish(&mut bench, chief, "secret.1", b"secret");
    assert!(get(&mut bench, guest, "peek")[0].contains("GetEmpty"));
    bench.consume(guest, "peek", false);
    publish(&mut bench, chief, "secret.2", b"secret");
    assert_eq!((bench.ready(chief, "peek"), bench.ready(chief, "leak")), (Some(0), Some(0)));
}

#[test]
fn what_is_withheld_takes_no_credit_of_the_channel() {
    let (mut bench, chief, guest) = queue_of_everything(&[]);
    for _ in 0..3 {
        publish(&mut bench, chief, "secret.1", b"secret");
    }
    publish(&mut bench, chief, "ok.1", b"ok");
    bench.send(guest, 1, &basic::Qos { prefetch_size: 0, prefetch_count: 2, global: true });
    let mut answered = bench.consume(guest, "peek", false);
    publish(&mut bench, chief, "ok.2", b"ok");
    publish(&mut bench, chief, "ok.3", b"ok");
    answered.extend(bench.take(guest));
    let delivered = answered.iter().filter(|frame| frame.contains("Deliver")).count();
    assert_eq!(delivered, 2, "{answered:?}");
}
