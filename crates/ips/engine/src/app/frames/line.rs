//! Lines of a stream whose first bytes a protocol looks at.

use crate::app::heap::heap;

/// The number of bytes of a line that are kept.
const KEPT: usize = 256;

/// The line in progress.
#[derive(Debug, Default)]
pub(super) struct Line {
    text: Vec<u8>,
    /// True after the first byte of the line.
    pub(super) is_open: bool,
}

heap!(Line { text });

/// Returns the number of bytes of empty lines before a message.
pub(super) fn blanks(bytes: &[u8]) -> usize {
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    blank.count()
}

/// The bytes that a line takes from those at hand.
#[derive(Debug)]
pub(super) struct Taken {
    /// Number of bytes, up to the line feed and with it.
    pub(super) size: u64,
    /// True if the bytes are the first ones of the line.
    pub(super) is_first: bool,
    /// The first bytes of the line without its end, if it is complete.
    pub(super) line: Option<Vec<u8>>,
}

impl Line {
    /// Takes the bytes of the line.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Taken {
        let end = memchr::memchr(b'\n', bytes).map(|at| at + 1);
        let size = end.unwrap_or(bytes.len());
        let room = KEPT.saturating_sub(self.text.len()).min(size);
        self.text.extend_from_slice(&bytes[..room]);
        let is_first = !core::mem::replace(&mut self.is_open, true);
        let line = end.map(|_| {
            let mut line = core::mem::take(self).text;
            if line.last() == Some(&b'\n') {
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
            }
            line
        });
        Taken {
            size: size as u64,
            is_first,
            line,
        }
    }
}

/// Returns the value of a header line with a name, without blanks around it.
pub(super) fn header<'a>(line: &'a [u8], names: &[&[u8]]) -> Option<&'a [u8]> {
    let at = memchr::memchr(b':', line)?;
    let name = line[..at].trim_ascii();
    let is_it = names.iter().any(|known| name.eq_ignore_ascii_case(known));
    is_it.then(|| line[at + 1..].trim_ascii())
}

/// Returns the number in decimal digits with which a text begins.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    core::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}
