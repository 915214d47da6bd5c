//! The broker: routes messages to queues, keeps what must be kept, and says what may be acknowledged.
//!
//! Plain methods, one owner, no locks; it knows no protocol, no socket and no clock. A protocol's endpoint calls the
//! methods; what the broker has to tell comes out of [`Broker::next_event`]. What must reach flash comes out of
//! [`Broker::close_batch`], and [`Broker::persisted`] says that it is there.
//!
//! Rooms: `topic_index` and `exchange` match, `queue` and `named` hold, `publish` routes, `session` and `topology` open
//! and end, `shares` chooses members of shared subscriptions, `delivery` and `sharing` hand over and settle, `dying` moves what is dead or due, `collection` does so for
//! readings, `retained` remembers, `ledger` and `rows` write, `recovery` reads.

mod allowance;
mod backlog;
mod budget;
mod cold;
mod cold_recovery;
mod collection;
mod cooling;
mod delivery;
mod dying;
mod event;
mod exchange;
mod figures;
mod gate;
mod held;
mod ledger;
mod loss;
#[cfg(feature = "mutations")]
pub mod mutation;
mod named;
mod publish;
mod queue;
mod reconfigure;
mod recovery;
mod retained;
mod rewrite;
mod rows;
mod session;
mod shares;
mod sharing;
mod status;
mod taps;
#[cfg(test)]
mod tests;
mod topic_index;
mod topology;
mod topology_rows;
mod trace;
mod warming;
mod will;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use backlog::Backlog;
pub use backlog::BacklogRequest;
pub use budget::FlashBudget;
pub use collection::{CollectionPlan, Flushable};
pub use event::{Delivery, Event};
use exchange::Exchanges;
pub use exchange::{
    BindingArguments, ExchangeIndex, ExchangeKind, ExchangeOptions, HashOn, HeaderMatch, MessageReader,
    Target,
};
pub use figures::WantedFigures;
pub use gate::Gate;
pub use held::Held;
use ledger::Ledger;
use loss::Losses;
pub use loss::{LossReason, LossReceipt};
pub use named::{CreditPool, DeadLetter, Outlet, QueueOptions, QueueSettings, ReadyOverflow, Subscriber};
pub use publish::{Publish, Routed};
use queue::Queue;
pub use queue::{
    EXPIRY_NEVER, Overflow, QueueBounds, QueueIndex, QueueKind, SEVERAL_IDENTIFIERS, SubscribeOptions,
};
pub use recovery::{Recovered, RecoverySummary};
use retained::Retained;
use rows::RecordKey;
pub use session::{Opened, Replay, SessionRefused, SessionTerms};
pub use sharing::{ConsumeRefused, Got, Settlement};
pub use status::{BrokerStatus, QueueStatus};
pub use taps::Seen;
use taps::Taps;
pub use topic_index::{Level, TopicIndex, mqtt_levels, pattern_levels};
pub use topology::{QueueFacts, TopologyRefused};
use trace::Traces;
pub use trace::{Publisher, TraceExample, TraceStep, Traced, WATCHED_FOR, Watch};
pub use will::{Will, WillNumber};

use crate::collections::{self, Map};
use crate::ids::{BatchNumber, ChunkNumber, ConnectionId, QueueId, RowKey};
use crate::store::batch::{Batch, Persisted};
use crate::time::{Mono, Now};

