//! The AMQP endpoint as a machine: frames in, frames out, no socket. What peers do wrong is answered with the code that
//! the specification gives it, and others are not touched.

#![allow(clippy::unwrap_used, reason = "test code")]

use gatewayd::amqp091::codec::method::{basic, channel, confirm, connection, exchange, queue};
use gatewayd::amqp091::codec::{
    BasicProperties, Decoded, FieldTable, FieldTableBuilder, FieldValue, FrameType, LongString, Method,
    PROTOCOL_HEADER, ShortString, decode, encode_body_frame, encode_content, encode_content_header,
    encode_heartbeat, encode_method, encode_properties,
};
use gatewayd::broker::{Broker, RecoverySummary};
use gatewayd::config::Config;
use gatewayd::gateway::{Accept, Gateway, GatewayPolicy, Output, Protocol, StoreCondition, broker_policy};
use gatewayd::ids::{BatchNumber, ConnectionId};
use gatewayd::store::Persisted;
use gatewayd::time::{Mono, Now, Wall};

mod parity;
mod replies;
mod transactions;
mod withheld;

const NOW: Now = Now { mono: Mono(1_000_000), wall: Wall(1_700_000_000_000), wall_trusted: true };

struct Bench {
    gateway: Gateway,
    closed: Vec<ConnectionId>,
    now: Now,
}

impl Bench {
    fn new() -> Self {
        Self::with(&Config::default(), None)
    }

    fn with(config: &Config, acl: Option<&str>) -> Self {
        let acl = acl.map(|text| gatewayd::auth::Acl::parse(text.as_bytes()).unwrap());
        let broker = Broker::new(broker_policy(config, 1 << 24, 0), 1, NOW, BatchNumber(0), 1);
        let policy = GatewayPolicy::new(config, "bench".into());
        let gateway = Gateway::new(policy, None, acl, broker, RecoverySummary::default(), 1, NOW);
        Self { gateway, closed: Vec::new(), now: NOW }
    }

    fn accept(&mut self) -> ConnectionId {
        let accept = Accept { allow_anonymous: true, peer: "bench".into(), ..Accept::default() };
        self.gateway.accept_protocol(self.now, Protocol::Amqp091, accept).unwrap()
    }

    /// An open connection with channel 1 open.
    fn open(&mut self) -> ConnectionId {
        self.open_as(FieldTable::EMPTY)
    }

    /// One of a client that says this of itself.
    fn open_as(&mut self, client_properties: FieldTable<'_>) -> ConnectionId {
        self.log_in(client_properties, "PLAIN", b"\0guest\0guest")
    }

    /// One of a client without a name.
    fn open_nameless(&mut self) -> ConnectionId {
        self.log_in(FieldTable::EMPTY, "ANONYMOUS", b"")
    }

    fn log_in(
        &mut self,
        client_properties: FieldTable<'_>,
        mechanism: &str,
        response: &[u8],
    ) -> ConnectionId {
        let id = self.accept();
        self.gateway.receive(self.now, id, &PROTOCOL_HEADER);
        self.send(
            id,
            0,
            &connection::StartOk {
                client_properties,
                mechanism,
                response: LongString(response),
                locale: "en_US",
            },
        );
        self.send(id, 0, &connection::TuneOk { channel_max: 0, frame_max: 4096, heartbeat: 10 });
        self.send(id, 0, &connection::Open { virtual_host: "/" });
        self.send(id, 1, &channel::Open {});
        assert_eq!(self.take(id).last().map(String::as_str), Some("1 Channel(OpenOk(OpenOk))"));
        id
    }

    fn send(&mut self, id: ConnectionId, number: u16, method: &impl gatewayd::amqp091::codec::Arguments) {
        let mut bytes = Vec::new();
        encode_method(&mut bytes, number, method).unwrap();
        self.gateway.receive(self.now, id, &bytes);
    }

    fn publish(&mut self, id: ConnectionId, routing_key: &str, body: &[u8], persistent: bool) {
        let delivery_mode = Some(if persistent { 2 } else { 1 });
        let properties = BasicProperties { delivery_mode, ..BasicProperties::default() };
        self.publish_to(id, ("", routing_key), &properties, body);
    }

