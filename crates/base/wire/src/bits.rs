//! Header fields that are not whole bytes, as newtypes whose values always fit.

use core::fmt;

/// A number that needs more bits than its field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{raw} is not a valid {field}: expected 0 to {max}")]
pub struct OutOfRange {
    /// The name of the field.
    pub field: &'static str,
    /// The rejected number.
    pub raw: u32,
    /// The largest valid number.
    pub max: u32,
}

macro_rules! field {
    ($(#[$doc:meta])* $name:ident($inner:ty), $bits:literal bits, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name($inner);

        impl $name {
            /// The highest value.
            pub const MAX: $name = $name((1 << $bits) - 1);

            /// Returns the field with the value `raw`.
            ///
            /// # Errors
            #[doc = concat!("[`OutOfRange`] if `raw` needs more than ", $bits, " bits.")]
            pub const fn new(raw: $inner) -> Result<$name, OutOfRange> {
                if raw > Self::MAX.0 {
                    Err(OutOfRange { field: $what, raw: raw as u32, max: Self::MAX.0 as u32 })
                } else {
                    Ok($name(raw))
                }
            }

            #[doc = concat!("The value in the low ", $bits, " bits; the others are ignored.")]
            #[inline]
            pub const fn from_low_bits(raw: $inner) -> $name {
                $name(raw & Self::MAX.0)
            }

            /// Returns the value as an integer.
            #[inline]
            pub const fn raw(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

field! {
    /// A differentiated services code point (RFC 2474).
    Dscp(u8), 6 bits, "DSCP"
}
field! {
    /// The explicit congestion notification bits (RFC 3168).
    Ecn(u8), 2 bits, "ECN"
}
field! {
    /// An IPv6 flow label (RFC 6437).
    FlowLabel(u32), 20 bits, "IPv6 flow label"
}
field! {
    /// An MPLS label (RFC 3032).
    MplsLabel(u32), 20 bits, "MPLS label"
}
field! {
    /// An MPLS traffic class (RFC 5462).
    Tc(u8), 3 bits, "MPLS traffic class"
}
field! {
    /// A backbone service instance identifier (IEEE 802.1Q-2018, section 9.7).
    Isid(u32), 24 bits, "PBB service instance"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_do_not_fit_are_refused_by_name() {
        assert_eq!(Dscp::new(63), Ok(Dscp::MAX));
        assert_eq!(
            Dscp::new(64).unwrap_err().to_string(),
            "64 is not a valid DSCP: expected 0 to 63"
        );
        assert!(MplsLabel::new(1 << 20).is_err());
        assert_eq!(Isid::from_low_bits(0x0112_3456).raw(), 0x12_3456);
    }
}
