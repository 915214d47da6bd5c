//! An AMQP 0-9-1 client that keeps to the specification, and judges whether the gateway does.
//!
//! Channel 1 publishes, with confirms or in transactions; channel 2 consumes. What was published and not confirmed when a
//! connection ended is published again on the next. It writes frames into `outgoing`, which the world carries.

mod asking;

use std::collections::{BTreeMap, VecDeque};

use gatewayd::amqp091::codec::method::{basic, connection, tx};
use gatewayd::amqp091::codec::{
    Arguments, BasicProperties, Decoded, FieldTable, Frame, FrameType, LongString, Method, PROTOCOL_HEADER,
    ShortString, decode, encode_content, encode_heartbeat, encode_method, encode_properties,
};

use crate::client::Stage;
use crate::model::{Check, Instance, MessageNumber, Model};
use crate::payload;
use crate::plan::{AmqpProfile, GRAVE};
use crate::queues::{Exchange, Taken};
use crate::trace::Trace;

/// Publishes without their confirm at once.
const OUTSTANDING_MAX: usize = 8;
const PUBLISHING: u16 = 1;
const CONSUMING: u16 = 2;

/// Something that is asked for, one at a time, and answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Open(u16),
    Select,
    DeclareExchange,
    Declare(usize),
    Bind(usize, usize),
    Qos(u16),
    Consume(usize),
    /// The consumers end, their channel stays.
    Cancel(usize),
    Recover,
    CloseChannel,
    Get(usize),
    Purge(usize),
}

/// A delivery that is not settled.
#[derive(Clone, Copy, Debug)]
struct Unsettled {
    tag: u64,
    queue: usize,
    /// `None` for an empty body.
    number: Option<MessageNumber>,
    /// 0: it was asked for.
    consumer: u64,
}

/// A consumer, by the number in its tag.
#[derive(Debug)]
struct Consumer {
    queue: usize,
    /// Client and gateway surely agree on what is unsettled: since then each delivery stands for one settlement, in order.
    synced: bool,
    settled: VecDeque<Option<MessageNumber>>,
}

/// A delivery of which not all frames have come.
#[derive(Debug)]
struct Incoming {
    consumer: u64,
    /// The queue that was asked.
    asked: Option<usize>,
    tag: u64,
    redelivered: bool,
    exchange: String,
    routing_key: String,
    body_bytes: Option<usize>,
    persistent: bool,
    body: Vec<u8>,
}

#[derive(Debug)]
pub struct AmqpClient {
    pub number: usize,
    pub profile: AmqpProfile,
    pub stage: Stage,
    /// No other connection of this client is alive.
    pub alone: bool,
    /// The gateway has ended the present connection; what it had sent before is still read.
    pub late: bool,
    pub outgoing: Vec<u8>,
    /// Publishes sent on the present connection, to be told when it ends.
    pub carried: Vec<Instance>,
    link: u64,
    /// When it was opened, by the world's time.
    opened_us: u64,
    heartbeat_s: u16,
    input: Vec<u8>,
    script: VecDeque<Step>,
    awaiting: Option<Step>,
    /// Which channel for consuming this is.
    channel: u64,
    consumers: BTreeMap<u64, Consumer>,
    last_consumer: u64,
    unsettled: Vec<Unsettled>,
    /// Of each consumer, or of all together; the gateway knows it.
    limit: u16,
    incoming: Option<Incoming>,
    last_publish: u64,
    /// By the number of the publish on its channel.
    outstanding: BTreeMap<u64, Instance>,
    /// In the open transaction, and in the one whose commit is under way.
    transaction: Vec<Instance>,
    committing: Option<Vec<Instance>>,
    rolling_back: bool,
    /// To be published again.
    again: VecDeque<Instance>,
    pub deliveries: u64,
}

/// What becomes of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Ack,
    /// And all before it.
    AckMultiple,
    Requeue,
    RequeueByReject,
    Discard,
}

