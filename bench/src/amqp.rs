//! AMQP 0-9-1 loads: one publisher, one queue, one consumer, and what a message costs the server.
//!
//! Two threads, one for each direction, with blocking sockets that read and write in bursts. What is measured lies between
//! the warm-up and the last delivery.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::load::{self, Amount, LoadPlan};
use crate::process::{self, CpuTime};

/// What crosses the server, and what is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    /// Persistent messages to a durable queue with confirms, acknowledged one by one by the consumer.
    Persistent,
    /// Transient messages without confirms, to a consumer that acknowledges nothing.
    Transient,
    /// MQTT QoS 1 to a durable queue that is bound to amq.topic.
    Bridge,
}

#[derive(Clone, Debug)]
pub struct AmqpPlan {
    pub address: SocketAddr,
    /// Where MQTT is spoken, for the bridge.
    pub mqtt: SocketAddr,
    pub row: Row,
    /// Messages that are not confirmed, or not delivered where nothing is confirmed.
    pub window: u64,
    pub count: u64,
    pub warm_up: u64,
    pub payload_bytes: usize,
    pub pid: Option<u32>,
}

#[derive(Debug)]
pub struct AmqpReport {
    pub delivered: u64,
    pub elapsed: Duration,
    pub server_cpu: Option<CpuTime>,
    pub client_cpu: CpuTime,
}

impl AmqpReport {
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.delivered as f64 / self.elapsed.as_secs_f64()
    }

    #[must_use]
    pub fn server_cpu_s_per_million(&self) -> Option<f64> {
        self.server_cpu.map(|cpu| cpu.total_s() * 1e6 / self.delivered as f64)
    }
}

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(30);
const QUEUE: &str = "gateway-bench";
const PREFETCH: u16 = 1000;
const SCRATCH_BYTES: usize = 64 * 1024;

/// Runs `plan` to its end; the queue is deleted at the end.
pub fn run(plan: &AmqpPlan) -> io::Result<AmqpReport> {
    let durable = plan.row != Row::Transient;
    let mut publisher = Wire::open(plan.address)?;
    publisher.delete_queue()?;
    publisher.declare_queue(durable)?;
    if plan.row == Row::Bridge {
        publisher.call(
            50,
            20,
            &[&[0, 0], &*short(QUEUE), &short("amq.topic"), &short("bench.#"), &[0], &[0; 4]],
        )?;
    }
    if plan.row == Row::Persistent {
        publisher.call(85, 10, &[&[0]])?;
    }
    let mut consumer = Wire::open(plan.address)?;
    if durable {
        consumer.call(60, 10, &[&[0; 4], &PREFETCH.to_be_bytes(), &[0]])?;
    }
    let settled = u8::from(!durable) << 1;
    consumer.call(60, 20, &[&[0, 0], &*short(QUEUE), &short("c"), &[settled], &[0; 4]])?;
    let delivered = Arc::new(AtomicU64::new(0));
    let total = plan.warm_up + plan.count;
    let counting = Arc::clone(&delivered);
    let sender = thread::current();
    let consuming = thread::spawn(move || consumer.consume(total, durable, &counting, &sender));
    let mut sending =
        Sending { plan, wire: publisher, delivered, next: 1, open: BTreeSet::new(), burst: Vec::new() };
    sending.send(plan.warm_up)?;
    let before = (cpu_time(plan.pid)?, process::cpu_time(std::process::id())?, Instant::now());
    sending.send(total)?;
    let elapsed = before.2.elapsed();
    let server_cpu = cpu_time(plan.pid)?.zip(before.0).map(|(after, before)| after.since(before));
    let client_cpu = process::cpu_time(std::process::id())?.since(before.1);
    consuming.join().map_err(|_| io::Error::other("the consumer's thread panicked"))??;
    sending.wire.delete_queue()?;
    Ok(AmqpReport { delivered: plan.count, elapsed, server_cpu, client_cpu })
}

fn cpu_time(pid: Option<u32>) -> io::Result<Option<CpuTime>> {
    pid.map(process::cpu_time).transpose()
}

struct Sending<'a> {
    plan: &'a AmqpPlan,
    wire: Wire,
    delivered: Arc<AtomicU64>,
    /// Tag of the next publish.
    next: u64,
    /// Tags that are not confirmed.
    open: BTreeSet<u64>,
    burst: Vec<u8>,
}

