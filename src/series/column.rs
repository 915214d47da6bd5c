//! Columns of a chunk: the values that stood at one place of its documents.
//!
//! Numbers keep their text: `27.30` is a mantissa and a number of decimals. Mantissas are scaled to the column's most
//! decimals, so that they can be packed as integers; how many decimals each was written with is one number for the
//! column, follows from a rule (no trailing zeros), or is a column of its own. What is not such a decimal (exponents,
//! `-0`, twenty digits) stands beside them as text. Texts are a dictionary with references, or one after the other
//! without the beginning that each shares with the last.
//!
//! ```text
//! numbers: 0, style (byte), decimals (byte) [, column of decimals], column of mantissas, exceptions
//! floats:  1, style (byte), column of IEEE 754 bits, exceptions
//! exceptions: count, [column of positions, texts]
//! texts:   2, count of the dictionary, its texts (bytes each), column of references
//!          3, column of shared bytes, column of own bytes, own bytes of all
//! ```

use super::integers;
use crate::collections::{self, Map};
use crate::message::record::{Reader, put_bytes, put_integer};

/// Bytes of text that the columns of one chunk may make: the reader's guard.
pub(super) const TEXT_BYTES_MAX: usize = 64 << 20;
/// Digits of a mantissa.
const DIGITS_MAX: usize = 18;

/// The values of one place.
#[derive(Clone, Debug)]
pub(super) enum Column {
    Numbers(Numbers),
    Texts(Texts),
}

/// How many decimals a number is written with.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Decimals {
    /// All of them.
    Same(u8),
    /// As few as give the value, but at least `least`; mantissas are scaled to `most`.
    Fewest { least: u8, most: u8 },
    /// Each its own; mantissas are scaled to `most`.
    EachScaled { most: u8, decimals: Vec<i64> },
    /// Each its own; mantissas are as written.
    Each(Vec<i64>),
}

#[derive(Clone, PartialEq, Debug)]
enum Values {
    Scaled(Decimals, Vec<i64>),
    /// Written as the shortest text that gives the value; with `.0` for whole numbers when the flag is set.
    Floats(bool, Vec<f64>),
}

/// Numbers of one place, those that are no decimals beside them.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    values: Values,
    /// Positions, ascending.
    exceptions: Vec<i64>,
    exception_texts: Texts,
}

/// Texts of one place.
#[derive(Clone, Debug)]
pub(super) struct Texts {
    /// References into `entries`; empty when each text is its own entry.
    references: Vec<i64>,
    /// Ends of the entries in `bytes`.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Column {
    /// The column of these numbers as written.
    pub fn of_numbers(texts: &[&[u8]]) -> Self {
        Self::Numbers(Numbers::of(texts))
    }

    /// The column of these texts.
    pub fn of_texts(texts: &[&[u8]]) -> Self {
        Self::Texts(Texts::of(texts))
    }

    /// Appends the stored form.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Numbers(numbers) => numbers.put(out),
            Self::Texts(texts) => texts.put(out),
        }
    }

    /// Reads a column of `count` values. `room` is what its texts may take, and is lowered by it.
    pub fn read(reader: &mut Reader<'_>, count: usize, room: &mut usize) -> Option<Self> {
        match reader.byte()? {
            kind @ (0 | 1) => Numbers::read(reader, kind, count, room).map(Self::Numbers),
            kind @ (2 | 3) => Texts::read(reader, kind, count, room).map(Self::Texts),
            _ => None,
        }
    }

    /// The value as a number, if it is one that fits.
    pub fn number(&self, at: usize) -> Option<f64> {
        match self {
            Self::Numbers(numbers) => numbers.number(at),
            Self::Texts(_) => None,
        }
    }

    /// Appends the value as it was written.
    pub fn write(&self, at: usize, out: &mut Vec<u8>) {
        match self {
            Self::Numbers(numbers) => numbers.write(at, out),
            Self::Texts(texts) => out.extend_from_slice(texts.at(at)),
        }
    }

    /// The texts, where the column holds some.
    pub const fn texts(&self) -> Option<&Texts> {
        match self {
            Self::Numbers(_) => None,
            Self::Texts(texts) => Some(texts),
        }
    }
}

