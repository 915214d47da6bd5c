//! The eight bytes that open a connection: `AMQP`, protocol id, major, minor, revision. Specification section 4.2.2.

/// What a client of AMQP 0-9-1 sends first, and what a server answers to any other version.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";

/// Which protocol a peer wants to speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolHeader {
    /// 0-9-1, or 0-9, which is treated alike.
    Amqp091,
    /// 1.0; the id tells plain (0), TLS (2) and SASL (3) apart.
    Amqp10 { protocol_id: u8 },
    /// Some other version of AMQP, or no AMQP at all.
    Foreign,
}

impl ProtocolHeader {
    /// Reads the header at the start of `input`, or `None` when more bytes are needed. What does not begin like
    /// AMQP is known at its first wrong byte.
    #[must_use]
    pub fn decode(input: &[u8]) -> Option<Self> {
        const NAME: [u8; 4] = *b"AMQP";
        if input.iter().zip(NAME).any(|(&byte, expected)| byte != expected) {
            return Some(Self::Foreign);
        }
        let (_, version) = input.first_chunk::<8>()?.split_first_chunk::<4>()?;
        Some(match version {
            [0, 0, 9, 1] | [1, 1, 0, 9] => Self::Amqp091,
            [protocol_id @ (0 | 2 | 3), 1, 0, 0] => Self::Amqp10 { protocol_id: *protocol_id },
            _ => Self::Foreign,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_tells_the_protocol() {
        assert_eq!(ProtocolHeader::decode(&PROTOCOL_HEADER), Some(ProtocolHeader::Amqp091));
        assert_eq!(ProtocolHeader::decode(b"AMQP\x01\x01\x00\x09"), Some(ProtocolHeader::Amqp091));
        assert_eq!(
            ProtocolHeader::decode(b"AMQP\x03\x01\x00\x00"),
            Some(ProtocolHeader::Amqp10 { protocol_id: 3 })
        );
        assert_eq!(ProtocolHeader::decode(b"AMQP\x00\x00\x08\x00"), Some(ProtocolHeader::Foreign));
    }

    #[test]
    fn a_start_is_incomplete_and_a_wrong_byte_is_foreign() {
        for cut in 0..8 {
            assert_eq!(ProtocolHeader::decode(PROTOCOL_HEADER.split_at(cut).0), None);
        }
        assert_eq!(ProtocolHeader::decode(b"G"), Some(ProtocolHeader::Foreign));
        assert_eq!(ProtocolHeader::decode(b"AMX"), Some(ProtocolHeader::Foreign));
        assert_eq!(ProtocolHeader::decode(b"\x10\x0c\x00\x04MQTT"), Some(ProtocolHeader::Foreign));
    }
}
