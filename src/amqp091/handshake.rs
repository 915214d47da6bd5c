//! Opening a connection: what the gateway says of itself, SASL, limits. Specification sections 1.4 and 2.2.4.
//!
//! The capabilities list what works, and nothing else: clients act on it.

use super::codec::method::connection;
use super::codec::{Arguments, FieldTable, FieldTableBuilder, FieldValue, LongString, ReplyCode};
use super::connection::{Connection, End, Next, State};
use super::fault::Fault;
use super::link::{Context, FRAME_MAX_BYTES};

pub(super) const CHANNEL_MAX: u16 = 2047;
const HEARTBEAT_S: u16 = 60;
/// The least that the specification allows, which old clients propose.
const FRAME_MIN_BYTES: u32 = 4096;

const CAPABILITIES: [&str; 9] = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
];

/// Name and password as the client gave them.
struct Credentials {
    name: String,
    password: Box<[u8]>,
}

impl Connection {
    pub(super) fn send_start(&mut self) {
        let mut capabilities = FieldTableBuilder::new();
        for name in CAPABILITIES {
            let _short = capabilities.push(name, FieldValue::Boolean(true));
        }
        let mut properties = FieldTableBuilder::new();
        for (name, value) in [
            ("product", "gatewayd"),
            ("version", env!("CARGO_PKG_VERSION")),
            ("platform", std::env::consts::ARCH),
            ("information", "Licensed under Apache-2.0"),
        ] {
            let _short = properties.push(name, FieldValue::LongString(value.as_bytes()));
        }
        let _short = properties.push("capabilities", FieldValue::Table(capabilities.table()));
        // RFC 4422 appendix A: the certificate that the connection came with says who it is.
        let mechanisms: &[u8] = match self.certified_user {
            Some(_) => b"EXTERNAL PLAIN AMQPLAIN ANONYMOUS",
            None => b"PLAIN AMQPLAIN ANONYMOUS",
        };
        let start = connection::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: properties.table(),
            mechanisms: LongString(mechanisms),
            locales: LongString(b"en_US"),
        };
        self.link.send(0, &start);
    }

    pub(super) fn handle_start_ok(
        &mut self,
        context: &mut Context<'_>,
        start_ok: &connection::StartOk<'_>,
    ) -> Result<Next, Fault> {
        let capabilities = start_ok.client_properties.find("capabilities").and_then(FieldValue::as_table);
        let capable = |name: &str| {
            let found = capabilities.and_then(|table: FieldTable<'_>| table.find(name));
            found.and_then(FieldValue::as_bool).unwrap_or(false)
        };
        self.failure_close = capable("authentication_failure_close");
        self.blocked_notify = capable("connection.blocked");
        self.link.cancel_notify = capable("consumer_cancel_notify");
        self.client = client_name(start_ok.client_properties);
        self.mechanism = start_ok.mechanism.into();
        let response = start_ok.response.0;
        let credentials = match start_ok.mechanism {
            "PLAIN" => plain(response)?,
            "AMQPLAIN" => amqplain(response)?,
            "ANONYMOUS" => {
                // With users it needs the listener's consent, as in MQTT.
                if !self.allow_anonymous {
                    return Ok(self.refuse_login());
                }
                self.link.user = None;
                return Ok(self.send_tune());
            }
            "EXTERNAL" if self.certified_user.is_some() => {
                let user = self.certified_user.as_deref().unwrap_or_default();
                // An authorization identity may be given, and no other than one's own.
                if !response.is_empty() && response != user.as_bytes() {
                    return Ok(self.refuse_login());
                }
                self.link.user = Some(user.into());
                return Ok(self.send_tune());
            }
            other => {
                return Err(Fault::new(
                    ReplyCode::CommandInvalid,
                    format!("unknown authentication mechanism '{other}'"),
                ));
            }
        };
        let Some(users) = context.users else {
            if self.allow_anonymous && credentials.name == "guest" && &*credentials.password == b"guest" {
                self.link.user = Some("guest".into());
                return Ok(self.send_tune());
            }
            return Ok(self.refuse_login());
        };
        let known = (context.verified)(&credentials.name, &credentials.password);
        self.link.user = Some(credentials.name.as_str().into());
        if known {
            return Ok(self.send_tune());
        }
        // An unknown name costs the same as a known one, so that names cannot be told apart by time.
        let Some(challenge) = users.challenge(&credentials.name) else { return Ok(self.refuse_login()) };
        self.state = State::Verifying;
        Ok(Next::Verify { challenge, password: credentials.password })
    }

    /// The password that [`Next::Verify`] asked about was checked.
    pub fn verified(&mut self, context: &mut Context<'_>, genuine: bool) -> Next {
        match self.state {
            State::Verifying if genuine => self.send_tune(),
            State::Verifying => self.refuse_login(),
            State::Renewing if genuine => self.secret_renewed(),
            State::Renewing => {
                let fault = Fault::new(ReplyCode::NotAllowed, "the new secret was refused");
                let method = <connection::UpdateSecret<'_> as Arguments>::ID;
                self.close_connection(context, &Fault { method, ..fault })
            }
            _ => Next::Continue,
        }
    }

    /// A client shows that it still knows its password, or the new one after that was changed. Without users there is
    /// nothing to compare with.
    pub(super) fn handle_update_secret(
        &mut self,
        context: &mut Context<'_>,
        secret: &[u8],
    ) -> Result<Next, Fault> {
        let (Some(users), Some(name)) = (context.users, self.link.user.as_deref()) else {
            return Ok(self.secret_renewed());
        };
        if (context.verified)(name, secret) {
            return Ok(self.secret_renewed());
        }
        let refused = || Fault::new(ReplyCode::NotAllowed, "the new secret was refused");
        let challenge = users.challenge(name).ok_or_else(refused)?;
        self.state = State::Renewing;
        Ok(Next::Verify { challenge, password: secret.into() })
    }

    fn secret_renewed(&mut self) -> Next {
        self.state = State::Open;
        self.link.send(0, &connection::UpdateSecretOk {});
        Next::Continue
    }

    pub(super) fn handle_tune_ok(&mut self, tune_ok: connection::TuneOk) -> Result<(), Fault> {
        let frame_max = if tune_ok.frame_max == 0 { u32::MAX } else { tune_ok.frame_max };
        if frame_max < FRAME_MIN_BYTES {
            let text =
                format!("negotiated frame_max = {frame_max} is lower than the minimum ({FRAME_MIN_BYTES})");
            return Err(Fault::new(ReplyCode::NotAllowed, text));
        }
        if tune_ok.frame_max as usize > FRAME_MAX_BYTES {
            let text = format!(
                "negotiated frame_max = {} is higher than the maximum allowed value ({FRAME_MAX_BYTES})",
                tune_ok.frame_max
            );
            return Err(Fault::new(ReplyCode::NotAllowed, text));
        }
        if tune_ok.channel_max > CHANNEL_MAX {
            let text = format!(
                "negotiated channel_max = {} is higher than the maximum allowed value ({CHANNEL_MAX})",
                tune_ok.channel_max
            );
            return Err(Fault::new(ReplyCode::NotAllowed, text));
        }
        self.link.frame_bytes_max = (frame_max as usize).min(FRAME_MAX_BYTES);
        self.channel_max = if tune_ok.channel_max == 0 { CHANNEL_MAX } else { tune_ok.channel_max };
        self.heartbeat_s = tune_ok.heartbeat;
        self.state = State::AwaitOpen;
        Ok(())
    }

    pub(super) fn handle_open(&mut self, open: &connection::Open<'_>) -> Result<Next, Fault> {
        // Some clients say nothing where they mean the only one.
        if !matches!(open.virtual_host, "/" | "") {
            let text = format!("vhost {} not found", open.virtual_host);
            return Err(Fault::new(ReplyCode::NotAllowed, text));
        }
        self.state = State::Open;
        self.link.send(0, &connection::OpenOk {});
        Ok(Next::Joined)
    }

    fn send_tune(&mut self) -> Next {
        self.state = State::AwaitTuneOk;
        let frame_max = u32::try_from(FRAME_MAX_BYTES).unwrap_or(u32::MAX);
        self.link.send(0, &connection::Tune { channel_max: CHANNEL_MAX, frame_max, heartbeat: HEARTBEAT_S });
        Next::Continue
    }

    /// Only clients that say so want to be told; others take the closed socket for the answer.
    fn refuse_login(&mut self) -> Next {
        let text = format!(
            "Login was refused using authentication mechanism {}. For details see the broker logfile.",
            self.mechanism
        );
        if self.failure_close {
            let reply_text = ReplyCode::AccessRefused.text(&text);
            let close = connection::Close {
                reply_code: ReplyCode::AccessRefused.number(),
                reply_text: &reply_text,
                class_id: 0,
                method_id: 0,
            };
            self.link.send(0, &close);
        }
        self.state = State::Ended;
        Next::End(End::LoginRefused)
    }
}

