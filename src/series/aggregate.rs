//! Aggregates: what is made of the readings of a stretch of time.

use std::fmt;

use super::path::Path;

/// Values that a percentile is taken from exactly; more are counted in classes.
const EXACT_MAX: usize = 16_384;
/// Classes of a percentile grow by this factor, so the answer is within a percent.
const GROWTH: f64 = 1.02;
/// Classes on either side of zero: together they reach from 1e-12 to 1e12.
const CLASSES: i32 = 2_800;

/// What is made of the values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// Readings, whatever is in them.
    Count,
    Average,
    Sum,
    Min,
    Max,
    First,
    Last,
    /// The value that so many percent of the values do not exceed, 1 to 99.
    Percentile(u8),
}

/// A function of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Aggregate {
    pub function: Function,
    /// `None` = `value` or, where that is missing, `payload`.
    pub field: Option<Path>,
}

impl Aggregate {
    /// Reads `avg` or `avg(pos.speed)`; a function alone is of `field`.
    #[must_use]
    pub fn parse(text: &str, field: Option<&Path>) -> Option<Self> {
        let (name, field) = match text.trim().split_once('(') {
            None => (text.trim(), field.cloned()),
            Some((name, rest)) => (name.trim(), Some(Path::parse(rest.strip_suffix(')')?.trim())?)),
        };
        let function = match name.to_ascii_lowercase().as_str() {
            "count" => Function::Count,
            "avg" | "mean" => Function::Average,
            "sum" => Function::Sum,
            "min" => Function::Min,
            "max" => Function::Max,
            "first" => Function::First,
            "last" => Function::Last,
            other => {
                let percent = other.strip_prefix('p')?.parse().ok()?;
                Function::Percentile(Some(percent).filter(|percent| (1..=99).contains(percent))?)
            }
        };
        Some(Self { function, field })
    }

    /// True when it needs every value.
    #[must_use]
    pub const fn is_percentile(&self) -> bool {
        matches!(self.function, Function::Percentile(_))
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.function {
            Function::Count => f.write_str("count")?,
            Function::Average => f.write_str("avg")?,
            Function::Sum => f.write_str("sum")?,
            Function::Min => f.write_str("min")?,
            Function::Max => f.write_str("max")?,
            Function::First => f.write_str("first")?,
            Function::Last => f.write_str("last")?,
            Function::Percentile(percent) => write!(f, "p{percent}")?,
        }
        match &self.field {
            Some(field) => write!(f, "({field})"),
            None => Ok(()),
        }
    }
}

/// The values of one field in one stretch.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    values: u64,
    sum: f64,
    /// What rounding took from the sum.
    rest: f64,
    min: f64,
    max: f64,
    first: (i64, f64),
    last: (i64, f64),
    percentiles: Option<Percentiles>,
}

impl Cell {
    pub fn new(with_percentiles: bool) -> Self {
        Self { percentiles: with_percentiles.then(Percentiles::default), ..Self::default() }
    }

    /// Takes a value.
    pub fn add(&mut self, time: i64, value: f64) {
        if !value.is_finite() {
            return;
        }
        if self.values == 0 {
            (self.min, self.max) = (value, value);
            (self.first, self.last) = ((time, value), (time, value));
        } else {
            self.min = self.min.min(value);
            self.max = self.max.max(value);
            if time < self.first.0 {
                self.first = (time, value);
            }
            if time >= self.last.0 {
                self.last = (time, value);
            }
        }
        self.values += 1;
        let sum = self.sum + value;
        self.rest +=
            if self.sum.abs() >= value.abs() { (self.sum - sum) + value } else { (value - sum) + self.sum };
        self.sum = sum;
        if let Some(percentiles) = &mut self.percentiles {
            percentiles.add(value);
        }
    }

    /// The result; `None` when there is no value. Counting readings is the caller's.
    #[expect(
        clippy::cast_precision_loss,
        reason = "an average of 2^53 values is as good as one of a few more"
    )]
    pub fn result(&mut self, function: Function) -> Option<f64> {
        if self.values == 0 {
            return None;
        }
        Some(match function {
            Function::Count => self.values as f64,
            Function::Average => (self.sum + self.rest) / self.values as f64,
            Function::Sum => self.sum + self.rest,
            Function::Min => self.min,
            Function::Max => self.max,
            Function::First => self.first.1,
            Function::Last => self.last.1,
            Function::Percentile(percent) => self.percentiles.as_mut()?.at(percent)?,
        })
    }
}

