//! The endpoint of one AMQP connection: frames in, calls of the broker and frames out.
//!
//! ```text
//! AwaitHeader ─> AwaitStartOk ─> Verifying ─> AwaitTuneOk ─> AwaitOpen ─> Open ─> Closing ─> Ended
//!                     └──────── no password to check ──────^                └───── a close from the client ───^
//! ```
//!
//! Owns the connection's state, its channels, heartbeats and the order of its replies. What happens on a channel is in
//! `channel`. Leaves waiting for the flash to `gateway`, which calls again when a gate opens.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::channel::Channel;
use super::codec::method::{basic, channel, connection};
use super::codec::{
    self, Decoded, FRAME_OVERHEAD_BYTES, Frame, FrameType, Method, MethodId, PROTOCOL_HEADER, ProtocolHeader,
    ReplyCode, encode_heartbeat,
};
use super::fault::Fault;
pub use super::link::Context;
use super::link::Link;
use super::rights::may_receive;
use crate::auth::{Acl, Challenge};
use crate::broker::{Broker, Delivery};
use crate::ids::ConnectionId;
use crate::limits;
use crate::message::Message;
use crate::output::OutputBuffer;
use crate::time::{Mono, Now};

/// Why a connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The client took leave.
    Closed,
    PeerClosed,
    /// The gateway closed it with this code and text.
    Fault(ReplyCode, String),
    LoginRefused,
    /// It does not speak this protocol.
    Foreign,
    /// Nothing came for two heartbeat intervals.
    HeartbeatTimeout,
    HandshakeTimeout,
    /// It sent the beginning of a large frame while memory was short.
    OutOfMemory,
    /// The operator ended it.
    Kicked,
    Shutdown,
}

impl End {
    /// The reason's name in counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::PeerClosed => "peer_closed",
            Self::Fault(..) => "fault",
            Self::LoginRefused => "login_refused",
            Self::Foreign => "foreign",
            Self::HeartbeatTimeout => "heartbeat_timeout",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::OutOfMemory => "out_of_memory",
            Self::Kicked => "kicked",
            Self::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("client closed the connection"),
            Self::PeerClosed => f.write_str("peer closed the connection"),
            Self::Fault(_, text) => write!(f, "closed: {text}"),
            Self::LoginRefused => f.write_str("login refused"),
            Self::Foreign => f.write_str("protocol header is not that of AMQP 0-9-1"),
            Self::HeartbeatTimeout => f.write_str("missed heartbeats"),
            Self::HandshakeTimeout => f.write_str("did not open the connection in time"),
            Self::OutOfMemory => f.write_str("memory_max is reached"),
            Self::Kicked => f.write_str("ended by the operator"),
            Self::Shutdown => f.write_str("the gateway stops"),
        }
    }
}

/// What handling input asks of the caller.
#[derive(Debug)]
pub enum Next {
    Continue,
    /// The peer was told of a fault of its own that ends the connection.
    Faulted,
    /// The connection has just been opened.
    Joined,
    /// Have this password checked; nothing is handled until [`Connection::verified`].
    Verify {
        challenge: Challenge,
        password: Box<[u8]>,
    },
    /// The store must catch up before the next frame may be handled.
    Congested,
    /// Rows that the next frame asks for must be read before it may be handled.
    AwaitRows,
    /// The connection is over once its output has left.
    End(End),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    AwaitHeader,
    AwaitStartOk,
    Verifying,
    AwaitTuneOk,
    AwaitOpen,
    Open,
    /// Open, and a new password is being checked.
    Renewing,
    /// connection.close was sent; only its answer counts.
    Closing,
    /// All is said. What still comes is passed over until the peer closes its socket: were the socket closed under bytes
    /// that are on their way, the system would throw away what was said last.
    Deaf,
    Ended,
}

/// See the module's head.
#[derive(Debug)]
pub struct Connection {
    pub(super) state: State,
    pub(super) link: Link,
    pub(super) allow_anonymous: bool,
    /// The user that the client's certificate proves it to be, for SASL EXTERNAL.
    pub(super) certified_user: Option<Box<str>>,
    pub(super) failure_close: bool,
    pub(super) blocked_notify: bool,
    /// The client was told that its publishes are not taken.
    told_blocked: bool,
    pub(super) client: Box<str>,
    pub(super) mechanism: Box<str>,
    pub(super) channel_max: u16,
    pub(super) heartbeat_s: u16,
    channels: BTreeMap<u16, Box<Channel>>,
    last_received: Mono,
    last_sent: Mono,
    end: Option<End>,
}

