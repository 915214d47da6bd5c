//! The language of `--where`: comparisons, `and`, `or`, `not`, `exists(field)`, `contains`, brackets.
//!
//! ```text
//! or     := and ("or" and)*            field   := name ("." name | "[" digits "]")* | "quoted name"
//! and    := not ("and" not)*           literal := number | 'text' | true | false | null
//! not    := "not" not | primary        operator := = == != <> < <= > >= contains
//! primary := "(" or ")" | "exists" "(" field ")" | operand [operator operand]
//! ```
//!
//! A field is one of the reading, else a tag, or `_topic` or `_received_at`. Where a field is missing, or a number is
//! held against a text, a comparison is false, `!=` too; an operand alone is true when it is `true`.

use std::cmp::Ordering;
use std::fmt;

use super::chunk::Field;
use super::path::Path;

/// Bytes of a condition.
const TEXT_BYTES_MAX: usize = 4096;
/// Brackets and `not` within each other.
const DEPTH_MAX: usize = 64;

/// Where a value of a reading stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    Topic,
    ReceivedAt,
    /// A field, or a tag where there is no such field.
    At(Path),
}

impl Place {
    /// Reads a field's name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "_topic" | "topic" => Some(Self::Topic),
            "_received_at" => Some(Self::ReceivedAt),
            _ => Path::parse(text).map(Self::At),
        }
    }
}

/// A condition on a reading.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    root: Node,
    places: Vec<Place>,
}

#[derive(Clone, PartialEq, Debug)]
enum Node {
    Any(Vec<Self>),
    All(Vec<Self>),
    Not(Box<Self>),
    Exists(usize),
    True(Operand),
    Compare(Operand, Operator, Operand),
}

#[derive(Clone, PartialEq, Debug)]
enum Operand {
    Place(usize),
    Number(f64),
    Text(String),
    Truth(bool),
    Null,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Contains,
}

/// What is wrong with a condition, and where (bytes from its beginning).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConditionError {
    pub at: usize,
    pub what: String,
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "condition, character {}: {}", self.at + 1, self.what)
    }
}

impl std::error::Error for ConditionError {}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        if text.len() > TEXT_BYTES_MAX {
            let what = format!("longer than {TEXT_BYTES_MAX} bytes");
            return Err(ConditionError { at: TEXT_BYTES_MAX, what });
        }
        let mut parser =
            Parser { tokens: tokens(text)?, at: 0, end: text.len(), depth: 0, places: Vec::new() };
        let root = parser.any()?;
        if let Some((at, token)) = parser.tokens.get(parser.at) {
            return Err(ConditionError { at: *at, what: format!("{token} is not expected here") });
        }
        Ok(Self { root, places: parser.places })
    }

    /// The places that it looks at; `Condition::holds` asks for them by position.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Whether it holds for a reading whose values `value` tells.
    pub(super) fn holds<'f>(&'f self, value: &dyn Fn(usize) -> Option<Field<'f>>) -> bool {
        self.root.holds(value)
    }
}

impl Node {
    fn holds<'f>(&'f self, value: &dyn Fn(usize) -> Option<Field<'f>>) -> bool {
        match self {
            Self::Any(nodes) => nodes.iter().any(|node| node.holds(value)),
            Self::All(nodes) => nodes.iter().all(|node| node.holds(value)),
            Self::Not(node) => !node.holds(value),
            Self::Exists(place) => value(*place).is_some(),
            Self::True(operand) => matches!(operand.value(value), Some(Field::Truth(true))),
            Self::Compare(left, operator, right) => {
                let (Some(left), Some(right)) = (left.value(value), right.value(value)) else { return false };
                compare(&left, *operator, &right)
            }
        }
    }
}

impl Operand {
    fn value<'f>(&'f self, value: &dyn Fn(usize) -> Option<Field<'f>>) -> Option<Field<'f>> {
        match self {
            Self::Place(place) => value(*place),
            Self::Number(number) => Some(Field::Number(*number)),
            Self::Text(text) => Some(Field::Text(text.as_str().into())),
            Self::Truth(truth) => Some(Field::Truth(*truth)),
            Self::Null => Some(Field::Null),
        }
    }
}

fn compare(left: &Field<'_>, operator: Operator, right: &Field<'_>) -> bool {
    let ordering = match (left, right) {
        (Field::Number(left), Field::Number(right)) => left.partial_cmp(right),
        (Field::Text(left), Field::Text(right)) => {
            if operator == Operator::Contains {
                return left.contains(&**right);
            }
            Some(left.cmp(right))
        }
        (Field::Truth(left), Field::Truth(right)) => Some(left.cmp(right)),
        (Field::Null, Field::Null) => Some(Ordering::Equal),
        (Field::Null, _) | (_, Field::Null) => {
            // Null is a value of its own: it equals nothing else.
            return operator == Operator::Unequal;
        }
        _ => None,
    };
    let Some(ordering) = ordering else { return false };
    match operator {
        Operator::Equal => ordering.is_eq(),
        Operator::Unequal => ordering.is_ne(),
        Operator::Less => ordering.is_lt(),
        Operator::LessOrEqual => ordering.is_le(),
        Operator::Greater => ordering.is_gt(),
        Operator::GreaterOrEqual => ordering.is_ge(),
        Operator::Contains => false,
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    Name(String),
    Number(f64),
    Text(String),
    Operator(Operator),
    Open,
    Close,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "'{text}'"),
            Self::Operator(_) => f.write_str("an operator"),
            Self::Open => f.write_str("`(`"),
            Self::Close => f.write_str("`)`"),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ConditionError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let first = rest.chars().next().unwrap_or(' ');
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, len) = token(rest, first).map_err(|what| ConditionError { at, what })?;
        tokens.push((at, token));
        at += len;
    }
    Ok(tokens)
}

