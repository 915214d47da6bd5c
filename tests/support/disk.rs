//! A simulated disk for the store: in memory, deterministic, and as unkind as a real one.
//!
//! * A write is in the cache until its file is synced. At a power cut every 512-byte (or 4096-byte) sector of what
//!   was not synced independently keeps any of the versions it had since the last sync; the length is the old or the
//!   new one; creations, renames and removals since the last sync of the folder survive as a random prefix.
//! * A failed sync marks its pages clean all the same: they stay visible, but a later sync does not write them, and
//!   when the cache is dropped the medium shows any mix of versions.
//! * Any operation can be made to fail with EIO or ENOSPC; the capacity can be bounded; the power can go at any
//!   operation.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a panic is what a wrong test should do"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::{fmt, io};

use gatewayd::store::{Disk, File};

pub const PAGE: u64 = 4096;

#[expect(clippy::disallowed_types, reason = "the store's traits take &self; the simulation has one thread")]
type Lock<T> = std::sync::Mutex<T>;
type Guard<'a, T> = std::sync::MutexGuard<'a, T>;

/// A tiny generator: splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is above zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `n`.
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What an operation is made to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// EIO. Part of a write may have happened.
    Io,
    /// ENOSPC. Part of a write may have happened.
    Full,
}

/// A handle to the disk; clones share it.
#[derive(Clone)]
pub struct SimDisk(Arc<Lock<State>>);

struct State {
    random: Random,
    sector: usize,
    nodes: BTreeMap<u64, Node>,
    next_node: u64,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    pending_names: Vec<NameStep>,
    capacity: u64,
    operations: u64,
    reads: u64,
    power_cut_at: Option<u64>,
    faults: BTreeMap<u64, Fault>,
    read_faults: BTreeMap<u64, Fault>,
    faults_met: u64,
    power_off: bool,
    bytes_written: u64,
    syncs: u64,
}

#[derive(Clone, Debug)]
enum NameStep {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

/// A file's content: what is visible, and what else the medium may hold.
#[derive(Clone, Default)]
struct Node {
    len: u64,
    durable_len: u64,
    reserved: u64,
    pages: BTreeMap<u64, Vec<u8>>,
    /// Versions of pages since the last sync, the synced one first.
    dirty: BTreeMap<u64, Vec<Vec<u8>>>,
    /// The same for pages that a failed sync left in doubt.
    doubtful: BTreeMap<u64, Vec<Vec<u8>>>,
    /// Pages that cannot be read until they are written.
    bad: BTreeSet<u64>,
    locked: bool,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimDisk")
    }
}

