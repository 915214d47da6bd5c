//! Settings that change under clients that stay: SIGHUP, `gatewayd reload`, files of certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::authority::Secured;
use crate::daemon::{Daemon, PATIENCE, free_address};
use crate::tool::{Tool, messages, publish, subscribe};

fn set_password(file: &Path, user: &str, password: &str) {
    let mut command = Command::new("mosquitto_passwd");
    command.args(if file.exists() { &["-b"][..] } else { &["-c", "-b"] });
    let done = command.arg(file).args([user, password]).status();
    assert!(done.expect("mosquitto_passwd is installed").success());
}

fn hang_up(daemon: &Daemon) {
    let done = Command::new("kill").args(["-HUP", &daemon.pid().to_string()]).status();
    assert!(done.expect("kill is installed").success());
}

/// Reloads by the verb, which must succeed; what it says.
fn reload(daemon: &Daemon) -> String {
    let Output { status, stdout, stderr } = daemon.command(&["reload"]);
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).into_owned()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Files of a daemon with users and rules.
struct Guarded {
    daemon: Daemon,
    passwords: PathBuf,
    acl: PathBuf,
}

impl Guarded {
    fn started(name: &str) -> Self {
        let daemon = Daemon::new(name, "");
        let (passwords, acl) = (daemon.folder().join("passwords"), daemon.folder().join("acl"));
        for user in ["ann", "bob", "eve"] {
            set_password(&passwords, user, user);
        }
        fs::write(
            &acl,
            "user ann\ntopic readwrite #\nuser bob\ntopic readwrite #\nuser eve\ntopic readwrite #\n",
        )
        .expect("it can be written");
        let mut guarded = Self { daemon, passwords, acl };
        guarded.configure("");
        guarded.daemon.start_listening();
        guarded
    }

    fn configure(&self, extra: &str) {
        self.daemon.configure(&format!(
            "[auth]\npassword_file = \"{}\"\nacl_file = \"{}\"\nfailed_delay = \"0s\"\n{extra}",
            self.passwords.display(),
            self.acl.display()
        ));
    }

    fn subscribe(&self, user: &str, arguments: &[&str]) -> Tool {
        subscribe(&self.daemon, &[&["-u", user, "-P", user], arguments].concat())
    }
}

#[test]
fn users_that_are_gone_end_and_all_others_stay() {
    let guarded = Guarded::started("reload-users");
    let ann = guarded.subscribe("ann", &["-v", "-t", "a/#", "-t", "b/#"]);
    let bob = guarded.subscribe("bob", &["-t", "a/#"]);
    let eve = guarded.subscribe("eve", &["-t", "a/#"]);
    let done = Command::new("mosquitto_passwd").arg("-D").arg(&guarded.passwords).arg("eve").status();
    assert!(done.expect("mosquitto_passwd is installed").success());
    set_password(&guarded.passwords, "bob", "another");
    fs::write(&guarded.acl, "user ann\ntopic read a/#\ntopic readwrite c\nuser bob\ntopic write #\n")
        .expect("it can be written");
    let told = reload(&guarded.daemon);
    assert_eq!(told, "reloaded: auth\n2 connections ended, which may no longer be there\n");
    // Both try again, as they do, and are refused.
    for (name, gone) in [("bob", bob), ("eve", eve)] {
        gone.wait_for("sending CONNECT");
        wait_until(name, || gone.output().matches("sending CONNECT").count() >= 2);
        wait_until(name, || gone.output().contains("received CONNACK (5)"));
    }
    // Ann was not disconnected; what she may no longer read does not come, though she is still subscribed.
    let another = ["-u", "bob", "-P", "another", "-q", "1"];
    for topic in ["b/secret", "a/open", "b/secret", "a/end"] {
        publish(&guarded.daemon, &[&another[..], &["-t", topic, "-m", topic]].concat());
    }
    ann.wait_for("a/end");
    let output = ann.output();
    assert_eq!(output.matches("sending CONNECT").count(), 1, "{output}");
    assert_eq!(messages(&output), ["a/open a/open", "a/end a/end"]);
    // What she may no longer write is taken and reaches nobody.
    publish(&guarded.daemon, &["-u", "ann", "-P", "ann", "-q", "1", "-t", "a/x", "-m", "x"]);
    publish(&guarded.daemon, &[&another[..], &["-t", "a/last", "-m", "last"]].concat());
    ann.wait_for("a/last");
    assert!(!ann.output().contains("a/x"), "{}", ann.output());
}

