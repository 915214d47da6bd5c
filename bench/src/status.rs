//! What a gateway says about its own storage: the status document over HTTP, read with one request.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;

/// Counters of the store at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StorageCounters {
    /// Bytes handed to the disk.
    pub bytes_written: u64,
    /// Syncs asked of the disk.
    pub syncs: u64,
}

impl StorageCounters {
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            syncs: self.syncs.saturating_sub(earlier.syncs),
        }
    }
}

/// Reads `url` (`http://host:port/path`) and finds `bytes_written` and `syncs` wherever they stand in the document.
pub fn fetch(url: &str) -> io::Result<StorageCounters> {
    let document = fetch_json(url)?;
    let number = |key| find(&document, key).and_then(Value::as_u64);
    match (number("bytes_written"), number("syncs")) {
        (Some(bytes_written), Some(syncs)) => Ok(StorageCounters { bytes_written, syncs }),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "the status has no bytes_written and syncs")),
    }
}

/// One GET, the body as JSON.
pub fn fetch_json(url: &str) -> io::Result<Value> {
    let bad_url = || io::Error::new(ErrorKind::InvalidInput, format!("not an http:// URL: {url}"));
    let rest = url.strip_prefix("http://").ok_or_else(bad_url)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = authority.to_socket_addrs()?.next().ok_or_else(bad_url)?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET /{path} HTTP/1.0\r\nHost: {authority}\r\nAccept: application/json\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("an answer without a body"))?;
    let status_line = head.lines().next().unwrap_or_default();
    if status_line.split(' ').nth(1) != Some("200") {
        return Err(io::Error::other(format!("{url} answered {status_line}")));
    }
    serde_json::from_str(body).map_err(io::Error::other)
}

fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(key).or_else(|| map.values().find_map(|value| find(value, key))),
        Value::Array(items) => items.iter().find_map(|value| find(value, key)),
        _ => None,
    }
}
