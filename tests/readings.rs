//! Readings through the whole machine, from the publish to `series.redb`: what an acknowledgement promises, what an
//! interval does, power cuts in between, and times that were estimated first.

#![expect(clippy::print_stderr, reason = "the figures are what one test is for")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use gatewayd::config::Collection;
use gatewayd::ingest::route::{Durability, Filter, Route};
use gatewayd::store::StoreOptions;
use gatewayd::time::{Mono, Wall};

use support::disk::{Fault, Random};
use support::driver::{Setup, World};

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(5);
/// A batch goes to the flash within this once it is due.
const MOMENT: Duration = Duration::from_millis(100);

fn route(name: &str, filter: &str, durability: Durability) -> Route {
    Route {
        name: name.to_owned(),
        filters: vec![Filter::parse(filter).unwrap()],
        collection: "readings".to_owned(),
        tags: BTreeMap::new(),
        topic_regex: None,
        durability,
    }
}

/// Readings on `a/#` are acknowledged once they are on flash, those on `b/#` are kept every five seconds.
fn setup(seed: u64) -> Setup {
    Setup::with(|setup| {
        setup.config.routes =
            vec![route("safe", "a/#", Durability::Ack), route("quick", "b/#", Durability::Every(INTERVAL))];
        setup.seed = seed;
        setup.series = true;
    })
}

fn connect(world: &mut World) {
    world.send("p", "CONNECT client=p clean=1");
}

fn publish(world: &mut World, topic: &str, qos: u64, number: u64) {
    let id = if qos > 0 { format!(" id={}", number % 60_000 + 1) } else { String::new() };
    world.send("p", &format!("PUBLISH topic={topic} qos={qos}{id} payload=\"{{\\\"n\\\": {number}}}\""));
    if qos == 2 {
        world.send("p", &format!("PUBREL id={}", number % 60_000 + 1));
    }
}

/// How often each number is there.
fn found(world: &World) -> BTreeMap<u64, usize> {
    let mut found = BTreeMap::new();
    for reading in world.series.as_ref().unwrap().readings("readings") {
        *found.entry(reading["n"].as_u64().unwrap()).or_default() += 1;
    }
    found
}

fn numbers(world: &World) -> Vec<u64> {
    found(world).into_keys().collect()
}

#[test]
fn a_reading_is_safe_when_its_route_says_so() {
    let mut world = World::new(setup(1));
    connect(&mut world);
    publish(&mut world, "a/x", 1, 1);
    publish(&mut world, "b/x", 1, 2);
    // Both are acknowledged and both are seen; one is on flash.
    assert_eq!(world.lines_of("p"), ["CONNACK present=0 code=0", "PUBACK id=2", "PUBACK id=3"]);
    assert_eq!(numbers(&world), [1, 2]);
    world.cut_power();
    assert_eq!(numbers(&world), [1]);
    connect(&mut world);
    publish(&mut world, "b/x", 1, 3);
    world.pass(INTERVAL);
    publish(&mut world, "b/x", 1, 4);
    world.pass(INTERVAL - SECOND);
    world.cut_power();
    assert_eq!(numbers(&world), [1, 3], "kept when the interval was over");
    // A clean stop loses nothing.
    connect(&mut world);
    publish(&mut world, "b/x", 0, 5);
    world.stop();
    assert_eq!(numbers(&world), [1, 3, 5]);
}

/// A message may expire; the reading that it became does not, and takes no other with it.
#[test]
fn readings_of_messages_that_expire_stay() {
    let mut world = World::new(setup(3));
    world.send("p", "CONNECT version=5 client=p");
    let expires = "PUBLISH topic=a/x qos=1 id=1 message_expiry=5 payload=\"{\\\"n\\\": 1}\"";
    world.send("p", expires);
    publish(&mut world, "a/x", 1, 2);
    world.cut_power();
    world.pass(Duration::from_secs(90));
    assert_eq!(numbers(&world), [1, 2]);
    world.cut_power();
    assert_eq!(found(&world), BTreeMap::from([(1, 1), (2, 1)]));
}

