//! Queries: readings in order of time, or aggregates of them, from the chunks and the open tails.
//!
//! A query goes through time slice by slice. For each it takes the chunks that reach into the slice out of one short
//! read transaction, which ends before anything is decoded or put out; so a slow reader holds nothing. How wide a
//! slice is follows from how much it turned out to hold: memory is bounded whatever is asked.
//!
//! What is not flushed comes from a snapshot of the tails. When the file has been flushed since, its marker says so and
//! a fresh snapshot is taken, so a reading is never seen twice and never missed.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::aggregate::{Aggregate, Cell, Function};
use super::allowed::Allowed;
use super::bound::{Bound, Field};
use super::chunk::{self, Chunk, READINGS_MAX, Row};
use super::condition::{Condition, Place};
use super::database::{Marker, SeriesFile};
use super::filter::takes;
use super::keys;
use super::registry::{Extent, Origin, Series, SeriesId};
use super::store::SeriesStore;
use crate::store::StoreError;

/// Bytes of chunks that one slice takes.
const CHUNK_BYTES_MAX: usize = 6 << 20;
/// Bytes of readings that wait to be put out in order.
const ROW_BYTES_MAX: usize = 4 << 20;
/// Cells of aggregates in memory.
const CELLS_MAX: usize = 20_000;
/// Values of percentiles weigh more.
const CELLS_WITH_PERCENTILES_MAX: usize = 200;
/// The first slice; milliseconds.
const WIDTH_FIRST: i64 = 3_600_000;
const WIDTH_MAX: i64 = 1 << 40;

/// What is asked of a collection.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pub collection: Box<str>,
    /// From this time on, milliseconds since 1970.
    pub since: Option<i64>,
    /// Before this time.
    pub until: Option<i64>,
    /// Topics, as an MQTT filter.
    pub topic: Option<Box<str>>,
    /// What whoever asks may read; `None`: everything.
    pub allowed: Option<Allowed>,
    pub condition: Option<Condition>,
    /// Aggregates for each stretch of so many milliseconds, rather than for all time.
    pub every_ms: Option<i64>,
    /// Empty: readings are asked for.
    pub aggregates: Vec<Aggregate>,
    pub by: Vec<Place>,
    /// Results.
    pub limit: Option<u64>,
}

/// A reading that was found.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    pub time: i64,
    pub estimated: bool,
    pub origin: &'a Origin,
    pub payload: &'a [u8],
}

/// Aggregates of one stretch and group.
#[derive(Clone, Debug)]
pub struct Bucket<'a> {
    /// When the stretch begins; `None` for all time.
    pub start: Option<i64>,
    /// A value for each of [`Query::by`].
    pub group: &'a [Box<str>],
    /// A value for each of [`Query::aggregates`].
    pub values: &'a [Option<f64>],
}

/// Takes what is found; false stops the query.
pub trait Sink {
    fn item(&mut self, item: &Item<'_>) -> bool;
    fn bucket(&mut self, bucket: &Bucket<'_>) -> bool;
}

/// Where a query gets its snapshots: from the owner of the store.
pub trait Source {
    /// The collection's series and tails now; `None` when there is no such collection.
    ///
    /// # Errors
    /// The store has no open file, or is gone.
    fn snapshot(&mut self, query: &Query) -> Result<Option<Snapshot>, QueryError>;
}

/// Where the owner itself asks.
impl Source for &SeriesStore {
    fn snapshot(&mut self, query: &Query) -> Result<Option<Snapshot>, QueryError> {
        SeriesStore::snapshot(self, query)
    }
}

/// A collection as it is at one moment.
#[derive(Debug)]
pub struct Snapshot {
    file: Arc<SeriesFile>,
    flush: u64,
    series: Vec<(SeriesId, Series, Vec<TailRow>)>,
}

#[derive(Clone, Debug)]
struct TailRow {
    row: Row,
    estimated: bool,
}

/// Why a query ended early.
#[derive(Debug)]
pub enum QueryError {
    NoCollection(Box<str>),
    Store(StoreError),
    /// The owner of the store is gone.
    Gone,
    /// More groups than memory is granted for.
    TooManyGroups,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCollection(name) => write!(f, "no collection {name}"),
            Self::Store(error) => error.fmt(f),
            Self::Gone => f.write_str("the gateway is stopping"),
            Self::TooManyGroups => f.write_str("too many groups; ask for fewer with by"),
        }
    }
}

