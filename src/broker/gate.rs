//! What an acknowledgement waits for.

use std::rc::Rc;

use super::held::Held;
use crate::ids::BatchNumber;

/// The condition under which a reply may leave. Replies of one connection leave in order, so each waits for its own
/// gate and for all before it.
#[derive(Clone, Debug)]
pub enum Gate {
    /// Due at once.
    Open,
    /// Due when the batch is on flash.
    Batch(BatchNumber),
    /// Due when the batch is on flash, or as soon as every durable taker has acknowledged the message.
    Message(BatchNumber, Rc<Held>),
}

impl Gate {
    /// True when the reply may leave, `persisted` being the newest batch on flash.
    #[must_use]
    pub fn is_due(&self, persisted: BatchNumber) -> bool {
        match self {
            Self::Open => true,
            Self::Batch(number) => *number <= persisted,
            Self::Message(number, held) => *number <= persisted || held.is_acknowledged(),
        }
    }

    /// The batch that opens it at the latest.
    #[must_use]
    pub const fn batch(&self) -> Option<BatchNumber> {
        match self {
            Self::Open => None,
            Self::Batch(number) | Self::Message(number, _) => Some(*number),
        }
    }
}
