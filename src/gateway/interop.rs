//! Messages of one protocol as another shows them: the only place where two protocols meet.
//!
//! A message keeps its publisher's encoding; it is converted when another protocol takes it. Addresses need no
//! conversion: they are lists of levels, and each endpoint joins them in its own way. Names and rules between MQTT 5 and
//! AMQP 0-9-1 are those that RabbitMQ publishes:
//!
//! | MQTT 5 | AMQP 0-9-1 |
//! |---|---|
//! | QoS 0; 1 and 2 | delivery-mode 1; 2 |
//! | message expiry interval, seconds | expiration, milliseconds |
//! | content type | content-type, up to 255 bytes |
//! | correlation data | correlation-id if it is text of up to 255 bytes, else header `x-correlation-id` |
//! | response topic | header `x-reply-to-topic`, as a routing key |
//! | user properties | headers: sorted, the last of a name, names up to 128 bytes; back: headers that are text, numbers or truth values, as text |

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::amqp091::codec::{BasicProperties, FieldTableBuilder, FieldValue, ShortString, encode_properties};
use crate::amqp091::{dead_letter_headers, neutral};
use crate::broker::MessageReader;
use crate::message::{Assurance, Message, PROPERTIES_AMQP091, PROPERTIES_MQTT5, Value, swap_separators};
use crate::mqtt::codec::{Properties, PropertyId, PropertyList};
use crate::mqtt::topic::TopicName;

/// How the broker reads messages of all protocols.
pub(super) const READER: MessageReader = MessageReader { header, property };

/// Correlation data that is no short string.
const CORRELATION_HEADER: &str = "x-correlation-id";
/// Where the answer to a request of MQTT is published.
const RESPONSE_HEADER: &str = "x-reply-to-topic";
/// Names of AMQP's header fields have no more.
const HEADER_NAME_BYTES_MAX: usize = 128;

/// Flags and properties of AMQP's class basic for a message of any protocol. A message of AMQP has them as they came,
/// byte for byte, unless it died on its way.
pub(super) fn amqp091_properties(message: &Message) -> Cow<'_, [u8]> {
    let own = match message.properties.split_first() {
        Some((&PROPERTIES_AMQP091, properties)) => Cow::Borrowed(properties),
        _ => Cow::Owned(to_amqp091(message)),
    };
    match &message.annotations {
        Some(annotations) if !annotations.deaths.is_empty() => {
            dead_letter_headers(&own, annotations).map_or(own, Cow::Owned)
        }
        _ => own,
    }
}

/// Properties of MQTT 5 that a message of any protocol has, without those that its endpoint adds.
pub(super) fn mqtt5_properties(message: &Message) -> Cow<'_, [u8]> {
    match message.properties.split_first() {
        Some((&PROPERTIES_MQTT5, properties)) => Cow::Borrowed(properties),
        Some((&PROPERTIES_AMQP091, properties)) => Cow::Owned(to_mqtt5(properties)),
        _ => Cow::Borrowed(&[]),
    }
}

/// What a message of MQTT says in AMQP: QoS 1 and 2 promise what delivery mode 2 promises.
fn to_amqp091(message: &Message) -> Vec<u8> {
    let properties = mqtt5_of(message).unwrap_or_default();
    let short =
        |text: &[u8]| std::str::from_utf8(text).is_ok_and(|text| text.len() < 256 && !text.contains('\0'));
    let content_type = properties.text(PropertyId::ContentType).filter(|text| short(text.as_bytes()));
    let correlation = properties.data(PropertyId::CorrelationData);
    let correlation_id = correlation.filter(|data| short(data));
    let response_topic = properties.text(PropertyId::ResponseTopic).map(swap_separators);
    let mut headers: BTreeMap<&str, &[u8]> = BTreeMap::new();
    for (name, value) in properties.user_properties().filter(|(name, _)| name.len() <= HEADER_NAME_BYTES_MAX)
    {
        headers.insert(name, value.as_bytes());
    }
    if let Some(correlation) = correlation.filter(|data| !short(data)) {
        headers.insert(CORRELATION_HEADER, correlation);
    }
    if let Some(response_topic) = &response_topic {
        headers.insert(RESPONSE_HEADER, response_topic.as_bytes());
    }
    let mut table = FieldTableBuilder::new();
    for (name, value) in &headers {
        // Names are short, and values come from fields of at most 65 535 bytes.
        let _fits = table.push(name, FieldValue::LongString(value));
    }
    let expiration = message.time_to_live_ms.map(|ms| ms.to_string());
    let basic = BasicProperties {
        content_type: content_type.and_then(|text| ShortString::try_from(text).ok()),
        headers: (!headers.is_empty()).then(|| table.table()),
        delivery_mode: Some(if message.assurance == Assurance::AtMostOnce { 1 } else { 2 }),
        correlation_id: correlation_id.and_then(|data| ShortString::new(data).ok()),
        expiration: expiration.as_deref().and_then(|text| ShortString::try_from(text).ok()),
        ..BasicProperties::default()
    };
    let mut out = Vec::new();
    // Each part was made to fit.
    let _fits = encode_properties(&mut out, &basic);
    out
}

