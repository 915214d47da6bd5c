//! Topic names and topic filters. MQTT 3.1.1 section 4.7.
//!
//! Owns their rules, the reference matcher and the relations between filters that access rules need. The index
//! that finds the subscriptions of a topic is `broker`'s.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::wildcard_enum_match_arm)]

mod relation;
#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;

use std::fmt;

pub use relation::{covers, filters_overlap, matches};

use crate::limits::{TOPIC_BYTES_MAX, TOPIC_LEVELS_MAX};

/// Topic that a message is published to: 1 to 65535 bytes, no wildcard, no U+0000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName<'a>(&'a str);

/// Topics that a subscription wants: a name whose whole levels may be `+` and whose last level may be `#`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicFilter<'a>(&'a str);

/// One level of a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterLevel<'a> {
    /// A level equal to this text, which may be empty.
    Literal(&'a str),
    /// `+`: any one level.
    SingleLevel,
    /// `#`: the parent and all levels below it. Always the last.
    MultiLevel,
}

/// Why a text is no topic name or no topic filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopicError {
    Empty,
    TooLong,
    NullCharacter,
    WildcardInName,
    MultiLevelMisplaced,
    SingleLevelMisplaced,
    TooManyLevels,
    ShareMalformed,
}

impl<'a> TopicName<'a> {
    /// Checks `text` against the rules of a topic name.
    pub fn parse(text: &'a str) -> Result<Self, TopicError> {
        let scan = scan(text)?;
        if scan.wildcards { Err(TopicError::WildcardInName) } else { Ok(Self(text)) }
    }

    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Its levels, which may be empty: `/a` has two.
    pub fn levels(self) -> impl Iterator<Item = &'a str> + Clone {
        self.0.split('/')
    }

    /// Stands where a topic alias says the name. No topic is empty.
    pub const ALIASED: TopicName<'static> = TopicName("");

    /// Begins with `$`: no filter that begins with a wildcard matches it. [MQTT-4.7.2-1]
    #[must_use]
    pub fn is_reserved(self) -> bool {
        self.0.starts_with('$')
    }
}

impl<'a> TopicFilter<'a> {
    /// Checks `text` against the rules of a topic filter.
    pub fn parse(text: &'a str) -> Result<Self, TopicError> {
        let scan = scan(text)?;
        if scan.wildcards {
            check_wildcards(text)?;
        }
        Ok(Self(text))
    }

    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Its levels. A literal one may be empty.
    pub fn levels(self) -> impl Iterator<Item = FilterLevel<'a>> + Clone {
        self.0.split('/').map(|level| match level {
            "+" => FilterLevel::SingleLevel,
            "#" => FilterLevel::MultiLevel,
            _ => FilterLevel::Literal(level),
        })
    }

    /// The share name and the filter of a shared subscription, `$share/{name}/{filter}`; `None` for any other filter.
    /// [MQTT-4.8.2-1], [MQTT-4.8.2-2]
    ///
    /// # Errors
    /// When it begins like one and is none.
    pub fn shared(self) -> Result<Option<(&'a str, Self)>, TopicError> {
        let rest = match self.0.split_once('/') {
            Some(("$share", rest)) => rest,
            None if self.0 == "$share" => return Err(TopicError::ShareMalformed),
            Some(_) | None => return Ok(None),
        };
        match rest.split_once('/') {
            Some((name, filter))
                if !name.is_empty() && !name.bytes().any(is_wildcard) && !filter.is_empty() =>
            {
                Ok(Some((name, Self(filter))))
            }
            Some(_) | None => Err(TopicError::ShareMalformed),
        }
    }

    /// Has a `+` or a `#`.
    #[must_use]
    pub fn has_wildcards(self) -> bool {
        self.0.bytes().any(is_wildcard)
    }
}

impl<'a> From<TopicName<'a>> for TopicFilter<'a> {
    /// The filter that matches this name only.
    fn from(name: TopicName<'a>) -> Self {
        Self(name.0)
    }
}

pub use crate::message::swap_separators;

struct Scan {
    wildcards: bool,
}

/// The rules that names and filters share, and whether there is a wildcard, in one pass over the bytes: this runs
/// for each PUBLISH.
fn scan(text: &str) -> Result<Scan, TopicError> {
    if text.is_empty() {
        return Err(TopicError::Empty);
    }
    if text.len() > TOPIC_BYTES_MAX {
        return Err(TopicError::TooLong);
    }
    let (mut null, mut wildcards) = (false, false);
    for byte in text.bytes() {
        null |= byte == 0;
        wildcards |= is_wildcard(byte);
    }
    if null {
        return Err(TopicError::NullCharacter);
    }
    // A shorter text cannot have as many separators.
    if text.len() >= TOPIC_LEVELS_MAX && text.split('/').count() > TOPIC_LEVELS_MAX {
        return Err(TopicError::TooManyLevels);
    }
    Ok(Scan { wildcards })
}

/// A wildcard is a whole level, and `#` is the last. [MQTT-4.7.1-2], [MQTT-4.7.1-3]
fn check_wildcards(text: &str) -> Result<(), TopicError> {
    let mut multi_level_seen = false;
    for level in text.split('/') {
        if multi_level_seen || level.len() > 1 && level.contains('#') {
            return Err(TopicError::MultiLevelMisplaced);
        }
        if level.len() > 1 && level.contains('+') {
            return Err(TopicError::SingleLevelMisplaced);
        }
        multi_level_seen = level == "#";
    }
    Ok(())
}

const fn is_wildcard(byte: u8) -> bool {
    byte == b'+' || byte == b'#'
}

impl TopicError {
    /// Lowercase fragment for the log.
    #[must_use]
    pub const fn detail(self) -> &'static str {
        match self {
            Self::Empty => "topic is empty",
            Self::TooLong => "topic is longer than 65535 bytes",
            Self::NullCharacter => "topic holds U+0000",
            Self::WildcardInName => "topic name holds a wildcard",
            Self::MultiLevelMisplaced => "'#' is not a whole last level",
            Self::SingleLevelMisplaced => "'+' is not a whole level",
            Self::TooManyLevels => "topic has more than 128 levels",
            Self::ShareMalformed => "shared subscription is not $share/{name}/{filter}",
        }
    }

    /// The normative statement that is broken; for our own limit the section that allows one.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Empty => "MQTT-4.7.3-1",
            Self::TooLong => "MQTT-4.7.3-3",
            Self::NullCharacter => "MQTT-4.7.3-2",
            Self::WildcardInName => "MQTT-3.3.2-2",
            Self::MultiLevelMisplaced => "MQTT-4.7.1-2",
            Self::SingleLevelMisplaced => "MQTT-4.7.1-3",
            Self::TooManyLevels => "section 4.7.3",
            Self::ShareMalformed => "MQTT-4.8.2-1",
        }
    }
}

const _: () = assert!(TOPIC_LEVELS_MAX == 128, "the text of TopicError::TooManyLevels names the limit");

impl fmt::Display for TopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.detail(), self.rule())
    }
}

impl std::error::Error for TopicError {}

macro_rules! text_newtype {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    )*};
}
text_newtype!(TopicName, TopicFilter);
