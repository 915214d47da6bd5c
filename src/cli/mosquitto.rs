//! `import mosquitto`: a mosquitto.conf, with the files that it includes, as a gateway.toml. Password and ACL files are used
//! where they are, as they are. Every line that has no counterpart is told, with its file and line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::{Exit, Io};
use crate::auth::{Acl, Users};
use crate::config::{ConfigSource, EXPIRIES, Limits, MESSAGE_BYTES, show_bytes};

/// `import mosquitto` as it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MosquittoImport {
    /// The file to read.
    pub source: PathBuf,
    /// The file to write; else standard output.
    pub output: Option<PathBuf>,
}

/// Files included by one another, at most.
const FILES_MAX: usize = 200;

/// Bytes of the largest message that the bounds which are not written let wait, in memory and on flash.
const LARGEST_MESSAGE: u64 = 8 << 20;

/// A line of the configuration.
struct Line {
    place: String,
    key: String,
    value: String,
}

/// A listener as Mosquitto describes it.
#[derive(Default)]
struct Listener {
    place: String,
    port: String,
    address: Option<String>,
    websockets: bool,
    anonymous: Option<bool>,
    cert: Option<String>,
    key: Option<String>,
    ca: Option<String>,
    requires_certificate: bool,
    name_from_certificate: bool,
}

/// What was understood, and what was not.
#[derive(Default)]
struct Import {
    listeners: Vec<Listener>,
    anonymous: Option<bool>,
    password_file: Option<String>,
    acl_file: Option<String>,
    /// Section and key, with the value as TOML.
    settings: BTreeMap<(&'static str, &'static str), String>,
    message_bytes: Option<u64>,
    queued_bytes: Option<u64>,
    notes: Vec<String>,
}

/// Settings of which nothing is to be done: the gateway does so anyway, or has no use for it.
const NEEDLESS: [&str; 22] = [
    "persistence",
    "persistence_location",
    "persistence_file",
    "autosave_interval",
    "autosave_on_changes",
    "pid_file",
    "user",
    "log_timestamp",
    "log_timestamp_format",
    "connection_messages",
    "set_tcp_nodelay",
    "log_dest",
    "log_facility",
    "allow_zero_length_clientid",
    "use_username_as_clientid_default",
    "memory_limit",
    "ciphers",
    "ciphers_tls1.3",
    "tls_keyform",
    "dhparamfile",
    "socket_domain",
    "protocol_default",
];

/// Reads, converts, writes, and tells what has no counterpart.
///
/// # Errors
/// Writing to the terminal failed.
pub fn import_mosquitto(command: &MosquittoImport, io: &mut Io<'_>) -> io::Result<Exit> {
    let mut lines = Vec::new();
    let mut import = Import::default();
    if let Err(why) = read(&command.source, io.files, &mut lines, &mut import.notes, &mut 0) {
        writeln!(io.err, "{}: {why}", command.source.display())?;
        return Ok(Exit::Failed);
    }
    for line in lines {
        import.take(&line);
    }
    import.set_sizes();
    import.check_files(io.files);
    let text = import.text(&command.source);
    match &command.output {
        None => io.out.write_all(text.as_bytes())?,
        Some(path) if path.exists() => {
            writeln!(io.err, "{}: is there already; move it away first", path.display())?;
            return Ok(Exit::Failed);
        }
        Some(path) => {
            if let Err(error) = std::fs::write(path, text) {
                writeln!(io.err, "{}: cannot be written: {error}", path.display())?;
                return Ok(Exit::Failed);
            }
            writeln!(
                io.out,
                "{} written; next: gatewayd check-config --config {}",
                path.display(),
                path.display()
            )?;
        }
    }
    for note in &import.notes {
        writeln!(io.err, "not mapped: {note}")?;
    }
    Ok(Exit::Ok)
}

