//! What is asked of the backlog and what it answers, on its way between the broker and the driver.

use super::connections::Pause;
use super::{Gateway, StoreCondition};
use crate::broker::BacklogRequest;
use crate::ids::ConnectionId;
use crate::store::chunk::{BacklogChanged, ChunkRows};
use crate::time::Now;

impl Gateway {
    /// The next thing that the backlog is asked for. To be asked in every round.
    pub fn backlog_request(&mut self, now: Now) -> Option<BacklogRequest> {
        self.broker.next_backlog_request(now)
    }

    /// The backlog was changed, or not at all.
    pub fn backlog_changed(&mut self, now: Now, changed: Option<BacklogChanged>) {
        self.broker.backlog_changed(now, changed);
        self.drain(now);
        self.resume_congested(now);
    }

    /// Rows were read, or cannot be read now.
    pub fn backlog_read(&mut self, now: Now, rows: Option<ChunkRows>) {
        self.broker.backlog_read(now, rows);
        self.drain(now);
        self.resume_congested(now);
    }

    /// A look at the window may have found that nothing in it can move: then nobody waits for that any more, and no answer
    /// of the store will say so.
    pub(super) fn resume_held_back(&mut self, now: Now) {
        if !self.congested.is_empty() || !self.awaiting_rows.is_empty() {
            self.resume_congested(now);
        }
    }

    /// Lets connections go on whose next packet had to wait for the store.
    pub(super) fn resume_congested(&mut self, now: Now) {
        for id in std::mem::take(&mut self.awaiting_rows) {
            // Where the rows are still not there it asks again.
            self.end_pause(now, id, Pause::Reading);
        }
        if self.broker.is_congested() {
            return;
        }
        for id in std::mem::take(&mut self.congested) {
            self.end_pause(now, id, Pause::Congested);
        }
    }

    /// Lets a connection go on that waits for this.
    fn end_pause(&mut self, now: Now, id: ConnectionId, pause: Pause) {
        let Some(endpoint) = self.connections.get_mut(id).filter(|endpoint| endpoint.pause == pause) else {
            return;
        };
        endpoint.pause = Pause::None;
        endpoint.protocol.excuse(now.mono);
        if pause == Pause::Congested
            && let Some(connection) = endpoint.protocol.as_amqp091_mut()
            && self.store.condition == StoreCondition::Working
        {
            connection.set_blocked(false);
            self.mark_dirty(now, id);
        }
        self.handle_kept(now, id);
        self.resume_reading(id);
    }
}
