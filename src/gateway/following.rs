//! Following topics: messages as they are published, a JSON object each. Who may see them is asked by the one who shows them.

use serde_json::{Value, json};

use super::Gateway;
use crate::broker::Seen;
use crate::message::Message;
use crate::mqtt::topic::TopicFilter;

impl Gateway {
    /// Follows the messages of topics from now on. Answers what [`Gateway::poll_followed`] names the follower by.
    ///
    /// # Errors
    /// Why `filter` is no topic filter, or none that can be followed.
    pub fn follow(&mut self, filter: &str) -> Result<u32, String> {
        let parsed = TopicFilter::parse(filter).map_err(|error| format!("topic: {error}"))?;
        if parsed.as_str().starts_with("$share/") {
            return Err("topic: a shared subscription is for clients".to_owned());
        }
        if parsed.as_str().starts_with("$SYS/") {
            return Err(
                "topic: figures are published to clients that subscribe to them; see /metrics".to_owned()
            );
        }
        Ok(self.broker.look_on(filter))
    }

    /// Ends that.
    pub fn unfollow(&mut self, follower: u32) {
        self.broker.look_away(follower);
    }

    /// The next message that somebody follows.
    pub fn poll_followed(&mut self) -> Option<Seen> {
        self.broker.poll_seen()
    }
}

/// A message as a follower sees it. A payload that is no text is hexadecimal, and `encoding` says so.
#[must_use]
pub fn followed_json(message: &Message) -> Value {
    let (payload, encoding) = match std::str::from_utf8(&message.body) {
        Ok(text) => (text.to_owned(), "utf-8"),
        Err(_) => (message.body.iter().map(|byte| format!("{byte:02x}")).collect(), "hex"),
    };
    json!({
        "topic": message.address,
        "payload": payload,
        "encoding": encoding,
        "qos": message.assurance as u8,
        "retain": message.retain,
        "received_at_ms": message.received_at.0,
    })
}
