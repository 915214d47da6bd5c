//! SUBSCRIBE and UNSUBSCRIBE. MQTT 3.1.1 sections 3.8 to 3.11.

use super::codec::{Subscribe, SubscribeReturnCode, SubscriptionRequest, Unsubscribe};
use super::connection::{Connection, Context, assurance};
use super::owed::Reply;
use crate::auth::Denied;
use crate::broker::{Gate, QueueIndex, SubscribeOptions};

impl Connection {
    pub(super) fn handle_subscribe(&mut self, context: &mut Context<'_>, subscribe: &Subscribe<'_>) {
        let Some(queue) = self.queue else { return };
        let mut codes = Vec::with_capacity(subscribe.subscriptions.len());
        let mut gate = Gate::Open;
        for request in subscribe.subscriptions {
            if !self.may_subscribe(context, queue, &request) {
                codes.push(SubscribeReturnCode::Failure);
                continue;
            }
            let options = SubscribeOptions { assurance_max: assurance(request.qos) };
            let filter = request.filter.as_str();
            // All gates of one packet speak of the same session, so the last says the most.
            gate = context.broker.subscribe(context.now, queue, filter, options);
            codes.push(SubscribeReturnCode::Granted(request.qos));
        }
        self.owe(context.broker, gate, Reply::SubAck(subscribe.packet_identifier, codes.into()));
    }

    pub(super) fn handle_unsubscribe(&mut self, context: &mut Context<'_>, unsubscribe: &Unsubscribe<'_>) {
        let Some(queue) = self.queue else { return };
        let mut gate = Gate::Open;
        for filter in unsubscribe.filters {
            gate = context.broker.unsubscribe(context.now, queue, filter.as_str());
        }
        self.owe(context.broker, gate, Reply::UnsubAck(unsubscribe.packet_identifier));
    }

    fn may_subscribe(
        &self,
        context: &Context<'_>,
        queue: QueueIndex,
        request: &SubscriptionRequest<'_>,
    ) -> bool {
        let filter = request.filter.as_str();
        let may = context.acl.is_none_or(|acl| acl.may_subscribe(self.identity(), filter));
        if !may {
            context.denials.note(context.now.wall, Denied::Subscribe, self.identity(), filter);
        }
        may && context.broker.may_subscribe(queue, filter)
    }
}
