//! The table of routes: method, path, who may ask, parameters and words of each. Requests are matched against it, the
//! OpenAPI description is made from it, and verbs name their rows of it.

use super::Response;
use super::collections::{encoded, pairs, unescaped};

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Operation {
    Page,
    Health,
    Readiness,
    Metrics,
    Description,
    Status,
    Queues,
    PeekQueue,
    PurgeQueue,
    Clients,
    KickClient,
    Losses,
    Denials,
    AclLines,
    Trace,
    Reload,
    Backup,
    Publish,
    Collections,
    Collection,
    QueryCollection,
    TailCollection,
    TailTopic,
    DeleteReadings,
}

/// Who may ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Everybody.
    Public,
    /// Users; without users, callers on this machine, and everybody where a listener beyond loopback has
    /// `allow_anonymous = true`.
    User,
    /// Callers of the control socket; without users, callers on this machine.
    Operator,
}

/// What a parameter takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Text,
    Flag,
    Integer { min: u64, max: u64 },
    OneOf(&'static [&'static str]),
}

/// A query parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    pub summary: &'static str,
}

/// What an answer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Text,
    Html,
    Json,
    /// JSON, lines of JSON, CSV or line protocol.
    Readings,
    /// A tar archive.
    Archive,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub operation: Operation,
    pub method: &'static str,
    /// Levels in braces are names, percent-encoded.
    pub path: &'static str,
    pub access: Access,
    /// The name in the OpenAPI description.
    pub name: &'static str,
    pub summary: &'static str,
    pub parameters: &'static [Parameter],
    /// It takes a body: what that is.
    pub body: Option<&'static str>,
    pub answer: Answer,
    /// What else it may answer, and why.
    pub errors: &'static [(u16, &'static str)],
}

const fn text(name: &'static str, summary: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Text, required: false, summary }
}

const SINCE: Parameter = text("since", "From this moment on: 1h (ago), RFC 3339, or milliseconds since 1970");
const UNTIL: Parameter = text("until", "Before this moment");
const TOPIC: Parameter = text("topic", "Topics, as an MQTT filter");
const WHERE: Parameter = text("where", "Condition such as value >= 25 and unit = 'C'");
const QUEUE_KIND: Parameter = Parameter {
    name: "kind",
    kind: Kind::OneOf(&["queue", "session"]),
    required: false,
    summary: "Which, when a queue and a session have this name [default: the queue]",
};
const NOT_FOUND: (u16, &str) = (404, "There is none of this name");
const BAD_PARAMETER: (u16, &str) = (400, "A parameter is unknown, missing or no value of its kind");
const NO_PARAMETERS: &[(u16, &str)] = &[BAD_PARAMETER];
const FLASH: (u16, &str) = (503, "The flash does not take it now; try again");
const QUALITIES: Kind = Kind::Integer { min: 0, max: 2 };

/// What most rows have in common.
const PLAIN: Route = Route {
    operation: Operation::Status,
    method: "GET",
    path: "",
    access: Access::User,
    name: "",
    summary: "",
    parameters: &[],
    body: None,
    answer: Answer::Json,
    errors: NO_PARAMETERS,
};

const fn json(operation: Operation, path: &'static str, name: &'static str, summary: &'static str) -> Route {
    Route { operation, path, name, summary, answer: Answer::Json, ..PLAIN }
}

