//! What waits for a member of a share that is away goes to members that are there, as far as they have room; what a
//! session that ended had of a share goes to those that are left.
//!
//! A member takes over so many at once, and more as it settles. A message that is kept for a member stays its own until
//! one that keeps it too has taken it over.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::{Among, Broker};
use crate::broker::cold::Behind;
use crate::broker::held::Held;
use crate::broker::queue::{Entry, Flight, NEVER, Queue, QueueIndex, SubscribeOptions};
use crate::broker::{Delivery, Event};
use crate::ids::RowKey;
use crate::message::Assurance;
use crate::time::Now;

/// Messages that a member takes over at once.
const MOVED_MAX: u16 = 256;

/// What was found out and done while messages move.
#[derive(Default)]
struct Moves {
    /// What the members hold.
    held: BTreeMap<QueueIndex, BTreeSet<*const Held>>,
    /// Members that got something.
    members: BTreeSet<QueueIndex>,
}

impl Broker {
    /// The member's connection is gone: what waits for it moves on to members that are there.
    pub(in crate::broker) fn share_moves_on(&mut self, now: Now, index: QueueIndex) {
        let Some(queue) = self.queue_mut(index) else { return };
        queue.share_waits.clear();
        let Some(queue) = self.queue(index) else { return };
        for number in self.shares.of(queue) {
            let there = self.members(number).filter(|member| self.takes_over(*member)).count();
            self.move_share(now, number, index, usize::from(MOVED_MAX) * there);
        }
    }

    /// A member has come: it gets what waits for members that are away.
    pub(in crate::broker) fn share_arrives(&mut self, now: Now, index: QueueIndex) {
        if !self.takes_over(index) {
            return;
        }
        let Some(queue) = self.queue(index) else { return };
        let numbers = self.shares.of(queue);
        numbers.iter().for_each(|number| self.lends_anew(*number));
        if let Some(queue) = self.queue_mut(index) {
            queue.share_waits.extend(numbers);
            self.take_over(now, index);
        }
    }

    /// A session that is there becomes a member.
    pub(in crate::broker) fn share_is_joined(&mut self, now: Now, index: QueueIndex, filter: &str) {
        let Some(number) = self.shares.numbers.get(filter).copied() else { return };
        self.lends_anew(number);
        if self.takes_over(index)
            && let Some(queue) = self.queue_mut(index)
        {
            queue.share_waits.insert(number);
            self.take_over(now, index);
        }
    }

    /// A member has settled something: it may have room for more of what waits for members that are away.
    pub(in crate::broker) fn share_goes_on(&mut self, now: Now, index: QueueIndex) {
        let Some(queue) = self.queue_mut(index).filter(|queue| !queue.share_waits.is_empty()) else { return };
        queue.share_after = queue.share_after.saturating_sub(1);
        if queue.share_after == 0 || queue.ready.is_empty() {
            self.take_over(now, index);
        }
    }

    fn members(&self, number: u32) -> impl Iterator<Item = QueueIndex> {
        self.shares
            .shares
            .get(&number)
            .into_iter()
            .flat_map(|share| &share.members)
            .map(|(member, _)| *member)
    }

    /// What is kept for another member may go to this one: it is there, and keeps it too.
    fn takes_over(&self, index: QueueIndex) -> bool {
        self.queue(index).is_some_and(|queue| queue.durable && queue.consumer.is_some())
    }

    fn take_over(&mut self, now: Now, index: QueueIndex) {
        loop {
            let Some(queue) = self.queue_mut(index) else { return };
            let mut waits = std::mem::take(&mut queue.share_waits).into_iter();
            queue.share_after = 0;
            let mut moved = 0;
            for number in waits.by_ref() {
                let away: Vec<_> = self.members(number).filter(|one| self.is_away(*one)).collect();
                for member in away {
                    moved += self.move_share(now, number, member, usize::from(MOVED_MAX) - moved);
                }
                if moved >= usize::from(MOVED_MAX) {
                    break;
                }
            }
            let Some(queue) = self.queue_mut(index) else { return };
            queue.share_waits.extend(waits);
            if !queue.share_waits.is_empty() {
                queue.share_after = u32::from(MOVED_MAX);
            }
            // What was moved may have expired: then no settlement comes that goes on.
            let idle = queue.in_flight.is_empty() && queue.ready.is_empty();
            if moved == 0 || !idle || queue.share_waits.is_empty() {
                return;
            }
        }
    }

    fn is_away(&self, index: QueueIndex) -> bool {
        self.queue(index).is_some_and(|queue| queue.consumer.is_none())
    }

