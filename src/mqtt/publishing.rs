//! PUBLISH and its acknowledgements, both ways. MQTT 3.1.1 and 5 sections 3.3 to 3.7 and 4.3.

use super::codec::{
    self, Acknowledgement, Fault, PacketIdentifier, PropertyId, ProtocolError, QualityOfService, ReasonCode,
};
use super::connection::{Connection, Context, End, Next, assurance};
use super::owed::Reply;
use super::version5::relayed;
use crate::auth::Denied;
use crate::broker::{Publish, Routed};
use crate::message::{PROPERTIES_MQTT5, is_reserved};

const NEVER_RELEASED: ProtocolError = ProtocolError {
    fault: Fault::QuotaExceeded,
    detail: "no room for more publishes of QoS 2 without PUBREL",
    rule: "section 4.3.3",
};

const NOTHING_IS_RETAINED: ProtocolError = ProtocolError {
    fault: Fault::RetainNotSupported,
    detail: "retained messages are not kept here",
    rule: "MQTT-3.2.2-14",
};

const BODY_TOO_LARGE: ProtocolError = ProtocolError {
    fault: Fault::PacketTooLarge,
    detail: "the body is larger than limits.message_bytes_max",
    rule: "MQTT-3.2.2-15",
};

impl Connection {
    pub(super) fn handle_publish(&mut self, context: &mut Context<'_>, publish: &codec::Publish<'_>) -> Next {
        let Some(queue) = self.queue else { return Next::Continue };
        if publish.payload.len() > context.policy.message_bytes_max {
            return Next::End(End::Protocol(BODY_TOO_LARGE));
        }
        let mut message = Publish {
            address: publish.topic.as_str(),
            body: publish.payload,
            assurance: assurance(publish.qos),
            retain: publish.retain,
            connection: Some(self.id),
            session: Some(queue),
            ..Publish::default()
        };
        if self.version5.is_none() {
            let allowed = self.may_publish(context, message.address);
            return self.route(context, publish, message, allowed);
        }
        if publish.retain && !context.broker.retains() {
            return Next::End(End::Protocol(NOTHING_IS_RETAINED));
        }
        let properties = publish.properties.unwrap_or_default();
        let mut stored = Vec::new();
        if !properties.is_empty() {
            relayed(properties, &mut stored);
            let lasts_s = properties.number(PropertyId::MessageExpiryInterval);
            message.time_to_live_ms = lasts_s.map(|seconds| u64::from(seconds) * 1000);
        }
        if !stored.is_empty() {
            stored.insert(0, PROPERTIES_MQTT5);
            message.properties = &stored;
        }
        let begun = match &mut self.version5 {
            Some(version5) if publish.packet_identifier.is_some() => version5.begin(),
            Some(_) | None => Ok(()),
        };
        if let Err(error) = begun {
            return Next::End(End::Protocol(error));
        }
        let Some(alias) = properties.number16(PropertyId::TopicAlias) else {
            let allowed = self.may_publish(context, message.address);
            return self.route(context, publish, message, allowed);
        };
        // The topic is borrowed from the aliases, which are put back behind it.
        let Some(mut version5) = self.version5.take() else { return Next::Continue };
        let resolved = match version5.topic(alias, message.address) {
            Ok(topic) => Ok((self.may_publish(context, topic), Box::<str>::from(topic))),
            Err(error) => Err(error),
        };
        self.version5 = Some(version5);
        match resolved {
            Ok((allowed, topic)) => {
                self.route(context, publish, Publish { address: &topic, ..message }, allowed)
            }
            Err(error) => Next::End(End::Protocol(error)),
        }
    }

    fn route(
        &mut self,
        context: &mut Context<'_>,
        publish: &codec::Publish<'_>,
        message: Publish<'_>,
        allowed: bool,
    ) -> Next {
        let Some(queue) = self.queue else { return Next::Continue };
        let Some(identifier) = publish.packet_identifier else {
            if allowed {
                context.broker.publish(context.now, message);
            }
            return Next::Continue;
        };
        let tells = self.version5.is_some();
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
                let reason = outcome(&routed, allowed, tells);
                if reason.is_failure() {
                    // The exchange ends here; the identifier is free. [MQTT-4.3.3-9]
                    context.broker.release_publish(context.now, queue, number);
                }
                (routed, Reply::PubRec(identifier, reason))
            }
            QualityOfService::AtLeastOnce | QualityOfService::AtMostOnce => {
                let routed =
                    if allowed { context.broker.publish(context.now, message) } else { Routed::nowhere() };
                let reason = outcome(&routed, allowed, tells);
                (routed, Reply::PubAck(identifier, reason))
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

    pub(super) fn handle_pubrec(&mut self, context: &mut Context<'_>, pubrec: &Acknowledgement<'_>) {
        let Some(queue) = self.queue else { return };
        let (identifier, tag) = (pubrec.packet_identifier, u32::from(pubrec.packet_identifier.number()));
        if pubrec.reason.is_failure() {
            // The exchange ends here, and the message is not sent again. [MQTT-4.4.0-2], [MQTT-4.3.3-4]
            context.broker.withdraw(context.now, queue, u64::from(tag));
            return;
        }
        let (gate, known) = context.broker.receive(context.now, queue, tag);
        self.owe(context.broker, gate, Reply::PubRel(identifier, found(known)));
    }

    pub(super) fn handle_pubrel(&mut self, context: &mut Context<'_>, identifier: PacketIdentifier) {
        if let Some(queue) = self.queue {
            let (gate, known) = context.broker.release_publish(context.now, queue, identifier.number());
            self.owe(context.broker, gate, Reply::PubComp(identifier, found(known)));
        }
    }

    pub(super) fn handle_pubcomp(&mut self, context: &mut Context<'_>, identifier: PacketIdentifier) {
        if let Some(queue) = self.queue {
            context.broker.complete(context.now, queue, u32::from(identifier.number()));
        }
    }

    /// Whether the client may publish there: what it sends elsewhere is dropped, and acknowledged before version 5, which
    /// has no way to refuse it. [MQTT-3.3.5-2]
    pub(super) fn may_publish(&self, context: &Context<'_>, topic: &str) -> bool {
        let may =
            !is_reserved(topic) && context.acl.is_none_or(|acl| acl.may_publish(self.identity(), topic));
        if !may {
            context.denials.note(context.now.wall, Denied::Publish, self.identity(), topic);
        }
        may
    }
}

/// How a publish went, for a client that is told.
const fn outcome(routed: &Routed, allowed: bool, tells: bool) -> ReasonCode {
    if !tells {
        ReasonCode::Success
    } else if !allowed {
        ReasonCode::NotAuthorized
    } else if routed.refused || matches!(routed.kept, Some(false)) {
        ReasonCode::QuotaExceeded
    } else if routed.queues == 0 && routed.kept.is_none() {
        ReasonCode::NoMatchingSubscribers
    } else {
        ReasonCode::Success
    }
}

const fn found(known: bool) -> ReasonCode {
    if known { ReasonCode::Success } else { ReasonCode::PacketIdentifierNotFound }
}
