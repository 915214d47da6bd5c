//! What the gateway keeps to: who may ask, whose places they take, and what is never touched by mistake.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;

use gateway_bench::ledger::Broker;

use super::{curl, get, publish};
use crate::daemon::Daemon;
use crate::tool::Tool;

fn run(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = daemon.command(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn readings(daemon: &Daemon) -> usize {
    let (code, out, err) = run(daemon, &["query", "readings", "--format", "jsonl"]);
    assert_eq!(code, Some(0), "{err}");
    out.lines().count()
}

#[test]
fn a_filter_that_is_none_deletes_nothing() {
    let daemon = Daemon::started("guard-delete", "");
    for n in 0..3 {
        assert_eq!(publish(&daemon, &format!("topic=sensors/{n}"), "{\n  \"value\": 1\n}\n").status, 200);
    }
    assert_eq!(readings(&daemon), 3, "a line each, however they were written");
    for filter in ["sensors/#/old", "sensors/a+", ""] {
        let (code, out, err) = run(&daemon, &["delete", "readings", "--topic", filter]);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{filter}: {err}");
        assert!(err.contains("is no filter"), "{filter}: {err}");
        assert_eq!(readings(&daemon), 3, "{filter}");
    }
    let (code, _, err) = run(&daemon, &["delete", "nope", "--all"]);
    assert_eq!((code, err.as_str()), (Some(1), "no collection nope\n"));
    let (code, out, _) = run(&daemon, &["delete", "readings", "--topic", "sensors/+"]);
    assert_eq!((code, out.as_str()), (Some(0), "deleted 3 readings\n"));

    assert_eq!(curl(&daemon, "/api/v1/collections", &["--head"]).status, 200);
    let posted = curl(&daemon, "/api/v1/collections/readings/query", &["--include", "--data", "x"]);
    assert!(posted.status == 405 && posted.body.to_lowercase().contains("\nallow: get\r"), "{}", posted.body);
    assert_eq!(publish(&daemon, "topic=u%ff", "x").status, 400);
    let own = publish(&daemon, "topic=$SYS/x", "x");
    assert!(own.status == 403 && own.body.contains("the gateway's own"), "{}", own.body);
}

#[test]
fn followers_take_no_places_of_queries_nor_anybody_those_of_the_control_socket() {
    let daemon = Daemon::started("guard-rooms", "");
    let url = format!("http://{}/api/v1/tail?topic=a/%23", daemon.http());
    let follow = || Tool::start(&daemon, "curl", &["--silent", "--no-buffer", "--include", &url]);
    let tails: Vec<Tool> = (0..8).map(|_| follow()).collect();
    for tail in &tails {
        tail.wait_for("200 OK");
    }
    follow().wait_for("503 Service Unavailable");
    assert_eq!(get(&daemon, "/api/v1/collections/readings/query").status, 200);
    assert_eq!(readings(&daemon), 0);
    let config = daemon.folder().join("gateway.toml").display().to_string();
    let tail = Tool::start(&daemon, env!("CARGO_BIN_EXE_gatewayd"), &["tail", "--config", &config, "a/#"]);
    let start = std::time::Instant::now();
    while !tail.output().contains("seen") {
        assert!(start.elapsed() < crate::daemon::PATIENCE, "{}", tail.output());
        publish(&daemon, "topic=a/b", "seen");
    }
}

/// An address of this machine that others use, if it has one.
fn address_of_this_machine() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent: it only asks for the way.
    socket.connect(("192.0.2.1", 9)).ok()?;
    socket.local_addr().ok().map(|own| own.ip()).filter(|ip| !ip.is_loopback())
}

fn status(address: SocketAddr, target: &str, header: &str) -> String {
    let output = Command::new("curl")
        .args([
            "-sS",
            "--noproxy",
            "*",
            "--max-time",
            "30",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            header,
        ])
        .arg(format!("http://{address}{target}"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn beyond_loopback_others_look_on_and_do_not_operate() {
    let mut daemon = Daemon::new("guard-beyond", "");
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    daemon.configure(&format!(
        "[listener.open]\nkind = \"http\"\nbind = \"0.0.0.0:{port}\"\nallow_anonymous = true"
    ));
    daemon.start_listening();
    let here = SocketAddr::from(([127, 0, 0, 1], port));
    let far = "Host: gateway.example:8380";
    for target in ["/metrics", "/api/v1/status", "/api/v1/collections", "/"] {
        assert_eq!(status(here, target, far), "200", "{target}");
        assert_eq!(status(daemon.http(), target, far), "403", "{target}, at the listener on loopback");
    }
    for target in ["/api/v1/backup", "/api/v1/denials", "/api/v1/acl"] {
        assert_eq!(status(here, target, far), "403", "{target}");
        assert_eq!(status(here, target, "Host: localhost"), "200", "{target}");
    }
    assert_eq!(status(here, "/metrics", "Origin: http://evil.example"), "403");
    if let Some(ip) = address_of_this_machine() {
        let there = SocketAddr::from((ip, port));
        assert_eq!(status(there, "/metrics", "Host: localhost"), "200");
        assert_eq!(status(there, "/api/v1/backup", "Host: localhost"), "403", "whatever Host it writes");
    }
}

fn state_of(daemon: &Daemon) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(daemon.folder().join("state"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file() && entry.file_name() != "gateway.lock")
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// Starts a daemon that ends by itself; answers its status and what it said.
fn fails(daemon: &Daemon) -> (Option<i32>, String) {
    let (code, out, err) = run(daemon, &["run"]);
    (code, out + &err)
}

#[test]
fn a_start_that_cannot_listen_writes_nothing() {
    let mut daemon = Daemon::new("guard-port", "");
    let other = TcpListener::bind(daemon.http()).unwrap();
    for _ in 0..2 {
        let (code, said) = fails(&daemon);
        assert!(code == Some(1) && said.contains("another process does"), "{code:?}: {said}");
        assert_eq!(state_of(&daemon), []);
    }
    drop(other);
    daemon.start_listening();
    assert_eq!(publish(&daemon, "topic=a&retain=true", "kept").status, 200);
    daemon.terminate();
    let before = state_of(&daemon);
    let other = TcpListener::bind(daemon.mqtt()).unwrap();
    assert_eq!(fails(&daemon).0, Some(1));
    assert!(before == state_of(&daemon), "the state folder was written to");
    drop(other);
    daemon.start_listening();
    daemon.wait_for_log("last stop: clean");
    daemon.terminate();
    // What cannot be told beforehand stops cleanly too: the control socket's place is taken.
    fs::write(daemon.folder().join("state/control.sock"), "mine").unwrap();
    let (code, said) = fails(&daemon);
    assert!(code == Some(1) && said.contains("no socket"), "{said}");
    assert_eq!(fs::read_to_string(daemon.folder().join("state/control.sock")).unwrap(), "mine");
    fs::remove_file(daemon.folder().join("state/control.sock")).unwrap();
    daemon.start_listening();
    daemon.wait_for_log("last stop: clean");
    assert!(!daemon.log().contains("not clean"), "{}", daemon.log());
}

#[test]
fn files_of_others_stay() {
    let mut daemon = Daemon::new("guard-files", "");
    let (pipe, file) = (daemon.folder().join("pipe"), daemon.folder().join("notes"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(&file, "mine").unwrap();
    let local =
        |path: &Path| format!("[listener.local]\nkind = \"mqtt\"\nbind = \"unix:{}\"", path.display());
    daemon.configure(&local(&file));
    let (code, said) = fails(&daemon);
    assert!(code == Some(1) && said.contains("a file that is no socket is there"), "{code:?}: {said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");

    daemon.configure("");
    daemon.start_listening();
    for running in [true, false] {
        let (code, _, err) = run(&daemon, &["backup", pipe.to_str().unwrap()]);
        assert!(code == Some(1) && err.contains("it is no regular file"), "{code:?}: {err}");
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        let (code, _, err) = run(&daemon, &["backup", file.to_str().unwrap()]);
        assert_eq!(code, Some(0), "a regular file is replaced: {err}");
        if running {
            daemon.terminate();
        }
    }
    assert!(daemon.kill().is_ok());
}
