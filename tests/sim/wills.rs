//! Wills: which were registered, which connections died with one, and when the message is owed for good.
//!
//! A will is owed once its registration or its publish is surely on flash: a batch that was closed after the moment in
//! question was reported.

use std::collections::BTreeMap;

use crate::model::{MessageNumber, Model};

#[derive(Debug)]
struct Will {
    number: MessageNumber,
    /// CONNACK came at this step, so the gateway knows it.
    connected_at: Option<u64>,
    /// The registration is on flash.
    kept: bool,
    /// The client sent DISCONNECT: whether the will is published depends on whether that arrives.
    left: bool,
}

#[derive(Debug, Default)]
pub struct Wills {
    /// By link.
    live: BTreeMap<u64, Will>,
    /// Published at this step, not owed for good yet.
    published: Vec<(u64, MessageNumber)>,
}

impl Wills {
    /// CONNECT leaves on `link` with this will.
    pub fn sent(&mut self, step: u64, link: u64, number: MessageNumber, model: &mut Model) {
        model.will_may_come(step, number);
        self.live.insert(link, Will { number, connected_at: None, kept: false, left: false });
    }

    /// CONNACK came on `link`.
    pub fn connected(&mut self, step: u64, link: u64) {
        if let Some(will) = self.live.get_mut(&link) {
            will.connected_at = Some(step);
        }
    }

    /// DISCONNECT leaves on `link`.
    pub fn left(&mut self, link: u64) {
        if let Some(will) = self.live.get_mut(&link) {
            will.left = true;
        }
    }

    /// A batch that was closed at this step is on flash.
    pub fn persisted(&mut self, closed_at: u64, model: &mut Model) {
        for will in self.live.values_mut() {
            will.kept |= will.connected_at.is_some_and(|at| at < closed_at);
        }
        self.published.retain(|(at, number)| {
            let kept = *at < closed_at;
            if kept {
                model.firm((*number, 0));
            }
            !kept
        });
    }

    /// The gateway saw the end of `link`.
    pub fn link_ended(&mut self, step: u64, link: u64, model: &mut Model) {
        let Some(will) = self.live.remove(&link) else { return };
        let certain = !will.left && will.connected_at.is_some();
        model.will_died(step, will.number, certain, will.kept);
        if certain && !will.kept {
            self.published.push((step, will.number));
        }
    }

    /// The power went, or the machine stopped.
    pub fn machine_ended(&mut self, step: u64, model: &mut Model) {
        for (_, number) in std::mem::take(&mut self.published) {
            model.forgotten((number, 0));
        }
        for (_, will) in std::mem::take(&mut self.live) {
            model.will_died(step, will.number, will.kept && !will.left, true);
        }
    }
}
