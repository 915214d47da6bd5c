//! The replies a connection owes, in the order of what they answer. [MQTT-4.6.0-2], [MQTT-4.6.0-3]

use std::collections::VecDeque;

use super::codec::{
    self, Acknowledgement, ConnAck5, ConnectReturnCode, PacketIdentifier, PacketType, Properties, PropertyId,
    PropertyList, ProtocolVersion, ReasonCode, SubscribeReturnCode, encode_acknowledgement, encode_connack,
    encode_connack5, encode_pingresp, encode_suback, encode_unsuback, encode_unsuback5,
};
use super::version5::Version5;
use crate::broker::Gate;
#[cfg(feature = "mutations")]
use crate::broker::mutation;
use crate::ids::BatchNumber;
use crate::limits;

/// A reply that waits for its gate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// With the properties of version 5, encoded.
    ConnAck {
        session_present: bool,
        properties: Box<[u8]>,
    },
    PubAck(PacketIdentifier, ReasonCode),
    PubRec(PacketIdentifier, ReasonCode),
    PubRel(PacketIdentifier, ReasonCode),
    PubComp(PacketIdentifier, ReasonCode),
    SubAck(PacketIdentifier, Box<[SubscribeReturnCode]>),
    UnsubAck(PacketIdentifier, Box<[ReasonCode]>),
    PingResp,
}

impl Reply {
    /// Appends the packet. It has the form of version 5 when `version5` is there.
    pub fn encode(&self, out: &mut Vec<u8>, version: ProtocolVersion, version5: Option<&Version5>) {
        if let Some(version5) = version5 {
            self.encode5(out, version5);
            return;
        }
        match self {
            Self::ConnAck { session_present, .. } => {
                encode_connack(out, *session_present, ConnectReturnCode::Accepted, version);
            }
            Self::PubAck(identifier, _) => codec::encode_puback(out, *identifier),
            Self::PubRec(identifier, _) => codec::encode_pubrec(out, *identifier),
            Self::PubRel(identifier, _) => codec::encode_pubrel(out, *identifier),
            Self::PubComp(identifier, _) => codec::encode_pubcomp(out, *identifier),
            Self::SubAck(identifier, codes) => {
                // A SUBSCRIBE has at least one filter and fits the largest packet, and so does its answer.
                let _fits = encode_suback(out, *identifier, None, codes);
            }
            Self::UnsubAck(identifier, _) => encode_unsuback(out, *identifier),
            Self::PingResp => encode_pingresp(out),
        }
    }

    fn encode5(&self, out: &mut Vec<u8>, version5: &Version5) {
        let start = out.len();
        self.put(out, self.reason_string().filter(|_| version5.problem_information));
        if out.len() - start > version5.packet_bytes_max {
            // [MQTT-3.4.2-2] and its like: what explains is left out first.
            out.truncate(start);
            self.put(out, None);
        }
    }

    fn put(&self, out: &mut Vec<u8>, reason_string: Option<&str>) {
        let mut list = PropertyList::new();
        if let Some(reason_string) = reason_string {
            list.text(PropertyId::ReasonString, reason_string);
        }
        let properties = list.as_properties();
        let acknowledge = |out: &mut Vec<u8>, packet_type, packet_identifier, reason| {
            let acknowledgement = Acknowledgement { packet_identifier, reason, properties };
            encode_acknowledgement(out, packet_type, &acknowledgement)
        };
        // All of them are small, or as long as the request that they answer.
        let _fits = match self {
            Self::ConnAck { session_present, properties } => {
                let properties = Properties::from_checked(properties);
                let (session_present, reason) = (*session_present, ReasonCode::Success);
                encode_connack5(out, &ConnAck5 { session_present, reason, properties })
            }
            Self::PubAck(identifier, reason) => acknowledge(out, PacketType::PubAck, *identifier, *reason),
            Self::PubRec(identifier, reason) => acknowledge(out, PacketType::PubRec, *identifier, *reason),
            Self::PubRel(identifier, reason) => acknowledge(out, PacketType::PubRel, *identifier, *reason),
            Self::PubComp(identifier, reason) => acknowledge(out, PacketType::PubComp, *identifier, *reason),
            Self::SubAck(identifier, codes) => encode_suback(out, *identifier, Some(properties), codes),
            Self::UnsubAck(identifier, codes) => encode_unsuback5(out, *identifier, properties, codes),
            Self::PingResp => {
                encode_pingresp(out);
                Ok(())
            }
        };
    }

    /// What helps a person to understand a failure.
    fn reason_string(&self) -> Option<&'static str> {
        match self {
            Self::PubAck(_, reason) | Self::PubRec(_, reason) => match reason {
                ReasonCode::NotAuthorized => {
                    Some("the access rules do not let this client publish to this topic")
                }
                ReasonCode::QuotaExceeded => {
                    Some("a bound is reached: not all that should keep the message do")
                }
                _ => None,
            },
            Self::PubRel(_, reason) | Self::PubComp(_, reason) => match reason {
                ReasonCode::PacketIdentifierNotFound => {
                    Some("no exchange with this packet identifier is under way")
                }
                _ => None,
            },
            Self::SubAck(_, codes) => codes.iter().find_map(|code| match code {
                SubscribeReturnCode::Refused(ReasonCode::NotAuthorized) => {
                    Some("the access rules do not let this client subscribe to such a filter")
                }
                SubscribeReturnCode::Refused(ReasonCode::QuotaExceeded) => {
                    Some("there is no room for more subscriptions")
                }
                _ => None,
            }),
            Self::ConnAck { .. } | Self::UnsubAck(..) | Self::PingResp => None,
        }
    }

    /// An exchange that the client began ends with this reply. MQTT 5 section 4.9.
    pub const fn ends_exchange(&self) -> bool {
        match self {
            Self::PubAck(..) | Self::PubComp(..) => true,
            Self::PubRec(_, reason) => reason.is_failure(),
            _ => false,
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
    let beside = match reply {
        Reply::SubAck(_, codes) => size_of_val(&**codes),
        Reply::UnsubAck(_, codes) => codes.len(),
        Reply::ConnAck { properties, .. } => properties.len(),
        Reply::PubAck(..) | Reply::PubRec(..) | Reply::PubRel(..) | Reply::PubComp(..) | Reply::PingResp => 0,
    };
    size_of::<(Gate, Reply)>() + beside
}
