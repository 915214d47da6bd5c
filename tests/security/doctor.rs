//! What `gatewayd doctor`, the status and the log say of certificates and of rules.

use std::fs;

use crate::authority::Secured;
use crate::daemon::Daemon;
use crate::tool::Tool;

fn doctor(daemon: &Daemon) -> (Option<i32>, String) {
    let output = daemon.command(&["doctor"]);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A daemon whose certificate is this one.
fn with_certificate(name: &str, alternative: &str, days: &str) -> Secured {
    let mut secured = Secured::new(name, "");
    secured.authority.issue("server", "/CN=gateway", alternative, days);
    secured.configure("");
    secured.daemon.start_listening();
    secured
}

#[test]
fn a_fresh_gateway_is_well() {
    let daemon = Daemon::started("doctor-fresh", "");
    let (code, out) = doctor(&daemon);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("note     route readings: no reading of readings came by it yet"), "{out}");
}

#[test]
fn a_certificate_that_ends_soon_is_told_everywhere() {
    let secured = with_certificate("doctor-soon", "DNS:localhost,IP:127.0.0.1", "6");
    let line = secured.daemon.wait_for_log("the certificate ends soon");
    assert!(line.contains("certificate=server") && line.contains("days=6"), "{line}");
    let (code, out) = doctor(&secured.daemon);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("PROBLEM  certificate server: ends in 5 days: renew it"), "{out}");
    assert!(out.contains("ok       certificate server: is for localhost, 127.0.0.1\n"), "{out}");
    let status = String::from_utf8(secured.daemon.command(&["status"]).stdout).expect("it is text");
    assert!(status.contains("! certificate server ends in 5 days\n"), "{status}");
    assert!(status.contains("certificates server ends in 5 days\n"), "{status}");
    // Renewed, it is taken over, and nothing is wrong any more.
    secured.authority.issue("server", "/CN=gateway", "DNS:localhost", "90");
    secured.daemon.wait_for_log("certificates have changed and are used");
    let (code, out) = doctor(&secured.daemon);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("ok       certificate server: fits its key, ends in 89 days\n"), "{out}");
    let status = String::from_utf8(secured.daemon.command(&["status"]).stdout).expect("it is text");
    assert!(status.contains("certificates server ends in 89 days\n") && !status.contains("\n! "), "{status}");
}

#[test]
fn a_certificate_that_has_ended_is_told() {
    let secured = with_certificate("doctor-ended", "DNS:localhost", "-1");
    secured.daemon.wait_for_log("the certificate has ended: clients refuse it");
    let (code, out) = doctor(&secured.daemon);
    assert_eq!(code, Some(1));
    assert!(out.contains("PROBLEM  certificate server: has ended, clients refuse it: renew it"), "{out}");
}

#[test]
fn a_certificate_without_a_name_or_with_another_key_is_told() {
    let secured = with_certificate("doctor-names", "email:nobody@example.com", "90");
    let (code, out) = doctor(&secured.daemon);
    assert_eq!(code, Some(1));
    assert!(out.contains("PROBLEM  certificate server: names no host in subjectAltName"), "{out}");
    secured.authority.issue("server", "/CN=gateway", "DNS:elsewhere.example", "90");
    let (code, out) = doctor(&secured.daemon);
    assert_eq!(code, Some(0), "{out}");
    assert!(
        out.contains("note     certificate server: is for elsewhere.example; this machine is called "),
        "{out}"
    );
    secured.authority.issue("other", "/CN=other", "DNS:localhost", "90");
    fs::copy(secured.authority.path("other.key"), secured.authority.path("server.key"))
        .expect("it can be copied");
    let (code, out) = doctor(&secured.daemon);
    assert_eq!(code, Some(1));
    assert!(out.contains("PROBLEM  tls.server.key: "), "{out}");
}

#[test]
fn rules_that_match_nothing_are_told() {
    let mut daemon = Daemon::new("doctor-rules", "");
    let (passwords, acl) = (daemon.folder().join("passwords"), daemon.folder().join("acl"));
    let done = std::process::Command::new("mosquitto_passwd")
        .args(["-c", "-b"])
        .arg(&passwords)
        .args(["ann", "ann"])
        .status();
    assert!(done.expect("mosquitto_passwd is installed").success());
    fs::write(&acl, "user ann\ntopic write plant/#\ntopic read never/#\nuser anne\ntopic #\n")
        .expect("it can be written");
    let done = std::process::Command::new("chmod").arg("600").args([&passwords, &acl]).status();
    assert!(done.expect("chmod is installed").success());
    daemon.configure(&format!(
        "[auth]\npassword_file = \"{}\"\nacl_file = \"{}\"\n",
        passwords.display(),
        acl.display()
    ));
    daemon.start_listening();
    Tool::mosquitto(
        &daemon,
        "mosquitto_pub",
        &["-u", "ann", "-P", "ann", "-q", "1", "-t", "plant/1", "-m", "x"],
    )
    .succeed();
    let (code, out) = doctor(&daemon);
    assert_eq!(code, Some(1), "{out}");
    let place = acl.display();
    let nobody =
        format!("PROBLEM  rights: {place}:5: `topic #` is for anne, who is not in auth.password_file\n");
    let unmet = format!(
        "note     rights: {place}:3: `topic read never/#` matched nothing since the rules were read\n"
    );
    assert!(out.contains(&nobody) && out.contains(&unmet), "{out}");
    assert!(!out.contains(&format!("{place}:2:")), "{out}");
}
