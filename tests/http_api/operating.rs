//! Health, queues, clients and losses, by curl.

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::tool::{Tool, resume, subscribe};
use crate::{curl, get, publish};

fn row(list: &Value, key: &str, value: &str) -> Value {
    let rows = list.as_array().unwrap();
    rows.iter().find(|row| row[key] == json!(value)).unwrap_or_else(|| panic!("no {value} in {list}")).clone()
}

#[test]
fn health_and_status() {
    let daemon = Daemon::started("http-status", "");
    for path in ["/healthz", "/readyz"] {
        let answer = get(&daemon, path);
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"), "{path}");
    }
    let head = curl(&daemon, "/healthz", &["--head"]);
    assert_eq!(head.status, 200);
    let status = get(&daemon, "/api/v1/status").json();
    assert_eq!(status["healthy"], json!(true));
    assert_eq!(status["recovery"]["last_stop"], json!("none, the store is new"));
    let listener = row(&status["listeners"], "name", "mqtt");
    assert_eq!(listener["address"], json!(daemon.mqtt().to_string()));
    assert_eq!(status["flash"]["budget_bytes_per_day"], json!(8u64 << 30));
    assert_eq!(row(&status["collections"], "name", "readings")["readings"], json!(0));
    for path in ["/api/v1/nothing", "/api/v1/status/", "/x"] {
        assert_eq!(get(&daemon, path).status, 404, "{path}");
    }
}

#[test]
fn a_queue_is_looked_into_and_emptied() {
    let mut daemon = Daemon::started("http-queues", "[queue.session]\nmessages_max = 4\n");
    subscribe(&daemon, &["-i", "slow/one", "-c", "-q", "1", "-t", "a/#", "-E"]);
    for n in 0..6 {
        assert_eq!(publish(&daemon, "topic=a/b", &format!("m{n}")).status, 200);
    }
    assert_eq!(publish(&daemon, "topic=a/c&qos=1", "last").status, 200);
    let queue = row(&get(&daemon, "/api/v1/queues").json(), "name", "slow/one");
    assert_eq!((&queue["ready"], &queue["fill_percent"]), (&json!(4), &json!(100)));
    assert_eq!((&queue["kind"], &queue["overflow"]), (&json!("session"), &json!("drop_oldest")));
    let loss = row(&get(&daemon, "/api/v1/losses").json(), "queue", "slow/one");
    assert_eq!((&loss["messages"], &loss["reason"]), (&json!(3), &json!("queue_bound")));
    let warnings = get(&daemon, "/api/v1/status").json()["warnings"].to_string();
    assert!(warnings.contains("session slow/one is 100 % full, then the oldest are dropped"), "{warnings}");

    let messages = get(&daemon, "/api/v1/queues/slow%2Fone/messages?limit=2").json();
    let shown: Vec<&Value> = messages.as_array().unwrap().iter().map(|message| &message["payload"]).collect();
    assert_eq!(shown, [&json!("m3"), &json!("m4")]);
    assert_eq!(messages[0]["address"], json!("a/b"));
    assert_eq!(get(&daemon, "/api/v1/queues/nobody/messages").status, 404);
    let delete = |target: &str| curl(&daemon, target, &["--request", "DELETE"]);
    assert_eq!(delete("/api/v1/queues/slow%2Fone/messages?kind=queue").status, 404);
    let purged = delete("/api/v1/queues/slow%2Fone/messages?kind=session");
    assert_eq!((purged.status, purged.json()), (200, json!({ "purged": 4 })));
    // What was answered as purged does not come back.
    daemon.kill_and_restart();
    assert_eq!(publish(&daemon, "topic=a/b", "fresh").status, 200);
    assert_eq!(resume(&daemon, &["-i", "slow/one", "-t", "a/#", "-C", "1"]), ["fresh"]);
}

#[test]
fn a_client_is_ended_and_its_session_stays() {
    let daemon = Daemon::started("http-clients", "");
    let mut client = subscribe(&daemon, &["-i", "victim", "-c", "-q", "1", "-t", "a"]);
    let shown = row(&get(&daemon, "/api/v1/clients").json(), "client_identifier", "victim");
    assert_eq!((&shown["protocol"], &shown["user_name"]), (&json!("mqtt"), &Value::Null));
    let delete = |target: &str| curl(&daemon, target, &["--request", "DELETE"]);
    assert_eq!(delete("/api/v1/clients/nobody").status, 404);
    assert_eq!(delete("/api/v1/clients/victim").json(), json!({ "ended": 1 }));
    client.kill();
    let metrics = get(&daemon, "/metrics").body;
    let closed = "gatewayd_connections_closed_total{protocol=\"mqtt\",reason=\"kicked\"} 1\n";
    assert!(metrics.contains(closed), "{metrics}");
    assert_eq!(publish(&daemon, "topic=a", "later").status, 200);
    assert_eq!(resume(&daemon, &["-i", "victim", "-t", "a", "-C", "1"]), ["later"]);
}

#[test]
fn a_foreign_page_may_not_ask() {
    let daemon = Daemon::started("http-foreign", "");
    for header in ["Origin: http://evil.example", "Host: evil.example"] {
        let answer = curl(&daemon, "/api/v1/publish?topic=a", &["--header", header, "--data-binary", "x"]);
        assert_eq!(answer.status, 403, "{header}");
    }
    let quiet = Tool::mosquitto(&daemon, "mosquitto_sub", &["-t", "a", "-W", "1"]);
    assert!(!quiet.finish().output.contains('x'));
}
