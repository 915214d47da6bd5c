//! `doctor`: what is wrong or soon will be, with what to do; from the configuration, the files that it names, the disk, and
//! the running gateway's own word.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::{Exit, Io};
use crate::config::{Config, show_bytes};

/// Looks at everything; `status` is the running gateway's answer, or why there is none. Failure when something is wrong.
///
/// # Errors
/// Writing failed.
pub fn doctor(config: &Config, status: Result<Value, String>, io: &mut Io<'_>) -> io::Result<Exit> {
    let mut found = Vec::new();
    disk(config, &mut found);
    modes(config, &mut found);
    match &status {
        Ok(status) => running(config, status, &mut found),
        Err(why) => found.push((false, format!("gateway: {why}"))),
    }
    for (well, what) in &found {
        writeln!(io.out, "{}  {what}", if *well { "ok     " } else { "PROBLEM" })?;
    }
    Ok(if found.iter().all(|(well, _)| *well) { Exit::Ok } else { Exit::Failed })
}

type Found = Vec<(bool, String)>;

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
            found.push((enough, text));
        }
        Err(error) => found.push((false, format!("disk: {}: {error} (storage.path)", path.display()))),
    }
}

/// Secrets that everybody may read.
fn modes(config: &Config, found: &mut Found) {
    let files =
        [("auth.password_file", &config.auth.password_file), ("auth.acl_file", &config.auth.acl_file)];
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
        found.push((well, text));
    }
}

fn mode(file: &Path) -> Option<u32> {
    std::fs::metadata(file).ok().map(|metadata| metadata.permissions().mode())
}

fn running(config: &Config, status: &Value, found: &mut Found) {
    let healthy = status.get("healthy") == Some(&Value::Bool(true));
    let text = if healthy { "gateway: healthy" } else { "gateway: not healthy, see gatewayd status" };
    found.push((healthy, text.to_owned()));
    for warning in status.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        found.push((false, format!("gateway: {}", warning.as_str().unwrap_or_default())));
    }
    let collections = status.get("collections").and_then(Value::as_array);
    for route in &config.routes {
        let is_it = |row: &&Value| row.get("name").and_then(Value::as_str) == Some(&route.collection);
        let row = collections.into_iter().flatten().find(is_it);
        let count = |member: &str| row.and_then(|row| row.get(member)).and_then(Value::as_u64).unwrap_or(0);
        let taken = count("readings") + count("unflushed");
        let then = match taken {
            0 => format!(
                ": no message ever matched? see ingest.{}.topics, and gatewayd trace TOPIC",
                route.name
            ),
            _ => String::new(),
        };
        found.push((
            taken > 0,
            format!("route {}: collection {} holds {taken} readings{then}", route.name, route.collection),
        ));
    }
    for (kind, count) in status.get("denied").and_then(Value::as_object).into_iter().flatten() {
        if count.as_u64().unwrap_or(0) > 0 {
            found.push((
                false,
                format!("rights: {count} times denied to {kind}, see /api/v1/denials and gatewayd acl test"),
            ));
        }
    }
    let lost = status.pointer("/lost/messages").and_then(Value::as_u64).unwrap_or(0);
    let then = if lost == 0 { "" } else { ", see gatewayd status and /api/v1/losses" };
    found.push((lost == 0, format!("losses: {lost} messages since the start{then}")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::user::tests::Scratch;
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        let scratch = Scratch::new("doctor");
        let acl = scratch.path("acl");
        scratch.write("acl", "topic read #\n");
        std::fs::set_permissions(&acl, std::fs::Permissions::from_mode(0o644)).unwrap();
        let mut config = Config::default();
        config.storage.path = scratch.path("");
        config.storage.reserve_free = 1;
        config.auth.acl_file = Some(acl.clone());
        let status = json!({
            "healthy": true, "warnings": ["the clock is not trusted: times are estimates"],
            "collections": [{ "name": "readings", "readings": 0, "unflushed": 3 }],
            "denied": { "login": 2, "publish": 0 }, "lost": { "messages": 0 },
        });
        let (exit, out, _) = scratch.run(|io| doctor(&config, Ok(status), io));
        assert_eq!(exit, Exit::Failed);
        let rest: Vec<&str> = out.lines().skip(1).collect();
        let mode =
            format!("PROBLEM  auth.acl_file: mode 644, everybody may use it: chmod o= {}", acl.display());
        let expected = [
            mode.as_str(),
            "ok       gateway: healthy",
            "PROBLEM  gateway: the clock is not trusted: times are estimates",
            "ok       route readings: collection readings holds 3 readings",
            "PROBLEM  rights: 2 times denied to login, see /api/v1/denials and gatewayd acl test",
            "ok       losses: 0 messages since the start",
        ];
        assert_eq!(rest, expected);
        assert!(out.starts_with("ok       disk: "), "{out}");
    }
}
