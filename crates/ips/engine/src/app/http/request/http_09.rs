//! Requests without protocol: those of HTTP/0.9, and others whose headers follow.

use super::{RequestSide, State};
use crate::app::http::framing;
use crate::app::http::readings::{Kind, Reading};
use crate::app::http::request_line::is_space;
use crate::app::http::step::Step;
use crate::app::transaction::Transactions;

/// Maximum number of white-space bytes after the line of an HTTP/0.9 request.
const TRAILING_SPACES_MAX: usize = 16;

impl RequestSide {
    /// Decides whether a request without protocol is one of HTTP/0.9 or has headers. RFC 9112, section 3 knows no such request;
    /// for recipients of HTTP/0.9 it ends with its line, and what follows is another one.
    pub(super) fn http_09(&mut self, data: &[u8], out: &mut Transactions) -> Step {
        let spaces = data.iter().take_while(|&&byte| is_space(byte)).count();
        if spaces == data.len() && spaces <= TRAILING_SPACES_MAX {
            return Step::NeedMore;
        }
        self.raise(out, "http.request_line_missing_protocol");
        self.differ(out, framing::START_LINE);
        let reading = Reading {
            is_http_09: true,
            ..Reading::default()
        };
        self.fork(Kind::Start, [reading]);
        self.state = State::Headers;
        Step::Consumed(0)
    }
}
