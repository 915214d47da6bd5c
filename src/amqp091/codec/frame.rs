//! Frames. Specification section 4.2.3.
//!
//! ```text
//! octet   type: 1 method, 2 content header, 3 body, 8 heartbeat
//! u16     channel
//! u32     size of the payload
//! ...     payload
//! octet   0xCE
//! ```
//!
//! The first seven octets are complete before the payload is, so that the caller can refuse a frame by type or size
//! before it keeps a byte of it.

use super::content_header::ContentHeader;
use super::error::{EncodeError, ProtocolError};
use super::method::Method;

/// Octet that ends each frame.
pub const FRAME_END: u8 = 0xce;

/// Octets of a frame that are not payload. frame-max counts them.
pub const FRAME_OVERHEAD_BYTES: usize = 8;

const HEADER_BYTES: usize = 7;

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameType {
    Method = 1,
    Header = 2,
    Body = 3,
    Heartbeat = 8,
}

/// First seven octets of a frame, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    pub frame_type: FrameType,
    pub channel: u16,
    pub payload_bytes: u32,
}

/// A whole frame. Its payload is read on demand: a channel that is being closed drops most of them unread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    pub frame_type: FrameType,
    pub channel: u16,
    pub payload: &'a [u8],
}

/// What the front of the input holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded<'a> {
    /// A frame and the bytes of input that it took.
    Frame { frame: Frame<'a>, consumed: usize },
    /// A frame that is not whole yet. `needed` is its total size when its header is there, else 0.
    Incomplete { needed: usize },
}

impl FrameHeader {
    /// Reads the header at the start of `input`, or `None` when more bytes are needed. A first octet that no frame can
    /// start with is refused at once.
    pub fn decode(input: &[u8]) -> Result<Option<Self>, ProtocolError> {
        let Some(&first) = input.first() else { return Ok(None) };
        let frame_type = match first {
            1 => FrameType::Method,
            2 => FrameType::Header,
            3 => FrameType::Body,
            8 => FrameType::Heartbeat,
            _ => return Err(ProtocolError::frame("unknown frame type")),
        };
        let Some(&[_, c1, c0, s3, s2, s1, s0]) = input.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Self {
            frame_type,
            channel: u16::from_be_bytes([c1, c0]),
            payload_bytes: u32::from_be_bytes([s3, s2, s1, s0]),
        };
        header.check()?;
        Ok(Some(header))
    }

    const fn check(self) -> Result<(), ProtocolError> {
        match self.frame_type {
            FrameType::Heartbeat if self.channel != 0 => {
                Err(ProtocolError::unexpected("heartbeat on a channel other than 0"))
            }
            FrameType::Heartbeat if self.payload_bytes != 0 => {
                Err(ProtocolError::frame("heartbeat with a payload"))
            }
            FrameType::Header | FrameType::Body if self.channel == 0 => {
                Err(ProtocolError::unexpected("content on channel 0"))
            }
            FrameType::Method | FrameType::Header | FrameType::Body | FrameType::Heartbeat => Ok(()),
        }
    }
}

/// Decodes the first frame in `input`. A frame of more than `frame_bytes_max` octets, overhead included, is refused as
/// soon as its header is there. An error ends the connection; the input behind it has no meaning.
pub fn decode(input: &[u8], frame_bytes_max: usize) -> Result<Decoded<'_>, ProtocolError> {
    let Some(header) = FrameHeader::decode(input)? else { return Ok(Decoded::Incomplete { needed: 0 }) };
    let payload_bytes = usize::try_from(header.payload_bytes).unwrap_or(usize::MAX);
    let total = payload_bytes.saturating_add(FRAME_OVERHEAD_BYTES);
    if total > frame_bytes_max {
        return Err(ProtocolError::frame("frame is larger than frame-max"));
    }
    let Some((end, start)) = input.get(..total).and_then(<[u8]>::split_last) else {
        return Ok(Decoded::Incomplete { needed: total });
    };
    if *end != FRAME_END {
        return Err(ProtocolError::frame("frame does not end with 0xce"));
    }
    let payload = start.get(HEADER_BYTES..).unwrap_or_default();
    let frame = Frame { frame_type: header.frame_type, channel: header.channel, payload };
    Ok(Decoded::Frame { frame, consumed: total })
}

impl<'a> Frame<'a> {
    /// Reads the payload as a method.
    pub fn method(&self) -> Result<Method<'a>, ProtocolError> {
        Method::decode(self.payload)
    }

    /// Reads the payload as a content header.
    pub fn content_header(&self) -> Result<ContentHeader<'a>, ProtocolError> {
        ContentHeader::decode(self.payload)
    }
}

/// Appends a heartbeat.
pub fn encode_heartbeat(out: &mut Vec<u8>) {
    out.extend_from_slice(&[FrameType::Heartbeat as u8, 0, 0, 0, 0, 0, 0, FRAME_END]);
}

/// Appends the header of a body frame; the caller sends `payload_bytes` of body and [`FRAME_END`] right behind.
pub fn encode_body_frame_head(out: &mut Vec<u8>, channel: u16, payload_bytes: u32) {
    put_header(out, FrameType::Body, channel, payload_bytes);
}

/// Appends a body frame.
pub fn encode_body_frame(out: &mut Vec<u8>, channel: u16, payload: &[u8]) -> Result<(), EncodeError> {
    let payload_bytes = u32::try_from(payload.len()).map_err(|_| EncodeError::TooLong)?;
    out.reserve(payload.len().saturating_add(FRAME_OVERHEAD_BYTES));
    put_header(out, FrameType::Body, channel, payload_bytes);
    out.extend_from_slice(payload);
    out.push(FRAME_END);
    Ok(())
}

/// Appends a frame whose payload `write` appends. On error the output is as before.
pub(super) fn put_frame(
    out: &mut Vec<u8>,
    frame_type: FrameType,
    channel: u16,
    frame_bytes_max: usize,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    put_header(out, frame_type, channel, 0);
    let written = write(out).and_then(|()| {
        out.push(FRAME_END);
        let frame_bytes = out.len().saturating_sub(start);
        if frame_bytes > frame_bytes_max {
            return Err(EncodeError::FrameTooLarge);
        }
        u32::try_from(frame_bytes.saturating_sub(FRAME_OVERHEAD_BYTES)).map_err(|_| EncodeError::TooLong)
    });
    match written {
        Ok(payload_bytes) => {
            let size = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<HEADER_BYTES>);
            if let Some([_, _, _, size @ ..]) = size {
                *size = payload_bytes.to_be_bytes();
            }
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

fn put_header(out: &mut Vec<u8>, frame_type: FrameType, channel: u16, payload_bytes: u32) {
    let [c1, c0] = channel.to_be_bytes();
    let [s3, s2, s1, s0] = payload_bytes.to_be_bytes();
    out.extend_from_slice(&[frame_type as u8, c1, c0, s3, s2, s1, s0]);
}
