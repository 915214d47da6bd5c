//! The files as written, laid over each other: each file sets the keys that it has, in load order, so a drop-in
//! merges key by key into the tables before it. What is missing or contradicts is for `checked` to say.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use regex_lite::Regex;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Place, Problem};
use super::model::{
    Auth, Bind, ClientCert, GatewayId, Identity, Limits, Log, LogFormat, LogLevel, OnCorrupt, Overflow,
    Storage, UsernameFromCert,
};
use super::schema::{KINDS, ListenerKind, SECTIONS, SECTIONS_TO_COME, nearest, section};
use super::section::{Findings, Section, found, join, section_of_key};
use super::source::SourceFile;
use super::value::{parse_duration, show_duration};
use crate::ingest::route::{Durability, Filter, parse_pattern};

/// What the files say. Sections with defaults of their own start from those; named tables keep what was unset.
pub(super) struct Raw {
    pub gateway: Identity,
    pub listeners: BTreeMap<String, RawListener>,
    pub tls: BTreeMap<String, RawTls>,
    pub auth: Auth,
    pub limits: Limits,
    pub queues: BTreeMap<String, RawQueue>,
    pub storage: Storage,
    pub ingest: BTreeMap<String, RawIngest>,
    pub collections: BTreeMap<String, RawCollection>,
    pub log: Log,
}

/// `[listener.NAME]` as written.
pub(super) struct RawListener {
    /// Where the table first stands.
    pub place: Place,
    pub enabled: Option<bool>,
    pub kind: Option<ListenerKind>,
    pub bind: Option<Bind>,
    pub allow_anonymous: Option<bool>,
    /// `None` inside for `""`.
    pub tls: Option<Option<String>>,
    pub client_cert: Option<ClientCert>,
    pub username_from_cert: Option<UsernameFromCert>,
}

/// `[tls.NAME]` as written.
pub(super) struct RawTls {
    /// Where the table first stands.
    pub place: Place,
    pub cert: Option<Option<PathBuf>>,
    pub key: Option<Option<PathBuf>>,
    pub client_ca: Option<Option<PathBuf>>,
}

/// `[queue.NAME]` as written.
#[derive(Clone, Copy, Default)]
pub(super) struct RawQueue {
    pub messages_max: Option<u64>,
    pub bytes_max: Option<u64>,
    pub overflow: Option<Overflow>,
}

/// `[ingest.NAME]` as written.
pub(super) struct RawIngest {
    /// Where the table first stands.
    pub place: Place,
    pub topics: Option<Vec<Filter>>,
    pub collection: Option<String>,
    pub tags: Option<BTreeMap<String, String>>,
    pub topic_regex: Option<Option<Regex>>,
    pub durability: Option<Durability>,
}

/// `[collection.NAME]` as written.
#[derive(Clone, Copy, Default)]
pub(super) struct RawCollection {
    pub retention: Option<Option<Duration>>,
    pub bytes_max: Option<u64>,
    pub series_max: Option<u32>,
}

pub(super) const OVERFLOWS: [(&str, Overflow); 2] =
    [("drop_oldest", Overflow::DropOldest), ("reject", Overflow::Reject)];
pub(super) const ON_CORRUPTS: [(&str, OnCorrupt); 2] =
    [("quarantine", OnCorrupt::Quarantine), ("stop", OnCorrupt::Stop)];
pub(super) const CLIENT_CERTS: [(&str, ClientCert); 3] =
    [("none", ClientCert::None), ("optional", ClientCert::Optional), ("required", ClientCert::Required)];
pub(super) const USERNAMES_FROM_CERT: [(&str, UsernameFromCert); 3] =
    [("none", UsernameFromCert::None), ("cn", UsernameFromCert::Cn), ("san", UsernameFromCert::San)];
pub(super) const LOG_LEVELS: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];
pub(super) const LOG_FORMATS: [(&str, LogFormat); 4] = [
    ("auto", LogFormat::Auto),
    ("journal", LogFormat::Journal),
    ("json", LogFormat::Json),
    ("text", LogFormat::Text),
];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Largest payload that fits an MQTT packet with its topic: Remaining Length ends at 268 435 455.
pub const MESSAGE_BYTES: RangeInclusive<u64> = KIB..=256_000_000;
const SIZES: RangeInclusive<u64> = MIB..=1024 * GIB;
/// `series.redb` holds less than what comes between two flushes beside what they replace when it is smaller.
const SERIES_SIZES: RangeInclusive<u64> = 16 * MIB..=1024 * GIB;
/// The smallest size above which redb's file can grow, to where its pages are no longer addressed in 32 bits.
const GATEWAY_BYTES: RangeInclusive<u64> = 17 * MIB..=2 * GIB;
/// MQTT 5's Session Expiry Interval has 32 bits of seconds; 49 710 days is the most in whole days.
pub const EXPIRIES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(49_710 * 86_400);
/// A keep-alive has 16 bits of seconds.
const KEEP_ALIVES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(65_535);
/// A reading that nothing waits for is flushed within an hour.
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// A minute to a century.
const RETENTIONS: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(36_525 * 86_400);
/// An acknowledgement is held back by at most a second.
const WINDOWS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(1);
/// A client gives up after about ten seconds: a longer wait for the answer looks like no gateway.
const FAILED_DELAYS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(5);
const LOCKOUTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

