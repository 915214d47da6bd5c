//! What a seed decides before a run begins: who takes part, the bounds, and which misfortunes there are.

use std::time::Duration;

use gatewayd::broker::{Overflow, Policy, QueueBounds};
use gatewayd::random::Random;

use crate::mistakes::Mistake;
use crate::queues::Exchange;

/// The topics of a run.
pub const TOPICS: [&str; 6] = ["a/x", "a/y", "b/x", "b/y/z", "c", "a"];

/// The filters that clients subscribe to; they overlap.
pub const FILTERS: [&str; 9] = ["a/#", "+/x", "a/+", "#", "b/y/z", "a/x", "+/+/z", "c", "b/#"];

/// What a client does.
#[derive(Clone, Debug)]
pub struct Profile {
    pub durable: bool,
    pub publishes: bool,
    pub subscribes: bool,
    /// Its filters, as indexes into [`FILTERS`].
    pub filters: Vec<usize>,
    /// Weight of staying away: it connects once in so many chances.
    pub absence: u64,
}

/// What an AMQP client does.
#[derive(Clone, Debug)]
pub struct AmqpProfile {
    pub publishes: bool,
    /// Queues that it consumes from.
    pub consumes: Vec<usize>,
    /// The bindings of every queue, which it makes sure of.
    pub bindings: Vec<Vec<(Exchange, &'static str)>>,
    /// 0: as many as the gateway allows.
    pub prefetch: u16,
    /// The prefetch counts for all its consumers together.
    pub global: bool,
    /// Publishes in transactions, else with confirms.
    pub transactional: bool,
    pub frame_max: u32,
    pub absence: u64,
    /// Rows of its queues may move to the backlog. What is known of a message's age then begins anew where the clock is not
    /// trusted.
    pub sees_cold: bool,
    /// See [`Plan::buries`].
    pub buries: bool,
}

/// Names of the queues of a run.
pub const QUEUES: [&str; 3] = ["jobs", "alarms", "archive"];

/// The queue that takes dead letters of the first one.
pub const GRAVE: &str = "grave";

/// Patterns that queues are bound to `amq.topic` with, and keys of the direct exchange.
pub const PATTERNS: [&str; 8] = ["a.#", "*.x", "#", "b.y.z", "#.z", "c", "a.*", "b.#"];
pub const KEYS: [&str; 3] = ["a.x", "b.y.z", "c"];

/// The course of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub clients: Vec<Profile>,
    pub amqp: Vec<AmqpProfile>,
    /// How many queues there are.
    pub queues: usize,
    /// Messages that die in the first queue go to one more queue, [`GRAVE`].
    pub buries: bool,
    /// One that nobody consumes from: it is asked for its messages one by one, and purged.
    pub polled: Option<usize>,
    pub rounds: u32,
    pub steps_per_round: u64,
    /// Ends of rounds, once in so many: by a clean stop, by a killed process. The rest are power cuts.
    pub clean_stop_one_in: u64,
    pub kill_one_in: u64,
    /// The disk fails an operation once in so many steps; 0 = never.
    pub fault_one_in: u64,
    /// The medium changes bytes, and an operation fails soon after, once in so many steps; 0 = never.
    pub damage_one_in: u64,
    /// The disk is full for a while once in so many steps; 0 = never.
    pub full_one_in: u64,
    /// Disk operations until the power goes, at most.
    pub cut_operations_max: u64,
    pub policy: Policy,
    pub inflight_max: u16,
    /// Some topics are those of readings.
    pub ingest: bool,
    pub retained: bool,
    pub wills: bool,
    pub wipes: bool,
    pub twins: bool,
    pub unsubscribes: bool,
    pub takeovers: bool,
    /// Clients speak MQTT 5, too.
    pub five: bool,
    /// Messages of MQTT 5 and AMQP expire, some of them.
    pub expires: bool,
    /// A message is large once in so many; 0 = never.
    pub large_one_in: u64,
    /// Weight of QoS 0, 1 and 2 in publishes.
    pub qos_weights: [u64; 3],
    pub gateway_bytes_max: u64,
    /// Rows that wait long move to a file of their own, which may grow to this; 0 = they do not.
    pub backlog_bytes_max: u64,
    pub journal_bytes: u64,
    /// A mistake of the driver, made on purpose.
    pub mistake: Option<Mistake>,
    /// The session's bounds become narrower after a restart.
    pub narrowing: bool,
    /// A batch waits for the store at least so long, and for its report as long again, in steps at most.
    pub store_delay_max: u64,
}

