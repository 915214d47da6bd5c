//! Where a field stands: paths such as `value`, `pos.lat` or `points[0].x`, looked up in a document or its skeleton.
//!
//! The text is valid JSON, or a skeleton of one: `document` has seen to that. Of members with one name the last counts.

use std::fmt;

use super::document::{NUMBER, STRING, WORD, unescape};

/// Segments of a path, at least 1.
const SEGMENTS_MAX: usize = 32;

/// The way to a field: names of members and positions in arrays.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path(Vec<Box<str>>);

impl Path {
    /// Reads `a.b[0]`, where a segment may stand in double quotes: `"a.b".c`. `None` when it is no path.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut segments = Vec::new();
        let mut rest = text;
        loop {
            let end;
            if let Some(quoted) = rest.strip_prefix('"') {
                let (name, after) = quoted.split_once('"')?;
                segments.push(name.into());
                rest = after;
            } else {
                end = rest.find(['.', '[', '"']).unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                if name.is_empty() {
                    return None;
                }
                segments.push(name.into());
                rest = after;
            }
            while let Some(index) = rest.strip_prefix('[') {
                let (digits, after) = index.split_once(']')?;
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                segments.push(digits.into());
                rest = after;
            }
            if segments.len() > SEGMENTS_MAX {
                return None;
            }
            if rest.is_empty() {
                return Some(Self(segments));
            }
            rest = rest.strip_prefix('.')?;
        }
    }

    /// The path of one member.
    pub(super) fn name(name: &str) -> Self {
        Self(vec![name.into()])
    }

    /// The segments.
    #[must_use]
    pub fn segments(&self) -> &[Box<str>] {
        &self.0
    }

    /// The path's only segment, if it has one.
    #[must_use]
    pub fn single(&self) -> Option<&str> {
        match self.0.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            if segment.contains(['.', '[', '"', ' ']) {
                write!(f, "\"{segment}\"")?
            } else {
                f.write_str(segment)?
            }
        }
        Ok(())
    }
}

/// What stands at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Object,
    Array,
    Number,
    String,
    Word,
}

/// A value in a text: its kind and range, and how many values stand before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
    /// Of a skeleton: the place of its value among the slots.
    pub slot: usize,
}

/// The value at `segments` below the value that `text` is; with no segments that value itself.
pub(super) fn find(text: &[u8], segments: &[Box<str>]) -> Option<Found> {
    let mut walk = Walk { text, at: 0, slots: 0 };
    walk.value(segments)
}

/// Tells the members of an object, and those of objects in it, each with the path to it; arrays are told whole. False
/// when `text` is no object.
pub(super) fn leaves(text: &[u8], leaf: &mut dyn FnMut(&str, Found)) -> bool {
    let mut walk = Walk { text, at: 0, slots: 0 };
    walk.white();
    let is_object = walk.peek() == Some(b'{');
    if is_object {
        walk.leaves(&mut String::new(), 0, leaf);
    }
    is_object
}

/// The kind of the value that begins with this byte.
const fn kind(first: Option<u8>) -> Kind {
    match first {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        Some(b'"' | STRING) => Kind::String,
        Some(NUMBER | b'-' | b'0'..=b'9') => Kind::Number,
        _ => Kind::Word,
    }
}

struct Walk<'a> {
    text: &'a [u8],
    at: usize,
    slots: usize,
}

