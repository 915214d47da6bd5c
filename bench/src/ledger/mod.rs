//! The ledger: several publishers and persistent subscribers whose every acknowledgement is written down before
//! anything else is done, so that a broker which is killed can be held to what it has acknowledged.
//!
//! `record` is what is written, `check` judges it, `client` are the two state machines, `run` drives them over sockets,
//! `rounds` kills the broker again and again.

mod check;
mod client;
mod message;
mod record;
mod rounds;
mod run;

pub use check::{Checker, Verdict};
pub use record::{Header, MessageName, Record, SubscriberKind, read_file};
pub use rounds::{Broker, Rounds, crash_rounds};
pub use run::{Driver, LedgerPlan};
