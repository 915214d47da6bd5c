//! basic.publish: putting a content together from its frames, what its properties ask for, and what answers it.

use std::rc::Rc;

use bytes::Bytes;

use super::channel::Channel;
use super::codec::method::basic;
use super::codec::{
    BasicProperties, FieldTableBuilder, FieldValue, Frame, ReplyCode, ShortString, encode_properties,
};
use super::consuming::REPLY_TO;
use super::delivering::{copy_headers, send_return};
use super::fault::Fault;
use super::link::{Context, Link, Reserved};
use super::rights::may_publish;
#[cfg(feature = "mutations")]
use crate::broker::mutation::{Mutation, is_made};
use crate::broker::{ExchangeIndex, Routed};
use crate::message::{Annotations, Assurance, Message, PROPERTIES_AMQP091, swap_separators};

/// A publish whose content is being received.
#[derive(Debug)]
pub(super) struct Content {
    exchange: ExchangeIndex,
    address: Box<str>,
    mandatory: bool,
    header: Option<Header>,
    body: Vec<u8>,
    reserved: Option<Reserved>,
}

impl Content {
    /// What is wrong with a frame that is neither header nor body, as RabbitMQ says it.
    pub const fn expected(&self) -> &'static str {
        if self.header.is_some() { BODY_EXPECTED } else { HEADER_EXPECTED }
    }
}

const HEADER_EXPECTED: &str = "expected content header for class 60, got non content header frame instead";
const BODY_EXPECTED: &str = "expected content body, got non content body frame instead";

#[derive(Debug)]
struct Header {
    body_bytes: usize,
    /// Behind the byte that names the protocol.
    properties: Bytes,
}

/// A message that is ready to be routed.
#[derive(Debug)]
pub(super) struct Pending {
    exchange: ExchangeIndex,
    message: Message,
    also: Vec<Box<str>>,
    mandatory: bool,
    /// Its share of the connection's memory while it waits for a commit.
    reserved: Option<Reserved>,
}

/// Further addresses that one message may have.
const ALSO_MAX: usize = 1000;

/// The longest time to live of messages and queues, as in RabbitMQ: ten years of 365 days.
pub(super) const MILLISECONDS_MAX: u64 = 315_360_000_000;

/// The longest delay, as the plug-in for RabbitMQ has it: it fits 32 bits.
const DELAY_MS_MAX: u64 = 0xffff_ffff;

impl Channel {
    pub(super) fn handle_publish(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        publish: &basic::Publish<'_>,
    ) -> Result<(), Fault> {
        self.has_published = true;
        if publish.immediate {
            return Err(Fault::not_implemented("immediate=true"));
        }
        let text = |text: ShortString<'_>| text.as_str().map(str::to_owned);
        let (Some(exchange_name), Some(routing_key)) = (text(publish.exchange), text(publish.routing_key))
        else {
            return Err(Fault::new(ReplyCode::SyntaxError, "exchange and routing key must be UTF-8"));
        };
        let exchange = context
            .broker
            .exchange(&exchange_name)
            .ok_or_else(|| Fault::not_found("exchange", &exchange_name))?;
        if context.broker.exchange_options(exchange).is_some_and(|options| options.internal) {
            let text = format!("cannot publish to internal exchange '{exchange_name}' in vhost '/'");
            return Err(Fault::refused(text));
        }
        let address = swap_separators(&routing_key).into_boxed_str();
        may_publish(link, context, exchange, &address)?;
        self.content = Some(Content {
            exchange,
            address,
            mandatory: publish.mandatory,
            header: None,
            body: Vec::new(),
            reserved: None,
        });
        Ok(())
    }

