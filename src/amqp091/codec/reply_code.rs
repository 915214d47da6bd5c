//! Reply codes: the numbers with which a channel or a connection is closed and a message is returned.
//! Specification section 1.2, constants.

use std::fmt;

/// Why something was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReplyCode {
    Success = 200,
    ContentTooLarge = 311,
    NoRoute = 312,
    NoConsumers = 313,
    ConnectionForced = 320,
    InvalidPath = 402,
    AccessRefused = 403,
    NotFound = 404,
    ResourceLocked = 405,
    PreconditionFailed = 406,
    FrameError = 501,
    SyntaxError = 502,
    CommandInvalid = 503,
    ChannelError = 504,
    UnexpectedFrame = 505,
    ResourceError = 506,
    NotAllowed = 530,
    NotImplemented = 540,
    InternalError = 541,
}

impl ReplyCode {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Name as RabbitMQ writes it in front of a reply text, which clients match on.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::ContentTooLarge => "CONTENT_TOO_LARGE",
            Self::NoRoute => "NO_ROUTE",
            Self::NoConsumers => "NO_CONSUMERS",
            Self::ConnectionForced => "CONNECTION_FORCED",
            Self::InvalidPath => "INVALID_PATH",
            Self::AccessRefused => "ACCESS_REFUSED",
            Self::NotFound => "NOT_FOUND",
            Self::ResourceLocked => "RESOURCE_LOCKED",
            Self::PreconditionFailed => "PRECONDITION_FAILED",
            Self::FrameError => "FRAME_ERROR",
            Self::SyntaxError => "SYNTAX_ERROR",
            Self::CommandInvalid => "COMMAND_INVALID",
            Self::ChannelError => "CHANNEL_ERROR",
            Self::UnexpectedFrame => "UNEXPECTED_FRAME",
            Self::ResourceError => "RESOURCE_ERROR",
            Self::NotAllowed => "NOT_ALLOWED",
            Self::NotImplemented => "NOT_IMPLEMENTED",
            Self::InternalError => "INTERNAL_ERROR",
        }
    }

    /// Closes the connection; the others close the channel, or return a message.
    #[must_use]
    pub const fn is_hard(self) -> bool {
        match self {
            Self::ConnectionForced
            | Self::InvalidPath
            | Self::FrameError
            | Self::SyntaxError
            | Self::CommandInvalid
            | Self::ChannelError
            | Self::UnexpectedFrame
            | Self::ResourceError
            | Self::NotAllowed
            | Self::NotImplemented
            | Self::InternalError => true,
            Self::Success
            | Self::ContentTooLarge
            | Self::NoRoute
            | Self::NoConsumers
            | Self::AccessRefused
            | Self::NotFound
            | Self::ResourceLocked
            | Self::PreconditionFailed => false,
        }
    }

    /// Reply text `NAME - explanation`, cut to the 255 bytes of a short string.
    #[must_use]
    pub fn text(self, explanation: &str) -> String {
        let mut text = format!("{} - {explanation}", self.name());
        let mut end = text.len().min(REPLY_TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end = end.saturating_sub(1);
        }
        text.truncate(end);
        text
    }
}

const REPLY_TEXT_BYTES_MAX: usize = 255;

impl fmt::Display for ReplyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_text_is_cut_at_a_character() {
        assert_eq!(
            ReplyCode::NotFound.text("no queue 'q' in vhost '/'"),
            "NOT_FOUND - no queue 'q' in vhost '/'"
        );
        let text = ReplyCode::NotFound.text(&"ü".repeat(300));
        assert_eq!(text.len(), 254);
        assert!(text.ends_with('ü'));
    }

    #[test]
    fn soft_codes_close_the_channel() {
        assert!(!ReplyCode::NotFound.is_hard() && !ReplyCode::PreconditionFailed.is_hard());
        assert!(ReplyCode::FrameError.is_hard() && ReplyCode::NotAllowed.is_hard());
        assert_eq!(ReplyCode::InternalError.number(), 541);
    }
}