/// Time to open the connection, and to answer when it is closed.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Confirms that wait for the flash before the connection is read on.
const OWED_MAX: usize = 20_000;

/// Octets of a frame before the client has logged in.
const FRAME_BYTES_BEFORE_LOGIN: usize = 16 * 1024;

impl Connection {
    /// A connection that was just accepted on a listener where `allow_anonymous` clients may enter.
    #[must_use]
    pub fn new(id: ConnectionId, now: Mono, allow_anonymous: bool) -> Self {
        Self {
            state: State::AwaitHeader,
            link: Link::new(id),
            allow_anonymous,
            certified_user: None,
            failure_close: false,
            blocked_notify: false,
            told_blocked: false,
            client: Box::default(),
            mechanism: Box::default(),
            channel_max: super::handshake::CHANNEL_MAX,
            heartbeat_s: 0,
            channels: BTreeMap::new(),
            last_received: now,
            last_sent: now,
            end: None,
        }
    }

    /// The client's certificate proves that it is `user`: SASL EXTERNAL lets it in as that.
    pub fn vouch_for(&mut self, user: Box<str>) {
        self.certified_user = Some(user);
    }

    /// Whether a certificate proves the user name that it logged in with.
    #[must_use]
    pub fn is_vouched_for(&self) -> bool {
        self.certified_user.is_some()
            && self.certified_user.as_deref() == self.user()
            && &*self.mechanism == "EXTERNAL"
    }

    /// Whether a client without a name may enter, from now on.
    pub const fn set_allow_anonymous(&mut self, allow_anonymous: bool) {
        self.allow_anonymous = allow_anonymous;
    }

    /// Handles the frame at the front of `bytes`: answers how many bytes it took, how many a frame that is not whole
    /// needs, and what follows.
    pub fn handle(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> (usize, usize, Next) {
        if self.state == State::AwaitHeader {
            return self.handle_header(context, bytes);
        }
        if self.state == State::Deaf {
            return (bytes.len(), 0, Next::Continue);
        }
        let frame_bytes_max = match self.state {
            State::AwaitStartOk => FRAME_BYTES_BEFORE_LOGIN,
            // Some clients count the payload alone, which RabbitMQ lets pass.
            _ => self.link.frame_bytes_max + FRAME_OVERHEAD_BYTES,
        };
        match codec::decode(bytes, frame_bytes_max) {
            Ok(Decoded::Incomplete { needed }) => (0, needed, Next::Continue),
            Ok(Decoded::Frame { frame, consumed }) => {
                if self.needs_flash(frame) && context.broker.is_congested() {
                    return (0, consumed, Next::Congested);
                }
                if self.needs_rows(context, frame) {
                    return (0, consumed, Next::AwaitRows);
                }
                self.last_received = context.now.mono;
                let next = self.handle_frame(context, frame);
                (consumed, 0, next)
            }
            Err(error) => {
                // What follows in the input has no meaning, so the answer to a close could not be found in it.
                let fault = Fault::from(error);
                let next = if self.state == State::Closing {
                    self.state = State::Deaf;
                    Next::Continue
                } else {
                    self.close_connection(context, &fault)
                };
                (bytes.len(), 0, next)
            }
        }
    }

    /// Sends the replies that are due. To be called after a run of frames and when a gate may have opened.
    pub fn release_replies(&mut self, broker: &Broker) {
        let persisted = broker.persisted_batch();
        let channels = &self.channels;
        self.link.send_confirms(persisted, |number, serial| {
            channels.get(&number).is_some_and(|channel| channel.serial == serial && channel.is_open())
        });
        self.link.send_held_reply(persisted);
    }

    /// A delivery leaves for the output, with the properties in this protocol's form. False when its consumer is gone.
    pub fn deliver(&mut self, delivery: &Delivery, properties: &[u8]) -> bool {
        let Ok(number) = u16::try_from(delivery.consumer >> 48) else { return false };
        let Some(channel) = self.channels.get_mut(&number) else { return false };
        channel.deliver(&mut self.link, delivery, properties)
    }

    /// A delivery to this consumer did not leave, and was settled without the client.
    pub fn give_back_credit(&self, now: Now, broker: &mut Broker, consumer: u64) {
        let Ok(number) = u16::try_from(consumer >> 48) else { return };
        if let Some(channel) = self.channels.get(&number) {
            channel.give_back_credit(now, broker);
        }
    }

    /// Whether the rules let this client have a message.
    #[must_use]
    pub fn may_receive(&self, acl: Option<&Acl>, message: &Message) -> bool {
        may_receive(&self.link, acl, message)
    }

    /// The queue of a consumer is gone.
    pub fn consumer_ended(&mut self, consumer: u64) {
        let Ok(number) = u16::try_from(consumer >> 48) else { return };
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.consumer_ended(&mut self.link, consumer);
        }
    }

