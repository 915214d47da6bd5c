//! What the configuration means to the machine, and the short memory of verified passwords.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::broker;
use crate::collections::{self, Map};
use crate::config::{self, Config};
use crate::limits;
use crate::time::Mono;

/// What the protocol side needs to know.
#[derive(Clone, Debug)]
pub struct GatewayPolicy {
    pub connections_max: usize,
    pub message_bytes_max: u64,
    /// A whole packet, fixed header included, after CONNECT.
    pub packet_bytes_max: usize,
    pub inflight_max: u16,
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
            // A PUBLISH is its payload, a topic, an identifier and a fixed header of at most 5 bytes.
            packet_bytes_max: message_bytes_max.saturating_add(limits::TOPIC_BYTES_MAX + 2 + 2 + 5),
            inflight_max: config.limits.inflight_max,
            memory_max: config.limits.memory_max,
            id,
            keep_intervals: super::collections::keep_intervals(config),
        }
    }
}

/// The broker's part of the configuration. `flash_quota_bytes` is what the store grants.
#[must_use]
pub fn broker_policy(config: &Config, flash_quota_bytes: u64) -> broker::Policy {
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

/// A verified password is believed for ten minutes, so that reconnecting clients cost no hash each.
const VERIFIED_FOR: Duration = Duration::from_secs(600);
const VERIFIED_MAX: usize = 1024;

/// Names and passwords that were verified lately, as keyed digests: no password is kept.
#[derive(Debug)]
pub(super) struct VerifiedCache {
    key: u64,
    until: Map<[u8; 32], Mono>,
}

impl VerifiedCache {
    pub fn new(seed: u64) -> Self {
        Self { key: seed.rotate_left(17) ^ 0x5bd1_e995, until: collections::map(seed) }
    }

    pub fn remember(&mut self, now: Mono, name: &str, password: &[u8]) {
        if self.until.len() >= VERIFIED_MAX {
            self.until.retain(|_, until| *until > now);
        }
        if self.until.len() < VERIFIED_MAX {
            self.until.insert(self.digest(name, password), now + VERIFIED_FOR);
        }
    }

    pub fn knows(&self, now: Mono, name: &str, password: &[u8]) -> bool {
        if self.until.is_empty() {
            return false;
        }
        self.until.get(&self.digest(name, password)).is_some_and(|until| *until > now)
    }

    fn digest(&self, name: &str, password: &[u8]) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.key.to_le_bytes());
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update(password);
        digest.finalize().into()
    }
}