impl Raw {
    /// What holds with no file.
    pub fn new(storage: Storage) -> Self {
        let default = super::Config::default();
        Self {
            gateway: default.gateway,
            listeners: BTreeMap::new(),
            tls: BTreeMap::new(),
            auth: default.auth,
            limits: default.limits,
            queues: BTreeMap::new(),
            storage,
            ingest: BTreeMap::new(),
            collections: BTreeMap::new(),
            log: default.log,
        }
    }

    /// Lays `file`, parsed as `root`, over what is there.
    pub fn apply(&mut self, file: &SourceFile, root: &DeTable<'_>, found: &mut Findings) {
        for (key, value) in root {
            let name = key.get_ref().as_ref();
            let place = file.place(key.span().start);
            if SECTIONS_TO_COME.contains(&name) {
                report_to_come(file, name, (place, value), found);
                continue;
            }
            let Some(names) = section(name) else {
                found.report(place, &join("", name), unknown_section(name, value));
                continue;
            };
            let DeValue::Table(table) = value.get_ref() else {
                let header = if names.named { format!("[{name}.NAME]") } else { format!("[{name}]") };
                not_a_table(file, name, value, &header, found);
                continue;
            };
            if names.named {
                self.apply_named(file, (name, names.keys), table, found);
            } else {
                self.apply_plain(Section::new(file, (name.to_owned(), table), names.keys, found), name);
            }
        }
    }

    fn apply_plain(&mut self, section: Section<'_>, name: &str) {
        match name {
            "gateway" => self.gateway(section),
            "auth" => self.auth(section),
            "limits" => self.limits(section),
            "storage" => self.storage(section),
            "log" => self.log(section),
            _ => {}
        }
    }

