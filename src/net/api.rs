//! The HTTP API in the daemon: what the gateway's state answers at once, and what waits for the flash, for the
//! collections' thread or for a body.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::backup;
use super::body::AnswerBody;
use super::collections as collections_life;
use super::core::Core;
use super::process;
use super::series_thread::Piece;
use crate::gateway::{self, DirectPublish, PublishRefused};
use crate::http::collections::{self, Asked};
use crate::http::routes::{Call, Operation};
use crate::http::{self, Response, metrics};
use crate::message::Assurance;
use crate::series::{Allowed, Format, Query};

/// A body must come within this.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Who asks.
#[derive(Debug)]
pub(super) struct Caller {
    /// Through the control socket.
    pub from_control: bool,
    pub user: Option<String>,
    /// The topics that may be read; `None`: all.
    pub allowed: Option<Allowed>,
}

/// Answers a request whose caller may ask.
pub(super) async fn answer(
    core: &Rc<Core>,
    call: &Call,
    caller: Caller,
    request: Request<Incoming>,
) -> hyper::Response<AnswerBody> {
    let now = core.clock.get().now();
    let responded = http::respond(&mut core.gateway.borrow_mut(), now, call);
    if let Some(response) = responded {
        // A client may have been ended.
        core.kick();
        return whole(response);
    }
    match call.route.operation {
        Operation::Publish => whole(publish(core, call, caller.user, request).await),
        Operation::PurgeQueue => whole(purge(core, call).await),
        Operation::Reload => whole(reload(core).await),
        Operation::Metrics => whole(show_metrics(core, call).await),
        Operation::Status => whole(status(core).await),
        Operation::Trace => whole(trace(core, call).await),
        Operation::TailTopic => {
            let Some(place) = core.rooms.place(caller.from_control, true) else { return too_many() };
            let filter = call.parameter("topic").unwrap_or_default();
            match core.followers.follow(&core.gateway, filter, caller.allowed) {
                Ok(pieces) => stream(pieces, Format::JsonLines.media_type(), None, place),
                Err(why) => whole(Response::error(400, &why)),
            }
        }
        Operation::Backup => {
            let Some(place) = core.rooms.place(caller.from_control, false) else { return too_many() };
            match backup::start(core) {
                Ok(pieces) => found(pieces, backup::MEDIA_TYPE, place).await,
                Err(refusal) => whole(refusal),
            }
        }
        _ => {
            let (method, path) = (request.method().as_str(), request.uri().path());
            match collections::ask(now, method, path, request.uri().query().unwrap_or_default()) {
                Some(asked) => answer_collection(core, asked, caller).await,
                None => whole(Response::error(404, "no such resource")),
            }
        }
    }
}

/// The body becomes a message; the answer waits as PUBACK does.
async fn publish(
    core: &Rc<Core>,
    call: &Call,
    caller: Option<String>,
    request: Request<Incoming>,
) -> Response {
    let bytes_max = core.gateway.borrow().message_bytes_max();
    let too_large = || Response::error(413, &PublishRefused::TooLarge.to_string());
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if announced.and_then(|length| length.parse().ok()).is_some_and(|length: usize| length > bytes_max) {
        return too_large();
    }
    // Bodies of many requests at once take memory that nobody counts.
    let Ok(_place) = core.body_room.acquire().await else {
        return Response::error(503, "the gateway is stopping");
    };
    let body = match timeout(BODY_TIMEOUT, Limited::new(request.into_body(), bytes_max).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return too_large(),
        Ok(Err(_)) => return Response::error(400, "the body broke off"),
        Err(_) => return Response::error(408, "the body did not come in time"),
    };
    let assurance = match call.integer("qos") {
        Some(0) => Assurance::AtMostOnce,
        Some(2) => Assurance::ExactlyOnce,
        _ => Assurance::AtLeastOnce,
    };
    let publish = DirectPublish {
        user_name: caller.as_deref(),
        topic: call.parameter("topic").unwrap_or_default(),
        body: &body,
        assurance,
        retain: call.parameter("retain") == Some("true"),
    };
    let now = core.clock.get().now();
    let taken = core.gateway.borrow_mut().publish(now, publish);
    match taken {
        Ok(ticket) if core.wait_kept(ticket).await => Response::json(200, &json!({ "kept": true })),
        Ok(_) => Response::error(503, "not on flash yet: publish it again"),
        Err(refused) => {
            core.kick();
            let status = match refused {
                PublishRefused::Topic(_) => 400,
                PublishRefused::NotAllowed | PublishRefused::Reserved => 403,
                PublishRefused::TooLarge => 413,
                PublishRefused::QueueFull | PublishRefused::Congested => 503,
            };
            Response::error(status, &refused.to_string())
        }
    }
}

async fn purge(core: &Rc<Core>, call: &Call) -> Response {
    let now = core.clock.get().now();
    let purged = core.gateway.borrow_mut().purge(now, call.name(), call.parameter("kind"));
    match purged {
        None => Response::error(404, "no queue or session of this name"),
        Some((count, ticket)) if core.wait_kept(ticket).await => {
            Response::json(200, &json!({ "purged": count }))
        }
        Some(_) => Response::error(503, "the flash does not take it now; it is purged once it does"),
    }
}

async fn reload(core: &Rc<Core>) -> Response {
    let Some(reloader) = core.reloader() else {
        return Response::error(503, "the gateway is starting");
    };
    match reloader.reload(core).await {
        Ok(done) => Response::json(
            200,
            &json!({ "changed": done.changed, "needs_restart": done.restart, "connections_ended": done.ended }),
        ),
        Err(errors) => Response::json(422, &json!({ "error": errors.first(), "errors": errors })),
    }
}

