//! What an AMQP client asks for, one thing at a time, and the answers.

use std::collections::VecDeque;

use gatewayd::amqp091::codec::method::{basic, channel, confirm, exchange, queue, tx};
use gatewayd::amqp091::codec::{FieldTable, FieldTableBuilder, FieldValue, Method, ShortString};

use super::{AmqpClient, CONSUMING, Consumer, Incoming, PUBLISHING, Step};
use crate::client::Stage;
use crate::model::{Check, Model};
use crate::plan::GRAVE;
use crate::queues::Exchange;

impl AmqpClient {
    /// Nothing that comes on the channel counts: it is being closed, or all that is unsettled goes back.
    pub(super) const fn is_deaf(&self) -> bool {
        matches!(self.awaiting, Some(Step::CloseChannel | Step::Recover))
    }

    pub(super) fn answers(&self, on: u16, method: &Method<'_>) -> bool {
        let Some(step) = self.awaiting else { return false };
        let (wanted, is_answer) = match (step, method) {
            (Step::Open(number), Method::Channel(channel::Method::OpenOk(_))) => (number, true),
            (Step::CloseChannel, Method::Channel(channel::Method::CloseOk(_))) => (CONSUMING, true),
            (Step::Select, Method::Confirm(confirm::Method::SelectOk(_)))
            | (Step::Select, Method::Tx(tx::Method::SelectOk(_)))
            | (Step::DeclareExchange, Method::Exchange(exchange::Method::DeclareOk(_)))
            | (Step::Declare(_), Method::Queue(queue::Method::DeclareOk(_)))
            | (Step::Purge(_), Method::Queue(queue::Method::PurgeOk(_)))
            | (Step::Bind(..), Method::Queue(queue::Method::BindOk(_))) => (PUBLISHING, true),
            (Step::Qos(_), Method::Basic(basic::Method::QosOk(_)))
            | (Step::Consume(_), Method::Basic(basic::Method::ConsumeOk(_)))
            | (Step::Cancel(_), Method::Basic(basic::Method::CancelOk(_)))
            | (Step::Get(_), Method::Basic(basic::Method::GetEmpty(_)))
            | (Step::Recover, Method::Basic(basic::Method::RecoverOk(_))) => (CONSUMING, true),
            _ => (0, false),
        };
        is_answer && wanted == on
    }

    pub(super) fn answered(&mut self, now: u64, model: &mut Model, step: Option<Step>) -> Check {
        match step {
            Some(Step::Declare(queue)) => {
                if let Some(queue) = model.queues.get_mut(queue) {
                    queue.declared();
                }
            }
            Some(Step::Bind(queue, binding)) => {
                if let Some((exchange, pattern)) = self.binding(queue, binding)
                    && let Some(queue) = model.queues.get_mut(queue)
                {
                    queue.bound(exchange, pattern);
                }
            }
            Some(Step::Get(queue)) => {
                if let Some(queue) = model.queues.get_mut(queue) {
                    queue.was_empty(self.link)?;
                }
            }
            Some(Step::Purge(queue)) => {
                if let Some(queue) = model.queues.get_mut(queue) {
                    queue.purged(self.link);
                }
            }
            Some(Step::Qos(prefetch)) => self.limit = prefetch,
            Some(Step::Cancel(queue)) => self.consumers.retain(|_, consumer| consumer.queue != queue),
            _ => {}
        }
        self.advance(now, model);
        Ok(())
    }

    /// Asks for a message of the queue.
    pub fn poll(&mut self, now: u64, model: &mut Model, queue: usize) {
        self.script.push_back(Step::Get(queue));
        self.advance(now, model);
    }

    /// Empties the queue.
    pub fn purge(&mut self, now: u64, model: &mut Model, queue: usize) {
        self.script.push_back(Step::Purge(queue));
        self.advance(now, model);
    }

    /// basic.get-ok came; the message follows.
    pub(super) fn got(&mut self, got: &basic::GetOk<'_>) -> Check {
        let Some(Step::Get(queue)) = self.awaiting else {
            return self.wrong("a message that it did not ask for");
        };
        self.awaiting = None;
        let text = |text: ShortString<'_>| text.as_str().unwrap_or_default().to_owned();
        self.incoming = Some(Incoming {
            consumer: 0,
            asked: Some(queue),
            tag: got.delivery_tag,
            redelivered: got.redelivered,
            exchange: text(got.exchange),
            routing_key: text(got.routing_key),
            body_bytes: None,
            persistent: false,
            body: Vec::new(),
        });
        Ok(())
    }

    fn binding(&self, queue: usize, binding: usize) -> Option<(Exchange, &'static str)> {
        self.profile.bindings.get(queue)?.get(binding).copied()
    }

