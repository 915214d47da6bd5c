//! The crate `amq-protocol` reads and writes the same AMQP 0-9-1 as we do, or we are stricter for a reason that stands
//! here.

use amq_protocol::frame::{AMQPFrame, WriteContext, gen_frame, parse_frame};
use amq_protocol::protocol::{
    AMQPClass, access, basic as theirs_basic, channel, connection, exchange, queue,
};
use gatewayd::amqp091::codec::method::{self, basic};
use gatewayd::amqp091::codec::{
    Decoded, FieldTable, Frame, FrameType, Method, ProtocolError, ShortString, decode,
};

use crate::amqp_frames::{frame, names_are_text};
use crate::amqp_properties::{encode_again, mend_size};
use crate::mutate::mutate;
use crate::random::{Random, seed};

const ROUNDS: usize = 10_000;

fn parsed(input: &[u8]) -> Option<AMQPFrame> {
    parse_frame(input).ok().map(|(_, frame)| frame)
}

fn generated(frame: &AMQPFrame) -> Vec<u8> {
    gen_frame(frame)(WriteContext::from(Vec::new())).unwrap().into_inner().0
}

/// The foreign codec drops two arguments that it calls reserved.
fn keeps_all(input: &[u8]) -> bool {
    !matches!(input.get(7..11), Some([0, 60, 0, 10] | [0, 30, 0, 11]))
}

#[test]
fn an_independent_codec_reads_our_bytes_and_writes_the_same() {
    let mut random = Random::new(seed("CODEC_SEED", 31));
    for _ in 0..ROUNDS {
        let input = frame(&mut random);
        let theirs = parsed(&input).unwrap_or_else(|| panic!("refused: {input:02x?}"));
        if keeps_all(&input) {
            assert_eq!(generated(&theirs), input);
        }
    }
}

/// The foreign codec wants all short strings to be UTF-8. So do we, but for those that go along with a message.
fn is_text(frame: &Frame<'_>) -> bool {
    let text = |strings: &[ShortString<'_>]| strings.iter().all(|string| string.as_str().is_some());
    match frame.frame_type {
        FrameType::Heartbeat | FrameType::Body => true,
        FrameType::Header => {
            let properties = frame.content_header().unwrap().properties;
            let strings = [
                properties.content_type,
                properties.content_encoding,
                properties.correlation_id,
                properties.reply_to,
                properties.expiration,
                properties.message_id,
                properties.kind,
                properties.user_id,
                properties.app_id,
                properties.cluster_id,
            ];
            strings.into_iter().flatten().all(|string| text(&[string]))
                && properties.headers.is_none_or(names_are_text)
        }
        FrameType::Method => match frame.method().unwrap() {
            Method::Basic(basic::Method::Publish(m)) => text(&[m.exchange, m.routing_key]),
            Method::Basic(basic::Method::Return(m)) => text(&[m.reply_text, m.exchange, m.routing_key]),
            Method::Basic(basic::Method::Deliver(m)) => text(&[m.consumer_tag, m.exchange, m.routing_key]),
            Method::Basic(basic::Method::GetOk(m)) => text(&[m.exchange, m.routing_key]),
            Method::Basic(basic::Method::Consume(m)) => names_are_text(m.arguments),
            Method::Connection(method::connection::Method::Start(m)) => names_are_text(m.server_properties),
            Method::Connection(method::connection::Method::StartOk(m)) => names_are_text(m.client_properties),
            Method::Exchange(method::exchange::Method::Declare(m)) => names_are_text(m.arguments),
            Method::Exchange(method::exchange::Method::Bind(m)) => names_are_text(m.arguments),
            Method::Exchange(method::exchange::Method::Unbind(m)) => names_are_text(m.arguments),
            Method::Queue(method::queue::Method::Declare(m)) => names_are_text(m.arguments),
            Method::Queue(method::queue::Method::Bind(m)) => names_are_text(m.arguments),
            Method::Queue(method::queue::Method::Unbind(m)) => names_are_text(m.arguments),
            _ => true,
        },
    }
}

/// What we refuse and the foreign codec takes.
const STRICTER: [&str; 6] = [
    "content header of a class other than basic",
    "content header with a weight",
    "content on channel 0",
    "heartbeat with a payload",
    "heartbeat on a channel other than 0",
    "property flags beyond those of class basic",
];

fn read(input: &[u8]) -> Result<Option<(Frame<'_>, Vec<u8>)>, ProtocolError> {
    let Decoded::Frame { frame, .. } = decode(input, usize::MAX)? else { return Ok(None) };
    match frame.frame_type {
        FrameType::Method => drop(frame.method()?),
        FrameType::Header => drop(frame.content_header()?),
        FrameType::Body | FrameType::Heartbeat => {}
    }
    Ok(Some((frame, encode_again(&frame).expect("was read just now"))))
}

#[test]
fn an_independent_codec_agrees_on_damaged_frames() {
    let mut random = Random::new(seed("CODEC_SEED", 32));
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..ROUNDS * 2 {
        let mut input = frame(&mut random);
        mutate(&mut random, &mut input);
        mend_size(&mut random, &mut input);
        match read(&input) {
            Ok(None) => {}
            Ok(Some((frame, _))) if !is_text(&frame) => {}
            Ok(Some((frame, again))) => {
                // As text, since a damaged float may be no number and then equals nothing.
                let theirs = parsed(&input).map(|frame| format!("{frame:?}"));
                assert!(theirs.is_some(), "accepted alone: {frame:?}");
                assert_eq!(parsed(&again).map(|frame| format!("{frame:?}")), theirs);
                accepted += 1;
            }
            Err(error) => {
                let known = STRICTER.contains(&error.detail);
                assert!(known || parsed(&input).is_none(), "refused alone with {error}: {input:02x?}");
                refused += 1;
            }
        }
    }
    assert!(accepted > ROUNDS / 4 && refused > ROUNDS / 4, "compared only {accepted} and {refused}");
}

/// What a foreign client writes under a name is what we read under it. Only methods with several arguments of one
/// type can be confused.
fn check(theirs: AMQPClass, ours: &Method<'_>) {
    let bytes = generated(&AMQPFrame::Method(1, theirs));
    let Ok(Decoded::Frame { frame, .. }) = decode(&bytes, usize::MAX) else { panic!("{bytes:02x?}") };
    assert_eq!(frame.method().as_ref(), Ok(ours));
    let mut again = Vec::new();
    ours.encode(&mut again, 1).unwrap();
    assert_eq!(again, bytes);
}

fn short(text: &str) -> ShortString<'_> {
    ShortString::try_from(text).unwrap()
}

