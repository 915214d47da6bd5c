//! `user add|passwd|rm`: changes a password file that Mosquitto 2.0 reads as well.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{Exit, Io};
use crate::auth::{
    ITERATIONS_DEFAULT, PasswordFile, SALT_BYTES, Users, check_user_name, hash_password, replace_private,
};
use crate::config::Config;

/// A `user` verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserCommand {
    pub action: UserAction,
    pub name: String,
    /// The file to change; else the configuration names it.
    pub password_file: Option<PathBuf>,
    /// The password is standard input, without one line end, rather than what two prompts agree on.
    pub password_stdin: bool,
    pub iterations: Option<u32>,
}

/// What becomes of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAction {
    Add,
    ChangePassword,
    Remove,
}

/// Longest password in bytes: the two-byte length of CONNECT's field. [MQTT-1.5.3-1]
const PASSWORD_BYTES_MAX: u64 = 65_535;

/// The user that the daemon runs as.
const SERVICE_USER: &str = "gatewayd";

/// Carries out `command`.
///
/// # Errors
/// Writing a message failed.
pub fn user(config: Option<&Path>, command: &UserCommand, io: &mut Io<'_>) -> io::Result<Exit> {
    match changed(config, command, io) {
        Ok(text) => {
            writeln!(io.out, "{text}")?;
            Ok(Exit::Ok)
        }
        Err((exit, text)) => {
            writeln!(io.err, "{text}")?;
            Ok(exit)
        }
    }
}

/// Changes the file; a sentence about what was done, or about what went wrong.
fn changed(config: Option<&Path>, command: &UserCommand, io: &mut Io<'_>) -> Result<String, (Exit, String)> {
    let failed = |text: String| (Exit::Failed, text);
    let name = &command.name;
    check_user_name(name).map_err(|reason| (Exit::Usage, reason.to_owned()))?;
    let path = match &command.password_file {
        Some(path) => path.clone(),
        None => configured_file(config, io)?,
    };
    let text = match io.files.read(&path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map_err(|_| failed(format!("{}: the text is not UTF-8", path.display())))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && command.action == UserAction::Add => {
            String::new()
        }
        Err(error) => return Err(failed(format!("{}: cannot be read: {error}", path.display()))),
    };
    let mut file = PasswordFile::new(&text);
    let done = match (command.action, file.contains(name)) {
        (UserAction::Add, true) => {
            return Err(failed(format!("user {name} is in {} already: use user passwd", path.display())));
        }
        (UserAction::ChangePassword | UserAction::Remove, false) => {
            return Err(failed(format!("no user {name} in {}", path.display())));
        }
        (UserAction::Remove, true) => {
            file.remove(name);
            "removed from"
        }
        (UserAction::Add | UserAction::ChangePassword, _) => {
            let password = password(command, io).map_err(failed)?;
            let mut salt = [0; SALT_BYTES];
            getrandom::fill(&mut salt).map_err(|error| failed(format!("no random numbers: {error}")))?;
            let iterations = command.iterations.unwrap_or(ITERATIONS_DEFAULT);
            file.set(name, &hash_password(password.as_bytes(), salt, iterations));
            if command.action == UserAction::Add { "added to" } else { "has a new password in" }
        }
    };
    let accounts = io.files.read(Path::new("/etc/passwd")).unwrap_or_default();
    replace_private(&path, &file.text(), service_owner(&String::from_utf8_lossy(&accounts)))
        .map_err(|error| failed(format!("{}: cannot be written: {error}", path.display())))?;
    let mut told =
        format!("user {name} {done} {}; a running gateway knows after `gatewayd reload`", path.display());
    if let Err(errors) = Users::parse(file.text().as_bytes()) {
        for error in errors {
            told.push_str(&format!("\n{}:{error}", path.display()));
        }
        told.push_str("\nthe gateway refuses the file until these lines are right");
    }
    Ok(told)
}

/// The file that the configuration names.
fn configured_file(config: Option<&Path>, io: &Io<'_>) -> Result<PathBuf, (Exit, String)> {
    let config = Config::load(config, io.files).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        (Exit::BadConfiguration, lines.join("\n"))
    })?;
    config.auth.password_file.ok_or_else(|| {
        let text = "no password file: set password_file under [auth] in the configuration, or say --password-file FILE";
        (Exit::Failed, text.to_owned())
    })
}