/// Mantissa and decimals of a number's text, if it is written as a plain decimal.
fn decimal(text: &[u8]) -> Option<(i64, u8)> {
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, text),
    };
    if digits.len() > DIGITS_MAX + 1 {
        return None;
    }
    let mut mantissa = 0i64;
    let mut decimals = None;
    let mut count = 0;
    for byte in digits {
        match byte {
            b'0'..=b'9' if count < DIGITS_MAX => {
                mantissa = mantissa * 10 + i64::from(byte - b'0');
                count += 1;
                decimals = decimals.map(|decimals: u8| decimals + 1);
            }
            b'.' if decimals.is_none() => decimals = Some(0),
            _ => return None,
        }
    }
    if negative && mantissa == 0 {
        return None;
    }
    Some((if negative { -mantissa } else { mantissa }, decimals.unwrap_or(0)))
}

/// The shortest text of `value`, with `.0` for whole numbers when `pointed`.
fn float_text(value: f64, pointed: bool) -> String {
    // Neither form has an exponent that JSON's writers would use, so values far from one are exceptions.
    if pointed && value.fract() == 0.0 { format!("{value:.1}") } else { format!("{value}") }
}

const fn power(exponent: u8) -> Option<i64> {
    10i64.checked_pow(exponent as u32)
}

impl Numbers {
    fn of(texts: &[&[u8]]) -> Self {
        let scaled = Self::of_decimals(texts);
        // Floats are tried where decimals do not line up.
        let uneven = matches!(&scaled.values, Values::Scaled(Decimals::Each(_), _));
        if !uneven && scaled.exceptions.len() * 8 <= texts.len() {
            return scaled;
        }
        let floats = Self::of_floats(texts);
        if floats.exceptions.len() < scaled.exceptions.len() || (uneven && floats.exceptions.is_empty()) {
            return floats;
        }
        scaled
    }

    fn of_decimals(texts: &[&[u8]]) -> Self {
        let (mut mantissas, mut decimals) =
            (Vec::with_capacity(texts.len()), Vec::with_capacity(texts.len()));
        let mut exceptions = Vec::new();
        let mut exception_texts = Vec::new();
        for (at, text) in (0i64..).zip(texts) {
            let (mantissa, places) = decimal(text).unwrap_or_else(|| {
                exceptions.push(at);
                exception_texts.push(*text);
                // Whatever packs well.
                (mantissas.last().copied().unwrap_or(0), decimals.last().copied().unwrap_or(0))
            });
            mantissas.push(mantissa);
            decimals.push(places);
        }
        Self {
            values: Self::scale(mantissas, decimals),
            exceptions,
            exception_texts: Texts::of(&exception_texts),
        }
    }

    fn scale(mantissas: Vec<i64>, decimals: Vec<u8>) -> Values {
        let most = decimals.iter().copied().max().unwrap_or(0);
        if decimals.iter().all(|places| *places == most) {
            return Values::Scaled(Decimals::Same(most), mantissas);
        }
        let scaled: Option<Vec<i64>> = mantissas
            .iter()
            .zip(&decimals)
            .map(|(mantissa, places)| mantissa.checked_mul(power(most - places)?))
            .collect();
        let each = |decimals: Vec<u8>| decimals.into_iter().map(i64::from).collect();
        let Some(scaled) = scaled else { return Values::Scaled(Decimals::Each(each(decimals)), mantissas) };
        for least in [0, 1] {
            let fewest = |(mantissa, places): (&i64, &u8)| fewest(*mantissa, least, most) == *places;
            if scaled.iter().zip(&decimals).all(fewest) {
                return Values::Scaled(Decimals::Fewest { least, most }, scaled);
            }
        }
        Values::Scaled(Decimals::EachScaled { most, decimals: each(decimals) }, scaled)
    }

