//! Files in the body of a request of type multipart/form-data (RFC 7578).
//!
//! Lines end with CR LF (RFC 2046, section 4.1.1). Some recipients also accept LF alone. If the first boundary line
//! ends with LF alone, all lines of the form may. In other forms, recipients disagree on a boundary line that follows
//! LF alone. The parser then begins a file if the part has a file name; otherwise the bytes belong to the file before
//! it.

use millrace_ips_rules::buffers::Buffer;

use super::headers::{Headers, Lines};
use crate::app::AppSettings;
use crate::app::heap::heap;
use crate::app::parameter::{file_names, parameter};
use crate::app::transaction::Transaction;
use crate::flow::Direction;

/// Largest size of a boundary (RFC 2046, section 5.1.1, allows 70).
pub(super) const BOUNDARY_SIZE: usize = 200;
/// Largest size of the headers of a part.
pub(super) const HEADERS_SIZE: usize = 8192;
/// Largest number of files of a body.
const FILES: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first boundary, or in a part without file name.
    Skip,
    /// In the headers of a part.
    Headers,
    /// In the bytes of a file: index of its buffer and of the file.
    File((usize, usize)),
    /// After the last boundary.
    Ended,
}

/// A multipart body in progress.
#[derive(Debug)]
pub(super) struct Multipart {
    /// Line feed, two hyphens, boundary.
    delimiter: Vec<u8>,
    pending: Vec<u8>,
    /// Offset in `pending` at which the search for the empty line after headers continues.
    searched: usize,
    /// Number of bytes that were searched for the empty line after headers.
    #[cfg(test)]
    searched_total: usize,
    state: State,
    /// True if lines may end with LF alone; `None` before the first boundary.
    has_bare_lines: Option<bool>,
    /// The file that continues if the headers in progress have no file name: index of its buffer and of the file.
    outer: Option<(usize, usize)>,
    /// Number of files so far.
    files: usize,
}

heap!(Multipart { delimiter, pending });

impl Multipart {
    /// Returns a parser for a Content-Type value, if it is multipart/form-data with a boundary.
    pub(super) fn for_content_type(value: &[u8]) -> Option<Multipart> {
        const TYPE: &[u8] = b"multipart/form-data";
        let is_form = value.len() >= TYPE.len() && value[..TYPE.len()].eq_ignore_ascii_case(TYPE);
        if !is_form {
            return None;
        }
        let boundary = parameter(value, b"boundary").filter(|boundary| !boundary.is_empty())?;
        let mut delimiter = b"\n--".to_vec();
        delimiter.extend_from_slice(&boundary[..boundary.len().min(BOUNDARY_SIZE)]);
        // The first boundary has no line end before it, so one is added.
        Some(Multipart {
            delimiter,
            pending: b"\r\n".to_vec(),
            searched: 0,
            #[cfg(test)]
            searched_total: 0,
            state: State::Skip,
            has_bare_lines: None,
            outer: None,
            files: 0,
        })
    }

