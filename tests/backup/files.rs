//! `storage verify`, `repair`, `compact`: damage is found with its file, changes nothing before it is repaired, and the
//! gateway goes on with what is whole.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::daemon::Daemon;
use crate::tool::Tool;
use crate::{SMALL, contents, done, publish, readings, run, state_of, wait_for_work, work};

/// Flips a bit in the middle of the bytes that `wanted` is found in. False when the file has none such.
fn flip(daemon: &Daemon, name: &str, wanted: &[u8]) -> bool {
    let path = state_of(daemon).join(name);
    let bytes = fs::read(&path).unwrap();
    let Some(at) = bytes.windows(wanted.len()).rposition(|window| window == wanted) else { return false };
    let at = at + wanted.len() / 2;
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(&[bytes[at] ^ 4], at as u64)
        .unwrap();
    true
}

/// A stopped gateway with messages in the window, readings, and chunks in the backlog when there are enough.
fn stopped(name: &str, jobs: usize) -> Daemon {
    let mut daemon = Daemon::started(name, SMALL);
    wait_for_work(&daemon);
    for n in 0..jobs {
        publish(&daemon, "work/a", &format!("job-{n:05}-").repeat(6_000));
    }
    for n in 0..50 {
        publish(&daemon, "sensors/a", &format!("{{\"text\": \"reading {n} of fifty\"}}"));
    }
    done(&daemon, &["backup", daemon.folder().join("kept.backup").to_str().unwrap()]);
    daemon.terminate();
    daemon
}

#[test]
fn whole_files_verify_while_it_runs_and_when_it_is_stopped() {
    let mut daemon = stopped("verify-whole", 120);
    let before = contents(&state_of(&daemon));
    assert!(before.contains_key("backlog.redb"), "rows wait in the backlog: {:?}", before.keys());
    let told = done(&daemon, &["storage", "verify"]);
    for part in ["gateway.redb: ", "series.redb: ", " chunks in the backlog\n", "everything verifies\n"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(contents(&state_of(&daemon)), before, "it was only read");
    daemon.start_listening();
    let told = done(&daemon, &["storage", "verify"]);
    assert!(told.contains("read through the gateway at 20"), "{told}");
    assert!(told.contains("everything that is live verifies\n"), "{told}");
    let (code, _, err) = run(&daemon, &["storage", "repair"]);
    assert_eq!((code, err.contains("stop the gateway first")), (Some(1), true), "{err}");
    daemon.terminate();
    let told = done(&daemon, &["storage", "repair"]);
    assert_eq!(told, "nothing had to be set aside\n");
    daemon.start_listening();
    assert_eq!((work(&daemon).len(), readings(&daemon).len()), (121, 50));
}

#[test]
fn damage_is_found_and_repaired() {
    for (file, wanted, jobs) in [
        ("gateway.redb", "job-00003-job-00003-", 10),
        ("backlog.redb", "job-00003-job-00003-", 120),
        ("series.redb", "reading ", 5),
    ] {
        let mut daemon = stopped(&format!("verify-{file}"), jobs);
        assert!(flip(&daemon, file, wanted.as_bytes()), "{file} holds {wanted}");
        let before = contents(&state_of(&daemon));
        let (code, out, err) = run(&daemon, &["storage", "verify"]);
        assert_eq!(code, Some(1), "{file}: {out}{err}");
        assert!(err.contains(file) && err.contains("gatewayd storage repair"), "{file}: {out}{err}");
        assert_eq!(contents(&state_of(&daemon)), before, "it was only read");
        let told = done(&daemon, &["storage", "repair"]);
        if file == "gateway.redb" {
            // A damaged chunk of the others costs what is in it, when it is read; it is not set aside.
            assert!(told.contains("repaired: what is whole was kept"), "{file}: {told}");
            done(&daemon, &["storage", "verify"]);
        }
        daemon.start_listening();
        publish(&daemon, "work/end", "end");
        // How many come is what is looked for: it waits until no more do.
        let all = ["-i", "worker", "-c", "-q", "1", "-t", "work/#", "-W", "5"];
        let output = Tool::mosquitto(&daemon, "mosquitto_sub", &all).finish().output;
        let work: Vec<&str> =
            output.lines().filter(|line| line.starts_with("job-") || *line == "end").collect();
        let lost = jobs + 1 - work.len();
        assert!(lost <= 4 && work.last() == Some(&"end"), "{file}: {lost} of {jobs} lost");
        assert_eq!(readings(&daemon).len(), if file == "series.redb" { 0 } else { 50 }, "{file}");
    }
}

#[test]
fn compaction_gives_room_back() {
    let mut daemon = stopped("compact", 150);
    daemon.start_listening();
    assert_eq!(work(&daemon).len(), 151);
    daemon.terminate();
    let blocks = |name: &str| fs::metadata(state_of(&daemon).join(name)).unwrap().blocks() * 512;
    let before = blocks("backlog.redb");
    let told = done(&daemon, &["storage", "compact"]);
    let after = blocks("backlog.redb");
    assert!(
        told.contains(&format!("backlog.redb: {before} bytes on the disk before, {after} after")),
        "{told}"
    );
    assert!(after < before, "{told}");
    done(&daemon, &["storage", "verify"]);
    daemon.start_listening();
    assert_eq!(readings(&daemon).len(), 50);
}