    fn of_floats(texts: &[&[u8]]) -> Self {
        let parse = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
        let written = |text: &[u8], pointed: bool| {
            parse(text).filter(|value| float_text(*value, pointed).as_bytes() == text)
        };
        let exceptions_of =
            |pointed: bool| texts.iter().filter(|text| written(text, pointed).is_none()).count();
        let pointed = exceptions_of(true) < exceptions_of(false);
        let mut values = Vec::with_capacity(texts.len());
        let mut exceptions = Vec::new();
        let mut exception_texts = Vec::new();
        for (at, text) in (0i64..).zip(texts) {
            let value = written(text, pointed).unwrap_or_else(|| {
                exceptions.push(at);
                exception_texts.push(*text);
                values.last().copied().unwrap_or(0.0)
            });
            values.push(value);
        }
        Self {
            values: Values::Floats(pointed, values),
            exceptions,
            exception_texts: Texts::of(&exception_texts),
        }
    }

    fn exception(&self, at: usize) -> Option<&[u8]> {
        if self.exceptions.is_empty() {
            return None;
        }
        let position = self.exceptions.binary_search(&i64::try_from(at).ok()?).ok()?;
        Some(self.exception_texts.at(position))
    }

    fn number(&self, at: usize) -> Option<f64> {
        if let Some(text) = self.exception(at) {
            return std::str::from_utf8(text).ok()?.parse().ok().filter(|value: &f64| value.is_finite());
        }
        match &self.values {
            Values::Floats(_, values) => values.get(at).copied(),
            Values::Scaled(decimals, mantissas) => {
                let mantissa = *mantissas.get(at)?;
                let places = match decimals {
                    Decimals::Same(most)
                    | Decimals::Fewest { most, .. }
                    | Decimals::EachScaled { most, .. } => *most,
                    Decimals::Each(decimals) => u8::try_from(*decimals.get(at)?).ok()?,
                };
                Some(scaled_value(mantissa, places))
            }
        }
    }

    /// All values as numbers, where each is one; the quick way for sums.
    pub fn all(&self) -> Option<Vec<f64>> {
        if !self.exceptions.is_empty() {
            return None;
        }
        Some(match &self.values {
            Values::Floats(_, values) => values.clone(),
            Values::Scaled(
                Decimals::Same(most) | Decimals::Fewest { most, .. } | Decimals::EachScaled { most, .. },
                mantissas,
            ) => mantissas.iter().map(|mantissa| scaled_value(*mantissa, *most)).collect(),
            Values::Scaled(Decimals::Each(decimals), mantissas) => mantissas
                .iter()
                .zip(decimals)
                .map(|(mantissa, places)| scaled_value(*mantissa, u8::try_from(*places).unwrap_or(0)))
                .collect(),
        })
    }

