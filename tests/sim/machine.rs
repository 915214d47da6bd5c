//! The real gateway and its real store on the simulated disk, driven as the daemon drives them.
//!
//! A batch takes its time: it is handed over, later written, later still reported, and the next one fills meanwhile.
//! At each of these moments the power may go.

use std::collections::{BTreeMap, VecDeque};

use gatewayd::broker::{BacklogRequest, Policy, QueueKind, QueueStatus, Recovered, RecoverySummary};
use gatewayd::gateway::{Gateway, GatewayPolicy, LogState, StoreCondition};
use gatewayd::ids::{BatchNumber, RowKey};
use gatewayd::mqtt::connection::ServerPolicy;
use gatewayd::store::chunk::{BacklogChanged, ChunkRead, ChunkRows};
use gatewayd::store::{Batch, OnCorrupt, Persisted, Store, StoreOptions};
use gatewayd::time::Now;

use crate::disk::SimDisk;
use crate::mistakes::{self, Mistake};
use crate::model::Check;
use crate::plan::Plan;
use crate::series::Series;
use crate::trace::Trace;

/// Where the batch under way is.
#[derive(Debug)]
pub enum Writing {
    Idle,
    /// The store has it and has not begun.
    Handed(Batch),
    /// It is on flash, and the gateway does not know yet.
    Written(Persisted),
}

/// What the backlog answered, and the gateway does not know yet.
#[derive(Debug)]
enum Answer {
    Changed(Option<BacklogChanged>),
    Read(Option<ChunkRows>),
}

/// What recovery must find again: the durable state at the moment a batch was closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub batch: BatchNumber,
    /// Durable sessions: subscriptions, messages charged, bytes charged, values not yet charged.
    pub queues: BTreeMap<Box<str>, (usize, u32, u64, usize)>,
    pub retained: usize,
    pub retained_bytes: u64,
}

/// A stop waits for the disk so many attempts long.
const STOP_TRIES_MAX: u32 = 40;

#[derive(Debug)]
pub struct Machine {
    pub disk: SimDisk,
    pub gateway: Gateway,
    /// `None` once the machine has ended.
    store: Option<Store>,
    pub series: Option<Series>,
    pub writing: Writing,
    pub summary: RecoverySummary,
    /// Newest last; the store is at most one batch ahead of what was reported.
    snapshots: Vec<Snapshot>,
    /// Steps at which batches were closed, for those not reported yet.
    closed: Vec<(BatchNumber, u64)>,
    /// What the conservation of copies starts from.
    baseline: u64,
    mistake: Option<Mistake>,
    /// Batches that were reported before they were written, by mistake.
    reported: VecDeque<Batch>,
    /// What is asked of the backlog, and what it answered.
    requests: VecDeque<BacklogRequest>,
    answers: VecDeque<Answer>,
    /// Chunks that were moved to the backlog, and read back.
    pub moved: u64,
    pub read_back: u64,
    /// The disk failed: the store is to be opened again before anything else.
    pub failing: bool,
    /// A file was damaged, and what memory knows is being written again.
    pub damaged: bool,
    pub written_anew: u64,
    /// The medium changed since the files were last verified.
    pub suspect: bool,
}

/// What stopped a start.
#[derive(Debug)]
pub enum StartError {
    /// The power went again.
    PowerCut,
    /// The disk failed.
    Disk(String),
    /// The store is not whole.
    Damaged(String),
}

impl Machine {
    /// Opens the store on `disk` and makes a gateway of what it holds.
    pub fn start(
        disk: SimDisk,
        plan: &Plan,
        policy: &Policy,
        seed: u64,
        now: Now,
    ) -> Result<Self, (SimDisk, StartError)> {
        match Self::open(&disk, plan, policy, seed, now) {
            Ok((store, series, gateway, summary)) => {
                let mut machine = Self {
                    disk,
                    gateway,
                    store: Some(store),
                    series,
                    writing: Writing::Idle,
                    summary,
                    snapshots: Vec::new(),
                    closed: Vec::new(),
                    baseline: 0,
                    mistake: plan.mistake,
                    reported: VecDeque::new(),
                    requests: VecDeque::new(),
                    answers: VecDeque::new(),
                    moved: 0,
                    read_back: 0,
                    failing: false,
                    damaged: false,
                    written_anew: 0,
                    suspect: false,
                };
                machine.baseline = machine.balance();
                Ok(machine)
            }
            Err(_) if disk.power_is_off() => Err((disk, StartError::PowerCut)),
            Err(error) => Err((disk, error)),
        }
    }

