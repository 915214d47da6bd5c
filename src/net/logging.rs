//! The log: text for people, entries with fields for journald, `<N>` priorities, or JSON. Each event once; lines that
//! repeat are counted.

#![expect(clippy::disallowed_methods, reason = "the moment of a line, whether the clock is trusted or not")]
#![expect(clippy::disallowed_types, reason = "lines of all threads leave one after another")]

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use super::journal::Journal;
use super::repeats::Repeats;
use crate::config::{Log, LogFormat, LogLevel};
use crate::time::calendar;

/// The level that holds, as its place in [`LEVELS`].
static LEVEL: AtomicU8 = AtomicU8::new(2);
const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

/// Installs the log for the whole process. `journal_stream` is the environment's word about standard error, from
/// systemd: what `auto` means depends on it.
pub fn start(log: Log, journal_stream: Option<&str>) {
    set_level(log.level);
    let form = match log.format {
        LogFormat::Auto if journal_stream.is_some_and(is_standard_error) => match Journal::open() {
            Some(journal) => Form::Entries(journal),
            None => Form::Prefixed,
        },
        LogFormat::Journal => Form::Prefixed,
        LogFormat::Json => Form::Json,
        LogFormat::Auto | LogFormat::Text => Form::Text { colours: io::stderr().is_terminal() },
    };
    let lines = Lines { form, repeats: Mutex::new(Repeats::default()) };
    // A second start keeps the first log; only tests do that.
    drop(Registry::default().with(lines).try_init());
}

/// Changes the level of the log that runs.
pub fn set_level(level: LogLevel) {
    let place = match level {
        LogLevel::Error => 0,
        LogLevel::Warn => 1,
        LogLevel::Info => 2,
        LogLevel::Debug => 3,
        LogLevel::Trace => 4,
    };
    LEVEL.store(place, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

fn level() -> Level {
    LEVELS.get(usize::from(LEVEL.load(Ordering::Relaxed))).copied().unwrap_or(Level::INFO)
}

/// `DEVICE:INODE` of the stream that journald reads.
fn is_standard_error(journal_stream: &str) -> bool {
    let stat = rustix::fs::fstat(io::stderr().as_fd());
    stat.is_ok_and(|stat| journal_stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

enum Form {
    Text {
        colours: bool,
    },
    /// `<N>` before the line says its priority.
    Prefixed,
    Json,
    Entries(Journal),
}

struct Lines {
    form: Form,
    repeats: Mutex<Repeats>,
}

/// An event's parts.
#[derive(Default)]
struct Parts {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for Parts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

impl Parts {
    /// What clients call themselves must not steer the reader's terminal, nor begin a line of its own.
    fn put(&mut self, field: &Field, text: String) {
        let text = if text.contains(char::is_control) {
            text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
        } else {
            text
        };
        if field.name() == "message" {
            self.message = text;
        } else {
            self.fields.push((field.name(), text));
        }
    }

    /// The message and its fields, `name=value`.
    fn line(&self) -> String {
        let mut line = self.message.clone();
        for (name, value) in &self.fields {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(name);
            line.push('=');
            line.push_str(value);
        }
        line
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if *metadata.level() <= level() { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(level()))
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        let mut parts = Parts::default();
        event.record(&mut parts);
        let line = parts.line();
        // What is said once is news, however often: only trouble repeats itself.
        let added = if *metadata.level() <= Level::WARN {
            let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
            match repeats.pass(Instant::now(), &line) {
                Some(added) => added,
                None => return,
            }
        } else {
            String::new()
        };
        parts.message.push_str(&added);
        self.write(metadata, &parts, &format!("{line}{added}"));
    }
}

impl Lines {
    fn write(&self, metadata: &Metadata<'_>, parts: &Parts, line: &str) {
        let (priority, colour) = match *metadata.level() {
            Level::ERROR => (3, 31),
            Level::WARN => (4, 33),
            Level::INFO => (6, 32),
            Level::DEBUG => (7, 34),
            Level::TRACE => (7, 35),
        };
        let text = match &self.form {
            Form::Entries(journal) => {
                let module = metadata.module_path().unwrap_or_default();
                if journal.send(priority, line, module, &parts.fields).is_ok() {
                    return;
                }
                format!("<{priority}>{line}\n")
            }
            Form::Prefixed => format!("<{priority}>{line}\n"),
            Form::Json => json(metadata, parts, line),
            Form::Text { colours: true } => {
                format!("\x1b[2m{}\x1b[0m \x1b[{colour}m{:>5}\x1b[0m {line}\n", moment(), metadata.level())
            }
            Form::Text { colours: false } => format!("{} {:>5} {line}\n", moment(), metadata.level()),
        };
        // One write for a line, so that lines of threads do not mix. Nobody reads any more: nobody misses it.
        drop(io::stderr().write_all(text.as_bytes()));
    }
}

fn json(metadata: &Metadata<'_>, parts: &Parts, line: &str) -> String {
    let mut members = Map::new();
    members.insert("timestamp".to_owned(), Value::from(moment()));
    members.insert("level".to_owned(), Value::from(metadata.level().as_str()));
    let message = if parts.message.is_empty() { line } else { &parts.message };
    members.insert("message".to_owned(), Value::from(message));
    for (name, value) in &parts.fields {
        members.insert((*name).to_owned(), Value::from(value.as_str()));
    }
    format!("{}\n", Value::Object(members))
}

fn moment() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    calendar::show(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
