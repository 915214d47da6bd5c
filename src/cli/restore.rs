//! `restore`: makes the state folder of a backup, for a gateway that is stopped.
//!
//! The files are made in a new folder beside the state folder, `NAME.restoring-N`; the next restore removes such a one that
//! a kill left. Only when they are whole and on flash does one rename put it in place; where there was state already, the
//! two folders change places, and the old one has the name `NAME.before-restore-N` from that moment on. A power cut leaves
//! the old state or the new one.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::backup::{sync_parent, tell_damage};
use super::state_folder::{own_like, refused, state_in};
use super::{Exit, Io};
use crate::backup::restoring::{self, Bounds, Contents, RestoreError};
use crate::config::Config;
use crate::settings::store_options;
use crate::store::{Disk, FileDisk, StoreError};
use crate::time::calendar;

/// `restore`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restore {
    pub config: Option<PathBuf>,
    /// `-` is standard input.
    pub file: String,
    pub force: bool,
    pub check: bool,
}

/// Folders beside the state folder that a name is looked for among.
const ASIDE_MAX: u32 = 10_000;

/// Restores a backup, or only checks it.
///
/// # Errors
/// Writing to the terminal failed.
pub fn restore(command: &Restore, io: &mut Io<'_>) -> io::Result<Exit> {
    let config = match Config::load(command.config.as_deref(), io.files) {
        Ok(config) => config,
        Err(errors) => {
            for error in errors {
                writeln!(io.err, "{error}")?;
            }
            return Ok(Exit::BadConfiguration);
        }
    };
    let file = &command.file;
    if command.check || file != "-" {
        // Before anything is touched.
        let checked = match open(file, io.input) {
            Ok(source) => restoring::check(source),
            Err(error) => Err(StoreError::from(error).into()),
        };
        match checked {
            Ok(contents) if command.check => {
                writeln!(io.out, "{file}: {}", told(&contents))?;
                tell_damage(&contents, io.err)?;
                return Ok(Exit::Ok);
            }
            Ok(_) => {}
            Err(error) => return failed(file, &error, io),
        }
    }
    let path = &config.storage.path;
    let existing = match state_in(path) {
        Ok(existing) => existing,
        Err(error) => {
            writeln!(io.err, "state folder {}: {error}", path.display())?;
            return Ok(Exit::Failed);
        }
    };
    // Its lock is kept until the end: no gateway starts meanwhile.
    let old = match existing.as_ref().map(|_| FileDisk::new(path)).transpose() {
        Ok(old) => old,
        Err(error) => return refused(&error, io),
    };
    let has_state = existing.is_some_and(|names| !names.is_empty());
    if has_state && !command.force {
        let path = path.display();
        writeln!(
            io.err,
            "{path} is not empty: --force sets it aside under another name, and deletes nothing"
        )?;
        return Ok(Exit::Failed);
    }
    match put_in_place(command, &config, (old.is_some(), has_state), io.input) {
        Ok((contents, aside)) => {
            writeln!(io.out, "{}: restored, {}", path.display(), told(&contents))?;
            if let Some(aside) = aside {
                writeln!(io.out, "what was there before is in {}", aside.display())?;
            }
            tell_damage(&contents, io.err)?;
            Ok(Exit::Ok)
        }
        Err(error) => failed(file, &error, io),
    }
}

fn open<'i>(file: &str, input: &'i mut dyn Read) -> io::Result<Box<dyn Read + 'i>> {
    if file == "-" {
        return Ok(Box::new(BufReader::new(input)));
    }
    Ok(Box::new(BufReader::new(File::open(file)?)))
}

fn told(contents: &Contents) -> String {
    let Contents { ending, rows, parts, series } = contents;
    let at = calendar::show(ending.taken_at_ms);
    format!("as of {at}: {rows} rows, {parts} parts of the backlog, {series} entries of collections")
}

fn failed(file: &str, error: &RestoreError, io: &mut Io<'_>) -> io::Result<Exit> {
    let advice = match error {
        RestoreError::Store(StoreError::Full(_)) => {
            ": free some room, or raise gateway_bytes_max, backlog_bytes_max or series_bytes_max of [storage]"
        }
        _ => "",
    };
    writeln!(io.err, "{file}: {error}{advice}; nothing has changed")?;
    Ok(Exit::Failed)
}

