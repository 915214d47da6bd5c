//! Drives the ledger's clients over sockets through any number of broker lives, and writes every record to the file
//! before the answer to it is sent.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::check::{Checker, Verdict};
use super::client::{Publisher, Subscriber};
use super::record::{Header, Record, SubscriberKind, read_file};
use crate::link::{Link, SCRATCH_BYTES};
use crate::packet::{self, ConnectOptions, Packet};
use crate::poll::{Poll, Ready};
use crate::rng::Rng;

/// Pause before a refused connection is tried again.
const RETRY: Duration = Duration::from_millis(3);

/// After a kill the sockets are read to their ends, at most this long.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// While draining, silence of this length means that nothing more will come.
const QUIET: Duration = Duration::from_secs(3);

/// Time given to surplus deliveries once everything owed has come.
const LINGER: Duration = Duration::from_millis(30);

#[derive(Clone, Debug)]
pub struct LedgerPlan {
    pub address: SocketAddr,
    pub user: Option<(String, String)>,
    pub header: Header,
    /// Messages that one publisher may have in flight.
    pub window: usize,
    /// Messages a second of one publisher, at most.
    pub rate: f64,
    /// Filler bytes of a payload, at most; drawn for each message.
    pub filler_max: u64,
    /// Where the records are written, appended to when it exists.
    pub file: Option<PathBuf>,
    pub seed: u64,
}

impl LedgerPlan {
    /// Four publishers at QoS 1 and 2, a steady, a flapping and an offline subscriber at QoS 2 and a steady one at QoS 1.
    #[must_use]
    pub fn new(address: SocketAddr, run: &str, seed: u64) -> Self {
        let subscribers = vec![
            (SubscriberKind::Steady, 2),
            (SubscriberKind::Flapping, 2),
            (SubscriberKind::Offline, 2),
            (SubscriberKind::Steady, 1),
        ];
        Self {
            address,
            user: None,
            header: Header { run: run.to_owned(), publishers: 4, subscribers },
            window: 20,
            rate: 2000.0,
            filler_max: 200,
            file: None,
            seed,
        }
    }

    fn topic_prefix(&self) -> String {
        format!("ledger/{}", self.header.run)
    }
}

enum Role {
    Publisher(Publisher),
    Subscriber(Subscriber),
}

struct Client {
    options: ConnectOptions,
    role: Role,
    link: Option<Link>,
    /// CONNACK has come on this link.
    connected: bool,
    /// When to connect, or (flapping) when to drop the connection.
    next_turn: Instant,
    /// When the next message is due.
    next_message: Instant,
}

pub struct Driver {
    plan: LedgerPlan,
    rng: Rng,
    poll: Poll,
    ready: Vec<Ready>,
    scratch: Vec<u8>,
    clients: Vec<Client>,
    checker: Checker,
    records: Vec<Record>,
    file: Option<File>,
    /// Publishers make new messages, flapping clients flap, offline ones stay away.
    producing: bool,
    last_record: Instant,
}

impl Driver {
    /// Creates every session and subscription on a running broker; the file gets its header.
    pub fn set_up(plan: LedgerPlan) -> io::Result<Self> {
        for options in all_options(&plan) {
            Link::open(plan.address, &options)?.0.close()?;
        }
        for (index, (_, qos)) in plan.header.subscribers.iter().enumerate() {
            let (mut link, _) = Link::open(plan.address, &options(&plan, 's', index))?;
            link.subscribe(&format!("{}/+/+", plan.topic_prefix()), *qos)?;
            link.close()?;
        }
        let mut file = plan.file.as_ref().map(File::create).transpose()?;
        if let Some(file) = &mut file {
            writeln!(file, "{}", plan.header)?;
        }
        Self::new(plan, file)
    }

    /// Takes up the sessions of the ledger file of `plan`, to be drained and judged.
    pub fn take_up(mut plan: LedgerPlan) -> io::Result<Self> {
        let path = plan.file.clone().ok_or_else(|| io::Error::other("a ledger file is needed"))?;
        let (header, records) = read_file(&path)?;
        plan.header = header;
        let mut driver = Self::new(plan, Some(File::options().append(true).open(path)?))?;
        for record in &records {
            driver.checker.take(record);
            for client in &mut driver.clients {
                if let Role::Subscriber(subscriber) = &mut client.role {
                    subscriber.replay(record);
                }
            }
        }
        Ok(driver)
    }

