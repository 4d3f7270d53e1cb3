//! The upgrade of a connection of HTTP/1.1: its request is that of the stream 1 (RFC 7540, section 3.2), and the server may send
//! frames at once.
//!
//! ```text
//!  to server  GET / HTTP/1.1, Upgrade: h2c ─────────────────────────────▶ preface | frame | …
//!  to client                                101, Upgrade: h2c | SETTINGS | HEADERS of the stream 1 | …
//! ```

use millrace_ips_rules::buffers::Buffer;

use super::HEADER;
use super::header::{Frame, kind};
use crate::app::heap::heap;
use crate::app::http::headers::{Headers, Lines};
use crate::app::transaction::Transaction;
use crate::app::{AppProtocol, ProtocolDetection};
use crate::flow::Direction;

const SIDE: Direction = Direction::ToServer;

/// Number of the stream of the request.
pub(super) const STREAM: u32 = 1;
/// Largest size of a frame before other settings, in bytes (RFC 9113, section 6.5.2).
const FRAME_SIZE: usize = 16_384;
/// Size of a setting in bytes.
const SETTING: usize = 6;

/// The request with which a client upgraded the connection.
#[derive(Debug)]
pub(in crate::app) struct UpgradeRequest {
    /// Method and path as pseudo-headers, then the headers as they were sent.
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The decoded body, if there is one.
    pub(super) body: Option<Vec<u8>>,
}

heap!(UpgradeRequest { fields, body });

impl UpgradeRequest {
    /// Returns the request of a transaction of HTTP/1.1.
    pub(in crate::app) fn of(transaction: &Transaction) -> UpgradeRequest {
        let buffer = |buffer| transaction.buffer(buffer, SIDE).unwrap_or_default();
        let mut headers = Headers::default();
        let block = buffer(Buffer::HttpHeaderRaw);
        headers.add_block(block, (SIDE, Lines::of(SIDE)), &mut Vec::new());
        let pseudo = [
            (&b":method"[..], buffer(Buffer::HttpMethod)),
            (b":path", buffer(Buffer::HttpUriRaw)),
        ];
        let fields = pseudo.into_iter().chain(headers.pairs());
        UpgradeRequest {
            fields: fields
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect(),
            body: transaction
                .buffer(Buffer::HttpRequestBody, SIDE)
                .map(<[u8]>::to_vec),
        }
    }
}

/// Returns if the first bytes of a server are those of HTTP/2: its first frame has settings (RFC 9113, section 3.4).
pub(in crate::app) fn detect_server(data: &[u8]) -> ProtocolDetection {
    let Some(header) = data.first_chunk::<HEADER>() else {
        // The highest byte of the size is 0.
        return match data.first() {
            None | Some(0) => ProtocolDetection::Undecided,
            Some(_) => ProtocolDetection::Unknown,
        };
    };
    let frame = Frame::read(header);
    let is_settings = frame.kind == kind::SETTINGS && frame.flags == 0 && frame.stream == 0;
    match is_settings && frame.size <= FRAME_SIZE && frame.size % SETTING == 0 {
        true => ProtocolDetection::Found(AppProtocol::Http2),
        false => ProtocolDetection::Unknown,
    }
}
