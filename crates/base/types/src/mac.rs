//! IEEE 802 MAC addresses.

use core::fmt;
use core::str::FromStr;

/// A 48-bit MAC address in transmission order (IEEE 802-2014, section 8.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Mac = Mac([0xff; 6]);
    /// `00:00:00:00:00:00`.
    pub const ZERO: Mac = Mac([0; 6]);

    /// Returns true if the individual/group bit is set (broadcast is a multicast, too).
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns true for `ff:ff:ff:ff:ff:ff`.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Returns true for a link-local group address that a bridge must not forward: `01:80:c2:00:00:00` to
    /// `01:80:c2:00:00:0f` (IEEE 802.1Q-2018, table 8-1).
    #[inline]
    pub fn is_reserved_link_local(self) -> bool {
        self.0[..5] == [0x01, 0x80, 0xc2, 0x00, 0x00] && self.0[5] & 0xf0 == 0
    }

    /// Returns the address as the low 48 bits of an integer.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        let b = self.0;
        u64::from_be_bytes([0, 0, b[0], b[1], b[2], b[3], b[4], b[5]])
    }

    /// Returns the address in the low 48 bits of `value`; the high 16 bits are ignored.
    #[inline]
    pub const fn from_u64(value: u64) -> Mac {
        let b = value.to_be_bytes();
        Mac([b[2], b[3], b[4], b[5], b[6], b[7]])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<[u8; 6]> for Mac {
    fn from(bytes: [u8; 6]) -> Mac {
        Mac(bytes)
    }
}

/// The error for text that is not a MAC address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacParseError(String);

impl fmt::Display for MacParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a MAC address: expected six hex octets as in 02:00:00:00:00:01, 0200.0000.0001 or 020000000001",
            self.0
        )
    }
}

impl core::error::Error for MacParseError {}

impl FromStr for Mac {
    type Err = MacParseError;

    /// Parses six octets with colons or hyphens between them, three groups of four digits with dots or hyphens between them, as Cisco
    /// IOS and Huawei write them, or twelve digits.
    fn from_str(text: &str) -> Result<Mac, MacParseError> {
        let bad = || MacParseError(text.to_owned());
        if let Some(mac) = grouped(text) {
            return Ok(mac);
        }
        let mut bytes = [0u8; 6];
        let mut octets = text.split([':', '-']);
        for byte in &mut bytes {
            let octet = octets.next().ok_or_else(bad)?;
            if octet.is_empty() || octet.len() > 2 || !octet.bytes().all(|c| c.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *byte = u8::from_str_radix(octet, 16).map_err(|_| bad())?;
        }
        if octets.next().is_some() {
            Err(bad())
        } else {
            Ok(Mac(bytes))
        }
    }
}

/// Returns the address of three groups of four hex digits: `0200.5e00.5301`, `0200-5e00-5301` or `02005e005301`.
fn grouped(text: &str) -> Option<Mac> {
    let bytes = text.as_bytes();
    let step = match (bytes.len(), bytes.get(4), bytes.get(9)) {
        (12, ..) => 4,
        (14, Some(b'.'), Some(b'.')) | (14, Some(b'-'), Some(b'-')) => 5,
        _ => return None,
    };
    let mut value = 0;
    for start in [0, step, 2 * step] {
        for byte in bytes.get(start..start + 4)? {
            value = value << 4 | u64::from(char::from(*byte).to_digit(16)?);
        }
    }
    Some(Mac::from_u64(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_integer_forms_round_trip() {
        let mac: Mac = "02:00:5e:10:FF:01".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:5e:10:ff:01");
        assert_eq!(Mac::from_u64(mac.to_u64()), mac);
    }

    #[test]
    fn the_forms_of_vendors_are_the_same_address() {
        let mac = Mac([0x02, 0x00, 0x5e, 0x10, 0xff, 0x01]);
        for text in [
            "02:00:5e:10:ff:01",
            "02-00-5E-10-FF-01",
            "0200.5e10.ff01",
            "0200.5E10.FF01",
            "0200-5e10-ff01",
            "02005E10ff01",
            "2:0:5e:10:ff:1",
            "2-0-5e-10-ff-1",
        ] {
            assert_eq!(text.parse(), Ok(mac), "{text}");
        }
    }

    #[test]
    fn malformed_text_is_refused_and_named() {
        for text in [
            "",
            "02:00",
            "02:00:00:00:00:00:00",
            "0g:00:00:00:00:00",
            "+1:00:00:00:00:00",
            "0200.5e10.ff0",
            "0200.5e10.ff011",
            "0200:5e10.ff01",
            "02.005e.10ff01",
            "0200.5e1g.ff01",
            "0200.+e10.ff01",
            "0200-5e10.ff01",
            "02005e10ff0",
            "02005e10ff011",
            "02005e10ffg1",
            "02005e1é0ff",
        ] {
            let error = text.parse::<Mac>().unwrap_err();
            assert!(error.to_string().contains(text));
        }
    }

    #[test]
    fn only_the_sixteen_bridge_addresses_are_reserved() {
        assert!(
            "01:80:c2:00:00:0f"
                .parse::<Mac>()
                .unwrap()
                .is_reserved_link_local()
        );
        assert!(
            !"01:80:c2:00:00:10"
                .parse::<Mac>()
                .unwrap()
                .is_reserved_link_local()
        );
    }
}
