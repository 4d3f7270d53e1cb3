//! Identifiers of objects, and the bounded numbers that the switches carry.
//!
//! An identifier is a number with a prefix for its type: `cn-5`, `sv-77`. One counter assigns the numbers of
//! all types, so that no number is used twice. The numbers at the end of this file are allocated from pools
//! ([`crate::allocate`]) and appear in metadata, tunnel keys, meters and groups.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A text that is not an identifier of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{text}\" is no identifier: expected {expected}, such as {example}")]
pub struct IdParseError {
    text: String,
    expected: &'static str,
    example: String,
}

impl IdParseError {
    pub(crate) fn new(text: &str, expected: &'static str, example: String) -> IdParseError {
        IdParseError {
            text: text.to_owned(),
            expected,
            example,
        }
    }
}

/// Returns the number after `prefix-`, written without sign and leading zeros.
pub(crate) fn parse_number(text: &str, prefix: &str) -> Option<u32> {
    let digits = text.strip_prefix(prefix)?.strip_prefix('-')?;
    let is_canonical = digits == "0" || !digits.starts_with(['0', '+']);
    digits.parse().ok().filter(|_| is_canonical)
}

/// Writes a text, padded to the width that the formatter asks for. Without a width, nothing is allocated.
fn write_padded(f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>) -> fmt::Result {
    if f.width().is_none() && f.precision().is_none() {
        return f.write_fmt(text);
    }
    f.pad(&text.to_string())
}

/// Defines identifiers: newtypes over `u32` with a prefix in text and serde.
macro_rules! identifiers {
    ($($(#[$meta:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub u32);

        impl $name {
            /// The prefix of the text form.
            pub const PREFIX: &'static str = $prefix;
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_padded(f, format_args!("{}-{}", Self::PREFIX, self.0))
            }
        }

        impl FromStr for $name {
            type Err = IdParseError;

            fn from_str(text: &str) -> Result<$name, IdParseError> {
                let number = parse_number(text, Self::PREFIX).map($name);
                number.ok_or_else(|| IdParseError::new(text, stringify!($name), $name(5).to_string()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdParseError;

            fn try_from(text: String) -> Result<$name, IdParseError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }

        impl crate::persistent::Numbered for $name {
            fn raw(self) -> u32 {
                self.0
            }
        }
    )*};
}

identifiers! {
    /// A site of the exchange (IX-API: pop).
    SiteId = "st";
    SwitchId = "sw";
    /// A trunk between two switches.
    TrunkId = "tr";
    AccountId = "ac";
    /// A user of an account.
    UserId = "us";
    /// A connection: one or more ports sold as one.
    ConnectionId = "cn";
    /// A service (IX-API: network-service).
    ServiceId = "sv";
    /// One connection's end of a service (IX-API: network-service-config).
    ConfigId = "nc";
    /// A MAC address registered at an end.
    MacId = "mc";
    /// An IP address of an end.
    IpId = "ip";
    FilterId = "fi";
    ServiceKeyId = "sk";
    /// A policy of a peering LAN.
    PolicyId = "po";
    /// A deletion that waits for a second person.
    ApprovalId = "ap";
}

/// A number outside the range of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{value} is out of range for a {name}: expected {min} to {max}")]
pub struct NumberError {
    name: &'static str,
    value: u32,
    min: u32,
    max: u32,
}

/// Defines numbers that are allocated from a range.
macro_rules! numbers {
    ($($(#[$meta:meta])* $name:ident, $words:literal, $min:literal ..= $max:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(try_from = "u32", into = "u32")]
        pub struct $name(u32);

        impl $name {
            /// The lowest number.
            pub const MIN: u32 = $min;
            /// The highest number.
            pub const MAX: u32 = $max;

            /// Returns the number.
            ///
            /// # Errors
            /// [`NumberError`] if it is outside the range.
            pub const fn new(raw: u32) -> Result<$name, NumberError> {
                if raw < Self::MIN || raw > Self::MAX {
                    return Err(NumberError { name: $words, value: raw, min: Self::MIN, max: Self::MAX });
                }
                Ok($name(raw))
            }

            /// Returns the raw number.
            pub const fn raw(self) -> u32 {
                self.0
            }
        }

        impl TryFrom<u32> for $name {
            type Error = NumberError;

            fn try_from(raw: u32) -> Result<$name, NumberError> {
                $name::new(raw)
            }
        }

        impl From<$name> for u32 {
            fn from(number: $name) -> u32 {
                number.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_padded(f, format_args!("{}", self.0))
            }
        }
    )*};
}

numbers! {
    /// The number of an end in the metadata of packets: 19 bits, not zero. An end usually has the index of
    /// its connection; a second end of the same connection in one service has a separate index from the same
    /// pool.
    ConnectionIndex, "connection index", 1 ..= 0x7_ffff;
    /// The number of a service in the metadata of packets: 24 bits, not zero.
    ServiceIndex, "service index", 1 ..= 0xff_ffff;
    /// The identifier of one generation of a service on trunks: the tunnel key of VXLAN (24 bits), or the VID
    /// of an S-tag (12 bits).
    WireId, "wire id", 1 ..= 0xff_ffff;
    /// The number of the meter of an end. The planner uses numbers above this range for its other meters.
    MeterNumber, "meter number", 1 ..= 0xf_ffff;
    /// The number of a group: of a LAG, of the trunks to a switch, or of the copies of an end of a multipoint
    /// service.
    GroupNumber, "group number", 1 ..= 0xf_ffff;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_read_back_and_others_are_refused() {
        assert_eq!("cn-5".parse(), Ok(ConnectionId(5)));
        assert_eq!(ServiceId(77).to_string(), "sv-77");
        for text in [
            "",
            "cn",
            "cn-",
            "sv-5",
            "cn-05",
            "cn-+5",
            "cn--5",
            "cn-4294967296",
            "CN-5",
            "cn-5 ",
        ] {
            assert!(text.parse::<ConnectionId>().is_err(), "{text}");
        }
        let error = "x".parse::<ConfigId>().unwrap_err().to_string();
        assert_eq!(error, "\"x\" is no identifier: expected ConfigId, such as nc-5");
    }

    #[test]
    fn numbers_have_the_widths_of_the_metadata() {
        assert!(ConnectionIndex::new(0).is_err());
        assert_eq!(
            ConnectionIndex::new((1 << 19) - 1).map(ConnectionIndex::raw),
            Ok(524_287)
        );
        assert!(ConnectionIndex::new(1 << 19).is_err());
        assert!(ServiceIndex::new(1 << 24).is_err());
        assert!(serde_json::from_str::<WireId>("0").is_err());
    }
}
