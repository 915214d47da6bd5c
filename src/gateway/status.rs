//! The gateway's state as `status` and the HTTP API show it.

use serde_json::{Map, Value, json};

use super::figures::{Figures, age_ms, fill, full_in_s};
use super::{Gateway, PROTOCOLS, StoreCondition};
use crate::auth::Denied;
use crate::broker::{LossReceipt, Overflow, QueueStatus};
use crate::time::Now;

/// Queues that `status` names: the fullest.
const FULLEST: usize = 5;
/// From here on a certificate's end is worth a warning.
const CERTIFICATE_WARNING_DAYS: i64 = 30;
/// From here on a queue is worth a warning.
const FILL_WARNING: f64 = 0.8;

impl Gateway {
    /// Everything `status` shows.
    #[must_use]
    pub fn status(&self, now: Now) -> Value {
        let figures = self.figures(now);
        let mut queues: Vec<QueueStatus> = self.broker.queue_status().collect();
        sort_by_fill(&mut queues);
        let warnings = self.warnings(&figures, &queues);
        let fullest = queues.iter().filter(|queue| queue.messages > 0).take(FULLEST);
        let fullest: Vec<Value> = fullest.map(|queue| fill_json(queue, now)).collect();
        json!({
            "id": figures.id,
            "version": env!("CARGO_PKG_VERSION"),
            "healthy": self.is_healthy() && figures.series_failing.is_none(),
            "warnings": warnings,
            "uptime_s": figures.uptime_s,
            "clock": { "trusted": now.wall_trusted, "now_ms": now.wall.0 },
            "recovery": recovery_json(&figures),
            "listeners": listeners_json(&figures),
            "certificates": self.certificates_json(now),
            "connections": connections_json(&figures),
            "traffic": traffic_json(&figures),
            "denied": denied_json(&figures),
            "sessions": {
                "total": figures.broker.sessions,
                "connected": figures.broker.sessions_connected,
                "subscriptions": figures.broker.subscriptions,
                "queued": figures.broker.queued,
            },
            "queues": { "total": figures.broker.named_queues, "exchanges": figures.broker.exchanges },
            "fullest": fullest,
            "readings": {
                "store": figures.series_failing.unwrap_or("working"),
                "unflushed": self.unflushed_readings(),
            },
            "retained": { "count": figures.broker.retained, "bytes": figures.broker.retained_bytes },
            "memory_bytes": figures.broker.memory_bytes,
            "flash": flash_json(&figures),
            "lost": lost_json(&figures),
        })
    }

    /// Readings that are not in the collections' store yet.
    #[must_use]
    pub fn unflushed_readings(&self) -> u64 {
        let collections = self.broker.collections();
        collections.map(|(index, _)| u64::from(self.broker.unsettled_readings(index).0)).sum()
    }

    /// What needs attention, a sentence each.
    fn warnings(&self, figures: &Figures<'_>, queues: &[QueueStatus]) -> Vec<String> {
        let mut warnings = Vec::new();
        if let StoreCondition::Failing(why) = &self.store.condition {
            warnings.push(format!("the flash fails, acknowledgements wait: {why}"));
        }
        if let Some(why) = figures.series_failing {
            warnings.push(format!("collections are not stored, readings wait: {why}"));
        }
        if !figures.now.wall_trusted {
            warnings.push("the clock is not trusted: times are estimates".to_owned());
        }
        for (name, certificate) in self.certificates() {
            let days = certificate.days_left(figures.now.wall);
            if !figures.now.wall_trusted || days > CERTIFICATE_WARNING_DAYS {
                continue;
            }
            warnings.push(match days {
                ..0 => format!("certificate {name} has ended: clients refuse it"),
                _ => format!("certificate {name} ends in {days} days"),
            });
        }
        if figures.broker.flash_overspent {
            warnings.push("the day's flash budget is overspent: commits are spread".to_owned());
        }
        for queue in queues.iter().filter(|queue| fill(queue) >= FILL_WARNING).take(FULLEST) {
            let percent = percent(queue);
            let then = match queue.overflow {
                Overflow::DropOldest => "then the oldest are dropped",
                Overflow::Reject => "then publishers are refused",
            };
            warnings.push(format!("{} {} is {percent} % full, {then}", queue.kind.name(), queue.name));
        }
        warnings
    }

    fn certificates_json(&self, now: Now) -> Value {
        let certificates = self.certificates();
        let shown = certificates.iter().map(|(name, certificate)| {
            json!({
                "name": name,
                "not_before_ms": certificate.not_before.0,
                "not_after_ms": certificate.not_after.0,
                "days_left": certificate.days_left(now.wall),
            })
        });
        shown.collect()
    }

