//! Counters by protocol: what the broker cannot count, as it knows none.

use std::collections::BTreeMap;

use super::endpoint::End;
use crate::auth::Denials;

/// The protocols by which messages come, in the order of [`Tally::received`].
pub const PROTOCOLS: [&str; 3] = ["mqtt", "amqp", "http"];

/// See the file's head. All since the start.
#[derive(Debug, Default)]
pub struct Tally {
    /// Messages that publishers handed over, by protocol.
    pub received: [u64; 3],
    /// Copies handed to MQTT clients, repeats included.
    pub sent_mqtt: u64,
    /// Copies handed to AMQP consumers, repeats and those that were asked for included.
    pub sent_amqp: u64,
    /// Connections that ended, by protocol and reason.
    pub closed: BTreeMap<(&'static str, &'static str), u64>,
    /// Times that the flash began to fail.
    pub flash_failures: u64,
    pub denials: Denials,
}

impl Tally {
    pub(super) const MQTT: usize = 0;
    pub(super) const AMQP: usize = 1;
    pub(super) const HTTP: usize = 2;

    /// Counts what a call into the broker published.
    pub(super) fn count_received(&mut self, protocol: usize, before: u64, after: u64) {
        if let Some(count) = self.received.get_mut(protocol) {
            *count += after - before;
        }
    }

    /// Counts a connection's end.
    pub(super) fn count_closed(&mut self, end: &End) {
        let protocol = match end {
            End::Mqtt(_) => "mqtt",
            End::Amqp091(_) => "amqp",
        };
        *self.closed.entry((protocol, end.name())).or_default() += 1;
    }
}