impl std::error::Error for QueryError {}

impl From<StoreError> for QueryError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl SeriesStore {
    /// What a query of `collection` needs: the series whose topic the filter takes, and their tails.
    ///
    /// # Errors
    /// The file is not open.
    pub fn snapshot(&self, query: &Query) -> Result<Option<Snapshot>, QueryError> {
        if !self.collections().contains(&query.collection) {
            return Ok(None);
        }
        let file = self.file().ok_or(StoreError::NotOpen)?;
        let wanted = |series: &Series| {
            series.collection == query.collection
                && series.origin.as_ref().is_none_or(|origin| is_wanted(origin, query))
        };
        let series = self.series().filter(|(_, series)| wanted(series)).map(|(id, series)| {
            let tail = self.tail(id).iter();
            let mut tail: Vec<TailRow> = tail
                .map(|pending| TailRow { row: pending.row.clone(), estimated: pending.estimated.is_some() })
                .collect();
            tail.sort_by_key(|tail| tail.row.time);
            (id, series.clone(), tail)
        });
        Ok(Some(Snapshot { file, flush: self.flush_number(), series: series.collect() }))
    }
}

impl Snapshot {
    /// The times of the first and the last reading, and how many there are about; `None` when there is none.
    #[must_use]
    pub fn span(&self) -> Option<(i64, i64, u64)> {
        let mut all: Option<(i64, i64, u64)> = None;
        for (_, series, tail) in &self.series {
            let stored = (series.extent.chunks > 0).then_some((
                series.extent.first,
                series.extent.last,
                series.extent.readings,
            ));
            let open = tail.first().zip(tail.last());
            let open = open.map(|(first, last)| (first.row.time, last.row.time, tail.len() as u64));
            for (first, last, count) in stored.into_iter().chain(open) {
                all = Some(match all {
                    None => (first, last, count),
                    Some((a, b, n)) => (a.min(first), b.max(last), n + count),
                });
            }
        }
        all
    }
}

/// Whether the query asks for readings of this origin, and may.
fn is_wanted(origin: &Origin, query: &Query) -> bool {
    query.topic.as_deref().is_none_or(|filter| takes(filter, &origin.topic))
        && query.allowed.as_ref().is_none_or(|allowed| allowed.takes(&origin.topic))
}

/// Whether a query for readings takes this one, as far as topic and condition tell.
#[must_use]
pub fn wants(query: &Query, item: &Item<'_>) -> bool {
    if !is_wanted(item.origin, query) {
        return false;
    }
    if query.condition.is_none() {
        return true;
    }
    let row = Row { time: item.time, payload: bytes::Bytes::copy_from_slice(item.payload), identity: None };
    let series = Series {
        collection: query.collection.clone(),
        origin: Some(item.origin.clone()),
        extent: Extent::default(),
    };
    let chunk = Chunk::of(&[row], None);
    Bound::of(query, &[], &chunk, &series).holds(query, 0, item.origin)
}

/// What became of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Readings that were looked at.
    pub readings: u64,
    /// Chunks that do not verify and were left out.
    pub damaged: u64,
}

