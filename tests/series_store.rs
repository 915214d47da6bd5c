//! The series store on a simulated disk: whatever comes in comes back byte for byte, through chunks, restarts, power
//! cuts, retention and deletion, and a query sees each reading once.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a wrong test may panic")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use gatewayd::ids::RowKey;
use gatewayd::series::{
    Aggregate, Bucket, Condition, EstimatedBy, FlushTo, Item, Origin, Place, Query, QueryError, Reading,
    Rules, SeriesOptions, SeriesStore, Sink, Snapshot, Source, Start, run, takes,
};
use gatewayd::store::StoreError;

#[path = "support/disk.rs"]
mod disk;
use disk::{Random, SimDisk};

const NOW: i64 = 1_764_000_000_000;
/// How long some tests keep readings, milliseconds.
const RETENTION: i64 = 400_000;

fn options(rules: Rules) -> SeriesOptions {
    SeriesOptions {
        bytes_max: 64 << 20,
        reserve_free: 0,
        quarantine: true,
        collections: BTreeMap::from([("readings".into(), rules)]),
        start: start(),
        seed: 1,
    }
}

/// A start whose clock is not trusted: it shows 1 000 000 when the monotonic one shows 0.
const fn start() -> Start {
    Start { number: 1, system_boot: 1, began_ms: 0, estimate_ms: Some(1_000_000) }
}

fn open(disk: &SimDisk, rules: Rules) -> SeriesStore {
    let (store, found) = SeriesStore::open(disk.disk(), options(rules)).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    store
}

fn origin(topic: &str) -> Origin {
    let site = topic.split('/').nth(1).unwrap_or("none");
    Origin { topic: topic.into(), tags: vec![("site".into(), site.into())] }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Kept {
    time: i64,
    topic: String,
    payload: Vec<u8>,
}

/// Start, group and values of a bucket.
type Results = (Option<i64>, Vec<String>, Vec<Option<f64>>);

#[derive(Default)]
struct All {
    items: Vec<Kept>,
    buckets: Vec<Results>,
    estimated: usize,
    stop_after: Option<usize>,
}

impl Sink for All {
    fn item(&mut self, item: &Item<'_>) -> bool {
        self.estimated += usize::from(item.estimated);
        self.items.push(Kept {
            time: item.time,
            topic: item.origin.topic.to_string(),
            payload: item.payload.to_vec(),
        });
        self.stop_after.is_none_or(|most| self.items.len() < most)
    }

    fn bucket(&mut self, bucket: &Bucket<'_>) -> bool {
        let group = bucket.group.iter().map(|name| name.to_string()).collect();
        self.buckets.push((bucket.start, group, bucket.values.to_vec()));
        true
    }
}

fn query(store: &SeriesStore, query: &Query) -> All {
    let mut all = All::default();
    let report = run(query, &mut &*store, &mut all).unwrap();
    assert_eq!(report.damaged, 0);
    all
}

fn everything() -> Query {
    Query { collection: "readings".into(), ..Query::default() }
}

/// A JSON text of any form: white space anywhere, names twice, every kind of number and escape.
fn document(random: &mut Random, depth: u64, out: &mut String) {
    let space = |random: &mut Random, out: &mut String| {
        out.push_str(["", "", "", " ", "\t", "\r\n  "][random.below(6) as usize]);
    };
    space(random, out);
    match random.below(if depth == 0 { 6 } else { 9 }) {
        0 => out.push_str(&random.below(1000).to_string()),
        1 => out.push_str(&format!("{:.*}", random.below(4) as usize, random.below(100_000) as f64 / 100.0)),
        2 => out.push_str(
            [
                "-0",
                "-0.0",
                "0.10",
                "1e-7",
                "1E+400",
                "123456789012345678901234567890",
                "0.1234567890123456789",
            ][random.below(7) as usize],
        ),
        3 => out.push_str(["true", "false", "null"][random.below(3) as usize]),
        4 => out.push_str(&format!("{}", f64::from_bits(random.next() >> 2 | 0x3fe0_0000_0000_0000))),
        5 => text(random, out),
        6 => {
            out.push('[');
            for n in 0..random.below(4) {
                out.push_str(if n > 0 { "," } else { "" });
                document(random, depth - 1, out);
            }
            space(random, out);
            out.push(']');
        }
        _ => {
            out.push('{');
            for n in 0..random.below(5) {
                out.push_str(if n > 0 { "," } else { "" });
                space(random, out);
                text(random, out);
                space(random, out);
                out.push(':');
                document(random, depth - 1, out);
            }
            space(random, out);
            out.push('}');
        }
    }
    space(random, out);
}

fn text(random: &mut Random, out: &mut String) {
    let texts = [
        "value",
        "unit",
        "a.b",
        "",
        "_topic",
        "\u{e9}\u{1f321}",
        "\\n\\t\\\"",
        "\\u00e9\\ud83d\\ude00",
        "on",
        "2026-11-29T10:00:00Z",
    ];
    out.push('"');
    out.push_str(texts[random.below(10) as usize]);
    out.push('"');
}

fn payload(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => (0..random.below(30)).map(|_| random.below(256) as u8).collect(),
        1 => b"on".to_vec(),
        2 => format!("{}.{}", random.below(50), random.below(10)).into_bytes(),
        3 => b"{\"value\": NaN}".to_vec(),
        4..=7 => {
            let mut out = String::new();
            document(random, 4, &mut out);
            if random.one_in(30) {
                out = format!(
                    "{{\"long\": \"{}\", \"rest\":{out}}}",
                    "x".repeat(random.below(20_000) as usize)
                );
            }
            out.into_bytes()
        }
        _ => {
            format!("{{\"value\": {}.{}, \"unit\": \"C\"}}", random.below(40), random.below(10)).into_bytes()
        }
    }
}

