//! The command line: what was asked, the verbs that need no running gateway, and how an answer is shown. Owns the exit
//! codes; running the gateway and reaching a running one is for `main`.
//!
//! Nothing prints by itself: text goes to the writers of [`Io`].

mod acl_test;
mod asking;
mod backup;
mod check_config;
mod collection;
mod control;
mod doctor;
mod manual;
mod mosquitto;
mod operating;
mod plot;
mod reload;
mod restore;
mod settings_page;
mod state_folder;
mod status;
mod storage;
mod table;
mod user;
mod verbs;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;
use clap::error::ErrorKind;

use crate::config::{Config, ConfigSource};

pub use acl_test::{AclTest, acl_test};
pub use asking::{Request, Show, Shower};
pub use backup::{Online, backup};
pub use check_config::check_config;
pub use collection::{IngestTest, ingest_test};
pub use control::{SYSTEM_SOCKET, control_socket, no_answer};
pub use doctor::doctor;
pub use mosquitto::{MosquittoImport, import_mosquitto};
pub use reload::render_reload;
pub use restore::{Restore, restore};
pub use status::render_status;
pub use storage::{StorageCommand, compact, own_state, refuse_repair, verify};
pub use user::{UserAction, UserCommand, user};

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation {
    /// Run the gateway with this configuration file, else the usual one.
    Run {
        config: Option<PathBuf>,
    },
    CheckConfig {
        config: Option<PathBuf>,
        show_effective: bool,
    },
    /// Ask the running gateway.
    Status {
        config: Option<PathBuf>,
        json: bool,
        check: bool,
        watch: bool,
    },
    /// Have the running gateway read its configuration anew.
    Reload {
        config: Option<PathBuf>,
    },
    User {
        config: Option<PathBuf>,
        command: UserCommand,
    },
    /// Ask the running gateway for something.
    Ask {
        config: Option<PathBuf>,
        request: Request,
    },
    IngestTest(IngestTest),
    AclTest(AclTest),
    ImportMosquitto(MosquittoImport),
    /// Say what is wrong with all of it.
    Doctor {
        config: Option<PathBuf>,
    },
    /// A backup to this file; `-` is standard output.
    Backup {
        config: Option<PathBuf>,
        file: String,
    },
    Restore(Restore),
    /// Look after the files of the state folder.
    Storage {
        config: Option<PathBuf>,
        command: StorageCommand,
    },
    /// Manual pages into this folder.
    Manual {
        folder: PathBuf,
    },
    Completions {
        shell: String,
    },
    /// Help or the version, to standard output.
    Help(String),
    /// What is wrong with the command line, to standard error.
    Usage(String),
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    Failed = 1,
    Usage = 2,
    /// No gateway answers.
    Unreachable = 3,
    /// `EX_CONFIG`: systemd does not try again, see `RestartPreventExitStatus`.
    BadConfiguration = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Asks for a password without echo, with the given prompt.
pub type Ask<'a> = dyn FnMut(&str) -> io::Result<String> + 'a;

/// Where a verb reads and writes.
pub struct Io<'a> {
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
    pub input: &'a mut dyn Read,
    /// `None` when there is nobody to ask.
    pub ask: Option<&'a mut Ask<'a>>,
    pub files: &'a dyn ConfigSource,
}

/// What `args`, the program's name first, ask for.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Invocation {
    match verbs::command().try_get_matches_from(args) {
        Ok(matches) => invocation(&matches),
        Err(error) => {
            let text = error.render().to_string();
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Invocation::Help(text),
                _ => Invocation::Usage(text),
            }
        }
    }
}

/// Does what needs no running gateway; `None` for `run` and `status`.
///
/// # Errors
/// Writing failed: whoever reads has gone away.
pub fn run_local(invocation: &Invocation, io: &mut Io<'_>) -> io::Result<Option<Exit>> {
    Ok(Some(match invocation {
        Invocation::Run { .. }
        | Invocation::Status { .. }
        | Invocation::Reload { .. }
        | Invocation::Doctor { .. }
        | Invocation::Backup { .. }
        | Invocation::Storage { .. }
        | Invocation::Ask { .. } => {
            return Ok(None);
        }
        Invocation::Restore(command) => restore(command, io)?,
        Invocation::IngestTest(test) => match Config::load(test.config.as_deref(), io.files) {
            Ok(config) => {
                let taken = ingest_test(&config, test, io.out)?;
                if taken { Exit::Ok } else { Exit::Failed }
            }
            Err(errors) => {
                for error in errors {
                    writeln!(io.err, "{error}")?;
                }
                Exit::BadConfiguration
            }
        },
        Invocation::AclTest(test) => acl_test(test, io)?,
        Invocation::ImportMosquitto(command) => import_mosquitto(command, io)?,
        Invocation::Manual { folder } => manual::write(folder, io)?,
        Invocation::CheckConfig { config, show_effective } => {
            check_config(config.as_deref(), *show_effective, io)?
        }
        Invocation::User { config, command } => user(config.as_deref(), command, io)?,
        Invocation::Completions { shell } => {
            io.out.write_all(&completions(shell))?;
            Exit::Ok
        }
        Invocation::Help(text) => {
            io.out.write_all(text.as_bytes())?;
            Exit::Ok
        }
        Invocation::Usage(text) => {
            io.err.write_all(text.as_bytes())?;
            Exit::Usage
        }
    }))
}

