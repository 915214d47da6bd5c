//! What is looked at in the gateway itself: bounds and conservation at all times, recovered state, the end's judgement.

use gatewayd::broker::{LossReason, LossReceipt, QueueKind, QueueStatus};

use crate::client::Stage;
use crate::machine::Snapshot;
use crate::model::Check;
use crate::queues::QueueState;
use crate::world::World;

/// Holds after every step.
pub fn always(world: &mut World) -> Check {
    world.machine.check_conservation()?;
    note_drops(world);
    bounds(world)
}

/// Where something was dropped order is not judged any more.
pub fn note_drops(world: &mut World) {
    let bounds = &world.policy.queue_bounds;
    let overflows = bounds.messages_max < 4_096 || bounds.bytes_max < 16 << 20;
    let dead = world.machine.gateway.broker().status().counters.dead_lettered;
    if world.plan.buries && overflows && dead > 0 {
        // It may have been pushed out of the first queue, and is no loss.
        world.model.queues.iter_mut().take(1).for_each(|state| state.unordered = true);
    }
    for queue in world.machine.gateway.broker().queue_status().filter(|queue| queue.dropped > 0) {
        if queue.kind == QueueKind::Named {
            let named = world.model.queues.iter_mut().filter(|state| *state.name == *queue.name);
            named.for_each(|state| state.unordered = true);
            continue;
        }
        let client = world.clients.iter().position(|client| *client.identifier == *queue.name);
        if let Some(session) = client.and_then(|client| world.model.sessions.get_mut(client)) {
            session.has_dropped = true;
        }
    }
}

/// No queue is above its bounds, but for what is in flight.
fn bounds(world: &World) -> Check {
    for queue in world.machine.gateway.broker().queue_status() {
        let over = queue.messages > queue.messages_max || queue.bytes > queue.bytes_max;
        let in_flight = u32::try_from(queue.in_flight).unwrap_or(u32::MAX);
        if over && queue.messages > in_flight && !waits_for_rows(world, &queue) {
            return Err(format!("a queue is above its bounds: {queue:?}"));
        }
        if queue.kind == QueueKind::Session && queue.in_flight > usize::from(world.plan.inflight_max) {
            return Err(format!("more is in flight than the window allows: {queue:?}"));
        }
    }
    Ok(())
}

/// What is oldest may have to be read back before it can be dropped; a whole chunk too much is dropped at once.
fn waits_for_rows(world: &World, queue: &QueueStatus) -> bool {
    let broker = world.machine.gateway.broker();
    let in_memory = broker.find_queue(&queue.name, Some(queue.kind)).map_or(0, |at| broker.peek(at).count());
    let cold = (queue.ready + queue.in_flight).saturating_sub(in_memory);
    cold > 0 && queue.messages as usize <= queue.messages_max as usize + cold
}

/// What was found after a restart is what the batch's rows say: the state when it was closed.
pub fn recovered(world: &World, expected: &Snapshot) -> Check {
    let found = world.machine.snapshot(expected.batch);
    // Wills of those that were connected are published at start, and may replace values or fill queues. What dies at the
    // start fills one, too, and may push others out for a common bound.
    let died = world.machine.gateway.broker().status().counters.dead_lettered > 0;
    let published = world.machine.summary.wills > 0 || died;
    let narrowed = world.plan.narrowing;
    if found.queues.keys().ne(expected.queues.keys()) {
        return Err(format!("sessions {:?} where {:?} were kept", found.queues, expected.queues));
    }
    let bytes_max = world.policy.session_bounds.bytes_max;
    for ((name, found), expected) in found.queues.iter().zip(expected.queues.values()) {
        if expected.2 > bytes_max {
            // What was in flight alone exceeded the bound, which now applies to it.
            continue;
        }
        let differs = found.0 != expected.0
            || !published
                && !narrowed
                && !world.plan.retained
                && (found.1, found.2) != (expected.1, expected.2)
            || !published && found.1 as usize + found.3 > expected.1 as usize + expected.3;
        if differs {
            let lost: Vec<_> = world.machine.gateway.broker().loss_receipts().collect();
            return Err(format!(
                "session {name} came back as {found:?}, it was {expected:?}; lost: {lost:?}"
            ));
        }
    }
    if !published && (found.retained, found.retained_bytes) != (expected.retained, expected.retained_bytes) {
        return Err(format!(
            "{} values of {} bytes came back, there were {} of {}",
            found.retained, found.retained_bytes, expected.retained, expected.retained_bytes
        ));
    }
    Ok(())
}