    pub(super) fn handle_header(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        frame: Frame<'_>,
    ) -> Result<(), Fault> {
        let unexpected = "expected method frame, got non method frame instead";
        let Some(content) = &mut self.content else {
            return Err(Fault::new(ReplyCode::UnexpectedFrame, unexpected));
        };
        if content.header.is_some() {
            return Err(Fault::new(ReplyCode::UnexpectedFrame, BODY_EXPECTED));
        }
        let header = frame.content_header()?;
        if header.body_bytes > context.message_bytes_max {
            return Err(Fault::precondition(format!(
                "message size {} is larger than configured max size {}",
                header.body_bytes, context.message_bytes_max
            )));
        }
        let mut properties = Vec::with_capacity(1 + header.encoded_properties.len());
        properties.push(PROPERTIES_AMQP091);
        properties.extend_from_slice(header.encoded_properties);
        let body_bytes = usize::try_from(header.body_bytes).unwrap_or(usize::MAX);
        content.reserved = Some(Reserved::new(link, body_bytes).ok_or_else(too_much)?);
        content.header = Some(Header { body_bytes, properties: properties.into() });
        if body_bytes == 0 {
            return self.finish(link, context, Bytes::new());
        }
        Ok(())
    }

    pub(super) fn handle_body(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        payload: &[u8],
    ) -> Result<(), Fault> {
        let unexpected = |text: &str| Fault::new(ReplyCode::UnexpectedFrame, text);
        let Some(content) = &mut self.content else {
            return Err(unexpected("expected method frame, got non method frame instead"));
        };
        let Some(header) = &content.header else {
            return Err(unexpected(HEADER_EXPECTED));
        };
        let received = content.body.len() + payload.len();
        if received > header.body_bytes {
            return Err(unexpected("content body is larger than its header says"));
        }
        if content.body.is_empty() && received == header.body_bytes {
            return self.finish(link, context, Bytes::copy_from_slice(payload));
        }
        // The size is the peer's claim: room grows with what has come.
        content.body.extend_from_slice(payload);
        if received == header.body_bytes {
            let body = std::mem::take(&mut content.body).into_boxed_slice();
            return self.finish(link, context, body.into());
        }
        Ok(())
    }

    /// The content is whole.
    fn finish(&mut self, link: &mut Link, context: &mut Context<'_>, body: Bytes) -> Result<(), Fault> {
        let Some(Content { exchange, address, mandatory, header: Some(header), .. }) = self.content.take()
        else {
            return Ok(());
        };
        let mut message = Message {
            address,
            body,
            received_at: context.now.wall,
            received_trusted: context.now.wall_trusted,
            properties: header.properties,
            exchange: exchange_in_message(context, exchange),
            ..Message::default()
        };
        let also = self.read_properties(link, context, &mut message)?;
        for address in &also {
            may_publish(link, context, exchange, address)?;
        }
        let mut pending = Pending { exchange, message, also, mandatory, reserved: None };
        if let Some(transaction) = &mut self.transaction {
            let bytes = pending.message.charge() + TRANSACTION_OVERHEAD;
            pending.reserved = Some(Reserved::new(link, bytes).ok_or_else(too_much)?);
            transaction.published.push(pending);
            return Ok(());
        }
        let routed = self.route(link, context, pending);
        if let Some(tag) = &mut self.confirm {
            *tag += 1;
            #[cfg(feature = "mutations")]
            let routed = match is_made(Mutation::ConfirmBeforeKept) {
                true => Routed { gate: crate::broker::Gate::Open, ..routed },
                false => routed,
            };
            link.confirm(context.broker, routed.gate, (self.number, self.serial), *tag, routed.refused);
        }
        Ok(())
    }

    /// Routes a message; what nobody wants goes back if it was to.
    pub(super) fn route(&self, link: &mut Link, context: &mut Context<'_>, pending: Pending) -> Routed {
        let Pending { exchange, message, also, mandatory, reserved } = pending;
        drop(reserved);
        let returned = mandatory.then(|| message.clone());
        let connection = self.confirm.is_some().then_some(link.id);
        let routed = context.broker.publish_to(context.now, exchange, message, &also, connection);
        if routed.queues == 0
            && let Some(message) = returned
        {
            send_return(link, self.number, &message, &(context.properties)(&message));
        }
        routed
    }

