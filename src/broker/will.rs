//! Wills: messages that are published when a connection ends without saying so, or when it dies with the broker; at
//! once, or after a delay in which the client may come back. MQTT 5 section 3.1.3.2.2.
//!
//! What is due when no connection asks for it is told by [`Event::WillDue`]: whether the client may still publish it is not
//! known here.

use std::time::Duration;

use super::ledger::Urgency;
use super::rows::RecordKey;
use super::{Broker, Event};
use crate::ids::QueueId;
use crate::message::{Assurance, Message};
use crate::time::{Mono, Now, Stamp};

/// The will of a client that is connected, or was until a short while ago.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Will {
    /// The client identifier that registered it.
    pub client: Box<str>,
    /// The name under which that client had logged in.
    pub user: Option<Box<str>>,
    pub message: Message,
    /// How long it waits for its client to come back, seconds.
    pub delay_s: u32,
    /// Since when it waits.
    pub waits_since: Option<Stamp>,
}

/// Names a registered will.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WillNumber(pub u64);

impl Broker {
    /// Registers a connected client's will. One that matters after a power cut is on flash within a batch.
    pub fn set_will(&mut self, now: Now, will: Will) -> WillNumber {
        let number = self.next_will;
        self.next_will += 1;
        let durable = will.message.retain || will.message.assurance != Assurance::AtMostOnce;
        self.keeps_will(&will.message);
        self.wills.insert(number, will);
        if durable {
            self.ledger.touch(now.mono, RecordKey::Will(number), Urgency::Now);
        }
        WillNumber(number)
    }

    /// A registered will.
    #[must_use]
    pub fn will(&self, number: WillNumber) -> Option<&Will> {
        self.wills.get(&number.0)
    }

    /// The client took leave: its will is forgotten. [MQTT-3.1.2-10]
    pub fn forget_will(&mut self, now: Now, number: WillNumber) {
        if let Some(will) = self.wills.remove(&number.0) {
            self.drops_will(&will.message);
            self.ledger.touch(now.mono, RecordKey::Will(number.0), Urgency::Now);
        }
    }

    /// The connection ended without leave: its will is published, in the batch that forgets it. [MQTT-3.1.2-8]
    ///
    /// One with a delay waits as long as the client's session does, at most; it is forgotten when the client is back
    /// already. `session` is the session that the connection had. [MQTT-3.1.3-9]
    pub fn execute_will(&mut self, now: Now, number: WillNumber, session: QueueId) {
        let boot = self.boot;
        let Some(will) = self.wills.get_mut(&number.0).filter(|will| will.delay_s > 0) else {
            self.publish_will(now, number);
            return;
        };
        let Some(index) = self.durable.get(&session) else {
            self.publish_will(now, number);
            return;
        };
        if self.queues.get(index.0 as usize).and_then(Option::as_ref).is_some_and(|q| q.owner.is_some()) {
            self.forget_will(now, number);
            return;
        }
        will.waits_since = Some(Stamp::new(now, boot));
        let (client, delay_s) = (will.client.clone(), will.delay_s);
        self.ledger.touch_soon(now.mono, RecordKey::Will(number.0));
        self.delay_will(now.mono, client, number, Duration::from_secs(u64::from(delay_s)));
    }

    /// A will waits, `left` longer at most.
    pub(super) fn delay_will(&mut self, now: Mono, client: Box<str>, number: WillNumber, left: Duration) {
        self.delayed_wills.insert(client, number.0);
        let at = now + left;
        self.will_at = Some(self.will_at.map_or(at, |old| old.min(at)));
    }

    /// The client is back: its will is not published. [MQTT-3.1.3-9]
    pub(super) fn will_is_off(&mut self, now: Now, client: &str) {
        if let Some(number) = self.delayed_wills.remove(client) {
            self.forget_will(now, WillNumber(number));
        }
    }

    /// The client's session ended: its will waits no longer.
    pub(super) fn will_is_due(&mut self, client: &str) {
        if let Some(number) = self.delayed_wills.remove(client) {
            self.events.push_back(Event::WillDue { will: WillNumber(number) });
        }
    }

    /// Names the wills whose delay has passed.
    pub(super) fn find_due_wills(&mut self, now: Now) {
        self.will_at = None;
        let mut due = Vec::new();
        for (client, number) in &self.delayed_wills {
            let Some(will) = self.wills.get(number) else { continue };
            let waited =
                will.waits_since.map_or(Duration::ZERO, |s| s.elapsed(now, self.boot, self.boot_began));
            match Duration::from_secs(u64::from(will.delay_s)).checked_sub(waited) {
                Some(left) if !left.is_zero() => {
                    let at = now.mono + left;
                    self.will_at = Some(self.will_at.map_or(at, |old| old.min(at)));
                }
                Some(_) | None => due.push(client.clone()),
            }
        }
        for client in due {
            self.will_is_due(&client);
        }
    }

    /// A will that was there when the gateway stopped: its client's connection ended then.
    pub(super) fn recover_will(&mut self, now: Now, number: u64, mut will: Will) {
        self.keeps_will(&will.message);
        let waits = will.delay_s > 0 && self.sessions.contains_key(&will.client);
        if waits && will.waits_since.is_none() {
            will.waits_since = Some(Stamp::new(now, self.boot));
            self.ledger.touch_soon(now.mono, RecordKey::Will(number));
        }
        let client = will.client.clone();
        self.wills.insert(number, will);
        if waits {
            self.delay_will(now.mono, client, WillNumber(number), Duration::ZERO);
        } else {
            self.events.push_back(Event::WillDue { will: WillNumber(number) });
        }
    }

    /// Publishes a will now, in the batch that forgets it.
    pub fn publish_will(&mut self, now: Now, number: WillNumber) {
        let Some(will) = self.wills.remove(&number.0) else { return };
        self.drops_will(&will.message);
        self.ledger.touch(now.mono, RecordKey::Will(number.0), Urgency::Now);
        let session = self.sessions.get(&will.client).copied();
        let message = Message { received_at: now.wall, received_trusted: now.wall_trusted, ..will.message };
        self.publish_message(now, message, None, session);
    }
}
