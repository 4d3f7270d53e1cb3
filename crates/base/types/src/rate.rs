//! Bit rates.

use core::fmt;
use core::str::FromStr;

/// A rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(u64);

impl BitRate {
    /// Returns a rate of `bps` bits per second.
    pub const fn from_bps(bps: u64) -> BitRate {
        BitRate(bps)
    }

    /// Returns a rate in kilobits (1000 bits) per second, the unit of OpenFlow.
    pub const fn from_kbps(kbps: u32) -> BitRate {
        BitRate(kbps as u64 * 1000)
    }

    /// Returns bits per second.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// Returns kilobits (1000 bits) per second, rounded down, at most `u32::MAX`.
    pub const fn kbps(self) -> u32 {
        let kbps = self.0 / 1000;
        if kbps > u32::MAX as u64 {
            u32::MAX
        } else {
            kbps as u32
        }
    }
}

const UNITS: [(&str, u64); 4] = [
    ("Tbps", 1_000_000_000_000),
    ("Gbps", 1_000_000_000),
    ("Mbps", 1_000_000),
    ("kbps", 1_000),
];

impl fmt::Display for BitRate {
    /// Formats the rate with the largest unit that divides it exactly: `10Gbps`, `1500kbps`, `7bps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS
            .iter()
            .find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale));
        match unit {
            Some((name, scale)) => write!(f, "{}{name}", self.0 / scale),
            None => write!(f, "{}bps", self.0),
        }
    }
}

impl fmt::Debug for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for text that is not a bit rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitRateParseError(String);

impl fmt::Display for BitRateParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a bit rate: expected a whole number and bps, kbps, Mbps, Gbps or Tbps",
            self.0
        )
    }
}

impl core::error::Error for BitRateParseError {}

impl FromStr for BitRate {
    type Err = BitRateParseError;

    fn from_str(text: &str) -> Result<BitRate, BitRateParseError> {
        let bad = || BitRateParseError(text.to_owned());
        let (digits, scale) = UNITS
            .iter()
            .find_map(|(name, scale)| text.strip_suffix(name).map(|digits| (digits, *scale)))
            .or_else(|| text.strip_suffix("bps").map(|digits| (digits, 1)))
            .ok_or_else(bad)?;
        let number: u64 = digits.trim_end().parse().map_err(|_| bad())?;
        number.checked_mul(scale).map(BitRate).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_print_in_their_largest_exact_unit_and_parse_back() {
        for (bps, text) in [
            (10_000_000_000, "10Gbps"),
            (1_500_000, "1500kbps"),
            (7, "7bps"),
            (0, "0bps"),
        ] {
            assert_eq!(BitRate::from_bps(bps).to_string(), text);
            assert_eq!(text.parse(), Ok(BitRate::from_bps(bps)));
        }
    }

    #[test]
    fn a_rate_without_unit_or_too_large_is_refused() {
        assert!("10".parse::<BitRate>().is_err());
        assert!("99999999999999999999Gbps".parse::<BitRate>().is_err());
        assert!("99999999999Tbps".parse::<BitRate>().is_err());
    }
}
