//! Limits on attempts to sign in. They slow an attacker's guesses, and keep requests from exhausting the memory through
//! argon2. They must not let an attacker lock others out.
//!
//! ```text
//!   limit in a minute                        of a browser that has signed in    of others
//!   a login from one network             5              -                           x
//!   a login from everywhere             60              -                           x
//!   a network, for all logins           20              -                           x
//!   one known browser                    5              x                           -
//! ```
//! A network is an IPv4 address or an IPv6 /48, which is what a site gets (RFC 6177). Many networks together can use up the
//! limit of a login; then its user still signs in from a known browser ([`device`](super::device)). A login that does not
//! exist has the same limits as an existing one, so that the answer does not reveal which logins exist.
//!
//! Attempts that are counted are remembered in the order of their time. Each new one makes old ones fall out, by age or by
//! their number: an attacker with many addresses makes the limits forget, and makes nobody wait.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use millrace_types::Time;
use parking_lot::Mutex;

/// The time for which an attempt counts.
const WINDOW: Duration = Duration::from_secs(60);
/// The number of subjects of attempts that are remembered; an attempt has up to three. These are 20,000 attempts, more than the
/// passwords that can be verified in a minute (4 at a time, 30 ms each).
const REMEMBERED: usize = 60_000;

/// Too many attempts were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many attempts to sign in: try again in {} s", .retry_after.as_secs())]
pub struct TooMany {
    /// The time until the next attempt is accepted.
    pub retry_after: Duration,
}

/// The subject of a limit. Logins and devices are digests, so that long names take no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    LoginFrom([u8; 16], IpAddr),
    Login([u8; 16]),
    Network(IpAddr),
    Device([u8; 16]),
}

impl Subject {
    /// Returns the largest number of attempts in the window.
    const fn max(&self) -> usize {
        match self {
            Subject::LoginFrom(..) | Subject::Device(_) => 5,
            Subject::Login(_) => 60,
            Subject::Network(_) => 20,
        }
    }
}

/// The attempts of the last minute.
#[derive(Debug, Default)]
pub struct Attempts {
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    times: HashMap<Subject, VecDeque<Time>>,
    /// All remembered attempts, oldest first. An attempt that was forgotten after a success is still here.
    order: VecDeque<(Time, Subject)>,
}

impl Attempts {
    /// Counts an attempt for `login` from `address`. `device` is the identifier of the browser, if it has signed in as this
    /// login before.
    ///
    /// # Errors
    /// [`TooMany`] if a limit is reached; the attempt then does not count.
    pub fn begin(
        &self,
        login: &str,
        address: IpAddr,
        device: Option<&str>,
        now: Time,
    ) -> Result<(), TooMany> {
        let login = digest(&login.to_lowercase());
        let network = network(address);
        match device {
            Some(device) => self.count(&[Subject::Device(digest(device))], now),
            None => self.count(
                &[
                    Subject::LoginFrom(login, network),
                    Subject::Login(login),
                    Subject::Network(network),
                ],
                now,
            ),
        }
    }

    /// Counts an attempt from `address` for which no login is known.
    ///
    /// # Errors
    /// [`TooMany`] if the limit of the network is reached; the attempt then does not count.
    pub fn begin_from(&self, address: IpAddr, now: Time) -> Result<(), TooMany> {
        self.count(&[Subject::Network(network(address))], now)
    }

    /// Counts an attempt of a person who is signed in to prove the password again.
    ///
    /// # Errors
    /// [`TooMany`] if the limit of the user or of the network is reached; the attempt then does not count.
    pub fn begin_again(&self, user: &str, address: IpAddr, now: Time) -> Result<(), TooMany> {
        let user = Subject::Device(digest(&format!("user {user}")));
        self.count(&[user, Subject::Network(network(address))], now)
    }

    /// Forgets the attempts for a login from a network, and those of a device, after a successful one.
    pub fn succeeded(&self, login: &str, address: IpAddr, device: Option<&str>) {
        let mut window = self.window.lock();
        let login = digest(&login.to_lowercase());
        window.times.remove(&Subject::LoginFrom(login, network(address)));
        if let Some(device) = device {
            window.times.remove(&Subject::Device(digest(device)));
        }
    }

    fn count(&self, subjects: &[Subject], now: Time) -> Result<(), TooMany> {
        let mut window = self.window.lock();
        window.forget(now);
        for subject in subjects {
            window.check(subject, now)?;
        }
        for subject in subjects {
            window.times.entry(*subject).or_default().push_back(now);
            window.order.push_back((now, *subject));
        }
        Ok(())
    }
}

impl Window {
    /// Forgets attempts that are over, and the oldest ones beyond [`REMEMBERED`].
    fn forget(&mut self, now: Time) {
        while let Some((time, subject)) = self.order.front().copied()
            && (now.since(time) >= WINDOW || self.order.len() > REMEMBERED)
        {
            self.order.pop_front();
            let Some(times) = self.times.get_mut(&subject) else {
                continue;
            };
            // After a success, later attempts of the subject may be the only ones that are left.
            if times.front() == Some(&time) {
                times.pop_front();
            }
            if times.is_empty() {
                self.times.remove(&subject);
            }
        }
    }

    fn check(&self, subject: &Subject, now: Time) -> Result<(), TooMany> {
        let times = self.times.get(subject);
        match times.and_then(VecDeque::front) {
            Some(first) if times.is_some_and(|times| times.len() >= subject.max()) => Err(TooMany {
                // The time is rounded up, so that a client that waits for the whole seconds of Retry-After is
                // accepted.
                retry_after: WINDOW.saturating_sub(now.since(*first)) + Duration::from_millis(999),
            }),
            _ => Ok(()),
        }
    }
}