/// The row log is damaged and written anew while a flush is under way: the rows get other keys than those that the flush
/// notes as stored.
#[test]
fn readings_are_there_once_when_their_rows_were_written_anew_during_a_flush() {
    for stops in [false, true] {
        let mut world = World::new(setup(2));
        connect(&mut world);
        publish(&mut world, "a/x", 1, 1);
        publish(&mut world, "b/x", 1, 2);
        world.series.as_mut().unwrap().held = true;
        world.pass(Duration::from_secs(61));
        world.fail(Fault::Io);
        publish(&mut world, "a/x", 1, 3);
        for offset in 0..64 {
            world.disk.flip("gateway.redb", offset, 0x5a);
        }
        world.heal();
        assert!(!world.damage.is_empty(), "it was found damaged");
        world.series.as_mut().unwrap().held = false;
        world.settle();
        if stops {
            world.stop();
        } else {
            world.cut_power();
        }
        assert_eq!(found(&world), BTreeMap::from([(1, 1), (2, 1), (3, 1)]), "after a clean stop: {stops}");
    }
}

/// Retries of a flush come when they are due, also when something comes each second.
#[test]
fn a_flush_that_failed_is_tried_again_whatever_comes() {
    let mut world = World::new(setup(7));
    connect(&mut world);
    let mut sent = 0;
    let mut one = |world: &mut World| {
        publish(world, "a/x", 1, sent);
        world.pass(SECOND);
        sent += 1;
        sent
    };
    world.series.as_mut().unwrap().refuses = true;
    for _ in 0..120 {
        one(&mut world);
    }
    assert_eq!(world.gateway.series_failure(), Some("held"));
    world.series.as_mut().unwrap().refuses = false;
    let (mut seconds, mut sent) = (0, 0);
    while world.gateway.series_failure().is_some() {
        seconds += 1;
        assert!(seconds <= 11, "it is not tried again");
        sent = one(&mut world);
    }
    assert!(world.series.as_ref().unwrap().store.pending() < 10);
    world.cut_power();
    assert_eq!(found(&world), (0..sent).map(|number| (number, 1)).collect());
}

/// What the window's bound drops while flushes fail is not kept in memory, and what is told to be lost is lost.
#[test]
fn losses_while_flushes_fail_are_forgotten_and_true() {
    for held in [false, true] {
        let mut setup = setup(8);
        setup.store = StoreOptions { reserve_free: 0, gateway_bytes_max: 2 << 20, ..StoreOptions::default() };
        let mut world = World::new(setup);
        connect(&mut world);
        world.series.as_mut().unwrap().refuses = true;
        let filling = "x".repeat(1000);
        for number in 0..3000u64 {
            let topic = if number % 3 == 0 { "b/x" } else { "a/x" };
            let payload = format!("{{\\\"n\\\": {number}, \\\"f\\\": \\\"{filling}\\\"}}");
            let id = number + 1;
            world.send("p", &format!("PUBLISH topic={topic} qos=1 id={id} payload=\"{payload}\""));
            if number % 10 == 0 {
                world.pass(MOMENT);
            }
            if number == 2800 {
                // One that is under way for a while, and fails in the end or not.
                world.series.as_mut().unwrap().held = held;
            }
        }
        world.pass(SECOND);
        let pending = world.series.as_ref().unwrap().store.pending();
        let waiting: u32 = world
            .gateway
            .broker()
            .collections()
            .map(|(index, _)| world.gateway.broker().unsettled_readings(index).0)
            .sum();
        assert!(waiting < 1500, "{waiting}");
        assert!(pending <= waiting as usize + 20, "{pending} in memory, {waiting} in the window");
        let series = world.series.as_mut().unwrap();
        (series.refuses, series.held) = (false, false);
        world.settle();
        world.pass(Duration::from_secs(11));
        assert_eq!(world.gateway.series_failure(), None);
        let found = found(&world);
        assert!(found.values().all(|count| *count == 1));
        let lost: u64 = world.gateway.broker().loss_receipts().map(|receipt| receipt.messages).sum();
        assert_eq!(found.len() as u64 + lost, 3000, "{lost} are told to be lost");
    }
}

/// Publishes at random, and knows what must be there.
struct Plant {
    world: World,
    random: Random,
    /// By number: from when on it may not be lost any more.
    sent: BTreeMap<u64, Mono>,
    next: u64,
}

