//! The event loop of a load: fill windows, flush, wait, read, answer.

use std::io;
use std::time::{Duration, Instant};

use super::plan::{Amount, LoadPlan};
use super::publisher::{Publisher, STAMP_BYTES, Settled, nanoseconds_since};
use crate::histogram::Histogram;
use crate::link::{Link, SCRATCH_BYTES};
use crate::packet::{self, ConnectOptions, Packet};
use crate::poll::{Poll, Ready};

/// Messages that one publisher encodes before the next has its turn.
const MESSAGES_PER_TURN: u64 = 64;

/// A publisher whose socket has not taken this much waits.
const UNSENT_BYTES_MAX: usize = 256 * 1024;

/// After this long without any packet, deliveries that are still missing count as lost.
const STALL: Duration = Duration::from_secs(2);

/// After this long without any packet, a broker that owes acknowledgements is given up.
const GIVE_UP: Duration = Duration::from_secs(30);

pub struct Engine<'a> {
    plan: &'a LoadPlan,
    epoch: Instant,
    poll: Poll,
    ready: Vec<Ready>,
    scratch: Vec<u8>,
    /// Publishers' links first, then the subscribers'.
    links: Vec<Link>,
    publishers: Vec<Publisher>,
    sent: u64,
    /// Messages sent at QoS 0, or wholly acknowledged.
    pub settled: u64,
    pub delivered: u64,
    pub lost: u64,
    last_progress: Instant,
    pub delivery_latency: Histogram,
    pub acknowledgement_latency: Histogram,
}

/// Counters that a read changes, lent to the packet handlers.
struct Tally<'a> {
    now_ns: u64,
    settled: &'a mut u64,
    delivered: &'a mut u64,
    delivery_latency: &'a mut Histogram,
    acknowledgement_latency: &'a mut Histogram,
}

