//! AMQP 0-9-1 by stock clients against the real binary: pika's scripts are in `tests/amqp/`, MQTT comes from mosquitto's
//! clients. Each script checks what it sees and says `ok`.
//!
//! `./scripts/test` installs what they need. Each test has its own daemon, state folder and ports.
#![expect(clippy::disallowed_methods, reason = "these tests drive processes in real time")]
#![expect(clippy::print_stderr, reason = "the daemon's log is part of a failure message")]
#![allow(dead_code, reason = "the support is shared with tests that use other parts of it")]

#[path = "support/daemon.rs"]
mod daemon;
#[path = "support/tool.rs"]
mod tool;

use std::path::Path;
use std::time::Duration;

use daemon::Daemon;
use tool::{Tool, messages, publish, subscribe};

/// Runs one step of a script in `tests/amqp` to its successful end.
fn step(daemon: &Daemon, script: &str, arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join(".venv/bin/python");
    assert!(python.exists(), "{} is missing: ./scripts/test makes it", python.display());
    let (host, port) = (daemon.amqp().ip().to_string(), daemon.amqp().port().to_string());
    let script = root.join("tests/amqp").join(script);
    let mut all = vec!["-u", script.to_str().expect("the project's path is text"), &host, &port];
    all.extend_from_slice(arguments);
    let output = Tool::start(daemon, python.to_str().expect("the project's path is text"), &all).succeed();
    assert!(output.ends_with("ok\n"), "{output}");
    output
}

#[test]
fn exchanges_confirms_and_competing_consumers() {
    let daemon = Daemon::started("amqp-article", "");
    for name in ["exchanges", "confirms", "competing"] {
        step(&daemon, "article.py", &[name]);
    }
}

#[test]
fn what_was_confirmed_survives_kill_9() {
    let mut daemon = Daemon::started("amqp-durable", "");
    step(&daemon, "article.py", &["publish-durable"]);
    daemon.kill_and_restart();
    step(&daemon, "article.py", &["check-durable"]);
    // What was acknowledged, and flushed, does not come back.
    std::thread::sleep(Duration::from_secs(1));
    daemon.kill_and_restart();
    step(&daemon, "lesson.py", &["before-restart"]);
    daemon.kill_and_restart();
    step(&daemon, "lesson.py", &["after-restart"]);
}

#[test]
fn the_chain_of_custody_holds_link_by_link() {
    let daemon = Daemon::started("amqp-lesson", "");
    let steps = ["consumer-acknowledgements", "rejecting", "prefetch", "publisher-confirms", "idempotent"];
    for name in steps {
        step(&daemon, "lesson.py", &[name]);
    }
}

#[test]
fn extensions_do_what_clients_expect_and_mistakes_are_refused_by_number() {
    let daemon = Daemon::started("amqp-features", "");
    for name in [
        "headers",
        "topology",
        "dead-letters",
        "times",
        "consumers",
        "transactions",
        "requests",
        "sizes",
        "mistakes",
    ] {
        step(&daemon, "features.py", &[name]);
    }
}

#[test]
fn a_sensor_s_reading_reaches_a_worker_s_queue() {
    let daemon = Daemon::started("amqp-bridge", "");
    step(&daemon, "article.py", &["bind-bridge"]);
    publish(&daemon, &["-q", "1", "-t", "sensors/boiler/temp", "-m", "91.5"]);
    publish(&daemon, &["-q", "1", "-t", "sensors/boiler/pressure", "-m", "2.1"]);
    let taken = step(&daemon, "article.py", &["consume-bridge", "91.5"]);
    assert_eq!(taken, "91.5\nok\n");
}

#[test]
fn a_worker_s_command_reaches_a_device_once() {
    let daemon = Daemon::started("amqp-command", "");
    let device = subscribe(&daemon, &["-q", "1", "-t", "devices/+/cmd", "-v", "-C", "2"]);
    step(&daemon, "article.py", &["publish-bridge", "devices.valve7.cmd", "close"]);
    publish(&daemon, &["-q", "1", "-t", "devices/valve7/cmd", "-m", "end"]);
    let output = device.succeed();
    assert_eq!(messages(&output), ["devices/valve7/cmd close", "devices/valve7/cmd end"]);
}

#[test]
fn readings_wait_on_flash_for_a_worker_that_is_away() {
    let mut daemon = Daemon::started("amqp-offline", "");
    step(&daemon, "article.py", &["bind-bridge"]);
    for reading in ["92.8", "95.1"] {
        publish(&daemon, &["-q", "1", "-t", "sensors/boiler/temp", "-m", reading]);
    }
    daemon.kill_and_restart();
    let taken = step(&daemon, "article.py", &["consume-bridge", "92.8", "95.1"]);
    assert_eq!(taken, "92.8\n95.1\nok\n");
}

#[test]
fn a_dot_inside_a_level_survives_the_way_to_a_queue_and_back() {
    let daemon = Daemon::started("amqp-dots", "");
    let device = subscribe(&daemon, &["-q", "1", "-t", "v1.2/+", "-v", "-C", "1"]);
    // The key of MQTT's v1.2/state is v1/2.state.
    step(&daemon, "article.py", &["publish-bridge", "v1/2.state", "on"]);
    let output = device.succeed();
    assert_eq!(messages(&output), ["v1.2/state on"]);
}