/// All routes.
pub static ROUTES: [Route; 24] = [
    Route {
        operation: Operation::Page,
        path: "/",
        name: "page",
        summary: "The page for people: status, queues, losses, latest values, a chart",
        answer: Answer::Html,
        ..PLAIN
    },
    Route {
        operation: Operation::Health,
        path: "/healthz",
        access: Access::Public,
        name: "health",
        summary: "Whether the gateway's core turns: 200 as soon as it answers",
        answer: Answer::Text,
        ..PLAIN
    },
    Route {
        operation: Operation::Readiness,
        path: "/readyz",
        access: Access::Public,
        name: "readiness",
        summary: "Whether acknowledgements go on: 503 while the flash fails",
        answer: Answer::Text,
        errors: &[BAD_PARAMETER, (503, "The flash fails: acknowledgements wait")],
        ..PLAIN
    },
    Route {
        operation: Operation::Metrics,
        path: "/metrics",
        name: "metrics",
        summary: "Figures in Prometheus' text format",
        parameters: &[Parameter {
            name: "per",
            kind: Kind::OneOf(&["class", "queue"]),
            required: false,
            summary: "queue: depths of each queue too, not only of each kind of queue",
        }],
        answer: Answer::Text,
        ..PLAIN
    },
    json(Operation::Description, "/api/v1/openapi.json", "description", "This description"),
    json(Operation::Status, "/api/v1/status", "status", "How the gateway is"),
    json(
        Operation::Queues,
        "/api/v1/queues",
        "queues",
        "Queues, sessions and collections, the fullest first",
    ),
    Route {
        operation: Operation::PeekQueue,
        path: "/api/v1/queues/{queue}/messages",
        access: Access::Operator,
        name: "peekQueue",
        summary: "The oldest messages that wait, without taking them",
        parameters: &[
            QUEUE_KIND,
            Parameter {
                name: "limit",
                kind: Kind::Integer { min: 1, max: 1000 },
                required: false,
                summary: "Messages at most [default: 10]",
            },
        ],
        answer: Answer::Json,
        errors: &[BAD_PARAMETER, NOT_FOUND],
        ..PLAIN
    },
    Route {
        operation: Operation::PurgeQueue,
        method: "DELETE",
        path: "/api/v1/queues/{queue}/messages",
        access: Access::Operator,
        name: "purgeQueue",
        summary: "Drops the messages that wait; what is in flight stays. Answered when that is on flash",
        parameters: &[QUEUE_KIND],
        answer: Answer::Json,
        errors: &[BAD_PARAMETER, NOT_FOUND, FLASH],
        ..PLAIN
    },
    json(Operation::Clients, "/api/v1/clients", "clients", "The clients that are connected"),
    Route {
        operation: Operation::KickClient,
        method: "DELETE",
        path: "/api/v1/clients/{client}",
        access: Access::Operator,
        name: "kickClient",
        summary: "Ends the connections of this client identifier; its session stays",
        answer: Answer::Json,
        errors: &[BAD_PARAMETER, NOT_FOUND],
        ..PLAIN
    },
    json(
        Operation::Losses,
        "/api/v1/losses",
        "losses",
        "Loss receipts: what was dropped, how much, when and why",
    ),
    Route {
        access: Access::Operator,
        ..json(Operation::Denials, "/api/v1/denials", "denials", "What clients were not allowed to do")
    },
    Route {
        access: Access::Operator,
        ..json(
            Operation::AclLines,
            "/api/v1/acl",
            "aclLines",
            "Lines of the ACL file that nothing was asked about since it was read",
        )
    },
    Route {
        operation: Operation::Trace,
        path: "/api/v1/trace",
        access: Access::Operator,
        name: "trace",
        summary: "Where messages of a topic go: counts and the last example of each step since it was first asked, and what to change",
        parameters: &[Parameter {
            name: "topic",
            kind: Kind::Text,
            required: true,
            summary: "Topic name, without wildcards",
        }],
        answer: Answer::Json,
        ..PLAIN
    },
    Route {
        operation: Operation::Reload,
        method: "POST",
        path: "/api/v1/reload",
        access: Access::Operator,
        name: "reload",
        summary: "Reads the configuration and its files anew and takes them over, as a whole or not at all",
        answer: Answer::Json,
        errors: &[BAD_PARAMETER, (422, "What is wrong, in errors; nothing has changed")],
        ..PLAIN
    },
    Route {
        operation: Operation::Backup,
        path: "/api/v1/backup",
        access: Access::Operator,
        name: "backup",
        summary: "Everything that the gateway keeps, as one file: all that was acknowledged before the request is in it",
        answer: Answer::Archive,
        errors: &[BAD_PARAMETER, (409, "A backup is under way")],
        ..PLAIN
    },
    Route {
        operation: Operation::Publish,
        method: "POST",
        path: "/api/v1/publish",
        name: "publish",
        summary: "Publishes the body. 200 means what PUBACK means: it is on flash, or no durable queue wants it",
        parameters: &[
            Parameter {
                name: "topic",
                kind: Kind::Text,
                required: true,
                summary: "Topic name, without wildcards",
            },
            Parameter {
                name: "qos",
                kind: QUALITIES,
                required: false,
                summary: "Quality of service [default: 1]",
            },
            Parameter {
                name: "retain",
                kind: Kind::Flag,
                required: false,
                summary: "Keep it as the topic's last known value [default: false]",
            },
        ],
        body: Some("The payload, any bytes"),
        answer: Answer::Json,
        errors: &[
            BAD_PARAMETER,
            (403, "The ACL does not allow it"),
            (413, "The payload is larger than limits.message_bytes_max"),
            (503, "It is not kept: a queue that rejects is full, or the flash does not take it; try again"),
        ],
        ..PLAIN
    },
    json(Operation::Collections, "/api/v1/collections", "collections", "The collections and what they hold"),
    Route {
        errors: &[BAD_PARAMETER, NOT_FOUND],
        ..json(
            Operation::Collection,
            "/api/v1/collections/{collection}",
            "collection",
            "One collection: its series and its error lane",
        )
    },
    Route {
        operation: Operation::QueryCollection,
        path: "/api/v1/collections/{collection}/query",
        name: "queryCollection",
        summary: "Readings, or what is made of them",
        parameters: &[
            SINCE,
            UNTIL,
            TOPIC,
            WHERE,
            text("every", "Aggregate for each stretch of this length: 1m"),
            text("agg", "Aggregates, between commas: count, avg, sum, min, max, first, last, p1 to p99"),
            text("by", "Aggregate by topic, tag or field, between commas"),
            text("field", "Field that is aggregated [default: value, else payload]"),
            Parameter {
                name: "limit",
                kind: Kind::Integer { min: 0, max: u32::MAX as u64 },
                required: false,
                summary: "Results at most",
            },
            Parameter {
                name: "format",
                kind: Kind::OneOf(&["json", "jsonl", "csv", "line-protocol"]),
                required: false,
                summary: "Form of the results [default: jsonl]",
            },
        ],
        answer: Answer::Readings,
        errors: &[BAD_PARAMETER, NOT_FOUND, (503, "Too many queries at once")],
        ..PLAIN
    },
    Route {
        operation: Operation::TailCollection,
        path: "/api/v1/collections/{collection}/tail",
        name: "tailCollection",
        summary: "Readings as they come, a line of JSON each; the answer does not end by itself",
        parameters: &[TOPIC, WHERE],
        answer: Answer::Readings,
        errors: &[BAD_PARAMETER, NOT_FOUND, (503, "Too many queries at once")],
        ..PLAIN
    },
    Route {
        operation: Operation::TailTopic,
        path: "/api/v1/tail",
        name: "tailTopic",
        summary: "Messages as they are published, a line of JSON each; the answer does not end by itself",
        parameters: &[Parameter {
            name: "topic",
            kind: Kind::Text,
            required: true,
            summary: "Topics, as an MQTT filter; what the ACL does not let the user read is left out",
        }],
        answer: Answer::Readings,
        errors: &[BAD_PARAMETER, (503, "Too many queries at once")],
        ..PLAIN
    },
    Route {
        operation: Operation::DeleteReadings,
        method: "DELETE",
        path: "/api/v1/collections/{collection}/readings",
        access: Access::Operator,
        name: "deleteReadings",
        summary: "Deletes readings by time or topic",
        parameters: &[
            SINCE,
            UNTIL,
            TOPIC,
            Parameter { name: "all", kind: Kind::Flag, required: false, summary: "All of them" },
        ],
        answer: Answer::Json,
        errors: &[BAD_PARAMETER, NOT_FOUND, FLASH],
        ..PLAIN
    },
];

