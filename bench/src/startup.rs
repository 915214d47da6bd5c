//! From the start of a server process to its first CONNACK, and what it holds when nobody is connected.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::packet::ConnectOptions;
use crate::process::{self, Server};

#[derive(Clone, Copy, Debug)]
pub struct StartReport {
    /// From before the process was made to the first accepted connection.
    pub listening: Duration,
    /// The same to the first CONNACK.
    pub connack: Duration,
    /// A second later, without connections.
    pub resident_bytes: u64,
}

/// Starts `command`, measures, and ends it with SIGTERM.
pub fn run(command: &str, address: SocketAddr, log: Option<&Path>) -> io::Result<StartReport> {
    let start = Instant::now();
    let mut server = Server::spawn(command, log)?;
    server.wait_listening(address, Duration::from_secs(30))?;
    let listening = start.elapsed();
    let (link, _) = Link::open(address, &ConnectOptions::clean("startup"))?;
    let connack = start.elapsed();
    link.close()?;
    std::thread::sleep(Duration::from_secs(1));
    let resident_bytes = process::resident_bytes(server.pid())?;
    server.terminate(Duration::from_secs(10))?;
    Ok(StartReport { listening, connack, resident_bytes })
}
