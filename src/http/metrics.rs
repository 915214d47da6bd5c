//! Metrics in Prometheus' text format, version 0.0.4. [`FAMILIES`] is the table of names that `docs/metrics.md` shows;
//! nothing else is written.

use std::fmt::Write as _;

use serde_json::Value;

use crate::auth::Denied;
use crate::broker::QueueKind;
use crate::gateway::{ClassFigures, Figures, Gateway, PROTOCOLS, StoreCondition, age_ms, fill};
use crate::series::SeriesCounters;
use crate::time::Now;

/// What a family is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    Counter,
    Gauge,
}

impl Type {
    /// The word in the format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// A family: its name, what it is, the names of its labels, and a sentence.
#[derive(Clone, Copy, Debug)]
pub struct Family(pub &'static str, pub Type, pub &'static [&'static str], pub &'static str);

use Type::{Counter, Gauge};

/// Every family that is written, in the order in which they are written.
#[rustfmt::skip]
pub const FAMILIES: &[Family] = &[
    Family("gatewayd_info", Gauge, &["id", "version"], "Always 1; the labels say which gateway this is"),
    Family("gatewayd_uptime_seconds", Gauge, &[], "Time since the start"),
    Family("gatewayd_healthy", Gauge, &[], "1 while flash and collections take what is given to them"),
    Family("gatewayd_clock_trusted", Gauge, &[], "1 while the wall clock is believed"),
    Family("gatewayd_certificate_expiry_timestamp_seconds", Gauge, &["certificate"], "End of a certificate of the gateway's own, seconds since 1970"),
    Family("gatewayd_messages_received_total", Counter, &["protocol"], "Messages that publishers handed over"),
    Family("gatewayd_messages_sent_total", Counter, &["protocol"], "Copies handed to consumers, repeats included"),
    Family("gatewayd_messages_dropped_total", Counter, &["class", "reason"], "Copies that were dropped, by kind of queue and reason"),
    Family("gatewayd_messages_refused_total", Counter, &[], "Copies that a full queue refused"),
    Family("gatewayd_messages_unrouted_total", Counter, &[], "Messages that no queue wanted"),
    Family("gatewayd_messages_queued_total", Counter, &[], "Copies put into queues"),
    Family("gatewayd_messages_settled_total", Counter, &[], "Copies that consumers acknowledged"),
    Family("gatewayd_messages_discarded_total", Counter, &[], "Copies that ended by their client's wish: purged, rejected, or with their session or queue"),
    Family("gatewayd_messages_dead_lettered_total", Counter, &[], "Copies that went to a dead-letter exchange"),
    Family("gatewayd_messages_elided_total", Counter, &[], "Messages that every durable taker acknowledged before they reached flash"),
    Family("gatewayd_denied_total", Counter, &["action"], "What the password file or the ACL did not allow"),
    Family("gatewayd_flash_working", Gauge, &[], "1 while the flash takes batches, 0 while acknowledgements wait"),
    Family("gatewayd_flash_failures_total", Counter, &[], "Times that the flash began to fail"),
    Family("gatewayd_flash_batches_total", Counter, &[], "Batches that were committed"),
    Family("gatewayd_flash_syncs_total", Counter, &[], "Syncs asked of the disk for them"),
    Family("gatewayd_flash_written_bytes_total", Counter, &[], "Bytes handed to the disk for them"),
    Family("gatewayd_flash_written_today_bytes", Gauge, &[], "The same since midnight UTC, or since the start"),
    Family("gatewayd_flash_budget_bytes", Gauge, &[], "storage.bytes_per_day_budget; absent without a budget"),
    Family("gatewayd_flash_budget_overspent", Gauge, &[], "1 while commits are spread because the budget is spent"),
    Family("gatewayd_flash_bytes_per_message", Gauge, &[], "Bytes written for each message received, since the start"),
    Family("gatewayd_flash_live_bytes", Gauge, &[], "What live rows take of the row log's quota"),
    Family("gatewayd_flash_quota_bytes", Gauge, &[], "That quota"),
    Family("gatewayd_queues", Gauge, &["class"], "Queues, sessions and collections"),
    Family("gatewayd_queue_ready_messages", Gauge, &["class"], "Messages that wait"),
    Family("gatewayd_queue_in_flight_messages", Gauge, &["class"], "Messages that were handed out and not acknowledged"),
    Family("gatewayd_queue_bytes", Gauge, &["class"], "Bytes of both"),
    Family("gatewayd_queue_oldest_age_seconds", Gauge, &["class"], "Age of the oldest message in any of them"),
    Family("gatewayd_queue_fill_ratio_max", Gauge, &["class"], "How full the fullest is, 0 to 1 of its bound"),
    Family("gatewayd_one_queue_messages", Gauge, &["class", "queue"], "Messages in one queue; only with /metrics?per=queue"),
    Family("gatewayd_one_queue_bytes", Gauge, &["class", "queue"], "Bytes in one queue; only with /metrics?per=queue"),
    Family("gatewayd_one_queue_oldest_age_seconds", Gauge, &["class", "queue"], "Age of its oldest message; only with /metrics?per=queue"),
    Family("gatewayd_one_queue_fill_ratio", Gauge, &["class", "queue"], "How full it is, 0 to 1; only with /metrics?per=queue"),
    Family("gatewayd_one_queue_dropped_total", Counter, &["class", "queue"], "What it lost since the start; only with /metrics?per=queue"),
    Family("gatewayd_connections", Gauge, &["state"], "Open connections: mqtt, amqp, or joining"),
    Family("gatewayd_connections_max", Gauge, &[], "limits.connections_max"),
    Family("gatewayd_connections_accepted_total", Counter, &[], "Connections that were accepted"),
    Family("gatewayd_connections_refused_total", Counter, &[], "Connections that were refused because there were too many"),
    Family("gatewayd_connections_closed_total", Counter, &["protocol", "reason"], "Connections that ended"),
    Family("gatewayd_connections_held_back", Gauge, &[], "Connections that are not read: the flash must catch up, or their output is full"),
    Family("gatewayd_protocol_errors_total", Counter, &[], "Connections that ended for what they sent"),
    Family("gatewayd_credit_stalls_total", Counter, &[], "Times that a consumer's credit ran out while messages waited for it"),
    Family("gatewayd_packets_received_total", Counter, &[], "MQTT packets and AMQP frames"),
    Family("gatewayd_received_bytes_total", Counter, &[], "Bytes from MQTT and AMQP clients"),
    Family("gatewayd_sent_bytes_total", Counter, &[], "Bytes to MQTT and AMQP clients"),
    Family("gatewayd_sessions", Gauge, &[], "MQTT sessions"),
    Family("gatewayd_sessions_connected", Gauge, &[], "MQTT sessions whose client is connected"),
    Family("gatewayd_subscriptions", Gauge, &[], "Subscriptions of MQTT sessions"),
    Family("gatewayd_exchanges", Gauge, &[], "AMQP exchanges"),
    Family("gatewayd_retained_messages", Gauge, &[], "Last known values"),
    Family("gatewayd_retained_bytes", Gauge, &[], "Bytes of them"),
    Family("gatewayd_message_memory_bytes", Gauge, &[], "Memory that messages take, bounded by limits.memory_max"),
    Family("gatewayd_input_bytes", Gauge, &[], "Memory that parts of packets take"),
    Family("gatewayd_recovery_seconds", Gauge, &[], "How long the start took to read what is on flash"),
    Family("gatewayd_recovered_items", Gauge, &["kind"], "What the start found: sessions, queues, messages, retained, wills"),
    Family("gatewayd_recovery_unreadable_rows", Gauge, &[], "Rows that the start could not read"),
    Family("gatewayd_collection_readings", Gauge, &["collection"], "Readings that a collection holds on flash"),
    Family("gatewayd_collection_bytes", Gauge, &["collection"], "Bytes that they take"),
    Family("gatewayd_collection_series", Gauge, &["collection"], "Series of a collection"),
    Family("gatewayd_collection_unflushed_readings", Gauge, &["collection"], "Readings that still wait in the row log or in memory"),
    Family("gatewayd_collection_malformed_total", Counter, &["collection"], "Payloads that looked like JSON and were none"),
    Family("gatewayd_series_flushes_total", Counter, &[], "Times that readings were stored"),
    Family("gatewayd_series_readings_total", Counter, &[], "Readings that were stored"),
    Family("gatewayd_series_written_bytes_total", Counter, &[], "Bytes handed to the disk for them"),
    Family("gatewayd_series_syncs_total", Counter, &[], "Syncs asked of the disk for them"),
    Family("gatewayd_series_expired_readings_total", Counter, &[], "Readings that retention ended"),
    Family("gatewayd_series_shared_readings_total", Counter, &[], "Readings that share a series because their collection has too many, or their topic is long"),
    Family("process_resident_memory_bytes", Gauge, &[], "Resident memory"),
    Family("process_cpu_seconds_total", Counter, &[], "Processor time"),
    Family("process_open_fds", Gauge, &[], "Open file descriptors"),
    Family("process_start_time_seconds", Gauge, &[], "Start, seconds since 1970"),
];

/// The family of a name, looked up while the program is compiled: a name that is not in the table does not compile.
macro_rules! named {
    ($name:literal) => {
        const { family_named($name) }
    };
}

const fn family_named(name: &str) -> &'static Family {
    let mut at = 0;
    while at < FAMILIES.len() {
        if is_same(FAMILIES[at].0.as_bytes(), name.as_bytes()) {
            return &FAMILIES[at];
        }
        at += 1;
    }
    panic!("the table has no family of this name")
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// The content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the driver knows of its process.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ProcessFigures {
    pub resident_bytes: u64,
    pub cpu_s: f64,
    pub open_files: u64,
    pub started_s: f64,
}

/// What the owner of the collections tells: their overview and its counters.
pub type SeriesFigures = (Value, SeriesCounters);

/// All metrics; with `per_queue` those of each queue too.
#[must_use]
pub fn render(
    gateway: &Gateway,
    now: Now,
    series: Option<&SeriesFigures>,
    process: ProcessFigures,
    per_queue: bool,
) -> String {
    let figures = gateway.figures(now);
    let mut page = Page::default();
    gateway_metrics(&mut page, &figures);
    certificate_metrics(&mut page, gateway);
    message_metrics(&mut page, &figures);
    flash_metrics(&mut page, &figures);
    class_metrics(&mut page, &gateway.class_figures(now));
    if per_queue {
        queue_metrics(&mut page, gateway, now);
    }
    connection_metrics(&mut page, &figures);
    state_metrics(&mut page, &figures);
    if let Some((overview, counters)) = series {
        collection_metrics(&mut page, overview, *counters);
    }
    page.family(named!("process_resident_memory_bytes")).one(process.resident_bytes);
    page.family(named!("process_cpu_seconds_total")).one(process.cpu_s);
    page.family(named!("process_open_fds")).one(process.open_files);
    page.family(named!("process_start_time_seconds")).one(process.started_s);
    page.text
}

fn gateway_metrics(page: &mut Page, figures: &Figures<'_>) {
    let healthy = figures.store.condition == StoreCondition::Working && figures.series_failing.is_none();
    page.family(named!("gatewayd_info")).with(&[figures.id, env!("CARGO_PKG_VERSION")], 1);
    page.family(named!("gatewayd_uptime_seconds")).one(figures.uptime_s);
    page.family(named!("gatewayd_healthy")).one(u8::from(healthy));
    page.family(named!("gatewayd_clock_trusted")).one(u8::from(figures.now.wall_trusted));
}

fn certificate_metrics(page: &mut Page, gateway: &Gateway) {
    let mut ends = page.family(named!("gatewayd_certificate_expiry_timestamp_seconds"));
    for (name, certificate) in gateway.certificates() {
        ends.with(&[name], certificate.not_after.0 / 1000);
    }
}

fn message_metrics(page: &mut Page, figures: &Figures<'_>) {
    let counters = figures.broker.counters;
    let mut received = page.family(named!("gatewayd_messages_received_total"));
    for (protocol, count) in PROTOCOLS.iter().zip(figures.tally.received) {
        received.with(&[protocol], count);
    }
    page.family(named!("gatewayd_messages_sent_total"))
        .with(&["mqtt"], figures.tally.sent_mqtt)
        .with(&["amqp"], figures.tally.sent_amqp + counters.fetched);
    let mut dropped = page.family(named!("gatewayd_messages_dropped_total"));
    for (reason, kind, count) in &figures.broker.lost {
        dropped.with(&[kind.map_or("file", QueueKind::name), reason.name()], count);
    }
    dropped.with(&["session", "output_full"], counters.dropped_output_full);
    dropped.with(&["queue", "address_too_long"], counters.address_too_long);
    dropped.with(&["retained", "retained_bound"], counters.retained_refused);
    page.family(named!("gatewayd_messages_refused_total")).one(counters.refused);
    page.family(named!("gatewayd_messages_unrouted_total")).one(counters.unrouted);
    page.family(named!("gatewayd_messages_queued_total")).one(counters.queued);
    page.family(named!("gatewayd_messages_settled_total")).one(counters.settled);
    page.family(named!("gatewayd_messages_discarded_total")).one(counters.discarded);
    page.family(named!("gatewayd_messages_dead_lettered_total")).one(counters.dead_lettered);
    page.family(named!("gatewayd_messages_elided_total")).one(figures.broker.elided);
    let mut denied = page.family(named!("gatewayd_denied_total"));
    for action in Denied::ALL {
        denied.with(&[action.name()], figures.tally.denials.count(action));
    }
}

fn flash_metrics(page: &mut Page, figures: &Figures<'_>) {
    let store = figures.store;
    page.family(named!("gatewayd_flash_working")).one(u8::from(store.condition == StoreCondition::Working));
    page.family(named!("gatewayd_flash_failures_total")).one(figures.tally.flash_failures);
    page.family(named!("gatewayd_flash_batches_total")).one(store.batches);
    page.family(named!("gatewayd_flash_syncs_total")).one(store.syncs);
    page.family(named!("gatewayd_flash_written_bytes_total")).one(store.bytes_written);
    page.family(named!("gatewayd_flash_written_today_bytes")).one(store.bytes_today(figures.now));
    if let Some(budget) = figures.facts.flash_bytes_per_day {
        page.family(named!("gatewayd_flash_budget_bytes")).one(budget);
    }
    page.family(named!("gatewayd_flash_budget_overspent")).one(u8::from(figures.broker.flash_overspent));
    let messages: u64 = figures.tally.received.iter().sum();
    page.family(named!("gatewayd_flash_bytes_per_message")).one(store.bytes_written / messages.max(1));
    page.family(named!("gatewayd_flash_live_bytes")).one(figures.broker.flash_bytes_live);
    page.family(named!("gatewayd_flash_quota_bytes")).one(figures.broker.flash_quota_bytes);
}

fn class_metrics(page: &mut Page, classes: &[(QueueKind, ClassFigures)]) {
    let mut each = |name, value: &dyn Fn(&ClassFigures) -> f64| {
        let mut family = page.family(name);
        for (kind, class) in classes {
            family.with(&[kind.name()], value(class));
        }
    };
    each(named!("gatewayd_queues"), &|class| float(class.queues));
    each(named!("gatewayd_queue_ready_messages"), &|class| float(class.ready));
    each(named!("gatewayd_queue_in_flight_messages"), &|class| float(class.in_flight));
    each(named!("gatewayd_queue_bytes"), &|class| float(class.bytes));
    each(named!("gatewayd_queue_oldest_age_seconds"), &|class| float(class.oldest_ms) / 1000.0);
    each(named!("gatewayd_queue_fill_ratio_max"), &|class| class.fill_max);
}

fn queue_metrics(page: &mut Page, gateway: &Gateway, now: Now) {
    let queues: Vec<_> = gateway.broker().queue_status().collect();
    let mut each = |name, value: &dyn Fn(&crate::broker::QueueStatus) -> f64| {
        let mut family = page.family(name);
        for queue in &queues {
            family.with(&[queue.kind.name(), &queue.name], value(queue));
        }
    };
    each(named!("gatewayd_one_queue_messages"), &|queue| f64::from(queue.messages));
    each(named!("gatewayd_one_queue_bytes"), &|queue| float(queue.bytes));
    each(named!("gatewayd_one_queue_oldest_age_seconds"), &|queue| {
        float(age_ms(queue, now).unwrap_or(0)) / 1000.0
    });
    each(named!("gatewayd_one_queue_fill_ratio"), &fill);
    each(named!("gatewayd_one_queue_dropped_total"), &|queue| float(queue.dropped));
}

fn connection_metrics(page: &mut Page, figures: &Figures<'_>) {
    let [mqtt, amqp, joining] = figures.connections;
    page.family(named!("gatewayd_connections"))
        .with(&["mqtt"], mqtt)
        .with(&["amqp"], amqp)
        .with(&["joining"], joining);
    page.family(named!("gatewayd_connections_max")).one(figures.connections_max);
    page.family(named!("gatewayd_connections_accepted_total")).one(figures.counters.connections);
    page.family(named!("gatewayd_connections_refused_total")).one(figures.counters.refused);
    let mut closed = page.family(named!("gatewayd_connections_closed_total"));
    for ((protocol, reason), count) in &figures.tally.closed {
        closed.with(&[protocol, reason], count);
    }
    page.family(named!("gatewayd_connections_held_back")).one(figures.held_back);
    page.family(named!("gatewayd_protocol_errors_total")).one(figures.counters.protocol_errors);
    page.family(named!("gatewayd_credit_stalls_total")).one(figures.broker.counters.credit_stalls);
    page.family(named!("gatewayd_packets_received_total")).one(figures.counters.packets_received);
    page.family(named!("gatewayd_received_bytes_total")).one(figures.counters.bytes_received);
    page.family(named!("gatewayd_sent_bytes_total")).one(figures.counters.bytes_sent);
}

fn state_metrics(page: &mut Page, figures: &Figures<'_>) {
    let broker = &figures.broker;
    page.family(named!("gatewayd_sessions")).one(broker.sessions);
    page.family(named!("gatewayd_sessions_connected")).one(broker.sessions_connected);
    page.family(named!("gatewayd_subscriptions")).one(broker.subscriptions);
    page.family(named!("gatewayd_exchanges")).one(broker.exchanges);
    page.family(named!("gatewayd_retained_messages")).one(broker.retained);
    page.family(named!("gatewayd_retained_bytes")).one(broker.retained_bytes);
    page.family(named!("gatewayd_message_memory_bytes")).one(broker.memory_bytes);
    page.family(named!("gatewayd_input_bytes")).one(figures.input_bytes);
    page.family(named!("gatewayd_recovery_seconds")).one(float(figures.facts.recovery_ms) / 1000.0);
    page.family(named!("gatewayd_recovered_items"))
        .with(&["sessions"], figures.recovery.sessions)
        .with(&["queues"], figures.recovery.named_queues)
        .with(&["messages"], figures.recovery.queued)
        .with(&["retained"], figures.recovery.retained)
        .with(&["wills"], figures.recovery.wills);
    page.family(named!("gatewayd_recovery_unreadable_rows")).one(figures.recovery.unreadable);
}

fn collection_metrics(page: &mut Page, overview: &Value, counters: SeriesCounters) {
    let rows = overview.as_array().map(Vec::as_slice).unwrap_or_default();
    for (name, member) in [
        (named!("gatewayd_collection_readings"), "readings"),
        (named!("gatewayd_collection_bytes"), "bytes"),
        (named!("gatewayd_collection_series"), "series_count"),
        (named!("gatewayd_collection_unflushed_readings"), "unflushed"),
        (named!("gatewayd_collection_malformed_total"), "malformed"),
    ] {
        let mut family = page.family(name);
        for row in rows {
            let collection = row.get("name").and_then(Value::as_str).unwrap_or_default();
            family.with(&[collection], row.get(member).and_then(Value::as_u64).unwrap_or(0));
        }
    }
    page.family(named!("gatewayd_series_flushes_total")).one(counters.flushes);
    page.family(named!("gatewayd_series_readings_total")).one(counters.readings);
    page.family(named!("gatewayd_series_written_bytes_total")).one(counters.bytes_written);
    page.family(named!("gatewayd_series_syncs_total")).one(counters.syncs);
    page.family(named!("gatewayd_series_expired_readings_total")).one(counters.expired);
    page.family(named!("gatewayd_series_shared_readings_total")).one(counters.shared);
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows only floats")]
const fn float(value: u64) -> f64 {
    value as f64
}

/// The text that grows.
#[derive(Default)]
struct Page {
    text: String,
}

/// A family whose samples are being written. Its head is written with the first.
struct Samples<'p> {
    text: &'p mut String,
    family: &'static Family,
    begun: bool,
}

impl Page {
    fn family(&mut self, family: &'static Family) -> Samples<'_> {
        Samples { text: &mut self.text, family, begun: false }
    }
}

impl Samples<'_> {
    fn one(&mut self, value: impl std::fmt::Display) {
        self.with(&[], value);
    }

