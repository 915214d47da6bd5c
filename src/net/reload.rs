//! Changing the settings of a gateway that runs: read and checked as a whole off the core, then swapped on it; and the
//! watch over certificates, which change without anybody asking for it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;
use tokio::task::{spawn_blocking, spawn_local, yield_now};

use super::core::Core;
use super::listeners::{Active, Listeners};
use super::{logging, notify};
use crate::config::{ClientCert, Config, UsernameFromCert};
use crate::settings::{Settings, SettingsSource};
use crate::time::Now;
use crate::tls::client_name;

/// The files of certificates are looked at this often.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// Where there are none, whether there are any by now.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);

/// Certificates are told about this many days before they end, once each.
const EXPIRY_DAYS: [i64; 3] = [30, 7, 1];

/// Connections whose certificates are checked again before others have their turn.
const CHECKED_AT_ONCE: usize = 16;

/// What a reload did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Reloaded {
    /// Sections that are other than before.
    pub changed: Vec<String>,
    /// Keys that are other than before and count from the next start on.
    pub restart: Vec<&'static str>,
    /// Connections that ended because they may no longer be there.
    pub ended: usize,
}

/// See the module's head.
pub(super) struct Reloader {
    source: SettingsSource,
    current: RefCell<Settings>,
    listeners: Rc<Listeners>,
    /// One change at a time.
    turn: Mutex<()>,
    watched: RefCell<BTreeMap<PathBuf, Stamp>>,
    warned: RefCell<BTreeMap<String, i64>>,
    reloads: Cell<u64>,
}

/// By what a file is known to have changed.
type Stamp = Option<(u64, u64, i64, i64)>;

impl Reloader {
    pub fn new(source: SettingsSource, settings: Settings, listeners: Rc<Listeners>) -> Rc<Self> {
        let watched = stamps(&settings.config);
        Rc::new(Self {
            source,
            current: RefCell::new(settings),
            listeners,
            turn: Mutex::new(()),
            watched: RefCell::new(watched),
            warned: RefCell::new(BTreeMap::new()),
            reloads: Cell::new(0),
        })
    }

    /// Serves SIGHUP and watches the certificates for as long as the core lives.
    ///
    /// # Errors
    /// The system's.
    pub fn start(self: &Rc<Self>, core: &Rc<Core>) -> std::io::Result<()> {
        let hangup = signal(SignalKind::hangup())?;
        spawn_local(Rc::clone(self).take_signals(Rc::clone(core), hangup));
        spawn_local(Rc::clone(self).watch(Rc::downgrade(core)));
        Ok(())
    }

