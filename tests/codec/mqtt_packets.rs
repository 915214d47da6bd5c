//! Random MQTT packets with an owned form, so that what comes out of a decoder can be compared with what went in.

use gatewayd::mqtt::codec::client::{
    ServerPacket, encode_connect, encode_disconnect, encode_pingreq, encode_subscribe, encode_unsubscribe,
};
use gatewayd::mqtt::codec::{
    Connect, ConnectReturnCode, ControlPacket, PacketIdentifier, ProtocolVersion, Publish, QualityOfService,
    SubscribeReturnCode, SubscriptionRequest, Will, encode_connack, encode_pingresp, encode_puback,
    encode_pubcomp, encode_publish, encode_pubrec, encode_pubrel, encode_suback, encode_unsuback,
};
use gatewayd::mqtt::topic::{TopicFilter, TopicName};

use crate::random::Random;

/// A packet of either side. Texts are leaked: a test process is short.
#[derive(Clone, PartialEq, Debug)]
pub enum Model {
    Connect(Connect<'static>),
    ConnAck(bool, ConnectReturnCode),
    Publish(Publish<'static>),
    PubAck(PacketIdentifier),
    PubRec(PacketIdentifier),
    PubRel(PacketIdentifier),
    PubComp(PacketIdentifier),
    Subscribe(PacketIdentifier, Vec<SubscriptionRequest<'static>>),
    SubAck(PacketIdentifier, Vec<SubscribeReturnCode>),
    Unsubscribe(PacketIdentifier, Vec<TopicFilter<'static>>),
    UnsubAck(PacketIdentifier),
    PingReq,
    PingResp,
    Disconnect,
}

impl Model {
    pub fn from_client(random: &mut Random, version: ProtocolVersion) -> Self {
        match random.below(10) {
            0 | 1 => Self::Connect(connect(random, version)),
            2..=4 => Self::Publish(publish(random)),
            5 => ack(random),
            6 | 7 => Self::Subscribe(identifier(random), subscriptions(random)),
            8 => Self::Unsubscribe(identifier(random), filters(random)),
            _ if random.coin() => Self::PingReq,
            _ => Self::Disconnect,
        }
    }

    pub fn from_server(random: &mut Random, version: ProtocolVersion) -> Self {
        match random.below(6) {
            0 => {
                let code = *random.pick(&RETURN_CODES);
                let may_tell = version == ProtocolVersion::V311 && code == ConnectReturnCode::Accepted;
                Self::ConnAck(may_tell && random.coin(), code)
            }
            1 | 2 => Self::Publish(publish(random)),
            3 => ack(random),
            4 => Self::SubAck(identifier(random), return_codes(random)),
            _ if random.coin() => Self::PingResp,
            _ => Self::UnsubAck(identifier(random)),
        }
    }

    pub fn encode(&self, version: ProtocolVersion) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Connect(connect) => encode_connect(&mut out, connect).unwrap(),
            Self::ConnAck(present, code) => encode_connack(&mut out, *present, *code, version),
            Self::Publish(publish) => drop(encode_publish(&mut out, publish).unwrap()),
            Self::PubAck(identifier) => encode_puback(&mut out, *identifier),
            Self::PubRec(identifier) => encode_pubrec(&mut out, *identifier),
            Self::PubRel(identifier) => encode_pubrel(&mut out, *identifier),
            Self::PubComp(identifier) => encode_pubcomp(&mut out, *identifier),
            Self::Subscribe(identifier, list) => encode_subscribe(&mut out, *identifier, list).unwrap(),
            Self::SubAck(identifier, codes) => encode_suback(&mut out, *identifier, codes).unwrap(),
            Self::Unsubscribe(identifier, list) => encode_unsubscribe(&mut out, *identifier, list).unwrap(),
            Self::UnsubAck(identifier) => encode_unsuback(&mut out, *identifier),
            Self::PingReq => encode_pingreq(&mut out),
            Self::PingResp => encode_pingresp(&mut out),
            Self::Disconnect => encode_disconnect(&mut out),
        }
        out
    }

    /// The version to hand to `decode` for this packet of a client.
    pub fn version_before(&self, version: ProtocolVersion) -> Option<ProtocolVersion> {
        if matches!(self, Self::Connect(_)) { None } else { Some(version) }
    }
}

impl From<ControlPacket<'_>> for Model {
    fn from(packet: ControlPacket<'_>) -> Self {
        match packet {
            ControlPacket::Connect(connect) => Self::Connect(keep_connect(&connect)),
            ControlPacket::Publish(publish) => Self::Publish(keep_publish(&publish)),
            ControlPacket::PubAck(identifier) => Self::PubAck(identifier),
            ControlPacket::PubRec(identifier) => Self::PubRec(identifier),
            ControlPacket::PubRel(identifier) => Self::PubRel(identifier),
            ControlPacket::PubComp(identifier) => Self::PubComp(identifier),
            ControlPacket::Subscribe(subscribe) => {
                assert_eq!(subscribe.subscriptions.len(), subscribe.subscriptions.count());
                let kept = subscribe
                    .subscriptions
                    .map(|s| SubscriptionRequest { filter: keep_filter(s.filter), qos: s.qos });
                Self::Subscribe(subscribe.packet_identifier, kept.collect())
            }
            ControlPacket::Unsubscribe(unsubscribe) => {
                assert_eq!(unsubscribe.filters.len(), unsubscribe.filters.count());
                Self::Unsubscribe(
                    unsubscribe.packet_identifier,
                    unsubscribe.filters.map(keep_filter).collect(),
                )
            }
            ControlPacket::PingReq => Self::PingReq,
            ControlPacket::Disconnect => Self::Disconnect,
        }
    }
}

impl From<ServerPacket<'_>> for Model {
    fn from(packet: ServerPacket<'_>) -> Self {
        match packet {
            ServerPacket::ConnAck(connack) => Self::ConnAck(connack.session_present, connack.return_code),
            ServerPacket::Publish(publish) => Self::Publish(keep_publish(&publish)),
            ServerPacket::PubAck(identifier) => Self::PubAck(identifier),
            ServerPacket::PubRec(identifier) => Self::PubRec(identifier),
            ServerPacket::PubRel(identifier) => Self::PubRel(identifier),
            ServerPacket::PubComp(identifier) => Self::PubComp(identifier),
            ServerPacket::SubAck(suback) => {
                assert_eq!(suback.return_codes.len(), suback.return_codes.count());
                Self::SubAck(suback.packet_identifier, suback.return_codes.collect())
            }
            ServerPacket::UnsubAck(identifier) => Self::UnsubAck(identifier),
            ServerPacket::PingResp => Self::PingResp,
        }
    }
}

