//! Binding queues and exchanges to exchanges. A key is kept in the inner form, with `/` and `.` swapped.

use super::arguments;
use super::channel::Channel;
use super::codec::FieldTable;
use super::codec::method::{exchange, queue};
use super::consuming::is_of_replies;
use super::declaring::{default_exchange, exchange_for_binding};
use super::fault::Fault;
use super::link::{Context, Link};
use super::rights::{may_bind, may_use};
use crate::auth::{Resource, Right};
use crate::broker::{ExchangeKind, Gate, Target};
use crate::limits::TOPIC_LEVELS_MAX;
use crate::message::swap_separators;

impl Channel {
    pub(super) fn handle_queue_bind(
        &self,
        link: &mut Link,
        context: &mut Context<'_>,
        bind: &queue::Bind<'_>,
    ) -> Result<(), Fault> {
        let target = Target::Queue(self.queue_for_use(link, context, bind.queue)?);
        may_use(link, context, Resource::Queue, Right::Write, self.queue_name(bind.queue)?)?;
        let key = self.binding_key(bind.queue, bind.routing_key)?;
        let gate = bind_to(link, context, bind.exchange, target, key, bind.arguments)?;
        if !bind.no_wait {
            link.reply(context.broker, gate, self.number, &queue::BindOk {});
        }
        Ok(())
    }

    pub(super) fn handle_queue_unbind(
        &self,
        link: &mut Link,
        context: &mut Context<'_>,
        unbind: &queue::Unbind<'_>,
    ) -> Result<(), Fault> {
        let key = self.binding_key(unbind.queue, unbind.routing_key)?.to_owned();
        let mut gate = Gate::Open;
        if unbind.exchange.is_empty() {
            return Err(default_exchange());
        }
        let name = self.queue_name(unbind.queue)?;
        if !is_of_replies(name) && context.broker.named_queue(name).is_some() {
            let target = Target::Queue(self.queue_for_use(link, context, unbind.queue)?);
            may_use(link, context, Resource::Queue, Right::Write, self.queue_name(unbind.queue)?)?;
            may_use(link, context, Resource::Exchange, Right::Read, unbind.exchange)?;
            gate = unbind_from(context, unbind.exchange, target, &key, unbind.arguments);
        }
        link.reply(context.broker, gate, self.number, &queue::UnbindOk {});
        Ok(())
    }

    pub(super) fn handle_exchange_bind(
        &self,
        link: &mut Link,
        context: &mut Context<'_>,
        bind: &exchange::Bind<'_>,
    ) -> Result<(), Fault> {
        let target = Target::Exchange(exchange_for_binding(context, bind.destination)?);
        may_use(link, context, Resource::Exchange, Right::Write, bind.destination)?;
        let gate = bind_to(link, context, bind.source, target, bind.routing_key, bind.arguments)?;
        if !bind.no_wait {
            link.reply(context.broker, gate, self.number, &exchange::BindOk {});
        }
        Ok(())
    }

    pub(super) fn handle_exchange_unbind(
        &self,
        link: &mut Link,
        context: &mut Context<'_>,
        unbind: &exchange::Unbind<'_>,
    ) -> Result<(), Fault> {
        if unbind.source.is_empty() || unbind.destination.is_empty() {
            return Err(default_exchange());
        }
        let mut gate = Gate::Open;
        if let Some(target) = context.broker.exchange(unbind.destination) {
            may_use(link, context, Resource::Exchange, Right::Write, unbind.destination)?;
            may_use(link, context, Resource::Exchange, Right::Read, unbind.source)?;
            let target = Target::Exchange(target);
            gate = unbind_from(context, unbind.source, target, unbind.routing_key, unbind.arguments);
        }
        if !unbind.no_wait {
            link.reply(context.broker, gate, self.number, &exchange::UnbindOk {});
        }
        Ok(())
    }

    /// Neither a queue nor a key named: both are those of the queue that was declared last.
    fn binding_key<'a>(&'a self, queue: &str, key: &'a str) -> Result<&'a str, Fault> {
        if queue.is_empty() && key.is_empty() { self.queue_name("") } else { Ok(key) }
    }
}

fn bind_to(
    link: &Link,
    context: &mut Context<'_>,
    source: &str,
    target: Target,
    key: &str,
    arguments: FieldTable<'_>,
) -> Result<Gate, Fault> {
    let source_index = exchange_for_binding(context, source)?;
    let kind = context.broker.exchange_options(source_index).map(|options| options.kind);
    if kind == Some(ExchangeKind::ConsistentHash) && key.parse::<u64>().is_err() {
        return Err(Fault::precondition(format!("The binding key must be an integer: '{key}'")));
    }
    if kind == Some(ExchangeKind::Topic) && key.split('.').count() > TOPIC_LEVELS_MAX {
        return Err(Fault::precondition(format!("binding key has more than {TOPIC_LEVELS_MAX} words")));
    }
    let key = swap_separators(key);
    may_bind(link, context, source_index, source, &key)?;
    let arguments = arguments::binding_arguments(arguments, kind == Some(ExchangeKind::Headers))?;
    let bound = context.broker.bind(context.now, source_index, target, &key, arguments);
    bound.map_err(|refused| Fault::precondition(format!("cannot bind to exchange '{source}': {refused}")))
}

fn unbind_from(
    context: &mut Context<'_>,
    source: &str,
    target: Target,
    key: &str,
    arguments: FieldTable<'_>,
) -> Gate {
    let Some(source) = context.broker.exchange(source) else { return Gate::Open };
    let key = swap_separators(key);
    context.broker.unbind(context.now, source, target, &key, &arguments::in_order(arguments))
}
