//! MQTT 5, statement by statement, as conversations with the gateway (notation: `support/transcript.rs`).
//!
//! A file in `mqtt5/` holds conversations; each begins with a line `== MQTT-3.1.2-4 ...: text` that names the statements
//! which it tests. Every statement of the standard stands in such a line, or in `mqtt5/exempt.txt` with a reason.
//! `WRITE_CONVERSATIONS=1` writes the gateway's answers into the files, to be read over.

mod large;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::transcript::{check, play};

/// Sections with normative statements, and the numbers that these have there.
const STATEMENTS: [(&str, &str); 56] = [
    ("1.5.4", "1-3"),
    ("1.5.5", "1"),
    ("1.5.7", "1"),
    ("2.1.3", "1"),
    ("2.2.1", "2-6"),
    ("2.2.2", "1"),
    ("3.1.0", "1-2"),
    ("3.1.2", "1-30"),
    ("3.1.3", "1-12"),
    ("3.1.4", "1-6"),
    ("3.2.0", "1-2"),
    ("3.2.2", "1-22"),
    ("3.3.1", "1-13"),
    ("3.3.2", "1-20"),
    ("3.3.4", "1-10"),
    ("3.4.2", "1-3"),
    ("3.5.2", "1-3"),
    ("3.6.1", "1"),
    ("3.6.2", "1-3"),
    ("3.7.2", "1-3"),
    ("3.8.1", "1"),
    ("3.8.3", "1-5"),
    ("3.8.4", "1-8"),
    ("3.9.2", "1-2"),
    ("3.9.3", "1-2"),
    ("3.10.1", "1"),
    ("3.10.3", "1-2"),
    ("3.10.4", "1-6"),
    ("3.11.2", "1-2"),
    ("3.11.3", "1-2"),
    ("3.12.4", "1"),
    ("3.14.0", "1"),
    ("3.14.1", "1"),
    ("3.14.2", "1-4"),
    ("3.14.4", "1-3"),
    ("3.15.1", "1"),
    ("3.15.2", "1-3"),
    ("4.1.0", "1-2"),
    ("4.2", "1"),
    ("4.3.1", "1"),
    ("4.3.2", "1-5"),
    ("4.3.3", "1-13"),
    ("4.4.0", "1-2"),
    ("4.5.0", "1-2"),
    ("4.6.0", "1-6"),
    ("4.7.0", "1"),
    ("4.7.1", "1-2"),
    ("4.7.2", "1"),
    ("4.7.3", "1-4"),
    ("4.8.2", "1-6"),
    ("4.9.0", "1-3"),
    ("4.12.0", "1-7"),
    ("4.12.1", "1-2"),
    ("4.13.1", "1"),
    ("4.13.2", "1"),
    ("6.0.0", "1-4"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/mqtt5")
}

/// The conversations of a file: what stands before the first, then each heading and its script.
fn conversations(text: &str) -> (&str, Vec<(&str, &str)>) {
    let mut parts = text.split("\n== ");
    let head = parts.next().expect("a text has a first part");
    (head, parts.map(|part| part.split_once('\n').expect("a heading ends")).collect())
}

fn files() -> Vec<(PathBuf, String)> {
    let names = ["connect.txt", "publish.txt", "subscribe.txt", "traps.txt"];
    let read = |name| {
        let path = folder().join(name);
        let text = fs::read_to_string(&path).expect("the file is there");
        (path, text)
    };
    names.into_iter().map(read).collect()
}

fn known() -> BTreeSet<String> {
    let all = STATEMENTS.iter();
    all.flat_map(|(section, numbers)| {
        let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
        let [first, last] = [first, last].map(|number| number.parse::<u32>().expect("a number"));
        (first..=last).map(move |number| format!("MQTT-{section}-{number}"))
    })
    .collect()
}

/// Plays the conversations of one file.
fn play_file(name: &str) {
    let (path, text) = files().into_iter().find(|(path, _)| path.ends_with(name)).expect("a known file");
    let (head, conversations) = conversations(&text);
    if std::env::var_os("WRITE_CONVERSATIONS").is_some() {
        let mut out = head.to_owned();
        for (heading, script) in conversations {
            write!(out, "\n== {heading}\n{}", play(script)).expect("a string takes all");
        }
        fs::write(path, out).expect("the file can be written");
        return;
    }
    for (_, script) in conversations {
        check(script);
    }
}

#[test]
fn sections_1_to_3_2_and_3_14_go_as_written() {
    play_file("connect.txt");
}

#[test]
fn sections_3_3_to_3_7_and_4_3_to_4_6_go_as_written() {
    play_file("publish.txt");
}

#[test]
fn sections_3_8_to_3_12_4_7_and_4_8_go_as_written() {
    play_file("subscribe.txt");
}

#[test]
fn traps_go_as_written() {
    play_file("traps.txt");
}

#[test]
fn every_statement_has_a_conversation_or_a_reason() {
    let known = known();
    assert_eq!(known.len(), 251, "the standard has 251 statements");
    let mut tested = BTreeSet::new();
    for (_, text) in files() {
        for (heading, _) in conversations(&text).1 {
            let words = heading.split(' ').map(|word| word.trim_end_matches(':'));
            tested.extend(words.take_while(|word| word.starts_with("MQTT-")).map(str::to_owned));
        }
    }
    let exempt = include_str!("mqtt5/exempt.txt");
    let lines = exempt.lines().filter(|line| !line.starts_with('#'));
    let exempt: BTreeSet<_> = lines
        .map(|line| line.split_once(' ').unwrap_or_else(|| panic!("no reason for {line}")).0.to_owned())
        .collect();
    let missing: Vec<_> = known.iter().filter(|id| !tested.contains(*id) && !exempt.contains(*id)).collect();
    assert!(missing.is_empty(), "neither tested nor exempt: {missing:?}");
    let unknown: Vec<_> = tested.union(&exempt).filter(|id| !known.contains(*id)).collect();
    assert!(unknown.is_empty(), "not in the standard: {unknown:?}");
    let both: Vec<_> = tested.intersection(&exempt).collect();
    assert!(both.is_empty(), "tested and exempt: {both:?}");
}

/// The page lists what broke other brokers, with the tests for it: a test that was renamed must not leave a hole there.
#[test]
fn every_trap_of_the_page_names_tests_that_exist() {
    let page = include_str!("../../docs/conformance-mqtt5.md");
    let (_, traps) = page.split_once("\n## Traps").expect("the page has a part about traps");
    let mut known: BTreeSet<String> = files()
        .iter()
        .flat_map(|(_, text)| conversations(text).1)
        .map(|(heading, _)| heading.to_owned())
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    functions(&folder.join("tests"), &mut known);
    functions(&folder.join("src"), &mut known);
    let is_there = |name: &str| {
        known.contains(name)
            || known.iter().any(|heading| heading.starts_with(name) && name.contains(' '))
            || known.iter().any(|heading| {
                heading.split([' ', ':']).any(|word| word == name && name.starts_with("MQTT-"))
            })
    };
    let rows = traps.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    let mut count = 0;
    for row in rows.filter(|row| !row.ends_with("| tests |")) {
        let tests = row.trim_end_matches('|').rsplit('|').next().expect("a row has cells");
        let names: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test stands for {row}");
        for name in names {
            assert!(is_there(name), "no such test: {name}");
        }
        count += 1;
    }
    assert!(count > 60, "{count} rows");
}

/// Names of all functions below a folder that stand at the head of a line, which tests do.
fn functions(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            functions(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("it is text");
            let heads =
                text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.strip_suffix("() {"));
            names.extend(heads.map(str::to_owned));
        }
    }
}
