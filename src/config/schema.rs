//! Names of the configuration: sections, their keys, kinds of listeners, and what is agreed but not in this
//! version. One place, so that a new section or kind is switched on here first.

use std::net::{IpAddr, Ipv4Addr};

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// MQTT over TCP.
    Mqtt,
    /// MQTT over WebSocket.
    Ws,
    /// AMQP 0-9-1.
    Amqp,
    /// The HTTP API.
    Http,
}

pub(super) const KINDS: [(&str, ListenerKind); 4] = [
    ("mqtt", ListenerKind::Mqtt),
    ("ws", ListenerKind::Ws),
    ("amqp", ListenerKind::Amqp),
    ("http", ListenerKind::Http),
];

impl ListenerKind {
    /// The word in the configuration file.
    #[must_use]
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }
}

/// A listener that exists without being written.
pub(super) struct ListenerDefault {
    pub name: &'static str,
    pub kind: ListenerKind,
    pub address: IpAddr,
    pub port: u16,
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// In the order of their names.
pub(super) const LISTENER_DEFAULTS: [ListenerDefault; 3] = [
    ListenerDefault { name: "amqp", kind: ListenerKind::Amqp, address: LOOPBACK, port: 5672 },
    ListenerDefault { name: "http", kind: ListenerKind::Http, address: LOOPBACK, port: 8380 },
    ListenerDefault { name: "mqtt", kind: ListenerKind::Mqtt, address: LOOPBACK, port: 1883 },
];

/// A section of the file: its first key, whether it holds tables named by the operator, and its keys.
pub(super) struct SectionNames {
    pub name: &'static str,
    /// `[listener.NAME]` rather than `[limits]`.
    pub named: bool,
    pub keys: &'static [&'static str],
}

/// Every section of this version, in the order of the shipped file.
pub(super) const SECTIONS: [SectionNames; 10] = [
    SectionNames { name: "gateway", named: false, keys: &["id", "labels"] },
    SectionNames {
        name: "listener",
        named: true,
        keys: &["enabled", "kind", "bind", "allow_anonymous", "tls", "client_cert", "username_from_cert"],
    },
    SectionNames { name: "tls", named: true, keys: &["cert", "key", "client_ca"] },
    SectionNames {
        name: "auth",
        named: false,
        keys: &["password_file", "acl_file", "failed_delay", "lockout_failures", "lockout_for"],
    },
    SectionNames {
        name: "limits",
        named: false,
        keys: &[
            "message_bytes_max",
            "connections_max",
            "sessions_max",
            "queues_max",
            "session_expiry_max",
            "inflight_max",
            "keep_alive_max",
            "retained_max",
            "retained_bytes_max",
            "memory_max",
        ],
    },
    SectionNames { name: "queue", named: true, keys: &["messages_max", "bytes_max", "overflow"] },
    SectionNames {
        name: "storage",
        named: false,
        keys: &[
            "path",
            "gateway_bytes_max",
            "backlog_bytes_max",
            "series_bytes_max",
            "reserve_free",
            "bytes_per_day_budget",
            "elision_window",
            "on_corrupt",
        ],
    },
    SectionNames {
        name: "ingest",
        named: true,
        keys: &["topics", "collection", "tags", "topic_regex", "durability"],
    },
    SectionNames { name: "collection", named: true, keys: &["retention", "bytes_max", "series_max"] },
    SectionNames { name: "log", named: false, keys: &["level", "format"] },
];

/// Sections that are agreed but not in this version: **a change that adds one moves it to [`SECTIONS`].**
pub(super) const SECTIONS_TO_COME: [&str; 2] = ["bridge", "uplink"];

/// The section called `name`.
pub(super) fn section(name: &str) -> Option<&'static SectionNames> {
    SECTIONS.iter().find(|section| section.name == name)
}

/// Words of other brokers' files that are close to no word of ours, with the word that means it.
const ELSEWHERE: [(&str, &str); 20] = [
    ("drop-head", "drop_oldest"),
    ("reject-publish", "reject"),
    ("warning", "warn"),
    ("port", "bind"),
    ("address", "bind"),
    ("host", "bind"),
    ("addr", "bind"),
    ("protocol", "kind"),
    ("type", "kind"),
    ("password", "password_file"),
    ("certfile", "cert"),
    ("certificate", "cert"),
    ("keyfile", "key"),
    ("cafile", "client_ca"),
    ("require_certificate", "client_cert"),
    ("use_identity_as_username", "username_from_cert"),
    ("persistence_location", "path"),
    ("data_dir", "path"),
    ("max_queued_messages", "messages_max"),
    ("persistent_client_expiration", "session_expiry_max"),
];

/// The key among `known` that `written` most likely means.
pub(super) fn nearest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    if let Some((_, meant)) = ELSEWHERE.iter().find(|(word, _)| *word == written) {
        return known.iter().find(|key| *key == meant).copied();
    }
    let words = |name: &str| {
        let mut words: Vec<String> = name.to_lowercase().split(['_', '-']).map(str::to_owned).collect();
        words.sort_unstable();
        words
    };
    let meant = words(written);
    if let Some(key) = known.iter().find(|key| words(key) == meant) {
        return Some(key);
    }
    let within = (written.chars().count() / 3).clamp(1, 4);
    known
        .iter()
        .map(|key| (distance(&written.to_lowercase(), key), *key))
        .filter(|(distance, _)| *distance <= within)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, key)| key)
}

/// Edits from `a` to `b`: insert, delete, replace, or swap two neighbours (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, &ca) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &cb) in b.iter().enumerate() {
            let mut cost = (above[j] + usize::from(ca != cb)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && ca == b[j - 1] && a[i - 1] == cb {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = above;
        above = row;
    }
    above.last().copied().unwrap_or(a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (a, b, edits) in
            [("", "", 0), ("", "abc", 3), ("bind", "bnid", 1), ("bind", "bond", 1), ("kind", "kinds", 1)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    #[test]
    fn a_typo_another_order_and_another_brokers_word_find_the_key() {
        let limits = section("limits").unwrap().keys;
        assert_eq!(nearest("inflight_maks", limits), Some("inflight_max"));
        assert_eq!(nearest("max_connections", limits), Some("connections_max"));
        assert_eq!(nearest("Memory-Max", limits), Some("memory_max"));
        assert_eq!(nearest("colour", limits), None);
        assert_eq!(nearest("port", section("listener").unwrap().keys), Some("bind"));
        assert_eq!(nearest("port", limits), None);
    }
}
