//! A rule's topic filter and a tree of rules. Owns matching of topics and comparing of filters, with `%c` and `%u`
//! in a rule standing for the client; which rules there are is `acl`.
//!
//! What a client calls itself is compared with a level of the topic as it is, never parsed: a `+`, `#` or `/` in it
//! is no wildcard and no border (CVE-2017-7650).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::sync::atomic::{AtomicBool, Ordering};

use super::acl::Identity;
use crate::limits::{TOPIC_BYTES_MAX, TOPIC_LEVELS_MAX};

/// What a rule gives or takes; a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Access(u8);

impl Access {
    pub const READ: Self = Self(1);
    pub const WRITE: Self = Self(2);
    pub const READ_WRITE: Self = Self(3);
    pub const DENY: Self = Self(4);

    pub fn includes(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Whether a rule was ever met. Noted through a shared reference: whoever asks for a right only looks.
#[derive(Debug, Default)]
pub(super) struct Met(AtomicBool);

impl Met {
    pub fn note(&self) {
        // Looking is cheaper than writing for those who share it.
        if !self.is_noted() {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Clone for Met {
    fn clone(&self) -> Self {
        Self(AtomicBool::new(self.is_noted()))
    }
}

/// One level of a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Level {
    Literal(Box<str>),
    /// `+`
    One,
    /// `#`
    Rest,
    /// Text with `%c` or `%u` in it.
    Client(Box<[Part]>),
}

/// A piece of a level that depends on the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Text(Box<str>),
    ClientIdentifier,
    Username,
}

/// The levels of a filter. `parse_client` makes `%c` and `%u` stand for the client.
///
/// # Errors
/// What is wrong with it, with the column in `text`.
pub(super) fn parse_filter(text: &str, parse_client: bool) -> Result<Vec<Level>, (usize, String)> {
    if text.is_empty() {
        return Err((1, "it is empty".to_owned()));
    }
    if text.len() > TOPIC_BYTES_MAX || text.contains('\0') {
        return Err((1, format!("it is longer than {TOPIC_BYTES_MAX} bytes or holds a zero byte")));
    }
    let mut levels = Vec::new();
    let mut column: usize = 1;
    let mut parts = text.split('/').peekable();
    while let Some(part) = parts.next() {
        if levels.len() == TOPIC_LEVELS_MAX {
            return Err((column, format!("it has more than {TOPIC_LEVELS_MAX} levels")));
        }
        levels.push(match part {
            "+" => Level::One,
            "#" if parts.peek().is_none() => Level::Rest,
            "#" => return Err((column, "# stands for the rest and must be the last level".to_owned())),
            _ if part.contains(['+', '#']) => {
                return Err((column, format!("the wildcard in {part:?} must be alone between slashes")));
            }
            _ if parse_client && (part.contains("%c") || part.contains("%u")) => {
                Level::Client(split_client(part))
            }
            _ => Level::Literal(Box::from(part)),
        });
        column = column.saturating_add(part.chars().count()).saturating_add(1);
    }
    Ok(levels)
}

/// Text and placeholders of a level.
fn split_client(level: &str) -> Box<[Part]> {
    let mut parts = Vec::new();
    let mut rest = level;
    let mut text = String::new();
    while let Some(c) = rest.chars().next() {
        let placeholder = match rest.get(..2) {
            Some("%c") => Some(Part::ClientIdentifier),
            Some("%u") => Some(Part::Username),
            _ => None,
        };
        let taken = if let Some(placeholder) = placeholder {
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text).into_boxed_str()));
            }
            parts.push(placeholder);
            2
        } else {
            text.push(c);
            c.len_utf8()
        };
        rest = rest.get(taken..).unwrap_or("");
    }
    if !text.is_empty() {
        parts.push(Part::Text(text.into_boxed_str()));
    }
    parts.into_boxed_slice()
}

