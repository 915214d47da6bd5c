//! The series that are known: their numbers, what they are called, and how much each holds.
//!
//! Kept in memory whole, from the start on; `series_max` bounds it, and what topics and tags take. Beyond that a
//! collection's readings go to its *shared* series, whose chunks say for each reading where it came from.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::message::record::{Reader, put_bytes, put_integer};

/// Bytes of a topic with its tags that have a series of their own.
const ORIGIN_BYTES_MAX: usize = 1024;

/// Bytes of all of them together.
const ORIGINS_BYTES_MAX: usize = 32 << 20;

/// Number of a series, for the life of the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SeriesId(pub u32);

/// Where readings come from: one topic with one set of tags.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Origin {
    pub topic: Box<str>,
    /// By name, ascending.
    pub tags: Vec<(Box<str>, Box<str>)>,
}

impl Origin {
    /// The value of a tag.
    #[must_use]
    pub fn tag(&self, name: &str) -> Option<&str> {
        self.tags.iter().find(|(tag, _)| &**tag == name).map(|(_, value)| &**value)
    }

    /// Bytes of the topic and of the tags.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.topic.len() + self.tags.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }

    /// True when its readings go to the shared series however few there are.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.bytes() > ORIGIN_BYTES_MAX
    }

    /// Appends the stored form: topic, then name and value of each tag (bytes each).
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.topic.as_bytes());
        for (name, value) in &self.tags {
            put_bytes(out, name.as_bytes());
            put_bytes(out, value.as_bytes());
        }
    }

    /// Reads what [`Origin::put`] wrote, to the end.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let topic = reader.string()?.into();
        let mut tags = Vec::new();
        while !reader.is_empty() {
            tags.push((reader.string()?.into(), reader.string()?.into()));
        }
        Some(Self { topic, tags })
    }
}

/// How much a series holds on flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    pub readings: u64,
    /// Bytes of chunks.
    pub bytes: u64,
    pub chunks: u64,
    /// Times of the first and the last reading that it ever held.
    pub first: i64,
    pub last: i64,
    /// The longest time that one chunk spans: how far before a moment a chunk that reaches it may begin.
    pub span_max: i64,
}

impl Extent {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        for number in [self.readings, self.bytes, self.chunks] {
            put_integer(out, number);
        }
        for number in [self.first, self.last, self.span_max] {
            put_integer(out, number.cast_unsigned());
        }
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let mut next = || reader.integer();
        Some(Self {
            readings: next()?,
            bytes: next()?,
            chunks: next()?,
            first: next()?.cast_signed(),
            last: next()?.cast_signed(),
            span_max: next()?.cast_signed(),
        })
    }
}

/// One series.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series {
    pub collection: Box<str>,
    /// `None` for the shared series of a collection.
    pub origin: Option<Origin>,
    pub extent: Extent,
}

/// All series.
#[derive(Debug)]
pub(super) struct Registry {
    series: BTreeMap<SeriesId, Series>,
    /// By the hash of collection and origin, which stand in `series` only.
    by_origin: BTreeSet<(u64, SeriesId)>,
    hash: FixedState,
    count: BTreeMap<Box<str>, u32>,
    /// Bytes of all origins.
    origins_bytes: usize,
    next: u32,
}

impl Registry {
    pub const fn new(seed: u64) -> Self {
        Self {
            series: BTreeMap::new(),
            by_origin: BTreeSet::new(),
            hash: FixedState::with_seed(seed),
            count: BTreeMap::new(),
            origins_bytes: 0,
            next: 1,
        }
    }

    /// Adds a series that was found on flash.
    pub fn add(&mut self, id: SeriesId, collection: Box<str>, origin: Option<Origin>) {
        self.next = self.next.max(id.0.saturating_add(1));
        self.by_origin.insert((self.hash_of(&collection, origin.as_ref()), id));
        self.origins_bytes += origin.as_ref().map_or(0, Origin::bytes);
        *self.count.entry(collection.clone()).or_default() += 1;
        self.series.insert(id, Series { collection, origin, extent: Extent::default() });
    }

    /// The series of `origin`; a new one while the collection has fewer than `series_max` and the origin is not long,
    /// else the shared one. The flag says that it is new, and its record has to be written.
    pub fn of(&mut self, collection: &str, origin: &Origin, series_max: u32) -> (SeriesId, bool) {
        if let Some(id) = self.find(collection, Some(origin)) {
            return (id, false);
        }
        let full = self.count.get(collection).is_some_and(|count| *count >= series_max)
            || origin.is_long()
            || self.origins_bytes + origin.bytes() > ORIGINS_BYTES_MAX;
        if full && let Some(id) = self.find(collection, None) {
            return (id, false);
        }
        let id = SeriesId(self.next);
        self.add(id, collection.into(), (!full).then(|| origin.clone()));
        (id, true)
    }

