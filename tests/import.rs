//! A Mosquitto installation taken over: its configuration, passwords and rules serve the same clients, unchanged, from the
//! gateway; each client command is run against both and must fare the same. Rules and manual pages by the real program.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "these tests drive processes in real time")]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder and the processes in it; both go when it is dropped.
struct Place {
    folder: PathBuf,
    running: Option<Child>,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).unwrap();
        Self { folder, running: None }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.folder.join(name).parent().unwrap()).unwrap();
        fs::write(self.folder.join(name), text).unwrap();
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap());
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder).env("PATH", path).stdin(Stdio::null());
        command.output().unwrap_or_else(|error| panic!("{program} is missing: ./scripts/setup: {error}"))
    }

    fn gatewayd(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = self.run(env!("CARGO_BIN_EXE_gatewayd"), arguments);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Starts a broker and waits until it listens.
    fn start(&mut self, program: &str, arguments: &[&str], port: u16) {
        let log = fs::File::create(self.folder.join("broker.log")).unwrap();
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap());
        let child = Command::new(program)
            .args(arguments)
            .current_dir(&self.folder)
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.running = Some(child);
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(self.folder.join("broker.log")).unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(30), "{program} does not listen:\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.running.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop();
        fs::remove_dir_all(&self.folder).ok();
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// What clients of the installation do, and whether it goes well. `{}` is the plain port, `[]` the one with TLS.
const CLIENTS: [(&str, bool); 8] = [
    ("mosquitto_pub -p {} -u ada -P secret -t plant/ada/state -m 1 -q 1 -r", true),
    ("mosquitto_sub -p {} -u ada -P secret -t plant/ada/state -C 1 -W 5", true),
    ("mosquitto_pub -p {} -u ada -P wrong -t plant/ada/state -m 2 -q 1", false),
    ("mosquitto_pub -p {} -t plant/ada/state -m 2 -q 1", false),
    ("mosquitto_sub -p {} -u bob -P hunter2 -t plant/ada/state -C 1 -W 2", false),
    ("mosquitto_sub -p {} -u bob -P hunter2 -t common/news -C 1 -W 2", false),
    ("mosquitto_pub -p [] --cafile ca.pem -u bob -P hunter2 -t common/news -m paper -q 1 -r", true),
    ("mosquitto_sub -p [] --cafile ca.pem -u ada -P secret -t common/news -C 1 -W 5", true),
];

fn serves(place: &Place, plain: u16, tls: u16) -> Vec<(String, bool)> {
    let run = |(line, _): &(&str, bool)| {
        let line = line.replace("{}", &plain.to_string()).replace("[]", &tls.to_string());
        let words: Vec<&str> = line.split(' ').collect();
        let host = ["-h", "localhost"];
        let output = place.run(words[0], &[&host[..], &words[1..]].concat());
        // A subscriber does well when it gets something: being refused and waiting in vain are the same to it.
        let well = output.status.success() && (words[0] == "mosquitto_pub" || !output.stdout.is_empty());
        (line, well)
    };
    CLIENTS.iter().map(run).collect()
}

#[test]
fn a_mosquitto_installation_is_taken_over() {
    let mut place = Place::new("takeover");
    let (plain, tls) = (free_port(), free_port());
    for (user, password) in [("ada", "secret"), ("bob", "hunter2")] {
        let create: &[&str] = if user == "ada" { &["-c"] } else { &[] };
        let arguments = [&["-b"][..], create, &["passwd", user, password]].concat();
        assert!(place.run("mosquitto_passwd", &arguments).status.success());
    }
    place.write(
        "acl",
        "user ada\ntopic readwrite common/#\nuser bob\ntopic write common/#\n\n# each his own\npattern readwrite plant/%u/#\n",
    );
    let subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
    let make = [
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "ca.pem", "-days", "2",
    ];
    assert!(place.run("openssl", &[&make[..], &subject[..]].concat()).status.success());
    for name in ["passwd", "acl", "key.pem"] {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let (passwd, acl, key, cert) =
        (place.path("passwd"), place.path("acl"), place.path("key.pem"), place.path("ca.pem"));
    place.write(
        "mosquitto.conf",
        &format!(
            "# the plant's broker\npersistence false\nallow_anonymous false\npassword_file {passwd}\nacl_file {acl}\n\
             max_queued_messages 200\nmax_inflight_messages 10\nlog_type all\nuser root\nlistener {plain} 127.0.0.1\n\
             include_dir {}\nsys_interval 5\n",
            place.path("conf.d")
        ),
    );
    place.write("conf.d/tls.conf", &format!("listener {tls} 127.0.0.1\ncertfile {cert}\nkeyfile {key}\n"));

    place.start("mosquitto", &["-c", "mosquitto.conf"], tls);
    let by_mosquitto = serves(&place, plain, tls);
    place.stop();
    let expected: Vec<bool> = CLIENTS.iter().map(|(_, well)| *well).collect();
    assert_eq!(by_mosquitto.iter().map(|(_, well)| *well).collect::<Vec<_>>(), expected, "{by_mosquitto:?}");

    let source = place.path("mosquitto.conf");
    let import = ["import", "mosquitto", "--source", &source, "--output", "gateway.toml"];
    let (code, out, err) = place.gatewayd(&import);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("gateway.toml written; next: gatewayd check-config"), "{out}");
    assert_eq!(err, format!("not mapped: {source}:12: sys_interval 5\n"));
    // Written once; not over what is there.
    assert_eq!(place.gatewayd(&import).0, Some(1));
    place.write(
        "gateway.d/here.toml",
        &format!(
            "[storage]\npath = \"{}\"\n[listener.amqp]\nenabled = false\n[listener.http]\nenabled = false\n",
            place.path("state")
        ),
    );
    let (code, _, err) = place.gatewayd(&["check-config", "--config", "gateway.toml"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    place.start(env!("CARGO_BIN_EXE_gatewayd"), &["run", "--config", "gateway.toml"], tls);
    let by_us = serves(&place, plain, tls);
    place.stop();
    assert_eq!(by_us, by_mosquitto, "{}", fs::read_to_string(place.path("broker.log")).unwrap());
    // What it was told about bounds holds.
    let (_, shown, _) = place.gatewayd(&["check-config", "--show-effective", "--config", "gateway.toml"]);
    assert!(shown.contains("inflight_max = 10\n") && shown.contains("messages_max = 200\n"), "{shown}");

    // The same rules, asked without a broker.
    let test = |user: &str, topic: &str| {
        let (code, out, _) =
            place.gatewayd(&["acl", "test", "--config", "gateway.toml", "--user", user, "--topic", topic]);
        (code, out)
    };
    assert_eq!(test("bob", "plant/ada/state").0, Some(1));
    let (code, out) = test("bob", "common/news");
    assert_eq!((code, out.as_str()), (Some(0), "subscribe  denied\nread       denied\npublish    allowed\n"));
}

#[test]
fn what_cannot_be_imported_is_said() {
    let place = Place::new("import-mistakes");
    let (code, _, err) = place.gatewayd(&["import", "mosquitto", "--source", "missing.conf"]);
    assert_eq!((code, err.as_str()), (Some(1), "missing.conf: No such file or directory (os error 2)\n"));
    place.write("passwd", "ada:$5$x$y\n");
    place
        .write("m.conf", "password_file passwd\nacl_file nowhere\nlistener many\nplugin /x.so\nbridge_x 1\n");
    let (code, out, err) = place.gatewayd(&["import", "mosquitto", "--source", "m.conf"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("[auth]\npassword_file = \"passwd\"\n"), "{out}");
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "not mapped: m.conf:3: listener many",
            "not mapped: m.conf:4: plugin /x.so",
            "not mapped: m.conf:5: bridge_x 1"
        ]
    );
    assert!(lines[3].starts_with("not mapped: passwd:1:5: not a password hash"), "{err}");
    assert!(lines[4].starts_with("not mapped: nowhere: cannot be read"), "{err}");
}

#[test]
fn manual_pages_are_written_for_every_verb() {
    let place = Place::new("manual");
    let (code, out, err) = place.gatewayd(&["manual", "man8"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let count = fs::read_dir(place.folder.join("man8")).unwrap().count();
    assert_eq!(out, format!("{count} pages in man8\n"));
    let page = fs::read_to_string(place.folder.join("man8/gatewayd.8")).unwrap();
    for expected in [".TH gatewayd 8", "check\\-config", "78 bad configuration"] {
        assert!(page.contains(expected), "{expected} is not in\n{page}");
    }
    let page = fs::read_to_string(place.folder.join("man8/gateway.toml.5")).unwrap();
    for expected in [
        ".TH GATEWAY.TOML 5",
        ".SH [limits]\n",
        ".SH [queue.NAME]\n",
        ".BR inflight_max \" = 20\"\n",
        "A number from 1 to 65535.\n",
        "From 17MiB to 2GiB.\n",
        "One of drop_oldest, reject.\n",
    ] {
        assert!(page.contains(expected), "{expected} is not in\n{page}");
    }
    let page = fs::read_to_string(place.folder.join("man8/gatewayd-queue.8")).unwrap();
    assert!(page.contains(".TH gatewayd-queue 8") && page.contains("peek"), "{page}");
}
