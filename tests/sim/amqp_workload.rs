//! What AMQP clients do in a run, at random, and in its quiet end.

use gatewayd::broker::QueueKind;

use crate::amqp::{AmqpClient, Verdict};
use crate::client::Stage;
use crate::model::{Check, Message, Model};
use crate::network::Party;
use crate::plan::{KEYS, QUEUES, TOPICS};
use crate::queues::Exchange;
use crate::trace::Trace;
use crate::workload::{expire, pick_bytes, pick_lifetime, pick_topic};
use crate::world::World;

/// One client does one thing.
pub fn act(world: &mut World, client: usize) -> Check {
    let Some(stage) = world.amqp.get(client).map(|client| client.stage) else { return Ok(()) };
    look_around(world, client);
    let chance = world.random.below(100);
    let free = world.amqp.get(client).is_some_and(AmqpClient::is_free);
    if let Some(queue) = world.plan.polled
        && free
        && world.random.below(5) == 0
    {
        if world.random.below(20) == 0 {
            world.trace.note(format_args!("amqp {client} purges {queue}"));
            with(world, client, |c, _, step, model| c.purge(step, model, queue));
        } else {
            poll(world, client);
        }
        return Ok(());
    }
    match (stage, chance) {
        (Stage::Offline, _) => {
            let absence = world.amqp.get(client).map_or(1, |client| client.profile.absence);
            if world.random.below(absence) == 0 {
                connect(world, client, true);
            }
        }
        (Stage::Connecting, _) => {}
        (Stage::Joined, 0..45) => settle(world, client),
        (Stage::Joined, 45..80) => publish(world, client),
        (Stage::Joined, 80..84) => end_transaction(world, client),
        (Stage::Joined, 84) if free => with(world, client, |c, _, step, model| c.renew_channel(step, model)),
        (Stage::Joined, 85) if free => with(world, client, |c, _, step, model| c.renew_consumer(step, model)),
        (Stage::Joined, 86) if free => with(world, client, |c, _, step, model| c.recover(step, model)),
        (Stage::Joined, 87) if free => {
            let prefetch = u16::try_from(world.random.below(8)).unwrap_or(0);
            with(world, client, |c, _, step, model| c.change_prefetch(step, model, prefetch));
        }
        (Stage::Joined, 88..91) => with(world, client, |c, _, _, _| c.heartbeat()),
        (Stage::Joined, 91) if world.random.below(3) == 0 => {
            with(world, client, |c, _, _, model| c.disconnect(model));
            world.leave(Party::Amqp(client), true);
        }
        (Stage::Joined, 92) if world.plan.takeovers && world.random.below(3) == 0 => {
            world.leave(Party::Amqp(client), false);
            connect(world, client, true);
        }
        (Stage::Joined, _) => {}
    }
    world.post(Party::Amqp(client));
    Ok(())
}

fn with(world: &mut World, client: usize, act: impl FnOnce(&mut AmqpClient, &mut Trace, u64, &mut Model)) {
    let step = world.trace.step;
    if let Some(client) = world.amqp.get_mut(client) {
        act(client, &mut world.trace, step, &mut world.model);
    }
    world.post(Party::Amqp(client));
}

/// Tells a client whether an older connection of it is still there.
fn look_around(world: &mut World, client: usize) {
    let links = world.links.values().filter(|link| link.owner == Party::Amqp(client)).count();
    if let Some(client) = world.amqp.get_mut(client) {
        client.alone = links <= 1;
    }
}

fn connect(world: &mut World, client: usize, misfortune: bool) {
    if !world.open(Party::Amqp(client)) {
        return;
    }
    let Some(link) = world.link_of(Party::Amqp(client)) else { return };
    let heartbeat_s = if misfortune && world.random.below(4) == 0 { 2 } else { 0 };
    let now_us = world.passed_us;
    with(world, client, |client, _, _, _| client.connect(link, heartbeat_s, now_us));
}

fn poll(world: &mut World, client: usize) {
    if let Some(queue) = world.plan.polled {
        with(world, client, |c, _, step, model| c.poll(step, model, queue));
    }
}

fn settle(world: &mut World, client: usize) {
    let Some(count) = world.amqp.get(client).map(AmqpClient::unsettled).filter(|count| *count > 0) else {
        return;
    };
    for _ in 0..1 + world.random.below(3) {
        let at = if world.random.below(3) == 0 { world.random.below(count as u64) } else { 0 };
        let verdict = match world.random.below(20) {
            0..2 => Verdict::AckMultiple,
            2..5 => Verdict::Requeue,
            5 => Verdict::RequeueByReject,
            6 => Verdict::Discard,
            _ => Verdict::Ack,
        };
        let at = usize::try_from(at).unwrap_or(0);
        with(world, client, |client, trace, _, model| client.settle(trace, model, at, verdict));
    }
}

