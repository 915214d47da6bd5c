//! CONNECT. MQTT 3.1.1 section 3.1; 3.1 and 5 section 3.1 where they differ.
//!
//! ```text
//! string   protocol name      "MQTT" | "MQIsdp"
//! byte     protocol level     5 | 4 | 3, bit 7: the peer is a bridge
//! byte     flags              user name, password, will retain, will QoS (2 bits), will, clean session, 0
//! u16      keep alive, seconds
//!          properties         5 only
//! string   client identifier
//!          will properties    if will, 5 only
//! string   will topic         if will
//! binary   will message       if will
//! string   user name          if user name
//! binary   password           if password
//! ```

use std::fmt;

use super::error::{EncodeError, Fault, ProtocolError};
use super::properties::{Place, Properties, PropertyId};
use super::value::{PacketType, ProtocolVersion, QualityOfService};
use super::wire::{Reader, field_bytes, properties_bytes, put_binary, put_fixed_header, put_properties};
use crate::mqtt::topic::TopicName;

/// A client's request for a session. Whether its client identifier is acceptable is for the endpoint to say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Connect<'a> {
    pub version: ProtocolVersion,
    /// The level had bit 7 set, as Mosquitto's bridges do: publishes of this peer are not sent back to it.
    pub bridge: bool,
    /// Version 5 calls it Clean Start: what follows the connection is the session expiry interval's to say.
    pub clean_session: bool,
    /// Seconds; 0 turns the mechanism off.
    pub keep_alive_s: u16,
    /// May be empty: the server names the client, if the session is clean. [MQTT-3.1.3-6]
    pub client_identifier: &'a str,
    pub will: Option<Will<'a>>,
    pub user_name: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    /// None before version 5.
    pub properties: Properties<'a>,
}

/// Message that the server publishes when the connection ends without DISCONNECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Will<'a> {
    pub topic: TopicName<'a>,
    pub payload: &'a [u8],
    pub qos: QualityOfService,
    pub retain: bool,
    /// None before version 5.
    pub properties: Properties<'a>,
}

const USER_NAME: u8 = 0b1000_0000;
const PASSWORD: u8 = 0b0100_0000;
const WILL_RETAIN: u8 = 0b0010_0000;
const WILL_QOS_SHIFT: u32 = 3;
const WILL: u8 = 0b0000_0100;
const CLEAN_SESSION: u8 = 0b0000_0010;
const RESERVED: u8 = 0b0000_0001;
const BRIDGE: u8 = 0b1000_0000;

impl<'a> Connect<'a> {
    /// Reads the body of a CONNECT. Of an unknown protocol level nothing further is read.
    pub(super) fn decode(body: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(body);
        let (version, bridge) = protocol(&mut reader)?;
        let flags = reader.byte()?;
        check_flags(flags, version)?;
        let keep_alive_s = reader.two_bytes()?;
        let mut properties = Properties::NONE;
        if version == ProtocolVersion::V5 {
            properties = Properties::decode(&mut reader, Place::Packet(PacketType::Connect))?;
            check_authentication(properties)?;
        }
        let client_identifier = reader.string()?;
        let will = if flags & WILL == 0 { None } else { Some(Will::decode(&mut reader, flags, version)?) };
        // MQTT 3.1 lets the remaining length overrule the two flags: the strings may be missing.
        let absent = |reader: &Reader<'_>| version == ProtocolVersion::V31 && reader.is_empty();
        let user_name = if flags & USER_NAME == 0 || absent(&reader) { None } else { Some(reader.string()?) };
        let password = if flags & PASSWORD == 0 || absent(&reader) { None } else { Some(reader.binary()?) };
        reader.finish()?;
        Ok(Self {
            version,
            bridge,
            clean_session: flags & CLEAN_SESSION != 0,
            keep_alive_s,
            client_identifier,
            will,
            user_name,
            password,
            properties,
        })
    }

    fn flags(&self) -> u8 {
        let mut flags = 0;
        if self.clean_session {
            flags |= CLEAN_SESSION;
        }
        if let Some(will) = &self.will {
            flags |= WILL | u8::from(will.qos) << WILL_QOS_SHIFT;
            if will.retain {
                flags |= WILL_RETAIN;
            }
        }
        if self.user_name.is_some() {
            flags |= USER_NAME;
        }
        if self.password.is_some() {
            flags |= PASSWORD;
        }
        flags
    }
}

impl<'a> Will<'a> {
    fn decode(reader: &mut Reader<'a>, flags: u8, version: ProtocolVersion) -> Result<Self, ProtocolError> {
        let properties = match version {
            ProtocolVersion::V5 => Properties::decode(reader, Place::Will)?,
            ProtocolVersion::V31 | ProtocolVersion::V311 => Properties::NONE,
        };
        let topic = TopicName::parse(reader.topic_string()?).map_err(ProtocolError::topic_name)?;
        let payload = reader.binary()?;
        let qos = QualityOfService::try_from(flags >> WILL_QOS_SHIFT & 0b11)?;
        Ok(Self { topic, payload, qos, retain: flags & WILL_RETAIN != 0, properties })
    }
}

/// Secrets stay out of logs.
impl fmt::Debug for Connect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("version", &self.version)
            .field("bridge", &self.bridge)
            .field("clean_session", &self.clean_session)
            .field("keep_alive_s", &self.keep_alive_s)
            .field("client_identifier", &self.client_identifier)
            .field("will", &self.will)
            .field("user_name", &self.user_name)
            .field("password", &self.password.map(|_| "(hidden)"))
            .finish_non_exhaustive()
    }
}