const RETURN_CODES: [ConnectReturnCode; 6] = [
    ConnectReturnCode::Accepted,
    ConnectReturnCode::UnacceptableProtocolVersion,
    ConnectReturnCode::IdentifierRejected,
    ConnectReturnCode::ServerUnavailable,
    ConnectReturnCode::BadUserNameOrPassword,
    ConnectReturnCode::NotAuthorized,
];

fn leak_text(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

fn leak_bytes(bytes: &[u8]) -> &'static [u8] {
    Box::leak(bytes.to_vec().into_boxed_slice())
}

fn keep_name(name: TopicName<'_>) -> TopicName<'static> {
    TopicName::parse(leak_text(name.as_str())).unwrap()
}

fn keep_filter(filter: TopicFilter<'_>) -> TopicFilter<'static> {
    TopicFilter::parse(leak_text(filter.as_str())).unwrap()
}

fn keep_publish(publish: &Publish<'_>) -> Publish<'static> {
    Publish {
        topic: keep_name(publish.topic),
        qos: publish.qos,
        retain: publish.retain,
        duplicate: publish.duplicate,
        packet_identifier: publish.packet_identifier,
        payload: leak_bytes(publish.payload),
    }
}

fn keep_connect(connect: &Connect<'_>) -> Connect<'static> {
    Connect {
        version: connect.version,
        bridge: connect.bridge,
        clean_session: connect.clean_session,
        keep_alive_s: connect.keep_alive_s,
        client_identifier: leak_text(connect.client_identifier),
        will: connect.will.map(|will| Will {
            topic: keep_name(will.topic),
            payload: leak_bytes(will.payload),
            qos: will.qos,
            retain: will.retain,
        }),
        user_name: connect.user_name.map(leak_text),
        password: connect.password.map(leak_bytes),
    }
}

fn identifier(random: &mut Random) -> PacketIdentifier {
    let number = u16::from_be_bytes([random.byte(), random.byte()]);
    PacketIdentifier::new(number.max(1)).unwrap()
}

fn qos(random: &mut Random) -> QualityOfService {
    *random.pick(&[
        QualityOfService::AtMostOnce,
        QualityOfService::AtLeastOnce,
        QualityOfService::ExactlyOnce,
    ])
}

fn text(random: &mut Random, alphabet: &[char]) -> &'static str {
    let length = random.length();
    let text: String = (0..length).map(|_| *random.pick(alphabet)).collect();
    leak_text(&text)
}

const TEXT: [char; 12] = ['a', 'b', 'Z', '9', '/', '.', '$', ' ', 'é', '\u{feff}', '\u{ffff}', '😀'];

fn levels(random: &mut Random) -> Vec<String> {
    let most = if random.one_in(10) { 128 } else { 6 };
    let count = 1 + random.below(most);
    let level = |random: &mut Random| {
        let length = random.below(6);
        (0..length).map(|_| *random.pick(&['a', 'b', '1', '.', '$', 'ü', '\u{1}'])).collect()
    };
    (0..count).map(|_| level(random)).collect()
}

fn name(random: &mut Random) -> TopicName<'static> {
    let mut text = levels(random).join("/");
    if text.is_empty() {
        text.push('x');
    }
    TopicName::parse(leak_text(&text)).unwrap()
}

fn filter(random: &mut Random) -> TopicFilter<'static> {
    let mut levels = levels(random);
    for level in &mut levels {
        if random.one_in(4) {
            *level = "+".to_owned();
        }
    }
    if random.one_in(4) {
        *levels.last_mut().unwrap() = "#".to_owned();
    }
    let mut text = levels.join("/");
    if text.is_empty() {
        text.push('x');
    }
    TopicFilter::parse(leak_text(&text)).unwrap()
}

fn payload(random: &mut Random) -> &'static [u8] {
    let length = random.length();
    leak_bytes(&random.bytes(length))
}

