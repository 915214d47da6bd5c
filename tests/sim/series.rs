//! The series store beside the gateway: on the same disk, served as the daemon's series thread serves it, and a step at
//! a time. And what must hold of readings: each that was acknowledged is found, and none twice.

use std::collections::BTreeMap;

use gatewayd::broker::Broker;
use gatewayd::config::Config;
use gatewayd::gateway::{Gateway, LogState, SeriesRequest, reconcile_series, series_options};
use gatewayd::ingest::Collector;
use gatewayd::ingest::route::{Durability, Filter, Route};
use gatewayd::series::{Bucket, FlushTo, Item, Query, SeriesStore, Sink, Start, run};
use gatewayd::time::Now;

use crate::disk::SimDisk;
use crate::mistakes::Mistake;
use crate::model::{Check, MessageNumber, Model, is_match};
use crate::payload;
use crate::queues::Exchange;

/// What becomes a reading.
pub const ROUTE: &str = "a/#";
pub const COLLECTION: &str = "readings";

/// The open store, and where a flush is.
#[derive(Debug)]
pub struct Series {
    store: SeriesStore,
    collector: Collector,
    flush: Option<(Option<i64>, Vec<FlushTo>)>,
    correct: Option<i64>,
    /// It is synced, and the gateway does not know yet.
    flushed: bool,
    failing: bool,
    mistake: Option<Mistake>,
}

/// Settings with the one route.
fn config() -> Config {
    let mut config = Config::default();
    config.storage.reserve_free = 0;
    config.routes = vec![Route {
        name: "sim".to_owned(),
        filters: vec![Filter::parse(ROUTE).expect("the filter is valid")],
        collection: COLLECTION.to_owned(),
        tags: BTreeMap::new(),
        topic_regex: None,
        durability: Durability::Ack,
    }];
    config
}

impl Series {
    /// Opens the store and gives the recovered broker its collection. The error says whether it is damage, and what.
    pub fn open(
        disk: &SimDisk,
        broker: &mut Broker,
        log: LogState,
        (now, boot, seed): (Now, u32, u64),
        mistake: Option<Mistake>,
    ) -> Result<Self, (bool, String)> {
        let config = config();
        let start = Start {
            number: boot,
            system_boot: boot,
            began_ms: 0,
            estimate_ms: (!now.wall_trusted).then(|| now.wall_ahead_ms()),
        };
        let failed = |error: gatewayd::store::StoreError| (false, error.to_string());
        let (mut store, found) =
            SeriesStore::open(disk.disk(), series_options(&config, start, seed)).map_err(failed)?;
        if !found.damage.is_empty() {
            return Err((true, format!("{:?}", found.damage)));
        }
        if now.wall_trusted {
            store.correct_times(now.wall_ahead_ms()).map_err(failed)?;
        }
        if !reconcile_series(&config, now, broker, &found, log) {
            store.forget_watermarks().map_err(failed)?;
        }
        let collector = Collector::new(config.routes);
        Ok(Self { store, collector, flush: None, correct: None, flushed: false, failing: false, mistake })
    }

    /// Takes what the gateway asks for.
    pub fn serve(&mut self, gateway: &mut Gateway, now: Now) {
        for request in gateway.series_requests(now) {
            match request {
                SeriesRequest::Take(taken) => self.collector.take(taken, &mut self.store),
                SeriesRequest::Forget { collection, before } => self.store.forget(&collection, before),
                SeriesRequest::Flush { parts, now_ms } => {
                    self.flush = Some((now_ms, parts));
                    if self.mistake == Some(Mistake::FlushEarly) {
                        gateway.series_flushed(now);
                    }
                }
                SeriesRequest::Trim { now_ms } => self.failing |= self.store.trim(now_ms).is_err(),
                SeriesRequest::Correct { ahead_ms } => self.correct = Some(ahead_ms),
            }
        }
    }

    /// Does the next step of what waits. True when there was one.
    pub fn step(&mut self, gateway: &mut Gateway, now: Now) -> bool {
        if std::mem::take(&mut self.flushed) {
            gateway.series_flushed(now);
            return true;
        }
        if self.failing {
            self.failing = self.store.reopen().is_err();
            return true;
        }
        if let Some(ahead_ms) = self.correct {
            if self.store.correct_times(ahead_ms).is_ok() {
                self.correct = None;
            }
        } else if let Some((now_ms, parts)) = self.flush.take() {
            match self.store.flush(now_ms, &parts) {
                Ok(()) => self.flushed = self.mistake != Some(Mistake::FlushEarly),
                Err(error) => gateway.series_failing(now, error.to_string()),
            }
        } else {
            return false;
        }
        self.failing = !self.store.is_open();
        true
    }

    /// Readings wait to be flushed.
    pub fn is_pending(&self) -> bool {
        self.store.pending() > 0 || self.flushed
    }

    pub fn close(self) -> bool {
        self.store.close().is_ok()
    }

    /// How often the reading of each message is found. `None` while the file is not open.
    fn found(&self) -> Option<BTreeMap<MessageNumber, u32>> {
        struct Counts(BTreeMap<MessageNumber, u32>);
        impl Sink for Counts {
            fn item(&mut self, item: &Item<'_>) -> bool {
                if let Some(number) = payload::decode(item.payload) {
                    *self.0.entry(number).or_default() += 1;
                }
                true
            }
            fn bucket(&mut self, _: &Bucket<'_>) -> bool {
                true
            }
        }
        let mut counts = Counts(BTreeMap::new());
        let query = Query { collection: COLLECTION.into(), ..Query::default() };
        run(&query, &mut &self.store, &mut counts).ok()?;
        Some(counts.0)
    }

    /// Each reading that was acknowledged is found, but for those whose loss is admitted, and none too often.
    pub fn check(&self, model: &Model, gateway: &Gateway) -> Check {
        let Some(found) = self.found() else { return Ok(()) };
        let mut missing = Vec::new();
        for (message, number) in model.messages.iter().zip(0..) {
            if message.exchange != Exchange::Topic || !is_match(ROUTE, message.topic) {
                continue;
            }
            let found = found.get(&number).copied().unwrap_or(0);
            let most = message.routed_max();
            if found > most {
                return Err(format!("the reading of message {number} is there {found} times, not {most}"));
            }
            let acknowledged = message.instances.iter().filter(|sending| sending.acknowledged_at.is_some());
            let least = if message.qos > 0 { acknowledged.count() } else { 0 };
            if (found as usize) < least {
                missing.push((number, least - found as usize));
            }
        }
        let receipts = gateway.broker().loss_receipts().filter(|receipt| *receipt.queue == *COLLECTION);
        let admitted: u64 = receipts.map(|receipt| receipt.messages).sum();
        if missing.iter().map(|(_, count)| *count as u64).sum::<u64>() > admitted {
            return Err(format!("acknowledged readings are missing, {admitted} are admitted: {missing:?}"));
        }
        Ok(())
    }
}