impl Sending<'_> {
    /// Sends until `total` messages are sent and delivered.
    fn send(&mut self, total: u64) -> io::Result<()> {
        if self.plan.row == Row::Bridge {
            let sent = self.delivered.load(Ordering::Acquire);
            let publishers = LoadPlan {
                publishers: 1,
                subscribers: 0,
                publish_qos: 1,
                window: u16::try_from(self.plan.window).unwrap_or(u16::MAX),
                amount: Amount::Messages(total - sent),
                warm_up: 0,
                payload_bytes: self.plan.payload_bytes,
                topic_prefix: "bench/amqp".to_owned(),
                ..LoadPlan::new(self.plan.mqtt)
            };
            load::run(&publishers)?;
            return self.await_delivered(total);
        }
        let persistent = self.plan.row == Row::Persistent;
        let message = message(persistent, self.plan.payload_bytes);
        while self.next <= total {
            let open = if persistent {
                self.open.len() as u64
            } else {
                self.next - 1 - self.delivered.load(Ordering::Acquire)
            };
            let room = self.plan.window.saturating_sub(open).min(total + 1 - self.next);
            self.burst.clear();
            for tag in self.next..self.next + room {
                self.burst.extend_from_slice(&message);
                if persistent {
                    self.open.insert(tag);
                }
            }
            self.next += room;
            self.wire.stream.write_all(&self.burst)?;
            if persistent {
                self.take_confirms()?;
            } else if room == 0 {
                thread::park_timeout(Duration::from_millis(100));
            }
        }
        while !self.open.is_empty() {
            self.take_confirms()?;
        }
        self.await_delivered(total)
    }

    fn await_delivered(&self, total: u64) -> io::Result<()> {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let delivered = self.delivered.load(Ordering::Acquire);
            if delivered >= total {
                return Ok(());
            }
            if delivered != last {
                (last, since) = (delivered, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("{delivered} of {total} were delivered"),
                ));
            }
            thread::park_timeout(Duration::from_millis(10));
        }
    }

    fn take_confirms(&mut self) -> io::Result<()> {
        let open = &mut self.open;
        self.wire.read_some(|kind, payload, _| match (kind, payload) {
            (1, [0, 60, 0, 80, rest @ ..]) => {
                let (tag, multiple) = (long_long(rest), rest.get(8).is_some_and(|bits| bits & 1 == 1));
                if multiple {
                    *open = open.split_off(&(tag + 1));
                } else {
                    open.remove(&tag);
                }
                Ok(())
            }
            (8, _) => Ok(()),
            _ => Err(io::Error::other(format!("the server answered a publish with {payload:?}"))),
        })
    }
}

/// One connection with one channel.
struct Wire {
    stream: TcpStream,
    inbox: Vec<u8>,
    scratch: Vec<u8>,
}

