//! MQTT 5 by foreign clients: mosquitto_pub and mosquitto_sub, paho.

use crate::daemon::Daemon;
use crate::tool::{Tool, messages, publish, subscribe};

#[test]
fn mosquittos_clients_speak_version_5() {
    let daemon = Daemon::started("mosquitto5", "");
    let format = "%t %q %r %C %E %P %p";
    let watcher = subscribe(&daemon, &["-V", "5", "-t", "a/#", "-q", "2", "-C", "2", "-F", format]);
    let properties = [
        ["-D", "publish", "content-type", "text/plain"].as_slice(),
        &["-D", "publish", "user-property", "k", "v"],
        &["-D", "publish", "message-expiry-interval", "60"],
    ];
    publish(
        &daemon,
        &[&["-V", "5", "-t", "a/b", "-q", "2", "-m", "x"], properties.concat().as_slice()].concat(),
    );
    publish(&daemon, &["-V", "5", "-t", "a/c", "-q", "1", "-m", "y"]);
    assert_eq!(messages(&watcher.succeed()), ["a/b 2 0 text/plain 60 k:v x", "a/c 1 0    y"]);
}

#[test]
fn paho_speaks_version_5() {
    let daemon = Daemon::started("paho5", "");
    let lines = Tool::python(&daemon, "mqtt5.py", &[]).succeed();
    assert_eq!(
        lines.lines().collect::<Vec<_>>(),
        [
            "assigned True",
            "granted Granted QoS 2",
            "reason No matching subscribers",
            "reason Success",
            "request requests/add b'1 2' 2 text/plain [('b', '1'), ('a', '2')] True",
            r"answer b'3' b'\x00\x07'",
            "resumed True b'while you were away'",
            "gone True",
            "shared True",
        ]
    );
}
