//! Conversations with the gateway, as documentation that cannot go stale: each file in `tests/golden/mqtt` is played, and
//! the gateway must answer as written. `UPDATE_GOLDEN=1` writes what it answers now. Notation: `support/transcript.rs`.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::transcript::{difference, play};

fn transcripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mqtt");
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

#[test]
fn conversations_go_as_written() {
    #[expect(clippy::disallowed_methods, reason = "the one switch of this test")]
    let update = std::env::var("UPDATE_GOLDEN").is_ok();
    let paths = transcripts();
    assert!(paths.len() >= 25, "only {} transcripts", paths.len());
    let mut failed = Vec::new();
    for path in paths {
        let written = fs::read_to_string(&path).expect("it can be read");
        let played = play(&written);
        if played == written {
            continue;
        }
        if update {
            fs::write(&path, &played).expect("it can be written");
            continue;
        }
        let expected: Vec<_> = written.lines().collect();
        let played: Vec<_> = played.lines().map(str::to_owned).collect();
        failed.push(format!("{}: {}", path.display(), difference(&expected, &played)));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Each conversation says what it shows in its first line.
#[test]
fn conversations_have_a_title() {
    for path in transcripts() {
        let written = fs::read_to_string(&path).expect("it can be read");
        assert!(written.starts_with("# "), "{} begins without a title", path.display());
    }
}
