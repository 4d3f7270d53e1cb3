//! The headers of a message or part in progress.

use crate::app::heap::heap;

/// Size of the headers of a part, in bytes, above which they are an anomaly; also the largest size of a
/// header that is kept.
pub(super) const HEADERS_SIZE: usize = 64 << 10;

/// The headers that are kept, in lower case: the first ones decide how the part is parsed, the others are for records.
const NAMES: [&[u8]; 11] = [
    b"content-type",
    b"content-disposition",
    b"content-transfer-encoding",
    b"from",
    b"to",
    b"subject",
    b"message-id",
    b"date",
    b"cc",
    b"x-mailer",
    RECEIVED,
];
/// The header that a message has once for each server on its way.
const RECEIVED: &[u8] = b"received";
/// Number of the names that decide how the part is parsed.
const STRUCTURAL: usize = 3;

/// The headers of a message or part in progress.
#[derive(Debug, Clone, Default)]
pub(super) struct Headers {
    /// The lines of the first header of each of [`NAMES`].
    pub(super) block: Vec<u8>,
    /// Bytes of all headers.
    pub(super) size: usize,
    /// Bytes of the kept header in progress, and of all that are kept for records only.
    current_size: usize,
    record_size: usize,
    /// The kept header to which the line in progress belongs, as an index of [`NAMES`].
    current: Option<usize>,
    has: [bool; NAMES.len()],
    /// True if a header that decides how the part is parsed is there again: recipients take the first or the last one.
    pub(super) has_repeated: bool,
    /// True if these lines may be encoded, so that only a first line that is a header begins headers.
    pub(super) may_be_encoded: bool,
}

heap!(Headers { block });

impl Headers {
    /// Returns the headers of a message whose encoding is declared as base64 or quoted-printable, which RFC 2046, section
    /// 5.2.1, does not allow: programs read it as declared, or as it is.
    pub(super) fn of_encoded_message() -> Headers {
        Headers {
            may_be_encoded: true,
            ..Headers::default()
        }
    }

    /// Returns true if a first line, which is not empty, shows that there are no headers, but an encoded message.
    pub(super) fn are_encoded(&self, text: &[u8]) -> bool {
        let is_name = |byte: &u8| byte.is_ascii_graphic() && *byte != b':';
        let name = text.iter().take_while(|byte| is_name(byte)).count();
        let after = text[name..].trim_ascii_start();
        let is_header = name > 0 && after.first() == Some(&b':');
        self.may_be_encoded && self.size == 0 && !is_header
    }

    /// Adds a line that is not empty, or the rest of such a line; `begins` is true at the beginning of a
    /// line. Headers that decide how the part is parsed are kept, no matter how long the other headers are.
    pub(super) fn line(&mut self, text: &[u8], end: &[u8], begins: bool) {
        let size = text.len() + end.len();
        self.size += size;
        if begins && !matches!(text.first(), Some(b' ' | b'\t')) {
            let name = text
                .split(|&byte| byte == b':')
                .next()
                .unwrap_or_default()
                .trim_ascii();
            let known = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name));
            self.has_repeated |= known.is_some_and(|index| index < STRUCTURAL && self.has[index]);
            self.current = known
                .filter(|&index| !core::mem::replace(&mut self.has[index], true) || NAMES[index] == RECEIVED);
            self.current_size = 0;
            if self.current.is_some() && !self.block.is_empty() && !self.block.ends_with(b"\n") {
                self.block.push(b'\n');
            }
        }
        let Some(index) = self.current else { return };
        let known = if index < STRUCTURAL {
            &mut self.current_size
        } else {
            &mut self.record_size
        };
        if *known + size > HEADERS_SIZE {
            self.current = None;
            return;
        }
        *known += size;
        self.block.extend_from_slice(text);
        self.block.extend_from_slice(end);
    }
}

/// Returns the value of a header in a block of headers, with folded lines joined.
pub(super) fn header(block: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    headers(block, name, 1).pop()
}

/// Returns the values of the first `limit` headers with a name, with folded lines joined.
pub(super) fn headers(block: &[u8], name: &[u8], limit: usize) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut is_open = false;
    for line in block.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_folded = matches!(line.first(), Some(b' ' | b'\t'));
        if is_open && is_folded {
            if let Some(value) = all.last_mut() {
                value.push(b' ');
                value.extend_from_slice(line.trim_ascii());
            }
            continue;
        }
        if all.len() >= limit {
            break;
        }
        is_open = false;
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        if line[..colon].trim_ascii().eq_ignore_ascii_case(name) {
            all.push(line[colon + 1..].trim_ascii().to_vec());
            is_open = true;
        }
    }
    all
}

/// Returns true if a header value begins with a text in either case.
pub(super) fn begins(value: &[u8], text: &[u8]) -> bool {
    value.len() >= text.len() && value[..text.len()].eq_ignore_ascii_case(text)
}
