//! HTTP over TCP and over the control socket: connections, who may ask, and the way to `http`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::{spawn_blocking, spawn_local};

use super::api::{self, Caller};
use super::body::AnswerBody;
use super::core::Core;
use crate::auth::Identity;
use crate::gateway::LoginCheck;
use crate::http::routes::Access;
use crate::http::{self, Response};
use crate::series::Allowed;
use crate::websocket::is_loopback_host;

/// A request's head must come within this.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP connections at once; more wait to be accepted.
pub(super) const CONNECTIONS_MAX: usize = 64;

/// Bodies received at once; more wait.
pub(super) const BODIES_MAX: usize = 8;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// How a caller is known.
#[derive(Clone, Debug)]
pub(super) enum Door {
    /// The control socket: its file mode says who may come.
    Control,
    /// A listener.
    Tcp(Rc<Visitor>),
}

/// Who came through a listener.
#[derive(Debug)]
pub(super) struct Visitor {
    /// The other end.
    pub peer: Box<str>,
    /// The user name that its certificate proves.
    pub user: Option<String>,
    /// The listener is beyond loopback and needs no name.
    pub lets_anybody_in: bool,
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
            let (core, door) = (Rc::clone(&core), door.clone());
            async move { Ok::<_, Infallible>(answer(&core, &door, request).await) }
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

async fn answer(core: &Rc<Core>, door: &Door, request: Request<Incoming>) -> hyper::Response<AnswerBody> {
    let found = http::routes::find(request.method().as_str(), request.uri().path());
    let (route, names) = match found {
        Ok(found) => found,
        Err(refusal) => return api::whole(refusal),
    };
    let user = match (door, route.access) {
        (Door::Control, _) | (Door::Tcp(_), Access::Public) => None,
        (Door::Tcp(visitor), access) => match authorize(core, visitor, request.headers(), access).await {
            Ok(user) => user,
            Err(refusal) => return api::whole(refusal),
        },
    };
    match http::routes::call(route, names, request.uri().query().unwrap_or_default()) {
        Ok(call) => {
            let from_control = matches!(door, Door::Control);
            let allowed = if from_control { None } else { allowed(core, user.clone()) };
            api::answer(core, &call, Caller { from_control, user, allowed }, request).await
        }
        Err(refusal) => api::whole(refusal),
    }
}

/// What the ACL lets a caller read; without an ACL everything.
fn allowed(core: &Core, caller: Option<String>) -> Option<Allowed> {
    let acl = core.gateway.borrow().acl().cloned()?;
    Some(Allowed::by(move |topic| {
        acl.may_read(Identity { username: caller.as_deref(), client_identifier: "" }, topic)
    }))
}

/// A certificate's name, or with users a name and password; without, what [`standing`] says. Answers the user's name.
async fn authorize(
    core: &Rc<Core>,
    visitor: &Visitor,
    headers: &HeaderMap,
    access: Access,
) -> Result<Option<String>, Response> {
    let has_users = core.gateway.borrow().users().is_some();
    let name = match &visitor.user {
        Some(name) => Some(name.clone()),
        None if has_users => Some(log_in(core, visitor, headers).await?),
        None => match standing(visitor, headers) {
            Standing::Operator => return Ok(None),
            Standing::User => None,
            Standing::Nobody => {
                return Err(Response::error(
                    403,
                    "without users, only requests from this machine to a loopback Host from no foreign Origin; \
                     a listener beyond loopback with allow_anonymous = true lets others look on",
                ));
            }
        },
    };
    if access == Access::Operator {
        return Err(Response::error(
            403,
            "this is for the control socket: use gatewayd on the gateway itself",
        ));
    }
    Ok(name)
}

/// What a visitor without a name may do while there are no users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Nobody,
    /// Where a listener beyond loopback lets nameless clients in.
    User,
    /// Who is on this machine.
    Operator,
}

/// From this machine to a loopback Host, with no foreign Origin, so that no web page that a browser on the box shows may
/// ask; or to a listener that lets everybody in, from no page but its own.
fn standing(visitor: &Visitor, headers: &HeaderMap) -> Standing {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(header::HOST);
    // The scheme is left out: it may end in front of the gateway.
    let origin = text(header::ORIGIN).map(|origin| origin.split_once("://").map_or("?", |(_, host)| host));
    if is_here(&visitor.peer) && host.is_some_and(is_loopback_host) && origin.is_none_or(is_loopback_host) {
        return Standing::Operator;
    }
    let is_own_page = origin.is_none_or(|origin| host.is_some_and(|host| host.eq_ignore_ascii_case(origin)));
    if visitor.lets_anybody_in && is_own_page { Standing::User } else { Standing::Nobody }
}

