//! Judges a ledger: no acknowledged message missing, the order of each publisher kept, QoS 2 exactly once, no session
//! lost, nothing that was never sent.

use std::fmt;

use super::record::{Header, MessageName, Record};

/// Complaints that are kept in words; the rest is counted only.
const EXAMPLES_MAX: usize = 12;

/// One publisher's messages of one QoS.
#[derive(Clone, Debug, Default)]
struct Stream {
    sent: u64,
    acknowledged: Vec<bool>,
}

/// What one subscriber has of one stream.
#[derive(Clone, Debug, Default)]
struct Reception {
    times: Vec<u8>,
    /// The highest sequence so far.
    highest: Option<u64>,
}

/// Takes records as they happen.
#[derive(Clone, Debug)]
pub struct Checker {
    /// Subscription QoS of each subscriber.
    subscription_qos: Vec<u8>,
    streams: Vec<Stream>,
    /// By subscriber, then by stream.
    receptions: Vec<Vec<Reception>>,
    /// Acknowledged messages that each subscriber has not got yet.
    owed: Vec<u64>,
    verdict: Verdict,
}

/// Counts of what went right and wrong.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    pub sent: u64,
    pub acknowledged: u64,
    /// Deliveries, repeated ones included.
    pub received: u64,
    /// QoS 1 deliveries that came again, as QoS 1 allows.
    pub repeated: u64,
    pub kills: u64,
    pub resumed: u64,

    /// Acknowledged, but not delivered to a subscriber.
    pub missing: u64,
    /// QoS 2 deliveries that came again.
    pub duplicated: u64,
    /// Came for the first time after a later one of its stream.
    pub disordered: u64,
    /// Delivered though never sent, or at another QoS than agreed.
    pub phantom: u64,
    pub corrupt: u64,
    /// CONNACK without Session Present for a session that had been acknowledged.
    pub sessions_lost: u64,
    /// Connections that the broker closed without being killed.
    pub disconnected: u64,
    /// The first complaints in words.
    pub examples: Vec<String>,
}

impl Verdict {
    /// Whether every promise was kept.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.missing + self.duplicated + self.disordered + self.phantom + self.corrupt + self.sessions_lost
            == 0
    }

    fn complain(&mut self, words: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(words());
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} sent, {} acknowledged, {} delivered ({} repeated at QoS 1), {} kills, {} sessions resumed",
            self.sent, self.acknowledged, self.received, self.repeated, self.kills, self.resumed
        )?;
        write!(
            f,
            "missing {}, duplicated at QoS 2 {}, out of order {}, never sent {}, corrupt {}, sessions lost {}, \
             disconnected {}",
            self.missing,
            self.duplicated,
            self.disordered,
            self.phantom,
            self.corrupt,
            self.sessions_lost,
            self.disconnected
        )?;
        self.examples.iter().try_for_each(|example| write!(f, "\n  {example}"))
    }
}

impl Checker {
    #[must_use]
    pub fn new(header: &Header) -> Self {
        let streams = usize::from(header.publishers) * 2;
        let subscribers = header.subscribers.len();
        Self {
            subscription_qos: header.subscribers.iter().map(|(_, qos)| *qos).collect(),
            streams: vec![Stream::default(); streams],
            receptions: vec![vec![Reception::default(); streams]; subscribers],
            owed: vec![0; subscribers],
            verdict: Verdict::default(),
        }
    }

    pub fn take(&mut self, record: &Record) {
        match *record {
            Record::Sent(message) => self.sent(message),
            Record::Acknowledged(message) => self.acknowledged(message),
            Record::Received { subscriber, message, delivered_qos, dup, .. } => {
                self.received(usize::from(subscriber), message, delivered_qos, dup);
            }
            Record::Resumed { present, subscriber, client } => {
                self.verdict.resumed += 1;
                if !present {
                    self.verdict.sessions_lost += 1;
                    let role = if subscriber { "subscriber" } else { "publisher" };
                    self.verdict.complain(|| format!("session of {role} {client} lost"));
                }
            }
            Record::Corrupt { subscriber } => {
                self.verdict.corrupt += 1;
                self.verdict.complain(|| format!("subscriber {subscriber} got a damaged payload"));
            }
            Record::Disconnected { .. } => self.verdict.disconnected += 1,
            Record::Killed => self.verdict.kills += 1,
            Record::Released { .. } => {}
        }
    }

