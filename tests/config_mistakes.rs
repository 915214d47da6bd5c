//! What newcomers write in a configuration file and what they are told: `tests/golden/config_mistakes.txt`.
//!
//! A case is `== TITLE`, the text of `/etc/gateway.toml` (lines after `>> NAME` are the drop-in of that name), `--`,
//! and the expected lines. `UPDATE_GOLDEN=1` writes what is said now; read the difference before it is committed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use gatewayd::config::{Config, ConfigSource};

const GOLDEN: &str = "tests/golden/config_mistakes.txt";

struct Memory(BTreeMap<PathBuf, String>);

impl ConfigSource for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.get(path).ok_or(io::ErrorKind::NotFound)?.clone().into_bytes())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.0.keys().filter(|path| path.parent() == Some(folder)).cloned().collect())
    }
}

/// What is said about the files of a case, a line each.
fn said(written: &str) -> String {
    let mut files = BTreeMap::new();
    let mut name = PathBuf::from("/etc/gateway.toml");
    for line in written.lines() {
        if let Some(drop_in) = line.strip_prefix(">> ") {
            name = Path::new("/etc/gateway.d").join(drop_in);
            continue;
        }
        let text: &mut String = files.entry(name.clone()).or_default();
        text.push_str(line);
        text.push('\n');
    }
    match Config::load(None, &Memory(files)) {
        Ok(_) => "nothing is wrong\n".to_owned(),
        Err(errors) => errors.iter().fold(String::new(), |mut text, error| {
            writeln!(text, "{error}").unwrap();
            text
        }),
    }
}

#[test]
fn each_mistake_is_told_as_recorded() {
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    let (head, cases) = golden.split_once("== ").unwrap();
    let mut now = head.to_owned();
    let mut count = 0;
    for case in cases.split("\n== ") {
        let (title, case) = case.split_once('\n').unwrap();
        let (written, _) = case.split_once("--\n").unwrap_or((case, ""));
        let said = said(written);
        assert_ne!(said, "nothing is wrong\n", "{title}");
        write!(now, "== {title}\n{written}--\n{said}\n").unwrap();
        count += 1;
    }
    let now = now.trim_end().to_owned() + "\n";
    assert!(count >= 40, "{count} cases");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, now).unwrap();
    } else {
        assert_eq!(now, golden, "run with UPDATE_GOLDEN=1 and read the difference");
    }
}