fn invocation(matches: &ArgMatches) -> Invocation {
    let config = matches.get_one::<PathBuf>("config").cloned();
    match matches.subcommand() {
        Some(("check-config", verb)) => {
            Invocation::CheckConfig { config, show_effective: verb.get_flag("show-effective") }
        }
        Some(("status", verb)) => Invocation::Status {
            config,
            json: verb.get_flag("json"),
            check: verb.get_flag("check"),
            watch: verb.get_flag("watch"),
        },
        Some(("doctor", _)) => Invocation::Doctor { config },
        Some(("reload", _)) => Invocation::Reload { config },
        Some(("user", verb)) => match verb.subcommand() {
            Some((action, arguments)) => {
                Invocation::User { config, command: user_command(action, arguments) }
            }
            None => Invocation::Usage("the verb user needs add, passwd or rm\n".to_owned()),
        },
        Some(("ingest", verb)) => match verb.subcommand() {
            Some((_, arguments)) => Invocation::IngestTest(IngestTest {
                config,
                topic: word(arguments, "topic"),
                payload: word(arguments, "payload"),
            }),
            None => Invocation::Usage("the verb ingest needs test\n".to_owned()),
        },
        Some(("acl", verb)) => match verb.subcommand() {
            Some((_, arguments)) => Invocation::AclTest(AclTest {
                config,
                acl_file: arguments.get_one::<PathBuf>("acl-file").cloned(),
                user: arguments.get_one::<String>("user").cloned(),
                client: word(arguments, "client"),
                topic: word(arguments, "topic"),
            }),
            None => Invocation::Usage("the verb acl needs test\n".to_owned()),
        },
        Some(("import", verb)) => match verb.subcommand() {
            Some((_, arguments)) => Invocation::ImportMosquitto(MosquittoImport {
                source: arguments
                    .get_one::<PathBuf>("source")
                    .cloned()
                    .unwrap_or_else(|| PathBuf::from("/etc/mosquitto/mosquitto.conf")),
                output: arguments.get_one::<PathBuf>("output").cloned(),
            }),
            None => Invocation::Usage("the verb import needs mosquitto\n".to_owned()),
        },
        Some(("backup", verb)) => Invocation::Backup { config, file: word(verb, "FILE") },
        Some(("restore", verb)) => Invocation::Restore(Restore {
            config,
            file: word(verb, "FILE"),
            force: verb.get_flag("force"),
            check: verb.get_flag("check"),
        }),
        Some(("storage", verb)) if verb.subcommand_name() != Some("usage") => {
            let command = match verb.subcommand_name() {
                Some("repair") => StorageCommand::Repair,
                Some("compact") => StorageCommand::Compact,
                _ => StorageCommand::Verify,
            };
            Invocation::Storage { config, command }
        }
        Some(("manual", verb)) => Invocation::Manual { folder: PathBuf::from(word(verb, "FOLDER")) },
        Some(("completions", verb)) => Invocation::Completions { shell: word(verb, "SHELL") },
        Some((name, verb)) => asking(config, verbs::VERBS, name, verb),
        None => Invocation::Run { config },
    }
}

/// A verb that asks the running gateway, by its row of the table; else `run`, as the parser lets no other through.
fn asking(config: Option<PathBuf>, verbs: &[verbs::Verb], name: &str, matches: &ArgMatches) -> Invocation {
    let Some(verb) = verbs.iter().find(|verb| verb.name == name) else { return Invocation::Run { config } };
    if let Some((name, matches)) = matches.subcommand() {
        return asking(config, verb.verbs, name, matches);
    }
    let Some(operation) = verb.asks else { return Invocation::Run { config } };
    match operating::request(operation, matches) {
        Some(request) => Invocation::Ask { config, request },
        None => match collection::request(operation, name, matches) {
            Ok(request) => Invocation::Ask { config, request },
            Err(why) => Invocation::Usage(format!("error: {why}\n")),
        },
    }
}

fn user_command(action: &str, arguments: &ArgMatches) -> UserCommand {
    let is_removal = action == "rm";
    UserCommand {
        action: match action {
            "add" => UserAction::Add,
            "passwd" => UserAction::ChangePassword,
            _ => UserAction::Remove,
        },
        name: word(arguments, "NAME"),
        password_file: arguments.get_one::<PathBuf>("password-file").cloned(),
        password_stdin: !is_removal && arguments.get_flag("password-stdin"),
        iterations: if is_removal { None } else { arguments.get_one::<u32>("iterations").copied() },
    }
}

