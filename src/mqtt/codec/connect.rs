//! CONNECT. MQTT 3.1.1 section 3.1; 3.1 section 3.1 where it differs.
//!
//! ```text
//! string   protocol name      "MQTT" | "MQIsdp"
//! byte     protocol level     4 | 3, bit 7: the peer is a bridge
//! byte     flags              user name, password, will retain, will QoS (2 bits), will, clean session, 0
//! u16      keep alive, seconds
//! string   client identifier
//! string   will topic         if will
//! binary   will message       if will
//! string   user name          if user name
//! binary   password           if password
//! ```

use std::fmt;

use super::error::{EncodeError, Fault, ProtocolError};
use super::value::{PacketType, ProtocolVersion, QualityOfService};
use super::wire::{Reader, field_bytes, put_binary, put_fixed_header};
use crate::mqtt::topic::TopicName;

/// A client's request for a session. Whether its client identifier is acceptable is for the endpoint to say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Connect<'a> {
    pub version: ProtocolVersion,
    /// The level had bit 7 set, as Mosquitto's bridges do: publishes of this peer are not sent back to it.
    pub bridge: bool,
    pub clean_session: bool,
    /// Seconds; 0 turns the mechanism off.
    pub keep_alive_s: u16,
    /// May be empty: the server names the client, if the session is clean. [MQTT-3.1.3-6]
    pub client_identifier: &'a str,
    pub will: Option<Will<'a>>,
    pub user_name: Option<&'a str>,
    pub password: Option<&'a [u8]>,
}

/// Message that the server publishes when the connection ends without DISCONNECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Will<'a> {
    pub topic: TopicName<'a>,
    pub payload: &'a [u8],
    pub qos: QualityOfService,
    pub retain: bool,
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
        let client_identifier = reader.string()?;
        let will = if flags & WILL == 0 { None } else { Some(Will::decode(&mut reader, flags)?) };
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
    fn decode(reader: &mut Reader<'a>, flags: u8) -> Result<Self, ProtocolError> {
        let topic = TopicName::parse(reader.topic_string()?).map_err(ProtocolError::topic_name)?;
        let payload = reader.binary()?;
        let qos = QualityOfService::try_from(flags >> WILL_QOS_SHIFT & 0b11)?;
        Ok(Self { topic, payload, qos, retain: flags & WILL_RETAIN != 0 })
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
            .finish()
    }
}

/// Protocol name and level. A foreign name is no MQTT; a foreign level of a known name is a version that is not
/// spoken and gets its CONNACK. [MQTT-3.1.2-1], [MQTT-3.1.2-2]
fn protocol(reader: &mut Reader<'_>) -> Result<(ProtocolVersion, bool), ProtocolError> {
    let name = reader.binary()?;
    let expected = match name {
        b"MQTT" => ProtocolVersion::V311,
        b"MQIsdp" => ProtocolVersion::V31,
        _ => return Err(ProtocolError::violation("protocol name is not MQTT", "MQTT-3.1.2-1")),
    };
    let level = reader.byte()?;
    if level & !BRIDGE != expected.level() {
        return Err(ProtocolError {
            fault: Fault::UnacceptableProtocolVersion,
            detail: "protocol level is not spoken",
            rule: "MQTT-3.1.2-2",
        });
    }
    Ok((expected, level & BRIDGE != 0))
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
    if flags & PASSWORD != 0 && flags & USER_NAME == 0 {
        return Err(ProtocolError::malformed("password without user name", "MQTT-3.1.2-22"));
    }
    Ok(())
}

/// Appends a CONNECT.
pub fn encode_connect(out: &mut Vec<u8>, connect: &Connect<'_>) -> Result<(), EncodeError> {
    if connect.password.is_some() && connect.user_name.is_none() {
        return Err(EncodeError::PasswordWithoutUserName);
    }
    let will = connect.will.map(|will| (will.topic.as_str().as_bytes(), will.payload));
    let payload = [
        Some(connect.client_identifier.as_bytes()),
        will.map(|(topic, _)| topic),
        will.map(|(_, message)| message),
        connect.user_name.map(str::as_bytes),
        connect.password,
    ];
    let name = connect.version.name().as_bytes();
    // Protocol name, level, flags, keep alive.
    let mut remaining_length = field_bytes(name).saturating_add(4);
    for field in payload.iter().flatten() {
        super::wire::field_length(field)?;
        remaining_length = remaining_length.saturating_add(field_bytes(field));
    }
    put_fixed_header(out, PacketType::Connect.first_byte(), remaining_length, remaining_length)?;
    put_binary(out, name)?;
    out.push(connect.version.level() | if connect.bridge { BRIDGE } else { 0 });
    out.push(connect.flags());
    out.extend_from_slice(&connect.keep_alive_s.to_be_bytes());
    for field in payload.iter().flatten() {
        put_binary(out, field)?;
    }
    Ok(())
}
