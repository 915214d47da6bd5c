//! Little-endian fields at fixed offsets, read without an index that could be out of bounds.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// The `N` bytes at `at`.
pub(super) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

/// Appends `value` in groups of seven bits, low group first, the top bit saying that another follows.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Takes a varint off the front of `bytes`.
pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let group = u64::from(byte & 0x7f);
        value |= group.checked_shl(shift).filter(|v| v.checked_shr(shift) == Some(group))?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_read_back_and_cut_ones_do_not() {
        for value in [0, 1, 127, 128, 300, 65_535, 65_536, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(take_varint(&mut bytes.as_slice()), Some(value));
            for cut in 0..bytes.len() {
                assert_eq!(take_varint(&mut bytes.get(..cut).unwrap_or_default()), None);
            }
        }
        assert_eq!(take_varint(&mut [0xff; 11].as_slice()), None);
    }
}
