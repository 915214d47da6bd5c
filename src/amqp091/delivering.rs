//! Deliveries, returns and the answers to basic.get on their way out, and the headers that tell of a message's deaths.

use super::channel::Channel;
use super::codec::method::basic;
use super::codec::{
    Arguments, BasicProperties, FRAME_END, FRAME_OVERHEAD_BYTES, FieldArrayBuilder, FieldTable,
    FieldTableBuilder, FieldValue, ReplyCode, ShortString, encode_body_frame, encode_body_frame_head,
    encode_content_header, encode_method, encode_properties,
};
use super::link::{Link, PropertiesOf};
use super::settling::Unsettled;
use crate::broker::{Delivery, Got};
use crate::message::{Annotations, Death, DeathReason, Message, swap_separators};
use crate::output::SHARED_BYTES_MIN;

impl Channel {
    /// Sends a delivery. False when its consumer is gone.
    pub(super) fn deliver(&mut self, link: &mut Link, delivery: &Delivery, properties: &[u8]) -> bool {
        let Some(consumer_tag) = self.handles.get(&delivery.consumer) else { return false };
        self.last_delivery_tag += 1;
        let tag = self.last_delivery_tag;
        if delivery.tag != 0 {
            let unsettled = Unsettled { tag, queue: delivery.queue, number: delivery.tag, credited: true };
            self.unsettled.push_back(unsettled);
        }
        let message = &delivery.held.message;
        let routing_key = swap_separators(&message.address);
        let deliver = basic::Deliver {
            consumer_tag: short(consumer_tag),
            delivery_tag: tag,
            redelivered: delivery.redelivered,
            exchange: short(exchange_of(message)),
            routing_key: short(&routing_key),
        };
        if delivery.returns > 0 {
            let counted = with_delivery_count(properties, delivery.returns);
            send_content(link, self.number, &deliver, counted.as_deref().unwrap_or(properties), message);
        } else {
            send_content(link, self.number, &deliver, properties, message);
        }
        true
    }
}

pub(super) fn send_got(link: &mut Link, channel: u16, tag: u64, got: &Got, properties: PropertiesOf) {
    let message = &got.held.message;
    let routing_key = swap_separators(&message.address);
    let get_ok = basic::GetOk {
        delivery_tag: tag,
        redelivered: got.redelivered,
        exchange: short(exchange_of(message)),
        routing_key: short(&routing_key),
        message_count: u32::try_from(got.ready).unwrap_or(u32::MAX),
    };
    let encoded = properties(message);
    let counted = if got.returns > 0 { with_delivery_count(&encoded, got.returns) } else { None };
    send_content(link, channel, &get_ok, counted.as_deref().unwrap_or(&encoded), message);
}

pub(super) fn send_return(link: &mut Link, channel: u16, message: &Message, properties: &[u8]) {
    let routing_key = swap_separators(&message.address);
    let returned = basic::Return {
        reply_code: ReplyCode::NoRoute.number(),
        reply_text: short("NO_ROUTE"),
        exchange: short(exchange_of(message)),
        routing_key: short(&routing_key),
    };
    send_content(link, channel, &returned, properties, message);
}

fn exchange_of(message: &Message) -> &str {
    message.exchange.as_deref().unwrap_or("amq.topic")
}

/// The short string of a text that came as one.
fn short(text: &str) -> ShortString<'_> {
    ShortString::try_from(text).unwrap_or_default()
}

/// A method with its content. Large bodies are not copied but shared.
fn send_content(
    link: &mut Link,
    channel: u16,
    method: &impl Arguments,
    properties: &[u8],
    message: &Message,
) {
    let frame_bytes_max = link.frame_bytes_max;
    let body = &message.body;
    let piece_bytes = frame_bytes_max.saturating_sub(FRAME_OVERHEAD_BYTES).max(1);
    let smaller;
    let properties = if properties.len() + HEADER_BYTES > frame_bytes_max {
        smaller = without_headers(properties);
        if smaller.len() + HEADER_BYTES > frame_bytes_max { NO_PROPERTIES } else { &smaller }
    } else {
        properties
    };
    link.output.append(|out| {
        let _fits = encode_method(out, channel, method);
        let _fits = encode_content_header(out, channel, body.len() as u64, properties, frame_bytes_max);
        if body.len() < SHARED_BYTES_MIN {
            for piece in body.chunks(piece_bytes) {
                let _fits = encode_body_frame(out, channel, piece);
            }
        }
    });
    if body.len() < SHARED_BYTES_MIN {
        return;
    }
    let mut at = 0;
    while at < body.len() {
        let end = body.len().min(at + piece_bytes);
        let piece = body.slice(at..end);
        let piece_len = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        link.output.append(|out| encode_body_frame_head(out, channel, piece_len));
        link.output.append_shared(piece);
        link.output.append(|out| out.push(FRAME_END));
        at = end;
    }
}

