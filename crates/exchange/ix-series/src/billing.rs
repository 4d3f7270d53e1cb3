//! The 95th percentile of a month, with its coverage.
//!
//! The averages of 5 minutes of a month are sorted; the highest twentieth is left out, and the next one counts (nearest
//! rank). Times that are not known are left out, too, and told as coverage.

use core::fmt;
use core::str::FromStr;

use crate::key::{Key, Measure, Subject};
use crate::point::{FULL, Level, Point};
use crate::store::Store;

/// A calendar month.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Month {
    year: u16,
    /// 1 to 12.
    month: u8,
}

/// Seconds of a day and of a minute.
const DAY: i64 = 86_400;
const MINUTE: i64 = 60;

impl Month {
    /// Returns the month in which a time is, in seconds since the Unix epoch, at an offset from UTC in minutes.
    pub fn of(time: u64, utc_offset_minutes: i16) -> Month {
        let local = i64::try_from(time).unwrap_or(i64::MAX / 2) + i64::from(utc_offset_minutes) * MINUTE;
        // The civil calendar from days: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
        let days = local.div_euclid(DAY) + 719_468;
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Month {
            year: u16::try_from(year).unwrap_or(u16::MAX),
            month: u8::try_from(month).unwrap_or(1),
        }
    }

    /// Returns the first second of the month since the Unix epoch, at an offset from UTC in minutes.
    pub fn start(self, utc_offset_minutes: i16) -> u64 {
        let month = i64::from(self.month);
        let year = i64::from(self.year) - i64::from(month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5;
        let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
        let days = era * 146_097 + of_era - 719_468;
        u64::try_from(days * DAY - i64::from(utc_offset_minutes) * MINUTE).unwrap_or(0)
    }

    /// Returns the next month.
    #[must_use]
    pub const fn next(self) -> Month {
        match self.month {
            12 => Month {
                year: self.year.saturating_add(1),
                month: 1,
            },
            month => Month {
                year: self.year,
                month: month + 1,
            },
        }
    }

    /// Returns the month before.
    #[must_use]
    pub const fn previous(self) -> Month {
        match self.month {
            1 => Month {
                year: self.year.saturating_sub(1),
                month: 12,
            },
            month => Month {
                year: self.year,
                month: month - 1,
            },
        }
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

impl FromStr for Month {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Month, &'static str> {
        const EXPECTED: &str = "expected a month as YYYY-MM, from 1970-01 on, such as 2026-11";
        let (year, month) = text.split_once('-').ok_or(EXPECTED)?;
        let is_number = |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(year, 4) || !is_number(month, 2) {
            return Err(EXPECTED);
        }
        let month = Month {
            year: year.parse().map_err(|_| EXPECTED)?,
            month: month.parse().map_err(|_| EXPECTED)?,
        };
        if month.year >= 1970 && (1..=12).contains(&month.month) {
            Ok(month)
        } else {
            Err(EXPECTED)
        }
    }
}

/// A 95th percentile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Percentile {
    /// The value; `None` if nothing is known.
    pub value: Option<u64>,
    /// The known share of the time in thousandths, rounded down.
    pub coverage_permille: u16,
}

/// Returns the 95th percentile of the known points.
pub fn percentile(points: &[Point]) -> Percentile {
    let mut values: Vec<u64> = points
        .iter()
        .filter(|point| point.is_known())
        .map(|point| point.value)
        .collect();
    values.sort_unstable();
    let rank = (values.len() * 95).div_ceil(100);
    let covered: usize = points.iter().map(|point| usize::from(point.coverage)).sum();
    let coverage = (covered * 1000).checked_div(points.len() * usize::from(FULL));
    Percentile {
        value: rank.checked_sub(1).and_then(|at| values.get(at).copied()),
        coverage_permille: u16::try_from(coverage.unwrap_or(0)).unwrap_or(1000),
    }
}

/// The coverage below which a figure is marked, and not billed by itself, in thousandths.
const COVERAGE_MIN: u16 = 980;

/// The figures of a connection for a month, in bit/s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figure {
    /// The percentile towards the exchange.
    pub incoming: Percentile,
    /// The percentile from the exchange.
    pub outgoing: Percentile,
    /// The sampled percentiles of IPv4: towards the exchange, and from it.
    pub ipv4: [Percentile; 2],
    /// The sampled percentiles of IPv6: towards the exchange, and from it.
    pub ipv6: [Percentile; 2],
}

