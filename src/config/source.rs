//! Where configuration text comes from: a trait, so that the library reads no disk of its own accord, the
//! ordinary implementation over files, and the place of a byte in a text.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::error::Place;
use super::model::STATE_PATH;

/// Largest configuration file, password file or ACL file that is read.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// What [`super::Config::load`] reads through.
pub trait ConfigSource {
    /// The bytes of a file.
    ///
    /// # Errors
    /// The system's; `NotFound` for a file that does not exist.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The paths of the entries of a folder, in any order.
    ///
    /// # Errors
    /// The system's; `NotFound` for a folder that does not exist.
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;

    /// The permission bits of a file.
    ///
    /// # Errors
    /// The system's.
    fn mode(&self, _path: &Path) -> io::Result<u32> {
        Ok(0o600)
    }

    /// The state folder when no file sets `storage.path`; see [`default_state_path`].
    fn state_path(&self) -> PathBuf {
        PathBuf::from(STATE_PATH)
    }
}

/// The file system.
#[derive(Clone, Debug)]
pub struct Files {
    /// The state folder when no file sets `storage.path`.
    pub state_path: PathBuf,
}

impl ConfigSource for Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 16 MiB"));
        }
        Ok(bytes)
    }

    fn mode(&self, path: &Path) -> io::Result<u32> {
        Ok(fs::metadata(path)?.permissions().mode() & 0o7777)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
    }

    fn state_path(&self) -> PathBuf {
        self.state_path.clone()
    }
}

/// The state folder when no file sets `storage.path`: systemd's `$STATE_DIRECTORY`, else `/var/lib/gatewayd`
/// for root, else `$XDG_STATE_HOME/gatewayd`, else `$HOME/.local/state/gatewayd`. `variable` reads the
/// environment. Relative values are ignored, as the XDG specification demands.
#[must_use]
pub fn default_state_path(is_root: bool, variable: &dyn Fn(&str) -> Option<OsString>) -> PathBuf {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let from_systemd = variable("STATE_DIRECTORY")
        .and_then(|paths| std::env::split_paths(&paths).next())
        .filter(|path| path.is_absolute());
    if let Some(path) = from_systemd {
        return path;
    }
    if !is_root {
        if let Some(path) = absolute("XDG_STATE_HOME") {
            return path.join("gatewayd");
        }
        if let Some(path) = absolute("HOME") {
            return path.join(".local/state/gatewayd");
        }
    }
    PathBuf::from(STATE_PATH)
}

/// A text and the file that it came from.
pub(super) struct SourceFile {
    pub path: PathBuf,
    pub text: String,
}

impl SourceFile {
    /// The place of the byte at `offset`.
    pub fn place(&self, offset: usize) -> Place {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Place { file: self.path.clone(), line, column }
    }

    /// What is written at `span`: its first line, cut short.
    pub fn snippet(&self, span: Range<usize>) -> String {
        let line = self.text.get(span).unwrap_or("").lines().next().unwrap_or("");
        if line.chars().count() <= 48 {
            return line.to_owned();
        }
        line.chars().take(45).chain("...".chars()).collect()
    }

    /// The key at `span` with the table that it stands in, which may be a table itself.
    pub fn key_at(&self, span: Range<usize>) -> String {
        let before = self.text.get(..span.start).unwrap_or("");
        let mut lines = before.rsplit('\n').map(str::trim_start);
        let is_header = lines.next().is_some_and(|line| line.starts_with('['));
        let table = lines.find_map(|line| line.strip_prefix('[')?.split(']').next()).map(str::trim);
        let key = self.snippet(span);
        match table {
            Some(table) if !is_header => format!("{table}.{key}"),
            _ => key,
        }
    }

    /// `path` seen from the folder of this file.
    pub fn resolve(&self, path: &str) -> PathBuf {
        self.path.parent().unwrap_or_else(|| Path::new("")).join(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_folder_follows_who_starts_it() {
        let path = |is_root, variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            };
            default_state_path(is_root, &variable).display().to_string()
        };
        let home = ("HOME", "/home/ada");
        assert_eq!(path(true, &[home]), "/var/lib/gatewayd");
        assert_eq!(path(false, &[]), "/var/lib/gatewayd");
        assert_eq!(path(false, &[home]), "/home/ada/.local/state/gatewayd");
        assert_eq!(path(false, &[home, ("XDG_STATE_HOME", "/s")]), "/s/gatewayd");
        assert_eq!(path(false, &[home, ("XDG_STATE_HOME", "s")]), "/home/ada/.local/state/gatewayd");
        assert_eq!(path(false, &[home, ("STATE_DIRECTORY", "/srv/gw:/other")]), "/srv/gw");
    }

    #[test]
    fn a_place_counts_characters_from_one() {
        let file = SourceFile { path: PathBuf::from("f"), text: "a\nüx = 1\n".to_owned() };
        let place = |offset| (file.place(offset).line, file.place(offset).column);
        assert_eq!(place(0), (1, 1));
        assert_eq!(place(2), (2, 1));
        assert_eq!(place(4), (2, 2));
        assert_eq!(place(10_000), (3, 1));
    }
}
