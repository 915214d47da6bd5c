//! The endpoint of one MQTT connection: what each packet means, and what may be answered when.
//!
//! ```text
//!              CONNECT            password checked        reply due
//! AwaitConnect ───────> Verifying ──────────────> Joining ─────────> Joined ──> Ended
//!       └──────── no password to check ─────────────^
//! ```
//!
//! Owns the connection's state, keep-alive, its will and the order of its replies. Joining is in `connecting`,
//! publishing in `publishing`, subscribing in `subscribing`, what goes to the client in `delivering`, and what only
//! version 5 has in `version5`. Leaves cutting bytes into packets to `gateway`, which calls [`Connection::handle`]
//! for each and [`Connection::deliver`] for each delivery.

use std::fmt;
use std::time::Duration;

use super::codec::{
    ConnectReturnCode, ControlPacket, Disconnect, Fault, PropertyId, PropertyList, ProtocolError,
    ProtocolVersion, QualityOfService, ReasonCode, encode_disconnect_reason, encode_pingresp,
};
use super::connecting::PendingConnect;
use super::owed::{OwedReplies, Reply};
use super::version5::Version5;
use crate::auth::{Acl, Challenge, Denials, Identity, Users};
use crate::broker::{Broker, Gate, QueueIndex, WillNumber};
use crate::ids::{ConnectionId, QueueId};
use crate::message::Assurance;
use crate::output::OutputBuffer;
use crate::time::{Mono, Now};

/// What the operator set for all connections.
#[derive(Clone, Copy, Debug)]
pub struct ServerPolicy {
    /// Deliveries in flight to one client.
    pub inflight_max: u16,
    /// The longest keep-alive, seconds; 0 is no bound.
    pub keep_alive_max_s: u16,
    /// A whole packet, fixed header included, after CONNECT.
    pub packet_bytes_max: usize,
    /// The body of a PUBLISH or of a will.
    pub message_bytes_max: usize,
}

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
    pub policy: &'a ServerPolicy,
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
    /// The client took leave and wants its will published, or tells of a failure.
    DisconnectWithWill(ReasonCode),
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
    /// CONNECT of version 5 was refused for this reason.
    RefusedFor(ReasonCode),
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

    /// What the client is told in version 5, and in what words; nothing when it took leave itself.
    #[must_use]
    pub const fn reason(&self) -> Option<(ReasonCode, &'static str)> {
        Some(match self {
            Self::Disconnect | Self::DisconnectWithWill(_) | Self::PeerClosed | Self::ConnectTimeout => {
                return None;
            }
            Self::Refused(_) | Self::RefusedFor(_) => return None,
            Self::Protocol(error) => (error.fault.reason_code(), error.detail),
            Self::KeepAliveTimeout => {
                (ReasonCode::KeepAliveTimeout, "nothing came for one and a half times the keep-alive")
            }
            Self::TakenOver => {
                (ReasonCode::SessionTakenOver, "another connection uses this client identifier")
            }
            Self::OutOfMemory => (ReasonCode::QuotaExceeded, "memory is short"),
            Self::Kicked => (ReasonCode::AdministrativeAction, "ended by the operator"),
            Self::Shutdown => (ReasonCode::ServerShuttingDown, "the gateway stops"),
        })
    }

    /// The reason's name in counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Disconnect => "disconnect",
            Self::DisconnectWithWill(_) => "disconnect_with_will",
            Self::PeerClosed => "peer_closed",
            Self::Protocol(_) => "protocol_error",
            Self::KeepAliveTimeout => "keep_alive_timeout",
            Self::ConnectTimeout => "connect_timeout",
            Self::TakenOver => "taken_over",
            Self::Refused(_) | Self::RefusedFor(_) => "refused",
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
            Self::DisconnectWithWill(reason) => {
                write!(f, "client disconnected with reason code {:#04x}", reason.number())
            }
            Self::PeerClosed => f.write_str("peer closed the connection"),
            Self::Protocol(error) => write!(f, "protocol error: {error}"),
            Self::KeepAliveTimeout => f.write_str("exceeded its keep-alive"),
            Self::ConnectTimeout => f.write_str("sent no CONNECT in time"),
            Self::TakenOver => f.write_str("session taken over by a newer connection"),
            Self::Refused(code) => write!(f, "refused: {code}"),
            Self::RefusedFor(reason) => write!(f, "refused: reason code {:#04x}", reason.number()),
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
pub(super) enum State {
    AwaitConnect,
    Verifying(Box<PendingConnect>),
    /// CONNACK waits for the flash.
    Joining,
    Joined,
    Ended,
}

