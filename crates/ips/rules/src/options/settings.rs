//! Settings of HTTP/2: a name, and a comparison of the value (RFC 9113, section 6.5.2).
//!
//! A setting is one number: its identifier above the 32 bits of its value. A comparison of the value is then a range of such
//! numbers.

use super::number::Comparison;
use crate::Syntax;
use crate::refusal::Reason;

/// The names of settings, with their identifiers.
const NAMES: &[(&str, u64)] = &[
    ("SETTINGS_HEADER_TABLE_SIZE", 1),
    ("SETTINGS_ENABLE_PUSH", 2),
    ("SETTINGS_MAX_CONCURRENT_STREAMS", 3),
    ("SETTINGS_INITIAL_WINDOW_SIZE", 4),
    ("SETTINGS_MAX_FRAME_SIZE", 5),
    ("SETTINGS_MAX_HEADER_LIST_SIZE", 6),
];

const FORM: &str = "a setting such as SETTINGS_ENABLE_PUSH, and =N, <N, >N, <=N, >=N or A-B";

/// Returns the number of a setting with a value.
pub fn number(identifier: u16, value: u32) -> u64 {
    u64::from(identifier) << 32 | u64::from(value)
}

/// Reads a name and a comparison.
pub(super) fn parse(text: &str) -> Result<Comparison, Reason> {
    let wrong = || Reason::invalid(format!("the value \"{text}\""), FORM);
    let end = text
        .find(|c: char| !c.is_ascii_alphabetic() && c != '_')
        .ok_or_else(wrong)?;
    let (name, comparison) = (&text[..end], text[end..].trim());
    let is_it = |(known, _): &&(&str, u64)| known.eq_ignore_ascii_case(name);
    let (_, identifier) = NAMES.iter().find(is_it).ok_or_else(wrong)?;
    let base = identifier << 32;
    let last = u64::from(u32::MAX);
    let (low, high) = match Comparison::parse(Syntax::Suricata, comparison)? {
        Comparison::Equal(n) if n <= last => return Ok(Comparison::Equal(base | n)),
        Comparison::Less(n) if n > 0 => (0, n - 1),
        Comparison::LessOrEqual(n) => (0, n),
        Comparison::Greater(n) => (n + 1, last),
        Comparison::GreaterOrEqual(n) => (n, last),
        Comparison::Between(low, high) => (low + 1, high - 1),
        _ => return Err(wrong()),
    };
    match low <= high && high <= last {
        true => Ok(Comparison::Within(base | low, base | high)),
        false => Err(wrong()),
    }
}

/// Returns the text of a comparison, as it is read.
pub(super) fn print(comparison: Comparison) -> String {
    let last = u64::from(u32::MAX);
    let name = |number: u64| {
        let found = NAMES.iter().find(|(_, identifier)| *identifier == number >> 32);
        found.map_or("", |(name, _)| *name)
    };
    match comparison {
        Comparison::Equal(number) => format!("{}={}", name(number), number & last),
        Comparison::Within(low, high) => match (low & last, high & last) {
            (0, value) => format!("{}<={value}", name(low)),
            (value, high) if high == last => format!("{}>={value}", name(low)),
            (value, high) => format!("{}{}-{}", name(low), value - 1, high + 1),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_compared_with_its_value_and_printed_again() {
        for (text, printed) in [
            ("SETTINGS_ENABLE_PUSH=0", "SETTINGS_ENABLE_PUSH=0"),
            (
                "settings_header_table_size >4096",
                "SETTINGS_HEADER_TABLE_SIZE>=4097",
            ),
            ("SETTINGS_MAX_FRAME_SIZE<5", "SETTINGS_MAX_FRAME_SIZE<=4"),
            ("SETTINGS_MAX_FRAME_SIZE 4-9", "SETTINGS_MAX_FRAME_SIZE4-9"),
        ] {
            let comparison = parse(text).unwrap();
            assert_eq!(print(comparison), printed);
            assert_eq!(parse(printed).unwrap(), comparison);
        }
        for text in [
            "SETTINGS_NONE=1",
            "SETTINGS_ENABLE_PUSH",
            "SETTINGS_ENABLE_PUSH=4294967296",
            "=1",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
