//! The verbs about collections: what each asks of the HTTP API, and how its answer is shown.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ArgMatches;
use serde_json::{Map, Value};

use super::plot::Plot;
use super::table::Table;
use crate::config::Config;
use crate::http::collections::encoded;
use crate::ingest::collector::origin_of;
use crate::series::document::Payload;
use crate::series::{Item, put_json, takes};
use crate::time::calendar;

/// A verb that asks the running gateway about collections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectionCommand {
    pub method: &'static str,
    /// Path and parameters.
    pub target: String,
    pub show: Show,
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
    Deleted,
}

/// `ingest test`: what a route would make of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngestTest {
    pub config: Option<PathBuf>,
    pub topic: String,
    pub payload: String,
}

/// The command that `query`, `tail`, `export`, `delete` or `storage usage` stands for.
///
/// # Errors
/// What is wrong with the arguments.
pub(super) fn command(verb: &str, matches: &ArgMatches) -> Result<CollectionCommand, String> {
    let text = |name: &str| matches.try_get_one::<String>(name).ok().flatten().cloned();
    let flag = |name: &str| matches.try_get_one::<bool>(name).ok().flatten().copied().unwrap_or(false);
    let base = "/api/v1/collections";
    if verb == "usage" {
        let show = if flag("json") { Show::Raw } else { Show::Usage };
        let target =
            text("collection").map_or_else(|| base.to_owned(), |name| format!("{base}/{}", encoded(&name)));
        return Ok(CollectionCommand { method: "GET", target, show });
    }
    let name = text("COLLECTION").unwrap_or_default();
    let (method, last) = match verb {
        "tail" => ("GET", "tail"),
        "delete" => ("DELETE", "readings"),
        _ => ("GET", "query"),
    };
    let mut parameters = Vec::new();
    for key in ["since", "until", "topic", "where", "every", "agg", "by", "field"] {
        parameters.extend(text(key).map(|value| format!("{key}={}", encoded(&value))));
    }
    if let Some(limit) = matches.try_get_one::<u32>("limit").ok().flatten() {
        parameters.push(format!("limit={limit}"));
    }
    let format = text("format");
    let show = match (verb, format.as_deref()) {
        ("delete", _) => Show::Deleted,
        ("tail", _) => Show::Raw,
        ("export", format) => {
            parameters.push(format!("format={}", format.unwrap_or("jsonl")));
            Show::Export
        }
        _ if flag("plot") => Show::Plot,
        (_, None) => Show::TableOnTerminal,
        (_, Some("table")) => Show::Table,
        (_, Some(format)) => {
            parameters.push(format!("format={format}"));
            Show::Raw
        }
    };
    if flag("plot") && format.is_some() {
        return Err("--plot and --format do not go together".to_owned());
    }
    if flag("all") {
        parameters.push("all=true".to_owned());
    }
    let question = if parameters.is_empty() { "" } else { "?" };
    let target = format!("{base}/{}/{last}{question}{}", encoded(&name), parameters.join("&"));
    Ok(CollectionCommand { method, target, show })
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
        Self { show, out, err, rest: Vec::new(), table, plot, lines: 0, progress }
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
        if matches!(self.show, Show::Usage | Show::Deleted) {
            return Ok(());
        }
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let Ok(Value::Object(row)) = serde_json::from_slice(&line) else { continue };
            if self.show == Show::Plot {
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
            Show::Table => self.table.finish(self.out),
            Show::Plot => self.out.write_all(self.plot.draw(100, 20).as_bytes()),
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
            Show::Deleted => {
                let value: Value = serde_json::from_slice(&self.rest).unwrap_or_default();
                let count = value.get("deleted").and_then(Value::as_u64).unwrap_or(0);
                writeln!(self.out, "deleted {count} readings")
            }
            Show::Raw | Show::Export | Show::TableOnTerminal => Ok(()),
        }
    }
}

/// A result with its time first and readable.
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
    for (key, value) in row {
        match (key.as_str(), value) {
            ("_start" | "_received_at" | "_topic", _) => {}
            ("_tags", Value::Object(tags)) => shown.extend(tags.into_iter().map(|(k, v)| (k, plain(&v)))),
            (_, value) => shown.push((key, plain(&value))),
        }
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

/// Says what each route of the configuration makes of a message. True when one takes it.
///
/// # Errors
/// Writing failed.
pub fn ingest_test(config: &Config, test: &IngestTest, out: &mut dyn Write) -> io::Result<bool> {
    let mut taken = Vec::new();
    for route in &config.routes {
        let takes_it = route.filters.iter().any(|filter| takes(&filter.plain, &test.topic));
        if !takes_it || taken.contains(&&route.collection) {
            continue;
        }
        taken.push(&route.collection);
        let origin = origin_of(&config.routes, &route.collection, &test.topic);
        let item = Item { time: 0, estimated: false, origin: &origin, payload: test.payload.as_bytes() };
        let mut text = Vec::new();
        put_json(&mut text, &item);
        let text = String::from_utf8_lossy(&text).replace("\"_received_at\": 0", "\"_received_at\": (now)");
        writeln!(out, "route {} -> collection {}: {text}", route.name, route.collection)?;
        if let Payload::Text(_, Some(why)) = Payload::of(test.payload.as_bytes()) {
            writeln!(
                out,
                "  the payload looks like JSON and is none ({why}): it is kept as text and counted"
            )?;
        }
    }
    if taken.is_empty() {
        writeln!(out, "no route takes {}", test.topic)?;
    }
    Ok(!taken.is_empty())
}
