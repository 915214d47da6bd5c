//! Configuration: from `/etc/gateway.toml` and its drop-ins to plain checked data, or to the list of everything
//! that is wrong. Owns the schema of the file; who reads it when, and what becomes of it, is for `main` and `cli`.
//!
//! `source` reads, `section` and `value` know types of values, `schema` the names, `raw` lays the files over each
//! other, `checked` and `listeners` hold the whole against itself, `model` is the result and `effective` prints it.

mod checked;
mod effective;
mod error;
mod keys;
mod listeners;
mod model;
mod raw;
mod schema;
mod secret;
mod section;
mod source;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

pub use error::{ConfigError, Place, Problem};
pub use keys::{Form, KEYS, Key};
pub use model::{
    Auth, Bind, ClientCert, Collection, Config, GatewayId, Identity, Limits, Listener, Log, LogFormat,
    LogLevel, OnCorrupt, Overflow, QueueBounds, QueueClasses, STATE_PATH, Storage, TlsFiles,
    UsernameFromCert,
};
pub use schema::ListenerKind;
pub use secret::{Secret, SecretError};
pub use source::{ConfigSource, FILE_BYTES_MAX, Files, default_state_path};
pub use value::{show_bytes, show_duration};

#[cfg(feature = "net")]
pub(crate) use raw::{EXPIRIES, MESSAGE_BYTES};

use raw::Raw;
use section::Findings;
use source::SourceFile;

/// The file that is read when none is named; it need not exist.
pub const DEFAULT_PATH: &str = "/etc/gateway.toml";

impl Config {
    /// The configuration of the file at `path` and the drop-ins in `gateway.d` beside it, in lexical order. With
    /// no path it is [`DEFAULT_PATH`], and a file that does not exist there is an empty one.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the files and the lines in them.
    pub fn load(path: Option<&Path>, source: &dyn ConfigSource) -> Result<Self, Vec<ConfigError>> {
        Self::load_with_places(path, source).map(|(config, _)| config)
    }

    /// The same, with the place of each key that a file sets, for what is found wrong later.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_with_places(
        path: Option<&Path>,
        source: &dyn ConfigSource,
    ) -> Result<(Self, Places), Vec<ConfigError>> {
        let mut found = Findings::default();
        let mut raw = Raw::new(Storage { path: source.state_path(), ..Storage::default() });
        let main = path.unwrap_or_else(|| Path::new(DEFAULT_PATH));
        let mut files = vec![main.to_owned()];
        files.extend(drop_ins(main, source, &mut found));
        for file in &files {
            let is_optional = path.is_none() && file == main;
            let Some(file) = read(file, is_optional, source, &mut found) else { continue };
            let (root, errors) = DeTable::parse_recoverable(&file.text);
            if errors.is_empty() {
                raw.apply(&file, root.get_ref(), &mut found);
            } else {
                report_syntax(&file, &errors, &mut found);
            }
        }
        // A file that was not understood may hold what seems to be missing, so nothing is concluded.
        let is_whole = !found
            .errors
            .iter()
            .any(|error| matches!(error.problem, Problem::Syntax(_) | Problem::Unreadable(_)));
        let config = is_whole.then(|| checked::check(raw, &mut found));
        match config {
            Some(config) if found.errors.is_empty() => Ok((config, Places(found.origins))),
            _ => Err(sorted(found.errors, &files)),
        }
    }
}

/// Where each key was last set, by its path such as `listener.mqtt.bind`.
#[derive(Clone, Debug, Default)]
pub struct Places(BTreeMap<String, Place>);

impl Places {
    /// `FILE:LINE:COLUMN: KEY`, or the key alone when no file sets it.
    #[must_use]
    pub fn show(&self, key: &str) -> String {
        self.0.get(key).map_or_else(|| key.to_owned(), |place| format!("{place}: {key}"))
    }
}

/// The files that [`Config::load`] reads for `path`, in the order in which they apply.
#[must_use]
pub fn files(path: Option<&Path>, source: &dyn ConfigSource) -> Vec<PathBuf> {
    let main = path.unwrap_or_else(|| Path::new(DEFAULT_PATH));
    let is_absent = source.read(main).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let mut files = drop_ins(main, source, &mut Findings::default());
    if path.is_some() || !is_absent {
        files.insert(0, main.to_owned());
    }
    files
}

/// The files of `gateway.d` beside `main` that end in `.toml` and are not hidden, in lexical order.
fn drop_ins(main: &Path, source: &dyn ConfigSource, found: &mut Findings) -> Vec<PathBuf> {
    let folder = main.parent().unwrap_or_else(|| Path::new("")).join("gateway.d");
    let mut files = match source.list(&folder) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            report_unreadable(&folder, error.to_string(), found);
            return Vec::new();
        }
    };
    files.retain(|path| {
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        path.extension() == Some(OsStr::new("toml")) && !is_hidden
    });
    files.sort();
    files
}

