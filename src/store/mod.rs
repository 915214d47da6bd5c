//! What is acknowledged lives here: batches of rows in, `Persisted` out.
//!
//! Owns the files of the state folder, the form of a stored row, the journal, the row log in redb, recovery and
//! salvage. Leaves the meaning of a row's body to `broker`: the store knows keys, kinds (an opaque byte) and bytes.
//! Every byte on disk is in docs/disk-format.md.

pub mod backend;
mod backlog;
mod backlog_salvage;
pub mod batch;
mod capped;
pub mod chunk;
mod cold;
pub mod copy;
mod counted;
pub mod disk;
mod engine;
mod error;
mod essentials;
mod fields;
mod journal;
mod log;
mod overlay;
mod page;
mod record;
mod recovery;
mod redb_page;
pub mod restore;
mod room;
mod row;
mod salvage;
pub mod shadow;
mod space;

pub use backend::{FileDisk, FolderError};
pub use backlog::{StoredChunk, compact};
pub use batch::{Batch, BatchBuilder, Persisted, Place};
pub use disk::{Disk, File};
pub use engine::{OnCorrupt, ReplayReport, Salvaged, Store, StoreOptions, Usage};
pub use error::{OpenError, StoreError};
pub use recovery::Recovery;
pub use row::stored_bytes;
