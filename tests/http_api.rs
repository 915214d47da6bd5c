//! The HTTP API of the real program, over TCP and over the control socket: health, publishing, looking into queues and
//! emptying them, ending clients, losses, and metrics that Prometheus' own checker takes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "these tests drive processes in real time")]
#![expect(clippy::print_stderr, reason = "the daemon's log is part of a failure message")]

#[path = "support/daemon.rs"]
#[expect(dead_code, reason = "each test binary uses its part")]
mod daemon;
#[path = "http_api/description.rs"]
mod description;
#[path = "http_api/guarding.rs"]
mod guarding;
#[path = "http_api/metrics.rs"]
mod metrics;
#[path = "http_api/operating.rs"]
mod operating;
#[path = "http_api/page.rs"]
mod page;
#[path = "http_api/publishing.rs"]
mod publishing;
#[path = "support/tool.rs"]
#[expect(dead_code, reason = "each test binary uses its part")]
mod tool;
#[path = "http_api/verbs.rs"]
mod verbs;

use std::process::Command;

use daemon::Daemon;
use serde_json::Value;

/// What curl got: the status, and the body.
struct Answer {
    status: u16,
    content_type: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        assert_eq!(self.content_type, "application/json", "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Runs curl against the daemon.
fn curl(daemon: &Daemon, target: &str, arguments: &[&str]) -> Answer {
    let url = format!("http://{}{target}", daemon.http());
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "30",
            "--write-out",
            "\n%{http_code} %{content_type}",
        ])
        .args(arguments)
        .arg(url)
        .output()
        .expect("curl is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, last) = text.rsplit_once('\n').unwrap();
    let (status, content_type) = last.split_once(' ').unwrap();
    Answer { status: status.parse().unwrap(), content_type: content_type.to_owned(), body: body.to_owned() }
}

fn get(daemon: &Daemon, target: &str) -> Answer {
    curl(daemon, target, &[])
}

fn publish(daemon: &Daemon, parameters: &str, payload: &str) -> Answer {
    curl(daemon, &format!("/api/v1/publish?{parameters}"), &["--data-binary", payload])
}
