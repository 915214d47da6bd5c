//! The real program, as far as no gateway has to run: exit codes, which stream says what, and a user that is added.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use gatewayd::auth::Users;

/// A folder for one test, where the program finds neither configuration nor state of this machine.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gatewayd-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn run(&self, arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gatewayd"))
            .args(arguments)
            .env_clear()
            .env("STATE_DIRECTORY", self.0.join("state"))
            .current_dir(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The program may end without reading.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn exit_codes_are_as_documented() {
    let folder = Folder::new("exit");
    let sound = folder.write("sound.toml", "[limits]\ninflight_max = 5\n");
    let wrong = folder.write("wrong.toml", "[limits]\ninflight_maks = 5\n");
    let code = |arguments: &[&str]| folder.run(arguments, "").0;
    assert_eq!(code(&["--version"]), Some(0));
    assert_eq!(code(&["user", "add", "--help"]), Some(0));
    assert_eq!(code(&["completions", "bash"]), Some(0));
    assert_eq!(code(&["check-config", "--config", &sound]), Some(0));
    assert_eq!(code(&["fly"]), Some(2));
    assert_eq!(code(&["user"]), Some(2));
    assert_eq!(code(&["status", "--config", &sound]), Some(3));
    assert_eq!(code(&["status", "--check", "--config", &sound]), Some(3));
    for verb in ["run", "check-config", "status"] {
        let (code, out, err) = folder.run(&[verb, "--config", &wrong], "");
        assert_eq!((code, out.as_str()), (Some(78), ""), "{verb}");
        let expected =
            format!("{wrong}:2:1: limits.inflight_maks: unknown key; did you mean inflight_max?\n");
        assert!(err.starts_with(&expected), "{verb}: {err}");
    }
    assert_eq!(code(&["run", "--config", "missing.toml"]), Some(78));
}

#[test]
fn what_is_shown_can_be_fed_back() {
    let folder = Folder::new("shown");
    let config =
        folder.write("gateway.toml", "[limits]\ninflight_max = 5\n[queue.'big*']\nmessages_max = 1\n");
    let (_, shown, err) = folder.run(&["check-config", "--show-effective", "--config", &config], "");
    assert_eq!(err, "");
    let again = folder.write("again.toml", &shown);
    let (code, twice, _) = folder.run(&["check-config", "--show-effective", "--config", &again], "");
    assert_eq!((code, twice), (Some(0), shown));
}

#[test]
fn a_user_is_added_and_the_password_appears_nowhere() {
    let folder = Folder::new("user");
    let config = folder.write("gateway.toml", "[auth]\npassword_file = 'passwd'\n");
    let add = ["user", "add", "ada", "--password-stdin", "--config", &config];
    let (code, out, err) = folder.run(&add, "s3cret word\n");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(!out.contains("s3cret"), "{out}");
    let file = fs::read(folder.0.join("passwd")).unwrap();
    let users = Users::parse(&file).unwrap();
    assert!(users.entry("ada").unwrap().verify(b"s3cret word"));
    assert!(String::from_utf8(file).unwrap().starts_with("ada:$7$10000$"));
    assert_eq!(folder.run(&["check-config", "--config", &config], "").0, Some(0));
    assert_eq!(folder.run(&["user", "rm", "ada", "--config", &config], "").0, Some(0));
    // Standard input is no terminal, so there is nobody to ask.
    let (code, _, err) = folder.run(&["user", "add", "bob", "--config", &config], "");
    assert_eq!((code, err.as_str()), (Some(1), "no terminal to ask on: use --password-stdin\n"));
}
