//! Who follows topics over HTTP: each gets the messages that its user may read, as long as it takes them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tokio::sync::mpsc;

use super::series_thread::Piece;
use crate::gateway::{Gateway, followed_json};
use crate::series::Allowed;

/// Messages that wait for a slow follower; more are left out.
const WAITING_MAX: usize = 256;

/// Where a follower's lines go, and what it may see.
type Follower = (mpsc::Sender<Piece>, Option<Allowed>);

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Followers(RefCell<BTreeMap<u32, Follower>>);

impl Followers {
    /// Follows topics, as far as `allowed` lets; a line of JSON for each message.
    ///
    /// # Errors
    /// Why `filter` cannot be followed.
    pub fn follow(
        &self,
        gateway: &RefCell<Gateway>,
        filter: &str,
        allowed: Option<Allowed>,
    ) -> Result<mpsc::Receiver<Piece>, String> {
        let follower = gateway.borrow_mut().follow(filter)?;
        let (pieces, outgoing) = mpsc::channel(WAITING_MAX);
        self.0.borrow_mut().insert(follower, (pieces, allowed));
        Ok(outgoing)
    }

    /// Hands on what was published since the last round.
    pub fn tell(&self, gateway: &RefCell<Gateway>) {
        let mut followers = self.0.borrow_mut();
        if followers.is_empty() {
            return;
        }
        let mut gateway = gateway.borrow_mut();
        followers.retain(|follower, (pieces, _)| {
            if pieces.is_closed() {
                gateway.unfollow(*follower);
            }
            !pieces.is_closed()
        });
        while let Some(seen) = gateway.poll_followed() {
            let line = format!("{}\n", followed_json(&seen.message));
            for follower in &seen.by {
                let Some((pieces, allowed)) = followers.get(follower) else { continue };
                if allowed.as_ref().is_none_or(|allowed| allowed.takes(&seen.message.address)) {
                    // Who is too slow misses messages: looking on holds nobody up.
                    drop(pieces.try_send(Ok(line.clone().into_bytes())));
                }
            }
        }
    }
}
