//! A chunk: readings of one series that follow each other, packed column by column.
//!
//! Every document is taken apart into a skeleton and its values (`document`); the values that stand at one place of
//! one skeleton are a column (`column`). The payloads come back byte for byte.
//!
//! ```text
//! chunk: version (byte, 1), CRC-32 of what follows (4 bytes LE), flags (byte: 1 estimated, 2 identities),
//!        count (LEB128), [start of the gateway (LEB128), if estimated], last time - start (LEB128), column of times - start,
//!        count of skeletons (LEB128), skeletons (bytes each), [column of their numbers, if more than one],
//!        for each skeleton, for each of its values: a column, [identities: texts]
//! ```
//!
//! Its start, the time of its first reading, is in its key. Times are milliseconds since 1970.

use super::column::{Column, TEXT_BYTES_MAX, Texts};
use super::document::{NUMBER, Payload, STRING, WHOLE, WORD, split, unescape};
use super::integers;
use super::path::{Found, Path, find};
use crate::collections::{self, Map};
use crate::message::record::{Reader, put_bytes, put_integer};

/// Readings in one chunk.
pub(super) const READINGS_MAX: usize = 4096;
/// Bytes of a chunk, unless a single reading has more: with its key it fills a page of 4 KiB.
pub(super) const BYTES_MAX: usize = 3_700;
/// Skeletons of one chunk; documents beyond them are stored whole.
const SKELETONS_MAX: usize = 64;
/// Payload bytes that one chunk is made of, unless a single reading has more.
const PAYLOAD_BYTES_MAX: usize = 256 << 10;

const VERSION: u8 = 1;
const HEAD: usize = 5;
const ESTIMATED: u8 = 1;
const IDENTITIES: u8 = 2;

/// A reading on its way into a chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub time: i64,
    pub payload: bytes::Bytes,
    /// Which series it belongs to, where the chunk's series is shared.
    pub identity: Option<bytes::Bytes>,
}

/// What stands before a chunk's columns: enough to pass it by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Summary {
    pub readings: usize,
    /// Milliseconds from the first to the last reading.
    pub span: i64,
    /// Number of the start whose clock was not trusted, if the times are estimates.
    pub estimated: Option<u32>,
}

/// A chunk that was packed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Packed {
    pub start: i64,
    pub summary: Summary,
    pub bytes: Vec<u8>,
}

/// A chunk that was read.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub times: Vec<i64>,
    pub estimated: Option<u32>,
    shapes: Vec<Shape>,
    /// For each reading its shape and its place in that shape's columns.
    places: Vec<(u16, u32)>,
    identities: Option<Texts>,
}

/// Documents of one skeleton.
#[derive(Clone, Debug)]
struct Shape {
    skeleton: Vec<u8>,
    columns: Vec<Column>,
    readings: usize,
}

/// The texts at each place of a skeleton.
type SlotTexts<'a> = Vec<Vec<&'a [u8]>>;

/// Where a path leads in each shape of a chunk.
#[derive(Clone, Debug)]
pub(super) struct Located(Vec<Site>);

#[derive(Clone, Debug)]
enum Site {
    Nowhere,
    Found(Found),
    /// The documents are stored whole and looked into one by one.
    Within,
}

/// A field of one reading.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Field<'a> {
    Number(f64),
    /// A string, or a payload that is no JSON.
    Text(std::borrow::Cow<'a, str>),
    /// `true` or `false`.
    Truth(bool),
    Null,
    /// An object or an array: there, but no value.
    Whole,
}

