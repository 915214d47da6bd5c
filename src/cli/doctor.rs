//! `doctor`: what is wrong or soon will be, with what to do; from the configuration, the files that it names, the disk, and
//! the running gateway's own word. A note is worth reading and nothing to be mended: a gateway that was just started has
//! met few of its rules and routes.

mod access;
mod certificates;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::status::cell;
use super::{Exit, Io};
use crate::config::{Config, show_bytes};
use crate::series;
use crate::time::Now;

/// Bytes per day are foretold from this uptime on, seconds.
const RATE_SINCE_S: u64 = 600;
const DAY_S: u64 = 86_400;

/// How bad something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Ok,
    Note,
    Problem,
}

impl Level {
    const fn problem_unless(well: bool) -> Self {
        if well { Self::Ok } else { Self::Problem }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok     ",
            Self::Note => "note   ",
            Self::Problem => "PROBLEM",
        }
    }
}

type Found = Vec<(Level, String)>;

/// Asks the running gateway for what stands under a path of its API, or says why there is no answer.
pub type AskGateway<'a> = dyn Fn(&str) -> Result<Value, String> + 'a;

/// Looks at everything. Failure when something is wrong.
///
/// # Errors
/// Writing failed.
pub fn doctor(config: &Config, now: Now, ask: &AskGateway<'_>, io: &mut Io<'_>) -> io::Result<Exit> {
    let mut found = Vec::new();
    clock(now, &mut found);
    disk(config, &mut found);
    modes(config, &mut found);
    certificates::look(config, now.wall, io.files, &mut found);
    let status = ask("/api/v1/status");
    let acl = if status.is_ok() { ask("/api/v1/acl").ok() } else { None };
    access::look(config, acl.as_ref(), io.files, &mut found);
    match &status {
        Ok(status) => {
            running(status, &mut found);
            write_rate(status, &mut found);
            routes(config, ask, &mut found);
        }
        Err(why) => found.push((Level::Problem, format!("gateway: {why}"))),
    }
    for (level, what) in &found {
        writeln!(io.out, "{}  {what}", level.word())?;
    }
    let well = found.iter().all(|(level, _)| *level != Level::Problem);
    Ok(if well { Exit::Ok } else { Exit::Failed })
}

fn clock(now: Now, found: &mut Found) {
    found.push(if now.wall_trusted {
        (Level::Ok, "clock: set".to_owned())
    } else {
        let what = "clock: not set or not synchronised: times are estimates; see timedatectl";
        (Level::Problem, what.to_owned())
    });
}

fn disk(config: &Config, found: &mut Found) {
    let path = &config.storage.path;
    match rustix::fs::statvfs(path) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let reserve = config.storage.reserve_free;
            let enough = free > reserve;
            let then = if enough { "" } else { ": make room, or lower storage.reserve_free" };
            let text = format!(
                "disk: {} MiB free at {}, {} are left to others{then}",
                free >> 20,
                path.display(),
                show_bytes(reserve)
            );
            found.push((Level::problem_unless(enough), text));
        }
        Err(error) => {
            found.push((Level::Problem, format!("disk: {}: {error} (storage.path)", path.display())));
        }
    }
}

/// Secrets that everybody may read. Keys of certificates are looked at where they are loaded.
fn modes(config: &Config, found: &mut Found) {
    let files = [
        ("storage.path", Some(&config.storage.path)),
        ("auth.password_file", config.auth.password_file.as_ref()),
        ("auth.acl_file", config.auth.acl_file.as_ref()),
    ];
    for (key, file) in files {
        let Some(file) = file else { continue };
        let mode = mode(file);
        let well = mode.is_some_and(|mode| mode & 0o007 == 0);
        let text = match mode {
            None => format!("{key}: {} cannot be looked at", file.display()),
            Some(mode) if well => format!("{key}: mode {:o}", mode & 0o777),
            Some(mode) => {
                format!("{key}: mode {:o}, everybody may use it: chmod o= {}", mode & 0o777, file.display())
            }
        };
        found.push((Level::problem_unless(well), text));
    }
}

fn mode(file: &Path) -> Option<u32> {
    std::fs::metadata(file).ok().map(|metadata| metadata.permissions().mode())
}