/// Rules that hold now decide about a will and about a value that is kept, and not those of the time when it came.
#[test]
fn wills_retained_values_and_queries_follow_the_rules_that_hold() {
    let guarded = Guarded::started("reload-rules");
    let bob = ["-u", "bob", "-P", "bob", "-q", "1"];
    publish(&guarded.daemon, &[&bob[..], &["-r", "-t", "sensors/open", "-m", "1"]].concat());
    publish(&guarded.daemon, &[&bob[..], &["-r", "-t", "sensors/secret", "-m", "2"]].concat());
    let will = ["--will-topic", "last/words", "--will-payload", "x", "--will-qos", "1", "-t", "nothing"];
    let mut with_will = guarded.subscribe("eve", &will);
    let watcher = guarded.subscribe("bob", &["-v", "-t", "last/#"]);
    let url = format!("http://{}/api/v1/collections/readings", guarded.daemon.http());
    let asked = |path: &str| {
        let done = Command::new("curl")
            .args(["-sS", "--max-time", "20", "-u", "ann:ann", &format!("{url}{path}")])
            .output();
        String::from_utf8_lossy(&done.expect("curl is installed").stdout).into_owned()
    };
    assert!(asked("/query").contains("sensors/secret") && asked("").contains("sensors/secret"));
    fs::write(
        &guarded.acl,
        "user ann\ntopic read sensors/open\nuser bob\ntopic readwrite #\nuser eve\ntopic read nothing\n",
    )
    .expect("it can be written");
    assert_eq!(reload(&guarded.daemon), "reloaded: auth\n");
    let ann = guarded.subscribe("ann", &["-v", "-t", "sensors/+", "-C", "1"]);
    assert_eq!(messages(&ann.succeed()), ["sensors/open 1"]);
    for path in ["/query", "", "/query?topic=sensors/%2B", "/query?agg=count&by=topic"] {
        let told = asked(path);
        assert!(told.contains("sensors/open") && !told.contains("secret"), "{path}: {told}");
    }
    with_will.kill();
    wait_until("the connection ends", || {
        let clients = format!("http://{}/api/v1/clients", guarded.daemon.http());
        let done = Command::new("curl").args(["-sS", "--max-time", "20", "-u", "ann:ann", &clients]).output();
        let shown = String::from_utf8_lossy(&done.expect("curl is installed").stdout).into_owned();
        shown.contains("\"bob\"") && !shown.contains("\"eve\"")
    });
    publish(&guarded.daemon, &[&bob[..], &["-t", "last/end", "-m", "end"]].concat());
    watcher.wait_for("last/end end");
    assert_eq!(messages(&watcher.output()), ["last/end end"]);
}

#[test]
fn a_bad_file_changes_nothing_and_says_why() {
    let guarded = Guarded::started("reload-bad");
    let ann = guarded.subscribe("ann", &["-t", "a", "-C", "1"]);
    let passwords = fs::read_to_string(&guarded.passwords).expect("it can be read");
    let ours = guarded.daemon.folder().join("gateway.toml");
    let sound = fs::read_to_string(&ours).expect("it can be read");
    let occupied = std::net::TcpListener::bind(free_address()).expect("a port is free");
    let in_use = occupied.local_addr().expect("it has an address");
    for (what, config, users, why) in [
        (
            "a typo",
            format!("{sound}[limits]\ninflite_max = 3\n"),
            passwords.clone(),
            "did you mean inflight_max?",
        ),
        ("a bad line", sound.clone(), format!("{passwords}mallory\n"), "not a line of the form NAME:HASH"),
        (
            "a port that is taken",
            format!("{sound}[listener.second]\nkind = \"mqtt\"\nbind = \"{in_use}\"\n"),
            passwords.clone(),
            "another process does",
        ),
        (
            "certificates that are missing",
            format!(
                "{sound}[listener.tls]\nkind = \"mqtt\"\nbind = \"{}\"\ntls = \"x\"\n[tls.x]\ncert = \"none.pem\"\nkey = \"none.key\"\n",
                free_address()
            ),
            passwords,
            "none.key does not exist",
        ),
    ] {
        fs::write(&ours, config).expect("it can be written");
        fs::write(&guarded.passwords, users).expect("it can be written");
        hang_up(&guarded.daemon);
        wait_until(what, || guarded.daemon.log().contains(why));
        let told = guarded.daemon.command(&["reload"]);
        let error = String::from_utf8_lossy(&told.stderr).into_owned();
        assert_eq!(told.status.code(), Some(78), "{what}: {error}");
        assert!(error.contains(why) && error.ends_with("nothing has changed\n"), "{what}: {error}");
    }
    publish(&guarded.daemon, &["-u", "bob", "-P", "bob", "-q", "1", "-t", "a", "-m", "still here"]);
    let output = ann.succeed();
    assert_eq!((messages(&output), output.matches("sending CONNECT").count()), (vec!["still here"], 1));
}