impl Chunk {
    /// Takes rows apart, which are in order of time.
    pub fn of(rows: &[Row], estimated: Option<u32>) -> Self {
        let mut known: Map<Vec<u8>, u16> = collections::map(0);
        let mut shapes: Vec<(Vec<u8>, SlotTexts<'_>)> = Vec::new();
        let mut places = Vec::with_capacity(rows.len());
        let (mut skeleton, mut slots) = (Vec::new(), Vec::new());
        for row in rows {
            split(&row.payload, &mut skeleton, &mut slots);
            if shapes.len() >= SKELETONS_MAX && !known.contains_key(&skeleton) {
                skeleton.clear();
                skeleton.push(WHOLE);
                slots.clear();
                slots.push(super::document::Slot { kind: WHOLE, text: &row.payload });
            }
            let shape = match known.get(&skeleton) {
                Some(shape) => *shape,
                None => {
                    let shape = u16::try_from(shapes.len()).unwrap_or(u16::MAX);
                    known.insert(skeleton.clone(), shape);
                    shapes.push((skeleton.clone(), vec![Vec::new(); slots.len()]));
                    shape
                }
            };
            let Some((_, columns)) = shapes.get_mut(usize::from(shape)) else { continue };
            let place = columns.first().map_or(0, Vec::len);
            for (column, slot) in columns.iter_mut().zip(&slots) {
                column.push(slot.text);
            }
            places.push((shape, u32::try_from(place).unwrap_or(u32::MAX)));
        }
        let shapes = shapes.into_iter().map(|(skeleton, columns)| Shape::of(skeleton, &columns, rows.len()));
        let mut chunk = Self {
            times: rows.iter().map(|row| row.time).collect(),
            estimated,
            shapes: shapes.collect(),
            places,
            identities: None,
        };
        for shape in 0..chunk.shapes.len() {
            let readings = chunk.places.iter().filter(|(of, _)| usize::from(*of) == shape).count();
            if let Some(shape) = chunk.shapes.get_mut(shape) {
                shape.readings = readings;
            }
        }
        if rows.iter().any(|row| row.identity.is_some()) {
            let identities: Vec<&[u8]> =
                rows.iter().map(|row| row.identity.as_deref().unwrap_or(&[])).collect();
            chunk.identities = Some(Texts::of(&identities));
        }
        chunk
    }

    /// The stored form.
    fn pack(&self) -> Packed {
        let start = self.times.first().copied().unwrap_or(0);
        let span = self.times.last().map_or(0, |last| last.wrapping_sub(start).max(0));
        let mut out = vec![VERSION, 0, 0, 0, 0];
        let mut flags = 0;
        if self.estimated.is_some() {
            flags |= ESTIMATED;
        }
        if self.identities.is_some() {
            flags |= IDENTITIES;
        }
        out.push(flags);
        put_integer(&mut out, self.times.len() as u64);
        if let Some(start) = self.estimated {
            put_integer(&mut out, u64::from(start));
        }
        put_integer(&mut out, span.cast_unsigned());
        let offsets: Vec<i64> = self.times.iter().map(|time| time.wrapping_sub(start)).collect();
        integers::put(&mut out, &offsets);
        put_integer(&mut out, self.shapes.len() as u64);
        for shape in &self.shapes {
            put_bytes(&mut out, &shape.skeleton);
        }
        if self.shapes.len() > 1 {
            let shapes: Vec<i64> = self.places.iter().map(|(shape, _)| i64::from(*shape)).collect();
            integers::put(&mut out, &shapes);
        }
        for column in self.shapes.iter().flat_map(|shape| &shape.columns) {
            column.put(&mut out);
        }
        if let Some(identities) = &self.identities {
            identities.put(&mut out);
        }
        let crc = crc32fast::hash(out.get(HEAD..).unwrap_or_default());
        if let Some(place) = out.get_mut(1..HEAD) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        let summary = Summary { readings: self.times.len(), span, estimated: self.estimated };
        Packed { start, summary, bytes: out }
    }

    /// Reads a chunk. `None` when the bytes are none, or damaged.
    pub fn read(start: i64, bytes: &[u8]) -> Option<Self> {
        let (summary, identities, mut reader) = head(bytes)?;
        let count = summary.readings;
        let offsets = integers::read(&mut reader, count)?;
        let mut room = TEXT_BYTES_MAX;
        let mut shapes = Vec::new();
        let skeletons = reader.integer()?;
        if skeletons > SKELETONS_MAX as u64 + 1 {
            return None;
        }
        for _ in 0..skeletons {
            let skeleton = reader.bytes()?.to_vec();
            shapes.push(Shape { skeleton, columns: Vec::new(), readings: 0 });
        }
        let numbers = if shapes.len() > 1 { integers::read(&mut reader, count)? } else { vec![0; count] };
        let mut places = Vec::with_capacity(count);
        for number in numbers {
            let number = u16::try_from(number).ok()?;
            let shape = shapes.get_mut(usize::from(number))?;
            places.push((number, u32::try_from(shape.readings).ok()?));
            shape.readings += 1;
        }
        for shape in &mut shapes {
            let slots =
                shape.skeleton.iter().filter(|byte| matches!(**byte, NUMBER | STRING | WORD | WHOLE)).count();
            for _ in 0..slots {
                shape.columns.push(Column::read(&mut reader, shape.readings, &mut room)?);
            }
        }
        let identities = if identities {
            let kind = reader.byte()?;
            Some(Texts::read(&mut reader, kind, count, &mut room)?)
        } else {
            None
        };
        let times = offsets.into_iter().map(|offset| start.wrapping_add(offset)).collect();
        reader.is_empty().then_some(Self { times, estimated: summary.estimated, shapes, places, identities })
    }

    /// Number of readings.
    pub const fn len(&self) -> usize {
        self.times.len()
    }

    /// Appends the payload of reading `at`, as it came.
    pub fn payload(&self, at: usize, out: &mut Vec<u8>) {
        let Some((shape, place)) = self.place(at) else { return };
        let mut columns = shape.columns.iter();
        let mut copied = 0;
        for (position, byte) in shape.skeleton.iter().enumerate() {
            if !matches!(*byte, NUMBER | STRING | WORD | WHOLE) {
                continue;
            }
            out.extend_from_slice(shape.skeleton.get(copied..position).unwrap_or_default());
            copied = position + 1;
            let Some(column) = columns.next() else { return };
            if *byte == STRING {
                out.push(b'"');
                column.write(place, out);
                out.push(b'"');
            } else {
                column.write(place, out);
            }
        }
        out.extend_from_slice(shape.skeleton.get(copied..).unwrap_or_default());
    }

    /// Which series reading `at` belongs to, where the chunk's series is shared.
    pub fn identity(&self, at: usize) -> Option<&[u8]> {
        Some(self.identities.as_ref()?.at(at))
    }

    /// Where `path` leads in this chunk.
    pub fn locate(&self, path: &Path) -> Located {
        let site = |shape: &Shape| {
            if shape.skeleton.first() == Some(&WHOLE) {
                return Site::Within;
            }
            find_field(&shape.skeleton, path).map_or(Site::Nowhere, Site::Found)
        };
        Located(self.shapes.iter().map(site).collect())
    }

    /// The field of reading `at`.
    pub fn field(&self, at: usize, located: &Located, path: &Path) -> Option<Field<'_>> {
        let (number, _) = *self.places.get(at)?;
        let (shape, place) = self.place(at)?;
        match located.0.get(usize::from(number))? {
            Site::Nowhere => None,
            Site::Found(found) => Some(match found.kind {
                super::path::Kind::Object | super::path::Kind::Array => Field::Whole,
                super::path::Kind::Number => {
                    Field::Number(shape.columns.get(found.slot)?.number(place).unwrap_or(f64::NAN))
                }
                super::path::Kind::String => string_field(shape.columns.get(found.slot)?.texts()?.at(place)),
                super::path::Kind::Word => word(shape.columns.get(found.slot)?.texts()?.at(place)),
            }),
            Site::Within => within(shape.columns.first()?.texts()?.at(place), path),
        }
    }

