//! QoS 1 or 2 to durable sessions that are offline: what an acknowledgement costs when it must mean "on flash".
//!
//! Every message of this load is acknowledged before the load ends, so the ledger is one count a publisher; afterwards
//! each session is resumed and must deliver exactly that, in order.

use std::io;
use std::time::{Duration, Instant};

use crate::link::{Link, SCRATCH_BYTES};
use crate::load::{self, LoadPlan, LoadReport, SEQUENCE_END, STAMP_BYTES, Topology};
use crate::packet::{self, ConnectOptions, Packet, Publish};
use crate::poll::Poll;

/// A session that is silent for this long has delivered what it has.
const QUIET: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct DurablePlan {
    /// Publishers, QoS, window, amount; its subscribers are the offline sessions. Payloads of 16 bytes or more.
    pub load: LoadPlan,
    /// Whether the sessions are resumed at the end and compared with the ledger.
    pub verify: bool,
}

#[derive(Debug)]
pub struct DurableReport {
    pub load: LoadReport,
    /// One entry a session, when verified.
    pub sessions: Vec<SessionReport>,
}

/// What one resumed session has delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionReport {
    pub session_present: bool,
    /// Acknowledged messages that did not come.
    pub missing: u64,
    /// Messages that came with a lower sequence than one before.
    pub disordered: u64,
    pub delivered: u64,
}

/// Creates the sessions, runs the load, and resumes the sessions when the plan wants that. They are ended at the end.
pub fn run(plan: &DurablePlan) -> io::Result<DurableReport> {
    for session in 0..plan.load.subscribers {
        let (mut link, _) = Link::open(plan.load.address, &options(plan, session))?;
        let filter = match plan.load.topology {
            Topology::Pairs => format!("{}/{session}", plan.load.topic_prefix),
            Topology::All => format!("{}/+", plan.load.topic_prefix),
        };
        link.subscribe(&filter, plan.load.subscribe_qos)?;
        link.close()?;
    }
    let publishers = LoadPlan { subscribers: 0, ..plan.load.clone() };
    let result = load::run(&publishers).and_then(|load| {
        let sessions = if plan.verify { 0..plan.load.subscribers } else { 0..0 };
        let sessions = sessions
            .map(|session| resume(plan, session, &load.sent_by_publisher))
            .collect::<Result<_, _>>()?;
        Ok(DurableReport { load, sessions })
    });
    for session in 0..plan.load.subscribers {
        let clean = ConnectOptions { clean_session: true, ..options(plan, session) };
        Link::open(plan.load.address, &clean)?.0.close()?;
    }
    result
}

fn options(plan: &DurablePlan, session: usize) -> ConnectOptions {
    let name = plan.load.topic_prefix.replace('/', "-");
    ConnectOptions::persistent(format!("{name}-offline{session}")).with_user(plan.load.user.clone())
}

/// What one session has delivered so far; `next` holds the sequence that each publisher's next message has.
struct Reception {
    next: Vec<u64>,
    report: SessionReport,
}

fn resume(plan: &DurablePlan, session: usize, sent: &[u64]) -> io::Result<SessionReport> {
    let expected: Vec<u64> = match plan.load.topology {
        Topology::All => sent.to_vec(),
        Topology::Pairs => (0..sent.len())
            .map(|i| if i == session { sent.get(i).copied().unwrap_or(0) } else { 0 })
            .collect(),
    };
    let (mut link, session_present) = Link::open(plan.load.address, &options(plan, session))?;
    link.set_nonblocking()?;
    let mut reception = Reception { next: vec![0; sent.len()], report: SessionReport::default() };
    reception.report.session_present = session_present;
    let mut poll = Poll::new()?;
    poll.add(&link, 0, false)?;
    let (mut scratch, mut ready, mut last) = (vec![0; SCRATCH_BYTES], Vec::new(), Instant::now());
    while last.elapsed() < QUIET && reception.report.delivered < expected.iter().sum() {
        if !link.receive(&mut scratch, |packet, out| reception.take(packet, out))? {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the broker closed a resumed session"));
        }
        let waits = !link.flush()?;
        poll.modify(&link, 0, waits)?;
        ready.clear();
        poll.wait(&mut ready, Some(QUIET))?;
        if !ready.is_empty() {
            last = Instant::now();
        }
    }
    let tail: u64 =
        expected.iter().zip(&reception.next).map(|(expected, next)| expected.saturating_sub(*next)).sum();
    reception.report.missing += tail;
    Ok(reception.report)
}

impl Reception {
    fn take(&mut self, packet: Packet<'_>, out: &mut Vec<u8>) {
        match packet {
            Packet::Publish(publish) => {
                match publish.qos {
                    1 => packet::encode_puback(out, publish.id),
                    2 => packet::encode_pubrec(out, publish.id),
                    _ => {}
                }
                self.count(&publish);
            }
            Packet::Pubrel(id) => packet::encode_pubcomp(out, id),
            _ => {}
        }
    }

    fn count(&mut self, publish: &Publish<'_>) {
        self.report.delivered += 1;
        let level = publish.topic.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let publisher = std::str::from_utf8(level).ok().and_then(|level| level.parse::<usize>().ok());
        let sequence = publish.payload.get(STAMP_BYTES..SEQUENCE_END).and_then(|bytes| bytes.try_into().ok());
        let (Some(next), Some(sequence)) = (publisher.and_then(|p| self.next.get_mut(p)), sequence) else {
            return;
        };
        let sequence = u64::from_le_bytes(sequence);
        if sequence < *next {
            self.report.disordered += 1;
        } else {
            self.report.missing += sequence - *next;
            *next = sequence + 1;
        }
    }
}
