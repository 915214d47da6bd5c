//! The whole gateway as one deterministic machine: connections, endpoints and broker, without I/O.
//!
//! `net` drives it in the daemon and the simulator in tests, with the same calls: bytes in with the time they came,
//! bytes out by connection, batches to the store and what it answers. Owns the connections, cutting input into
//! packets, passing deliveries on, deadlines, backpressure and `$SYS`. Reads no clock, knows no socket.

mod backlog;
mod collections;
mod connections;
mod deadlines;
mod endpoint;
mod figures;
mod following;
mod frames;
mod interop;
mod load;
mod logins;
mod operating;
mod packets;
mod policy;
mod publishing;
mod readings;
mod reconfigure;
mod status;
mod system_topics;
mod tally;
mod trace;

use std::collections::VecDeque;

pub use collections::{LogState, collection_rules, reconcile_series, series_options};
pub use connections::{Accept, ConnectionStatus, Protocol};
use connections::{Connections, Endpoint, Pause};
use deadlines::Deadlines;
pub use endpoint::End;
use endpoint::ProtocolEndpoint;
pub use figures::{
    CertificateFacts, ClassFigures, Facts, Figures, ListenerFacts, StoreCondition, StoreFigures, age_ms,
    fill, full_in_s,
};
pub use following::followed_json;
use load::Load;
use logins::Logins;
pub use logins::{LoginCheck, LoginPolicy};
pub use policy::{GatewayPolicy, broker_policy};
use publishing::DirectAnswers;
pub use publishing::{DirectPublish, PublishRefused, Ticket};
use readings::Readings;
pub use readings::SeriesRequest;
use system_topics::SystemTopics;
pub use tally::{PROTOCOLS, Tally};
pub use trace::add_series;

use crate::auth::{Acl, Challenge, Denied, Identity, Users};
use crate::broker::{Broker, Event, RecoverySummary};
use crate::ids::{BatchNumber, ConnectionId};
use crate::limits;
use crate::message::Message;
use crate::mqtt::connection::End as MqttEnd;
use crate::mqtt::delivering::{Delivered, Delivering};
use crate::output::OutputBuffer;
use crate::store::Salvaged;
use crate::store::batch::{Batch, Persisted};
use crate::time::{Mono, Now};

/// What the gateway asks of its driver, in order.
#[derive(Debug)]
pub enum Output {
    /// Check a password; answer with [`Gateway::verified`]. May take long.
    VerifyPassword { connection: ConnectionId, challenge: Challenge, password: Box<[u8]> },
    /// Send what the connection's output holds, then close it.
    Close { connection: ConnectionId, end: End },
    /// A user name is refused at the connection's address for a while, whatever its password: for the log.
    LockedOut { connection: ConnectionId },
    /// The connection may be read again.
    Read { connection: ConnectionId },
    /// A client has joined: for the log.
    Joined { connection: ConnectionId },
    /// What [`Gateway::publish`] took, or [`Gateway::purge`] dropped, is on flash as far as it had to be.
    Kept { ticket: Ticket },
}

/// Counters of the protocol side since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GatewayCounters {
    pub connections: u64,
    pub packets_received: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub protocol_errors: u64,
    pub refused: u64,
    /// Clients that were let in.
    pub joined: u64,
}

/// See the module's head.
#[derive(Debug)]
pub struct Gateway {
    policy: GatewayPolicy,
    users: Option<Users>,
    acl: Option<Acl>,
    broker: Broker,
    connections: Connections,
    deadlines: Deadlines,
    outputs: VecDeque<Output>,
    /// Connections with output that nobody was told about yet.
    dirty: Vec<ConnectionId>,
    /// Connections whose next packet waits until the store has caught up.
    congested: Vec<ConnectionId>,
    /// Those whose next frame asks for rows that are being read.
    awaiting_rows: Vec<ConnectionId>,
    /// Connections whose reply has left and whose kept input may be handled.
    replied: Vec<ConnectionId>,
    logins: Logins,
    system_topics: SystemTopics,
    load: Load,
    readings: Readings,
    random: crate::random::Random,
    counters: GatewayCounters,
    tally: Tally,
    answers: DirectAnswers,
    facts: Facts,
    /// Bytes of input that connections keep.
    input_bytes: usize,
    store: StoreFigures,
    recovery: RecoverySummary,
    started: Now,
}

