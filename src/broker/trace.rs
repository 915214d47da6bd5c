//! Addresses that are watched for `trace`: how many of their messages came to each step of the way, and the last example
//! of each. Owns the counting; which steps a client sees, and how, is `gateway::trace`.
//!
//! As a rule nobody watches, and a step costs one look at an empty list. There are few watches, each forgets itself after
//! a while, and what an example shows is cut short: who publishes cannot make them large.

use std::time::Duration;

use super::queue::QueueIndex;
use super::{Broker, Held};
use crate::message::Message;
use crate::time::{Mono, Now, Wall};

/// Addresses that are watched at once; the one that was asked about longest ago makes room.
const WATCHES_MAX: usize = 8;
/// A watch ends so long after it was last asked about.
pub const WATCHED_FOR: Duration = Duration::from_secs(15 * 60);
/// Bytes of a payload that an example shows.
const PAYLOAD_BYTES_MAX: usize = 256;
/// Characters of a name that an example shows.
const NAME_CHARS_MAX: usize = 200;
/// Publishers that a watch names; the one that published longest ago makes room.
const PUBLISHERS_MAX: usize = 4;

/// What may become of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TraceStep {
    /// A publisher handed it over, and was allowed to.
    Received,
    /// No queue wanted it.
    Unwanted,
    /// A route made a reading of it.
    Parsed,
    /// A route did, though it looks like a document and is none.
    Malformed,
    /// A collection holds it on flash.
    Stored,
    /// A session or queue holds a copy.
    Queued,
    /// A full queue refused a copy.
    Refused,
    /// A copy was dropped.
    Dropped,
    /// A copy left for a client.
    Delivered,
    /// A copy did not: its client may not or cannot take it.
    Withheld,
    /// A client has settled its copy.
    Acknowledged,
    /// A client has given its copy back, or refused it.
    Returned,
}

impl TraceStep {
    const COUNT: usize = Self::Returned as usize + 1;
}

/// The last message that came to a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceExample {
    pub at: Wall,
    /// The queue or client; empty where there is none.
    pub name: Box<str>,
    /// What more is to be said; empty where that is nothing.
    pub why: Box<str>,
    /// The beginning of the payload; what is not UTF-8 is replaced.
    pub payload: Box<str>,
    /// Bytes of all of it.
    pub payload_bytes: usize,
}

/// How often a step was come to, and the last time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traced {
    pub count: u64,
    pub last: Option<TraceExample>,
}

/// Somebody who published to a watched address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publisher {
    pub protocol: &'static str,
    pub user_name: Option<Box<str>>,
    pub client_identifier: Box<str>,
    pub count: u64,
    pub last_at: Wall,
}

/// An address that is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    address: Box<str>,
    /// Counted since then.
    pub since: Now,
    until: Mono,
    steps: [Traced; TraceStep::COUNT],
    /// The newest last.
    pub publishers: Vec<Publisher>,
    /// Messages whose publisher was not named yet.
    unnamed: u64,
}

impl Watch {
    /// What came to a step.
    #[must_use]
    pub fn step(&self, step: TraceStep) -> &Traced {
        // The array has a place for each.
        &self.steps[step as usize]
    }

    fn note(&mut self, now: Now, step: TraceStep, message: &Message, (name, why): (&str, &str)) {
        let beginning = message.body.get(..PAYLOAD_BYTES_MAX).unwrap_or(&message.body);
        let traced = &mut self.steps[step as usize];
        traced.count += 1;
        traced.last = Some(TraceExample {
            at: now.wall,
            name: shortened(name).into(),
            why: shortened(why).into(),
            payload: String::from_utf8_lossy(beginning).into(),
            payload_bytes: message.body.len(),
        });
    }
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Traces(Vec<Watch>);

impl Traces {
    fn find(&mut self, address: &str) -> Option<&mut Watch> {
        self.0.iter_mut().find(|watch| *watch.address == *address)
    }