/// Each operation has its row, at its own place.
const _: () = {
    let mut at = 0;
    while at < ROUTES.len() {
        assert!(ROUTES[at].operation as usize == at, "rows stand in the order of the operations");
        at += 1;
    }
    assert!(ROUTES.len() == Operation::DeleteReadings as usize + 1, "the last operation has a row");
};

impl Route {
    /// The row of an operation.
    #[must_use]
    pub fn of(operation: Operation) -> &'static Self {
        &ROUTES[operation as usize]
    }

    /// The request's path and parameters, with these names in the path.
    #[must_use]
    pub fn target(&self, names: &[&str], parameters: &[(&str, String)]) -> String {
        let mut names = names.iter();
        let levels: Vec<String> = self
            .path
            .split('/')
            .map(|level| match level.starts_with('{').then(|| names.next()).flatten() {
                Some(name) => encoded(name),
                None => level.to_owned(),
            })
            .collect();
        let parameters: Vec<String> =
            parameters.iter().map(|(key, value)| format!("{key}={}", encoded(value))).collect();
        let question = if parameters.is_empty() { "" } else { "?" };
        format!("{}{question}{}", levels.join("/"), parameters.join("&"))
    }
}

/// A request, matched and its parameters read.
#[derive(Debug)]
pub struct Call {
    pub route: &'static Route,
    /// The names in the path, in order, decoded.
    pub names: Vec<String>,
    /// Each parameter once.
    pub parameters: Vec<(String, String)>,
}

