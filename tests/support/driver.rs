//! The gateway without I/O: clients are names, time is a number, the store is real on a simulated disk.
//!
//! Goes through the same order as the daemon's round (receive, close the batch, take `Persisted`, send), until
//! nothing moves. The store can be held back, fail, be damaged; power can be cut, and what survived is recovered. What
//! the gateway sends is collected as lines: `< a PUBACK id=1`, `< a closed peer_closed`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;
use std::time::Duration;

use gatewayd::auth::{Acl, Users};
use gatewayd::broker::{BacklogRequest, Recovered, RecoverySummary};
use gatewayd::config::{Config, GatewayId};
use gatewayd::gateway::End;
use gatewayd::gateway::{Accept, Gateway, GatewayPolicy, LogState, Output, StoreCondition, broker_policy};
use gatewayd::ids::{ConnectionId, RowKey};
use gatewayd::limits::READ_BYTES_MAX;
use gatewayd::series::Start;
use gatewayd::store::chunk::ChunkRead;
use gatewayd::store::{Batch, Store, StoreOptions};
use gatewayd::time::{Mono, Now, Wall};

use super::disk::{Fault, SimDisk};
use super::packet;
use super::series::Series;

/// 2026-03-01 12:00:00 UTC.
const BEGIN: Wall = Wall(1_772_366_400_000);
/// The monotonic clock at the start of each boot.
const BOOT: Mono = Mono(5_000_000);
/// Rounds without an input before the driver says that the gateway spins.
const ROUNDS_MAX: usize = 20_000;

/// How a world is made.
#[derive(Clone)]
pub struct Setup {
    pub config: Config,
    pub users: Option<Users>,
    pub acl: Option<Acl>,
    pub allow_anonymous: bool,
    pub seed: u64,
    pub store: StoreOptions,
    /// Collections are kept, and the clock is trusted at the start or not.
    pub series: bool,
    pub clock_trusted: bool,
    /// Changes with each boot of the system, not with each start of the gateway.
    pub system_boot: u32,
    /// The system's monotonic clock when the gateway's was 0, milliseconds.
    pub began_ms: i64,
}

impl Default for Setup {
    fn default() -> Self {
        let mut config = Config::default();
        config.gateway.id = GatewayId::Fixed("gw".into());
        // Commits are spread only where a test is about that.
        config.storage.bytes_per_day_budget = None;
        let store = StoreOptions {
            gateway_bytes_max: 8 << 20,
            journal_bytes: 256 << 10,
            backlog_bytes_max: 0,
            reserve_free: 0,
            ..StoreOptions::default()
        };
        Self {
            config,
            users: None,
            acl: None,
            allow_anonymous: true,
            seed: 1,
            store,
            series: false,
            clock_trusted: true,
            system_boot: 1,
            began_ms: 0,
        }
    }
}

impl Setup {
    pub fn with(change: impl FnOnce(&mut Self)) -> Self {
        let mut setup = Self::default();
        change(&mut setup);
        setup
    }

    /// With this ACL file.
    pub fn with_acl(text: &str) -> Self {
        Self::with(|setup| setup.acl = Some(Acl::parse(text.as_bytes()).expect("the rules are right")))
    }
}

/// What the store does with the batches it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flash {
    Works,
    /// A batch waits until [`World::persist`].
    Held,
    /// Every attempt meets the fault, until [`World::heal`].
    Fails(Fault),
}

/// One end of a connection.
struct Wire {
    id: ConnectionId,
    /// Sent by the client, not read by the gateway yet.
    unread: VecDeque<u8>,
    /// Sent by the gateway, not a whole packet yet.
    received: Vec<u8>,
    /// The client takes no more bytes.
    stalled: bool,
    /// Its CONNECT asked for version 5.
    five: bool,
    /// The first bytes that it sent.
    beginning: Vec<u8>,
}

/// See the module's head.
pub struct World {
    pub setup: Setup,
    pub now: Now,
    pub disk: SimDisk,
    pub gateway: Gateway,
    pub series: Option<Series>,
    store: Option<Store>,
    flash: Flash,
    under_way: Option<Batch>,
    backlog_requests: VecDeque<BacklogRequest>,
    /// Changes of the backlog wait while this is set.
    pub hold_backlog: bool,
    wires: BTreeMap<String, Wire>,
    lines: Vec<String>,
    /// A line for each connection, in place of the packets it is sent.
    pub counts_only: bool,
    /// Packets of version 5 are told with what every client hears, and with their reason strings.
    pub whole: bool,
    pub received: BTreeMap<String, u64>,
    pub recovery: RecoverySummary,
    /// Batches that the store has taken.
    pub batches: u64,
    /// What the last start found damaged.
    pub damage: Vec<String>,
    boots: u64,
    pub hold_passwords: bool,
    passwords: Vec<(ConnectionId, bool, Box<[u8]>)>,
}

