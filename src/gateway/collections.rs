//! Collections at the start: what the configuration makes of them, and what the row log and `series.redb` hold twice.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::broker::{Broker, CollectionPlan, Overflow, QueueBounds};
use crate::config::{Config, OnCorrupt};
use crate::ids::BatchNumber;
use crate::ingest::route::Durability;
use crate::series::{self, Rules, SeriesOptions, Start};
use crate::time::Now;

/// A reading is charged at least so much of the window.
const READING_BYTES_MIN: u64 = 128;

/// The collections' part of the configuration. `flash_quota_bytes` is what the store grants; readings have a quarter.
pub(super) fn collection_plans(config: &Config, flash_quota_bytes: u64) -> Vec<CollectionPlan> {
    let mut filters: BTreeMap<&str, Vec<(Box<str>, bool)>> = BTreeMap::new();
    for route in &config.routes {
        let durable = route.durability == Durability::Ack;
        let of_collection = filters.entry(&route.collection).or_default();
        for filter in &route.filters {
            match of_collection.iter_mut().find(|(known, _)| **known == *filter.plain) {
                Some((_, known)) => *known |= durable,
                None => of_collection.push((filter.plain.as_str().into(), durable)),
            }
        }
    }
    let bytes_max = flash_quota_bytes / 4 / (filters.len().max(1) as u64);
    let messages_max = u32::try_from(bytes_max / READING_BYTES_MIN).unwrap_or(u32::MAX);
    let bounds = QueueBounds { messages_max, bytes_max, overflow: Overflow::DropOldest };
    filters.into_iter().map(|(name, filters)| CollectionPlan { name: name.into(), filters, bounds }).collect()
}

/// The shortest interval of each collection's routes that have one.
pub(super) fn keep_intervals(config: &Config) -> BTreeMap<Box<str>, Duration> {
    let mut intervals: BTreeMap<Box<str>, Duration> = BTreeMap::new();
    for route in &config.routes {
        if let Durability::Every(interval) = route.durability {
            let known = intervals.entry(route.collection.as_str().into()).or_insert(interval);
            *known = interval.min(*known);
        }
    }
    intervals
}

/// How the series store is to be opened.
#[must_use]
pub fn series_options(config: &Config, start: Start, seed: u64) -> SeriesOptions {
    SeriesOptions {
        bytes_max: config.storage.series_bytes_max,
        reserve_free: config.storage.reserve_free,
        quarantine: config.storage.on_corrupt == OnCorrupt::Quarantine,
        collections: collection_rules(config),
        start,
        seed,
    }
}

/// How long and how much of each collection is kept.
#[must_use]
pub fn collection_rules(config: &Config) -> BTreeMap<Box<str>, Rules> {
    let rules = config.collections.iter().map(|(name, collection)| {
        let retention = collection.retention.map(|kept| i64::try_from(kept.as_millis()).unwrap_or(i64::MAX));
        let rules = Rules {
            retention_ms: retention,
            bytes_max: collection.bytes_max,
            series_max: collection.series_max,
        };
        (name.as_str().into(), rules)
    });
    rules.collect()
}

/// The row log as it was found.
#[derive(Clone, Copy, Debug)]
pub struct LogState {
    /// It is a new one.
    pub created: bool,
    pub last_batch: BatchNumber,
    /// What the store grants for rows.
    pub quota_bytes: u64,
}

/// Gives the recovered broker its collections, and settles what the series store found that it holds already. False:
/// that speaks of another log, and the store is to forget it.
#[must_use]
pub fn reconcile_series(
    config: &Config,
    now: Now,
    broker: &mut Broker,
    found: &series::Found,
    log: LogState,
) -> bool {
    for damage in &found.damage {
        broker.report_damage(now, damage);
    }
    broker.reconcile_collections(now, &collection_plans(config, log.quota_bytes));
    // Keys above the last batch are of a log that is gone: they say nothing about this one, now or later.
    let is_foreign = log.created || found.watermarks.values().any(|key| key.batch() > log.last_batch);
    if is_foreign {
        return found.watermarks.is_empty();
    }
    for (name, key) in &found.watermarks {
        broker.settle_stored(now, name, *key);
    }
    true
}
