//! Rows that leave the window and come back: order, counts, bounds, expiry, and power cuts at any operation.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::print_stdout, reason = "test code")]
#![allow(clippy::disallowed_methods, reason = "the length of a run comes from the environment")]

#[path = "../support/disk.rs"]
mod disk;
mod property;
mod rules;
mod sessions;
mod shares;
mod shares_property;
mod world;