/// What is expected of a collection: the readings in the order of their arrival.
struct Model {
    readings: Vec<(u64, Kept)>,
    sequence: u64,
}

impl Model {
    fn push(&mut self, store: &mut SeriesStore, kept: Kept) {
        store.push(Reading {
            collection: "readings".into(),
            sequence: self.sequence,
            time: kept.time,
            estimated: None,
            origin: origin(&kept.topic),
            payload: Bytes::from(kept.payload.clone()),
        });
        self.readings.push((self.sequence, kept));
        self.sequence += 1;
    }

    fn check(&self, store: &SeriesStore) {
        let sorted = |mut readings: Vec<Kept>| {
            // Readings of different topics in one millisecond come in any order, those of one topic as they came.
            readings.sort_by(|a, b| (a.time, &a.topic).cmp(&(b.time, &b.topic)));
            readings
        };
        let found = query(store, &everything()).items;
        assert!(found.is_sorted_by_key(|kept| kept.time));
        let expected = sorted(self.readings.iter().map(|(_, kept)| kept.clone()).collect());
        assert_eq!(found.len(), expected.len());
        assert_eq!(sorted(found), expected);
    }
}

/// Retention ended some readings, all from before `cutoff`: the model forgets those.
fn expire(model: &mut Model, store: &SeriesStore, cutoff: i64) {
    let mut found: BTreeMap<(i64, String, Vec<u8>), usize> = BTreeMap::new();
    for kept in query(store, &everything()).items {
        *found.entry((kept.time, kept.topic, kept.payload)).or_default() += 1;
    }
    model.readings.retain(|(_, kept)| {
        let count = found.get_mut(&(kept.time, kept.topic.clone(), kept.payload.clone()));
        let is_there = count.filter(|count| **count > 0).map(|count| *count -= 1).is_some();
        assert!(is_there || kept.time < cutoff, "{} is gone before its time, {cutoff}", kept.time);
        is_there
    });
    // Nobody has to keep a reading much longer than he said.
    assert!(model.readings.iter().all(|(_, kept)| kept.time >= cutoff - RETENTION / 8));
}

fn flush_to(through: u64) -> [FlushTo; 1] {
    [FlushTo { collection: "readings".into(), through, row_key: RowKey(through + 1) }]
}

