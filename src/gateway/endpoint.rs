//! The endpoint of a connection, whatever protocol it speaks: what all have in common.

use std::fmt;

use super::connections::Protocol;
use crate::auth::Identity;
use crate::ids::ConnectionId;
use crate::mqtt::codec::{ConnectReturnCode, ReasonCode};
use crate::output::OutputBuffer;
use crate::time::Mono;
use crate::{amqp091, mqtt};

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Mqtt(mqtt::connection::End),
    Amqp091(amqp091::connection::End),
}

impl End {
    /// The reason's name in counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Mqtt(end) => end.name(),
            Self::Amqp091(end) => end.name(),
        }
    }

    /// It was not let in because of its name or password.
    #[must_use]
    pub const fn is_login_refusal(&self) -> bool {
        matches!(
            self,
            Self::Mqtt(
                mqtt::connection::End::Refused(
                    ConnectReturnCode::BadUserNameOrPassword | ConnectReturnCode::NotAuthorized
                ) | mqtt::connection::End::RefusedFor(
                    ReasonCode::BadUserNameOrPassword | ReasonCode::NotAuthorized
                )
            ) | Self::Amqp091(amqp091::connection::End::LoginRefused)
        )
    }

    /// Nothing can be sent to it any more.
    #[must_use]
    pub const fn is_peer_closed(&self) -> bool {
        matches!(
            self,
            Self::Mqtt(mqtt::connection::End::PeerClosed)
                | Self::Amqp091(amqp091::connection::End::PeerClosed)
        )
    }

    /// The client took leave, or is gone: it is told nothing that it could miss.
    #[must_use]
    pub const fn is_by_peer(&self) -> bool {
        match self {
            Self::Mqtt(end) => matches!(
                end,
                mqtt::connection::End::Disconnect
                    | mqtt::connection::End::DisconnectWithWill(_)
                    | mqtt::connection::End::PeerClosed
            ),
            Self::Amqp091(end) => {
                matches!(end, amqp091::connection::End::Closed | amqp091::connection::End::PeerClosed)
            }
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mqtt(end) => end.fmt(f),
            Self::Amqp091(end) => end.fmt(f),
        }
    }
}

/// A connection's state in its protocol.
#[derive(Debug)]
pub(super) enum ProtocolEndpoint {
    Mqtt(mqtt::connection::Connection),
    Amqp091(Box<amqp091::connection::Connection>),
}

impl ProtocolEndpoint {
    pub fn new(
        protocol: Protocol,
        id: ConnectionId,
        now: Mono,
        allow_anonymous: bool,
        user: Option<Box<str>>,
    ) -> Self {
        match protocol {
            Protocol::Mqtt => {
                let mut connection = mqtt::connection::Connection::new(id, now, allow_anonymous);
                if let Some(user) = user {
                    connection.vouch_for(user);
                }
                Self::Mqtt(connection)
            }
            Protocol::Amqp091 => {
                let mut connection = amqp091::connection::Connection::new(id, now, allow_anonymous);
                if let Some(user) = user {
                    connection.vouch_for(user);
                }
                Self::Amqp091(Box::new(connection))
            }
        }
    }

    pub const fn as_mqtt(&self) -> Option<&mqtt::connection::Connection> {
        match self {
            Self::Mqtt(connection) => Some(connection),
            Self::Amqp091(_) => None,
        }
    }

    pub const fn as_mqtt_mut(&mut self) -> Option<&mut mqtt::connection::Connection> {
        match self {
            Self::Mqtt(connection) => Some(connection),
            Self::Amqp091(_) => None,
        }
    }

    pub fn as_amqp091_mut(&mut self) -> Option<&mut amqp091::connection::Connection> {
        match self {
            Self::Mqtt(_) => None,
            Self::Amqp091(connection) => Some(connection),
        }
    }

    pub fn output(&mut self) -> &mut OutputBuffer {
        match self {
            Self::Mqtt(connection) => &mut connection.output,
            Self::Amqp091(connection) => connection.output(),
        }
    }

    pub fn output_bytes(&self) -> usize {
        match self {
            Self::Mqtt(connection) => connection.output.len(),
            Self::Amqp091(connection) => connection.output_bytes(),
        }
    }

    /// True once the client has joined.
    pub fn is_joined(&self) -> bool {
        match self {
            Self::Mqtt(connection) => connection.queue().is_some(),
            Self::Amqp091(connection) => connection.is_open(),
        }
    }

    pub fn identity(&self) -> Identity<'_> {
        match self {
            Self::Mqtt(connection) => connection.identity(),
            Self::Amqp091(connection) => {
                Identity { username: connection.user(), client_identifier: connection.client() }
            }
        }
    }

    pub fn deadline(&self) -> Option<Mono> {
        match self {
            Self::Mqtt(connection) => connection.deadline(),
            Self::Amqp091(connection) => connection.deadline(),
        }
    }

    /// True while it owes so many answers that it is not read.
    pub fn owes_too_much(&self) -> bool {
        match self {
            Self::Mqtt(connection) => connection.owes_too_much(),
            Self::Amqp091(connection) => connection.owes_too_much(),
        }
    }

    /// Its silence until now is not its own doing.
    pub fn excuse(&mut self, now: Mono) {
        match self {
            Self::Mqtt(connection) => connection.excuse(now),
            Self::Amqp091(connection) => connection.excuse(now),
        }
    }

    /// The end of a connection whose peer is gone.
    pub const fn peer_closed(&self) -> End {
        match self {
            Self::Mqtt(_) => End::Mqtt(mqtt::connection::End::PeerClosed),
            Self::Amqp091(_) => End::Amqp091(amqp091::connection::End::PeerClosed),
        }
    }

    /// The end of a connection whose input is too much for memory.
    pub const fn out_of_memory(&self) -> End {
        match self {
            Self::Mqtt(_) => End::Mqtt(mqtt::connection::End::OutOfMemory),
            Self::Amqp091(_) => End::Amqp091(amqp091::connection::End::OutOfMemory),
        }
    }

    /// Whether a client without a name may enter, from now on.
    pub const fn set_allow_anonymous(&mut self, allow_anonymous: bool) {
        match self {
            Self::Mqtt(connection) => connection.set_allow_anonymous(allow_anonymous),
            Self::Amqp091(connection) => connection.set_allow_anonymous(allow_anonymous),
        }
    }

    /// True when its certificate proves its user name.
    pub fn is_vouched_for(&self) -> bool {
        match self {
            Self::Mqtt(connection) => connection.is_vouched_for(),
            Self::Amqp091(connection) => connection.is_vouched_for(),
        }
    }

    /// The end of a connection that the operator ends.
    pub const fn kicked(&self) -> End {
        match self {
            Self::Mqtt(_) => End::Mqtt(mqtt::connection::End::Kicked),
            Self::Amqp091(_) => End::Amqp091(amqp091::connection::End::Kicked),
        }
    }

    /// The end of a connection when the gateway stops.
    pub const fn shutdown(&self) -> End {
        match self {
            Self::Mqtt(_) => End::Mqtt(mqtt::connection::End::Shutdown),
            Self::Amqp091(_) => End::Amqp091(amqp091::connection::End::Shutdown),
        }
    }
}
