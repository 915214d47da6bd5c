//! `/metrics`: Prometheus' checker takes it, its names are those of the documented table, its figures move.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use gatewayd::http::metrics::FAMILIES;

use crate::daemon::{Daemon, free_address};
use crate::tool::{self, subscribe};
use crate::{get, publish};

/// The value of a sample.
fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in {text}")).parse().unwrap()
}

fn names(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect()
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let daemon = Daemon::started("metrics-promtool", "");
    let _client = subscribe(&daemon, &["-i", "odd\"name\\", "-c", "-q", "1", "-t", "a"]);
    publish(&daemon, "topic=sensors/x", "1");
    let answer = get(&daemon, "/metrics?per=queue");
    assert_eq!(answer.content_type, "text/plain; version=0.0.4; charset=utf-8");
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is there: ./scripts/setup installs it");
    promtool.stdin.take().unwrap().write_all(answer.body.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn names_are_those_of_the_documented_table() {
    let document = fs::read_to_string("docs/metrics.md").unwrap();
    let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = FAMILIES
        .iter()
        .map(|family| {
            let labels: Vec<String> = family.2.iter().map(|label| format!("`{label}`")).collect();
            format!("| `{}` | {} | {} | {} |", family.0, family.1.name(), labels.join(", "), family.3)
        })
        .collect();
    assert_eq!(rows, expected, "docs/metrics.md must have these rows:\n{}", expected.join("\n"));

    let mut daemon = Daemon::new("metrics-names", "");
    let [certificate, key] =
        ["own.pem", "own.key"].map(|file| daemon.folder().join(file).display().to_string());
    let request =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=g"];
    let made = Command::new("openssl").args(request).args(["-keyout", &key, "-out", &certificate]).output();
    assert!(made.expect("openssl is installed").status.success());
    daemon.configure(&format!(
        "[listener.mqtts]\nkind = \"mqtt\"\nbind = \"{}\"\ntls = \"own\"\n[tls.own]\ncert = \"{certificate}\"\nkey = \"{key}\"\n",
        free_address()
    ));
    daemon.start_listening();
    let _client = subscribe(&daemon, &["-i", "c", "-c", "-q", "1", "-t", "a"]);
    // So that every family has a sample.
    tool::publish(&daemon, &["-t", "b", "-m", "x"]);
    let text = get(&daemon, "/metrics?per=queue").body;
    let all: BTreeSet<&str> = FAMILIES.iter().map(|family| family.0).collect();
    assert_eq!(names(&text), all);
    let without_queues = get(&daemon, "/metrics").body;
    let common = all.into_iter().filter(|name| !name.starts_with("gatewayd_one_queue_")).collect();
    assert_eq!(names(&without_queues), common);
}

#[test]
fn figures_move_with_what_happens() {
    let mut daemon = Daemon::started("metrics-figures", "[queue.session]\nmessages_max = 2\n");
    subscribe(&daemon, &["-i", "away", "-c", "-q", "1", "-t", "log/#", "-E"]);
    for _ in 0..5 {
        publish(&daemon, "topic=log/a", "12345");
    }
    tool::publish(&daemon, &["-t", "sensors/t", "-m", "{\"value\": 1}", "-q", "1"]);
    let text = get(&daemon, "/metrics").body;
    for (sample, expected) in [
        ("gatewayd_messages_received_total{protocol=\"http\"}", 5.0),
        ("gatewayd_messages_received_total{protocol=\"mqtt\"}", 1.0),
        ("gatewayd_messages_dropped_total{class=\"session\",reason=\"queue_bound\"}", 3.0),
        ("gatewayd_queue_ready_messages{class=\"session\"}", 2.0),
        ("gatewayd_queue_fill_ratio_max{class=\"session\"}", 1.0),
        ("gatewayd_sessions", 1.0),
        ("gatewayd_sessions_connected", 0.0),
        ("gatewayd_collection_unflushed_readings{collection=\"readings\"}", 1.0),
        ("gatewayd_flash_working", 1.0),
        ("gatewayd_healthy", 1.0),
    ] {
        let shown = value(&text, sample);
        assert!((shown - expected).abs() < 1e-9, "{sample}: {shown}");
    }
    assert!(value(&text, "gatewayd_flash_batches_total") >= 5.0);
    assert!(value(&text, "gatewayd_flash_written_today_bytes") > 0.0);
    assert!(value(&text, "process_resident_memory_bytes") > 1e6);
    daemon.kill_and_restart();
    let text = get(&daemon, "/metrics").body;
    for (sample, expected) in [
        ("gatewayd_recovered_items{kind=\"sessions\"}", 1.0),
        // Two of the session, and the reading, which is not stored yet.
        ("gatewayd_recovered_items{kind=\"messages\"}", 3.0),
        ("gatewayd_messages_received_total{protocol=\"http\"}", 0.0),
    ] {
        let shown = value(&text, sample);
        assert!((shown - expected).abs() < 1e-9, "{sample}: {shown}");
    }
}