#[test]
fn readings_survive_flushes_restarts_and_power_cuts() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let mut disk = SimDisk::new(seed);
        let rules = Rules {
            series_max: if seed % 3 == 0 { 3 } else { 100 },
            retention_ms: (seed % 2 == 0).then_some(RETENTION),
            ..Rules::default()
        };
        let mut store = open(&disk, rules);
        let mut model = Model { readings: Vec::new(), sequence: 0 };
        let mut flushed = 0;
        let mut time = NOW;
        for _ in 0..120 {
            match random.below(12) {
                0..=6 => {
                    for _ in 0..random.below(60) {
                        // Bursts within a millisecond, steps back, and now and then a long silence.
                        time += match random.below(60) {
                            0 => random.below(600_000) as i64,
                            1 | 2 => -5000,
                            3..=10 => 0,
                            _ => random.below(1500) as i64,
                        };
                        let topic = format!("s/{}/t{}", random.below(2), random.below(6));
                        model.push(&mut store, Kept { time, topic, payload: payload(&mut random) });
                    }
                }
                7 | 8 if model.sequence > flushed => {
                    let through = flushed + random.below(model.sequence - flushed);
                    store.flush(Some(time), &flush_to(through)).unwrap();
                    flushed = flushed.max(through + 1);
                    if rules.retention_ms.is_some() {
                        store.flush(Some(time), &flush_to(model.sequence - 1)).unwrap();
                        flushed = model.sequence;
                        expire(&mut model, &store, time - RETENTION);
                    }
                }
                9 => model.check(&store),
                10 if random.one_in(3) => {
                    // Power goes: the tail is gone, and comes again out of the log.
                    disk.cut_power();
                    drop(store);
                    disk = disk.reboot();
                    let (again, found) = SeriesStore::open(disk.disk(), options(rules)).unwrap();
                    assert_eq!(found.damage, Vec::<String>::new());
                    let stored = found.watermarks.get("readings").map_or(0, |key| key.0);
                    assert_eq!(stored, flushed);
                    store = again;
                    let lost = model.readings.iter().filter(|(sequence, _)| *sequence >= flushed).cloned();
                    let lost: Vec<_> = lost.collect();
                    for (sequence, kept) in lost {
                        store.push(Reading {
                            collection: "readings".into(),
                            sequence,
                            time: kept.time,
                            estimated: None,
                            origin: origin(&kept.topic),
                            payload: kept.payload.into(),
                        });
                    }
                    model.check(&store);
                }
                11 if model.sequence > 0 => {
                    let from = NOW + random.below(60_000) as i64;
                    let span = from..from + random.below(20_000) as i64;
                    let topic = format!("s/{}/#", random.below(2));
                    // Nothing is too old while the clock is not trusted.
                    store.flush(None, &flush_to(model.sequence - 1)).unwrap();
                    flushed = model.sequence;
                    let wanted = |origin: &Origin| takes(&topic, &origin.topic);
                    let deleted = store.delete("readings", &wanted, span.clone()).unwrap();
                    let before = model.readings.len();
                    model
                        .readings
                        .retain(|(_, kept)| !(span.contains(&kept.time) && takes(&topic, &kept.topic)));
                    assert_eq!(deleted, (before - model.readings.len()) as u64);
                }
                _ => {}
            }
        }
        model.check(&store);
    }
}

#[test]
fn age_and_bytes_end_the_oldest_first() {
    let disk = SimDisk::new(5);
    let rules = Rules { retention_ms: Some(3_600_000), bytes_max: 40_000, series_max: 100 };
    let mut store = open(&disk, rules);
    let mut model = Model { readings: Vec::new(), sequence: 0 };
    let mut random = Random::new(5);
    for minute in 0..600i64 {
        for second in 0..60 {
            let topic = format!("s/a/t{}", second % 4);
            // Nothing to pack: eight bytes each.
            let text = format!("{{\"v\": {}}}", random.next() >> 4);
            let kept =
                Kept { time: NOW + minute * 60_000 + second * 1000, topic, payload: text.into_bytes() };
            model.push(&mut store, kept);
        }
        store.flush(Some(NOW + (minute + 1) * 60_000), &flush_to(model.sequence - 1)).unwrap();
    }
    let bytes: u64 = store.series().map(|(_, series)| series.extent.bytes).sum();
    assert!(bytes <= 40_000, "{bytes}");
    let found = query(&store, &everything()).items;
    assert!(found.len() > 2000 && found.len() < 6000, "{}", found.len());
    let newest: Vec<_> =
        model.readings[model.readings.len() - 1000..].iter().map(|(_, k)| k.clone()).collect();
    assert_eq!(found[found.len() - 1000..], newest[..]);
    assert_eq!(store.counters().expired, (model.readings.len() - found.len()) as u64);
}

