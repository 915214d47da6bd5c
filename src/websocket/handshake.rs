//! The upgrade request of a client and its answer. RFC 6455 section 4, MQTT 3.1.1 section 6.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest, Sha1};

/// Bytes of a request's head; a longer one is refused.
pub const HEAD_BYTES_MAX: usize = 8192;

const HEADERS_MAX: usize = 48;

/// The word that turns a key into its answer. Section 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The path at which MQTT is served.
const PATH: &str = "/mqtt";

/// Names of the protocol, the standard's first; the other is of clients that know MQTT 3.1 only.
const PROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

/// Whom a listener lets in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Nobody logs in here, so that no web page from elsewhere may use a browser on this machine to get in.
    pub only_local_pages: bool,
}

/// What the bytes of a request so far amount to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Upgrade {
    /// More must come.
    Incomplete,
    /// `head_bytes` were the request; this is to be sent, and frames follow.
    Accepted {
        head_bytes: usize,
        response: String,
    },
    Refused(Refusal),
}

/// A request that does not become a WebSocket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub why: &'static str,
    /// The answer to send before closing.
    pub response: String,
}

/// Answers a request of which `bytes` have come.
#[must_use]
pub fn answer(bytes: &[u8], rules: Rules) -> Upgrade {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => match accept(&request, rules) {
            Ok(response) => Upgrade::Accepted { head_bytes, response },
            Err((status, why)) => Upgrade::Refused(refusal(status, why)),
        },
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => Upgrade::Incomplete,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => Upgrade::Refused(refusal(
            "431 Request Header Fields Too Large",
            "the request's head is too large",
        )),
        Err(_) => Upgrade::Refused(refusal("400 Bad Request", "this is not HTTP")),
    }
}

type Why = (&'static str, &'static str);

const BAD_REQUEST: &str = "400 Bad Request";

fn accept(request: &httparse::Request<'_, '_>, rules: Rules) -> Result<String, Why> {
    let header = |name: &str| {
        let mut found = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        found.next().and_then(|header| std::str::from_utf8(header.value).ok()).map(str::trim)
    };
    let has_token = |name: &str, token: &str| {
        let values = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        let mut values = values.filter_map(|header| std::str::from_utf8(header.value).ok());
        values.any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(token)))
    };
    let path = request.path.unwrap_or_default();
    if path.split('?').next() != Some(PATH) {
        return Err(("404 Not Found", "MQTT is served at /mqtt"));
    }
    if request.method != Some("GET") {
        return Err(("405 Method Not Allowed", "a WebSocket begins with GET"));
    }
    if !has_token("upgrade", "websocket") || !has_token("connection", "upgrade") {
        return Err(("426 Upgrade Required", "this is a WebSocket"));
    }
    if header("sec-websocket-version") != Some("13") {
        return Err(("426 Upgrade Required", "only version 13 of WebSocket is served"));
    }
    if request.version != Some(1) || header("host").is_none() {
        return Err((BAD_REQUEST, "a WebSocket begins with HTTP/1.1 and a Host"));
    }
    if rules.only_local_pages && !is_local_page(header("host"), header("origin")) {
        return Err((
            "403 Forbidden",
            "without users, only for a loopback Host and from no page of elsewhere",
        ));
    }
    let key = header("sec-websocket-key").unwrap_or_default();
    if BASE64_STANDARD.decode(key).map(|key| key.len()) != Ok(16) {
        return Err((BAD_REQUEST, "Sec-WebSocket-Key is not 16 bytes in base64"));
    }
    // [MQTT-6.0.0-3]
    let protocol = PROTOCOLS.iter().find(|name| has_token("sec-websocket-protocol", name));
    let protocol = protocol.ok_or((BAD_REQUEST, "the sub-protocol mqtt must be asked for"))?;
    let accepted = BASE64_STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize());
    // [MQTT-6.0.0-4]
    Ok(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accepted}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    ))
}

