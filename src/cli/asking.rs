//! A verb's request to the running gateway, and how the answer is shown.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::plot::Plot;
use super::status::{cell, render_table};
use super::table::Table;
use crate::http::routes::{Operation, Route};
use crate::time::calendar;

/// What a verb asks of the running gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub method: &'static str,
    /// Path and parameters.
    pub target: String,
    pub show: Show,
    /// Again and again.
    pub watch: bool,
}

impl Request {
    /// A request by the table of routes.
    #[must_use]
    pub fn new(operation: Operation, names: &[&str], parameters: &[(&str, String)], show: Show) -> Self {
        let route = Route::of(operation);
        Self { method: route.method, target: route.target(names, parameters), show, watch: false }
    }
}

/// How the answer is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Show {
    /// As it comes.
    Raw,
    /// As it comes, with progress on standard error.
    Export,
    /// On a terminal a table, else as it comes.
    TableOnTerminal,
    Table,
    Plot,
    Usage,
    /// A list of objects: these members.
    Columns(&'static [&'static str]),
    /// The answer of `trace`.
    Trace,
    /// How many there were: the member, and the words around the number.
    Count(&'static str, &'static str),
}

/// Takes an answer in pieces and shows it.
pub struct Shower<'o> {
    show: Show,
    out: &'o mut dyn Write,
    err: &'o mut dyn Write,
    /// What is no whole line yet.
    rest: Vec<u8>,
    table: Table,
    plot: Plot,
    lines: u64,
    /// Results that could not be shown.
    unread: u64,
    progress: bool,
}

impl<'o> Shower<'o> {
    /// `is_terminal` decides about tables, `progress` about telling how far an export is.
    pub fn new(
        show: Show,
        out: &'o mut dyn Write,
        err: &'o mut dyn Write,
        (is_terminal, progress): (bool, bool),
    ) -> Self {
        let show = match show {
            Show::TableOnTerminal if is_terminal => Show::Table,
            Show::TableOnTerminal => Show::Raw,
            show => show,
        };
        let (table, plot) = (Table::default(), Plot::default());
        Self { show, out, err, rest: Vec::new(), table, plot, lines: 0, unread: 0, progress }
    }

    /// Shows a piece, as far as it can be shown.
    ///
    /// # Errors
    /// Writing failed: whoever reads has gone away.
    pub fn piece(&mut self, piece: &[u8]) -> io::Result<()> {
        if matches!(self.show, Show::Raw | Show::Export) {
            self.lines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.out.write_all(piece)?;
            self.out.flush()?;
            if self.show == Show::Export && self.progress {
                write!(self.err, "\r{} readings", self.lines)?;
            }
            return Ok(());
        }
        self.rest.extend_from_slice(piece);
        if matches!(self.show, Show::Usage | Show::Trace | Show::Columns(_) | Show::Count(..)) {
            return Ok(());
        }
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let Some((row, has_huge)) = read_row(&line) else {
                self.unread += 1;
                continue;
            };
            if self.show == Show::Plot {
                self.unread += u64::from(has_huge);
                self.plot.add(&row);
            } else {
                self.table.add(readable(row), self.out)?;
            }
        }
        Ok(())
    }

    /// Shows what is left.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(mut self) -> io::Result<()> {
        match self.show {
            Show::Export if self.progress => writeln!(self.err),
            Show::Table => {
                self.table.finish(self.out)?;
                tell_unread(self.unread, self.err)
            }
            Show::Plot => {
                self.out.write_all(self.plot.draw(100, 20).as_bytes())?;
                tell_unread(self.unread, self.err)
            }
            Show::Usage => {
                let value: Value = serde_json::from_slice(&self.rest).unwrap_or_default();
                let rows = match &value {
                    Value::Array(rows) => rows.as_slice(),
                    one => one.get("series").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default(),
                };
                for row in rows {
                    self.table.add(usage_row(row), self.out)?;
                }
                self.table.finish(self.out)
            }
            Show::Columns(names) => {
                let value: Value = serde_json::from_slice(&self.rest).unwrap_or_default();
                let rows = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let mut text = String::new();
                render_table(rows, names, usize::MAX, &mut text);
                self.out.write_all(text.as_bytes())
            }
            Show::Trace => {
                let value: Value = serde_json::from_slice(&self.rest).unwrap_or_default();
                self.out.write_all(trace_text(&value).as_bytes())
            }
            Show::Count(member, words) => {
                let value: Value = serde_json::from_slice(&self.rest).unwrap_or_default();
                let count = value.get(member).map_or_else(|| "-".to_owned(), |count| cell(member, count));
                writeln!(self.out, "{}", words.replace('#', &count))
            }
            Show::Raw | Show::Export | Show::TableOnTerminal => Ok(()),
        }
    }
}

fn tell_unread(unread: u64, err: &mut dyn Write) -> io::Result<()> {
    match unread {
        0 => Ok(()),
        unread => writeln!(err, "{unread} results could not be shown here: --format jsonl has them"),
    }
}

