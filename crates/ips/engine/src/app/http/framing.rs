//! The parts of a message that decide where it ends, and those that recipients read in different ways.
//!
//! RFC 9112 gives a message one reading. Where bytes break its grammar, recipients differ: one takes a line end where another
//! sees a character of a value, one finds a length where another finds a coding. [`Section`] and the functions below name such
//! places. In mode `ips` the policy for ambiguous messages decides about them; in both modes, [`readings`](super::readings) parses
//! the message in each plausible way.
//!
//! Only what can change the end of a message counts. A space before the colon of `User-Agent` is an anomaly; before the colon
//! of `Transfer-Encoding` it is ambiguous.

use memchr::{memchr, memchr_iter, memchr3};

use crate::app::transaction::AppEvent;

/// A line end that some recipients take for a character, or the reverse.
pub(super) const LINE_END: AppEvent = "http.ambiguous_line_end";
/// A line of white space, which some recipients take for the end of the headers.
pub(super) const HEADER_END: AppEvent = "http.ambiguous_header_end";
/// The name of a header that frames the message, with other characters, or folded.
pub(super) const HEADER_NAME: AppEvent = "http.ambiguous_header_name";
/// A control character or a fold in the value of a header that frames the message, or a NUL in any header.
pub(super) const HEADER_VALUE: AppEvent = "http.ambiguous_header_value";
/// A Content-Length that is no number, or more than one, or one beside a Transfer-Encoding.
pub(super) const CONTENT_LENGTH: AppEvent = "http.ambiguous_content_length";
/// A Transfer-Encoding other than `chunked`, more than one, or one in a message that is not of HTTP/1.1.
pub(super) const TRANSFER_ENCODING: AppEvent = "http.ambiguous_transfer_encoding";
/// A Content-Encoding that only looks like a registered one, or that the body does not have.
pub(super) const CONTENT_ENCODING: AppEvent = "http.ambiguous_content_encoding";
/// A line between chunks that is not of the grammar of RFC 9112, section 7.1.
pub(super) const CHUNK: AppEvent = "http.ambiguous_chunk";
/// A request line or a status line in which recipients find different parts, or bytes before it.
pub(super) const START_LINE: AppEvent = "http.ambiguous_start_line";
/// Bytes after a response that has no body although its headers announce one.
pub(super) const BODY: AppEvent = "http.ambiguous_body";
/// Bytes of the client after CONNECT or a request to change the protocol, before the answer decides whether they are requests
/// or of another protocol.
pub(super) const TUNNEL: AppEvent = "http.ambiguous_tunnel";

/// The headers that frame a message or change its body, as letters only.
const FRAMING: &[(&[u8], &[u8])] = &[
    (b"transfer-encoding", b"transferencoding"),
    (b"content-length", b"contentlength"),
    (b"content-encoding", b"contentencoding"),
];

/// Returns the letters of a text in lower case.
pub(super) fn letters(text: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let letters = text.iter().filter(|byte| byte.is_ascii_alphabetic());
    letters.map(u8::to_ascii_lowercase)
}

/// Returns true if some recipient may read a name as that of a header, whose name in lower case is `wanted`.
pub(super) fn looks_like(name: &[u8], wanted: &[u8]) -> bool {
    // Most names differ in the first or the last letter, and this is asked for each name of each message.
    let differs = |byte: Option<&u8>, wanted: Option<&u8>| {
        let letter = byte.map(u8::to_ascii_lowercase).filter(u8::is_ascii_lowercase);
        letter.is_some_and(|letter| Some(&letter) != wanted)
    };
    if differs(name.first(), wanted.first()) || differs(name.last(), wanted.last()) {
        return false;
    }
    name.eq_ignore_ascii_case(wanted) || letters(name).eq(letters(wanted))
}

/// Returns true if some recipient may read a name as that of a header that frames the message.
fn is_framing(name: &[u8]) -> bool {
    FRAMING.iter().any(|(exact, _)| looks_like(name, exact))
}

fn is_exact(name: &[u8]) -> bool {
    FRAMING.iter().any(|(exact, _)| name.eq_ignore_ascii_case(exact))
}

