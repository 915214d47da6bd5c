//! MQTT 3.1 and 3.1.1, laid out so that version 5 is an addition.
//!
//! Owns the wire form of the packets (`codec`), the rules of topic names and filters (`topic`), and the endpoint of
//! one connection (`connection`): a machine without I/O that turns packets into calls of the broker and deliveries
//! into packets. Leaves queues, retained values and delivery to `broker`, sockets to `net`.

pub mod codec;
pub mod connection;
mod owed;
mod publishing;
mod subscribing;
pub mod topic;
