//! The series store's own thread: takes readings, flushes them, gives queries their snapshots, feeds those who follow.
//!
//! A flush that failed is told to the gateway, which asks again; a file that cannot be opened after a failure, and a
//! correction of times, are tried again here, with growing pauses. Everything else goes on meanwhile. A query runs on a
//! thread of its own and asks here for snapshots only.
#![expect(
    clippy::disallowed_methods,
    reason = "what failed is tried again when it is due, by the monotonic clock"
)]

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc as to_core;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::gateway::{SeriesRequest, collection_rules};
use crate::http::metrics::SeriesFigures;
use crate::ingest::route::Route;
use crate::ingest::{Collector, Taken, overview};
use crate::series::copy::SeriesBite;
use crate::series::{
    Format, Item, Query, QueryError, Rules, SeriesStore, Snapshot, Source, Writer, put_json, run, takes,
    wants,
};
use crate::store::StoreError;

/// Pause before something is tried again; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A query gets its snapshot within this.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(30);
/// The thread waits so long at most for the end of a copy of the row log.
const HOLD_MAX: Duration = Duration::from_secs(60);
/// Pieces of text that wait for a slow reader.
pub(super) const PIECES_MAX: usize = 4;
/// Readings that wait for a slow follower; more are left out.
const FOLLOWED_MAX: usize = 1024;

/// A piece of an answer, or why it ends.
pub(super) type Piece = Result<Vec<u8>, Failure>;

/// Why a query ended early.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// HTTP's status code for it.
    pub status: u16,
    pub why: String,
}

enum Request {
    Series(Vec<SeriesRequest>),
    Snapshot(Box<Query>, mpsc::SyncSender<Result<Option<Snapshot>, QueryError>>),
    Follow(Box<Query>, to_core::Sender<Piece>),
    /// New routes, and how long and how much of each collection is kept.
    Reconfigure(Vec<Route>, BTreeMap<Box<str>, Rules>),
    Overview(Option<String>, oneshot::Sender<Option<Value>>),
    Figures(oneshot::Sender<SeriesFigures>),
    Delete(Box<Query>, oneshot::Sender<Result<u64, String>>),
    Copy(SeriesStep, oneshot::Sender<Result<SeriesBite, String>>),
    Close,
}

/// A step of a copy of the collections.
#[derive(Debug)]
pub(super) enum SeriesStep {
    Begin,
    /// A bite of about so many bytes.
    Next(usize),
    /// The rest of it. Nothing is stored after that until the other end has sent something, or is gone.
    Last(mpsc::Receiver<()>),
    /// It is given up.
    End,
}

/// What the thread tells the core.
#[derive(Debug)]
pub enum SeriesAnswer {
    Flushed,
    Failing(String),
    Damaged(Vec<String>),
    Closed(Result<(), String>),
}

/// The core's handle on the thread.
#[derive(Clone, Debug)]
pub struct SeriesThread {
    requests: mpsc::Sender<Request>,
}

impl SeriesThread {
    /// Moves the store to a thread of its own.
    ///
    /// # Errors
    /// When the system makes no thread.
    pub fn start(
        store: SeriesStore,
        collector: Collector,
    ) -> std::io::Result<(Self, to_core::Receiver<SeriesAnswer>)> {
        // What waits here is bounded by what the broker's collections may hold.
        let (requests, incoming) = mpsc::channel();
        let (answers, outgoing) = to_core::channel(16);
        let owner = Owner {
            store,
            collector,
            followers: Vec::new(),
            correct: None,
            retry_at: None,
            pause: PAUSE_MIN,
            answers,
        };
        thread::Builder::new().name("series".into()).spawn(move || owner.serve(&incoming))?;
        Ok((Self { requests }, outgoing))
    }

    /// Hands over what the gateway asks for.
    pub fn request(&self, requests: Vec<SeriesRequest>) {
        self.send(Request::Series(requests));
    }

    /// Runs a query on a thread of its own; its text comes in pieces.
    ///
    /// # Errors
    /// When the system makes no thread.
    pub fn query(&self, query: Query, format: Format) -> std::io::Result<to_core::Receiver<Piece>> {
        let (pieces, outgoing) = to_core::channel(PIECES_MAX);
        let mut source = Remote(self.clone());
        thread::Builder::new().name("query".into()).spawn(move || {
            let mut out = |piece: Vec<u8>| pieces.blocking_send(Ok(piece)).is_ok();
            let mut writer = Writer::new(format, &query, &mut out);
            let result = run(&query, &mut source, &mut writer);
            match result {
                Ok(report) => {
                    if report.damaged > 0 {
                        tracing::warn!(
                            collection = %query.collection,
                            chunks = report.damaged,
                            "chunks do not verify and were left out"
                        );
                    }
                    writer.finish();
                }
                Err(error) => {
                    let status = if matches!(error, QueryError::NoCollection(_)) { 404 } else { 503 };
                    let failure = Failure { status, why: error.to_string() };
                    // Nobody listens any more, or is told.
                    drop(pieces.blocking_send(Err(failure)));
                }
            }
        })?;
        Ok(outgoing)
    }