/// Returns true if a line has only white space and control characters.
pub(super) fn is_blank(text: &[u8]) -> bool {
    text.iter().all(|byte| *byte <= b' ' || *byte == 0x7f)
}

fn is_control(byte: u8) -> bool {
    byte < b' ' && byte != b'\t' || byte == 0x7f
}

/// Returns a value without control characters.
pub(super) fn without_controls(value: &[u8]) -> Vec<u8> {
    value.iter().copied().filter(|byte| !is_control(*byte)).collect()
}

/// The terminator of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Terminator {
    CrLf,
    Lf,
}

/// The lines of a message from its first one on: what they have in common, and the line before the next one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Section {
    terminator: Option<Terminator>,
    /// True if the last header frames the message.
    is_framing: bool,
    /// True if the last line has no colon.
    is_open: bool,
}

impl Section {
    /// Checks the line end of a line with its terminator. The terminators of all lines are the same (RFC 9112, section 2.2: a
    /// recipient may recognise a single line feed).
    pub(super) fn line_end(&mut self, line: &[u8]) -> Option<AppEvent> {
        let (text, terminator) = match line {
            [text @ .., b'\r', b'\n'] => (text, Terminator::CrLf),
            [text @ .., b'\n'] => (text, Terminator::Lf),
            _ => return Some(LINE_END),
        };
        let is_same = self.is_same(terminator);
        (!is_same || memchr(b'\r', text).is_some()).then_some(LINE_END)
    }

    fn is_same(&mut self, terminator: Terminator) -> bool {
        *self.terminator.get_or_insert(terminator) == terminator
    }

    /// Checks a header line with its terminator: its end, and its name and value. `is_plain` tells that [`plain_line`] found it.
    pub(super) fn header_line(
        &mut self,
        line: &[u8],
        is_plain: bool,
    ) -> impl Iterator<Item = AppEvent> + use<> {
        let line_end = match is_plain {
            true => (!self.is_same(Terminator::CrLf)).then_some(LINE_END),
            false => self.line_end(line),
        };
        let text = match line {
            [text @ .., b'\r', b'\n'] | [text @ .., b'\n'] | [text @ .., b'\r'] => text,
            text => text,
        };
        line_end.into_iter().chain(self.header(text, is_plain))
    }

    fn header(&mut self, text: &[u8], is_plain: bool) -> Option<AppEvent> {
        let first = *text.first()?;
        if is_blank(text) {
            return Some(HEADER_END);
        }
        let colon = memchr(b':', text);
        let name = &text[..colon.unwrap_or(text.len())];
        let is_nul = !is_plain && memchr(0, text).is_some();
        if first == b' ' || is_control(first) || first == b'\t' {
            // A recipient may join the line to the one before it, or take it for a header.
            if self.is_open || is_framing(name) {
                return Some(HEADER_NAME);
            }
            return (self.is_framing || is_nul).then_some(HEADER_VALUE);
        }
        self.is_open = colon.is_none();
        self.is_framing = is_framing(name);
        if colon.is_none() {
            let all: Vec<u8> = letters(text).collect();
            let has = |word: &&[u8]| all.windows(word.len()).any(|part| part == *word);
            return FRAMING.iter().any(|(_, word)| has(word)).then_some(HEADER_NAME);
        }
        if self.is_framing && !is_exact(name) {
            return Some(HEADER_NAME);
        }
        let value = &text[name.len()..];
        let has_control = self.is_framing && value.iter().any(|byte| is_control(*byte));
        (has_control || is_nul).then_some(HEADER_VALUE)
    }
}

/// Returns the end of the first line of `data` without its terminator, if the line ends with a carriage return and a line feed and
/// has neither of them nor a NUL before. All recipients find the same end of such a line.
pub(super) fn plain_line(data: &[u8]) -> Option<usize> {
    let end = memchr3(b'\r', b'\n', 0, data)?;
    data[end..].starts_with(b"\r\n").then_some(end)
}

/// Returns the problem of bytes that are not a complete line yet: some recipients end a line after a carriage return alone.
/// Bytes before `from` were checked before.
pub(super) fn incomplete_line(bytes: &[u8], from: usize) -> Option<AppEvent> {
    let new = &bytes[from.min(bytes.len()).saturating_sub(1)..];
    let is_alone = |at: usize| new.get(at + 1).is_some_and(|next| *next != b'\n');
    memchr_iter(b'\r', new).any(is_alone).then_some(LINE_END)
}

