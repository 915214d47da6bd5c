//! Class connection: opening, tuning and closing a connection; blocking its publishers. Section 1.4.

use super::*;

methods! {
    /// A method of class connection.
    class 10, Method<'a>;

    /// Opens the negotiation: what the server is and which SASL mechanisms it takes, separated by spaces.
    10 Start<'a> {
        version_major: u8,
        version_minor: u8,
        server_properties: FieldTable<'a>,
        mechanisms: LongString<'a>,
        locales: LongString<'a>,
    }

    /// The client's choice and its first SASL response.
    11 StartOk<'a> {
        client_properties: FieldTable<'a>,
        mechanism: &'a str,
        response: LongString<'a>,
        locale: &'a str,
    }

    /// A SASL challenge.
    20 Secure<'a> {
        challenge: LongString<'a>,
    }

    /// The SASL response to it.
    21 SecureOk<'a> {
        response: LongString<'a>,
    }

    /// Limits that the server proposes; 0 is no limit, or no heartbeat.
    30 Tune {
        channel_max: u16,
        /// Octets of the largest frame, overhead included.
        frame_max: u32,
        /// Seconds between heartbeats.
        heartbeat: u16,
    }

    /// Limits that the client settles for.
    31 TuneOk {
        channel_max: u16,
        /// Octets of the largest frame, overhead included.
        frame_max: u32,
        /// Seconds between heartbeats.
        heartbeat: u16,
    }

    /// Chooses the virtual host.
    40 Open<'a> {
        virtual_host: &'a str,
        (&str, bool)
    }

    /// The connection is ready for use.
    41 OpenOk {
        (&str)
    }

    /// Closes the connection, for a reason.
    50 Close<'a> {
        reply_code: u16,
        reply_text: &'a str,
        /// The method that caused it, or 0.
        class_id: u16,
        method_id: u16,
    }

    /// The last method of a connection.
    51 CloseOk {}

    /// The server stopped reading publishes. RabbitMQ's extension.
    60 Blocked<'a> {
        reason: &'a str,
    }

    /// The server reads publishes again. RabbitMQ's extension.
    61 Unblocked {}

    /// A new secret for the open connection. RabbitMQ's extension.
    70 UpdateSecret<'a> {
        new_secret: LongString<'a>,
        reason: &'a str,
    }

    /// It was taken.
    71 UpdateSecretOk {}
}
