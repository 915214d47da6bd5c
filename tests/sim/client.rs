//! An MQTT client that keeps to the specification, and judges whether the gateway does.
//!
//! It owns what a client must remember between connections: publishes without their acknowledgement, exactly-once
//! deliveries without their release. It writes packets into `outgoing`, which the world carries.

mod five;
mod subscribing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use five::Five;

use gatewayd::mqtt::codec::client::{
    Connect, ConnectReturnCode, Publish, ServerPacket, SubscribeReturnCode, Will, decode_server_packet,
    encode_connect, encode_disconnect, encode_pingreq, encode_puback, encode_pubcomp, encode_publish,
    encode_pubrec, encode_pubrel,
};
use gatewayd::mqtt::codec::{
    Decoded, PacketIdentifier, Properties, PropertyId, PropertyList, ProtocolVersion, QualityOfService,
    ReasonCode,
};
use gatewayd::mqtt::topic::TopicName;

use crate::model::{Check, Instance, MessageNumber, Model, Seen};
use crate::payload;
use crate::retained::Deletion;
use crate::trace::Trace;

const PACKET_BYTES_MAX: usize = 4 << 20;
/// A client numbers its packets with so few identifiers that they are soon used again.
const IDENTIFIERS: u16 = 12;
/// Publishes that a client has under way at once.
const OUTBOUND_MAX: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Offline,
    /// CONNECT is sent.
    Connecting,
    Joined,
}

/// What a publish was: a message of the model, or an empty payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    Message(Instance),
    Empty(&'static str, Option<Deletion>),
}

/// A publish of QoS 1 or 2 under way.
#[derive(Clone, Copy, Debug)]
struct Outbound {
    identifier: PacketIdentifier,
    content: Content,
    qos: u8,
    retain: bool,
    /// PUBREC came; the release is to be confirmed.
    released: bool,
}

/// A reply that the gateway owes, in its order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owed {
    PubAck(u16),
    PubRec(u16),
    PubComp(u16),
    SubAck(u16),
    UnsubAck(u16),
}

/// A packet that the client owes.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::enum_variant_names, reason = "they are the names of packets")]
enum Reply {
    PubAck(u16),
    PubRec(u16),
    PubRel(u16),
    PubComp(u16),
}