impl Call {
    /// The value of a parameter.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter of kind integer.
    #[must_use]
    pub fn integer(&self, name: &str) -> Option<u64> {
        self.parameter(name)?.parse().ok()
    }

    /// A name in the path.
    #[must_use]
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// Finds the route of a request.
///
/// # Errors
/// What is answered when there is none: 404, or 405 with the methods that are allowed.
pub fn find(method: &str, path: &str) -> Result<(&'static Route, Vec<String>), Response> {
    let method = if method == "HEAD" { "GET" } else { method };
    let mut allowed = Vec::new();
    for route in &ROUTES {
        if let Some(names) = matched(route.path, path) {
            if route.method == method {
                return Ok((route, names));
            }
            allowed.push(route.method);
        }
    }
    if allowed.is_empty() {
        return Err(Response::error(404, "no such resource"));
    }
    let allowed = allowed.join(", ");
    Err(Response::error(405, &format!("only {allowed} is allowed here")).with_allowed(allowed))
}

/// Reads the parameters of a request.
///
/// # Errors
/// What is wrong with them, as 400.
pub fn call(route: &'static Route, names: Vec<String>, parameters: &str) -> Result<Call, Response> {
    let mut read: Vec<(String, String)> = Vec::new();
    for pair in pairs(parameters) {
        let (key, value) = pair.map_err(|why| Response::error(400, &why))?;
        let Some(parameter) = route.parameters.iter().find(|parameter| parameter.name == key) else {
            return Err(Response::error(400, &format!("unknown parameter {key}")));
        };
        check(parameter, &value).map_err(|why| Response::error(400, &why))?;
        if read.iter().any(|(known, _)| *known == key) {
            return Err(Response::error(400, &format!("{key} stands there twice")));
        }
        read.push((key, value));
    }
    for parameter in route.parameters.iter().filter(|parameter| parameter.required) {
        if !read.iter().any(|(key, _)| key == parameter.name) {
            return Err(Response::error(400, &format!("the parameter {} is missing", parameter.name)));
        }
    }
    Ok(Call { route, names, parameters: read })
}

fn check(parameter: &Parameter, value: &str) -> Result<(), String> {
    let name = parameter.name;
    match parameter.kind {
        Kind::Text => Ok(()),
        Kind::Flag if matches!(value, "true" | "false") => Ok(()),
        Kind::Flag => Err(format!("{name}: `{value}` is neither true nor false")),
        Kind::Integer { min, max } => match value.parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(()),
            _ => Err(format!("{name}: `{value}` is no number from {min} to {max}")),
        },
        Kind::OneOf(words) if words.contains(&value) => Ok(()),
        Kind::OneOf(words) => Err(format!("{name}: `{value}` is none of {}", words.join(", "))),
    }
}

