//! Times in the format of EVE.

use millrace_types::Time;
use millrace_types::calendar::civil;

/// Returns a time since 1970-01-01 UTC as `2016-07-13T22:42:07.199672+0000`.
pub(crate) fn timestamp(time: Time) -> String {
    let micros = time.nanos() / 1000;
    format!(
        "{}.{:06}+0000",
        whole((micros / 1_000_000) as i64),
        micros % 1_000_000
    )
}

/// Returns a time in seconds since 1970-01-01 UTC as `2016-07-13T22:42:07`. Returns an empty text for times before the year 0 and
/// after 9999, the years that certificates can have (RFC 5280, section 4.1.2.5).
pub(crate) fn seconds(unix: i64) -> String {
    const YEAR_0: i64 = -62_167_219_200;
    const YEAR_10000: i64 = 253_402_300_800;
    match (YEAR_0..YEAR_10000).contains(&unix) {
        true => whole(unix),
        false => String::new(),
    }
}

/// Returns whole seconds since 1970-01-01 UTC, from the year 0 on, as text.
fn whole(seconds: i64) -> String {
    // The calendar repeats after 400 years, so the date 2,000 years later is one of the same month and day after 1970.
    const YEARS: u64 = 2000;
    const DAYS: u64 = 5 * 146_097;
    let (year, month, day) = civil(DAYS.saturating_add_signed(seconds.div_euclid(86_400)));
    let second = seconds.rem_euclid(86_400);
    format!(
        "{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        year.saturating_sub(YEARS),
        second / 3600,
        second % 3600 / 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_microseconds_and_its_offset() {
        let time = Time::from_nanos(1_468_449_727_199_672_999);
        assert_eq!(timestamp(time), "2016-07-13T22:42:07.199672+0000");
        assert_eq!(seconds(1_468_449_727), "2016-07-13T22:42:07");
        assert_eq!(seconds(-1), "1969-12-31T23:59:59");
        assert_eq!(seconds(-86_400), "1969-12-31T00:00:00");
        assert_eq!(seconds(-62_135_596_800), "0001-01-01T00:00:00");
        assert_eq!(seconds(-62_167_219_200), "0000-01-01T00:00:00");
        assert_eq!(seconds(-62_167_219_201), "");
        // Certificates without a well-defined expiration.
        assert_eq!(seconds(253_402_300_799), "9999-12-31T23:59:59");
        assert_eq!(seconds(i64::MAX), "");
    }
}
