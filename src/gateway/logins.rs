//! Passwords: which were right a short while ago, what a wrong one costs, and who is locked out.
//!
//! A wrong password is answered after a delay. After too many, the pair of user name and address is refused without
//! a look at the password: guessing gets slow, and a device at another address is not locked out with the guesser.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::deadlines::Deadlines;
use super::{Gateway, Output, Pause};
use crate::auth::{Challenge, Denied, Identity};
use crate::collections::{self, Map};
use crate::config::Auth;
use crate::ids::ConnectionId;
use crate::time::{Mono, Now};

/// A verified password is believed for ten minutes, so that reconnecting clients cost no hash each.
const VERIFIED_FOR: Duration = Duration::from_secs(600);
const VERIFIED_MAX: usize = 1024;

/// Pairs of name and address whose failures are counted; beyond it the one that would be forgotten first is.
const FAILURES_MAX: usize = 4096;

/// What guessing costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoginPolicy {
    /// A wrong password is answered after this time.
    pub failed_delay: Duration,
    /// Failures until a pair is locked out; 0 is never.
    pub lockout_failures: u32,
    pub lockout_for: Duration,
}

/// What to hold a login by HTTP against.
#[derive(Debug)]
pub enum LoginCheck {
    /// The password was right a short while ago.
    Known,
    Verify(Challenge),
    /// The pair is locked out, or there are no users: to be refused after [`Gateway::failed_delay`].
    Refused,
}