/// A content header beside its flags and properties (class, weight, size of the body), and the frame around it.
const HEADER_BYTES: usize = FRAME_OVERHEAD_BYTES + 2 + 2 + 8;

/// Properties that came in a larger frame than this client takes, or by MQTT, which has no frames: a content header is
/// one frame, so what does not fit it is not handed on, headers before the others.
fn without_headers(properties: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if let Ok(decoded) = BasicProperties::decode(properties) {
        // The others came in the same encoding.
        let _fits = encode_properties(&mut out, &BasicProperties { headers: None, ..decoded });
    }
    if out.is_empty() {
        out.extend_from_slice(NO_PROPERTIES);
    }
    out
}

/// Flags that say that there are none.
const NO_PROPERTIES: &[u8] = &[0, 0];

/// Adds how often the message came back.
fn with_delivery_count(properties: &[u8], returns: u16) -> Option<Vec<u8>> {
    let mut headers = FieldTableBuilder::new();
    let decoded = BasicProperties::decode(properties).ok()?;
    copy_headers(&mut headers, decoded.headers, &["x-delivery-count"]);
    headers.push("x-delivery-count", FieldValue::LongLongInt(i64::from(returns))).ok()?;
    let mut out = Vec::new();
    encode_properties(&mut out, &BasicProperties { headers: Some(headers.table()), ..decoded }).ok()?;
    Some(out)
}

/// The properties of a message that died, as its next consumer sees them: with the headers that tell where and why,
/// without the expiration that it does not keep.
#[must_use]
pub fn dead_letter_headers(properties: &[u8], annotations: &Annotations) -> Option<Vec<u8>> {
    let decoded = BasicProperties::decode(properties).ok()?;
    let mut headers = FieldTableBuilder::new();
    let without = match annotations.also.is_empty() {
        // Another key has taken the place of those that its publisher gave.
        true => &DEATH_HEADERS[..],
        false => &DEATH_HEADERS[..7],
    };
    copy_headers(&mut headers, decoded.headers, without);
    let mut deaths = FieldArrayBuilder::new();
    for death in &annotations.deaths {
        deaths.push(FieldValue::Table(death_table(death)?.table())).ok()?;
    }
    headers.push("x-death", FieldValue::Array(deaths.array())).ok()?;
    let first = annotations.deaths.iter().min_by_key(|death| death.died_at)?;
    let last = annotations.deaths.first()?;
    for (names, death) in [(&DEATH_HEADERS[1..4], first), (&DEATH_HEADERS[4..7], last)] {
        let values = [&*death.exchange, &*death.queue, reason(death.reason)];
        for (name, value) in names.iter().zip(values) {
            headers.push(name, FieldValue::LongString(value.as_bytes())).ok()?;
        }
    }
    let mut out = Vec::new();
    let properties = BasicProperties { headers: Some(headers.table()), expiration: None, ..decoded };
    encode_properties(&mut out, &properties).ok()?;
    Some(out)
}

/// The headers that tell of deaths, and the one with further keys.
const DEATH_HEADERS: [&str; 8] = [
    "x-death",
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-last-death-exchange",
    "x-last-death-queue",
    "x-last-death-reason",
    "CC",
];

fn death_table(death: &Death) -> Option<FieldTableBuilder> {
    let mut keys = FieldArrayBuilder::new();
    for address in &death.addresses {
        keys.push(FieldValue::LongString(swap_separators(address).as_bytes())).ok()?;
    }
    let count = i64::try_from(death.count).unwrap_or(i64::MAX);
    let mut table = FieldTableBuilder::new();
    table.push("count", FieldValue::LongLongInt(count)).ok()?;
    table.push("reason", FieldValue::LongString(reason(death.reason).as_bytes())).ok()?;
    table.push("queue", FieldValue::LongString(death.queue.as_bytes())).ok()?;
    table.push("time", FieldValue::Timestamp(death.died_at.0 / 1000)).ok()?;
    table.push("exchange", FieldValue::LongString(death.exchange.as_bytes())).ok()?;
    table.push("routing-keys", FieldValue::Array(keys.array())).ok()?;
    if let Some(ms) = death.time_to_live_ms {
        table.push("original-expiration", FieldValue::LongString(ms.to_string().as_bytes())).ok()?;
    }
    Some(table)
}

const fn reason(reason: DeathReason) -> &'static str {
    match reason {
        DeathReason::Rejected => "rejected",
        DeathReason::Expired => "expired",
        DeathReason::QueueFull => "maxlen",
        DeathReason::DeliveryLimit => "delivery_limit",
    }
}

/// Copies headers but those `without`.
pub(super) fn copy_headers(into: &mut FieldTableBuilder, headers: Option<FieldTable<'_>>, without: &[&str]) {
    for (name, value) in headers.into_iter().flat_map(FieldTable::iter) {
        let Some(name) = name.as_str().filter(|name| !without.contains(name)) else { continue };
        let _fits = into.push(name, value);
    }
}
