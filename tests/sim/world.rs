//! One run: clients, connections, the machine, and what befalls them, all from one seed.

use std::collections::{BTreeMap, VecDeque};

use gatewayd::broker::Policy;
use gatewayd::gateway::Output;
use gatewayd::ids::ConnectionId;
use gatewayd::random::Random;
use gatewayd::time::{Mono, Now, Wall};

use crate::amqp::AmqpClient;
use crate::checker;
use crate::client::Client;
use crate::disk::SimDisk;
use crate::machine::{Machine, Snapshot, StartError, Writing};
use crate::mistakes::Mistake;
use crate::model::{Check, Model};
use crate::network::Link;
use crate::plan::{GRAVE, Plan, QUEUES};
use crate::queues::QueueState;
use crate::trace::Trace;
use crate::wills::Wills;

/// What a run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    pub trace_hash: u64,
    pub events: u64,
    pub steps: u64,
    pub power_cuts: u64,
    pub kills: u64,
    pub clean_stops: u64,
    pub faults: u64,
    /// Runs that ended early: a file was damaged and the power went before memory was written again.
    pub given_up: u64,
    pub messages: u64,
    pub deliveries: u64,
    pub amqp_deliveries: u64,
    pub batches: u64,
    pub lost: u64,
    /// Messages that needed no flash at all.
    pub elided: u64,
    /// Damaged files that were written anew from memory.
    pub written_anew: u64,
    /// Chunks that were moved to the backlog, and read back.
    pub moved: u64,
    pub read_back: u64,
}

impl Outcome {
    /// Adds another run's figures.
    pub const fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.steps += other.steps;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.faults += other.faults;
        self.given_up += other.given_up;
        self.clean_stops += other.clean_stops;
        self.messages += other.messages;
        self.deliveries += other.deliveries;
        self.amqp_deliveries += other.amqp_deliveries;
        self.batches += other.batches;
        self.lost += other.lost;
        self.elided += other.elided;
        self.written_anew += other.written_anew;
        self.moved += other.moved;
        self.read_back += other.read_back;
    }
}

pub struct World {
    pub plan: Plan,
    pub random: Random,
    pub trace: Trace,
    pub model: Model,
    pub clients: Vec<Client>,
    pub amqp: Vec<AmqpClient>,
    pub links: BTreeMap<u64, Link>,
    pub machine: Machine,
    pub policy: Policy,
    pub wills: Wills,
    pub now: Now,
    /// Time that has passed in the world, power or not, microseconds.
    pub passed_us: u64,
    /// How far the wall clock is off, milliseconds, while nobody trusts it.
    pub wall_off_ms: i64,
    pub outcome: Outcome,
    pub next_link: u64,
    /// What the gateway asked for and the next round does.
    pub outputs: VecDeque<Output>,
    pub full_until: u64,
    given_up: bool,
    /// A gateway call was made, and no round since.
    pub kicked: bool,
    /// The narrowest bound that any queue had.
    pub messages_max_least: u32,
}

/// The world's time when a run begins, milliseconds since 1970.
const WALL_BEGAN_MS: u64 = 1_791_700_000_000;

