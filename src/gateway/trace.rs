//! `trace`: where messages of a topic go, and where they went wrong. From the first question on the topic is watched, and
//! each step of the way shows how many came to it, the last example, and the setting that decides there.

use std::sync::Arc;

use serde_json::{Value, json};

use super::endpoint::ProtocolEndpoint;
use super::figures::fill;
use super::status::{loss_json, queue_json};
use super::{Gateway, PROTOCOLS, Tally};
use crate::auth::{Denial, Denied};
use crate::broker::{
    Delivery, Overflow, Publisher, QueueKind, QueueStatus, TraceExample, TraceStep, Traced, WATCHED_FOR,
    Watch,
};
use crate::ids::ConnectionId;
use crate::ingest;
use crate::message::Message;
use crate::mqtt::topic::TopicName;
use crate::series::document::Payload;
use crate::time::Now;

/// What a client that may not, or cannot, take a message is told of as.
const NOT_TAKEN: &str = "not allowed, or not taken";

impl Gateway {
    /// Watches `topic` from now on, and says what became of its messages since it was watched, who gets them now, what of
    /// them was denied or lost, and what to change.
    ///
    /// # Errors
    /// Why it is no topic.
    pub fn trace(&mut self, now: Now, topic: &str) -> Result<Value, String> {
        TopicName::parse(topic).map_err(|error| format!("topic: {error}"))?;
        let takers = self.broker.takers(topic);
        let takers: Vec<QueueStatus> =
            takers.into_iter().filter_map(|index| self.broker.status_of_queue(index)).collect();
        let about_topic = |denial: &Denial| denial.denied != Denied::Login && *denial.what == *topic;
        let denials = self.denials_where(about_topic);
        let logins = self.denials_where(|denial| denial.denied == Denied::Login);
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
        let advice = self.advice(&takers, !denials.is_empty());
        let watch = self.broker.watch(now, topic).clone();
        let collections = takers.iter().any(|taker| taker.kind == QueueKind::Collection);
        let steps = self.steps(&watch, topic, collections);
        Ok(json!({
            "topic": topic,
            "since_ms": watch.since.wall.0,
            "watched_ms": u64::try_from(now.mono.since(watch.since.mono).as_millis()).unwrap_or(u64::MAX),
            "watched_on_s": WATCHED_FOR.as_secs(),
            "steps": steps,
            "publishers": watch.publishers.iter().map(publisher_json).collect::<Vec<_>>(),
            "takers": takers.iter().map(|taker| queue_json(taker, now)).collect::<Vec<_>>(),
            "retained": retained,
            "denials": denials,
            "refused_logins": logins,
            "losses": losses,
            "advice": advice,
        }))
    }

    fn advice(&self, takers: &[QueueStatus], denied: bool) -> Vec<String> {
        let mut advice: Vec<String> = takers.iter().flat_map(advice_of).collect();
        if takers.is_empty() {
            advice.push(
                "no session, queue or route wants this topic: messages are acknowledged and dropped; subscribe, bind to \
                 amq.topic, or add it to ingest.*.topics"
                    .to_owned(),
            );
        }
        if denied {
            advice.push("rules deny it to some: see auth.acl_file, and gatewayd acl test".to_owned());
        }
        if let Some(why) = &self.readings.failing {
            advice.push(format!("collections are not stored: {why}"));
        }
        advice
    }

