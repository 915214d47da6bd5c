//! CONNECT and its answer: who the client is, whether it may come in, and on which terms. MQTT 3.1.1 and 5 sections 3.1
//! and 3.2.

use super::codec::{
    ConnAck5, Connect, ConnectReturnCode, Fault, PacketType, Properties, PropertyId, PropertyList,
    ProtocolError, ProtocolVersion, ReasonCode, encode_connack, encode_connack5, version_of_answer,
};
use super::connection::{Connection, Context, End, Next, State, assurance};
use super::owed::Reply;
use super::topic::TopicFilter;
use super::version5::{Version5, relayed};
use crate::broker::{SessionTerms, Will};
use crate::limits;
use crate::message::{Message, PROPERTIES_MQTT5, is_reserved};
use crate::output::OutputBuffer;

/// A CONNECT whose password is being checked.
#[derive(Debug)]
pub(super) struct PendingConnect {
    terms: SessionTerms,
    will: Option<(Message, u32)>,
}

/// Why a client may not come in, for versions before 5 and for 5.
struct Refusal {
    code: ConnectReturnCode,
    reason: ReasonCode,
    text: &'static str,
}

const IDENTIFIER_REJECTED: Refusal = Refusal {
    code: ConnectReturnCode::IdentifierRejected,
    reason: ReasonCode::ClientIdentifierNotValid,
    text: "the client identifier is too long",
};

const NAME_OR_PASSWORD: Refusal = Refusal {
    code: ConnectReturnCode::NotAuthorized,
    reason: ReasonCode::BadUserNameOrPassword,
    text: "the user name or the password is wrong",
};

const NO_NAME: Refusal = Refusal {
    code: ConnectReturnCode::NotAuthorized,
    reason: ReasonCode::NotAuthorized,
    text: "clients need a user name and a password here",
};

const WILL_NOT_ALLOWED: Refusal = Refusal {
    code: ConnectReturnCode::NotAuthorized,
    reason: ReasonCode::NotAuthorized,
    text: "the access rules do not let this client publish its will",
};

const WILL_RESERVED: Refusal = Refusal {
    code: ConnectReturnCode::NotAuthorized,
    reason: ReasonCode::NotAuthorized,
    text: "the will's topic is the gateway's own, as all under $SYS",
};

const NO_ROOM_FOR_WILL: Refusal = Refusal {
    code: ConnectReturnCode::ServerUnavailable,
    reason: ReasonCode::QuotaExceeded,
    text: "there is no room for the will",
};

const WILL_TOO_LARGE: Refusal = Refusal {
    code: ConnectReturnCode::ServerUnavailable,
    reason: ReasonCode::PacketTooLarge,
    text: "the body of the will is larger than limits.message_bytes_max",
};

const TOO_MANY_SESSIONS: Refusal = Refusal {
    code: ConnectReturnCode::ServerUnavailable,
    reason: ReasonCode::ServerBusy,
    text: "sessions_max is reached",
};

const AUTHENTICATION_METHOD: Refusal = Refusal {
    code: ConnectReturnCode::NotAuthorized,
    reason: ReasonCode::BadAuthenticationMethod,
    text: "no authentication method is supported: use a user name and a password",
};

const CONNACK_TOO_LARGE: Refusal = Refusal {
    code: ConnectReturnCode::ServerUnavailable,
    reason: ReasonCode::PacketTooLarge,
    text: "the client's maximum packet size is less than CONNACK takes",
};

const WILL_RETAIN: Refusal = Refusal {
    code: ConnectReturnCode::ServerUnavailable,
    reason: ReasonCode::RetainNotSupported,
    text: "retained messages are not kept here",
};

