//! A foreign MQTT 3.1.1 codec reads and writes the same bytes as ours, or we are stricter by a rule that it leaves
//! to its caller.

use std::sync::Arc;

use gatewayd::mqtt::codec::client::decode_server_packet;
use gatewayd::mqtt::codec::{Decoded, FixedHeader, PacketType, ProtocolVersion, decode};
use mqtt_protocol_core::mqtt::packet::{Qos, v3_1_1 as oracle};

use crate::mqtt_packets::Model;
use crate::mutate::mutate;
use crate::random::{Random, seed};

const ROUNDS: usize = 20_000;

/// What a foreign codec makes of the same body, in our form; `None` when it refuses.
fn foreign(header: FixedHeader, body: &[u8]) -> Option<Vec<u8>> {
    fn bytes<P>(parsed: Result<(P, usize), impl Sized>, to_bytes: fn(&P) -> Vec<u8>) -> Option<Vec<u8>> {
        parsed.ok().map(|(packet, _)| to_bytes(&packet))
    }
    match header.packet_type {
        PacketType::Connect => bytes(oracle::Connect::parse(body), oracle::Connect::to_continuous_buffer),
        PacketType::ConnAck => bytes(oracle::Connack::parse(body), oracle::Connack::to_continuous_buffer),
        PacketType::Publish => bytes(
            oracle::Publish::parse(header.flags, Arc::from(body)),
            oracle::Publish::to_continuous_buffer,
        ),
        PacketType::PubAck => bytes(oracle::Puback::parse(body), oracle::Puback::to_continuous_buffer),
        PacketType::PubRec => bytes(oracle::Pubrec::parse(body), oracle::Pubrec::to_continuous_buffer),
        PacketType::PubRel => bytes(oracle::Pubrel::parse(body), oracle::Pubrel::to_continuous_buffer),
        PacketType::PubComp => bytes(oracle::Pubcomp::parse(body), oracle::Pubcomp::to_continuous_buffer),
        PacketType::Subscribe => {
            bytes(oracle::Subscribe::parse(body), oracle::Subscribe::to_continuous_buffer)
        }
        PacketType::SubAck => bytes(oracle::Suback::parse(body), oracle::Suback::to_continuous_buffer),
        PacketType::Unsubscribe => {
            bytes(oracle::Unsubscribe::parse(body), oracle::Unsubscribe::to_continuous_buffer)
        }
        PacketType::UnsubAck => bytes(oracle::Unsuback::parse(body), oracle::Unsuback::to_continuous_buffer),
        PacketType::PingReq => bytes(oracle::Pingreq::parse(body), oracle::Pingreq::to_continuous_buffer),
        PacketType::PingResp => bytes(oracle::Pingresp::parse(body), oracle::Pingresp::to_continuous_buffer),
        PacketType::Disconnect => {
            bytes(oracle::Disconnect::parse(body), oracle::Disconnect::to_continuous_buffer)
        }
        PacketType::Auth => None,
    }
}

/// Rules that the foreign codec leaves to its caller: topics, flags it masks, U+0000.
const STRICTER: [&str; 17] = [
    "MQTT-1.5.3-2",
    "MQTT-2.2.2-2",
    "MQTT-2.3.1-1",
    "MQTT-3.1.2-13",
    "MQTT-3.1.2-14",
    "MQTT-3.1.2-15",
    "MQTT-3.1.2-3",
    "MQTT-3.2.2-4",
    "MQTT-3.3.1-2",
    "MQTT-3.3.2-2",
    "MQTT-3.8.3-4",
    "MQTT-4.7.1-2",
    "MQTT-4.7.1-3",
    "MQTT-4.7.3-1",
    "MQTT-4.7.3-2",
    "section 3.2.2.1",
    "section 4.7.3",
];

