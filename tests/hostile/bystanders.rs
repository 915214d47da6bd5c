//! Two clients that keep exchanging messages, so that a test sees whether others are disturbed.

use std::time::Duration;

use crate::support::driver::{Setup, World};

/// A world in which `ann` subscribes to what `bob` publishes.
pub fn world(setup: Setup) -> World {
    let mut world = World::new(setup);
    world.send("ann", "CONNECT client=ann keep_alive=0");
    world.send("ann", "SUBSCRIBE id=1 filter=bystanders/# qos=2");
    world.send("bob", "CONNECT client=bob keep_alive=0");
    world.lines();
    exchange(&mut world);
    world
}

/// A message at each QoS gets through, whole and once, and both are still there.
#[track_caller]
pub fn exchange(world: &mut World) {
    world.lines();
    world.send("bob", "PUBLISH topic=bystanders/x qos=0 payload=zero");
    assert_eq!(world.lines_of("ann"), [r#"PUBLISH topic=bystanders/x qos=0 payload="zero""#]);
    for qos in 1..=2 {
        world.send("bob", &format!("PUBLISH topic=bystanders/x qos={qos} id={qos} payload=more"));
        // A durable taker may be waited for, for a moment.
        world.pass(Duration::from_millis(20));
        let lines = world.lines();
        let delivered = lines.iter().find(|line| line.starts_with("< ann PUBLISH")).expect("it is delivered");
        let id =
            delivered.split(" id=").nth(1).and_then(|rest| rest.split(' ').next()).expect("an identifier");
        let answer = if qos == 1 { "PUBACK" } else { "PUBREC" };
        assert!(lines.contains(&format!("< bob {answer} id={qos}")), "{lines:?}");
        world.send("ann", &format!("{answer} id={id}"));
        if qos == 2 {
            world.send("bob", "PUBREL id=2");
            world.send("ann", &format!("PUBCOMP id={id}"));
        }
    }
    world.lines();
}

/// `bytes` from a fresh connection are answered like this, and the bystanders do not notice.
#[track_caller]
pub fn assert_answer(connect: Option<&str>, bytes: &[u8], expected: &[&str]) {
    let mut world = world(Setup::default());
    if let Some(connect) = connect {
        world.send("mallory", connect);
        world.lines();
    }
    world.send_bytes("mallory", bytes);
    assert_eq!(world.lines_of("mallory"), expected, "{bytes:02x?}");
    exchange(&mut world);
    assert_eq!(world.gateway.input_bytes(), 0, "an ended connection keeps nothing");
}
