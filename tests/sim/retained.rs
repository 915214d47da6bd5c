//! The history of last known values: which of them a subscriber may see.
//!
//! Each change is an interval on the wire. A value is stale for a subscription when an acknowledged change began after
//! the value's own publish had ended and was acknowledged before the subscription was asked for.

use std::collections::BTreeMap;

use crate::model::{Check, Instance, Message, MessageNumber, Sending};

/// A change of a topic's value.
#[derive(Clone, Debug)]
enum Change {
    /// The publish, whose times the message knows.
    Set(Instance),
    Delete(Sending),
}

/// Names a deletion: its topic and its place among the topic's changes.
pub type Deletion = (&'static str, usize);

#[derive(Debug, Default)]
pub struct RetainedHistory {
    topics: BTreeMap<&'static str, Vec<Change>>,
}

impl RetainedHistory {
    /// A publish with the retain flag begins.
    pub fn set(&mut self, topic: &'static str, instance: Instance) {
        self.topics.entry(topic).or_default().push(Change::Set(instance));
    }

    /// An empty publish with the retain flag begins.
    pub fn delete(&mut self, step: u64, topic: &'static str) -> Deletion {
        let changes = self.topics.entry(topic).or_default();
        changes.push(Change::Delete(Sending::begun(step)));
        (topic, changes.len() - 1)
    }

    /// The deletion's times, to be brought up to date.
    pub fn deletion(&mut self, deletion: Deletion) -> Option<&mut Sending> {
        match self.topics.get_mut(deletion.0)?.get_mut(deletion.1)? {
            Change::Delete(sending) => Some(sending),
            Change::Set(_) => None,
        }
    }

    /// The deletion's times.
    pub fn times_of(&self, deletion: Deletion) -> Option<&Sending> {
        match self.topics.get(deletion.0)?.get(deletion.1)? {
            Change::Delete(sending) => Some(sending),
            Change::Set(_) => None,
        }
    }

    pub fn topics(&self) -> Vec<&'static str> {
        self.topics.keys().copied().collect()
    }

    /// `client` got `number` as the topic's last known value, having first asked at `asked`.
    pub fn delivered(&self, messages: &[Message], client: usize, number: MessageNumber, asked: u64) -> Check {
        let Some(message) = messages.get(number as usize).filter(|message| message.retain) else {
            return Err(format!("client {client} got message {number} as retained, which it is not"));
        };
        let fresh = message.instances.iter().any(|sending| {
            let Some(end) = sending.end() else { return true };
            !self
                .times(messages, message.topic)
                .any(|(change, _)| change.start > end && change.acknowledged_at.is_some_and(|at| at < asked))
        });
        if fresh {
            return Ok(());
        }
        Err(format!(
            "client {client}, asking at {asked}, got the stale value {number} of {}: {:?}",
            message.topic,
            self.topics.get(message.topic)
        ))
    }

    /// True when a subscriber that asks now must get a value of `topic`.
    pub fn must_have(&self, messages: &[Message], topic: &str) -> bool {
        let sets = self.times(messages, topic).filter(|(_, is_set)| *is_set);
        let newest = sets.filter(|(s, _)| s.acknowledged_at.is_some()).map(|(s, _)| s.start).max();
        let Some(newest) = newest else { return false };
        if self.may_expire(messages, topic, newest) {
            return false;
        }
        let mut deletes = self.times(messages, topic).filter(|(_, is_set)| !is_set);
        deletes.all(|(sending, _)| sending.end().is_some_and(|end| end < newest))
    }

    /// True when the value of `topic` may be one that expires, given that one was set at step `newest`.
    fn may_expire(&self, messages: &[Message], topic: &str, newest: u64) -> bool {
        self.topics.get(topic).into_iter().flatten().any(|change| {
            let Change::Set((number, at)) = change else { return false };
            let Some(message) = messages.get(*number as usize) else { return false };
            let end = message.instances.get(*at).and_then(Sending::end);
            message.lasts_ms.is_some() && end.is_none_or(|end| end >= newest)
        })
    }

    fn times<'a>(
        &'a self,
        messages: &'a [Message],
        topic: &str,
    ) -> impl Iterator<Item = (&'a Sending, bool)> {
        self.topics.get(topic).into_iter().flatten().filter_map(move |change| match change {
            Change::Set((number, at)) => {
                let message = messages.get(*number as usize)?;
                let sending = message.instances.get(*at)?;
                // A publish of QoS 0 is never acknowledged, so it makes no other stale.
                Some((sending, true))
            }
            Change::Delete(sending) => Some((sending, false)),
        })
    }
}
