//! The endpoint of one MQTT connection: what each packet means, and what may be answered when.
//!
//! ```text
//!              CONNECT            password checked        reply due
//! AwaitConnect ───────> Verifying ──────────────> Joining ─────────> Joined ──> Ended
//!       └──────── no password to check ─────────────^
//! ```
//!
//! Owns the connection's state, keep-alive, its will and the order of its replies. Publishing is in `publishing`,
//! subscribing in `subscribing`. Leaves cutting bytes into packets to `gateway`, which calls [`Connection::handle`]
//! for each and [`Connection::deliver`] for each delivery.

use std::fmt;
use std::time::Duration;

use super::codec::{
    Connect, ConnectReturnCode, ControlPacket, PacketIdentifier, ProtocolError, ProtocolVersion, Publish,
    QualityOfService, encode_connack, encode_pingresp, encode_publish, encode_publish_head,
};
use super::owed::{OwedReplies, Reply};
use super::topic::TopicName;
use crate::auth::{Acl, Challenge, Denials, Identity, Users};
use crate::broker::{Broker, Delivery, Gate, QueueIndex, WillNumber};
use crate::ids::ConnectionId;
use crate::limits;
use crate::message::{Assurance, Message};
use crate::output::{OutputBuffer, SHARED_BYTES_MIN};
use crate::time::{Mono, Now};

/// What a connection may use while it handles an input.
pub struct Context<'a> {
    pub now: Now,
    pub broker: &'a mut Broker,
    /// The users, when there is a password file.
    pub users: Option<&'a Users>,
    /// The rules, when there is an ACL file.
    pub acl: Option<&'a Acl>,
    /// Takes note of what was not allowed.
    pub denials: &'a Denials,
    /// Deliveries in flight to one client.
    pub inflight_max: u16,
    /// A random number for a client identifier that the gateway chooses.
    pub random: u64,
    /// A name and password that were verified a short while ago.
    pub verified: &'a dyn Fn(&str, &[u8]) -> bool,
}

/// Why a connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The client took leave.
    Disconnect,
    /// The peer closed the socket, or it failed.
    PeerClosed,
    /// The peer sent what the protocol does not allow.
    Protocol(ProtocolError),
    /// Nothing came for one and a half times the keep-alive. [MQTT-3.1.2-24]
    KeepAliveTimeout,
    /// No CONNECT came in time.
    ConnectTimeout,
    /// Another connection took the session over. [MQTT-3.1.4-2]
    TakenOver,
    /// CONNECT was refused with this code.
    Refused(ConnectReturnCode),
    /// It sent the beginning of a large packet while memory was short.
    OutOfMemory,
    /// The operator ended it.
    Kicked,
    /// The gateway stops.
    Shutdown,
}

impl End {
    /// True when the will is published. [MQTT-3.1.2-8]
    #[must_use]
    pub const fn publishes_will(&self) -> bool {
        !matches!(self, Self::Disconnect | Self::Shutdown)
    }

    /// The reason's name in counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Disconnect => "disconnect",
            Self::PeerClosed => "peer_closed",
            Self::Protocol(_) => "protocol_error",
            Self::KeepAliveTimeout => "keep_alive_timeout",
            Self::ConnectTimeout => "connect_timeout",
            Self::TakenOver => "taken_over",
            Self::Refused(_) => "refused",
            Self::OutOfMemory => "out_of_memory",
            Self::Kicked => "kicked",
            Self::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnect => f.write_str("client disconnected"),
            Self::PeerClosed => f.write_str("peer closed the connection"),
            Self::Protocol(error) => write!(f, "protocol error: {error}"),
            Self::KeepAliveTimeout => f.write_str("exceeded its keep-alive"),
            Self::ConnectTimeout => f.write_str("sent no CONNECT in time"),
            Self::TakenOver => f.write_str("session taken over by a newer connection"),
            Self::Refused(code) => write!(f, "refused: {code}"),
            Self::OutOfMemory => f.write_str("memory_max is reached"),
            Self::Kicked => f.write_str("ended by the operator"),
            Self::Shutdown => f.write_str("the gateway stops"),
        }
    }
}

/// What handling a packet asks of the caller.
#[derive(Debug)]
pub enum Next {
    /// Go on with the next packet.
    Continue,
    /// Have this password checked; no packet is handled until [`Connection::verified`].
    Verify { challenge: Challenge, password: Box<[u8]> },
    /// The connection is over once its output has left.
    End(End),
}

