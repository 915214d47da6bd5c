//! Idle connections: what each costs the server in resident memory, and how often an idle server wakes up.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::link::Link;
use crate::packet::ConnectOptions;
use crate::process::{self, CpuTime};

#[derive(Clone, Debug)]
pub struct IdlePlan {
    pub address: SocketAddr,
    pub user: Option<(String, String)>,
    pub connections: usize,
    /// Each connection subscribes to a topic of its own.
    pub subscribe: bool,
    /// Keep Alive of each connection, seconds; nothing is sent, so 0 or longer than the run.
    pub keep_alive_s: u16,
    /// How long the idle server is watched.
    pub watch: Duration,
    pub pid: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct IdleReport {
    pub connections: usize,
    pub resident_before: u64,
    pub resident_after: u64,
    pub wake_ups_per_second: f64,
    pub cpu: CpuTime,
}

impl IdleReport {
    /// Resident bytes that each connection added.
    #[must_use]
    pub fn bytes_per_connection(&self) -> f64 {
        self.resident_after.saturating_sub(self.resident_before) as f64 / self.connections.max(1) as f64
    }
}

/// Opens the connections, waits a second, watches, and closes them.
pub fn run(plan: &IdlePlan) -> io::Result<IdleReport> {
    let limit = process::raise_open_files();
    if limit < plan.connections as u64 + 64 {
        return Err(io::Error::other(format!("only {limit} open files are allowed here")));
    }
    let resident_before = process::resident_bytes(plan.pid)?;
    let mut links = Vec::with_capacity(plan.connections);
    for index in 0..plan.connections {
        let mut options = ConnectOptions::clean(format!("idle-{index}")).with_user(plan.user.clone());
        options.keep_alive_s = plan.keep_alive_s;
        let (mut link, _) = Link::open(plan.address, &options)
            .map_err(|error| io::Error::new(error.kind(), format!("connection {index}: {error}")))?;
        if plan.subscribe {
            link.subscribe(&format!("idle/{index}"), 0)?;
        }
        links.push(link);
    }
    std::thread::sleep(Duration::from_secs(1));
    let (wake_ups, cpu) = (process::wake_ups(plan.pid)?, process::cpu_time(plan.pid)?);
    std::thread::sleep(plan.watch);
    let wake_ups = process::wake_ups(plan.pid)? - wake_ups;
    Ok(IdleReport {
        connections: links.len(),
        resident_before,
        resident_after: process::resident_bytes(plan.pid)?,
        wake_ups_per_second: wake_ups as f64 / plan.watch.as_secs_f64(),
        cpu: process::cpu_time(plan.pid)?.since(cpu),
    })
}
