//! The verbs about collections: what each asks of the HTTP API; and `ingest test`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ArgMatches;

use super::asking::{Request, Show};
use crate::config::Config;
use crate::http::routes::Operation;
use crate::ingest::collector::origin_of;
use crate::series::document::Payload;
use crate::series::{Item, put_json, takes};

/// `ingest test`: what a route would make of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngestTest {
    pub config: Option<PathBuf>,
    pub topic: String,
    pub payload: String,
}

/// The request that `query`, `tail`, `export`, `delete` or `storage usage` stands for.
///
/// # Errors
/// What is wrong with the arguments.
pub(super) fn request(operation: Operation, verb: &str, matches: &ArgMatches) -> Result<Request, String> {
    let text = |name: &str| matches.try_get_one::<String>(name).ok().flatten().cloned();
    let flag = |name: &str| matches.try_get_one::<bool>(name).ok().flatten().copied().unwrap_or(false);
    if operation == Operation::Collections {
        let show = if flag("json") { Show::Raw } else { Show::Usage };
        return Ok(match text("collection") {
            Some(name) => Request::new(Operation::Collection, &[&name], &[], show),
            None => Request::new(operation, &[], &[], show),
        });
    }
    let name = text("COLLECTION").or_else(|| text("COLLECTION|TOPIC")).unwrap_or_default();
    if verb == "tail" && name.contains(['/', '+', '#']) {
        if text("topic").is_some() || text("where").is_some() {
            return Err("--topic and --where are for the readings of a collection".to_owned());
        }
        return Ok(Request::new(Operation::TailTopic, &[], &[("topic", name)], Show::Raw));
    }
    let mut parameters = Vec::new();
    for key in ["since", "until", "topic", "where", "every", "agg", "by", "field"] {
        parameters.extend(text(key).map(|value| (key, value)));
    }
    if let Some(limit) = matches.try_get_one::<u32>("limit").ok().flatten() {
        parameters.push(("limit", limit.to_string()));
    }
    let format = text("format");
    let show = match (verb, format.as_deref()) {
        ("delete", _) => Show::Count("deleted", "deleted # readings"),
        ("tail", _) => Show::Raw,
        ("export", format) => {
            parameters.push(("format", format.unwrap_or("jsonl").to_owned()));
            Show::Export
        }
        _ if flag("plot") => Show::Plot,
        (_, None) => Show::TableOnTerminal,
        (_, Some("table")) => Show::Table,
        (_, Some(format)) => {
            parameters.push(("format", format.to_owned()));
            Show::Raw
        }
    };
    if flag("plot") && format.is_some() {
        return Err("--plot and --format do not go together".to_owned());
    }
    if flag("all") {
        parameters.push(("all", "true".to_owned()));
    }
    Ok(Request::new(operation, &[&name], &parameters, show))
}

/// Says what each route of the configuration makes of a message. True when one takes it.
///
/// # Errors
/// Writing failed.
pub fn ingest_test(config: &Config, test: &IngestTest, out: &mut dyn Write) -> io::Result<bool> {
    let mut taken = Vec::new();
    for route in &config.routes {
        let takes_it = route.filters.iter().any(|filter| takes(&filter.plain, &test.topic));
        if !takes_it || taken.contains(&&route.collection) {
            continue;
        }
        taken.push(&route.collection);
        let origin = origin_of(&config.routes, &route.collection, &test.topic);
        let item = Item { time: 0, estimated: false, origin: &origin, payload: test.payload.as_bytes() };
        let mut text = Vec::new();
        put_json(&mut text, &item);
        let text = String::from_utf8_lossy(&text).replace("\"_received_at\": 0", "\"_received_at\": (now)");
        writeln!(out, "route {} -> collection {}: {text}", route.name, route.collection)?;
        if let Payload::Text(_, Some(why)) = Payload::of(test.payload.as_bytes()) {
            writeln!(
                out,
                "  the payload looks like JSON and is none ({why}): it is kept as text and counted"
            )?;
        }
    }
    if taken.is_empty() {
        writeln!(out, "no route takes {}", test.topic)?;
    }
    Ok(!taken.is_empty())
}
