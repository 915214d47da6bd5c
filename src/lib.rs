//! gatewayd: an edge IoT gateway. The map of the modules is ARCHITECTURE.md.
//!
//! Everything but `net` and `cli` is deterministic: time, randomness and disk come in as arguments, so a seed
//! replays any run. `cargo check --lib --no-default-features` builds that part without a runtime.

pub mod auth;
#[cfg(feature = "net")]
pub mod cli;
pub mod collections;
pub mod config;
pub mod ids;
pub mod limits;
pub mod mqtt;
pub mod store;
pub mod time;
