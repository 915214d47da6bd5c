//! What must hold of a queue that is asked for its messages one by one and purged, and that nobody consumes from.
//!
//! * It is empty only when nothing is surely in it.
//! * What was in it when it was purged, and with nobody, never comes again.

use std::collections::{BTreeMap, BTreeSet};

use super::QueueState;
use crate::model::{Check, Message, MessageNumber};

/// What links asked for and have no answer to.
#[derive(Debug, Default)]
pub(super) struct Polling {
    /// basic.get, by link: what is surely there. Nothing, where somebody else may get it first.
    asked: BTreeMap<u64, Vec<MessageNumber>>,
    /// queue.purge, by link: what is surely there and is gone with the answer.
    purging: BTreeMap<u64, Vec<MessageNumber>>,
    /// Messages that a consumer settled or left behind, by its link: whether that has arrived is not known to others.
    let_go: BTreeMap<MessageNumber, u64>,
    /// Messages that were purged, each of them published once until then.
    gone: BTreeSet<MessageNumber>,
}

impl Polling {
    /// What is published now may be purged before anybody sees it.
    pub fn is_purging(&self) -> bool {
        !self.purging.is_empty()
    }

    /// True when the message was purged and has not been published since.
    pub fn is_gone(&self, number: MessageNumber, message: &Message) -> bool {
        self.gone.contains(&number) && message.is_sent_once()
    }

    /// A consumer has the message no more.
    pub fn let_go(&mut self, number: MessageNumber, link: u64) {
        self.let_go.insert(number, link);
    }

    /// The message is delivered, so it was back.
    pub fn delivered(&mut self, number: MessageNumber) {
        self.let_go.remove(&number);
    }

    /// The link has ended: what it asked for goes back, or is not heard of.
    pub fn released(&mut self, link: u64) {
        self.asked.remove(&link);
        self.purging.remove(&link);
    }

    pub fn machine_ended(&mut self) {
        self.asked.clear();
        self.purging.clear();
        self.let_go.clear();
    }
}

impl QueueState {
    /// basic.get leaves on `link`.
    pub fn asking(&mut self, link: u64) {
        let others = !self.polling.asked.is_empty() || self.polling.is_purging();
        let fresh = |number: &MessageNumber| !self.got.contains_key(number);
        let firm = self.due.iter().filter(|(_, due)| due.firm).map(|((number, _), _)| *number);
        let there = if others { Vec::new() } else { firm.filter(fresh).collect() };
        for rest in self.polling.asked.values_mut().chain(self.polling.purging.values_mut()) {
            rest.clear();
        }
        self.polling.asked.insert(link, there);
    }

    /// basic.get-ok came.
    pub fn answered(&mut self, link: u64) {
        self.polling.asked.remove(&link);
    }

    /// basic.get-empty came.
    pub fn was_empty(&mut self, link: u64) -> Check {
        let there = self.polling.asked.remove(&link).unwrap_or_default();
        let still = |number: &MessageNumber| {
            let mut of_message = self.due.range((*number, 0)..=(*number, usize::MAX));
            !self.got.contains_key(number) && of_message.any(|(_, due)| due.firm)
        };
        match there.into_iter().find(still) {
            Some(number) if !self.unordered => {
                Err(format!("queue {}: it is said to be empty, and message {number} is in it", self.name))
            }
            _ => Ok(()),
        }
    }

    /// queue.purge leaves on `link`: nothing that is in the queue is owed any more.
    pub fn purging(&mut self, link: u64, messages: &[Message]) {
        self.due.clear();
        self.ready.clear();
        self.burying.purging();
        for there in self.polling.asked.values_mut() {
            there.clear();
        }
        let is_kept = |message: &Message| {
            message.is_sent_once()
                && message.instances.iter().all(|sending| sending.acknowledged_at.is_some())
        };
        let with_nobody = |number: &MessageNumber| {
            self.held.get(number).is_none_or(Vec::is_empty)
                && self.polling.let_go.get(number).is_none_or(|by| *by == link)
        };
        let there = if self.polling.asked.is_empty() {
            let kept = (0..).zip(messages).filter(|(_, message)| is_kept(message)).map(|(number, _)| number);
            kept.filter(with_nobody).collect()
        } else {
            Vec::new()
        };
        self.polling.purging.insert(link, there);
    }

    /// queue.purge-ok came.
    pub fn purged(&mut self, link: u64) {
        self.polling.gone.extend(self.polling.purging.remove(&link).unwrap_or_default());
    }
}