/// Protocol name and level. A foreign name is no MQTT; a foreign level of a known name is a version that is not
/// spoken and gets its CONNACK. [MQTT-3.1.2-1], [MQTT-3.1.2-2]
fn protocol(reader: &mut Reader<'_>) -> Result<(ProtocolVersion, bool), ProtocolError> {
    let name = reader.binary()?;
    let spoken: &[ProtocolVersion] = match name {
        b"MQTT" => &[ProtocolVersion::V311, ProtocolVersion::V5],
        b"MQIsdp" => &[ProtocolVersion::V31],
        _ => return Err(ProtocolError::violation("protocol name is not MQTT", "MQTT-3.1.2-1")),
    };
    let level = reader.byte()?;
    let Some(version) = spoken.iter().find(|version| version.level() == level & !BRIDGE) else {
        return Err(ProtocolError {
            fault: Fault::UnacceptableProtocolVersion,
            detail: "protocol level is not spoken",
            rule: "MQTT-3.1.2-2",
        });
    };
    Ok((*version, level & BRIDGE != 0))
}

/// The version in which the sender of a CONNECT that cannot be read expects its answer, as far as its first bytes
/// tell: whoever speaks a later version than 5 understands 5 at best.
#[must_use]
pub fn version_of_answer(input: &[u8]) -> ProtocolVersion {
    let after_length = input
        .iter()
        .skip(1)
        .position(|byte| byte & 0x80 == 0)
        .and_then(|at| input.get(at.saturating_add(2)..));
    let level = after_length.and_then(|body| body.strip_prefix(b"\x00\x04MQTT")).and_then(<[u8]>::first);
    match level {
        Some(level) if level & !BRIDGE >= ProtocolVersion::V5.level() => ProtocolVersion::V5,
        Some(_) | None => ProtocolVersion::V311,
    }
}

/// Section 3.1.2.11.10.
fn check_authentication(properties: Properties<'_>) -> Result<(), ProtocolError> {
    let method = properties.text(PropertyId::AuthenticationMethod);
    if method.is_none() && properties.data(PropertyId::AuthenticationData).is_some() {
        return Err(ProtocolError::violation("authentication data without a method", "section 3.1.2.11.10"));
    }
    Ok(())
}

fn check_flags(flags: u8, version: ProtocolVersion) -> Result<(), ProtocolError> {
    let strict = version != ProtocolVersion::V31;
    if strict && flags & RESERVED != 0 {
        return Err(ProtocolError::malformed("reserved CONNECT flag is set", "MQTT-3.1.2-3"));
    }
    let will_qos = flags >> WILL_QOS_SHIFT & 0b11;
    if flags & WILL == 0 {
        if strict && will_qos != 0 {
            return Err(ProtocolError::malformed("will QoS without a will", "MQTT-3.1.2-13"));
        }
        if strict && flags & WILL_RETAIN != 0 {
            return Err(ProtocolError::malformed("will retain without a will", "MQTT-3.1.2-15"));
        }
    } else if will_qos > 2 {
        return Err(ProtocolError::malformed("will QoS is 3", "MQTT-3.1.2-14"));
    }
    if version != ProtocolVersion::V5 && flags & PASSWORD != 0 && flags & USER_NAME == 0 {
        return Err(ProtocolError::malformed("password without user name", "MQTT-3.1.2-22"));
    }
    Ok(())
}

/// Appends a CONNECT.
pub fn encode_connect(out: &mut Vec<u8>, connect: &Connect<'_>) -> Result<(), EncodeError> {
    let with_properties = connect.version == ProtocolVersion::V5;
    if connect.password.is_some() && connect.user_name.is_none() && !with_properties {
        return Err(EncodeError::PasswordWithoutUserName);
    }
    let will = connect.will.map(|will| (will.topic.as_str().as_bytes(), will.payload));
    let payload = [
        will.map(|(topic, _)| topic),
        will.map(|(_, message)| message),
        connect.user_name.map(str::as_bytes),
        connect.password,
    ];
    let name = connect.version.name().as_bytes();
    let properties = Some(connect.properties).filter(|_| with_properties);
    let will_properties = connect.will.map(|will| will.properties).filter(|_| with_properties);
    // Protocol name, level, flags, keep alive.
    let mut remaining_length = field_bytes(name)
        .saturating_add(4)
        .saturating_add(properties_bytes(properties))
        .saturating_add(properties_bytes(will_properties));
    for field in std::iter::once(&connect.client_identifier.as_bytes()).chain(payload.iter().flatten()) {
        super::wire::field_length(field)?;
        remaining_length = remaining_length.saturating_add(field_bytes(field));
    }
    put_fixed_header(out, PacketType::Connect.first_byte(), remaining_length, remaining_length)?;
    put_binary(out, name)?;
    out.push(connect.version.level() | if connect.bridge { BRIDGE } else { 0 });
    out.push(connect.flags());
    out.extend_from_slice(&connect.keep_alive_s.to_be_bytes());
    properties.map_or(Ok(()), |properties| put_properties(out, properties))?;
    put_binary(out, connect.client_identifier.as_bytes())?;
    will_properties.map_or(Ok(()), |properties| put_properties(out, properties))?;
    for field in payload.iter().flatten() {
        put_binary(out, field)?;
    }
    Ok(())
}
