//! iCalendar (RFC 5545): maintenance and incidents as events for calendars.

use millrace_ix_model::Timestamp;

/// The octets after which a line is folded (RFC 5545, section 3.1).
const LINE_MAX: usize = 75;

/// An event of a calendar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    /// The identifier, which never changes.
    pub(crate) uid: String,
    /// The number of changes since the first announcement.
    pub(crate) sequence: u32,
    /// The time of this version.
    pub(crate) stamp: Timestamp,
    pub(crate) begins: Timestamp,
    /// The end: an event without one would have no duration (RFC 5545, section 3.6.1).
    pub(crate) ends: Timestamp,
    pub(crate) summary: &'a str,
    pub(crate) description: &'a str,
    pub(crate) cancelled: bool,
}

/// Returns a time as a DATE-TIME in UTC (RFC 5545, section 3.3.5): `20261124T010203Z`.
fn date_time(time: Timestamp) -> String {
    let text = time.to_string();
    let seconds = text.split('.').next().unwrap_or_default();
    format!("{}Z", seconds.replace(['-', ':'], ""))
}

/// Returns a text whose lines end with a line feed.
pub(crate) fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// Returns a text as a TEXT value (RFC 5545, section 3.3.11), which may have tabs.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in lines(text).chars() {
        match char {
            '\\' | ';' | ',' => {
                escaped.push('\\');
                escaped.push(char);
            }
            '\n' => escaped.push_str("\\n"),
            char if char.is_control() && char != '\t' => {}
            char => escaped.push(char),
        }
    }
    escaped
}

/// Adds a content line, folded between characters after at most 75 octets.
fn line(calendar: &mut String, name: &str, value: &str) {
    let mut octets = 0;
    for char in name.chars().chain([':']).chain(value.chars()) {
        if octets + char.len_utf8() > LINE_MAX {
            calendar.push_str("\r\n ");
            octets = 1;
        }
        calendar.push(char);
        octets += char.len_utf8();
    }
    calendar.push_str("\r\n");
}

/// Returns a calendar with events. With an organizer, the mail address of the exchange, it is one to be published (RFC 5546, section
/// 3.2.1).
pub(crate) fn calendar(name: &str, organizer: Option<&str>, events: &[Event<'_>]) -> String {
    let mut text = String::new();
    line(&mut text, "BEGIN", "VCALENDAR");
    line(&mut text, "VERSION", "2.0");
    line(&mut text, "PRODID", "-//Millrace//millrace-ix//EN");
    if organizer.is_some() {
        line(&mut text, "METHOD", "PUBLISH");
    }
    line(&mut text, "X-WR-CALNAME", &escape(name));
    for event in events {
        line(&mut text, "BEGIN", "VEVENT");
        line(&mut text, "UID", &event.uid);
        line(&mut text, "DTSTAMP", &date_time(event.stamp));
        if let Some(address) = organizer {
            line(&mut text, "ORGANIZER", &format!("mailto:{address}"));
        }
        line(&mut text, "SEQUENCE", &event.sequence.to_string());
        line(&mut text, "DTSTART", &date_time(event.begins));
        line(&mut text, "DTEND", &date_time(event.ends));
        line(&mut text, "SUMMARY", &escape(event.summary));
        line(&mut text, "DESCRIPTION", &escape(event.description));
        line(
            &mut text,
            "STATUS",
            if event.cancelled { "CANCELLED" } else { "CONFIRMED" },
        );
        line(&mut text, "TRANSP", "TRANSPARENT");
        line(&mut text, "END", "VEVENT");
    }
    line(&mut text, "END", "VCALENDAR");
    text
}

/// Returns a text for an XML document: names of others may have any character, also those that XML 1.0, section 2.2, excludes.
pub(crate) fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in lines(text).chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(char),
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_lines_of_rfc_5545_escaped_and_folded() {
        let event = Event {
            uid: "notice-3@ix.example".to_owned(),
            sequence: 2,
            stamp: "2026-11-24T01:02:03.004Z".parse().unwrap(),
            begins: "2026-12-01T00:00:00.000Z".parse().unwrap(),
            ends: "2026-12-01T02:30:00.000Z".parse().unwrap(),
            summary: "Card; swap, Otemachi \\ 1",
            description: &format!("First line\n{}", "メンテナンス".repeat(12)),
            cancelled: false,
        };
        let text = calendar("Test IX", Some("noc@ix.example"), &[event]);
        assert!(text.contains("DTSTAMP:20261124T010203Z\r\n"));
        assert!(text.contains("DTSTART:20261201T000000Z\r\nDTEND:20261201T023000Z\r\n"));
        assert!(text.contains("SUMMARY:Card\\; swap\\, Otemachi \\\\ 1\r\n"));
        assert!(text.contains("SEQUENCE:2\r\n"));
        assert!(text.contains("METHOD:PUBLISH\r\n"));
        assert!(text.contains("ORGANIZER:mailto:noc@ix.example\r\n"));
        assert!(text.contains("DESCRIPTION:First line\\n"));
        assert!(text.split("\r\n").all(|line| line.len() <= LINE_MAX), "{text}");
        let unfolded = text.replace("\r\n ", "");
        assert!(unfolded.contains(&"メンテナンス".repeat(12)), "{unfolded}");
        assert!(!text.replace("\r\n", "").contains(['\r', '\n']));
    }

    #[test]
    fn a_name_adds_no_line_and_no_element() {
        let event = Event {
            uid: "notice-1@ix.example".to_owned(),
            sequence: 0,
            stamp: Timestamp::from_secs(0),
            begins: Timestamp::from_secs(0),
            ends: Timestamp::from_secs(3600),
            summary: "x\r\nATTENDEE:mailto:evil@example.net",
            description: "",
            cancelled: true,
        };
        let text = calendar("Test IX", None, &[event]);
        assert!(!text.contains("\r\nATTENDEE"), "{text}");
        assert!(!text.contains("METHOD"), "nobody publishes it: {text}");
        assert!(text.contains("STATUS:CANCELLED"));
        assert_eq!(
            xml("<b a=\"1\">&\u{7}\u{ffff}"),
            "&lt;b a=&quot;1&quot;&gt;&amp;\u{fffd}\u{fffd}"
        );
        // A form of the page sends CR LF, an old system CR.
        let table = "sw-1\t10:00\r\nsw-2\t11:00\rend";
        assert_eq!(escape(table), "sw-1\t10:00\\nsw-2\t11:00\\nend");
        assert_eq!(xml(table), "sw-1\t10:00\nsw-2\t11:00\nend");
    }
}
