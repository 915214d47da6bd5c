//! One channel: what its methods mean, and what it keeps between them.
//!
//! Owns the order of methods and contents and the transaction. Publishing is in `publishing`, declaring in `declaring`
//! and `binding`, consuming in `consuming`, acknowledging in `settling`, deliveries in `delivering`.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::codec::method::{basic, channel, confirm, queue, tx};
use super::codec::{Arguments, Frame, FrameType, Method, MethodId, ReplyCode};
use super::consuming::Consumer;
use super::fault::Fault;
use super::link::{Context, Link};
use super::publishing::{Content, Pending};
use super::settling::{Settling, Unsettled};
use crate::broker::{CreditPool, Gate, QueueIndex, Settlement};
use crate::time::Now;

/// What was published and settled in a transaction.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub published: Vec<Pending>,
    pub settled: Vec<Settling>,
}

#[derive(Debug)]
pub(super) struct Channel {
    pub number: u16,
    /// Tells it from an earlier channel with its number.
    pub serial: u64,
    open: bool,
    /// A publish whose content is not whole.
    pub content: Option<Content>,
    pub has_published: bool,
    /// Number of the newest publish that is to be confirmed.
    pub confirm: Option<u64>,
    pub transaction: Option<Transaction>,
    pub last_delivery_tag: u64,
    /// In the order of their tags.
    pub unsettled: VecDeque<Unsettled>,
    pub consumers: BTreeMap<Box<str>, Consumer>,
    /// Tags of the consumers by their handles.
    pub handles: BTreeMap<u64, Box<str>>,
    pub last_handle: u64,
    pub pool: Rc<CreditPool>,
    /// Prefetch of each consumer.
    pub prefetch: u16,
    /// The queue that was declared last, meant where none is named.
    pub last_queue: Box<str>,
    /// Name of the queue of the direct replies to this channel. The queue ends with its consumer, before the channel
    /// does: ask [`Channel::reply_name`].
    pub replies: Option<Box<str>>,
}

impl Channel {
    pub fn new(number: u16, serial: u64, link: &Link) -> Self {
        Self {
            number,
            serial,
            open: true,
            content: None,
            has_published: false,
            confirm: None,
            transaction: None,
            last_delivery_tag: 0,
            unsettled: VecDeque::new(),
            consumers: BTreeMap::new(),
            handles: BTreeMap::new(),
            last_handle: u64::from(number) << 48,
            pool: Rc::new(CreditPool::new(Rc::clone(&link.outlet))),
            prefetch: 0,
            last_queue: Box::default(),
            replies: None,
        }
    }

    /// A channel of which only the client's answer to its closing is awaited.
    pub fn closing(number: u16, link: &Link) -> Self {
        Self { open: false, ..Self::new(number, 0, link) }
    }

    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Handles a frame; `method` is what it holds if it is a method.
    pub fn handle(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        frame: Frame<'_>,
        method: Option<Method<'_>>,
    ) -> Result<(), Fault> {
        // What is wrong with a content is the fault of the publish that it belongs to.
        let publishing = self.content.is_some();
        let of_publish = |fault: Fault| match fault.method {
            MethodId::NONE if publishing => Fault { method: basic::Publish::ID, ..fault },
            _ => fault,
        };
        let Some(method) = method else {
            let handled = match frame.frame_type {
                FrameType::Header => self.handle_header(link, context, frame),
                FrameType::Body => self.handle_body(link, context, frame.payload),
                FrameType::Method | FrameType::Heartbeat => Ok(()),
            };
            return handled.map_err(of_publish);
        };
        if let Some(content) = &self.content {
            return Err(of_publish(Fault::new(ReplyCode::UnexpectedFrame, content.expected())));
        }
        match method {
            Method::Basic(method) => self.handle_basic(link, context, method),
            Method::Queue(method) => self.handle_queue(link, context, &method),
            Method::Exchange(method) => self.handle_exchange(link, context, &method),
            Method::Confirm(confirm::Method::Select(select)) => self.handle_confirm_select(link, select),
            Method::Tx(method) => self.handle_tx(link, context, method),
            Method::Channel(channel::Method::Flow(flow)) => {
                if !flow.active {
                    return Err(Fault::not_implemented("active=false"));
                }
                link.send(self.number, &channel::FlowOk { active: true });
                Ok(())
            }
            Method::Access(super::codec::method::access::Method::Request(_)) => {
                link.send(self.number, &super::codec::method::access::RequestOk { ticket: 1 });
                Ok(())
            }
            Method::Channel(channel::Method::FlowOk(_) | channel::Method::CloseOk(_)) => Ok(()),
            Method::Connection(_) | Method::Confirm(_) | Method::Channel(_) | Method::Access(_) => {
                Err(Fault::new(ReplyCode::CommandInvalid, "unexpected method on a channel"))
            }
        }
    }

