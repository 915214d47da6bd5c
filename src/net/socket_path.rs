//! Sockets in the file system, mode 0660. What a killed gateway left behind is replaced; a file that is no socket, and a
//! socket that somebody else has put there since, stays as it is.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// A socket and the file that leads to it.
#[derive(Debug)]
pub(super) struct SocketPath {
    pub listener: UnixListener,
    path: PathBuf,
    /// Device and number of the file that was made.
    file: (u64, u64),
    removed: Cell<bool>,
}

impl SocketPath {
    /// Binds a path at which another process may listen.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when one does, [`io::ErrorKind::AlreadyExists`] when a file is there that is no socket.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if is_socket(path)? && is_left_behind(path) {
            fs::remove_file(path)?;
        }
        Self::make(path)
    }

    /// Whether [`Self::bind`] will bind, as far as that can be told beforehand.
    ///
    /// # Errors
    /// Why it will not.
    pub fn check(path: &Path) -> io::Result<()> {
        if is_socket(path)? && !is_left_behind(path) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => fs::metadata(folder).map(drop),
            None => Ok(()),
        }
    }

    /// Binds a path at which no other process listens: the caller knows that.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when a file is there that is no socket.
    pub fn bind_own(path: &Path) -> io::Result<Self> {
        if is_socket(path)? {
            fs::remove_file(path)?;
        }
        Self::make(path)
    }

    fn make(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
        let made = fs::symlink_metadata(path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file: (made.dev(), made.ino()),
            removed: Cell::new(false),
        })
    }

    /// Removes the file, if it is still the one that was made.
    pub fn remove(&self) {
        if self.removed.replace(true) {
            return;
        }
        let is_own =
            fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.file);
        if is_own {
            // Gone or not, the next start makes its own.
            drop(fs::remove_file(&self.path));
        }
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Whether a socket is there; false when nothing is.
fn is_socket(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_left_behind(path: &Path) -> bool {
    let connected = std::os::unix::net::UnixStream::connect(path);
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_socket_of_nobody_is_replaced() {
        let folder = std::env::temp_dir().join(format!("gatewayd-sockets-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        let kind = |path: &Path| SocketPath::bind(path).map(drop).map_err(|error| error.kind());
        // A file, and a link to one.
        fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(kind(&at(name)), Err(io::ErrorKind::AlreadyExists), "{name}");
            assert!(SocketPath::bind_own(&at(name)).is_err() && SocketPath::check(&at(name)).is_err());
        }
        assert_eq!(fs::read_to_string(at("link")).unwrap(), "text");
        // One that is served, and one that its process left behind.
        let served = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert_eq!(kind(&at("socket")), Err(io::ErrorKind::AddrInUse));
        assert_eq!(
            SocketPath::check(&at("socket")).map_err(|error| error.kind()),
            Err(io::ErrorKind::AddrInUse)
        );
        drop(served);
        let own = SocketPath::bind(&at("socket")).unwrap();
        assert!(at("socket").exists());
        // Somebody else's stands there by now.
        fs::remove_file(at("socket")).unwrap();
        fs::write(at("socket"), "another's").unwrap();
        drop(own);
        assert_eq!(fs::read_to_string(at("socket")).unwrap(), "another's");
        fs::remove_file(at("socket")).unwrap();
        drop(SocketPath::bind(&at("socket")).unwrap());
        assert!(!at("socket").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