/// What the gateway says of itself.
fn running(status: &Value, found: &mut Found) {
    let healthy = status.get("healthy") == Some(&Value::Bool(true));
    let text = if healthy { "gateway: healthy" } else { "gateway: not healthy, see gatewayd status" };
    found.push((Level::problem_unless(healthy), text.to_owned()));
    let warnings = status.get("warnings").and_then(Value::as_array).into_iter().flatten();
    for warning in warnings.filter_map(Value::as_str) {
        // The clock and the certificates are looked at here.
        if !warning.starts_with("the clock ") && !warning.starts_with("certificate ") {
            found.push((Level::Problem, format!("gateway: {warning}")));
        }
    }
    for (kind, count) in status.get("denied").and_then(Value::as_object).into_iter().flatten() {
        if count.as_u64().unwrap_or(0) > 0 {
            found.push((
                Level::Problem,
                format!("rights: {count} times denied to {kind}, see /api/v1/denials and gatewayd acl test"),
            ));
        }
    }
    let lost = status.pointer("/lost/messages").and_then(Value::as_u64).unwrap_or(0);
    let then = if lost == 0 { "" } else { ", see gatewayd status and /api/v1/losses" };
    let text = format!("losses: {lost} messages since the start{then}");
    found.push((Level::problem_unless(lost == 0), text));
}

/// What the flash is written, and what it would be in a day if that went on.
fn write_rate(status: &Value, found: &mut Found) {
    let number = |path: &str| status.pointer(path).and_then(Value::as_u64);
    let (written, uptime_s) =
        (number("/flash/bytes_written").unwrap_or(0), number("/uptime_s").unwrap_or(0).max(1));
    let bytes = |bytes: u64| cell("bytes", &bytes.into());
    let budget = number("/flash/budget_bytes_per_day");
    let of_budget = match budget {
        Some(budget) => format!(" of {} (storage.bytes_per_day_budget)", bytes(budget)),
        None => String::new(),
    };
    if uptime_s < RATE_SINCE_S {
        let today = bytes(number("/flash/bytes_today").unwrap_or(0));
        found.push((Level::Ok, format!("write rate: {today} today{of_budget}; too early to foretell a day")));
        return;
    }
    let a_day = u64::try_from(u128::from(written) * u128::from(DAY_S) / u128::from(uptime_s));
    let a_day = a_day.unwrap_or(u64::MAX);
    let within = budget.is_none_or(|budget| a_day <= budget);
    let then = if within {
        ""
    } else {
        ": commits will be spread; send less with QoS 1, or raise the budget if the flash can take it"
    };
    let text = format!("write rate: {} a day as it goes now{of_budget}{then}", bytes(a_day));
    found.push((Level::problem_unless(within), text));
}

/// Routes whose filters take none of the topics that their collection has.
fn routes(config: &Config, ask: &AskGateway<'_>, found: &mut Found) {
    for route in &config.routes {
        let overview = ask(&format!("/api/v1/collections/{}", escaped(&route.collection)));
        let Ok(overview) = overview else {
            let what = format!(
                "route {}: the gateway has no collection {}: gatewayd reload takes over what the file says",
                route.name, route.collection
            );
            found.push((Level::Problem, what));
            continue;
        };
        let series = overview.get("series").and_then(Value::as_array);
        let topics = series.into_iter().flatten().filter_map(|series| series.get("topic")?.as_str());
        let taken = topics
            .filter(|topic| route.filters.iter().any(|filter| series::takes(&filter.plain, topic)))
            .count();
        let shared = overview.get("shared").and_then(Value::as_u64).unwrap_or(0);
        let name = &route.name;
        found.push(match taken {
            0 if shared > 0 => (Level::Ok, format!("route {name}: its readings share a series")),
            0 => {
                let what = format!(
                    "route {name}: no reading of {} came by it yet: see ingest.{name}.topics, and gatewayd trace TOPIC",
                    route.collection
                );
                (Level::Note, what)
            }
            taken => (Level::Ok, format!("route {name}: {taken} topics in collection {}", route.collection)),
        });
    }
}

/// A name as a segment of a path.
fn escaped(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests;