fn publish(world: &mut World, client: usize) {
    if publish_again(world, client) {
        return;
    }
    let may = |client: &AmqpClient| client.profile.publishes && client.may_publish();
    if !world.amqp.get(client).is_some_and(may) {
        return;
    }
    let pick = |world: &mut World, from: &[&'static str]| {
        let at = usize::try_from(world.random.below(from.len() as u64)).unwrap_or(0);
        from.get(at).copied().unwrap_or("a")
    };
    let (exchange, topic) = match world.random.below(8) {
        0 => (Exchange::Default, pick(world, &QUEUES)),
        1..3 => {
            let key = pick(world, &KEYS);
            let topic = TOPICS.iter().find(|topic| topic.replace('/', ".") == key);
            (Exchange::Direct, topic.copied().unwrap_or("c"))
        }
        _ => (Exchange::Topic, pick_topic(world)),
    };
    let qos = u8::from(world.random.below(6) != 0);
    let bytes = pick_bytes(world);
    // Nobody else's number.
    let publisher = 1_000 + client;
    let lasts_ms = pick_lifetime(world);
    let message =
        Message { exchange, topic, qos, retain: false, bytes, lasts_ms, publisher, instances: vec![] };
    let number = world.model.message(message);
    expire(world);
    let instance = world.model.instance(world.trace.step, number);
    world.trace.note(format_args!("amqp {client} publishes {instance:?} to {topic} by {exchange:?}, {qos}"));
    with(world, client, |client, _, step, model| client.publish(step, model, instance));
}

fn publish_again(world: &mut World, client: usize) -> bool {
    let Some(instance) = world.amqp.get_mut(client).and_then(AmqpClient::next_again) else { return false };
    world.trace.note(format_args!("amqp {client} publishes {instance:?} again"));
    with(world, client, |client, _, step, model| client.publish(step, model, instance));
    true
}

fn end_transaction(world: &mut World, client: usize) {
    let may = |client: &AmqpClient| client.is_in_transaction() && client.may_end_transaction();
    if world.amqp.get(client).is_some_and(may) {
        let back = world.random.below(4) == 0;
        with(
            world,
            client,
            |client, _, _, model| if back { client.roll_back(model) } else { client.commit() },
        );
    }
}

/// Bytes came for a client.
impl World {
    pub fn amqp_receives(&mut self, client: usize, bytes: &[u8]) -> Check {
        look_around(self, client);
        let link = self.link_of(Party::Amqp(client)).and_then(|number| self.links.get(&number));
        let late = link.is_some_and(|link| link.left_at_us.is_some());
        if let Some(client) = self.amqp.get_mut(client) {
            client.late = late;
            client.receive(&mut self.trace, &mut self.model, bytes)?;
        }
        self.post(Party::Amqp(client));
        Ok(())
    }
}

/// In quiet times: who is away comes back, and what nobody reads any more ends. True when somebody did.
pub fn come_back(world: &mut World) -> bool {
    let orphans: Vec<_> = world
        .links
        .iter()
        .filter(|(_, link)| matches!(link.owner, Party::Amqp(_)) && link.client.is_none() && !link.ends)
        .map(|(number, _)| *number)
        .collect();
    let mut moved = !orphans.is_empty();
    for link in orphans {
        world.break_link(link);
    }
    for client in 0..world.amqp.len() {
        if world.amqp.get(client).is_some_and(|client| client.stage == Stage::Offline) {
            connect(world, client, false);
            moved = true;
        }
    }
    moved
}

/// The queue that is asked for its messages has some.
fn is_worth_polling(world: &World) -> bool {
    let name = world.plan.polled.and_then(|queue| QUEUES.get(queue));
    let mut queues = world.machine.gateway.broker().queue_status();
    queues.any(|queue| queue.ready > 0 && queue.kind == QueueKind::Named && Some(&&*queue.name) == name)
}

/// In quiet times: everything is acknowledged, published and committed. True when there was something.
pub fn settle_everything(world: &mut World) -> bool {
    let mut moved = false;
    if is_worth_polling(world)
        && let Some(client) = world.amqp.iter().position(AmqpClient::is_free)
    {
        poll(world, client);
        moved = true;
    }
    for client in 0..world.amqp.len() {
        while world.amqp.get(client).is_some_and(AmqpClient::may_settle) {
            with(world, client, |client, trace, _, model| client.settle(trace, model, 0, Verdict::Ack));
            moved = true;
        }
        while publish_again(world, client) {
            moved = true;
        }
        if world.amqp.get(client).is_some_and(|c| c.is_in_transaction() && c.may_end_transaction()) {
            with(world, client, |client, _, _, _| client.commit());
            moved = true;
        }
    }
    moved
}