/// A result. Numbers beyond what a double holds, such as 1e400, become texts; true when there are such.
fn read_row(line: &[u8]) -> Option<(Map<String, Value>, bool)> {
    match serde_json::from_slice(line) {
        Ok(Value::Object(row)) => Some((row, false)),
        Ok(_) => None,
        Err(_) => serde_json::from_slice(&without_huge(line)).ok().map(|row| (row, true)),
    }
}

/// JSON with quotation marks around numbers that are too large.
fn without_huge(json: &[u8]) -> Vec<u8> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let (mut out, mut rest, mut in_string) = (Vec::new(), json, false);
    while let Some((first, after)) = rest.split_first() {
        if in_string && *first == b'\\' {
            let (escape, after) = rest.split_at(rest.len().min(2));
            out.extend_from_slice(escape);
            rest = after;
            continue;
        }
        if *first == b'"' {
            in_string = !in_string;
        }
        let length = rest.iter().take_while(|byte| !in_string && is_part(**byte)).count();
        let (token, left) = rest.split_at(length);
        let number =
            std::str::from_utf8(token).ok().filter(|text| text.contains(|c: char| c.is_ascii_digit()));
        if number.and_then(|text| text.parse::<f64>().ok()).is_some_and(f64::is_infinite) {
            out.push(b'"');
            out.extend_from_slice(token);
            out.push(b'"');
            rest = left;
        } else if token.is_empty() {
            out.push(*first);
            rest = after;
        } else {
            out.extend_from_slice(token);
            rest = left;
        }
    }
    out
}

/// A result with its time first and readable; then its tags, and what the payload holds. What has a name that is there
/// already is shown with `payload.` before it.
fn readable(row: Map<String, Value>) -> Vec<(String, String)> {
    let mut shown = Vec::new();
    for key in ["_start", "_received_at"] {
        if let Some(time) = row.get(key).and_then(Value::as_i64) {
            shown.push(("time".to_owned(), calendar::show(time)));
        }
    }
    if let Some(topic) = row.get("_topic") {
        shown.push(("topic".to_owned(), plain(topic)));
    }
    if let Some(Value::Object(tags)) = row.get("_tags") {
        shown.extend(tags.iter().map(|(name, value)| (name.clone(), plain(value))));
    }
    for (key, value) in row {
        let is_shown = matches!(key.as_str(), "_start" | "_received_at" | "_topic")
            || key == "_tags" && value.is_object();
        if is_shown {
            continue;
        }
        let is_taken = shown.iter().any(|(known, _)| *known == key);
        shown.push((if is_taken { format!("payload.{key}") } else { key }, plain(&value)));
    }
    shown
}

fn usage_row(row: &Value) -> Vec<(String, String)> {
    let text = |key: &str| row.get(key).map(plain).unwrap_or_default();
    let time = |key: &str| row.get(key).and_then(Value::as_i64).map(calendar::show).unwrap_or_default();
    let mut shown = match row.get("name") {
        Some(name) => {
            vec![("collection".to_owned(), plain(name)), ("series".to_owned(), text("series_count"))]
        }
        None => {
            let topic = row.get("topic").filter(|topic| !topic.is_null()).map(plain);
            vec![("topic".to_owned(), topic.unwrap_or_else(|| "(shared)".to_owned()))]
        }
    };
    let number = |key: &str| row.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (readings, bytes) = (number("readings"), number("bytes"));
    #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
    let each = if readings == 0 { String::new() } else { format!("{:.2}", bytes as f64 / readings as f64) };
    shown.extend([
        ("readings".to_owned(), readings.to_string()),
        ("bytes".to_owned(), bytes.to_string()),
        ("bytes/reading".to_owned(), each),
        ("first".to_owned(), time("first")),
        ("last".to_owned(), time("last")),
    ]);
    if row.get("name").is_some() {
        shown.extend([
            ("unflushed".to_owned(), text("unflushed")),
            ("shared".to_owned(), text("shared")),
            ("malformed".to_owned(), text("malformed")),
        ]);
    }
    shown
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        Value::Null => "-".to_owned(),
        value => value.to_string(),
    }
}

fn since(trace: &Value) -> String {
    let since = trace.get("since_ms").and_then(Value::as_i64).unwrap_or(0);
    calendar::show(since)
}

/// A step of a trace with its example as one text.
fn step_row(step: &Value) -> Value {
    let mut row = step.as_object().cloned().unwrap_or_default();
    let last = row.remove("last").unwrap_or_default();
    let part = |name: &str| last.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let mut example: Vec<String> = [part("name"), part("why")].into_iter().flatten().map(cut).collect();
    if let Some(payload) = part("payload") {
        example.push(format!("\"{}\"", cut(payload)));
    }
    row.insert("last_at_ms".to_owned(), last.get("at_ms").cloned().unwrap_or_default());
    row.insert(
        "example".to_owned(),
        if example.is_empty() { Value::Null } else { example.join(", ").into() },
    );
    Value::Object(row)
}