impl Plant {
    fn new(seed: u64) -> Self {
        let mut world = World::new(setup(seed));
        // Rows of some readings are written for this session before the collection needs them, or never.
        world.send("s", "CONNECT client=s clean=0");
        world.send("s", "SUBSCRIBE id=1 filter=b/0/# qos=1");
        connect(&mut world);
        Self { world, random: Random::new(seed), sent: BTreeMap::new(), next: 0 }
    }

    fn publish(&mut self) {
        let (qos, is_safe) = (self.random.below(3), self.random.one_in(2));
        let topic = format!("{}/{}/t", if is_safe { 'a' } else { 'b' }, self.random.below(3));
        publish(&mut self.world, &topic, qos, self.next);
        let grace = match (is_safe, qos) {
            (true, 0) => SECOND + MOMENT,
            (true, _) => Duration::ZERO,
            (false, _) => INTERVAL + MOMENT,
        };
        self.sent.insert(self.next, self.world.now.mono + grace);
        self.next += 1;
    }

    /// The series store takes no flush for a while.
    fn hold(&mut self) {
        self.world.series.as_mut().unwrap().refuses = true;
        self.world.gateway.want_series_flush();
        self.world.settle();
    }

    fn release(&mut self) {
        self.world.series.as_mut().unwrap().refuses = false;
        self.world.gateway.want_series_flush();
        self.world.settle();
        self.world.pass(SECOND);
    }

    fn restart(&mut self) {
        let now = self.world.now.mono;
        if self.random.one_in(4) {
            self.release();
            self.world.stop();
            self.check();
        } else {
            self.world.cut_power();
            let found = found(&self.world);
            for (number, safe_from) in &self.sent {
                let count = found.get(number).copied().unwrap_or(0);
                assert!(count == 1 || count == 0 && *safe_from > now, "{number} is there {count} times");
            }
            self.sent.retain(|number, _| found.contains_key(number));
        }
        // What is on flash stays there.
        self.sent.values_mut().for_each(|safe_from| *safe_from = Mono(0));
        connect(&mut self.world);
    }

    fn check(&self) {
        let expected: BTreeMap<u64, usize> = self.sent.keys().map(|number| (*number, 1)).collect();
        assert_eq!(found(&self.world), expected);
    }
}

#[test]
fn readings_are_there_once_whatever_is_cut() {
    let mut flushes = 0;
    for seed in 0..40 {
        let mut plant = Plant::new(seed);
        for _ in 0..300 {
            match plant.random.below(20) {
                0..=11 => plant.publish(),
                12..=14 => {
                    let time = Duration::from_millis(plant.random.below(4000));
                    plant.world.pass(time);
                }
                15 => {
                    let time = Duration::from_secs(plant.random.below(90));
                    plant.world.pass(time);
                }
                16 if plant.random.one_in(3) => plant.hold(),
                16 => plant.release(),
                17 if plant.world.is_connected("s") => plant.world.reset("s"),
                18 if !plant.world.is_connected("s") => plant.world.send("s", "CONNECT client=s clean=0"),
                19 if plant.random.one_in(2) => plant.restart(),
                _ => {}
            }
            if plant.random.one_in(10) {
                plant.check();
            }
        }
        plant.check();
        flushes += plant.world.series.as_ref().unwrap().flushes;
    }
    assert!(flushes > 10, "{flushes}");
}