/// Answers a query.
///
/// # Errors
/// See [`QueryError`].
pub fn run(query: &Query, source: &mut dyn Source, sink: &mut dyn Sink) -> Result<Report, QueryError> {
    let missing = || QueryError::NoCollection(query.collection.clone());
    let mut snapshot = source.snapshot(query)?.ok_or_else(missing)?;
    let mut engine = Engine::new(query, sink);
    let Some((first, last, _)) = snapshot.span() else { return engine.finish() };
    // What comes while the query runs is not waited for.
    let until = query.until.unwrap_or(i64::MAX).min(last.saturating_add(1));
    let mut at = query.since.unwrap_or(i64::MIN).max(first);
    let mut width = engine.align(WIDTH_FIRST);
    while at < until && engine.left > 0 {
        let stretch = query.every_ms.map_or(at, |every| at.div_euclid(every) * every);
        let bounds = at..stretch.saturating_add(width).min(until);
        let narrowest = width <= query.every_ms.unwrap_or(1);
        let slice = match take(&snapshot, &bounds, narrowest)? {
            Taken::Stale => {
                snapshot = source.snapshot(query)?.ok_or_else(missing)?;
                continue;
            }
            Taken::TooMuch => {
                width = engine.align(width / 4);
                continue;
            }
            Taken::Slice(slice) => slice,
        };
        let next = slice.next.into_iter().chain(snapshot.next_open(bounds.end)).min();
        match engine.slice(&snapshot, &slice, &bounds, narrowest)? {
            Fit::TooMuch => {
                width = engine.align(width / 4);
                continue;
            }
            Fit::Small => width = engine.align(width.saturating_mul(2).min(WIDTH_MAX)),
            Fit::Full => {}
        }
        // Over the gap to what comes next.
        at = next.map_or(until, |next| next.max(bounds.end));
    }
    engine.finish()
}

/// Chunks that reach into a slice.
struct Slice {
    /// Place of the series in the snapshot, start, bytes.
    chunks: Vec<(usize, i64, Vec<u8>)>,
    bytes: usize,
    /// When the first chunk after the slice begins, or goes on.
    next: Option<i64>,
}

enum Taken {
    /// The file was flushed since the snapshot.
    Stale,
    TooMuch,
    Slice(Slice),
}

/// Copies the chunks that reach into `bounds` out of one read transaction.
fn take(snapshot: &Snapshot, bounds: &Range<i64>, narrowest: bool) -> Result<Taken, QueryError> {
    let taken = snapshot.file.read(|page| {
        let flush = match page.marker()? {
            Marker::Flush(flush) => flush,
            Marker::Missing => 0,
            Marker::TooNew(_) => u64::MAX,
        };
        if flush != snapshot.flush {
            return Ok(Taken::Stale);
        }
        let mut slice = Slice { chunks: Vec::new(), bytes: 0, next: None };
        let mut too_much = false;
        for (at, (id, series, _)) in snapshot.series.iter().enumerate() {
            let extent = series.extent;
            if extent.chunks == 0 || extent.last < bounds.start {
                continue;
            }
            let from = keys::chunk(*id, bounds.start.saturating_sub(extent.span_max), 0);
            page.range(&from, &keys::chunk(*id, i64::MAX, u16::MAX), |key, value| {
                let Some((_, start, _)) = keys::read_chunk(key) else { return Ok(true) };
                let goes_on = |next: i64, slice: &mut Slice| {
                    slice.next = Some(slice.next.map_or(next, |known| known.min(next)));
                };
                if start >= bounds.end {
                    goes_on(start, &mut slice);
                    return Ok(false);
                }
                let end = start.saturating_add(chunk::peek(value).map_or(0, |summary| summary.span));
                if end < bounds.start {
                    return Ok(true);
                }
                if end >= bounds.end {
                    goes_on(bounds.end, &mut slice);
                }
                slice.bytes += value.len();
                if slice.bytes > CHUNK_BYTES_MAX && !narrowest {
                    too_much = true;
                    return Ok(false);
                }
                slice.chunks.push((at, start, value.to_vec()));
                Ok(true)
            })?;
            if too_much {
                return Ok(Taken::TooMuch);
            }
        }
        Ok(Taken::Slice(slice))
    })?;
    Ok(taken)
}

