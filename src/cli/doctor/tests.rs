//! The doctor on gateways that answer as they are told to here: what each line says, and how bad it is.

use serde_json::json;

use super::super::user::tests::Scratch;
use super::*;
use crate::time::{Mono, Wall};

const NOW: Now = Now { mono: Mono(0), wall: Wall(1_796_000_000_000), wall_trusted: true };

/// The lines of a report on a gateway that answers like this, and whether it is well.
fn report(config: &Config, now: Now, answers: &[(&str, Value)], scratch: &Scratch) -> (Exit, Vec<String>) {
    let ask = |path: &str| {
        let answer = answers.iter().find(|(asked, _)| *asked == path);
        answer.map(|(_, value)| value.clone()).ok_or_else(|| format!("no {path}"))
    };
    let (exit, out, _) = scratch.run(|io| doctor(config, now, &ask, io));
    (exit, out.lines().map(str::to_owned).collect())
}

fn status() -> Value {
    json!({
        "healthy": true, "warnings": [], "uptime_s": 5, "denied": { "login": 0 }, "lost": { "messages": 0 },
        "flash": { "bytes_written": 40_000, "bytes_today": 40_000, "budget_bytes_per_day": 8u64 << 30 },
    })
}

fn config(scratch: &Scratch) -> Config {
    let mut config = Config::default();
    config.storage.path = scratch.path("");
    config.storage.reserve_free = 1;
    std::fs::set_permissions(scratch.path(""), std::fs::Permissions::from_mode(0o700)).unwrap();
    config
}

#[test]
fn a_gateway_that_has_just_begun_is_well() {
    let scratch = Scratch::new("doctor-fresh");
    let answers = [
        ("/api/v1/status", status()),
        ("/api/v1/collections/readings", json!({ "series": [], "shared": 0 })),
    ];
    let (exit, lines) = report(&config(&scratch), NOW, &answers, &scratch);
    assert!(lines[1].starts_with("ok       disk: "), "{lines:?}");
    let expected = [
        "ok       clock: set",
        "ok       storage.path: mode 700",
        "ok       gateway: healthy",
        "ok       losses: 0 messages since the start",
        "ok       write rate: 39.0KiB today of 8GiB (storage.bytes_per_day_budget); too early to foretell a day",
        "note     route readings: no reading of readings came by it yet: see ingest.readings.topics, and gatewayd trace \
         TOPIC",
    ];
    let shown: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.contains("disk: ")).collect();
    assert_eq!((exit, shown), (Exit::Ok, expected.to_vec()));
}

#[test]
fn what_is_wrong_is_told_with_what_to_do() {
    let scratch = Scratch::new("doctor");
    let acl = scratch.path("acl");
    scratch.write("acl", "topic read #\nuser ada\ntopic in/#\n");
    std::fs::set_permissions(&acl, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut config = config(&scratch);
    config.auth.acl_file = Some(acl.clone());
    let mut status = status();
    status["warnings"] = json!(["the clock is not trusted: times are estimates", "session s is 90 % full"]);
    status["denied"] = json!({ "login": 2, "publish": 0 });
    status["uptime_s"] = json!(86_400 / 2);
    status["flash"]["bytes_written"] = json!(5u64 << 30);
    let answers = [
        ("/api/v1/status", status),
        ("/api/v1/acl", json!({ "lines": 2, "unmet": [1, 3] })),
        (
            "/api/v1/collections/readings",
            json!({ "series": [{ "topic": "sensors/a" }, { "topic": "else" }], "shared": 0 }),
        ),
    ];
    let (exit, lines) = report(&config, Now { wall_trusted: false, ..NOW }, &answers, &scratch);
    assert_eq!(exit, Exit::Failed);
    let shown = acl.display();
    for expected in [
        "PROBLEM  clock: not set or not synchronised: times are estimates; see timedatectl".to_owned(),
        format!("PROBLEM  auth.acl_file: mode 644, everybody may use it: chmod o= {shown}"),
        format!("PROBLEM  rights: {shown}:3: `topic in/#` is for ada, but there is no auth.password_file"),
        format!("note     rights: {shown}:1: `topic read #` matched nothing since the rules were read"),
        "PROBLEM  gateway: session s is 90 % full".to_owned(),
        "PROBLEM  rights: 2 times denied to login, see /api/v1/denials and gatewayd acl test".to_owned(),
        "PROBLEM  write rate: 10GiB a day as it goes now of 8GiB (storage.bytes_per_day_budget): commits will be \
         spread; send less with QoS 1, or raise the budget if the flash can take it"
            .to_owned(),
        "ok       route readings: 1 topics in collection readings".to_owned(),
    ] {
        assert!(lines.contains(&expected), "{expected}\nis not in\n{}", lines.join("\n"));
    }
    assert!(!lines.iter().any(|line| line.contains("the clock is not trusted")), "{lines:?}");
    let (exit, lines) = report(&config, NOW, &[], &scratch);
    assert!(exit == Exit::Failed && lines.last().unwrap().starts_with("PROBLEM  gateway: no "), "{lines:?}");
}

#[test]
fn lines_for_nobody_and_lines_that_met_nothing_are_told() {
    let scratch = Scratch::new("doctor-access");
    scratch.write("acl", "topic read news/#\nuser ada\ntopic in/+\nuser bob\ntopic #\npattern read %u/#\n");
    scratch.write("passwords", "");
    let mut config = config(&scratch);
    config.auth.acl_file = Some(scratch.path("acl"));
    config.auth.password_file = Some(scratch.path("passwords"));
    for listener in &mut config.listeners {
        listener.allow_anonymous = false;
    }
    let (_, out, err) = scratch.run_with("secret\n", None, |io| {
        let command = crate::cli::UserCommand {
            action: crate::cli::UserAction::Add,
            name: "ada".to_owned(),
            password_file: Some(scratch.path("passwords")),
            password_stdin: true,
            iterations: Some(1),
        };
        crate::cli::user(None, &command, io)
    });
    assert_eq!(err, "", "{out}");
    let look = |config: &Config, used: &Value| {
        let mut found = Vec::new();
        access::look(config, Some(used), &crate::config::Files { state_path: scratch.path("") }, &mut found);
        let name = format!("{}:", scratch.path("acl").display());
        found.into_iter().map(|(level, text)| (level, text.replace(&name, ""))).collect::<Vec<_>>()
    };
    let used = json!({ "lines": 4, "unmet": [1, 3, 5, 6] });
    let nameless =
        "rights: 1: `topic read news/#` is for clients without a name, and no listener has allow_anonymous";
    let expected = [
        (Level::Note, nameless),
        (Level::Problem, "rights: 5: `topic #` is for bob, who is not in auth.password_file"),
        (Level::Note, "rights: 3: `topic in/+` matched nothing since the rules were read"),
        (Level::Note, "rights: 6: `pattern read %u/#` matched nothing since the rules were read"),
    ];
    assert_eq!(look(&config, &used), expected.map(|(level, text)| (level, text.to_owned())));
    // A file that has changed since has other lines.
    assert_eq!(look(&config, &json!({ "lines": 5, "unmet": [3] })).len(), 2);
    // A certificate may name anybody.
    config.listeners[0].client_cert = crate::config::ClientCert::Optional;
    assert_eq!(look(&config, &json!({ "lines": 4, "unmet": [] })).len(), 1);
}