/// Returns the first half of the SHA-256 of a text.
fn digest(text: &str) -> [u8; 16] {
    let whole = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let mut half = [0; 16];
    half.iter_mut()
        .zip(whole.as_ref())
        .for_each(|(to, from)| *to = *from);
    half
}

/// Returns the network of an address: an IPv4 address, or the first address of an IPv6 /48.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            IpAddr::from([a, b, c, 0, 0, 0, 0, 0])
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn far(number: usize) -> IpAddr {
        IpAddr::from(u32::try_from(number).unwrap().to_be_bytes())
    }

    #[test]
    fn the_sixth_attempt_in_a_minute_waits_for_the_first_to_age() {
        let attempts = Attempts::default();
        for second in 0..5 {
            attempts.begin("ann", HOME, None, at(second)).unwrap();
        }
        let refused = attempts.begin("ANN", HOME, None, at(10)).unwrap_err();
        assert_eq!(refused.retry_after.as_secs(), 50);
        attempts.begin("ann", HOME, None, at(60)).unwrap();
        assert!(attempts.begin("ann", HOME, None, at(60)).is_err());
        attempts.begin("bob", HOME, None, at(60)).unwrap();
    }

    #[test]
    fn wrong_passwords_from_one_network_lock_nobody_out_elsewhere() {
        let attempts = Attempts::default();
        for _ in 0..5 {
            attempts.begin("ann", far(7), None, at(0)).unwrap();
        }
        assert!(attempts.begin("ann", far(7), None, at(1)).is_err());
        attempts.begin("ann", HOME, None, at(1)).unwrap();
    }

    #[test]
    fn a_login_has_sixty_attempts_from_everywhere_and_a_known_browser_five_more() {
        let attempts = Attempts::default();
        for number in 0..60 {
            attempts.begin("ann", far(number), None, at(0)).unwrap();
        }
        assert!(attempts.begin("ann", HOME, None, at(1)).is_err());
        for _ in 0..5 {
            attempts.begin("ann", HOME, Some("laptop"), at(1)).unwrap();
        }
        assert!(attempts.begin("ann", HOME, Some("laptop"), at(1)).is_err());
        attempts.begin("ann", HOME, Some("phone"), at(1)).unwrap();
        attempts.succeeded("ann", HOME, Some("laptop"));
        attempts.begin("ann", HOME, Some("laptop"), at(1)).unwrap();
    }

    #[test]
    fn a_network_has_twenty_attempts_whatever_logins_and_addresses_it_uses() {
        let attempts = Attempts::default();
        for number in 0..20 {
            attempts
                .begin(&format!("user{number}"), HOME, None, at(0))
                .unwrap();
        }
        assert!(attempts.begin("ann", HOME, None, at(1)).is_err());
        assert!(attempts.begin_from(HOME, at(1)).is_err());
        attempts.begin("ann", far(8), None, at(1)).unwrap();
        for number in 0..20 {
            let address = format!("2001:db8:1:{number:x}::{number:x}").parse().unwrap();
            attempts
                .begin(&format!("v6 {number}"), address, None, at(0))
                .unwrap();
        }
        let other = "2001:db8:1:ffff::1".parse().unwrap();
        assert!(attempts.begin("ann", other, None, at(1)).is_err());
        let next = "2001:db8:2::1".parse().unwrap();
        attempts.begin("ann", next, None, at(1)).unwrap();
    }

    #[test]
    fn a_success_clears_the_login_but_not_the_network() {
        let attempts = Attempts::default();
        for number in 0..20 {
            attempts.begin("ann", HOME, None, at(number)).unwrap();
            attempts.succeeded("Ann", HOME, None);
        }
        assert!(attempts.begin("ann", HOME, None, at(20)).is_err());
    }

    #[test]
    fn attempts_after_a_success_are_counted_for_their_whole_minute() {
        let attempts = Attempts::default();
        for _ in 0..5 {
            attempts.begin("ann", HOME, None, at(0)).unwrap();
        }
        attempts.succeeded("ann", HOME, None);
        for _ in 0..5 {
            attempts.begin("ann", HOME, None, at(30)).unwrap();
        }
        assert!(attempts.begin("ann", HOME, None, at(60)).is_err());
        assert!(attempts.begin("ann", HOME, None, at(89)).is_err());
        attempts.begin("ann", HOME, None, at(90)).unwrap();
    }

    #[test]
    fn memory_is_bounded_and_a_flood_denies_sign_in_to_nobody() {
        let attempts = Attempts::default();
        for number in 0..100_000 {
            attempts
                .begin(&format!("user{number}"), far(number), None, at(0))
                .unwrap();
            if number % 10_000 == 0 {
                attempts.begin("late", HOME, Some("laptop"), at(0)).unwrap();
                attempts.succeeded("late", HOME, Some("laptop"));
            }
        }
        attempts.begin("late", HOME, None, at(1)).unwrap();
        // A /48 has 65,536 networks of /64, and all of them count as one.
        let refused = (0..10_000_u16).filter(|number| {
            let address = IpAddr::from([0x2001, 0xdb8, 9, *number, 0, 0, 0, 1]);
            attempts
                .begin(&format!("v6 {number}"), address, None, at(1))
                .is_err()
        });
        assert_eq!(refused.count(), 9_980);
        attempts.begin("later", far(5), None, at(1)).unwrap();
        let window = attempts.window.lock();
        assert!(window.order.len() <= REMEMBERED + 3 && window.times.len() <= REMEMBERED + 3);
        drop(window);
        attempts.begin("last", HOME, None, at(61)).unwrap();
        assert_eq!(attempts.window.lock().order.len(), 3, "old attempts are gone");
    }
}
