//! Times as EVE has them.

use millrace_types::Time;
use millrace_types::calendar::civil;

/// Returns a time since 1970-01-01 UTC as `2016-07-13T22:42:07.199672+0000`.
pub(crate) fn timestamp(time: Time) -> String {
    let micros = time.nanos() / 1000;
    let seconds = micros / 1_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let second = seconds % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}+0000",
        second / 3600,
        second % 3600 / 60,
        second % 60,
        micros % 1_000_000
    )
}

/// Returns a time in seconds since 1970-01-01 UTC as `2016-07-13T22:42:07`; empty for times before.
pub(crate) fn seconds(unix: i64) -> String {
    let Ok(unix) = u64::try_from(unix) else {
        return String::new();
    };
    let text = timestamp(Time::from_secs(unix));
    text[..19].to_owned()
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
    }
}