impl Gateway {
    /// A gateway around a broker that was made or recovered from the store and has its collections ([`reconcile_series`]). `seed`
    /// decides all randomness.
    #[must_use]
    pub fn new(
        policy: GatewayPolicy,
        users: Option<Users>,
        acl: Option<Acl>,
        mut broker: Broker,
        recovery: RecoverySummary,
        seed: u64,
        now: Now,
    ) -> Self {
        broker.read_messages_with(interop::READER);
        let readings = Readings::recovered(&broker);
        let mut gateway = Self {
            logins: Logins::new(LoginPolicy::default(), seed),
            policy,
            users,
            acl,
            broker,
            connections: Connections::default(),
            deadlines: Deadlines::default(),
            outputs: VecDeque::new(),
            dirty: Vec::new(),
            congested: Vec::new(),
            awaiting_rows: Vec::new(),
            replied: Vec::new(),
            system_topics: SystemTopics::default(),
            load: Load::new(now.mono),
            readings,
            random: crate::random::Random::new(seed),
            counters: GatewayCounters::default(),
            tally: Tally::default(),
            answers: DirectAnswers::default(),
            facts: Facts::default(),
            input_bytes: 0,
            store: StoreFigures::default(),
            recovery,
            started: now,
        };
        // Wills of the last run are due: the collections are there, and the rules.
        gateway.drain(now);
        gateway
    }

    // Inputs.

    /// A listener for MQTT accepted a connection. `None` when there are too many: the socket is to be closed.
    pub fn accept(&mut self, now: Now, accept: Accept) -> Option<ConnectionId> {
        self.accept_protocol(now, Protocol::Mqtt, accept)
    }

    /// A listener accepted a connection. `None` when there are too many: the socket is to be closed.
    pub fn accept_protocol(&mut self, now: Now, protocol: Protocol, accept: Accept) -> Option<ConnectionId> {
        if self.connections.len() >= self.policy.connections_max {
            self.counters.refused += 1;
            return None;
        }
        self.sample_load(now);
        self.counters.connections += 1;
        let id = self.connections.insert(now.mono, protocol, accept);
        self.renew_deadline(id);
        Some(id)
    }

    /// Bytes came from a connection. What does not make a whole packet, or may not be handled yet, is kept.
    pub fn receive(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) {
        self.sample_load(now);
        self.counters.bytes_received += bytes.len() as u64;
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        if endpoint.pause == Pause::None && endpoint.input.is_empty() {
            let taken = self.handle_packets(now, id, bytes);
            self.keep_input(now, id, bytes.get(taken..).unwrap_or_default());
            return;
        }
        self.keep_input(now, id, bytes);
        let Some(endpoint) = self.connections.get(id) else { return };
        if endpoint.pause == Pause::None && endpoint.input.len() >= endpoint.needed {
            self.handle_kept(now, id);
        }
    }

    /// Keeps input for later. All connections together may keep as much as messages may take; who goes beyond ends.
    fn keep_input(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) {
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        if bytes.is_empty() || endpoint.ended {
            return;
        }
        endpoint.keep(bytes);
        self.input_bytes += bytes.len();
        if self.input_bytes as u64 > self.policy.memory_max {
            let end = endpoint.protocol.out_of_memory();
            self.end(now, id, end);
        }
    }

    /// The peer closed its socket, or it failed.
    pub fn peer_closed(&mut self, now: Now, id: ConnectionId) {
        let Some(endpoint) = self.connections.get(id) else { return };
        let end = endpoint.protocol.peer_closed();
        self.end(now, id, end);
    }

    /// The driver has sent `count` bytes of the connection's output.
    pub fn sent(&mut self, now: Now, id: ConnectionId, count: usize) {
        self.counters.bytes_sent += count as u64;
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        endpoint.protocol.output().advance(count);
        match &mut endpoint.protocol {
            ProtocolEndpoint::Mqtt(connection) if endpoint.blocked && count > 0 => {
                // It is not read meanwhile, and it takes what it is sent: it lives.
                connection.excuse(now.mono);
            }
            ProtocolEndpoint::Mqtt(_) => {}
            ProtocolEndpoint::Amqp091(connection) => connection.sent(now, &mut self.broker),
        }
        if endpoint.blocked && endpoint.protocol.output_bytes() <= limits::OUTPUT_BYTES_LOW {
            endpoint.blocked = false;
            if let Some(queue) = endpoint.protocol.as_mqtt().and_then(|connection| connection.queue()) {
                self.broker.set_blocked(now, queue, false);
            }
            self.drain(now);
            self.handle_kept(now, id);
            self.resume_reading(id);
        } else {
            self.drain(now);
        }
    }