#[test]
fn strings_and_numbers_of_one_type_are_not_confused() {
    check(
        AMQPClass::Connection(connection::AMQPMethod::StartOk(connection::StartOk {
            client_properties: Default::default(),
            mechanism: "PLAIN".into(),
            response: "\0guest\0guest".into(),
            locale: "en_US".into(),
        })),
        &Method::Connection(method::connection::Method::StartOk(method::connection::StartOk {
            client_properties: FieldTable::EMPTY,
            mechanism: "PLAIN",
            response: gatewayd::amqp091::codec::LongString(b"\0guest\0guest"),
            locale: "en_US",
        })),
    );
    check(
        AMQPClass::Connection(connection::AMQPMethod::TuneOk(connection::TuneOk {
            channel_max: 2047,
            frame_max: 131_072,
            heartbeat: 60,
        })),
        &Method::Connection(method::connection::Method::TuneOk(method::connection::TuneOk {
            channel_max: 2047,
            frame_max: 131_072,
            heartbeat: 60,
        })),
    );
    check(
        AMQPClass::Channel(channel::AMQPMethod::Close(channel::Close {
            reply_code: 404,
            reply_text: "NOT_FOUND".into(),
            class_id: 50,
            method_id: 10,
        })),
        &Method::Channel(method::channel::Method::Close(method::channel::Close {
            reply_code: 404,
            reply_text: "NOT_FOUND",
            class_id: 50,
            method_id: 10,
        })),
    );
    check(
        AMQPClass::Exchange(exchange::AMQPMethod::Bind(exchange::Bind {
            destination: "to".into(),
            source: "from".into(),
            routing_key: "key".into(),
            nowait: true,
            arguments: Default::default(),
        })),
        &Method::Exchange(method::exchange::Method::Bind(method::exchange::Bind {
            destination: "to",
            source: "from",
            routing_key: "key",
            no_wait: true,
            arguments: FieldTable::EMPTY,
        })),
    );
    check(
        AMQPClass::Exchange(exchange::AMQPMethod::Unbind(exchange::Unbind {
            destination: "to".into(),
            source: "from".into(),
            routing_key: "key".into(),
            nowait: false,
            arguments: Default::default(),
        })),
        &Method::Exchange(method::exchange::Method::Unbind(method::exchange::Unbind {
            destination: "to",
            source: "from",
            routing_key: "key",
            no_wait: false,
            arguments: FieldTable::EMPTY,
        })),
    );
    check(
        AMQPClass::Queue(queue::AMQPMethod::DeclareOk(queue::DeclareOk {
            queue: "q".into(),
            message_count: 3,
            consumer_count: 4,
        })),
        &Method::Queue(method::queue::Method::DeclareOk(method::queue::DeclareOk {
            queue: "q",
            message_count: 3,
            consumer_count: 4,
        })),
    );
    check(
        AMQPClass::Queue(queue::AMQPMethod::Bind(queue::Bind {
            queue: "q".into(),
            exchange: "e".into(),
            routing_key: "key".into(),
            nowait: true,
            arguments: Default::default(),
        })),
        &Method::Queue(method::queue::Method::Bind(method::queue::Bind {
            queue: "q",
            exchange: "e",
            routing_key: "key",
            no_wait: true,
            arguments: FieldTable::EMPTY,
        })),
    );
    check(
        AMQPClass::Queue(queue::AMQPMethod::Unbind(queue::Unbind {
            queue: "q".into(),
            exchange: "e".into(),
            routing_key: "key".into(),
            arguments: Default::default(),
        })),
        &Method::Queue(method::queue::Method::Unbind(method::queue::Unbind {
            queue: "q",
            exchange: "e",
            routing_key: "key",
            arguments: FieldTable::EMPTY,
        })),
    );
    check(
        AMQPClass::Basic(theirs_basic::AMQPMethod::Return(theirs_basic::Return {
            reply_code: 312,
            reply_text: "NO_ROUTE".into(),
            exchange: "e".into(),
            routing_key: "key".into(),
        })),
        &Method::Basic(basic::Method::Return(basic::Return {
            reply_code: 312,
            reply_text: short("NO_ROUTE"),
            exchange: short("e"),
            routing_key: short("key"),
        })),
    );
    check(
        AMQPClass::Basic(theirs_basic::AMQPMethod::Deliver(theirs_basic::Deliver {
            consumer_tag: "tag".into(),
            delivery_tag: 9,
            redelivered: true,
            exchange: "e".into(),
            routing_key: "key".into(),
        })),
        &Method::Basic(basic::Method::Deliver(basic::Deliver {
            consumer_tag: short("tag"),
            delivery_tag: 9,
            redelivered: true,
            exchange: short("e"),
            routing_key: short("key"),
        })),
    );
    check(
        AMQPClass::Basic(theirs_basic::AMQPMethod::GetOk(theirs_basic::GetOk {
            delivery_tag: 9,
            redelivered: false,
            exchange: "e".into(),
            routing_key: "key".into(),
            message_count: 5,
        })),
        &Method::Basic(basic::Method::GetOk(basic::GetOk {
            delivery_tag: 9,
            redelivered: false,
            exchange: short("e"),
            routing_key: short("key"),
            message_count: 5,
        })),
    );
}

