//! The gateway's state as `status` and the HTTP API show it.

use serde_json::{Value, json};

use super::{Gateway, GatewayCounters};
use crate::broker::{LossReceipt, QueueKind, QueueStatus};
use crate::store::batch::Persisted;
use crate::time::Now;

/// How the store does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum StoreCondition {
    #[default]
    Working,
    /// Acknowledgements wait; the text says why.
    Failing(String),
}

/// Figures of the store, gathered from its answers.
#[derive(Clone, Debug, Default)]
pub struct StoreFigures {
    pub condition: StoreCondition,
    pub batches: u64,
    pub syncs: u64,
    pub bytes_written: u64,
}

impl StoreFigures {
    pub(super) fn persisted(&mut self, persisted: Persisted) {
        self.batches += 1;
        self.syncs += u64::from(persisted.syncs);
        self.bytes_written += persisted.bytes_written;
    }
}

impl Gateway {
    /// True while the flash takes what is given to it.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.store.condition == StoreCondition::Working
    }

    /// Everything `status` shows.
    #[must_use]
    pub fn status(&self, now: Now) -> Value {
        let broker = self.broker.status();
        let GatewayCounters {
            connections,
            packets_received,
            bytes_received,
            bytes_sent,
            protocol_errors,
            refused,
        } = self.counters;
        let (healthy, store) = match &self.store.condition {
            StoreCondition::Working => (true, "working"),
            StoreCondition::Failing(why) => (false, why.as_str()),
        };
        let lost: serde_json::Map<String, Value> =
            broker.lost.iter().map(|(reason, count)| (reason.name().to_owned(), json!(count))).collect();
        json!({
            "id": self.policy.id,
            "version": env!("CARGO_PKG_VERSION"),
            "healthy": healthy,
            "uptime_s": now.mono.since(self.started.mono).as_secs(),
            "recovery": {
                "sessions": self.recovery.sessions,
                "queues": self.recovery.named_queues,
                "queued": self.recovery.queued,
                "retained": self.recovery.retained,
                "wills": self.recovery.wills,
                "unreadable_rows": self.recovery.unreadable,
            },
            "connections": {
                "open": self.connections.len(),
                "max": self.policy.connections_max,
                "accepted": connections,
                "refused": refused,
                "protocol_errors": protocol_errors,
            },
            "traffic": {
                "packets_received": packets_received,
                "bytes_received": bytes_received,
                "bytes_sent": bytes_sent,
                "published": broker.counters.published,
                "delivered": broker.counters.delivered,
                "queued": broker.counters.queued,
                "settled": broker.counters.settled,
                "unrouted": broker.counters.unrouted,
                "discarded": broker.counters.discarded,
                "dead_lettered": broker.counters.dead_lettered,
                "address_too_long": broker.counters.address_too_long,
                "dropped_output_full": broker.counters.dropped_output_full,
                "retained_refused": broker.counters.retained_refused,
            },
            "sessions": {
                "total": broker.sessions,
                "connected": broker.sessions_connected,
                "subscriptions": broker.subscriptions,
                "queued": broker.queued,
            },
            "queues": { "total": broker.named_queues, "exchanges": broker.exchanges },
            "readings": {
                "store": self.readings.failing.as_deref().unwrap_or("working"),
                "unflushed": self.broker.collections().map(|(index, _)| u64::from(self.broker.unsettled_readings(index).0)).sum::<u64>(),
            },
            "retained": { "count": broker.retained, "bytes": broker.retained_bytes },
            "memory_bytes": broker.memory_bytes,
            "flash": {
                "store": store,
                "batches": self.store.batches,
                "syncs": self.store.syncs,
                "bytes_written": self.store.bytes_written,
                "bytes_live": broker.flash_bytes_live,
                "quota_bytes": broker.flash_quota_bytes,
                "over_budget": broker.flash_overspent,
                "elided": broker.elided,
            },
            "lost": { "messages": broker.counters.lost, "by_reason": lost },
        })
    }

    /// The queues, the fullest first.
    #[must_use]
    pub fn queues(&self) -> Value {
        let mut queues: Vec<_> = self.broker.queue_status().collect();
        queues.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        Value::Array(queues.iter().map(queue_json).collect())
    }

    /// The clients that are connected.
    #[must_use]
    pub fn clients(&self) -> Value {
        let clients = self.connections.iter().filter(|(_, endpoint)| endpoint.protocol.is_joined());
        let shown = clients.map(|(id, endpoint)| {
            let identity = endpoint.protocol.identity();
            json!({
                "connection": id.0,
                "client_identifier": identity.client_identifier,
                "user_name": identity.username,
                "peer": endpoint.peer,
                "output_bytes": endpoint.protocol.output_bytes(),
                "protocol": if endpoint.protocol.as_mqtt().is_some() { "mqtt" } else { "amqp" },
            })
        });
        Value::Array(shown.collect())
    }

    /// The loss receipts.
    #[must_use]
    pub fn losses(&self) -> Value {
        Value::Array(self.broker.loss_receipts().map(loss_json).collect())
    }
}

fn queue_json(queue: &QueueStatus) -> Value {
    json!({
        "name": queue.name,
        "kind": match queue.kind {
            QueueKind::Session => "session",
            QueueKind::Collection => "collection",
            QueueKind::Named => "queue",
        },
        "consumers": queue.consumers,
        "durable": queue.durable,
        "connected": queue.connected,
        "subscriptions": queue.subscriptions,
        "ready": queue.ready,
        "in_flight": queue.in_flight,
        "bytes": queue.bytes,
        "messages_max": queue.messages_max,
        "bytes_max": queue.bytes_max,
        "dropped": queue.dropped,
    })
}

pub(super) fn loss_json(receipt: &LossReceipt) -> Value {
    json!({
        "queue": receipt.queue,
        "reason": receipt.reason.name(),
        "messages": receipt.messages,
        "bytes": receipt.bytes,
        "first_sequence": receipt.first_key.0,
        "last_sequence": receipt.last_key.0,
        "first_received_at_ms": receipt.first_received_at.0,
        "last_received_at_ms": receipt.last_received_at.0,
    })
}
