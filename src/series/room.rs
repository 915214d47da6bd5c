//! Room in `series.redb` for what a flush stores: the oldest chunks end in transactions of their own before it, so that
//! the file's cap never keeps newer readings out. Leaves to `change` how a chunk ends.

use super::change::{REMOVALS_MAX, usable_bytes};
use super::store::{FlushTo, SeriesStore};
use crate::store::StoreError;

/// A flush that the cap refuses ends so many bytes of the oldest chunks at first, and twice as many each time.
const ROOM_BYTES_MIN: u64 = 1 << 20;
/// When no chunk is left, this many times half of its own readings that remain, the oldest.
const HALVINGS_MAX: u32 = 32;
/// What is freed beyond need, so that not every flush has to: this part of what fits.
const SPARE: u64 = 16;

/// Stores the readings of `parts`, and makes room before if they need some.
pub(super) fn flush(
    store: &mut SeriesStore,
    now_ms: Option<i64>,
    parts: &[FlushTo],
) -> Result<(), StoreError> {
    let usable = usable_bytes(store.file_bytes_max());
    let due = store.due_bytes(parts).min(usable / 2);
    if chunk_bytes(store) + due > usable {
        keep_newest(store, usable - due - usable / SPARE)?;
    }
    let mut room = due.max(ROOM_BYTES_MIN);
    let mut halvings = 0;
    let mut is_whole = false;
    loop {
        let Err(error) = store.try_flush(now_ms, parts, halvings) else { return Ok(()) };
        if !store.is_capped() || !store.is_open() {
            return Err(error);
        }
        if !std::mem::replace(&mut is_whole, true) {
            // It has been opened again with all the length that the cap allows.
            continue;
        }
        let stored = chunk_bytes(store);
        if stored > 0 {
            keep_newest(store, stored.saturating_sub(room))?;
            // What a transaction frees is of use to the one after the next.
            store.transact(|_, _| Ok(()))?;
            room = room.saturating_mul(2);
        } else if halvings < HALVINGS_MAX {
            halvings += 1;
        } else {
            return Err(error);
        }
    }
}

fn chunk_bytes(store: &SeriesStore) -> u64 {
    store.series().map(|(_, series)| series.extent.bytes).sum()
}

/// Ends the oldest chunks until there are no more bytes than `bytes_max`.
fn keep_newest(store: &mut SeriesStore, bytes_max: u64) -> Result<(), StoreError> {
    let mut removals = REMOVALS_MAX;
    loop {
        let before = chunk_bytes(store);
        if before <= bytes_max {
            return Ok(());
        }
        match store.transact(|change, rows| change.keep_newest(rows, bytes_max, removals)) {
            Ok(()) if chunk_bytes(store) == before => return Ok(()),
            Ok(()) => {}
            Err(error) => {
                // A smaller step needs fewer pages.
                let is_capped = store.is_capped();
                store.reopen()?;
                removals /= 8;
                if !is_capped || removals == 0 {
                    return Err(error);
                }
            }
        }
    }
}
