//! The routes of collections: what is asked of them, read from path and parameters.
//!
//! ```text
//! GET    /api/v1/collections                   what there is
//! GET    /api/v1/collections/NAME              its series and its error lane
//! GET    /api/v1/collections/NAME/query        readings or aggregates
//! GET    /api/v1/collections/NAME/tail         readings as they come, one JSON object a line
//! DELETE /api/v1/collections/NAME/readings     a span of time (since, until), topics, or all=true
//! ```

use super::Response;
use crate::series::{Aggregate, Condition, Format, Path, Place, Query, check_filter};
use crate::time::{Now, calendar};

/// Longest stretch of `every`, milliseconds: a century.
const EVERY_MAX: i64 = 36_525 * 86_400_000;
/// Aggregates, or places to group by, of one query.
const LIST_MAX: usize = 32;

/// What a request asks of collections.
#[derive(Debug)]
pub enum Asked {
    /// Nothing: this is the answer.
    Refused(Response),
    Overview(Option<String>),
    Query(Box<Query>, Format),
    Follow(Box<Query>),
    Delete(Box<Query>),
}

/// Reads a request; `None` when it is not about collections.
#[must_use]
pub fn ask(now: Now, method: &str, path: &str, parameters: &str) -> Option<Asked> {
    let rest = path.strip_prefix("/api/v1/collections")?;
    let mut parts = rest.split('/').skip(1);
    let (name, verb, more) = (parts.next(), parts.next(), parts.next());
    if more.is_some() || !(rest.is_empty() || rest.starts_with('/')) {
        return Some(Asked::Refused(Response::error(404, "no such resource")));
    }
    let name = match name.filter(|name| !name.is_empty()).map(unescaped) {
        Some(None) => return Some(Asked::Refused(Response::error(404, "no such resource"))),
        name => name.flatten(),
    };
    let wants = match verb {
        None | Some("query" | "tail") => "GET",
        Some("readings") => "DELETE",
        Some(_) => return Some(Asked::Refused(Response::error(404, "no such resource"))),
    };
    if method != wants && !(method == "HEAD" && wants == "GET") {
        let refusal = Response::error(405, &format!("only {wants} is allowed here"));
        return Some(Asked::Refused(refusal.with_allowed(wants.to_owned())));
    }
    let (Some(name), Some(verb)) = (name.clone(), verb) else { return Some(Asked::Overview(name)) };
    let asked = read(now, name, verb, parameters);
    Some(asked.unwrap_or_else(|why| Asked::Refused(Response::error(400, &why))))
}

fn read(now: Now, name: String, verb: &str, parameters: &str) -> Result<Asked, String> {
    let now_ms = i64::try_from(now.wall.0).unwrap_or(i64::MAX);
    let mut query = Query { collection: name.into(), ..Query::default() };
    let mut format = Format::JsonLines;
    let (mut functions, mut field, mut all) = (Vec::new(), None, false);
    for pair in pairs(parameters) {
        let (key, value) = pair?;
        let moment =
            || calendar::parse(&value, now_ms).ok_or_else(|| format!("{key}: `{value}` is no moment"));
        match key.as_str() {
            "since" => query.since = Some(moment()?),
            "until" => query.until = Some(moment()?),
            "topic" => {
                check_filter(&value).map_err(|why| format!("topic: `{value}` is no filter: {why}"))?;
                query.topic = Some(value.into());
            }
            "where" => query.condition = Some(Condition::parse(&value).map_err(|error| error.to_string())?),
            "every" => {
                let every = calendar::parse_duration(&value).filter(|every| (1..=EVERY_MAX).contains(every));
                query.every_ms = Some(every.ok_or_else(|| format!("every: `{value}` is no duration"))?);
            }
            "agg" => functions = listed(&value),
            "field" => {
                field = Some(Path::parse(&value).ok_or_else(|| format!("field: `{value}` is no field"))?)
            }
            "by" => {
                let place =
                    |name: &String| Place::parse(name).ok_or_else(|| format!("by: `{name}` is no field"));
                query.by = listed(&value).iter().map(place).collect::<Result<_, _>>()?;
            }
            "limit" => {
                query.limit = Some(value.parse().map_err(|_| format!("limit: `{value}` is no number"))?)
            }
            "format" => {
                format = Format::of_name(&value)
                    .ok_or_else(|| format!("format: `{value}` is none of json, jsonl, csv, line-protocol"))?;
            }
            "all" => all = value == "true",
            _ => return Err(format!("unknown parameter {key}")),
        }
    }
    if functions.len() > LIST_MAX || query.by.len() > LIST_MAX {
        return Err(format!("more than {LIST_MAX} aggregates or groups"));
    }
    let aggregate = |text: &String| {
        Aggregate::parse(text, field.as_ref()).ok_or_else(|| {
            format!("agg: `{text}` is none of count, avg, sum, min, max, first, last, p1 to p99")
        })
    };
    query.aggregates = functions.iter().map(aggregate).collect::<Result<_, _>>()?;
    if query.aggregates.is_empty() && (query.every_ms.is_some() || !query.by.is_empty()) {
        return Err("every and by want agg".to_owned());
    }
    if format == Format::LineProtocol && !query.aggregates.is_empty() {
        return Err("line-protocol is for readings".to_owned());
    }
    Ok(match verb {
        "query" => Asked::Query(Box::new(query), format),
        "tail" => Asked::Follow(Box::new(query)),
        _ if query.condition.is_some() => return Err("where does not go with deletion".to_owned()),
        _ if query.since.is_none() && query.until.is_none() && query.topic.is_none() && !all => {
            return Err("deletion wants since, until or topic, or all=true".to_owned());
        }
        _ => Asked::Delete(Box::new(query)),
    })
}

