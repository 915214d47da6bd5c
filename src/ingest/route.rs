//! Routes: topic filters whose levels can be captured, and the tags that are made of them.

use std::collections::BTreeMap;
use std::time::Duration;

use regex_lite::Regex;

/// Bytes of a filter, a tag's template or a pattern.
const TEXT_BYTES_MAX: usize = 1024;

/// What a reading's acknowledgement waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// It is on flash first.
    Ack,
    /// Nothing: it is flushed at this interval.
    Every(Duration),
}

/// A topic filter with names for some of its levels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// As it is written.
    pub text: String,
    /// As MQTT has it: without the names.
    pub plain: String,
    captures: Vec<(usize, String)>,
}

impl Filter {
    /// Reads a filter such as `sensors/+site/+/temp` or `sensors/#`.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence about the filter.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty".to_owned());
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("is longer than {TEXT_BYTES_MAX} bytes"));
        }
        if text.contains('\0') {
            return Err("holds a zero byte".to_owned());
        }
        if text.starts_with("$share/") {
            return Err("is a shared subscription, which a route cannot be".to_owned());
        }
        let levels = text.split('/').count();
        let mut plain = Vec::new();
        let mut captures: Vec<(usize, String)> = Vec::new();
        for (at, level) in text.split('/').enumerate() {
            if level == "#" {
                if at + 1 < levels {
                    return Err("has `#` before its last level, so it matches nothing".to_owned());
                }
                plain.push("#");
                continue;
            }
            if let Some(name) = level.strip_prefix('+') {
                if !name.is_empty() {
                    if !is_name(name) {
                        return Err(format!("names a level `{name}`, which is no name (letters, digits, _)"));
                    }
                    if captures.iter().any(|(_, known)| known == name) {
                        return Err(format!("names two levels `{name}`"));
                    }
                    captures.push((at, name.to_owned()));
                }
                plain.push("+");
                continue;
            }
            if level.contains(['#', '+']) {
                return Err(format!("has a wildcard inside the level `{level}`"));
            }
            plain.push(level);
        }
        Ok(Self { text: text.to_owned(), plain: plain.join("/"), captures })
    }

    fn captured<'t>(&self, name: &str, topic: &'t str) -> Option<&'t str> {
        let (at, _) = self.captures.iter().find(|(_, known)| known == name)?;
        topic.split('/').nth(*at)
    }
}

/// One `[ingest.NAME]`.
#[derive(Clone, Debug)]
pub struct Route {
    pub name: String,
    pub filters: Vec<Filter>,
    pub collection: String,
    /// By name: a text in which `{x}` stands for what was captured as x. Empty: each capture is a tag.
    pub tags: BTreeMap<String, String>,
    pub topic_regex: Option<Regex>,
    pub durability: Durability,
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        let pattern = |route: &Self| route.topic_regex.as_ref().map(|regex| regex.as_str().to_owned());
        (&self.name, &self.filters, &self.collection, &self.tags, self.durability, pattern(self))
            == (&other.name, &other.filters, &other.collection, &other.tags, other.durability, pattern(other))
    }
}

impl Eq for Route {}

impl Route {
    /// Names that something can be captured as: by every filter, and by the pattern.
    #[must_use]
    pub fn capture_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.pattern_names();
        for (_, name) in self.filters.iter().flat_map(|filter| &filter.captures) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// The tags of a reading on `topic`; `None` when no filter takes it.
    #[must_use]
    pub fn tags_of(
        &self,
        topic: &str,
        takes: impl Fn(&str, &str) -> bool,
    ) -> Option<Vec<(Box<str>, Box<str>)>> {
        let filter = self.filters.iter().find(|filter| takes(&filter.plain, topic))?;
        let matched = self.topic_regex.as_ref().and_then(|regex| regex.captures(topic));
        let value = |name: &str| {
            let by_pattern =
                matched.as_ref().and_then(|matched| matched.name(name)).map(|found| found.as_str());
            by_pattern.or_else(|| filter.captured(name, topic)).unwrap_or_default()
        };
        if self.tags.is_empty() {
            let mut tags: Vec<(Box<str>, Box<str>)> = self
                .capture_names()
                .into_iter()
                .map(|name| {
                    let v = value(&name).into();
                    (name.into(), v)
                })
                .collect();
            tags.sort();
            return Some(tags);
        }
        Some(
            self.tags
                .iter()
                .map(|(name, text)| (name.as_str().into(), filled(text, &value).into()))
                .collect(),
        )
    }