    /// Moves what waits for a member to members that are there. Answers how many messages it was; when more waits, those
    /// members come back for it as they settle.
    fn move_share(&mut self, now: Now, number: u32, from: QueueIndex, max: usize) -> usize {
        let Some(queue) = self.queue(from) else { return 0 };
        let durable = queue.durable;
        let cold = queue.lendable_part().map(|(_, key)| key);
        // What stands behind what is cold comes after it.
        let moves = |entry: &Entry| {
            let key = entry.held.place.get().key;
            entry.share == number && cold.is_none_or(|cold| key != RowKey(0) && key < cold)
        };
        let Some(first) = queue.waiting().find(|entry| moves(entry)) else {
            if cold.is_some() {
                self.ask_to_lend(number, from, max);
            }
            return 0;
        };
        let (assurance, charge) = (first.held.message.assurance, first.charge());
        if max == 0 || self.best_member(number, assurance, Among::Taking { from, charge }).is_none() {
            self.share_waits(number);
            return 0;
        }
        let mut left = max;
        let taken = self.queue_mut(from).map(|queue| {
            queue.take_waiting(|entry| {
                let takes = moves(entry) && left > 0;
                left -= usize::from(takes);
                takes
            })
        });
        let mut taken = taken.unwrap_or_default().into_iter();
        let mut moves = Moves::default();
        let mut moved = 0;
        let mut back = None;
        for entry in taken.by_ref() {
            let (held, charge) = (Rc::clone(&entry.held), entry.charge());
            let was_durable = entry.is_durable(durable);
            back = self.hand_on(now, entry, Among::Taking { from, charge }, &mut moves);
            if back.is_some() {
                break;
            }
            moved += 1;
            if was_durable {
                self.settle_durable(now.mono, from, &held);
            }
        }
        if let Some(queue) = self.queue_mut(from) {
            for entry in back.into_iter().chain(taken) {
                queue.charge(&entry);
                put_in_place(queue, entry);
            }
            if cold.is_some() || queue.waiting().any(|entry| entry.share == number) {
                self.share_waits(number);
            }
        }
        for member in moves.members {
            self.dispatch(now, member);
        }
        moved
    }

    /// What waits for a member, and comes next, is not in memory: it is read, and handed on as far as there is room.
    fn ask_to_lend(&mut self, number: u32, from: QueueIndex, max: usize) {
        self.share_waits(number);
        let taking = Among::Taking { from, charge: 0 };
        if max > 0
            && self.best_member(number, Assurance::AtLeastOnce, taking).is_some()
            && let Some(cold) = self.queue_mut(from).and_then(|queue| queue.cold.as_mut())
        {
            cold.lending = true;
            self.want_rows(from);
        }
    }

    /// A member that is there may take over what the share brings.
    pub(in crate::broker) fn is_taken_over(&self, number: u32) -> bool {
        self.members(number).any(|member| self.takes_over(member))
    }

    /// Hands messages that were read for it on to members that are there: those that went, and those that stay.
    pub(in crate::broker) fn lend(
        &mut self,
        now: Now,
        from: QueueIndex,
        entries: Vec<Entry>,
    ) -> (Vec<Entry>, Vec<Entry>) {
        let mut moves = Moves::default();
        let (mut lent, mut staying) = (Vec::new(), Vec::new());
        let mut full = BTreeSet::new();
        for entry in entries {
            let (share, charge) = (entry.share, entry.charge());
            let taking = Among::Taking { from, charge };
            // Whoever has no room for one must not get the next before it.
            if share == 0
                || full.contains(&share)
                || self.hand_on(now, entry.clone(), taking, &mut moves).is_some()
            {
                full.insert(share);
                staying.push(entry);
            } else {
                lent.push(entry);
            }
        }
        for share in full.into_iter().chain(lent.iter().map(|entry| entry.share)) {
            self.share_waits(share);
        }
        for member in moves.members {
            self.dispatch(now, member);
        }
        (lent, staying)
    }

    /// A member has come: what nobody took may be for it.
    fn lends_anew(&mut self, number: u32) {
        for member in self.members(number).collect::<Vec<_>>() {
            if let Some(cold) = self.queue_mut(member).and_then(|queue| queue.cold.as_mut()) {
                cold.lends_from = RowKey(0);
            }
        }
    }

    /// More of a share waits: its members that are there come back for it.
    fn share_waits(&mut self, number: u32) {
        for member in self.members(number).filter(|one| self.takes_over(*one)).collect::<Vec<_>>() {
            let Some(queue) = self.queue_mut(member) else { continue };
            if queue.share_waits.insert(number) && queue.share_after == 0 {
                queue.share_after = u32::from(MOVED_MAX);
            }
        }
    }