    /// Asks for what comes next.
    pub(super) fn advance(&mut self, now: u64, model: &mut Model) {
        if self.awaiting.is_some() {
            return;
        }
        let Some(step) = self.script.pop_front() else {
            self.stage = Stage::Joined;
            return;
        };
        self.awaiting = Some(step);
        match step {
            Step::Open(number) => self.ask_on(number, &channel::Open {}),
            Step::Select if self.profile.transactional => self.ask_on(PUBLISHING, &tx::Select {}),
            Step::Select => self.ask_on(PUBLISHING, &confirm::Select { no_wait: false }),
            Step::DeclareExchange => {
                let declare = exchange::Declare {
                    exchange: Exchange::Direct.name(),
                    kind: "direct",
                    passive: false,
                    durable: true,
                    auto_delete: false,
                    internal: false,
                    no_wait: false,
                    arguments: FieldTable::EMPTY,
                };
                self.ask_on(PUBLISHING, &declare);
            }
            Step::Declare(queue) => self.declare(now, model, queue),
            Step::Bind(queue, binding) => self.bind(now, model, queue, binding),
            Step::Qos(prefetch) => {
                for consumer in self.consumers.values_mut() {
                    consumer.synced = false;
                    consumer.settled.clear();
                }
                let global = self.profile.global;
                self.ask_on(CONSUMING, &basic::Qos { prefetch_size: 0, prefetch_count: prefetch, global });
            }
            Step::Consume(queue) => self.consume(model, queue),
            Step::Cancel(queue) => {
                let consumer = self.consumers.iter().find(|(_, consumer)| consumer.queue == queue);
                let tag = consumer.map_or_else(String::new, |(number, _)| format!("c{number}"));
                self.ask_on(CONSUMING, &basic::Cancel { consumer_tag: &tag, no_wait: false });
            }
            Step::Get(queue) => {
                let Some(state) = model.queues.get_mut(queue) else { return };
                state.asking(self.link);
                let name = state.name;
                self.ask_on(CONSUMING, &basic::Get { queue: name, no_ack: false });
            }
            Step::Purge(at) => {
                let Some(state) = model.queues.get_mut(at) else { return };
                state.purging(self.link, &model.messages);
                let name = state.name;
                self.ask_on(PUBLISHING, &queue::Purge { queue: name, no_wait: false });
            }
            Step::Recover => {
                self.give_everything_back(model);
                for consumer in self.consumers.values() {
                    if let Some(queue) = model.queues.get_mut(consumer.queue) {
                        queue.consuming(&model.messages);
                    }
                }
                self.ask_on(CONSUMING, &basic::Recover { requeue: true });
            }
            Step::CloseChannel => {
                self.give_everything_back(model);
                self.consumers.clear();
                self.channel += 1;
                self.limit = 0;
                let close = channel::Close { reply_code: 200, reply_text: "", class_id: 0, method_id: 0 };
                self.ask_on(CONSUMING, &close);
            }
        }
    }

    fn declare(&mut self, now: u64, model: &mut Model, queue: usize) {
        let Some(state) = model.queues.get_mut(queue) else { return };
        state.declaring(now);
        let mut arguments = FieldTableBuilder::new();
        if queue == 0 && self.profile.buries {
            for (name, value) in [("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", GRAVE)] {
                arguments.push(name, FieldValue::LongString(value.as_bytes())).expect("two names fit");
            }
        }
        let declare = queue::Declare {
            queue: state.name,
            passive: false,
            durable: true,
            exclusive: false,
            auto_delete: false,
            no_wait: false,
            arguments: arguments.table(),
        };
        self.ask_on(PUBLISHING, &declare);
    }

    fn bind(&mut self, now: u64, model: &mut Model, queue: usize, binding: usize) {
        let Some((exchange, pattern)) = self.binding(queue, binding) else { return };
        let Some(state) = model.queues.get_mut(queue) else { return };
        state.binding(now, exchange, pattern);
        let bind = queue::Bind {
            queue: state.name,
            exchange: exchange.name(),
            routing_key: pattern,
            no_wait: false,
            arguments: FieldTable::EMPTY,
        };
        self.ask_on(PUBLISHING, &bind);
    }

    fn consume(&mut self, model: &mut Model, queue: usize) {
        let Some(state) = model.queues.get_mut(queue) else { return };
        if self.alone {
            state.consuming(&model.messages);
        } else {
            // What the other connection is sent is not seen.
            state.unordered = true;
        }
        self.last_consumer += 1;
        let tag = format!("c{}", self.last_consumer);
        let consumer = Consumer { queue, synced: false, settled: VecDeque::new() };
        self.consumers.insert(self.last_consumer, consumer);
        let consume = basic::Consume {
            queue: state.name,
            consumer_tag: &tag,
            no_local: false,
            no_ack: false,
            exclusive: false,
            no_wait: false,
            arguments: FieldTable::EMPTY,
        };
        self.ask_on(CONSUMING, &consume);
    }
}
