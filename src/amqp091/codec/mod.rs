//! AMQP 0-9-1 frames, methods, content headers and field tables between bytes and types. Specification sections 2.3
//! and 4.2; RabbitMQ's extensions (confirm, nack, blocked, update-secret, exchange to exchange binding) and its
//! reading of the field types.
//!
//! Owns the form: sizes, types, strings, bounds. Leaves the order of methods, the assembly of a content from its
//! frames, and what a fault closes, to the endpoint. Pure: bytes in, a borrowed view out; nothing allocates but
//! the output of the encoders.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::wildcard_enum_match_arm)]

mod content_header;
mod error;
mod field_table;
mod frame;
pub mod method;
mod protocol_header;
mod reply_code;
mod wire;

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;

pub use content_header::{
    BasicProperties, ContentHeader, encode_content, encode_content_header, encode_properties,
};
pub use error::{EncodeError, ProtocolError};
pub use field_table::{FieldArray, FieldArrayBuilder, FieldTable, FieldTableBuilder, FieldValue};
pub use frame::{
    Decoded, FRAME_END, FRAME_OVERHEAD_BYTES, Frame, FrameHeader, FrameType, decode, encode_body_frame,
    encode_body_frame_head, encode_heartbeat,
};
pub use method::{Arguments, Method, MethodId, encode_method};
pub use protocol_header::{PROTOCOL_HEADER, ProtocolHeader};
pub use reply_code::ReplyCode;
pub use wire::{LongString, ShortString, Writer};
