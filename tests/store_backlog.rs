//! The backlog below the broker: rows copied out of the window come back byte for byte, in bites; a power cut at any
//! operation leaves each chunk whole or absent; damage costs what lies there and the store opens whatever it finds.

#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

#[path = "support/disk.rs"]
mod disk;
#[path = "support/model.rs"]
mod model;

use std::collections::BTreeMap;

use disk::{Random, SimDisk};
use gatewayd::ids::{ChunkNumber, RowKey};
use gatewayd::store::chunk::{BacklogChange, ChunkPlan, ChunkRead};
use gatewayd::store::{BatchBuilder, Place, Store, StoreError, StoreOptions};

fn options() -> StoreOptions {
    StoreOptions { gateway_bytes_max: 4 << 20, backlog_bytes_max: 8 << 20, ..model::small() }
}

type Row = (Place, u8, Vec<u8>);

/// What is in the two files.
#[derive(Clone, Default)]
struct World {
    rows: BTreeMap<RowKey, Row>,
    chunks: BTreeMap<ChunkNumber, (Vec<u8>, Vec<Row>)>,
}

impl World {
    fn add_rows(&mut self, store: &mut Store, random: &mut Random) -> Result<(), StoreError> {
        let mut builder = BatchBuilder::new(store.last_batch().next());
        let mut rows = Vec::new();
        for _ in 0..random.below(12) {
            let len = if random.one_in(12) { random.below(70_000) } else { random.below(1_500) } as usize;
            let body = model::body(random.next(), len);
            rows.push((builder.push(3, &body).unwrap(), 3, body));
        }
        self.rows.extend(rows.into_iter().map(|row: Row| (row.0.key, row)));
        store.append(builder.finish()).map(drop)
    }

    /// A plan for the oldest rows, which the world has in a chunk once it is done.
    fn plan(&self, number: ChunkNumber, random: &mut Random) -> (ChunkPlan, Vec<Row>) {
        let count = random.below(self.rows.len().min(60) as u64 + 1) as usize;
        let rows: Vec<Row> = self.rows.values().take(count).cloned().collect();
        let places = rows.iter().map(|row| row.0).collect();
        (ChunkPlan { number, summary: model::body(number.0, 40), rows: places }, rows)
    }

    fn assert_is_in(&self, store: &mut Store, bite: usize) {
        let found = store.take_chunks();
        let numbers: Vec<_> = found.iter().map(|chunk| chunk.number).collect();
        assert_eq!(numbers, self.chunks.keys().copied().collect::<Vec<_>>());
        for chunk in found {
            let (summary, rows) = &self.chunks[&chunk.number];
            assert_eq!(&chunk.summary, summary);
            assert_eq!(&read(store, chunk.number, bite), rows);
        }
        assert_eq!(model::replay(store), self.rows.clone().into_iter().collect());
    }
}

/// All rows of a chunk, in bites.
fn read(store: &mut Store, number: ChunkNumber, bite: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut from = RowKey(0);
    loop {
        let found = store.fetch_chunk(ChunkRead { number, from, bytes_max: bite }).unwrap();
        assert!(!found.damaged, "{number}");
        rows.extend(found.rows);
        let Some(next) = found.next else { return rows };
        assert!(next > from);
        from = next;
    }
}

