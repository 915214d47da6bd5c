//! Frames of a client, payload by payload, and those of the server. RFC 6455 section 5.
//!
//! ```text
//! FIN RSV1 RSV2 RSV3 opcode(4)   MASK length(7)   [length 16 or 64 bits]   masking key (32)   payload
//! ```

/// Longest header of a server's frame: no masking key.
pub const HEADER_BYTES_MAX: usize = 10;

/// Longest payload of a control frame. Section 5.5.
const CONTROL_BYTES_MAX: usize = 125;

/// Pongs that wait: a peer that sends pings and reads nothing gets no more. Section 5.5.3 allows it.
const REPLY_BYTES_MAX: usize = 4096;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Why a connection is closed. Section 7.4.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseCode {
    /// The peer closed, or took leave.
    Normal = 1000,
    ProtocolError = 1002,
    /// Text, which MQTT never is. [MQTT-6.0.0-1]
    Unsupported = 1003,
}

/// What has come of the client's frames.
#[derive(Debug, Default)]
pub struct Frames {
    header: Vec<u8>,
    payload: Option<Payload>,
    /// Payload of a control frame so far.
    control: Vec<u8>,
    /// A message of several frames is under way.
    in_message: bool,
}

#[derive(Clone, Copy, Debug)]
struct Payload {
    opcode: u8,
    mask: [u8; 4],
    /// Bytes still to come.
    rest: u64,
    /// Bytes that came, modulo 4.
    phase: usize,
}

impl Frames {
    /// Takes bytes as they came, unmasks them in place and hands payloads of data to `data`. Pongs and the answer to
    /// a close go to `replies`.
    ///
    /// # Errors
    /// The connection is over: the code was put into `replies` already.
    pub fn receive(
        &mut self,
        mut bytes: &mut [u8],
        replies: &mut Vec<u8>,
        data: &mut dyn FnMut(&[u8]),
    ) -> Result<(), CloseCode> {
        while !bytes.is_empty() {
            let Some(payload) = &mut self.payload else {
                let taken = self.take_header(bytes).inspect_err(|code| put_close(replies, *code))?;
                bytes = bytes.get_mut(taken..).unwrap_or_default();
                self.finish_empty(replies)?;
                continue;
            };
            let count = usize::try_from(payload.rest).unwrap_or(usize::MAX).min(bytes.len());
            let (now, rest) = bytes.split_at_mut(count);
            unmask(now, payload.mask, payload.phase);
            payload.phase = payload.phase.wrapping_add(count) % 4;
            payload.rest = payload.rest.saturating_sub(count as u64);
            let (opcode, is_whole) = (payload.opcode, payload.rest == 0);
            if opcode < CLOSE {
                data(now);
            } else {
                self.control.extend_from_slice(now);
            }
            bytes = rest;
            if is_whole {
                self.payload = None;
                self.finish(opcode, replies)?;
            }
        }
        Ok(())
    }