    fn write(&self, at: usize, out: &mut Vec<u8>) {
        if let Some(text) = self.exception(at) {
            out.extend_from_slice(text);
            return;
        }
        match &self.values {
            Values::Floats(pointed, values) => {
                let value = values.get(at).copied().unwrap_or(0.0);
                out.extend_from_slice(float_text(value, *pointed).as_bytes());
            }
            Values::Scaled(decimals, mantissas) => {
                let mantissa = mantissas.get(at).copied().unwrap_or(0);
                let places =
                    |decimals: &[i64]| u8::try_from(decimals.get(at).copied().unwrap_or(0)).unwrap_or(0);
                match decimals {
                    Decimals::Same(most) => write_decimal(mantissa, *most, out),
                    Decimals::Each(each) => write_decimal(mantissa, places(each), out),
                    Decimals::Fewest { least, most } => {
                        let places = fewest(mantissa, *least, *most);
                        write_decimal(unscaled(mantissa, *most, places), places, out);
                    }
                    Decimals::EachScaled { most, decimals } => {
                        let places = places(decimals).min(*most);
                        write_decimal(unscaled(mantissa, *most, places), places, out);
                    }
                }
            }
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match &self.values {
            Values::Floats(pointed, values) => {
                out.extend([1, u8::from(*pointed)]);
                let bits: Vec<i64> = values.iter().map(|value| value.to_bits().cast_signed()).collect();
                integers::put(out, &bits);
            }
            Values::Scaled(decimals, mantissas) => {
                match decimals {
                    Decimals::Same(most) => out.extend([0, 0, *most]),
                    Decimals::Fewest { least, most } => out.extend([0, 1 + *least, *most]),
                    Decimals::EachScaled { most, decimals } => {
                        out.extend([0, 3, *most]);
                        integers::put(out, decimals);
                    }
                    Decimals::Each(decimals) => {
                        out.extend([0, 4, 0]);
                        integers::put(out, decimals);
                    }
                }
                integers::put(out, mantissas);
            }
        }
        put_integer(out, self.exceptions.len() as u64);
        if !self.exceptions.is_empty() {
            integers::put(out, &self.exceptions);
            self.exception_texts.put(out);
        }
    }

    fn read(reader: &mut Reader<'_>, kind: u8, count: usize, room: &mut usize) -> Option<Self> {
        let style = reader.byte()?;
        let values = if kind == 1 {
            let bits = integers::read(reader, count)?;
            Values::Floats(
                style != 0,
                bits.into_iter().map(|bits| f64::from_bits(bits.cast_unsigned())).collect(),
            )
        } else {
            let most = reader.byte().filter(|most| usize::from(*most) <= DIGITS_MAX)?;
            let decimals = match style {
                0 => Decimals::Same(most),
                1 | 2 => Decimals::Fewest { least: style - 1, most },
                3 => Decimals::EachScaled { most, decimals: read_decimals(reader, count)? },
                4 => Decimals::Each(read_decimals(reader, count)?),
                _ => return None,
            };
            Values::Scaled(decimals, integers::read(reader, count)?)
        };
        let exceptions = usize::try_from(reader.integer()?).ok().filter(|exceptions| *exceptions <= count)?;
        if exceptions == 0 {
            return Some(Self { values, exceptions: Vec::new(), exception_texts: Texts::of(&[]) });
        }
        let positions = integers::read(reader, exceptions)?;
        let kind = reader.byte()?;
        Some(Self {
            values,
            exceptions: positions,
            exception_texts: Texts::read(reader, kind, exceptions, room)?,
        })
    }
}

fn read_decimals(reader: &mut Reader<'_>, count: usize) -> Option<Vec<i64>> {
    let decimals = integers::read(reader, count)?;
    decimals.iter().all(|places| (0..=DIGITS_MAX as i64).contains(places)).then_some(decimals)
}

/// The fewest decimals, at least `least`, that give the mantissa of `most` decimals.
fn fewest(mantissa: i64, least: u8, most: u8) -> u8 {
    let (mut mantissa, mut places) = (mantissa, most);
    while places > least && mantissa % 10 == 0 {
        mantissa /= 10;
        places -= 1;
    }
    places
}

fn unscaled(mantissa: i64, most: u8, places: u8) -> i64 {
    mantissa / power(most.saturating_sub(places)).unwrap_or(i64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "the nearest number is what a reader of the text would take")]
fn scaled_value(mantissa: i64, places: u8) -> f64 {
    if places == 0 {
        return mantissa as f64;
    }
    if mantissa.unsigned_abs() > 1 << 53 {
        let mut text = Vec::new();
        write_decimal(mantissa, places, &mut text);
        return std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
    }
    // Both are exact up to 2^53 and 10^22, so the quotient is the number nearest to the decimal text.
    mantissa as f64 / 10f64.powi(i32::from(places))
}

/// Appends `mantissa` with a point before its last `places` digits.
fn write_decimal(mantissa: i64, places: u8, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 24];
    let mut value = mantissa.unsigned_abs();
    let mut at = digits.len();
    let least = usize::from(places) + 1;
    while value > 0 || digits.len() - at < least {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
        }
        value /= 10;
        if at == 0 {
            break;
        }
    }
    if mantissa < 0 {
        out.push(b'-');
    }
    let digits = digits.get(at..).unwrap_or_default();
    let (whole, fraction) = digits.split_at(digits.len() - usize::from(places).min(digits.len()));
    out.extend_from_slice(whole);
    if places > 0 {
        out.push(b'.');
        out.extend_from_slice(fraction);
    }
}

