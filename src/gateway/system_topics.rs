//! `$SYS`: a few figures of the gateway as topics, under Mosquitto's names where it has one.
//!
//! They are published every ten seconds while somebody is subscribed, and at once to each new subscription, which gets them and
//! the loss receipts with the retain mark, as if they were kept. Nothing of it is, and nobody subscribed means no wake-up. What Mosquitto has and the gateway does not count is not there:
//! packets sent, bytes of payloads, the most clients and the most memory at once, sessions that expired.

use std::time::Duration;

use super::Gateway;
use super::load::{LOADS, MINUTES};
use crate::broker::{LossReceipt, Publish};
use crate::message::Assurance;
use crate::time::{Mono, Now};

const INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct SystemTopics {
    next: Option<Mono>,
}

const LOSS: &str = "$SYS/gateway/loss";

impl Gateway {
    /// Publishes the figures when it is time, and decides when it is time again.
    pub(super) fn publish_system_topics(&mut self, now: Now) {
        let wanted = self.broker.take_wanted_figures();
        if !self.broker.has_system_subscriptions() {
            self.system_topics.next = None;
            return;
        }
        let is_due = self.system_topics.next.is_none_or(|at| at <= now.mono);
        if !is_due && wanted.is_empty() {
            return;
        }
        self.sample_load(now);
        let mut figures = self.system_figures(now);
        let tells_losses = is_due && self.broker.take_untold_losses();
        let told = figures.len();
        if tells_losses || !wanted.is_empty() {
            let receipts = self.broker.loss_receipts().map(|receipt| (LOSS.to_owned(), loss_text(receipt)));
            figures.extend(receipts);
        }
        for one in wanted {
            // Each in turn, so that an output that is full is known to be.
            let replay = |(topic, value): &(String, String)| {
                self.broker.replay_figure(now, &one, figure(topic, value))
            };
            let _takes_more = figures.iter().all(replay);
            self.drain(now);
        }
        if is_due {
            self.system_topics.next = Some(now.mono + INTERVAL);
            figures.truncate(if tells_losses { figures.len() } else { told });
            for (topic, value) in &figures {
                self.broker.publish_uncounted(now, figure(topic, value));
            }
        }
    }

    /// When figures are to be published next.
    pub(super) fn system_topics_deadline(&self) -> Option<Mono> {
        if self.broker.wants_figures() { Some(Mono(0)) } else { self.system_topics.next }
    }

    /// A subscription may have been made: where it is the first to `$SYS`, the time begins after which figures come again.
    pub(super) fn system_topics_wanted(&mut self, now: Now) {
        if self.system_topics.next.is_none() && self.broker.has_system_subscriptions() {
            self.system_topics.next = Some(now.mono + INTERVAL);
            if self.broker.wants_figures() {
                // It is told all receipts at once, and nobody else waits for any.
                self.broker.take_untold_losses();
            }
        }
    }

    /// Copies that were handed out and not acknowledged.
    fn in_flight(&self) -> usize {
        self.broker.queue_status().map(|queue| queue.in_flight).sum()
    }

    fn system_figures(&self, now: Now) -> Vec<(String, String)> {
        let status = self.broker.status();
        let uptime_s = now.mono.since(self.started.mono).as_secs();
        let counters = self.counters;
        let broker = |name: &str, value: String| (format!("$SYS/broker/{name}"), value);
        let mut figures = vec![
            broker("version", format!("gatewayd version {}", env!("CARGO_PKG_VERSION"))),
            broker("uptime", format!("{uptime_s} seconds")),
            broker("clients/connected", status.sessions_connected.to_string()),
            broker("clients/disconnected", (status.sessions - status.sessions_connected).to_string()),
            broker("clients/total", status.sessions.to_string()),
            // Mosquitto's older names of the same.
            broker("clients/active", status.sessions_connected.to_string()),
            broker("clients/inactive", (status.sessions - status.sessions_connected).to_string()),
            broker("subscriptions/count", status.subscriptions.to_string()),
            broker("retained messages/count", status.retained.to_string()),
            broker("messages/stored", status.queued.to_string()),
            broker("store/messages/count", status.queued.to_string()),
            broker("store/messages/bytes", status.memory_bytes.to_string()),
            broker("messages/received", counters.packets_received.to_string()),
            broker("messages/inflight", self.in_flight().to_string()),
            broker("heap/current", (status.memory_bytes + self.input_bytes as u64).to_string()),
            broker("bytes/received", counters.bytes_received.to_string()),
            broker("bytes/sent", counters.bytes_sent.to_string()),
            broker("publish/messages/received", status.counters.published.to_string()),
            broker("publish/messages/sent", status.counters.delivered.to_string()),
            broker(
                "publish/messages/dropped",
                (status.counters.lost + status.counters.dropped_output_full).to_string(),
            ),
            ("$SYS/gateway/id".to_owned(), self.policy.id.clone()),
            ("$SYS/gateway/flash/bytes_written".to_owned(), status.flash_bytes_written.to_string()),
            ("$SYS/gateway/flash/commits".to_owned(), status.commits.to_string()),
            ("$SYS/gateway/flash/elided".to_owned(), status.elided.to_string()),
        ];
        for (name, averages) in LOADS.iter().zip(self.load.averages) {
            for ((minutes, _), average) in MINUTES.iter().zip(averages) {
                figures.push(broker(&format!("load/{name}/{minutes}"), format!("{average:.2}")));
            }
        }
        figures
    }
}

/// As Mosquitto publishes its own: who subscribed to retained values as they were published sees the mark.
fn figure<'a>(topic: &'a str, value: &'a str) -> Publish<'a> {
    Publish {
        address: topic,
        body: value.as_bytes(),
        assurance: Assurance::AtMostOnce,
        retain: true,
        ..Publish::default()
    }
}

fn loss_text(receipt: &LossReceipt) -> String {
    super::status::loss_json(receipt).to_string()
}
