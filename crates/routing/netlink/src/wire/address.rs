//! Messages of addresses: `struct ifaddrmsg` and its attributes.
//!
//! ```text
//!  0        1            2       3       4           8
//!  | family | prefix len | flags | scope | interface | attributes...
//! ```

use std::net::IpAddr;

use super::attributes::{Attributes, u32_at};
use super::error::DecodeError;
use super::numbers::ifa;

const WHAT: &str = "ifaddrmsg";
const HEADER_SIZE: usize = 8;

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    pub interface: u32,
    /// The address of this machine.
    pub local: IpAddr,
    /// The address of the other end of a point-to-point link; elsewhere that of this machine. The prefix is that of this
    /// address.
    pub peer: IpAddr,
    /// 0 to 32, or 0 to 128 bits.
    pub prefix_len: u8,
    /// `IFA_F_*`.
    pub flags: u32,
    /// The program that set the address (`IFA_PROTO`): 1 to 3 the kernel; 0 if it did not say, or the kernel is before 5.18.
    pub protocol: u8,
}

impl Address {
    /// Decodes the body of an `RTM_NEWADDR` or `RTM_DELADDR` of IPv4 or IPv6.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if a length is wrong, or no address is there.
    pub fn decode(body: &[u8]) -> Result<Address, DecodeError> {
        let (fixed, attributes) = Attributes::after(WHAT, body, HEADER_SIZE)?;
        let &[family, prefix_len, short_flags, ..] = fixed else {
            return Err(DecodeError::Header {
                what: WHAT,
                expected: HEADER_SIZE,
                found: fixed.len(),
            });
        };
        let mut flags = u32::from(short_flags);
        let (mut local, mut peer, mut protocol) = (None, None, 0);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                ifa::ADDRESS => peer = Some(attribute.address()?),
                ifa::LOCAL => local = Some(attribute.address()?),
                ifa::FLAGS => flags = attribute.u32()?,
                ifa::PROTOCOL => protocol = attribute.u8()?,
                _ => {}
            }
        }
        let missing = DecodeError::Missing {
            what: WHAT,
            attribute: "IFA_ADDRESS",
        };
        // IPv6 has IFA_LOCAL only if the peer is another address; IPv4 has it always.
        let local = local.or(peer).ok_or(missing)?;
        let peer = peer.unwrap_or(local);
        let bits = if local.is_ipv4() { 32 } else { 128 };
        if prefix_len > bits || peer.is_ipv4() != local.is_ipv4() {
            return Err(DecodeError::Prefix {
                what: WHAT,
                length: prefix_len,
                family,
            });
        }
        Ok(Address {
            interface: u32_at(fixed, 4).unwrap_or_default(),
            local,
            peer,
            prefix_len,
            flags,
            protocol,
        })
    }
}