impl Connection {
    pub(super) fn handle_connect(&mut self, context: &mut Context<'_>, connect: &Connect<'_>) -> Next {
        self.version = connect.version;
        self.bridge = connect.bridge;
        self.keep_alive_s = connect.keep_alive_s;
        self.client_identifier = connect.client_identifier.into();
        let mut terms = SessionTerms::clean(connect.clean_session);
        if connect.version == ProtocolVersion::V5 {
            let version5 = Version5::of(connect);
            terms.expiry_s = version5.session_expiry_s;
            self.version5 = Some(Box::new(version5));
            if let Err(refusal) = self.check_version5(context, connect) {
                return self.refuse(&refusal);
            }
        }
        if let Err(refusal) = self.name_client(context, connect) {
            return self.refuse(&refusal);
        }
        if connect.will.is_some_and(|will| will.payload.len() > context.policy.message_bytes_max) {
            return self.refuse(&WILL_TOO_LARGE);
        }
        let will = will(context, connect);
        if self.is_vouched_for {
            return self.join(context, terms, will);
        }
        let Some(users) = context.users else {
            // Nobody vouches for a name, so none is taken.
            if !self.allow_anonymous {
                return self.refuse(&NO_NAME);
            }
            return self.join(context, terms, will);
        };
        let Some(name) = connect.user_name else {
            if !self.allow_anonymous {
                return self.refuse(&NO_NAME);
            }
            return self.join(context, terms, will);
        };
        self.user_name = Some(name.into());
        let password = connect.password.unwrap_or_default();
        if (context.verified)(name, password) {
            return self.join(context, terms, will);
        }
        // An unknown name costs the same as a known one, so that names cannot be told apart by time.
        let Some(challenge) = users.challenge(name) else {
            return self.refuse(&NAME_OR_PASSWORD);
        };
        self.state = State::Verifying(Box::new(PendingConnect { terms, will }));
        Next::Verify { challenge, password: password.into() }
    }

    /// The password that [`Next::Verify`] asked about was checked.
    pub fn verified(&mut self, context: &mut Context<'_>, genuine: bool) -> Next {
        let State::Verifying(pending) = std::mem::replace(&mut self.state, State::AwaitConnect) else {
            return Next::Continue;
        };
        if genuine { self.join(context, pending.terms, pending.will) } else { self.refuse(&NAME_OR_PASSWORD) }
    }

    /// The packet at the front of `input` cannot be read. A CONNECT is answered, where there is an answer; what comes
    /// later is told when the connection ends.
    pub fn unreadable(&mut self, input: &[u8], error: ProtocolError) -> End {
        if !matches!(self.state, State::AwaitConnect) {
            return End::Protocol(error);
        }
        let is_connect = input.first().is_some_and(|byte| byte >> 4 == PacketType::Connect as u8);
        match version_of_answer(input) {
            ProtocolVersion::V5 if is_connect => {
                let (reason, text) = (error.fault.reason_code(), error.detail);
                let reason =
                    if reason.fits(PacketType::ConnAck) { reason } else { ReasonCode::ProtocolError };
                put_refusal(&mut self.output, reason, text, usize::MAX);
                if error.fault == Fault::UnacceptableProtocolVersion {
                    return End::RefusedFor(reason);
                }
            }
            ProtocolVersion::V31 | ProtocolVersion::V311
                if error.fault == Fault::UnacceptableProtocolVersion =>
            {
                // [MQTT-3.1.2-2]
                let code = ConnectReturnCode::UnacceptableProtocolVersion;
                self.output.append(|out| encode_connack(out, false, code, ProtocolVersion::V311));
                return End::Refused(code);
            }
            ProtocolVersion::V31 | ProtocolVersion::V311 | ProtocolVersion::V5 => {}
        }
        End::Protocol(error)
    }

    fn check_version5(&mut self, context: &Context<'_>, connect: &Connect<'_>) -> Result<(), Refusal> {
        if connect.properties.text(PropertyId::AuthenticationMethod).is_some() {
            // [MQTT-4.12.0-1]
            return Err(AUTHENTICATION_METHOD);
        }
        if connect.will.is_some_and(|will| will.retain) && !context.broker.retains() {
            // [MQTT-3.2.2-13]
            return Err(WILL_RETAIN);
        }
        let longest = context.policy.keep_alive_max_s;
        if longest > 0 && (self.keep_alive_s == 0 || self.keep_alive_s > longest) {
            // [MQTT-3.2.2-21]
            self.keep_alive_s = longest;
            if let Some(version5) = &mut self.version5 {
                version5.keep_alive_chosen = true;
            }
        }
        Ok(())
    }