fn word(matches: &ArgMatches, name: &str) -> String {
    matches.get_one::<String>(name).cloned().unwrap_or_default()
}

fn completions(shell: &str) -> Vec<u8> {
    let shell = match shell {
        "zsh" => clap_complete::Shell::Zsh,
        "fish" => clap_complete::Shell::Fish,
        _ => clap_complete::Shell::Bash,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut verbs::command(), "gatewayd", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Invocation {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn verbs_and_options_are_understood() {
        let config = Some(PathBuf::from("f"));
        assert_eq!(parsed("gatewayd"), Invocation::Run { config: None });
        assert_eq!(parsed("gatewayd run"), Invocation::Run { config: None });
        assert_eq!(parsed("gatewayd --config f"), Invocation::Run { config: config.clone() });
        assert_eq!(parsed("gatewayd run --config f"), Invocation::Run { config: config.clone() });
        assert_eq!(
            parsed("gatewayd check-config --show-effective --config=f"),
            Invocation::CheckConfig { config, show_effective: true }
        );
        assert_eq!(
            parsed("gatewayd status --json --check"),
            Invocation::Status { config: None, json: true, check: true, watch: false }
        );
        let command = UserCommand {
            action: UserAction::Add,
            name: "ada".to_owned(),
            password_file: Some(PathBuf::from("p")),
            password_stdin: true,
            iterations: Some(20),
        };
        assert_eq!(
            parsed("gatewayd user add ada --password-file p --password-stdin --iterations 20"),
            Invocation::User { config: None, command }
        );
        let command = UserCommand {
            action: UserAction::Remove,
            name: "ada".to_owned(),
            password_file: None,
            password_stdin: false,
            iterations: None,
        };
        let request = Request {
            method: "GET",
            target: "/api/v1/queues/a%2Fb/messages?kind=session&limit=3".to_owned(),
            show: Show::Raw,
            watch: false,
        };
        assert_eq!(
            parsed("gatewayd queue peek a/b --kind session --limit 3 --json"),
            Invocation::Ask { config: None, request }
        );
        let request = Request {
            method: "DELETE",
            target: "/api/v1/clients/plc%207".to_owned(),
            show: Show::Count("ended", "ended # connections"),
            watch: false,
        };
        let arguments = ["gatewayd", "client", "kick", "plc 7"].map(OsString::from);
        assert_eq!(parse(arguments), Invocation::Ask { config: None, request });
        assert_eq!(parsed("gatewayd user rm ada"), Invocation::User { config: None, command });
        assert_eq!(parsed("gatewayd completions fish"), Invocation::Completions { shell: "fish".to_owned() });
    }

    #[test]
    fn what_is_not_understood_is_a_usage_error() {
        for line in [
            "gatewayd fly",
            "gatewayd run now",
            "gatewayd --confg f",
            "gatewayd user",
            "gatewayd user add",
            "gatewayd user rm ada --password-stdin",
            "gatewayd user add ada --iterations 0",
            "gatewayd completions tcsh",
            "gatewayd status --config",
            "gatewayd queue",
            "gatewayd queue peek",
            "gatewayd queue peek q --limit 0",
            "gatewayd queue purge q --kind collection",
            "gatewayd client kick",
            "gatewayd acl test",
            "gatewayd import",
            "gatewayd manual",
        ] {
            let Invocation::Usage(text) = parsed(line) else { panic!("{line} was understood") };
            let is_helpful = text.starts_with("error: ") || text.contains("Usage: gatewayd");
            assert!(is_helpful && text.contains("help"), "{line}: {text}");
        }
        let Invocation::Usage(text) = parsed("gatewayd check-confg") else { panic!() };
        assert!(text.contains("check-config"), "{text}");
    }

    #[test]
    fn help_and_version_are_no_errors() {
        assert_eq!(
            parsed("gatewayd --version"),
            Invocation::Help(format!("gatewayd {}\n", env!("CARGO_PKG_VERSION")))
        );
        let Invocation::Help(text) = parsed("gatewayd --help") else { panic!() };
        for verb in verbs::VERBS {
            assert!(text.contains(verb.name) && text.contains(verb.summary), "{text}");
        }
        assert!(text.ends_with("78 bad configuration\n"));
        assert!(matches!(parsed("gatewayd user add --help"), Invocation::Help(_)));
    }

    #[test]
    fn completions_know_every_verb() {
        for shell in verbs::SHELLS {
            let text = String::from_utf8(completions(shell)).unwrap();
            for verb in verbs::VERBS {
                assert!(text.contains(verb.name), "{shell} {}", verb.name);
            }
        }
    }
}
