//! The listeners and their TLS tables, held against the rest: who may connect where, what TLS lacks, two on one
//! address. Each check stays silent about keys that are wrong already.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::checked::contradict;
use super::error::{Place, Problem};
use super::model::{Bind, ClientCert, Listener, TlsFiles, UsernameFromCert};
use super::raw::{Raw, RawListener, RawTls};
use super::schema::{LISTENER_DEFAULTS, ListenerDefault};
use super::section::{Findings, join};

/// The listeners, written and built in, in the order of their names.
pub(super) fn listeners(raw: &Raw, found: &mut Findings) -> Vec<Listener> {
    let has_users = raw.auth.password_file.is_some();
    let mut listeners: Vec<Listener> =
        raw.listeners.iter().filter_map(|(name, written)| listener(name, written, raw, found)).collect();
    for row in &LISTENER_DEFAULTS {
        if !raw.listeners.contains_key(row.name) {
            listeners.push(Listener::built_in(row, !has_users));
        }
    }
    listeners.sort_by(|a, b| a.name.cmp(&b.name));
    check_shared_addresses(&listeners, found);
    listeners
}

fn listener(name: &str, written: &RawListener, raw: &Raw, found: &mut Findings) -> Option<Listener> {
    let path = join("listener", name);
    let default = LISTENER_DEFAULTS.iter().find(|row| row.name == name);
    let enabled = written.enabled.unwrap_or(true);
    let kind = written.kind.or_else(|| default.map(|row| row.kind));
    let built_in = |row: &ListenerDefault| Bind::Tcp(SocketAddr::new(row.address, row.port));
    let bind = written.bind.clone().or_else(|| default.map(built_in));
    for (key, absent, wants) in [
        ("kind", kind.is_none(), "\"mqtt\" or another kind"),
        ("bind", bind.is_none(), "an address and a port such as \"127.0.0.1:1883\""),
    ] {
        let key = join(&path, key);
        if absent && found.is_sound(&key) {
            let problem = Problem::Missing(format!("is missing: it wants {wants}"));
            found.report(written.place.clone(), &key, problem);
        }
    }
    let (kind, bind) = (kind?, bind?);
    let is_open = !bind.is_local();
    let has_users = raw.auth.password_file.is_some();
    let listener = Listener {
        name: name.to_owned(),
        enabled,
        kind,
        bind,
        allow_anonymous: written.allow_anonymous.unwrap_or(enabled && !is_open && !has_users),
        tls: written.tls.clone().flatten(),
        client_cert: written.client_cert.unwrap_or(ClientCert::None),
        username_from_cert: written.username_from_cert.unwrap_or(UsernameFromCert::Cn),
    };
    if enabled && found.is_sound(&join(&path, "enabled")) {
        check_tls(&listener, raw, &path, &written.place, found);
        let logs_in = has_users || names_its_clients(&listener);
        if is_open && !logs_in && written.allow_anonymous != Some(true) {
            check_login(&listener, &path, &written.place, found);
        }
    }
    Some(listener)
}

/// Whether each client of `listener` has a name from its certificate.
fn names_its_clients(listener: &Listener) -> bool {
    listener.client_cert == ClientCert::Required && listener.username_from_cert != UsernameFromCert::None
}

/// A listener that other machines reach and that lets everybody in must say so.
fn check_login(listener: &Listener, path: &str, place: &Place, found: &mut Findings) {
    let judged = ["allow_anonymous", "bind", "tls", "client_cert", "username_from_cert"];
    let may_judge = judged.iter().all(|key| found.is_sound(&join(path, key)));
    if may_judge && found.is_sound("auth.password_file") {
        let key = join(path, "bind");
        let problem = Problem::Contradiction(format!(
            "{} is open to other machines and nobody has to log in: set auth.password_file, or allow_anonymous = \
             true on this listener",
            listener.bind
        ));
        found.report(origin(found, &key, place), &key, problem);
    }
}

