//! HTTP/1: requests and responses, as libhtp's documentation describes them for the personality "IDS".
//!
//! ```text
//!  to server ─▶ RequestSide ── request lines ──▶ Pairing ── which request is answered ──▶ ResponseSide ◀─ to client
//!                    │                                                                        │
//!                    └────────────────▶ buffers of the Transaction ◀──────────────────────────┘
//! ```
//!
//! Each side consumes lines and bodies as soon as they are complete, keeps only the incomplete line, and never looks at
//! segment boundaries: any segmentation gives the same transactions.

mod alternatives;
mod body;
mod byte_ranges;
mod chunked;
mod decompress;
mod framing;
mod headers;
pub(in crate::app) mod http2;
pub(in crate::app) mod multipart;
mod name_filter;
mod pairing;
mod publish;
mod readings;
mod request;
mod request_line;
mod response;
mod step;
#[cfg(test)]
mod tests;
mod uri;

pub(in crate::app) use uri::hex;

use std::borrow::Cow;

use super::AppSettings;
use super::parser::{Outcome, Parser};
use super::transaction::{SLICE, Transactions};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use alternatives::Alternatives;
use pairing::Pairing;
use request::RequestSide;
use response::ResponseSide;
use step::LINE_SIZE;

/// The parser of a connection.
#[derive(Debug)]
pub(super) struct Http {
    settings: AppSettings,
    request: RequestSide,
    response: ResponseSide,
    pairing: Pairing,
    alternatives: Alternatives,
}

heap!(Http {
    request,
    response,
    pairing,
    alternatives
});

impl Http {
    pub(super) fn new(settings: AppSettings) -> Http {
        Http {
            settings,
            request: RequestSide::default(),
            response: ResponseSide::default(),
            pairing: Pairing::default(),
            alternatives: Alternatives::default(),
        }
    }

    /// Returns the parser with the TCP port of the server, with which the ports in requests are compared.
    pub(super) fn with_port(mut self, port: u16) -> Http {
        self.request.server_port = Some(port);
        self
    }

    /// Passes bytes of a direction to its parsers. Without bytes, they continue where they waited for the other direction. Returns
    /// the server's bytes that must wait, if the responses in them answer more requests than may be parsed at once.
    fn read(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) -> Option<Vec<u8>> {
        let side = core::mem::replace(&mut out.side, direction.index());
        let rest = self.read_in_turns(direction, bytes, out);
        out.side = side;
        rest
    }

    fn read_in_turns(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        out: &mut Transactions,
    ) -> Option<Vec<u8>> {
        let mut bytes = Cow::Borrowed(bytes);
        let mut at = 0;
        loop {
            let is_alone = self.alternatives.is_empty(direction);
            let turn = match self.is_in_tunnel(direction) {
                // The byte that decides what the tunnel carries ends the further readings.
                true => (bytes.len() - at).min(1),
                false => self.alternatives.turn(direction, &bytes[at..]),
            };
            let now = &bytes[at..at + turn];
            let Some(mut left) = self.read_to_stop(direction, now, out) else {
                if self.is_foreign_tunnel() {
                    self.pairing.is_tunnel = true;
                    self.pending(direction).extend_from_slice(&bytes[at + turn..]);
                    return None;
                }
                self.alternatives.data(direction, now, out, &self.settings);
                at += turn;
                if at == bytes.len() {
                    return None;
                }
                continue;
            };
            // The parser continues with the bytes behind its stop, as the further readings do: first those that it held, then
            // those of this turn.
            let held = left.len().saturating_sub(turn);
            let taken = turn - (left.len() - held);
            self.alternatives
                .data(direction, &now[..taken], out, &self.settings);
            at += taken;
            left.truncate(held);
            let is_paused = direction == Direction::ToClient && self.pairing.pauses_responses;
            if is_alone && is_paused && self.request.pending.len() > SLICE {
                self.pairing.pauses_responses = false;
                return Some([&left[..], &bytes[at..]].concat());
            }
            if is_alone && held > 0 {
                bytes = Cow::Owned([&left[..], &bytes[at..]].concat());
                at = 0;
                left.clear();
            }
            self.leave_stop(direction, &left, out);
            while !left.is_empty()
                && let Some(behind) = self.read_to_stop(direction, &left, out)
            {
                left = behind;
                self.leave_stop(direction, &left, out);
            }
        }
    }

