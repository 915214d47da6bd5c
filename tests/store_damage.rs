//! Damaged files: the store always starts, loses at most the rows of the damaged page, and says so.

#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

#[path = "support/disk.rs"]
mod disk;
#[path = "support/model.rs"]
mod model;

use disk::{Random, SimDisk};
use gatewayd::ids::{BatchNumber, RowKey};
use gatewayd::store::{BatchBuilder, OnCorrupt, OpenError, Place, Recovery, Store, StoreOptions};
use model::{Model, Rows, replay, small};

const LOG: &str = "gateway.redb";
const JOURNAL: &str = "gateway.journal";
const PAGE: usize = 4096;

/// A store with a past: the disk, what it holds, and every row that it ever held.
struct Aged {
    disk: SimDisk,
    options: StoreOptions,
    model: Model,
    ever: Rows,
}

fn age(options: StoreOptions, batches: u64, rows: usize, clean: bool) -> Aged {
    let mut disk = SimDisk::new(1);
    let mut random = Random::new(2);
    let (mut store, _) = Store::open(disk.disk(), options.clone()).unwrap();
    let mut model = Model::default();
    let mut ever = Rows::new();
    let half_used = |store: &Store| store.usage().journal_used > store.usage().journal_bytes / 2;
    for index in 0.. {
        if index >= batches && (clean || half_used(&store)) {
            break;
        }
        let (batch, after) = model.batch(&mut random, rows);
        store.append(batch).unwrap();
        model = after;
        ever.extend(model.rows.iter().rev().take(10).map(|(key, row)| (*key, row.clone())));
    }
    if clean {
        store.close(Some(b"the essentials")).unwrap();
    } else {
        store.write_essentials(b"the essentials").unwrap();
        // As a kill would leave it: without what dropping the store still writes.
        disk = disk.copy(3);
    }
    Aged { disk, options, model, ever }
}

/// What became of a damaged store.
struct Outcome {
    recovery: Recovery,
    missing: Vec<Place>,
    back: usize,
}

/// Opens a damaged copy, checks that it works and stays well, and compares.
fn outcome(aged: &Aged, disk: &SimDisk, what: &str) -> Outcome {
    let (mut store, recovery) = Store::open(disk.disk(), aged.options.clone()).unwrap();
    let mut rows = Rows::new();
    let report = store.replay(&mut |place, kind, body| {
        rows.insert(place.key, (place, kind, body.to_vec()));
    });
    report.unwrap();
    for (key, row) in &rows {
        assert_eq!(aged.ever.get(key), Some(row), "{what}: a row that never was");
    }
    let missing: Vec<_> =
        aged.model.rows.iter().filter(|(key, _)| !rows.contains_key(key)).map(|(_, row)| row.0).collect();
    let back = rows.keys().filter(|key| !aged.model.rows.contains_key(key)).count();
    if !missing.is_empty() || back > 0 {
        let said = !recovery.damage.is_empty() || recovery.unfinished.is_some();
        assert!(said, "{what}: {} missing, {back} back, and nothing said", missing.len());
    }
    if !recovery.damage.is_empty() {
        assert_eq!(recovery.essentials.as_deref(), Some(&b"the essentials"[..]), "{what}");
    }
    let highest = aged.ever.last_key_value().unwrap().0.batch();
    let next = store.last_batch().next();
    assert!(next > highest || recovery.unfinished == Some(next), "{what}: a number is used again");
    let mut builder = BatchBuilder::new(next);
    let place = builder.push(1, b"life goes on").unwrap();
    store.append(builder.finish()).unwrap();
    rows.insert(place.key, (place, 1, b"life goes on".to_vec()));
    store.close(Some(b"the essentials")).unwrap();
    let (mut store, again) = Store::open(disk.disk(), aged.options.clone()).unwrap();
    assert!(again.damage.is_empty() && again.clean && again.boot > recovery.boot, "{what}: {again:?}");
    assert!(replay(&mut store) == rows, "{what}: the second start differs");
    Outcome { recovery, missing, back }
}

/// True when a piece of the row has its key in these bytes.
fn has_piece(bytes: &[u8], place: Place) -> bool {
    (0..u64::from(place.pieces)).any(|index| {
        let key = RowKey(place.key.0 + index).0.to_le_bytes();
        bytes.windows(8).any(|window| window == key)
    })
}