#[test]
fn beyond_series_max_readings_share_one_series_and_keep_their_topics() {
    let disk = SimDisk::new(6);
    let mut store = open(&disk, Rules { series_max: 10, ..Rules::default() });
    let mut model = Model { readings: Vec::new(), sequence: 0 };
    for n in 0..5000 {
        let kept = Kept { time: NOW + n, topic: format!("s/{n}/x"), payload: b"{\"value\": 1.5}".to_vec() };
        model.push(&mut store, kept);
    }
    model.check(&store);
    store.flush(Some(NOW), &flush_to(model.sequence - 1)).unwrap();
    model.check(&store);
    assert_eq!(store.series().count(), 11);
    assert_eq!(store.counters().shared, 4990);
    let one = Query { topic: Some("s/4321/#".into()), ..everything() };
    assert_eq!(query(&store, &one).items.len(), 1);
    let by_site = Query {
        aggregates: vec![Aggregate::parse("count", None).unwrap()],
        by: vec![Place::parse("site").unwrap()],
        topic: Some("s/+/x".into()),
        ..everything()
    };
    assert_eq!(query(&store, &by_site).buckets.len(), 5000);
}

#[test]
fn aggregates_are_those_of_the_readings() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut store = open(&disk, Rules::default());
        let mut model = Model { readings: Vec::new(), sequence: 0 };
        let mut values = Vec::new();
        for n in 0..3000i64 {
            let value = random.below(1000) as f64 / 10.0;
            let site = random.below(3);
            let time = NOW + n * 700 + random.below(200) as i64;
            values.push((time, site, value));
            let text = if seed % 2 == 0 { format!("{{\"value\": {value:.1}}}") } else { format!("{value}") };
            let topic = format!("s/{site}/t");
            model.push(&mut store, Kept { time, topic, payload: text.into_bytes() });
            if random.one_in(700) {
                store.flush(Some(time), &flush_to(model.sequence - 1)).unwrap();
            }
        }
        let every = [1000i64, 60_000, 3_600_000][seed as usize % 3];
        let least = 25.0;
        let asked = Query {
            condition: (seed % 4 == 0).then(|| Condition::parse("value >= 25").unwrap()),
            every_ms: Some(every),
            aggregates: ["count", "avg", "min", "max", "last", "p95"]
                .map(|name| Aggregate::parse(name, None).unwrap())
                .to_vec(),
            by: vec![Place::parse("site").unwrap()],
            since: Some(NOW + 10_000),
            until: Some(NOW + 2_000_000),
            ..everything()
        };
        let mut expected: BTreeMap<(i64, u64), Vec<(i64, f64)>> = BTreeMap::new();
        for (time, site, value) in values {
            if (NOW + 10_000..NOW + 2_000_000).contains(&time) && (seed % 4 != 0 || value >= least) {
                expected.entry((time.div_euclid(every) * every, site)).or_default().push((time, value));
            }
        }
        let found = query(&store, &asked).buckets;
        assert_eq!(found.len(), expected.len());
        for ((start, group, results), ((stretch, site), mut values)) in found.into_iter().zip(expected) {
            assert_eq!((start, group), (Some(stretch), vec![site.to_string()]));
            let last = values.iter().max_by_key(|(time, _)| *time).unwrap().1;
            values.sort_by(|a, b| a.1.total_cmp(&b.1));
            let sum: f64 = values.iter().map(|(_, value)| value).sum();
            let p95 = values[(values.len() * 95).div_ceil(100) - 1].1;
            let average = results[1].unwrap();
            assert!((average - sum / values.len() as f64).abs() < 1e-9);
            let exact = [values.len() as f64, average, values[0].1, values[values.len() - 1].1, last, p95];
            assert_eq!(results, exact.map(Some));
        }
    }
}

