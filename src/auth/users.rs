//! The users of a password file: which there are, and a check that does not tell whether one exists.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

use super::password_hash::PasswordHash;
use super::{LineError, LineProblem, lines};

/// Everyone who can log in.
#[derive(Clone, Debug, Default)]
pub struct Users {
    hashes: BTreeMap<String, PasswordHash>,
}

/// The check of one login, to be run where it may take its time.
#[derive(Clone, Debug)]
pub struct Challenge {
    hash: PasswordHash,
    is_known: bool,
}

impl Users {
    /// The users of a password file: lines `NAME:HASH`, empty lines, and comments that start with `#`.
    ///
    /// # Errors
    /// Every line that is wrong; then there are no users at all (CVE-2018-12551).
    pub fn parse(file: &[u8]) -> Result<Self, Vec<LineError>> {
        let mut users = Self::default();
        let mut first_lines = BTreeMap::new();
        let mut errors = Vec::new();
        for (number, line) in lines(file).map_err(|error| vec![error])? {
            match parse_line(line) {
                Ok(None) => {}
                Ok(Some((name, hash))) => {
                    if let Some(&first_line) = first_lines.get(name) {
                        let problem = LineProblem::DuplicateUser { name: name.to_owned(), first_line };
                        errors.push(LineError { line: number, column: 1, problem });
                    } else {
                        first_lines.insert(name, number);
                        users.hashes.insert(name.to_owned(), hash);
                    }
                }
                Err((column, problem)) => errors.push(LineError { line: number, column, problem }),
            }
        }
        if errors.is_empty() { Ok(users) } else { Err(errors) }
    }

    /// The hash of `name`'s password.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&PasswordHash> {
        self.hashes.get(name)
    }

    /// What to check a login of `name` against. An unknown name borrows the hash of a user picked by the name, and
    /// fails: so it takes as long as a known one, also where users have different kinds of hashes.
    #[must_use]
    pub fn challenge(&self, name: &str) -> Option<Challenge> {
        if let Some(hash) = self.hashes.get(name) {
            return Some(Challenge { hash: hash.clone(), is_known: true });
        }
        let pick = crc32fast::hash(name.as_bytes()) as usize;
        let index = pick.checked_rem(self.hashes.len())?;
        let hash = self.hashes.values().nth(index)?;
        Some(Challenge { hash: hash.clone(), is_known: false })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether nobody can log in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

impl Challenge {
    /// Whether `password` is the right one. Slow on purpose.
    #[must_use]
    pub fn verify(&self, password: &[u8]) -> bool {
        // No short cut: both sides are computed whatever the other says.
        self.hash.verify(password) & self.is_known
    }
}

/// The name and hash of a line; `None` for a comment or an empty line. An error comes with its column.
pub(super) fn parse_line(line: &str) -> Result<Option<(&str, PasswordHash)>, (usize, LineProblem)> {
    if line.starts_with('#') || line.trim().is_empty() {
        return Ok(None);
    }
    let (name, text) = line.split_once(':').ok_or((1, LineProblem::NoColon))?;
    let column = name.chars().count().saturating_add(2);
    let name = name.trim();
    if name.is_empty() || name.contains(char::is_control) {
        return Err((1, LineProblem::BadUserName));
    }
    let hash = PasswordHash::parse(text.trim()).map_err(|reason| (column, LineProblem::BadHash(reason)))?;
    Ok(Some((name, hash)))
}

#[cfg(test)]
mod tests {
    use super::super::hash_password;
    use super::*;

    fn hash(password: &str) -> PasswordHash {
        hash_password(password.as_bytes(), [1; 12], 1)
    }

    #[test]
    fn a_file_is_read_with_comments_blanks_and_line_ends_of_two_kinds() {
        let text = format!("# all\n\nada:{}\r\n  bob x : {} \n", hash("a"), hash("b"));
        let users = Users::parse(text.as_bytes()).unwrap();
        assert_eq!(users.len(), 2);
        assert!(users.entry("ada").unwrap().verify(b"a"));
        assert!(users.entry("bob x").unwrap().verify(b"b"));
        assert!(users.entry("bob").is_none());
        assert!(Users::parse(b"").unwrap().is_empty());
    }

    /// CVE-2018-12551: a bad line must not become a user, nor be skipped.
    #[test]
    fn one_bad_line_refuses_the_file_and_all_are_named() {
        let text = format!("ada:{}\nbob\n:{}\n\ncleo:secret\nada:{}\n", hash("a"), hash("b"), hash("c"));
        let errors = Users::parse(text.as_bytes()).unwrap_err();
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "2:1: not a line of the form NAME:HASH",
                "3:1: the user name is empty or holds a control character",
                "5:6: not a password hash: it does not start with $6$, $7$ or $argon2id$; a password in clear text \
                 is refused",
                "6:1: user ada stands on line 1 already",
            ]
        );
        assert_eq!(Users::parse(b"ok\n\xffx").unwrap_err()[0].to_string(), "2:1: the text is not UTF-8");
    }

    #[test]
    fn an_unknown_user_is_checked_too_and_never_gets_in() {
        let users = Users::parse(format!("ada:{}\n", hash("a")).as_bytes()).unwrap();
        assert!(users.challenge("ada").unwrap().verify(b"a"));
        assert!(!users.challenge("ada").unwrap().verify(b"b"));
        let unknown = users.challenge("eve").unwrap();
        assert_eq!(unknown.hash, hash("a"));
        assert!(!unknown.verify(b"a"));
        assert!(Users::default().challenge("eve").is_none());
    }
}