fn is_local_page(host: Option<&str>, origin: Option<&str>) -> bool {
    host.is_some_and(is_loopback_host)
        && origin
            .is_none_or(|origin| origin.split_once("://").is_some_and(|(_, host)| is_loopback_host(host)))
}

/// Whether `host`, with or without a port, is this machine by a loopback name or address.
#[must_use]
pub fn is_loopback_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn refusal(status: &'static str, why: &'static str) -> Refusal {
    let version = if status.starts_with("426") {
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    } else if status.starts_with("405") {
        "Allow: GET\r\n"
    } else {
        ""
    };
    let length = why.len().saturating_add(1);
    let response = format!(
        "HTTP/1.1 {status}\r\n{version}Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{why}\n"
    );
    Refusal { why, response }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Rules = Rules { only_local_pages: false };

    const REQUEST: &str = "GET /mqtt?x HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: WebSocket\r\n\
        Connection: keep-alive, Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Protocol: chat, mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n";

    #[test]
    fn the_example_of_the_specification_is_accepted_and_every_part_of_it_is_incomplete() {
        let bytes = [REQUEST.as_bytes(), b"\x82\x80"].concat();
        let Upgrade::Accepted { head_bytes, response } = answer(&bytes, OPEN) else { panic!() };
        assert_eq!(head_bytes, REQUEST.len());
        assert!(
            response.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"),
            "{response}"
        );
        assert!(response.contains("\r\nSec-WebSocket-Protocol: mqtt\r\n") && response.ends_with("\r\n\r\n"));
        for cut in 0..REQUEST.len() {
            assert_eq!(answer(&REQUEST.as_bytes()[..cut], OPEN), Upgrade::Incomplete, "{cut}");
        }
    }

    #[test]
    fn what_lacks_something_is_told_what() {
        for (old, new, status) in [
            ("GET", "POST", "405"),
            ("/mqtt", "/", "404"),
            ("Upgrade: WebSocket", "Upgrade: h2c", "426"),
            ("keep-alive, Upgrade", "close", "426"),
            ("Version: 13", "Version: 8", "426"),
            ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ=", "400"),
            ("chat, mqtt", "chat", "400"),
            ("HTTP/1.1", "HTTP/1.0", "400"),
            ("HTTP/1.1", "SPDY", "400"),
        ] {
            let Upgrade::Refused(refusal) = answer(REQUEST.replace(old, new).as_bytes(), OPEN) else {
                panic!("{new} was accepted")
            };
            assert!(
                refusal.response.starts_with(&format!("HTTP/1.1 {status}")),
                "{new}: {}",
                refusal.response
            );
        }
        let endless = format!("GET /mqtt HTTP/1.1\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
        assert!(matches!(answer(endless.as_bytes(), OPEN), Upgrade::Refused(_)));
    }

    #[test]
    fn where_nobody_logs_in_pages_from_elsewhere_are_refused() {
        let rules = Rules { only_local_pages: true };
        let local = REQUEST.replace("server.example.com", "127.0.0.1:9001");
        let with = |origin: &str| local.replace("Upgrade: Web", &format!("Origin: {origin}\r\nUpgrade: Web"));
        let is_accepted = |text: &str| matches!(answer(text.as_bytes(), rules), Upgrade::Accepted { .. });
        assert!(is_accepted(&local) && is_accepted(&with("http://localhost:8380")));
        assert!(
            !is_accepted(REQUEST)
                && !is_accepted(&with("https://evil.example"))
                && !is_accepted(&with("null"))
        );
    }

    #[test]
    fn only_loopback_hosts_are_local() {
        for (host, local) in [
            ("localhost", true),
            ("localhost:8380", true),
            ("127.0.0.1:8380", true),
            ("[::1]:8380", true),
            ("127.0.0.1.example.com", false),
            ("example.com:8380", false),
            ("localhost.example.com", false),
            ("192.0.2.1", false),
            ("", false),
        ] {
            assert_eq!(is_loopback_host(host), local, "{host}");
        }
    }
}