#[test]
fn a_query_is_bounded_by_time_limit_and_condition_and_may_stop() {
    let disk = SimDisk::new(8);
    let mut store = open(&disk, Rules::default());
    let mut model = Model { readings: Vec::new(), sequence: 0 };
    // A long gap in between.
    for n in 0..4000i64 {
        let time = NOW + n * 1000 + if n >= 2000 { 400 * 86_400_000 } else { 0 };
        let text = format!("{{\"value\": {n}, \"unit\": \"C\"}}");
        model.push(&mut store, Kept { time, topic: "s/a/t".into(), payload: text.into_bytes() });
        if n == 3000 {
            store.flush(Some(time), &flush_to(2500)).unwrap();
        }
    }
    model.check(&store);
    let span = Query { since: Some(NOW + 5000), until: Some(NOW + 10_000), ..everything() };
    assert_eq!(query(&store, &span).items.len(), 5);
    let limited = Query { limit: Some(7), ..everything() };
    assert_eq!(query(&store, &limited).items.len(), 7);
    let condition = Condition::parse("value >= 1990 and value < 2010 and unit = 'C'").unwrap();
    let some = Query { condition: Some(condition), ..everything() };
    assert_eq!(query(&store, &some).items.len(), 20);
    let mut stopped = All { stop_after: Some(3), ..All::default() };
    run(&everything(), &mut &store, &mut stopped).unwrap();
    assert_eq!(stopped.items.len(), 3);
    let none = Query { collection: "other".into(), ..Query::default() };
    assert!(run(&none, &mut &store, &mut All::default()).is_err());
}

/// A store that goes on while a query reads.
struct Shared<'s>(&'s RefCell<SeriesStore>);

impl Source for Shared<'_> {
    fn snapshot(&mut self, query: &Query) -> Result<Option<Snapshot>, QueryError> {
        self.0.borrow().snapshot(query)
    }
}

/// A reader who takes so long over the first reading that many flushes pass.
struct Slow<'s> {
    store: &'s RefCell<SeriesStore>,
    disk: &'s SimDisk,
    seen: Vec<u64>,
}

impl Sink for Slow<'_> {
    fn item(&mut self, item: &Item<'_>) -> bool {
        let text = std::str::from_utf8(item.payload).unwrap();
        let number = text.trim_start_matches("{\"value\": ").split(',').next().unwrap().parse().unwrap();
        if self.seen.is_empty() {
            let before = self.disk.bytes_written();
            for sequence in 3000..4000 {
                push_number(&mut self.store.borrow_mut(), sequence);
                self.store.borrow_mut().flush(Some(NOW), &flush_to(sequence)).unwrap();
            }
            assert!(self.disk.bytes_written() - before > 30 << 20, "{}", self.disk.bytes_written() - before);
        }
        self.seen.push(number);
        true
    }

    fn bucket(&mut self, _: &Bucket<'_>) -> bool {
        true
    }
}

fn push_number(store: &mut SeriesStore, sequence: u64) {
    let payload = format!("{{\"value\": {sequence}, \"noise\": \"{sequence:x}\"}}");
    store.push(Reading {
        collection: "readings".into(),
        sequence,
        time: NOW + sequence as i64 * 1000,
        estimated: None,
        origin: origin("s/a"),
        payload: payload.into(),
    });
}

#[test]
fn a_slow_reader_holds_no_read_transaction() {
    let disk = SimDisk::new(12);
    let store = RefCell::new(open(&disk, Rules::default()));
    for sequence in 0..3000 {
        push_number(&mut store.borrow_mut(), sequence);
        if sequence == 2499 {
            store.borrow_mut().flush(Some(NOW), &flush_to(sequence)).unwrap();
        }
    }
    let size = disk.len("series.redb");
    let mut slow = Slow { store: &store, disk: &disk, seen: Vec::new() };
    run(&everything(), &mut Shared(&store), &mut slow).unwrap();
    // Each once, those that were in the tail when the query began too.
    assert_eq!(slow.seen, (0..3000).collect::<Vec<u64>>());
    // Pages that a read transaction held could not be used again: the file would hold all that was written.
    assert!(disk.len("series.redb") < size + (1 << 20), "{}", disk.len("series.redb"));
}