    fn open(
        disk: &SimDisk,
        plan: &Plan,
        policy: &Policy,
        seed: u64,
        now: Now,
    ) -> Result<(Store, Option<Series>, Gateway, RecoverySummary), StartError> {
        let options = StoreOptions {
            backlog_bytes_max: plan.backlog_bytes_max,
            gateway_bytes_max: plan.gateway_bytes_max,
            journal_bytes: plan.journal_bytes,
            reserve_free: 0,
            on_corrupt: OnCorrupt::Quarantine,
        };
        let folder = if plan.mistake == Some(Mistake::IgnoreWriteErrors) {
            mistakes::silent(disk.disk())
        } else {
            disk.disk()
        };
        let failed = |error: String| StartError::Disk(error);
        let (mut store, found) = Store::open(folder, options).map_err(|error| failed(error.to_string()))?;
        let damage: Vec<_> = found.damage.iter().chain(&found.backlog_damage).collect();
        if !damage.is_empty() {
            return Err(StartError::Damaged(format!("{damage:?}")));
        }
        let mut recovered = Recovered::new();
        if found.clean {
            recovered.stopped_cleanly();
        }
        let report = store.replay(&mut |place, kind, body| recovered.row(place, kind, body));
        let report = report.map_err(|error| failed(error.to_string()))?;
        if !report.lost.is_empty() {
            return Err(StartError::Damaged(format!("rows are lost: {:?}", report.lost)));
        }
        for chunk in store.take_chunks() {
            recovered.chunk(chunk.number, chunk.charge, chunk.summary);
        }
        for number in recovered.chunks_to_read(now) {
            let read = ChunkRead { number, from: RowKey(0), bytes_max: usize::MAX };
            let rows = store.fetch_chunk(read).map_err(|error| failed(error.to_string()))?;
            if rows.damaged {
                return Err(StartError::Damaged(format!("chunk {number} is damaged")));
            }
            for (place, kind, body) in rows.rows {
                recovered.chunk_row(number, place, kind, body);
            }
        }
        let usage = store.usage();
        let quota = usage.quota_bytes.min(policy.flash_quota_bytes);
        let policy = Policy {
            flash_quota_bytes: quota,
            backlog_quota_bytes: usage.backlog_quota_bytes,
            ..policy.clone()
        };
        let (mut broker, summary) = recovered.finish(policy, seed, now, found.last_batch, found.boot);
        if summary.unreadable > 0 {
            return Err(StartError::Damaged(format!("{} rows are unreadable", summary.unreadable)));
        }
        let series = if plan.ingest {
            let log = LogState { created: found.created, last_batch: found.last_batch, quota_bytes: quota };
            let series = Series::open(disk, &mut broker, log, (now, found.boot, seed), plan.mistake);
            Some(series.map_err(
                |(damaged, why)| {
                    if damaged { StartError::Damaged(why) } else { StartError::Disk(why) }
                },
            )?)
        } else {
            None
        };
        let policy = GatewayPolicy {
            connections_max: 64,
            message_bytes_max: 1 << 20,
            mqtt: ServerPolicy {
                inflight_max: plan.inflight_max,
                keep_alive_max_s: 0,
                packet_bytes_max: 1 << 20,
                message_bytes_max: 1 << 20,
            },
            memory_max: 128 << 20,
            id: "sim".into(),
            keep_intervals: BTreeMap::new(),
        };
        Ok((store, series, Gateway::new(policy, None, None, broker, summary, seed, now), summary))
    }

