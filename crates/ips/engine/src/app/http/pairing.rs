//! The pairing of the requests and responses of a connection.

use std::collections::VecDeque;

use super::request::HalfLine;
use crate::app::heap::heap;
use crate::app::transaction::LIVE_TRANSACTIONS;

/// A request that waits for its response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Waiting {
    pub(super) transaction: u64,
    pub(super) method: Method,
    pub(super) is_http_09: bool,
    pub(super) expects_continue: bool,
    pub(super) file_name: Vec<u8>,
}

heap!(Waiting { file_name });

/// The methods whose responses differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Method {
    Head,
    Connect,
    #[default]
    Other,
}

impl Method {
    /// Returns the kind of a method by its name.
    pub(super) fn of(name: &[u8]) -> Method {
        match name {
            b"HEAD" => Method::Head,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }
}

/// The pairing of the requests and responses of a connection.
#[derive(Debug, Default)]
pub(super) struct Pairing {
    /// Requests without complete response, oldest first.
    pub(super) waiting: VecDeque<Waiting>,
    /// The incomplete line of a request behind these, while bytes of the server are parsed.
    pub(super) half_line: HalfLine,
    /// True once a request was removed because too many wait: responses cannot be assigned to requests any more.
    pub(super) has_overflowed: bool,
    /// The transaction of the last request to change the protocol, until its response begins.
    pub(super) awaits_upgrade: Option<u64>,
    /// The answer to CONNECT, once it is known: true if the tunnel is open.
    pub(super) connect: Option<bool>,
    /// True if bytes of the client after a CONNECT wait for the answer to it.
    pub(super) has_held_requests: bool,
    /// True while the server's bytes after the answer to a CONNECT wait until the client's bytes behind it are parsed.
    pub(super) pauses_responses: bool,
    /// True if the tunnel of CONNECT carries HTTP.
    pub(super) resumes_http: bool,
    /// True once the connection speaks another protocol.
    pub(super) is_tunnel: bool,
    /// The transaction whose response refuses the body for which its request waits (status 4xx after "Expect: 100-continue").
    pub(super) refuses_body: Option<u64>,
    /// True once a message is refused: its framing is invalid, or recipients disagree on its end.
    pub(super) is_refused: bool,
}

heap!(Pairing { waiting, half_line });

impl Pairing {
    pub(super) fn push(&mut self, waiting: Waiting) {
        if self.waiting.len() >= LIVE_TRANSACTIONS {
            self.waiting.pop_front();
            self.has_overflowed = true;
        }
        self.waiting.push_back(waiting);
    }
}
