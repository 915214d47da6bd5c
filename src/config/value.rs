//! Sizes and durations as text: reading them and writing the shortest text that reads back.
//!
//! A size is a whole number and one of `B`, `KB`, `MB`, `GB` (powers of 1000), `KiB`, `MiB`, `GiB` (powers of
//! 1024). A duration is one or more whole numbers with `ms`, `s`, `m`, `h`, `d`, the largest unit first and none
//! twice: `"30s"`, `"1h30m"`. Spaces may stand between number and unit.

use std::time::Duration;

const SIZES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Milliseconds of each unit, the largest first.
const TIMES: [(&str, u64); 5] =
    [("d", 24 * 3_600_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Bytes of a size such as `64MiB`.
///
/// # Errors
/// What is wrong, as the end of a sentence about the text.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, unit, rest) = number_and_unit(text.trim()).map_err(|()| size_hint(text))?;
    if !rest.is_empty() {
        return Err(size_hint(text));
    }
    if unit.is_empty() {
        return Err(format!("lacks a unit: write \"{digits}MiB\", or {digits} without quotes for bytes"));
    }
    let Some((_, factor)) = SIZES.iter().find(|(name, _)| *name == unit) else {
        if let Some((name, _)) = SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
            return Err(format!("has the unit `{unit}`: write {name}"));
        }
        if TIMES.iter().any(|(name, _)| *name == unit) {
            return Err(format!("has the unit `{unit}`, a unit of time: this is a size such as \"64MiB\""));
        }
        return Err(format!("has the unknown unit `{unit}`: use B, KB, MB, GB, KiB, MiB or GiB"));
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(*factor)).ok_or_else(|| "is too large".to_owned())
}

/// A duration such as `1h30m`.
///
/// # Errors
/// What is wrong, as the end of a sentence about the text.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let mut total_ms: u64 = 0;
    let mut smallest = u64::MAX;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(duration_hint(text));
    }
    while !rest.is_empty() {
        let (digits, unit, after) = number_and_unit(rest).map_err(|()| duration_hint(text))?;
        if unit.is_empty() {
            return Err(format!("lacks a unit: write \"{digits}s\" (units: ms, s, m, h, d)"));
        }
        let Some((_, factor)) = TIMES.iter().find(|(name, _)| *name == unit) else {
            if SIZES.iter().any(|(name, _)| *name == unit) {
                return Err(format!(
                    "has the unit `{unit}`, a unit of size: this is a duration such as \"30s\""
                ));
            }
            return Err(format!("has the unknown unit `{unit}`: use ms, s, m, h or d"));
        };
        if *factor >= smallest {
            return Err("has its units out of order: the largest comes first, each once".to_owned());
        }
        smallest = *factor;
        total_ms = digits
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(*factor))
            .and_then(|ms| total_ms.checked_add(ms))
            .ok_or_else(|| "is too large".to_owned())?;
        rest = after;
    }
    Ok(Duration::from_millis(total_ms))
}

/// The shortest text that a setting reads as `bytes`, such as `64MiB`.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    let (name, factor) = SIZES
        .iter()
        .filter(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
        .max_by_key(|(_, factor)| *factor)
        .unwrap_or(&("B", 1));
    format!("{}{name}", bytes / factor)
}

/// A text that a setting reads as `duration`, which is cut to whole milliseconds: `1h30m`.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if left == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (name, factor) in TIMES {
        let count = left / factor;
        if count > 0 {
            text.push_str(&format!("{count}{name}"));
            left %= factor;
        }
    }
    text
}

/// Leading digits, the letters that follow, and what stands after them.
fn number_and_unit(text: &str) -> Result<(&str, &str, &str), ()> {
    let (digits, rest) = split_where(text, |c| !c.is_ascii_digit());
    if digits.is_empty() {
        return Err(());
    }
    let rest = rest.trim_start();
    let (unit, rest) = split_where(rest, |c| !c.is_alphabetic());
    Ok((digits, unit, rest.trim_start()))
}

fn split_where(text: &str, end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(end).unwrap_or(text.len()))
}

fn size_hint(text: &str) -> String {
    if text.contains(['.', ',', '_', '-']) {
        return "is not a whole number and a unit, such as \"64MiB\"".to_owned();
    }
    "is not a size such as \"64MiB\"".to_owned()
}

fn duration_hint(text: &str) -> String {
    if text.contains(['.', ',', '_', '-']) {
        return "is not a whole number and a unit, such as \"30s\"".to_owned();
    }
    "is not a duration such as \"30s\" or \"1h30m\"".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("64 MiB", 64 << 20),
            (" 1GB ", 1_000_000_000),
            ("3KB", 3000),
            ("0B", 0),
            ("1KiB", 1024),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn durations_read() {
        for (text, ms) in [
            ("30s", 30_000),
            ("7d", 604_800_000),
            ("10ms", 10),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1 h 500 ms", 3_600_500),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_not_one_is_refused() {
        for text in
            ["", "MiB", "64", "64Mib", "64 M iB", "1.5GiB", "-1KiB", "64MiB64KiB", "99999999999GiB", "30s"]
        {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        for text in
            ["", "s", "30", "30sec", "1.5h", "30m1h", "1h1h", "-1s", "99999999999999d", "64MiB", "1h 3"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for n in (0..40)
            .flat_map(|shift| [0, 1, 999].map(|add| (1_u64 << shift) + add))
            .chain([0, 1000, 5_000_000, 86_400_000, 90_061_001])
        {
            assert_eq!(parse_bytes(&show_bytes(n)), Ok(n));
            let duration = Duration::from_millis(n);
            assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
        }
        assert_eq!(show_bytes(72 << 20), "72MiB");
        assert_eq!(show_duration(Duration::from_secs(7 * 24 * 3600)), "7d");
    }
}
