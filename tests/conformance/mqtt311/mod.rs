//! MQTT 3.1.1, statement by statement, as conversations with the gateway (notation: `support/transcript.rs`).

mod connect;
mod cves;
mod format;
mod limits;
mod operation;
mod publish;
mod subscribe;
mod traps;

use std::collections::BTreeSet;

const STATEMENTS: &str = include_str!("../mqtt311_statements.txt");
const EXEMPT: &str = include_str!("../exempt.txt");
const TESTS: [&str; 6] = [
    include_str!("connect.rs"),
    include_str!("format.rs"),
    include_str!("limits.rs"),
    include_str!("operation.rs"),
    include_str!("publish.rs"),
    include_str!("subscribe.rs"),
];

/// The first words of the lines that are no remarks, and what follows them.
fn entries(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_once(' ').unwrap_or_else(|| panic!("nothing is said about {line}")))
}

/// `m3_1_2_24_closes` tests `MQTT-3.1.2-24`.
fn tested() -> BTreeSet<String> {
    let functions = TESTS.iter().flat_map(|text| text.split("#[test]\nfn m").skip(1));
    let numbers = functions.map(|text| text.split('_').take_while(|part| part.parse::<u32>().is_ok()));
    numbers
        .map(|parts| {
            let parts: Vec<_> = parts.collect();
            let (last, section) = parts.split_last().expect("a number follows m");
            format!("MQTT-{}-{last}", section.join("."))
        })
        .collect()
}

#[test]
fn every_statement_has_a_test_or_a_reason() {
    let tested = tested();
    let exempt: BTreeSet<_> = entries(EXEMPT).map(|(id, _)| id).collect();
    let known: BTreeSet<_> = entries(STATEMENTS).map(|(id, _)| id).collect();
    assert_eq!(known.len(), entries(STATEMENTS).count(), "a statement is listed twice");
    assert_eq!(known.len(), 141, "the standard has 141 statements");
    let missing: Vec<_> =
        known.iter().filter(|id| !tested.contains(**id) && !exempt.contains(**id)).collect();
    assert!(missing.is_empty(), "neither tested nor exempt: {missing:?}");
    let unknown: Vec<_> = tested.iter().map(String::as_str).chain(exempt.iter().copied()).collect();
    let unknown: Vec<_> = unknown.into_iter().filter(|id| !known.contains(id)).collect();
    assert!(unknown.is_empty(), "not in the standard: {unknown:?}");
    let both: Vec<_> = exempt.iter().filter(|id| tested.contains(**id)).collect();
    assert!(both.is_empty(), "tested and exempt: {both:?}");
}