    /// A session ended: what it had of shared subscriptions goes to their other members, but for exactly-once
    /// deliveries that were begun. [MQTT-4.8.2-5]
    pub(in crate::broker) fn share_outlives(&mut self, now: Now, index: QueueIndex, queue: &mut Queue) {
        let begun = queue.in_flight.iter().filter(|f| {
            f.entry.assurance != Assurance::ExactlyOnce || matches!(f.flight, Flight::AwaitBatch(_))
        });
        let waiting = begun.map(|f| &f.entry).chain(queue.waiting());
        let moving: Vec<_> = waiting.filter(|entry| entry.share != 0).cloned().collect();
        let mut moves = Moves::default();
        for entry in moving {
            let charge = entry.charge();
            let keeping = entry.is_durable(queue.durable).then_some(Among::Keeping { but: index, charge });
            let mut left = Some(entry);
            // Whom nobody takes over from ends with its session.
            for among in keeping.into_iter().chain([Among::But { but: index, charge }]) {
                left = left.and_then(|entry| self.hand_on(now, entry, among, &mut moves));
            }
        }
        for member in moves.members {
            self.dispatch(now, member);
            self.keep_queue_bounds(now, member);
        }
    }

    /// Puts a message into the queue of another member, in the order of publishing. Gives it back when there is none.
    fn hand_on(&mut self, now: Now, entry: Entry, among: Among, moves: &mut Moves) -> Option<Entry> {
        let share = entry.share;
        let Some((member, options)) = self.choose(share, entry.held.message.assurance, among) else {
            return Some(entry);
        };
        let Some(queue) = self.queue_mut(member) else { return Some(entry) };
        let assurance = entry.held.message.assurance.min(options.assurance_max);
        let holds = moves.held.entry(member).or_insert_with(|| {
            queue.taken().chain(queue.waiting()).map(|one| Rc::as_ptr(&one.held)).collect()
        });
        if holds.contains(&Rc::as_ptr(&entry.held)) {
            return None;
        }
        if assurance == Assurance::AtMostOnce {
            self.hand_over_once(member, entry, options);
            return None;
        }
        holds.insert(Rc::as_ptr(&entry.held));
        moves.members.insert(member);
        let (id, durable) = (queue.id, queue.durable);
        let expires_at = entry.expires_at;
        // A row of the backlog has the takers that its chunk has: a new one is written, in the batch that settles the old.
        let held = if entry.is_cold() {
            Held::new(entry.held.message.clone(), &self.memory)
        } else {
            Rc::clone(&entry.held)
        };
        let mut moved = Entry {
            as_published: options.retain_as_published && held.message.retain,
            identifier: options.identifier,
            share,
            order: entry.order,
            expires_at,
            redelivered: false,
            ..Entry::new(held, assurance)
        };
        if durable {
            moved.joined = self.ledger.join_taker(now.mono, &moved.held, id, moved.taker_flags());
        }
        let queue = self.queue_mut(member)?;
        if moved.joined {
            queue.joins.set(true);
        }
        queue.charge(&moved);
        put_in_place(queue, moved);
        self.counters.queued += 1;
        if expires_at != NEVER {
            self.look_later(now.mono, member, expires_at);
        }
        None
    }

    /// Hands a message to a member that takes it without acknowledgement, and is there.
    fn hand_over_once(&mut self, member: QueueIndex, entry: Entry, options: SubscribeOptions) {
        let Some(queue) = self.queue_mut(member) else { return };
        match queue.consumer {
            Some(consumer) if !consumer.blocked => {
                self.counters.delivered += 1;
                self.events.push_back(Event::Deliver(Delivery {
                    connection: consumer.connection,
                    queue: member,
                    tag: 0,
                    consumer: 0,
                    returns: 0,
                    retained: options.retain_as_published && entry.held.message.retain,
                    held: Rc::clone(&entry.held),
                    assurance: Assurance::AtMostOnce,
                    identifier: options.identifier,
                    expires_at: entry.expires_at,
                    redelivered: false,
                }));
            }
            Some(_) | None => {
                queue.dropped += 1;
                self.counters.dropped_output_full += 1;
            }
        }
    }
}

/// Among what waits in a session's queue, in the order of publishing. That is the order of keys, where a queue is kept; what
/// has no key yet is newer.
fn put_in_place(queue: &mut Queue, entry: Entry) {
    let durable = queue.durable;
    let place_of = |entry: &Entry| {
        let key = entry.held.place.get().key;
        let unwritten = durable && key == RowKey(0);
        (
            if unwritten {
                RowKey(u64::MAX)
            } else if durable {
                key
            } else {
                RowKey(0)
            },
            entry.order,
        )
    };
    let place = place_of(&entry);
    let list = match queue.cold.as_mut().and_then(|cold| cold.regions.get_mut(&0)) {
        Some(region) if region.holds(place.0) => {
            region.insert_kept((place.0, Behind::No), entry);
            return;
        }
        Some(region) if region.begins_before(place.0) => &mut region.tail,
        Some(_) | None => &mut queue.ready,
    };
    let at = list.partition_point(|other| place_of(other) <= place);
    list.insert(at, entry);
}
