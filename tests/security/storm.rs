//! Many at once: settings that are reloaded again and again under load, and a herd of TLS clients that comes back.
//!
//! `RELOADS=1000`, `STORM_CLIENTS=1000` and `STORM_RETURNS=5` make them as long as `docs/security.md` tells of.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gateway_bench::load::{self, Amount, LoadPlan, LoadReport};
use gateway_bench::process::resident_bytes;

use crate::authority::Secured;
use crate::daemon::Daemon;
use crate::tool::Tool;

fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn descriptors(daemon: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("the daemon runs").count()
}

/// A file as an editor replaces it: whole at any moment.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("it can be written");
    fs::rename(&new, path).expect("it can be renamed");
}

/// Password lines for `user0`, `user1` and so on, each with its name for a password.
fn write_users(path: &Path, count: usize) {
    let text: String = (0..count).map(|number| format!("user{number}:user{number}\n")).collect();
    fs::write(path, text).expect("it can be written");
    let done = Command::new("mosquitto_passwd").arg("-U").arg(path).status();
    assert!(done.expect("mosquitto_passwd is installed").success());
}

#[test]
fn reloading_again_and_again_under_load_loses_nothing_and_leaks_nothing() {
    let reloads = number("RELOADS", 100);
    let mut secured = Secured::new("reload-storm", "");
    let (passwords, acl) = (secured.daemon.folder().join("passwords"), secured.daemon.folder().join("acl"));
    write_users(&passwords, 20);
    let auth =
        format!("[auth]\npassword_file = \"{}\"\nacl_file = \"{}\"\n", passwords.display(), acl.display());
    let rules = |extra: &str| format!("pattern readwrite #\n{extra}");
    replace(&acl, &rules(""));
    secured.configure(&auth);
    secured.daemon.start_listening();
    secured.daemon.wait_for_log("kind=mqtt tls=");
    let mut watcher = secured.arguments(None);
    watcher.extend(["-d", "-u", "user1", "-P", "user1", "-t", "watch"].map(str::to_owned));
    let watcher: Vec<&str> = watcher.iter().map(String::as_str).collect();
    let watcher = Tool::start(&secured.daemon, "mosquitto_sub", &watcher);
    watcher.wait_for("Subscribed (mid");

    let over = AtomicBool::new(false);
    let config = secured.daemon.folder().join("gateway.toml");
    let sound = fs::read_to_string(&config).expect("it can be read");
    let (mqtt, before) = (
        secured.daemon.mqtt(),
        thread::scope(|scope| {
            let load = scope.spawn(|| {
                let mut messages = 0;
                while !over.load(Ordering::Relaxed) {
                    let plan = LoadPlan {
                        user: Some(("user0".to_owned(), "user0".to_owned())),
                        publishers: 3,
                        subscribers: 3,
                        publish_qos: 1,
                        subscribe_qos: 1,
                        window: 20,
                        amount: Amount::Messages(3000),
                        warm_up: 30,
                        persistent_subscribers: true,
                        ..LoadPlan::new(secured.daemon.mqtt())
                    };
                    let report = load::run(&plan).expect("no connection is lost");
                    assert_eq!((report.published, report.delivered, report.lost), (3000, 3000, 0));
                    messages += report.delivered;
                }
                messages
            });
            let mut before = (0, 0);
            for number in 0..reloads {
                // Something changes each time: rules, bounds, and a listener that comes and goes.
                replace(&acl, &rules(&format!("user user{}\ntopic read x\n", number % 20)));
                let more = if number % 2 == 0 {
                    format!("[queue.session]\nmessages_max = {}\n", 5000 + number)
                } else {
                    format!(
                        "[listener.more]\nkind = \"mqtt\"\nbind = \"unix:{}\"\n",
                        secured.daemon.folder().join("m").display()
                    )
                };
                replace(&config, &format!("{sound}{more}"));
                let done = Command::new("kill").args(["-HUP", &secured.daemon.pid().to_string()]).status();
                assert!(done.expect("kill is installed").success());
                let start = Instant::now();
                while secured.daemon.log().matches("settings reloaded").count() <= number {
                    assert!(start.elapsed() < crate::daemon::PATIENCE, "reload {number} never came");
                    thread::sleep(Duration::from_millis(2));
                }
                if number + 1 == reloads / 2 {
                    before =
                        (descriptors(&secured.daemon), resident_bytes(secured.daemon.pid()).unwrap_or(0));
                }
            }
            let after = (descriptors(&secured.daemon), resident_bytes(secured.daemon.pid()).unwrap_or(0));
            over.store(true, Ordering::Relaxed);
            let messages = load.join().expect("the load ends");
            println!(
                "{reloads} reloads, {messages} messages; descriptors and bytes {before:?} half way, {after:?} at the end"
            );
            assert!(messages > 0);
            // The load's own connections come and go.
            assert!(after.0 <= before.0 + 16, "descriptors leak: {before:?} {after:?}");
            assert!(after.1 <= before.1 + 16 * 1024 * 1024, "memory leaks: {before:?} {after:?}");
            before
        }),
    );
    assert!(before.0 > 0 && mqtt.port() > 0);
    let output = watcher.output();
    assert_eq!(output.matches("sending CONNECT").count(), 1, "the TLS client was disconnected: {output}");
}