/// What properties of AMQP's class basic say in MQTT 5. The expiry is the message's own.
fn to_mqtt5(encoded: &[u8]) -> Vec<u8> {
    let Ok(basic) = BasicProperties::decode(encoded) else { return Vec::new() };
    let mut list = PropertyList::new();
    if let Some(content_type) = text(basic.content_type) {
        list.text(PropertyId::ContentType, content_type);
    }
    let header = |name: &str| match basic.headers.and_then(|headers| headers.find(name)) {
        Some(FieldValue::LongString(bytes) | FieldValue::ByteArray(bytes)) => Some(bytes),
        _ => None,
    };
    if let Some(response) = header(RESPONSE_HEADER).and_then(|bytes| std::str::from_utf8(bytes).ok()) {
        let topic = swap_separators(response);
        if TopicName::parse(&topic).is_ok() {
            list.text(PropertyId::ResponseTopic, &topic);
        }
    }
    let correlation = basic.correlation_id.map(ShortString::as_bytes);
    if let Some(correlation) = correlation.or_else(|| header(CORRELATION_HEADER)) {
        list.data(PropertyId::CorrelationData, correlation);
    }
    for (name, value) in basic.headers.into_iter().flat_map(|headers| headers.iter()) {
        let Some(name) =
            text(Some(name)).filter(|name| ![RESPONSE_HEADER, CORRELATION_HEADER].contains(name))
        else {
            continue;
        };
        if let Some(value) = scalar_text(value) {
            list.user_property(name, &value);
        }
    }
    list.into_bytes()
}

