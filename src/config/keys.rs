//! Every key of the configuration described: what it takes, within which bounds, and what it does. The manual page
//! gateway.toml(5) is made of it; a test holds it against the parser, key by key and bound by bound.

/// What a key takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `true` or `false`.
    Flag,
    /// A text; what it is.
    Text(&'static str),
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number from the first to the second.
    Count(u64, u64),
    /// Bytes, as text with a unit: `"64MiB"`.
    Size(u64, u64),
    /// Milliseconds, as text with a unit: `"30s"`.
    Time(u64, u64),
    /// A list of texts; what each is.
    List(&'static str),
    /// A table of names and texts.
    Table,
}

/// A key, and the section in which it stands. Of a section whose tables have names of their own it is in each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    pub section: &'static str,
    pub name: &'static str,
    pub form: Form,
    /// What `""` means, where it may be written.
    pub empty: Option<&'static str>,
    pub summary: &'static str,
}

const fn key(section: &'static str, name: &'static str, form: Form, summary: &'static str) -> Key {
    Key { section, name, form, empty: None, summary }
}

const fn or_empty(key: Key, empty: &'static str) -> Key {
    Key { empty: Some(empty), ..key }
}

use Form::{Count, Flag, List, Size, Table, Text, Time, Words};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const SECOND: u64 = 1000;
const DAY: u64 = 86_400 * SECOND;

/// In the order of the shipped file.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("gateway", "id", Text("\"auto\", or a name of letters, digits, hyphens, underscores and dots"), "Name in status, $SYS/gateway/id and metrics; \"auto\" is derived from the machine identifier."),
    key("gateway", "labels", Table, "Words of your own about the place, shown by check-config."),
    key("listener", "enabled", Flag, "Whether it is served."),
    key("listener", "kind", Words(&["mqtt", "ws", "amqp", "http"]), "What it speaks: MQTT 3.1, 3.1.1 and 5; the same over WebSocket at /mqtt; AMQP 0-9-1; the HTTP API."),
    key("listener", "bind", Text("\"ADDRESS:PORT\" or \"unix:/PATH\""), "Where it listens. Beyond loopback clients must log in, unless allow_anonymous = true is written."),
    key("listener", "allow_anonymous", Flag, "Whether clients without a user name get in. Not written, it is true on loopback while there is no password_file."),
    or_empty(key("listener", "tls", Text("the name of a [tls.NAME] table"), "Whose certificate it shows."), "no TLS"),
    key("listener", "client_cert", Words(&["none", "optional", "required"]), "Whether clients show a certificate that the table's client_ca has signed."),
    key("listener", "username_from_cert", Words(&["none", "cn", "san"]), "Which name in a client's certificate is its user name."),
    key("tls", "cert", Text("a path"), "PEM file: the certificate, then those between it and the root. Taken over when it changes."),
    key("tls", "key", Text("a path"), "PEM file: its private key, which nobody but owner and group may read."),
    or_empty(key("tls", "client_ca", Text("a path"), "PEM file: who signs clients' certificates."), "nobody"),
    or_empty(key("auth", "password_file", Text("a path"), "Mosquitto's password file; gatewayd user add writes it."), "none"),
    or_empty(key("auth", "acl_file", Text("a path"), "Mosquitto's ACL file, with queue and exchange lines for AMQP. An empty file allows nothing."), "none: everybody may everything"),
    key("auth", "failed_delay", Time(0, 5 * SECOND), "A wrong password is answered after this time."),
    key("auth", "lockout_failures", Count(0, 1_000_000), "After so many wrong passwords a user name is locked out for the address they came from. 0: never."),
    key("auth", "lockout_for", Time(SECOND, DAY), "For how long."),
    key("limits", "message_bytes_max", Size(KIB, 256_000_000), "Largest body of one message."),
    key("limits", "connections_max", Count(1, 1_000_000), "Connections of MQTT and AMQP clients."),
    key("limits", "sessions_max", Count(1, 1_000_000), "MQTT sessions, connected or not."),
    key("limits", "queues_max", Count(1, 1_000_000), "Queues beside the sessions."),
    key("limits", "session_expiry_max", Time(0, 49_710 * DAY), "A session whose client stays away for longer is forgotten with what waits for it."),
    key("limits", "inflight_max", Count(1, 65_535), "Messages sent to one MQTT client and not yet acknowledged."),
    key("limits", "keep_alive_max", Time(0, 65_535 * SECOND), "A client of MQTT 5 that wants a longer keep-alive is told this one. \"0s\": as it wants."),
    key("limits", "retained_max", Count(0, 10_000_000), "Last known values."),
    key("limits", "retained_bytes_max", Size(0, GIB), "Bytes of them."),
    key("limits", "memory_max", Size(MIB, 64 * GIB), "Messages in memory and their places in queues, and buffers, by the gateway's own account."),
    key("queue", "messages_max", Count(1, 1_000_000_000), "Messages of one queue. [queue.default] is for all, [queue.session] for MQTT sessions, [queue.\"big*\"] for a pattern."),
    key("queue", "bytes_max", Size(KIB, TIB), "Bytes of one queue."),
    key("queue", "overflow", Words(&["drop_oldest", "reject"]), "What a full queue does: the oldest goes and a loss receipt says so, or the newest is refused."),
    key("storage", "path", Text("a path"), "The only folder that holds state."),
    key("storage", "gateway_bytes_max", Size(17 * MIB, 2 * GIB), "Cap of what holds acknowledged messages, reserved at once."),
    key("storage", "backlog_bytes_max", Size(MIB, TIB), "Cap of messages that wait longer."),
    key("storage", "series_bytes_max", Size(16 * MIB, TIB), "Cap of stored time series."),
    key("storage", "reserve_free", Size(0, TIB), "Free space of the file system that is left to others."),
    or_empty(key("storage", "bytes_per_day_budget", Size(MIB, TIB), "Spares the flash: when more was written, commits widen to at most a second."), "no budget"),
    key("storage", "elision_window", Time(0, SECOND), "A message that all its takers settle within this time is never written. \"0s\": write at once."),
    key("storage", "on_corrupt", Words(&["quarantine", "stop"]), "A damaged file is set aside and whole rows are kept; or the gateway does not start."),
    key("ingest", "topics", List("MQTT filters; +NAME and #NAME name a level"), "Messages of these topics become readings."),
    key("ingest", "collection", Text("a name"), "Of which collection; not written, that of the route's name."),
    key("ingest", "tags", Table, "Tags made of named levels or groups: { place = \"{site}-{room}\" }. Empty: each name is a tag."),
    or_empty(key("ingest", "topic_regex", Text("a regular expression"), "Its named groups become tags too."), "none"),
    key("ingest", "durability", Text("\"ack\", or an interval from \"100ms\" to \"1h\""), "ack: a reading is on flash before it is acknowledged. An interval: what came within it may be lost when the power goes."),
    or_empty(key("collection", "retention", Time(60 * SECOND, 36_525 * DAY), "Readings that are older go."), "for ever"),
    key("collection", "bytes_max", Size(64 * KIB, TIB), "Bytes of a collection; the oldest readings go first."),
    key("collection", "series_max", Count(1, 1_000_000), "Topics, with their tags, that have a series of their own; others share one."),
    key("log", "level", Words(&["error", "warn", "info", "debug", "trace"]), "What is logged."),
    key("log", "format", Words(&["auto", "journal", "json", "text"]), "How. auto: journal under systemd, else text."),
];
