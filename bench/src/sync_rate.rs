//! The yardstick: how often a second this file system takes a 64-byte append and a sync.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::histogram::Histogram;

/// Bytes of one append.
const APPEND_BYTES: usize = 64;

#[derive(Debug)]
pub struct SyncRate {
    pub per_second: f64,
    pub latency: Histogram,
}

/// Appends and syncs (fdatasync) for `duration` in a new file at `path`, which is removed afterwards.
pub fn measure(path: &Path, duration: Duration) -> io::Result<SyncRate> {
    let mut file = File::options().create_new(true).append(true).open(path)?;
    let result = append_for(&mut file, duration);
    fs::remove_file(path)?;
    result
}

fn append_for(file: &mut File, duration: Duration) -> io::Result<SyncRate> {
    let start = Instant::now();
    let mut latency = Histogram::default();
    let mut last = Duration::ZERO;
    while last < duration {
        file.write_all(&[0x5A; APPEND_BYTES])?;
        file.sync_data()?;
        let now = start.elapsed();
        latency.record(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
        last = now;
    }
    Ok(SyncRate { per_second: latency.count() as f64 / last.as_secs_f64(), latency })
}
