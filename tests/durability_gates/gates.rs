//! The gate table: a reply that waits does not leave while the store holds its batch, leaves after, and a power cut
//! right after it finds the state there; a reply that does not wait leaves though the store holds everything.

use crate::support::driver::World;
use crate::support::transcript::{check, check_in};

/// A subscriber that is away, with a session that wants `a` at QoS 2.
const AWAY: &str = "
    > away CONNECT client=away clean=0
    < away CONNACK present=0 code=0
    > away SUBSCRIBE id=1 filter=a qos=2
    < away SUBACK id=1 codes=2
    > away DISCONNECT
    < away closed disconnect
    @ +2s
";

fn with_away(script: &str) -> World {
    check(&format!("{AWAY}{script}"))
}

// What waits.

#[test]
fn puback_waits() {
    with_away(
        r#"
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=a qos=1 id=1 payload="kept"
        @ +1h
        ! persist
        < pub PUBACK id=1
        ! power-cut
        = recovered sessions=1 queued=1 retained=0 wills=0
        > away CONNECT client=away clean=0
        < away CONNACK present=1 code=0
        < away PUBLISH topic=a qos=1 dup=1 id=1 payload="kept"
        "#,
    );
}

#[test]
fn puback_of_a_retained_value_waits() {
    check(
        r#"
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=r qos=1 retain=1 id=1 payload="v"
        @ +1h
        ! persist
        < pub PUBACK id=1
        ! power-cut
        = recovered sessions=0 queued=0 retained=1 wills=0
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=r qos=1
        < sub SUBACK id=1 codes=1
        < sub PUBLISH topic=r qos=1 retain=1 id=1 payload="v"
        "#,
    );
}

#[test]
fn puback_of_a_replaced_or_deleted_value_waits() {
    check(
        r#"
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=r qos=1 retain=1 id=1 payload="old"
        < pub PUBACK id=1
        > pub PUBLISH topic=s qos=1 retain=1 id=2 payload="old"
        < pub PUBACK id=2
        ! hold
        > pub PUBLISH topic=r qos=1 retain=1 id=3 payload="new" ~
        > pub PUBLISH topic=s qos=1 retain=1 id=4 payload=""
        ! persist
        < pub PUBACK id=3
        < pub PUBACK id=4
        ! power-cut
        = recovered sessions=0 queued=0 retained=1 wills=0
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=# qos=0
        < sub SUBACK id=1 codes=0
        < sub PUBLISH topic=r qos=0 retain=1 payload="new"
        "#,
    );
}

#[test]
fn pubrec_waits() {
    with_away(
        r#"
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=a qos=2 id=1 payload="kept"
        @ +1h
        ! persist
        < pub PUBREC id=1
        ! power-cut
        = recovered sessions=1 queued=1 retained=0 wills=0
        > away CONNECT client=away clean=0
        < away CONNACK present=1 code=0
        < away PUBLISH topic=a qos=2 id=1 payload="kept"
        "#,
    );
}

/// The publisher's identifier is kept too, also when nobody wants the message.
#[test]
fn pubrec_of_a_durable_publisher_waits() {
    with_away(
        r#"
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=a qos=2 id=1 payload="once" ~
        > pub PUBLISH topic=nobody qos=2 id=2 payload="once"
        @ +1h
        ! persist
        < pub PUBREC id=1
        < pub PUBREC id=2
        ! power-cut
        = recovered sessions=2 queued=1 retained=0 wills=0
        > live CONNECT client=live
        < live CONNACK present=0 code=0
        > live SUBSCRIBE id=1 filter=# qos=0
        < live SUBACK id=1 codes=0
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=1 code=0
        > pub PUBLISH topic=a qos=2 dup=1 id=1 payload="once"
        < pub PUBREC id=1
        > pub PUBLISH topic=nobody qos=2 dup=1 id=2 payload="once"
        < pub PUBREC id=2
        "#,
    );
}

/// A repeat must not be answered before the batch of the original is there.
#[test]
fn pubrec_of_a_repeat_waits_for_the_original() {
    check(
        r#"
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=t qos=2 id=1 payload="once"
        ! pub reset
        < pub closed peer_closed
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=1 code=0
        > pub PUBLISH topic=t qos=2 dup=1 id=1 payload="once"
        ! persist
        < pub PUBREC id=1
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=0
        "#,
    );
}

