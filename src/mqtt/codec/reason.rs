//! Reason codes: how a request ended, or why a connection does. MQTT 5 section 2.4.

use super::error::ProtocolError;
use super::value::PacketType;

/// A reason code. From 0x80 on it tells of a failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ReasonCode {
    /// Also granted QoS 0, and normal disconnection.
    Success = 0x00,
    GrantedQos1 = 0x01,
    GrantedQos2 = 0x02,
    DisconnectWithWillMessage = 0x04,
    NoMatchingSubscribers = 0x10,
    NoSubscriptionExisted = 0x11,
    ContinueAuthentication = 0x18,
    ReAuthenticate = 0x19,
    UnspecifiedError = 0x80,
    MalformedPacket = 0x81,
    ProtocolError = 0x82,
    ImplementationSpecificError = 0x83,
    UnsupportedProtocolVersion = 0x84,
    ClientIdentifierNotValid = 0x85,
    BadUserNameOrPassword = 0x86,
    NotAuthorized = 0x87,
    ServerUnavailable = 0x88,
    ServerBusy = 0x89,
    Banned = 0x8a,
    ServerShuttingDown = 0x8b,
    BadAuthenticationMethod = 0x8c,
    KeepAliveTimeout = 0x8d,
    SessionTakenOver = 0x8e,
    TopicFilterInvalid = 0x8f,
    TopicNameInvalid = 0x90,
    PacketIdentifierInUse = 0x91,
    PacketIdentifierNotFound = 0x92,
    ReceiveMaximumExceeded = 0x93,
    TopicAliasInvalid = 0x94,
    PacketTooLarge = 0x95,
    MessageRateTooHigh = 0x96,
    QuotaExceeded = 0x97,
    AdministrativeAction = 0x98,
    PayloadFormatInvalid = 0x99,
    RetainNotSupported = 0x9a,
    QosNotSupported = 0x9b,
    UseAnotherServer = 0x9c,
    ServerMoved = 0x9d,
    SharedSubscriptionsNotSupported = 0x9e,
    ConnectionRateExceeded = 0x9f,
    MaximumConnectTime = 0xa0,
    SubscriptionIdentifiersNotSupported = 0xa1,
    WildcardSubscriptionsNotSupported = 0xa2,
}

/// The codes and the packets that may carry them, in the order of the standard's table.
const TABLE: [(ReasonCode, &[PacketType]); 43] = {
    use PacketType::{Auth, ConnAck, Disconnect, PubAck, PubComp, PubRec, PubRel, SubAck, UnsubAck};
    use ReasonCode as R;
    [
        (R::Success, &[ConnAck, PubAck, PubRec, PubRel, PubComp, SubAck, UnsubAck, Disconnect, Auth]),
        (R::GrantedQos1, &[SubAck]),
        (R::GrantedQos2, &[SubAck]),
        (R::DisconnectWithWillMessage, &[Disconnect]),
        (R::NoMatchingSubscribers, &[PubAck, PubRec]),
        (R::NoSubscriptionExisted, &[UnsubAck]),
        (R::ContinueAuthentication, &[Auth]),
        (R::ReAuthenticate, &[Auth]),
        (R::UnspecifiedError, &[ConnAck, PubAck, PubRec, SubAck, UnsubAck, Disconnect]),
        (R::MalformedPacket, &[ConnAck, Disconnect]),
        (R::ProtocolError, &[ConnAck, Disconnect]),
        (R::ImplementationSpecificError, &[ConnAck, PubAck, PubRec, SubAck, UnsubAck, Disconnect]),
        (R::UnsupportedProtocolVersion, &[ConnAck]),
        (R::ClientIdentifierNotValid, &[ConnAck]),
        (R::BadUserNameOrPassword, &[ConnAck]),
        (R::NotAuthorized, &[ConnAck, PubAck, PubRec, SubAck, UnsubAck, Disconnect]),
        (R::ServerUnavailable, &[ConnAck]),
        (R::ServerBusy, &[ConnAck, Disconnect]),
        (R::Banned, &[ConnAck]),
        (R::ServerShuttingDown, &[Disconnect]),
        (R::BadAuthenticationMethod, &[ConnAck, Disconnect]),
        (R::KeepAliveTimeout, &[Disconnect]),
        (R::SessionTakenOver, &[Disconnect]),
        (R::TopicFilterInvalid, &[SubAck, UnsubAck, Disconnect]),
        (R::TopicNameInvalid, &[ConnAck, PubAck, PubRec, Disconnect]),
        (R::PacketIdentifierInUse, &[PubAck, PubRec, SubAck, UnsubAck]),
        (R::PacketIdentifierNotFound, &[PubRel, PubComp]),
        (R::ReceiveMaximumExceeded, &[Disconnect]),
        (R::TopicAliasInvalid, &[Disconnect]),
        (R::PacketTooLarge, &[ConnAck, Disconnect]),
        (R::MessageRateTooHigh, &[Disconnect]),
        (R::QuotaExceeded, &[ConnAck, PubAck, PubRec, SubAck, Disconnect]),
        (R::AdministrativeAction, &[Disconnect]),
        (R::PayloadFormatInvalid, &[ConnAck, PubAck, PubRec, Disconnect]),
        (R::RetainNotSupported, &[ConnAck, Disconnect]),
        (R::QosNotSupported, &[ConnAck, Disconnect]),
        (R::UseAnotherServer, &[ConnAck, Disconnect]),
        (R::ServerMoved, &[ConnAck, Disconnect]),
        (R::SharedSubscriptionsNotSupported, &[SubAck, Disconnect]),
        (R::ConnectionRateExceeded, &[ConnAck, Disconnect]),
        (R::MaximumConnectTime, &[Disconnect]),
        (R::SubscriptionIdentifiersNotSupported, &[SubAck, Disconnect]),
        (R::WildcardSubscriptionsNotSupported, &[SubAck, Disconnect]),
    ]
};