fn token(rest: &str, first: char) -> Result<(Token, usize), String> {
    let operators = [
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<>", Operator::Unequal),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("=", Operator::Equal),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    if let Some((word, operator)) = operators.iter().find(|(word, _)| rest.starts_with(word)) {
        return Ok((Token::Operator(*operator), word.len()));
    }
    match first {
        '(' => Ok((Token::Open, 1)),
        ')' => Ok((Token::Close, 1)),
        '\'' => text_token(rest),
        '0'..='9' | '-' | '+' | '.' => {
            let is_part = |(at, c): (usize, char)| {
                let signed = matches!(c, '+' | '-')
                    && (at == 0 || rest.get(..at).is_some_and(|before| before.ends_with(['e', 'E'])));
                !(c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E') || signed)
            };
            let len = rest.char_indices().find(|part| is_part(*part)).map_or(rest.len(), |(at, _)| at);
            let word = rest.get(..len).unwrap_or_default();
            let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
            number.map(|number| (Token::Number(number), len)).ok_or_else(|| format!("`{word}` is no number"))
        }
        c if c == '"' || c == '_' || c.is_alphabetic() => {
            let mut quoted = false;
            let ends = |c: char| {
                quoted ^= c == '"';
                !(quoted || c.is_alphanumeric() || matches!(c, '"' | '_' | '.' | '[' | ']' | '-' | '$' | '/'))
            };
            let len = rest.find(ends).unwrap_or(rest.len());
            let name = rest.get(..len).unwrap_or_default();
            let token = match name.to_ascii_lowercase().as_str() {
                "contains" => Token::Operator(Operator::Contains),
                _ => Token::Name(name.to_owned()),
            };
            Ok((token, len))
        }
        c => Err(format!("`{c}` is not expected here")),
    }
}

/// A text in single quotes, in which two stand for one.
fn text_token(rest: &str) -> Result<(Token, usize), String> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c != '\'' {
            text.push(c);
        } else if chars.peek().is_some_and(|(_, next)| *next == '\'') {
            text.push('\'');
            chars.next();
        } else {
            return Ok((Token::Text(text), at + 1));
        }
    }
    Err("the text has no closing quote".to_owned())
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    end: usize,
    depth: usize,
    places: Vec<Place>,
}

impl Parser {
    fn any(&mut self) -> Result<Node, ConditionError> {
        let mut nodes = vec![self.all()?];
        while self.take_word("or") {
            nodes.push(self.all()?);
        }
        Ok(one_or(nodes, Node::Any))
    }

    fn all(&mut self) -> Result<Node, ConditionError> {
        let mut nodes = vec![self.not()?];
        while self.take_word("and") {
            nodes.push(self.not()?);
        }
        Ok(one_or(nodes, Node::All))
    }

    fn not(&mut self) -> Result<Node, ConditionError> {
        if !self.take_word("not") {
            return self.primary();
        }
        self.deeper()?;
        let node = Node::Not(Box::new(self.not()?));
        self.depth -= 1;
        Ok(node)
    }

    fn primary(&mut self) -> Result<Node, ConditionError> {
        if self.take(&Token::Open) {
            self.deeper()?;
            let node = self.any()?;
            self.depth -= 1;
            return if self.take(&Token::Close) { Ok(node) } else { self.error("`)` is missing") };
        }
        let opens = matches!(self.tokens.get(self.at + 1), Some((_, Token::Open)));
        if opens && (self.take_word("exists") || self.take_word("has")) {
            self.at += 1;
            let operand = self.operand()?;
            let Operand::Place(place) = operand else { return self.error("exists wants a field") };
            return if self.take(&Token::Close) {
                Ok(Node::Exists(place))
            } else {
                self.error("`)` is missing")
            };
        }
        let left = self.operand()?;
        let Some((_, Token::Operator(operator))) = self.tokens.get(self.at) else {
            return match left {
                Operand::Place(_) | Operand::Truth(_) => Ok(Node::True(left)),
                _ => self.error("a comparison is missing"),
            };
        };
        let operator = *operator;
        self.at += 1;
        Ok(Node::Compare(left, operator, self.operand()?))
    }

