//! What the channels of one connection share: its output, who it is, the replies that it owes.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::codec::method::basic;
use super::codec::{Arguments, encode_method};
use crate::auth::{Acl, Denials, Identity, Users};
use crate::broker::{Broker, Gate, Outlet};
use crate::ids::{BatchNumber, ConnectionId};
use crate::limits;
use crate::message::Message;
use crate::output::OutputBuffer;
use crate::time::Now;

/// What a connection may use while it handles an input.
pub struct Context<'a> {
    pub now: Now,
    pub broker: &'a mut Broker,
    /// The users, when there is a password file.
    pub users: Option<&'a Users>,
    /// The rules, when there is an ACL file.
    pub acl: Option<&'a Acl>,
    /// Takes note of what was not allowed.
    pub denials: &'a Denials,
    pub message_bytes_max: u64,
    /// A random number, for names that the gateway chooses.
    pub random: u64,
    /// A name and password that were verified a short while ago.
    pub verified: &'a dyn Fn(&str, &[u8]) -> bool,
    /// A message's properties in this protocol's form, whatever protocol it came by.
    pub properties: PropertiesOf,
}

/// Flags and properties of class basic for a message.
pub type PropertiesOf = fn(&Message) -> Cow<'_, [u8]>;

/// An answer to a publish that waits for its gate.
#[derive(Debug)]
struct Confirm {
    gate: Gate,
    channel: u16,
    /// Tells the channel from an earlier one with its number.
    serial: u64,
    tag: u64,
    refused: bool,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Link {
    pub id: ConnectionId,
    pub output: OutputBuffer,
    /// How much more deliveries may add to the output.
    pub outlet: Rc<Outlet>,
    pub user: Option<Box<str>>,
    /// Octets of the largest frame, overhead included.
    pub frame_bytes_max: usize,
    pub cancel_notify: bool,
    /// Bytes of contents that are not whole yet, and of what waits for a commit.
    pub assembling: Rc<Cell<usize>>,
    confirms: VecDeque<Confirm>,
    /// A reply that waits for the flash. Nothing that comes after its request is handled before it has left.
    held_reply: Option<(Gate, Vec<u8>)>,
    next_serial: u64,
}

impl Link {
    pub fn new(id: ConnectionId) -> Self {
        let outlet = Outlet::default();
        outlet.room.set(limits::OUTPUT_BYTES_HIGH as i64);
        Self {
            id,
            output: OutputBuffer::default(),
            outlet: Rc::new(outlet),
            user: None,
            frame_bytes_max: FRAME_MAX_BYTES,
            cancel_notify: false,
            assembling: Rc::default(),
            confirms: VecDeque::new(),
            held_reply: None,
            next_serial: 0,
        }
    }

    /// Distinguishes channels that have had the same number.
    pub const fn take_serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    /// Who the rules are asked about.
    pub fn identity(&self) -> Identity<'_> {
        Identity { username: self.user.as_deref(), client_identifier: "" }
    }

    /// Sends a method. What the gateway says itself fits a frame.
    pub fn send(&mut self, channel: u16, arguments: &impl Arguments) {
        let _fits = self.output.append(|out| encode_method(out, channel, arguments));
    }

    /// Sends a method, but behind the reply that waits.
    pub fn send_behind_reply(&mut self, channel: u16, arguments: &impl Arguments) {
        match &mut self.held_reply {
            Some((_, held)) => {
                let _fits = encode_method(held, channel, arguments);
            }
            None => self.send(channel, arguments),
        }
    }

    /// Sends a reply when its gate is due; until then nothing else of the connection is handled.
    pub fn reply(&mut self, broker: &mut Broker, gate: Gate, channel: u16, arguments: &impl Arguments) {
        if gate.is_due(broker.persisted_batch()) {
            self.send(channel, arguments);
            return;
        }
        if let Some(batch) = gate.batch() {
            broker.await_batch(batch, self.id);
        }
        let mut reply = Vec::new();
        if encode_method(&mut reply, channel, arguments).is_ok() {
            self.held_reply = Some((gate, reply));
        }
    }

    /// Answers to publishes that wait.
    pub fn owed(&self) -> usize {
        self.confirms.len()
    }

    /// True while a reply waits for the flash.
    pub const fn waits(&self) -> bool {
        self.held_reply.is_some()
    }

    /// Owes the answer to a publish.
    pub fn confirm(&mut self, broker: &mut Broker, gate: Gate, of: (u16, u64), tag: u64, refused: bool) {
        if let Some(batch) = gate.batch()
            && !gate.is_due(broker.persisted_batch())
        {
            broker.await_batch(batch, self.id);
        }
        let (channel, serial) = of;
        self.confirms.push_back(Confirm { gate, channel, serial, tag, refused });
    }

    /// Sends the answers that are due: in the order of the publishes, those that follow each other on a channel as one.
    pub fn send_confirms(&mut self, persisted: BatchNumber, lives: impl Fn(u16, u64) -> bool) {
        let mut run: Option<(u16, u64, bool)> = None;
        while let Some(confirm) = self.confirms.pop_front_if(|confirm| confirm.gate.is_due(persisted)) {
            if !lives(confirm.channel, confirm.serial) {
                continue;
            }
            match &mut run {
                Some((channel, tag, multiple)) if *channel == confirm.channel && !confirm.refused => {
                    *tag = confirm.tag;
                    *multiple = true;
                    continue;
                }
                _ => {}
            }
            self.send_ack(run.take());
            if confirm.refused {
                let nack = basic::Nack { delivery_tag: confirm.tag, multiple: false, requeue: false };
                self.send(confirm.channel, &nack);
            } else {
                run = Some((confirm.channel, confirm.tag, false));
            }
        }
        self.send_ack(run);
        if self.confirms.is_empty() && self.confirms.capacity() > CONFIRMS_KEPT {
            self.confirms = VecDeque::new();
        }
    }

    /// Sends the reply that waited, if it is due.
    pub fn send_held_reply(&mut self, persisted: BatchNumber) {
        if let Some((_, reply)) = self.held_reply.take_if(|(gate, _)| gate.is_due(persisted)) {
            self.output.append(|out| out.extend_from_slice(&reply));
        }
    }

    /// Forgets what is owed.
    pub fn forget_replies(&mut self) {
        self.confirms = VecDeque::new();
        self.held_reply = None;
    }

    fn send_ack(&mut self, run: Option<(u16, u64, bool)>) {
        if let Some((channel, delivery_tag, multiple)) = run {
            self.send(channel, &basic::Ack { delivery_tag, multiple });
        }
    }
}

/// Bytes that one connection may have in memory before anything of it is routed.
const ASSEMBLING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A share of what a connection may have in memory; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    bytes: usize,
    total: Rc<Cell<usize>>,
}

impl Reserved {
    /// `None` when the connection has taken its share.
    pub fn new(link: &Link, bytes: usize) -> Option<Self> {
        let total =
            link.assembling.get().checked_add(bytes).filter(|total| *total <= ASSEMBLING_BYTES_MAX)?;
        link.assembling.set(total);
        Some(Self { bytes, total: Rc::clone(&link.assembling) })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.total.set(self.total.get().saturating_sub(self.bytes));
    }
}

/// What the gateway proposes, and takes before anything is agreed.
pub(super) const FRAME_MAX_BYTES: usize = 131_072;

/// Room for owed confirms that an idle connection may keep.
const CONFIRMS_KEPT: usize = 64;
