//! Ethernet II frames, and IEEE 802.3 frames with LLC and SNAP (IEEE 802-2014, RFC 1042).

use core::fmt;

use millrace_types::Mac;

use crate::HeaderError;
use crate::bytes::{array, be16, chunk, put, split};

/// The type of an Ethernet frame's payload (IEEE "EtherType" registry).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    pub const ARP: EtherType = EtherType(0x0806);
    /// A customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// MPLS with downstream-assigned labels ("unicast").
    pub const MPLS: EtherType = EtherType(0x8847);
    /// MPLS with upstream-assigned labels ("multicast").
    pub const MPLS_MULTICAST: EtherType = EtherType(0x8848);
    /// A service VLAN tag (IEEE 802.1ad).
    pub const QINQ: EtherType = EtherType(0x88a8);
    /// A backbone service instance tag (IEEE 802.1ah).
    pub const PBB: EtherType = EtherType(0x88e7);
    /// LLDP (IEEE 802.1AB).
    pub const LLDP: EtherType = EtherType(0x88cc);
    /// NSH, a network service header (RFC 8300).
    pub const NSH: EtherType = EtherType(0x894f);
    /// The value that represents an IEEE 802.3 frame without an EtherType (`OFP_DL_TYPE_NOT_ETH_TYPE` of OpenFlow 1.0,
    /// kept by Open vSwitch for 1.3).
    pub const NOT_ETH_TYPE: EtherType = EtherType(0x05ff);
    /// The lowest EtherType; a lower value is a length.
    pub const MIN: EtherType = EtherType(0x0600);

    /// Returns true for the TPID of a VLAN tag that OpenFlow supports: 802.1Q or 802.1ad.
    #[inline]
    pub const fn is_vlan(self) -> bool {
        self.0 == Self::VLAN.0 || self.0 == Self::QINQ.0
    }

    /// Returns true for the EtherType of an MPLS label stack.
    #[inline]
    pub const fn is_mpls(self) -> bool {
        self.0 == Self::MPLS.0 || self.0 == Self::MPLS_MULTICAST.0
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Size of the header in bytes.
pub const SIZE: usize = 14;

/// Size in bytes of the LLC and SNAP headers, which follow a length.
pub const SNAP_SIZE: usize = 8;

mod offset {
    pub(super) const DST: usize = 0;
    pub(super) const SRC: usize = 6;
    pub(super) const ETHER_TYPE: usize = 12;
}

/// A frame that is long enough for its header.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; SIZE],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns a view of a frame.
    ///
    /// # Errors
    /// [`HeaderError::Truncated`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        let (header, payload) = split("Ethernet", bytes)?;
        Ok(View { header, payload })
    }

    /// Returns the destination address.
    #[inline]
    pub fn dst(&self) -> Mac {
        Mac(array(self.header, offset::DST))
    }

    /// Returns the source address.
    #[inline]
    pub fn src(&self) -> Mac {
        Mac(array(self.header, offset::SRC))
    }

    /// Returns the EtherType if it is at least [`EtherType::MIN`]; otherwise the length of an 802.3 frame.
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        EtherType(be16(self.header, offset::ETHER_TYPE))
    }

    /// Returns the bytes after the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Returns the EtherType in the SNAP header of an 802.3 frame; `None` unless the header is complete, has the
/// organisation code of encapsulated Ethernet (RFC 1042), and its EtherType is at least [`EtherType::MIN`]. `llc` are
/// the bytes after the length field.
#[inline]
pub fn snap(llc: &[u8]) -> Option<EtherType> {
    let header = chunk::<SNAP_SIZE>(llc, 0)?;
    let ether_type = EtherType(be16(header, 6));
    (header[..6] == [0xaa, 0xaa, 0x03, 0, 0, 0] && ether_type >= EtherType::MIN).then_some(ether_type)
}

/// The fields of an Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Destination address.
    pub dst: Mac,
    /// Source address.
    pub src: Mac,
    pub ether_type: EtherType,
}

impl Repr {
    /// Returns the fields of a frame's header.
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            dst: view.dst(),
            src: view.src(),
            ether_type: view.ether_type(),
        }
    }

    /// Returns the header as it is on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut header = [0; SIZE];
        put(&mut header, offset::DST, self.dst.0);
        put(&mut header, offset::SRC, self.src.0);
        put(&mut header, offset::ETHER_TYPE, self.ether_type.0.to_be_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_runt_is_no_frame() {
        let error = View::new(&[0; 13]).unwrap_err();
        assert_eq!(
            error,
            HeaderError::Truncated {
                header: "Ethernet",
                needed: 14,
                size: 13
            }
        );
    }

    #[test]
    fn only_snap_of_encapsulated_ethernet_has_an_ether_type() {
        assert_eq!(snap(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0, 0x45]), Some(EtherType::IPV4));
        assert_eq!(snap(&[0xaa, 0xaa, 3, 0, 0, 1, 8, 0]), None);
        assert_eq!(snap(&[0xaa, 0xaa, 3, 0, 0, 0, 5, 0xff]), None);
        assert_eq!(snap(&[0x42, 0x42, 3, 0, 0, 0, 8, 0]), None);
        assert_eq!(snap(&[0xaa, 0xaa, 3, 0, 0, 0, 8]), None);
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(dst: [u8; 6], src: [u8; 6], ether_type: u16) {
            let repr = Repr { dst: Mac(dst), src: Mac(src), ether_type: EtherType(ether_type) };
            prop_assert_eq!(Repr::parse(&View::new(&repr.to_bytes()).unwrap()), repr);
        }
    }
}
