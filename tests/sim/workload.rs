//! What clients do: connect, leave, publish, subscribe, answer.

use crate::client::{Client, Content, Five, Stage, WillOf};
use crate::model::{Check, Message, MessageNumber};
use crate::payload::HEAD_BYTES;
use crate::plan::{FILTERS, TOPICS};
use crate::queues::Exchange;
use crate::world::World;

/// Largest payload, bytes.
const LARGE_BYTES_MAX: u64 = 40_000;

/// One client does one thing.
pub fn act(world: &mut World) -> Check {
    let count = (world.clients.len() + world.amqp.len()) as u64;
    let client = usize::try_from(world.random.below(count)).unwrap_or(0);
    if client >= world.clients.len() {
        return crate::amqp_workload::act(world, client - world.clients.len());
    }
    let Some(stage) = world.clients.get(client).map(|client| client.stage) else { return Ok(()) };
    let chance = world.random.below(100);
    match (stage, chance) {
        (Stage::Offline, _) => connect_sometimes(world, client),
        (Stage::Connecting, 0..3) => publish(world, client),
        (Stage::Connecting, _) => {}
        (Stage::Joined, 0..45) => reply(world, client),
        (Stage::Joined, 45..80) => publish(world, client),
        (Stage::Joined, 80..92) => subscribe(world, client),
        (Stage::Joined, 92..94) => with(world, client, |client, _, _| client.ping()),
        (Stage::Joined, 94) => disconnect(world, client),
        (Stage::Joined, 95) => take_over(world, client),
        (Stage::Joined, _) => {}
    }
    world.post(client);
    Ok(())
}

fn with(world: &mut World, client: usize, act: impl FnOnce(&mut Client, u64, &mut crate::model::Model)) {
    if let Some(client) = world.clients.get_mut(client) {
        act(client, world.trace.step, &mut world.model);
    }
}

fn connect_sometimes(world: &mut World, client: usize) {
    let absence = world.plan.clients.get(client).map_or(1, |profile| profile.absence);
    if world.random.below(absence) == 0 {
        let durable = world.plan.clients.get(client).is_some_and(|profile| profile.durable);
        let wipe = world.plan.wipes && world.random.below(12) == 0;
        connect(world, client, !durable || wipe, true);
    }
}

/// Opens a connection and sends CONNECT. Without misfortune there is no keep-alive and no will.
pub fn connect(world: &mut World, client: usize, clean: bool, misfortune: bool) {
    if !world.open(client.into()) {
        return;
    }
    let clean = clean || world.clients.get(client).is_some_and(|client| client.must_be_clean);
    let Some(link) = world.link_of(client) else { return };
    let will =
        (misfortune && world.plan.wills && world.random.below(2) == 0).then(|| new_will(world, client));
    let keep_alive_s = if misfortune && world.random.below(4) == 0 { 2 } else { 0 };
    if let Some(will) = will {
        world.wills.sent(world.trace.step, link, will.number, &mut world.model);
    }
    expire(world);
    let five = speaks_five(world);
    world.trace.note(format_args!("client {client} connects, clean {clean}, will {will:?}, {five:?}"));
    with(world, client, |client, _, model| client.connect(model, clean, keep_alive_s, will, five));
    world.post(client);
}

/// Each connection chooses its version; a session is the same for all of them.
fn speaks_five(world: &mut World) -> Option<Five> {
    if !world.plan.five || world.random.below(3) == 0 {
        return None;
    }
    Some(Five {
        receive_maximum: 1 + u16::try_from(world.random.below(6)).unwrap_or(0),
        topic_alias_maximum: u16::try_from(world.random.below(3)).unwrap_or(0),
        aliases: world.random.below(2) == 0,
    })
}

/// Sessions that were away long enough may be gone: nothing is surely owed to them any more.
pub fn expire(world: &mut World) {
    let Some(expiry) = world.policy.session_expiry_max else { return };
    let expiry_us = u64::try_from(expiry.as_micros()).unwrap_or(u64::MAX);
    for client in 0..world.clients.len() {
        if !world.is_connected(client) {
            world.model.may_have_expired(client, world.passed_us, expiry_us);
        }
    }
}

fn new_will(world: &mut World, client: usize) -> WillOf {
    let topic = pick_topic(world);
    let qos = u8::try_from(world.random.below(3)).unwrap_or(0);
    let retain = world.plan.retained && world.random.below(3) == 0;
    let bytes = HEAD_BYTES + 4;
    let publisher = usize::MAX - client;
    WillOf {
        number: world.model.message(Message {
            exchange: Exchange::Topic,
            topic,
            qos,
            retain,
            bytes,
            lasts_ms: None,
            publisher,
            instances: vec![],
        }),
    }
}

