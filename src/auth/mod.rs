//! Who may connect and what they may do: Mosquitto's password and ACL files. Owns their grammar and the decisions;
//! reading the files, running slow checks on a worker and answering the wire are for `net`, `cli` and `gateway`.
//!
//! Both files fail closed: a line that is not understood makes the whole file an error, never a rule that is
//! missing (CVE-2018-12551), and an empty ACL file allows nothing (CVE-2018-12550).

mod acl;
mod denials;
mod password_file;
mod password_hash;
mod resource;
mod rule;
mod users;

use std::fmt;

pub use acl::{Acl, AclLine, Identity, Whose};
pub use denials::{Denial, Denials, Denied};
pub use password_file::{PasswordFile, check_user_name, replace_private};
pub use password_hash::{ITERATIONS_DEFAULT, PasswordHash, SALT_BYTES, hash_password};
pub use resource::{Resource, Right};
pub use users::{Challenge, Users};

/// A line of a password or ACL file that is wrong. Lines and columns (characters) count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    pub line: usize,
    pub column: usize,
    pub problem: LineProblem,
}

/// Why a line is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineProblem {
    /// The file is not UTF-8 here.
    NotUtf8,
    /// A password line without `:`.
    NoColon,
    /// A user name that is empty or holds a control character.
    BadUserName,
    /// A second line for one user; the first is on the given line.
    DuplicateUser { name: String, first_line: usize },
    /// What follows the colon is not a hash that is understood; the reason.
    BadHash(String),
    /// No rule starts with this word.
    UnknownWord(String),
    /// Not one of `read`, `write`, `readwrite`, `deny`.
    UnknownAccess(String),
    /// The rest of the rule is missing; what it should be.
    Missing(&'static str),
    /// Not a topic filter; the reason.
    BadFilter(String),
    /// Not made of `configure`, `write`, `read` and `deny`.
    UnknownRight(String),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.problem)
    }
}

impl std::error::Error for LineError {}

impl fmt::Display for LineProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 => f.write_str("the text is not UTF-8"),
            Self::NoColon => f.write_str("not a line of the form NAME:HASH"),
            Self::BadUserName => f.write_str("the user name is empty or holds a control character"),
            Self::DuplicateUser { name, first_line } => {
                write!(f, "user {name} stands on line {first_line} already")
            }
            Self::BadHash(reason) => write!(f, "not a password hash: {reason}"),
            Self::UnknownWord(word) => {
                write!(
                    f,
                    "unknown word {word:?}: a line starts with user, topic, pattern, queue, exchange or #"
                )
            }
            Self::UnknownAccess(word) => {
                write!(f, "unknown access {word:?}: it is read, write, readwrite or deny")
            }
            Self::Missing(what) => write!(f, "{what} is missing"),
            Self::BadFilter(reason) => write!(f, "not a topic filter: {reason}"),
            Self::UnknownRight(word) => {
                write!(
                    f,
                    "unknown right {word:?}: it is configure, write, read or deny, or several joined by |"
                )
            }
        }
    }
}

/// The lines of `bytes` with their numbers, or the place of the first byte that is not UTF-8.
fn lines(bytes: &[u8]) -> Result<impl Iterator<Item = (usize, &str)>, LineError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.split('\n').enumerate().map(|(index, line)| (index.saturating_add(1), line))),
        Err(error) => {
            let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let before = String::from_utf8_lossy(before);
            let line = before.matches('\n').count().saturating_add(1);
            let column = before.rsplit('\n').next().unwrap_or("").chars().count().saturating_add(1);
            Err(LineError { line, column, problem: LineProblem::NotUtf8 })
        }
    }
}
