//! The gateway's own figures, which come as messages under `$SYS`: who wants them, and their way past everything that
//! counts traffic. What they say is the gateway's business.
//!
//! To clients they look like last known values, so a new subscription gets them at once, with the retain mark. None is kept.

use super::held::Held;
use super::publish::message_of;
use super::queue::{NEVER, QueueIndex};
use super::{Broker, Delivery, Event, ExchangeIndex, Publish};
use crate::ids::QueueId;
use crate::message::Assurance;
use crate::time::Now;

/// New subscriptions that may wait for their first figures, and bytes of their filters. Those beyond wait for the next
/// figures of all.
const WANTED_MAX: usize = 256;
const WANTED_BYTES_MAX: usize = 64 * 1024;

/// A new subscription that waits for its first figures.
#[derive(Debug)]
pub struct WantedFigures {
    queue: QueueIndex,
    id: QueueId,
    filter: Box<str>,
}

impl Broker {
    /// True when somebody wants the gateway's own figures.
    #[must_use]
    pub const fn has_system_subscriptions(&self) -> bool {
        self.system_subscriptions > 0
    }

    /// True while a new subscription waits for its first figures.
    #[must_use]
    pub const fn wants_figures(&self) -> bool {
        !self.wanted_figures.is_empty()
    }

    /// The new subscriptions that wait for their first figures, to be given to [`Broker::replay_figure`].
    pub fn take_wanted_figures(&mut self) -> Vec<WantedFigures> {
        std::mem::take(&mut self.wanted_figures)
    }

    /// Gives one of the gateway's own figures to a new subscription, if it matches: its client gets it as a last known
    /// value. False when the client takes no more now.
    pub fn replay_figure(&mut self, now: Now, wanted: &WantedFigures, publish: Publish<'_>) -> bool {
        let Some(queue) = self.queue(wanted.queue).filter(|queue| queue.id == wanted.id) else {
            return false;
        };
        let (Some(consumer), Some(options)) = (queue.consumer, queue.subscriptions.get(&wanted.filter))
        else {
            return false;
        };
        if consumer.blocked {
            return false;
        }
        if !super::retained::matches(&wanted.filter, publish.address) {
            return true;
        }
        let identifier = options.identifier;
        self.counters.delivered += 1;
        self.events.push_back(Event::Deliver(Delivery {
            connection: consumer.connection,
            queue: wanted.queue,
            tag: 0,
            consumer: 0,
            held: Held::new(message_of(now, publish), &self.memory),
            assurance: Assurance::AtMostOnce,
            retained: true,
            identifier,
            expires_at: NEVER,
            redelivered: false,
            returns: 0,
        }));
        true
    }

    /// Routes one of the gateway's own figures, which are no traffic.
    pub fn publish_uncounted(&mut self, now: Now, publish: Publish<'_>) {
        self.exchanges.is_own = true;
        self.route(now, ExchangeIndex::SHARED, message_of(now, publish), &[], None);
        self.exchanges.is_own = false;
        self.bury_dead(now);
    }

    /// A subscription to figures was made that gets what is known at once.
    pub(super) fn want_figures(&mut self, index: QueueIndex, filter: &str) {
        let bytes: usize = self.wanted_figures.iter().map(|wanted| wanted.filter.len()).sum();
        if self.wanted_figures.len() >= WANTED_MAX || bytes + filter.len() > WANTED_BYTES_MAX {
            return;
        }
        let Some(id) = self.queue(index).map(|queue| queue.id) else { return };
        let waits = |wanted: &WantedFigures| wanted.id == id && *wanted.filter == *filter;
        if !self.wanted_figures.iter().any(waits) {
            self.wanted_figures.push(WantedFigures { queue: index, id, filter: filter.into() });
        }
    }
}