    /// Hands the open batch to the store when it is due and the store is idle.
    pub fn close_batch(&mut self, trace: &mut Trace, now: Now) -> Check {
        if let Some(batch) = self.gateway.close_batch(now) {
            self.hand_over(trace, now, batch)?;
        }
        Ok(())
    }

    /// The same, whether it is due or not.
    pub fn close_batch_now(&mut self, trace: &mut Trace, now: Now) -> Check {
        if let Some(batch) = self.gateway.close_batch_now() {
            self.hand_over(trace, now, batch)?;
        }
        Ok(())
    }

    fn hand_over(&mut self, trace: &mut Trace, now: Now, batch: Batch) -> Check {
        if !matches!(self.writing, Writing::Idle) {
            return Err("a batch was closed while another was under way".into());
        }
        trace.note(format_args!("batch {} closed, {} rows", batch.number, batch.pieces.len()));
        self.snapshots.push(self.snapshot(batch.number));
        let old = self.snapshots.len().saturating_sub(2);
        self.snapshots.drain(..old);
        self.closed.push((batch.number, trace.step));
        if self.mistake == Some(Mistake::ReportEarly) {
            let persisted = Persisted {
                number: batch.number,
                bytes_written: 0,
                syncs: 0,
                live_bytes: 0,
                overhead_bytes: 0,
            };
            self.gateway.persisted(now, persisted);
            self.reported.push_back(batch);
            return Ok(());
        }
        self.writing = Writing::Handed(batch);
        Ok(())
    }

    /// The store writes what it was handed. False when the power went.
    pub fn write(&mut self, trace: &mut Trace) -> Result<bool, String> {
        if let Some(batch) = self.reported.pop_front() {
            return match self.store()?.append(batch) {
                Ok(_) => Ok(!self.disk.power_is_off()),
                Err(_) if self.disk.power_is_off() => Ok(false),
                Err(error) => Err(format!("a batch was not written: {error}")),
            };
        }
        let batch = match std::mem::replace(&mut self.writing, Writing::Idle) {
            Writing::Handed(batch) => batch,
            other => {
                self.writing = other;
                return Ok(true);
            }
        };
        let number = batch.number;
        match self.store()?.append(batch.clone()) {
            Ok(persisted) => {
                trace.note(format_args!("batch {number} written, {} bytes", persisted.bytes_written));
                self.writing = Writing::Written(persisted);
                Ok(!self.disk.power_is_off())
            }
            Err(_) if self.disk.power_is_off() => Ok(false),
            Err(error) => {
                self.fail(trace, &error.to_string());
                self.writing = Writing::Handed(batch);
                Ok(true)
            }
        }
    }

    fn fail(&mut self, trace: &mut Trace, why: &str) {
        trace.note(format_args!("the store fails: {why}"));
        self.gateway.store_condition(StoreCondition::Failing(why.into()));
        self.failing = true;
    }

    /// Opens the store again after a failure, as often as it takes. False when the power went.
    pub fn reopen(&mut self, trace: &mut Trace, now: Now) -> Result<bool, String> {
        if !std::mem::take(&mut self.failing) {
            return Ok(true);
        }
        match self.store()?.reopen() {
            Ok(Some(last)) => {
                trace.note(format_args!("the store works again after batch {last}"));
                self.suspect = false;
                self.gateway.store_condition(StoreCondition::Working);
            }
            Ok(None) => match self.store()?.salvaged() {
                Ok(salvaged) => {
                    trace.note(format_args!("the store is written anew: {salvaged:?}"));
                    self.damaged = true;
                    self.suspect = false;
                    self.written_anew += 1;
                    // The batch under way is void; one that was handed over meanwhile is, too.
                    self.writing = Writing::Idle;
                    self.snapshots.clear();
                    self.closed.clear();
                    self.gateway.store_condition(StoreCondition::Working);
                    self.gateway.write_anew(now, salvaged);
                }
                Err(_) if self.disk.power_is_off() => return Ok(false),
                Err(error) => self.fail(trace, &error.to_string()),
            },
            Err(_) if self.disk.power_is_off() => return Ok(false),
            Err(error) => self.fail(trace, &error.to_string()),
        }
        Ok(!self.disk.power_is_off())
    }

