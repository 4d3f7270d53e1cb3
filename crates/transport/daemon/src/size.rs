//! Sizes in bytes, as configuration files spell them and as errors print them.

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

const UNITS: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

/// A size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct ByteSize(pub u64);

/// A text that is no size.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "`{0}` is no size; expected a whole number with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 10GiB"
)]
pub struct ByteSizeError(String);

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<ByteSize, ByteSizeError> {
        let wrong = || ByteSizeError(text.to_owned());
        let units = UNITS.iter().copied().chain([("B", 1)]);
        let (number, unit) = units
            .filter_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))
            .next()
            .ok_or_else(wrong)?;
        let number: u64 = number.trim_end().parse().map_err(|_| wrong())?;
        number.checked_mul(unit).map(ByteSize).ok_or_else(wrong)
    }
}

impl TryFrom<String> for ByteSize {
    type Error = ByteSizeError;

    fn try_from(text: String) -> Result<ByteSize, ByteSizeError> {
        text.parse()
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = UNITS.iter().take(4).find(|(_, unit)| self.0 >= *unit);
        match binary {
            Some((name, unit)) => write!(f, "{:.1} {name}", self.0 as f64 / *unit as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_or_refused_with_an_example() {
        assert_eq!("10GiB".parse(), Ok(ByteSize(10 << 30)));
        assert_eq!("500 MB".parse(), Ok(ByteSize(500_000_000)));
        assert_eq!("7B".parse(), Ok(ByteSize(7)));
        for wrong in ["", "10", "GiB", "-1GB", "1.5GiB", "99999999999TiB"] {
            let error = wrong.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.contains("such as 10GiB"), "{error}");
        }
        assert_eq!(ByteSize(1_536).to_string(), "1.5 KiB");
    }
}
