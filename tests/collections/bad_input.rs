//! What no sensor should send, and too much of it.

use std::process::Command;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::plant::{Publisher, peak_bytes, rows, run};

#[test]
fn bad_input_is_kept_counted_and_shown() {
    let daemon = Daemon::started("collections-bad", "");
    let mut publisher = Publisher::new(&daemon);
    let nested = "[".repeat(101) + &"]".repeat(101);
    let large = format!("{{\"text\": \"{}\"}}", "x".repeat(1 << 20));
    let inputs: [&[u8]; 9] = [
        nested.as_bytes(),
        large.as_bytes(),
        b"{\"v\": NaN}",
        b"{\"v\": 1e999, \"w\": 123456789012345678901234567890}",
        b"{\"v\": 1, \"v\": 2}",
        b"{\"v\": \"\xff\"}",
        b"\x00\xff\x01",
        b"",
        b"on",
    ];
    for input in inputs {
        publisher.publish("sensors/bad", input);
    }
    // More than a pipe holds, so it is read as it comes.
    let config = daemon.folder().join("gateway.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewayd"));
    let output = command.args(["query", "readings", "--config"]).arg(config).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.lines().count(), inputs.len(), "{}", daemon.log());
    assert!(lines.contains("{\"v\": 1, \"v\": 2, \"_topic\""), "a document comes back as it came");
    assert!(lines.contains("{\"payload\": \"AP8B\", \"_topic\": \"sensors/bad\""));
    assert_eq!(lines.matches("\"_error\"").count(), 3);
    let shown = run(&daemon, &["storage", "usage", "--collection", "readings", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        shown["errors"]["counts"],
        json!({"not_json": 1, "not_utf8": 1, "too_deep": 1, "too_large": 1})
    );
    assert_eq!(shown["errors"]["examples"].as_array().unwrap().len(), 4);
}

#[test]
fn many_topics_are_bounded_by_series_max() {
    let config = "[collection.readings]\nseries_max = 50\n";
    let mut daemon = Daemon::started("collections-topics", config);
    let mut publisher = Publisher::new(&daemon);
    for n in 0..300 {
        publisher.publish(&format!("sensors/{n}"), b"{\"value\": 1}");
    }
    daemon.kill_and_restart();
    assert_eq!(rows(&daemon, &["query", "readings"]).len(), 300);
    daemon.terminate();
    daemon.start_listening();
    let found = rows(&daemon, &["query", "readings", "--topic", "sensors/299"]);
    assert_eq!(found, [json!({"value": 1, "_topic": "sensors/299"})]);
    let usage = run(&daemon, &["storage", "usage"]);
    assert!(usage.contains("readings    51      300 "), "{usage}");
}

#[test]
fn a_hundred_thousand_topics_are_kept_in_little_memory() {
    const TOPICS: usize = 100_000;
    let daemon = Daemon::started("collections-flood", "");
    let mut publisher = Publisher::new(&daemon);
    publisher.publish("sensors/first", b"1");
    run(&daemon, &["query", "readings"]);
    let before = peak_bytes(daemon.pid());
    for first in (0..TOPICS).step_by(2000) {
        let message =
            |n: usize| (format!("sensors/plant-{n}/temperature"), format!("{{\"n\": {n}}}").into_bytes());
        publisher.publish_all((first..first + 2000).map(message));
    }
    // Nothing that was acknowledged is lost, and each reading keeps its topic.
    let counted = rows(&daemon, &["query", "readings", "--agg", "count,min(n),max(n)"]);
    assert_eq!(counted, [json!({"count": TOPICS + 1, "min(n)": 0, "max(n)": TOPICS - 1})]);
    let one = rows(&daemon, &["query", "readings", "--topic", "sensors/plant-98765/#"]);
    assert_eq!(one, [json!({"n": 98765, "_topic": "sensors/plant-98765/temperature"})]);
    let grown = peak_bytes(daemon.pid()) - before;
    assert!(grown < 64 << 20, "{} KiB more", grown >> 10);
    let usage = run(&daemon, &["storage", "usage", "--json"]);
    let usage: Value = serde_json::from_str(&usage).unwrap();
    assert_eq!((&usage[0]["series_count"], &usage[0]["shared"]), (&json!(2001), &json!(TOPICS + 1 - 2000)));
    eprintln!("{} KiB more for {TOPICS} topics", grown >> 10);
}
