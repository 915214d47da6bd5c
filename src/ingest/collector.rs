//! The collector: messages of collections in, readings into the series store. Owns routes, and an error lane for each
//! collection: how many payloads looked like a document and were none, and the last of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::route::Route;
use crate::series::document::{Malformed, Payload};
use crate::series::{EstimatedBy, Origin, Reading, SeriesStore, takes};

/// Examples that a lane keeps.
const EXAMPLES_MAX: usize = 16;
/// Bytes of a payload that an example shows.
const EXAMPLE_BYTES: usize = 256;
/// Topics whose tags are remembered.
const TOPICS_MAX: usize = 4096;
/// Bytes of these topics and their tags.
const TOPICS_BYTES_MAX: usize = 1 << 20;

/// A message that a collection took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    pub collection: Arc<str>,
    pub sequence: u64,
    pub topic: Box<str>,
    /// Milliseconds since 1970.
    pub received_at: i64,
    /// The clock was not trusted.
    pub estimated: Option<EstimatedBy>,
    pub payload: Bytes,
}

/// A payload that was not what it looked like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Example {
    pub topic: Box<str>,
    pub received_at: i64,
    pub why: Box<str>,
    /// The beginning of it; what is not UTF-8 is replaced.
    pub payload: Box<str>,
}

/// The error lane of a collection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lane {
    /// Payloads by why they are none.
    pub counts: BTreeMap<&'static str, u64>,
    /// The last ones, oldest first.
    pub examples: VecDeque<Example>,
}

/// See the module's head.
#[derive(Debug)]
pub struct Collector {
    routes: Vec<Route>,
    origins: BTreeMap<(Arc<str>, Box<str>), Origin>,
    /// Bytes of the origins.
    origins_bytes: usize,
    lanes: BTreeMap<Box<str>, Lane>,
}

impl Collector {
    #[must_use]
    pub const fn new(routes: Vec<Route>) -> Self {
        Self { routes, origins: BTreeMap::new(), origins_bytes: 0, lanes: BTreeMap::new() }
    }

    /// New routes: what a topic is tagged with is decided anew.
    pub fn set_routes(&mut self, routes: Vec<Route>) {
        self.routes = routes;
        self.forget_origins();
    }

    fn forget_origins(&mut self) {
        self.origins.clear();
        self.origins_bytes = 0;
    }

    /// Makes a reading of a message and gives it to the store.
    pub fn take(&mut self, taken: Taken, store: &mut SeriesStore) {
        self.judge(&taken);
        let origin = self.origin(&taken.collection, &taken.topic);
        store.push(Reading {
            collection: taken.collection,
            sequence: taken.sequence,
            time: taken.received_at,
            estimated: taken.estimated,
            origin,
            payload: taken.payload,
        });
    }

    /// Where a reading comes from.
    pub fn origin(&mut self, collection: &Arc<str>, topic: &str) -> Origin {
        let key = (Arc::clone(collection), topic.into());
        if let Some(origin) = self.origins.get(&key) {
            return origin.clone();
        }
        let origin = origin_of(&self.routes, collection, topic);
        if origin.is_long() {
            return origin;
        }
        if self.origins.len() >= TOPICS_MAX || self.origins_bytes + origin.bytes() > TOPICS_BYTES_MAX {
            self.forget_origins();
        }
        self.origins_bytes += origin.bytes();
        self.origins.insert(key, origin.clone());
        origin
    }

    /// The error lane of a collection.
    #[must_use]
    pub fn lane(&self, collection: &str) -> Lane {
        self.lanes.get(collection).cloned().unwrap_or_default()
    }

    fn judge(&mut self, taken: &Taken) {
        let Some((name, why)) = fault(&taken.payload) else { return };
        let lane = self.lanes.entry((&*taken.collection).into()).or_default();
        *lane.counts.entry(name).or_default() += 1;
        if lane.examples.len() >= EXAMPLES_MAX {
            lane.examples.pop_front();
        }
        let beginning = taken.payload.get(..taken.payload.len().min(EXAMPLE_BYTES)).unwrap_or_default();
        lane.examples.push_back(Example {
            topic: taken.topic.clone(),
            received_at: taken.received_at,
            why: why.into(),
            payload: String::from_utf8_lossy(beginning).into(),
        });
    }
}

/// Where a reading comes from: its topic, and the tags that the first route of the collection gives it.
#[must_use]
pub fn origin_of(routes: &[Route], collection: &str, topic: &str) -> Origin {
    let mut of_collection = routes.iter().filter(|route| route.collection == collection);
    let tags = of_collection.find_map(|route| route.tags_of(topic, takes)).unwrap_or_default();
    Origin { topic: topic.into(), tags }
}

/// Why a payload that looks like a document is none: a name for the count, and a text.
#[must_use]
pub fn fault(payload: &[u8]) -> Option<(&'static str, String)> {
    match Payload::of(payload) {
        Payload::Text(_, Some(why)) => {
            let name = match why {
                Malformed::Syntax(_) => "not_json",
                Malformed::Deep => "too_deep",
                Malformed::Large => "too_large",
            };
            Some((name, why.to_string()))
        }
        Payload::Binary(bytes) if matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'[')) => {
            Some(("not_utf8", "not UTF-8".to_owned()))
        }
        Payload::Object(_) | Payload::Json(_) | Payload::Text(..) | Payload::Binary(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_remembered_within_bounds() {
        let mut collector = Collector::new(Vec::new());
        let collection: Arc<str> = "readings".into();
        let mut most = 0;
        for n in 0..3000 {
            for len in [10, 1000, 60_000] {
                let topic = format!("{n:06}{}", "x".repeat(len));
                assert_eq!(*collector.origin(&collection, &topic).topic, *topic);
                if n % 7 != 0 {
                    continue;
                }
                let bytes: usize = collector.origins.values().map(Origin::bytes).sum();
                assert_eq!(bytes, collector.origins_bytes);
                most = most.max(bytes);
                assert!(collector.origins.len() <= TOPICS_MAX);
            }
        }
        assert!((TOPICS_BYTES_MAX / 2..=TOPICS_BYTES_MAX).contains(&most), "{most}");
    }

    #[test]
    fn what_looks_like_a_document_and_is_none_is_kept_as_an_example() {
        let mut collector = Collector::new(Vec::new());
        let collection: Arc<str> = "readings".into();
        let bad: [&[u8]; 3] = [b"{\"v\": NaN}", b"{\"v\": \"\xff\"}", &[b'['; 200]];
        for (sequence, payload) in (0..).zip((0..20).flat_map(|_| bad)) {
            collector.judge(&Taken {
                collection: Arc::clone(&collection),
                sequence,
                topic: "s/a".into(),
                received_at: 0,
                estimated: None,
                payload: Bytes::copy_from_slice(payload),
            });
        }
        let lane = collector.lane("readings");
        assert_eq!(lane.counts, BTreeMap::from([("not_json", 20), ("not_utf8", 20), ("too_deep", 20)]));
        assert_eq!(lane.examples.len(), EXAMPLES_MAX);
        for fine in [&b"18.9"[..], b"on", b"\xff", b"{}", b""] {
            assert_eq!(fault(fine), None);
        }
    }
}
