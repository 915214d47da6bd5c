//! The life of the collections in the daemon: `series.redb` is opened before the first message comes, and closed when
//! the last is flushed.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::core::Core;
use super::series_thread::SeriesAnswer;
use crate::broker::Broker;
use crate::config::{Config, OnCorrupt};
use crate::gateway::collection_plans;
use crate::ingest::Collector;
use crate::series::{Rules, SeriesOptions, SeriesStore};
use crate::store::{Disk, Recovery, StoreError};
use crate::time::Now;

/// Opens the series store, gives the broker its collections, and settles what is stored already.
pub(super) fn open(
    config: &Config,
    disk: Arc<dyn Disk>,
    broker: &mut Broker,
    found: &Recovery,
    (now, seed, quota_bytes): (Now, u64, u64),
) -> Result<(SeriesStore, Collector), StoreError> {
    let rules = config.collections.iter().map(|(name, collection)| {
        let retention = collection.retention.map(|kept| i64::try_from(kept.as_millis()).unwrap_or(i64::MAX));
        let rules = Rules {
            retention_ms: retention,
            bytes_max: collection.bytes_max,
            series_max: collection.series_max,
        };
        (name.as_str().into(), rules)
    });
    let options = SeriesOptions {
        bytes_max: config.storage.series_bytes_max,
        reserve_free: config.storage.reserve_free,
        quarantine: config.storage.on_corrupt == OnCorrupt::Quarantine,
        collections: rules.collect(),
        boot: found.boot,
        seed,
    };
    let (mut store, opened) = SeriesStore::open(disk, options)?;
    for damage in &opened.damage {
        tracing::error!(%damage, "collections were damaged");
        broker.report_damage(now, damage);
    }
    broker.reconcile_collections(now, &collection_plans(config, quota_bytes));
    // Keys above the last batch are of a log that is gone: they say nothing about this one, now or later.
    let is_foreign = found.created || opened.watermarks.values().any(|key| key.batch() > found.last_batch);
    if is_foreign {
        if !opened.watermarks.is_empty() {
            store.forget_watermarks()?;
        }
    } else {
        for (name, key) in &opened.watermarks {
            broker.settle_stored(now, name, *key);
        }
    }
    Ok((store, Collector::new(config.routes.clone())))
}

/// Takes what the series store's thread tells; ends when it has closed.
pub(super) async fn take_answers(
    core: Rc<Core>,
    mut answers: mpsc::Receiver<SeriesAnswer>,
    closed: mpsc::Sender<()>,
) {
    while let Some(answer) = answers.recv().await {
        let now = core.clock.get().now();
        match answer {
            SeriesAnswer::Flushed => core.gateway.borrow_mut().series_flushed(now),
            SeriesAnswer::Failing(why) => {
                tracing::error!(%why, "collections are not stored; readings wait in the row log");
                core.gateway.borrow_mut().series_failing(why);
            }
            SeriesAnswer::Damaged(damage) => {
                for what in &damage {
                    tracing::error!(damage = %what, "collections were damaged");
                }
                core.gateway.borrow_mut().report_damage(now, &damage);
            }
            SeriesAnswer::Closed(result) => {
                if let Err(error) = result {
                    tracing::error!(%error, "the collections did not close cleanly");
                }
                if closed.send(()).await.is_err() {
                    tracing::debug!("nobody waited for the collections to close");
                }
                return;
            }
        }
        core.kick();
    }
}

/// Waits until everything that may be stored is stored.
pub(super) async fn flush(core: &Rc<Core>) {
    core.gateway.borrow_mut().want_series_flush();
    core.round();
    while core.gateway.borrow().is_series_flushing() {
        tokio::time::sleep(Duration::from_millis(2)).await;
        core.round();
    }
}
