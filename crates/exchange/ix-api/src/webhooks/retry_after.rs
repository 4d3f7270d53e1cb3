//! The header Retry-After (RFC 9110, section 10.2.3).

use std::time::Duration;

use axum::http::{HeaderMap, header};
use millrace_ix_model::Timestamp;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Returns the time for which an answer wants no other request; `None` without the header, or for a status that has none.
pub(super) fn of(status: u16, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    if !matches!(status, 429 | 503) {
        return None;
    }
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = text.parse::<u64>().ok().map(Duration::from_secs);
    seconds.or_else(|| Some(date(text)?.since(now)))
}

/// Parses a date as every sender must write it (RFC 9110, section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
fn date(text: &str) -> Option<Timestamp> {
    let mut parts = text.split(' ');
    let [_, day, month, year, time, zone] = [(); 6].map(|()| parts.next());
    let month = MONTHS.iter().position(|name| Some(*name) == month)? + 1;
    let is_whole = zone == Some("GMT") && parts.next().is_none();
    let date = format!("{}-{month:02}-{}T{}Z", year?, day?, time?);
    date.parse().ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_receiver_says_when_it_takes_requests_again() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let wait = |status: u16, text: &str| {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, text.parse().unwrap())]);
            of(status, &headers, now).map(|wait| wait.as_secs())
        };
        assert_eq!(wait(429, "120"), Some(120));
        assert_eq!(wait(503, "Mon, 30 Nov 2026 12:10:00 GMT"), Some(600));
        assert_eq!(wait(503, "Sun, 06 Nov 1994 08:49:37 GMT"), Some(0));
        assert_eq!(wait(500, "120"), None);
        for wrong in [
            "",
            "soon",
            "-1",
            "1.5",
            "Mon, 30 Nov 2026 12:10:00",
            "Mon, 30 Xyz 2026 12:10:00 GMT",
        ] {
            assert_eq!(wait(429, wrong), None, "{wrong}");
        }
        assert_eq!(of(429, &HeaderMap::new(), now), None);
    }
}
