//! AMQP 0-9-1 with RabbitMQ's extensions.
//!
//! Owns the wire form (`codec`). Leaves queues, exchanges and delivery to `broker`.

pub mod codec;
