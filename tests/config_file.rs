//! The shipped `config/gateway.toml` against the built-in defaults.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gatewayd::config::{Config, ConfigSource, Form, KEYS, Key, show_bytes, show_duration};

/// One text, whatever is asked for.
struct Text(String);

impl ConfigSource for Text {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.clone().into_bytes())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
}

fn shipped() -> String {
    std::fs::read_to_string("config/gateway.toml").unwrap()
}

/// With the `#` in front of each key removed. Prose has a space behind its `#`.
fn uncommented() -> String {
    let bare = |line: &str| match line.strip_prefix('#') {
        Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{key}\n"),
        _ => format!("{line}\n"),
    };
    shipped().lines().map(bare).collect()
}

#[test]
fn as_it_is_it_changes_nothing() {
    assert_eq!(Config::load(None, &Text(shipped())), Ok(Config::default()));
}

#[test]
fn every_key_stands_in_it_with_its_default() {
    let text = uncommented();
    assert_eq!(Config::load(None, &Text(text.clone())), Ok(Config::default()));
    let [shipped, effective] =
        [text, Config::default().show_effective()].map(|text| toml::from_str::<toml::Table>(&text).unwrap());
    assert_eq!(shipped, effective);
}

#[test]
fn its_lines_fit_a_terminal_and_each_key_is_one() {
    for line in shipped().lines() {
        assert!(line.chars().count() <= 120, "{line}");
        assert!(line.starts_with('#') || line.starts_with('[') || line.is_empty(), "{line}");
    }
}

/// Section and key of everything that a whole configuration says, whatever its tables are called.
fn keys_of(text: &str) -> BTreeSet<(String, String)> {
    let mut keys = BTreeSet::new();
    for (section, value) in toml::from_str::<toml::Table>(text).unwrap() {
        let named = ["listener", "tls", "queue", "ingest", "collection"].contains(&section.as_str());
        let table = value.as_table().unwrap();
        let tables =
            if named { table.values().map(|one| one.as_table().unwrap()).collect() } else { vec![table] };
        keys.extend(tables.into_iter().flat_map(|one| one.keys()).map(|key| (section.clone(), key.clone())));
    }
    keys
}

#[test]
fn every_key_is_described() {
    let mut expected = keys_of(&Config::default().show_effective());
    // There is no table by default.
    expected.extend(["cert", "key", "client_ca"].map(|key| ("tls".to_owned(), key.to_owned())));
    let described: BTreeSet<_> =
        KEYS.iter().map(|key| (key.section.to_owned(), key.name.to_owned())).collect();
    assert_eq!(described, expected);
    assert_eq!(described.len(), KEYS.len(), "a key is described twice");
}

/// What the parser says of a key with this value; `None` when it takes it.
fn complaint(key: &Key, value: &str) -> Option<String> {
    let table = match key.section {
        "queue" => "queue.default",
        "collection" => "collection.readings",
        "ingest" => "ingest.readings",
        "listener" => "listener.mqtt",
        plain => plain,
    };
    let text = format!("[{table}]\n{} = {value}\n", key.name);
    let errors = Config::load(None, &Text(text)).err()?;
    // Together with the defaults of others it may be wrong all the same.
    errors.iter().map(ToString::to_string).find(|error| {
        error.contains(&format!("{table}.{}: ", key.name))
            && (error.contains("is out of range") || error.contains("is not \""))
    })
}

#[test]
fn the_bounds_that_are_described_are_those_that_hold() {
    let size = |bytes: u64| format!("\"{}\"", show_bytes(bytes));
    let time = |ms: u64| format!("\"{}\"", show_duration(Duration::from_millis(ms)));
    for key in KEYS {
        let (inside, outside): (Vec<String>, Vec<String>) = match key.form {
            Form::Count(min, max) => (
                vec![min.to_string(), max.to_string()],
                vec![(max + 1).to_string(), min.wrapping_sub(1).to_string()],
            ),
            Form::Size(min, max) => {
                (vec![size(min), size(max)], vec![size(max + 1), size(min.wrapping_sub(1))])
            }
            Form::Time(min, max) => {
                (vec![time(min), time(max)], vec![time(max + 1), time(min.wrapping_sub(1))])
            }
            Form::Words(words) => {
                (words.iter().map(|word| format!("\"{word}\"")).collect(), vec!["\"word\"".to_owned()])
            }
            Form::Flag | Form::Text(_) | Form::List(_) | Form::Table => continue,
        };
        for value in &inside {
            assert_eq!(complaint(key, value), None, "{key:?}");
        }
        let below_zero = |value: &&String| !value.contains(&u64::MAX.to_string());
        for value in outside.iter().filter(below_zero) {
            assert!(complaint(key, value).is_some(), "{key:?} takes {value}");
        }
    }
}

/// Damage of any kind is told with a place in the file, and never a panic.
#[test]
fn damage_is_told_with_its_place() {
    let whole = uncommented();
    let words = [
        "[", "]", "{", "}", "=", "\"", "'''", "\\", ".", ",", "#", "\n", "-", "\u{e4}", "1e9", "true", "a.b",
    ];
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut wrong = 0;
    for _ in 0..2000 {
        let mut text: Vec<char> = whole.chars().collect();
        for _ in 0..=random(3) {
            let at = random(text.len());
            let end = (at + random(30)).min(text.len());
            match random(3) {
                0 => drop(text.drain(at..end)),
                1 => drop(text.splice(at..at, words[random(words.len())].chars())),
                _ => text.extend_from_within(at..end),
            }
        }
        let text: String = text.into_iter().collect();
        let lines = text.lines().count() + 1;
        if let Err(errors) = Config::load(None, &Text(text.clone())) {
            wrong += 1;
            assert!(!errors.is_empty());
            for error in errors {
                assert!((1..=lines).contains(&error.place.line) && error.place.column > 0, "{error}\n{text}");
            }
        }
    }
    assert!(wrong > 1000, "{wrong}");
}

#[test]
fn keys_of_any_depth_are_survived() {
    let dots = "a.".repeat(200_000) + "a";
    for text in [
        format!("{dots} = 1"),
        format!("[{dots}]"),
        format!("x = {{ {dots} = 1 }}"),
        "x = ".to_owned() + &"[".repeat(200_000),
    ] {
        assert!(Config::load(None, &Text(text)).is_err());
    }
}