/// Whether the other end of a connection is on this machine: a loopback address, or a socket in the file system.
fn is_here(peer: &str) -> bool {
    let is_loopback = |peer: SocketAddr| peer.ip().to_canonical().is_loopback();
    peer.parse().map_or_else(|_| peer.starts_with("unix"), is_loopback)
}

/// The user whose name and password came with a request.
async fn log_in(core: &Rc<Core>, visitor: &Visitor, headers: &HeaderMap) -> Result<String, Response> {
    let unauthorized = || Response::error(401, "a user name and password are needed");
    let (name, password) = credentials(headers).ok_or_else(unauthorized)?;
    let pair = (name.as_str(), &*visitor.peer);
    let now = core.clock.get().now();
    let check = core.gateway.borrow().password_challenge(now, pair, password.as_bytes());
    let genuine = match check {
        LoginCheck::Known => true,
        LoginCheck::Refused => false,
        LoginCheck::Verify(challenge) => {
            let given = password.clone();
            let genuine = spawn_blocking(move || challenge.verify(given.as_bytes())).await.unwrap_or(false);
            let now = core.clock.get().now();
            let locked = core.gateway.borrow_mut().password_checked(now, pair, password.as_bytes(), genuine);
            if locked {
                tracing::warn!(user = %name, peer = %visitor.peer, "locked out after too many wrong passwords");
            }
            genuine
        }
    };
    if genuine {
        return Ok(name);
    }
    let now = core.clock.get().now();
    core.gateway.borrow_mut().login_refused(now, pair);
    let delay = core.gateway.borrow().failed_delay();
    tokio::time::sleep(delay).await;
    Err(unauthorized())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(peer: &str, lets_anybody_in: bool, host: &str, origin: &str) -> Standing {
        let visitor = Visitor { peer: peer.into(), user: None, lets_anybody_in };
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if !value.is_empty() {
                headers.insert(name, value.parse().unwrap());
            }
        }
        standing(&visitor, &headers)
    }

    #[test]
    fn only_this_machine_operates_and_others_look_on_where_they_are_let_in() {
        let (here, there) = ("127.0.0.1:4000", "192.0.2.7:4000");
        for (peer, host, origin, closed, open) in [
            (here, "localhost:8380", "", Standing::Operator, Standing::Operator),
            ("[::1]:1", "[::1]:8380", "http://localhost", Standing::Operator, Standing::Operator),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1", "", Standing::Operator, Standing::Operator),
            ("unix:uid=0", "localhost", "", Standing::Operator, Standing::Operator),
            // Whoever comes from elsewhere may write what he likes.
            (there, "localhost:8380", "", Standing::Nobody, Standing::User),
            ("[::ffff:192.0.2.7]:1", "127.0.0.1", "", Standing::Nobody, Standing::User),
            ("[2001:db8::7]:1", "localhost", "", Standing::Nobody, Standing::User),
            ("127.0.0.1", "localhost", "", Standing::Nobody, Standing::User),
            (there, "gateway.example:8380", "", Standing::Nobody, Standing::User),
            (here, "gateway.example:8380", "", Standing::Nobody, Standing::User),
            (there, "Gateway.example", "http://gateway.example", Standing::Nobody, Standing::User),
            // Pages of others.
            (here, "localhost:8380", "http://evil.example", Standing::Nobody, Standing::Nobody),
            (there, "gateway.example", "http://evil.example", Standing::Nobody, Standing::Nobody),
            (there, "gateway.example", "http://localhost", Standing::Nobody, Standing::Nobody),
            (there, "gateway.example", "null", Standing::Nobody, Standing::Nobody),
            (here, "", "", Standing::Nobody, Standing::User),
        ] {
            assert_eq!(judged(peer, false, host, origin), closed, "{peer} {host} {origin}");
            assert_eq!(judged(peer, true, host, origin), open, "{peer} {host} {origin}, anonymous");
        }
    }
}
