//! A broker, its store on a simulated disk, and the order in which the daemon serves them.

use std::rc::Rc;
use std::time::Duration;

use gatewayd::broker::{
    BacklogRequest, Broker, CreditPool, Delivery, Event, ExchangeIndex, Outlet, Overflow, Policy,
    QueueBounds, QueueIndex, QueueOptions, QueueSettings, Recovered, Replay, SessionTerms, SubscribeOptions,
    Subscriber,
};
use gatewayd::ids::{ConnectionId, RowKey};
use gatewayd::message::{Assurance, Message};
use gatewayd::store::chunk::ChunkRead;
use gatewayd::store::{Store, StoreError, StoreOptions};
use gatewayd::time::{Mono, Now, Wall};

use crate::disk::SimDisk;

pub const ME: ConnectionId = ConnectionId(7);

pub fn options() -> StoreOptions {
    StoreOptions {
        gateway_bytes_max: 1 << 20,
        journal_bytes: 128 << 10,
        backlog_bytes_max: 8 << 20,
        reserve_free: 0,
        ..StoreOptions::default()
    }
}

pub struct World {
    pub disk: SimDisk,
    pub store: Store,
    pub broker: Broker,
    pub now: Now,
    pub bounds: QueueBounds,
    pub options: StoreOptions,
    pub damage: Vec<String>,
    /// Chunks that were made.
    pub moved: u64,
    /// Messages found at start.
    pub queued: usize,
    pool: Rc<CreditPool>,
    requests: Vec<BacklogRequest>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, options(), |_| {})
    }

    pub fn with(seed: u64, options: StoreOptions, change: impl FnOnce(&mut QueueBounds)) -> Self {
        let mut bounds =
            QueueBounds { messages_max: 1_000_000, bytes_max: 1 << 30, overflow: Overflow::DropOldest };
        change(&mut bounds);
        let now = Now { mono: Mono(1_000_000), wall: Wall(1_700_000_000_000), wall_trusted: true };
        Self::start(SimDisk::new(seed), now, bounds, options).unwrap()
    }

    /// `None` when the power went meanwhile.
    pub fn start(disk: SimDisk, now: Now, bounds: QueueBounds, options: StoreOptions) -> Option<Self> {
        let opened = Store::open(disk.disk(), options.clone());
        let Ok((mut store, found)) = opened else {
            assert!(disk.power_is_off(), "{:?}", opened.err());
            return None;
        };
        let mut recovered = Recovered::new();
        store.replay(&mut |place, kind, body| recovered.row(place, kind, body)).unwrap();
        if !found.damage.is_empty() {
            recovered.window_was_damaged();
        }
        if !found.backlog_damage.is_empty() {
            recovered.backlog_was_damaged();
        }
        for chunk in store.take_chunks() {
            recovered.chunk(chunk.number, chunk.charge, chunk.summary);
        }
        for number in recovered.chunks_to_read(now) {
            let read = ChunkRead { number, from: RowKey(0), bytes_max: usize::MAX };
            for (place, kind, body) in store.fetch_chunk(read).unwrap().rows {
                recovered.chunk_row(number, place, kind, body);
            }
        }
        let usage = store.usage();
        let policy = Policy {
            session_bounds: bounds,
            named_bounds: Vec::new(),
            queue_bounds: bounds,
            sessions_max: 10,
            queues_max: 100,
            session_expiry_max: None,
            retained_max: 10,
            retained_bytes_max: 1 << 20,
            elision_window: Duration::ZERO,
            flash_quota_bytes: usage.quota_bytes,
            backlog_quota_bytes: usage.backlog_quota_bytes,
            flash_bytes_per_day: None,
            memory_max: 1 << 24,
        };
        let (broker, summary) = recovered.finish(policy, 1, now, found.last_batch, found.boot);
        assert_eq!(summary.unreadable, 0);
        let outlet = Outlet::default();
        outlet.room.set(1 << 40);
        let pool = Rc::new(CreditPool::new(Rc::new(outlet)));
        let damage = found.damage.into_iter().chain(found.backlog_damage).collect();
        let queued = summary.queued;
        Some(Self {
            disk,
            store,
            broker,
            now,
            bounds,
            options,
            damage,
            moved: 0,
            queued,
            pool,
            requests: Vec::new(),
        })
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.mono = self.now.mono + time;
        self.now.wall.0 += time.as_millis() as u64;
        self.broker.handle_timeout(self.now);
    }

    /// One batch, if there is something to write.
    pub fn keep(&mut self) -> Result<(), StoreError> {
        if let Some(batch) = self.broker.close_batch_now() {
            let persisted = self.store.append(batch)?;
            self.broker.persisted(self.now, persisted);
        }
        Ok(())
    }

    /// One request of the backlog. False when there is none.
    pub fn serve(&mut self) -> Result<bool, StoreError> {
        while let Some(request) = self.broker.next_backlog_request(self.now) {
            self.requests.push(request);
        }
        if self.requests.is_empty() {
            return Ok(false);
        }
        match self.requests.remove(0) {
            BacklogRequest::Change(change) => match self.store.change_backlog(&change) {
                Ok(changed) => {
                    self.moved += changed.added.len() as u64;
                    self.broker.backlog_changed(self.now, Some(changed));
                }
                Err(error) if self.disk.power_is_off() => return Err(error),
                Err(_) => self.broker.backlog_changed(self.now, None),
            },
            BacklogRequest::Read(read) => {
                let rows = self.store.fetch_chunk(read).unwrap();
                self.broker.backlog_read(self.now, Some(rows));
            }
        }
        Ok(true)
    }

    /// Until nothing is asked of anybody.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            self.keep().unwrap();
            if !self.serve().unwrap() {
                self.broker.handle_timeout(self.now);
                if !self.serve().unwrap() {
                    return;
                }
            }
        }
        panic!("the broker spins");
    }

    /// Time passes until all that may move has moved.
    pub fn cool(&mut self) {
        for _ in 0..40 {
            self.settle();
            self.pass(Duration::from_secs(61));
        }
        self.settle();
    }

    /// A start after a power cut or a stop.
    pub fn restart(&mut self) {
        self.disk.cut_power();
        let disk = self.disk.reboot();
        *self = Self::start(disk, self.now, self.bounds, self.options.clone()).unwrap();
    }

    pub fn declare(&mut self, name: &str, settings: QueueSettings) -> QueueIndex {
        if let Some(index) = self.broker.named_queue(name) {
            return index;
        }
        let options = QueueOptions { durable: true, settings, ..QueueOptions::default() };
        self.broker.create_queue(self.now, name, options, ME).unwrap().0
    }

    pub fn message(&self, address: &str, body: String, assurance: Assurance) -> Message {
        Message {
            address: address.into(),
            body: body.into(),
            assurance,
            received_at: self.now.wall,
            received_trusted: true,
            ..Message::default()
        }
    }

    pub fn send(&mut self, queue: &str, body: String) {
        let message = self.message(queue, body, Assurance::AtLeastOnce);
        self.broker.publish_to(self.now, ExchangeIndex::DEFAULT, message, &[], Some(ME));
    }

    pub fn consume(&mut self, queue: QueueIndex, credit_max: u32) {
        let subscriber = Subscriber {
            connection: ME,
            handle: 1,
            settled: false,
            exclusive: false,
            priority: 0,
            credit_max,
            pool: Rc::clone(&self.pool),
        };
        self.broker.consume(self.now, queue, subscriber).unwrap();
    }

    /// A durable session with a subscription; not connected.
    pub fn subscribe(&mut self, name: &str, filter: &str) -> QueueIndex {
        let opened =
            self.broker.open_session(self.now, name, SessionTerms::clean(false), ConnectionId(70)).unwrap();
        let options = SubscribeOptions::new(Assurance::ExactlyOnce);
        self.broker.subscribe(self.now, opened.queue, filter, options, Replay::Always);
        self.broker.detach(self.now, opened.queue, ConnectionId(70));
        opened.queue
    }

    /// The deliveries since the last call.
    pub fn deliveries(&mut self) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        while let Some(event) = self.broker.next_event() {
            if let Event::Deliver(delivery) = event {
                deliveries.push(delivery);
            }
        }
        deliveries
    }

    /// The next message of a named queue, as soon as it is in memory.
    pub fn get(&mut self, queue: QueueIndex, settled: bool) -> Option<(u64, String, bool)> {
        for _ in 0..100 {
            if let Some(got) = self.broker.get(self.now, queue, settled) {
                return Some((got.number, text(&got.held.message.body), got.redelivered));
            }
            if !self.serve().unwrap() {
                self.broker.handle_timeout(self.now);
                if !self.serve().unwrap() {
                    return None;
                }
            }
        }
        panic!("it never comes");
    }

    /// Everything that a named queue holds, in order.
    pub fn drain(&mut self, queue: QueueIndex) -> Vec<String> {
        let mut all = Vec::new();
        while let Some((_, body, _)) = self.get(queue, true) {
            all.push(body);
        }
        all
    }

    pub fn ready(&self, queue: QueueIndex) -> usize {
        self.broker.queue_facts(queue).map_or(0, |facts| facts.ready)
    }
}

/// The part of a body before its padding.
pub fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).split(' ').next().unwrap_or_default().into()
}

/// A body that begins with a number.
pub fn body(number: u64, bytes: usize) -> String {
    let mut body = format!("{number} ");
    body.extend(std::iter::repeat_n('x', bytes.saturating_sub(body.len())));
    body
}
