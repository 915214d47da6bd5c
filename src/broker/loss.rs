//! Loss receipts: what was dropped, how much, when and why. Loss is never silent.

use std::collections::BTreeMap;

use super::cold::Run;
use super::queue::QueueKind;
use super::rows::RecordKey;
use crate::ids::RowKey;
use crate::message::Message;
use crate::message::record::{Reader, put_bytes, put_integer};
use crate::time::Wall;

/// Receipts kept; when there are more, the oldest are folded into one under the name `*`.
const RECEIPTS_MAX: usize = 512;

/// Why messages were dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LossReason {
    /// The queue reached its bound in messages or bytes.
    QueueBound,
    /// The file reached its quota and this queue had the highest charge.
    FlashQuota,
    /// Memory reached `memory_max` and this queue had the highest charge.
    MemoryBound,
    /// The session was away longer than sessions are kept.
    SessionExpired,
    /// The flash lost it.
    Damage,
    /// Its time to live was over.
    Expired,
    /// It was handed out and came back too often.
    DeliveryLimit,
    /// It was larger than its client takes.
    PacketTooLarge,
    /// It was delayed or dead, and no queue wanted it where it went then.
    Unrouted,
}

impl LossReason {
    pub const ALL: [Self; 9] = [
        Self::QueueBound,
        Self::FlashQuota,
        Self::MemoryBound,
        Self::SessionExpired,
        Self::Damage,
        Self::Expired,
        Self::DeliveryLimit,
        Self::PacketTooLarge,
        Self::Unrouted,
    ];

    /// The name in `status`, metrics and receipts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueBound => "queue_bound",
            Self::FlashQuota => "flash_quota",
            Self::MemoryBound => "memory_bound",
            Self::SessionExpired => "session_expired",
            Self::Damage => "damage",
            Self::Expired => "expired",
            Self::DeliveryLimit => "delivery_limit",
            Self::PacketTooLarge => "packet_too_large",
            Self::Unrouted => "unrouted",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::QueueBound => 0,
            Self::FlashQuota => 1,
            Self::MemoryBound => 2,
            Self::SessionExpired => 3,
            Self::Damage => 4,
            Self::Expired => 5,
            Self::DeliveryLimit => 6,
            Self::PacketTooLarge => 7,
            Self::Unrouted => 8,
        }
    }
}

/// One queue's losses for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LossReceipt {
    /// The queue's or session's name.
    pub queue: Box<str>,
    pub reason: LossReason,
    pub messages: u64,
    pub bytes: u64,
    /// Row key of the first and the last message lost; 0 for one that never reached flash.
    pub first_key: RowKey,
    pub last_key: RowKey,
    /// When the gateway had received them.
    pub first_received_at: Wall,
    pub last_received_at: Wall,
}

/// All receipts, and the total for each reason and kind of queue since the start.
#[derive(Debug, Default)]
pub(super) struct Losses {
    receipts: BTreeMap<u32, LossReceipt>,
    numbers: BTreeMap<(Box<str>, LossReason), u32>,
    next: u32,
    pub totals: BTreeMap<(LossReason, Option<QueueKind>), u64>,
    /// Receipts that changed since they were last told to subscribers.
    pub untold: bool,
}

impl Losses {
    /// Counts a message that a queue lost, or that a file lost; answers the record that changed.
    pub fn add(
        &mut self,
        queue: (&str, Option<QueueKind>),
        reason: LossReason,
        message: &Message,
        key: RowKey,
    ) -> Vec<RecordKey> {
        let at = (key, message.received_at);
        let bytes = message.charge() as u64;
        self.add_run(queue, reason, Run { messages: 1, bytes, first: at, last: at })
    }

    /// Counts messages that were lost together; answers the records that changed.
    pub fn add_run(
        &mut self,
        (queue, kind): (&str, Option<QueueKind>),
        reason: LossReason,
        run: Run,
    ) -> Vec<RecordKey> {
        let mut changed = Vec::new();
        *self.totals.entry((reason, kind)).or_default() += run.messages;
        self.untold = true;
        let number = match self.numbers.get(&(Box::from(queue), reason)) {
            Some(number) => *number,
            None => {
                if self.receipts.len() >= RECEIPTS_MAX {
                    changed.extend(self.fold_oldest());
                }
                self.open(queue, reason, run)
            }
        };
        if let Some(receipt) = self.receipts.get_mut(&number) {
            receipt.messages += run.messages;
            receipt.bytes += run.bytes;
            (receipt.last_key, receipt.last_received_at) = run.last;
        }
        changed.push(RecordKey::Loss(number));
        changed
    }

    pub fn receipts(&self) -> impl Iterator<Item = &LossReceipt> {
        self.receipts.values()
    }

    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.receipts.keys().copied()
    }

    pub fn record(&self, number: u32) -> Option<Vec<u8>> {
        let receipt = self.receipts.get(&number)?;
        let mut out = Vec::new();
        put_bytes(&mut out, receipt.queue.as_bytes());
        out.push(receipt.reason.code());
        for value in [
            receipt.messages,
            receipt.bytes,
            receipt.first_key.0,
            receipt.last_key.0,
            receipt.first_received_at.0,
            receipt.last_received_at.0,
        ] {
            put_integer(&mut out, value);
        }
        Some(out)
    }

    /// Takes a record found at start. `None` when it is not one.
    pub fn recover(&mut self, number: u32, content: &[u8]) -> Option<()> {
        let mut reader = Reader::new(content);
        let queue: Box<str> = reader.string()?.into();
        let code = reader.byte()?;
        let reason = LossReason::ALL.into_iter().find(|reason| reason.code() == code)?;
        let receipt = LossReceipt {
            queue: queue.clone(),
            reason,
            messages: reader.integer()?,
            bytes: reader.integer()?,
            first_key: RowKey(reader.integer()?),
            last_key: RowKey(reader.integer()?),
            first_received_at: Wall(reader.integer()?),
            last_received_at: Wall(reader.integer()?),
        };
        self.receipts.insert(number, receipt);
        self.numbers.insert((queue, reason), number);
        self.next = self.next.max(number.wrapping_add(1));
        Some(())
    }

    fn open(&mut self, queue: &str, reason: LossReason, run: Run) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let receipt = LossReceipt {
            queue: queue.into(),
            reason,
            messages: 0,
            bytes: 0,
            first_key: run.first.0,
            last_key: run.last.0,
            first_received_at: run.first.1,
            last_received_at: run.last.1,
        };
        self.receipts.insert(number, receipt);
        self.numbers.insert((queue.into(), reason), number);
        number
    }

    fn fold_oldest(&mut self) -> Vec<RecordKey> {
        let Some((number, old)) = self.receipts.pop_first() else { return Vec::new() };
        self.numbers.remove(&(old.queue.clone(), old.reason));
        let rest = match self.numbers.get(&(Box::from("*"), old.reason)) {
            Some(rest) => *rest,
            None => {
                let rest = self.next;
                self.next = self.next.wrapping_add(1);
                self.numbers.insert((Box::from("*"), old.reason), rest);
                self.receipts.insert(rest, LossReceipt { queue: "*".into(), messages: 0, bytes: 0, ..old });
                rest
            }
        };
        if let Some(receipt) = self.receipts.get_mut(&rest) {
            receipt.messages += old.messages;
            receipt.bytes += old.bytes;
            receipt.last_key = receipt.last_key.max(old.last_key);
            receipt.last_received_at = receipt.last_received_at.max(old.last_received_at);
        }
        vec![RecordKey::Loss(number), RecordKey::Loss(rest)]
    }
}
