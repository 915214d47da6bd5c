//! What goes to the client by the broker's wish: deliveries and the releases of exactly-once ones. MQTT 3.1.1 and 5
//! section 3.3.

use std::borrow::Cow;

use super::codec::{
    PacketIdentifier, PropertyId, PropertyList, Publish, QualityOfService, ReasonCode, encode_publish,
    encode_publish_head, publish_bytes,
};
use super::connection::{Connection, State, quality_of_service};
use super::owed::Reply;
use super::topic::TopicName;
use crate::broker::{Broker, Delivery, SEVERAL_IDENTIFIERS};
use crate::message::Message;
use crate::output::SHARED_BYTES_MIN;
use crate::time::{Mono, Now};

/// What a delivery needs beside itself.
#[derive(Clone, Copy, Debug)]
pub struct Delivering<'a> {
    pub now: Now,
    pub broker: &'a Broker,
    /// A message's properties as version 5 encodes them, whatever protocol it came by.
    pub properties: fn(&Message) -> Cow<'_, [u8]>,
}

/// What became of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivered {
    /// It is in the output, or its connection has ended and the session keeps it.
    Sent,
    /// Another protocol's address that is no topic name.
    NoTopic,
    /// More than the client's Maximum Packet Size. [MQTT-3.1.2-25]
    TooLarge,
}

/// What an alias adds to a packet: the property, and a byte more of the properties' and of the packet's length.
const ALIAS_BYTES_MAX: usize = 5;

impl Connection {
    /// A delivery leaves for the output, if it can.
    pub fn deliver(&mut self, delivery: &Delivery, with: Delivering<'_>) -> Delivered {
        if matches!(self.state, State::Ended) {
            // It was on its way when the connection ended: the session keeps it, if there is one.
            return Delivered::Sent;
        }
        let message = &delivery.held.message;
        let Ok(topic) = TopicName::parse(&message.address) else { return Delivered::NoTopic };
        let qos = quality_of_service(delivery.assurance);
        let packet_identifier = u16::try_from(delivery.tag).ok().and_then(PacketIdentifier::new);
        let publish = Publish {
            topic,
            qos,
            retain: delivery.retained,
            duplicate: delivery.redelivered && qos != QualityOfService::AtMostOnce,
            packet_identifier,
            properties: None,
            payload: &message.body,
        };
        if self.version5.is_some() {
            return self.deliver5(delivery, publish, with);
        }
        self.put(delivery, &publish);
        Delivered::Sent
    }

    fn deliver5(&mut self, delivery: &Delivery, publish: Publish<'_>, with: Delivering<'_>) -> Delivered {
        let message = &delivery.held.message;
        let Some(version5) = &mut self.version5 else { return Delivered::NoTopic };
        let mut list = PropertyList::new();
        if !message.properties.is_empty() {
            list = PropertyList::from_encoded((with.properties)(message).into_owned());
        }
        if message.time_to_live_ms.is_some() {
            list.number(PropertyId::MessageExpiryInterval, seconds_left(with.now.mono, delivery.expires_at));
        }
        match delivery.identifier {
            0 => {}
            several @ SEVERAL_IDENTIFIERS.. => {
                let address = &message.address;
                for identifier in with.broker.subscription_identifiers(delivery.queue, address, several) {
                    list.number(PropertyId::SubscriptionIdentifier, identifier);
                }
            }
            identifier => {
                list.number(PropertyId::SubscriptionIdentifier, identifier);
            }
        }
        let topic = publish.topic;
        let mut alias = version5.alias(topic.as_str());
        if let Some((_, false)) = alias {
            let plain = Publish { properties: Some(list.as_properties()), ..publish };
            if publish_bytes(&plain).saturating_add(ALIAS_BYTES_MAX) > version5.packet_bytes_max {
                // Name and alias together may be more than the client takes, where the name alone is not.
                alias = None;
            }
        }
        if let Some((alias, _)) = alias {
            list.number(PropertyId::TopicAlias, u32::from(alias));
        }
        let publish = Publish {
            topic: if matches!(alias, Some((_, true))) { TopicName::ALIASED } else { topic },
            properties: Some(list.as_properties()),
            ..publish
        };
        if publish_bytes(&publish) > version5.packet_bytes_max {
            return Delivered::TooLarge;
        }
        if let Some((alias, false)) = alias {
            version5.alias_told(topic.as_str(), alias);
        }
        self.put(delivery, &publish);
        Delivered::Sent
    }

    fn put(&mut self, delivery: &Delivery, publish: &Publish<'_>) {
        // The message came in through a packet of the same form, so it fits one.
        let body = &delivery.held.message.body;
        if body.len() < SHARED_BYTES_MIN {
            let _fits = self.output.append(|out| encode_publish(out, publish));
        } else if self.output.append(|out| encode_publish_head(out, publish)).is_ok() {
            self.output.append_shared(body.clone());
        }
    }

    /// The release of an exactly-once delivery leaves for the output.
    pub fn release(&mut self, tag: u32) {
        if matches!(self.state, State::Ended) {
            return;
        }
        if let Some(identifier) = u16::try_from(tag).ok().and_then(PacketIdentifier::new) {
            self.send(&Reply::PubRel(identifier, ReasonCode::Success));
        }
    }

    /// Deliveries that may be in flight at once.
    #[must_use]
    pub fn credit_max(&self, inflight_max: u16) -> u32 {
        let receive_maximum = self.version5.as_ref().map_or(u16::MAX, |version5| version5.receive_maximum);
        u32::from(inflight_max.min(receive_maximum))
    }
}

/// What is left of a message's lifetime, in whole seconds, a begun one counted. [MQTT-3.3.2-6]
fn seconds_left(now: Mono, expires_at: Mono) -> u32 {
    let left_us = expires_at.0.saturating_sub(now.0);
    u32::try_from(left_us.div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
