//! The file of a backup: a tar archive that any `tar` lists, with entries that only this program reads.
//!
//! | entry | content |
//! |---|---|
//! | `gatewayd-backup.json` | first: format of the backup, version of the program, when it began (milliseconds since 1970) |
//! | `00000001.rows`, `.parts`, `.summaries`, `.series` | a run of keys and values of one table, numbered from 1 in the order in which they are applied |
//! | `end.json` | what the copy was taken of: last batch, boot, lowest key needed, whether it had been stopped cleanly, how many entries did not verify, when |
//! | `SHA256SUMS` | last: one line for each entry before it, as `sha256sum` writes them |
//!
//! A run is, until its end: key (length as a varint, bytes), then 0 when the key was removed since an earlier run told it, or
//! one more than the value's length as a varint and the value. Keys of the store's tables are 8 bytes, big-endian.
//!
//! A reader takes nothing on trust: names are compared, never used; sizes are bounded before memory is taken; nothing is
//! compressed. An archive without its last entry is none.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::io::{self, Read, Write};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::ids::{BatchNumber, RowKey};
use crate::message::record::{Reader as Fields, put_bytes, put_integer};
use crate::series::copy::SeriesEntry;
use crate::store::copy::{CopiedEntry, CopiedState, Table};

/// Newest format that is read, and the one that is written.
const FORMAT: u64 = 1;

/// Bytes of an entry of the archive at most; the writer's runs end far below.
const ENTRY_BYTES_MAX: u64 = 16 << 20;

/// Bytes after which the writer begins a new run.
const RUN_BYTES: usize = 512 << 10;

/// Runs of an archive at most.
const RUNS_MAX: u32 = 1 << 20;

const FIRST: &str = "gatewayd-backup.json";
const END: &str = "end.json";
const SUMS: &str = "SHA256SUMS";

/// What a backup is of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ending {
    pub state: CopiedState,
    /// What was copied had been stopped cleanly: no daemon ran.
    pub clean: bool,
    /// Milliseconds since 1970.
    pub taken_at_ms: i64,
}

/// Keys and values of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Run {
    Store(Vec<CopiedEntry>),
    Series(Vec<SeriesEntry>),
}

/// Why an archive is refused.
#[derive(Debug)]
pub enum ArchiveError {
    /// It cannot be read.
    Io(io::Error),
    /// It is no backup of the gateway, or not a whole one.
    Damaged(String),
    /// A newer program wrote it.
    TooNew(u64),
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Damaged(what) => write!(f, "it is no whole backup: {what}"),
            Self::TooNew(found) => {
                write!(f, "it has format {found}, this version reads up to {FORMAT}: use a newer gatewayd")
            }
        }
    }
}

impl std::error::Error for ArchiveError {}

/// Writes an archive.
pub struct Writer<W: Write> {
    tar: tar::Builder<W>,
    sums: String,
    runs: u32,
    began_at_ms: i64,
}

