//! A secret in a configuration file: not the text but where it is kept. Reading it is the caller's business, so
//! that the library touches no environment.

use std::fmt;
use std::path::PathBuf;

/// Where a secret is kept: `{ file = "..." }`, `{ credential = "..." }` or `{ env = "..." }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The content of a file, without one line end.
    File(PathBuf),
    /// A systemd credential: the file of that name in `$CREDENTIALS_DIRECTORY`.
    Credential(String),
    /// An environment variable.
    Env(String),
}

/// A place of [`Secret`] that holds nothing usable.
#[derive(Debug)]
pub struct SecretError {
    pub secret: Secret,
    pub reason: std::io::Error,
}

impl Secret {
    /// The secret's bytes, without one line end at their end. `read` fetches the raw bytes of a place.
    ///
    /// # Errors
    /// What `read` says, or that nothing stands there: an empty password is a mistake, not a choice.
    pub fn resolve(
        &self,
        read: &dyn Fn(&Self) -> Result<Vec<u8>, std::io::Error>,
    ) -> Result<Vec<u8>, SecretError> {
        let failed = |reason| SecretError { secret: self.clone(), reason };
        let mut bytes = read(self).map_err(failed)?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        if bytes.is_empty() {
            return Err(failed(std::io::Error::new(std::io::ErrorKind::InvalidData, "it is empty")));
        }
        Ok(bytes)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Credential(name) => write!(f, "systemd credential {name}"),
            Self::Env(name) => write!(f, "environment variable {name}"),
        }
    }
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read the secret from {}: {}", self.secret, self.reason)
    }
}

impl std::error::Error for SecretError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_not_part_of_a_secret() {
        for (kept, secret) in
            [("s3cret\n", "s3cret"), ("s3cret\r\n", "s3cret"), ("a\n\n", "a\n"), ("x ", "x ")]
        {
            let read = |_: &Secret| Ok(kept.as_bytes().to_vec());
            assert_eq!(Secret::Env("E".to_owned()).resolve(&read).unwrap(), secret.as_bytes());
        }
    }

    #[test]
    fn an_empty_secret_is_an_error_that_names_the_place() {
        let error = Secret::Credential("cloud".to_owned()).resolve(&|_| Ok(b"\n".to_vec())).unwrap_err();
        assert_eq!(error.to_string(), "read the secret from systemd credential cloud: it is empty");
    }
}