    async fn take_signals(self: Rc<Self>, core: Rc<Core>, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            // What is wrong was logged.
            drop(self.reload(&core).await);
        }
    }

    /// Reads everything anew and takes it over.
    ///
    /// # Errors
    /// Everything that is wrong, a line each; then nothing has changed.
    pub async fn reload(&self, core: &Rc<Core>) -> Result<Reloaded, Vec<String>> {
        let _turn = self.turn.lock().await;
        notify::reloading();
        let result = self.try_reload(core).await;
        notify::ready();
        match &result {
            Ok(reloaded) => {
                self.reloads.set(self.reloads.get() + 1);
                tracing::info!(changed = %reloaded.changed.join(" "), ended = reloaded.ended, "settings reloaded");
                if !reloaded.restart.is_empty() {
                    tracing::warn!(keys = %reloaded.restart.join(" "), "changed, and counts from the next start on");
                }
            }
            Err(errors) => {
                tracing::error!("settings not reloaded: nothing has changed");
                for error in errors {
                    tracing::error!("{error}");
                }
            }
        }
        result
    }

    async fn try_reload(&self, core: &Rc<Core>) -> Result<Reloaded, Vec<String>> {
        let source = self.source.clone();
        let loaded = spawn_blocking(move || source.load()).await;
        let settings = loaded.map_err(|error| vec![error.to_string()])??;
        let prepared = self.listeners.prepare(core, &settings).await;
        let prepared = prepared.map_err(|error| vec![error.to_string()])?;
        // From here on nothing fails.
        let before = self.listeners.active();
        self.listeners.commit(core, prepared);
        let now = core.clock.get().now();
        let lists = (settings.users.clone(), settings.acl.clone());
        let anonymous = self.listeners.anonymous();
        let mut ended = core.gateway.borrow_mut().reconfigure(now, &settings.config, lists, &anonymous);
        core.series.reconfigure(&settings.config);
        logging::set_level(settings.config.log.level);
        ended += self.check_clients(core, &before).await;
        self.watched.replace(stamps(&settings.config));
        let old = self.current.replace(settings);
        let settings = self.current.borrow();
        core.kick();
        Ok(Reloaded {
            changed: changed(&old, &settings),
            restart: needs_restart(&old.config, &settings.config),
            ended,
        })
    }

    /// Ends the connections whose certificate no longer opens their listener; answers how many.
    async fn check_clients(&self, core: &Rc<Core>, before: &[Rc<Active>]) -> usize {
        let active = self.listeners.active();
        let differs = |old: &Rc<Active>| {
            let new = active.iter().find(|new| new.index == old.index);
            new.is_some_and(|new| entrance(old) != entrance(new)).then_some(new).flatten().cloned()
        };
        let changed: Vec<Rc<Active>> = before.iter().filter_map(differs).collect();
        if changed.is_empty() {
            return 0;
        }
        let mut ended = 0;
        for (number, (id, socket)) in core.layered().into_iter().enumerate() {
            if number % CHECKED_AT_ONCE == CHECKED_AT_ONCE - 1 {
                yield_now().await;
            }
            let now = core.clock.get().now();
            let mut gateway = core.gateway.borrow_mut();
            let Some((index, user)) = gateway.entrance(id) else { continue };
            let Some(listener) = changed.iter().find(|active| active.index == index) else { continue };
            let layers = socket.layers.borrow();
            let chain = layers.as_ref().and_then(|layers| layers.tls()).and_then(|tls| tls.client_chain());
            if !may_stay(listener, chain.unwrap_or_default(), user) {
                gateway.revoke(now, id);
                ended += 1;
            }
        }
        ended
    }

    async fn watch(self: Rc<Self>, core: Weak<Core>) {
        loop {
            let Some(core) = core.upgrade() else { return };
            self.warn_of_expiry(core.clock.get().now());
            let now = stamps(&self.current.borrow().config);
            if *self.watched.borrow() != now {
                self.watched.replace(now);
                self.take_certificates(&core).await;
            }
            drop(core);
            let interval = if self.watched.borrow().is_empty() { IDLE_INTERVAL } else { WATCH_INTERVAL };
            tokio::time::sleep(interval).await;
        }
    }

    /// Takes over certificates whose files have changed. Files that do not fit together stay out: their replacement may
    /// be half done, and the next change is looked at again.
    async fn take_certificates(&self, core: &Rc<Core>) {
        let _turn = self.turn.lock().await;
        let (source, settings) = (self.source.clone(), self.current.borrow().clone());
        let loaded = spawn_blocking(move || {
            source.load_certificates(&settings).map(|certificates| Settings { certificates, ..settings })
        });
        let settings = match loaded.await {
            Ok(Ok(settings)) => settings,
            Ok(Err(errors)) => {
                for error in errors {
                    tracing::warn!("certificates have changed and are not used: {error}");
                }
                return;
            }
            Err(error) => {
                tracing::error!(%error, "certificates were not read");
                return;
            }
        };
        let before = self.listeners.active();
        match self.listeners.prepare(core, &settings).await {
            Ok(prepared) => {
                self.listeners.commit(core, prepared);
                self.current.replace(settings);
                let ended = self.check_clients(core, &before).await;
                tracing::info!(ended, "certificates have changed and are used");
                core.kick();
            }
            Err(error) => tracing::error!("{error}"),
        }
    }

    /// Tells of certificates that end soon, and of those that have not begun.
    fn warn_of_expiry(&self, now: Now) {
        if !now.wall_trusted {
            return;
        }
        let mut warned = self.warned.borrow_mut();
        for (name, certificates) in &self.current.borrow().certificates {
            let validity = certificates.validity;
            let left = days(validity.not_after.0) - days(now.wall.0);
            let ended = now.wall >= validity.not_after;
            let level = if ended { Some(-1) } else { expiry_level(left) };
            let known = warned.get(name).copied();
            match level {
                Some(level) if known.is_none_or(|known| level < known) => {
                    if ended {
                        tracing::error!(certificate = %name, "the certificate has ended: clients refuse it");
                    } else {
                        tracing::warn!(certificate = %name, days = left, "the certificate ends soon");
                    }
                    warned.insert(name.clone(), level);
                }
                Some(_) => {}
                None => {
                    warned.remove(name);
                }
            }
        }
    }
}