/// Runs a seed to its end.
pub fn run(seed: u64, mistake: Option<Mistake>, shown: bool) -> Result<Outcome, String> {
    let mut random = Random::new(seed);
    let mut plan = Plan::of(&mut random, Random::new(!seed).below(3) == 0);
    plan.mistake = mistake;
    if mistake == Some(Mistake::IgnoreWriteErrors) {
        plan.fault_one_in = 40;
    }
    let mut trace = Trace::new(shown);
    trace.note(format_args!("seed {seed} {plan:?}"));
    let now = Now { mono: Mono(5_000_000), wall: Wall(WALL_BEGAN_MS), wall_trusted: true };
    let disk = SimDisk::new(random.next());
    let policy = plan.policy.clone();
    let machine = Machine::start(disk, &plan, &policy, random.next(), now)
        .map_err(|(_, error)| format!("the first start failed: {error:?}"))?;
    let clients = (0..plan.clients.len()).map(|number| Client::new(number, plan.inflight_max)).collect();
    let amqp = plan.amqp.iter().cloned().enumerate();
    let amqp: Vec<_> = amqp.map(|(number, profile)| AmqpClient::new(number, profile)).collect();
    let mut model = Model::new(plan.clients.len());
    for (queue, name) in QUEUES.iter().enumerate().take(plan.queues) {
        let consumers = amqp.iter().filter(|client| client.profile.consumes.contains(&queue)).count();
        model.queues.push(QueueState::new(name, consumers == 1));
    }
    if plan.buries {
        model.queues.push(QueueState::new(GRAVE, true));
    }
    let mut world = World {
        model,
        clients,
        amqp,
        links: BTreeMap::new(),
        machine,
        messages_max_least: policy.session_bounds.messages_max,
        policy,
        wills: Wills::default(),
        now,
        passed_us: 0,
        wall_off_ms: 0,
        outcome: Outcome::default(),
        next_link: 1,
        outputs: VecDeque::new(),
        full_until: 0,
        given_up: false,
        kicked: false,
        plan,
        random,
        trace,
    };
    let ended = world.all_rounds();
    ended.map_err(|wrong| format!("step {}: {wrong}", world.trace.step))?;
    world.outcome.trace_hash = world.trace.hash();
    world.outcome.events = world.trace.events();
    world.outcome.steps = world.trace.step;
    world.outcome.messages = world.model.messages.len() as u64;
    world.outcome.deliveries = world.clients.iter().map(|client| client.deliveries).sum();
    world.outcome.amqp_deliveries = world.amqp.iter().map(|client| client.deliveries).sum();
    Ok(world.outcome)
}

impl World {
    fn all_rounds(&mut self) -> Check {
        for _ in 0..self.plan.rounds {
            self.one_round()?;
            if self.given_up {
                break;
            }
        }
        if self.given_up || self.machine.suspect {
            self.outcome.given_up = 1;
            return Ok(());
        }
        crate::liveness::settle(self)
    }

    /// A stretch of work that ends with the machine's end and its next start.
    fn one_round(&mut self) -> Check {
        let clean = self.random.below(self.plan.clean_stop_one_in) == 0;
        let steps = 1 + self.random.below(self.plan.steps_per_round);
        let by_operation = !clean && self.random.below(3) != 0;
        let cut_from = self.random.below(steps);
        for step in 0..steps {
            if by_operation && step == cut_from {
                let operation =
                    self.machine.disk.operations() + self.random.below(self.plan.cut_operations_max);
                self.machine.disk.power_cut_at(operation);
            }
            if !self.one_step()? {
                break;
            }
        }
        if self.machine.disk.power_is_off() {
            return self.cut_power();
        }
        if clean {
            return self.stop_cleanly();
        }
        if self.random.below(self.plan.kill_one_in) == 0 { self.kill() } else { self.cut_power() }
    }

    /// One thing happens. False when the power went.
    fn one_step(&mut self) -> Result<bool, String> {
        self.trace.step += 1;
        let alive = match self.random.below(100) {
            0..30 => {
                self.disk_misfortune();
                crate::workload::act(self)?;
                true
            }
            30..55 => {
                self.carry_to_gateway();
                true
            }
            55..78 => self.carry_to_client().map(|()| true)?,
            78..90 => self.store_step()?,
            90..98 => {
                self.pass_time();
                true
            }
            _ => {
                self.lose_something();
                true
            }
        };
        if self.kicked && self.random.below(3) != 0 {
            self.round()?;
        }
        if alive {
            checker::always(self)?;
        }
        Ok(alive)
    }

    // The machine.

    /// What follows the handling of inputs: batch, outputs.
    pub fn round(&mut self) -> Check {
        self.kicked = false;
        self.machine.close_batch(&mut self.trace, self.now)?;
        self.machine.take_requests(self.now);
        self.machine.serve_series(self.now);
        loop {
            self.after_call();
            match self.outputs.pop_front() {
                None => return Ok(()),
                Some(Output::Close { connection, end }) => self.close(connection, end.name())?,
                Some(Output::Read { connection }) => {
                    if let Some(link) = self.links.values_mut().find(|link| link.connection == connection) {
                        link.parked = false;
                    }
                }
                Some(
                    Output::Joined { .. }
                    | Output::Kept { .. }
                    | Output::VerifyPassword { .. }
                    | Output::LockedOut { .. },
                ) => {}
            }
        }
    }