impl Default for World {
    fn default() -> Self {
        Self::new(Setup::default())
    }
}

impl World {
    pub fn new(setup: Setup) -> Self {
        let disk = SimDisk::new(setup.seed);
        let now = Now { mono: BOOT, wall: BEGIN, wall_trusted: setup.clock_trusted };
        Self::start(setup, disk, now, 0)
    }

    /// A gateway on what is on `disk`.
    fn start(setup: Setup, disk: SimDisk, now: Now, boots: u64) -> Self {
        let (mut store, found) =
            Store::open(disk.disk(), setup.store.clone()).expect("the store always opens");
        let mut recovered = Recovered::new();
        if found.clean {
            recovered.stopped_cleanly();
        }
        let report = store.replay(&mut |place, kind, body| recovered.row(place, kind, body));
        let report = report.expect("the disk can be read");
        let seed = setup.seed.wrapping_add(boots);
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
            for (place, kind, body) in store.fetch_chunk(read).expect("the disk can be read").rows {
                recovered.chunk_row(number, place, kind, body);
            }
        }
        let usage = store.usage();
        let policy = broker_policy(&setup.config, usage.quota_bytes, usage.backlog_quota_bytes);
        let (mut broker, recovery) = recovered.finish(policy, seed, now, found.last_batch, found.boot);
        for damage in found.damage.iter().chain(&found.backlog_damage) {
            broker.report_damage(now, damage);
        }
        assert!(report.lost.is_empty() || !found.damage.is_empty(), "rows are lost only to damage");
        let series = setup.series.then(|| {
            let log = LogState {
                created: found.created,
                last_batch: found.last_batch,
                quota_bytes: store.usage().quota_bytes,
            };
            let start = Start {
                number: found.boot,
                system_boot: setup.system_boot,
                began_ms: setup.began_ms,
                estimate_ms: (!now.wall_trusted).then(|| now.wall_ahead_ms()),
            };
            Series::open(&setup.config, &disk, &mut broker, log, (now, start, seed))
        });
        let policy = GatewayPolicy::new(&setup.config, "gw".into());
        let (users, acl) = (setup.users.clone(), setup.acl.clone());
        let gateway = Gateway::new(policy, users, acl, broker, recovery, seed, now);
        let mut world = Self {
            setup,
            now,
            disk,
            gateway,
            series,
            store: Some(store),
            flash: Flash::Works,
            under_way: None,
            backlog_requests: VecDeque::new(),
            hold_backlog: false,
            wires: BTreeMap::new(),
            lines: Vec::new(),
            counts_only: false,
            whole: false,
            received: BTreeMap::new(),
            recovery,
            batches: 0,
            damage: found.damage.into_iter().chain(found.backlog_damage).collect(),
            boots,
            hold_passwords: false,
            passwords: Vec::new(),
        };
        world.settle();
        world
    }

    // What clients do.

    /// The client's connection is accepted; it sends nothing yet. False when the gateway refuses it.
    pub fn accept(&mut self, name: &str) -> bool {
        let accept =
            Accept { allow_anonymous: self.setup.allow_anonymous, peer: name.into(), ..Accept::default() };
        let Some(id) = self.gateway.accept(self.now, accept) else { return false };
        let wire = Wire {
            id,
            unread: VecDeque::new(),
            received: Vec::new(),
            stalled: false,
            five: false,
            beginning: Vec::new(),
        };
        assert!(self.wires.insert(name.into(), wire).is_none(), "{name} has a connection already");
        self.settle();
        true
    }

    /// The client sends a packet, in the notation of [`packet`]; it connects first if need be.
    pub fn send(&mut self, name: &str, text: &str) {
        self.queue(name, text);
        self.settle();
    }

    pub fn send_bytes(&mut self, name: &str, bytes: &[u8]) {
        self.queue_bytes(name, bytes);
        self.settle();
    }

    /// The client sends packets that arrive in one round with what others send before the next [`World::settle`].
    pub fn queue(&mut self, name: &str, text: &str) {
        let five = self.wires.get(name).is_some_and(|wire| wire.five);
        self.queue_bytes(name, &packet::encode_for(text, five));
    }

    fn queue_bytes(&mut self, name: &str, bytes: &[u8]) {
        if !self.wires.contains_key(name) {
            assert!(self.accept(name), "the gateway takes no more connections");
        }
        let wire = self.wires.get_mut(name).expect("the client is connected");
        let room = 16_usize.saturating_sub(wire.beginning.len());
        wire.beginning.extend(bytes.iter().take(room));
        wire.five = packet::begins_version5(&wire.beginning);
        wire.unread.extend(bytes);
    }

    /// The client's socket is closed or reset.
    pub fn reset(&mut self, name: &str) {
        let wire = self.wires.get(name).expect("the client is connected");
        self.gateway.peer_closed(self.now, wire.id);
        self.settle();
    }

    /// The client reads no more, until [`World::reads`].
    pub fn stall(&mut self, name: &str) {
        self.wires.get_mut(name).expect("the client is connected").stalled = true;
    }

    /// The client reads again.
    pub fn reads(&mut self, name: &str) {
        let wire = self.wires.get_mut(name).expect("the client is connected");
        wire.stalled = false;
        let id = wire.id;
        self.take_output(name, id, usize::MAX);
        self.settle();
    }

    /// A stalled client reads `count` bytes.
    pub fn reads_bytes(&mut self, name: &str, count: usize) {
        let id = self.wires.get(name).expect("the client is connected").id;
        self.take_output(name, id, count);
        self.settle();
    }

    /// The client is connected, as far as it knows.
    pub fn is_connected(&self, name: &str) -> bool {
        self.wires.contains_key(name)
    }

    /// Bytes that the client sent and the gateway has not read.
    pub fn unread(&self, name: &str) -> usize {
        self.wires.get(name).map_or(0, |wire| wire.unread.len())
    }

    pub fn connection(&self, name: &str) -> ConnectionId {
        self.wires.get(name).expect("the client is connected").id
    }

    /// The checks of passwords that waited are answered.
    pub fn answer_passwords(&mut self) {
        for (id, genuine, password) in std::mem::take(&mut self.passwords) {
            self.gateway.verified(self.now, id, genuine, &password);
        }
        self.settle();
    }

    // What the machine does.

    /// Time passes, from deadline to deadline.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now.mono + time;
        while let Some(at) = self.gateway.poll_timeout()
            && at <= end
        {
            self.step_to(at.max(self.now.mono));
            self.gateway.handle_timeout(self.now);
            self.settle();
        }
        self.step_to(end);
        self.settle();
    }

    fn step_to(&mut self, mono: Mono) {
        let step = mono.since(self.now.mono);
        self.now.wall.0 += u64::try_from(step.as_millis()).expect("steps are short");
        self.now.mono = mono;
    }

    /// The wall clock is set; the monotonic one goes on.
    pub fn step_wall(&mut self, by_ms: i64) {
        self.now.wall.0 = self.now.wall.0.saturating_add_signed(by_ms);
        self.settle();
    }

    /// Batches wait at the store from now on, unless it fails.
    pub fn hold(&mut self) {
        if self.flash == Flash::Works {
            self.flash = Flash::Held;
        }
    }

    /// The store, while held, persists the batch it was given. False when there is none.
    pub fn persist(&mut self) -> bool {
        if self.flash != Flash::Held {
            return false;
        }
        let Some(batch) = self.under_way.take() else { return false };
        self.append(batch);
        self.settle();
        true
    }

    /// The store is not held any more.
    pub fn release(&mut self) {
        self.flash = Flash::Works;
        self.settle();
    }

    /// True when a batch waits at the store.
    pub fn has_batch(&self) -> bool {
        self.under_way.is_some()
    }

    /// Every write to the flash fails from now on.
    pub fn fail(&mut self, fault: Fault) {
        self.flash = Flash::Fails(fault);
    }

    /// The flash works again: the store recovers in place, as the daemon's thread does.
    pub fn heal(&mut self) {
        self.heal_to(Flash::Works);
    }

    /// The flash works again, and batches wait at the store.
    pub fn heal_held(&mut self) {
        self.heal_to(Flash::Held);
    }

    fn heal_to(&mut self, flash: Flash) {
        self.flash = flash;
        let store = self.store.as_mut().expect("the store is open");
        let intact = store.reopen().expect("the flash works again").is_some();
        let salvaged = (!intact).then(|| store.salvaged().expect("the flash works again"));
        self.gateway.store_condition(StoreCondition::Working);
        if let Some(salvaged) = salvaged {
            self.under_way = None;
            self.damage.clone_from(&salvaged.damage);
            self.gateway.write_anew(self.now, salvaged);
        }
        self.settle();
    }

    /// Power goes and comes back: what is on the disk is recovered. Every connection is gone, a batch that the store
    /// has not persisted too.
    pub fn cut_power(&mut self) {
        self.disk.cut_power();
        let disk = self.disk.reboot();
        self.restart_on(disk);
    }

    /// A clean stop and a start.
    pub fn stop(&mut self) {
        self.flash = Flash::Works;
        self.settle();
        self.gateway.shut_down(self.now);
        if self.series.is_some() {
            self.gateway.want_series_flush();
        }
        self.settle();
        while let Some(batch) = self.gateway.close_batch_now() {
            self.append(batch);
            self.settle();
        }
        self.store.take().expect("the store is open").close(None).expect("the disk works");
        if let Some(series) = self.series.take() {
            series.store.close().expect("the disk works");
        }
        let disk = self.disk.clone();
        self.restart_on(disk);
    }

    /// A start on another disk.
    pub fn restart_on(&mut self, disk: SimDisk) {
        let now = Now { mono: BOOT, ..self.now };
        let mut next = Self::start(self.setup.clone(), disk, now, self.boots + 1);
        next.lines.splice(0..0, std::mem::take(&mut self.lines));
        next.counts_only = self.counts_only;
        next.whole = self.whole;
        *self = next;
    }

    // What came of it.

    /// What the gateway sent since this was last asked: lines in order, of one round by name.
    pub fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Puts lines back, to be asked for later.
    pub fn put_lines(&mut self, lines: Vec<String>) {
        self.lines.splice(0..0, lines);
    }

    /// The lines of one client since lines were last asked for, without its name; those of others are dropped.
    pub fn lines_of(&mut self, name: &str) -> Vec<String> {
        let prefix = format!("< {name} ");
        self.lines().iter().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
    }

    /// A figure of the gateway's status by its path, `flash.elided`.
    pub fn figure(&self, path: &str) -> u64 {
        let status = self.gateway.status(self.now);
        let pointer = format!("/{}", path.replace('.', "/"));
        status
            .pointer(&pointer)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or_else(|| panic!("no figure {path}"))
    }

    /// Rounds until nothing moves.
    pub fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut moved = self.read();
            moved |= self.round();
            moved |= self.serve_store();
            if self.gateway.poll_timeout().is_some_and(|at| at <= self.now.mono) {
                self.gateway.handle_timeout(self.now);
                moved |= self.round();
            }
            if !moved && !self.gateway.has_output() {
                return;
            }
        }
        panic!("the gateway spins");
    }

    /// Hands over what clients sent, as far as the gateway reads.
    fn read(&mut self) -> bool {
        let mut moved = false;
        for wire in self.wires.values_mut() {
            while !wire.unread.is_empty() && self.gateway.wants_read(wire.id) {
                let count = wire.unread.len().min(READ_BYTES_MAX);
                let bytes: Vec<u8> = wire.unread.drain(..count).collect();
                self.gateway.receive(self.now, wire.id, &bytes);
                moved = true;
            }
        }
        moved
    }

    /// Closes the batch and sends.
    fn round(&mut self) -> bool {
        let mut moved = false;
        if let Some(batch) = self.gateway.close_batch(self.now) {
            assert!(self.under_way.replace(batch).is_none(), "one batch at a time");
            moved = true;
        }
        while let Some(request) = self.gateway.backlog_request(self.now) {
            self.backlog_requests.push_back(request);
            moved = true;
        }
        if let Some(series) = &mut self.series {
            moved |= series.serve(&mut self.gateway, self.now);
        }
        loop {
            moved |= self.flush();
            let Some(output) = self.gateway.poll_output() else { return moved };
            self.act(output);
            moved = true;
        }
    }

    /// Sends what connections have to send, in the order of the clients' names.
    fn flush(&mut self) -> bool {
        let mut dirty = BTreeSet::new();
        while let Some(id) = self.gateway.poll_dirty() {
            dirty.insert(id);
        }
        let ready = self.wires.iter().filter(|(_, wire)| !wire.stalled && dirty.contains(&wire.id));
        let names: Vec<_> = ready.map(|(name, wire)| (name.clone(), wire.id)).collect();
        let mut moved = false;
        for (name, id) in names {
            moved |= self.take_output(&name, id, usize::MAX);
        }
        moved
    }

    /// Takes up to `most` bytes of a connection's output. True when there were any.
    fn take_output(&mut self, name: &str, id: ConnectionId, most: usize) -> bool {
        let mut left = most;
        let mut moved = false;
        loop {
            let mut slices = [IoSlice::new(&[]); 4];
            let Some(output) = self.gateway.output(id) else { return moved };
            let filled = output.slices(&mut slices);
            let all: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
            let count = all.len().min(left);
            if count == 0 {
                return moved;
            }
            self.gateway.sent(self.now, id, count);
            left -= count;
            moved = true;
            let wire = self.wires.get_mut(name).expect("the client is connected");
            wire.received.extend_from_slice(&all[..count]);
            let five = wire.five.then_some(self.whole);
            for text in packet::decode_for(&mut wire.received, five) {
                *self.received.entry(name.into()).or_default() += 1;
                if !self.counts_only {
                    self.lines.push(format!("< {name} {text}"));
                }
            }
        }
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::VerifyPassword { connection, challenge, password } => {
                let genuine = challenge.verify(&password);
                if self.hold_passwords {
                    self.passwords.push((connection, genuine, password));
                } else {
                    self.gateway.verified(self.now, connection, genuine, &password);
                }
            }
            Output::Close { connection, end } => self.close(connection, &end),
            Output::Read { .. } | Output::Joined { .. } | Output::Kept { .. } | Output::LockedOut { .. } => {}
        }
    }

    fn close(&mut self, id: ConnectionId, end: &End) {
        let name = self.wires.iter().find(|(_, wire)| wire.id == id).map(|(name, _)| name.clone());
        if let Some(name) = name {
            if !self.wires[&name].stalled && !end.is_peer_closed() {
                self.take_output(&name, id, usize::MAX);
            }
            self.wires.remove(&name);
            self.lines.push(format!("< {name} closed {}", end.name()));
        }
        self.gateway.remove(id);
    }

    fn serve_store(&mut self) -> bool {
        let served = self.serve_backlog();
        served | self.serve_batch()
    }

    /// Does what is asked of the backlog. True when something was.
    fn serve_backlog(&mut self) -> bool {
        if self.flash != Flash::Works || self.hold_backlog {
            return false;
        }
        let Some(request) = self.backlog_requests.pop_front() else { return false };
        let store = self.store.as_mut().expect("the store is open");
        match request {
            BacklogRequest::Change(change) => {
                let changed = store.change_backlog(&change).ok();
                if self.disk.power_is_off() {
                    self.flash = Flash::Held;
                    return false;
                }
                self.gateway.backlog_changed(self.now, changed);
            }
            BacklogRequest::Read(read) => {
                let rows = store.fetch_chunk(read).ok();
                self.gateway.backlog_read(self.now, rows);
            }
        }
        true
    }

    fn serve_batch(&mut self) -> bool {
        match self.flash {
            Flash::Held => false,
            Flash::Works => match self.under_way.take() {
                Some(batch) => {
                    self.append(batch);
                    true
                }
                None => false,
            },
            Flash::Fails(fault) => self.fail_batch(fault),
        }
    }

    /// The store has the batch on flash, and says so.
    fn append(&mut self, batch: Batch) {
        let persisted = match self.store.as_mut().expect("the store is open").append(batch) {
            Err(_) if self.disk.power_is_off() => {
                // The machine is dead; what clients still send reaches nobody.
                self.flash = Flash::Held;
                return;
            }
            persisted => persisted.expect("the disk takes it"),
        };
        self.batches += 1;
        self.gateway.persisted(self.now, persisted);
        // The batch that was filled meanwhile, and what is due now.
        self.round();
    }

    /// The store tries in vain. True when it tried.
    fn fail_batch(&mut self, fault: Fault) -> bool {
        let Some(batch) = &self.under_way else { return false };
        let store = self.store.as_mut().expect("the store is open");
        if !store.is_open() {
            return false;
        }
        self.disk.fail_at(self.disk.operations(), fault);
        let error = store.append(batch.clone()).expect_err("the disk fails");
        self.gateway.store_condition(StoreCondition::Failing(error.to_string()));
        true
    }
}