impl AmqpClient {
    pub fn new(number: usize, profile: AmqpProfile) -> Self {
        Self {
            number,
            profile,
            stage: Stage::Offline,
            alone: true,
            late: false,
            outgoing: Vec::new(),
            carried: Vec::new(),
            link: 0,
            opened_us: 0,
            heartbeat_s: 0,
            input: Vec::new(),
            script: VecDeque::new(),
            awaiting: None,
            channel: 0,
            consumers: BTreeMap::new(),
            last_consumer: 0,
            unsettled: Vec::new(),
            limit: 0,
            incoming: None,
            last_publish: 0,
            outstanding: BTreeMap::new(),
            transaction: Vec::new(),
            committing: None,
            rolling_back: false,
            again: VecDeque::new(),
            deliveries: 0,
        }
    }

    // What the world has it do.

    pub fn connect(&mut self, link: u64, heartbeat_s: u16, now_us: u64) {
        self.stage = Stage::Connecting;
        self.link = link;
        self.opened_us = now_us;
        self.heartbeat_s = heartbeat_s;
        self.outgoing.clear();
        self.input.clear();
        self.outgoing.extend_from_slice(&PROTOCOL_HEADER);
    }

    /// Nothing that it asked for is under way.
    pub fn is_free(&self) -> bool {
        self.stage == Stage::Joined && self.awaiting.is_none() && self.script.is_empty()
    }

    pub fn may_publish(&self) -> bool {
        let under_way = self.outstanding.len() + self.transaction.len();
        self.stage == Stage::Joined
            && !self.rolling_back
            && self.committing.is_none()
            && under_way < OUTSTANDING_MAX
    }

    pub const fn is_in_transaction(&self) -> bool {
        !self.transaction.is_empty()
    }

    /// No commit or rollback is under way.
    pub fn may_end_transaction(&self) -> bool {
        self.stage == Stage::Joined && !self.rolling_back && self.committing.is_none()
    }

    /// It has a delivery that it may say something of.
    pub fn may_settle(&self) -> bool {
        !self.unsettled.is_empty() && !self.is_deaf()
    }

    /// What is to be published again goes first.
    pub fn next_again(&mut self) -> Option<Instance> {
        if self.may_publish() { self.again.pop_front() } else { None }
    }

    pub fn publish(&mut self, step: u64, model: &mut Model, instance: Instance) {
        model.sent(step, instance);
        let message = model.at(instance.0);
        let routing_key = message.topic.replace('/', ".");
        let publish = basic::Publish {
            exchange: short(message.exchange.name()),
            routing_key: short(&routing_key),
            mandatory: false,
            immediate: false,
        };
        encode_method(&mut self.outgoing, PUBLISHING, &publish).expect("a small method fits");
        let delivery_mode = Some(if message.qos > 0 { 2 } else { 1 });
        let mut properties = Vec::new();
        let lasts = message.lasts_ms.map(|ms| ms.to_string());
        let expiration = lasts.as_deref().map(short);
        let basic = BasicProperties { delivery_mode, expiration, ..BasicProperties::default() };
        encode_properties(&mut properties, &basic).expect("two properties fit");
        let body = payload::encode(instance.0, message.bytes);
        let frame_max = usize::try_from(self.profile.frame_max).unwrap_or(4096);
        encode_content(&mut self.outgoing, PUBLISHING, &properties, &body, frame_max).expect("it is cut");
        self.carried.push(instance);
        if self.profile.transactional {
            self.transaction.push(instance);
        } else {
            self.last_publish += 1;
            self.outstanding.insert(self.last_publish, instance);
        }
    }

    pub fn commit(&mut self) {
        self.ask_on(PUBLISHING, &tx::Commit {});
        self.committing = Some(std::mem::take(&mut self.transaction));
    }

    pub fn roll_back(&mut self, model: &mut Model) {
        self.ask_on(PUBLISHING, &tx::Rollback {});
        self.rolling_back = true;
        self.take_back(model);
    }

    /// The open transaction is not committed. What was part of another one, of which nobody knows, is published again.
    fn take_back(&mut self, model: &mut Model) {
        for instance in std::mem::take(&mut self.transaction) {
            if model.at(instance.0).is_sent_once() {
                model.withdrawn(instance);
            } else {
                self.again.push_back(instance);
            }
        }
    }

    pub fn unsettled(&self) -> usize {
        self.unsettled.len()
    }

