//! MQTT 3.1 and 3.1.1, laid out so that version 5 is an addition.
//!
//! Owns the wire form of the packets (`codec`) and the rules of topic names and filters (`topic`). Leaves
//! queues, retained values and delivery to `broker`.

pub mod codec;
pub mod topic;