    /// All values of the field as numbers, when every reading has it as one: the quick way for sums.
    pub fn numbers(&self, located: &Located) -> Option<Vec<f64>> {
        let ([shape], [Site::Found(found)]) = (self.shapes.as_slice(), located.0.as_slice()) else {
            return None;
        };
        match shape.columns.get(found.slot)? {
            Column::Numbers(numbers) => numbers.all(),
            Column::Texts(_) => None,
        }
    }

    /// True when no reading of this chunk has the path, as far as its skeletons tell.
    pub fn is_nowhere(&self, located: &Located) -> bool {
        located.0.iter().all(|site| matches!(site, Site::Nowhere))
    }

    /// The chunk's readings again as rows.
    pub fn rows(&self) -> Vec<Row> {
        let mut payload = Vec::new();
        (0..self.len())
            .map(|at| {
                payload.clear();
                self.payload(at, &mut payload);
                Row {
                    time: self.times.get(at).copied().unwrap_or(0),
                    payload: bytes::Bytes::copy_from_slice(&payload),
                    identity: self.identity(at).map(bytes::Bytes::copy_from_slice),
                }
            })
            .collect()
    }

    fn place(&self, at: usize) -> Option<(&Shape, usize)> {
        let (shape, place) = self.places.get(at)?;
        Some((self.shapes.get(usize::from(*shape))?, usize::try_from(*place).ok()?))
    }
}

