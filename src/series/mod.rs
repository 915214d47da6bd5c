//! Collections on flash: `series.redb`, its chunks, and what is asked of them.
//!
//! A *series* is the readings of one collection that came on one topic with one set of tags. Pure: the disk comes in
//! through the store's seam, time as an argument. Which message becomes which reading is `ingest`'s business, when it
//! is stored is the caller's.

mod aggregate;
mod allowed;
mod backend;
mod bound;
mod change;
mod chunk;
mod clock;
mod column;
mod condition;
pub mod copy;
mod database;

pub mod document;
mod filter;
mod format;
mod integers;
mod keys;
mod path;
mod query;
mod registry;
mod room;
mod store;

pub use aggregate::{Aggregate, Function};
pub use allowed::Allowed;
pub use clock::{EstimatedBy, Start};
pub use condition::{Condition, ConditionError, Place};
pub use filter::{FilterError, check_filter, takes};
pub use format::{Format, Out, Writer, put_json};
pub use path::Path;
pub use query::{Bucket, Item, Query, QueryError, Report, Sink, Snapshot, Source, run, wants};
pub use registry::{Extent, Origin, Series, SeriesId};
pub use store::{FlushTo, Found, Reading, Rules, SeriesCounters, SeriesOptions, SeriesStore};
