//! `check-config`: what is wrong with the configuration and the files that it names.

use std::io;
use std::path::Path;

use super::{Exit, Io};
use crate::settings::Settings;

/// Says what is wrong with the configuration and the files that it names, or that nothing is. With
/// `show_effective` a sound configuration is printed instead.
///
/// # Errors
/// Writing failed.
pub fn check_config(path: Option<&Path>, show_effective: bool, io: &mut Io<'_>) -> io::Result<Exit> {
    let loaded = match Settings::load(path, io.files) {
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
            "{}:1:1: not a line of the form NAME:HASH\n{}:3:1: auth.acl_file: {} cannot be read: No such file or \
             directory (os error 2)\n2 errors\n",
            at("passwd"),
            at("gateway.toml"),
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