    fn name_client(&mut self, context: &Context<'_>, connect: &Connect<'_>) -> Result<(), Refusal> {
        if connect.client_identifier.is_empty() {
            match &mut self.version5 {
                Some(version5) => version5.identifier_assigned = true,
                // [MQTT-3.1.3-7], [MQTT-3.1.3-8]; MQTT 3.1 demands an identifier.
                None if !connect.clean_session || connect.version == ProtocolVersion::V31 => {
                    return Err(IDENTIFIER_REJECTED);
                }
                None => {}
            }
            self.client_identifier = format!("auto-{:016X}", context.random).into();
        }
        if self.client_identifier.len() > limits::CLIENT_IDENTIFIER_BYTES_MAX {
            return Err(IDENTIFIER_REJECTED);
        }
        Ok(())
    }

    fn join(
        &mut self,
        context: &mut Context<'_>,
        terms: SessionTerms,
        mut will: Option<(Message, u32)>,
    ) -> Next {
        if let Some((message, _)) = &will
            && !self.may_publish(context, &message.address)
        {
            match (is_reserved(&message.address), &self.version5) {
                // Taken and dropped, as a PUBLISH there is: Mosquitto's bridges have such a will by default.
                (true, None) => will = None,
                (true, Some(_)) => return self.refuse(&WILL_RESERVED),
                (false, _) => return self.refuse(&WILL_NOT_ALLOWED),
            }
        }
        if will.as_ref().is_some_and(|(will, _)| !context.broker.may_register_will(will)) {
            return self.refuse(&NO_ROOM_FOR_WILL);
        }
        let properties = self.terms_told(context);
        if self.version5.as_ref().is_some_and(|v5| connack_bytes(&properties) > v5.packet_bytes_max) {
            // [MQTT-3.1.2-24]: what it says may not be left out.
            return self.refuse(&CONNACK_TOO_LARGE);
        }
        let opened = context.broker.open_session(context.now, &self.client_identifier, terms, self.id);
        let Ok(opened) = opened else { return self.refuse(&TOO_MANY_SESSIONS) };
        self.queue = Some(opened.queue);
        self.will = will.map(|(will, delay_s)| {
            let (client, user) = (self.client_identifier.clone(), self.user_name.clone());
            let will = Will { client, user, message: will, delay_s, waits_since: None };
            context.broker.set_will(context.now, will)
        });
        self.state = State::Joining;
        if let Some(version5) = &mut self.version5 {
            version5.session = opened.id;
        }
        if let Some(batch) = opened.gate.batch() {
            context.broker.await_batch(batch, self.id);
        }
        self.owed.push(opened.gate, Reply::ConnAck { session_present: opened.present, properties });
        Next::Continue
    }

    /// What CONNACK of version 5 says about the gateway: where it differs from what a client assumes.
    fn terms_told(&self, context: &Context<'_>) -> Box<[u8]> {
        let Some(version5) = &self.version5 else { return Box::default() };
        let mut list = PropertyList::new();
        if let Some(most) = context.broker.session_expiry_max() {
            let most_s = u32::try_from(most.as_secs()).unwrap_or(u32::MAX);
            if version5.session_expiry_s > most_s {
                list.number(PropertyId::SessionExpiryInterval, most_s);
            }
        }
        list.number(PropertyId::ReceiveMaximum, u32::from(limits::RECEIVE_MAXIMUM));
        if !context.broker.retains() {
            list.number(PropertyId::RetainAvailable, 0);
        }
        let packet_bytes_max = u32::try_from(context.policy.packet_bytes_max).unwrap_or(u32::MAX);
        list.number(PropertyId::MaximumPacketSize, packet_bytes_max);
        if version5.identifier_assigned {
            list.text(PropertyId::AssignedClientIdentifier, &self.client_identifier);
        }
        list.number(PropertyId::TopicAliasMaximum, u32::from(limits::TOPIC_ALIASES_MAX));
        if version5.keep_alive_chosen {
            list.number(PropertyId::ServerKeepAlive, u32::from(self.keep_alive_s));
        }
        let mut bytes = list.into_bytes();
        if version5.response_information
            && let Some(responses) = self.response_information(context)
        {
            let mut list = PropertyList::new();
            list.text(PropertyId::ResponseInformation, &responses);
            // [MQTT-3.1.2-24]
            let whole = [&bytes, list.as_properties().as_bytes()].concat();
            if connack_bytes(&whole) <= version5.packet_bytes_max {
                bytes.extend_from_slice(list.as_properties().as_bytes());
            }
        }
        bytes.into()
    }

