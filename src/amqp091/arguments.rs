//! Arguments of declarations, bindings and consumers: what is understood, what is refused by name, and how one
//! declaration differs from another.
//!
//! An argument that asks for something that is not done is refused; one that only tunes how another server stores a
//! queue changes nothing here and is let pass; so is one that is unknown, which is how clients carry notes of their own.

use bytes::Bytes;

use super::codec::{FieldTable, FieldTableBuilder, FieldValue, ShortString};
use super::fault::Fault;
use super::publishing::MILLISECONDS_MAX;
use crate::broker::{
    BindingArguments, DeadLetter, ExchangeKind, ExchangeOptions, HashOn, HeaderMatch, QueueOptions,
    QueueSettings, ReadyOverflow,
};
use crate::message::{Value, swap_separators};

/// Arguments of queues that other servers have and that are not done here.
const QUEUE_UNSUPPORTED: [&str; 6] = [
    "x-consumer-timeout",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-message-deduplication",
    "x-dead-letter-strategy-at-least-once",
    "x-delayed-retry-type",
];

const PRIORITY_MAX: i64 = 255;

/// Reads one declaration's arguments, so that each refusal names queue and argument.
struct Reading<'a> {
    queue: &'a str,
    arguments: FieldTable<'a>,
}

impl<'a> Reading<'a> {
    fn refuse(&self, name: &str, why: &str) -> Fault {
        Fault::precondition(format!("invalid arg '{name}' for queue '{}' in vhost '/': {why}", self.queue))
    }

