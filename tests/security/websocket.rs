//! MQTT over WebSocket, with and without TLS, and over sockets in the file system.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::authority::Secured;
use crate::daemon::{Daemon, free_address};
use crate::tool::{Tool, messages, publish, subscribe};

#[test]
fn paho_speaks_mqtt_over_websocket_with_and_without_tls() {
    let plain = free_address();
    let secured =
        Secured::started("websocket", "", &format!("[listener.ws]\nkind = \"ws\"\nbind = \"{plain}\"\n"));
    let watcher = subscribe(&secured.daemon, &["-t", "ws/1", "-C", "2"]);
    let ca = secured.authority.text("ca.pem");
    for (address, ca) in [(plain, "-"), (secured.wss, ca.as_str())] {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let output = Tool::python(&secured.daemon, "mqtt_websocket.py", &[&host, &port, ca]).succeed();
        assert!(output.contains("ok 6"), "{output}");
    }
    assert_eq!(messages(&watcher.succeed()), ["small", "small"]);
}

/// One byte at a time, a packet over several frames with a ping between, a close: by hand, as no client does it.
#[test]
fn frames_may_split_packets_anywhere_and_a_ping_stands_between_them() {
    let address = free_address();
    let daemon = Daemon::started("frames", &format!("[listener.ws]\nkind = \"ws\"\nbind = \"{address}\"\n"));
    daemon.wait_for_log("kind=ws");
    let mut stream = TcpStream::connect(address).expect("the listener accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has a timeout");
    let request = format!(
        "GET /mqtt HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\
         Sec-WebSocket-Version: 13\r\n\r\n"
    );
    let connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04hand";
    let mut bytes = request.into_bytes();
    bytes.extend(frame(0x02, &connect[..5]));
    bytes.extend(frame(0x89, b"there?"));
    bytes.extend(frame(0x00, &connect[5..9]));
    bytes.extend(frame(0x80, &connect[9..]));
    for byte in bytes {
        stream.write_all(&[byte]).expect("it takes bytes");
    }
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer comes");
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head);
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    let mut answer = [0; 8 + 6];
    stream.read_exact(&mut answer).expect("a pong and a CONNACK come");
    assert_eq!(answer, *b"\x8a\x06there?\x82\x04\x20\x02\x00\x00");
    stream.write_all(&frame(0x88, &1000_u16.to_be_bytes())).expect("it takes bytes");
    let mut farewell = Vec::new();
    stream.read_to_end(&mut farewell).expect("it is closed");
    assert_eq!(farewell, b"\x88\x02\x03\xe8");

    // What is no WebSocket is told so in HTTP; a page from elsewhere gets nowhere where nobody logs in.
    for (request, status) in [
        ("GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n", "426"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("\x10\x10\x00\x04MQTT\r\n\r\n", "400"),
        (
            "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n",
            "403",
        ),
    ] {
        let mut stream = TcpStream::connect(address).expect("the listener accepts");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has a timeout");
        stream.write_all(request.as_bytes()).expect("it takes bytes");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is answered and closed");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 99, 200, 3];
    let mut out = vec![first, 0x80 | u8::try_from(payload.len()).expect("short")];
    out.extend(mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    out
}

#[test]
fn a_socket_in_the_file_system_serves_and_replaces_what_a_killed_daemon_left() {
    let mut daemon = Daemon::new("unix", "");
    let path = daemon.folder().join("mqtt.sock");
    daemon.configure(&format!("[listener.local]\nkind = \"mqtt\"\nbind = \"unix:{}\"\n", path.display()));
    daemon.start_listening();
    for _life in 0..2 {
        daemon.wait_for_log("unix:");
        let mode = fs::metadata(&path).expect("the socket is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let subscriber = subscribe(&daemon, &["-t", "a", "-C", "1"]);
        let mut stream = UnixStream::connect(&path).expect("the listener accepts");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has a timeout");
        stream.write_all(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04unix").expect("it takes bytes");
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).expect("a CONNACK comes");
        assert_eq!(answer, *b"\x20\x02\x00\x00");
        stream.write_all(b"\x30\x05\x00\x01ahi").expect("it takes bytes");
        assert_eq!(messages(&subscriber.succeed()), ["hi"]);
        let clients = daemon.command(&["status"]);
        assert!(clients.status.success());
        daemon.kill_and_restart();
    }
    publish(&daemon, &["-t", "a", "-m", "x"]);
    daemon.terminate();
    assert!(!path.exists(), "a clean stop removes the socket");
}

/// Who fills all places of HTTP keeps neither the operator nor MQTT out.
#[test]
fn connections_that_say_nothing_to_http_keep_the_operator_in() {
    let daemon = Daemon::started("http-room", "");
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("the daemon runs").count();
    // Whatever it inherited from who started it does not count.
    let before = descriptors();
    let silent: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(daemon.http()).expect("the system's queue takes it")).collect();
    std::thread::sleep(Duration::from_millis(200));
    let accepted = descriptors() - before;
    assert!(accepted < 70, "{accepted} more descriptors than {before}: those who wait were accepted");
    assert!(daemon.command(&["status"]).status.success(), "the control socket answers");
    publish(&daemon, &["-q", "1", "-t", "a", "-m", "x"]);
    drop(silent);
}
