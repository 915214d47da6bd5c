//! Field tables and arrays: names and typed values, as arguments of methods and as headers of messages.
//! Specification section 4.2.5.5, with the value tags as RabbitMQ reads and writes them.
//!
//! ```text
//! table    u32 length, then: short string name, value
//! array    u32 length, then: value
//! value    tag and
//!          t bool      b i8   B u8   s U i16   u u16   I i32   i u32   l L i64   f f32   d f64
//!          D octet scale, u32 value      T u64 seconds      V nothing
//!          S x u32 length, bytes         A array            F table
//! ```
//!
//! A table is kept as its bytes, which were checked when it was decoded: types, lengths, and nesting up to
//! [`FIELD_TABLE_DEPTH_MAX`]. Handing it on costs a copy.

use std::fmt;

use super::error::{EncodeError, ProtocolError};
use super::wire::{Reader, ShortString, Writer};
use crate::limits::FIELD_TABLE_DEPTH_MAX;

/// Names and values in the order of the wire. Names may repeat.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct FieldTable<'a> {
    /// Without the length in front.
    entries: &'a [u8],
}

/// Values in the order of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct FieldArray<'a> {
    /// Without the length in front.
    values: &'a [u8],
}

/// A typed value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FieldValue<'a> {
    Boolean(bool),
    ShortShortInt(i8),
    ShortShortUint(u8),
    ShortInt(i16),
    ShortUint(u16),
    LongInt(i32),
    LongUint(u32),
    LongLongInt(i64),
    Float(f32),
    Double(f64),
    /// `value` divided by ten to the power of `scale`.
    Decimal {
        scale: u8,
        value: u32,
    },
    /// Text in practice, bytes by the book.
    LongString(&'a [u8]),
    ByteArray(&'a [u8]),
    Array(FieldArray<'a>),
    /// Seconds since 1970-01-01 UTC.
    Timestamp(u64),
    Table(FieldTable<'a>),
    Void,
}

impl<'a> FieldTable<'a> {
    pub const EMPTY: Self = Self { entries: &[] };

    /// Checks encoded entries, without the length in front of them.
    pub fn decode(entries: &'a [u8]) -> Result<Self, ProtocolError> {
        let table = Self { entries };
        table.check(FIELD_TABLE_DEPTH_MAX)?;
        Ok(table)
    }

    /// Its encoded entries, without the length in front of them.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.entries
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.entries.is_empty()
    }

    /// Its entries in order.
    pub fn iter(self) -> impl Iterator<Item = (ShortString<'a>, FieldValue<'a>)> + Clone {
        let mut reader = Reader::new(self.entries);
        // Ends at the end: decoding the table went through the same bytes.
        std::iter::from_fn(move || entry(&mut reader).ok())
    }

    /// The value of `name`, the first if it repeats.
    #[must_use]
    pub fn find(self, name: &str) -> Option<FieldValue<'a>> {
        self.iter().find(|(entry, _)| entry.as_bytes() == name.as_bytes()).map(|(_, value)| value)
    }

    fn check(self, depth_left: usize) -> Result<(), ProtocolError> {
        let mut reader = Reader::new(self.entries);
        while !reader.is_empty() {
            let (_, value) = entry(&mut reader)?;
            value.check(depth_left)?;
        }
        Ok(())
    }
}

impl<'a> FieldArray<'a> {
    /// Its encoded values, without the length in front of them.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.values
    }

    /// Its values in order.
    pub fn iter(self) -> impl Iterator<Item = FieldValue<'a>> + Clone {
        let mut reader = Reader::new(self.values);
        // Ends at the end: decoding the array went through the same bytes.
        std::iter::from_fn(move || value(&mut reader).ok())
    }

    fn check(self, depth_left: usize) -> Result<(), ProtocolError> {
        let mut reader = Reader::new(self.values);
        while !reader.is_empty() {
            value(&mut reader)?.check(depth_left)?;
        }
        Ok(())
    }
}