fn password(command: &UserCommand, io: &mut Io<'_>) -> Result<String, String> {
    let password = if command.password_stdin {
        password_of_input(io.input)?
    } else {
        let Some(ask) = &mut io.ask else {
            return Err("no terminal to ask on: use --password-stdin".to_owned());
        };
        let mut ask =
            |prompt: &str| ask(prompt).map_err(|error| format!("cannot ask for the password: {error}"));
        let password = ask(&format!("Password of {}: ", command.name))?;
        if ask("Again: ")? != password {
            return Err("the two passwords differ; nothing was changed".to_owned());
        }
        password
    };
    if password.is_empty() {
        return Err("the password is empty; nothing was changed".to_owned());
    }
    if password.contains('\0') {
        return Err(
            "the password holds a zero byte, where Mosquitto would end it; nothing was changed".to_owned()
        );
    }
    Ok(password)
}

fn password_of_input(input: &mut dyn io::Read) -> Result<String, String> {
    let mut password = String::new();
    // Two bytes more than a password has: its line end.
    input
        .take(PASSWORD_BYTES_MAX.saturating_add(3))
        .read_to_string(&mut password)
        .map_err(|error| format!("cannot read the password: {error}"))?;
    let password = password.strip_suffix('\n').unwrap_or(&password);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.len() as u64 > PASSWORD_BYTES_MAX {
        return Err(format!("the password is longer than {PASSWORD_BYTES_MAX} bytes"));
    }
    if password.contains('\n') {
        return Err("standard input holds more than one line".to_owned());
    }
    Ok(password.to_owned())
}

