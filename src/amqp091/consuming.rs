//! basic.consume, cancel and get.

use std::rc::Rc;

use super::arguments;
use super::channel::Channel;
use super::codec::ReplyCode;
use super::codec::method::basic;
use super::fault::Fault;
use super::link::{Context, Link};
use super::rights::{may_receive, may_use};
use super::settling::Unsettled;
use crate::auth::{Resource, Right};
use crate::broker::{Broker, ConsumeRefused, QueueIndex, QueueOptions, Settlement, Subscriber};

/// Direct replies are consumed from this; behind it is a queue that lives as long as the channel.
pub(super) const REPLY_TO: &str = "amq.rabbitmq.reply-to";

/// Consumers of one channel: a peer must not fill memory with them.
const CONSUMERS_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct Consumer {
    pub queue: QueueIndex,
    /// Its handle in the broker: the channel's number in the upper 16 bits.
    pub handle: u64,
}

impl Channel {
    pub(super) fn handle_consume(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        consume: &basic::Consume<'_>,
    ) -> Result<(), Fault> {
        if self.consumers.len() >= CONSUMERS_MAX {
            return Err(Fault::new(ReplyCode::NotAllowed, "too many consumers on a channel"));
        }
        let tag: Box<str> = if consume.consumer_tag.is_empty() {
            format!("amq.ctag-{:016x}", context.random ^ self.last_handle).into()
        } else {
            consume.consumer_tag.into()
        };
        if self.consumers.contains_key(&tag) {
            let text = format!("attempt to reuse consumer tag '{tag}'");
            return Err(Fault::new(ReplyCode::NotAllowed, text));
        }
        let replies = consume.queue == REPLY_TO;
        let queue = if replies {
            self.reply_queue(link, context, consume.no_ack)?
        } else {
            may_use(link, context, Resource::Queue, Right::Read, self.queue_name(consume.queue)?)?;
            self.queue_for_use(link, context, consume.queue)?
        };
        let priority = arguments::consumer_priority(consume.arguments)?;
        self.last_handle += 1;
        let subscriber = Subscriber {
            connection: link.id,
            handle: self.last_handle,
            settled: consume.no_ack,
            exclusive: consume.exclusive,
            priority,
            credit_max: u32::from(self.prefetch),
            pool: Rc::clone(&self.pool),
        };
        let handle = subscriber.handle;
        match context.broker.consume(context.now, queue, subscriber) {
            Ok(()) => {}
            Err(ConsumeRefused::Exclusive) => {
                let name = context.broker.queue_facts(queue).map_or("", |facts| facts.name);
                return Err(Fault::refused(format!("queue '{name}' in vhost '/' in exclusive use")));
            }
            Err(ConsumeRefused::Missing) => return Err(Fault::not_found("queue", consume.queue)),
        }
        // Deliveries leave the broker as events, so they come after this.
        if !consume.no_wait {
            link.send(self.number, &basic::ConsumeOk { consumer_tag: &tag });
        }
        self.handles.insert(handle, tag.clone());
        self.consumers.insert(tag, Consumer { queue, handle });
        Ok(())
    }

    pub(super) fn handle_cancel(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        cancel: &basic::Cancel<'_>,
    ) {
        if let Some(consumer) = self.consumers.remove(cancel.consumer_tag) {
            self.handles.remove(&consumer.handle);
            context.broker.cancel(context.now, consumer.queue, link.id, consumer.handle);
        }
        if !cancel.no_wait {
            link.send(self.number, &basic::CancelOk { consumer_tag: cancel.consumer_tag });
        }
    }