/// The names in `path` when it has the form of `template`.
fn matched(template: &str, path: &str) -> Option<Vec<String>> {
    let (mut levels, mut names) = (path.split('/'), Vec::new());
    for expected in template.split('/') {
        let level = levels.next()?;
        if expected.starts_with('{') {
            if level.is_empty() {
                return None;
            }
            names.push(unescaped(level)?);
        } else if expected != level {
            return None;
        }
    }
    levels.next().is_none().then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(method: &str, path: &str, parameters: &str) -> String {
        let found = find(method, path).and_then(|(route, names)| call(route, names, parameters));
        match found {
            Ok(call) => format!("{} {:?} {:?}", call.route.name, call.names, call.parameters),
            Err(response) => format!("{} {}", response.status, response.body.trim()),
        }
    }

    #[test]
    fn requests_find_their_rows() {
        for (method, path, parameters, expected) in [
            ("GET", "/", "", "page [] []"),
            ("HEAD", "/healthz", "", "health [] []"),
            ("GET", "/api/v1/queues/a%2Fb/messages", "limit=3", "peekQueue [\"a/b\"] [(\"limit\", \"3\")]"),
            ("DELETE", "/api/v1/queues/q/messages", "", "purgeQueue [\"q\"] []"),
            ("POST", "/api/v1/queues/q/messages", "", "405 {\"error\":\"only GET, DELETE is allowed here\"}"),
            ("GET", "/api/v1/queues//messages", "", "404 {\"error\":\"no such resource\"}"),
            ("GET", "/api/v1/status/", "", "404 {\"error\":\"no such resource\"}"),
            ("GET", "/api/v1/status", "x=1", "400 {\"error\":\"unknown parameter x\"}"),
            ("POST", "/api/v1/publish", "", "400 {\"error\":\"the parameter topic is missing\"}"),
            (
                "POST",
                "/api/v1/publish",
                "topic=a&qos=3",
                "400 {\"error\":\"qos: `3` is no number from 0 to 2\"}",
            ),
            (
                "POST",
                "/api/v1/publish",
                "topic=a&retain=1",
                "400 {\"error\":\"retain: `1` is neither true nor false\"}",
            ),
            (
                "POST",
                "/api/v1/publish",
                "topic=u%ff",
                "400 {\"error\":\"`topic=u%ff` is not UTF-8 once its percent signs are resolved\"}",
            ),
            ("GET", "/api/v1/queues/%ff/messages", "", "404 {\"error\":\"no such resource\"}"),
            ("POST", "/api/v1/publish", "topic=a&topic=b", "400 {\"error\":\"topic stands there twice\"}"),
            ("GET", "/metrics", "per=x", "400 {\"error\":\"per: `x` is none of class, queue\"}"),
        ] {
            assert_eq!(shown(method, path, parameters), expected, "{method} {path} {parameters}");
        }
    }

    #[test]
    fn every_operation_has_a_row_and_targets_lead_back_to_it() {
        for route in &ROUTES {
            assert_eq!(Route::of(route.operation).name, route.name);
            let target = route.target(&["a/b ?%"], &[("topic", "x&y".to_owned())]);
            let (path, parameters) = target.split_once('?').unwrap();
            let (found, names) = find(route.method, path).unwrap();
            assert_eq!(found.name, route.name);
            assert!(names.iter().all(|name| name == "a/b ?%"), "{names:?}");
            assert_eq!(pairs(parameters).collect::<Vec<_>>(), [Ok(("topic".to_owned(), "x&y".to_owned()))]);
        }
    }

    #[test]
    fn rows_differ_and_readers_change_nothing() {
        let mut seen = Vec::new();
        for route in &ROUTES {
            assert!(!seen.contains(&(route.method, route.path)), "{}", route.name);
            seen.push((route.method, route.path));
            assert!(route.method == "GET" || route.access != Access::Public);
        }
    }
}
