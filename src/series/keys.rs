//! Keys of the one table of `series.redb`. One table, so that a commit touches one tree.
//!
//! | key | value |
//! |---|---|
//! | `0` | marker: format version (byte), number of the last flush (LEB128) |
//! | `1`, collection (UTF-8) | highest row key of the log that is stored here (8 bytes LE) |
//! | `2`, series (4 bytes BE) | its name: `registry` |
//! | `3`, series | its extent: `registry` |
//! | `4`, series, start (8 bytes BE, sign flipped), number (2 bytes BE) | chunk: `chunk` |
//! | `5`, start (4 bytes BE), key of a chunk | nothing: the chunk's times are estimates of that start |
//! | `6`, key of a chunk | a chunk that did not verify, as it was found |
//! | `7`, start of the gateway (4 bytes BE) | how its estimates were made: `clock` |

use super::registry::SeriesId;

pub(super) const MARKER: &[u8] = &[0];
pub(super) const WATERMARK: u8 = 1;
pub(super) const SERIES: u8 = 2;
pub(super) const EXTENT: u8 = 3;
pub(super) const CHUNK: u8 = 4;
pub(super) const ESTIMATED: u8 = 5;
pub(super) const DAMAGED: u8 = 6;
pub(super) const START: u8 = 7;

/// Bytes of a chunk's key.
pub(super) const CHUNK_KEY_BYTES: usize = 15;

pub(super) fn watermark(collection: &str) -> Vec<u8> {
    [&[WATERMARK], collection.as_bytes()].concat()
}

pub(super) fn of_series(kind: u8, id: SeriesId) -> Vec<u8> {
    [&[kind][..], &id.0.to_be_bytes()].concat()
}

pub(super) fn chunk(id: SeriesId, start: i64, number: u16) -> [u8; CHUNK_KEY_BYTES] {
    let mut key = [0; CHUNK_KEY_BYTES];
    let flipped = start.cast_unsigned() ^ (1 << 63);
    let parts = [CHUNK].into_iter().chain(id.0.to_be_bytes()).chain(flipped.to_be_bytes());
    for (to, from) in key.iter_mut().zip(parts.chain(number.to_be_bytes())) {
        *to = from;
    }
    key
}

/// Series, start and number of a chunk's key.
pub(super) fn read_chunk(key: &[u8]) -> Option<(SeriesId, i64, u16)> {
    let rest = key.strip_prefix(&[CHUNK])?;
    let (id, rest) = rest.split_first_chunk::<4>()?;
    let (start, rest) = rest.split_first_chunk::<8>()?;
    let number = rest.try_into().ok()?;
    let start = (u64::from_be_bytes(*start) ^ (1 << 63)).cast_signed();
    Some((SeriesId(u32::from_be_bytes(*id)), start, u16::from_be_bytes(number)))
}

pub(super) fn estimated(start: u32, chunk: &[u8]) -> Vec<u8> {
    [&[ESTIMATED][..], &start.to_be_bytes(), chunk].concat()
}

pub(super) fn start(number: u32) -> Vec<u8> {
    [&[START][..], &number.to_be_bytes()].concat()
}

/// The first key after all that begin with `kind`.
pub(super) fn after(kind: u8) -> [u8; 1] {
    [kind + 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_keys_sort_by_series_and_time() {
        let mut last = Vec::new();
        for id in [0, 1, u32::MAX] {
            for start in [i64::MIN, -1, 0, 1, 1_764_000_000_000, i64::MAX] {
                for number in [0, 1, u16::MAX] {
                    let key = chunk(SeriesId(id), start, number);
                    assert_eq!(read_chunk(&key), Some((SeriesId(id), start, number)));
                    assert!(key.to_vec() > last);
                    last = key.to_vec();
                }
            }
        }
    }
}
