//! Mosquitto's bridge with its default settings: a Mosquitto beside the gateway, joined to it both ways.

use std::fs;

use crate::daemon::{Daemon, free_address};
use crate::tool::{Tool, messages, publish, subscribe};

#[test]
fn a_mosquitto_bridge_as_its_manual_shows_it_joins_both_ways() {
    let daemon = Daemon::started("bridge", "");
    let near = free_address();
    let text = format!(
        "listener {} {}\nallow_anonymous true\npersistence false\nlog_dest stdout\n\
         connection to-gateway\naddress {}\ntopic br/# both 1\n",
        near.port(),
        near.ip(),
        daemon.mqtt()
    );
    let conf = daemon.folder().join("mosquitto.conf");
    fs::write(&conf, text).expect("the test's folder can be written");
    let conf = conf.to_str().expect("the test's folder is text");

    let at_gateway = subscribe(&daemon, &["-t", "br/#", "-q", "1", "-v", "-C", "2"]);
    let own = subscribe(&daemon, &["-t", "$SYS/broker/connection/#", "-v"]);
    let mut mosquitto = Tool::start(&daemon, "/usr/sbin/mosquitto", &["-c", conf]);
    mosquitto.wait_for("running");
    let (host, port) = (near.ip().to_string(), near.port().to_string());
    let at_mosquitto = |program: &str, arguments: &[&str]| {
        Tool::start(&daemon, program, &[&["-h", &host, "-p", &port, "-q", "1"], arguments].concat())
    };
    let up = at_mosquitto("mosquitto_sub", &["-d", "-t", "br/down", "-v", "-C", "1"]);
    up.wait_for("Subscribed (mid");
    at_mosquitto("mosquitto_pub", &["-t", "br/up", "-m", "1"]).succeed();
    at_gateway.wait_for("br/up 1");
    publish(&daemon, &["-t", "br/down", "-q", "1", "-m", "2"]);
    assert_eq!(messages(&up.succeed()), ["br/down 2"]);
    // What it publishes about itself under $SYS stays out, its will too.
    mosquitto.kill();
    assert_eq!(messages(&at_gateway.succeed()), ["br/up 1", "br/down 2"]);
    assert_eq!(messages(&own.output()), [""; 0]);
}
