//! The lines of a ledger file: one record a line, fields separated by blanks, written before the answer is sent.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// How a subscriber behaves while the load runs; each is connected while it is drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubscriberKind {
    /// Connected whenever the broker is there.
    Steady,
    /// Drops its connection at random moments.
    Flapping,
    /// Connects only to be drained.
    Offline,
}

/// Who takes part. The first line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Part of client identifiers and topics; no blanks.
    pub run: String,
    pub publishers: u16,
    /// Kind and subscription QoS (1 or 2) of each subscriber.
    pub subscribers: Vec<(SubscriberKind, u8)>,
}

/// A message of the ledger: the publisher's n-th at this QoS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MessageName {
    pub publisher: u16,
    /// 1 or 2; each has its own sequence, since MQTT orders messages of one topic and QoS.
    pub qos: u8,
    pub sequence: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// Encoded for the first time; written before it is sent.
    Sent(MessageName),
    /// PUBACK or PUBREC has come: from now on the broker owes it to every subscriber.
    Acknowledged(MessageName),
    /// Given to the application: at QoS 2 once for each packet identifier until its PUBREL.
    Received { subscriber: u16, message: MessageName, delivered_qos: u8, packet_identifier: u16, dup: bool },
    /// PUBREL: the packet identifier is free again.
    Released { subscriber: u16, packet_identifier: u16 },
    /// A subscriber (`true`) or publisher was connected again; `present` as the CONNACK said.
    Resumed { subscriber: bool, client: u16, present: bool },
    /// A payload that is not what was sent.
    Corrupt { subscriber: u16 },
    /// The broker closed a connection while nobody had killed it.
    Disconnected { subscriber: bool, client: u16 },
    /// The broker was killed.
    Killed,
}

impl MessageName {
    /// Publisher, QoS and sequence, as they stand in a line.
    fn fields(self) -> String {
        format!("{} {} {}", self.publisher, self.qos, self.sequence)
    }
}

/// For complaints.
impl fmt::Display for MessageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {} of publisher {} at QoS {}", self.sequence, self.publisher, self.qos)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Sent(message) => write!(f, "S {}", message.fields()),
            Self::Acknowledged(message) => write!(f, "A {}", message.fields()),
            Self::Received { subscriber, message, delivered_qos, packet_identifier, dup } => {
                let message = message.fields();
                write!(f, "R {subscriber} {message} {delivered_qos} {packet_identifier} {}", u8::from(dup))
            }
            Self::Released { subscriber, packet_identifier } => {
                write!(f, "L {subscriber} {packet_identifier}")
            }
            Self::Resumed { subscriber, client, present } => {
                write!(f, "C {} {client} {}", u8::from(subscriber), u8::from(present))
            }
            Self::Corrupt { subscriber } => write!(f, "X {subscriber}"),
            Self::Disconnected { subscriber, client } => write!(f, "D {} {client}", u8::from(subscriber)),
            Self::Killed => f.write_str("K"),
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "H {} {}", self.run, self.publishers)?;
        for (kind, qos) in &self.subscribers {
            let letter = match kind {
                SubscriberKind::Steady => 's',
                SubscriberKind::Flapping => 'f',
                SubscriberKind::Offline => 'o',
            };
            write!(f, " {letter}{qos}")?;
        }
        Ok(())
    }
}

impl Header {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.strip_prefix("H ")?.split(' ');
        let (run, publishers) = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
        let subscriber = |field: &str| {
            let kind = match field.get(..1)? {
                "s" => SubscriberKind::Steady,
                "f" => SubscriberKind::Flapping,
                "o" => SubscriberKind::Offline,
                _ => return None,
            };
            Some((kind, field.get(1..)?.parse().ok()?))
        };
        Some(Self { run, publishers, subscribers: fields.map(subscriber).collect::<Option<_>>()? })
    }
}

impl Record {
    fn parse(line: &str) -> Option<Self> {
        let (tag, rest) = line.split_at_checked(1)?;
        let numbers = rest.split_ascii_whitespace().map(str::parse);
        let numbers = numbers.collect::<Result<Vec<u64>, _>>().ok()?;
        let message = |fields: &[u64]| match *fields {
            [publisher, qos, sequence] => Some(MessageName {
                publisher: publisher.try_into().ok()?,
                qos: qos.try_into().ok()?,
                sequence,
            }),
            _ => None,
        };
        Some(match (tag, numbers.as_slice()) {
            ("S", fields) => Self::Sent(message(fields)?),
            ("A", fields) => Self::Acknowledged(message(fields)?),
            ("R", [subscriber, fields @ .., delivered_qos, packet_identifier, dup]) => Self::Received {
                subscriber: u16::try_from(*subscriber).ok()?,
                message: message(fields)?,
                delivered_qos: u8::try_from(*delivered_qos).ok()?,
                packet_identifier: u16::try_from(*packet_identifier).ok()?,
                dup: *dup == 1,
            },
            ("L", [subscriber, id]) => Self::Released {
                subscriber: u16::try_from(*subscriber).ok()?,
                packet_identifier: u16::try_from(*id).ok()?,
            },
            ("C", [subscriber, client, present]) => Self::Resumed {
                subscriber: *subscriber == 1,
                client: u16::try_from(*client).ok()?,
                present: *present == 1,
            },
            ("X", [subscriber]) => Self::Corrupt { subscriber: u16::try_from(*subscriber).ok()? },
            ("D", [subscriber, client]) => {
                Self::Disconnected { subscriber: *subscriber == 1, client: u16::try_from(*client).ok()? }
            }
            ("K", []) => Self::Killed,
            _ => return None,
        })
    }
}

/// Reads a ledger file. A last line that was cut short is left out, any other bad line is an error.
pub fn read_file(path: &Path) -> io::Result<(Header, Vec<Record>)> {
    let text = fs::read_to_string(path)?;
    let bad =
        |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("not a line of a ledger: {line:?}"));
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut lines = whole.lines();
    let first = lines.next().unwrap_or_default();
    let header = Header::parse(first).ok_or_else(|| bad(first))?;
    let records = lines.map(|line| Record::parse(line).ok_or_else(|| bad(line))).collect::<Result<_, _>>()?;
    Ok((header, records))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_reads_back() {
        let message = MessageName { publisher: 3, qos: 2, sequence: 9_000_000_000 };
        let received =
            Record::Received { subscriber: 1, message, delivered_qos: 1, packet_identifier: 77, dup: true };
        let all = [
            Record::Sent(message),
            Record::Acknowledged(message),
            received,
            Record::Released { subscriber: 2, packet_identifier: 65_535 },
            Record::Resumed { subscriber: true, client: 4, present: false },
            Record::Corrupt { subscriber: 5 },
            Record::Disconnected { subscriber: false, client: 1 },
            Record::Killed,
        ];
        for record in all {
            assert_eq!(Record::parse(&record.to_string()), Some(record), "{record}");
        }
        let subscribers =
            vec![(SubscriberKind::Steady, 2), (SubscriberKind::Flapping, 1), (SubscriberKind::Offline, 2)];
        let header = Header { run: "r1".to_owned(), publishers: 4, subscribers };
        assert_eq!(Header::parse(&header.to_string()), Some(header));
        assert_eq!(Record::parse("A 1 2"), None);
    }
}
