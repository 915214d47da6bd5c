//! `storage verify` and `storage compact`: the files of the state folder, looked at and made smaller.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

use super::backup::SHADOW_BYTES_MAX;
use super::state_folder::{own_like, take};
use super::{Exit, Io};
use crate::backup::restoring;
use crate::config::Config;
use crate::ids::RowKey;
use crate::series::copy as series;
use crate::settings::store_options;
use crate::store::chunk::ChunkRead;
use crate::store::shadow::Shadow;
use crate::store::{self, Disk, OnCorrupt, Store, StoreError, StoreOptions};
use crate::time::calendar;

/// The second word of `storage`, where it is about the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StorageCommand {
    Verify,
    Repair,
    Compact,
}

/// Bytes read at once.
const BITE_BYTES: usize = 1 << 20;

/// The files that are looked at.
const FILES: [&str; 5] =
    ["gateway.journal", "gateway.redb", "backlog.redb", "series.redb", "gateway.essentials"];

/// Reads everything that is stored and says what does not verify. `online` is the backup of the gateway that runs, if one does:
/// then all that is live is read through it.
///
/// # Errors
/// Writing to the terminal failed.
pub fn verify(config: &Config, online: Option<Box<dyn Read>>, io: &mut Io<'_>) -> io::Result<Exit> {
    if let Some(source) = online {
        return verify_running(source, io);
    }
    let disk = match take(config, io)? {
        Ok(disk) => disk,
        Err(exit) => return Ok(exit),
    };
    let damage = match look(&disk, config, io.out) {
        Ok(damage) => damage,
        Err(error) => {
            writeln!(io.err, "not all of it could be read: {error}")?;
            return Ok(Exit::Failed);
        }
    };
    for what in &damage {
        writeln!(io.err, "{what}")?;
    }
    if damage.is_empty() {
        writeln!(io.out, "everything verifies")?;
        return Ok(Exit::Ok);
    }
    writeln!(
        io.err,
        "damaged: gatewayd storage repair, or a start, keeps what is whole; a backup is older but whole"
    )?;
    Ok(Exit::Failed)
}

fn verify_running(source: Box<dyn Read>, io: &mut Io<'_>) -> io::Result<Exit> {
    match restoring::check(BufReader::new(source)) {
        Ok(contents) => {
            let restoring::Contents { ending, rows, parts, series } = contents;
            let at = calendar::show(ending.taken_at_ms);
            writeln!(
                io.out,
                "read through the gateway at {at}: {rows} rows, {parts} parts of the backlog, {series} entries of collections"
            )?;
            if ending.state.damaged == 0 {
                writeln!(io.out, "everything that is live verifies")?;
                return Ok(Exit::Ok);
            }
            let count = ending.state.damaged;
            writeln!(
                io.err,
                "{count} entries do not verify: stop the gateway and verify again to see where"
            )?;
            Ok(Exit::Failed)
        }
        Err(error) => {
            writeln!(io.err, "not all of it could be read: {error}; the gateway's log says why")?;
            Ok(Exit::Failed)
        }
    }
}

/// Goes through the files as a start would, without changing them. Answers what is damaged.
fn look(disk: &Arc<dyn Disk>, config: &Config, out: &mut dyn Write) -> io::Result<Vec<String>> {
    let shadow: Arc<dyn Disk> = Arc::new(Shadow::new(Arc::clone(disk), SHADOW_BYTES_MAX)?);
    for name in FILES {
        if let Some(file) = disk.open(name, false)? {
            writeln!(out, "{name}: {} bytes, {} on the disk", file.len()?, file.allocated_bytes()?)?;
        }
    }
    let options = StoreOptions { on_corrupt: OnCorrupt::Quarantine, ..store_options(config) };
    let (mut store, found) = Store::open(Arc::clone(&shadow), options).map_err(io::Error::other)?;
    let mut damage: Vec<String> = found.damage.into_iter().chain(found.backlog_damage).collect();
    if let Some(number) = found.unfinished {
        writeln!(
            out,
            "the write of batch {number} was cut off, as a power cut does; nobody was told that it is kept"
        )?;
    }
    let report = store.replay(&mut |_, _, _| {}).map_err(io::Error::other)?;
    damage.extend(report.lost.iter().map(|key| format!("gateway.redb: row {key} does not verify")));
    let mut chunks = 0u64;
    for chunk in store.take_chunks() {
        chunks += 1;
        let mut from = Some(RowKey(0));
        let mut damaged = false;
        while let Some(key) = from {
            let read = ChunkRead { number: chunk.number, from: key, bytes_max: BITE_BYTES };
            let rows = store.fetch_chunk(read).map_err(io::Error::other)?;
            damaged |= rows.damaged;
            from = rows.next;
        }
        if damaged {
            damage.push(format!("backlog.redb: chunk {} is damaged", chunk.number));
        }
    }
    writeln!(out, "{} rows in the window, {chunks} chunks in the backlog", report.rows)?;
    if shadow.open("gateway.essentials", false)?.is_some() && store.read_essentials().is_none() {
        damage.push("gateway.essentials does not verify".to_owned());
    }
    match series::verify(&shadow, BITE_BYTES) {
        Ok((chunks, found)) => {
            writeln!(out, "{chunks} chunks of readings")?;
            damage.extend(found);
        }
        Err(StoreError::Corrupted(what)) => damage.push(format!("series.redb is damaged: {what}")),
        Err(error) => return Err(io::Error::other(error)),
    }
    Ok(damage)
}

type Compact = fn(&Arc<dyn Disk>) -> Result<(), StoreError>;

/// Makes the files that grow as small as what they hold.
///
/// # Errors
/// Writing to the terminal failed.
pub fn compact(config: &Config, io: &mut Io<'_>) -> io::Result<Exit> {
    let disk = match take(config, io)? {
        Ok(disk) => disk,
        Err(exit) => return Ok(exit),
    };
    let mut exit = Exit::Ok;
    let files: [(&str, Compact); 2] = [("backlog.redb", store::compact), ("series.redb", series::compact)];
    for (name, compact) in files {
        let Some(file) = disk.open(name, false)? else { continue };
        let before = file.allocated_bytes()?;
        match compact(&disk) {
            Ok(()) => {
                let after = file.allocated_bytes()?;
                writeln!(io.out, "{name}: {before} bytes on the disk before, {after} after")?;
            }
            Err(error) => {
                writeln!(io.err, "{name}: {error}; it holds what it held")?;
                exit = Exit::Failed;
            }
        }
    }
    writeln!(io.out, "gateway.journal and gateway.redb have a fixed size: storage.gateway_bytes_max")?;
    own_like(&config.storage.path, &config.storage.path)?;
    Ok(exit)
}

/// Says why the folder cannot be repaired, when it cannot: a gateway runs, or there is nothing in it.
///
/// # Errors
/// Writing to the terminal failed.
pub fn refuse_repair(config: &Config, io: &mut Io<'_>) -> io::Result<Option<Exit>> {
    Ok(take(config, io)?.err())
}

/// Gives the files of the state folder to whom the folder belongs, after root has changed them.
///
/// # Errors
/// The file system refuses.
pub fn own_state(config: &Config) -> io::Result<()> {
    own_like(&config.storage.path, &config.storage.path)
}
