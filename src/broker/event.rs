//! What the broker tells its clients: the output side of its interface.

use std::rc::Rc;

use super::held::Held;
use super::queue::QueueIndex;
use super::will::WillNumber;
use crate::ids::ConnectionId;
use crate::message::Assurance;
use crate::time::Mono;

/// A message on its way to a consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub connection: ConnectionId,
    pub queue: QueueIndex,
    /// Names the delivery in its settlement; 0 when none is expected. A session's have 16 bits.
    pub tag: u64,
    /// The consumer's handle; 0 for a session.
    pub consumer: u64,
    pub held: Rc<Held>,
    /// The assurance granted to this taker: the lower of the publisher's and the subscription's.
    pub assurance: Assurance,
    /// It carries the retain mark: it is a last known value, delivered because a subscription was made, or the
    /// subscription wants the mark as it was published.
    pub retained: bool,
    /// Identifier of the subscription that brought it, 0 for none, or [`super::SEVERAL_IDENTIFIERS`] and above.
    pub identifier: u32,
    /// When the message is worth nothing any more; the end of time: never.
    pub expires_at: Mono,
    /// It may have been sent before.
    pub redelivered: bool,
    /// Times that it was handed out and came back.
    pub returns: u16,
}

/// An output of the broker. In order: an event speaks about the state after all before it.
#[derive(Clone, Debug)]
pub enum Event {
    Deliver(Delivery),
    /// The consumer acknowledged receipt of an exactly-once delivery and its identifier's next step is kept:
    /// the release may be sent (MQTT: PUBREL).
    Release {
        connection: ConnectionId,
        tag: u32,
    },
    /// Another connection took the session over; this one must end.
    Displaced {
        connection: ConnectionId,
    },
    /// The queue of this consumer is gone.
    ConsumerEnded {
        connection: ConnectionId,
        consumer: u64,
    },
    /// Deliveries stand still after a share of last known values: [`super::Broker::set_blocked`] with `false` asks for
    /// more, once the consumer's output has room.
    Paused {
        connection: ConnectionId,
        queue: QueueIndex,
    },
    /// A will is due whose connection is gone: [`super::Broker::publish_will`], or [`super::Broker::forget_will`] where its
    /// client may no longer publish it.
    WillDue {
        will: WillNumber,
    },
    /// A gate of this connection may have opened.
    GatesMayBeDue {
        connection: ConnectionId,
    },
}
