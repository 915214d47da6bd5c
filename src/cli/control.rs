//! Which gateway a verb asks, and what is said when none answers.

use std::io;
use std::path::{Path, PathBuf};

use crate::config::Config;

/// Where the gateway of the system listens for the verbs.
pub const SYSTEM_SOCKET: &str = "/run/gatewayd/control.sock";

/// The socket of the gateway of a configuration, and whether it is the system's in place of a gateway of one's own that
/// is not there. A configuration that was `named` means its own gateway and no other.
#[must_use]
pub fn control_socket(named: bool, own: PathBuf, system: &Path) -> (PathBuf, bool) {
    if named || own == system || own.exists() || !system.exists() {
        (own, false)
    } else {
        (system.to_owned(), true)
    }
}

/// Why nothing was answered, for whoever asked.
#[must_use]
pub fn no_answer(config: &Config, socket: &Path, error: &io::Error) -> String {
    // A gateway that was started with this folder has left its lock there.
    let moved = if config.storage.path.join("gateway.lock").exists() {
        ""
    } else {
        " If storage.path was changed since it started, it goes on in the old folder until it is restarted, and \
         SIGHUP has it read the rest anew."
    };
    format!("no gateway answers on {}: {error}; is it running?{moved}", socket.display())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_named_configuration_never_leads_to_another_gateway() {
        let folder = std::env::temp_dir().join(format!("gatewayd-control-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (own, system) = (folder.join("own.sock"), folder.join("system.sock"));
        let asked = |named| control_socket(named, own.clone(), &system);
        assert_eq!(asked(false), (own.clone(), false), "there is no other");
        fs::write(&system, "").unwrap();
        assert_eq!(asked(true), (own.clone(), false), "its own is stopped, and the system's runs");
        assert_eq!(asked(false), (system.clone(), true));
        fs::write(&own, "").unwrap();
        assert_eq!(asked(false), (own.clone(), false));
        assert_eq!(control_socket(false, system.clone(), &system), (system.clone(), false));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_state_folder_that_was_never_used_is_told() {
        let mut config = Config::default();
        config.storage.path = PathBuf::from("/nonexistent/state");
        let error = io::Error::from(io::ErrorKind::NotFound);
        let told = no_answer(&config, Path::new("/nonexistent/state/control.sock"), &error);
        assert!(told.contains("is it running?") && told.contains("storage.path was changed"), "{told}");
    }
}
