//! Times that are stored: milliseconds of the wall clock since the Unix epoch.
//!
//! [`millrace_types::Time`] is monotonic and has a different origin in each process. Ends of validity outlive
//! a process, and therefore need this type.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use millrace_types::calendar;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A time in milliseconds since 1970-01-01T00:00:00Z. Its text form is RFC 3339 in UTC, with milliseconds; it is also read with
/// another offset and with other fractions of a second, which are cut to milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(u64);

/// A text that is no time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{0}\" is no time: expected RFC 3339, such as 2026-11-23T21:50:00Z or 2026-11-23T22:50:00+01:00")]
pub struct TimestampParseError(String);

const DAY_MILLIS: u64 = 86_400_000;
/// The first day after 9999-12-31, in days since the epoch: the text form has four digits for the year.
const DAYS_END: u64 = 2_932_897;

impl Timestamp {
    /// Returns the time that is this many milliseconds after the epoch, at most the end of the year 9999.
    pub const fn from_millis(millis: u64) -> Timestamp {
        let last = DAYS_END * DAY_MILLIS - 1;
        Timestamp(if millis < last { millis } else { last })
    }

    /// Returns the time that is this many seconds after the epoch.
    pub const fn from_secs(secs: u64) -> Timestamp {
        Timestamp::from_millis(secs.saturating_mul(1000))
    }

    /// Returns milliseconds since the epoch.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Returns the time that is `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Timestamp {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.0.saturating_add(millis))
    }

    /// Returns the duration from `earlier` to this time; zero if `earlier` is later.
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl From<std::time::SystemTime> for Timestamp {
    /// Returns the time of a system's clock; the epoch for one before it.
    fn from(time: std::time::SystemTime) -> Timestamp {
        let since = time.duration_since(std::time::SystemTime::UNIX_EPOCH);
        Timestamp::default().after(since.unwrap_or_default())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = calendar::civil(self.0 / DAY_MILLIS);
        let (secs, millis) = (self.0 % DAY_MILLIS / 1000, self.0 % 1000);
        let (hour, minute, second) = (secs / 3600, secs / 60 % 60, secs % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"
        )
    }
}

impl FromStr for Timestamp {
    type Err = TimestampParseError;

    fn from_str(text: &str) -> Result<Timestamp, TimestampParseError> {
        parse(text).ok_or_else(|| TimestampParseError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once(['T', 't'])?;
    let (time, offset_minutes) = offset(time)?;
    let number = |text: &str, len: usize| {
        let is_number = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok()).flatten()
    };
    let mut date = date.split('-');
    let (year, month, day) = (
        number(date.next()?, 4)?,
        number(date.next()?, 2)?,
        number(date.next()?, 2)?,
    );
    let (time, millis) = match time.split_once('.') {
        Some((time, fraction)) => (time, milliseconds(fraction)?),
        None => (time, 0),
    };
    let mut time = time.split(':');
    let (hour, minute, second) = (
        number(time.next()?, 2)?,
        number(time.next()?, 2)?,
        number(time.next()?, 2)?,
    );
    if date.next().is_some()
        || time.next().is_some()
        || year < 1970
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    // The day is found by binary search, because the calendar converts only from days to dates.
    let (mut low, mut high) = (0, DAYS_END);
    while low < high {
        let middle = (low + high) / 2;
        if calendar::civil(middle) < (year, month, day) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if calendar::civil(low) != (year, month, day) {
        return None;
    }
    let local = low * DAY_MILLIS + (hour * 3600 + minute * 60 + second) * 1000 + millis;
    let utc = local.checked_add_signed(-offset_minutes * 60_000)?;
    (utc < DAYS_END * DAY_MILLIS).then_some(Timestamp(utc))
}

/// Returns the time of a day without its offset from UTC, and the offset in minutes.
fn offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let (time, offset) = time.split_at_checked(time.len().checked_sub(6)?)?;
    let (sign, hours, minutes) = match offset.as_bytes() {
        [sign, h1, h2, b':', m1, m2] => (*sign, [*h1, *h2], [*m1, *m2]),
        _ => return None,
    };
    let number = |digits: [u8; 2], max: i64| {
        let [tens, ones] = digits.map(|digit| char::from(digit).to_digit(10).map(i64::from));
        Some(tens? * 10 + ones?).filter(|number| *number <= max)
    };
    let minutes = number(hours, 23)? * 60 + number(minutes, 59)?;
    match sign {
        b'+' => Some((time, minutes)),
        b'-' => Some((time, -minutes)),
        _ => None,
    }
}

/// Returns the milliseconds of the digits behind the point of a second.
fn milliseconds(fraction: &str) -> Option<u64> {
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let digits = fraction.bytes().chain([b'0'; 2]).take(3);
    is_fraction.then(|| digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

impl TryFrom<String> for Timestamp {
    type Error = TimestampParseError;

    fn try_from(text: String) -> Result<Timestamp, TimestampParseError> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> String {
        time.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_is_rfc_3339_in_utc() {
        let time = Timestamp::from_secs(1_795_470_000);
        assert_eq!(time.to_string(), "2026-11-23T21:40:00.000Z");
        assert_eq!("2026-11-23T21:40:00Z".parse(), Ok(time));
        for text in [
            "",
            "2026-11-23",
            "2026-02-29T00:00:00Z",
            "2026-11-23T24:00:00Z",
            "2026-11-23T21:40:00",
            "2026-11-23T21:40:00+0100",
            "2026-11-23T21:40:00+24:00",
            "2026-11-23T21:40:00+01:60",
            "2026-11-23T21:40:00 01:00",
            "2026-11-23T21:40:00+é1:0",
            "2026-11-23T21:40:00.Z",
            "2026-11-23T21:40:00.1x2Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "2026-11-23T21:40Z",
            "2026-1-23T21:40:00Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_with_an_offset_or_another_fraction_is_read() {
        let time = Timestamp::from_secs(1_795_470_000);
        for (text, millis) in [
            ("2026-11-23T22:40:00+01:00", 0),
            ("2026-11-24T06:40:00.5+09:00", 500),
            ("2026-11-23T16:10:00.123456789-05:30", 123),
            ("2026-11-23T21:40:00.07Z", 70),
            ("2026-11-23t21:40:00.0004-00:00", 0),
            ("2026-11-23T21:40:00z", 0),
        ] {
            assert_eq!(
                text.parse(),
                Ok(Timestamp::from_millis(time.millis() + millis)),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_time_is_read_back(millis in any::<u64>()) {
            let time = Timestamp::from_millis(millis);
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }
    }
}
