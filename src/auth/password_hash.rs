//! One password hash as Mosquitto's files hold it: `$6$`, `$7$` and `$argon2id$`. Owns their text and checking.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::fmt;
use std::hint::black_box;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest as _, Sha512};

/// Bytes of SHA-512, and of the hash in `$6$` and `$7$`.
const HASH_BYTES: usize = 64;

/// Bytes of the salt that [`hash_password`] takes: the only length that Mosquitto 2.0 reads.
pub const SALT_BYTES: usize = 12;

/// PBKDF2 iterations of a new hash, a hundred times those of Mosquitto 2.0 and ten times those of 2.1, which both
/// read it. One check took 8.7 ms on a server core (2 x 10 000 blocks of SHA-512 in plain code), so some 60 ms are
/// expected of a Pi 3: two workers let a thousand devices back in within half a minute after a reboot. Whoever chose
/// a guessable password may ask for more.
pub const ITERATIONS_DEFAULT: u32 = 10_000;

/// Iterations above which a file is refused: a single check would keep a small board busy for many seconds.
const ITERATIONS_MAX: u32 = 5_000_000;
/// Memory of one Argon2 check in KiB. Mosquitto 2.1 writes 47 104.
const ARGON2_MEMORY_KIB_MAX: u32 = 128 * 1024;
const ARGON2_PASSES_MAX: u32 = 32;
const ARGON2_LANES_MAX: u32 = 16;

/// How a password is recognised without being kept.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    scheme: Scheme,
    salt: Box<[u8]>,
    hash: Box<[u8]>,
}

#[derive(Clone, PartialEq, Eq)]
enum Scheme {
    /// `$6$SALT$HASH`: SHA-512 of password and salt, as Mosquitto 1.x wrote it.
    Sha512,
    /// `$7$ITERATIONS$SALT$HASH`: PBKDF2 with HMAC-SHA-512, as Mosquitto 2.0 writes it.
    Pbkdf2 { iterations: u32 },
    /// `$argon2id$v=19$m=KIB,t=PASSES,p=LANES$SALT$HASH`, as Mosquitto 2.1 writes it.
    Argon2id { memory_kib: u32, passes: u32, lanes: u32 },
}

/// The `$7$` hash of `password`. The salt must be random and new for each password.
#[must_use]
pub fn hash_password(password: &[u8], salt: [u8; SALT_BYTES], iterations: u32) -> PasswordHash {
    let scheme = Scheme::Pbkdf2 { iterations: iterations.clamp(1, ITERATIONS_MAX) };
    let mut hash = vec![0; HASH_BYTES].into_boxed_slice();
    scheme.derive(password, &salt, &mut hash);
    PasswordHash { scheme, salt: Box::from(salt), hash }
}

impl PasswordHash {
    /// Reads the text that follows `NAME:`.
    ///
    /// # Errors
    /// What about it is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split('$');
        match (parts.next(), parts.next()) {
            (Some(""), Some("6")) => Self::from_parts(Scheme::Sha512, &mut parts),
            (Some(""), Some("7")) => {
                let iterations = number(parts.next().unwrap_or(""), "iterations", ITERATIONS_MAX)?;
                Self::from_parts(Scheme::Pbkdf2 { iterations }, &mut parts)
            }
            (Some(""), Some("argon2id")) => Self::parse_argon2id(&mut parts),
            (Some(""), Some(other)) => {
                Err(format!("the scheme ${}$ is none of $6$, $7$, $argon2id$", other.escape_debug()))
            }
            _ => Err("it does not start with $6$, $7$ or $argon2id$; a password in clear text is refused"
                .to_owned()),
        }
    }

    /// Whether `password` is the one. Takes the time of the hash, whatever the answer.
    #[must_use]
    pub fn verify(&self, password: &[u8]) -> bool {
        let mut hash = vec![0; self.hash.len()];
        self.scheme.derive(password, &self.salt, &mut hash) & equal(&hash, &self.hash)
    }

    fn from_parts<'t>(scheme: Scheme, parts: &mut impl Iterator<Item = &'t str>) -> Result<Self, String> {
        let salt = STANDARD.decode(parts.next().unwrap_or("")).map_err(|_| "the salt is not base64")?;
        // Mosquitto 2.1 takes 12 and 64; a salt of none would be a table's delight.
        if !(8..=64).contains(&salt.len()) {
            return Err(format!("the salt has {} bytes, not 8 to 64", salt.len()));
        }
        let hash = STANDARD.decode(parts.next().unwrap_or("")).map_err(|_| "the hash is not base64")?;
        if hash.len() != HASH_BYTES {
            return Err(format!("the hash has {} bytes, not {HASH_BYTES}", hash.len()));
        }
        if parts.next().is_some() {
            return Err("something follows the hash".to_owned());
        }
        Ok(Self { scheme, salt: salt.into_boxed_slice(), hash: hash.into_boxed_slice() })
    }

    fn parse_argon2id<'t>(parts: &mut impl Iterator<Item = &'t str>) -> Result<Self, String> {
        if parts.next() != Some("v=19") {
            return Err("only version 19 of Argon2 is known".to_owned());
        }
        let mut costs = parts.next().unwrap_or("").split(',');
        let mut cost = |name: &str, max| {
            let text = costs.next().unwrap_or("").strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
            number(text.unwrap_or(""), name, max)
        };
        let memory_kib = cost("m", ARGON2_MEMORY_KIB_MAX)?;
        let passes = cost("t", ARGON2_PASSES_MAX)?;
        let lanes = cost("p", ARGON2_LANES_MAX)?;
        if costs.next().is_some() {
            return Err("it has more parameters than m, t and p".to_owned());
        }
        let salt =
            STANDARD_NO_PAD.decode(parts.next().unwrap_or("")).map_err(|_| "the salt is not base64")?;
        let hash =
            STANDARD_NO_PAD.decode(parts.next().unwrap_or("")).map_err(|_| "the hash is not base64")?;
        if parts.next().is_some() {
            return Err("something follows the hash".to_owned());
        }
        if !(8..=64).contains(&salt.len()) || !(16..=64).contains(&hash.len()) {
            return Err("the salt must have 8 to 64 bytes and the hash 16 to 64".to_owned());
        }
        let scheme = Scheme::Argon2id { memory_kib, passes, lanes };
        if scheme.argon2(hash.len()).is_none() {
            return Err("its m, t and p do not fit together".to_owned());
        }
        Ok(Self { scheme, salt: salt.into_boxed_slice(), hash: hash.into_boxed_slice() })
    }
}

