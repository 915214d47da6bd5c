//! One publisher's window: packet identifiers that are free or in flight, and the messages it encodes.

use std::time::Instant;

use crate::packet::{self, Packet, Publish};

/// Payloads of at least this many bytes carry the moment of their PUBLISH in front, nanoseconds, little-endian.
pub const STAMP_BYTES: usize = 8;

/// Payloads of at least this many bytes carry, after the moment, the publisher's sequence number from 0, little-endian.
pub const SEQUENCE_END: usize = 16;

pub struct Publisher {
    topic: Vec<u8>,
    payload: Vec<u8>,
    qos: u8,
    free: Vec<u16>,
    /// Nanoseconds at which the identifier with this index was last sent.
    sent_ns: Vec<u64>,
    window: u16,
    sent: u64,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// The message sent at this moment is wholly acknowledged.
    SentAt(u64),
    /// There is another step, or the packet was of no concern.
    NotYet,
}

impl Publisher {
    pub fn new(topic: String, payload_bytes: usize, qos: u8, window: u16) -> Self {
        Self {
            topic: topic.into_bytes(),
            payload: vec![b'x'; payload_bytes],
            qos,
            free: (1..=window).rev().collect(),
            sent_ns: vec![0; usize::from(window) + 1],
            window,
            sent: 0,
        }
    }

    /// Messages encoded so far.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether the window has room; at QoS 0 the engine counts deliveries instead.
    pub const fn has_room(&self) -> bool {
        self.qos == 0 || !self.free.is_empty()
    }

    pub const fn is_idle(&self) -> bool {
        self.qos == 0 || self.free.len() == self.window as usize
    }

    /// Appends the next PUBLISH to `out`. The caller has asked `has_room`.
    pub fn encode_next(&mut self, now_ns: u64, out: &mut Vec<u8>) {
        let id = if self.qos == 0 { 0 } else { self.free.pop().expect("the caller has asked for room") };
        if let Some(sent) = self.sent_ns.get_mut(usize::from(id)) {
            *sent = now_ns;
        }
        if let Some(stamp) = self.payload.get_mut(..STAMP_BYTES) {
            stamp.copy_from_slice(&now_ns.to_le_bytes());
        }
        if let Some(sequence) = self.payload.get_mut(STAMP_BYTES..SEQUENCE_END) {
            sequence.copy_from_slice(&self.sent.to_le_bytes());
        }
        let is_told = self.sent > 0 && packet::aliases_topics();
        self.sent += 1;
        let publish = Publish {
            dup: false,
            qos: self.qos,
            retain: false,
            topic: if is_told { &[] } else { &self.topic },
            id,
            payload: &self.payload,
        };
        packet::encode_publish(out, &publish);
    }

    /// Takes an acknowledgement and answers it where QoS 2 wants that.
    pub fn handle(&mut self, packet: Packet<'_>, out: &mut Vec<u8>) -> Settled {
        match (packet, self.qos) {
            (Packet::Puback(id), 1) | (Packet::Pubcomp(id), 2) => {
                self.free.push(id);
                Settled::SentAt(self.sent_ns.get(usize::from(id)).copied().unwrap_or(0))
            }
            (Packet::Pubrec(id), 2) => {
                packet::encode_pubrel(out, id);
                Settled::NotYet
            }
            _ => Settled::NotYet,
        }
    }
}

/// Nanoseconds since the generator's own start.
pub fn nanoseconds_since(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
