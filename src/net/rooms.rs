//! How many queries and followers there are at once. Followers stay as long as they like, and callers of listeners are
//! many: neither takes the places of queries, nor anybody those of the control socket.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Queries by listeners, with those of the page.
const QUERIES_MAX: usize = 8;
/// Followers by listeners.
const FOLLOWERS_MAX: usize = 8;
/// Queries and backups by the control socket.
const CONTROL_QUERIES_MAX: usize = 4;
/// Followers by the control socket. With the queries they leave connections for what is answered at once.
const CONTROL_FOLLOWERS_MAX: usize = 8;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Rooms {
    queries: Arc<Semaphore>,
    followers: Arc<Semaphore>,
    control_queries: Arc<Semaphore>,
    control_followers: Arc<Semaphore>,
}

impl Rooms {
    pub fn new() -> Self {
        let room = |places| Arc::new(Semaphore::new(places));
        Self {
            queries: room(QUERIES_MAX),
            followers: room(FOLLOWERS_MAX),
            control_queries: room(CONTROL_QUERIES_MAX),
            control_followers: room(CONTROL_FOLLOWERS_MAX),
        }
    }

    /// A place for as long as it is held; `None` when all are taken.
    pub fn place(&self, from_control: bool, follows: bool) -> Option<OwnedSemaphorePermit> {
        let room = match (from_control, follows) {
            (false, false) => &self.queries,
            (false, true) => &self.followers,
            (true, false) => &self.control_queries,
            (true, true) => &self.control_followers,
        };
        Arc::clone(room).try_acquire_owned().ok()
    }
}
