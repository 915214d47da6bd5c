//! Certificates for the doctor: whether they can be used, how long still, and whether clients find the name that they
//! call the gateway by.

use super::{Found, Level};
use crate::config::{Bind, Config, ConfigSource};
use crate::time::Wall;
use crate::tls::Certificates;

const DAY_MS: u64 = 86_400_000;
/// From here on the end is near.
const SOON_DAYS: u64 = 30;

/// Looks at the certificates that enabled listeners name.
pub(super) fn look(config: &Config, now: Wall, files: &dyn ConfigSource, found: &mut Found) {
    for (name, table) in &config.tls {
        let of_table = |listener: &&crate::config::Listener| listener.tls.as_ref() == Some(name);
        let binds: Vec<&Bind> = config.enabled_listeners().filter(of_table).map(|l| &l.bind).collect();
        if binds.is_empty() {
            continue;
        }
        match Certificates::load(table, files) {
            Ok(certificates) => {
                time(name, &certificates, now, found);
                names(name, &certificates.names, &binds, files, found);
            }
            Err(errors) => found.extend(
                errors.iter().map(|error| (Level::Problem, format!("tls.{name}.{}: {error}", error.key))),
            ),
        }
    }
}

fn time(name: &str, certificates: &Certificates, now: Wall, found: &mut Found) {
    let validity = certificates.validity;
    let days = validity.not_after.0.saturating_sub(now.0) / DAY_MS;
    let renew = "renew it; a new file is taken over by itself";
    found.push(if now < validity.not_before {
        (Level::Problem, format!("certificate {name}: has not begun: is the clock right?"))
    } else if now >= validity.not_after {
        (Level::Problem, format!("certificate {name}: has ended, clients refuse it: {renew}"))
    } else if days <= SOON_DAYS {
        (Level::Problem, format!("certificate {name}: ends in {days} days: {renew}"))
    } else {
        (Level::Ok, format!("certificate {name}: fits its key, ends in {days} days"))
    });
}

/// Whether it is for an address that is listened at, or for what this machine calls itself. What clients call it is
/// theirs, so the rest is a note.
fn names(name: &str, names: &[String], binds: &[&Bind], files: &dyn ConfigSource, found: &mut Found) {
    if names.is_empty() {
        let what =
            "names no host in subjectAltName: clients that check it refuse it, whatever the common name says";
        found.push((Level::Problem, format!("certificate {name}: {what}")));
        return;
    }
    let hostname = files.read("/proc/sys/kernel/hostname".as_ref()).unwrap_or_default();
    let hostname = String::from_utf8_lossy(&hostname).trim().to_lowercase();
    let is_ours = |known: &String| {
        let known = known.to_lowercase();
        let is_bind = |bind: &&Bind| matches!(bind, Bind::Tcp(at) if at.ip().to_string() == known);
        let first = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        known == "localhost" || first(&known) == first(&hostname) || binds.iter().any(is_bind)
    };
    let shown = names.join(", ");
    found.push(if names.iter().any(is_ours) {
        (Level::Ok, format!("certificate {name}: is for {shown}"))
    } else {
        let what = format!("is for {shown}; this machine is called {hostname}: clients must use the former");
        (Level::Note, format!("certificate {name}: {what}"))
    });
}