impl Texts {
    /// The column of these texts, as a dictionary where that is shorter.
    pub fn of(texts: &[&[u8]]) -> Self {
        let mut known: Map<&[u8], i64> = collections::map(0);
        let mut dictionary = Self { references: Vec::new(), ends: Vec::new(), bytes: Vec::new() };
        let mut plain_bytes = 0;
        for text in texts {
            let next = i64::try_from(known.len()).unwrap_or(i64::MAX);
            let reference = *known.entry(text).or_insert(next);
            if reference == next {
                dictionary.bytes.extend_from_slice(text);
                dictionary.ends.push(dictionary.bytes.len());
            }
            dictionary.references.push(reference);
            plain_bytes += text.len();
        }
        // References of two bytes or less against the texts themselves.
        if dictionary.bytes.len() + 2 * texts.len() <= plain_bytes || known.len() <= 1 + texts.len() / 4 {
            return dictionary;
        }
        let mut plain =
            Self { references: Vec::new(), ends: Vec::new(), bytes: Vec::with_capacity(plain_bytes) };
        for text in texts {
            plain.bytes.extend_from_slice(text);
            plain.ends.push(plain.bytes.len());
        }
        plain
    }

    /// The text at `at`.
    pub fn at(&self, at: usize) -> &[u8] {
        if self.references.is_empty() {
            return self.entry(at);
        }
        self.references
            .get(at)
            .and_then(|entry| usize::try_from(*entry).ok())
            .map_or(&[], |at| self.entry(at))
    }

    fn entry(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(at).and_then(|end| self.bytes.get(start..*end)).unwrap_or_default()
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        if !self.references.is_empty() || self.ends.is_empty() {
            out.push(2);
            put_integer(out, self.ends.len() as u64);
            for at in 0..self.ends.len() {
                put_bytes(out, self.entry(at));
            }
            integers::put(out, &self.references);
            return;
        }
        out.push(3);
        let (mut shared, mut own) = (Vec::new(), Vec::new());
        let mut last: &[u8] = &[];
        let mut bytes = Vec::new();
        for at in 0..self.ends.len() {
            let text = self.entry(at);
            let same = text.iter().zip(last).take_while(|(a, b)| a == b).count();
            let rest = text.get(same..).unwrap_or_default();
            shared.push(i64::try_from(same).unwrap_or(i64::MAX));
            own.push(i64::try_from(rest.len()).unwrap_or(i64::MAX));
            bytes.extend_from_slice(rest);
            last = text;
        }
        integers::put(out, &shared);
        integers::put(out, &own);
        out.extend_from_slice(&bytes);
    }

    pub fn read(reader: &mut Reader<'_>, kind: u8, count: usize, room: &mut usize) -> Option<Self> {
        let mut texts = Self { references: Vec::new(), ends: Vec::new(), bytes: Vec::new() };
        if kind == 2 {
            let entries = usize::try_from(reader.integer()?).ok().filter(|entries| *entries <= count)?;
            for _ in 0..entries {
                texts.add(reader.bytes()?, room)?;
            }
            texts.references = integers::read(reader, count)?;
            let known = |entry: &i64| usize::try_from(*entry).is_ok_and(|entry| entry < entries);
            return texts.references.iter().all(known).then_some(texts);
        }
        if kind != 3 {
            return None;
        }
        let shared = integers::read(reader, count)?;
        let own = integers::read(reader, count)?;
        let mut last = 0..0;
        for (shared, own) in shared.into_iter().zip(own) {
            let (shared, own) = (usize::try_from(shared).ok()?, usize::try_from(own).ok()?);
            if shared > last.len() {
                return None;
            }
            *room = room.checked_sub(shared)?;
            let start = texts.bytes.len();
            texts.bytes.extend_from_within(last.start..last.start + shared);
            texts.add(reader.take(own)?, room)?;
            last = start..texts.bytes.len();
        }
        Some(texts)
    }