/// Whether the text of `parts` for `client` is `level`.
fn is_client_level(parts: &[Part], client: Identity<'_>, level: &str) -> bool {
    let mut rest = level;
    for part in parts {
        let text = match part {
            Part::Text(text) => text,
            Part::ClientIdentifier => client.client_identifier,
            Part::Username => match client.username {
                Some(username) => username,
                None => return false,
            },
        };
        match rest.strip_prefix(text) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

/// `filter` as it stands for `client`; `None` when it stands for nothing: it names a user and there is none, or
/// the client's name has a border or a wildcard in it, so that no level can be that name.
pub(super) fn for_client(filter: &[Level], client: Identity<'_>) -> Option<Vec<Level>> {
    filter
        .iter()
        .enumerate()
        .map(|(at, level)| {
            let Level::Client(parts) = level else { return Some(level.clone()) };
            let mut text = String::new();
            for part in parts {
                text.push_str(match part {
                    Part::Text(text) => text,
                    Part::ClientIdentifier => client.client_identifier,
                    Part::Username => client.username?,
                });
            }
            let is_level = !text.contains(['/', '+', '#']) && (at > 0 || may_start(parts, &text));
            is_level.then(|| Level::Literal(text.into_boxed_str()))
        })
        .collect()
}

/// A client cannot name itself into the topics that start with `$`: the rule must write the `$` itself.
fn may_start(parts: &[Part], level: &str) -> bool {
    !level.starts_with('$') || matches!(parts.first(), Some(Part::Text(_)))
}

/// Whether some topic matches both filters, which hold no [`Level::Client`].
pub(super) fn overlap(a: &[Level], b: &[Level]) -> bool {
    let (mut a, mut b) = (a.iter(), b.iter());
    let mut is_first = true;
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            // `x/#` matches `x` too.
            (Some(Level::Rest), None) | (None, Some(Level::Rest)) => return true,
            (None, _) | (_, None) => return false,
            (Some(x), Some(y)) => {
                if is_first && (hides(x, y) || hides(y, x)) {
                    return false;
                }
                match (x, y) {
                    (Level::Rest, _) | (_, Level::Rest) => return true,
                    (Level::Literal(x), Level::Literal(y)) if x != y => return false,
                    (Level::Client(_), _) | (_, Level::Client(_)) => return false,
                    (Level::Literal(_) | Level::One, Level::Literal(_) | Level::One) => {}
                }
            }
        }
        is_first = false;
    }
}

/// Whether every topic that matches `narrow` matches `wide`; neither holds a [`Level::Client`].
pub(super) fn covers(wide: &[Level], narrow: &[Level]) -> bool {
    let (mut wide, mut narrow) = (wide.iter(), narrow.iter());
    let mut is_first = true;
    loop {
        match (wide.next(), narrow.next()) {
            (None, None) => return true,
            (Some(Level::Rest), None) => return true,
            (None, _) | (_, None) => return false,
            (Some(x), Some(y)) => {
                if is_first && hides(x, y) {
                    return false;
                }
                match (x, y) {
                    (Level::Rest, _) => return true,
                    // A topic has a first level, so `+/#` is all that `#` is.
                    (Level::One, Level::Rest) => return is_first && wide.next() == Some(&Level::Rest),
                    (_, Level::Rest) => return false,
                    (Level::One, Level::Literal(_) | Level::One) => {}
                    (Level::Literal(x), Level::Literal(y)) if x == y => {}
                    (Level::Literal(_) | Level::Client(_), _) | (Level::One, Level::Client(_)) => {
                        return false;
                    }
                }
            }
        }
        is_first = false;
    }
}

/// Whether `wildcard` at the start of a filter passes over `level` since that starts with `$` [MQTT-4.7.2-1].
fn hides(wildcard: &Level, level: &Level) -> bool {
    matches!(wildcard, Level::One | Level::Rest)
        && matches!(level, Level::Literal(text) if text.starts_with('$'))
}

/// Rules laid out by level, so that a check walks the topic and not the rules.
#[derive(Clone, Default, Debug)]
pub(super) struct Tree {
    /// Children by literal level, sorted.
    literals: Vec<(Box<str>, Self)>,
    clients: Vec<(Box<[Part]>, Self)>,
    one: Option<Box<Self>>,
    /// What a `#` here gives.
    rest: Access,
    /// What a filter that ends here gives.
    end: Access,
    rest_met: Met,
    end_met: Met,
}