impl ReasonCode {
    /// Every code, in ascending order.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(code, _)| *code)
    }

    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// It tells of a failure.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        self as u8 >= 0x80
    }

    /// Whether packets of this type may carry it.
    #[must_use]
    pub fn fits(self, packet_type: PacketType) -> bool {
        TABLE.iter().any(|(code, packets)| *code == self && packets.contains(&packet_type))
    }

    /// The code with this number in a packet of this type.
    pub(super) fn decode(number: u8, packet_type: PacketType) -> Result<Self, ProtocolError> {
        TABLE
            .iter()
            .find(|(code, packets)| *code as u8 == number && packets.contains(&packet_type))
            .map(|(code, _)| *code)
            .ok_or_else(|| {
                ProtocolError::malformed("reason code is not one of this packet", rule(packet_type))
            })
    }
}

/// The statement that lists the codes of a packet.
const fn rule(packet_type: PacketType) -> &'static str {
    match packet_type {
        PacketType::ConnAck => "MQTT-3.2.2-8",
        PacketType::PubAck => "MQTT-3.4.2-1",
        PacketType::PubRec => "MQTT-3.5.2-1",
        PacketType::PubRel => "MQTT-3.6.2-1",
        PacketType::PubComp => "MQTT-3.7.2-1",
        PacketType::SubAck => "MQTT-3.9.3-2",
        PacketType::UnsubAck => "MQTT-3.11.3-2",
        PacketType::Disconnect => "MQTT-3.14.2-1",
        PacketType::Auth => "MQTT-3.15.2-1",
        PacketType::Connect
        | PacketType::Publish
        | PacketType::Subscribe
        | PacketType::Unsubscribe
        | PacketType::PingReq
        | PacketType::PingResp => "section 2.4",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_ascends_and_each_code_fits_some_packet() {
        let codes: Vec<_> = ReasonCode::all().map(ReasonCode::number).collect();
        assert!(codes.is_sorted_by(|a, b| a < b));
        for (code, packets) in TABLE {
            assert!(!packets.is_empty());
            for packet in packets {
                assert_eq!(ReasonCode::decode(code.number(), *packet), Ok(code));
            }
        }
        assert!(ReasonCode::decode(0x03, PacketType::SubAck).is_err());
        assert!(ReasonCode::decode(0x8e, PacketType::PubAck).is_err());
    }
}
