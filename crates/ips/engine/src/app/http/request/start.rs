//! The beginning of a request with its line.
//!
//! A server may answer before the line is complete. The response then belongs to the request whose line has begun: the
//! transaction begins with the response, and gets the buffers of the request once the line is complete.
//!
//! ```text
//!  client  GET /a                              b HTTP/1.1
//!             │                                     │
//!  server     └─ HTTP/1.1 408: `HalfLine::begin` ───┴─▶ one transaction
//! ```

use millrace_ips_rules::buffers::Buffer;

use super::host::is_valid_host;
use super::{RequestSide, SIDE, State};
use crate::app::AppProtocol;
use crate::app::AppSettings;
use crate::app::http::framing::{self, Section};
use crate::app::http::headers::{Lines, line};
use crate::app::http::pairing::{HalfLine, Method, Pairing, Waiting, file_name};
use crate::app::http::publish::update_record;
use crate::app::http::readings::{Kind, of_lines};
use crate::app::http::request_line::{METHODS, RequestLine, is_encoded_twice};
use crate::app::http::step::{BLOCK_ROOM, Step};
use crate::app::http::uri::Uri;
use crate::app::transaction::{Progress, Transactions};

impl RequestSide {
    /// Lends the incomplete line of a request to the pairing, while bytes of the server are parsed.
    pub(in crate::app::http) fn lend_line(&mut self, pairing: &mut Pairing) {
        if self.state == State::Line && !self.is_answered {
            pairing.half_line = HalfLine {
                text: core::mem::take(&mut self.pending),
                begin: self.position.next,
                is_later: self.transaction.is_some(),
                answered: None,
            };
        }
    }

    /// Takes the incomplete line back.
    pub(in crate::app::http) fn take_line_back(&mut self, pairing: &mut Pairing) {
        let half = core::mem::take(&mut pairing.half_line);
        if !half.text.is_empty() {
            self.pending = half.text;
        }
        if half.answered.is_some() {
            self.transaction = half.answered;
            self.is_open = true;
            self.is_answered = true;
        }
    }

    pub(super) fn first_line(
        &mut self,
        data: &[u8],
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) -> Step {
        let Some((end, next)) = line(data, self.lines(), false) else {
            return Step::NeedMore;
        };
        let text = &data[..end];
        if text.is_empty() {
            return Step::Consumed(next);
        }
        if settings.is_inline && !settings.is_asymmetric && pairing.awaits_upgrade.is_some() {
            // If the server changes the protocol, the bytes are not requests.
            self.differ(out, framing::TUNNEL);
        }
        if let Some(previous) = self.transaction.filter(|_| !self.is_answered) {
            let mut parsed = RequestLine::default();
            parsed.parse(text);
            if parsed.protocol().is_none() && !METHODS.contains(&parsed.method()) {
                if let Some(transaction) = out.by_id(previous) {
                    transaction.raise("http.request_body_unexpected");
                }
                return Step::Consumed(next);
            }
        }
        self.start(text, pairing, out);
        self.position.ahead = next as u64;
        if self.head.capacity() == 0 {
            self.head.reserve_exact(data.len().min(BLOCK_ROOM));
        }
        self.head.extend_from_slice(&data[..next]);
        let line_end = self.section.line_end(&data[..next]);
        if line_end.is_some() {
            self.fork(Kind::Lines, of_lines(Lines::of(SIDE)));
        }
        for event in framing::request_line(text).into_iter().chain(line_end) {
            self.differ(out, event);
        }
        Step::Consumed(next)
    }

    /// Begins a request with its first line.
    pub(super) fn start(&mut self, text: &[u8], pairing: &mut Pairing, out: &mut Transactions) {
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        self.line.parse(text);
        self.headers.clear();
        self.block.clear();
        self.head.clear();
        self.section = Section::default();
        self.checked = 0;
        self.is_ambiguous = false;
        self.forks.begin();
        self.body = None;
        self.is_open = true;
        let request = &self.line;
        let answered = self
            .transaction
            .filter(|_| core::mem::take(&mut self.is_answered));
        let known = answered.and_then(|id| out.by_id(id));
        let transaction = match known {
            Some(transaction) => transaction,
            None => out.start(AppProtocol::Http),
        };
        transaction.begin[SIDE.index()] = Some(self.position.start());
        transaction.is_reading = self.reading.is_some();
        self.transaction = Some(transaction.id);
        transaction.publish(Buffer::HttpRequestLine, SIDE, text);
        transaction.publish(Buffer::HttpMethod, SIDE, request.method());
        let uri = request.uri().unwrap_or_default();
        if request.uri().is_some() {
            transaction.publish(Buffer::HttpUriRaw, SIDE, uri);
        }
        let method = Method::of(request.method());
        let parsed = if method == Method::Connect {
            Uri::parse_host(uri)
        } else {
            Uri::parse(uri)
        };
        let normal = if method == Method::Connect {
            None
        } else {
            parsed.normalise()
        };
        if let Some(normal) = &normal {
            transaction.publish(Buffer::HttpUri, SIDE, normal.as_slice());
        }
        if let Some(cut) = request.cut_uri() {
            transaction.publish(Buffer::HttpUriRaw, SIDE, cut);
            if let Some(normal) = Uri::parse(cut).normalise() {
                transaction.publish(Buffer::HttpUri, SIDE, normal.as_slice());
            }
        }
        if let Some(protocol) = request.protocol() {
            transaction.publish(Buffer::HttpProtocol, SIDE, protocol);
        }
        if request.has_leading_space {
            transaction.raise("http.request_line_leading_whitespace");
        }
        if request.has_odd_delimiter {
            transaction.raise("http.method_delim_non_compliant");
        }
        if request.has_odd_uri {
            transaction.raise("http.uri_delim_non_compliant");
        }
        if !request.is_valid() {
            transaction.raise("http.request_line_invalid");
        }
        if is_encoded_twice(uri) {
            transaction.raise("http.double_encoded_uri");
        }
        if parsed.host.is_some_and(|host| !is_valid_host(host)) {
            transaction.raise("http.request_uri_host_invalid");
        }
        transaction.advance(SIDE, Progress::Started);
        update_record(transaction, |record| {
            record.method = request.method().to_vec();
            record.url = uri.to_vec();
            record.protocol = request.protocol().unwrap_or_default().to_vec();
        });
        if answered.is_none() {
            pairing.push(Waiting {
                transaction: transaction.id,
                method,
                is_http_09: self.line.protocol().is_none(),
                expects_continue: false,
                file_name: file_name(normal.as_deref().unwrap_or_default()),
            });
        }
        self.state = if self.line.protocol().is_some() {
            State::Headers
        } else {
            State::Http09
        };
        if self.state == State::Http09 && self.reading.is_some_and(|reading| reading.is_http_09) {
            self.finish(out);
        }
    }
}
