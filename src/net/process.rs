//! What the system says about this process.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::http::metrics::ProcessFigures;

/// Ticks of /proc in a second: Linux shows 100 on every architecture.
const TICKS_PER_S: f64 = 100.0;

/// Reads /proc; what is not there is zero.
pub(super) fn figures() -> ProcessFigures {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, the name in parentheses, may hold blanks.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let page_bytes = rustix::param::page_size() as u64;
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime_s: f64 = uptime.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    ProcessFigures {
        resident_bytes: pages * page_bytes,
        cpu_s: ticks(field(14) + field(15)),
        open_files: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
        started_s: wall_s() - uptime_s + ticks(field(22)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds that are shown")]
fn ticks(count: u64) -> f64 {
    count as f64 / TICKS_PER_S
}

#[expect(
    clippy::disallowed_methods,
    reason = "the start is told by the wall clock, whether it is trusted or not"
)]
fn wall_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
