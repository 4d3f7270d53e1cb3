//! Decimal numbers without rounding, and bit error rates.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::serde_as_text;

/// Reads a decimal number (`12`, `0.5`) and returns it times `scale`. Returns `None` if the text is not such
/// a number, or if the product does not fit or is not an integer.
pub(crate) fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let empty = whole.is_empty() && fraction.is_empty();
    if empty || !is_digits(whole) || !is_digits(fraction) || fraction.len() > 18 {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let numerator: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let denominator = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let product = numerator * u128::from(scale);
    if !product.is_multiple_of(denominator) {
        return None;
    }
    let total = whole
        .checked_mul(u128::from(scale))?
        .checked_add(product / denominator)?;
    u64::try_from(total).ok()
}

/// The probability that a bit is inverted, 0 to 0.5.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct BitErrorRate(f64);

/// The error for a text that is not a [`BitErrorRate`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a bit error rate: expected a number from 0 to 0.5, such as `1e-9`")]
pub struct BitErrorRateError(String);

impl BitErrorRate {
    /// Returns the rate.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for BitErrorRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:e}", self.0)
    }
}

impl FromStr for BitErrorRate {
    type Err = BitErrorRateError;

    fn from_str(text: &str) -> Result<BitErrorRate, BitErrorRateError> {
        match text.parse::<f64>() {
            Ok(rate) if (0.0..=0.5).contains(&rate) => Ok(BitErrorRate(rate)),
            _ => Err(BitErrorRateError(text.to_owned())),
        }
    }
}

serde_as_text!(BitErrorRate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_number_is_exact_or_refused() {
        assert_eq!(decimal("2.5", 1_000_000), Some(2_500_000));
        assert_eq!(decimal(".5", 10), Some(5));
        assert_eq!(decimal("0.3", 1_000_000_000_000), Some(300_000_000_000));
        for bad in [
            "",
            ".",
            "-1",
            "1e3",
            "0.0001",
            "99999999999999999999",
            "1.",
            "1.x",
        ] {
            let expected = (bad == "1.").then_some(1000);
            assert_eq!(decimal(bad, 1000), expected, "{bad}");
        }
    }

    #[test]
    fn a_bit_error_rate_is_at_most_a_half() {
        assert_eq!("1e-14".parse::<BitErrorRate>().unwrap().get(), 1e-14);
        assert_eq!("1e-14".parse::<BitErrorRate>().unwrap().to_string(), "1e-14");
        for bad in ["0.6", "-1e-9", "nan", "1%", ""] {
            assert!(bad.parse::<BitErrorRate>().is_err(), "{bad}");
        }
    }
}
