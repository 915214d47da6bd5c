//! The payload of a journal record: one batch.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | bytes of the rows that follow, u32 little-endian |
//! | | the row pieces (`row`), one after the other, ascending keys |
//! | varint | lowest key that is still needed, 0 when the batch gave no hint |
//! | varint | number of deletes |
//! | | for each delete, ascending: varint of the key's distance from the end of the one before, varint of its pieces |
//!
//! Varints are LEB128, unsigned. Rows come first so that whole rows are found in a record of which pages are lost.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::batch::{Batch, Place};
use super::fields::{put_varint, take_varint, u32_at};
use super::page::RecordWriter;
use super::row::Piece;
use crate::ids::RowKey;

/// Lays a batch out as a record.
pub(super) fn write(batch: &Batch, writer: &mut RecordWriter) {
    writer.clear();
    let rows = batch.pieces.iter().fold(0usize, |sum, (_, piece)| sum.saturating_add(piece.len()));
    writer.push(&u32::try_from(rows).unwrap_or(u32::MAX).to_le_bytes());
    for (_, piece) in &batch.pieces {
        writer.push(piece);
    }
    writer.push(&deletes(batch));
}

/// Upper bound of the payload of a batch, without laying it out.
pub(super) fn payload_bytes_max(batch: &Batch) -> usize {
    let rows = batch.pieces.iter().fold(0usize, |sum, (_, piece)| sum.saturating_add(piece.len()));
    rows.saturating_add(4 + 10 + 10).saturating_add(batch.deletes.len().saturating_mul(13))
}

fn deletes(batch: &Batch) -> Vec<u8> {
    let mut places = batch.deletes.clone();
    places.sort_unstable_by_key(|place| place.key);
    let mut out = Vec::with_capacity(places.len().saturating_mul(3).saturating_add(20));
    put_varint(&mut out, batch.min_live_key.map_or(0, |key| key.0));
    put_varint(&mut out, places.len() as u64);
    let mut end = 0u64;
    for place in places {
        // Overlapping deletes say nothing new; a distance of zero keeps them readable.
        put_varint(&mut out, place.key.0.saturating_sub(end));
        put_varint(&mut out, u64::from(place.pieces));
        end = end.max(place.key.0).saturating_add(u64::from(place.pieces));
    }
    out
}

/// What a whole record says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content<'a> {
    rows: &'a [u8],
    pub(super) deletes: Vec<Place>,
    pub(super) min_live_key: Option<RowKey>,
}

impl<'a> Content<'a> {
    /// Reads a payload. `None` when it is no batch.
    pub(super) fn read(payload: &'a [u8]) -> Option<Self> {
        let rows_len = usize::try_from(u32_at(payload, 0)?).ok()?;
        let (rows, mut rest) = payload.get(4..)?.split_at_checked(rows_len)?;
        let min_live_key = match take_varint(&mut rest)? {
            0 => None,
            key => Some(RowKey(key)),
        };
        let count = take_varint(&mut rest)?;
        let mut deletes = Vec::with_capacity(usize::try_from(count).ok()?.min(rest.len()));
        let mut end = 0u64;
        for _ in 0..count {
            let key = RowKey(end.checked_add(take_varint(&mut rest)?)?);
            let pieces = u16::try_from(take_varint(&mut rest)?).ok()?;
            end = key.0.checked_add(u64::from(pieces))?;
            deletes.push(Place { key, pieces });
        }
        Some(Self { rows, deletes, min_live_key })
    }

    /// The row pieces, encoded. Stops at one that does not verify.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Piece<'a>, &'a [u8])> {
        let mut rest = self.rows;
        std::iter::from_fn(move || {
            let piece = Piece::read(rest)?;
            let (bytes, later) = rest.split_at_checked(piece.len)?;
            rest = later;
            Some((piece, bytes))
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::ids::BatchNumber;
    use crate::store::batch::BatchBuilder;
    use crate::store::disk::PAGE_BYTES;
    use crate::store::page::RecordPage;

    fn payload(batch: &Batch) -> Vec<u8> {
        let mut writer = RecordWriter::default();
        write(batch, &mut writer);
        let record = writer.finish(batch.number).unwrap();
        record.chunks(PAGE_BYTES).flat_map(|page| RecordPage::read(page).unwrap().1.to_vec()).collect()
    }

    #[test]
    fn a_batch_reads_back() {
        let mut builder = BatchBuilder::new(BatchNumber(8));
        builder.push(3, &[1; 10_000]);
        builder.push(4, b"x");
        for key in [70_000, 70_001, 5, 1 << 40] {
            builder.delete(Place { key: RowKey(key), pieces: 1 });
        }
        builder.set_min_live_key(RowKey(5));
        let batch = builder.finish();
        let payload = payload(&batch);
        assert!(payload.len() <= payload_bytes_max(&batch));
        let content = Content::read(&payload).unwrap();
        let keys: Vec<_> = content.deletes.iter().map(|place| place.key.0).collect();
        assert_eq!(keys, [5, 70_000, 70_001, 1 << 40]);
        assert_eq!(content.min_live_key, Some(RowKey(5)));
        let pieces: Vec<_> =
            content.pieces().map(|(piece, bytes)| (piece.key, Bytes::copy_from_slice(bytes))).collect();
        assert_eq!(pieces, batch.pieces);
        for cut in 0..payload.len() {
            assert_eq!(Content::read(payload.get(..cut).unwrap_or_default()), None);
        }
    }
}
