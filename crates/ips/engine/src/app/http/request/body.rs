//! The body of a request: its framing, its bytes and its end.

use millrace_ips_rules::buffers::Buffer;

use super::{RequestSide, SIDE, State};
use crate::app::AppSettings;
use crate::app::http::body::{Body, Undoing};
use crate::app::http::chunked::Chunked;
use crate::app::http::headers::{contains_chunked, content_length};
use crate::app::http::pairing::Pairing;
use crate::app::http::publish::update_record;
use crate::app::http::readings::{Framing, Kind, framed};
use crate::app::http::request_line::is_http_11;
use crate::app::transaction::{Progress, Transactions};

impl RequestSide {
    /// Decides from the headers how the body ends, and opens it.
    pub(super) fn decide_body(
        &mut self,
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) {
        let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) else {
            return;
        };
        if self.line.method() == b"CONNECT" {
            let forced = self.reading.as_mut().and_then(|reading| reading.framing.take());
            self.state = match forced {
                Some(_) => State::Line,
                None => State::Connect,
            };
            self.complete(out);
            return;
        }
        let is_http_11 = self.line.protocol().is_some_and(is_http_11);
        for event in self.headers.ambiguities(is_http_11) {
            self.is_ambiguous = true;
            transaction.raise(event);
            transaction.is_ambiguous = true;
        }
        let length = self.headers.find(b"content-length");
        let coding = self.headers.value(b"transfer-encoding");
        let tolerant = self.headers.framing(b"transfer-encoding");
        let is_chunked = tolerant.is_some_and(|value| contains_chunked(&value));
        if coding.is_some() && (!is_chunked || length.is_some() || !is_http_11) {
            transaction.raise("http.invalid_transfer_encoding_value_in_request");
        }
        // RFC 9112, section 6.3, rule 4 does not define the end of the body. Some servers use Content-Length.
        let is_undefined =
            coding.is_some_and(|value| !is_chunked && !value.eq_ignore_ascii_case(b"identity"));
        if is_undefined && settings.is_inline {
            return self.refuse(pairing, out);
        }
        let mut state = State::Line;
        if is_chunked {
            state = State::Chunked(Chunked::Size);
        } else if let Some(header) = length {
            if header.is_repeated || header.is_folded {
                transaction.raise("http.invalid_content_length_field_in_request");
            }
            match content_length(header.value) {
                Some(0) => {}
                Some(size) => state = State::Sized(size),
                None => transaction.raise("http.invalid_content_length_field_in_request"),
            }
        }
        let forced = self.reading.as_mut().and_then(|reading| reading.framing.take());
        if let Some(framing) = forced {
            state = match framing {
                Framing::None => State::Line,
                Framing::Chunked => State::Chunked(Chunked::Size),
                Framing::Sized(0) => State::Line,
                Framing::Sized(size) => State::Sized(size),
                Framing::Plain => State::Sized(u64::MAX),
            };
        }
        self.state = state;
        if self.is_ambiguous && forced.is_none() {
            self.fork_end(state);
        }
        if state == State::Line {
            self.complete(out);
            return;
        }
        let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) else {
            return;
        };
        let normal = transaction.buffer(Buffer::HttpUri, SIDE).unwrap_or_default();
        let path = normal.split(|&byte| byte == b'?').next().unwrap_or_default();
        let name = path.to_vec();
        transaction.advance(SIDE, Progress::Body);
        self.body = Some(Body::open(
            transaction,
            SIDE,
            &self.headers,
            &name,
            (settings, Undoing::Declared),
        ));
    }

    /// Asks for the readings in which the request ends elsewhere than with `state`.
    fn fork_end(&mut self, state: State) {
        let mut others = vec![State::Line, State::Chunked(Chunked::Size)];
        let lengths = self.headers.lengths();
        others.extend(lengths.into_iter().filter(|size| *size > 0).map(State::Sized));
        others.retain(|other| *other != state);
        let framing = |other| match other {
            State::Chunked(_) => Framing::Chunked,
            State::Sized(size) => Framing::Sized(size),
            _ => Framing::None,
        };
        self.fork(Kind::End, others.into_iter().map(framing).map(framed));
    }

    /// Passes bytes to the body.
    pub(super) fn write_body(&mut self, bytes: &[u8], out: &mut Transactions, settings: &AppSettings) {
        if let Some((body, transaction)) = self
            .body
            .as_mut()
            .zip(self.transaction.and_then(|id| out.by_id(id)))
        {
            body.write(transaction, bytes, settings);
        }
    }

    /// Closes the body, if one is open.
    pub(super) fn close_body(&mut self, out: &mut Transactions, is_complete: bool) {
        let Some(mut body) = self.body.take() else { return };
        if let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) {
            body.close(transaction, is_complete);
            update_record(transaction, |record| record.request_length = body.length);
        }
    }

    /// Ends a request with its body.
    pub(super) fn finish(&mut self, out: &mut Transactions) {
        self.close_body(out, true);
        self.complete(out);
        self.state = State::Line;
    }

    /// Marks the request as complete.
    pub(super) fn complete(&mut self, out: &mut Transactions) {
        self.is_open = false;
        if let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) {
            transaction.advance(SIDE, Progress::Complete);
            // The response belongs to another reading.
            if self.reading.is_some() {
                transaction.advance(SIDE.reverse(), Progress::Complete);
            }
        }
    }

    /// Ends a request whose body the server refuses.
    pub(super) fn refuse_body(&mut self, out: &mut Transactions) {
        if matches!(self.state, State::Sized(_) | State::Chunked(Chunked::Size))
            && self.body.as_ref().is_some_and(|body| body.length == 0)
        {
            self.finish(out);
        }
    }
}
