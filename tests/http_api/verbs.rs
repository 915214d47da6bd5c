//! The verbs that ask the running gateway: status, queues, clients. What each prints, and its exit status.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::publish;
use crate::tool::subscribe;

/// Exit status, standard output and standard error of a verb.
fn run(daemon: &Daemon, arguments: &[&str]) -> (i32, String, String) {
    let output = daemon.command(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn status_is_one_screen() {
    let mut daemon = Daemon::started("verb-status", "[queue.session]\nmessages_max = 2\n");
    subscribe(&daemon, &["-i", "away", "-c", "-q", "1", "-t", "a", "-E"]);
    for _ in 0..4 {
        publish(&daemon, "topic=a", "x");
    }
    let (code, screen, err) = run(&daemon, &["status"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        screen.lines().count() <= 24 && screen.lines().all(|line| line.chars().count() <= 120),
        "{screen}"
    );
    for expected in [
        "   healthy   up ",
        "! session away is 100 % full, then the oldest are dropped\n",
        "last stop: none, the store is new",
        &format!("mqtt {}", daemon.mqtt()),
        "4 in (mqtt 0, amqp 0, http 4)",
        "lost         2 messages; 2 queue bound\n",
        "readings  0         0B     0       0          -\n",
    ] {
        assert!(screen.contains(expected), "{expected:?} is not in\n{screen}");
    }
    let (code, text, _) = run(&daemon, &["status", "--json"]);
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &status["healthy"]), (0, &json!(true)));
    assert_eq!(run(&daemon, &["status", "--check"]).0, 0);
    daemon.terminate();
    let (code, out, err) = run(&daemon, &["status", "--check"]);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.contains("is it running?"), "{err}");
}

#[test]
fn status_is_shown_again_and_again() {
    let daemon = Daemon::started("verb-watch", "");
    let shown = daemon.folder().join("watched");
    let mut child = Command::new(env!("CARGO_BIN_EXE_gatewayd"))
        .args(["status", "--watch", "--config"])
        .arg(daemon.folder().join("gateway.toml"))
        .stdout(File::create(&shown).unwrap())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while std::fs::read_to_string(&shown).unwrap().matches("recovery").count() < 2 {
        assert!(start.elapsed() < Duration::from_secs(30), "{}", std::fs::read_to_string(&shown).unwrap());
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn queues_are_listed_looked_into_and_emptied() {
    let daemon = Daemon::started("verb-queue", "");
    subscribe(&daemon, &["-i", "line 1/plc", "-c", "-q", "1", "-t", "a/#", "-E"]);
    publish(&daemon, "topic=a/b", "first");
    publish(&daemon, "topic=a/b", "%1B%5B2J\u{1b}[2Jsecond");
    let (code, table, err) = run(&daemon, &["queue", "ls"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let heading = table.lines().next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        heading,
        "name kind ready in flight bytes fill percent oldest full in consumers overflow dropped"
    );
    assert!(table.contains("line 1/plc  session"), "{table}");
    let (code, out, _) = run(&daemon, &["queue", "peek", "line 1/plc", "--json"]);
    let messages: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &messages[0]["payload"], &messages[0]["address"]), (0, &json!("first"), &json!("a/b")));
    // What a client sends does not steer the reader's terminal.
    let (_, table, _) = run(&daemon, &["queue", "peek", "line 1/plc"]);
    assert!(table.contains("second") && !table.contains('\u{1b}'), "{table}");
    assert_eq!(
        run(&daemon, &["queue", "purge", "line 1/plc"]),
        (0, "purged 2 messages\n".into(), String::new())
    );
    let (code, out, err) = run(&daemon, &["queue", "purge", "nobody"]);
    assert_eq!((code, out.as_str(), err.as_str()), (1, "", "no queue or session of this name\n"));
    assert_eq!(run(&daemon, &["queue", "peek"]).0, 2);
}

#[test]
fn clients_are_listed_and_ended() {
    let daemon = Daemon::started("verb-client", "");
    let _client = subscribe(&daemon, &["-i", "plc/7", "-t", "a"]);
    let (code, table, _) = run(&daemon, &["client", "ls"]);
    assert!(code == 0 && table.contains("plc/7") && table.contains("mqtt"), "{table}");
    assert_eq!(
        run(&daemon, &["client", "kick", "plc/7"]),
        (0, "ended 1 connections\n".into(), String::new())
    );
    let (code, _, err) = run(&daemon, &["client", "kick", "nobody"]);
    assert_eq!((code, err.as_str()), (1, "no client of this identifier is connected\n"));
}

#[test]
fn a_topic_is_traced() {
    let daemon = Daemon::started("verb-trace", "[queue.session]\nmessages_max = 2\n");
    subscribe(&daemon, &["-i", "away", "-c", "-q", "1", "-t", "plant/#", "-E"]);
    for n in 0..5 {
        publish(&daemon, "topic=plant/a&retain=true", &n.to_string());
    }
    let (code, out, err) = run(&daemon, &["trace", "plant/a"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for expected in [
        "WHO GETS IT\nname  kind     connected",
        "away  session  no",
        "LOST FROM THESE QUEUES\nqueue  reason       messages",
        "last known value: 4\n",
        "! session away: nobody takes from it; 2 messages wait\n",
        "! session away: it was full, the oldest are dropped (3 so far); its bound is queue.session\n",
    ] {
        assert!(out.contains(expected), "{expected:?} is not in\n{out}");
    }
    let (_, out, _) = run(&daemon, &["trace", "nobody/wants/it"]);
    assert!(out.starts_with("! no session, queue or route wants this topic"), "{out}");
    // A reading has its collection.
    let (_, out, _) = run(&daemon, &["trace", "sensors/a", "--json"]);
    let trace: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(trace["takers"][0]["kind"], json!("collection"));
    let (code, _, err) = run(&daemon, &["trace", "plant/#"]);
    assert!(code == 1 && err.starts_with("topic: "), "{err}");
}

#[test]
fn the_doctor_looks_at_everything() {
    let mut daemon = Daemon::started("verb-doctor", "");
    let (code, out, _) = run(&daemon, &["doctor"]);
    assert_eq!(code, 1);
    assert!(out.contains("ok       gateway: healthy\n"), "{out}");
    assert!(
        out.contains(
            "PROBLEM  route readings: collection readings holds 0 readings: no message ever matched?"
        ),
        "{out}"
    );
    publish(&daemon, "topic=sensors/a", "1");
    let (code, out, _) = run(&daemon, &["doctor"]);
    assert_eq!(code, 0, "{out}");
    daemon.terminate();
    let (code, out, _) = run(&daemon, &["doctor"]);
    assert!(code == 1 && out.contains("is it running?"), "{out}");
}
