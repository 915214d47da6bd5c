//! Random MQTT packets with an owned form, so that what comes out of a decoder can be compared with what went in.

use gatewayd::mqtt::codec::client::{
    ServerPacket, encode_auth, encode_connect, encode_disconnect, encode_disconnect_reason, encode_pingreq,
    encode_subscribe, encode_unsubscribe,
};
use gatewayd::mqtt::codec::{
    Acknowledgement, Auth, ConnAck5, Connect, ConnectReturnCode, ControlPacket, Disconnect, PacketIdentifier,
    PacketType, Place, Properties, PropertyId, PropertyList, PropertyType, ProtocolVersion, Publish,
    QualityOfService, ReasonCode, RetainHandling, SubscribeReturnCode, SubscriptionRequest, Will,
    encode_acknowledgement, encode_connack, encode_connack5, encode_pingresp, encode_publish, encode_suback,
    encode_unsuback, encode_unsuback5,
};
use gatewayd::mqtt::topic::{TopicFilter, TopicName};

use crate::random::Random;

/// A packet of either side. Texts are leaked: a test process is short.
#[derive(Clone, PartialEq, Debug)]
pub enum Model {
    Connect(Connect<'static>),
    ConnAck(bool, ConnectReturnCode),
    Publish(Publish<'static>),
    ConnAck5(ConnAck5<'static>),
    Ack(PacketType, Acknowledgement<'static>),
    Subscribe(PacketIdentifier, Kept, Vec<SubscriptionRequest<'static>>),
    SubAck(PacketIdentifier, Kept, Vec<SubscribeReturnCode>),
    Unsubscribe(PacketIdentifier, Kept, Vec<TopicFilter<'static>>),
    UnsubAck(PacketIdentifier, Kept, Vec<ReasonCode>),
    PingReq,
    PingResp,
    Disconnect(Disconnect<'static>),
    Auth(Auth<'static>),
}

/// Properties, in version 5.
type Kept = Option<Properties<'static>>;

impl Model {
    pub fn from_client(random: &mut Random, version: ProtocolVersion) -> Self {
        match random.below(10) {
            0 | 1 => Self::Connect(connect(random, version)),
            2..=4 => Self::Publish(publish(random, version, false)),
            5 => ack(random, version),
            6 | 7 => {
                let kept = properties(random, PacketType::Subscribe, version);
                Self::Subscribe(identifier(random), kept, subscriptions(random, version))
            }
            8 => {
                let kept = properties(random, PacketType::Unsubscribe, version);
                Self::Unsubscribe(identifier(random), kept, filters(random))
            }
            _ if random.coin() => Self::PingReq,
            _ if version == ProtocolVersion::V5 && random.one_in(4) => auth(random),
            _ => Self::Disconnect(disconnect(random, version)),
        }
    }

    pub fn from_server(random: &mut Random, version: ProtocolVersion) -> Self {
        match random.below(6) {
            0 if version == ProtocolVersion::V5 => {
                let (reason, properties) = outcome(random, PacketType::ConnAck);
                let session_present = reason == ReasonCode::Success && random.coin();
                Self::ConnAck5(ConnAck5 { session_present, reason, properties })
            }
            0 => {
                let code = *random.pick(&RETURN_CODES);
                let may_tell = version == ProtocolVersion::V311 && code == ConnectReturnCode::Accepted;
                Self::ConnAck(may_tell && random.coin(), code)
            }
            1 | 2 => Self::Publish(publish(random, version, true)),
            3 => ack(random, version),
            4 => {
                let kept = properties(random, PacketType::SubAck, version);
                Self::SubAck(identifier(random), kept, return_codes(random, version))
            }
            _ if random.coin() => Self::PingResp,
            _ if version == ProtocolVersion::V5 && random.one_in(4) => auth(random),
            _ if version == ProtocolVersion::V5 && random.one_in(4) => {
                Self::Disconnect(disconnect(random, version))
            }
            _ => {
                let kept = properties(random, PacketType::UnsubAck, version);
                let codes = if kept.is_some() {
                    vec![ReasonCode::Success, ReasonCode::NoSubscriptionExisted]
                } else {
                    Vec::new()
                };
                Self::UnsubAck(identifier(random), kept, codes)
            }
        }
    }

    pub fn encode(&self, version: ProtocolVersion) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Connect(connect) => encode_connect(&mut out, connect).unwrap(),
            Self::ConnAck(present, code) => encode_connack(&mut out, *present, *code, version),
            Self::ConnAck5(connack) => encode_connack5(&mut out, connack).unwrap(),
            Self::Publish(publish) => drop(encode_publish(&mut out, publish).unwrap()),
            Self::Ack(packet_type, acknowledgement) => {
                encode_acknowledgement(&mut out, *packet_type, acknowledgement).unwrap();
            }
            Self::Subscribe(identifier, kept, list) => {
                encode_subscribe(&mut out, *identifier, *kept, list).unwrap();
            }
            Self::SubAck(identifier, kept, codes) => {
                encode_suback(&mut out, *identifier, *kept, codes).unwrap();
            }
            Self::Unsubscribe(identifier, kept, list) => {
                encode_unsubscribe(&mut out, *identifier, *kept, list).unwrap();
            }
            Self::UnsubAck(identifier, None, _) => encode_unsuback(&mut out, *identifier),
            Self::UnsubAck(identifier, Some(kept), codes) => {
                encode_unsuback5(&mut out, *identifier, *kept, codes).unwrap();
            }
            Self::PingReq => encode_pingreq(&mut out),
            Self::PingResp => encode_pingresp(&mut out),
            Self::Disconnect(disconnect) if version == ProtocolVersion::V5 => {
                encode_disconnect_reason(&mut out, disconnect).unwrap();
            }
            Self::Disconnect(_) => encode_disconnect(&mut out),
            Self::Auth(auth) => encode_auth(&mut out, auth).unwrap(),
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
            ControlPacket::PubAck(ack) => Self::Ack(PacketType::PubAck, keep_ack(&ack)),
            ControlPacket::PubRec(ack) => Self::Ack(PacketType::PubRec, keep_ack(&ack)),
            ControlPacket::PubRel(ack) => Self::Ack(PacketType::PubRel, keep_ack(&ack)),
            ControlPacket::PubComp(ack) => Self::Ack(PacketType::PubComp, keep_ack(&ack)),
            ControlPacket::Subscribe(subscribe) => {
                assert_eq!(subscribe.subscriptions.len(), subscribe.subscriptions.count());
                let kept = subscribe
                    .subscriptions
                    .map(|s| SubscriptionRequest { filter: keep_filter(s.filter), ..s });
                let kept = kept.collect();
                Self::Subscribe(subscribe.packet_identifier, subscribe.properties.map(keep_properties), kept)
            }
            ControlPacket::Unsubscribe(unsubscribe) => {
                assert_eq!(unsubscribe.filters.len(), unsubscribe.filters.count());
                Self::Unsubscribe(
                    unsubscribe.packet_identifier,
                    unsubscribe.properties.map(keep_properties),
                    unsubscribe.filters.map(keep_filter).collect(),
                )
            }
            ControlPacket::PingReq => Self::PingReq,
            ControlPacket::Disconnect(disconnect) => Self::Disconnect(keep_disconnect(&disconnect)),
            ControlPacket::Auth(auth) => Self::Auth(keep_auth(&auth)),
        }
    }
}

impl From<ServerPacket<'_>> for Model {
    fn from(packet: ServerPacket<'_>) -> Self {
        match packet {
            ServerPacket::ConnAck(connack) => Self::ConnAck(connack.session_present, connack.return_code),
            ServerPacket::ConnAck5(connack) => {
                let properties = keep_properties(connack.properties);
                let ConnAck5 { session_present, reason, .. } = connack;
                Self::ConnAck5(ConnAck5 { session_present, reason, properties })
            }
            ServerPacket::Publish(publish) => Self::Publish(keep_publish(&publish)),
            ServerPacket::PubAck(ack) => Self::Ack(PacketType::PubAck, keep_ack(&ack)),
            ServerPacket::PubRec(ack) => Self::Ack(PacketType::PubRec, keep_ack(&ack)),
            ServerPacket::PubRel(ack) => Self::Ack(PacketType::PubRel, keep_ack(&ack)),
            ServerPacket::PubComp(ack) => Self::Ack(PacketType::PubComp, keep_ack(&ack)),
            ServerPacket::SubAck(suback) => {
                assert_eq!(suback.return_codes.len(), suback.return_codes.count());
                let kept = suback.properties.map(keep_properties);
                Self::SubAck(suback.packet_identifier, kept, suback.return_codes.collect())
            }
            ServerPacket::UnsubAck(unsuback) => {
                let code = |number: &u8| ReasonCode::all().find(|code| code.number() == *number).unwrap();
                let codes = unsuback.reason_codes.iter().map(code).collect();
                Self::UnsubAck(unsuback.packet_identifier, unsuback.properties.map(keep_properties), codes)
            }
            ServerPacket::PingResp => Self::PingResp,
            ServerPacket::Disconnect(disconnect) => Self::Disconnect(keep_disconnect(&disconnect)),
            ServerPacket::Auth(auth) => Self::Auth(keep_auth(&auth)),
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

fn keep_properties(properties: Properties<'_>) -> Properties<'static> {
    Properties::from_checked(leak_bytes(properties.as_bytes()))
}

fn keep_ack(ack: &Acknowledgement<'_>) -> Acknowledgement<'static> {
    let properties = keep_properties(ack.properties);
    Acknowledgement { packet_identifier: ack.packet_identifier, reason: ack.reason, properties }
}

fn keep_disconnect(disconnect: &Disconnect<'_>) -> Disconnect<'static> {
    Disconnect { reason: disconnect.reason, properties: keep_properties(disconnect.properties) }
}

fn keep_auth(auth: &Auth<'_>) -> Auth<'static> {
    Auth { reason: auth.reason, properties: keep_properties(auth.properties) }
}

fn keep_name(name: TopicName<'_>) -> TopicName<'static> {
    if name == TopicName::ALIASED {
        return TopicName::ALIASED;
    }
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
        properties: publish.properties.map(keep_properties),
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
            properties: keep_properties(will.properties),
        }),
        user_name: connect.user_name.map(leak_text),
        password: connect.password.map(leak_bytes),
        properties: keep_properties(connect.properties),
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

/// Properties that may stand there, in any order.
fn any_properties(random: &mut Random, place: Place) -> Properties<'static> {
    let mut list = PropertyList::new();
    let mut ids: Vec<_> =
        PropertyId::all().filter(|id| id.fits(place) && *id != PropertyId::AuthenticationData).collect();
    let count = if random.coin() { 0 } else { random.below(ids.len() + 1) };
    for _ in 0..count {
        let id = *random.pick(&ids);
        let repeats = id == PropertyId::UserProperty
            || id == PropertyId::SubscriptionIdentifier && place == Place::Packet(PacketType::Publish);
        if !repeats {
            ids.retain(|other| *other != id);
        }
        let number = u32::from_be_bytes([random.byte(), random.byte(), random.byte(), random.byte()]);
        match id.kind() {
            PropertyType::Flag => list.number(id, number & 1),
            PropertyType::TwoByteInteger => list.number(id, (number & 0xffff).max(1)),
            PropertyType::FourByteInteger => list.number(id, number.max(1)),
            PropertyType::VariableByteInteger => list.number(id, (number & 0x0fff_ffff).max(1)),
            PropertyType::Utf8String if id == PropertyId::ResponseTopic => {
                list.text(id, name(random).as_str())
            }
            PropertyType::Utf8String => list.text(id, text(random, &TEXT)),
            PropertyType::BinaryData => list.data(id, payload(random)),
            PropertyType::Utf8StringPair => list.user_property(text(random, &TEXT), text(random, &TEXT)),
        };
        if ids.is_empty() {
            break;
        }
    }
    Properties::from_checked(leak_bytes(&list.into_bytes()))
}

fn properties(random: &mut Random, packet_type: PacketType, version: ProtocolVersion) -> Kept {
    (version == ProtocolVersion::V5).then(|| any_properties(random, Place::Packet(packet_type)))
}

fn outcome(random: &mut Random, packet_type: PacketType) -> (ReasonCode, Properties<'static>) {
    let codes: Vec<_> = ReasonCode::all().filter(|code| code.fits(packet_type)).collect();
    let reason = if random.coin() { ReasonCode::Success } else { *random.pick(&codes) };
    (reason, any_properties(random, Place::Packet(packet_type)))
}

fn disconnect(random: &mut Random, version: ProtocolVersion) -> Disconnect<'static> {
    if version != ProtocolVersion::V5 {
        return Disconnect::NORMAL;
    }
    let (reason, properties) = outcome(random, PacketType::Disconnect);
    Disconnect { reason, properties }
}

fn auth(random: &mut Random) -> Model {
    let (reason, properties) = outcome(random, PacketType::Auth);
    Model::Auth(Auth { reason, properties })
}

fn connect(random: &mut Random, version: ProtocolVersion) -> Connect<'static> {
    let user_name = random.coin().then(|| text(random, &TEXT));
    let five = version == ProtocolVersion::V5;
    let any =
        |random: &mut Random, place| if five { any_properties(random, place) } else { Properties::NONE };
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
            properties: any(random, Place::Will),
        }),
        user_name,
        password: if (user_name.is_some() || five) && random.coin() { Some(payload(random)) } else { None },
        properties: any(random, Place::Packet(PacketType::Connect)),
    }
}

fn publish(random: &mut Random, version: ProtocolVersion, from_server: bool) -> Publish<'static> {
    let qos = qos(random);
    let has_identifier = qos != QualityOfService::AtMostOnce;
    let mut topic = name(random);
    let mut properties = properties(random, PacketType::Publish, version);
    if let Some(found) = properties {
        if !from_server {
            let mut list = PropertyList::new();
            for (id, value) in found.iter().filter(|(id, _)| *id != PropertyId::SubscriptionIdentifier) {
                list.push(id, value);
            }
            properties = Some(Properties::from_checked(leak_bytes(&list.into_bytes())));
        }
        if found.number(PropertyId::TopicAlias).is_some() && random.coin() {
            topic = TopicName::ALIASED;
        }
    }
    Publish {
        topic,
        qos,
        retain: random.coin(),
        duplicate: has_identifier && random.coin(),
        packet_identifier: has_identifier.then(|| identifier(random)),
        properties,
        payload: payload(random),
    }
}

fn ack(random: &mut Random, version: ProtocolVersion) -> Model {
    let packet_identifier = identifier(random);
    let packet_type =
        *random.pick(&[PacketType::PubAck, PacketType::PubRec, PacketType::PubRel, PacketType::PubComp]);
    if version != ProtocolVersion::V5 {
        return Model::Ack(packet_type, Acknowledgement::success(packet_identifier));
    }
    let (reason, properties) = outcome(random, packet_type);
    Model::Ack(packet_type, Acknowledgement { packet_identifier, reason, properties })
}

fn subscriptions(random: &mut Random, version: ProtocolVersion) -> Vec<SubscriptionRequest<'static>> {
    let count = 1 + random.below(5);
    let handling = [RetainHandling::Always, RetainHandling::IfNew, RetainHandling::Never];
    let request = |random: &mut Random| {
        let plain = SubscriptionRequest::new(filter(random), qos(random));
        if version != ProtocolVersion::V5 {
            return plain;
        }
        SubscriptionRequest {
            no_local: random.coin(),
            retain_as_published: random.coin(),
            retain_handling: *random.pick(&handling),
            ..plain
        }
    };
    (0..count).map(|_| request(random)).collect()
}

fn filters(random: &mut Random) -> Vec<TopicFilter<'static>> {
    let count = 1 + random.below(5);
    (0..count).map(|_| filter(random)).collect()
}

fn return_codes(random: &mut Random, version: ProtocolVersion) -> Vec<SubscribeReturnCode> {
    let count = 1 + random.below(5);
    let code = |random: &mut Random| match random.below(4) {
        0 if version == ProtocolVersion::V5 => SubscribeReturnCode::Refused(ReasonCode::NotAuthorized),
        0 | 1 => SubscribeReturnCode::Failure,
        _ => SubscribeReturnCode::Granted(qos(random)),
    };
    (0..count).map(|_| code(random)).collect()
}
