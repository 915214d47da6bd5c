//! WebSocket as MQTT uses it, server side: the upgrade request and the frames, as functions of bytes. RFC 6455.
//!
//! MQTT sees one stream of bytes: frames and messages have no meaning for it [MQTT-6.0.0-2], so payloads are handed
//! on as they come and nothing is assembled. No extension is offered. Sockets are `net`'s.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod frames;
mod handshake;

pub use frames::{CloseCode, Frames, HEADER_BYTES_MAX, put_close, put_data_header};
pub use handshake::{HEAD_BYTES_MAX, Refusal, Rules, Upgrade, answer, is_loopback_host};
