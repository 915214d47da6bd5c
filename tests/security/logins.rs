//! What wrong passwords cost.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::daemon::Daemon;
use crate::tool::Tool;

fn started(name: &str, auth: &str) -> Daemon {
    let mut daemon = Daemon::new(name, "");
    let passwords = daemon.folder().join("passwords");
    fs::write(&passwords, "").expect("it can be written");
    for user in ["ann", "bob"] {
        let done = Command::new("mosquitto_passwd").arg("-b").arg(&passwords).args([user, user]).status();
        assert!(done.expect("mosquitto_passwd is installed").success());
    }
    daemon.configure(&format!("[auth]\npassword_file = \"{}\"\n{auth}", passwords.display()));
    daemon.start_listening();
    daemon
}

fn log_in(daemon: &Daemon, user: &str, password: &str) -> bool {
    let arguments = ["-q", "1", "-u", user, "-P", password, "-t", "a", "-m", "x"];
    Tool::mosquitto(daemon, "mosquitto_pub", &arguments).finish().status.success()
}

fn status_by_http(daemon: &Daemon, login: &str) -> String {
    let url = format!("http://{}/api/v1/status", daemon.http());
    let done = Command::new("curl")
        .args(["-sS", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code}", "-u", login, &url])
        .output();
    String::from_utf8_lossy(&done.expect("curl is installed").stdout).into_owned()
}

#[test]
fn a_wrong_password_is_answered_later_and_a_right_one_at_once() {
    let daemon = started("failed-delay", "failed_delay = \"1500ms\"\n");
    let start = Instant::now();
    assert!(!log_in(&daemon, "ann", "wrong"));
    assert!(start.elapsed() >= Duration::from_millis(1500));
    let start = Instant::now();
    assert_eq!(status_by_http(&daemon, "ann:wrong"), "401");
    assert!(start.elapsed() >= Duration::from_millis(1500));
    assert!(log_in(&daemon, "ann", "ann"));
    assert_eq!(status_by_http(&daemon, "ann:ann"), "200");
}

#[test]
fn too_many_wrong_passwords_lock_one_user_out_and_a_new_start_or_time_lets_it_in() {
    let daemon = started("lockout", "failed_delay = \"0s\"\nlockout_failures = 3\nlockout_for = \"3s\"\n");
    // They were right a moment ago, and are believed without a look at the hash.
    assert!(log_in(&daemon, "ann", "ann") && log_in(&daemon, "bob", "bob"));
    assert_eq!(status_by_http(&daemon, "ann:ann"), "200");
    for _ in 0..2 {
        assert!(!log_in(&daemon, "ann", "wrong"));
    }
    assert_eq!(status_by_http(&daemon, "ann:wrong"), "401", "they count together, whatever the protocol");
    daemon.wait_for_log("locked out after too many wrong passwords");
    assert!(!log_in(&daemon, "ann", "ann"), "even the right password");
    assert_eq!(status_by_http(&daemon, "ann:ann"), "401");
    let status = String::from_utf8(daemon.command(&["status", "--json"]).stdout).expect("it is text");
    let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
    assert_eq!(status["denied"]["login"], 5, "by MQTT three, by HTTP two: {status}");
    assert!(log_in(&daemon, "bob", "bob"), "nobody else");
    let start = Instant::now();
    while !log_in(&daemon, "ann", "ann") {
        assert!(start.elapsed() < crate::daemon::PATIENCE, "locked out for ever");
        std::thread::sleep(Duration::from_millis(100));
    }
}
