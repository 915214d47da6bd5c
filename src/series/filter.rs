//! Topic filters of queries: which are well-formed, and which topics they take. MQTT 5.0 section 4.7.

use std::fmt;

/// Bytes of a filter.
const BYTES_MAX: usize = u16::MAX as usize;

/// Why a text is no topic filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterError {
    Empty,
    TooLong,
    NullCharacter,
    MultiLevelMisplaced,
    SingleLevelMisplaced,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a filter has at least one character",
            Self::TooLong => "a filter has at most 65535 bytes",
            Self::NullCharacter => "a filter has no null character",
            Self::MultiLevelMisplaced => "# stands alone in the last level",
            Self::SingleLevelMisplaced => "+ fills a level of its own",
        })
    }
}

impl std::error::Error for FilterError {}

/// Checks that `filter` is a topic filter.
///
/// # Errors
/// Why it is none.
pub fn check_filter(filter: &str) -> Result<(), FilterError> {
    if filter.is_empty() {
        return Err(FilterError::Empty);
    }
    if filter.len() > BYTES_MAX {
        return Err(FilterError::TooLong);
    }
    if filter.contains('\0') {
        return Err(FilterError::NullCharacter);
    }
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        if level.contains('#') && (level != "#" || levels.peek().is_some()) {
            return Err(FilterError::MultiLevelMisplaced);
        }
        if level.contains('+') && level != "+" {
            return Err(FilterError::SingleLevelMisplaced);
        }
    }
    Ok(())
}

/// Whether a topic filter takes a topic. What is no filter takes nothing beyond itself.
#[must_use]
pub fn takes(filter: &str, topic: &str) -> bool {
    let mut levels = topic.split('/');
    let mut parts = filter.split('/').enumerate();
    loop {
        match (parts.next(), levels.next()) {
            (Some((0, "#" | "+")), Some(level)) if level.starts_with('$') => return false,
            (Some((_, "#")), _) => return parts.next().is_none(),
            (Some((_, "+")), Some(_)) => {}
            (Some((_, part)), Some(level)) if part == level => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_take_what_the_standard_says() {
        for (filter, topic, expected) in [
            ("a/b", "a/b", true),
            ("a/b", "a", false),
            ("a/+", "a/b", true),
            ("a/+", "a/b/c", false),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("#", "$SYS/x", false),
            ("+/x", "$SYS/x", false),
            ("$SYS/#", "$SYS/x", true),
            ("sensors/#/old", "sensors/a", false),
            ("sensors/#/old", "sensors/a/old", false),
        ] {
            assert_eq!(takes(filter, topic), expected, "{filter} {topic}");
        }
    }

    #[test]
    fn what_is_no_filter_is_told_apart() {
        for filter in ["a", "/", "+", "#", "a/+/b", "+/+/#", "$SYS/#"] {
            assert_eq!(check_filter(filter), Ok(()), "{filter}");
        }
        for (filter, expected) in [
            ("", FilterError::Empty),
            ("a\0", FilterError::NullCharacter),
            ("sensors/#/old", FilterError::MultiLevelMisplaced),
            ("a#", FilterError::MultiLevelMisplaced),
            ("#/", FilterError::MultiLevelMisplaced),
            ("a+/b", FilterError::SingleLevelMisplaced),
            ("++", FilterError::SingleLevelMisplaced),
        ] {
            assert_eq!(check_filter(filter), Err(expected), "{filter}");
        }
        assert_eq!(check_filter(&"a".repeat(BYTES_MAX + 1)), Err(FilterError::TooLong));
    }
}
