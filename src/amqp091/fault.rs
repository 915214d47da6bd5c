//! Why a channel or a connection is closed: a reply code, a text that clients match on, the method at fault.

use super::codec::{MethodId, ProtocolError, ReplyCode};

/// The content of a channel.close or connection.close.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    pub code: ReplyCode,
    /// Without the code's name in front.
    pub explanation: String,
    pub method: MethodId,
}

impl Fault {
    /// A fault of the method that is being handled, which is filled in on the way out.
    pub fn new(code: ReplyCode, explanation: impl Into<String>) -> Self {
        Self { code, explanation: explanation.into(), method: MethodId::NONE }
    }

    pub fn not_found(what: &str, name: &str) -> Self {
        Self::new(ReplyCode::NotFound, format!("no {what} '{name}' in vhost '/'"))
    }

    pub fn precondition(explanation: impl Into<String>) -> Self {
        Self::new(ReplyCode::PreconditionFailed, explanation)
    }

    pub fn refused(explanation: impl Into<String>) -> Self {
        Self::new(ReplyCode::AccessRefused, explanation)
    }

    pub fn not_implemented(explanation: impl Into<String>) -> Self {
        Self::new(ReplyCode::NotImplemented, explanation)
    }

    /// The reply text.
    pub fn text(&self) -> String {
        self.code.text(&self.explanation)
    }
}

impl From<ProtocolError> for Fault {
    fn from(error: ProtocolError) -> Self {
        Self { code: error.reply_code, explanation: error.detail.into(), method: error.method }
    }
}
