//! From the publish to the query: the article, SIGKILL, routes and tags, exports, deletion, AMQP.

use std::process::Command;

use serde_json::json;

use crate::daemon::Daemon;
use crate::plant::{Publisher, rows, run, wait_for};
use crate::tool::Tool;

const ARTICLE: &str = "[ingest.sensor_readings]\ntopics = [\"sensors/#\"]\n\
    [ingest.pings]\ntopics = [\"fleet/+/pos\"]\n";

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
fn what_amqp_publishes_to_the_shared_exchange_is_a_reading_too() {
    let mut daemon = Daemon::started("collections-amqp", "[ingest.r]\ntopics = [\"sensors/+site/#\"]\n");
    let url = format!("--url=amqp://guest:guest@{}", daemon.amqp());
    let publish = |key: &str, body: &str| {
        let arguments =
            [url.as_str(), "--exchange=amq.topic", "--routing-key", key, "--body", body, "--persistent"];
        Tool::start(&daemon, "amqp-publish", &arguments).succeed();
    };
    publish("sensors.north.temp", r#"{"value": 27.30}"#);
    publish("other.north.temp", "1");
    publish("sensors.south", "7");
    let expected = [
        json!({"value": 27.30, "_topic": "sensors/north/temp", "_tags": {"site": "north"}}),
        json!({"payload": 7, "_topic": "sensors/south", "_tags": {"site": "south"}}),
    ];
    // The tool does not wait for a confirmation.
    wait_for("the readings", || rows(&daemon, &["query", "r"]).len() == 2);
    assert_eq!(rows(&daemon, &["query", "r"]), expected);
    daemon.terminate();
    daemon.start_listening();
    assert_eq!(rows(&daemon, &["query", "r"]), expected);
}

#[test]
fn a_bad_route_stops_the_check_and_the_start_with_its_line() {
    let daemon = Daemon::new("collections-route", "[ingest.r]\ntopics = [\"a/#/b\"]\n");
    let config = daemon.folder().join("gateway.toml");
    let line =
        std::fs::read_to_string(&config).unwrap().lines().position(|line| line.contains("a/#/b")).unwrap();
    let expected = format!(
        "{}:{}:11: ingest.r.topics: \"a/#/b\" has `#` before its last level, so it matches nothing",
        config.display(),
        line + 1
    );
    for verb in ["check-config", "run"] {
        let refused = daemon.command(&[verb]);
        assert_eq!(refused.status.code(), Some(78), "{verb}");
        assert_eq!(String::from_utf8_lossy(&refused.stderr).lines().next(), Some(&*expected), "{verb}");
    }
}
