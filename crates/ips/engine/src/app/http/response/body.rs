//! The body of a response: its framing, its bytes and its end.

use super::{ResponseSide, SIDE, State};
use crate::app::AppSettings;
use crate::app::file::NAME_SIZE;
use crate::app::http::body::{Body, Undoing};
use crate::app::http::chunked::Chunked;
use crate::app::http::framing;
use crate::app::http::headers::{contains_chunked, content_length};
use crate::app::http::pairing::{Method, Pairing};
use crate::app::http::publish::update_record;
use crate::app::http::readings::{Framing, Kind, framed};
use crate::app::http::request_line::is_http_11;
use crate::app::http::step::Step;
use crate::app::parameter::file_names;
use crate::app::ranges::ContentRange;
use crate::app::transaction::{Progress, Transactions};
use millrace_ips_rules::buffers::Buffer;

impl ResponseSide {
    /// Decides from the status and the headers how the body ends, and opens it.
    pub(super) fn decide_body(
        &mut self,
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) {
        let Some(current) = &self.current else { return };
        let status = self.status.unwrap_or(0);
        if current.method == Method::Connect && !self.is_interim() {
            let is_accepted = (200..300).contains(&status);
            if status != 407 || pairing.connect.is_none() {
                pairing.connect = Some(is_accepted);
            }
            if is_accepted {
                self.finish(out, true);
                self.state = State::Tunnel;
                return;
            }
        }
        if status == 101 && !self.has_framing() {
            self.finish(out, true);
            pairing.is_tunnel = true;
            self.state = State::Tunnel;
            return;
        }
        if (400..500).contains(&status) && current.expects_continue {
            pairing.refuses_body = Some(current.transaction);
        }
        if !has_no_body(current.method, status) {
            self.begin_body(pairing, out, settings);
        } else if current.method != Method::Head && self.has_framing() {
            self.state = State::Bodiless;
        } else {
            self.end_bodiless(out);
        }
    }

    /// Decides whether the next bytes are a response, after a response without a body whose headers announce one.
    ///
    /// RFC 9112, section 6.3 ends such a response with its headers, and RFC 9110, section 8.6 allows a Content-Length
    /// in a response 304. If other bytes follow, some recipients take them as the body that the headers announce.
    pub(super) fn bodiless(
        &mut self,
        data: &[u8],
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) -> Step {
        match begins_response(data) {
            None => return Step::NeedMore,
            Some(true) => self.end_bodiless(out),
            Some(false) => {
                self.differ(out, framing::BODY);
                self.begin_body(pairing, out, settings);
            }
        }
        Step::Consumed(0)
    }

    /// Returns true if the headers announce a body: by a Transfer-Encoding, or by a Content-Length other than 0.
    pub(super) fn has_framing(&self) -> bool {
        let length = self.headers.value(b"content-length");
        length.is_some_and(|value| content_length(value) != Some(0))
            || self.headers.value(b"transfer-encoding").is_some()
    }

    /// Returns true if the response precedes the final one (RFC 9110, section 15.2).
    pub(super) fn is_interim(&self) -> bool {
        self.status
            .is_some_and(|status| (100..200).contains(&status) && status != 101)
    }

    /// Ends a response without body. After an interim response, the final one to the same request follows.
    pub(super) fn end_bodiless(&mut self, out: &mut Transactions) {
        if !self.is_interim() {
            return self.finish(out, true);
        }
        let current = self.current.as_ref();
        let Some(transaction) = current.and_then(|current| out.by_id(current.transaction)) else {
            self.state = State::Failed;
            return;
        };
        if self.status == Some(100) && core::mem::replace(&mut self.has_continued, true) {
            transaction.raise("http.100_continue_already_seen");
        }
        transaction.remove_direction(SIDE, &[Buffer::HttpResponseLine, Buffer::HttpProtocol]);
        self.headers.clear();
        self.state = State::Line;
    }

    /// Decides from the headers how the body ends, and opens it.
    fn begin_body(&mut self, pairing: &mut Pairing, out: &mut Transactions, settings: &AppSettings) {
        let Some(current) = &self.current else { return };
        let Some(transaction) = out.by_id(current.transaction) else {
            self.state = State::Failed;
            return;
        };
        let is_http_11 = is_http_11(&self.protocol);
        for event in self.headers.ambiguities(is_http_11) {
            self.is_ambiguous = true;
            transaction.raise(event);
            transaction.is_ambiguous = true;
        }
        let coding = self.headers.framing(b"transfer-encoding");
        if coding.as_deref().is_some_and(|value| !contains_chunked(value)) {
            transaction.raise("http.invalid_transfer_encoding_value_in_response");
        }
        let length = self.headers.find(b"content-length");
        let mut state = State::UntilClose;
        let forced = self.reading.as_mut().and_then(|reading| reading.framing.take());
        if let Some(framing) = forced {
            self.is_plain = framing == Framing::Plain;
            state = match framing {
                Framing::Chunked => State::Chunked(Chunked::Size),
                Framing::Sized(size) => State::Sized(size),
                Framing::Plain | Framing::None => State::UntilClose,
            };
        } else if let Some(value) = coding.filter(|value| contains_chunked(value)) {
            if !value.eq_ignore_ascii_case(b"chunked") {
                transaction.raise("http.response_abnormal_transfer_encoding");
            }
            if !is_http_11 {
                transaction.raise("http.response_chunked_old_proto");
            }
            state = State::Chunked(Chunked::Size);
        } else if let Some(header) = length {
            match content_length(header.value) {
                // Other recipients find a body.
                Some(0) if self.is_ambiguous => {}
                Some(0) => {
                    self.finish(out, true);
                    return;
                }
                Some(size) => state = State::Sized(size),
                None => {
                    transaction.raise("http.invalid_content_length_field_in_response");
                    if settings.is_inline {
                        return self.refuse(pairing, out);
                    }
                }
            }
        }
        transaction.advance(SIDE, Progress::Body);
        self.state = state;
        if self.is_ambiguous && forced.is_none() {
            let chunked = (!matches!(state, State::Chunked(_))).then_some(Framing::Chunked);
            let lengths = self.headers.lengths().into_iter();
            let sized = lengths.filter(|size| State::Sized(*size) != state && *size > 0);
            let framings = chunked.into_iter().chain(sized.map(Framing::Sized));
            let framings: Vec<Framing> = framings.chain([Framing::Plain]).collect();
            self.fork(Kind::End, framings.into_iter().map(framed));
        }
        self.open_body(out, settings);
    }