impl Tree {
    /// Adds a rule.
    pub fn insert(&mut self, filter: &[Level], access: Access) {
        let Some((level, below)) = filter.split_first() else {
            self.end.add(access);
            return;
        };
        let child = match level {
            Level::Rest => {
                self.rest.add(access);
                return;
            }
            Level::One => self.one.get_or_insert_default(),
            Level::Literal(text) => {
                let at = match self.literals.binary_search_by(|(known, _)| known.cmp(text)) {
                    Ok(at) => at,
                    Err(at) => {
                        self.literals.insert(at, (text.clone(), Self::default()));
                        at
                    }
                };
                let Some((_, child)) = self.literals.get_mut(at) else { return };
                child
            }
            Level::Client(parts) => {
                if !self.clients.iter().any(|(known, _)| known == parts) {
                    self.clients.push((parts.clone(), Self::default()));
                }
                let Some((_, child)) = self.clients.iter_mut().find(|(known, _)| known == parts) else {
                    return;
                };
                child
            }
        };
        child.insert(below, access);
    }

    /// Whether a topic ever met the rule of this filter.
    pub fn was_met(&self, filter: &[Level]) -> bool {
        let Some((level, below)) = filter.split_first() else { return self.end_met.is_noted() };
        let child = match level {
            Level::Rest => return self.rest_met.is_noted(),
            Level::One => self.one.as_deref(),
            Level::Literal(text) => {
                self.literals.iter().find(|(known, _)| known == text).map(|(_, child)| child)
            }
            Level::Client(parts) => {
                self.clients.iter().find(|(known, _)| known == parts).map(|(_, child)| child)
            }
        };
        child.is_some_and(|child| child.was_met(below))
    }

    /// All that the rules that match `topic` give together.
    pub fn access(&self, topic: &str, client: Identity<'_>) -> Access {
        let mut access = Access::default();
        self.gather(Some(topic), true, client, &mut access);
        access
    }