/// The distribution of many values in little memory.
#[derive(Clone, Debug)]
enum Percentiles {
    Exact(Vec<f64>),
    /// Counts of values by class, from the most negative to the most positive.
    Classes(Box<[u64]>),
}

impl Default for Percentiles {
    fn default() -> Self {
        Self::Exact(Vec::new())
    }
}

impl Percentiles {
    fn add(&mut self, value: f64) {
        match self {
            Self::Exact(values) if values.len() < EXACT_MAX => values.push(value),
            Self::Exact(values) => {
                let mut classes =
                    vec![0u64; usize::try_from(2 * CLASSES + 1).unwrap_or(1)].into_boxed_slice();
                for value in values.iter().copied().chain([value]) {
                    if let Some(count) = classes.get_mut(class(value)) {
                        *count += 1;
                    }
                }
                *self = Self::Classes(classes);
            }
            Self::Classes(classes) => {
                if let Some(count) = classes.get_mut(class(value)) {
                    *count += 1;
                }
            }
        }
    }

    fn at(&mut self, percent: u8) -> Option<f64> {
        // The nearest rank.
        let rank = |count: u64| (count * u64::from(percent)).div_ceil(100).max(1);
        match self {
            Self::Exact(values) => {
                values.sort_unstable_by(f64::total_cmp);
                let at = usize::try_from(rank(values.len() as u64)).ok()?;
                values.get(at.checked_sub(1)?).copied()
            }
            Self::Classes(classes) => {
                let rank = rank(classes.iter().sum());
                let mut seen = 0;
                let class = classes.iter().position(|count| {
                    seen += count;
                    seen >= rank
                })?;
                Some(middle(class))
            }
        }
    }
}

/// The class of a value: logarithmic on either side of zero.
fn class(value: f64) -> usize {
    let magnitude = value.abs();
    if magnitude < 1e-12 {
        return usize::try_from(CLASSES).unwrap_or(0);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the logarithm of a finite number is small")]
    let step = ((magnitude * 1e12).ln() / GROWTH.ln()).floor() as i32;
    let step = step.clamp(0, CLASSES - 1) + 1;
    let signed = if value < 0.0 { -step } else { step };
    usize::try_from(CLASSES + signed).unwrap_or(0)
}

/// A value in the middle of a class.
fn middle(class: usize) -> f64 {
    let step = i32::try_from(class).unwrap_or(0) - CLASSES;
    if step == 0 {
        return 0.0;
    }
    let magnitude = GROWTH.powf(f64::from(step.abs()) - 0.5) / 1e12;
    if step < 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn aggregates_are_those_of_the_values() {
        let mut cell = Cell::new(true);
        for (time, value) in [(3, 4.0), (1, -2.0), (2, 10.0), (9, f64::NAN)] {
            cell.add(time, value);
        }
        for (function, expected) in [
            (Function::Count, 3.0),
            (Function::Average, 4.0),
            (Function::Sum, 12.0),
            (Function::Min, -2.0),
            (Function::Max, 10.0),
            (Function::First, -2.0),
            (Function::Last, 4.0),
            (Function::Percentile(50), 4.0),
            (Function::Percentile(99), 10.0),
        ] {
            assert_eq!(cell.result(function), Some(expected), "{function:?}");
        }
        assert_eq!(Cell::new(false).result(Function::Average), None);
    }

    #[test]
    fn percentiles_of_many_values_are_within_a_percent() {
        let mut random = Random::new(6);
        let mut cell = Cell::new(true);
        let mut values: Vec<f64> =
            (0..100_000).map(|_| (random.below(2_000_000) as f64 - 500_000.0) / 1000.0).collect();
        values.iter().for_each(|value| cell.add(0, *value));
        values.sort_unstable_by(f64::total_cmp);
        for percent in [1u8, 5, 50, 95, 99] {
            let exact = values[values.len() * usize::from(percent) / 100 - 1];
            let found = cell.result(Function::Percentile(percent)).unwrap();
            assert!((found - exact).abs() <= exact.abs() * 0.011, "p{percent}: {found} for {exact}");
        }
    }

    #[test]
    fn names_are_read_and_shown() {
        for text in ["count", "avg", "p95", "last(pos.speed)", "max(value)"] {
            assert_eq!(Aggregate::parse(text, None).unwrap().to_string(), text);
        }
        for text in ["median", "p0", "p100", "avg(", "avg()", "", "p"] {
            assert_eq!(Aggregate::parse(text, None), None, "{text}");
        }
    }
}
