//! The configuration as TOML: every key with the value that holds, in the order of the shipped file. What is
//! shown reads back as the same configuration.

use std::path::Path;

use super::model::{Config, GatewayId, QueueBounds};
use super::raw::{CLIENT_CERTS, LOG_FORMATS, LOG_LEVELS, ON_CORRUPTS, OVERFLOWS, USERNAMES_FROM_CERT};
use super::section::join;
use super::value::{show_bytes, show_duration};
use crate::ingest::route::Durability;

impl Config {
    /// Every setting as TOML.
    #[must_use]
    pub fn show_effective(&self) -> String {
        let mut out = Table(String::new());
        out.identity(self);
        out.listeners(self);
        out.tls(self);
        out.auth(self);
        out.limits(self);
        out.queues(self);
        out.storage(self);
        out.routes(self);
        out.collections(self);
        out.header("log");
        out.word("level", &LOG_LEVELS, self.log.level);
        out.word("format", &LOG_FORMATS, self.log.format);
        out.0
    }
}

/// TOML text that grows.
struct Table(String);

impl Table {
    fn identity(&mut self, config: &Config) {
        self.header("gateway");
        match &config.gateway.id {
            GatewayId::Auto => self.text("id", "auto"),
            GatewayId::Fixed(id) => self.text("id", id),
        }
        let labels: Vec<String> = config
            .gateway
            .labels
            .iter()
            .map(|(name, value)| format!("{} = {}", join("", name), quoted(value)))
            .collect();
        if labels.is_empty() {
            self.plain("labels", "{}");
        } else {
            self.plain("labels", format!("{{ {} }}", labels.join(", ")));
        }
    }

    fn listeners(&mut self, config: &Config) {
        for listener in &config.listeners {
            self.header(&join("listener", &listener.name));
            self.plain("enabled", listener.enabled);
            self.text("kind", listener.kind.name());
            self.text("bind", &listener.bind.to_string());
            self.plain("allow_anonymous", listener.allow_anonymous);
            self.text("tls", listener.tls.as_deref().unwrap_or(""));
            self.word("client_cert", &CLIENT_CERTS, listener.client_cert);
            self.word("username_from_cert", &USERNAMES_FROM_CERT, listener.username_from_cert);
        }
    }

    fn tls(&mut self, config: &Config) {
        for (name, files) in &config.tls {
            self.header(&join("tls", name));
            self.path("cert", Some(&files.cert));
            self.path("key", Some(&files.key));
            self.path("client_ca", files.client_ca.as_deref());
        }
    }

    fn auth(&mut self, config: &Config) {
        let auth = &config.auth;
        self.header("auth");
        self.path("password_file", auth.password_file.as_deref());
        self.path("acl_file", auth.acl_file.as_deref());
        self.text("failed_delay", &show_duration(auth.failed_delay));
        self.plain("lockout_failures", auth.lockout_failures);
        self.text("lockout_for", &show_duration(auth.lockout_for));
    }

    fn limits(&mut self, config: &Config) {
        let limits = &config.limits;
        self.header("limits");
        self.bytes("message_bytes_max", limits.message_bytes_max);
        self.plain("connections_max", limits.connections_max);
        self.plain("sessions_max", limits.sessions_max);
        self.plain("queues_max", limits.queues_max);
        self.text("session_expiry_max", &show_duration(limits.session_expiry_max));
        self.plain("inflight_max", limits.inflight_max);
        self.text("keep_alive_max", &show_duration(limits.keep_alive_max));
        self.plain("retained_max", limits.retained_max);
        self.bytes("retained_bytes_max", limits.retained_bytes_max);
        self.bytes("memory_max", limits.memory_max);
    }

    fn queues(&mut self, config: &Config) {
        self.queue("default", &config.queues.default);
        self.queue("session", &config.queues.session);
        for (name, bounds) in &config.queues.named {
            self.queue(name, bounds);
        }
    }

    fn queue(&mut self, name: &str, bounds: &QueueBounds) {
        self.header(&join("queue", name));
        self.plain("messages_max", bounds.messages_max);
        self.bytes("bytes_max", bounds.bytes_max);
        self.word("overflow", &OVERFLOWS, bounds.overflow);
    }

    fn storage(&mut self, config: &Config) {
        let storage = &config.storage;
        self.header("storage");
        self.path("path", Some(&storage.path));
        self.bytes("gateway_bytes_max", storage.gateway_bytes_max);
        self.bytes("backlog_bytes_max", storage.backlog_bytes_max);
        self.bytes("series_bytes_max", storage.series_bytes_max);
        self.bytes("reserve_free", storage.reserve_free);
        match storage.bytes_per_day_budget {
            Some(budget) => self.bytes("bytes_per_day_budget", budget),
            None => self.text("bytes_per_day_budget", ""),
        }
        self.text("elision_window", &show_duration(storage.elision_window));
        self.word("on_corrupt", &ON_CORRUPTS, storage.on_corrupt);
    }

    fn routes(&mut self, config: &Config) {
        for route in &config.routes {
            self.header(&join("ingest", &route.name));
            let topics: Vec<String> = route.filters.iter().map(|filter| quoted(&filter.text)).collect();
            self.plain("topics", format!("[{}]", topics.join(", ")));
            self.text("collection", &route.collection);
            let tags: Vec<String> = route
                .tags
                .iter()
                .map(|(name, text)| format!("{} = {}", join("", name), quoted(text)))
                .collect();
            let tags = if tags.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", tags.join(", ")) };
            self.plain("tags", tags);
            self.text("topic_regex", route.topic_regex.as_ref().map_or("", |regex| regex.as_str()));
            match route.durability {
                Durability::Ack => self.text("durability", "ack"),
                Durability::Every(interval) => self.text("durability", &show_duration(interval)),
            }
        }
    }

    fn collections(&mut self, config: &Config) {
        for (name, collection) in &config.collections {
            self.header(&join("collection", name));
            self.text("retention", &collection.retention.map(show_duration).unwrap_or_default());
            self.bytes("bytes_max", collection.bytes_max);
            self.plain("series_max", collection.series_max);
        }
    }

    fn header(&mut self, path: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(&format!("[{path}]\n"));
    }

    fn bytes(&mut self, key: &str, bytes: u64) {
        self.text(key, &show_bytes(bytes));
    }

    fn path(&mut self, key: &str, path: Option<&Path>) {
        self.text(key, &path.map(|path| path.display().to_string()).unwrap_or_default());
    }

    fn word<T: PartialEq>(&mut self, key: &str, words: &[(&str, T)], value: T) {
        let word = words.iter().find(|(_, choice)| *choice == value).map_or("", |(word, _)| word);
        self.text(key, word);
    }

    fn text(&mut self, key: &str, text: &str) {
        self.plain(key, quoted(text));
    }

    fn plain(&mut self, key: &str, value: impl std::fmt::Display) {
        self.0.push_str(&format!("{key} = {value}\n"));
    }
}

/// `text` as a TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
