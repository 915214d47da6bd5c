//! Ingest: which message becomes a reading of which collection, with which tags.
//!
//! `route` is what the configuration says; `collector` turns messages into readings and keeps an error lane for what
//! looks like a document and is none. Nothing is refused: such a payload is a reading too, as text.

pub mod collector;
pub mod overview;
pub mod route;

pub use collector::{Collector, Lane, Taken, fault};
pub use route::{Durability, Route};
