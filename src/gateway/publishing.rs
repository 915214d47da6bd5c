//! Publishing without a connection of the gateway's own protocols: `POST /api/v1/publish`. The answer waits for what
//! PUBACK waits for.

use std::fmt;

use super::tally::Tally;
use super::{Gateway, Output};
use crate::auth::{Denied, Identity};
use crate::broker::{Gate, Publish, WillNumber};
use crate::ids::ConnectionId;
use crate::message::{Assurance, is_reserved};
use crate::mqtt::topic::TopicName;
use crate::time::Now;

/// Answers that may wait at once; more publishes are told to come back.
const WAITING_MAX: usize = 4096;

/// The one who waits for all these answers: no connection ever has this number.
const WAITER: ConnectionId = ConnectionId(u64::MAX);

/// A message as it is handed over.
#[derive(Clone, Copy, Debug)]
pub struct DirectPublish<'a> {
    /// Who publishes; `None` where nobody has to log in.
    pub user_name: Option<&'a str>,
    pub topic: &'a str,
    pub body: &'a [u8],
    pub assurance: Assurance,
    pub retain: bool,
}

/// Names an answer that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Why a message was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublishRefused {
    /// Not a topic name; the reason.
    Topic(String),
    NotAllowed,
    /// The topic begins with `$SYS`: it is the gateway's own.
    Reserved,
    TooLarge,
    /// A queue that rejects is full.
    QueueFull,
    /// Too much waits for the flash.
    Congested,
}

impl fmt::Display for PublishRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(why) => write!(f, "topic: {why}"),
            Self::NotAllowed => f.write_str("the ACL does not allow publishing to this topic"),
            Self::Reserved => f.write_str("topics under $SYS are the gateway's own"),
            Self::TooLarge => f.write_str("the payload is larger than limits.message_bytes_max"),
            Self::QueueFull => f.write_str("a queue that wants it is full and rejects"),
            Self::Congested => f.write_str("too much waits for the flash; try again"),
        }
    }
}

/// Answers that wait for the flash.
#[derive(Debug, Default)]
pub(super) struct DirectAnswers {
    waiting: Vec<(Ticket, Gate)>,
    next: u64,
}

impl Gateway {
    /// Takes a message. [`Output::Kept`] with the ticket says that it is kept, or that nothing durable wanted it.
    ///
    /// # Errors
    /// Why it was not taken. [`PublishRefused::QueueFull`] says that other queues may have taken it.
    pub fn publish(&mut self, now: Now, publish: DirectPublish<'_>) -> Result<Ticket, PublishRefused> {
        let topic =
            TopicName::parse(publish.topic).map_err(|error| PublishRefused::Topic(error.to_string()))?;
        let client = Identity { username: publish.user_name, client_identifier: "" };
        let may = !is_reserved(publish.topic)
            && self.acl.as_ref().is_none_or(|acl| acl.may_publish(client, topic.as_str()));
        if !may {
            self.tally.denials.note(now.wall, Denied::Publish, client, publish.topic);
            let reserved = is_reserved(publish.topic);
            return Err(if reserved { PublishRefused::Reserved } else { PublishRefused::NotAllowed });
        }
        if publish.body.len() as u64 > self.policy.message_bytes_max {
            return Err(PublishRefused::TooLarge);
        }
        let keeps = publish.retain || publish.assurance != Assurance::AtMostOnce;
        if keeps && (self.broker.is_congested() || self.answers.waiting.len() >= WAITING_MAX) {
            return Err(PublishRefused::Congested);
        }
        let message = Publish {
            address: publish.topic,
            body: publish.body,
            assurance: publish.assurance,
            retain: publish.retain,
            connection: Some(WAITER),
            ..Publish::default()
        };
        let routed = self.broker.publish(now, message);
        self.tally.count_received(Tally::HTTP, 0, 1);
        self.broker.name_publisher(now, "http", publish.user_name, "");
        if routed.refused {
            self.drain(now);
            return Err(PublishRefused::QueueFull);
        }
        Ok(self.answer_behind(now, routed.gate))
    }

    /// Publishes a will whose connection is gone, if the rules still let its client: they may have changed since.
    pub(super) fn send_will(&mut self, now: Now, number: WillNumber) {
        let Some(will) = self.broker.will(number) else { return };
        let client = Identity { username: will.user.as_deref(), client_identifier: &will.client };
        let topic = &will.message.address;
        if is_reserved(topic) || self.acl.as_ref().is_some_and(|acl| !acl.may_publish(client, topic)) {
            self.tally.denials.note(now.wall, Denied::Publish, client, topic);
            self.broker.forget_will(now, number);
            return;
        }
        self.broker.publish_will(now, number);
        self.tally.count_received(Tally::MQTT, 0, 1);
    }

    /// Has [`Output::Kept`] told when `gate` opens.
    pub(super) fn answer_behind(&mut self, now: Now, gate: Gate) -> Ticket {
        let ticket = Ticket(self.answers.next);
        self.answers.next += 1;
        if let Some(batch) = gate.batch() {
            self.broker.await_batch(batch, WAITER);
        }
        self.answers.waiting.push((ticket, gate));
        self.drain(now);
        self.release_answers();
        ticket
    }

    /// `limits.message_bytes_max`.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        usize::try_from(self.policy.message_bytes_max).unwrap_or(usize::MAX)
    }

    /// True for the waiter of [`Gateway::publish`].
    pub(super) fn is_direct_waiter(id: ConnectionId) -> bool {
        id == WAITER
    }

    /// Lets due answers go.
    pub(super) fn release_answers(&mut self) {
        let persisted = self.broker.persisted_batch();
        let outputs = &mut self.outputs;
        self.answers.waiting.retain(|(ticket, gate)| {
            let due = gate.is_due(persisted);
            if due {
                outputs.push_back(Output::Kept { ticket: *ticket });
            }
            !due
        });
    }
}
