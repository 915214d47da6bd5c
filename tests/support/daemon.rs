//! A gatewayd process for a test: its own state folder, configuration and free ports on loopback, its output kept for
//! the failure message. Killed and removed when dropped.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use gateway_bench::ledger::Broker;
use gateway_bench::process::Server;

/// Longest wait for a start, a stop or an expected line.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Daemon {
    folder: PathBuf,
    mqtt: SocketAddr,
    amqp: SocketAddr,
    http: SocketAddr,
    server: Option<Server>,
}

impl Daemon {
    /// Writes the configuration with `extra` appended; nothing is started.
    pub fn new(name: &str, extra: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        let daemon =
            Self { mqtt: free_address(), amqp: free_address(), http: free_address(), folder, server: None };
        daemon.configure(extra);
        daemon
    }

    /// The same, started and listening.
    pub fn started(name: &str, extra: &str) -> Self {
        let mut daemon = Self::new(name, extra);
        daemon.start_listening();
        daemon
    }

    /// Writes the configuration anew; it counts from the next start on.
    pub fn configure(&self, extra: &str) {
        let (mqtt, amqp, http, state) = (self.mqtt, self.amqp, self.http, self.folder.join("state"));
        let text = format!(
            "[listener.mqtt]\nbind = \"{mqtt}\"\n[listener.amqp]\nbind = \"{amqp}\"\n[listener.http]\nbind = \"{http}\"\n\
             [storage]\npath = \"{}\"\n{extra}\n",
            state.display()
        );
        fs::write(self.config(), text).expect("the configuration can be written");
    }

    pub fn start_listening(&mut self) {
        let started = self.start().and_then(|()| self.wait_listening());
        started.unwrap_or_else(|error| panic!("gatewayd does not start: {error}\n{}", self.log()));
    }

    /// SIGKILL and a new start.
    pub fn kill_and_restart(&mut self) {
        self.kill().expect("a child can be killed");
        self.start_listening();
    }

    /// SIGTERM; panics unless the process ends by itself with status 0.
    pub fn terminate(&mut self) {
        let mut server = self.server.take().expect("the daemon runs");
        let clean = server.terminate(PATIENCE);
        assert!(matches!(clean, Ok(true)), "SIGTERM did not end gatewayd cleanly: {clean:?}\n{}", self.log());
    }

    /// Runs `gatewayd VERB...` with this configuration to its end.
    pub fn command(&self, arguments: &[&str]) -> Output {
        let (verb, rest) = arguments.split_first().expect("a verb is given");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatewayd"));
        command.arg(verb).arg("--config").arg(self.config()).args(rest);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("gatewayd can be run");
        let start = Instant::now();
        while child.try_wait().expect("a child can be waited for").is_none() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Already gone, or it would never end by itself; the status tells which.
        child.kill().ok();
        child.wait_with_output().expect("a child's output can be read")
    }

    /// Everything that the daemon has written so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Waits until the log holds `text`; returns the first line that does.
    pub fn wait_for_log(&self, text: &str) -> String {
        let start = Instant::now();
        loop {
            if let Some(line) = self.log().lines().find(|line| line.contains(text)) {
                return line.to_owned();
            }
            assert!(start.elapsed() < PATIENCE, "the log never said {text:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub const fn mqtt(&self) -> SocketAddr {
        self.mqtt
    }

    pub const fn amqp(&self) -> SocketAddr {
        self.amqp
    }

    pub const fn http(&self) -> SocketAddr {
        self.http
    }

    /// The running process.
    pub fn pid(&self) -> u32 {
        self.server.as_ref().expect("the daemon runs").pid()
    }

    /// The folder of this test: state, configuration, log, and what else the test puts there.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn config(&self) -> PathBuf {
        self.folder.join("gateway.toml")
    }
}

impl Broker for Daemon {
    fn start(&mut self) -> io::Result<()> {
        let command = format!("{} run --config {}", env!("CARGO_BIN_EXE_gatewayd"), self.config().display());
        self.server = Some(Server::spawn(&command, Some(&self.folder.join("log")))?);
        Ok(())
    }

    fn wait_listening(&mut self) -> io::Result<()> {
        let server = self.server.as_mut().ok_or_else(|| io::Error::other("the daemon is not started"))?;
        server.wait_listening(self.mqtt, PATIENCE).map(|_| ())
    }

    fn kill(&mut self) -> io::Result<()> {
        self.server.take().map_or(Ok(()), |mut server| server.kill())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of gatewayd in {}:\n{}", self.folder.display(), self.log());
        }
        self.server = None;
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// An address that nobody has: a loopback address of this test process alone, and a port below the range from which the
/// system takes ports of outgoing connections, so that nobody takes it between two lives of a daemon.
///
/// It is not tried out with a listener: a process that another thread starts meanwhile would hold that for a moment too,
/// take connections that are meant for the daemon, and reset them.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    // A process identifier has 22 bits at most: 127.64.0.0 to 127.127.255.255.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 64 + high % 64, middle, low], NEXT.fetch_add(1, Ordering::Relaxed)))
}
