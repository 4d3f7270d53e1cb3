//! The selection of flow entries by cookie and mask.

use core::fmt;
use core::str::FromStr;

use millrace_types::Cookie;

use super::error::TextError;
use super::scan::Span;
use super::value;

/// A cookie, and a mask of the bits that must be equal in the cookie of an entry (OpenFlow 1.3.5, section
/// 6.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CookieMatch {
    pub value: Cookie,
    /// The bits that must be equal; 0 selects every entry.
    pub mask: u64,
}

impl CookieMatch {
    /// Returns the selection of the entries with exactly this cookie.
    pub const fn exact(value: Cookie) -> CookieMatch {
        CookieMatch {
            value,
            mask: u64::MAX,
        }
    }

    /// Returns true if the cookie is selected.
    pub const fn matches(self, cookie: Cookie) -> bool {
        (cookie.0 ^ self.value.0) & self.mask == 0
    }

    /// Parses `VALUE` or `VALUE/MASK`. A mask of `-1` has all bits, as in ovs-ofctl.
    pub(super) fn parse(text: Span<'_>) -> Result<CookieMatch, TextError> {
        let bits = |text| value::bounded(text, u64::MAX.into()).map(|bits| bits as u64);
        match text.split(&['/']) {
            None => Ok(CookieMatch::exact(Cookie(bits(text)?))),
            Some((value, mask)) => Ok(CookieMatch {
                value: Cookie(bits(value)?),
                mask: if mask.text() == "-1" {
                    u64::MAX
                } else {
                    bits(mask)?
                },
            }),
        }
    }
}

impl FromStr for CookieMatch {
    type Err = TextError;

    fn from_str(text: &str) -> Result<CookieMatch, TextError> {
        CookieMatch::parse(Span::new(text))
    }
}

impl fmt::Display for CookieMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value)?;
        if self.mask == u64::MAX {
            Ok(())
        } else {
            write!(f, "/{:#x}", self.mask)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_with_a_mask_selects_by_the_bits_of_the_mask() {
        let parse = |text: &str| text.parse::<CookieMatch>().unwrap();
        assert_eq!(parse("42"), CookieMatch::exact(Cookie(42)));
        assert_eq!(parse("0x2a/-1"), CookieMatch::exact(Cookie(42)));
        let low = parse("0x2a/0xff");
        assert!(low.matches(Cookie(0x12a)) && !low.matches(Cookie(0x2b)));
        assert_eq!(low.to_string(), "0x2a/0xff");
        for wrong in ["", "x", "1/", "1/x", "-1", "0x1_0000"] {
            assert!(wrong.parse::<CookieMatch>().is_err(), "{wrong}");
        }
    }
}
