//! `status` for a reader: one screen made from the JSON object that the gateway answers. What is not there is left out.

use std::time::Duration;

use serde_json::Value;

use crate::config::{show_bytes, show_duration};
use crate::time::calendar;

/// Rows of a table that are shown on the screen.
const ROWS_MAX: usize = 10;

/// The columns of queues on the screen: member, heading.
const QUEUE_COLUMNS: [&str; 7] =
    ["name", "kind", "fill_percent", "messages", "bytes", "oldest_ms", "full_in_s"];
const COLLECTION_COLUMNS: [&str; 6] = ["name", "readings", "bytes", "series_count", "unflushed", "last"];

/// The screen for `status`.
#[must_use]
pub fn render_status(status: &Value) -> String {
    let mut out = String::new();
    let at = |path: &str| status.pointer(path);
    let text = |path: &str| at(path).map_or_else(|| "-".to_owned(), |value| cell(path, value));
    let count = |path: &str| at(path).and_then(Value::as_u64).unwrap_or(0);
    let health = if at("/healthy") == Some(&Value::Bool(true)) { "healthy" } else { "NOT HEALTHY" };
    let clock = if at("/clock/trusted") == Some(&Value::Bool(false)) { "   clock not trusted" } else { "" };
    push_line(
        &mut out,
        &format!(
            "{}   gatewayd {}   {health}   up {}{clock}",
            text("/id"),
            text("/version"),
            text("/uptime_s")
        ),
    );
    for warning in at("/warnings").and_then(Value::as_array).into_iter().flatten() {
        push_line(&mut out, &format!("! {}", cell("", warning)));
    }
    out.push('\n');
    let mut line = |name: &str, value: String| push_line(&mut out, &format!("{name:<12} {value}"));
    line(
        "recovery",
        format!(
            "took {}; last stop: {}; {} sessions, {} queues, {} messages, {} retained",
            text("/recovery/took_ms"),
            text("/recovery/last_stop"),
            count("/recovery/sessions"),
            count("/recovery/queues"),
            count("/recovery/queued"),
            count("/recovery/retained"),
        ),
    );
    let listeners = at("/listeners").and_then(Value::as_array).into_iter().flatten();
    let listeners: Vec<String> = listeners
        .map(|listener| {
            let member = |name: &str| listener.get(name).map_or_else(String::new, |value| cell(name, value));
            let tls = if listener.get("tls") == Some(&Value::Bool(true)) { " tls" } else { "" };
            format!("{} {}{tls}", member("name"), member("address"))
        })
        .collect();
    line("listeners", if listeners.is_empty() { "none".to_owned() } else { listeners.join(", ") });
    let certificates = at("/certificates").and_then(Value::as_array).into_iter().flatten();
    let certificates: Vec<String> = certificates
        .map(|certificate| {
            let days = certificate.get("days_left").and_then(Value::as_i64).unwrap_or(0);
            let name = certificate.get("name").map_or_else(String::new, |name| cell("name", name));
            if days < 0 { format!("{name} has ended") } else { format!("{name} ends in {days} days") }
        })
        .collect();
    if !certificates.is_empty() {
        line("certificates", certificates.join(", "));
    }
    line(
        "connections",
        format!(
            "{} mqtt, {} amqp of at most {}; {} accepted, {} refused, {} held back, {} protocol errors",
            count("/connections/mqtt"),
            count("/connections/amqp"),
            count("/connections/max"),
            count("/connections/accepted"),
            count("/connections/refused"),
            count("/connections/held_back"),
            count("/connections/protocol_errors"),
        ),
    );
    line("denied", counted(at("/denied")));
    line(
        "sessions",
        format!(
            "{}, {} connected; {} subscriptions, {} messages queued",
            count("/sessions/total"),
            count("/sessions/connected"),
            count("/sessions/subscriptions"),
            count("/sessions/queued"),
        ),
    );
    line(
        "messages",
        format!(
            "{} in (mqtt {}, amqp {}, http {}), {} out, {} acknowledged, {} unrouted; {} retained ({})",
            count("/traffic/published"),
            count("/traffic/published_mqtt"),
            count("/traffic/published_amqp"),
            count("/traffic/published_http"),
            count("/traffic/delivered"),
            count("/traffic/settled"),
            count("/traffic/unrouted"),
            count("/retained/count"),
            text("/retained/bytes"),
        ),
    );
    let (today, budget) = (count("/flash/bytes_today"), count("/flash/budget_bytes_per_day"));
    let of_budget = match budget {
        0 => String::new(),
        budget => format!(" of {} ({} %)", about_bytes(budget), u128::from(today) * 100 / u128::from(budget)),
    };
    let messages = count("/traffic/published").max(1);
    line(
        "flash",
        format!(
            "{}; {} today{of_budget}; {} a message; {} commits, {} elided; log {} of {}",
            text("/flash/store"),
            about_bytes(today),
            about_bytes(count("/flash/bytes_written") / messages),
            count("/flash/batches"),
            count("/flash/elided"),
            text("/flash/bytes_live"),
            text("/flash/quota_bytes"),
        ),
    );
    line("lost", format!("{} messages; {}", count("/lost/messages"), counted(at("/lost/by_reason"))));
    line("memory", format!("{} in messages", text("/memory_bytes")));
    for (title, list, columns) in [
        ("FULLEST QUEUES", "/fullest", QUEUE_COLUMNS.as_slice()),
        ("COLLECTIONS", "/collections", COLLECTION_COLUMNS.as_slice()),
    ] {
        let rows = at(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if !rows.is_empty() {
            push_line(&mut out, &format!("\n{title}"));
            render_table(rows, columns, ROWS_MAX, &mut out);
        }
    }
    out
}

/// `2 login, 1 publish`: the members that are not zero.
fn counted(counts: Option<&Value>) -> String {
    let members = counts.and_then(Value::as_object).into_iter().flatten();
    let shown: Vec<String> = members
        .filter(|(_, count)| count.as_u64().unwrap_or(0) > 0)
        .map(|(name, count)| format!("{count} {}", name.replace('_', " ")))
        .collect();
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }
}