/// The lines of a file and of those in the folders that it includes, in the order in which Mosquitto reads them.
fn read(
    path: &Path,
    source: &dyn ConfigSource,
    lines: &mut Vec<Line>,
    notes: &mut Vec<String>,
    count: &mut usize,
) -> io::Result<()> {
    *count += 1;
    if *count > FILES_MAX {
        return Err(io::Error::other("too many files include each other"));
    }
    let text = String::from_utf8_lossy(&source.read(path)?).into_owned();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let place = format!("{}:{number}", path.display());
        if key != "include_dir" {
            lines.push(Line { place, key: key.to_owned(), value: value.trim().to_owned() });
            continue;
        }
        let Ok(entries) = std::fs::read_dir(value.trim()) else {
            notes.push(format!("{place}: {line}: the folder cannot be read"));
            continue;
        };
        let mut files: Vec<PathBuf> =
            entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "conf"));
        files.sort();
        for file in files {
            read(&file, source, lines, notes, count)?;
        }
    }
    Ok(())
}

impl Import {
    fn take(&mut self, line: &Line) {
        let Line { place, key, value } = line;
        let known = match key.as_str() {
            "listener" | "port" => self.listener(place, value),
            "bind_address"
            | "protocol"
            | "certfile"
            | "keyfile"
            | "cafile"
            | "require_certificate"
            | "use_identity_as_username"
            | "allow_anonymous" => self.of_listener(key, value),
            "password_file" => once(&mut self.password_file, value),
            "acl_file" => once(&mut self.acl_file, value),
            // Whether the files may be told apart by listener, which they may not here.
            "per_listener_settings" => value == "false",
            "max_inflight_messages" => self.number("limits", "inflight_max", value, 1, 65_535),
            "max_connections" => {
                value == "-1" || self.number("limits", "connections_max", value, 1, 1_000_000)
            }
            "max_queued_messages" => {
                self.number("queue.session", "messages_max", value, 1, u64::from(u32::MAX))
            }
            "max_queued_bytes" => bytes(value, &mut self.queued_bytes),
            "message_size_limit" | "max_packet_size" => bytes(value, &mut self.message_bytes),
            "persistent_client_expiration" => self.expiry(value),
            "log_type" => self.log_level(value),
            key => NEEDLESS.contains(&key),
        };
        if !known {
            self.notes.push(format!("{place}: {key} {value}"));
        }
    }

    /// `listener PORT [ADDRESS]`, or `listener 0 PATH` for a socket in the file system.
    fn listener(&mut self, place: &str, value: &str) -> bool {
        let (port, address) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
        let address = Some(address.trim().to_owned()).filter(|address| !address.is_empty());
        if port.parse::<u16>().is_err() {
            return false;
        }
        self.listeners.push(Listener {
            place: place.to_owned(),
            port: port.to_owned(),
            address,
            ..Listener::default()
        });
        true
    }

    fn of_listener(&mut self, key: &str, value: &str) -> bool {
        let yes = value == "true";
        if key == "allow_anonymous" {
            // It is one setting for all listeners, wherever it stands, unless they have settings of their own.
            match self.listeners.last_mut() {
                Some(listener) => listener.anonymous = Some(yes),
                None => self.anonymous = Some(yes),
            }
            return yes || value == "false";
        }
        if self.listeners.is_empty() {
            // Before the first listener: Mosquitto's default one.
            self.listeners.push(Listener { port: "1883".to_owned(), ..Listener::default() });
        }
        let Some(listener) = self.listeners.last_mut() else { return false };
        match key {
            "bind_address" => listener.address = Some(value.to_owned()),
            "protocol" if value == "mqtt" => {}
            "protocol" if value == "websockets" => listener.websockets = true,
            "certfile" => listener.cert = Some(value.to_owned()),
            "keyfile" => listener.key = Some(value.to_owned()),
            "cafile" => listener.ca = Some(value.to_owned()),
            "require_certificate" => listener.requires_certificate = yes,
            "use_identity_as_username" => listener.name_from_certificate = yes,
            _ => return false,
        }
        true
    }

