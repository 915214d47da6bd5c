//! `backup`: the archive comes from the gateway that runs, or is made of the folder of one that is stopped.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::state_folder;
use super::{Exit, Io};
use crate::backup::archive::{Ending, Writer};
use crate::backup::restoring;
use crate::config::Config;
use crate::series::copy as series;
use crate::settings::store_options;
use crate::store::shadow::Shadow;
use crate::store::{self, Disk, OpenError, Store, StoreError, StoreOptions};
use crate::time::calendar;

/// Asks the gateway that runs for its backup, and passes it on in pieces. Answers the status, and the body when that is not 200.
pub type Online<'a> = dyn FnMut(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<(u16, String)> + 'a;

/// Bytes copied at once.
const BITE_BYTES: usize = 1 << 20;

/// What a start would repair stays in memory, up to this.
pub(super) const SHADOW_BYTES_MAX: usize = 96 << 20;

/// Writes a backup to `file`, `-` being standard output.
///
/// # Errors
/// Writing to the terminal failed.
pub fn backup(config: &Config, file: &str, online: &mut Online<'_>, io: &mut Io<'_>) -> io::Result<Exit> {
    let mut target = match Target::open(file, io.out) {
        Ok(target) => target,
        Err(error) => {
            writeln!(io.err, "{file}: {error}")?;
            return Ok(Exit::Failed);
        }
    };
    let (mut began, mut failed) = (false, None);
    let answer = online(&mut |bytes| {
        began = true;
        target.write_all(bytes).map_err(|error| {
            failed = Some(error);
            io::ErrorKind::BrokenPipe.into()
        })
    });
    let exit = match answer {
        _ if failed.is_some() => {
            writeln!(io.err, "{file}: {}", failed.map(|error| error.to_string()).unwrap_or_default())?;
            Exit::Failed
        }
        Ok((200, _)) => Exit::Ok,
        Ok((_, body)) => {
            let value: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
            let why = value.get("error").and_then(serde_json::Value::as_str);
            writeln!(io.err, "{}", why.unwrap_or_else(|| body.trim_end()))?;
            Exit::Failed
        }
        Err(error) if began => {
            writeln!(io.err, "the backup broke off: {error}; the gateway's log says why")?;
            Exit::Failed
        }
        Err(_) => offline(config, &mut target, file, io.err)?,
    };
    if exit != Exit::Ok {
        target.discard();
        return Ok(exit);
    }
    match target.finish() {
        Ok(Some(contents)) => {
            let at = calendar::show(contents.ending.taken_at_ms);
            writeln!(io.err, "{file}: everything that was kept at {at}, checked after it was written")?;
            tell_damage(&contents, io.err)?;
            Ok(Exit::Ok)
        }
        Ok(None) => Ok(Exit::Ok),
        Err(error) => {
            writeln!(io.err, "{file}: {error}")?;
            Ok(Exit::Failed)
        }
    }
}

/// Says how much is missing in a backup.
pub(super) fn tell_damage(contents: &restoring::Contents, err: &mut dyn Write) -> io::Result<()> {
    match contents.ending.state.damaged {
        0 => Ok(()),
        count => {
            writeln!(err, "{count} entries did not verify and are not in it: see gatewayd storage verify")
        }
    }
}

/// Makes a backup of a stopped gateway's folder, which is not changed.
fn offline(config: &Config, target: &mut Target<'_>, file: &str, err: &mut dyn Write) -> io::Result<Exit> {
    let path = &config.storage.path;
    match state_folder::state_in(path) {
        Ok(Some(names)) if !names.is_empty() => {}
        Ok(_) => {
            writeln!(err, "no gateway runs, and {} holds no state of one", path.display())?;
            return Ok(Exit::Failed);
        }
        Err(error) => {
            writeln!(err, "state folder {}: {error}", path.display())?;
            return Ok(Exit::Failed);
        }
    }
    let disk: Arc<dyn Disk> = match store::FileDisk::new(path) {
        Ok(disk) => Arc::new(disk),
        Err(error @ store::FolderError::InUse { .. }) => {
            writeln!(err, "{error}, which does not answer on {}", config.control_socket().display())?;
            return Ok(Exit::Unreachable);
        }
        Err(error) => {
            writeln!(err, "{error}")?;
            return Ok(Exit::Failed);
        }
    };
    match copy(&disk, config, target) {
        Ok(()) => Ok(Exit::Ok),
        Err(CopyError::Open(error @ OpenError::Damaged { .. })) => {
            writeln!(err, "{error}; see gatewayd storage verify and repair")?;
            Ok(Exit::Failed)
        }
        Err(CopyError::Open(error)) => {
            writeln!(err, "{error}")?;
            Ok(Exit::Failed)
        }
        Err(CopyError::Store(error)) => {
            writeln!(err, "{error}; see gatewayd storage verify and repair")?;
            Ok(Exit::Failed)
        }
        Err(CopyError::Write(error)) => {
            writeln!(err, "{file}: {error}")?;
            Ok(Exit::Failed)
        }
    }
}