impl Shape {
    fn of(skeleton: Vec<u8>, columns: &[Vec<&[u8]>], readings: usize) -> Self {
        let kinds = skeleton.iter().filter(|byte| matches!(**byte, NUMBER | STRING | WORD | WHOLE));
        let columns = kinds
            .zip(columns)
            .map(
                |(kind, texts)| {
                    if *kind == NUMBER { Column::of_numbers(texts) } else { Column::of_texts(texts) }
                },
            )
            .collect();
        Self { skeleton, columns, readings }
    }
}

/// Packs rows, which are in order of time, into as many chunks as it takes.
pub(super) fn pack(rows: &[Row], estimated: Option<u32>) -> Vec<Packed> {
    let mut packed = Vec::new();
    let mut rest = rows;
    let mut count = READINGS_MAX;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take_while(|row| {
            bytes += row.payload.len();
            bytes <= PAYLOAD_BYTES_MAX
        });
        count = count.min(fits.count().max(1));
        let (now, later) = rest.split_at(count.min(rest.len()));
        let chunk = Chunk::of(now, estimated).pack();
        if chunk.bytes.len() > BYTES_MAX && now.len() > 1 {
            // As many as should fit, a little fewer.
            count = (now.len() * BYTES_MAX / chunk.bytes.len() * 15 / 16).clamp(1, now.len() - 1);
            continue;
        }
        packed.push(chunk);
        rest = later;
        count = READINGS_MAX;
    }
    packed
}

/// What a chunk says of itself before its columns, whether the rest of it verifies or not.
pub(super) fn peek(bytes: &[u8]) -> Option<Summary> {
    body(bytes.get(HEAD..)?).map(|(summary, ..)| summary)
}

/// What a chunk says of itself before its columns; `None` when it is none, or damaged.
pub(super) fn summary(bytes: &[u8]) -> Option<Summary> {
    head(bytes).map(|(summary, ..)| summary)
}

fn head(bytes: &[u8]) -> Option<(Summary, bool, Reader<'_>)> {
    let (head, body) = bytes.split_at_checked(HEAD)?;
    let (version, crc) = head.split_first()?;
    if *version != VERSION || crc != crc32fast::hash(body).to_le_bytes() {
        return None;
    }
    self::body(body)
}

fn body(bytes: &[u8]) -> Option<(Summary, bool, Reader<'_>)> {
    let mut reader = Reader::new(bytes);
    let flags = reader.byte()?;
    let readings = usize::try_from(reader.integer()?).ok().filter(|readings| *readings <= READINGS_MAX)?;
    let estimated = if flags & ESTIMATED != 0 { Some(reader.integer32()?) } else { None };
    let span = i64::try_from(reader.integer()?).ok()?;
    Some((Summary { readings, span, estimated }, flags & IDENTITIES != 0, reader))
}

/// The field at `path` of a document or skeleton: what is no object has one field, `payload`.
fn find_field(text: &[u8], path: &Path) -> Option<Found> {
    let is_object = text.iter().find(|byte| !matches!(**byte, b' ' | b'\t' | b'\n' | b'\r')) == Some(&b'{');
    if is_object {
        return find(text, path.segments());
    }
    let (first, rest) = path.segments().split_first()?;
    if &**first == "payload" { find(text, rest) } else { None }
}

