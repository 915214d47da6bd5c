//! The replies a connection owes, in the order of what they answer. [MQTT-4.6.0-2], [MQTT-4.6.0-3]

use std::collections::VecDeque;

use super::codec::{
    self, ConnectReturnCode, PacketIdentifier, ProtocolVersion, SubscribeReturnCode, encode_connack,
    encode_pingresp, encode_puback, encode_pubcomp, encode_pubrec, encode_suback, encode_unsuback,
};
use crate::broker::Gate;
#[cfg(feature = "mutations")]
use crate::broker::mutation;
use crate::ids::BatchNumber;
use crate::limits;

/// A reply that waits for its gate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    ConnAck { session_present: bool },
    PubAck(PacketIdentifier),
    PubRec(PacketIdentifier),
    PubRel(PacketIdentifier),
    PubComp(PacketIdentifier),
    SubAck(PacketIdentifier, Box<[SubscribeReturnCode]>),
    UnsubAck(PacketIdentifier),
    PingResp,
}

impl Reply {
    /// Appends the packet.
    pub fn encode(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        match self {
            Self::ConnAck { session_present } => {
                encode_connack(out, *session_present, ConnectReturnCode::Accepted, version);
            }
            Self::PubAck(identifier) => encode_puback(out, *identifier),
            Self::PubRec(identifier) => encode_pubrec(out, *identifier),
            Self::PubRel(identifier) => codec::client::encode_pubrel(out, *identifier),
            Self::PubComp(identifier) => encode_pubcomp(out, *identifier),
            Self::SubAck(identifier, codes) => {
                // A SUBSCRIBE has at least one filter and fits the largest packet, and so does its answer.
                let _fits = encode_suback(out, *identifier, codes);
            }
            Self::UnsubAck(identifier) => encode_unsuback(out, *identifier),
            Self::PingResp => encode_pingresp(out),
        }
    }
}

/// First in, first out: a reply leaves when its gate is due and all before it have left.
#[derive(Debug, Default)]
pub(super) struct OwedReplies {
    replies: VecDeque<(Gate, Reply)>,
    /// Memory that they take.
    bytes: usize,
}

impl OwedReplies {
    pub fn push(&mut self, gate: Gate, reply: Reply) {
        self.bytes += memory_bytes(&reply);
        self.replies.push_back((gate, reply));
    }

    /// The next reply that may leave.
    pub fn pop_due(&mut self, persisted: BatchNumber) -> Option<Reply> {
        #[cfg(feature = "mutations")]
        if mutation::is_made(mutation::Mutation::ReplyOvertakes) {
            let due = self.replies.iter().position(|(gate, _)| gate.is_due(persisted))?;
            self.replies.swap(0, due);
        }
        let (_, reply) = self.replies.pop_front_if(|(gate, _)| gate.is_due(persisted))?;
        self.bytes -= memory_bytes(&reply);
        Some(reply)
    }

    /// True when nothing more may be asked for until some have left.
    pub const fn is_full(&self) -> bool {
        self.bytes >= limits::OWED_BYTES_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub fn shrink(&mut self) {
        if self.replies.is_empty() {
            self.replies = VecDeque::new();
        }
    }
}

fn memory_bytes(reply: &Reply) -> usize {
    let codes = match reply {
        Reply::SubAck(_, codes) => codes.len(),
        Reply::ConnAck { .. }
        | Reply::PubAck(_)
        | Reply::PubRec(_)
        | Reply::PubRel(_)
        | Reply::PubComp(_)
        | Reply::UnsubAck(_)
        | Reply::PingResp => 0,
    };
    size_of::<(Gate, Reply)>() + codes
}
