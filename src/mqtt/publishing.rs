//! PUBLISH and its acknowledgements, both ways. MQTT 3.1.1 sections 3.3 to 3.7 and 4.3.

use super::codec::{self, Fault, PacketIdentifier, ProtocolError, QualityOfService};
use super::connection::{Connection, Context, End, Next, assurance};
use super::owed::Reply;
use crate::auth::Denied;
use crate::broker::{Publish, Routed};

/// Topics under this belong to the gateway: what a client sends there is acknowledged and dropped, as 3.1.1 has no
/// way to refuse it. [MQTT-3.3.5-2]
const SYSTEM_TOPICS: &str = "$SYS";

const NEVER_RELEASED: ProtocolError = ProtocolError {
    fault: Fault::ProtocolViolation,
    detail: "too many publishes of QoS 2 without PUBREL",
    rule: "section 4.3.3",
};

impl Connection {
    pub(super) fn handle_publish(&mut self, context: &mut Context<'_>, publish: &codec::Publish<'_>) -> Next {
        let Some(queue) = self.queue else { return Next::Continue };
        let topic = publish.topic.as_str();
        let allowed = self.may_publish(context, topic);
        let message = Publish {
            address: topic,
            body: publish.payload,
            assurance: assurance(publish.qos),
            retain: publish.retain,
            connection: Some(self.id),
        };
        let Some(identifier) = publish.packet_identifier else {
            if allowed {
                context.broker.publish(context.now, message);
            }
            return Next::Continue;
        };
        let (routed, reply) = match publish.qos {
            QualityOfService::ExactlyOnce => {
                let number = identifier.number();
                if !context.broker.may_publish_once(queue, number) {
                    return Next::End(End::Protocol(NEVER_RELEASED));
                }
                let routed = if allowed {
                    context.broker.publish_once(context.now, queue, number, message)
                } else {
                    Routed::nowhere()
                };
                (routed, Reply::PubRec(identifier))
            }
            QualityOfService::AtLeastOnce | QualityOfService::AtMostOnce => {
                let routed =
                    if allowed { context.broker.publish(context.now, message) } else { Routed::nowhere() };
                (routed, Reply::PubAck(identifier))
            }
        };
        self.owe(context.broker, routed.gate, reply);
        Next::Continue
    }

    pub(super) fn handle_puback(&mut self, context: &mut Context<'_>, identifier: PacketIdentifier) {
        if let Some(queue) = self.queue {
            context.broker.accept(context.now, queue, u32::from(identifier.number()));
        }
    }

    pub(super) fn handle_pubrec(&mut self, context: &mut Context<'_>, identifier: PacketIdentifier) {
        if let Some(queue) = self.queue {
            let gate = context.broker.receive(context.now, queue, u32::from(identifier.number()));
            self.owe(context.broker, gate, Reply::PubRel(identifier));
        }
    }

    pub(super) fn handle_pubrel(&mut self, context: &mut Context<'_>, identifier: PacketIdentifier) {
        if let Some(queue) = self.queue {
            let gate = context.broker.release_publish(context.now, queue, identifier.number());
            self.owe(context.broker, gate, Reply::PubComp(identifier));
        }
    }

    pub(super) fn handle_pubcomp(&mut self, context: &mut Context<'_>, identifier: PacketIdentifier) {
        if let Some(queue) = self.queue {
            context.broker.complete(context.now, queue, u32::from(identifier.number()));
        }
    }

    pub(super) fn may_publish(&self, context: &Context<'_>, topic: &str) -> bool {
        let system =
            topic.strip_prefix(SYSTEM_TOPICS).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let may = !system && context.acl.is_none_or(|acl| acl.may_publish(self.identity(), topic));
        if !may {
            context.denials.note(context.now.wall, Denied::Publish, self.identity(), topic);
        }
        may
    }
}