/// A table with these columns, one line for each row.
pub(super) fn render_table(rows: &[Value], names: &[&str], rows_max: usize, out: &mut String) {
    let mut lines: Vec<Vec<String>> = vec![names.iter().map(|name| label(name)).collect()];
    for row in rows.iter().take(rows_max) {
        let cell_of = |name: &&str| row.get(name).map_or_else(|| "-".to_owned(), |value| cell(name, value));
        lines.push(names.iter().map(cell_of).collect());
    }
    let width_of = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..names.len()).map(width_of).collect();
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        push_line(out, &cells.join("  "));
    }
    if rows.len() > rows_max {
        push_line(out, &format!("and {} more", rows.len().saturating_sub(rows_max)));
    }
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

/// `uptime_ms` is shown as `uptime`, with its unit at the number.
fn label(name: &str) -> String {
    let name = ["_bytes", "_ms", "_s", "_count", "_identifier"]
        .iter()
        .find_map(|unit| name.strip_suffix(unit))
        .unwrap_or(name);
    name.replace('_', " ")
}

pub(super) fn cell(name: &str, value: &Value) -> String {
    let is_bytes = name.split(['_', '/']).any(|word| word == "bytes");
    match (value, value.as_u64()) {
        (Value::Null, _) => "-".to_owned(),
        (Value::Bool(flag), _) => if *flag { "yes" } else { "no" }.to_owned(),
        (Value::Number(_), Some(number)) if name.ends_with("_at_ms") || name == "last" => {
            calendar::show(i64::try_from(number).unwrap_or(i64::MAX))
        }
        (Value::Number(_), Some(number)) if name == "fill_percent" => format!("{number}%"),
        (Value::Number(_), Some(number)) if name.ends_with("_ms") => about_time(number),
        (Value::Number(_), Some(number)) if name.ends_with("_s") => about_time(number.saturating_mul(1000)),
        (Value::Number(_), Some(number)) if is_bytes => about_bytes(number),
        (Value::Number(number), _) => number.to_string(),
        // What clients call themselves must not steer the reader's terminal.
        (Value::String(text), _) => {
            text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
        }
        (Value::Array(items), _) if items.is_empty() => "none".to_owned(),
        (Value::Array(items), _) => items.iter().map(|item| cell(name, item)).collect::<Vec<_>>().join(", "),
        (Value::Object(fields), _) if fields.is_empty() => "none".to_owned(),
        (Value::Object(_), _) => value.to_string(),
    }
}

