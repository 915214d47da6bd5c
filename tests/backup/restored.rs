//! What was acknowledged before a backup is in it, and comes back.

use std::fs;
use std::process::Command;
use std::thread;

use crate::daemon::Daemon;
use crate::{SMALL, config_of, contents, done, publish, readings, run, state_of, wait_for_work, work};

#[test]
fn everything_acknowledged_before_a_backup_comes_back() {
    let mut daemon = Daemon::started("backup-load", SMALL);
    let file = daemon.folder().join("kept.backup").display().to_string();
    wait_for_work(&daemon);
    for n in 0..20 {
        publish(&daemon, "work/a", &format!("{{\"job\": {n}}}"));
        publish(&daemon, "sensors/a", &format!("{{\"value\": {n}}}"));
    }
    publish(&daemon, "state/a&retain=true", "kept");
    // Others go on publishing while it is taken.
    let load = |topic: &'static str| {
        let address = daemon.http();
        thread::spawn(move || {
            for n in 100..200 {
                let url = format!("http://{address}/api/v1/publish?topic={topic}");
                let body = format!("{{\"value\": {n}}}");
                Command::new("curl").args(["--silent", "--data-binary", &body, &url]).output().unwrap();
            }
        })
    };
    let loads = [load("work/b"), load("sensors/b")];
    let told = done(&daemon, &["backup", &file]);
    assert!(told.contains("checked after it was written"), "{told}");
    loads.into_iter().for_each(|load| load.join().unwrap());
    publish(&daemon, "work/c", "too late");
    let listed = Command::new("tar").args(["--list", "--file", &file]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.starts_with("gatewayd-backup.json\n") && listed.ends_with("end.json\nSHA256SUMS\n"),
        "{listed}"
    );
    assert!(!daemon.folder().join("kept.backup.part").exists());

    let (code, _, err) = run(&daemon, &["restore", &file]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("in use by process") && err.contains("stop the gateway first"), "{err}");
    daemon.terminate();
    let before = contents(&state_of(&daemon));
    let (code, _, err) = run(&daemon, &["restore", &file]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("is not empty: --force sets it aside"), "{err}");
    assert_eq!(contents(&state_of(&daemon)), before);
    let told = done(&daemon, &["restore", &file, "--force"]);
    let aside = daemon.folder().join("state.before-restore-1");
    assert!(told.contains(&format!("what was there before is in {}", aside.display())), "{told}");
    assert_eq!(contents(&aside), before);
    let told = done(&daemon, &["storage", "verify"]);
    assert!(told.contains("everything verifies"), "{told}");

    daemon.start_listening();
    assert!(daemon.log().contains("recovered 1 sessions"), "{}", daemon.log());
    assert!(!daemon.log().contains("damaged"), "{}", daemon.log());
    let work = work(&daemon);
    let early: Vec<String> = (0..20).map(|n| format!("{{\"job\": {n}}}")).collect();
    assert_eq!(work.get(..20).unwrap(), early);
    // Of the load a beginning without a gap, once each.
    let taken = |n: usize| format!("{{\"value\": {}}}", n + 100);
    let load = work.get(20..work.len() - 1).unwrap();
    assert!(load.iter().enumerate().all(|(n, found)| *found == taken(n)), "{load:?}");
    assert_eq!(work.last().unwrap(), "end");
    let readings = readings(&daemon);
    assert!((20..=120).contains(&readings.len()), "{}", readings.len());
    let early = (0..20).map(|n| format!("{{\"value\": {n}"));
    assert!(early.zip(&readings).all(|(expected, found)| *found == expected), "{readings:?}");
    let mut later: Vec<_> = readings.get(20..).unwrap().to_vec();
    later.sort();
    later.dedup();
    assert_eq!(later.len(), readings.len() - 20, "none twice: {readings:?}");
    let value = crate::resume(&daemon, &["-i", "reader", "-t", "state/#", "-C", "1"]);
    assert_eq!(value, ["kept"]);
}

