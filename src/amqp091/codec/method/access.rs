//! Class access: access tickets of AMQP 0-8, which old clients still ask for and which mean nothing any more.

use super::*;

methods! {
    /// A method of class access.
    class 30, Method<'a>;

    /// Asks for a ticket.
    10 Request<'a> {
        realm: &'a str,
        exclusive: bool,
        passive: bool,
        active: bool,
        write: bool,
        read: bool,
    }

    /// The ticket.
    11 RequestOk {
        ticket: u16,
    }
}
