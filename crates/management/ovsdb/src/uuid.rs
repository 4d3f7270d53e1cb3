//! UUIDs of rows, as text of 36 characters (RFC 4122, section 3).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The UUID of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(u128);

/// The error for a text that is no UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected a UUID: 32 hex digits in groups of 8, 4, 4, 4 and 12")]
pub struct UuidError;

impl Uuid {
    /// Returns the UUID with this value.
    pub const fn from_u128(value: u128) -> Uuid {
        Uuid(value)
    }
}

impl FromStr for Uuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Uuid, UuidError> {
        if text.len() != 36 {
            return Err(UuidError);
        }
        let mut value = 0;
        for (at, byte) in text.bytes().enumerate() {
            match (at, byte) {
                (8 | 13 | 18 | 23, b'-') => {}
                (8 | 13 | 18 | 23, _) => return Err(UuidError),
                _ => {
                    let digit = char::from(byte).to_digit(16).ok_or(UuidError)?;
                    value = value << 4 | u128::from(digit);
                }
            }
        }
        Ok(Uuid(value))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            v >> 96,
            v >> 80 & 0xffff,
            v >> 64 & 0xffff,
            v >> 48 & 0xffff,
            v & 0xffff_ffff_ffff
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;

    #[test]
    fn a_uuid_prints_as_it_was_written_and_nothing_else_is_one() {
        let text = "8a1f0c3e-0000-4bcd-9e10-00000000000f";
        assert_eq!(text.parse::<Uuid>().unwrap().to_string(), text);
        for wrong in [
            "",
            "8a1f0c3e",
            "8a1f0c3e-0000-4bcd-9e10-00000000000g",
            "8a1f0c3e00000-4bcd-9e10-00000000000f",
        ] {
            assert_eq!(wrong.parse::<Uuid>(), Err(UuidError), "{wrong}");
        }
    }
}
