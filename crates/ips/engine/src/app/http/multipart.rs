//! Files in the body of a request of type multipart/form-data (RFC 7578).

use millrace_ips_rules::buffers::Buffer;

use super::headers::Headers;
use crate::app::AppSettings;
use crate::app::file::File;
use crate::app::heap::heap;
pub(super) use crate::app::parameter::parameter;
use crate::app::transaction::Transaction;
use crate::flow::Direction;

/// Largest size of a boundary (RFC 2046, section 5.1.1, allows 70).
const BOUNDARY_SIZE: usize = 200;
/// Largest size of the headers of a part.
const HEADERS_SIZE: usize = 8192;
/// Largest number of files of a body.
const FILES: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first boundary, or in a part without file name.
    Skip,
    /// In the headers of a part.
    Headers,
    /// In the bytes of a file: index of its buffer and of the file.
    File(usize, usize),
    /// Behind the last boundary.
    Ended,
}

/// A multipart body in progress.
#[derive(Debug)]
pub(super) struct Multipart {
    /// Line end, two hyphens, boundary.
    delimiter: Vec<u8>,
    pending: Vec<u8>,
    state: State,
    /// Number of files so far.
    files: usize,
}

heap!(Multipart { delimiter, pending });

impl Multipart {
    /// Returns a parser for a Content-Type value, if it is of a multipart form with a boundary.
    pub(super) fn for_content_type(value: &[u8]) -> Option<Multipart> {
        const TYPE: &[u8] = b"multipart/form-data";
        let is_form = value.len() >= TYPE.len() && value[..TYPE.len()].eq_ignore_ascii_case(TYPE);
        if !is_form {
            return None;
        }
        let boundary = parameter(value, b"boundary").filter(|boundary| !boundary.is_empty())?;
        let mut delimiter = b"\r\n--".to_vec();
        delimiter.extend_from_slice(&boundary[..boundary.len().min(BOUNDARY_SIZE)]);
        // The first boundary has no line end before it.
        Some(Multipart {
            delimiter,
            pending: b"\r\n".to_vec(),
            state: State::Skip,
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
                    let Some(end) = find(rest, b"\r\n\r\n") else {
                        if rest.len() > HEADERS_SIZE {
                            transaction.raise("http.multipart_invalid_header");
                            self.state = State::Skip;
                            continue;
                        }
                        break;
                    };
                    let block = rest[..end + 2].to_vec();
                    // The last line end may begin the delimiter that follows an empty part.
                    at += end + 2;
                    self.state = self.open_part(&block, transaction, direction, settings);
                    // The empty line is not part of the content.
                    if !self.pending[at..].starts_with(&self.delimiter) {
                        at += 2;
                    }
                }
                State::Skip | State::File(..) => {
                    let found = find(rest, &self.delimiter);
                    // Bytes that may begin a delimiter wait for more.
                    let size = found.unwrap_or_else(|| rest.len() - partial(rest, &self.delimiter));
                    if let State::File(buffer, file) = self.state {
                        transaction.append(buffer, &rest[..size], settings.request_body_limit);
                        if let Some(file) = transaction.files.get_mut(file) {
                            file.update(&rest[..size]);
                        }
                    }
                    at += size;
                    if found.is_none() {
                        break;
                    }
                    let Some(tail) = self
                        .pending
                        .get(at + self.delimiter.len()..)
                        .filter(|tail| tail.len() >= 2)
                    else {
                        break;
                    };
                    let is_last = tail.starts_with(b"--");
                    at += self.delimiter.len();
                    self.close_part(transaction);
                    self.state = if is_last { State::Ended } else { State::Headers };
                    if !is_last {
                        // The line end behind the delimiter.
                        at += usize::from(self.pending[at..].starts_with(b"\r\n")) * 2;
                    }
                }
            }
        }
        self.pending.drain(..at);
    }

    /// Ends the body.
    pub(super) fn end(&mut self, transaction: &mut Transaction) {
        if self.state != State::Ended {
            transaction.raise("http.multipart_generic_error");
        }
        if let State::File(buffer, file) = self.state {
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
        headers.add_block(block, direction, &mut Vec::new());
        let name = headers
            .value(b"content-disposition")
            .and_then(|value| parameter(value, b"filename"));
        let Some(name) = name else {
            return State::Skip;
        };
        if self.files >= FILES {
            transaction.raise("http.multipart_too_many_files");
            transaction.exceeds_limits = true;
            return State::Skip;
        }
        self.files += 1;
        transaction.publish(Buffer::FileName, direction, name.clone());
        let buffer = transaction.open(Buffer::FileData, None, direction, settings.request_body_minimum);
        transaction
            .files
            .push(File::new(direction, &name, settings.hashes_files));
        State::File(buffer, transaction.files.len() - 1)
    }

    fn close_part(&mut self, transaction: &mut Transaction) {
        if let State::File(buffer, file) = self.state {
            transaction.close(buffer);
            if let Some(file) = transaction.files.get_mut(file) {
                file.close(true);
            }
        }
    }
}

/// Returns the offset of the first occurrence of `what`.
fn find(data: &[u8], what: &[u8]) -> Option<usize> {
    data.windows(what.len()).position(|window| window == what)
}

/// Returns the size of the longest tail of `data` with which `what` begins.
fn partial(data: &[u8], what: &[u8]) -> usize {
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

    #[test]
    fn files_of_a_form_are_found_in_any_segmentation() {
        for step in [1, 2, 5, 4096] {
            let mut transaction = Transaction::new(0, AppProtocol::Http);
            let mut multipart =
                Multipart::for_content_type(b"multipart/form-data; boundary=\"xyz\"").unwrap();
            for chunk in BODY.chunks(step) {
                multipart.data(
                    chunk,
                    &mut transaction,
                    Direction::ToServer,
                    &AppSettings::default(),
                );
            }
            multipart.end(&mut transaction);
            let data: Vec<_> = transaction
                .buffers(Buffer::FileData, Direction::ToServer)
                .map(|v| v.bytes)
                .collect();
            assert_eq!(data, [&b"first\r\n--xy line"[..], b""], "in steps of {step}");
            assert_eq!(transaction.files[0].name, b"one.txt");
            assert_eq!(transaction.files[1].name, b"two");
            assert!(transaction.events.is_empty());
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
