//! Class channel: opening and closing a channel, pausing its deliveries. Section 1.5.

use super::*;

methods! {
    /// A method of class channel.
    class 20, Method<'a>;

    /// Opens the channel whose number the frame has.
    10 Open {
        [&str]
    }

    /// The channel is ready for use.
    11 OpenOk {
        [LongString<'_>]
    }

    /// Pauses or resumes the peer's contents.
    20 Flow {
        active: bool,
    }

    /// It was done.
    21 FlowOk {
        active: bool,
    }

    /// Closes the channel, for a reason.
    40 Close<'a> {
        reply_code: u16,
        reply_text: &'a str,
        /// The method that caused it, or 0.
        class_id: u16,
        method_id: u16,
    }

    /// The last method of a channel.
    41 CloseOk {}
}