    fn new(plan: LedgerPlan, file: Option<File>) -> io::Result<Self> {
        let now = Instant::now();
        let client = |options, role| Client {
            options,
            role,
            link: None,
            connected: false,
            next_turn: now,
            next_message: now,
        };
        let mut clients = Vec::new();
        for index in 0..plan.header.publishers {
            let role = Role::Publisher(Publisher::new(index, &plan.topic_prefix(), plan.window));
            clients.push(client(options(&plan, 'p', usize::from(index)), role));
        }
        for (index, (kind, qos)) in (0_u16..).zip(&plan.header.subscribers) {
            let filter = format!("{}/+/+", plan.topic_prefix());
            let role = Role::Subscriber(Subscriber::new(index, *kind, filter, *qos));
            clients.push(client(options(&plan, 's', usize::from(index)), role));
        }
        Ok(Self {
            rng: Rng::new(plan.seed),
            poll: Poll::new()?,
            ready: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            clients,
            checker: Checker::new(&plan.header),
            records: Vec::new(),
            file,
            producing: true,
            last_record: now,
            plan,
        })
    }

    /// Publishes and receives for `duration`; connections are made, lost and made again as it comes.
    pub fn run_for(&mut self, duration: Duration) -> io::Result<()> {
        self.producing = true;
        let start = Instant::now();
        while start.elapsed() < duration {
            self.turn(start + duration)?;
        }
        Ok(())
    }

    /// The broker has been killed: hears what it said last, then forgets the connections.
    pub fn broker_died(&mut self) -> io::Result<()> {
        let start = Instant::now();
        for index in 0..self.clients.len() {
            while self.clients.get(index).is_some_and(|client| client.link.is_some())
                && start.elapsed() < LAST_WORDS
            {
                if !self.receive(index)? {
                    self.hang_up(index);
                }
            }
            self.hang_up(index);
        }
        self.records.push(Record::Killed);
        self.write_records()
    }

    /// Connects everybody, stops publishing, and waits until all that is owed has come, or until nothing comes any more.
    pub fn drain(&mut self, limit: Duration) -> io::Result<Verdict> {
        self.producing = false;
        let start = Instant::now();
        self.last_record = start;
        let mut complete_since = None;
        while start.elapsed() < limit && self.last_record.elapsed() < QUIET {
            self.turn(Instant::now() + Duration::from_millis(5))?;
            let complete = self.checker.owed() == 0 && self.clients.iter().all(Client::is_settled);
            if !complete {
                complete_since = None;
            } else if complete_since.get_or_insert_with(Instant::now).elapsed() >= LINGER {
                break;
            }
        }
        Ok(self.checker.verdict())
    }

    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.checker.verdict()
    }

    /// Ends the sessions on a running broker.
    pub fn clean_up(&mut self) -> io::Result<()> {
        (0..self.clients.len()).for_each(|index| self.hang_up(index));
        for options in all_options(&self.plan) {
            let clean = ConnectOptions { clean_session: true, ..options };
            Link::open(self.plan.address, &clean)?.0.close()?;
        }
        Ok(())
    }

    /// One round of the loop: connections, messages, sends, a wait until `until` at most, reads.
    fn turn(&mut self, until: Instant) -> io::Result<()> {
        for index in 0..self.clients.len() {
            self.attend(index);
        }
        self.write_records()?;
        for index in 0..self.clients.len() {
            self.flush(index);
        }
        let timeout = until.saturating_duration_since(Instant::now()).min(Duration::from_millis(1));
        self.ready.clear();
        self.poll.wait(&mut self.ready, Some(timeout.max(Duration::from_micros(50))))?;
        for event in std::mem::take(&mut self.ready) {
            if event.readable && !self.receive(event.token)? {
                self.lost(event.token);
            }
        }
        self.write_records()
    }

    /// Connects or drops a client whose time has come, and lets a publisher publish.
    fn attend(&mut self, index: usize) {
        let now = Instant::now();
        let Some(client) = self.clients.get_mut(index) else { return };
        let flaps = self.producing && client.flaps();
        if client.link.is_none() {
            if now >= client.next_turn && (!self.producing || client.comes_while_producing()) {
                client.next_turn = now + RETRY;
                // A refusal is what a killed broker answers; the next turn tries again.
                if client.dial(self.plan.address, &self.poll, index).is_ok() {
                    client.next_turn = now + client.life(&mut self.rng);
                }
            }
            return;
        }
        if flaps && client.connected && now >= client.next_turn {
            client.next_turn = now + self.rng.duration(Duration::ZERO, Duration::from_millis(60));
            client.link = None;
            client.connected = false;
            return;
        }
        let (Role::Publisher(publisher), Some(link)) = (&mut client.role, &mut client.link) else { return };
        let interval = Duration::from_secs_f64(1.0 / self.plan.rate);
        // A publisher that could not publish for a while does not make up for it in one burst.
        client.next_message = client.next_message.max(now.checked_sub(interval * 20).unwrap_or(now));
        while self.producing && client.connected && publisher.has_room() && client.next_message <= now {
            client.next_message += interval;
            let qos = if self.rng.one_in(2) { 1 } else { 2 };
            let filler = usize::try_from(self.rng.below(self.plan.filler_max + 1)).unwrap_or(0);
            publisher.publish(qos, filler, link.outbox(), &mut self.records);
        }
    }

    /// Reads what a client has; false when the connection is over.
    fn receive(&mut self, index: usize) -> io::Result<bool> {
        let Some(client) = self.clients.get_mut(index) else { return Ok(true) };
        let Some(link) = &mut client.link else { return Ok(true) };
        let (role, connected, records) = (&mut client.role, &mut client.connected, &mut self.records);
        let open = link.receive(&mut self.scratch, |packet, out| {
            if let Packet::Connack { session_present, return_code } = packet {
                *connected = return_code == 0;
                role.resume(session_present, out, records);
            } else {
                role.handle(packet, out, records);
            }
        });
        self.write_records()?;
        Ok(open.unwrap_or(false))
    }

    /// The peer has closed a connection that nobody wanted closed.
    fn lost(&mut self, index: usize) {
        if let Some(client) = self.clients.get(index) {
            let (subscriber, client) = client.role.name();
            self.records.push(Record::Disconnected { subscriber, client });
        }
        self.hang_up(index);
    }

    fn hang_up(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index) {
            client.link = None;
            client.connected = false;
            client.next_turn = Instant::now();
        }
    }

    /// Errors of a send are seen by the next read.
    fn flush(&mut self, index: usize) {
        let Some(link) = self.clients.get_mut(index).and_then(|client| client.link.as_mut()) else { return };
        if link.unsent() > 0 || link.waits_for_write {
            let waits = !link.flush().unwrap_or(true);
            if waits != link.waits_for_write && self.poll.modify(&*link, index, waits).is_ok() {
                link.waits_for_write = waits;
            }
        }
    }

    /// Gives the records to the file and to the judge.
    fn write_records(&mut self) -> io::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        self.last_record = Instant::now();
        if let Some(file) = &mut self.file {
            let mut lines = String::with_capacity(self.records.len() * 16);
            for record in &self.records {
                writeln!(lines, "{record}").map_err(io::Error::other)?;
            }
            file.write_all(lines.as_bytes())?;
        }
        self.records.drain(..).for_each(|record| self.checker.take(&record));
        Ok(())
    }
}

