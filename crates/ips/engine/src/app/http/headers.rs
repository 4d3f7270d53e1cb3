//! Header lines of HTTP messages: line ends, folding, repetition, and the buffers that consist of headers.

use std::collections::HashMap;

use memchr::{memchr, memchr2};

use super::framing;
use super::name_filter::NameFilter;

use crate::app::heap::heap;
use crate::app::record::{FIELD_LIST, FIELD_SIZE, Fields};
use crate::app::text::{Piece, Span};
use crate::app::transaction::AppEvent;
use crate::flow::Direction;

/// Largest number of headers of a message.
pub(super) const HEADERS_PER_MESSAGE: usize = 1024;
/// Number of headers from which names are found by their hashes. A block has room for 65,000 lines, each of
/// which would otherwise be compared with a thousand names.
const INDEXED: usize = 32;
/// Number of headers for which memory is allocated at once.
const USUAL: usize = 12;
/// Largest number of different lengths in repetitions of Content-Length that are kept.
const LENGTHS: usize = 3;
/// Largest size of the headers of a message in a record, in bytes.
pub(super) const RECORD_SIZE: usize = 8 << 10;
/// Largest number of times that repetitions of headers are joined in a message.
const REPETITIONS: usize = 64;

/// One header, with folded lines joined and repetitions appended. Name and value are in the text of
/// [`Headers`]; a value that is long, folded or repeated has separate memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Header {
    name: Span,
    value: Piece,
    is_repeated: bool,
    is_folded: bool,
}

heap!(Header { value });

/// The header that [`Headers::find`] returns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) value: &'a [u8],
    pub(super) is_repeated: bool,
    pub(super) is_folded: bool,
}

/// The headers of a message in the order of their first occurrence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Headers {
    list: Vec<Header>,
    /// The names and the short values.
    text: Vec<u8>,
    /// The positions in `list` by name in lower case, from [`INDEXED`] headers on.
    index: HashMap<Vec<u8>, usize>,
    /// True if the message has more headers than are kept.
    pub(super) has_too_many: bool,
    /// The numbers in repetitions of Content-Length, at most [`LENGTHS`].
    other_lengths: Vec<u64>,
    filter: NameFilter,
}

heap!(Headers {
    list,
    text,
    other_lengths
});

/// The bytes that end a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Lines {
    /// A line feed, perhaps after a carriage return: servers read requests so.
    #[default]
    Lf,
    /// The same, or a carriage return alone: browsers read responses so.
    CrOrLf,
    /// A carriage return and a line feed, and neither alone.
    CrLf,
}

impl Lines {
    /// Returns the usual ends of lines in a direction.
    pub(super) fn of(direction: Direction) -> Lines {
        match direction {
            Direction::ToServer => Lines::Lf,
            Direction::ToClient => Lines::CrOrLf,
        }
    }
}

/// Returns the end of the first line of `data` without its terminator, and where the next line begins; `None` if the
/// line is not complete.
pub(super) fn line(data: &[u8], lines: Lines, is_end: bool) -> Option<(usize, usize)> {
    if lines == Lines::CrLf {
        let end = memchr::memmem::find(data, b"\r\n")?;
        return Some((end, end + 2));
    }
    if lines == Lines::Lf {
        let end = memchr(b'\n', data)?;
        let without_cr = if end > 0 && data[end - 1] == b'\r' {
            end - 1
        } else {
            end
        };
        return Some((without_cr, end + 1));
    }
    let end = memchr2(b'\r', b'\n', data)?;
    match (data[end], data.get(end + 1)) {
        (b'\n', _) => Some((end, end + 1)),
        (_, Some(b'\n')) => Some((end, end + 2)),
        (_, None) if !is_end => None,
        _ => Some((end, end + 1)),
    }
}

/// Returns true for the characters of a token (RFC 9110, section 5.6.2).
#[inline]
fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// The characters of a token.
const TOKEN: [bool; 256] = {
    const OTHERS: &[u8] = b"!#$%&'*+-.^_`|~";
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < OTHERS.len() {
        table[OTHERS[at] as usize] = true;
        at += 1;
    }
    table
};

/// The names of the anomalies that differ by direction.
struct Names {
    missing_colon: AppEvent,
    invalid: AppEvent,
    folding: AppEvent,
    repetition: AppEvent,
    ambiguous_length: AppEvent,
    too_many: AppEvent,
}

const REQUEST: Names = Names {
    missing_colon: "http.request_field_missing_colon",
    invalid: "http.request_header_invalid",
    folding: "http.invalid_request_field_folding",
    repetition: "http.request_header_repetition",
    ambiguous_length: "http.duplicate_content_length_field_in_request",
    too_many: "http.request_too_many_headers",
};

