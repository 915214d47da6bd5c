//! The log on standard error: text for people, `<N>` priorities for journald, or JSON.

use std::fmt;
use std::io::IsTerminal;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::{Log, LogFormat, LogLevel};

/// Installs the log for the whole process. `under_journald` decides what `auto` means.
pub fn start(log: Log, under_journald: bool) {
    let level = match log.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let journal = match log.format {
        LogFormat::Auto => under_journald,
        LogFormat::Journal => true,
        LogFormat::Json | LogFormat::Text => false,
    };
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    // A second start keeps the first log; only tests do that.
    let installed = if log.format == LogFormat::Json {
        builder.json().flatten_event(true).with_target(false).try_init()
    } else if journal {
        builder.with_ansi(false).event_format(Journal).try_init()
    } else {
        builder.with_target(false).with_ansi(std::io::stderr().is_terminal()).try_init()
    };
    drop(installed);
}

/// One line for each event, the priority that journald reads before it; journald knows the time.
struct Journal;

impl<S> FormatEvent<S, DefaultFields> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, DefaultFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(writer, "<{priority}>")?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