impl<W: Write> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("runs", &self.runs).finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Begins an archive; `began_at_ms` in milliseconds since 1970.
    ///
    /// # Errors
    /// What writing says.
    pub fn new(out: W, began_at_ms: i64) -> io::Result<Self> {
        let mut writer = Self { tar: tar::Builder::new(out), sums: String::new(), runs: 0, began_at_ms };
        let version = env!("CARGO_PKG_VERSION");
        let first = json!({ "format": FORMAT, "gatewayd": version, "began_at_ms": began_at_ms });
        writer.entry(FIRST, format!("{first}\n").as_bytes())?;
        Ok(writer)
    }

    /// Adds entries of the store.
    ///
    /// # Errors
    /// What writing says.
    pub fn store(&mut self, entries: &[CopiedEntry]) -> io::Result<()> {
        // The order of entries of one table counts, and that of a summary's removal after its parts.
        for entries in entries.chunk_by(|a, b| a.table == b.table) {
            let Some(table) = entries.first().map(|entry| entry.table) else { continue };
            let entries = entries.iter().map(|entry| (entry.key.to_be_bytes(), entry.value.as_deref()));
            self.run(extension(table), entries)?;
        }
        Ok(())
    }

    /// Adds entries of the collections.
    ///
    /// # Errors
    /// What writing says.
    pub fn series(&mut self, entries: &[SeriesEntry]) -> io::Result<()> {
        self.run("series", entries.iter().map(|(key, value)| (key, value.as_deref())))
    }

    /// Ends the archive, and gives back what it was written to.
    ///
    /// # Errors
    /// What writing says.
    pub fn finish(mut self, ending: &Ending) -> io::Result<W> {
        let Ending { state, clean, taken_at_ms } = ending;
        let end = json!({
            "last_batch": state.last_batch.0,
            "boot": state.boot,
            "min_live_key": state.min_live_key.0,
            "damaged": state.damaged,
            "clean": clean,
            "taken_at_ms": taken_at_ms,
        });
        self.entry(END, format!("{end}\n").as_bytes())?;
        let sums = std::mem::take(&mut self.sums);
        self.entry(SUMS, sums.as_bytes())?;
        self.tar.into_inner()
    }

    fn run<'e>(
        &mut self,
        extension: &str,
        entries: impl Iterator<Item = (impl AsRef<[u8]>, Option<&'e [u8]>)>,
    ) -> io::Result<()> {
        let mut run = Vec::new();
        for (key, value) in entries {
            put_bytes(&mut run, key.as_ref());
            match value {
                None => put_integer(&mut run, 0),
                Some(value) => {
                    put_integer(&mut run, (value.len() as u64).saturating_add(1));
                    run.extend_from_slice(value);
                }
            }
            if run.len() >= RUN_BYTES {
                self.end_run(extension, &std::mem::take(&mut run))?;
            }
        }
        if run.is_empty() { Ok(()) } else { self.end_run(extension, &run) }
    }

    fn end_run(&mut self, extension: &str, run: &[u8]) -> io::Result<()> {
        self.runs = self.runs.saturating_add(1);
        if self.runs > RUNS_MAX {
            return Err(io::Error::other("more than a backup holds"));
        }
        self.entry(&format!("{:08}.{extension}", self.runs), run)
    }

    fn entry(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_path(name)?;
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(self.began_at_ms.checked_div(1000).unwrap_or(0)).unwrap_or(0));
        header.set_cksum();
        self.tar.append(&header, content)?;
        add_sum(&mut self.sums, name, content);
        Ok(())
    }
}

/// Reads an archive from front to back. Answers what it is of; every run goes to `take` in order, before the sums are known to
/// be right: what is made of them counts only when this has ended well.
///
/// # Errors
/// [`ArchiveError`], or what `take` answers.
pub fn read<E: From<ArchiveError>>(
    source: impl Read,
    take: &mut dyn FnMut(Run) -> Result<(), E>,
) -> Result<Ending, E> {
    let mut archive = tar::Archive::new(source);
    let mut entries = archive.entries().map_err(ArchiveError::Io)?.raw(true);
    let (mut sums, mut runs) = (String::new(), 0u32);
    let (name, first) = next(&mut entries)?;
    if name != FIRST {
        return Err(damaged("it does not begin as one").into());
    }
    let json: Value = serde_json::from_slice(&first).map_err(|_| damaged("its beginning cannot be read"))?;
    match json.get("format").and_then(Value::as_u64) {
        Some(FORMAT) => {}
        Some(newer) if newer > FORMAT => return Err(ArchiveError::TooNew(newer).into()),
        _ => return Err(damaged("its beginning names no format").into()),
    }
    add_sum(&mut sums, FIRST, &first);
    loop {
        let (name, content) = next(&mut entries)?;
        if name == END {
            add_sum(&mut sums, END, &content);
            let ending = ending(&content).ok_or_else(|| damaged("its end cannot be read"))?;
            let (name, found) = next(&mut entries)?;
            if name != SUMS || found != sums.as_bytes() {
                return Err(damaged("its checksums do not fit").into());
            }
            if entries.next().is_some() {
                return Err(damaged("it goes on after its end").into());
            }
            return Ok(ending);
        }
        runs = runs.checked_add(1).filter(|runs| *runs <= RUNS_MAX).ok_or_else(|| damaged("too long"))?;
        let table = name.strip_prefix(&format!("{runs:08}.")).and_then(table_of);
        let table = table.ok_or_else(|| damaged("an entry that does not belong there"))?;
        add_sum(&mut sums, &name, &content);
        let run = run(table, &content).ok_or_else(|| damaged(&format!("{name} cannot be read")))?;
        take(run)?;
    }
}

fn damaged(what: &str) -> ArchiveError {
    ArchiveError::Damaged(what.to_owned())
}