/// The smallest number of days that a certificate has come down to; `None` while its end is far.
fn expiry_level(days_left: i64) -> Option<i64> {
    EXPIRY_DAYS.into_iter().rev().find(|days| days_left <= *days)
}

fn days(milliseconds: u64) -> i64 {
    i64::try_from(milliseconds / 86_400_000).unwrap_or(i64::MAX)
}

/// What decides about clients' certificates at a listener.
fn entrance(active: &Active) -> (Option<[u8; 32]>, ClientCert, UsernameFromCert) {
    let fingerprint = active.tls.as_ref().map(|tls| tls.certificates.fingerprint);
    (fingerprint, active.listener.client_cert, active.listener.username_from_cert)
}

/// Whether a client with this certificate, known as `user` by it, would be let in again.
fn may_stay(active: &Active, chain: &[rustls::pki_types::CertificateDer<'_>], user: Option<&str>) -> bool {
    let Some(tls) = &active.tls else { return user.is_none() };
    let Some(first) = chain.first() else {
        return active.listener.client_cert != ClientCert::Required;
    };
    match active.listener.client_cert {
        // It logged in by itself, if it had to.
        ClientCert::None => user.is_none(),
        ClientCert::Optional | ClientCert::Required => {
            let names = user.is_none_or(|user| {
                client_name(first, active.listener.username_from_cert).as_deref() == Some(user)
            });
            names && tls.certificates.takes_client(chain)
        }
    }
}

/// The files of the TLS tables as they are now.
fn stamps(config: &Config) -> BTreeMap<PathBuf, Stamp> {
    let files = config.tls.values().flat_map(|files| {
        [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()].into_iter().flatten()
    });
    files.map(|file| (file.clone(), stamp(file))).collect()
}

fn stamp(file: &Path) -> Stamp {
    let found = fs::metadata(file).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

/// The sections whose settings or files are other than before.
fn changed(old: &Settings, new: &Settings) -> Vec<String> {
    let (a, b) = (&old.config, &new.config);
    let certificates = |settings: &Settings| -> Vec<[u8; 32]> {
        settings.certificates.values().map(|one| one.fingerprint).collect()
    };
    let sections = [
        ("gateway", a.gateway != b.gateway),
        ("listener", a.listeners != b.listeners),
        ("tls", a.tls != b.tls || certificates(old) != certificates(new)),
        ("auth", a.auth != b.auth || old.lists != new.lists),
        ("limits", a.limits != b.limits),
        ("queue", a.queues != b.queues),
        ("storage", a.storage != b.storage),
        ("ingest", a.routes != b.routes),
        ("collection", a.collections != b.collections),
        ("log", a.log != b.log),
    ];
    sections.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name.to_owned()).collect()
}

/// Keys that count from the next start on.
fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let (a, b) = (&old.storage, &new.storage);
    let keys = [
        ("gateway.id", old.gateway.id != new.gateway.id),
        ("storage.path", a.path != b.path),
        ("storage.gateway_bytes_max", a.gateway_bytes_max != b.gateway_bytes_max),
        ("storage.backlog_bytes_max", a.backlog_bytes_max != b.backlog_bytes_max),
        ("storage.series_bytes_max", a.series_bytes_max != b.series_bytes_max),
        ("storage.reserve_free", a.reserve_free != b.reserve_free),
        ("storage.on_corrupt", a.on_corrupt != b.on_corrupt),
        ("log.format", old.log.format != new.log.format),
    ];
    keys.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_at_30_7_and_1_days() {
        let told: Vec<Option<i64>> = [31, 30, 8, 7, 2, 1, 0].map(expiry_level).to_vec();
        assert_eq!(told, [None, Some(30), Some(30), Some(7), Some(7), Some(1), Some(1)]);
    }
}
