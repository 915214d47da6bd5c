//! Classes of published vulnerabilities that are about the protocol's rules; those about memory are in tests/hostile.

use crate::support::driver::{Setup, World};
use crate::support::transcript::check;

/// CVE-2021-34432: a topic of no bytes.
#[test]
fn a_topic_of_no_bytes() {
    for qos in 0..=2 {
        let mut world = World::default();
        world.send("a", "CONNECT client=a");
        world.send("a", &format!("PUBLISH topic=\"\" qos={qos} id=1 payload=x"));
        assert_eq!(world.lines_of("a")[1..], ["closed protocol_error"]);
    }
}

/// CVE-2018-12543: a topic that begins with `$` and is not `$SYS`.
#[test]
fn a_publish_to_dollar_other() {
    check(
        r#"
        > a CONNECT client=a
        < a CONNACK present=0 code=0
        > a PUBLISH topic=$other/x qos=1 retain=1 id=1 payload="x"
        < a PUBACK id=1
        > a PUBLISH topic=$other/x qos=1 retain=1 id=2 payload=""
        < a PUBACK id=2
        "#,
    );
}

/// CVE-2017-7650, Moquette 0.18.1, CVE-2026-44838: a client identifier or user name that is a wildcard, or has a
/// separator, must not match other clients' topics through a pattern.
#[test]
fn wildcards_in_client_identifiers_give_no_rights() {
    for identifier in ["+", "#", "a/+", "+/#", ".*", "(x)", "a/b"] {
        let mut world = World::new(Setup::with_acl(
            "pattern readwrite clients/%c/data\npattern readwrite users/%u/data\n",
        ));
        world.send("victim", "CONNECT client=victim");
        world.send("victim", "SUBSCRIBE id=1 filter=clients/victim/data qos=0");
        assert_eq!(world.lines_of("victim")[1], "SUBACK id=1 codes=0");
        world.send("mallory", &format!("CONNECT client={identifier}"));
        world.lines();
        world.send(
            "mallory",
            "SUBSCRIBE id=1 filter=clients/+/data qos=0 filter=clients/victim/data qos=0 filter=# qos=0",
        );
        // A filter that is wider than the rights is granted and brings what the rights allow.
        let suback = world.lines_of("mallory").remove(0);
        assert_eq!(suback.split(',').nth(1), Some("0x80"), "{identifier}: {suback}");
        world.send("mallory", "PUBLISH topic=clients/victim/data payload=forged");
        world.send("victim", "PUBLISH topic=clients/victim/data payload=secret");
        let lines = world.lines();
        assert_eq!(
            lines,
            [r#"< victim PUBLISH topic=clients/victim/data qos=0 payload="secret""#],
            "{identifier}"
        );
    }
}

/// CVE-2021-34434, CVE-2018-12546: a right that was revoked. A subscription that is wider than the rights gets only
/// what the rights allow, also from the past and from a session that was made when the rights were wider.
#[test]
fn revoked_rights_stop_deliveries() {
    let mut world = World::default();
    world.send("sub", "CONNECT client=sub clean=0");
    world.send("sub", "SUBSCRIBE id=1 filter=# qos=1");
    world.send("sub", "DISCONNECT");
    world.send("pub", "CONNECT client=pub");
    world.send("pub", "PUBLISH topic=secret qos=1 retain=1 id=1 payload=s1");
    world.send("pub", "PUBLISH topic=public qos=1 retain=1 id=2 payload=p1");
    world.send("pub", "PUBLISH topic=secret qos=2 id=3 payload=s2");
    world.pass(std::time::Duration::from_secs(1));
    world.setup =
        Setup { acl: Setup::with_acl("topic read public\ntopic write #\n").acl, ..world.setup.clone() };
    world.cut_power();
    world.lines();
    world.send("sub", "CONNECT client=sub clean=0");
    assert_eq!(
        world.lines_of("sub"),
        ["CONNACK present=1 code=0", "PUBLISH topic=public qos=1 dup=1 id=2 payload=\"p1\""],
        "what waited"
    );
    world.send("pub", "CONNECT client=pub");
    world.lines();
    world.send("pub", "PUBLISH topic=secret qos=0 payload=s3");
    world.send("pub", "PUBLISH topic=secret qos=1 id=1 payload=s4");
    world.send("pub", "PUBLISH topic=public qos=0 payload=p2");
    assert_eq!(world.lines_of("sub"), ["PUBLISH topic=public qos=0 payload=\"p2\""], "what comes");
    world.send("sub", "SUBSCRIBE id=2 filter=+ qos=0");
    let lines = world.lines_of("sub");
    assert!(!lines.iter().any(|line| line.contains("secret")), "retained: {lines:?}");
    assert_eq!(world.figure("sessions.queued"), 1, "what may not be delivered does not wait either");
}

/// CVE-2018-12550, -12551: an empty ACL file allows nothing, and a file with a bad line is no file.
#[test]
fn an_empty_acl_file_allows_nothing() {
    let mut world = World::new(Setup::with_acl("# nothing\n"));
    world.send("a", "CONNECT client=a");
    world.send("a", "SUBSCRIBE id=1 filter=t qos=0");
    world.send("a", "PUBLISH topic=t qos=1 retain=1 id=1 payload=x");
    assert_eq!(world.lines_of("a"), ["CONNACK present=0 code=0", "SUBACK id=1 codes=0x80", "PUBACK id=1"]);
    assert_eq!(world.figure("retained.count"), 0);
    assert!(gatewayd::auth::Users::parse(b"just_a_name\n").is_err());
    assert!(gatewayd::auth::Acl::parse(b"topic sometimes t\n").is_err());
}

/// CVE-2026-8741: QoS 2 in a persistent session whose connections follow each other quickly.
#[test]
fn qos_2_in_a_session_that_changes_hands() {
    check(
        r#"
        > sub CONNECT client=s clean=0
        < sub CONNACK present=0 code=0
        > sub SUBSCRIBE id=1 filter=t qos=2
        < sub SUBACK id=1 codes=2
        > pub CONNECT client=p
        < pub CONNACK present=0 code=0
        ! hold
        > pub PUBLISH topic=t qos=2 id=1 payload="x"
        # The delivery waits for its identifier while the session changes hands, twice.
        > sub2 CONNECT client=s clean=0
        < sub closed taken_over
        < sub2 CONNACK present=1 code=0
        > sub3 CONNECT client=s clean=0
        < sub2 closed taken_over
        < sub3 CONNACK present=1 code=0
        ! release
        < pub PUBREC id=1
        < sub3 PUBLISH topic=t qos=2 id=1 payload="x"
        ! hold
        > sub3 PUBREC id=1
        > sub4 CONNECT client=s clean=0
        < sub3 closed taken_over
        < sub4 CONNACK present=1 code=0
        ! release
        < sub4 PUBREL id=1
        > sub4 PUBCOMP id=1
        > sub5 CONNECT client=s clean=0
        < sub4 closed taken_over
        < sub5 CONNACK present=1 code=0
        "#,
    );
}

/// codepr/sol 17: the old connection of a client identifier that is taken over hears nothing any more.
#[test]
fn a_taken_over_connection_hears_nothing() {
    check(
        r#"
        > old CONNECT client=c
        < old CONNACK present=0 code=0
        > old SUBSCRIBE id=1 filter=t qos=0
        < old SUBACK id=1 codes=0
        ! new accept
        ! pub accept
        > new CONNECT client=c ~
        > pub CONNECT client=p ~
        > pub PUBLISH topic=t payload="secret"
        < old closed taken_over
        < new CONNACK present=0 code=0
        < pub CONNACK present=0 code=0
        "#,
    );
}