    /// The store takes what the gateway asks of the backlog.
    pub fn take_requests(&mut self, now: Now) {
        while let Some(request) = self.gateway.backlog_request(now) {
            self.requests.push_back(request);
        }
    }

    /// Something is asked of the backlog, or was answered.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty() || !self.answers.is_empty()
    }

    /// The gateway learns what the backlog answered, or the backlog does what is asked next. False when the power went.
    pub fn serve_backlog(&mut self, trace: &mut Trace, now: Now) -> Result<bool, String> {
        match self.answers.pop_front() {
            Some(Answer::Changed(changed)) => {
                trace.note(format_args!("the backlog was changed: {changed:?}"));
                self.moved += changed.as_ref().map_or(0, |changed| changed.added.len() as u64);
                self.gateway.backlog_changed(now, changed);
                return Ok(true);
            }
            Some(Answer::Read(rows)) => {
                trace.note(format_args!("rows came back: {:?}", rows.as_ref().map(|rows| rows.rows.len())));
                self.read_back += u64::from(rows.is_some());
                self.gateway.backlog_read(now, rows);
                return Ok(true);
            }
            None => {}
        }
        let store = self.store.as_mut().ok_or("the machine has ended")?;
        let answer = match self.requests.pop_front() {
            None => return Ok(true),
            Some(BacklogRequest::Change(change)) => {
                trace.note(format_args!("{} chunks to the backlog", change.add.len()));
                Answer::Changed(store.change_backlog(&change).ok())
            }
            Some(BacklogRequest::Read(read)) => Answer::Read(store.fetch_chunk(read).ok()),
        };
        let open = store.is_open();
        if self.disk.power_is_off() {
            return Ok(false);
        }
        self.answers.push_back(answer);
        if !open {
            self.fail(trace, "a file is closed");
        }
        Ok(true)
    }

    /// The series store takes what the gateway has for it.
    pub fn serve_series(&mut self, now: Now) {
        if let Some(series) = &mut self.series {
            series.serve(&mut self.gateway, now);
        }
    }

    /// The series store does its next step. False when the power went.
    pub fn series_step(&mut self, trace: &mut Trace, now: Now) -> bool {
        if let Some(series) = &mut self.series
            && series.step(&mut self.gateway, now)
        {
            trace.note(format_args!("a step of the series store"));
        }
        !self.disk.power_is_off()
    }

    /// Readings wait to be stored.
    pub fn has_readings(&self) -> bool {
        self.series.as_ref().is_some_and(Series::is_pending)
    }

    /// Batches wait that were reported already.
    pub fn has_unwritten(&self) -> bool {
        !self.reported.is_empty()
    }

    /// The gateway learns that its batch is on flash. Answers the step at which the batch was closed.
    pub fn report(&mut self, trace: &mut Trace, now: Now) -> Option<u64> {
        let Writing::Written(persisted) = &self.writing else { return None };
        let persisted = *persisted;
        self.writing = Writing::Idle;
        trace.note(format_args!("batch {} reported", persisted.number));
        self.gateway.persisted(now, persisted);
        self.damaged &= self.gateway.persisted_batch() < persisted.number;
        let closed_at = self.closed.iter().find(|(number, _)| *number == persisted.number)?.1;
        self.closed.retain(|(number, _)| *number > persisted.number);
        Some(closed_at)
    }

    /// The store has nothing else to do. False when the power went.
    pub fn idle(&mut self, trace: &mut Trace) -> Result<bool, String> {
        match self.store()?.apply_if_idle() {
            Ok(_) => Ok(!self.disk.power_is_off()),
            Err(_) if self.disk.power_is_off() => Ok(false),
            Err(error) => {
                self.fail(trace, &error.to_string());
                Ok(true)
            }
        }
    }

    /// The power is off: what is left of it. Also the batches' snapshots, to compare with what is found.
    pub fn cut(&mut self) -> (SimDisk, Vec<Snapshot>) {
        self.disk.cut_power();
        (self.store, self.series) = (None, None);
        (self.disk.reboot(), std::mem::take(&mut self.snapshots))
    }

    /// The process is killed: what it wrote is there, synced or not. The disk's faults end with it.
    pub fn kill(&mut self, seed: u64) -> (SimDisk, Vec<Snapshot>) {
        let left = self.disk.copy(seed);
        self.disk.cut_power();
        (self.store, self.series) = (None, None);
        (left, std::mem::take(&mut self.snapshots))
    }

    /// A clean stop; everything is written before.
    pub fn stop(&mut self, trace: &mut Trace, now: Now) -> Result<(SimDisk, Vec<Snapshot>), String> {
        self.gateway.shut_down(now);
        if self.series.is_some() {
            self.gateway.want_series_flush();
        }
        let mut tries = 0..STOP_TRIES_MAX;
        loop {
            if tries.next().is_none() {
                // The disk is full for longer than a stop waits.
                return Ok(self.kill(now.mono.0));
            }
            if !self.reopen(trace, now)? || !self.write(trace)? {
                return Ok(self.cut());
            }
            self.report(trace, now);
            self.close_batch_now(trace, now)?;
            if self.has_readings() && !self.gateway.is_series_flushing() {
                self.gateway.want_series_flush();
            }
            self.serve_series(now);
            if !self.series_step(trace, now) {
                return Ok(self.cut());
            }
            if matches!(self.writing, Writing::Idle)
                && !self.failing
                && !self.has_unwritten()
                && !self.has_readings()
                && !self.gateway.is_series_flushing()
            {
                break;
            }
        }
        let snapshot = self.snapshot(self.gateway.persisted_batch());
        if self.series.take().is_some_and(|series| !series.close()) && self.disk.power_is_off() {
            return Ok(self.cut());
        }
        let store = self.store.take().ok_or("the machine has ended")?;
        match store.close(Some(b"")) {
            Ok(()) => Ok((self.disk.clone(), vec![snapshot])),
            Err(_) if self.disk.power_is_off() => Ok(self.cut()),
            // The process ends all the same.
            Err(_) => Ok(self.kill(now.mono.0)),
        }
    }

    pub fn store(&mut self) -> Result<&mut Store, String> {
        self.store.as_mut().ok_or_else(|| "the machine has ended".into())
    }

    /// The durable state now.
    pub fn snapshot(&self, batch: BatchNumber) -> Snapshot {
        let status = self.gateway.broker().status();
        let durable = self
            .gateway
            .broker()
            .queue_status()
            .filter(|queue| queue.durable && queue.kind == QueueKind::Session);
        Snapshot {
            batch,
            queues: durable.map(|queue| (queue.name.clone(), durable_part(&queue))).collect(),
            retained: status.retained,
            retained_bytes: status.retained_bytes,
        }
    }

    /// Every copy that entered a queue is settled, queued, lost, discarded or a dead letter: nothing comes and goes unseen.
    pub fn check_conservation(&self) -> Check {
        if self.balance() == self.baseline {
            return Ok(());
        }
        let status = self.gateway.broker().status();
        Err(format!("copies came or went uncounted: {:?}, {} queued", status.counters, status.queued))
    }

    fn balance(&self) -> u64 {
        let status = self.gateway.broker().status();
        let counters = status.counters;
        let gone = counters.settled + counters.lost + counters.discarded + counters.dead_lettered;
        (gone + status.queued).wrapping_sub(counters.queued)
    }
}

fn durable_part(queue: &QueueStatus) -> (usize, u32, u64, usize) {
    let all = queue.ready + queue.in_flight;
    (queue.subscriptions, queue.messages, queue.bytes, all.saturating_sub(queue.messages as usize))
}
