//! `status` for a reader: one screen made from the JSON object that the gateway answers. Knows no field by need:
//! what is not there is not shown, what is new is shown as it is.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::config::{show_bytes, show_duration};

/// Fields that come first, in this order; the others follow by name.
const FIRST: [&str; 8] = ["name", "id", "state", "healthy", "version", "uptime_ms", "uptime", "last_stop"];

/// Rows of a table that are shown.
const ROWS_MAX: usize = 20;

/// The screen for `status`: its plain fields, then a paragraph for each object and a table for each list of objects.
#[must_use]
pub fn render_status(status: &Value) -> String {
    let mut out = String::new();
    match status {
        Value::Object(fields) => render_object("", fields, &mut out),
        other => out.push_str(&cell("", other)),
    }
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn render_object(title: &str, fields: &Map<String, Value>, out: &mut String) {
    let fields = ordered(fields);
    let plain: Vec<(String, String)> = fields
        .iter()
        .filter(|(_, value)| !is_nested(value))
        .map(|(name, value)| (label(name), cell(name, value)))
        .collect();
    if !plain.is_empty() {
        start_paragraph(title, out);
        let width = plain.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, value) in plain {
            push_line(out, &format!("{name:width$}  {value}"));
        }
    }
    for (name, value) in fields {
        let title = if title.is_empty() { label(name) } else { format!("{title} {}", label(name)) };
        match value {
            Value::Object(inner) => render_object(&title, inner, out),
            Value::Array(rows) if is_nested(value) => render_table(&title, rows, out),
            _ => {}
        }
    }
}

/// A table with the columns that any row has.
fn render_table(title: &str, rows: &[Value], out: &mut String) {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().filter_map(Value::as_object).flat_map(ordered) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut lines: Vec<Vec<String>> = vec![names.iter().map(|name| label(name)).collect()];
    for row in rows.iter().take(ROWS_MAX) {
        let cell_of = |name: &&str| row.get(name).map_or_else(|| "-".to_owned(), |value| cell(name, value));
        lines.push(names.iter().map(cell_of).collect());
    }
    let width_of = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..names.len()).map(width_of).collect();
    start_paragraph(title, out);
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        push_line(out, &cells.join("  "));
    }
    if rows.len() > ROWS_MAX {
        push_line(out, &format!("and {} more", rows.len().saturating_sub(ROWS_MAX)));
    }
}

fn start_paragraph(title: &str, out: &mut String) {
    if !out.is_empty() {
        out.push('\n');
    }
    if !title.is_empty() {
        push_line(out, &title.to_uppercase());
    }
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

fn ordered(fields: &Map<String, Value>) -> Vec<(&str, &Value)> {
    let mut fields: Vec<(&str, &Value)> = fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let rank = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
    fields.sort_by(|(a, _), (b, _)| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
    fields
}

/// An object, or a list with one in it.
fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => items.iter().any(Value::is_object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// `queue_bytes` is shown as `queue`, with its unit at the number.
fn label(name: &str) -> String {
    let name = ["_bytes", "_ms"].iter().find_map(|unit| name.strip_suffix(unit)).unwrap_or(name);
    name.replace('_', " ")
}

fn cell(name: &str, value: &Value) -> String {
    let number = value.as_u64();
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Value::Number(_) if name.ends_with("_ms") && number.is_some() => about_time(number.unwrap_or(0)),
        Value::Number(_)
            if (name.ends_with("_bytes") || name.ends_with("_bytes_max")) && number.is_some() =>
        {
            about_bytes(number.unwrap_or(0))
        }
        Value::Number(number) => number.to_string(),
        // What clients call themselves must not steer the reader's terminal.
        Value::String(text) => text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(|item| cell(name, item)).collect::<Vec<_>>().join(", "),
        Value::Object(fields) if fields.is_empty() => "none".to_owned(),
        Value::Object(_) => value.to_string(),
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
            r#"{"version": "0.1.0", "state": "running", "uptime_ms": 187200000, "connections": 3, "labels": {},
                "storage": {"gateway_bytes": 12582912, "budget_left_bytes": 7516192768, "syncs": 18, "pending": null},
                "queues": [{"name": "c1", "messages": 12, "bytes": 900}, {"name": "other\u001b[2J", "oldest_ms": 4200}],
                "warnings": ["disk 95 % full", "clock not trusted"]}"#,
        )
        .unwrap();
        let expected = "\
state        running
version      0.1.0
uptime       2d4h
connections  3
labels       none
warnings     disk 95 % full, clock not trusted

QUEUES
name       bytes  messages  oldest
c1         900    12        -
other\u{fffd}[2J  -      -         4s

STORAGE
budget left  7GiB
gateway      12MiB
pending      -
syncs        18
";
        assert_eq!(render_status(&status), expected);
    }

    #[test]
    fn anything_is_rendered_and_long_tables_end() {
        assert_eq!(render_status(&Value::Null), "-\n");
        assert_eq!(render_status(&serde_json::json!({})), "");
        assert_eq!(render_status(&serde_json::json!("down")), "down\n");
        let rows: Vec<Value> = (0..25).map(|n| serde_json::json!({ "n": n })).collect();
        let text = render_status(&serde_json::json!({ "rows": rows }));
        assert!(text.ends_with("19\nand 5 more\n"), "{text}");
        let deep = (0..60).fold(Value::Bool(true), |inner, _| serde_json::json!({ "x": inner }));
        assert!(render_status(&deep).ends_with("x  yes\n"));
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
