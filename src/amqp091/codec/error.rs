//! What a peer did wrong on the wire, and what cannot be put on it.

use std::fmt;

use super::method::MethodId;
use super::reply_code::ReplyCode;

/// Bytes that are no AMQP. Every code here is hard: the connection is closed with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolError {
    pub reply_code: ReplyCode,
    /// Lowercase fragment for the reply text and the log.
    pub detail: &'static str,
    /// The method whose arguments are wrong; zero when no method is.
    pub method: MethodId,
}

impl ProtocolError {
    /// 501: a frame, or what is in it, cannot be read.
    pub(super) const fn frame(detail: &'static str) -> Self {
        Self { reply_code: ReplyCode::FrameError, detail, method: MethodId::NONE }
    }

    /// 505: a frame that can be read and does not belong here.
    pub(super) const fn unexpected(detail: &'static str) -> Self {
        Self { reply_code: ReplyCode::UnexpectedFrame, detail, method: MethodId::NONE }
    }

    pub(super) const fn at(mut self, method: MethodId) -> Self {
        self.method = method;
        self
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.reply_code, self.detail)
    }
}

impl std::error::Error for ProtocolError {}

/// A value that has no wire form. Nothing was appended to the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncodeError {
    /// A short string above 255 bytes.
    ShortStringTooLong,
    /// Content properties above the peer's frame-max: a content header is one frame.
    FrameTooLarge,
    /// Anything that needs more than 32 bits of length.
    TooLong,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShortStringTooLong => "short string is longer than 255 bytes",
            Self::FrameTooLarge => "frame is larger than frame-max",
            Self::TooLong => "value is longer than 4 GiB",
        })
    }
}

impl std::error::Error for EncodeError {}