    fn number(&self, name: &str, max: u64) -> Result<Option<u64>, Fault> {
        let Some(value) = self.arguments.find(name) else { return Ok(None) };
        let number = value.as_integer().ok_or_else(|| self.refuse(name, "expected an integer"))?;
        match u64::try_from(number) {
            Ok(number) if number <= max => Ok(Some(number)),
            Ok(number) => Err(self.refuse(name, &format!("{number} is larger than {max}"))),
            Err(_) => Err(self.refuse(name, &format!("{number} is less than 0"))),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, Fault> {
        let Some(value) = self.arguments.find(name) else { return Ok(None) };
        value.as_text().map(Some).ok_or_else(|| self.refuse(name, "expected a string"))
    }

    fn flag(&self, name: &str) -> Result<bool, Fault> {
        let Some(value) = self.arguments.find(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.refuse(name, "expected a boolean"))
    }

    fn settings(&self) -> Result<QueueSettings, Fault> {
        for name in QUEUE_UNSUPPORTED {
            if self.arguments.find(name).is_some() {
                return Err(self.refuse(name, "not supported"));
            }
        }
        if let Some(kind) = self.text("x-queue-type")?
            && !matches!(kind, "classic" | "quorum")
        {
            return Err(self.refuse("x-queue-type", &format!("type '{kind}' is not supported")));
        }
        let expires_ms = self.number("x-expires", MILLISECONDS_MAX)?;
        if expires_ms == Some(0) {
            return Err(self.refuse("x-expires", "0 is not larger than 0"));
        }
        let overflow = match self.text("x-overflow")? {
            None => None,
            Some("drop-head") => Some(ReadyOverflow::DropOldest),
            Some("reject-publish") => Some(ReadyOverflow::Reject),
            Some("reject-publish-dlx") => Some(ReadyOverflow::RejectDeadLetter),
            Some(other) => return Err(self.refuse("x-overflow", &format!("'{other}' is unknown"))),
        };
        let exchange = self.text("x-dead-letter-exchange")?;
        let routing_key = self.text("x-dead-letter-routing-key")?;
        if exchange.is_none() && routing_key.is_some() {
            let why = "routing_key_but_no_dlx_defined";
            return Err(self.refuse("x-dead-letter-routing-key", why));
        }
        let dead_letter = exchange.map(|exchange| DeadLetter {
            exchange: exchange.into(),
            address: routing_key.map(|key| swap_separators(key).into()),
        });
        let limit = self.number("x-delivery-limit", u64::from(u32::MAX))?;
        let priority_max = self.number("x-max-priority", PRIORITY_MAX.cast_unsigned())?.unwrap_or(0);
        Ok(QueueSettings {
            time_to_live_ms: self.number("x-message-ttl", MILLISECONDS_MAX)?,
            expires_ms,
            ready_max: self.number("x-max-length", u64::from(u32::MAX))?,
            ready_bytes_max: self.number("x-max-length-bytes", i64::MAX.cast_unsigned())?,
            overflow,
            dead_letter,
            returns_max: limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
            priority_max: u8::try_from(priority_max).unwrap_or(u8::MAX),
            single_active: self.flag("x-single-active-consumer")?,
        })
    }
}

/// What a queue's arguments mean.
pub(super) fn queue_settings(queue: &str, arguments: FieldTable<'_>) -> Result<QueueSettings, Fault> {
    Reading { queue, arguments }.settings()
}

/// Compares a declaration with what is there. Widths of numbers do not matter, nor do arguments that mean nothing.
pub(super) fn check_queue(name: &str, wanted: &QueueOptions, there: &QueueOptions) -> Result<(), Fault> {
    let differs = |argument: &str, wanted: Option<String>, there: Option<String>| {
        same(("queue", name), argument, wanted, there)
    };
    differs("durable", shown(wanted.durable), shown(there.durable))?;
    differs("auto_delete", shown(wanted.auto_delete), shown(there.auto_delete))?;
    let (a, b) = (&wanted.settings, &there.settings);
    differs("x-message-ttl", number(a.time_to_live_ms), number(b.time_to_live_ms))?;
    differs("x-expires", number(a.expires_ms), number(b.expires_ms))?;
    differs("x-max-length", number(a.ready_max), number(b.ready_max))?;
    differs("x-max-length-bytes", number(a.ready_bytes_max), number(b.ready_bytes_max))?;
    let overflow = |settings: &QueueSettings| settings.overflow.map(overflow_name).and_then(shown);
    differs("x-overflow", overflow(a), overflow(b))?;
    let exchange =
        |settings: &QueueSettings| settings.dead_letter.as_ref().and_then(|to| shown(&to.exchange));
    differs("x-dead-letter-exchange", exchange(a), exchange(b))?;
    let key = |settings: &QueueSettings| {
        let address = settings.dead_letter.as_ref().and_then(|to| to.address.as_deref());
        address.map(swap_separators).and_then(shown)
    };
    differs("x-dead-letter-routing-key", key(a), key(b))?;
    differs("x-delivery-limit", number(a.returns_max.map(u64::from)), number(b.returns_max.map(u64::from)))?;
    let priority =
        |settings: &QueueSettings| Some(settings.priority_max).filter(|max| *max > 0).and_then(shown);
    differs("x-max-priority", priority(a), priority(b))?;
    let single = |settings: &QueueSettings| if settings.single_active { shown(true) } else { None };
    differs("x-single-active-consumer", single(a), single(b))
}

/// An argument is what it was, or the declaration is refused in RabbitMQ's words.
fn same(
    (what, name): (&str, &str),
    argument: &str,
    wanted: Option<String>,
    there: Option<String>,
) -> Result<(), Fault> {
    if wanted == there {
        return Ok(());
    }
    let (wanted, there) = match (wanted, there) {
        (Some(wanted), Some(there)) => (format!("'{wanted}'"), format!("'{there}'")),
        (wanted, there) => {
            let alone = |value: Option<String>| {
                value.map_or_else(|| "none".into(), |value| format!("the value '{value}'"))
            };
            (alone(wanted), alone(there))
        }
    };
    Err(Fault::precondition(format!(
        "inequivalent arg '{argument}' for {what} '{name}' in vhost '/': received {wanted} but current is {there}"
    )))
}

#[expect(clippy::unnecessary_wraps, reason = "it stands beside arguments that may be absent")]
fn shown(value: impl std::fmt::Display) -> Option<String> {
    Some(value.to_string())
}

fn number(value: Option<u64>) -> Option<String> {
    value.and_then(shown)
}

const fn overflow_name(overflow: ReadyOverflow) -> &'static str {
    match overflow {
        ReadyOverflow::DropOldest => "drop-head",
        ReadyOverflow::Reject => "reject-publish",
        ReadyOverflow::RejectDeadLetter => "reject-publish-dlx",
    }
}

/// What an exchange is declared with.
pub(super) fn exchange_options(
    name: &str,
    kind: &str,
    arguments: FieldTable<'_>,
) -> Result<ExchangeOptions, Fault> {
    let refuse = |argument: &str, why: &str| {
        Fault::precondition(format!("invalid arg '{argument}' for exchange '{name}' in vhost '/': {why}"))
    };
    let string = |argument: &str| match arguments.find(argument) {
        None => Ok(None),
        Some(value) => value.as_text().map(Some).ok_or_else(|| refuse(argument, "expected a string")),
    };
    let delayed = kind == "x-delayed-message";
    let kind = if delayed {
        string("x-delayed-type")?.ok_or_else(|| refuse("x-delayed-type", "it must name an exchange type"))?
    } else {
        kind
    };
    let kind = kind_of(kind).ok_or_else(|| Fault::precondition(format!("unknown exchange type '{kind}'")))?;
    let hash_on = match (string("hash-header")?, string("hash-property")?) {
        (None, None) => HashOn::Address,
        (Some(header), None) => HashOn::Header(header.into()),
        (None, Some(property @ ("correlation_id" | "message_id" | "timestamp"))) => {
            HashOn::Property(property.into())
        }
        (None, Some(property)) => {
            return Err(refuse("hash-property", &format!("unsupported property '{property}'")));
        }
        (Some(_), Some(_)) => return Err(refuse("hash-property", "hash-header is given too")),
    };
    Ok(ExchangeOptions {
        delayed,
        alternate: string("alternate-exchange")?.map(Into::into),
        hash_on,
        arguments: Bytes::copy_from_slice(arguments.as_bytes()),
        ..ExchangeOptions::new(kind)
    })
}

const fn kind_of(kind: &str) -> Option<ExchangeKind> {
    Some(match kind.as_bytes() {
        b"direct" => ExchangeKind::Direct,
        b"fanout" => ExchangeKind::Fanout,
        b"topic" => ExchangeKind::Topic,
        b"headers" => ExchangeKind::Headers,
        b"x-consistent-hash" => ExchangeKind::ConsistentHash,
        _ => return None,
    })
}

const fn kind_name(options: &ExchangeOptions) -> &'static str {
    if options.delayed { "x-delayed-message" } else { base_kind_name(options.kind) }
}