impl Scheme {
    /// Derives a hash into `out`; false when it cannot be done, which then is no match.
    fn derive(&self, password: &[u8], salt: &[u8], out: &mut [u8]) -> bool {
        match self {
            Self::Sha512 => {
                let digest = Sha512::new().chain_update(password).chain_update(salt).finalize();
                out.len() == digest.len() && {
                    out.copy_from_slice(&digest);
                    true
                }
            }
            Self::Pbkdf2 { iterations } => {
                pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, *iterations, out);
                true
            }
            Self::Argon2id { .. } => self
                .argon2(out.len())
                .is_some_and(|argon2| argon2.hash_password_into(password, salt, out).is_ok()),
        }
    }

    fn argon2(&self, hash_bytes: usize) -> Option<argon2::Argon2<'static>> {
        let Self::Argon2id { memory_kib, passes, lanes } = *self else { return None };
        let params = argon2::Params::new(memory_kib, passes, lanes, Some(hash_bytes)).ok()?;
        Some(argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params))
    }
}

impl fmt::Display for PasswordHash {
    /// The text of the password file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme {
            Scheme::Sha512 => write!(f, "$6${}${}", STANDARD.encode(&self.salt), STANDARD.encode(&self.hash)),
            Scheme::Pbkdf2 { iterations } => {
                write!(f, "$7${iterations}${}${}", STANDARD.encode(&self.salt), STANDARD.encode(&self.hash))
            }
            Scheme::Argon2id { memory_kib, passes, lanes } => write!(
                f,
                "$argon2id$v=19$m={memory_kib},t={passes},p={lanes}${}${}",
                STANDARD_NO_PAD.encode(&self.salt),
                STANDARD_NO_PAD.encode(&self.hash)
            ),
        }
    }
}

impl fmt::Debug for PasswordHash {
    /// Without salt and hash, which stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.scheme {
            Scheme::Sha512 => "PasswordHash($6$)",
            Scheme::Pbkdf2 { .. } => "PasswordHash($7$)",
            Scheme::Argon2id { .. } => "PasswordHash($argon2id$)",
        })
    }
}

fn number(text: &str, what: &str, max: u32) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(format!("{what} is not a number from 1 to {max}")),
    }
}

