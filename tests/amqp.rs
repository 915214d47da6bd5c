//! AMQP 0-9-1 by stock clients against the real binary: pika's scripts are in `tests/amqp/`, MQTT comes from mosquitto's
//! clients. Each script checks what it sees and says `ok`.
//!
//! `./scripts/test` installs what they need. Each test has its own daemon, state folder and ports.
#![expect(clippy::disallowed_methods, reason = "these tests drive processes in real time")]
#![expect(clippy::print_stderr, reason = "the daemon's log is part of a failure message")]
#![allow(dead_code, reason = "the support is shared with tests that use other parts of it")]

#[path = "support/daemon.rs"]
mod daemon;
#[path = "support/tool.rs"]
mod tool;

use std::path::Path;
use std::time::Duration;

use daemon::Daemon;
use tool::{Tool, messages, publish, subscribe};

/// A file of this project, which `scripts/setup` has made if it is not in the repository.
fn own(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    assert!(path.exists(), "{} is missing: ./scripts/test makes it", path.display());
    path.into_os_string().into_string().expect("the project's path is text")
}

/// Runs one step of a script in `tests/amqp` to its successful end.
fn step(daemon: &Daemon, script: &str, arguments: &[&str]) -> String {
    let (host, port) = (daemon.amqp().ip().to_string(), daemon.amqp().port().to_string());
    let script = own(&format!("tests/amqp/{script}"));
    let mut all = vec!["-u", &script, &host, &port];
    all.extend_from_slice(arguments);
    let output = Tool::start(daemon, &own(".venv/bin/python"), &all).succeed();
    assert!(output.ends_with("ok\n"), "{output}");
    output
}

/// Runs one of Debian's amqp-tools aimed at the gateway, fed with nothing.
fn amqp_tool(daemon: &Daemon, program: &str, arguments: &[&str]) -> Tool {
    let url = format!("--url=amqp://guest:guest@{}", daemon.amqp());
    let mut all = vec![url.as_str()];
    all.extend_from_slice(arguments);
    Tool::start(daemon, program, &all)
}

#[test]
fn exchanges_confirms_and_competing_consumers() {
    let daemon = Daemon::started("amqp-article", "");
    for name in ["exchanges", "confirms", "competing"] {
        step(&daemon, "article.py", &[name]);
    }
}

#[test]
fn what_was_confirmed_survives_kill_9() {
    let mut daemon = Daemon::started("amqp-durable", "");
    step(&daemon, "article.py", &["publish-durable"]);
    daemon.kill_and_restart();
    step(&daemon, "article.py", &["check-durable"]);
    // What was acknowledged, and flushed, does not come back.
    std::thread::sleep(Duration::from_secs(1));
    daemon.kill_and_restart();
    step(&daemon, "lesson.py", &["before-restart"]);
    daemon.kill_and_restart();
    step(&daemon, "lesson.py", &["after-restart"]);
}

#[test]
fn the_chain_of_custody_holds_link_by_link() {
    let daemon = Daemon::started("amqp-lesson", "");
    let steps = ["consumer-acknowledgements", "rejecting", "prefetch", "publisher-confirms", "idempotent"];
    for name in steps {
        step(&daemon, "lesson.py", &[name]);
    }
}

#[test]
fn extensions_do_what_clients_expect_and_mistakes_are_refused_by_number() {
    let daemon = Daemon::started("amqp-features", "");
    for name in [
        "headers",
        "topology",
        "dead-letters",
        "times",
        "consumers",
        "transactions",
        "requests",
        "sizes",
        "mistakes",
    ] {
        step(&daemon, "features.py", &[name]);
    }
}

#[test]
fn a_sensor_s_reading_reaches_a_worker_s_queue() {
    let daemon = Daemon::started("amqp-bridge", "");
    step(&daemon, "article.py", &["bind-bridge"]);
    publish(&daemon, &["-q", "1", "-t", "sensors/boiler/temp", "-m", "91.5"]);
    publish(&daemon, &["-q", "1", "-t", "sensors/boiler/pressure", "-m", "2.1"]);
    let taken = step(&daemon, "article.py", &["consume-bridge", "91.5"]);
    assert_eq!(taken, "91.5\nok\n");
}

#[test]
fn a_worker_s_command_reaches_a_device_once() {
    let daemon = Daemon::started("amqp-command", "");
    let device = subscribe(&daemon, &["-q", "1", "-t", "devices/+/cmd", "-v", "-C", "2"]);
    step(&daemon, "article.py", &["publish-bridge", "devices.valve7.cmd", "close"]);
    publish(&daemon, &["-q", "1", "-t", "devices/valve7/cmd", "-m", "end"]);
    let output = device.succeed();
    assert_eq!(messages(&output), ["devices/valve7/cmd close", "devices/valve7/cmd end"]);
}

