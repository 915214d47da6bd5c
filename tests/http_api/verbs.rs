//! The verbs that ask the running gateway: status, queues, clients. What each prints, and its exit status.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::publish;
use crate::tool::{Tool, subscribe};

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
    assert!(out.starts_with("counted from now on"), "{out}");
    assert!(out.contains("! no session, queue or route wants this topic"), "{out}");
    let (code, _, err) = run(&daemon, &["trace", "plant/#"]);
    assert!(code == 1 && err.starts_with("topic: "), "{err}");
}

/// The trace of a topic, and a step of it: how many came through, and how many ended there.
fn trace(daemon: &Daemon, topic: &str) -> Value {
    let (code, out, err) = run(daemon, &["trace", topic, "--json"]);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

fn step(trace: &Value, name: &str) -> Value {
    let steps = trace["steps"].as_array().unwrap();
    steps.iter().find(|step| step["step"] == json!(name)).unwrap_or_else(|| panic!("{trace}")).clone()
}

fn counts(trace: &Value, name: &str) -> (Value, Value) {
    let step = step(trace, name);
    (step["count"].clone(), step["failed"].clone())
}

#[test]
fn each_step_of_a_reading_is_counted_with_its_last_example() {
    let settings = "[queue.session]\nmessages_max = 2\n[ingest.r]\ntopics = [\"s/#\"]\ncollection = \"r\"\n";
    let daemon = Daemon::started("verb-trace-steps", settings);
    // What came before anybody asked is told, where something still knows of it.
    publish(&daemon, "topic=s/a", "{broken");
    subscribe(&daemon, &["-i", "away", "-c", "-q", "1", "-t", "s/+", "-E"]);
    let reader = subscribe(&daemon, &["-i", "here", "-q", "1", "-t", "s/a"]);
    let first = trace(&daemon, "s/a");
    assert_eq!(counts(&first, "allowed"), (json!(0), json!(0)));
    assert_eq!(first["malformed"][0]["payload"], json!("{broken"));
    for payload in ["1", "{\"v\":2}", "{\"v\":nan}"] {
        let arguments = ["-i", "plc-7", "-q", "1", "-t", "s/a", "-m", payload];
        Tool::mosquitto(&daemon, "mosquitto_pub", &arguments).succeed();
    }
    publish(&daemon, "topic=s/a", "4");
    publish(&daemon, "topic=s/other", "5");
    let start = Instant::now();
    let seen = loop {
        let seen = trace(&daemon, "s/a");
        if step(&seen, "acknowledged")["count"] == json!(4) {
            break seen;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{seen}\n{}", reader.output());
    };
    for (name, count, failed) in [
        ("allowed", json!(4), json!(0)),
        ("matched", json!(4), json!(0)),
        ("parsed", json!(3), json!(1)),
        ("queued", json!(8), json!(0)),
        ("dropped", Value::Null, json!(3)),
        ("delivered", json!(4), json!(0)),
        ("acknowledged", json!(4), json!(0)),
    ] {
        assert_eq!(counts(&seen, name), (count, failed), "{name} of {seen}");
    }
    let parsed = step(&seen, "parsed");
    assert_eq!(parsed["last"]["payload"], json!("{\"v\":nan}"));
    assert_eq!(parsed["last"]["why"], json!("not JSON at byte 5"));
    let dropped = step(&seen, "dropped");
    assert_eq!((&dropped["last"]["name"], &dropped["last"]["why"]), (&json!("away"), &json!("queue_bound")));
    assert_eq!(dropped["key"], json!("queue.*"));
    assert_eq!(step(&seen, "delivered")["last"]["name"], json!("here"));
    let publishers: Vec<_> = seen["publishers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["client_identifier"].clone(), p["count"].clone()))
        .collect();
    assert_eq!(publishers, [(json!("plc-7"), json!(3)), (json!(""), json!(1))]);
    // A deletion has everything flushed first: then the readings are on flash, with the one from before.
    assert_eq!(run(&daemon, &["delete", "r", "--topic", "nobody"]).0, 0);
    let stored = trace(&daemon, "s/a");
    assert_eq!(step(&stored, "stored")["count"], json!(5));
    assert_eq!(stored["series"][0]["readings"], json!(5));
    let (_, out, _) = run(&daemon, &["trace", "s/a"]);
    assert!(out.starts_with("counted for ") && out.contains("\nparsed "), "{out}");
    // Nobody wants it: it is told where it ended.
    trace(&daemon, "nobody");
    publish(&daemon, "topic=nobody", "x");
    let unwanted = trace(&daemon, "nobody");
    assert_eq!(counts(&unwanted, "matched"), (json!(0), json!(1)));
    assert_eq!(step(&unwanted, "matched")["last"]["payload"], json!("x"));
    assert_eq!(step(&unwanted, "parsed")["count"], Value::Null);
}

#[test]
fn the_doctor_looks_at_everything() {
    let mut daemon = Daemon::started("verb-doctor", "");
    let (code, out, _) = run(&daemon, &["doctor"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("ok       gateway: healthy\n"), "{out}");
    assert!(out.contains("note     route readings: no reading of readings came by it yet"), "{out}");
    publish(&daemon, "topic=sensors/a", "1");
    let (code, out, _) = run(&daemon, &["doctor"]);
    assert!(code == 0 && out.contains("ok       route readings: 1 topics in collection readings\n"), "{out}");
    daemon.terminate();
    let (code, out, _) = run(&daemon, &["doctor"]);
    assert!(code == 1 && out.contains("is it running?"), "{out}");
}

#[test]
fn topics_are_followed() {
    let daemon = Daemon::started("verb-tail", "");
    let config = daemon.folder().join("gateway.toml").display().to_string();
    let program = env!("CARGO_BIN_EXE_gatewayd");
    let tail = Tool::start(&daemon, program, &["tail", "--config", &config, "plant/+/temp"]);
    // It may take a while until somebody follows.
    let start = Instant::now();
    while !tail.output().contains("plant/a/temp") {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing was followed");
        publish(&daemon, "topic=plant/a/temp", "first");
        std::thread::sleep(Duration::from_millis(20));
    }
    publish(&daemon, "topic=plant/a/pressure", "not wanted");
    crate::tool::publish(&daemon, &["-t", "plant/b/temp", "-q", "0", "-m", "by mqtt"]);
    let binary = daemon.folder().join("binary");
    std::fs::write(&binary, [0xff, 0x00]).unwrap();
    crate::tool::publish(&daemon, &["-t", "plant/c/temp", "-q", "2", "-r", "-f", binary.to_str().unwrap()]);
    tail.wait_for("plant/c/temp");
    let output = tail.output();
    let messages: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(messages.iter().all(|message| message["payload"] != "not wanted"), "{output}");
    let of = |topic: &str| messages.iter().find(|message| message["topic"] == *topic).unwrap();
    let first = of("plant/a/temp");
    assert_eq!(
        (&first["payload"], &first["qos"], &first["retain"]),
        (&json!("first"), &json!(1), &json!(false))
    );
    assert!(first["received_at_ms"].as_u64().unwrap() > 1_700_000_000_000, "{first}");
    let second = of("plant/b/temp");
    assert_eq!((&second["payload"], &second["qos"]), (&json!("by mqtt"), &json!(0)));
    let third = of("plant/c/temp");
    assert_eq!((&third["payload"], &third["encoding"]), (&json!("ff00"), &json!("hex")));
    assert_eq!((&third["qos"], &third["retain"]), (&json!(2), &json!(true)));
    // Looking on is no subscription: nobody is told to wait for it, and nothing of it is left.
    let (_, listed, _) = run(&daemon, &["queue", "ls", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert!(listed.as_array().unwrap().iter().all(|queue| queue["kind"] == "collection"), "{listed}");

    for (arguments, expected) in [
        (&["tail", "plant/#/x"][..], (1, "topic: ")),
        (&["tail", "$SYS/#"], (1, "topic: figures are published to clients")),
        (
            &["tail", "alarm"],
            (1, "no collection alarm; the messages of a topic of one level are followed as alarm/#"),
        ),
        (&["tail", "a/b", "--where", "x > 1"], (2, "error: --topic and --where are for the readings")),
    ] {
        let (code, _, err) = run(&daemon, arguments);
        assert_eq!((code, err.starts_with(expected.1)), (expected.0, true), "{arguments:?}: {err}");
    }
}
