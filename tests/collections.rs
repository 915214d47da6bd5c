//! Collections on the real program: five publishes and three queries as the article has them, by Mosquitto's own
//! client; SIGKILL between the acknowledgement and the query; routes, tags, bad input, deletion, exports.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "these tests drive processes in real time")]
#![expect(clippy::print_stderr, reason = "the daemon's log is part of a failure message")]

#[path = "support/daemon.rs"]
#[expect(dead_code, reason = "each test binary uses its part")]
mod daemon;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use daemon::Daemon;
use serde_json::{Value, json};

const ARTICLE: &str = "[ingest.sensor_readings]\ntopics = [\"sensors/#\"]\n\
    [ingest.pings]\ntopics = [\"fleet/+/pos\"]\n";

/// Publishes at least once, and returns when it is acknowledged.
struct Publisher(TcpStream);

impl Publisher {
    fn new(daemon: &Daemon) -> Self {
        let mut stream = TcpStream::connect(daemon.mqtt()).unwrap();
        stream.set_read_timeout(Some(daemon::PATIENCE)).unwrap();
        stream.write_all(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04test").unwrap();
        let mut reply = [0; 4];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, [0x20, 2, 0, 0]);
        Self(stream)
    }

    fn publish(&mut self, topic: &str, payload: &[u8]) {
        let mut body = u16::try_from(topic.len()).unwrap().to_be_bytes().to_vec();
        body.extend(topic.as_bytes());
        body.extend([0, 1]);
        body.extend(payload);
        let mut packet = vec![0x32];
        let mut left = body.len();
        loop {
            let low = u8::try_from(left % 128).unwrap();
            left /= 128;
            packet.push(if left > 0 { low | 0x80 } else { low });
            if left == 0 {
                break;
            }
        }
        packet.extend(body);
        self.0.write_all(&packet).unwrap();
        let mut reply = [0; 4];
        self.0.read_exact(&mut reply).unwrap();
        assert_eq!(reply, [0x40, 2, 0, 1]);
    }
}

