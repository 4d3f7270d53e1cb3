//! Durations in options: a number with a unit, or a number of seconds.

use std::time::Duration;

use millrace_types::Seconds;

/// Returns the parser of a duration from `min` to `max`, two valid texts.
pub(super) fn between(
    min: &'static str,
    max: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let Seconds(found) = text.parse().map_err(|error| format!("{error}"))?;
        let bound = |text: &str| text.parse::<Seconds>().map(|Seconds(bound)| bound);
        match (bound(min), bound(max)) {
            (Ok(min), Ok(max)) if (min..=max).contains(&found) => Ok(found),
            _ => Err(format!("expected {min} to {max}")),
        }
    }
}

/// Returns the parser of a duration from `min` to `max`, in whole seconds.
pub(super) fn rounded_seconds(
    min: &'static str,
    max: &'static str,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    let parse = between(min, max);
    move |text| {
        let found = parse(text)?;
        match found.subsec_nanos() {
            0 => Ok(found.as_secs()),
            _ => Err("expected whole seconds".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_takes_a_duration_with_or_without_unit_within_its_bounds() {
        let parse = rounded_seconds("1s", "1d");
        for (text, seconds) in [("5", 5), ("5s", 5), ("10m", 600), ("24h", 86_400), ("1000ms", 1)] {
            assert_eq!(parse(text), Ok(seconds), "{text}");
        }
        for (text, expected) in [
            ("0", "1s to 1d"),
            ("25h", "1s to 1d"),
            ("1.5s", "whole seconds"),
            ("soon", "such as 20s"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert_eq!(between("0s", "1h")("250ms"), Ok(Duration::from_millis(250)));
    }
}