    /// Takes what belongs to a header; answers how many bytes that were.
    fn take_header(&mut self, bytes: &[u8]) -> Result<usize, CloseCode> {
        let mut taken = 0_usize;
        for byte in bytes {
            self.header.push(*byte);
            taken = taken.saturating_add(1);
            let [first, second, more @ ..] = self.header.as_slice() else { continue };
            let length_bytes = match second & 0x7F {
                126 => 2,
                127 => 8,
                _ => 0,
            };
            if more.is_empty() {
                self.check(*first, *second)?;
                continue;
            }
            let Some((length, mask)) = more.split_at_checked(length_bytes) else { continue };
            let Ok(mask) = <[u8; 4]>::try_from(mask) else { continue };
            let rest = match length {
                [] => u64::from(second & 0x7F),
                bytes => bytes.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte)),
            };
            // The shortest form is the only one, and the top bit is zero. Section 5.2.
            let least = match length_bytes {
                0 => 0,
                2 => 126,
                _ => 65_536,
            };
            if rest < least || rest > i64::MAX as u64 {
                return Err(CloseCode::ProtocolError);
            }
            let opcode = first & 0x0F;
            if opcode < CLOSE {
                self.in_message = first & 0x80 == 0;
            }
            self.payload = Some(Payload { opcode, mask, rest, phase: 0 });
            self.header.clear();
            break;
        }
        Ok(taken)
    }

    /// The first two bytes of a header.
    fn check(&self, first: u8, second: u8) -> Result<(), CloseCode> {
        let (is_final, opcode, length) = (first & 0x80 != 0, first & 0x0F, second & 0x7F);
        // No extension gives the reserved bits a meaning, and a client masks. Sections 5.1 and 5.2.
        if first & 0x70 != 0 || second & 0x80 == 0 {
            return Err(CloseCode::ProtocolError);
        }
        match opcode {
            TEXT => Err(CloseCode::Unsupported),
            BINARY if !self.in_message => Ok(()),
            CONTINUATION if self.in_message => Ok(()),
            // Control frames are short and whole, and may stand between the parts of a message. Section 5.5.
            CLOSE | PING | PONG if is_final && usize::from(length) <= CONTROL_BYTES_MAX => Ok(()),
            _ => Err(CloseCode::ProtocolError),
        }
    }

    fn finish_empty(&mut self, replies: &mut Vec<u8>) -> Result<(), CloseCode> {
        match self.payload {
            Some(Payload { rest: 0, opcode, .. }) => {
                self.payload = None;
                self.finish(opcode, replies)
            }
            _ => Ok(()),
        }
    }

    /// A frame is whole.
    fn finish(&mut self, opcode: u8, replies: &mut Vec<u8>) -> Result<(), CloseCode> {
        if opcode < CLOSE {
            return Ok(());
        }
        let control = std::mem::take(&mut self.control);
        match opcode {
            PING if replies.len() < REPLY_BYTES_MAX => {
                put_control(replies, PONG, &control);
                Ok(())
            }
            CLOSE => {
                let code =
                    if is_sound_close(&control) { CloseCode::Normal } else { CloseCode::ProtocolError };
                if code == CloseCode::Normal {
                    // It is answered with what it said. Section 5.5.1.
                    put_control(replies, CLOSE, control.get(..2).unwrap_or_default());
                } else {
                    put_close(replies, code);
                }
                Err(code)
            }
            _ => Ok(()),
        }
    }
}

/// Nothing, or a code that may be sent, and text. Sections 5.5.1 and 7.4.
fn is_sound_close(payload: &[u8]) -> bool {
    match payload {
        [] => true,
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            let may_be_sent = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
            may_be_sent && std::str::from_utf8(reason).is_ok()
        }
        [_] => false,
    }
}