/// When all is quiet: queues are empty, everything owed has arrived or is accounted for.
pub fn at_rest(world: &World) -> Check {
    for queue in world.machine.gateway.broker().queue_status() {
        if queue.ready > 0 || queue.in_flight > 0 || queue.messages > 0 || queue.bytes > 0 {
            return Err(format!("a queue with a consumer did not drain: {queue:?}"));
        }
    }
    for client in world.clients.iter().filter(|client| client.stage == Stage::Joined) {
        client.unfinished()?;
    }
    no_damage(world)?;
    for client in &world.amqp {
        client.unfinished()?;
    }
    for (number, queue) in world.model.queues.iter().enumerate() {
        let grave = world.model.queues.last().filter(|_| world.plan.buries && number == 0);
        let missing = queue.missing(grave, &world.model.messages);
        let receipts = world.machine.gateway.broker().loss_receipts();
        // What may have expired is not owed, so its receipts account for nothing.
        let of_queue = |receipt: &&LossReceipt| {
            let is_its = |state: &QueueState| *receipt.queue == *state.name;
            (is_its(queue) || grave.is_some_and(is_its)) && receipt.reason != LossReason::Expired
        };
        let admitted: u64 = receipts.filter(of_queue).map(|receipt| receipt.messages).sum();
        if admitted < missing.copies {
            return Err(format!(
                "{} acknowledged messages never reached queue {}, {admitted} are admitted: {:?}",
                missing.copies, queue.name, missing.pushed_by
            ));
        }
    }
    for client in 0..world.clients.len() {
        accounted_for(world, client)?;
    }
    Ok(())
}

/// A power cut alone damages nothing.
fn no_damage(world: &World) -> Check {
    let mut receipts = world.machine.gateway.broker().loss_receipts();
    match receipts.find(|receipt| receipt.reason == LossReason::Damage) {
        Some(receipt) if world.outcome.faults == 0 => Err(format!("damage where none was done: {receipt:?}")),
        _ => Ok(()),
    }
}

fn accounted_for(world: &World, client: usize) -> Check {
    let missing = world.model.missing(client);
    if missing.copies == 0 {
        return Ok(());
    }
    let name = format!("client-{client}");
    let broker = world.machine.gateway.broker();
    let of_session =
        |receipt: &&LossReceipt| *receipt.queue == *name && receipt.reason != LossReason::Expired;
    let receipts: Vec<_> = broker.loss_receipts().filter(of_session).collect();
    let admitted: u64 = receipts.iter().map(|receipt| receipt.messages).sum();
    if admitted < missing.copies {
        return Err(format!(
            "{} acknowledged messages never reached {name}, {admitted} are admitted: {:?}",
            missing.copies, missing.pushed_by
        ));
    }
    if receipts.iter().any(|receipt| receipt.reason != LossReason::QueueBound) {
        return Ok(());
    }
    let bytes_max = usize::try_from(world.policy.session_bounds.bytes_max).unwrap_or(usize::MAX);
    let window = usize::from(world.plan.inflight_max);
    for (number, copies, bytes) in &missing.pushed_by {
        let by_count = copies + window >= world.messages_max_least as usize;
        // What is in flight may be as large as the largest message.
        let by_bytes = bytes + (window + 1) * 41_000 >= bytes_max;
        if !by_count && !by_bytes {
            return Err(format!(
                "{name} lost message {number} to its bound, though only {copies} of {bytes} bytes came after it"
            ));
        }
    }
    Ok(())
}
