//! The HTTP API as a pure function: a request's method and path, answered from the gateway's state.
//!
//! Owns routes and representations. Sockets, authentication and the control socket are `net`'s.

pub mod collections;
pub mod metrics;
pub mod openapi;
pub mod page;
pub mod routes;

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::time::Now;
use routes::{Call, Operation};

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Cow<'static, str>,
    /// The methods that are allowed, when the request's is not.
    pub allowed: Option<String>,
}

impl Response {
    /// A JSON body.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::of(status, "application/json", format!("{body}\n"))
    }

    /// An error, as all routes tell it.
    #[must_use]
    pub fn error(status: u16, why: &str) -> Self {
        Self::json(status, &json!({ "error": why }))
    }

    /// Any body.
    #[must_use]
    pub fn of(status: u16, content_type: &'static str, body: impl Into<Cow<'static, str>>) -> Self {
        Self { status, content_type, body: body.into(), allowed: None }
    }

    /// Names the methods that are allowed.
    #[must_use]
    pub fn with_allowed(self, allowed: String) -> Self {
        Self { allowed: Some(allowed), ..self }
    }

    fn text(status: u16, body: &str) -> Self {
        Self::of(status, "text/plain; charset=utf-8", format!("{body}\n"))
    }
}

/// Answers what the gateway's state alone tells; `None` for what its driver has to ask or to wait for.
#[must_use]
pub fn respond(gateway: &mut Gateway, now: Now, call: &Call) -> Option<Response> {
    let shown = match call.route.operation {
        Operation::Page => return Some(Response::of(200, page::MEDIA_TYPE, page::PAGE)),
        Operation::Health => return Some(Response::text(200, "ok")),
        Operation::Readiness if gateway.is_healthy() => return Some(Response::text(200, "ok")),
        Operation::Readiness => return Some(Response::text(503, "the flash fails")),
        Operation::Queues => gateway.queues(now),
        Operation::Clients => gateway.clients(),
        Operation::Losses => gateway.losses(),
        Operation::Denials => gateway.denials(),
        Operation::AclLines => gateway.acl_lines(),
        Operation::PeekQueue => {
            let limit = call.integer("limit").unwrap_or(10);
            let kind = call.parameter("kind");
            match gateway.peek(call.name(), kind, usize::try_from(limit).unwrap_or(usize::MAX)) {
                Some(messages) => messages,
                None => return Some(Response::error(404, "no queue or session of this name")),
            }
        }
        Operation::KickClient => match gateway.kick(now, call.name()) {
            0 => return Some(Response::error(404, "no client of this identifier is connected")),
            count => json!({ "ended": count }),
        },
        Operation::Description => openapi::description(),
        Operation::Status
        | Operation::Trace
        | Operation::Metrics
        | Operation::PurgeQueue
        | Operation::Reload
        | Operation::Backup
        | Operation::Publish
        | Operation::Collections
        | Operation::Collection
        | Operation::QueryCollection
        | Operation::TailCollection
        | Operation::TailTopic
        | Operation::DeleteReadings => return None,
    };
    Some(Response::json(200, &shown))
}