#[test]
fn estimated_times_are_corrected_once_the_clock_is_trusted() {
    let disk = SimDisk::new(9);
    let mut store = open(&disk, Rules::default());
    let push = |store: &mut SeriesStore, sequence: u64, time: i64, estimated: Option<EstimatedBy>| {
        let payload = Bytes::from(format!("{{\"n\": {sequence}}}"));
        let collection: Arc<str> = "readings".into();
        store.push(Reading { collection, sequence, time, estimated, origin: origin("s/a"), payload });
    };
    let this = Some(EstimatedBy::ThisStart);
    for n in 0..1000 {
        push(&mut store, n, 1_000_000 + n as i64 * 1000, this);
    }
    store.flush(None, &flush_to(599)).unwrap();
    let marked = query(&store, &everything());
    assert!(marked.items.len() == 1000 && marked.estimated == 1000);
    store.correct_times(NOW).unwrap();
    // One that was on its way.
    push(&mut store, 1000, 1_000_000 + 1000 * 1000, this);
    push(&mut store, 1001, NOW + 1001 * 1000, None);
    let found = query(&store, &everything());
    let times: Vec<i64> = found.items.iter().map(|kept| kept.time).collect();
    assert_eq!(times, (0..=1001).map(|n| NOW + n * 1000).collect::<Vec<_>>());
    assert_eq!(found.estimated, 0);
    store.flush(Some(NOW), &flush_to(1001)).unwrap();
    assert_eq!(query(&store, &everything()).items.len(), 1002);
}

#[test]
fn a_later_start_corrects_the_estimates_of_its_boot_and_keeps_the_others() {
    let disk = SimDisk::new(11);
    let push = |store: &mut SeriesStore, sequence: u64, time: i64, estimated: Option<EstimatedBy>| {
        let payload = Bytes::from(format!("{{\"n\": {sequence}}}"));
        let collection: Arc<str> = "readings".into();
        store.push(Reading { collection, sequence, time, estimated, origin: origin("s/a"), payload });
    };
    let rules = Rules { retention_ms: Some(3_600_000), ..Rules::default() };
    let at =
        |start: Start| SeriesStore::open(disk.disk(), SeriesOptions { start, ..options(rules) }).unwrap().0;
    // Boot 1: the clock begins in 1970 and is never set.
    let mut store = at(Start { number: 1, system_boot: 1, began_ms: 8_000, estimate_ms: Some(9_000) });
    push(&mut store, 0, 10_000, Some(EstimatedBy::ThisStart));
    store.flush(None, &flush_to(0)).unwrap();
    store.close().unwrap();
    // Boot 2: two starts, the first at 5 s, the second at 65 s by the monotonic clock.
    let mut store = at(Start { number: 2, system_boot: 2, began_ms: 5_000, estimate_ms: Some(7_000) });
    push(&mut store, 0, 8_000, Some(EstimatedBy::ThisStart));
    store.flush(None, &flush_to(0)).unwrap();
    drop(store);
    let mut store = at(Start { number: 3, system_boot: 2, began_ms: 65_000, estimate_ms: Some(67_000) });
    // Out of the row log, where the second start left it.
    push(&mut store, 0, 9_000, Some(EstimatedBy::EarlierStart));
    push(&mut store, 1, 68_000, Some(EstimatedBy::ThisStart));
    store.flush(None, &flush_to(1)).unwrap();
    store.close().unwrap();
    // The clock was set while the gateway did not run: 65 s after the boot it was NOW.
    let mut store = at(Start { number: 4, system_boot: 2, began_ms: 100_000, estimate_ms: None });
    store.correct_times(NOW + 35_000).unwrap();
    let found = query(&store, &everything());
    let times: Vec<i64> = found.items.iter().map(|kept| kept.time).collect();
    // The second start's clock was 2 s ahead of the monotonic one, as the third's.
    assert_eq!(times, [10_000, NOW - 65_000 + 6_000, NOW - 65_000 + 7_000, NOW - 65_000 + 66_000]);
    assert_eq!(found.estimated, 1, "the reading of boot 1 stays an estimate");
    // Nobody knows how old that one is: it does not end by its age.
    for n in 0..2 {
        push(&mut store, n, NOW + 7_200_000, None);
        store.flush(Some(NOW + 7_200_000), &flush_to(n)).unwrap();
    }
    let found = query(&store, &everything()).items;
    assert_eq!(
        found.iter().map(|kept| kept.time).collect::<Vec<_>>(),
        [10_000, NOW + 7_200_000, NOW + 7_200_000]
    );
}

