//! The daemon's life: store, recovery, listeners, rounds, and a clean stop.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{LocalSet, spawn_local};

use super::clock::Clock;
use super::core::Core;
use super::http::{self, Door};
use super::listeners::{BindError, Listeners};
use super::reload::Reloader;
use super::series_thread::SeriesThread;
use super::socket_path::SocketPath;
use super::store_thread::{Answer, StoreThread};
use super::workers::PasswordWorkers;
use super::{collections, departures, farewell, identity, notify, watch};
use crate::broker::Recovered;
use crate::config::OnCorrupt;
use crate::gateway::{Facts, Gateway, GatewayPolicy, LoginPolicy, broker_policy};
use crate::ids::RowKey;
use crate::ingest::Collector;
use crate::limits;
use crate::message::record::{Reader, put_bytes};
use crate::series::SeriesStore;
use crate::settings::{Settings, SettingsSource, store_options};
use crate::store::chunk::ChunkRead;
use crate::store::{self, FileDisk, FolderError, OpenError, Store, StoreError};
use crate::time::Now;

/// The collections' store, and what gives it readings.
type Series = (SeriesStore, Collector);

/// How long a clean stop waits for the last readings to be stored.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a clean stop waits for the flash.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Connections over the control socket at once; more wait to be accepted.
const CONTROL_CONNECTIONS_MAX: usize = 16;
/// After an accept failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why the daemon did not run.
#[derive(Debug)]
pub enum RunError {
    /// Exit 78.
    TooNew(OpenError),
    Folder {
        /// `FILE:LINE:COLUMN: KEY`, as far as there is one.
        place: String,
        error: FolderError,
    },
    Open(OpenError),
    Replay(StoreError),
    Series(StoreError),
    Bind(BindError),
    Control {
        path: PathBuf,
        error: io::Error,
    },
    System(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooNew(error) | Self::Open(error) => write!(f, "failed to open the store: {error}"),
            Self::Folder { place, error } => write!(f, "{place}: {error}"),
            Self::Replay(error) => write!(f, "failed to read the store: {error}"),
            Self::Series(error) => write!(f, "failed to open the collections: {error}"),
            Self::Bind(error) => error.fmt(f),
            Self::Control { path, error } => write!(f, "failed to make {}: {error}", path.display()),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

impl RunError {
    /// The process's exit status.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::TooNew(_) => 78,
            Self::Folder { .. }
            | Self::Open(_)
            | Self::Replay(_)
            | Self::Series(_)
            | Self::Bind(_)
            | Self::Control { .. }
            | Self::System(_) => 1,
        }
    }
}

/// Runs the gateway with these settings until SIGTERM or SIGINT; SIGHUP has them read again from `source`.
///
/// # Errors
/// Whatever keeps it from starting.
pub fn run(source: SettingsSource, settings: Settings) -> Result<(), RunError> {
    let clock = Clock::start();
    notify::starting();
    let disk = folder(&settings)?;
    let listeners = Listeners::new(Rc::new(Semaphore::new(http::CONNECTIONS_MAX)));
    // A start that ends here is tried again and again: it leaves the flash alone.
    listeners.reserve(&settings).map_err(RunError::Bind)?;
    let Started { store, gateway, series, .. } = start_gateway(&settings, clock, Arc::new(disk))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .map_err(RunError::System)?;
    let local = LocalSet::new();
    let ran = local.block_on(&runtime, async {
        let (core, mut ends) = start_threads(clock, store, gateway, series)?;
        let served = serve(&core, &listeners, (source, settings)).await;
        core.kick();
        notify::stopping();
        let stopping = stop(&core, &mut ends.store, &mut ends.series);
        if tokio::time::timeout(STOP_TIMEOUT, stopping).await.is_err() {
            tracing::error!("the flash did not take the last batch in time; what was acknowledged is on it");
        }
        if let Ok(control) = &served {
            control.remove();
        }
        listeners.close();
        served.map(drop)
    });
    runtime.shutdown_background();
    ran
}

/// The state folder, under its lock.
fn folder(settings: &Settings) -> Result<FileDisk, RunError> {
    let place = || settings.places.show("storage.path");
    FileDisk::new(&settings.config.storage.path).map_err(|error| RunError::Folder { place: place(), error })
}

/// Does with the state folder what a start does, damaged parts and all, and stops cleanly: no listener is opened. Answers
/// what was damaged, one text each.
///
/// # Errors
/// Whatever keeps it from starting.
pub fn repair(settings: &Settings) -> Result<Vec<String>, RunError> {
    let clock = Clock::start();
    let disk = folder(settings)?;
    let mut settings = settings.clone();
    // Who asks for a repair wants it.
    settings.config.storage.on_corrupt = OnCorrupt::Quarantine;
    let Started { store, gateway, series, damage } = start_gateway(&settings, clock, Arc::new(disk))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::System)?;
    LocalSet::new().block_on(&runtime, async {
        let (core, mut ends) = start_threads(clock, store, gateway, series)?;
        core.kick();
        let stopping = stop(&core, &mut ends.store, &mut ends.series);
        if tokio::time::timeout(STOP_TIMEOUT, stopping).await.is_err() {
            return Err(RunError::System(io::Error::other("the flash did not take all of it in time")));
        }
        Ok(())
    })?;
    Ok(damage)
}