    /// Watches the address from now on, or goes on.
    fn watch(&mut self, now: Now, address: &str) -> &Watch {
        self.0.retain(|watch| watch.until > now.mono);
        let until = now.mono + WATCHED_FOR;
        let watch = match self.0.iter().position(|watch| *watch.address == *address) {
            Some(at) => Watch { until, ..self.0.remove(at) },
            None => Watch {
                address: address.into(),
                since: now,
                until,
                steps: Default::default(),
                publishers: Vec::new(),
                unnamed: 0,
            },
        };
        if self.0.len() >= WATCHES_MAX {
            self.0.remove(0);
        }
        self.0.push(watch);
        let newest = self.0.len() - 1;
        // It was just put there.
        &self.0[newest]
    }

    /// A message came to a step in the queue of this name.
    #[inline]
    pub fn step(&mut self, now: Now, step: TraceStep, held: &Held, (name, why): (&str, &str)) {
        if !self.0.is_empty() {
            self.note(now, step, &held.message, (name, why));
        }
    }

    #[cold]
    fn note(&mut self, now: Now, step: TraceStep, message: &Message, (name, why): (&str, &str)) {
        if let Some(watch) = self.find(&message.address) {
            watch.note(now, step, message, (name, why));
        }
    }

    #[cold]
    fn received(&mut self, now: Now, message: &Message) -> Option<Box<str>> {
        // Nobody has asked for long: the next message costs nothing.
        self.0.retain(|watch| watch.until > now.mono);
        let watch = self.find(&message.address)?;
        watch.note(now, TraceStep::Received, message, ("", ""));
        watch.unnamed += 1;
        Some(watch.address.clone())
    }

    #[cold]
    fn unwanted(&mut self, now: Now, address: &str) {
        let Some(watch) = self.find(address) else { return };
        let example = watch.step(TraceStep::Received).last.clone();
        let unwanted = &mut watch.steps[TraceStep::Unwanted as usize];
        unwanted.count += 1;
        unwanted.last = example.map(|example| TraceExample { at: now.wall, ..example });
    }
}

impl Broker {
    /// Watches an address from now on, for [`WATCHED_FOR`] after the last call; answers what was seen of it.
    pub fn watch(&mut self, now: Now, address: &str) -> &Watch {
        self.traces.watch(now, address)
    }

    /// True while some address is watched.
    #[must_use]
    pub const fn is_tracing(&self) -> bool {
        !self.traces.0.is_empty()
    }

    /// The addresses that are watched.
    #[must_use]
    pub fn watched(&self) -> Vec<Box<str>> {
        self.traces.0.iter().map(|watch| watch.address.clone()).collect()
    }

    /// A message came to a step that only the caller sees. `name` is the queue or client, `why` what more is to be said.
    pub fn note_step(&mut self, now: Now, step: TraceStep, message: &Message, (name, why): (&str, &str)) {
        self.traces.note(now, step, message, (name, why));
    }

    /// Says who published what was received last: the broker knows connections only.
    #[cold]
    pub fn name_publisher(
        &mut self,
        now: Now,
        protocol: &'static str,
        user_name: Option<&str>,
        client_identifier: &str,
    ) {
        let client_identifier = shortened(client_identifier);
        let user_name = user_name.map(shortened);
        for watch in self.traces.0.iter_mut().filter(|watch| watch.unnamed > 0) {
            let count = std::mem::take(&mut watch.unnamed);
            let same = |known: &Publisher| {
                known.protocol == protocol
                    && known.user_name.as_deref() == user_name
                    && *known.client_identifier == *client_identifier
            };
            let mut publisher = match watch.publishers.iter().position(same) {
                Some(at) => watch.publishers.remove(at),
                None => Publisher {
                    protocol,
                    user_name: user_name.map(Into::into),
                    client_identifier: client_identifier.into(),
                    count: 0,
                    last_at: now.wall,
                },
            };
            publisher.count += count;
            publisher.last_at = now.wall;
            if watch.publishers.len() >= PUBLISHERS_MAX {
                watch.publishers.remove(0);
            }
            watch.publishers.push(publisher);
        }
    }

