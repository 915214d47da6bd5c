//! A certificate authority for a test, made by `openssl`, and a daemon that shows its certificate.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::daemon::{Daemon, free_address};

pub struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// A new authority whose files lie in `folder`.
    pub fn new(folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("the test's folder can be written");
        let authority = Self { folder: folder.to_owned() };
        authority.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "30",
            "-subj",
            "/CN=Authority of a test",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ]);
        authority
    }

    /// A certificate `NAME.pem` and its key `NAME.key`, mode 0600.
    pub fn issue(&self, name: &str, subject: &str, alternative: &str, days: &str) {
        let extensions = self.path(&format!("{name}.ext"));
        let text = format!("basicConstraints=CA:FALSE\nsubjectAltName={alternative}\n");
        fs::write(&extensions, text).expect("the test's folder can be written");
        let [key, request, certificate] = ["key", "csr", "pem"].map(|kind| format!("{name}.{kind}"));
        self.openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            subject,
            "-keyout",
            &key,
            "-out",
            &request,
        ]);
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            days,
            "-extfile",
            &format!("{name}.ext"),
            "-out",
            &certificate,
        ]);
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    pub fn text(&self, file: &str) -> String {
        self.path(file).display().to_string()
    }

    /// Runs `openssl` in the authority's folder.
    pub fn openssl(&self, arguments: &[&str]) {
        let done = Command::new("openssl").args(arguments).current_dir(&self.folder).output();
        let done = done.expect("openssl is installed");
        assert!(done.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// A daemon with MQTT, AMQP, WebSocket and HTTP over TLS beside the plain listeners.
pub struct Secured {
    pub daemon: Daemon,
    pub authority: Authority,
    pub mqtts: SocketAddr,
    pub amqps: SocketAddr,
    pub wss: SocketAddr,
    pub https: SocketAddr,
    /// Keys of each TLS listener.
    client: String,
}

impl Secured {
    /// `client` has keys of each TLS listener, `extra` is the rest of the configuration.
    pub fn started(name: &str, client: &str, extra: &str) -> Self {
        let mut secured = Self::new(name, client);
        secured.configure(extra);
        secured.daemon.start_listening();
        secured.daemon.wait_for_log("kind=mqtt tls=");
        secured
    }

    /// The same, not configured and not started.
    pub fn new(name: &str, client: &str) -> Self {
        let daemon = Daemon::new(name, "");
        let authority = Authority::new(&daemon.folder().join("certs"));
        let alternative = format!("IP:{}", daemon.mqtt().ip());
        authority.issue("server", "/CN=gateway", &alternative, "30");
        let [mqtts, amqps, wss, https] = [(); 4].map(|()| free_address());
        Self { daemon, authority, mqtts, amqps, wss, https, client: client.to_owned() }
    }

    pub fn configure(&self, extra: &str) {
        let listener = |name: &str, kind: &str, address: SocketAddr| {
            format!(
                "[listener.{name}]\nkind = \"{kind}\"\nbind = \"{address}\"\ntls = \"server\"\n{}\n",
                self.client
            )
        };
        let listeners = listener("mqtts", "mqtt", self.mqtts)
            + &listener("amqps", "amqp", self.amqps)
            + &listener("wss", "ws", self.wss)
            + &listener("https", "http", self.https);
        let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|file| self.authority.text(file));
        let tls = format!("[tls.server]\ncert = \"{cert}\"\nkey = \"{key}\"\nclient_ca = \"{ca}\"\n");
        self.daemon.configure(&format!("{listeners}{tls}{extra}"));
    }

    /// Arguments of a Mosquitto client for the TLS listener; `as_client` is a certificate of the authority.
    pub fn arguments(&self, as_client: Option<&str>) -> Vec<String> {
        let mut arguments = vec![
            "-h".to_owned(),
            self.mqtts.ip().to_string(),
            "-p".to_owned(),
            self.mqtts.port().to_string(),
            "--cafile".to_owned(),
            self.authority.text("ca.pem"),
        ];
        if let Some(name) = as_client {
            arguments.extend(["--cert".to_owned(), self.authority.text(&format!("{name}.pem"))]);
            arguments.extend(["--key".to_owned(), self.authority.text(&format!("{name}.key"))]);
        }
        arguments
    }
}
