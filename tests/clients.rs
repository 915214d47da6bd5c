//! Stock clients against the real binary: mosquitto_pub and mosquitto_sub, paho-mqtt, plain sockets.
//!
//! `./scripts/test` installs what they need. Each test has its own daemon, state folder and ports.
#![expect(clippy::disallowed_methods, reason = "these tests drive processes in real time")]
#![expect(clippy::print_stderr, reason = "the daemon's log is part of a failure message")]

#[path = "support/daemon.rs"]
mod daemon;
#[path = "support/tool.rs"]
mod tool;

#[path = "clients/access.rs"]
mod access;
#[path = "clients/bridge.rs"]
mod bridge;
#[path = "clients/demonstrations.rs"]
mod demonstrations;
#[path = "clients/hostile.rs"]
mod hostile;
#[path = "clients/lifecycle.rs"]
mod lifecycle;
#[path = "clients/load.rs"]
mod load;
#[path = "clients/mqtt5.rs"]
mod mqtt5;
#[path = "clients/wills.rs"]
mod wills;