fn read(
    path: &Path,
    is_optional: bool,
    source: &dyn ConfigSource,
    found: &mut Findings,
) -> Option<SourceFile> {
    let bytes = match source.read(path) {
        Ok(bytes) => bytes,
        Err(error) if is_optional && error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            report_unreadable(path, error.to_string(), found);
            return None;
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Some(SourceFile { path: path.to_owned(), text }),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let text =
                String::from_utf8_lossy(error.as_bytes().get(..valid).unwrap_or_default()).into_owned();
            let place = SourceFile { path: path.to_owned(), text }.place(valid);
            found.report(place, "", Problem::Syntax("the text is not UTF-8".to_owned()));
            None
        }
    }
}

fn report_unreadable(path: &Path, reason: String, found: &mut Findings) {
    let place = Place { file: path.to_owned(), line: 0, column: 0 };
    found.report(place, "", Problem::Unreadable(reason));
}

/// The parser's errors, the first of each line: what follows on a line mostly follows from it.
fn report_syntax(file: &SourceFile, errors: &[toml::de::Error], found: &mut Findings) {
    let mut line = 0;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let place = file.place(span.start);
        if place.line == line {
            continue;
        }
        line = place.line;
        let (key, reason) = if error.message().starts_with("duplicate key") {
            (file.key_at(span), "it stands here a second time; keep one")
        } else {
            (String::new(), error.message())
        };
        found.report(place, &key, Problem::Syntax(reason.to_owned()));
    }
}

