//! Hostile input to the MQTT codec: random bytes and valid packets with a few bytes changed. It never panics, never
//! claims more than it was given, and what it accepts encodes to a packet that means the same.

use gatewayd::mqtt::codec::client::decode_server_packet;
use gatewayd::mqtt::codec::{ControlPacket, Decoded, ProtocolVersion, decode};

use crate::mqtt_packets::Model;
use crate::mutate::mutate;
use crate::random::{Random, seed};

const ROUNDS: usize = 60_000;

fn versions(random: &mut Random) -> Option<ProtocolVersion> {
    *random.pick(&[None, Some(ProtocolVersion::V31), Some(ProtocolVersion::V311), Some(ProtocolVersion::V5)])
}

fn survives(input: &[u8], version: Option<ProtocolVersion>) {
    if let Ok(Decoded::Packet { packet, consumed }) = decode(input, version, usize::MAX) {
        assert!(consumed <= input.len());
        let settled = match &packet {
            ControlPacket::Connect(connect) => connect.version,
            _ => version.expect("only CONNECT comes before a version"),
        };
        let model = Model::from(packet);
        let again = model.encode(settled);
        assert!(again.len() <= consumed, "the canonical form is the shortest");
        let decoded = decode(&again, version, usize::MAX).expect("what was accepted is accepted again");
        let Decoded::Packet { packet, .. } = decoded else { panic!("own encoding is incomplete") };
        assert_eq!(Model::from(packet), model);
    }
    let version = version.unwrap_or(ProtocolVersion::V311);
    if let Ok(Decoded::Packet { packet, consumed }) = decode_server_packet(input, version, usize::MAX) {
        assert!(consumed <= input.len());
        let model = Model::from(packet);
        let again = model.encode(version);
        let decoded = decode_server_packet(&again, version, usize::MAX).expect("accepted again");
        let Decoded::Packet { packet, .. } = decoded else { panic!("own encoding is incomplete") };
        assert_eq!(Model::from(packet), model);
    }
}

#[test]
fn random_bytes_are_survived() {
    let mut random = Random::new(seed("CODEC_SEED", 7));
    for _ in 0..ROUNDS {
        let length = random.below(64);
        let mut input = random.bytes(length);
        // A random remaining length is mostly far too long; a short one lets bodies be read.
        if input.len() > 2 && random.coin() {
            input[1] = u8::try_from(random.below(input.len())).unwrap();
        }
        let version = versions(&mut random);
        survives(&input, version);
    }
}

#[test]
fn mutated_packets_are_survived() {
    let mut random = Random::new(seed("CODEC_SEED", 8));
    for _ in 0..ROUNDS / 3 {
        let version = *random.pick(&[ProtocolVersion::V31, ProtocolVersion::V311, ProtocolVersion::V5]);
        let model = if random.coin() {
            Model::from_client(&mut random, version)
        } else {
            Model::from_server(&mut random, version)
        };
        let mut input = model.encode(version);
        mutate(&mut random, &mut input);
        survives(&input, model.version_before(version));
    }
}
