//! Limits on attempts to sign in: 5 a minute for each login, 20 a minute for each address.
//!
//! The limits slow an attacker's guesses, and keep requests from exhausting the memory through argon2. A login
//! that does not exist has the same limit as an existing one, so that the answer does not reveal which logins
//! exist.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use millrace_types::Time;

/// The time for which an attempt counts.
const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of attempts for each login in the window.
const PER_LOGIN: usize = 5;
/// The maximum number of attempts for each address in the window: an IPv4 address or an IPv6 /64.
const PER_ADDRESS: usize = 20;
/// The maximum number of logins, and of addresses, that are remembered. At the maximum, attempts of further
/// logins and addresses are refused.
const REMEMBERED: usize = 10_000;

/// Too many attempts were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many attempts to sign in: try again in {} s", .retry_after.as_secs())]
pub struct TooMany {
    /// The time until the next attempt is accepted.
    pub retry_after: Duration,
}

/// The attempts of the last minute.
#[derive(Debug, Default)]
pub struct Attempts {
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    logins: HashMap<String, VecDeque<Time>>,
    addresses: HashMap<IpAddr, VecDeque<Time>>,
}

impl Attempts {
    /// Counts an attempt for `login` from `address`.
    ///
    /// # Errors
    /// [`TooMany`] if either limit is reached; the attempt then does not count.
    pub fn begin(&self, login: &str, address: IpAddr, now: Time) -> Result<(), TooMany> {
        // An IPv6 subscriber has a /64, so a limit on single addresses would limit nothing.
        let address = network(address);
        let mut windows = self
            .windows
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Windows { logins, addresses } = &mut *windows;
        let login = login.to_lowercase();
        check(logins, &login, PER_LOGIN, now)?;
        check(addresses, &address, PER_ADDRESS, now)?;
        logins.entry(login).or_default().push_back(now);
        addresses.entry(address).or_default().push_back(now);
        Ok(())
    }

    /// Counts an attempt from `address` for which no login is known.
    ///
    /// # Errors
    /// [`TooMany`] if the limit of the address is reached; the attempt then does not count.
    pub fn begin_from(&self, address: IpAddr, now: Time) -> Result<(), TooMany> {
        let address = network(address);
        let mut windows = self
            .windows
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        check(&mut windows.addresses, &address, PER_ADDRESS, now)?;
        windows.addresses.entry(address).or_default().push_back(now);
        Ok(())
    }

    /// Forgets the attempts for a login after a successful one.
    pub fn succeeded(&self, login: &str) {
        let mut windows = self
            .windows
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        windows.logins.remove(&login.to_lowercase());
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Checks that `key` has fewer than `max` attempts in the window before `now`.
fn check<K: std::hash::Hash + Eq>(
    windows: &mut HashMap<K, VecDeque<Time>>,
    key: &K,
    max: usize,
    now: Time,
) -> Result<(), TooMany> {
    let age = |time: Time| now.since(time);
    if windows.len() >= REMEMBERED && !windows.contains_key(key) {
        windows.retain(|_, times| times.back().is_some_and(|last| age(*last) < WINDOW));
        if windows.len() >= REMEMBERED {
            return Err(TooMany { retry_after: WINDOW });
        }
    }
    let Some(times) = windows.get_mut(key) else {
        return Ok(());
    };
    while times.front().is_some_and(|first| age(*first) >= WINDOW) {
        times.pop_front();
    }
    match times.front() {
        Some(first) if times.len() >= max => Err(TooMany {
            // The time is rounded up, so that a client that waits for the whole seconds of Retry-After is
            // accepted.
            retry_after: WINDOW.saturating_sub(age(*first)) + Duration::from_millis(999),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_sixth_attempt_in_a_minute_waits_for_the_first_to_age() {
        let attempts = Attempts::default();
        for second in 0..5 {
            attempts.begin("ann", HOME, at(second)).unwrap();
        }
        let refused = attempts.begin("ANN", HOME, at(10)).unwrap_err();
        assert_eq!(refused.retry_after.as_secs(), 50);
        attempts.begin("ann", HOME, at(60)).unwrap();
        assert!(attempts.begin("ann", HOME, at(60)).is_err());
        attempts.begin("bob", HOME, at(60)).unwrap();
    }

    #[test]
    fn an_address_has_twenty_attempts_whatever_logins_it_names() {
        let attempts = Attempts::default();
        for number in 0..20 {
            attempts.begin(&format!("user{number}"), HOME, at(0)).unwrap();
        }
        assert!(attempts.begin("ann", HOME, at(1)).is_err());
        attempts
            .begin("ann", "192.0.2.2".parse().unwrap(), at(1))
            .unwrap();
        for number in 0..20 {
            let address = format!("2001:db8::{number:x}").parse().unwrap();
            attempts.begin(&format!("v6 {number}"), address, at(0)).unwrap();
        }
        assert!(
            attempts
                .begin("ann", "2001:db8::ffff".parse().unwrap(), at(1))
                .is_err()
        );
    }

    #[test]
    fn a_success_clears_the_login_but_not_the_address() {
        let attempts = Attempts::default();
        for number in 0..20 {
            attempts.begin("ann", HOME, at(number)).unwrap();
            attempts.succeeded("Ann");
        }
        assert!(attempts.begin("ann", HOME, at(20)).is_err());
    }

    #[test]
    fn memory_is_bounded_and_old_attempts_make_room() {
        let attempts = Attempts::default();
        for number in 0..REMEMBERED {
            let address = IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
            attempts.begin(&format!("user{number}"), address, at(0)).unwrap();
        }
        assert!(attempts.begin("late", HOME, at(1)).is_err());
        attempts.begin("late", HOME, at(60)).unwrap();
    }
}
