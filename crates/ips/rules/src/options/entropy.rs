//! The option `entropy`: the Shannon entropy of bytes, in bits for a byte, compared with a number.

use super::number::Comparison;
use crate::Syntax;
use crate::text::number32;

/// The number of parts of a bit in which entropies are compared.
pub const PARTS: u64 = 1_000_000;

/// A comparison of the entropy of a part of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entropy {
    /// Number of bytes; `None` for all.
    pub bytes: Option<u32>,
    /// The first byte.
    pub offset: u32,
    /// The comparison, in [`PARTS`] of a bit.
    pub comparison: Comparison,
}

impl Entropy {
    /// Reads the value of the option; `None` if it has another form.
    pub fn parse(text: &str) -> Option<Entropy> {
        const FORM: &str = "";
        let mut entropy = Entropy {
            bytes: None,
            offset: 0,
            comparison: Comparison::Greater(0),
        };
        let mut has_value = false;
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (word, tail) = rest.split_once(char::is_whitespace)?;
            let tail = tail.trim_start();
            if word == "value" && !has_value {
                let end = tail.find(',').unwrap_or(tail.len());
                entropy.comparison = comparison(tail[..end].trim())?;
                has_value = true;
                rest = tail[end..].trim_start_matches([',', ' ']);
                continue;
            }
            let end = tail.find([',', ' ']).unwrap_or(tail.len());
            let number = number32(&tail[..end], FORM).ok()?;
            match word {
                "bytes" => entropy.bytes = (number > 0).then_some(number),
                "offset" => entropy.offset = number,
                _ => return None,
            }
            rest = tail[end..].trim_start_matches([',', ' ']);
        }
        has_value.then_some(entropy)
    }
}

/// Number of decimals of [`PARTS`].
const DECIMALS: usize = 6;

/// Returns a decimal number in [`PARTS`], rounded as entropies are.
fn parts(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (first, rest) = fraction.split_at(fraction.len().min(DECIMALS));
    let first: u64 = format!("{first:0<DECIMALS$}").parse().ok()?;
    let carry = u64::from(rest.bytes().next().is_some_and(|digit| digit >= b'5'));
    // A byte has at most eight bits of entropy.
    let whole: u64 = whole.parse().ok().filter(|whole| *whole <= 8)?;
    Some(whole * PARTS + first + carry)
}

/// Reads a comparison with decimal numbers.
fn comparison(text: &str) -> Option<Comparison> {
    let scaled = |text: &str| Some(parts(text.trim())?.to_string());
    let (sign, rest) = text.split_at(text.find(|c: char| c.is_ascii_digit())?);
    let number = match rest.split_once('-') {
        Some((low, high)) => format!("{}-{}", scaled(low)?, scaled(high)?),
        None => scaled(rest)?,
    };
    Comparison::parse(Syntax::Suricata, &format!("{}{number}", sign.trim())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_the_option_may_have_commas_between_them() {
        let expected = |bytes, offset, comparison| {
            Some(Entropy {
                bytes,
                offset,
                comparison,
            })
        };
        for (text, read) in [
            (
                "value >= 4.037",
                expected(None, 0, Comparison::GreaterOrEqual(4_037_000)),
            ),
            (
                "bytes 10, offset 2, value <7",
                expected(Some(10), 2, Comparison::Less(7_000_000)),
            ),
            (
                "offset 4 value 1.5",
                expected(None, 4, Comparison::Equal(1_500_000)),
            ),
            (
                "value 4.1-5",
                expected(None, 0, Comparison::Between(4_100_000, 5_000_000)),
            ),
            (
                "value > 4, bytes 100, offset 5",
                expected(Some(100), 5, Comparison::Greater(4_000_000)),
            ),
            (
                "value 2.584962500721156",
                expected(None, 0, Comparison::Equal(2_584_963)),
            ),
            ("value <1.9999996", expected(None, 0, Comparison::Less(2_000_000))),
            ("value 1.99x", None),
            ("value 4, value 5", None),
            ("bytes 10", None),
            ("value >9", None),
            ("value high", None),
        ] {
            assert_eq!(Entropy::parse(text), read, "{text}");
        }
    }
}
