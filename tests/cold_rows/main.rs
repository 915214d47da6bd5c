//! Rows that leave the window and come back: order, counts, bounds, expiry, and power cuts at any operation.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::print_stdout, reason = "test code")]

#[path = "../support/disk.rs"]
mod disk;
mod property;
mod rules;
mod world;