    /// The driver has sent some of the output: deliveries that waited for room may go on.
    pub fn sent(&mut self, now: Now, broker: &mut Broker) {
        self.last_sent = now.mono;
        let waiting = self.link.output.len();
        let outlet = &self.link.outlet;
        outlet.room.set(limits::OUTPUT_BYTES_HIGH as i64 - i64::try_from(waiting).unwrap_or(i64::MAX));
        if waiting <= limits::OUTPUT_BYTES_LOW && outlet.starved.replace(false) {
            for channel in self.channels.values_mut() {
                channel.resume_all(now, broker);
            }
        }
    }

    /// A publish of this client waits for the flash.
    pub fn tell_blocked(&mut self) {
        if self.state == State::Open && self.blocked_notify && !self.told_blocked {
            self.told_blocked = true;
            self.link.send(0, &connection::Blocked { reason: "the flash must catch up" });
        }
    }

    /// Publishes are not taken for now, or are taken again: clients that publish are told.
    pub fn set_blocked(&mut self, blocked: bool) {
        let publishes = self.channels.values().any(|channel| channel.has_published);
        if self.state != State::Open || !self.blocked_notify || self.told_blocked == blocked {
            return;
        }
        if blocked && publishes {
            self.told_blocked = true;
            self.link.send(0, &connection::Blocked { reason: "the flash does not take what it is given" });
        } else if !blocked {
            self.told_blocked = false;
            self.link.send(0, &connection::Unblocked {});
        }
    }

    /// The connection is over: its consumers leave, what they have not settled goes back, its own queues end.
    pub fn end(&mut self, context: &mut Context<'_>, end: &End) {
        let forced = match end {
            End::Shutdown => Some("broker forced connection closure with reason 'shutdown'"),
            End::Kicked => Some("closed by the operator"),
            _ => None,
        };
        if let Some(text) = forced
            && self.state == State::Open
        {
            self.send_close(&Fault::new(ReplyCode::ConnectionForced, text));
        }
        self.state = State::Ended;
        self.link.forget_replies();
        self.leave(context);
    }

    /// Its consumers leave, what they have not settled goes back, its own queues end.
    fn leave(&mut self, context: &mut Context<'_>) {
        for channel in std::mem::take(&mut self.channels).into_values() {
            channel.close(&self.link, context);
        }
        context.broker.end_connection(context.now, self.link.id);
    }