#[test]
fn listeners_come_go_and_move_while_clients_stay() {
    let mut daemon = Daemon::new("reload-listeners", "");
    let [second, third] = [(); 2].map(|()| free_address());
    let listener =
        |name: &str, address| format!("[listener.{name}]\nkind = \"mqtt\"\nbind = \"{address}\"\n");
    let folder = daemon.folder().join("extra.sock");
    let socket = format!("[listener.local]\nkind = \"mqtt\"\nbind = \"unix:{}\"\n", folder.display());
    daemon.configure(&listener("second", second));
    daemon.start_listening();
    let at = |address: std::net::SocketAddr, program: &str, arguments: &[&str]| {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        Tool::start(&daemon, program, &[&["-h", &host, "-p", &port], arguments].concat())
    };
    let stays = at(second, "mosquitto_sub", &["-d", "-t", "a", "-C", "2"]);
    stays.wait_for("Subscribed (mid");
    // It moves to another address, and a socket in the file system comes.
    daemon.configure(&(listener("second", third) + &socket));
    assert_eq!(reload(&daemon), "reloaded: listener\n");
    assert!(folder.exists());
    assert!(!at(second, "mosquitto_pub", &["-t", "a", "-m", "no"]).finish().status.success());
    assert!(at(third, "mosquitto_pub", &["-q", "1", "-t", "a", "-m", "moved"]).finish().status.success());
    // An address that covers the old one takes its place.
    let all = std::net::SocketAddr::from(([0, 0, 0, 0], third.port()));
    daemon.configure(&(listener("second", all) + "allow_anonymous = true\n"));
    assert_eq!(reload(&daemon), "reloaded: listener\n");
    assert!(!folder.exists());
    assert!(at(third, "mosquitto_pub", &["-q", "1", "-t", "a", "-m", "covered"]).finish().status.success());
    let output = stays.succeed();
    assert_eq!(messages(&output), ["moved", "covered"]);
    assert_eq!(output.matches("sending CONNECT").count(), 1, "{output}");
    // Nobody may come without a name any more: who did goes.
    let nameless = at(third, "mosquitto_sub", &["-d", "-t", "a"]);
    nameless.wait_for("Subscribed (mid");
    daemon.configure(&(listener("second", third) + "allow_anonymous = false\n"));
    assert_eq!(reload(&daemon), "reloaded: listener\n1 connection ended, which may no longer be there\n");
    wait_until("refused", || nameless.output().contains("received CONNACK (5)"));
}

