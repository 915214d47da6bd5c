//! Payloads as they came: what kind each is, and JSON taken apart into a skeleton and its values.
//!
//! A JSON text is split at its numbers, strings and words (`true`, `false`, `null`). What is left, the *skeleton*, holds
//! keys, punctuation and white space as they were written, with a control character where a value stood: no valid JSON
//! text has one there. The documents of a sensor mostly share one skeleton; skeleton and values make the text again,
//! byte for byte. RFC 8259 is applied strictly, without recursion.

use std::fmt;

/// Objects and arrays within each other in a document that is taken apart.
pub const DEPTH_MAX: usize = 100;
/// Bytes of a document that is taken apart. A larger one is kept as text.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Values of a document that are columns of their own. One with more is stored whole.
pub(super) const SLOTS_MAX: usize = 256;

/// Stands in a skeleton for a number.
pub(super) const NUMBER: u8 = 1;
/// Stands in a skeleton for a string with its quotes.
pub(super) const STRING: u8 = 2;
/// Stands in a skeleton for `true`, `false` or `null`.
pub(super) const WORD: u8 = 3;
/// The whole skeleton of a payload that is stored as one piece.
pub(super) const WHOLE: u8 = 4;

/// Why a payload that looks like JSON is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// It ends, or goes on, where it should not; the offset.
    Syntax(usize),
    /// More than [`DEPTH_MAX`] objects and arrays within each other.
    Deep,
    /// More than [`DOCUMENT_BYTES_MAX`] bytes.
    Large,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(at) => write!(f, "not JSON at byte {at}"),
            Self::Deep => write!(f, "nested deeper than {DEPTH_MAX}"),
            Self::Large => write!(f, "a document of more than {DOCUMENT_BYTES_MAX} bytes"),
        }
    }
}

/// What a payload is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// A JSON object: its members are the fields.
    Object(&'a str),
    /// Another JSON value.
    Json(&'a str),
    /// Text that is no JSON, and why not where it begins like an object or an array.
    Text(&'a str, Option<Malformed>),
    /// Not UTF-8.
    Binary(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// What `bytes` are.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        let Ok(text) = std::str::from_utf8(bytes) else { return Self::Binary(bytes) };
        let opening = text.trim_start_matches([' ', '\t', '\n', '\r']).bytes().next();
        match check(text) {
            Ok(()) if opening == Some(b'{') => Self::Object(text),
            Ok(()) => Self::Json(text),
            Err(why) => Self::Text(text, matches!(opening, Some(b'{' | b'[')).then_some(why)),
        }
    }
}

/// A value that was taken out: the kind that stands for it, and its text (of a string, what is between the quotes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot<'a> {
    pub kind: u8,
    pub text: &'a [u8],
}

/// Takes a payload apart. One that is no JSON, or has too many values, is one piece.
pub(super) fn split<'a>(payload: &'a [u8], skeleton: &mut Vec<u8>, slots: &mut Vec<Slot<'a>>) {
    skeleton.clear();
    slots.clear();
    if let Ok(text) = std::str::from_utf8(payload) {
        let mut copied = 0;
        let mut take = |kind: u8, start: usize, end: usize| {
            // A string's quotes are implied.
            let (from, to) = if kind == STRING { (start + 1, end - 1) } else { (start, end) };
            skeleton.extend_from_slice(payload.get(copied..start).unwrap_or_default());
            skeleton.push(kind);
            slots.push(Slot { kind, text: payload.get(from..to).unwrap_or_default() });
            copied = end;
            slots.len() <= SLOTS_MAX
        };
        if scan(text, &mut take).is_ok_and(|whole| whole) {
            skeleton.extend_from_slice(payload.get(copied..).unwrap_or_default());
            return;
        }
    }
    skeleton.clear();
    slots.clear();
    skeleton.push(WHOLE);
    slots.push(Slot { kind: WHOLE, text: payload });
}

/// Whether `text` is one JSON value.
///
/// # Errors
/// Why it is none.
pub fn check(text: &str) -> Result<(), Malformed> {
    scan(text, &mut |_, _, _| true).map(|_| ())
}

