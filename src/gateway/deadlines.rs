//! One heap of coarse deadlines: connections that must be looked at by a certain time.
//!
//! A deadline that moved on is found out when the old one passes, so activity costs nothing here. They are rounded
//! up to whole seconds, so that ten thousand keep-alives wake the process at most once a second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::ConnectionId;
use crate::time::Mono;

const PRECISION_US: u64 = 1_000_000;

#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Mono, ConnectionId)>>,
}

impl Deadlines {
    /// Answers the moment that it was rounded to.
    pub fn push(&mut self, at: Mono, id: ConnectionId) -> Mono {
        let rounded = Mono(at.0.saturating_add(PRECISION_US - 1) / PRECISION_US * PRECISION_US);
        self.heap.push(Reverse((rounded, id)));
        rounded
    }

    /// A connection to look at, and the moment under which it was pushed.
    pub fn pop_due(&mut self, now: Mono) -> Option<(Mono, ConnectionId)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Forgets the connections that are gone: a long keep-alive must not outlive its connection here.
    pub fn retain(&mut self, mut lives: impl FnMut(ConnectionId) -> bool) {
        self.heap.retain(|Reverse((_, id))| lives(*id));
    }

    pub fn next(&self) -> Option<Mono> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}