enum CopyError {
    Open(OpenError),
    Store(StoreError),
    Write(io::Error),
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

fn copy(disk: &Arc<dyn Disk>, config: &Config, target: &mut Target<'_>) -> Result<(), CopyError> {
    let newest = newest_change_ms(&config.storage.path);
    let shadow = Shadow::new(Arc::clone(disk), SHADOW_BYTES_MAX).map_err(StoreError::from)?;
    let shadow: Arc<dyn Disk> = Arc::new(shadow);
    let options = StoreOptions { on_corrupt: store::OnCorrupt::Stop, ..store_options(config) };
    let (mut store, found) = Store::open(Arc::clone(&shadow), options).map_err(CopyError::Open)?;
    let mut writer = Writer::new(target, newest).map_err(CopyError::Write)?;
    let damaged = series::for_each(&shadow, BITE_BYTES, &mut |entries| {
        writer.series(&entries).map_err(CopyError::Write)
    })?;
    store.begin_copy();
    loop {
        let bite = store.copy_next(BITE_BYTES)?;
        writer.store(&bite.entries).map_err(CopyError::Write)?;
        if bite.caught_up {
            break;
        }
    }
    let (entries, mut state) = store.copy_last()?;
    writer.store(&entries).map_err(CopyError::Write)?;
    state.damaged += damaged.len() as u64;
    let ending = Ending { state, clean: found.clean, taken_at_ms: newest };
    writer.finish(&ending).map(drop).map_err(CopyError::Write)
}

/// When a file of the folder was written last.
fn newest_change_ms(folder: &Path) -> i64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let changes = entries.filter_map(|entry| Some(entry.metadata().ok()?.mtime()));
    changes.max().unwrap_or(0).saturating_mul(1000)
}

/// Where a backup goes: to a temporary name beside the file, or to standard output.
enum Target<'o> {
    Out(&'o mut dyn Write),
    File { file: File, fresh: PathBuf, path: PathBuf },
}

impl<'o> Target<'o> {
    fn open(file: &str, out: &'o mut dyn Write) -> io::Result<Self> {
        if file == "-" {
            return Ok(Self::Out(out));
        }
        let path = led_to(Path::new(file))?;
        let mut fresh = path.clone().into_os_string();
        fresh.push(".part");
        let fresh = PathBuf::from(fresh);
        if fs::symlink_metadata(&fresh).is_ok_and(|found| !found.is_file()) {
            return Err(refused(format!("{} is in the way, which is no regular file", fresh.display())));
        }
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        Ok(Self::File { file: opened, fresh, path })
    }

    /// Syncs the file, reads it back as a whole, and gives it its name.
    fn finish(self) -> Result<Option<restoring::Contents>, String> {
        let (file, fresh, path) = match self {
            Self::Out(out) => return out.flush().map(|()| None).map_err(|error| error.to_string()),
            Self::File { file, fresh, path } => (file, fresh, path),
        };
        let finished = (|| {
            file.sync_all().map_err(|error| error.to_string())?;
            let written = File::open(&fresh).map_err(|error| error.to_string())?;
            let contents = restoring::check(BufReader::new(written)).map_err(|error| error.to_string())?;
            fs::rename(&fresh, &path).and_then(|()| sync_parent(&path)).map_err(|error| error.to_string())?;
            Ok(contents)
        })();
        if finished.is_err() {
            // It is of no use to anybody.
            drop(fs::remove_file(&fresh));
        }
        finished.map(Some)
    }

    fn discard(self) {
        if let Self::File { fresh, .. } = self {
            // It is of no use to anybody.
            drop(fs::remove_file(fresh));
        }
    }
}

/// The file that a backup replaces: none yet, or a regular one, to which links may lead. A device, a pipe or a socket
/// would be gone.
fn led_to(path: &Path) -> io::Result<PathBuf> {
    let is_link = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.to_owned()),
        found => found?.is_symlink(),
    };
    let to_nothing =
        |error: io::Error| io::Error::new(error.kind(), format!("it is a link to nothing: {error}"));
    let path = if is_link { fs::canonicalize(path).map_err(to_nothing)? } else { path.to_owned() };
    let found = fs::metadata(&path)?;
    if found.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder; name a file in it"));
    }
    if !found.is_file() {
        return Err(refused("it is no regular file; `-` is standard output".to_owned()));
    }
    Ok(path)
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

impl Write for Target<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Out(out) => out.write(bytes),
            Self::File { file, .. } => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Out(out) => out.flush(),
            Self::File { file, .. } => file.flush(),
        }
    }
}

/// Makes a name in a folder durable.
pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt;

    use super::*;

    #[test]
    fn only_regular_files_are_replaced() {
        let folder = std::env::temp_dir().join(format!("gatewayd-backup-target-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        fs::write(at("file"), "old").unwrap();
        for (link, to) in [("good", "file"), ("bad", "pipe"), ("dangling", "nothing")] {
            std::os::unix::fs::symlink(at(to), at(link)).unwrap();
        }
        let mut out = Vec::new();
        for refused in ["pipe", "bad", "dangling", ""] {
            let opened = Target::open(at(refused).to_str().unwrap(), &mut out);
            assert!(opened.is_err(), "{refused:?} was taken");
        }
        assert!(fs::symlink_metadata(at("pipe")).unwrap().file_type().is_fifo());
        for taken in ["file", "good", "new"] {
            let target = Target::open(at(taken).to_str().unwrap(), &mut out).unwrap();
            let Target::File { path, fresh, .. } = &target else { panic!("{taken}") };
            let expected = if taken == "good" { at("file").canonicalize().unwrap() } else { at(taken) };
            assert_eq!((path, fs::metadata(fresh).is_ok()), (&expected, true));
            target.discard();
        }
        fs::remove_file(at("pipe")).unwrap();
        std::os::unix::fs::symlink(at("file"), at("new.part")).unwrap();
        assert!(
            Target::open(at("new").to_str().unwrap(), &mut out).is_err(),
            "the link's file would be emptied"
        );
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "old");
        fs::remove_dir_all(&folder).unwrap();
    }
}
