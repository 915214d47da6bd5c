//! Shared subscriptions: each message goes to one member's session, and moves on when that member is away.
//!
//! A share is named by its whole filter, `$share/{name}/{filter}`; its members are sessions. Owns the table, choosing a
//! member, and moving what waits for a member that is away to one that is there. MQTT 5 section 4.8.2.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

use super::exchange::{SHARE_MAX, share_code};
use super::queue::{Entry, Flight, Queue, QueueIndex, SubscribeOptions};
use super::{Broker, Delivery, Event, mqtt_levels};
use crate::message::Assurance;
use crate::time::Now;

/// How the filter of a shared subscription begins.
const PREFIX: &str = "$share/";

/// A queue that a message reaches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Match {
    pub queue: QueueIndex,
    pub options: SubscribeOptions,
    /// The shared subscription that alone brings it there; 0 for none.
    pub share: u32,
}

/// Whom a message of a share may go to.
#[derive(Clone, Copy, Debug)]
enum Among {
    All,
    But(QueueIndex),
    /// Members that are there and take it with an acknowledgement: what waits for one that is away, and may come back, is
    /// not given up for a delivery that may be lost.
    ThereAndKeeping {
        but: QueueIndex,
    },
}

#[derive(Debug)]
struct Share {
    name: Box<str>,
    members: Vec<(QueueIndex, SubscribeOptions)>,
    /// Whose turn it is.
    turn: usize,
}

/// All shared subscriptions that have a member.
#[derive(Debug, Default)]
pub(super) struct Shares {
    numbers: BTreeMap<Box<str>, u32>,
    shares: BTreeMap<u32, Share>,
    last: u32,
}

/// The filter within a shared subscription; `None` for any other filter. The caller has validated it.
pub(super) fn shared_filter(filter: &str) -> Option<&str> {
    filter.strip_prefix(PREFIX)?.split_once('/').map(|(_, filter)| filter)
}

impl Shares {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        loop {
            self.last = if self.last >= SHARE_MAX { 1 } else { self.last + 1 };
            if !self.shares.contains_key(&self.last) {
                break;
            }
        }
        self.numbers.insert(name.into(), self.last);
        self.shares.insert(self.last, Share { name: name.into(), members: Vec::new(), turn: 0 });
        self.last
    }

    /// Numbers of the shares that a queue is a member of.
    fn of(&self, queue: &Queue) -> Vec<u32> {
        let names = queue
            .subscriptions
            .range::<str, _>((Bound::Included(PREFIX), Bound::Unbounded))
            .map(|(filter, _)| filter);
        let names = names.take_while(|filter| filter.starts_with(PREFIX));
        names.filter_map(|filter| self.numbers.get(filter).copied()).collect()
    }
}

impl Broker {
    /// Puts a subscription into the index. `filter` is valid.
    pub(super) fn index_filter(&mut self, index: QueueIndex, filter: &str, options: SubscribeOptions) {
        let Some(inner) = shared_filter(filter) else {
            self.index.insert(mqtt_levels(filter), index.0, options);
            return;
        };
        let number = self.shares.number(filter);
        let Some(share) = self.shares.shares.get_mut(&number) else { return };
        match share.members.iter_mut().find(|(member, _)| *member == index) {
            Some((_, old)) => *old = options,
            None => share.members.push((index, options)),
        }
        self.index.insert(mqtt_levels(inner), share_code(number), SubscribeOptions::default());
    }

    /// Takes a subscription out of the index.
    pub(super) fn unindex_filter(&mut self, index: QueueIndex, filter: &str) {
        let Some(inner) = shared_filter(filter) else {
            self.index.remove(mqtt_levels(filter), index.0);
            return;
        };
        let Some(number) = self.shares.numbers.get(filter).copied() else { return };
        let Some(share) = self.shares.shares.get_mut(&number) else { return };
        share.members.retain(|(member, _)| *member != index);
        if share.members.is_empty() {
            self.shares.shares.remove(&number);
            self.shares.numbers.remove(filter);
            self.index.remove(mqtt_levels(inner), share_code(number));
        }
    }