/// Name and content of the next entry.
fn next<R: Read>(entries: &mut tar::Entries<'_, R>) -> Result<(String, Vec<u8>), ArchiveError> {
    let broken = |error: io::Error| match error.kind() {
        io::ErrorKind::Other | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
            damaged(&error.to_string())
        }
        _ => ArchiveError::Io(error),
    };
    let Some(entry) = entries.next() else { return Err(damaged("it ends early")) };
    let mut entry = entry.map_err(broken)?;
    let size = entry.header().entry_size().map_err(broken)?;
    let is_file = entry.header().entry_type() == tar::EntryType::Regular;
    if !is_file || size > ENTRY_BYTES_MAX {
        return Err(damaged("an entry that does not belong there"));
    }
    let name = String::from_utf8(entry.path_bytes().into_owned()).map_err(|_| damaged("a strange name"))?;
    // The size may lie: memory is taken as content comes.
    let mut content = Vec::new();
    entry.read_to_end(&mut content).map_err(broken)?;
    if content.len() as u64 != size {
        return Err(damaged("it ends early"));
    }
    Ok((name, content))
}

fn add_sum(sums: &mut String, name: &str, content: &[u8]) {
    for byte in Sha256::digest(content) {
        sums.push_str(&format!("{byte:02x}"));
    }
    sums.push_str(&format!("  {name}\n"));
}

const fn extension(table: Table) -> &'static str {
    match table {
        Table::Rows => "rows",
        Table::Parts => "parts",
        Table::Summaries => "summaries",
    }
}

/// The table of the store; `None` inside for the collections.
fn table_of(extension: &str) -> Option<Option<Table>> {
    let tables = [Table::Rows, Table::Parts, Table::Summaries];
    let table = tables.into_iter().find(|table| self::extension(*table) == extension);
    if table.is_none() && extension != "series" { None } else { Some(table) }
}

fn run(table: Option<Table>, content: &[u8]) -> Option<Run> {
    let mut fields = Fields::new(content);
    let (mut store, mut series) = (Vec::new(), Vec::new());
    while !fields.is_empty() {
        let key = fields.bytes()?;
        let value = match fields.integer()?.checked_sub(1) {
            None => None,
            Some(len) => Some(fields.take(usize::try_from(len).ok()?)?.to_vec()),
        };
        match table {
            Some(table) => {
                let key = u64::from_be_bytes(key.try_into().ok()?);
                store.push(CopiedEntry { table, key, value });
            }
            None => series.push((key.to_vec(), value)),
        }
    }
    Some(if table.is_some() { Run::Store(store) } else { Run::Series(series) })
}

