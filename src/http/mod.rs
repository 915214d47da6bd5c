//! The HTTP API as a pure function: a request's method and path, answered from the gateway's state.
//!
//! Owns routes and representations. Sockets, authentication and the control socket are `net`'s.

pub mod collections;

use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::time::Now;

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
}

impl Response {
    /// A JSON body.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self { status, content_type: "application/json", body: format!("{body}\n") }
    }

    /// An error, as all routes tell it.
    #[must_use]
    pub fn error(status: u16, why: &str) -> Self {
        Self::json(status, &json!({ "error": why }))
    }

    fn text(status: u16, body: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: format!("{body}\n") }
    }
}

/// True for what an unauthenticated caller may ask: whether the gateway lives.
#[must_use]
pub fn is_public(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// Answers a request. `path` has no query.
#[must_use]
pub fn respond(gateway: &Gateway, now: Now, method: &str, path: &str) -> Response {
    let shown = match path {
        "/healthz" | "/readyz" => None,
        "/api/v1/status" => Some(gateway.status(now)),
        "/api/v1/queues" => Some(gateway.queues()),
        "/api/v1/clients" => Some(gateway.clients()),
        "/api/v1/losses" => Some(gateway.losses()),
        _ => return Response::error(404, "no such resource"),
    };
    if !matches!(method, "GET" | "HEAD") {
        return Response::error(405, "only GET is allowed here");
    }
    match shown {
        Some(value) => Response::json(200, &value),
        None if path == "/readyz" && !gateway.is_healthy() => Response::text(503, "the flash fails"),
        None => Response::text(200, "ok"),
    }
}