fn within<'a>(payload: &'a [u8], path: &Path) -> Option<Field<'a>> {
    match Payload::of(payload) {
        Payload::Object(text) | Payload::Json(text) => {
            let found = find_field(text.as_bytes(), path)?;
            let value = text.get(found.start..found.end)?;
            Some(match found.kind {
                super::path::Kind::Object | super::path::Kind::Array => Field::Whole,
                super::path::Kind::Number => Field::Number(value.parse().unwrap_or(f64::NAN)),
                super::path::Kind::String => string_field(
                    payload.get(found.start + 1..found.end.saturating_sub(1)).unwrap_or_default(),
                ),
                super::path::Kind::Word => word(value.as_bytes()),
            })
        }
        Payload::Text(text, _) => (path.single() == Some("payload")).then(|| Field::Text(text.into())),
        Payload::Binary(_) => (path.single() == Some("payload")).then_some(Field::Whole),
    }
}

/// A string by what stands between its quotes.
fn string_field(inside: &[u8]) -> Field<'_> {
    if inside.contains(&b'\\') {
        return Field::Text(unescape(inside).into());
    }
    Field::Text(String::from_utf8_lossy(inside))
}

fn word<'a>(text: &[u8]) -> Field<'a> {
    match text {
        b"true" => Field::Truth(true),
        b"false" => Field::Truth(false),
        _ => Field::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use bytes::Bytes;

    fn row(time: i64, payload: &str) -> Row {
        Row { time, payload: Bytes::copy_from_slice(payload.as_bytes()), identity: None }
    }

    fn below(random: &mut Random, bound: u64) -> usize {
        usize::try_from(random.below(bound)).unwrap()
    }

    /// A JSON text of any form.
    fn document(random: &mut Random, depth: u64) -> String {
        let space = ["", " ", "\n\t"][below(random, 3)];
        match random.below(if depth == 0 { 5 } else { 8 }) {
            0 => format!("{}", random.below(1000)),
            1 => format!("{:.2}", random.below(100_000) as f64 / 100.0),
            2 => ["true", "false", "null", "-0", "1e-7", "12345678901234567890123"][below(random, 6)]
                .to_owned(),
            3 => format!("\"{}\"", ["on", "off", "a\\\"b", "\\u00e9", "\u{e9}", ""][below(random, 6)]),
            4 => format!("\"2026-11-29T{:02}:00Z\"", random.below(24)),
            5 => {
                let items: Vec<_> = (0..random.below(3)).map(|_| document(random, depth - 1)).collect();
                format!("[{space}{}]", items.join(", "))
            }
            _ => {
                let names = ["value", "unit", "a.b", "_topic", "value"];
                let members: Vec<_> = (0..random.below(4))
                    .map(|_| {
                        let name = names[below(random, 5)];
                        format!("\"{name}\":{space}{}", document(random, depth - 1))
                    })
                    .collect();
                format!("{{{}{space}}}", members.join(","))
            }
        }
    }

    #[test]
    fn any_readings_come_back_byte_for_byte() {
        let mut random = Random::new(11);
        for round in 0..400u64 {
            let mut time = random.below(1 << 41).cast_signed();
            let rows: Vec<Row> = (0..random.below(300))
                .map(|_| {
                    time += random.below(if round % 3 == 0 { 2 } else { 100_000 }).cast_signed();
                    let payload = match random.below(12) {
                        0 => (0..random.below(40)).map(|_| (random.next() & 0xff) as u8).collect::<Vec<_>>(),
                        1 => b"{\"value\": NaN}".to_vec(),
                        2..=6 => format!(
                            "{{\"value\": {}.{}, \"unit\": \"C\"}}",
                            random.below(40),
                            random.below(10)
                        )
                        .into_bytes(),
                        _ => document(&mut random, 3).into_bytes(),
                    };
                    let identity = (round % 5 == 0).then(|| Bytes::from(format!("t{}", random.below(9))));
                    Row { time, payload: payload.into(), identity }
                })
                .collect();
            let estimated = (round % 7 == 0).then_some(3);
            let mut back = Vec::new();
            for packed in pack(&rows, estimated) {
                assert_eq!(summary(&packed.bytes), Some(packed.summary));
                assert!(packed.bytes.len() <= BYTES_MAX || packed.summary.readings == 1);
                let chunk = Chunk::read(packed.start, &packed.bytes).expect("it was just packed");
                assert_eq!(chunk.estimated, estimated);
                back.extend(chunk.rows());
            }
            assert_eq!(back, rows);
        }
    }

    #[test]
    fn damage_is_noticed() {
        let rows: Vec<Row> = (0..100).map(|n| row(n * 1000, &format!("{{\"v\":{n}.5}}"))).collect();
        let packed = pack(&rows, None).remove(0);
        for at in 0..packed.bytes.len() {
            for bit in 0..8 {
                let mut bytes = packed.bytes.clone();
                bytes[at] ^= 1 << bit;
                assert!(Chunk::read(packed.start, &bytes).is_none(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn bytes_with_a_right_checksum_that_are_no_chunk_are_survived() {
        let rows: Vec<Row> =
            (0..40).map(|n| row(n, &document(&mut Random::new(n.cast_unsigned()), 3))).collect();
        let packed = pack(&rows, Some(1)).remove(0);
        let mut random = Random::new(12);
        for _ in 0..30_000 {
            let mut bytes = packed.bytes.clone();
            for _ in 0..=random.below(3) {
                let at = HEAD + below(&mut random, (bytes.len() - HEAD) as u64);
                bytes[at] = (random.next() & 0xff) as u8;
            }
            let crc = crc32fast::hash(&bytes[HEAD..]).to_le_bytes();
            bytes[1..HEAD].copy_from_slice(&crc);
            if let Some(chunk) = Chunk::read(0, &bytes) {
                let located = chunk.locate(&Path::parse("value").unwrap());
                for at in 0..chunk.len() {
                    chunk.payload(at, &mut Vec::new());
                    chunk.field(at, &located, &Path::parse("value").unwrap());
                }
            }
        }
    }

    #[test]
    fn fields_are_read_from_columns_and_from_whole_documents() {
        let path = Path::parse("value").unwrap();
        let rows =
            [row(0, "{\"value\": 27.3, \"unit\": \"C\"}"), row(1, "{\"value\": \"x\"}"), row(2, "18.9")];
        let chunk = Chunk::of(&rows, None);
        let located = chunk.locate(&path);
        assert_eq!(chunk.field(0, &located, &path), Some(Field::Number(27.3)));
        assert_eq!(chunk.field(1, &located, &path), Some(Field::Text("x".into())));
        assert_eq!(chunk.field(2, &located, &path), None);
        let payload = Path::parse("payload").unwrap();
        let located = chunk.locate(&payload);
        assert_eq!(chunk.field(2, &located, &payload), Some(Field::Number(18.9)));
        let large = format!("{{\"value\": 5, \"many\": [{}0]}}", "0,".repeat(300));
        let chunk = Chunk::of(&[row(0, &large), row(1, "no json")], None);
        let located = chunk.locate(&path);
        assert_eq!(chunk.field(0, &located, &path), Some(Field::Number(5.0)));
        let located = chunk.locate(&payload);
        assert_eq!(chunk.field(1, &located, &payload), Some(Field::Text("no json".into())));
    }

    /// Bytes a reading, without the page it lies in, of the kinds of streams that the note measured.
    #[test]
    fn ordinary_streams_are_small() {
        let mut random = Random::new(13);
        let mut value = 215i64;
        let mut at = 1_764_000_000_000i64;
        let mut stream = |make: &mut dyn FnMut(&mut Random) -> String| {
            let rows: Vec<Row> = (0..4096)
                .map(|_| {
                    at += 980 + random.below(41).cast_signed();
                    row(at, &make(&mut random))
                })
                .collect();
            let bytes: usize = pack(&rows, None).iter().map(|packed| packed.bytes.len()).sum();
            bytes as f64 / 4096.0
        };
        let temperature = stream(&mut |random| {
            value += random.below(3).cast_signed() - 1;
            format!("{{\"value\": {}.{}, \"unit\": \"C\"}}", value / 10, value % 10)
        });
        let power =
            stream(&mut |random| format!("{{\"w\": {:.2}}}", 1500.0 + random.below(40_000) as f64 / 100.0));
        let status = stream(&mut |random| {
            format!("{{\"s\": \"{}\"}}", if random.below(50) == 0 { "fail" } else { "ok" })
        });
        assert!(temperature < 1.2, "{temperature}");
        assert!(power < 3.0, "{power}");
        assert!(status < 1.1, "{status}");
    }
}
