//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use millrace_types::Mac;

use crate::HeaderError;
use crate::bytes::{array, be16, put, split};

/// Size of a packet in bytes.
pub const SIZE: usize = 28;

/// Operation of a request.
pub const REQUEST: u16 = 1;
/// Operation of a reply.
pub const REPLY: u16 = 2;

/// Hardware Ethernet with addresses of 6 bytes, protocol IPv4 with addresses of 4 bytes.
const KIND: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

pub(crate) mod offset {
    pub(crate) const OP: usize = 6;
    pub(crate) const SHA: usize = 8;
    pub(crate) const SPA: usize = 14;
    pub(crate) const THA: usize = 18;
    pub(crate) const TPA: usize = 24;
}

/// Returns true if these are the first bytes of ARP for IPv4 over Ethernet.
#[inline]
pub(crate) fn is_ipv4_over_ethernet(header: &[u8; SIZE]) -> bool {
    header[..6] == KIND
}

/// A complete packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(&'a [u8; SIZE]);

impl<'a> View<'a> {
    /// Returns a view of the packet at the front of `bytes`, which follow the EtherType. Padding may follow
    /// the packet.
    ///
    /// # Errors
    /// [`HeaderError`] if the packet is truncated, or for other hardware or protocols.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        let (header, _) = split("ARP", bytes)?;
        let invalid = |field, value: u16| HeaderError::Invalid {
            header: "ARP",
            field,
            value: value.into(),
        };
        match () {
            () if is_ipv4_over_ethernet(header) => Ok(View(header)),
            () if be16(header, 0) != 1 => Err(invalid("hardware type", be16(header, 0))),
            () if be16(header, 2) != 0x0800 => Err(invalid("protocol type", be16(header, 2))),
            () => Err(invalid("address sizes", be16(header, 4))),
        }
    }

    /// Returns the operation: 1 for a request, 2 for a reply.
    #[inline]
    pub fn op(&self) -> u16 {
        be16(self.0, offset::OP)
    }

    /// Returns the sender's MAC address.
    #[inline]
    pub fn sha(&self) -> Mac {
        Mac(array(self.0, offset::SHA))
    }

    /// Returns the sender's IPv4 address.
    #[inline]
    pub fn spa(&self) -> Ipv4Addr {
        array::<4, _>(self.0, offset::SPA).into()
    }

    /// Returns the target's MAC address.
    #[inline]
    pub fn tha(&self) -> Mac {
        Mac(array(self.0, offset::THA))
    }

    /// Returns the target's IPv4 address.
    #[inline]
    pub fn tpa(&self) -> Ipv4Addr {
        array::<4, _>(self.0, offset::TPA).into()
    }
}

/// The fields of an ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Operation, for instance [`REQUEST`].
    pub op: u16,
    /// The sender's MAC address.
    pub sha: Mac,
    /// The sender's IPv4 address.
    pub spa: Ipv4Addr,
    /// The target's MAC address.
    pub tha: Mac,
    /// The target's IPv4 address.
    pub tpa: Ipv4Addr,
}

impl Repr {
    /// Returns the fields of a packet.
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            op: view.op(),
            sha: view.sha(),
            spa: view.spa(),
            tha: view.tha(),
            tpa: view.tpa(),
        }
    }

    /// Returns the packet as it is on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut header = [0; SIZE];
        put(&mut header, 0, KIND);
        put(&mut header, offset::OP, self.op.to_be_bytes());
        put(&mut header, offset::SHA, self.sha.0);
        put(&mut header, offset::SPA, self.spa.octets());
        put(&mut header, offset::THA, self.tha.0);
        put(&mut header, offset::TPA, self.tpa.octets());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_hardware_other_protocols_and_other_sizes_are_refused() {
        let good = Repr {
            op: REQUEST,
            sha: Mac::BROADCAST,
            spa: Ipv4Addr::LOCALHOST,
            tha: Mac::ZERO,
            tpa: Ipv4Addr::BROADCAST,
        };
        for (at, field) in [
            (1, "hardware type"),
            (2, "protocol type"),
            (4, "address sizes"),
            (5, "address sizes"),
        ] {
            let mut bytes = good.to_bytes();
            bytes[at] ^= 8;
            let error = View::new(&bytes).unwrap_err();
            assert!(matches!(error, HeaderError::Invalid { field: name, .. } if name == field));
        }
        assert!(View::new(&good.to_bytes()[..27]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(
            op: u16, sha: [u8; 6], spa: [u8; 4], tha: [u8; 6], tpa: [u8; 4],
        ) {
            let (sha, tha) = (Mac(sha), Mac(tha));
            let repr = Repr { op, sha, spa: spa.into(), tha, tpa: tpa.into() };
            prop_assert_eq!(Repr::parse(&View::new(&repr.to_bytes()).unwrap()), repr);
        }
    }
}
