//! Messages of one protocol as another shows them: the only place where two protocols meet.
//!
//! A message keeps its publisher's encoding; it is converted when another protocol takes it. Addresses need no
//! conversion: they are lists of levels, and each endpoint joins them in its own way.

use std::borrow::Cow;

use crate::amqp091::codec::{BasicProperties, FieldValue, encode_properties};
use crate::amqp091::{dead_letter_headers, neutral};
use crate::broker::MessageReader;
use crate::message::{Assurance, Message, PROPERTIES_AMQP091, Value};

/// How the broker reads messages of all protocols.
pub(super) const READER: MessageReader = MessageReader { header, property };

/// Flags and properties of AMQP's class basic for a message of any protocol. A message of AMQP has them as they came,
/// byte for byte, unless it died on its way.
pub(super) fn amqp091_properties(message: &Message) -> Cow<'_, [u8]> {
    let own = match message.properties.split_first() {
        Some((&PROPERTIES_AMQP091, properties)) => Cow::Borrowed(properties),
        _ => Cow::Owned(converted(message)),
    };
    match &message.annotations {
        Some(annotations) if !annotations.deaths.is_empty() => {
            dead_letter_headers(&own, annotations).map_or(own, Cow::Owned)
        }
        _ => own,
    }
}

/// What a message without properties of its own says in AMQP: QoS 1 and 2 promise what delivery mode 2 promises.
fn converted(message: &Message) -> Vec<u8> {
    let delivery_mode = if message.assurance == Assurance::AtMostOnce { 1 } else { 2 };
    let properties = BasicProperties { delivery_mode: Some(delivery_mode), ..BasicProperties::default() };
    let mut out = Vec::new();
    // One octet always fits.
    let _fits = encode_properties(&mut out, &properties);
    out
}

fn header(message: &Message, name: &str) -> Option<Value> {
    let properties = amqp091_of(message)?;
    properties.headers?.find(name).map(neutral)
}

fn property(message: &Message, name: &str) -> Option<Value> {
    let properties = amqp091_of(message)?;
    let text = match name {
        "correlation_id" => properties.correlation_id?,
        "message_id" => properties.message_id?,
        "timestamp" => return Some(neutral(FieldValue::Timestamp(properties.timestamp?))),
        _ => return None,
    };
    Some(Value::Bytes(text.as_bytes().into()))
}

fn amqp091_of(message: &Message) -> Option<BasicProperties<'_>> {
    match message.properties.split_first() {
        Some((&PROPERTIES_AMQP091, properties)) => BasicProperties::decode(properties).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_promise_of_mqtt_is_a_persistent_message_of_amqp() {
        for (assurance, delivery_mode) in
            [(Assurance::AtMostOnce, 1), (Assurance::AtLeastOnce, 2), (Assurance::ExactlyOnce, 2)]
        {
            let message = Message { assurance, ..Message::default() };
            let encoded = amqp091_properties(&message);
            let properties = BasicProperties::decode(&encoded).expect("properties");
            assert_eq!(properties.delivery_mode, Some(delivery_mode));
        }
    }

    #[test]
    fn properties_of_amqp_are_handed_on_byte_for_byte() {
        let properties = Bytes::from_static(b"\x02\x80\x00\x0atext/plain");
        let message = Message { properties, ..Message::default() };
        assert_eq!(&*amqp091_properties(&message), b"\x80\x00\x0atext/plain");
    }
}