/// Whether two hashes of one length are equal, in a time that does not depend on where they differ.
fn equal(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(0, |difference, (a, b)| black_box(difference | (a ^ b)));
    a.len() == b.len() && black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by `mosquitto_passwd` 2.0.11 and, for Argon2id, by the reference library; the first has the
    /// parameters of Mosquitto 2.1.
    const FOREIGN: [(&str, &str); 6] = [
        (
            "$6$gfBQUEfzxBZG91/i$p4MSQeyodeTYCu8rdZicPX5OureHfiRmOEbaoiBJlfU6k+2aylJhpUxa0E36JrlRJACANHgiFlvI5vqAdPKnwA==",
            "s3cret",
        ),
        (
            "$6$hiBLcjQQHw0B7pmG$UJi3U01jiCHAhF0FP7GOqoyiLEE6vWy6U1D0RqHn4oMrNSSopduN2jFH/4+44szUE6AT7lDrHIm9khMo7XwaTg==",
            "p\u{e4} ss:word",
        ),
        (
            "$7$101$mBn5lgt+oUKg0CGN$RyQSmJQxOf0nm1t6ySkuhIBypdvAH6tFYv8A/YTwEvdZ2KlOxqcbujILpZ/JH2SrHCv665Lc16bUeMdIDjQ8tA==",
            "s3cret",
        ),
        (
            "$7$1000$RPJ4MbRXRfwf5N1C$6pYbHsSgpQQl7X5C+xU1TfpV1yiISKhqqmoum7XkuyV6tgpVuU6dGE8uyGwVP7Y5F0iiYtFVUnph9qSI1bw8Qw==",
            "p\u{e4} ss:word",
        ),
        (
            "$argon2id$v=19$m=47104,t=1,p=1$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw$aF9LGXBkEoiOUik2tyfZ0KkRaBjcoieC37QaHCPwK9BOFjhdUEkXL+rBYixZy8ssfdE4wD8vude2PJjJdVrtng",
            "s3cret",
        ),
        (
            "$argon2id$v=19$m=64,t=2,p=2$c2FsdDQ1Njc$mD617y6lbxb6aWuuJklQbrn1FSvgrYgZtbh1uYIctHo",
            "p\u{e4} ss:word",
        ),
    ];

    #[test]
    fn hashes_of_mosquitto_are_recognised() {
        for (text, password) in FOREIGN {
            let hash = PasswordHash::parse(text).unwrap();
            assert_eq!(hash.to_string(), text);
            assert!(hash.verify(password.as_bytes()), "{text}");
            for wrong in ["", "S3cret", "s3cret ", "s3cre"] {
                assert!(!hash.verify(wrong.as_bytes()), "{text} {wrong}");
            }
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let hash = hash_password(b"pass", [7; SALT_BYTES], 3);
        assert!(hash.to_string().starts_with("$7$3$BwcHBwcHBwcHBwcH$"));
        let read = PasswordHash::parse(&hash.to_string()).unwrap();
        assert_eq!(read, hash);
        assert!(read.verify(b"pass") && !read.verify(b"past"));
    }

    #[test]
    fn any_damage_to_a_hash_is_refused_or_does_not_match() {
        for (text, password) in FOREIGN {
            if text.contains("m=47104") {
                continue; // 46 MiB a check, and the other Argon2 line stands for it.
            }
            for at in 0..text.len() {
                let mut bent = text.as_bytes().to_vec();
                bent[at] ^= 1;
                let bent = String::from_utf8(bent).unwrap();
                let is_match = |hash: PasswordHash| hash.verify(password.as_bytes());
                assert!(!PasswordHash::parse(&bent).is_ok_and(is_match), "{bent}");
            }
        }
        for (text, _) in FOREIGN {
            for cut in 0..text.len() {
                let cut = text.get(..cut).unwrap();
                assert!(PasswordHash::parse(cut).is_err() || cut.starts_with("$argon2id$"), "{cut}");
            }
        }
    }

    #[test]
    fn a_refusal_says_why() {
        for (text, why) in [
            ("", "it does not start with $6$, $7$ or $argon2id$; a password in clear text is refused"),
            ("secret", "it does not start with $6$, $7$ or $argon2id$; a password in clear text is refused"),
            ("$5$x$y", "the scheme $5$ is none of $6$, $7$, $argon2id$"),
            ("$7$0$x$y", "iterations is not a number from 1 to 5000000"),
            ("$7$9999999$x$y", "iterations is not a number from 1 to 5000000"),
            ("$6$!$y", "the salt is not base64"),
            ("$6$AAAA$y", "the salt has 3 bytes, not 8 to 64"),
            ("$6$AAAAAAAAAAAAAAAA$AAAA", "the hash has 3 bytes, not 64"),
            ("$argon2id$v=16$m=8,t=1,p=1$x$y", "only version 19 of Argon2 is known"),
            ("$argon2id$v=19$m=999999999,t=1,p=1$x$y", "m is not a number from 1 to 131072"),
            ("$argon2id$v=19$t=1,m=8,p=1$x$y", "m is not a number from 1 to 131072"),
            (
                "$argon2id$v=19$m=8,t=1,p=4$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA",
                "its m, t and p do not fit together",
            ),
        ] {
            assert_eq!(PasswordHash::parse(text), Err(why.to_owned()), "{text}");
        }
    }
}
