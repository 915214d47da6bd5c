//! Connections: bytes on their way to the gateway, what the driver knows of the way back, and how either moves.

use std::collections::VecDeque;

use gatewayd::gateway::{Accept, Output, Protocol};
use gatewayd::ids::ConnectionId;

use crate::client::{Content, Stage, tell_ended};
use crate::model::Check;
use crate::world::{World, crc32};

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
    /// When the gateway saw its end, by [`World::passed_us`]; the link may be closed later.
    pub left_at_us: Option<u64>,
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
            left_at_us: None,
            ends: false,
            parked: false,
            has_output: false,
            slow_until: 0,
            carried: Vec::new(),
        }
    }

    /// The client whose session it surely is connected to, or was.
    fn session(&self) -> Option<usize> {
        match self.owner {
            Party::Mqtt(client) if self.joined => Some(client),
            Party::Mqtt(_) | Party::Amqp(_) => None,
        }
    }
}

impl World {
    /// A connection opens; false when the gateway takes no more.
    pub fn open(&mut self, party: Party) -> bool {
        let protocol = match party {
            Party::Mqtt(_) => Protocol::Mqtt,
            Party::Amqp(_) => Protocol::Amqp091,
        };
        let accept = Accept {
            allow_anonymous: true,
            peer: format!("sim:{}", self.next_link).into(),
            ..Accept::default()
        };
        let Some(connection) = self.machine.gateway.accept_protocol(self.now, protocol, accept) else {
            return false;
        };
        self.kicked = true;
        self.links.insert(self.next_link, Link::new(connection, party));
        self.trace.note(format_args!("link {} of {party:?} opens", self.next_link));
        self.next_link += 1;
        true
    }

    /// The link that is used now.
    pub fn link_of(&self, party: impl Into<Party>) -> Option<u64> {
        let party = party.into();
        self.links.iter().find(|(_, link)| link.client == Some(party)).map(|(number, _)| *number)
    }

    /// True when the gateway keeps the client connected, as far as the client knows that it is.
    pub fn is_connected(&self, client: usize) -> bool {
        let link = self.link_of(client).and_then(|number| self.links.get(&number));
        link.is_some_and(|link| link.joined && link.left_at_us.is_none())
    }

    /// What a client wrote goes on its way.
    pub fn post(&mut self, party: impl Into<Party>) {
        let party = party.into();
        let Some(link) = self.link_of(party).and_then(|number| self.links.get_mut(&number)) else { return };
        match party {
            Party::Mqtt(client) => {
                let Some(client) = self.clients.get_mut(client) else { return };
                link.to_gateway.extend(client.outgoing.drain(..));
                link.carried.append(&mut client.carried);
            }
            Party::Amqp(client) => {
                let Some(client) = self.amqp.get_mut(client) else { return };
                link.to_gateway.extend(client.outgoing.drain(..));
                link.carried.extend(client.carried.drain(..).map(Content::Message));
            }
        }
    }

    /// The client has nothing more to do with its link; what it sent is still on its way. `last`: the end follows.
    pub fn leave(&mut self, party: impl Into<Party>, last: bool) {
        let party = party.into();
        let Some(number) = self.link_of(party) else { return };
        if let Some(link) = self.links.get_mut(&number) {
            link.client = None;
            link.ends = last;
        }
        self.tell_lost(Some(party));
        self.trace.note(format_args!("{party:?} leaves link {number}"));
    }

    /// The connection breaks: what was on its way is gone.
    pub fn break_link(&mut self, number: u64) {
        let Some(link) = self.links.get(&number) else { return };
        self.trace.note(format_args!("link {number} breaks"));
        let connection = link.connection;
        self.forget_link(number);
        self.machine.gateway.peer_closed(self.now, connection);
        self.kicked = true;
        self.after_call();
    }

    pub fn forget_link(&mut self, number: u64) {
        let Some(mut link) = self.links.remove(&number) else { return };
        let step = self.trace.step;
        for content in std::mem::take(&mut link.carried) {
            tell_ended(step, &mut self.model, content);
        }
        self.tell_lost(link.client);
        if link.left_at_us.is_none()
            && let Some(client) = link.session()
        {
            self.model.left(client, self.passed_us);
        }
        self.link_ended(number);
    }

