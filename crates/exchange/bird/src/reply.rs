//! The lines of BIRD's control protocol.
//!
//! ```text
//!   0001 BIRD 2.0.12 ready.          four digits and a space: the last line of an answer
//!   1007-Table master4:              four digits and a hyphen: more lines follow
//!    203.0.113.0/24  unreachable     a space: the code of the line before
//!   +<7> rs1: Connected              a plus: a log message that belongs to no answer
//! ```

use crate::limits::LINE_SIZE;

/// A line of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    /// The reply code: 0 to 2999 for data, 8000 to 9999 for an error.
    pub(crate) code: u16,
    /// True for the last line of an answer.
    pub(crate) is_last: bool,
    /// The text after the code.
    pub(crate) text: String,
}

/// Splits the bytes of a connection into lines. Lines that break the protocol are skipped and counted.
#[derive(Clone, Default, Debug)]
pub(crate) struct Lines {
    /// The bytes of a line that is not yet complete.
    partial: Vec<u8>,
    /// True if the incomplete line is too long.
    is_too_long: bool,
    /// The code of the previous line, if more lines of its answer follow.
    code: Option<u16>,
    skipped: u64,
    /// The start of the first line that was skipped.
    first_skipped: Option<String>,
}

impl Lines {
    /// Returns the lines that these bytes complete.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match part.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (part, false),
            };
            if self.partial.len() + text.len() > LINE_SIZE {
                self.is_too_long = true;
                self.partial.clear();
            }
            if !self.is_too_long {
                self.partial.extend_from_slice(text);
            }
            if ends {
                let bytes = std::mem::take(&mut self.partial);
                match self.line(&bytes) {
                    Some(line) if !self.is_too_long => lines.extend(line),
                    _ => {
                        self.skipped += 1;
                        let text = || crate::bounded(&String::from_utf8_lossy(&bytes));
                        self.first_skipped.get_or_insert_with(text);
                    }
                }
                self.is_too_long = false;
            }
        }
        lines
    }

    /// Returns the start of the first line that was skipped.
    pub(crate) fn first_skipped(&self) -> Option<&str> {
        self.first_skipped.as_deref()
    }

    /// Returns the number of lines that were skipped, and resets it to zero.
    pub(crate) fn take_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.skipped)
    }

    /// Parses one line. Returns `Some(None)` for a log message, and `None` if the line breaks the protocol.
    fn line(&mut self, bytes: &[u8]) -> Option<Option<Line>> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match bytes {
            [b'+', ..] => Some(None),
            [b' ', rest @ ..] => Some(Some(Line {
                code: self.code?,
                is_last: false,
                text: text(rest),
            })),
            [a, b, c, d, separator @ (b' ' | b'-'), rest @ ..] => {
                let code = [a, b, c, d].iter().try_fold(0, |code, digit| {
                    digit
                        .is_ascii_digit()
                        .then(|| code * 10 + u16::from(*digit - b'0'))
                })?;
                let is_last = *separator == b' ';
                self.code = (!is_last).then_some(code);
                Some(Some(Line {
                    code,
                    is_last,
                    text: text(rest),
                }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const ANSWER: &str = "1007-Table master4:\n 203.0.113.0/24  unreachable\n+<7> rs1: Connected\n1008-\tType: BGP univ\n0000 \n";

    fn line(code: u16, is_last: bool, text: &str) -> Line {
        Line {
            code,
            is_last,
            text: text.to_owned(),
        }
    }

    #[test]
    fn lines_have_the_code_of_their_answer_however_the_bytes_arrive() {
        let expected = [
            line(1007, false, "Table master4:"),
            line(1007, false, "203.0.113.0/24  unreachable"),
            line(1008, false, "\tType: BGP univ"),
            line(0, true, ""),
        ];
        for size in 1..ANSWER.len() {
            let mut lines = Lines::default();
            let parts = ANSWER.as_bytes().chunks(size);
            let found: Vec<Line> = parts.flat_map(|part| lines.receive(part)).collect();
            assert_eq!(found, expected, "in parts of {size} bytes");
            assert_eq!(lines.take_skipped(), 0);
        }
    }

    #[test]
    fn lines_that_break_the_protocol_are_skipped_and_counted() {
        let mut lines = Lines::default();
        let found = lines.receive(
            b" no code before\nabcd text\n12\n\n00\xff1 x\n0001 BIRD 2.0.12 ready.\n behind the last\n",
        );
        assert_eq!(found, [line(1, true, "BIRD 2.0.12 ready.")]);
        assert_eq!(lines.take_skipped(), 6);
    }

    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let mut lines = Lines::default();
        for _ in 0..3 {
            assert!(lines.receive(&vec![b'1'; LINE_SIZE]).is_empty());
            assert!(lines.partial.len() <= LINE_SIZE);
        }
        assert_eq!(lines.receive(b"\n0000 \n"), [line(0, true, "")]);
        assert_eq!(lines.take_skipped(), 1);
    }
}