async fn show_metrics(core: &Rc<Core>, call: &Call) -> Response {
    let series = core.series.figures().await;
    let now = core.clock.get().now();
    let per_queue = call.parameter("per") == Some("queue");
    let gateway = core.gateway.borrow();
    let text = metrics::render(&gateway, now, series.as_ref(), process::figures(), per_queue);
    Response::of(200, metrics::CONTENT_TYPE, text)
}

async fn status(core: &Rc<Core>) -> Response {
    let collections = core.series.overview(None).await.unwrap_or_default();
    let now = core.clock.get().now();
    let mut shown = core.gateway.borrow().status(now);
    if let Value::Object(members) = &mut shown {
        members.insert("collections".to_owned(), collections);
    }
    Response::json(200, &shown)
}

async fn trace(core: &Rc<Core>, call: &Call) -> Response {
    let now = core.clock.get().now();
    let traced = core.gateway.borrow_mut().trace(now, call.parameter("topic").unwrap_or_default());
    let mut shown = match traced {
        Ok(shown) => shown,
        Err(why) => return Response::error(400, &why),
    };
    let takers = shown.get("takers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let collections = takers.iter().filter(|taker| taker.get("kind") == Some(&json!("collection")));
    let names: Vec<String> =
        collections.filter_map(|taker| taker.get("name")?.as_str().map(str::to_owned)).collect();
    let mut overviews = Vec::new();
    for name in names {
        overviews.extend(core.series.overview(Some(name)).await);
    }
    gateway::add_series(&mut shown, &overviews);
    Response::json(200, &shown)
}

/// Takes out of a collection's description what is of topics that the caller may not read.
fn leave_out(shown: &mut Value, allowed: &Allowed) {
    for path in ["/series", "/errors/examples"] {
        if let Some(Value::Array(items)) = shown.pointer_mut(path) {
            items.retain(|item| item["topic"].as_str().is_some_and(|topic| allowed.takes(topic)));
        }
    }
}

async fn answer_collection(core: &Rc<Core>, asked: Asked, caller: Caller) -> hyper::Response<AnswerBody> {
    match asked {
        Asked::Refused(response) => whole(response),
        Asked::Overview(name) => {
            let shown = core.series.overview(name).await;
            let missing = || Response::error(404, "no such collection");
            whole(shown.map_or_else(missing, |mut shown| {
                if let Some(allowed) = &caller.allowed {
                    leave_out(&mut shown, allowed);
                }
                Response::json(200, &shown)
            }))
        }
        Asked::Query(query, format) => {
            let Some(place) = core.rooms.place(caller.from_control, false) else { return too_many() };
            match core.series.query(Query { allowed: caller.allowed, ..*query }, format) {
                Ok(pieces) => found(pieces, format.media_type(), place).await,
                Err(error) => whole(Response::error(503, &error.to_string())),
            }
        }
        Asked::Follow(query) => {
            if core.series.overview(Some(query.collection.to_string())).await.is_none() {
                return whole(Response::error(
                    404,
                    &format!(
                        "no collection {0}; the messages of a topic of one level are followed as {0}/#",
                        query.collection
                    ),
                ));
            }
            let Some(place) = core.rooms.place(caller.from_control, true) else { return too_many() };
            let pieces = core.series.follow(Query { allowed: caller.allowed, ..*query });
            stream(pieces, Format::JsonLines.media_type(), None, place)
        }
        Asked::Delete(query) => {
            if core.series.overview(Some(query.collection.to_string())).await.is_none() {
                return whole(Response::error(404, &format!("no collection {}", query.collection)));
            }
            // What waits in the row log would come back after a power cut.
            if let Err(why) = collections_life::flush(core).await {
                return whole(Response::error(
                    503,
                    &format!("nothing is deleted, readings are not stored: {why}"),
                ));
            }
            match core.series.delete(*query).await {
                Ok(deleted) => whole(Response::json(200, &json!({ "deleted": deleted }))),
                Err(why) => whole(Response::error(503, &why)),
            }
        }
    }
}

fn too_many() -> hyper::Response<AnswerBody> {
    whole(Response::error(503, "too many queries at once"))
}

/// What a query finds, in pieces: the first decides about the answer's status.
async fn found(
    mut pieces: mpsc::Receiver<Piece>,
    content_type: &'static str,
    place: OwnedSemaphorePermit,
) -> hyper::Response<AnswerBody> {
    match pieces.recv().await {
        Some(Err(failure)) => whole(Response::error(failure.status, &failure.why)),
        Some(Ok(first)) => stream(pieces, content_type, Some(first), place),
        None => stream(pieces, content_type, None, place),
    }
}

/// An answer in pieces, begun at once: what is followed may be long in coming.
fn stream(
    rest: mpsc::Receiver<Piece>,
    content_type: &'static str,
    first: Option<Vec<u8>>,
    place: OwnedSemaphorePermit,
) -> hyper::Response<AnswerBody> {
    headed(200, content_type, AnswerBody::Pieces { first, rest, _place: place })
}

pub(super) fn whole(response: Response) -> hyper::Response<AnswerBody> {
    let body = match response.body {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => Bytes::from(text),
    };
    let mut out = headed(response.status, response.content_type, AnswerBody::Whole(Some(body)));
    if let Some(allowed) = response.allowed.and_then(|allowed| HeaderValue::from_str(&allowed).ok()) {
        out.headers_mut().insert(header::ALLOW, allowed);
    }
    out
}

fn headed(status: u16, content_type: &'static str, body: AnswerBody) -> hyper::Response<AnswerBody> {
    let mut out = hyper::Response::new(body);
    *out.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = out.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if content_type == http::page::MEDIA_TYPE
        && let Ok(policy) = HeaderValue::from_str(&http::page::policy())
    {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    if status == 401 {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"gatewayd\""));
    }
    out
}
