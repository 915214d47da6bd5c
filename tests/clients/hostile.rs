//! Peers that break the rules on a real socket: their connection ends, everybody else goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::daemon::Daemon;
use crate::tool::{messages, publish, subscribe};

const CONNECT: &[u8] = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04evil";

/// Sends `bytes` and reads until the broker closes; returns what it said.
fn talk(daemon: &Daemon, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(daemon.mqtt()).expect("the daemon listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket takes a timeout");
    // The broker may close before it has read everything.
    stream.write_all(bytes).ok();
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return answer,
            Ok(length) => answer.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return answer,
            Err(error) => panic!("the broker keeps the connection after {bytes:?}: {error}"),
        }
    }
}

/// What lies unread in the socket would have the system reset it, and the reason would be lost.
#[test]
fn the_reason_reaches_a_peer_that_goes_on_sending() {
    let daemon = Daemon::started("reason", "");
    let connect5 = b"\x10\x11\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x04evil";
    let beginnings: [(&[u8], &[u8]); 3] = [
        // QoS 3.
        (connect5, b"\x36\x06\x00\x01a\x00\x01x"),
        // Larger than the gateway said it takes.
        (connect5, b"\x30\xFF\xFF\xFF\x7F\x00\x01a"),
        // A level that nobody speaks, in CONNECT already.
        (b"", b"\x10\x11\x00\x04MQTT\x07\x02\x00\x00\x00\x00\x04evil"),
    ];
    for ((connect, fault), expected) in beginnings.into_iter().zip([0x81, 0x95, 0x84]) {
        let mut stream = TcpStream::connect(daemon.mqtt()).expect("the daemon listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket takes a timeout");
        let everything = [connect, fault, &vec![0; 1 << 20]].concat();
        stream.write_all(&everything).expect("all is taken, though nothing of it is wanted");
        std::thread::sleep(Duration::from_millis(100));
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the end comes without a reset");
        let last = if connect.is_empty() {
            assert_eq!(answer.first(), Some(&0x20));
            answer[3]
        } else {
            let connack = 2 + usize::from(answer[1]);
            assert_eq!(answer[connack], 0xE0, "DISCONNECT follows CONNACK");
            answer[connack + 2]
        };
        assert_eq!(last, expected, "{answer:x?}");
    }
}

/// Also when the gateway stops in the middle of a flood.
#[test]
fn a_stop_is_told_to_a_client_that_floods() {
    let mut daemon = Daemon::started("flood-at-stop", "");
    let mut stream = TcpStream::connect(daemon.mqtt()).expect("the daemon listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket takes a timeout");
    let connect5 = b"\x10\x12\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x05flood";
    stream.write_all(connect5).expect("it can be sent");
    let mut connack = [0; 2];
    stream.read_exact(&mut connack).expect("CONNACK comes");
    let mut writer = stream.try_clone().expect("a socket can be cloned");
    let flood = std::thread::spawn(move || {
        let packets = b"\x30\x05\x00\x01t\x00x".repeat(1000);
        while writer.write_all(&packets).is_ok() {}
    });
    std::thread::sleep(Duration::from_millis(200));
    daemon.terminate();
    let mut answer = vec![0; usize::from(connack[1])];
    stream.read_exact(&mut answer).expect("the rest of CONNACK");
    let mut head = [0; 3];
    stream.read_exact(&mut head).expect("DISCONNECT comes");
    assert_eq!((head[0], head[2]), (0xE0, 0x8B), "{head:x?}");
    flood.join().expect("it ends with its connection");
}

