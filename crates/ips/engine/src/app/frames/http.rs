//! Frames of HTTP/1: each request and each response, from its first line to the end of its body (RFC 9112, sections 2 and 6).

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;

use super::line::{Line, blanks, decimal, header};
use super::units::{Found, Step, Units};
use crate::app::heap::{flat, heap};
use crate::flow::Direction;

/// Largest number of requests without a response whose methods are kept.
const REQUESTS: usize = 64;

/// The part of a message that is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    #[default]
    FirstLine,
    Headers,
    /// The line with the size of a chunk.
    ChunkSize,
    /// The line end behind a chunk.
    ChunkEnd,
    /// Headers behind the last chunk.
    Trailer,
    /// All up to the end of the connection.
    Rest,
}

/// The kind of a request, which decides the size of the body of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Head,
    Connect,
    Other,
}

flat!(Method);

#[derive(Debug, Default)]
struct Side {
    part: Part,
    line: Line,
    content_length: Option<u64>,
    is_chunked: bool,
    status: u64,
}

heap!(Side { line });

/// The messages of a connection.
#[derive(Debug, Default)]
pub(super) struct Http1 {
    sides: [Side; 2],
    /// The methods of the requests without a response.
    methods: VecDeque<Method>,
}

heap!(Http1 { sides, methods });

impl Http1 {
    /// Ends a message a number of bytes behind the beginning of the unit.
    fn end(&mut self, kind: Buffer, behind: u64, found: &mut Found<'_>) {
        found.close(kind, behind);
        let side = &mut self.sides[found.next.direction.index()];
        side.part = Part::FirstLine;
        if found.next.direction == Direction::ToClient && side.status >= 200 {
            self.methods.pop_front();
        }
    }

    /// Decides where the body of a message ends, whose headers end with the unit.
    fn body(&mut self, kind: Buffer, size: u64, found: &mut Found<'_>) -> Step {
        let side = &mut self.sides[found.next.direction.index()];
        let is_response = found.next.direction == Direction::ToClient;
        let method = match is_response {
            true => self.methods.front().copied().unwrap_or(Method::Other),
            false => Method::Other,
        };
        let is_success = (200..300).contains(&side.status);
        if is_response && (side.status == 101 || method == Method::Connect && is_success) {
            // Another protocol follows.
            side.part = Part::Rest;
            found.close(kind, size);
            return Step::Unit(size);
        }
        let has_body = !is_response
            || !(side.status < 200 || matches!(side.status, 204 | 304)) && method != Method::Head;
        match (has_body, side.is_chunked, side.content_length) {
            (true, true, _) => side.part = Part::ChunkSize,
            (true, false, Some(body)) => {
                self.end(kind, size.saturating_add(body), found);
                return Step::Unit(size.saturating_add(body));
            }
            (true, false, None) if is_response => side.part = Part::Rest,
            _ => self.end(kind, size, found),
        }
        Step::Unit(size)
    }
}

impl Units for Http1 {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        let kind = match direction {
            Direction::ToServer => Buffer::FrameHttp1Request,
            Direction::ToClient => Buffer::FrameHttp1Response,
        };
        let side = &mut self.sides[direction.index()];
        match side.part {
            Part::Rest => return Step::Unit(bytes.len() as u64),
            Part::FirstLine if !side.line.is_open => {
                let blanks = blanks(bytes);
                if blanks > 0 {
                    return Step::Unit(blanks as u64);
                }
                (side.content_length, side.is_chunked, side.status) = (None, false, 0);
                found.frame(kind, 0, None);
            }
            _ => {}
        }
        let taken = side.line.take(bytes);
        let size = taken.size;
        let Some(line) = taken.line else {
            return Step::Unit(size);
        };
        match side.part {
            Part::FirstLine => {
                side.part = Part::Headers;
                let mut words = line
                    .split(u8::is_ascii_whitespace)
                    .filter(|word| !word.is_empty());
                let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                if direction == Direction::ToClient {
                    side.status = decimal(second).unwrap_or(0);
                } else if self.methods.len() < REQUESTS {
                    self.methods.push_back(match first {
                        b"HEAD" => Method::Head,
                        b"CONNECT" => Method::Connect,
                        _ => Method::Other,
                    });
                }
            }
            Part::Headers if line.is_empty() => return self.body(kind, size, found),
            Part::Headers => {
                if let Some(value) = header(&line, &[b"content-length"]) {
                    side.content_length = decimal(value);
                }
                if let Some(value) = header(&line, &[b"transfer-encoding"]) {
                    side.is_chunked |= value.to_ascii_lowercase().ends_with(b"chunked");
                }
            }
            Part::ChunkSize => {
                let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
                let digits = core::str::from_utf8(&line[..digits]).unwrap_or_default();
                return match u64::from_str_radix(digits, 16) {
                    Ok(0) => {
                        side.part = Part::Trailer;
                        Step::Unit(size)
                    }
                    Ok(chunk) => {
                        side.part = Part::ChunkEnd;
                        Step::Unit(size.saturating_add(chunk))
                    }
                    Err(_) => Step::Stop,
                };
            }
            Part::ChunkEnd => side.part = Part::ChunkSize,
            Part::Trailer if line.is_empty() => self.end(kind, size, found),
            Part::Trailer | Part::Rest => {}
        }
        Step::Unit(size)
    }
}