/// What the client calls itself, for `status`.
fn client_name(properties: FieldTable<'_>) -> Box<str> {
    let text = |name| properties.find(name).and_then(FieldValue::as_text).map(str::to_owned);
    let mut name = text("connection_name").or_else(|| text("product")).unwrap_or_default();
    let mut end = name.len().min(CLIENT_NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    name.truncate(end);
    name.into()
}

const CLIENT_NAME_BYTES_MAX: usize = 128;

/// `[authorization identity] NUL name NUL password`. RFC 4616.
fn plain(response: &[u8]) -> Result<Credentials, Fault> {
    let mut parts = response.splitn(3, |byte| *byte == 0).skip(1);
    let (Some(name), Some(password)) = (parts.next(), parts.next()) else {
        return Err(Fault::new(ReplyCode::SyntaxError, "invalid PLAIN response"));
    };
    credentials(name, password)
}

/// A field table, without its length, with LOGIN and PASSWORD.
fn amqplain(response: &[u8]) -> Result<Credentials, Fault> {
    let malformed = || Fault::new(ReplyCode::SyntaxError, "invalid AMQPLAIN response");
    let table = FieldTable::decode(response).map_err(|_| malformed())?;
    let text = |name| match table.find(name) {
        Some(FieldValue::LongString(bytes)) => Ok(bytes),
        _ => Err(malformed()),
    };
    credentials(text("LOGIN")?, text("PASSWORD")?)
}

fn credentials(name: &[u8], password: &[u8]) -> Result<Credentials, Fault> {
    let name = std::str::from_utf8(name)
        .map_err(|_| Fault::new(ReplyCode::SyntaxError, "user name is not UTF-8"))?;
    Ok(Credentials { name: name.into(), password: password.into() })
}