impl SimDisk {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let sector = if random.one_in(2) { 512 } else { 4096 };
        Self(Arc::new(Lock::new(State {
            random,
            sector,
            nodes: BTreeMap::new(),
            next_node: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            capacity: u64::MAX,
            operations: 0,
            reads: 0,
            power_cut_at: None,
            faults: BTreeMap::new(),
            read_faults: BTreeMap::new(),
            faults_met: 0,
            power_off: false,
            bytes_written: 0,
            syncs: 0,
        })))
    }

    /// The disk for the store.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn state(&self) -> Guard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Writes, length changes, syncs, creations, renames and removals so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Reads so far.
    pub fn reads(&self) -> u64 {
        self.state().reads
    }

    /// Cuts the power at the operation with this number, counted from [`SimDisk::operations`] = 0.
    pub fn power_cut_at(&self, operation: u64) {
        self.state().power_cut_at = Some(operation);
    }

    /// Cuts the power now.
    pub fn cut_power(&self) {
        self.state().power_off = true;
    }

    pub fn power_is_off(&self) -> bool {
        self.state().power_off
    }

    /// Makes the operation with this number fail.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.state().faults.insert(operation, fault);
    }

    /// Makes the read with this number fail.
    pub fn fail_read_at(&self, read: u64, fault: Fault) {
        self.state().read_faults.insert(read, fault);
    }

    /// Makes a page of a file unreadable until it is written.
    pub fn wear_out(&self, name: &str, page: u64) {
        let mut state = self.state();
        let id = state.names[name];
        state.nodes.get_mut(&id).expect("a name has a file").bad.insert(page);
    }

    /// Injected failures that were met.
    pub fn faults_met(&self) -> u64 {
        self.state().faults_met
    }

    /// Bounds the sum of all files, bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Bytes written, each write rounded out to whole 4 KiB pages.
    pub fn bytes_written(&self) -> u64 {
        self.state().bytes_written
    }

    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Every file's blocks together, bytes.
    pub fn used_bytes(&self) -> u64 {
        self.state().used()
    }

    pub fn exists(&self, name: &str) -> bool {
        self.state().names.contains_key(name)
    }

    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    pub fn len(&self, name: &str) -> u64 {
        let state = self.state();
        state.names.get(name).and_then(|id| state.nodes.get(id)).map_or(0, |node| node.len)
    }

    /// The visible content of a file.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let node = state.nodes.get(state.names.get(name)?)?;
        let mut bytes = vec![0; usize::try_from(node.len).ok()?];
        node.read(0, &mut bytes);
        Some(bytes)
    }

    /// Puts a file there, durably, as if somebody had copied it.
    pub fn plant(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let mut node = Node { len: bytes.len() as u64, durable_len: bytes.len() as u64, ..Node::default() };
        for (page, chunk) in (0..).zip(bytes.chunks(PAGE as usize)) {
            let mut whole = chunk.to_vec();
            whole.resize(PAGE as usize, 0);
            node.pages.insert(page, whole);
        }
        let id = state.next_node;
        state.next_node += 1;
        state.nodes.insert(id, node);
        state.names.insert(name.into(), id);
        state.durable_names = state.names.clone();
        state.pending_names.clear();
    }

    /// Removes a file durably.
    pub fn take_away(&self, name: &str) {
        let mut state = self.state();
        state.names.remove(name);
        state.durable_names = state.names.clone();
        state.pending_names.clear();
    }

    /// Changes one byte on the medium.
    pub fn flip(&self, name: &str, offset: u64, mask: u8) {
        let mut state = self.state();
        let id = state.names[name];
        let node = state.nodes.get_mut(&id).expect("a name has a file");
        let page = node.pages.entry(offset / PAGE).or_insert_with(|| vec![0; PAGE as usize]);
        page[(offset % PAGE) as usize] ^= mask;
    }

    /// An independent copy of what is visible now, all of it durable.
    pub fn copy(&self, seed: u64) -> Self {
        let copy = Self::new(seed);
        for name in self.names() {
            copy.plant(&name, &self.content(&name).unwrap_or_default());
        }
        copy
    }

    /// What is left after the power was off: a new disk with counters at zero, no faults, no bound.
    pub fn reboot(&self) -> Self {
        let mut state = self.state();
        let state = &mut *state;
        let mut next = Self::new(state.random.next());
        let kept = state.random.below(state.pending_names.len() as u64 + 1);
        let mut names = state.durable_names.clone();
        for step in state.pending_names.iter().take(kept as usize) {
            step.apply(&mut names);
        }
        let mut nodes = BTreeMap::new();
        for &id in names.values() {
            let mut node = state.nodes.get(&id).cloned().unwrap_or_default();
            node.settle(&mut state.random, state.sector);
            nodes.insert(id, node);
        }
        let inner = Arc::get_mut(&mut next.0).expect("nobody else has the new disk");
        let inner = inner.get_mut().expect("nobody panicked with the new disk");
        inner.nodes = nodes;
        inner.next_node = state.next_node;
        inner.durable_names = names.clone();
        inner.names = names;
        next
    }
}

impl NameStep {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create(name, id) => {
                names.insert(name.clone(), *id);
            }
            Self::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl State {
    fn used(&self) -> u64 {
        self.names.values().filter_map(|id| self.nodes.get(id)).map(Node::allocated).sum()
    }

    /// Counts an operation; says what happens to it.
    fn operation(&mut self) -> io::Result<Option<Fault>> {
        if self.power_off {
            return Err(io::Error::other("the power is off"));
        }
        let number = self.operations;
        self.operations += 1;
        if self.power_cut_at == Some(number) {
            self.power_off = true;
        }
        let fault = self.faults.remove(&number);
        self.faults_met += u64::from(fault.is_some());
        Ok(fault)
    }

    /// The end of an operation during which the power may have gone.
    fn done(&self) -> io::Result<()> {
        if self.power_off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    fn step(&mut self, step: NameStep) -> io::Result<()> {
        if let Some(fault) = self.operation()? {
            return Err(fault.error());
        }
        step.apply(&mut self.names);
        self.pending_names.push(step);
        self.done()
    }
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Self::Io => io::Error::other("injected EIO"),
            Self::Full => io::Error::new(io::ErrorKind::StorageFull, "injected ENOSPC"),
        }
    }
}

