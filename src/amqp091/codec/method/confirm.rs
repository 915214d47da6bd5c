//! Class confirm: acknowledgements of publishes. RabbitMQ's extension.

use super::*;

methods! {
    /// A method of class confirm.
    class 85, Method;

    /// Puts the channel into confirm mode.
    10 Select {
        no_wait: bool,
    }

    /// It is in confirm mode.
    11 SelectOk {}
}
