//! The program: reads the command line and the environment, and ends with the documented exit status.

use std::env;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use gatewayd::cli::{self, Exit, Invocation, Io, Request, Shower, StorageCommand};
use gatewayd::config::{Config, Files, default_state_path};
use gatewayd::net::{self, logging};
use gatewayd::settings::SettingsSource;

/// Between two screens of `status --watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

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
        Invocation::Run { config } => return run(config.as_deref(), &files, &mut io),
        Invocation::Status { config, json, watch: true, .. } => {
            watch(&mut io, *json, |io| status(config.as_deref(), *json, false, io))
        }
        Invocation::Status { config, json, check, watch: false } => {
            status(config.as_deref(), *json, *check, &mut io)
        }
        Invocation::Doctor { config } => doctor(config.as_deref(), &mut io),
        Invocation::Reload { config } => reload(config.as_deref(), &mut io),
        Invocation::Ask { config, request } if request.watch => {
            watch(&mut io, request.show == cli::Show::Raw, |io| ask_gateway(config.as_deref(), request, io))
        }
        Invocation::Backup { config, file } => backup(config.as_deref(), file, &mut io),
        Invocation::Storage { config, command } => storage(config.as_deref(), *command, &files, &mut io),
        Invocation::Ask { config, request } => ask_gateway(config.as_deref(), request, &mut io),
        _ => cli::run_local(&invocation, &mut io).map(|exit| exit.unwrap_or(Exit::Usage)),
    };
    // Whoever read the output has gone away: nothing is left to say to.
    exit.unwrap_or(Exit::Failed).into()
}

fn run(config: Option<&Path>, files: &Files, io: &mut Io<'_>) -> ExitCode {
    let source = SettingsSource { path: config.map(Path::to_owned), files: files.clone() };
    let settings = match source.load() {
        Ok(settings) => settings,
        Err(errors) => {
            for error in errors {
                drop(writeln!(io.err, "{error}"));
            }
            return Exit::BadConfiguration.into();
        }
    };
    let journal_stream = env::var_os("JOURNAL_STREAM").and_then(|stream| stream.into_string().ok());
    logging::start(settings.config.log, journal_stream.as_deref());
    match net::run(source, settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io.err, "gatewayd: {error}"));
            ExitCode::from(error.exit_status())
        }
    }
}

fn ask_gateway(config: Option<&Path>, request: &Request, io: &mut Io<'_>) -> io::Result<Exit> {
    let Some(loaded) = load(config, io)? else { return Ok(Exit::BadConfiguration) };
    let socket = control_socket(config, &loaded, io)?;
    let terminals = (io::stdout().is_terminal(), io::stderr().is_terminal());
    let mut shower = Shower::new(request.show, io.out, io.err, terminals);
    let mut began = false;
    let mut piece = |bytes: &[u8]| {
        began = true;
        shower.piece(bytes)
    };
    match net::client::stream(&socket, request.method, &request.target, &mut piece) {
        Ok((200, _)) => {
            shower.finish()?;
            Ok(Exit::Ok)
        }
        Ok((_, body)) => {
            let value: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
            let why =
                value.get("error").and_then(serde_json::Value::as_str).unwrap_or_else(|| body.trim_end());
            writeln!(io.err, "{why}")?;
            Ok(Exit::Failed)
        }
        Err(error) if began => {
            writeln!(io.err, "the answer broke off: {error}")?;
            Ok(Exit::Failed)
        }
        Err(error) => no_answer(&loaded, &socket, &error, io),
    }
}

fn backup(config: Option<&Path>, file: &str, io: &mut Io<'_>) -> io::Result<Exit> {
    let Some(loaded) = load(config, io)? else { return Ok(Exit::BadConfiguration) };
    let socket = control_socket(config, &loaded, io)?;
    let mut online = |piece: &mut dyn FnMut(&[u8]) -> io::Result<()>| {
        net::client::stream(&socket, "GET", "/api/v1/backup", piece)
    };
    cli::backup(&loaded, file, &mut online, io)
}

fn storage(
    config: Option<&Path>,
    command: StorageCommand,
    files: &Files,
    io: &mut Io<'_>,
) -> io::Result<Exit> {
    let Some(loaded) = load(config, io)? else { return Ok(Exit::BadConfiguration) };
    match command {
        StorageCommand::Verify => {
            match net::client::read(&control_socket(config, &loaded, io)?, "/api/v1/backup") {
                Ok((200, body)) => cli::verify(&loaded, Some(Box::new(body)), io),
                Ok((status, mut body)) => {
                    let mut text = String::new();
                    body.read_to_string(&mut text)?;
                    writeln!(io.err, "gatewayd answered {status}: {}", text.trim_end())?;
                    Ok(Exit::Failed)
                }
                Err(_) => cli::verify(&loaded, None, io),
            }
        }
        StorageCommand::Compact => cli::compact(&loaded, io),
        StorageCommand::Repair => repair(config, files, io),
    }
}

