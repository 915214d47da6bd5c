//! A table of a configuration file, read key by key. Owns the types of values and the words for a wrong one;
//! which keys there are and where they go is `raw`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Place, Problem};
use super::model::Bind;
use super::schema::{SECTIONS, nearest};
use super::secret::Secret;
use super::source::SourceFile;
use super::value::{parse_bytes, parse_duration, show_bytes, show_duration};

/// What reading the files has found so far.
#[derive(Default)]
pub(super) struct Findings {
    pub errors: Vec<ConfigError>,
    /// Where each key path was last set.
    pub origins: BTreeMap<String, Place>,
    /// Key paths whose value is wrong, so that nothing is concluded from their defaults.
    failed: BTreeSet<String>,
}

impl Findings {
    pub fn report(&mut self, place: Place, key: &str, problem: Problem) {
        self.failed.insert(key.to_owned());
        self.errors.push(ConfigError { place, key: key.to_owned(), problem });
    }

    /// Reports that a sound value does not go with another: both stay open to further comparison.
    pub fn contradict(&mut self, place: Place, key: &str, text: String) {
        self.errors.push(ConfigError { place, key: key.to_owned(), problem: Problem::Contradiction(text) });
    }

    /// Where `key` was set; `None` when it has its default.
    pub fn origin(&self, key: &str) -> Option<&Place> {
        self.origins.get(key)
    }

    /// Whether a conclusion may be drawn from `key`.
    pub fn is_sound(&self, key: &str) -> bool {
        !self.failed.contains(key)
    }
}

/// One table: `[limits]`, `[listener.mqtt]`.
pub(super) struct Section<'a> {
    file: &'a SourceFile,
    table: &'a DeTable<'a>,
    /// Its key path.
    path: String,
    found: &'a mut Findings,
}