    /// Readings as they come, a line of JSON each.
    pub fn follow(&self, query: Query) -> to_core::Receiver<Piece> {
        let (pieces, outgoing) = to_core::channel(FOLLOWED_MAX);
        self.send(Request::Follow(Box::new(query), pieces));
        outgoing
    }

    /// All collections, or one.
    pub async fn overview(&self, name: Option<String>) -> Option<Value> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Overview(name, reply));
        answer.await.ok().flatten()
    }

    /// What metrics show of all collections.
    pub async fn figures(&self) -> Option<SeriesFigures> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Figures(reply));
        answer.await.ok()
    }

    /// Deletes readings by collection, topic and time; answers how many.
    pub async fn delete(&self, query: Query) -> Result<u64, String> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Delete(Box::new(query), reply));
        answer.await.unwrap_or_else(|_| Err("the gateway is stopping".to_owned()))
    }

    /// Does a step of a copy; answers the bite, or why the copy is over.
    pub(super) async fn copy(&self, step: SeriesStep) -> Result<SeriesBite, String> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Copy(step, reply));
        answer.await.unwrap_or_else(|_| Err("the gateway is stopping".to_owned()))
    }

    /// Takes new settings.
    pub fn reconfigure(&self, config: &Config) {
        self.send(Request::Reconfigure(config.routes.clone(), collection_rules(config)));
    }

    /// Has the file closed; the answer is [`SeriesAnswer::Closed`].
    pub fn close(&self) {
        self.send(Request::Close);
    }

    fn send(&self, request: Request) {
        // The thread lives until it is closed; if it died, the process is about to end.
        drop(self.requests.send(request));
    }
}

/// A query's way to the owner of the store.
struct Remote(SeriesThread);

impl Source for Remote {
    fn snapshot(&mut self, query: &Query) -> Result<Option<Snapshot>, QueryError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.0.send(Request::Snapshot(Box::new(query.clone()), reply));
        answer.recv_timeout(SNAPSHOT_TIMEOUT).unwrap_or(Err(QueryError::Gone))
    }
}

struct Owner {
    store: SeriesStore,
    collector: Collector,
    followers: Vec<(Box<Query>, to_core::Sender<Piece>)>,
    /// A correction of times that did not succeed yet.
    correct: Option<i64>,
    /// What failed is tried again then, whatever requests come.
    retry_at: Option<Instant>,
    pause: Duration,
    answers: to_core::Sender<SeriesAnswer>,
}