fn repair(config: Option<&Path>, files: &Files, io: &mut Io<'_>) -> io::Result<Exit> {
    let source = SettingsSource { path: config.map(Path::to_owned), files: files.clone() };
    let settings = match source.load() {
        Ok(settings) => settings,
        Err(errors) => {
            for error in errors {
                writeln!(io.err, "{error}")?;
            }
            return Ok(Exit::BadConfiguration);
        }
    };
    if let Some(exit) = cli::refuse_repair(&settings.config, io)? {
        return Ok(exit);
    }
    let repaired = net::repair(&settings);
    cli::own_state(&settings.config)?;
    match repaired {
        Ok(damage) if damage.is_empty() => {
            writeln!(io.out, "nothing had to be set aside")?;
            Ok(Exit::Ok)
        }
        Ok(damage) => {
            for what in damage {
                writeln!(io.out, "{what}")?;
            }
            writeln!(
                io.out,
                "repaired: what is whole was kept, damaged files are in the state folder as *.damaged-N"
            )?;
            Ok(Exit::Ok)
        }
        Err(error) => {
            writeln!(io.err, "{error}")?;
            Ok(if error.exit_status() == 78 { Exit::BadConfiguration } else { Exit::Failed })
        }
    }
}

fn reload(config: Option<&Path>, io: &mut Io<'_>) -> io::Result<Exit> {
    let Some(loaded) = load(config, io)? else {
        writeln!(io.err, "nothing has changed")?;
        return Ok(Exit::BadConfiguration);
    };
    let socket = control_socket(config, &loaded, io)?;
    let mut body = Vec::new();
    let mut piece = |bytes: &[u8]| {
        body.extend_from_slice(bytes);
        Ok(())
    };
    match net::client::stream(&socket, "POST", "/api/v1/reload", &mut piece) {
        Ok((200, _)) => {
            io.out.write_all(cli::render_reload(&body).as_bytes())?;
            Ok(Exit::Ok)
        }
        Ok((status, body)) => {
            let value: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
            let errors = value.get("errors").and_then(serde_json::Value::as_array);
            let lines = errors.into_iter().flatten().filter_map(serde_json::Value::as_str);
            for line in lines {
                writeln!(io.err, "{line}")?;
            }
            if status == 422 {
                writeln!(io.err, "nothing has changed")?;
                return Ok(Exit::BadConfiguration);
            }
            writeln!(io.err, "gatewayd answered {status}: {}", body.trim_end())?;
            Ok(Exit::Failed)
        }
        Err(error) => no_answer(&loaded, &socket, &error, io),
    }
}

/// The configuration; `None` when it is wrong, which was said. The password file is not read: who may ask the gateway
/// need not be able to read it.
fn load(config: Option<&Path>, io: &mut Io<'_>) -> io::Result<Option<Config>> {
    match Config::load(config, io.files) {
        Ok(loaded) => Ok(Some(loaded)),
        Err(errors) => {
            for error in errors {
                writeln!(io.err, "{error}")?;
            }
            Ok(None)
        }
    }
}

fn no_answer(config: &Config, socket: &Path, error: &io::Error, io: &mut Io<'_>) -> io::Result<Exit> {
    writeln!(io.err, "{}", cli::no_answer(config, socket, error))?;
    Ok(Exit::Unreachable)
}

/// The gateway that a verb asks. One that systemd runs is found by users whose own state lies elsewhere, who are told so;
/// not by a configuration that was named.
fn control_socket(named: Option<&Path>, config: &Config, io: &mut Io<'_>) -> io::Result<PathBuf> {
    let own = config.control_socket();
    let (socket, is_fallback) = cli::control_socket(named.is_some(), own, Path::new(cli::SYSTEM_SOCKET));
    if is_fallback {
        writeln!(io.err, "asking the system's gateway, on {}", socket.display())?;
    }
    Ok(socket)
}

/// The configuration is looked at here, the rest of it by the gateway that runs.
fn doctor(config: Option<&Path>, io: &mut Io<'_>) -> io::Result<Exit> {
    let Some(loaded) = load(config, io)? else { return Ok(Exit::BadConfiguration) };
    let socket = control_socket(config, &loaded, io)?;
    let ask = |path: &str| match net::client::get(&socket, path) {
        Ok((200, body)) => Ok(serde_json::from_str(&body).unwrap_or_default()),
        Ok((status, body)) => Err(format!("it answered {status}: {}", body.trim_end())),
        Err(error) => Err(format!("none answers on {}: {error}; is it running?", socket.display())),
    };
    cli::doctor(&loaded, net::Clock::start().now(), &ask, io)
}

/// Shows something again and again, until it is interrupted or nobody reads.
fn watch(io: &mut Io<'_>, json: bool, show: impl Fn(&mut Io<'_>) -> io::Result<Exit>) -> io::Result<Exit> {
    let clears = io::stdout().is_terminal() && !json;
    loop {
        if clears {
            io.out.write_all(b"\x1b[H\x1b[2J")?;
        }
        if show(io)? == Exit::BadConfiguration {
            return Ok(Exit::BadConfiguration);
        }
        if !clears && !json {
            writeln!(io.out)?;
        }
        io.out.flush()?;
        net::client::pause(WATCH_INTERVAL);
    }
}

fn status(config: Option<&Path>, json: bool, check: bool, io: &mut Io<'_>) -> io::Result<Exit> {
    let Some(loaded) = load(config, io)? else { return Ok(Exit::BadConfiguration) };
    let socket = control_socket(config, &loaded, io)?;
    let body = match net::client::get(&socket, "/api/v1/status") {
        Ok((200, body)) => body,
        Ok((status, body)) => {
            writeln!(io.err, "gatewayd answered {status}: {}", body.trim_end())?;
            return Ok(Exit::Failed);
        }
        Err(error) => return no_answer(&loaded, &socket, &error, io),
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
