//! Users and access rules, as the Mosquitto clients see them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::daemon::Daemon;
use crate::tool::{Tool, messages, publish, subscribe};

const ACL: &str = "topic read public/#\n\
                   user ann\ntopic readwrite plant/#\ntopic deny plant/secret\n\
                   user bob\ntopic read plant/+/temp\n\
                   pattern readwrite clients/%c/#\npattern write users/%u/out\n";

/// A password file as `mosquitto_passwd` writes it, an ACL file, and the configuration that names both.
fn started(name: &str, extra: &str) -> Daemon {
    let mut daemon = Daemon::new(name, "");
    let (passwords, rules) = (daemon.folder().join("passwords"), daemon.folder().join("acl"));
    mosquitto_passwd(&passwords, "-c", "ann", "ann's password");
    mosquitto_passwd(&passwords, "-b", "bob", "b");
    fs::write(&rules, ACL).expect("the test's folder can be written");
    daemon.configure(&format!(
        "[auth]\npassword_file = \"{}\"\nacl_file = \"{}\"\n{extra}",
        passwords.display(),
        rules.display()
    ));
    daemon.start_listening();
    daemon
}

pub fn mosquitto_passwd(file: &Path, mode: &str, user: &str, password: &str) {
    let flags: &[&str] = if mode == "-c" { &["-c", "-b"] } else { &["-b"] };
    let done = Command::new("mosquitto_passwd").args(flags).arg(file).args([user, password]).status();
    assert!(done.expect("mosquitto_passwd is installed").success());
}

#[test]
fn only_the_right_password_connects() {
    let daemon = started("users", "");
    let connect = |user: &[&str]| {
        let mut arguments = vec!["-t", "plant/a/temp", "-m", "1", "-q", "1"];
        arguments.extend_from_slice(user);
        Tool::mosquitto(&daemon, "mosquitto_pub", &arguments).finish()
    };
    assert!(connect(&["-u", "ann", "-P", "ann's password"]).status.success());
    assert!(connect(&["-u", "bob", "-P", "b"]).status.success());
    for wrong in [&["-u", "ann", "-P", "b"][..], &["-u", "eve", "-P", "b"], &["-u", "ann"], &[]] {
        let refused = connect(wrong);
        assert!(!refused.status.success(), "{wrong:?} connected");
        assert!(refused.output.contains("Connection Refused"), "{wrong:?}: {}", refused.output);
    }
}

#[test]
fn a_refused_subscription_gets_0x80_beside_granted_ones() {
    let daemon = started("suback", "");
    let mixed = subscribe(
        &daemon,
        &["-u", "bob", "-P", "b", "-t", "plant/+/temp", "-t", "valves/#", "-q", "1", "-W", "1"],
    );
    let output = mixed.finish().output;
    assert!(output.contains("Subscribed (mid: 1): 1, 128"), "{output}");
    let refused =
        Tool::mosquitto(&daemon, "mosquitto_sub", &["-u", "bob", "-P", "b", "-t", "other/#", "-W", "5"])
            .finish();
    assert!(refused.output.contains("All subscription requests were denied."), "{}", refused.output);
}

#[test]
fn what_nobody_may_write_reaches_nobody_and_what_nobody_may_read_is_not_delivered() {
    let daemon = started("acl", "");
    let ann = ["-u", "ann", "-P", "ann's password"];
    let bob = ["-u", "bob", "-P", "b"];
    let watch = |user: &[&str], arguments: &[&str]| subscribe(&daemon, &[user, arguments].concat());
    let put = |user: &[&str], topic: &str| {
        publish(&daemon, &[user, &["-t", topic, "-m", topic, "-q", "1"]].concat())
    };

    let plant = watch(&ann, &["-t", "plant/#", "-C", "2", "-q", "1"]);
    put(&bob, "plant/a/temp");
    put(&ann, "plant/secret");
    put(&ann, "plant/a/temp");
    put(&ann, "plant/b/temp");
    assert_eq!(
        messages(&plant.succeed()),
        ["plant/a/temp", "plant/b/temp"],
        "bob only reads, nobody has plant/secret"
    );

    let own = watch(&bob, &["-i", "probe-7", "-t", "clients/probe-7/#", "-C", "1", "-q", "1"]);
    put(&[&ann[..], &["-i", "probe-8"]].concat(), "clients/probe-7/cmd");
    put(&[&ann[..], &["-i", "probe-8"]].concat(), "clients/probe-8/cmd");
    let twin = [&bob[..], &["-i", "probe-9"]].concat();
    put(&twin, "clients/probe-7/cmd");
    let mine = Tool::python(&daemon, "own_topic.py", &["bob", "b", "probe-7", "clients/probe-7/done"]);
    assert_eq!(
        mine.succeed(),
        "clients/probe-7/done\n",
        "a client reads and writes below its own identifier"
    );
    drop(own);
}

#[test]
fn a_password_file_shuts_out_anonymous_clients_unless_the_listener_lets_them_in() {
    let daemon = started(
        "anonymous",
        "[listener.open]\nkind = \"mqtt\"\nbind = \"127.0.0.1:0\"\nallow_anonymous = true\n",
    );
    let refused = Tool::mosquitto(&daemon, "mosquitto_pub", &["-t", "public/a", "-m", "x"]).finish();
    assert!(!refused.status.success(), "{}", refused.output);
}

#[test]
fn users_are_kept_by_the_program_itself() {
    let daemon = started("user-verb", "");
    let file = daemon.folder().join("passwords");
    let before = fs::read_to_string(&file).unwrap();
    let removed = daemon.command(&["user", "rm", "bob"]);
    assert!(removed.status.success(), "{removed:?}");
    let after = fs::read_to_string(&file).unwrap();
    assert!(before.contains("bob:") && !after.contains("bob:") && after.contains("ann:"), "{after}");
}
