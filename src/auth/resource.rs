//! Rules about queues and exchanges, which are AMQP's: who may make, fill and empty them.
//!
//! ```text
//! user worker
//! queue [configure|write|read|deny] NAME        # several, joined by |; without: all three
//! exchange [configure|write|read|deny] NAME     # * in a name stands for any text
//! ```
//!
//! The rights are RabbitMQ's: *configure* declares and deletes, *write* puts messages in, *read* takes them out. A `deny`
//! that matches refuses, else a rule that gives the right allows, else it is refused. What crosses `amq.topic` is under
//! the rules about topics instead. Owns the lines' grammar behind their first word, and the decision.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use super::LineProblem;
use super::acl::{BLANKS, take_word};
use super::rule::Met;

/// What a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    Queue,
    Exchange,
}

impl Resource {
    /// The word in the ACL file and in replies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Exchange => "exchange",
        }
    }
}

/// What is done with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    Configure = 1,
    Write = 2,
    Read = 4,
}

impl Right {
    /// The word in the ACL file and in replies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

const DENY: u8 = 8;
const ALL: u8 = Right::Configure as u8 | Right::Write as u8 | Right::Read as u8;

#[derive(Clone, Debug)]
struct Rule {
    resource: Resource,
    rights: u8,
    /// With `*` for any text.
    name: Box<str>,
    number: usize,
    met: Met,
}

/// The rules of one user.
#[derive(Clone, Debug, Default)]
pub(super) struct ResourceRules(Vec<Rule>);

impl ResourceRules {
    /// Adds the line whose first word names `resource`. An error comes with the part of the line that it is about.
    pub fn add<'l>(
        &mut self,
        number: usize,
        resource: Resource,
        rest: &'l str,
    ) -> Result<(), (&'l str, LineProblem)> {
        let missing = match resource {
            Resource::Queue => "the name of the queue",
            Resource::Exchange => "the name of the exchange",
        };
        let Some((first, name)) = take_word(rest) else { return Err((rest, LineProblem::Missing(missing))) };
        let (rights, name) = match rights(first) {
            Some(_) if name.is_empty() => return Err((name, LineProblem::Missing(missing))),
            Some(rights) => (rights, name),
            None if name.is_empty() => (ALL, first),
            None => return Err((first, LineProblem::UnknownRight(first.to_owned()))),
        };
        let name = name.trim_end_matches(BLANKS).into();
        self.0.push(Rule { resource, rights, name, number, met: Met::default() });
        Ok(())
    }

    /// The numbers of the lines, and whether something was asked that each is about.
    pub fn lines(&self) -> impl Iterator<Item = (usize, bool)> {
        self.0.iter().map(|rule| (rule.number, rule.met.is_noted()))
    }

    /// Whether the right is given.
    pub fn allow(&self, resource: Resource, right: Right, name: &str) -> bool {
        let mut allowed = false;
        for rule in self.0.iter().filter(|rule| rule.resource == resource && matches(&rule.name, name)) {
            rule.met.note();
            if rule.rights & DENY != 0 {
                return false;
            }
            allowed |= rule.rights & right as u8 != 0;
        }
        allowed
    }
}

fn rights(word: &str) -> Option<u8> {
    word.split('|').try_fold(0, |rights, word| {
        Some(
            rights
                | match word {
                    "configure" => Right::Configure as u8,
                    "write" => Right::Write as u8,
                    "read" => Right::Read as u8,
                    "deny" => DENY,
                    _ => return None,
                },
        )
    })
}

/// `*` stands for any text, the empty one included.
fn matches(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some((_, behind)) = rest.split_once(piece) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("q", "q", true),
            ("q", "qq", false),
            ("q*", "q", true),
            ("q*", "q.1", true),
            ("*.in", "a.in", true),
            ("*.in", "a.inn", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
            ("a*a", "a", false),
            ("*", "", true),
            ("**x", "x", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_right_is_given_by_name_and_a_deny_takes_it() {
        let mut rules = ResourceRules::default();
        for line in ["configure|read tasks.*", "write tasks.in", "deny tasks.secret", "own"] {
            rules.add(1, Resource::Queue, line).expect("a good line");
        }
        let queue = |right, name| rules.allow(Resource::Queue, right, name);
        assert!(queue(Right::Read, "tasks.a") && queue(Right::Configure, "tasks.a"));
        assert!(!queue(Right::Write, "tasks.a") && queue(Right::Write, "tasks.in"));
        assert!(
            !queue(Right::Read, "tasks.secret") && queue(Right::Write, "own") && !queue(Right::Read, "other")
        );
        assert!(!rules.allow(Resource::Exchange, Right::Read, "tasks.a"));
        for bad in ["", "read", "fly q", "read|fly q"] {
            assert!(rules.add(1, Resource::Queue, bad).is_err(), "{bad}");
        }
    }
}
