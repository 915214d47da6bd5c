//! The checked configuration: plain typed data with the built-in defaults. Owns what each setting is; reading it
//! from files is `raw`, holding it against the rest is `checked`, printing it is `effective`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::schema::{LISTENER_DEFAULTS, ListenerDefault, ListenerKind};
use crate::ingest::route::{Durability, Filter, Route};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// Everything that an operator may set, checked as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub gateway: Identity,
    /// In the order of their names; those with `enabled = false` too.
    pub listeners: Vec<Listener>,
    /// `[tls.NAME]`: certificates that listeners name.
    pub tls: BTreeMap<String, TlsFiles>,
    pub auth: Auth,
    pub limits: Limits,
    pub queues: QueueClasses,
    pub storage: Storage,
    /// `[ingest.NAME]`, in the order of their names.
    pub routes: Vec<Route>,
    /// `[collection.NAME]`: those that are written, and those that a route names.
    pub collections: BTreeMap<String, Collection>,
    pub log: Log,
}

/// `[gateway]`: who this gateway is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub id: GatewayId,
    /// Text by name, for what is forwarded; nothing forwards yet.
    pub labels: BTreeMap<String, String>,
}

/// Name of the gateway, as `status` and the metrics show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayId {
    /// Derived from the machine identifier, never from the host name.
    Auto,
    /// 1 to 64 letters, digits, `-`, `_`, `.`.
    Fixed(String),
}

/// `[listener.NAME]`: one address that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub name: String,
    pub enabled: bool,
    pub kind: ListenerKind,
    pub bind: Bind,
    /// Whether a client without a user name gets in. Unset it follows the address: true on loopback while there
    /// is no password file, false otherwise.
    pub allow_anonymous: bool,
    /// The `[tls.*]` table whose certificate it shows; `None` for no TLS.
    pub tls: Option<String>,
    pub client_cert: ClientCert,
    pub username_from_cert: UsernameFromCert,
}

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// Port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A socket in the file system, mode 0660. Shown as `unix:/path`.
    Unix(PathBuf),
}

/// Whether a client must show a certificate, which one of `client_ca` must have signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCert {
    /// It is not asked.
    None,
    /// It may; without one it logs in by password.
    Optional,
    /// It must.
    Required,
}

/// Which name of a client's certificate is its user name, in place of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsernameFromCert {
    /// None: the certificate opens the connection and the login is as without it.
    None,
    /// The common name of the subject.
    Cn,
    /// The first DNS name, e-mail address or URI of the alternative names.
    San,
}

/// `[tls.NAME]`: PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The gateway's certificate, followed by those between it and the root.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates that clients' certificates must be signed by.
    pub client_ca: Option<PathBuf>,
}

/// `[auth]`: files that say who may do what, and what guessing costs. `None` where the setting is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Mosquitto's password file: `$6$`, `$7$`, `$argon2id$`.
    pub password_file: Option<PathBuf>,
    /// Mosquitto's ACL file.
    pub acl_file: Option<PathBuf>,
    /// A wrong password is answered after this time.
    pub failed_delay: Duration,
    /// Wrong passwords for one user name from one address until that pair is locked out; 0 is never.
    pub lockout_failures: u32,
    /// How long it is.
    pub lockout_for: Duration,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            password_file: None,
            acl_file: None,
            failed_delay: Duration::from_secs(1),
            lockout_failures: 10,
            lockout_for: Duration::from_secs(300),
        }
    }
}

/// `[limits]`: bounds of the whole gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body of one message.
    pub message_bytes_max: u64,
    /// Connections of all listeners together.
    pub connections_max: u32,
    /// Sessions, connected or not.
    pub sessions_max: u32,
    /// Queues beside the sessions.
    pub queues_max: u32,
    /// Longest life of a session without its client.
    pub session_expiry_max: Duration,
    /// Unacknowledged QoS 1 and 2 messages sent to one client, at least 1.
    pub inflight_max: u16,
    /// Longest keep-alive that a client of MQTT 5 may choose; zero is no bound.
    pub keep_alive_max: Duration,
    pub retained_max: u32,
    pub retained_bytes_max: u64,
    /// Messages in memory and their places in queues, and buffers, by the gateway's own account.
    pub memory_max: u64,
}