const fn base_kind_name(kind: ExchangeKind) -> &'static str {
    match kind {
        ExchangeKind::Direct => "direct",
        ExchangeKind::Fanout => "fanout",
        ExchangeKind::Topic => "topic",
        ExchangeKind::Headers => "headers",
        ExchangeKind::ConsistentHash => "x-consistent-hash",
    }
}

/// Compares a declaration with what is there.
pub(super) fn check_exchange(
    name: &str,
    wanted: &ExchangeOptions,
    there: &ExchangeOptions,
) -> Result<(), Fault> {
    let differs = |argument: &str, wanted: Option<String>, there: Option<String>| {
        same(("exchange", name), argument, wanted, there)
    };
    differs("type", shown(kind_name(wanted)), shown(kind_name(there)))?;
    differs("durable", shown(wanted.durable), shown(there.durable))?;
    differs("auto_delete", shown(wanted.auto_delete), shown(there.auto_delete))?;
    differs("internal", shown(wanted.internal), shown(there.internal))?;
    let alternate = |options: &ExchangeOptions| options.alternate.as_deref().and_then(shown);
    differs("alternate-exchange", alternate(wanted), alternate(there))?;
    let header = |options: &ExchangeOptions| match &options.hash_on {
        HashOn::Header(name) => shown(name),
        HashOn::Address | HashOn::Property(_) => None,
    };
    differs("hash-header", header(wanted), header(there))?;
    let property = |options: &ExchangeOptions| match &options.hash_on {
        HashOn::Property(name) => shown(name),
        HashOn::Address | HashOn::Header(_) => None,
    };
    differs("hash-property", property(wanted), property(there))?;
    differs("x-delayed-type", shown(base_kind_name(wanted.kind)), shown(base_kind_name(there.kind)))
}