#[test]
fn routes_bounds_and_limits_hold_from_then_on() {
    let daemon = Daemon::started("reload-routes", "");
    let away = ["-i", "away", "-c", "-q", "1", "-t", "queue"];
    subscribe(&daemon, &[&away[..], &["-E"]].concat()).succeed();
    daemon.configure(
        "[queue.session]\nmessages_max = 3\n[limits]\nmessage_bytes_max = \"1KiB\"\n\
         [ingest.plant]\ntopics = [\"plant/+room/#\"]\ncollection = \"plant\"\n[storage2]\n",
    );
    assert_eq!(daemon.command(&["reload"]).status.code(), Some(78));
    daemon.configure(
        "[queue.session]\nmessages_max = 3\n[limits]\nmessage_bytes_max = \"1KiB\"\n\
         [ingest.plant]\ntopics = [\"plant/+room/#\"]\ncollection = \"plant\"\n[log]\nlevel = \"debug\"\nformat = \"json\"\n",
    );
    let told = reload(&daemon);
    assert_eq!(
        told,
        "reloaded: limits, queue, ingest, collection, log\ncounts from the next start on: log.format\n"
    );
    assert_eq!(reload(&daemon), "reloaded: nothing was different\n");
    for number in 0..5 {
        publish(&daemon, &["-q", "1", "-t", "queue", "-m", &number.to_string()]);
    }
    let got = crate::tool::resume(&daemon, &["-i", "away", "-t", "queue", "-C", "3"]);
    assert_eq!(got, ["2", "3", "4"], "the oldest went");
    // The level holds at once.
    daemon.wait_for_log("DEBUG client connected");
    publish(&daemon, &["-q", "1", "-t", "plant/hall/temp", "-m", "7"]);
    publish(&daemon, &["-q", "1", "-t", "sensors/x", "-m", "8"]);
    let query = |collection| {
        String::from_utf8_lossy(&daemon.command(&["query", collection, "--format", "jsonl"]).stdout)
            .into_owned()
    };
    let plant = query("plant");
    assert!(plant.contains("plant/hall/temp") && plant.contains('7'), "{plant}");
    assert_eq!(query("readings"), "", "the route that is there while none is written has gone");
    let large = "x".repeat(100_000);
    let refused = Tool::mosquitto(&daemon, "mosquitto_pub", &["-q", "1", "-t", "a", "-m", &large]).finish();
    assert!(!refused.status.success(), "{}", refused.output);
}

#[test]
fn certificates_are_replaced_by_their_files_and_clients_of_a_former_authority_end() {
    let mut secured = Secured::new("reload-certificates", "client_cert = \"required\"");
    let authority = &secured.authority;
    authority.issue("old", "/CN=old", "DNS:old", "30");
    secured.configure("");
    secured.daemon.start_listening();
    secured.daemon.wait_for_log("kind=mqtt tls=");
    let tool = |secured: &Secured, program: &str, name: &str, arguments: &[&str]| {
        let mut all = secured.arguments(Some(name));
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        Tool::start(&secured.daemon, program, &all)
    };
    let stays = tool(&secured, "mosquitto_sub", "old", &["-d", "-t", "a", "-C", "1"]);
    stays.wait_for("Subscribed (mid");
    let serial = |secured: &Secured| {
        let shown = Command::new("sh")
            .arg("-c")
            .arg(format!(
                "openssl s_client -connect {} </dev/null 2>/dev/null | openssl x509 -noout -serial",
                secured.mqtts
            ))
            .output();
        String::from_utf8_lossy(&shown.expect("openssl is installed").stdout).into_owned()
    };
    let before = serial(&secured);
    assert!(before.starts_with("serial="), "{before}");
    // The certificate first and the key later: between the two the old pair stays in use.
    let alternative = format!("IP:{}", secured.mqtts.ip());
    authority.issue("next", "/CN=gateway", &alternative, "5");
    fs::copy(authority.path("next.pem"), authority.path("server.pem")).expect("it can be copied");
    secured.daemon.wait_for_log("certificates have changed and are not used");
    assert_eq!(serial(&secured), before);
    fs::copy(authority.path("next.key"), authority.path("server.key")).expect("it can be copied");
    secured.daemon.wait_for_log("certificates have changed and are used");
    let after = serial(&secured);
    assert!(after.starts_with("serial=") && after != before, "{before} {after}");
    secured.daemon.wait_for_log("the certificate ends soon");
    assert!(
        tool(&secured, "mosquitto_pub", "old", &["-q", "1", "-t", "a", "-m", "x"]).finish().status.success()
    );
    let output = stays.succeed();
    assert_eq!(output.matches("sending CONNECT").count(), 1, "{output}");
    // Another authority for clients: who came with the old one's certificate goes.
    let gone = tool(&secured, "mosquitto_sub", "old", &["-d", "-t", "a"]);
    gone.wait_for("Subscribed (mid");
    let other = crate::authority::Authority::new(&secured.daemon.folder().join("other"));
    let config = secured.daemon.folder().join("gateway.toml");
    let text = fs::read_to_string(&config).expect("it can be read");
    let ca =
        |authority: &crate::authority::Authority| format!("client_ca = \"{}\"", authority.text("ca.pem"));
    fs::write(&config, text.replace(&ca(&secured.authority), &ca(&other))).expect("it can be written");
    hang_up(&secured.daemon);
    secured.daemon.wait_for_log("changed=tls ended=1");
    wait_until("it cannot come back", || secured.daemon.log().contains("TLS handshake failed"));
}