impl Owner {
    fn serve(mut self, requests: &mpsc::Receiver<Request>) {
        loop {
            let request = match self.retry_at.map(|at| at.saturating_duration_since(Instant::now())) {
                None => requests.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
                Some(Duration::ZERO) => Err(mpsc::RecvTimeoutError::Timeout),
                Some(left) => requests.recv_timeout(left),
            };
            match request {
                Ok(Request::Series(requests)) => requests.into_iter().for_each(|request| self.act(request)),
                Ok(Request::Snapshot(query, reply)) => drop(reply.send(self.store.snapshot(&query))),
                Ok(Request::Reconfigure(routes, rules)) => {
                    self.collector.set_routes(routes);
                    self.store.set_rules(rules);
                }
                Ok(Request::Follow(query, pieces)) => self.followers.push((query, pieces)),
                Ok(Request::Overview(name, reply)) => {
                    let shown = match name {
                        None => Some(overview::collections(&self.store, &self.collector)),
                        Some(name) => overview::collection(&self.store, &self.collector, &name),
                    };
                    drop(reply.send(shown));
                }
                Ok(Request::Figures(reply)) => {
                    let shown = overview::collections(&self.store, &self.collector);
                    drop(reply.send((shown, self.store.counters())));
                }
                Ok(Request::Delete(query, reply)) => drop(reply.send(self.delete(&query))),
                Ok(Request::Copy(step, reply)) => self.copy(step, reply),
                Ok(Request::Close) => {
                    let closed = self.store.close().map_err(|error| error.to_string());
                    drop(self.answers.blocking_send(SeriesAnswer::Closed(closed)));
                    return;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => self.try_again(),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn copy(&mut self, step: SeriesStep, reply: oneshot::Sender<Result<SeriesBite, String>>) {
        let (bytes_max, hold) = match step {
            SeriesStep::Begin => {
                self.store.begin_copy();
                return drop(reply.send(Ok(SeriesBite::default())));
            }
            SeriesStep::End => {
                self.store.end_copy();
                return drop(reply.send(Ok(SeriesBite::default())));
            }
            SeriesStep::Next(bytes_max) => (bytes_max, None),
            SeriesStep::Last(hold) => (usize::MAX, Some(hold)),
        };
        let bite = self.store.copy_next(bytes_max).map_err(|error| error.to_string());
        let failed = bite.is_err();
        drop(reply.send(bite));
        if let Some(hold) = hold {
            self.store.end_copy();
            if !failed && hold.recv_timeout(HOLD_MAX).is_err() {
                tracing::warn!("a backup was given up: the row log was not copied in time");
            }
        }
    }

    fn act(&mut self, request: SeriesRequest) {
        match request {
            SeriesRequest::Take(taken) => self.take(taken),
            SeriesRequest::Forget { collection, before } => self.store.forget(&collection, before),
            SeriesRequest::Flush { parts, now_ms } => {
                let flushed = self.store.flush(now_ms, &parts);
                self.tell_damage();
                let answer = match flushed {
                    Ok(()) => SeriesAnswer::Flushed,
                    Err(error) => SeriesAnswer::Failing(error.to_string()),
                };
                drop(self.answers.blocking_send(answer));
                self.retry_if_needed();
            }
            SeriesRequest::Trim { now_ms } => {
                if let Err(error) = self.store.trim(now_ms) {
                    self.recover("what is too old was not removed", &error);
                }
            }
            SeriesRequest::Correct { ahead_ms } => {
                tracing::info!("the clock is trusted; estimated times are corrected");
                self.correct = Some(ahead_ms);
                self.correct();
            }
        }
    }

    fn take(&mut self, taken: Taken) {
        if !self.followers.is_empty() {
            self.tell_followers(&taken);
        }
        self.collector.take(taken, &mut self.store);
    }

    fn tell_followers(&mut self, taken: &Taken) {
        let origin = self.collector.origin(&taken.collection, &taken.topic);
        let item = Item {
            time: taken.received_at,
            estimated: taken.estimated.is_some(),
            origin: &origin,
            payload: &taken.payload,
        };
        self.followers.retain(|(query, pieces)| {
            if *query.collection != *taken.collection || !wants(query, &item) {
                return !pieces.is_closed();
            }
            let mut line = Vec::new();
            put_json(&mut line, &item);
            line.push(b'\n');
            // A follower that is too slow misses readings; the collection has them.
            !matches!(pieces.try_send(Ok(line)), Err(to_core::error::TrySendError::Closed(_)))
        });
    }

    /// After a failure what is stored can be read again at once, if the file opens.
    fn recover(&mut self, what: &'static str, error: &StoreError) {
        tracing::error!(%error, "{what}");
        if self.store.reopen().is_ok() {
            self.tell_damage();
        }
        self.retry_if_needed();
    }

    fn retry_if_needed(&mut self) {
        if self.store.is_open() && self.correct.is_none() {
            (self.retry_at, self.pause) = (None, PAUSE_MIN);
        } else if self.retry_at.is_none() {
            self.retry_at = Some(Instant::now() + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    fn try_again(&mut self) {
        self.retry_at = None;
        if !self.store.is_open()
            && let Err(error) = self.store.reopen()
        {
            tracing::error!(%error, "the file of the collections does not open");
            return self.retry_if_needed();
        }
        self.tell_damage();
        self.correct();
    }

    fn correct(&mut self) {
        let Some(ahead_ms) = self.correct else { return self.retry_if_needed() };
        match self.store.correct_times(ahead_ms) {
            Ok(()) => {
                self.correct = None;
                self.retry_if_needed();
            }
            Err(error) => self.recover("estimated times were not corrected", &error),
        }
    }

    fn tell_damage(&mut self) {
        let damage = self.store.take_damage();
        if !damage.is_empty() {
            drop(self.answers.blocking_send(SeriesAnswer::Damaged(damage)));
        }
    }

    fn delete(&mut self, query: &Query) -> Result<u64, String> {
        let topic = query.topic.clone();
        let wanted =
            |origin: &crate::series::Origin| topic.as_deref().is_none_or(|topic| takes(topic, &origin.topic));
        let span = query.since.unwrap_or(i64::MIN)..query.until.unwrap_or(i64::MAX);
        self.store.delete(&query.collection, &wanted, span).map_err(|error| {
            self.recover("readings were not deleted", &error);
            error.to_string()
        })
    }
}