#[test]
fn a_herd_of_tls_clients_that_comes_back_leaves_others_their_messages_and_memory_its_bounds() {
    let (clients, returns) = (number("STORM_CLIENTS", 200), number("STORM_RETURNS", 1));
    let mut secured = Secured::new("tls-storm", "");
    let passwords = secured.daemon.folder().join("passwords");
    write_users(&passwords, clients.max(1));
    secured.configure(&format!("[auth]\npassword_file = \"{}\"\n", passwords.display()));
    secured.daemon.start_listening();
    secured.daemon.wait_for_log("kind=mqtt tls=");
    let others = |time: Duration| -> LoadReport {
        let plan = LoadPlan {
            user: Some(("user0".to_owned(), "user0".to_owned())),
            publish_qos: 1,
            subscribe_qos: 1,
            rate: Some(200.0),
            window: 100,
            amount: Amount::Time(time),
            warm_up: 20,
            ..LoadPlan::new(secured.daemon.mqtt())
        };
        load::run(&plan).expect("no connection is lost")
    };
    let quiet = others(Duration::from_secs(3 * returns as u64));
    let (host, port) = (secured.mqtts.ip().to_string(), secured.mqtts.port().to_string());
    let (ca, count, times) = (secured.authority.text("ca.pem"), clients.to_string(), returns.to_string());
    let idle = resident_bytes(secured.daemon.pid()).unwrap_or(0);
    let herd = Tool::python(&secured.daemon, "tls_storm.py", &[&host, &port, &ca, &count, &times]);
    herd.wait_for("all connected once");
    let settled = resident_bytes(secured.daemon.pid()).unwrap_or(0);
    let stormy = others(Duration::from_secs(5 + 3 * returns as u64));
    let told = herd.succeed();
    let peak = resident_bytes(secured.daemon.pid()).unwrap_or(0);
    let p99 = |report: &LoadReport| report.delivery_latency.percentile(990);
    println!(
        "{clients} clients: p99 of others {:?} quiet, {:?} in the storm; resident bytes {idle}, {settled} with all, {peak} after. {}",
        p99(&quiet),
        p99(&stormy),
        told.trim().replace('\n', "; ")
    );
    assert_eq!((quiet.lost, stormy.lost), (0, 0), "others lost messages");
    assert!(stormy.delivered > 0 && told.matches("all connected again").count() == returns, "{told}");
    let each = 64 * 1024;
    assert!(peak < idle + (clients as u64) * each + 16 * 1024 * 1024, "{idle} {settled} {peak}");
}
