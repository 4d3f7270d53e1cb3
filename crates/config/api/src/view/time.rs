//! Times in a form for people.

use millrace_types::calendar::civil;

/// Returns a time, given in seconds since 1970-01-01 UTC, as `2026-11-21 04:25:22Z`.
pub fn format_utc(unix: u64) -> String {
    let (days, second) = (unix / 86_400, unix % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02}:{:02}Z",
        second / 3600,
        second % 3600 / 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_exact_over_leap_years() {
        for (unix, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_709_251_199, "2024-02-29 23:59:59Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(format_utc(unix), text);
        }
    }
}