/// The table that `tls` names must exist, and have a `client_ca` when clients are to show certificates.
fn check_tls(listener: &Listener, raw: &Raw, path: &str, place: &Place, found: &mut Findings) {
    let key = join(path, "tls");
    let asks = listener.client_cert != ClientCert::None;
    let asks_key = join(path, "client_cert");
    let Some(table) = &listener.tls else {
        if asks && found.is_sound(&key) && found.is_sound(&asks_key) {
            let text = "wants TLS: name a [tls.*] table by tls = \"...\" on this listener".to_owned();
            found.report(origin(found, &asks_key, place), &asks_key, Problem::Contradiction(text));
        }
        return;
    };
    let Some(written) = raw.tls.get(table) else {
        let known: Vec<&str> = raw.tls.keys().map(String::as_str).collect();
        let header = join("tls", table);
        let text = match known.as_slice() {
            [] => format!("there is no [{header}]: add it, with cert and key"),
            known => format!("there is no [{header}]; there is [tls.{}]", known.join("], [tls.")),
        };
        if found.is_sound(&key) {
            found.report(origin(found, &key, place), &key, Problem::BadValue(text));
        }
        return;
    };
    let ca_key = join(&join("tls", table), "client_ca");
    let has_ca = written.client_ca.as_ref().is_some_and(Option::is_some);
    if asks && !has_ca && found.is_sound(&ca_key) && found.is_sound(&asks_key) {
        let text = format!("wants to know who signs clients' certificates: set {ca_key}");
        found.report(origin(found, &asks_key, place), &asks_key, Problem::Contradiction(text));
    }
}

/// The TLS tables. Both files must be named.
pub(super) fn tls(raw: &Raw, found: &mut Findings) -> BTreeMap<String, TlsFiles> {
    let table = |(name, written): (&String, &RawTls)| {
        let path = join("tls", name);
        let mut file = |key: &str, value: &Option<Option<PathBuf>>, wants: &str| {
            let key = join(&path, key);
            let value = value.clone().flatten();
            if value.is_none() && found.is_sound(&key) {
                let place = origin(found, &key, &written.place);
                found.report(place, &key, Problem::Missing(format!("is missing: it wants {wants}")));
            }
            value
        };
        let cert = file("cert", &written.cert, "the PEM file of the gateway's certificate");
        let key = file("key", &written.key, "the PEM file of its private key");
        Some((
            name.clone(),
            TlsFiles { cert: cert?, key: key?, client_ca: written.client_ca.clone().flatten() },
        ))
    };
    raw.tls.iter().filter_map(table).collect()
}

fn origin(found: &Findings, key: &str, otherwise: &Place) -> Place {
    found.origin(key).unwrap_or(otherwise).clone()
}

/// Two enabled listeners that ask for the same port of the same address.
fn check_shared_addresses(listeners: &[Listener], found: &mut Findings) {
    let enabled: Vec<&Listener> = listeners.iter().filter(|listener| listener.enabled).collect();
    for (at, second) in enabled.iter().enumerate() {
        let Some(first) = enabled.iter().take(at).find(|first| overlap(&first.bind, &second.bind)) else {
            continue;
        };
        let [first_key, second_key] =
            [first, second].map(|listener| join(&join("listener", &listener.name), "bind"));
        // Blame the one that was written; of two written ones, the second by name.
        let (keys, own, other) = if found.origin(&second_key).is_some() {
            ([second_key.as_str(), first_key.as_str()], second, first)
        } else {
            ([first_key.as_str(), second_key.as_str()], first, second)
        };
        contradict(found, keys, || {
            format!("{} is taken by listener {}, which binds {}", own.bind, other.name, other.bind)
        });
    }
}

/// Whether one socket bound to `a` keeps another from `b`.
fn overlap(a: &Bind, b: &Bind) -> bool {
    match (a, b) {
        (Bind::Tcp(a), Bind::Tcp(b)) => addresses_overlap(*a, *b),
        (Bind::Unix(a), Bind::Unix(b)) => a == b,
        (Bind::Tcp(_), Bind::Unix(_)) | (Bind::Unix(_), Bind::Tcp(_)) => false,
    }
}

/// An unspecified IPv6 address takes IPv4 too, as Linux binds it by default.
fn addresses_overlap(a: SocketAddr, b: SocketAddr) -> bool {
    if a.port() != b.port() || a.port() == 0 {
        return false;
    }
    let takes_all = |ip: std::net::IpAddr, other: std::net::IpAddr| {
        ip.is_unspecified() && (ip.is_ipv6() || other.to_canonical().is_ipv4())
    };
    a.ip().to_canonical() == b.ip().to_canonical() || takes_all(a.ip(), b.ip()) || takes_all(b.ip(), a.ip())
}
