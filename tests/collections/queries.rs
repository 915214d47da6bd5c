//! Every option of a query, on the command line and over HTTP.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::daemon::{self, Daemon};
use crate::plant::{Publisher, rows, run};
use crate::tool::Tool;

const ROUTES: &str = "[ingest.climate]\ntopics = [\"sensors/+room/+kind\"]\n";

/// What reading `n` of the test holds.
struct Sample {
    room: &'static str,
    value: f64,
    note: Option<&'static str>,
    ok: bool,
    latitude: f64,
}

const COUNT: usize = 60;

fn sample(n: usize) -> Sample {
    let number = u32::try_from(n).unwrap();
    Sample {
        room: ["hall", "attic", "cellar"][n % 3],
        value: 10.0 + f64::from(number) / 2.0,
        note: [Some("door open"), None, None, Some("it's \"hot\""), None][n % 5],
        ok: n.is_multiple_of(2),
        latitude: 41.0 + f64::from(number),
    }
}

/// A daemon with all samples, half of them in `series.redb`, half on their way.
fn daemon(name: &str) -> Daemon {
    let mut daemon = Daemon::started(name, ROUTES);
    for half in [0..COUNT / 2, COUNT / 2..COUNT] {
        let mut publisher = Publisher::new(&daemon);
        for n in half.clone() {
            let Sample { room, value, note, ok, latitude } = sample(n);
            let note = note.map(|note| format!(", \"note\": {}", json!(note))).unwrap_or_default();
            let payload = format!(
                "{{\"value\": {value:.1}, \"ok\": {ok}, \"pos\": {{\"lat\": {latitude:.1}, \"path\": [{n}, 7]}}{note}}}"
            );
            publisher.publish(&format!("sensors/{room}/temp"), payload.as_bytes());
        }
        if half.start == 0 {
            daemon.terminate();
            daemon.start_listening();
        }
    }
    daemon
}

