//! The bench's loads in small: every shape arrives whole, offline sessions hold what was acknowledged, and the newest
//! connection of a client identifier wins.

use std::time::Duration;

use gateway_bench::durable::{self, DurablePlan};
use gateway_bench::idle::{self, IdlePlan};
use gateway_bench::link::Link;
use gateway_bench::load::{self, Amount, LoadPlan, Topology};
use gateway_bench::packet::ConnectOptions;

use crate::daemon::Daemon;

#[test]
fn every_shape_of_load_arrives_whole() {
    let daemon = Daemon::started("load", "");
    let shapes = [
        ("one to one", 1, 1, Topology::Pairs),
        ("pairs", 5, 5, Topology::Pairs),
        ("fan-in", 8, 1, Topology::All),
        ("fan-out", 1, 40, Topology::All),
    ];
    for (shape, publishers, subscribers, topology) in shapes {
        for (qos, persistent_subscribers) in [(0, false), (1, false), (1, true), (2, false), (2, true)] {
            let plan = LoadPlan {
                publishers,
                subscribers,
                topology,
                publish_qos: qos,
                subscribe_qos: qos,
                window: 20,
                amount: Amount::Messages(400),
                warm_up: 20,
                persistent_subscribers,
                ..LoadPlan::new(daemon.mqtt())
            };
            let report = load::run(&plan).unwrap();
            let expected = 400 * plan.fan_out();
            assert_eq!(
                (report.published, report.delivered, report.lost),
                (400, expected, 0),
                "{shape} at QoS {qos}, persistent {persistent_subscribers}"
            );
        }
    }
}

#[test]
fn offline_sessions_hold_what_was_acknowledged_and_syncs_are_shared() {
    let daemon = Daemon::started("durable-load", "");
    for qos in [1, 2] {
        let load = LoadPlan {
            publishers: 4,
            subscribers: 3,
            topology: Topology::All,
            publish_qos: qos,
            subscribe_qos: qos,
            payload_bytes: 100,
            window: 64,
            amount: Amount::Messages(3000),
            warm_up: 100,
            status_url: Some(format!("http://{}/api/v1/status", daemon.http())),
            ..LoadPlan::new(daemon.mqtt())
        };
        let report = durable::run(&DurablePlan { load, verify: true }).unwrap();
        assert_eq!(report.sessions.len(), 3);
        for session in &report.sessions {
            assert!(session.session_present, "{session:?}");
            assert_eq!((session.missing, session.disordered, session.delivered), (0, 0, 3100), "QoS {qos}");
        }
        let storage = report.load.storage.expect("the status tells it");
        assert!(storage.syncs < 1000, "{} syncs for 3000 messages, 256 in flight", storage.syncs);
    }
}

#[test]
fn idle_connections_are_kept_and_let_go() {
    let daemon = Daemon::started("idle", "");
    for _ in 0..2 {
        let plan = IdlePlan {
            address: daemon.mqtt(),
            user: None,
            connections: 500,
            subscribe: true,
            keep_alive_s: 60,
            watch: Duration::from_millis(100),
            pid: daemon.pid(),
        };
        assert_eq!(idle::run(&plan).unwrap().connections, 500);
    }
}

#[test]
fn the_newest_connection_of_a_client_identifier_wins() {
    let daemon = Daemon::started("takeover", "");
    let options = ConnectOptions::persistent("twin");
    let (mut first, present) = Link::open(daemon.mqtt(), &options).unwrap();
    assert!(!present);
    let (mut second, present) = Link::open(daemon.mqtt(), &options).unwrap();
    assert!(present, "the session is the identifier's, not the connection's");
    let mut scratch = [0; 64];
    let open = first.receive(&mut scratch, |packet, _| panic!("{packet:?} on the old connection"));
    assert!(!open.unwrap_or(false), "the old connection is closed");
    assert_eq!(second.subscribe("still/mine", 2).unwrap(), 2);
}
