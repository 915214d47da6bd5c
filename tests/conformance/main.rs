//! Conformance by rule number: `mqtt311::...::m3_1_2_24_...` is the test of [MQTT-3.1.2-24]. The version stands in the
//! path because the same number means another rule in another version.

mod mqtt311;
mod mqtt5;
#[path = "../support/mod.rs"]
mod support;