impl LoginPolicy {
    /// From `[auth]`.
    #[must_use]
    pub const fn new(auth: &Auth) -> Self {
        Self {
            failed_delay: auth.failed_delay,
            lockout_failures: auth.lockout_failures,
            lockout_for: auth.lockout_for,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// They are forgotten then, and the lock with them.
    until: Mono,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Logins {
    policy: LoginPolicy,
    key: u64,
    /// Names and passwords that were verified lately, as keyed digests: no password is kept.
    verified: Map<[u8; 32], Mono>,
    failures: Map<[u8; 32], Failures>,
    /// Connections whose refusal waits.
    refused: Deadlines,
}

impl Logins {
    pub fn new(policy: LoginPolicy, seed: u64) -> Self {
        Self {
            policy,
            key: seed.rotate_left(17) ^ 0x5bd1_e995,
            verified: collections::map(seed),
            failures: collections::map(seed),
            refused: Deadlines::default(),
        }
    }

    pub const fn set_policy(&mut self, policy: LoginPolicy) {
        self.policy = policy;
    }

    /// What was believed is checked again.
    pub fn forget_verified(&mut self) {
        self.verified.clear();
    }

    /// The password was right a short while ago, and the pair is not locked out.
    pub fn believes(&self, now: Mono, pair: (&str, &str), password: &[u8]) -> bool {
        !self.is_locked(now, pair) && self.knows(now, pair.0, password)
    }

    fn knows(&self, now: Mono, name: &str, password: &[u8]) -> bool {
        if self.verified.is_empty() {
            return false;
        }
        self.verified.get(&self.digest(name, password)).is_some_and(|until| *until > now)
    }

    /// A password was right.
    pub fn succeeded(&mut self, now: Mono, (name, peer): (&str, &str), password: &[u8]) {
        if self.verified.len() >= VERIFIED_MAX {
            self.verified.retain(|_, until| *until > now);
        }
        if self.verified.len() < VERIFIED_MAX {
            self.verified.insert(self.digest(name, password), now + VERIFIED_FOR);
        }
        if !self.failures.is_empty() {
            self.failures.remove(&self.digest(name, address(peer).as_bytes()));
        }
    }

    /// A password was wrong. True when this was the one too many.
    pub fn failed(&mut self, now: Mono, (name, peer): (&str, &str)) -> bool {
        if self.policy.lockout_failures == 0 {
            return false;
        }
        let key = self.digest(name, address(peer).as_bytes());
        if self.failures.len() >= FAILURES_MAX && !self.failures.contains_key(&key) {
            self.failures.retain(|_, failures| failures.until > now);
            let first = self.failures.iter().min_by_key(|(_, failures)| failures.until).map(|(key, _)| *key);
            if let Some(first) = first.filter(|_| self.failures.len() >= FAILURES_MAX) {
                self.failures.remove(&first);
            }
        }
        let until = now + self.policy.lockout_for;
        let failures = self.failures.entry(key).or_insert(Failures { count: 0, until });
        if failures.until <= now {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.until = until;
        failures.count == self.policy.lockout_failures
    }

    /// True while a pair is refused whatever the password.
    pub fn is_locked(&self, now: Mono, (name, peer): (&str, &str)) -> bool {
        if self.policy.lockout_failures == 0 || self.failures.is_empty() {
            return false;
        }
        let key = self.digest(name, address(peer).as_bytes());
        let is_over =
            |failures: &Failures| failures.count >= self.policy.lockout_failures && failures.until > now;
        self.failures.get(&key).is_some_and(is_over)
    }

    pub fn next(&self) -> Option<Mono> {
        self.refused.next()
    }

    fn digest(&self, name: &str, other: &[u8]) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.key.to_le_bytes());
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update(other);
        digest.finalize().into()
    }
}

/// The other end without its port, which is another one each time.
fn address(peer: &str) -> &str {
    match peer.rsplit_once(':') {
        Some((address, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => address,
        _ => peer,
    }
}

impl Gateway {
    /// A connection's password is to be checked.
    pub(super) fn check_password(
        &mut self,
        now: Now,
        id: ConnectionId,
        challenge: Challenge,
        password: Box<[u8]>,
    ) {
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        endpoint.pause = Pause::Verifying;
        let name = endpoint.protocol.identity().username.unwrap_or_default();
        if self.logins.is_locked(now.mono, (name, &endpoint.peer)) {
            self.logins.refused.push(now.mono + self.logins.policy.failed_delay, id);
        } else {
            self.outputs.push_back(Output::VerifyPassword { connection: id, challenge, password });
        }
    }

    /// A password was checked.
    pub fn verified(&mut self, now: Now, id: ConnectionId, genuine: bool, password: &[u8]) {
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        if endpoint.pause != Pause::Verifying {
            return;
        }
        let pair = (endpoint.protocol.identity().username.unwrap_or_default(), &*endpoint.peer);
        if genuine {
            self.logins.succeeded(now.mono, pair, password);
        } else {
            if self.logins.failed(now.mono, pair) {
                self.outputs.push_back(Output::LockedOut { connection: id });
            }
            if !self.logins.policy.failed_delay.is_zero() {
                self.logins.refused.push(now.mono + self.logins.policy.failed_delay, id);
                return;
            }
        }
        self.finish_login(now, id, genuine);
    }

    /// Refusals whose time has come.
    pub(super) fn refuse_logins(&mut self, now: Now) {
        while let Some((_, id)) = self.logins.refused.pop_due(now.mono) {
            self.finish_login(now, id, false);
        }
    }

    fn finish_login(&mut self, now: Now, id: ConnectionId, genuine: bool) {
        let Some(endpoint) = self.connections.get_mut(id) else { return };
        if endpoint.pause != Pause::Verifying {
            return;
        }
        endpoint.pause = Pause::None;
        if endpoint.protocol.as_mqtt().is_none() {
            self.verified_frames(now, id, genuine);
            self.handle_kept(now, id);
            self.resume_reading(id);
            return;
        }
        let next = self.with_context(now, id, |connection, context| connection.verified(context, genuine));
        self.go_on(now, id, next);
        self.drain(now);
        self.handle_kept(now, id);
        self.resume_reading(id);
    }

    /// What to hold a login by HTTP against.
    pub fn password_challenge(&self, now: Now, pair: (&str, &str), password: &[u8]) -> LoginCheck {
        if self.logins.is_locked(now.mono, pair) {
            return LoginCheck::Refused;
        }
        if self.logins.knows(now.mono, pair.0, password) {
            return LoginCheck::Known;
        }
        let challenge = self.users.as_ref().and_then(|users| users.challenge(pair.0));
        challenge.map_or(LoginCheck::Refused, LoginCheck::Verify)
    }

    /// A login by HTTP was checked. True when the pair is locked out by it.
    pub fn password_checked(&mut self, now: Now, pair: (&str, &str), password: &[u8], genuine: bool) -> bool {
        if genuine {
            self.logins.succeeded(now.mono, pair, password);
            return false;
        }
        self.logins.failed(now.mono, pair)
    }

    /// A login by HTTP was refused: it counts among the denials.
    pub fn login_refused(&mut self, now: Now, (name, peer): (&str, &str)) {
        let client = Identity { username: Some(name), client_identifier: "" };
        self.tally.denials.note(now.wall, Denied::Login, client, peer);
    }

    /// A wrong password is answered after this time.
    #[must_use]
    pub const fn failed_delay(&self) -> Duration {
        self.logins.policy.failed_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: LoginPolicy = LoginPolicy {
        failed_delay: Duration::from_secs(1),
        lockout_failures: 3,
        lockout_for: Duration::from_secs(60),
    };

    const fn at(seconds: u64) -> Mono {
        Mono(seconds * 1_000_000)
    }

    #[test]
    fn a_pair_is_locked_out_and_nobody_else_with_it() {
        let mut logins = Logins::new(POLICY, 1);
        let pair = ("ann", "192.0.2.1:4000");
        assert!(!logins.failed(at(0), pair) && !logins.failed(at(1), ("ann", "192.0.2.1:4001")));
        assert!(!logins.is_locked(at(1), pair));
        assert!(logins.failed(at(2), pair), "the third is one too many, from whatever port");
        assert!(!logins.failed(at(3), pair), "it is told once");
        assert!(logins.is_locked(at(62), ("ann", "192.0.2.1:9")));
        for other in [("bob", "192.0.2.1:4000"), ("ann", "192.0.2.2:4000"), ("ann", "unix:uid=7")] {
            assert!(!logins.is_locked(at(4), other), "{other:?}");
        }
        assert!(!logins.is_locked(at(64), pair), "a minute after the last attempt");
        assert!(!logins.failed(at(65), pair), "it begins anew");
        logins.succeeded(at(66), pair, b"right");
        assert!(!logins.failed(at(67), pair) && !logins.failed(at(67), pair), "success wipes the slate");
    }

    #[test]
    fn names_without_end_take_no_memory_and_do_not_unlock() {
        let mut logins = Logins::new(POLICY, 1);
        for _ in 0..3 {
            logins.failed(at(10), ("ann", "192.0.2.1:1"));
        }
        for number in 0..20_000 {
            logins.failed(at(5), (&format!("user{number}"), "192.0.2.1:1"));
        }
        assert!(logins.failures.len() <= FAILURES_MAX);
        assert!(logins.is_locked(at(11), ("ann", "192.0.2.1:1")));
    }

    #[test]
    fn what_was_right_is_believed_for_a_while() {
        let mut logins = Logins::new(POLICY, 1);
        logins.succeeded(at(0), ("ann", "p"), b"a");
        assert!(logins.knows(at(599), "ann", b"a") && !logins.knows(at(600), "ann", b"a"));
        assert!(!logins.knows(at(1), "ann", b"b") && !logins.knows(at(1), "bob", b"a"));
        let pair = ("ann", "192.0.2.1:1");
        assert!(logins.believes(at(1), pair, b"a") && !logins.believes(at(1), pair, b"b"));
        for _ in 0..3 {
            logins.failed(at(1), pair);
        }
        assert!(!logins.believes(at(2), pair, b"a"), "locked out whatever the password");
        assert!(logins.believes(at(2), ("ann", "192.0.2.2:1"), b"a"));
        logins.forget_verified();
        assert!(!logins.knows(at(1), "ann", b"a"));
    }
}