    /// The queues, the fullest first.
    #[must_use]
    pub fn queues(&self, now: Now) -> Value {
        let mut queues: Vec<_> = self.broker.queue_status().collect();
        sort_by_fill(&mut queues);
        Value::Array(queues.iter().map(|queue| queue_json(queue, now)).collect())
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

fn sort_by_fill(queues: &mut [QueueStatus]) {
    queues.sort_by(|a, b| {
        fill(b).total_cmp(&fill(a)).then_with(|| b.bytes.cmp(&a.bytes)).then_with(|| a.name.cmp(&b.name))
    });
}

fn recovery_json(figures: &Figures<'_>) -> Value {
    json!({
        "took_ms": figures.facts.recovery_ms,
        "last_stop": figures.facts.last_stop,
        "sessions": figures.recovery.sessions,
        "queues": figures.recovery.named_queues,
        "queued": figures.recovery.queued,
        "retained": figures.recovery.retained,
        "wills": figures.recovery.wills,
        "unreadable_rows": figures.recovery.unreadable,
    })
}

fn listeners_json(figures: &Figures<'_>) -> Value {
    let listeners = figures.facts.listeners.iter();
    listeners
        .map(|listener| {
            json!({
                "name": listener.name,
                "kind": listener.kind,
                "address": listener.address,
                "tls": listener.tls,
            })
        })
        .collect()
}

fn connections_json(figures: &Figures<'_>) -> Value {
    let [mqtt, amqp, joining] = figures.connections;
    json!({
        "open": mqtt + amqp + joining,
        "mqtt": mqtt,
        "amqp": amqp,
        "max": figures.connections_max,
        "held_back": figures.held_back,
        "accepted": figures.counters.connections,
        "refused": figures.counters.refused,
        "protocol_errors": figures.counters.protocol_errors,
    })
}

fn traffic_json(figures: &Figures<'_>) -> Value {
    let counters = figures.broker.counters;
    let received: Map<String, Value> = PROTOCOLS
        .iter()
        .zip(figures.tally.received)
        .map(|(name, count)| (format!("published_{name}"), json!(count)))
        .collect();
    let mut shown = json!({
        "packets_received": figures.counters.packets_received,
        "bytes_received": figures.counters.bytes_received,
        "bytes_sent": figures.counters.bytes_sent,
        "published": counters.published,
        "delivered": counters.delivered,
        "queued": counters.queued,
        "settled": counters.settled,
        "unrouted": counters.unrouted,
        "discarded": counters.discarded,
        "dead_lettered": counters.dead_lettered,
        "address_too_long": counters.address_too_long,
        "dropped_output_full": counters.dropped_output_full,
        "retained_refused": counters.retained_refused,
        "refused_by_full_queues": counters.refused,
        "credit_stalls": counters.credit_stalls,
    });
    if let Value::Object(members) = &mut shown {
        members.extend(received);
    }
    shown
}

fn denied_json(figures: &Figures<'_>) -> Value {
    let denials = &figures.tally.denials;
    Denied::ALL.iter().map(|denied| (denied.name().to_owned(), json!(denials.count(*denied)))).collect()
}

fn flash_json(figures: &Figures<'_>) -> Value {
    let store = match &figures.store.condition {
        StoreCondition::Working => "working",
        StoreCondition::Failing(why) => why.as_str(),
    };
    json!({
        "store": store,
        "batches": figures.store.batches,
        "syncs": figures.store.syncs,
        "bytes_written": figures.store.bytes_written,
        "bytes_today": figures.store.bytes_today(figures.now),
        "budget_bytes_per_day": figures.facts.flash_bytes_per_day,
        "bytes_live": figures.broker.flash_bytes_live,
        "quota_bytes": figures.broker.flash_quota_bytes,
        "over_budget": figures.broker.flash_overspent,
        "elided": figures.broker.elided,
    })
}

fn lost_json(figures: &Figures<'_>) -> Value {
    let mut by_reason: Map<String, Value> = Map::new();
    for (reason, _, count) in &figures.broker.lost {
        let sum = by_reason.get(reason.name()).and_then(Value::as_u64).unwrap_or(0) + count;
        by_reason.insert(reason.name().to_owned(), json!(sum));
    }
    json!({ "messages": figures.broker.counters.lost, "by_reason": by_reason })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a percentage that is shown, never negative"
)]
fn percent(queue: &QueueStatus) -> u64 {
    (fill(queue) * 100.0) as u64
}

fn fill_json(queue: &QueueStatus, now: Now) -> Value {
    json!({
        "name": queue.name,
        "kind": queue.kind.name(),
        "fill_percent": percent(queue),
        "messages": queue.messages,
        "bytes": queue.bytes,
        "oldest_ms": age_ms(queue, now),
        "full_in_s": full_in_s(queue, now),
    })
}

pub(super) fn queue_json(queue: &QueueStatus, now: Now) -> Value {
    json!({
        "name": queue.name,
        "kind": queue.kind.name(),
        "consumers": queue.consumers,
        "durable": queue.durable,
        "connected": queue.connected,
        "subscriptions": queue.subscriptions,
        "ready": queue.ready,
        "in_flight": queue.in_flight,
        "bytes": queue.bytes,
        "messages_max": queue.messages_max,
        "bytes_max": queue.bytes_max,
        "fill_percent": percent(queue),
        "oldest_ms": age_ms(queue, now),
        "full_in_s": full_in_s(queue, now),
        "overflow": match queue.overflow {
            Overflow::DropOldest => "drop_oldest",
            Overflow::Reject => "reject",
        },
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