/// The beginning of a text: a table has lines, not columns without end.
fn cut(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// A trace, part by part; what is empty is left out.
fn trace_text(trace: &Value) -> String {
    const STEPS: &[&str] = &["step", "count", "failed", "last_at_ms", "example", "key"];
    const PUBLISHERS: &[&str] = &["client_identifier", "user_name", "protocol", "count", "last_at_ms"];
    const SERIES: &[&str] = &["collection", "readings", "first_at_ms", "last_at_ms"];
    const MALFORMED: &[&str] = &["collection", "received_at_ms", "why", "payload"];
    const TAKERS: &[&str] = &["name", "kind", "connected", "ready", "in_flight", "oldest_ms", "dropped"];
    const DENIALS: &[&str] = &["denied", "user_name", "client_identifier", "what", "count", "last_at_ms"];
    const LOSSES: &[&str] = &["queue", "reason", "messages", "last_received_at_ms"];
    let rows = |name: &str| trace.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut out = String::new();
    let text = |path: &str| trace.pointer(path).map_or_else(|| "-".to_owned(), |value| cell(path, value));
    out.push_str(&match trace.get("watched_ms").and_then(Value::as_u64) {
        Some(0) => format!("counted from now on: ask again, within {}\n", text("/watched_on_s")),
        _ => format!("counted for {}, since {}\n", text("/watched_ms"), since(trace)),
    });
    let steps: Vec<Value> = rows("steps").iter().map(step_row).collect();
    render_table(&steps, STEPS, usize::MAX, &mut out);
    out.push('\n');
    for (name, title, columns) in [
        ("publishers", "WHO PUBLISHED IT", PUBLISHERS),
        ("series", "READINGS ON FLASH", SERIES),
        ("malformed", "LOOKED LIKE JSON AND WAS NONE", MALFORMED),
        ("takers", "WHO GETS IT", TAKERS),
        ("denials", "DENIED", DENIALS),
        ("refused_logins", "LOGINS REFUSED", DENIALS),
        ("losses", "LOST FROM THESE QUEUES", LOSSES),
    ] {
        if !rows(name).is_empty() {
            out.push_str(title);
            out.push('\n');
            render_table(rows(name), columns, usize::MAX, &mut out);
            out.push('\n');
        }
    }
    if let Some(value) = trace.pointer("/retained/payload") {
        out.push_str(&format!("last known value: {}\n", cell("", value)));
    }
    for advice in rows("advice") {
        out.push_str(&format!("! {}\n", cell("", advice)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(show: Show, terminals: (bool, bool), pieces: &[&str]) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut shower = Shower::new(show, &mut out, &mut err, terminals);
        for piece in pieces {
            shower.piece(piece.as_bytes()).unwrap();
        }
        shower.finish().unwrap();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn an_export_tells_how_far_it_is() {
        let pieces = ["{\"a\": 1}\n{\"a\"", ": 2}\n{\"a\": 3}\n"];
        let text = pieces.concat();
        let told = "\r1 readings\r3 readings\n".to_owned();
        assert_eq!(shown(Show::Export, (false, true), &pieces), (text.clone(), told));
        assert_eq!(shown(Show::Export, (false, false), &pieces), (text.clone(), String::new()));
        assert_eq!(shown(Show::Raw, (true, true), &pieces), (text, String::new()));
    }

    #[test]
    fn nothing_is_left_out_of_a_table_without_a_word() {
        let line = "{\"value\": 1e400, \"time\": \"noon\", \"topic\": \"t\", \"s\": \"\\\" 1e999\", \"b\": true, \"_topic\": \"s/a\", \
                    \"_received_at\": 1791754335817, \"_tags\": {\"room\": \"hall\"}}\n";
        let (table, err) = shown(Show::TableOnTerminal, (true, true), &[line]);
        for word in
            ["1e400", "payload.time", "noon", "payload.topic", "s/a", "hall", "2026-10-11T", "\" 1e999"]
        {
            assert!(table.contains(word), "{word}: {table}");
        }
        assert_eq!(err, "");
        let told = "1 results could not be shown here: --format jsonl has them\n";
        assert_eq!(shown(Show::TableOnTerminal, (true, true), &["{\"a\": \n"]).1, told);
        assert_eq!(shown(Show::Plot, (true, true), &[line]).1, told, "a plot has no place for it");
    }

    #[test]
    fn readings_are_a_table_on_a_terminal() {
        let pieces = ["{\"value\": 27.30, \"_topic\": \"s/a\", \"_received_", "at\": 1791754335817}\n"];
        let (table, _) = shown(Show::TableOnTerminal, (true, true), &pieces);
        assert!(table.contains("2026-10-11T") && table.contains("s/a") && table.contains("27.3"), "{table}");
        let (raw, _) = shown(Show::TableOnTerminal, (false, true), &pieces);
        assert_eq!(raw, pieces.concat());
    }
}