/// Returns the problem of a request line that ends with a protocol: its parts are separated by one space each (RFC 9112,
/// section 3), and recipients differ about the target if there are more parts or control characters. About a line with fewer
/// parts they differ once other bytes follow. White space before the method is an anomaly of its own, which recipients skip or refuse. A tunnel
/// has no body.
pub(super) fn request_line(text: &[u8]) -> Option<AppEvent> {
    let text = text.trim_ascii_start();
    let parts: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
    let has_protocol = parts.last().is_some_and(|last| is_protocol(last));
    let has_control = text.iter().any(|byte| is_control(*byte) || *byte == b'\t');
    let is_tunnel = parts.first() == Some(&&b"CONNECT"[..]);
    let is_odd = has_protocol && !is_tunnel && (parts.len() > 3 || has_control);
    is_odd.then_some(START_LINE)
}

/// Returns the problem of a status line (RFC 9112, section 4). Without a reason, the second space may be missing.
pub(super) fn status_line(text: &[u8]) -> Option<AppEvent> {
    let (version, rest) = text.split_at_checked(8).unwrap_or((text, &[]));
    let status = rest.get(1..4).unwrap_or_default();
    // Recipients compare the name of the protocol with and without regard to case, and agree about the rest.
    let is_right = is_version(&version.to_ascii_uppercase())
        && rest.first() == Some(&b' ')
        && status.len() == 3
        && status.iter().all(u8::is_ascii_digit)
        && matches!(rest.get(4), None | Some(b' '))
        && !text.iter().any(|byte| is_control(*byte));
    (!is_right).then_some(START_LINE)
}

/// Returns true for a name and a version of any protocol. RTSP (RFC 7826) has the methods and the grammar of HTTP, and is no
/// HTTP message that recipients could read in another way.
pub(super) fn is_protocol(text: &[u8]) -> bool {
    let name = text.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    name > 0
        && matches!(&text[name..], [b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit())
}

/// Returns true for the name and the version of HTTP/1.
fn is_version(text: &[u8]) -> bool {
    matches!(text, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor] if minor.is_ascii_digit())
}

/// Returns the problem of a Content-Length value: it is a number and nothing else (RFC 9110, section 8.6).
pub(super) fn content_length(value: &[u8]) -> Option<AppEvent> {
    let is_number = !value.is_empty()
        && value.iter().all(u8::is_ascii_digit)
        && core::str::from_utf8(value).is_ok_and(|text| text.parse::<i64>().is_ok());
    (!is_number).then_some(CONTENT_LENGTH)
}

/// Returns the problem of a Transfer-Encoding value: `chunked` is the only one that is read in one way.
pub(super) fn transfer_encoding(value: &[u8]) -> Option<AppEvent> {
    (!value.eq_ignore_ascii_case(b"chunked")).then_some(TRANSFER_ENCODING)
}

/// Returns all numbers in a value, in their order; at most [`NUMBERS_MAX`].
pub(super) fn numbers(value: &[u8]) -> Vec<u64> {
    let runs = value.split(|byte| !byte.is_ascii_digit());
    let number = |run: &[u8]| core::str::from_utf8(run).ok()?.parse().ok();
    runs.filter(|run| !run.is_empty())
        .filter_map(number)
        .take(NUMBERS_MAX)
        .collect()
}

/// Largest number of lengths that are tried.
const NUMBERS_MAX: usize = 3;

/// Returns the problem of the line with the size of a chunk, with its terminator. White space after the size is read by all
/// recipients in the same way.
pub(super) fn chunk_line(line: &[u8]) -> Option<AppEvent> {
    let Some(text) = line.strip_suffix(b"\r\n") else {
        return Some(CHUNK);
    };
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let rest = &text[digits..];
    let spaces = rest.iter().take_while(|byte| b" \t".contains(byte)).count();
    let is_right = digits > 0
        && matches!(rest.get(spaces), None | Some(b';'))
        && !rest.iter().any(|byte| is_control(*byte));
    (!is_right).then_some(CHUNK)
}
