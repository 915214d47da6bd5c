//! TLS, client certificates, WebSocket, sockets in the file system, reload: foreign clients against the real binary.
//!
//! `./scripts/test` installs what they need. Each test has its own daemon, state folder, ports and test CA.
#![expect(clippy::disallowed_methods, reason = "these tests drive processes in real time")]
#![expect(clippy::print_stderr, reason = "the daemon's log is part of a failure message")]
#![expect(clippy::print_stdout, reason = "what was measured is told")]
#![allow(dead_code, reason = "the support files are shared, and each test binary uses its part")]

#[path = "support/daemon.rs"]
mod daemon;
#[path = "support/tool.rs"]
mod tool;

#[path = "security/authority.rs"]
mod authority;
#[path = "security/certificates.rs"]
mod certificates;
#[path = "security/doctor.rs"]
mod doctor;
#[path = "security/logins.rs"]
mod logins;
#[path = "security/reload.rs"]
mod reload;
#[path = "security/storm.rs"]
mod storm;
#[path = "security/websocket.rs"]
mod websocket;
