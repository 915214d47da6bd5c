//! Whether a client may do what it asks for: the rules of the ACL file about queues and exchanges, and those about topics
//! where topics are shared.
//!
//! The rights are RabbitMQ's. amq.topic is under the rules about topics alone, as MQTT is: what leads there under keys that
//! are not known beforehand (bindings, alternate exchanges, dead letters that keep their key) is for those who may publish
//! everything. A message to the default exchange needs the right to write its queue, or to write `amq.default`.

use super::consuming::REPLY_TO;
use super::fault::Fault;
use super::link::{Context, Link};
use crate::auth::{Acl, Denied, Resource, Right};
use crate::broker::{ExchangeIndex, QueueSettings};
use crate::message::{Message, is_reserved, swap_separators};

/// What RabbitMQ calls the default exchange where its name would be empty.
const DEFAULT_EXCHANGE: &str = "amq.default";

/// Refuses with 403 what the rules do not give.
pub(super) fn may_use(
    link: &Link,
    context: &Context<'_>,
    resource: Resource,
    right: Right,
    name: &str,
) -> Result<(), Fault> {
    let Some(acl) = context.acl else { return Ok(()) };
    let may = match right {
        Right::Read if is_shared(resource, name) => true,
        // No rule speaks of what another exchange or a queue will hand on to it under whatever key.
        Right::Write if is_shared(resource, name) => acl.may_publish_everything(link.identity()),
        Right::Configure | Right::Read | Right::Write => acl.may_use(link.identity(), resource, right, name),
    };
    if may {
        return Ok(());
    }
    let (right, what, user) = (right.name(), resource.name(), link.user.as_deref().unwrap_or(""));
    Err(Fault::refused(format!("{right} access to {what} '{name}' in vhost '/' refused for user '{user}'")))
}

const SHARED_EXCHANGE: &str = "amq.topic";

fn is_shared(resource: Resource, name: &str) -> bool {
    resource == Resource::Exchange && name == SHARED_EXCHANGE
}

/// A queue that hands its dead on reads itself, and writes to where they go. A key of its own for them is all that they
/// come under, so that it can be judged.
pub(super) fn may_dead_letter(
    link: &Link,
    context: &Context<'_>,
    queue: &str,
    settings: &QueueSettings,
) -> Result<(), Fault> {
    let Some(dead_letter) = &settings.dead_letter else { return Ok(()) };
    may_use(link, context, Resource::Queue, Right::Read, queue)?;
    match (&*dead_letter.exchange, dead_letter.address.as_deref()) {
        (SHARED_EXCHANGE, Some(address)) => may_publish(link, context, ExchangeIndex::SHARED, address),
        ("", Some(address)) => may_publish(link, context, ExchangeIndex::DEFAULT, address),
        ("", None) => Ok(()),
        (exchange, _) => may_use(link, context, Resource::Exchange, Right::Write, exchange),
    }
}

/// Publishing. What belongs to the gateway is not published by clients.
pub(super) fn may_publish(
    link: &Link,
    context: &Context<'_>,
    exchange: ExchangeIndex,
    address: &str,
) -> Result<(), Fault> {
    if exchange == ExchangeIndex::SHARED {
        if is_reserved(address) || context.acl.is_some_and(|acl| !acl.may_publish(link.identity(), address)) {
            context.denials.note(context.now.wall, Denied::Publish, link.identity(), address);
            return Err(topic_refused(link, Right::Write, address));
        }
        return Ok(());
    }
    if context.acl.is_none() {
        return Ok(());
    }
    if exchange != ExchangeIndex::DEFAULT {
        let name = context.broker.exchange_name(exchange).map_or("", |name| name);
        return may_use(link, context, Resource::Exchange, Right::Write, name);
    }
    let queue = swap_separators(address);
    if queue.starts_with(REPLY_TO)
        || may_use(link, context, Resource::Exchange, Right::Write, DEFAULT_EXCHANGE).is_ok()
    {
        return Ok(());
    }
    may_use(link, context, Resource::Queue, Right::Write, &queue)
}

/// Binding to an exchange reads from it. To the shared one it is subscribing: the same rules about topics hold. A pattern
/// that they have no word for counts as everything below the level before it.
pub(super) fn may_bind(
    link: &Link,
    context: &Context<'_>,
    source: ExchangeIndex,
    name: &str,
    key: &str,
) -> Result<(), Fault> {
    let Some(acl) = context.acl else { return Ok(()) };
    if source != ExchangeIndex::SHARED {
        return may_use(link, context, Resource::Exchange, Right::Read, name);
    }
    let mut filter = String::new();
    for (at, level) in key.split('/').enumerate() {
        if at > 0 {
            filter.push('/');
        }
        match level {
            "#" => {
                filter.push('#');
                break;
            }
            "*" => filter.push('+'),
            literal if literal.contains(['+', '#']) => filter.push('+'),
            literal => filter.push_str(literal),
        }
    }
    if filter.is_empty() || acl.may_subscribe(link.identity(), &filter) {
        return Ok(());
    }
    context.denials.note(context.now.wall, Denied::Subscribe, link.identity(), &filter);
    Err(topic_refused(link, Right::Read, key))
}

/// Whether a message may be given to this client: what came over the shared exchange is under the rules about topics,
/// which may be narrower than the binding, or newer. It stays so after it has died in a queue.
pub(super) fn may_receive(link: &Link, acl: Option<&Acl>, message: &Message) -> bool {
    acl.is_none_or(|acl| message.shared_addresses().all(|address| acl.may_read(link.identity(), address)))
}

fn topic_refused(link: &Link, right: Right, address: &str) -> Fault {
    let (right, key, user) = (right.name(), swap_separators(address), link.user.as_deref().unwrap_or(""));
    Fault::refused(format!(
        "{right} access to topic '{key}' in exchange 'amq.topic' in vhost '/' refused for user '{user}'"
    ))
}
