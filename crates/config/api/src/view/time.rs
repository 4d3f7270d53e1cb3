//! Times in a form for people.

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

/// Returns year, month and day of the date that is `days` after 1970-01-01 in the Gregorian calendar. The calculation
/// counts years from March, so that the leap day is the last day of a year, in eras of 400 years or 146097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
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
