//! Newtypes for identifiers that cross module borders. Each says who hands it out and how long it is unique.

use std::fmt;

/// A network connection, unique for the life of the process. Handed out by `gateway`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// A queue (an MQTT session is one), unique for the life of the store file: the number of the batch that was
/// open when it was created, shifted by 16 bits, plus a counter within that batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct QueueId(pub u64);

/// Number of a batch handed to the store: 1, 2, 3 ... without gaps, for the life of the store file.
/// 48 bits: at ten batches a second they last 890 000 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BatchNumber(pub u64);

impl BatchNumber {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Key of a row in the row log: `batch number << 16 | index within the batch`. Keys ascend in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RowKey(pub u64);

impl RowKey {
    /// The key of row `index` of batch `number`.
    #[must_use]
    pub const fn new(number: BatchNumber, index: u16) -> Self {
        Self(number.0 << 16 | index as u64)
    }

    /// No row of batch `number` has a higher key.
    #[must_use]
    pub const fn last_of(number: BatchNumber) -> Self {
        Self::new(number, u16::MAX)
    }

    /// The batch that wrote the row.
    #[must_use]
    pub const fn batch(self) -> BatchNumber {
        BatchNumber(self.0 >> 16)
    }
}

/// A chunk of rows that left the window: 1, 2, 3 ... in the order in which they were made, for the life of the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ChunkNumber(pub u64);

macro_rules! display_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_number!(ConnectionId, QueueId, BatchNumber, RowKey, ChunkNumber);