impl<'a> FieldValue<'a> {
    /// The number, of whatever integer type: clients differ in the widths they choose.
    #[must_use]
    pub fn as_integer(self) -> Option<i64> {
        match self {
            Self::ShortShortInt(number) => Some(number.into()),
            Self::ShortShortUint(number) => Some(number.into()),
            Self::ShortInt(number) => Some(number.into()),
            Self::ShortUint(number) => Some(number.into()),
            Self::LongInt(number) => Some(number.into()),
            Self::LongUint(number) => Some(number.into()),
            Self::LongLongInt(number) => Some(number),
            Self::Boolean(_)
            | Self::Float(_)
            | Self::Double(_)
            | Self::Decimal { .. }
            | Self::LongString(_)
            | Self::ByteArray(_)
            | Self::Array(_)
            | Self::Timestamp(_)
            | Self::Table(_)
            | Self::Void => None,
        }
    }

    /// The text of a long string that is UTF-8.
    #[must_use]
    pub fn as_text(self) -> Option<&'a str> {
        if let Self::LongString(bytes) = self { std::str::from_utf8(bytes).ok() } else { None }
    }

    #[must_use]
    pub const fn as_bool(self) -> Option<bool> {
        if let Self::Boolean(value) = self { Some(value) } else { None }
    }

    #[must_use]
    pub const fn as_table(self) -> Option<FieldTable<'a>> {
        if let Self::Table(table) = self { Some(table) } else { None }
    }

    #[must_use]
    pub const fn as_array(self) -> Option<FieldArray<'a>> {
        if let Self::Array(array) = self { Some(array) } else { None }
    }

    /// Checks what is nested in this value; each table or array takes one level of `depth_left`.
    fn check(self, depth_left: usize) -> Result<(), ProtocolError> {
        const DEEP: ProtocolError = ProtocolError::frame("field table is nested too deeply");
        match self {
            Self::Table(table) => table.check(depth_left.checked_sub(1).ok_or(DEEP)?),
            Self::Array(array) => array.check(depth_left.checked_sub(1).ok_or(DEEP)?),
            Self::Boolean(_)
            | Self::ShortShortInt(_)
            | Self::ShortShortUint(_)
            | Self::ShortInt(_)
            | Self::ShortUint(_)
            | Self::LongInt(_)
            | Self::LongUint(_)
            | Self::LongLongInt(_)
            | Self::Float(_)
            | Self::Double(_)
            | Self::Decimal { .. }
            | Self::LongString(_)
            | Self::ByteArray(_)
            | Self::Timestamp(_)
            | Self::Void => Ok(()),
        }
    }

    fn write(self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self {
            Self::Boolean(value) => writer.bytes(&[b't', u8::from(value)]),
            Self::ShortShortInt(number) => tagged(writer, b'b', number.to_be_bytes()),
            Self::ShortShortUint(number) => tagged(writer, b'B', number.to_be_bytes()),
            Self::ShortInt(number) => tagged(writer, b's', number.to_be_bytes()),
            Self::ShortUint(number) => tagged(writer, b'u', number.to_be_bytes()),
            Self::LongInt(number) => tagged(writer, b'I', number.to_be_bytes()),
            Self::LongUint(number) => tagged(writer, b'i', number.to_be_bytes()),
            Self::LongLongInt(number) => tagged(writer, b'l', number.to_be_bytes()),
            Self::Float(number) => tagged(writer, b'f', number.to_be_bytes()),
            Self::Double(number) => tagged(writer, b'd', number.to_be_bytes()),
            Self::Timestamp(seconds) => tagged(writer, b'T', seconds.to_be_bytes()),
            Self::Void => writer.bytes(b"V"),
            Self::Decimal { scale, value } => {
                writer.bytes(&[b'D', scale]);
                writer.bytes(&value.to_be_bytes());
            }
            Self::LongString(bytes) => return long(writer, b'S', bytes),
            Self::ByteArray(bytes) => return long(writer, b'x', bytes),
            Self::Array(array) => return long(writer, b'A', array.values),
            Self::Table(table) => return long(writer, b'F', table.entries),
        }
        Ok(())
    }
}

