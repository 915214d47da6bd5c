//! The payload of a ledger message: its name, a hash of the name, and filler that depends on it, so that a damaged or
//! mixed-up payload shows. Little-endian: publisher u16, QoS u8, sequence u64, hash u64, filler.

use super::record::MessageName;
use crate::rng::Rng;

/// Bytes before the filler.
pub const NAME_BYTES: usize = 19;

/// The payload of `message`, `filler` bytes longer than its name.
pub fn encode(message: MessageName, filler: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(NAME_BYTES + filler);
    payload.extend_from_slice(&message.publisher.to_le_bytes());
    payload.push(message.qos);
    payload.extend_from_slice(&message.sequence.to_le_bytes());
    payload.extend_from_slice(&hash(message, filler).to_le_bytes());
    payload.resize(NAME_BYTES + filler, filler_byte(message));
    payload
}

/// The name in `payload`, or `None` when a byte of it is not as `encode` writes it.
pub fn decode(payload: &[u8]) -> Option<MessageName> {
    let (publisher, rest) = payload.split_first_chunk::<2>()?;
    let (qos, rest) = rest.split_first()?;
    let (sequence, rest) = rest.split_first_chunk::<8>()?;
    let (hashed, filler) = rest.split_first_chunk::<8>()?;
    let message = MessageName {
        publisher: u16::from_le_bytes(*publisher),
        qos: *qos,
        sequence: u64::from_le_bytes(*sequence),
    };
    let whole = u64::from_le_bytes(*hashed) == hash(message, filler.len())
        && filler.iter().all(|byte| *byte == filler_byte(message));
    whole.then_some(message)
}

fn hash(message: MessageName, filler: usize) -> u64 {
    let seed = u64::from(message.publisher) ^ (u64::from(message.qos) << 16) ^ ((filler as u64) << 32);
    Rng::new(seed ^ message.sequence.rotate_left(40)).next_u64()
}

const fn filler_byte(message: MessageName) -> u8 {
    message.sequence.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_reads_back_and_no_flipped_bit_passes() {
        let message = MessageName { publisher: 2, qos: 1, sequence: 70_000 };
        for filler in [0, 1, 45] {
            let payload = encode(message, filler);
            assert_eq!(decode(&payload), Some(message));
            assert_eq!(decode(payload.get(1..).unwrap()), None);
            for bit in 0..payload.len() * 8 {
                let mut damaged = payload.clone();
                *damaged.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
                assert_eq!(decode(&damaged), None, "bit {bit}");
            }
        }
    }
}
