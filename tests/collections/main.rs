//! Collections on the real program: five publishes and three queries as the article has them, by Mosquitto's own
//! client; SIGKILL between the acknowledgement and the query; routes, tags, bad input, deletion, exports, every option of
//! a query on the command line and over HTTP.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "these tests drive processes in real time")]
#![expect(clippy::print_stderr, reason = "the daemon's log is part of a failure message")]
#![allow(dead_code, reason = "each test binary uses its part of what is shared")]

mod bad_input;
#[path = "../support/daemon.rs"]
mod daemon;
mod ingest;
mod plant;
mod queries;
#[path = "../support/tool.rs"]
mod tool;
