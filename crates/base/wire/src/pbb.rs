//! The backbone service instance tag of provider backbone bridging (IEEE 802.1ah; IEEE 802.1Q-2018,
//! section 9.7).
//!
//! A view begins after the EtherType 0x88e7. The tag holds the customer's addresses and ends with the customer's
//! EtherType, so that the customer's frame remains when the tag is removed.

use millrace_types::{Mac, Pcp};

use crate::bytes::{array, be16, be32, put, split};
use crate::{EtherType, HeaderError, Isid};

/// Size of a tag in bytes: control information, the customer's addresses and EtherType.
pub const SIZE: usize = 18;

/// The drop eligible indicator in the first four bytes.
pub const DEI: u32 = 1 << 28;
/// The use customer addresses bit (`OFPXMT_OFB_PBB_UCA` of OpenFlow 1.4) in the first four bytes.
pub const UCA: u32 = 1 << 27;

mod offset {
    pub(super) const TCI: usize = 0;
    pub(super) const CUSTOMER_DST: usize = 4;
    pub(super) const CUSTOMER_SRC: usize = 10;
    pub(super) const ETHER_TYPE: usize = 16;
}

/// A complete tag.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; SIZE],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns a view of the tag at the front of `bytes`, which follow the EtherType.
    ///
    /// # Errors
    /// [`HeaderError::Truncated`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        let (header, payload) = split("PBB", bytes)?;
        Ok(View { header, payload })
    }

    /// Returns the tag control information: priority, drop eligible, use customer addresses, reserved, service
    /// instance.
    #[inline]
    pub fn tci(&self) -> u32 {
        be32(self.header, offset::TCI)
    }

    /// Returns the service instance.
    #[inline]
    pub fn isid(&self) -> Isid {
        Isid::from_low_bits(self.tci())
    }

    /// Returns the priority.
    #[inline]
    pub fn pcp(&self) -> Pcp {
        Pcp::from_tci((self.tci() >> 16) as u16)
    }

    /// Returns the drop eligible indicator.
    #[inline]
    pub fn dei(&self) -> bool {
        self.tci() & DEI != 0
    }

    /// Returns the bit that says that customer addresses are significant (use customer addresses).
    #[inline]
    pub fn uca(&self) -> bool {
        self.tci() & UCA != 0
    }

    /// Returns the customer's destination address.
    #[inline]
    pub fn customer_dst(&self) -> Mac {
        Mac(array(self.header, offset::CUSTOMER_DST))
    }

    /// Returns the customer's source address.
    #[inline]
    pub fn customer_src(&self) -> Mac {
        Mac(array(self.header, offset::CUSTOMER_SRC))
    }

    /// Returns the EtherType of the customer's frame.
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        EtherType(be16(self.header, offset::ETHER_TYPE))
    }

    /// Returns the bytes after the customer's EtherType.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The fields of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Service instance.
    pub isid: Isid,
    /// Priority.
    pub pcp: Pcp,
    /// Drop eligible indicator.
    pub dei: bool,
    /// Use customer addresses.
    pub uca: bool,
    /// The customer's destination address.
    pub customer_dst: Mac,
    /// The customer's source address.
    pub customer_src: Mac,
    /// EtherType of the customer's frame.
    pub ether_type: EtherType,
}

impl Repr {
    /// Returns the fields of a tag. The reserved bits are ignored.
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            isid: view.isid(),
            pcp: view.pcp(),
            dei: view.dei(),
            uca: view.uca(),
            customer_dst: view.customer_dst(),
            customer_src: view.customer_src(),
            ether_type: view.ether_type(),
        }
    }

    /// Returns the tag on the wire, without the EtherType in front of it.
    #[inline]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let flags = if self.dei { DEI } else { 0 } | if self.uca { UCA } else { 0 };
        let tci = u32::from(self.pcp.raw()) << 29 | flags | self.isid.raw();
        let mut header = [0; SIZE];
        put(&mut header, offset::TCI, tci.to_be_bytes());
        put(&mut header, offset::CUSTOMER_DST, self.customer_dst.0);
        put(&mut header, offset::CUSTOMER_SRC, self.customer_src.0);
        put(&mut header, offset::ETHER_TYPE, self.ether_type.0.to_be_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tag_without_the_customers_header_is_cut_short() {
        assert!(View::new(&[0; 17]).is_err());
    }

    proptest! {
        #[test]
        fn every_tag_parses_and_is_emitted_the_same_but_for_its_reserved_bits(mut bytes: [u8; 18]) {
            let repr = Repr::parse(&View::new(&bytes).unwrap());
            bytes[0] &= 0xf8;
            prop_assert_eq!(repr.to_bytes(), bytes);
        }
    }
}