    /// What the properties ask the gateway for. Answers the further addresses.
    fn read_properties(
        &self,
        link: &Link,
        context: &Context<'_>,
        message: &mut Message,
    ) -> Result<Vec<Box<str>>, Fault> {
        let encoded = message.properties.clone();
        let properties = BasicProperties::decode(encoded.get(1..).unwrap_or_default())?;
        if properties.delivery_mode == Some(2) {
            message.assurance = Assurance::AtLeastOnce;
        }
        message.priority = properties.priority.unwrap_or(0);
        if let Some(expiration) = properties.expiration {
            message.time_to_live_ms = Some(milliseconds(expiration)?);
        }
        if let Some(user_id) = properties.user_id
            && Some(user_id.as_bytes()) != link.user.as_deref().map(str::as_bytes)
        {
            let user = link.user.as_deref().unwrap_or("");
            let text = format!("user_id property set to '{user_id}' but authenticated user was '{user}'");
            return Err(Fault::precondition(text));
        }
        let mut changed = properties;
        let reply_to = properties.reply_to.filter(|reply_to| reply_to.as_bytes() == REPLY_TO.as_bytes());
        if reply_to.is_some() {
            let Some(name) = self.reply_name(context.broker) else {
                return Err(Fault::precondition("fast reply consumer does not exist"));
            };
            changed.reply_to = ShortString::try_from(name).ok();
        }
        let Some(headers) = properties.headers else {
            if reply_to.is_some() {
                message.properties = encoded_again(&changed, &encoded);
            }
            return Ok(Vec::new());
        };
        let mut also = addresses(headers.find("CC"), "CC")?;
        let hidden = addresses(headers.find("BCC"), "BCC")?;
        let mut annotations =
            Annotations { also: also.clone(), hidden: hidden.clone(), ..Annotations::default() };
        if let Some(delay) = headers.find("x-delay").and_then(FieldValue::as_integer)
            && let Ok(delay_ms) = u64::try_from(delay)
            && delay_ms > 0
        {
            annotations.delay_ms = Some(delay_ms.min(DELAY_MS_MAX));
        }
        if annotations != Annotations::default() {
            message.annotations = Some(Box::new(annotations));
        }
        let mut shown = FieldTableBuilder::new();
        if headers.find("BCC").is_some() {
            copy_headers(&mut shown, Some(headers), &["BCC"]);
            changed.headers = Some(shown.table());
            message.properties = encoded_again(&changed, &encoded);
        } else if reply_to.is_some() {
            message.properties = encoded_again(&changed, &encoded);
        }
        also.extend(hidden);
        Ok(also)
    }
}

/// What each message of a transaction costs beside its bytes.
const TRANSACTION_OVERHEAD: usize = 256;

fn too_much() -> Fault {
    Fault::new(ReplyCode::ResourceError, "too many bytes of contents that are not complete or not committed")
}

fn exchange_in_message(context: &Context<'_>, exchange: ExchangeIndex) -> Option<Rc<str>> {
    if exchange == ExchangeIndex::SHARED { None } else { context.broker.exchange_name(exchange).cloned() }
}

fn encoded_again(properties: &BasicProperties<'_>, old: &Bytes) -> Bytes {
    let mut out = vec![PROPERTIES_AMQP091];
    if encode_properties(&mut out, properties).is_ok() { out.into() } else { old.clone() }
}

/// Decimal text, milliseconds.
fn milliseconds(expiration: ShortString<'_>) -> Result<u64, Fault> {
    let digits =
        expiration.as_str().filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    digits.and_then(|text| text.parse().ok()).filter(|ms| *ms <= MILLISECONDS_MAX).ok_or_else(|| {
        Fault::precondition(format!("invalid expiration '{expiration}': it is a number of milliseconds"))
    })
}

/// A list of routing keys.
fn addresses(header: Option<FieldValue<'_>>, name: &str) -> Result<Vec<Box<str>>, Fault> {
    let Some(header) = header else { return Ok(Vec::new()) };
    let malformed = || Fault::precondition(format!("invalid {name} header: it is an array of routing keys"));
    let array = header.as_array().ok_or_else(malformed)?;
    let mut found = Vec::new();
    for value in array.iter() {
        let key = value.as_text().filter(|key| key.len() <= 255).ok_or_else(malformed)?;
        if found.len() == ALSO_MAX {
            return Err(malformed());
        }
        found.push(swap_separators(key).into());
    }
    Ok(found)
}
