//! Foreign clients as processes: started with their output in a file, watched until they have said something, ended.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, PATIENCE};

pub struct Tool {
    name: String,
    child: Child,
    output: PathBuf,
}

/// What a tool has left.
pub struct Finished {
    pub status: ExitStatus,
    /// Standard output and standard error.
    pub output: String,
}

impl Tool {
    /// Starts a Mosquitto client (`mosquitto_pub`, `mosquitto_sub`) aimed at the daemon.
    pub fn mosquitto(daemon: &Daemon, program: &str, arguments: &[&str]) -> Self {
        let (host, port) = (daemon.mqtt().ip().to_string(), daemon.mqtt().port().to_string());
        let mut all = vec!["-h", &host, "-p", &port];
        all.extend_from_slice(arguments);
        Self::start(daemon, program, &all)
    }

    /// Starts a script of `tests/clients` in the project's own Python environment; its first arguments are host and port.
    pub fn python(daemon: &Daemon, script: &str, arguments: &[&str]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = root.join(".venv/bin/python");
        assert!(python.exists(), "{} is missing: ./scripts/test makes it", python.display());
        let script = root.join("tests/clients").join(script);
        let (host, port) = (daemon.mqtt().ip().to_string(), daemon.mqtt().port().to_string());
        let mut all = vec!["-u", script.to_str().expect("the project's path is text"), &host, &port];
        all.extend_from_slice(arguments);
        Self::start(daemon, python.to_str().expect("the project's path is text"), &all)
    }

    /// Starts any program, its output line-buffered.
    pub fn start(daemon: &Daemon, program: &str, arguments: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let output = daemon.folder().join(format!("output-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let file = File::create(&output).expect("the test's folder can be written");
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "-eL", program]).args(arguments).stdin(Stdio::null());
        command.stdout(file.try_clone().expect("a file can be shared")).stderr(file);
        let child = command.spawn().unwrap_or_else(|error| panic!("{program} cannot be started: {error}"));
        Self { name: format!("{program} {}", arguments.join(" ")), child, output }
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Waits until it has written `text`.
    pub fn wait_for(&self, text: &str) {
        let start = Instant::now();
        while !self.output().contains(text) {
            assert!(start.elapsed() < PATIENCE, "{} never wrote {text:?}:\n{}", self.name, self.output());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end: some of them do a lot, on a machine that may be busy.
    pub fn finish(mut self) -> Finished {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return Finished { status, output: self.output() };
            }
            assert!(start.elapsed() < 4 * PATIENCE, "{} does not end:\n{}", self.name, self.output());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end, which must be a success; returns its output.
    pub fn succeed(self) -> String {
        let name = self.name.clone();
        let Finished { status, output } = self.finish();
        assert!(status.success(), "{name} failed with {status}:\n{output}");
        output
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

/// `mosquitto_pub`, to its successful end; its output.
pub fn publish(daemon: &Daemon, arguments: &[&str]) -> String {
    Tool::mosquitto(daemon, "mosquitto_pub", arguments).succeed()
}

/// `mosquitto_sub -d`, subscribed when this returns.
pub fn subscribe(daemon: &Daemon, arguments: &[&str]) -> Tool {
    let mut all = vec!["-d"];
    all.extend_from_slice(arguments);
    let tool = Tool::mosquitto(daemon, "mosquitto_sub", &all);
    tool.wait_for("Subscribed (mid");
    tool
}

/// Resumes the persistent session of `mosquitto_sub -c -q 1` until it has as many messages as its `-C` says, at most 20
/// seconds; they may come before the SUBACK.
pub fn resume(daemon: &Daemon, arguments: &[&str]) -> Vec<String> {
    let all = [&["-c", "-q", "1", "-W", "20"], arguments].concat();
    let output = Tool::mosquitto(daemon, "mosquitto_sub", &all).succeed();
    output.lines().map(str::to_owned).collect()
}

/// The messages in the output of `mosquitto_sub -d`, without what `-d` adds.
pub fn messages(output: &str) -> Vec<&str> {
    output
        .lines()
        .filter(|line| !line.starts_with("Client ") && !line.starts_with("Subscribed (mid"))
        .collect()
}

/// The packets that `-d` has told, in order.
pub fn packets(output: &str) -> Vec<&str> {
    output.lines().filter(|line| line.starts_with("Client ")).collect()
}