/// What a binding is made with; `of_headers` when its source looks at headers.
pub(super) fn binding_arguments(
    arguments: FieldTable<'_>,
    of_headers: bool,
) -> Result<BindingArguments, Fault> {
    let mut binding = BindingArguments { encoded: in_order(arguments), headers: HeaderMatch::default() };
    if !of_headers {
        return Ok(binding);
    }
    let (any, with_x) = match arguments.find("x-match").map(|value| (value, value.as_text())) {
        None | Some((_, Some("all"))) => (false, false),
        Some((_, Some("any"))) => (true, false),
        Some((_, Some("all-with-x"))) => (false, true),
        Some((_, Some("any-with-x"))) => (true, true),
        Some((value, _)) => {
            return Err(Fault::precondition(format!(
                "Invalid x-match field value {}; expected all, any, all-with-x, or any-with-x",
                value.as_text().map_or_else(|| "that is no string".into(), |text| format!("'{text}'"))
            )));
        }
    };
    binding.headers.any = any;
    for (name, value) in arguments.iter() {
        let Some(name) = name.as_str().filter(|name| *name != "x-match") else { continue };
        if with_x || !name.starts_with("x-") {
            binding.headers.entries.push((name.into(), neutral(value)));
        }
    }
    Ok(binding)
}

/// A table's entries by their names, encoded: a table has no order, and bindings are told apart by their arguments.
pub(super) fn in_order(arguments: FieldTable<'_>) -> Bytes {
    let as_it_came = || Bytes::copy_from_slice(arguments.as_bytes());
    let named = |(name, value): (ShortString<'_>, _)| Some((name.as_str()?.to_owned(), value));
    let Some(mut entries) = arguments.iter().map(named).collect::<Option<Vec<_>>>() else {
        return as_it_came();
    };
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut ordered = FieldTableBuilder::new();
    for (name, value) in entries {
        if ordered.push(&name, value).is_err() {
            return as_it_came();
        }
    }
    Bytes::copy_from_slice(ordered.table().as_bytes())
}

/// A value as exchanges compare it.
#[must_use]
pub fn neutral(value: FieldValue<'_>) -> Value {
    match value {
        FieldValue::Void => Value::Void,
        FieldValue::Boolean(value) => Value::Bool(value),
        FieldValue::Float(value) => Value::Float(f64::from(value)),
        FieldValue::Double(value) => Value::Float(value),
        FieldValue::LongString(bytes) | FieldValue::ByteArray(bytes) => Value::Bytes(bytes.into()),
        FieldValue::Timestamp(seconds) => Value::Other(seconds.to_be_bytes().into()),
        FieldValue::Decimal { scale, value } => {
            let [a, b, c, d] = value.to_be_bytes();
            Value::Other([scale, a, b, c, d].into())
        }
        FieldValue::Array(array) => Value::Other(array.as_bytes().into()),
        FieldValue::Table(table) => Value::Other(table.as_bytes().into()),
        FieldValue::ShortShortInt(_)
        | FieldValue::ShortShortUint(_)
        | FieldValue::ShortInt(_)
        | FieldValue::ShortUint(_)
        | FieldValue::LongInt(_)
        | FieldValue::LongUint(_)
        | FieldValue::LongLongInt(_) => Value::Integer(value.as_integer().unwrap_or_default()),
    }
}

/// A consumer's priority.
pub(super) fn consumer_priority(arguments: FieldTable<'_>) -> Result<i32, Fault> {
    let Some(value) = arguments.find("x-priority") else { return Ok(0) };
    let malformed = || Fault::precondition("invalid arg 'x-priority' of a consumer: expected an integer");
    value.as_integer().and_then(|priority| i32::try_from(priority).ok()).ok_or_else(malformed)
}
