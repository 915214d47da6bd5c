//! HTTP over TCP and over the control socket: connections, who may ask, and the way to `http`.

use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{spawn_blocking, spawn_local};

use super::body::AnswerBody;
use super::collections as collections_life;
use super::core::Core;
use super::series_thread::Piece;
use crate::http::collections::{self, Asked};
use crate::http::{self, Response};
use crate::series::Format;

/// A request's head must come within this.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP connections at once; more wait to be accepted.
pub(super) const CONNECTIONS_MAX: usize = 64;

/// Queries and followers at once; one more is told to come back.
pub(super) const QUERIES_MAX: usize = 8;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// How a caller is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Door {
    /// The control socket: its file mode says who may come.
    Control,
    Tcp,
}

/// Serves one connection.
pub(super) fn serve<S>(core: &Rc<Core>, stream: S, door: Door, room: Rc<Semaphore>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let core = Rc::clone(core);
    spawn_local(async move {
        let Ok(_place) = room.acquire().await else { return };
        let answer = service_fn(|request| {
            let core = Rc::clone(&core);
            async move { Ok::<_, Infallible>(answer(&core, door, &request).await) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), answer)
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "http connection ended");
        }
    });
}

async fn answer(core: &Rc<Core>, door: Door, request: &Request<Incoming>) -> hyper::Response<AnswerBody> {
    let path = request.uri().path();
    if door == Door::Tcp
        && !http::is_public(path)
        && let Err(refusal) = authorize(core, request.headers()).await
    {
        return whole(refusal);
    }
    let now = core.clock.get().now();
    let method = request.method().as_str();
    let parameters = request.uri().query().unwrap_or_default();
    match collections::ask(now, method, path, parameters) {
        Some(asked) => answer_collection(core, asked).await,
        None => whole(http::respond(&core.gateway.borrow(), now, method, path)),
    }
}

async fn answer_collection(core: &Rc<Core>, asked: Asked) -> hyper::Response<AnswerBody> {
    match asked {
        Asked::Refused(response) => whole(response),
        Asked::Overview(name) => {
            let shown = core.series.overview(name).await;
            let missing = || Response::error(404, "no such collection");
            whole(shown.map_or_else(missing, |shown| Response::json(200, &shown)))
        }
        Asked::Query(query, format) => match core.series.query(*query, format) {
            Ok(pieces) => stream(core, pieces, format.media_type(), true).await,
            Err(error) => whole(Response::error(503, &error.to_string())),
        },
        Asked::Follow(query) => {
            if core.series.overview(Some(query.collection.to_string())).await.is_none() {
                return whole(Response::error(404, &format!("no collection {}", query.collection)));
            }
            let pieces = core.series.follow(*query);
            stream(core, pieces, Format::JsonLines.media_type(), false).await
        }
        Asked::Delete(query) => {
            // What waits in the row log would come back after a power cut.
            collections_life::flush(core).await;
            match core.series.delete(*query).await {
                Ok(deleted) => whole(Response::json(200, &json!({ "deleted": deleted }))),
                Err(why) => whole(Response::error(503, &why)),
            }
        }
    }
}

/// An answer in pieces. The first of a query decides about its status; a follower's may be long in coming.
async fn stream(
    core: &Rc<Core>,
    mut pieces: mpsc::Receiver<Piece>,
    content_type: &'static str,
    waits: bool,
) -> hyper::Response<AnswerBody> {
    let Ok(place) = Arc::clone(&core.query_room).try_acquire_owned() else {
        return whole(Response::error(503, "too many queries at once"));
    };
    let first = if waits { pieces.recv().await } else { None };
    let first = match first {
        Some(Err(failure)) => return whole(Response::error(failure.status, &failure.why)),
        Some(Ok(bytes)) => Some(bytes),
        None => None,
    };
    headed(200, content_type, AnswerBody::Pieces { first, rest: pieces, _place: place })
}

fn whole(response: Response) -> hyper::Response<AnswerBody> {
    let body = AnswerBody::Whole(Some(Bytes::from(response.body)));
    headed(response.status, response.content_type, body)
}

fn headed(status: u16, content_type: &'static str, body: AnswerBody) -> hyper::Response<AnswerBody> {
    let mut out = hyper::Response::new(body);
    *out.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = out.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    match status {
        401 => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"gatewayd\""));
        }
        405 => {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        _ => {}
    }
    out
}

/// With users a name and password; without, a loopback Host and no foreign Origin, so that no web page that a
/// browser on the box shows may ask.
async fn authorize(core: &Rc<Core>, headers: &HeaderMap) -> Result<(), Response> {
    let has_users = core.gateway.borrow().users().is_some();
    if !has_users {
        return if is_local(headers) {
            Ok(())
        } else {
            Err(Response::error(
                403,
                "without users, only requests to a loopback Host from no foreign Origin",
            ))
        };
    }
    let unauthorized = || Response::error(401, "a user name and password are needed");
    let (name, password) = credentials(headers).ok_or_else(unauthorized)?;
    let challenge =
        core.gateway.borrow().users().and_then(|users| users.challenge(&name)).ok_or_else(unauthorized)?;
    let genuine = spawn_blocking(move || challenge.verify(password.as_bytes())).await.unwrap_or(false);
    if genuine { Ok(()) } else { Err(unauthorized()) }
}

fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

fn is_local(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = headers.get(header::ORIGIN);
    host.is_some_and(is_loopback_host)
        && origin.is_none_or(|origin| {
            let host = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            host.is_some_and(|(_, host)| is_loopback_host(host))
        })
}

fn is_loopback_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

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
