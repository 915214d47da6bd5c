//! Properties on their way out: a list that is written field by field and then goes into a packet.

use super::error::EncodeError;
use super::properties::{Properties, PropertyId, PropertyType, PropertyValue};
use super::wire::{put_binary, put_variable_byte_integer};

/// Encoded properties, without the length that stands before them on the wire. Whether they may stand in a packet is
/// their writer's business.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PropertyList {
    bytes: Vec<u8>,
}

impl PropertyList {
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// A list that is written into memory which was used before.
    #[must_use]
    pub fn reusing(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { bytes }
    }

    /// A list that begins with properties which are encoded already.
    #[must_use]
    pub const fn from_encoded(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Appends a flag or an integer in the width that its property has. One that does not fit leaves no bytes.
    pub fn number(&mut self, id: PropertyId, number: u32) -> &mut Self {
        let [a, b, c, d] = number.to_be_bytes();
        match id.kind() {
            PropertyType::Flag => self.bytes.extend_from_slice(&[id as u8, d]),
            PropertyType::TwoByteInteger if number <= 0xffff => {
                self.bytes.extend_from_slice(&[id as u8, c, d])
            }
            PropertyType::FourByteInteger => self.bytes.extend_from_slice(&[id as u8, a, b, c, d]),
            PropertyType::VariableByteInteger => {
                let before = self.bytes.len();
                self.bytes.push(id as u8);
                if put_variable_byte_integer(&mut self.bytes, number as usize).is_err() {
                    self.bytes.truncate(before);
                }
            }
            PropertyType::TwoByteInteger
            | PropertyType::Utf8String
            | PropertyType::BinaryData
            | PropertyType::Utf8StringPair => {}
        }
        self
    }

    /// Appends a string or binary data. One of more than 65 535 bytes is left out.
    pub fn data(&mut self, id: PropertyId, data: &[u8]) -> &mut Self {
        self.all_or_nothing(|bytes| {
            bytes.push(id as u8);
            put_binary(bytes, data)
        })
    }

    /// Appends a string; as [`PropertyList::data`].
    pub fn text(&mut self, id: PropertyId, text: &str) -> &mut Self {
        self.data(id, text.as_bytes())
    }

    /// Appends a user property. One with a part of more than 65 535 bytes is left out.
    pub fn user_property(&mut self, name: &str, value: &str) -> &mut Self {
        self.all_or_nothing(|bytes| {
            bytes.push(PropertyId::UserProperty as u8);
            put_binary(bytes, name.as_bytes())?;
            put_binary(bytes, value.as_bytes())
        })
    }

    /// Appends a property as it was read.
    pub fn push(&mut self, id: PropertyId, value: PropertyValue<'_>) -> &mut Self {
        match value {
            PropertyValue::Number(number) => self.number(id, number),
            PropertyValue::Text(text) => self.text(id, text),
            PropertyValue::Data(data) => self.data(id, data),
            PropertyValue::Pair(name, value) => self.user_property(name, value),
        }
    }

    /// Appends properties that are encoded already.
    pub fn extend(&mut self, properties: Properties<'_>) -> &mut Self {
        self.bytes.extend_from_slice(properties.as_bytes());
        self
    }

    #[must_use]
    pub fn as_properties(&self) -> Properties<'_> {
        Properties::from_checked(&self.bytes)
    }

    /// The memory, to be used again.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn all_or_nothing(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>) -> &mut Self {
        let before = self.bytes.len();
        if write(&mut self.bytes).is_err() {
            self.bytes.truncate(before);
        }
        self
    }
}