    fn publish_to(
        &mut self,
        id: ConnectionId,
        to: (&str, &str),
        properties: &BasicProperties<'_>,
        body: &[u8],
    ) {
        let mut bytes = Vec::new();
        let (exchange, routing_key) = (to.0.try_into().unwrap(), to.1.try_into().unwrap());
        let publish = basic::Publish { exchange, routing_key, mandatory: false, immediate: false };
        encode_method(&mut bytes, 1, &publish).unwrap();
        let mut encoded = Vec::new();
        encode_properties(&mut encoded, properties).unwrap();
        encode_content(&mut bytes, 1, &encoded, body, 4096).unwrap();
        self.gateway.receive(self.now, id, &bytes);
    }

    /// Declares a queue with these arguments; answers what came.
    fn declare_with(
        &mut self,
        id: ConnectionId,
        queue: &str,
        arguments: &[(&str, FieldValue<'_>)],
    ) -> Vec<String> {
        let mut table = FieldTableBuilder::new();
        for (name, value) in arguments {
            table.push(name, *value).unwrap();
        }
        let declare = queue::Declare {
            queue,
            passive: false,
            durable: false,
            exclusive: false,
            auto_delete: false,
            no_wait: false,
            arguments: table.table(),
        };
        self.send(id, 1, &declare);
        self.take(id)
    }

    /// The messages that are ready in a queue; `None` when there is none of this name, and the channel is closed.
    fn ready(&mut self, id: ConnectionId, name: &str) -> Option<u32> {
        self.take(id);
        self.send(
            id,
            1,
            &queue::Declare {
                queue: name,
                passive: true,
                durable: false,
                exclusive: false,
                auto_delete: false,
                no_wait: false,
                arguments: FieldTable::EMPTY,
            },
        );
        self.keep();
        let answered = self.take(id);
        let answer = answered.iter().find(|frame| frame.contains("DeclareOk"))?;
        answer.split("message_count: ").nth(1)?.split(',').next()?.parse().ok()
    }

    fn consume(&mut self, id: ConnectionId, queue: &str, no_ack: bool) -> Vec<String> {
        let consume = basic::Consume {
            queue,
            consumer_tag: "c",
            no_local: false,
            no_ack,
            exclusive: false,
            no_wait: false,
            arguments: FieldTable::EMPTY,
        };
        self.send(id, 1, &consume);
        self.take(id)
    }

    /// The frames that wait for the connection, as text.
    fn take(&mut self, id: ConnectionId) -> Vec<String> {
        frames(&self.take_bytes(id))
    }

    fn take_bytes(&mut self, id: ConnectionId) -> Vec<u8> {
        while let Some(output) = self.gateway.poll_output() {
            if let Output::Close { connection, .. } = output {
                self.closed.push(connection);
            }
        }
        let mut bytes = Vec::new();
        while let Some(output) = self.gateway.output(id)
            && !output.is_empty()
        {
            let mut slices = [std::io::IoSlice::new(&[]); 4];
            let filled = output.slices(&mut slices);
            let before = bytes.len();
            slices.iter().take(filled).for_each(|slice| bytes.extend_from_slice(slice));
            let count = bytes.len() - before;
            self.gateway.sent(self.now, id, count);
        }
        bytes
    }

    /// Time passes.
    fn pass(&mut self, ms: u64) {
        self.now.mono.0 += ms * 1000;
        self.now.wall.0 += ms;
        self.gateway.handle_timeout(self.now);
    }

    /// The batches that are due reach flash.
    fn keep(&mut self) {
        while let Some(batch) = self.gateway.close_batch_now() {
            let persisted = Persisted {
                number: batch.number,
                bytes_written: 1,
                syncs: 1,
                live_bytes: 0,
                overhead_bytes: 0,
            };
            self.gateway.persisted(self.now, persisted);
        }
    }
}

fn put_publish(out: &mut Vec<u8>, routing_key: &str) {
    let publish = basic::Publish {
        exchange: ShortString::default(),
        routing_key: ShortString::try_from(routing_key).unwrap(),
        mandatory: false,
        immediate: false,
    };
    encode_method(out, 1, &publish).unwrap();
}

fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while let Ok(Decoded::Frame { frame, consumed }) = decode(bytes, 1 << 20) {
        found.push(match frame.frame_type {
            FrameType::Method => format!("{} {:?}", frame.channel, frame.method().unwrap()),
            FrameType::Header => {
                format!("{} header of {}", frame.channel, frame.content_header().unwrap().body_bytes)
            }
            FrameType::Body => format!("{} body of {}", frame.channel, frame.payload.len()),
            FrameType::Heartbeat => "heartbeat".to_owned(),
        });
        bytes = bytes.split_at(consumed).1;
    }
    found
}

/// The code with which a frame closes its connection.
fn close_code(frames: &[String]) -> Option<u16> {
    let close = frames.iter().find(|frame| frame.contains("Connection(Close("))?;
    close.split("reply_code: ").nth(1)?.split(',').next()?.parse().ok()
}

fn declare(bench: &mut Bench, id: ConnectionId, name: &str, durable: bool) {
    bench.send(
        id,
        1,
        &queue::Declare {
            queue: name,
            passive: false,
            durable,
            exclusive: false,
            auto_delete: false,
            no_wait: false,
            arguments: FieldTable::EMPTY,
        },
    );
}

/// Consumers may hold more than a queue may have ready; what comes back is held to the bound.
#[test]
fn what_comes_back_to_a_full_queue_makes_the_oldest_go() {
    let mut bench = Bench::new();
    let id = bench.open();
    let mut arguments = FieldTableBuilder::new();
    arguments.push("x-max-length", FieldValue::LongLongInt(2)).unwrap();
    let declare = |passive| queue::Declare {
        queue: "q",
        passive,
        durable: false,
        exclusive: false,
        auto_delete: false,
        no_wait: false,
        arguments: arguments.table(),
    };
    bench.send(id, 1, &declare(false));
    let consume = basic::Consume {
        queue: "q",
        consumer_tag: "c",
        no_local: false,
        no_ack: false,
        exclusive: false,
        no_wait: true,
        arguments: FieldTable::EMPTY,
    };
    bench.send(id, 1, &consume);
    for n in 0..5 {
        bench.publish(id, "q", &[n], false);
    }
    bench.send(id, 1, &basic::Cancel { consumer_tag: "c", no_wait: true });
    bench.send(id, 1, &basic::Nack { delivery_tag: 0, multiple: true, requeue: true });
    bench.take(id);
    bench.send(id, 1, &declare(true));
    let answered = bench.take(id);
    assert!(answered[0].contains("message_count: 2"), "{answered:?}");
}

#[test]
fn broken_frames_close_the_connection_with_their_code_and_no_other() {
    let mut heartbeat_on_1 = Vec::new();
    encode_heartbeat(&mut heartbeat_on_1);
    heartbeat_on_1[2] = 1;
    let mut wrong_end = Vec::new();
    encode_method(&mut wrong_end, 1, &basic::Qos { prefetch_size: 0, prefetch_count: 1, global: false })
        .unwrap();
    *wrong_end.last_mut().unwrap() = 0;
    let mut body_alone = Vec::new();
    encode_body_frame(&mut body_alone, 1, b"x").unwrap();
    let mut header_alone = Vec::new();
    encode_content_header(&mut header_alone, 1, 1, &[0, 0], 4096).unwrap();
    let mut body_for_header = Vec::new();
    put_publish(&mut body_for_header, "q");
    encode_body_frame(&mut body_for_header, 1, b"x").unwrap();
    let mut too_long = Vec::new();
    put_publish(&mut too_long, "q");
    encode_content_header(&mut too_long, 1, 1, &[0, 0], 4096).unwrap();
    encode_body_frame(&mut too_long, 1, b"xy").unwrap();
    let mut interrupted = Vec::new();
    put_publish(&mut interrupted, "q");
    put_publish(&mut interrupted, "q");
    let mut closed_channel = Vec::new();
    encode_method(&mut closed_channel, 9, &basic::RecoverAsync { requeue: true }).unwrap();
    let mut second_open = Vec::new();
    encode_method(&mut second_open, 1, &channel::Open {}).unwrap();
    for (name, bytes, code) in [
        ("unknown frame type", vec![7, 0, 1, 0, 0, 0, 0, 0xce], 501),
        ("frame beyond frame_max", vec![1, 0, 1, 0, 0x10, 0, 0], 501),
        ("wrong end octet", wrong_end, 501),
        ("unknown method", vec![1, 0, 1, 0, 0, 0, 4, 0, 60, 0, 99, 0xce], 503),
        ("heartbeat on a channel", heartbeat_on_1, 505),
        ("body without publish", body_alone, 505),
        ("header without publish", header_alone, 505),
        ("body instead of a header", body_for_header, 505),
        ("body longer than its header says", too_long, 505),
        ("method inside a content", interrupted, 505),
        ("frame on a channel that is not open", closed_channel, 504),
        ("second channel.open", second_open, 504),
    ] {
        let mut bench = Bench::new();
        let (id, other) = (bench.open(), bench.open());
        bench.gateway.receive(NOW, id, &bytes);
        let answered = bench.take(id);
        assert_eq!(close_code(&answered), Some(code), "{name}: {answered:?}");
        declare(&mut bench, other, "untouched", false);
        let answered = bench.take(other);
        assert!(answered[0].starts_with("1 Queue(DeclareOk("), "{name}: {answered:?}");
    }
}

#[test]
fn a_foreign_protocol_is_answered_with_ours() {
    for first in [b"AMQP\x00\x01\x00\x00", b"GET / HT", b"\x10\x0c\x00\x04MQTT"] {
        let mut bench = Bench::new();
        let id = bench.accept();
        bench.gateway.receive(NOW, id, first);
        let output = bench.gateway.output(id).unwrap();
        let mut slices = [std::io::IoSlice::new(&[])];
        assert_eq!(output.slices(&mut slices), 1);
        assert_eq!(&*slices[0], &PROTOCOL_HEADER);
        bench.take(id);
        assert_eq!(bench.closed, [id]);
    }
}

#[test]
fn durable_declarations_and_confirms_wait_for_flash_and_a_burst_is_answered_at_once() {
    let mut bench = Bench::new();
    let id = bench.open();
    declare(&mut bench, id, "q", true);
    // What comes behind is not handled before the reply has left.
    bench.send(id, 1, &confirm::Select { no_wait: false });
    assert!(bench.take(id).is_empty());
    bench.keep();
    let answered = bench.take(id);
    assert!(answered[0].starts_with("1 Queue(DeclareOk("), "{answered:?}");
    assert_eq!(answered[1], "1 Confirm(SelectOk(SelectOk))");
    for n in 0..5 {
        bench.publish(id, "q", &[n], true);
    }
    bench.publish(id, "q", b"transient", false);
    assert!(bench.take(id).is_empty());
    bench.keep();
    assert_eq!(bench.take(id), ["1 Basic(Ack(Ack { delivery_tag: 6, multiple: true }))"]);
}

#[test]
fn publishers_that_want_to_know_are_told_while_the_flash_does_not_take_what_they_send() {
    let mut capabilities = FieldTableBuilder::new();
    capabilities.push("connection.blocked", FieldValue::Boolean(true)).unwrap();
    let mut properties = FieldTableBuilder::new();
    properties.push("capabilities", FieldValue::Table(capabilities.table())).unwrap();
    let mut bench = Bench::new();
    let [publisher, consumer] = [(); 2].map(|()| bench.open_as(properties.table()));
    let old = bench.open();
    declare(&mut bench, publisher, "q", true);
    bench.keep();
    for id in [publisher, old] {
        bench.publish(id, "q", b"x", true);
        bench.keep();
        bench.take(id);
    }
    // Its flash fails: whoever publishes is told once, whoever does not, or does not know the word, is not.
    for _ in 0..2 {
        bench.gateway.store_condition(StoreCondition::Failing("no space".to_owned()));
    }
    let blocked = |reason: &str| format!("0 Connection(Blocked(Blocked {{ reason: \"{reason}\" }}))");
    assert_eq!(bench.take(publisher), [blocked("the flash does not take what it is given")]);
    assert!(bench.take(consumer).is_empty() && bench.take(old).is_empty());
    bench.gateway.store_condition(StoreCondition::Working);
    assert_eq!(bench.take(publisher), ["0 Connection(Unblocked(Unblocked))"]);
    assert!(bench.take(consumer).is_empty() && bench.take(old).is_empty());
    // It is only slow: whoever sent what must wait is told, and told again when it has gone on.
    let body = vec![0; 1 << 20];
    for _ in 0..12 {
        bench.publish(publisher, "q", &body, true);
    }
    assert_eq!(bench.take(publisher), [blocked("the flash must catch up")]);
    bench.keep();
    assert_eq!(bench.take(publisher), ["0 Connection(Unblocked(Unblocked))"]);
    assert!(bench.take(consumer).is_empty() && bench.take(old).is_empty());
}

#[test]
fn after_a_channel_was_closed_its_frames_are_dropped_until_the_answer() {
    let mut bench = Bench::new();
    let id = bench.open();
    bench.send(
        id,
        1,
        &exchange::Declare {
            exchange: "missing",
            kind: "direct",
            passive: true,
            durable: false,
            auto_delete: false,
            internal: false,
            no_wait: false,
            arguments: FieldTable::EMPTY,
        },
    );
    let answered = bench.take(id);
    assert!(
        answered[0].contains("reply_code: 404") && answered[0].contains("class_id: 40, method_id: 10"),
        "{answered:?}"
    );
    bench.publish(id, "q", b"late", false);
    bench.send(id, 1, &basic::Ack { delivery_tag: 3, multiple: true });
    declare(&mut bench, id, "q", false);
    assert!(bench.take(id).is_empty());
    bench.send(id, 1, &channel::CloseOk {});
    bench.send(id, 1, &channel::Open {});
    declare(&mut bench, id, "q", false);
    let answered = bench.take(id);
    assert!(answered[1].contains("message_count: 0"), "{answered:?}");
}

#[test]
fn any_bytes_whatsoever_end_in_an_answer_or_in_waiting() {
    let mut seed = 7u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33).to_le_bytes()[0]
    };
    let mut bench = Bench::new();
    let survivor = bench.open();
    for round in 0..400u32 {
        let id = bench.open();
        let mut bytes = Vec::new();
        for tag in 0..6 {
            let mut good = Vec::new();
            put_publish(&mut good, "q");
            encode_content(&mut good, 1, &[0, 0], b"body", 4096).unwrap();
            encode_method(&mut good, 1, &basic::Nack { delivery_tag: tag, multiple: true, requeue: true })
                .unwrap();
            encode_method(&mut good, 1, &basic::Get { queue: "q", no_ack: false }).unwrap();
            // Flip a few bytes of what would be right.
            for _ in 0..round % 4 {
                let at = usize::from(next()) * 256 + usize::from(next());
                let len = good.len();
                good[at % len] ^= next();
            }
            bytes.extend(good);
        }
        for piece in bytes.chunks(1 + usize::from(next())) {
            bench.gateway.receive(NOW, id, piece);
        }
        bench.take(id);
        bench.gateway.peer_closed(NOW, id);
        bench.gateway.remove(id);
        while bench.gateway.poll_output().is_some() {}
    }
    declare(&mut bench, survivor, "alive", false);
    assert!(!bench.take(survivor).is_empty());
}

