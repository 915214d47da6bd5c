//! The content header: size of a message's body and its properties. Specification section 2.3.5.2.
//!
//! ```text
//! u16   class, 60 (basic)
//! u16   weight, 0
//! u64   size of the body
//! u16   property flags, from bit 15 down: which of the properties follow
//! ...   the properties that are there, in the order of their flags
//! ```
//!
//! The properties stay as the publisher encoded them and are handed on so; the view beside them is for routing,
//! expiry and conversion.

use super::error::{EncodeError, ProtocolError};
use super::field_table::FieldTable;
use super::frame::{FRAME_OVERHEAD_BYTES, FrameType, encode_body_frame, put_frame};
use super::method::basic;
use super::wire::{Reader, ShortString, Writer};

/// What stands between a basic.publish, deliver, return or get-ok and the body.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ContentHeader<'a> {
    pub body_bytes: u64,
    pub properties: BasicProperties<'a>,
    /// Flags and properties as they came, to be stored and handed on.
    pub encoded_properties: &'a [u8],
}

/// Properties of a message of class basic.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct BasicProperties<'a> {
    pub content_type: Option<ShortString<'a>>,
    pub content_encoding: Option<ShortString<'a>>,
    pub headers: Option<FieldTable<'a>>,
    /// 2 is persistent, anything else is transient.
    pub delivery_mode: Option<u8>,
    pub priority: Option<u8>,
    pub correlation_id: Option<ShortString<'a>>,
    pub reply_to: Option<ShortString<'a>>,
    /// Milliseconds as decimal text.
    pub expiration: Option<ShortString<'a>>,
    pub message_id: Option<ShortString<'a>>,
    /// Seconds since 1970-01-01 UTC.
    pub timestamp: Option<u64>,
    /// Property `type`.
    pub kind: Option<ShortString<'a>>,
    pub user_id: Option<ShortString<'a>>,
    pub app_id: Option<ShortString<'a>>,
    /// Reserved since 0-9-1; handed on.
    pub cluster_id: Option<ShortString<'a>>,
}

const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PRIORITY: u16 = 1 << 11;
const CORRELATION_ID: u16 = 1 << 10;
const REPLY_TO: u16 = 1 << 9;
const EXPIRATION: u16 = 1 << 8;
const MESSAGE_ID: u16 = 1 << 7;
const TIMESTAMP: u16 = 1 << 6;
const KIND: u16 = 1 << 5;
const USER_ID: u16 = 1 << 4;
const APP_ID: u16 = 1 << 3;
const CLUSTER_ID: u16 = 1 << 2;
/// Bit 0 would announce more flags, of which class basic has none; bit 1 means nothing.
const UNDEFINED: u16 = 0b11;

impl<'a> ContentHeader<'a> {
    /// Reads the payload of a content header frame.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(payload);
        let class_id = u16::from_be_bytes(reader.array()?);
        let weight = u16::from_be_bytes(reader.array()?);
        let body_bytes = u64::from_be_bytes(reader.array()?);
        if class_id != basic::CLASS_ID {
            return Err(ProtocolError::unexpected("content header of a class other than basic"));
        }
        if weight != 0 {
            return Err(ProtocolError::unexpected("content header with a weight"));
        }
        let encoded_properties = reader.remainder();
        let properties = BasicProperties::decode(encoded_properties)?;
        Ok(Self { body_bytes, properties, encoded_properties })
    }
}

impl<'a> BasicProperties<'a> {
    /// Reads flags and properties, from a content header or from where they were stored.
    pub fn decode(encoded: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(encoded);
        let flags = u16::from_be_bytes(reader.array()?);
        if flags & UNDEFINED != 0 {
            return Err(ProtocolError::frame("property flags beyond those of class basic"));
        }
        let mut properties = Self::default();
        properties.read(flags, &mut reader)?;
        reader.finish()?;
        Ok(properties)
    }