    fn add(&mut self, text: &[u8], room: &mut usize) -> Option<()> {
        *room = room.checked_sub(text.len())?;
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn round_trip(column: &Column, texts: &[&[u8]]) -> usize {
        let mut out = Vec::new();
        column.put(&mut out);
        let mut reader = Reader::new(&out);
        let mut room = TEXT_BYTES_MAX;
        let read = Column::read(&mut reader, texts.len(), &mut room).expect("it was just written");
        assert!(reader.is_empty());
        for column in [column, &read] {
            for (at, text) in texts.iter().enumerate() {
                let mut back = Vec::new();
                column.write(at, &mut back);
                assert_eq!(String::from_utf8_lossy(&back), String::from_utf8_lossy(text));
            }
        }
        if let Column::Numbers(numbers) = &read {
            for (at, text) in texts.iter().enumerate() {
                let value: f64 = std::str::from_utf8(text).unwrap().parse().unwrap();
                assert_eq!(numbers.number(at), Some(value).filter(|v| v.is_finite()), "{value}");
            }
        }
        out.len()
    }

    fn numbers(texts: &[String]) -> usize {
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        round_trip(&Column::of_numbers(&texts), &texts)
    }

    fn below(random: &mut Random, bound: u64) -> usize {
        usize::try_from(random.below(bound)).unwrap()
    }

    #[test]
    fn numbers_keep_their_text_whatever_it_is() {
        let odd = [
            "0",
            "-0",
            "-0.0",
            "0.0",
            "1e5",
            "1E+05",
            "-1.5e-7",
            "1e999",
            "123456789012345678901234567890",
            "999999999999999999",
            "-999999999999999999",
            "0.123456789012345678",
            "27.3",
            "27.30",
            "27",
            "0.000000000000000001",
            "1e-999",
            "9007199254740993",
        ];
        let mut random = Random::new(7);
        for round in 0..2000 {
            let texts: Vec<String> = (0..1 + random.below(40))
                .map(|_| match (round % 4, random.below(8)) {
                    (0, _) | (_, 0) => odd[below(&mut random, odd.len() as u64)].to_owned(),
                    (1, _) => format!("{}.{}", random.below(50), random.below(10)),
                    (2, _) => format!("{}", f64::from_bits(random.next() >> 2 | 0x3fe0_0000_0000_0000)),
                    (_, n) => {
                        format!("{:.*}", usize::try_from(n % 4).unwrap(), random.below(10_000) as f64 / 100.0)
                    }
                })
                .collect();
            numbers(&texts);
        }
    }

    #[test]
    fn trailing_zeros_that_a_writer_drops_cost_nothing() {
        let mut random = Random::new(8);
        let values: Vec<u64> = (0..1000).map(|_| 200 + random.below(64)).collect();
        let fixed: Vec<String> = values.iter().map(|v| format!("{:.1}", *v as f64 / 10.0)).collect();
        let dropped: Vec<String> = values.iter().map(|v| format!("{}", *v as f64 / 10.0)).collect();
        assert!(numbers(&fixed) < 800, "six bits each: {}", numbers(&fixed));
        assert_eq!(numbers(&fixed), numbers(&dropped));
    }

    #[test]
    fn texts_of_any_kind_read_back() {
        let mut random = Random::new(9);
        for round in 0..1000 {
            let texts: Vec<Vec<u8>> = (0..random.below(60))
                .map(|n| match round % 3 {
                    0 => vec![b'a' + u8::try_from(random.below(3)).unwrap(); 5],
                    1 => format!("2026-11-29T10:00:{n:02}Z").into_bytes(),
                    _ => (0..random.below(20)).map(|_| u8::try_from(random.below(256)).unwrap()).collect(),
                })
                .collect();
            let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
            round_trip(&Column::of_texts(&texts), &texts);
        }
    }

    #[test]
    fn hostile_bytes_never_panic_nor_grow() {
        let mut random = Random::new(10);
        let texts: Vec<&[u8]> = vec![b"1.5", b"2.25", b"1e5", b"3"];
        let mut whole = Vec::new();
        Column::of_numbers(&texts).put(&mut whole);
        Column::of_texts(&texts).put(&mut whole);
        for _ in 0..50_000 {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(4) {
                let at = below(&mut random, bytes.len() as u64);
                bytes[at] = u8::try_from(random.below(256)).unwrap();
            }
            let mut reader = Reader::new(&bytes);
            let mut room = 1 << 16;
            while let Some(column) = Column::read(&mut reader, 4, &mut room) {
                for at in 0..4 {
                    column.write(at, &mut Vec::new());
                    column.number(at);
                }
            }
        }
    }
}