    /// The gateway closes a connection, having sent what it takes.
    fn close(&mut self, connection: ConnectionId, why: &str) -> Check {
        let Some(number) = self.number_of(connection) else {
            self.machine.gateway.remove(connection);
            return Ok(());
        };
        self.trace.note(format_args!("link {number} is closed: {why}"));
        let client = self.links.get(&number).and_then(|link| link.client);
        let timeouts = ["keep_alive_timeout", "connect_timeout", "heartbeat_timeout", "handshake_timeout"];
        if let Some(client) = client
            && !timeouts.contains(&why)
        {
            return Err(format!("{client:?}: its connection was closed: {why}"));
        }
        if self.random.below(2) == 0 {
            while self.carry_out(number, usize::MAX)? {}
        }
        self.forget_link(number);
        self.machine.gateway.remove(connection);
        Ok(())
    }

    fn store_step(&mut self) -> Result<bool, String> {
        if self.plan.ingest && self.random.below(4) == 0 {
            if self.random.below(6) == 0 {
                self.machine.gateway.want_series_flush();
            }
            return Ok(self.series_step());
        }
        if self.random.below(self.plan.store_delay_max) != 0 {
            return Ok(true);
        }
        if self.machine.failing {
            return self.machine.reopen(&mut self.trace, self.now);
        }
        if self.machine.has_requests() && self.random.below(2) == 0 {
            return self.serve_backlog();
        }
        match &self.machine.writing {
            Writing::Idle => {
                if self.machine.has_unwritten() {
                    return self.machine.write(&mut self.trace);
                }
                if self.random.below(8) == 0 {
                    return self.machine.idle(&mut self.trace);
                }
                Ok(true)
            }
            Writing::Handed(_) => self.machine.write(&mut self.trace),
            Writing::Written(_) => {
                self.report();
                Ok(true)
            }
        }
    }

    /// The backlog does its next step. False when the power went.
    pub fn serve_backlog(&mut self) -> Result<bool, String> {
        self.kicked = true;
        let alive = self.machine.serve_backlog(&mut self.trace, self.now)?;
        self.after_call();
        Ok(alive)
    }

    /// The series store does its next step. False when the power went.
    pub fn series_step(&mut self) -> bool {
        self.kicked = true;
        let alive = self.machine.series_step(&mut self.trace, self.now);
        self.after_call();
        alive
    }

    /// Every reading that was acknowledged can be queried.
    pub fn check_readings(&self) -> Check {
        let series = self.machine.series.as_ref();
        series.map_or(Ok(()), |series| series.check(&self.model, &self.machine.gateway))
    }

    /// The gateway learns that its batch is on flash.
    pub fn report(&mut self) {
        if let Some(closed_at) = self.machine.report(&mut self.trace, self.now) {
            self.wills.persisted(closed_at, &mut self.model);
            self.outcome.batches += 1;
            self.kicked = true;
        }
        self.after_call();
    }

    /// Time passes, and what is due happens.
    pub fn advance(&mut self, micros: u64) {
        self.passed_us += micros;
        self.model.time_passed(self.passed_us);
        self.tell_time(Mono(self.now.mono.0 + micros), self.now.wall_trusted);
        if self.machine.gateway.poll_timeout().is_some_and(|at| at <= self.now.mono) {
            self.machine.gateway.handle_timeout(self.now);
            self.kicked = true;
            self.after_call();
        }
    }

    /// Sets the clocks by the world's own time. A trusted wall clock is right.
    pub fn tell_time(&mut self, mono: Mono, wall_trusted: bool) {
        if wall_trusted {
            self.wall_off_ms = 0;
        }
        let wall = WALL_BEGAN_MS + self.passed_us / 1000;
        self.now = Now { mono, wall: Wall(wall.saturating_add_signed(self.wall_off_ms)), wall_trusted };
    }

    // Ends and starts.

    fn cut_power(&mut self) -> Check {
        self.outcome.power_cuts += 1;
        self.trace.note(format_args!("the power goes at operation {}", self.machine.disk.operations()));
        self.everybody_is_cut_off();
        let left = self.machine.cut();
        self.restart(left)
    }

