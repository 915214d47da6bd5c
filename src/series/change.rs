//! What one transaction does to `series.redb`: tails are merged into chunks, bounds are kept, spans removed, times
//! corrected. Extents are kept aside until the transaction is synced, so that an error leaves the store as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::chunk::{self, Chunk, READINGS_MAX, Row, Summary};
use super::database::{Rows, edge, has, put, remove};
use super::keys;
use super::registry::{Extent, Origin, Registry, SeriesId, put_series};
use super::store::{FILE_BYTES_MIN, FlushTo, Pending, SeriesCounters, SeriesOptions, accepts};
use crate::ids::RowKey;
use crate::store::StoreError;

/// A chunk with fewer bytes takes more readings.
const OPEN_BYTES_MAX: usize = 3_300;
/// Chunks that one transaction removes to keep the bounds, or corrects; the next goes on.
pub(super) const REMOVALS_MAX: usize = 512;
/// Chunks that a retention time has at least, however few readings come.
const SPANS_KEPT: i64 = 16;
/// What holds once the transaction is synced.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub extents: BTreeMap<SeriesId, Extent>,
    /// Series whose records were removed because they hold nothing.
    pub removed: BTreeSet<SeriesId>,
    pub counters: SeriesCounters,
}

/// One transaction's changes.
pub(super) struct Change<'s> {
    pub registry: &'s Registry,
    pub tails: &'s BTreeMap<SeriesId, Vec<Pending>>,
    pub unwritten: &'s BTreeSet<SeriesId>,
    pub options: &'s SeriesOptions,
    pub outcome: Outcome,
}

