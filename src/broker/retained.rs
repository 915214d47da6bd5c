//! Last known values: one message for each address, found by pattern.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;
use std::time::Duration;

use super::held::Held;
use super::queue::NEVER;
use crate::ids::BatchNumber;
use crate::time::Mono;

/// The values, in the order of their addresses: a pattern's literal beginning limits the walk.
#[derive(Debug, Default)]
pub(super) struct Retained {
    values: BTreeMap<Box<str>, Rc<Held>>,
    /// When the values that do not last are worth nothing any more, by address and in order.
    expiries: BTreeMap<Box<str>, Mono>,
    expiring: BTreeSet<(Mono, Box<str>)>,
    bytes: u64,
    /// Batches on their way to flash that delete a value: until then a cut would bring it back.
    deletions: BTreeMap<Box<str>, BatchNumber>,
}

impl Retained {
    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn get(&self, address: &str) -> Option<&Rc<Held>> {
        self.values.get(address)
    }

    /// Sets the value of the message's address; answers the one that it replaces.
    pub fn set(&mut self, held: &Rc<Held>, expires_at: Mono) -> Option<Rc<Held>> {
        self.bytes += held.message.charge() as u64;
        self.lasts(&held.message.address);
        if expires_at != NEVER {
            self.expiries.insert(held.message.address.clone(), expires_at);
            self.expiring.insert((expires_at, held.message.address.clone()));
        }
        let old = self.values.insert(held.message.address.clone(), Rc::clone(held));
        if let Some(old) = &old {
            self.bytes -= old.message.charge() as u64;
        }
        old
    }

    /// Forgets the value of `address`.
    pub fn remove(&mut self, address: &str) -> Option<Rc<Held>> {
        let old = self.values.remove(address)?;
        self.lasts(address);
        self.bytes -= old.message.charge() as u64;
        Some(old)
    }

    /// When the value of `address` expires.
    pub fn expires_at(&self, address: &str) -> Mono {
        self.expiries.get(address).copied().unwrap_or(NEVER)
    }

    /// When the first value expires.
    pub fn next_expiry(&self) -> Option<Mono> {
        // Late enough that many cost one look.
        self.expiring.first().map(|(at, _)| *at + Duration::from_secs(1))
    }

    /// The address of a value that has expired by `now`.
    pub fn expired(&self, now: Mono) -> Option<Box<str>> {
        self.expiring.first().filter(|(at, _)| *at <= now).map(|(_, address)| address.clone())
    }

    /// What is known of the expiry of `address` is forgotten.
    fn lasts(&mut self, address: &str) {
        if let Some((address, at)) = self.expiries.remove_entry(address) {
            self.expiring.remove(&(at, address));
        }
    }

    /// The value of `address` was deleted, and `batch` will say so.
    pub fn deleted_with(&mut self, address: &str, batch: BatchNumber) {
        self.deletions.insert(address.into(), batch);
    }

    /// The batch that deletes a value of `address` which is gone from here already.
    pub fn deletion_under_way(&self, address: &str) -> Option<BatchNumber> {
        self.deletions.get(address).copied()
    }

    /// The batches up to `kept` are on flash.
    pub fn persisted(&mut self, kept: BatchNumber) {
        self.deletions.retain(|_, batch| *batch > kept);
    }

    /// All that is under way goes into `batch`.
    pub fn written_anew_with(&mut self, batch: BatchNumber) {
        self.deletions.values_mut().for_each(|deletion| *deletion = batch);
    }

    pub fn values(&self) -> impl Iterator<Item = &Rc<Held>> {
        self.values.values()
    }

    /// The values whose address matches `filter`, in MQTT's notation, by address.
    pub fn matching<'a>(&'a self, filter: &'a str) -> impl Iterator<Item = &'a Rc<Held>> {
        let literal = literal_beginning(filter);
        self.values
            .range::<str, _>((Bound::Included(literal), Bound::Unbounded))
            .take_while(move |(address, _)| address.starts_with(literal))
            .filter(move |(address, _)| matches(filter, address))
            .map(|(_, held)| held)
    }
}

/// The part of `filter` before its first wildcard, without the separator of a trailing `/#`, which also matches the
/// parent.
fn literal_beginning(filter: &str) -> &str {
    let end = filter.find(['+', '#']).unwrap_or(filter.len());
    let beginning = filter.get(..end).unwrap_or(filter);
    if filter.ends_with('#') && end + 1 == filter.len() {
        beginning.strip_suffix('/').unwrap_or(beginning)
    } else {
        beginning
    }
}

/// [MQTT-4.7.1-1 to 3], [MQTT-4.7.2-1]
pub(super) fn matches(filter: &str, address: &str) -> bool {
    if address.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = address.split('/');
    for pattern in filter.split('/') {
        if pattern == "#" {
            return true;
        }
        match levels.next() {
            Some(level) if pattern == "+" || pattern == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bytes::Bytes;

    use super::*;
    use crate::message::{Assurance, Message};
    use crate::time::Wall;

    fn held(address: &str) -> Rc<Held> {
        let message = Message {
            address: address.into(),
            body: Bytes::from_static(b"x"),
            assurance: Assurance::AtMostOnce,
            retain: true,
            received_at: Wall(0),
            received_trusted: true,
            ..Message::default()
        };
        Held::new(message, &Rc::new(Cell::new(0)))
    }

    #[test]
    fn a_filter_finds_exactly_what_it_matches() {
        let addresses = ["a", "a/b", "a/b/c", "a/bc", "ab", "$SYS/x", "/", "/a", "b/x/c"];
        let mut retained = Retained::default();
        for address in addresses {
            assert!(retained.set(&held(address), NEVER).is_none());
        }
        for filter in
            ["#", "+", "a/#", "a", "a/b", "a/+", "+/b", "$SYS/#", "a/+/c", "+/+/c", "/+", "+/#", "ab/#"]
        {
            let expected: Vec<_> = {
                let mut all: Vec<_> = addresses.into_iter().filter(|a| matches(filter, a)).collect();
                all.sort_unstable();
                all
            };
            let found: Vec<_> = retained.matching(filter).map(|h| &*h.message.address).collect();
            assert_eq!(found, expected, "{filter}");
        }
    }
}