impl<'a> Section<'a> {
    /// The table at `path`, whose keys can only be `keys`: any other is reported here.
    pub fn new(
        file: &'a SourceFile,
        (path, table): (String, &'a DeTable<'a>),
        keys: &[&'static str],
        found: &'a mut Findings,
    ) -> Self {
        for (key, _) in table {
            let name = key.get_ref().as_ref();
            if !keys.contains(&name) {
                let nearest = nearest(name, keys);
                if let Some(meant) = nearest {
                    // The value meant for that key is not known, so its absence says nothing.
                    found.failed.insert(join(&path, meant));
                }
                let problem = Problem::Unknown {
                    what: "key",
                    nearest: nearest.map(str::to_owned),
                    belongs_in: if nearest.is_none() { section_of_key(name) } else { None },
                };
                found.report(file.place(key.span().start), &join(&path, name), problem);
            }
        }
        Self { file, table, path, found }
    }

    pub fn flag(&mut self, key: &str) -> Option<bool> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            DeValue::String(text) if matches!(text.as_ref(), "true" | "false") => {
                self.wrong_type(key, value, format!("{text} without quotes"))
            }
            _ => self.wrong_type(key, value, "true or false"),
        }
    }

    pub fn count<T: Copy + TryFrom<u64> + Display + PartialOrd>(
        &mut self,
        key: &str,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Integer(number) => {
                let number = u64::from_str_radix(number.as_str(), number.radix());
                match number.ok().and_then(|number| T::try_from(number).ok()) {
                    Some(number) if range.contains(&number) => Some(number),
                    _ => self.out_of_range(key, value, range.start(), range.end()),
                }
            }
            DeValue::String(text) if text.parse::<u64>().is_ok() => {
                self.wrong_type(key, value, format!("{text} without quotes"))
            }
            _ => self.wrong_type(key, value, "a whole number"),
        }
    }

    /// A size: text with a unit, or a whole number of bytes.
    pub fn bytes(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(key)?;
        let bytes = match value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            DeValue::String(text) => match parse_bytes(text) {
                Ok(bytes) => Some(bytes),
                Err(reason) => return self.bad_value(key, value, reason),
            },
            _ => return self.wrong_type(key, value, "a size such as \"64MiB\""),
        };
        match bytes {
            Some(bytes) if range.contains(&bytes) => Some(bytes),
            _ => self.out_of_range(key, value, show_bytes(*range.start()), show_bytes(*range.end())),
        }
    }

    /// A size, or `""` for none.
    pub fn bytes_or_none(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<Option<u64>> {
        match self.table.get(key)?.get_ref() {
            DeValue::String(text) if text.is_empty() => {
                self.value(key)?;
                Some(None)
            }
            _ => self.bytes(key, range).map(Some),
        }
    }

    pub fn duration(&mut self, key: &str, range: RangeInclusive<Duration>) -> Option<Duration> {
        let value = self.value(key)?;
        let text = match value.get_ref() {
            DeValue::String(text) => text,
            DeValue::Integer(number) => {
                let reason = format!("lacks a unit: write \"{}s\" (units: ms, s, m, h, d)", number.as_str());
                return self.bad_value(key, value, reason);
            }
            _ => return self.wrong_type(key, value, "a duration such as \"30s\""),
        };
        match parse_duration(text) {
            Ok(duration) if range.contains(&duration) => Some(duration),
            Ok(_) => {
                self.out_of_range(key, value, show_duration(*range.start()), show_duration(*range.end()))
            }
            Err(reason) => self.bad_value(key, value, reason),
        }
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, key: &str, words: &[(&'static str, T)]) -> Option<T> {
        let value = self.value(key)?;
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let DeValue::String(text) = value.get_ref() else {
            return self.wrong_type(key, value, one_of(&names));
        };
        if let Some((_, choice)) = words.iter().find(|(name, _)| name == text) {
            return Some(*choice);
        }
        let mut reason = format!("is not {}", one_of(&names));
        if let Some(meant) = nearest(text, &names) {
            reason.push_str(&format!("; did you mean \"{meant}\"?"));
        }
        self.bad_value(key, value, reason)
    }

    /// Text that `check` lets through; its error ends a sentence about the text.
    pub fn text(&mut self, key: &str, check: impl Fn(&str) -> Result<(), String>) -> Option<String> {
        let value = self.value(key)?;
        let DeValue::String(text) = value.get_ref() else {
            return self.wrong_type(key, value, "text in quotes");
        };
        match check(text) {
            Ok(()) => Some(text.to_string()),
            Err(reason) => self.bad_value(key, value, reason),
        }
    }

    /// A list of texts, each read by `read`; its error ends a sentence about the text.
    pub fn list<T>(&mut self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Option<Vec<T>> {
        let value = self.value(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            return self.wrong_type(key, value, "a list of texts such as [\"sensors/#\"]");
        };
        if items.is_empty() {
            return self.bad_value(key, value, "is an empty list");
        }
        let mut list = Vec::new();
        for item in items {
            let read = match item.get_ref() {
                DeValue::String(text) => {
                    read(text).or_else(|reason| self.bad_value::<T>(key, item, reason).ok_or(()))
                }
                _ => self.wrong_type::<T>(key, item, "text in quotes").ok_or(()),
            };
            list.extend(read);
        }
        (list.len() == items.len()).then_some(list)
    }

    /// A duration, or `""` for none.
    pub fn duration_or_none(
        &mut self,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Option<Option<Duration>> {
        match self.table.get(key)?.get_ref() {
            DeValue::String(text) if text.is_empty() => {
                self.value(key)?;
                Some(None)
            }
            _ => self.duration(key, range).map(Some),
        }
    }

    /// A path, seen from the folder of the file that names it; `None` inside for `""`.
    pub fn path(&mut self, key: &str) -> Option<Option<PathBuf>> {
        let check = |text: &str| match text.contains('\0') {
            true => Err("holds a zero byte".to_owned()),
            false => Ok(()),
        };
        let text = self.text(key, check)?;
        Some(if text.is_empty() { None } else { Some(self.file.resolve(&text)) })
    }

    /// An address and a port, or a socket in the file system.
    pub fn bind(&mut self, key: &str) -> Option<Bind> {
        let value = self.value(key)?;
        let DeValue::String(text) = value.get_ref() else {
            return self.wrong_type(key, value, "an address and a port such as \"127.0.0.1:1883\"");
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return match check_socket_path(path) {
                Ok(()) => Some(Bind::Unix(PathBuf::from(path))),
                Err(reason) => self.bad_value(key, value, reason),
            };
        }
        match text.parse() {
            Ok(address) => Some(Bind::Tcp(address)),
            Err(_) => self.bad_value(key, value, address_hint(text)),
        }
    }

    /// A table of texts.
    pub fn labels(&mut self, key: &str) -> Option<BTreeMap<String, String>> {
        let value = self.value(key)?;
        let DeValue::Table(table) = value.get_ref() else {
            return self.wrong_type(key, value, "a table of texts such as { site = \"north\" }");
        };
        let mut labels = BTreeMap::new();
        let mut whole = true;
        for (name, value) in table {
            match value.get_ref() {
                DeValue::String(text) => {
                    labels.insert(name.get_ref().to_string(), text.to_string());
                }
                _ => {
                    let key = join(key, name.get_ref());
                    whole &= self.wrong_type::<()>(&key, value, "text in quotes").is_some();
                }
            }
        }
        whole.then_some(labels)
    }

    /// `{ file = "..." }`, `{ credential = "..." }` or `{ env = "..." }`.
    #[cfg_attr(not(test), expect(dead_code, reason = "no section of this version has a secret"))]
    pub fn secret(&mut self, key: &str) -> Option<Secret> {
        const WANTS: &str = "one of { file = \"...\" }, { credential = \"...\" }, { env = \"...\" }";
        let value = self.value(key)?;
        let table = match value.get_ref() {
            DeValue::Table(table) => table,
            DeValue::String(_) => {
                // The text may be the secret itself: it must not be repeated in a message.
                let problem = Problem::WrongType { wants: WANTS.to_owned(), found: "text".to_owned() };
                self.found.report(self.file.place(value.span().start), &join(&self.path, key), problem);
                return None;
            }
            _ => return self.wrong_type(key, value, WANTS),
        };
        let mut entries = table.iter();
        let (Some((name, place)), None) = (entries.next(), entries.next()) else {
            return self.wrong_type(key, value, WANTS);
        };
        let DeValue::String(text) = place.get_ref() else {
            return self.wrong_type(&join(key, name.get_ref()), place, "text in quotes");
        };
        match name.get_ref().as_ref() {
            _ if text.is_empty() => self.bad_value(key, place, "is empty"),
            "file" => Some(Secret::File(self.file.resolve(text))),
            "credential" if text.contains('/') => self.bad_value(key, place, "is not a name"),
            "credential" => Some(Secret::Credential(text.to_string())),
            "env" => Some(Secret::Env(text.to_string())),
            _ => self.wrong_type(key, value, WANTS),
        }
    }

    /// The value of `key`, noting where it was set.
    fn value(&mut self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        let (name, value) = self.table.get_key_value(key)?;
        let path = join(&self.path, key);
        self.found.failed.remove(&path);
        self.found.origins.insert(path, self.file.place(name.span().start));
        Some(value)
    }

    fn wrong_type<T>(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        wants: impl Into<String>,
    ) -> Option<T> {
        let found = found(self.file, value);
        self.report(key, value.span(), Problem::WrongType { wants: wants.into(), found })
    }

    fn bad_value<T>(&mut self, key: &str, value: &Spanned<DeValue<'_>>, reason: impl Display) -> Option<T> {
        let problem = Problem::BadValue(format!("{} {reason}", self.file.snippet(value.span())));
        self.report(key, value.span(), problem)
    }

    fn out_of_range<T>(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        from: impl Display,
        to: impl Display,
    ) -> Option<T> {
        self.bad_value(key, value, format!("is out of range: {from} to {to}"))
    }

    fn report<T>(&mut self, key: &str, span: Range<usize>, problem: Problem) -> Option<T> {
        // `key` is a key of ours or a path joined below it, so it needs no quotes here.
        self.found.report(self.file.place(span.start), &format!("{}.{key}", self.path), problem);
        None
    }
}

/// `path.key`, with quotes where TOML needs them.
pub(super) fn join(path: &str, key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let key = if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// The section that has a key called `name`, as a header.
pub(super) fn section_of_key(name: &str) -> Option<String> {
    let section = SECTIONS.iter().find(|section| section.keys.contains(&name))?;
    Some(if section.named { format!("[{}.NAME]", section.name) } else { format!("[{}]", section.name) })
}

/// What was found where something else was wanted: the kind of value, and its text when that is short.
pub(super) fn found(file: &SourceFile, value: &Spanned<DeValue<'_>>) -> String {
    match value.get_ref() {
        DeValue::Table(_) => "a table".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => file.snippet(value.span()),
    }
}

fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Linux keeps 108 bytes for the path of a socket, with a zero byte behind it.
const SOCKET_PATH_BYTES_MAX: usize = 107;

fn check_socket_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') || path.contains('\0') {
        return Err("wants a path from the root, such as \"unix:/run/gatewayd/mqtt.sock\"".to_owned());
    }
    if path.len() > SOCKET_PATH_BYTES_MAX {
        return Err(format!("is too long: the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes"));
    }
    Ok(())
}

fn address_hint(text: &str) -> String {
    if text.starts_with('/') {
        return format!("is a path: for a socket in the file system write \"unix:{text}\"");
    }
    let port_of = |text: &str| text.parse::<u16>().ok();
    if let Some(port) = port_of(text).or_else(|| text.strip_prefix(':').and_then(port_of)) {
        return format!("lacks an address: write \"127.0.0.1:{port}\", or \"[::]:{port}\" for all");
    }
    if text.parse::<Ipv4Addr>().is_ok() {
        return format!("lacks a port: write \"{text}:1883\"");
    }
    if let Some((host, port)) = text.rsplit_once(':')
        && port_of(port).is_some()
    {
        if host == "*" {
            return format!("has no address: write \"[::]:{port}\" for all");
        }
        if host == "localhost" {
            return format!("names a host; names are not resolved: write \"127.0.0.1:{port}\"");
        }
        if host.parse::<Ipv6Addr>().is_ok() {
            return format!("lacks brackets: write \"[{host}]:{port}\"");
        }
        if host.contains(|c: char| c.is_alphabetic()) && !host.contains(['[', '/']) {
            return "names a host; names are not resolved: write its address".to_owned();
        }
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<Ipv6Addr>() {
        return format!("lacks a port: write \"[{ip}]:1883\"");
    }
    "is not an address and a port such as \"127.0.0.1:1883\"".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_says_where_it_is_kept_and_is_never_repeated() {
        let secret = |text: &str| {
            let file =
                SourceFile { path: PathBuf::from("/etc/gateway.toml"), text: format!("password = {text}") };
            let root = DeTable::parse(&file.text).unwrap();
            let mut found = Findings::default();
            let mut section =
                Section::new(&file, ("uplink.x".to_owned(), root.get_ref()), &["password"], &mut found);
            let secret = section.secret("password");
            (secret, found.errors.iter().map(ToString::to_string).collect::<Vec<_>>().concat())
        };
        let sound = |text| secret(text).0.unwrap();
        assert_eq!(sound("{ file = 'p' }"), Secret::File(PathBuf::from("/etc/p")));
        assert_eq!(sound("{ credential = 'cloud' }"), Secret::Credential("cloud".to_owned()));
        assert_eq!(sound("{ env = 'CLOUD' }"), Secret::Env("CLOUD".to_owned()));
        for text in
            ["'hunter2'", "{ file = '' }", "{ credential = '../x' }", "{ file = 'a', env = 'b' }", "7", "{}"]
        {
            let (secret, error) = secret(text);
            assert_eq!(secret, None, "{text}");
            assert!(error.contains("uplink.x.password: ") && !error.contains("hunter2"), "{error}");
        }
    }
}