impl Node {
    fn allocated(&self) -> u64 {
        let reserved = self.reserved.div_ceil(PAGE);
        let beyond = self.pages.range(reserved..).count() as u64;
        (reserved + beyond) * PAGE
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        out.fill(0);
        let end = offset + out.len() as u64;
        for (&page, bytes) in self.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let from = offset.max(page * PAGE);
            let to = end.min((page + 1) * PAGE);
            out[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - page * PAGE) as usize..(to - page * PAGE) as usize]);
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        for page in offset / PAGE..end.div_ceil(PAGE) {
            self.remember(page);
            self.bad.remove(&page);
            let bytes = self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize]);
            let from = offset.max(page * PAGE);
            let to = end.min((page + 1) * PAGE);
            bytes[(from - page * PAGE) as usize..(to - page * PAGE) as usize]
                .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
        }
        self.len = self.len.max(end);
    }

    fn set_len(&mut self, len: u64) {
        for page in self.pages.range(len.div_ceil(PAGE)..).map(|(page, _)| *page).collect::<Vec<_>>() {
            self.remember(page);
            self.pages.remove(&page);
        }
        if !len.is_multiple_of(PAGE) && self.pages.contains_key(&(len / PAGE)) {
            self.remember(len / PAGE);
            if let Some(bytes) = self.pages.get_mut(&(len / PAGE)) {
                bytes[(len % PAGE) as usize..].fill(0);
            }
        }
        if len < self.len {
            self.reserved = self.reserved.min(len);
        }
        self.len = len;
    }

    /// Keeps the page's present version as one that may survive.
    fn remember(&mut self, page: u64) {
        let now = self.pages.get(&page).cloned().unwrap_or_else(|| vec![0; PAGE as usize]);
        let older = self.doubtful.remove(&page).unwrap_or_default();
        self.dirty.entry(page).or_insert(older).push(now);
    }

    fn sync(&mut self) {
        self.dirty.clear();
        self.durable_len = self.len;
    }

    fn fail_sync(&mut self) {
        self.doubtful.append(&mut self.dirty);
    }

    /// Shows what the medium holds of the pages in doubt.
    fn drop_cache(&mut self, random: &mut Random, sector: usize) {
        for (page, versions) in std::mem::take(&mut self.doubtful) {
            self.mix(page, &versions, random, sector);
        }
    }

    /// The state after the power was off.
    fn settle(&mut self, random: &mut Random, sector: usize) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.append(&mut self.doubtful);
        for (page, versions) in dirty {
            self.mix(page, &versions, random, sector);
        }
        if random.one_in(2) {
            self.len = self.durable_len;
        }
        let len = self.len;
        self.pages.retain(|page, _| page * PAGE < len);
        self.durable_len = len;
        self.reserved = 0;
        self.locked = false;
    }

    fn mix(&mut self, page: u64, versions: &[Vec<u8>], random: &mut Random, sector: usize) {
        let bytes = self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize]);
        for start in (0..PAGE as usize).step_by(sector) {
            let pick = random.below(versions.len() as u64 + 1) as usize;
            if let Some(version) = versions.get(pick) {
                bytes[start..start + sector].copy_from_slice(&version[start..start + sector]);
            }
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Option<Arc<dyn File>>> {
        let mut state = self.state();
        if state.power_off {
            return Err(io::Error::other("the power is off"));
        }
        if !state.names.contains_key(name) {
            if !create {
                return Ok(None);
            }
            let id = state.next_node;
            state.next_node += 1;
            state.nodes.insert(id, Node::default());
            state.step(NameStep::Create(name.into(), id))?;
        }
        let id = state.names[name];
        Ok(Some(Arc::new(SimFile { disk: self.clone(), id })))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state();
        state.done()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if !self.exists(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.state().step(NameStep::Rename(from.into(), to.into()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if !self.exists(name) {
            return self.state().done();
        }
        self.state().step(NameStep::Remove(name.into()))
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut state = self.state();
        if let Some(fault) = state.operation()? {
            return Err(fault.error());
        }
        state.done()?;
        state.durable_names = state.names.clone();
        state.pending_names.clear();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state();
        state.done()?;
        Ok(state.capacity.saturating_sub(state.used()))
    }
}

struct SimFile {
    disk: SimDisk,
    id: u64,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.id)
    }
}

impl SimFile {
    fn with<T>(&self, call: impl FnOnce(&mut Node, &mut Random, usize) -> T) -> T {
        let mut state = self.disk.state();
        let state = &mut *state;
        let node = state.nodes.entry(self.id).or_default();
        call(node, &mut state.random, state.sector)
    }

    /// An operation that changes the file, unless it meets a fault.
    fn operation(&self, change: impl FnOnce(&mut Node)) -> io::Result<()> {
        let fault = self.disk.state().operation()?;
        if let Some(fault) = fault {
            return Err(fault.error());
        }
        self.with(|node, _, _| change(node));
        self.disk.state().done()
    }
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.disk.state().done()?;
        Ok(self.with(|node, _, _| node.len))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        {
            let mut state = self.disk.state();
            state.done()?;
            let number = state.reads;
            state.reads += 1;
            if let Some(fault) = state.read_faults.remove(&number) {
                state.faults_met += 1;
                return Err(fault.error());
            }
        }
        self.with(|node, _, _| {
            if offset + out.len() as u64 > node.len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if node.bad.range(offset / PAGE..(offset + out.len() as u64).div_ceil(PAGE)).next().is_some() {
                return Err(io::Error::other("a page that is worn out"));
            }
            node.read(offset, out);
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let fault = self.disk.state().operation()?;
        if let Some(fault) = fault {
            // Some of it may have reached the cache.
            let part = self.with(|_, random, _| random.below(data.len() as u64 + 1)) as usize;
            self.with(|node, _, _| node.write(offset, &data[..part]));
            return Err(fault.error());
        }
        if data.is_empty() {
            return self.disk.state().done();
        }
        let end = offset + data.len() as u64;
        let used = self.disk.used_bytes();
        let capacity = self.disk.state().capacity;
        let grows = self.with(|node, _, _| {
            let reserved = node.reserved.div_ceil(PAGE);
            let fresh = |page: &u64| *page >= reserved && !node.pages.contains_key(page);
            (offset / PAGE..end.div_ceil(PAGE)).filter(fresh).count() as u64 * PAGE
        });
        if used.saturating_add(grows) > capacity && grows > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        {
            let mut state = self.disk.state();
            state.bytes_written += (end.div_ceil(PAGE) - offset / PAGE) * PAGE;
        }
        self.with(|node, _, _| node.write(offset, data));
        self.disk.state().done()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.operation(|node| node.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let fault = self.disk.state().operation()?;
        if let Some(fault) = fault {
            self.with(|node, _, _| node.fail_sync());
            return Err(fault.error());
        }
        let mut state = self.disk.state();
        state.done()?;
        state.syncs += 1;
        drop(state);
        self.with(|node, _, _| node.sync());
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let fault = self.disk.state().operation()?;
        if let Some(fault) = fault {
            return Err(fault.error());
        }
        let used = self.disk.used_bytes();
        let capacity = self.disk.state().capacity;
        let held = self.with(|node, _, _| node.allocated());
        let wanted =
            self.with(|node, _, _| Node { reserved: node.reserved.max(len), ..node.clone() }.allocated());
        if used.saturating_add(wanted.saturating_sub(held)) > capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.with(|node, _, _| node.reserved = node.reserved.max(len));
        self.disk.state().done()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.disk.state().done()?;
        Ok(self.with(|node, _, _| node.allocated()))
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.disk.state().done()?;
        self.with(Node::drop_cache);
        Ok(())
    }

    fn read_ahead(&self) {}

    fn try_lock(&self) -> io::Result<bool> {
        Ok(self.with(|node, _, _| !std::mem::replace(&mut node.locked, true)))
    }

    fn unlock(&self) -> io::Result<()> {
        self.with(|node, _, _| node.locked = false);
        Ok(())
    }
}