    /// A batch is on flash.
    pub fn persisted(&mut self, now: Now, persisted: Persisted) {
        self.store.persisted(now, persisted);
        self.broker.persisted(now, persisted);
        self.drain(now);
        self.go_on_replied(now);
        self.resume_congested(now);
    }

    /// The store fails, or works again: acknowledgements wait meanwhile, everything else goes on.
    pub fn store_condition(&mut self, condition: StoreCondition) {
        let blocked = condition != StoreCondition::Working;
        self.tally.flash_failures += u64::from(blocked && self.is_healthy());
        self.store.condition = condition;
        for id in self.connections.ids() {
            let Some(endpoint) = self.connections.get_mut(id) else { continue };
            if let Some(connection) = endpoint.protocol.as_amqp091_mut() {
                connection.set_blocked(blocked);
                if connection.output_bytes() > 0 && !std::mem::replace(&mut endpoint.dirty, true) {
                    self.dirty.push(id);
                }
            }
        }
    }

    /// The store's files were damaged: everything is written again, beside what was salvaged, and in its place.
    pub fn write_anew(&mut self, now: Now, salvaged: Salvaged) {
        self.broker.write_anew(now, salvaged);
        self.readings.rows_were_rekeyed();
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.broker.handle_timeout(now);
        while let Some((checked_at, id)) = self.deadlines.pop_due(now.mono) {
            let Some(endpoint) = self.connections.get_mut(id) else { continue };
            if endpoint.check_at != Some(checked_at) {
                continue;
            }
            endpoint.check_at = None;
            let held_back = endpoint.is_held_back();
            let end = match &mut endpoint.protocol {
                ProtocolEndpoint::Mqtt(connection) => {
                    connection.shrink();
                    if held_back {
                        // What it sent meanwhile was not read: its silence is the gateway's.
                        connection.excuse(now.mono);
                    }
                    let due = connection.deadline().is_some_and(|at| at <= now.mono);
                    due.then(|| End::Mqtt(connection.timeout()))
                }
                ProtocolEndpoint::Amqp091(connection) => {
                    let due = connection.deadline().is_some_and(|at| at <= now.mono);
                    let end = if due { connection.handle_timeout(now.mono, held_back) } else { None };
                    end.map(End::Amqp091)
                }
            };
            if let Some(end) = end {
                self.end(now, id, end);
            } else {
                self.renew_deadline(id);
                self.mark_dirty(now, id);
            }
        }
        self.refuse_logins(now);
        self.publish_system_topics(now);
        self.drain(now);
        self.resume_held_back(now);
    }

    /// The gateway stops: every connection ends, and what it leaves is in the next batch.
    pub fn shut_down(&mut self, now: Now) {
        for id in self.connections.ids() {
            if let Some(endpoint) = self.connections.get(id) {
                let end = endpoint.protocol.shutdown();
                self.end(now, id, end);
            }
        }
    }

    // Outputs.

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// A connection with output to send. Each is named once until it has been asked for.
    pub fn poll_dirty(&mut self) -> Option<ConnectionId> {
        let id = self.dirty.pop()?;
        if let Some(endpoint) = self.connections.get_mut(id) {
            endpoint.dirty = false;
        }
        Some(id)
    }