/// Three digits are enough to read.
fn about_bytes(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        let (whole, rest) = (bytes / size, bytes % size);
        if whole >= 100 || (whole > 0 && rest == 0) {
            return format!("{whole}{unit}");
        }
        if whole > 0 {
            return format!("{whole}.{}{unit}", rest * 10 / size);
        }
    }
    show_bytes(bytes)
}

/// Two units are enough to read: `6d4h`, `1m12s`.
fn about_time(ms: u64) -> String {
    const DAY: u64 = 86_400_000;
    let unit = match ms {
        0..1_000 => 1,
        1_000..3_600_000 => 1_000,
        3_600_000..DAY => 60_000,
        _ => 3_600_000,
    };
    show_duration(Duration::from_millis(ms / unit * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_screen_for_a_reader() {
        let status: Value = serde_json::from_str(
            r#"{"id": "gw-1", "version": "0.1.0", "healthy": true, "uptime_s": 187200,
                "warnings": ["session other\u001b[2J is 100 % full, then the oldest are dropped"],
                "recovery": {"took_ms": 159, "last_stop": "clean", "sessions": 1, "queued": 11},
                "listeners": [{"name": "mqtt", "address": "127.0.0.1:1883", "tls": false},
                {"name": "mqtts", "address": "[::]:8883", "tls": true}],
                "connections": {"mqtt": 2, "max": 4096}, "denied": {"login": 2, "publish": 0},
                "traffic": {"published": 10, "published_mqtt": 10},
                "flash": {"store": "working", "bytes_today": 1073741824, "budget_bytes_per_day": 8589934592,
                "bytes_written": 30720, "batches": 3, "bytes_live": 1536, "quota_bytes": 53477376},
                "lost": {"messages": 3, "by_reason": {"queue_bound": 3}},
                "fullest": [{"name": "c1", "kind": "session", "fill_percent": 100, "messages": 12, "bytes": 900,
                "oldest_ms": 4200, "full_in_s": null}], "collections": []}"#,
        )
        .unwrap();
        let expected = "\
gw-1   gatewayd 0.1.0   healthy   up 2d4h
! session other\u{fffd}[2J is 100 % full, then the oldest are dropped

recovery     took 159ms; last stop: clean; 1 sessions, 0 queues, 11 messages, 0 retained
listeners    mqtt 127.0.0.1:1883, mqtts [::]:8883 tls
connections  2 mqtt, 0 amqp of at most 4096; 0 accepted, 0 refused, 0 held back, 0 protocol errors
denied       2 login
sessions     0, 0 connected; 0 subscriptions, 0 messages queued
messages     10 in (mqtt 10, amqp 0, http 0), 0 out, 0 acknowledged, 0 unrouted; 0 retained (-)
flash        working; 1GiB today of 8GiB (12 %); 3KiB a message; 3 commits, 0 elided; log 1.5KiB of 51MiB
lost         3 messages; 3 queue bound
memory       - in messages

FULLEST QUEUES
name  kind     fill percent  messages  bytes  oldest  full in
c1    session  100%          12        900B   4s      -
";
        assert_eq!(render_status(&status), expected);
    }

    #[test]
    fn anything_is_rendered_and_long_tables_end() {
        assert!(render_status(&Value::Null).starts_with("-   gatewayd -   NOT HEALTHY"));
        let rows: Vec<Value> = (0..25).map(|n| serde_json::json!({ "name": n })).collect();
        let text = render_status(&serde_json::json!({ "fullest": rows }));
        assert!(text.ends_with("and 15 more\n"), "{text}");
    }

    #[test]
    fn sizes_and_times_are_short() {
        for (bytes, text) in [
            (0, "0B"),
            (900, "900B"),
            (1024, "1KiB"),
            (1536, "1.5KiB"),
            (150 << 20, "150MiB"),
            (5_000_000, "4.7MiB"),
        ] {
            assert_eq!(about_bytes(bytes), text);
        }
        assert!(about_bytes(u64::MAX).ends_with("GiB"));
        for (ms, text) in
            [(0, "0s"), (12, "12ms"), (72_500, "1m12s"), (7_260_000, "2h1m"), (529_200_000, "6d3h")]
        {
            assert_eq!(about_time(ms), text);
        }
    }
}
