//! Durations, probabilities and sizes in their text form, stored as integers.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use millrace_types::parse_duration;

use super::{Items, TextError, decimal, serde_as_text};

/// Returns the number before the first suffix in `units` that the text ends with, and the scale of the
/// suffix.
fn split<'a>(text: &'a str, units: &[(&str, u64)]) -> Option<(&'a str, u64)> {
    units
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?.trim_end(), *scale)))
}

/// Writes a value with the largest unit that divides it.
fn write_with_unit(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let unit = units.iter().rev().find(|(_, scale)| value.is_multiple_of(*scale));
    match (value, unit) {
        (0, _) | (_, None) => write!(f, "{value}{}", units.first().map_or("", |(unit, _)| unit)),
        (_, Some((unit, scale))) => write!(f, "{}{unit}", value / scale),
    }
}

/// A length of time in whole nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Interval(u64);

impl Interval {
    /// The units of the text form.
    const UNITS: [(&'static str, u64); 4] =
        [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    /// The longest interval: a day.
    pub const MAX: Interval = Interval(86_400_000_000_000);

    /// Returns an interval of nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Interval {
        Interval(nanos)
    }

    /// Returns an interval of microseconds.
    pub const fn from_micros(micros: u64) -> Interval {
        Interval(micros * 1_000)
    }

    /// Returns an interval of milliseconds.
    pub const fn from_millis(millis: u64) -> Interval {
        Interval(millis * 1_000_000)
    }

    /// Returns nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the interval as the standard library's type.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl fmt::Display for Interval {
    /// Formats with the largest unit that divides the value: `100ms`, `2500us`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_unit(f, self.0, &Interval::UNITS)
    }
}

impl FromStr for Interval {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Interval, TextError> {
        let nanos = parse_duration(text).map(|duration| u64::try_from(duration.as_nanos()));
        nanos
            .ok()
            .and_then(Result::ok)
            .map(Interval)
            .filter(|interval| *interval <= Interval::MAX)
            .ok_or_else(|| {
                let problem =
                    "expected a number and `ns`, `us`, `ms`, `s`, `m` or `h`, at most a day, such as `100ms`";
                TextError::new(text, "a duration", problem)
            })
    }
}

/// A probability or a share, 0 to 100 %, in steps of 10^-12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Probability(u64);

impl Probability {
    const ONE: u64 = 1_000_000_000_000;
    /// The probability of an impossible event.
    pub const ZERO: Probability = Probability(0);
    /// The probability of a certain event.
    pub const CERTAIN: Probability = Probability(Probability::ONE);

    /// Removes `correlation=…` from a setting, and returns the correlation of successive draws; zero if there is
    /// none. Refuses 100 %, with which the first draw would decide for all frames.
    pub(crate) fn correlation(items: &mut Items<'_>) -> Result<Probability, TextError> {
        let share = items.value("correlation")?.unwrap_or_default();
        if share == Probability::CERTAIN {
            return Err(items.error("a correlation of 100%, with which no frame differs from the first"));
        }
        Ok(share)
    }

    /// Returns a probability in millionths. More than a million millionths count as certain.
    pub const fn from_ppm(millionths: u64) -> Probability {
        if millionths >= 1_000_000 {
            Probability::CERTAIN
        } else {
            Probability(millionths * 1_000_000)
        }
    }

    /// Returns the probability that is nearest to `value`, limited to 0 to 1.
    pub fn from_f64(value: f64) -> Probability {
        // The cast saturates, and converts NaN to zero.
        let steps = (value * Probability::ONE as f64).round() as u64;
        Probability(steps.min(Probability::ONE))
    }

    /// Returns the probability, 0 to 1.
    pub fn get(self) -> f64 {
        self.0 as f64 / Probability::ONE as f64
    }

    /// Returns this share of `whole`, rounded down.
    pub(crate) fn of(self, whole: u64) -> u64 {
        (u128::from(whole) * u128::from(self.0) / u128::from(Probability::ONE)) as u64
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = Probability::ONE / 100;
        write!(f, "{}", self.0 / percent)?;
        let fraction = format!("{:010}", self.0 % percent);
        let fraction = fraction.trim_end_matches('0');
        if !fraction.is_empty() {
            write!(f, ".{fraction}")?;
        }
        f.write_str("%")
    }
}

impl FromStr for Probability {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Probability, TextError> {
        const UNITS: [(&str, u64); 2] = [
            ("%", Probability::ONE / 100),
            ("ppm", Probability::ONE / 1_000_000),
        ];
        let value = split(text, &UNITS).and_then(|(number, scale)| decimal(number, scale));
        value
            .filter(|value| *value <= Probability::ONE)
            .map(Probability)
            .ok_or_else(|| {
                let problem = "expected a number from 0 to 100 and `%`, or parts per million, such as `0.5%` or `20ppm`";
                TextError::new(text, "a probability", problem)
            })
    }
}

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

impl ByteSize {
    // The order matters: a text with `KiB` also ends with `B`. Output uses only powers of two.
    const UNITS: [(&'static str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printed = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
        write_with_unit(f, self.0, &printed)
    }
}

impl FromStr for ByteSize {
    type Err = TextError;

    fn from_str(text: &str) -> Result<ByteSize, TextError> {
        let value = split(text, &ByteSize::UNITS).and_then(|(number, scale)| decimal(number, scale));
        value.map(ByteSize).ok_or_else(|| {
            let problem =
                "expected a number and `B`, `kB`, `MB`, `GB`, `KiB`, `MiB` or `GiB`, such as `256MiB`";
            TextError::new(text, "a size", problem)
        })
    }
}

serde_as_text!(Interval, Probability, ByteSize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_in_their_largest_exact_unit_and_parse_back() {
        for (text, nanos, printed) in [
            ("100ms", 100_000_000, "100ms"),
            ("2.5ms", 2_500_000, "2500us"),
            ("0s", 0, "0ns"),
            ("1.5 s", 1_500_000_000, "1500ms"),
        ] {
            let interval: Interval = text.parse().unwrap();
            assert_eq!(
                (interval.nanos(), interval.to_string().as_str()),
                (nanos, printed)
            );
            assert_eq!(printed.parse(), Ok(interval));
        }
    }

    #[test]
    fn a_duration_without_unit_negative_or_longer_than_a_day_is_refused() {
        for bad in ["100", "-1ms", "1w", "ms", "0.1ns", "90000s", ""] {
            let error = bad.parse::<Interval>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{bad}` is not a duration: expected")),
                "{error}"
            );
        }
    }

    #[test]
    fn probabilities_are_exact_decimal_fractions() {
        for (text, value, printed) in [
            ("0.5%", 0.005, "0.5%"),
            ("20ppm", 20e-6, "0.002%"),
            ("7%", 0.07, "7%"),
            ("100%", 1.0, "100%"),
            ("0.0001%", 1e-6, "0.0001%"),
        ] {
            let probability: Probability = text.parse().unwrap();
            assert_eq!(
                (probability.get(), probability.to_string().as_str()),
                (value, printed)
            );
            assert_eq!(printed.parse(), Ok(probability));
        }
        for bad in ["1", "-1%", "100.1%", "%", "nan%"] {
            assert!(bad.parse::<Probability>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_take_decimal_and_binary_units() {
        assert_eq!("64KiB".parse(), Ok(ByteSize(65_536)));
        assert_eq!("1.5MB".parse(), Ok(ByteSize(1_500_000)));
        assert_eq!(ByteSize(65_536).to_string(), "64KiB");
        assert!("64".parse::<ByteSize>().is_err());
    }
}