#[test]
fn estimated_times_are_marked_and_corrected_once_the_clock_is_trusted() {
    let mut setup = setup(3);
    setup.clock_trusted = false;
    let mut world = World::new(setup);
    // A board without a clock: it is 1970 until the time is known.
    let lost_ms = world.now.wall.0 - 5_000;
    world.setup.system_boot = 2;
    world.now.wall = Wall(5_000);
    world.cut_power();
    let truth = |world: &World| world.now.wall.0 + lost_ms;
    let mut expected = Vec::new();
    let one = |world: &mut World, expected: &mut Vec<u64>| {
        world.pass(SECOND * 7);
        if !world.is_connected("p") {
            connect(world);
        }
        let number = expected.len() as u64;
        expected.push(if world.now.wall_trusted { world.now.wall.0 } else { truth(world) });
        publish(world, "a/x", 1, number);
    };
    one(&mut world, &mut expected);
    one(&mut world, &mut expected);
    world.pass(SECOND * 70);
    one(&mut world, &mut expected);
    let marks = |world: &World| -> Vec<bool> {
        let readings = world.series.as_ref().unwrap().readings("readings");
        readings.iter().map(|reading| reading["_time"] == "estimated").collect()
    };
    assert_eq!(marks(&world), [true; 3], "two in a chunk, one on its way");
    // The gateway is killed and starts again; the system goes on.
    let system_ms = world.now.mono.0 / 1000;
    world.setup.began_ms = i64::try_from(system_ms).unwrap() - 5_000;
    world.cut_power();
    one(&mut world, &mut expected);
    assert_eq!(marks(&world), [true; 4]);
    // The clock is set.
    world.now.wall = Wall(truth(&world));
    world.now.wall_trusted = true;
    world.settle();
    one(&mut world, &mut expected);
    let times = |world: &World| -> Vec<u64> {
        let readings = world.series.as_ref().unwrap().readings("readings");
        readings.iter().map(|reading| reading["_received_at"].as_u64().unwrap()).collect()
    };
    assert_eq!(times(&world), expected);
    assert_eq!(marks(&world), [false; 5]);
    world.setup.began_ms = 0;
    world.setup.system_boot = 3;
    world.cut_power();
    assert_eq!(times(&world), expected, "as corrected, after a power cut too");
}

#[test]
fn a_collection_that_gets_nothing_any_more_is_trimmed() {
    let mut setup = setup(6);
    let day = Duration::from_secs(24 * 3600);
    let rules = Collection { retention: Some(day), ..Collection::default() };
    setup.config.collections.insert("readings".to_owned(), rules);
    let mut world = World::new(setup);
    connect(&mut world);
    publish(&mut world, "a/x", 1, 1);
    world.pass(day - SECOND);
    world.settle();
    assert_eq!(numbers(&world), [1]);
    // It was looked at within the last hour; the daemon has a round each minute.
    world.pass(day / 24 + SECOND);
    assert_eq!(numbers(&world), Vec::<u64>::new());
}

/// Bytes for each reading of the row log and of `series.redb` together, at one reading a second and series.
fn flash_bytes(series: u64, filter: char, minutes: u64) -> u64 {
    let mut setup = setup(4);
    setup.store = StoreOptions { reserve_free: 0, ..StoreOptions::default() };
    let mut world = World::new(setup);
    world.counts_only = true;
    connect(&mut world);
    let mut random = Random::new(5);
    let mut before = (0, 0);
    for second in 0..60 + minutes * 60 {
        if second == 60 {
            before = (world.disk.bytes_written(), world.series.as_ref().unwrap().flushes);
        }
        for n in 0..series {
            let value = 200 + random.below(90);
            let payload =
                format!("{{\\\"value\\\": {}.{}, \\\"unit\\\": \\\"C\\\"}}", value / 10, value % 10);
            world
                .send("p", &format!("PUBLISH topic={filter}/{n}/t qos=1 id={} payload=\"{payload}\"", n + 1));
        }
        world.pass(SECOND);
    }
    let readings = series * minutes * 60;
    let flushes = world.series.as_ref().unwrap().flushes - before.1;
    assert!(flushes.abs_diff(minutes) <= 1, "about one a minute: {flushes}");
    (world.disk.bytes_written() - before.0) / readings
}

#[test]
fn an_interval_costs_the_flash_a_part_of_what_acknowledgements_cost() {
    for (series, minutes, ack_max, interval_max) in
        [(1, 10, 5_500, 1_900), (10, 3, 4_800, 330), (100, 1, 4_800, 170)]
    {
        let ack = flash_bytes(series, 'a', minutes);
        let interval = flash_bytes(series, 'b', minutes);
        eprintln!("{series} series: {ack} bytes a reading acknowledged, {interval} with an interval");
        assert!(ack <= ack_max && interval <= interval_max, "{series}: {ack}, {interval}");
    }
}
