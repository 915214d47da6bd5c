//! Users and access rules against the real Mosquitto, where one is installed: random ACL files, and clients that
//! publish and read every topic under both. The password file is ours, so Mosquitto reads our hashes as well.
//!
//! Left out is what is stricter here on purpose: names with `/` or with `$` in front, and SUBSCRIBE.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gatewayd::auth::{Acl, Identity, SALT_BYTES, hash_password};

/// Random ACL files that are tried; about 15 ms each.
const FILES: u64 = 250;

/// Sees and may everything.
const ROOT: Identity<'_> = Identity { username: Some("root"), client_identifier: "root" };

const CLIENTS: [(Option<&str>, &str); 9] = [
    (None, "c1"),
    (None, "b"),
    (Some("ada"), "c1"),
    (Some("ada"), "a"),
    (Some("a"), "b"),
    (Some("b x"), "c2"),
    (Some("+"), "c3"),
    (Some("eve"), "#"),
    (Some("eve"), "x+"),
];

const TOPICS: [&str; 22] = [
    "a", "b", "ada", "c1", "a/a", "a/b", "b/c1", "ada/c1", "c1/ada", "a/b/a", "a/b/c1", "/a", "a/", "//",
    "xc1/a", "%u/a", "%c", "b x/c2", "+x", "$x", "$x/a", "$x/c1/b",
];

#[test]
fn decisions_are_those_of_mosquitto() {
    let Some(program) = mosquitto() else { return };
    let folder = Folder::new("acl");
    write_passwords(&folder);
    let (mut allowed, mut tried) = (0, 0);
    for seed in 0..FILES {
        let text = random_acl(seed);
        let acl = Acl::parse(text.as_bytes()).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
        let broker = Broker::start(&program, &folder, &text).unwrap_or_else(|log| panic!("{log}\n{text}"));
        let mut root = Session::connect(broker.port, ROOT);
        for (at, (username, client_identifier)) in CLIENTS.into_iter().enumerate() {
            let client = Identity { username, client_identifier };
            let (written, read) = broker.try_all(&mut root, client, at);
            for (topic, (written, read)) in TOPICS.iter().zip(written.iter().zip(&read)) {
                // A client cannot send a topic name with a wildcard, so `+x` is never written or read.
                if topic.contains('+') {
                    continue;
                }
                allowed += usize::from(*written) + usize::from(*read);
                tried += 2;
                let case = format!("{client:?} {topic}\n{text}");
                assert_eq!(acl.may_publish(client, topic), *written, "publish {case}");
                assert_eq!(acl.may_read(client, topic), *read, "read {case}");
            }
        }
    }
    // Rules that refuse or allow nearly everything would prove little.
    assert!(allowed * 20 > tried && allowed * 2 < tried, "{allowed} of {tried} allowed");
}

#[test]
fn what_mosquitto_refuses_is_refused() {
    let Some(program) = mosquitto() else { return };
    let folder = Folder::new("acl-refused");
    write_passwords(&folder);
    for (text, is_sound) in [
        ("topic read a/b c\n", true),
        ("  topic a\n", true),
        ("user ada  \ntopic deny a/#\n\n\npattern %c/%u\n", true),
        ("topic a/#/b\n", false),
        ("topic read a+\n", false),
        ("topic reed a\n", false),
        ("topic a b\n", false),
        ("topic\n", false),
        ("user\n", false),
        ("usr ada\n", false),
        ("topic #x\n", false),
        (" # comment\n", false),
    ] {
        assert_eq!(Acl::parse(text.as_bytes()).is_ok(), is_sound, "{text}");
        assert_eq!(Broker::start(&program, &folder, text).is_ok(), is_sound, "mosquitto: {text}");
    }
}

fn mosquitto() -> Option<PathBuf> {
    ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto", "/opt/homebrew/sbin/mosquitto"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
}

/// A file of up to fifteen rules over few words, so that they meet.
fn random_acl(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut text = String::new();
    for _ in 0..random(16) {
        if random(4) == 0 {
            writeln!(text, "user {}", ["ada", "a", "b x", "+"][random(4)]).unwrap();
        }
        let word = ["topic", "topic", "pattern"][random(3)];
        let access = ["", "read ", "write ", "readwrite ", "deny "][random(5)];
        let words = ["a", "b", "c1", "ada", "%u", "%c", "x%c", "+", "+", "+", "", "$x"];
        let mut levels: Vec<&str> = (0..=random(3)).map(|_| words[random(words.len())]).collect();
        if random(2) == 0 {
            levels.push("#");
        }
        if random(8) == 0 {
            levels = vec!["#"];
        }
        let filter = levels.join("/");
        // A `%u` that stands first could be given a `$`; no name here has one.
        writeln!(text, "{word} {access}{}", if filter.is_empty() { "a" } else { &filter }).unwrap();
    }
    text
}