impl<'a> Engine<'a> {
    /// Connects everybody and subscribes.
    pub fn set_up(plan: &'a LoadPlan) -> io::Result<Self> {
        if let Some(fault) = plan.fault() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, fault));
        }
        let poll = Poll::new()?;
        let mut links = Vec::with_capacity(plan.publishers + plan.subscribers);
        for index in 0..plan.publishers {
            let options =
                ConnectOptions::clean(client_identifier(plan, 'p', index)).with_user(plan.user.clone());
            links.push(Link::open(plan.address, &options)?.0);
        }
        for index in 0..plan.subscribers {
            let mut options =
                ConnectOptions::clean(client_identifier(plan, 's', index)).with_user(plan.user.clone());
            options.clean_session = !plan.persistent_subscribers;
            let (mut link, _) = Link::open(plan.address, &options)?;
            link.subscribe(&plan.filter(index), plan.subscribe_qos)?;
            links.push(link);
        }
        for (token, link) in links.iter().enumerate() {
            link.set_nonblocking()?;
            poll.add(link, token, false)?;
        }
        let publisher =
            |index| Publisher::new(plan.topic(index), plan.payload_bytes, plan.publish_qos, plan.window);
        let now = Instant::now();
        Ok(Self {
            plan,
            epoch: now,
            poll,
            ready: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            links,
            publishers: (0..plan.publishers).map(publisher).collect(),
            sent: 0,
            settled: 0,
            delivered: 0,
            lost: 0,
            last_progress: now,
            delivery_latency: Histogram::default(),
            acknowledgement_latency: Histogram::default(),
        })
    }

    /// Sends the warm-up as fast as the window allows and waits for its end; forgets its latencies.
    pub fn warm_up(&mut self) -> io::Result<()> {
        let goal = self.plan.warm_up;
        while self.sent < goal || !self.is_drained()? {
            self.fill(goal);
            self.step(STALL)?;
        }
        self.lost = 0;
        self.delivery_latency = Histogram::default();
        self.acknowledgement_latency = Histogram::default();
        Ok(())
    }

    /// The measured part, from `start` on.
    pub fn measure(&mut self, start: Instant) -> io::Result<()> {
        let base = self.sent;
        loop {
            let elapsed = start.elapsed();
            let goal = match self.plan.amount {
                Amount::Messages(count) => base + count,
                Amount::Time(duration) if elapsed >= duration => return Ok(()),
                Amount::Time(_) => u64::MAX,
            };
            if self.sent >= goal && self.is_drained()? {
                return Ok(());
            }
            let Some(rate) = self.plan.rate else {
                self.fill(goal);
                self.step(STALL)?;
                continue;
            };
            // Message k of the measured part is due at start + k / rate.
            let due = Duration::from_secs_f64((self.sent - base) as f64 / rate);
            if elapsed >= due && self.sent < goal {
                let before = self.sent;
                self.fill(before + 1);
                if self.sent > before {
                    self.flush_all()?;
                    continue;
                }
            }
            let rest = if self.sent < goal { due.saturating_sub(elapsed) } else { STALL };
            self.step(rest.max(Duration::from_micros(10)))?;
        }
    }

    /// Messages that each publisher has sent, warm-up included.
    pub fn sent_by_publisher(&self) -> Vec<u64> {
        self.publishers.iter().map(Publisher::sent).collect()
    }

    /// Sends what is encoded; true when everything sent is acknowledged and delivered, and every answer is out.
    fn is_drained(&mut self) -> io::Result<bool> {
        self.flush_all()?;
        Ok(self.missing() == 0
            && self.publishers.iter().all(Publisher::is_idle)
            && self.links.iter().all(|l| l.unsent() == 0))
    }

    /// Deliveries that are still to come.
    fn missing(&self) -> u64 {
        (self.sent * self.plan.fan_out()).saturating_sub(self.delivered + self.lost)
    }

    /// Encodes messages up to `goal` in all, as the windows allow, one turn a publisher at a time.
    fn fill(&mut self, goal: u64) {
        let now_ns = nanoseconds_since(self.epoch);
        let missing_max = u64::from(self.plan.window) * self.publishers.len() as u64 * self.plan.fan_out();
        let closed = self.plan.publish_qos == 0 && missing_max > 0;
        let first = usize::try_from(self.sent).unwrap_or(0) % self.publishers.len();
        let mut order = (first..self.publishers.len()).chain(0..first);
        let mut more = true;
        while more {
            more = false;
            for index in order.by_ref() {
                let (Some(publisher), Some(link)) =
                    (self.publishers.get_mut(index), self.links.get_mut(index))
                else {
                    continue;
                };
                for _ in 0..MESSAGES_PER_TURN {
                    let missing =
                        (self.sent * self.plan.fan_out()).saturating_sub(self.delivered + self.lost);
                    let open = !closed || missing < missing_max;
                    if self.sent >= goal || !open || !publisher.has_room() || link.unsent() > UNSENT_BYTES_MAX
                    {
                        break;
                    }
                    publisher.encode_next(now_ns, link.outbox());
                    self.sent += 1;
                    self.settled += u64::from(self.plan.publish_qos == 0);
                    more = true;
                }
            }
            order = (0..self.publishers.len()).chain(0..0);
        }
    }

    /// Sends what is encoded, waits, reads and answers.
    fn step(&mut self, timeout: Duration) -> io::Result<()> {
        self.flush_all()?;
        self.ready.clear();
        self.poll.wait(&mut self.ready, Some(timeout))?;
        if self.ready.is_empty() {
            return self.note_stall();
        }
        self.last_progress = Instant::now();
        let ready = std::mem::take(&mut self.ready);
        for event in ready.iter().filter(|event| event.readable) {
            self.receive(event.token)?;
        }
        self.ready = ready;
        Ok(())
    }

    fn note_stall(&mut self) -> io::Result<()> {
        let silence = self.last_progress.elapsed();
        if silence >= STALL {
            self.lost += self.missing();
        }
        if silence >= GIVE_UP && !self.is_drained()? {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the broker owes acknowledgements and is silent",
            ));
        }
        Ok(())
    }

    fn receive(&mut self, token: usize) -> io::Result<()> {
        let Some(link) = self.links.get_mut(token) else { return Ok(()) };
        let mut tally = Tally {
            now_ns: nanoseconds_since(self.epoch),
            settled: &mut self.settled,
            delivered: &mut self.delivered,
            delivery_latency: &mut self.delivery_latency,
            acknowledgement_latency: &mut self.acknowledgement_latency,
        };
        let open = match self.publishers.get_mut(token) {
            Some(publisher) => {
                link.receive(&mut self.scratch, |packet, out| tally.acknowledged(publisher, packet, out))?
            }
            None => link.receive(&mut self.scratch, |packet, out| tally.delivered(packet, out))?,
        };
        if open {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the broker closed a connection"))
        }
    }

    fn flush_all(&mut self) -> io::Result<()> {
        for (token, link) in self.links.iter_mut().enumerate() {
            if link.unsent() == 0 && !link.waits_for_write {
                continue;
            }
            let waits = !link.flush()?;
            if waits != link.waits_for_write {
                link.waits_for_write = waits;
                self.poll.modify(&*link, token, waits)?;
            }
        }
        Ok(())
    }
}

impl Drop for Engine<'_> {
    /// Ends persistent sessions, so that the next load finds the broker as this one did.
    fn drop(&mut self) {
        if self.plan.persistent_subscribers {
            for index in 0..self.plan.subscribers {
                let options = ConnectOptions::clean(client_identifier(self.plan, 's', index));
                if let Ok((link, _)) =
                    Link::open(self.plan.address, &options.with_user(self.plan.user.clone()))
                {
                    link.close().ok();
                }
            }
        }
    }
}

impl Tally<'_> {
    fn acknowledged(&mut self, publisher: &mut Publisher, packet: Packet<'_>, out: &mut Vec<u8>) {
        if let Settled::SentAt(sent_ns) = publisher.handle(packet, out) {
            *self.settled += 1;
            self.acknowledgement_latency.record(self.now_ns.saturating_sub(sent_ns));
        }
    }

    fn delivered(&mut self, packet: Packet<'_>, out: &mut Vec<u8>) {
        match packet {
            Packet::Publish(publish) => {
                match publish.qos {
                    1 => packet::encode_puback(out, publish.id),
                    2 => packet::encode_pubrec(out, publish.id),
                    _ => {}
                }
                *self.delivered += 1;
                if let Some(stamp) = publish.payload.first_chunk::<STAMP_BYTES>() {
                    self.delivery_latency.record(self.now_ns.saturating_sub(u64::from_le_bytes(*stamp)));
                }
            }
            Packet::Pubrel(id) => packet::encode_pubcomp(out, id),
            _ => {}
        }
    }
}

fn client_identifier(plan: &LoadPlan, role: char, index: usize) -> String {
    format!("{}-{role}{index}", plan.topic_prefix.replace('/', "-"))
}