#[test]
fn a_damaged_file_is_set_aside_and_a_failing_disk_loses_nothing() {
    let disk = SimDisk::new(10);
    let mut store = open(&disk, Rules::default());
    let mut model = Model { readings: Vec::new(), sequence: 0 };
    for n in 0..500 {
        let kept = Kept { time: NOW + n, topic: "s/a".into(), payload: b"{\"value\": 1.5}".to_vec() };
        model.push(&mut store, kept);
    }
    disk.fail_at(disk.operations() + 3, disk::Fault::Io);
    assert!(store.flush(Some(NOW), &flush_to(499)).is_err());
    store.reopen().unwrap();
    model.check(&store);
    store.flush(Some(NOW), &flush_to(499)).unwrap();
    model.check(&store);
    store.close().unwrap();
    let file = disk.disk().open("series.redb", false).unwrap().unwrap();
    file.write(0, &[0x55; 4096]).unwrap();
    file.sync_data().unwrap();
    drop(file);
    let (mut store, found) = SeriesStore::open(disk.disk(), options(Rules::default())).unwrap();
    assert_eq!(found.damage.len(), 1, "{:?}", found.damage);
    assert!(disk.disk().list().unwrap().iter().any(|name| name == "series.redb.damaged-1"));
    model.readings.clear();
    let kept = Kept { time: NOW, topic: "s/b".into(), payload: b"on".to_vec() };
    model.push(&mut store, kept);
    store.flush(Some(NOW), &flush_to(model.sequence - 1)).unwrap();
    model.check(&store);
}

/// Others filled the file system into the reserve: readings wait in the row log, and starts go on.
#[test]
fn a_start_may_use_the_reserve_and_growing_may_not() {
    let disk = SimDisk::new(21);
    let reserved = || SeriesOptions { reserve_free: u64::MAX, ..options(Rules::default()) };
    let (mut store, found) = SeriesStore::open(disk.disk(), reserved()).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    let mut model = Model { readings: Vec::new(), sequence: 0 };
    let mut random = Random::new(3);
    for n in 0..3000 {
        let noise: String = (0..128).map(|_| format!("{:016x}", random.next())).collect();
        let payload = format!("{{\"value\": \"{noise}\"}}").into_bytes();
        model.push(&mut store, Kept { time: NOW + n, topic: "s/a".into(), payload });
    }
    let refused = store.flush(Some(NOW), &flush_to(2999)).unwrap_err();
    assert!(matches!(refused, StoreError::Full(_)), "{refused}");
    store.reopen().unwrap();
    model.check(&store);
    drop(store);
    SeriesStore::open(disk.disk(), reserved()).unwrap();
}

#[test]
fn a_damaged_chunk_is_left_out_and_set_aside() {
    let disk = SimDisk::new(13);
    let mut store = open(&disk, Rules::default());
    let mut model = Model { readings: Vec::new(), sequence: 0 };
    for n in 0..100 {
        for topic in ["s/a", "s/b"] {
            let payload = format!("{{\"state\": \"mark of {topic}\", \"n\": {n}}}");
            model
                .push(&mut store, Kept { time: NOW + n, topic: topic.into(), payload: payload.into_bytes() });
        }
    }
    store.flush(Some(NOW), &flush_to(model.sequence - 1)).unwrap();
    store.close().unwrap();
    let content = disk.content("series.redb").unwrap();
    let mark = b"mark of s/a";
    let places = content.windows(mark.len()).enumerate().filter(|(_, bytes)| *bytes == mark);
    for (at, _) in places {
        disk.flip("series.redb", at as u64, 1);
    }
    let mut store = open(&disk, Rules::default());
    let mut all = All::default();
    let report = run(&everything(), &mut &store, &mut all).unwrap();
    assert_eq!((report.damaged, all.items.len()), (1, 100));
    assert!(all.items.iter().all(|kept| kept.topic == "s/b"));
    // The next reading of the series finds it, and goes on beside it.
    let kept = Kept { time: NOW + 1000, topic: "s/a".into(), payload: b"7".to_vec() };
    model.readings.retain(|(_, kept)| kept.topic == "s/b");
    model.push(&mut store, kept);
    store.flush(Some(NOW), &flush_to(model.sequence - 1)).unwrap();
    assert_eq!(store.counters().chunks_damaged, 1);
    model.check(&store);
}

