//! A life of random work and power cuts at any disk operation, with a model of what each queue holds.
//!
//! Whatever was on flash when the power went is there once, in order; what was settled and on flash does not come back; what
//! was under way is there or not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gatewayd::broker::{
    BindingArguments, Delivery, ExchangeIndex, QueueIndex, QueueSettings, Replay, SEVERAL_IDENTIFIERS,
    SessionTerms, Settlement, SubscribeOptions, Target,
};
use gatewayd::ids::ConnectionId;
use gatewayd::message::Assurance;
use gatewayd::store::StoreOptions;
use gatewayd::time::{Mono, Now};

use crate::disk::Random;
use crate::world::{ME, World, body, text};

const QUEUES: [&str; 3] = ["a", "b", "p"];
/// Sessions, with their connections. What comes for the second may expire, and its subscription has an identifier.
const SESSIONS: [(&str, ConnectionId); 2] = [("s", ConnectionId(71)), ("e", ConnectionId(72))];

/// A message's place: priority, the highest first, then number.
type Place = (u8, u64);

#[derive(Clone, Default)]
struct Model {
    /// What is on flash for sure, and what will be with the next batch.
    ready: BTreeMap<&'static str, BTreeSet<Place>>,
    in_flight: BTreeMap<&'static str, BTreeMap<u64, Place>>,
    /// Not yet on flash: may be gone after a cut.
    unsure: BTreeSet<(&'static str, Place)>,
    /// Settled, not yet on flash: may come back.
    unsettled: BTreeSet<(&'static str, Place)>,
    transient: BTreeSet<(&'static str, Place)>,
    /// When messages expire.
    deadlines: BTreeMap<u64, Mono>,
}

struct Life {
    world: World,
    model: Model,
    random: Random,
    next: u64,
    seed: u64,
    connected: BTreeSet<&'static str>,
    cuts: u64,
}

impl Life {
    fn queue(&self, name: &str) -> QueueIndex {
        self.world.broker.named_queue(name).unwrap()
    }

    fn prepare(world: &mut World) {
        for name in QUEUES {
            let priority_max = if name == "p" { 2 } else { 0 };
            world.declare(name, QueueSettings { priority_max, ..QueueSettings::default() });
        }
        world.subscribe("s", "f");
        let terms = SessionTerms::clean(false);
        let queue = world.broker.open_session(world.now, "e", terms, SESSIONS[1].1).unwrap().queue;
        let options = SubscribeOptions {
            identifier: 9,
            retain_as_published: true,
            ..SubscribeOptions::new(Assurance::ExactlyOnce)
        };
        world.broker.subscribe(world.now, queue, "e", options, Replay::Never);
        world.broker.detach(world.now, queue, SESSIONS[1].1);
        for name in ["a", "b"] {
            let queue = Target::Queue(world.broker.named_queue(name).unwrap());
            let shared = ExchangeIndex::SHARED;
            world.broker.bind(world.now, shared, queue, "f", BindingArguments::default()).unwrap();
        }
        world.keep().unwrap();
    }

    fn send(&mut self) {
        let longest = self.model.ready.values().map(BTreeSet::len).max().unwrap_or(0);
        if self.world.broker.is_congested() || longest > 2_500 {
            // Publishers are held back.
            return;
        }
        let number = self.next;
        self.next += 1;
        let assurance = if self.random.one_in(9) { Assurance::AtMostOnce } else { Assurance::AtLeastOnce };
        let bytes = if self.random.one_in(60) { 20_000 } else { 40 + self.random.below(400) };
        let name = *["a", "p", "f", "f", "e"].get(self.random.below(5) as usize).unwrap();
        let mut message = self.world.message(name, body(number, bytes as usize), assurance);
        if self.random.one_in(40) && name == "f" && assurance == Assurance::AtLeastOnce {
            // The last known value stays in the window; here and there one among what is cold.
            message.retain = true;
        }
        let mut takers: Vec<&'static str> = Vec::new();
        match name {
            "a" => takers.push("a"),
            "p" => {
                message.priority = self.random.below(4) as u8;
                takers.push("p");
            }
            "e" => {
                takers.push("e");
                let lasts_ms = [None, Some(20_000), Some(300_000), Some(3_000_000)];
                message.time_to_live_ms = lasts_ms[self.random.below(4) as usize];
                if let Some(lasts_ms) = message.time_to_live_ms {
                    let deadline = self.world.now.mono + Duration::from_millis(lasts_ms);
                    self.model.deadlines.insert(number, deadline);
                }
            }
            _ => takers.extend(["a", "b", "s"]),
        }
        let priority = if name == "p" { message.priority.min(2) } else { 0 };
        let place = (2 - priority, number);
        let exchange = if matches!(name, "f" | "e") { ExchangeIndex::SHARED } else { ExchangeIndex::DEFAULT };
        self.world.broker.publish_to(self.world.now, exchange, message, &[], Some(ME));
        for taker in takers {
            // Sessions keep no transient message while they are away, and get it at once else.
            let kept = !is_session(taker) || assurance == Assurance::AtLeastOnce;
            if kept {
                self.model.ready.entry(taker).or_default().insert(place);
                if assurance == Assurance::AtLeastOnce {
                    self.model.unsure.insert((taker, place));
                } else {
                    self.model.transient.insert((taker, place));
                }
            }
        }
    }

    fn take(&mut self, name: &'static str, number: u64, body: &str) {
        let first = self.model.pop_first(name, body, self.world.now);
        let found = first.map(|(_, number)| number.to_string());
        assert_eq!(found.as_deref(), Some(body), "seed {}: {name} hands over in order", self.seed);
        self.model.in_flight.entry(name).or_default().insert(number, first.unwrap());
    }

    /// Messages that sessions were handed.
    fn take_deliveries(&mut self) {
        for delivery in self.world.deliveries() {
            let session = SESSIONS.iter().find(|(_, connection)| delivery.connection == *connection);
            if let Some((name, _)) = session.filter(|_| delivery.tag != 0) {
                let body = text(&delivery.held.message.body);
                self.take(name, delivery.tag, &body);
                self.assert_marked(name, &delivery);
            }
        }
    }

    /// It has not expired, and comes with what its subscription asked for.
    fn assert_marked(&self, name: &str, delivery: &Delivery) {
        if name == "e" {
            let number = text(&delivery.held.message.body).parse::<u64>().unwrap();
            assert!(
                !self.model.is_long_over(number, self.world.now),
                "seed {}: {number} has expired",
                self.seed
            );
            let (queue, several) = (delivery.queue, delivery.identifier);
            let identifier = if several >= SEVERAL_IDENTIFIERS {
                self.world.broker.subscription_identifiers(queue, "e", several).sum()
            } else {
                several
            };
            assert_eq!((identifier, delivery.retained), (9, delivery.held.message.retain));
        }
    }

    fn get(&mut self, name: &'static str) {
        let queue = self.queue(name);
        let expected = !self.model.ready.entry(name).or_default().is_empty();
        match self.world.broker.get(self.world.now, queue, false) {
            Some(got) => {
                let body = text(&got.held.message.body);
                self.take(name, got.number, &body);
            }
            None if !expected => {}
            None => {
                let waits = self.world.broker.awaits_rows(queue);
                assert!(waits, "seed {}: {name} has a message", self.seed);
            }
        }
    }

    fn settle(&mut self, name: &'static str) {
        let in_flight = self.model.in_flight.entry(name).or_default();
        let at = self.random.below(in_flight.len().max(1) as u64) as usize;
        let Some((number, place)) = in_flight.iter().nth(at).map(|(number, place)| (*number, *place)) else {
            return;
        };
        in_flight.remove(&number);
        if is_session(name) {
            let queue = self.session(name);
            self.world.broker.accept(self.world.now, queue, number as u32);
            self.model.unsettled.insert((name, place));
            return;
        }
        let settlement = match self.random.below(8) {
            0 => Settlement::Requeue,
            1 => Settlement::Release,
            2 => Settlement::Discard,
            _ => Settlement::Accept,
        };
        let queue = self.queue(name);
        self.world.broker.settle_deliveries(self.world.now, std::iter::once((queue, number)), settlement);
        if matches!(settlement, Settlement::Requeue | Settlement::Release) {
            self.model.ready.entry(name).or_default().insert(place);
        } else {
            self.model.unsettled.insert((name, place));
        }
    }

    fn session(&mut self, name: &str) -> QueueIndex {
        let connection = connection_of(name);
        self.world
            .broker
            .open_session(self.world.now, name, SessionTerms::clean(false), connection)
            .unwrap()
            .queue
    }

    fn connect(&mut self, name: &'static str) {
        let connection = connection_of(name);
        let queue = self.session(name);
        if self.connected.remove(name) {
            // What is in flight stays so and comes again first.
            self.world.broker.detach(self.world.now, queue, connection);
            return;
        }
        self.connected.insert(name);
        self.world.broker.attach(self.world.now, queue, connection, 12);
        let mut again = self.model.in_flight.remove(name).unwrap_or_default();
        for delivery in self.world.deliveries().into_iter().filter(|d| d.connection == connection) {
            let body = text(&delivery.held.message.body);
            match again.remove(&delivery.tag) {
                Some(place) => {
                    assert_eq!(place.1.to_string(), body);
                    self.model.in_flight.entry(name).or_default().insert(delivery.tag, place);
                }
                None => self.take(name, delivery.tag, &body),
            }
        }
        assert!(again.is_empty(), "seed {}: what was in flight comes again", self.seed);
    }

    /// Everything is on flash.
    fn kept(&mut self) {
        self.model.unsure.clear();
        self.model.unsettled.clear();
    }

    fn step(&mut self) -> Result<(), gatewayd::store::StoreError> {
        match self.random.below(100) {
            0..=54 => {
                for _ in 0..self.random.below(12) {
                    self.send();
                }
            }
            55..=66 => {
                self.world.keep()?;
                self.kept();
            }
            67..=78 => {
                self.world.serve()?;
            }
            79..=83 => self.world.pass(Duration::from_millis(self.random.below(2_000))),
            84..=85 => self.world.pass(Duration::from_secs(self.random.below(400))),
            86..=91 => {
                let name = QUEUES[self.random.below(3) as usize];
                for _ in 0..self.random.below(60) {
                    self.get(name);
                }
            }
            92..=96 => {
                let name = ["a", "b", "p", "s", "e"][self.random.below(5) as usize];
                for _ in 0..self.random.below(50) {
                    self.settle(name);
                }
            }
            97 => {
                let (name, _) = SESSIONS[self.random.below(2) as usize];
                self.connect(name);
            }
            98 if self.random.one_in(12) => {
                let name = QUEUES[self.random.below(3) as usize];
                let queue = self.queue(name);
                let (count, _) = self.world.broker.purge_queue(self.world.now, queue);
                let ready = std::mem::take(self.model.ready.entry(name).or_default());
                assert_eq!(count, ready.len(), "seed {}: purged {name}", self.seed);
                self.model.unsettled.extend(ready.into_iter().map(|place| (name, place)));
            }
            _ => {}
        }
        self.take_deliveries();
        for name in QUEUES {
            let ready = self.model.ready.get(name).map_or(0, BTreeSet::len);
            let lost: Vec<_> = self.world.broker.loss_receipts().collect();
            assert_eq!(
                self.world.ready(self.queue(name)),
                ready,
                "seed {}: {name}'s count, lost: {lost:?}",
                self.seed
            );
        }
        Ok(())
    }

    /// The power is gone: what comes back is compared, and is the model from here on.
    fn cut(&mut self) {
        self.cuts += 1;
        let (now, bounds, options) = (self.world.now, self.world.bounds, self.world.options.clone());
        let mut disk = self.world.disk.reboot();
        self.world = loop {
            if self.random.one_in(3) {
                disk.power_cut_at(disk.operations() + self.random.below(30));
            }
            match World::start(disk.clone(), now, bounds, options.clone()) {
                Some(world) if !disk.power_is_off() => break world,
                _ => disk = disk.reboot(),
            }
        };
        disk.power_cut_at(u64::MAX);
        self.connected.clear();
        assert!(self.world.damage.is_empty(), "seed {}: {:?}", self.seed, self.world.damage);
        let model = std::mem::take(&mut self.model);
        // A second start on a copy of the disk is drained, to see what is there.
        let mut copy = World::start(disk.copy(7), now, bounds, options).unwrap();
        self.model.deadlines = model.deadlines.clone();
        for name in ["a", "b", "p", "s", "e"] {
            let mut known = model.ready.get(name).cloned().unwrap_or_default();
            known.extend(model.in_flight.get(name).into_iter().flatten().map(|(_, place)| *place));
            known.retain(|place| !model.transient.contains(&(name, *place)));
            let may = |place: &Place| {
                model.unsure.contains(&(name, *place)) || model.unsettled.contains(&(name, *place))
            };
            let found = self.found(&mut copy, name);
            let ordered: BTreeSet<Place> = found.iter().copied().collect();
            assert!(found.iter().eq(ordered.iter()), "seed {}: {name} is in order, none twice", self.seed);
            let sure = known.iter().filter(|place| !model.unsure.contains(&(name, **place)));
            for place in sure.filter(|place| !model.is_over(place.1, now)) {
                assert!(ordered.contains(place), "seed {}: {name} lost {place:?}", self.seed);
            }
            for place in &ordered {
                let expected = known.contains(place) || may(place);
                assert!(expected, "seed {}: {name} has {place:?} again", self.seed);
            }
            self.model.ready.insert(name, ordered);
        }
    }

    fn found(&self, copy: &mut World, name: &str) -> Vec<Place> {
        let place = |body: &str| body.parse::<u64>().unwrap();
        let mut found = Vec::new();
        if is_session(name) {
            let (terms, connection) = (SessionTerms::clean(false), connection_of(name));
            let queue = copy.broker.open_session(copy.now, name, terms, connection).unwrap().queue;
            copy.broker.attach(copy.now, queue, connection, 50);
            loop {
                copy.settle();
                let deliveries = copy.deliveries();
                if deliveries.is_empty() {
                    break;
                }
                for delivery in deliveries {
                    found.push((2, place(&text(&delivery.held.message.body))));
                    copy.broker.accept(copy.now, queue, delivery.tag as u32);
                }
            }
            return found;
        }
        let queue = copy.broker.named_queue(name).unwrap();
        let counted = copy.ready(queue);
        while let Some(got) = drain_one(copy, queue) {
            let priority = if name == "p" { got.1.min(2) } else { 0 };
            found.push((2 - priority, place(&got.0)));
        }
        assert_eq!(counted, found.len(), "seed {}: {name} counts what it has", self.seed);
        found
    }
}

impl Model {
    /// The next message of a queue, or the next but what has expired and may have gone.
    fn pop_first(&mut self, name: &'static str, body: &str, now: Now) -> Option<Place> {
        loop {
            let first = self.ready.entry(name).or_default().pop_first()?;
            if first.1.to_string() == body || !self.is_over(first.1, now) {
                return Some(first);
            }
        }
    }

    /// It expires at this moment, or has.
    fn is_over(&self, number: u64, now: Now) -> bool {
        self.deadlines.get(&number).is_some_and(|deadline| *deadline <= now.mono + ROUNDING)
    }

    /// It has expired for sure.
    fn is_long_over(&self, number: u64, now: Now) -> bool {
        self.deadlines.get(&number).is_some_and(|deadline| *deadline + ROUNDING < now.mono)
    }
}

/// Ages are told by the wall clock, in milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

fn is_session(name: &str) -> bool {
    SESSIONS.iter().any(|(session, _)| *session == name)
}

fn connection_of(name: &str) -> ConnectionId {
    SESSIONS.iter().find(|(session, _)| *session == name).unwrap().1
}

fn drain_one(world: &mut World, queue: QueueIndex) -> Option<(String, u8)> {
    for _ in 0..100 {
        if let Some(got) = world.broker.get(world.now, queue, true) {
            return Some((text(&got.held.message.body), got.held.message.priority));
        }
        if !world.broker.awaits_rows(queue) {
            return None;
        }
        world.settle();
    }
    panic!("it never comes");
}

fn life(seed: u64, cycles: u64) -> (u64, u64) {
    let mut random = Random::new(seed);
    let options = StoreOptions { backlog_bytes_max: 64 << 20, ..crate::world::options() };
    let mut world = World::with(random.next(), options, |_| {});
    Life::prepare(&mut world);
    let mut life =
        Life { world, model: Model::default(), random, next: 0, seed, connected: BTreeSet::new(), cuts: 0 };
    let mut moved = 0;
    for _ in 0..cycles {
        let at = life.world.disk.operations() + life.random.below(900);
        life.world.disk.power_cut_at(at);
        let mut steps = 0;
        while steps < 700 && life.step().is_ok() && !life.world.disk.power_is_off() {
            steps += 1;
        }
        life.world.disk.cut_power();
        moved += life.world.moved;
        life.cut();
    }
    (life.cuts, moved)
}

#[test]
fn nothing_is_lost_twice_or_out_of_order_over_power_cuts_at_any_operation() {
    let seeds: u64 = std::env::var("COLD_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    let first: u64 = std::env::var("COLD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let (mut cuts, mut moved) = (0, 0);
    for seed in first..first + seeds {
        let (more_cuts, more_moved) = life(seed, 8);
        cuts += more_cuts;
        moved += more_moved;
    }
    println!("{cuts} power cuts, {moved} chunks made");
    assert!(moved > 5 * seeds, "{moved} chunks");
}