    pub(super) fn handle_get(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        get: basic::Get<'_>,
    ) -> Result<(), Fault> {
        may_use(link, context, Resource::Queue, Right::Read, self.queue_name(get.queue)?)?;
        let queue = self.queue_for_use(link, context, get.queue)?;
        let single = |facts: &crate::broker::QueueFacts<'_>| facts.options.settings.single_active;
        if context.broker.queue_facts(queue).as_ref().is_some_and(single) {
            let text = "cannot obtain a message from a queue with a single active consumer";
            return Err(Fault::new(ReplyCode::ResourceLocked, text));
        }
        let got = loop {
            let Some(got) = context.broker.get(context.now, queue, get.no_ack) else {
                link.send(self.number, &basic::GetEmpty {});
                return Ok(());
            };
            if may_receive(link, context.acl, &got.held.message) {
                break got;
            }
            let withheld = std::iter::once((queue, got.number)).filter(|(_, number)| *number != 0);
            context.broker.settle_deliveries(context.now, withheld, Settlement::Withhold);
        };
        self.last_delivery_tag += 1;
        let tag = self.last_delivery_tag;
        if !get.no_ack {
            self.unsettled.push_back(Unsettled { tag, queue, number: got.number, credited: false });
        }
        super::delivering::send_got(link, self.number, tag, &got, context.properties);
        Ok(())
    }

    /// The queue of a consumer is gone: the client is told, if it wants to know.
    pub(super) fn consumer_ended(&mut self, link: &mut Link, handle: u64) {
        let Some(tag) = self.handles.remove(&handle) else { return };
        self.consumers.remove(&tag);
        if link.cancel_notify {
            // Who deletes a queue that it consumes learns first that it is gone: kombu takes a cancel for a fault.
            link.send_behind_reply(self.number, &basic::Cancel { consumer_tag: &tag, no_wait: true });
        }
    }

    /// The queue that a method names, or the one declared last; it must be free for this connection to use.
    pub(super) fn queue_for_use(
        &self,
        link: &Link,
        context: &Context<'_>,
        name: &str,
    ) -> Result<QueueIndex, Fault> {
        let name = self.queue_name(name)?;
        let there = if is_of_replies(name) { None } else { context.broker.named_queue(name) };
        let index = there.ok_or_else(|| Fault::not_found("queue", name))?;
        let owner = context.broker.queue_facts(index).and_then(|facts| facts.owner);
        if owner.is_some_and(|owner| owner != link.id) {
            return Err(locked(name));
        }
        Ok(index)
    }

    pub(super) fn queue_name<'a>(&'a self, name: &'a str) -> Result<&'a str, Fault> {
        if !name.is_empty() {
            return Ok(name);
        }
        if self.last_queue.is_empty() {
            return Err(Fault::new(ReplyCode::NotFound, "no previously declared queue"));
        }
        Ok(&self.last_queue)
    }

    /// Name of the queue of the direct replies, while it is there: its place in the broker is another's afterwards.
    pub(super) fn reply_name(&self, broker: &Broker) -> Option<&str> {
        self.replies.as_deref().filter(|name| broker.named_queue(name).is_some())
    }

    fn reply_queue(
        &mut self,
        link: &Link,
        context: &mut Context<'_>,
        no_ack: bool,
    ) -> Result<QueueIndex, Fault> {
        if !no_ack {
            return Err(Fault::precondition("reply consumer cannot acknowledge"));
        }
        if self.reply_name(context.broker).is_some() {
            return Err(Fault::precondition("reply consumer already set"));
        }
        let name =
            format!("{REPLY_TO}.{:016x}{:x}", context.random, link.id.0 ^ u64::from(self.number) << 24);
        let options = QueueOptions { exclusive: false, auto_delete: true, ..QueueOptions::default() };
        let created = context.broker.create_queue(context.now, &name, options, link.id);
        let (queue, _) = created.map_err(|refused| {
            Fault::new(ReplyCode::NotAllowed, format!("cannot make a reply queue: {refused}"))
        })?;
        self.replies = Some(name.into());
        Ok(queue)
    }
}

/// True for what direct replies are consumed from and sent to. It looks like a queue, and only its channel may do anything
/// with it but publish: for everybody else it is none.
pub(super) fn is_of_replies(name: &str) -> bool {
    name.starts_with(REPLY_TO)
}

pub(super) fn locked(name: &str) -> Fault {
    let text = format!(
        "cannot obtain exclusive access to locked queue '{name}' in vhost '/'. It could be originally declared on \
         another connection or the exclusive property value does not match that of the original declaration."
    );
    Fault::new(ReplyCode::ResourceLocked, text)
}