/// The body of a response to GET, and its status.
fn get(daemon: &Daemon, target: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(daemon.http()).unwrap();
    stream.set_read_timeout(Some(daemon::PATIENCE)).unwrap();
    // HTTP/1.0: the body is not in pieces, and the connection ends with it.
    let request = format!("GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// A condition, and which samples it holds for.
type Case = (&'static str, fn(&Sample) -> bool);

#[test]
fn conditions_find_what_they_say() {
    let daemon = daemon("queries-where");
    let cases: [Case; 20] = [
        ("value >= 25", |s| s.value >= 25.0),
        ("value < 12.5", |s| s.value < 12.5),
        ("value <= 12.5", |s| s.value <= 12.5),
        ("value > 39", |s| s.value > 39.0),
        ("value = 20", |s| s.value == 20.0),
        ("value != 20", |s| s.value != 20.0),
        ("value >= 25 and ok = true", |s| s.value >= 25.0 && s.ok),
        ("value < 11 or value > 39", |s| s.value < 11.0 || s.value > 39.0),
        ("not ok = true", |s| !s.ok),
        ("not (value < 30 or ok = true) and room = 'hall'", |s| s.value >= 30.0 && !s.ok && s.room == "hall"),
        ("note = 'door open'", |s| s.note == Some("door open")),
        ("note != 'door open'", |s| s.note.is_some_and(|note| note != "door open")),
        ("note contains 'hot'", |s| s.note.is_some_and(|note| note.contains("hot"))),
        ("exists(note)", |s| s.note.is_some()),
        ("not exists(note)", |s| s.note.is_none()),
        ("exists(pos.lon)", |_| false),
        ("pos.lat > 90", |s| s.latitude > 90.0),
        ("pos.path[0] >= 50 and pos.path[1] = 7", |s| s.latitude >= 91.0),
        ("_topic = 'sensors/attic/temp'", |s| s.room == "attic"),
        ("value = 'C'", |_| false),
    ];
    for (condition, holds) in cases {
        let expected: Vec<usize> = (0..COUNT).filter(|n| holds(&sample(*n))).collect();
        let numbers = |rows: Vec<Value>| -> Vec<u64> {
            let mut all: Vec<u64> = rows.iter().map(|row| row["pos"]["path"][0].as_u64().unwrap()).collect();
            all.sort_unstable();
            all
        };
        let found = numbers(rows(&daemon, &["query", "climate", "--where", condition]));
        let expected: Vec<u64> = expected.into_iter().map(|n| n as u64).collect();
        assert_eq!(found, expected, "{condition}");
        let target = format!("/api/v1/collections/climate/query?where={}", encoded(condition));
        let (status, body) = get(&daemon, &target);
        assert_eq!(status, 200);
        let found = numbers(body.lines().map(|line| serde_json::from_str(line).unwrap()).collect());
        assert_eq!(found, expected, "{condition} over HTTP");
    }
}

#[test]
fn aggregates_groups_times_and_forms() {
    let daemon = daemon("queries-options");
    let all = rows(
        &daemon,
        &["query", "climate", "--agg", "avg,min,max,count,last,first,sum,p95,p50,avg(pos.lat)"],
    );
    let expected = json!({
        "avg": 24.75, "min": 10, "max": 39.5, "count": 60, "last": 39.5, "first": 10, "sum": 1485,
        "p95": 38, "p50": 24.5, "avg(pos.lat)": 70.5,
    });
    assert_eq!(all, [expected]);
    let by = |place: &str| rows(&daemon, &["query", "climate", "--agg", "count,max", "--by", place]);
    assert_eq!(
        by("room"),
        [
            json!({"room": "attic", "count": 20, "max": 39}),
            json!({"room": "cellar", "count": 20, "max": 39.5}),
            json!({"room": "hall", "count": 20, "max": 38.5}),
        ]
    );
    assert_eq!(by("topic")[0], json!({"_topic": "sensors/attic/temp", "count": 20, "max": 39}));
    assert_eq!(by("ok").len(), 2);
    assert_eq!(by("room,ok").len(), 6);
    let field = rows(
        &daemon,
        &["query", "climate", "--agg", "max", "--field", "pos.lat", "--topic", "sensors/hall/+"],
    );
    assert_eq!(field, [json!({"max(pos.lat)": 98})]);
    // The readings may lie on either side of an hour's end.
    let hours = run(&daemon, &["query", "climate", "--every", "1h", "--agg", "count", "--by", "kind"]);
    let hours: Vec<Value> = hours.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |row: &Value| row["count"].as_u64().unwrap();
    assert_eq!(hours.iter().map(count).sum::<u64>(), 60);
    assert!(hours.iter().all(|row| row["_start"].as_u64().unwrap().is_multiple_of(3_600_000)));
    // The latest of the first half, and the rest.
    let lines = run(&daemon, &["query", "climate"]);
    let times: Vec<u64> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["_received_at"].as_u64().unwrap())
        .collect();
    assert!(times.len() == 60 && times.is_sorted());
    let middle = times[30].to_string();
    let before = times.iter().filter(|time| **time < times[30]).count();
    assert_eq!(rows(&daemon, &["query", "climate", "--until", &middle]).len(), before);
    assert_eq!(rows(&daemon, &["query", "climate", "--since", &middle]).len(), 60 - before);
    assert_eq!(rows(&daemon, &["query", "climate", "--since", "1h", "--until", "now"]).len(), 60);
    assert_eq!(rows(&daemon, &["query", "climate", "--until", "1h"]).len(), 0);
    assert_eq!(rows(&daemon, &["query", "climate", "--limit", "7"]).len(), 7);
    assert_eq!(rows(&daemon, &["query", "climate", "--topic", "sensors/+/hum"]).len(), 0);
    forms(&daemon);
}

fn forms(daemon: &Daemon) {
    // Of one topic: what several of them got in one millisecond comes topic by topic.
    let hall = ["query", "climate", "--format", "json", "--limit", "2", "--topic", "sensors/hall/+"];
    let json: Vec<Value> = serde_json::from_str(&run(daemon, &hall)).unwrap();
    assert_eq!(json[1]["value"], 11.5);
    let lines = run(daemon, &["query", "climate", "--format", "jsonl", "--limit", "2"]);
    assert!(lines.lines().count() == 2 && lines.starts_with("{\"value\": 10.0, \"ok\": true, \"pos\": {"));
    let csv = run(daemon, &["query", "climate", "--format", "csv", "--limit", "2"]);
    let first: Vec<&str> = csv.lines().collect();
    assert_eq!(first[0], "_received_at,_topic,kind,room,value,ok,pos.lat,pos.path,note,_more");
    assert!(first[1].ends_with(",sensors/hall/temp,temp,hall,10.0,true,41.0,\"[0, 7]\",door open,"), "{csv}");
    let table =
        run(daemon, &["query", "climate", "--format", "table", "--limit", "2", "--topic", "sensors/attic/#"]);
    let header = table.lines().next().unwrap();
    assert!(header.starts_with("TIME") || header.starts_with("time"), "{table}");
    assert!(table.contains("sensors/attic/temp") && table.contains("10.5"), "{table}");
    let table = run(daemon, &["query", "climate", "--agg", "count", "--by", "room", "--format", "table"]);
    assert_eq!(table.lines().count(), 4, "{table}");
    let plot = run(daemon, &["query", "climate", "--every", "1s", "--agg", "max", "--plot"]);
    assert!(plot.starts_with("39.5 |") && plot.contains(" max\n"), "{plot}");
    let refused = daemon.command(&["query", "climate", "--plot", "--format", "csv"]);
    assert_eq!(refused.status.code(), Some(2));
    for (parameters, status) in [
        ("agg=avg,p95&every=1m&by=room&format=csv", 200),
        ("agg=median", 400),
        ("since=yesterday", 400),
        ("where=value+%3E", 400),
        ("format=xml", 400),
        ("format=line-protocol&limit=3", 200),
    ] {
        let (found, body) = get(daemon, &format!("/api/v1/collections/climate/query?{parameters}"));
        assert_eq!(found, status, "{parameters}: {body}");
    }
    assert_eq!(get(daemon, "/api/v1/collections/nothing/query").0, 404);
    let (_, shown) = get(daemon, "/api/v1/collections/climate");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["series"].as_array().unwrap().len(), 3);
    assert_eq!(shown["series"][0]["tags"], json!({"kind": "temp", "room": "hall"}));
}

#[test]
fn tail_follows_what_comes() {
    let daemon = daemon("queries-tail");
    let config = daemon.folder().join("gateway.toml");
    let config = config.to_str().unwrap();
    let program = env!("CARGO_BIN_EXE_gatewayd");
    let filter = ["--config", config, "--topic", "sensors/hall/#", "--where", "value > 5"];
    let arguments = [&["tail", "climate"][..], &filter].concat();
    let tail = Tool::start(&daemon, program, &arguments);
    let mut publisher = Publisher::new(&daemon);
    // It may take a while until somebody follows.
    for n in 6..600 {
        publisher.publish("sensors/attic/temp", b"{\"value\": 7}");
        publisher.publish("sensors/hall/temp", b"{\"value\": 1}");
        publisher.publish("sensors/hall/temp", format!("{{\"value\": {n}}}").as_bytes());
        if tail.output().contains("\"value\"") {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    publisher.publish("sensors/hall/temp", b"{\"value\": 9999}");
    tail.wait_for("9999");
    let output = tail.output();
    for line in output.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert!(row["_topic"] == "sensors/hall/temp" && row["value"].as_u64().unwrap() > 5, "{line}");
    }
}

#[test]
fn a_slow_reader_holds_nobody_up() {
    let daemon = Daemon::started("queries-slow", "");
    let mut publisher = Publisher::new(&daemon);
    let text = "x".repeat(100_000);
    for n in 0..200 {
        publisher.publish("sensors/long", format!("{{\"n\": {n}, \"text\": \"{text}\"}}").as_bytes());
    }
    // 20 MB are asked for, and nobody reads them.
    let mut slow = TcpStream::connect(daemon.http()).unwrap();
    slow.write_all(b"GET /api/v1/collections/readings/query HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 12];
    slow.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    for n in 200..220 {
        publisher.publish("sensors/long", format!("{{\"n\": {n}}}").as_bytes());
    }
    let counted = rows(&daemon, &["query", "readings", "--agg", "count"]);
    assert_eq!(counted, [json!({"count": 220})]);
    // What was asked for comes whole, once it is read.
    slow.set_read_timeout(Some(daemon::PATIENCE)).unwrap();
    let mut rest = Vec::new();
    let mut piece = vec![0; 1 << 16];
    while !rest.ends_with(b"0\r\n\r\n") {
        let count = slow.read(&mut piece).unwrap();
        assert_ne!(count, 0, "the answer broke off after {} bytes", rest.len());
        rest.extend_from_slice(&piece[..count]);
    }
    let text = String::from_utf8(rest).unwrap();
    assert!((200..=220).contains(&text.matches("\"_topic\"").count()));
}