fn tagged<const N: usize>(writer: &mut Writer<'_>, tag: u8, bytes: [u8; N]) {
    writer.bytes(&[tag]);
    writer.bytes(&bytes);
}

fn long(writer: &mut Writer<'_>, tag: u8, bytes: &[u8]) -> Result<(), EncodeError> {
    writer.bytes(&[tag]);
    writer.long(bytes)
}

fn entry<'a>(reader: &mut Reader<'a>) -> Result<(ShortString<'a>, FieldValue<'a>), ProtocolError> {
    Ok((reader.short_string()?, value(reader)?))
}

/// Reads one value; what is nested in it is not looked at.
fn value<'a>(reader: &mut Reader<'a>) -> Result<FieldValue<'a>, ProtocolError> {
    Ok(match reader.octet()? {
        b't' => FieldValue::Boolean(reader.octet()? != 0),
        b'b' => FieldValue::ShortShortInt(i8::from_be_bytes(reader.array()?)),
        b'B' => FieldValue::ShortShortUint(reader.octet()?),
        b's' | b'U' => FieldValue::ShortInt(i16::from_be_bytes(reader.array()?)),
        b'u' => FieldValue::ShortUint(u16::from_be_bytes(reader.array()?)),
        b'I' => FieldValue::LongInt(i32::from_be_bytes(reader.array()?)),
        b'i' => FieldValue::LongUint(u32::from_be_bytes(reader.array()?)),
        b'l' | b'L' => FieldValue::LongLongInt(i64::from_be_bytes(reader.array()?)),
        b'f' => FieldValue::Float(f32::from_be_bytes(reader.array()?)),
        b'd' => FieldValue::Double(f64::from_be_bytes(reader.array()?)),
        b'D' => FieldValue::Decimal { scale: reader.octet()?, value: u32::from_be_bytes(reader.array()?) },
        b'S' => FieldValue::LongString(reader.long()?),
        b'x' => FieldValue::ByteArray(reader.long()?),
        b'A' => FieldValue::Array(FieldArray { values: reader.long()? }),
        b'F' => FieldValue::Table(FieldTable { entries: reader.long()? }),
        b'T' => FieldValue::Timestamp(u64::from_be_bytes(reader.array()?)),
        b'V' => FieldValue::Void,
        _ => return Err(ProtocolError::frame("unknown type of a field value")),
    })
}

impl fmt::Debug for FieldTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Debug for FieldArray<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Builds a table entry by entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldTableBuilder {
    entries: Vec<u8>,
}

impl FieldTableBuilder {
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Appends an entry.
    pub fn push(&mut self, name: &str, value: FieldValue<'_>) -> Result<(), EncodeError> {
        let start = self.entries.len();
        let mut writer = Writer::new(&mut self.entries);
        let written = writer.short_string(name.as_bytes()).and_then(|()| value.write(&mut writer));
        if written.is_err() {
            self.entries.truncate(start);
        }
        written
    }

    /// What was built.
    #[must_use]
    pub fn table(&self) -> FieldTable<'_> {
        FieldTable { entries: &self.entries }
    }
}

/// Builds an array value by value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldArrayBuilder {
    values: Vec<u8>,
}

impl FieldArrayBuilder {
    #[must_use]
    pub const fn new() -> Self {
        Self { values: Vec::new() }
    }

    /// Appends a value.
    pub fn push(&mut self, value: FieldValue<'_>) -> Result<(), EncodeError> {
        let start = self.values.len();
        let written = value.write(&mut Writer::new(&mut self.values));
        if written.is_err() {
            self.values.truncate(start);
        }
        written
    }

    /// What was built.
    #[must_use]
    pub fn array(&self) -> FieldArray<'_> {
        FieldArray { values: &self.values }
    }
}