/// Walks through a JSON text and tells each value's kind and range. Answers false when `value` stopped it.
fn scan(text: &str, value: &mut dyn FnMut(u8, usize, usize) -> bool) -> Result<bool, Malformed> {
    let bytes = text.as_bytes();
    if bytes.len() > DOCUMENT_BYTES_MAX {
        return Err(Malformed::Large);
    }
    // One bit for each open container: 1 is an object.
    let mut open = 0u128;
    let mut depth = 0usize;
    let mut at = white(bytes, 0);
    loop {
        // A value is due at `at`.
        let next = bytes.get(at).copied();
        match next {
            Some(b'{' | b'[') => {
                if depth == DEPTH_MAX {
                    return Err(Malformed::Deep);
                }
                let is_object = next == Some(b'{');
                open = open << 1 | u128::from(is_object);
                depth += 1;
                at = white(bytes, at + 1);
                let closing = if is_object { b'}' } else { b']' };
                if bytes.get(at) == Some(&closing) {
                    open >>= 1;
                    depth -= 1;
                    at += 1;
                } else {
                    if is_object {
                        at = key(bytes, at)?;
                    }
                    continue;
                }
            }
            _ => {
                let (kind, end) = scalar(bytes, at)?;
                if !value(kind, at, end) {
                    return Ok(false);
                }
                at = end;
            }
        }
        // A value has ended at `at`.
        loop {
            at = white(bytes, at);
            if depth == 0 {
                return if at == bytes.len() { Ok(true) } else { Err(Malformed::Syntax(at)) };
            }
            let is_object = open & 1 == 1;
            match bytes.get(at) {
                Some(b',') => {
                    at = white(bytes, at + 1);
                    if is_object {
                        at = key(bytes, at)?;
                    }
                    break;
                }
                Some(b'}') if is_object => {}
                Some(b']') if !is_object => {}
                _ => return Err(Malformed::Syntax(at)),
            }
            open >>= 1;
            depth -= 1;
            at += 1;
        }
    }
}

fn white(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// A member's name and the colon; answers where its value begins.
fn key(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
    if bytes.get(at) != Some(&b'"') {
        return Err(Malformed::Syntax(at));
    }
    let end = white(bytes, string(bytes, at)?);
    if bytes.get(end) != Some(&b':') {
        return Err(Malformed::Syntax(end));
    }
    Ok(white(bytes, end + 1))
}

fn scalar(bytes: &[u8], at: usize) -> Result<(u8, usize), Malformed> {
    match bytes.get(at) {
        Some(b'"') => Ok((STRING, string(bytes, at)?)),
        Some(b'-' | b'0'..=b'9') => Ok((NUMBER, number(bytes, at)?)),
        _ => {
            let rest = bytes.get(at..).unwrap_or_default();
            let word = ["true", "false", "null"].into_iter().find(|word| rest.starts_with(word.as_bytes()));
            word.map(|word| (WORD, at + word.len())).ok_or(Malformed::Syntax(at))
        }
    }
}

/// Answers where the string that begins at `at` has ended.
fn string(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
    let mut at = at + 1;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => match bytes.get(at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                Some(b'u') => {
                    let digits = bytes.get(at + 2..at + 6).unwrap_or_default();
                    if digits.len() < 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
                        return Err(Malformed::Syntax(at));
                    }
                    at += 6;
                }
                _ => return Err(Malformed::Syntax(at)),
            },
            Some(0x20..) => at += 1,
            _ => return Err(Malformed::Syntax(at)),
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
    let digits = |mut at: usize| {
        let from = at;
        while matches!(bytes.get(at), Some(b'0'..=b'9')) {
            at += 1;
        }
        if at == from { Err(Malformed::Syntax(at)) } else { Ok(at) }
    };
    let start = if bytes.get(at) == Some(&b'-') { at + 1 } else { at };
    let mut at = if bytes.get(start) == Some(&b'0') { start + 1 } else { digits(start)? };
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let signed = matches!(bytes.get(at + 1), Some(b'+' | b'-'));
        at = digits(at + 1 + usize::from(signed))?;
    }
    Ok(at)
}

