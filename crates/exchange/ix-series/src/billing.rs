//! The 95th percentile of a month, with its coverage.
//!
//! The averages of 5 minutes of a month are sorted; the highest twentieth is left out, and the next one counts (nearest
//! rank). Times that are not known are left out, too, and told as coverage.

use core::fmt;
use core::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

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

impl Month {
    /// Returns the month in which a time is, in seconds since the Unix epoch.
    pub fn of(time: u64, zone: &TimeZone) -> Month {
        let time = i64::try_from(time)
            .ok()
            .and_then(|time| Timestamp::from_second(time).ok());
        let local = zone.to_datetime(time.unwrap_or(Timestamp::MAX));
        Month {
            year: local.year().unsigned_abs(),
            month: local.month().unsigned_abs(),
        }
    }

    /// Returns the first second of the month since the Unix epoch. It is after midnight where clocks are put forward then.
    pub fn start(self, zone: &TimeZone) -> u64 {
        let first = i16::try_from(self.year)
            .ok()
            .zip(i8::try_from(self.month).ok())
            .and_then(|(year, month)| Date::new(year, month, 1).ok())
            .and_then(|first| first.to_zoned(zone.clone()).ok());
        let first = first.map_or(Timestamp::MAX, |first| first.timestamp());
        u64::try_from(first.as_second()).unwrap_or(0)
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
    pub fn of(store: &Store, connection: u32, month: Month, zone: &TimeZone, now: u64) -> Figure {
        let from = month.start(zone);
        let to = month.next().start(zone).min(now - now % Level::Five.step());
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

    use jiff::tz::Offset;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn months_begin_at_midnight_of_the_exchange() {
        let month: Month = "2026-11".parse().unwrap();
        let tokyo = zone(540);
        // 2026-11-01T00:00:00Z and 2026-10-31T15:00:00Z.
        assert_eq!(month.start(&TimeZone::UTC), 1_793_491_200);
        assert_eq!(month.start(&tokyo), 1_793_491_200 - 9 * 3600);
        assert_eq!(
            Month::of(1_793_491_200 - 1, &TimeZone::UTC).to_string(),
            "2026-10"
        );
        assert_eq!(Month::of(1_793_491_200 - 1, &tokyo), month);
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

    fn zone(offset_minutes: i32) -> TimeZone {
        TimeZone::fixed(Offset::from_seconds(offset_minutes * 60).unwrap())
    }

    /// Berlin's rule, as a file of the database of time zones has it.
    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    #[test]
    fn months_with_a_change_of_clocks_have_an_hour_less_or_more() {
        let hours = |month: &str| {
            let month: Month = month.parse().unwrap();
            (month.next().start(&berlin()) - month.start(&berlin())) / 3600
        };
        assert_eq!(hours("2026-03"), 31 * 24 - 1);
        assert_eq!(hours("2026-10"), 31 * 24 + 1);
        assert_eq!(hours("2026-11"), 30 * 24);
        let last: Month = "9999-12".parse().unwrap();
        assert!(last.start(&berlin()) < last.next().start(&berlin()));
        assert_eq!(Month::of(u64::MAX, &TimeZone::UTC), last);
    }

    proptest! {
        #[test]
        fn each_second_is_in_the_month_that_begins_before_it(time in 0..7_000_000_000u64, offset in -720..840i32) {
            for zone in [zone(offset), berlin()] {
                let month = Month::of(time + 86_400, &zone);
                prop_assert!(month.start(&zone) <= time + 86_400 && time + 86_400 < month.next().start(&zone));
            }
            let month = Month::of(time, &TimeZone::UTC);
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
