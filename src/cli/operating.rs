//! The verbs about queues and clients: what each asks of the HTTP API.

use clap::ArgMatches;

use super::asking::{Request, Show};
use crate::http::routes::Operation;

const QUEUE_COLUMNS: &[&str] = &[
    "name",
    "kind",
    "ready",
    "in_flight",
    "bytes",
    "fill_percent",
    "oldest_ms",
    "full_in_s",
    "consumers",
    "overflow",
    "dropped",
];
const MESSAGE_COLUMNS: &[&str] =
    &["sequence", "address", "assurance", "in_flight", "redelivered", "received_at_ms", "payload"];
const CLIENT_COLUMNS: &[&str] =
    &["connection", "client_identifier", "user_name", "protocol", "peer", "output_bytes"];

/// The request that a verb stands for; `None` when it is not one of these.
pub(super) fn request(operation: Operation, matches: &ArgMatches) -> Option<Request> {
    let text = |name: &str| matches.try_get_one::<String>(name).ok().flatten().cloned();
    let raw = matches.try_get_one::<bool>("json").ok().flatten().copied().unwrap_or(false);
    let list = |columns| if raw { Show::Raw } else { Show::Columns(columns) };
    let mut parameters = Vec::new();
    parameters.extend(text("kind").map(|kind| ("kind", kind)));
    let limit = matches.try_get_one::<u32>("limit").ok().flatten();
    parameters.extend(limit.map(|limit| ("limit", limit.to_string())));
    let queue = text("QUEUE").unwrap_or_default();
    Some(match operation {
        Operation::Queues => Request::new(operation, &[], &[], list(QUEUE_COLUMNS)),
        Operation::PeekQueue => Request::new(operation, &[&queue], &parameters, list(MESSAGE_COLUMNS)),
        Operation::PurgeQueue => {
            Request::new(operation, &[&queue], &parameters, Show::Count("purged", "purged # messages"))
        }
        Operation::Trace => {
            let topic = text("TOPIC").unwrap_or_default();
            let show = if raw { Show::Raw } else { Show::Trace };
            let watch = matches.get_flag("watch");
            Request { watch, ..Request::new(operation, &[], &[("topic", topic)], show) }
        }
        Operation::Clients => Request::new(operation, &[], &[], list(CLIENT_COLUMNS)),
        Operation::KickClient => {
            let client = text("CLIENT").unwrap_or_default();
            Request::new(operation, &[&client], &[], Show::Count("ended", "ended # connections"))
        }
        _ => return None,
    })
}