#[derive(Debug)]
enum State {
    AwaitConnect,
    Verifying(Box<PendingConnect>),
    /// CONNACK waits for the flash.
    Joining,
    Joined,
    Ended,
}

/// A CONNECT whose password is being checked.
#[derive(Debug)]
struct PendingConnect {
    clean_session: bool,
    will: Option<Message>,
}

/// See the module's head.
#[derive(Debug)]
pub struct Connection {
    pub(super) id: ConnectionId,
    state: State,
    version: ProtocolVersion,
    allow_anonymous: bool,
    /// A certificate proves the user name.
    is_vouched_for: bool,
    pub(super) client_identifier: Box<str>,
    pub(super) user_name: Option<Box<str>>,
    pub(super) queue: Option<QueueIndex>,
    will: Option<WillNumber>,
    keep_alive_s: u16,
    /// When the last packet came; before CONNECT, when the connection was accepted.
    last_received: Mono,
    pub(super) owed: OwedReplies,
    pub output: OutputBuffer,
}

/// Time for a CONNECT to arrive.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for its password to be checked: a thousand clients that come back at once wait for each other's checks, and
/// one that was sent away would only be checked again.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(60);

impl Connection {
    /// A connection that was just accepted on a listener where `allow_anonymous` clients may enter.
    #[must_use]
    pub fn new(id: ConnectionId, now: Mono, allow_anonymous: bool) -> Self {
        Self {
            id,
            state: State::AwaitConnect,
            version: ProtocolVersion::V311,
            allow_anonymous,
            is_vouched_for: false,
            client_identifier: Box::default(),
            user_name: None,
            queue: None,
            will: None,
            keep_alive_s: 0,
            last_received: now,
            owed: OwedReplies::default(),
            output: OutputBuffer::default(),
        }
    }

    /// The client's certificate proves that it is `user`: what CONNECT says of names and passwords does not count.
    pub fn vouch_for(&mut self, user: Box<str>) {
        self.user_name = Some(user);
        self.is_vouched_for = true;
    }

    /// Whether a certificate proves the user name.
    #[must_use]
    pub const fn is_vouched_for(&self) -> bool {
        self.is_vouched_for
    }

    /// Whether a client without a name may enter, from now on.
    pub const fn set_allow_anonymous(&mut self, allow_anonymous: bool) {
        self.allow_anonymous = allow_anonymous;
    }

    /// Handles one packet.
    pub fn handle(&mut self, context: &mut Context<'_>, packet: ControlPacket<'_>) -> Next {
        self.last_received = context.now.mono;
        match packet {
            ControlPacket::Connect(connect) => return self.handle_connect(context, &connect),
            ControlPacket::Publish(publish) => return self.handle_publish(context, &publish),
            ControlPacket::PubAck(identifier) => self.handle_puback(context, identifier),
            ControlPacket::PubRec(identifier) => self.handle_pubrec(context, identifier),
            ControlPacket::PubRel(identifier) => self.handle_pubrel(context, identifier),
            ControlPacket::PubComp(identifier) => self.handle_pubcomp(context, identifier),
            ControlPacket::Subscribe(subscribe) => self.handle_subscribe(context, &subscribe),
            ControlPacket::Unsubscribe(unsubscribe) => self.handle_unsubscribe(context, &unsubscribe),
            // It waits for nothing but CONNACK, which comes first. [MQTT-3.2.0-1]
            ControlPacket::PingReq if matches!(self.state, State::Joining) => {
                self.owed.push(Gate::Open, Reply::PingResp);
            }
            ControlPacket::PingReq => self.output.append(encode_pingresp),
            ControlPacket::Disconnect => return Next::End(End::Disconnect),
        }
        Next::Continue
    }

    /// The password that [`Next::Verify`] asked about was checked.
    pub fn verified(&mut self, context: &mut Context<'_>, genuine: bool) -> Next {
        let State::Verifying(pending) = std::mem::replace(&mut self.state, State::AwaitConnect) else {
            return Next::Continue;
        };
        if genuine {
            self.join(context, pending.clean_session, pending.will)
        } else {
            self.refuse(ConnectReturnCode::NotAuthorized)
        }
    }

    /// Replies whose gates are due leave for the output. True when the connection has just joined its session:
    /// deliveries may begin.
    pub fn release_replies(&mut self, broker: &Broker) -> bool {
        let mut joined = false;
        while let Some(reply) = self.owed.pop_due(broker.persisted_batch()) {
            if matches!(reply, Reply::ConnAck { .. }) {
                self.state = State::Joined;
                joined = true;
            }
            let version = self.version;
            self.output.append(|out| reply.encode(out, version));
        }
        joined
    }

