//! The fields of an IEEE 802.1Q tag control information (IEEE 802.1Q-2018, section 9.6).

use core::fmt;

/// A VLAN identifier, `0..=4095`. Zero is the priority tag; 4095 is reserved but can be seen on a wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Vid(u16);

impl Vid {
    /// Returns the identifier `raw`.
    ///
    /// # Errors
    /// [`VidError`] if `raw` needs more than 12 bits.
    pub const fn new(raw: u16) -> Result<Vid, VidError> {
        if raw > 0xfff {
            Err(VidError { raw })
        } else {
            Ok(Vid(raw))
        }
    }

    /// Returns the identifier in the low 12 bits of a tag control information.
    #[inline]
    pub const fn from_tci(tci: u16) -> Vid {
        Vid(tci & 0xfff)
    }

    /// Returns the identifier as an integer.
    #[inline]
    pub const fn raw(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Vid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The error for a number of more than 12 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VidError {
    /// The rejected number.
    pub raw: u16,
}

impl fmt::Display for VidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a VLAN id: expected 0 to 4095", self.raw)
    }
}

impl core::error::Error for VidError {}

/// A priority code point, `0..=7`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Pcp(u8);

impl Pcp {
    /// Returns the priority `raw`.
    ///
    /// # Errors
    /// [`PcpError`] if `raw` needs more than 3 bits.
    pub const fn new(raw: u8) -> Result<Pcp, PcpError> {
        if raw > 7 {
            Err(PcpError { raw })
        } else {
            Ok(Pcp(raw))
        }
    }

    /// Returns the priority in the high 3 bits of a tag control information.
    #[inline]
    pub const fn from_tci(tci: u16) -> Pcp {
        Pcp((tci >> 13) as u8)
    }

    /// Returns the priority as an integer.
    #[inline]
    pub const fn raw(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Pcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The error for a number of more than 3 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcpError {
    /// The rejected number.
    pub raw: u8,
}

impl fmt::Display for PcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a VLAN priority: expected 0 to 7", self.raw)
    }
}

impl core::error::Error for PcpError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_splits_into_its_fields() {
        let tci = 0xb064;
        assert_eq!(Vid::from_tci(tci).raw(), 100);
        assert_eq!(Pcp::from_tci(tci).raw(), 5);
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        assert!(Vid::new(4095).is_ok() && Vid::new(4096).is_err());
        assert!(Pcp::new(7).is_ok() && Pcp::new(8).is_err());
    }
}
