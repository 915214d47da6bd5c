//! The server under load as a process: started, watched through /proc, ended by its own id.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal};

/// User and system time that a process has used, all its threads.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CpuTime {
    pub user_s: f64,
    pub system_s: f64,
}

impl CpuTime {
    #[must_use]
    pub fn total_s(self) -> f64 {
        self.user_s + self.system_s
    }

    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { user_s: self.user_s - earlier.user_s, system_s: self.system_s - earlier.system_s }
    }
}

/// From /proc/PID/stat, in steps of a clock tick (10 ms on most machines).
pub fn cpu_time(pid: u32) -> io::Result<CpuTime> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the command in parentheses and may hold anything; fields are counted after the last one.
    let (_, rest) = stat.rsplit_once(')').ok_or_else(|| bad("stat"))?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next().and_then(|field| field.parse::<u64>().ok()).ok_or_else(|| bad("stat"));
    let (user, system) = (ticks()?, ticks()?);
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok(CpuTime { user_s: user as f64 / per_second, system_s: system as f64 / per_second })
}

/// Resident memory in bytes, from /proc/PID/statm.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    Ok(pages.ok_or_else(|| bad("statm"))? * rustix::param::page_size() as u64)
}

/// How often the threads of a process went to sleep by themselves so far: each is a wake-up.
pub fn wake_ups(pid: u32) -> io::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = match fs::read_to_string(thread?.path().join("status")) {
            Ok(status) => status,
            // It ended since the folder was listed; ESRCH comes when it ends while it is read.
            Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(3) => continue,
            Err(error) => return Err(error),
        };
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += count.and_then(|count| count.trim().parse::<u64>().ok()).ok_or_else(|| bad("status"))?;
    }
    Ok(sum)
}

/// Bytes that a process has handed to the disk so far, from /proc/PID/io.
pub fn written_bytes(pid: u32) -> io::Result<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let bytes = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    bytes.and_then(|bytes| bytes.trim().parse().ok()).ok_or_else(|| bad("io"))
}

/// Raises the limit on open files to what the system lets this process have; returns it. Children inherit it.
pub fn raise_open_files() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// A server that this process started. It is killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts `command` (words split at blanks, no shell), its output appended to `log` or thrown away.
    pub fn spawn(command: &str, log: Option<&Path>) -> io::Result<Self> {
        let mut words = command.split_ascii_whitespace();
        let program =
            words.next().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "empty server command"))?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null());
        if let Some(log) = log {
            let log = File::options().create(true).append(true).open(log)?;
            command.stdout(log.try_clone()?).stderr(log);
        } else {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let child = command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("failed to start {program}: {error}")))?;
        Ok(Self { child })
    }

    /// A child that somebody else has spawned.
    #[must_use]
    pub const fn adopt(child: Child) -> Self {
        Self { child }
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a TCP connection is accepted; returns how long that took. An error when the process ends or
    /// `timeout` passes.
    pub fn wait_listening(&mut self, address: SocketAddr, timeout: Duration) -> io::Result<Duration> {
        let start = Instant::now();
        loop {
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return Ok(start.elapsed());
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the server ended before it listened: {status}")));
            }
            if start.elapsed() > timeout {
                return Err(io::Error::new(ErrorKind::TimedOut, format!("nothing listens on {address}")));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM; waits at most `timeout` for the end, else kills and returns an error. True: exit status 0.
    pub fn terminate(&mut self, timeout: Duration) -> io::Result<bool> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status.success());
        }
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let start = Instant::now();
        while start.elapsed() < timeout {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill()?;
        Err(io::Error::new(ErrorKind::TimedOut, "the server did not end after SIGTERM"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill().ok();
        }
    }
}

fn bad(file: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("/proc/PID/{file} has an unknown form"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_visible() {
        let pid = std::process::id();
        assert!(cpu_time(pid).unwrap().total_s() >= 0.0);
        assert!(resident_bytes(pid).unwrap() > 100_000);
        wake_ups(pid).unwrap();
    }

    #[test]
    fn a_server_is_ended_by_signal_and_an_early_end_is_told() {
        let mut server = Server::spawn("sleep 100", None).unwrap();
        assert!(!server.terminate(Duration::from_secs(5)).unwrap(), "ended by the signal, not by exit 0");
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut server = Server::spawn("true", None).unwrap();
        assert!(server.wait_listening(nowhere, Duration::from_secs(5)).is_err());
        assert!(Server::spawn("", None).is_err());
    }
}
