//! Messages that expire: from when on one may be gone, and from when on it must not come any more.
//!
//! The gateway counts from the moment at which it took the message, which lies between the publish and its
//! acknowledgement. Across a start it believes the wall clock only when that was trusted at both ends, so that a start may
//! give a message all of its time again: what is surely over is judged by the time since the start. [MQTT-3.3.2-5]

use crate::model::{Check, Instance, Message, Model, Sending};

/// The gateway's clocks differ from the world's by less than this, microseconds.
const PRECISION_US: u64 = 2_000;
/// Intervals are told in whole seconds, a begun one counted.
const SECOND_US: u64 = 1_000_000;

impl Model {
    /// Time passed: nobody is surely owed what may have expired.
    pub fn time_passed(&mut self, now_us: u64) {
        self.now_us = now_us;
        if !self.messages.iter().any(|message| message.lasts_ms.is_some()) {
            return;
        }
        let messages = &self.messages;
        let lasts = |instance: &Instance| {
            messages.get(instance.0 as usize).is_some_and(|message| !message.may_be_over(instance.1, now_us))
        };
        for session in &mut self.sessions {
            session.due.retain(|instance, _| lasts(instance));
        }
        for queue in &mut self.queues {
            queue.due.retain(|instance, _| lasts(instance));
            queue.ready.retain(|_, number| lasts(&(*number, 0)));
        }
    }

    /// The gateway starts.
    pub const fn starts(&mut self) {
        self.started_us = self.now_us;
    }

    /// The publish left without its expiry: over MQTT 3.
    pub fn sent_for_ever(&mut self, (number, at): Instance) {
        let message = self.messages.get_mut(number as usize);
        if let Some(sending) = message.and_then(|message| message.instances.get_mut(at)) {
            sending.for_ever = true;
        }
    }

    /// A delivery that was handed over after `since_us` for the first time: its message was not over before.
    pub fn is_in_time(&self, message: &Message, since_us: u64) -> Check {
        match message.over_us(self.started_us) {
            Some(over_us) if over_us < since_us => {
                Err(format!("it was over {} ms before it could be handed over", (since_us - over_us) / 1000))
            }
            _ => Ok(()),
        }
    }

    /// What the gateway says is left of a message that was handed over after `since_us`, seconds. [MQTT-3.3.2-6]
    pub fn is_left(&self, message: &Message, since_us: u64, left_s: Option<u32>) -> Check {
        let (lasts_us, left_us) = match (message.lasts_ms, left_s) {
            (None, None) => return Ok(()),
            (Some(ms), Some(s)) => (ms * 1000, u64::from(s) * SECOND_US),
            (Some(_), None) if message.instances.iter().any(|sending| sending.for_ever) => return Ok(()),
            (lasts, left) => return Err(format!("{left:?} seconds are left of {lasts:?} ms")),
        };
        let begun_us = message.instances.iter().map(|sending| sending.begun_us).min().unwrap_or(0);
        let least_us = lasts_us.saturating_sub(self.now_us - begun_us + PRECISION_US);
        let over_us = message.over_us(self.started_us);
        let most_us = over_us.map_or(lasts_us, |over_us| lasts_us.min(over_us.saturating_sub(since_us)));
        if left_us < least_us || left_us > most_us + SECOND_US {
            return Err(format!("{left_us} us are left, at least {least_us} and at most {most_us} can be"));
        }
        Ok(())
    }
}

impl Message {
    /// True when the copies of one publish may have expired.
    pub fn may_be_over(&self, at: usize, now_us: u64) -> bool {
        let begun_us = self.instances.get(at).map_or(0, |sending| sending.begun_us);
        self.lasts_ms.is_some_and(|ms| now_us.saturating_sub(begun_us) + PRECISION_US >= ms * 1000)
    }

    /// When all copies have surely expired, in a gateway that started then.
    fn over_us(&self, started_us: u64) -> Option<u64> {
        let lasts_us = self.lasts_ms? * 1000;
        let ends: Option<Vec<u64>> = self.instances.iter().map(Sending::timed_end_us).collect();
        let last = ends?.into_iter().max()?;
        Some(last.max(started_us) + lasts_us + PRECISION_US)
    }
}