    /// Says what becomes of the delivery at this position.
    pub fn settle(&mut self, trace: &mut Trace, model: &mut Model, at: usize, verdict: Verdict) {
        if self.is_deaf() {
            return;
        }
        let Some(Unsettled { tag, .. }) = self.unsettled.get(at).copied() else { return };
        trace.note(format_args!("amqp {} > {verdict:?} {tag}", self.number));
        let (requeue, multiple) = (verdict == Verdict::Requeue, verdict == Verdict::AckMultiple);
        match verdict {
            Verdict::Ack | Verdict::AckMultiple => {
                self.ask_on(CONSUMING, &basic::Ack { delivery_tag: tag, multiple });
            }
            Verdict::Requeue | Verdict::Discard => {
                self.ask_on(CONSUMING, &basic::Nack { delivery_tag: tag, multiple: false, requeue });
            }
            Verdict::RequeueByReject => {
                self.ask_on(CONSUMING, &basic::Reject { delivery_tag: tag, requeue: true });
            }
        }
        let done = matches!(verdict, Verdict::Ack | Verdict::AckMultiple | Verdict::Discard);
        let from = if multiple { 0 } else { at };
        for unsettled in self.unsettled.drain(from..=at).collect::<Vec<_>>() {
            let back = unsettled.number.filter(|_| !done);
            if let Some(consumer) = self.consumers.get_mut(&unsettled.consumer).filter(|c| c.synced) {
                consumer.settled.push_back(back);
            }
            self.tell_settled(model, &unsettled, done);
            if verdict == Verdict::Discard
                && let (Some(number), Some(queue)) = (unsettled.number, model.queues.get_mut(unsettled.queue))
            {
                queue.refused(number);
            }
        }
    }

    fn tell_settled(&self, model: &mut Model, unsettled: &Unsettled, done: bool) {
        if let Some(number) = unsettled.number
            && let Some(queue) = model.queues.get_mut(unsettled.queue)
        {
            queue.settled((self.link, self.channel), number, done);
        }
    }

    /// The channel for consuming is closed with all that is not settled, and another one opened.
    pub fn renew_channel(&mut self, step: u64, model: &mut Model) {
        self.script.extend([Step::CloseChannel, Step::Open(CONSUMING), Step::Qos(self.profile.prefetch)]);
        self.script.extend(self.profile.consumes.iter().map(|queue| Step::Consume(*queue)));
        self.advance(step, model);
    }

    /// Ends a consumer and begins it anew.
    pub fn renew_consumer(&mut self, step: u64, model: &mut Model) {
        if let Some(queue) = self.profile.consumes.first().copied() {
            self.script.extend([Step::Cancel(queue), Step::Consume(queue)]);
            self.advance(step, model);
        }
    }

    pub fn recover(&mut self, step: u64, model: &mut Model) {
        self.script.push_back(Step::Recover);
        self.advance(step, model);
    }

    /// Takes more or fewer deliveries at once.
    pub fn change_prefetch(&mut self, step: u64, model: &mut Model, prefetch: u16) {
        self.profile.prefetch = prefetch;
        self.script.push_back(Step::Qos(prefetch));
        self.advance(step, model);
    }

    pub fn disconnect(&mut self, model: &mut Model) {
        self.give_everything_back(model);
        let close = connection::Close { reply_code: 200, reply_text: "bye", class_id: 0, method_id: 0 };
        self.ask_on(0, &close);
    }

    pub fn heartbeat(&mut self) {
        encode_heartbeat(&mut self.outgoing);
    }

    /// Its connection is gone. What was not confirmed is published again; what was not committed never happened.
    pub fn lost_connection(&mut self, step: u64, model: &mut Model) {
        self.stage = Stage::Offline;
        self.input.clear();
        self.outgoing.clear();
        self.script.clear();
        self.awaiting = None;
        self.consumers.clear();
        self.unsettled.clear();
        self.incoming = None;
        self.rolling_back = false;
        self.limit = 0;
        self.take_back(model);
        self.again.extend(std::mem::take(&mut self.outstanding).into_values());
        self.again.extend(self.committing.take().into_iter().flatten());
        for instance in std::mem::take(&mut self.carried) {
            model.ended(step, instance);
        }
    }

