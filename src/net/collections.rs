//! The life of the collections in the daemon: `series.redb` is opened before the first message comes, and closed when
//! the last is flushed.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::clock::{self, Clock};
use super::core::Core;
use super::series_thread::SeriesAnswer;
use crate::broker::Broker;
use crate::config::Config;
use crate::gateway::{LogState, reconcile_series, series_options};
use crate::ingest::Collector;
use crate::series::{SeriesStore, Start};
use crate::store::{Disk, Recovery, StoreError};

/// Pause before a stop has the last readings flushed again.
const FLUSH_PAUSE: Duration = Duration::from_millis(500);

/// Opens the series store beside the row log that was recovered. Answers what was damaged, too.
pub(super) fn open(
    config: &Config,
    disk: Arc<dyn Disk>,
    broker: &mut Broker,
    (recovery, quota_bytes): (&Recovery, u64),
    (clock, seed): (Clock, u64),
) -> Result<((SeriesStore, Collector), Vec<String>), StoreError> {
    let now = clock.now();
    let start = Start {
        number: recovery.boot,
        system_boot: clock::system_boot(),
        began_ms: clock.began_system_ms(),
        estimate_ms: (!now.wall_trusted).then(|| now.wall_ahead_ms()),
    };
    let (mut store, found) = SeriesStore::open(disk, series_options(config, start, seed))?;
    if now.wall_trusted {
        // What an earlier start of this boot could not know.
        store.correct_times(now.wall_ahead_ms())?;
    }
    for damage in &found.damage {
        tracing::error!(%damage, "collections were damaged");
    }
    let log = LogState { created: recovery.created, last_batch: recovery.last_batch, quota_bytes };
    if !reconcile_series(config, now, broker, &found, log) {
        store.forget_watermarks()?;
    }
    Ok(((store, Collector::new(config.routes.clone())), found.damage))
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
                core.gateway.borrow_mut().series_failing(now, why);
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

/// Waits until everything that may be stored is stored, or a try to do so has failed. The error says why.
pub(super) async fn flush(core: &Rc<Core>) -> Result<(), String> {
    core.gateway.borrow_mut().want_series_flush();
    core.round();
    while core.gateway.borrow().is_series_flushing() {
        tokio::time::sleep(Duration::from_millis(2)).await;
        core.round();
    }
    core.gateway.borrow().series_failure().map_or(Ok(()), |why| Err(why.to_owned()))
}

/// Waits until everything that may be stored is stored, however often that fails.
pub(super) async fn flush_all(core: &Rc<Core>) {
    while flush(core).await.is_err() {
        tokio::time::sleep(FLUSH_PAUSE).await;
    }
}
