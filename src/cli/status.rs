//! `status` for a reader: one screen made from the JSON object that the gateway answers. Knows no field by need:
//! what is not there is not shown, what is new is shown as it is.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::config::{show_bytes, show_duration};

/// Fields that come first, in this order; the others follow by name.
const FIRST: [&str; 8] = ["name", "id", "state", "healthy", "version", "uptime_s", "uptime_ms", "last_stop"];

/// Rows of a table that are shown.
const ROWS_MAX: usize = 20;

/// Characters in a line of a section; a table's row is as long as its cells.
const LINE_CHARS_MAX: usize = 100;

/// The screen for `status`: its plain fields, a line or two for each object, and a table for each list of objects.
#[must_use]
pub fn render_status(status: &Value) -> String {
    let Value::Object(fields) = status else { return cell("", status) + "\n" };
    let mut plain = Vec::new();
    let mut sections = Vec::new();
    let mut tables = String::new();
    gather("", fields, &mut plain, &mut sections, &mut tables);
    let width = plain
        .iter()
        .map(|(name, _)| name)
        .chain(sections.iter().map(|(title, _)| title))
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for (name, value) in &plain {
        push_line(&mut out, &format!("{name:width$}  {value}"));
    }
    if !plain.is_empty() && !sections.is_empty() {
        out.push('\n');
    }
    for (title, fields) in &sections {
        render_section((title, width), fields, &mut out);
    }
    if out.is_empty() { tables.trim_start().to_owned() } else { out + &tables }
}

/// Sorts `fields` into plain ones, sections and tables; what lies deeper gets a longer title.
fn gather(
    title: &str,
    fields: &Map<String, Value>,
    plain: &mut Vec<(String, String)>,
    sections: &mut Vec<(String, Vec<(String, String)>)>,
    tables: &mut String,
) {
    for (name, value) in ordered(fields) {
        let title = if title.is_empty() { label(name) } else { format!("{title} {}", label(name)) };
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                let mut own = Vec::new();
                let mut below = Vec::new();
                gather(&title, inner, &mut own, &mut below, tables);
                if !own.is_empty() {
                    sections.push((title, own));
                }
                sections.append(&mut below);
            }
            Value::Array(rows) if is_nested(value) => render_table(&title, rows, tables),
            _ => plain.push((label(name), cell(name, value))),
        }
    }
}

/// `title  name value, name value`, on as many lines as it takes.
fn render_section((title, width): (&str, usize), fields: &[(String, String)], out: &mut String) {
    let mut line = format!("{title:width$} ");
    let mut is_fresh = true;
    for (name, value) in fields {
        let text = format!(" {name} {value}");
        if !is_fresh && line.chars().count() + text.chars().count() >= LINE_CHARS_MAX {
            push_line(out, &format!("{line},"));
            line = format!("{:width$} ", "");
            is_fresh = true;
        }
        if !is_fresh {
            line.push(',');
        }
        line.push_str(&text);
        is_fresh = false;
    }
    push_line(out, &line);
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
    out.push('\n');
    push_line(out, &title.to_uppercase());
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        push_line(out, &cells.join("  "));
    }
    if rows.len() > ROWS_MAX {
        push_line(out, &format!("and {} more", rows.len().saturating_sub(ROWS_MAX)));
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

/// `uptime_ms` is shown as `uptime`, with its unit at the number.
fn label(name: &str) -> String {
    let name = ["_bytes", "_ms", "_s"].iter().find_map(|unit| name.strip_suffix(unit)).unwrap_or(name);
    name.replace('_', " ")
}

fn cell(name: &str, value: &Value) -> String {
    let is_bytes = name.split('_').any(|word| word == "bytes");
    match (value, value.as_u64()) {
        (Value::Null, _) => "-".to_owned(),
        (Value::Bool(flag), _) => if *flag { "yes" } else { "no" }.to_owned(),
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
            r#"{"version": "0.1.0", "state": "running", "uptime_ms": 187200000, "connections": 3, "labels": {},
                "storage": {"gateway_bytes": 12582912, "budget_left_bytes": 7516192768, "syncs": 18, "pending": null,
                "last_commit_ms": 12, "bytes_written": 1536, "file": {"path": "/var/lib/gatewayd/gateway.redb"},
                "note": "the budget of today is spent"},
                "queues": [{"name": "c1", "messages": 12, "bytes": 900}, {"name": "other\u001b[2J", "oldest_ms": 4200}],
                "warnings": ["disk 95 % full", "clock not trusted"]}"#,
        )
        .unwrap();
        let expected = "\
state         running
version       0.1.0
uptime        2d4h
connections   3
labels        none
warnings      disk 95 % full, clock not trusted

storage       budget left 7GiB, bytes written 1.5KiB, gateway 12MiB, last commit 12ms,
              note the budget of today is spent, pending -, syncs 18
storage file  path /var/lib/gatewayd/gateway.redb

QUEUES
name       bytes  messages  oldest
c1         900B   12        -
other\u{fffd}[2J  -      -         4s
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
        assert!(render_status(&deep).ends_with("  x yes\n"));
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