    /// Chooses the member that gets a message, and adds it to the matches.
    pub(super) fn match_share(
        &mut self,
        number: u32,
        publish_number: u64,
        assurance: Assurance,
        matches: &mut Vec<Match>,
    ) {
        let Some((member, options)) = self.choose(number, assurance, Among::All) else { return };
        let own = self.publisher == Some(member);
        let Some(queue) = self.queue_mut(member) else { return };
        if queue.visit.0 == publish_number {
            // It gets the message anyway: once is enough, under all its subscriptions.
            if let Some(best) = matches.get_mut(queue.visit.1 as usize) {
                best.options.merge(options);
                best.options.leave_out(own, true);
            }
            return;
        }
        queue.visit = (publish_number, u32::try_from(matches.len()).unwrap_or(u32::MAX));
        matches.push(Match { queue: member, options, share: number });
    }

    /// The member whose turn it is: of those that are there the one that can take it at once, else the one with the
    /// least before it; else one that is away, unless the message is not kept for those.
    fn choose(
        &mut self,
        number: u32,
        assurance: Assurance,
        among: Among,
    ) -> Option<(QueueIndex, SubscribeOptions)> {
        let share = self.shares.shares.get(&number)?;
        let count = share.members.len();
        let mut best: Option<(usize, usize)> = None;
        for step in 0..count {
            let at = (share.turn + step) % count;
            let (member, options) = share.members.get(at)?;
            let Some(queue) = self.queue(*member) else { continue };
            let kept = assurance.min(options.assurance_max) != Assurance::AtMostOnce;
            match among {
                Among::But(one) if one == *member => continue,
                Among::ThereAndKeeping { but } if but == *member || queue.consumer.is_none() || !kept => {
                    continue;
                }
                Among::All | Among::But(_) | Among::ThereAndKeeping { .. } => {}
            }
            let waits = match queue.consumer {
                Some(consumer) if !consumer.blocked && queue.ready.is_empty() && queue.credit() > 0 => 0,
                Some(_) => 1 + queue.ready.len(),
                None if queue.durable && kept => usize::MAX,
                None => continue,
            };
            if best.is_none_or(|(least, _)| waits < least) {
                best = Some((waits, at));
            }
            if waits == 0 {
                break;
            }
        }
        let (_, at) = best?;
        let share = self.shares.shares.get_mut(&number)?;
        share.turn = (at + 1) % count;
        share.members.get(at).copied()
    }

    /// Finds out which share brought each recovered message that one did: one of the session's whose filter matches.
    pub(super) fn recover_shares(&mut self, index: QueueIndex) {
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        let shares = &self.shares;
        let numbers = shares.of(queue);
        for entry in queue.ready.iter_mut().filter(|entry| entry.share != 0) {
            let matches = |number: &&u32| {
                let name = shares.shares.get(number).map(|share| &*share.name);
                let filter = name.and_then(shared_filter);
                filter.is_some_and(|filter| super::retained::matches(filter, &entry.held.message.address))
            };
            entry.share = numbers.iter().find(matches).copied().unwrap_or(0);
        }
    }

    /// The member's connection is gone: what waits for it moves on to members that are there.
    pub(super) fn share_moves_on(&mut self, now: Now, index: QueueIndex) {
        let Some(queue) = self.queue(index) else { return };
        for number in self.shares.of(queue) {
            let there = |member: &QueueIndex| {
                *member != index && self.queue(*member).is_some_and(|queue| queue.consumer.is_some())
            };
            let Some(share) = self.shares.shares.get(&number) else { continue };
            if share.members.iter().any(|(member, _)| there(member)) {
                self.move_share(now, number, index);
            }
        }
    }