/// Makes the folder and puts it in place. Answers where the old one is, if it had state.
fn put_in_place(
    command: &Restore,
    config: &Config,
    (exists, has_state): (bool, bool),
    input: &mut dyn Read,
) -> Result<(Contents, Option<PathBuf>), RestoreError> {
    let path = &config.storage.path;
    let fresh = begin(path).map_err(StoreError::from)?;
    let bounds = Bounds { store: store_options(config), series_bytes_max: config.storage.series_bytes_max };
    let made = (|| {
        let disk = FileDisk::new(&fresh).map_err(|error| StoreError::Io(error.to_string()))?;
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let source = open(&command.file, input).map_err(StoreError::from)?;
        let contents = restoring::restore(source, &disk, &bounds)?;
        let aside = finish(path, &fresh, exists, has_state).map_err(|error| {
            StoreError::Io(format!("{}: {error}{}", path.display(), advice_on_rename(&error)))
        })?;
        Ok((contents, aside))
    })();
    if made.is_err() {
        // Under this name nothing counts.
        drop(fs::remove_dir_all(&fresh));
    }
    made
}

/// A new folder beside the state folder. Removes what an earlier restore left.
fn begin(path: &Path) -> io::Result<PathBuf> {
    let parent = path.parent().unwrap_or_else(|| Path::new("/"));
    fs::create_dir_all(parent)?;
    let prefix = format!("{}.restoring-", path.file_name().unwrap_or_default().to_string_lossy());
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    let fresh = beside(path, "restoring")?;
    DirBuilder::new().mode(0o700).create(&fresh)?;
    Ok(fresh)
}

/// One rename from the old state to the new one.
fn finish(path: &Path, fresh: &Path, exists: bool, has_state: bool) -> io::Result<Option<PathBuf>> {
    if exists {
        own_like(fresh, path)?;
        fs::set_permissions(fresh, fs::Permissions::from_mode(fs::metadata(path)?.mode() & 0o7777))?;
    } else {
        own_like(fresh, path.parent().unwrap_or_else(|| Path::new("/")))?;
    }
    File::open(fresh)?.sync_all()?;
    if !exists {
        fs::rename(fresh, path)?;
        sync_parent(path)?;
        return Ok(None);
    }
    if !has_state {
        renameat_with(CWD, fresh, CWD, path, RenameFlags::EXCHANGE)?;
        sync_parent(path)?;
        fs::remove_dir_all(fresh)?;
        return Ok(None);
    }
    // The name under which the old state is found. Never that of an unfinished folder: those are removed.
    let aside = beside(path, "before-restore")?;
    fs::rename(fresh, &aside)?;
    sync_parent(path)?;
    if let Err(error) = renameat_with(CWD, &aside, CWD, path, RenameFlags::EXCHANGE) {
        drop(fs::rename(&aside, fresh));
        return Err(error.into());
    }
    sync_parent(path)?;
    Ok(Some(aside))
}

fn advice_on_rename(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::BUSY | rustix::io::Errno::XDEV) => {
            ": it is a mount point; let storage.path name a folder inside it"
        }
        Some(rustix::io::Errno::INVAL) => {
            ": this file system cannot exchange two folders; move the old one away, and restore again"
        }
        _ => "",
    }
}

/// A free name beside the folder: `NAME.WORD-1` and so on.
fn beside(path: &Path, word: &str) -> io::Result<PathBuf> {
    numbered(path, word)
        .find(|name| fs::symlink_metadata(name).is_err())
        .ok_or_else(|| io::Error::new(io::ErrorKind::AlreadyExists, "too many folders were set aside"))
}

fn numbered(path: &Path, word: &str) -> impl Iterator<Item = PathBuf> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let path = path.to_owned();
    let word = word.to_owned();
    (1..=ASIDE_MAX).map(move |number| path.with_file_name(format!("{name}.{word}-{number}")))
}
