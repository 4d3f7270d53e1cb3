//! Letters as messages (RFC 5322, MIME: RFC 2045 to 2047), in ASCII only, so that every relay takes them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_ix_model::Timestamp;

use super::letter::Letter;

/// The largest number of bytes of text in an encoded word, whose base 64 and frame then fit into 76 characters behind the name of a
/// header (RFC 2047, section 2).
const WORD_MAX: usize = 39;
/// The characters of a line of base 64 (RFC 2045, section 6.8).
const LINE: usize = 76;

/// Returns a letter as a message. `number` is the same in each try. Auto-Submitted (RFC 3834, section 5) keeps other programs from
/// answering.
pub(crate) fn message(exchange: &str, from: &str, number: &str, letter: &Letter) -> String {
    let domain = from.rsplit('@').next().unwrap_or_default();
    let mut text = format!(
        "From: {name}\r\n <{from}>\r\nTo: {to}\r\nSubject: {subject}\r\nDate: {date}\r\nMessage-ID: <{number}.{posted}@{domain}>\r\n\
         Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n",
        name = words(exchange),
        to = letter.to,
        subject = words(&letter.text.subject),
        date = date(letter.posted),
        posted = letter.posted.millis(),
    );
    let Some(calendar) = &letter.calendar else {
        text.push_str(&part("text/plain; charset=utf-8", &letter.text.body));
        return text;
    };
    // Base 64 has no hyphens, so that no part contains the boundary.
    let boundary = format!("--part-{number}");
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "Content-Type: multipart/mixed; boundary=\"part-{number}\"\r\n\r\n"
    );
    let kind = "text/calendar; charset=utf-8; method=PUBLISH;\r\n name=maintenance.ics";
    for (kind, content) in [("text/plain; charset=utf-8", &letter.text.body), (kind, calendar)] {
        let _ = write!(text, "{boundary}\r\n{}\r\n", part(kind, content));
    }
    let _ = write!(text, "{boundary}--\r\n");
    text
}

/// Returns the headers and the content of a part.
fn part(kind: &str, content: &str) -> String {
    let mut lines = String::new();
    let encoded = STANDARD.encode(content.replace("\r\n", "\n").replace('\n', "\r\n"));
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE));
        lines.push_str(line);
        lines.push_str("\r\n");
        rest = after;
    }
    format!("Content-Type: {kind}\r\nContent-Transfer-Encoding: base64\r\n\r\n{lines}")
}

/// Returns a text as encoded words (RFC 2047), folded. All texts are encoded: a name is then neither a header nor an address.
fn words(text: &str) -> String {
    let mut words = Vec::new();
    let mut word = String::new();
    for char in text.chars().filter(|char| !char.is_control()) {
        if word.len() + char.len_utf8() > WORD_MAX {
            words.push(std::mem::take(&mut word));
        }
        word.push(char);
    }
    words.push(word);
    let encoded = words
        .iter()
        .map(|word| format!("=?utf-8?B?{}?=", STANDARD.encode(word)));
    encoded.collect::<Vec<_>>().join("\r\n ")
}

/// Returns a time as a date (RFC 5322, section 3.3): `Tue, 24 Nov 2026 01:02:03 +0000`.
fn date(time: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    // 1 January 1970 was a Thursday.
    let day = usize::try_from(time.millis() / 86_400_000 % 7).unwrap_or_default();
    let text = time.to_string();
    let digits = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    let month = digits(5..7).parse::<usize>().unwrap_or(1);
    format!(
        "{}, {} {} {} {} +0000",
        DAYS.get(day).unwrap_or(&"Thu"),
        digits(8..10),
        MONTHS.get(month.saturating_sub(1)).unwrap_or(&"Jan"),
        digits(0..4),
        digits(11..19)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::words::Text;

    fn letter(subject: &str, calendar: Option<&str>) -> Letter {
        Letter {
            to: "ann@aoba.example".to_owned(),
            text: Text {
                subject: subject.to_owned(),
                body: "保守\n.\n".to_owned(),
            },
            calendar: calendar.map(str::to_owned),
            posted: Timestamp::from_secs(1_700_000_000),
            until: Timestamp::from_secs(1_700_000_001),
        }
    }

    #[test]
    fn a_letter_is_ascii_with_lines_that_every_relay_takes() {
        let letter = letter(
            &"メンテナンス".repeat(8),
            Some("BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"),
        );
        let text = message("例 IX", "noc@ix.example", "7", &letter);
        assert!(text.is_ascii(), "{text}");
        assert!(text.lines().all(|line| line.len() <= 78), "{text}");
        assert!(
            text.contains("Message-ID: <7.1700000000000@ix.example>\r\n"),
            "{text}"
        );
        assert!(
            text.contains("Date: Tue, 14 Nov 2023 22:13:20 +0000\r\n"),
            "{text}"
        );
        assert_eq!(text.matches("--part-7").count(), 3, "{text}");
        let body = STANDARD.encode("保守\r\n.\r\n");
        assert!(text.contains(&body), "{text}");
    }

    #[test]
    fn no_name_and_no_subject_adds_a_header() {
        let letter = letter("x\r\nBcc: evil@example.net", None);
        let text = message("IX\nTo: evil@example.net", "noc@ix.example", "7", &letter);
        assert!(!text.contains("evil"), "{text}");
        assert_eq!(text.matches("\nTo: ").count(), 1);
    }
}
