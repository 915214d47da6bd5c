//! The essentials file: what the gateway needs to go on when the files of the store are lost.
//!
//! Owns the file's frame. The content (subscriptions, queues, bindings) is the caller's. Written as a whole: temporary
//! file, sync, rename.
//!
//! Little-endian: magic `GWES` (4), format version 1 (1), zero (3), boot count (4), last batch when it was written (8),
//! content length (4), CRC-32 of bytes 0 to 23 and the content (4), content.

use std::io;

use super::disk::{self, Disk};
use super::fields::{u32_at, u64_at};
use crate::ids::BatchNumber;

/// Name of the file.
pub(super) const ESSENTIALS: &str = "gateway.essentials";

const MAGIC: [u8; 4] = *b"GWES";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 28;

/// Content is never longer; a longer file is not ours.
const BYTES_MAX: u64 = 64 << 20;

/// A file that verifies.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Essentials {
    pub(super) boot: u32,
    pub(super) last: BatchNumber,
    pub(super) bytes: Vec<u8>,
}

pub(super) fn write(disk: &dyn Disk, bytes: &[u8], boot: u32, last: BatchNumber) -> io::Result<()> {
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let len = u32::try_from(bytes.len()).map_err(too_long)?;
    let mut file = Vec::with_capacity(HEADER_BYTES + bytes.len());
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&[VERSION, 0, 0, 0]);
    file.extend_from_slice(&boot.to_le_bytes());
    file.extend_from_slice(&last.0.to_le_bytes());
    file.extend_from_slice(&len.to_le_bytes());
    file.extend_from_slice(&crc(&file, bytes).to_le_bytes());
    file.extend_from_slice(bytes);
    disk::write_whole(disk, ESSENTIALS, &file)
}

/// `None` when the file is missing, unreadable or does not verify: it is a last resort, never a reason to stop.
pub(super) fn read(disk: &dyn Disk) -> Option<Essentials> {
    let file = disk::read_whole(disk, ESSENTIALS, BYTES_MAX).ok().flatten()?;
    let (header, content) = file.split_at_checked(HEADER_BYTES)?;
    if header.first_chunk::<4>() != Some(&MAGIC) || *header.get(4)? != VERSION {
        return None;
    }
    let content = content.get(..usize::try_from(u32_at(header, 20)?).ok()?)?;
    if crc(header.get(..24)?, content) != u32_at(header, 24)? {
        return None;
    }
    let last = BatchNumber(u64_at(header, 12)?);
    Some(Essentials { boot: u32_at(header, 8)?, last, bytes: content.to_vec() })
}

fn crc(header: &[u8], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(content);
    hasher.finalize()
}
