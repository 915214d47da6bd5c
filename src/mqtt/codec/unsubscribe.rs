//! UNSUBSCRIBE. MQTT 3.1.1 and 5 section 3.10.
//!
//! ```text
//! u16      packet identifier
//!          properties        5 only
//! string   topic filter, one or more times
//! ```

use super::error::{EncodeError, ProtocolError};
use super::properties::{Place, Properties};
use super::value::{PacketIdentifier, PacketType, ProtocolVersion};
use super::wire::{Reader, field_bytes, properties_bytes, put_binary, put_fixed_header, put_properties};
use crate::mqtt::topic::TopicFilter;

/// A request to end subscriptions, all of its filters checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsubscribe<'a> {
    pub packet_identifier: PacketIdentifier,
    /// There exactly when the packet has the form of version 5.
    pub properties: Option<Properties<'a>>,
    pub filters: TopicFilters<'a>,
}

/// The filters in the order of the packet, read from its bytes as they are asked for. Knows its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicFilters<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> Unsubscribe<'a> {
    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let packet_identifier = reader.packet_identifier()?;
        let properties = match version {
            ProtocolVersion::V5 => {
                Some(Properties::decode(&mut reader, Place::Packet(PacketType::Unsubscribe))?)
            }
            ProtocolVersion::V31 | ProtocolVersion::V311 => None,
        };
        let mut filters = TopicFilters { reader, left: 0 };
        while !reader.is_empty() {
            entry(&mut reader)?;
            filters.left = filters.left.saturating_add(1);
        }
        if filters.left == 0 {
            return Err(ProtocolError::violation("UNSUBSCRIBE has no topic filter", "MQTT-3.10.3-2"));
        }
        Ok(Self { packet_identifier, properties, filters })
    }
}

impl<'a> Iterator for TopicFilters<'a> {
    type Item = TopicFilter<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // Cannot fail: decoding the packet went through the same bytes.
        entry(&mut self.reader).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for TopicFilters<'_> {}

fn entry<'a>(reader: &mut Reader<'a>) -> Result<TopicFilter<'a>, ProtocolError> {
    TopicFilter::parse(reader.topic_string()?).map_err(ProtocolError::topic_filter)
}

/// Appends an UNSUBSCRIBE; in the form of version 5 when there are properties.
pub fn encode_unsubscribe(
    out: &mut Vec<u8>,
    packet_identifier: PacketIdentifier,
    properties: Option<Properties<'_>>,
    filters: &[TopicFilter<'_>],
) -> Result<(), EncodeError> {
    if filters.is_empty() {
        return Err(EncodeError::NoEntries);
    }
    let mut remaining_length = properties_bytes(properties).saturating_add(2);
    for filter in filters {
        remaining_length = remaining_length.saturating_add(field_bytes(filter.as_str().as_bytes()));
    }
    put_fixed_header(out, PacketType::Unsubscribe.first_byte(), remaining_length, remaining_length)?;
    out.extend_from_slice(&packet_identifier.number().to_be_bytes());
    properties.map_or(Ok(()), |properties| put_properties(out, properties))?;
    for filter in filters {
        put_binary(out, filter.as_str().as_bytes())?;
    }
    Ok(())
}
