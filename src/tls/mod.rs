//! Certificates and keys: from the PEM files of a `[tls.*]` table to what a handshake needs, or to what is wrong
//! with them. Sockets and handshakes are `net`'s.
//!
//! The cryptography is ring's; nothing else is compiled in. Versions are TLS 1.2 and 1.3 with rustls' suites.

mod certificate;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};

pub use certificate::{Validity, client_name};

use crate::config::{ClientCert, ConfigSource, TlsFiles};

/// What a `[tls.*]` table's files hold, understood and matched.
#[derive(Clone, Debug)]
pub struct Certificates {
    key: Arc<CertifiedKey>,
    clients: Option<Arc<RootCertStore>>,
    /// When the gateway's own certificate holds.
    pub validity: Validity,
    /// The names and addresses that it is for.
    pub names: Vec<String>,
    /// Of all files: equal where nothing changed.
    pub fingerprint: [u8; 32],
}

/// What is wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    /// The key in the table that names the file: `cert`, `key`, `client_ca`.
    pub key: &'static str,
    pub file: PathBuf,
    pub reason: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.file.display(), self.reason)
    }
}

impl std::error::Error for TlsError {}

impl Certificates {
    /// Reads the files of a table.
    ///
    /// # Errors
    /// What is wrong, for each file. A certificate out of its time is no error: without a clock a gateway must start.
    pub fn load(files: &TlsFiles, source: &dyn ConfigSource) -> Result<Self, Vec<TlsError>> {
        let mut errors = Vec::new();
        let mut digest = Sha256::new();
        let mut read = |key: &'static str, file: &Path| {
            let bytes = source.read(file).map_err(|error| TlsError {
                key,
                file: file.to_owned(),
                reason: unreadable(&error),
            })?;
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(&bytes);
            Ok(bytes)
        };
        let chain = read("cert", &files.cert).and_then(|pem| certificates("cert", &files.cert, &pem));
        let key = read("key", &files.key).and_then(|pem| private_key(&files.key, &pem, source));
        let clients = files.client_ca.as_ref().map(|file| {
            let pem = read("client_ca", file)?;
            let roots = certificates("client_ca", file, &pem)?;
            root_store(file, roots)
        });
        let mut kept = |error| errors.push(error);
        let chain = chain.map_err(&mut kept).ok();
        let key = key.map_err(&mut kept).ok();
        let clients = clients.transpose().map_err(&mut kept).ok();
        let (Some(chain), Some(key), Some(clients)) = (chain, key, clients) else { return Err(errors) };
        let validity = chain.first().and_then(|first| certificate::validity(first));
        let validity = validity.unwrap_or_default();
        let names = chain.first().map(|first| certificate::server_names(first)).unwrap_or_default();
        let key =
            CertifiedKey::from_der(chain, key, &provider()).map_err(|error| vec![unfit(&error, files)])?;
        Ok(Self { key: Arc::new(key), clients, validity, names, fingerprint: digest.finalize().into() })
    }

    /// What the handshakes of a listener need.
    ///
    /// # Errors
    /// Clients are to show certificates and there is no `client_ca`; the system has no randomness.
    pub fn server_config(&self, client_cert: ClientCert) -> Result<Arc<ServerConfig>, String> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match self.client_verifier(client_cert)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let resolver = rustls::sign::SingleCertAndKey::from(Arc::clone(&self.key));
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        // A device that comes back saves a key exchange. The tickets' key lives as long as this configuration, so
        // that nobody resumes under certificates that were replaced.
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(|error| error.to_string())?;
        config.send_tls13_tickets = 1;
        Ok(Arc::new(config))
    }

    /// Whether a certificate that a client showed would still be taken.
    #[must_use]
    pub fn takes_client(&self, chain: &[CertificateDer<'_>]) -> bool {
        let (Some((first, rest)), Ok(Some(verifier))) =
            (chain.split_first(), self.client_verifier(ClientCert::Required))
        else {
            return false;
        };
        verifier.verify_client_cert(first, rest, UnixTime::now()).is_ok()
    }

    fn client_verifier(
        &self,
        client_cert: ClientCert,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        let roots = || self.clients.clone().ok_or_else(|| "there is no client_ca".to_owned());
        let builder = |roots| WebPkiClientVerifier::builder_with_provider(roots, provider());
        let verifier = match client_cert {
            ClientCert::None => return Ok(None),
            ClientCert::Optional => builder(roots()?).allow_unauthenticated().build(),
            ClientCert::Required => builder(roots()?).build(),
        };
        verifier.map(Some).map_err(|error| error.to_string())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "may not be read by this user: give it to the group of gatewayd, mode 0640".to_owned()
        }
        _ => format!("cannot be read: {error}"),
    }
}

