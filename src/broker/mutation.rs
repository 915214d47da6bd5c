//! Known mistakes, one of which can be made on purpose: the simulator (tests/sim) must find each.
//!
//! Compiled with the feature `mutations` only, which nothing but that test enables. A hook is an `if` where the
//! mistake would be made; without the feature neither the hook nor this file exists.

use std::cell::Cell;

/// A mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// PUBCOMP leaves before the release of the publisher's identifier is on flash.
    CompleteBeforeKept,
    /// PUBRELs that are owed to a client are not sent when it comes back.
    ForgetOwedRelease,
    /// A PUBREL that is owed leaves on the next connection before the receipt is on flash.
    ReleaseBeforeKept,
    /// An exactly-once delivery leaves before its identifier is on flash.
    DeliverBeforeKept,
    /// A full queue drops its newest message.
    DropNewest,
    /// A start does not apply the queues' bounds.
    RecoverBeyondBounds,
    /// A settlement takes every message of the same content with it.
    SettleByContent,
    /// A reply leaves as soon as it is due, whatever is before it.
    ReplyOvertakes,
    /// SUBACK does not wait for the subscription to be on flash.
    SubscribeBeforeKept,
    /// A start forgets how far a queue without messages has settled.
    ForgetEmptyMarks,
    /// A start after a power cut takes it that clients that seemed to be away got nothing.
    ForgetSentMarks,
    /// A value that was replaced is not written as such.
    ForgetReplacedValues,
    /// A start forgets the newest chunk of the backlog.
    ForgetChunk,
    /// A chunk counts as soon as it was copied, whatever became of its rows meanwhile.
    AdoptUnseen,
    /// What comes back to a queue goes behind all that waits.
    RequeueBehind,
    /// Consumers are sent more than they said they take.
    IgnoreCredit,
    /// A publisher's confirm does not wait for flash.
    ConfirmBeforeKept,
    /// A publisher's acknowledgement does not wait for the named queues that got the message.
    ForgetQueuesInGate,
    /// What came back to a queue does not say so.
    ForgetReturned,
    /// A message goes to two consumers at a time.
    DeliverTwice,
    /// Sessions keep what has expired.
    KeepExpired,
    /// What was purged is not written as such.
    ForgetPurge,
    /// Who asks a queue for a message is told that it is empty, though rows only have to be read back.
    EmptyWithRows,
}

thread_local! {
    static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
}

/// Makes this mistake on this thread from now on, or none.
pub fn make(mutation: Option<Mutation>) {
    ACTIVE.set(mutation);
}

/// True when this mistake is to be made.
#[must_use]
pub fn is_made(mutation: Mutation) -> bool {
    ACTIVE.get() == Some(mutation)
}