    fn find(&self, collection: &str, origin: Option<&Origin>) -> Option<SeriesId> {
        let hash = self.hash_of(collection, origin);
        let found = self.by_origin.range((hash, SeriesId(0))..=(hash, SeriesId(u32::MAX)));
        let is_it = |series: &Series| *series.collection == *collection && series.origin.as_ref() == origin;
        found.map(|(_, id)| *id).find(|id| self.series.get(id).is_some_and(is_it))
    }

    fn hash_of(&self, collection: &str, origin: Option<&Origin>) -> u64 {
        self.hash.hash_one((collection, origin))
    }

    pub fn get(&self, id: SeriesId) -> Option<&Series> {
        self.series.get(&id)
    }

    pub fn extent_mut(&mut self, id: SeriesId) -> Option<&mut Extent> {
        self.series.get_mut(&id).map(|series| &mut series.extent)
    }

    /// Forgets a series that holds nothing.
    pub fn remove(&mut self, id: SeriesId) {
        if let Some(series) = self.series.remove(&id) {
            if let Some(count) = self.count.get_mut(&series.collection) {
                *count = count.saturating_sub(1);
            }
            let origin = series.origin.as_ref();
            self.origins_bytes = self.origins_bytes.saturating_sub(origin.map_or(0, Origin::bytes));
            self.by_origin.remove(&(self.hash_of(&series.collection, origin), id));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (SeriesId, &Series)> {
        self.series.iter().map(|(id, series)| (*id, series))
    }

    /// Names of all collections that have, or had, a series.
    pub fn collections(&self) -> impl Iterator<Item = &str> {
        self.count.keys().map(|name| &**name)
    }
}

/// The stored form of a series: collection (bytes), 0 for the shared one or 1 and its origin.
pub(super) fn put_series(out: &mut Vec<u8>, series: &Series) {
    put_bytes(out, series.collection.as_bytes());
    match &series.origin {
        None => out.push(0),
        Some(origin) => {
            out.push(1);
            origin.put(out);
        }
    }
}

/// Reads what [`put_series`] wrote.
pub(super) fn read_series(bytes: &[u8]) -> Option<(Box<str>, Option<Origin>)> {
    let mut reader = Reader::new(bytes);
    let collection = reader.string()?.into();
    match reader.byte()? {
        0 => reader.is_empty().then_some((collection, None)),
        1 => Some((collection, Some(Origin::read(reader.remaining())?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(topic: String) -> Origin {
        Origin { topic: topic.into(), tags: Vec::new() }
    }

    #[test]
    fn what_origins_take_is_bounded_whatever_series_max_says() {
        let mut registry = Registry::new(1);
        let topic = |n: u32| origin(format!("{n:06}{}", "x".repeat(994)));
        let mut own = 0;
        for n in 0..40_000 {
            let (id, _) = registry.of("readings", &topic(n), 1_000_000);
            own += u32::from(registry.get(id).is_some_and(|series| series.origin.is_some()));
        }
        assert_eq!(own as usize, ORIGINS_BYTES_MAX / 1000);
        assert_eq!(registry.iter().count(), own as usize + 1);
        let (first, new) = registry.of("readings", &topic(0), 1_000_000);
        assert!(!new, "the known ones stay");
        registry.remove(first);
        let (again, new) = registry.of("readings", &topic(39_999), 1_000_000);
        assert!(new && registry.get(again).is_some_and(|series| series.origin.is_some()));
        for id in registry.iter().map(|(id, _)| id).collect::<Vec<_>>() {
            registry.remove(id);
        }
        assert_eq!((registry.origins_bytes, registry.by_origin.len()), (0, 0));
    }

    #[test]
    fn a_long_origin_has_no_series_of_its_own() {
        let mut registry = Registry::new(1);
        for (topic, tag, own) in [(1024, 0, true), (1025, 0, false), (1000, 24, true), (1000, 25, false)] {
            let tags = vec![("".into(), "t".repeat(tag).into())];
            let (id, _) = registry.of("c", &Origin { topic: "x".repeat(topic).into(), tags }, 2000);
            assert_eq!(registry.get(id).is_some_and(|series| series.origin.is_some()), own, "{topic} {tag}");
        }
    }
}