/// `[queue.*]`: bounds by class and by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueClasses {
    /// `[queue.default]`: every queue that nothing else names.
    pub default: QueueBounds,
    /// `[queue.session]`: the queue of an MQTT session.
    pub session: QueueBounds,
    /// The other tables: a name, or a pattern in which `*` stands for any run of characters.
    pub named: BTreeMap<String, QueueBounds>,
}

/// Bounds of one queue, in memory and on flash alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBounds {
    pub messages_max: u64,
    pub bytes_max: u64,
    pub overflow: Overflow,
}

/// What happens to a message that finds its queue full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// It is taken and the oldest ready one goes, with a loss receipt.
    DropOldest,
    /// It is refused: an AMQP publisher is told, MQTT 3 has no way to tell its own.
    Reject,
}

/// `[storage]`: where state lives and what it may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    pub path: PathBuf,
    /// Cap of `gateway.redb`, preallocated; the store rounds it down to a size that its file can reach.
    pub gateway_bytes_max: u64,
    pub backlog_bytes_max: u64,
    pub series_bytes_max: u64,
    /// Free space of the file system that is never used.
    pub reserve_free: u64,
    /// Bytes handed to the disk in a day before commits widen; `None` for no budget.
    pub bytes_per_day_budget: Option<u64>,
    /// How long a batch waits for its takers to settle it instead of being written; zero is off.
    pub elision_window: Duration,
    pub on_corrupt: OnCorrupt,
}

/// What a damaged store file does to the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCorrupt {
    /// The file is set aside, what is whole in it is kept, and the gateway starts.
    Quarantine,
    /// The gateway does not start.
    Stop,
}

/// `[collection.NAME]`: how long and how much of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection {
    /// `None`: for ever.
    pub retention: Option<Duration>,
    /// Bytes of packed readings.
    pub bytes_max: u64,
    /// Series of their own; readings beyond share one.
    pub series_max: u32,
}

/// `[log]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

/// Least severe line that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Form of a log line on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// `journal` under systemd, else `text`.
    Auto,
    /// Text with a `<N>` priority for journald.
    Journal,
    Json,
    Text,
}

/// State folder of a daemon that runs as root or under its own user.
pub const STATE_PATH: &str = "/var/lib/gatewayd";

impl Default for Config {
    /// What holds with no configuration file.
    fn default() -> Self {
        Self {
            gateway: Identity {
                id: GatewayId::Auto,
                labels: BTreeMap::from([("site".to_owned(), String::new())]),
            },
            listeners: LISTENER_DEFAULTS.iter().map(|row| Listener::built_in(row, true)).collect(),
            tls: BTreeMap::new(),
            auth: Auth::default(),
            limits: Limits::default(),
            queues: QueueClasses::default(),
            storage: Storage::default(),
            routes: vec![default_route()],
            collections: BTreeMap::from([(DEFAULT_ROUTE.to_owned(), Collection::default())]),
            log: Log { level: LogLevel::Info, format: LogFormat::Auto },
        }
    }
}

/// Name of the route that exists while none is written, and of its collection.
pub(super) const DEFAULT_ROUTE: &str = "readings";
/// What it takes.
pub(super) const DEFAULT_TOPIC: &str = "sensors/#";

/// The route that exists while none is written.
pub(super) fn default_route() -> Route {
    Route {
        name: DEFAULT_ROUTE.to_owned(),
        filters: Filter::parse(DEFAULT_TOPIC).into_iter().collect(),
        collection: DEFAULT_ROUTE.to_owned(),
        tags: BTreeMap::new(),
        topic_regex: None,
        durability: Durability::Ack,
    }
}

impl Default for Collection {
    fn default() -> Self {
        Self { retention: Some(Duration::from_secs(30 * 24 * 3600)), bytes_max: 256 * MIB, series_max: 2000 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 2 * MIB,
            connections_max: 4096,
            sessions_max: 4096,
            queues_max: 10_000,
            session_expiry_max: Duration::from_secs(7 * 24 * 3600),
            inflight_max: 20,
            keep_alive_max: Duration::ZERO,
            retained_max: 10_000,
            retained_bytes_max: 8 * MIB,
            memory_max: 128 * MIB,
        }
    }
}

