//! Payloads that say which message they are, so that a delivery can be judged byte by byte.
//!
//! `M`, the message's number in eight hexadecimal digits, `;`, then a filling that the number decides.

use gatewayd::random::Random;

/// The shortest payload.
pub const HEAD_BYTES: usize = 10;

/// The payload of message `number` with `len` bytes in all, at least [`HEAD_BYTES`].
pub fn encode(number: u32, len: usize) -> Vec<u8> {
    let mut payload = format!("M{number:08x};").into_bytes();
    let mut random = Random::new(u64::from(number));
    while payload.len() < len {
        let word = random.next().to_le_bytes();
        let room = (len - payload.len()).min(word.len());
        payload.extend(word.iter().take(room));
    }
    payload
}

/// The number that the payload claims.
pub fn head(payload: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(payload.get(1..9)?).ok()?, 16).ok()
}

/// The number of the message; `None` when these are not the bytes of any.
pub fn decode(payload: &[u8]) -> Option<u32> {
    let number = head(payload)?;
    (encode(number, payload.len()) == payload).then_some(number)
}

#[test]
fn a_payload_names_its_message_and_any_change_shows() {
    for len in [HEAD_BYTES, 11, 40, 5_000] {
        let payload = encode(0xabc, len);
        assert_eq!((payload.len(), decode(&payload)), (len, Some(0xabc)));
        let mut changed = payload;
        if let Some(last) = changed.last_mut() {
            *last ^= 1;
        }
        assert_eq!(decode(&changed), None);
    }
}
