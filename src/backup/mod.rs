//! A backup: everything that the gateway keeps, as one file.
//!
//! Owns the file's form (`archive`) and what is made of one (`restoring`). Copying what is live is `store::copy`'s and
//! `series::copy`'s; who reads and writes the file is the caller's.

pub mod archive;
pub mod restoring;