impl Client {
    fn dial(&mut self, address: SocketAddr, poll: &Poll, token: usize) -> io::Result<()> {
        let mut link = Link::dial(address)?;
        packet::encode_connect(link.outbox(), &self.options);
        link.set_nonblocking()?;
        poll.add(&link, token, false)?;
        self.link = Some(link);
        self.connected = false;
        Ok(())
    }

    const fn comes_while_producing(&self) -> bool {
        match &self.role {
            Role::Publisher(_) => true,
            Role::Subscriber(subscriber) => !matches!(subscriber.kind, SubscriberKind::Offline),
        }
    }

    /// Whether this client drops its connection now and then. Publishers do so seldom.
    const fn flaps(&self) -> bool {
        match &self.role {
            Role::Publisher(_) => true,
            Role::Subscriber(subscriber) => matches!(subscriber.kind, SubscriberKind::Flapping),
        }
    }

    /// How long a connection lasts that is to be dropped.
    fn life(&self, rng: &mut Rng) -> Duration {
        match &self.role {
            Role::Publisher(_) => rng.duration(Duration::from_millis(20), Duration::from_secs(2)),
            Role::Subscriber(_) => rng.duration(Duration::from_millis(5), Duration::from_millis(150)),
        }
    }

    /// Connected, and nothing of its own on the way.
    fn is_settled(&self) -> bool {
        let idle = match &self.role {
            Role::Publisher(publisher) => publisher.is_idle(),
            Role::Subscriber(_) => true,
        };
        self.connected && idle
    }
}

impl Role {
    const fn name(&self) -> (bool, u16) {
        match self {
            Self::Publisher(publisher) => (false, publisher.index()),
            Self::Subscriber(subscriber) => (true, subscriber.index()),
        }
    }

    fn resume(&mut self, present: bool, out: &mut Vec<u8>, records: &mut Vec<Record>) {
        let (subscriber, client) = self.name();
        records.push(Record::Resumed { subscriber, client, present });
        match self {
            Self::Publisher(publisher) => publisher.resume(present, out),
            Self::Subscriber(subscriber) => subscriber.resume(present, out),
        }
    }

    fn handle(&mut self, packet: Packet<'_>, out: &mut Vec<u8>, records: &mut Vec<Record>) {
        match self {
            Self::Publisher(publisher) => publisher.handle(packet, out, records),
            Self::Subscriber(subscriber) => subscriber.handle(packet, out, records),
        }
    }
}

fn options(plan: &LedgerPlan, role: char, index: usize) -> ConnectOptions {
    ConnectOptions::persistent(format!("ledger-{}-{role}{index}", plan.header.run))
        .with_user(plan.user.clone())
}

fn all_options(plan: &LedgerPlan) -> Vec<ConnectOptions> {
    let publishers = (0..usize::from(plan.header.publishers)).map(|index| options(plan, 'p', index));
    let subscribers = (0..plan.header.subscribers.len()).map(|index| options(plan, 's', index));
    publishers.chain(subscribers).collect()
}