impl Snapshot {
    /// The time of the first reading of a tail from `from` on.
    fn next_open(&self, from: i64) -> Option<i64> {
        let next = |tail: &Vec<TailRow>| {
            tail.get(tail.partition_point(|tail| tail.row.time < from)).map(|t| t.row.time)
        };
        self.series.iter().filter_map(|(.., tail)| next(tail)).min()
    }
}

/// How much a slice turned out to hold.
enum Fit {
    TooMuch,
    Small,
    Full,
}

/// A reading that waits to be put out in order.
struct Waiting {
    time: i64,
    estimated: bool,
    origin: usize,
    payload: Range<usize>,
}

/// Aggregates of one stretch and group.
struct Entry {
    readings: u64,
    /// One for each of [`Engine::fields`].
    cells: Vec<Cell>,
}

struct Engine<'q, 's> {
    query: &'q Query,
    sink: &'s mut dyn Sink,
    left: u64,
    report: Report,
    /// The different fields of the aggregates.
    fields: Vec<Field>,
    entries: Vec<Entry>,
    groups: Vec<Vec<Box<str>>>,
    group_of: BTreeMap<Vec<Box<str>>, usize>,
    entry_of: BTreeMap<(i64, usize), usize>,
}

impl<'q, 's> Engine<'q, 's> {
    fn new(query: &'q Query, sink: &'s mut dyn Sink) -> Self {
        let mut fields: Vec<Field> = Vec::new();
        for aggregate in query.aggregates.iter().filter(|aggregate| aggregate.function != Function::Count) {
            let field = Field::of(aggregate);
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
        Self {
            query,
            sink,
            left: query.limit.unwrap_or(u64::MAX),
            report: Report::default(),
            fields,
            entries: Vec::new(),
            groups: Vec::new(),
            group_of: BTreeMap::new(),
            entry_of: BTreeMap::new(),
        }
    }

    /// A width that is a whole number of stretches, at least one.
    fn align(&self, width: i64) -> i64 {
        let every = self.query.every_ms.unwrap_or(1).max(1);
        (width / every).max(1).saturating_mul(every)
    }

    fn cells_max(&self) -> usize {
        if self.query.aggregates.iter().any(Aggregate::is_percentile) {
            CELLS_WITH_PERCENTILES_MAX
        } else {
            CELLS_MAX
        }
    }

    fn slice(
        &mut self,
        snapshot: &Snapshot,
        slice: &Slice,
        bounds: &Range<i64>,
        narrowest: bool,
    ) -> Result<Fit, QueryError> {
        let mut arena = Vec::new();
        let mut waiting = Vec::new();
        let mut origins: Vec<Origin> = Vec::new();
        let readings = self.report.readings;
        let mut each = |engine: &mut Self, chunk: &Chunk, series: &Series| {
            if engine.query.aggregates.is_empty() {
                engine.collect(chunk, series, bounds, &mut arena, &mut waiting, &mut origins);
                Ok(arena.len() + waiting.len() * size_of::<Waiting>() > ROW_BYTES_MAX)
            } else {
                engine.aggregate(chunk, series, bounds)?;
                Ok::<_, QueryError>(engine.entries.len() > engine.cells_max())
            }
        };
        let mut too_much = false;
        for (at, start, bytes) in &slice.chunks {
            let Some((_, series, _)) = snapshot.series.get(*at) else { continue };
            let Some(chunk) = Chunk::read(*start, bytes) else {
                self.report.damaged += 1;
                continue;
            };
            too_much |= each(self, &chunk, series)?;
            if too_much && !narrowest {
                break;
            }
        }
        for (_, series, tail) in &snapshot.series {
            let from = tail.partition_point(|tail| tail.row.time < bounds.start);
            let to = tail.partition_point(|tail| tail.row.time < bounds.end);
            let open = tail.get(from..to).unwrap_or_default();
            for open in open.chunks(READINGS_MAX) {
                for estimated in [false, true] {
                    let rows = open.iter().filter(|tail| tail.estimated == estimated);
                    let rows: Vec<Row> = rows.map(|tail| tail.row.clone()).collect();
                    if !rows.is_empty() && (!too_much || narrowest) {
                        too_much |= each(self, &Chunk::of(&rows, estimated.then_some(0)), series)?;
                    }
                }
            }
        }
        let is_small = slice.bytes < CHUNK_BYTES_MAX / 4
            && arena.len() < ROW_BYTES_MAX / 4
            && self.entries.len() < self.cells_max() / 4;
        if too_much && !narrowest && (self.query.aggregates.is_empty() || self.query.every_ms.is_some()) {
            self.clear();
            self.report.readings = readings;
            return Ok(Fit::TooMuch);
        }
        waiting.sort_by_key(|waiting: &Waiting| waiting.time);
        for waiting in &waiting {
            let Some(origin) = origins.get(waiting.origin).filter(|_| self.left > 0) else { break };
            self.left -= 1;
            let item = Item {
                time: waiting.time,
                estimated: waiting.estimated,
                origin,
                payload: arena.get(waiting.payload.clone()).unwrap_or_default(),
            };
            if !self.sink.item(&item) {
                self.left = 0;
            }
        }
        if self.query.every_ms.is_some() {
            self.emit();
        } else if too_much && !self.query.aggregates.is_empty() {
            return Err(QueryError::TooManyGroups);
        }
        Ok(if is_small { Fit::Small } else { Fit::Full })
    }

    /// Finds the readings of a chunk that are asked for.
    fn collect(
        &mut self,
        chunk: &Chunk,
        series: &Series,
        bounds: &Range<i64>,
        arena: &mut Vec<u8>,
        waiting: &mut Vec<Waiting>,
        origins: &mut Vec<Origin>,
    ) {
        let bound = Bound::of(self.query, &self.fields, chunk, series);
        let mut known = None;
        for at in range_of(chunk, bounds) {
            self.report.readings += 1;
            let own = bound.own_origin(at);
            let Some(origin) = own.as_ref().or(series.origin.as_ref()) else { continue };
            if own.is_some() && !is_wanted(origin, self.query) || !bound.holds(self.query, at, origin) {
                continue;
            }
            let known_origin = match known {
                Some(known) if own.is_none() => known,
                _ => {
                    origins.push(origin.clone());
                    origins.len() - 1
                }
            };
            known = Some(known_origin);
            let start = arena.len();
            chunk.payload(at, arena);
            waiting.push(Waiting {
                time: chunk.times.get(at).copied().unwrap_or(0),
                estimated: chunk.estimated.is_some(),
                origin: known_origin,
                payload: start..arena.len(),
            });
        }
    }

    /// Adds the readings of a chunk to their stretches and groups.
    fn aggregate(&mut self, chunk: &Chunk, series: &Series, bounds: &Range<i64>) -> Result<(), QueryError> {
        let bound = Bound::of(self.query, &self.fields, chunk, series);
        let range = range_of(chunk, bounds);
        self.report.readings += range.len() as u64;
        let columns: Option<Vec<Vec<f64>>> =
            bound.fields.iter().map(|(located, _)| chunk.numbers(located)).collect();
        if let (Some(columns), Some(group), None, Some(_)) =
            (columns, bound.group(), &self.query.condition, &series.origin)
        {
            let group = self.group(group);
            let mut current = None;
            for at in range {
                let time = chunk.times.get(at).copied().unwrap_or(0);
                let stretch = self.stretch(time);
                let entry = match current {
                    Some((of, entry)) if of == stretch => entry,
                    _ => self.entry(stretch, group),
                };
                current = Some((stretch, entry));
                let Some(entry) = self.entries.get_mut(entry) else { continue };
                entry.readings += 1;
                for (cell, column) in entry.cells.iter_mut().zip(&columns) {
                    if let Some(value) = column.get(at) {
                        cell.add(time, *value);
                    }
                }
            }
            return Ok(());
        }
        for at in range {
            let own = bound.own_origin(at);
            let Some(origin) = own.as_ref().or(series.origin.as_ref()) else { continue };
            if own.is_some() && !is_wanted(origin, self.query) || !bound.holds(self.query, at, origin) {
                continue;
            }
            let time = chunk.times.get(at).copied().unwrap_or(0);
            let group = self.group(bound.group_of(at, origin));
            let entry = self.entry(self.stretch(time), group);
            let Some(entry) = self.entries.get_mut(entry) else { continue };
            entry.readings += 1;
            for (field, cell) in entry.cells.iter_mut().enumerate() {
                if let Some(value) = bound.number(&self.fields, field, at) {
                    cell.add(time, value);
                }
            }
        }
        Ok(())
    }

    fn stretch(&self, time: i64) -> i64 {
        self.query.every_ms.map_or(0, |every| time.div_euclid(every) * every)
    }

    fn group(&mut self, group: Vec<Box<str>>) -> usize {
        if let Some(known) = self.group_of.get(&group) {
            return *known;
        }
        self.groups.push(group.clone());
        self.group_of.insert(group, self.groups.len() - 1);
        self.groups.len() - 1
    }

    fn entry(&mut self, stretch: i64, group: usize) -> usize {
        if let Some(known) = self.entry_of.get(&(stretch, group)) {
            return *known;
        }
        let with_percentiles = self.query.aggregates.iter().any(Aggregate::is_percentile);
        let cells = self.fields.iter().map(|_| Cell::new(with_percentiles)).collect();
        self.entries.push(Entry { readings: 0, cells });
        self.entry_of.insert((stretch, group), self.entries.len() - 1);
        self.entries.len() - 1
    }

    /// Puts the aggregates out, by time and group.
    fn emit(&mut self) {
        let mut order: Vec<(i64, &Vec<Box<str>>, usize)> = Vec::new();
        for ((stretch, group), entry) in &self.entry_of {
            if let Some(group) = self.groups.get(*group) {
                order.push((*stretch, group, *entry));
            }
        }
        order.sort_unstable();
        for (stretch, group, entry) in order {
            let Some(entry) = self.entries.get_mut(entry).filter(|_| self.left > 0) else { break };
            self.left -= 1;
            let fields = &self.fields;
            let value = |aggregate: &Aggregate| {
                #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
                if aggregate.function == Function::Count {
                    return Some(entry.readings as f64);
                }
                let field = fields.iter().position(|field| *field == Field::of(aggregate))?;
                entry.cells.get_mut(field)?.result(aggregate.function)
            };
            let values: Vec<Option<f64>> = self.query.aggregates.iter().map(value).collect();
            let start = self.query.every_ms.map(|_| stretch);
            if !self.sink.bucket(&Bucket { start, group, values: &values }) {
                self.left = 0;
            }
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.entry_of.clear();
        self.groups.clear();
        self.group_of.clear();
    }

    fn finish(mut self) -> Result<Report, QueryError> {
        let single =
            !self.query.aggregates.is_empty() && self.query.by.is_empty() && self.query.every_ms.is_none();
        if single && self.entries.is_empty() {
            let group = self.group(Vec::new());
            self.entry(0, group);
        }
        self.emit();
        Ok(self.report)
    }
}

/// The readings of a chunk whose times are in `bounds`.
fn range_of(chunk: &Chunk, bounds: &Range<i64>) -> Range<usize> {
    let from = chunk.times.partition_point(|time| *time < bounds.start);
    let to = chunk.times.partition_point(|time| *time < bounds.end);
    from..to.max(from)
}