    /// The way of a message, step by step. `count` came to the step and through it, `failed` ended there.
    fn steps(&self, watch: &Watch, topic: &str, collections: bool) -> Vec<Value> {
        let (open, joined) = (self.connections.len(), self.joined());
        let refused = self.counters.refused + self.counters.protocol_errors;
        let denials = &self.tally.denials;
        let login = newest(&denials.remembered(), |denial| denial.denied == Denied::Login);
        let denied: Vec<Denial> = denials.remembered();
        let publish = |denial: &Denial| denial.denied == Denied::Publish && *denial.what == *topic;
        let times_denied: u64 =
            denied.iter().filter(|denial| publish(denial)).map(|denial| denial.count).sum();
        let of = |step: TraceStep| watch.step(step);
        let (received, unwanted) = (of(TraceStep::Received), of(TraceStep::Unwanted));
        let publisher = watch.publishers.last().map(publisher_example);
        let only_collections = |value: Value| if collections { value } else { Value::Null };
        let dropped = of(TraceStep::Dropped);
        let drop_key = dropped.last.as_ref().map_or("queue.*", |last| key_of(&last.why));
        let wanted = Traced { count: received.count - unwanted.count, last: received.last.clone() };
        vec![
            step("connected", json!(open), json!(refused), publisher, "limits.connections_max, listener.*"),
            step(
                "authenticated",
                json!(joined),
                json!(denials.count(Denied::Login)),
                login,
                "auth.password_file",
            ),
            step(
                "allowed",
                json!(received.count),
                json!(times_denied),
                newest(&denied, publish).or_else(|| example(received)),
                "auth.acl_file",
            ),
            counted("matched", &wanted, unwanted, "ingest.*.topics, a subscription, or a binding"),
            step(
                "parsed",
                only_collections(json!(of(TraceStep::Parsed).count)),
                only_collections(json!(of(TraceStep::Malformed).count)),
                example(of(TraceStep::Malformed)).or_else(|| example(of(TraceStep::Parsed))),
                "the sender's payload; ingest.*",
            ),
            step(
                "stored",
                only_collections(json!(of(TraceStep::Stored).count)),
                Value::Null,
                example(of(TraceStep::Stored)),
                "collection.*",
            ),
            counted("queued", of(TraceStep::Queued), of(TraceStep::Refused), "queue.*"),
            step("dropped", Value::Null, json!(dropped.count), example(dropped), drop_key),
            counted(
                "delivered",
                of(TraceStep::Delivered),
                of(TraceStep::Withheld),
                "limits.inflight_max, auth.acl_file",
            ),
            counted("acknowledged", of(TraceStep::Acknowledged), of(TraceStep::Returned), "the client"),
        ]
    }

    fn joined(&self) -> usize {
        self.connections.iter().filter(|(_, endpoint)| endpoint.protocol.is_joined()).count()
    }

    /// Names who published what was just received, if somebody watches it.
    pub(super) fn trace_publisher(&mut self, now: Now, id: ConnectionId) {
        if !self.broker.is_tracing() {
            return;
        }
        let Some(endpoint) = self.connections.get(id) else { return };
        let protocol = match &endpoint.protocol {
            ProtocolEndpoint::Mqtt(_) => Tally::MQTT,
            ProtocolEndpoint::Amqp091(_) => Tally::AMQP,
        };
        let identity = endpoint.protocol.identity();
        let protocol = PROTOCOLS.get(protocol).copied().unwrap_or_default();
        self.broker.name_publisher(now, protocol, identity.username, identity.client_identifier);
    }

    /// A copy has left for its client.
    pub(super) fn trace_delivered(&mut self, now: Now, delivery: &Delivery) {
        if self.broker.is_tracing() {
            self.trace_copy(now, TraceStep::Delivered, delivery, "");
        }
    }

    /// A copy may not, or cannot, leave for its client.
    pub(super) fn withdraw(&mut self, now: Now, delivery: &Delivery) {
        if self.broker.is_tracing() && delivery.tag == 0 {
            self.trace_copy(now, TraceStep::Withheld, delivery, NOT_TAKEN);
        }
        self.broker.withdraw(now, delivery.queue, delivery.tag);
    }

    #[cold]
    fn trace_copy(&mut self, now: Now, step: TraceStep, delivery: &Delivery, why: &str) {
        let endpoint = self.connections.get(delivery.connection);
        let client = endpoint.map_or("", |endpoint| endpoint.protocol.identity().client_identifier);
        self.broker.note_step(now, step, &delivery.held.message, (client, why));
    }

    /// Readings were made of messages that are watched.
    pub(super) fn trace_parsed(&mut self, now: Now, parsed: &[(Arc<str>, Message)]) {
        for (collection, message) in parsed {
            let (step, why) = match ingest::fault(&message.body) {
                Some((_, why)) => (TraceStep::Malformed, why),
                None => (TraceStep::Parsed, kind_of(&message.body).to_owned()),
            };
            self.broker.note_step(now, step, message, (collection, &why));
        }
    }
}

