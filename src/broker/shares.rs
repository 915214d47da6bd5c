//! Shared subscriptions: each message goes to one member's session, and moves on when that member is away.
//!
//! A share is named by its whole filter, `$share/{name}/{filter}`; its members are sessions. Owns the table and choosing a
//! member; what waits for one that is away moves in `moving`. MQTT 5 section 4.8.2.

mod moving;

use std::collections::BTreeMap;
use std::ops::Bound;

use super::exchange::{SHARE_MAX, share_code};
use super::queue::{Overflow, Queue, QueueIndex, SubscribeOptions};
use super::{Broker, mqtt_levels};
use crate::message::Assurance;

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
    /// Members that keep it as who has it does, are there, and have room: what waits for one that is away, and may come
    /// back, is not given up for memory that a cut may empty, nor for a queue that would lose another one for it.
    Taking {
        from: QueueIndex,
        charge: u64,
    },
    /// What the session that ended leaves behind: members that keep it, there or not, and have room.
    Keeping {
        but: QueueIndex,
        charge: u64,
    },
    /// Any but it, the last resort; those that reject only with room.
    But {
        but: QueueIndex,
        charge: u64,
    },
}

#[derive(Debug)]
struct Share {
    name: Box<str>,
    members: Vec<(QueueIndex, SubscribeOptions)>,
    /// Whose turn it is.
    turn: usize,
    /// The publish that reached it last.
    visit: u64,
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
        self.shares.insert(self.last, Share { name: name.into(), members: Vec::new(), turn: 0, visit: 0 });
        self.last
    }

    /// Which of these shares brings messages of this address; 0 for none.
    pub(super) fn bringing(&self, numbers: &[u32], address: &str) -> u32 {
        let matches = |number: &&u32| {
            let name = self.shares.get(number).map(|share| &*share.name);
            let filter = name.and_then(shared_filter);
            filter.is_some_and(|filter| super::retained::matches(filter, address))
        };
        numbers.iter().find(matches).copied().unwrap_or(0)
    }

    /// True when a publish reaches the share for the first time.
    pub(super) fn is_reached_by(&mut self, number: u32, publish_number: u64) -> bool {
        let share = self.shares.get_mut(&number);
        share.is_some_and(|share| std::mem::replace(&mut share.visit, publish_number) != publish_number)
    }

    /// Numbers of the shares that a queue is a member of.
    pub(super) fn of(&self, queue: &Queue) -> Vec<u32> {
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
        let at = self.best_member(number, assurance, among)?;
        let share = self.shares.shares.get_mut(&number)?;
        share.turn = (at + 1) % share.members.len();
        share.members.get(at).copied()
    }

    fn best_member(&self, number: u32, assurance: Assurance, among: Among) -> Option<usize> {
        let share = self.shares.shares.get(&number)?;
        let count = share.members.len();
        let mut best: Option<(usize, usize)> = None;
        for step in 0..count {
            let at = (share.turn + step) % count;
            let (member, options) = share.members.get(at)?;
            let Some(queue) = self.queue(*member) else { continue };
            let kept = assurance.min(options.assurance_max) != Assurance::AtMostOnce;
            if !self.may_go_to(*member, kept, among) {
                continue;
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
        best.map(|(_, at)| at)
    }

    fn may_go_to(&self, member: QueueIndex, kept: bool, among: Among) -> bool {
        let Some(queue) = self.queue(member) else { return false };
        let keeps = queue.durable && kept;
        match among {
            Among::All => true,
            Among::Taking { from, charge } => {
                from != member && keeps && queue.consumer.is_some() && self.has_room(member, charge)
            }
            Among::Keeping { but, charge } => but != member && keeps && self.has_room(member, charge),
            Among::But { but, charge } => {
                but != member
                    && (!kept
                        || queue.bounds.overflow == Overflow::DropOldest
                        || self.has_room(member, charge))
            }
        }
    }

    /// One more message of this size pushes none out of the queue.
    fn has_room(&self, index: QueueIndex, charge: u64) -> bool {
        self.queue(index).is_some_and(|queue| {
            queue.messages < queue.bounds.messages_max
                && queue.bytes.saturating_add(charge) <= queue.bounds.bytes_max
        }) && !self.rejecting_are_crowded(index, charge)
    }

    /// Finds out which share brought each recovered message that one did: one of the session's whose filter matches.
    pub(super) fn recover_shares(&mut self, index: QueueIndex) {
        let Some(queue) = self.queues.get_mut(index.0 as usize).and_then(Option::as_mut) else { return };
        let shares = &self.shares;
        let numbers = shares.of(queue);
        for entry in queue.ready.iter_mut().filter(|entry| entry.share != 0) {
            entry.share = shares.bringing(&numbers, &entry.held.message.address);
        }
    }
}
