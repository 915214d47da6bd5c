//! Connections whose peer is gone, ended one after the other.
//!
//! A thousand devices that lose their network are a thousand ends at once, some 40 us each. Between any two of them the
//! runtime looks for messages of those that are there.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::Notify;
use tokio::task::yield_now;

use super::core::Core;
use crate::ids::ConnectionId;

/// Those that wait for their end; at most as many as there are connections.
#[derive(Debug, Default)]
pub(super) struct Departures {
    waiting: RefCell<VecDeque<ConnectionId>>,
    wake: Notify,
}

impl Departures {
    /// The peer of a connection is gone, and the connection is not read any more.
    pub fn announce(&self, id: ConnectionId) {
        self.waiting.borrow_mut().push_back(id);
        self.wake.notify_one();
    }

    fn next(&self) -> Option<ConnectionId> {
        let mut waiting = self.waiting.borrow_mut();
        let next = waiting.pop_front();
        if next.is_none() {
            waiting.shrink_to_fit();
        }
        next
    }
}

/// Ends them for ever.
pub(super) async fn end_all(core: Rc<Core>) {
    loop {
        core.departures.wake.notified().await;
        while let Some(id) = core.departures.next() {
            core.peer_closed(id);
            // Goes on when the sockets were looked at: the runtime wakes it behind those that have something to say.
            yield_now().await;
        }
    }
}
