//! What systemd is told, and what it hands over, as far as that needs no systemd: a socket that stands for its own, a
//! port that a parent opened, the unit's text. `scripts/test-systemd` tries the unit under a real one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "these tests drive processes in real time")]

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

struct Service {
    folder: PathBuf,
    notify: UnixDatagram,
    child: Child,
    told: Vec<String>,
}

impl Service {
    /// Starts the gateway as systemd would: `wrapped` stands before the program's name.
    fn start(name: &str, configuration: &str, wrapped: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).unwrap();
        let config = folder.join("gateway.toml");
        let state = folder.join("state");
        fs::write(&config, format!("{configuration}\n[storage]\npath = \"{}\"\n", state.display())).unwrap();
        let notify = UnixDatagram::bind(folder.join("notify")).unwrap();
        notify.set_read_timeout(Some(PATIENCE)).unwrap();
        let line: Vec<&str> = wrapped.iter().copied().chain([env!("CARGO_BIN_EXE_gatewayd")]).collect();
        let child = Command::new(line[0])
            .args(&line[1..])
            .args(["run", "--config"])
            .arg(&config)
            .env("NOTIFY_SOCKET", folder.join("notify"))
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { folder, notify, child, told: Vec::new() }
    }

    /// Waits until systemd is told something that begins with `text`.
    fn wait_told(&mut self, text: &str) -> String {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let mut buffer = [0; 4096];
            let Ok(length) = self.notify.recv(&mut buffer) else { break };
            let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
            self.told.push(message.clone());
            if let Some(line) = message.lines().find(|line| line.starts_with(text)) {
                return line.to_owned();
            }
        }
        panic!("never told {text}: {:?}", self.told);
    }

    fn terminate(&mut self) -> String {
        let kill = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        assert!(self.child.wait().unwrap().success());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Gone already, or it would stay.
        self.child.kill().ok();
        self.child.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// Listeners on free ports of this process's own.
fn configuration() -> String {
    ["mqtt", "amqp", "http"].map(|name| format!("[listener.{name}]\nbind = \"127.0.0.1:0\"\n")).concat()
}

#[test]
fn systemd_is_told_from_start_to_stop() {
    // systemd names the process that has to feed it; without a name it is whoever asks.
    let mut service = Service::start("notify", &configuration(), &[], &[("WATCHDOG_USEC", "1500000")]);
    service.wait_told("EXTEND_TIMEOUT_USEC=600000000");
    service.wait_told("READY=1");
    for _ in 0..4 {
        service.wait_told("WATCHDOG=1");
    }
    let status: Vec<&String> =
        service.told.iter().filter(|told| told.starts_with("STATUS=0 clients")).collect();
    assert_eq!(status.len(), 1, "the same line is told once: {:?}", service.told);
    service.terminate();
    service.wait_told("STOPPING=1");
}

/// The daemon stands still: nobody feeds the watchdog, so that systemd would end it.
#[test]
fn a_daemon_that_stands_still_feeds_nobody() {
    let mut service = Service::start("hang", &configuration(), &[], &[("WATCHDOG_USEC", "600000")]);
    service.wait_told("WATCHDOG=1");
    let pid = service.child.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    service.notify.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    let mut buffer = [0; 4096];
    // What was on its way.
    while service.notify.recv(&mut buffer).is_ok_and(|length| length > 0) {}
    assert!(service.notify.recv(&mut buffer).is_err());
    assert!(Command::new("kill").args(["-CONT", &pid]).status().unwrap().success());
    service.notify.set_read_timeout(Some(PATIENCE)).unwrap();
    service.wait_told("WATCHDOG=1");
}

#[test]
fn a_port_that_systemd_opened_is_used() {
    let script = "import os, socket, sys\n\
        s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n\
        s.fileno() == 3 or os.dup2(s.fileno(), 3); os.set_inheritable(3, True)\n\
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1', LISTEN_FDNAMES='mqtt')\n\
        open(sys.argv[1], 'w').write(str(s.getsockname()[1]))\n\
        os.execv(sys.argv[2], sys.argv[2:])\n";
    let port_file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("port-{}", std::process::id()));
    let wrapped = ["python3", "-c", script, port_file.to_str().unwrap()];
    // The address in the configuration is another one: the name decides.
    let mut service = Service::start("inherited", &configuration(), &wrapped, &[]);
    service.wait_told("READY=1");
    let port: u16 = fs::read_to_string(&port_file).unwrap().parse().unwrap();
    fs::remove_file(&port_file).unwrap();
    let published = Command::new("mosquitto_pub")
        .args(["-p", &port.to_string(), "-t", "a", "-m", "x", "-q", "1"])
        .status()
        .expect("mosquitto_pub is there");
    assert!(published.success());
    let log = service.terminate();
    assert!(log.contains(&format!("address=127.0.0.1:{port}")), "{log}");
}

#[test]
fn the_unit_says_what_the_documents_say() {
    let unit = fs::read_to_string("systemd/gatewayd.service").unwrap();
    for line in
        ["Type=notify", "WatchdogSec=30s", "RestartPreventExitStatus=78", "User=gatewayd", "UMask=0027"]
    {
        assert!(unit.lines().any(|known| known == line), "{line}");
    }
}

#[test]
fn log_lines_that_repeat_are_counted() {
    let mut service = Service::start("repeats", &configuration(), &[], &[]);
    service.wait_told("READY=1");
    let log = service.terminate();
    // Three listeners say nearly the same, but not the same.
    assert_eq!(log.matches("INFO listening listener=").count(), 3, "{log}");
    let first = log.lines().next().unwrap();
    assert!(first.contains('T') && first.contains("Z  INFO recovered 0 sessions"), "{first}");
}
