//! kill -9 in the middle: of a backup, on either side; of a restore; of a compaction.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use gateway_bench::ledger::Broker as _;

use crate::daemon::Daemon;
use crate::{SMALL, config_of, contents, done, publish, state_of, wait_for_work, work};

fn verb(daemon: &Daemon, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_gatewayd"))
        .args(arguments)
        .arg("--config")
        .arg(config_of(daemon))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Jobs of 20 KB, so that the copy has some bites.
fn jobs(daemon: &Daemon, count: usize) -> Vec<String> {
    let jobs: Vec<String> = (0..count).map(|n| format!("{n:04}").repeat(5_000)).collect();
    jobs.iter().for_each(|job| publish(daemon, "work/a", job));
    jobs
}

#[test]
fn a_backup_that_is_cut_off_leaves_no_file_and_holds_nothing_up() {
    let mut daemon = Daemon::started("cut-backup", SMALL);
    wait_for_work(&daemon);
    let mut expected = jobs(&daemon, 80);
    let file = daemon.folder().join("kept.backup");
    for pause_ms in [0, 1, 3, 6, 10, 20, 40] {
        let mut backup = verb(&daemon, &["backup", file.to_str().unwrap()]);
        thread::sleep(Duration::from_millis(pause_ms));
        backup.kill().unwrap();
        backup.wait().unwrap();
        if file.exists() {
            done(&daemon, &["restore", "--check", file.to_str().unwrap()]);
            fs::remove_file(&file).unwrap();
        }
    }
    // The next one is taken as soon as the gateway has noticed that the last one is gone.
    let mut tries = 0;
    while !crate::run(&daemon, &["backup", file.to_str().unwrap()]).2.contains("checked") {
        tries += 1;
        assert!(tries < 500, "a backup was never taken again");
        thread::sleep(Duration::from_millis(20));
    }
    done(&daemon, &["restore", "--check", file.to_str().unwrap()]);
    fs::remove_file(&file).unwrap();
    // Now the gateway is killed.
    for pause_ms in [0, 2, 5, 10, 20] {
        let mut backup = verb(&daemon, &["backup", file.to_str().unwrap()]);
        thread::sleep(Duration::from_millis(pause_ms));
        daemon.kill().unwrap();
        let status = backup.wait().unwrap();
        assert_eq!(file.exists(), status.success(), "{status}");
        assert!(!daemon.folder().join("kept.backup.part").exists());
        if file.exists() {
            done(&daemon, &["restore", "--check", file.to_str().unwrap()]);
            fs::remove_file(&file).unwrap();
        }
        daemon.start_listening();
    }
    expected.push("end".to_owned());
    assert_eq!(work(&daemon), expected);
}

#[test]
fn a_restore_that_is_cut_off_leaves_the_old_state_or_the_new_one() {
    let mut daemon = Daemon::started("cut-restore", SMALL);
    wait_for_work(&daemon);
    let old = jobs(&daemon, 40);
    let file = daemon.folder().join("kept.backup");
    done(&daemon, &["backup", file.to_str().unwrap()]);
    publish(&daemon, "work/a", "newer");
    daemon.terminate();
    let newer = contents(&state_of(&daemon));
    let (mut cut, mut whole) = (0, 0);
    for pause_ms in (0..24).chain([40, 80, 160]) {
        let mut restore = verb(&daemon, &["restore", "--force", file.to_str().unwrap()]);
        thread::sleep(Duration::from_millis(pause_ms * 4));
        restore.kill().unwrap();
        restore.wait().unwrap();
        if contents(&state_of(&daemon)) == newer {
            cut += 1;
            continue;
        }
        whole += 1;
        done(&daemon, &["storage", "verify"]);
        // What was there is under another name, whole; it is put back.
        let names: Vec<_> =
            fs::read_dir(daemon.folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let aside = names.into_iter().find(|path| {
            path.to_string_lossy().contains("state.") && path.is_dir() && contents(path) == newer
        });
        fs::remove_dir_all(state_of(&daemon)).unwrap();
        fs::rename(aside.expect("the old state is still there"), state_of(&daemon)).unwrap();
    }
    assert!(cut > 0, "{cut} were cut off, {whole} were done");
    done(&daemon, &["restore", "--force", file.to_str().unwrap()]);
    let left = fs::read_dir(daemon.folder()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("restoring")).collect();
    assert!(left.is_empty(), "unfinished folders are removed: {left:?}");
    daemon.start_listening();
    let mut expected = old;
    expected.push("end".to_owned());
    assert_eq!(work(&daemon), expected);
}

#[test]
fn a_compaction_that_is_cut_off_loses_nothing() {
    let mut daemon = Daemon::started("cut-compact", SMALL);
    wait_for_work(&daemon);
    let mut expected = jobs(&daemon, 100);
    for n in 0..40 {
        publish(&daemon, "sensors/a", &format!("{{\"value\": {n}}}"));
    }
    let before = crate::readings(&daemon);
    let (code, _, err) = crate::run(&daemon, &["storage", "compact"]);
    assert_eq!((code, err.contains("stop the gateway first")), (Some(1), true), "{err}");
    daemon.terminate();
    for pause_ms in 0..12 {
        let mut compact = verb(&daemon, &["storage", "compact"]);
        thread::sleep(Duration::from_millis(pause_ms * 3));
        compact.kill().unwrap();
        compact.wait().unwrap();
        done(&daemon, &["storage", "verify"]);
    }
    let told = done(&daemon, &["storage", "compact"]);
    assert!(told.contains("series.redb: ") && told.contains(" bytes on the disk before, "), "{told}");
    daemon.start_listening();
    assert_eq!(crate::readings(&daemon), before);
    expected.push("end".to_owned());
    assert_eq!(work(&daemon), expected);
}