#[test]
fn outbound_pubrel_waits() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=a qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=a qos=2 id=1 payload="once"
        < pub PUBREC id=1
        < sub PUBLISH topic=a qos=2 id=1 payload="once"
        ! hold
        > sub PUBREC id=1
        @ +1h
        ! persist
        < sub PUBREL id=1
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=0
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBREL id=1
        "#,
    );
}

#[test]
fn outbound_pubcomp_waits() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=a qos=1
        < sub SUBACK id=1 codes=1
        > sub DISCONNECT
        < sub closed disconnect
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=a qos=2 id=1 payload="first"
        < pub PUBREC id=1
        ! hold
        > pub PUBREL id=1
        @ +1h
        ! persist
        < pub PUBCOMP id=1
        ! power-cut
        = recovered sessions=2 queued=1 retained=0 wills=0
        # The identifier was released, so this is another message.
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=1 code=0
        > pub PUBLISH topic=a qos=2 id=1 payload="second"
        < pub PUBREC id=1
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBLISH topic=a qos=1 dup=1 id=1 payload="first"
        < sub PUBLISH topic=a qos=1 id=2 payload="second"
        "#,
    );
}

/// PUBCOMP for a repeated PUBREL must not overtake the batch of the first.
#[test]
fn outbound_pubcomp_of_a_repeat_waits() {
    check(
        r#"
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=a qos=2 id=1
        < pub PUBREC id=1
        ! hold
        > pub PUBREL id=1
        > pub PUBREL id=1
        @ +1h
        ! persist
        < pub PUBCOMP id=1
        < pub PUBCOMP id=1
        "#,
    );
}

#[test]
fn outbound_qos_2_publish_waits() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=a qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=a qos=2 id=1 payload="once"
        @ +1h
        ! persist
        < pub PUBREC id=1
        < sub PUBLISH topic=a qos=2 id=1 payload="once"
        ! power-cut
        = recovered sessions=1 queued=1 retained=0 wills=0
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBLISH topic=a qos=2 dup=1 id=1 payload="once"
        "#,
    );
}

/// A message that waited in the queue gets its identifier later than the message is kept.
#[test]
fn outbound_qos_2_publish_from_the_queue_waits() {
    with_away(
        r#"
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=a qos=2 id=1 payload="once"
        < pub PUBREC id=1
        ! hold
        > away CONNECT client=away clean=0
        < away CONNACK present=1 code=0
        @ +1h
        ! persist
        < away PUBLISH topic=a qos=2 id=1 payload="once"
        ! power-cut
        = recovered sessions=1 queued=1 retained=0 wills=0
        > away CONNECT client=away clean=0
        < away CONNACK present=1 code=0
        < away PUBLISH topic=a qos=2 dup=1 id=1 payload="once"
        "#,
    );
}

#[test]
fn suback_of_a_durable_session_waits() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        ! hold
        > sub SUBSCRIBE id=1 filter=a qos=1 filter=b qos=0
        @ +1h
        ! persist
        < sub SUBACK id=1 codes=1,0
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=0
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=a qos=1 id=1 payload="x"
        < pub PUBACK id=1
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBLISH topic=a qos=1 id=1 payload="x"
        > pub PUBLISH topic=b qos=1 id=2 payload="y"
        < pub PUBACK id=2
        < sub PUBLISH topic=b qos=0 payload="y"
        "#,
    );
}

/// A changed QoS is a change; the same subscription once more is none, but must not be answered before it is kept.
#[test]
fn suback_of_a_repeated_subscription_waits_for_the_first() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        ! hold
        > sub SUBSCRIBE id=1 filter=a qos=1
        > sub SUBSCRIBE id=2 filter=a qos=1
        ! persist
        < sub SUBACK id=1 codes=1
        < sub SUBACK id=2 codes=1
        > sub SUBSCRIBE id=3 filter=a qos=0
        @ +1h
        ! persist
        < sub SUBACK id=3 codes=0
        > sub SUBSCRIBE id=4 filter=a qos=0
        < sub SUBACK id=4 codes=0
        "#,
    );
}

#[test]
fn unsuback_of_a_durable_session_waits() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=a qos=1
        < sub SUBACK id=1 codes=1
        ! hold
        > sub UNSUBSCRIBE id=2 filter=a
        @ +1h
        ! persist
        < sub UNSUBACK id=2
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=0
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=a qos=1 id=1 payload="x"
        < pub PUBACK id=1
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        "#,
    );
}