    fn operand(&mut self) -> Result<Operand, ConditionError> {
        let token = self.tokens.get(self.at).map(|(_, token)| token.clone());
        let operand = match token {
            Some(Token::Number(number)) => Operand::Number(number),
            Some(Token::Text(text)) => Operand::Text(text),
            Some(Token::Name(name)) => match name.as_str() {
                "true" => Operand::Truth(true),
                "false" => Operand::Truth(false),
                "null" => Operand::Null,
                "and" | "or" | "not" => return self.error("a field or a value is missing"),
                _ => match Place::parse(&name) {
                    Some(place) => Operand::Place(self.place(place)),
                    None => return self.error("this is no field"),
                },
            },
            _ => return self.error("a field or a value is missing"),
        };
        self.at += 1;
        Ok(operand)
    }

    fn place(&mut self, place: Place) -> usize {
        self.places.iter().position(|known| *known == place).unwrap_or_else(|| {
            self.places.push(place);
            self.places.len() - 1
        })
    }

    fn deeper(&mut self) -> Result<(), ConditionError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { self.error("nested too deeply") } else { Ok(()) }
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|(_, found)| found == token);
        self.at += usize::from(found);
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self
            .tokens
            .get(self.at)
            .is_some_and(|(_, found)| matches!(found, Token::Name(name) if name.eq_ignore_ascii_case(word)));
        self.at += usize::from(found);
        found
    }

    fn error<T>(&self, what: &str) -> Result<T, ConditionError> {
        let at = self.tokens.get(self.at).map_or(self.end, |(at, _)| *at);
        Err(ConditionError { at, what: what.to_owned() })
    }
}

fn one_or(mut nodes: Vec<Node>, make: impl FnOnce(Vec<Node>) -> Node) -> Node {
    match nodes.pop() {
        Some(node) if nodes.is_empty() => node,
        Some(node) => {
            nodes.push(node);
            make(nodes)
        }
        None => make(nodes),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::chunk::{Chunk, Row};
    use super::*;
    use crate::random::Random;

    fn holds(condition: &str, payload: &str) -> bool {
        let condition = Condition::parse(condition).unwrap();
        let rows = [Row { time: 5, payload: Bytes::copy_from_slice(payload.as_bytes()), identity: None }];
        let chunk = Chunk::of(&rows, None);
        let value = |at: usize| match &condition.places()[at] {
            Place::Topic => Some(Field::Text("s/a".into())),
            Place::ReceivedAt => Some(Field::Number(5.0)),
            Place::At(path) => chunk.field(0, &chunk.locate(path), path),
        };
        condition.holds(&value)
    }

    #[test]
    fn conditions_hold_as_they_read() {
        let reading =
            r#"{"value": 27.3, "unit": "C", "ok": true, "n": null, "pos": {"lat": 1.5}, "it's": 2}"#;
        for (condition, expected) in [
            ("value >= 25", true),
            ("value < 25", false),
            ("25 < value and value <= 27.3", true),
            ("value = 27.30", true),
            ("unit = 'C'", true),
            ("unit == 'F' or unit = 'C'", true),
            ("not unit = 'C'", false),
            ("NOT (value < 0 OR value > 100)", true),
            ("pos.lat = 1.5", true),
            ("exists(pos)", true),
            ("exists(pos.lon)", false),
            ("not has(pos.lon)", true),
            ("ok", true),
            ("ok = true and not missing", true),
            ("n = null", true),
            ("value != null", true),
            ("missing != 3", false),
            ("unit > 3", false),
            ("unit != 3", false),
            ("_topic = 's/a'", true),
            ("_topic contains '/a'", true),
            ("_received_at = 5", true),
            ("value > -1e3", true),
            ("unit = 'it''s'", false),
            ("\"it's\" = 2", true),
        ] {
            assert_eq!(holds(condition, reading), expected, "{condition}");
        }
    }

    #[test]
    fn what_is_no_condition_is_told_with_its_place() {
        for (condition, at) in [
            ("", 0),
            ("value >=", 8),
            ("value >= 25 and", 15),
            ("(value > 1", 10),
            ("value > 1)", 9),
            ("value ! 1", 6),
            ("unit = 'C", 7),
            ("1e999 = a", 0),
            ("5", 1),
            ("a b", 2),
            ("exists(5)", 8),
        ] {
            let error = Condition::parse(condition).unwrap_err();
            assert_eq!(error.at, at, "{condition}: {error}");
        }
        assert!(Condition::parse(&"(".repeat(4000)).is_err());
        assert!(Condition::parse(&"not ".repeat(1000)).is_err());
    }

    #[test]
    fn any_words_are_survived() {
        let words = [
            "a", "and", "or", "not", "(", ")", "=", "<", "1", "'x'", "exists", "\"", "[", "é", ".", "-", "'",
        ];
        let mut random = Random::new(4);
        for _ in 0..20_000 {
            let text: String = (0..random.below(10))
                .map(|_| words[usize::try_from(random.below(words.len() as u64)).unwrap()])
                .flat_map(|word| [word, " "])
                .collect();
            drop(Condition::parse(&text));
        }
    }
}
