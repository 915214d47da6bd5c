//! The series that are known: their numbers, what they are called, and how much each holds.
//!
//! Kept in memory whole; `series_max` bounds it. Beyond that a collection's readings go to its *shared* series, whose
//! chunks say for each reading where it came from.

use std::collections::BTreeMap;

use crate::collections::{self, Map};
use crate::message::record::{Reader, put_bytes, put_integer};

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
    by_origin: Map<(Box<str>, Option<Origin>), SeriesId>,
    count: BTreeMap<Box<str>, u32>,
    next: u32,
}

impl Registry {
    pub fn new(seed: u64) -> Self {
        Self { series: BTreeMap::new(), by_origin: collections::map(seed), count: BTreeMap::new(), next: 1 }
    }

    /// Adds a series that was found on flash.
    pub fn add(&mut self, id: SeriesId, collection: Box<str>, origin: Option<Origin>) {
        self.next = self.next.max(id.0.saturating_add(1));
        self.by_origin.insert((collection.clone(), origin.clone()), id);
        *self.count.entry(collection.clone()).or_default() += 1;
        self.series.insert(id, Series { collection, origin, extent: Extent::default() });
    }

    /// The series of `origin`; a new one while the collection has fewer than `series_max`, else its shared one. The
    /// flag says that it is new, and its record has to be written.
    pub fn of(&mut self, collection: &str, origin: &Origin, series_max: u32) -> (SeriesId, bool) {
        let key = (Box::from(collection), Some(origin.clone()));
        if let Some(id) = self.by_origin.get(&key) {
            return (*id, false);
        }
        let full = self.count.get(collection).is_some_and(|count| *count >= series_max);
        let key = if full { (key.0, None) } else { key };
        if let Some(id) = self.by_origin.get(&key) {
            return (*id, false);
        }
        let id = SeriesId(self.next);
        self.add(id, key.0, key.1);
        (id, true)
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
            self.by_origin.remove(&(series.collection, series.origin));
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
