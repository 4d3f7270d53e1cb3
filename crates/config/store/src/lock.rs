//! The lock on the configuration: while one session holds it, changes of all others are refused. A lease ends it if its
//! holder says nothing more. The lock is in memory: a restart of the daemon ends every session.
//!
//! ```text
//!            take                  renew
//!  ┌──────┐ ──────▶ ┌────────┐ ◀──────┐
//!  │ free │         │  held  │ ───────┘
//!  └──────┘ ◀────── └────────┘
//!            release, break, or tick at the end of the lease
//! ```

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::time::UnixTime;

/// The tolerance, in seconds, for a `now` before the start of a lease. Within it, the clock does not count as set back.
const CLOCK_TOLERANCE_S: u64 = 5;

/// The secret of the session that holds the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LockToken(u128);

impl LockToken {
    /// Returns a token of 128 random bits, which the caller draws.
    pub const fn new(random: u128) -> LockToken {
        LockToken(random)
    }
}

impl fmt::Display for LockToken {
    /// Writes 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for LockToken {
    /// Writes no digit: the token is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockToken(…)")
    }
}

/// The reason why a text is no token of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the token of the lock is malformed: expected the 32 hexadecimal digits that taking the lock returned"
)]
pub struct LockTokenError;

impl FromStr for LockToken {
    type Err = LockTokenError;

    fn from_str(text: &str) -> Result<LockToken, LockTokenError> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parsed = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
        parsed.map(LockToken).ok_or(LockTokenError)
    }
}

/// A lock that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// The name of the holder, as the author of a revision.
    pub holder: String,
    /// The time at which the lock was taken or renewed.
    pub since: UnixTime,
    /// The end of the lease: in this second the lock is free.
    pub expires: UnixTime,
    token: LockToken,
}

/// Reasons why the lock is not taken, renewed or released.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another session holds the lock.
    #[error("{}", refusal(.holder, *.expires))]
    Held {
        /// The name of the holder.
        holder: String,
        /// The end of the lease.
        expires: UnixTime,
    },
    /// The session holds no lock: its lease ended, or the lock was released or broken.
    #[error("this session does not hold the lock: its lease ended, or the lock was broken; take it again")]
    NotHeld,
}

/// Returns the refusal of a change while another session holds the lock.
pub(crate) fn refusal(holder: &str, expires: UnixTime) -> String {
    let UnixTime(expires) = expires;
    format!(
        "{holder} holds the lock on the configuration, until {expires} (seconds since 1970) unless it is renewed"
    )
}

impl Lock {
    pub(crate) fn new(holder: &str, token: LockToken, lease_s: u64, now: UnixTime) -> Lock {
        Lock {
            holder: holder.to_owned(),
            since: now,
            expires: now.plus(lease_s),
            token,
        }
    }

    /// Returns the lock at `now`: `None` if its lease ended. If the clock was set back since, the lease begins anew, so
    /// that it never lasts longer than its holder asked for.
    pub(crate) fn at(self, now: UnixTime) -> Option<Lock> {
        if now.plus(CLOCK_TOLERANCE_S) < self.since {
            let lease = self.expires.since(self.since).as_secs();
            return Some(Lock {
                since: now,
                expires: now.plus(lease),
                ..self
            });
        }
        (now < self.expires).then_some(self)
    }

    /// Returns true if the session with `token` holds the lock.
    pub fn is_held_by(&self, token: LockToken) -> bool {
        self.token == token
    }

    pub(crate) fn is_of(&self, token: Option<LockToken>) -> bool {
        token == Some(self.token)
    }

    pub(crate) fn held(&self) -> LockError {
        LockError::Held {
            holder: self.holder.clone(),
            expires: self.expires,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_its_own_text_and_never_shown_by_accident() {
        let token = LockToken::new(0x2a);
        assert_eq!(token.to_string().parse(), Ok(token));
        assert!(!format!("{token:?}").contains("2a"));
        for bad in [
            "",
            "2a",
            &"g".repeat(32),
            &format!("+{}", "0".repeat(31)),
            &"0".repeat(33),
        ] {
            assert_eq!(bad.parse::<LockToken>(), Err(LockTokenError), "{bad}");
        }
    }
}
