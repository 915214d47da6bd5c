//! The flash budget: when a day's bytes are spent too fast, commits widen to at most one second, and nothing is
//! refused or lost. All in virtual time.

use std::time::Duration;

use crate::support::driver::{Setup, World};

/// A world with this many bytes a day, and a session that is away and wants `t`.
fn world(bytes_per_day: Option<u64>) -> World {
    let mut world =
        World::new(Setup::with(|setup| setup.config.storage.bytes_per_day_budget = bytes_per_day));
    world.send("sub", "CONNECT client=sub clean=0");
    world.send("sub", "SUBSCRIBE id=1 filter=t qos=1");
    world.send("sub", "DISCONNECT");
    world.send("pub", "CONNECT client=pub");
    world.pass(Duration::from_secs(2));
    world.lines();
    world
}

/// Milliseconds until the publisher's PUBACK.
fn puback_after_ms(world: &mut World, id: u32) -> u64 {
    world.send("pub", &format!("PUBLISH topic=t qos=1 id={} payload=x*100", id % 65_535 + 1));
    let mut waited = 0;
    while world.lines_of("pub").is_empty() {
        world.pass(Duration::from_millis(10));
        waited += 10;
        assert!(waited <= 1000, "a commit never waits longer than a second");
    }
    waited
}

#[test]
fn while_the_budget_lasts_nothing_waits() {
    let mut world = world(Some(8 << 30));
    for id in 0..200 {
        assert_eq!(puback_after_ms(&mut world, id), 0);
    }
    assert_eq!(world.gateway.status(world.now)["flash"]["over_budget"], false);
}

#[test]
fn an_overspent_budget_widens_commits_to_a_second() {
    // An hour's share is some 60 commits of a page.
    let mut world = world(Some(24 * 60 * 4096));
    let waits: Vec<_> = (0..120).map(|id| puback_after_ms(&mut world, id)).collect();
    assert_eq!(waits[0], 0, "an hour's share may be spent at once");
    assert_eq!(waits[119], 1000);
    assert_eq!(world.gateway.status(world.now)["flash"]["over_budget"], true);
    // What many send meanwhile goes into one commit.
    let batches = world.batches;
    for id in 1..=500 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={id} payload=x*100"));
    }
    world.pass(Duration::from_secs(1));
    assert_eq!(world.lines_of("pub").len(), 500);
    assert!(world.batches <= batches + 2, "{} commits", world.batches - batches);
    // Nothing was lost, and an hour of rest gives an hour's share.
    world.pass(Duration::from_secs(24 * 3600));
    assert_eq!(puback_after_ms(&mut world, 1), 0);
    world.cut_power();
    assert_eq!(world.recovery.queued, 621);
}

#[test]
fn without_a_budget_nothing_waits() {
    let mut world = world(None);
    for id in 0..500 {
        assert_eq!(puback_after_ms(&mut world, id), 0);
    }
}

/// QoS 0 and what is elided cost no flash, so no budget stands in their way.
#[test]
fn an_overspent_budget_holds_up_nothing_that_needs_no_flash() {
    let mut world = world(Some(24 * 4096));
    for id in 0..10 {
        puback_after_ms(&mut world, id);
    }
    world.send("live", "CONNECT client=live");
    world.send("live", "SUBSCRIBE id=1 filter=u qos=1");
    world.lines();
    world.send("pub", "PUBLISH topic=u qos=1 id=1 payload=x");
    world.send("pub", "PUBLISH topic=u payload=y");
    assert_eq!(world.lines().len(), 3);
}