    /// A message was handed over; answers its address, if it is watched.
    #[inline]
    pub(super) fn trace_received(&mut self, now: Now, message: &Message) -> Option<Box<str>> {
        if self.is_tracing() { self.traces.received(now, message) } else { None }
    }

    /// Nobody wanted it.
    #[inline]
    pub(super) fn trace_unwanted(&mut self, now: Now, address: Option<&str>) {
        if let Some(address) = address {
            self.traces.unwanted(now, address);
        }
    }

    /// A message came to a step in a queue.
    #[inline]
    pub(super) fn trace(&mut self, now: Now, step: TraceStep, index: QueueIndex, held: &Held, why: &str) {
        if self.is_tracing() {
            self.trace_in_queue(now, step, index, held, why);
        }
    }

    #[cold]
    fn trace_in_queue(&mut self, now: Now, step: TraceStep, index: QueueIndex, held: &Held, why: &str) {
        let queue = self.queues.get(index.0 as usize).and_then(Option::as_ref);
        let name = queue.map_or("", |queue| &*queue.name);
        self.traces.note(now, step, &held.message, (name, why));
    }
}

fn shortened(text: &str) -> &str {
    text.char_indices().nth(NAME_CHARS_MAX).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now { mono: Mono(seconds * 1_000_000), wall: Wall(seconds * 1000), wall_trusted: true }
    }

    fn message(address: &str, body: &'static [u8]) -> Message {
        Message { address: address.into(), body: body.into(), ..Message::default() }
    }

    #[test]
    fn only_watched_addresses_are_counted_and_only_for_a_while() {
        let mut traces = Traces::default();
        traces.received(at(0), &message("a", b"unseen"));
        assert_eq!(traces.watch(at(1), "a").step(TraceStep::Received), &Traced::default());
        for body in [&b"1"[..], b"\xff2"] {
            traces.received(at(2), &message("a", body));
            traces.received(at(2), &message("b", body));
        }
        let traced = traces.watch(at(3), "a").step(TraceStep::Received).clone();
        let last = traced.last.unwrap();
        assert_eq!((traced.count, &*last.payload, last.payload_bytes), (2, "\u{fffd}2", 2));
        // Asking again goes on; silence for a quarter of an hour ends it.
        let end = 3 + WATCHED_FOR.as_secs();
        traces.received(at(end - 1), &message("a", b"3"));
        assert_eq!(traces.0.len(), 1);
        traces.received(at(end), &message("a", b"4"));
        assert!(traces.0.is_empty());
    }

    #[test]
    fn watches_and_what_they_show_are_bounded() {
        let mut traces = Traces::default();
        for n in 0..WATCHES_MAX as u64 + 3 {
            traces.watch(at(n), &n.to_string());
            traces.watch(at(n), "kept");
        }
        assert_eq!(traces.0.len(), WATCHES_MAX);
        assert!(traces.find("kept").is_some() && traces.find("0").is_none() && traces.find("10").is_some());
        traces.received(at(20), &message("kept", &[b'x'; 10_000]));
        let long = "ä".repeat(1000);
        let watch = traces.find("kept").unwrap();
        watch.note(at(20), TraceStep::Dropped, &message("kept", b""), (&long, &long));
        let received = watch.step(TraceStep::Received).last.as_ref().unwrap();
        assert_eq!((received.payload.len(), received.payload_bytes), (PAYLOAD_BYTES_MAX, 10_000));
        let dropped = watch.step(TraceStep::Dropped).last.as_ref().unwrap();
        assert_eq!(dropped.name.chars().count(), NAME_CHARS_MAX);
    }
}
