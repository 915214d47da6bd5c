//! Results as text: JSON, JSON lines, CSV and line protocol. A document is given back as it came, with `_topic`,
//! `_received_at` and what else is known of it behind its own members.

use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::document::{Payload, unescape};
use super::path::{Found, Kind, leaves};
use super::query::{Bucket, Item, Query, Sink};

/// Text is passed on in pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;
/// Readings that decide which columns a CSV has.
const SAMPLE: usize = 1000;

/// A form of the results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// One array.
    Json,
    /// One object on each line.
    JsonLines,
    Csv,
    /// For InfluxDB, VictoriaMetrics and the like. Readings only.
    LineProtocol,
}

impl Format {
    /// Its name, as options and the HTTP API have it.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "json" => Self::Json,
            "jsonl" => Self::JsonLines,
            "csv" => Self::Csv,
            "line-protocol" => Self::LineProtocol,
            _ => return None,
        })
    }

    /// Its media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::JsonLines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
            Self::LineProtocol => "text/plain; charset=utf-8",
        }
    }
}

/// Takes text; false when nobody wants more.
pub type Out<'o> = dyn FnMut(Vec<u8>) -> bool + 'o;

/// Writes what a query finds.
pub struct Writer<'o> {
    format: Format,
    collection: String,
    by: Vec<String>,
    aggregates: Vec<String>,
    out: &'o mut Out<'o>,
    text: Vec<u8>,
    results: u64,
    /// Columns of a CSV of readings, once they are decided.
    columns: Option<Vec<String>>,
    sample: Vec<Vec<(String, String)>>,
    /// Time and number of the last line: points of one time are told apart by nanoseconds.
    last: (i64, u32),
}

impl<'o> Writer<'o> {
    #[must_use]
    pub fn new(format: Format, query: &Query, out: &'o mut Out<'o>) -> Self {
        let name = |place: &super::Place| match place {
            super::Place::Topic => "_topic".to_owned(),
            super::Place::ReceivedAt => "_received_at".to_owned(),
            super::Place::At(path) => path.to_string(),
        };
        Self {
            format,
            collection: query.collection.to_string(),
            by: query.by.iter().map(name).collect(),
            aggregates: query.aggregates.iter().map(ToString::to_string).collect(),
            out,
            text: Vec::new(),
            results: 0,
            columns: None,
            sample: Vec::new(),
            last: (i64::MIN, 0),
        }
    }

    /// Writes the end, and passes on what is left.
    pub fn finish(mut self) {
        match self.format {
            Format::Json if self.results == 0 => self.text.extend_from_slice(b"[]\n"),
            Format::Json => self.text.extend_from_slice(b"\n]\n"),
            Format::Csv => self.write_sample(),
            Format::JsonLines | Format::LineProtocol => {}
        }
        if !self.text.is_empty() {
            (self.out)(std::mem::take(&mut self.text));
        }
    }

    fn begin(&mut self) {
        if self.format == Format::Json {
            self.text.extend_from_slice(if self.results == 0 { b"[\n" } else { b",\n" });
        }
        self.results += 1;
    }

    fn end(&mut self) -> bool {
        if self.format == Format::JsonLines {
            self.text.push(b'\n');
        }
        self.text.len() < PIECE_BYTES || (self.out)(std::mem::take(&mut self.text))
    }

    fn write_sample(&mut self) {
        if self.columns.is_some() {
            return;
        }
        let mut columns: Vec<String> = Vec::new();
        for (name, _) in self.sample.iter().flatten() {
            // The last column has this name.
            if !columns.contains(name) && name != "_more" {
                columns.push(name.clone());
            }
        }
        if !columns.is_empty() {
            csv_line(&mut self.text, columns.iter().map(String::as_str).chain(["_more"]));
        }
        for row in std::mem::take(&mut self.sample) {
            write_row(&mut self.text, &columns, row);
        }
        self.columns = Some(columns);
    }