    /// What is still open though all has been quiet: nothing, if all went well.
    pub fn unfinished(&self) -> Check {
        if let Some(step) = self.awaiting {
            return Err(format!("amqp {}: {step:?} was never answered", self.number));
        }
        if let Some((tag, instance)) = self.outstanding.first_key_value() {
            return Err(format!("amqp {}: publish {tag} ({instance:?}) was never confirmed", self.number));
        }
        if self.committing.is_some() || self.rolling_back {
            return Err(format!("amqp {}: its transaction was never finished", self.number));
        }
        Ok(())
    }

    // What it receives.

    pub fn receive(&mut self, trace: &mut Trace, model: &mut Model, bytes: &[u8]) -> Check {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut taken = 0;
        loop {
            let rest = input.get(taken..).unwrap_or_default();
            match decode(rest, 1 << 20) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    self.handle(trace, model, frame)?;
                    taken += consumed;
                }
                Ok(Decoded::Incomplete { .. }) => break,
                Err(error) => return self.wrong(&format!("{error:?}")),
            }
        }
        self.input = input.get(taken..).unwrap_or_default().to_vec();
        Ok(())
    }

    fn handle(&mut self, trace: &mut Trace, model: &mut Model, frame: Frame<'_>) -> Check {
        let on_deaf_channel = frame.channel == CONSUMING && self.is_deaf();
        match frame.frame_type {
            FrameType::Heartbeat => Ok(()),
            FrameType::Method => {
                let method = frame.method().map_err(|error| format!("amqp {}: {error:?}", self.number))?;
                trace.note(format_args!("amqp {} < {} {method:?}", self.number, frame.channel));
                if self.answers(frame.channel, &method) {
                    let step = self.awaiting.take();
                    return self.answered(trace.step, model, step);
                }
                if on_deaf_channel {
                    // It came before the answer: the gateway has taken it back meanwhile.
                    return Ok(());
                }
                self.handle_method(trace.step, model, frame.channel, method)
            }
            FrameType::Header | FrameType::Body if on_deaf_channel => Ok(()),
            FrameType::Header => {
                let header = frame.content_header().map_err(|error| format!("{error:?}"))?;
                let Some(incoming) = &mut self.incoming else { return self.wrong("a header for nothing") };
                incoming.body_bytes = usize::try_from(header.body_bytes).ok();
                incoming.persistent = header.properties.delivery_mode == Some(2);
                self.delivered(trace, model)
            }
            FrameType::Body => {
                let Some(incoming) = &mut self.incoming else { return self.wrong("a body for nothing") };
                incoming.body.extend_from_slice(frame.payload);
                self.delivered(trace, model)
            }
        }
    }

    fn handle_method(&mut self, step: u64, model: &mut Model, channel: u16, method: Method<'_>) -> Check {
        match method {
            Method::Connection(connection::Method::Start(_)) => {
                let start_ok = connection::StartOk {
                    client_properties: FieldTable::EMPTY,
                    mechanism: "PLAIN",
                    response: LongString(b"\0guest\0guest"),
                    locale: "en_US",
                };
                self.ask_on(0, &start_ok);
            }
            Method::Connection(connection::Method::Tune(tune)) => {
                let (frame_max, heartbeat) = (self.profile.frame_max, self.heartbeat_s);
                self.ask_on(0, &connection::TuneOk { channel_max: tune.channel_max, frame_max, heartbeat });
                self.ask_on(0, &connection::Open { virtual_host: "/" });
            }
            Method::Connection(connection::Method::OpenOk(_)) => self.begin(step, model),
            Method::Connection(
                connection::Method::Blocked(_)
                | connection::Method::Unblocked(_)
                | connection::Method::CloseOk(_),
            ) => {}
            Method::Basic(basic::Method::Deliver(deliver)) if channel == CONSUMING => {
                let text = |text: ShortString<'_>| text.as_str().unwrap_or_default().to_owned();
                let tag = text(deliver.consumer_tag);
                let Ok(consumer) = tag.trim_start_matches('c').parse() else {
                    return self.wrong(&format!("a delivery to consumer {tag}"));
                };
                self.incoming = Some(Incoming {
                    consumer,
                    asked: None,
                    tag: deliver.delivery_tag,
                    redelivered: deliver.redelivered,
                    exchange: text(deliver.exchange),
                    routing_key: text(deliver.routing_key),
                    body_bytes: None,
                    persistent: false,
                    body: Vec::new(),
                });
            }
            Method::Basic(basic::Method::GetOk(got)) if channel == CONSUMING => return self.got(&got),
            Method::Basic(basic::Method::Ack(ack)) if channel == PUBLISHING => {
                return self.confirmed(step, model, ack.delivery_tag, ack.multiple);
            }
            Method::Tx(tx::Method::CommitOk(_)) if self.committing.is_some() => {
                for instance in self.committing.take().into_iter().flatten() {
                    model.acknowledged(step, instance);
                }
            }
            Method::Tx(tx::Method::RollbackOk(_)) if self.rolling_back => self.rolling_back = false,
            method => return self.wrong(&format!("{method:?} on channel {channel}")),
        }
        Ok(())
    }

    fn begin(&mut self, step: u64, model: &mut Model) {
        self.last_publish = 0;
        self.channel += 1;
        self.script.extend([Step::Open(PUBLISHING), Step::Select, Step::DeclareExchange]);
        let mut queues: Vec<_> = (0..model.queues.len()).collect();
        if self.profile.buries {
            // Where dead letters go is there before anything can die.
            queues.reverse();
        }
        for queue in queues {
            self.script.push_back(Step::Declare(queue));
            let bindings = self.profile.bindings.get(queue).map_or(0, Vec::len);
            self.script.extend((0..bindings).map(|binding| Step::Bind(queue, binding)));
        }
        self.script.extend([Step::Open(CONSUMING), Step::Qos(self.profile.prefetch)]);
        self.script.extend(self.profile.consumes.iter().map(|queue| Step::Consume(*queue)));
        self.advance(step, model);
    }

    /// All of a delivery is there when its body is as long as its header says.
    fn delivered(&mut self, trace: &mut Trace, model: &mut Model) -> Check {
        let whole = |incoming: &mut Incoming| incoming.body_bytes.is_some_and(|n| incoming.body.len() >= n);
        let Some(incoming) = self.incoming.take_if(whole) else { return Ok(()) };
        self.deliveries += 1;
        let number = payload::decode(&incoming.body);
        trace.note(format_args!(
            "amqp {} < {number:?} as {} {}",
            self.number, incoming.tag, incoming.redelivered
        ));
        let Some((queue, back)) = self.source(&incoming, number) else {
            return self.wrong("a delivery to a consumer that is gone");
        };
        let unsettled = Unsettled { tag: incoming.tag, queue, number, consumer: incoming.consumer };
        if self.unsettled.last().is_some_and(|last| last.tag >= incoming.tag) {
            return self.wrong("delivery tags do not ascend");
        }
        self.unsettled.push(unsettled);
        match incoming.asked.and_then(|queue| model.queues.get_mut(queue)) {
            // Only now it is known which message that is.
            Some(queue) => queue.answered(self.link),
            None => self.within_credit(incoming.consumer)?,
        }
        let Some(number) = number else {
            let is_dead = self.profile.buries && queue + 1 == model.queues.len();
            let exchange = if is_dead { Exchange::Default } else { Exchange::Topic };
            let known = incoming.body.is_empty() && incoming.exchange == exchange.name();
            return if known { Ok(()) } else { self.wrong("a body that nobody sent") };
        };
        if self.profile.buries && queue + 1 == model.queues.len() {
            return self.dead_letter(model, &incoming, number);
        }
        let known = model.messages.get(number as usize).is_some_and(|message| {
            message.bytes == incoming.body.len()
                && message.exchange.name() == incoming.exchange
                && message.topic.replace('/', ".") == incoming.routing_key
                && incoming.persistent == (message.qos > 0)
        });
        if !known {
            return self.wrong(&format!("message {number} came changed: {incoming:?}"));
        }
        if let Some(message) = model.messages.get(number as usize)
            && let Err(wrong) = model.is_in_time(message, self.opened_us)
            && !self.profile.sees_cold
        {
            return self.wrong(&format!("message {number}: {wrong}"));
        }
        let back = back.filter(|back| {
            let message = model.messages.get(*back as usize);
            message.is_some_and(|message| !message.may_be_over(0, model.now_us))
        });
        let holder = (self.link, self.channel);
        let taken = Taken { number, redelivered: incoming.redelivered, back, late: self.late };
        let (messages, queues) = (&model.messages, &mut model.queues);
        queues.get_mut(queue).map_or(Ok(()), |queue| queue.delivered(messages, holder, taken))
    }

    /// A delivery from the queue that takes dead letters.
    fn dead_letter(&self, model: &mut Model, incoming: &Incoming, number: MessageNumber) -> Check {
        let Some(message) = model.messages.get(number as usize) else {
            return self.wrong(&format!("nobody published dead letter {number}"));
        };
        let known = message.bytes == incoming.body.len()
            && incoming.exchange.is_empty()
            && incoming.routing_key == GRAVE
            && incoming.persistent == (message.qos > 0);
        if !known {
            return self.wrong(&format!("dead letter {number} came changed: {incoming:?}"));
        }
        let [first, .., grave] = model.queues.as_mut_slice() else { return Ok(()) };
        grave.buried(number);
        first.may_have_died(number, message)
    }

    /// The queue that a delivery is of, and what surely came back before it was handed over.
    fn source(
        &mut self,
        incoming: &Incoming,
        number: Option<MessageNumber>,
    ) -> Option<(usize, Option<MessageNumber>)> {
        if let Some(queue) = incoming.asked {
            return Some((queue, None));
        }
        let consumer = self.consumers.get_mut(&incoming.consumer)?;
        let back = if consumer.synced { consumer.settled.pop_front().flatten() } else { None };
        // It came back, and is on its way again already.
        consumer.settled.iter_mut().filter(|back| **back == number).for_each(|back| *back = None);
        Some((consumer.queue, back))
    }

    /// What is unsettled keeps to the prefetch; at the bound both sides know the same.
    fn within_credit(&mut self, consumer: u64) -> Check {
        let of_consumer = self.unsettled.iter().filter(|unsettled| unsettled.consumer == consumer).count();
        let all = self.unsettled.iter().filter(|unsettled| unsettled.consumer != 0).count();
        let counted = if self.profile.global { all } else { of_consumer };
        let limit = match self.awaiting {
            Some(Step::Qos(0)) => 0,
            Some(Step::Qos(next)) if self.limit > 0 => self.limit.max(next),
            _ => self.limit,
        };
        if limit > 0 && counted > usize::from(limit) {
            return self.wrong(&format!("{counted} unsettled with a prefetch of {limit}"));
        }
        let quiet = !self.profile.global && self.awaiting.is_none();
        if let Some(consumer) = self.consumers.get_mut(&consumer)
            && quiet
            && of_consumer == usize::from(self.limit)
        {
            consumer.synced = true;
            consumer.settled.clear();
        }
        Ok(())
    }

    fn confirmed(&mut self, step: u64, model: &mut Model, tag: u64, multiple: bool) -> Check {
        if !self.outstanding.contains_key(&tag) {
            return self.wrong(&format!("publish {tag} confirmed, which is not under way"));
        }
        let first = if multiple { 0 } else { tag };
        let confirmed: Vec<_> = self.outstanding.range(first..=tag).map(|(tag, i)| (*tag, *i)).collect();
        for (tag, instance) in confirmed {
            self.outstanding.remove(&tag);
            model.acknowledged(step, instance);
        }
        Ok(())
    }

    fn give_everything_back(&mut self, model: &mut Model) {
        for unsettled in std::mem::take(&mut self.unsettled) {
            self.tell_settled(model, &unsettled, false);
        }
        self.incoming = None;
        for consumer in self.consumers.values_mut() {
            consumer.synced = false;
            consumer.settled.clear();
        }
    }

    fn ask_on(&mut self, channel: u16, method: &impl Arguments) {
        encode_method(&mut self.outgoing, channel, method).expect("a small method fits");
    }

    fn wrong(&self, what: &str) -> Check {
        Err(format!("amqp {}: {what}", self.number))
    }
}

fn short(text: &str) -> ShortString<'_> {
    ShortString::try_from(text).expect("the plan's names are short")
}