    /// A member has come: it gets what waits for members that are away.
    pub(super) fn share_arrives(&mut self, now: Now, index: QueueIndex) {
        let Some(queue) = self.queue(index) else { return };
        for number in self.shares.of(queue) {
            let Some(share) = self.shares.shares.get(&number) else { continue };
            let away = |member: &QueueIndex| {
                *member != index && self.queue(*member).is_some_and(|queue| queue.consumer.is_none())
            };
            let away: Vec<_> = share.members.iter().map(|(member, _)| *member).filter(away).collect();
            for member in away {
                self.move_share(now, number, member);
            }
        }
    }

    fn move_share(&mut self, now: Now, number: u32, from: QueueIndex) {
        let Some(queue) = self.queue_mut(from) else { return };
        if !queue.ready.iter().any(|entry| entry.share == number) {
            return;
        }
        let (moving, staying): (VecDeque<_>, _) =
            std::mem::take(&mut queue.ready).into_iter().partition(|entry| entry.share == number);
        queue.ready = staying;
        for entry in &moving {
            queue.discharge(entry);
        }
        let durable = queue.durable;
        for entry in moving {
            let held = Rc::clone(&entry.held);
            let was_durable = entry.is_durable(durable);
            match self.hand_on(now, entry, Among::ThereAndKeeping { but: from }) {
                None if was_durable => self.settle_durable(now.mono, from, &held),
                None => {}
                Some(entry) => {
                    let Some(queue) = self.queue_mut(from) else { return };
                    queue.charge(&entry);
                    put_in_order(queue, entry);
                }
            }
        }
    }

    /// A session ended: what it had of shared subscriptions goes to their other members, but for exactly-once
    /// deliveries that were begun. [MQTT-4.8.2-5]
    pub(super) fn share_outlives(&mut self, now: Now, index: QueueIndex, queue: &mut Queue) {
        let begun = queue.in_flight.iter().filter(|f| {
            f.entry.share != 0
                && (f.entry.assurance != Assurance::ExactlyOnce || matches!(f.flight, Flight::AwaitBatch(_)))
        });
        let waiting = queue.ready.iter().filter(|entry| entry.share != 0);
        let moving: Vec<_> = begun.map(|f| &f.entry).chain(waiting).cloned().collect();
        for entry in moving {
            // Whom nobody takes over from ends with its session.
            let _left = self.hand_on(now, entry, Among::But(index));
        }
    }

    /// Puts a message into the queue of another member, in the order of publishing. Gives it back when there is none.
    fn hand_on(&mut self, now: Now, entry: Entry, among: Among) -> Option<Entry> {
        let share = entry.share;
        let Some((member, options)) = self.choose(share, entry.held.message.assurance, among) else {
            return Some(entry);
        };
        let Some(queue) = self.queue_mut(member) else { return Some(entry) };
        let assurance = entry.held.message.assurance.min(options.assurance_max);
        let alike = BTreeSet::from([Rc::as_ptr(&entry.held)]);
        if !queue.held_among(&alike).is_empty() {
            return None;
        }
        if assurance == Assurance::AtMostOnce {
            self.hand_over_once(member, entry, options);
            return None;
        }
        let (id, durable) = (queue.id, queue.durable);
        let mut moved = Entry {
            as_published: options.retain_as_published && entry.held.message.retain,
            identifier: options.identifier,
            share,
            order: entry.order,
            expires_at: entry.expires_at,
            redelivered: false,
            ..Entry::new(entry.held, assurance)
        };
        if durable {
            moved.joined = self.ledger.join_taker(now.mono, &moved.held, id, moved.taker_flags());
        }
        let queue = self.queue_mut(member)?;
        if moved.joined {
            queue.joins.set(true);
        }
        queue.charge(&moved);
        put_in_order(queue, moved);
        self.counters.queued += 1;
        self.dispatch(now, member);
        self.keep_queue_bounds(now, member);
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
                    held: entry.held,
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

/// Among what is ready, in the order of publishing.
fn put_in_order(queue: &mut Queue, entry: Entry) {
    let place = (entry.order, entry.held.place.get().key);
    let at = queue.ready.partition_point(|other| (other.order, other.held.place.get().key) <= place);
    queue.ready.insert(at, entry);
}