    fn tell_lost(&mut self, party: Option<Party>) {
        let step = self.trace.step;
        match party {
            Some(Party::Mqtt(client)) => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.lost_connection(step, &mut self.model);
                }
            }
            Some(Party::Amqp(client)) => {
                if let Some(client) = self.amqp.get_mut(client) {
                    client.lost_connection(step, &mut self.model);
                }
            }
            None => {}
        }
    }

    /// The gateway saw the end of a link: its session is away from now on, however late the driver closes the link.
    fn link_ended(&mut self, number: u64) {
        if let Some(link) = self.links.get_mut(&number)
            && link.left_at_us.is_none()
        {
            link.left_at_us = Some(self.passed_us);
            if let Some(client) = link.session() {
                self.model.left(client, self.passed_us);
            }
        }
        self.wills.link_ended(self.trace.step, number, &mut self.model);
        for queue in &mut self.model.queues {
            queue.released(number, None);
        }
    }

    pub fn pick_link(&mut self) -> Option<u64> {
        let at = self.random.below(self.links.len() as u64);
        self.links.keys().nth(usize::try_from(at).unwrap_or(0)).copied()
    }

    pub fn carry_to_gateway(&mut self) {
        let Some(number) = self.pick_link() else { return };
        let most = if self.random.below(3) == 0 { 1 + self.random.below(40) } else { 1 << 20 };
        self.carry_in(number, usize::try_from(most).unwrap_or(usize::MAX));
    }

    /// Moves up to `most` bytes of a link into the gateway. False when nothing moved.
    pub fn carry_in(&mut self, number: u64, most: usize) -> bool {
        let Some(link) = self.links.get_mut(&number) else { return false };
        if link.parked || link.to_gateway.is_empty() && !link.ends {
            return false;
        }
        let connection = link.connection;
        if !self.machine.gateway.wants_read(connection) {
            link.parked = true;
            return false;
        }
        let count = most.min(link.to_gateway.len()).min(64 * 1024);
        let bytes: Vec<u8> = link.to_gateway.drain(..count).collect();
        self.kicked = true;
        if bytes.is_empty() {
            self.break_link(number);
            return true;
        }
        self.trace.note(format_args!("link {number} > {count} bytes {:08x}", crc32(&bytes)));
        self.machine.gateway.receive(self.now, connection, &bytes);
        self.after_call();
        true
    }

    pub fn carry_to_client(&mut self) -> Check {
        let Some(number) = self.pick_link() else { return Ok(()) };
        if self.links.get(&number).is_some_and(|link| link.slow_until > self.trace.step) {
            return Ok(());
        }
        let most = if self.random.below(3) == 0 { 1 + self.random.below(40) } else { 1 << 20 };
        self.carry_out(number, usize::try_from(most).unwrap_or(usize::MAX))?;
        Ok(())
    }

    /// Moves up to `most` bytes of the gateway's output to the client. False when nothing moved.
    pub fn carry_out(&mut self, number: u64, most: usize) -> Result<bool, String> {
        let Some(link) = self.links.get_mut(&number).filter(|link| link.has_output) else {
            return Ok(false);
        };
        let Some(output) = self.machine.gateway.output(link.connection) else { return Ok(false) };
        let mut slices = [std::io::IoSlice::new(&[]); 16];
        let filled = output.slices(&mut slices);
        let all = slices.iter().take(filled).flat_map(|slice| slice.iter().copied());
        let bytes: Vec<u8> = all.take(most).collect();
        if bytes.is_empty() {
            link.has_output = false;
            return Ok(false);
        }
        let (connection, client) = (link.connection, link.client);
        self.trace.note(format_args!("link {number} < {} bytes {:08x}", bytes.len(), crc32(&bytes)));
        self.machine.gateway.sent(self.now, connection, bytes.len());
        self.kicked = true;
        self.after_call();
        let client = match client {
            None => return Ok(true),
            Some(Party::Amqp(client)) => {
                // What is delivered may stand behind what a message of the same step pushed out.
                crate::checker::note_drops(self);
                return self.amqp_receives(client, &bytes).map(|()| true);
            }
            Some(Party::Mqtt(client)) => client,
        };
        let joined = |world: &Self| world.clients.get(client).is_some_and(|c| c.stage == Stage::Joined);
        let joined_before = joined(self);
        if !joined_before {
            crate::workload::expire(self);
        }
        if let Some(client) = self.clients.get_mut(client) {
            client.receive(&mut self.trace, &mut self.model, &bytes)?;
        }
        if !joined_before && joined(self) {
            self.wills.connected(self.trace.step, number);
            if let Some(link) = self.links.get_mut(&number) {
                link.joined = true;
                if let Some(left_at_us) = link.left_at_us {
                    self.model.left(client, left_at_us);
                }
            }
        }
        self.post(client);
        Ok(true)
    }

    /// What every call of the gateway may leave: connections with output, and things to do, which wait for the round.
    pub fn after_call(&mut self) {
        while let Some(connection) = self.machine.gateway.poll_dirty() {
            if let Some(link) = self.links.values_mut().find(|link| link.connection == connection) {
                link.has_output = true;
            }
        }
        while let Some(output) = self.machine.gateway.poll_output() {
            if let Output::Close { connection, .. } = &output
                && let Some(number) = self.number_of(*connection)
            {
                self.link_ended(number);
            }
            self.outputs.push_back(output);
        }
    }

    pub fn number_of(&self, connection: ConnectionId) -> Option<u64> {
        self.links.iter().find(|(_, link)| link.connection == connection).map(|(number, _)| *number)
    }
}
