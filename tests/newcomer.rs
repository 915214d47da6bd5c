//! A newcomer's mistakes with files, folders, ports and verbs: each gets one message that says where, at which key and
//! what to do, and the documented exit status. Mistakes in the text of the configuration alone are in
//! `config_mistakes.rs`, which has the message of each word for word.
#![expect(clippy::disallowed_methods, reason = "these tests run the real program")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A mistake: the configuration, the command, the exit status, and what the message says. `{d}` is the test's folder,
/// `{taken}` a port that somebody has.
type Mistake = (&'static str, &'static str, &'static str, i32, &'static [&'static str]);

const TLS: &str =
    "[listener.mqtts]\nkind = \"mqtt\"\nbind = \"127.0.0.1:0\"\ntls = \"server\"\n[tls.server]\n";

const CHECK: &str = "check-config";

/// Certificates. The table begins on line 5 of the configuration: `cert` is line 6, `key` line 7.
const CERTIFICATES: [Mistake; 12] = [
    (
        "a certificate that everybody may read, for the key",
        "cert = '{d}/server.pem'\nkey = '{d}/open.pem'",
        CHECK,
        78,
        &["gateway.toml:7:1: tls.server.key: {d}/open.pem holds a certificate", "are cert and key swapped?"],
    ),
    (
        "a certificate of version 1",
        "cert = '{d}/v1.pem'\nkey = '{d}/server.key'",
        CHECK,
        78,
        &["gateway.toml:6:1: tls.server.cert: {d}/v1.pem is a certificate of version 1"],
    ),
    (
        "a key of another certificate",
        "cert = '{d}/server.pem'\nkey = '{d}/other.key'",
        CHECK,
        78,
        &[
            "gateway.toml:7:1: tls.server.key: {d}/other.key",
            "is not the key of the certificate {d}/server.pem",
            "made together",
        ],
    ),
    (
        "a key that everybody may read",
        "cert = '{d}/server.pem'\nkey = '{d}/open.key'",
        CHECK,
        78,
        &["gateway.toml:7:1: tls.server.key: {d}/open.key", "run chmod 640 {d}/open.key"],
    ),
    (
        "a key that is not there",
        "cert = '{d}/server.pem'\nkey = '{d}/none.key'",
        CHECK,
        78,
        &["gateway.toml:7:1: tls.server.key: {d}/none.key does not exist"],
    ),
    (
        "a key seen from the wrong folder",
        "cert = '{d}/server.pem'\nkey = 'certs/server.key'",
        CHECK,
        78,
        &["gateway.toml:7:1: tls.server.key: {d}/certs/server.key does not exist"],
    ),
    (
        "a key that is encrypted",
        "cert = '{d}/server.pem'\nkey = '{d}/encrypted.key'",
        CHECK,
        78,
        &["tls.server.key: {d}/encrypted.key is encrypted", "`openssl pkey` decrypts it"],
    ),
    (
        "a certificate for the key",
        "cert = '{d}/server.pem'\nkey = '{d}/server.pem'",
        CHECK,
        78,
        &["tls.server.key: {d}/server.pem", "are cert and key swapped?"],
    ),
    (
        "a certificate in DER",
        "cert = '{d}/server.der'\nkey = '{d}/server.key'",
        CHECK,
        78,
        &["gateway.toml:6:1: tls.server.cert: {d}/server.der", "`openssl x509 -inform der` converts one"],
    ),
    (
        "a certificate that is cut short",
        "cert = '{d}/short.pem'\nkey = '{d}/server.key'",
        CHECK,
        78,
        &["gateway.toml:6:1: tls.server.cert: {d}/short.pem", "is not sound PEM"],
    ),
    (
        "a folder for the certificate",
        "cert = '{d}'\nkey = '{d}/server.key'",
        CHECK,
        78,
        &["gateway.toml:6:1: tls.server.cert: {d} cannot be read: Is a directory"],
    ),
    (
        "an authority that is none",
        "cert = '{d}/server.pem'\nkey = '{d}/server.key'\nclient_ca = '{d}/server.key'",
        CHECK,
        78,
        &["gateway.toml:8:1: tls.server.client_ca: {d}/server.key holds a private key and no certificate"],
    ),
];

/// Users and rules.
const LISTS: [Mistake; 9] = [
    (
        "a password file that is not there",
        "[auth]\npassword_file = '{d}/none'",
        CHECK,
        78,
        &["gateway.toml:2:1: auth.password_file: {d}/none cannot be read: No such file"],
    ),
    (
        "a password in clear text",
        "[auth]\npassword_file = '{d}/clear'",
        CHECK,
        78,
        &["{d}/clear:1:5: not a password hash", "a password in clear text is refused"],
    ),
    (
        "a user without a password",
        "[auth]\npassword_file = '{d}/bare'",
        CHECK,
        78,
        &["{d}/bare:1:1: not a line of the form NAME:HASH"],
    ),
    (
        "a password file that is not text",
        "[auth]\npassword_file = '{d}/server.der'",
        CHECK,
        78,
        &["{d}/server.der:1:", "the text is not UTF-8"],
    ),
    (
        "a rule with an unknown word",
        "[auth]\nacl_file = '{d}/acl-word'",
        CHECK,
        78,
        &["{d}/acl-word:2:1: unknown word \"topics\"", "a line starts with user, topic, pattern"],
    ),
    (
        "a rule with an unknown access",
        "[auth]\nacl_file = '{d}/acl-access'",
        CHECK,
        78,
        &["{d}/acl-access:1:"],
    ),
    (
        "a rule with a bad filter",
        "[auth]\nacl_file = '{d}/acl-filter'",
        CHECK,
        78,
        &["{d}/acl-filter:1:14: not a topic filter", "must be the last level"],
    ),
    (
        "a rule without a filter",
        "[auth]\nacl_file = '{d}/acl-empty'",
        CHECK,
        78,
        &["{d}/acl-empty:1:", "is missing"],
    ),
    (
        "rules that are not text",
        "[auth]\nacl_file = '{d}/latin1'",
        CHECK,
        78,
        &["{d}/latin1:1:7: the text is not UTF-8"],
    ),
];

/// The gateway does not start.
const STARTS: [Mistake; 9] = [
    (
        "a port that is taken",
        "[listener.mqtt]\nbind = '127.0.0.1:{taken}'",
        "run",
        1,
        &[
            "gateway.toml:2:1: listener.mqtt.bind: cannot listen on 127.0.0.1:{taken}",
            "`ss -ltnp sport = :{taken}` names it",
        ],
    ),
    (
        "an address of another machine",
        "[listener.mqtt]\nbind = '192.0.2.1:1883'\nallow_anonymous = true",
        "run",
        1,
        &["gateway.toml:2:1: listener.mqtt.bind: cannot listen on 192.0.2.1:1883", "`ip address` shows"],
    ),
    (
        "a socket in a folder that is not there",
        "[listener.mqtt]\nbind = 'unix:{d}/none/mqtt.sock'",
        "run",
        1,
        &[
            "gateway.toml:2:1: listener.mqtt.bind: cannot listen on unix:{d}/none/mqtt.sock: the folder does not exist",
        ],
    ),
    ("a state folder below a file", "[storage]\npath = '{d}/clear/state'", "run", 1, &["{d}/clear/state"]),
    (
        "a state folder that is a file",
        "[storage]\npath = '{d}/clear'",
        "run",
        1,
        &["gateway.toml:2:1: storage.path: state folder {d}/clear: "],
    ),
    (
        "a state folder that nobody may write",
        "[storage]\npath = '/proc/gatewayd'",
        "run",
        1,
        &["/proc/gatewayd"],
    ),
    ("a state folder that another gateway uses", "[storage]\npath = '{d}/busy'", "run", 1, &["{d}/busy"]),
    (
        "two listeners on one port",
        "[listener.a]\nkind = 'mqtt'\nbind = '127.0.0.1:1883'",
        "run",
        78,
        &["gateway.toml:3:1: listener.a.bind: 127.0.0.1:1883 is taken by listener mqtt"],
    ),
    (
        "a bad route",
        "[ingest.a]\ntopics = ['a/#/b']",
        "run",
        78,
        &["gateway.toml:2:11: ingest.a.topics: 'a/#/b' has `#` before its last level"],
    ),
];

/// Verbs.
const VERBS: [Mistake; 15] = [
    (
        "status of no daemon",
        "",
        "status",
        3,
        &["no gateway answers on {d}/state/control.sock", "is it running?"],
    ),
    (
        "reload of no daemon",
        "",
        "reload",
        3,
        &["no gateway answers on {d}/state/control.sock", "is it running?"],
    ),
    ("query of no daemon", "", "query readings", 3, &["no gateway answers on", "is it running?"]),
    ("a check of no daemon", "", "status --check", 3, &["no gateway answers on", "is it running?"]),
    (
        "status with a typo in the file",
        "[limit]",
        "status",
        78,
        &["gateway.toml:3:2: limit", "did you mean [limits]?"],
    ),
    (
        "reload with a typo in the file",
        "[limit]",
        "reload",
        78,
        &["gateway.toml:3:2: limit", "did you mean [limits]?"],
    ),
    ("a verb that is none", "", "start", 2, &["'start'", "--help"]),
    ("a misspelt verb", "", "statsu", 2, &["'statsu'", "status"]),
    ("an option that is none", "", "status --jsn", 2, &["'--jsn'", "--json"]),
    ("a query of nothing", "", "query", 2, &["<COLLECTION>"]),
    ("a user without a file", "", "user add ann --password-stdin", 1, &["set password_file under [auth]"]),
    ("a user with a colon", "", "user add a:b --password-file {d}/users --password-stdin", 2, &["colon"]),
    ("a user that is not there", "", "user rm eve --password-file {d}/users", 1, &["eve"]),
    ("a shell that nobody has", "", "completions tcsh", 2, &["'tcsh'", "bash"]),
    (
        "a configuration that is not there",
        "",
        "check-config --config {d}/none.toml",
        78,
        &["{d}/none.toml: cannot be read"],
    ),
];

/// The configuration itself.
const FILES: [(&str, &str, &str); 4] = [
    ("a configuration that is a folder", "{d}", "{d}: cannot be read: Is a directory"),
    ("a configuration that is not text", "{d}/server.der", "the text is not UTF-8"),
    ("a configuration in Latin-1", "{d}/latin1", "{d}/latin1:1:7: not valid TOML: the text is not UTF-8"),
    ("Mosquitto's configuration", "{d}/mosquitto.conf", "{d}/mosquitto.conf:1:10: not valid TOML"),
];

struct Newcomer {
    folder: PathBuf,
    taken: TcpListener,
}

impl Newcomer {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).unwrap();
        let newcomer = Self { folder, taken: TcpListener::bind("127.0.0.1:0").unwrap() };
        for (file, text) in [
            ("clear", &b"ann:secret\n"[..]),
            ("bare", b"ann\n"),
            ("acl-word", b"user ann\ntopics read a\n"),
            ("acl-access", b"topic reed a b\n"),
            ("acl-filter", b"topic read a/#/b\n"),
            ("acl-empty", b"topic read\n"),
            ("latin1", b"topic \xe4\n"),
            ("users", b"\n"),
            ("mosquitto.conf", b"listener 1883\n"),
        ] {
            fs::write(newcomer.folder.join(file), text).unwrap();
        }
        newcomer
    }

    fn openssl(&self, arguments: &str) {
        let done = Command::new("openssl").args(arguments.split(' ')).current_dir(&self.folder).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn make_certificates(&self) {
        for name in ["server", "other"] {
            self.openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN={name} -keyout \
                 {name}.key -out {name}.pem"
            ));
        }
        self.openssl("req -new -key server.key -subj /CN=v1 -out v1.csr");
        self.openssl("x509 -req -in v1.csr -signkey server.key -days 2 -out v1.pem");
        self.openssl("x509 -in server.pem -outform der -out server.der");
        self.openssl("pkey -in server.key -aes256 -passout pass:x -out encrypted.key");
        let path = |name: &str| self.folder.join(name);
        fs::copy(path("server.key"), path("open.key")).unwrap();
        fs::copy(path("server.pem"), path("open.pem")).unwrap();
        let set_mode =
            |name: &str, mode| fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        set_mode("open.key", 0o644);
        set_mode("open.pem", 0o644);
        for name in ["server.key", "other.key", "encrypted.key", "server.pem"] {
            set_mode(name, 0o600);
        }
        let whole = fs::read_to_string(path("server.pem")).unwrap();
        fs::write(path("short.pem"), whole.get(..whole.len() / 2).unwrap()).unwrap();
    }

    fn filled(&self, text: &str) -> String {
        let port = self.taken.local_addr().unwrap().port();
        text.replace("{d}", &self.folder.display().to_string()).replace("{taken}", &port.to_string())
    }

    /// Makes the mistake and holds what is said against what is expected.
    fn make(&self, (what, config, command, status, says): Mistake) {
        let config_file = self.folder.join("gateway.toml");
        fs::write(&config_file, self.filled(config)).unwrap();
        let command = self.filled(command);
        let mut arguments: Vec<&str> = command.split(' ').collect();
        let shown = config_file.display().to_string();
        if !command.contains("--config") {
            arguments.extend(["--config", &shown]);
        }
        let (code, error) = self.run(&arguments);
        assert_eq!(code, Some(status), "{what}: {error}");
        for expected in says {
            let expected = self.filled(expected);
            assert!(error.contains(&expected), "{what}: {expected:?} is not in\n{error}");
        }
        // One message: a line, with the number of errors behind it where all are listed, or clap's usage.
        let lines: Vec<&str> = error.lines().filter(|line| !line.is_empty()).collect();
        let summary = ["1 error", "nothing has changed"].iter().any(|summary| lines.last() == Some(summary));
        assert!(
            status == 2 || lines.len() == 1 + usize::from(summary),
            "{what}: more than one message:\n{error}"
        );
        assert!(!error.contains("panicked"), "{what}: {error}");
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.folder.join("said");
        let mut child = Command::new(env!("CARGO_BIN_EXE_gatewayd"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&output).unwrap())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status.code();
            }
            if start.elapsed() > Duration::from_secs(30) {
                child.kill().unwrap();
                break child.wait().unwrap().code();
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let said = fs::read_to_string(&output).unwrap();
        // The log of a gateway that began to start is not a message.
        let is_log = |line: &str| line.starts_with(|c: char| c.is_ascii_digit()) && line.contains(" INFO ");
        (status, said.lines().filter(|line| !is_log(line)).map(|line| format!("{line}\n")).collect())
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

#[test]
fn certificates_and_keys() {
    let newcomer = Newcomer::new("newcomer-certificates");
    newcomer.make_certificates();
    for (what, config, command, status, says) in CERTIFICATES {
        let config: &'static str = format!("{TLS}{config}\n").leak();
        newcomer.make((what, config, command, status, says));
    }
    // What the others are held against.
    let sound = newcomer.filled(&format!("{TLS}cert = '{{d}}/server.pem'\nkey = '{{d}}/server.key'\n"));
    let config = newcomer.folder.join("gateway.toml");
    fs::write(&config, sound).unwrap();
    let (code, error) = newcomer.run(&["check-config", "--config", config.to_str().unwrap()]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
}

#[test]
fn users_and_rules() {
    let newcomer = Newcomer::new("newcomer-lists");
    newcomer.make_certificates();
    for mistake in LISTS {
        newcomer.make(mistake);
    }
}

#[test]
fn a_gateway_that_does_not_start() {
    let newcomer = Newcomer::new("newcomer-starts");
    // Another gateway in the folder `busy`.
    let busy = newcomer.folder.join("busy.toml");
    let quiet = "[listener.mqtt]\nenabled = false\n[listener.amqp]\nenabled = false\n[listener.http]\nenabled = false\n";
    fs::write(&busy, newcomer.filled(&format!("{quiet}[storage]\npath = '{{d}}/busy'\n"))).unwrap();
    let mut other = Command::new(env!("CARGO_BIN_EXE_gatewayd"))
        .args(["run", "--config", busy.to_str().unwrap()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !newcomer.folder.join("busy/control.sock").exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "the other gateway does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for (what, config, command, status, says) in STARTS {
            // A folder of its own and no other listeners, unless the mistake is about them.
            let mut whole = config.to_owned();
            for name in ["mqtt", "amqp", "http"] {
                if !whole.contains(&format!("[listener.{name}]")) && status == 1 {
                    whole.push_str(&format!("\n[listener.{name}]\nenabled = false"));
                }
            }
            if !whole.contains("[storage]") {
                whole.push_str("\n[storage]\npath = '{d}/state'");
            }
            newcomer.make((what, whole.leak(), command, status, says));
        }
    }));
    other.kill().unwrap();
    other.wait().unwrap();
    if let Err(panic) = made {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn verbs() {
    let newcomer = Newcomer::new("newcomer-verbs");
    for (what, config, command, status, says) in VERBS {
        let config: &'static str = format!("[storage]\npath = '{{d}}/state'\n{config}\n").leak();
        newcomer.make((what, config, command, status, says));
    }
}

#[test]
fn files_that_are_no_configuration() {
    let newcomer = Newcomer::new("newcomer-files");
    newcomer.make_certificates();
    for (what, file, says) in FILES {
        let (file, says) = (newcomer.filled(file), newcomer.filled(says));
        let (code, error) = newcomer.run(&["check-config", "--config", &file]);
        assert_eq!(code, Some(78), "{what}: {error}");
        assert!(error.contains(&says) && error.ends_with("1 error\n"), "{what}: {error}");
    }
}