    fn kill(&mut self) -> Check {
        self.outcome.kills += 1;
        self.trace.note(format_args!("the process is killed"));
        self.everybody_is_cut_off();
        let left = self.machine.kill(self.random.next());
        self.restart(left)
    }

    /// SIGTERM, and a new start.
    pub fn stop_cleanly(&mut self) -> Check {
        self.outcome.clean_stops += 1;
        self.trace.note(format_args!("a clean stop"));
        let left = self.machine.stop(&mut self.trace, self.now)?;
        self.everybody_is_cut_off();
        self.restart(left)
    }

    fn everybody_is_cut_off(&mut self) {
        let step = self.trace.step;
        self.outputs.clear();
        self.wills.machine_ended(step, &mut self.model);
        for number in self.links.keys().copied().collect::<Vec<_>>() {
            self.forget_link(number);
        }
        for client in &mut self.clients {
            client.gateway_restarted();
        }
        for queue in &mut self.model.queues {
            queue.machine_ended();
        }
    }

    fn restart(&mut self, (mut disk, snapshots): (SimDisk, Vec<Snapshot>)) -> Check {
        let status = self.machine.gateway.broker().status();
        self.outcome.lost += status.counters.lost;
        self.outcome.elided += status.elided;
        self.outcome.written_anew += self.machine.written_anew;
        self.outcome.moved += self.machine.moved;
        self.outcome.read_back += self.machine.read_back;
        self.full_until = 0;
        checker::note_drops(self);
        if self.machine.suspect || self.machine.damaged {
            // A start cannot tell a damaged last record from one that the power cut off; and what damage took from the
            // file was known to memory only until it was written anew.
            self.given_up = true;
            return Ok(());
        }
        if self.plan.narrowing && self.random.below(2) == 0 {
            let bounds = &mut self.policy.session_bounds;
            bounds.messages_max = (bounds.messages_max / 2).max(u32::from(self.plan.inflight_max) + 1);
            self.messages_max_least = self.messages_max_least.min(bounds.messages_max);
            self.trace.note(format_args!("queues are bound to {} messages", bounds.messages_max));
        }
        self.passed_us += self.random.below(100_000_000);
        self.model.time_passed(self.passed_us);
        self.model.starts();
        let began = Mono(self.random.below(20_000_000));
        let trusted = self.random.below(2) == 0;
        self.tell_time(began, trusted);
        loop {
            if self.random.below(4) == 0 {
                disk.power_cut_at(self.random.below(40));
            }
            match Machine::start(disk, &self.plan, &self.policy, self.random.next(), self.now) {
                Ok(machine) => {
                    self.machine = machine;
                    break;
                }
                Err((cut, StartError::PowerCut)) => {
                    self.trace.note(format_args!("the power goes during the start"));
                    disk = cut.reboot();
                }
                Err((left, StartError::Disk(why))) => {
                    // As long as the disk is full a start may need more than there is; then somebody makes room.
                    self.trace.note(format_args!("the start failed: {why}"));
                    disk = left;
                    if why.contains("no room on the flash") {
                        disk.set_capacity(u64::MAX);
                    }
                }
                Err((_, StartError::Damaged(why))) => {
                    // Two misfortunes at once: nothing can be promised any more.
                    let excused = self.outcome.faults > 0;
                    self.given_up = excused;
                    return if excused { Ok(()) } else { Err(format!("the start found damage: {why}")) };
                }
            }
        }
        let found = self.machine.store()?.last_batch();
        self.trace.note(format_args!("started after batch {found}: {:?}", self.machine.summary));
        self.kicked = true;
        self.machine.serve_series(self.now);
        self.check_readings()?;
        self.compare(&snapshots)
    }

    fn compare(&mut self, snapshots: &[Snapshot]) -> Check {
        let found = self.machine.store()?.last_batch();
        let Some(expected) = snapshots.iter().find(|snapshot| snapshot.batch == found) else {
            return Ok(());
        };
        checker::recovered(self, expected)
    }
}

pub fn crc32(bytes: &[u8]) -> u32 {
    // Seen in traces only: any mixing serves.
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
