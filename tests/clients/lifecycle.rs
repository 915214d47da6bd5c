//! Start, stop and the words in between: log lines, check-config, status, SIGTERM.

use std::fs;
use std::process::Command;

use gateway_bench::status;

use crate::daemon::Daemon;
use crate::tool::{Tool, publish, resume, subscribe};

#[test]
fn sigterm_closes_cleanly_and_the_next_start_knows() {
    let mut daemon = Daemon::started("sigterm", "");
    subscribe(&daemon, &["-i", "offline", "-c", "-t", "jobs", "-q", "1", "-W", "1"]).finish();
    publish(&daemon, &["-t", "jobs", "-m", "one", "-q", "1"]);
    let connected = subscribe(&daemon, &["-t", "nothing"]);
    daemon.terminate();
    drop(connected);
    daemon.start_listening();
    let line = daemon.wait_for_log("last stop: clean");
    assert!(line.contains("recovered 1 sessions, 1 queued messages, 0 retained in "), "{line}");
    assert_eq!(resume(&daemon, &["-i", "offline", "-t", "jobs", "-C", "1"]), ["one"]);
}

#[test]
fn each_listener_and_the_recovery_have_one_log_line() {
    let mut daemon = Daemon::started("log-lines", "");
    let (mqtt, http) = (daemon.mqtt().to_string(), daemon.http().to_string());
    let amqp = daemon.amqp().to_string();
    // A socket takes connections before its line is written.
    for address in [&mqtt, &amqp, &http] {
        daemon.wait_for_log(address);
    }
    let count = |text: &str| daemon.log().lines().filter(|line| line.contains(text)).count();
    assert_eq!((count(&mqtt), count(&amqp), count(&http)), (1, 1, 1), "{}", daemon.log());
    publish(&daemon, &["-t", "kept", "-m", "x", "-r", "-q", "1"]);
    daemon.kill_and_restart();
    let line = daemon.wait_for_log("last stop: not clean");
    assert!(line.contains("recovered 0 sessions, 0 queued messages, 1 retained in "), "{line}");
    let milliseconds = line.split("retained in ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(milliseconds.is_some_and(|number| number.parse::<u64>().is_ok()), "{line}");
}

#[test]
fn check_config_names_file_line_column_and_the_nearest_key() {
    let daemon = Daemon::new("check-config", "[limits]\ninflight_max = 10\n");
    let good = daemon.command(&["check-config"]);
    assert_eq!(good.status.code(), Some(0), "{good:?}");

    daemon.configure("[limits]\ninflight_mux = 10\n");
    let bad = daemon.command(&["check-config"]);
    assert_eq!(bad.status.code(), Some(78), "{bad:?}");
    let words = String::from_utf8_lossy(&bad.stderr);
    let text = fs::read_to_string(daemon.folder().join("gateway.toml")).unwrap();
    let line = text.lines().position(|line| line.starts_with("inflight_mux")).unwrap() + 1;
    assert!(words.contains(&format!("gateway.toml:{line}:1")), "{words}");
    assert!(words.contains("limits.inflight_mux") && words.contains("inflight_max"), "{words}");

    let run = daemon.command(&["run"]);
    assert_eq!(run.status.code(), Some(78), "a bad configuration does not start: {run:?}");
}

#[test]
fn status_tells_the_counters_and_whether_there_is_anybody() {
    let mut daemon = Daemon::started("status", "");
    let away = subscribe(&daemon, &["-i", "away", "-c", "-t", "jobs", "-q", "1", "-W", "1"]);
    away.finish();
    publish(&daemon, &["-t", "jobs", "-m", "one", "-q", "1"]);
    let json = daemon.command(&["status", "--json"]);
    assert_eq!(json.status.code(), Some(0), "{json:?}");
    let document: serde_json::Value =
        serde_json::from_slice(&json.stdout).expect("status --json prints JSON");
    assert!(document.is_object(), "{document}");
    assert_eq!(daemon.command(&["status", "--check"]).status.code(), Some(0));

    let counters = status::fetch(&format!("http://{}/api/v1/status", daemon.http())).unwrap();
    assert!(counters.syncs >= 2 && counters.bytes_written >= 4096, "{counters:?}");

    daemon.terminate();
    assert_eq!(daemon.command(&["status"]).status.code(), Some(3), "nobody there");
    assert_eq!(daemon.command(&["status", "--check"]).status.code(), Some(3));
}

#[test]
fn usage_errors_end_with_2_and_the_version_is_told() {
    let daemon = Daemon::new("usage", "");
    assert_eq!(daemon.command(&["no-such-verb"]).status.code(), Some(2));
    let version = Command::new(env!("CARGO_BIN_EXE_gatewayd")).arg("--version").output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&version.stdout).trim(),
        concat!("gatewayd ", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn without_arguments_everything_starts_on_loopback() {
    // Its own network and mounts, so that the default ports and folders are free whoever runs the tests.
    let daemon = Daemon::new("no-configuration", "");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/five_minutes.sh");
    let arguments = ["-rnm", "bash", script, env!("CARGO_BIN_EXE_gatewayd")];
    let output = Tool::start(&daemon, "unshare", &arguments).succeed();
    assert!(output.contains("home/kitchen/temp 24.1\n"), "{output}");
    assert!(output.ends_with("stopped with 0\n"), "{output}");
}