const RESPONSE: Names = Names {
    missing_colon: "http.response_field_missing_colon",
    invalid: "http.response_header_invalid",
    folding: "http.invalid_response_field_folding",
    repetition: "http.response_header_repetition",
    ambiguous_length: "http.duplicate_content_length_field_in_response",
    too_many: "http.response_too_many_headers",
};

impl Headers {
    /// Forgets all headers, and keeps the memory of the list.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.text.clear();
        self.index.clear();
        self.has_too_many = false;
        self.other_lengths.clear();
        self.filter = NameFilter::default();
    }

    /// Adds the headers of a block of lines, and appends the anomalies that it finds.
    pub(super) fn add_block(
        &mut self,
        block: &[u8],
        (direction, lines): (Direction, Lines),
        events: &mut Vec<AppEvent>,
    ) {
        let names = if direction == Direction::ToServer {
            &REQUEST
        } else {
            &RESPONSE
        };
        if self.list.capacity() == 0 {
            self.list.reserve_exact(USUAL);
        }
        self.text.reserve(block.len());
        let mut repetitions = 0;
        let mut pending: Option<Header> = None;
        let mut rest = block;
        while !rest.is_empty() {
            let (end, next) = line(rest, lines, true).unwrap_or((rest.len(), rest.len()));
            let text = &rest[..end];
            rest = &rest[next..];
            if text.is_empty() {
                continue;
            }
            if is_continuation(text, direction)
                && let Some(header) = &mut pending
            {
                header.is_folded = true;
                let value = header.value.to_mut(&self.text);
                if value.is_empty() {
                    value.extend_from_slice(text.trim_ascii());
                } else {
                    value.push(text[0]);
                    value.extend_from_slice(text[1..].trim_ascii_end());
                }
                continue;
            }
            if let Some(header) = pending.take() {
                self.add(header, names, &mut repetitions, events);
            }
            pending = Some(self.header(text, names, events));
        }
        if let Some(header) = pending {
            self.add(header, names, &mut repetitions, events);
        }
    }

    /// Adds headers of HTTP/2, whose names and values are not lines, and appends the anomalies that it finds.
    pub(super) fn add_fields(
        &mut self,
        direction: Direction,
        fields: &[(Vec<u8>, Vec<u8>)],
        events: &mut Vec<AppEvent>,
    ) {
        let names = match direction {
            Direction::ToServer => &REQUEST,
            Direction::ToClient => &RESPONSE,
        };
        let mut repetitions = 0;
        for (name, value) in fields {
            let header = Header {
                name: Span::append(&mut self.text, name),
                value: Piece::new(&mut self.text, value.as_slice()),
                is_repeated: false,
                is_folded: false,
            };
            self.add(header, names, &mut repetitions, events);
        }
    }

    /// Returns the header of a line. A line without colon is the value of a header without name.
    fn header(&mut self, line: &[u8], names: &Names, events: &mut Vec<AppEvent>) -> Header {
        let (name, value) = match memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => {
                events.push(names.missing_colon);
                (&line[..0], line)
            }
        };
        if name.first().is_some_and(u8::is_ascii_whitespace) {
            events.push(names.folding);
        }
        let trimmed = name.trim_ascii();
        let is_valid =
            trimmed.len() == name.len() && !trimmed.is_empty() && trimmed.iter().all(|&byte| is_token(byte));
        if !is_valid && name.len() + value.len() != line.len() {
            events.push(names.invalid);
        }
        Header {
            name: Span::append(&mut self.text, trimmed),
            value: Piece::new(&mut self.text, value.trim_ascii()),
            is_repeated: false,
            is_folded: false,
        }
    }

    fn add(&mut self, header: Header, names: &Names, repetitions: &mut usize, events: &mut Vec<AppEvent>) {
        let Headers {
            list,
            text,
            index,
            has_too_many,
            other_lengths,
            filter,
        } = self;
        let name = header.name.of(text);
        let Some(known) = place(list, text, index, name).and_then(|place| list.get_mut(place)) else {
            if list.len() < HEADERS_PER_MESSAGE {
                if list.len() >= INDEXED {
                    index.insert(name.to_ascii_lowercase(), list.len());
                }
                filter.add(name);
                list.push(header);
            } else if !core::mem::replace(has_too_many, true) {
                events.push(names.too_many);
            }
            return;
        };
        if known.is_repeated {
            *repetitions += 1;
            if *repetitions > REPETITIONS {
                return;
            }
        }
        known.is_repeated = true;
        events.push(names.repetition);
        let value = header.value.of(text);
        if name.eq_ignore_ascii_case(b"content-length") {
            for number in framing::numbers(value) {
                if other_lengths.len() < LENGTHS && !other_lengths.contains(&number) {
                    other_lengths.push(number);
                }
            }
            let length = content_length(value);
            if content_length(known.value.of(text)) != length || length.is_none() {
                events.push(names.ambiguous_length);
            }
        } else {
            let joined = known.value.to_mut(text);
            joined.extend_from_slice(b", ");
            joined.extend_from_slice(value);
        }
    }

    /// Returns a header by its name in lower case; zero bytes in the name of a header do not count.
    pub(super) fn find(&self, name: &[u8]) -> Option<Found<'_>> {
        if !self.filter.may_have(name) {
            return None;
        }
        let has_zero = self.filter.has_zero;
        let is_it = |header: &&Header| {
            let bytes = header.name.of(&self.text);
            let letters = bytes.iter().filter(|&&byte| byte != 0);
            bytes.eq_ignore_ascii_case(name)
                || has_zero
                    && bytes.len() > name.len()
                    && letters.map(u8::to_ascii_lowercase).eq(name.iter().copied())
        };
        self.list.iter().find(is_it).map(|header| Found {
            value: header.value.of(&self.text),
            is_repeated: header.is_repeated,
            is_folded: header.is_folded,
        })
    }

    /// Returns the value of a header by its name in lower case.
    pub(super) fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.find(name).map(|header| header.value)
    }

    /// Returns the value of a header that frames the message, as the most tolerant recipient reads it: the values of all
    /// headers whose names look like the name, without control characters. `name` is in lower case.
    pub(super) fn framing(&self, name: &[u8]) -> Option<Vec<u8>> {
        if !self.filter.may_look_like(name) {
            return None;
        }
        let mut joined: Option<Vec<u8>> = None;
        for (mut own, mut value) in self.pairs() {
            // A line without colon has no name; the colon may be in a continuation.
            if own.is_empty()
                && let Some(colon) = memchr(b':', value)
            {
                (own, value) = (&value[..colon], &value[colon + 1..]);
            }
            if !framing::looks_like(own, name) {
                continue;
            }
            let value = framing::without_controls(value);
            match &mut joined {
                None => joined = Some(value.trim_ascii().to_vec()),
                Some(joined) => {
                    joined.extend_from_slice(b", ");
                    joined.extend_from_slice(value.trim_ascii());
                }
            }
        }
        joined
    }

    /// Returns the lengths that recipients may find, in the order of the headers.
    pub(super) fn lengths(&self) -> Vec<u64> {
        let mut lengths = self
            .framing(b"content-length")
            .map_or(Vec::new(), |value| framing::numbers(&value));
        lengths.extend(&self.other_lengths);
        lengths
    }

    /// Returns the places where recipients differ about the end of the message, or about the coding of its body.
    pub(super) fn ambiguities(&self, is_http_11: bool) -> Vec<AppEvent> {
        let mut found = Vec::new();
        let length = self.find(b"content-length");
        let coding = self.find(b"transfer-encoding");
        if let Some(length) = length {
            let is_single = !length.is_repeated && !length.is_folded && coding.is_none();
            found.extend(
                framing::content_length(length.value).or((!is_single).then_some(framing::CONTENT_LENGTH)),
            );
        }
        if let Some(coding) = coding {
            let is_single = !coding.is_repeated && !coding.is_folded && is_http_11;
            found.extend(
                framing::transfer_encoding(coding.value)
                    .or((!is_single).then_some(framing::TRANSFER_ENCODING)),
            );
        }
        if self
            .find(b"content-encoding")
            .is_some_and(|found| found.is_folded)
        {
            found.push(framing::CONTENT_ENCODING);
        }
        found
    }

    /// Returns the names and the values.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list
            .iter()
            .map(|header| (header.name.of(&self.text), header.value.of(&self.text)))
    }

    /// Returns the first headers for a record, each with name and value.
    pub(super) fn record(&self) -> Vec<Fields> {
        let mut left = RECORD_SIZE;
        let mut list = Vec::new();
        for (name, value) in self.pairs().take(FIELD_LIST) {
            let size = name.len().min(FIELD_SIZE) + value.len().min(FIELD_SIZE);
            let Some(rest) = left.checked_sub(size) else { break };
            left = rest;
            let mut header = Fields::default();
            header.text("name", name).text("value", value);
            list.push(header);
        }
        list
    }

    /// Appends "Name: value" lines of all headers but one.
    pub(super) fn write_lines(&self, without: &[u8], out: &mut Vec<u8>) {
        for (name, value) in self
            .pairs()
            .filter(|(name, _)| !name.eq_ignore_ascii_case(without))
        {
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the names of the headers, each after a line end, and two line ends after the last.
    pub(super) fn write_names(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n");
        for (name, _) in self.pairs() {
            out.extend_from_slice(name);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns the position in the list of the header with a name, in either case.
fn place(list: &[Header], text: &[u8], index: &mut HashMap<Vec<u8>, usize>, name: &[u8]) -> Option<usize> {
    if list.len() < INDEXED {
        return list
            .iter()
            .position(|known| known.name.of(text).eq_ignore_ascii_case(name));
    }
    if index.is_empty() {
        let names = list.iter().map(|known| known.name.of(text).to_ascii_lowercase());
        *index = names.zip(0..).collect();
    }
    index.get(&name.to_ascii_lowercase()).copied()
}

/// Returns true for a line that continues the value of the header before it. In a response, a line that begins with
/// white space but has a token and a colon is a header.
fn is_continuation(text: &[u8], direction: Direction) -> bool {
    if !matches!(text[0], b' ' | b'\t' | 0) {
        return false;
    }
    if direction == Direction::ToServer {
        return true;
    }
    let body = text.trim_ascii_start();
    let token = body.iter().take_while(|&&byte| is_token(byte)).count();
    !(token > 0 && body[token..].trim_ascii_start().first() == Some(&b':'))
}

/// Returns the number in a Content-Length value; characters before and after the digits are accepted.
pub(super) fn content_length(value: &[u8]) -> Option<u64> {
    let digits = value
        .iter()
        .skip_while(|byte| !byte.is_ascii_digit())
        .take_while(|byte| byte.is_ascii_digit());
    let mut number = None;
    for digit in digits {
        let so_far: u64 = number.unwrap_or(0);
        number = Some(so_far.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?);
    }
    number
}

/// Returns true if a Transfer-Encoding value has the coding "chunked".
pub(super) fn contains_chunked(value: &[u8]) -> bool {
    value
        .to_ascii_lowercase()
        .windows(7)
        .any(|window| window == b"chunked")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(block: &str, direction: Direction) -> (Vec<(String, String)>, Vec<AppEvent>) {
        let mut headers = Headers::default();
        let mut events = Vec::new();
        headers.add_block(block.as_bytes(), (direction, Lines::of(direction)), &mut events);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            headers
                .pairs()
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
            events,
        )
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn folded_lines_join_the_value_before_them() {
        let (headers, _) = parsed("A: one\r\n\ttwo\r\n three \r\nB: 1\r\n", Direction::ToServer);
        assert_eq!(headers, [pair("A", "one\ttwo three"), pair("B", "1")]);
    }

    #[test]
    fn repeated_headers_join_with_a_comma() {
        let (headers, events) = parsed("A: 1\r\na: 2\r\n", Direction::ToServer);
        assert_eq!(headers, [pair("A", "1, 2")]);
        assert_eq!(events, ["http.request_header_repetition"]);
    }

    #[test]
    fn repetitions_are_found_among_few_and_many_headers() {
        for len in [1, 31, 32, 33, 500] {
            let lines: String = (0..len)
                .map(|number| format!("Name-{number}: {number}\r\n"))
                .collect();
            let block = format!("{lines}name-0: again\r\nNAME-{}: last\r\n", len - 1);
            let (headers, _) = parsed(&block, Direction::ToServer);
            assert_eq!(headers.len(), len, "{len}");
            assert!(headers[0].1.starts_with("0, again"), "{:?}", headers[0]);
            assert!(headers[len - 1].1.ends_with(", last"), "{:?}", headers[len - 1]);
        }
    }

    #[test]
    fn a_line_without_colon_is_a_value_without_name() {
        let (headers, events) = parsed("junk here\r\nA: 1\r\n", Direction::ToServer);
        assert_eq!(headers, [pair("", "junk here"), pair("A", "1")]);
        assert_eq!(events, ["http.request_field_missing_colon"]);
    }

    #[test]
    fn a_carriage_return_ends_lines_of_responses_only() {
        assert_eq!(
            parsed("A: 1\rB: 2\r\n", Direction::ToClient).0,
            [pair("A", "1"), pair("B", "2")]
        );
        assert_eq!(
            parsed("A: 1\rB: 2\r\n", Direction::ToServer).0,
            [pair("A", "1\rB: 2")]
        );
    }

    #[test]
    fn content_length_accepts_signs_and_refuses_overflow() {
        assert_eq!(content_length(b" +12 "), Some(12));
        assert_eq!(content_length(b"99999999999999999999999"), None);
        assert_eq!(content_length(b"abc"), None);
    }
}