/// Flips a byte in pages of the row log in turn; returns how often damage was told, how often it was that redb fell
/// back, most rows missing, most rows back.
fn flip_log_pages(aged: &Aged, step: usize) -> (usize, usize, usize, usize) {
    let content = aged.disk.content(LOG).unwrap();
    let mut random = Random::new(4);
    let (mut damaged, mut fell_back, mut most_missing, mut most_back) = (0, 0, 0, 0);
    for (number, page) in content.chunks(PAGE).enumerate().step_by(step) {
        let used = page.iter().rposition(|&byte| byte != 0).map_or(PAGE, |last| last + 1);
        let at = random.below(used as u64);
        let mask = 1 << random.below(8);
        let disk = aged.disk.copy(number as u64);
        disk.flip(LOG, (number * PAGE) as u64 + at, mask);
        let what = format!("page {number} byte {at} mask {mask}");
        let found = outcome(aged, &disk, &what);
        for place in &found.missing {
            assert!(has_piece(page, *place), "{what}: row {place:?} is missing, {:?}", found.recovery);
        }
        fell_back += usize::from(found.recovery.damage.iter().any(|text| text.contains("fell back")));
        if !found.recovery.damage.is_empty() {
            assert!(disk.exists("gateway.redb.damaged-1"), "{what}: {:?}", found.recovery);
            damaged += 1;
        }
        most_missing = most_missing.max(found.missing.len());
        most_back = most_back.max(found.back);
    }
    (damaged, fell_back, most_missing, most_back)
}

#[test]
fn a_flipped_byte_in_any_page_of_the_row_log_costs_at_most_that_page() {
    for clean in [true, false] {
        let aged = age(small(), 400, 300, clean);
        let found = flip_log_pages(&aged, 1);
        println!(
            "clean {clean}: damaged, fell back, most missing, most back {found:?} of {}",
            aged.model.rows.len()
        );
        assert!(found.0 > 20 && (clean || found.1 > 0) && found.2 < 100);
        assert!(found.3 < aged.model.rows.len() / 2, "too much came back");
    }
}

#[test]
fn the_same_holds_for_a_deeper_tree() {
    let options = StoreOptions { gateway_bytes_max: 3 << 20, ..small() };
    let mut aged = age(options, 40, 300, true);
    // Many small rows, so that the tree has two levels of branches.
    let (mut store, _) = Store::open(aged.disk.disk(), aged.options.clone()).unwrap();
    for number in aged.model.last + 1..aged.model.last + 60 {
        let mut builder = BatchBuilder::new(BatchNumber(number));
        for index in 0..160u8 {
            let row = (1, vec![index; 90]);
            let place = builder.push(row.0, &row.1).unwrap();
            aged.model.rows.insert(place.key, (place, row.0, row.1));
        }
        aged.model.last = number;
        store.append(builder.finish()).unwrap();
    }
    store.close(None).unwrap();
    aged.ever.extend(aged.model.rows.clone());
    let found = flip_log_pages(&aged, 19);
    println!("deep: damaged, fell back, most missing, most back {found:?} of {}", aged.model.rows.len());
    assert!(found.0 > 10 && found.2 < 100);
}

#[test]
fn a_flip_of_any_byte_of_the_row_logs_header_loses_nothing() {
    for clean in [true, false] {
        let aged = age(small(), 400, 300, clean);
        for at in 0..320 {
            let disk = aged.disk.copy(at);
            disk.flip(LOG, at, 1 << (at % 8));
            let found = outcome(&aged, &disk, &format!("clean {clean} byte {at}"));
            // What the last apply removed may come back, when only the commit before it can be read.
            let back_max = if clean { 0 } else { 60 };
            assert!(found.missing.is_empty() && found.back <= back_max, "byte {at}: {:?}", found.recovery);
        }
    }
}

#[test]
fn a_flipped_byte_in_any_page_of_the_journal_costs_at_most_that_page() {
    let aged = age(small(), 380, 300, false);
    let content = aged.disk.content(JOURNAL).unwrap();
    let mut random = Random::new(5);
    let (mut most_missing, mut said) = (0, 0);
    for (number, page) in content.chunks(PAGE).enumerate() {
        for _ in 0..4 {
            let at = random.below(PAGE as u64);
            let disk = aged.disk.copy(number as u64);
            disk.flip(JOURNAL, (number * PAGE) as u64 + at, 0x40);
            let what = format!("page {number} byte {at}");
            let found = outcome(&aged, &disk, &what);
            let batch = u64::from_le_bytes(page[8..16].try_into().unwrap());
            for place in &found.missing {
                assert_eq!(place.key.batch(), BatchNumber(batch), "{what}: {:?}", found.recovery);
            }
            most_missing = most_missing.max(found.missing.len());
            said += u64::from(!found.recovery.damage.is_empty());
        }
    }
    println!("most missing {most_missing}, damage told {said} times");
    assert!(said > 5);
}

