//! Wills: messages that are published when a connection ends without saying so, or when it dies with the broker.

use crate::message::Message;

/// The will of a connected client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Will {
    /// The client identifier that registered it.
    pub client: Box<str>,
    pub message: Message,
}

/// Names a registered will.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WillNumber(pub u64);
