//! Options of a verb: `--name VALUE` and `--name` flags, declared in one table that is also the help text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// One option: its name, its default (`None`: a flag; an empty text: no value), and what it means.
pub type Known = (&'static str, Option<&'static str>, &'static str);

#[derive(Debug)]
pub struct Options {
    values: BTreeMap<&'static str, String>,
    words: Vec<String>,
}

impl Options {
    /// Reads `arguments`; what is not in `known` is an error, words without `--` are kept in order.
    pub fn parse(arguments: &[String], known: &[Known]) -> Result<Self, String> {
        let mut values: BTreeMap<_, _> =
            known.iter().map(|(name, default, _)| (*name, default.unwrap_or("no").to_owned())).collect();
        let mut words = Vec::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(name) = argument.strip_prefix("--") else {
                words.push(argument.clone());
                continue;
            };
            let (name, inline) =
                name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            let Some((name, default, _)) = known.iter().find(|(known, ..)| *known == name) else {
                return Err(format!("unknown option --{name}"));
            };
            let value = match (default, inline) {
                (None, None) => "yes".to_owned(),
                (None, Some(_)) => return Err(format!("--{name} takes no value")),
                (Some(_), Some(value)) => value.to_owned(),
                (Some(_), None) => rest.next().ok_or_else(|| format!("--{name} wants a value"))?.clone(),
            };
            values.insert(name, value);
        }
        Ok(Self { values, words })
    }

    /// The words that are not options.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.words
    }

    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }

    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// The text, or `None` when it is empty.
    #[must_use]
    pub fn text_if_given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    pub fn number<T: FromStr>(&self, name: &str) -> Result<T, String> {
        let text = self.text(name);
        text.parse().map_err(|_| format!("--{name} wants a number, not {text:?}"))
    }

    pub fn number_if_given<T: FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        self.text_if_given(name).map(|_| self.number(name)).transpose()
    }

    /// `300ms`, `10s`, `2m`.
    pub fn duration(&self, name: &str) -> Result<Duration, String> {
        parse_duration(self.text(name))
            .ok_or_else(|| format!("--{name} wants a duration such as 300ms, 10s or 2m"))
    }

    /// `--host` and `--port`.
    pub fn address(&self) -> Result<SocketAddr, String> {
        self.address_of("port")
    }

    /// `--host` and the port in option `port`.
    pub fn address_of(&self, port: &str) -> Result<SocketAddr, String> {
        let (host, port) = (self.text("host"), self.number::<u16>(port)?);
        let mut found = (host, port).to_socket_addrs().map_err(|error| format!("--host {host}: {error}"))?;
        found.next().ok_or_else(|| format!("--host {host} has no address"))
    }

    /// `--user` and `--password`.
    #[must_use]
    pub fn user(&self) -> Option<(String, String)> {
        self.text_if_given("user").map(|user| (user.to_owned(), self.text("password").to_owned()))
    }
}

/// The help text of a table of options.
#[must_use]
pub fn help(known: &[Known]) -> String {
    let mut text = String::new();
    for (name, default, meaning) in known {
        let (value, default) = match default {
            None => ("", String::new()),
            Some("") => (" VALUE", String::new()),
            Some(default) => (" VALUE", format!(" [{default}]")),
        };
        writeln!(text, "  {:<24} {meaning}{default}", format!("--{name}{value}"))
            .expect("a String takes every write");
    }
    text
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at_checked(digits)?;
    let scale = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * scale).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Known] =
        &[("host", Some("127.0.0.1"), "host"), ("count", Some("5"), "count"), ("json", None, "JSON")];

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), KNOWN)
    }

    #[test]
    fn values_flags_and_words() {
        let options = parse("run --count 7 --json file --host=localhost").unwrap();
        assert_eq!(options.number::<u64>("count"), Ok(7));
        assert!(options.flag("json") && !parse("").unwrap().flag("json"));
        assert_eq!(options.words(), ["run", "file"]);
        assert_eq!(options.text("host"), "localhost");
    }

    #[test]
    fn mistakes_are_named() {
        for (line, named) in [("--cuont 7", "cuont"), ("--count", "count"), ("--json=1", "json")] {
            assert!(parse(line).unwrap_err().contains(named), "{line}");
        }
        assert!(parse("--count x").unwrap().number::<u64>("count").is_err());
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("300ms"), Some(Duration::from_millis(300)));
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Some(Duration::from_secs(120)));
        assert!(["", "5", "s", "1h", "-1s"].iter().all(|text| parse_duration(text).is_none()));
    }
}
