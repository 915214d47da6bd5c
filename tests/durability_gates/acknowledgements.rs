//! Whose acknowledgement waits: who takes durably, and the order in which acknowledgements leave.

use crate::support::driver::World;
use crate::support::transcript::check;

/// A session takes durably when it is kept and min(publish QoS, subscription QoS) >= 1.
#[test]
fn a_kept_session_takes_durably_from_qos_1_on() {
    for publish_qos in 1..=2 {
        for subscription_qos in 0..=2 {
            for clean in [0, 1] {
                let mut world = World::default();
                world.send("sub", &format!("CONNECT client=sub clean={clean}"));
                world.send("sub", &format!("SUBSCRIBE id=1 filter=t qos={subscription_qos}"));
                if clean == 0 {
                    world.send("sub", "DISCONNECT");
                }
                world.send("pub", "CONNECT client=pub");
                world.hold();
                world.lines();
                world.send("pub", &format!("PUBLISH topic=t qos={publish_qos} id=1"));
                let waits = world.lines_of("pub").is_empty();
                let expected = clean == 0 && subscription_qos >= 1;
                assert_eq!(
                    waits, expected,
                    "publish {publish_qos}, subscription {subscription_qos}, clean {clean}"
                );
                world.release();
                assert_eq!(world.lines_of("pub").len(), usize::from(expected));
            }
        }
    }
}

/// With overlapping subscriptions the best of them decides.
#[test]
fn the_best_of_overlapping_subscriptions_decides() {
    check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t/# qos=0 filter=t/+ qos=1
        < sub SUBACK id=1 codes=0,1
        > sub DISCONNECT
        < sub closed disconnect
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=t/a/b qos=1 id=1
        < pub PUBACK id=1
        > pub PUBLISH topic=t/a qos=1 id=2
        ! release
        < pub PUBACK id=2
        "#,
    );
}

/// QoS 0 is not kept for who is away, and takes no flash.
#[test]
fn qos_0_is_not_kept() {
    let mut world = check(
        r#"
        > sub CONNECT client=sub clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=1
        < sub SUBACK id=1 codes=1
        > sub DISCONNECT
        < sub closed disconnect
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        @ +2s
        "#,
    );
    let batches = world.batches;
    for _ in 0..100 {
        world.send("pub", "PUBLISH topic=t payload=x");
    }
    world.pass(std::time::Duration::from_secs(10));
    assert_eq!(world.batches, batches);
    world.send("sub", "CONNECT client=sub clean=0");
    assert_eq!(world.lines_of("sub"), ["CONNACK present=1 code=0"]);
}

/// One that is due through elision waits for one before it that is not.
#[test]
fn an_elided_message_does_not_overtake() {
    check(
        r#"
        > away CONNECT client=away clean=0
        < away CONNACK present=0 code=0
        > away SUBSCRIBE id=1 filter=slow qos=1
        < away SUBACK id=1 codes=1
        > away DISCONNECT
        < away closed disconnect
        > live CONNECT client=live clean=0
        < live CONNACK present=0 code=0
        > live SUBSCRIBE id=1 filter=fast qos=1
        < live SUBACK id=1 codes=1
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=slow qos=1 id=1
        > pub PUBLISH topic=fast qos=1 id=2
        < live PUBLISH topic=fast qos=1 id=1 payload=""
        > live PUBACK id=1
        > pub PUBLISH topic=slow qos=1 id=3
        > pub PUBLISH topic=nobody qos=2 id=4
        ! persist
        < pub PUBACK id=1
        < pub PUBACK id=2
        ! persist
        < pub PUBACK id=3
        < pub PUBREC id=4
        "#,
    );
}

/// SUBACK, PUBACK, PUBREC and PUBCOMP of one connection keep to one line.
#[test]
fn all_replies_of_a_connection_leave_in_order() {
    check(
        r#"
        > c CONNECT client=c clean=0
        < c CONNACK present=0 code=0
        ! hold
        > c SUBSCRIBE id=1 filter=a qos=0
        > c PUBLISH topic=b qos=1 id=2
        > c PUBLISH topic=c qos=2 id=3
        > c PUBREL id=3
        > c UNSUBSCRIBE id=4 filter=a
        > c PUBLISH topic=d qos=1 id=5
        ! persist
        < c SUBACK id=1 codes=0
        < c PUBACK id=2
        ! persist
        < c PUBREC id=3
        < c PUBCOMP id=3
        < c UNSUBACK id=4
        < c PUBACK id=5
        "#,
    );
}

/// One slow batch does not hold back what other connections are owed.
#[test]
fn connections_do_not_wait_for_each_other() {
    check(
        r#"
        > away CONNECT client=away clean=0
        < away CONNACK present=0 code=0
        > away SUBSCRIBE id=1 filter=slow qos=1
        < away SUBACK id=1 codes=1
        > away DISCONNECT
        < away closed disconnect
        > p CONNECT client=p
        < p CONNACK present=0 code=0
        > q CONNECT client=q
        < q CONNACK present=0 code=0
        ! hold
        > p PUBLISH topic=slow qos=1 id=1
        > q PUBLISH topic=nobody qos=1 id=1
        < q PUBACK id=1
        "#,
    );
}

/// What many publishers send in one round is one batch.
#[test]
fn a_round_is_one_batch() {
    let mut world = check(
        r#"
        > away CONNECT client=away clean=0
        < away CONNACK present=0 code=0
        > away SUBSCRIBE id=1 filter=# qos=1
        < away SUBACK id=1 codes=1
        > away DISCONNECT
        < away closed disconnect
        @ +2s
        "#,
    );
    for n in 0..50 {
        world.send(&format!("p{n}"), &format!("CONNECT client=p{n}"));
    }
    world.lines();
    let batches = world.batches;
    for n in 0..50 {
        for id in 1..=20 {
            world.queue(&format!("p{n}"), &format!("PUBLISH topic=t/{n} qos=1 id={id} payload=x*100"));
        }
    }
    world.settle();
    assert_eq!(world.lines().len(), 1000);
    assert_eq!(world.batches, batches + 1);
}

/// A client that sends QoS 1 and leaves at once does not take its message along.
#[test]
fn a_publisher_that_leaves_has_published() {
    check(
        r#"
        > away CONNECT client=away clean=0
        < away CONNACK present=0 code=0
        > away SUBSCRIBE id=1 filter=a qos=1
        < away SUBACK id=1 codes=1
        > away DISCONNECT
        < away closed disconnect
        > pub CONNECT client=pub
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=a qos=1 id=1 payload="x" ~
        > pub DISCONNECT
        < pub closed disconnect
        ! release
        ! power-cut
        = recovered sessions=1 queued=1 retained=0 wills=0
        "#,
    );
}
