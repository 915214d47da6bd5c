//! SUBSCRIBE and UNSUBSCRIBE, one at a time.

use gatewayd::mqtt::codec::client::{SubscriptionRequest, encode_subscribe, encode_unsubscribe};
use gatewayd::mqtt::topic::TopicFilter;

use super::{Client, Owed, Request, Stage, qos_of};
use crate::model::Model;

impl Client {
    /// True when no SUBSCRIBE or UNSUBSCRIBE is under way.
    pub const fn may_request(&self) -> bool {
        self.request.is_none() && matches!(self.stage, Stage::Joined)
    }

    pub fn subscribe(&mut self, step: u64, model: &mut Model, filters: &[(&'static str, u8)]) {
        let requests: Vec<_> = filters
            .iter()
            .map(|(filter, qos)| {
                let filter = TopicFilter::parse(filter).expect("the plan's filters are valid");
                SubscriptionRequest::new(filter, qos_of(*qos))
            })
            .collect();
        for (filter, qos) in filters {
            model.subscribing(step, self.number, filter, *qos);
        }
        let identifier = self.fresh_identifier();
        let properties = self.no_properties();
        encode_subscribe(&mut self.outgoing, identifier, properties, &requests)
            .expect("a small SUBSCRIBE fits");
        self.owed.push_back(Owed::SubAck(identifier.number()));
        self.request = Some(Request::Subscribe(filters.to_vec()));
    }

    pub fn unsubscribe(&mut self, model: &mut Model, filter: &'static str) {
        model.unsubscribing(self.number, filter);
        let identifier = self.fresh_identifier();
        let properties = self.no_properties();
        let filters = [TopicFilter::parse(filter).expect("the plan's filters are valid")];
        encode_unsubscribe(&mut self.outgoing, identifier, properties, &filters)
            .expect("a small UNSUBSCRIBE fits");
        self.owed.push_back(Owed::UnsubAck(identifier.number()));
        self.request = Some(Request::Unsubscribe(filter));
    }
}