/// The text of a string's inside, with its escapes resolved.
#[must_use]
pub fn unescape(inside: &[u8]) -> String {
    if !inside.contains(&b'\\') {
        return String::from_utf8_lossy(inside).into_owned();
    }
    let quoted = [b"\"", inside, b"\""].concat();
    serde_json::from_slice(&quoted).unwrap_or_else(|_| String::from_utf8_lossy(inside).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn join(skeleton: &[u8], slots: &[Slot<'_>]) -> Vec<u8> {
        let mut slots = slots.iter();
        let mut out = Vec::new();
        for byte in skeleton {
            match *byte {
                STRING => out.extend([b"\"", slots.next().unwrap().text, b"\""].concat()),
                NUMBER | WORD | WHOLE => out.extend_from_slice(slots.next().unwrap().text),
                byte => out.push(byte),
            }
        }
        assert!(slots.next().is_none());
        out
    }

    #[test]
    fn an_object_is_taken_apart() {
        let (mut skeleton, mut slots) = (Vec::new(), Vec::new());
        split(br#"{"value": 27.30, "unit":"\"C", "ok" : [true,{}]}"#, &mut skeleton, &mut slots);
        assert_eq!(skeleton, b"{\"value\": \x01, \"unit\":\x02, \"ok\" : [\x03,{}]}");
        let texts: Vec<_> = slots.iter().map(|slot| slot.text).collect();
        assert_eq!(texts, [&b"27.30"[..], b"\\\"C", b"true"]);
    }

    #[test]
    fn what_serde_takes_is_taken_and_everything_comes_together_again() {
        let pieces = [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"\\u00e4\"",
            "\"\\x\"",
            "1",
            "-0",
            "-",
            "5E-1",
            "01",
            "1.",
            "true",
            "null",
            "nul",
            " ",
            "\n",
            "\u{e4}",
            "\u{1}",
            "{\"k\":",
            "[1,2]",
            "{}",
            "[]",
        ];
        let mut random = Random::new(5);
        let mut valid = 0;
        for _ in 0..100_000 {
            let text: String = (0..random.below(7))
                .map(|_| pieces[usize::try_from(random.below(pieces.len() as u64)).unwrap()])
                .collect();
            let theirs = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            assert_eq!(check(&text).is_ok(), theirs, "{text:?}");
            valid += usize::from(theirs);
            let (mut skeleton, mut slots) = (Vec::new(), Vec::new());
            split(text.as_bytes(), &mut skeleton, &mut slots);
            assert_eq!(join(&skeleton, &slots), text.as_bytes());
        }
        assert!(valid > 1000, "{valid}");
    }

    #[test]
    fn depth_size_and_number_of_values_are_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(check(&nested(100)), Ok(()));
        assert_eq!(check(&nested(101)), Err(Malformed::Deep));
        assert_eq!(check(&nested(500_000)), Err(Malformed::Deep));
        let large = format!("\"{}\"", "x".repeat(DOCUMENT_BYTES_MAX));
        assert_eq!(check(&large), Err(Malformed::Large));
        let many = format!("[{}0]", "0,".repeat(SLOTS_MAX));
        let (mut skeleton, mut slots) = (Vec::new(), Vec::new());
        split(many.as_bytes(), &mut skeleton, &mut slots);
        assert_eq!((skeleton, slots.len()), (vec![WHOLE], 1));
    }

    #[test]
    fn payloads_are_told_apart() {
        assert!(matches!(Payload::of(b" {\"a\":1} "), Payload::Object(_)));
        assert!(matches!(Payload::of(b"18.9"), Payload::Json("18.9")));
        assert!(matches!(Payload::of(b"on"), Payload::Text("on", None)));
        assert!(matches!(Payload::of(b""), Payload::Text("", None)));
        assert!(matches!(Payload::of(b"{\"v\":NaN}"), Payload::Text(_, Some(Malformed::Syntax(5)))));
        assert!(matches!(Payload::of(&[0xff, 0]), Payload::Binary(_)));
    }
}
