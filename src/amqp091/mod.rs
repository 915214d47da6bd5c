//! AMQP 0-9-1 with RabbitMQ's extensions.
//!
//! Owns the wire form (`codec`) and the endpoint of one connection (`connection`): a machine without I/O that turns
//! frames into calls of the broker and deliveries into frames. Leaves queues, exchanges and delivery to `broker`,
//! messages of other protocols to `gateway`, sockets to `net`.
//!
//! Addresses inside are levels joined by `/`; on this wire they are shown with `/` and `.` swapped.

mod arguments;
mod binding;
mod channel;
pub mod codec;
pub mod connection;
mod consuming;
mod declaring;
mod delivering;
mod fault;
mod handshake;
mod link;
mod publishing;
mod rights;
mod settling;

pub use arguments::neutral;
pub use delivering::dead_letter_headers;
pub use fault::Fault;
