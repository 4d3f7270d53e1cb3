//! Points of a series: an average with its coverage, at one of three resolutions.
//!
//! A value is stored in 16 bits, like a floating-point number without a sign:
//!
//! ```text
//!  15        11 10                  0
//! +------------+---------------------+    exponent 0:  the fraction itself, 0 to 2047
//! |  exponent  |      fraction       |    exponent e:  (2048 + fraction) * 2^(e - 1)
//! +------------+---------------------+    all ones:    a gap
//! ```
//! The relative error is at most 1/4096, and the largest value is 4.39 * 10^12: 4.39 Tbit/s.

/// The code of a gap.
pub(crate) const GAP: u16 = u16::MAX;
/// The number of bits of the fraction.
const FRACTION_BITS: u32 = 11;
/// The smallest value that is not stored exactly.
const EXACT_END: u64 = 1 << FRACTION_BITS;
/// The coverage of a point whose whole time is known. It is a multiple of 30 and 12, the numbers of points in the next longer
/// one, so that averages of averages have exact weights.
pub(crate) const FULL: u8 = 240;

/// Returns the code of a value. A value above 4.39 * 10^12 gets the largest code.
pub fn encode(value: u64) -> u16 {
    if value < EXACT_END {
        return value as u16;
    }
    let shift = u64::BITS - value.leading_zeros() - FRACTION_BITS - 1;
    let half = if shift == 0 { 0 } else { 1 << (shift - 1) };
    let rounded = value.saturating_add(half) >> shift;
    // Rounding up may give one more bit.
    let (shift, rounded) = if rounded >> (FRACTION_BITS + 1) == 0 {
        (shift, rounded)
    } else {
        (shift + 1, rounded >> 1)
    };
    let code = u64::from(shift + 1) << FRACTION_BITS | (rounded & (EXACT_END - 1));
    u16::try_from(code).unwrap_or(GAP).min(GAP - 1)
}

/// Returns the value of a code; `None` for a gap.
pub fn decode(code: u16) -> Option<u64> {
    let (exponent, fraction) = (code >> FRACTION_BITS, u64::from(code) & (EXACT_END - 1));
    match (code, exponent) {
        (GAP, _) => None,
        (_, 0) => Some(fraction),
        _ => Some((EXACT_END + fraction) << (exponent - 1)),
    }
}

/// A resolution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Level {
    /// 10 seconds, for 6 hours.
    Raw = 0,
    /// 5 minutes, for 100 days.
    Five = 1,
    /// 1 hour, for 3 years.
    Hour = 2,
}

impl Level {
    /// Returns the duration of a point in seconds.
    pub const fn step(self) -> u64 {
        match self {
            Level::Raw => 10,
            Level::Five => 300,
            Level::Hour => 3600,
        }
    }
}

/// A point of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Point {
    /// The average over the part of the time that is known.
    pub value: u64,
    /// The known share of the time, 0 to 240.
    pub coverage: u8,
}

impl Point {
    /// A point of which nothing is known.
    pub const UNKNOWN: Point = Point {
        value: 0,
        coverage: 0,
    };

    /// Returns true if a part of the time is known.
    pub const fn is_known(self) -> bool {
        self.coverage > 0
    }
}

/// Returns the point for the whole time of some points of equal duration.
pub(crate) fn roll_up(points: &[Point]) -> Point {
    let weight: u128 = points.iter().map(|point| u128::from(point.coverage)).sum();
    let sum: u128 = points
        .iter()
        .map(|point| u128::from(point.value) * u128::from(point.coverage))
        .sum();
    let (Some(value), Some(share)) = (
        (sum + weight / 2).checked_div(weight),
        weight.checked_div(points.len() as u128),
    ) else {
        return Point::UNKNOWN;
    };
    Point {
        value: u64::try_from(value).unwrap_or(u64::MAX),
        // A point of which anything is known is no gap.
        coverage: u8::try_from(share.max(1)).unwrap_or(FULL),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_value_is_stored_with_a_relative_error_of_a_four_thousandth(bits in 0..42u32, low in any::<u64>()) {
            let value = (1 << bits) | (low & ((1 << bits) - 1));
            let stored = decode(encode(value)).unwrap_or_default();
            prop_assert!(stored.abs_diff(value) * 4096 <= value, "{} as {}", value, stored);
        }

        #[test]
        fn codes_are_in_the_order_of_their_values(code in 0..GAP - 1) {
            prop_assert!(decode(code) < decode(code + 1));
            prop_assert_eq!(decode(code).map(encode), Some(code));
        }

        #[test]
        fn the_points_of_a_time_have_the_average_of_what_is_known(
            values in prop::collection::vec((0..1_000_000u64, 0..=FULL), 1..40)
        ) {
            let points: Vec<Point> = values.iter().map(|(value, coverage)| Point { value: *value, coverage: *coverage }).collect();
            let weight: f64 = points.iter().map(|point| f64::from(point.coverage)).sum();
            let sum: f64 = points.iter().map(|point| point.value as f64 * f64::from(point.coverage)).sum();
            let rolled = roll_up(&points);
            prop_assert_eq!(rolled.is_known(), weight > 0.0);
            if weight > 0.0 {
                prop_assert!((rolled.value as f64 - sum / weight).abs() <= 1.0);
            }
        }
    }

    #[test]
    fn small_values_are_exact_and_the_largest_code_is_no_gap() {
        for value in 0..4096 {
            assert_eq!(decode(encode(value)), Some(value));
        }
        assert_eq!(encode(u64::MAX), GAP - 1);
        assert_eq!(decode(GAP), None);
    }
}