#[test]
fn methods_of_servers_are_refused() {
    let mut bench = Bench::new();
    let id = bench.open();
    let mut bytes = Vec::new();
    Method::Queue(queue::Method::BindOk(queue::BindOk {})).encode(&mut bytes, 1).unwrap();
    bench.gateway.receive(NOW, id, &bytes);
    assert_eq!(close_code(&bench.take(id)), Some(503));
}

/// Tables within tables, without end: `depth` of them, each the only value of the one around it.
fn nested(depth: usize) -> Vec<u8> {
    let mut table = Vec::new();
    for _ in 0..depth {
        let mut outer = vec![1, b't', b'F'];
        outer.extend(u32::try_from(table.len()).unwrap().to_be_bytes());
        outer.extend(&table);
        table = outer;
    }
    let mut whole = u32::try_from(table.len()).unwrap().to_be_bytes().to_vec();
    whole.extend(table);
    whole
}

fn raw(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    frame.extend(channel.to_be_bytes());
    frame.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend(payload);
    frame.push(0xce);
    frame
}

#[test]
fn tables_that_are_too_deep_or_of_unknown_types_close_the_connection_alone() {
    // queue.declare q, no bits, then the arguments.
    let declare_with = |table: &[u8]| raw(1, 1, &[&[0, 50, 0, 10, 0, 0, 1, b'q', 0], table].concat());
    let headers_with = |table: &[u8]| {
        let mut bytes = Vec::new();
        put_publish(&mut bytes, "q");
        let header = [&[0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x20, 0], table].concat();
        bytes.extend(raw(2, 1, &header));
        bytes.extend(raw(3, 1, b"x"));
        bytes
    };
    let odd = [0, 0, 0, 4, 1, b'a', b'?', 0];
    for (name, bytes) in [
        ("arguments 500 deep", declare_with(&nested(500))),
        ("headers 500 deep", headers_with(&nested(500))),
        ("arguments of an unknown type", declare_with(&odd)),
        ("headers of an unknown type", headers_with(&odd)),
        ("a table longer than its frame", declare_with(&[0, 0, 1, 0])),
    ] {
        let mut bench = Bench::new();
        let (id, other) = (bench.open(), bench.open());
        bench.gateway.receive(NOW, id, &bytes);
        let answered = bench.take(id);
        assert!(matches!(close_code(&answered), Some(501 | 502)), "{name}: {answered:?}");
        declare(&mut bench, other, "untouched", false);
        assert!(bench.take(other)[0].starts_with("1 Queue(DeclareOk("), "{name}");
    }
    // A thousand levels do not fit the frame of 4096 octets, and a larger one that announces them is not waited for.
    let mut bench = Bench::new();
    let id = bench.open();
    bench.gateway.receive(NOW, id, &declare_with(&nested(1000))[..4000]);
    assert_eq!(close_code(&bench.take(id)), Some(501));
    assert_eq!(bench.gateway.input_bytes(), 0);
}

