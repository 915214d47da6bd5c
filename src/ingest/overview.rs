//! Collections as the HTTP API shows them: what each holds, series by series, and its error lane.

use serde_json::{Value, json};

use super::collector::Collector;
use crate::series::{Extent, SeriesStore};

/// Series that are listed one by one.
const LISTED_MAX: usize = 10_000;

/// All collections.
#[must_use]
pub fn collections(store: &SeriesStore, collector: &Collector) -> Value {
    let names = store.collections();
    Value::Array(names.iter().map(|name| summary(store, collector, name)).collect())
}

/// One collection with its series and its error lane; `None` when there is none of that name.
#[must_use]
pub fn collection(store: &SeriesStore, collector: &Collector, name: &str) -> Option<Value> {
    if !store.collections().contains(name) {
        return None;
    }
    let mut shown = summary(store, collector, name);
    let series = store.series().filter(|(_, series)| &*series.collection == name).take(LISTED_MAX);
    let series: Vec<Value> = series
        .map(|(_, series)| {
            let mut row = extent(&series.extent);
            let tags = series.origin.iter().flat_map(|origin| &origin.tags);
            let tags: serde_json::Map<String, Value> =
                tags.map(|(tag, value)| (tag.to_string(), json!(value))).collect();
            row["topic"] = series.origin.as_ref().map_or(Value::Null, |origin| json!(origin.topic));
            row["tags"] = Value::Object(tags);
            row
        })
        .collect();
    let lane = collector.lane(name);
    shown["series"] = Value::Array(series);
    shown["errors"] = json!({
        "counts": lane.counts,
        "examples": lane.examples.iter().map(|example| json!({
            "topic": example.topic,
            "received_at": example.received_at,
            "why": example.why,
            "payload": example.payload,
        })).collect::<Vec<_>>(),
    });
    Some(shown)
}

fn summary(store: &SeriesStore, collector: &Collector, name: &str) -> Value {
    let mut all = Extent::default();
    let mut count = 0u64;
    for (_, series) in store.series().filter(|(_, series)| &*series.collection == name) {
        let extent = series.extent;
        count += 1;
        if extent.chunks > 0 {
            all.first = if all.chunks == 0 { extent.first } else { all.first.min(extent.first) };
            all.last = if all.chunks == 0 { extent.last } else { all.last.max(extent.last) };
        }
        all.readings += extent.readings;
        all.bytes += extent.bytes;
        all.chunks += extent.chunks;
    }
    let mut row = extent(&all);
    row["name"] = json!(name);
    row["series_count"] = json!(count);
    row["unflushed"] = json!(store.pending_of(name));
    row["shared"] = json!(store.shared_of(name));
    row["malformed"] = json!(collector.lane(name).counts.values().sum::<u64>());
    row
}

fn extent(extent: &Extent) -> Value {
    let time = |time: i64| if extent.chunks == 0 { Value::Null } else { json!(time) };
    json!({
        "readings": extent.readings,
        "bytes": extent.bytes,
        "chunks": extent.chunks,
        "first": time(extent.first),
        "last": time(extent.last),
    })
}
