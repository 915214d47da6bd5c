//! TLS with and without client certificates, for MQTT, AMQP and HTTP.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::Duration;

use crate::authority::{Authority, Secured};
use crate::tool::{Finished, Tool, messages};

/// Runs a Mosquitto client against the TLS listener.
fn client(secured: &Secured, program: &str, as_client: Option<&str>, arguments: &[&str]) -> Tool {
    let mut all = secured.arguments(as_client);
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    Tool::start(&secured.daemon, program, &all)
}

fn publish(secured: &Secured, as_client: Option<&str>, arguments: &[&str]) -> Finished {
    client(secured, "mosquitto_pub", as_client, &[&["-q", "1"], arguments].concat()).finish()
}

fn subscribe(secured: &Secured, as_client: Option<&str>, arguments: &[&str]) -> Tool {
    let tool = client(secured, "mosquitto_sub", as_client, &[&["-d"], arguments].concat());
    tool.wait_for("Subscribed (mid");
    tool
}

fn curl(secured: &Secured, arguments: &[&str]) -> Output {
    let ca = secured.authority.text("ca.pem");
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "--cacert", &ca, "-w", "%{http_code}", "-o", "/dev/null"]);
    command.args(arguments).output().expect("curl is installed")
}

#[test]
fn both_versions_of_tls_carry_messages_beside_plain_listeners() {
    let secured = Secured::started("tls", "", "");
    let plain = crate::tool::subscribe(&secured.daemon, &["-t", "plant/#", "-C", "3"]);
    let subscriber = subscribe(&secured, None, &["-t", "plant/#", "-C", "3"]);
    for version in ["tlsv1.2", "tlsv1.3"] {
        let done = publish(&secured, None, &["--tls-version", version, "-t", "plant/a", "-m", version]);
        assert!(done.status.success(), "{version}: {}", done.output);
    }
    // A body of many records, both ways.
    let large = secured.authority.path("large");
    fs::write(&large, "x".repeat(1_000_000)).expect("the test's folder can be written");
    let large = large.display().to_string();
    let done = publish(&secured, None, &["-t", "plant/a", "-f", &large]);
    assert!(done.status.success(), "{}", done.output);
    for output in [subscriber.succeed(), plain.succeed()] {
        let got = messages(&output);
        assert_eq!(got[..2], ["tlsv1.2", "tlsv1.3"]);
        assert_eq!(got[2].len(), 1_000_000);
    }
    let old = Command::new("openssl")
        .args([
            "s_client",
            "-tls1_1",
            "-cipher",
            "DEFAULT@SECLEVEL=0",
            "-connect",
            &secured.mqtts.to_string(),
        ])
        .output()
        .expect("openssl is installed");
    let told = String::from_utf8_lossy(&old.stderr).into_owned();
    assert!(!old.status.success() && told.contains("SSL alert number"), "TLS 1.1 was spoken: {told}");
    let other = Authority::new(&secured.daemon.folder().join("other"));
    let mut arguments = secured.arguments(None);
    arguments.pop();
    arguments.extend([other.text("ca.pem"), "-t".into(), "plant/a".into(), "-m".into(), "no".into()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = Tool::start(&secured.daemon, "mosquitto_pub", &arguments).finish();
    assert!(!done.status.success(), "a client took the certificate of a foreign authority");
}

#[test]
fn a_certificate_is_a_login_and_its_common_name_is_the_user() {
    let secured = Secured::new("mtls", "client_cert = \"required\"");
    let acl = secured.daemon.folder().join("acl");
    fs::write(&acl, "user boiler\ntopic read plant/#\npattern write plant/%u/#\n")
        .expect("it can be written");
    secured.authority.issue("boiler", "/O=plant/CN=boiler", "DNS:boiler.plant.example", "30");
    secured.authority.issue("pump", "/CN=pump", "DNS:pump.plant.example", "30");
    let foreign = Authority::new(&secured.daemon.folder().join("foreign"));
    foreign.issue("boiler", "/CN=boiler", "DNS:boiler", "30");
    secured.configure(&format!("[auth]\nacl_file = \"{}\"\n", acl.display()));
    let mut secured = secured;
    secured.daemon.start_listening();
    secured.daemon.wait_for_log("kind=mqtt tls=");

    let subscriber = subscribe(&secured, Some("boiler"), &["-v", "-t", "plant/#", "-C", "2", "-u", "pump"]);
    for (user, topic) in [
        ("pump", "plant/boiler/x"),
        ("boiler", "plant/boiler/1"),
        ("boiler", "plant/pump/y"),
        ("pump", "plant/pump/2"),
    ] {
        let done = publish(&secured, Some(user), &["-t", topic, "-m", user]);
        assert!(done.status.success(), "{user}: {}", done.output);
    }
    assert_eq!(messages(&subscriber.succeed()), ["plant/boiler/1 boiler", "plant/pump/2 pump"]);

    let nameless = publish(&secured, None, &["-t", "plant/boiler/x", "-m", "x"]);
    assert!(!nameless.status.success(), "no certificate was asked for: {}", nameless.output);
    for file in ["boiler.pem", "boiler.key"] {
        fs::copy(foreign.path(file), secured.authority.path(&format!("foreign-{file}")))
            .expect("it can be copied");
    }
    for (old, new) in [("foreign-boiler.pem", "foreign.pem"), ("foreign-boiler.key", "foreign.key")] {
        fs::rename(secured.authority.path(old), secured.authority.path(new)).expect("it can be renamed");
    }
    let forged = publish(&secured, Some("foreign"), &["-t", "plant/boiler/x", "-m", "x"]);
    assert!(!forged.status.success(), "a foreign certificate let in: {}", forged.output);
    secured.daemon.wait_for_log("TLS handshake failed");
}

#[test]
fn an_alternative_name_is_the_user_and_without_a_certificate_a_password_is_asked() {
    let client = "client_cert = \"optional\"\nusername_from_cert = \"san\"";
    let mut secured = Secured::new("san", client);
    let (passwords, acl) = (secured.daemon.folder().join("passwords"), secured.daemon.folder().join("acl"));
    let done =
        Command::new("mosquitto_passwd").args(["-c", "-b"]).arg(&passwords).args(["ann", "a"]).status();
    assert!(done.expect("mosquitto_passwd is installed").success());
    fs::write(&acl, "pattern readwrite home/%u/#\n").expect("it can be written");
    secured.authority.issue("boiler", "/CN=unused", "DNS:boiler.example,email:x@y.example", "30");
    secured.configure(&format!(
        "[auth]\npassword_file = \"{}\"\nacl_file = \"{}\"\nfailed_delay = \"0s\"\n",
        passwords.display(),
        acl.display()
    ));
    secured.daemon.start_listening();
    secured.daemon.wait_for_log("kind=mqtt tls=");
    let by_certificate = subscribe(&secured, Some("boiler"), &["-t", "home/boiler.example/#", "-C", "1"]);
    let by_password = subscribe(&secured, None, &["-u", "ann", "-P", "a", "-t", "home/ann/#", "-C", "1"]);
    assert!(publish(&secured, Some("boiler"), &["-t", "home/boiler.example/x", "-m", "1"]).status.success());
    assert!(
        publish(&secured, None, &["-u", "ann", "-P", "a", "-t", "home/ann/x", "-m", "2"]).status.success()
    );
    assert_eq!(messages(&by_certificate.succeed()), ["1"]);
    assert_eq!(messages(&by_password.succeed()), ["2"]);
    for wrong in [&["-u", "ann", "-P", "b", "-t", "home/ann/x", "-m", "x"][..], &["-t", "home/x", "-m", "x"]]
    {
        let refused = publish(&secured, None, wrong);
        assert!(refused.output.contains("Connection Refused"), "{wrong:?}: {}", refused.output);
    }
}

#[test]
fn amqp_over_tls_logs_in_by_password_and_by_certificate() {
    let mut secured = Secured::new("amqps", "client_cert = \"optional\"");
    secured.authority.issue("worker", "/CN=worker-7", "DNS:worker", "30");
    secured.configure("");
    secured.daemon.start_listening();
    secured.daemon.wait_for_log("kind=amqp tls=");
    let [ca, cert, key] = ["ca.pem", "worker.pem", "worker.key"].map(|file| secured.authority.text(file));
    let (host, port) = (secured.amqps.ip().to_string(), secured.amqps.port().to_string());
    let output = Tool::python(&secured.daemon, "amqp_tls.py", &[&host, &port, &ca, &cert, &key]).succeed();
    assert!(output.contains("ok external") && output.contains("ok plain"), "{output}");
    assert!(output.contains("user worker-7"), "{output}");
}

#[test]
fn http_over_tls_takes_a_certificate_for_a_login() {
    let mut secured = Secured::new("https", "client_cert = \"optional\"");
    let passwords = secured.daemon.folder().join("passwords");
    let done =
        Command::new("mosquitto_passwd").args(["-c", "-b"]).arg(&passwords).args(["ann", "a"]).status();
    assert!(done.expect("mosquitto_passwd is installed").success());
    secured.authority.issue("ops", "/CN=ops", "DNS:ops", "30");
    secured.configure(&format!("[auth]\npassword_file = \"{}\"\nfailed_delay = \"0s\"", passwords.display()));
    secured.daemon.start_listening();
    secured.daemon.wait_for_log("kind=http tls=");
    let url = format!("https://{}/api/v1/status", secured.https);
    let [cert, key] = ["ops.pem", "ops.key"].map(|file| secured.authority.text(file));
    for (arguments, status) in [
        (vec![url.as_str()], "401"),
        (vec!["-u", "ann:a", &url], "200"),
        (vec!["-u", "ann:b", &url], "401"),
        (vec!["--cert", &cert, "--key", &key, &url], "200"),
        (vec!["--tls-max", "1.2", "--cert", &cert, "--key", &key, &url], "200"),
    ] {
        let done = curl(&secured, &arguments);
        let told = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(told, status, "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// Who connects and says nothing, or says something else, keeps nobody from a handshake.
#[test]
fn peers_that_do_not_shake_hands_are_let_go_and_hold_up_nobody() {
    let secured = Secured::started("no-handshake", "", "");
    let mut silent: Vec<TcpStream> = (0..50).map(|_| connect(&secured)).collect();
    let mut wrong = connect(&secured);
    wrong.write_all(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04test").expect("it takes bytes");
    let mut answer = Vec::new();
    wrong.read_to_end(&mut answer).ok();
    assert!(answer.len() < 64, "an alert at most: {answer:?}");
    let mut half = connect(&secured);
    half.write_all(b"\x16\x03\x01\x02\x00\x01\x00").expect("it takes bytes");
    drop(half);
    assert!(publish(&secured, None, &["-t", "a", "-m", "1"]).status.success());
    // Each is closed when its time is over, 10 s after it came.
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0);
    }
}

fn connect(secured: &Secured) -> TcpStream {
    let stream = TcpStream::connect(secured.mqtts).expect("the listener accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has a timeout");
    stream
}