fn publish(world: &mut World, client: usize) {
    let publishes = world.plan.clients.get(client).is_some_and(|profile| profile.publishes);
    let qos = pick_qos(world);
    if !publishes || !world.clients.get(client).is_some_and(|client| client.may_publish(qos)) {
        return;
    }
    let retain = world.plan.retained && world.random.below(3) == 0;
    let step = world.trace.step;
    if retain && world.random.below(4) == 0 {
        let topic = pick_topic(world);
        let deletion = world.model.retained.delete(step, topic);
        world.trace.note(format_args!("client {client} deletes {topic} with QoS {qos}"));
        let content = Content::Empty(topic, Some(deletion));
        with(world, client, |client, step, model| client.publish(step, model, content, qos, true));
        return;
    }
    let number = twin(world, client, qos, retain).unwrap_or_else(|| {
        let topic = pick_topic(world);
        let bytes = pick_bytes(world);
        let five = world.clients.get(client).is_some_and(Client::speaks_five);
        let lasts_ms = five.then(|| pick_lifetime(world)).flatten().map(|ms| ms.div_ceil(1000) * 1000);
        world.model.message(Message {
            exchange: Exchange::Topic,
            topic,
            qos,
            retain,
            bytes,
            lasts_ms,
            publisher: client,
            instances: vec![],
        })
    });
    expire(world);
    let instance = world.model.instance(step, number);
    let topic = world.model.at(number).topic;
    world.trace.note(format_args!("client {client} publishes {instance:?} to {topic}, QoS {qos}, {retain}"));
    let content = Content::Message(instance);
    with(world, client, |client, step, model| client.publish(step, model, content, qos, retain));
}

/// The client's last message once more, byte for byte.
fn twin(world: &mut World, client: usize, qos: u8, retain: bool) -> Option<MessageNumber> {
    if !world.plan.twins || world.random.below(3) != 0 {
        return None;
    }
    let same = |m: &Message| m.publisher == client && m.qos == qos && m.retain == retain;
    let position = world.model.messages.iter().rposition(same)?;
    MessageNumber::try_from(position).ok()
}

fn subscribe(world: &mut World, client: usize) {
    let Some(profile) = world.plan.clients.get(client).filter(|profile| profile.subscribes) else { return };
    if !world.clients.get(client).is_some_and(Client::may_request) {
        return;
    }
    let filters = profile.filters.clone();
    let filter = |world: &mut World| {
        let at = usize::try_from(world.random.below(filters.len() as u64)).unwrap_or(0);
        filters.get(at).and_then(|filter| FILTERS.get(*filter)).copied()
    };
    let Some(first) = filter(world) else { return };
    if world.plan.unsubscribes && world.random.below(5) == 0 {
        world.trace.note(format_args!("client {client} unsubscribes {first}"));
        with(world, client, |client, _, model| client.unsubscribe(model, first));
        return;
    }
    let mut requested = vec![(first, subscription_qos(world))];
    if world.random.below(3) == 0
        && let Some(second) = filter(world).filter(|second| *second != first)
    {
        requested.push((second, subscription_qos(world)));
    }
    world.trace.note(format_args!("client {client} subscribes {requested:?}"));
    with(world, client, |client, step, model| client.subscribe(step, model, &requested));
}

fn subscription_qos(world: &mut World) -> u8 {
    match world.random.below(10) {
        0 => 0,
        1..5 => 1,
        _ => 2,
    }
}

fn reply(world: &mut World, client: usize) {
    let waiting = world.clients.get(client).map_or(0, Client::replies) as u64;
    let count = if world.random.below(2) == 0 { waiting } else { world.random.below(waiting + 1) };
    for _ in 0..count {
        if let Some(client) = world.clients.get_mut(client) {
            client.reply(&mut world.trace);
        }
    }
}

fn disconnect(world: &mut World, client: usize) {
    if world.random.below(3) != 0 {
        return;
    }
    if let Some(link) = world.link_of(client) {
        world.wills.left(link);
    }
    with(world, client, |client, _, _| client.disconnect());
    world.post(client);
    world.leave(client, true);
}

/// The same client identifier comes again on another connection, and the old one still stands.
fn take_over(world: &mut World, client: usize) {
    if !world.plan.takeovers {
        return;
    }
    world.leave(client, false);
    let durable = world.plan.clients.get(client).is_some_and(|profile| profile.durable);
    connect(world, client, !durable, true);
}

pub fn pick_topic(world: &mut World) -> &'static str {
    let at = usize::try_from(world.random.below(TOPICS.len() as u64)).unwrap_or(0);
    TOPICS.get(at).copied().unwrap_or("a")
}

fn pick_qos(world: &mut World) -> u8 {
    let weights = world.plan.qos_weights;
    let mut at = world.random.below(weights.iter().sum());
    for (qos, weight) in (0..).zip(weights) {
        if at < weight {
            return qos;
        }
        at -= weight;
    }
    0
}

/// How long a message lasts, if it is to expire.
pub fn pick_lifetime(world: &mut World) -> Option<u64> {
    if !world.plan.expires || world.random.below(3) != 0 {
        return None;
    }
    let most = if world.random.below(2) == 0 { 4_000 } else { 200_000 };
    Some(1 + world.random.below(most))
}

pub fn pick_bytes(world: &mut World) -> usize {
    let large = world.plan.large_one_in;
    let more = if large > 0 && world.random.below(large) == 0 {
        world.random.below(LARGE_BYTES_MAX)
    } else {
        world.random.below(200)
    };
    HEAD_BYTES + usize::try_from(more).unwrap_or(0)
}