    fn pattern_names(&self) -> Vec<String> {
        self.topic_regex.iter().flat_map(|regex| regex.capture_names().flatten().map(str::to_owned)).collect()
    }
}

/// Reads a pattern with named groups.
///
/// # Errors
/// What is wrong, as the end of a sentence about the pattern.
pub fn parse_pattern(text: &str) -> Result<Regex, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("is longer than {TEXT_BYTES_MAX} bytes"));
    }
    Regex::new(text).map_err(|error| format!("is no regular expression: {error}"))
}

/// The names that a tag's template refers to.
///
/// # Errors
/// What is wrong with it, as the end of a sentence about it.
pub fn references(template: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut rest = template;
    while let Some((_, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { return Err("has `{` without `}`".to_owned()) };
        if !is_name(name) {
            return Err(format!("refers to `{name}`, which is no name"));
        }
        names.push(name.to_owned());
        rest = after;
    }
    Ok(names)
}

fn filled<'v>(template: &str, value: &dyn Fn(&str) -> &'v str) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { break };
        out.push_str(before);
        out.push_str(value(name));
        rest = after;
    }
    out.push_str(rest);
    out
}

fn is_name(text: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(is_start) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::takes;

    fn route(filters: &[&str], tags: &[(&str, &str)], pattern: Option<&str>) -> Route {
        Route {
            name: "r".to_owned(),
            filters: filters.iter().map(|filter| Filter::parse(filter).unwrap()).collect(),
            collection: "readings".to_owned(),
            tags: tags.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
            topic_regex: pattern.map(|pattern| parse_pattern(pattern).unwrap()),
            durability: Durability::Ack,
        }
    }

    fn tags(route: &Route, topic: &str) -> Option<String> {
        let tags = route.tags_of(topic, takes)?;
        Some(tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn levels_and_groups_become_tags() {
        let captured = route(&["sensors/+site/+room/temp", "old/+/+room"], &[], None);
        assert_eq!(tags(&captured, "sensors/n/1/temp").as_deref(), Some("room=1 site=n"));
        assert_eq!(tags(&captured, "old/x/2").as_deref(), Some("room=2 site="));
        assert_eq!(tags(&captured, "sensors/n/1/hum"), None);
        let named = route(&["sensors/+site/#"], &[("place", "{site}-a"), ("fixed", "x")], None);
        assert_eq!(tags(&named, "sensors/n/q").as_deref(), Some("fixed=x place=n-a"));
        let pattern = route(&["a/#"], &[], Some("^a/(?P<kind>[a-z]+)-(?P<n>[0-9]+)$"));
        assert_eq!(tags(&pattern, "a/pump-12").as_deref(), Some("kind=pump n=12"));
        assert_eq!(tags(&pattern, "a/other").as_deref(), Some("kind= n="));
    }

    #[test]
    fn bad_filters_are_told() {
        for text in ["", "a/#/b", "a/b#", "a+/b", "a/+1x", "a/+x/+x", "a/+x y", "$share/g/a", "#/a"] {
            assert!(Filter::parse(text).is_err(), "{text}");
        }
        for text in ["#", "+", "a", "/", "a/+/b", "a/+x/#", "$SYS/#"] {
            assert!(Filter::parse(text).is_ok(), "{text}");
        }
    }
}
