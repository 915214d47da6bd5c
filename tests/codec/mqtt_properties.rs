//! Laws of the MQTT codec over random packets: decode undoes encode, any prefix is incomplete, any split of a
//! stream yields the same packets, and what the encoder calls the identifier's place is one.

use gatewayd::mqtt::codec::client::decode_server_packet;
use gatewayd::mqtt::codec::{
    Decoded, Fault, FixedHeader, PacketIdentifier, ProtocolVersion, decode, encode_publish,
    encode_publish_head, patch_duplicate, patch_packet_identifier, publish_bytes,
};

use crate::mqtt_packets::Model;
use crate::random::{Random, seed};

const PACKETS: usize = 3_000;
const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V31, ProtocolVersion::V311, ProtocolVersion::V5];

fn decode_whole(model: &Model, version: ProtocolVersion, bytes: &[u8]) -> Model {
    let decoded = decode(bytes, model.version_before(version), bytes.len()).unwrap();
    let Decoded::Packet { packet, consumed } = decoded else { panic!("{model:?} is incomplete") };
    assert_eq!(consumed, bytes.len());
    Model::from(packet)
}

#[test]
fn decoding_undoes_encoding_on_the_server_side() {
    let mut random = Random::new(seed("CODEC_SEED", 1));
    for round in 0..PACKETS {
        let version = VERSIONS[round % 3];
        let model = Model::from_client(&mut random, version);
        assert_eq!(decode_whole(&model, version, &model.encode(version)), model);
    }
}

#[test]
fn decoding_undoes_encoding_on_the_client_side() {
    let mut random = Random::new(seed("CODEC_SEED", 2));
    for round in 0..PACKETS {
        let version = VERSIONS[round % 3];
        let model = Model::from_server(&mut random, version);
        let bytes = model.encode(version);
        let decoded = decode_server_packet(&bytes, version, bytes.len()).unwrap();
        let Decoded::Packet { packet, consumed } = decoded else { panic!("{model:?} is incomplete") };
        assert_eq!((Model::from(packet), consumed), (model, bytes.len()));
    }
}

#[test]
fn any_prefix_is_incomplete_and_says_what_it_needs() {
    let mut random = Random::new(seed("CODEC_SEED", 3));
    for round in 0..300 {
        let version = VERSIONS[round % 3];
        let model = Model::from_client(&mut random, version);
        let bytes = model.encode(version);
        for cut in 0..bytes.len() {
            let before = model.version_before(version);
            let decoded = decode(&bytes[..cut], before, bytes.len()).unwrap();
            let header_there = FixedHeader::decode(&bytes[..cut], before).unwrap().is_some();
            let needed = if header_there { bytes.len() } else { 0 };
            assert_eq!(decoded, Decoded::Incomplete { needed });
        }
    }
}

#[test]
fn a_packet_over_the_limit_is_refused_by_its_fixed_header() {
    let mut random = Random::new(seed("CODEC_SEED", 4));
    for round in 0..300 {
        let version = VERSIONS[round % 3];
        let model = Model::from_client(&mut random, version);
        let bytes = model.encode(version);
        let before = model.version_before(version);
        let (_, header_bytes) = FixedHeader::decode(&bytes, before).unwrap().unwrap();
        let error = decode(&bytes[..header_bytes], before, bytes.len() - 1).unwrap_err();
        assert_eq!(error.fault, Fault::PacketTooLarge);
    }
}

#[test]
fn a_stream_split_anywhere_yields_the_same_packets() {
    let mut random = Random::new(seed("CODEC_SEED", 5));
    for round in 0..40 {
        let version = VERSIONS[round % 3];
        let models: Vec<Model> = (0..12).map(|_| Model::from_server(&mut random, version)).collect();
        let stream: Vec<u8> = models.iter().flat_map(|model| model.encode(version)).collect();
        let mut seen = Vec::new();
        let mut buffer = Vec::new();
        let mut rest = stream.as_slice();
        while !rest.is_empty() {
            let most = if random.one_in(4) { 4_000 } else { 7 };
            let piece = (1 + random.below(most)).min(rest.len());
            buffer.extend_from_slice(&rest[..piece]);
            rest = &rest[piece..];
            while let Decoded::Packet { packet, consumed } =
                decode_server_packet(&buffer, version, 1 << 20).unwrap()
            {
                seen.push(Model::from(packet));
                buffer.drain(..consumed);
            }
        }
        assert!(buffer.is_empty());
        assert_eq!(seen, models);
    }
}

#[test]
fn a_publish_sent_in_two_parts_or_patched_equals_one_encoded_anew() {
    let mut random = Random::new(seed("CODEC_SEED", 6));
    for round in 0..PACKETS {
        let version = VERSIONS[round % 3];
        let model = Model::from_server(&mut random, version);
        let Model::Publish(mut publish) = model else { continue };
        assert_eq!(publish_bytes(&publish), Model::Publish(publish).encode(version).len());
        let (mut whole, mut head) = (Vec::new(), b"earlier output".to_vec());
        let identifier_at = encode_publish(&mut whole, &publish).unwrap();
        assert_eq!(encode_publish_head(&mut head, &publish).unwrap(), identifier_at);
        head.extend_from_slice(publish.payload);
        assert_eq!(head.strip_prefix(b"earlier output"), Some(whole.as_slice()));

        assert_eq!(identifier_at.is_some(), publish.packet_identifier.is_some());
        if let Some(identifier_at) = identifier_at {
            let other = PacketIdentifier::new(4711).unwrap();
            patch_packet_identifier(&mut whole, identifier_at, other);
            patch_duplicate(&mut whole);
            publish.packet_identifier = Some(other);
            publish.duplicate = true;
            assert_eq!(whole, Model::Publish(publish).encode(version));
        }
    }
}