/// A header's value as text: no value is the empty text. Tables, arrays and bytes that are marked as such have none, nor has
/// what is no text.
fn scalar_text(value: FieldValue<'_>) -> Option<Cow<'_, str>> {
    Some(match value {
        FieldValue::Void => Cow::Borrowed(""),
        FieldValue::LongString(bytes) => {
            Cow::Borrowed(std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?)
        }
        FieldValue::Boolean(value) => Cow::Borrowed(if value { "true" } else { "false" }),
        FieldValue::Float(value) => Cow::Owned(value.to_string()),
        FieldValue::Double(value) => Cow::Owned(value.to_string()),
        FieldValue::Timestamp(seconds) => Cow::Owned(seconds.to_string()),
        FieldValue::ByteArray(_)
        | FieldValue::Decimal { .. }
        | FieldValue::Array(_)
        | FieldValue::Table(_) => {
            return None;
        }
        number => Cow::Owned(number.as_integer()?.to_string()),
    })
}

/// A short string that MQTT may carry.
fn text(value: Option<ShortString<'_>>) -> Option<&str> {
    value?.as_str().filter(|text| !text.contains('\0'))
}

fn header(message: &Message, name: &str) -> Option<Value> {
    if let Some(properties) = mqtt5_of(message) {
        let found = properties.user_properties().filter(|(found, _)| *found == name).last();
        return found.map(|(_, value)| Value::Bytes(value.as_bytes().into()));
    }
    let properties = amqp091_of(message)?;
    properties.headers?.find(name).map(neutral)
}

fn property(message: &Message, name: &str) -> Option<Value> {
    if let Some(properties) = mqtt5_of(message) {
        return match name {
            "correlation_id" => {
                properties.data(PropertyId::CorrelationData).map(|data| Value::Bytes(data.into()))
            }
            _ => None,
        };
    }
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

fn mqtt5_of(message: &Message) -> Option<Properties<'_>> {
    match message.properties.split_first() {
        Some((&PROPERTIES_MQTT5, properties)) => Some(Properties::from_checked(properties)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn of_mqtt(list: PropertyList) -> Message {
        let mut properties = vec![PROPERTIES_MQTT5];
        properties.extend(list.into_bytes());
        Message {
            assurance: Assurance::AtLeastOnce,
            properties: properties.into(),
            time_to_live_ms: Some(60_000),
            ..Message::default()
        }
    }

    fn of_amqp(basic: &BasicProperties<'_>) -> Message {
        let mut properties = vec![PROPERTIES_AMQP091];
        encode_properties(&mut properties, basic).expect("they fit");
        Message { properties: properties.into(), ..Message::default() }
    }

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
    fn properties_of_each_protocol_are_handed_on_byte_for_byte() {
        let properties = Bytes::from_static(b"\x02\x80\x00\x0atext/plain");
        let message = Message { properties, ..Message::default() };
        assert_eq!(&*amqp091_properties(&message), b"\x80\x00\x0atext/plain");
        let mut list = PropertyList::new();
        list.user_property("b", "1").user_property("a", "2").user_property("b", "3");
        assert_eq!(&*mqtt5_properties(&of_mqtt(list.clone())), list.as_properties().as_bytes());
    }

    #[test]
    fn properties_of_mqtt_have_rabbitmqs_names_in_amqp() {
        let mut list = PropertyList::new();
        list.number(PropertyId::PayloadFormatIndicator, 1)
            .text(PropertyId::ContentType, "application/json")
            .text(PropertyId::ResponseTopic, "answers/to.me")
            .data(PropertyId::CorrelationData, b"request 7")
            .user_property("site", "first")
            .user_property("b", "2")
            .user_property("site", "last")
            .user_property(&"n".repeat(129), "too long a name");
        let message = of_mqtt(list);
        let encoded = amqp091_properties(&message);
        let basic = BasicProperties::decode(&encoded).expect("properties");
        assert_eq!(basic.content_type.and_then(ShortString::as_str), Some("application/json"));
        assert_eq!(basic.correlation_id.map(ShortString::as_bytes), Some(&b"request 7"[..]));
        assert_eq!(basic.expiration.and_then(ShortString::as_str), Some("60000"));
        let headers: Vec<_> = basic
            .headers
            .expect("headers")
            .iter()
            .map(|(name, value)| format!("{name}={}", value.as_text().expect("text")))
            .collect();
        assert_eq!(headers, ["b=2", "site=last", "x-reply-to-topic=answers.to/me"]);
        assert_eq!(header(&message, "site"), Some(Value::Bytes(b"last".as_slice().into())));
        assert_eq!(property(&message, "correlation_id"), Some(Value::Bytes(b"request 7".as_slice().into())));
    }

    #[test]
    fn correlation_data_that_is_no_short_string_goes_into_a_header_and_back() {
        for data in [&b"\xff\x00"[..], &[b'x'; 256]] {
            let mut list = PropertyList::new();
            list.data(PropertyId::CorrelationData, data);
            let message = of_mqtt(list);
            let encoded = amqp091_properties(&message).into_owned();
            let basic = BasicProperties::decode(&encoded).expect("properties");
            assert_eq!(basic.correlation_id, None);
            let back = mqtt5_properties(&of_amqp(&basic)).into_owned();
            assert_eq!(Properties::from_checked(&back).data(PropertyId::CorrelationData), Some(data));
        }
    }

    #[test]
    fn headers_of_amqp_are_user_properties_of_mqtt_as_text() {
        let mut inner = FieldTableBuilder::new();
        inner.push("x", FieldValue::Boolean(true)).expect("it fits");
        let mut table = FieldTableBuilder::new();
        for (name, value) in [
            ("text", FieldValue::LongString(b"t")),
            ("number", FieldValue::LongInt(-7)),
            ("flag", FieldValue::Boolean(true)),
            ("half", FieldValue::Double(0.5)),
            ("nothing", FieldValue::Void),
            ("bytes", FieldValue::ByteArray(b"t")),
            ("nested", FieldValue::Table(inner.table())),
            ("x-reply-to-topic", FieldValue::LongString(b"a.b/c")),
        ] {
            table.push(name, value).expect("it fits");
        }
        let basic = BasicProperties {
            content_type: ShortString::try_from("text/plain").ok(),
            headers: Some(table.table()),
            correlation_id: ShortString::try_from("id").ok(),
            ..BasicProperties::default()
        };
        let message = of_amqp(&basic);
        let encoded = mqtt5_properties(&message);
        let properties = Properties::from_checked(&encoded);
        assert_eq!(properties.text(PropertyId::ContentType), Some("text/plain"));
        assert_eq!(properties.text(PropertyId::ResponseTopic), Some("a/b.c"));
        assert_eq!(properties.data(PropertyId::CorrelationData), Some(&b"id"[..]));
        let user: Vec<_> = properties.user_properties().collect();
        assert_eq!(
            user,
            [("text", "t"), ("number", "-7"), ("flag", "true"), ("half", "0.5"), ("nothing", "")]
        );
    }
}
