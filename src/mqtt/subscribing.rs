//! SUBSCRIBE and UNSUBSCRIBE. MQTT 3.1.1 and 5 sections 3.8 to 3.11.

use super::codec::{
    Fault, PropertyId, ProtocolError, ReasonCode, RetainHandling, Subscribe, SubscribeReturnCode,
    SubscriptionRequest, Unsubscribe,
};
use super::connection::{Connection, Context, End, Next, assurance};
use super::owed::Reply;
use super::version5::Version5;
use crate::auth::Denied;
use crate::broker::{Gate, QueueIndex, Replay, SubscribeOptions};

/// SUBACK and UNSUBACK without their codes: at most five bytes of header, the identifier, and no properties.
const ANSWER_BYTES_MAX: usize = 8;

const ANSWER_TOO_LARGE: ProtocolError = ProtocolError {
    fault: Fault::PacketTooLarge,
    detail: "the answer would be larger than the client takes",
    rule: "MQTT-3.1.2-24",
};

impl Connection {
    pub(super) fn handle_subscribe(&mut self, context: &mut Context<'_>, subscribe: &Subscribe<'_>) -> Next {
        let Some(queue) = self.queue else { return Next::Continue };
        if let Err(error) = self.takes_codes(subscribe.subscriptions.len()) {
            return Next::End(End::Protocol(error));
        }
        let properties = subscribe.properties.unwrap_or_default();
        let identifier = properties.number(PropertyId::SubscriptionIdentifier).unwrap_or(0);
        let mut codes = Vec::with_capacity(subscribe.subscriptions.len());
        let mut gate = Gate::Open;
        for request in subscribe.subscriptions {
            if let Err(reason) = self.may_subscribe(context, queue, &request) {
                codes.push(SubscribeReturnCode::Refused(reason));
                continue;
            }
            let options = SubscribeOptions {
                assurance_max: assurance(request.qos),
                // A bridge has what it publishes already, and hands on whether it is retained.
                no_local: request.no_local || self.bridge,
                retain_as_published: request.retain_as_published || self.bridge,
                identifier,
            };
            let replay = match request.retain_handling {
                RetainHandling::Always => Replay::Always,
                RetainHandling::IfNew => Replay::IfNew,
                RetainHandling::Never => Replay::Never,
            };
            let filter = request.filter.as_str();
            // All gates of one packet speak of the same session, so the last says the most.
            gate = context.broker.subscribe(context.now, queue, filter, options, replay);
            codes.push(SubscribeReturnCode::Granted(request.qos));
        }
        self.owe(context.broker, gate, Reply::SubAck(subscribe.packet_identifier, codes.into()));
        Next::Continue
    }

    pub(super) fn handle_unsubscribe(
        &mut self,
        context: &mut Context<'_>,
        unsubscribe: &Unsubscribe<'_>,
    ) -> Next {
        let Some(queue) = self.queue else { return Next::Continue };
        if let Err(error) = self.takes_codes(unsubscribe.filters.len()) {
            return Next::End(End::Protocol(error));
        }
        let mut gate = Gate::Open;
        let mut codes = Vec::new();
        for filter in unsubscribe.filters {
            let (kept_by, existed) = context.broker.unsubscribe(context.now, queue, filter.as_str());
            gate = kept_by;
            if self.version5.is_some() {
                codes.push(if existed { ReasonCode::Success } else { ReasonCode::NoSubscriptionExisted });
            }
        }
        self.owe(context.broker, gate, Reply::UnsubAck(unsubscribe.packet_identifier, codes.into()));
        Next::Continue
    }

    /// Whether the client takes an answer with so many codes. [MQTT-3.1.2-24]
    fn takes_codes(&self, codes: usize) -> Result<(), ProtocolError> {
        let takes = |version5: &Version5| codes.saturating_add(ANSWER_BYTES_MAX) <= version5.packet_bytes_max;
        if self.version5.as_deref().is_none_or(takes) { Ok(()) } else { Err(ANSWER_TOO_LARGE) }
    }

    fn may_subscribe(
        &self,
        context: &Context<'_>,
        queue: QueueIndex,
        request: &SubscriptionRequest<'_>,
    ) -> Result<(), ReasonCode> {
        // Before version 5 a malformed share is refused; in 5 its packet was.
        let shared = request.filter.shared().map_err(|_| ReasonCode::TopicFilterInvalid)?;
        let filter = shared.map_or(request.filter, |(_, filter)| filter).as_str();
        if context.acl.is_some_and(|acl| !acl.may_subscribe(self.identity(), filter)) {
            context.denials.note(context.now.wall, Denied::Subscribe, self.identity(), filter);
            return Err(ReasonCode::NotAuthorized);
        }
        if !context.broker.may_subscribe(queue, request.filter.as_str()) {
            return Err(ReasonCode::QuotaExceeded);
        }
        Ok(())
    }
}
