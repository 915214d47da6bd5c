//! Members of a share come and go at random, over power cuts: what was acknowledged reaches one of them.

use std::collections::BTreeSet;
use std::time::Duration;

use gatewayd::broker::{ExchangeIndex, Gate, QueueIndex, Replay, SessionTerms, SubscribeOptions};
use gatewayd::ids::ConnectionId;
use gatewayd::message::Assurance;
use gatewayd::store::{StoreError, StoreOptions};

use crate::disk::Random;
use crate::world::{ME, World, body, text};

/// Members, and whether their session ends with their connection.
const MEMBERS: [(&str, bool, ConnectionId); 4] = [
    ("a", false, ConnectionId(71)),
    ("b", false, ConnectionId(72)),
    ("c", false, ConnectionId(73)),
    ("m", true, ConnectionId(74)),
];

struct Life {
    world: World,
    random: Random,
    seed: u64,
    next: u64,
    /// Published, and not acknowledged to the publisher.
    waiting: Vec<(u64, Gate)>,
    /// Acknowledged to the publisher, and by no member.
    owed: BTreeSet<u64>,
    /// By a member, maybe before the publisher.
    accepted: BTreeSet<u64>,
    open: [Option<QueueIndex>; 4],
    /// Deliveries that were not answered: member, tag, number.
    held: Vec<(usize, u32, u64)>,
    moved: u64,
}

impl Life {
    fn connect(&mut self, member: usize) {
        let (name, clean, connection) = MEMBERS[member];
        let (now, broker) = (self.world.now, &mut self.world.broker);
        self.held.retain(|(holder, ..)| *holder != member);
        if let Some(queue) = self.open[member].take() {
            broker.detach(now, queue, connection);
            return;
        }
        let queue = broker.open_session(now, name, SessionTerms::clean(clean), connection).unwrap().queue;
        self.open[member] = Some(queue);
        let credit_max = 1 + self.random.below(40) as u32;
        broker.attach(now, queue, connection, credit_max);
        let options = SubscribeOptions::new(Assurance::AtLeastOnce);
        broker.subscribe(now, queue, "$share/g/t", options, Replay::Never);
        if member == 0 {
            broker.subscribe(now, queue, "own", options, Replay::Never);
        }
    }

    fn publish(&mut self) {
        if self.world.broker.is_congested() {
            return;
        }
        let bytes = 40 + self.random.below(600) as usize;
        let address = if self.random.one_in(4) { "own" } else { "t" };
        let message = self.world.message(address, body(self.next, bytes), Assurance::AtLeastOnce);
        let shared = ExchangeIndex::SHARED;
        let routed = self.world.broker.publish_to(self.world.now, shared, message, &[], Some(ME));
        // What is acknowledged at once nobody keeps.
        if routed.queues > 0 && !routed.gate.is_due(self.world.broker.persisted_batch()) {
            self.waiting.push((self.next, routed.gate));
        }
        self.next += 1;
    }

    fn take_deliveries(&mut self) {
        for delivery in self.world.deliveries() {
            let member = MEMBERS.iter().position(|(.., connection)| *connection == delivery.connection);
            let number = text(&delivery.held.message.body).parse().unwrap();
            self.held.push((member.unwrap(), delivery.tag as u32, number));
        }
    }

    fn accept(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.random.below(self.held.len() as u64) as usize;
        let (member, tag, number) = self.held.remove(at);
        if let Some(queue) = self.open[member] {
            self.world.broker.accept(self.world.now, queue, tag);
            self.accepted.insert(number);
            self.owed.remove(&number);
        }
    }

    fn note_acknowledged(&mut self) {
        let persisted = self.world.broker.persisted_batch();
        let (due, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|(_, gate)| gate.is_due(persisted));
        self.waiting = waiting;
        self.owed.extend(due.into_iter().map(|(number, _)| number).filter(|n| !self.accepted.contains(n)));
    }

    fn step(&mut self) -> Result<(), StoreError> {
        match self.random.below(100) {
            0..=44 => (0..self.random.below(30)).for_each(|_| self.publish()),
            45..=58 => self.world.keep()?,
            59..=72 => drop(self.world.serve()?),
            73..=76 => self.world.pass(Duration::from_millis(self.random.below(2_000))),
            77..=78 => self.world.pass(Duration::from_secs(self.random.below(400))),
            79..=93 => (0..self.random.below(60)).for_each(|_| self.accept()),
            _ => {
                let member = self.random.below(4) as usize;
                self.connect(member);
            }
        }
        self.note_acknowledged();
        self.take_deliveries();
        Ok(())
    }

    fn cut(&mut self) {
        self.world.disk.cut_power();
        self.moved += self.world.moved;
        let disk = self.world.disk.reboot();
        disk.power_cut_at(u64::MAX);
        let options = self.world.options.clone();
        self.world = World::start(disk, self.world.now, self.world.bounds, options).unwrap();
        self.open = [None; 4];
        self.held.clear();
        self.waiting.clear();
    }

    /// Everybody comes and takes what there is.
    fn drain(&mut self) {
        for member in 0..3 {
            self.connect(member);
        }
        loop {
            self.world.settle();
            self.take_deliveries();
            if self.held.is_empty() {
                break;
            }
            while !self.held.is_empty() {
                self.accept();
            }
        }
        let lost: Vec<_> = self.world.broker.loss_receipts().cloned().collect();
        assert!(lost.is_empty(), "seed {}: {lost:?}", self.seed);
        assert!(self.owed.is_empty(), "seed {}: {:?} never came", self.seed, self.owed);
    }
}

fn life(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    // Room for what the three keep in memory for clients that are there, and for dead rows.
    let options =
        StoreOptions { gateway_bytes_max: 3 << 20, backlog_bytes_max: 64 << 20, ..crate::world::options() };
    let world = World::with(random.next(), options, |bounds| bounds.messages_max = 5_000);
    let mut life = Life {
        world,
        random,
        seed,
        next: 0,
        waiting: Vec::new(),
        owed: BTreeSet::new(),
        accepted: BTreeSet::new(),
        open: [None; 4],
        held: Vec::new(),
        moved: 0,
    };
    (0..3).for_each(|member| life.connect(member));
    life.world.keep().unwrap();
    for _ in 0..5 {
        let at = life.world.disk.operations() + life.random.below(700);
        life.world.disk.power_cut_at(at);
        let mut steps = 0;
        while steps < 500 && life.step().is_ok() && !life.world.disk.power_is_off() {
            steps += 1;
        }
        life.cut();
    }
    life.drain();
    life.moved
}

#[test]
fn what_was_acknowledged_reaches_a_member() {
    let seeds: u64 = std::env::var("SHARE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(6);
    let first: u64 = std::env::var("SHARE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let moved: u64 = (first..first + seeds).map(life).sum();
    println!("{moved} chunks");
    assert!(moved > seeds, "{moved} chunks");
}