#[test]
fn readings_wait_on_flash_for_a_worker_that_is_away() {
    let mut daemon = Daemon::started("amqp-offline", "");
    step(&daemon, "article.py", &["bind-bridge"]);
    for reading in ["92.8", "95.1"] {
        publish(&daemon, &["-q", "1", "-t", "sensors/boiler/temp", "-m", reading]);
    }
    daemon.kill_and_restart();
    let taken = step(&daemon, "article.py", &["consume-bridge", "92.8", "95.1"]);
    assert_eq!(taken, "92.8\n95.1\nok\n");
}

#[test]
fn a_dot_inside_a_level_survives_the_way_to_a_queue_and_back() {
    let daemon = Daemon::started("amqp-dots", "");
    let device = subscribe(&daemon, &["-q", "1", "-t", "v1.2/+", "-v", "-C", "1"]);
    // The key of MQTT's v1.2/state is v1/2.state.
    step(&daemon, "article.py", &["publish-bridge", "v1/2.state", "on"]);
    let output = device.succeed();
    assert_eq!(messages(&output), ["v1.2/state on"]);
}

/// Every row of the mapping between MQTT 5 and AMQP 0-9-1 that RabbitMQ documents, with paho on one side and pika on the other.
#[test]
fn properties_and_headers_cross_between_mqtt_5_and_amqp() {
    let daemon = Daemon::started("amqp-mapping", "");
    let port = daemon.mqtt().port().to_string();
    for name in ["to-amqp", "to-mqtt", "rpc", "exchanges"] {
        step(&daemon, "mapping.py", &[name, &port]);
    }
}

#[test]
fn aio_pika_finds_what_it_expects_and_what_it_left() {
    let mut daemon = Daemon::started("amqp-aio", "");
    for name in ["round-trip", "rpc", "keep"] {
        step(&daemon, "aio.py", &[name]);
    }
    daemon.kill_and_restart();
    step(&daemon, "aio.py", &["kept"]);
}

#[test]
fn amqplib_finds_what_it_expects() {
    let daemon = Daemon::started("amqp-js", "");
    let modules = format!("NODE_PATH={}", own(".node/node_modules"));
    let (host, port) = (daemon.amqp().ip().to_string(), daemon.amqp().port().to_string());
    let script = own("tests/amqp/amqplib.js");
    let output = Tool::start(&daemon, "env", &[&modules, "node", &script, &host, &port]).succeed();
    assert!(output.ends_with("ok\n"), "{output}");
}

#[test]
fn amqp_tools_find_what_they_expect_and_what_they_left() {
    let mut daemon = Daemon::started("amqp-tools", "");
    let tool = |daemon: &Daemon, program: &str, arguments: &[&str]| amqp_tool(daemon, program, arguments);
    assert_eq!(tool(&daemon, "amqp-declare-queue", &["-q", "tools.q", "-d"]).succeed(), "tools.q\n");
    for body in ["one", "two"] {
        tool(&daemon, "amqp-publish", &["-r", "tools.q", "-p", "-b", body]).succeed();
    }
    // amqp-publish asks for no confirm: the next round trip of the queue says that both have come, and a second later
    // they are flushed.
    std::thread::sleep(Duration::from_millis(1200));
    daemon.kill_and_restart();
    assert_eq!(tool(&daemon, "amqp-get", &["-q", "tools.q"]).succeed(), "one");
    assert_eq!(
        tool(&daemon, "amqp-consume", &["-q", "tools.q", "-c", "1", "-p", "1", "cat"]).succeed(),
        "two"
    );
    // Its own word for an empty queue.
    assert_eq!(tool(&daemon, "amqp-get", &["-q", "tools.q"]).finish().status.code(), Some(2));
    tool(&daemon, "amqp-delete-queue", &["-q", "tools.q"]).succeed();
    let gone = tool(&daemon, "amqp-get", &["-q", "tools.q"]).finish();
    assert!(gone.output.contains("404") && gone.output.contains("no queue 'tools.q'"), "{}", gone.output);
    // And MQTT in, amqp-tools out.
    let consumer =
        tool(&daemon, "amqp-consume", &["-e", "amq.topic", "-r", "sensors.*.temp", "-c", "1", "cat"]);
    consumer.wait_for("Server provided queue name");
    std::thread::sleep(Duration::from_millis(200));
    publish(&daemon, &["-q", "1", "-t", "sensors/boiler/temp", "-m", "91.5"]);
    assert!(consumer.succeed().ends_with("91.5"));
}

#[test]
fn a_celery_worker_runs_its_tasks() {
    let daemon = Daemon::started("amqp-celery", "");
    let address = format!("GATEWAY_AMQP={}", daemon.amqp());
    let results = daemon.folder().join("results");
    std::fs::create_dir_all(&results).expect("the test's folder can be written");
    let results = format!("GATEWAY_RESULTS={}", results.display());
    let (python, script) = (own(".venv/bin/python"), own("tests/amqp/celery_app.py"));
    let output =
        Tool::start(&daemon, "env", &[&address, &results, &python, "-W", "ignore", &script]).succeed();
    assert!(output.ends_with("ok\n"), "{output}");
}

