//! Columns of integers, packed: the base that times, numbers, lengths and references stand on.
//!
//! A column is stored as the values themselves, their differences, or the differences of their differences, whichever
//! is shorter; each form in blocks of 128 that have their own smallest value and their own number of bits for what
//! exceeds it. A stretch of equal steps costs no bits. All arithmetic wraps, so every 64-bit value is welcome.
//!
//! ```text
//! column: form (byte: 0 values, 1 differences, 2 second differences), seeds (zigzag LEB128, as many as the form's
//!         number), blocks
//! block:  bits (byte, 0 to 64), smallest (zigzag LEB128), ceil(values x bits / 8) bytes, low bits first
//! ```

use crate::message::record::{Reader, put_integer};

/// Values in a block.
const BLOCK: usize = 128;

/// Appends the packed form of `values`. Their number is known to the reader.
pub(super) fn put(out: &mut Vec<u8>, values: &[i64]) {
    let mut best: Option<Vec<u8>> = None;
    let mut current = values.to_vec();
    let mut seeds = Vec::new();
    for form in 0..3u8 {
        if form > 0 {
            let Some((first, rest)) = current.split_first() else { break };
            seeds.push(*first);
            let mut last = *first;
            current = rest
                .iter()
                .map(|value| {
                    let difference = value.wrapping_sub(last);
                    last = *value;
                    difference
                })
                .collect();
        }
        let mut packed = vec![form];
        for seed in &seeds {
            put_signed(&mut packed, *seed);
        }
        for block in current.chunks(BLOCK) {
            put_block(&mut packed, block);
        }
        if best.as_ref().is_none_or(|best| packed.len() < best.len()) {
            best = Some(packed);
        }
    }
    out.extend_from_slice(&best.unwrap_or_default());
}

/// Reads `count` values that [`put`] wrote. `None` when the bytes are none such.
pub(super) fn read(reader: &mut Reader<'_>, count: usize) -> Option<Vec<i64>> {
    let form = reader.byte()?;
    if form > 2 || (form == 2 && count < 2) || (form == 1 && count < 1) {
        return None;
    }
    let mut seeds = [0i64; 2];
    for seed in seeds.iter_mut().take(usize::from(form)) {
        *seed = read_signed(reader)?;
    }
    let packed = count - usize::from(form);
    let mut values = Vec::with_capacity(count.min(1 << 16));
    let mut left = packed;
    while left > 0 {
        let block = left.min(BLOCK);
        read_block(reader, block, &mut values)?;
        left -= block;
    }
    for seed in seeds.iter().take(usize::from(form)).rev() {
        values.insert(0, *seed);
        let mut sum = 0i64;
        for value in &mut values {
            sum = sum.wrapping_add(*value);
            *value = sum;
        }
    }
    Some(values)
}

fn put_block(out: &mut Vec<u8>, block: &[i64]) {
    let smallest = block.iter().copied().min().unwrap_or(0);
    let widest = block.iter().map(|value| excess(*value, smallest)).max().unwrap_or(0);
    let bits = 64 - widest.leading_zeros();
    out.push(u8::try_from(bits).unwrap_or(64));
    put_signed(out, smallest);
    let mut pending = 0u128;
    let mut filled = 0u32;
    for value in block {
        pending |= u128::from(excess(*value, smallest)) << filled;
        filled += bits;
        while filled >= 8 {
            out.push((pending & 0xff) as u8);
            pending >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        out.push((pending & 0xff) as u8);
    }
}

fn read_block(reader: &mut Reader<'_>, count: usize, values: &mut Vec<i64>) -> Option<()> {
    let bits = u32::from(reader.byte()?);
    if bits > 64 {
        return None;
    }
    let smallest = read_signed(reader)?;
    let bytes = (count * bits as usize).div_ceil(8);
    let packed = reader.take(bytes)?;
    if bits == 0 {
        values.extend(std::iter::repeat_n(smallest, count));
        return Some(());
    }
    let mask = u64::MAX >> (64 - bits);
    let mut pending = 0u128;
    let mut filled = 0u32;
    let mut words = packed.chunks(8);
    for _ in 0..count {
        if filled < bits {
            let word = words.next()?;
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
            pending |= u128::from(u64::from_le_bytes(bytes)) << filled;
            filled += 64;
        }
        let low = u64::try_from(pending & u128::from(mask)).unwrap_or(0);
        pending >>= bits;
        filled -= bits;
        values.push(smallest.wrapping_add(low.cast_signed()));
    }
    Some(())
}

/// How far `value` lies above `smallest`, as an unsigned number.
const fn excess(value: i64, smallest: i64) -> u64 {
    value.wrapping_sub(smallest).cast_unsigned()
}

/// Appends a signed integer: zigzag, then LEB128.
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_integer(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Reads what [`put_signed`] wrote.
pub(super) fn read_signed(reader: &mut Reader<'_>) -> Option<i64> {
    let zigzag = reader.integer()?;
    Some(((zigzag >> 1) ^ (zigzag & 1).wrapping_neg()).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn round_trip(values: &[i64]) -> usize {
        let mut out = Vec::new();
        put(&mut out, values);
        let mut reader = Reader::new(&out);
        assert_eq!(read(&mut reader, values.len()).as_deref(), Some(values));
        assert!(reader.is_empty());
        out.len()
    }

    #[test]
    fn any_values_read_back() {
        let mut random = Random::new(1);
        for round in 0..3000u64 {
            let bits = random.below(65);
            let mask = if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
            let mut base = random.next().cast_signed();
            let values: Vec<i64> = (0..random.below(400))
                .map(|_| {
                    let step = (random.next() & mask).cast_signed();
                    base = if round % 2 == 0 { base.wrapping_add(step) } else { step };
                    base
                })
                .collect();
            round_trip(&values);
        }
        round_trip(&[i64::MIN, i64::MAX, 0, i64::MIN, -1, 1, i64::MAX]);
    }

    #[test]
    fn regular_columns_cost_next_to_nothing() {
        let steady: Vec<i64> = (0..1024).map(|n| 1_764_000_000_000 + n * 1000).collect();
        assert!(round_trip(&steady) < 45, "{}", round_trip(&steady));
        assert!(round_trip(&[7; 1024]) < 30);
        let mut random = Random::new(2);
        let mut value = 2000;
        let walk: Vec<i64> = (0..1024)
            .map(|_| {
                value += random.below(3).cast_signed() - 1;
                value
            })
            .collect();
        assert!(round_trip(&walk) < 300, "two bits a step: {}", round_trip(&walk));
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let mut random = Random::new(3);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.below(40)).map(|_| (random.next() & 0xff) as u8).collect();
            let count = usize::try_from(random.below(300)).unwrap();
            if let Some(values) = read(&mut Reader::new(&bytes), count) {
                assert_eq!(values.len(), count);
            }
        }
    }
}
