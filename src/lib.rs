//! gatewayd: an edge IoT gateway. The map of the modules is ARCHITECTURE.md.
//!
//! Everything but `net` and `cli` is deterministic: time, randomness and disk come in as arguments, so a seed
//! replays any run. `cargo check --lib --no-default-features` builds that part without a runtime.

pub mod amqp091;
pub mod auth;
#[cfg(feature = "net")]
pub mod backup;
pub mod broker;
#[cfg(feature = "net")]
pub mod cli;
pub mod collections;
pub mod config;
pub mod gateway;
pub mod http;
pub mod ids;
pub mod ingest;
pub mod limits;
pub mod message;
pub mod mqtt;
#[cfg(feature = "net")]
pub mod net;
pub mod output;
pub mod random;
pub mod series;
#[cfg(feature = "net")]
pub mod settings;
pub mod store;
pub mod time;
#[cfg(feature = "net")]
pub mod tls;
pub mod websocket;
