//! A load of publishers and subscribers against a broker, measured from the first message after the warm-up to the last.
//!
//! The loop is closed: at most `window` messages a publisher are on their way (QoS 1 and 2: unacknowledged; QoS 0: not
//! yet delivered), so that a broker is measured at the pace at which it loses nothing. `rate` makes it an open, steady load.

mod engine;
mod plan;
mod publisher;

use std::io;
use std::time::{Duration, Instant};

pub(crate) use publisher::{SEQUENCE_END, STAMP_BYTES};

pub use plan::{Amount, LoadPlan, Topology};

use crate::histogram::Histogram;
use crate::process::{self, CpuTime};
use crate::status::{self, StorageCounters};
use engine::Engine;

/// What a load has shown.
#[derive(Debug)]
pub struct LoadReport {
    /// Messages published in the measured part (QoS 1 and 2: acknowledged).
    pub published: u64,
    /// Deliveries in the measured part.
    pub delivered: u64,
    /// Deliveries that did not come although nothing else did for two seconds.
    pub lost: u64,
    pub elapsed: Duration,
    /// CPU time of the server in the measured part.
    pub server_cpu: Option<CpuTime>,
    /// CPU time of this generator in the same part: the generator must not be the bottleneck.
    pub client_cpu: CpuTime,
    pub resident_bytes: Option<u64>,
    pub storage: Option<StorageCounters>,
    /// From PUBLISH encoded to delivery decoded.
    pub delivery_latency: Histogram,
    /// Messages sent by each publisher, warm-up included.
    pub sent_by_publisher: Vec<u64>,
    /// From PUBLISH encoded to its last acknowledgement decoded.
    pub acknowledgement_latency: Histogram,
}

impl LoadReport {
    /// What rates and costs are counted in: deliveries, or published messages where nobody subscribes.
    #[must_use]
    pub const fn units(&self) -> u64 {
        if self.delivered > 0 { self.delivered } else { self.published }
    }

    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.units() as f64 / self.elapsed.as_secs_f64()
    }

    #[must_use]
    pub fn server_cpu_s_per_million(&self) -> Option<f64> {
        self.server_cpu.map(|cpu| cpu.total_s() * 1e6 / self.units() as f64)
    }
}

/// Everything that is read before and after the measured part.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    at: Instant,
    published: u64,
    delivered: u64,
    server_cpu: Option<CpuTime>,
    client_cpu: CpuTime,
    storage: Option<StorageCounters>,
}

impl Snapshot {
    fn take(plan: &LoadPlan, engine: &Engine<'_>) -> io::Result<Self> {
        Ok(Self {
            published: engine.settled,
            delivered: engine.delivered,
            server_cpu: plan.pid.map(process::cpu_time).transpose()?,
            client_cpu: process::cpu_time(std::process::id())?,
            storage: plan.status_url.as_deref().map(status::fetch).transpose()?,
            at: Instant::now(),
        })
    }
}

/// Runs `plan` to its end.
pub fn run(plan: &LoadPlan) -> io::Result<LoadReport> {
    process::raise_open_files();
    let mut engine = Engine::set_up(plan)?;
    engine.warm_up()?;
    let before = Snapshot::take(plan, &engine)?;
    engine.measure(before.at)?;
    let after = Snapshot::take(plan, &engine)?;
    Ok(LoadReport {
        published: after.published - before.published,
        delivered: after.delivered - before.delivered,
        lost: engine.lost,
        elapsed: after.at - before.at,
        server_cpu: after.server_cpu.zip(before.server_cpu).map(|(after, before)| after.since(before)),
        client_cpu: after.client_cpu.since(before.client_cpu),
        resident_bytes: plan.pid.map(process::resident_bytes).transpose()?,
        storage: after.storage.zip(before.storage).map(|(after, before)| after.since(before)),
        sent_by_publisher: engine.sent_by_publisher(),
        delivery_latency: std::mem::take(&mut engine.delivery_latency),
        acknowledgement_latency: std::mem::take(&mut engine.acknowledgement_latency),
    })
}