    fn line(&mut self, item: &Item<'_>) {
        let mut fields: Vec<u8> = Vec::new();
        each_field(item.payload, &mut |name, kind, value| {
            let text = match kind {
                Kind::Number if value.parse::<f64>().is_ok_and(f64::is_finite) => value.to_owned(),
                Kind::Word if value != "null" => value.to_owned(),
                Kind::Word | Kind::Number => return,
                Kind::String | Kind::Object | Kind::Array => {
                    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
                }
            };
            if !fields.is_empty() {
                fields.push(b',');
            }
            fields.extend_from_slice(format!("{}={text}", escaped(name)).as_bytes());
        });
        if fields.is_empty() {
            return;
        }
        self.text.extend_from_slice(escaped(&self.collection).as_bytes());
        self.text.extend_from_slice(format!(",topic={}", escaped(&item.origin.topic)).as_bytes());
        for (name, value) in item.origin.tags.iter().filter(|(_, value)| !value.is_empty()) {
            self.text.extend_from_slice(format!(",{}={}", escaped(name), escaped(value)).as_bytes());
        }
        self.text.push(b' ');
        self.text.append(&mut fields);
        self.last = if self.last.0 == item.time { (item.time, self.last.1 + 1) } else { (item.time, 0) };
        let nanoseconds = i128::from(item.time) * 1_000_000 + i128::from(self.last.1);
        self.text.extend_from_slice(format!(" {nanoseconds}\n").as_bytes());
    }
}

impl Sink for Writer<'_> {
    fn item(&mut self, item: &Item<'_>) -> bool {
        match self.format {
            Format::Json | Format::JsonLines => {
                self.begin();
                put_json(&mut self.text, item);
            }
            Format::LineProtocol => self.line(item),
            Format::Csv => {
                let row = row_of(item);
                match &self.columns {
                    Some(columns) => write_row(&mut self.text, columns, row),
                    None => {
                        self.sample.push(row);
                        if self.sample.len() >= SAMPLE {
                            self.write_sample();
                        }
                    }
                }
            }
        }
        self.end()
    }

    fn bucket(&mut self, bucket: &Bucket<'_>) -> bool {
        if matches!(self.format, Format::Csv | Format::LineProtocol) {
            let start = bucket.start.map(|start| start.to_string());
            if self.results == 0 {
                let names = self.by.iter().chain(&self.aggregates).map(String::as_str);
                csv_line(&mut self.text, start.as_ref().map(|_| "_start").into_iter().chain(names));
            }
            self.results += 1;
            let values: Vec<String> =
                bucket.values.iter().map(|v| v.map(|v| v.to_string()).unwrap_or_default()).collect();
            let group = bucket.group.iter().map(|name| &**name);
            csv_line(
                &mut self.text,
                start.as_deref().into_iter().chain(group).chain(values.iter().map(String::as_str)),
            );
            return self.end();
        }
        self.begin();
        let mut members = Vec::new();
        if let Some(start) = bucket.start {
            members.push(format!("\"_start\": {start}"));
        }
        for (name, value) in self.by.iter().zip(bucket.group) {
            members.push(format!("{}: {}", quoted(name), quoted(value)));
        }
        for (name, value) in self.aggregates.iter().zip(bucket.values) {
            let value = value.filter(|value| value.is_finite());
            members.push(format!(
                "{}: {}",
                quoted(name),
                value.map_or_else(|| "null".to_owned(), |value| value.to_string())
            ));
        }
        self.text.extend_from_slice(format!("{{{}}}", members.join(", ")).as_bytes());
        self.end()
    }
}