/// What the operator set.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Bounds of a session's queue: by the first pattern that its name matches, or the default.
    pub session_bounds: QueueBounds,
    pub named_bounds: Vec<(Box<str>, QueueBounds)>,
    /// Bounds of a named queue, unless a pattern matches its name.
    pub queue_bounds: QueueBounds,
    pub sessions_max: usize,
    /// Named queues.
    pub queues_max: usize,
    /// A session without a connection ends after this. `None` = never.
    pub session_expiry_max: Option<Duration>,
    pub retained_max: usize,
    pub retained_bytes_max: u64,
    /// How long a batch may wait for the consumers' acknowledgements; zero = not at all.
    pub elision_window: Duration,
    /// Bytes of live rows that the file may hold.
    pub flash_quota_bytes: u64,
    /// Bytes that chunks of the backlog may take; 0: no row leaves the window.
    pub backlog_quota_bytes: u64,
    pub flash_bytes_per_day: Option<u64>,
    /// Bytes of messages in memory.
    pub memory_max: u64,
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages that publishers handed over.
    pub published: u64,
    /// Messages that no queue wanted.
    pub unrouted: u64,
    /// Copies put into queues.
    pub queued: u64,
    /// Copies handed to consumers, repeats included.
    pub delivered: u64,
    /// Copies handed to those who asked for one: they are in `delivered` too.
    pub fetched: u64,
    /// Copies that consumers acknowledged.
    pub settled: u64,
    /// At-most-once copies that were dropped because the consumer's output was full.
    pub dropped_output_full: u64,
    /// Last known values that were delivered but not kept, the bound being reached.
    pub retained_refused: u64,
    /// Copies lost to a bound.
    pub lost: u64,
    /// Copies that a full queue refused; their publishers were told where the protocol can tell.
    pub refused: u64,
    /// Times that a consumer's credit ran out while messages waited for it.
    pub credit_stalls: u64,
    /// Copies that ended with their session or queue, or were refused by their consumer, by the client's own wish.
    pub discarded: u64,
    /// Copies that went to a dead-letter exchange.
    pub dead_lettered: u64,
    /// Copies that no named queue could take because their address is too long.
    pub address_too_long: u64,
}

/// Name of the exchange that joins all protocols.
const SHARED_NAME: &str = crate::message::SHARED_EXCHANGE;

/// See the module's head.
#[derive(Debug)]
pub struct Broker {
    policy: Policy,
    queues: Vec<Option<Queue>>,
    free: Vec<u32>,
    sessions: Map<Box<str>, QueueIndex>,
    collections: BTreeMap<Box<str>, QueueIndex>,
    /// A collection has readings that were not handed over.
    has_readings: bool,
    readings_congested: bool,
    named: Map<Box<str>, QueueIndex>,
    exchanges: Exchanges,
    /// Exchanges that a message still has to pass.
    exchange_work: Vec<ExchangeIndex>,
    /// Bindings between named queues and exchanges.
    bindings: usize,
    /// Where the bindings are that have a record.
    recorded_bindings: BTreeMap<u64, (ExchangeIndex, Target, Box<str>)>,
    /// Number of the newest delivery from a named queue.
    next_delivery: u64,
    dead: VecDeque<dying::Dead>,
    /// While they are routed: how many more may die again.
    dying_again: Option<u32>,
    /// A message is being routed that no publisher waits for, and this was its row.
    passing: Option<RowKey>,
    /// When named queues are to be looked at.
    timers: BinaryHeap<Reverse<(Mono, QueueIndex)>>,
    durable: BTreeMap<QueueId, QueueIndex>,
    /// Durable sessions that ended, by name, until the batch that says so is on flash.
    ended: BTreeMap<Box<str>, BatchNumber>,
    index: TopicIndex<SubscribeOptions>,
    retained: Retained,
    wills: BTreeMap<u64, Will>,
    /// Wills that wait for their delay, by client.
    delayed_wills: BTreeMap<Box<str>, u64>,
    /// When the next of them may be due.
    will_at: Option<Mono>,
    next_will: u64,
    losses: Losses,
    ledger: Ledger,
    backlog: Backlog,
    events: VecDeque<Event>,
    counters: Counters,
    /// Addresses that somebody traces; as a rule none.
    traces: Traces,
    /// Who looks at messages as they are published; as a rule nobody.
    taps: Taps,
    memory: Rc<Cell<u64>>,
    /// Steps of exactly-once deliveries that are on their way to flash and hold a packet back, in order of batches.
    awaiting: VecDeque<(BatchNumber, QueueIndex, u32)>,
    /// Connections whose replies wait for a batch, in order of batches.
    waiting: VecDeque<(BatchNumber, ConnectionId)>,
    publish_number: u64,
    /// Bytes that sessions' topic filters, wills, exchanges, named queues and bindings take.
    kept_bytes: usize,
    /// Subscriptions to the gateway's own figures.
    system_subscriptions: usize,
    wanted_figures: Vec<WantedFigures>,
    matches: Vec<shares::Match>,
    /// Shared subscriptions that match the message that is being routed.
    matching_shares: Vec<u32>,
    shares: shares::Shares,
    /// The session whose publish is being routed.
    publisher: Option<QueueIndex>,
    boot: u32,
    boot_began: Mono,
    /// When the next session may expire.
    expiry_at: Option<Mono>,
}

