//! What a durable MQTT broker has to show with nothing but stock clients: retained values and wildcards, a session that
//! survives kill -9, the packets of QoS 2 in both directions, equal payloads kept apart, the bound applied at recovery.

use std::time::Duration;

use crate::daemon::Daemon;
use crate::tool::{Tool, messages, packets, publish, subscribe};

/// Longer than consumer acknowledgements may wait for a batch to ride along with (250 ms).
const ACKNOWLEDGEMENTS_FLUSHED: Duration = Duration::from_millis(1000);

#[test]
fn retained_values_come_first_and_wildcards_match_whole_levels() {
    let daemon = Daemon::started("retained", "");
    publish(&daemon, &["-t", "home/livingroom/temp", "-m", "22.4", "-r", "-q", "1"]);
    publish(&daemon, &["-t", "home/kitchen/temp", "-m", "24.1", "-r", "-q", "1"]);
    let room = subscribe(&daemon, &["-t", "home/+/temp", "-v", "-q", "1", "-C", "3"]);
    let everything = subscribe(&daemon, &["-t", "home/#", "-t", "home", "-v", "-q", "1", "-C", "5"]);
    publish(&daemon, &["-t", "home/bedroom/humidity", "-m", "55", "-q", "1"]);
    publish(&daemon, &["-t", "home", "-m", "parent level", "-q", "1"]);
    publish(&daemon, &["-t", "home/bedroom/temp", "-m", "19.8", "-q", "1"]);

    let room = room.succeed();
    let mut room = messages(&room);
    // Retained values of different topics come in any order, before what is live.
    if let Some(retained) = room.get_mut(..2) {
        retained.sort_unstable();
    }
    assert_eq!(room, ["home/kitchen/temp 24.1", "home/livingroom/temp 22.4", "home/bedroom/temp 19.8"]);
    let everything = everything.succeed();
    let live: Vec<_> = messages(&everything).into_iter().skip(2).collect();
    assert_eq!(live, ["home/bedroom/humidity 55", "home parent level", "home/bedroom/temp 19.8"]);
}

#[test]
fn an_empty_payload_deletes_a_retained_value() {
    let mut daemon = Daemon::started("retained-delete", "");
    publish(&daemon, &["-t", "shelf/a", "-m", "old", "-r", "-q", "1"]);
    publish(&daemon, &["-t", "shelf/a", "-m", "new", "-r", "-q", "2"]);
    publish(&daemon, &["-t", "shelf/b", "-m", "gone", "-r", "-q", "1"]);
    publish(&daemon, &["-t", "shelf/b", "-n", "-r", "-q", "1"]);
    daemon.kill_and_restart();
    let shelf = subscribe(&daemon, &["-t", "shelf/+", "-F", "%t %p qos %q retain %r", "-q", "2", "-W", "2"]);
    // -W ends with status 27 when its time is up.
    let output = shelf.finish().output;
    assert_eq!(messages(&output).first(), Some(&"shelf/a new qos 2 retain 1"));
    assert!(!output.contains("shelf/b"), "{output}");
}

#[test]
fn a_persistent_session_survives_kill_9() {
    let mut daemon = Daemon::started("kill-9", "");
    let paho = |daemon: &Daemon, step| Tool::python(daemon, "persistent_session.py", &[step]).succeed();
    assert_eq!(paho(&daemon, "subscribe"), "CONNACK rc=Success session_present=False\nSUBACK granted=[1]\n");
    assert_eq!(
        paho(&daemon, "publish"),
        "PUBACK mid=1 topic=plant/room1/alarm\nPUBACK mid=2 topic=plant/room2/alarm\n\
         PUBACK mid=3 topic=plant/room1/alarm\nPUBACK mid=4 topic=plant/status (retained)\n"
    );
    daemon.kill_and_restart();
    daemon.wait_for_log("recovered 1 sessions, 3 queued messages, 1 retained");
    assert_eq!(
        paho(&daemon, "resume"),
        "CONNACK rc=Success session_present=True\n\
         PUBLISH topic=plant/room1/alarm qos=1 dup=1 payload={\"seq\": 1, \"temp_c\": -12.5}\n\
         PUBLISH topic=plant/room2/alarm qos=1 dup=1 payload={\"seq\": 2, \"temp_c\": -3.1}\n\
         PUBLISH topic=plant/room1/alarm qos=1 dup=1 payload={\"seq\": 3, \"temp_c\": 4.8}\n"
    );
    assert_eq!(paho(&daemon, "dashboard"), "PUBLISH topic=plant/status retain=1 payload=online\n");

    // What the worker has acknowledged is gone for good, once the acknowledgements are on flash.
    std::thread::sleep(ACKNOWLEDGEMENTS_FLUSHED);
    daemon.kill_and_restart();
    daemon.wait_for_log("recovered 1 sessions, 0 queued messages, 1 retained");
    assert_eq!(paho(&daemon, "resume"), "CONNACK rc=Success session_present=True\n");
}