/// Appends JSON with its line breaks as spaces. In strings there are none: they are escaped there.
fn put_on_one_line(out: &mut Vec<u8>, json: &str) {
    out.extend(json.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
}

/// Appends a reading as a JSON object on one line.
pub fn put_json(out: &mut Vec<u8>, item: &Item<'_>) {
    let mut more = Vec::new();
    match Payload::of(item.payload) {
        Payload::Object(text) => {
            let inside = text.trim_end().strip_suffix('}').unwrap_or(text).trim_end();
            put_on_one_line(out, inside);
            if inside.trim_start() != "{" {
                out.extend_from_slice(b", ");
            }
        }
        Payload::Json(text) => {
            out.extend_from_slice(b"{\"payload\": ");
            put_on_one_line(out, text.trim());
            out.extend_from_slice(b", ");
        }
        Payload::Text(text, why) => {
            out.extend_from_slice(format!("{{\"payload\": {}, ", quoted(text)).as_bytes());
            more.extend(why.map(|why| format!("\"_error\": {}", quoted(&why.to_string()))));
        }
        Payload::Binary(bytes) => {
            out.extend_from_slice(
                format!("{{\"payload\": \"{}\", ", BASE64_STANDARD.encode(bytes)).as_bytes(),
            );
            more.push("\"_encoding\": \"base64\"".to_owned());
        }
    }
    out.extend_from_slice(
        format!("\"_topic\": {}, \"_received_at\": {}", quoted(&item.origin.topic), item.time).as_bytes(),
    );
    if !item.origin.tags.is_empty() {
        let tags: Vec<_> = item
            .origin
            .tags
            .iter()
            .map(|(name, value)| format!("{}: {}", quoted(name), quoted(value)))
            .collect();
        more.push(format!("\"_tags\": {{{}}}", tags.join(", ")));
    }
    if item.estimated {
        more.push("\"_time\": \"estimated\"".to_owned());
    }
    for member in more {
        // Writing to memory does not fail.
        drop(write!(out, ", {member}"));
    }
    out.push(b'}');
}

/// Tells the fields of a payload with their paths; strings without quotes and escapes.
pub(super) fn each_field(payload: &[u8], each: &mut dyn FnMut(&str, Kind, &str)) {
    match Payload::of(payload) {
        Payload::Object(text) => {
            leaves(text.as_bytes(), &mut |name, found| {
                each(name, found.kind, &value_text(text, found));
            });
        }
        Payload::Json(text) => {
            let text = text.trim();
            if let Some(found) = super::path::find(text.as_bytes(), &[]) {
                each("payload", found.kind, &value_text(text, found));
            }
        }
        Payload::Text(text, _) => each("payload", Kind::String, text),
        Payload::Binary(bytes) => each("payload", Kind::String, &BASE64_STANDARD.encode(bytes)),
    }
}

fn value_text(text: &str, found: Found) -> String {
    if found.kind == Kind::String {
        let inside = text.as_bytes().get(found.start + 1..found.end.saturating_sub(1)).unwrap_or_default();
        return unescape(inside);
    }
    text.get(found.start..found.end).unwrap_or_default().to_owned()
}

/// Names and values of a reading, those of every reading first.
fn row_of(item: &Item<'_>) -> Vec<(String, String)> {
    let mut row = vec![
        ("_received_at".to_owned(), item.time.to_string()),
        ("_topic".to_owned(), item.origin.topic.to_string()),
    ];
    row.extend(item.origin.tags.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    each_field(item.payload, &mut |name, _, value| row.push((name.to_owned(), value.to_owned())));
    row
}

/// A line of a CSV; what has no column goes to the last as JSON, as does a field whose column is taken: by what every
/// reading has, by a tag, or by a field of the same name.
fn write_row(out: &mut Vec<u8>, columns: &[String], row: Vec<(String, String)>) {
    let mut values: Vec<Option<String>> = vec![None; columns.len()];
    let mut more = Vec::new();
    for (name, value) in row {
        match columns.iter().position(|column| *column == name).and_then(|at| values.get_mut(at)) {
            Some(place @ None) => *place = Some(value),
            Some(Some(_)) | None => more.push(format!("{}: {}", quoted(&name), quoted(&value))),
        }
    }
    let more = if more.is_empty() { String::new() } else { format!("{{{}}}", more.join(", ")) };
    let values = values.iter().map(|value| value.as_deref().unwrap_or_default());
    csv_line(out, values.chain([more.as_str()]));
}

fn csv_line<'v>(out: &mut Vec<u8>, values: impl Iterator<Item = &'v str>) {
    for (at, value) in values.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if value.contains([',', '"', '\n', '\r']) {
            out.extend_from_slice(format!("\"{}\"", value.replace('"', "\"\"")).as_bytes());
        } else {
            out.extend_from_slice(value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// A name or a tag's value of line protocol.
fn escaped(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c {
            ',' | '=' | ' ' | '\\' => out.extend(['\\', c]),
            '\n' | '\r' | '\t' => out.push('_'),
            c => out.push(c),
        }
    }
    out
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::registry::Origin;
    use super::*;

    fn item<'a>(origin: &'a Origin, payload: &'a [u8]) -> Item<'a> {
        Item { time: 1_791_754_335_817, estimated: false, origin, payload }
    }

    fn json(payload: &[u8]) -> String {
        let origin = Origin { topic: "s/a".into(), tags: Vec::new() };
        let mut out = Vec::new();
        put_json(&mut out, &item(&origin, payload));
        let text = String::from_utf8(out).unwrap();
        assert!(super::super::document::check(&text).is_ok(), "{text}");
        text.replace(", \"_topic\": \"s/a\", \"_received_at\": 1791754335817", "")
    }

    #[test]
    fn readings_come_back_as_they_came_and_are_marked() {
        assert_eq!(json(br#"{"value": 27.30, "unit": "C"}"#), r#"{"value": 27.30, "unit": "C"}"#);
        assert_eq!(json(b" { } \n"), " {\"_topic\": \"s/a\", \"_received_at\": 1791754335817}");
        assert_eq!(json(b"18.9"), r#"{"payload": 18.9}"#);
        assert_eq!(json(b"on\""), r#"{"payload": "on\""}"#);
        assert_eq!(json(&[255, 0]), r#"{"payload": "/wA=", "_encoding": "base64"}"#);
        assert_eq!(json(b"{\"v\": NaN}"), r#"{"payload": "{\"v\": NaN}", "_error": "not JSON at byte 6"}"#);
    }

    fn written(format: Format, items: &[&[u8]]) -> String {
        let origin = Origin { topic: "s/a b".into(), tags: vec![("site".into(), "n,1".into())] };
        let mut text = Vec::new();
        let query = Query { collection: "readings".into(), ..Query::default() };
        let mut out = |piece: Vec<u8>| {
            text.extend(piece);
            true
        };
        let mut writer = Writer::new(format, &query, &mut out);
        for payload in items {
            writer.item(&item(&origin, payload));
        }
        writer.finish();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn csv_has_a_column_for_each_field() {
        let text =
            written(Format::Csv, &[br#"{"a": 1.50, "b": {"c": "x,y"}}"#, br#"{"a": 2, "d": [1, 2]}"#, b"7"]);
        let expected = "_received_at,_topic,site,a,b.c,d,payload,_more\r\n\
            1791754335817,s/a b,\"n,1\",1.50,\"x,y\",,,\r\n\
            1791754335817,s/a b,\"n,1\",2,,\"[1, 2]\",,\r\n\
            1791754335817,s/a b,\"n,1\",,,,7,\r\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_reading_stays_on_one_line() {
        let payloads: [&[u8]; 3] =
            [b"{\n  \"value\": 77,\r\n  \"text\": \"a\\nb\"\n}\n", b"[1,\n 2]", b"two\nlines"];
        let text = written(Format::JsonLines, &payloads);
        assert_eq!(text.lines().count(), payloads.len(), "{text}");
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&rows[0]["value"], &rows[0]["text"]), (&77.into(), &"a\nb".into()));
        assert_eq!(rows[1]["payload"], serde_json::json!([1, 2]));
        assert_eq!(rows[2]["payload"], "two\nlines");
    }

    #[test]
    fn a_payload_takes_no_column_that_is_not_its_own() {
        let payload =
            br#"{"_topic": "evil", "_received_at": 5, "site": "elsewhere", "_more": 1, "value": 3}"#;
        let text = written(Format::Csv, &[payload]);
        let expected = "_received_at,_topic,site,value,_more\r\n\
            1791754335817,s/a b,\"n,1\",3,\"{\"\"_topic\"\": \"\"evil\"\", \"\"_received_at\"\": \"\"5\"\", \
            \"\"site\"\": \"\"elsewhere\"\", \"\"_more\"\": \"\"1\"\"}\"\r\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn line_protocol_tells_points_of_one_millisecond_apart() {
        let text = written(Format::LineProtocol, &[br#"{"a": 1.5, "s": "q\"", "n": null}"#, br#"{"a": 2}"#]);
        let expected = "readings,topic=s/a\\ b,site=n\\,1 a=1.5,s=\"q\\\"\" 1791754335817000000\n\
            readings,topic=s/a\\ b,site=n\\,1 a=2 1791754335817000001\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn json_is_one_array() {
        let text = written(Format::Json, &[b"1", b"2"]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value.as_array().unwrap().len(), 2);
        assert_eq!(written(Format::Json, &[]), "[]\n");
    }
}
