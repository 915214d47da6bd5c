//! Write elision: what every durable taker acknowledges before the batch closes needs no flash; and what is never
//! elided.

use std::time::Duration;

use crate::support::driver::{Setup, World};
use crate::support::transcript::{check, check_in};

/// Connected sessions `a` and `b` that want `t` at QoS 1, and a publisher; the store is at rest.
fn world(setup: Setup) -> World {
    let mut world = World::new(setup);
    for name in ["a", "b"] {
        world.send(name, &format!("CONNECT client={name} clean=0"));
        world.send(name, "SUBSCRIBE id=1 filter=t qos=1");
    }
    world.send("pub", "CONNECT client=pub");
    world.pass(Duration::from_secs(2));
    world.lines();
    world
}

#[test]
fn the_last_takers_acknowledgement_frees_the_publishers() {
    let mut world = world(Setup::default());
    let batches = world.batches;
    check_in(
        &mut world,
        r#"
        > pub PUBLISH topic=t qos=1 id=1 payload="x"
        < a PUBLISH topic=t qos=1 id=1 payload="x"
        < b PUBLISH topic=t qos=1 id=1 payload="x"
        > b PUBACK id=1
        @ +5ms
        > a PUBACK id=1
        < pub PUBACK id=1
        @ +1h
        "#,
    );
    assert_eq!(world.batches, batches, "nothing reached the flash");
    assert_eq!(world.figure("flash.elided"), 1);
    world.cut_power();
    assert_eq!(world.recovery.queued, 0);
}

#[test]
fn a_taker_that_is_too_slow_costs_a_batch() {
    let mut world = world(Setup::default());
    check_in(
        &mut world,
        r#"
        > pub PUBLISH topic=t qos=1 id=1 payload="x"
        < a PUBLISH topic=t qos=1 id=1 payload="x"
        < b PUBLISH topic=t qos=1 id=1 payload="x"
        > b PUBACK id=1
        @ +9ms
        @ +1ms
        < pub PUBACK id=1
        ! power-cut
        = recovered sessions=2 queued=1 retained=0 wills=0
        "#,
    );
    assert_eq!(world.figure("flash.elided"), 0);
}

#[test]
fn a_consumer_that_answers_slowly_is_not_waited_for() {
    let mut world = world(Setup::default());
    for id in 1..=2 {
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={id}"));
        world.pass(Duration::from_millis(60));
        world.send("a", &format!("PUBACK id={id}"));
        world.send("b", &format!("PUBACK id={id}"));
        world.pass(Duration::from_secs(1));
    }
    world.lines();
    // Both took 60 ms lately.
    world.send("pub", "PUBLISH topic=t qos=1 id=3");
    assert_eq!(world.lines_of("pub"), ["PUBACK id=3"]);
    // They become fast again.
    for id in 3..=20 {
        world.send("a", &format!("PUBACK id={id}"));
        world.send("b", &format!("PUBACK id={id}"));
        world.send("pub", &format!("PUBLISH topic=t qos=1 id={}", id + 1));
    }
    world.send("a", "PUBACK id=21");
    world.send("b", "PUBACK id=21");
    world.lines();
    world.send("pub", "PUBLISH topic=t qos=1 id=22");
    assert_eq!(world.lines_of("pub"), [""; 0]);
}

#[test]
fn a_taker_that_is_away_is_not_waited_for() {
    let mut world = world(Setup::default());
    world.send("b", "DISCONNECT");
    world.lines();
    check_in(
        &mut world,
        r#"
        > pub PUBLISH topic=t qos=1 id=1 payload="x"
        < a PUBLISH topic=t qos=1 id=1 payload="x"
        < pub PUBACK id=1
        "#,
    );
}

#[test]
fn a_taker_without_credit_is_not_waited_for() {
    let mut world = world(Setup::with(|setup| setup.config.limits.inflight_max = 1));
    check_in(
        &mut world,
        r#"
        > pub PUBLISH topic=t qos=1 id=1 payload="1"
        < a PUBLISH topic=t qos=1 id=1 payload="1"
        < b PUBLISH topic=t qos=1 id=1 payload="1"
        > a PUBACK id=1
        > pub PUBLISH topic=t qos=1 id=2 payload="2"
        < a PUBLISH topic=t qos=1 id=2 payload="2"
        < pub PUBACK id=1
        < pub PUBACK id=2
        "#,
    );
}

#[test]
fn a_window_of_zero_turns_it_off() {
    let mut world = world(Setup::with(|setup| setup.config.storage.elision_window = Duration::ZERO));
    check_in(
        &mut world,
        r#"
        > pub PUBLISH topic=t qos=1 id=1 payload="x"
        < a PUBLISH topic=t qos=1 id=1 payload="x"
        < b PUBLISH topic=t qos=1 id=1 payload="x"
        < pub PUBACK id=1
        "#,
    );
}