    /// A delivery leaves for the output. False when its address is no topic name.
    pub fn deliver(&mut self, delivery: &Delivery) -> bool {
        let message = &delivery.held.message;
        let Ok(topic) = TopicName::parse(&message.address) else { return false };
        let qos = quality_of_service(delivery.assurance);
        let packet_identifier = u16::try_from(delivery.tag).ok().and_then(PacketIdentifier::new);
        let publish = Publish {
            topic,
            qos,
            retain: delivery.retained,
            duplicate: delivery.redelivered && qos != QualityOfService::AtMostOnce,
            packet_identifier,
            payload: &message.body,
        };
        // The message came in through a packet of the same form, so it fits one.
        if message.body.len() < SHARED_BYTES_MIN {
            let _fits = self.output.append(|out| encode_publish(out, &publish));
        } else if self.output.append(|out| encode_publish_head(out, &publish)).is_ok() {
            self.output.append_shared(message.body.clone());
        }
        true
    }

    /// The release of an exactly-once delivery leaves for the output.
    pub fn release(&mut self, tag: u32) {
        if let Some(identifier) = u16::try_from(tag).ok().and_then(PacketIdentifier::new) {
            self.output.append(|out| super::codec::client::encode_pubrel(out, identifier));
        }
    }

    /// The connection is over: the will is published or forgotten, the session is left.
    pub fn end(&mut self, context: &mut Context<'_>, end: &End) {
        self.state = State::Ended;
        if let Some(queue) = self.queue.take() {
            context.broker.detach(context.now, queue, self.id);
        }
        if let Some(will) = self.will.take() {
            match end {
                // Kept: it is published at the next start, unless nothing of it is on flash.
                End::Shutdown => {}
                end if end.publishes_will() && self.may_send_will(context, will) => {
                    context.broker.publish_will(context.now, will)
                }
                _ => context.broker.forget_will(context.now, will),
            }
        }
    }

    /// Whether the rules, which may have changed since CONNECT, still let the client publish its will.
    fn may_send_will(&self, context: &Context<'_>, will: WillNumber) -> bool {
        context.broker.will_address(will).is_none_or(|address| self.may_publish(context, address))
    }

