//! What must hold of the queue that takes dead letters, and of the one in which they die.
//!
//! * What a consumer refused for good, and is not sent again, comes as a dead letter.
//! * A dead letter was refused, or may have expired or been pushed out.

use std::collections::BTreeSet;

use super::QueueState;
use crate::model::{Check, Message, MessageNumber};

/// Of the queue in which messages die.
#[derive(Debug, Default)]
pub(super) struct Burying {
    /// Messages that some consumer refused at some time.
    refused: BTreeSet<MessageNumber>,
    /// Those that were not delivered since: their refusal has been taken.
    dead: BTreeSet<MessageNumber>,
}

impl Burying {
    pub fn delivered(&mut self, number: MessageNumber) {
        self.dead.remove(&number);
    }

    pub fn purging(&mut self) {
        self.dead.clear();
    }
}

impl QueueState {
    /// A consumer refused the message; it does not go back.
    pub fn refused(&mut self, number: MessageNumber) {
        self.burying.refused.insert(number);
        self.burying.dead.insert(number);
    }

    /// A message of this queue came as a dead letter.
    pub fn may_have_died(&self, number: MessageNumber, message: &Message) -> Check {
        if self.burying.refused.contains(&number) || message.lasts_ms.is_some() || self.unordered {
            return Ok(());
        }
        Err(format!("queue {}: message {number} is a dead letter, and nobody refused it", self.name))
    }

    /// A dead letter came out of this queue.
    pub fn buried(&mut self, number: MessageNumber) {
        self.got.entry(number).or_default().deliveries += 1;
    }

    /// Messages that this queue kept and lost to a refusal, and that `grave`, where dead letters go, never delivered.
    pub(super) fn unburied<'a>(
        &'a self,
        grave: &'a Self,
        messages: &'a [Message],
    ) -> impl Iterator<Item = MessageNumber> {
        let is_owed = |number: &MessageNumber| {
            let sent_once = messages.get(*number as usize).is_some_and(Message::is_sent_once);
            sent_once && self.due.get(&(*number, 0)).is_some_and(|due| due.firm)
        };
        self.burying.dead.iter().copied().filter(is_owed).filter(|number| !grave.got.contains_key(number))
    }
}