/// Adds what collections know of the topic, whether it was watched or not: `overviews` describe them with their series.
pub fn add_series(trace: &mut Value, overviews: &[Value]) {
    let topic = trace.get("topic").cloned().unwrap_or_default();
    let mut rows = Vec::new();
    let mut malformed = Vec::new();
    for overview in overviews {
        let list = |path: &str| overview.pointer(path).and_then(Value::as_array).into_iter().flatten();
        for series in list("/series").filter(|series| series.get("topic") == Some(&topic)) {
            rows.push(json!({
                "collection": overview.get("name"),
                "readings": series.get("readings"),
                "first_at_ms": series.get("first"),
                "last_at_ms": series.get("last"),
            }));
        }
        let examples = list("/errors/examples");
        malformed.extend(examples.filter(|example| example.get("topic") == Some(&topic)).map(|example| {
            json!({
                "collection": overview.get("name"),
                "received_at_ms": example.get("received_at"),
                "why": example.get("why"),
                "payload": example.get("payload"),
            })
        }));
    }
    if let Value::Object(members) = trace {
        members.insert("series".to_owned(), Value::Array(rows));
        members.insert("malformed".to_owned(), Value::Array(malformed));
    }
}

fn step(name: &str, count: Value, failed: Value, last: Option<Value>, key: &str) -> Value {
    json!({ "step": name, "count": count, "failed": failed, "last": last, "key": key })
}

/// A step with what came through and what did not; of the examples the one that failed, if there is one.
fn counted(name: &str, through: &Traced, failed: &Traced, key: &str) -> Value {
    let last = example(failed).or_else(|| example(through));
    step(name, json!(through.count), json!(failed.count), last, key)
}

fn example(traced: &Traced) -> Option<Value> {
    traced.last.as_ref().map(|TraceExample { at, name, why, payload, payload_bytes }| {
        json!({ "at_ms": at.0, "name": name, "why": why, "payload": payload, "payload_bytes": payload_bytes })
    })
}

fn newest(denials: &[Denial], wanted: impl Fn(&Denial) -> bool) -> Option<Value> {
    denials.iter().rev().find(|denial| wanted(denial)).map(|denial| {
        let why = match &denial.user_name {
            Some(name) => format!("denied to user {name}"),
            None => "denied to a client without a user name".to_owned(),
        };
        json!({ "at_ms": denial.last_at.0, "name": denial.client_identifier, "why": why })
    })
}

fn publisher_json(publisher: &Publisher) -> Value {
    json!({
        "protocol": publisher.protocol,
        "user_name": publisher.user_name,
        "client_identifier": publisher.client_identifier,
        "count": publisher.count,
        "last_at_ms": publisher.last_at.0,
    })
}

fn publisher_example(publisher: &Publisher) -> Value {
    let name = publisher.client_identifier.as_ref();
    json!({ "at_ms": publisher.last_at.0, "name": name, "why": format!("published by {}", publisher.protocol) })
}

/// What a payload is that is no broken document.
fn kind_of(payload: &[u8]) -> &'static str {
    match Payload::of(payload) {
        Payload::Object(_) => "a JSON object",
        Payload::Json(_) => "a JSON value",
        Payload::Text(..) => "text",
        Payload::Binary(_) => "bytes",
    }
}

/// The setting that decides about what was dropped for this reason.
fn key_of(reason: &str) -> &'static str {
    match reason {
        "flash_quota" => "storage.gateway_bytes_max",
        "memory_bound" => "limits.memory_max",
        "session_expired" => "limits.session_expiry_max",
        "expired" => "the message's time to live",
        "packet_too_large" => "none: the client's Maximum Packet Size",
        "delivery_limit" => "the queue's x-delivery-limit",
        "unrouted" => "the bindings of the exchange that it went to from there",
        "dead_lettered" => "the queue's x-dead-letter-exchange",
        "output_full" => "none: the client reads too slowly",
        "address_too_long" => "none: AMQP takes 255 bytes",
        "purged" => "none: somebody purged the queue",
        _ => "queue.*",
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
