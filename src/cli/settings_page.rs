//! The manual page gateway.toml(5), made of the table of keys and the built-in defaults.

use std::fmt::Write as _;
use std::time::Duration;

use crate::config::{Config, Form, KEYS, Key, show_bytes, show_duration};

const ABOUT: &str = "\
.SH NAME
gateway.toml \\- configuration of gatewayd
.SH SYNOPSIS
.I /etc/gateway.toml
.br
.I /etc/gateway.d/*.toml
.SH DESCRIPTION
TOML. The files of gateway.d are read after the main file, in lexical order, key by key. Without any file everything starts on loopback.
Sizes are text with a unit (B, KB, MB, GB, KiB, MiB, GiB), durations too (ms, s, m, h, d; \"1h30m\"). A key that is not known, a value
out of its bounds and a contradiction are errors, each told with file, line and column by
.BR \"gatewayd check\\-config\" ;
then nothing starts, and a reload changes nothing.
.B gatewayd check\\-config \\-\\-show\\-effective
prints what holds. Sections with NAME in them are tables of your own; mqtt, amqp and http exist unless they say enabled = false, and
the route and the collection readings while no other is written.
";

/// The page.
pub(super) fn page() -> String {
    let mut out = String::from(".TH GATEWAY.TOML 5 \"\" \"gatewayd\" \"gatewayd\"\n");
    out.push_str(ABOUT);
    let defaults = Config::default().show_effective();
    let mut section = "";
    for key in KEYS {
        if key.section != section {
            section = key.section;
            // A string takes any text.
            let _infallible = writeln!(out, ".SH {}", escaped(&header(section)));
        }
        let default = default_of(&defaults, key).map_or_else(String::new, |value| format!(" = {value}"));
        let _infallible = write!(
            out,
            ".TP\n.BR {} \"{}\"\n{} {}.",
            escaped(key.name),
            escaped(&default).replace('"', "\\(dq"),
            escaped(key.summary),
            escaped(&takes(key)),
        );
        if let Some(empty) = key.empty {
            let _infallible = write!(out, " \\(dq\\(dq: {}.", escaped(empty));
        }
        out.push('\n');
    }
    out.push_str(".SH SEE ALSO\n.BR gatewayd (8)\n");
    out
}

/// `[limits]`, or `[listener.NAME]` where tables have names.
fn header(section: &str) -> String {
    match section {
        "listener" | "tls" | "queue" | "ingest" | "collection" => format!("[{section}.NAME]"),
        _ => format!("[{section}]"),
    }
}

/// The default as it is written; of named tables that of the first that exists by itself, which is not a key's own default
/// where it differs from table to table.
fn default_of(defaults: &str, key: &Key) -> Option<String> {
    let table = match key.section {
        "queue" => "[queue.default]".to_owned(),
        "ingest" => "[ingest.readings]".to_owned(),
        "collection" => "[collection.readings]".to_owned(),
        "listener" => "[listener.mqtt]".to_owned(),
        plain => format!("[{plain}]"),
    };
    let lines = defaults.lines().skip_while(|line| *line != table).skip(1);
    let mut lines = lines.take_while(|line| !line.starts_with('['));
    lines.find_map(|line| Some(line.strip_prefix(key.name)?.strip_prefix(" = ")?.to_owned()))
}

/// What a key takes, as a sentence without its full stop.
fn takes(key: &Key) -> String {
    let time = |ms: u64| show_duration(Duration::from_millis(ms));
    match key.form {
        Form::Flag => "True or false".to_owned(),
        Form::Text(what) => format!("Takes {what}"),
        Form::Words(words) => format!("One of {}", words.join(", ")),
        Form::Count(min, max) => format!("A number from {min} to {max}"),
        Form::Size(min, max) => format!("From {} to {}", show_bytes(min), show_bytes(max)),
        Form::Time(min, max) => format!("From {} to {}", time(min), time(max)),
        Form::List(what) => format!("A list of {what}"),
        Form::Table => "A table of names and texts".to_owned(),
    }
}

/// Text that means itself to roff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