#[test]
fn flags_are_not_confused() {
    // One flag is set at a time.
    for at in 0..5 {
        let set = |flag: usize| flag == at;
        check(
            AMQPClass::Exchange(exchange::AMQPMethod::Declare(exchange::Declare {
                exchange: "e".into(),
                kind: "topic".into(),
                passive: set(0),
                durable: set(1),
                auto_delete: set(2),
                internal: set(3),
                nowait: set(4),
                arguments: Default::default(),
            })),
            &Method::Exchange(method::exchange::Method::Declare(method::exchange::Declare {
                exchange: "e",
                kind: "topic",
                passive: set(0),
                durable: set(1),
                auto_delete: set(2),
                internal: set(3),
                no_wait: set(4),
                arguments: FieldTable::EMPTY,
            })),
        );
        check(
            AMQPClass::Queue(queue::AMQPMethod::Declare(queue::Declare {
                queue: "q".into(),
                passive: set(0),
                durable: set(1),
                exclusive: set(2),
                auto_delete: set(3),
                nowait: set(4),
                arguments: Default::default(),
            })),
            &Method::Queue(method::queue::Method::Declare(method::queue::Declare {
                queue: "q",
                passive: set(0),
                durable: set(1),
                exclusive: set(2),
                auto_delete: set(3),
                no_wait: set(4),
                arguments: FieldTable::EMPTY,
            })),
        );
        check(
            AMQPClass::Access(access::AMQPMethod::Request(access::Request {
                realm: "/data".into(),
                exclusive: set(0),
                passive: set(1),
                active: set(2),
                write: set(3),
                read: set(4),
            })),
            &Method::Access(method::access::Method::Request(method::access::Request {
                realm: "/data",
                exclusive: set(0),
                passive: set(1),
                active: set(2),
                write: set(3),
                read: set(4),
            })),
        );
        check(
            AMQPClass::Basic(theirs_basic::AMQPMethod::Consume(theirs_basic::Consume {
                queue: "q".into(),
                consumer_tag: "tag".into(),
                no_local: set(0),
                no_ack: set(1),
                exclusive: set(2),
                nowait: set(3),
                arguments: Default::default(),
            })),
            &Method::Basic(basic::Method::Consume(basic::Consume {
                queue: "q",
                consumer_tag: "tag",
                no_local: set(0),
                no_ack: set(1),
                exclusive: set(2),
                no_wait: set(3),
                arguments: FieldTable::EMPTY,
            })),
        );
        check(
            AMQPClass::Basic(theirs_basic::AMQPMethod::Publish(theirs_basic::Publish {
                exchange: "e".into(),
                routing_key: "key".into(),
                mandatory: set(0),
                immediate: set(1),
            })),
            &Method::Basic(basic::Method::Publish(basic::Publish {
                exchange: short("e"),
                routing_key: short("key"),
                mandatory: set(0),
                immediate: set(1),
            })),
        );
        check(
            AMQPClass::Basic(theirs_basic::AMQPMethod::Nack(theirs_basic::Nack {
                delivery_tag: 1,
                multiple: set(0),
                requeue: set(1),
            })),
            &Method::Basic(basic::Method::Nack(basic::Nack {
                delivery_tag: 1,
                multiple: set(0),
                requeue: set(1),
            })),
        );
        check(
            AMQPClass::Queue(queue::AMQPMethod::Delete(queue::Delete {
                queue: "q".into(),
                if_unused: set(0),
                if_empty: set(1),
                nowait: set(2),
            })),
            &Method::Queue(method::queue::Method::Delete(method::queue::Delete {
                queue: "q",
                if_unused: set(0),
                if_empty: set(1),
                no_wait: set(2),
            })),
        );
        check(
            AMQPClass::Exchange(exchange::AMQPMethod::Delete(exchange::Delete {
                exchange: "e".into(),
                if_unused: set(0),
                nowait: set(1),
            })),
            &Method::Exchange(method::exchange::Method::Delete(method::exchange::Delete {
                exchange: "e",
                if_unused: set(0),
                no_wait: set(1),
            })),
        );
    }
}

