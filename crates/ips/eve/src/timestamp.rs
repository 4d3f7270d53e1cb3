//! Times in the format of EVE.

use millrace_types::Time;
use millrace_types::calendar::civil;

/// Returns a time since 1970-01-01 UTC as `2016-07-13T22:42:07.199672+0000`.
pub(crate) fn timestamp(time: Time) -> String {
    let micros = time.nanos() / 1000;
    format!("{}.{:06}+0000", whole(micros / 1_000_000), micros % 1_000_000)
}

/// Returns a time in seconds since 1970-01-01 UTC as `2016-07-13T22:42:07`. Returns an empty text for times
/// before 1970 and after 9999, the last year that certificates can have (RFC 5280, section 4.1.2.5).
pub(crate) fn seconds(unix: i64) -> String {
    const YEAR_10000: u64 = 253_402_300_800;
    match u64::try_from(unix) {
        Ok(unix) if unix < YEAR_10000 => whole(unix),
        _ => String::new(),
    }
}

/// Returns whole seconds since 1970-01-01 UTC as text.
fn whole(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    let second = seconds % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
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
        assert_eq!(seconds(-1), "");
        // Certificates without a well-defined expiration.
        assert_eq!(seconds(253_402_300_799), "9999-12-31T23:59:59");
        assert_eq!(seconds(i64::MAX), "");
    }
}
