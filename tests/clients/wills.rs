//! Wills: sent when a client dies, not when it says goodbye, and kept for durable subscribers over a broker's death.

use std::fs;

use gateway_bench::ledger::Broker;

use crate::access::mosquitto_passwd;
use crate::daemon::Daemon;
use crate::tool::{Tool, messages, publish, resume, subscribe};

const WILL: &[&str] = &["--will-topic", "state/probe", "--will-payload", "lost", "--will-qos", "1"];

fn with_will(daemon: &Daemon, client: &str) -> Tool {
    subscribe(daemon, &[&["-i", client, "-t", "commands"], WILL].concat())
}

#[test]
fn a_killed_client_leaves_its_will_and_a_polite_one_does_not() {
    let daemon = Daemon::started("will", "");
    let watcher = subscribe(&daemon, &["-t", "state/+", "-t", "commands", "-v", "-q", "1", "-C", "3"]);
    let polite = subscribe(&daemon, &[&["-i", "polite", "-t", "commands", "-C", "1"], WILL].concat());
    publish(&daemon, &["-t", "commands", "-m", "stop", "-q", "1"]);
    polite.succeed();
    let mut probe = with_will(&daemon, "probe");
    probe.kill();
    watcher.wait_for("state/probe lost");
    publish(&daemon, &["-t", "state/end", "-m", "x", "-q", "1"]);
    assert_eq!(messages(&watcher.succeed()), ["commands stop", "state/probe lost", "state/end x"]);
}

#[test]
fn a_will_reaches_an_offline_session_through_the_broker_s_death() {
    let mut daemon = Daemon::started("durable-will", "");
    subscriber_goes_offline(&daemon);
    let mut probe = with_will(&daemon, "probe");
    probe.kill();
    // The will is on its way through the durable path; a round trip of the same kind comes after it.
    let round_trip = subscribe(&daemon, &["-t", "state/probe", "-C", "1", "-W", "1"]);
    round_trip.finish();
    publish(&daemon, &["-t", "state/after", "-m", "after", "-q", "1"]);
    daemon.kill_and_restart();
    assert_eq!(
        resume(&daemon, &["-i", "watch", "-t", "state/#", "-v", "-C", "2"]),
        ["state/probe lost", "state/after after"]
    );
}

#[test]
fn a_will_is_sent_when_broker_and_client_die_together() {
    let mut daemon = Daemon::started("twin-death", "");
    subscriber_goes_offline(&daemon);
    // The client's session is persistent, so its CONNECT, will included, is on flash when it is acknowledged.
    let mut probe = subscribe(&daemon, &[&["-i", "probe", "-c", "-q", "1", "-t", "commands"], WILL].concat());
    daemon.kill().unwrap();
    probe.kill();
    daemon.start_listening();
    assert_eq!(resume(&daemon, &["-i", "watch", "-t", "state/#", "-v", "-C", "1"]), ["state/probe lost"]);
}

/// A start publishes it when the collections are there.
#[test]
fn a_will_that_a_start_publishes_is_a_reading_too() {
    let mut daemon = Daemon::started("will-reading", "");
    let will = ["--will-topic", "sensors/lwt", "--will-payload", "1.5", "--will-qos", "1"];
    let mut probe =
        subscribe(&daemon, &[&["-i", "probe", "-c", "-q", "1", "-t", "commands"], &will[..]].concat());
    daemon.kill().unwrap();
    probe.kill();
    daemon.start_listening();
    // What is acknowledged after it is behind it in the collection.
    publish(&daemon, &["-t", "sensors/after", "-m", "2.5", "-q", "1"]);
    let output = daemon.command(&["query", "readings"]);
    let readings = String::from_utf8_lossy(&output.stdout);
    assert!(readings.contains("sensors/after") && readings.contains("sensors/lwt"), "{readings}");
}

/// The rules may be others when the gateway is back: a will is held against them under the name that registered it.
#[test]
fn a_start_publishes_a_will_as_far_as_the_rules_let_its_user() {
    let mut daemon = Daemon::new("will-rules", "");
    let (passwords, rules) = (daemon.folder().join("passwords"), daemon.folder().join("acl"));
    mosquitto_passwd(&passwords, "-c", "ann", "a");
    mosquitto_passwd(&passwords, "-b", "bob", "b");
    let let_bob = |access: &str| {
        let text = format!(
            "user ann\ntopic state/#\ntopic read commands\nuser bob\ntopic {access} state/#\ntopic read commands\n"
        );
        fs::write(&rules, text).expect("the test's folder can be written");
    };
    let_bob("write");
    daemon.configure(&format!(
        "[auth]\npassword_file = \"{}\"\nacl_file = \"{}\"\n",
        passwords.display(),
        rules.display()
    ));
    daemon.start_listening();
    let ann = ["-u", "ann", "-P", "a"];
    let watch = [&ann[..], &["-i", "watch", "-t", "state/#"]].concat();
    subscribe(&daemon, &[&watch[..], &["-c", "-q", "1", "-W", "1"]].concat()).finish();
    let mut probes = [("bob", "b"), ("ann", "a")].map(|(user, password)| {
        let topic = format!("state/{user}");
        let login = ["-u", user, "-P", password, "-i", user, "-c", "-q", "1", "-t", "commands"];
        let will = ["--will-topic", &topic, "--will-payload", "lost", "--will-qos", "1"];
        subscribe(&daemon, &[&login[..], &will].concat())
    });
    daemon.kill().unwrap();
    probes.iter_mut().for_each(Tool::kill);
    let_bob("read");
    daemon.start_listening();
    publish(&daemon, &[&ann[..], &["-t", "state/end", "-m", "end", "-q", "1"]].concat());
    let taken = resume(&daemon, &[&watch[..], &["-v", "-C", "2"]].concat());
    assert_eq!(taken, ["state/ann lost", "state/end end"]);
}

fn subscriber_goes_offline(daemon: &Daemon) {
    let tool = subscribe(daemon, &["-i", "watch", "-c", "-t", "state/#", "-q", "1", "-W", "1"]);
    tool.finish();
}
