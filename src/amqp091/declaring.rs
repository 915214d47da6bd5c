//! Classes queue and exchange: declaring, deleting, purging. Binding is in `binding`.

use bytes::Bytes;

use super::arguments;
use super::channel::Channel;
use super::codec::ReplyCode;
use super::codec::method::{exchange, queue};
use super::consuming::{REPLY_TO, is_of_replies, locked};
use super::fault::Fault;
use super::link::{Context, Link};
use super::rights::{may_dead_letter, may_use};
use crate::auth::{Resource, Right};
use crate::broker::{Broker, ExchangeIndex, QueueIndex, QueueOptions, TopologyRefused};

/// Names that begin so are the gateway's.
const RESERVED: &str = "amq.";
const GENERATED: &str = "amq.gen-";

impl Channel {
    pub(super) fn handle_queue_declare(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        declare: &queue::Declare<'_>,
    ) -> Result<(), Fault> {
        let name = one_line(declare.queue);
        if is_of_replies(&name) {
            return self.reply_queue_declared(link, context, &name, declare.no_wait);
        }
        if declare.passive {
            let index = self.queue_for_use(link, context, &name)?;
            let name = self.queue_name(&name)?.to_owned();
            self.declared(link, context, index, &name, declare.no_wait);
            return Ok(());
        }
        // The name that the gateway will give begins so.
        let ruled = if name.is_empty() { GENERATED } else { &name };
        may_use(link, context, Resource::Queue, Right::Configure, ruled)?;
        if let Some(index) = context.broker.named_queue(&name) {
            let options = self.options(&name, declare)?;
            let Some(facts) = context.broker.queue_facts(index) else { return Ok(()) };
            let owned = facts.owner.is_some_and(|owner| owner == link.id);
            if facts.owner.is_some() != options.exclusive || facts.owner.is_some() && !owned {
                return Err(locked(&name));
            }
            arguments::check_queue(&name, &options, facts.options)?;
            self.declared(link, context, index, &name, declare.no_wait);
            return Ok(());
        }
        if name.starts_with(RESERVED) {
            return Err(reserved("queue", &name));
        }
        let options = self.options(&name, declare)?;
        may_dead_letter(link, context, ruled, &options.settings)?;
        let name = if name.is_empty() {
            let mark = context.random ^ link.take_serial().rotate_left(32);
            format!("{GENERATED}{mark:016x}")
        } else {
            name
        };
        let created = context.broker.create_queue(context.now, &name, options, link.id);
        let (index, _) = created.map_err(|refused| cannot_declare("queue", &name, refused))?;
        self.declared(link, context, index, &name, declare.no_wait);
        Ok(())
    }

    pub(super) fn handle_purge(
        &self,
        link: &mut Link,
        context: &mut Context<'_>,
        purge: &queue::Purge<'_>,
    ) -> Result<(), Fault> {
        may_use(link, context, Resource::Queue, Right::Read, self.queue_name(purge.queue)?)?;
        let index = self.queue_for_use(link, context, purge.queue)?;
        let (count, gate) = context.broker.purge_queue(context.now, index);
        if !purge.no_wait {
            let message_count = u32::try_from(count).unwrap_or(u32::MAX);
            link.reply(context.broker, gate, self.number, &queue::PurgeOk { message_count });
        }
        Ok(())
    }

    pub(super) fn handle_queue_delete(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        delete: &queue::Delete<'_>,
    ) -> Result<(), Fault> {
        let name = self.queue_name(delete.queue)?.to_owned();
        may_use(link, context, Resource::Queue, Right::Configure, &name)?;
        let mut deleted = (0, crate::broker::Gate::Open);
        if !is_of_replies(&name) && context.broker.named_queue(&name).is_some() {
            let index = self.queue_for_use(link, context, &name)?;
            deleted = context
                .broker
                .delete_queue(context.now, index, delete.if_unused, delete.if_empty)
                .map_err(|refused| match refused {
                    TopologyRefused::NotEmpty => {
                        Fault::precondition(format!("queue '{name}' in vhost '/' not empty"))
                    }
                    TopologyRefused::InUse
                    | TopologyRefused::TooMany
                    | TopologyRefused::TooLarge
                    | TopologyRefused::Crowded
                    | TopologyRefused::Missing => {
                        Fault::precondition(format!("queue '{name}' in vhost '/' in use"))
                    }
                })?;
        }
        if !delete.no_wait {
            let (count, gate) = deleted;
            let message_count = u32::try_from(count).unwrap_or(u32::MAX);
            link.reply(context.broker, gate, self.number, &queue::DeleteOk { message_count });
        }
        Ok(())
    }

    pub(super) fn handle_exchange(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        method: &exchange::Method<'_>,
    ) -> Result<(), Fault> {
        match method {
            exchange::Method::Declare(declare) => self.handle_exchange_declare(link, context, declare),
            exchange::Method::Delete(delete) => self.handle_exchange_delete(link, context, *delete),
            exchange::Method::Bind(bind) => self.handle_exchange_bind(link, context, bind),
            exchange::Method::Unbind(unbind) => self.handle_exchange_unbind(link, context, unbind),
            exchange::Method::DeclareOk(_)
            | exchange::Method::DeleteOk(_)
            | exchange::Method::BindOk(_)
            | exchange::Method::UnbindOk(_) => {
                Err(Fault::new(ReplyCode::CommandInvalid, "a method that only servers send"))
            }
        }
    }