    /// `rest` is what of the topic stands below this node. The depth is that of the rules, at most
    /// [`TOPIC_LEVELS_MAX`].
    fn gather(&self, rest: Option<&str>, is_first: bool, client: Identity<'_>, access: &mut Access) {
        let Some(rest) = rest else {
            self.end_met.note();
            access.add(self.end);
            self.rest_met.note();
            access.add(self.rest);
            return;
        };
        let (level, below) = match rest.split_once('/') {
            Some((level, below)) => (level, Some(below)),
            None => (rest, None),
        };
        if !(is_first && level.starts_with('$')) {
            self.rest_met.note();
            access.add(self.rest);
            if let Some(one) = &self.one {
                one.gather(below, false, client, access);
            }
        }
        if let Ok(at) = self.literals.binary_search_by(|(known, _)| (**known).cmp(level))
            && let Some((_, child)) = self.literals.get(at)
        {
            child.gather(below, false, client, access);
        }
        for (parts, child) in &self.clients {
            if is_client_level(parts, client, level) && (!is_first || may_start(parts, level)) {
                child.gather(below, false, client, access);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Identity<'_> = Identity { username: None, client_identifier: "" };

    fn filter(text: &str) -> Vec<Level> {
        parse_filter(text, false).unwrap()
    }

    /// The rules of section 4.7, level by level and without any cleverness.
    fn matches(filter: &[&str], topic: &[&str]) -> bool {
        match (filter, topic) {
            ([], []) => true,
            (["#"], _) => true,
            ([], _) | (_, []) => false,
            ([f, fs @ ..], [t, ts @ ..]) => (*f == "+" || f == t) && matches(fs, ts),
        }
    }

    fn matches_text(filter: &str, topic: &str) -> bool {
        let is_hidden = topic.starts_with('$') && !filter.starts_with('$');
        let [f, t] = [filter, topic].map(|text| text.split('/').collect::<Vec<_>>());
        !is_hidden && matches(&f, &t)
    }

    /// All texts of one to `levels_max` of `words`.
    fn all(words: &[&str], levels_max: u32) -> Vec<String> {
        let mut texts = Vec::new();
        for levels in 1..=levels_max {
            for n in 0..words.len().pow(levels) {
                let word = |level: u32| words[n / words.len().pow(level) % words.len()];
                texts.push((0..levels).map(word).collect::<Vec<_>>().join("/"));
            }
        }
        texts
    }

    #[test]
    fn matching_overlap_and_cover_agree_with_trying_every_topic() {
        let filters: Vec<String> = all(&["", "a", "$s", "+", "#"], 3)
            .into_iter()
            .filter(|text| parse_filter(text, false).is_ok())
            .collect();
        // `z` stands for every other word, a fourth and a fifth level for every longer topic.
        let topics = all(&["", "a", "$s", "z", "$z"], 4);
        let sets: Vec<Vec<bool>> = filters
            .iter()
            .map(|filter| topics.iter().map(|topic| matches_text(filter, topic)).collect())
            .collect();
        for (a, set_a) in filters.iter().zip(&sets) {
            let mut tree = Tree::default();
            tree.insert(&filter(a), Access::READ);
            for (topic, expected) in topics.iter().zip(set_a) {
                assert_eq!(tree.access(topic, NOBODY).includes(Access::READ), *expected, "{a} {topic}");
            }
            for (b, set_b) in filters.iter().zip(&sets) {
                let mut both = set_a.iter().zip(set_b);
                let overlaps = both.clone().any(|(a, b)| *a && *b);
                assert_eq!(overlap(&filter(a), &filter(b)), overlaps, "{a} overlaps {b}");
                assert_eq!(covers(&filter(a), &filter(b)), both.all(|(a, b)| *a || !*b), "{a} covers {b}");
            }
        }
    }

    #[test]
    fn a_tree_gives_what_its_rules_give_together() {
        let words = ["a", "b", "+", "#"];
        let filters: Vec<String> =
            all(&words, 3).into_iter().filter(|text| parse_filter(text, false).is_ok()).collect();
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..200 {
            let mut tree = Tree::default();
            let mut rules = Vec::new();
            for _ in 0..random(8) {
                let access = [Access::READ, Access::WRITE, Access::READ_WRITE, Access::DENY][random(4)];
                let text = filters[random(filters.len())].as_str();
                tree.insert(&filter(text), access);
                rules.push((text, access));
            }
            for topic in all(&["a", "b", "c"], 4) {
                let mut expected = Access::default();
                for (filter, access) in &rules {
                    if matches_text(filter, &topic) {
                        expected.add(*access);
                    }
                }
                assert_eq!(tree.access(&topic, NOBODY), expected, "{rules:?} {topic}");
            }
        }
    }

    #[test]
    fn a_filter_that_is_none_is_refused_where_it_is_wrong() {
        for (text, column) in [
            ("", 1),
            ("a/#/b", 3),
            ("a/b#", 3),
            ("+a/b", 1),
            ("ä/+b", 3),
            ("a\0b", 1),
            (&"a/".repeat(128), 257),
        ] {
            assert_eq!(parse_filter(text, true).unwrap_err().0, column, "{text}");
        }
    }

    #[test]
    fn a_client_stands_in_a_level_as_it_is() {
        let parsed = parse_filter("%c/x-%u-%c%/é%c", true).unwrap();
        let ada = Identity { username: Some("ada"), client_identifier: "c1" };
        let resolved = for_client(&parsed, ada).unwrap();
        assert_eq!(resolved, filter("c1/x-ada-c1%/éc1"));
        assert_eq!(
            parse_filter("%c/x", false).unwrap(),
            [Level::Literal("%c".into()), Level::Literal("x".into())]
        );
        let mut tree = Tree::default();
        tree.insert(&parse_filter("%c/+/%u", true).unwrap(), Access::READ);
        let may = |username, client_identifier, topic: &str| {
            let client = Identity { username, client_identifier };
            tree.access(topic, client).includes(Access::READ)
        };
        assert!(may(Some("ada"), "c1", "c1/x/ada"));
        assert!(!may(Some("ada"), "c1", "c1/x/adas"));
        assert!(!may(None, "c1", "c1/x/ada"));
        assert!(!may(Some("ada"), "+", "c1/x/ada"));
        assert!(!may(Some("#"), "c1", "c1/x/ada"));
        assert!(!may(Some("ada"), "c/d", "c/d/x/ada"));
        // The client cannot name itself into `$SYS`.
        assert!(!may(Some("ada"), "$SYS", "$SYS/x/ada"));
        assert_eq!(for_client(&parsed, Identity { client_identifier: "$SYS", ..ada }), None);
    }
}