/// A list: its parts stand between commas.
fn listed(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The parameters; an error for one that is no text.
pub(super) fn pairs(parameters: &str) -> impl Iterator<Item = Result<(String, String), String>> {
    parameters.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let read = decoded(key).zip(decoded(value));
        read.ok_or_else(|| format!("`{pair}` is not UTF-8 once its percent signs are resolved"))
    })
}

/// Resolves `%41` and, as in forms, `+`.
fn decoded(text: &str) -> Option<String> {
    unescaped(&text.replace('+', " "))
}

/// Resolves `%41`; `None` when what comes out is not UTF-8.
pub(super) fn unescaped(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%'
            && let Some(value) = hexadecimal(bytes.clone())
        {
            out.push(value);
            bytes.next();
            bytes.next();
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

fn hexadecimal(mut digits: std::str::Bytes<'_>) -> Option<u8> {
    let mut digit = || char::from(digits.next()?).to_digit(16);
    let (high, low) = (digit()?, digit()?);
    u8::try_from(high * 16 + low).ok()
}

/// Escapes a parameter's value.
#[must_use]
pub fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Mono, Wall};

    fn asked(method: &str, target: &str) -> String {
        let now = Now { mono: Mono(0), wall: Wall(10_000_000), wall_trusted: true };
        let (path, parameters) = target.split_once('?').unwrap_or((target, ""));
        match ask(now, method, path, parameters) {
            None => "not about collections".to_owned(),
            Some(Asked::Refused(response)) => format!("{} {}", response.status, response.body.trim()),
            Some(Asked::Overview(name)) => format!("overview {name:?}"),
            Some(Asked::Query(query, format)) => format!(
                "query {} {:?} {:?} {format:?} {}",
                query.collection,
                query.since,
                query.topic,
                query.aggregates.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            ),
            Some(Asked::Follow(query)) => format!("follow {}", query.collection),
            Some(Asked::Delete(query)) => format!("delete {} {:?}", query.collection, query.until),
        }
    }

    #[test]
    fn requests_are_read() {
        let base = "/api/v1/collections";
        for (method, rest, expected) in [
            ("GET", "", "overview None"),
            ("GET", "/readings", "overview Some(\"readings\")"),
            (
                "GET",
                "/r/query?since=1h&topic=a%2F%2B&agg=avg,p95(x.y)",
                "query r Some(6400000) Some(\"a/+\") JsonLines avg,p95(x.y)",
            ),
            ("GET", "/r/query?format=csv", "query r None None Csv "),
            ("GET", "/r/tail", "follow r"),
            ("HEAD", "", "overview None"),
            ("HEAD", "/r/query", "query r None None JsonLines "),
            (
                "DELETE",
                "/r/readings?topic=sensors%2F%23%2Fold",
                "400 {\"error\":\"topic: `sensors/#/old` is no filter: # stands alone in the last level\"}",
            ),
            (
                "GET",
                "/r/query?topic=",
                "400 {\"error\":\"topic: `` is no filter: a filter has at least one character\"}",
            ),
            (
                "GET",
                "/r/tail?topic=u%ff",
                "400 {\"error\":\"`topic=u%ff` is not UTF-8 once its percent signs are resolved\"}",
            ),
            ("GET", "/%ff/query", "404 {\"error\":\"no such resource\"}"),
            ("DELETE", "/r/readings?until=now", "delete r Some(10000000)"),
            (
                "DELETE",
                "/r/readings",
                "400 {\"error\":\"deletion wants since, until or topic, or all=true\"}",
            ),
            ("GET", "/r/readings", "405 {\"error\":\"only DELETE is allowed here\"}"),
            ("POST", "/r/query", "405 {\"error\":\"only GET is allowed here\"}"),
            ("GET", "/r/query?every=1m", "400 {\"error\":\"every and by want agg\"}"),
            ("GET", "/r/query?since=yesterday", "400 {\"error\":\"since: `yesterday` is no moment\"}"),
            ("GET", "/r/query?colour=1", "400 {\"error\":\"unknown parameter colour\"}"),
            ("GET", "/r/fly", "404 {\"error\":\"no such resource\"}"),
            ("GET", "s", "404 {\"error\":\"no such resource\"}"),
        ] {
            assert_eq!(asked(method, &format!("{base}{rest}")), expected, "{rest}");
        }
        assert_eq!(asked("GET", "/api/v1/status"), "not about collections");
        assert_eq!(decoded(&encoded("a/+ %é'")).as_deref(), Some("a/+ %é'"));
    }
}