/// Whatever we accept as MQTT 3.1.1, another codec accepts and writes back as the same bytes as we do; what we
/// refuse and it takes, is refused by a rule that it does not claim to check.
#[test]
fn an_independent_codec_agrees() {
    let mut random = Random::new(seed("CODEC_SEED", 9));
    let version = ProtocolVersion::V311;
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        let from_client = random.coin();
        let model = if from_client {
            Model::from_client(&mut random, version)
        } else {
            Model::from_server(&mut random, version)
        };
        let mut input = model.encode(version);
        if round % 2 == 0 {
            mutate(&mut random, &mut input);
        }
        let before = model.version_before(version);
        let decoded = if from_client {
            decode(&input, before, usize::MAX).map(kept)
        } else {
            decode_server_packet(&input, version, usize::MAX).map(kept)
        };
        match decoded {
            Ok(None) => {}
            // The foreign codec knows neither the bridge bit nor MQTT 3.1.
            Ok(Some((Model::Connect(ours), _))) if ours.bridge || ours.version != version => {}
            Ok(Some((ours, consumed))) => {
                let (header, header_bytes) = FixedHeader::decode(&input, before).unwrap().unwrap();
                let theirs = foreign(header, &input[header_bytes..consumed]);
                assert_eq!(theirs, Some(ours.encode(version)), "{ours:?}");
                accepted += 1;
            }
            Err(error) => {
                let Ok(Some((header, header_bytes))) = FixedHeader::decode(&input, before) else { continue };
                let total = header_bytes + header.remaining_length;
                let Some(body) = input.get(header_bytes..total) else { continue };
                let allowed = !order_allows(header.packet_type, from_client, before)
                    || foreign(header, body).is_none()
                    || error.detail == "bytes after the last field"
                    || STRICTER.contains(&error.rule);
                assert!(allowed, "refused with {error}: {input:02x?}");
                refused += 1;
            }
        }
    }
    assert!(accepted > ROUNDS / 3 && refused > ROUNDS / 30, "compared only {accepted} and {refused}");
}

fn kept<P>(decoded: Decoded<P>) -> Option<(Model, usize)>
where
    Model: From<P>,
{
    match decoded {
        Decoded::Packet { packet, consumed } => Some((Model::from(packet), consumed)),
        Decoded::Incomplete { .. } => None,
    }
}

fn order_allows(packet_type: PacketType, from_client: bool, before: Option<ProtocolVersion>) -> bool {
    if from_client {
        packet_type.from_client() && (packet_type == PacketType::Connect) == before.is_none()
    } else {
        packet_type.from_server(ProtocolVersion::V311)
    }
}

/// The fields, not only the bytes, mean the same to both.
#[test]
fn an_independent_codec_reads_the_same_fields() {
    let mut random = Random::new(seed("CODEC_SEED", 10));
    let version = ProtocolVersion::V311;
    for _ in 0..ROUNDS / 7 {
        let model = Model::from_client(&mut random, version);
        let bytes = model.encode(version);
        let (header, header_bytes) =
            FixedHeader::decode(&bytes, model.version_before(version)).unwrap().unwrap();
        let body = &bytes[header_bytes..];
        match model {
            Model::Connect(ours) if !ours.bridge => {
                let (theirs, _) = oracle::Connect::parse(body).unwrap();
                assert_eq!(theirs.client_id(), ours.client_identifier);
                assert_eq!(theirs.clean_session(), ours.clean_session);
                assert_eq!(theirs.keep_alive(), ours.keep_alive_s);
                assert_eq!(theirs.user_name(), ours.user_name);
                assert_eq!(theirs.password(), ours.password);
                assert_eq!(theirs.will_topic(), ours.will.map(|will| will.topic.as_str()));
                assert_eq!(theirs.will_payload(), ours.will.map(|will| will.payload));
                assert_eq!(theirs.will_retain(), ours.will.is_some_and(|will| will.retain));
                let will_qos = ours.will.map_or(0, |will| u8::from(will.qos));
                assert_eq!(theirs.will_qos(), Qos::try_from(will_qos).unwrap());
            }
            Model::Publish(ours) => {
                let (theirs, _) = oracle::Publish::parse(header.flags, Arc::from(body)).unwrap();
                assert_eq!(theirs.topic_name(), ours.topic.as_str());
                assert_eq!(theirs.payload().as_slice(), ours.payload);
                assert_eq!(theirs.packet_id(), ours.packet_identifier.map(|identifier| identifier.number()));
                assert_eq!(theirs.qos(), Qos::try_from(u8::from(ours.qos)).unwrap());
                assert_eq!((theirs.retain(), theirs.dup()), (ours.retain, ours.duplicate));
            }
            Model::Subscribe(identifier, _, ours) => {
                let (theirs, _) = oracle::Subscribe::parse(body).unwrap();
                assert_eq!(theirs.packet_id(), identifier.number());
                let theirs: Vec<_> =
                    theirs.entries().iter().map(|e| (e.topic_filter(), e.sub_opts().qos())).collect();
                let ours: Vec<_> = ours
                    .iter()
                    .map(|s| (s.filter.as_str(), Qos::try_from(u8::from(s.qos)).unwrap()))
                    .collect();
                assert_eq!(theirs, ours);
            }
            _ => {}
        }
    }
}
