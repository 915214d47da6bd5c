//! From what the files say to a configuration that holds together: what is missing, what is not built in, who may
//! connect, bounds that contradict each other. Each check stays silent about keys that are wrong already.

use std::collections::BTreeMap;

use super::error::Problem;
use super::listeners::{listeners, tls};
use super::model::{Collection, Config, DEFAULT_ROUTE, Overflow, QueueBounds, QueueClasses, default_route};
use super::raw::{Raw, RawIngest, RawQueue};
use super::section::{Findings, join};
use super::value::show_bytes;
use crate::ingest::route::{Durability, Route, references};
use crate::limits::UNPERSISTED_BYTES_MAX;

/// The configuration that `raw` describes; what is wrong with it goes to `found`.
pub(super) fn check(raw: Raw, found: &mut Findings) -> Config {
    let tls = tls(&raw, found);
    let listeners = listeners(&raw, found);
    let queues = queues(&raw, found);
    let routes = routes(&raw, found);
    let collections = collections(&raw, &routes);
    let config = Config {
        gateway: raw.gateway,
        listeners,
        tls,
        auth: raw.auth,
        limits: raw.limits,
        queues,
        storage: raw.storage,
        routes,
        collections,
        log: raw.log,
    };
    check_bounds(&config, found);
    config
}

/// The queue tables, each filled up from `[queue.default]`; `[queue.session]` has bounds of its own.
fn queues(raw: &Raw, found: &mut Findings) -> QueueClasses {
    let built_in = QueueClasses::default();
    let filled = |written: Option<&RawQueue>, base: QueueBounds| match written {
        None => base,
        Some(written) => QueueBounds {
            messages_max: written.messages_max.unwrap_or(base.messages_max),
            bytes_max: written.bytes_max.unwrap_or(base.bytes_max),
            overflow: written.overflow.unwrap_or(base.overflow),
        },
    };
    let default = filled(raw.queues.get("default"), built_in.default);
    let overflow: Overflow = default.overflow;
    let queues = QueueClasses {
        default,
        session: filled(raw.queues.get("session"), QueueBounds { overflow, ..built_in.session }),
        named: raw
            .queues
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "default" | "session"))
            .map(|(name, written)| (name.clone(), filled(Some(written), default)))
            .collect(),
    };
    let named = queues.named.iter().map(|(name, bounds)| (name.as_str(), bounds));
    for (name, bounds) in
        [("default", &queues.default), ("session", &queues.session)].into_iter().chain(named)
    {
        let key = join(&join("queue", name), "bytes_max");
        let message = raw.limits.message_bytes_max;
        let keys = [key.as_str(), "limits.message_bytes_max"];
        // A table that inherits the bound of `[queue.default]` is not blamed for it again.
        let is_own = name == "session" || name == "default" || found.origin(&key).is_some();
        if bounds.bytes_max < message && is_own {
            contradict(found, keys, || {
                format!(
                    "{} is less than limits.message_bytes_max, {}: the largest message could never be queued",
                    show_bytes(bounds.bytes_max),
                    show_bytes(message)
                )
            });
        }
    }
    queues
}

/// The routes, or the one that exists while none is written.
fn routes(raw: &Raw, found: &mut Findings) -> Vec<Route> {
    if raw.ingest.is_empty() {
        return vec![default_route()];
    }
    raw.ingest.iter().filter_map(|(name, written)| route(name, written, found)).collect()
}

fn route(name: &str, written: &RawIngest, found: &mut Findings) -> Option<Route> {
    let path = join("ingest", name);
    let default = (name == DEFAULT_ROUTE).then(|| default_route().filters);
    let filters = written.topics.clone().or(default);
    if filters.is_none() && found.is_sound(&join(&path, "topics")) {
        let problem = Problem::Missing("is missing: it wants a list such as [\"sensors/#\"]".to_owned());
        found.report(written.place.clone(), &join(&path, "topics"), problem);
    }
    let route = Route {
        name: name.to_owned(),
        filters: filters?,
        collection: written.collection.clone().unwrap_or_else(|| name.to_owned()),
        tags: written.tags.clone().unwrap_or_default(),
        topic_regex: written.topic_regex.clone().flatten(),
        durability: written.durability.unwrap_or(Durability::Ack),
    };
    let known = route.capture_names();
    let key = join(&path, "tags");
    let place = found.origin(&key).unwrap_or(&written.place).clone();
    for (tag, text) in &route.tags {
        let problem = match references(text) {
            Err(reason) => Some(format!("tag {tag} {reason}")),
            Ok(names) => names.iter().find(|name| !known.contains(name)).map(|name| {
                format!("tag {tag} refers to `{name}`, which no level and no group of this route is called")
            }),
        };
        if let Some(problem) = problem
            && ["topics", "topic_regex"].iter().all(|key| found.is_sound(&join(&path, key)))
        {
            found.report(place.clone(), &key, Problem::BadValue(problem));
        }
    }
    Some(route)
}

/// The collections that are written or that a route names.
fn collections(raw: &Raw, routes: &[Route]) -> BTreeMap<String, Collection> {
    let names = raw.collections.keys().chain(routes.iter().map(|route| &route.collection));
    let built_in = Collection::default();
    let filled = |name: &String| {
        let written = raw.collections.get(name).copied().unwrap_or_default();
        Collection {
            retention: written.retention.unwrap_or(built_in.retention),
            bytes_max: written.bytes_max.unwrap_or(built_in.bytes_max),
            series_max: written.series_max.unwrap_or(built_in.series_max),
        }
    };
    names.map(|name| (name.clone(), filled(name))).collect()
}

fn check_bounds(config: &Config, found: &mut Findings) {
    let limits = &config.limits;
    let message = limits.message_bytes_max;
    let window = config.storage.gateway_bytes_max;
    let memory_least = message.saturating_add(UNPERSISTED_BYTES_MAX as u64);
    if limits.memory_max < memory_least {
        contradict(found, ["limits.memory_max", "limits.message_bytes_max"], || {
            format!(
                "{} is less than {}: one message of limits.message_bytes_max, {}, and {} of messages that wait \
                 for the flash",
                show_bytes(limits.memory_max),
                show_bytes(memory_least),
                show_bytes(message),
                show_bytes(UNPERSISTED_BYTES_MAX as u64)
            )
        });
    }
    if window / 8 < message {
        contradict(found, ["storage.gateway_bytes_max", "limits.message_bytes_max"], || {
            format!(
                "{} is less than eight messages of limits.message_bytes_max, {}",
                show_bytes(window),
                show_bytes(message)
            )
        });
    }
    if limits.retained_bytes_max > window / 4 {
        contradict(found, ["limits.retained_bytes_max", "storage.gateway_bytes_max"], || {
            format!(
                "{} is more than a quarter of storage.gateway_bytes_max, {}",
                show_bytes(limits.retained_bytes_max),
                show_bytes(window)
            )
        });
    }
}

/// Reports `text` at the first of `keys` that a file set, unless one of them is wrong already.
pub(super) fn contradict(found: &mut Findings, keys: [&str; 2], text: impl FnOnce() -> String) {
    if !keys.iter().all(|key| found.is_sound(key)) {
        return;
    }
    let Some((key, place)) = keys.iter().find_map(|key| Some((*key, found.origin(key)?.clone()))) else {
        return;
    };
    // The text speaks of the first key; where only the second is written, name the first.
    let text = if key == keys[0] { text() } else { format!("{} = {}", keys[0], text()) };
    found.contradict(place, key, text);
}