fn life(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut disk = SimDisk::new(random.next());
    let mut world = World::default();
    // The worlds that an unanswered step may have left.
    let mut maybe: Option<World> = None;
    let mut cuts = 0;
    let mut next = 1;
    for _ in 0..8 {
        let (mut store, found) = Store::open(disk.disk(), options()).unwrap();
        assert!(found.damage.is_empty() && found.backlog_damage.is_empty(), "seed {seed}: {found:?}");
        if let Some(other) = maybe.take() {
            let numbers: Vec<_> = other.chunks.keys().copied().collect();
            let mut there: Vec<_> = world.chunks.keys().copied().collect();
            // Look without taking: reopen below takes them.
            let chunks = store.take_chunks();
            let found: Vec<_> = chunks.iter().map(|chunk| chunk.number).collect();
            let same = |world: &World| {
                chunks.iter().all(|c| world.chunks.get(&c.number).is_some_and(|(s, _)| *s == c.summary))
            };
            if found == numbers && same(&other) {
                world.chunks = other.chunks;
                there = numbers;
            }
            assert_eq!(found, there, "seed {seed}: a change is whole or absent");
            let rows = model::replay(&mut store);
            if rows.keys().eq(other.rows.keys()) {
                world.rows = other.rows;
            }
            assert!(rows.keys().eq(world.rows.keys()), "seed {seed}");
            drop(store);
            (store, _) = Store::open(disk.disk(), options()).unwrap();
        }
        world.assert_is_in(&mut store, 1 + random.below(50_000) as usize);
        disk.power_cut_at(disk.operations() + random.below(400));
        loop {
            let mut after = world.clone();
            let done = match random.below(4) {
                0 if !world.rows.is_empty() => {
                    let (plan, rows) = world.plan(ChunkNumber(next), &mut random);
                    next += 1;
                    let mut change = BacklogChange { add: vec![plan.clone()], ..BacklogChange::default() };
                    after.chunks.insert(plan.number, (plan.summary, rows));
                    if let Some((number, (summary, _))) = after.chunks.iter_mut().next()
                        && random.one_in(2)
                        && *number != plan.number
                    {
                        *summary = model::body(random.next(), 30);
                        change.restate.push((*number, summary.clone()));
                    } else if after.chunks.len() > 6 {
                        let (number, _) = after.chunks.pop_first().unwrap();
                        change.remove.push(number);
                    }
                    store.change_backlog(&change).map(drop)
                }
                1 => {
                    // What the caller does once the rows are in a chunk.
                    let mut builder = BatchBuilder::new(store.last_batch().next());
                    for _ in 0..random.below(8).max(after.rows.len().saturating_sub(60) as u64) {
                        let Some((_, row)) = after.rows.pop_first() else { break };
                        builder.delete(row.0);
                    }
                    store.append(builder.finish()).map(drop)
                }
                _ => after.add_rows(&mut store, &mut random),
            };
            if let Err(error) = done {
                assert!(disk.power_is_off(), "seed {seed}: {error}");
                maybe = Some(after);
                break;
            }
            world = after;
            if random.one_in(80) {
                store.close(None).map_or_else(|_| assert!(disk.power_is_off()), |()| {});
                break;
            }
        }
        cuts += u64::from(disk.power_is_off());
        disk = disk.reboot();
    }
    cuts
}

#[test]
fn chunks_survive_power_cuts_at_any_operation() {
    let cuts: u64 = (0..30).map(life).sum();
    println!("{cuts} power cuts");
    assert!(cuts > 100);
}

/// A store with chunks of several sizes, closed.
fn filled() -> (SimDisk, World) {
    let disk = SimDisk::new(3);
    let mut random = Random::new(5);
    let mut world = World::default();
    let (mut store, _) = Store::open(disk.disk(), options()).unwrap();
    for number in 1..=12 {
        world.rows.clear();
        while world.rows.is_empty() {
            world.add_rows(&mut store, &mut random).unwrap();
        }
        let rows: Vec<Row> = world.rows.values().cloned().collect();
        let summary = model::body(number, 40);
        let places = rows.iter().map(|row| row.0).collect();
        let number = ChunkNumber(number);
        let plan = ChunkPlan { number, summary: summary.clone(), rows: places };
        let change = BacklogChange { add: vec![plan], ..BacklogChange::default() };
        assert_eq!(store.change_backlog(&change).unwrap().added.len(), 1);
        world.chunks.insert(number, (summary, rows));
    }
    store.close(None).unwrap();
    (disk, world)
}