impl Broker {
    /// A broker with nothing in it. `last` is the newest batch of the store, `boot` counts its starts.
    #[must_use]
    pub fn new(policy: Policy, seed: u64, now: Now, last: BatchNumber, boot: u32) -> Self {
        let budget = FlashBudget::new(policy.flash_bytes_per_day, now.mono);
        let backlog = Backlog::new(policy.backlog_quota_bytes);
        Self {
            backlog,
            policy,
            queues: Vec::new(),
            free: Vec::new(),
            sessions: collections::map(seed),
            collections: BTreeMap::new(),
            has_readings: false,
            readings_congested: false,
            named: collections::map(seed ^ 3),
            exchanges: Exchanges::new(seed ^ 4),
            exchange_work: Vec::new(),
            bindings: 0,
            recorded_bindings: BTreeMap::new(),
            next_delivery: 0,
            dead: VecDeque::new(),
            dying_again: None,
            passing: None,
            timers: BinaryHeap::new(),
            durable: BTreeMap::new(),
            ended: BTreeMap::new(),
            index: TopicIndex::new(seed ^ 1),
            retained: Retained::default(),
            wills: BTreeMap::new(),
            delayed_wills: BTreeMap::new(),
            will_at: None,
            next_will: 1,
            losses: Losses::default(),
            ledger: Ledger::new(last, seed ^ 2, budget),
            events: VecDeque::new(),
            counters: Counters::default(),
            traces: Traces::default(),
            taps: Taps::new(seed),
            memory: Rc::new(Cell::new(0)),
            awaiting: VecDeque::new(),
            waiting: VecDeque::new(),
            publish_number: 0,
            kept_bytes: 0,
            system_subscriptions: 0,
            wanted_figures: Vec::new(),
            matches: Vec::new(),
            matching_shares: Vec::new(),
            shares: shares::Shares::default(),
            publisher: None,
            boot,
            boot_began: now.mono,
            expiry_at: None,
        }
    }

    /// The next thing to tell, in order.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Counters since the start.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Messages that publishers have handed over since the start.
    #[must_use]
    pub const fn published(&self) -> u64 {
        self.counters.published
    }

    /// The newest batch on flash.
    #[must_use]
    pub const fn persisted_batch(&self) -> BatchNumber {
        self.ledger.persisted()
    }

    /// `connection` has a reply that waits for `batch`: it is told when the batch is on flash.
    pub fn await_batch(&mut self, batch: BatchNumber, connection: ConnectionId) {
        if self.waiting.back() != Some(&(batch, connection)) {
            self.waiting.push_back((batch, connection));
        }
    }

    /// True when no batch is under way.
    #[must_use]
    pub const fn is_store_idle(&self) -> bool {
        self.ledger.is_idle()
    }

    /// Too much waits for flash, in rows or in readings: publishers of durable messages must be held back.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.ledger.is_congested() || self.readings_congested || self.is_window_filling()
    }

    /// More readings wait for a flush that is under way than memory should hold, or no more.
    pub const fn set_readings_congested(&mut self, congested: bool) {
        self.readings_congested = congested;
    }

    /// The next batch, when the store is idle and something in it is due.
    pub fn close_batch(&mut self, now: Now) -> Option<Batch> {
        if !self.ledger.is_idle() || !self.ledger.is_due(now.mono) {
            return None;
        }
        self.write_batch()
    }

    /// The next batch, due or not: for a clean stop.
    pub fn close_batch_now(&mut self) -> Option<Batch> {
        if self.ledger.is_idle() { self.write_batch() } else { None }
    }

    /// A batch is on flash: what waited for it goes on.
    pub fn persisted(&mut self, now: Now, persisted: Persisted) {
        self.ledger.persisted_batch(now, persisted);
        // Less than the batch's number while messages are being written anew.
        let kept = self.ledger.persisted();
        self.ended.retain(|_, batch| *batch > kept);
        self.retained.persisted(kept);
        while let Some((number, _)) = self.waiting.front().copied()
            && number <= kept
        {
            let Some((_, connection)) = self.waiting.pop_front() else { break };
            self.events.push_back(Event::GatesMayBeDue { connection });
        }
        while let Some((number, ..)) = self.awaiting.front().copied()
            && number <= kept
        {
            let Some((_, queue, tag)) = self.awaiting.pop_front() else { break };
            self.step_kept(now, queue, tag);
        }
    }

    /// When [`Broker::handle_timeout`] or [`Broker::close_batch`] has something to do, if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        let all = [
            self.ledger.deadline(),
            self.expiry_at,
            self.next_timer(),
            self.will_at,
            self.retained.next_expiry(),
            self.backlog_deadline(),
        ];
        all.into_iter().flatten().min()
    }

    /// Time passed: sessions may expire, wills and messages come due.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.expiry_at.is_some_and(|at| at <= now.mono) {
            self.expire_sessions(now);
        }
        if self.will_at.is_some_and(|at| at <= now.mono) {
            self.find_due_wills(now);
        }
        self.expire_retained(now);
        self.look_at_queues(now);
        self.tend_backlog(now);
    }

    fn write_batch(&mut self) -> Option<Batch> {
        let view = View {
            queues: &self.queues,
            backlog: &self.backlog,
            losses: &self.losses,
            wills: &self.wills,
            durable: &self.durable,
            exchanges: &self.exchanges,
            bindings: &self.recorded_bindings,
        };
        self.ledger.close(&view)
    }

    fn view(&self) -> View<'_> {
        View {
            queues: &self.queues,
            backlog: &self.backlog,
            losses: &self.losses,
            wills: &self.wills,
            durable: &self.durable,
            exchanges: &self.exchanges,
            bindings: &self.recorded_bindings,
        }
    }

    fn queue(&self, index: QueueIndex) -> Option<&Queue> {
        self.queues.get(index.0 as usize)?.as_ref()
    }

    fn queue_mut(&mut self, index: QueueIndex) -> Option<&mut Queue> {
        self.queues.get_mut(index.0 as usize)?.as_mut()
    }
}