impl Change<'_> {
    /// Merges the tails up to each collection's `through` into chunks, and keeps how far that is. Of each collection's
    /// readings all but a 2^-`halvings`th part, the newest, end at once.
    pub fn store_tails(
        &mut self,
        rows: &mut Rows<'_>,
        parts: &[FlushTo],
        halvings: u32,
    ) -> Result<(), StoreError> {
        for part in parts {
            let from = self.first_kept(part, halvings);
            for (id, tail) in self.tails {
                if self.registry.get(*id).is_none_or(|series| *series.collection != *part.collection) {
                    continue;
                }
                let ended = tail.iter().take_while(|pending| pending.sequence < from).count();
                self.outcome.counters.expired += ended as u64;
                let due = tail.iter().skip(ended).take_while(|pending| pending.sequence <= part.through);
                let mut by_start: BTreeMap<Option<u32>, Vec<Row>> = BTreeMap::new();
                for pending in due {
                    by_start.entry(pending.estimated).or_default().push(pending.row.clone());
                }
                for (estimated, due) in by_start {
                    self.outcome.counters.readings += due.len() as u64;
                    self.merge(rows, *id, due, estimated)?;
                }
            }
            if part.row_key != RowKey(0) {
                put(rows, &keys::watermark(&part.collection), &part.row_key.0.to_le_bytes())?;
            }
        }
        Ok(())
    }

    /// The sequence of the first reading of `part` that is stored.
    fn first_kept(&self, part: &FlushTo, halvings: u32) -> u64 {
        if halvings == 0 {
            return 0;
        }
        let of = |id: &SeriesId| {
            self.registry.get(*id).is_some_and(|series| *series.collection == *part.collection)
        };
        let tails = self.tails.iter().filter(|(id, _)| of(id)).flat_map(|(_, tail)| tail);
        let mut due: Vec<u64> =
            tails.map(|pending| pending.sequence).filter(|sequence| *sequence <= part.through).collect();
        due.sort_unstable();
        let kept = due.len().checked_shr(halvings).unwrap_or(0);
        due.get(due.len() - kept).copied().unwrap_or_else(|| part.through.saturating_add(1))
    }

    /// Removes the oldest chunks of all, at most `removals_max` of them, while there are more bytes than `bytes_max`.
    pub fn keep_newest(
        &mut self,
        rows: &mut Rows<'_>,
        bytes_max: u64,
        mut removals_max: usize,
    ) -> Result<(), StoreError> {
        let ids: Vec<SeriesId> = self.registry.iter().map(|(id, _)| id).collect();
        self.keep_bytes(rows, &ids, bytes_max, &mut removals_max)
    }

    /// Removes what is too old, and the oldest of what is too much.
    pub fn keep_bounds(&mut self, rows: &mut Rows<'_>, now_ms: Option<i64>) -> Result<(), StoreError> {
        let mut left = REMOVALS_MAX;
        let all: Vec<(SeriesId, Box<str>)> =
            self.registry.iter().map(|(id, series)| (id, series.collection.clone())).collect();
        for (id, collection) in &all {
            let retention = self.options.collections.get(collection).and_then(|rules| rules.retention_ms);
            let Some(cutoff) = retention.zip(now_ms).map(|(kept, now)| now.saturating_sub(kept)) else {
                continue;
            };
            while left > 0 && self.extent(*id).chunks > 0 && self.extent(*id).first < cutoff {
                if !self.remove_first(rows, *id, Some(cutoff))? {
                    break;
                }
                left -= 1;
            }
        }
        let names: BTreeSet<&str> = all.iter().map(|(_, name)| &**name).collect();
        for name in names {
            let bytes_max = self.options.collections.get(name).map_or(u64::MAX, |rules| rules.bytes_max);
            let ids: Vec<SeriesId> = all.iter().filter(|(_, of)| &**of == name).map(|(id, _)| *id).collect();
            self.keep_bytes(rows, &ids, bytes_max, &mut left)?;
        }
        let ids: Vec<SeriesId> = all.iter().map(|(id, _)| *id).collect();
        self.keep_bytes(rows, &ids, usable_bytes(self.options.bytes_max), &mut left)
    }

    fn keep_bytes(
        &mut self,
        rows: &mut Rows<'_>,
        ids: &[SeriesId],
        bytes_max: u64,
        left: &mut usize,
    ) -> Result<(), StoreError> {
        while *left > 0 && ids.iter().map(|id| self.extent(*id).bytes).sum::<u64>() > bytes_max {
            let oldest = ids.iter().copied().filter(|id| self.extent(*id).chunks > 0);
            let Some(oldest) = oldest.min_by_key(|id| self.extent(*id).first) else { return Ok(()) };
            if !self.remove_first(rows, oldest, None)? {
                return Ok(());
            }
            *left -= 1;
        }
        Ok(())
    }

    /// Removes readings whose origin `wanted` accepts, with times in `span`. Answers how many.
    pub fn delete(
        &mut self,
        rows: &mut Rows<'_>,
        collection: &str,
        wanted: &dyn Fn(&Origin) -> bool,
        span: &Range<i64>,
    ) -> Result<u64, StoreError> {
        let mut deleted = 0;
        let registry = self.registry;
        for (id, series) in registry.iter().filter(|(_, series)| &*series.collection == collection) {
            if series.origin.as_ref().is_some_and(|origin| !wanted(origin)) {
                continue;
            }
            let mut from = keys::chunk(id, span.start.saturating_sub(self.extent(id).span_max), 0).to_vec();
            let to = keys::chunk(id, span.end, 0);
            while let Some((key, bytes)) = edge(rows, (&from, &to), false)? {
                from = key.clone();
                from.push(0);
                let Some((_, start, _)) = keys::read_chunk(&key) else { continue };
                let Some(summary) = chunk::summary(&bytes) else { continue };
                let end = start.saturating_add(summary.span);
                let whole = series.origin.is_some() && start >= span.start && end < span.end;
                let kept = if whole {
                    Vec::new()
                } else {
                    let Some(chunk) = Chunk::read(start, &bytes) else { continue };
                    let mut kept = chunk.rows();
                    kept.retain(|row| {
                        !span.contains(&row.time) || !accepts(series, row.identity.as_deref(), wanted)
                    });
                    kept
                };
                if kept.len() == summary.readings {
                    continue;
                }
                deleted += (summary.readings - kept.len()) as u64;
                self.remove_chunk(rows, id, &key, bytes.len(), summary)?;
                self.add(rows, id, &kept, summary.estimated)?;
            }
        }
        Ok(deleted)
    }

    /// Moves chunks that start number `start` estimated by `shift`, at most [`REMOVALS_MAX`] of them.
    pub fn correct(&mut self, rows: &mut Rows<'_>, start: u32, shift: i64) -> Result<(), StoreError> {
        let from = keys::estimated(start, &[]);
        let to = keys::estimated(start, &[u8::MAX]);
        for _ in 0..REMOVALS_MAX {
            let Some((key, _)) = edge(rows, (&from, &to), false)? else { break };
            remove(rows, &key)?;
            let chunk_key = key.get(from.len()..).unwrap_or_default();
            let Some((id, start, _)) = keys::read_chunk(chunk_key) else { continue };
            let found = edge(rows, (chunk_key, &[chunk_key, &[0]].concat()), false)?;
            let Some((_, bytes)) = found else { continue };
            let (Some(summary), Some(chunk)) = (chunk::summary(&bytes), Chunk::read(start, &bytes)) else {
                continue;
            };
            let mut moved = chunk.rows();
            for row in &mut moved {
                row.time = row.time.saturating_add(shift);
            }
            self.remove_chunk(rows, id, chunk_key, bytes.len(), summary)?;
            self.merge(rows, id, moved, None)?;
        }
        Ok(())
    }

    /// Writes the records of the series that changed.
    pub fn finish(&mut self, rows: &mut Rows<'_>) -> Result<(), StoreError> {
        let mut record = Vec::new();
        for (id, extent) in &self.outcome.extents {
            let (name_key, extent_key) =
                (keys::of_series(keys::SERIES, *id), keys::of_series(keys::EXTENT, *id));
            if extent.chunks == 0 {
                remove(rows, &name_key)?;
                remove(rows, &extent_key)?;
                self.outcome.removed.insert(*id);
                continue;
            }
            if self.unwritten.contains(id)
                && let Some(series) = self.registry.get(*id)
            {
                record.clear();
                put_series(&mut record, series);
                put(rows, &name_key, &record)?;
            }
            record.clear();
            extent.put(&mut record);
            put(rows, &extent_key, &record)?;
        }
        Ok(())
    }

    /// Puts readings into the chunk before them, if that has room, else into new ones.
    fn merge(
        &mut self,
        rows: &mut Rows<'_>,
        id: SeriesId,
        mut due: Vec<Row>,
        estimated: Option<u32>,
    ) -> Result<(), StoreError> {
        due.sort_by_key(|row| row.time);
        let Some(first) = due.first() else { return Ok(()) };
        let from = keys::chunk(id, i64::MIN, 0);
        let to = keys::chunk(id, first.time, u16::MAX);
        if let Some((key, bytes)) = edge(rows, (&from, &to), true)? {
            let start = keys::read_chunk(&key).map_or(0, |(_, start, _)| start);
            match (chunk::summary(&bytes), Chunk::read(start, &bytes)) {
                (Some(summary), Some(chunk)) => {
                    let has_room = summary.readings < READINGS_MAX
                        && bytes.len() < OPEN_BYTES_MAX
                        && first.time.saturating_sub(start) < self.span_max(id);
                    if has_room && summary.estimated == estimated {
                        self.remove_chunk(rows, id, &key, bytes.len(), summary)?;
                        let mut all = chunk.rows();
                        all.append(&mut due);
                        all.sort_by_key(|row| row.time);
                        due = all;
                    }
                }
                _ => self.set_aside(rows, id, &key, &bytes)?,
            }
        }
        let span_max = self.span_max(id);
        let mut rest = due.as_slice();
        while let Some(first) = rest.first() {
            let near = rest.partition_point(|row| row.time.saturating_sub(first.time) < span_max);
            let (now, later) = rest.split_at(near.max(1));
            self.add(rows, id, now, estimated)?;
            rest = later;
        }
        Ok(())
    }

    /// Adds readings, which are in order, as new chunks.
    fn add(
        &mut self,
        rows: &mut Rows<'_>,
        id: SeriesId,
        due: &[Row],
        estimated: Option<u32>,
    ) -> Result<(), StoreError> {
        for packed in chunk::pack(due, estimated) {
            let mut number = 0u16;
            let key = loop {
                let key = keys::chunk(id, packed.start, number);
                if number == u16::MAX || !has(rows, &key)? {
                    break key;
                }
                number += 1;
            };
            put(rows, &key, &packed.bytes)?;
            if let Some(start) = estimated {
                put(rows, &keys::estimated(start, &key), &[])?;
            }
            let extent = self.extent_mut(id);
            let end = packed.start.saturating_add(packed.summary.span);
            let is_first = extent.chunks == 0;
            extent.first = if is_first { packed.start } else { extent.first.min(packed.start) };
            extent.last = if is_first { end } else { extent.last.max(end) };
            extent.span_max = extent.span_max.max(packed.summary.span);
            extent.chunks += 1;
            extent.readings += packed.summary.readings as u64;
            extent.bytes += packed.bytes.len() as u64;
        }
        Ok(())
    }

    /// Removes the first chunk of a series, if all of it lies before `cutoff`. Of a chunk whose times are estimates
    /// nobody knows how old it is: only want of room ends it.
    fn remove_first(
        &mut self,
        rows: &mut Rows<'_>,
        id: SeriesId,
        cutoff: Option<i64>,
    ) -> Result<bool, StoreError> {
        let (from, to) = (keys::chunk(id, i64::MIN, 0), keys::chunk(id, i64::MAX, u16::MAX));
        let Some((mut key, mut bytes)) = edge(rows, (&from, &to), false)? else {
            *self.extent_mut(id) = Extent::default();
            return Ok(false);
        };
        self.extent_mut(id).first = keys::read_chunk(&key).map_or(0, |(_, start, _)| start);
        let summary = loop {
            let start = keys::read_chunk(&key).map_or(0, |(_, start, _)| start);
            let Some(summary) = chunk::summary(&bytes) else {
                self.set_aside(rows, id, &key, &bytes)?;
                return Ok(true);
            };
            let Some(cutoff) = cutoff else { break summary };
            if summary.estimated.is_none() {
                if start.saturating_add(summary.span) >= cutoff {
                    return Ok(false);
                }
                break summary;
            }
            key.push(0);
            match edge(rows, (&key, &to), false)? {
                Some(next) => (key, bytes) = next,
                None => return Ok(false),
            }
        };
        self.remove_chunk(rows, id, &key, bytes.len(), summary)?;
        self.outcome.counters.expired += summary.readings as u64;
        if let Some((key, _)) = edge(rows, (&from, &to), false)? {
            self.extent_mut(id).first = keys::read_chunk(&key).map_or(0, |(_, start, _)| start);
        }
        Ok(true)
    }

    fn remove_chunk(
        &mut self,
        rows: &mut Rows<'_>,
        id: SeriesId,
        key: &[u8],
        bytes: usize,
        summary: Summary,
    ) -> Result<(), StoreError> {
        remove(rows, key)?;
        if let Some(start) = summary.estimated {
            remove(rows, &keys::estimated(start, key))?;
        }
        let extent = self.extent_mut(id);
        extent.chunks = extent.chunks.saturating_sub(1);
        extent.readings = extent.readings.saturating_sub(summary.readings as u64);
        extent.bytes = extent.bytes.saturating_sub(bytes as u64);
        Ok(())
    }

    /// Keeps a chunk that does not verify out of the way.
    fn set_aside(
        &mut self,
        rows: &mut Rows<'_>,
        id: SeriesId,
        key: &[u8],
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        remove(rows, key)?;
        put(rows, &[&[keys::DAMAGED], key].concat(), bytes)?;
        self.outcome.counters.chunks_damaged += 1;
        let extent = self.extent_mut(id);
        extent.chunks = extent.chunks.saturating_sub(1);
        extent.bytes = extent.bytes.saturating_sub(bytes.len() as u64);
        Ok(())
    }

    /// How long after its first reading a chunk takes more. A chunk ends as a whole, so it must not hold more than a
    /// part of what is kept.
    fn span_max(&self, id: SeriesId) -> i64 {
        let rules = self.registry.get(id).and_then(|series| self.options.collections.get(&series.collection));
        rules.and_then(|rules| rules.retention_ms).map_or(i64::MAX, |kept| (kept / SPANS_KEPT).max(1))
    }

    fn extent(&self, id: SeriesId) -> Extent {
        let changed = self.outcome.extents.get(&id).copied();
        changed.or_else(|| self.registry.get(id).map(|series| series.extent)).unwrap_or_default()
    }

    fn extent_mut(&mut self, id: SeriesId) -> &mut Extent {
        let known = self.extent(id);
        self.outcome.extents.entry(id).or_insert(known)
    }
}

/// Bytes of chunks that fit a file whose cap is `bytes_max`: leaves are not full, values beyond a page take up to twice
/// their size, and what a transaction replaces is there until the one after the next.
pub(super) fn usable_bytes(bytes_max: u64) -> u64 {
    bytes_max.max(FILE_BYTES_MIN) / 2
}
