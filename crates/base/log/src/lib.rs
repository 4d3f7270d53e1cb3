//! Lines of logs. Events contain texts of peers: names of users, errors of providers and registries, messages of switches.
//! A text with a line feed could pretend to be an event of its own, and one with control sequences could change what a terminal
//! shows. Every program of Millrace therefore writes its log through [`Lines`].

#![forbid(unsafe_code)]

use std::io::{self, Write};

/// A writer of events. Each call of [`Write::write`] gets one event, which ends with a line feed, as the formatter of
/// `tracing-subscriber` writes it. Control characters within the event are written as escapes such as `\n` or `\u{1b}`, and so
/// are characters that change the direction of text (UAX 9, section 2) or separate lines.
#[derive(Debug)]
pub struct Lines<W> {
    inner: W,
    has_colors: bool,
}

impl<W: Write> Lines<W> {
    /// Returns a writer. With `has_colors`, the formatter writes escape sequences for colors, which are kept; it escapes those in
    /// texts itself.
    pub const fn new(inner: W, has_colors: bool) -> Lines<W> {
        Lines { inner, has_colors }
    }

    fn is_plain(&self, char: char) -> bool {
        match char {
            '\u{1b}' => self.has_colors,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => false,
            char => !char.is_control(),
        }
    }
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        if line.chars().all(|char| self.is_plain(char)) {
            self.inner.write_all(event)?;
            return Ok(event.len());
        }
        let mut escaped = String::with_capacity(text.len() + 16);
        for char in line.chars() {
            if self.is_plain(char) {
                escaped.push(char);
            } else {
                escaped.extend(char.escape_default());
            }
        }
        escaped.push_str(&text[line.len()..]);
        self.inner.write_all(escaped.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: &str, has_colors: bool) -> String {
        let mut bytes = Vec::new();
        Lines::new(&mut bytes, has_colors)
            .write_all(event.as_bytes())
            .unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_event_is_one_line_whatever_a_peer_put_into_it() {
        let event =
            "WARN refused reason=no\n2026-11-28 INFO ops signed in\r\u{1b}[2K\u{9b}1A\u{202e}\u{2028}\u{7}\n";
        let line = written(event, false);
        assert_eq!(
            line,
            "WARN refused reason=no\\n2026-11-28 INFO ops signed in\\r\\u{1b}[2K\\u{9b}1A\\u{202e}\\u{2028}\\u{7}\n"
        );
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn plain_text_of_any_language_and_colors_stay() {
        for event in ["INFO 청담 호스팅 joins\n", "without an end", "\n", ""] {
            assert_eq!(written(event, false), event);
        }
        let event = "\u{1b}[32m INFO\u{1b}[0m ready\n";
        assert_eq!(written(event, true), event);
        assert!(!written(event, false).contains('\u{1b}'));
    }
}