    /// When the connection must be looked at if nothing comes.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::Open if self.heartbeat_s > 0 => {
                let interval = Duration::from_secs(u64::from(self.heartbeat_s));
                Some((self.last_received + interval * 2).min(self.last_sent + interval / 2))
            }
            State::Open | State::Ended => None,
            _ => Some(self.last_received + HANDSHAKE_TIMEOUT),
        }
    }

    /// Its deadline passed: a heartbeat is sent, or the connection ends. With `waits` its input is not being read, so
    /// that nothing came says nothing.
    pub fn handle_timeout(&mut self, now: Mono, waits: bool) -> Option<End> {
        if self.state != State::Open {
            return Some(match self.end.take() {
                Some(end) => end,
                None => End::HandshakeTimeout,
            });
        }
        let interval = Duration::from_secs(u64::from(self.heartbeat_s));
        if waits {
            self.last_received = now;
        }
        if self.last_received + interval * 2 <= now {
            return Some(End::HeartbeatTimeout);
        }
        if self.last_sent + interval / 2 <= now {
            self.last_sent = now;
            if self.link.output.is_empty() {
                self.link.output.append(encode_heartbeat);
            }
        }
        None
    }

    /// True while frames may be handled.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !matches!(self.state, State::Verifying | State::Renewing | State::Ended)
            && !self.link.waits()
            && !self.owes_too_much()
    }

    /// True while it owes so many confirms that it is not read.
    #[must_use]
    pub fn owes_too_much(&self) -> bool {
        self.link.owed() > OWED_MAX
    }

    /// Its silence until now is not its own doing.
    pub const fn excuse(&mut self, now: Mono) {
        self.last_received = now;
    }

    /// True once the connection is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// What waits to be sent.
    pub const fn output(&mut self) -> &mut OutputBuffer {
        &mut self.link.output
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub const fn output_bytes(&self) -> usize {
        self.link.output.len()
    }

    /// What the client calls itself.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.client
    }

    /// The user who logged in.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.link.user.as_deref()
    }

    fn handle_header(&mut self, context: &Context<'_>, bytes: &[u8]) -> (usize, usize, Next) {
        match ProtocolHeader::decode(bytes) {
            None => (0, PROTOCOL_HEADER.len(), Next::Continue),
            Some(ProtocolHeader::Amqp091) => {
                self.last_received = context.now.mono;
                self.state = State::AwaitStartOk;
                self.send_start();
                (PROTOCOL_HEADER.len(), 0, Next::Continue)
            }
            Some(ProtocolHeader::Amqp10 { .. } | ProtocolHeader::Foreign) => {
                // What the gateway speaks instead. Section 4.2.2.
                self.link.output.append(|out| out.extend_from_slice(&PROTOCOL_HEADER));
                self.state = State::Ended;
                (bytes.len(), 0, Next::End(End::Foreign))
            }
        }
    }

    /// True for a frame whose effect may need flash.
    fn needs_flash(&self, frame: Frame<'_>) -> bool {
        if self.state != State::Open {
            return false;
        }
        match (frame.frame_type, frame.payload.first_chunk::<4>()) {
            // Publishing, declaring and binding, committing.
            (FrameType::Method, Some([0, 60, 0, 40] | [0, 40 | 50, _, _] | [0, 90, 0, 20])) => true,
            _ => false,
        }
    }

    /// True for a request for a message that is not in memory: it is handled once the message is.
    fn needs_rows(&self, context: &mut Context<'_>, frame: Frame<'_>) -> bool {
        let is_get = (frame.frame_type, frame.payload.first_chunk::<4>())
            == (FrameType::Method, Some(&[0, 60, 0, 70]));
        if !is_get || self.state != State::Open {
            return false;
        }
        #[cfg(feature = "mutations")]
        if crate::broker::mutation::is_made(crate::broker::mutation::Mutation::EmptyWithRows) {
            return false;
        }
        let Ok(Method::Basic(basic::Method::Get(get))) = frame.method() else { return false };
        let Some(channel) = self.channels.get(&frame.channel) else { return false };
        let queue = channel.queue_for_use(&self.link, context, get.queue);
        queue.is_ok_and(|queue| context.broker.awaits_rows(queue))
    }

    fn handle_frame(&mut self, context: &mut Context<'_>, frame: Frame<'_>) -> Next {
        let handled = match (self.state, frame.channel, frame.frame_type) {
            (_, _, FrameType::Heartbeat) => Ok(Next::Continue),
            (State::Closing, 0, FrameType::Method) => {
                return match frame.method() {
                    Ok(Method::Connection(connection::Method::CloseOk(_))) => self.ended(),
                    Ok(Method::Connection(connection::Method::Close(_))) => {
                        self.link.send(0, &connection::CloseOk {});
                        self.ended()
                    }
                    _ => Next::Continue,
                };
            }
            (State::Closing, ..) => return Next::Continue,
            (_, 0, _) => self.handle_connection_method(context, frame),
            (State::Open, number, _) => return self.handle_channel_frame(context, number, frame),
            _ => Err(Fault::new(ReplyCode::ChannelError, "frame on a channel before the connection is open")),
        };
        match handled {
            Ok(next) => next,
            Err(fault) => self.close_connection(context, &fault),
        }
    }

    fn handle_connection_method(
        &mut self,
        context: &mut Context<'_>,
        frame: Frame<'_>,
    ) -> Result<Next, Fault> {
        let method = frame.method()?;
        let id = method.id();
        let with_method = |fault: Fault| Fault { method: id, ..fault };
        let Method::Connection(method) = method else {
            return Err(with_method(out_of_place(self.state)));
        };
        match (self.state, method) {
            (_, connection::Method::Close(_)) => {
                self.release_replies(context.broker);
                self.leave(context);
                self.link.send(0, &connection::CloseOk {});
                self.state = State::Deaf;
                self.end = Some(End::Closed);
                Ok(Next::Continue)
            }
            (State::AwaitStartOk, connection::Method::StartOk(start_ok)) => {
                self.handle_start_ok(context, &start_ok).map_err(with_method)
            }
            (State::AwaitTuneOk, connection::Method::TuneOk(tune_ok)) => {
                self.handle_tune_ok(tune_ok).map_err(with_method)?;
                Ok(Next::Continue)
            }
            (State::AwaitOpen, connection::Method::Open(open)) => {
                self.handle_open(&open).map_err(with_method)
            }
            (State::Open, connection::Method::UpdateSecret(update)) => {
                self.handle_update_secret(context, update.new_secret.0).map_err(with_method)
            }
            (state, _) => Err(with_method(out_of_place(state))),
        }
    }

    fn handle_channel_frame(&mut self, context: &mut Context<'_>, number: u16, frame: Frame<'_>) -> Next {
        let method = if frame.frame_type == FrameType::Method {
            match frame.method() {
                Ok(method) => Some(method),
                Err(error) => return self.close_connection(context, &error.into()),
            }
        } else {
            None
        };
        let id = method.map_or(MethodId::NONE, |method| method.id());
        if let Some(Method::Channel(channel::Method::Open(_))) = method {
            return match self.open_channel(number) {
                Ok(()) => Next::Continue,
                Err(fault) => self.close_connection(context, &Fault { method: id, ..fault }),
            };
        }
        let Some(channel) = self.channels.get_mut(&number) else {
            if let Some(Method::Channel(channel::Method::CloseOk(_))) = method {
                return Next::Continue;
            }
            let fault = Fault::new(ReplyCode::ChannelError, "expected 'channel.open'");
            return self.close_connection(context, &Fault { method: id, ..fault });
        };
        if !channel.is_open() {
            // Whatever was under way when the channel was closed is dropped.
            match method {
                Some(Method::Channel(channel::Method::CloseOk(_))) => {
                    self.channels.remove(&number);
                }
                Some(Method::Channel(channel::Method::Close(_))) => {
                    self.link.send(number, &channel::CloseOk {});
                }
                _ => {}
            }
            return Next::Continue;
        }
        if let Some(Method::Channel(channel::Method::Close(_))) = method {
            self.release_replies(context.broker);
            if let Some(channel) = self.channels.remove(&number) {
                channel.close(&self.link, context);
            }
            self.link.send(number, &channel::CloseOk {});
            return Next::Continue;
        }
        match channel.handle(&mut self.link, context, frame, method) {
            Ok(()) => Next::Continue,
            Err(fault) => {
                let method = if fault.method == MethodId::NONE { id } else { fault.method };
                let fault = Fault { method, ..fault };
                if fault.code.is_hard() {
                    return self.close_connection(context, &fault);
                }
                self.close_channel(context, number, &fault);
                Next::Continue
            }
        }
    }

    fn open_channel(&mut self, number: u16) -> Result<(), Fault> {
        if number > self.channel_max {
            let text = format!(
                "number of channels opened ({number}) has reached the negotiated channel_max ({})",
                self.channel_max
            );
            return Err(Fault::new(ReplyCode::NotAllowed, text));
        }
        if self.channels.contains_key(&number) {
            return Err(Fault::new(ReplyCode::ChannelError, "second 'channel.open' seen"));
        }
        let serial = self.link.take_serial();
        self.channels.insert(number, Box::new(Channel::new(number, serial, &self.link)));
        self.link.send(number, &channel::OpenOk {});
        Ok(())
    }

    /// Closes a channel from this side: what it had goes back, its number stays taken until the client answers.
    fn close_channel(&mut self, context: &mut Context<'_>, number: u16, fault: &Fault) {
        // Confirms of what was published before the mistake go first, as far as they are due.
        self.release_replies(context.broker);
        if let Some(channel) = self.channels.remove(&number) {
            channel.close(&self.link, context);
        }
        self.channels.insert(number, Box::new(Channel::closing(number, &self.link)));
        let reply_text = fault.text();
        let close = channel::Close {
            reply_code: fault.code.number(),
            reply_text: &reply_text,
            class_id: fault.method.class_id,
            method_id: fault.method.method_id,
        };
        self.link.send(number, &close);
    }

    pub(super) fn close_connection(&mut self, context: &mut Context<'_>, fault: &Fault) -> Next {
        self.release_replies(context.broker);
        self.leave(context);
        self.send_close(fault);
        self.state = if fault.code == ReplyCode::FrameError { State::Deaf } else { State::Closing };
        self.end = Some(End::Fault(fault.code, fault.text()));
        Next::Faulted
    }

    fn send_close(&mut self, fault: &Fault) {
        let reply_text = fault.text();
        let close = connection::Close {
            reply_code: fault.code.number(),
            reply_text: &reply_text,
            class_id: fault.method.class_id,
            method_id: fault.method.method_id,
        };
        self.link.send(0, &close);
    }

    fn ended(&mut self) -> Next {
        self.state = State::Ended;
        Next::End(self.end.take().unwrap_or(End::Closed))
    }
}

fn out_of_place(state: State) -> Fault {
    let state = if state == State::Open { "running" } else { "opening" };
    let text = format!("unexpected method in connection state {state}");
    Fault::new(ReplyCode::ChannelError, text)
}