/// A flush whose last sync fails may be in the file all the same: the next one does not store its readings again.
#[test]
fn a_flush_that_fails_after_its_commit_is_not_repeated() {
    let mut failed = 0;
    for at in 0..30 {
        let disk = SimDisk::new(at);
        let mut store = open(&disk, Rules::default());
        let mut model = Model { readings: Vec::new(), sequence: 0 };
        for n in 0..60 {
            let kept = Kept { time: NOW + n, topic: "s/a".into(), payload: format!("{n}").into_bytes() };
            model.push(&mut store, kept);
        }
        disk.fail_at(disk.operations() + at, disk::Fault::Io);
        if store.flush(Some(NOW), &flush_to(39)).is_ok() {
            break;
        }
        failed += 1;
        store.reopen().unwrap();
        model.check(&store);
        store.flush(Some(NOW), &flush_to(39)).unwrap();
        model.check(&store);
        // The readings that came after it are still to be stored.
        store.flush(Some(NOW), &flush_to(59)).unwrap();
        model.check(&store);
    }
    assert!(failed > 3, "{failed}");
}

#[test]
fn long_topics_share_one_series_and_what_a_start_loads_stays_small() {
    let disk = SimDisk::new(22);
    let mut store = open(&disk, Rules::default());
    let mut model = Model { readings: Vec::new(), sequence: 0 };
    for n in 0..300 {
        let topic = format!("s/{n}/{}", "x".repeat(if n % 2 == 0 { 60_000 } else { 900 }));
        model.push(&mut store, Kept { time: NOW + n, topic, payload: b"1".to_vec() });
    }
    model.check(&store);
    store.flush(Some(NOW), &flush_to(model.sequence - 1)).unwrap();
    store.close().unwrap();
    let mut store = open(&disk, Rules::default());
    model.check(&store);
    let loaded: usize = store.series().filter_map(|(_, s)| s.origin.as_ref()).map(Origin::bytes).sum();
    assert!(loaded < 200_000, "{loaded}");
    assert_eq!(store.series().count(), 151);
    // What is known goes where it was.
    let topic = format!("s/1/{}", "x".repeat(900));
    model.push(&mut store, Kept { time: NOW + 1000, topic: topic.clone(), payload: b"2".to_vec() });
    assert_eq!(store.series().count(), 151);
    let one = Query { topic: Some(topic.into()), ..everything() };
    assert_eq!(query(&store, &one).items.len(), 2);
}

#[test]
fn the_three_newest_damaged_files_are_kept() {
    let disk = SimDisk::new(23);
    for _ in 0..5 {
        let (store, _) = SeriesStore::open(disk.disk(), options(Rules::default())).unwrap();
        store.close().unwrap();
        let file = disk.disk().open("series.redb", false).unwrap().unwrap();
        file.write(0, &[0x55; 4096]).unwrap();
        file.sync_data().unwrap();
    }
    let (_store, found) = SeriesStore::open(disk.disk(), options(Rules::default())).unwrap();
    assert_eq!(found.damage.len(), 1);
    let mut names = disk.disk().list().unwrap();
    names.retain(|name| name.starts_with("series.redb."));
    names.sort();
    let kept: Vec<_> = (3..=5).map(|n| format!("series.redb.damaged-{n}")).collect();
    assert_eq!(names, kept);
}