    fn number(&mut self, section: &'static str, key: &'static str, value: &str, min: u64, max: u64) -> bool {
        match value.parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => {
                self.settings.insert((section, key), number.to_string());
                true
            }
            // 0 is without a bound, which no queue is here.
            _ => false,
        }
    }

    /// Sizes; a queue holds the largest message at least.
    fn set_sizes(&mut self) {
        if let Some(bytes) = self.message_bytes {
            let used = bytes.clamp(*MESSAGE_BYTES.start(), LARGEST_MESSAGE);
            if used != bytes {
                self.notes.push(format!("a largest message of {bytes}: {} is used", show_bytes(used)));
            }
            self.message_bytes = Some(used);
            self.settings.insert(("limits", "message_bytes_max"), format!("\"{}\"", show_bytes(used)));
        }
        let least = self.message_bytes.unwrap_or_else(|| Limits::default().message_bytes_max);
        let Some(bytes) = self.queued_bytes else { return };
        if bytes < least {
            let used = show_bytes(least);
            self.notes
                .push(format!("max_queued_bytes {bytes}: {used} is used, the size of the largest message"));
        }
        let text = format!("\"{}\"", show_bytes(bytes.max(least)));
        self.settings.insert(("queue.session", "bytes_max"), text);
    }

    /// A number with h, d, w, m (months) or y.
    fn expiry(&mut self, value: &str) -> bool {
        let digits = value.trim_end_matches(|c: char| !c.is_ascii_digit());
        let hours = match value.get(digits.len()..) {
            Some("h") => 1,
            Some("d") => 24,
            Some("w") => 24 * 7,
            Some("m") => 24 * 30,
            Some("y") => 24 * 365,
            _ => return false,
        };
        let Some(hours) = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(hours)) else {
            return false;
        };
        let longest = EXPIRIES.end().as_secs() / 3600;
        if hours > longest {
            self.notes.push(format!(
                "persistent_client_expiration {value}: {longest}h is used, which is the longest"
            ));
        }
        let hours = hours.min(longest);
        self.settings.insert(("limits", "session_expiry_max"), format!("\"{hours}h\""));
        true
    }

    fn log_level(&mut self, value: &str) -> bool {
        if matches!(value, "all" | "debug") {
            self.settings.insert(("log", "level"), "\"debug\"".to_owned());
        }
        matches!(value, "all" | "debug" | "none" | "error" | "warning" | "notice" | "information")
    }

    /// Users and rules that the gateway does not understand are told now, not at the start.
    fn check_files(&mut self, source: &dyn ConfigSource) {
        if let Some(path) = &self.password_file {
            match source.read(Path::new(path)) {
                Ok(bytes) => {
                    let errors = Users::parse(&bytes).err().unwrap_or_default();
                    self.notes.extend(errors.iter().map(|error| format!("{path}:{error}")));
                }
                Err(error) => self.notes.push(format!("{path}: cannot be read: {error}")),
            }
        }
        if let Some(path) = &self.acl_file {
            match source.read(Path::new(path)) {
                Ok(bytes) => {
                    let errors = Acl::parse(&bytes).err().unwrap_or_default();
                    self.notes.extend(errors.iter().map(|error| format!("{path}:{error}")));
                }
                Err(error) => self.notes.push(format!("{path}: cannot be read: {error}")),
            }
        }
    }

    fn text(&mut self, source: &Path) -> String {
        let mut out = format!("# Made from {} by gatewayd import mosquitto.\n", source.display());
        // A string takes any text.
        let mut put = |line: String| writeln!(out, "{line}").unwrap_or_default();
        let all =
            self.anonymous.or_else(|| self.listeners.iter().rev().find_map(|listener| listener.anonymous));
        let mut names = Vec::new();
        let listeners = std::mem::take(&mut self.listeners);
        for listener in &listeners {
            let kind = if listener.websockets { "ws" } else { "mqtt" };
            let tls = listener.cert.is_some();
            let base = if tls { format!("{kind}s") } else { kind.to_owned() };
            let name = unused(&base, &listener.port, &names);
            put(format!("\n[listener.{}]", quoted_key(&name)));
            put(format!("kind = \"{kind}\""));
            put(format!("bind = {}", quoted(&bind(listener))));
            // Mosquitto's default for a listener that is written.
            put(format!("allow_anonymous = {}", listener.anonymous.or(all).unwrap_or(false)));
            if let (Some(cert), Some(key)) = (&listener.cert, &listener.key) {
                put(format!("tls = {}", quoted(&name)));
                if listener.requires_certificate {
                    put("client_cert = \"required\"".to_owned());
                    let name = if listener.name_from_certificate { "cn" } else { "none" };
                    put(format!("username_from_cert = \"{name}\""));
                }
                put(format!("[tls.{}]", quoted_key(&name)));
                put(format!("cert = {}", quoted(cert)));
                put(format!("key = {}", quoted(key)));
                if listener.requires_certificate
                    && let Some(ca) = &listener.ca
                {
                    put(format!("client_ca = {}", quoted(ca)));
                }
            } else if listener.cert.is_some() {
                self.notes.push(format!("{}: a certfile without keyfile", listener.place));
            }
            names.push(name);
        }
        if let (true, Some(anonymous)) = (listeners.is_empty(), all) {
            // Mosquitto listens on loopback when no listener is written, and so does the gateway.
            put(format!("\n[listener.mqtt]\nallow_anonymous = {anonymous}"));
        }
        if !listeners.is_empty() && !names.iter().any(|name| name == "mqtt") {
            put("\n[listener.mqtt]\nenabled = false".to_owned());
        }
        if self.password_file.is_some() || self.acl_file.is_some() {
            put("\n[auth]".to_owned());
        }
        for (key, file) in [("password_file", &self.password_file), ("acl_file", &self.acl_file)] {
            if let Some(file) = file {
                put(format!("{key} = {}", quoted(file)));
            }
        }
        let mut section = "";
        for ((of, key), value) in &self.settings {
            if *of != section {
                section = of;
                put(format!("\n[{of}]"));
            }
            put(format!("{key} = {value}"));
        }
        out
    }
}