    /// Parses the next bytes of the body.
    pub(super) fn data(
        &mut self,
        bytes: &[u8],
        transaction: &mut Transaction,
        direction: Direction,
        settings: &AppSettings,
    ) {
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let rest = &self.pending[at..];
            match self.state {
                State::Ended => {
                    at = self.pending.len();
                    break;
                }
                State::Headers => {
                    let from = self.searched.max(at) - at;
                    let (end, searched) = headers_end(rest, from);
                    self.searched = at + searched;
                    #[cfg(test)]
                    {
                        self.searched_total += searched - from;
                    }
                    let Some((size, line_feed)) = end else {
                        if rest.len() > HEADERS_SIZE {
                            transaction.raise("http.multipart_invalid_header");
                            self.state = self.outer.take().map_or(State::Skip, State::File);
                            continue;
                        }
                        break;
                    };
                    // The empty line may begin the delimiter that follows an empty part.
                    let tail = &rest[line_feed..];
                    if tail.len() < self.delimiter.len() && self.delimiter.starts_with(tail) {
                        break;
                    }
                    let content = if tail.starts_with(&self.delimiter) {
                        size
                    } else {
                        line_feed + 1
                    };
                    let headers = rest[..content].to_vec();
                    at += content;
                    self.state = self.open_part(&headers[..size], transaction, direction, settings);
                    match (self.state, self.outer.take()) {
                        (State::File(_), Some(outer)) => close(transaction, outer),
                        (_, Some(outer)) => {
                            write(transaction, outer, &headers, settings);
                            self.state = State::File(outer);
                        }
                        (_, None) => {}
                    }
                }
                State::Skip | State::File(_) => {
                    let found = find(rest, &self.delimiter);
                    // Bytes that may begin a delimiter wait for more.
                    let end = found.unwrap_or_else(|| rest.len() - partial(rest, &self.delimiter));
                    let has_cr = rest[..end].ends_with(b"\r");
                    let content = end - usize::from(has_cr);
                    if let State::File(file) = self.state {
                        write(transaction, file, &rest[..content], settings);
                    }
                    at += content;
                    let behind = &rest[content..];
                    let size = usize::from(has_cr) + self.delimiter.len();
                    let Some(tail) = behind
                        .get(size..)
                        .filter(|tail| tail.len() >= 2 && found.is_some())
                    else {
                        break;
                    };
                    let is_last = tail.starts_with(b"--");
                    let line_end = match tail {
                        [b'\n', ..] => 1,
                        [b'\r', b'\n', ..] => 2,
                        _ => 0,
                    };
                    let has_bare_lines = *self.has_bare_lines.get_or_insert(line_end == 1);
                    if !has_cr {
                        transaction.raise("http.multipart_generic_error");
                    }
                    at += size + line_end;
                    self.outer = None;
                    match self.state {
                        State::File(file) if has_cr || has_bare_lines => close(transaction, file),
                        State::File(file) => {
                            write(transaction, file, &behind[..size + line_end], settings);
                            self.outer = Some(file);
                        }
                        _ => {}
                    }
                    self.state = match is_last {
                        true if has_cr || has_bare_lines => State::Ended,
                        true => self.state,
                        false => State::Headers,
                    };
                }
            }
        }
        self.pending.drain(..at);
        self.searched = self.searched.saturating_sub(at);
    }

    /// Ends the body.
    pub(super) fn end(&mut self, transaction: &mut Transaction) {
        if self.state != State::Ended {
            transaction.raise("http.multipart_generic_error");
        }
        let file = match self.state {
            State::File(file) => Some(file),
            State::Skip | State::Headers | State::Ended => self.outer.take(),
        };
        if let Some((buffer, file)) = file {
            transaction.append(buffer, &self.pending, usize::MAX);
            transaction.close(buffer);
            if let Some(file) = transaction.files.get_mut(file) {
                file.update(&self.pending);
                file.close(false);
            }
        }
        self.state = State::Ended;
        self.pending = Vec::new();
    }

    fn open_part(
        &mut self,
        block: &[u8],
        transaction: &mut Transaction,
        direction: Direction,
        settings: &AppSettings,
    ) -> State {
        let mut headers = Headers::default();
        headers.add_block(block, (direction, Lines::of(direction)), &mut Vec::new());
        let names = headers.value(b"content-disposition").map(file_names);
        let names = names.unwrap_or_default();
        let Some(name) = names.first() else {
            return State::Skip;
        };
        if self.files >= FILES {
            transaction.raise("http.multipart_too_many_files");
            transaction.exceeds_limits = true;
            return State::Skip;
        }
        self.files += 1;
        for name in &names {
            transaction.publish(Buffer::FileName, direction, name.as_slice());
        }
        let buffer = transaction.open(Buffer::FileData, None, direction, settings.request_body_minimum);
        transaction.files.push(settings.file(direction, name));
        State::File((buffer, transaction.files.len() - 1))
    }
}

/// Adds bytes to a file.
fn write(transaction: &mut Transaction, file: (usize, usize), bytes: &[u8], settings: &AppSettings) {
    transaction.append(file.0, bytes, settings.request_body_limit);
    if let Some(file) = transaction.files.get_mut(file.1) {
        file.update(bytes);
    }
}

/// Ends a file.
fn close(transaction: &mut Transaction, file: (usize, usize)) {
    transaction.close(file.0);
    let mut is_empty = false;
    if let Some(file) = transaction.files.get_mut(file.1) {
        file.close(true);
        is_empty = file.size == 0;
    }
    if is_empty {
        transaction.raise("http.multipart_no_filedata");
    }
}