#[test]
fn a_body_that_is_announced_too_large_is_refused_before_it_comes() {
    for (announced, code) in [(2 * 1024 * 1024 + 1, 406), (u64::MAX, 406)] {
        let mut bench = Bench::new();
        let (id, other) = (bench.open(), bench.open());
        let mut bytes = Vec::new();
        put_publish(&mut bytes, "q");
        encode_content_header(&mut bytes, 1, announced, &[0, 0], 4096).unwrap();
        bench.gateway.receive(NOW, id, &bytes);
        let answered = bench.take(id);
        assert!(answered[0].contains(&format!("reply_code: {code}")), "{answered:?}");
        assert!(answered[0].starts_with("1 Channel(Close("), "{answered:?}");
        for peer in [id, other] {
            bench.send(peer, 2, &channel::Open {});
            assert_eq!(bench.take(peer), ["2 Channel(OpenOk(OpenOk))"]);
        }
    }
}

#[test]
fn input_that_never_becomes_a_frame_takes_no_more_memory_than_a_frame() {
    let mut bench = Bench::new();
    let ids: Vec<_> = (0..20).map(|_| bench.open()).collect();
    for id in &ids {
        // A frame of 4 KiB of which the end never comes, byte by byte.
        bench.gateway.receive(NOW, *id, &[3, 0, 1, 0, 0, 0x0f, 0xf8]);
        for _ in 0..100 {
            bench.gateway.receive(NOW, *id, &[0; 40]);
        }
    }
    assert!(bench.gateway.input_bytes() <= ids.len() * 4200, "{}", bench.gateway.input_bytes());
}