#[test]
fn a_damaged_page_costs_the_chunk_on_it_and_no_start() {
    let (disk, world) = filled();
    let content = disk.content("backlog.redb").unwrap();
    let pages = content.chunks(disk::PAGE as usize).map(|page| page.iter().any(|byte| *byte != 0));
    let used: Vec<u64> = (0..).zip(pages).filter(|(_, used)| *used).map(|(page, _)| page).collect();
    let mut random = Random::new(9);
    let mut told = 0;
    for page in used {
        let disk = disk.copy(page);
        // Where a page begins stands what leads to its content.
        disk.flip(
            "backlog.redb",
            page * disk::PAGE + random.below(if page % 2 == 0 { 64 } else { 4096 }),
            0x20,
        );
        let (mut store, found) = Store::open(disk.disk(), options()).unwrap();
        assert!(found.damage.is_empty(), "page {page}: the window is whole");
        told += u64::from(!found.backlog_damage.is_empty());
        let mut missing = 0;
        for chunk in store.take_chunks() {
            let whole = store
                .fetch_chunk(ChunkRead { number: chunk.number, from: RowKey(0), bytes_max: usize::MAX })
                .unwrap();
            let (_, rows) = &world.chunks[&chunk.number];
            assert!(whole.damaged || whole.rows == *rows, "page {page}: wrong rows without a word");
            assert!(whole.rows.iter().all(|row| rows.contains(row)), "page {page}: rows that never were");
            missing += usize::from(whole.damaged);
        }
        assert!(missing <= 2, "page {page}: {missing} chunks damaged");
    }
    assert!(told > 0, "some pages hold what every start needs");
}

#[test]
fn the_store_opens_whatever_is_in_the_place_of_the_backlog() {
    let (disk, world) = filled();
    let whole = disk.content("backlog.redb").unwrap();
    for (what, bytes) in [
        ("empty", Vec::new()),
        ("foreign", b"#!/bin/sh\necho this is no backlog\n".repeat(400)),
        ("cut short", whole[..whole.len() / 2 / 4096 * 4096].to_vec()),
        ("zeroed at the front", [vec![0; 4096], whole[4096..].to_vec()].concat()),
    ] {
        let disk = disk.copy(1);
        disk.plant("backlog.redb", &bytes);
        let (mut store, found) = Store::open(disk.disk(), options()).unwrap();
        let kept = store.take_chunks().len();
        let is_told = !found.backlog_damage.is_empty();
        assert!(is_told || kept == world.chunks.len(), "{what}: {:?}", found.backlog_damage);
        if what == "zeroed at the front" {
            assert_eq!(kept, world.chunks.len(), "{what}");
        }
        // And it works.
        let mut rows = World::default();
        let mut random = Random::new(1);
        while rows.rows.is_empty() {
            rows.add_rows(&mut store, &mut random).unwrap();
        }
        let number = ChunkNumber(store.highest_chunk().0.max(100) + 1);
        let rows = rows.rows.values().map(|row| row.0).collect();
        let plan = ChunkPlan { number, summary: Vec::new(), rows };
        let change = BacklogChange { add: vec![plan], ..BacklogChange::default() };
        assert_eq!(store.change_backlog(&change).unwrap().added.len(), 1, "{what}");
    }
}

#[test]
fn a_disk_below_its_reserve_takes_no_chunk_and_loses_none() {
    let (disk, world) = filled();
    let disk = disk.copy(1);
    let wanted = StoreOptions { reserve_free: 1 << 40, ..options() };
    disk.set_capacity(1 << 30);
    let (mut store, _) = Store::open(disk.disk(), wanted).unwrap();
    assert_eq!(store.take_chunks().len(), world.chunks.len());
    let mut rows = World::default();
    let mut random = Random::new(1);
    while rows.rows.is_empty() {
        rows.add_rows(&mut store, &mut random).unwrap();
    }
    let places = rows.rows.values().map(|row| row.0).collect();
    let plan = ChunkPlan { number: ChunkNumber(99), summary: Vec::new(), rows: places };
    let change = BacklogChange { add: vec![plan], ..BacklogChange::default() };
    assert!(matches!(store.change_backlog(&change), Err(StoreError::Full(_))));
    assert!(store.is_open(), "the window is not concerned");
    assert_eq!(read(&mut store, ChunkNumber(1), usize::MAX), world.chunks[&ChunkNumber(1)].1);
}