/// User and group of the daemon in the text of `/etc/passwd`, so that a file which root makes can be read by it.
fn service_owner(accounts: &str) -> Option<(u32, u32)> {
    let line = accounts.lines().find_map(|line| line.strip_prefix(SERVICE_USER)?.strip_prefix(':'))?;
    let mut fields = line.split(':').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;
    use crate::cli::Ask;
    use crate::config::Files;

    /// A folder of files for one test.
    pub(in crate::cli) struct Scratch(PathBuf);

    impl Scratch {
        pub fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("gatewayd-{name}-{}", std::process::id()));
            fs::create_dir_all(folder.join("gateway.d")).unwrap();
            Self(folder)
        }

        pub fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        pub fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).unwrap();
        }

        pub fn read(&self, name: &str) -> String {
            fs::read_to_string(self.path(name)).unwrap()
        }

        /// Runs a verb; its exit, output and errors.
        pub fn run(&self, verb: impl FnOnce(&mut Io<'_>) -> io::Result<Exit>) -> (Exit, String, String) {
            self.run_with("", None, verb)
        }

        pub fn run_with(
            &self,
            input: &str,
            ask: Option<&mut Ask<'_>>,
            verb: impl FnOnce(&mut Io<'_>) -> io::Result<Exit>,
        ) -> (Exit, String, String) {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let files = Files { state_path: self.path("state") };
            let ask = ask.map(|ask| -> &mut Ask<'_> { ask });
            let mut io =
                Io { out: &mut out, err: &mut err, input: &mut input.as_bytes(), ask, files: &files };
            let exit = verb(&mut io).unwrap();
            (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn command(action: UserAction, name: &str) -> UserCommand {
        UserCommand {
            action,
            name: name.to_owned(),
            password_file: None,
            password_stdin: true,
            iterations: Some(1),
        }
    }

    #[test]
    fn users_are_added_changed_and_removed() {
        let scratch = Scratch::new("user-whole");
        scratch.write("gateway.toml", "[auth]\npassword_file = 'passwd'\n");
        let config = scratch.path("gateway.toml");
        let run = |action, name, input: &str| {
            let command = command(action, name);
            scratch.run_with(input, None, |io| user(Some(&config), &command, io))
        };
        let users = || Users::parse(scratch.read("passwd").as_bytes()).unwrap();
        let (exit, out, err) = run(UserAction::Add, "ada", "first\n");
        assert_eq!((exit, err.as_str()), (Exit::Ok, ""));
        let path = scratch.path("passwd");
        assert_eq!(
            out,
            format!(
                "user ada added to {}; a running gateway knows after `gatewayd reload`\n",
                path.display()
            )
        );
        assert!(users().entry("ada").unwrap().verify(b"first"));

        let (exit, _, err) = run(UserAction::Add, "ada", "x");
        assert_eq!(exit, Exit::Failed);
        assert!(err.ends_with("already: use user passwd\n"), "{err}");
        scratch.write("passwd", &format!("# kept\n{}", scratch.read("passwd")));
        assert_eq!(run(UserAction::ChangePassword, "ada", "second\r\n").0, Exit::Ok);
        assert!(users().entry("ada").unwrap().verify(b"second"));
        assert_eq!(run(UserAction::Add, "bob", " b b ").0, Exit::Ok);
        assert!(users().entry("bob").unwrap().verify(b" b b "));
        assert_eq!(run(UserAction::Remove, "ada", "").0, Exit::Ok);
        assert!(users().entry("ada").is_none() && scratch.read("passwd").starts_with("# kept\nbob:$7$1$"));
        assert_eq!(run(UserAction::Remove, "ada", "").0, Exit::Failed);
        assert_eq!(run(UserAction::ChangePassword, "ada", "x").0, Exit::Failed);
    }

    #[test]
    fn two_prompts_must_agree() {
        let scratch = Scratch::new("user-ask");
        let mut command = command(UserAction::Add, "ada");
        command.password_stdin = false;
        command.password_file = Some(scratch.path("passwd"));
        let run = |answers: &[&str]| {
            let mut answers = answers.iter();
            let mut ask = |_: &str| {
                answers
                    .next()
                    .map(|&answer| answer.to_owned())
                    .ok_or_else(|| io::ErrorKind::BrokenPipe.into())
            };
            scratch.run_with("", Some(&mut ask), |io| user(None, &command, io))
        };
        let (exit, _, err) = run(&["one", "two"]);
        assert_eq!((exit, err.as_str()), (Exit::Failed, "the two passwords differ; nothing was changed\n"));
        assert_eq!(run(&["", ""]).2, "the password is empty; nothing was changed\n");
        assert_eq!(run(&["one"]).0, Exit::Failed);
        assert!(!scratch.path("passwd").exists());
        assert_eq!(run(&["one", "one"]).0, Exit::Ok);
        let (exit, _, err) =
            scratch.run(|io| user(None, &UserCommand { name: "bob".to_owned(), ..command }, io));
        assert_eq!((exit, err.as_str()), (Exit::Failed, "no terminal to ask on: use --password-stdin\n"));
    }

    #[test]
    fn what_cannot_be_done_says_why() {
        let scratch = Scratch::new("user-why");
        scratch.write("gateway.toml", "");
        let config = scratch.path("gateway.toml");
        let run = |name: &str, input: &str, file: Option<&str>| {
            let mut command = command(UserAction::Add, name);
            command.password_file = file.map(|file| scratch.path(file));
            scratch.run_with(input, None, |io| user(Some(&config), &command, io))
        };
        let (exit, _, err) = run("ada", "x", None);
        assert_eq!(exit, Exit::Failed);
        assert!(err.starts_with("no password file: "), "{err}");
        assert_eq!(run("a:b", "x", Some("p")).0, Exit::Usage);
        assert_eq!(run("ada", "one\ntwo\n", Some("p")).2, "standard input holds more than one line\n");
        assert_eq!(run("ada", &"x".repeat(65_536), Some("p")).2, "the password is longer than 65535 bytes\n");
        assert_eq!(run("ada", &"x".repeat(65_535), Some("p")).0, Exit::Ok);
        scratch.write("gateway.toml", "[auth]\npasswordfile = 'x'\n");
        assert_eq!(run("bob", "x", None).0, Exit::BadConfiguration);
        scratch.write("bad", "nobody\n");
        let (exit, out, _) = run("bob", "x", Some("bad"));
        assert_eq!(exit, Exit::Ok);
        assert!(out.ends_with("bad:1:1: not a line of the form NAME:HASH\nthe gateway refuses the file until these lines are right\n"), "{out}");
    }

    #[test]
    fn the_service_user_is_found_by_its_whole_name() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\ngatewayd2:x:7:7::/:\ngatewayd:x:991:992:Gateway:/var/lib/gatewayd:/bin/false\n";
        assert_eq!(service_owner(accounts), Some((991, 992)));
        assert_eq!(service_owner("gatewayd:x:a:b\n"), None);
        assert_eq!(service_owner(""), None);
    }
}