#[test]
fn files_cut_short_empty_foreign_or_missing_never_stop_the_start() {
    for clean in [true, false] {
        let aged = age(small(), 400, 300, clean);
        for name in [LOG, JOURNAL] {
            let content = aged.disk.content(name).unwrap();
            let foreign: Vec<u8> = b"#!/bin/sh\necho not a database\n".repeat(4_000);
            let cuts = [0, 1, 100, PAGE, PAGE + 1, 3 * PAGE, content.len() / 3, content.len() - 1];
            let mut variants: Vec<_> =
                cuts.iter().map(|&len| (format!("cut to {len}"), content[..len].to_vec())).collect();
            variants.push(("foreign".into(), foreign));
            variants.push(("all ones".into(), vec![0xff; content.len()]));
            variants.push(("zeros".into(), vec![0; content.len()]));
            variants.push(("longer".into(), [&content[..], &[7; 5000]].concat()));
            for (what, bytes) in variants {
                let disk = aged.disk.copy(1);
                disk.plant(name, &bytes);
                let found = outcome(&aged, &disk, &format!("clean {clean} {name} {what}"));
                if what != "longer" && !(clean && name == JOURNAL) {
                    assert!(!found.recovery.damage.is_empty() || found.missing.is_empty(), "{name} {what}");
                }
            }
            let disk = aged.disk.copy(1);
            disk.take_away(name);
            let found = outcome(&aged, &disk, &format!("clean {clean} {name} missing"));
            assert!(!found.recovery.damage.is_empty());
        }
        let disk = aged.disk.copy(1);
        disk.plant(LOG, b"");
        disk.plant(JOURNAL, b"");
        outcome(&aged, &disk, "both empty");
    }
}

#[test]
fn a_page_that_the_medium_cannot_read_costs_at_most_that_page() {
    for clean in [true, false] {
        let aged = age(small(), 400, 300, clean);
        for (name, step) in [(LOG, 3), (JOURNAL, 1)] {
            let content = aged.disk.content(name).unwrap();
            for (number, page) in content.chunks(PAGE).enumerate().step_by(step) {
                let disk = aged.disk.copy(number as u64);
                disk.wear_out(name, number as u64);
                let what = format!("{name} page {number}");
                let found = outcome(&aged, &disk, &what);
                let batch = u64::from_le_bytes(page[8..16].try_into().unwrap());
                for place in &found.missing {
                    let told =
                        if name == LOG { has_piece(page, *place) } else { place.key.batch().0 == batch };
                    assert!(told, "{what}: row {place:?} is missing, {:?}", found.recovery);
                }
            }
        }
    }
}

#[test]
fn a_power_cut_while_damage_is_repaired_costs_nothing_more() {
    let aged = age(small(), 400, 300, false);
    let page = PAGE as u64;
    let flips: [&[(&str, u64)]; 4] = [
        &[(LOG, 9 * page + 4), (LOG, 30 * page + 4), (LOG, 60 * page + 4)],
        &[(JOURNAL, 2 * page + 20)],
        &[(JOURNAL, 20), (JOURNAL, page + 20), (JOURNAL, 4 * page + 20)],
        &[(LOG, 9 * page + 4), (LOG, 20 * page + 4), (LOG, 50 * page + 4), (JOURNAL, 3 * page + 20)],
    ];
    for (case, flips) in flips.into_iter().enumerate() {
        let damaged = aged.disk.copy(1);
        for &(name, at) in flips {
            damaged.flip(name, at, 0xff);
        }
        let calm = damaged.copy(1);
        let expected = outcome(&aged, &calm, &format!("case {case}"));
        assert!(!expected.recovery.damage.is_empty(), "case {case}");
        let operations = calm.operations();
        for cut in 0..operations {
            let disk = damaged.copy(cut);
            disk.power_cut_at(cut);
            if Store::open(disk.disk(), aged.options.clone()).is_ok_and(|_| !disk.power_is_off()) {
                break;
            }
            let what = format!("case {case} cut at {cut}");
            let found = outcome(&aged, &disk.reboot(), &what);
            assert_eq!((found.missing, found.back), (expected.missing.clone(), expected.back), "{what}");
            assert!(!found.recovery.damage.is_empty(), "{what}");
        }
    }
}

