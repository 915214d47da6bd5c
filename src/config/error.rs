//! What is wrong with a configuration: where, at which key, and why. One type, since a reader wants one list.

use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong. Shown as `FILE:LINE:COLUMN: KEY: PROBLEM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub place: Place,
    /// The key path such as `limits.inflight_max`; empty for the file as a whole.
    pub key: String,
    pub problem: Problem,
}

/// A spot in a file; lines and columns (characters) count from 1, line 0 is the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: PathBuf,
    pub line: usize,
    pub column: usize,
}

/// Why a place is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The file or folder cannot be read; the system's reason.
    Unreadable(String),
    /// It is not TOML; the parser's reason.
    Syntax(String),
    /// No key or table of that name exists here.
    Unknown {
        what: &'static str,
        /// The name that was probably meant.
        nearest: Option<String>,
        /// The section that has a key of this name.
        belongs_in: Option<String>,
    },
    /// Another type of value is wanted.
    WrongType { wants: String, found: String },
    /// The type is right and the value is not.
    BadValue(String),
    /// Agreed, and not in this version.
    NotAvailable(String),
    /// A key that has no default is not there.
    Missing(String),
    /// Each value is right and together they are not.
    Contradiction(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.display().fmt(f)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(reason) => write!(f, "cannot be read: {reason}"),
            Self::Syntax(reason) => write!(f, "not valid TOML: {reason}"),
            Self::Unknown { what, nearest, belongs_in } => {
                write!(f, "unknown {what}")?;
                if let Some(section) = belongs_in {
                    write!(f, "; it belongs in {section}")?;
                } else if let Some(nearest) = nearest {
                    write!(f, "; did you mean {nearest}?")?;
                }
                Ok(())
            }
            Self::WrongType { wants, found } => write!(f, "wants {wants}, found {found}"),
            Self::BadValue(text) | Self::Missing(text) | Self::Contradiction(text) => f.write_str(text),
            Self::NotAvailable(what) => write!(f, "{what} is not available in this version"),
        }
    }
}