    /// True when some connection has output that [`Gateway::poll_dirty`] will name, or something is to be done.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.dirty.is_empty() || !self.outputs.is_empty()
    }

    /// What a connection has to send.
    pub fn output(&mut self, id: ConnectionId) -> Option<&mut OutputBuffer> {
        Some(self.connections.get_mut(id)?.protocol.output())
    }

    /// False while the connection's input must wait.
    #[must_use]
    pub fn wants_read(&self, id: ConnectionId) -> bool {
        let reads = |endpoint: &Endpoint| {
            endpoint.pause == Pause::None && !endpoint.blocked && !endpoint.protocol.owes_too_much()
        };
        self.connections.get(id).is_some_and(reads)
    }

    /// The next batch for the store, when it is idle and something is due.
    pub fn close_batch(&mut self, now: Now) -> Option<Batch> {
        self.broker.close_batch(now)
    }

    /// The next batch for the store, whatever is in it: for a clean stop.
    pub fn close_batch_now(&mut self) -> Option<Batch> {
        self.broker.close_batch_now()
    }

    /// When [`Gateway::handle_timeout`] or [`Gateway::close_batch`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        [
            self.broker.poll_timeout(),
            self.deadlines.next(),
            self.system_topics_deadline(),
            self.readings_deadline(),
            self.logins.next(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The newest batch on flash.
    #[must_use]
    pub const fn persisted_batch(&self) -> BatchNumber {
        self.broker.persisted_batch()
    }

    /// Rows by which the sessions are known after the file is lost.
    #[must_use]
    pub fn essentials(&self) -> Vec<Vec<u8>> {
        self.broker.essentials()
    }

    /// A connection, to look at.
    #[must_use]
    pub fn client(&self, id: ConnectionId) -> Option<ConnectionStatus> {
        let endpoint = self.connections.get(id)?;
        let identity = endpoint.protocol.identity();
        Some(ConnectionStatus {
            connection: id,
            client_identifier: identity.client_identifier.into(),
            user_name: identity.username.map(Into::into),
            peer: endpoint.peer.clone(),
            output_bytes: endpoint.protocol.output_bytes(),
        })
    }

    /// True when no batch is under way.
    #[must_use]
    pub const fn is_store_idle(&self) -> bool {
        self.broker.is_store_idle()
    }

    /// The users, when there is a password file.
    #[must_use]
    pub const fn users(&self) -> Option<&Users> {
        self.users.as_ref()
    }

    /// The rules, when there is an ACL file.
    #[must_use]
    pub const fn acl(&self) -> Option<&Acl> {
        self.acl.as_ref()
    }

    /// The broker, to look at.
    #[must_use]
    pub const fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Bytes of input that all connections keep: parts of packets, and packets that may not be handled yet.
    #[must_use]
    pub const fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// Forgets a connection that has ended and whose socket is closed. Its number is not used again.
    pub fn remove(&mut self, id: ConnectionId) {
        self.connections.remove(id);
    }

    /// Handles what was kept of a connection's input, as far as it goes.
    fn handle_kept(&mut self, now: Now, id: ConnectionId) {
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        if endpoint.input.is_empty() {
            return;
        }
        let mut input = std::mem::take(&mut endpoint.input);
        self.input_bytes -= input.len();
        let taken = self.handle_packets(now, id, &input);
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        if taken >= input.len() || endpoint.ended {
            return;
        }
        self.input_bytes += input.len() - taken;
        input.drain(..taken);
        if input.capacity() > 2 * limits::READ_BYTES_MAX && input.len() < limits::READ_BYTES_MAX / 2 {
            input.shrink_to(limits::READ_BYTES_MAX);
        }
        endpoint.input = input;
    }

    /// Lets due replies of a connection leave; a connection that has just joined gets its deliveries.
    fn release_replies(&mut self, now: Now, id: ConnectionId) {
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        let ProtocolEndpoint::Mqtt(connection) = &mut endpoint.protocol else {
            self.release_frames(now, id);
            return;
        };
        if connection.has_nothing_to_send() {
            // Most packets of a publisher with QoS 0, and of a subscriber that acknowledges.
            return;
        }
        let owed_too_much = connection.owes_too_much();
        let joined = connection.release_replies(&self.broker);
        let reads_again = owed_too_much && !connection.owes_too_much();
        if joined {
            self.counters.joined += 1;
            self.outputs.push_back(Output::Joined { connection: id });
            if let Some(queue) = connection.queue() {
                let credit_max = connection.credit_max(self.policy.mqtt.inflight_max);
                self.broker.attach(now, queue, id, credit_max);
            }
            self.renew_deadline(id);
        }
        self.mark_dirty(now, id);
        if reads_again && let Some(endpoint) = self.connections.get_mut(id) {
            endpoint.protocol.excuse(now.mono);
            self.handle_kept(now, id);
            self.resume_reading(id);
        }
    }

    /// Passes on what the broker has to tell.
    fn drain(&mut self, now: Now) {
        while let Some(event) = self.broker.next_event() {
            match event {
                Event::Deliver(delivery) => self.deliver(now, &delivery),
                Event::Release { connection, tag } => {
                    let endpoint = self.connections.get_mut(connection);
                    if let Some(mqtt) = endpoint.and_then(|endpoint| endpoint.protocol.as_mqtt_mut()) {
                        mqtt.release(tag);
                        self.mark_dirty(now, connection);
                    }
                }
                Event::ConsumerEnded { connection, consumer } => {
                    self.consumer_ended(now, connection, consumer);
                }
                Event::Paused { connection, queue } => {
                    let takes_more = |endpoint: &Endpoint| {
                        let session = endpoint.protocol.as_mqtt().and_then(|connection| connection.queue());
                        session == Some(queue) && !endpoint.blocked
                    };
                    if self.connections.get(connection).is_some_and(takes_more) {
                        self.broker.set_blocked(now, queue, false);
                    }
                }
                Event::Displaced { connection } => {
                    self.end(now, connection, End::Mqtt(MqttEnd::TakenOver));
                }
                Event::WillDue { will } => self.send_will(now, will),
                Event::GatesMayBeDue { connection } if Self::is_direct_waiter(connection) => {
                    self.release_answers();
                }
                Event::GatesMayBeDue { connection } => self.release_replies(now, connection),
            }
        }
    }

    fn deliver(&mut self, now: Now, delivery: &crate::broker::Delivery) {
        if delivery.consumer != 0 {
            self.deliver_frames(now, delivery);
            return;
        }
        let Some(endpoint) = self.connections.get_mut(delivery.connection) else { return };
        let ProtocolEndpoint::Mqtt(connection) = &mut endpoint.protocol else { return };
        if let Some(acl) = &self.acl
            && !may_read(acl, connection.identity(), &delivery.held.message)
        {
            // The right may have been narrower than the subscription: the copy is not for this client.
            let address = &delivery.held.message.address;
            self.tally.denials.note(now.wall, Denied::Deliver, connection.identity(), address);
            self.withdraw(now, delivery);
            return;
        }
        let properties = interop::mqtt5_properties;
        match connection.deliver(delivery, Delivering { now, broker: &self.broker, properties }) {
            Delivered::Sent => {}
            Delivered::NoTopic => return self.withdraw(now, delivery),
            Delivered::TooLarge => return self.broker.lose_too_large(now, delivery),
        }
        self.tally.sent_mqtt += 1;
        self.trace_delivered(now, delivery);
        self.mark_dirty(now, delivery.connection);
    }

    fn mark_dirty(&mut self, now: Now, id: ConnectionId) {
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        let waiting = endpoint.protocol.output_bytes();
        if waiting == 0 {
            return;
        }
        if !endpoint.dirty {
            endpoint.dirty = true;
            self.dirty.push(id);
        }
        if waiting > limits::OUTPUT_BYTES_HIGH && !endpoint.blocked {
            endpoint.blocked = true;
            if let Some(queue) = endpoint.protocol.as_mqtt().and_then(|connection| connection.queue()) {
                self.broker.set_blocked(now, queue, true);
            }
        }
    }

    fn resume_reading(&mut self, id: ConnectionId) {
        if self.wants_read(id) {
            self.outputs.push_back(Output::Read { connection: id });
        }
    }

    fn end(&mut self, now: Now, id: ConnectionId, end: End) {
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        if std::mem::replace(&mut endpoint.ended, true) {
            return;
        }
        self.input_bytes -= std::mem::take(&mut endpoint.input).len();
        endpoint.pause = Pause::Ended;
        self.tally.count_closed(&end);
        if end.is_login_refusal() {
            let client = endpoint.protocol.identity();
            self.tally.denials.note(now.wall, Denied::Login, client, &endpoint.peer);
        }
        match &end {
            End::Mqtt(end) => {
                self.with_context(now, id, |connection, context| connection.end(context, end));
            }
            End::Amqp091(end) => {
                self.with_frames(now, id, |connection, context| connection.end(context, end));
            }
        }
        self.outputs.push_back(Output::Close { connection: id, end });
        self.drain(now);
    }

    /// Has the connection looked at when its deadline passes, or earlier.
    fn renew_deadline(&mut self, id: ConnectionId) {
        if self.deadlines.len() > 1024 + 4 * self.connections.len() {
            let connections = &self.connections;
            self.deadlines.retain(|id| connections.get(id).is_some());
        }
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        let Some(at) = endpoint.protocol.deadline() else { return };
        if endpoint.check_at.is_none_or(|check_at| at < check_at) {
            endpoint.check_at = Some(self.deadlines.push(at, id));
        }
    }
}

/// Whether the rules about topics let a client have a message: under its address, and under those under which it passed
/// the shared exchange before it died in a queue and came back.
fn may_read(acl: &Acl, client: Identity<'_>, message: &Message) -> bool {
    let may_read = |address: &str| acl.may_read(client, address);
    may_read(&message.address) && message.shared_addresses().all(may_read)
}