    /// When the connection ends if nothing comes.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::AwaitConnect => Some(self.last_received + CONNECT_TIMEOUT),
            State::Verifying(_) => Some(self.last_received + VERIFY_TIMEOUT),
            State::Joining | State::Joined if self.keep_alive_s > 0 => {
                // [MQTT-3.1.2-24]
                Some(self.last_received + Duration::from_millis(u64::from(self.keep_alive_s) * 1500))
            }
            State::Joining | State::Joined | State::Ended => None,
        }
    }

    /// Why it ends when its deadline passes.
    #[must_use]
    pub const fn timeout(&self) -> End {
        match self.state {
            State::AwaitConnect | State::Verifying(_) => End::ConnectTimeout,
            State::Joining | State::Joined | State::Ended => End::KeepAliveTimeout,
        }
    }

    /// The version that CONNECT settled; `None` before it.
    #[must_use]
    pub const fn version(&self) -> Option<ProtocolVersion> {
        match self.state {
            State::AwaitConnect => None,
            State::Verifying(_) | State::Joining | State::Joined | State::Ended => Some(self.version),
        }
    }

    /// True while packets may be handled.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        !matches!(self.state, State::Verifying(_) | State::Ended) && !self.owes_too_much()
    }

    /// True when packets wait because too many replies wait for the flash.
    #[must_use]
    pub const fn owes_too_much(&self) -> bool {
        self.owed.is_full()
    }

    /// The peer may have spoken, but was not listened to: its keep-alive begins anew.
    pub const fn excuse(&mut self, now: Mono) {
        self.last_received = now;
    }

    /// The session, once CONNECT opened it.
    #[must_use]
    pub const fn queue(&self) -> Option<QueueIndex> {
        self.queue
    }

    /// Who the client is.
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        Identity { username: self.user_name.as_deref(), client_identifier: &self.client_identifier }
    }

    /// Gives back memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.owed.shrink();
    }

    /// Owes a reply, which leaves at once when nothing is before it and its gate is due.
    pub(super) fn owe(&mut self, broker: &mut Broker, gate: Gate, reply: Reply) {
        if self.owed.is_empty() && gate.is_due(broker.persisted_batch()) {
            let version = self.version;
            self.output.append(|out| reply.encode(out, version));
            return;
        }
        if let Some(batch) = gate.batch() {
            broker.await_batch(batch, self.id);
        }
        self.owed.push(gate, reply);
    }

    fn handle_connect(&mut self, context: &mut Context<'_>, connect: &Connect<'_>) -> Next {
        self.version = connect.version;
        self.keep_alive_s = connect.keep_alive_s;
        self.client_identifier = connect.client_identifier.into();
        if connect.client_identifier.is_empty() {
            // [MQTT-3.1.3-7], [MQTT-3.1.3-8]; MQTT 3.1 demands an identifier.
            if !connect.clean_session || connect.version == ProtocolVersion::V31 {
                return self.refuse(ConnectReturnCode::IdentifierRejected);
            }
            self.client_identifier = format!("auto-{:016X}", context.random).into();
        }
        if self.client_identifier.len() > limits::CLIENT_IDENTIFIER_BYTES_MAX {
            return self.refuse(ConnectReturnCode::IdentifierRejected);
        }
        let will = connect.will.as_ref().map(|will| Message {
            address: will.topic.as_str().into(),
            body: bytes::Bytes::copy_from_slice(will.payload),
            assurance: assurance(will.qos),
            retain: will.retain,
            received_at: context.now.wall,
            received_trusted: context.now.wall_trusted,
            ..Message::default()
        });
        if self.is_vouched_for {
            return self.join(context, connect.clean_session, will);
        }
        let Some(users) = context.users else {
            // Nobody vouches for a name, so none is taken.
            if !self.allow_anonymous {
                return self.refuse(ConnectReturnCode::NotAuthorized);
            }
            return self.join(context, connect.clean_session, will);
        };
        let Some(name) = connect.user_name else {
            if !self.allow_anonymous {
                return self.refuse(ConnectReturnCode::NotAuthorized);
            }
            return self.join(context, connect.clean_session, will);
        };
        self.user_name = Some(name.into());
        let password = connect.password.unwrap_or_default();
        if (context.verified)(name, password) {
            return self.join(context, connect.clean_session, will);
        }
        // An unknown name costs the same as a known one, so that names cannot be told apart by time.
        let Some(challenge) = users.challenge(name) else {
            return self.refuse(ConnectReturnCode::NotAuthorized);
        };
        self.state =
            State::Verifying(Box::new(PendingConnect { clean_session: connect.clean_session, will }));
        Next::Verify { challenge, password: password.into() }
    }

    fn join(&mut self, context: &mut Context<'_>, clean_session: bool, will: Option<Message>) -> Next {
        if let Some(will) = &will
            && !self.may_publish(context, &will.address)
        {
            return self.refuse(ConnectReturnCode::NotAuthorized);
        }
        if will.as_ref().is_some_and(|will| !context.broker.may_register_will(will)) {
            return self.refuse(ConnectReturnCode::ServerUnavailable);
        }
        let opened =
            context.broker.open_session(context.now, &self.client_identifier, clean_session, self.id);
        let Ok(opened) = opened else { return self.refuse(ConnectReturnCode::ServerUnavailable) };
        self.queue = Some(opened.queue);
        self.will = will.map(|will| context.broker.set_will(context.now, &self.client_identifier, will));
        self.state = State::Joining;
        if let Some(batch) = opened.gate.batch() {
            context.broker.await_batch(batch, self.id);
        }
        self.owed.push(opened.gate, Reply::ConnAck { session_present: opened.present });
        Next::Continue
    }

    fn refuse(&mut self, code: ConnectReturnCode) -> Next {
        let version = self.version;
        self.output.append(|out| encode_connack(out, false, code, version));
        Next::End(End::Refused(code))
    }
}

/// The guarantee of a quality of service.
pub(super) const fn assurance(qos: QualityOfService) -> Assurance {
    match qos {
        QualityOfService::AtMostOnce => Assurance::AtMostOnce,
        QualityOfService::AtLeastOnce => Assurance::AtLeastOnce,
        QualityOfService::ExactlyOnce => Assurance::ExactlyOnce,
    }
}

/// The quality of service that carries a guarantee.
const fn quality_of_service(assurance: Assurance) -> QualityOfService {
    match assurance {
        Assurance::AtMostOnce => QualityOfService::AtMostOnce,
        Assurance::AtLeastOnce => QualityOfService::AtLeastOnce,
        Assurance::ExactlyOnce => QualityOfService::ExactlyOnce,
    }
}