#[test]
fn a_retained_value_is_never_elided() {
    let mut world = world(Setup::default());
    check_in(
        &mut world,
        r#"
        ! hold
        > pub PUBLISH topic=t qos=1 retain=1 id=1 payload="x"
        < a PUBLISH topic=t qos=1 id=1 payload="x"
        < b PUBLISH topic=t qos=1 id=1 payload="x"
        > a PUBACK id=1
        > b PUBACK id=1
        @ +1h
        ! release
        < pub PUBACK id=1
        ! power-cut
        = recovered sessions=2 queued=0 retained=1 wills=0
        "#,
    );
}

#[test]
fn qos_2_is_never_elided() {
    check(
        r#"
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=2
        < a SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=t qos=2 id=1 payload="x"
        @ +1h
        ! release
        < a PUBLISH topic=t qos=2 id=1 payload="x"
        < pub PUBREC id=1
        "#,
    );
}

/// The publisher's QoS 2 identifier needs the flash, though its message does not.
#[test]
fn a_durable_publishers_pubrec_is_never_elided() {
    check(
        r#"
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=1
        < a SUBACK id=1 codes=1
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=t qos=2 id=1 payload="x"
        < a PUBLISH topic=t qos=1 id=1 payload="x"
        > a PUBACK id=1
        @ +1h
        ! release
        < pub PUBREC id=1
        "#,
    );
}

/// Rows that were handed to the store are written; the acknowledgement need not wait for it once all takers have it.
#[test]
fn a_row_at_the_store_is_written_and_its_publisher_freed() {
    let mut world = world(Setup::default());
    world.hold();
    check_in(
        &mut world,
        r#"
        > pub PUBLISH topic=t qos=1 id=1 payload="x"
        < a PUBLISH topic=t qos=1 id=1 payload="x"
        < b PUBLISH topic=t qos=1 id=1 payload="x"
        @ +10ms
        > a PUBACK id=1
        > b PUBACK id=1
        < pub PUBACK id=1
        ! release
        @ +1s
        ! power-cut
        = recovered sessions=2 queued=0 retained=0 wills=0
        "#,
    );
}

/// A bound that drops the message is no acknowledgement: the loss is on flash before the publisher is told.
#[test]
fn a_message_that_a_bound_drops_waits_for_the_flash() {
    let mut world = check(
        r#"
        % session_messages_max=1
        > a CONNECT client=a clean=0
        < a CONNACK present=0 code=0
        > a SUBSCRIBE id=1 filter=t qos=1
        < a SUBACK id=1 codes=1
        > a DISCONNECT
        < a closed disconnect
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=t qos=1 id=1 payload="1" ~
        > pub PUBLISH topic=t qos=1 id=2 payload="2" ~
        > pub PUBLISH topic=t qos=1 id=3 payload="3"
        ! persist
        < pub PUBACK id=1
        < pub PUBACK id=2
        < pub PUBACK id=3
        ! power-cut
        = recovered sessions=1 queued=1 retained=0 wills=0
        > a CONNECT client=a clean=0
        < a CONNACK present=1 code=0
        < a PUBLISH topic=t qos=1 dup=1 id=1 payload="3"
        "#,
    );
    let losses = world.gateway.losses();
    assert_eq!(losses[0]["messages"], 2, "{losses}");
    world.lines();
}

/// A session that ends with its messages has not acknowledged them.
#[test]
fn a_session_that_ends_waits_for_the_flash() {
    let mut world = world(Setup::default());
    check_in(
        &mut world,
        r#"
        ! hold
        > pub PUBLISH topic=t qos=1 id=1 payload="x"
        < a PUBLISH topic=t qos=1 id=1 payload="x"
        < b PUBLISH topic=t qos=1 id=1 payload="x"
        > a PUBACK id=1
        > c CONNECT client=b clean=1
        < b closed taken_over
        ! persist
        < pub PUBACK id=1
        < c CONNACK present=0 code=0
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=0
        "#,
    );
}

/// Acknowledgements of consumers that no commit carries are on flash within 250 ms.
#[test]
fn settlements_are_flushed_within_a_quarter_second() {
    let mut world = world(Setup::default());
    check_in(
        &mut world,
        r#"
        > pub PUBLISH topic=t qos=1 id=1 payload="x"
        < a PUBLISH topic=t qos=1 id=1 payload="x"
        < b PUBLISH topic=t qos=1 id=1 payload="x"
        @ +10ms
        < pub PUBACK id=1
        > a PUBACK id=1
        > b PUBACK id=1
        @ +250ms
        ! power-cut
        = recovered sessions=2 queued=0 retained=0 wills=0
        "#,
    );
}