    fn with(&mut self, labels: &[&str], value: impl std::fmt::Display) -> &mut Self {
        let Family(name, kind, names, help) = self.family;
        if !std::mem::replace(&mut self.begun, true) {
            // A string takes any text.
            let _infallible = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
        }
        self.text.push_str(name);
        for (at, (label, text)) in names.iter().zip(labels).enumerate() {
            self.text.push_str(if at == 0 { "{" } else { "," });
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(self.text, text);
            self.text.push('"');
        }
        let close = if names.is_empty() || labels.is_empty() { "" } else { "}" };
        let _infallible = writeln!(self.text, "{close} {value}");
        self
    }
}

/// A label's value: names are what clients call themselves.
fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_and_stand_once() {
        let mut seen = std::collections::BTreeSet::new();
        for Family(name, kind, _, help) in FAMILIES {
            assert!(seen.insert(name), "{name} stands there twice");
            assert_eq!(name.ends_with("_total"), *kind == Counter, "{name}");
            assert!(!help.ends_with('.') && !help.contains('\n') && !help.contains('|'), "{name}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.family(named!("gatewayd_one_queue_bytes")).with(&["session", "a\"b\\c\nd"], 3);
        let line = page.text.lines().last().unwrap();
        assert_eq!(line, r#"gatewayd_one_queue_bytes{class="session",queue="a\"b\\c\nd"} 3"#);
    }
}