#[test]
fn connack_that_creates_a_session_waits() {
    check(
        r#"
        ! hold
        > sub CONNECT client=sub clean=0
        @ +1h
        ! persist
        < sub CONNACK present=0 code=0
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=0
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        "#,
    );
}

#[test]
fn connack_that_ends_a_session_waits() {
    with_away(
        r#"
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=a qos=1 id=1 payload="of the old session"
        < pub PUBACK id=1
        ! hold
        > new CONNECT client=away clean=1
        @ +1h
        ! persist
        < new CONNACK present=0 code=0
        ! power-cut
        = recovered sessions=0 queued=0 retained=0 wills=0
        > away CONNECT client=away clean=0
        < away CONNACK present=0 code=0
        "#,
    );
}

/// It was never on flash, but its creation is under way.
#[test]
fn connack_that_ends_a_session_under_way_waits() {
    check(
        r#"
        ! hold
        > one CONNECT client=c clean=0
        > two CONNECT client=c clean=1
        < one closed taken_over
        @ +1h
        ! persist
        ! persist
        < two CONNACK present=0 code=0
        ! power-cut
        = recovered sessions=0 queued=0 retained=0 wills=0
        "#,
    );
}

/// Session present is said only when the session would be there after a power cut.
#[test]
fn connack_of_a_session_under_way_waits() {
    check(
        r#"
        ! hold
        > one CONNECT client=c clean=0
        > two CONNECT client=c clean=0
        < one closed taken_over
        @ +1h
        ! persist
        < two CONNACK present=1 code=0
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=0
        "#,
    );
}

// What does not wait.

fn held(script: &str) {
    let mut world = World::default();
    check_in(&mut world, AWAY);
    // The store holds a batch, and more waits behind it: nothing below can be due through the flash.
    check_in(
        &mut world,
        r#"
        > other CONNECT client=other
        < other CONNACK present=0 code=0
        ! hold
        > other PUBLISH topic=a qos=1 id=1 payload="held"
        > other PUBLISH topic=a qos=1 id=2 payload="held"
        "#,
    );
    assert!(world.has_batch());
    let persisted = world.gateway.persisted_batch();
    check_in(&mut world, script);
    assert_eq!(world.gateway.persisted_batch(), persisted);
}

#[test]
fn qos_0_does_not_wait() {
    held(
        r#"
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=1
        < sub SUBACK id=1 codes=1
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t payload="x"
        < sub PUBLISH topic=t qos=0 payload="x"
        > pub PUBLISH topic=t retain=1 payload="y"
        < sub PUBLISH topic=t qos=0 payload="y"
        "#,
    );
}

#[test]
fn outbound_qos_1_publish_does_not_wait() {
    let mut world = World::default();
    check_in(
        &mut world,
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=1
        < sub SUBACK id=1 codes=1
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=t qos=1 id=1 payload="x"
        < sub PUBLISH topic=t qos=1 id=1 payload="x"
        "#,
    );
}

#[test]
fn pingresp_does_not_wait() {
    held(
        r#"
        > other PINGREQ
        < other PINGRESP
        "#,
    );
}

#[test]
fn connack_of_a_clean_session_does_not_wait() {
    held(
        r#"
        > c CONNECT client=c
        < c CONNACK present=0 code=0
        > d CONNECT client=c
        < c closed taken_over
        < d CONNACK present=0 code=0
        "#,
    );
}

#[test]
fn connack_of_a_resumed_session_does_not_wait() {
    held(
        r#"
        > away CONNECT client=away clean=0
        < away CONNACK present=1 code=0
        < away PUBLISH topic=a qos=1 id=1 payload="held"
        < away PUBLISH topic=a qos=1 id=2 payload="held"
        > again CONNECT client=away clean=0
        < away closed taken_over
        < again CONNACK present=1 code=0
        < again PUBLISH topic=a qos=1 dup=1 id=1 payload="held"
        < again PUBLISH topic=a qos=1 dup=1 id=2 payload="held"
        "#,
    );
}

#[test]
fn suback_and_unsuback_of_a_clean_session_do_not_wait() {
    held(
        r#"
        > c CONNECT client=c
        < c CONNACK present=0 code=0
        > c SUBSCRIBE id=1 filter=t qos=2
        < c SUBACK id=1 codes=2
        > c UNSUBSCRIBE id=2 filter=t
        < c UNSUBACK id=2
        "#,
    );
}

