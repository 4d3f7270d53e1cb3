//! VLAN tags: IEEE 802.1Q and, with another EtherType in front, 802.1ad (IEEE 802.1Q-2018, section 9).
//!
//! A view begins after the EtherType of the tag (the TPID) and ends with the EtherType of the next header, so nested
//! tags are parsed in one loop.

use millrace_types::{Pcp, Vid};

use crate::bytes::{be16, put, split};
use crate::{EtherType, HeaderError};

/// Size of a tag in bytes.
pub const SIZE: usize = 4;

/// The drop eligible indicator in a tag control information.
pub const DEI: u16 = 0x1000;

mod offset {
    pub(super) const TCI: usize = 0;
    pub(super) const ETHER_TYPE: usize = 2;
}

/// A complete tag.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; SIZE],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns a view of the tag at the front of `bytes`, which follow the TPID.
    ///
    /// # Errors
    /// [`HeaderError::Truncated`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        let (header, payload) = split("VLAN", bytes)?;
        Ok(View { header, payload })
    }

    /// Returns the tag control information: priority, drop eligible, identifier.
    #[inline]
    pub fn tci(&self) -> u16 {
        be16(self.header, offset::TCI)
    }

    /// Returns the VLAN identifier.
    #[inline]
    pub fn vid(&self) -> Vid {
        Vid::from_tci(self.tci())
    }

    /// Returns the priority.
    #[inline]
    pub fn pcp(&self) -> Pcp {
        Pcp::from_tci(self.tci())
    }

    /// Returns the drop eligible indicator.
    #[inline]
    pub fn dei(&self) -> bool {
        self.tci() & DEI != 0
    }

    /// Returns the EtherType after the tag.
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        EtherType(be16(self.header, offset::ETHER_TYPE))
    }

    /// Returns the bytes after the tag and the EtherType that follows it.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The fields of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// VLAN identifier.
    pub vid: Vid,
    /// Priority.
    pub pcp: Pcp,
    /// Drop eligible indicator.
    pub dei: bool,
    /// EtherType after the tag.
    pub ether_type: EtherType,
}

impl Repr {
    /// Returns the fields of a tag.
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            vid: view.vid(),
            pcp: view.pcp(),
            dei: view.dei(),
            ether_type: view.ether_type(),
        }
    }

    /// Returns the tag control information.
    #[inline]
    pub fn tci(&self) -> u16 {
        u16::from(self.pcp.raw()) << 13 | if self.dei { DEI } else { 0 } | self.vid.raw()
    }

    /// Returns the tag on the wire, without its TPID.
    #[inline]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut header = [0; SIZE];
        put(&mut header, offset::TCI, self.tci().to_be_bytes());
        put(&mut header, offset::ETHER_TYPE, self.ether_type.0.to_be_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tag_without_the_following_ether_type_is_cut_short() {
        assert!(matches!(
            View::new(&[0, 1, 8]),
            Err(HeaderError::Truncated {
                needed: 4,
                size: 3,
                ..
            })
        ));
    }

    proptest! {
        #[test]
        fn every_tag_parses_and_is_emitted_the_same(bytes: [u8; 4]) {
            prop_assert_eq!(Repr::parse(&View::new(&bytes).unwrap()).to_bytes(), bytes);
        }
    }
}
