//! MQTT 3.1, 3.1.1 and 5.0.
//!
//! Owns the wire form of the packets (`codec`), the rules of topic names and filters (`topic`), and the endpoint of
//! one connection (`connection`): a machine without I/O that turns packets into calls of the broker and deliveries
//! into packets. Leaves queues, retained values and delivery to `broker`, sockets to `net`.

pub mod codec;
mod connecting;
pub mod connection;
pub mod delivering;
mod owed;
mod publishing;
mod subscribing;
pub mod topic;
mod version5;
