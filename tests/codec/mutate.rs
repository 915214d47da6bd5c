//! Damage to valid input.

use crate::random::Random;

/// Changes, inserts or removes a few bytes.
pub fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            return;
        }
        // Mostly near the front, where lengths and flags are.
        let reach = if random.coin() { bytes.len().min(16) } else { bytes.len() };
        let at = random.below(reach);
        match random.below(5) {
            0 => bytes[at] = random.byte(),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff, b'#', b'+', b'/']),
            3 => drop(bytes.remove(at)),
            _ => bytes.insert(at, random.byte()),
        }
    }
}