#[test]
fn with_on_corrupt_stop_a_damaged_file_is_left_alone() {
    let aged = age(small(), 400, 300, true);
    let disk = aged.disk.copy(1);
    for page in 1..20 {
        disk.flip(LOG, page * PAGE as u64 + 40, 0xff);
    }
    let before = disk.content(LOG);
    let options = StoreOptions { on_corrupt: OnCorrupt::Stop, ..aged.options };
    let result = Store::open(disk.disk(), options);
    assert!(matches!(result, Err(OpenError::Damaged { file: LOG, .. })));
    assert!(disk.content(LOG) == before && !disk.exists("gateway.redb.damaged-1"));
}

#[test]
fn files_from_a_newer_version_stop_the_start_and_stay_as_they_are() {
    let aged = age(small(), 400, 300, true);
    // The journal's two header slots, with version 2 and a checksum that fits.
    let disk = aged.disk.copy(1);
    let mut journal = aged.disk.content(JOURNAL).unwrap();
    for slot in [0, PAGE] {
        journal[slot + 4] = 2;
        let crc = crc32fast::hash(&journal[slot..slot + 60]);
        journal[slot + 60..slot + 64].copy_from_slice(&crc.to_le_bytes());
    }
    disk.plant(JOURNAL, &journal);
    let result = Store::open(disk.disk(), aged.options);
    assert!(matches!(result, Err(OpenError::TooNew { file: JOURNAL, found: 2, newest: 1 })));
    assert_eq!(disk.content(JOURNAL).unwrap(), journal);
}

#[test]
fn a_row_log_from_a_newer_version_stops_the_start_and_stays_as_it_is() {
    let aged = age(small(), 100, 60, true);
    let path = std::env::temp_dir().join(format!("gatewayd-too-new-{}.redb", std::process::id()));
    let database = redb::Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let mut marker = [b"GWLM".to_vec(), vec![2; 40]].concat();
    let crc = crc32fast::hash(&marker[..36]);
    marker[36..40].copy_from_slice(&crc.to_le_bytes());
    let table = redb::TableDefinition::<u64, &[u8]>::new("log");
    transaction.open_table(table).unwrap().insert(0, &marker[..]).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let disk = aged.disk.copy(1);
    disk.plant(LOG, &bytes);
    let result = Store::open(disk.disk(), aged.options);
    assert!(matches!(result, Err(OpenError::TooNew { file: LOG, found: 2, newest: 1 })));
    assert_eq!(disk.content(LOG).unwrap(), bytes);
}

#[test]
fn damaged_files_do_not_pile_up() {
    let aged = age(small(), 100, 60, true);
    let mut disk = aged.disk.copy(1);
    for _ in 0..6 {
        disk.plant(LOG, b"damaged again");
        drop(Store::open(disk.disk(), aged.options.clone()).unwrap());
        disk.cut_power();
        disk = disk.reboot();
    }
    let aside: Vec<_> = disk.names().into_iter().filter(|name| name.contains("redb.damaged")).collect();
    assert_eq!(aside, ["gateway.redb.damaged-4", "gateway.redb.damaged-5", "gateway.redb.damaged-6"]);
}

/// Whichever header slot is lost, and whenever the power goes meanwhile.
#[test]
fn a_boot_count_is_never_given_out_twice() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut disk = SimDisk::new(seed);
        let mut highest = 0;
        for start in 0..30 {
            if random.one_in(4) {
                disk.power_cut_at(random.below(20));
            }
            if let Ok((store, recovery)) = Store::open(disk.disk(), small()) {
                assert!(recovery.boot > highest, "seed {seed}, start {start}: {recovery:?} after {highest}");
                highest = recovery.boot;
                if random.one_in(3) {
                    drop(store.close(None));
                }
            }
            disk.cut_power();
            disk = disk.reboot();
            if disk.len(JOURNAL) > 0 && random.one_in(2) {
                disk.flip(JOURNAL, random.below(2) * PAGE as u64 + 10, 1);
            }
        }
        assert!(highest > 10);
    }
}
