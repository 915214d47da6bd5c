//! Rounds of life and sudden death: the broker is started, loaded, killed at a random moment, and now and then drained
//! and judged, all from one seed.

use std::io;
use std::time::Duration;

use super::check::Verdict;
use super::run::{Driver, LedgerPlan};
use crate::rng::Rng;

/// Longest drain of what a killed broker still owes.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// A broker that can be started and killed.
pub trait Broker {
    /// Starts the process; it need not listen yet.
    fn start(&mut self) -> io::Result<()>;
    /// Waits until it listens.
    fn wait_listening(&mut self) -> io::Result<()>;
    /// SIGKILL, and waits until the process is gone.
    fn kill(&mut self) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub count: u32,
    /// Longest life of one broker process.
    pub life_max: Duration,
    /// Stop at the first broken promise.
    pub stop_at_fault: bool,
}

/// Kills the broker `rounds.count` times under the load of `plan`; the verdict is of everything.
pub fn crash_rounds(plan: LedgerPlan, rounds: Rounds, broker: &mut dyn Broker) -> io::Result<Verdict> {
    let mut rng = Rng::new(plan.seed ^ 0x5EED);
    broker.start()?;
    broker.wait_listening()?;
    let mut driver = Driver::set_up(plan)?;
    for round in 1..=rounds.count {
        // One life in five is so short that recovery itself is cut.
        let short = rng.one_in(5);
        let (low, high) = if short { (0, 40) } else { (50, 0) };
        let high = if short { Duration::from_millis(high) } else { rounds.life_max };
        driver.run_for(rng.duration(Duration::from_millis(low), high))?;
        broker.kill()?;
        driver.broker_died()?;
        broker.start()?;
        if rng.one_in(3) || round == rounds.count {
            broker.wait_listening()?;
            let verdict = driver.drain(DRAIN_MAX)?;
            if rounds.stop_at_fault && !verdict.holds() {
                return Ok(verdict);
            }
        }
    }
    driver.clean_up()?;
    Ok(driver.verdict())
}
