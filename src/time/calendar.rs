//! Moments as people write them: RFC 3339 in UTC, durations back from now, milliseconds.

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Writes milliseconds since 1970 as RFC 3339 in UTC, with milliseconds.
#[must_use]
pub fn show(ms: i64) -> String {
    let (days, rest) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1000)
}

/// Reads a moment: RFC 3339 (`2026-11-29T10:00:00Z`, a date alone is its midnight), milliseconds since 1970, `now`, or
/// a duration such as `90m` or `1h30m`, which counts back from `now_ms`.
#[must_use]
pub fn parse(text: &str, now_ms: i64) -> Option<i64> {
    if text == "now" {
        return Some(now_ms);
    }
    if let Some(duration) = parse_duration(text) {
        return now_ms.checked_sub(duration);
    }
    if !text.is_empty() && text.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    parse_rfc3339(text)
}

/// Reads a duration such as `500ms`, `10s`, `1h30m` or `7d`; milliseconds.
#[must_use]
pub fn parse_duration(text: &str) -> Option<i64> {
    let mut total = 0i64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at_checked(digits)?;
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit_end)?;
        let factor = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => DAY_MS,
            "w" => 7 * DAY_MS,
            _ => return None,
        };
        total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(factor)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

fn parse_rfc3339(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is = |at: usize, c: &str| text.get(at..=at).is_some_and(|found| found.eq_ignore_ascii_case(c));
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    if !is(4, "-") || !is(7, "-") || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let midnight = days(year, month, day) * DAY_MS;
    if date(midnight / DAY_MS) != (year, month, day) {
        return None;
    }
    if text.len() == 10 {
        return Some(midnight);
    }
    let (hour, minute) = (number(11, 13)?, number(14, 16)?);
    if !(is(10, "T") || is(10, " ")) || !is(13, ":") || hour > 23 || minute > 59 {
        return None;
    }
    let mut at = 16;
    let mut ms = midnight + hour * 3_600_000 + minute * 60_000;
    if is(at, ":") {
        let second = number(17, 19).filter(|second| *second <= 60)?;
        ms += second * 1000;
        at = 19;
        if is(at, ".") {
            let digits = text.get(at + 1..)?.bytes().take_while(u8::is_ascii_digit).count();
            let fraction = text.get(at + 1..at + 1 + digits.min(3)).filter(|digits| !digits.is_empty())?;
            ms += format!("{fraction:0<3}").parse::<i64>().ok()?;
            at += 1 + digits;
        }
    }
    match text.get(at..)? {
        "" | "Z" | "z" => Some(ms),
        zone => {
            let sign = match zone.get(..1)? {
                "+" => 1,
                "-" => -1,
                _ => return None,
            };
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            (zone.len() == 6 && is(at + 3, ":")).then(|| ms - sign * (hours * 60 + minutes) * 60_000)
        }
    }
}

/// Days since 1970-01-01 of a date of the Gregorian calendar (Howard Hinnant, `days_from_civil`).
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of a day since 1970-01-01.
const fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted - era * 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_back() {
        for ms in [0, 1, -1, 951_782_400_000, 1_791_754_335_817, 4_102_444_799_999, -62_135_596_800_000] {
            assert_eq!(parse_rfc3339(&show(ms)), Some(ms), "{}", show(ms));
        }
        assert_eq!(show(1_791_754_335_817), "2026-10-11T21:32:15.817Z");
    }

    #[test]
    fn moments_are_read_in_every_form() {
        let now = 1_000_000_000_000;
        for (text, expected) in [
            ("2001-09-09T01:46:40Z", Some(now)),
            ("2001-09-09 01:46:40.5Z", Some(now + 500)),
            ("2001-09-09T03:46:40+02:00", Some(now)),
            ("2001-09-09", Some(now - 6_400_000)),
            ("2001-09-09T01:46", Some(now - 40_000)),
            ("1h", Some(now - 3_600_000)),
            ("1h30m", Some(now - 5_400_000)),
            ("now", Some(now)),
            ("12345", Some(12_345)),
            ("", None),
            ("yesterday", None),
            ("2001-13-01", None),
            ("2026-02-31", None),
            ("2026-02-29T10:00:00Z", None),
            ("2024-02-29", Some(1_709_164_800_000)),
            ("2001-09-09T25:00", None),
            ("1y", None),
            ("-", None),
        ] {
            assert_eq!(parse(text, now), expected, "{text}");
        }
    }
}