/// A change of subscriptions under way.
#[derive(Clone, Debug)]
enum Request {
    Subscribe(Vec<(&'static str, u8)>),
    Unsubscribe(&'static str),
}

/// A will as it goes with CONNECT.
#[derive(Clone, Copy, Debug)]
pub struct WillOf {
    pub number: MessageNumber,
}

#[derive(Debug)]
pub struct Client {
    pub number: usize,
    pub identifier: String,
    pub stage: Stage,
    /// The present connection's session ends with it.
    pub clean: bool,
    /// It asked for a fresh session and does not know whether it got one; it asks until it does.
    pub must_be_clean: bool,
    pub outgoing: Vec<u8>,
    /// Publishes sent on the present connection, to be told when it ends.
    pub carried: Vec<Content>,
    /// The window that the gateway keeps to, and the one of the present connection.
    inflight_max: usize,
    window_max: usize,
    version: ProtocolVersion,
    five: Option<Five>,
    /// When the present connection was opened, by the world's time.
    opened_us: u64,
    /// Topics that the gateway's aliases stand for, and aliases of the client's own.
    aliases_in: BTreeMap<u16, String>,
    aliases_out: BTreeMap<&'static str, u16>,
    aliases_out_max: u16,
    input: Vec<u8>,
    outbound: VecDeque<Outbound>,
    /// Exactly-once deliveries that are not released yet; `None` for an empty payload.
    inbound_once: BTreeMap<u16, Option<MessageNumber>>,
    /// Those of them that another session may have taken the place of, so that nobody may release them.
    doubtful_once: BTreeSet<u16>,
    /// At-least-once deliveries that were not acknowledged, since the gateway's start and in what is surely one session.
    unanswered: BTreeMap<u16, Option<MessageNumber>>,
    owed: VecDeque<Owed>,
    replies: VecDeque<Reply>,
    /// Identifiers that count to the gateway's window on this connection.
    window: BTreeSet<u16>,
    next_identifier: u16,
    request: Option<Request>,
    pub deliveries: u64,
}

impl Client {
    pub fn new(number: usize, inflight_max: u16) -> Self {
        Self {
            number,
            identifier: format!("client-{number}"),
            stage: Stage::Offline,
            clean: false,
            must_be_clean: false,
            outgoing: Vec::new(),
            carried: Vec::new(),
            inflight_max: usize::from(inflight_max),
            window_max: usize::from(inflight_max),
            version: ProtocolVersion::V311,
            five: None,
            opened_us: 0,
            aliases_in: BTreeMap::new(),
            aliases_out: BTreeMap::new(),
            aliases_out_max: 0,
            input: Vec::new(),
            outbound: VecDeque::new(),
            inbound_once: BTreeMap::new(),
            doubtful_once: BTreeSet::new(),
            unanswered: BTreeMap::new(),
            owed: VecDeque::new(),
            replies: VecDeque::new(),
            window: BTreeSet::new(),
            next_identifier: 1,
            request: None,
            deliveries: 0,
        }
    }

    // What the world has it do.

    pub fn connect(
        &mut self,
        model: &mut Model,
        clean: bool,
        keep_alive_s: u16,
        will: Option<WillOf>,
        five: Option<Five>,
    ) {
        self.speak(five);
        self.opened_us = model.now_us;
        self.stage = Stage::Connecting;
        self.clean = clean;
        self.input.clear();
        self.outgoing.clear();
        self.owed.clear();
        self.replies.clear();
        self.window.clear();
        self.carried.clear();
        self.request = None;
        model.connecting(self.number, clean);
        if clean {
            self.must_be_clean = true;
            self.forget_session(model);
        }
        let payload = will.map(|will| payload::encode(will.number, model.at(will.number).bytes));
        let will = will.zip(payload.as_deref()).map(|(will, payload)| {
            let message = model.at(will.number);
            Will {
                topic: name(message.topic),
                payload,
                qos: qos_of(message.qos),
                retain: message.retain,
                properties: Properties::NONE,
            }
        });
        let mut properties = PropertyList::new();
        if let Some(five) = five {
            if !clean {
                properties.number(PropertyId::SessionExpiryInterval, u32::MAX);
            }
            properties.number(PropertyId::ReceiveMaximum, u32::from(five.receive_maximum));
            properties.number(PropertyId::TopicAliasMaximum, u32::from(five.topic_alias_maximum));
        }
        let connect = Connect {
            version: self.version,
            bridge: false,
            clean_session: clean,
            keep_alive_s,
            client_identifier: &self.identifier,
            will,
            user_name: None,
            password: None,
            properties: properties.as_properties(),
        };
        encode_connect(&mut self.outgoing, &connect).expect("a small CONNECT fits");
    }

    /// True when one more publish of this QoS may go out.
    pub fn may_publish(&self, qos: u8) -> bool {
        match self.stage {
            Stage::Offline => false,
            // Before CONNACK only a fresh session's order is known.
            Stage::Connecting => self.clean && (qos == 0 || self.outbound.len() < OUTBOUND_MAX),
            Stage::Joined => qos == 0 || self.outbound.len() < OUTBOUND_MAX,
        }
    }

    pub fn publish(&mut self, step: u64, model: &mut Model, content: Content, qos: u8, retain: bool) {
        if qos == 0 {
            self.send_publish(step, model, content, 0, retain, None, false);
            return;
        }
        let identifier = self.fresh_identifier();
        self.outbound.push_back(Outbound { identifier, content, qos, retain, released: false });
        self.send_publish(step, model, content, qos, retain, Some(identifier), false);
    }

    pub fn ping(&mut self) {
        encode_pingreq(&mut self.outgoing);
    }

    pub fn disconnect(&mut self) {
        encode_disconnect(&mut self.outgoing);
    }

    /// Packets that it owes and has not sent.
    pub fn replies(&self) -> usize {
        self.replies.len()
    }

    /// Sends the oldest packet that it owes.
    pub fn reply(&mut self, trace: &mut Trace) {
        let Some(reply) = self.replies.pop_front() else { return };
        trace.note(format_args!("client {} > {reply:?}", self.number));
        match reply {
            Reply::PubAck(identifier) => {
                encode_puback(&mut self.outgoing, packet(identifier));
                self.window.remove(&identifier);
                self.unanswered.remove(&identifier);
            }
            Reply::PubRec(identifier) => encode_pubrec(&mut self.outgoing, packet(identifier)),
            Reply::PubRel(identifier) => {
                encode_pubrel(&mut self.outgoing, packet(identifier));
                self.owed.push_back(Owed::PubComp(identifier));
            }
            Reply::PubComp(identifier) => {
                encode_pubcomp(&mut self.outgoing, packet(identifier));
                self.window.remove(&identifier);
            }
        }
    }

    /// Its connection is gone.
    pub fn lost_connection(&mut self, step: u64, model: &mut Model) {
        self.stage = Stage::Offline;
        self.input.clear();
        self.outgoing.clear();
        self.request = None;
        if self.clean {
            // A clean session ends with its connection. [MQTT-3.1.2-6]
            self.forget_session(model);
        }
        for content in std::mem::take(&mut self.carried) {
            tell_ended(step, model, content);
        }
    }

    /// The gateway started anew: deliveries that were not exactly-once may come under other identifiers.
    pub fn gateway_restarted(&mut self) {
        self.unanswered.clear();
    }

    /// What is still open though all has been quiet: nothing, if all went well.
    pub fn unfinished(&self) -> Check {
        if let Some(outbound) = self.outbound.front() {
            return Err(format!("client {}: its publish was never finished: {outbound:?}", self.number));
        }
        let mut open = self.inbound_once.iter().filter(|(number, _)| !self.doubtful_once.contains(number));
        if let Some((identifier, message)) = open.next() {
            return Err(format!(
                "client {}: exactly-once delivery {identifier} ({message:?}) was never released",
                self.number
            ));
        }
        if let Some(owed) = self.owed.front() {
            return Err(format!("client {}: {owed:?} never came", self.number));
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
            if rest.is_empty() {
                break;
            }
            match decode_server_packet(rest, self.version, PACKET_BYTES_MAX) {
                Ok(Decoded::Packet { packet, consumed }) => {
                    note(trace, self.number, &packet);
                    self.handle(trace.step, model, packet)?;
                    taken += consumed;
                }
                Ok(Decoded::Incomplete { .. }) => break,
                Err(error) => return Err(format!("client {}: {error}", self.number)),
            }
        }
        self.input = input.get(taken..).unwrap_or_default().to_vec();
        Ok(())
    }

    fn handle(&mut self, step: u64, model: &mut Model, packet: ServerPacket<'_>) -> Check {
        let connack = matches!(packet, ServerPacket::ConnAck(_) | ServerPacket::ConnAck5(_));
        if self.stage == Stage::Connecting && !connack {
            return Err(format!("client {}: {packet:?} before CONNACK", self.number));
        }
        match packet {
            ServerPacket::ConnAck(connack) => {
                if connack.return_code != ConnectReturnCode::Accepted {
                    return Err(format!("client {}: refused with {:?}", self.number, connack.return_code));
                }
                self.joined(step, model, connack.session_present)
            }
            ServerPacket::ConnAck5(connack) => {
                if connack.reason != ReasonCode::Success {
                    return Err(format!("client {}: refused with {:?}", self.number, connack.reason));
                }
                let aliases = connack.properties.number16(PropertyId::TopicAliasMaximum).unwrap_or(0);
                self.aliases_out_max = if self.five.is_some_and(|five| five.aliases) { aliases } else { 0 };
                self.joined(step, model, connack.session_present)
            }
            ServerPacket::Publish(publish) => self.handle_publish(model, &publish),
            ServerPacket::PubAck(ack) => {
                let identifier = ack.packet_identifier;
                self.settle(Owed::PubAck(identifier.number()))?;
                self.acknowledged(step, model, identifier, 1)
            }
            ServerPacket::PubRec(ack) => {
                let identifier = ack.packet_identifier;
                self.settle(Owed::PubRec(identifier.number()))?;
                self.acknowledged(step, model, identifier, 2)
            }
            ServerPacket::PubRel(ack) => {
                let identifier = ack.packet_identifier;
                self.inbound_once.remove(&identifier.number());
                self.doubtful_once.remove(&identifier.number());
                self.replies.push_back(Reply::PubComp(identifier.number()));
                Ok(())
            }
            ServerPacket::PubComp(ack) => {
                let identifier = ack.packet_identifier;
                self.settle(Owed::PubComp(identifier.number()))?;
                self.outbound.retain(|outbound| outbound.identifier != identifier || !outbound.released);
                Ok(())
            }
            ServerPacket::SubAck(suback) => {
                self.settle(Owed::SubAck(suback.packet_identifier.number()))?;
                let Some(Request::Subscribe(filters)) = self.request.take() else {
                    return Err(format!("client {}: SUBACK for nothing", self.number));
                };
                let codes: Vec<_> = suback.return_codes.collect();
                let granted = filters.iter().map(|(_, qos)| SubscribeReturnCode::Granted(qos_of(*qos)));
                if codes != granted.collect::<Vec<_>>() {
                    return Err(format!("client {}: granted {codes:?} for {filters:?}", self.number));
                }
                for (filter, qos) in filters {
                    model.subscribed(self.number, filter, qos);
                }
                Ok(())
            }
            ServerPacket::UnsubAck(unsuback) => {
                self.settle(Owed::UnsubAck(unsuback.packet_identifier.number()))?;
                let Some(Request::Unsubscribe(filter)) = self.request.take() else {
                    return Err(format!("client {}: UNSUBACK for nothing", self.number));
                };
                model.unsubscribed(step, self.number, filter);
                Ok(())
            }
            ServerPacket::PingResp => Ok(()),
            ServerPacket::Disconnect(disconnect) if disconnect.reason == ReasonCode::KeepAliveTimeout => {
                Ok(())
            }
            ServerPacket::Disconnect(_) | ServerPacket::Auth(_) => {
                Err(format!("client {}: {packet:?}", self.number))
            }
        }
    }

    /// CONNACK came.
    fn joined(&mut self, step: u64, model: &mut Model, session_present: bool) -> Check {
        self.stage = Stage::Joined;
        self.must_be_clean = false;
        if !model.connected(self.number, self.clean, session_present)? {
            self.doubtful_once.extend(self.inbound_once.keys());
            self.unanswered.clear();
            for outbound in &self.outbound {
                if let Content::Message(instance) = outbound.content {
                    model.replaced(instance);
                }
            }
        }
        if session_present {
            self.send_again(step, model);
        } else if !self.clean {
            self.forget_session(model);
        }
        Ok(())
    }

    fn handle_publish(&mut self, model: &mut Model, publish: &Publish<'_>) -> Check {
        self.deliveries += 1;
        let number = self.number;
        let topic = self.topic_of(publish)?;
        let message = if publish.payload.is_empty() {
            if !model.emptied.contains(topic.as_str()) || publish.retain {
                return Err(format!("client {number}: an empty message that nobody sent"));
            }
            None
        } else {
            let message = payload::decode(publish.payload);
            let message = message.ok_or_else(|| format!("client {number}: a payload that nobody sent"))?;
            let known = model.messages.get(message as usize);
            if known.is_none_or(|m| m.topic != topic || m.bytes != publish.payload.len()) {
                return Err(format!("client {number}: message {message} came changed"));
            }
            Some(message)
        };
        let qos = u8::from(publish.qos);
        let Some(identifier) = publish.packet_identifier.map(PacketIdentifier::number) else {
            return self.pass_on(model, message, qos, publish);
        };
        self.window.insert(identifier);
        if self.window.len() > self.window_max {
            return Err(format!("client {number}: {} in flight: {:?}", self.window.len(), self.window));
        }
        if qos == 2
            && self.inbound_once.get(&identifier) != Some(&message)
            && self.doubtful_once.remove(&identifier)
        {
            self.inbound_once.remove(&identifier);
        }
        let before = if qos == 2 { &self.inbound_once } else { &self.unanswered };
        if let Some(before) = before.get(&identifier).copied() {
            if before != message {
                return Err(format!(
                    "client {number}: identifier {identifier} of {before:?} was used for {message:?}"
                ));
            }
            if !publish.duplicate {
                return Err(format!("client {number}: {message:?} came again without DUP"));
            }
        }
        if qos == 1 {
            self.unanswered.insert(identifier, message);
            self.replies.push_back(Reply::PubAck(identifier));
            return self.pass_on(model, message, qos, publish);
        }
        self.replies.push_back(Reply::PubRec(identifier));
        if self.inbound_once.insert(identifier, message).is_some() {
            return Ok(());
        }
        self.pass_on(model, message, qos, publish)
    }

    fn pass_on(
        &self,
        model: &mut Model,
        message: Option<MessageNumber>,
        qos: u8,
        publish: &Publish<'_>,
    ) -> Check {
        let Some(number) = message else { return Ok(()) };
        let left_s = publish.properties.map(|list| list.number(PropertyId::MessageExpiryInterval));
        let (retain, duplicate) = (publish.retain, publish.duplicate);
        let seen = Seen { number, qos, retain, duplicate, since_us: self.opened_us, left_s };
        model.delivered(self.number, seen)
    }

    fn acknowledged(&mut self, step: u64, model: &mut Model, identifier: PacketIdentifier, qos: u8) -> Check {
        let waits = |o: &Outbound| o.identifier == identifier && o.qos == qos && !o.released;
        let position = self.outbound.iter().position(waits);
        let Some(at) = position.and_then(|position| self.outbound.get_mut(position)) else {
            return Err(format!("client {}: {identifier} acknowledged, which is not under way", self.number));
        };
        match at.content {
            Content::Message(instance) => model.acknowledged(step, instance),
            Content::Empty(_, deletion) => {
                if let Some(sending) = deletion.and_then(|deletion| model.retained.deletion(deletion)) {
                    sending.acknowledged_at.get_or_insert(step);
                }
            }
        }
        at.released = qos == 2;
        if qos == 2 {
            self.replies.push_back(Reply::PubRel(identifier.number()));
        } else {
            self.outbound.retain(|outbound| !waits(outbound));
        }
        Ok(())
    }

    /// The gateway's replies come in the order of what they answer. [MQTT-4.6.0-2], [MQTT-4.6.0-3]
    fn settle(&mut self, reply: Owed) -> Check {
        match self.owed.pop_front() {
            Some(owed) if owed == reply => Ok(()),
            owed => Err(format!("client {}: {reply:?} came where {owed:?} was next", self.number)),
        }
    }

    /// What was under way goes out again, in its order and under its identifiers. [MQTT-4.4.0-1]
    fn send_again(&mut self, step: u64, model: &mut Model) {
        for outbound in self.outbound.clone() {
            if outbound.released {
                encode_pubrel(&mut self.outgoing, outbound.identifier);
                self.owed.push_back(Owed::PubComp(outbound.identifier.number()));
            } else {
                let Outbound { identifier, content, qos, retain, .. } = outbound;
                self.send_publish(step, model, content, qos, retain, Some(identifier), true);
            }
        }
    }

    fn forget_session(&mut self, model: &mut Model) {
        for outbound in std::mem::take(&mut self.outbound) {
            if let Content::Message(instance) = outbound.content {
                model.forgotten(instance);
            }
        }
        self.inbound_once.clear();
        self.doubtful_once.clear();
        self.unanswered.clear();
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a PUBLISH")]
    fn send_publish(
        &mut self,
        step: u64,
        model: &mut Model,
        content: Content,
        qos: u8,
        retain: bool,
        identifier: Option<PacketIdentifier>,
        duplicate: bool,
    ) {
        let (topic, payload) = match content {
            Content::Message(instance) => {
                model.sent(step, instance);
                let message = model.at(instance.0);
                (message.topic, payload::encode(instance.0, message.bytes))
            }
            Content::Empty(topic, deletion) => {
                model.sent_empty(step, topic, qos, deletion);
                if let Some(sending) = deletion.and_then(|deletion| model.retained.deletion(deletion)) {
                    sending.leaves();
                }
                (topic, Vec::new())
            }
        };
        let mut properties = PropertyList::new();
        self.limit_life(model, content, &mut properties);
        let mut named = name(topic);
        if let Some(alias) = self.alias_for(topic, &mut named) {
            properties.number(PropertyId::TopicAlias, u32::from(alias));
        }
        let publish = Publish {
            topic: named,
            qos: qos_of(qos),
            retain,
            duplicate,
            packet_identifier: identifier,
            properties: self.five.map(|_| properties.as_properties()),
            payload: &payload,
        };
        encode_publish(&mut self.outgoing, &publish).expect("a PUBLISH of the plan fits");
        match qos {
            0 => {}
            1 => self.owed.extend(identifier.map(|identifier| Owed::PubAck(identifier.number()))),
            _ => self.owed.extend(identifier.map(|identifier| Owed::PubRec(identifier.number()))),
        }
        self.carried.push(content);
    }

    fn fresh_identifier(&mut self) -> PacketIdentifier {
        loop {
            let number = self.next_identifier;
            self.next_identifier = number % IDENTIFIERS + 1;
            let requested = self.owed.iter().any(|owed| match owed {
                Owed::SubAck(owed) | Owed::UnsubAck(owed) => *owed == number,
                Owed::PubAck(_) | Owed::PubRec(_) | Owed::PubComp(_) => false,
            });
            if !requested && self.outbound.iter().all(|outbound| outbound.identifier.number() != number) {
                return packet(number);
            }
        }
    }
}

fn note(trace: &mut Trace, client: usize, packet: &ServerPacket<'_>) {
    match packet {
        ServerPacket::Publish(publish) => trace.note(format_args!(
            "client {client} < PUBLISH {:?} {:?}{}{} {:?} to {}",
            payload::head(publish.payload),
            publish.qos,
            if publish.retain { " RETAIN" } else { "" },
            if publish.duplicate { " DUP" } else { "" },
            publish.packet_identifier,
            publish.topic.as_str()
        )),
        packet => trace.note(format_args!("client {client} < {packet:?}")),
    }
}

/// The connection that carried this publish is gone.
pub fn tell_ended(step: u64, model: &mut Model, content: Content) {
    match content {
        Content::Message(instance) => model.ended(step, instance),
        Content::Empty(_, deletion) => {
            if let Some(sending) = deletion.and_then(|deletion| model.retained.deletion(deletion)) {
                sending.dropped(step);
            }
        }
    }
}

fn packet(number: u16) -> PacketIdentifier {
    PacketIdentifier::new(number).expect("identifiers are above zero")
}

fn name(topic: &'static str) -> TopicName<'static> {
    TopicName::parse(topic).expect("the plan's topics are valid")
}

fn qos_of(qos: u8) -> QualityOfService {
    QualityOfService::try_from(qos).expect("the plan's QoS is 0 to 2")
}