/// Out of descriptors: those who are connected go on, those who come wait, and they are served once there is room.
#[test]
fn a_process_out_of_descriptors_serves_who_is_there_and_later_who_waits() {
    let daemon = Daemon::started("descriptors", "");
    let mut witness = TcpStream::connect(daemon.mqtt()).expect("the daemon listens");
    witness.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket takes a timeout");
    witness.write_all(CONNECT).expect("it can be sent");
    let mut connack = [0; 4];
    witness.read_exact(&mut connack).expect("CONNACK comes");
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("the daemon runs").count();
    let limit = |descriptors: usize| {
        let arguments = [format!("--pid={}", daemon.pid()), format!("--nofile={descriptors}:")];
        let done =
            std::process::Command::new("prlimit").args(arguments).status().expect("prlimit is installed");
        assert!(done.success());
    };
    limit(open + 4);
    let others: Vec<_> =
        (0..20).map(|_| TcpStream::connect(daemon.mqtt()).expect("the system takes it")).collect();
    daemon.wait_for_log("connection not accepted");
    witness.write_all(b"\xC0\x00").expect("it can be sent");
    let mut pong = [0; 2];
    witness.read_exact(&mut pong).expect("who is there is served");
    limit(1024);
    let mut last = others.into_iter().next_back().expect("there are some");
    last.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket takes a timeout");
    last.write_all(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04last").expect("it can be sent");
    last.read_exact(&mut connack).expect("who waited is served once there is room");
    assert_eq!(connack, *b"\x20\x02\x00\x00");
}

/// A peer without a keep-alive whose network is gone is found out by TCP.
#[test]
fn tcp_looks_after_a_peer_without_a_keep_alive() {
    let daemon = Daemon::started("tcp-keep-alive", "");
    let mut stream = TcpStream::connect(daemon.mqtt()).expect("the daemon listens");
    stream.write_all(CONNECT).expect("it can be sent");
    let mut connack = [0; 4];
    stream.read_exact(&mut connack).expect("CONNACK comes");
    let ss = std::process::Command::new("ss")
        .args(["-Htno", "state", "established", "src", &daemon.mqtt().to_string()])
        .output()
        .expect("ss is installed");
    let shown = String::from_utf8_lossy(&ss.stdout);
    assert!(shown.contains("timer:(keepalive,4min") || shown.contains("timer:(keepalive,5min"), "{shown}");
}

#[test]
fn rule_breakers_are_cut_off_and_the_others_never_notice() {
    let daemon = Daemon::started("hostile", "");
    let witness = subscribe(&daemon, &["-t", "still/here", "-C", "1", "-q", "2"]);
    let after_connect = |bytes: &[u8]| [CONNECT, bytes].concat();
    let breaches = [
        ("not MQTT", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("PUBLISH first", b"\x30\x05\x00\x01ab!".to_vec()),
        ("Remaining Length of five bytes", b"\x10\xFF\xFF\xFF\xFF\x01".to_vec()),
        ("a huge CONNECT", b"\x10\xFF\xFF\xFF\x7F".to_vec()),
        ("second CONNECT", after_connect(CONNECT)),
        ("QoS 3", after_connect(b"\x36\x06\x00\x01a\x00\x01x")),
        ("packet identifier 0", after_connect(b"\x32\x06\x00\x01a\x00\x00x")),
        ("wildcard in a topic name", after_connect(b"\x30\x04\x00\x01+x")),
        ("invalid UTF-8", after_connect(b"\x30\x05\x00\x02\xC3\x28x")),
        ("SUBSCRIBE with wrong flags", after_connect(b"\x80\x06\x00\x01\x00\x01a\x00")),
        ("SUBSCRIBE without a filter", after_connect(b"\x82\x02\x00\x01")),
        ("a server's packet", after_connect(b"\x20\x02\x00\x00")),
        ("type 0", after_connect(b"\x00\x00")),
        ("a packet above the limit", after_connect(b"\x30\xFF\xFF\xFF\x7F\x00\x01a")),
    ];
    for (breach, bytes) in breaches {
        let answer = talk(&daemon, &bytes);
        let expected: &[u8] = if bytes.starts_with(CONNECT) { b"\x20\x02\x00\x00" } else { b"" };
        assert_eq!(answer, expected, "{breach}");
    }
    publish(&daemon, &["-t", "still/here", "-m", "yes", "-q", "2"]);
    assert_eq!(messages(&witness.succeed()), ["yes"]);
}

#[test]
fn an_unknown_protocol_level_is_refused_in_the_form_of_the_nearest_version() {
    let daemon = Daemon::started("level", "");
    // [MQTT-3.1.2-2] of 3.1.1: 1.
    assert_eq!(talk(&daemon, b"\x10\x10\x00\x04MQTT\x02\x02\x00\x00\x00\x04evil"), b"\x20\x02\x00\x01");
    // [MQTT-3.1.2-2] of 5.0: 0x84, with properties.
    let answer = talk(&daemon, b"\x10\x11\x00\x04MQTT\x07\x02\x00\x00\x00\x00\x04evil");
    assert_eq!((answer.first(), answer.get(3)), (Some(&0x20), Some(&0x84)), "{answer:x?}");
}

#[test]
fn who_never_connects_is_let_go() {
    let daemon = Daemon::started("slow-connect", "");
    let start = Instant::now();
    let (first, rest) = CONNECT.split_at(1);
    let mut stream = TcpStream::connect(daemon.mqtt()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(first).unwrap();
    // To the end: unlike a single read, this goes on after a signal.
    let end = stream.read_to_end(&mut Vec::new());
    let closed = match &end {
        Ok(length) => *length == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    };
    assert!(closed, "{end:?} after {:?}", start.elapsed());
    assert!(
        start.elapsed() < Duration::from_secs(55),
        "{} bytes short of a CONNECT for too long",
        rest.len()
    );
}