/// A name for a listener that none has yet: with its port, else with a number too.
fn unused(base: &str, port: &str, names: &[String]) -> String {
    let of_port = format!("{base}-{port}");
    let numbered = (2..).map(|number: u32| format!("{of_port}-{number}"));
    let mut candidates = [base.to_owned(), of_port.clone()].into_iter().chain(numbered);
    candidates.find(|name| !names.contains(name)).unwrap_or(of_port)
}

/// A size that is a bound; 0 is none.
fn bytes(value: &str, into: &mut Option<u64>) -> bool {
    *into = value.parse().ok().filter(|bytes| *bytes > 0);
    into.is_some()
}

/// False for a second one: there is one file for all listeners.
fn once(file: &mut Option<String>, value: &str) -> bool {
    let fits = file.as_deref().is_none_or(|file| file == value);
    file.get_or_insert_with(|| value.to_owned());
    fits
}

fn bind(listener: &Listener) -> String {
    let port = &listener.port;
    match listener.address.as_deref() {
        Some(path) if port == "0" => format!("unix:{path}"),
        None | Some("*") => format!("[::]:{port}"),
        Some("localhost") => format!("127.0.0.1:{port}"),
        Some(address) if address.contains(':') => format!("[{address}]:{port}"),
        Some(address) => format!("{address}:{port}"),
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn quoted_key(name: &str) -> String {
    if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') { name.to_owned() } else { quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::super::user::tests::Scratch;
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_usual_file_is_mapped_and_the_rest_is_told() {
        let scratch = Scratch::new("mosquitto");
        let included = scratch.path("conf.d");
        std::fs::create_dir_all(&included).unwrap();
        scratch.write("conf.d/tls.conf", "listener 8883 192.0.2.1\ncertfile c.pem\nkeyfile k.pem\ncafile ca.pem\nrequire_certificate true\nuse_identity_as_username true\n");
        scratch.write("conf.d/readme.txt", "listener 1\n");
        scratch.write(
            "mosquitto.conf",
            &format!(
                "# a comment\npersistence true\nmax_queued_messages 500\nmax_queued_bytes 1048576\nmax_inflight_messages 0\n\
                 persistent_client_expiration 2w\nlistener 1883\nallow_anonymous true\nlistener 0 /run/m.sock\n\
                 listener 9001 127.0.0.1\nprotocol websockets\nconnection cloud\ninclude_dir {}\n",
                included.display()
            ),
        );
        let source = scratch.path("mosquitto.conf");
        let command = MosquittoImport { source: source.clone(), output: None };
        let (exit, out, err) = scratch.run(|io| import_mosquitto(&command, io));
        assert_eq!(exit, Exit::Ok);
        let expected = "
[listener.mqtt]
kind = \"mqtt\"
bind = \"[::]:1883\"
allow_anonymous = true

[listener.mqtt-0]
kind = \"mqtt\"
bind = \"unix:/run/m.sock\"
allow_anonymous = true

[listener.ws]
kind = \"ws\"
bind = \"127.0.0.1:9001\"
allow_anonymous = true

[listener.mqtts]
kind = \"mqtt\"
bind = \"192.0.2.1:8883\"
allow_anonymous = true
tls = \"mqtts\"
client_cert = \"required\"
username_from_cert = \"cn\"
[tls.mqtts]
cert = \"c.pem\"
key = \"k.pem\"
client_ca = \"ca.pem\"

[limits]
session_expiry_max = \"336h\"

[queue.session]
bytes_max = \"2MiB\"
messages_max = 500
";
        assert_eq!(out.split_once('\n').unwrap().1, expected);
        let at = |line: u32| format!("not mapped: {}:{line}: ", source.display());
        let raised = "not mapped: max_queued_bytes 1048576: 2MiB is used, the size of the largest message\n";
        assert_eq!(err, format!("{}max_inflight_messages 0\n{}connection cloud\n{raised}", at(5), at(12)));
        scratch.write("gateway.toml", &out);
        let errors = scratch.run(|io| {
            let errors =
                Config::load(Some(&scratch.path("gateway.toml")), io.files).err().unwrap_or_default();
            for error in &errors {
                writeln!(io.err, "{error}")?;
            }
            Ok(Exit::Ok)
        });
        assert_eq!(errors.2, "");
    }

    #[test]
    fn what_is_written_is_always_taken() {
        let scratch = Scratch::new("mosquitto-odd");
        for (name, text, expected, told) in [
            (
                "same-port",
                "listener 1883 127.0.0.1\nlistener 1883 127.0.0.2\nlistener 1883 127.0.0.3\n",
                &["[listener.mqtt]", "[listener.mqtt-1883]", "[listener.mqtt-1883-2]"][..],
                "",
            ),
            ("closed", "allow_anonymous false\n", &["[listener.mqtt]\nallow_anonymous = false"], ""),
            ("open", "allow_anonymous true\n", &["[listener.mqtt]\nallow_anonymous = true"], ""),
            (
                "ranges",
                "max_packet_size 100\npersistent_client_expiration 200y\n",
                &["message_bytes_max = \"1KiB\"", "session_expiry_max = \"1193040h\""],
                "not mapped: persistent_client_expiration 200y: 1193040h is used, which is the longest\n\
                 not mapped: a largest message of 100: 1KiB is used\n",
            ),
            ("large", "message_size_limit 268435455\n", &["message_bytes_max = \"8MiB\""], "8MiB is used"),
        ] {
            scratch.write(&format!("{name}.conf"), text);
            let command = MosquittoImport { source: scratch.path(&format!("{name}.conf")), output: None };
            let (exit, out, err) = scratch.run(|io| import_mosquitto(&command, io));
            assert_eq!(exit, Exit::Ok);
            assert!(
                expected.iter().all(|part| out.contains(part)) && err.contains(told),
                "{name}: {out}{err}"
            );
            assert_eq!(err.is_empty(), told.is_empty(), "{name}: {err}");
            scratch.write(&format!("{name}.toml"), &out);
            let errors = scratch.run(|io| {
                let path = scratch.path(&format!("{name}.toml"));
                for error in Config::load(Some(&path), io.files).err().unwrap_or_default() {
                    writeln!(io.err, "{error}")?;
                }
                Ok(Exit::Ok)
            });
            assert_eq!(errors.2, "", "{name}");
        }
    }

    #[test]
    fn text_of_any_kind_stays_one_string() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000A\"");
        assert_eq!((quoted_key("mqtt-1884").as_str(), quoted_key("a b").as_str()), ("mqtt-1884", "\"a b\""));
    }
}