    fn read(&mut self, flags: u16, reader: &mut Reader<'a>) -> Result<(), ProtocolError> {
        let text = |flag: u16, reader: &mut Reader<'a>| {
            if flags & flag == 0 { Ok(None) } else { reader.short_string().map(Some) }
        };
        self.content_type = text(CONTENT_TYPE, reader)?;
        self.content_encoding = text(CONTENT_ENCODING, reader)?;
        if flags & HEADERS != 0 {
            self.headers = Some(FieldTable::decode(reader.long()?)?);
        }
        if flags & DELIVERY_MODE != 0 {
            self.delivery_mode = Some(reader.octet()?);
        }
        if flags & PRIORITY != 0 {
            self.priority = Some(reader.octet()?);
        }
        self.correlation_id = text(CORRELATION_ID, reader)?;
        self.reply_to = text(REPLY_TO, reader)?;
        self.expiration = text(EXPIRATION, reader)?;
        self.message_id = text(MESSAGE_ID, reader)?;
        if flags & TIMESTAMP != 0 {
            self.timestamp = Some(u64::from_be_bytes(reader.array()?));
        }
        self.kind = text(KIND, reader)?;
        self.user_id = text(USER_ID, reader)?;
        self.app_id = text(APP_ID, reader)?;
        self.cluster_id = text(CLUSTER_ID, reader)?;
        Ok(())
    }

    fn flags(&self) -> u16 {
        let flag = |there: bool, flag: u16| if there { flag } else { 0 };
        flag(self.content_type.is_some(), CONTENT_TYPE)
            | flag(self.content_encoding.is_some(), CONTENT_ENCODING)
            | flag(self.headers.is_some(), HEADERS)
            | flag(self.delivery_mode.is_some(), DELIVERY_MODE)
            | flag(self.priority.is_some(), PRIORITY)
            | flag(self.correlation_id.is_some(), CORRELATION_ID)
            | flag(self.reply_to.is_some(), REPLY_TO)
            | flag(self.expiration.is_some(), EXPIRATION)
            | flag(self.message_id.is_some(), MESSAGE_ID)
            | flag(self.timestamp.is_some(), TIMESTAMP)
            | flag(self.kind.is_some(), KIND)
            | flag(self.user_id.is_some(), USER_ID)
            | flag(self.app_id.is_some(), APP_ID)
            | flag(self.cluster_id.is_some(), CLUSTER_ID)
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        fn text(writer: &mut Writer<'_>, value: Option<ShortString<'_>>) -> Result<(), EncodeError> {
            value.map_or(Ok(()), |value| writer.short_string(value.as_bytes()))
        }
        writer.bytes(&self.flags().to_be_bytes());
        text(writer, self.content_type)?;
        text(writer, self.content_encoding)?;
        if let Some(headers) = self.headers {
            writer.long(headers.as_bytes())?;
        }
        for octet in [self.delivery_mode, self.priority].into_iter().flatten() {
            writer.bytes(&[octet]);
        }
        text(writer, self.correlation_id)?;
        text(writer, self.reply_to)?;
        text(writer, self.expiration)?;
        text(writer, self.message_id)?;
        if let Some(timestamp) = self.timestamp {
            writer.bytes(&timestamp.to_be_bytes());
        }
        text(writer, self.kind)?;
        text(writer, self.user_id)?;
        text(writer, self.app_id)?;
        text(writer, self.cluster_id)
    }
}

/// Appends flags and properties, the form that [`encode_content_header`] takes. On error the output is as before.
pub fn encode_properties(out: &mut Vec<u8>, properties: &BasicProperties<'_>) -> Result<(), EncodeError> {
    let start = out.len();
    let written = properties.write(&mut Writer::new(out));
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// Appends a content header with properties that are encoded already. They must fit into one frame of the peer, whose
/// frame-max may be smaller than the publisher's was.
pub fn encode_content_header(
    out: &mut Vec<u8>,
    channel: u16,
    body_bytes: u64,
    encoded_properties: &[u8],
    frame_bytes_max: usize,
) -> Result<(), EncodeError> {
    put_frame(out, FrameType::Header, channel, frame_bytes_max, |out| {
        out.extend_from_slice(&basic::CLASS_ID.to_be_bytes());
        out.extend_from_slice(&0_u16.to_be_bytes());
        out.extend_from_slice(&body_bytes.to_be_bytes());
        out.extend_from_slice(encoded_properties);
        Ok(())
    })
}

/// Appends a content header and the body in as many frames as the peer's frame-max asks for. An empty body has none. On
/// error the output is as before.
pub fn encode_content(
    out: &mut Vec<u8>,
    channel: u16,
    encoded_properties: &[u8],
    body: &[u8],
    frame_bytes_max: usize,
) -> Result<(), EncodeError> {
    let start = out.len();
    let body_bytes = u64::try_from(body.len()).map_err(|_| EncodeError::TooLong)?;
    encode_content_header(out, channel, body_bytes, encoded_properties, frame_bytes_max)?;
    let piece_bytes = frame_bytes_max.saturating_sub(FRAME_OVERHEAD_BYTES).max(1);
    for piece in body.chunks(piece_bytes) {
        if let Err(error) = encode_body_frame(out, channel, piece) {
            out.truncate(start);
            return Err(error);
        }
    }
    Ok(())
}
