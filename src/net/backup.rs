//! A backup of the gateway that runs: its parts are copied bite by bite, between the batches, and leave as one archive.
//!
//! First the collections, then backlog and row log; what changes meanwhile is copied again until little is left. Then the
//! collections stand still for a moment, as nothing may be settled in the row log that their copy lacks, and the rest is
//! copied: that moment is what the backup is of, as if the power had gone. Acknowledgements never wait for more than one
//! bite, and whoever takes the archive slowly holds nothing up.

use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::collections;
use super::core::Core;
use super::series_thread::{Failure, PIECES_MAX, Piece, SeriesStep};
use super::store_thread::CopyStep;
use crate::backup::archive::{Ending, Writer};
use crate::http::Response;
use crate::series::copy::SeriesEntry;
use crate::store::copy::CopiedEntry;

/// Of the answer.
pub(super) const MEDIA_TYPE: &str = "application/x-tar";

/// Bytes that are copied at once: a batch waits for no more than that.
const BITE_BYTES: usize = 128 << 10;
/// Bytes that leave at once.
const PIECE_BYTES: usize = 64 << 10;
/// Readings that wait in memory get so long to be stored before.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// The whole is gone through so often at most before the rest is copied at once.
const PASSES_MAX: u32 = 4;

/// What goes into the archive next.
enum Part {
    Store(Vec<CopiedEntry>),
    Series(Vec<SeriesEntry>),
    End(Ending),
    Failed(String),
}

/// Begins a backup; the archive comes in pieces.
///
/// # Errors
/// What is answered when one is under way.
pub(super) fn start(core: &Rc<Core>) -> Result<mpsc::Receiver<Piece>, Response> {
    let Ok(place) = Arc::clone(&core.backup_room).try_acquire_owned() else {
        return Err(Response::error(409, "a backup is under way"));
    };
    let (pieces, outgoing) = mpsc::channel(PIECES_MAX);
    let (parts, incoming) = mpsc::channel(1);
    let began_at_ms = wall_ms(core);
    let writing = move || write(incoming, &pieces, began_at_ms);
    if let Err(error) = thread::Builder::new().name("backup".into()).spawn(writing) {
        return Err(Response::error(503, &error.to_string()));
    }
    let core = Rc::clone(core);
    spawn_local(async move {
        match copy(&core, &parts).await {
            Ok(()) => {}
            Err(Stopped::Gone) => tracing::info!("whoever took the backup has gone away"),
            Err(Stopped::Failed(why)) => {
                tracing::error!(%why, "the backup failed");
                drop(parts.send(Part::Failed(why)).await);
            }
        }
        drop(core.series.copy(SeriesStep::End).await);
        drop(core.copy(CopyStep::End).await);
        drop(place);
    });
    Ok(outgoing)
}

/// Why a copy is over.
enum Stopped {
    /// Nobody takes it any more.
    Gone,
    Failed(String),
}

impl From<String> for Stopped {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

async fn copy(core: &Rc<Core>, parts: &mpsc::Sender<Part>) -> Result<(), Stopped> {
    // Readings whose route has an interval are acknowledged at once and wait in memory. When the flash takes none now
    // they stay there, as they would at a power cut.
    drop(timeout(FLUSH_TIMEOUT, collections::flush(core)).await);
    core.series.copy(SeriesStep::Begin).await?;
    core.copy(CopyStep::Begin).await?;
    let mut damaged = 0;
    for _ in 0..PASSES_MAX {
        loop {
            let bite = core.series.copy(SeriesStep::Next(BITE_BYTES)).await?;
            damaged += bite.damaged.len() as u64;
            send(parts, Part::Series(bite.entries)).await?;
            if bite.caught_up {
                break;
            }
        }
        let mut bites = 0u32;
        loop {
            let copied = core.copy(CopyStep::Next(BITE_BYTES)).await?;
            send(parts, Part::Store(copied.bite.entries)).await?;
            if copied.bite.caught_up {
                break;
            }
            bites = bites.saturating_add(1);
        }
        if bites < 2 {
            break;
        }
    }
    let (release, hold) = std::sync::mpsc::channel();
    let series = core.series.copy(SeriesStep::Last(hold)).await?;
    let rest = core.copy(CopyStep::Last).await?;
    // When the collections did not wait, rows may be settled in the one copy that the other lacks.
    release.send(()).map_err(|_| "the flash took too long".to_owned())?;
    let mut state = rest.state.ok_or_else(|| "the copy has no end".to_owned())?;
    state.damaged += damaged + series.damaged.len() as u64;
    let ending = Ending { state, clean: false, taken_at_ms: wall_ms(core) };
    send(parts, Part::Series(series.entries)).await?;
    send(parts, Part::Store(rest.bite.entries)).await?;
    send(parts, Part::End(ending)).await
}

async fn send(parts: &mpsc::Sender<Part>, part: Part) -> Result<(), Stopped> {
    parts.send(part).await.map_err(|_| Stopped::Gone)
}

fn wall_ms(core: &Core) -> i64 {
    i64::try_from(core.clock.get().now().wall.0).unwrap_or(i64::MAX)
}

/// The writer's thread: checksums and the archive's form.
fn write(mut parts: mpsc::Receiver<Part>, pieces: &mpsc::Sender<Piece>, began_at_ms: i64) {
    let written = (|| {
        let mut writer = Writer::new(Pieces { pieces, piece: Vec::new() }, began_at_ms)?;
        while let Some(part) = parts.blocking_recv() {
            match part {
                Part::Store(entries) => writer.store(&entries)?,
                Part::Series(entries) => writer.series(&entries)?,
                Part::End(ending) => return writer.finish(&ending)?.flush(),
                Part::Failed(why) => return Err(io::Error::other(why)),
            }
        }
        Err(io::Error::other("the gateway is stopping"))
    })();
    if let Err(error) = written {
        // An answer that breaks off must not look whole; or nobody takes it any more.
        drop(pieces.blocking_send(Err(Failure { status: 503, why: error.to_string() })));
    }
}

/// Sends what is written on, in pieces.
struct Pieces<'p> {
    pieces: &'p mpsc::Sender<Piece>,
    piece: Vec<u8>,
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.piece);
        if piece.is_empty() {
            return Ok(());
        }
        self.pieces.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