/// `NAME:HASH` for every user and for `root`, who sees all.
fn write_passwords(folder: &Folder) {
    let mut text = String::new();
    for (at, name) in ["root", "ada", "a", "b x", "+", "eve"].into_iter().enumerate() {
        let salt = [u8::try_from(at).unwrap(); SALT_BYTES];
        writeln!(text, "{name}:{}", hash_password(name.as_bytes(), salt, 3)).unwrap();
    }
    std::fs::write(folder.0.join("passwd"), text).unwrap();
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gatewayd-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A running Mosquitto.
struct Broker {
    process: Child,
    port: u16,
}

impl Broker {
    /// Starts it on a free loopback port with the rules of `text` and, behind them, those of `root`.
    ///
    /// # Errors
    /// Its log, when it does not start.
    fn start(program: &Path, folder: &Folder, text: &str) -> Result<Self, String> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let [acl, config, passwd] = ["acl", "conf", "passwd"].map(|name| folder.0.join(name));
        std::fs::write(&acl, format!("{text}user root\ntopic #\ntopic $x/#\n")).unwrap();
        let settings = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\nacl_file {}\npassword_file {}\nuser root\n\
             log_dest stderr\nlog_type error\nlog_type information\nconnection_messages false\nsys_interval 0\n\
             set_tcp_nodelay true\n",
            acl.display(),
            passwd.display()
        );
        std::fs::write(&config, settings).unwrap();
        let process = Command::new(program)
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut broker = Self { process, port };
        let mut log = String::new();
        let mut lines = BufReader::new(broker.process.stderr.as_mut().unwrap());
        loop {
            let start = log.len();
            if lines.read_line(&mut log).unwrap() == 0 {
                return Err(log);
            }
            if log.get(start..).unwrap().contains(" running") {
                return Ok(broker);
            }
        }
    }

    /// For each topic: whether `client` could publish to it, and whether it was given what `root` published.
    fn try_all(&self, root: &mut Session, client: Identity<'_>, at: usize) -> (Vec<bool>, Vec<bool>) {
        let mut session = Session::connect(self.port, client);
        for (index, topic) in TOPICS.iter().enumerate().filter(|(_, topic)| !topic.contains('+')) {
            root.publish(topic, &format!("r{at} {index}"));
            session.publish(topic, &format!("w{at} {index}"));
        }
        // What a session sent before its ping is routed when the answer comes; the second round fetches the rest.
        let mut sent = root.ping();
        let mut given = session.ping();
        sent.extend(root.ping());
        given.extend(session.ping());
        let is_in = |payloads: &[String], mark: char| {
            (0..TOPICS.len()).map(|index| payloads.contains(&format!("{mark}{at} {index}"))).collect()
        };
        (is_in(&sent, 'w'), is_in(&given, 'r'))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// An MQTT 3.1.1 session with just enough of the protocol, subscribed to all topics at QoS 0.
struct Session(TcpStream);

impl Session {
    fn connect(port: u16, client: Identity<'_>) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut session = Self(stream);
        let flags = if client.username.is_some() { 0b1100_0010 } else { 0b0000_0010 };
        let mut body = [&[0, 4][..], b"MQTT", &[4, flags, 0, 60]].concat();
        body.extend(field(client.client_identifier));
        if let Some(username) = client.username {
            body.extend(field(username));
            body.extend(field(username));
        }
        session.send(0x10, &body);
        assert_eq!(session.receive().unwrap(), (0x20, vec![0, 0]), "{client:?} was not let in");
        let filters = [field("#"), vec![0], field("$x/#"), vec![0]].concat();
        session.send(0x82, &[&[0, 1], &filters[..]].concat());
        assert_eq!(session.receive().unwrap().0, 0x90);
        session
    }

    fn publish(&mut self, topic: &str, payload: &str) {
        self.send(0x30, &[&field(topic), payload.as_bytes()].concat());
    }

    /// The payloads that come before the answer to a ping.
    fn ping(&mut self) -> Vec<String> {
        self.send(0xc0, &[]);
        let mut payloads = Vec::new();
        loop {
            let (kind, body) = self.receive().unwrap();
            match kind {
                0x30 => {
                    let topic_bytes = usize::from(u16::from_be_bytes([body[0], body[1]]));
                    payloads.push(String::from_utf8(body[2 + topic_bytes..].to_vec()).unwrap());
                }
                0xd0 => return payloads,
                other => panic!("packet {other:#x}"),
            }
        }
    }

    /// Packets here are shorter than 128 bytes, so their length is one byte.
    fn send(&mut self, kind: u8, body: &[u8]) {
        let length = u8::try_from(body.len()).unwrap();
        assert!(length < 128);
        self.0.write_all(&[&[kind, length], body].concat()).unwrap();
    }

    fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head)?;
        let mut body = vec![0; usize::from(head[1])];
        self.0.read_exact(&mut body)?;
        Ok((head[0], body))
    }
}

fn field(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat()
}
