//! The store on real files: what a kill leaves behind opens again, the folder is locked, modes are tight.

#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

#[path = "support/disk.rs"]
mod disk;
#[path = "support/model.rs"]
mod model;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::Random;
use gatewayd::ids::BatchNumber;
use gatewayd::store::{FileDisk, FolderError, Recovery, Store, StoreOptions};
use model::{Model, replay, small};

/// A folder of its own for one test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gatewayd-store-{}-{name}", std::process::id()));
        assert!(!path.exists(), "{} is left over", path.display());
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn open(path: &Path, options: StoreOptions) -> (Store, Recovery) {
    Store::open(Arc::new(FileDisk::new(path).unwrap()), options).unwrap()
}

/// The files as they are now, as a kill at this moment would leave them.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn what_a_kill_leaves_opens_again_at_any_moment() {
    let folder = Folder::new("kill");
    let (mut store, recovery) = open(&folder.0.join("state"), small());
    assert!(recovery.created && recovery.damage.is_empty() && recovery.notes.is_empty(), "{recovery:?}");
    let mut random = Random::new(1);
    let mut model = Model::default();
    for step in 0..240 {
        let (batch, after) = model.batch(&mut random, 100);
        store.append(batch).unwrap();
        model = after;
        if step % 30 == 7 {
            let left = folder.0.join(format!("left-{step}"));
            copy(&folder.0.join("state"), &left);
            let (mut store, recovery) = open(&left, small());
            assert!(recovery.damage.is_empty() && !recovery.clean, "{recovery:?}");
            assert_eq!((recovery.last_batch, recovery.boot), (BatchNumber(model.last), 2));
            assert!(replay(&mut store) == model.rows);
        }
    }
    assert_eq!(store.reopen().unwrap(), Some(BatchNumber(model.last)));
    assert!(replay(&mut store) == model.rows);
    store.close(None).unwrap();
    let (mut store, recovery) = open(&folder.0.join("state"), small());
    assert!(recovery.clean && recovery.boot == 2, "{recovery:?}");
    assert!(replay(&mut store) == model.rows);
}

#[test]
fn a_second_process_is_told_who_has_the_folder() {
    let folder = Folder::new("lock");
    let first = FileDisk::new(&folder.0).unwrap();
    let second = FileDisk::new(&folder.0).unwrap_err();
    assert!(
        matches!(second, FolderError::InUse { process: Some(process), .. } if process == std::process::id())
    );
    let expected = format!("state folder {} is in use by process {}", folder.0.display(), std::process::id());
    assert_eq!(second.to_string(), expected);
    drop(first);
    FileDisk::new(&folder.0).unwrap();
}

#[test]
fn a_file_system_that_is_nearly_full_is_left_its_reserve() {
    let folder = Folder::new("reserve");
    let (store, recovery) = open(&folder.0, StoreOptions { reserve_free: u64::MAX / 2, ..small() });
    assert!(recovery.notes.iter().any(|note| note.contains("room")), "{recovery:?}");
    assert!(store.usage().file_bytes < 1 << 20);
}

#[test]
fn files_and_folder_are_for_their_owner_only_and_keep_to_the_cap() {
    let folder = Folder::new("modes");
    let state = folder.0.join("deep").join("state");
    let (store, _) = open(&state, StoreOptions { reserve_free: 0, ..StoreOptions::default() });
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    let mut sum = 0;
    for entry in fs::read_dir(&state).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(mode(&entry.path()), 0o600, "{:?}", entry.file_name());
        sum += entry.metadata().unwrap().len();
    }
    assert!(sum <= (72 << 20) + 16, "{sum} bytes");
    assert_eq!(store.usage().file_bytes, 72 << 20);
}
