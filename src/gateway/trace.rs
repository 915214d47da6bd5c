//! `trace`: where messages of a topic go, and where they went wrong.

use serde_json::{Value, json};

use super::Gateway;
use super::figures::fill;
use super::status::{loss_json, queue_json};
use crate::auth::Denied;
use crate::broker::{Overflow, QueueKind, QueueStatus};
use crate::mqtt::topic::TopicName;
use crate::time::Now;

impl Gateway {
    /// Who gets messages of `topic`, what of them was denied or lost, and what to change.
    ///
    /// # Errors
    /// Why it is no topic.
    pub fn trace(&mut self, now: Now, topic: &str) -> Result<Value, String> {
        TopicName::parse(topic).map_err(|error| format!("topic: {error}"))?;
        let takers = self.broker.takers(topic);
        let takers: Vec<QueueStatus> =
            takers.into_iter().filter_map(|index| self.broker.status_of_queue(index)).collect();
        let denials: Vec<Value> =
            self.denials_where(|denial| denial.denied != Denied::Login && *denial.what == *topic);
        let logins: Vec<Value> = self.denials_where(|denial| denial.denied == Denied::Login);
        let losses: Vec<Value> = self
            .broker
            .loss_receipts()
            .filter(|receipt| takers.iter().any(|taker| taker.name == receipt.queue))
            .map(loss_json)
            .collect();
        let retained = self.broker.retained_value(topic).map(|held| {
            json!({
                "payload": String::from_utf8_lossy(&held.message.body),
                "received_at_ms": held.message.received_at.0,
            })
        });
        let mut advice: Vec<String> = takers.iter().flat_map(advice_of).collect();
        if takers.is_empty() {
            advice.push(
                "no session, queue or route wants this topic: messages are acknowledged and dropped; subscribe, bind to \
                 amq.topic, or add it to ingest.*.topics"
                    .to_owned(),
            );
        }
        if !denials.is_empty() {
            advice.push("rules deny it to some: see auth.acl_file, and gatewayd acl test".to_owned());
        }
        Ok(json!({
            "topic": topic,
            "takers": takers.iter().map(|taker| queue_json(taker, now)).collect::<Vec<_>>(),
            "retained": retained,
            "denials": denials,
            "refused_logins": logins,
            "losses": losses,
            "advice": advice,
        }))
    }
}

/// What may be wrong with a taker, a sentence each.
fn advice_of(taker: &QueueStatus) -> Vec<String> {
    let mut advice = Vec::new();
    let key = match taker.kind {
        QueueKind::Session => "queue.session",
        QueueKind::Named => "queue.default, or a [queue.*] table of its name",
        QueueKind::Collection => return advice,
    };
    let name = format!("{} {}", taker.kind.name(), taker.name);
    if !taker.connected {
        advice.push(format!("{name}: nobody takes from it; {} messages wait", taker.ready));
    } else if taker.ready > 0 && taker.in_flight > 0 {
        advice.push(format!(
            "{name}: {} are handed out and not acknowledged, {} wait; its client is slow, or limits.inflight_max small",
            taker.in_flight, taker.ready
        ));
    }
    if taker.dropped > 0 || fill(taker) >= 1.0 {
        let what = match taker.overflow {
            Overflow::DropOldest => "the oldest are dropped",
            Overflow::Reject => "new ones are refused",
        };
        advice.push(format!("{name}: it was full, {what} ({} so far); its bound is {key}", taker.dropped));
    }
    advice
}