    fn handle_exchange_declare(
        &self,
        link: &mut Link,
        context: &mut Context<'_>,
        declare: &exchange::Declare<'_>,
    ) -> Result<(), Fault> {
        let name = one_line(declare.exchange);
        if name.is_empty() {
            return Err(default_exchange());
        }
        if !declare.passive {
            may_use(link, context, Resource::Exchange, Right::Configure, &name)?;
        }
        let there = context.broker.exchange(&name);
        let gate = match there {
            Some(index) => {
                if !declare.passive {
                    let mut options = arguments::exchange_options(&name, declare.kind, declare.arguments)?;
                    options.durable = declare.durable;
                    options.auto_delete = declare.auto_delete;
                    options.internal = declare.internal;
                    if let Some(there) = context.broker.exchange_options(index) {
                        arguments::check_exchange(&name, &options, there)?;
                    }
                }
                context.broker.exchange_gate(index)
            }
            None if declare.passive => return Err(Fault::not_found("exchange", &name)),
            None => {
                if name.starts_with(RESERVED) {
                    return Err(reserved("exchange", &name));
                }
                let mut options = arguments::exchange_options(&name, declare.kind, declare.arguments)?;
                options.durable = declare.durable;
                options.auto_delete = declare.auto_delete;
                options.internal = declare.internal;
                if let Some(alternate) = &options.alternate {
                    may_use(link, context, Resource::Exchange, Right::Read, &name)?;
                    may_use(link, context, Resource::Exchange, Right::Write, alternate)?;
                }
                let created = context.broker.create_exchange(context.now, &name, options);
                created.map_err(|refused| cannot_declare("exchange", &name, refused))?
            }
        };
        if !declare.no_wait {
            link.reply(context.broker, gate, self.number, &exchange::DeclareOk {});
        }
        Ok(())
    }

    fn handle_exchange_delete(
        &self,
        link: &mut Link,
        context: &mut Context<'_>,
        delete: exchange::Delete<'_>,
    ) -> Result<(), Fault> {
        let mut gate = crate::broker::Gate::Open;
        if delete.exchange.is_empty() {
            return Err(default_exchange());
        }
        may_use(link, context, Resource::Exchange, Right::Configure, delete.exchange)?;
        if let Some(index) = context.broker.exchange(delete.exchange) {
            if Broker::is_predeclared(index) {
                let text =
                    format!("deletion of system exchange '{}' in vhost '/' not allowed", delete.exchange);
                return Err(Fault::refused(text));
            }
            gate = context.broker.delete_exchange(context.now, index, delete.if_unused).map_err(|_| {
                Fault::precondition(format!("exchange '{}' in vhost '/' in use", delete.exchange))
            })?;
        }
        if !delete.no_wait {
            link.reply(context.broker, gate, self.number, &exchange::DeleteOk {});
        }
        Ok(())
    }

    fn options(&self, name: &str, declare: &queue::Declare<'_>) -> Result<QueueOptions, Fault> {
        Ok(QueueOptions {
            // It ends with its connection, so nothing of it outlives a restart.
            durable: declare.durable && !declare.exclusive,
            exclusive: declare.exclusive,
            auto_delete: declare.auto_delete,
            settings: arguments::queue_settings(name, declare.arguments)?,
            arguments: Bytes::copy_from_slice(declare.arguments.as_bytes()),
        })
    }

    /// Who answers a request declares the queue that it is to answer to, to see whether the asker is still there.
    fn reply_queue_declared(
        &mut self,
        link: &mut Link,
        context: &Context<'_>,
        name: &str,
        no_wait: bool,
    ) -> Result<(), Fault> {
        if name != REPLY_TO && context.broker.named_queue(name).is_none() {
            return Err(Fault::not_found("queue", name));
        }
        self.last_queue = name.into();
        if !no_wait {
            link.send(self.number, &queue::DeclareOk { queue: name, message_count: 0, consumer_count: 1 });
        }
        Ok(())
    }

    fn declared(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        index: QueueIndex,
        name: &str,
        no_wait: bool,
    ) {
        self.last_queue = name.into();
        context.broker.renew_queue(context.now, index);
        if no_wait {
            return;
        }
        let (ready, consumers) =
            context.broker.queue_facts(index).map_or((0, 0), |facts| (facts.ready, facts.consumers));
        let declare_ok = queue::DeclareOk {
            queue: name,
            message_count: u32::try_from(ready).unwrap_or(u32::MAX),
            consumer_count: u32::try_from(consumers).unwrap_or(u32::MAX),
        };
        let gate = context.broker.queue_gate(index);
        link.reply(context.broker, gate, self.number, &declare_ok);
    }
}

fn cannot_declare(what: &str, name: &str, refused: TopologyRefused) -> Fault {
    let why = match refused {
        TopologyRefused::TooMany => format!("{what} limit in vhost '/' is reached"),
        _ => refused.to_string(),
    };
    Fault::precondition(format!("cannot declare {what} '{name}': {why}"))
}

pub(super) fn default_exchange() -> Fault {
    Fault::refused("operation not permitted on the default exchange")
}

/// The exchange of this name, to bind from or to.
pub(super) fn exchange_for_binding(context: &Context<'_>, name: &str) -> Result<ExchangeIndex, Fault> {
    if name.is_empty() {
        return Err(default_exchange());
    }
    context.broker.exchange(name).ok_or_else(|| Fault::not_found("exchange", name))
}

fn reserved(what: &str, name: &str) -> Fault {
    Fault::refused(format!("{what} name '{name}' contains reserved prefix 'amq.*'"))
}

/// Line ends have no place in a name, and are left out of it.
fn one_line(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '\r' | '\n')).collect()
}
