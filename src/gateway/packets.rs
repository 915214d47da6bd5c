//! MQTT connections in the gateway: their packets, and what a packet asks for next.

use super::connections::Pause;
use super::endpoint::{End, ProtocolEndpoint};
use super::{Gateway, Tally};
use crate::ids::ConnectionId;
use crate::limits;
use crate::mqtt::codec::{self, ControlPacket, Decoded};
use crate::mqtt::connection::{Connection, Context, Next};
use crate::time::Now;

impl Gateway {
    /// Handles the whole packets at the front of `bytes`; answers how many bytes they took.
    pub(super) fn handle_packets(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) -> usize {
        if self.connections.get(id).is_some_and(|endpoint| endpoint.protocol.as_mqtt().is_none()) {
            return self.handle_frames(now, id, bytes);
        }
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            let Some(endpoint) = self.connections.get_mut(id) else { return bytes.len() };
            let ProtocolEndpoint::Mqtt(connection) = &mut endpoint.protocol else { return bytes.len() };
            if endpoint.pause != Pause::None || endpoint.blocked || !connection.is_ready() {
                return taken;
            }
            let version = connection.version();
            let packet_bytes_max =
                if version.is_none() { limits::CONNECT_BYTES_MAX } else { self.policy.mqtt.packet_bytes_max };
            match codec::decode(rest, version, packet_bytes_max) {
                Ok(Decoded::Packet { packet, consumed }) => {
                    if keeps(&packet) && self.broker.is_congested() {
                        self.congested.push(id);
                        endpoint.pause = Pause::Congested;
                        return taken;
                    }
                    taken += consumed;
                    self.counters.packets_received += 1;
                    let subscribes = matches!(packet, ControlPacket::Subscribe(_));
                    let next = self.with_context(now, id, |c, context| c.handle(context, packet));
                    self.go_on(now, id, next);
                    self.drain(now);
                    if subscribes {
                        self.system_topics_wanted(now);
                    }
                }
                Ok(Decoded::Incomplete { needed }) => {
                    endpoint.needed = needed;
                    return taken;
                }
                Err(error) => {
                    self.counters.protocol_errors += 1;
                    let end = connection.unreadable(rest, error);
                    self.end(now, id, End::Mqtt(end));
                    return bytes.len();
                }
            }
        }
        taken
    }

    pub(super) fn go_on(&mut self, now: Now, id: ConnectionId, next: Option<Next>) {
        match next {
            None | Some(Next::Continue) => {}
            Some(Next::Verify { challenge, password }) => {
                self.check_password(now, id, challenge, password);
            }
            Some(Next::End(end)) => self.end(now, id, End::Mqtt(end)),
        }
        self.release_replies(now, id);
    }

    pub(super) fn with_context<T>(
        &mut self,
        now: Now,
        id: ConnectionId,
        act: impl FnOnce(&mut Connection, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let endpoint = self.connections.get_mut(id)?;
        let peer = &*endpoint.peer;
        let connection = endpoint.protocol.as_mqtt_mut()?;
        let verified = |name: &str, password: &[u8]| self.logins.believes(now.mono, (name, peer), password);
        let mut context = Context {
            now,
            broker: &mut self.broker,
            users: self.users.as_ref(),
            acl: self.acl.as_ref(),
            policy: &self.policy.mqtt,
            random: self.random.next(),
            verified: &verified,
            denials: &self.tally.denials,
        };
        let published = context.broker.published();
        let done = act(connection, &mut context);
        let after = context.broker.published();
        self.tally.count_received(Tally::MQTT, published, after);
        if after != published {
            self.trace_publisher(now, id);
        }
        Some(done)
    }
}

/// True for a packet that adds to what waits for the flash without a bound of its own.
const fn keeps(packet: &ControlPacket<'_>) -> bool {
    match packet {
        ControlPacket::Publish(publish) => publish.packet_identifier.is_some() || publish.retain,
        ControlPacket::Connect(_)
        | ControlPacket::Subscribe(_)
        | ControlPacket::Unsubscribe(_)
        | ControlPacket::PubAck(_)
        | ControlPacket::PubRec(_)
        | ControlPacket::PubRel(_)
        | ControlPacket::PubComp(_)
        | ControlPacket::PingReq
        | ControlPacket::Disconnect(_)
        | ControlPacket::Auth(_) => false,
    }
}
