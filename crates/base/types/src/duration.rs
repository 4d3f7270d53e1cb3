//! Durations as text: the one syntax of all options and files that take a duration.

use core::str::FromStr;
use core::time::Duration;
use std::fmt;

/// The units and their lengths in nanoseconds. The order matters: a text with `ms` also ends with `s`.
const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("h", 3_600 * NANOS_PER_SECOND),
    ("d", 86_400 * NANOS_PER_SECOND),
];
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The error for a text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationParseError {
    text: String,
    is_bare_allowed: bool,
}

impl fmt::Display for DurationParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = self.text.chars().take(40).collect();
        let bare = if self.is_bare_allowed {
            " (without one: seconds)"
        } else {
            ""
        };
        write!(
            f,
            "`{text}` is no duration: expected a number with the unit ns, us, ms, s, m, h or d{bare}, such as 20s"
        )
    }
}

impl core::error::Error for DurationParseError {}

/// Returns the duration of a text with a unit: `500ms`, `1.5s`, `10m`, `2h`, `1d`.
///
/// # Errors
/// [`DurationParseError`], also for parts of a nanosecond and for more than 584 years.
pub fn parse_duration(text: &str) -> Result<Duration, DurationParseError> {
    parse(text, false)
}

/// A duration whose text may lack the unit, which is then seconds: `5`, `0.5`, `5s`, `10m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = DurationParseError;

    fn from_str(text: &str) -> Result<Seconds, DurationParseError> {
        parse(text, true).map(Seconds)
    }
}

impl fmt::Display for Seconds {
    /// Formats the duration with the unit `s`: `5s`, `0.5s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0.as_secs_f64())
    }
}

fn parse(text: &str, is_bare_allowed: bool) -> Result<Duration, DurationParseError> {
    let with_unit = UNITS
        .iter()
        .find_map(|(unit, nanos)| Some((text.strip_suffix(unit)?, *nanos)));
    let bare = is_bare_allowed.then_some((text, NANOS_PER_SECOND));
    let nanos = with_unit
        .or(bare)
        .and_then(|(number, scale)| scaled(number.trim_end(), scale));
    nanos.map(Duration::from_nanos).ok_or_else(|| DurationParseError {
        text: text.to_owned(),
        is_bare_allowed,
    })
}

/// Returns a decimal number times `scale`; `None` if the text is no such number, or the product no whole number.
fn scaled(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let denominator = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let numerator = match fraction {
        "" => 0,
        digits => digits.parse::<u64>().ok()?,
    };
    let part = u128::from(numerator) * u128::from(scale);
    if part % u128::from(denominator) != 0 {
        return None;
    }
    let part = u64::try_from(part / u128::from(denominator)).ok()?;
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit_and_may_have_a_fraction() {
        for (text, millis) in [
            ("500ms", 500),
            ("1.5s", 1_500),
            ("90s", 90_000),
            ("10m", 600_000),
            ("0.5h", 1_800_000),
            ("2d", 172_800_000),
            ("1500us", 1),
        ] {
            let found = parse_duration(text).unwrap();
            assert_eq!(found.as_millis(), millis, "{text}");
        }
        assert_eq!(parse_duration("1.5us"), Ok(Duration::from_nanos(1_500)));
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1.s",
            ".5s",
            "1e3s",
            "5 parsecs",
            "0.1ns",
            "99999999999h",
            "NaNs",
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.to_string().contains("such as 20s"), "{text}: {error}");
        }
    }

    #[test]
    fn a_number_without_unit_is_seconds_where_that_is_documented() {
        for (text, millis) in [("5", 5_000), ("0.25", 250), ("5s", 5_000), ("2m", 120_000)] {
            assert_eq!(text.parse(), Ok(Seconds(Duration::from_millis(millis))), "{text}");
        }
        let error = "soon".parse::<Seconds>().unwrap_err();
        assert!(error.to_string().contains("without one: seconds"), "{error}");
        assert_eq!(Seconds(Duration::from_millis(500)).to_string(), "0.5s");
    }
}
