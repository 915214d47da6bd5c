//! Results as a table of names and values for people, and the same as one JSON object.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use crate::histogram::Histogram;
use crate::load::LoadReport;

/// Named results in their order.
#[derive(Debug, Default)]
pub struct Report {
    values: Vec<(String, Value)>,
}

impl Report {
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.values.push((name.to_owned(), value.into()));
    }

    /// A number with at most three digits after the point.
    pub fn set_rounded(&mut self, name: &str, value: f64) {
        self.set(name, (value * 1000.0).round() / 1000.0);
    }

    pub fn set_latency(&mut self, name: &str, latency: &Histogram) {
        if latency.count() == 0 {
            return;
        }
        let us = |duration: Duration| (duration.as_secs_f64() * 1e7).round() / 10.0;
        let percentile = |per_mille| us(latency.percentile(per_mille));
        self.set(
            name,
            json!({
                "mean_us": us(latency.mean()), "p50_us": percentile(500), "p90_us": percentile(900),
                "p99_us": percentile(990), "p999_us": percentile(999), "max_us": us(latency.max()),
            }),
        );
    }

    pub fn set_load(&mut self, load: &LoadReport) {
        self.set("published", load.published);
        self.set("delivered", load.delivered);
        self.set("lost", load.lost);
        self.set_rounded("elapsed_s", load.elapsed.as_secs_f64());
        self.set_rounded("per_second", load.per_second());
        if let (Some(cpu), Some(per_million)) = (load.server_cpu, load.server_cpu_s_per_million()) {
            self.set_rounded("server_cpu_user_s", cpu.user_s);
            self.set_rounded("server_cpu_system_s", cpu.system_s);
            self.set_rounded("server_cpu_s_per_million", per_million);
        }
        self.set_rounded("client_cpu_s_per_million", load.client_cpu.total_s() * 1e6 / load.units() as f64);
        if let Some(bytes) = load.resident_bytes {
            self.set("server_resident_kib", bytes / 1024);
        }
        if let Some(storage) = load.storage {
            self.set("storage_bytes", storage.bytes_written);
            self.set("storage_syncs", storage.syncs);
            self.set_rounded(
                "storage_bytes_per_message",
                storage.bytes_written as f64 / load.published as f64,
            );
            self.set_rounded("messages_per_sync", load.published as f64 / storage.syncs as f64);
        }
        self.set_latency("delivery_latency", &load.delivery_latency);
        self.set_latency("acknowledgement_latency", &load.acknowledgement_latency);
    }

    /// Prints one JSON line, or one line a value.
    pub fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            let fields: Vec<_> =
                self.values.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
            return writeln!(out, "{{{}}}", fields.join(","));
        }
        for (name, value) in &self.values {
            match value {
                Value::Object(parts) => {
                    let parts: Vec<_> = parts.iter().map(|(part, value)| format!("{part} {value}")).collect();
                    writeln!(out, "{name:<28} {}", parts.join(", "))?;
                }
                Value::String(text) => writeln!(out, "{name:<28} {text}")?,
                other => writeln!(out, "{name:<28} {other}")?,
            }
        }
        Ok(())
    }
}