fn run(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = daemon.command(arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {err}\n{}", daemon.log());
    out.into_owned()
}

/// Results without the time of their arrival, which nobody knows.
fn rows(daemon: &Daemon, arguments: &[&str]) -> Vec<Value> {
    let lines = run(daemon, arguments);
    let row = |line: &str| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        if let Some(members) = row.as_object_mut() {
            members.remove("_received_at");
        }
        row
    };
    lines.lines().map(row).collect()
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < daemon::PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_articles_publishes_and_queries() {
    let mut daemon = Daemon::started("collections-article", ARTICLE);
    let publishes = [
        ("sensors/greenhouse/temp", r#"{"value": 27.3, "unit": "C"}"#),
        ("sensors/greenhouse/humidity", r#"{"value": 71, "unit": "%"}"#),
        ("sensors/garage/temp", "18.9"),
        ("fleet/u42/pos", r#"{"lat": 41.0151, "lon": 28.9795, "speed": 34}"#),
        ("chat/general", r#"{"msg": "not mapped"}"#),
    ];
    let (host, port) = (daemon.mqtt().ip().to_string(), daemon.mqtt().port().to_string());
    for (topic, payload) in publishes {
        let arguments = ["-h", &host, "-p", &port, "-q", "1", "-t", topic, "-m", payload];
        let published =
            Command::new("mosquitto_pub").args(arguments).status().expect("mosquitto_pub is there");
        assert!(published.success());
    }
    let check = |daemon: &Daemon| {
        let expected = [
            json!({"value": 27.3, "unit": "C", "_topic": "sensors/greenhouse/temp"}),
            json!({"value": 71, "unit": "%", "_topic": "sensors/greenhouse/humidity"}),
            json!({"payload": 18.9, "_topic": "sensors/garage/temp"}),
        ];
        assert_eq!(rows(daemon, &["query", "sensor_readings"]), expected);
        assert_eq!(rows(daemon, &["query", "sensor_readings", "--where", "value >= 25"]), expected[..2]);
        let pings = [json!({"lat": 41.0151, "lon": 28.9795, "speed": 34, "_topic": "fleet/u42/pos"})];
        assert_eq!(rows(daemon, &["query", "pings"]), pings);
    };
    check(&daemon);
    // From the row log, after the process was killed; from series.redb, after it ended; from both.
    daemon.kill_and_restart();
    check(&daemon);
    daemon.terminate();
    daemon.start_listening();
    check(&daemon);
    let usage = run(&daemon, &["storage", "usage"]);
    assert!(usage.lines().any(|line| line.starts_with("sensor_readings  3       3 ")), "{usage}");
}

#[test]
fn an_acknowledged_reading_survives_a_kill_and_is_there_once() {
    let mut daemon = Daemon::started("collections-kill", "");
    let mut sent = 0;
    for round in 0..4 {
        let mut publisher = Publisher::new(&daemon);
        for _ in 0..50 {
            publisher.publish(&format!("sensors/a/{}", sent % 3), format!("{{\"n\": {sent}}}").as_bytes());
            sent += 1;
        }
        match round % 2 {
            0 => daemon.kill_and_restart(),
            _ => {
                daemon.terminate();
                daemon.start_listening();
            }
        }
        let found = rows(&daemon, &["query", "readings"]);
        let mut numbers: Vec<u64> = found.iter().map(|row| row["n"].as_u64().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..sent).collect::<Vec<u64>>(), "round {round}");
    }
}

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
fn tags_groups_exports_and_deletion() {
    let routes = "[ingest.plant]\ntopics = [\"plant/+site/+room/temp\"]\ncollection = \"climate\"\n\
        [ingest.quick]\ntopics = [\"quick/#\"]\ncollection = \"climate\"\ndurability = \"200ms\"\n";
    let mut daemon = Daemon::started("collections-tags", routes);
    let mut publisher = Publisher::new(&daemon);
    for n in 0..40 {
        let topic = format!("plant/{}/{}/temp", ["north", "south"][n % 2], n % 4);
        publisher.publish(&topic, format!("{{\"value\": {}.50}}", 20 + n).as_bytes());
    }
    publisher.publish("quick/x", b"7");
    let by_site =
        rows(&daemon, &["query", "climate", "--topic", "plant/#", "--agg", "count,min,max", "--by", "site"]);
    let expected = [
        json!({"site": "north", "count": 20, "min": 20.5, "max": 58.5}),
        json!({"site": "south", "count": 20, "min": 21.5, "max": 59.5}),
    ];
    assert_eq!(by_site, expected);
    let csv = run(&daemon, &["export", "climate", "--format", "csv", "--where", "room = '1'"]);
    assert!(csv.starts_with("_received_at,_topic,room,site,value,_more\r\n"), "{csv}");
    assert_eq!(csv.lines().count(), 11);
    let lines = run(&daemon, &["export", "climate", "--format", "line-protocol", "--topic", "plant/#"]);
    assert!(lines.starts_with("climate,topic=plant/north/0/temp,room=0,site=north value=20.50 "), "{lines}");
    let plot = run(&daemon, &["query", "climate", "--plot"]);
    assert!(plot.contains("plant/north/0/temp value"), "{plot}");
    // What no acknowledgement waits for is flushed by itself.
    wait_for("the interval's flush", || run(&daemon, &["storage", "usage"]).contains("41 "));
    assert_eq!(run(&daemon, &["delete", "climate", "--topic", "plant/north/#"]), "deleted 20 readings\n");
    daemon.kill_and_restart();
    assert_eq!(rows(&daemon, &["query", "climate"]).len(), 21);
    let refused = daemon.command(&["delete", "climate"]);
    assert_eq!(refused.status.code(), Some(1));
    let missing = daemon.command(&["query", "nothing"]);
    assert_eq!(String::from_utf8_lossy(&missing.stderr), "no collection nothing\n");
    let wrong = daemon.command(&["query", "climate", "--where", "value >="]);
    assert_eq!(
        String::from_utf8_lossy(&wrong.stderr),
        "condition, character 9: a field or a value is missing\n"
    );
    let tried = run(&daemon, &["ingest", "test", "--topic", "plant/n/1/temp", "--payload", "18.9"]);
    assert_eq!(
        tried,
        "route plant -> collection climate: {\"payload\": 18.9, \"_topic\": \"plant/n/1/temp\", \
         \"_received_at\": (now), \"_tags\": {\"room\": \"1\", \"site\": \"n\"}}\n"
    );
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
