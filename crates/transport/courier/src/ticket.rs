//! Tickets: one line with the addresses and the key of a receiver, and with a secret that admits a sender.
//!
//! ```text
//!  mr1 ‖ base32( expiry, seconds since 1970 (8) ‖ key (32) ‖ secret (16) ‖ count (1) ‖ addresses ‖ check (4) )
//!      address: 4 or 6 (1) ‖ IP address (4 or 16) ‖ port (2)
//!      check:   the first bytes of SHA-256 over everything before it
//! ```
//!
//! The first sender that presents the secret owns the ticket. It may come again, to resume; nobody else may
//! use the ticket.

use crate::base32;
use crate::identity::PublicKey;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// The start of every ticket of this version.
pub const PREFIX: &str = "mr1";
/// The most addresses of a ticket, and the bytes of its check: tickets stay one line that people can copy.
const ADDRESSES_MAX: usize = 8;
const CHECK_SIZE: usize = 4;

/// The secret of a ticket.
pub type Secret = [u8; 16];

/// The addresses and the key of a receiver, and a secret that admits one sender to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The time at which the ticket expires.
    pub expires: SystemTime,
    /// The receiver's key.
    pub key: PublicKey,
    /// The secret that admits the sender, once.
    pub secret: Secret,
    /// The receiver's addresses, at most 8.
    pub addresses: Vec<SocketAddr>,
}

/// A text that is no ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TicketError {
    /// It does not begin as a ticket.
    #[error("a ticket begins with `mr1`; copy the whole line that `millrace receive` prints")]
    Prefix,
    /// A part is missing or changed.
    #[error("the ticket is incomplete or mistyped; copy the whole line that `millrace receive` prints")]
    Damaged,
}

impl Ticket {
    /// Returns true if the ticket has expired.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        now >= self.expires
    }

    fn bytes(&self) -> Vec<u8> {
        let expires = self
            .expires
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let mut bytes = expires.to_be_bytes().to_vec();
        bytes.extend_from_slice(self.key.bytes());
        bytes.extend_from_slice(&self.secret);
        let addresses = &self.addresses[..self.addresses.len().min(ADDRESSES_MAX)];
        bytes.push(u8::try_from(addresses.len()).unwrap_or(0));
        for address in addresses {
            match address.ip() {
                IpAddr::V4(ip) => {
                    bytes.push(4);
                    bytes.extend_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes.push(6);
                    bytes.extend_from_slice(&ip.octets());
                }
            }
            bytes.extend_from_slice(&address.port().to_be_bytes());
        }
        let check = check(&bytes);
        bytes.extend_from_slice(&check);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Ticket> {
        let (bytes, given) = bytes.split_at_checked(bytes.len().checked_sub(CHECK_SIZE)?)?;
        (check(bytes) == given).then_some(())?;
        let mut rest = bytes;
        let expires = u64::from_be_bytes(take(&mut rest)?);
        let key = PublicKey::new(take(&mut rest)?);
        let secret = take(&mut rest)?;
        let [count] = take(&mut rest)?;
        let mut addresses = Vec::new();
        for _ in 0..count {
            let ip = match take(&mut rest)? {
                [4] => IpAddr::V4(Ipv4Addr::from(take::<4>(&mut rest)?)),
                [6] => IpAddr::V6(Ipv6Addr::from(take::<16>(&mut rest)?)),
                _ => return None,
            };
            addresses.push(SocketAddr::new(ip, u16::from_be_bytes(take(&mut rest)?)));
        }
        let valid = rest.is_empty() && !addresses.is_empty() && addresses.len() <= ADDRESSES_MAX;
        valid.then_some(Ticket {
            expires: UNIX_EPOCH.checked_add(Duration::from_secs(expires))?,
            key,
            secret,
            addresses,
        })
    }
}

fn check(bytes: &[u8]) -> [u8; CHECK_SIZE] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    std::array::from_fn(|at| digest.as_ref()[at])
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk::<N>()?;
    *rest = others;
    Some(*first)
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", base32::encode(&self.bytes()))
    }
}

/// Logs must not contain the secret.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({} at {:?})", self.key, self.addresses)
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Ticket, TicketError> {
        let text = text.trim().strip_prefix(PREFIX).ok_or(TicketError::Prefix)?;
        base32::decode(text)
            .and_then(|bytes| Ticket::parse(&bytes))
            .ok_or(TicketError::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        Ticket {
            expires: UNIX_EPOCH + Duration::from_secs(1_800_000_000),
            key: PublicKey::new([7; 32]),
            secret: [9; 16],
            addresses: vec![
                "10.0.0.1:7800".parse().unwrap(),
                "[fd00::1]:7801".parse().unwrap(),
            ],
        }
    }

    #[test]
    fn a_ticket_is_what_it_was_and_no_typing_error_passes() {
        let text = ticket().to_string();
        assert_eq!(text.parse(), Ok(ticket()));
        for at in PREFIX.len()..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong[at] = if wrong[at] == b'a' { b'b' } else { b'a' };
            let wrong = String::from_utf8(wrong).unwrap();
            assert_eq!(wrong.parse::<Ticket>(), Err(TicketError::Damaged), "{at}");
        }
        assert_eq!(text[..40].parse::<Ticket>(), Err(TicketError::Damaged));
        assert_eq!("mr2abc".parse::<Ticket>(), Err(TicketError::Prefix));
    }

    #[test]
    fn a_ticket_ends_at_its_expiry_and_its_secret_is_not_in_logs() {
        let ticket = ticket();
        assert!(!ticket.is_expired(ticket.expires - Duration::from_secs(1)));
        assert!(ticket.is_expired(ticket.expires));
        assert!(!format!("{ticket:?}").contains("9, 9"));
    }
}
