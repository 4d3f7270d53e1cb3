//! The Gregorian calendar.

/// Returns year, month and day of the date that is `days` after 1970-01-01 in the Gregorian calendar. The calculation
/// counts years from March, so that the leap day is the last day of a year, in eras of 400 years or 146097 days.
pub const fn civil(days: u64) -> (u64, u64, u64) {
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
    (year_of_era + era * 400 + (month <= 2) as u64, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_exact_over_leap_years() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(951_782_400 / 86_400), (2000, 2, 29));
        assert_eq!(civil(1_709_251_199 / 86_400), (2024, 2, 29));
        assert_eq!(civil(4_107_542_400 / 86_400), (2100, 3, 1));
    }
}