fn unmask(bytes: &mut [u8], mut mask: [u8; 4], phase: usize) {
    mask.rotate_left(phase % 4);
    for (byte, key) in bytes.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

/// The header of a binary frame with `length` bytes of payload.
pub fn put_data_header(out: &mut Vec<u8>, length: usize) {
    out.push(0x80 | BINARY);
    put_length(out, length);
}

/// A close frame.
pub fn put_close(out: &mut Vec<u8>, code: CloseCode) {
    put_control(out, CLOSE, &(code as u16).to_be_bytes());
}

fn put_control(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    out.push(0x80 | opcode);
    put_length(out, payload.len());
    out.extend_from_slice(payload);
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    if let Ok(short) = u8::try_from(length)
        && short < 126
    {
        out.push(short);
    } else if let Ok(medium) = u16::try_from(length) {
        out.push(126);
        out.extend_from_slice(&medium.to_be_bytes());
    } else {
        out.push(127);
        out.extend_from_slice(&(length as u64).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// A client's frame.
    fn frame(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
        let mut out = vec![first];
        put_length(&mut out, payload.len());
        out[1] |= 0x80;
        out.extend_from_slice(&mask);
        let start = out.len();
        out.extend_from_slice(payload);
        unmask(&mut out[start..], mask, 0);
        out
    }

    fn received(bytes: &[u8], piece: usize) -> (Result<(), CloseCode>, Vec<u8>, Vec<u8>) {
        let (mut frames, mut data, mut replies) = (Frames::default(), Vec::new(), Vec::new());
        let mut bytes = bytes.to_vec();
        for piece in bytes.chunks_mut(piece) {
            let taken = frames.receive(piece, &mut replies, &mut |bytes| data.extend_from_slice(bytes));
            if taken.is_err() {
                return (taken, data, replies);
            }
        }
        (Ok(()), data, replies)
    }

    /// RFC 6455 section 5.7: the masked frame of "Hello", made binary.
    #[test]
    fn the_example_of_the_specification_is_unmasked() {
        let bytes = [0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(received(&bytes, 100), (Ok(()), b"Hello".to_vec(), Vec::new()));
    }

    #[test]
    fn a_stream_is_the_same_however_it_is_framed_and_split() {
        let mut random = Random::new(7);
        for round in 0..300 {
            let whole: Vec<u8> =
                (0..random.next() % 70_000).map(|_| random.next().to_le_bytes()[0]).collect();
            let (mut bytes, mut pings, mut rest) = (Vec::new(), Vec::new(), whole.as_slice());
            let mut first = BINARY;
            while !rest.is_empty() {
                let pick = [1, 125, 126, 65_535, 65_536, 9][usize::try_from(random.next() % 6).unwrap()];
                let (now, later) = rest.split_at(pick.min(rest.len()));
                let fin = if later.is_empty() { 0x80 } else { 0 };
                let [a, b, c, d, ..] = random.next().to_le_bytes();
                bytes.extend(frame(fin | first, now, [a, b, c, d]));
                if round % 3 == 0 && pings.len() < 2000 {
                    bytes.extend(frame(0x80 | PING, b"are you there", [d, c, b, a]));
                    put_control(&mut pings, PONG, b"are you there");
                }
                (first, rest) = (CONTINUATION, later);
            }
            let piece = 1 + usize::try_from(random.next() % 5000).unwrap();
            assert_eq!(received(&bytes, piece), (Ok(()), whole, pings), "round {round}");
        }
    }

    #[test]
    fn what_the_protocol_forbids_ends_the_connection_with_its_code() {
        let key = [1, 2, 3, 4];
        let protocol = CloseCode::ProtocolError;
        let long = frame(0x82, &[0; 130], key);
        let mut not_shortest = long.clone();
        not_shortest.splice(1..4, [0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 130]);
        let mut negative = long;
        negative.splice(1..4, [0x80 | 127, 0x80, 0, 0, 0, 0, 1, 0, 0]);
        for (what, bytes, code) in [
            ("no mask", vec![0x82, 1, 0], protocol),
            ("a reserved bit", frame(0xC2, b"x", key), protocol),
            ("an unknown opcode", frame(0x83, b"x", key), protocol),
            ("text", frame(0x81, b"x", key), CloseCode::Unsupported),
            ("a continuation of nothing", frame(0x80, b"x", key), protocol),
            ("a second message in one", [frame(2, b"x", key), frame(0x82, b"y", key)].concat(), protocol),
            ("a ping in two", frame(PING, b"x", key), protocol),
            ("a long ping", frame(0x80 | PING, &[0; 126], key), protocol),
            ("a length that is not the shortest", not_shortest, protocol),
            ("a length below zero", negative, protocol),
            ("half a close code", frame(0x88, &[3], key), protocol),
            ("a close code that is never sent", frame(0x88, &1005_u16.to_be_bytes(), key), protocol),
            ("a close", frame(0x88, &1001_u16.to_be_bytes(), key), CloseCode::Normal),
        ] {
            for piece in [1, 1000] {
                let (ended, _, replies) = received(&bytes, piece);
                assert_eq!(ended, Err(code), "{what}");
                let told = if code == CloseCode::Normal { 1001 } else { code as u16 };
                assert_eq!(replies, [&[0x88, 2], &told.to_be_bytes()[..]].concat(), "{what}");
            }
        }
    }

    #[test]
    fn pings_without_end_take_no_memory() {
        let bytes = frame(0x80 | PING, &[7; 125], [0; 4]).repeat(10_000);
        let (taken, _, replies) = received(&bytes, 4096);
        assert!(taken.is_ok() && replies.len() < REPLY_BYTES_MAX + 127, "{}", replies.len());
    }

    #[test]
    fn noise_is_survived() {
        let mut random = Random::new(3);
        for _ in 0..3000 {
            let mut bytes: Vec<u8> =
                (0..random.next() % 60).map(|_| random.next().to_le_bytes()[0]).collect();
            if let [first, second, ..] = bytes.as_mut_slice() {
                (*first, *second) = (*first & 0x8F, *second | 0x80);
            }
            let _survived = received(&bytes, 7);
        }
    }
}