/// Returns the size of the header lines and the offset of the line feed of the empty line after them, or `None` if
/// more bytes are needed. Also returns the value of `from` for the next call. `from` is the offset at which the search
/// begins: no line that ends before it has an empty line after it.
pub(super) fn headers_end(text: &[u8], from: usize) -> (Option<(usize, usize)>, usize) {
    let empty_line = |at: usize| match text[at..] {
        [b'\n', ..] => Some((at, at)),
        [b'\r', b'\n', ..] => Some((at, at + 1)),
        _ => None,
    };
    if let Some(end) = empty_line(0) {
        return (Some(end), from);
    }
    let mut at = from;
    while let Some(size) = text[at..].iter().position(|&byte| byte == b'\n') {
        let line_feed = at + size;
        if let Some(end) = empty_line(line_feed + 1) {
            return (Some(end), line_feed);
        }
        if matches!(text[line_feed + 1..], [] | [b'\r']) {
            return (None, line_feed);
        }
        at = line_feed + 1;
    }
    (None, text.len())
}

/// Returns the offset of the first occurrence of `what`.
fn find(data: &[u8], what: &[u8]) -> Option<usize> {
    data.windows(what.len()).position(|window| window == what)
}

/// Returns the size of the longest tail of `data` with which `what` begins.
pub(super) fn partial(data: &[u8], what: &[u8]) -> usize {
    (1..what.len().min(data.len() + 1))
        .rev()
        .find(|&size| data.ends_with(&what[..size]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::AppProtocol;

    const BODY: &[u8] = b"--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nvalue\r\n--xyz\r\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"one.txt\"\r\nContent-Type: text/plain\r\n\r\n\
        first\r\n--xy line\r\n--xyz\r\nContent-Disposition: form-data; filename=two\r\n\r\n\r\n--xyz--\r\n";

    /// Returns the contents, names and anomalies of the files of a body in pieces of `step` bytes.
    fn parsed(body: &[u8], step: usize) -> (Vec<String>, Vec<String>, Vec<&'static str>) {
        let mut transaction = Transaction::new(0, AppProtocol::Http);
        let mut multipart = Multipart::for_content_type(b"multipart/form-data; boundary=\"xyz\"").unwrap();
        let settings = AppSettings::default();
        for chunk in body.chunks(step) {
            multipart.data(chunk, &mut transaction, Direction::ToServer, &settings);
        }
        multipart.end(&mut transaction);
        let buffers = |buffer| {
            let views = transaction.buffers(buffer, Direction::ToServer);
            views
                .map(|view| String::from_utf8_lossy(view.bytes).into_owned())
                .collect()
        };
        let events = transaction.events.clone();
        (buffers(Buffer::FileData), buffers(Buffer::FileName), events)
    }

    #[test]
    fn files_of_a_form_are_found_in_any_segmentation() {
        for step in [1, 2, 5, 4096] {
            let (data, names, events) = parsed(BODY, step);
            assert_eq!(data, ["first\r\n--xy line", ""], "in steps of {step}");
            assert_eq!(names, ["one.txt", "two"]);
            assert_eq!(events, ["http.multipart_no_filedata"]);
        }
    }

    #[test]
    fn a_delimiter_may_follow_the_headers_of_an_empty_part_in_any_segmentation() {
        let body = b"--xyz\r\n\r\n--xyz\r\nContent-Disposition: x; filename=one\r\n\r\n--xyz\r\n\
            Content-Disposition: x; filename=two\r\n\r\nattack\r\n--xyz--";
        for step in [1, 2, 5, 4096] {
            let (data, names, events) = parsed(body, step);
            assert_eq!(data, ["", "attack"], "in steps of {step}");
            assert_eq!(names, ["one", "two"]);
            assert_eq!(events, ["http.multipart_no_filedata"]);
        }
    }

    #[test]
    fn lines_of_a_form_may_end_with_line_feed_alone() {
        let text = String::from_utf8_lossy(BODY).replace("\r\n", "\n");
        for step in [1, 2, 5, 4096] {
            let (data, names, events) = parsed(text.as_bytes(), step);
            assert_eq!(data, ["first\n--xy line", ""], "in steps of {step}");
            assert_eq!(names, ["one.txt", "two"]);
            assert_eq!(
                events,
                ["http.multipart_generic_error", "http.multipart_no_filedata"]
            );
        }
    }

    #[test]
    fn a_boundary_behind_line_feed_alone_hides_neither_a_file_nor_bytes_of_one() {
        let body = b"--xyz\r\nContent-Disposition: x; filename=one\r\n\r\nfirst\n--xyz\r\na: b\r\n\r\nattack\n--xyz--\n\
            more\r\n--xyz\r\nContent-Disposition: x; name=a\r\n\r\nvalue\n--xyz\n\
            Content-Disposition: x; filename=two\n\nattack\r\n--xyz--\r\n";
        for step in [1, 2, 5, 4096] {
            let (data, names, events) = parsed(body, step);
            let first = "first\n--xyz\r\na: b\r\n\r\nattack\n--xyz--\nmore";
            assert_eq!(data, [first, "attack"], "in steps of {step}");
            assert_eq!(names, ["one", "two"]);
            assert_eq!(events, ["http.multipart_generic_error"]);
        }
    }

    #[test]
    fn both_forms_of_a_file_name_are_published() {
        let body = b"--xyz\r\nContent-Disposition: form-data; filename=a.txt; filename*=UTF-8''a%2eexe\r\n\r\nx\r\n--xyz\r\n\
            Content-Disposition: form-data; filename*=UTF-8''b.exe\r\n\r\ny\r\n--xyz--";
        let (data, names, _) = parsed(body, 4096);
        assert_eq!(data, ["x", "y"]);
        assert_eq!(names, ["a.exe", "a.txt", "b.exe"]);
    }

    #[test]
    fn headers_end_at_an_empty_line_in_any_segmentation() {
        for (text, end) in [
            (&b"\r\nx"[..], Some((0, 1))),
            (b"\nx", Some((0, 0))),
            (b"a: b\r\n\r\n", Some((6, 7))),
            (b"a: b\n\r\n", Some((5, 6))),
            (b"a: b\r\nc\n\n", Some((8, 8))),
            (b"a: b\r\n\rc\n", None),
            (b"a: b\n\r", None),
        ] {
            assert_eq!(headers_end(text, 0).0, end, "{}", text.escape_ascii());
            let mut from = 0;
            let found = (1..=text.len()).find_map(|size| {
                let (found, searched) = headers_end(&text[..size], from);
                from = searched;
                found
            });
            assert_eq!(found, end, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn boundaries_without_headers_are_searched_once() {
        for piece in [usize::MAX, 1000] {
            let mut transaction = Transaction::new(0, AppProtocol::Http);
            let mut multipart = Multipart::for_content_type(b"multipart/form-data; boundary=b").unwrap();
            let settings = AppSettings::default();
            let file = b"\n--b\nContent-Disposition: form-data; filename=a\n\nattack\n--b--\n";
            let boundaries = b"--b\n".repeat(64 << 10);
            for bytes in boundaries.chunks(piece).chain([&file[..]]) {
                multipart.data(bytes, &mut transaction, Direction::ToServer, &settings);
            }
            multipart.end(&mut transaction);
            let searched = multipart.searched_total;
            assert!(searched <= boundaries.len() + file.len(), "{searched} bytes");
            assert!(transaction.events.contains(&"http.multipart_invalid_header"));
            assert_eq!(
                transaction.buffer(Buffer::FileData, Direction::ToServer),
                Some(&b"attack"[..])
            );
        }
    }

    #[test]
    fn files_beyond_the_limit_are_an_event() {
        for (count, exceeds) in [(FILES, false), (FILES + 1, true)] {
            let mut transaction = Transaction::new(0, AppProtocol::Http);
            let mut multipart = Multipart::for_content_type(b"multipart/form-data; boundary=b").unwrap();
            let part = "--b\r\nContent-Disposition: form-data; filename=a\r\n\r\nx\r\n".repeat(count);
            let body = part + "--b--\r\n";
            let settings = AppSettings::default();
            multipart.data(body.as_bytes(), &mut transaction, Direction::ToServer, &settings);
            assert_eq!(transaction.files.len(), FILES);
            assert_eq!(transaction.exceeds_limits, exceeds);
            assert_eq!(
                transaction.events.contains(&"http.multipart_too_many_files"),
                exceeds
            );
        }
    }
}
