//! A publisher, and the program's verbs with their results.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{self, Daemon};

/// Publishes at least once, and returns when it is acknowledged.
pub struct Publisher(TcpStream);

impl Publisher {
    pub fn new(daemon: &Daemon) -> Self {
        let mut stream = TcpStream::connect(daemon.mqtt()).unwrap();
        stream.set_read_timeout(Some(daemon::PATIENCE)).unwrap();
        stream.write_all(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04test").unwrap();
        let mut reply = [0; 4];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, [0x20, 2, 0, 0]);
        Self(stream)
    }

    pub fn publish(&mut self, topic: &str, payload: &[u8]) {
        self.publish_all([(topic.to_owned(), payload.to_vec())]);
    }

    /// Publishes all, and returns when the last is acknowledged.
    pub fn publish_all(&mut self, messages: impl IntoIterator<Item = (String, Vec<u8>)>) {
        let mut count = 0;
        let mut packets = Vec::new();
        for (topic, payload) in messages {
            packets.extend(packet(&topic, &payload));
            count += 1;
        }
        self.0.write_all(&packets).unwrap();
        let mut replies = vec![0; 4 * count];
        self.0.read_exact(&mut replies).unwrap();
        assert!(replies.chunks(4).all(|reply| reply == [0x40, 2, 0, 1]));
    }
}

/// PUBLISH at QoS 1 with identifier 1.
fn packet(topic: &str, payload: &[u8]) -> Vec<u8> {
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
    packet
}

/// The most memory that a process has had so far, bytes.
pub fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

pub fn run(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = daemon.command(arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {err}\n{}", daemon.log());
    out.into_owned()
}

/// Results without the time of their arrival, which nobody knows.
pub fn rows(daemon: &Daemon, arguments: &[&str]) -> Vec<Value> {
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

pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < daemon::PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
