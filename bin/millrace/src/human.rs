//! Numbers and durations in the form that people read.

/// Returns a number with an SI prefix and three or four digits: `1.23 M`, `999`, `12.3 G`.
pub(crate) fn short(value: f64) -> String {
    let units = ["", " k", " M", " G", " T", " P", " E"];
    let (mut scaled, mut unit) = (value, 0);
    while scaled >= 999.5 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let decimals = match scaled {
        _ if unit == 0 => 0,
        scaled if scaled < 9.995 => 2,
        scaled if scaled < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$}{}", units[unit])
}

/// Returns a rate in bits per second: `1.23 Gbps`.
pub(crate) fn bps(value: f64) -> String {
    let text = short(value);
    if text.contains(' ') {
        format!("{text}bps")
    } else {
        format!("{text} bps")
    }
}

/// Returns a duration: `3.5s`, `61s`, `1h02m`, `2d03h`.
pub(crate) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..10 => format!("{seconds:.1}s"),
        10..120 => format!("{whole}s"),
        120..7200 => format!("{}m{:02}s", whole / 60, whole % 60),
        7200..172_800 => format!("{}h{:02}m", whole / 3600, whole % 3600 / 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole % 86_400 / 3600),
    }
}

/// Returns the OpenFlow number of a port, or the name of a reserved port.
pub(crate) fn port(number: u32) -> String {
    millrace_types::PortNo::from_raw(number).to_string()
}

/// Returns a value as text, or a dash for `None`.
pub(crate) fn or_dash(value: Option<impl std::fmt::Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (999.6, "1.00 k"),
            (1_234_567.0, "1.23 M"),
            (12_345_678.0, "12.3 M"),
            (999_600_000.0, "1.00 G"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!((bps(7.0).as_str(), bps(1.5e9).as_str()), ("7 bps", "1.50 Gbps"));
    }

    #[test]
    fn spans_keep_two_units() {
        let spans = [3.49, 61.0, 3725.0, 90_061.0, 200_000.0].map(span);
        assert_eq!(spans, ["3.5s", "61s", "62m05s", "25h01m", "2d07h"]);
    }
}