    /// Topics under this are the client's for the responses to its requests, unless the access rules say otherwise.
    fn response_information(&self, context: &Context<'_>) -> Option<String> {
        let name = &*self.client_identifier;
        if name.contains(['/', '+', '#']) {
            return None;
        }
        let responses = format!("response/{name}");
        let filter = format!("{responses}/#");
        TopicFilter::parse(&filter).ok()?;
        let allowed = context.acl.is_none_or(|acl| acl.may_subscribe(self.identity(), &filter));
        allowed.then_some(responses)
    }

    fn refuse(&mut self, refusal: &Refusal) -> Next {
        let version = self.version;
        let Some(version5) = &self.version5 else {
            self.output.append(|out| encode_connack(out, false, refusal.code, version));
            return Next::End(End::Refused(refusal.code));
        };
        let packet_bytes_max = version5.packet_bytes_max;
        put_refusal(&mut self.output, refusal.reason, refusal.text, packet_bytes_max);
        Next::End(End::RefusedFor(refusal.reason))
    }
}

/// Bytes of a CONNACK of version 5 with these properties.
fn connack_bytes(properties: &[u8]) -> usize {
    let mut out = Vec::new();
    let properties = Properties::from_checked(properties);
    let connack = ConnAck5 { session_present: false, reason: ReasonCode::Success, properties };
    encode_connack5(&mut out, &connack).map_or(usize::MAX, |()| out.len())
}

/// CONNACK of version 5 that says no, and why.
fn put_refusal(output: &mut OutputBuffer, reason: ReasonCode, text: &str, packet_bytes_max: usize) {
    let mut list = PropertyList::new();
    list.text(PropertyId::ReasonString, text);
    output.append(|out| {
        let start = out.len();
        let connack = ConnAck5 { session_present: false, reason, properties: list.as_properties() };
        // A reason string is a short text of ours.
        let _fits = encode_connack5(out, &connack);
        if out.len() - start > packet_bytes_max {
            // [MQTT-3.2.2-19]
            out.truncate(start);
            let _fits = encode_connack5(out, &ConnAck5 { properties: Properties::NONE, ..connack });
            if out.len() - start > packet_bytes_max {
                out.truncate(start);
            }
        }
    });
}

/// The will of a CONNECT and its delay in seconds.
fn will(context: &Context<'_>, connect: &Connect<'_>) -> Option<(Message, u32)> {
    let will = connect.will.as_ref()?;
    let mut stored = Vec::new();
    relayed(will.properties, &mut stored);
    if !stored.is_empty() {
        stored.insert(0, PROPERTIES_MQTT5);
    }
    let lasts_s = will.properties.number(PropertyId::MessageExpiryInterval);
    let message = Message {
        address: will.topic.as_str().into(),
        body: bytes::Bytes::copy_from_slice(will.payload),
        assurance: assurance(will.qos),
        retain: will.retain,
        received_at: context.now.wall,
        received_trusted: context.now.wall_trusted,
        properties: stored.into(),
        time_to_live_ms: lasts_s.map(|seconds| u64::from(seconds) * 1000),
        ..Message::default()
    };
    let delay_s = will.properties.number(PropertyId::WillDelayInterval).unwrap_or(0);
    Some((message, delay_s))
}
