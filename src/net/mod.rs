//! Sockets, threads, clocks and signals: the one place that knows the runtime.
//!
//! One core thread owns listeners, sockets and the gateway; one store thread owns the files; two workers check
//! passwords. `core` has the round, `connection` reads, `store_thread` and `workers` are the other threads, `http`
//! is the API's way in, `daemon` starts and stops it all.

mod api;
mod backup;
mod body;
pub mod client;
mod clock;
mod collections;
mod connection;
mod core;
mod daemon;
mod departures;
mod farewell;
mod followers;
mod handshake;
mod http;
mod identity;
mod inherited;
mod journal;
mod layers;
mod listeners;
pub mod logging;
mod notify;
mod process;
mod reload;
mod repeats;
mod rooms;
mod series_thread;
mod socket_path;
mod store_thread;
mod stream;
mod tls;
mod watch;
mod workers;

pub use clock::Clock;
pub use daemon::{RunError, repair, run};
pub use listeners::BindError;

/// Randomness from the system, for the process's seed.
fn random_seed() -> std::io::Result<u64> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(u64::from_le_bytes(seed))
}
