//! The pairing of the requests and responses of a connection.

use std::collections::VecDeque;

use super::publish::update_record;
use super::request_line::{METHODS, RequestLine, is_space};
use super::uri::Uri;
use crate::app::AppProtocol;
use crate::app::heap::heap;
use crate::app::transaction::{LIVE_TRANSACTIONS, Transactions};
use crate::flow::Direction;

/// Bytes of an incomplete line in which its method is looked for.
const METHOD_ROOM: usize = 64;

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

/// The incomplete line of a request, while bytes of the server are parsed.
#[derive(Debug, Default)]
pub(super) struct HalfLine {
    pub(super) text: Vec<u8>,
    /// Offset of the line in the stream.
    pub(super) begin: u64,
    /// True if an earlier request was seen.
    pub(super) is_later: bool,
    /// The transaction that has begun with the response to the request.
    pub(super) answered: Option<u64>,
}

heap!(HalfLine { text });

impl HalfLine {
    /// Begins the transaction of the request for its response; `None` if the bytes so far do not show that the line begins a
    /// request, or if the request is CONNECT: its answer decides what the client's later bytes are.
    pub(super) fn begin(&mut self, out: &mut Transactions) -> Option<Waiting> {
        let name = self
            .method()
            .filter(|name| !self.is_later || METHODS.contains(name))?;
        let method = Method::of(name);
        if method == Method::Connect || self.answered.is_some() {
            return None;
        }
        let mut request = RequestLine::default();
        request.parse(&self.text);
        let transaction = out.start(AppProtocol::Http);
        transaction.begin[Direction::ToServer.index()] = Some(self.begin);
        let uri = request.uri().unwrap_or_default();
        update_record(transaction, |record| {
            record.method = request.method().to_vec();
            record.url = uri.to_vec();
        });
        self.answered = Some(transaction.id);
        Some(Waiting {
            transaction: transaction.id,
            method,
            is_http_09: false,
            expects_continue: false,
            file_name: file_name(&Uri::parse(uri).normalise().unwrap_or_default()),
        })
    }

    /// Returns the method, if it is complete.
    fn method(&self) -> Option<&[u8]> {
        let head = &self.text[..self.text.len().min(METHOD_ROOM)];
        let head = &head[head.iter().position(|&byte| !is_space(byte))?..];
        let size = head.iter().position(|&byte| is_space(byte))?;
        Some(&head[..size])
    }
}

/// Returns the path of a normalised URI, which names the file of a response.
pub(super) fn file_name(normal: &[u8]) -> Vec<u8> {
    let path = normal.split(|&byte| byte == b'?').next();
    path.unwrap_or_default().to_vec()
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
