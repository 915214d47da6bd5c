//! The table of connections: an id finds its endpoint in constant time, and is never given to a second connection.

use super::endpoint::ProtocolEndpoint;
use crate::ids::ConnectionId;
use crate::time::Mono;

/// A connection as its listener hands it over.
#[derive(Clone, Debug, Default)]
pub struct Accept {
    /// Clients may enter without a name.
    pub allow_anonymous: bool,
    /// The other end, for logs and `status`.
    pub peer: Box<str>,
    /// The listener's number, by which [`crate::gateway::Gateway::reconfigure`] speaks of it.
    pub listener: u16,
    /// The user name that its certificate proves: no password is asked for.
    pub user: Option<Box<str>>,
}

/// What a listener's clients speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Mqtt,
    Amqp091,
}

/// Why a connection's input waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pause {
    None,
    /// Its password is being checked.
    Verifying,
    /// The store must catch up first.
    Congested,
    /// What it asks for must be read from the backlog first.
    Reading,
    /// A reply must leave first, which waits for the flash.
    Replying,
    Ended,
}

#[derive(Debug)]
pub(super) struct Endpoint {
    pub protocol: ProtocolEndpoint,
    pub peer: Box<str>,
    /// See [`Accept::listener`].
    pub listener: u16,
    /// Input that is no whole packet yet, or may not be handled yet.
    pub input: Vec<u8>,
    /// Bytes that make the packet at the front of `input` whole, as far as is known.
    pub needed: usize,
    pub pause: Pause,
    /// Its output is full: nothing is read or delivered until it drains.
    pub blocked: bool,
    /// It is in the list of connections with output.
    pub dirty: bool,
    pub ended: bool,
    /// When the list of deadlines looks at it next.
    pub check_at: Option<Mono>,
}

impl Endpoint {
    /// True while it is not read because something must come to flash or from it first.
    pub fn is_held_back(&self) -> bool {
        matches!(self.pause, Pause::Congested | Pause::Reading) || self.protocol.owes_too_much()
    }

    /// Keeps input for later; room is made for the whole packet at its front.
    pub fn keep(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            return;
        }
        let wanted = self.needed.saturating_sub(self.input.len()).max(rest.len());
        // The length is the peer's claim: believed only as far as bytes keep coming.
        self.input.reserve(wanted.min(2 * rest.len()));
        self.input.extend_from_slice(rest);
    }
}

/// What `status` shows of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionStatus {
    pub connection: ConnectionId,
    pub client_identifier: Box<str>,
    pub user_name: Option<Box<str>>,
    pub peer: Box<str>,
    pub output_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Connections {
    slots: Vec<(u32, Option<Box<Endpoint>>)>,
    free: Vec<u32>,
    len: usize,
}

impl Connections {
    pub fn insert(&mut self, now: Mono, protocol: Protocol, accept: Accept) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).expect("connections_max bounds the slots")
        });
        let (generation, place) = self.slots.get_mut(slot as usize).expect("a free slot is one of the slots");
        *generation = generation.wrapping_add(1);
        let id = ConnectionId(u64::from(*generation) << 32 | u64::from(slot));
        *place = Some(Box::new(Endpoint {
            protocol: ProtocolEndpoint::new(protocol, id, now, accept.allow_anonymous, accept.user),
            peer: accept.peer,
            listener: accept.listener,
            input: Vec::new(),
            needed: 0,
            pause: Pause::None,
            blocked: false,
            dirty: false,
            ended: false,
            check_at: None,
        }));
        self.len += 1;
        id
    }

    pub fn remove(&mut self, id: ConnectionId) {
        let (slot, generation) = parts(id);
        if let Some((current, place)) = self.slots.get_mut(slot as usize)
            && *current == generation
            && place.take().is_some()
        {
            self.free.push(slot);
            self.len -= 1;
        }
    }

    pub fn get(&self, id: ConnectionId) -> Option<&Endpoint> {
        let (slot, generation) = parts(id);
        let (current, endpoint) = self.slots.get(slot as usize)?;
        if *current == generation { endpoint.as_deref() } else { None }
    }

    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Endpoint> {
        let (slot, generation) = parts(id);
        let (current, endpoint) = self.slots.get_mut(slot as usize)?;
        if *current == generation { endpoint.as_deref_mut() } else { None }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub fn ids(&self) -> Vec<ConnectionId> {
        self.iter().map(|(id, _)| id).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Endpoint)> {
        self.slots.iter().zip(0u64..).filter_map(|((generation, endpoint), slot)| {
            Some((ConnectionId(u64::from(*generation) << 32 | slot), endpoint.as_deref()?))
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "an id is two 32-bit halves")]
const fn parts(id: ConnectionId) -> (u32, u32) {
    (id.0 as u32, (id.0 >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CVE-2017-7651: what a peer announces sets nothing aside.
    #[test]
    fn kept_input_takes_memory_by_what_came() {
        let mut connections = Connections::default();
        let accept = Accept { allow_anonymous: true, peer: "peer".into(), ..Accept::default() };
        let id = connections.insert(Mono(0), Protocol::Mqtt, accept);
        let endpoint = connections.get_mut(id).expect("it was inserted");
        endpoint.needed = 256 * 1024 * 1024;
        for piece in [1, 10, 100, 5000, 60_000, 1, 60_000] {
            endpoint.keep(&vec![0; piece]);
            let (len, capacity) = (endpoint.input.len(), endpoint.input.capacity());
            assert!(capacity <= 4 * len + 64, "{capacity} bytes for {len}");
        }
    }
}
