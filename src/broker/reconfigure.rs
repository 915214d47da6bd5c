//! New bounds for a broker that runs.

use std::time::Duration;

use super::queue::QueueKind;
use super::{Broker, Overflow, Policy, QueueIndex};
use crate::time::Now;

impl Broker {
    /// Takes new bounds; the file's quota stays, as the file does. A queue that is over its new bound loses its oldest
    /// messages with receipts, unless it is one that refuses: then it takes nothing until it has room.
    pub fn set_policy(&mut self, now: Now, policy: Policy) {
        if policy.flash_bytes_per_day != self.policy.flash_bytes_per_day {
            self.ledger.set_budget(now.mono, policy.flash_bytes_per_day);
        }
        if policy.session_expiry_max != self.policy.session_expiry_max {
            // Those that are away may be over now.
            self.expire_in(now.mono, Duration::ZERO);
        }
        self.policy = Policy {
            flash_quota_bytes: self.policy.flash_quota_bytes,
            backlog_quota_bytes: self.policy.backlog_quota_bytes,
            ..policy
        };
        for index in self.queue_indexes() {
            let Some(queue) = self.queue(index) else { continue };
            let bounds = match queue.kind {
                QueueKind::Session => self.bounds_of(&queue.name),
                QueueKind::Named => self.bounds_of_named(&queue.name, queue.named()),
                // Its bounds come with the plan of the collection.
                QueueKind::Collection => continue,
            };
            let Some(queue) = self.queue_mut(index) else { continue };
            let changed = std::mem::replace(&mut queue.bounds, bounds) != bounds;
            if changed && bounds.overflow == Overflow::DropOldest {
                self.keep_queue_bounds(now, index);
            }
        }
        self.bury_dead(now);
    }

    /// Bytes of live rows that the file may hold.
    #[must_use]
    pub const fn flash_quota_bytes(&self) -> u64 {
        self.policy.flash_quota_bytes
    }

    fn queue_indexes(&self) -> Vec<QueueIndex> {
        let places = self.queues.iter().zip(0u32..);
        places.filter(|(place, _)| place.is_some()).map(|(_, at)| QueueIndex(at)).collect()
    }
}
