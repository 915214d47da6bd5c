//! Messages as they are published, for whoever looks on. Looking on takes nothing: no queue, no acknowledgement waits, and what
//! nobody fetches in time is left out and counted.
//!
//! As a rule nobody looks on, and a message costs one look at an empty list.

use std::collections::{BTreeMap, VecDeque};

use super::Broker;
use super::topic_index::{TopicIndex, mqtt_levels};
use crate::message::Message;

/// Messages, and bytes of them, that wait to be fetched.
const SEEN_MAX: usize = 1024;
const SEEN_BYTES_MAX: usize = 4 << 20;

/// A message that somebody looks at.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Who looks: what [`Broker::look_on`] answered.
    pub by: Vec<u32>,
    pub message: Message,
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct Taps {
    index: TopicIndex<()>,
    filters: BTreeMap<u32, Box<str>>,
    next: u32,
    seen: VecDeque<Seen>,
    bytes: usize,
}

impl Taps {
    pub fn new(seed: u64) -> Self {
        let (index, filters) = (TopicIndex::new(seed), BTreeMap::new());
        Self { index, filters, next: 1, seen: VecDeque::new(), bytes: 0 }
    }

    #[cold]
    fn take(&mut self, message: &Message) {
        let mut by = Vec::new();
        self.index.matches(&message.address, &mut |tap, ()| by.push(tap));
        by.sort_unstable();
        by.dedup();
        let bytes = message.charge();
        if by.is_empty() || self.seen.len() >= SEEN_MAX || self.bytes + bytes > SEEN_BYTES_MAX {
            return;
        }
        self.bytes += bytes;
        self.seen.push_back(Seen { by, message: message.clone() });
    }
}

impl Broker {
    /// Lets somebody look at the messages of topics from now on; `filter` is an MQTT topic filter that was checked.
    pub fn look_on(&mut self, filter: &str) -> u32 {
        let tap = self.taps.next;
        self.taps.next = tap.wrapping_add(1);
        self.taps.index.insert(mqtt_levels(filter), tap, ());
        self.taps.filters.insert(tap, filter.into());
        tap
    }

    /// Ends that.
    pub fn look_away(&mut self, tap: u32) {
        if let Some(filter) = self.taps.filters.remove(&tap) {
            self.taps.index.remove(mqtt_levels(&filter), tap);
        }
        if self.taps.filters.is_empty() {
            self.taps.seen.clear();
            self.taps.bytes = 0;
        }
    }

    /// The next message that somebody looks at.
    pub fn poll_seen(&mut self) -> Option<Seen> {
        let seen = self.taps.seen.pop_front()?;
        self.taps.bytes = self.taps.bytes.saturating_sub(seen.message.charge());
        Some(seen)
    }

    /// A message was published to the exchange that all protocols share.
    #[inline]
    pub(super) fn show(&mut self, message: &Message) {
        if !self.taps.filters.is_empty() {
            self.taps.take(message);
        }
    }
}