impl Default for QueueClasses {
    fn default() -> Self {
        let default =
            QueueBounds { messages_max: 100_000, bytes_max: 64 * MIB, overflow: Overflow::DropOldest };
        Self {
            default,
            session: QueueBounds { messages_max: 4096, bytes_max: 16 * MIB, ..default },
            named: BTreeMap::new(),
        }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            path: PathBuf::from(STATE_PATH),
            gateway_bytes_max: 72 * MIB,
            backlog_bytes_max: 512 * MIB,
            series_bytes_max: GIB,
            reserve_free: 64 * MIB,
            bytes_per_day_budget: Some(8 * GIB),
            elision_window: Duration::from_millis(10),
            on_corrupt: OnCorrupt::Quarantine,
        }
    }
}

impl Listener {
    /// Whether only this machine can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.bind.is_local()
    }

    /// A listener that exists without being written.
    pub(super) fn built_in(row: &ListenerDefault, allow_anonymous: bool) -> Self {
        Self {
            name: row.name.to_owned(),
            enabled: true,
            kind: row.kind,
            bind: Bind::Tcp(SocketAddr::new(row.address, row.port)),
            allow_anonymous,
            tls: None,
            client_cert: ClientCert::None,
            username_from_cert: UsernameFromCert::Cn,
        }
    }
}

impl Bind {
    /// Whether only this machine can reach it, seen through an IPv4-mapped IPv6 address too.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => is_loopback(address.ip()),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Config {
    /// The listeners that are served.
    pub fn enabled_listeners(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().filter(|listener| listener.enabled)
    }

    /// Where the control socket stands: under `/run` with the usual state folder, else in the state folder, so
    /// that a second gateway on the machine does not meet the first.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        if self.storage.path == Path::new(STATE_PATH) {
            return PathBuf::from("/run/gatewayd/control.sock");
        }
        self.storage.path.join("control.sock")
    }
}

impl QueueClasses {
    /// Bounds of the queue called `name`: the table of that very name, else the matching pattern with the most
    /// literal characters (of two alike, the first by name), else `default`.
    #[must_use]
    pub fn bounds_of(&self, name: &str) -> &QueueBounds {
        if let Some(exact) = self.named.get(name) {
            return exact;
        }
        let mut best: Option<(usize, &QueueBounds)> = None;
        for (pattern, bounds) in &self.named {
            let literals = pattern.chars().filter(|&c| c != '*').count();
            if matches_glob(pattern, name) && best.is_none_or(|(most, _)| literals > most) {
                best = Some((literals, bounds));
            }
        }
        best.map_or(&self.default, |(_, bounds)| bounds)
    }
}

/// Whether `ip` is loopback, seen through an IPv4-mapped IPv6 address too.
fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Whether `name` fits `pattern`, in which `*` stands for any run of characters. Linear in the product of both
/// lengths: only the last `*` is tried again.
fn matches_glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_matches_as_by_trying_every_split() {
        fn slow(pattern: &[u8], name: &[u8]) -> bool {
            match pattern.split_first() {
                None => name.is_empty(),
                Some((b'*', rest)) => (0..=name.len()).any(|skip| slow(rest, &name[skip..])),
                Some((c, rest)) => name.first() == Some(c) && slow(rest, &name[1..]),
            }
        }
        let words: Vec<String> = (0..3_usize.pow(5))
            .map(|n| (0..5).map(|i| ['a', 'b', '*'][n / 3_usize.pow(i) % 3]).collect())
            .collect();
        for pattern in &words {
            for name in ["", "a", "ab", "ba", "aab", "abab", "abbab", "aaaaaa", "abaabb", "babab"] {
                for cut in 0..=pattern.len() {
                    let pattern = &pattern.as_bytes()[..cut];
                    let text = std::str::from_utf8(pattern).unwrap();
                    assert_eq!(matches_glob(text, name), slow(pattern, name.as_bytes()), "{text} {name}");
                }
            }
        }
    }

    #[test]
    fn the_closest_table_bounds_a_queue() {
        let mut queues = QueueClasses::default();
        for (messages_max, name) in [(1, "big*"), (2, "big-red*"), (3, "big-red-one"), (4, "*")] {
            queues.named.insert(name.to_owned(), QueueBounds { messages_max, ..queues.default });
        }
        let bound = |name| queues.bounds_of(name).messages_max;
        assert_eq!(bound("big"), 1);
        assert_eq!(bound("big-red-two"), 2);
        assert_eq!(bound("big-red-one"), 3);
        assert_eq!(bound("small"), 4);
        assert_eq!(QueueClasses::default().bounds_of("small").messages_max, 100_000);
    }
}
