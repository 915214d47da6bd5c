//! The end of a run: misfortune stops, everybody comes back, and all must come to rest.

use crate::client::{Client, Stage};
use crate::machine::Writing;
use crate::model::{Check, Session};
use crate::world::World;
use crate::{checker, workload};

/// Idle moments that are waited for before all counts as quiet.
const QUIET_ROUNDS: u32 = 8;
/// Commits after which a checkpoint has surely come.
const CHECKPOINT_COMMITS: usize = 70;
const ROUNDS_MAX: u32 = 20_000;

/// Brings everything to rest and judges it.
pub fn settle(world: &mut World) -> Check {
    world.trace.note(format_args!("misfortune ends"));
    world.machine.disk.power_cut_at(u64::MAX);
    world.end_of_full_disk();
    for link in world.links.values_mut() {
        link.slow_until = 0;
    }
    let durable: Vec<_> = (0..world.clients.len())
        .filter(|client| world.plan.clients.get(*client).is_some_and(|profile| profile.durable))
        .collect();
    come_to_rest(world, &durable)?;
    checker::at_rest(world)?;
    world.check_readings()?;
    audit_retained(world)?;
    audit_flash(world)?;
    // What is kept is kept beyond a clean stop, too.
    world.stop_cleanly()?;
    come_to_rest(world, &durable)?;
    checker::at_rest(world)?;
    world.check_readings()
}

/// Carries everything until nothing moves any more; `present` reconnect when they are away.
fn come_to_rest(world: &mut World, present: &[usize]) -> Check {
    let mut quiet = 0;
    for _ in 0..ROUNDS_MAX {
        world.trace.step += 1;
        let mut moved = false;
        for client in present {
            if world.clients.get(*client).is_some_and(|client| client.stage == Stage::Offline) {
                workload::connect(world, *client, false, false);
                moved = true;
            }
        }
        moved |= crate::amqp_workload::come_back(world);
        moved |= carry_everything(world)?;
        if world.machine.failing {
            world.machine.reopen(&mut world.trace, world.now)?;
            moved = true;
        }
        match world.machine.writing {
            Writing::Idle => {
                moved |= world.machine.has_unwritten();
                world.machine.write(&mut world.trace)?;
            }
            Writing::Handed(_) => {
                if !world.machine.write(&mut world.trace)? {
                    return Err("the power went in quiet times".into());
                }
                moved = true;
            }
            Writing::Written(_) => {
                world.report();
                moved = true;
            }
        }
        if world.machine.has_requests() && !world.machine.failing {
            world.serve_backlog()?;
            moved = true;
        }
        if !world.series_step() {
            return Err("the power went in quiet times".into());
        }
        let mut pause_us = 50;
        if world.machine.has_readings() && !moved {
            world.machine.gateway.want_series_flush();
            // The row of a reading that no acknowledgement waits for may take its time, and the flush waits for it.
            pause_us = 400_000;
            moved = true;
        }
        world.round()?;
        checker::always(world)?;
        if moved {
            quiet = 0;
            world.advance(pause_us);
            continue;
        }
        quiet += 1;
        if quiet > QUIET_ROUNDS {
            return Ok(());
        }
        world.advance(400_000);
    }
    Err("it did not come to rest".into())
}

fn carry_everything(world: &mut World) -> Result<bool, String> {
    let mut moved = false;
    for number in world.links.keys().copied().collect::<Vec<_>>() {
        moved |= world.carry_in(number, usize::MAX);
        moved |= world.carry_out(number, usize::MAX)?;
    }
    for client in 0..world.clients.len() {
        if world.clients.get(client).is_some_and(|c| c.stage == Stage::Joined && c.replies() > 0) {
            moved = true;
            while world.clients.get(client).is_some_and(|client| client.replies() > 0) {
                if let Some(client) = world.clients.get_mut(client) {
                    client.reply(&mut world.trace);
                }
            }
            world.post(client);
        }
    }
    moved |= crate::amqp_workload::settle_everything(world);
    Ok(moved)
}

/// A newcomer asks for every last known value; then all are deleted, and memory is empty.
fn audit_retained(world: &mut World) -> Check {
    let newcomer = enter(world, true)?;
    let step = world.trace.step;
    if let Some(client) = world.clients.get_mut(newcomer) {
        client.subscribe(step, &mut world.model, &[("#", 1)]);
    }
    world.post(newcomer);
    come_to_rest(world, &[])?;
    for topic in world.model.retained.topics() {
        let must = world.model.retained.must_have(&world.model.messages, topic);
        if must && !world.model.got_value(newcomer, topic) {
            return Err(format!("the last known value of {topic} is gone"));
        }
    }
    for topic in world.model.retained.topics() {
        let step = world.trace.step;
        let deletion = world.model.retained.delete(step, topic);
        if let Some(client) = world.clients.get_mut(newcomer) {
            let content = crate::client::Content::Empty(topic, Some(deletion));
            client.publish(step, &mut world.model, content, 1, true);
        }
        world.post(newcomer);
        come_to_rest(world, &[])?;
    }
    let status = world.machine.gateway.broker().status();
    if status.memory_bytes > 0 || status.retained > 0 || status.retained_bytes > 0 {
        return Err(format!("all is empty, and yet: {status:?}"));
    }
    leave(world, newcomer)
}

/// After so many commits that a checkpoint was among them, flash holds no message any more.
fn audit_flash(world: &mut World) -> Check {
    let newcomer = enter(world, false)?;
    for qos in (0..2).cycle().take(CHECKPOINT_COMMITS) {
        let step = world.trace.step;
        if let Some(client) = world.clients.get_mut(newcomer) {
            client.subscribe(step, &mut world.model, &[("nothing/comes/here", qos)]);
        }
        world.post(newcomer);
        come_to_rest(world, &[])?;
    }
    leave(world, newcomer)?;
    let mut kinds = [0; 256];
    let rows = &mut |_, kind: u8, _: &[u8]| {
        if let Some(count) = kinds.get_mut(usize::from(kind)) {
            *count += 1;
        }
    };
    world.machine.store()?.replay(rows).map_err(|error| error.to_string())?;
    match kinds {
        [_, 0, 0, ..] => Ok(()),
        [_, messages, sets, ..] => {
            Err(format!("all is settled, and flash holds {messages} messages and {sets} sets of takers"))
        }
    }
}

/// A client that was not there before comes.
fn enter(world: &mut World, clean: bool) -> Result<usize, String> {
    let newcomer = world.clients.len();
    let mut client = Client::new(newcomer, world.plan.inflight_max);
    client.identifier = "newcomer".into();
    world.clients.push(client);
    world.model.sessions.push(Session::default());
    workload::connect(world, newcomer, clean, false);
    come_to_rest(world, &[])?;
    Ok(newcomer)
}

/// It goes, and is forgotten here.
fn leave(world: &mut World, newcomer: usize) -> Check {
    world.leave(newcomer, true);
    come_to_rest(world, &[])?;
    world.clients.pop();
    world.model.sessions.pop();
    Ok(())
}
