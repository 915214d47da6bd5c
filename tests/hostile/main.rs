//! Hostile peers: whatever one connection sends or does not read, it gets the protocol's answer, is closed where the
//! protocol says so, takes a bounded amount of memory, and nobody else notices.

mod bystanders;
mod floods;
mod fuzz;
mod limits;
mod malformed;
mod slow;
#[path = "../support/mod.rs"]
mod support;
