//! What the configuration means to the machine.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::broker;
use crate::config::{self, Config};
use crate::limits;
use crate::mqtt::connection::ServerPolicy;

/// What the protocol side needs to know.
#[derive(Clone, Debug)]
pub struct GatewayPolicy {
    pub connections_max: usize,
    pub message_bytes_max: u64,
    pub mqtt: ServerPolicy,
    /// Bytes that input waiting in memory may take; messages have as much again.
    pub memory_max: u64,
    /// The gateway's own name, for `$SYS` and `status`.
    pub id: String,
    /// Within which a collection's readings are in the row log, where no acknowledgement waits for that.
    pub keep_intervals: BTreeMap<Box<str>, Duration>,
}

impl GatewayPolicy {
    /// From the configuration; `id` is the gateway's name.
    #[must_use]
    pub fn new(config: &Config, id: String) -> Self {
        let message_bytes_max = usize::try_from(config.limits.message_bytes_max).unwrap_or(usize::MAX);
        Self {
            connections_max: config.limits.connections_max as usize,
            message_bytes_max: config.limits.message_bytes_max,
            mqtt: ServerPolicy {
                inflight_max: config.limits.inflight_max,
                keep_alive_max_s: u16::try_from(config.limits.keep_alive_max.as_secs()).unwrap_or(u16::MAX),
                // A PUBLISH is its payload, a topic, an identifier and a fixed header of at most 5 bytes.
                packet_bytes_max: message_bytes_max.saturating_add(limits::TOPIC_BYTES_MAX + 2 + 2 + 5),
                message_bytes_max,
            },
            memory_max: config.limits.memory_max,
            id,
            keep_intervals: super::collections::keep_intervals(config),
        }
    }
}

/// The broker's part of the configuration. The quotas are what the store grants.
#[must_use]
pub fn broker_policy(config: &Config, flash_quota_bytes: u64, backlog_quota_bytes: u64) -> broker::Policy {
    // The broker takes the first that matches, so the closest comes first: a name by itself, then the pattern with the
    // most literal characters.
    let mut named: Vec<_> = config.queues.named.iter().collect();
    named.sort_by_key(|(pattern, _)| {
        let literals = pattern.chars().filter(|c| *c != '*').count();
        (pattern.contains('*'), Reverse(literals))
    });
    broker::Policy {
        session_bounds: bounds(&config.queues.session),
        named_bounds: named.into_iter().map(|(pattern, b)| (pattern.as_str().into(), bounds(b))).collect(),
        queue_bounds: bounds(&config.queues.default),
        sessions_max: config.limits.sessions_max as usize,
        queues_max: config.limits.queues_max as usize,
        session_expiry_max: Some(config.limits.session_expiry_max).filter(|d| !d.is_zero()),
        retained_max: config.limits.retained_max as usize,
        retained_bytes_max: config.limits.retained_bytes_max,
        elision_window: config.storage.elision_window,
        flash_quota_bytes,
        backlog_quota_bytes,
        flash_bytes_per_day: config.storage.bytes_per_day_budget,
        memory_max: config.limits.memory_max,
    }
}

fn bounds(bounds: &config::QueueBounds) -> broker::QueueBounds {
    broker::QueueBounds {
        messages_max: u32::try_from(bounds.messages_max).unwrap_or(u32::MAX),
        bytes_max: bounds.bytes_max,
        overflow: match bounds.overflow {
            config::Overflow::DropOldest => broker::Overflow::DropOldest,
            config::Overflow::Reject => broker::Overflow::Reject,
        },
    }
}
