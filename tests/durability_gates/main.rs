//! What waits for the flash and what does not, how acknowledgements are released, and what happens when the flash is
//! bounded, slow, full, failing or damaged. Each line of the gate table that concerns MQTT is a test here.

mod acknowledgements;
mod anew;
mod bounds;
mod budget;
mod elision;
mod failing;
mod gates;
#[path = "../support/mod.rs"]
mod support;
