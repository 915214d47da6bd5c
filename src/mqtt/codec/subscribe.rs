//! SUBSCRIBE. MQTT 3.1.1 section 3.8.
//!
//! ```text
//! u16      packet identifier
//! string   topic filter      }
//! byte     requested QoS     } one or more times
//! ```

use super::error::{EncodeError, ProtocolError};
use super::value::{PacketIdentifier, PacketType, ProtocolVersion, QualityOfService};
use super::wire::{Reader, field_bytes, put_binary, put_fixed_header};
use crate::mqtt::topic::TopicFilter;

/// A request for subscriptions, all of its filters checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscribe<'a> {
    pub packet_identifier: PacketIdentifier,
    pub subscriptions: Subscriptions<'a>,
}

/// One filter of a SUBSCRIBE and the highest QoS at which its messages are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriptionRequest<'a> {
    pub filter: TopicFilter<'a>,
    pub qos: QualityOfService,
}

/// The filters in the order of the packet, read from its bytes as they are asked for. Knows its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscriptions<'a> {
    reader: Reader<'a>,
    left: usize,
    version: ProtocolVersion,
}

impl<'a> Subscribe<'a> {
    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let packet_identifier = reader.packet_identifier()?;
        let mut subscriptions = Subscriptions { reader, left: 0, version };
        while !reader.is_empty() {
            entry(&mut reader, version)?;
            subscriptions.left = subscriptions.left.saturating_add(1);
        }
        if subscriptions.left == 0 {
            return Err(ProtocolError::violation("SUBSCRIBE has no topic filter", "MQTT-3.8.3-3"));
        }
        Ok(Self { packet_identifier, subscriptions })
    }
}

impl<'a> Iterator for Subscriptions<'a> {
    type Item = SubscriptionRequest<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // Cannot fail: decoding the packet went through the same bytes.
        entry(&mut self.reader, self.version).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Subscriptions<'_> {}

fn entry<'a>(
    reader: &mut Reader<'a>,
    version: ProtocolVersion,
) -> Result<SubscriptionRequest<'a>, ProtocolError> {
    let filter = TopicFilter::parse(reader.topic_string()?).map_err(ProtocolError::topic_filter)?;
    let byte = reader.byte()?;
    let requested = match version {
        // The upper six bits are not used in 3.1.
        ProtocolVersion::V31 => byte & 0b11,
        ProtocolVersion::V311 => byte,
    };
    let qos = QualityOfService::try_from(requested).map_err(|_| {
        ProtocolError::malformed("requested QoS is 3 or has reserved bits set", "MQTT-3.8.3-4")
    })?;
    Ok(SubscriptionRequest { filter, qos })
}

/// Appends a SUBSCRIBE.
pub fn encode_subscribe(
    out: &mut Vec<u8>,
    packet_identifier: PacketIdentifier,
    subscriptions: &[SubscriptionRequest<'_>],
) -> Result<(), EncodeError> {
    if subscriptions.is_empty() {
        return Err(EncodeError::NoEntries);
    }
    let mut remaining_length = 2_usize;
    for subscription in subscriptions {
        let filter_bytes = field_bytes(subscription.filter.as_str().as_bytes());
        remaining_length = remaining_length.saturating_add(filter_bytes).saturating_add(1);
    }
    put_fixed_header(out, PacketType::Subscribe.first_byte(), remaining_length, remaining_length)?;
    out.extend_from_slice(&packet_identifier.number().to_be_bytes());
    for subscription in subscriptions {
        put_binary(out, subscription.filter.as_str().as_bytes())?;
        out.push(u8::from(subscription.qos));
    }
    Ok(())
}