/// See the module's head.
#[derive(Debug)]
pub struct Connection {
    pub(super) id: ConnectionId,
    pub(super) state: State,
    pub(super) version: ProtocolVersion,
    pub(super) version5: Option<Box<Version5>>,
    pub(super) allow_anonymous: bool,
    /// A certificate proves the user name.
    pub(super) is_vouched_for: bool,
    /// The peer is a bridge: what it publishes is not sent back to it.
    pub(super) bridge: bool,
    pub(super) client_identifier: Box<str>,
    pub(super) user_name: Option<Box<str>>,
    pub(super) queue: Option<QueueIndex>,
    pub(super) will: Option<WillNumber>,
    pub(super) keep_alive_s: u16,
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
            version5: None,
            allow_anonymous,
            is_vouched_for: false,
            bridge: false,
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
            ControlPacket::PubAck(puback) => self.handle_puback(context, puback.packet_identifier),
            ControlPacket::PubRec(pubrec) => self.handle_pubrec(context, &pubrec),
            ControlPacket::PubRel(pubrel) => self.handle_pubrel(context, pubrel.packet_identifier),
            ControlPacket::PubComp(pubcomp) => self.handle_pubcomp(context, pubcomp.packet_identifier),
            ControlPacket::Subscribe(subscribe) => return self.handle_subscribe(context, &subscribe),
            ControlPacket::Unsubscribe(unsubscribe) => return self.handle_unsubscribe(context, &unsubscribe),
            // It waits for nothing but CONNACK, which comes first. [MQTT-3.2.0-1]
            ControlPacket::PingReq if matches!(self.state, State::Joining) => {
                self.owed.push(Gate::Open, Reply::PingResp);
            }
            ControlPacket::PingReq => self.output.append(encode_pingresp),
            ControlPacket::Disconnect(disconnect) => {
                return Next::End(self.handle_disconnect(context, &disconnect));
            }
            ControlPacket::Auth(_) => return Next::End(End::Protocol(NO_AUTHENTICATION_METHOD)),
        }
        Next::Continue
    }

    /// True when no reply is owed and no output waits.
    #[must_use]
    pub fn has_nothing_to_send(&self) -> bool {
        self.owed.is_empty() && self.output.is_empty()
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
            self.send(&reply);
        }
        joined
    }

    /// The connection is over: the client is told why, the will is published or forgotten, the session is left.
    pub fn end(&mut self, context: &mut Context<'_>, end: &End) {
        if self.version5.is_some() && matches!(self.state, State::Joined) {
            self.take_leave(end);
        }
        self.state = State::Ended;
        // What becomes due from now on comes too late. [MQTT-3.14.4-1]
        self.owed = OwedReplies::default();
        if let Some(queue) = self.queue.take() {
            context.broker.detach(context.now, queue, self.id);
        }
        if let Some(will) = self.will.take() {
            let session = self.version5.as_ref().map_or(QueueId(0), |version5| version5.session);
            match end {
                // Kept: it is published at the next start, unless nothing of it is on flash.
                End::Shutdown => {}
                end if end.publishes_will() && self.may_send_will(context, will) => {
                    context.broker.execute_will(context.now, will, session);
                }
                _ => context.broker.forget_will(context.now, will),
            }
        }
    }

    /// Whether the rules, which may have changed since CONNECT, still let the client publish its will.
    fn may_send_will(&self, context: &Context<'_>, will: WillNumber) -> bool {
        context.broker.will(will).is_none_or(|will| self.may_publish(context, &will.message.address))
    }

    /// DISCONNECT with the reason. It may not come before CONNACK. [MQTT-3.14.0-1]
    fn take_leave(&mut self, end: &End) {
        let Some((reason, text)) = end.reason() else { return };
        let mut list = PropertyList::new();
        list.text(PropertyId::ReasonString, text);
        let packet_bytes_max =
            self.version5.as_ref().map_or(usize::MAX, |version5| version5.packet_bytes_max);
        self.output.append(|out| {
            let start = out.len();
            // A reason string is a short text of ours.
            let _fits =
                encode_disconnect_reason(out, &Disconnect { reason, properties: list.as_properties() });
            if out.len() - start > packet_bytes_max {
                // [MQTT-3.14.2-3]
                out.truncate(start);
                let _fits = encode_disconnect_reason(out, &Disconnect { reason, ..Disconnect::NORMAL });
            }
        });
    }

    fn handle_disconnect(&self, context: &mut Context<'_>, disconnect: &Disconnect<'_>) -> End {
        if let (Some(version5), Some(queue)) = (&self.version5, self.queue)
            && let Some(expiry_s) = disconnect.properties.number(PropertyId::SessionExpiryInterval)
        {
            if version5.session_expiry_s == 0 && expiry_s != 0 {
                return End::Protocol(SESSION_EXPIRY_RAISED);
            }
            context.broker.set_session_expiry(queue, expiry_s);
        }
        match disconnect.reason {
            ReasonCode::Success => End::Disconnect,
            reason => End::DisconnectWithWill(reason),
        }
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
            self.send(&reply);
            return;
        }
        if let Some(batch) = gate.batch() {
            broker.await_batch(batch, self.id);
        }
        self.owed.push(gate, reply);
    }

    pub(super) fn send(&mut self, reply: &Reply) {
        let version = self.version;
        if let Some(version5) = &mut self.version5
            && reply.ends_exchange()
        {
            version5.finish();
        }
        let version5 = self.version5.as_deref();
        self.output.append(|out| reply.encode(out, version, version5));
    }
}

const SESSION_EXPIRY_RAISED: ProtocolError = ProtocolError {
    fault: Fault::ProtocolViolation,
    detail: "session expiry interval was zero in CONNECT and is not in DISCONNECT",
    rule: "section 3.14.2.2.2",
};

const NO_AUTHENTICATION_METHOD: ProtocolError = ProtocolError {
    fault: Fault::ProtocolViolation,
    detail: "AUTH on a connection without an authentication method",
    rule: "MQTT-4.12.0-6",
};

/// The guarantee of a quality of service.
pub(super) const fn assurance(qos: QualityOfService) -> Assurance {
    match qos {
        QualityOfService::AtMostOnce => Assurance::AtMostOnce,
        QualityOfService::AtLeastOnce => Assurance::AtLeastOnce,
        QualityOfService::ExactlyOnce => Assurance::ExactlyOnce,
    }
}

/// The quality of service that carries a guarantee.
pub(super) const fn quality_of_service(assurance: Assurance) -> QualityOfService {
    match assurance {
        Assurance::AtMostOnce => QualityOfService::AtMostOnce,
        Assurance::AtLeastOnce => QualityOfService::AtLeastOnce,
        Assurance::ExactlyOnce => QualityOfService::ExactlyOnce,
    }
}
