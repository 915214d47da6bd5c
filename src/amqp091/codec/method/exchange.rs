//! Class exchange: declaring, deleting and, as RabbitMQ's extension, binding exchanges to each other. Section 1.6.

use super::*;

methods! {
    /// A method of class exchange.
    class 40, Method<'a>;

    /// Creates an exchange, or checks that it exists.
    10 Declare<'a> {
        [u16]
        exchange: &'a str,
        /// Exchange type: `direct`, `fanout`, `topic`, `headers` ...
        kind: &'a str,
        /// Only check that it exists.
        passive: bool,
        durable: bool,
        /// Deleted with its last binding.
        auto_delete: bool,
        /// Takes messages from exchanges only.
        internal: bool,
        no_wait: bool,
        arguments: FieldTable<'a>,
    }

    /// It exists.
    11 DeclareOk {}

    /// Deletes an exchange.
    20 Delete<'a> {
        [u16]
        exchange: &'a str,
        if_unused: bool,
        no_wait: bool,
    }

    /// It is gone.
    21 DeleteOk {}

    /// Routes from one exchange to another.
    30 Bind<'a> {
        [u16]
        destination: &'a str,
        source: &'a str,
        routing_key: &'a str,
        no_wait: bool,
        arguments: FieldTable<'a>,
    }

    /// They are bound.
    31 BindOk {}

    /// Ends a binding of exchanges.
    40 Unbind<'a> {
        [u16]
        destination: &'a str,
        source: &'a str,
        routing_key: &'a str,
        no_wait: bool,
        arguments: FieldTable<'a>,
    }

    /// They are not bound. Its number is 51, not 41.
    51 UnbindOk {}
}
