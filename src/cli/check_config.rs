//! `check-config`, and what `run` shares with it: the configuration with the password and ACL files that it names.

use std::io;
use std::path::{Path, PathBuf};

use super::{Exit, Io};
use crate::auth::{Acl, LineError, Users};
use crate::config::{Config, ConfigSource, files};

/// A configuration and the files that it names, all understood.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// The files that made it up, in the order in which they apply.
    pub files: Vec<PathBuf>,
    /// `None` without a password file.
    pub users: Option<Users>,
    pub acl: Acl,
}

/// Reads the configuration at `path`, else the usual one, and the files that it names.
///
/// # Errors
/// Everything that is wrong, a line each, in the form `FILE:LINE:COLUMN: WHAT`.
pub fn load(path: Option<&Path>, source: &dyn ConfigSource) -> Result<Loaded, Vec<String>> {
    let config = Config::load(path, source)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let mut errors = Vec::new();
    let password_file = config.auth.password_file.as_deref();
    let users = password_file.map(|file| read(file, "auth.password_file", Users::parse, source));
    let acl_file = config.auth.acl_file.as_deref();
    let acl = acl_file.map(|file| read(file, "auth.acl_file", Acl::parse, source));
    let users = users.transpose().map_err(|wrong| errors.extend(wrong)).ok();
    let acl = acl.unwrap_or_else(|| Ok(Acl::allow_all())).map_err(|wrong| errors.extend(wrong)).ok();
    match (users, acl) {
        (Some(users), Some(acl)) => Ok(Loaded { config, files: files(path, source), users, acl }),
        _ => Err(errors),
    }
}

/// Says what is wrong with the configuration and the files that it names, or that nothing is. With
/// `show_effective` a sound configuration is printed instead.
///
/// # Errors
/// Writing failed.
pub fn check_config(path: Option<&Path>, show_effective: bool, io: &mut Io<'_>) -> io::Result<Exit> {
    let loaded = match load(path, io.files) {
        Ok(loaded) => loaded,
        Err(errors) => {
            for error in &errors {
                writeln!(io.err, "{error}")?;
            }
            let plural = if errors.len() == 1 { "error" } else { "errors" };
            writeln!(io.err, "{} {plural}", errors.len())?;
            return Ok(Exit::BadConfiguration);
        }
    };
    if show_effective {
        io.out.write_all(loaded.config.show_effective().as_bytes())?;
        return Ok(Exit::Ok);
    }
    if loaded.files.is_empty() {
        writeln!(io.out, "ok: no configuration file, the defaults hold")?;
        return Ok(Exit::Ok);
    }
    let names: Vec<String> = loaded.files.iter().map(|file| file.display().to_string()).collect();
    writeln!(io.out, "ok: {}", names.join(", "))?;
    Ok(Exit::Ok)
}

fn read<T>(
    file: &Path,
    key: &str,
    parse: impl Fn(&[u8]) -> Result<T, Vec<LineError>>,
    source: &dyn ConfigSource,
) -> Result<T, Vec<String>> {
    let bytes = source
        .read(file)
        .map_err(|error| vec![format!("{}: {key}: cannot be read: {error}", file.display())])?;
    parse(&bytes).map_err(|errors| errors.iter().map(|error| format!("{}:{error}", file.display())).collect())
}

#[cfg(test)]
mod tests {
    use super::super::user::tests::Scratch;
    use super::*;

    #[test]
    fn a_sound_configuration_is_ok() {
        let scratch = Scratch::new("check-sound");
        scratch.write("gateway.toml", "[auth]\nacl_file = 'acl'\n");
        scratch.write("gateway.d/1.toml", "[limits]\ninflight_max = 7\n");
        scratch.write("acl", "topic read #\n");
        let config = scratch.path("gateway.toml");
        let (exit, out, err) = scratch.run(|io| check_config(Some(&config), false, io));
        assert_eq!((exit, err.as_str()), (Exit::Ok, ""));
        let drop_in = scratch.path("gateway.d/1.toml");
        assert_eq!(out, format!("ok: {}, {}\n", config.display(), drop_in.display()));
        let (exit, out, _) = scratch.run(|io| check_config(Some(&config), true, io));
        assert_eq!(exit, Exit::Ok);
        assert!(out.contains("\ninflight_max = 7\n"), "{out}");
    }

    #[test]
    fn errors_of_all_files_are_listed() {
        let scratch = Scratch::new("check-errors");
        let config = scratch.path("gateway.toml");
        scratch.write("gateway.toml", "[auth]\npassword_file = 'passwd'\nacl_file = 'missing'\n");
        scratch.write("passwd", "ada\n");
        let (exit, out, err) = scratch.run(|io| check_config(Some(&config), true, io));
        assert_eq!((exit, out.as_str()), (Exit::BadConfiguration, ""));
        let at = |name| scratch.path(name).display().to_string();
        let expected = format!(
            "{}:1:1: not a line of the form NAME:HASH\n{}: auth.acl_file: cannot be read: No such file or directory \
             (os error 2)\n2 errors\n",
            at("passwd"),
            at("missing")
        );
        assert_eq!(err, expected);
        scratch.write("gateway.toml", "[limit]\n");
        let (exit, _, err) = scratch.run(|io| check_config(Some(&config), false, io));
        assert_eq!(exit, Exit::BadConfiguration);
        assert_eq!(
            err,
            format!("{}:1:2: limit: unknown table; did you mean [limits]?\n1 error\n", at("gateway.toml"))
        );
    }
}
