//! The series side of the driver: what the daemon's series thread does, as a part of the round.

use gatewayd::broker::Broker;
use gatewayd::config::Config;
use gatewayd::gateway::{Gateway, LogState, SeriesRequest, reconcile_series, series_options};
use gatewayd::ingest::Collector;
use gatewayd::series::{FlushTo, Item, Query, SeriesStore, Sink, Start, put_json, run};
use gatewayd::time::Now;

use super::disk::SimDisk;

/// The open store, and a flush that waits.
pub struct Series {
    pub store: SeriesStore,
    pub collector: Collector,
    /// Flushes wait until [`Series::held`] is false again.
    pub held: bool,
    /// Flushes fail until [`Series::refuses`] is false again.
    pub refuses: bool,
    flush: Option<(Option<i64>, Vec<FlushTo>)>,
    pub flushes: u64,
}

impl Series {
    pub fn open(
        config: &Config,
        disk: &SimDisk,
        broker: &mut Broker,
        log: LogState,
        (now, start, seed): (Now, Start, u64),
    ) -> Self {
        let opened = SeriesStore::open(disk.disk(), series_options(config, start, seed));
        let (mut store, found) = opened.expect("the series store always opens");
        assert_eq!(found.damage, Vec::<String>::new());
        if now.wall_trusted {
            store.correct_times(now.wall_ahead_ms()).expect("the disk works");
        }
        if !reconcile_series(config, now, broker, &found, log) {
            store.forget_watermarks().expect("the disk works");
        }
        let collector = Collector::new(config.routes.clone());
        Self { store, collector, held: false, refuses: false, flush: None, flushes: 0 }
    }

    /// Does what the gateway asks for. True when there was something.
    pub fn serve(&mut self, gateway: &mut Gateway, now: Now) -> bool {
        let requests = gateway.series_requests(now);
        let mut moved = !requests.is_empty();
        for request in requests {
            match request {
                SeriesRequest::Take(taken) => self.collector.take(taken, &mut self.store),
                SeriesRequest::Forget { collection, before } => self.store.forget(&collection, before),
                SeriesRequest::Flush { parts, now_ms } => self.flush = Some((now_ms, parts)),
                SeriesRequest::Trim { now_ms } => self.store.trim(now_ms).expect("the disk takes it"),
                SeriesRequest::Correct { ahead_ms } => {
                    self.store.correct_times(ahead_ms).expect("the disk takes it");
                }
            }
        }
        if !self.held
            && let Some((now_ms, parts)) = self.flush.take()
        {
            let flushed = if self.refuses {
                Err("held".to_owned())
            } else {
                self.store.flush(now_ms, &parts).map_err(|error| error.to_string())
            };
            match flushed {
                Ok(()) => {
                    self.flushes += 1;
                    gateway.series_flushed(now);
                }
                Err(why) => gateway.series_failing(now, why),
            }
            moved = true;
        }
        moved
    }

    /// The readings of a collection as JSON objects, in order of time.
    pub fn readings(&self, collection: &str) -> Vec<serde_json::Value> {
        struct Lines(Vec<serde_json::Value>);
        impl Sink for Lines {
            fn item(&mut self, item: &Item<'_>) -> bool {
                let mut text = Vec::new();
                put_json(&mut text, item);
                self.0.push(serde_json::from_slice(&text).expect("a reading is shown as JSON"));
                true
            }
            fn bucket(&mut self, _: &gatewayd::series::Bucket<'_>) -> bool {
                true
            }
        }
        let mut lines = Lines(Vec::new());
        let query = Query { collection: collection.into(), ..Query::default() };
        run(&query, &mut &self.store, &mut lines).expect("the collection is there");
        lines.0
    }
}
