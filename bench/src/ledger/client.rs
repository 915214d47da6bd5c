//! The two state machines of the ledger: a publisher that resends what is not acknowledged, a subscriber that takes
//! QoS 2 once for each packet identifier. Both survive any number of connections; sockets are `run`'s.

use std::collections::{BTreeSet, VecDeque};
use std::mem;

use super::message;
use super::record::{MessageName, Record, SubscriberKind};
use crate::packet::{self, Packet, Publish};

/// A message on its way, in the order of sending.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    packet_identifier: u16,
    message: MessageName,
    filler: usize,
    /// PUBREC has come, PUBCOMP has not.
    released: bool,
}

#[derive(Debug)]
pub struct Publisher {
    index: u16,
    topic_prefix: String,
    window: usize,
    next_packet_identifier: u16,
    /// Next sequence at QoS 1 and QoS 2.
    next_sequence: [u64; 2],
    in_flight: VecDeque<InFlight>,
}

impl Publisher {
    pub const fn index(&self) -> u16 {
        self.index
    }

    pub fn new(index: u16, topic_prefix: &str, window: usize) -> Self {
        Self {
            index,
            topic_prefix: topic_prefix.to_owned(),
            window,
            next_packet_identifier: 1,
            next_sequence: [0; 2],
            in_flight: VecDeque::new(),
        }
    }

    pub fn has_room(&self) -> bool {
        self.in_flight.len() < self.window
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Encodes the next message at `qos` (1 or 2).
    pub fn publish(&mut self, qos: u8, filler: usize, out: &mut Vec<u8>, records: &mut Vec<Record>) {
        let [first, second] = &mut self.next_sequence;
        let sequence = if qos == 2 { second } else { first };
        let message = MessageName { publisher: self.index, qos, sequence: *sequence };
        *sequence += 1;
        let in_flight =
            InFlight { packet_identifier: self.free_identifier(), message, filler, released: false };
        records.push(Record::Sent(message));
        self.in_flight.push_back(in_flight);
        self.encode(&in_flight, false, out);
    }

    /// CONNACK: everything on its way goes out again, in its order. A broker that has lost the session gets it anew.
    pub fn resume(&mut self, session_present: bool, out: &mut Vec<u8>) {
        let mut in_flight = mem::take(&mut self.in_flight);
        for entry in &mut in_flight {
            if entry.released && session_present {
                packet::encode_pubrel(out, entry.packet_identifier);
            } else if !entry.released {
                self.encode(entry, session_present, out);
            }
        }
        if !session_present {
            in_flight.retain(|entry| !entry.released);
        }
        self.in_flight = in_flight;
    }

    pub fn handle(&mut self, packet: Packet<'_>, out: &mut Vec<u8>, records: &mut Vec<Record>) {
        match packet {
            Packet::Puback(id) | Packet::Pubcomp(id) => {
                let at = self.in_flight.iter().position(|entry| entry.packet_identifier == id);
                let Some(entry) = at.and_then(|at| self.in_flight.remove(at)) else { return };
                if entry.message.qos == 1 {
                    records.push(Record::Acknowledged(entry.message));
                }
            }
            Packet::Pubrec(id) => {
                if let Some(entry) = self.in_flight.iter_mut().find(|entry| entry.packet_identifier == id) {
                    entry.released = true;
                    records.push(Record::Acknowledged(entry.message));
                }
                packet::encode_pubrel(out, id);
            }
            _ => {}
        }
    }

    fn encode(&self, entry: &InFlight, dup: bool, out: &mut Vec<u8>) {
        let qos = entry.message.qos;
        let topic = format!("{}/{}/q{qos}", self.topic_prefix, self.index);
        let payload = message::encode(entry.message, entry.filler);
        let id = entry.packet_identifier;
        packet::encode_publish(
            out,
            &Publish { dup, qos, retain: false, topic: topic.as_bytes(), id, payload: &payload },
        );
    }

    fn free_identifier(&mut self) -> u16 {
        loop {
            let id = self.next_packet_identifier;
            self.next_packet_identifier = id.checked_add(1).unwrap_or(1);
            if self.in_flight.iter().all(|entry| entry.packet_identifier != id) {
                return id;
            }
        }
    }
}

#[derive(Debug)]
pub struct Subscriber {
    index: u16,
    pub kind: SubscriberKind,
    filter: String,
    qos: u8,
    /// Packet identifiers received at QoS 2 whose PUBREL has not come.
    held: BTreeSet<u16>,
}

impl Subscriber {
    pub const fn index(&self) -> u16 {
        self.index
    }

    pub const fn new(index: u16, kind: SubscriberKind, filter: String, qos: u8) -> Self {
        Self { index, kind, filter, qos, held: BTreeSet::new() }
    }

    /// Puts back an identifier from a ledger file.
    pub fn replay(&mut self, record: &Record) {
        match *record {
            Record::Received { subscriber, delivered_qos: 2, packet_identifier, .. }
                if subscriber == self.index =>
            {
                self.held.insert(packet_identifier);
            }
            Record::Released { subscriber, packet_identifier } if subscriber == self.index => {
                self.held.remove(&packet_identifier);
            }
            _ => {}
        }
    }

    /// CONNACK: without a session the broker has forgotten its identifiers, and the subscription is made anew.
    pub fn resume(&mut self, session_present: bool, out: &mut Vec<u8>) {
        if !session_present {
            self.held.clear();
            packet::encode_subscribe(out, 1, &self.filter, self.qos);
        }
    }

    pub fn handle(&mut self, packet: Packet<'_>, out: &mut Vec<u8>, records: &mut Vec<Record>) {
        match packet {
            Packet::Publish(publish) => {
                if publish.qos < 2 || self.held.insert(publish.id) {
                    records.push(self.record(&publish));
                }
                match publish.qos {
                    1 => packet::encode_puback(out, publish.id),
                    2 => packet::encode_pubrec(out, publish.id),
                    _ => {}
                }
            }
            Packet::Pubrel(id) => {
                self.held.remove(&id);
                records.push(Record::Released { subscriber: self.index, packet_identifier: id });
                packet::encode_pubcomp(out, id);
            }
            _ => {}
        }
    }

    fn record(&self, publish: &Publish<'_>) -> Record {
        message::decode(publish.payload).map_or(Record::Corrupt { subscriber: self.index }, |message| {
            Record::Received {
                subscriber: self.index,
                message,
                delivered_qos: publish.qos,
                packet_identifier: publish.id,
                dup: publish.dup,
            }
        })
    }
}
