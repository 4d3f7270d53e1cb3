//! The status line of a response, and other bytes that a server sends instead of one.

use millrace_ips_rules::buffers::Buffer;

use super::line_kind::{LineKind, line_kind};
use super::{ResponseSide, SIDE, State};
use crate::app::AppSettings;
use crate::app::http::framing;
use crate::app::http::headers::{Lines, line};
use crate::app::http::pairing::Pairing;
use crate::app::http::publish::update_record;
use crate::app::http::readings::{Kind, Reading, of_lines};
use crate::app::http::step::{BLOCK_ROOM, Step};
use crate::app::transaction::Transactions;

impl ResponseSide {
    /// Decides between responses whether the next bytes begin one.
    pub(super) fn idle(
        &mut self,
        data: &[u8],
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) -> Step {
        let is_http_09 = pairing.waiting.front().is_some_and(|waiting| waiting.is_http_09);
        if is_http_09 && line_kind(data) == LineKind::Undecided {
            return Step::NeedMore;
        }
        if is_http_09 && line_kind(data) == LineKind::Other {
            self.begin(pairing, out);
            self.open_body(out, settings);
            self.state = State::UntilClose;
            return Step::Consumed(0);
        }
        // Without a waiting request, bytes that are no status line belong to the previous response.
        if pairing.waiting.is_empty()
            && let Some(previous) = self.previous
        {
            match line_kind(data) {
                LineKind::Undecided => return Step::NeedMore,
                LineKind::Status => {}
                LineKind::Other => {
                    if let Some(transaction) = out.by_id(previous) {
                        transaction.raise("http.response_body_unexpected");
                    }
                    self.state = State::TrailingBytes;
                    return Step::Consumed(0);
                }
            }
        }
        self.begin(pairing, out);
        self.state = State::Line;
        Step::Consumed(0)
    }

    /// Reads the first line. Bytes that are no status line are a body without headers.
    pub(super) fn first_line(&mut self, data: &[u8], out: &mut Transactions, settings: &AppSettings) -> Step {
        let complete = line(data, self.lines(), false);
        let text = complete.map_or(data, |(end, _)| &data[..end]);
        let is_blank = text
            .iter()
            .all(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b));
        match (line_kind(text), complete) {
            (_, Some((_, next))) if is_blank => {
                if !text.is_empty() {
                    self.differ(out, framing::START_LINE);
                }
                Step::Consumed(next)
            }
            (LineKind::Status, Some((_, next))) => {
                if core::mem::take(&mut self.has_skipped) {
                    self.differ(out, framing::START_LINE);
                }
                self.status_line(text, out);
                self.position.ahead = next as u64;
                if self.head.capacity() == 0 {
                    self.head.reserve_exact(data.len().min(BLOCK_ROOM));
                }
                self.head.extend_from_slice(&data[..next]);
                let line_end = self.section.line_end(&data[..next]);
                if line_end.is_some() {
                    self.fork(Kind::Lines, of_lines(Lines::of(SIDE)));
                }
                for event in framing::status_line(text).into_iter().chain(line_end) {
                    self.differ(out, event);
                }
                Step::Consumed(next)
            }
            (LineKind::Other | LineKind::Undecided, Some((_, next)))
                if self.reading.is_some_and(|reading| reading.skips_lines) =>
            {
                self.has_skipped = true;
                Step::Consumed(next)
            }
            (LineKind::Other, None) if self.reading.is_some_and(|reading| reading.skips_lines) => {
                Step::NeedMore
            }
            (LineKind::Other, _) | (LineKind::Undecided, Some(_)) => {
                // The bytes are a body without headers, as browsers take them. Others look for the status line, and the message
                // has several readings only if one follows.
                self.fork(
                    Kind::Start,
                    [Reading {
                        skips_lines: true,
                        ..Reading::default()
                    }],
                );
                self.open_body(out, settings);
                self.state = State::UntilClose;
                Step::Consumed(0)
            }
            (LineKind::Undecided | LineKind::Status, None) => Step::NeedMore,
        }
    }

    /// Publishes the parts of a status line.
    pub(super) fn status_line(&mut self, text: &[u8], out: &mut Transactions) {
        let Some(transaction) = self
            .current
            .as_ref()
            .and_then(|current| out.by_id(current.transaction))
        else {
            self.state = State::Failed;
            return;
        };
        let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
        let start = text
            .iter()
            .position(|byte| !is_space(byte) && *byte != 0)
            .unwrap_or(text.len());
        let body = &text[start..];
        let protocol = &body[..body.iter().position(is_space).unwrap_or(body.len())];
        let rest = &body[protocol.len()..];
        let rest = &rest[rest.iter().take_while(|byte| is_space(byte)).count()..];
        let status = &rest[..rest.iter().position(is_space).unwrap_or(rest.len())];
        let tail = &rest[status.len()..];
        let message = &tail[tail.iter().take_while(|byte| is_space(byte)).count()..];
        transaction.replace(Buffer::HttpResponseLine, SIDE, text);
        transaction.replace(Buffer::HttpProtocol, SIDE, protocol);
        if !status.is_empty() {
            transaction.replace(Buffer::HttpStatCode, SIDE, status);
            if !tail.is_empty() {
                transaction.replace(Buffer::HttpStatMsg, SIDE, message);
            }
        }
        let number = core::str::from_utf8(status)
            .ok()
            .and_then(|text| text.parse::<u16>().ok());
        self.status = number.filter(|status| (100..=999).contains(status));
        self.protocol = protocol.to_vec();
        if self.status.is_none() {
            transaction.raise("http.response_invalid_status");
        }
        let upper = protocol.to_ascii_uppercase();
        if !(upper.starts_with(b"HTTP/") && (upper.ends_with(b"1.0") || upper.ends_with(b"1.1"))) {
            transaction.raise("http.response_invalid_protocol");
        }
        let status = self.status;
        update_record(transaction, |record| record.status = status);
        self.state = State::Headers;
    }
}
