//! Class queue: declaring, binding, purging and deleting queues. Section 1.7.

use super::*;

methods! {
    /// A method of class queue.
    class 50, Method<'a>;

    /// Creates a queue, or checks that it exists. An empty name asks the server for one.
    10 Declare<'a> {
        [u16]
        queue: &'a str,
        /// Only check that it exists.
        passive: bool,
        durable: bool,
        /// Used by this connection only and deleted with it.
        exclusive: bool,
        /// Deleted with its last consumer.
        auto_delete: bool,
        no_wait: bool,
        arguments: FieldTable<'a>,
    }

    /// It exists.
    11 DeclareOk<'a> {
        queue: &'a str,
        /// Messages that are ready.
        message_count: u32,
        consumer_count: u32,
    }

    /// Routes from an exchange to a queue.
    20 Bind<'a> {
        [u16]
        queue: &'a str,
        exchange: &'a str,
        routing_key: &'a str,
        no_wait: bool,
        arguments: FieldTable<'a>,
    }

    /// They are bound.
    21 BindOk {}

    /// Drops the messages that are ready.
    30 Purge<'a> {
        [u16]
        queue: &'a str,
        no_wait: bool,
    }

    /// So many were dropped.
    31 PurgeOk {
        message_count: u32,
    }

    /// Deletes a queue.
    40 Delete<'a> {
        [u16]
        queue: &'a str,
        if_unused: bool,
        if_empty: bool,
        no_wait: bool,
    }

    /// It is gone with so many messages.
    41 DeleteOk {
        message_count: u32,
    }

    /// Ends a binding.
    50 Unbind<'a> {
        [u16]
        queue: &'a str,
        exchange: &'a str,
        routing_key: &'a str,
        arguments: FieldTable<'a>,
    }

    /// They are not bound.
    51 UnbindOk {}
}
