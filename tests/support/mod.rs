//! What the tests of the whole gateway share: a simulated disk, the driver, packets as text, transcripts.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test binary uses its part; a panic is what a test may do"
)]
#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::cast_possible_truncation,
    reason = "a panic is what a wrong test should do"
)]

pub mod disk;
pub mod driver;
pub mod packet;
pub mod packet5;
pub mod series;
pub mod transcript;
