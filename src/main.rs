//! The program: reads the command line and the environment, and ends with the documented exit status.

use std::env;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use gatewayd::cli::{self, Exit, Invocation, Io};
use gatewayd::config::{Config, Files, default_state_path};
use gatewayd::net::{self, logging};

/// Where the daemon of the system listens for the verbs.
const CONTROL_SOCKET: &str = "/run/gatewayd/control.sock";

fn main() -> ExitCode {
    let invocation = cli::parse(env::args_os());
    let is_root = rustix::process::geteuid().is_root();
    let files = Files { state_path: default_state_path(is_root, &|name| env::var_os(name)) };
    let mut ask = |prompt: &str| rpassword::prompt_password(prompt);
    let mut io = Io {
        out: &mut io::stdout().lock(),
        err: &mut io::stderr(),
        input: &mut io::stdin().lock(),
        ask: if io::stdin().is_terminal() { Some(&mut ask) } else { None },
        files: &files,
    };
    let exit = match &invocation {
        Invocation::Run { config } => return run(config.as_deref(), &mut io),
        Invocation::Status { config, json, check } => status(config.as_deref(), *json, *check, &mut io),
        _ => cli::run_local(&invocation, &mut io).map(|exit| exit.unwrap_or(Exit::Usage)),
    };
    // Whoever read the output has gone away: nothing is left to say to.
    exit.unwrap_or(Exit::Failed).into()
}

fn run(config: Option<&Path>, io: &mut Io<'_>) -> ExitCode {
    let loaded = match cli::load(config, io.files) {
        Ok(loaded) => loaded,
        Err(errors) => {
            for error in errors {
                drop(writeln!(io.err, "{error}"));
            }
            return Exit::BadConfiguration.into();
        }
    };
    // systemd says so when standard error is its journal.
    let under_journald = env::var_os("JOURNAL_STREAM").is_some();
    logging::start(loaded.config.log, under_journald);
    let acl = loaded.config.auth.acl_file.is_some().then_some(loaded.acl);
    match net::run(&loaded.config, loaded.users, acl) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io.err, "gatewayd: {error}"));
            ExitCode::from(error.exit_status())
        }
    }
}

fn status(config: Option<&Path>, json: bool, check: bool, io: &mut Io<'_>) -> io::Result<Exit> {
    // Not the password file: who may ask for the status need not be able to read it.
    let loaded = match Config::load(config, io.files) {
        Ok(loaded) => loaded,
        Err(errors) => {
            for error in errors {
                writeln!(io.err, "{error}")?;
            }
            return Ok(Exit::BadConfiguration);
        }
    };
    let own = loaded.control_socket();
    // A gateway that systemd runs is found by users whose own state lies elsewhere.
    let socket = if own.exists() { own } else { Path::new(CONTROL_SOCKET).to_owned() };
    let body = match net::client::get(&socket, "/api/v1/status") {
        Ok((200, body)) => body,
        Ok((status, body)) => {
            writeln!(io.err, "gatewayd answered {status}: {}", body.trim_end())?;
            return Ok(Exit::Failed);
        }
        Err(error) => {
            writeln!(io.err, "no gateway answers on {}: {error}; is it running?", socket.display())?;
            return Ok(Exit::Unreachable);
        }
    };
    let value: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    if json {
        io.out.write_all(body.as_bytes())?;
    } else {
        io.out.write_all(cli::render_status(&value).as_bytes())?;
    }
    let healthy = value.get("healthy").and_then(serde_json::Value::as_bool).unwrap_or(false);
    Ok(if check && !healthy { Exit::Failed } else { Exit::Ok })
}