    /// Acknowledged messages that are still to be delivered, over all subscribers.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.owed.iter().sum()
    }

    /// The judgement as if nothing came any more.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let mut verdict = self.verdict.clone();
        verdict.missing = self.owed();
        for (subscriber, receptions) in self.receptions.iter().enumerate() {
            for (index, (stream, reception)) in self.streams.iter().zip(receptions).enumerate() {
                let missing = |sequence: &usize| {
                    stream.acknowledged.get(*sequence) == Some(&true)
                        && reception.times.get(*sequence).copied().unwrap_or(0) == 0
                };
                for sequence in (0..stream.acknowledged.len()).filter(missing).take(3) {
                    let (publisher, qos) = (index / 2, index % 2 + 1);
                    verdict.complain(|| {
                        format!("subscriber {subscriber} never got message {sequence} of publisher {publisher} at QoS {qos}")
                    });
                }
            }
        }
        verdict
    }

    fn sent(&mut self, message: MessageName) {
        self.verdict.sent += 1;
        if let Some(stream) = self.streams.get_mut(stream_index(message)) {
            stream.sent = stream.sent.max(message.sequence + 1);
            stream.acknowledged.resize(usize::try_from(stream.sent).unwrap_or(0), false);
        }
    }

    fn acknowledged(&mut self, message: MessageName) {
        let index = stream_index(message);
        let Ok(sequence) = usize::try_from(message.sequence) else { return };
        let Some(flag) = self.streams.get_mut(index).and_then(|stream| stream.acknowledged.get_mut(sequence))
        else {
            return;
        };
        if std::mem::replace(flag, true) {
            return;
        }
        self.verdict.acknowledged += 1;
        for (owed, receptions) in self.owed.iter_mut().zip(&self.receptions) {
            let times = receptions.get(index).and_then(|reception| reception.times.get(sequence)).copied();
            *owed += u64::from(times.unwrap_or(0) == 0);
        }
    }

    fn received(&mut self, subscriber: usize, message: MessageName, delivered_qos: u8, dup: bool) {
        self.verdict.received += 1;
        let index = stream_index(message);
        let agreed_qos = self.subscription_qos.get(subscriber).copied().unwrap_or(0).min(message.qos);
        let stream = self.streams.get(index).filter(|stream| message.sequence < stream.sent);
        let (Some(stream), Ok(sequence)) = (stream, usize::try_from(message.sequence)) else {
            self.verdict.phantom += 1;
            return self.verdict.complain(|| format!("subscriber {subscriber} got {message}, never sent"));
        };
        if delivered_qos != agreed_qos {
            self.verdict.phantom += 1;
            self.verdict.complain(|| format!("subscriber {subscriber} got {message} at QoS {delivered_qos}"));
        }
        let acknowledged = stream.acknowledged.get(sequence) == Some(&true);
        let Some(reception) = self.receptions.get_mut(subscriber).and_then(|r| r.get_mut(index)) else {
            return;
        };
        reception.times.resize(reception.times.len().max(sequence + 1), 0);
        let Some(times) = reception.times.get_mut(sequence) else { return };
        *times = times.saturating_add(1);
        if *times > 1 {
            if agreed_qos == 2 {
                self.verdict.duplicated += 1;
                self.verdict.complain(|| format!("subscriber {subscriber} got {message} twice, dup {dup}"));
            } else {
                self.verdict.repeated += 1;
            }
            return;
        }
        if let (true, Some(owed)) = (acknowledged, self.owed.get_mut(subscriber)) {
            *owed -= 1;
        }
        match reception.highest {
            Some(highest) if highest > message.sequence => {
                self.verdict.disordered += 1;
                self.verdict
                    .complain(|| format!("subscriber {subscriber} got {message} after sequence {highest}"));
            }
            _ => reception.highest = Some(message.sequence),
        }
    }
}

fn stream_index(message: MessageName) -> usize {
    usize::from(message.publisher) * 2 + usize::from(message.qos == 2)
}

#[cfg(test)]
mod tests {
    use super::super::record::SubscriberKind::{Offline, Steady};
    use super::*;

    fn judge(script: &str) -> Verdict {
        let header =
            Header { run: "t".to_owned(), publishers: 1, subscribers: vec![(Steady, 2), (Offline, 1)] };
        let mut checker = Checker::new(&header);
        for word in script.split_whitespace() {
            let (tag, rest) = word.split_at(1);
            let digits: Vec<u8> = rest.bytes().map(|byte| byte - b'0').collect();
            let name =
                |qos: u8, sequence: u8| MessageName { publisher: 0, qos, sequence: u64::from(sequence) };
            let record = match (tag, digits.as_slice()) {
                ("S", [qos, sequence]) => Record::Sent(name(*qos, *sequence)),
                ("A", [qos, sequence]) => Record::Acknowledged(name(*qos, *sequence)),
                ("R", [subscriber, qos, sequence]) => Record::Received {
                    subscriber: u16::from(*subscriber),
                    message: name(*qos, *sequence),
                    delivered_qos: if *subscriber == 0 { *qos } else { 1 },
                    packet_identifier: 1,
                    dup: false,
                },
                _ => unreachable!("{word}"),
            };
            checker.take(&record);
        }
        checker.verdict()
    }

    #[test]
    fn a_kept_promise_holds() {
        let verdict = judge("S10 S11 S20 A10 A20 R010 R011 R020 R110 R120 R110");
        assert!(verdict.holds(), "{verdict}");
        assert_eq!((verdict.acknowledged, verdict.repeated), (2, 1));
    }

    #[test]
    fn each_broken_promise_is_counted() {
        assert_eq!(judge("S10 A10 R010").missing, 1, "subscriber 1 never got it");
        assert_eq!(judge("S10 R010 A10").missing, 1, "delivered before the acknowledgement counts too");
        assert_eq!(judge("S20 A20 R020 R020 R120").duplicated, 1);
        assert_eq!(judge("S10 S11 R011 R010").disordered, 1);
        assert_eq!(judge("S10 S11 R010 R011 R010 R011").disordered, 0, "a whole window again is in order");
        assert_eq!(judge("S10 R011").phantom, 1);
        let mut wrong_qos = judge("S10 A10 R010 R110");
        assert!(wrong_qos.holds());
        wrong_qos.sessions_lost = 1;
        assert!(!wrong_qos.holds());
    }
}