#[test]
fn conversations_go_as_with_rabbitmq_or_as_their_files_say() {
    let daemon = Daemon::started("amqp-conversations", "");
    let folder = own("tests/conversations");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the conversations are in the repository")
        .map(|entry| entry.expect("a file").path().into_os_string().into_string().expect("a name of ours"))
        .collect();
    files.sort();
    assert!(files.len() >= 60, "{}", files.len());
    let mut arguments = vec!["check"];
    arguments.extend(files.iter().map(String::as_str));
    step(&daemon, "converse.py", &arguments);
}

#[test]
fn each_difference_from_rabbitmq_has_its_reason_and_is_on_the_page() {
    let page = std::fs::read_to_string(own("docs/conformance-amqp.md")).expect("the page is text");
    for entry in
        std::fs::read_dir(own("tests/conversations")).expect("the conversations are in the repository")
    {
        let path = entry.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("a conversation is text");
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name of ours");
        let reason = text.lines().find_map(|line| line.strip_prefix("differs: "));
        assert_eq!(reason.is_some(), text.lines().any(|line| line.starts_with('~')), "{name}");
        if let Some(reason) = reason {
            assert!(
                page.contains(&format!("`{name}`")) && page.contains(reason),
                "{name} is not on the page"
            );
        }
    }
}

#[test]
fn rules_hold_for_queues_exchanges_and_what_crosses() {
    let daemon = Daemon::new("amqp-rights", "");
    let folder = daemon.folder().to_owned();
    let (users, rules) = (folder.join("users"), folder.join("acl"));
    daemon.configure(&format!(
        "[auth]\npassword_file = \"{}\"\nacl_file = \"{}\"\n",
        users.display(),
        rules.display()
    ));
    std::fs::write(&users, "").expect("the test's folder can be written");
    for (name, password) in [("worker", "w"), ("chief", "c")] {
        let program = env!("CARGO_BIN_EXE_gatewayd");
        let command = format!(
            "echo {password} | {program} user add {name} --password-file {} --password-stdin --iterations 10",
            users.display()
        );
        Tool::start(&daemon, "sh", &["-c", &command]).succeed();
    }
    std::fs::write(
        &rules,
        "user worker\nqueue configure|write|read tasks.*\nqueue deny tasks.secret\nqueue read alarms\n\
         exchange write logs\nexchange own.*\ntopic read sensors/#\ntopic deny sensors/hidden\ntopic write commands/#\n\
         user chief\nqueue *\nexchange *\ntopic #\ntopic read $SYS/#\n",
    )
    .expect("the test's folder can be written");
    let mut daemon = daemon;
    daemon.start_listening();
    for name in ["rules", "withheld", "secret", "crossing"] {
        step(&daemon, "rights.py", &[name]);
    }
}

#[test]
fn one_reading_reaches_a_subscriber_a_worker_and_a_collection() {
    let daemon = Daemon::started("amqp-three", "");
    step(&daemon, "article.py", &["bind-bridge"]);
    let live = subscribe(&daemon, &["-q", "1", "-t", "sensors/+/temp", "-v", "-C", "1"]);
    publish(&daemon, &["-q", "1", "-t", "sensors/boiler/temp", "-m", "{\"value\": 91.5, \"unit\": \"C\"}"]);
    // The acknowledgement has come, so all three have it.
    assert_eq!(messages(&live.succeed()), ["sensors/boiler/temp {\"value\": 91.5, \"unit\": \"C\"}"]);
    let taken = step(&daemon, "article.py", &["consume-bridge", "{\"value\": 91.5, \"unit\": \"C\"}"]);
    assert_eq!(taken, "{\"value\": 91.5, \"unit\": \"C\"}\nok\n");
    let output = daemon.command(&["query", "readings"]);
    let readings = String::from_utf8_lossy(&output.stdout);
    assert!(readings.contains("91.5") && readings.contains("sensors/boiler/temp"), "{readings}");
}

#[test]
fn a_publisher_is_told_when_the_flash_must_catch_up() {
    let daemon = Daemon::started("amqp-blocked", "bytes_per_day_budget = \"1MiB\"\n");
    step(&daemon, "features.py", &["blocked"]);
}

/// The queue is larger than what of it may stay in the window.
#[test]
fn who_asks_a_long_queue_for_messages_is_not_told_of_publishers() {
    let small = "gateway_bytes_max = \"17MiB\"\nbacklog_bytes_max = \"64MiB\"\nreserve_free = \"0B\"\n[limits]\nretained_bytes_max = \"1MiB\"\n";
    let daemon = Daemon::started("amqp-asked", small);
    step(&daemon, "features.py", &["asked_for"]);
}