fn certificates(
    key: &'static str,
    file: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |reason: &str| TlsError { key, file: file.to_owned(), reason: reason.to_owned() };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| failed(&format!("is not sound PEM: {error}")))?;
    if chain.is_empty() {
        let holds_key = PrivateKeyDer::from_pem_slice(pem).is_ok();
        return Err(failed(if holds_key {
            "holds a private key and no certificate: are cert and key swapped?"
        } else {
            "holds no PEM certificate (-----BEGIN CERTIFICATE-----); `openssl x509 -inform der` converts one"
        }));
    }
    if chain.iter().any(|one| certificate::validity(one).is_none()) {
        return Err(failed("holds a certificate that is not understood"));
    }
    Ok(chain)
}

fn private_key(
    file: &Path,
    pem: &[u8],
    source: &dyn ConfigSource,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let failed = |reason: String| TlsError { key: "key", file: file.to_owned(), reason };
    let mode = source.mode(file).map_err(|error| failed(unreadable(&error)))?;
    let holds_key = PrivateKeyDer::from_pem_slice(pem).is_ok() || contains(pem, b"PRIVATE KEY");
    if mode & 0o007 != 0 && holds_key {
        let show = file.display();
        return Err(failed(format!(
            "is a private key open to everybody (mode {mode:04o}): run chmod 640 {show}"
        )));
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        let text = String::from_utf8_lossy(pem);
        failed(if text.contains("ENCRYPTED") {
            "is encrypted: nobody is there to type a password at the start; `openssl pkey` decrypts it"
                .to_owned()
        } else if text.contains("BEGIN CERTIFICATE") {
            "holds a certificate and no private key: are cert and key swapped?".to_owned()
        } else {
            "holds no PEM private key (-----BEGIN PRIVATE KEY-----)".to_owned()
        })
    })
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn root_store(file: &Path, roots: Vec<CertificateDer<'static>>) -> Result<Arc<RootCertStore>, TlsError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root).map_err(|error| TlsError {
            key: "client_ca",
            file: file.to_owned(),
            reason: format!("holds a certificate that can sign for nobody: {error}"),
        })?;
    }
    Ok(Arc::new(store))
}

/// What is wrong with a pair of files whose parts were read, told of the file that is to blame.
fn unfit(error: &rustls::Error, files: &TlsFiles) -> TlsError {
    let told = |key, file: &Path, reason: String| TlsError { key, file: file.to_owned(), reason };
    match error {
        rustls::Error::InvalidCertificate(why) => {
            let why = format!("{why:?}");
            let reason = if why.contains("UnsupportedCertVersion") {
                "is a certificate of version 1, which clients refuse: make it anew with extensions \
                 (openssl x509 -req -extfile ...)"
                    .to_owned()
            } else {
                format!("holds a certificate that cannot be used: {error}")
            };
            told("cert", &files.cert, reason)
        }
        error => told("key", &files.key, mismatch(error, &files.cert)),
    }
}

fn mismatch(error: &rustls::Error, cert: &Path) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            format!(
                "is not the key of the certificate {}: name the pair that was made together",
                cert.display()
            )
        }
        rustls::Error::General(_) => {
            "is a key of a kind that is not supported: RSA (2048 bits or more), ECDSA \
                                      (P-256, P-384) and Ed25519 are"
                .to_owned()
        }
        other => format!("cannot be used: {other}"),
    }
}