#[test]
fn acknowledgements_without_a_durable_taker_do_not_wait() {
    held(
        r#"
        > sub CONNECT client=sub
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=1 id=1 payload="1"
        < pub PUBACK id=1
        < sub PUBLISH topic=t qos=1 id=1 payload="1"
        > pub PUBLISH topic=t qos=2 id=2 payload="2"
        < pub PUBREC id=2
        < sub PUBLISH topic=t qos=2 id=2 payload="2"
        > pub PUBREL id=2
        < pub PUBCOMP id=2
        > sub PUBREC id=2
        < sub PUBREL id=2
        > pub PUBLISH topic=nobody qos=2 id=3
        < pub PUBREC id=3
        "#,
    );
}

/// A will is on flash within a batch of its CONNECT, and CONNACK does not wait for it.
#[test]
fn connack_does_not_wait_for_the_will() {
    let mut world = World::default();
    check_in(
        &mut world,
        r#"
        > watch CONNECT client=watch clean=0
        < watch CONNACK present=0 code=0
        > watch SUBSCRIBE id=1 filter=w qos=1
        < watch SUBACK id=1 codes=1
        ! hold
        > c CONNECT client=c will_topic=w will_qos=1 will_payload="gone"
        < c CONNACK present=0 code=0
        ! persist
        ! power-cut
        = recovered sessions=1 queued=0 retained=0 wills=1
        > watch CONNECT client=watch clean=0
        < watch CONNACK present=1 code=0
        < watch PUBLISH topic=w qos=1 id=1 payload="gone"
        "#,
    );
}

/// A power cut while the store holds the batch: what was not acknowledged may be gone, and nothing else is.
#[test]
fn what_was_not_acknowledged_may_be_lost_and_is_sent_again() {
    with_away(
        r#"
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=a qos=1 id=1 payload="acknowledged"
        < pub PUBACK id=1
        ! hold
        > pub PUBLISH topic=a qos=2 id=2 payload="under way"
        ! power-cut
        = recovered sessions=2 queued=1 retained=0 wills=0
        > pub CONNECT client=pub clean=0
        < pub CONNACK present=1 code=0
        > pub PUBLISH topic=a qos=2 dup=1 id=2 payload="under way"
        < pub PUBREC id=2
        > pub PUBREL id=2
        < pub PUBCOMP id=2
        > away CONNECT client=away clean=0
        < away CONNACK present=1 code=0
        < away PUBLISH topic=a qos=1 dup=1 id=1 payload="acknowledged"
        < away PUBLISH topic=a qos=2 id=2 payload="under way"
        "#,
    );
}

/// [MQTT-3.3.1-1] What waited for a session is sent as soon as its client is back, before flash knows of that. Where a
/// cut leaves it open whether something was sent, it is marked when it comes (again).
#[test]
fn what_was_sent_after_a_return_comes_again_marked() {
    let mut world = World::default();
    check_in(
        &mut world,
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=2
        < sub SUBACK id=1 codes=2
        > sub DISCONNECT
        < sub closed disconnect
        @ +2s
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=1 id=1 payload="waits"
        < pub PUBACK id=1
        "#,
    );
    world.hold();
    let sent = r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=1 code=0
        < sub PUBLISH topic=t qos=1 id=1 payload="waits"
        "#;
    let again = sent.replace("qos=1 id", "qos=1 dup=1 id");
    check_in(&mut world, sent);
    for _ in 0..3 {
        world.cut_power();
        world.lines();
        world.hold();
        check_in(&mut world, &again);
    }
    // The mark outlives clean stops; what comes anew has none.
    world.release();
    check_in(&mut world, "> sub DISCONNECT\n< sub closed disconnect\n");
    for _ in 0..2 {
        world.stop();
        world.lines();
        check_in(&mut world, &again);
        check_in(&mut world, "> sub DISCONNECT\n< sub closed disconnect\n");
    }
    check_in(
        &mut world,
        r#"
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        > pub PUBLISH topic=t qos=1 id=2 payload="new"
        < pub PUBACK id=2
        "#,
    );
    world.stop();
    world.lines();
    check_in(&mut world, &format!("{again}< sub PUBLISH topic=t qos=1 id=2 payload=\"new\"\n"));
}