/// A gateway made of what was stored, and what of that was damaged.
struct Started {
    store: Store,
    gateway: Gateway,
    series: Series,
    damage: Vec<String>,
}

/// Opens the store and makes a gateway of what is in it.
fn start_gateway(settings: &Settings, clock: Clock, disk: Arc<dyn store::Disk>) -> Result<Started, RunError> {
    let config = &settings.config;
    let began = clock.now();
    let (mut store, found) =
        Store::open(Arc::clone(&disk), store_options(config)).map_err(|error| match error {
            OpenError::TooNew { .. } => RunError::TooNew(error),
            OpenError::Damaged { .. } | OpenError::Full(_) | OpenError::Io(_) => RunError::Open(error),
        })?;
    let mut recovered = Recovered::new();
    if found.clean {
        recovered.stopped_cleanly();
    }
    let report = store.replay(&mut |place, kind, body| recovered.row(place, kind, body));
    let report = report.map_err(RunError::Replay)?;
    for row in essential_rows(found.essentials.as_deref().unwrap_or_default()) {
        recovered.essential(row);
    }
    let seed = super::random_seed().map_err(RunError::System)?;
    let backlog_damage =
        recover_backlog(&mut store, &found, &mut recovered, began).map_err(RunError::Replay)?;
    let usage = store.usage();
    let policy = broker_policy(config, usage.quota_bytes, usage.backlog_quota_bytes);
    let (mut broker, summary) = recovered.finish(policy, seed, began, found.last_batch, found.boot);
    for note in &found.notes {
        tracing::info!(%note, "store");
    }
    let mut damage: Vec<String> = found.damage.iter().cloned().chain(backlog_damage).collect();
    if !report.lost.is_empty() {
        damage.push(format!("{} rows did not verify and are lost", report.lost.len()));
    }
    for damage in &damage {
        tracing::error!(%damage, "the store was damaged");
        broker.report_damage(began, damage);
    }
    let log = (&found, store.usage().quota_bytes);
    let (series, series_damage) =
        collections::open(config, disk, &mut broker, log, (clock, seed)).map_err(RunError::Series)?;
    damage.extend(series_damage);
    let took = clock.now().mono.since(began.mono);
    let took_ms = took.as_millis();
    let last_stop = match (found.created, found.clean) {
        (true, _) => "none, the store is new",
        (false, true) => "clean",
        (false, false) => "not clean",
    };
    tracing::info!(
        "recovered {} sessions, {} queued messages, {} retained in {took_ms} ms; last stop: {last_stop}",
        summary.sessions,
        summary.queued,
        summary.retained,
    );
    let policy = GatewayPolicy::new(config, identity::gateway_id(&config.gateway.id));
    let (users, acl) = (settings.users.clone(), settings.acl.clone());
    let mut gateway = Gateway::new(policy, users, acl, broker, summary, seed, began);
    gateway.set_login_policy(LoginPolicy::new(&config.auth));
    gateway.set_facts(Facts {
        recovery_ms: u64::try_from(took_ms).unwrap_or(u64::MAX),
        last_stop,
        listeners: Vec::new(),
        flash_bytes_per_day: config.storage.bytes_per_day_budget,
    });
    Ok(Started { store, gateway, series, damage })
}

/// Takes the chunks of the backlog; answers what was damaged there.
fn recover_backlog(
    store: &mut Store,
    found: &store::Recovery,
    recovered: &mut Recovered,
    now: Now,
) -> Result<Vec<String>, StoreError> {
    if !found.damage.is_empty() {
        recovered.window_was_damaged();
    }
    if !found.backlog_damage.is_empty() {
        recovered.backlog_was_damaged();
    }
    let mut damage = found.backlog_damage.clone();
    for chunk in store.take_chunks() {
        recovered.chunk(chunk.number, chunk.charge, chunk.summary);
    }
    for number in recovered.chunks_to_read(now) {
        let mut from = RowKey(0);
        loop {
            let rows = store.fetch_chunk(ChunkRead { number, from, bytes_max: limits::BATCH_BYTES_SOFT })?;
            if rows.damaged {
                damage.push(format!("chunk {number} of the backlog is damaged"));
            }
            for (place, kind, body) in rows.rows {
                recovered.chunk_row(number, place, kind, body);
            }
            let Some(next) = rows.next else { break };
            from = next;
        }
    }
    Ok(damage)
}