/// Each property under its name, one at a time, against the foreign view of it.
#[test]
fn properties_are_not_confused() {
    let mut random = Random::new(seed("CODEC_SEED", 33));
    for _ in 0..ROUNDS / 10 {
        let input = frame(&mut random);
        let Ok(Decoded::Frame { frame, .. }) = decode(&input, usize::MAX) else { panic!("{input:02x?}") };
        let (FrameType::Header, Some(AMQPFrame::Header(_, theirs))) = (frame.frame_type, parsed(&input))
        else {
            continue;
        };
        let header = frame.content_header().unwrap();
        assert_eq!(header.body_bytes, theirs.body_size);
        let (ours, theirs) = (header.properties, theirs.properties);
        for (ours, theirs) in [
            (ours.content_type, theirs.content_type()),
            (ours.content_encoding, theirs.content_encoding()),
            (ours.correlation_id, theirs.correlation_id()),
            (ours.reply_to, theirs.reply_to()),
            (ours.expiration, theirs.expiration()),
            (ours.message_id, theirs.message_id()),
            (ours.kind, theirs.kind()),
            (ours.user_id, theirs.user_id()),
            (ours.app_id, theirs.app_id()),
            (ours.cluster_id, theirs.cluster_id()),
        ] {
            assert_eq!(ours.and_then(ShortString::as_str), theirs.as_ref().map(|text| text.as_str()));
        }
        assert_eq!(ours.delivery_mode, *theirs.delivery_mode());
        assert_eq!(ours.priority, *theirs.priority());
        assert_eq!(ours.timestamp, *theirs.timestamp());
        let names =
            |table: FieldTable<'_>| table.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
        let foreign_names = theirs
            .headers()
            .as_ref()
            .map(|table| table.inner().keys().map(|name| name.as_str().to_owned()).collect::<Vec<_>>());
        assert_eq!(ours.headers.map(names), foreign_names);
    }
}