#[test]
fn a_stopped_gateway_is_backed_up_without_a_change() {
    let mut daemon = Daemon::started("backup-stopped", SMALL);
    wait_for_work(&daemon);
    for n in 0..30 {
        publish(&daemon, "work/a", &format!("job {n}"));
        publish(&daemon, "sensors/a", &n.to_string());
    }
    let before = readings(&daemon);
    for clean in [true, false] {
        if clean {
            daemon.terminate();
        } else {
            daemon.start_listening();
            publish(&daemon, "work/a", "job 30");
            use gateway_bench::ledger::Broker as _;
            daemon.kill().unwrap();
        }
        let files = contents(&state_of(&daemon));
        let config = config_of(&daemon);
        let output = Command::new(env!("CARGO_BIN_EXE_gatewayd"))
            .args(["backup", "-", "--config"])
            .arg(&config)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(contents(&state_of(&daemon)), files, "it was only read");
        let file = daemon.folder().join("kept.backup");
        fs::write(&file, &output.stdout).unwrap();
        let told = done(&daemon, &["restore", "--check", file.to_str().unwrap()]);
        assert!(told.contains("as of 20"), "{told}");
        fs::remove_dir_all(state_of(&daemon)).unwrap();
        // From standard input, into a folder that is not there.
        let output = Command::new(env!("CARGO_BIN_EXE_gatewayd"))
            .args(["restore", "-", "--config"])
            .arg(&config)
            .stdin(fs::File::open(&file).unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    daemon.start_listening();
    daemon.wait_for_log("last stop: not clean");
    let mut expected: Vec<String> = (0..31).map(|n| format!("job {n}")).collect();
    expected.push("end".to_owned());
    assert_eq!(work(&daemon), expected);
    assert_eq!(readings(&daemon), before);
}

#[test]
fn a_backup_that_is_not_whole_changes_nothing() {
    let mut daemon = Daemon::started("backup-damaged", SMALL);
    wait_for_work(&daemon);
    (0..20).for_each(|n| publish(&daemon, "work/a", &format!("job {n}")));
    let file = daemon.folder().join("kept.backup");
    done(&daemon, &["backup", file.to_str().unwrap()]);
    daemon.terminate();
    let (whole, state) = (fs::read(&file).unwrap(), contents(&state_of(&daemon)));
    let refused = |bytes: &[u8], what: &str| {
        let wrong = daemon.folder().join("wrong.backup");
        fs::write(&wrong, bytes).unwrap();
        let (code, _, err) = run(&daemon, &["restore", "--force", wrong.to_str().unwrap()]);
        assert_eq!(code, Some(1), "{what}: {err}");
        assert!(
            err.contains("it is no whole backup") && err.contains("nothing has changed"),
            "{what}: {err}"
        );
        assert_eq!(contents(&state_of(&daemon)), state, "{what}");
        assert!(!daemon.folder().join("state.before-restore-1").exists(), "{what}");
        assert!(!daemon.folder().join("state.restoring-1").exists(), "{what}");
    };
    for len in [0, 100, 512, whole.len() / 2, whole.len() - 2048] {
        refused(&whole[..len], &format!("cut at {len}"));
    }
    for part in 1..8 {
        let mut flipped = whole.clone();
        // In the content of some entry: the header's own fields are the archive's own test.
        let at = (whole.len() * part / 8) / 512 * 512 + 40;
        flipped[at] ^= 1;
        refused(&flipped, &format!("byte {at}"));
    }
    refused(&fs::read(config_of(&daemon)).unwrap(), "no archive");
    let (code, _, err) = run(&daemon, &["restore", "missing.backup"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("missing.backup") && err.contains("No such file"), "{err}");
}

#[test]
fn what_does_not_fit_is_said() {
    let mut daemon = Daemon::started("backup-full", SMALL);
    wait_for_work(&daemon);
    for n in 0..120 {
        publish(&daemon, "work/a", &format!("{n:04}").repeat(15_000));
    }
    let file = daemon.folder().join("kept.backup");
    done(&daemon, &["backup", file.to_str().unwrap()]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_gatewayd"))
        .args(["backup", "-", "--config"])
        .arg(config_of(&daemon))
        .stdout(full)
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), err.contains("No space left")), (Some(1), true), "{err}");
    let (code, _, err) = run(&daemon, &["backup", "/nowhere/kept.backup"]);
    assert_eq!((code, err.contains("No such file")), (Some(1), true), "{err}");
    daemon.terminate();
    let state = contents(&state_of(&daemon));
    for bounds in [
        "gateway_bytes_max = \"17MiB\"\nbacklog_bytes_max = \"1MiB\"\nreserve_free = \"0B\"\n[limits]\nretained_bytes_max = \"1MiB\"\n",
        // As on a disk that is full.
        "gateway_bytes_max = \"17MiB\"\nbacklog_bytes_max = \"16MiB\"\nreserve_free = \"1024GiB\"\n[limits]\nretained_bytes_max = \"1MiB\"\n",
    ] {
        daemon.configure(bounds);
        let (code, _, err) = run(&daemon, &["restore", "--force", file.to_str().unwrap()]);
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains("no room on the flash") && err.contains("nothing has changed"), "{err}");
        assert_eq!(contents(&state_of(&daemon)), state);
        assert!(!daemon.folder().join("state.restoring-1").exists());
    }
    daemon.configure(SMALL);
    done(&daemon, &["restore", "--force", file.to_str().unwrap()]);
    daemon.start_listening();
    assert_eq!(work(&daemon).len(), 121);
}