impl Figure {
    /// Returns the figure of a connection for the part of a month before `now`.
    pub fn of(store: &Store, connection: u32, month: Month, utc_offset_minutes: i16, now: u64) -> Figure {
        let from = month.start(utc_offset_minutes);
        let to = month
            .next()
            .start(utc_offset_minutes)
            .min(now - now % Level::Five.step());
        let of = |measure| {
            let key = Key::new(Subject::Connection(connection), measure);
            percentile(&store.read(key, Level::Five, from, to))
        };
        Figure {
            incoming: of(Measure::In),
            outgoing: of(Measure::Out),
            ipv4: [of(Measure::InIpv4), of(Measure::OutIpv4)],
            ipv6: [of(Measure::InIpv6), of(Measure::OutIpv6)],
        }
    }

    /// Returns the greater one of both directions, which counts.
    pub fn billed(&self) -> Option<u64> {
        self.incoming.value.max(self.outgoing.value)
    }

    /// Returns the known share of the time in thousandths, in the direction of which less is known.
    pub fn coverage_permille(&self) -> u16 {
        self.incoming
            .coverage_permille
            .min(self.outgoing.coverage_permille)
    }

    /// Returns true if enough of the month is known for a bill.
    pub fn is_billable(&self) -> bool {
        self.coverage_permille() >= COVERAGE_MIN
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn months_begin_at_midnight_of_the_exchange() {
        let month: Month = "2026-11".parse().unwrap();
        // 2026-11-01T00:00:00Z and 2026-10-31T15:00:00Z.
        assert_eq!(month.start(0), 1_793_491_200);
        assert_eq!(month.start(540), 1_793_491_200 - 9 * 3600);
        assert_eq!(Month::of(1_793_491_200 - 1, 0).to_string(), "2026-10");
        assert_eq!(Month::of(1_793_491_200 - 1, 540), month);
        assert_eq!("2026-12".parse::<Month>().unwrap().next().to_string(), "2027-01");
        assert_eq!(
            "2027-01".parse::<Month>().unwrap().previous().to_string(),
            "2026-12"
        );
        for wrong in [
            "2026-13",
            "2026-0",
            "2026-00",
            "1969-12",
            "26-11",
            "2026-11-01",
            "+026-11",
            "",
        ] {
            assert!(wrong.parse::<Month>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn each_second_is_in_the_month_that_begins_before_it(time in 0..7_000_000_000u64, offset in -720..840i16) {
            let month = Month::of(time + 86_400, offset);
            prop_assert!(month.start(offset) <= time + 86_400 && time + 86_400 < month.next().start(offset));
            prop_assert_eq!(month.next().previous(), month);
            prop_assert_eq!(month.to_string().parse(), Ok(month));
        }

        #[test]
        fn at_most_a_twentieth_of_the_values_is_above_the_percentile(
            values in prop::collection::vec(prop::option::of(0..1_000_000u64), 1..400)
        ) {
            let point = |value: &Option<u64>| value.map_or(Point::UNKNOWN, |value| Point { value, coverage: FULL });
            let points: Vec<Point> = values.iter().map(point).collect();
            let known: Vec<u64> = values.iter().flatten().copied().collect();
            let found = percentile(&points);
            prop_assert_eq!(usize::from(found.coverage_permille), known.len() * 1000 / values.len());
            match found.value {
                None => prop_assert!(known.is_empty()),
                Some(value) => {
                    prop_assert!(known.contains(&value));
                    prop_assert!(known.iter().filter(|other| **other > value).count() * 20 <= known.len());
                    prop_assert!(known.iter().filter(|other| **other >= value).count() * 20 > known.len());
                }
            }
        }
    }
}
