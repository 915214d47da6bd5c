//! Fills collections with made readings, for `scripts/compare-collections`.
//!
//! `collections sizes FOLDER` makes a day of each of six kinds of streams and prints what their chunks and files take;
//! `collections fill FOLDER READINGS` fills `FOLDER/state/series.redb` for the gateway to serve. Each leaves the same
//! readings beside it as lines of time, topic and payload with tabs between.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement")]
#![allow(clippy::indexing_slicing, clippy::cast_precision_loss, reason = "a measurement")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gatewayd::ids::RowKey;
use gatewayd::random::Random;
use gatewayd::series::{FlushTo, Origin, Reading, Rules, SeriesOptions, SeriesStore, Start};
use gatewayd::store::FileDisk;

/// 2025-11-24T16:00:00Z.
const START: i64 = 1_764_000_000_000;
/// Readings that the gateway flushes at once when many come.
const FLUSH: u64 = 16_384;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sizes", folder] => sizes(Path::new(folder)),
        ["fill", folder, readings] => fill(Path::new(folder), readings.parse().unwrap()),
        _ => println!("collections sizes FOLDER | collections fill FOLDER READINGS"),
    }
}

fn open(path: &Path) -> SeriesStore {
    fs::remove_dir_all(path).ok();
    fs::create_dir_all(path).unwrap();
    let options = SeriesOptions {
        bytes_max: 4 << 30,
        reserve_free: 0,
        quarantine: false,
        collections: BTreeMap::from([("readings".into(), Rules::default())]),
        start: Start { number: 1, ..Start::default() },
        seed: 1,
    };
    SeriesStore::open(Arc::new(FileDisk::new(path).unwrap()), options).unwrap().0
}

fn reading(sequence: u64, time: i64, topic: &str, payload: String) -> Reading {
    Reading {
        collection: "readings".into(),
        sequence,
        time,
        estimated: None,
        origin: Origin { topic: topic.into(), tags: Vec::new() },
        payload: Bytes::from(payload),
    }
}

fn flush(store: &mut SeriesStore, through: u64) {
    let part = FlushTo { collection: "readings".into(), through, row_key: RowKey(through + 1) };
    store.flush(None, &[part]).unwrap();
}

/// Bytes that a file takes on the disk.
fn disk_bytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Makes the payloads of one kind of stream.
type Make = Box<dyn FnMut(&mut Random, u64) -> String>;

fn tenths(value: i64) -> String {
    format!("{{\"value\": {}.{}, \"unit\": \"C\"}}", value.div_euclid(10), value.rem_euclid(10))
}

fn step(random: &mut Random) -> i64 {
    i64::try_from(random.below(3)).unwrap() - 1
}

fn streams() -> Vec<(&'static str, Make)> {
    let (mut temperature, mut count) = (273i64, 0u64);
    let states = ["running", "running", "running", "idle", "fault"];
    vec![
        (
            "temperature, 0.1 steps",
            Box::new(move |random, _| {
                temperature += step(random);
                tenths(temperature)
            }),
        ),
        (
            "power, noisy",
            Box::new(|random, _| {
                let watts = 1500.0 + random.below(40_000) as f64 / 100.0;
                format!("{{\"value\": {watts:.2}, \"unit\": \"W\"}}")
            }),
        ),
        (
            "counter",
            Box::new(move |random, _| {
                count += random.below(4);
                format!("{{\"value\": {count}, \"unit\": \"pulses\"}}")
            }),
        ),
        (
            "status text",
            Box::new(move |random, _| {
                format!("{{\"state\": \"{}\"}}", states[usize::try_from(random.below(5)).unwrap()])
            }),
        ),
        (
            "nested JSON",
            Box::new(|random, n| {
                let (lat, lon) = (150 + random.below(20), 9795 + random.below(20));
                format!(
                    "{{\"device\": {{\"id\": \"pump-7\", \"ok\": true}}, \
                     \"pos\": {{\"lat\": 41.{lat:04}, \"lon\": 28.{lon:04}}}, \"n\": {n}}}"
                )
            }),
        ),
        (
            "floats, full precision",
            Box::new(|random, _| {
                let value = 20.0 + (random.next() >> 11) as f64 / (1u64 << 53) as f64 * 5.0;
                format!("{{\"value\": {value}}}")
            }),
        ),
    ]
}

/// A day of each stream, one reading a second with 20 ms of jitter, flushed every minute. A line for each: name, readings,
/// bytes of payload, of chunks, of the file.
fn sizes(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for (number, (name, mut make)) in streams().into_iter().enumerate() {
        let path = folder.join(format!("stream-{number}"));
        let mut store = open(&path);
        let mut random = Random::new(7);
        let mut text = BufWriter::new(File::create(path.join("readings.tsv")).unwrap());
        let (count, mut payload_bytes) = (86_400u64, 0);
        for n in 0..count {
            let time = START + i64::try_from(n * 1000 + random.below(41)).unwrap();
            let payload = make(&mut random, n);
            payload_bytes += payload.len();
            writeln!(text, "{time}\tsensors/a/b\t{payload}").unwrap();
            store.push(reading(n, time, "sensors/a/b", payload));
            if n % 60 == 59 {
                flush(&mut store, n);
            }
        }
        text.flush().unwrap();
        let chunks: u64 = store.series().map(|(_, series)| series.extent.bytes).sum();
        store.close().unwrap();
        println!("{name}\t{count}\t{payload_bytes}\t{chunks}\t{}", disk_bytes(&path.join("series.redb")));
    }
}

/// Ten sensors at one reading a second, as many readings as asked for. Prints seconds and bytes of the file.
fn fill(folder: &Path, readings: u64) {
    fs::create_dir_all(folder).unwrap();
    let mut store = open(&folder.join("state"));
    let mut random = Random::new(9);
    let mut text = BufWriter::new(File::create(folder.join("readings.tsv")).unwrap());
    let mut values = [273i64; 10];
    let (mut making, began) = (Duration::ZERO, Instant::now());
    for n in 0..readings {
        let own = Instant::now();
        let sensor = usize::try_from(n % 10).unwrap();
        // A walk that stays where rooms are.
        values[sensor] = (values[sensor] + step(&mut random)).clamp(150, 350);
        let time = START + i64::try_from(n / 10 * 1000 + random.below(41)).unwrap();
        let (payload, topic) = (tenths(values[sensor]), format!("sensors/{sensor}/temp"));
        writeln!(text, "{time}\t{topic}\t{payload}").unwrap();
        making += own.elapsed();
        store.push(reading(n, time, &topic, payload));
        if n % FLUSH == FLUSH - 1 {
            flush(&mut store, n);
        }
    }
    flush(&mut store, readings.saturating_sub(1));
    text.flush().unwrap();
    store.close().unwrap();
    let took = (began.elapsed() - making).as_secs_f64();
    println!("{took:.2}\t{}", disk_bytes(&folder.join("state/series.redb")));
}