impl Wire {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut wire = Self { stream, inbox: Vec::new(), scratch: vec![0; SCRATCH_BYTES] };
        wire.stream.write_all(b"AMQP\x00\x00\x09\x01")?;
        wire.wait(10, 10)?;
        let response = b"\0guest\0guest";
        let length = u32::try_from(response.len()).unwrap_or_default().to_be_bytes();
        let start_ok = method(0, 10, 11, &[&[0; 4], &*short("PLAIN"), &length, response, &short("en_US")]);
        wire.stream.write_all(&start_ok)?;
        let mut tune = wire.wait(10, 30)?;
        // What the server proposes, without heartbeats.
        if let Some(heartbeat) = tune.get_mut(6..8) {
            heartbeat.fill(0);
        }
        wire.stream.write_all(&method(0, 10, 31, &[&tune]))?;
        wire.stream.write_all(&method(0, 10, 40, &[&*short("/"), &[0, 0]]))?;
        wire.wait(10, 41)?;
        wire.call(20, 10, &[&[0]])?;
        Ok(wire)
    }

    fn declare_queue(&mut self, durable: bool) -> io::Result<()> {
        self.call(50, 10, &[&[0, 0], &*short(QUEUE), &[u8::from(durable) << 1], &[0; 4]]).map(drop)
    }

    fn delete_queue(&mut self) -> io::Result<()> {
        self.call(50, 40, &[&[0, 0], &*short(QUEUE), &[0]]).map(drop)
    }

    /// Sends a method on channel 1 and waits for its answer, whose number is the next one.
    fn call(&mut self, class: u16, number: u16, arguments: &[&[u8]]) -> io::Result<Vec<u8>> {
        self.stream.write_all(&method(1, class, number, arguments))?;
        self.wait(class, number + 1)
    }

    /// Waits for a method and returns its arguments. Nothing else may come.
    fn wait(&mut self, class: u16, number: u16) -> io::Result<Vec<u8>> {
        let mut found = None;
        while found.is_none() {
            self.read_some(|kind, payload, _| {
                let [class, number] = [class.to_be_bytes(), number.to_be_bytes()];
                match payload.split_at_checked(4) {
                    Some((id, rest)) if id == [class, number].concat() => found = Some(rest.to_vec()),
                    _ if kind == 8 => {}
                    _ => {
                        let text = String::from_utf8_lossy(payload);
                        return Err(io::Error::other(format!("the server answered {text:?}")));
                    }
                }
                Ok(())
            })?;
        }
        Ok(found.unwrap_or_default())
    }

    /// Takes `total` deliveries, acknowledges each if wanted, and wakes the sender.
    fn consume(
        mut self,
        total: u64,
        acknowledge: bool,
        delivered: &AtomicU64,
        sender: &Thread,
    ) -> io::Result<()> {
        while delivered.load(Ordering::Relaxed) < total {
            let mut count = 0;
            self.read_some(|kind, payload, out| {
                match (kind, payload) {
                    (1, [0, 60, 0, 60, tag_bytes, rest @ ..]) => {
                        if acknowledge && let Some(rest) = rest.get(usize::from(*tag_bytes)..) {
                            let tag = long_long(rest).to_be_bytes();
                            out.extend_from_slice(&method(1, 60, 80, &[&tag, &[0]]));
                        }
                    }
                    (1, _) => {
                        return Err(io::Error::other(format!("the server sent the consumer {payload:?}")));
                    }
                    (3, _) => count += 1,
                    _ => {}
                }
                Ok(())
            })?;
            delivered.fetch_add(count, Ordering::Release);
            sender.unpark();
        }
        Ok(())
    }

    /// Reads once and hands over each whole frame as type and payload; what it puts into the buffer is sent.
    fn read_some(
        &mut self,
        mut take: impl FnMut(u8, &[u8], &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let read = self.stream.read(&mut self.scratch)?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        self.inbox.extend_from_slice(self.scratch.get(..read).unwrap_or_default());
        let (mut at, mut out) = (0, Vec::new());
        while let Some(&[kind, _, _, a, b, c, d]) = self.inbox.get(at..).and_then(<[u8]>::first_chunk) {
            let size = u32::from_be_bytes([a, b, c, d]) as usize;
            let Some(payload) = self.inbox.get(at + 7..at + 7 + size) else { break };
            if self.inbox.len() == at + 7 + size {
                break;
            }
            take(kind, payload, &mut out)?;
            at += size + 8;
        }
        self.inbox.drain(..at);
        if out.is_empty() { Ok(()) } else { self.stream.write_all(&out) }
    }
}

fn long_long(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn short(text: &str) -> Vec<u8> {
    let mut out = vec![u8::try_from(text.len()).unwrap_or(u8::MAX)];
    out.extend_from_slice(text.as_bytes());
    out
}

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend_from_slice(&channel.to_be_bytes());
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(payload);
    out.push(0xce);
    out
}

fn method(channel: u16, class: u16, number: u16, arguments: &[&[u8]]) -> Vec<u8> {
    let mut payload = [class.to_be_bytes(), number.to_be_bytes()].concat();
    arguments.iter().for_each(|argument| payload.extend_from_slice(argument));
    frame(1, channel, &payload)
}

/// basic.publish to the queue with its content: delivery mode, body.
fn message(persistent: bool, payload_bytes: usize) -> Vec<u8> {
    let mut out = method(1, 60, 40, &[&[0, 0], &[0], &*short(QUEUE), &[0]]);
    let mut header = vec![0, 60, 0, 0];
    header.extend_from_slice(&(payload_bytes as u64).to_be_bytes());
    header.extend_from_slice(&[0x10, 0, if persistent { 2 } else { 1 }]);
    out.extend(frame(2, 1, &header));
    out.extend(frame(3, 1, &vec![b'x'; payload_bytes]));
    out
}
