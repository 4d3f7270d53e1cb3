//! Numbers with their units, as `tc` reads them: without regard to case, in any notation of strtod(3).

use crate::text::{Interval, Probability, decimal};

/// Reads a percentage. The percent sign may be missing, as in netem.
pub(super) fn percent(word: &str) -> Option<Probability> {
    let number = word.strip_suffix('%').unwrap_or(word);
    format!("{number}%").parse().ok()
}

/// Splits a word into a number and the scale of its unit, which `tc` reads without regard to case.
fn split<'a>(word: &'a str, units: &[(&str, u64)]) -> Option<(&'a str, u64)> {
    let is_number = |c: char| c.is_ascii_digit() || ".+".contains(c);
    let exponent = |rest: &str| {
        let digits = rest
            .strip_prefix(['e', 'E'])
            .map(|digits| digits.trim_start_matches(['+', '-']));
        digits.is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut at = word.find(|c| !is_number(c)).unwrap_or(word.len());
    // A number may have an exponent, as strtod(3) reads it.
    if exponent(&word[at..]) {
        let rest = &word[at + 1..];
        let digits = rest.trim_start_matches(['+', '-']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        at += 1 + (rest.len() - digits.len()) + end;
    }
    let (number, unit) = word.split_at(at);
    let scale = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1;
    Some((number, scale))
}

/// Returns a number times a scale, rounded down.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let whole = number.strip_prefix('+').unwrap_or(number);
    match decimal(whole, scale) {
        Some(value) => Some(value),
        None => {
            let value: f64 = number.parse().ok()?;
            let value = value * scale as f64;
            // The cast saturates, which the ranges of the settings refuse.
            (value >= 0.0).then_some(value as u64)
        }
    }
}

/// Reads a size as `tc` does (get_size of iproute2): a plain number, or one in binary units, of bytes or of bits.
/// netem's limit is such a number, in packets.
pub(super) fn size(word: &str) -> Option<u32> {
    const KIB: u64 = 1 << 10;
    let units = [
        ("", 1),
        ("b", 1),
        ("k", KIB),
        ("kb", KIB),
        ("kbit", KIB / 8),
        ("m", KIB * KIB),
        ("mb", KIB * KIB),
        ("mbit", KIB * KIB / 8),
        ("g", KIB * KIB * KIB),
        ("gb", KIB * KIB * KIB),
        ("gbit", KIB * KIB * KIB / 8),
    ];
    let (number, scale) = split(word, &units)?;
    u32::try_from(scaled(number, scale)?).ok()
}

/// Reads a time with its unit. A number without unit is in microseconds, as in netem.
pub(super) fn time(word: &str) -> Option<Interval> {
    let units = [
        ("usecs", 1_000),
        ("usec", 1_000),
        ("us", 1_000),
        ("msecs", 1_000_000),
        ("msec", 1_000_000),
        ("ms", 1_000_000),
        ("nsecs", 1),
        ("nsec", 1),
        ("ns", 1),
        ("secs", 1_000_000_000),
        ("sec", 1_000_000_000),
        ("s", 1_000_000_000),
        ("", 1_000),
    ];
    let (number, scale) = split(word, &units)?;
    scaled(number, scale).map(Interval::from_nanos)
}

/// Reads a rate as `tc` does: bits with `bit`, bytes with `bps`, in decimal or (`Ki`, `Mi`, `Gi`, `Ti`) binary units. A
/// number without unit is in bits.
pub(super) fn rate(word: &str) -> Option<u64> {
    const PREFIXES: [(&str, u64); 9] = [
        ("", 1),
        ("k", 1_000),
        ("ki", 1 << 10),
        ("m", 1_000_000),
        ("mi", 1 << 20),
        ("g", 1_000_000_000),
        ("gi", 1 << 30),
        ("t", 1_000_000_000_000),
        ("ti", 1 << 40),
    ];
    let lower = word.to_ascii_lowercase();
    let (prefixed, bits) = match (lower.strip_suffix("bit"), lower.strip_suffix("bps")) {
        (Some(prefixed), _) => (prefixed, 1),
        (None, Some(prefixed)) => (prefixed, 8),
        (None, None) => (&*lower, 1),
    };
    let (number, scale) = split(prefixed, &PREFIXES)?;
    scaled(number, scale * bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_have_the_units_of_tc() {
        assert_eq!(time("1500"), Some(Interval::from_micros(1500)));
        assert_eq!(time("2.5ms"), Some(Interval::from_micros(2500)));
        assert_eq!(
            (rate("1mbps"), rate("1Mibit"), rate("10gbit")),
            (Some(8_000_000), Some(1 << 20), Some(10_000_000_000))
        );
    }

    #[test]
    fn numbers_are_those_of_tc_in_any_case_and_with_exponents() {
        assert_eq!(
            ["1500", "1e3", "2.5MS", "+10msec"].map(time),
            [1_500, 1_000, 2_500, 10_000].map(|micros| Some(Interval::from_micros(micros)))
        );
        assert_eq!(
            ["1000", "1k", "10KB", "1mb", "1kbit", "1.5k", "-1", "1x"].map(size),
            [
                Some(1_000),
                Some(1 << 10),
                Some(10 << 10),
                Some(1 << 20),
                Some(128),
                Some(1_536),
                None,
                None
            ]
        );
        assert_eq!(
            ["1MBIT", "1tbit", "1KiBps", "1000"].map(rate),
            [
                Some(1_000_000),
                Some(1_000_000_000_000),
                Some(8 << 10),
                Some(1_000)
            ]
        );
    }
}