fn sorted(mut errors: Vec<ConfigError>, paths: &[PathBuf]) -> Vec<ConfigError> {
    errors.sort_by_key(|error| {
        let order = paths.iter().position(|path| *path == error.place.file);
        (order, error.place.line, error.place.column)
    });
    errors
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    /// Files in memory.
    struct Memory(BTreeMap<PathBuf, &'static str>);

    impl ConfigSource for Memory {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            let text = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
            Ok(text.as_bytes().to_vec())
        }

        fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
            Ok(self.0.keys().rev().filter(|path| path.parent() == Some(folder)).cloned().collect())
        }
    }

    fn load(files: &[(&str, &'static str)]) -> Result<Config, Vec<ConfigError>> {
        let memory = Memory(files.iter().map(|(path, text)| (PathBuf::from(path), *text)).collect());
        Config::load(None, &memory)
    }

    #[test]
    fn without_a_file_the_defaults_hold() {
        assert_eq!(load(&[]), Ok(Config::default()));
        let missing = Config::load(Some(Path::new("/x.toml")), &Memory(BTreeMap::new())).unwrap_err();
        assert_eq!(missing.len(), 1);
        assert!(missing[0].to_string().starts_with("/x.toml: cannot be read: "));
    }

    #[test]
    fn a_key_that_stands_twice_is_named_with_its_table() {
        let told = |text| load(&[("/etc/gateway.toml", text)]).unwrap_err()[0].to_string();
        let key = told("[log]\n[gateway] # here\nid = 'a'\nid = 'b'\n");
        assert!(key.starts_with("/etc/gateway.toml:4:1: gateway.id"), "{key}");
        let table = told("[log]\n[gateway]\nid = 'a'\n[gateway]\n");
        assert!(
            table.starts_with("/etc/gateway.toml:4:2: gateway") && !table.contains("gateway.g"),
            "{table}"
        );
    }

    #[test]
    fn drop_ins_apply_in_lexical_order_key_by_key() {
        let config = load(&[
            ("/etc/gateway.toml", "[limits]\ninflight_max = 1\nretained_max = 1\nsessions_max = 1"),
            ("/etc/gateway.d/20-b.toml", "[limits]\ninflight_max = 3"),
            (
                "/etc/gateway.d/10-a.toml",
                "[limits]\ninflight_max = 2\nretained_max = 2\n[queue.a]\nmessages_max = 9",
            ),
            ("/etc/gateway.d/.30-hidden.toml", "[limits]\ninflight_max = 9"),
            ("/etc/gateway.d/40-other.conf", "[limits]\ninflight_max = 9"),
            ("/etc/other.toml", "[limits]\ninflight_max = 9"),
        ])
        .unwrap();
        let limits = &config.limits;
        assert_eq!((limits.inflight_max, limits.retained_max, limits.sessions_max), (3, 2, 1));
        assert_eq!(config.queues.named["a"].messages_max, 9);
    }

    #[test]
    fn errors_name_the_file_that_is_wrong_in_the_order_of_reading() {
        let errors = load(&[
            ("/etc/gateway.toml", "[storage]\nelision_window = \"2s\""),
            ("/etc/gateway.d/10.toml", "\n[limits]\ninflight_max = 0\ninflite_max = 1\n[log"),
            ("/etc/gateway.d/20.toml", "[log]\nlevel = 'loud'"),
        ])
        .unwrap_err();
        let places: Vec<String> = errors.iter().map(|error| error.place.to_string()).collect();
        assert_eq!(
            places,
            ["/etc/gateway.toml:2:18", "/etc/gateway.d/10.toml:5:5", "/etc/gateway.d/20.toml:2:9"],
            "{errors:?}"
        );
    }

    #[test]
    fn a_path_is_seen_from_its_file() {
        let config = load(&[
            ("/etc/gateway.toml", "[auth]\npassword_file = 'gateway/passwd'\nacl_file = '/a'"),
            ("/etc/gateway.d/1.toml", "[storage]\npath = '../state'"),
        ])
        .unwrap();
        assert_eq!(config.auth.password_file, Some(PathBuf::from("/etc/gateway/passwd")));
        assert_eq!(config.auth.acl_file, Some(PathBuf::from("/a")));
        assert_eq!(config.storage.path, PathBuf::from("/etc/gateway.d/../state"));
    }

    #[test]
    fn anonymous_clients_follow_the_address_and_the_password_file() {
        let anonymous = |text| {
            let config = load(&[("/etc/gateway.toml", text)]).unwrap();
            let listener = config.listeners.iter().find(|listener| listener.name == "mqtt").unwrap();
            listener.allow_anonymous
        };
        assert!(anonymous(""));
        assert!(!anonymous("[auth]\npassword_file = '/p'"));
        assert!(!anonymous("[auth]\npassword_file = '/p'\n[listener.mqtt]\nbind = '0.0.0.0:1883'"));
        assert!(anonymous("[auth]\npassword_file = '/p'\n[listener.mqtt]\nallow_anonymous = true"));
        assert!(anonymous("[listener.mqtt]\nbind = '0.0.0.0:1883'\nallow_anonymous = true"));
        assert!(anonymous("[listener.mqtt]\nbind = '[::ffff:127.0.0.1]:1883'"));
        assert!(!anonymous("[listener.mqtt]\nallow_anonymous = false"));
    }

    #[test]
    fn what_a_queue_table_leaves_out_comes_from_default() {
        let config = load(&[(
            "/etc/gateway.toml",
            "[queue.default]\nmessages_max = 5\noverflow = 'reject'\n[queue.'big*']\nbytes_max = '2 GiB'",
        )])
        .unwrap();
        let big = config.queues.bounds_of("bigger");
        assert_eq!((big.messages_max, big.bytes_max, big.overflow), (5, 2 << 30, Overflow::Reject));
        let session = config.queues.session;
        assert_eq!(
            (session.messages_max, session.bytes_max, session.overflow),
            (4096, 16 << 20, Overflow::Reject)
        );
    }

    #[test]
    fn what_is_shown_reads_back() {
        let text: &'static str = "[gateway]\nid = 'north-7'\nlabels = { 'a b' = \"q\\\"\\u0007\\n\", site = 'x' }\n\
            [listener.lan]\nkind = 'mqtt'\nbind = '[::1]:1884'\nallow_anonymous = false\n\
            [listener.amqp]\nenabled = false\n\
            [limits]\nsession_expiry_max = '1d12h'\nretained_bytes_max = 1000001\n\
            [queue.'a.b*']\nmessages_max = 7\n\
            [storage]\nbytes_per_day_budget = ''\nelision_window = '0s'\non_corrupt = 'stop'\n\
            [auth]\npassword_file = '/p'\n[log]\nlevel = 'debug'\nformat = 'json'";
        for config in [Config::default(), load(&[("/etc/gateway.toml", text)]).unwrap()] {
            let shown: &'static str = config.show_effective().leak();
            assert_eq!(load(&[("/etc/gateway.toml", shown)]), Ok(config), "{shown}");
        }
        let config = load(&[("/etc/gateway.toml", text)]).unwrap();
        assert_eq!(config.limits.session_expiry_max, Duration::from_secs(36 * 3600));
        assert_eq!(config.storage.bytes_per_day_budget, None);
    }

    /// A key that nobody reads would be accepted and do nothing: each key refuses a date.
    #[test]
    fn every_key_of_the_schema_is_read() {
        for section in &schema::SECTIONS {
            for key in section.keys {
                let table =
                    if section.named { format!("{}.x", section.name) } else { section.name.to_owned() };
                let text: &'static str = format!("[{table}]\n{key} = 2020-02-02").leak();
                let errors = load(&[("/etc/gateway.toml", text)]).unwrap_err();
                let is_refused = |error: &ConfigError| {
                    error.key == format!("{table}.{key}")
                        && matches!(error.problem, Problem::WrongType { .. })
                };
                assert!(errors.iter().any(is_refused), "{text}: {errors:?}");
            }
        }
    }
}
