//! Everything that an operator sets, read and understood as a whole: the configuration, and the users, rules and
//! certificates in the files that it names. What starts the gateway, checks a configuration and changes a running
//! one is the same [`Settings::load`]: it succeeds as a whole or not at all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::auth::{Acl, LineError, Users};
use crate::config::{Config, ConfigSource, Files, OnCorrupt, Places, files};
use crate::store::{self, StoreOptions};
use crate::tls::Certificates;

/// A configuration and what its files hold.
#[derive(Clone, Debug)]
pub struct Settings {
    pub config: Config,
    /// The files that made it up, in the order in which they apply.
    pub files: Vec<PathBuf>,
    /// Where each key was set.
    pub places: Places,
    /// `None` without a password file.
    pub users: Option<Users>,
    /// `None` without an ACL file: everybody may everything.
    pub acl: Option<Acl>,
    /// By the name of their `[tls.*]` table: those that an enabled listener names.
    pub certificates: BTreeMap<String, Certificates>,
    /// Digest of the password and the ACL file: equal where nothing changed.
    pub lists: [u8; 32],
}

/// Where settings come from, each time.
#[derive(Clone, Debug)]
pub struct SettingsSource {
    /// The configuration file, else the usual one.
    pub path: Option<PathBuf>,
    pub files: Files,
}

/// What the store is told of the configuration, by the gateway and by the verbs that work on its folder.
#[must_use]
pub fn store_options(config: &Config) -> StoreOptions {
    StoreOptions {
        gateway_bytes_max: config.storage.gateway_bytes_max,
        backlog_bytes_max: config.storage.backlog_bytes_max,
        reserve_free: config.storage.reserve_free,
        on_corrupt: match config.storage.on_corrupt {
            OnCorrupt::Quarantine => store::OnCorrupt::Quarantine,
            OnCorrupt::Stop => store::OnCorrupt::Stop,
        },
        ..StoreOptions::default()
    }
}

impl SettingsSource {
    /// Reads everything.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn load(&self) -> Result<Settings, Vec<String>> {
        Settings::load(self.path.as_deref(), &self.files)
    }

    /// Reads the certificates that `settings` name.
    ///
    /// # Errors
    /// Everything that is wrong, a line each.
    pub fn load_certificates(
        &self,
        settings: &Settings,
    ) -> Result<BTreeMap<String, Certificates>, Vec<String>> {
        load_certificates(&settings.config, &settings.places, &self.files)
    }
}

impl Settings {
    /// Reads the configuration at `path`, else the usual one, and the files that it names.
    ///
    /// # Errors
    /// Everything that is wrong, a line each, in the form `FILE:LINE:COLUMN: WHAT`.
    pub fn load(path: Option<&Path>, source: &dyn ConfigSource) -> Result<Self, Vec<String>> {
        let (config, places) = Config::load_with_places(path, source)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let mut errors = Vec::new();
        let mut reader = Reader { source, places: &places, digest: Sha256::new() };
        let password_file = config.auth.password_file.as_deref();
        let users = password_file.map(|file| reader.lines(file, "auth.password_file", Users::parse));
        let acl_file = config.auth.acl_file.as_deref();
        let acl = acl_file.map(|file| reader.lines(file, "auth.acl_file", Acl::parse));
        let users = users.transpose().map_err(|wrong| errors.extend(wrong)).ok();
        let acl = acl.transpose().map_err(|wrong| errors.extend(wrong)).ok();
        let certificates = load_certificates(&config, &places, source).map_err(|wrong| errors.extend(wrong));
        match (users, acl, certificates) {
            (Some(users), Some(acl), Ok(certificates)) if errors.is_empty() => {
                let lists = reader.digest.finalize().into();
                Ok(Self { config, files: files(path, source), places, users, acl, certificates, lists })
            }
            _ => Err(errors),
        }
    }
}

/// The certificates that the enabled listeners of `config` name.
fn load_certificates(
    config: &Config,
    places: &Places,
    source: &dyn ConfigSource,
) -> Result<BTreeMap<String, Certificates>, Vec<String>> {
    let mut certificates = BTreeMap::new();
    let mut errors = Vec::new();
    for (name, files) in &config.tls {
        if !config.enabled_listeners().any(|listener| listener.tls.as_ref() == Some(name)) {
            continue;
        }
        match Certificates::load(files, source) {
            Ok(found) => {
                certificates.insert(name.clone(), found);
            }
            Err(wrong) => errors.extend(
                wrong
                    .iter()
                    .map(|error| format!("{}: {error}", places.show(&format!("tls.{name}.{}", error.key)))),
            ),
        }
    }
    if errors.is_empty() { Ok(certificates) } else { Err(errors) }
}

struct Reader<'a> {
    source: &'a dyn ConfigSource,
    places: &'a Places,
    digest: Sha256,
}

impl Reader<'_> {
    fn lines<T>(
        &mut self,
        file: &Path,
        key: &str,
        parse: impl Fn(&[u8]) -> Result<T, Vec<LineError>>,
    ) -> Result<T, Vec<String>> {
        let bytes = self.source.read(file).map_err(|error| {
            vec![format!("{}: {} cannot be read: {error}", self.places.show(key), file.display())]
        })?;
        self.digest.update((bytes.len() as u64).to_le_bytes());
        self.digest.update(&bytes);
        parse(&bytes)
            .map_err(|errors| errors.iter().map(|error| format!("{}:{error}", file.display())).collect())
    }
}