    fn apply_named(
        &mut self,
        file: &SourceFile,
        (kind, keys): (&str, &'static [&'static str]),
        tables: &DeTable<'_>,
        found: &mut Findings,
    ) {
        for (key, value) in tables {
            let name = key.get_ref().as_ref();
            let place = file.place(key.span().start);
            let path = join(kind, name);
            let DeValue::Table(table) = value.get_ref() else {
                if keys.contains(&name) {
                    let reason = format!("stands in a table without a name: write [{kind}.NAME] above it");
                    found.report(place, &path, Problem::BadValue(reason));
                } else {
                    not_a_table(file, &path, value, &format!("[{path}]"), found);
                }
                continue;
            };
            if let Err(reason) = check_name(kind, name) {
                found.report(place, &path, Problem::BadValue(reason));
                continue;
            }
            if kind == "listener" {
                let section = Section::new(file, (path, table), keys, found);
                self.listeners
                    .entry(name.to_owned())
                    .or_insert_with(|| RawListener::new(place))
                    .apply(section);
            } else if kind == "tls" {
                let section = Section::new(file, (path, table), keys, found);
                self.tls.entry(name.to_owned()).or_insert_with(|| RawTls::new(place)).apply(section);
            } else if kind == "ingest" {
                let section = Section::new(file, (path, table), keys, found);
                self.ingest.entry(name.to_owned()).or_insert_with(|| RawIngest::new(place)).apply(section);
            } else if kind == "collection" {
                let section = Section::new(file, (path, table), keys, found);
                self.collections.entry(name.to_owned()).or_default().apply(section);
            } else {
                let section = Section::new(file, (path, table), keys, found);
                self.queues.entry(name.to_owned()).or_default().apply(section);
            }
        }
    }

    fn gateway(&mut self, mut section: Section<'_>) {
        set(&mut self.gateway.id, section.text("id", check_gateway_id).map(gateway_id));
        set(&mut self.gateway.labels, section.labels("labels"));
    }

    fn auth(&mut self, mut section: Section<'_>) {
        set(&mut self.auth.password_file, section.path("password_file"));
        set(&mut self.auth.acl_file, section.path("acl_file"));
        set(&mut self.auth.failed_delay, section.duration("failed_delay", FAILED_DELAYS));
        set(&mut self.auth.lockout_failures, section.count("lockout_failures", 0..=1_000_000));
        set(&mut self.auth.lockout_for, section.duration("lockout_for", LOCKOUTS));
    }

    fn limits(&mut self, mut section: Section<'_>) {
        let limits = &mut self.limits;
        set(&mut limits.message_bytes_max, section.bytes("message_bytes_max", MESSAGE_BYTES));
        set(&mut limits.connections_max, section.count("connections_max", 1..=1_000_000));
        set(&mut limits.sessions_max, section.count("sessions_max", 1..=1_000_000));
        set(&mut limits.queues_max, section.count("queues_max", 1..=1_000_000));
        set(&mut limits.session_expiry_max, section.duration("session_expiry_max", EXPIRIES));
        set(&mut limits.inflight_max, section.count("inflight_max", 1..=u16::MAX));
        set(&mut limits.keep_alive_max, section.duration("keep_alive_max", KEEP_ALIVES));
        set(&mut limits.retained_max, section.count("retained_max", 0..=10_000_000));
        set(&mut limits.retained_bytes_max, section.bytes("retained_bytes_max", 0..=GIB));
        set(&mut limits.memory_max, section.bytes("memory_max", MIB..=64 * GIB));
    }

    fn storage(&mut self, mut section: Section<'_>) {
        let storage = &mut self.storage;
        let check = |text: &str| match text {
            "" => Err("is empty: leave the key out for the default".to_owned()),
            _ => Ok(()),
        };
        if section.text("path", check).is_some()
            && let Some(Some(path)) = section.path("path")
        {
            storage.path = path;
        }
        set(&mut storage.gateway_bytes_max, section.bytes("gateway_bytes_max", GATEWAY_BYTES));
        set(&mut storage.backlog_bytes_max, section.bytes("backlog_bytes_max", SIZES));
        set(&mut storage.series_bytes_max, section.bytes("series_bytes_max", SERIES_SIZES));
        set(&mut storage.reserve_free, section.bytes("reserve_free", 0..=1024 * GIB));
        set(&mut storage.bytes_per_day_budget, section.bytes_or_none("bytes_per_day_budget", SIZES));
        set(&mut storage.elision_window, section.duration("elision_window", WINDOWS));
        set(&mut storage.on_corrupt, section.choice("on_corrupt", &ON_CORRUPTS));
    }

    fn log(&mut self, mut section: Section<'_>) {
        set(&mut self.log.level, section.choice("level", &LOG_LEVELS));
        set(&mut self.log.format, section.choice("format", &LOG_FORMATS));
    }
}

impl RawListener {
    const fn new(place: Place) -> Self {
        Self {
            place,
            enabled: None,
            kind: None,
            bind: None,
            allow_anonymous: None,
            tls: None,
            client_cert: None,
            username_from_cert: None,
        }
    }

    fn apply(&mut self, mut section: Section<'_>) {
        set_some(&mut self.enabled, section.flag("enabled"));
        set_some(&mut self.kind, section.choice("kind", &KINDS));
        set_some(&mut self.bind, section.bind("bind"));
        set_some(&mut self.allow_anonymous, section.flag("allow_anonymous"));
        let check = |name: &str| if name.is_empty() { Ok(()) } else { check_name("tls", name) };
        let tls = section.text("tls", check);
        set_some(&mut self.tls, tls.map(|name| Some(name).filter(|name| !name.is_empty())));
        set_some(&mut self.client_cert, section.choice("client_cert", &CLIENT_CERTS));
        set_some(&mut self.username_from_cert, section.choice("username_from_cert", &USERNAMES_FROM_CERT));
    }
}

impl RawTls {
    const fn new(place: Place) -> Self {
        Self { place, cert: None, key: None, client_ca: None }
    }

    fn apply(&mut self, mut section: Section<'_>) {
        set_some(&mut self.cert, section.path("cert"));
        set_some(&mut self.key, section.path("key"));
        set_some(&mut self.client_ca, section.path("client_ca"));
    }
}

impl RawIngest {
    const fn new(place: Place) -> Self {
        Self { place, topics: None, collection: None, tags: None, topic_regex: None, durability: None }
    }

    fn apply(&mut self, mut section: Section<'_>) {
        set_some(&mut self.topics, section.list("topics", Filter::parse));
        let check = |name: &str| check_name("collection", name);
        set_some(&mut self.collection, section.text("collection", check));
        set_some(&mut self.tags, section.labels("tags"));
        let check = |text: &str| if text.is_empty() { Ok(()) } else { parse_pattern(text).map(|_| ()) };
        let pattern = section.text("topic_regex", check);
        set_some(
            &mut self.topic_regex,
            pattern.map(|text| parse_pattern(&text).ok().filter(|_| !text.is_empty())),
        );
        let check = |text: &str| read_durability(text).map(|_| ());
        let durability = section.text("durability", check);
        set_some(&mut self.durability, durability.and_then(|text| read_durability(&text).ok()));
    }
}