impl Plan {
    /// The plan of a seed. `buries`, from a sequence of its own, counts where there are queues.
    pub fn of(random: &mut Random, buries: bool) -> Self {
        let overflowing = random.below(3) == 0;
        let messages_max = if overflowing { 6 + below32(random, 12) } else { 4_096 };
        let bytes_max = if random.below(5) == 0 { 2_000 + random.below(20_000) } else { 16 << 20 };
        let inflight_max = 1 + u16::try_from(random.below(if overflowing { 4 } else { 12 })).unwrap_or(1);
        let clients = (0..3 + random.below(4)).map(|number| profile(random, number)).collect();
        let queues = usize::try_from(random.below(4)).unwrap_or(0);
        let mut amqp = if queues > 0 { amqp_profiles(random, queues) } else { Vec::new() };
        let session_bounds = QueueBounds { messages_max, bytes_max, overflow: Overflow::DropOldest };
        let large = random.below(3) == 0;
        let steps_more = if random.below(10) == 0 { 12_000 } else { 3_000 };
        let session_expiry_max = (random.below(5) == 0).then(|| Duration::from_secs(20 + random.below(200)));
        let flash_quota_bytes = if random.below(8) == 0 { 40_000 + random.below(80_000) } else { u64::MAX };
        let cold = random.below(2) == 0;
        let window = 6_000 << random.below(4);
        let flash_quota_bytes =
            if cold { flash_quota_bytes.min(window + random.below(window)) } else { flash_quota_bytes };
        amqp.iter_mut().for_each(|profile| profile.sees_cold = cold);
        let polled = queues.checked_sub(1).filter(|_| random.below(3) == 0);
        amqp.iter_mut().for_each(|profile| profile.consumes.retain(|queue| Some(*queue) != polled));
        let buries = buries && queues > 0;
        if buries {
            let digger = usize::try_from(random.below(amqp.len() as u64)).unwrap_or(0);
            if let Some(profile) = amqp.get_mut(digger) {
                profile.consumes.push(queues);
            }
            amqp.iter_mut().for_each(|profile| profile.buries = true);
        }
        let memory_max = if random.below(8) == 0 { 24_000 + random.below(60_000) } else { 128 << 20 };
        Self {
            clients,
            amqp,
            queues,
            buries,
            polled,
            rounds: 2 + below32(random, 5),
            steps_per_round: 300 + random.below(steps_more),
            clean_stop_one_in: 6,
            kill_one_in: 6,
            fault_one_in: if random.below(4) == 0 { 40 + random.below(400) } else { 0 },
            damage_one_in: if random.below(6) == 0 { 200 + random.below(400) } else { 0 },
            full_one_in: if random.below(6) == 0 { 300 + random.below(600) } else { 0 },
            cut_operations_max: 4 + random.below(120),
            policy: Policy {
                backlog_quota_bytes: 0,
                session_bounds,
                named_bounds: Vec::new(),
                queue_bounds: session_bounds,
                sessions_max: 64,
                queues_max: 64,
                session_expiry_max,
                retained_max: 10_000,
                retained_bytes_max: 8 << 20,
                elision_window: Duration::from_millis(if random.below(4) == 0 { 0 } else { 10 }),
                flash_quota_bytes,
                flash_bytes_per_day: if random.below(6) == 0 { Some(100 << 20) } else { None },
                memory_max,
            },
            inflight_max,
            ingest: random.below(2) == 0,
            retained: random.below(2) == 0,
            wills: random.below(2) == 0,
            wipes: random.below(2) == 0,
            twins: random.below(3) == 0,
            unsubscribes: random.below(2) == 0,
            takeovers: random.below(2) == 0,
            five: random.below(2) == 0,
            expires: random.below(3) == 0,
            large_one_in: if large { 4 + random.below(30) } else { 0 },
            qos_weights: [[1, 4, 4], [0, 1, 0], [0, 0, 1], [3, 3, 3], [1, 8, 1]]
                .get(usize::try_from(random.below(5)).unwrap_or(0))
                .copied()
                .unwrap_or([1, 1, 1]),
            gateway_bytes_max: 1 << 20 << random.below(2),
            backlog_bytes_max: if cold { 4 << 20 << random.below(2) } else { 0 },
            journal_bytes: 64 << 10,
            mistake: None,
            narrowing: overflowing && random.below(2) == 0,
            store_delay_max: [1, 3, 10]
                .get(usize::try_from(random.below(3)).unwrap_or(0))
                .copied()
                .unwrap_or(1),
        }
    }
}

fn profile(random: &mut Random, number: u64) -> Profile {
    // The first two make sure that somebody publishes and somebody has a session that lasts.
    let durable = number < 2 || random.below(3) != 0;
    let publishes = number == 0 || random.below(2) == 0;
    let subscribes = number == 1 || random.below(4) != 0;
    let filters = (0..1 + random.below(3))
        .map(|_| usize::try_from(random.below(FILTERS.len() as u64)).unwrap_or(0))
        .collect();
    Profile { durable, publishes, subscribes, filters, absence: 1 + random.below(3) * random.below(100) }
}

/// One to three clients; each queue is consumed from by one of them at least.
fn amqp_profiles(random: &mut Random, queues: usize) -> Vec<AmqpProfile> {
    let count = 1 + random.below(3);
    let pick = |random: &mut Random, from: &[&'static str]| {
        let at = usize::try_from(random.below(from.len() as u64)).unwrap_or(0);
        from.get(at).copied().unwrap_or("#")
    };
    let bindings: Vec<Vec<_>> = (0..queues)
        .map(|_| {
            let topics =
                (0..1 + random.below(2)).map(|_| (Exchange::Topic, pick(random, &PATTERNS))).collect();
            let mut bindings: Vec<_> = topics;
            if random.below(2) == 0 {
                bindings.push((Exchange::Direct, pick(random, &KEYS)));
            }
            bindings
        })
        .collect();
    let crowded = random.below(2) == 0;
    (0..count)
        .map(|number| AmqpProfile {
            publishes: number == 0 || random.below(2) == 0,
            consumes: (0..queues)
                .filter(|queue| *queue as u64 % count == number || crowded && random.below(2) == 0)
                .collect(),
            bindings: bindings.clone(),
            prefetch: match random.below(5) {
                0 => 0,
                1 => 1,
                _ => 1 + u16::try_from(random.below(8)).unwrap_or(0),
            },
            global: random.below(4) == 0,
            transactional: random.below(4) == 0,
            frame_max: if random.below(2) == 0 { 4_096 } else { 131_072 },
            absence: 1 + random.below(3) * random.below(60),
            sees_cold: false,
            buries: false,
        })
        .collect()
}

fn below32(random: &mut Random, bound: u64) -> u32 {
    u32::try_from(random.below(bound)).unwrap_or(0)
}