    /// The channel ends: consumers leave, what they have not settled goes back to its place.
    pub fn close(mut self, link: &Link, context: &mut Context<'_>) {
        let consumers = std::mem::take(&mut self.consumers);
        // First they leave, so that what comes back goes to others.
        let settled = self.transaction.take().into_iter().flat_map(|transaction| transaction.settled);
        let mut back: Vec<_> = settled.flat_map(|settling| settling.deliveries).collect();
        back.extend(std::mem::take(&mut self.unsettled));
        back.sort_by_key(|unsettled| unsettled.tag);
        let auto_delete = |queue: QueueIndex, context: &Context<'_>| {
            context.broker.queue_facts(queue).is_some_and(|facts| facts.options.auto_delete)
        };
        let (ending, staying): (Vec<_>, Vec<_>) =
            consumers.into_values().partition(|consumer| auto_delete(consumer.queue, context));
        for consumer in staying {
            context.broker.cancel(context.now, consumer.queue, link.id, consumer.handle);
        }
        let back = back.iter().map(|unsettled| (unsettled.queue, unsettled.number));
        context.broker.settle_deliveries(context.now, back, Settlement::Requeue);
        for consumer in ending {
            context.broker.cancel(context.now, consumer.queue, link.id, consumer.handle);
        }
        if let Some(queue) = self.reply_name(context.broker).and_then(|name| context.broker.named_queue(name))
        {
            let _gone = context.broker.delete_queue(context.now, queue, false, false);
        }
    }

    /// Output or shared credit has room again: the queues of all consumers hand over what waits.
    pub fn resume_all(&self, now: Now, broker: &mut crate::broker::Broker) {
        for consumer in self.consumers.values() {
            broker.hand_over(now, consumer.queue);
        }
    }

    fn handle_basic(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        method: basic::Method<'_>,
    ) -> Result<(), Fault> {
        match method {
            basic::Method::Publish(publish) => self.handle_publish(link, context, &publish),
            basic::Method::Qos(qos) => self.handle_qos(link, context, qos),
            basic::Method::Consume(consume) => self.handle_consume(link, context, &consume),
            basic::Method::Cancel(cancel) => {
                self.handle_cancel(link, context, &cancel);
                Ok(())
            }
            basic::Method::CancelOk(_) => Ok(()),
            basic::Method::Get(get) => self.handle_get(link, context, get),
            basic::Method::Ack(ack) => {
                self.handle_settled(link, context, (ack.delivery_tag, ack.multiple), Settlement::Accept)
            }
            basic::Method::Reject(reject) => {
                let settlement = if reject.requeue { Settlement::Requeue } else { Settlement::Discard };
                self.handle_settled(link, context, (reject.delivery_tag, false), settlement)
            }
            basic::Method::Nack(nack) => {
                let settlement = if nack.requeue { Settlement::Requeue } else { Settlement::Discard };
                self.handle_settled(link, context, (nack.delivery_tag, nack.multiple), settlement)
            }
            basic::Method::Recover(recover) => {
                self.handle_recover(context, recover.requeue)?;
                link.send(self.number, &basic::RecoverOk {});
                Ok(())
            }
            basic::Method::RecoverAsync(recover) => self.handle_recover(context, recover.requeue),
            basic::Method::QosOk(_)
            | basic::Method::ConsumeOk(_)
            | basic::Method::Return(_)
            | basic::Method::Deliver(_)
            | basic::Method::GetOk(_)
            | basic::Method::GetEmpty(_)
            | basic::Method::RecoverOk(_) => {
                Err(Fault::new(ReplyCode::CommandInvalid, "a method that only servers send"))
            }
        }
    }

    fn handle_queue(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        method: &queue::Method<'_>,
    ) -> Result<(), Fault> {
        match method {
            queue::Method::Declare(declare) => self.handle_queue_declare(link, context, declare),
            queue::Method::Bind(bind) => self.handle_queue_bind(link, context, bind),
            queue::Method::Unbind(unbind) => self.handle_queue_unbind(link, context, unbind),
            queue::Method::Purge(purge) => self.handle_purge(link, context, purge),
            queue::Method::Delete(delete) => self.handle_queue_delete(link, context, delete),
            queue::Method::DeclareOk(_)
            | queue::Method::BindOk(_)
            | queue::Method::UnbindOk(_)
            | queue::Method::PurgeOk(_)
            | queue::Method::DeleteOk(_) => {
                Err(Fault::new(ReplyCode::CommandInvalid, "a method that only servers send"))
            }
        }
    }

    fn handle_confirm_select(&mut self, link: &mut Link, select: confirm::Select) -> Result<(), Fault> {
        if self.transaction.is_some() {
            return Err(Fault::precondition("cannot switch from tx to confirm mode"));
        }
        self.confirm.get_or_insert(0);
        if !select.no_wait {
            link.send(self.number, &confirm::SelectOk {});
        }
        Ok(())
    }

    fn handle_tx(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        method: tx::Method,
    ) -> Result<(), Fault> {
        match method {
            tx::Method::Select(_) => {
                if self.confirm.is_some() {
                    return Err(Fault::precondition("cannot switch from confirm to tx mode"));
                }
                self.transaction.get_or_insert_with(Transaction::default);
                link.send(self.number, &tx::SelectOk {});
                Ok(())
            }
            tx::Method::Commit(_) => {
                let transaction = self.take_transaction()?;
                let gate = self.commit(link, context, transaction);
                link.reply(context.broker, gate, self.number, &tx::CommitOk {});
                Ok(())
            }
            tx::Method::Rollback(_) => {
                let transaction = self.take_transaction()?;
                for settling in transaction.settled {
                    self.unsettled.extend(settling.deliveries);
                }
                self.unsettled.make_contiguous().sort_by_key(|unsettled| unsettled.tag);
                link.send(self.number, &tx::RollbackOk {});
                Ok(())
            }
            tx::Method::SelectOk(_) | tx::Method::CommitOk(_) | tx::Method::RollbackOk(_) => {
                Err(Fault::new(ReplyCode::CommandInvalid, "a method that only servers send"))
            }
        }
    }

    /// Everything of a transaction happens at once, and is in one batch.
    fn commit(&mut self, link: &mut Link, context: &mut Context<'_>, transaction: Transaction) -> Gate {
        let mut waits = false;
        for pending in transaction.published {
            let routed = self.route(link, context, pending);
            waits |= routed.gate.batch().is_some();
        }
        for settling in transaction.settled {
            waits |= settling.deliveries.iter().any(|unsettled| {
                context.broker.queue_facts(unsettled.queue).is_some_and(|facts| facts.options.durable)
            });
            self.settle(context, settling);
        }
        if waits { context.broker.commit(context.now) } else { Gate::Open }
    }

    fn take_transaction(&mut self) -> Result<Transaction, Fault> {
        let not_transactional = || Fault::precondition("channel is not transactional");
        self.transaction.as_mut().map(std::mem::take).ok_or_else(not_transactional)
    }
}
