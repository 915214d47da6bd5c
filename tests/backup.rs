//! Backups of the real program, and what is made of them: taken under load and of a stopped gateway, restored, refused when
//! damaged, cut off by kill -9; and the verbs that look after the files: verify, repair, compact.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "these tests drive processes in real time")]
#![expect(clippy::print_stderr, reason = "the daemon's log is part of a failure message")]

#[path = "backup/cut.rs"]
mod cut;
#[path = "support/daemon.rs"]
#[expect(dead_code, reason = "each test binary uses its part")]
mod daemon;
#[path = "backup/files.rs"]
mod files;
#[path = "backup/restored.rs"]
mod restored;
#[path = "support/tool.rs"]
#[expect(dead_code, reason = "each test binary uses its part")]
mod tool;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use daemon::Daemon;
use tool::{resume, subscribe};

/// Bounds small enough that a state folder is made quickly.
const SMALL: &str = "gateway_bytes_max = \"17MiB\"\nbacklog_bytes_max = \"16MiB\"\nreserve_free = \"0B\"\n[limits]\nretained_bytes_max = \"1MiB\"\n";

fn config_of(daemon: &Daemon) -> PathBuf {
    daemon.folder().join("gateway.toml")
}

fn state_of(daemon: &Daemon) -> PathBuf {
    daemon.folder().join("state")
}

/// Exit status, standard output, standard error.
fn run(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = daemon.command(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The same, which must end well.
fn done(daemon: &Daemon, arguments: &[&str]) -> String {
    let (code, out, err) = run(daemon, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {out}{err}");
    out + &err
}

/// Publishes with QoS 1 by HTTP: on flash when this returns.
fn publish(daemon: &Daemon, topic: &str, payload: &str) {
    let url = format!("http://{}/api/v1/publish?topic={topic}", daemon.http());
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--max-time", "30", "--data-binary", payload, &url])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A session that waits for `work/#`.
fn wait_for_work(daemon: &Daemon) {
    subscribe(daemon, &["-i", "worker", "-c", "-q", "1", "-t", "work/#", "-E"]).succeed();
}

/// What waits for that session, up to the message `end`, which this publishes.
fn work(daemon: &Daemon) -> Vec<String> {
    publish(daemon, "work/end", "end");
    let listed: serde_json::Value = serde_json::from_str(&done(daemon, &["queue", "ls", "--json"])).unwrap();
    let queue = listed.as_array().unwrap().iter().find(|queue| queue["name"] == "worker").unwrap();
    let count = queue["ready"].to_string();
    resume(daemon, &["-i", "worker", "-t", "work/#", "-C", &count])
}

fn readings(daemon: &Daemon) -> Vec<String> {
    let out = done(daemon, &["query", "readings", "--format", "jsonl"]);
    out.lines()
        .map(|line| line.split_once(", \"_topic\"").map_or(line, |(value, _)| value).to_owned())
        .collect()
}

/// Content of each file of a folder that a stopped gateway does not write to by being looked at.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = files.filter(|entry| entry.file_type().unwrap().is_file());
    let named =
        files.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    named.filter(|(name, _)| name != "gateway.lock").collect()
}