fn ending(content: &[u8]) -> Option<Ending> {
    let json: Value = serde_json::from_slice(content).ok()?;
    let number = |name: &str| json.get(name).and_then(Value::as_u64);
    let state = CopiedState {
        last_batch: BatchNumber(number("last_batch").filter(|number| *number < 1 << 47)?),
        boot: u32::try_from(number("boot")?).ok()?,
        min_live_key: RowKey(number("min_live_key")?),
        damaged: number("damaged")?,
    };
    let taken_at_ms = json.get("taken_at_ms")?.as_i64()?;
    Some(Ending { state, clean: json.get("clean")?.as_bool()?, taken_at_ms })
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a panic is what a wrong test should do")]
mod tests {
    use super::*;

    fn entry(table: Table, key: u64, value: Option<&[u8]>) -> CopiedEntry {
        CopiedEntry { table, key, value: value.map(<[u8]>::to_vec) }
    }

    fn archive() -> (Vec<u8>, Vec<Run>, Ending) {
        let store = vec![
            entry(Table::Parts, 65_536, Some(&[1; 3_000])),
            entry(Table::Rows, 70_000, Some(b"row")),
            entry(Table::Rows, 70_001, None),
            entry(Table::Summaries, 0, Some(b"")),
        ];
        let series = vec![(vec![0], Some(vec![1])), (vec![4, 2], None)];
        let state =
            CopiedState { last_batch: BatchNumber(9), boot: 2, min_live_key: RowKey(65_536), damaged: 1 };
        let ending = Ending { state, clean: true, taken_at_ms: 1_772_366_400_000 };
        let mut writer = Writer::new(Vec::new(), 1_772_366_400_000).unwrap();
        writer.store(&store).unwrap();
        writer.series(&series).unwrap();
        let bytes = writer.finish(&ending).unwrap();
        let runs = store.chunk_by(|a, b| a.table == b.table).map(|run| Run::Store(run.to_vec()));
        let runs = runs.chain([Run::Series(series)]).collect();
        (bytes, runs, ending)
    }

    fn back(bytes: &[u8]) -> Result<(Vec<Run>, Ending), ArchiveError> {
        let mut runs = Vec::new();
        let ending = read(bytes, &mut |run| {
            runs.push(run);
            Ok::<_, ArchiveError>(())
        })?;
        Ok((runs, ending))
    }

    /// An archive of these entries with their right sums.
    fn forged(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut writer =
            Writer { tar: tar::Builder::new(Vec::new()), sums: String::new(), runs: 0, began_at_ms: 0 };
        for (name, content) in entries {
            let mut header = tar::Header::new_ustar();
            // What `set_path` refuses is written as it is.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(content.len() as u64);
            header.set_cksum();
            writer.tar.append(&header, content.as_slice()).unwrap();
            add_sum(&mut writer.sums, name, content);
        }
        let sums = writer.sums.clone();
        writer.entry(SUMS, sums.as_bytes()).unwrap();
        writer.tar.into_inner().unwrap()
    }

    #[test]
    fn an_archive_reads_back() {
        let (bytes, runs, ending) = archive();
        assert_eq!(back(&bytes).unwrap(), (runs, ending));
    }

    #[test]
    fn a_long_table_is_cut_into_runs() {
        let entries: Vec<_> = (1..=40).map(|key| entry(Table::Rows, key, Some(&[7; 40_000]))).collect();
        let mut writer = Writer::new(Vec::new(), 0).unwrap();
        writer.store(&entries).unwrap();
        let bytes = writer.finish(&Ending::default()).unwrap();
        let (runs, _) = back(&bytes).unwrap();
        assert!(runs.len() > 2);
        let all: Vec<_> =
            runs.into_iter().flat_map(|run| if let Run::Store(run) = run { run } else { vec![] }).collect();
        assert_eq!(all, entries);
    }

    #[test]
    fn a_cut_or_changed_archive_is_refused() {
        let (bytes, ..) = archive();
        // The last two blocks are zero, and need not be there.
        for len in (0..bytes.len() - 1024).step_by(97) {
            assert!(back(&bytes[..len]).is_err(), "cut at {len}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            // What lies between entries, and who owns them by which name, says nothing.
            if let Ok(found) = back(&changed) {
                assert_eq!(found, back(&bytes).unwrap(), "byte {at}");
            }
        }
    }

    #[test]
    fn entries_that_do_not_belong_there_are_refused() {
        let first = |format: u64| (FIRST, format!("{{\"format\":{format}}}").into_bytes());
        let end = || {
            (END, b"{\"last_batch\":1,\"boot\":1,\"min_live_key\":0,\"damaged\":0,\"clean\":true,\"taken_at_ms\":0}".to_vec())
        };
        assert!(back(&forged(&[first(1), end()])).is_ok());
        assert!(matches!(back(&forged(&[first(2), end()])), Err(ArchiveError::TooNew(2))));
        for name in ["../../etc/passwd", "/etc/passwd", "00000001.exe", "00000002.rows", "gateway.redb", ""] {
            let result = back(&forged(&[first(1), (name, vec![]), end()]));
            assert!(matches!(result, Err(ArchiveError::Damaged(_))), "{name}: {result:?}");
        }
        // Lengths that lie inside a run.
        for run in [vec![8], vec![8, 0, 0, 0, 0, 0, 0, 0, 1, 255, 255, 255, 255, 15], vec![3, 1, 2, 3, 0]] {
            let result = back(&forged(&[first(1), ("00000001.rows", run), end()]));
            assert!(matches!(result, Err(ArchiveError::Damaged(_))), "{result:?}");
        }
        // A size that lies: an entry of 8 GiB, of which nothing is there; and one that is no file.
        for kind in [tar::EntryType::Regular, tar::EntryType::Symlink, tar::EntryType::GNULongName] {
            let mut bytes = forged(&[first(1)]);
            bytes.truncate(1024);
            let mut header = tar::Header::new_ustar();
            header.set_path("00000001.rows").unwrap();
            header.set_entry_type(kind);
            header.set_size(8 << 30);
            header.set_cksum();
            bytes.extend_from_slice(header.as_bytes());
            let result = back(&bytes);
            assert!(matches!(result, Err(ArchiveError::Damaged(_))), "{result:?}");
        }
    }
}