fn connect(random: &mut Random, version: ProtocolVersion) -> Connect<'static> {
    let user_name = random.coin().then(|| text(random, &TEXT));
    Connect {
        version,
        bridge: random.one_in(4),
        clean_session: random.coin(),
        keep_alive_s: u16::from_be_bytes([random.byte(), random.byte()]),
        client_identifier: text(random, &TEXT),
        will: random.coin().then(|| Will {
            topic: name(random),
            payload: payload(random),
            qos: qos(random),
            retain: random.coin(),
        }),
        user_name,
        password: if user_name.is_some() && random.coin() { Some(payload(random)) } else { None },
    }
}

fn publish(random: &mut Random) -> Publish<'static> {
    let qos = qos(random);
    let has_identifier = qos != QualityOfService::AtMostOnce;
    Publish {
        topic: name(random),
        qos,
        retain: random.coin(),
        duplicate: has_identifier && random.coin(),
        packet_identifier: has_identifier.then(|| identifier(random)),
        payload: payload(random),
    }
}

fn ack(random: &mut Random) -> Model {
    let identifier = identifier(random);
    match random.below(4) {
        0 => Model::PubAck(identifier),
        1 => Model::PubRec(identifier),
        2 => Model::PubRel(identifier),
        _ => Model::PubComp(identifier),
    }
}

fn subscriptions(random: &mut Random) -> Vec<SubscriptionRequest<'static>> {
    let count = 1 + random.below(5);
    (0..count).map(|_| SubscriptionRequest { filter: filter(random), qos: qos(random) }).collect()
}

fn filters(random: &mut Random) -> Vec<TopicFilter<'static>> {
    let count = 1 + random.below(5);
    (0..count).map(|_| filter(random)).collect()
}

fn return_codes(random: &mut Random) -> Vec<SubscribeReturnCode> {
    let count = 1 + random.below(5);
    let code = |random: &mut Random| {
        if random.one_in(4) {
            SubscribeReturnCode::Failure
        } else {
            SubscribeReturnCode::Granted(qos(random))
        }
    };
    (0..count).map(|_| code(random)).collect()
}
