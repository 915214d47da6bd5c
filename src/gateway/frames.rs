//! AMQP connections in the gateway: their frames, their deliveries, their replies.

use super::connections::Pause;
use super::endpoint::End;
use super::{Gateway, Output, Tally, interop};
use crate::amqp091::connection::{Connection, Context, Next};
use crate::auth::Denied;
use crate::broker::{Delivery, Settlement};
use crate::ids::ConnectionId;
use crate::time::Now;

impl Gateway {
    /// Handles the whole frames at the front of `bytes`; answers how many bytes they took. Replies of the whole run
    /// leave at its end, so that the answers to many publishes are one.
    pub(super) fn handle_frames(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            let Some(endpoint) = self.connections.get_mut(id) else { return bytes.len() };
            let Some(connection) = endpoint.protocol.as_amqp091_mut() else { return bytes.len() };
            if endpoint.pause == Pause::None && !connection.is_ready() {
                endpoint.pause = Pause::Replying;
            }
            if endpoint.pause != Pause::None || endpoint.blocked {
                break;
            }
            let handled = self.with_frames(now, id, |connection, context| connection.handle(context, rest));
            let Some((consumed, needed, next)) = handled else { return bytes.len() };
            let waits = matches!(next, Next::Congested | Next::AwaitRows);
            self.counters.packets_received += u64::from(consumed > 0);
            taken += consumed;
            if let Some(endpoint) = self.connections.get_mut(id) {
                endpoint.needed = needed;
            }
            if self.go_on_frames(now, id, next) {
                return bytes.len();
            }
            self.drain(now);
            if consumed == 0 || waits {
                break;
            }
        }
        self.release_frames(now, id);
        taken
    }

    /// True when the connection is over.
    fn go_on_frames(&mut self, now: Now, id: ConnectionId, next: Next) -> bool {
        match next {
            Next::Continue => {}
            Next::Faulted => {
                self.counters.protocol_errors += 1;
                // It has some seconds to take leave.
                self.renew_deadline(id);
            }
            Next::Joined => {
                self.counters.joined += 1;
                self.outputs.push_back(Output::Joined { connection: id });
                self.renew_deadline(id);
            }
            Next::Verify { challenge, password } => {
                self.check_password(now, id, challenge, password);
            }
            Next::Congested => {
                self.congested.push(id);
                if let Some(endpoint) = self.connections.get_mut(id) {
                    endpoint.pause = Pause::Congested;
                    if let Some(connection) = endpoint.protocol.as_amqp091_mut() {
                        connection.tell_blocked();
                    }
                }
            }
            Next::AwaitRows => {
                self.awaiting_rows.push(id);
                if let Some(endpoint) = self.connections.get_mut(id) {
                    endpoint.pause = Pause::Reading;
                }
            }
            Next::End(end) => {
                self.end(now, id, End::Amqp091(end));
                return true;
            }
        }
        false
    }

    /// A password was checked.
    pub(super) fn verified_frames(&mut self, now: Now, id: ConnectionId, genuine: bool) {
        let next = self.with_frames(now, id, |connection, context| connection.verified(context, genuine));
        if let Some(next) = next {
            self.go_on_frames(now, id, next);
        }
        self.release_frames(now, id);
    }

    /// Sends what is due; a connection whose reply has left goes on with its input.
    pub(super) fn release_frames(&mut self, now: Now, id: ConnectionId) {
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        let Some(connection) = endpoint.protocol.as_amqp091_mut() else { return };
        let owed_too_much = connection.owes_too_much();
        connection.release_replies(&self.broker);
        let waited = endpoint.pause == Pause::Replying;
        if connection.is_ready() && (waited || owed_too_much) {
            if waited {
                endpoint.pause = Pause::None;
            }
            self.replied.push(id);
        }
        self.renew_deadline(id);
        self.mark_dirty(now, id);
    }

    /// Connections whose reply has left go on with what they have kept.
    pub(super) fn go_on_replied(&mut self, now: Now) {
        while let Some(id) = self.replied.pop() {
            self.handle_kept(now, id);
            self.resume_reading(id);
        }
    }

    /// Passes a delivery on. One whose consumer is gone goes back to its place; one that the rules keep from it is
    /// gone.
    pub(super) fn deliver_frames(&mut self, now: Now, delivery: &Delivery) {
        let message = &delivery.held.message;
        if let Some(endpoint) = self.connections.get_mut(delivery.connection)
            && let Some(connection) = endpoint.protocol.as_amqp091_mut()
            && !connection.may_receive(self.acl.as_ref(), message)
        {
            let identity = endpoint.protocol.identity();
            self.tally.denials.note(now.wall, Denied::Deliver, identity, &message.address);
            let withheld = std::iter::once((delivery.queue, delivery.tag)).filter(|(_, tag)| *tag != 0);
            self.broker.settle_deliveries(now, withheld, Settlement::Withhold);
            self.give_back_credit(now, delivery);
            return;
        }
        let delivered = match self.connections.get_mut(delivery.connection) {
            Some(endpoint) if !endpoint.ended => match endpoint.protocol.as_amqp091_mut() {
                Some(connection) => {
                    let properties = interop::amqp091_properties(&delivery.held.message);
                    connection.deliver(delivery, &properties)
                }
                None => false,
            },
            _ => false,
        };
        if delivered {
            self.tally.sent_amqp += 1;
            self.trace_delivered(now, delivery);
            self.mark_dirty(now, delivery.connection);
        } else if delivery.tag != 0 {
            let back = std::iter::once((delivery.queue, delivery.tag));
            self.broker.settle_deliveries(now, back, Settlement::Release);
            self.give_back_credit(now, delivery);
        }
    }

    /// A delivery did not leave, so its client will not settle it: its channel may have another.
    fn give_back_credit(&mut self, now: Now, delivery: &Delivery) {
        if delivery.tag != 0
            && let Some(endpoint) = self.connections.get_mut(delivery.connection)
            && let Some(connection) = endpoint.protocol.as_amqp091_mut()
        {
            connection.give_back_credit(now, &mut self.broker, delivery.consumer);
        }
    }

    pub(super) fn consumer_ended(&mut self, now: Now, id: ConnectionId, consumer: u64) {
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        if let Some(connection) = endpoint.protocol.as_amqp091_mut() {
            connection.consumer_ended(consumer);
            self.mark_dirty(now, id);
        }
    }

    pub(super) fn with_frames<T>(
        &mut self,
        now: Now,
        id: ConnectionId,
        act: impl FnOnce(&mut Connection, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let endpoint = self.connections.get_mut(id)?;
        let peer = &*endpoint.peer;
        let connection = endpoint.protocol.as_amqp091_mut()?;
        let verified = |name: &str, password: &[u8]| self.logins.believes(now.mono, (name, peer), password);
        let mut context = Context {
            now,
            broker: &mut self.broker,
            users: self.users.as_ref(),
            acl: self.acl.as_ref(),
            message_bytes_max: self.policy.message_bytes_max,
            random: self.random.next(),
            verified: &verified,
            properties: interop::amqp091_properties,
            denials: &self.tally.denials,
        };
        let published = context.broker.published();
        let done = act(connection, &mut context);
        let after = context.broker.published();
        self.tally.count_received(Tally::AMQP, published, after);
        if after != published {
            self.trace_publisher(now, id);
        }
        Some(done)
    }
}
