//! What a load consists of.

use std::net::SocketAddr;
use std::time::Duration;

/// Who gets which message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topology {
    /// Publisher i has its own topic and subscriber i reads it.
    Pairs,
    /// Every subscriber reads the topics of all publishers (fan-in with one subscriber, fan-out with one publisher).
    All,
}

/// When a load is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// After this many messages in all, and their deliveries.
    Messages(u64),
    /// After this time; what is on its way then is not waited for.
    Time(Duration),
}

#[derive(Clone, Debug)]
pub struct LoadPlan {
    pub address: SocketAddr,
    pub user: Option<(String, String)>,
    pub publishers: usize,
    pub subscribers: usize,
    pub topology: Topology,
    pub publish_qos: u8,
    pub subscribe_qos: u8,
    pub payload_bytes: usize,
    /// Messages of one publisher that may be on their way.
    pub window: u16,
    pub amount: Amount,
    /// Messages that are sent and answered before the measured part.
    pub warm_up: u64,
    /// Messages a second of all publishers together; `None` is as fast as the window allows.
    pub rate: Option<f64>,
    /// First levels of all topics.
    pub topic_prefix: String,
    /// Whether the subscribers' sessions are persistent. They are ended when the load is over.
    pub persistent_subscribers: bool,
    /// The server's process, for CPU and memory.
    pub pid: Option<u32>,
    /// The server's status document, for bytes and syncs.
    pub status_url: Option<String>,
}

impl LoadPlan {
    /// One publisher, one subscriber, 64 bytes at QoS 0, window 1000, 100 000 messages.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            user: None,
            publishers: 1,
            subscribers: 1,
            topology: Topology::Pairs,
            publish_qos: 0,
            subscribe_qos: 0,
            payload_bytes: 64,
            window: 1000,
            amount: Amount::Messages(100_000),
            warm_up: 1000,
            rate: None,
            topic_prefix: format!("bench/{}", std::process::id()),
            persistent_subscribers: false,
            pid: None,
            status_url: None,
        }
    }

    /// Deliveries that one published message causes.
    #[must_use]
    pub fn fan_out(&self) -> u64 {
        match (self.topology, self.subscribers) {
            (_, 0) => 0,
            (Topology::Pairs, _) => 1,
            (Topology::All, subscribers) => subscribers as u64,
        }
    }

    /// Why this plan cannot run.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        if self.publishers == 0 || self.window == 0 {
            return Some("publishers and window must be at least 1");
        }
        if self.publish_qos > 2 || self.subscribe_qos > 2 {
            return Some("QoS is 0, 1 or 2");
        }
        if self.topology == Topology::Pairs && self.subscribers != 0 && self.subscribers != self.publishers {
            return Some("in pairs there are as many subscribers as publishers, or none");
        }
        None
    }

    pub(super) fn topic(&self, publisher: usize) -> String {
        format!("{}/{publisher}", self.topic_prefix)
    }

    pub(super) fn filter(&self, subscriber: usize) -> String {
        match self.topology {
            Topology::Pairs => self.topic(subscriber),
            Topology::All if self.publishers == 1 => self.topic(0),
            Topology::All => format!("{}/+", self.topic_prefix),
        }
    }
}
