//! A connection: bytes on their way to the gateway, and what the driver knows of the way back.

use std::collections::VecDeque;

use gatewayd::ids::ConnectionId;

use crate::client::Content;

/// Whose connection it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    Mqtt(usize),
    Amqp(usize),
}

impl From<usize> for Party {
    fn from(client: usize) -> Self {
        Self::Mqtt(client)
    }
}

#[derive(Debug)]
pub struct Link {
    pub connection: ConnectionId,
    /// Who reads what comes back; nobody after the client left it.
    pub client: Option<Party>,
    /// Whose session it was opened for.
    pub owner: Party,
    pub to_gateway: VecDeque<u8>,
    /// CONNACK came on it.
    pub joined: bool,
    /// The end follows what is on its way.
    pub ends: bool,
    /// The gateway does not want to be given anything until it says so.
    pub parked: bool,
    /// The gateway said that there is output.
    pub has_output: bool,
    /// The client reads nothing before this step.
    pub slow_until: u64,
    /// Publishes that it carried.
    pub carried: Vec<Content>,
}

impl Link {
    pub const fn new(connection: ConnectionId, client: Party) -> Self {
        Self {
            connection,
            client: Some(client),
            owner: client,
            to_gateway: VecDeque::new(),
            joined: false,
            ends: false,
            parked: false,
            has_output: false,
            slow_until: 0,
            carried: Vec::new(),
        }
    }
}
