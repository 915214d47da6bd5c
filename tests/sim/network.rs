//! A connection: bytes on their way to the gateway, and what the driver knows of the way back.

use std::collections::VecDeque;

use gatewayd::ids::ConnectionId;

use crate::client::Content;

#[derive(Debug)]
pub struct Link {
    pub connection: ConnectionId,
    /// Who reads what comes back; nobody after the client left it.
    pub client: Option<usize>,
    /// Whose session it was opened for.
    pub owner: usize,
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
    pub const fn new(connection: ConnectionId, client: usize) -> Self {
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
