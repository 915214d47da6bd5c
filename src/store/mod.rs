//! What is acknowledged lives here: batches of rows in, `Persisted` out.
//!
//! Owns the files of the state folder, the form of a stored row, the journal, the row log in redb, recovery and
//! salvage. Leaves the meaning of a row's body to `broker`: the store knows keys, kinds (an opaque byte) and bytes.

pub mod batch;
