//! HTTP over TCP and over the control socket: connections, who may ask, and the way to `http`.

use std::convert::Infallible;
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

use super::api;
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

/// Queries and followers at once; one more is told to come back.
pub(super) const QUERIES_MAX: usize = 8;

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
    let caller = match (door, route.access) {
        (Door::Control, _) | (Door::Tcp(_), Access::Public) => None,
        (Door::Tcp(visitor), access) => match authorize(core, visitor, request.headers(), access).await {
            Ok(caller) => caller,
            Err(refusal) => return api::whole(refusal),
        },
    };
    match http::routes::call(route, names, request.uri().query().unwrap_or_default()) {
        Ok(call) => {
            let allowed = if matches!(door, Door::Control) { None } else { allowed(core, caller.clone()) };
            api::answer(core, &call, (caller, allowed), request).await
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

/// A certificate's name, or with users a name and password; without, a loopback Host and no foreign Origin, so that no
/// web page that a browser on the box shows may ask. Answers the user's name.
async fn authorize(
    core: &Rc<Core>,
    visitor: &Visitor,
    headers: &HeaderMap,
    access: Access,
) -> Result<Option<String>, Response> {
    let name = match &visitor.user {
        Some(name) => name.clone(),
        None if core.gateway.borrow().users().is_some() => log_in(core, visitor, headers).await?,
        None if is_local(headers) => return Ok(None),
        None => {
            return Err(Response::error(
                403,
                "without users, only requests to a loopback Host from no foreign Origin",
            ));
        }
    };
    if access == Access::Operator {
        return Err(Response::error(
            403,
            "this is for the control socket: use gatewayd on the gateway itself",
        ));
    }
    Ok(Some(name))
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

fn is_local(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = headers.get(header::ORIGIN);
    host.is_some_and(is_loopback_host)
        && origin.is_none_or(|origin| {
            let host = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            host.is_some_and(|(_, host)| is_loopback_host(host))
        })
}