/// `ack`, or an interval.
fn read_durability(text: &str) -> Result<Durability, String> {
    if text == "ack" {
        return Ok(Durability::Ack);
    }
    let interval =
        parse_duration(text).map_err(|_| "is neither \"ack\" nor an interval such as \"5s\"".to_owned())?;
    if INTERVALS.contains(&interval) {
        return Ok(Durability::Every(interval));
    }
    let [from, to] = [INTERVALS.start(), INTERVALS.end()].map(|bound| show_duration(*bound));
    Err(format!("is out of range: {from} to {to}"))
}

impl RawCollection {
    fn apply(&mut self, mut section: Section<'_>) {
        set_some(&mut self.retention, section.duration_or_none("retention", RETENTIONS));
        set_some(&mut self.bytes_max, section.bytes("bytes_max", 64 * KIB..=1024 * GIB));
        set_some(&mut self.series_max, section.count("series_max", 1..=1_000_000));
    }
}

impl RawQueue {
    fn apply(&mut self, mut section: Section<'_>) {
        set_some(&mut self.messages_max, section.count("messages_max", 1..=1_000_000_000));
        set_some(&mut self.bytes_max, section.bytes("bytes_max", KIB..=1024 * GIB));
        set_some(&mut self.overflow, section.choice("overflow", &OVERFLOWS));
    }
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

fn set_some<T>(setting: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *setting = value;
    }
}

fn gateway_id(text: String) -> GatewayId {
    if text == "auto" { GatewayId::Auto } else { GatewayId::Fixed(text) }
}

fn check_gateway_id(text: &str) -> Result<(), String> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=64).contains(&text.len()) && text.chars().all(is_fit) {
        return Ok(());
    }
    Err("is not \"auto\" or 1 to 64 of the characters a-z A-Z 0-9 - _ .".to_owned())
}

/// The names of listeners, TLS tables, routes and collections stand in log lines, status and paths, a queue's is a
/// queue name or a pattern.
fn check_name(kind: &str, name: &str) -> Result<(), String> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match kind {
        "listener" | "tls" | "ingest" | "collection"
            if (1..=64).contains(&name.len()) && name.chars().all(is_fit) =>
        {
            Ok(())
        }
        "listener" | "tls" | "ingest" | "collection" => {
            Err("is not a name of 1 to 64 of the characters a-z A-Z 0-9 - _ .".to_owned())
        }
        _ if (1..=255).contains(&name.len()) => Ok(()),
        _ => Err("is not a name or pattern of 1 to 255 bytes".to_owned()),
    }
}

/// `[ingest.x]`: one error for each table below, or for the section when it holds keys of its own.
fn report_to_come(
    file: &SourceFile,
    name: &str,
    (place, value): (Place, &Spanned<DeValue<'_>>),
    found: &mut Findings,
) {
    if let DeValue::Table(tables) = value.get_ref()
        && !tables.is_empty()
        && tables.iter().all(|(_, inner)| matches!(inner.get_ref(), DeValue::Table(_)))
    {
        for (key, _) in tables {
            let path = join(name, key.get_ref());
            let problem = Problem::NotAvailable(format!("[{path}]"));
            found.report(file.place(key.span().start), &path, problem);
        }
        return;
    }
    found.report(place, name, Problem::NotAvailable(format!("[{name}]")));
}

fn unknown_section(name: &str, value: &Spanned<DeValue<'_>>) -> Problem {
    let is_table = matches!(value.get_ref(), DeValue::Table(_));
    let names: Vec<&str> = SECTIONS.iter().map(|section| section.name).chain(SECTIONS_TO_COME).collect();
    Problem::Unknown {
        what: if is_table { "table" } else { "key" },
        nearest: nearest(name, &names).map(|name| format!("[{name}]")),
        belongs_in: if is_table { None } else { section_of_key(name) },
    }
}

fn not_a_table(
    file: &SourceFile,
    path: &str,
    value: &Spanned<DeValue<'_>>,
    header: &str,
    findings: &mut Findings,
) {
    let found = match value.get_ref() {
        DeValue::Array(_) => "a list; single brackets, and each table once".to_owned(),
        _ => found(file, value),
    };
    let problem = Problem::WrongType { wants: format!("a table: {header}"), found };
    findings.report(file.place(value.span().start), path, problem);
}
