//! Editing a password file: comments and order stay, one line changes, and the file is replaced as a whole or not
//! at all. Works on files that [`super::Users`] refuses too, so that a bad line can be repaired.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use super::password_hash::PasswordHash;

/// The text of a password file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PasswordFile {
    lines: Vec<String>,
}

impl PasswordFile {
    /// Takes a file's text apart.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { lines: text.lines().map(str::to_owned).collect() }
    }

    /// Whether there is a line for `name`.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.lines.iter().any(|line| is_line_of(line, name))
    }

    /// Gives `name` a new hash: on its line, else on a new one at the end.
    pub fn set(&mut self, name: &str, hash: &PasswordHash) {
        let line = format!("{name}:{hash}");
        match self.lines.iter_mut().find(|line| is_line_of(line, name)) {
            Some(old) => *old = line,
            None => self.lines.push(line),
        }
    }

    /// Removes every line for `name`; false when there was none.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.lines.len();
        self.lines.retain(|line| !is_line_of(line, name));
        self.lines.len() < before
    }

    /// The text of the file.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }
}

/// Whether `name` can stand in front of the colon of a line.
///
/// # Errors
/// Why not.
pub fn check_user_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("a user name cannot be empty"),
        _ if name.contains(':') => Err("a user name cannot hold a colon"),
        _ if name.contains(char::is_control) => Err("a user name cannot hold a control character"),
        _ if name.trim() != name => Err("a user name cannot start or end with a space"),
        _ if name.starts_with('#') => Err("a user name cannot start with #, which starts a comment"),
        _ if name.len() > 65_535 => Err("a user name has at most 65535 bytes"),
        _ => Ok(()),
    }
}

/// Replaces the file at `path` by `text` so that a reader, and a power cut, sees the old file or the new one. A new
/// file has mode 0600 and, made by root, the `owner` (user and group) if given; an old one keeps its owner and loses what others may
/// do. The temporary file beside it, `NAME.new`, keeps a second editor out.
///
/// # Errors
/// The system's; `AlreadyExists` names the temporary file.
pub fn replace_private(path: &Path, text: &str, owner: Option<(u32, u32)>) -> io::Result<()> {
    // A link stays a link: what it points to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = match fs::metadata(&path) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let temporary = PathBuf::from(format!("{}.new", path.display()));
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).map_err(|error| {
            io::Error::new(error.kind(), format!("create {}: {error}", temporary.display()))
        })?;
    let written = (|| {
        let new = file.metadata()?;
        if let Some(old) = &old {
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o640 | 0o600))?;
        } else if let Some((user, group)) = owner.filter(|_| new.uid() == 0) {
            fchown(&file, Some(user), Some(group))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    })();
    if let Err(error) = written {
        // The error above is the one to tell; what is left behind is named by the next attempt.
        drop(fs::remove_file(&temporary));
        return Err(error);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

fn is_line_of(line: &str, name: &str) -> bool {
    !line.starts_with('#') && line.split_once(':').is_some_and(|(user, _)| user.trim() == name)
}

#[cfg(test)]
mod tests {
    use super::super::{Users, hash_password};
    use super::*;

    fn hash(password: &str) -> PasswordHash {
        hash_password(password.as_bytes(), [1; 12], 1)
    }

    #[test]
    fn an_edit_changes_one_line() {
        let (a, b, c) = (hash("a"), hash("b"), hash("c"));
        let mut file = PasswordFile::new(&format!("# hall\nada:{a}\n\n# ada:old\nbob:{b}\n"));
        file.set("ada", &c);
        file.set("cleo", &a);
        assert_eq!(file.text(), format!("# hall\nada:{c}\n\n# ada:old\nbob:{b}\ncleo:{a}\n"));
        assert!(file.remove("bob") && !file.remove("bob") && !file.contains("bob"));
        assert_eq!(file.text(), format!("# hall\nada:{c}\n\n# ada:old\ncleo:{a}\n"));
        assert_eq!(Users::parse(file.text().as_bytes()).unwrap().len(), 2);
    }

    #[test]
    fn names_that_a_line_cannot_hold_are_refused() {
        for name in ["", "a:b", "a\nb", " a", "a ", "#a", "\u{7f}"] {
            assert!(check_user_name(name).is_err(), "{name:?}");
        }
        for name in ["ada", "a b", "gerät-7", "a#b", "a/b"] {
            assert!(check_user_name(name).is_ok(), "{name:?}");
            let text = format!("{name}:{}\n", hash("x"));
            assert!(Users::parse(text.as_bytes()).unwrap().entry(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_file_is_private_and_replaced_whole() {
        let folder = std::env::temp_dir().join(format!("gatewayd-passwd-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("passwd");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        replace_private(&path, "one\n", None).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("one\n", 0o600));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
        let link = folder.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace_private(&link, "two\n", None).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("two\n", 0o640));
        fs::write(folder.join("passwd.new"), "").unwrap();
        let error = replace_private(&path, "three\n", None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}