    /// Returns true if only the boundaries of the media type `multipart/byteranges` mark the end of the body.
    ///
    /// Recipients disagree on such a response: RFC 2616, section 4.4 ends the body with the last boundary, and RFC 9112,
    /// section 6.3 with the connection.
    pub(super) fn needs_boundary(&self) -> bool {
        let has_framing = self.headers.find(b"content-length").is_some()
            || self.headers.value(b"transfer-encoding").is_some();
        let current = self.current.as_ref();
        let has_body = current.is_some_and(|current| !has_no_body(current.method, self.status.unwrap_or(0)));
        has_body && !has_framing && self.has_byte_ranges()
    }

    /// Returns true if the body has several parts of the content.
    pub(super) fn has_byte_ranges(&self) -> bool {
        let media_type = self.headers.value(b"content-type").unwrap_or_default();
        media_type
            .get(..BYTE_RANGES.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(BYTE_RANGES))
    }

    /// Begins the body of the current response: advances its transaction, and opens a file with the name that headers
    /// or URI give.
    pub(super) fn open_body(&mut self, out: &mut Transactions, settings: &AppSettings) {
        let Some(current) = &self.current else { return };
        let Some(transaction) = out.by_id(current.transaction) else {
            return;
        };
        transaction.advance(SIDE, Progress::Body);
        let disposition = self.headers.value(b"content-disposition");
        let names = disposition.map(file_names).unwrap_or_default();
        if names.iter().any(|name| name.len() > NAME_SIZE) {
            transaction.raise("http.file_name_too_long");
        }
        if self
            .headers
            .value(b"content-range")
            .is_some_and(|value| ContentRange::parse(value).is_none())
        {
            transaction.raise("http.range_invalid");
        }
        let name = names.first().unwrap_or(&current.file_name);
        let undoing = match (self.is_plain, self.is_ambiguous) {
            (true, _) => Undoing::Nothing,
            (false, false) => Undoing::Declared,
            (false, true) => Undoing::Any,
        };
        self.body = Some(Body::open(
            transaction,
            SIDE,
            &self.headers,
            name,
            (settings, undoing),
        ));
        for other in names.into_iter().skip(1) {
            transaction.publish(Buffer::FileName, SIDE, other);
        }
        let has_range = transaction.range.is_some();
        out.has_ranges |= has_range;
    }

    /// Passes bytes to the body.
    pub(super) fn write_body(&mut self, bytes: &[u8], out: &mut Transactions, settings: &AppSettings) {
        let transaction = self
            .current
            .as_ref()
            .and_then(|current| out.by_id(current.transaction));
        if let Some((body, transaction)) = self.body.as_mut().zip(transaction) {
            body.write(transaction, bytes, settings);
        }
    }

    /// Closes the body, if one is open.
    pub(super) fn close_body(&mut self, out: &mut Transactions, is_complete: bool) {
        let Some(mut body) = self.body.take() else { return };
        if let Some(transaction) = self
            .current
            .as_ref()
            .and_then(|current| out.by_id(current.transaction))
        {
            body.close(transaction, is_complete);
            update_record(transaction, |record| record.length = body.length);
        }
    }

    /// Ends a response.
    pub(super) fn finish(&mut self, out: &mut Transactions, is_complete: bool) {
        self.close_body(out, is_complete);
        if let Some(current) = self.current.take() {
            if let Some(transaction) = out.by_id(current.transaction) {
                transaction.advance(SIDE, Progress::Complete);
            }
            self.previous = Some(current.transaction);
        }
        // A further reading is one of the first response.
        self.state = match self.reading {
            Some(_) => State::Failed,
            None => State::Idle,
        };
    }
}

/// Returns true if a response ends with its headers (RFC 9112, section 6.3).
fn has_no_body(method: Method, status: u16) -> bool {
    method == Method::Head || matches!(status, 100..=199 | 204 | 304)
}

/// Returns true if bytes begin a response, perhaps after empty lines; `None` if more bytes are needed.
fn begins_response(data: &[u8]) -> Option<bool> {
    const LINE_ENDS_MAX: usize = 16;
    let blank = data.iter().take(LINE_ENDS_MAX);
    let start = blank.take_while(|byte| b"\r\n".contains(byte)).count();
    let head = &data[start..data.len().min(start + VERSION.len())];
    match VERSION[..head.len()].eq_ignore_ascii_case(head) {
        true if head.len() < VERSION.len() => None,
        is_begin => Some(is_begin),
    }
}

/// The first bytes of a response.
const VERSION: &[u8] = b"HTTP/";

/// The media type whose boundaries end a body in RFC 2616.
const BYTE_RANGES: &[u8] = b"multipart/byteranges";
