//! What a connection of MQTT 5 has beside the rest: its limits, and topic aliases both ways.

use gatewayd::mqtt::codec::client::Publish;
use gatewayd::mqtt::codec::{Properties, PropertyId, PropertyList, ProtocolVersion};
use gatewayd::mqtt::topic::TopicName;

use super::{Client, Content};
use crate::model::Model;

/// What a connection of version 5 asks for.
#[derive(Clone, Copy, Debug)]
pub struct Five {
    pub receive_maximum: u16,
    /// Aliases that the gateway may use.
    pub topic_alias_maximum: u16,
    /// The client uses aliases, as many as the gateway takes.
    pub aliases: bool,
}

impl Client {
    /// The present connection's version, and what begins anew with it.
    pub(super) fn speak(&mut self, five: Option<Five>) {
        self.version = if five.is_some() { ProtocolVersion::V5 } else { ProtocolVersion::V311 };
        self.five = five;
        self.window_max =
            five.map_or(self.inflight_max, |five| self.inflight_max.min(usize::from(five.receive_maximum)));
        self.aliases_in.clear();
        self.aliases_out.clear();
        self.aliases_out_max = 0;
    }

    /// Properties of a packet that has none: there in version 5.
    pub(super) fn no_properties(&self) -> Option<Properties<'static>> {
        self.five.map(|_| Properties::NONE)
    }

    /// The topic of a delivery, which may be named by an alias.
    pub(super) fn topic_of(&mut self, publish: &Publish<'_>) -> Result<String, String> {
        let alias = publish.properties.and_then(|properties| properties.number16(PropertyId::TopicAlias));
        let Some(alias) = alias else { return Ok(publish.topic.as_str().to_owned()) };
        if self.five.is_none_or(|five| alias == 0 || alias > five.topic_alias_maximum) {
            return Err(format!("client {}: alias {alias} is not one it takes", self.number));
        }
        if publish.topic != TopicName::ALIASED {
            self.aliases_in.insert(alias, publish.topic.as_str().to_owned());
        }
        let unknown = || format!("client {}: alias {alias} stands for nothing", self.number);
        self.aliases_in.get(&alias).cloned().ok_or_else(unknown)
    }

    /// The alias under which a topic goes out, in place of its name or, the first time, beside it.
    pub(super) fn alias_for(&mut self, topic: &'static str, named: &mut TopicName<'static>) -> Option<u16> {
        if let Some(alias) = self.aliases_out.get(topic) {
            *named = TopicName::ALIASED;
            return Some(*alias);
        }
        let alias = u16::try_from(self.aliases_out.len()).unwrap_or(u16::MAX) + 1;
        if alias > self.aliases_out_max {
            return None;
        }
        self.aliases_out.insert(topic, alias);
        Some(alias)
    }

    pub const fn speaks_five(&self) -> bool {
        self.five.is_some()
    }

    /// The expiry of a message that has one, where it can be said.
    pub(super) fn limit_life(&self, model: &mut Model, content: Content, properties: &mut PropertyList) {
        let Content::Message(instance) = content else { return };
        let Some(lasts_ms) = model.at(instance.0).lasts_ms else { return };
        if self.five.is_some() {
            let lasts_s = u32::try_from(lasts_ms / 1000).unwrap_or(u32::MAX);
            properties.number(PropertyId::MessageExpiryInterval, lasts_s);
        } else {
            model.sent_for_ever(instance);
        }
    }
}
