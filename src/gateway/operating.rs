//! What an operator does by hand: looks into a queue, empties it, ends a client's connection, asks what was denied.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::{Gateway, Ticket};
use crate::auth::{Acl, Denial};
use crate::broker::QueueKind;
use crate::time::Now;

/// Bytes of a payload that are shown.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

impl Gateway {
    /// Up to `limit` messages of a queue or session, in the order in which they leave; `None` when there is none of
    /// that name. `kind` is `queue` or `session`.
    #[must_use]
    pub fn peek(&self, name: &str, kind: Option<&str>, limit: usize) -> Option<Value> {
        let index = self.broker.find_queue(name, kind_of(kind))?;
        let messages = self.broker.peek(index).take(limit).map(|(held, in_flight, redelivered)| {
            let message = &held.message;
            let shown = message.body.get(..PAYLOAD_BYTES_MAX).unwrap_or(&message.body);
            let (payload, encoding) = match std::str::from_utf8(shown) {
                Ok(text) => (text.to_owned(), Value::Null),
                Err(_) => (BASE64_STANDARD.encode(shown), json!("base64")),
            };
            json!({
                "address": message.address,
                "payload": payload,
                "encoding": encoding,
                "payload_bytes": message.body.len(),
                "received_at_ms": message.received_at.0,
                "received_trusted": message.received_trusted,
                "assurance": message.assurance.code(),
                "retain": message.retain,
                "in_flight": in_flight,
                "redelivered": redelivered,
                "sequence": held.key().0,
            })
        });
        Some(Value::Array(messages.collect()))
    }

    /// Drops the messages of a queue or session that wait; what is in flight stays. Answers how many, and the ticket
    /// of what is told when that is on flash; `None` when there is no queue of that name.
    pub fn purge(&mut self, now: Now, name: &str, kind: Option<&str>) -> Option<(usize, Ticket)> {
        let index = self.broker.find_queue(name, kind_of(kind))?;
        let (count, gate) = self.broker.purge_queue(now, index);
        Some((count, self.answer_behind(now, gate)))
    }

    /// Ends the connections of a client identifier, or the connection of that number; answers how many. Sessions stay.
    pub fn kick(&mut self, now: Now, client: &str) -> usize {
        let number: Option<u64> = client.parse().ok();
        let joined = self.connections.iter().filter(|(_, endpoint)| endpoint.protocol.is_joined());
        let meant = |id: u64, identifier: &str| match number {
            Some(number) if number == id => true,
            _ => identifier == client,
        };
        let ids: Vec<_> = joined
            .filter(|(id, endpoint)| meant(id.0, endpoint.protocol.identity().client_identifier))
            .map(|(id, _)| id)
            .collect();
        for id in &ids {
            let Some(endpoint) = self.connections.get(*id) else { continue };
            let end = endpoint.protocol.kicked();
            self.end(now, *id, end);
        }
        ids.len()
    }

    /// What clients were not allowed to do, the newest last.
    #[must_use]
    pub fn denials(&self) -> Value {
        Value::Array(self.denials_where(|_| true))
    }

    /// The lines of the ACL file that nothing was asked about since it was read, by number; `None` without a file.
    #[must_use]
    pub fn acl_lines(&self) -> Value {
        let lines = self.acl.as_ref().map(Acl::lines);
        let unmet = lines
            .as_ref()
            .map(|lines| lines.iter().filter(|line| !line.met).map(|line| line.number).collect::<Vec<_>>());
        json!({ "lines": lines.map(|lines| lines.len()), "unmet": unmet })
    }

    /// Some of that.
    pub(super) fn denials_where(&self, wanted: impl Fn(&Denial) -> bool) -> Vec<Value> {
        let denials = self.tally.denials.remembered();
        let shown = denials.iter().filter(|denial| wanted(denial)).map(|denial| {
            json!({
                "denied": denial.denied.name(),
                "user_name": denial.user_name,
                "client_identifier": denial.client_identifier,
                "what": denial.what,
                "count": denial.count,
                "last_at_ms": denial.last_at.0,
            })
        });
        shown.collect()
    }
}

fn kind_of(name: Option<&str>) -> Option<QueueKind> {
    QueueKind::ALL.into_iter().find(|kind| Some(kind.name()) == name)
}
