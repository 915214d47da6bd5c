//! Wills: sent when a client dies, not when it says goodbye, and kept for durable subscribers over a broker's death.

use gateway_bench::ledger::Broker;

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

fn subscriber_goes_offline(daemon: &Daemon) {
    let tool = subscribe(daemon, &["-i", "watch", "-c", "-t", "state/#", "-q", "1", "-W", "1"]);
    tool.finish();
}
