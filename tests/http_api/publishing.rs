//! `POST /api/v1/publish`: 200 means what PUBACK means.

use std::fs;

use serde_json::json;

use crate::daemon::Daemon;
use crate::tool::{Tool, resume, subscribe};
use crate::{curl, get, publish};

#[test]
fn what_was_answered_is_there_after_a_kill() {
    let mut daemon = Daemon::started("http-publish", "");
    subscribe(&daemon, &["-i", "keeper", "-c", "-q", "1", "-t", "log/#", "-E"]);
    for n in 0..5 {
        let answer = publish(&daemon, "topic=log/a", &n.to_string());
        assert_eq!((answer.status, answer.json()), (200, json!({ "kept": true })));
    }
    assert_eq!(publish(&daemon, "topic=log/last&retain=true&qos=2", "kept").status, 200);
    daemon.kill_and_restart();
    let messages = resume(&daemon, &["-i", "keeper", "-t", "log/#", "-C", "6"]);
    assert_eq!(messages, ["0", "1", "2", "3", "4", "kept"]);
    let retained = Tool::mosquitto(&daemon, "mosquitto_sub", &["-t", "log/last", "-C", "1", "-W", "20"]);
    assert_eq!(retained.succeed().trim(), "kept");
}

#[test]
fn a_reading_by_http_is_in_its_collection() {
    let daemon = Daemon::started("http-reading", "");
    assert_eq!(publish(&daemon, "topic=sensors/boiler", r#"{"value": 71.5}"#).status, 200);
    let answer = get(&daemon, "/api/v1/collections/readings/query?format=json");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()[0]["value"], json!(71.5));
}

#[test]
fn what_is_wrong_is_said() {
    let daemon = Daemon::started("http-refusals", "[limits]\nmessage_bytes_max = \"2KiB\"\n");
    for (parameters, payload, status, why) in [
        ("", "x", 400, "the parameter topic is missing"),
        ("topic=a/%23", "x", 400, "topic: "),
        ("topic=", "x", 400, "topic: "),
        ("topic=a&qos=7", "x", 400, "qos: `7` is no number from 0 to 2"),
        ("topic=a&size=7", "x", 400, "unknown parameter size"),
        ("topic=$SYS/broker/version", "x", 403, "topics under $SYS are the gateway's own"),
        ("topic=a", &"x".repeat(2049), 413, "the payload is larger than limits.message_bytes_max"),
    ] {
        let answer = publish(&daemon, parameters, payload);
        let error = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert_eq!(answer.status, status, "{parameters}: {error}");
        assert!(error.starts_with(why), "{parameters}: {error}");
    }
    let chunked = curl(
        &daemon,
        "/api/v1/publish?topic=a",
        &["--header", "Transfer-Encoding: chunked", "--data-binary", &"x".repeat(3000)],
    );
    assert_eq!(chunked.status, 413);
    let answer = get(&daemon, "/api/v1/publish?topic=a");
    assert_eq!(answer.status, 405);
    // An empty payload is a message too.
    assert_eq!(publish(&daemon, "topic=a", "").status, 200);
    assert_eq!(publish(&daemon, "topic=a", &"x".repeat(2048)).status, 200);
}

#[test]
fn the_rules_of_users_hold() {
    let daemon = Daemon::new("http-users", "");
    fs::write(daemon.folder().join("acl"), "user ada\ntopic write plant/#\ntopic read plant/open\n").unwrap();
    daemon.configure("[auth]\npassword_file = \"passwd\"\nacl_file = \"acl\"\n");
    fs::write(daemon.folder().join("passwd"), "").unwrap();
    let mut add = std::process::Command::new("sh");
    let line = format!(
        "echo secret | {} user add ada --password-stdin --iterations 10 --config {}",
        env!("CARGO_BIN_EXE_gatewayd"),
        daemon.folder().join("gateway.toml").display()
    );
    assert!(add.args(["-c", &line]).status().unwrap().success());
    let mut daemon = daemon;
    daemon.start_listening();
    let as_ada = |topic: &str| {
        let target = format!("/api/v1/publish?topic={topic}");
        curl(&daemon, &target, &["--user", "ada:secret", "--data-binary", "x"]).status
    };
    assert_eq!(publish(&daemon, "topic=plant/a", "x").status, 401);
    assert_eq!(as_ada("plant/a"), 200);
    assert_eq!(as_ada("office/a"), 403);
    // Who follows topics sees those that it may read.
    let seen = daemon.folder().join("seen");
    let url = format!("http://{}/api/v1/tail?topic=plant/%23", daemon.http());
    let mut tail = std::process::Command::new("curl")
        .args(["--silent", "--no-buffer", "--user", "ada:secret", "--output"])
        .arg(&seen)
        .arg(&url)
        .spawn()
        .unwrap();
    let start = std::time::Instant::now();
    while !fs::read_to_string(&seen).unwrap_or_default().contains("plant/open") {
        assert!(start.elapsed() < crate::daemon::PATIENCE, "nothing was followed");
        assert_eq!((as_ada("plant/a"), as_ada("plant/open")), (200, 200));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    tail.kill().unwrap();
    tail.wait().unwrap();
    let seen = fs::read_to_string(&seen).unwrap();
    assert!(!seen.contains("plant/a"), "{seen}");
    assert_eq!(curl(&daemon, "/api/v1/tail?topic=plant/%23", &[]).status, 401);
    let wrong = curl(&daemon, "/api/v1/status", &["--user", "ada:wrong"]);
    assert_eq!(wrong.status, 401);
    // What changes the gateway is for its own machine's control socket.
    let kick = curl(&daemon, "/api/v1/clients/x", &["--user", "ada:secret", "--request", "DELETE"]);
    assert_eq!(kick.status, 403);
    assert_eq!(get(&daemon, "/healthz").status, 200);
    let metrics = curl(&daemon, "/metrics", &["--user", "ada:secret"]);
    assert!(metrics.body.contains("gatewayd_denied_total{action=\"publish\"} 1\n"), "{}", metrics.body);
}