/// Opens what clients and operators come through, and serves until a signal ends it. Answers the control socket.
async fn serve(
    core: &Rc<Core>,
    listeners: &Rc<Listeners>,
    (source, settings): (SettingsSource, Settings),
) -> Result<Rc<SocketPath>, RunError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::System)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::System)?;
    // First, so that who reaches a listener reaches this too: a kill leaves its file behind, which refuses.
    let control = Rc::new(bind_control(&settings.config.control_socket())?);
    let prepared = listeners.prepare(core, &settings).await.map_err(RunError::Bind)?;
    spawn_local(watch::keep_watch(Rc::clone(core)));
    spawn_local(watch::feed_watchdog(Rc::clone(core)));
    listeners.commit(core, prepared);
    listeners.tell_unused();
    let reloader = Reloader::new(source, settings, Rc::clone(listeners));
    reloader.start(core).map_err(RunError::System)?;
    core.set_reloader(reloader);
    // A room of its own: whoever fills the other must not keep the operator out.
    let control_room = Rc::new(Semaphore::new(CONTROL_CONNECTIONS_MAX));
    spawn_local(accept_control(Rc::clone(core), Rc::clone(&control), control_room));
    core.kick();
    notify::ready();
    tokio::select! {
        _ = terminate.recv() => tracing::info!("stopping: SIGTERM"),
        _ = interrupt.recv() => tracing::info!("stopping: SIGINT"),
    }
    Ok(control)
}

/// Where the threads tell that their files are closed.
struct Ends {
    store: mpsc::Receiver<Answer>,
    series: mpsc::Receiver<()>,
}

/// Starts the threads beside the core, and the tasks that take what they tell.
fn start_threads(
    clock: Clock,
    store: Store,
    gateway: Gateway,
    (series, collector): Series,
) -> Result<(Rc<Core>, Ends), RunError> {
    let (store, answers) = StoreThread::start(store).map_err(RunError::System)?;
    let (passwords, mut checked) = PasswordWorkers::start().map_err(RunError::System)?;
    let (series, series_answers) = SeriesThread::start(series, collector).map_err(RunError::System)?;
    let core = Core::new(gateway, clock, store, series, passwords);
    let (closed, series) = mpsc::channel(1);
    spawn_local(collections::take_answers(Rc::clone(&core), series_answers, closed));
    let (stopped, store) = mpsc::channel(1);
    spawn_local(Rc::clone(&core).rounds());
    spawn_local(departures::end_all(Rc::clone(&core)));
    spawn_local(take_answers(Rc::clone(&core), answers, stopped));
    let checks = Rc::clone(&core);
    spawn_local(async move {
        while let Some(check) = checked.recv().await {
            checks.password_checked(check.connection, check.genuine, &check.password);
        }
    });
    Ok((core, Ends { store, series }))
}

/// Ends every connection, has the last batch written, and closes the store.
async fn stop(core: &Rc<Core>, answers: &mut mpsc::Receiver<Answer>, series_closed: &mut mpsc::Receiver<()>) {
    let now = core.clock.get().now();
    core.gateway.borrow_mut().shut_down(now);
    core.round();
    write_rest(core).await;
    if tokio::time::timeout(FLUSH_TIMEOUT, collections::flush_all(core)).await.is_err() {
        tracing::error!("the collections did not take the last readings; they stay in the row log");
    }
    core.series.close();
    series_closed.recv().await;
    // What was settled by the flush.
    write_rest(core).await;
    core.store.close(essentials(core));
    if let Some(Answer::Closed(Ok(()))) = answers.recv().await {
        tracing::info!("stopped cleanly");
    }
    farewell::end(core).await;
}

/// Has everything written that waits for the store.
async fn write_rest(core: &Rc<Core>) {
    while !core.gateway.borrow().is_store_idle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    loop {
        let batch = core.gateway.borrow_mut().close_batch_now();
        let Some(batch) = batch else { break };
        let number = batch.number;
        let appended = core.store.append(batch, false);
        debug_assert!(appended.is_none(), "only a batch that is alone is appended at once");
        while core.gateway.borrow().persisted_batch() < number {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn take_answers(core: Rc<Core>, mut answers: mpsc::Receiver<Answer>, stopped: mpsc::Sender<Answer>) {
    while let Some(answer) = answers.recv().await {
        if let Answer::Closed(result) = answer {
            if let Err(error) = &result {
                tracing::error!(%error, "the store did not close cleanly");
            }
            drop(stopped.send(Answer::Closed(result)).await);
            return;
        }
        core.store_answered(answer);
    }
}

/// The essentials file's content: each row with its length before it.
pub(super) fn essentials(core: &Core) -> Vec<u8> {
    let mut content = Vec::new();
    for row in core.gateway.borrow().essentials() {
        put_bytes(&mut content, &row);
    }
    content
}

fn essential_rows(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(content);
    std::iter::from_fn(move || if reader.is_empty() { None } else { reader.bytes() })
}

/// The control socket, for the daemon's own user and group.
fn bind_control(path: &Path) -> Result<SocketPath, RunError> {
    let failed = |error| RunError::Control { path: path.to_owned(), error };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    // The folder's lock says that no other daemon uses it, so a socket that is there is a leftover.
    SocketPath::bind_own(path).map_err(failed)
}

async fn accept_control(core: Rc<Core>, socket: Rc<SocketPath>, room: Rc<Semaphore>) {
    loop {
        match socket.listener.accept().await {
            Ok((stream, _)) => http::serve(&core, stream, Door::Control, Rc::clone(&room)),
            Err(error) => {
                tracing::warn!(%error, "control connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