    /// Begins the further readings at which the parser of a direction has stopped, or parses the requests for which it waits.
    /// `held` are bytes behind the stop.
    #[cold]
    fn leave_stop(&mut self, direction: Direction, held: &[u8], out: &mut Transactions) {
        let forks = match direction {
            Direction::ToServer => &mut self.request.forks,
            Direction::ToClient => &mut self.response.forks,
        };
        forks.follow(held);
        self.alternatives.add(direction, forks, out, &self.settings);
        if direction == Direction::ToClient && core::mem::take(&mut self.pairing.pauses_responses) {
            self.read(Direction::ToServer, &[], out);
        }
    }

    /// Passes bytes of a direction to its parser. Returns the bytes behind the position at which it has stopped, if it has: at
    /// a fork, or behind the answer to a CONNECT whose later bytes are not parsed yet.
    fn read_to_stop(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        out: &mut Transactions,
    ) -> Option<Vec<u8>> {
        let (has_stopped, pending) = match direction {
            Direction::ToServer => {
                self.request.data(bytes, &mut self.pairing, out, &self.settings);
                (!self.request.forks.is_empty(), &mut self.request.pending)
            }
            Direction::ToClient => {
                self.request.lend_line(&mut self.pairing);
                self.response.data(bytes, &mut self.pairing, out, &self.settings);
                self.request.take_line_back(&mut self.pairing);
                let has_stopped = !self.response.forks.is_empty() || self.pairing.pauses_responses;
                (has_stopped, &mut self.response.pending)
            }
        };
        has_stopped.then(|| core::mem::take(pending))
    }

    /// Returns true in a tunnel of which it is not known whether it carries HTTP.
    fn is_in_tunnel(&self, direction: Direction) -> bool {
        match direction {
            Direction::ToServer => self.request.is_in_tunnel(),
            Direction::ToClient => self.response.is_in_tunnel(),
        }
    }

    /// Returns true in a tunnel that does not carry HTTP: its server speaks first, or does not wait for the client's request line.
    fn is_foreign_tunnel(&self) -> bool {
        let waiting = match self.response.is_in_tunnel() {
            true => self.response.pending.len(),
            false => 0,
        };
        self.pairing.is_tunnel || waiting > LINE_SIZE || waiting > 0 && self.request.pending.is_empty()
    }

    fn pending(&mut self, direction: Direction) -> &mut Vec<u8> {
        match direction {
            Direction::ToServer => &mut self.request.pending,
            Direction::ToClient => &mut self.response.pending,
        }
    }

    /// Gives back the client's bytes behind CONNECT, which may be thousands of requests, and those of the server that follow
    /// the answer to it.
    fn pause(&mut self, server: Vec<u8>) -> Outcome {
        Outcome::Paused {
            rest: [
                (Direction::ToServer, core::mem::take(&mut self.request.pending)),
                (Direction::ToClient, server),
            ],
        }
    }

    fn outcome(&mut self) -> Outcome {
        if self.pairing.is_tunnel {
            return Outcome::Switch {
                rest: [
                    core::mem::take(&mut self.request.pending),
                    core::mem::take(&mut self.response.pending),
                ],
            };
        }
        if self.pairing.is_refused {
            return Outcome::Failed;
        }
        Outcome::Continue
    }
}

impl Parser for Http {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let direction = chunk.direction;
        if chunk.gap_before > 0 {
            self.alternatives.gap(direction, out, &self.settings);
            match direction {
                Direction::ToServer => {
                    self.request.end_connect(&mut self.pairing, out, &self.settings);
                    self.request.gap(chunk.gap_before, out);
                }
                Direction::ToClient => self.response.gap(chunk.gap_before, out),
            }
        }
        let rest = self.read(direction, chunk.bytes, out);
        if rest.is_some() || self.pairing.connect.is_some() && self.request.pending.len() > SLICE {
            return self.pause(rest.unwrap_or_default());
        }
        if direction == Direction::ToClient {
            // After the answer to CONNECT or to "Expect", parsing of the client's bytes continues.
            self.read(Direction::ToServer, &[], out);
        }
        while self.pairing.resumes_http {
            if let Some(rest) = self.read(Direction::ToClient, &[], out) {
                return self.pause(rest);
            }
            self.read(Direction::ToServer, &[], out);
        }
        if self.pairing.is_tunnel {
            self.request.end_connect(&mut self.pairing, out, &self.settings);
        }
        self.outcome()
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        self.alternatives.end(direction, out, &self.settings);
        match direction {
            Direction::ToServer => self.request.end(&mut self.pairing, out, &self.settings),
            Direction::ToClient => {
                self.request.lend_line(&mut self.pairing);
                self.response.end(&mut self.pairing, out, &self.settings);
                self.request.take_line_back(&mut self.pairing);
            }
        }
    }

    fn is_strict(&self) -> bool {
        self.pairing.is_refused
    }
}
