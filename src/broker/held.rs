//! A routed message with its account: how many durable takers still need it, and where it lies on flash.
//!
//! One copy serves every queue. Owns the counting; leaves writing and trimming to `ledger`.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use super::backlog::Chunk;
use super::queue::Entry;
use crate::ids::{ChunkNumber, ConnectionId, QueueId, RowKey};
use crate::message::Message;
use crate::store::batch::Place;

/// A durable taker as it is written with the message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Taker {
    pub queue: QueueId,
    /// Low two bits: the granted assurance; then the `TAKER_*` flags.
    pub flags: u8,
}

/// The taker sees the message as a retained one (MQTT's RETAIN flag set on delivery).
pub(super) const TAKER_RETAIN: u8 = 0x04;
/// The taker was connected when the message was routed, so it may have been sent before a restart.
pub(super) const TAKER_CONNECTED: u8 = 0x08;

/// The taker sees the message with its publisher's retain mark.
pub(super) const TAKER_AS_PUBLISHED: u8 = 0x10;
/// A shared subscription brought it: another member may get it instead.
pub(super) const TAKER_SHARED: u8 = 0x20;

/// The pseudo queue that stands for "this is the last known value of its address".
pub(super) const RETAINED: QueueId = QueueId(0);

/// What a message takes in memory beside its bytes: itself, the counts of `Rc`, and what the allocator adds to it and to
/// its parts, roughly.
pub(super) const HELD_BYTES: u64 = size_of::<(Held, [usize; 8])>() as u64;

/// What a queue takes for each message that it has in memory.
pub(super) const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;

/// How far a message has come on its way to flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// No durable taker: memory only.
    Memory,
    /// Waits in the open batch.
    Pending,
    /// In a batch that was handed to the store, or on flash.
    Written,
    /// Read back from a chunk of the backlog, where its row stays.
    Cold,
}

/// A set of takers shared by the messages of one batch, stored once.
#[derive(Debug)]
pub(super) struct TakerSet {
    pub place: Place,
    /// What it is charged on flash.
    pub bytes: u64,
    /// Live messages that refer to it.
    pub messages: Cell<u32>,
}

/// A message shared by all its takers.
#[derive(Debug)]
pub struct Held {
    pub message: Message,
    memory: Rc<Cell<u64>>,
    pub(super) stage: Cell<Stage>,
    /// Durable takers that have not settled.
    pub(super) owed: Cell<u32>,
    /// The takers to write; emptied when the batch closes.
    pub(super) takers: RefCell<Vec<Taker>>,
    pub(super) place: Cell<Place>,
    pub(super) set: RefCell<Option<Rc<TakerSet>>>,
    /// A taker lost it to a bound or ended: the publisher's acknowledgement then waits for the flash, which holds the
    /// receipt, though nobody owes anything any more.
    pub(super) dropped: Cell<bool>,
    /// The publisher's connection, when its acknowledgement waits for this message.
    pub(super) waiter: Cell<Option<ConnectionId>>,
    /// The chunk that its row lies in.
    chunk: Option<Rc<Chunk>>,
}

impl Held {
    /// The key of its row; 0 when it has none.
    #[must_use]
    pub fn key(&self) -> RowKey {
        self.place.get().key
    }

    /// `memory` counts the bytes that all messages alive take.
    pub(super) fn new(message: Message, memory: &Rc<Cell<u64>>) -> Rc<Self> {
        memory.set(memory.get() + memory_bytes(&message));
        Rc::new(Self {
            message,
            memory: Rc::clone(memory),
            stage: Cell::new(Stage::Memory),
            owed: Cell::new(0),
            takers: RefCell::new(Vec::new()),
            place: Cell::new(Place::default()),
            set: RefCell::new(None),
            dropped: Cell::new(false),
            waiter: Cell::new(None),
            chunk: None,
        })
    }

    /// A message that was read back from a chunk for one of its takers.
    pub(super) fn cold(
        message: Message,
        memory: &Rc<Cell<u64>>,
        place: Place,
        chunk: &Rc<Chunk>,
    ) -> Rc<Self> {
        memory.set(memory.get() + memory_bytes(&message));
        Rc::new(Self {
            message,
            memory: Rc::clone(memory),
            stage: Cell::new(Stage::Cold),
            owed: Cell::new(1),
            takers: RefCell::new(Vec::new()),
            place: Cell::new(place),
            set: RefCell::new(None),
            dropped: Cell::new(false),
            waiter: Cell::new(None),
            chunk: Some(Rc::clone(chunk)),
        })
    }

    /// The chunk that its row lies in.
    pub(super) fn chunk(&self) -> Option<Rc<Chunk>> {
        self.chunk.clone()
    }

    /// That chunk's number.
    pub(super) fn chunk_number(&self) -> Option<ChunkNumber> {
        self.chunk.as_ref().map(|chunk| chunk.number)
    }

    /// As if it had never been written: its takers are to be counted again.
    pub(super) fn forget_place(&self) {
        self.stage.set(Stage::Memory);
        self.owed.set(0);
        self.takers.borrow_mut().clear();
        self.place.set(Place::default());
        self.set.replace(None);
    }

    /// True when no durable taker needs it any more.
    pub(super) fn is_settled(&self) -> bool {
        self.owed.get() == 0
    }

    /// True when every durable taker has acknowledged it.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.is_settled() && !self.dropped.get()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.set(self.memory.get().saturating_sub(memory_bytes(&self.message)));
    }
}

fn memory_bytes(message: &Message) -> u64 {
    message.charge() as u64 + HELD_BYTES
}

/// A queue's hold on a message: while it lasts its entry is counted with the memory that messages take. A small message
/// for many queues takes little, its entries much.
#[derive(Debug)]
pub(super) struct Hold(Rc<Held>);

impl Hold {
    pub fn new(held: Rc<Held>) -> Self {
        held.memory.set(held.memory.get() + ENTRY_BYTES);
        Self(held)
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        Self::new(Rc::clone(&self.0))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let memory = &self.0.memory;
        memory.set(memory.get().saturating_sub(ENTRY_BYTES));
    }
}

impl Deref for Hold {
    type Target = Rc<Held>;

    fn deref(&self) -> &Rc<Held> {
        &self.0
    }
}
