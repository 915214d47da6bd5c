//! kill -9 at random moments under load: several publishers, persistent subscribers, one ledger. No acknowledged message
//! may be missing, the order of each publisher holds, QoS 2 comes once, no session is lost.
//!
//! `CRASH_ROUNDS=200` for a long run, `CRASH_SEED=n` for another one, `CRASH_SERVER=mosquitto` to hold Debian's Mosquitto to
//! the same ledger (its verdict is printed, not asserted).
#![expect(
    clippy::disallowed_methods,
    reason = "this test drives processes in real time and reads its environment"
)]
#![expect(clippy::print_stderr, reason = "verdicts of long runs are copied into docs/durability.md")]

#[expect(dead_code, reason = "tests/clients.rs uses the rest")]
#[path = "support/daemon.rs"]
mod daemon;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use daemon::{Daemon, PATIENCE, free_address};
use gateway_bench::ledger::{Broker, Checker, LedgerPlan, Rounds, crash_rounds, read_file};
use gateway_bench::process::Server;

/// Room for everything that an offline session is owed between two drains.
const ROOM: &str = "[queue.session]\nmessages_max = 100000\nbytes_max = \"32MiB\"\n";

#[test]
fn nothing_acknowledged_is_lost_over_kill_9() {
    let number = |name: &str, default| {
        std::env::var(name)
            .map_or(default, |text| text.parse().expect("CRASH_ROUNDS and CRASH_SEED are numbers"))
    };
    let seed = number("CRASH_SEED", u64::from(std::process::id()));
    let count = u32::try_from(number("CRASH_ROUNDS", 20)).expect("CRASH_ROUNDS is below four billion");
    let rounds = Rounds { count, life_max: Duration::from_millis(500), stop_at_fault: true };
    eprintln!("CRASH_SEED={seed} CRASH_ROUNDS={count}");
    if std::env::var("CRASH_SERVER").as_deref() == Ok("mosquitto") {
        return mosquitto(seed, Rounds { stop_at_fault: false, ..rounds });
    }
    let mut daemon = Daemon::new("crash", ROOM);
    let file = daemon.folder().join("ledger");
    let plan = LedgerPlan { file: Some(file.clone()), ..LedgerPlan::new(daemon.mqtt(), "crash", seed) };
    let verdict = crash_rounds(plan, rounds, &mut daemon).unwrap();
    eprintln!("{verdict}");
    if !verdict.holds() || verdict.disconnected > 0 {
        let kept = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ledger-{seed}"));
        fs::copy(&file, &kept).unwrap();
        panic!("CRASH_SEED={seed}, the ledger is {}\n{verdict}", kept.display());
    }
    assert!(verdict.kills == u64::from(count) && verdict.acknowledged > 0, "{verdict}");

    // What was written down before each answer says the same.
    let (header, records) = read_file(&file).unwrap();
    let mut checker = Checker::new(&header);
    records.iter().for_each(|record| checker.take(record));
    assert_eq!(checker.verdict(), verdict);
}

/// Mosquitto under the same load, twice: as Debian ships it, and saving on every change.
fn mosquitto(seed: u64, rounds: Rounds) {
    for (name, extra) in
        [("as shipped", ""), ("saving on every change", "autosave_interval 1\nautosave_on_changes true\n")]
    {
        let mut broker = Mosquitto::new(extra);
        let plan = LedgerPlan::new(broker.address, "crash", seed);
        let verdict = crash_rounds(plan, rounds, &mut broker).expect("the load runs to its end");
        eprintln!("mosquitto, {name}: {verdict}");
    }
}

struct Mosquitto {
    folder: PathBuf,
    address: SocketAddr,
    server: Option<Server>,
}

impl Mosquitto {
    fn new(extra: &str) -> Self {
        let folder =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("mosquitto-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        let address = free_address();
        let text = format!(
            "listener {} {}\nallow_anonymous true\npersistence true\npersistence_location {}/\n\
             max_queued_messages 0\nuser root\n{extra}",
            address.port(),
            address.ip(),
            folder.display()
        );
        fs::write(folder.join("mosquitto.conf"), text).expect("the configuration can be written");
        Self { folder, address, server: None }
    }
}

impl Broker for Mosquitto {
    fn start(&mut self) -> io::Result<()> {
        let command = format!("mosquitto -c {}/mosquitto.conf", self.folder.display());
        self.server = Some(Server::spawn(&command, Some(&self.folder.join("log")))?);
        Ok(())
    }

    fn wait_listening(&mut self) -> io::Result<()> {
        let server = self.server.as_mut().ok_or_else(|| io::Error::other("mosquitto is not started"))?;
        server.wait_listening(self.address, PATIENCE).map(|_| ())
    }

    fn kill(&mut self) -> io::Result<()> {
        self.server.take().map_or(Ok(()), |mut server| server.kill())
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.server = None;
        fs::remove_dir_all(&self.folder).ok();
    }
}