impl Walk<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn white(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Steps over a value; answers what stands at the path in it.
    fn value(&mut self, segments: &[Box<str>]) -> Option<Found> {
        self.white();
        let (start, slot) = (self.at, self.slots);
        self.peek()?;
        let kind = kind(self.peek());
        let inner = match kind {
            Kind::Object | Kind::Array => self.container(kind == Kind::Object, segments),
            Kind::String | Kind::Number | Kind::Word => {
                self.scalar();
                None
            }
        };
        if segments.is_empty() { Some(Found { kind, start, end: self.at, slot }) } else { inner }
    }

    fn container(&mut self, is_object: bool, segments: &[Box<str>]) -> Option<Found> {
        self.at += 1;
        let mut found = None;
        let mut position = 0usize;
        loop {
            self.white();
            match self.peek() {
                None => return found,
                Some(b'}' | b']') => {
                    self.at += 1;
                    return found;
                }
                Some(b',') => self.at += 1,
                Some(_) => {
                    let wanted = segments.split_first().filter(|(first, _)| {
                        if is_object { self.is_key(first) } else { first.parse() == Ok(position) }
                    });
                    if is_object {
                        self.string();
                        self.white();
                        // The colon.
                        self.at += 1;
                    }
                    position += 1;
                    let before = self.at;
                    match wanted {
                        Some((_, rest)) => found = self.value(rest),
                        None => self.skip(),
                    }
                    if self.at == before {
                        return found;
                    }
                }
            }
        }
    }

    fn skip(&mut self) {
        // Outside of strings brackets pair, so counting them is enough.
        self.white();
        let mut depth = 0usize;
        loop {
            match self.peek() {
                None => return,
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                Some(b',' | b':' | b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(_) => self.scalar(),
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn is_key(&self, name: &str) -> bool {
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        if rest.get(..name.len()) == Some(name.as_bytes()) && rest.get(name.len()) == Some(&b'"') {
            return true;
        }
        let end = string_end(self.text, self.at);
        let inside = self.text.get(self.at + 1..end.saturating_sub(1)).unwrap_or_default();
        inside.contains(&b'\\') && unescape(inside) == name
    }

    fn string(&mut self) {
        self.at = string_end(self.text, self.at);
    }

    fn scalar(&mut self) {
        match self.peek() {
            Some(NUMBER | STRING | WORD) => {
                self.at += 1;
                self.slots += 1;
            }
            Some(b'"') => self.string(),
            _ => {
                self.at += 1;
                while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) {
                    self.at += 1;
                }
            }
        }
    }

    fn leaves(&mut self, path: &mut String, depth: usize, leaf: &mut dyn FnMut(&str, Found)) {
        self.at += 1;
        loop {
            self.white();
            match self.peek() {
                None => return,
                Some(b'}') => {
                    self.at += 1;
                    return;
                }
                Some(b',') => self.at += 1,
                Some(_) => {
                    let end = string_end(self.text, self.at);
                    let inside = self.text.get(self.at + 1..end.saturating_sub(1)).unwrap_or_default();
                    let before = path.len();
                    if before > 0 {
                        path.push('.');
                    }
                    path.push_str(&unescape(inside));
                    self.at = end;
                    self.white();
                    self.at += 1;
                    self.white();
                    let kind = kind(self.peek());
                    let (start, slot) = (self.at, self.slots);
                    let is_empty = self.text.get(self.at + 1) == Some(&b'}');
                    if kind == Kind::Object && !is_empty && depth < SEGMENTS_MAX {
                        self.leaves(path, depth + 1, leaf);
                    } else {
                        self.skip();
                        leaf(path, Found { kind, start, end: self.at, slot });
                    }
                    path.truncate(before);
                }
            }
        }
    }
}

fn string_end(text: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    loop {
        match text.get(at) {
            None => return text.len(),
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::{Slot, check, split};
    use super::*;

    const TEXT: &str =
        r#" {"a": 1, "b":{"c":"x,}", "d" : [10, {"e":true}, []], "\u0066": null}, "g": {}, "a": 2.5} "#;

    fn at<'t>(text: &'t str, path: &str) -> Option<&'t str> {
        let found = find(text.as_bytes(), Path::parse(path).unwrap().segments())?;
        text.get(found.start..found.end)
    }

    #[test]
    fn fields_are_found_in_the_text_and_in_its_skeleton() {
        assert_eq!(check(TEXT), Ok(()));
        let (mut skeleton, mut slots) = (Vec::new(), Vec::<Slot<'_>>::new());
        split(TEXT.as_bytes(), &mut skeleton, &mut slots);
        for (path, expected) in [
            ("a", Some("2.5")),
            ("b.c", Some("\"x,}\"")),
            ("b.d[0]", Some("10")),
            ("b.d[1].e", Some("true")),
            ("b.d.1.e", Some("true")),
            ("b.d[2]", Some("[]")),
            ("b.d[3]", None),
            ("b.f", Some("null")),
            ("g", Some("{}")),
            ("g.x", None),
            ("a.x", None),
            ("h", None),
        ] {
            assert_eq!(at(TEXT, path), expected, "{path}");
            let path = Path::parse(path).unwrap();
            let in_text = find(TEXT.as_bytes(), path.segments());
            let in_skeleton = find(&skeleton, path.segments());
            assert_eq!(in_text.map(|f| f.kind), in_skeleton.map(|f| f.kind), "{path}");
            if let (Some(found), Some(expected)) = (in_skeleton, expected)
                && !matches!(found.kind, Kind::Object | Kind::Array)
            {
                let value = String::from_utf8(slots[found.slot].text.to_vec()).unwrap();
                assert_eq!(value, expected.trim_matches('"'), "{path}");
            }
        }
    }

    #[test]
    fn leaves_are_named_by_their_paths() {
        let mut names = Vec::new();
        leaves(TEXT.as_bytes(), &mut |name, found| {
            assert!(at(TEXT, name).is_some(), "{name} {found:?}");
            names.push(name.to_owned());
        });
        assert_eq!(names, ["a", "b.c", "b.d", "b.f", "g", "a"]);
    }

    #[test]
    fn paths_are_read_and_shown() {
        for (text, shown) in
            [("a.b", "a.b"), ("a[0][1].b", "a.0.1.b"), ("\"a.b\".c", "\"a.b\".c"), ("_topic", "_topic")]
        {
            assert_eq!(Path::parse(text).unwrap().to_string(), shown);
        }
        for text in ["", ".", "a.", "a[x]", "a[", "a]b[0", "\"a", "a\"b\""] {
            let parsed = Path::parse(text);
            assert!(parsed.is_none() || text == "a]b[0", "{text}: {parsed:?}");
        }
    }
}