#[test]
fn qos_2_shows_its_packets_in_both_directions() {
    let daemon = Daemon::started("qos2", "");
    let billing = subscribe(&daemon, &["-i", "billing", "-t", "meter/+/kwh", "-q", "2", "-C", "1"]);
    let meter = publish(&daemon, &["-i", "meter-42", "-t", "meter/42/kwh", "-m", "1532.7", "-q", "2", "-d"]);
    assert_eq!(
        packets(&meter),
        [
            "Client meter-42 sending CONNECT",
            "Client meter-42 received CONNACK (0)",
            "Client meter-42 sending PUBLISH (d0, q2, r0, m1, 'meter/42/kwh', ... (6 bytes))",
            "Client meter-42 received PUBREC (Mid: 1)",
            "Client meter-42 sending PUBREL (m1)",
            "Client meter-42 received PUBCOMP (Mid: 1, RC:0)",
            "Client meter-42 sending DISCONNECT",
        ]
    );
    let billing = billing.succeed();
    assert!(billing.contains("Subscribed (mid: 1): 2"), "{billing}");
    assert_eq!(
        packets(&billing),
        [
            "Client billing sending CONNECT",
            "Client billing received CONNACK (0)",
            "Client billing sending SUBSCRIBE (Mid: 1, Topic: meter/+/kwh, QoS: 2, Options: 0x00)",
            "Client billing received SUBACK",
            "Client billing received PUBLISH (d0, q2, r0, m1, 'meter/42/kwh', ... (6 bytes))",
            "Client billing sending PUBREC (m1, rc0)",
            "Client billing received PUBREL (Mid: 1)",
            "Client billing sending PUBCOMP (m1)",
            "Client billing sending DISCONNECT",
        ]
    );
    assert_eq!(messages(&billing), ["1532.7"]);
}

#[test]
fn two_equal_payloads_acknowledged_once_leave_one() {
    let mut daemon = Daemon::started("equal", "");
    let paho = |daemon: &Daemon, step| Tool::python(daemon, "equal_payloads.py", &[step]).succeed();
    assert_eq!(paho(&daemon, "subscribe"), "session_present=False\n");
    publish(&daemon, &["-t", "press/count", "-m", "same", "-q", "1"]);
    publish(&daemon, &["-t", "press/count", "-m", "same", "-q", "1"]);
    assert_eq!(paho(&daemon, "acknowledge-one"), "session_present=True\nsame dup=0\nsame dup=0\n");
    assert_eq!(paho(&daemon, "acknowledge-none"), "session_present=True\nsame dup=1\n");
    std::thread::sleep(ACKNOWLEDGEMENTS_FLUSHED);
    daemon.kill_and_restart();
    daemon.wait_for_log("recovered 1 sessions, 1 queued messages");
    // The row says that the session was away when the message came, not that it was sent since: DUP is not told here.
    let left = paho(&daemon, "acknowledge-all");
    assert!(left.starts_with("session_present=True\nsame dup=") && left.lines().count() == 2, "{left}");
    assert_eq!(paho(&daemon, "acknowledge-all"), "session_present=True\n");
}

#[test]
fn the_bound_holds_on_flash_and_recovery_applies_a_smaller_one() {
    let mut daemon = Daemon::started("bound", "[queue.session]\nmessages_max = 50");
    let paho = |daemon: &Daemon, arguments: &[&str]| Tool::python(daemon, "bound.py", arguments).succeed();
    paho(&daemon, &["subscribe", "logger"]);
    paho(&daemon, &["publish", "0", "200"]);
    daemon.kill_and_restart();
    daemon.wait_for_log("recovered 1 sessions, 50 queued messages");

    // Fifty messages are on flash when the bound becomes twenty: the newest twenty stay, also over a second recovery.
    daemon.configure("[queue.session]\nmessages_max = 20");
    daemon.kill_and_restart();
    daemon.wait_for_log("recovered 1 sessions, 20 queued messages");
    daemon.kill_and_restart();
    let newest: String = (180..200).map(|number| format!("{number}\n")).collect();
    assert_eq!(paho(&daemon, &["receive", "logger"]), newest);
}

#[test]
fn mqtt_3_1_and_3_1_1_share_the_port() {
    let daemon = Daemon::started("versions", "");
    let old = subscribe(&daemon, &["-V", "mqttv31", "-i", "old", "-t", "v/#", "-v", "-C", "2", "-q", "2"]);
    let new = subscribe(&daemon, &["-V", "mqttv311", "-i", "new", "-t", "v/#", "-v", "-C", "2", "-q", "1"]);
    publish(&daemon, &["-V", "mqttv31", "-t", "v/31", "-m", "from 3.1", "-q", "2"]);
    publish(&daemon, &["-V", "mqttv311", "-t", "v/311", "-m", "from 3.1.1", "-q", "1"]);
    for tool in [old, new] {
        assert_eq!(messages(&tool.succeed()), ["v/31 from 3.1", "v/311 from 3.1.1"]);
    }
}

#[test]
fn payloads_are_bytes() {
    let daemon = Daemon::started("bytes", "");
    let file = daemon.folder().join("payload");
    let payload: Vec<u8> = (0..70_000_u32).map(|i| (i % 256).to_le_bytes()[0]).collect();
    std::fs::write(&file, &payload).unwrap();
    let hex = subscribe(&daemon, &["-t", "raw", "-F", "%x", "-C", "1", "-q", "1"]);
    publish(&daemon, &["-t", "raw", "-f", file.to_str().unwrap(), "-q", "1"]);
    let expected: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
    let output = hex.succeed();
    assert!(messages(&output) == [expected], "{} characters of output", output.len());
}

#[test]
fn sys_topics_tell_about_the_broker_and_wildcards_leave_them_out() {
    let daemon = Daemon::started("sys", "");
    let system = subscribe(&daemon, &["-t", "$SYS/#", "-v", "-C", "1", "-W", "20"]);
    let everything = subscribe(&daemon, &["-t", "#", "-t", "+/+", "-v", "-C", "1", "-W", "20"]);
    let system = system.succeed();
    assert!(messages(&system).iter().all(|line| line.starts_with("$SYS/")), "{system}");
    publish(&daemon, &["-t", "plain/topic", "-m", "x", "-q", "1"]);
    assert_eq!(messages(&everything.succeed()), ["plain/topic x"]);
}
