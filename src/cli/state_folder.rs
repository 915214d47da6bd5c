//! The state folder of a gateway that is stopped: its lock, and whose files they are.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::sync::Arc;

use super::{Exit, Io};
use crate::config::Config;
use crate::store::{Disk, FileDisk, FolderError};

/// Files in the folder that hold nothing of the gateway's state.
const WITHOUT_STATE: [&str; 3] = ["gateway.lock", "control.sock", "lost+found"];

/// The names in a folder that hold state; `None` when there is no folder.
pub(super) fn state_in(path: &Path) -> io::Result<Option<Vec<String>>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !WITHOUT_STATE.contains(&name.as_str()));
    Ok(Some(names))
}

/// Takes the folder of a gateway that is stopped and has state. Else says why not, and answers the exit status.
pub(super) fn take(config: &Config, io: &mut Io<'_>) -> io::Result<Result<Arc<dyn Disk>, Exit>> {
    let path = &config.storage.path;
    match state_in(path) {
        Ok(Some(names)) if !names.is_empty() => {}
        Ok(_) => {
            writeln!(io.err, "{} holds no state of a gateway", path.display())?;
            return Ok(Err(Exit::Failed));
        }
        Err(error) => {
            writeln!(io.err, "state folder {}: {error}", path.display())?;
            return Ok(Err(Exit::Failed));
        }
    }
    match FileDisk::new(path) {
        Ok(disk) => Ok(Ok(Arc::new(disk))),
        Err(error) => Ok(Err(refused(&error, io)?)),
    }
}

/// Says why a folder cannot be taken.
pub(super) fn refused(error: &FolderError, io: &mut Io<'_>) -> io::Result<Exit> {
    let advice = match error {
        FolderError::InUse { .. } => "; stop the gateway first",
        FolderError::Io { .. } => "",
    };
    writeln!(io.err, "{error}{advice}")?;
    Ok(Exit::Failed)
}

/// Gives a folder and its files to whom `like` belongs: root works here, the gateway runs as another user.
pub(super) fn own_like(folder: &Path, like: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owner = fs::metadata(like)?;
    let (user, group) = (Some(owner.uid()), Some(owner.gid()));
    for entry in fs::read_dir(folder)? {
        std::os::unix::fs::lchown(entry?.path(), user, group)?;
    }
    chown(folder, user, group)
}