/// The state that a batch is encoded from.
struct View<'a> {
    queues: &'a [Option<Queue>],
    backlog: &'a Backlog,
    losses: &'a Losses,
    wills: &'a BTreeMap<u64, Will>,
    durable: &'a BTreeMap<QueueId, QueueIndex>,
    exchanges: &'a Exchanges,
    bindings: &'a BTreeMap<u64, (ExchangeIndex, Target, Box<str>)>,
}

impl ledger::Ground for View<'_> {
    fn queue(&self, index: QueueIndex) -> Option<&Queue> {
        self.queues.get(index.0 as usize)?.as_ref()
    }

    fn durable_queues(&self) -> Vec<QueueIndex> {
        self.durable.values().copied().collect()
    }

    fn record(&self, key: RecordKey) -> Option<Vec<u8>> {
        match key {
            RecordKey::Session(id) => {
                let queue = self.queue(*self.durable.get(&id)?)?;
                queue.window_dirty.set(false);
                let mut out = Vec::new();
                rows::SessionRecord::of(queue).put(&mut out);
                Some(out)
            }
            RecordKey::Will(number) => {
                let mut out = Vec::new();
                rows::put_will(&mut out, self.wills.get(&number)?);
                Some(out)
            }
            RecordKey::Loss(number) => self.losses.record(number),
            RecordKey::Queue(id) => {
                let queue = self.queue(*self.durable.get(&id)?)?;
                let named = queue.named()?;
                let delays = named.delays.and_then(|exchange| self.exchanges.get(exchange));
                let mut out = Vec::new();
                let (delays, returned) = (delays.map(|e| e.number), queue.returned());
                topology_rows::QueueRecord::put(&mut out, &queue.name, named, delays, &returned);
                Some(out)
            }
            RecordKey::Exchange(number) => {
                let index = self.exchanges.by_number(number)?;
                let mut out = Vec::new();
                topology_rows::ExchangeRecord::put(&mut out, self.exchanges.get(index)?);
                Some(out)
            }
            RecordKey::Binding(number) => {
                let place = self.bindings.get(&number)?;
                let mut out = Vec::new();
                Broker::binding_record(self.queues, self.exchanges, place, number)?.put(&mut out);
                Some(out)
            }
            RecordKey::Backlog => {
                let mut out = Vec::new();
                backlog::put_adopted(&mut out, self.backlog);
                Some(out)
            }
            RecordKey::Cold(id) => {
                let queue = self.queue(*self.durable.get(&id)?)?;
                backlog::put_held(queue.cold.as_ref()?)
            }
        }
    }

    fn done_with_chunks(&self) -> Vec<(QueueId, ChunkNumber)> {
        let done = self.backlog.done.iter();
        done.flat_map(|(number, queues)| queues.iter().map(|queue| (*queue, *number))).collect()
    }
}
